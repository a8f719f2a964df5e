/* Linear layers on Hopper whose results need not pass through memory once more: the activation or the position scheme
 * is the epilogue of the product (gemm_sm90.cuh), in f32 registers, under the other warpgroup's products.
 *
 * A thread has 8 neighbouring columns of 32 at a time ("block" b of them), of two rows 8 apart, and stores 16 bytes. */
#include "kernels/cuda.cuh"
#include "kernels/gemm_sm90.cuh"
#include "kernels/linear_sm90.h"

#define NOWHERE UINT32_MAX

typedef gemm_plan<128, 7, 2, GEMM_TURNS> turns_plan;
typedef gemm_plan<256, 4, 2, 3> whole_plan;
#define LONG_K 2048 /* from here on an epilogue is short beside its products: whole_plan, which reads less of L2. H200,
                     * 32768 rows, ms, in turns and whole: n 1280, k 1280 .151 .155; n 768, k 3072 .224 .214; n 1280,
                     * k 5120 .583 .551; with GELU always in turns: n 5120, k 1280 .602 .740 */
#define MAX_K  4096 /* from here on cuBLASLt is as fast. H200, 32768 rows, ms, ours and cuBLASLt's: n 768, k 768 .064
                     * .070, k 3072 .208 .217; n 1280, k 1280 .156 .171, k 5120 .550 .538; with GELU n 3072, k 768
                     * .230 .261, n 5120, k 1280 .594 .629 */

/* Sum j of 8 of block b, upper (0) or lower (1) row. */
#define AT(d, b, row, j) (d)[(b) * 16 + (j) / 2 * 4 + (row) * 2 + (j) % 2]

/* -- pairs of halves ----------------------------------------------------------------------------------- */

/* The larger magnitudes of two pairs; a NaN stays. */
static __device__ __forceinline__ uint32_t largest(uint32_t a, uint32_t b, const __half *)
{
	asm("{\n\t.reg .b32 t;\n\tabs.f16x2 t, %1;\n\tmax.NaN.f16x2 %0, %0, t;\n\t}" : "+r"(a) : "r"(b));
	return a;
}

static __device__ __forceinline__ uint32_t largest(uint32_t a, uint32_t b, const __nv_bfloat16 *)
{
	asm("{\n\t.reg .b32 t;\n\tabs.bf16x2 t, %1;\n\tmax.NaN.bf16x2 %0, %0, t;\n\t}" : "+r"(a) : "r"(b));
	return a;
}

/* Whether either of a pair of magnitudes is infinite or NaN. */
static __device__ __forceinline__ bool beyond(uint32_t a, const __half *)
{
	return (a & 0x7c00) == 0x7c00 || (a >> 16 & 0x7c00) == 0x7c00;
}

static __device__ __forceinline__ bool beyond(uint32_t a, const __nv_bfloat16 *)
{
	return (a & 0x7f80) == 0x7f80 || (a >> 16 & 0x7f80) == 0x7f80;
}

template <class E> static __device__ __forceinline__ uint4 pack8(const float (&x)[8])
{
	return make_uint4(pack2<E>(x[0], x[1]), pack2<E>(x[2], x[3]), pack2<E>(x[4], x[5]), pack2<E>(x[6], x[7]));
}

template <class E> static __device__ __forceinline__ void look(uint32_t *most, uint4 x)
{
	*most = largest(largest(*most, x.x, (E *)nullptr), x.y, (E *)nullptr);
	*most = largest(largest(*most, x.z, (E *)nullptr), x.w, (E *)nullptr);
}

/* 16 bytes at once, whatever the compiler thinks of the moves it takes. */
static __device__ __forceinline__ void store16(void *to, uint4 x)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
	             : "memory");
}

static __device__ __forceinline__ void load8(float (&x)[8], const float *from)
{
	float4 a = __ldg((const float4 *)from), b = __ldg((const float4 *)from + 1);

	x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
	x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* -- a product and its activation ---------------------------------------------------------------------- */

template <class T, bool GELU> struct store_epilogue {
	T *out; /* [rows, n] */
	uint32_t n;

	template <int N> __device__ __forceinline__ void operator()(float (&d)[N], uint32_t row0, uint32_t col0) const
	{
		uint32_t lane = threadIdx.x % 32, row = row0 + threadIdx.x % 128 / 32 * 16 + lane / 4;

#pragma unroll
		for (int b = 0; b < N / 16; b++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				uint32_t col = col0 + 32 * b + lane % 4 * 8;
				float x[8];

#pragma unroll
				for (int j = 0; j < 8; j++)
					x[j] = GELU ? fast_times_sigmoid(AT(d, b, h, j), gelu_tanh_arg(AT(d, b, h, j)))
					            : AT(d, b, h, j);
				if (col < n)
					store16(out + (size_t)(row + 8 * h) * n + col, pack8<T>(x));
			}
	}
};

/* -- queries, keys and values --------------------------------------------------------------------------- */

/* Angles are taken 32 channels at a time: their cosines and sines stay in registers for all heads of the tile. */
template <class T, int HEAD_DIM, bool POPE, int BN> struct qkv_epilogue {
	static const int HEADS = BN / HEAD_DIM; /* of a tile */
	static const int N_FREQ = POPE ? HEAD_DIM : HEAD_DIM / 2;
	static const int D_QK = POPE ? 2 * HEAD_DIM : HEAD_DIM;
	static const int BLOCKS = HEAD_DIM / 32; /* of a head */
	__half *q, *k;
	T *v;
	const float *bias;
	const uint32_t *slot;
	const float *turns; /* [n_rows, N_FREQ, 2] cosine, sine */
	const float *cos_delta, *sin_delta;
	uint32_t n_rows, q_rows, n_slots, n_head, n_kv_head;
	struct kern_fault fault;

	/* What a thread knows of its two rows. */
	struct place {
		uint32_t row[2], slot[2]; /* NOWHERE: not one of the launch's */
		uint32_t channel;         /* its first of 32 */
		uint32_t most_qk[2], most_v[2];
	};

	__device__ __forceinline__ void add_bias(float (&d)[BN / 2], uint32_t col) const
	{
#pragma unroll
		for (int b = 0; b < BN / 32; b++)
			if (col + b * 32 < (n_head + 2 * n_kv_head) * HEAD_DIM) {
				float x[8];

				load8(x, bias + col + b * 32);
#pragma unroll
				for (int j = 0; j < 8; j++) {
					AT(d, b, 0, j) += x[j];
					AT(d, b, 1, j) += x[j];
				}
			}
	}

	/* Cosines and sines of 8 channels of both rows. */
	__device__ __forceinline__ void load_turns(float (&c)[2][8], float (&s)[2][8], const struct place &p,
	                                           uint32_t channel) const
	{
#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint32_t row = p.row[h] == NOWHERE ? 0 : p.row[h];
			const float4 *from = (const float4 *)(turns + ((size_t)row * N_FREQ + channel) * 2);

#pragma unroll
			for (int j = 0; j < 4; j++) {
				float4 x = __ldg(from + j);

				c[h][2 * j] = x.x;
				s[h][2 * j] = x.y;
				c[h][2 * j + 1] = x.z;
				s[h][2 * j + 1] = x.w;
			}
		}
	}

	/* Block B of the tile (in rope, and the one half a head further on) is block F of a head: turned, stored. */
	template <int B, int F>
	__device__ __forceinline__ void put_turned(const float (&d)[BN / 2], const float (&c)[2][8],
	                                           const float (&s)[2][8], struct place &p, uint32_t head) const
	{
		bool key = head >= n_head;
		size_t rows = key ? (size_t)(head - n_head) * n_slots : (size_t)head * q_rows;
		__half *to = (key ? k : q) + rows * D_QK + F * 32 + p.channel;
		float cd[8], sd[8];

		if (POPE && key) {
			load8(cd, cos_delta + (head - n_head) * HEAD_DIM + F * 32 + p.channel);
			load8(sd, sin_delta + (head - n_head) * HEAD_DIM + F * 32 + p.channel);
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint32_t row = key ? p.slot[h] : p.row[h];
			float y[8], z[8];
			uint4 first, second;

#pragma unroll
			for (int j = 0; j < 8; j++) {
				float co = c[h][j], si = s[h][j], x = AT(d, B, h, j);

				if (POPE) {
					float mu = fast_softplus(x);

					if (key) { /* cos(angle + delta), sin(angle + delta) */
						float t = co * cd[j] - si * sd[j];

						si = si * cd[j] + co * sd[j];
						co = t;
					}
					y[j] = mu * co;
					z[j] = mu * si;
				} else {
					float hi = AT(d, B + BLOCKS / 2, h, j);

					y[j] = x * co - hi * si;
					z[j] = hi * co + x * si;
				}
			}
			first = pack8<__half>(y);
			second = pack8<__half>(z);
			look<__half>(&p.most_qk[h], first);
			look<__half>(&p.most_qk[h], second);
			if (row != NOWHERE) {
				store16(to + (size_t)row * D_QK, first);
				store16(to + (size_t)row * D_QK + D_QK / 2, second);
			}
		}
	}

	template <int B, int F>
	__device__ __forceinline__ void put_value(const float (&d)[BN / 2], struct place &p, uint32_t head) const
	{
		T *to = v + (size_t)head * n_slots * HEAD_DIM + F * 32 + p.channel;

#pragma unroll
		for (int h = 0; h < 2; h++) {
			float x[8];
			uint4 packed;

#pragma unroll
			for (int j = 0; j < 8; j++)
				x[j] = AT(d, B, h, j);
			packed = pack8<T>(x);
			look<T>(&p.most_v[h], packed);
			if (p.slot[h] != NOWHERE)
				store16(to + (size_t)p.slot[h] * HEAD_DIM, packed);
		}
	}

	/* All the tile's queries and keys, 32 channels after 32. (Asking for the next angles early spills: slower.) */
	template <int F>
	__device__ __forceinline__ void put_turns(const float (&d)[BN / 2], struct place &p, uint32_t head) const
	{
		float c[2][8], s[2][8];

		load_turns(c, s, p, F * 32 + p.channel);
		put_heads<F, 0>(d, c, s, p, head);
		if constexpr (F + 1 < N_FREQ / 32)
			put_turns<F + 1>(d, p, head);
	}

	template <int F, int H>
	__device__ __forceinline__ void put_heads(const float (&d)[BN / 2], const float (&c)[2][8],
	                                          const float (&s)[2][8], struct place &p, uint32_t head) const
	{
		if (head + H < n_head + n_kv_head)
			put_turned<H * BLOCKS + F, F>(d, c, s, p, head + H);
		if constexpr (H + 1 < HEADS)
			put_heads<F, H + 1>(d, c, s, p, head);
	}

	/* Block B of the tile, where it is of a value. */
	template <int B>
	__device__ __forceinline__ void put_values(const float (&d)[BN / 2], struct place &p, uint32_t head) const
	{
		uint32_t value = head + B / BLOCKS - (n_head + n_kv_head);

		if (value < n_kv_head)
			put_value<B, B % BLOCKS>(d, p, value);
		if constexpr (B + 1 < BN / 32)
			put_values<B + 1>(d, p, head);
	}

	__device__ __forceinline__ void operator()(float (&d)[BN / 2], uint32_t row0, uint32_t col0) const
	{
		uint32_t lane = threadIdx.x % 32, head = col0 / HEAD_DIM;
		struct place p;

#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint32_t row = row0 + threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * h;

			p.row[h] = row < n_rows ? row : NOWHERE;
			p.slot[h] = row < n_rows ? __ldg(slot + row) : NOWHERE;
			p.most_qk[h] = p.most_v[h] = 0;
		}
		p.channel = lane % 4 * 8;
		if (bias)
			add_bias(d, col0 + p.channel);
		if (head < n_head + n_kv_head)
			put_turns<0>(d, p, head);
		if (head + HEADS > n_head + n_kv_head)
			put_values<0>(d, p, head);
#pragma unroll
		for (int h = 0; h < 2; h++)
			if (p.row[h] != NOWHERE &&
			    (beyond(p.most_qk[h], (__half *)nullptr) || beyond(p.most_v[h], (T *)nullptr)))
				atomicMin(fault.word, (unsigned long long)fault.stage << 32 | (fault.row0 + p.row[h]));
	}
};

/* -- launchers ------------------------------------------------------------------------------------------ */

template <class T, class P, class E>
static __global__ void __cluster_dims__(P::CLUSTER, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    linear(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap w, struct gemm_shape s,
           const __grid_constant__ E e)
{
	gemm_body<T, P>(s, &in, &w, e);
}

template <class T, class P, class E>
static int run(const E &e, const void *in, const void *w, uint32_t n_rows, uint32_t n, uint32_t k, int n_sm,
               cudaStream_t stream)
{
	uint32_t rows = ceil_div(n_rows, (uint32_t)KERN_ROW_PAD) * KERN_ROW_PAD;
	struct gemm_shape s = {rows / (GEMM_BM * P::CLUSTER), ceil_div(n, (uint32_t)P::BN),
	                       ceil_div(k, (uint32_t)GEMM_BK)};
	CUtensorMap a, b;
	int rc;

	if ((rc = gemm_map_a(&a, wgmma_type<T>::bf16, in, rows, k)) ||
	    (rc = gemm_map_b(&b, wgmma_type<T>::bf16, w, n, k, P::BN / P::CLUSTER)) ||
	    (rc = cudaFuncSetAttribute(linear<T, P, E>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::SMEM)))
		return rc;
	linear<T, P, E><<<n_sm / P::CLUSTER * P::CLUSTER, GEMM_THREADS, P::SMEM, stream>>>(a, b, s, e);
	return launched();
}

template <class T, bool GELU, class P>
static int run_store(void *out, const void *in, const void *w, uint32_t n_rows, uint32_t n, uint32_t k, int n_sm,
                     cudaStream_t stream)
{
	store_epilogue<T, GELU> e;

	e.out = (T *)out;
	e.n = n;
	return run<T, P>(e, in, w, n_rows, n, k, n_sm, stream);
}

template <class T>
static int run_linear(void *out, const void *in, const void *w, uint32_t n_rows, uint32_t n, uint32_t k, bool gelu,
                      int n_sm, cudaStream_t stream)
{
	if (gelu)
		return run_store<T, true, turns_plan>(out, in, w, n_rows, n, k, n_sm, stream);
	if (k < LONG_K)
		return run_store<T, false, turns_plan>(out, in, w, n_rows, n, k, n_sm, stream);
	return run_store<T, false, whole_plan>(out, in, w, n_rows, n, k, n_sm, stream);
}

bool kern_linear_sm90_takes(enum kern_type type, enum kern_type out_type, uint32_t n, uint32_t k, bool gelu_tanh)
{
	return type != KERN_F32 && out_type == type && n % 32 == 0 && k % 8 == 0 && (gelu_tanh || k < MAX_K);
}

int kern_linear_sm90(void *out, const void *in, const void *w, uint32_t n_rows, uint32_t n, uint32_t k, bool gelu_tanh,
                     enum kern_type type, int n_sm, struct CUstream_st *stream)
{
	return type == KERN_BF16 ? run_linear<__nv_bfloat16>(out, in, w, n_rows, n, k, gelu_tanh, n_sm, stream)
	                         : run_linear<__half>(out, in, w, n_rows, n, k, gelu_tanh, n_sm, stream);
}

template <class T, int HEAD_DIM, bool POPE>
static int run_qkv(const struct kern_qkv_cuda *a, int n_sm, cudaStream_t stream)
{
	const struct kern_qkv_post_cuda *p = &a->post;
	qkv_epilogue<T, HEAD_DIM, POPE, turns_plan::BN> e;

	e.q = (__half *)p->q;
	e.k = (__half *)p->k;
	e.v = (T *)p->v;
	e.bias = p->bias;
	e.slot = p->slot;
	e.turns = a->turns;
	e.cos_delta = p->cos_delta;
	e.sin_delta = p->sin_delta;
	e.n_rows = p->n_rows;
	e.q_rows = p->q_rows;
	e.n_slots = p->n_slots;
	e.n_head = p->n_head;
	e.n_kv_head = p->n_kv_head;
	e.fault = p->fault;
	return run<T, turns_plan>(e, a->in, a->w, p->n_rows, (p->n_head + 2 * p->n_kv_head) * HEAD_DIM, a->dim, n_sm,
	                          stream);
}

template <class T> static int run_qkv(const struct kern_qkv_cuda *a, int n_sm, cudaStream_t stream)
{
	if (a->post.head_dim == 64)
		return a->post.pope ? run_qkv<T, 64, true>(a, n_sm, stream) : run_qkv<T, 64, false>(a, n_sm, stream);
	return a->post.pope ? run_qkv<T, 128, true>(a, n_sm, stream) : run_qkv<T, 128, false>(a, n_sm, stream);
}

bool kern_qkv_takes_cuda(int compute_capability, enum kern_type type, uint32_t dim, uint32_t head_dim, uint32_t d_qk,
                         uint32_t d_v, bool pope)
{
	return compute_capability == 90 && type != KERN_F32 && dim && dim % 8 == 0 &&
	       (head_dim == 64 || head_dim == 128) && d_qk == (pope ? 2 : 1) * head_dim && d_v == head_dim;
}

int kern_qkv_cuda(const struct kern_qkv_cuda *a, int device, struct CUstream_st *stream)
{
	const struct kern_qkv_post_cuda *p = &a->post;
	int n_sm, rc;

	if (!p->n_rows)
		return 0;
	if (!p->n_head || !p->n_kv_head ||
	    !kern_qkv_takes_cuda(90, p->type, a->dim, p->head_dim, p->d_qk, p->d_v, p->pope))
		return BAD_ARGS;
	if ((rc = cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device)))
		return rc;
	return p->type == KERN_BF16 ? run_qkv<__nv_bfloat16>(a, n_sm, stream) : run_qkv<__half>(a, n_sm, stream);
}

/* -- angles --------------------------------------------------------------------------------------------- */

/* pos * freq is exact modulo a turn; in half-turns it is a fraction of 31 bits (cf. qkv_post.cu). */
static __global__ void __launch_bounds__(256)
    fill_turns(float2 *turns, const uint32_t *pos, const uint64_t *freq, float amplitude, uint32_t n_rows,
               uint32_t n_freq)
{
	uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
	uint32_t row = (uint32_t)(i / n_freq);
	float s, c;

	if (row >= n_rows)
		return;
	sincospif((float)(int32_t)(uint32_t)(pos[row] * freq[i - (uint64_t)row * n_freq] >> 32) * 0x1p-31f, &s, &c);
	turns[i] = make_float2(c * amplitude, s * amplitude);
}

int kern_turns_cuda(float *turns, const uint32_t *pos, const uint64_t *freq, float amplitude, uint32_t n_rows,
                    uint32_t n_freq, struct CUstream_st *stream)
{
	uint64_t blocks = ceil_div((uint64_t)n_rows * n_freq, 256);

	if (!n_rows)
		return 0;
	if (!n_freq || blocks > INT32_MAX)
		return BAD_ARGS;
	fill_turns<<<(unsigned)blocks, 256, 0, stream>>>((float2 *)turns, pos, freq, amplitude, n_rows, n_freq);
	return launched();
}
