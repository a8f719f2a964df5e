/* A product on Hopper whose epilogue is the caller's: tiles of a [rows, k] times b [cols, k]^T, f32 sums in registers.
 * Half types; the copy engine pads k and columns of b with zeros; rows of a are whole tiles. One warp copies, two
 * warpgroups multiply, through a ring of slots. The blocks of a cluster take tiles of different rows and the same
 * columns, and each copies its share of b to all. They stay, and walk the tiles in groups of columns that L2 can hold.
 * In turns (GEMM_TURNS), a warpgroup has 128 x 128 tiles of its own, and one's epilogue runs under the other's
 * products. Else both share a 128 x 256 tile, which reads less of L2; the second starts SKEW slots after the first, and
 * has these left to work on during the first's epilogue.
 * A row's sum runs over k in steps of 16, in order, whatever the tile and the row's place in it.
 * Within 32 columns the copy engine exchanges rows of b so that a thread's 8 sums (4 lanes share a row) are neighbours:
 * d[16 b + 4 i + 2 h + e] is row lane / 4 + 8 h, column 32 b + 8 (lane % 4) + 2 i + e. So a thread stores 16 bytes at
 * a time, and nothing passes through shared memory. */
#ifndef FATHOM_KERNELS_GEMM_SM90_CUH
#define FATHOM_KERNELS_GEMM_SM90_CUH

#include "kernels/sm90.cuh"

#define GEMM_BM      128 /* rows of a block's tile */
#define GEMM_BK      64  /* 128 bytes: what one swizzled row holds */
#define GEMM_GROUP   16 /* tiles of columns that are walked together */
#define GEMM_THREADS 384
#define GEMM_A_BYTES (GEMM_BM * GEMM_BK * 2)

/* How a kernel works: columns of a tile (256, or 128 in turns), slots, blocks of a cluster, SKEW, or GEMM_TURNS. In
 * turns, clusters of 2 beat single blocks by what L2 need not send: n 5120, k 1280, 32768 rows .58 ms, not .70. */
template <int BN_, int STAGES_, int CLUSTER_, int SKEW_> struct gemm_plan {
	static const int BN = BN_, STAGES = STAGES_, CLUSTER = CLUSTER_, SKEW = SKEW_;
	static const bool TURNS = SKEW < 0;
	static const int SLOT = GEMM_A_BYTES + BN * GEMM_BK * 2;
	static const int SMEM = STAGES * SLOT + 1024 + 256; /* of a block */
	static const int READERS = (TURNS ? 1 : 2) * CLUSTER; /* warpgroups that read a slot */

	static_assert(BN == (TURNS ? 128 : 256), "128 registers of a thread hold sums");
	static_assert(CLUSTER > 1 && SKEW < STAGES && STAGES * 16 <= 256, "see the top of this file");
};
#define GEMM_TURNS (-1)

struct gemm_shape {
	uint32_t n_row_tiles; /* in units of GEMM_BM * CLUSTER rows */
	uint32_t n_col_tiles, k_steps;
};

/* -- clusters ---------------------------------------------------------------------------------------- */

SM90_DEV uint32_t cluster_rank(void)
{
	uint32_t r;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}

SM90_DEV void cluster_sync(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Arrives at the barrier that lies at the same place in the cluster's block `rank`. Orders nothing beyond this block:
 * what it says is that wgmma has read a slot. (With .release.cluster it would wait for all of the thread's stores.) */
SM90_DEV void mbar_arrive_cluster(uint32_t bar, uint32_t rank)
{
	asm volatile("{\n\t.reg .b32 a;\n\t"
	             "mapa.shared::cluster.u32 a, %0, %1;\n\t"
	             "mbarrier.arrive.shared::cluster.b64 _, [a];\n\t}" ::"r"(bar),
	             "r"(rank)
	             : "memory");
}

/* Columns from 32 `block` on of a map by gemm_map_b, to the same place in all blocks of `mask`, counted by the barrier
 * at the same place in each. */
SM90_DEV void gemm_load_b(uint32_t to, const CUtensorMap *map, uint32_t bar, int k, int block, uint16_t mask)
{
	asm volatile(SM90_TMA "5d" SM90_TMA_TO ".multicast::cluster [%0], [%1, {%3, %4, %4, %4, %5}], [%2], %6;"
	             ::"r"(to), "l"(map), "r"(bar), "r"(k), "r"(0), "r"(block), "h"(mask)
	             : "memory");
}

/* -- the walk over tiles ----------------------------------------------------------------------------- */

struct gemm_tile {
	uint32_t row, col; /* in tiles of the cluster, tiles of columns */
};

SM90_DEV struct gemm_tile gemm_tile_of(struct gemm_shape s, uint32_t i)
{
	uint32_t group = i / (s.n_row_tiles * GEMM_GROUP), rest = i % (s.n_row_tiles * GEMM_GROUP);
	uint32_t width = min(GEMM_GROUP, s.n_col_tiles - group * GEMM_GROUP);
	struct gemm_tile t = {rest / width, group * GEMM_GROUP + rest % width};

	return t;
}

/* A place in the ring. */
template <class P> struct gemm_ring {
	uint32_t slot, phase;

	__device__ __forceinline__ void next(void)
	{
		if (++slot == P::STAGES) {
			slot = 0;
			phase ^= 1;
		}
	}

	__device__ __forceinline__ void skip(uint32_t steps)
	{
		uint32_t to = slot + steps;

		slot = to % P::STAGES;
		phase ^= to / P::STAGES & 1;
	}
};

/* -- the two roles ----------------------------------------------------------------------------------- */

/* One thread: fills slots as they become free. */
template <class P>
SM90_DEV void gemm_copy(struct gemm_shape s, const CUtensorMap *a, const CUtensorMap *b, uint32_t slots, uint32_t full,
                        uint32_t empty, uint32_t rank)
{
	const uint32_t share = P::BN / P::CLUSTER; /* rows of b */
	uint32_t n_tiles = s.n_row_tiles * s.n_col_tiles;
	gemm_ring<P> ring = {0, 0};

	for (uint32_t i = blockIdx.x / P::CLUSTER; i < n_tiles; i += gridDim.x / P::CLUSTER) {
		struct gemm_tile t = gemm_tile_of(s, i);
		int row = (int)((t.row * P::CLUSTER + rank) * GEMM_BM), col = (int)(t.col * P::BN + rank * share);

		for (uint32_t k = 0; k < s.k_steps; k++, ring.next()) {
			uint32_t to = slots + ring.slot * P::SLOT, bar = full + ring.slot * 8;

			mbar_wait(empty + ring.slot * 8, ring.phase ^ 1);
			mbar_arrive_expect(bar, P::SLOT);
			tma_load_2d(to, a, bar, (int)k * GEMM_BK, row);
			to += GEMM_A_BYTES + rank * share * GEMM_BK * 2;
			gemm_load_b(to, b, bar, (int)k * GEMM_BK, col / 32, (1 << P::CLUSTER) - 1);
		}
	}
}

/* Says to all of the cluster that this warpgroup has read a slot. */
template <class P> SM90_DEV void gemm_release(uint32_t bar)
{
	uint32_t thread = threadIdx.x % 128;

	if (thread < P::CLUSTER)
		mbar_arrive_cluster(bar, thread);
}

/* A warpgroup: the sums of one tile: of its 64 rows, `half` of the tile's; in turns of all 128, in d[0] and d[1]. */
template <class T, class P>
SM90_DEV void gemm_multiply(float (&d)[P::TURNS ? 2 : 1][P::BN / 2], gemm_ring<P> &ring, uint32_t k_steps,
                            uint32_t slots, uint32_t full, uint32_t empty, int half, bool other_has_more)
{
	bool skew = P::SKEW > 0 && k_steps > P::STAGES; /* else the first could arrive twice before the second comes */
	uint32_t before = 0;

	if (skew && half == 1)
		bar_sync(1, 256);
	if (P::TURNS)
		bar_sync(4 + half, 256);
	for (uint32_t k = 0; k < k_steps; k++, ring.next()) {
		uint32_t at = slots + ring.slot * P::SLOT;
		uint64_t a = wgmma_desc_k(at + (P::TURNS ? 0 : half * (GEMM_A_BYTES / 2)));
		uint64_t b = wgmma_desc_k(at + GEMM_A_BYTES);

		if (skew && half == 0 && k == (uint32_t)P::SKEW)
			bar_arrive(1, 256);
		mbar_wait(full + ring.slot * 8, ring.phase);
		wgmma_fence();
#pragma unroll
		for (int j = 0; j < GEMM_BK / 16; j++) {
			uint64_t lower = a + GEMM_A_BYTES / 2 / 16;

			wgmma_ss<P::BN, T>(d[0], a + 2 * j, b + 2 * j, k > 0 || j > 0);
			if (P::TURNS)
				wgmma_ss<P::BN, T>(d[P::TURNS], lower + 2 * j, b + 2 * j, k > 0 || j > 0);
		}
		wgmma_commit();
		wgmma_wait<1>();
		if (k > 0)
			gemm_release<P>(empty + before * 8);
		before = ring.slot;
	}
	if (P::TURNS && other_has_more)
		bar_arrive(5 - half, 256);
	wgmma_wait<0>();
	wgmma_pin(d[0]);
	if (P::TURNS)
		wgmma_pin(d[P::TURNS]);
	gemm_release<P>(empty + before * 8);
}

/* A warpgroup: its share of this block's tiles. */
template <class T, class P, class E>
SM90_DEV void gemm_walk(struct gemm_shape s, uint32_t slots, uint32_t full, uint32_t empty, uint32_t rank, int half,
                        const E &epilogue)
{
	uint32_t n_tiles = s.n_row_tiles * s.n_col_tiles, step = gridDim.x / P::CLUSTER, i = blockIdx.x / P::CLUSTER;
	gemm_ring<P> ring = {0, 0};

	if (P::TURNS) {
		if (half == 1 && i < n_tiles)
			bar_arrive(4, 256); /* the first may begin */
		i += half * step;
		step *= 2;
		ring.skip(half * s.k_steps);
	}
	for (; i < n_tiles; i += step) {
		struct gemm_tile t = gemm_tile_of(s, i);
		uint32_t row = (t.row * P::CLUSTER + rank) * GEMM_BM + (P::TURNS ? 0 : half * 64);
		float d[P::TURNS ? 2 : 1][P::BN / 2];

		gemm_multiply<T, P>(d, ring, s.k_steps, slots, full, empty, half, i + step / 2 < n_tiles);
		epilogue(d[0], row, t.col * P::BN);
		if (P::TURNS) {
			epilogue(d[P::TURNS], row + 64, t.col * P::BN);
			ring.skip(s.k_steps);
		}
	}
}

/* The body of a kernel of GEMM_THREADS threads and P::SMEM bytes, in clusters of P::CLUSTER blocks. The epilogue is
 * `operator()(d, row, col)`: called by all threads of a warpgroup with the first row and column of 64 x BN sums. */
template <class T, class P, class E>
SM90_DEV void gemm_body(struct gemm_shape s, const CUtensorMap *a, const CUtensorMap *b, const E &epilogue)
{
	extern __shared__ uint8_t gemm_smem[];
	uint32_t slots = (smem_u32(gemm_smem) + 1023) / 1024 * 1024;
	uint32_t full = slots + P::STAGES * P::SLOT, empty = full + P::STAGES * 8;
	uint32_t rank = cluster_rank();
	int warpgroup = warpgroup_index();

	if (threadIdx.x == 0) {
		for (int i = 0; i < P::STAGES; i++) {
			mbar_init(full + i * 8, 1);
			mbar_init(empty + i * 8, P::READERS);
		}
		mbar_init_fence();
	}
	__syncthreads();
	cluster_sync();
	if (warpgroup == 0) {
		regs_give<40>();
		if (warp_index() == 0 && elect_one())
			gemm_copy<P>(s, a, b, slots, full, empty, rank);
	} else {
		regs_take<232>();
		gemm_walk<T, P>(s, slots, full, empty, rank, warpgroup - 1, epilogue);
	}
	__syncthreads();
	cluster_sync(); /* a block's barriers must outlive the others' arrivals */
}

/* -- host: the maps ----------------------------------------------------------------------------------- */

/* Of a [rows, k]. */
static inline int gemm_map_a(CUtensorMap *map, bool bf16, const void *base, uint32_t rows, uint32_t k)
{
	uint64_t dims[2] = {k, rows}, stride[1] = {(uint64_t)k * 2};
	uint32_t box[2] = {GEMM_BK, GEMM_BM};

	return tma_map_2b(map, bf16, base, 2, dims, stride, box);
}

/* Of b [n, k], n a multiple of 32, `cols` columns of a tile at a time. Row 8 i + 2 q + e of 32 in shared memory is row
 * 8 q + 2 i + e of b: see the top of this file. */
static inline int gemm_map_b(CUtensorMap *map, bool bf16, const void *base, uint32_t n, uint32_t k, uint32_t cols)
{
	uint64_t row = (uint64_t)k * 2, dims[5] = {k, 2, 4, 4, n / 32}, stride[4] = {row, 8 * row, 2 * row, 32 * row};
	uint32_t box[5] = {GEMM_BK, 2, 4, 4, cols / 32};

	return tma_map_2b(map, bf16, base, 5, dims, stride, box);
}

#endif
