/* What the attention kernels without TMA share (attention_mma.cu, attention_f32.cu; attention.cu calls them): arguments
 * as a kernel takes them, and the walk along a chain's panels. */
#ifndef FATHOM_KERNELS_ATTENTION_TILE_CUH
#define FATHOM_KERNELS_ATTENTION_TILE_CUH

#include "kernels/cuda.cuh"

struct attention_args {
	void *out;
	const void *q, *k, *v;
	const struct kern_tile *tiles;
	const uint32_t *panels;
	uint32_t head_dim, q_rows, n_slots, out_stride;
	uint32_t group; /* heads that share a kv head */
	uint32_t block; /* keys of a panel: a multiple of 16, at least 64 */
	uint32_t d_qk, d_v;
	float scale_log2e; /* above 0 */
};

int attention_mma(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
                  enum kern_type type, struct CUstream_st *stream);
int attention_f32(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
                  struct CUstream_st *stream);

/* A place in a chain: key `offset` of its panel `panel`. */
struct chain_at {
	const uint32_t *panels;
	uint32_t n_panels, block;
	uint32_t panel, offset;
};

/* Position 0 of the chain of a tile, or of a part of one. */
static __device__ __forceinline__ struct chain_at chain_begin(const struct attention_args &a, const struct kern_tile &t)
{
	return {a.panels + t.panels, (t.pos0 + t.n_rows - 1) / a.block + 1, a.block, 0, 0};
}

/* n <= 64 */
static __device__ __forceinline__ void chain_advance(struct chain_at *at, uint32_t n)
{
	at->offset += n;
	if (at->offset >= at->block) {
		at->offset -= at->block;
		at->panel++;
	}
}

/* The slot of the key `ahead` keys on, a multiple of 16 below 64; the 15 after it follow. Beyond the chain: slot 0 and
 * not there. */
static __device__ __forceinline__ uint32_t chain_slot(const struct chain_at &at, uint32_t ahead, bool *there)
{
	uint32_t offset = at.offset + ahead, panel = at.panel;

	if (offset >= at.block) {
		offset -= at.block;
		panel++;
	}
	*there = panel < at.n_panels;
	return *there ? __ldg(at.panels + panel) * at.block + offset : 0;
}

#endif
