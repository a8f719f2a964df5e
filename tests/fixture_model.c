/* See fixture_model.h. */
#include "tests/fixture_model.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/utf8.h"
#include "tests/fixture.h"

const struct fixture_model FIXTURE_MODEL_DEFAULT = {
    .position = "rope",
    .hidden_act = "gelu_pytorch_tanh",
    .n_layer = 2,
    .n_head = 4,
    .n_kv_head = 2,
    .head_dim = 8,
    .dim = 32,
    .ffn_dim = 64,
    .n_vocab = 97,
    .n_ctx = 64,
    .tied = true,
    .dtype = DTYPE_F32,
    .n_shards = 1,
    .seed = 1,
};

#define MAX_TENSORS 1024
#define MAX_BYTES   ((size_t)1 << 30)

/* -- values ------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x) /* splitmix64's finalizer */
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Uniform in [0, 1), 24 bits. */
static float uniform(uint64_t seed, const char *name, uint64_t i)
{
	uint64_t h = mix(seed + UINT64_C(0x9e3779b97f4a7c15));

	for (; *name; name++)
		h = mix(h ^ (unsigned char)*name);
	return (float)(mix(h + i * UINT64_C(0x9e3779b97f4a7c15)) >> 40) * 0x1p-24f;
}

static uint16_t round_bf16(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof bits);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Round to nearest even; |v| < 65504 here. */
static uint16_t round_f16(float v)
{
	float a = fabsf(v), unit;
	int exponent;

	if (a < 0x1p-14f) /* subnormal: units of 2^-24 */
		return (uint16_t)((signbit(v) ? 0x8000 : 0) | (unsigned)lrintf(a * 0x1p24f));
	frexpf(a, &exponent); /* a = m 2^exponent, m in [.5, 1) */
	unit = lrintf(ldexpf(a, 11 - exponent)) - 1024.f;
	return (uint16_t)((signbit(v) ? 0x8000 : 0) + (((unsigned)(exponent + 14) << 10) + (unsigned)unit));
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Before rounding. Magnitudes as in trained models: norms near 1, a linear layer keeps the scale of its input, and
 * logits have a standard deviation of about 2. delta reaches past both ends of [-2 pi, 0], so that a missing clamp
 * shows. */
static float raw_value(const struct fixture_model *m, const char *name, uint64_t i)
{
	float u = 2 * uniform(m->seed, name, i) - 1; /* [-1, 1), standard deviation 3^-1/2 */

	if (ends_with(name, "norm.weight"))
		return 1 + .25f * u;
	if (ends_with(name, "pope_delta"))
		return -3.2f + 4 * u;
	if (ends_with(name, ".bias"))
		return .2f * u;
	if (ends_with(name, "down_proj.weight"))
		return u * sqrtf(3.f / (float)m->ffn_dim);
	if (ends_with(name, "o_proj.weight"))
		return u * sqrtf(3.f / (float)(m->n_head * m->head_dim));
	if (!strncmp(name, "model.layers", 12))
		return u * sqrtf(3.f / (float)m->dim);
	return 2 * u * sqrtf(3.f / (float)m->dim);
}

static enum dtype dtype_of(const struct fixture_model *m, const char *name)
{
	return ends_with(name, "pope_delta") ? DTYPE_F32 : m->dtype;
}

static void put_value(const struct fixture_model *m, const char *name, uint64_t i, unsigned char *out)
{
	float v = raw_value(m, name, i);
	uint16_t half;

	if (dtype_of(m, name) == DTYPE_F32) {
		memcpy(out, &v, sizeof v);
		return;
	}
	half = dtype_of(m, name) == DTYPE_F16 ? round_f16(v) : round_bf16(v);
	memcpy(out, &half, sizeof half);
}

float fixture_model_value(const struct fixture_model *m, const char *tensor, uint64_t i)
{
	unsigned char bytes[4];
	struct tensor t = {.data = bytes, .dtype = dtype_of(m, tensor), .n_dim = 1, .shape = {1, 1}};
	float v;

	put_value(m, tensor, i, bytes);
	tensor_to_f32(&t, 0, 1, &v);
	return v;
}

/* -- tensors ----------------------------------------------------------------------------------- */

struct spec {
	char name[128];
	uint64_t rows, cols; /* cols 0: a vector */
};

struct specs {
	struct spec at[MAX_TENSORS];
	size_t n;
};

static void add(struct specs *s, uint64_t rows, uint64_t cols, const char *fmt, int layer, const char *rest)
{
	struct spec *t = &s->at[s->n++];

	ck_assert_uint_le(s->n, MAX_TENSORS);
	if (layer < 0)
		snprintf(t->name, sizeof t->name, "%s", rest);
	else
		snprintf(t->name, sizeof t->name, "model.layers.%d.%s%s", layer, fmt, rest);
	t->rows = rows;
	t->cols = cols;
}

static void add_linear(struct specs *s, uint64_t out, uint64_t in, bool bias, int layer, const char *name)
{
	add(s, out, in, name, layer, ".weight");
	if (bias)
		add(s, out, 0, name, layer, ".bias");
}

static void list_tensors(const struct fixture_model *m, struct specs *s)
{
	uint64_t q = (uint64_t)m->n_head * m->head_dim, kv = (uint64_t)m->n_kv_head * m->head_dim;

	s->n = 0;
	add(s, m->n_vocab, m->dim, "", -1, "model.embed_tokens.weight");
	for (int i = 0; i < (int)m->n_layer; i++) {
		add(s, m->dim, 0, "", i, "input_layernorm.weight");
		add_linear(s, q, m->dim, m->attention_bias, i, "self_attn.q_proj");
		add_linear(s, kv, m->dim, m->attention_bias, i, "self_attn.k_proj");
		add_linear(s, kv, m->dim, m->attention_bias, i, "self_attn.v_proj");
		add_linear(s, m->dim, q, m->attention_bias, i, "self_attn.o_proj");
		if (!strcmp(m->position, "pope"))
			add(s, m->n_kv_head, m->head_dim, "", i, "self_attn.pope_delta");
		add(s, m->dim, 0, "", i, "post_attention_layernorm.weight");
		if (m->mlp_gated)
			add_linear(s, m->ffn_dim, m->dim, m->mlp_bias, i, "mlp.gate_proj");
		add_linear(s, m->ffn_dim, m->dim, m->mlp_bias, i, "mlp.up_proj");
		add_linear(s, m->dim, m->ffn_dim, m->mlp_bias, i, "mlp.down_proj");
	}
	add(s, m->dim, 0, "", -1, "model.norm.weight");
	if (!m->tied)
		add(s, m->n_vocab, m->dim, "", -1, "lm_head.weight");
}

static uint64_t spec_count(const struct spec *t)
{
	return t->rows * (t->cols ? t->cols : 1);
}

/* -- files ------------------------------------------------------------------------------------- */

void fixture_read(const char *dir, const char *name, struct buf *out)
{
	char path[PATH_MAX];
	struct err e;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	ck_ok(buf_read_file(out, path, &e), &e);
}

void fixture_edit(const char *dir, const char *name, const char *from, const char *to)
{
	struct buf old = BUF_INIT(MAX_BYTES), new = BUF_INIT(MAX_BYTES);
	const char *s, *end, *at;

	fixture_read(dir, name, &old);
	s = old.data;
	end = old.data + old.len;
	while ((at = memmem(s, (size_t)(end - s), from, strlen(from)))) {
		buf_append(&new, s, (size_t)(at - s));
		buf_puts(&new, to);
		s = at + strlen(from);
	}
	ck_assert_msg(s != old.data, "'%s' is not in %s", from, name);
	buf_append(&new, s, (size_t)(end - s));
	fixture_write(dir, name, buf_str(&new), new.len);
	buf_release(&old);
	buf_release(&new);
}

void fixture_safetensors_write(const char *dir, const char *name, const char *header, const void *data, size_t len)
{
	struct buf file = BUF_INIT(MAX_BYTES);
	uint64_t n = strlen(header);

	buf_append(&file, &n, sizeof n);
	buf_puts(&file, header);
	for (size_t i = 0; i < len && !data; i++)
		buf_putc(&file, 0);
	if (data)
		buf_append(&file, data, len);
	ck_assert(!file.failed);
	fixture_write(dir, name, file.data, file.len);
	buf_release(&file);
}

static void write_shard(const char *dir, const char *name, const struct fixture_model *m, const struct spec *t,
                        size_t n)
{
	static const char *const names[] = {[DTYPE_F32] = "F32", [DTYPE_F16] = "F16", [DTYPE_BF16] = "BF16"};
	struct buf header = BUF_INIT(MAX_BYTES), data = BUF_INIT(MAX_BYTES);
	unsigned char bytes[4];

	buf_puts(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (const struct spec *end = t + n; t < end; t++) {
		enum dtype dtype = dtype_of(m, t->name);
		size_t begin = data.len;

		for (uint64_t i = 0; i < spec_count(t); i++) {
			put_value(m, t->name, i, bytes);
			buf_append(&data, bytes, dtype_size(dtype));
		}
		buf_printf(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, t->name, names[dtype], t->rows);
		if (t->cols)
			buf_printf(&header, ",%" PRIu64, t->cols);
		buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", begin, data.len);
	}
	buf_putc(&header, '}');
	while (header.len % 8)
		buf_putc(&header, ' ');
	ck_assert(!header.failed && !data.failed);
	fixture_safetensors_write(dir, name, header.data, buf_str(&data), data.len);
	buf_release(&header);
	buf_release(&data);
}

static void write_weights(const char *dir, const struct fixture_model *m)
{
	static struct specs s;
	struct buf index = BUF_INIT(MAX_BYTES);
	char name[64];

	list_tensors(m, &s);
	if (m->n_shards <= 1) {
		write_shard(dir, "model.safetensors", m, s.at, s.n);
		return;
	}
	buf_puts(&index, "{\"metadata\":{},\"weight_map\":{");
	for (uint32_t k = 0; k < m->n_shards; k++) {
		size_t first = s.n * k / m->n_shards, last = s.n * (k + 1) / m->n_shards;

		snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", k + 1, m->n_shards);
		write_shard(dir, name, m, s.at + first, last - first);
		for (size_t i = first; i < last; i++)
			buf_printf(&index, "%s\"%s\":\"%s\"", i ? "," : "", s.at[i].name, name);
	}
	buf_puts(&index, "}}");
	fixture_write(dir, "model.safetensors.index.json", index.data, index.len);
	buf_release(&index);
}

static const char *boolean(bool b)
{
	return b ? "true" : "false";
}

static void write_config(const char *dir, const struct fixture_model *m)
{
	struct buf c = BUF_INIT(1 << 16);

	buf_printf(&c,
	           "{\"architectures\":[\"PopeForCausalLM\"],\"model_type\":\"pope\","
	           "\"position_embedding_type\":\"%s\",\"hidden_size\":%u,\"num_hidden_layers\":%u,"
	           "\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"head_dim\":%u,"
	           "\"intermediate_size\":%u,\"hidden_act\":\"%s\",\"mlp_gated\":%s,",
	           m->position, m->dim, m->n_layer, m->n_head, m->n_kv_head, m->head_dim, m->ffn_dim, m->hidden_act,
	           boolean(m->mlp_gated));
	buf_printf(&c,
	           "\"rms_norm_eps\":1e-5,\"vocab_size\":%u,\"max_position_embeddings\":%u,"
	           "\"rope_theta\":10000.0,\"rope_scaling\":%s,\"tie_word_embeddings\":%s,"
	           "\"attention_bias\":%s,\"mlp_bias\":%s,\"bos_token_id\":null,\"eos_token_id\":%d",
	           m->n_vocab, m->n_ctx, m->rope_scaling ? m->rope_scaling : "null", boolean(m->tied),
	           boolean(m->attention_bias), boolean(m->mlp_bias), m->tokenizer ? 256 : 0);
	if (m->extra_config)
		buf_printf(&c, ",%s", m->extra_config);
	buf_puts(&c, "}\n");
	ck_assert(!c.failed);
	fixture_write(dir, "config.json", c.data, c.len);
	buf_release(&c);
}

/* Byte-level BPE without merges. GPT-2 writes a byte as a printable character: itself if it is one, else from U+0100 up
 * in order. */
static void write_tokenizer(const char *dir)
{
	struct buf t = BUF_INIT(1 << 20);
	uint32_t next = 256;

	buf_puts(&t, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":256,"
	             "\"content\":\"<|endoftext|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
	             "\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
	             "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
	             "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
	             "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
	             "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
	             "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{");
	for (uint32_t byte = 0; byte < 256; byte++) {
		bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);

		buf_puts(&t, byte ? ",\"" : "\"");
		if (byte == '"' || byte == '\\')
			buf_putc(&t, '\\');
		utf8_put(&t, printable ? byte : next++);
		buf_printf(&t, "\":%u", byte);
	}
	buf_puts(&t, "},\"merges\":[]}}\n");
	ck_assert(!t.failed);
	fixture_write(dir, "tokenizer.json", t.data, t.len);
	buf_release(&t);
}

void fixture_model_write(const char *dir, const struct fixture_model *m)
{
	struct fixture_model copy = *m;

	if (copy.tokenizer && copy.n_vocab < 257)
		copy.n_vocab = 257;
	write_config(dir, &copy);
	write_weights(dir, &copy);
	if (copy.tokenizer)
		write_tokenizer(dir);
}

/* -- opening ------------------------------------------------------------------------------------- */

struct model *fixture_model_open(const char *dir, const char *override)
{
	struct json *position = NULL;
	struct model *m;
	struct err e;

	if (override)
		ck_ok(json_parse(override, strlen(override), &position, &e), &e);
	ck_ok(model_open(dir, position, &m, &e), &e);
	json_free(position);
	return m;
}

struct model *fixture_model_make(const struct fixture_model *m)
{
	static const char *base;
	static int n_models;
	char dir[PATH_MAX];

	if (!base)
		base = fixture_tmpdir();
	snprintf(dir, sizeof dir, "%s/%d", base, n_models++);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	fixture_model_write(dir, m);
	return fixture_model_open(dir, NULL);
}

void fixture_model_refused(const char *dir, err_code code, const char *words)
{
	struct model *m = NULL;
	struct err e;

	ck_err(model_open(dir, NULL, &m, &e), code, words, &e);
	ck_assert_ptr_null(m);
}

const char *fixture_model_log(const char *dir)
{
	static char text[4000];
	FILE *f = tmpfile();
	int old = dup(2);
	size_t n;

	ck_assert_ptr_nonnull(f);
	dup2(fileno(f), 2);
	model_free(fixture_model_open(dir, NULL));
	dup2(old, 2);
	close(old);
	rewind(f);
	n = fread(text, 1, sizeof text - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}
