/* The engine on a GPU: the CPU's scores in f32, close ones in bf16 and f16, the same bits whatever else is scored and
 * wherever, and the errors that the CPU gives. Tag "gpu"; says SKIP without a device.
 *
 * FATHOM_GPU picks the device by number; FATHOM_GPU=cpu runs the suite against the CPU engine, to check the suite. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/buf.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_scores.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static char device[32];
static const char *const dtypes[] = {"f32", "bf16", "f16"};

/* Whether there is a device, which is then in `device`. */
static bool present(const char *test)
{
	const char *number = getenv("FATHOM_GPU");
	struct device_info info;

	if (number && !strcmp(number, "cpu"))
		strcpy(device, "cpu");
	else
		snprintf(device, sizeof device, "cuda:%.8s", number ? number : "0");
	if (!device_describe(device, &info, &e))
		return true;
	fixture_skip(test, e.msg);
	ck_assert_msg(!getenv("FATHOM_REQUIRE_GPU"), "%s: there must be a device: %s", test, e.msg);
	return false;
}

/* The CPU that stands in for a GPU may lack a dtype. */
static bool offers(const char *dtype)
{
	struct buf signature = BUF_INIT(4096);
	bool has = !engine_signature(device, dtype, &signature, &e);

	buf_release(&signature);
	ck_assert_msg(has || !strcmp(device, "cpu"), "%s lacks %s: %s", device, dtype, e.msg);
	return has;
}

/* -- the CPU's scores ------------------------------------------------------------------------------ */

struct shape {
	const char *position, *scaling, *act;
	uint32_t head_dim, n_head, n_kv_head, dim, ffn_dim, n_vocab;
	bool gated, tied, attention_bias, mlp_bias;
	enum dtype dtype;
};

#define YARN "{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":64}"

static const struct shape shapes[] = {
    {"rope", NULL, "gelu_pytorch_tanh", 64, 4, 4, 256, 1024, 1000, false, true, false, false, DTYPE_BF16},
    {"pope", NULL, "gelu_pytorch_tanh", 64, 4, 4, 256, 1024, 1000, false, true, false, false, DTYPE_BF16},
    {"rope", NULL, "silu", 32, 8, 2, 128, 320, 97, true, true, true, false, DTYPE_F32},
    {"pope", NULL, "silu", 32, 4, 1, 64, 192, 257, true, false, false, true, DTYPE_F16},
    {"rope", YARN, "gelu", 48, 4, 1, 192, 512, 2050, false, false, true, true, DTYPE_F32},
    {"pope", NULL, "relu", 48, 6, 3, 192, 512, 5000, false, true, true, true, DTYPE_F32},
    {"rope", YARN, "silu", 80, 4, 2, 320, 848, 333, true, false, true, true, DTYPE_BF16},
    {"pope", NULL, "silu", 80, 4, 4, 320, 848, 128, true, true, false, false, DTYPE_F32},
    {"rope", NULL, "gelu_pytorch_tanh", 96, 2, 1, 192, 768, 129, false, true, false, true, DTYPE_F32},
    {"pope", NULL, "gelu_pytorch_tanh", 96, 2, 2, 160, 640, 255, false, false, true, false, DTYPE_F32},
    {"rope", NULL, "silu", 128, 8, 2, 512, 1408, 1025, true, false, false, false, DTYPE_BF16},
    {"pope", NULL, "gelu_pytorch_tanh", 128, 4, 4, 256, 1024, 513, false, true, false, false, DTYPE_F32},
};

/* Shapes of no real model: a kernel may refuse them by name, but not get them wrong. */
static const struct shape odd_shapes[] = {
    {"rope", NULL, "gelu_pytorch_tanh", 10, 2, 1, 22, 53, 97, false, true, true, true, DTYPE_F32},
    {"pope", NULL, "silu", 6, 3, 3, 21, 50, 101, true, false, false, false, DTYPE_F32},
    {"rope", NULL, "silu", 256, 2, 1, 128, 256, 97, true, true, false, false, DTYPE_F32},
    {"pope", NULL, "silu", 256, 2, 1, 128, 256, 97, true, true, false, false, DTYPE_F32},
};

static struct model *make(const struct shape *s)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	f.position = s->position;
	f.rope_scaling = s->scaling;
	f.hidden_act = s->act;
	f.head_dim = s->head_dim;
	f.n_head = s->n_head;
	f.n_kv_head = s->n_kv_head;
	f.dim = s->dim;
	f.ffn_dim = s->ffn_dim;
	f.n_vocab = s->n_vocab;
	f.mlp_gated = s->gated;
	f.tied = s->tied;
	f.attention_bias = s->attention_bias;
	f.mlp_bias = s->mlp_bias;
	f.dtype = s->dtype;
	return fixture_model_make(&f);
}

/* Documents of every length at which something turns: tiles, panels, warps. */
static void pack_edges(uint32_t n_vocab)
{
	static const uint32_t lengths[] = {2,   3,   17,  31,  32,  33,  63,  64,  65,  127, 128,
	                                   129, 191, 192, 193, 255, 256, 257, 513, 700, 1025};

	pack_clear();
	for (uint32_t i = 0; i < COUNT(lengths); i++) {
		uint32_t *tokens = some_tokens(lengths[i], n_vocab, 100 + i);

		pack_add(-1, tokens, lengths[i]);
		free(tokens);
	}
}

/* What is packed, on the device against the CPU in f32. Logits of these models have a standard deviation of 2: bf16
 * moves a token's score by .02 or so, f16 by less. */
static void check_packed(const struct model *m, const char *dtype, const struct token_score *want, const char *what)
{
	bool f32 = !strcmp(dtype, "f32");
	struct session *s = open_session(m, device, dtype, 0, 0);
	double sum = 0, want_sum = 0, squares = 0, n = 0, rms;

	pack_run(s);
	session_close(s);
	for (uint32_t i = 0; i < packed.n_tokens; i++) {
		double d;

		if (!packed.marks[i])
			continue;
		d = packed.out[i].logprob - want[i].logprob;
		sum += packed.out[i].logprob;
		want_sum += want[i].logprob;
		squares += d * d;
		n++;
		ck_assert_msg(!f32 || fabs(d) <= 5e-4, "%s, f32: token %u of %u: %.7g, not %.7g", what, i,
		              packed.n_tokens, packed.out[i].logprob, want[i].logprob);
		ck_assert_msg(packed.out[i].argmax < m->config.n_vocab &&
		                  packed.out[i].argmax_logprob >= packed.out[i].logprob,
		              "%s, %s: token %u: argmax %u at %.7g, target at %.7g", what, dtype, i,
		              packed.out[i].argmax, packed.out[i].argmax_logprob, packed.out[i].logprob);
	}
	rms = sqrt(squares / n);
	fprintf(stderr, "  %s, %s: sum off by %.1e, tokens by %.1e rms\n", what, dtype, sum / want_sum - 1, rms);
	ck_assert_msg(rms <= .1, "%s, %s: tokens are off by %.3f rms", what, dtype, rms);
	ck_assert_msg(fabs(sum / want_sum - 1) <= (f32 ? 1e-6 : 2e-3), "%s, %s: sum %.6f, not %.6f: off by %.2e", what,
	              dtype, sum, want_sum, sum / want_sum - 1);
}

static void check_against_cpu(const struct model *m, const char *what)
{
	struct session *s = open_session(m, "cpu", "f32", 0, 0);
	struct token_score *want = malloc(packed.n_tokens * sizeof *want);

	ck_assert_ptr_nonnull(want);
	pack_run(s);
	memcpy(want, packed.out, packed.n_tokens * sizeof *want);
	session_close(s);
	for (size_t i = 0; i < COUNT(dtypes); i++)
		if (offers(dtypes[i]))
			check_packed(m, dtypes[i], want, what);
	free(want);
}

START_TEST(scores_are_those_of_the_cpu_for_every_architecture)
{
	char what[64];

	if (!present("scores of every architecture"))
		return;
	for (size_t i = 0; i < COUNT(shapes); i++) {
		struct model *m = make(&shapes[i]);

		snprintf(what, sizeof what, "shape %zu (%s %u)", i, shapes[i].position, shapes[i].head_dim);
		pack_edges(shapes[i].n_vocab);
		check_against_cpu(m, what);
		model_free(m);
	}
}
END_TEST

START_TEST(shapes_of_no_real_model_are_right_or_refused)
{
	struct session_options o = {.device = device};
	char what[64];

	if (!present("odd shapes"))
		return;
	for (size_t i = 0; i < COUNT(odd_shapes); i++) {
		struct model *m = make(&odd_shapes[i]);
		struct session *s = NULL;
		err_code rc = session_open(m, &o, &s, &e);

		snprintf(what, sizeof what, "odd shape %zu", i);
		if (rc)
			fprintf(stderr, "  %s: %s\n", what, e.msg);
		ck_assert_msg(!rc || rc == ERR_INPUT, "%s: %s: %s", what, err_name(rc), e.msg);
		session_close(s);
		pack_edges(odd_shapes[i].n_vocab);
		if (!rc)
			check_against_cpu(m, what);
		model_free(m);
	}
}
END_TEST

/* Small, and yet through every kernel: a context that ends inside a panel, children, a grandchild, a chain of its own.
 * What compute-sanitizer watches (tests/sanitize_gpu.sh). */
START_TEST(every_kernel_runs_once)
{
	static const size_t chosen[] = {0, 1, 2, 5, 10, 11};
	uint32_t *tokens = some_tokens(400, 97, 3);
	char what[64];
	int32_t context, child;

	if (!present("every kernel once"))
		return;
	for (size_t i = 0; i < COUNT(chosen); i++) {
		struct model *m = make(&shapes[chosen[i]]);

		pack_clear();
		context = pack_add(-1, tokens, 150);
		child = pack_add(context, tokens + 150, 70);
		pack_add(context, tokens + 220, 3);
		pack_add(child, tokens + 223, 130);
		pack_add(-1, tokens + 353, 40);
		for (uint32_t t = 0; t < packed.n_tokens; t += 7)
			packed.marks[t] = 0;
		snprintf(what, sizeof what, "shape %zu", chosen[i]);
		check_against_cpu(m, what);
		model_free(m);
	}
	free(tokens);
}
END_TEST

/* -- trained models -------------------------------------------------------------------------------- */

static const char *const demo[] = {"eval/demo/rope-demo", "eval/demo/yarn-demo", "eval/demo/pope-demo"};
static const char *const trained[] = {"rope-29m", "yarn-29m", "pope-29m"};

/* English: this project's own. */
static struct token_list read_text(const struct model *m)
{
	struct buf text = BUF_INIT(1 << 24);
	struct token_list list = {0};

	ck_ok(buf_read_file(&text, "README.md", &e), &e);
	ck_ok(tokenizer_encode(m->tokenizer, text.data, text.len, false, &list, &e), &e);
	buf_release(&text);
	return list;
}

START_TEST(scores_of_trained_models_are_those_of_the_cpu)
{
	struct model *m = NULL;
	struct token_list text;

	if (!present("scores of the demo's models"))
		return;
	ck_ok(model_open(demo[_i], NULL, &m, &e), &e);
	text = read_text(m);
	ck_assert_uint_gt(text.n, 2561);
	pack_clear();
	pack_add(-1, text.ids, 2561);
	for (uint32_t at = 0; at + 257 < text.n && at < 20 * 257; at += 257)
		pack_add(-1, text.ids + at, 257);
	check_against_cpu(m, demo[_i]);
	token_list_release(&text);
	model_free(m);
}
END_TEST

static bool of_halves(const char *book, uint32_t length)
{
	(void)book;
	return length == 1024 || length == 10240;
}

START_TEST(the_29m_models_agree_with_the_reference)
{
	if (!present("the 29M models") || !reference_check(trained[_i], device, "f32", NULL, 1e-5, 5e-4))
		return;
	for (size_t i = 1; i < COUNT(dtypes); i++)
		if (offers(dtypes[i]))
			reference_check(trained[_i], device, dtypes[i], of_halves, 2e-3, 0);
}
END_TEST

/* -- frequency use --------------------------------------------------------------------------------- */

/* Sums of what is packed, which is run. free() them. */
static double *probe(struct session *s, const struct model *m, size_t *n)
{
	struct frequency_use use = {.n_rows = 0};
	uint32_t ends = 0;

	*n = 2 * m->config.n_layer * position_count_freq(&m->config.position, m->config.head_dim);
	use.sums = calloc(*n, sizeof *use.sums);
	ck_assert_ptr_nonnull(use.sums);
	session_probe(s, &use);
	pack_run(s);
	session_probe(s, NULL);
	for (uint32_t i = 0; i < packed.n_segments;
	     i++) /* every token of these packs but the last of a leaf has a row */
		ends += i + 1 == packed.n_segments || packed.segments[i + 1].parent != (int32_t)i;
	ck_assert_uint_eq(use.n_rows, packed.n_tokens - ends);
	return use.sums;
}

/* Every sum within `relative` of the CPU's in f32: f32 differs in the order of sums; a half type rounds what is
 * normed, multiplied and stored (2^-9 or 2^-12 an element), of which a mean over thousands keeps less. */
static void check_use(const struct model *m, const char *what)
{
	struct session *s = open_session(m, "cpu", "f32", 0, 0);
	size_t n;
	double *want = probe(s, m, &n);

	session_close(s);
	for (size_t d = 0; d < COUNT(dtypes); d++) {
		double relative = !d ? 2e-5 : d == 1 ? 0x1p-7 : 0x1p-9, worst = 0, *got;

		if (!offers(dtypes[d]))
			continue;
		s = open_session(m, device, dtypes[d], 0, 0);
		got = probe(s, m, &n);
		session_close(s);
		for (size_t i = 0; i < n; i++) {
			double off = fabs(got[i] / want[i] - 1);

			worst = off > worst ? off : worst;
			ck_assert_msg(off <= relative, "%s, %s: sum %zu of %zu: %.9g, not %.9g", what, dtypes[d], i, n,
			              got[i], want[i]);
		}
		fprintf(stderr, "  %s, %s: frequency use off by %.1e at most\n", what, dtypes[d], worst);
		free(got);
	}
	free(want);
}

START_TEST(frequencies_are_used_as_on_the_cpu_in_every_architecture)
{
	char what[64];

	if (!present("frequency use"))
		return;
	for (size_t i = 0; i < COUNT(shapes); i++) {
		struct model *m = make(&shapes[i]);

		snprintf(what, sizeof what, "shape %zu (%s %u)", i, shapes[i].position, shapes[i].head_dim);
		pack_edges(shapes[i].n_vocab);
		check_use(m, what);
		model_free(m);
	}
}
END_TEST

START_TEST(trained_models_use_frequencies_as_on_the_cpu)
{
	struct model *m = NULL;
	struct token_list text;

	if (!present("frequency use of the demo's models"))
		return;
	ck_ok(model_open(demo[_i], NULL, &m, &e), &e);
	text = read_text(m);
	pack_clear();
	pack_add(-1, text.ids, 1025);
	pack_add(0, text.ids + 1025, 100); /* keys that are copied between panels count once */
	pack_add(-1, text.ids, 257);
	check_use(m, demo[_i]);
	token_list_release(&text);
	model_free(m);
}
END_TEST

/* Chunks of another size; passes that were captured, and would be replayed; scores beside the probe. */
START_TEST(a_probe_has_the_same_bits_every_time_and_changes_no_score)
{
	struct model *m;
	struct session *s;
	size_t n;
	double *want, *got;

	if (!present("a probe's bits") || !offers(dtypes[_i]))
		return;
	m = make(&shapes[_i]);
	pack_edges(shapes[_i].n_vocab);
	s = open_session(m, device, dtypes[_i], 0, 64);
	want = probe(s, m, &n);
	session_close(s);
	s = open_session(m, device, dtypes[_i], 0, 0);
	for (int i = 0; i < 4; i++) {
		static struct token_score scores[PACK_MAX_TOKENS];

		pack_run(s);
		memcpy(scores, packed.out, packed.n_tokens * sizeof *scores);
		got = probe(s, m, &n);
		ck_assert_msg(same_bits(got, want, n * sizeof *got), "sums of pass %d", i);
		ck_assert_msg(same_bits(packed.out, scores, packed.n_tokens * sizeof *scores), "scores of pass %d", i);
		free(got);
	}
	session_close(s);
	free(want);
	model_free(m);
}
END_TEST

/* -- the same bits --------------------------------------------------------------------------------- */

static void check_bits(const struct model *m, const char *dtype, uint32_t n)
{
	static const uint32_t chunks[] = {64, 128, 1000, 1 << 20};
	struct subject t;

	subject_init(&t, m, device, dtype, n);
	for (size_t i = 0; i < COUNT(chunks); i++)
		subject_under(&t, 0, chunks[i]);
	subject_at_every_row(&t, 130);
	subject_with_shared_prefixes(&t);
	subject_as_chains(&t);
	for (uint32_t seed = 1; seed <= 4; seed++)
		subject_as_trees(&t, seed);
	subject_in_company(&t);
	subject_release(&t);
}

START_TEST(a_score_depends_on_its_chain_alone)
{
	static const size_t chosen[] = {0, 1, 2, 6, 10, 11};
	struct model *m;

	if (!present("the same bits") || !offers(dtypes[_i]))
		return;
	for (size_t i = 0; i < COUNT(chosen); i++) {
		m = make(&shapes[chosen[i]]);
		fprintf(stderr, "  shape %zu, %s\n", chosen[i], dtypes[_i]);
		check_bits(m, dtypes[_i], i ? 700 : 1900);
		model_free(m);
	}
}
END_TEST

#define N_MANY 300

/* Hundreds of sequences, all in one batch, and cut into batches of equal size: how many tiles a launch has, and how
 * many heads it takes at a time, turns with it. Heads are numbers that few groups divide. */
START_TEST(hundreds_of_sequences_may_be_cut_into_any_batches)
{
	static const struct shape of[] = {
	    {"pope", NULL, "gelu_pytorch_tanh", 64, 5, 5, 64, 128, 300, false, true, false, false, DTYPE_BF16},
	    {"rope", NULL, "gelu_pytorch_tanh", 64, 7, 7, 64, 128, 300, false, true, false, false, DTYPE_BF16},
	    {"pope", NULL, "silu", 128, 3, 3, 64, 128, 300, true, true, false, false, DTYPE_BF16},
	    {"rope", NULL, "silu", 128, 20, 5, 64, 128, 300, true, true, false, false, DTYPE_BF16},
	};
	static const uint32_t runs[] = {150, 97, 64, 33, 20, 7};
	static struct token_score want[PACK_MAX_TOKENS];
	uint32_t len[N_MANY], at[N_MANY + 1] = {0}, *text;
	struct model *m;
	struct session *s;

	if (!present("many sequences"))
		return;
	for (uint32_t i = 0; i < N_MANY; i++) {
		len[i] = 2 + i * 7919 % 511;
		at[i + 1] = at[i] + len[i];
	}
	m = make(&of[_i]);
	text = some_tokens(at[N_MANY], m->config.n_vocab, 70);
	s = open_session(m, device, "auto", 0, 0);
	pack_clear();
	for (uint32_t i = 0; i < N_MANY; i++)
		pack_add(-1, text + at[i], len[i]);
	pack_run(s);
	memcpy(want, packed.out, at[N_MANY] * sizeof *want);
	for (size_t r = 0; r < COUNT(runs); r++)
		for (uint32_t i = 0, n; i < N_MANY; i += n) {
			n = N_MANY - i < runs[r] ? N_MANY - i : runs[r];
			pack_clear();
			for (uint32_t j = i; j < i + n; j++)
				pack_add(-1, text + at[j], len[j]);
			pack_run(s);
			for (uint32_t j = i; j < i + n; j++)
				pack_same((int32_t)(j - i), 1, want + at[j] + 1, len[j] - 1, "a part of many");
		}
	session_close(s);
	free(text);
	model_free(m);
}
END_TEST

START_TEST(scores_of_trained_models_depend_on_the_chain_alone)
{
	struct model *m = NULL;

	if (!present("the same bits of the demo's models"))
		return;
	for (size_t i = 0; i < COUNT(demo); i += 2) {
		ck_ok(model_open(demo[i], NULL, &m, &e), &e);
		for (size_t d = 0; d < 2; d++)
			if (offers(dtypes[d]))
				check_bits(m, dtypes[d], 1000);
		model_free(m);
	}
}
END_TEST

/* Layouts that come again may be replayed from a graph: with other tokens, between others, after a larger one. */
START_TEST(a_layout_that_comes_again_gives_the_same_bits)
{
	static const uint32_t order[] = {0, 0, 0, 0, 1, 0, 2, 1, 1, 0, 2, 2, 0};
	static const uint32_t lengths[] = {1024, 200, 5000};
	struct token_score *want[3];
	uint32_t *text[3];
	struct model *m;

	if (!present("graphs"))
		return;
	m = make(&shapes[_i % 2]);
	for (uint32_t k = 0; k < 3; k++) {
		struct session *fresh = open_session(m, device, "auto", 0, 0);

		text[k] = some_tokens(2 * lengths[k], 1000, 50 + k);
		want[k] = malloc(2 * lengths[k] * sizeof **want);
		for (uint32_t half = 0; half < 2; half++) {
			pack_clear();
			pack_add(-1, text[k] + half * lengths[k], lengths[k]);
			pack_run(fresh);
			memcpy(want[k] + half * lengths[k], packed.out, lengths[k] * sizeof **want);
		}
		session_close(fresh);
	}
	{
		struct session *s = open_session(m, device, "auto", 0, 0);

		for (uint32_t i = 0; i < COUNT(order); i++) {
			uint32_t k = order[i], at = i % 2 * lengths[k];
			char what[32];

			snprintf(what, sizeof what, "batch %u", i);
			pack_clear();
			pack_add(-1, text[k] + at, lengths[k]);
			pack_run(s);
			pack_same(0, 1, want[k] + at + 1, lengths[k] - 1, what);
		}
		session_close(s);
	}
	for (uint32_t k = 0; k < 3; k++) {
		free(text[k]);
		free(want[k]);
	}
	model_free(m);
}
END_TEST

/* What a process of its own computes. CUDA does not survive a fork, so the child runs before this process uses it. */
static void score_elsewhere(const struct model *m, const char *dtype, struct token_score *out)
{
	struct session_options o = {.device = device, .dtype = dtype};
	struct batch b = pack_batch();
	struct session *s = NULL;

	if (session_open(m, &o, &s, &e) || session_score(s, &b, out, &e)) {
		fprintf(stderr, "  in another process: %s\n", e.msg);
		_exit(1);
	}
	_exit(0);
}

START_TEST(another_process_gives_the_same_bits)
{
	const char *dtype = dtypes[_i];
	struct model *m = make(&shapes[1]);
	struct token_score *got;
	struct session *s;
	int status = 0;
	pid_t child;

	pack_edges(shapes[1].n_vocab);
	got = mmap(NULL, packed.n_tokens * sizeof *got, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(got != MAP_FAILED);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		if (!present("another process") || !offers(dtype))
			_exit(0);
		score_elsewhere(m, dtype, got);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	if (!present("another process") || !offers(dtype))
		return;
	s = open_session(m, device, dtype, 0, 128);
	pack_run(s);
	session_close(s);
	for (uint32_t i = 0; i < packed.n_segments; i++)
		pack_same((int32_t)i, 1, got + packed.segments[i].start + 1, packed.segments[i].len - 1,
		          "another process");
	model_free(m);
}
END_TEST

/* -- long chains, memory --------------------------------------------------------------------------- */

START_TEST(a_chain_of_131072_tokens_begins_as_a_short_one)
{
	struct token_score *head;
	struct session *s;
	struct model *m;
	uint32_t *tokens, n;

	if (!present("a long chain"))
		return;
	n = strcmp(device, "cpu") ? 131073 : 9000;
	m = make(&shapes[_i]);
	tokens = some_tokens(n, 1000, 9);
	head = malloc(3000 * sizeof *head);
	s = open_session(m, device, "auto", 0, 0);
	pack_clear();
	pack_add(-1, tokens, 3000);
	pack_run(s);
	memcpy(head, packed.out, 3000 * sizeof *head);
	pack_clear();
	pack_add(-1, tokens, n);
	pack_run(s);
	pack_same(0, 1, head + 1, 2999, "a long chain");
	for (uint32_t i = 1; i < n; i++)
		ck_assert_msg(packed.out[i].logprob <= 0 && packed.out[i].logprob > -100, "token %u: %g", i,
		              packed.out[i].logprob);
	session_close(s);
	free(tokens);
	free(head);
	model_free(m);
}
END_TEST

static size_t free_bytes(void)
{
	struct device_info info;

	ck_ok(device_describe(device, &info, &e), &e);
	return info.memory_bytes;
}

static void pack_documents(uint32_t n, uint32_t length)
{
	uint32_t *tokens = some_tokens(length, 1000, 13);

	pack_clear();
	while (n--)
		pack_add(-1, tokens, length);
	free(tokens);
}

/* Questions: a context, and four short answers to it. */
static void pack_questions(uint32_t n, uint32_t context, uint32_t answer)
{
	uint32_t *tokens = some_tokens(context, 1000, 17);

	pack_clear();
	while (n--) {
		int32_t parent = pack_add(-1, tokens, context);

		for (int i = 0; i < 4; i++)
			pack_add(parent, tokens, answer);
	}
	free(tokens);
}

START_TEST(memory_is_estimated_from_above_and_closely)
{
	struct session_options o = {.device = device, .dtype = "bf16"};
	size_t before, used, estimate;
	struct session *s;
	struct model *m;

	if (!present("memory estimate") || !strcmp(device, "cpu"))
		return;
	m = make(&shapes[_i % 2]);
	s = open_session(m, device, "bf16", 0, 0); /* CUDA's own, once */
	pack_documents(4, 100);
	pack_run(s);
	session_close(s);
	if (_i < 4)
		pack_documents(_i & 2 ? 250 : 64, 1000);
	else if (_i < 6)
		pack_documents(3000, 20);
	else
		pack_questions(700, 60, 20);
	before = free_bytes();
	estimate = session_memory(m, &o, (struct batch_size){packed.n_tokens, packed.n_segments});
	s = open_session(m, device, "bf16", 0, 0);
	pack_run(s);
	used = before - free_bytes();
	fprintf(stderr, "  %u tokens in %u segments: estimated %zu MB, used %zu MB\n", packed.n_tokens,
	        packed.n_segments, estimate >> 20, used >> 20);
	ck_assert_msg(estimate >= used && estimate <= used + used / 4 + ((size_t)96 << 20),
	              "%u tokens in %u segments: estimated %zu, used %zu bytes", packed.n_tokens, packed.n_segments,
	              estimate, used);
	session_close(s);
	ck_assert_msg(free_bytes() + ((size_t)4 << 20) >= before, "a closed session leaves %zu bytes",
	              before - free_bytes());
	model_free(m);
}
END_TEST

/* Little memory is free when the session is opened: it takes fewer of them than its tokens alone would let it. */
START_TEST(short_segments_that_a_session_takes_fit)
{
	struct batch_size size = {0};
	size_t free_now, total;
	void *hog = NULL;
	struct session *s;
	struct model *m;

	if (!present("short segments") || !strcmp(device, "cpu"))
		return;
	m = make(&shapes[1]);
	s = open_session(m, device, "bf16", 0, 0); /* CUDA's own, once */
	ck_assert(session_takes(s, (struct batch_size){3000 * 4, 3000}));
	session_close(s);
	ck_assert_int_eq(cudaMemGetInfo(&free_now, &total), cudaSuccess);
	ck_assert_int_eq(cudaMalloc(&hog, free_now - ((size_t)480 << 20)), cudaSuccess);
	s = open_session(m, device, "bf16", 0, 0);
	while (session_takes(s, (struct batch_size){size.n_tokens + 4, size.n_segments + 1})) {
		size.n_tokens += 4;
		size.n_segments++;
	}
	fprintf(stderr, "  takes %llu segments of 4 tokens, and batches of %u tokens\n",
	        (unsigned long long)size.n_segments, session_batch_tokens(s));
	ck_assert_uint_gt(size.n_segments, 500);
	ck_assert_uint_lt(size.n_tokens + 4, session_batch_tokens(s));
	pack_documents((uint32_t)size.n_segments, 4);
	pack_run(s);
	session_close(s);
	cudaFree(hog);
	model_free(m);
}
END_TEST

/* Something else on the device takes its memory after the session was opened. */
START_TEST(a_batch_that_does_not_fit_fails_and_smaller_ones_go_on)
{
	struct batch b;
	struct token_score want[1000];
	size_t free_now, total;
	void *hog = NULL;
	struct session *s;
	struct model *m;

	if (!present("out of memory") || !strcmp(device, "cpu"))
		return;
	m = make(&shapes[10]);
	s = open_session(m, device, "bf16", 0, 0);
	pack_documents(4, 1000);
	pack_run(s);
	memcpy(want, packed.out, sizeof want);
	ck_assert_int_eq(cudaMemGetInfo(&free_now, &total), cudaSuccess);
	ck_assert_int_eq(cudaMalloc(&hog, free_now - ((size_t)128 << 20)), cudaSuccess);
	pack_documents(260, 1000);
	b = pack_batch();
	ck_err(session_score(s, &b, packed.out, &e), ERR_MEMORY, "MB", &e);
	fprintf(stderr, "  %s\n", e.msg);
	pack_documents(4, 1000);
	pack_run(s);
	pack_same(0, 1, want + 1, 999, "after a batch that did not fit");
	cudaFree(hog);
	pack_documents(260, 1000);
	pack_run(s);
	pack_same(259, 1, want + 1, 999, "once there is room");
	session_close(s);
	model_free(m);
}
END_TEST

/* -- faults, stopping ------------------------------------------------------------------------------ */

/* A model one of whose embedding rows, or weights of a layer, is replaced. */
static struct model *poisoned_model(void **copy, bool embedding, uint64_t index, float value)
{
	struct shape shape = shapes[0];
	struct model *m;

	shape.dtype = DTYPE_F32;
	shape.tied = false; /* the head shall not get the embedding's value */
	m = make(&shape);
	*copy = poison_tensor(embedding ? &m->embed : &m->layers[1].down, index, value);
	return m;
}

START_TEST(a_nan_fails_with_layer_and_position)
{
	uint32_t n = 400, *tokens = some_tokens(n, 900, 4);
	const char *dtype = dtypes[_i];
	struct token_score *want;
	struct session *s;
	struct batch b;
	void *copy;
	struct model *m;

	if (!present("a NaN") || !offers(dtype))
		return;
	tokens[333] = 999; /* position 333 of the chain of segment 1 */
	m = poisoned_model(&copy, true, 999 * 256 + 5, NAN);
	scores_refused(m, device, dtype, tokens, n, "layer 0, position 333 of segment 1: not a finite number");
	s = open_session(m, device, dtype, 0, 0);
	pack_clear();
	pack_add(-1, tokens, 300);
	pack_run(s);
	want = malloc(300 * sizeof *want);
	memcpy(want, packed.out, 300 * sizeof *want);
	pack_clear();
	pack_add(-1, tokens, n);
	b = pack_batch();
	ck_err(session_score(s, &b, packed.out, &e), ERR_NUMERIC, "position 333", &e);
	pack_clear();
	pack_add(-1, tokens, 300);
	pack_run(s);
	pack_same(0, 1, want + 1, 299, "after a fault");
	session_close(s);
	model_free(m);
	free(copy);
	m = poisoned_model(&copy, true, 999 * 256 + 5, INFINITY);
	scores_refused(m, device, dtype, tokens, n, "layer 0, position 333 of segment 1: not a finite number");
	model_free(m);
	free(copy);
	m = poisoned_model(&copy, false, 0, NAN); /* every row, from the first on */
	scores_refused(m, device, dtype, tokens, n, "layer 1, position 0 of segment 0: not a finite number");
	model_free(m);
	free(copy);
	free(want);
	free(tokens);
}
END_TEST

START_TEST(a_stopped_session_says_so_and_goes_on_after_resume)
{
	struct batch b;
	struct token_score want[1000];
	struct session *s;
	struct model *m;
	uint64_t done;

	if (!present("stopping"))
		return;
	m = make(&shapes[1]);
	s = open_session(m, device, "auto", 0, 0);
	pack_documents(4, 1000);
	pack_run(s);
	memcpy(want, packed.out, sizeof want);
	done = session_done_tokens(s);
	ck_assert_uint_eq(done, 4000);
	session_stop(s);
	b = pack_batch();
	ck_err(session_score(s, &b, packed.out, &e), ERR_CANCELLED, "stopped", &e);
	session_resume(s);
	pack_run(s);
	pack_same(3, 1, want + 1, 999, "after a stop");
	session_close(s);
	model_free(m);
}
END_TEST

/* -- what it says of itself ------------------------------------------------------------------------ */

START_TEST(the_device_is_described_and_auto_prefers_it)
{
	struct buf signature = BUF_INIT(4096);
	struct device_info info, best;

	if (!present("description") || !strcmp(device, "cpu"))
		return;
	ck_ok(device_describe(device, &info, &e), &e);
	fprintf(stderr, "  %s: %s, %s, %s, %zu MB free\n", info.device, info.name, info.isa, info.libraries,
	        info.memory_bytes >> 20);
	ck_assert_str_eq(info.device, device);
	ck_assert_str_eq(info.kind, "cuda");
	ck_assert_ptr_eq(strstr(info.isa, "sm_"), info.isa);
	ck_assert_ptr_nonnull(strstr(info.libraries, "cuBLAS"));
	ck_assert_str_eq(device_auto_dtype(&info), "bf16");
	ck_ok(device_describe("auto", &best, &e), &e);
	ck_assert_str_eq(best.kind, "cuda");
	ck_ok(engine_signature(device, "auto", &signature, &e), &e);
	ck_assert_ptr_nonnull(strstr(buf_str(&signature), info.name));
	ck_assert_ptr_nonnull(strstr(buf_str(&signature), "; bf16; "));
	ck_assert_ptr_nonnull(strstr(buf_str(&signature), info.libraries));
	ck_err(device_describe("cuda:99", &info, &e), ERR_DEVICE, "cuda:99", &e);
	ck_err(device_describe("cuda:x", &info, &e), ERR_DEVICE, "cuda:x", &e);
	buf_release(&signature);
}
END_TEST

Suite *gpu_engine_suite(void);
Suite *gpu_engine_suite(void)
{
	Suite *s = suite_create("gpu_engine");
	TCase *numbers = tcase_create("numbers"), *bits = tcase_create("bits"), *rest = tcase_create("rest");
	TCase *small = tcase_create("small"), *reference = tcase_create("reference");
	TCase *const cases[] = {small, numbers, reference, bits, rest};

	for (int i = 0; i < 5; i++) {
		tcase_set_tags(cases[i], cases[i] == small ? "gpu sanitize" : "gpu");
		tcase_set_timeout(cases[i], 120);
		suite_add_tcase(s, cases[i]);
	}
	tcase_set_timeout(small, 600);
	tcase_add_test(small, every_kernel_runs_once);
	tcase_add_test(numbers, scores_are_those_of_the_cpu_for_every_architecture);
	tcase_add_test(numbers, shapes_of_no_real_model_are_right_or_refused);
	tcase_add_loop_test(numbers, scores_of_trained_models_are_those_of_the_cpu, 0, 3);
	tcase_add_test(numbers, frequencies_are_used_as_on_the_cpu_in_every_architecture);
	tcase_add_loop_test(numbers, trained_models_use_frequencies_as_on_the_cpu, 0, 3);
	tcase_add_loop_test(reference, the_29m_models_agree_with_the_reference, 0, 3);
	tcase_add_loop_test(bits, a_score_depends_on_its_chain_alone, 0, 3);
	tcase_add_loop_test(bits, hundreds_of_sequences_may_be_cut_into_any_batches, 0, 4);
	tcase_add_test(bits, scores_of_trained_models_depend_on_the_chain_alone);
	tcase_add_loop_test(bits, a_layout_that_comes_again_gives_the_same_bits, 0, 2);
	tcase_add_loop_test(bits, a_probe_has_the_same_bits_every_time_and_changes_no_score, 0, 3);
	tcase_add_loop_test(bits, another_process_gives_the_same_bits, 0, 3);
	tcase_add_loop_test(rest, a_chain_of_131072_tokens_begins_as_a_short_one, 0, 2);
	tcase_add_loop_test(rest, memory_is_estimated_from_above_and_closely, 0, 8);
	tcase_add_test(rest, short_segments_that_a_session_takes_fit);
	tcase_add_test(rest, a_batch_that_does_not_fit_fails_and_smaller_ones_go_on);
	tcase_add_loop_test(rest, a_nan_fails_with_layer_and_position, 0, 3);
	tcase_add_test(rest, a_stopped_session_says_so_and_goes_on_after_resume);
	tcase_add_test(rest, the_device_is_described_and_auto_prefers_it);
	return s;
}
