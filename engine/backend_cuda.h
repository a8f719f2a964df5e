/* The CUDA backend's state, shared by its files: device_cuda.c describes devices, backend_cuda.c opens and holds
 * memory, backend_cuda_pass.c lays out a pass, ends it and replays it, backend_cuda_ops.c launches. Nobody else
 * includes this.
 *
 * Everything runs in order on one stream. Between `begin` and `end` the host only launches, so all that a pass
 * varies is laid out in pinned memory and goes up in one copy, and scores and the fault come down in pinned memory. */
#ifndef FATHOM_ENGINE_BACKEND_CUDA_H
#define FATHOM_ENGINE_BACKEND_CUDA_H

#include "engine/backend.h"
#include "engine/pool.h"
#include "engine/weights_cuda.h"
#include "kernels/kernels_cuda.h"

struct CUevent_st;
struct CUgraphExec_st;

#define GRAPH_ROWS  8192 /* a pass of at most this many rows is replayed: its launches cost more than they hide */
#define N_GRAPHS    8
#define N_SEEN      64
#define N_AHEAD     4 /* layers that a large pass is launched ahead of the device: what a stop waits for */

#define LEAST_CHUNK 4096 /* rows, where memory is short; a session may ask for fewer */

/* What a pass needs of the arena. */
struct extent {
	uint32_t rows, preds; /* of a pass */
	uint32_t chunk;       /* rows, or predictions, of wide activations */
	uint32_t slots;       /* of keys and values: whole panels */
	uint32_t words;       /* of what goes up for a pass */
};

/* One allocation, carved for an extent; addresses hold until it grows. Row counts are padded to KERN_ROW_PAD. */
struct arena {
	struct extent has;
	char *memory; /* owned: device */
	size_t bytes;
	float *x;          /* [rows, dim] f32: the residual, but for the last branch's output: */
	void *y;           /* [rows, dim] type */
	void *k, *v;       /* [n_kv_head, slots, d_qk] qk_type, [n_kv_head, slots, d_v] type: finite, always */
	size_t kv_bytes;   /* of both together */
	float *turns;      /* [rows, n_freq, 2] f32: the angles, where the product for q, k, v turns them */
	void *h;           /* [chunk, dim] type: a product's input */
	void *wide;        /* [chunk, the widest product] type */
	void *q;           /* [n_head, chunk, d_qk] qk_type */
	void *attended;    /* [chunk, n_head head_dim] type */
	void *act;         /* [chunk, ffn_dim] type, when gated: where q and attended lie */
	void *scratch;     /* of the head: where all of these lie */
	uint32_t *panels;  /* [slots / block]: 0, 1, 2, ..., the list of any chain of one segment; then: */
	uint32_t *up;      /* [words] what goes up, from lists of panels on: an index into `panels` reaches them */
	uint32_t identity; /* words from panels to up */
	struct kern_score *scores; /* [preds] */
	unsigned long long *fault; /* the smallest (stage << 32 | row) */
	uint32_t *counter;
};

/* Where the parts of a pass lie, in words from the start of what goes up. */
struct pass_words {
	uint32_t tiles, copies, tokens, pos, slot, targets, pred_row, end;
};

/* A pass's shape: all that its launches carry. */
struct pass_key {
	uint32_t n_rows, n_pred, n_tiles, n_copies, n_lists;
};

struct graph {
	struct pass_key key;
	struct CUgraphExec_st *exec; /* owned */
	uint64_t used;               /* when, in passes */
};

enum pass_mode { PASS_LAUNCH, PASS_CAPTURE, PASS_REPLAY };

/* A layer's steps, in order: a fault's stage is N_STAGES layer + step. Layer n_layer is the
 * head, whose input is by rows and the rest by predictions. */
enum stage { STAGE_INPUT, STAGE_QKV, STAGE_MLP, N_STAGES };

struct backend {
	struct model_config c;
	enum kern_type type;
	int device, capability; /* 90: 9.0 */
	struct kern_attention_shape shape;
	struct pool *pool; /* owned: converts weights; NULL after */
	struct weights_cuda weights;
	struct kern_blas *blas;                   /* owned */
	struct CUstream_st *stream;               /* owned */
	struct CUevent_st *ahead[N_AHEAD], *done; /* owned */
	struct arena arena;
	void *host;                     /* owned, pinned; in it: */
	uint32_t *host_up;              /* [host_words] what goes up */
	struct kern_score *host_scores; /* [host_preds] what comes down */
	unsigned long long *host_fault;
	uint32_t host_words, host_preds;
	bool fused_qkv;     /* kern_qkv_cuda takes the model's layers */
	size_t batch_bytes; /* of an arena: what is left of the memory that was free */
	uint32_t chunk, batch_tokens, qkv_width, head_width, up_width;

	/* during a pass */
	struct pass pass;
	struct pass_words at;
	enum pass_mode mode;
	struct pass_key key;
	uint32_t *segment_panel; /* [segments_cap] owned: a segment's first own panel */
	uint32_t *segment_list;  /* [segments_cap] owned: its chain's list, an index into panels */
	size_t segments_cap, lists_cap;
	struct kern_tile *tiles; /* [tiles_cap] owned: of a chunk, before they are sorted */
	uint32_t *buckets;       /* [buckets_cap] owned */
	size_t tiles_cap, buckets_cap;
	uint32_t *chunk_tiles, *chunk_copies; /* [n_chunks + 1] owned: a chunk's first */
	size_t chunks_cap, copies_cap;
	uint32_t n_chunks;
	struct token_score *out;
	bool complete; /* all predictions are launched */

	struct graph graphs[N_GRAPHS];
	struct pass_key seen[N_SEEN];
	uint32_t n_seen;
	uint64_t n_passes;
};

/* Sets the error of a CUDA call or launch: ERR_MEMORY where the device's memory is short, else ERR_DEVICE. */
err_code cuda_error(struct err *e, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* device_cuda.c: the number in "cuda:N", "cuda" or "auto"; makes it current. */
err_code cuda_device(const char *device, int *number, int *capability, struct err *e);
err_code cuda_describe(const char *device, struct device_info *out, struct err *e);

/* backend_cuda.c: how many frequencies the model's positions have, as a position_table does. */
uint32_t cuda_count_freq(const struct model_config *c);

/* backend_cuda.c: makes room for an extent. It may lower b->chunk when memory is short. */
err_code cuda_reserve(struct backend *b, struct extent need, struct err *e);

/* backend_cuda_pass.c */
err_code cuda_begin(struct backend *b, const struct pass *p, struct err *e);
err_code cuda_end(struct backend *b, struct err *e);
void cuda_drop_graphs(struct backend *b);
void cuda_release_pass(struct backend *b);

/* backend_cuda_ops.c */
err_code cuda_embed(struct backend *b, uint32_t row0, uint32_t row1, struct err *e);
err_code cuda_qkv(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
err_code cuda_read_qk(struct backend *b, uint32_t row0, uint32_t row1, float *q, float *k, struct err *e);
err_code cuda_attention(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
err_code cuda_mlp(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e);
err_code cuda_head(struct backend *b, uint32_t pred0, uint32_t pred1, struct token_score *out, struct err *e);

#endif
