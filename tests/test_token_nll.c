/* Task token_nll: pieces from JSON of any nesting and from lines, offset, cuts, items and the metric; and JSB chorales
 * against PyTorch's sums. Keys are those of hashlib.sha256 over what item_key.h says. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_task.h"

static struct model *m; /* 97 ids, no tokenizer */
static const char *dir;

static void set_up(void)
{
	char path[4200];
	struct err e;

	dir = fixture_tmpdir();
	snprintf(path, sizeof path, "%s/model", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	fixture_model_write(path, &FIXTURE_MODEL_DEFAULT);
	ck_ok(model_open(path, NULL, &m, &e), &e);
}

static void tear_down(void)
{
	model_free(m);
}

static const char *write_file(const char *name, const char *text)
{
	static char path[4200];

	fixture_write(dir, name, text, strlen(text));
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void expect_item(const struct fixture_outcome *o, size_t at, const char *doc, const char *key,
                        const uint32_t *ids, uint32_t n)
{
	const struct json *item = fixture_item(o, at);

	ck_assert_str_eq(json_get_string(item, "doc"), doc);
	ck_assert_str_eq(json_get_string(item, "key"), key);
	ck_assert_double_eq(fixture_member(item, "id"), (double)at);
	ck_assert_double_eq(fixture_member(item, "n_tokens"), n - 1);
	ck_assert_double_eq(fixture_member(item, "nll"), fixture_loss(m, ids, n, 1));
}

START_TEST(pieces_are_the_elements_of_the_split_flattened_in_order)
{
	static const char text[] =
	    "{\"train\":[[9,9,9]],\"test\":[[[0,1],[2],[[3]]],{\"a\":[4],\"b\":[5,6]},[7,8],[1]]}";
	static const uint32_t one[] = {1, 2, 3, 4}, two[] = {5, 6, 7}, three[] = {8, 9};
	struct fixture_outcome o;
	const struct json *n;

	fixture_task_run(m, "token_nll", "{\"offset\":1}", write_file("a.json", text), &o);
	ck_assert_uint_eq(json_count(o.items), 3);
	expect_item(&o, 0, "test[0]", "802510bd7d23f47b", one, 4);
	expect_item(&o, 1, "test[1]", "2f95760bef623dfb", two, 3);
	expect_item(&o, 2, "test[2]", "2a8cb9c5a34d07c2", three, 2);
	n = fixture_metric(o.metrics, "n_skipped", 0); /* a piece of one id predicts nothing */
	ck_assert_double_eq(fixture_member(n, "value"), 1);
	ck_assert_double_eq(fixture_member(n, "n"), 4);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "n_truncated", 0), "value"), 0);
	ck_assert_double_eq(fixture_member(json_get(o.plan, "dataset"), "n_docs"), 4);
	ck_assert_double_eq(fixture_member(json_get(o.plan, "dataset"), "n_items"), 3);
	ck_assert_double_eq(fixture_member(o.plan, "tokens"), 6);
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(a_split_an_array_and_lines_give_the_same_pieces)
{
	static const struct {
		const char *name, *text, *params, *docs[2];
	} cases[] = {
	    {"a.json", "{\"valid\":[[11,12,13,14,15],[5,6,7]]}", "{\"split\":\"valid\"}", {"valid[0]", "valid[1]"}},
	    {"b.json",
	     "{\"valid\":{\"x\":[11,12,13,14,15],\"y\":[5,6,7]}}",
	     "{\"split\":\"valid\"}",
	     {"valid[0]", "valid[1]"}},
	    {"c.json", "[[11,12,13,14,15],[5,6,7]]", "{}", {"[0]", "[1]"}},
	    {"d.jsonl", "[11,12,13,14,15]\n\n[[5],[6,7]]\n", "{}", {"line 1", "line 3"}},
	    {"e.txt", "11 12 13 14 15\r\n 5, 6 ,\t7", "{}", {"line 1", "line 2"}},
	    {"f.txt", "13 14 15 16 17\n7 8 9 \n", "{\"offset\":-2}", {"line 1", "line 2"}},
	};
	static const uint32_t one[] = {11, 12, 13, 14, 15}, two[] = {5, 6, 7};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fixture_outcome o;

		fixture_task_run(m, "token_nll", cases[i].params, write_file(cases[i].name, cases[i].text), &o);
		ck_assert_uint_eq(json_count(o.items), 2);
		expect_item(&o, 0, cases[i].docs[0], "07f7fbffcf21925b", one, 5);
		expect_item(&o, 1, cases[i].docs[1], "2f95760bef623dfb", two, 3);
		ck_assert(fixture_warned(&o, "'c.json' is an array") == !strcmp(cases[i].name, "c.json"));
		fixture_outcome_release(&o);
	}
}
END_TEST

START_TEST(the_first_max_tokens_and_one_ids_are_kept_and_the_rest_is_counted)
{
	static const uint32_t ids[] = {1, 2, 3, 4};
	struct fixture_outcome o;
	const struct json *n;

	/* 500 would not be in the vocabulary: what is cut off is not looked at */
	fixture_task_run(m, "token_nll", "{\"max_tokens\":3}",
	                 write_file("a.jsonl", "[1,2,3,4,5,500]\n[1,2,3,4]\n[8,9]\n"), &o);
	expect_item(&o, 0, "line 1", "802510bd7d23f47b", ids, 4);
	ck_assert(json_true(json_get(fixture_item(&o, 0), "truncated")));
	expect_item(&o, 1, "line 2", "802510bd7d23f47b", ids, 4);
	ck_assert_ptr_null(json_get(fixture_item(&o, 1), "truncated"));
	n = fixture_metric(o.metrics, "n_truncated", 0);
	ck_assert_double_eq(fixture_member(n, "value"), 1);
	ck_assert_double_eq(fixture_member(n, "n"), 3);
	ck_assert_str_eq(json_get_string(n, "unit"), "items");
	fixture_outcome_release(&o);
	fixture_task_run(m, "token_nll", "{\"limit\":2}", write_file("a.jsonl", "[1,2]\n[8,9]\n[3,500]\n"), &o);
	ck_assert_uint_eq(json_count(o.items), 2);
	fixture_outcome_release(&o);
}
END_TEST

/* r = sum S / sum n; se = sqrt(D/(D-1) sum (S - r n)^2) / sum n, over pieces. */
START_TEST(the_metric_is_clustered_by_piece)
{
	struct fixture_outcome o;
	const struct json *metric;
	double s = 0, n = 0, q = 0, r;

	fixture_task_run(m, "token_nll", "{}", write_file("a.jsonl", "[1,2,3,4,5]\n[8,9]\n[5,6,7]\n[3]\n"), &o);
	for (size_t i = 0; i < 3; i++) {
		s += fixture_member(fixture_item(&o, i), "nll");
		n += fixture_member(fixture_item(&o, i), "n_tokens");
	}
	r = s / n;
	for (size_t i = 0; i < 3; i++)
		q += pow(fixture_member(fixture_item(&o, i), "nll") -
		             r * fixture_member(fixture_item(&o, i), "n_tokens"),
		         2);
	metric = fixture_metric(o.metrics, "nll_token", 0);
	ck_assert_double_eq_tol(fixture_member(metric, "value"), r, 1e-14);
	ck_assert_double_eq_tol(fixture_member(metric, "stderr"), sqrt(1.5 * q) / n, 1e-14);
	ck_assert_double_eq(fixture_member(metric, "n"), 7);
	ck_assert_double_eq(fixture_member(metric, "n_docs"), 3);
	ck_assert_str_eq(json_get_string(metric, "unit"), "nats/token");
	fixture_outcome_release(&o);

	fixture_task_run(m, "token_nll", "{}", write_file("a.jsonl", "[1,2,3]\n"), &o);
	metric = fixture_metric(o.metrics, "nll_token", 0);
	ck_assert(json_is_null(json_get(metric, "stderr")));
	ck_assert_str_eq(json_get_string(metric, "reason"), "one_document");
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(bad_data_is_refused_with_file_place_and_value)
{
	static const struct {
		const char *name, *text, *params, *words;
	} cases[] = {
	    {"a.json", "{\"train\":[[1,2]],\"valid\":[]}", "{}",
	     "'a.json': no member 'test' (split), only: train, valid"},
	    {"a.json", "7", "{}", "'a.json': the file is number, not an object"},
	    {"a.json", "{\"test\":7}", "{}", "'a.json': 'test' is number, not an array"},
	    {"a.json", "{\"test\":[[1,2],[3,97]]}", "{}",
	     "'a.json': test[1]: id 97 is not in the model's vocabulary of 97"},
	    {"a.json", "{\"test\":[[1,96]]}", "{\"offset\":1}", "test[0]: id 97 (with the offset) is not in"},
	    {"a.json", "{\"test\":[[1,-1]]}", "{}", "test[0]: id -1 is not in"},
	    {"a.json", "{\"test\":[[1,2.5]]}", "{}", "test[0]: 2.5 is no integer"},
	    {"a.json", "{\"test\":[[1,[null]]]}", "{}", "test[0]: an id is null, not an integer"},
	    {"a.json", "{\"test\":[[1],[2]]}", "{}", "nothing to score: none of 2 pieces has a token after its first"},
	    {"a.json", "{\"test\":[]}", "{}", "no pieces"},
	    {"a.json", "{\"test\":[[1,2]]", "{}", "a.json"},
	    {"a.jsonl", "[1,2]\n[1,\"a\"]\n", "{}", "'a.jsonl' line 2: an id is string, not an integer"},
	    {"a.jsonl", "[1,2\n", "{}", "'a.jsonl' line 1: "},
	    {"a.txt", "1 2\n\n1 2x 3\n", "{}", "'a.txt' line 3: '2x' is no integer"},
	    {"a.txt", "{\"ids\":[1,2]}\n", "{}", "'a.txt' line 1: '{\"ids\":[1' is no integer"},
	    {"a.txt", "99999999999999999999 1", "{}", "line 1: 9223372036854775807 is no id"},
	    {"a.csv", "1 2\n", "{}", "a.csv"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		fixture_task_refused(m, "token_nll", cases[i].params, write_file(cases[i].name, cases[i].text),
		                     ERR_INPUT, cases[i].words);
}
END_TEST

START_TEST(a_model_without_a_tokenizer_scores_ids_and_is_refused_by_a_task_of_text)
{
	ck_assert_ptr_null(m->tokenizer);
	fixture_task_refused(m, "text", "{}", write_file("a.txt", "words"), ERR_INPUT,
	                     "has no tokenizer.json, and task text needs text");
}
END_TEST

/* The pieces' sums of PyTorch (float32) in reference_diagnostics.json, to their printed digits. */
START_TEST(jsb_chorales_have_the_losses_of_pytorch)
{
	static const char *const names[] = {"rope", "pope"};
	const char *data = fixture_data("jsb/jsb-chorales-16th.json"), *shared;
	struct json *reference = NULL;
	const struct json *want, *sums;
	struct fixture_outcome o;
	struct model *jsb = NULL;
	char path[4200];
	struct err e;
	double got;

	snprintf(path, sizeof path, "models/jsb-%s", names[_i]);
	shared = fixture_shared(path);
	if (!data || !shared) {
		fixture_skip("jsb_chorales_have_the_losses_of_pytorch", "no shared models and data");
		return;
	}
	ck_ok(model_open(shared, NULL, &jsb, &e), &e);
	ck_ok(json_parse_file(fixture_shared("models/reference_diagnostics.json"), 1 << 20, &reference, &e), &e);
	want = json_get(json_get(reference, names[_i]), "jsb");
	fixture_task_run(jsb, "token_nll", "{\"offset\":1,\"max_tokens\":2048}", data, &o);
	ck_assert_double_eq(json_count(o.items), fixture_member(want, "pieces"));
	got = fixture_member(fixture_metric(o.metrics, "nll_token", 0), "value");
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "nll_token", 0), "n"),
	                    fixture_member(want, "tokens"));
	ck_assert_double_eq_tol(got / fixture_member(want, "nll_token"), 1, 1e-5);
	sums = json_first(json_get(want, "nll_sum_first_5"));
	for (size_t i = 0; sums; sums = json_next(sums), i++) {
		double sum;

		ck_assert(json_number(sums, &sum));
		ck_assert_double_eq_tol(fixture_member(fixture_item(&o, i), "nll") / sum, 1, 1e-5);
	}
	fixture_outcome_release(&o);
	json_free(reference);
	model_free(jsb);
}
END_TEST

Suite *token_nll_suite(void);
Suite *token_nll_suite(void)
{
	Suite *s = suite_create("token_nll");
	TCase *t = tcase_create("small"), *jsb = tcase_create("jsb");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, pieces_are_the_elements_of_the_split_flattened_in_order);
	tcase_add_test(t, a_split_an_array_and_lines_give_the_same_pieces);
	tcase_add_test(t, the_first_max_tokens_and_one_ids_are_kept_and_the_rest_is_counted);
	tcase_add_test(t, the_metric_is_clustered_by_piece);
	tcase_add_test(t, bad_data_is_refused_with_file_place_and_value);
	tcase_add_test(t, a_model_without_a_tokenizer_scores_ids_and_is_refused_by_a_task_of_text);
	suite_add_tcase(s, t);
	tcase_set_timeout(jsb, 300);
	tcase_add_loop_test(jsb, jsb_chorales_have_the_losses_of_pytorch, 0, 2);
	suite_add_tcase(s, jsb);
	return s;
}
