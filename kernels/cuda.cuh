/* What the CUDA kernels share: element types, vector accesses, fast functions, sums over a warp or a block in one fixed
 * order, the fault word, and the ends of launchers. Device code and templates only; included by kernels/ alone.
 *
 * Kernels are templates on the element's C++ type T: float, __nv_bfloat16 or __half. with_type picks the instance. */
#ifndef FATHOM_KERNELS_CUDA_CUH
#define FATHOM_KERNELS_CUDA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/kernels_cuda.h"

#define WARP     32
#define FULL     0xffffffffu /* all lanes of a warp */
#define LOG2E    1.44269504f
#define LN2      0.69314718f
#define BAD_ARGS ((int)cudaErrorInvalidValue) /* a launcher's answer to a shape that it does not take */

/* -- launchers ------------------------------------------------------------------------------------- */

/* f(T()) for the element type: with_type(type, [&](auto zero) { using T = decltype(zero); ... return 0; }) */
template <typename F>
static int with_type(enum kern_type type, F f)
{
	switch (type) {
	case KERN_F32:
		return f(float());
	case KERN_BF16:
		return f(__nv_bfloat16());
	case KERN_F16:
		return f(__half());
	}
	return BAD_ARGS;
}

/* The status of the launch just made. */
static inline int launched(void)
{
	return (int)cudaGetLastError();
}

/* 90 for 9.0 */
static inline int capability_of(int *out, int device)
{
	int major = 0, minor = 0, rc = (int)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);

	if (!rc)
		rc = (int)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
	*out = 10 * major + minor;
	return rc;
}

template <typename A, typename B>
__host__ __device__ constexpr auto ceil_div(A a, B b)
{
	return (a + b - 1) / b;
}

/* -- elements and vectors --------------------------------------------------------------------------- */

__device__ __forceinline__ float to_f32(float x)
{
	return x;
}
__device__ __forceinline__ float to_f32(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}
__device__ __forceinline__ float to_f32(__half x)
{
	return __half2float(x);
}

/* Round to nearest even; f16 beyond 65504 becomes infinite. */
__device__ __forceinline__ void from_f32(float *out, float x)
{
	*out = x;
}
__device__ __forceinline__ void from_f32(__nv_bfloat16 *out, float x)
{
	*out = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void from_f32(__half *out, float x)
{
	*out = __float2half_rn(x);
}

/* N elements in memory, moved by as few instructions as their alignment allows: a vector is aligned to its size, at
 * most 16 bytes. */
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) vec {
	T v[N];
};

template <typename T, int N>
__device__ __forceinline__ vec<T, N> load_vec(const T *p)
{
	return *reinterpret_cast<const vec<T, N> *>(p);
}

template <typename T, int N>
__device__ __forceinline__ void to_f32(float (&out)[N], const vec<T, N> &in)
{
#pragma unroll
	for (int i = 0; i < N; i++)
		out[i] = to_f32(in.v[i]);
}

template <typename T, int N>
__device__ __forceinline__ void load(float (&out)[N], const T *p)
{
	to_f32(out, load_vec<T, N>(p));
}

/* Pairs, so that one instruction converts two. */
template <int N>
__device__ __forceinline__ void from_f32(vec<float, N> *out, const float (&x)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		out->v[i] = x[i];
}
template <int N>
__device__ __forceinline__ void from_f32(vec<__nv_bfloat16, N> *out, const float (&x)[N])
{
#pragma unroll
	for (int i = 0; i + 1 < N; i += 2)
		*reinterpret_cast<__nv_bfloat162 *>(out->v + i) = __floats2bfloat162_rn(x[i], x[i + 1]);
	if (N % 2)
		out->v[N - 1] = __float2bfloat16_rn(x[N - 1]);
}
template <int N>
__device__ __forceinline__ void from_f32(vec<__half, N> *out, const float (&x)[N])
{
#pragma unroll
	for (int i = 0; i + 1 < N; i += 2)
		*reinterpret_cast<__half2 *>(out->v + i) = __floats2half2_rn(x[i], x[i + 1]);
	if (N % 2)
		out->v[N - 1] = __float2half_rn(x[N - 1]);
}

template <typename T, int N>
__device__ __forceinline__ void store(T *p, const float (&x)[N])
{
	vec<T, N> out;

	from_f32(&out, x);
	*reinterpret_cast<vec<T, N> *>(p) = out;
}

/* Two halves as a word. */
template <typename T>
__device__ __forceinline__ uint32_t pack2(float lo, float hi)
{
	const float x[2] = {lo, hi};
	vec<T, 2> pair;
	uint32_t bits;

	from_f32(&pair, x);
	memcpy(&bits, &pair, sizeof bits);
	return bits;
}

/* As words: the compiler would store halves one by one. */
template <typename T, int N>
__device__ __forceinline__ void store_zeros(T *p)
{
	if constexpr (sizeof(T) * N == 16)
		*reinterpret_cast<uint4 *>(p) = make_uint4(0, 0, 0, 0);
	else
		*reinterpret_cast<vec<T, N> *>(p) = {};
}

/* -- fast functions: 2 ulp and absolute 2^-22 near 1; results and arguments below 2^-126 are zero ------ */

/* 2^0 is 1 and 2^-inf is 0, exactly. */
__device__ __forceinline__ float fast_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ __forceinline__ float fast_log2(float x)
{
	float y;

	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

__device__ __forceinline__ float fast_rcp(float x)
{
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* max(x, 0) + log(1 + e^-|x|). Absolute error 2e-7: a fifth of f16's last place at 1e-3. */
__device__ __forceinline__ float fast_softplus(float x)
{
	return fmaf(fast_log2(1.0f + fast_exp2(fabsf(x) * -LOG2E)), LN2, fmaxf(x, 0.0f));
}

/* x / (1 + e^-z) */
__device__ __forceinline__ float fast_times_sigmoid(float x, float z)
{
	return x * fast_rcp(1.0f + fast_exp2(z * -LOG2E));
}

/* z of gelu_tanh(x) = x (1 + tanh(z / 2)) / 2 = x sigmoid(z), z = 2 sqrt(2/pi) (x + .044715 x^3) */
__device__ __forceinline__ float gelu_tanh_arg(float x)
{
	return x * fmaf(x * x, 2 * 0.7978845608f * 0.044715f, 2 * 0.7978845608f);
}

/* -- sums ------------------------------------------------------------------------------------------- */

/* All lanes take part, and all get the same bits. */
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
	for (int d = WARP / 2; d; d /= 2)
		x += __shfl_xor_sync(FULL, x, d);
	return x;
}

/* Over a block of WARPS warps, all taking part; all threads get the same bits. `shared` [WARPS] is free for another use
 * after the caller's next barrier. */
template <int WARPS>
__device__ __forceinline__ float block_sum(float x, float *shared)
{
	x = warp_sum(x);
	if (WARPS == 1)
		return x;
	if (threadIdx.x % WARP == 0)
		shared[threadIdx.x / WARP] = x;
	__syncthreads();
	x = 0;
#pragma unroll
	for (int i = 0; i < WARPS; i++)
		x += shared[i];
	return x;
}

/* -- faults ----------------------------------------------------------------------------------------- */

/* Notes that the launch's row `row` is not finite. The look before the atomic keeps a batch of NaN from queueing up. */
static __device__ __noinline__ void note_fault(const struct kern_fault f, uint32_t row)
{
	unsigned long long word = (unsigned long long)f.stage << 32 | (f.row0 + row);

	if (*(volatile unsigned long long *)f.word > word)
		atomicMin(f.word, word);
}

#endif
