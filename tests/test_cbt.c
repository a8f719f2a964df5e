/* Task cbt: the printed form of the Treebank's tokens, and questions. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/cbt.h"
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

static const char *below(const char *name)
{
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

/* -- detokenising ------------------------------------------------------------------------------ */

/* Phrases of the corpus (and some made up), and how a book prints them. */
static const struct {
	const char *tokens, *printed;
} golden[] = {
    {"-LRB- 3 -RRB- Hollenmadchen .", "(3) Hollenmadchen."},
    {"-LSB- Footnote 1 : ` Riemen . ' -RSB-", "[Footnote 1: 'Riemen.']"},
    {"CHAPTER I. -LCB- Chapter heading picture : p1.jpg -RCB- How", "CHAPTER I. {Chapter heading picture: p1.jpg} How"},
    {"`` Any soup , my dear ? '' shouted the king", "\"Any soup, my dear?\" shouted the king"},
    {"or pantomime `` properties . ''", "or pantomime \"properties.\""},
    {"say `` string '' -LSB- 1 -RSB- to you .", "say \"string\" [1] to you."},
    {"` Well , ' said the first bird , ` the spring is not far from here .",
     "'Well,' said the first bird, 'the spring is not far from here."},
    {"-- a mahout , -- not a mere hunter , -- a mahout , I say", "--a mahout,--not a mere hunter,--a mahout, I say"},
    {"a fine child -- a very fine child .", "a fine child--a very fine child."},
    {"he and the XXXXX were on the other side .", "he and the XXXXX were on the other side."},
    {"the man-eater 's XXXXX under my nail , and", "the man-eater's XXXXX under my nail, and"},
    {"Petersen Sahib 's permanent force , or", "Petersen Sahib's permanent force, or"},
    {"Do n't you like opening parcels ?", "Don't you like opening parcels?"},
    {"I ca n't -- it is not fine to weep !", "I can't--it is not fine to weep!"},
    {"it wo n't , DO N'T , I 'll , we 've , they 're , I 'm , he 'd , HE 'S",
     "it won't, DON'T, I'll, we've, they're, I'm, he'd, HE'S"},
    {"I think I 've told you that his name was XXXXX -- did I not ?",
     "I think I've told you that his name was XXXXX--did I not?"},
    {"my mother can not find me", "my mother cannot find me"},
    {"I Can not go ; I 'm gon na , he has got ta , d 'ye , 't is 'T was",
     "I Cannot go; I'm gonna, he has gotta, d'ye, 'tis 'Twas"},
    {"Mrs. Griggs 's story , at 5 o'clock , ma'am", "Mrs. Griggs's story, at 5 o'clock, ma'am"},
    {"Udea ! ' he cried ; ` Stop ! ' and", "Udea!' he cried; 'Stop!' and"}, /* opened before */
    {"He might as well try to catch the wind . '", "He might as well try to catch the wind.'"},
    {"the catchers ' wages , two hours ' work", "the catchers' wages, two hours' work"},
    {"` my masters ' house ' is", "'my masters' house' is"},
    {"The other replied , ' I do not know , ' and left", "The other replied, 'I do not know,' and left"},
    {"repeated the Mouse . ' I do not believe it . '", "repeated the Mouse. 'I do not believe it.'"},
    {"` he is a fine fellow though ! ' ' I am not a fellow ; I am a young lady ! '",
     "'he is a fine fellow though!' 'I am not a fellow; I am a young lady!'"},
    {"the word ` string ' and knelt", "the word 'string' and knelt"},
    {"it cost $ 5 , 10 % of it ...", "it cost $5, 10% of it..."},
    {"a  b ", "a b"},
    {"", ""},
};

START_TEST(tokens_are_printed_as_a_book_does)
{
	struct buf out = BUF_INIT(1 << 16);

	for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
		buf_clear(&out);
		cbt_detokenize(&out, golden[i].tokens, strlen(golden[i].tokens));
		ck_assert_str_eq(buf_str(&out), golden[i].printed);
	}
	buf_release(&out);
}
END_TEST

/* -- questions --------------------------------------------------------------------------------- */

/* A question whose sentences are "S1 ." to "S20 .", of which the last `n` are there, and this 21st line. */
static void put_question(struct buf *out, const char *last)
{
	for (int i = 1; i <= 20; i++)
		buf_printf(out, i == 2 ? "%d `` S%d XXXXX , ''\n" : "%d S%d .\n", i, i);
	buf_printf(out, "%s\n\n", last);
}

static const char *write_questions(const char *name, const char *first, const char *second)
{
	struct buf text = BUF_INIT(1 << 20);

	put_question(&text, first);
	if (second)
		put_question(&text, second);
	fixture_write(dir, name, text.data, text.len);
	buf_release(&text);
	return below(name);
}

#define CONTEXT "S1. \"S2 XXXXX,\" S3. S4. S5. S6. S7. S8. S9. S10. S11. S12. S13. S14. S15. S16. S17. S18. S19. S20."
#define RAW                                                                                                            \
	"S1 . `` S2 XXXXX , '' S3 . S4 . S5 . S6 . S7 . S8 . S9 . S10 . S11 . S12 . S13 . S14 . S15 . S16 . S17 . "    \
	"S18 . "                                                                                                       \
	"S19 . S20 ."

START_TEST(candidates_fill_the_gap_and_are_scored_with_the_rest)
{
	const char *file =
	    write_questions("q.txt", "21 ` The XXXXX 's hat , ' he said .\tman\t\tboy|man|n't", "21 XXXXX !\ta\t\ta|b");
	struct evaluation *ev = fixture_examples_open(m, "cbt", "{}", file);

	ck_assert_uint_eq(evaluation_n_units(ev), 2);
	ck_assert_str_eq(fixture_example(ev, 0),
	                 CONTEXT " 'The| boy's hat,' he said.| man's hat,' he said.| n't's hat,' he said. =1");
	ck_assert_str_eq(fixture_example(ev, 1), CONTEXT "| a!| b! =0");
	evaluation_free(ev);
	ev = fixture_examples_open(m, "cbt", "{\"detokenize\": false}", file);
	ck_assert_str_eq(fixture_example(ev, 0),
	                 RAW " ` The| boy 's hat , ' he said .| man 's hat , ' he said .| n't 's "
	                     "hat , ' he said . =1");
	evaluation_free(ev);
	ev = fixture_examples_open(m, "cbt", "{\"max_context_tokens\": 9}", file);
	ck_assert_str_eq(fixture_example(ev, 1), "S19. S20.| a!| b! =0");
	evaluation_free(ev);
}
END_TEST

START_TEST(a_folder_has_its_kinds_by_the_names_of_files)
{
	struct evaluation *ev;

	ck_assert_int_eq(mkdir(below("d"), 0700), 0);
	write_questions("d/cbtest_V_test_2500ex.txt", "21 v XXXXX\ta\t\ta|b", "21 v XXXXX\ta\t\ta|b");
	write_questions("d/cbtest_CN_test_2500ex.txt", "21 cn XXXXX\ta\t\ta|b", NULL);
	write_questions("d/cbtest_CN_train.txt", "21 no question", NULL);
	write_questions("d/cbtest_P_valid_2000ex.txt", "21 p XXXXX .\ta\t\ta|b", NULL);
	write_questions("d/cbt_test_raw.txt", "no question", NULL);
	ev = fixture_examples_open(m, "cbt", "{}", below("d"));
	ck_assert_str_eq(fixture_groups(ev), "CN: 1, V: 2");
	ck_assert_str_eq(fixture_example(ev, 0), CONTEXT " cn| a| b =0");
	evaluation_free(ev);
	ev = fixture_examples_open(m, "cbt", "{\"split\": \"valid\"}", below("d"));
	ck_assert_str_eq(fixture_groups(ev), "P: 1");
	evaluation_free(ev);
	/* one file is what it is */
	ev = fixture_examples_open(m, "cbt", "{}", below("d/cbtest_P_valid_2000ex.txt"));
	ck_assert_str_eq(fixture_groups(ev), "P: 1");
	evaluation_free(ev);
	fixture_task_refused(m, "cbt", "{\"split\": \"train\", \"limit\": 1}", below("d"), ERR_INPUT,
	                     "'cbtest_CN_train.txt' line 21: the query must be followed by");
}
END_TEST

START_TEST(what_is_wrong_is_named_with_file_line_and_value)
{
	static const struct {
		const char *last, *words;
	} cases[] = {
	    {"21 XXXXX\tc\t\ta|b", "'q.txt' line 21: the answer 'c' is not among the candidates 'a|b'"},
	    {"21 XXXXX\ta\t\ta||b", "candidate 2 is empty"},
	    {"21 XXXXX\ta\t\t", "candidate 1 is empty"},
	    {"21 XXXXX\ta", "the query must be followed by a tab, the answer, two tabs and the candidates"},
	    {"21 none\ta\t\ta|b", "the query must have one gap, XXXXX"},
	    {"21 XXXXX and XXXXX\ta\t\ta|b", "the query must have one gap, XXXXX"},
	    {"22 XXXXX\ta\t\ta|b", "sentence 22 stands where number 21 belongs"},
	    {"XXXXX\ta\t\ta|b", "sentence 21 must begin with its number and a space, not 'XXXXX"},
	    {"", "line 21: a question ends after sentence 20 of 21"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		fixture_task_refused(m, "cbt", "{}", write_questions("q.txt", cases[i].last, NULL), ERR_INPUT,
		                     cases[i].words);
}
END_TEST

/* In a sentence (the seventh: "7 S7 .") and in the query: neither is what the line seems to be. */
START_TEST(a_nul_is_refused_with_its_line)
{
	static const struct {
		const char *at, *words;
	} cases[] = {{"S7", "'q.txt' line 7: sentence 7 has a NUL byte"},
	             {"|b", "line 21: sentence 21 has a NUL byte"}};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf text = BUF_INIT(1 << 20);

		put_question(&text, "21 The XXXXX .\ta\t\ta|b");
		*strstr(buf_str(&text), cases[i].at) = '\0';
		fixture_write(dir, "q.txt", text.data, text.len);
		buf_release(&text);
		fixture_task_refused(m, "cbt", "{}", below("q.txt"), ERR_INPUT, cases[i].words);
	}
}
END_TEST

START_TEST(sharing_the_context_changes_no_bit)
{
	const char *file = write_questions("q.txt", "21 ` The XXXXX 's hat .\tman\t\tboy|man|horse", NULL);
	struct fixture_outcome shared, apart;

	fixture_task_run(m, "cbt", "{\"max_length\": 4096}", file, &shared);
	fixture_task_run(m, "cbt", "{\"max_length\": 4096, \"share\": false}", file, &apart);
	ck_assert_str_eq(shared.units.text[0], apart.units.text[0]);
	fixture_outcome_release(&shared);
	fixture_outcome_release(&apart);
}
END_TEST

START_TEST(the_official_examples_are_read)
{
	static const char *const splits[] = {"test", "valid", "train"};
	struct evaluation *ev;
	char params[64];

	if (!fixture_data("cbt/official_examples")) {
		fixture_skip("the_official_examples_are_read", "no cbt/official_examples");
		return;
	}
	for (int i = 0; i < 3; i++) {
		snprintf(params, sizeof params, "{\"split\": \"%s\"}", splits[i]);
		ev = fixture_examples_open(m, "cbt", params, fixture_data("cbt/official_examples"));
		ck_assert_str_eq(fixture_groups(ev), "CN: 1, NE: 1, P: 1, V: 1");
		if (!i)
			ck_assert_ptr_nonnull(
			    strstr(fixture_example(ev, 0),
			           "Do you think she will see that young| birds sitting under the tree?'|"));
		evaluation_free(ev);
	}
}
END_TEST

Suite *cbt_suite(void);
Suite *cbt_suite(void)
{
	Suite *s = suite_create("cbt");
	TCase *tc = tcase_create("cbt");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, tokens_are_printed_as_a_book_does);
	tcase_add_test(tc, candidates_fill_the_gap_and_are_scored_with_the_rest);
	tcase_add_test(tc, a_folder_has_its_kinds_by_the_names_of_files);
	tcase_add_test(tc, what_is_wrong_is_named_with_file_line_and_value);
	tcase_add_test(tc, a_nul_is_refused_with_its_line);
	tcase_add_test(tc, sharing_the_context_changes_no_bit);
	tcase_add_test(tc, the_official_examples_are_read);
	suite_add_tcase(s, tc);
	return s;
}
