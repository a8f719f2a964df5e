/* From the fused q, k, v product to what attention reads: biases, the position scheme, keys and values in their slots.
 * And the copies of keys and values between slots.
 *
 * A block takes some rows. It starts their copy into shared memory, and computes each row's angles once while it waits;
 * then a thread keeps the cosines and sines of N channels of one row in registers (rope: N pairs of channels) and walks
 * over the row's heads. What a block's place or size is changes no bit: an element's arithmetic knows no other.
 *
 * Bytes an element of qkv in half types: 2 read, 2 written (pope: 4 for q and k), and padding. Memory is the bound as
 * long as an element of pope takes less than 41 instructions (H200: 18 bytes a clock and SM, 128 lanes): it takes 18.
 * H200, bf16, 32768 rows: 12 heads of 64 rope 79.9 us, pope 108 us; 20 heads 130, 176; 32/8 heads of 128 205, 293:
 * 3.7 to 3.9 TB/s of 4.16 that a copy reaches. */
#include <type_traits>

#include "kernels/cuda.cuh"

#define THREADS     128
#define MAX_ROWS    8
#define STAGE_BYTES 20480 /* of a block's rows, though one row may need more: eight blocks an SM */
#define MIN_GRID    264   /* fewer rows a block rather than fewer blocks: two for each of 132 SMs */
#define F16_MAX     65504.0f
#define F32_MAX     3.4028234e38f

/* Single elements are for shapes that no vector fits: there a head may need a thread for each of its channels. */
template <int N>
constexpr uint32_t threads_of()
{
	return N == 1 ? KERN_MAX_HEAD_DIM : THREADS;
}

/* How a block's threads divide: thread = (lane * rows + row) * units + unit. */
struct grain {
	uint32_t units, rows, lanes; /* units: of N channels or pairs; lanes: heads at a time */
	uint32_t turn_bytes;         /* shared memory of the angles, before the rows */
};

static __device__ __forceinline__ float limit_of(const float *)
{
	return F32_MAX;
}
static __device__ __forceinline__ float limit_of(const __half *)
{
	return F16_MAX;
}
static __device__ __forceinline__ float limit_of(const __nv_bfloat16 *)
{
	return F32_MAX;
}

/* max(x, 0) + log(1 + e^-|x|) */
template <typename Q>
static __device__ __forceinline__ float softplus(float x)
{
	return fast_softplus(x);
}
template <>
__device__ __forceinline__ float softplus<float>(float x)
{
	return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

/* phase = pos * freq, exact modulo a turn; in half-turns it is a fraction of 31 bits (cf. engine/position.h) */
static __device__ __forceinline__ float phase(uint64_t pos, uint64_t freq)
{
	return (float)(int32_t)(uint32_t)(pos * freq >> 32) * 0x1p-31f;
}

/* Cosines and sines of the block's rows, times the amplitude: [rows, n_freq] each. */
static __device__ __forceinline__ void turn(float *cosines, float *sines, const struct kern_qkv_post_cuda &a,
                                            uint32_t row0, uint32_t n_rows, uint32_t n_freq)
{
#pragma unroll 1
	for (uint32_t i = threadIdx.x; i < n_rows * n_freq; i += blockDim.x) {
		const uint32_t r = i / n_freq;
		float s, c;

		if (row0 + r >= a.n_rows)
			break;
		sincospif(phase(a.pos[row0 + r], a.freq[i - r * n_freq]), &s, &c);
		cosines[i] = c * a.amplitude;
		sines[i] = s * a.amplitude;
	}
}

template <int N>
static __device__ __forceinline__ bool beyond(const float (&x)[N], float limit)
{
	bool bad = false;

#pragma unroll
	for (int i = 0; i < N; i++)
		bad |= !(fabsf(x[i]) <= limit); /* a NaN is beyond */
	return bad;
}

/* What a thread knows: its row, where the row's outputs go, its channels and their angles. */
template <int N>
struct place {
	uint32_t row, slot, unit, lane;
	float cosine[N], sine[N];
};

enum part { QUERY, KEY, VALUE };

/* One head's channels [unit N, (unit + 1) N) in pope, in rope these and the ones head_dim/2 further on: to where they
 * go. Returns whether a value is beyond what its type holds. */
template <typename T, typename Q, bool POPE, int N, enum part PART>
static __device__ __forceinline__ bool put(const struct kern_qkv_post_cuda &a, const struct place<N> &p, uint32_t head,
                                           const float (&x)[POPE ? 1 : 2][N])
{
	const uint32_t d = a.head_dim, at = p.unit * N;
	const uint32_t second = POPE ? a.d_qk / 2 : d / 2; /* where the other half of the outputs lies */
	float y[2][N];

	if (PART == VALUE) {
		T *v = (T *)a.v + ((size_t)head * a.n_slots + p.slot) * a.d_v;
		bool bad = false;

#pragma unroll
		for (int i = 0; i < (POPE ? 1 : 2); i++) {
			store(v + at + i * second, x[i]);
			bad |= beyond(x[i], limit_of((T *)nullptr));
		}
		return bad;
	}
	Q *out = PART == KEY ? (Q *)a.k + ((size_t)head * a.n_slots + p.slot) * a.d_qk
	                     : (Q *)a.q + ((size_t)head * a.q_rows + p.row) * a.d_qk;
	if (POPE) {
		float cd[N], sd[N];

		if (PART == KEY) {
			load(cd, a.cos_delta + head * d + at);
			load(sd, a.sin_delta + head * d + at);
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			float mu = softplus<Q>(x[0][i]), c = p.cosine[i], s = p.sine[i];

			if (PART == KEY) { /* cos(p + delta), sin(p + delta) */
				c = p.cosine[i] * cd[i] - p.sine[i] * sd[i];
				s = p.sine[i] * cd[i] + p.cosine[i] * sd[i];
			}
			y[0][i] = mu * c;
			y[1][i] = mu * s;
		}
	} else {
#pragma unroll
		for (int i = 0; i < N; i++) {
			float lo = x[0][i], hi = x[POPE ? 0 : 1][i];

			y[0][i] = lo * p.cosine[i] - hi * p.sine[i];
			y[1][i] = hi * p.cosine[i] + lo * p.sine[i];
		}
	}
	store(out + at, y[0]);
	store(out + second + at, y[1]);
	return beyond(y[0], limit_of((Q *)nullptr)) || beyond(y[1], limit_of((Q *)nullptr));
}

/* Starts the copy of n elements, in vectors of N. */
template <typename T, int N>
static __device__ __forceinline__ void stage(T *shared, const T *in, uint32_t n)
{
	for (uint32_t i = threadIdx.x * N; i < n; i += blockDim.x * N)
		if constexpr (N * sizeof(T) == 16)
			asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
			                 (uint32_t)__cvta_generic_to_shared(shared + i)),
			             "l"(in + i)
			             : "memory");
		else
			shared[i] = in[i];
}

/* The thread's share of its row's heads, `in` in shared memory. */
template <typename T, typename Q, bool POPE, int N>
static __device__ __forceinline__ bool put_heads(const struct kern_qkv_post_cuda &a, const struct grain &g,
                                                 const struct place<N> &p, const T *in)
{
	constexpr int HALVES = POPE ? 1 : 2;
	const uint32_t d = a.head_dim, n_qk = a.n_head + a.n_kv_head;
	bool bad = false;

#pragma unroll 1
	for (uint32_t h = p.lane; h < n_qk + a.n_kv_head; h += g.lanes) {
		float x[HALVES][N];

#pragma unroll
		for (int i = 0; i < HALVES; i++) {
			const uint32_t at = h * d + i * (d / 2) + p.unit * N;

			load(x[i], in + at);
			if (a.bias) {
				float b[N];

				load(b, a.bias + at);
#pragma unroll
				for (int c = 0; c < N; c++)
					x[i][c] += b[c];
			}
		}
		if (h < a.n_head)
			bad |= put<T, Q, POPE, N, QUERY>(a, p, h, x);
		else if (h < n_qk)
			bad |= put<T, Q, POPE, N, KEY>(a, p, h - a.n_head, x);
		else
			bad |= put<T, Q, POPE, N, VALUE>(a, p, h - n_qk, x);
	}
	return bad;
}

/* Zeros into what a row's heads, `stride` elements apart, leave unused: each `width` elements, `used` of them used. */
template <typename T, int N>
static __device__ __forceinline__ void pad(const struct grain &g, const struct place<N> &p, T *row, size_t stride,
                                           uint32_t n, uint32_t width, uint32_t used)
{
#pragma unroll 1
	for (uint32_t h = p.lane; h < n; h += g.lanes)
#pragma unroll 1
		for (uint32_t i = used + p.unit * N; i < width; i += g.units * N)
			store_zeros<T, N>(row + h * stride + i);
}

template <typename T, typename Q, bool POPE, int N>
static __device__ __forceinline__ void pad_heads(const struct kern_qkv_post_cuda &a, const struct grain &g,
                                                 const struct place<N> &p)
{
	const uint32_t halves = POPE ? 2 : 1, width = a.d_qk / halves;

	for (uint32_t i = 0; i < halves && a.head_dim < width; i++) {
		pad<Q, N>(g, p, (Q *)a.q + (size_t)p.row * a.d_qk + i * width, (size_t)a.q_rows * a.d_qk, a.n_head,
		          width, a.head_dim);
		pad<Q, N>(g, p, (Q *)a.k + (size_t)p.slot * a.d_qk + i * width, (size_t)a.n_slots * a.d_qk,
		          a.n_kv_head, width, a.head_dim);
	}
	if (a.head_dim < a.d_v)
		pad<T, N>(g, p, (T *)a.v + (size_t)p.slot * a.d_v, (size_t)a.n_slots * a.d_v, a.n_kv_head, a.d_v,
		          a.head_dim);
}

template <typename T, typename Q, bool POPE, int N>
__global__ void __launch_bounds__(threads_of<N>(), 1024 / threads_of<N>())
    qkv_post(const __grid_constant__ struct kern_qkv_post_cuda a, const __grid_constant__ struct grain g)
{
	extern __shared__ float4 shared[];
	const uint32_t n_freq = POPE ? a.head_dim : a.head_dim / 2, row0 = blockIdx.x * g.rows;
	const uint32_t width = (a.n_head + 2 * a.n_kv_head) * a.head_dim, r = threadIdx.x / g.units % g.rows;
	float *cosines = (float *)shared, *sines = cosines + g.rows * n_freq;
	T *rows = (T *)((char *)shared + g.turn_bytes);
	struct place<N> p;
	bool bad;

	stage<T, N>(rows, (const T *)a.qkv + (size_t)row0 * width, min(g.rows, a.n_rows - row0) * width);
	turn(cosines, sines, a, row0, g.rows, n_freq);
	asm volatile("cp.async.wait_all;" ::: "memory");
	__syncthreads();
	p.row = row0 + r;
	if (p.row >= a.n_rows)
		return;
	p.slot = a.slot[p.row];
	p.unit = threadIdx.x % g.units;
	p.lane = threadIdx.x / g.units / g.rows;
	load(p.cosine, cosines + r * n_freq + p.unit * N);
	load(p.sine, sines + r * n_freq + p.unit * N);
	bad = put_heads<T, Q, POPE, N>(a, g, p, rows + r * width);
	pad_heads<T, Q, POPE, N>(a, g, p);
	if (bad)
		note_fault(a.fault, p.row);
}

template <typename T, typename Q, bool POPE, int N>
static int launch(const struct kern_qkv_post_cuda *a, cudaStream_t stream)
{
	const uint32_t n_freq = POPE ? a->head_dim : a->head_dim / 2;
	const size_t row_bytes = (size_t)(a->n_head + 2 * a->n_kv_head) * a->head_dim * sizeof(T);
	struct grain g = {};
	size_t bytes;

	g.units = n_freq / N;
	g.rows = MAX_ROWS;
	while (g.rows > 1 && (g.rows * g.units > threads_of<N>() || g.rows * row_bytes > STAGE_BYTES ||
	                      ceil_div(a->n_rows, g.rows) < MIN_GRID))
		g.rows /= 2;
	g.lanes = threads_of<N>() / (g.rows * g.units);
	g.turn_bytes = ceil_div(2 * g.rows * n_freq * (uint32_t)sizeof(float), 16) * 16;
	bytes = g.turn_bytes + g.rows * row_bytes;
	if (bytes > 49152) {
		cudaError_t rc = cudaFuncSetAttribute(qkv_post<T, Q, POPE, N>,
		                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);

		if (rc)
			return (int)rc;
	}
	qkv_post<T, Q, POPE, N>
	    <<<ceil_div(a->n_rows, g.rows), g.units * g.rows * g.lanes, bytes, stream>>>(*a, g);
	return launched();
}

/* Whether rows of all four buffers are whole vectors of n elements. */
static bool whole(const struct kern_qkv_post_cuda *a, uint32_t n)
{
	return a->head_dim % (a->pope ? n : 2 * n) == 0 && a->d_qk % (a->pope ? 2 * n : n) == 0 && a->d_v % n == 0;
}

int kern_qkv_post_cuda(const struct kern_qkv_post_cuda *a, struct CUstream_st *stream)
{
	if (!a->n_rows)
		return 0;
	if (!a->head_dim || a->head_dim > KERN_MAX_HEAD_DIM || !a->n_head || !a->n_kv_head || a->d_v < a->head_dim ||
	    a->d_qk < (a->pope ? 2 : 1) * a->head_dim || (a->pope ? a->d_qk : a->head_dim) % 2)
		return BAD_ARGS;
	return with_type(a->type, [&](auto zero) {
		using T = decltype(zero);
		using Q = typename std::conditional<sizeof(T) == 4, float, __half>::type;
		constexpr int N = 16 / sizeof(T);

		if (whole(a, N))
			return a->pope ? launch<T, Q, true, N>(a, stream) : launch<T, Q, false, N>(a, stream);
		return a->pope ? launch<T, Q, true, 1>(a, stream) : launch<T, Q, false, 1>(a, stream);
	});
}

/* -- copies between slots ---------------------------------------------------------------------------- */

/* A warp copies one key or value: n words of V from slot to slot. */
template <typename V>
static __device__ __forceinline__ void copy(V *to, const V *from, uint32_t n)
{
	for (uint32_t i = threadIdx.x % WARP; i < n; i += WARP)
		to[i] = from[i];
}

template <typename V>
__global__ void __launch_bounds__(THREADS) stitch(V *k, V *v, const struct kern_slot_copy *copies, uint32_t n,
                                                  uint32_t n_kv_head, uint32_t n_slots, uint32_t k_words,
                                                  uint32_t v_words)
{
	const uint64_t i = (uint64_t)blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
	const uint32_t head = (uint32_t)(i / n);

	if (head >= n_kv_head)
		return;
	const struct kern_slot_copy c = copies[i - (uint64_t)head * n];
	const size_t to = (size_t)head * n_slots + c.to, from = (size_t)head * n_slots + c.from;

	copy(k + to * k_words, k + from * k_words, k_words);
	copy(v + to * v_words, v + from * v_words, v_words);
}

int kern_stitch_cuda(void *k, void *v, const struct kern_slot_copy *copies, uint32_t n, uint32_t n_kv_head,
                     uint32_t n_slots, uint32_t d_qk, uint32_t d_v, enum kern_type qk_type, enum kern_type type,
                     struct CUstream_st *stream)
{
	const uint32_t k_bytes = d_qk * (uint32_t)kern_type_size(qk_type);
	const uint32_t v_bytes = d_v * (uint32_t)kern_type_size(type);
	const uint64_t blocks = ceil_div((uint64_t)n * n_kv_head, THREADS / WARP);

	if (!n)
		return 0;
	if (!k_bytes || !v_bytes || blocks > INT32_MAX)
		return BAD_ARGS;
	if ((k_bytes | v_bytes) % 16)
		stitch<<<(unsigned)blocks, THREADS, 0, stream>>>((uint16_t *)k, (uint16_t *)v, copies, n, n_kv_head,
		                                                 n_slots, k_bytes / 2, v_bytes / 2);
	else
		stitch<<<(unsigned)blocks, THREADS, 0, stream>>>((uint4 *)k, (uint4 *)v, copies, n, n_kv_head, n_slots,
		                                                 k_bytes / 16, v_bytes / 16);
	return launched();
}
