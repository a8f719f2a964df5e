/* From the fused q, k, v product to what attention reads: biases, the position scheme, keys and values in their slots.
 * And the copies of keys and values between slots.
 *
 * A block takes some rows. Its threads compute each row's angles once, into shared memory; then a thread keeps the
 * cosines and sines of N channels of one row in registers (rope: N pairs of channels) and walks over the row's heads,
 * UNROLL of them in flight. What a block's place or size is changes no bit: an element's arithmetic knows no other.
 *
 * Bytes an element of qkv in half types: 2 read, 2 written (pope: 4 for q and k) and padding. Memory is the bound as
 * long as an element of pope takes less than 41 instructions (H200: 18 bytes a clock and SM, 128 lanes): it takes 16. */
#include <type_traits>

#include "kernels/cuda.cuh"

#define THREADS  256
#define MAX_ROWS 8
#define F16_MAX  65504.0f
#define F32_MAX  3.4028234e38f

/* How a block's threads divide: thread = (lane * rows + row) * units + unit. */
struct grain {
	uint32_t units, rows, lanes; /* units: of N channels or pairs; lanes: heads at a time */
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

/* max(x, 0) + log(1 + e^-|x|). For f16: absolute error 2e-7, a third of f16's last place at 1e-3. */
template <typename Q>
static __device__ __forceinline__ float softplus(float x)
{
	return fmaf(fast_log2(1.0f + fast_exp2(fabsf(x) * -LOG2E)), LN2, fmaxf(x, 0.0f));
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
	for (uint32_t i = threadIdx.x; i < n_rows * n_freq; i += blockDim.x) {
		const uint32_t r = i / n_freq;
		float s, c;

		if (row0 + r >= a.n_rows)
			break;
		sincospif(phase(a.pos[row0 + r], a.freq[i - r * n_freq]), &s, &c);
		cosines[i] = c * a.amplitude;
		sines[i] = s * a.amplitude;
	}
	__syncthreads();
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

/* N zeros at a time into columns [from, to) of a head's row, by the threads of its units */
template <typename T, int N>
static __device__ __forceinline__ void pad(T *out, uint32_t from, uint32_t to, uint32_t unit, uint32_t n_units)
{
	const float zeros[N] = {};

	for (uint32_t i = from + unit * N; i < to; i += n_units * N)
		store(out + i, zeros);
}

/* One head's channels [unit N, (unit + 1) N) in pope, in rope these and the ones head_dim/2 further on: to where they
 * go. Returns whether a value is beyond what its type holds. */
template <typename T, typename Q, bool POPE, int N>
static __device__ __forceinline__ bool put(const struct kern_qkv_post_cuda &a, uint32_t head, uint32_t row,
                                           uint32_t slot, uint32_t unit, uint32_t n_units, float (&x)[POPE ? 1 : 2][N],
                                           const float (&cosine)[N], const float (&sine)[N])
{
	const uint32_t d = a.head_dim, at = unit * N, n_qk = a.n_head + a.n_kv_head;
	const uint32_t second = POPE ? a.d_qk / 2 : d / 2; /* where the other half of the outputs lies */
	const bool key = head >= a.n_head;
	float y[2][N];
	Q *out;

	if (head >= n_qk) {
		T *v = (T *)a.v + ((size_t)(head - n_qk) * a.n_slots + slot) * a.d_v;
		bool bad = false;

#pragma unroll
		for (int p = 0; p < (POPE ? 1 : 2); p++) {
			store(v + at + p * second, x[p]);
			bad |= beyond(x[p], limit_of((T *)nullptr));
		}
		if (d < a.d_v)
			pad<T, N>(v, d, a.d_v, unit, n_units);
		return bad;
	}
	out = key ? (Q *)a.k + ((size_t)(head - a.n_head) * a.n_slots + slot) * a.d_qk
	          : (Q *)a.q + ((size_t)head * a.q_rows + row) * a.d_qk;
	if (POPE) {
		float cd[N], sd[N];

		if (key) {
			load(cd, a.cos_delta + (head - a.n_head) * d + at);
			load(sd, a.sin_delta + (head - a.n_head) * d + at);
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			float mu = softplus<Q>(x[0][i]), c = cosine[i], s = sine[i];

			if (key) { /* cos(p + delta), sin(p + delta) */
				c = cosine[i] * cd[i] - sine[i] * sd[i];
				s = sine[i] * cd[i] + cosine[i] * sd[i];
			}
			y[0][i] = mu * c;
			y[1][i] = mu * s;
		}
	} else {
#pragma unroll
		for (int i = 0; i < N; i++) {
			float lo = x[0][i], hi = x[POPE ? 0 : 1][i];

			y[0][i] = lo * cosine[i] - hi * sine[i];
			y[1][i] = hi * cosine[i] + lo * sine[i];
		}
	}
	store(out + at, y[0]);
	store(out + second + at, y[1]);
	if (POPE && d < second)
		pad<Q, N>(out, d, second, unit, n_units);
	if (second + (POPE ? d : d / 2) < a.d_qk)
		pad<Q, N>(out, second + (POPE ? d : d / 2), a.d_qk, unit, n_units);
	return beyond(y[0], limit_of((Q *)nullptr)) || beyond(y[1], limit_of((Q *)nullptr));
}

template <typename T, typename Q, bool POPE, int N>
__global__ void __launch_bounds__(THREADS)
    qkv_post(const __grid_constant__ struct kern_qkv_post_cuda a, const struct grain g)
{
	constexpr int PARTS = POPE ? 1 : 2, UNROLL = POPE ? 4 : 2;
	extern __shared__ float4 shared[];
	const uint32_t d = a.head_dim, n_freq = POPE ? d : d / 2, n_all = a.n_head + 2 * a.n_kv_head;
	const uint32_t unit = threadIdx.x % g.units, r = threadIdx.x / g.units % g.rows;
	const uint32_t lane = threadIdx.x / g.units / g.rows, row0 = blockIdx.x * g.rows, row = row0 + r;
	float *cosines = (float *)shared, *sines = cosines + g.rows * n_freq;
	float cosine[N], sine[N];
	uint32_t slot;
	bool bad = false;

	turn(cosines, sines, a, row0, g.rows, n_freq);
	if (row >= a.n_rows)
		return;
	load(cosine, cosines + r * n_freq + unit * N);
	load(sine, sines + r * n_freq + unit * N);
	slot = a.slot[row];
	for (uint32_t h0 = lane; h0 < n_all; h0 += g.lanes * UNROLL) {
		vec<T, N> in[UNROLL][PARTS];

#pragma unroll
		for (int j = 0; j < UNROLL; j++) {
			const uint32_t h = h0 + j * g.lanes;
			const T *from = (const T *)a.qkv + ((size_t)row * n_all + h) * d + unit * N;

			if (h < n_all)
#pragma unroll
				for (int p = 0; p < PARTS; p++)
					in[j][p] = load_vec<T, N>(from + p * (d / 2));
		}
#pragma unroll
		for (int j = 0; j < UNROLL; j++) {
			const uint32_t h = h0 + j * g.lanes;
			float x[PARTS][N];

			if (h >= n_all)
				break;
#pragma unroll
			for (int p = 0; p < PARTS; p++) {
				to_f32(x[p], in[j][p]);
				if (a.bias) {
					float b[N];

					load(b, a.bias + h * d + unit * N + p * (d / 2));
#pragma unroll
					for (int i = 0; i < N; i++)
						x[p][i] += b[i];
				}
			}
			bad |= put<T, Q, POPE, N>(a, h, row, slot, unit, g.units, x, cosine, sine);
		}
	}
	if (bad)
		note_fault(a.fault, row);
}

template <typename T, typename Q, bool POPE, int N>
static int launch(const struct kern_qkv_post_cuda *a, cudaStream_t stream)
{
	const uint32_t n_freq = POPE ? a->head_dim : a->head_dim / 2;
	struct grain g = {.units = n_freq / N, .rows = 1, .lanes = 1};

	while (g.rows < MAX_ROWS && 2 * g.rows * g.units <= THREADS)
		g.rows *= 2;
	g.lanes = THREADS / (g.rows * g.units);
	qkv_post<T, Q, POPE, N><<<ceil_div(a->n_rows, g.rows), g.units * g.rows * g.lanes,
	                          2 * g.rows * n_freq * sizeof(float), stream>>>(*a, g);
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
	const uint32_t k_bytes = d_qk * (uint32_t)kern_type_size(qk_type), v_bytes = d_v * (uint32_t)kern_type_size(type);
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
