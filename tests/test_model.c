/* Models: every kind of checkpoint of the project's family opens to the tensors that were written; heads, overrides,
 * fingerprints, descriptions. What is refused: test_config.c. */
#include <check.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/buf.h"
#include "engine/model.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static const char *dir;

static void make_dir(void)
{
	dir = fixture_tmpdir();
}

/* Below the temporary folder, which stays dir's parent. */
static void make_subdir(int i)
{
	static char path[PATH_MAX], root[PATH_MAX - 16];

	if (!*root)
		snprintf(root, sizeof root, "%s", dir);
	snprintf(path, sizeof path, "%s/%d", root, i);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	dir = path;
}

static void write_text(const char *name, const char *text)
{
	fixture_write(dir, name, text, strlen(text));
}

/* -- good checkpoints -------------------------------------------------------------------------- */

static void check_tensor(const struct fixture_model *m, const struct tensor *t, const char *name, uint64_t rows,
                         uint64_t cols)
{
	uint64_t n = rows * (cols ? cols : 1), at[] = {0, n / 3, n - 1};
	float v;

	ck_assert_msg(t->data != NULL, "%s is absent", name);
	ck_assert_uint_eq(t->n_dim, cols ? 2 : 1);
	ck_assert_uint_eq(t->shape[0], rows);
	ck_assert_uint_eq(t->shape[1], cols ? cols : 1);
	for (int i = 0; i < 3; i++) {
		tensor_to_f32(t, at[i], 1, &v);
		ck_assert_msg(v == fixture_model_value(m, name, at[i]), "%s[%" PRIu64 "] is %.9g", name, at[i],
		              (double)v);
	}
}

static void check_layer(const struct fixture_model *f, const struct layer_weights *l, int i)
{
	uint64_t q = (uint64_t)f->n_head * f->head_dim, kv = (uint64_t)f->n_kv_head * f->head_dim;
	const struct {
		const struct tensor *t;
		const char *name;
		bool there;
		uint64_t rows, cols;
	} rows[] = {
	    {&l->attn_norm, "input_layernorm.weight", true, f->dim, 0},
	    {&l->q, "self_attn.q_proj.weight", true, q, f->dim},
	    {&l->k, "self_attn.k_proj.weight", true, kv, f->dim},
	    {&l->v, "self_attn.v_proj.weight", true, kv, f->dim},
	    {&l->o, "self_attn.o_proj.weight", true, f->dim, q},
	    {&l->q_bias, "self_attn.q_proj.bias", f->attention_bias, q, 0},
	    {&l->k_bias, "self_attn.k_proj.bias", f->attention_bias, kv, 0},
	    {&l->v_bias, "self_attn.v_proj.bias", f->attention_bias, kv, 0},
	    {&l->o_bias, "self_attn.o_proj.bias", f->attention_bias, f->dim, 0},
	    {&l->pope_delta, "self_attn.pope_delta", !strcmp(f->position, "pope"), f->n_kv_head, f->head_dim},
	    {&l->mlp_norm, "post_attention_layernorm.weight", true, f->dim, 0},
	    {&l->gate, "mlp.gate_proj.weight", f->mlp_gated, f->ffn_dim, f->dim},
	    {&l->up, "mlp.up_proj.weight", true, f->ffn_dim, f->dim},
	    {&l->down, "mlp.down_proj.weight", true, f->dim, f->ffn_dim},
	    {&l->gate_bias, "mlp.gate_proj.bias", f->mlp_gated && f->mlp_bias, f->ffn_dim, 0},
	    {&l->up_bias, "mlp.up_proj.bias", f->mlp_bias, f->ffn_dim, 0},
	    {&l->down_bias, "mlp.down_proj.bias", f->mlp_bias, f->dim, 0},
	};
	char name[128];

	for (size_t k = 0; k < COUNT(rows); k++) {
		snprintf(name, sizeof name, "model.layers.%d.%s", i, rows[k].name);
		if (rows[k].there)
			check_tensor(f, rows[k].t, name, rows[k].rows, rows[k].cols);
		else
			ck_assert_msg(rows[k].t->data == NULL, "%s is there", name);
	}
}

static uint64_t count_params(const struct fixture_model *f)
{
	uint64_t q = (uint64_t)f->n_head * f->head_dim, kv = (uint64_t)f->n_kv_head * f->head_dim;
	uint64_t mlp = (f->mlp_gated ? 3 : 2) * (uint64_t)f->ffn_dim * f->dim;
	uint64_t layer = 2 * f->dim + 2 * (q + kv) * f->dim + mlp;

	layer += f->attention_bias ? q + 2 * kv + f->dim : 0;
	layer += f->mlp_bias ? f->dim + (f->mlp_gated ? 2 : 1) * f->ffn_dim : 0;
	layer += strcmp(f->position, "pope") ? 0 : kv;
	return f->n_layer * layer + f->dim + (f->tied ? 1 : 2) * (uint64_t)f->n_vocab * f->dim;
}

START_TEST(every_kind_of_checkpoint_opens)
{
	for (int i = 0; i < 128; i++) { /* all on/off combinations; dtype and shards vary along */
		struct fixture_model f = FIXTURE_MODEL_DEFAULT;
		struct model *m;

		f.tied = i & 1;
		f.mlp_gated = i & 2;
		f.attention_bias = i & 4;
		f.mlp_bias = i & 8;
		f.position = i & 16 ? "pope" : "rope";
		f.n_kv_head = i & 32 ? 4 : 1;
		f.hidden_act = i & 64 ? "silu" : "gelu_new";
		f.dtype = (enum dtype)(i % 3);
		f.n_shards = 1 + (uint32_t)i % 4;
		f.n_layer = 1 + (uint32_t)i % 3;
		f.seed = (uint64_t)i;
		make_subdir(i);
		fixture_model_write(dir, &f);
		m = fixture_model_open(dir, NULL);
		ck_assert_uint_eq(m->n_params, count_params(&f));
		ck_assert_int_eq(m->config.act, i & 64 ? ACT_SILU : ACT_GELU_TANH);
		ck_assert_uint_eq(m->config.n_kv_head, f.n_kv_head);
		ck_assert(m->config.tied == f.tied && m->config.mlp_gated == f.mlp_gated);
		check_tensor(&f, &m->embed, "model.embed_tokens.weight", f.n_vocab, f.dim);
		check_tensor(&f, &m->norm, "model.norm.weight", f.dim, 0);
		check_tensor(&f, &m->head, f.tied ? "model.embed_tokens.weight" : "lm_head.weight", f.n_vocab, f.dim);
		for (uint32_t l = 0; l < f.n_layer; l++)
			check_layer(&f, &m->layers[l], (int)l);
		ck_assert_ptr_null(m->tokenizer);
		model_drop_pages(m);
		model_free(m);
	}
}
END_TEST

START_TEST(what_is_left_out_of_config_json_is_resolved)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m;

	f.n_kv_head = f.n_head;
	fixture_model_write(dir, &f);
	m = fixture_model_open(dir, NULL);
	ck_assert(m->config.attention_scale == (float)(1 / sqrt(8)));
	ck_assert(m->config.rms_eps == 1e-5f && m->config.bos == -1 && m->config.eos == 0);
	ck_assert_str_eq(m->config.family, "PopeForCausalLM");
	model_free(m);

	fixture_edit(dir, "config.json", "\"num_key_value_heads\":4,\"head_dim\":8,", "\"attention_scale\":0.5,");
	fixture_edit(dir, "config.json", "\"mlp_gated\":false,", "");
	fixture_edit(dir, "config.json", "\"bos_token_id\":null", "\"bos_token_id\":96");
	fixture_edit(dir, "config.json", "\"model_type\":\"pope\",", "");
	m = fixture_model_open(dir, NULL);
	ck_assert_uint_eq(m->config.n_kv_head, 4);
	ck_assert_uint_eq(m->config.head_dim, 8);
	ck_assert(m->config.attention_scale == .5f);
	ck_assert_int_eq(m->config.bos, 96);
	ck_assert_uint_eq(m->config.n_ctx, 64);
	model_free(m);
}
END_TEST

START_TEST(activations_are_mapped_by_name)
{
	static const struct {
		const char *name;
		enum activation act;
	} rows[] = {{"gelu_pytorch_tanh", ACT_GELU_TANH},
	            {"gelu_new", ACT_GELU_TANH},
	            {"gelu", ACT_GELU},
	            {"silu", ACT_SILU},
	            {"swish", ACT_SILU},
	            {"relu", ACT_RELU}};
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m;

	for (size_t i = 0; i < COUNT(rows); i++) {
		f.hidden_act = rows[i].name;
		fixture_model_write(dir, &f);
		m = fixture_model_open(dir, NULL);
		ck_assert_int_eq(m->config.act, rows[i].act);
		model_free(m);
	}
}
END_TEST

START_TEST(a_model_is_named_after_its_directory)
{
	char path[PATH_MAX], link[PATH_MAX + 16];
	struct model *m;
	struct err e;

	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	snprintf(path, sizeof path, "%s//", dir);
	ck_ok(model_open(path, NULL, &m, &e), &e);
	ck_assert_str_eq(m->name, strrchr(dir, '/') + 1);
	ck_assert_str_eq(m->path, path);
	model_free(m);
	ck_assert_int_eq(chdir(dir), 0);
	ck_ok(model_open(".", NULL, &m, &e), &e);
	ck_assert_str_eq(m->name, strrchr(dir, '/') + 1);
	model_free(m);
	snprintf(link, sizeof link, "%s/nice-name", dir);
	ck_assert_int_eq(symlink(path, link), 0);
	ck_ok(model_open(link, NULL, &m, &e), &e);
	ck_assert_str_eq(m->name, "nice-name");
	model_free(m);
}
END_TEST

/* -- the head ---------------------------------------------------------------------------------- */

START_TEST(a_tied_model_ignores_a_stored_head_and_says_so)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m;

	f.tied = false;
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true");
	m = fixture_model_open(dir, NULL);
	ck_assert_ptr_eq(m->head.data, m->embed.data);
	f.tied = true;
	ck_assert_uint_eq(m->n_params, count_params(&f));
	model_free(m);
	ck_assert_ptr_nonnull(
	    strstr(fixture_model_log(dir), "'lm_head.weight' is not used: tie_word_embeddings is true"));
}
END_TEST

START_TEST(an_untied_model_without_head_is_refused)
{
	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	fixture_edit(dir, "config.json", "\"tie_word_embeddings\":true", "\"tie_word_embeddings\":false");
	fixture_model_refused(dir, ERR_NOT_FOUND,
	                      "tensor 'lm_head.weight' is absent, but tie_word_embeddings is false");
}
END_TEST

/* -- tensor_map -------------------------------------------------------------------------------- */

START_TEST(tensor_map_renames_a_foreign_checkpoint)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m;

	f.extra_config =
	    "\"tensor_map\":{\"xxxxxxxxxxxxx*.self_attn.q_proj.weight\":\"model.layers.*.self_attn.q_proj.weight\","
	    "\"xxxxxxxxxxxxx0.mlp.up_proj.weight\":\"model.layers.0.mlp.up_proj.weight\","
	    "\"xxxxxxxxxxxxx1.mlp.up_proj.weight\":\"model.layers.1.mlp.up_proj.weight\","
	    "\"model.wte01_tokens.weight\":\"model.embed_tokens.weight\"}";
	fixture_model_write(dir, &f);
	for (int i = 0; i < 2; i++) {
		char from[100], to[100];

		snprintf(from, sizeof from, "model.layers.%d.self_attn.q_proj.weight", i);
		snprintf(to, sizeof to, "xxxxxxxxxxxxx%d.self_attn.q_proj.weight", i);
		fixture_edit(dir, "model.safetensors", from, to);
		snprintf(from, sizeof from, "model.layers.%d.mlp.up_proj.weight", i);
		snprintf(to, sizeof to, "xxxxxxxxxxxxx%d.mlp.up_proj.weight", i);
		fixture_edit(dir, "model.safetensors", from, to);
	}
	fixture_edit(dir, "model.safetensors", "model.embed_tokens.weight", "model.wte01_tokens.weight");
	m = fixture_model_open(dir, NULL);
	check_tensor(&f, &m->embed, "model.embed_tokens.weight", f.n_vocab, f.dim);
	for (int i = 0; i < 2; i++)
		check_layer(&f, &m->layers[i], i);
	model_free(m);
	fixture_edit(dir, "model.safetensors", "xxxxxxxxxxxxx1.self_attn.q", "xxxxxxxxxxxxx1.self_attn.Q");
	fixture_model_refused(dir, ERR_NOT_FOUND, "tensor 'xxxxxxxxxxxxx1.self_attn.q_proj.weight' is absent");
}
END_TEST

/* -- positions, tokenizer ---------------------------------------------------------------------- */

START_TEST(an_override_reaches_position_and_context)
{
	struct json *position = NULL;
	const char *bad = "{\"type\": \"yarn\", \"factor\": 0}";
	struct model *m;
	struct err e;

	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	m = fixture_model_open(dir, "{\"type\": \"yarn\", \"factor\": 4}");
	ck_assert_int_eq(m->config.position.scaling, SCALING_YARN);
	ck_assert_uint_eq(m->config.position.original_ctx, 64);
	ck_assert_uint_eq(m->config.n_ctx, 256);
	model_free(m);
	ck_ok(json_parse(bad, strlen(bad), &position, &e), &e);
	ck_err(model_open(dir, position, &m, &e), ERR_INPUT, "factor is 0", &e);
	ck_assert_str_eq(e.pointer, "/factor");
	json_free(position);
}
END_TEST

START_TEST(a_broken_tokenizer_is_an_error_and_an_absent_one_is_not)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m;

	f.tokenizer = true;
	fixture_model_write(dir, &f);
	m = fixture_model_open(dir, NULL);
	ck_assert_ptr_nonnull(m->tokenizer);
	ck_assert_uint_eq(tokenizer_n_vocab(m->tokenizer), 257);
	ck_assert_uint_eq(m->config.n_vocab, 257);
	ck_assert_int_eq(m->config.eos, 256);
	model_free(m);
	write_text("tokenizer.json", "{\"model\": 3}");
	fixture_model_refused(dir, ERR_INPUT, "tokenizer");
	f.n_vocab = 300;
	fixture_model_write(dir, &f); /* rows beyond the tokenizer's ids: padded, no matter */
	ck_assert_str_eq(fixture_model_log(dir), "");
}
END_TEST

/* -- fingerprint and description --------------------------------------------------------------- */

START_TEST(the_fingerprint_is_that_of_the_files_and_the_override)
{
	char lines[1000], hex[SHA256_HEX], want[FINGERPRINT_LEN], base[FINGERPRINT_LEN];
	struct buf config = BUF_INIT(1 << 20), weights = BUF_INIT(1 << 20);
	struct model *m;
	struct err e;
	int n;

	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	write_text("README.md", "not part of it");
	fixture_read(dir, "config.json", &config);
	fixture_read(dir, "model.safetensors", &weights);
	sha256_hex(config.data, config.len, hex);
	n = snprintf(lines, sizeof lines, "config.json %zu %s\n", config.len, hex);
	sha256_hex(weights.data, weights.len, hex);
	n += snprintf(lines + n, sizeof lines - (size_t)n, "model.safetensors %zu %s\n", weights.len, hex);
	sha256_hex(lines, (size_t)n, hex);
	snprintf(want, sizeof want, "sha256:%s", hex);
	buf_release(&config);
	buf_release(&weights);

	m = fixture_model_open(dir, NULL);
	ck_assert_str_eq(m->fingerprint, "");
	ck_ok(model_fingerprint(m, &e), &e);
	ck_assert_str_eq(m->fingerprint, want);
	ck_assert_str_eq(m->tokenizer_fingerprint, "");
	strcpy(base, m->fingerprint);
	model_free(m);

	m = fixture_model_open(dir, "{\"type\": \"none\"}"); /* changes nothing */
	ck_ok(model_fingerprint(m, &e), &e);
	ck_assert_str_eq(m->fingerprint, base);
	model_free(m);

	m = fixture_model_open(dir, "{\"type\": \"linear\", \"factor\": 2}");
	ck_ok(model_fingerprint(m, &e), &e);
	n = snprintf(lines, sizeof lines,
	             "%s\nposition {\"type\":\"linear\",\"theta\":10000,\"factor\":2,"
	             "\"original_max_position_embeddings\":64,\"max_position_embeddings\":128,"
	             "\"inv_freq\":\"exact\"}\n",
	             base);
	sha256_hex(lines, (size_t)n, hex);
	ck_assert_str_eq(m->fingerprint + strlen("sha256:"), hex);
	model_free(m);
}
END_TEST

static void fingerprint(const char *override, char out[FINGERPRINT_LEN])
{
	struct model *m = fixture_model_open(dir, override);
	struct err e;

	ck_ok(model_fingerprint(m, &e), &e);
	strcpy(out, m->fingerprint);
	model_free(m);
}

START_TEST(each_change_gives_another_fingerprint)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	char seen[7][FINGERPRINT_LEN];

	f.n_shards = 2;
	fixture_model_write(dir, &f);
	fingerprint(NULL, seen[0]);
	fingerprint("{\"type\": \"yarn\", \"factor\": 2}", seen[1]);
	fingerprint("{\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 16}", seen[2]);
	fingerprint("{\"inv_freq\": \"f32\"}", seen[3]);
	fixture_edit(dir, "config.json", "}\n", "} \n");
	fingerprint(NULL, seen[4]);
	fixture_edit(dir, "model.safetensors.index.json", "\"metadata\":{}", "\"metadata\": {}");
	fingerprint(NULL, seen[5]);
	f.seed++;
	fixture_model_write(dir, &f);
	fingerprint(NULL, seen[6]);
	for (int i = 0; i < 7; i++)
		for (int k = 0; k < i; k++)
			ck_assert_msg(strcmp(seen[i], seen[k]) != 0, "%d and %d", i, k);
	f.tokenizer = true; /* has its own */
	f.n_vocab = 257;
	fixture_model_write(dir, &f);
	fingerprint(NULL, seen[0]);
	write_text("README.md", "x");
	fixture_edit(dir, "tokenizer.json", "\"version\":\"1.0\"", "\"version\": \"1.0\"");
	fingerprint(NULL, seen[1]);
	ck_assert_str_eq(seen[0], seen[1]);
}
END_TEST

START_TEST(a_model_that_changed_on_disk_has_no_fingerprint)
{
	struct model *m;
	struct err e;

	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	m = fixture_model_open(dir, NULL);
	fixture_edit(dir, "config.json", "}\n", "} \n");
	ck_err(model_fingerprint(m, &e), ERR_CHANGED, "config.json' changed since it was opened", &e);
	ck_assert_str_eq(m->fingerprint, "");
	model_free(m);
}
END_TEST

START_TEST(a_description_is_json_with_resolved_values)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct buf out = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&out);
	struct json *j = NULL;
	struct model *m;
	int64_t n;
	double v;
	struct err e;

	f.dtype = DTYPE_F16;
	f.tokenizer = true;
	f.n_vocab = 257;
	fixture_model_write(dir, &f);
	m = fixture_model_open(dir, NULL);
	model_describe(m, &w, NULL);
	ck_ok(buf_check(&out, "description", &e), &e);
	ck_ok(json_parse(out.data, out.len, &j, &e), &e);
	ck_assert_str_eq(json_get_string(j, "name"), m->name);
	ck_assert_str_eq(json_get_string(j, "dtype"), "f16");
	ck_assert_str_eq(json_get_string(j, "activation"), "gelu_pytorch_tanh");
	ck_assert(json_is_null(json_get(j, "fingerprint")) && json_is_null(json_get(j, "bos_token_id")));
	ck_assert(json_get_integer(j, "n_params", &n) && (uint64_t)n == count_params(&f));
	ck_assert(json_get_integer(j, "n_kv_head", &n) && n == 2);
	ck_assert(json_get_number(j, "rms_norm_eps", &v) && v == 1e-5);
	ck_assert_str_eq(json_get_string(json_get(j, "position"), "type"), "rope");
	ck_assert(json_get_integer(json_get(j, "tokenizer"), "n_vocab", &n) && n == 257);
	ck_assert_uint_eq(json_count(json_get(j, "files")), 3);
	json_free(j);
	model_free(m);
	buf_release(&out);
}
END_TEST

/* -- real models ----------------------------------------------------------------------------------- */

START_TEST(the_shared_models_open)
{
	static const struct {
		const char *path;
		uint64_t n_params;
		uint32_t n_ctx;
		bool tokenizer;
	} rows[] = {
	    {"models/rope-29m", 29368832, 1024, true}, {"models/yarn-29m", 29368832, 4096, true},
	    {"models/pope-29m", 29372928, 1024, true}, {"models/jsb-rope", 4744960, 2048, false},
	    {"models/jsb-pope", 4746496, 2048, false},
	};
	struct model *m;
	struct err e;

	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *path = fixture_shared(rows[i].path);

		if (!path) {
			fixture_skip("the_shared_models_open", rows[i].path);
			continue;
		}
		ck_ok(model_open(path, NULL, &m, &e), &e);
		ck_assert_uint_eq(m->n_params, rows[i].n_params);
		ck_assert_uint_eq(m->config.n_ctx, rows[i].n_ctx);
		ck_assert(!m->tokenizer == !rows[i].tokenizer);
		ck_assert_int_eq(m->embed.dtype, DTYPE_BF16);
		model_free(m);
	}
}
END_TEST

Suite *model_suite(void);
Suite *model_suite(void)
{
	Suite *s = suite_create("model");
	TCase *t = tcase_create("model");

	tcase_add_checked_fixture(t, make_dir, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, every_kind_of_checkpoint_opens);
	tcase_add_test(t, what_is_left_out_of_config_json_is_resolved);
	tcase_add_test(t, activations_are_mapped_by_name);
	tcase_add_test(t, a_model_is_named_after_its_directory);
	tcase_add_test(t, a_tied_model_ignores_a_stored_head_and_says_so);
	tcase_add_test(t, an_untied_model_without_head_is_refused);
	tcase_add_test(t, tensor_map_renames_a_foreign_checkpoint);
	tcase_add_test(t, an_override_reaches_position_and_context);
	tcase_add_test(t, a_broken_tokenizer_is_an_error_and_an_absent_one_is_not);
	tcase_add_test(t, the_fingerprint_is_that_of_the_files_and_the_override);
	tcase_add_test(t, each_change_gives_another_fingerprint);
	tcase_add_test(t, a_model_that_changed_on_disk_has_no_fingerprint);
	tcase_add_test(t, a_description_is_json_with_resolved_values);
	tcase_add_test(t, the_shared_models_open);
	suite_add_tcase(s, t);
	return s;
}
