/* The CPU backend's state, shared by its two files: backend_cpu.c opens it and lays out a pass, backend_cpu_ops.c
 * computes. Nobody else includes this. */
#ifndef FATHOM_ENGINE_BACKEND_CPU_H
#define FATHOM_ENGINE_BACKEND_CPU_H

#include <pthread.h>

#include "engine/backend.h"
#include "engine/pool.h"
#include "engine/weights_cpu.h"
#include "kernels/kernels.h"

/* One thread's working memory. Carved from `memory`. */
struct scratch {
	char *memory; /* owned */
	void *in;     /* [KERN_TILE, dim] type: a product's input */
	float *wide;  /* [KERN_TILE, the widest product] f32 */
	void *act;    /* [KERN_TILE, ffn_dim] type */
	void *attention, *product;
	uint32_t *panels; /* [max_panels] owned */
};

/* Attention's task without the head: rows of one segment within the chunk. */
struct tile {
	uint32_t segment, row, n_rows;
};

struct backend {
	const struct model *model; /* borrowed */
	struct model_config c;
	enum kern_type type;
	const struct kern_cpu *kern;
	struct pool *pool; /* owned */
	struct weights_cpu weights;
	struct scratch *scratch; /* [n_threads] owned */
	uint32_t n_threads, chunk, d_qk, qkv_width, head_width;
	void *q;            /* [chunk, n_head, d_qk] type, owned */
	void *attended;     /* [chunk, n_head, head_dim] type, owned; whole tiles */
	struct tile *tiles; /* [max_tiles] owned */
	uint32_t n_tiles, max_tiles;

	/* during a pass */
	struct pass pass;
	struct position_table table;
	char *arena; /* owned; grows */
	size_t arena_bytes;
	float *x;     /* [n_rows, dim] f32: the residual */
	float *k, *v; /* [n_kv_head, n_panels] panels */
	size_t k_head_words, v_head_words;
	uint32_t *row_panel;     /* [n_rows] */
	uint32_t *segment_panel; /* [n_segments] a segment's first own panel */

	/* the current op */
	uint32_t layer, row0, row1;
	struct token_score *out;
	pthread_mutex_t lock;
	uint32_t fault_row; /* under lock: the lowest row with a NaN or infinity, UINT32_MAX: none */
	int status;         /* under lock: the first failure of oneDNN */
};

/* The panel in which a chain position lies, counted from the chain's start. */
static inline uint32_t panel_of(uint32_t pos)
{
	return pos / KERN_PANEL;
}

/* The ops of struct backend_ops. */
err_code cpu_embed(struct backend *b, uint32_t row0, uint32_t row1, struct err *e);
err_code cpu_qkv(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
err_code cpu_read_qk(struct backend *b, uint32_t row0, uint32_t row1, float *q, float *k, struct err *e);
err_code cpu_attention(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
err_code cpu_mlp(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
err_code cpu_head(struct backend *b, uint32_t pred0, uint32_t pred1, struct token_score *out, struct err *e);

#endif
