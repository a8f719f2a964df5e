/* Gates over real runs: what the folds of every kind of task write as items gives back what they write as metrics, and
 * a model is the same as itself, however it is measured. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/gate.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_task.h"

#define N_TEXTS 12

static struct err e;
static const char *dir;
static struct model *base, *cand;

static void set_up(void)
{
	dir = fixture_tmpdir();
	base = fixture_eval_model(dir, "base", "rope");
	cand = fixture_eval_model(dir, "cand", "pope");
}

static void tear_down(void)
{
	model_free(base);
	model_free(cand);
}

/* A few words that depend on i and k alone. */
static void put_words(struct buf *out, unsigned i, unsigned k, unsigned n)
{
	static const char *const words[] = {"sea", "house",    "green", "light", "a",
	                                    "of",  "mountain", "went",  "the",   "we"};
	unsigned state = i * 7919 + k * 104729 + 17;

	for (unsigned w = 0; w < n; w++) {
		state = state * 1103515245 + 12345;
		buf_printf(out, "%s%s", w ? " " : "", words[state / 65536 % 10]);
	}
}

static const char *write_data(const char *name, const struct buf *text)
{
	static char path[4096];

	fixture_write(dir, name, buf_str(text), text->len);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

/* JSON lines of the form that each task reads. */
static const char *write_rows(const char *task)
{
	struct buf text = BUF_INIT(1 << 20);
	const char *path;

	for (unsigned i = 0; i < N_TEXTS; i++) {
		if (!strcmp(task, "hellaswag")) {
			put_words(&text, i, 0, 6);
			buf_printf(&text, "\n%u\n", i % 4);
			for (unsigned k = 0; k < 4; k++) {
				put_words(&text, i, k + 1, 1 + (i + 3 * k) % 5);
				buf_putc(&text, '\n');
			}
		} else if (!strcmp(task, "blimp")) {
			buf_puts(&text, "{\"sentence_good\":\"");
			put_words(&text, i, 1, 5);
			buf_puts(&text, ".\",\"sentence_bad\":\"");
			put_words(&text, i, 2, 5);
			buf_printf(&text, ".\",\"UID\":\"kind_%u\"}\n", i / 5);
		} else if (!strcmp(task, "token_nll")) {
			for (unsigned k = 0; k < 10 + i; k++)
				buf_printf(&text, "%u ", (i * 31 + k * 17) % 256);
			buf_putc(&text, '\n');
		} else {
			buf_puts(&text, "{\"text\":\"");
			put_words(&text, i, 0, !strcmp(task, "pg19") ? 60 + i : 12);
			buf_puts(&text, "\"}\n");
		}
	}
	path = write_data(!strcmp(task, "hellaswag")   ? "six.txt"
	                  : !strcmp(task, "token_nll") ? "ids.txt"
	                                               : "rows.jsonl",
	                  &text);
	buf_release(&text);
	return path;
}

/* The result object of a run, without its items; they are added one by one. */
static struct evidence *run_in(const struct model *m, const char *task, const char *params, const char *path,
                               int n_threads, uint32_t most)
{
	struct fixture_outcome o;
	struct buf text = BUF_INIT(1 << 22);
	struct json_writer w = JSON_WRITER(&text);
	struct evidence *ev = NULL;

	fixture_task_run_in(m, task, params, path, n_threads, most, &o);
	json_begin_object(&w, NULL);
	json_put_value(&w, "model", json_get(o.plan, "model"));
	json_begin_object(&w, "task");
	json_put_string(&w, "name", task);
	json_put_int(&w, "version", 1);
	json_put_value(&w, "params", o.params);
	json_end_object(&w);
	json_put_value(&w, "dataset", json_get(o.plan, "dataset"));
	json_put_value(&w, "engine", json_get(o.plan, "engine"));
	json_put_value(&w, "metrics", o.metrics);
	json_put_value(&w, "items", o.items);
	json_end_object(&w);
	ck_ok(evidence_parse(buf_str(&text), text.len, &ev, &e), &e);
	ck_assert_uint_ge(evidence_n_items(ev), N_TEXTS);
	buf_release(&text);
	fixture_outcome_release(&o);
	return ev;
}

static struct evidence *run(const struct model *m, const char *task, const char *params, const char *path)
{
	return run_in(m, task, params, path, 1, UINT32_MAX / 2);
}

static struct json *judge(const char *gate, const struct evidence *candidate, const struct evidence *baseline)
{
	struct gate_case c = {.candidate = &candidate, .baseline_name = "b", .baseline = &baseline, .n_baseline = 1};
	struct buf out = BUF_INIT(1 << 22);
	struct json_writer w = JSON_WRITER(&out);
	enum gate_verdict verdict;
	struct gate *g = NULL;
	struct json *j;

	ck_assert_msg(!gate_parse_text(gate, strlen(gate), &g, &e), "%s: %s", gate, e.msg);
	ck_ok(gate_judge(g, &c, &w, &verdict, &e), &e);
	j = fixture_json(buf_str(&out));
	gate_free(g);
	buf_release(&out);
	return j;
}

static const struct {
	const char *task, *params, *metric;
	int length;
	const char *group;
	double scale; /* of the difference of two values; 0: of their logarithms */
} metrics[] = {
    {"pg19", "{\"lengths\":[32,128],\"protocol\":\"windows\"}", "ppl_token", 32, NULL, 0},
    {"pg19", "{\"lengths\":[32,128],\"protocol\":\"sliding\",\"stride\":16}", "ppl_token", 128, NULL, 0},
    {"pg19", "{\"lengths\":[32,128],\"protocol\":\"prefix\"}", "nll_token", 128, NULL, 1},
    {"pg19", "{\"lengths\":[32,128],\"protocol\":\"prefix\"}", "bits_per_byte", 32, NULL, 1},
    {"pg19", "{\"lengths\":[32,128],\"protocol\":\"windows\"}", "ppl_word", 128, NULL, 0},
    {"pg19", "{\"lengths\":[32,128],\"protocol\":\"windows\"}", "ppl_doc_macro", 32, NULL, 0},
    {"text", "{}", "ppl_token", 0, NULL, 0},
    {"token_nll", "{}", "nll_token", 0, NULL, 1},
    {"lambada", "{}", "ppl", 0, NULL, 0},
    {"lambada", "{}", "acc", 0, NULL, -1},
    {"indirect_indexing", "{\"n\":40}", "logprob", 0, NULL, -1},
    {"indirect_indexing", "{\"n\":40}", "acc", 0, NULL, -1},
    {"hellaswag", "{}", "acc", 0, NULL, -1},
    {"hellaswag", "{}", "acc_norm", 0, NULL, -1},
    {"hellaswag", "{}", "acc_bytes", 0, NULL, -1},
    {"hellaswag", "{\"ties\":\"wrong\"}", "acc_token", 0, NULL, -1},
    {"blimp", "{}", "acc", 0, NULL, -1},
    {"blimp", "{}", "acc", 0, "kind_1", -1},
};

/* A gate with one rule, about the i-th of them. */
static void put_gate(struct buf *gate, int i, const char *path)
{
	buf_printf(
	    gate,
	    "{\"name\":\"g\",\"measure\":[{\"task\":\"%s\",%s\"params\":%s}],\"rules\":[{\"name\":\"r\",\"type\":"
	    "\"relative\",\"metric\":\"%s\",\"min_effect\":0.01",
	    metrics[i].task, path ? "\"dataset\":\"d\"," : "", metrics[i].params, metrics[i].metric);
	if (metrics[i].length)
		buf_printf(gate, ",\"length\":%d", metrics[i].length);
	if (metrics[i].group)
		buf_printf(gate, ",\"group\":\"%s\"", metrics[i].group);
	buf_puts(gate, "}]}");
}

/* The worsening that is computed item by item is the difference of what the folds say. */
START_TEST(items_come_to_what_the_metrics_say)
{
	const char *task = metrics[_i].task, *params = metrics[_i].params,
	           *path = strstr(params, "\"n\"") ? NULL : write_rows(task);
	struct evidence *a = run(base, task, params, path), *b = run(cand, task, params, path);
	struct buf gate = BUF_INIT(1 << 16);
	double delta, value, before, want;
	const struct json *rule;
	struct json *j;

	put_gate(&gate, _i, path);
	j = judge(buf_str(&gate), b, a);
	rule = json_first(json_get(j, "rules"));
	ck_assert_msg(json_get(rule, "delta"), "%s", json_get_string(rule, "message"));
	delta = fixture_member(rule, "delta");
	value = fixture_member(rule, "value");
	before = fixture_member(rule, "baseline_value");
	want = metrics[_i].scale == 0 ? log(value / before) : metrics[_i].scale * (value - before);
	ck_assert_msg(fabs(delta - want) < 1e-9, "%s: %.17g, not %.17g", json_get_string(rule, "message"), delta, want);
	ck_assert_int_ge((int)fixture_member(rule, "n"), 2);
	json_free(j);
	buf_release(&gate);
	evidence_free(a);
	evidence_free(b);
}
END_TEST

/* A/A: measured in one batch, in batches of one unit and of three, on one thread and on several. */
START_TEST(a_model_is_the_same_as_itself_in_any_batches_and_on_any_threads)
{
	static const struct {
		int n_threads;
		uint32_t most;
	} ways[] = {{1, UINT32_MAX / 2}, {1, 1}, {3, 3}, {2, UINT32_MAX / 2}};
	const char *task = metrics[_i].task, *params = metrics[_i].params,
	           *path = strstr(params, "\"n\"") ? NULL : write_rows(task);
	struct evidence *a = run(base, task, params, path), *b;
	struct buf gate = BUF_INIT(1 << 16);
	const struct json *rule;
	struct json *j;

	put_gate(&gate, _i, path);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		b = run_in(base, task, params, path, ways[i].n_threads, ways[i].most);
		j = judge(buf_str(&gate), b, a);
		rule = json_first(json_get(j, "rules"));
		ck_assert_msg(!strcmp(json_get_string(j, "verdict"), "pass"), "%s", json_get_string(rule, "message"));
		ck_assert_msg(strstr(json_get_string(rule, "message"), "is the same in all of"), "%s",
		              json_get_string(rule, "message"));
		ck_assert_double_eq(fixture_member(rule, "lower"), 0);
		ck_assert_double_eq(fixture_member(rule, "upper"), 0);
		json_free(j);
		evidence_free(b);
	}
	buf_release(&gate);
	evidence_free(a);
}
END_TEST

START_TEST(a_shape_is_paired_by_document)
{
	static const char
	    params[] = "{\"lengths\":[32,128],\"protocol\":\"prefix\"}",
	    gate[] =
	        "{\"name\":\"g\",\"measure\":[{\"task\":\"pg19\",\"dataset\":\"d\",\"params\":{\"lengths\":[32,128],"
	        "\"protocol\":\"prefix\"}}],\"rules\":[{\"name\":\"r\",\"type\":\"shape\",\"metric\":"
	        "\"ppl_token\",\"length\":128,\"over\":32,\"max_ratio\":1.1},{\"name\":\"p\",\"type\":"
	        "\"shape\",\"metric\":\"ppl_token\",\"length\":128,\"over\":32,\"max_ratio\":1.1,\"test\":"
	        "\"point\"}]}";
	struct evidence *a = run(base, "pg19", params, write_rows("pg19"));
	struct json *j = judge(gate, a, a);
	const struct json *paired = json_first(json_get(j, "rules")), *point = json_next(paired);

	ck_assert_int_eq((int)fixture_member(paired, "n"), N_TEXTS);
	ck_assert_double_eq_tol(fixture_member(paired, "value"), fixture_member(point, "value"), 1e-12);
	json_free(j);
	evidence_free(a);
}
END_TEST

Suite *gate_runs_suite(void);
Suite *gate_runs_suite(void)
{
	Suite *s = suite_create("gate_runs");
	TCase *t = tcase_create("gate_runs");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(t, items_come_to_what_the_metrics_say, 0, sizeof metrics / sizeof *metrics);
	tcase_add_loop_test(t, a_model_is_the_same_as_itself_in_any_batches_and_on_any_threads, 0,
	                    sizeof metrics / sizeof *metrics);
	tcase_add_test(t, a_shape_is_paired_by_document);
	suite_add_tcase(s, t);
	return s;
}
