/* Task hellaswag: what the model reads of official rows and of the form of six lines. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/fixture_examples.h"
#include "tests/fixture_model.h"
#include "tests/fixture_task.h"

static struct model *m; /* bytes are tokens */
static const char *dir;
static char path[PATH_MAX];

static void set_up(void)
{
	dir = fixture_tmpdir();
	m = fixture_eval_model(dir, "m", "rope");
}

static void tear_down(void)
{
	model_free(m);
}

static const char *write_file(const char *name, const char *text)
{
	fixture_write(dir, name, text, strlen(text));
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

#define ROW(label, a, b, endings, gold)                                                                                \
	"{\"activity_label\": \"" label "\", \"ctx_a\": \"" a "\", \"ctx_b\": \"" b                                    \
	"\", \"ctx\": \"?\", \"endings\": "                                                                            \
	"[" endings "], \"label\": " gold "}\n"
#define FOUR "\"a\", \"b\", \"c\", \"d\""

/* Contexts and endings are what lm-evaluation-harness 0.4.13's process_docs gives for these rows (CPython 3.11). */
START_TEST(official_rows_are_prepared_as_the_harness_does)
{
	static const char rows[] = ROW("Roof shingle removal", "A man is sitting on a roof.", "he", FOUR, "3")
	    ROW("  Baking", "How to bake [header] Mix. [title] Stir the  dough.   Wait [step] now",
	        "THEN McDonald's [substeps]  eats  ", FOUR, "0")
	        ROW("A", "b [x [y] z] [open [title] end", "\\u01c6EPPO \\u039f\\u0394\\u039f\\u03a3 \\u0130X", FOUR,
	            "\"1\"") ROW("\\u3000Tab\\u001c", "line [a\\nb] and [c]", "\\u00dfTRASSE", FOUR, "2")
	            ROW("X", "", "\\ufb01N",
	                "\"  a  b   c    d \", \"[title] then [title][title] on\", \"no [break\\nhere] [yes]\", "
	                "\"\\u00a0\\u2003z\\u001f\"",
	                "0");
	static const char *const wanted[] = {
	    "Roof shingle removal: A man is sitting on a roof. He| a| b| c| d =3",
	    "Baking: How to bake Mix.. Stir the dough.  Wait now Then mcdonald's  eats| a| b| c| d =0",
	    "A: b z] [open. end \u01C5eppo \u03BF\u03B4\u03BF\u03C2 i\u0307x| a| b| c| d =1",
	    "Tab\x1C: line [a\nb] and Sstrasse| a| b| c| d =2",
	    "X: Fin| a b  c  d|  then. on| no [break\nhere] | z =0",
	};
	struct evaluation *ev = fixture_examples_open(m, "hellaswag", "{}", write_file("h.jsonl", rows));

	ck_assert_uint_eq(evaluation_n_units(ev), 5);
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_str_eq(fixture_example(ev, i), wanted[i]);
	evaluation_free(ev);
}
END_TEST

/* 2^22 brackets that nothing closes: minutes if each looked for its end. */
START_TEST(brackets_that_stay_open_are_read_in_one_pass)
{
	struct buf row = BUF_INIT(1 << 23);
	struct evaluation *ev;

	buf_puts(&row, "{\"activity_label\": \"a\", \"ctx_a\": \"b\", \"ctx_b\": \"");
	for (int i = 0; i < 1 << 22; i++)
		buf_putc(&row, '[');
	buf_puts(&row, "\", \"endings\": [" FOUR "], \"label\": 1}\n");
	ev = fixture_examples_open(m, "hellaswag", "{}", write_file("open.jsonl", buf_str(&row)));
	ck_assert_uint_eq(evaluation_n_units(ev), 1);
	evaluation_free(ev);
	buf_release(&row);
}
END_TEST

START_TEST(six_lines_are_taken_as_they_are)
{
	const char *file = write_file("six.txt", "Swim: [title]  he\n2\none  [x]\ntwo\n three\nfour\n"
	                                         "B: b \n0\ne\nf\ng\nh\nC: c\n1\ni\nj\nk\nl");
	struct evaluation *ev = fixture_examples_open(m, "hellaswag", "{\"limit\": 2}", file);

	ck_assert_uint_eq(evaluation_n_units(ev), 2);
	ck_assert_str_eq(fixture_example(ev, 0), "Swim: [title]  he| one  [x]| two|  three| four =2");
	/* white space at the context's end goes to the continuations */
	ck_assert_str_eq(fixture_example(ev, 1), "B: b|  e|  f|  g|  h =0");
	evaluation_free(ev);
	ev = fixture_examples_open(m, "hellaswag", "{}", file);
	ck_assert_str_eq(fixture_example(ev, 2), "C: c| i| j| k| l =1");
	evaluation_free(ev);
}
END_TEST

START_TEST(what_is_wrong_is_named_with_file_line_field_and_value)
{
	static const struct {
		const char *name, *text, *words;
	} cases[] = {
	    {"a.jsonl", ROW("A", "a", "b", FOUR, "0") ROW("A", "a", "b", FOUR, "4"), "'a.jsonl' line 2: \"label\": 4"},
	    {"b.jsonl", ROW("A", "a", "b", "\"a\", \"b\", \"c\"", "0"),
	     "line 1: \"endings\" must be a list of 4 texts"},
	    {"c.jsonl", ROW("A", "a", "b", "1, \"b\", \"c\", \"d\"", "0"), "an ending must be a string, not"},
	    {"d.jsonl", "{\"activity_label\": \"A\"}\n", "\"ctx_a\" must be a string, not absent"},
	    {"e.jsonl", ROW("A", "a", "b", "\"a\", \"b\", \"[c]\", \"d\"", "0"), "line 1: choice 2 is empty"},
	    {"f.txt", "A: a\n4\na\nb\nc\nd\n", "'f.txt' line 2: a label must be 0 to 3, not '4'"},
	    {"g.txt", "A: a\n1\na\nb\n", "the file ends after 4 of a question's 6 lines"},
	    {"h.txt", "A: a\n1\na\n\nc\nd\n", "choice 1 is empty"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		fixture_task_refused(m, "hellaswag", "{}", write_file(cases[i].name, cases[i].text), ERR_INPUT,
		                     cases[i].words);
}
END_TEST

START_TEST(the_validation_file_of_six_lines_has_10042_questions)
{
	const char *file = fixture_data("hellaswag/hellaswag_val_full.txt");
	struct evaluation *ev;

	if (!file) {
		fixture_skip("the_validation_file_of_six_lines_has_10042_questions", "no hellaswag_val_full.txt");
		return;
	}
	ev = fixture_examples_open(m, "hellaswag", "{}", file);
	ck_assert_uint_eq(evaluation_n_units(ev), 10042);
	evaluation_free(ev);
}
END_TEST

Suite *hellaswag_suite(void);
Suite *hellaswag_suite(void)
{
	Suite *s = suite_create("hellaswag");
	TCase *tc = tcase_create("hellaswag");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, official_rows_are_prepared_as_the_harness_does);
	tcase_add_test(tc, brackets_that_stay_open_are_read_in_one_pass);
	tcase_add_test(tc, six_lines_are_taken_as_they_are);
	tcase_add_test(tc, what_is_wrong_is_named_with_file_line_field_and_value);
	tcase_add_test(tc, the_validation_file_of_six_lines_has_10042_questions);
	suite_add_tcase(s, tc);
	return s;
}
