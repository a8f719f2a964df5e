/* Hopper's instructions (sm_90a) as functions: mbarriers, the tensor copy engine (TMA), warpgroup products (wgmma),
 * named barriers, register hand-over. Nothing here knows of a kernel. Shared memory has 32-bit addresses (smem_u32).
 *
 * Tiles in shared memory are stored as the copy engine leaves them with a box of 64 half-type columns and the
 * 128-byte swizzle: a row takes 128 bytes, 8 rows a 1024-byte atom, and the 16-byte unit u of row r lies at unit
 * u ^ (r % 8). A tile starts at a multiple of 1024 bytes; a matrix wider than 64 columns is several such tiles. The
 * same bytes serve as an operand whose contiguous dimension is k (K-major) or not (MN-major, wgmma_desc_mn).
 *
 * With SM90_WATCHDOG defined, a wait that lasts for 2e8 cycles names its barrier and traps. */
#ifndef FATHOM_KERNELS_SM90_CUH
#define FATHOM_KERNELS_SM90_CUH

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

#define SM90_DEV static __device__ __forceinline__

SM90_DEV uint32_t smem_u32(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* -- mbarriers ---------------------------------------------------------------------------------------
 * A barrier completes a phase when `count` arrivals and all announced bytes are in. Waits name the parity of the phase:
 * 0 for the first, 1 for the second, 0 ... A wait for parity 1 on a fresh barrier returns at once: "slot is free". */

SM90_DEV void mbar_init(uint32_t bar, uint32_t count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

/* After mbar_init by one thread, before the barrier among all: makes them visible to the copy engine. */
SM90_DEV void mbar_init_fence(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

SM90_DEV void mbar_arrive(uint32_t bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrives, and announces `bytes` that the copy engine will add in this phase. */
SM90_DEV void mbar_arrive_expect(uint32_t bar, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

SM90_DEV bool mbar_try_wait(uint32_t bar, uint32_t parity)
{
	uint32_t ok;

	asm volatile("{\n\t.reg .pred p;\n\t"
	             "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
	             "selp.u32 %0, 1, 0, p;\n\t}"
	             : "=r"(ok)
	             : "r"(bar), "r"(parity)
	             : "memory");
	return ok != 0;
}

SM90_DEV void mbar_wait(uint32_t bar, uint32_t parity)
{
#ifdef SM90_WATCHDOG
	long long t0 = clock64();

	while (!mbar_try_wait(bar, parity)) {
		if (clock64() - t0 > 200000000LL) {
			printf("watchdog: block %d thread %d waits for barrier at %u, parity %u\n", (int)blockIdx.x,
			       (int)threadIdx.x, bar, parity);
			__trap();
		}
	}
#else
	while (!mbar_try_wait(bar, parity))
		;
#endif
}

/* -- named barriers (1..15; 0 is __syncthreads) ------------------------------------------------------ */

SM90_DEV void bar_sync(int id, int n_threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

SM90_DEV void bar_arrive(int id, int n_threads)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/* -- warps ------------------------------------------------------------------------------------------- */

/* One lane of a converged warp, always the same one. */
SM90_DEV bool elect_one(void)
{
	uint32_t is;

	asm volatile("{\n\t.reg .pred p;\n\t"
	             "elect.sync _|p, 0xffffffff;\n\t"
	             "selp.u32 %0, 1, 0, p;\n\t}"
	             : "=r"(is));
	return is != 0;
}

/* The warp's or warpgroup's number, in a uniform register as far as the compiler can be told. */
SM90_DEV int warp_index(void)
{
	return __shfl_sync(0xffffffffu, (int)(threadIdx.x / 32), 0);
}

SM90_DEV int warpgroup_index(void)
{
	return __shfl_sync(0xffffffffu, (int)(threadIdx.x / 128), 0);
}

/* Registers of each thread from here on: multiples of 8; all four warps of a warpgroup call it. Needs a kernel with
 * __launch_bounds__(threads, 1). */
template <int N> SM90_DEV void regs_give(void)
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> SM90_DEV void regs_take(void)
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* -- the copy engine ---------------------------------------------------------------------------------- */

SM90_DEV void tma_prefetch_map(const CUtensorMap *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Box of `map` at (x, y, ..), x counting elements of the contiguous dimension, to shared memory at `to`; its bytes
 * (always the whole box: what lies outside the tensor is zero) are counted by `bar`. One thread calls it. The map is a
 * __grid_constant__ parameter of the kernel. */
#define SM90_TMA "cp.async.bulk.tensor."
#define SM90_TMA_TO ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"

SM90_DEV void tma_load_2d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y)
{
	asm volatile(SM90_TMA "2d" SM90_TMA_TO " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(x),
	             "r"(y)
	             : "memory");
}

SM90_DEV void tma_load_3d(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y, int z)
{
	asm volatile(SM90_TMA "3d" SM90_TMA_TO " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(map), "r"(bar), "r"(x),
	             "r"(y), "r"(z)
	             : "memory");
}

/* Four 8x8 matrices of halves from shared memory: lane l gives the address of row l % 8 of matrix l / 8, and gets from
 * each matrix the pair at row l / 4, columns 2 (l % 4). */
SM90_DEV void ldmatrix4(uint32_t *to, uint32_t row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
	             : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
	             : "r"(row)
	             : "memory");
}

/* -- wgmma ------------------------------------------------------------------------------------------- */

/* Before the first wgmma of a group, after registers that it reads (accumulators, A) were written. */
SM90_DEV void wgmma_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

SM90_DEV void wgmma_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N groups of this warpgroup are still running. */
template <int N> SM90_DEV void wgmma_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving uses of an asynchronous product's registers across this point. */
template <int N> SM90_DEV void wgmma_pin(float (&d)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+f"(d[i])::"memory");
}

/* Descriptors of 128-byte-swizzled operands. Fields in 16-byte units: start 0..13, leading offset 16..29, stride
 * offset 32..45, swizzle 62..63 (1: 128 bytes).
 *
 * K-major: rows of the tile are rows of A (or columns of B), its 64 columns are k. Groups of 8 rows are 1024 bytes
 * apart. Step k by 16: add 2 (32 bytes). Start may be at any multiple of 8 rows. */
SM90_DEV uint64_t wgmma_desc_k(uint32_t tile)
{
	return (uint64_t)(tile >> 4 & 0x3fff) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* MN-major: rows of the tile are k, its 64 columns are n (of B: template argument TB = 1); further columns are in the
 * tiles `tile_bytes` on. Step k by 16: add 128 (16 rows of 128 bytes). */
SM90_DEV uint64_t wgmma_desc_mn(uint32_t tile, uint32_t tile_bytes)
{
	return (uint64_t)(tile >> 4 & 0x3fff) | (uint64_t)(tile_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
	       1ull << 62;
}

/* The descriptor n units on. Its upper half stays a constant: cheap in registers. */
SM90_DEV uint64_t wgmma_desc_step(uint64_t desc, uint32_t n)
{
	return (desc & 0xffffffff00000000ull) | (uint32_t)((uint32_t)desc + n);
}

/* d[64, N] (+)= a[64, 16] b[16, N], f32 accumulators. Thread t of the warpgroup (warp w, lane l) holds, for each 8
 * columns i: d[4 i + 0..1] = row 16 w + l / 4, columns 8 i + 2 (l % 4) + 0..1; d[4 i + 2..3] = the same 8 rows below.
 * As operand A, a[0], a[1], a[2], a[3] hold pairs at (row, k): (l / 4, 2 (l % 4)), (+ 8, same), (same, + 8), (+ 8,
 * + 8): so accumulators 8 c..8 c + 7, packed in order, are A for k in [16 c, 16 c + 16).
 *   wgmma_ss<N, T>(d, a, b, add)         A and B from shared memory, both K-major; T: __half or __nv_bfloat16
 *   wgmma_rs<N, T, TB>(d, a, b, add)     A from registers; TB = 1: B is MN-major
 * add = 0: d is overwritten. */
#define SM90_L32 \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
	", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SM90_L48 SM90_L32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SM90_L64 SM90_L48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SM90_L128 SM90_L64 \
	", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
	", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
	", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
	", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define SM90_R8(i)                                                                                                     \
	"+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),    \
		"+f"(d[i + 7])
#define SM90_R32 SM90_R8(0), SM90_R8(8), SM90_R8(16), SM90_R8(24)
#define SM90_R48 SM90_R32, SM90_R8(32), SM90_R8(40)
#define SM90_R64 SM90_R48, SM90_R8(48), SM90_R8(56)
#define SM90_R128                                                                                                      \
	SM90_R64, SM90_R8(64), SM90_R8(72), SM90_R8(80), SM90_R8(88), SM90_R8(96), SM90_R8(104), SM90_R8(112),         \
		SM90_R8(120)

/* N columns, A accumulators of a thread (N / 2), numbers of the operands after them. */
#define SM90_SS(N, A, TYPE, I0, I1, I2)                                                                                \
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #I2 ", 0;\n\t"                                           \
	             "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SM90_L##A "}, %" #I0        \
	             ", %" #I1 ", p, 1, 1, 0, 0;\n\t}"                                                                \
	             : SM90_R##A                                                                                      \
	             : "l"(a), "l"(b), "r"(add))
#define SM90_RS(N, A, TYPE, I0, I1, I2, I3, I4, I5, I6)                                                                \
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #I5 ", 0;\n\t"                                           \
	             "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SM90_L##A "}, {%" #I0       \
	             ", %" #I1 ", %" #I2 ", %" #I3 "}, %" #I4 ", p, 1, 1, %" #I6 ";\n\t}"                             \
	             : SM90_R##A                                                                                      \
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB))

#define SM90_HAS_N(N) ((N) == 64 || (N) == 96 || (N) == 128 || (N) == 256)

template <class T> struct wgmma_type;
template <> struct wgmma_type<__half> {
	static const bool bf16 = false;
};
template <> struct wgmma_type<__nv_bfloat16> {
	static const bool bf16 = true;
};

template <int N, class T> SM90_DEV void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b, int add)
{
#define SM90_CASE(N_, A, ...)                                                                                          \
	if constexpr (N == N_) {                                                                                       \
		if constexpr (wgmma_type<T>::bf16)                                                                     \
			SM90_SS(N_, A, "bf16", __VA_ARGS__);                                                           \
		else                                                                                                   \
			SM90_SS(N_, A, "f16", __VA_ARGS__);                                                            \
	}
	static_assert(SM90_HAS_N(N), "a width that is not listed here");
	SM90_CASE(64, 32, 32, 33, 34)
	SM90_CASE(96, 48, 48, 49, 50)
	SM90_CASE(128, 64, 64, 65, 66)
	SM90_CASE(256, 128, 128, 129, 130)
#undef SM90_CASE
}

template <int N, class T, int TB> SM90_DEV void wgmma_rs(float (&d)[N / 2], const uint32_t *a, uint64_t b, int add)
{
#define SM90_CASE(N_, A, ...)                                                                                          \
	if constexpr (N == N_) {                                                                                       \
		if constexpr (wgmma_type<T>::bf16)                                                                     \
			SM90_RS(N_, A, "bf16", __VA_ARGS__);                                                           \
		else                                                                                                   \
			SM90_RS(N_, A, "f16", __VA_ARGS__);                                                            \
	}
	static_assert(SM90_HAS_N(N), "a width that is not listed here");
	SM90_CASE(64, 32, 32, 33, 34, 35, 36, 37, 38)
	SM90_CASE(96, 48, 48, 49, 50, 51, 52, 53, 54)
	SM90_CASE(128, 64, 64, 65, 66, 67, 68, 69, 70)
	SM90_CASE(256, 128, 128, 129, 130, 131, 132, 133, 134)
#undef SM90_CASE
}

/* -- host: tensor maps --------------------------------------------------------------------------------- */

/* Map of a tensor of 2-byte elements [dims[n - 1], .., dims[0]] (dims[0] contiguous; stride[i], in bytes, multiples of
 * 16, is dimension i + 1's) in boxes of `box`, box[0] = 64, 128-byte swizzle. base: a multiple of 16. Returns a
 * cudaError_t. */
static inline int tma_map_2b(CUtensorMap *map, bool bf16, const void *base, int n, const uint64_t *dims,
                             const uint64_t *stride, const uint32_t *box)
{
	static decltype(&cuTensorMapEncodeTiled) encode; /* a race writes the same value */
	uint32_t one[5] = {1, 1, 1, 1, 1};
	CUresult r;

	if (!encode) {
		cudaDriverEntryPointQueryResult found;
		void *fn = NULL;
		cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000,
		                                                 cudaEnableDefault, &found);

		if (e != cudaSuccess)
			return (int)e;
		if (found != cudaDriverEntryPointSuccess || !fn)
			return (int)cudaErrorSymbolNotFound;
		encode = (decltype(encode))fn;
	}
	r = encode(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, (cuuint32_t)n,
	           (void *)base, dims, stride, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
	           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	return r == CUDA_SUCCESS ? (int)cudaSuccess : (int)cudaErrorInvalidValue;
}

#endif
