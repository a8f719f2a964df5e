/* A model's weights as a GPU computes with them: matrices in the compute dtype, vectors in f32, all in one
 * allocation. */
#ifndef FATHOM_ENGINE_WEIGHTS_CUDA_H
#define FATHOM_ENGINE_WEIGHTS_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "engine/model.h"
#include "engine/pool.h"
#include "kernels/kernels_cuda.h"

/* Device memory, all within `memory` of struct weights_cuda; absent biases and deltas are NULL. */
struct layer_cuda {
	float *attn_norm, *mlp_norm; /* [dim] */
	void *qkv;                   /* [(n_head + 2 n_kv_head) head_dim, dim]: q, k, v */
	void *o;                     /* [dim, n_head head_dim] */
	void *up;                    /* [ffn_dim, dim], gated: [2 ffn_dim, dim]: gate, up */
	void *down;                  /* [dim, ffn_dim] */
	float *qkv_bias, *o_bias, *up_bias, *down_bias;
	float *cos_delta, *sin_delta; /* [n_kv_head, head_dim] of delta clamped to [-2 pi, 0] */
};

struct weights_cuda {
	struct layer_cuda *layers; /* [n_layer] owned */
	void *embed;               /* [n_vocab, dim] type */
	void *head;                /* [n_vocab padded to KERN_VOCAB_PAD, dim] type; the embedding when tied */
	float *norm;               /* [dim] */
	uint64_t *freq;            /* [head_dim/2] rope, [head_dim] pope */
	float amplitude;
	char *memory; /* owned: device */
	size_t bytes;
};

/* Uploads through pinned memory, converted by the pool's threads meanwhile, then drops the map's pages. The device is
 * current. On failure *w is released. */
err_code weights_cuda_load(struct weights_cuda *w, const struct model *m, enum kern_type type, struct pool *pool,
                           struct CUstream_st *stream, struct err *e);
void weights_cuda_release(struct weights_cuda *w);

/* Bytes of device memory that a load takes. */
size_t weights_cuda_bytes(const struct model *m, enum kern_type type);

#endif
