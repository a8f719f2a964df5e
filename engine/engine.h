/* The engine: score these tokens, given those before them. The one header that eval/ includes (with the base).
 *
 * A model is immutable; a session is one device's mutable state for one model (weights in the compute dtype, one
 * arena, threads). Scores are batch-, chunk- and thread-invariant to the bit: a token's score depends only on its
 * chain, the model, the dtype and the engine signature. */
#ifndef FATHOM_ENGINE_ENGINE_H
#define FATHOM_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/model.h"
#include "engine/tokenizer.h"

/* -- batches ----------------------------------------------------------------------------------- */

/* A segment is a run of tokens that continues its parent (-1: it starts a sequence). Positions go on from the
 * parent's end. A parent stands before its children in the batch. Segments are packed in order: start of segment i+1 =
 * start + len of segment i. len >= 1. */
struct segment {
	int32_t parent;
	uint32_t start, len;
};

struct batch {
	const uint32_t *tokens; /* [n_tokens] ids below n_vocab */
	const uint8_t *score;   /* [n_tokens] != 0: this token's log-probability is wanted. Never on the first
	                                  * token of a segment without parent: nothing stands before it. */
	uint32_t n_tokens;
	const struct segment *segments; /* [n_segments] */
	uint32_t n_segments;
};

/* What a batch's memory depends on: a short segment takes the keys and values of a longer one (engine/panels.h). */
struct batch_size {
	uint64_t n_tokens, n_segments;
};

/* Natural logarithms. Filled where score[i] != 0, untouched elsewhere. */
struct token_score {
	float logprob;        /* of tokens[i] given all before it in its chain */
	float argmax_logprob; /* of the most probable token there (the smallest id among equals) */
	uint32_t argmax;      /* its id: tokens[i] is the argmax iff argmax == tokens[i] */
};

/* -- sessions ---------------------------------------------------------------------------------- */

struct session_options {
	const char *device;  /* "auto", "cpu", "cuda:N"; NULL: auto */
	const char *dtype;   /* "auto", "f32", "bf16", "f16"; NULL: auto (f32 on a CPU, bf16 on a GPU) */
	uint32_t n_threads;  /* CPU threads; 0: all that the affinity mask allows */
	uint32_t chunk_rows; /* rows in flight in wide activations; 0: the backend's choice. Never changes a bit. */
};

struct session;

/* Loads the model's weights to the device. The model must outlive the session. */
err_code session_open(const struct model *m, const struct session_options *o, struct session **out, struct err *e);
void session_close(struct session *s); /* NULL is fine */

/* Scores a batch, as described above. ERR_NUMERIC names layer and position of the first NaN or infinity;
 * ERR_CANCELLED after session_stop. On failure `out` is unspecified and the session stays usable. */
err_code session_score(struct session *s, const struct batch *b, struct token_score *out, struct err *e);

/* How much a model uses each frequency of its positions: the magnitude of what the frequency turns. rope: the 2-norm of
 * the pair, without the scaling's amplitude; pope: the element's softplus. Summed over rows and heads. */
struct frequency_use {
	double *sums;    /* [n_layer, 2, position_count_freq] queries, then keys; the caller's */
	uint64_t n_rows; /* that were summed. A row is as in model_flops. */
};

/* From now on session_score adds to `use` as well (borrowed; NULL: no more). Rows are added one by one in the order of
 * the batch, so that equal batches give equal bits, whatever the chunk. After a failure `use` is unspecified. It
 * makes a GPU wait for the host. */
void session_probe(struct session *s, struct frequency_use *use);

/* From any thread: makes the running (or next) session_score return ERR_CANCELLED soon; stays in force until
 * session_resume. Polled between layers and chunks of rows. */
void session_stop(struct session *s);
void session_resume(struct session *s);

/* From any thread: tokens done so far, in tokens * layers / n_layer, never decreasing. Moves with each chunk, so that a
 * hang is a count that stands still. */
uint64_t session_done_tokens(const struct session *s);

/* Bytes that a session of this model needs for batches of this size (weights, arena, threads). An upper bound that is
 * close. */
size_t session_memory(const struct model *m, const struct session_options *o, struct batch_size size);

/* Tokens that one batch should have for throughput, given memory (CPU: small; GPU: large). Whether a batch of this size
 * has no more, and its segments leave it within the memory that was free when the session was opened. */
uint32_t session_batch_tokens(const struct session *s);
bool session_takes(const struct session *s, struct batch_size size);

/* After ERR_MEMORY of session_score, which leaves the session usable: halves session_batch_tokens, so that the batch
 * can be packed again, smaller. False when it is small enough for that not to help. */
bool session_shrink(struct session *s);

/* Floating-point operations that the model asks of a batch, each product once (2 n k for a row times an [n, k] matrix),
 * with d_qk = head_dim, or twice that under PoPE:
 *   layers * (rows * 2 dim ((n_head + 2 n_kv_head) head_dim + n_head head_dim + (2, or 3 if gated) ffn_dim)
 *             + pairs * 2 n_head (d_qk + head_dim)) + scored tokens * 2 dim n_vocab
 * A row is a token that is not the last of its chain; a pair is a row and a token of its chain up to itself: the causal
 * half, at the real lengths. A tree's segments stand together. */
double model_flops(const struct model_config *c, const struct batch *b);

/* -- devices ----------------------------------------------------------------------------------- */

struct device_info {
	char device[32];     /* "cpu", "cuda:0" */
	char kind[16];       /* "cpu", "cuda" */
	char name[128];      /* "AMD EPYC ...", "NVIDIA H200" */
	char isa[64];        /* effective: "avx512_core_amx", "avx2", "sm_90" */
	char libraries[128]; /* "oneDNN 2.6.3" */
	bool bf16;           /* fast enough to offer */
	uint32_t n_threads;
	size_t memory_bytes; /* free, at the time of asking */
	double peak_flops;   /* a second, products of bf16 or f16 as the data sheet has them; 0: not known */
};

/* ERR_DEVICE for a device that is not there, naming what is. "auto": the best. */
err_code device_describe(const char *device, struct device_info *out, struct err *e);

/* Whether device "auto" is a GPU. If not, `why` says what is in the way: the build, the driver, no device. Starts
 * CUDA. */
bool device_has_gpu(struct err *why);

/* The dtype that "auto" stands for there: "f32" on a CPU, "bf16" on a GPU. */
const char *device_auto_dtype(const struct device_info *d);

/* "fathom 0.1.0; AMD EPYC; avx512_core_bf16; f32; oneDNN 2.6.3": two runs with equal signatures give equal bits.
 * dtype as in session_options; the effective one is resolved into it. */
err_code engine_signature(const char *device, const char *dtype, struct buf *out, struct err *e);

const char *engine_version(void);

#endif
