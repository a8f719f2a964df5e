/* CUDA kernels: the maths of the forward pass, one op a file (kernels/<op>.cu). Launchers check shapes, never allocate,
 * never synchronise, never log. They return 0 or an error that kern_cuda_error names. All pointers are device memory.
 *
 * Invariants that make scores independent of batch, chunk and process:
 * - a row's result depends on that row's input and chain alone, never on its place in a tile or on how many rows there
 *   are; rows are tiled, reductions have one fixed order, and nothing is added by atomics;
 * - which kernel or algorithm runs is a function of device model, library version, type and of a layer's shape alone;
 * - softmax runs over blocks of `block` keys counted from the chain's start.
 *
 * `type` is KERN_F32, KERN_BF16 or KERN_F16: that of weights and of activations between kernels. The residual stream is
 * f32, accumulators are f32. Where type is a half type, queries and keys are f16 (kernels of scores need the 11 bits;
 * their range suffices, and a value beyond it is a fault), values and probabilities are of `type`.
 *
 * Buffers of rows hold a multiple of KERN_ROW_PAD rows: products read and write the padding, whose content is
 * meaningless but for being initialised once. */
#ifndef FATHOM_KERNELS_KERNELS_CUDA_H
#define FATHOM_KERNELS_KERNELS_CUDA_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* *: a cudaStream_t */

#define KERN_ROW_PAD   256 /* rows of an activation buffer are a multiple of this */
#define KERN_VOCAB_PAD 256 /* so are the rows of the head's weights; the padding is zero */

const char *kern_cuda_error(int status); /* "out of memory", ... */

/* Where the first value that is not finite was seen: the smallest (stage << 32 | row) wins. */
struct kern_fault {
	unsigned long long *word; /* device; all ones: none */
	uint32_t stage, row0;     /* the caller's number for the op, and that of the launch's first row */
};

/* -- rows (embed.cu, rmsnorm.cu, activation.cu) ------------------------------------------------------ */

int kern_embed_cuda(float *x /* out [n_rows, dim] f32 */, const void *table /* [n_vocab, dim] type */,
                    const uint32_t *tokens /* [n_rows] */, uint32_t n_rows, uint32_t dim, enum kern_type type,
                    struct CUstream_st *stream);

/* x += y + bias, if there is a y; out = x / sqrt(mean(x^2) + eps) * w. With `rows`, row r of out is made from row
 * rows[r] of x and y, and x is not written (the head's gather: rows may repeat). A row that is not finite is a
 * fault. */
struct kern_rmsnorm_cuda {
	void *out;            /* [n_rows, dim] type */
	float *x;             /* [.., dim] f32 */
	const void *y;        /* [.., dim] type, or NULL */
	const float *bias;    /* [dim] f32, or NULL */
	const float *w;       /* [dim] f32 */
	const uint32_t *rows; /* [n_rows], or NULL: rows 0..n_rows */
	uint32_t n_rows, dim;
	float eps;
	enum kern_type type;
	struct kern_fault fault;
};
int kern_rmsnorm_cuda(const struct kern_rmsnorm_cuda *a, struct CUstream_st *stream);

/* gated: in [n_rows, 2 ffn_dim] = (gate, up), out = act(gate + b) * (up + b); else in [n_rows, ffn_dim],
 * out = act(in + b). bias: [2 ffn_dim] or [ffn_dim] f32, or NULL. out may be in when not gated. */
int kern_activation_cuda(void *out /* [n_rows, ffn_dim] type */, const void *in /* type */, const float *bias,
                         uint32_t n_rows, uint32_t ffn_dim, enum kern_act act, bool gated, enum kern_type type,
                         struct CUstream_st *stream);

/* -- products (matmul.cu: cuBLASLt; linear_sm90.cu on Hopper) ------------------------------------------ */

bool kern_blas_found(void); /* whether cuBLASLt, which is loaded when it is needed, is on this machine */

struct kern_blas; /* a handle, its workspace, and the algorithms chosen so far; one thread at a time */

int kern_blas_new(struct kern_blas **out, int device, enum kern_type type);
void kern_blas_free(struct kern_blas *b);       /* NULL is fine */
size_t kern_blas_bytes(void);                   /* device memory that a handle takes */
void kern_blas_library(char *out, size_t size); /* "cuBLAS 13.1.0" */

/* out = in w^T, or gelu_tanh of it. The algorithm is asked for once for each (n, k, out type, gelu) at a fixed
 * number of rows: the first call for a shape is slow, and must not be captured. Never split along k. */
int kern_matmul_cuda(struct kern_blas *b, void *out /* [n_rows, n] out_type */, enum kern_type out_type,
                     const void *in /* [n_rows, k] type */, const void *w /* [n, k] type */, uint32_t n_rows,
                     uint32_t n, uint32_t k, bool gelu_tanh, struct CUstream_st *stream);

/* -- attention (qkv_post.cu, attention.cu: the dispatch, attention_{f32,mma,sm90}.cu) ------------------- */

/* What the attention kernel of a shape wants. A pure function of its arguments: see attention.cu. */
struct kern_attention_shape {
	uint32_t d_qk, d_v;     /* widths as stored: head_dim (pope: 2 head_dim) padded with zeros */
	uint32_t tile_rows;     /* the most query rows of a tile */
	uint32_t block;         /* keys of a panel */
	enum kern_type qk_type; /* of q and k as stored: f16, or f32 where type is f32 */
};
/* compute_capability: 90 for 9.0. 0, or -1 where no kernel takes the shape. */
int kern_attention_shape_cuda(struct kern_attention_shape *out, int compute_capability, enum kern_type type,
                              uint32_t head_dim, bool pope);

/* Position scheme, applied to a chunk of the fused q, k, v product; also adds biases and spreads keys and values
 * over their slots. RoPE: pairs (i, i + head_dim/2) turned by pos * freq[i]. PoPE: softplus(x_c) as magnitude; cos
 * in channels [0, head_dim), sin in [d_qk/2, d_qk/2 + head_dim), delta on keys only. Channels between are written as
 * zeros. q is not scaled. A q or k that is not finite (or, stored as f16, beyond 65504) is a fault. */
struct kern_qkv_post_cuda {
	void *q;                            /* out [n_head, q_rows, d_qk] qk_type: rows 0..n_rows of each head */
	void *k;                            /* out [n_kv_head, n_slots, d_qk] qk_type */
	void *v;                            /* out [n_kv_head, n_slots, d_v] type */
	const void *qkv;                    /* [n_rows, (n_head + 2 n_kv_head) head_dim] type */
	const float *bias;                  /* [(n_head + 2 n_kv_head) head_dim] f32, or NULL */
	const uint32_t *pos;                /* [n_rows] position in the chain */
	const uint32_t *slot;               /* [n_rows] where the row's key and value go */
	const uint64_t *freq;               /* [head_dim/2] rope, [head_dim] pope: turns per position * 2^64 */
	const float *cos_delta, *sin_delta; /* pope: [n_kv_head, head_dim] f32 */
	float amplitude;                    /* on cos and sin of q and k */
	uint32_t n_rows, q_rows, n_slots, n_head, n_kv_head, head_dim, d_qk, d_v;
	bool pope;
	enum kern_type type;
	struct kern_fault fault;
};
int kern_qkv_post_cuda(const struct kern_qkv_post_cuda *a, struct CUstream_st *stream);

/* kern_matmul_cuda and kern_qkv_post_cuda in one (linear_sm90.cu): the product never reaches memory. Where it takes a
 * layer it is to be used always: its results differ from the two ops' by the rounding of the product that it omits. */
struct kern_qkv_cuda {
	struct kern_qkv_post_cuda post; /* its qkv, pos, freq and amplitude are not looked at: turns has them */
	const void *in;                 /* [n_rows, dim] type, padded to KERN_ROW_PAD rows */
	const void *w;                  /* [(n_head + 2 n_kv_head) head_dim, dim] type */
	const float *turns;             /* [n_rows, head_dim/2 (pope: head_dim), 2]: see kern_turns_cuda */
	uint32_t dim;
};
bool kern_qkv_takes_cuda(int compute_capability, enum kern_type type, uint32_t dim, uint32_t head_dim, uint32_t d_qk,
                         uint32_t d_v, bool pope);
int kern_qkv_cuda(const struct kern_qkv_cuda *a, int device, struct CUstream_st *stream);

/* Cosine and sine of pos * freq, times the amplitude: once for all layers of a pass. */
int kern_turns_cuda(float *turns /* [n_rows, n_freq, 2] */, const uint32_t *pos, const uint64_t *freq, float amplitude,
                    uint32_t n_rows, uint32_t n_freq, struct CUstream_st *stream);

/* Copies keys and values between slots, of all kv heads: a segment that starts inside a panel begins with its
 * ancestors' keys. No slot is both read and written. */
struct kern_slot_copy {
	uint32_t to, from;
};
int kern_stitch_cuda(void *k, void *v, const struct kern_slot_copy *copies /* [n] */, uint32_t n, uint32_t n_kv_head,
                     uint32_t n_slots, uint32_t d_qk, uint32_t d_v, enum kern_type qk_type, enum kern_type type,
                     struct CUstream_st *stream);

/* Consecutive rows of one segment: row i stands at chain position pos0 + i and sees keys 0..pos0 + i of its chain. */
struct kern_tile {
	uint32_t row, n_rows, pos0; /* row: in q and out; 1 <= n_rows <= tile_rows */
	uint32_t panels;            /* the chain's list: panels[this], of (pos0 + n_rows - 1) / block + 1 panels */
};

/* out = softmax(scale q k^T) v. Panel p of a chain's list holds the chain's keys of positions [i block, (i + 1)
 * block) in slots [p block, (p + 1) block); slots of positions that no row of the tile sees hold finite numbers.
 * Rows of `out` from n_rows of a tile on are not written. */
struct kern_attention_cuda {
	void *out;                     /* [.., out_stride] type: head h of a row in [h head_dim, (h + 1) head_dim) */
	const void *q;                 /* [n_head, q_rows, d_qk] qk_type; a tile may read tile_rows rows, if < q_rows */
	const void *k;                 /* [n_kv_head, n_slots, d_qk] qk_type */
	const void *v;                 /* [n_kv_head, n_slots, d_v] type */
	const struct kern_tile *tiles; /* [n_tiles] device, longest chains first */
	const uint32_t *panels;        /* device */
	uint32_t n_tiles, n_head, n_kv_head, head_dim, q_rows, n_slots, out_stride;
	float scale;
	bool pope;
	enum kern_type type;
	uint32_t *counter; /* device word, zeroed by the launcher: a persistent grid's next work; may go unused */
};
int kern_attention_cuda(const struct kern_attention_cuda *a, int device, struct CUstream_st *stream);
/* The same by the kernel of older cards, on the same tiles and panels: a check, for half types. */
int kern_attention_mma_cuda(const struct kern_attention_cuda *a, int device, struct CUstream_st *stream);

/* -- the head (head.cu, head_sm90.cu) ------------------------------------------------------------------ */

struct kern_score { /* as token_score in engine.h */
	float logprob, argmax_logprob;
	uint32_t argmax;
};

/* For each row: log-softmax of h w^T at the target, and the argmax (smallest id among equals) with its own. The
 * logarithm is taken in double, so that a target that is the argmax has its bits. Logits are f32, never stored as a
 * whole: scratch holds a chunk of them, or partial sums. A row that is not finite is a fault. */
struct kern_head_cuda {
	struct kern_score *out;  /* [n_rows] */
	const void *h;           /* [n_rows, dim] type, padded to KERN_ROW_PAD rows */
	const void *w;           /* [n_vocab, dim] type, padded to KERN_VOCAB_PAD rows of zeros */
	const uint32_t *targets; /* [n_rows] */
	uint32_t n_rows, dim, n_vocab;
	enum kern_type type;
	void *scratch; /* kern_head_scratch_bytes(n_rows, ...) */
	struct kern_fault fault;
};
size_t kern_head_scratch_bytes(uint32_t n_rows, uint32_t dim, uint32_t n_vocab, enum kern_type type,
                               int compute_capability);
int kern_head_cuda(const struct kern_head_cuda *a, struct kern_blas *b, int device, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
