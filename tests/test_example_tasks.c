/* The readers of lambada, piqa, arc_easy and choices: their formats, what they refuse and how they say it; and real
 * models on real data against PyTorch. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/task.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static char root[PATH_MAX - 64];
static struct model *model;

static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	model = fixture_eval_model(root, "tiny", "rope");
}

static void tear_down(void)
{
	model_free(model);
}

static void write_file(const char *name, const char *text)
{
	fixture_write(root, name, text, strlen(text));
}

static const char *below(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", root, name);
	return path;
}

static err_code try_open(const char *task, const char *given, const char *path, struct evaluation **ev)
{
	const struct task *t = task_find(task, &e);
	struct json *params = fixture_params(t, given);
	err_code rc = evaluation_open(model, t, params, path, "data", NULL, NULL, ev, &e);

	json_free(params);
	return rc;
}

/* A unit as "context|choice|choice=gold"; tokens are bytes. */
static const char *example(const struct evaluation *ev, uint32_t unit)
{
	static struct buf out = {.max = 1 << 20};
	struct buf result = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&result);
	static struct token_score scores[4096];
	struct batch_builder b = {0};
	struct json *j;
	int64_t gold;

	buf_clear(&out);
	ck_ok(ev->task->add(ev->plan, unit, &b, &e), &e);
	for (size_t i = 0; i < b.n_tokens; i++) {
		bool starts = false;

		for (size_t k = 0; k < b.n_segments; k++)
			starts |= b.segments[k].start == i;
		if (b.score[i] && (starts || !b.score[i - 1]))
			buf_putc(&out, '|');
		if (b.tokens[i] < 256)
			buf_putc(&out, (char)b.tokens[i]);
	}
	ck_ok(ev->task->result(ev->plan, unit, scores, &w, &e), &e);
	j = fixture_json(buf_str(&result));
	ck_assert(json_get_integer(j, "gold", &gold));
	buf_printf(&out, "=%d", (int)gold);
	json_free(j);
	buf_release(&result);
	batch_builder_release(&b);
	return buf_str(&out);
}

static void check_example(const char *task, const char *line, const char *want)
{
	struct evaluation *ev = NULL;

	write_file("data.jsonl", line);
	ck_ok(try_open(task, "{\"max_length\":1000}", below("data.jsonl"), &ev), &e);
	ck_assert_str_eq(example(ev, 0), want);
	evaluation_free(ev);
}

/* -- formats ----------------------------------------------------------------------------------- */

START_TEST(lambada_asks_for_what_follows_the_last_space)
{
	check_example("lambada", "{\"text\":\"one two\\nthree four.\"}", "one two\nthree| four.=0");
	/* words are separated by spaces alone; white space before the last goes to the word */
	check_example("lambada", "{\"text\":\"one two\\nthree\"}", "one| two\nthree=0");
	check_example("lambada_openai", "{\"text\":\"one  two\"}", "one|  two=0");
	check_example("lambada", "{\"text\":\"one\"}", "| one=0");
}
END_TEST

START_TEST(choices_follow_their_query_after_a_space)
{
	check_example("choices", "{\"query\":\"q\",\"choices\":[\"a\",\" b\",\"c \"],\"gold\":2}", "q| a|  b| c =2");
	check_example("choices", "\n \n{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":\"1\",\"x\":0}\n",
	              "q| a| b=1");
}
END_TEST

START_TEST(piqa_reads_labelled_rows)
{
	check_example("piqa", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":1}",
	              "Question: g\nAnswer:| a| b=1");
}
END_TEST

START_TEST(piqa_reads_the_official_rows_and_their_labels_file)
{
	struct evaluation *ev = NULL;
	char dir[PATH_MAX];

	snprintf(dir, sizeof dir, "%s/piqa", root);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	write_file("piqa/valid-labels.lst", "1\n0\n");
	write_file("piqa/valid.jsonl", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\"}\n"
	                               "{\"goal\":\"h\",\"sol1\":\"c\",\"sol2\":\"d\"}\n");
	ck_ok(try_open("piqa", "{\"max_length\":1000}", dir, &ev), &e);
	ck_assert_uint_eq(evaluation_n_units(ev), 2);
	ck_assert_str_eq(example(ev, 0), "Question: g\nAnswer:| a| b=1");
	ck_assert_str_eq(example(ev, 1), "Question: h\nAnswer:| c| d=0");
	evaluation_free(ev);
	ck_ok(try_open("piqa", "{\"limit\":1}", dir, &ev), &e);
	ck_assert_uint_eq(evaluation_n_units(ev), 1);
	evaluation_free(ev);
	ck_err(try_open("piqa", "{}", below("piqa/valid.jsonl"), &ev), ERR_INPUT,
	       "'valid.jsonl' line 1: \"label\" must be an integer from 0 to 1, not absent", &e);
	write_file("piqa/valid-labels.lst", "1\n");
	ck_err(try_open("piqa", "{}", dir, &ev), ERR_INPUT, "line 2: its labels file has only 1 lines", &e);
	write_file("piqa/valid-labels.lst", "1\n0\n1\n");
	ck_err(try_open("piqa", "{}", dir, &ev), ERR_INPUT, "its labels file has 3 lines for 2 rows", &e);
	write_file("piqa/valid-labels.lst", "1\n2\n");
	ck_err(try_open("piqa", "{}", dir, &ev), ERR_INPUT,
	       "'valid-labels.lst' line 2: a label must be 0 or 1, not '2'", &e);
}
END_TEST

START_TEST(arc_easy_reads_three_layouts_with_letters_or_digits)
{
	static const char want[] = "Question: q\nAnswer:| a| b| c=1";

	check_example("arc_easy", "{\"id\":\"i\",\"question\":\"q\",\"choices\":[\"a\",\"b\",\"c\"],\"gold\":1}", want);
	check_example("arc_easy",
	              "{\"question\":{\"stem\":\"q\",\"choices\":[{\"text\":\"a\",\"label\":\"A\"},{\"text\":\"b\","
	              "\"label\":\"B\"},{\"text\":\"c\",\"label\":\"C\"}]},\"answerKey\":\"B\"}",
	              want);
	check_example("arc_easy",
	              "{\"question\":{\"stem\":\"q\",\"choices\":[{\"text\":\"a\",\"label\":\"1\"},{\"text\":\"b\","
	              "\"label\":\"2\"},{\"text\":\"c\",\"label\":\"3\"}]},\"answerKey\":\"2\"}",
	              want);
	check_example("arc_easy",
	              "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\",\"c\"],\"label\":[\"1\",\"2\",\"3\"]},"
	              "\"answerKey\":\"2\"}",
	              want);
	check_example("arc_easy",
	              "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\",\"c\"],\"label\":[\"A\",\"B\",\"C\"]},"
	              "\"answerKey\":\"B\"}",
	              want);
}
END_TEST

START_TEST(a_row_that_does_not_fit_is_refused_with_file_line_field_and_value)
{
	static const struct {
		const char *task, *line, *message;
	} cases[] = {
	    {"lambada", "{\"txt\":\"a b\"}", "\"text\" must be a string, not absent"},
	    {"lambada", "{\"text\":7}", "\"text\" must be a string, not number"},
	    {"lambada", "{\"text\":\"a \"}", "choice 0 is empty"},
	    {"lambada", "[1]", "is array, not an object"},
	    {"lambada", "{\"text\":", "'data.jsonl' line 2: "},
	    {"choices", "{\"choices\":[\"a\",\"b\"],\"gold\":0}", "\"query\" must be a string, not absent"},
	    {"choices", "{\"query\":\"q\",\"choices\":\"a\",\"gold\":0}", "\"choices\" must be a list, not string"},
	    {"choices", "{\"query\":\"q\",\"choices\":[\"a\",1],\"gold\":0}",
	     "\"choices\": choice 1 must be a string, not number"},
	    {"choices", "{\"query\":\"q\",\"choices\":[],\"gold\":0}", "\"choices\" is an empty list"},
	    {"arc_easy", "{\"question\":\"q\",\"choices\":[],\"gold\":0}", "\"choices\" is an empty list"},
	    {"choices", "{\"query\":\"q\",\"choices\":[\"a\"],\"gold\":0}", "1 choices: an example has 2 to 256"},
	    {"choices", "{\"query\":\"q\",\"choices\":[\"a\",\"\"],\"gold\":0}", "choice 1 is empty"},
	    {"choices", "{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":2}",
	     "\"gold\": 2 is not an integer from 0 to 1"},
	    {"choices", "{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":\"B\"}",
	     "\"gold\" must be an integer from 0 to 1, not 'B'"},
	    {"choices", "{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":0.5}",
	     "\"gold\": 0.5 is not an integer from 0 to 1"},
	    {"piqa", "{\"goal\":\"g\",\"sol1\":\"a\",\"label\":1}", "\"sol2\" must be a string, not absent"},
	    {"piqa", "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":-1}",
	     "\"label\": -1 is not an integer from 0 to 1"},
	    {"arc_easy", "{\"question\":{\"stem\":\"q\",\"choices\":[{\"text\":\"a\"}]},\"answerKey\":\"A\"}",
	     "choice 0: \"label\" must be a string, not absent"},
	    {"arc_easy", "{\"question\":{\"stem\":\"q\"},\"answerKey\":\"A\"}", "no list \"choices\""},
	    {"arc_easy",
	     "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"A\",\"B\"]},\"answerKey\":\"C\"}",
	     "\"answerKey\": 'C' is no choice's label"},
	    {"arc_easy",
	     "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"A\"]},\"answerKey\":\"A\"}",
	     "\"choices.label\" must be a list of 2 labels"},
	    {"arc_easy",
	     "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\",\"c\"],\"label\":[\"A\",\"B\",\"A\"]},"
	     "\"answerKey\":\"A\"}",
	     "choices 0 and 2 both have the label 'A'"},
	    {"arc_easy",
	     "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\",\"c\"],\"label\":[\"A\",\"B\",\"B\"]},"
	     "\"answerKey\":\"A\"}",
	     "choices 1 and 2 both have the label 'B'"},
	    {"arc_easy",
	     "{\"question\":\"q\",\"choices\":{\"text\":[\"a\",\"b\"],\"label\":[\"1\",2]},\"answerKey\":\"1\"}",
	     "\"choices.label\": label 1 must be a string, not number"},
	    {"arc_easy",
	     "{\"question\":{\"stem\":\"q\",\"choices\":[{\"text\":\"a\",\"label\":\"1\"},{\"text\":\"b\",\"label\":"
	     "\"1\"}]},"
	     "\"answerKey\":\"1\"}",
	     "choices 0 and 1 both have the label '1'"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct evaluation *ev = NULL;
		char text[2000];

		snprintf(text, sizeof text, "\n%s\n", cases[i].line);
		write_file("data.jsonl", text);
		ck_err(try_open(cases[i].task, "{}", below("data.jsonl"), &ev), ERR_INPUT, cases[i].message, &e);
		ck_assert_msg(strstr(e.msg, "dataset 'data': 'data.jsonl' line 2: ") == e.msg, "%s", e.msg);
	}
}
END_TEST

START_TEST(a_dataset_without_examples_is_refused)
{
	struct evaluation *ev = NULL;

	write_file("data.jsonl", "\n\n");
	ck_err(try_open("lambada", "{}", below("data.jsonl"), &ev), ERR_INPUT, "dataset 'data': no examples", &e);
	write_file("data.txt", "a");
	ck_err(try_open("lambada", "{}", below("data.txt"), &ev), ERR_INPUT, "neither a folder nor a .jsonl file", &e);
}
END_TEST

START_TEST(invalid_utf8_is_replaced_and_counted_in_a_warning)
{
	struct evaluation *ev = NULL;

	write_file("data.jsonl", "{\"text\":\"a\xFF b\"}\n{\"text\":\"a b\"}\n");
	ck_ok(try_open("lambada", "{}", below("data.jsonl"), &ev), &e);
	ck_assert_str_eq(example(ev, 0), "a\xEF\xBF\xBD| b=0");
	ck_assert_msg(strstr(buf_str(&ev->warnings), "invalid UTF-8 became U+FFFD: 1 sequences in 1 lines") != NULL,
	              "%s", buf_str(&ev->warnings));
	evaluation_free(ev);
}
END_TEST

START_TEST(rows_of_a_folder_are_called_by_file_and_line_and_by_their_id_where_they_have_one)
{
	struct evaluation *ev = NULL;
	struct buf out = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&out);
	static struct token_score scores[64];
	static const char *const want[] = {"\"doc\":\"a.jsonl line 2\"", "\"doc\":\"x7\"", "\"doc\":\"9\""};
	char dir[PATH_MAX];

	snprintf(dir, sizeof dir, "%s/rows", root);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	write_file("rows/b.jsonl", "{\"text\":\"c d\",\"id\":\"x7\"}\n{\"text\":\"e f\",\"id\":9}\n");
	write_file("rows/a.jsonl", "\n{\"text\":\"a b\"}\n");
	ck_ok(try_open("lambada", "{}", dir, &ev), &e);
	ck_assert_uint_eq(evaluation_n_units(ev), 3);
	for (uint32_t i = 0; i < 3; i++) {
		buf_clear(&out);
		ck_ok(ev->task->result(ev->plan, i, scores, &w, &e), &e);
		ck_assert_msg(strstr(buf_str(&out), want[i]) != NULL, "%s", buf_str(&out));
	}
	buf_release(&out);
	evaluation_free(ev);
}
END_TEST

/* -- real models ------------------------------------------------------------------------------- */

/* Log-probabilities of the first examples of the real files: PyTorch 2.13, float32 on a CPU, tokenizers 0.23; a forward
 * pass of its own (RMSNorm, rotary or PoPE attention, GELU) over each context and continuation, cut into tokens by
 * lm-eval 0.4.13's _encode_pair. Printed to four places. */
static const struct {
	const char *model, *task, *file;
	double logprobs[3][4];
} golden[] = {
    {"rope-29m", "lambada", "lambada/lambada_test.jsonl", {{-11.4715}, {-7.0565}, {-3.1674}}},
    {"rope-29m", "piqa", "piqa/piqa_valid.jsonl", {{-194.7643, -202.5756}, {-61.3083, -85.0416}}},
    {"rope-29m",
     "arc_easy",
     "arc_easy/arc_easy_test.jsonl",
     {{-77.8161, -64.8525, -51.4896, -62.9108}, {-31.942, -23.5111, -22.3266, -26.1493}}},
    {"pope-29m", "lambada", "lambada/lambada_test.jsonl", {{-10.0095}, {-7.0901}, {-7.4816}}},
    {"pope-29m", "piqa", "piqa/piqa_valid.jsonl", {{-210.9434, -213.9539}, {-52.9973, -88.734}}},
    {"pope-29m",
     "arc_easy",
     "arc_easy/arc_easy_test.jsonl",
     {{-84.3541, -76.5173, -53.9554, -69.4659}, {-34.4489, -21.9162, -25.5416, -27.3558}}},
};

static void check_golden(size_t g, const char *checkpoint, const char *data)
{
	struct evaluation *ev = NULL;
	struct fixture_units units;
	struct session *s;

	model_free(model);
	model = fixture_model_open(checkpoint, NULL);
	ck_ok(try_open(golden[g].task, "{\"limit\":3}", data, &ev), &e);
	s = fixture_eval_session(model);
	fixture_units_init(&units, evaluation_n_units(ev));
	fixture_run(ev, s, NULL, 0, &units);
	for (size_t i = 0; i < 3; i++) {
		struct json *j = fixture_json(units.text[i]);
		size_t k = 0;

		for (const struct json *v = json_first(json_get(j, "logprobs")); v && golden[g].logprobs[i][0] < 0;
		     v = json_next(v), k++) {
			double value;

			ck_assert(json_number(v, &value));
			/* float32 in another order of sums: 1e-5 a token is common, and a choice has up to fifty */
			ck_assert_double_eq_tol(value, golden[g].logprobs[i][k], 1e-3);
		}
		json_free(j);
	}
	session_close(s);
	fixture_units_release(&units);
	evaluation_free(ev);
}

START_TEST(real_models_give_pytorchs_log_probabilities_on_real_data)
{
	char path[100];

	snprintf(path, sizeof path, "models/%s", golden[_i].model);
	if (!fixture_shared(path) || !fixture_data(golden[_i].file)) {
		fixture_skip("real_models_give_pytorchs_log_probabilities_on_real_data", "no shared models or data");
		return;
	}
	check_golden((size_t)_i, fixture_shared(path), fixture_data(golden[_i].file));
}
END_TEST

Suite *example_tasks_suite(void);
Suite *example_tasks_suite(void)
{
	Suite *s = suite_create("example_tasks");
	TCase *c = tcase_create("example_tasks");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 240);
	tcase_add_test(c, lambada_asks_for_what_follows_the_last_space);
	tcase_add_test(c, choices_follow_their_query_after_a_space);
	tcase_add_test(c, piqa_reads_labelled_rows);
	tcase_add_test(c, piqa_reads_the_official_rows_and_their_labels_file);
	tcase_add_test(c, arc_easy_reads_three_layouts_with_letters_or_digits);
	tcase_add_test(c, a_row_that_does_not_fit_is_refused_with_file_line_field_and_value);
	tcase_add_test(c, a_dataset_without_examples_is_refused);
	tcase_add_test(c, invalid_utf8_is_replaced_and_counted_in_a_warning);
	tcase_add_test(c, rows_of_a_folder_are_called_by_file_and_line_and_by_their_id_where_they_have_one);
	tcase_add_loop_test(c, real_models_give_pytorchs_log_probabilities_on_real_data, 0, COUNT(golden));
	suite_add_tcase(s, c);
	return s;
}
