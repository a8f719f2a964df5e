/* The op table: what a device does for the forward pass. engine/forward.c drives it and has no #ifdef; backend_cpu.c
 * (the definition) and backend_cuda.c fill it.
 *
 * Rows are the batch's tokens whose hidden state is needed, compacted in batch order (the last token of a leaf
 * segment predicts nothing and has no row). Ops are called in order: begin; embed over all chunks; for each layer,
 * for each chunk of rows: qkv, (read_qk,) attention, mlp; then head over chunks of scored predictions; end. Keys and
 * values of earlier rows of the layer stay until the next layer's first qkv. A chunk is whole multiples of 64 rows but
 * for the last. */
#ifndef FATHOM_ENGINE_BACKEND_H
#define FATHOM_ENGINE_BACKEND_H

#include "engine/engine.h"
#include "kernels/kernels.h"

/* What forward.c lays out from a batch. All borrowed during begin..end. */
struct pass {
	const uint32_t *tokens; /* [n_rows] input ids */
	const uint32_t *pos;    /* [n_rows] position in the chain */
	uint32_t n_rows;
	const struct pass_segment *segments; /* [n_segments] */
	uint32_t n_segments;
	/* predictions: row of the predecessor -> target id */
	const uint32_t *pred_row;    /* [n_pred] ascending within a segment */
	const uint32_t *pred_target; /* [n_pred] */
	uint32_t n_pred;
	bool probed; /* read_qk will be called */
};

/* A segment's rows, and where its chain runs: ancestors are followed through `parent`. */
struct pass_segment {
	int32_t parent;      /* index, or -1 */
	uint32_t row, n_row; /* its rows in the pass (n_row may be 0) */
	uint32_t start_pos;  /* chain position of its first row: the sum of its ancestors' lengths */
};

/* The index of the segment that has this row. */
uint32_t pass_segment_of(const struct pass *p, uint32_t row);

/* ERR_NUMERIC: a NaN or infinity at this row, in `what` of a layer; layer -1 is the head, which says so itself. */
err_code pass_fault(const struct pass *p, uint32_t row, int64_t layer, const char *what, struct err *e);

/* A model's activation, as the kernels call it. */
enum kern_act backend_act(enum activation act);

struct backend;

struct backend_ops {
	const char *kind; /* "cpu", "cuda" */
	err_code (*describe)(const char *device, struct device_info *out, struct err *e);
	err_code (*open)(const struct model *m, const struct session_options *o, enum dtype dtype, struct backend **out,
	                 struct err *e);
	void (*close)(struct backend *b);
	size_t (*memory)(const struct model *m, const struct session_options *o, enum dtype dtype,
	                 struct batch_size size);
	uint32_t (*chunk_rows)(const struct backend *b);
	uint32_t (*batch_tokens)(const struct backend *b);
	bool (*takes)(const struct backend *b, struct batch_size size); /* of batch_tokens at most: is there memory? */

	err_code (*begin)(struct backend *b, const struct pass *p, struct err *e);
	err_code (*embed)(struct backend *b, uint32_t row0, uint32_t row1, struct err *e);
	/* x -> rmsnorm -> q, k, v (+bias) -> position scheme; keys and values kept for the layer */
	err_code (*qkv)(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
	/* After the qkv of a chunk and before its attention, in a pass that is probed: turned queries and keys of rows
	 * row0..row1 of the chunk, unscaled, in f32: q [n, n_head, d_qk], k [n, n_kv_head, d_qk], where d_qk is
	 * head_dim, or under pope twice that: cosines, then sines */
	err_code (*read_qk)(struct backend *b, uint32_t row0, uint32_t row1, float *q, float *k, struct err *e);
	/* softmax(q k^T scale) v over each row's chain -> o projection -> x += */
	err_code (*attention)(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
	/* x -> rmsnorm -> act(gate) * up, or act(up) -> down -> x += */
	err_code (*mlp)(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
	/* predictions pred0..pred1: final rmsnorm -> logits -> log-sum-exp -> out[pred0..pred1) */
	err_code (*head)(struct backend *b, uint32_t pred0, uint32_t pred1, struct token_score *out, struct err *e);
	/* waits for all; reports a NaN or infinity seen on the way (ERR_NUMERIC, layer and position) */
	err_code (*end)(struct backend *b, struct err *e);
};

extern const struct backend_ops backend_cpu, backend_cuda; /* the latter in builds with CUDA: see device.c */

#endif
