/* Models: a checkpoint directory, read-only. Owns the memory maps of its safetensors files; a model is immutable
 * after model_open and may be shared by threads and sessions. */
#ifndef FATHOM_ENGINE_MODEL_H
#define FATHOM_ENGINE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/json.h"
#include "engine/position.h"
#include "engine/sha256.h"
#include "engine/tensor.h"
#include "engine/tokenizer.h"

enum activation { ACT_GELU_TANH, ACT_GELU, ACT_SILU, ACT_RELU };

struct model_config {
	char family[64]; /* architectures[0] */
	uint32_t n_layer, n_head, n_kv_head, head_dim, dim, ffn_dim, n_vocab, n_ctx;
	enum activation act;
	bool mlp_gated, tied, attention_bias, mlp_bias;
	float rms_eps, attention_scale; /* attention_scale resolved: head_dim^-1/2 when null */
	int64_t bos, eos;               /* -1: none */
	struct position position;
};

/* Absent tensors (biases, gate, delta) have data NULL. Linear weights are [out, in]: y = x W^T + b. */
struct layer_weights {
	struct tensor attn_norm;  /* [dim] */
	struct tensor q, k, v, o; /* [n_head*head_dim, dim] [n_kv_head*head_dim, dim] x2 [dim, n_head*head_dim] */
	struct tensor q_bias, k_bias, v_bias, o_bias;
	struct tensor pope_delta;     /* [n_kv_head, head_dim] */
	struct tensor mlp_norm;       /* [dim] */
	struct tensor gate, up, down; /* [ffn_dim, dim] x2 [dim, ffn_dim] */
	struct tensor gate_bias, up_bias, down_bias;
};

struct model {
	char *path, *name;                 /* owned; name = last component of path */
	char fingerprint[FINGERPRINT_LEN]; /* of config.json and the weight files; "" until model_fingerprint */
	char tokenizer_fingerprint[FINGERPRINT_LEN];
	struct model_config config;
	uint64_t n_params;
	struct tensor embed;          /* [n_vocab, dim] */
	struct layer_weights *layers; /* [n_layer] owned */
	struct tensor norm;           /* [dim] */
	struct tensor head;           /* [n_vocab, dim]; the embedding when tied */
	struct tokenizer *tokenizer;  /* owned; NULL when there is no tokenizer.json */
	struct json *raw_config;      /* owned: config.json as read */
	char *override;           /* owned: a job's position override as JSON text, as it was asked for; NULL: none */
	struct checkpoint *files; /* owned: the maps (engine/safetensors.h) */
};

/* Opens a checkpoint directory. `position` is a job's override or NULL. Checks every tensor's presence, shape, dtype
 * and bounds: errors name the file or the tensor, and its value. Reads no weights. */
err_code model_open(const char *dir, const struct json *position, struct model **out, struct err *e);
void model_free(struct model *m); /* NULL is fine */

/* Hashes the files that were opened (weights too: reads all bytes, cached per process): model->fingerprint and
 * tokenizer_fingerprint. A position override that changes anything changes the model's fingerprint too: to the
 * sha256 of two lines, the files' fingerprint and "position " with the resolved JSON (position_write). */
err_code model_fingerprint(struct model *m, struct err *e);

/* ERR_CHANGED naming the first of its files that is not what was opened any more. */
err_code model_unchanged(const struct model *m, struct err *e);

/* The resolved configuration as a JSON object: name, family, n_params, shapes, dtype, position, context, tokenizer
 * (or null), files and bytes. What GET /models/{name} shows. */
void model_describe(const struct model *m, struct json_writer *w, const char *key);

/* Tells the kernel that the mapped weights are not needed for now (after a copy in the compute dtype). */
void model_drop_pages(const struct model *m);

#endif
