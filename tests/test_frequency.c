/* Frequency use: the probe of a session, and the task over it: PyTorch's means (golden/frequencies), the same bits
 * whatever the chunk and the company, folds worked out by hand. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"
#include "tests/fixture_scores.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;

/* -- the task, from a folder of texts to metrics -------------------------------------------------- */

static const struct task *the_task(void)
{
	const struct task *t = task_find("frequency_use", &e);

	ck_assert_ptr_nonnull(t);
	return t;
}

/* n texts, a line each, as a .jsonl below a new folder. Static storage. */
static const char *write_texts(const struct json *texts)
{
	static char path[PATH_MAX];
	struct buf lines = BUF_INIT(1 << 20);
	const char *dir = fixture_tmpdir();

	for (const struct json *t = json_first(texts); t; t = json_next(t)) {
		struct json_writer w = JSON_WRITER(&lines);

		json_begin_object(&w, NULL);
		json_put_value(&w, "text", t);
		json_end_object(&w);
		buf_putc(&lines, '\n');
	}
	fixture_write(dir, "texts.jsonl", buf_str(&lines), lines.len);
	buf_release(&lines);
	snprintf(path, sizeof path, "%s/texts.jsonl", dir);
	return path;
}

static struct evaluation *open_texts(const struct model *m, const char *data, const char *given)
{
	struct json *params = fixture_params(the_task(), given);
	struct evaluation *ev = NULL;

	ck_ok(evaluation_open(m, the_task(), params, data, "texts", NULL, NULL, &ev, &e), &e);
	json_free(params);
	return ev;
}

static struct json *fold(struct fixture_units *u)
{
	struct json *params = fixture_params(the_task(), "{}");
	struct json *metrics = fixture_metrics(the_task(), params, u);

	json_free(params);
	return metrics;
}

static int add_line(void *arg, const char *line, size_t len)
{
	buf_append(arg, line, len);
	buf_putc(arg, '\n');
	return 0;
}

static err_code fold_items(struct fixture_units *u, struct buf *out)
{
	struct json *params = fixture_params(the_task(), "{}");
	err_code rc = task_items(the_task(), params, fixture_units_source(u), add_line, out, &e);

	json_free(params);
	return rc;
}

/* What the model makes of these texts. */
static struct json *measure(const struct model *m, const char *data, const char *given, const char *dtype)
{
	struct evaluation *ev = open_texts(m, data, given);
	struct session *s = open_session(m, "cpu", dtype, 2, 0);
	struct fixture_units u;
	struct json *metrics;

	fixture_units_init(&u, evaluation_n_units(ev));
	fixture_run(ev, s, NULL, 0, &u);
	metrics = fold(&u);
	fixture_units_release(&u);
	session_close(s);
	evaluation_free(ev);
	return metrics;
}

/* -- PyTorch's means ------------------------------------------------------------------------------ */

static const struct json *element(const struct json *array, int64_t i)
{
	array = json_first(array);
	while (array && i--)
		array = json_next(array);
	return array;
}

/* Every mean of the golden file, and nothing else, each within `relative`. */
static void check_means(const char *name, const struct json *metrics, const struct json *golden, double relative)
{
	size_t n_layer = json_count(json_get(golden, "q")), n_freq = json_count(json_get(golden, "theta"));

	ck_assert_uint_ge(n_layer, 3);
	ck_assert_uint_eq(json_count(metrics), 2 * n_layer * n_freq);
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		int64_t layer = (int64_t)fixture_member(m, "layer"), f = (int64_t)fixture_member(m, "frequency");
		const char *part = json_get_string(m, "part");
		double want, theta, got = fixture_member(m, "value");

		ck_assert_str_eq(json_get_string(m, "name"), "frequency_use");
		ck_assert_str_eq(json_get_string(m, "unit"), "magnitude");
		ck_assert(json_number(element(element(json_get(golden, part), layer), f), &want));
		ck_assert(json_number(element(json_get(golden, "theta"), f), &theta));
		ck_assert_double_eq_tol(fixture_member(m, "theta"), theta, theta * 1e-12);
		ck_assert_msg(fabs(got - want) <= relative * want, "%s: %s of layer %ld, frequency %ld: %.9g, not %.9g",
		              name, part, layer, f, got, want);
	}
}

/* f32: sums over 64 products and a norm before each q, k: some 2^-23 relative an element, less in a mean over a
 * thousand. bf16: 2^-9 an element where it is stored, and as much before it. */
static void check_golden(const char *name, const char *path, const char *dtype, double relative)
{
	struct json *golden = NULL, *metrics;
	const struct json *want;
	struct model *m = fixture_model_open(path, NULL);
	char given[64];

	ck_ok(json_parse_file("tests/golden/frequencies/use.json", 1 << 20, &golden, &e), &e);
	want = json_get(json_get(golden, "models"), name);
	ck_assert_ptr_nonnull(want);
	snprintf(given, sizeof given, "{\"length\":%.0f}", fixture_member(golden, "length"));
	metrics = measure(m, write_texts(json_get(golden, "texts")), given, dtype);
	check_means(name, metrics, want, relative);
	/* of queries and of keys: tokens times heads */
	ck_assert_double_eq(fixture_member(json_first(metrics), "n"), fixture_member(want, "n") * m->config.n_head);
	json_free(metrics);
	json_free(golden);
	model_free(m);
}

START_TEST(the_demos_models_have_pytorchs_means)
{
	check_golden("rope-demo", "eval/demo/rope-demo", "f32", 1e-6);
	check_golden("pope-demo", "eval/demo/pope-demo", "f32", 1e-6);
}
END_TEST

START_TEST(yarns_amplitude_is_no_use_of_a_frequency)
{
	check_golden("yarn-demo", "eval/demo/yarn-demo", "f32", 1e-6);
}
END_TEST

START_TEST(in_bf16_the_means_are_near)
{
	struct buf signature = BUF_INIT(4096);

	if (engine_signature("cpu", "bf16", &signature, &e)) {
		fixture_skip("in_bf16_the_means_are_near", e.msg);
		return;
	}
	buf_release(&signature);
	check_golden("rope-demo", "eval/demo/rope-demo", "bf16", 0x1p-8);
	check_golden("pope-demo", "eval/demo/pope-demo", "bf16", 0x1p-8);
}
END_TEST

START_TEST(the_29m_models_have_pytorchs_means)
{
	static const char *const names[] = {"rope-29m", "pope-29m"};

	for (size_t i = 0; i < COUNT(names); i++) {
		char path[64];
		const char *model;

		snprintf(path, sizeof path, "models/%s", names[i]);
		model = fixture_shared(path);
		if (!model)
			fixture_skip("the_29m_models_have_pytorchs_means", names[i]);
		else
			check_golden(names[i], model, "f32", 1e-6);
	}
}
END_TEST

/* -- the probe ----------------------------------------------------------------------------------- */

/* Sums of what is packed. free() them. */
static double *probe(struct session *s, const struct model *m, uint64_t *n_rows)
{
	size_t n = 2 * m->config.n_layer * position_count_freq(&m->config.position, m->config.head_dim);
	struct frequency_use use = {.sums = calloc(n, sizeof *use.sums)};

	ck_assert_ptr_nonnull(use.sums);
	session_probe(s, &use);
	pack_run(s);
	session_probe(s, NULL);
	*n_rows = use.n_rows;
	return use.sums;
}

static struct model *model_of(const char *position)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	f.position = position;
	return fixture_model_make(&f);
}

static void pack_documents(void)
{
	static const uint32_t lengths[] = {2, 33, 64, 65, 129, 300};

	pack_clear();
	for (uint32_t i = 0; i < COUNT(lengths); i++) {
		uint32_t *tokens = some_tokens(lengths[i], 97, i);

		pack_add(-1, tokens, lengths[i]);
		free(tokens);
	}
}

START_TEST(the_sums_have_the_same_bits_in_any_chunk_and_with_any_number_of_threads)
{
	static const struct {
		uint32_t threads, chunk;
	} under[] = {{1, 64}, {2, 64}, {2, 128}, {1, 192}, {3, 1024}};
	struct model *m = model_of(_i ? "pope" : "rope");
	struct session *s = open_session(m, "cpu", "f32", 1, 0);
	size_t bytes = 2 * m->config.n_layer * (_i ? 8 : 4) * sizeof(double);
	uint64_t want_rows, n_rows;
	double *want, *got;

	pack_documents();
	want = probe(s, m, &want_rows);
	session_close(s);
	ck_assert_uint_eq(want_rows, 1 + 32 + 63 + 64 + 128 + 299); /* all but a chain's last */
	for (size_t i = 0; i < COUNT(under); i++) {
		s = open_session(m, "cpu", "f32", under[i].threads, under[i].chunk);
		got = probe(s, m, &n_rows);
		session_close(s);
		ck_assert_uint_eq(n_rows, want_rows);
		ck_assert_msg(same_bits(got, want, bytes), "%u threads, chunks of %u", under[i].threads,
		              under[i].chunk);
		free(got);
	}
	free(want);
	model_free(m);
}
END_TEST

START_TEST(a_probe_adds_to_what_there_is_and_ends_when_it_is_taken_away)
{
	struct model *m = model_of("rope");
	struct session *s = open_session(m, "cpu", "f32", 1, 0);
	double sums[2 * 2 * 4] = {0}, first;
	struct frequency_use use = {.sums = sums};

	pack_documents();
	session_probe(s, &use);
	pack_run(s);
	first = sums[3];
	ck_assert_double_gt(first, 0);
	pack_run(s);
	ck_assert_uint_eq(use.n_rows, 2 * 587);
	ck_assert_double_eq_tol(sums[3], 2 * first, 1e-12 * first);
	session_probe(s, NULL);
	first = sums[3];
	pack_run(s);
	ck_assert_uint_eq(use.n_rows, 2 * 587);
	ck_assert_double_eq(sums[3], first);
	session_close(s);
	model_free(m);
}
END_TEST

START_TEST(a_probe_does_not_change_a_score)
{
	struct model *m = model_of("pope");
	struct session *s = open_session(m, "cpu", "f32", 2, 64);
	static struct token_score want[1000];
	uint64_t n_rows;

	pack_documents();
	ck_assert_uint_le(packed.n_tokens, COUNT(want));
	pack_run(s);
	memcpy(want, packed.out, packed.n_tokens * sizeof *want);
	free(probe(s, m, &n_rows));
	ck_assert(same_bits(packed.out, want, packed.n_tokens * sizeof *want));
	session_close(s);
	model_free(m);
}
END_TEST

/* Keys that come from an ancestor's rows count once, with the rows that made them. */
START_TEST(a_context_that_is_shared_counts_once)
{
	struct model *m = model_of("pope");
	struct session *s = open_session(m, "cpu", "f32", 1, 0);
	uint32_t *tokens = some_tokens(60, 97, 1);
	uint64_t n_rows;

	pack_clear();
	pack_add(-1, tokens, 40);
	pack_add(0, tokens + 40, 10);
	pack_add(0, tokens + 50, 10);
	free(probe(s, m, &n_rows));
	ck_assert_uint_eq(n_rows, 40 + 9 + 9);
	free(tokens);
	session_close(s);
	model_free(m);
}
END_TEST

/* -- units --------------------------------------------------------------------------------------- */

/* Texts of 1, 2, 30 and 11 bytes for a model of bytes. */
#define TEXTS "[\"x\",\"ab\",\"It was the best of times, it w\",\"Call me Ish\"]"

static const char *write_default_texts(void)
{
	struct json *texts = fixture_json(TEXTS);
	const char *path = write_texts(texts);

	json_free(texts);
	return path;
}

START_TEST(every_token_that_is_read_counts_once)
{
	struct model *m = fixture_eval_model(fixture_tmpdir(), "tiny", "rope");
	const char *data = write_default_texts();
	struct evaluation *ev = open_texts(m, data, "{\"length\":8}");
	struct buf warnings = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&warnings);
	struct place place = {.dtype = "f32"};
	struct json *metrics = measure(m, data, "{\"length\":8}", "f32");

	/* the text of one byte has no input and is left out; each other text's last token is only predicted */
	ck_assert_uint_eq(evaluation_n_units(ev), 3);
	ck_assert_uint_eq(evaluation_unit_tokens(ev, 0), 1);
	ck_assert_uint_eq(evaluation_unit_tokens(ev, 1), 29);
	ck_assert_uint_eq(evaluation_unit_tokens(ev, 2), 10);
	ck_assert_uint_eq(evaluation_tokens(ev), 40);
	json_begin_object(&w, NULL);
	evaluation_write_plan(ev, "tiny", &place, 0, &w);
	json_end_object(&w);
	ck_assert_ptr_nonnull(strstr(buf_str(&warnings), "min_doc_tokens 2 leaves out 1 of 4 documents"));
	ck_assert_ptr_null(strstr(buf_str(&warnings), "beyond the model's context"));
	buf_release(&warnings);
	for (const struct json *j = json_first(metrics); j; j = json_next(j)) /* 4 query heads, 2 of keys */
		ck_assert_double_eq(fixture_member(j, "n"), strcmp(json_get_string(j, "part"), "q") ? 80 : 160);
	json_free(metrics);
	evaluation_free(ev);
	model_free(m);
}
END_TEST

START_TEST(parameters_choose_what_is_read)
{
	struct model *m = fixture_eval_model(fixture_tmpdir(), "tiny", "rope");
	const char *data = write_default_texts();
	struct evaluation *ev = open_texts(m, data, "{\"max_docs\":2,\"max_tokens_per_doc\":20,\"length\":100}");
	struct buf plan = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&plan);
	struct place place = {.dtype = "f32"};

	ck_assert_uint_eq(evaluation_n_units(ev), 2);
	ck_assert_uint_eq(evaluation_tokens(ev), 1 + 19);
	json_begin_object(&w, NULL);
	evaluation_write_plan(ev, "tiny", &place, 0, &w);
	json_end_object(&w);
	ck_assert_ptr_nonnull(strstr(buf_str(&plan), "windows of 100 tokens are beyond the model's context of 64"));
	buf_release(&plan);
	evaluation_free(ev);
	model_free(m);
}
END_TEST

START_TEST(a_unit_has_the_same_bits_alone_and_after_others)
{
	struct model *m = fixture_eval_model(fixture_tmpdir(), "tiny", _i ? "pope" : "rope");
	struct evaluation *ev = open_texts(m, write_default_texts(), "{\"length\":7}");
	static const uint32_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
	struct fixture_units u[COUNT(orders)];

	for (size_t i = 0; i < COUNT(orders); i++) {
		struct session *s = open_session(m, "cpu", "f32", 1 + (uint32_t)i, i ? 64 : 0);

		fixture_units_init(&u[i], 3);
		if (i)
			fixture_run(ev, s, orders[i], 3, &u[i]);
		else
			for (uint32_t k = 0; k < 3; k++)
				fixture_run(ev, s, &orders[i][k], 1, &u[i]);
		session_close(s);
		for (uint32_t k = 0; k < 3; k++)
			ck_assert_str_eq(u[i].text[k], u[0].text[k]);
	}
	for (size_t i = 0; i < COUNT(orders); i++)
		fixture_units_release(&u[i]);
	evaluation_free(ev);
	model_free(m);
}
END_TEST

/* Memory decides how many windows are scored together; it does not decide a bit. */
START_TEST(a_long_document_has_the_same_bits_in_any_batches)
{
	struct model *m = fixture_eval_model(fixture_tmpdir(), "tiny", "pope");
	struct buf text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&text);
	struct session *s = fixture_eval_session(m);
	struct fixture_units u[2];
	struct evaluation *ev;
	struct json *texts;
	char book[9001];

	for (int i = 0; i < 9000; i++)
		book[i] = (char)('a' + i * i % 23);
	book[9000] = '\0';
	json_begin_array(&w, NULL);
	json_put_string(&w, NULL, book);
	json_end_array(&w);
	texts = fixture_json(buf_str(&text));
	ev = open_texts(m, write_texts(texts), "{\"length\":50}");
	ck_assert_uint_lt(session_batch_tokens(s), evaluation_unit_tokens(ev, 0)); /* two batches, then ten */
	for (int i = 0; i < 2; i++) {
		while (i && session_shrink(s))
			;
		fixture_units_init(&u[i], 1);
		fixture_run(ev, s, NULL, 0, &u[i]);
	}
	ck_assert_uint_le(session_batch_tokens(s), 1024);
	ck_assert_str_eq(u[0].text[0], u[1].text[0]);
	fixture_units_release(&u[0]);
	fixture_units_release(&u[1]);
	evaluation_free(ev);
	session_close(s);
	json_free(texts);
	buf_release(&text);
	model_free(m);
}
END_TEST

START_TEST(a_document_that_is_not_finite_fails_alone)
{
	const char *dir = fixture_tmpdir(), *data;
	char path[PATH_MAX];
	struct evaluation *ev;
	struct fixture_units u;
	struct session *s;
	struct model *m;

	model_free(fixture_eval_model(dir, "tiny", "rope"));
	fixture_eval_poison(dir, "tiny", 'C');
	snprintf(path, sizeof path, "%s/tiny", dir);
	m = fixture_model_open(path, NULL);
	data = write_default_texts();
	ev = open_texts(m, data, "{\"length\":8}");
	s = fixture_eval_session(m);
	fixture_units_init(&u, 3);
	fixture_run(ev, s, NULL, 0, &u);
	ck_assert_ptr_nonnull(u.text[0]);
	ck_assert_ptr_nonnull(u.text[1]);
	ck_assert_ptr_null(u.text[2]);
	ck_assert_ptr_nonnull(strstr(u.error[2], "layer 0, position 0"));
	fixture_units_release(&u);
	session_close(s);
	evaluation_free(ev);
	model_free(m);
}
END_TEST

START_TEST(what_cannot_be_measured_is_refused)
{
	static const char texts[] = "{\"text\":\"x\"}\n{\"text\":\"\"}\n";
	const char *dir = fixture_tmpdir();
	struct model *m = model_of("rope"), *tiny = fixture_eval_model(dir, "tiny", "rope");
	struct json *params = fixture_params(the_task(), "{}");
	struct evaluation *ev = NULL;
	char path[PATH_MAX];

	fixture_write(dir, "short.jsonl", texts, strlen(texts));
	snprintf(path, sizeof path, "%s/short.jsonl", dir);
	ck_err(evaluation_open(m, the_task(), params, path, "short", NULL, NULL, &ev, &e), ERR_INPUT,
	       "has no tokenizer.json, and task frequency_use needs text", &e);
	ck_err(evaluation_open(tiny, the_task(), params, path, "short", NULL, NULL, &ev, &e), ERR_INPUT,
	       "dataset 'short': no document has 2 tokens (min_doc_tokens); 2 are shorter", &e);
	json_free(params);
	model_free(m);
	model_free(tiny);
}
END_TEST

/* -- folds --------------------------------------------------------------------------------------- */

#define UNIT(n, a, b, c, d)                                                                                            \
	"{\"doc\":0,\"name\":\"a\",\"key\":\"0123456789abcdef\",\"length\":8,\"n\":" #n                                \
	",\"n_head\":4,\"n_kv_head\":2,\"theta\":[1,0.01],"                                                            \
	"\"q\":[[" #a "," #b "]],\"k\":[[" #c "," #d "]]}"

static void units_of(struct fixture_units *u, const char *first, const char *second)
{
	fixture_units_init(u, 3);
	u->text[0] = strdup(first);
	u->text[2] = strdup(second); /* unit 1 failed */
}

START_TEST(a_mean_is_over_tokens_and_heads_and_not_over_documents)
{
	/* queries: (8 + 40) / (4 tokens * 4 heads) = 3 and 16 / 16; keys, of 2 heads: (6 + 10) / 8 = 2 and 4 / 8 */
	static const double want[] = {3, 1, 2, .5}, n[] = {16, 16, 8, 8}, theta[] = {1, .01};
	struct fixture_units u;
	const struct json *m;
	struct json *metrics;

	units_of(&u, UNIT(1, 8, 4, 6, 1), UNIT(3, 40, 12, 10, 3));
	metrics = fold(&u);
	ck_assert_uint_eq(json_count(metrics), 4);
	m = json_first(metrics);
	for (int i = 0; i < 4; i++, m = json_next(m)) {
		ck_assert_str_eq(json_get_string(m, "part"), i < 2 ? "q" : "k");
		ck_assert_double_eq(fixture_member(m, "layer"), 0);
		ck_assert_double_eq(fixture_member(m, "frequency"), i % 2);
		ck_assert_double_eq(fixture_member(m, "theta"), theta[i % 2]);
		ck_assert_double_eq(fixture_member(m, "value"), want[i]);
		ck_assert_double_eq(fixture_member(m, "n"), n[i]);
	}
	json_free(metrics);
	fixture_units_release(&u);
}
END_TEST

START_TEST(an_item_is_a_document_with_means_of_its_own)
{
	struct buf lines = BUF_INIT(1 << 20);
	struct fixture_units u;

	units_of(&u, UNIT(1, 8, 4, 6, 1), UNIT(3, 48, 12, 12, 3));
	ck_ok(fold_items(&u, &lines), &e);
	ck_assert_str_eq(buf_str(&lines), "{\"id\":0,\"key\":\"0123456789abcdef\",\"doc\":\"a\",\"length\":8,\"n_"
	                                  "tokens\":1,\"q\":[[2,1]],\"k\":[[3,0.5]]}\n"
	                                  "{\"id\":2,\"key\":\"0123456789abcdef\",\"doc\":\"a\",\"length\":8,\"n_"
	                                  "tokens\":3,\"q\":[[4,1]],\"k\":[[2,0.5]]}\n");
	buf_release(&lines);
	fixture_units_release(&u);
}
END_TEST

START_TEST(a_malformed_unit_is_named)
{
	static const struct {
		const char *unit, *words;
	} cases[] = {
	    {"{}", "unit 2: its result has no usable 'q'"},
	    {UNIT(0, 1, 1, 1, 1), "'n'"},
	    {UNIT(1, 1, 1, 1, "x"), "'k'"},
	    {"{\"n\":1,\"q\":[[1,2],[3,4]],\"k\":[[1,2],[3,4]]}", "'q'"},
	    {"{\"n\":1,\"q\":[[1,2]],\"k\":[[1,2,3]]}", "'k'"},
	    {"{\"n\":1,\"q\":[[1]],\"k\":[[1,2]]}", "'q'"},
	};
	struct json *params = fixture_params(the_task(), "{}");

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf out = BUF_INIT(1 << 20);
		struct json_writer w = JSON_WRITER(&out);
		struct fixture_units u;

		units_of(&u, UNIT(1, 1, 1, 1, 1), cases[i].unit);
		ck_err(task_metrics(the_task(), params, fixture_units_source(&u), &w, NULL, &e), ERR_INPUT,
		       cases[i].words, &e);
		buf_release(&out);
		fixture_units_release(&u);
	}
	json_free(params);
}
END_TEST

START_TEST(parameters_are_checked)
{
	struct json *given = fixture_json("{\"length\":0}");
	struct buf out = BUF_INIT(1 << 20);

	ck_err(task_params(the_task(), given, &out, &e), ERR_INPUT, "length: 0 is not an integer from 1", &e);
	json_free(given);
	buf_clear(&out);
	ck_ok(task_params(the_task(), NULL, &out, &e), &e);
	ck_assert_str_eq(buf_str(&out),
	                 "{\"length\":1024,\"max_docs\":null,\"max_tokens_per_doc\":null,\"min_doc_tokens\":2}");
	buf_release(&out);
}
END_TEST

Suite *frequency_suite(void);
Suite *frequency_suite(void)
{
	Suite *s = suite_create("frequency");
	TCase *golden = tcase_create("golden"), *probe_case = tcase_create("probe"), *task = tcase_create("task");

	tcase_set_timeout(golden, 120);
	tcase_add_test(golden, the_demos_models_have_pytorchs_means);
	tcase_add_test(golden, yarns_amplitude_is_no_use_of_a_frequency);
	tcase_add_test(golden, in_bf16_the_means_are_near);
	tcase_add_test(golden, the_29m_models_have_pytorchs_means);
	tcase_add_loop_test(probe_case, the_sums_have_the_same_bits_in_any_chunk_and_with_any_number_of_threads, 0, 2);
	tcase_add_test(probe_case, a_probe_adds_to_what_there_is_and_ends_when_it_is_taken_away);
	tcase_add_test(probe_case, a_probe_does_not_change_a_score);
	tcase_add_test(probe_case, a_context_that_is_shared_counts_once);
	tcase_add_test(task, every_token_that_is_read_counts_once);
	tcase_add_test(task, parameters_choose_what_is_read);
	tcase_add_loop_test(task, a_unit_has_the_same_bits_alone_and_after_others, 0, 2);
	tcase_add_test(task, a_long_document_has_the_same_bits_in_any_batches);
	tcase_add_test(task, a_document_that_is_not_finite_fails_alone);
	tcase_add_test(task, what_cannot_be_measured_is_refused);
	tcase_add_test(task, a_mean_is_over_tokens_and_heads_and_not_over_documents);
	tcase_add_test(task, an_item_is_a_document_with_means_of_its_own);
	tcase_add_test(task, a_malformed_unit_is_named);
	tcase_add_test(task, parameters_are_checked);
	suite_add_tcase(s, golden);
	suite_add_tcase(s, probe_case);
	suite_add_tcase(s, task);
	return s;
}
