/* Models: see model.h. Owns which tensors a configuration calls for, under which names and shapes. */
#include "engine/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config.h"
#include "engine/log.h"
#include "engine/path.h"
#include "engine/safetensors.h"

#define CONFIG_MAX_BYTES ((size_t)16 << 20)
#define NAME_MAX_BYTES   256 /* of a tensor that we look for */
#define MAP_MAX          10000
#define LAYER_PREFIX     "model.layers."

/* -- which tensors ----------------------------------------------------------------------------- */

enum when { ALWAYS, WITH_POPE, WITH_GATE, WITH_ATTENTION_BIAS, WITH_MLP_BIAS, WITH_GATE_AND_BIAS, UNTIED };
enum extent { ONE, DIM, Q_DIM, KV_DIM, FFN_DIM, N_KV_HEAD, HEAD_DIM, N_VOCAB };

/* A tensor of the model: where it goes, and what it must look like. ONE as second extent: a vector. */
struct slot {
	const char *name;
	size_t offset;
	enum when when;
	enum extent rows, cols;
};

#define LAYER(field) offsetof(struct layer_weights, field)
static const struct slot layer_slots[] = {
    {"input_layernorm.weight", LAYER(attn_norm), ALWAYS, DIM, ONE},
    {"self_attn.q_proj.weight", LAYER(q), ALWAYS, Q_DIM, DIM},
    {"self_attn.k_proj.weight", LAYER(k), ALWAYS, KV_DIM, DIM},
    {"self_attn.v_proj.weight", LAYER(v), ALWAYS, KV_DIM, DIM},
    {"self_attn.o_proj.weight", LAYER(o), ALWAYS, DIM, Q_DIM},
    {"self_attn.q_proj.bias", LAYER(q_bias), WITH_ATTENTION_BIAS, Q_DIM, ONE},
    {"self_attn.k_proj.bias", LAYER(k_bias), WITH_ATTENTION_BIAS, KV_DIM, ONE},
    {"self_attn.v_proj.bias", LAYER(v_bias), WITH_ATTENTION_BIAS, KV_DIM, ONE},
    {"self_attn.o_proj.bias", LAYER(o_bias), WITH_ATTENTION_BIAS, DIM, ONE},
    {"self_attn.pope_delta", LAYER(pope_delta), WITH_POPE, N_KV_HEAD, HEAD_DIM},
    {"post_attention_layernorm.weight", LAYER(mlp_norm), ALWAYS, DIM, ONE},
    {"mlp.gate_proj.weight", LAYER(gate), WITH_GATE, FFN_DIM, DIM},
    {"mlp.up_proj.weight", LAYER(up), ALWAYS, FFN_DIM, DIM},
    {"mlp.down_proj.weight", LAYER(down), ALWAYS, DIM, FFN_DIM},
    {"mlp.gate_proj.bias", LAYER(gate_bias), WITH_GATE_AND_BIAS, FFN_DIM, ONE},
    {"mlp.up_proj.bias", LAYER(up_bias), WITH_MLP_BIAS, FFN_DIM, ONE},
    {"mlp.down_proj.bias", LAYER(down_bias), WITH_MLP_BIAS, DIM, ONE},
};

#define MODEL(field) offsetof(struct model, field)
static const struct slot model_slots[] = {
    {"model.embed_tokens.weight", MODEL(embed), ALWAYS, N_VOCAB, DIM},
    {"model.norm.weight", MODEL(norm), ALWAYS, DIM, ONE},
    {"lm_head.weight", MODEL(head), UNTIED, N_VOCAB, DIM},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool applies(const struct model_config *c, enum when when)
{
	switch (when) {
	case ALWAYS:
		return true;
	case WITH_POPE:
		return c->position.type == POSITION_POPE;
	case WITH_GATE:
		return c->mlp_gated;
	case WITH_ATTENTION_BIAS:
		return c->attention_bias;
	case WITH_MLP_BIAS:
		return c->mlp_bias;
	case WITH_GATE_AND_BIAS:
		return c->mlp_gated && c->mlp_bias;
	case UNTIED:
		return !c->tied;
	}
	return false;
}

/* What an unused tensor of this slot says about config.json. */
static const char *why_unused(enum when when)
{
	static const char *const why[] = {
	    [ALWAYS] = "num_hidden_layers is too small for it",
	    [WITH_POPE] = "position_embedding_type is not pope",
	    [WITH_GATE] = "mlp_gated is false",
	    [WITH_ATTENTION_BIAS] = "attention_bias is false",
	    [WITH_MLP_BIAS] = "mlp_bias is false",
	    [WITH_GATE_AND_BIAS] = "mlp_gated or mlp_bias is false",
	    [UNTIED] = "tie_word_embeddings is true",
	};

	return why[when];
}

static uint64_t extent_size(const struct model_config *c, enum extent x)
{
	switch (x) {
	case ONE:
		return 1;
	case DIM:
		return c->dim;
	case Q_DIM:
		return (uint64_t)c->n_head * c->head_dim;
	case KV_DIM:
		return (uint64_t)c->n_kv_head * c->head_dim;
	case FFN_DIM:
		return c->ffn_dim;
	case N_KV_HEAD:
		return c->n_kv_head;
	case HEAD_DIM:
		return c->head_dim;
	case N_VOCAB:
		return c->n_vocab;
	}
	return 0;
}

static const char *extent_name(enum extent x)
{
	static const char *const names[] = {
	    [ONE] = "1",
	    [DIM] = "hidden_size",
	    [Q_DIM] = "num_attention_heads*head_dim",
	    [KV_DIM] = "num_key_value_heads*head_dim",
	    [FFN_DIM] = "intermediate_size",
	    [N_KV_HEAD] = "num_key_value_heads",
	    [HEAD_DIM] = "head_dim",
	    [N_VOCAB] = "vocab_size",
	};

	return names[x];
}

/* -- tensor_map -------------------------------------------------------------------------------- */

/* `pattern` with its '*' replaced by the layer's number. */
static void expand(const char *pattern, uint32_t layer, char out[NAME_MAX_BYTES])
{
	const char *star = strchr(pattern, '*');

	if (star)
		snprintf(out, NAME_MAX_BYTES, "%.*s%u%s", (int)(star - pattern), pattern, layer, star + 1);
	else
		snprintf(out, NAME_MAX_BYTES, "%s", pattern);
}

static bool is_slot(const char *name, const struct slot *slots, size_t n, const struct slot **out)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(name, slots[i].name) != 0)
			continue;
		*out = &slots[i];
		return true;
	}
	return false;
}

/* The slot of one of the project's names; a layer is a number, or '*' in tensor_map. */
static bool find_slot(const char *name, const struct slot **out)
{
	const char *s;

	if (is_slot(name, model_slots, COUNT(model_slots), out))
		return true;
	if (strncmp(name, LAYER_PREFIX, sizeof LAYER_PREFIX - 1) != 0)
		return false;
	s = name + sizeof LAYER_PREFIX - 1;
	s += *s == '*' ? 1 : strspn(s, "0123456789");
	return *s == '.' && is_slot(s + 1, layer_slots, COUNT(layer_slots), out);
}

/* {"name in the files": "name here"}, '*' in both for a layer's number. */
static err_code check_map(const struct json *map, struct err *e)
{
	const struct slot *slot;

	if (map && !json_is_null(map) && !json_is_object(map))
		return err_set(e, ERR_INPUT, "config.json: tensor_map is %s, want an object", json_type_name(map));
	if (json_count(map) > MAP_MAX)
		return err_set(e, ERR_INPUT, "config.json: tensor_map has more than %d entries: use '*'", MAP_MAX);
	for (const struct json *j = json_first(map); j; j = json_next(j)) {
		const char *theirs = json_key(j), *ours = json_string(j);

		if (!ours || !find_slot(ours, &slot))
			return err_set(e, ERR_INPUT,
			               "config.json: tensor_map: '%.150s' is mapped to '%.150s', which is no "
			               "tensor of this family",
			               theirs, ours ? ours : json_type_name(j));
		if (strlen(theirs) >= NAME_MAX_BYTES - 16)
			return err_set(e, ERR_INPUT, "config.json: tensor_map: '%.50s...' is too long", theirs);
		if (!strchr(theirs, '*') != !strchr(ours, '*'))
			return err_set(e, ERR_INPUT, "config.json: tensor_map: '%.150s' and '%.150s' differ in '*'",
			               theirs, ours);
	}
	return ERR_OK;
}

/* The name that the files use for `name` of this layer. Two that map to it: refused. */
static err_code map_name(const struct json *map, const char *name, uint32_t layer, char out[NAME_MAX_BYTES],
                         struct err *e)
{
	char ours[NAME_MAX_BYTES];
	const char *found = NULL;

	for (const struct json *j = json_first(map); j; j = json_next(j)) {
		const char *pattern = json_string(j);

		if (strchr(pattern, '*')) {
			expand(pattern, layer, ours);
			pattern = ours;
		}
		if (strcmp(pattern, name) != 0)
			continue;
		if (found)
			return err_set(e, ERR_INPUT, "config.json: tensor_map: both '%.150s' and '%.150s' give '%s'",
			               found, json_key(j), name);
		found = json_key(j);
	}
	if (found)
		expand(found, layer, out);
	else
		snprintf(out, NAME_MAX_BYTES, "%s", name);
	return ERR_OK;
}

/* -- resolving --------------------------------------------------------------------------------- */

/* State of one model_open: which tensors of the files were used. */
struct resolver {
	struct model *m;
	const struct json *map;
	bool *used; /* [checkpoint_n_tensors] owned */
};

static err_code check_shape(const struct model_config *c, const struct slot *s, const struct tensor *t,
                            const char *name, struct err *e)
{
	uint64_t rows = extent_size(c, s->rows), cols = extent_size(c, s->cols);
	uint32_t n_dim = s->cols == ONE ? 1 : 2;

	if (t->n_dim == n_dim && t->shape[0] == rows && t->shape[1] == cols)
		return ERR_OK;
	if (n_dim == 1)
		return err_set(e, ERR_INPUT,
		               "tensor '%s' has %u dimensions, %" PRIu64 " x %" PRIu64 ", but %s is %" PRIu64, name,
		               t->n_dim, t->shape[0], t->shape[1], extent_name(s->rows), rows);
	return err_set(e, ERR_INPUT,
	               "tensor '%s' has shape [%" PRIu64 ", %" PRIu64 "], but %s is %" PRIu64 " and %s is %" PRIu64,
	               name, t->shape[0], t->shape[1], extent_name(s->rows), rows, extent_name(s->cols), cols);
}

static err_code resolve_slot(struct resolver *r, const struct slot *s, uint32_t layer, const char *name,
                             struct tensor *out, struct err *e)
{
	char file_name[NAME_MAX_BYTES];
	int64_t i;

	if (map_name(r->map, name, layer, file_name, e))
		return e->code;
	i = checkpoint_find(r->m->files, file_name);
	if (i < 0 && s->when == UNTIED)
		return err_set(e, ERR_NOT_FOUND, "tensor '%s' is absent, but tie_word_embeddings is false", file_name);
	if (i < 0)
		return err_set(e, ERR_NOT_FOUND, "tensor '%s' is absent", file_name);
	if (checkpoint_tensor(r->m->files, (size_t)i, out, e) || check_shape(&r->m->config, s, out, file_name, e))
		return e->code;
	r->used[i] = true;
	r->m->n_params += out->shape[0] * out->shape[1];
	return ERR_OK;
}

static err_code resolve_layer(struct resolver *r, uint32_t layer, struct err *e)
{
	char name[NAME_MAX_BYTES];

	for (size_t i = 0; i < COUNT(layer_slots); i++) {
		const struct slot *s = &layer_slots[i];
		struct tensor *t = (struct tensor *)((char *)&r->m->layers[layer] + s->offset);

		if (!applies(&r->m->config, s->when))
			continue;
		snprintf(name, sizeof name, LAYER_PREFIX "%u.%s", layer, s->name);
		if (resolve_slot(r, s, layer, name, t, e))
			return e->code;
	}
	return ERR_OK;
}

/* A tensor of ours that config.json does not call for means that the two disagree: the numbers would be wrong. A
 * foreign one (a buffer, a causal mask) is only said. */
static err_code check_unused(const struct resolver *r, struct err *e)
{
	const struct slot *s;
	size_t n_foreign = 0, foreign = 0;

	for (size_t i = 0; i < checkpoint_n_tensors(r->m->files); i++) {
		const char *name = checkpoint_tensor_name(r->m->files, i);

		if (r->used[i])
			continue;
		if (!find_slot(name, &s)) {
			foreign = n_foreign++ ? foreign : i;
		} else if (s->when == UNTIED) {
			log_warn("model '%s': tensor '%s' is not used: %s", r->m->name, name, why_unused(s->when));
		} else {
			return err_set(e, ERR_INPUT, "tensor '%.200s' is there, but %s", name, why_unused(s->when));
		}
	}
	if (n_foreign)
		log_warn("model '%s': %zu tensors are not used, the first is '%.200s'", r->m->name, n_foreign,
		         checkpoint_tensor_name(r->m->files, foreign));
	return ERR_OK;
}

static err_code resolve_tensors(struct model *m, struct err *e)
{
	struct resolver r = {.m = m, .map = json_get(m->raw_config, "tensor_map")};
	err_code rc = check_map(r.map, e);

	if (rc)
		return rc;
	r.used = mem_zalloc(checkpoint_n_tensors(m->files), sizeof *r.used, e);
	m->layers = mem_zalloc(m->config.n_layer, sizeof *m->layers, e);
	if (!r.used || !m->layers)
		rc = ERR_MEMORY;
	for (size_t i = 0; i < COUNT(model_slots) && !rc; i++) {
		const struct slot *s = &model_slots[i];

		if (applies(&m->config, s->when))
			rc = resolve_slot(&r, s, 0, s->name, (struct tensor *)((char *)m + s->offset), e);
	}
	for (uint32_t layer = 0; layer < m->config.n_layer && !rc; layer++)
		rc = resolve_layer(&r, layer, e);
	if (!rc)
		rc = check_unused(&r, e);
	if (m->config.tied)
		m->head = m->embed;
	free(r.used);
	return rc;
}

/* -- opening ----------------------------------------------------------------------------------- */

static err_code open_tokenizer(struct model *m, struct err *e)
{
	const struct checkpoint_file *f = checkpoint_add(m->files, "tokenizer.json", e);

	if (!f)
		return e->code == ERR_NOT_FOUND ? ERR_OK : e->code;
	if (tokenizer_open(f->path, &m->tokenizer, e))
		return e->code;
	if (tokenizer_n_vocab(m->tokenizer) > m->config.n_vocab)
		log_warn("model '%s': the tokenizer has ids up to %u, the model only %u rows", m->name,
		         tokenizer_n_vocab(m->tokenizer) - 1, m->config.n_vocab);
	return ERR_OK;
}

static err_code keep_override(struct model *m, const struct json *position, struct err *e)
{
	struct buf text = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&text);
	err_code rc;

	json_put_value(&w, NULL, position);
	rc = buf_check(&text, "position", e);
	if (!rc)
		m->override = buf_steal(&text);
	buf_release(&text);
	return rc;
}

static err_code open_parts(struct model *m, const char *dir, const struct json *position, struct err *e)
{
	struct model_config *c = &m->config;

	if (checkpoint_open(dir, &m->files, e) ||
	    checkpoint_read_json(m->files, "config.json", CONFIG_MAX_BYTES, &m->raw_config, e) ||
	    config_read(m->raw_config, c, e))
		return e->code;
	if (position && (position_override(&c->position, position, c->head_dim, e) || keep_override(m, position, e)))
		return e->code;
	c->n_ctx = c->position.max_ctx;
	if (checkpoint_map_weights(m->files, e) || resolve_tensors(m, e))
		return e->code;
	return open_tokenizer(m, e);
}

err_code model_open(const char *dir, const struct json *position, struct model **out, struct err *e)
{
	struct model *m = mem_zalloc(1, sizeof *m, e);

	if (!m)
		return e->code;
	m->path = mem_strdup(dir, e);
	m->name = m->path ? path_name(dir, e) : NULL;
	if (!m->name || open_parts(m, dir, position, e)) {
		err_wrap(e, "model '%.200s'", m->name ? m->name : dir);
		model_free(m);
		return e->code;
	}
	*out = m;
	return ERR_OK;
}

void model_free(struct model *m)
{
	if (!m)
		return;
	tokenizer_free(m->tokenizer);
	json_free(m->raw_config);
	free(m->override);
	checkpoint_free(m->files);
	free(m->layers);
	free(m->path);
	free(m->name);
	free(m);
}

/* -- fingerprint and description --------------------------------------------------------------- */

static bool is_tokenizer(const struct checkpoint_file *f)
{
	return !strcmp(f->name, "tokenizer.json");
}

/* The fingerprint of the opened files that are (or are not) the tokenizer's. */
static err_code hash_files(const struct model *m, bool tokenizer, char out[FINGERPRINT_LEN], struct err *e)
{
	size_t n_files = checkpoint_n_files(m->files), n = 0;
	const char **paths = mem_alloc(2 * n_files, sizeof *paths, e);
	err_code rc;

	if (!paths)
		return e->code;
	for (size_t i = 0; i < n_files; i++) {
		const struct checkpoint_file *f = checkpoint_file(m->files, i);

		if (is_tokenizer(f) != tokenizer)
			continue;
		paths[n] = f->path;
		paths[n_files + n++] = f->name;
	}
	rc = fingerprint_files(paths, paths + n_files, n, out, e);
	free(paths);
	return rc;
}

/* An override that changes nothing leaves the fingerprint alone. Otherwise it is the sha256 of two lines: the files'
 * fingerprint, and "position " with the resolved settings. */
static err_code mix_position(const struct model *m, char fingerprint[FINGERPRINT_LEN], struct err *e)
{
	struct buf lines = BUF_INIT(1 << 16), own = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&own);
	struct position p;
	char hex[SHA256_HEX];
	size_t head;
	err_code rc = position_from_config(m->raw_config, m->config.head_dim, &p, e);

	if (rc)
		return rc;
	position_write(&p, &w, NULL);
	buf_printf(&lines, "%s\nposition ", fingerprint);
	head = lines.len;
	w = JSON_WRITER(&lines);
	position_write(&m->config.position, &w, NULL);
	rc = buf_check(&lines, "position", e);
	if (!rc && strcmp(buf_str(&lines) + head, buf_str(&own)) != 0) {
		buf_putc(&lines, '\n');
		sha256_hex(buf_str(&lines), lines.len, hex);
		snprintf(fingerprint, FINGERPRINT_LEN, "sha256:%s", hex);
	}
	buf_release(&lines);
	buf_release(&own);
	return rc;
}

err_code model_fingerprint(struct model *m, struct err *e)
{
	char model[FINGERPRINT_LEN], tokenizer[FINGERPRINT_LEN] = "";

	if (hash_files(m, false, model, e) || (m->tokenizer && hash_files(m, true, tokenizer, e)) ||
	    checkpoint_check(m->files, e) || /* after hashing: these are the bytes that were opened */
	    mix_position(m, model, e))
		return err_wrap(e, "model '%.200s'", m->name);
	memcpy(m->fingerprint, model, sizeof model);
	memcpy(m->tokenizer_fingerprint, tokenizer, sizeof tokenizer);
	return ERR_OK;
}

err_code model_unchanged(const struct model *m, struct err *e)
{
	return checkpoint_check(m->files, e);
}

/* The fewest digits that give the same float back: 1e-05, not 9.9999997473787516e-06. */
static void put_float(struct json_writer *w, const char *key, float v)
{
	char text[32];
	int digits = 6;

	do
		snprintf(text, sizeof text, "%.*g", digits, (double)v);
	while (strtof(text, NULL) != v && ++digits < 10);
	json_put_raw(w, key, text);
}

/* The dtype of the attention's weights stands for the model. */
static void describe_config(const struct model *m, struct json_writer *w)
{
	const struct model_config *c = &m->config;

	json_put_string(w, "family", c->family);
	json_put_uint(w, "n_params", m->n_params);
	json_put_string(w, "dtype", dtype_name(m->layers[0].q.dtype));
	json_put_uint(w, "n_layer", c->n_layer);
	json_put_uint(w, "n_head", c->n_head);
	json_put_uint(w, "n_kv_head", c->n_kv_head);
	json_put_uint(w, "head_dim", c->head_dim);
	json_put_uint(w, "dim", c->dim);
	json_put_uint(w, "ffn_dim", c->ffn_dim);
	json_put_uint(w, "n_vocab", c->n_vocab);
	json_put_uint(w, "n_ctx", c->n_ctx);
	json_put_string(w, "activation", activation_name(c->act));
	json_put_bool(w, "mlp_gated", c->mlp_gated);
	json_put_bool(w, "tied", c->tied);
	json_put_bool(w, "attention_bias", c->attention_bias);
	json_put_bool(w, "mlp_bias", c->mlp_bias);
	put_float(w, "rms_norm_eps", c->rms_eps);
	put_float(w, "attention_scale", c->attention_scale);
	position_write(&c->position, w, "position");
}

static void put_token(struct json_writer *w, const char *key, int64_t id)
{
	if (id < 0)
		json_put_null(w, key);
	else
		json_put_int(w, key, id);
}

static void put_fingerprint(struct json_writer *w, const char *fingerprint)
{
	json_put_string(w, "fingerprint", *fingerprint ? fingerprint : NULL);
}

void model_describe(const struct model *m, struct json_writer *w, const char *key)
{
	uint64_t bytes = 0;

	json_begin_object(w, key);
	json_put_string(w, "name", m->name);
	put_fingerprint(w, m->fingerprint);
	describe_config(m, w);
	put_token(w, "bos_token_id", m->config.bos);
	put_token(w, "eos_token_id", m->config.eos);
	if (m->tokenizer) {
		json_begin_object(w, "tokenizer");
		json_put_uint(w, "n_vocab", tokenizer_n_vocab(m->tokenizer));
		json_put_bool(w, "adds_bos", tokenizer_adds_bos(m->tokenizer));
		put_fingerprint(w, m->tokenizer_fingerprint);
		json_end_object(w);
	} else {
		json_put_null(w, "tokenizer");
	}
	json_begin_array(w, "files");
	for (size_t i = 0; i < checkpoint_n_files(m->files); i++) {
		const struct checkpoint_file *f = checkpoint_file(m->files, i);

		json_begin_object(w, NULL);
		json_put_string(w, "name", f->name);
		json_put_uint(w, "bytes", (uint64_t)f->st.st_size);
		json_end_object(w);
		bytes += (uint64_t)f->st.st_size;
	}
	json_end_array(w);
	json_put_uint(w, "bytes", bytes);
	json_end_object(w);
}

void model_drop_pages(const struct model *m)
{
	checkpoint_drop_pages(m->files);
}
