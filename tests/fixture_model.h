/* Writes small checkpoints in the project's format, with weights that are a pure function of (seed, tensor, index): any
 * suite can recompute what it wrote. Failure to write fails the test. */
#ifndef FATHOM_TESTS_FIXTURE_MODEL_H
#define FATHOM_TESTS_FIXTURE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/buf.h"
#include "engine/model.h"

struct fixture_model {
	const char *position;     /* "rope", "pope" */
	const char *rope_scaling; /* JSON text, or NULL: null */
	const char *hidden_act;
	const char *extra_config; /* more members, e.g. "\"attention_scale\": 0.5", or NULL */
	uint32_t n_layer, n_head, n_kv_head, head_dim, dim, ffn_dim, n_vocab, n_ctx;
	bool mlp_gated, tied, attention_bias, mlp_bias;
	enum dtype dtype;  /* of all tensors but pope_delta, which is F32 */
	uint32_t n_shards; /* 1: model.safetensors; more: shards and an index */
	bool tokenizer;    /* also tokenizer.json: 0..255 are the bytes, 256 is "<|endoftext|>"; n_vocab >= 257 then */
	uint64_t seed;
};

/* rope, 2 layers, 4 heads of 8 (2 of them for keys and values), dim 32, ffn 64, vocabulary 97, context 64, plain gelu
 * MLP, tied, no biases, F32, one file, no tokenizer. */
extern const struct fixture_model FIXTURE_MODEL_DEFAULT;

/* Writes config.json, the weights and perhaps tokenizer.json into an existing directory. */
void fixture_model_write(const char *dir, const struct fixture_model *m);

/* Element i of a tensor as written, that is after rounding to its dtype. */
float fixture_model_value(const struct fixture_model *m, const char *tensor, uint64_t i);

/* Appends a file of the directory to `out`. */
void fixture_read(const char *dir, const char *name, struct buf *out);

/* Replaces every `from` in a file of the directory, bytewise; there must be one. */
void fixture_edit(const char *dir, const char *name, const char *from, const char *to);

/* Opens the checkpoint in dir, with a position override as JSON text or NULL. */
struct model *fixture_model_open(const char *dir, const char *override);

/* Writes a model into a new folder of its own, so that maps of earlier ones stay as they were, and opens it. */
struct model *fixture_model_make(const struct fixture_model *m);

/* Expects that the checkpoint in dir is refused with this code and these words. */
void fixture_model_refused(const char *dir, err_code code, const char *words);

/* What opening the checkpoint in dir logs. Static storage. */
const char *fixture_model_log(const char *dir);

/* A raw safetensors file: the header's length, the header, then `len` bytes of data (NULL: zeros). */
void fixture_safetensors_write(const char *dir, const char *name, const char *header, const void *data, size_t len);

#endif
