/* Tasks: the table, parameters with their defaults, ranges and cross-field rules, descriptions. */
#include <check.h>
#include <string.h>

#include "eval/eval.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static const struct task *task;

static void find_task(void)
{
	task = task_find("pg19", &e);
	ck_assert_ptr_nonnull(task);
}

/* The effective parameters as text. */
static err_code effective(const char *given, struct buf *out)
{
	struct json *j = given ? fixture_json(given) : NULL;
	err_code rc = task_params(task, j, out, &e);

	json_free(j);
	return rc;
}

START_TEST(a_task_is_found_by_name_and_an_unknown_one_names_those_there_are)
{
	ck_assert_str_eq(task_name(task), "pg19");
	ck_assert_int_eq(task_version(task), 1);
	ck_assert_ptr_eq(task_at(0), task);
	ck_assert_ptr_null(task_find("pg20", &e));
	ck_assert_int_eq(e.code, ERR_INPUT);
	ck_assert_msg(strstr(e.msg, "unknown task 'pg20' (there is: pg19, ") == e.msg, "%s", e.msg);
	ck_assert_ptr_eq(task_find("lambada_openai", &e), task_find("lambada", &e)); /* an alias */
}
END_TEST

START_TEST(effective_parameters_hold_every_value_in_table_order_and_read_back_as_themselves)
{
	static const struct {
		const char *given, *want;
	} cases[] = {
	    {NULL, "{\"lengths\":[1024,2048,3072,4096,5120,6144,7168,8192,9216,10240],\"protocol\":\"windows\","
	           "\"stride\":null,"
	           "\"bos\":\"none\",\"max_docs\":null,\"max_tokens_per_doc\":null,\"min_doc_tokens\":null,\"last_"
	           "window\":\"keep\"}"},
	    {"{\"lengths\":[512],\"protocol\":\"sliding\"}",
	     "{\"lengths\":[512],\"protocol\":\"sliding\",\"stride\":256,\"bos\":\"none\",\"max_docs\":null,"
	     "\"max_tokens_per_doc\":null,\"min_doc_tokens\":null,\"last_window\":\"keep\"}"},
	    {"{\"lengths\":[1,512],\"protocol\":\"prefix\",\"bos\":\"document\",\"last_window\":\"drop\",\"max_docs\":"
	     "3}",
	     "{\"lengths\":[1,512],\"protocol\":\"prefix\",\"stride\":null,\"bos\":\"document\",\"max_docs\":3,"
	     "\"max_tokens_per_doc\":null,\"min_doc_tokens\":513,\"last_window\":\"drop\"}"},
	    {"{\"lengths\":[64],\"max_docs\":null,\"stride\":null}",
	     "{\"lengths\":[64],\"protocol\":\"windows\",\"stride\":null,\"bos\":\"none\",\"max_docs\":null,"
	     "\"max_tokens_per_doc\":null,\"min_doc_tokens\":null,\"last_window\":\"keep\"}"},
	    {"{\"lengths\":[64,16777216],\"stride\":65,\"protocol\":\"sliding\",\"max_tokens_per_doc\":100}",
	     "{\"lengths\":[64,16777216],\"protocol\":\"sliding\",\"stride\":65,\"bos\":\"none\",\"max_docs\":null,"
	     "\"max_tokens_per_doc\":100,\"min_doc_tokens\":null,\"last_window\":\"keep\"}"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf once = BUF_INIT(1 << 16), twice = BUF_INIT(1 << 16);

		ck_ok(effective(cases[i].given, &once), &e);
		ck_assert_str_eq(buf_str(&once), cases[i].want);
		ck_ok(effective(buf_str(&once), &twice), &e);
		ck_assert_str_eq(buf_str(&twice), cases[i].want);
		buf_release(&once);
		buf_release(&twice);
	}
}
END_TEST

START_TEST(bad_parameters_are_refused_with_a_pointer_and_the_value)
{
	static const struct {
		const char *given, *pointer, *words;
	} cases[] = {
	    {"{\"lengths\":[0]}", "/lengths/0", "0 is not an integer from 1 to 16777216"},
	    {"{\"lengths\":[64,-3]}", "/lengths/1", "-3 is not"},
	    {"{\"lengths\":[1000000000]}", "/lengths/0", "1000000000 is not"},
	    {"{\"lengths\":[16777217]}", "/lengths/0", "16777217 is not"},
	    {"{\"lengths\":[1e300]}", "/lengths/0", "is not an integer"},
	    {"{\"lengths\":[64.5]}", "/lengths/0", "64.5 is not"},
	    {"{\"lengths\":[128,64]}", "/lengths/1", "must ascend: 64 follows 128"},
	    {"{\"lengths\":[64,64]}", "/lengths/1", "must ascend: 64 follows 64"},
	    {"{\"lengths\":[64,\"128\"]}", "/lengths/1", "must be an integer, not string"},
	    {"{\"lengths\":[]}", "/lengths", "not an empty one"},
	    {"{\"lengths\":1024}", "/lengths", "must be a list of 1 to 256 integers, not number"},
	    {"{\"protocol\":\"window\"}", "/protocol", "must be one of windows|sliding|prefix, not window"},
	    {"{\"protocol\":\"\"}", "/protocol", "must be one of"},
	    {"{\"protocol\":3}", "/protocol", "not number"},
	    {"{\"stride\":256}", "/stride", "only protocol sliding"},
	    {"{\"protocol\":\"prefix\",\"stride\":256}", "/stride", "only protocol sliding"},
	    {"{\"protocol\":\"sliding\",\"stride\":0}", "/stride", "0 is not an integer from 1"},
	    {"{\"protocol\":\"sliding\",\"stride\":-1}", "/stride", "-1 is not"},
	    {"{\"protocol\":\"sliding\",\"stride\":65,\"lengths\":[32,64]}", "/stride",
	     "65 is above every length (the longest is 64)"},
	    {"{\"protocol\":\"sliding\",\"lengths\":[32,64]}", "/stride", "256, the default, is above"},
	    {"{\"protocol\":\"sliding\",\"bos\":\"window\"}", "/bos", "protocol windows only"},
	    {"{\"protocol\":\"prefix\",\"bos\":\"window\"}", "/bos", "protocol windows only"},
	    {"{\"protocol\":\"prefix\",\"lengths\":[64],\"min_doc_tokens\":64}", "/min_doc_tokens", "max(lengths)+1"},
	    {"{\"protocol\":\"prefix\",\"lengths\":[64],\"max_tokens_per_doc\":64}", "/max_tokens_per_doc",
	     "max(lengths)+1"},
	    {"{\"max_docs\":0}", "/max_docs", "0 is not"},
	    {"{\"max_docs\":true}", "/max_docs", "not boolean"},
	    {"{\"max_docs\":[1]}", "/max_docs", "not array"},
	    {"{\"last_window\":\"Keep\"}", "/last_window", "keep|drop"},
	    {"{\"length\":[64]}", "/length", "is 'lengths' meant?"},
	    {"{\"temperature\":1}", "/temperature", "only lengths, protocol, stride, bos, max_docs"},
	    {"{\"a/b~c\":1}", "/a~1b~0c", "no parameter 'a/b~c'"},
	    {"[1]", "", "must be an object, not array"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf out = BUF_INIT(1 << 16);

		memset(&e, 0, sizeof e);
		ck_assert_msg(effective(cases[i].given, &out) == ERR_INPUT, "%s was taken", cases[i].given);
		ck_assert_msg(!strcmp(e.pointer, cases[i].pointer), "%s: pointer %s", cases[i].given, e.pointer);
		ck_assert_msg(strstr(e.msg, cases[i].words) != NULL, "%s: %s", cases[i].given, e.msg);
		buf_release(&out);
	}
}
END_TEST

START_TEST(a_list_of_more_than_256_lengths_is_refused)
{
	struct buf given = BUF_INIT(1 << 16), out = BUF_INIT(1 << 16);

	buf_puts(&given, "{\"lengths\":[1");
	for (int i = 2; i <= 257; i++)
		buf_printf(&given, ",%d", i);
	buf_puts(&given, "]}");
	ck_err(effective(buf_str(&given), &out), ERR_INPUT, "not a longer one", &e);
	buf_release(&given);
	buf_release(&out);
}
END_TEST

START_TEST(assignments_become_members_by_the_parameters_type)
{
	static const struct {
		const char *assignment, *want; /* want without '{': an error that holds it */
	} cases[] = {
	    {"lengths=512,1024", "{\"lengths\":[512,1024]}"},
	    {"lengths=512", "{\"lengths\":[512]}"},
	    {"protocol=sliding", "{\"protocol\":\"sliding\"}"},
	    {"stride=-5", "{\"stride\":-5}"}, /* ranges are task_params' affair */
	    {"max_docs=null", "{\"max_docs\":null}"},
	    {"lengths=512,", "not a list of integers"},
	    {"lengths=5 12", "not a list of integers"},
	    {"lengths=", "not a list of integers"},
	    {"stride=abc", "'abc' is not an integer"},
	    {"stride=12x", "'12x' is not an integer"},
	    {"stride=", "'' is not an integer"},
	    {"stride=99999999999999999999", "is not an integer"},
	    {"stride", "not of the form key=value"},
	    {"=3", "not of the form key=value"},
	    {"strude=3", "is 'stride' meant?"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf out = BUF_INIT(1 << 16);
		struct json_writer w = JSON_WRITER(&out);
		err_code rc;

		json_begin_object(&w, NULL);
		rc = task_param_parse(task, cases[i].assignment, &w, &e);
		json_end_object(&w);
		if (cases[i].want[0] == '{') {
			ck_ok(rc, &e);
			ck_assert_str_eq(buf_str(&out), cases[i].want);
		} else {
			ck_err(rc, ERR_INPUT, cases[i].want, &e);
		}
		buf_release(&out);
	}
}
END_TEST

START_TEST(the_description_and_the_help_name_every_parameter_and_metric)
{
	static const char *const words[] = {"lengths",       "protocol",           "stride",         "bos",
	                                    "max_docs",      "max_tokens_per_doc", "min_doc_tokens", "last_window",
	                                    "nll_token",     "ppl_token",          "bits_per_byte",  "ppl_word",
	                                    "ppl_doc_macro", "nll_position",       "n_skipped"};
	struct buf json = BUF_INIT(1 << 16), help = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&json);
	const struct json *p;
	struct json *j;

	task_describe(task, &w, NULL);
	task_help(task, &help);
	for (size_t i = 0; i < COUNT(words); i++) {
		ck_assert_msg(strstr(buf_str(&json), words[i]) != NULL, "%s", words[i]);
		ck_assert_msg(strstr(buf_str(&help), words[i]) != NULL, "%s", words[i]);
	}
	j = fixture_json(buf_str(&json));
	p = json_first(json_get(j, "params"));
	ck_assert_str_eq(json_get_string(p, "type"), "integer list");
	ck_assert_uint_eq(json_count(json_get(p, "default")), 10);
	ck_assert_uint_eq(json_count(json_get(json_next(p), "choices")), 3);
	json_free(j);
	buf_release(&json);
	buf_release(&help);
}
END_TEST

/* The value of the headline, or -1. */
static double headline(const char *name, const char *metrics)
{
	struct json *j = fixture_json(metrics);
	const struct json *m = result_headline(task_find(name, &e), j);
	double value = -1;

	ck_assert(!m || json_get_number(m, "value", &value));
	json_free(j);
	return value;
}

START_TEST(the_headline_is_over_all_groups_and_at_the_longest_length)
{
	ck_assert_double_eq(headline("pg19", "[{\"name\":\"nll_token\",\"length\":512,\"value\":1},"
	                                     "{\"name\":\"ppl_token\",\"length\":512,\"value\":2},"
	                                     "{\"name\":\"ppl_token\",\"length\":64,\"value\":3}]"),
	                    2);
	ck_assert_double_eq(headline("choices", "[{\"name\":\"acc_norm\",\"value\":1},"
	                                        "{\"name\":\"acc\",\"group\":\"a\",\"value\":0.25},"
	                                        "{\"name\":\"acc\",\"value\":0.5}]"),
	                    0.5);
	ck_assert_double_eq(headline("choices", "[{\"name\":\"acc\",\"group\":\"a\",\"value\":0.25}]"), -1);
	ck_assert_double_eq(
	    headline("text", "[{\"name\":\"nll_token\",\"value\":1},{\"name\":\"ppl_token\",\"value\":2}]"), 2);
	ck_assert_double_eq(headline("lambada", "[]"), -1);
}
END_TEST

/* Of every task, so that a page and a script need to know none of them. */
START_TEST(every_task_is_described_whole)
{
	struct buf text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&text);
	const struct json *metrics, *formats;
	const char *name;
	struct json *j;
	bool found;

	for (size_t i = 0; i < task_count(); i++) {
		buf_clear(&text);
		w = (struct json_writer)JSON_WRITER(&text);
		task_describe(task_at(i), &w, NULL);
		j = fixture_json(buf_str(&text));
		name = task_name(task_at(i));
		metrics = json_get(j, "metrics");
		ck_assert_msg(json_count(metrics) && strlen(json_get_string(j, "summary")), "%s", name);
		found = !*json_get_string(j, "headline");
		for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
			found |= !strcmp(json_get_string(m, "name"), json_get_string(j, "headline"));
			ck_assert_msg(strlen(json_get_string(m, "help")) && strlen(json_get_string(m, "unit")),
			              "%s: %s", name, json_get_string(m, "name"));
		}
		ck_assert_msg(found, "%s: its headline is none of its metrics", name);
		for (const struct json *p = json_first(json_get(j, "params")); p; p = json_next(p))
			ck_assert_msg(strlen(json_get_string(p, "help")), "%s: %s", name, json_get_string(p, "name"));
		formats = json_get(j, "formats");
		ck_assert_msg(json_count(formats), "%s: no format of its datasets", name);
		for (const struct json *f = json_first(formats); f; f = json_next(f))
			ck_assert_msg(json_string(f)[0] != '.', "%s: %s", name, json_string(f));
		json_free(j);
	}
	buf_release(&text);
}
END_TEST

Suite *task_suite(void);
Suite *task_suite(void)
{
	Suite *s = suite_create("task");
	TCase *c = tcase_create("task");

	tcase_add_checked_fixture(c, find_task, NULL);
	tcase_add_test(c, a_task_is_found_by_name_and_an_unknown_one_names_those_there_are);
	tcase_add_test(c, effective_parameters_hold_every_value_in_table_order_and_read_back_as_themselves);
	tcase_add_test(c, bad_parameters_are_refused_with_a_pointer_and_the_value);
	tcase_add_test(c, a_list_of_more_than_256_lengths_is_refused);
	tcase_add_test(c, assignments_become_members_by_the_parameters_type);
	tcase_add_test(c, the_description_and_the_help_name_every_parameter_and_metric);
	tcase_add_test(c, the_headline_is_over_all_groups_and_at_the_longest_length);
	tcase_add_test(c, every_task_is_described_whole);
	suite_add_tcase(s, c);
	return s;
}
