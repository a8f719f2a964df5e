/* Task blimp: whole sentences after the prefix token, by paradigm. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/task.h"
#include "tests/fixture.h"
#include "tests/fixture_examples.h"
#include "tests/fixture_model.h"
#include "tests/fixture_task.h"

static struct model *m; /* bytes are tokens */
static const char *dir;
static char path[PATH_MAX];

static const char *below(const char *name)
{
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void write_text(const char *name, const char *text)
{
	fixture_write(dir, name, text, strlen(text));
}

#define PAIR(good, bad, more) "{\"sentence_good\": \"" good "\", \"sentence_bad\": \"" bad "\"" more "}\n"

/* Two paradigms in files, and one in two files. */
static void set_up(void)
{
	dir = fixture_tmpdir();
	m = fixture_eval_model(dir, "m", "rope");
	ck_assert_int_eq(mkdir(below("d"), 0700), 0);
	write_text("d/a.jsonl",
	           PAIR("He eats.", "He eat.", ", \"UID\": \"agree\"") PAIR("x y", "y x", ", \"UID\": \"agree\""));
	write_text("d/b.jsonl", PAIR("Is it?", "It is?", ", \"UID\": \"ask\"") PAIR("z", "zz", ", \"UID\": \"agree\""));
	write_text("d/c.jsonl", PAIR("p", "q", "")); /* the file's name is its paradigm's */
}

static void tear_down(void)
{
	model_free(m);
}

START_TEST(sentences_are_whole_and_follow_the_prefix_token)
{
	struct evaluation *ev = fixture_examples_open(m, "blimp", "{}", below("d"));

	ck_assert_uint_eq(evaluation_n_units(ev), 5);
	ck_assert_str_eq(fixture_example(ev, 0), "<P>|He eats.|He eat. =0");
	ck_assert_str_eq(fixture_example(ev, 2), "<P>|Is it?|It is? =0");
	ck_assert_str_eq(fixture_groups(ev), "agree: 3, ask: 1, c.jsonl: 1");
	evaluation_free(ev);
	ev = fixture_examples_open(m, "blimp", "{\"leading_space\": true, \"limit\": 1}", below("d"));
	ck_assert_str_eq(fixture_example(ev, 0), "<P>| He eats.| He eat. =0");
	ck_assert_str_eq(fixture_groups(ev), "agree: 1, ask: 1, c.jsonl: 1");
	evaluation_free(ev);
}
END_TEST

START_TEST(accuracy_is_by_paradigm_and_its_mean_is_over_paradigms)
{
	struct fixture_outcome o;
	double sum = 0, n = 0;

	fixture_task_run(m, "blimp", "{}", below("d"), &o);
	for (const struct json *j = json_first(o.metrics); j; j = json_next(j)) {
		if (strcmp(json_get_string(j, "name"), "acc") != 0)
			continue;
		if (json_get_string(j, "group")) {
			sum += fixture_member(j, "value");
			n++;
		} else {
			ck_assert_double_eq(n, 3); /* it comes last */
			ck_assert_double_eq_tol(fixture_member(j, "value"), sum / 3, 1e-15);
		}
	}
	ck_assert(fixture_warned(&o, "is not the official blimp data"));
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(what_is_wrong_is_named_with_file_line_field_and_value)
{
	write_text("d/d.jsonl", PAIR("a", "b", "") "\n{\"sentence_good\": \"a\", \"sentence_bad\": 3}\n");
	fixture_task_refused(m, "blimp", "{}", below("d"), ERR_INPUT,
	                     "'d.jsonl' line 3: \"sentence_bad\" must be a string, not number");
	write_text("d/d.jsonl", PAIR("a", "b", ", \"UID\": 7"));
	fixture_task_refused(m, "blimp", "{}", below("d"), ERR_INPUT, "'d.jsonl' line 1: \"UID\" must be a string");
	write_text("d/d.jsonl", PAIR("a", "", ""));
	fixture_task_refused(m, "blimp", "{}", below("d"), ERR_INPUT, "'d.jsonl' line 1: choice 1 is empty");
}
END_TEST

START_TEST(the_official_folder_has_67_paradigms_of_1000_pairs_and_no_warning)
{
	const char *data = fixture_data("blimp");
	struct evaluation *ev;
	const char *groups;
	size_t n = 0;

	if (!data) {
		fixture_skip("the_official_folder_has_67_paradigms_of_1000_pairs_and_no_warning", "no blimp");
		return;
	}
	ev = fixture_examples_open(m, "blimp", "{}", data);
	ck_assert_uint_eq(evaluation_n_units(ev), 67000);
	ck_assert_str_eq(buf_str(&ev->warnings), "");
	groups = fixture_groups(ev);
	for (const char *s = groups; (s = strstr(s, ": 1000")); s++)
		n++;
	ck_assert_uint_eq(n, 67);
	ck_assert_ptr_nonnull(strstr(groups, "adjunct_island: 1000, anaphor_gender_agreement: 1000"));
	ck_assert_str_eq(fixture_example(ev, 0),
	                 "<P>|Who should Derek hug after shocking Richard?|Who should Derek hug "
	                 "Richard after shocking? =0");
	evaluation_free(ev);
}
END_TEST

Suite *blimp_suite(void);
Suite *blimp_suite(void)
{
	Suite *s = suite_create("blimp");
	TCase *tc = tcase_create("blimp");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, sentences_are_whole_and_follow_the_prefix_token);
	tcase_add_test(tc, accuracy_is_by_paradigm_and_its_mean_is_over_paradigms);
	tcase_add_test(tc, what_is_wrong_is_named_with_file_line_field_and_value);
	tcase_add_test(tc, the_official_folder_has_67_paradigms_of_1000_pairs_and_no_warning);
	suite_add_tcase(s, tc);
	return s;
}
