/* config.json: values that cannot be, and every disagreement with the files, is refused by key, tensor and value. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void write_text(const char *name, const char *text)
{
	fixture_write(dir, name, text, strlen(text));
}

/* Starts from the default fixture with one text of config.json replaced. */
static void check_config_refused(const char *from, const char *to, const char *words)
{
	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	fixture_edit(dir, "config.json", from, to);
	fixture_model_refused(dir, ERR_INPUT, words);
}

/* -- config.json against the files ------------------------------------------------------------- */

START_TEST(bad_values_in_config_json_are_refused_by_key_and_value)
{
	static const char *const rows[][3] = {
	    {"\"hidden_size\":32", "\"hidden_size\":0", "hidden_size is 0, want 1 to"},
	    {"\"hidden_size\":32", "\"hidden_size\":-32", "hidden_size is -32"},
	    {"\"hidden_size\":32", "\"hidden_size\":32.5", "hidden_size is 32.5, want an integer"},
	    {"\"hidden_size\":32", "\"hidden_size\":1e300", "hidden_size is 1e+300"},
	    {"\"hidden_size\":32", "\"hidden_size\":4294967328", "hidden_size is 4294967328"},
	    {"\"hidden_size\":32", "\"hidden_size\":\"32\"", "hidden_size is '32', want an integer"},
	    {"\"hidden_size\":32,", "", "hidden_size is absent"},
	    {"\"hidden_size\":32", "\"hidden_size\":null", "hidden_size is absent"},
	    {"\"num_hidden_layers\":2", "\"num_hidden_layers\":0", "num_hidden_layers is 0"},
	    {"\"num_hidden_layers\":2", "\"num_hidden_layers\":99999999", "num_hidden_layers is 99999999"},
	    {"\"num_attention_heads\":4", "\"num_attention_heads\":3",
	     "num_attention_heads 3 is not a multiple of num_key_value_heads 2"},
	    {"\"num_key_value_heads\":2", "\"num_key_value_heads\":0", "num_key_value_heads is 0"},
	    {"\"num_key_value_heads\":2", "\"num_key_value_heads\":8", "num_attention_heads 4 is not a multiple"},
	    {"\"head_dim\":8", "\"head_dim\":7", "head_dim is 7"},
	    {"\"head_dim\":8", "\"head_dim\":-8", "head_dim is -8"},
	    {"4,\"num_key_value_heads\":2,\"head_dim\":8", "7",
	     "hidden_size 32 is not a multiple of num_attention_heads 7"},
	    {"\"intermediate_size\":64", "\"intermediate_size\":1e9", "intermediate_size is 1000000000"},
	    {"\"vocab_size\":97", "\"vocab_size\":0", "vocab_size is 0"},
	    {"\"hidden_act\":\"gelu_pytorch_tanh\"", "\"hidden_act\":\"mish\"", "hidden_act is 'mish'"},
	    {"\"hidden_act\":\"gelu_pytorch_tanh\"", "\"hidden_act\":3", "hidden_act is 3"},
	    {"\"hidden_act\":\"gelu_pytorch_tanh\",", "", "hidden_act is absent"},
	    {"\"mlp_gated\":false", "\"mlp_gated\":0", "mlp_gated is 0, want true or false"},
	    {"\"attention_bias\":false", "\"attention_bias\":\"no\"", "attention_bias is 'no'"},
	    {"\"tie_word_embeddings\":true,", "", "tie_word_embeddings is absent"},
	    {"\"rms_norm_eps\":1e-5", "\"rms_norm_eps\":0", "rms_norm_eps is 0"},
	    {"\"rms_norm_eps\":1e-5", "\"rms_norm_eps\":-1e-5", "rms_norm_eps is -1e-05"},
	    {"\"rms_norm_eps\":1e-5", "\"rms_norm_eps\":1e-60", "rms_norm_eps is 1e-60"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":97", "eos_token_id is 97, outside vocab_size 97"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":-1", "eos_token_id is -1"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":[0]", "eos_token_id is array"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":0,\"attention_scale\":0", "attention_scale is 0"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":0,\"attention_scale\":\"auto\"", "attention_scale is 'auto'"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":0,\"sliding_window\":128", "sliding_window is not supported"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":0,\"quantization_config\":{}", "quantization_config is not"},
	    {"\"max_position_embeddings\":64", "\"max_position_embeddings\":0", "max_position_embeddings is 0"},
	    {"\"rope_scaling\":null", "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
	     "'dynamic' is not supported"},
	    {"[\"PopeForCausalLM\"]", "[\"MambaForCausalLM\"]", "architecture 'MambaForCausalLM' is not supported yet"},
	    {"[\"PopeForCausalLM\"]", "[]", "architectures is not an array of one string"},
	    {"[\"PopeForCausalLM\"]", "\"PopeForCausalLM\"", "architectures is not an array of one string"},
	    {"\"model_type\":\"pope\"", "\"model_type\":\"gpt2\"", "model_type is 'gpt2'"},
	    {"\"architectures\":[\"PopeForCausalLM\"],\"model_type\":\"pope\",", "",
	     "neither architectures nor model_type"},
	    {"\"eos_token_id\":0", "\"eos_token_id\":0,\"vocab_size\":97", "duplicate key 'vocab_size'"},
	    {"{", "[{", "config.json"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		check_config_refused(rows[i][0], rows[i][1], rows[i][2]);
	write_text("config.json", "[]");
	fixture_model_refused(dir, ERR_INPUT, "config.json: array, want an object");
	write_text("config.json", "version https://git-lfs.github.com/spec/v1\n");
	fixture_model_refused(dir, ERR_INPUT, "config.json' is a Git LFS pointer");
}
END_TEST

START_TEST(a_shape_that_disagrees_is_refused_naming_both)
{
	static const char *const rows[][3] = {
	    {"\"vocab_size\":97", "\"vocab_size\":96",
	     "tensor 'model.embed_tokens.weight' has shape [97, 32], but vocab_size is 96 and hidden_size is 32"},
	    {"\"vocab_size\":97", "\"vocab_size\":128", "has shape [97, 32], but vocab_size is 128"},
	    {"\"hidden_size\":32", "\"hidden_size\":64", "but vocab_size is 97 and hidden_size is 64"},
	    {"\"intermediate_size\":64", "\"intermediate_size\":32",
	     "tensor 'model.layers.0.mlp.up_proj.weight' has shape [64, 32], but intermediate_size is 32"},
	    {"\"head_dim\":8", "\"head_dim\":16",
	     "tensor 'model.layers.0.self_attn.q_proj.weight' has shape [32, 32], but num_attention_heads*head_dim is "
	     "64"},
	    {"\"num_key_value_heads\":2", "\"num_key_value_heads\":4",
	     "k_proj.weight' has shape [16, 32], but num_key_value_heads*head_dim is 32"},
	    {"\"num_hidden_layers\":2", "\"num_hidden_layers\":1",
	     "tensor 'model.layers.1.input_layernorm.weight' is there, but num_hidden_layers is too small"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		check_config_refused(rows[i][0], rows[i][1], rows[i][2]);
	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	fixture_edit(dir, "model.safetensors", "\"shape\":[32],", "\"shape\":[4,8],"); /* the header grows: */
	fixture_model_refused(dir, ERR_INPUT, "model.safetensors");
}
END_TEST

START_TEST(a_tensor_too_few_or_too_many_is_refused)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"num_hidden_layers\":2", "\"num_hidden_layers\":3");
	fixture_model_refused(dir, ERR_NOT_FOUND, "tensor 'model.layers.2.input_layernorm.weight' is absent");
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"attention_bias\":false", "\"attention_bias\":true");
	fixture_model_refused(dir, ERR_NOT_FOUND, "tensor 'model.layers.0.self_attn.q_proj.bias' is absent");
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"position_embedding_type\":\"rope\"",
	             "\"position_embedding_type\":\"pope\"");
	fixture_model_refused(dir, ERR_NOT_FOUND, "tensor 'model.layers.0.self_attn.pope_delta' is absent");
	fixture_model_write(dir, &f);
	fixture_edit(dir, "model.safetensors", "model.norm.weight", "model.form.weight");
	fixture_model_refused(dir, ERR_NOT_FOUND, "tensor 'model.norm.weight' is absent");

	f.position = "pope";
	f.mlp_gated = f.attention_bias = f.mlp_bias = true;
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"attention_bias\":true", "\"attention_bias\":false");
	fixture_model_refused(dir, ERR_INPUT, "k_proj.bias' is there, but attention_bias is false");
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"mlp_gated\":true", "\"mlp_gated\":false");
	fixture_model_refused(dir, ERR_INPUT, "but mlp_gated");
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"mlp_bias\":true", "\"mlp_bias\":false");
	fixture_model_refused(dir, ERR_INPUT, "is false");
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"position_embedding_type\":\"pope\"",
	             "\"position_embedding_type\":\"rope\"");
	fixture_model_refused(dir, ERR_INPUT, "pope_delta' is there, but position_embedding_type is not pope");
}
END_TEST

START_TEST(damaged_weights_are_refused_naming_model_and_tensor)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	char path[PATH_MAX];
	struct buf file = BUF_INIT(1 << 20);

	fixture_model_write(dir, &f);
	fixture_read(dir, "model.safetensors", &file);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	ck_assert_int_eq(truncate(path, (off_t)file.len - 1000), 0);
	fixture_model_refused(dir, ERR_INPUT, "tensor 'model.layers.1.mlp.down_proj.weight' ends at byte");
	fixture_model_refused(dir, ERR_INPUT, "872 bytes of it are missing");
	fixture_model_refused(dir, ERR_INPUT, strrchr(dir, '/') + 1);
	unlink(path);
	fixture_model_refused(dir, ERR_NOT_FOUND, "has neither model.safetensors nor");
	buf_release(&file);
	snprintf(path, sizeof path, "%s/config.json", dir);
	unlink(path);
	fixture_model_refused(dir, ERR_NOT_FOUND, "config.json");

	fixture_model_write(dir, &f);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	unlink(path);
	f.n_shards = 2;
	fixture_model_write(dir, &f);
	write_text("model-00003-of-00002.safetensors", "stray"); /* nobody reads it */
	model_free(fixture_model_open(dir, NULL));
	snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", dir);
	unlink(path);
	fixture_model_refused(dir, ERR_NOT_FOUND, "model-00002-of-00002.safetensors");
}
END_TEST

/* A buffer that nobody asked for is logged, once; an unknown key too. */
START_TEST(foreign_tensors_and_keys_are_ignored_aloud)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	const char *log;

	f.extra_config = "\"initializer_range\":0.02,\"pretraining_tp\":1,\"no_such_key\":1";
	f.mlp_bias = true;
	fixture_model_write(dir, &f);
	fixture_edit(dir, "config.json", "\"mlp_bias\":true", "\"mlp_bias\":false");
	fixture_edit(dir, "model.safetensors", "proj.bias", "proj.mask");
	log = fixture_model_log(dir);
	ck_assert_ptr_nonnull(strstr(log, "4 tensors are not used, the first is 'model.layers.0.mlp.down_proj.mask'"));
	ck_assert_ptr_nonnull(strstr(log, "'no_such_key' is not known and ignored"));
	ck_assert_ptr_null(strstr(log, "initializer_range"));
	ck_assert_ptr_null(strstr(log, "pretraining_tp"));
}
END_TEST

/* -- tensor_map -------------------------------------------------------------------------------- */

START_TEST(a_bad_tensor_map_is_refused)
{
	static const char *const rows[][2] = {
	    {"[]", "tensor_map is array"},
	    {"{\"model.norm.weight\":\"transformer.ln_f.weight\"}",
	     "'model.norm.weight' is mapped to 'transformer.ln_f.weight', which is no tensor of this family"},
	    {"{\"a\":3}", "'a' is mapped to 'number'"},
	    {"{\"a\":\"model.norm.weight\",\"b\":\"model.norm.weight\"}", "both 'a' and 'b' give 'model.norm.weight'"},
	    {"{\"h.*.q\":\"model.layers.*.self_attn.q_proj.weight\",\"h.0.q\":\"model.layers.0.self_attn.q_proj."
	     "weight\"}",
	     "both 'h.*.q' and 'h.0.q' give 'model.layers.0.self_attn.q_proj.weight'"},
	    {"{\"h.0.q\":\"model.layers.*.self_attn.q_proj.weight\"}", "differ in '*'"},
	    {"{\"h.*\":\"model.norm.weight\"}", "differ in '*'"},
	};
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	char extra[500];

	for (size_t i = 0; i < COUNT(rows); i++) {
		snprintf(extra, sizeof extra, "\"tensor_map\":%s", rows[i][0]);
		f.extra_config = extra;
		fixture_model_write(dir, &f);
		fixture_model_refused(dir, ERR_INPUT, rows[i][1]);
	}
}
END_TEST

/* -- mutations --------------------------------------------------------------------------------- */

START_TEST(mutated_configurations_are_read_or_refused)
{
	static const char tokens[] = "{}[],:\"0123456789-eE.\\ tfn";
	struct buf good = BUF_INIT(1 << 16);
	uint64_t state = 7;
	int n_opened = 0;

	setenv("FATHOM_LOG", "error", 1); /* misspelt keys are warned of */
	fixture_model_write(dir, &FIXTURE_MODEL_DEFAULT);
	fixture_read(dir, "config.json", &good);
	for (int i = 0; i < 1500; i++) {
		char *text = malloc(good.len);
		struct model *m;
		struct err e = {0};

		memcpy(text, good.data, good.len);
		for (int k = 0; k <= i % 3; k++) {
			state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			text[(state >> 33) % good.len] = tokens[(state >> 20) % (sizeof tokens - 1)];
		}
		fixture_write(dir, "config.json", text, good.len);
		free(text);
		if (model_open(dir, NULL, &m, &e)) {
			ck_assert_msg(strlen(e.msg) > 20, "%s", e.msg);
			continue;
		}
		n_opened++;
		model_free(m);
	}
	ck_assert_int_gt(n_opened, 10);
	ck_assert_int_lt(n_opened, 500);
	buf_release(&good);
}
END_TEST

Suite *config_suite(void);
Suite *config_suite(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config");

	tcase_add_checked_fixture(t, make_dir, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, bad_values_in_config_json_are_refused_by_key_and_value);
	tcase_add_test(t, a_shape_that_disagrees_is_refused_naming_both);
	tcase_add_test(t, a_tensor_too_few_or_too_many_is_refused);
	tcase_add_test(t, damaged_weights_are_refused_naming_model_and_tensor);
	tcase_add_test(t, foreign_tensors_and_keys_are_ignored_aloud);
	tcase_add_test(t, a_bad_tensor_map_is_refused);
	tcase_add_test(t, mutated_configurations_are_read_or_refused);
	suite_add_tcase(s, t);
	return s;
}
