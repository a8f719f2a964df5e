/* A model's weights as the CPU computes with them: products packed by oneDNN in the compute dtype, vectors in f32. The
 * embedding table is not among them: rows are read from the checkpoint's map. */
#ifndef FATHOM_ENGINE_WEIGHTS_CPU_H
#define FATHOM_ENGINE_WEIGHTS_CPU_H

#include <stddef.h>
#include <stdint.h>

#include "engine/model.h"
#include "engine/pool.h"
#include "kernels/kernels.h"

#define HEAD_BLOCK 1024 /* vocabulary ids of one product of the head: a tile of logits stays in the L2 cache */

/* All owned; absent biases and deltas are NULL. */
struct layer_cpu {
	float *attn_norm, *mlp_norm; /* [dim] */
	struct kern_matmul *qkv;     /* [(n_head + 2 n_kv_head) head_dim, dim]: q, k, v */
	struct kern_matmul *o;       /* [dim, n_head head_dim] */
	struct kern_matmul *up;      /* [ffn_dim, dim], gated: [2 ffn_dim, dim]: gate, up */
	struct kern_matmul *down;    /* [dim, ffn_dim] */
	float *qkv_bias, *o_bias, *up_bias, *down_bias;
	float *cos_delta, *sin_delta; /* [n_kv_head, head_dim] of delta clamped to [-2 pi, 0] */
};

struct weights_cpu {
	struct layer_cpu *layers; /* [n_layer] owned */
	uint32_t n_layer;
	float *norm;               /* [dim] owned */
	struct kern_matmul **head; /* [n_head_block] owned: HEAD_BLOCK ids each, the last fewer */
	uint32_t n_head_block;
	size_t scratch_bytes; /* what the greediest product needs */
};

/* Copies by all threads of the pool, then drops the map's pages. On failure *w is released. */
err_code weights_cpu_load(struct weights_cpu *w, const struct model *m, enum kern_type type, struct pool *pool,
                          struct err *e);
void weights_cpu_release(struct weights_cpu *w);

/* Bytes that a load needs beside those, while it runs. */
size_t weights_cpu_load_bytes(const struct model_config *c, uint32_t n_threads);

/* Bytes that a load keeps. */
size_t weights_cpu_bytes(const struct model_config *c, enum kern_type type);

#endif
