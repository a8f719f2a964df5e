/* CPU kernels: the maths of the forward pass, one op a file. They know shapes, not models; nothing here allocates (but
 * for kern_matmul_new), logs or takes a lock, so any thread may call any of them.
 *
 * Invariants that make scores independent of batch, chunk and threads:
 * - a row's result depends on that row's input and chain alone: never on its place in a tile, the tile's other rows,
 *   or how many there are;
 * - matrix products run on tiles of exactly KERN_TILE rows, each by one thread;
 * - softmax runs over blocks of KERN_BLOCK keys counted from the chain's start; sums have one fixed order.
 *
 * The vector kernels are compiled once per instruction set (cpu_base.c, cpu_avx2.c, cpu_avx512.c, cpu_avx512_bf16.c)
 * and chosen at run time by what oneDNN uses, so ONEDNN_MAX_CPU_ISA caps all of them. Element type `type` below is f32,
 * or bf16 held as uint16_t. */
#ifndef FATHOM_KERNELS_KERNELS_H
#define FATHOM_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERN_TILE         64  /* rows of a tile */
#define KERN_PANEL        32  /* keys of a panel: the unit in which keys and values are stored */
#define KERN_BLOCK        256 /* keys of a softmax block: any power of two; 128 costs 3 % more */
#define KERN_MAX_HEAD_DIM 256
#define KERN_ALIGN        64 /* bytes; what buffers should be aligned to */

enum kern_type { KERN_F32, KERN_BF16, KERN_F16 };
enum kern_act { KERN_GELU_TANH, KERN_GELU, KERN_SILU, KERN_RELU };

static inline size_t kern_type_size(enum kern_type t)
{
	return t == KERN_F32 ? 4 : 2;
}

/* -- products (matmul_cpu.c) -------------------------------------------------------------------- */

struct kern_matmul; /* immutable weights [n, k], laid out for oneDNN */

/* Copies w into oneDNN's layout. 0, or oneDNN's status: see kern_status. */
int kern_matmul_new(struct kern_matmul **out, const float *w /* [n, k] f32 */, uint32_t n, uint32_t k,
                    enum kern_type type);
void kern_matmul_free(struct kern_matmul *m); /* NULL is fine */
size_t kern_matmul_scratch_bytes(const struct kern_matmul *m);

/* out = in w^T on one tile. Threads that call this have called kern_thread_init. */
int kern_matmul_cpu(float *out /* [KERN_TILE, n] f32 */, const void *in /* [KERN_TILE, k] type */,
                    const struct kern_matmul *m, void *scratch /* aligned */);

void kern_thread_init(void);         /* once in each thread: oneDNN shall not start threads of its own */
const char *kern_status(int status); /* "out of memory", ... */
const char *kern_library(void);      /* "oneDNN 2.6.3" */
const char *kern_isa(void);          /* what oneDNN uses, after ONEDNN_MAX_CPU_ISA: "avx512_core_bf16" */
bool kern_has_bf16(void);            /* products of bf16 are faster than those of f32 */

/* -- arguments of the vector kernels ------------------------------------------------------------- */

/* Position scheme, applied to a tile of the fused q, k, v product.
 * RoPE (d_qk = head_dim): pairs (i, i + head_dim/2) turned by pos * freq[i].
 * PoPE (d_qk = 2 head_dim): softplus(x_c) as magnitude; cos in channels [0, head_dim), sin in the rest. */
struct kern_qkv_post {
	void *q;                            /* out [n_rows, n_head, d_qk] type, times q_scale */
	void *k, *v;                        /* out: panels, see kern_k_panel_words */
	size_t k_head_words, v_head_words;  /* 32-bit words from one kv head's panels to the next's */
	const float *qkv;                   /* [n_rows, (n_head + 2 n_kv_head) head_dim] f32 */
	const float *bias;                  /* [(n_head + 2 n_kv_head) head_dim] f32, or NULL */
	const uint32_t *pos;                /* [n_rows] */
	const uint32_t *panel;              /* [n_rows] the panel of row r; its column is pos % KERN_PANEL */
	const uint64_t *freq;               /* [head_dim/2] rope or [head_dim] pope: turns per position * 2^64 */
	const float *cos_delta, *sin_delta; /* pope: [n_kv_head, head_dim] f32 */
	float amplitude, q_scale;
	uint32_t n_rows, n_head, n_kv_head, head_dim;
	bool pope;
	enum kern_type type;
};

/* Attention of up to KERN_TILE consecutive rows of one chain, one head. Row r stands at position pos0 + r and sees the
 * keys 0..pos0 + r. Scores are q k^T: scale and log2(e) are in q already (the exponential is 2^x). */
struct kern_attention {
	void *out;                   /* [n_rows, out_stride] type: d_v elements of each row */
	const void *q;               /* [n_rows, q_stride] type: d_qk elements of each row */
	const void *k, *v;           /* the kv head's panels */
	const uint32_t *panels;      /* [(pos0 + n_rows - 1) / KERN_PANEL + 1] the chain's panels */
	size_t out_stride, q_stride; /* elements */
	uint32_t n_rows, pos0, d_qk, d_v;
	void *scratch; /* kern_attention_scratch_bytes, aligned */
};

/* Online log-sum-exp over blocks of the vocabulary, in order. */
struct kern_head_row {
	float max, sum; /* sum of exp(logit - max) */
	float target_logit;
	uint32_t argmax, target;
};

/* A panel holds KERN_PANEL keys of one kv head. In 32-bit words: keys [d, 32] f32 or [d/2, 32] pairs of bf16 (channels
 * 2c, 2c+1); values [32, dv] f32 or [16, dv] pairs of bf16 (keys 2j, 2j+1), dv = d_v rounded up to 32. Key 0 of a
 * panel stands at a position that is a multiple of KERN_PANEL. */
static inline size_t kern_k_panel_words(uint32_t d_qk, enum kern_type t)
{
	return (size_t)KERN_PANEL * d_qk * kern_type_size(t) / 4;
}
static inline uint32_t kern_v_width(uint32_t d_v)
{
	return (d_v + 31) / 32 * 32;
}
static inline size_t kern_v_panel_words(uint32_t d_v, enum kern_type t)
{
	return (size_t)KERN_PANEL * kern_v_width(d_v) * kern_type_size(t) / 4;
}
/* Scores, bf16 probabilities, q, o, a vector of sums, maximum and factor of each row, all f32 wide. */
static inline size_t kern_attention_scratch_bytes(uint32_t d_qk, uint32_t d_v)
{
	return sizeof(float) * KERN_TILE * (KERN_BLOCK + KERN_BLOCK / 2 + d_qk + kern_v_width(d_v) + 16 + 2);
}

/* -- the vector kernels --------------------------------------------------------------------------- */

/* Those that return a row: the first row with a NaN or infinity (qkv_post: or a q or k beyond 1e18), else n_rows. */
struct kern_cpu {
	const char *isa;
	/* out = x / sqrt(mean(x^2) + eps) * w */
	uint32_t (*rmsnorm)(void *out /* [n_rows, dim] type */, const float *x /* [n_rows, dim] f32 */,
	                    const float *w /* [dim] f32 */, uint32_t n_rows, uint32_t dim, float eps,
	                    enum kern_type type);
	uint32_t (*qkv_post)(const struct kern_qkv_post *a);
	uint32_t (*attention_f32)(const struct kern_attention *a);
	uint32_t (*attention_bf16)(const struct kern_attention *a); /* NULL where there is no bf16 */
	/* gated: in [n_rows, 2 ffn_dim] = (gate, up), out = act(gate + b) * (up + b); else in [n_rows, ffn_dim],
	 * out = act(in + b). bias: [2 ffn_dim] or [ffn_dim] f32, or NULL. */
	void (*activation)(void *out /* [n_rows, ffn_dim] type */, const float *in /* f32 */, const float *bias,
	                   uint32_t n_rows, uint32_t ffn_dim, enum kern_act act, bool gated, enum kern_type type);
	/* x += y + bias */
	uint32_t (*residual)(float *x /* [n_rows, dim] f32 */, const float *y /* [n_rows, dim] f32 */,
	                     const float *bias /* [dim] f32 or NULL */, uint32_t n_rows, uint32_t dim);
	/* folds logits of ids id0 .. id0 + n_ids into rows; first_block: rows need no initial value */
	void (*head)(struct kern_head_row *rows /* [n_rows] */, const float *logits /* [n_rows, stride] f32 */,
	             size_t stride, uint32_t n_rows, uint32_t id0, uint32_t n_ids, bool first_block);
	/* logarithms in double, so that a target that is the argmax has its bits; false: not finite */
	bool (*head_finish)(const struct kern_head_row *row, float *logprob, float *argmax_logprob);
};

extern const struct kern_cpu kern_cpu_base, kern_cpu_avx2, kern_cpu_avx512, kern_cpu_avx512_bf16;

/* The table for the instruction set that oneDNN uses. */
const struct kern_cpu *kern_cpu(void);

#endif
