/* Task indirect_indexing: its generator and the numbers under it, what a line must be, what is scored of it; and the
 * shared models against PyTorch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "eval/random.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_task.h"

#define TASK "indirect_indexing"

static struct err e;
static struct model *m; /* bytes are tokens */
static const char *dir;

static void set_up(void)
{
	dir = fixture_tmpdir();
	m = fixture_eval_model(dir, "m", "pope");
}

static void tear_down(void)
{
	model_free(m);
}

static const char *path_of(const char *name)
{
	static char path[4200];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static const char *write_file(const char *name, const char *text)
{
	fixture_write(dir, name, text, strlen(text));
	return path_of(name);
}

/* -- numbers and lines ------------------------------------------------------------------------- */

/* Published: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64 (1234567), and the first of state 0. */
START_TEST(random_numbers_are_those_of_splitmix64)
{
	static const uint64_t want[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
	                                UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
	                                UINT64_C(16408922859458223821)};
	uint64_t state = 1234567, zero = 0;

	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		ck_assert_uint_eq(random_next(&state), want[i]);
	ck_assert_uint_eq(random_next(&zero), UINT64_C(0xE220A8397B1DCDAF));
}
END_TEST

START_TEST(numbers_below_a_bound_are_each_as_likely)
{
	uint64_t state = 7;
	int seen[6] = {0};

	for (int i = 0; i < 60000; i++)
		seen[random_below(&state, 6)]++;
	for (int i = 0; i < 6; i++) /* five standard deviations of a binomial: 91 */
		ck_assert_msg(abs(seen[i] - 10000) < 457, "%d: %d times", i, seen[i]);
	for (int i = 0; i < 100; i++)
		ck_assert_uint_eq(random_below(&state, 1), 0);
}
END_TEST

static void generate(int64_t n, int64_t seed, struct buf *out)
{
	char given[100];
	struct json *params;

	snprintf(given, sizeof given, "{\"n\":%lld,\"seed\":%lld}", (long long)n, (long long)seed);
	params = fixture_params(task_find(TASK, &e), given);
	*out = BUF_INIT(1 << 24);
	ck_ok(task_generate(task_find(TASK, &e), params, out, &e), &e);
	json_free(params);
}

START_TEST(a_seed_gives_the_same_lines_everywhere)
{
	struct json *golden = NULL;

	ck_ok(json_parse_file("tests/golden/indirect/lines.json", 1 << 20, &golden, &e), &e);
	ck_assert_uint_eq(json_count(golden), 3);
	for (const struct json *g = json_first(golden); g; g = json_next(g)) {
		struct buf lines, few;
		char hex[SHA256_HEX];
		size_t at = 0;

		generate((int64_t)fixture_member(g, "n"), (int64_t)fixture_member(g, "seed"), &lines);
		for (const struct json *l = json_first(json_get(g, "first")); l; l = json_next(l)) {
			ck_assert_int_eq(strncmp(lines.data + at, json_string(l), strlen(json_string(l))), 0);
			at += strlen(json_string(l));
		}
		sha256_hex(lines.data, lines.len, hex);
		ck_assert_str_eq(hex, json_get_string(g, "sha256"));
		generate(3, (int64_t)fixture_member(g, "seed"), &few); /* the first lines of a longer run */
		ck_assert_uint_eq(few.len, at);
		ck_assert_int_eq(memcmp(few.data, lines.data, at), 0);
		buf_release(&lines);
		buf_release(&few);
	}
	json_free(golden);
}
END_TEST

/* pope.md: 20 to 40 distinct letters, a source, a shift in [-15, 15] that stays inside, the letter there. */
START_TEST(generated_lines_keep_the_rule)
{
	struct buf lines;
	int lengths[41] = {0}, shifts[31] = {0}, n = 0;
	char *save = NULL;

	generate(6000, 3, &lines);
	for (char *l = strtok_r(lines.data, "\n", &save); l; l = strtok_r(NULL, "\n", &save), n++) {
		char string[60], source, target;
		int shift, length;
		ptrdiff_t at;

		ck_assert_int_eq(sscanf(l, "%59[A-Za-z], %c, %d, %c", string, &source, &shift, &target), 4);
		length = (int)strlen(string);
		ck_assert(length >= 20 && length <= 40 && shift >= -15 && shift <= 15);
		for (const char *s = string; *s; s++)
			ck_assert_ptr_null(strchr(s + 1, *s));
		ck_assert_ptr_nonnull(strchr(string, source));
		at = strchr(string, source) - string + shift;
		ck_assert(at >= 0 && at < length);
		ck_assert_int_eq(string[at], target);
		ck_assert(strstr(l, shift < 0 ? ", -" : ", +") != NULL); /* 0 is "+0" */
		lengths[length]++;
		shifts[shift + 15]++;
	}
	ck_assert_int_eq(n, 6000);
	for (int i = 20; i <= 40; i++) /* 286 each, standard deviation 16.5 */
		ck_assert_msg(abs(lengths[i] - 286) < 83, "length %d: %d times", i, lengths[i]);
	for (int i = 0; i <= 15; i++) /* the further, the rarer; both ways alike */
		ck_assert(shifts[15 + i] > 60 && shifts[15 - i] > 60 && abs(shifts[15 + i] - shifts[15 - i]) < 110);
	ck_assert_int_gt(shifts[15], shifts[0]);
	buf_release(&lines);
}
END_TEST

START_TEST(parameters_say_whether_lines_are_generated)
{
	static const struct {
		const char *given, *want;
	} cases[] = {
	    {"{}", "{\"n\":null,\"seed\":null,\"limit\":null,\"max_length\":null}"},
	    {"{\"n\":5}", "{\"n\":5,\"seed\":0,\"limit\":null,\"max_length\":null}"},
	    {"{\"n\":5,\"seed\":9}", "{\"n\":5,\"seed\":9,\"limit\":null,\"max_length\":null}"},
	};
	const struct task *t = task_find(TASK, &e);
	struct json *j = fixture_json("{\"seed\":1}");
	struct buf text = BUF_INIT(1000);

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct json *params = fixture_params(task_find(TASK, &e), cases[i].given),
		            *want = fixture_json(cases[i].want);
		bool generates = strstr(cases[i].want, "\"n\":5") != NULL;

		for (const struct json *a = json_first(want); a; a = json_next(a))
			ck_assert(json_is_null(a)
			              ? json_is_null(json_get(params, json_key(a)))
			              : fixture_member(want, json_key(a)) == fixture_member(params, json_key(a)));
		ck_assert(task_generates(t, params) == generates);
		ck_assert_int_eq(task_check_dataset(t, params, generates, &e), ERR_INPUT);
		ck_ok(task_check_dataset(t, params, !generates, &e), &e);
		json_free(params);
		json_free(want);
	}
	ck_err(task_params(t, j, &text, &e), ERR_INPUT, "seed: only lines that are generated have one", &e);
	ck_assert_str_eq(e.pointer, "/seed");
	buf_release(&text);
	json_free(j);
}
END_TEST

/* -- scoring ----------------------------------------------------------------------------------- */

static const char two_lines[] = "abcdefg, c, +2, e\r\n\nZYXWV, V, -4, Z\n";

static double line_loss(const struct model *of, const char *line, size_t skip, int bos)
{
	uint32_t ids[100], n = 0;

	if (bos >= 0)
		ids[n++] = (uint32_t)bos;
	for (line += skip; *line; line++)
		ids[n++] = (unsigned char)*line;
	return fixture_loss(of, ids, n, n - 1);
}

static double first_of(const struct json *item, const char *key)
{
	double v = 0;

	ck_assert(json_number(json_first(json_get(item, key)), &v));
	return v;
}

START_TEST(only_the_last_token_of_a_line_is_scored)
{
	static const char *const lines[] = {"abcdefg, c, +2, e", "ZYXWV, V, -4, Z"}, *const docs[] = {"line 1",
	                                                                                              "line 3"};
	struct fixture_outcome o;
	double sum = 0, right = 0;

	fixture_task_run(m, TASK, "{}", write_file("l.txt", two_lines), &o);
	ck_assert_uint_eq(json_count(o.items), 2);
	for (size_t i = 0; i < 2; i++) {
		const struct json *item = fixture_item(&o, i);
		double loss = line_loss(m, lines[i], 0, -1);

		ck_assert_str_eq(json_get_string(item, "doc"), docs[i]);
		ck_assert_double_eq(first_of(item, "logprobs"), -loss);
		ck_assert_double_eq(first_of(item, "n_tokens"), 1);
		ck_assert_double_eq(first_of(item, "n_chars"), 1);
		ck_assert(json_true(json_get(item, "correct")) == json_true(json_first(json_get(item, "greedy"))));
		sum -= loss;
		right += json_true(json_get(item, "correct"));
	}
	ck_assert_double_eq_tol(fixture_member(fixture_metric(o.metrics, "logprob", 0), "value"), sum / 2, 1e-15);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "acc", 0), "value"), right / 2);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "acc", 0), "n"), 2);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "n_truncated", 0), "value"), 0);
	fixture_outcome_release(&o);
}
END_TEST

/* By hand: acc 3/4, sqrt(3/4 1/4 / 3) = 1/4; the mean of -1/2, -1, -2, -4 is -15/8, the sum of squares of what they
 * differ from it 7.1875, and sqrt(7.1875 / 3 / 4) = .773924. */
START_TEST(errors_are_those_of_a_fraction_and_of_a_mean)
{
	static const struct {
		const char *nll, *greedy;
	} lines[] = {{"0.5", "true"}, {"1", "false"}, {"2", "true"}, {"4", "true"}};
	struct json *params = fixture_params(task_find(TASK, &e), "{}"), *metrics;
	const struct json *acc, *logprob;
	struct fixture_units u;
	char result[200];

	fixture_units_init(&u, 4);
	for (int i = 0; i < 4; i++) {
		snprintf(
		    result, sizeof result,
		    "{\"name\":\"line\",\"item\":%d,\"n\":1,\"nll\":%s,\"greedy\":%s,\"key\":\"0123456789abcdef\"}", i,
		    lines[i].nll, lines[i].greedy);
		u.text[i] = strdup(result);
	}
	metrics = fixture_metrics(task_find(TASK, &e), params, &u);
	acc = fixture_metric(metrics, "acc", 0);
	logprob = fixture_metric(metrics, "logprob", 0);
	ck_assert_double_eq(fixture_member(acc, "value"), .75);
	ck_assert_double_eq_tol(fixture_member(acc, "stderr"), .25, 1e-15);
	ck_assert_str_eq(json_get_string(acc, "unit"), "fraction");
	ck_assert_double_eq(fixture_member(logprob, "value"), -1.875);
	ck_assert_double_eq_tol(fixture_member(logprob, "stderr"), .773924, 1e-6);
	ck_assert_str_eq(json_get_string(logprob, "unit"), "nats");
	json_free(metrics);
	json_free(params);
	fixture_units_release(&u);
}
END_TEST

START_TEST(of_a_longer_line_the_last_tokens_are_read)
{
	struct fixture_outcome o;

	fixture_task_run(m, TASK, "{\"max_length\":15}", write_file("l.txt", two_lines), &o);
	ck_assert_double_eq(first_of(fixture_item(&o, 0), "logprobs"), -line_loss(m, "abcdefg, c, +2, e", 1, -1));
	ck_assert(json_true(json_get(fixture_item(&o, 0), "truncated")));
	ck_assert_double_eq(first_of(fixture_item(&o, 1), "logprobs"), -line_loss(m, "ZYXWV, V, -4, Z", 0, -1));
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "n_truncated", 0), "value"), 1);
	fixture_outcome_release(&o);
	fixture_task_run(m, TASK, "{\"limit\":1}", path_of("l.txt"), &o);
	ck_assert_uint_eq(json_count(o.items), 1);
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(what_the_tokenizer_adds_before_a_text_is_read_and_what_it_adds_behind_is_not)
{
	struct model *bos = NULL;
	struct fixture_outcome o;

	fixture_edit(
	    path_of("m"), "tokenizer.json", "\"post_processor\":null",
	    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"b\"}},"
	    "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"e\"}}],\"special_tokens\":{"
	    "\"b\":{\"id\":\"b\",\"ids\":[256]},\"e\":{\"id\":\"e\",\"ids\":[256]}}}");
	ck_ok(model_open(path_of("m"), NULL, &bos, &e), &e);
	fixture_task_run(bos, TASK, "{}", write_file("l.txt", two_lines), &o);
	ck_assert_double_eq(first_of(fixture_item(&o, 0), "logprobs"), -line_loss(bos, "abcdefg, c, +2, e", 0, 256));
	fixture_outcome_release(&o);
	model_free(bos);
}
END_TEST

START_TEST(generated_lines_score_as_the_same_lines_in_a_file)
{
	struct fixture_outcome a, b;
	struct buf lines;

	generate(40, 11, &lines);
	fixture_write(dir, "x.txt", lines.data, lines.len);
	fixture_task_run(m, TASK, "{\"n\":40,\"seed\":11}", NULL, &a);
	fixture_task_run(m, TASK, "{}", path_of("x.txt"), &b);
	ck_assert_str_eq(json_get_string(json_get(a.plan, "dataset"), "name"), "generated");
	ck_assert_uint_eq(json_count(a.items), 40);
	for (size_t i = 0; i < 40; i++) {
		const struct json *x = fixture_item(&a, i), *y = fixture_item(&b, i);

		ck_assert_str_eq(json_get_string(x, "key"), json_get_string(y, "key"));
		ck_assert_str_eq(json_get_string(x, "doc"), json_get_string(y, "doc"));
		ck_assert_double_eq(first_of(x, "logprobs"), first_of(y, "logprobs"));
	}
	buf_release(&lines);
	fixture_outcome_release(&a);
	fixture_outcome_release(&b);
}
END_TEST

/* As of a file of that name: other parameters, other data. */
START_TEST(the_fingerprint_is_of_the_generated_text)
{
	const char *path;
	char want[FINGERPRINT_LEN];
	const char *name = GENERATED_DATASET;
	struct fixture_outcome o;
	struct buf lines;

	generate(40, 11, &lines);
	fixture_write(dir, "lines", lines.data, lines.len);
	path = path_of("lines");
	ck_ok(fingerprint_files(&path, &name, 1, want, &e), &e);
	fixture_task_run(m, TASK, "{\"n\":40,\"seed\":11}", NULL, &o);
	ck_assert_str_eq(json_get_string(json_get(o.plan, "dataset"), "fingerprint"), want);
	fixture_outcome_release(&o);
	fixture_task_run(m, TASK, "{\"n\":40,\"seed\":12}", NULL, &o);
	ck_assert_str_ne(json_get_string(json_get(o.plan, "dataset"), "fingerprint"), want);
	fixture_outcome_release(&o);
	buf_release(&lines);
}
END_TEST

START_TEST(a_line_that_is_not_right_is_refused_with_its_number_and_value)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
	    {"abc, a, +1, b\nabc, a, +1\n", "line 2: 'abc, a, +1' is not of the form 'string, letter, +shift, target'"},
	    {"abc,a,+1,b\n", "line 1: 'abc,a,+1,b' is not of the form"},
	    {"abc, a, +1, b \n", "line 1: 'abc, a, +1, b ' is not of the form"},
	    {" abc, a, +1, b\n", "is not of the form"},
	    {"abc, a, 1, b\n", "is not of the form"},
	    {"abc, a, +01, b\n", "is not of the form"},
	    {"abc, a, +-1, b\n", "is not of the form"},
	    {"a1c, a, +1, 1\n", "is not of the form"},
	    {"abc, ab, +1, b\n", "is not of the form"},
	    {"\xC3\xA4"
	     "bc, b, +1, c\n",
	     "is not of the form"},
	    {"abca, b, +1, c\n", "line 1: the string has 'a' twice"},
	    {"abc, d, +1, b\n", "line 1: the letter 'd' is not in the string"},
	    {"abc, a, +3, b\n", "line 1: the shift +3 from 'a' leaves the string"},
	    {"abc, b, -2, b\n", "line 1: the shift -2 from 'b' leaves the string"},
	    {"abc, a, +1, c\n", "line 1: the target is 'c', but +1 from 'a' stands 'b'"},
	    {"\n", "no lines"},
	};
	struct model *none;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		fixture_task_refused(m, TASK, "{}", write_file("l.txt", cases[i].text), ERR_INPUT, cases[i].words);
	fixture_task_refused(m, TASK, "{}", NULL, ERR_INPUT, "a dataset is missing (or n, with which task");
	fixture_task_refused(m, TASK, "{\"n\":5}", path_of("l.txt"), ERR_INPUT, "none can be given");
	none = fixture_model_make(&FIXTURE_MODEL_DEFAULT);
	fixture_task_refused(none, TASK, "{\"n\":5}", NULL, ERR_INPUT, "has no tokenizer.json, and task");
	model_free(none);
}
END_TEST

START_TEST(a_tokenizer_that_drops_bytes_of_a_line_is_refused)
{
	struct model *poor = NULL;

	fixture_edit(path_of("m"), "tokenizer.json", "\"+\":", "\"plus\":");
	ck_ok(model_open(path_of("m"), NULL, &poor, &e), &e);
	fixture_task_refused(poor, TASK, "{}", write_file("l.txt", two_lines), ERR_INPUT,
	                     "line 1: model 'm' has no token for 1 of its bytes");
	model_free(poor);
}
END_TEST

/* -- PyTorch ----------------------------------------------------------------------------------- */

START_TEST(the_shared_models_have_the_accuracies_and_log_probabilities_of_pytorch)
{
	static const char *const names[] = {"rope", "pope"};
	const char *folder = fixture_shared("models/indirect-pope");
	struct json *reference = NULL;
	const struct json *want, *list;
	struct fixture_outcome o;
	struct model *indirect = NULL;
	char path[100];

	if (!folder) {
		fixture_skip("the_shared_models_have_the_accuracies_and_log_probabilities_of_pytorch",
		             "no shared models");
		return;
	}
	snprintf(path, sizeof path, "models/indirect-%s", names[_i]);
	ck_ok(model_open(fixture_shared(path), NULL, &indirect, &e), &e);
	ck_ok(json_parse_file(fixture_shared("models/reference_diagnostics.json"), 1 << 20, &reference, &e), &e);
	want = json_get(json_get(reference, names[_i]), "indirect");
	fixture_task_run(indirect, TASK, "{}", fixture_shared("models/indirect_test_2000.txt"), &o);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "acc", 0), "value"), fixture_member(want, "acc"));
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "acc", 0), "n"), fixture_member(want, "items"));
	ck_assert_double_eq_tol(fixture_member(fixture_metric(o.metrics, "logprob", 0), "value"),
	                        fixture_member(want, "mean_target_logprob"), 1e-5);
	list = json_first(json_get(want, "target_logprob_first_20"));
	for (size_t i = 0; list; list = json_next(list), i++) {
		double logprob;

		ck_assert(json_number(list, &logprob));
		ck_assert_double_eq_tol(first_of(fixture_item(&o, i), "logprobs"), logprob, 1e-3);
	}
	fixture_outcome_release(&o);
	json_free(reference);
	model_free(indirect);
}
END_TEST

Suite *indirect_indexing_suite(void);
Suite *indirect_indexing_suite(void)
{
	Suite *s = suite_create("indirect_indexing");
	TCase *lines = tcase_create("lines"), *t = tcase_create("scores"), *shared = tcase_create("shared");

	tcase_add_test(lines, random_numbers_are_those_of_splitmix64);
	tcase_add_test(lines, numbers_below_a_bound_are_each_as_likely);
	tcase_add_test(lines, a_seed_gives_the_same_lines_everywhere);
	tcase_add_test(lines, generated_lines_keep_the_rule);
	tcase_add_test(lines, parameters_say_whether_lines_are_generated);
	suite_add_tcase(s, lines);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, only_the_last_token_of_a_line_is_scored);
	tcase_add_test(t, errors_are_those_of_a_fraction_and_of_a_mean);
	tcase_add_test(t, of_a_longer_line_the_last_tokens_are_read);
	tcase_add_test(t, what_the_tokenizer_adds_before_a_text_is_read_and_what_it_adds_behind_is_not);
	tcase_add_test(t, generated_lines_score_as_the_same_lines_in_a_file);
	tcase_add_test(t, the_fingerprint_is_of_the_generated_text);
	tcase_add_test(t, a_line_that_is_not_right_is_refused_with_its_number_and_value);
	tcase_add_test(t, a_tokenizer_that_drops_bytes_of_a_line_is_refused);
	suite_add_tcase(s, t);
	tcase_set_timeout(shared, 300);
	tcase_add_loop_test(shared, the_shared_models_have_the_accuracies_and_log_probabilities_of_pytorch, 0, 2);
	suite_add_tcase(s, shared);
	return s;
}
