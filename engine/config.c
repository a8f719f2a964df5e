/* config.json: see config.h. The keys are in tables: to add one, add a row. */
#include "engine/config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/log.h"

#define FAMILY     "PopeForCausalLM"
#define MODEL_TYPE "pope"

/* -- tables ------------------------------------------------------------------------------------ */

/* Upper limits are far above any model: they keep products of two sizes within 64 bits. */
static const struct size_key {
	const char *key;
	size_t offset;
	uint32_t max;
	bool required;
} size_keys[] = {
    {"hidden_size", offsetof(struct model_config, dim), 1 << 20, true},
    {"num_hidden_layers", offsetof(struct model_config, n_layer), 1 << 12, true},
    {"num_attention_heads", offsetof(struct model_config, n_head), 1 << 12, true},
    {"num_key_value_heads", offsetof(struct model_config, n_kv_head), 1 << 12, false},
    {"head_dim", offsetof(struct model_config, head_dim), 1 << 12, false},
    {"intermediate_size", offsetof(struct model_config, ffn_dim), 1 << 22, true},
    {"vocab_size", offsetof(struct model_config, n_vocab), 1 << 24, true},
};

static const struct bool_key {
	const char *key;
	size_t offset;
	bool required; /* else false when absent */
} bool_keys[] = {
    {"mlp_gated", offsetof(struct model_config, mlp_gated), false},
    {"attention_bias", offsetof(struct model_config, attention_bias), false},
    {"mlp_bias", offsetof(struct model_config, mlp_bias), false},
    /* Hugging Face's families disagree about its default */
    {"tie_word_embeddings", offsetof(struct model_config, tied), true},
};

static const struct activation_key {
	const char *name;
	enum activation act;
} activations[] = {
    {"gelu_pytorch_tanh", ACT_GELU_TANH}, /* first of an enum value: its name in descriptions */
    {"gelu_new", ACT_GELU_TANH},
    {"gelu", ACT_GELU},
    {"silu", ACT_SILU},
    {"swish", ACT_SILU},
    {"relu", ACT_RELU},
};

/* Keys that are read elsewhere or say nothing about the numbers. */
static const char *const other_keys[] = {
    "architectures",
    "model_type",
    "hidden_act",
    "rms_norm_eps",
    "attention_scale",
    "bos_token_id",
    "eos_token_id",
    "tensor_map",
    "position_embedding_type",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "rotary_pct",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "initializer_range",
    "pretraining_tp", /* of Llama 2: how its products were split in training */
    "pad_token_id",
    "attention_dropout",
    "hidden_dropout",
    "name",
    "description",
    "license",
};

/* Keys that would change the numbers and are not computed here; null or false are the same as absent. */
static const char *const refused_keys[] = {
    "sliding_window", "quantization_config",  "attn_logit_softcapping", "final_logit_softcapping",
    "logit_scale",    "embedding_multiplier", "residual_multiplier",    "num_local_experts",
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* -- values ------------------------------------------------------------------------------------ */

static err_code refuse_type(const char *key, const struct json *j, const char *want, struct err *e)
{
	double v;

	if (json_number(j, &v))
		return err_set(e, ERR_INPUT, "config.json: %s is %.9g, want %s", key, v, want);
	if (json_string(j))
		return err_set(e, ERR_INPUT, "config.json: %s is '%.100s', want %s", key, json_string(j), want);
	return err_set(e, ERR_INPUT, "config.json: %s is %s, want %s", key, json_type_name(j), want);
}

/* Null counts as absent. */
static const struct json *setting(const struct json *config, const char *key)
{
	const struct json *j = json_get(config, key);

	return json_is_null(j) ? NULL : j;
}

static err_code read_size(const struct json *config, const struct size_key *k, struct model_config *c, struct err *e)
{
	const struct json *j = setting(config, k->key);
	int64_t v;

	if (!j && !k->required)
		return ERR_OK; /* 0: resolved later */
	if (!json_integer(j, &v))
		return refuse_type(k->key, j, "an integer", e);
	if (v < 1 || v > k->max)
		return err_set(e, ERR_INPUT, "config.json: %s is %lld, want 1 to %u", k->key, (long long)v, k->max);
	*(uint32_t *)((char *)c + k->offset) = (uint32_t)v;
	return ERR_OK;
}

static err_code read_bool(const struct json *config, const struct bool_key *k, struct model_config *c, struct err *e)
{
	const struct json *j = setting(config, k->key);

	if (!j && !k->required)
		return ERR_OK;
	if (!json_is_bool(j))
		return refuse_type(k->key, j, "true or false", e);
	*(bool *)((char *)c + k->offset) = json_true(j);
	return ERR_OK;
}

/* A finite number in (0, max]; *out is the default when it is absent. */
static err_code read_positive(const struct json *config, const char *key, double max, float *out, struct err *e)
{
	const struct json *j = setting(config, key);
	char want[64];
	double v;

	if (!j)
		return ERR_OK;
	snprintf(want, sizeof want, "a number above 0, at most %g", max);
	if (!json_number(j, &v) || !((float)v > 0 && v <= max))
		return refuse_type(key, j, want, e);
	*out = (float)v;
	return ERR_OK;
}

static err_code read_token(const struct json *config, const char *key, uint32_t n_vocab, int64_t *out, struct err *e)
{
	const struct json *j = setting(config, key);
	int64_t v;

	*out = -1;
	if (!j)
		return ERR_OK;
	if (!json_integer(j, &v))
		return refuse_type(key, j, "an integer or null", e);
	if (v < 0 || v >= n_vocab)
		return err_set(e, ERR_INPUT, "config.json: %s is %lld, outside vocab_size %u", key, (long long)v,
		               n_vocab);
	*out = v;
	return ERR_OK;
}

static err_code read_activation(const struct json *config, enum activation *out, struct err *e)
{
	const struct json *j = setting(config, "hidden_act");
	const char *name = json_string(j);

	for (size_t i = 0; name && i < COUNT(activations); i++) {
		if (strcmp(name, activations[i].name) != 0)
			continue;
		*out = activations[i].act;
		return ERR_OK;
	}
	return refuse_type("hidden_act", j, "gelu_pytorch_tanh, gelu_new, gelu, silu, swish or relu", e);
}

const char *activation_name(enum activation a)
{
	for (size_t i = 0; i < COUNT(activations); i++)
		if (activations[i].act == a)
			return activations[i].name;
	return "unknown";
}

/* -- the whole --------------------------------------------------------------------------------- */

static err_code read_family(const struct json *config, struct model_config *c, struct err *e)
{
	const struct json *list = setting(config, "architectures"), *type = setting(config, "model_type");
	const char *family = json_string(json_first(list));

	if (!list && !type)
		return err_set(e, ERR_INPUT, "config.json: neither architectures nor model_type is given");
	if (list && (!json_is_array(list) || json_count(list) != 1 || !family))
		return err_set(e, ERR_INPUT, "config.json: architectures is not an array of one string");
	if (family && strcmp(family, FAMILY) != 0)
		return err_set(e, ERR_INPUT,
		               "config.json: architecture '%.100s' is not supported yet (supported: " FAMILY ")",
		               family);
	if (type && (!json_string(type) || strcmp(json_string(type), MODEL_TYPE) != 0))
		return refuse_type("model_type", type, "'" MODEL_TYPE "' (others are not supported yet)", e);
	snprintf(c->family, sizeof c->family, "%s", FAMILY);
	return ERR_OK;
}

static err_code refuse_keys(const struct json *config, struct err *e)
{
	for (size_t i = 0; i < COUNT(refused_keys); i++) {
		const struct json *j = setting(config, refused_keys[i]);

		if (j && !(json_is_bool(j) && !json_true(j)))
			return err_set(e, ERR_INPUT, "config.json: %s is not supported", refused_keys[i]);
	}
	return ERR_OK;
}

static bool is_known(const char *key)
{
	for (size_t i = 0; i < COUNT(size_keys); i++)
		if (!strcmp(key, size_keys[i].key))
			return true;
	for (size_t i = 0; i < COUNT(bool_keys); i++)
		if (!strcmp(key, bool_keys[i].key))
			return true;
	for (size_t i = 0; i < COUNT(refused_keys); i++)
		if (!strcmp(key, refused_keys[i]))
			return true;
	for (size_t i = 0; i < COUNT(other_keys); i++)
		if (!strcmp(key, other_keys[i]))
			return true;
	return false;
}

static void warn_unknown(const struct json *config)
{
	for (const struct json *j = json_first(config); j; j = json_next(j))
		if (!is_known(json_key(j)))
			log_warn("config.json: '%.100s' is not known and ignored", json_key(j));
}

/* Resolves what follows from other sizes. */
static err_code resolve_heads(struct model_config *c, struct err *e)
{
	if (!c->n_kv_head)
		c->n_kv_head = c->n_head;
	if (c->n_head % c->n_kv_head)
		return err_set(e, ERR_INPUT,
		               "config.json: num_attention_heads %u is not a multiple of "
		               "num_key_value_heads %u",
		               c->n_head, c->n_kv_head);
	if (!c->head_dim && c->dim % c->n_head)
		return err_set(e, ERR_INPUT,
		               "config.json: hidden_size %u is not a multiple of num_attention_heads %u, "
		               "and head_dim is absent",
		               c->dim, c->n_head);
	if (!c->head_dim)
		c->head_dim = c->dim / c->n_head;
	return ERR_OK;
}

err_code config_read(const struct json *config, struct model_config *out, struct err *e)
{
	struct model_config c = {.rms_eps = 1e-5f};

	if (!json_is_object(config))
		return err_set(e, ERR_INPUT, "config.json: %s, want an object", json_type_name(config));
	if (read_family(config, &c, e) || refuse_keys(config, e))
		return e->code;
	for (size_t i = 0; i < COUNT(size_keys); i++)
		if (read_size(config, &size_keys[i], &c, e))
			return e->code;
	for (size_t i = 0; i < COUNT(bool_keys); i++)
		if (read_bool(config, &bool_keys[i], &c, e))
			return e->code;
	if (resolve_heads(&c, e))
		return e->code;
	c.attention_scale = (float)(1 / sqrt(c.head_dim));
	if (read_activation(config, &c.act, e) || read_positive(config, "rms_norm_eps", 1, &c.rms_eps, e) ||
	    read_positive(config, "attention_scale", 1e6, &c.attention_scale, e) ||
	    read_token(config, "bos_token_id", c.n_vocab, &c.bos, e) ||
	    read_token(config, "eos_token_id", c.n_vocab, &c.eos, e) ||
	    position_from_config(config, c.head_dim, &c.position, e))
		return e->code;
	c.n_ctx = c.position.max_ctx;
	warn_unknown(config);
	*out = c;
	return ERR_OK;
}
