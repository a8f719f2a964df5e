/* A product on Hopper whose epilogue is the caller's: tiles of a [rows, k] times b[cols, k]^T in f32 registers. Half
 * types; k is padded with zeros to GEMM_BK by the copy engine, rows and columns of a and b are whole tiles.
 *
 * A block has one warp that copies and two warpgroups that multiply, 64 rows by GEMM_BN columns each, through a ring
 * of STAGES slots. CLUSTER blocks take tiles of different rows and the same columns, and each copies its share of b
 * to all. They stay for the whole launch and walk the tiles in a fixed order, in groups of GEMM_GROUP columns of tiles
 * so that b's part stays in L2.
 * SKEW: the second warpgroup starts each tile that many slots after the first: while one is in its epilogue, the other
 * has products to do, and the tensor cores never wait for an epilogue. SKEW < STAGES, or it would wait for itself.
 * A row's sum runs over k in steps of 16, in order, whatever the tile and the row's place in it. */
#ifndef FATHOM_KERNELS_GEMM_SM90_CUH
#define FATHOM_KERNELS_GEMM_SM90_CUH

#include "kernels/sm90.cuh"

#define GEMM_BM      128 /* rows of a block's tile */
#define GEMM_BN      256 /* its columns */
#define GEMM_BK      64  /* 128 bytes: what one swizzled row holds */
#define GEMM_GROUP   16
#define GEMM_THREADS 384
#define GEMM_A_BYTES (GEMM_BM * GEMM_BK * 2)
#define GEMM_B_BYTES (GEMM_BN * GEMM_BK * 2)
#define GEMM_SLOT    (GEMM_A_BYTES + GEMM_B_BYTES)

/* Shared memory of a block, without what the epilogue wants (which comes first, in multiples of 1024). */
#define GEMM_SMEM(stages) ((stages) * GEMM_SLOT + 1024 + 256)

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

/* To the same place, and counted by the barrier at the same place, in all blocks of `mask`. */
SM90_DEV void tma_load_2d_multicast(uint32_t to, const CUtensorMap *map, uint32_t bar, int x, int y, uint16_t mask)
{
	asm volatile(SM90_TMA "2d" SM90_TMA_TO ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
	             "l"(map), "r"(bar), "r"(x), "r"(y), "h"(mask)
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
template <int STAGES> struct gemm_ring {
	uint32_t slot, phase;

	__device__ __forceinline__ void next(void)
	{
		if (++slot == STAGES) {
			slot = 0;
			phase ^= 1;
		}
	}
};

/* -- the two roles ----------------------------------------------------------------------------------- */

/* One thread: fills slots as they become free. */
template <int STAGES, int CLUSTER>
SM90_DEV void gemm_copy(struct gemm_shape s, const CUtensorMap *a, const CUtensorMap *b, uint32_t slots, uint32_t full,
                        uint32_t empty, uint32_t rank)
{
	const uint32_t share = GEMM_BN / CLUSTER; /* rows of b */
	uint32_t n_tiles = s.n_row_tiles * s.n_col_tiles;
	gemm_ring<STAGES> ring = {0, 0};

	for (uint32_t i = blockIdx.x / CLUSTER; i < n_tiles; i += gridDim.x / CLUSTER) {
		struct gemm_tile t = gemm_tile_of(s, i);
		int row = (int)((t.row * CLUSTER + rank) * GEMM_BM), col = (int)(t.col * GEMM_BN + rank * share);

		for (uint32_t k = 0; k < s.k_steps; k++, ring.next()) {
			uint32_t to = slots + ring.slot * GEMM_SLOT, bar = full + ring.slot * 8;

			mbar_wait(empty + ring.slot * 8, ring.phase ^ 1);
			mbar_arrive_expect(bar, GEMM_SLOT);
			tma_load_2d(to, a, bar, (int)k * GEMM_BK, row);
			to += GEMM_A_BYTES + rank * share * GEMM_BK * 2;
			if (CLUSTER > 1)
				tma_load_2d_multicast(to, b, bar, (int)k * GEMM_BK, col, (1 << CLUSTER) - 1);
			else
				tma_load_2d(to, b, bar, (int)k * GEMM_BK, col);
		}
	}
}

template <int CLUSTER> SM90_DEV void gemm_release(uint32_t bar)
{
	uint32_t thread = threadIdx.x % 128;

	if (CLUSTER == 1) {
		if (thread == 0)
			mbar_arrive(bar);
	} else if (thread < CLUSTER) {
		mbar_arrive_cluster(bar, thread);
	}
}

/* A warpgroup: d = its rows of one tile. `half`: 0 or 1, which of the two it is. */
template <class T, int STAGES, int CLUSTER, int SKEW>
SM90_DEV void gemm_multiply(float (&d)[GEMM_BN / 2], gemm_ring<STAGES> &ring, uint32_t k_steps, uint32_t slots,
                            uint32_t full, uint32_t empty, int half)
{
	bool skew = SKEW && k_steps > STAGES; /* else the first could arrive twice before the second comes once */
	uint32_t before = 0;

	if (skew && half == 1)
		bar_sync(1, 256);
	for (uint32_t k = 0; k < k_steps; k++, ring.next()) {
		uint32_t at = slots + ring.slot * GEMM_SLOT;
		uint64_t a = wgmma_desc_k(at + half * (GEMM_A_BYTES / 2)), b = wgmma_desc_k(at + GEMM_A_BYTES);

		if (skew && half == 0 && k == SKEW)
			bar_arrive(1, 256);
		mbar_wait(full + ring.slot * 8, ring.phase);
		wgmma_fence();
#pragma unroll
		for (int j = 0; j < GEMM_BK / 16; j++)
			wgmma_ss<GEMM_BN, T>(d, a + 2 * j, b + 2 * j, k > 0 || j > 0);
		wgmma_commit();
		wgmma_wait<1>();
		if (k > 0)
			gemm_release<CLUSTER>(empty + before * 8);
		before = ring.slot;
	}
	wgmma_wait<0>();
	wgmma_pin(d);
	gemm_release<CLUSTER>(empty + before * 8);
}

/* The body of a kernel of GEMM_THREADS threads and GEMM_SMEM(STAGES) + E::SMEM bytes, in clusters of CLUSTER blocks.
 * E: `static const int SMEM`, and `operator()(d, row, col, half, smem)`: called by all threads of a warpgroup with the
 * first row and column of its 64 x GEMM_BN numbers, laid out as wgmma_ss says. */
template <class T, int STAGES, int CLUSTER, int SKEW, class E>
SM90_DEV void gemm_body(struct gemm_shape s, const CUtensorMap *a, const CUtensorMap *b, const E &epilogue)
{
	extern __shared__ uint8_t gemm_smem[];
	uint8_t *base = gemm_smem + (1024 - smem_u32(gemm_smem) % 1024) % 1024;
	uint32_t slots = smem_u32(base) + E::SMEM, full = slots + STAGES * GEMM_SLOT, empty = full + STAGES * 8;
	uint32_t rank = CLUSTER > 1 ? cluster_rank() : 0;
	int warpgroup = warpgroup_index();

	static_assert(SKEW < STAGES && STAGES * 16 <= 256, "see the top of this file");
	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			mbar_init(full + i * 8, 1);
			mbar_init(empty + i * 8, 2 * CLUSTER);
		}
		mbar_init_fence();
	}
	__syncthreads();
	if (CLUSTER > 1)
		cluster_sync();
	if (warpgroup == 0) {
		regs_give<40>();
		if (warp_index() == 0 && elect_one())
			gemm_copy<STAGES, CLUSTER>(s, a, b, slots, full, empty, rank);
	} else {
		uint32_t n_tiles = s.n_row_tiles * s.n_col_tiles;
		gemm_ring<STAGES> ring = {0, 0};
		int half = warpgroup - 1;

		regs_take<232>();
		for (uint32_t i = blockIdx.x / CLUSTER; i < n_tiles; i += gridDim.x / CLUSTER) {
			struct gemm_tile t = gemm_tile_of(s, i);
			uint32_t row = (t.row * CLUSTER + rank) * GEMM_BM + half * 64;
			float d[GEMM_BN / 2];

			gemm_multiply<T, STAGES, CLUSTER, SKEW>(d, ring, s.k_steps, slots, full, empty, half);
			epilogue(d, row, t.col * GEMM_BN, half, base);
		}
	}
	if (CLUSTER > 1) { /* a block's barriers must outlive the others' arrivals */
		__syncthreads();
		cluster_sync();
	}
}

/* Map of a [n, k] matrix for boxes of `box` rows. */
static inline int gemm_map(CUtensorMap *map, bool bf16, const void *base, uint32_t n, uint32_t k, uint32_t box)
{
	uint64_t dims[2] = {k, n}, stride[1] = {(uint64_t)k * 2};
	uint32_t boxes[2] = {GEMM_BK, box};

	return tma_map_2b(map, bf16, base, 2, dims, stride, boxes);
}

#endif
