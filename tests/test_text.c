/* Task text: documents scored whole, what is counted of them, BOS, cuts; and the same sums as pg19 with one window. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_task.h"

/* Three words, an e with an accent (two bytes), an ideographic space (three, no word). */
#define FIRST "one t\xC3\xA9n\n"
#define SECOND                                                                                                         \
	" a\xE3\x80\x80"                                                                                               \
	"b "
#define EOS 256

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

static const char *write_jsonl(void)
{
	return write_file("d.jsonl", "{\"text\":\"one t\\u00e9n\\r\\n\",\"id\":\"first\"}\n"
	                             "{\"text\":\" a\\u3000b \"}\n\n{\"text\":\"\"}\n{\"text\":\"x\"}\n");
}

static double loss_of(const char *text, size_t len, bool bos)
{
	uint32_t ids[200];

	ids[0] = EOS;
	for (size_t i = 0; i < len; i++)
		ids[i + bos] = (unsigned char)text[i];
	return fixture_loss(m, ids, (uint32_t)(len + bos), 1);
}

static void expect_item(const struct fixture_outcome *o, size_t at, const char *doc, const char *text, size_t len,
                        bool bos, double words)
{
	const struct json *item = fixture_item(o, at);
	double n = (double)len - !bos;

	ck_assert_str_eq(json_get_string(item, "doc"), doc);
	ck_assert_double_eq(fixture_member(item, "n_tokens"), n);
	ck_assert_double_eq(fixture_member(item, "n_bytes"), n); /* from the end of the first token */
	ck_assert_double_eq(fixture_member(item, "n_words"), words);
	ck_assert_double_eq(fixture_member(item, "nll"), loss_of(text, len, bos));
}

static double metric(const struct fixture_outcome *o, const char *name)
{
	return fixture_member(fixture_metric(o->metrics, name, 0), "value");
}

/* Without BOS the first token is not scored: its byte does not count, and the word that begins there does not. */
START_TEST(a_document_is_scored_whole_but_for_its_first_token)
{
	struct fixture_outcome o;
	double a, b, na = strlen(FIRST) - 1, nb = strlen(SECOND) - 1;

	fixture_task_run(m, "text", "{}", write_jsonl(), &o);
	ck_assert_uint_eq(json_count(o.items), 2);
	expect_item(&o, 0, "first", FIRST, strlen(FIRST), false, 1);
	expect_item(&o, 1, "line 2", SECOND, strlen(SECOND), false, 2);
	a = loss_of(FIRST, strlen(FIRST), false);
	b = loss_of(SECOND, strlen(SECOND), false);
	ck_assert_double_eq_tol(metric(&o, "nll_token"), (a + b) / (na + nb), 1e-14);
	ck_assert_double_eq_tol(metric(&o, "ppl_token") / exp((a + b) / (na + nb)), 1, 1e-13);
	ck_assert_double_eq_tol(metric(&o, "bits_per_byte"), (a + b) / (na + nb) / log(2), 1e-13);
	ck_assert_double_eq_tol(metric(&o, "ppl_word") / exp((a + b) / 3), 1, 1e-12);
	ck_assert_double_eq_tol(metric(&o, "ppl_doc_macro") / exp((a / na + b / nb) / 2), 1, 1e-13);
	ck_assert_double_eq(metric(&o, "n_skipped"), 2); /* "" and "x" */
	ck_assert_double_eq(metric(&o, "n_truncated"), 0);
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(with_bos_every_token_is_scored)
{
	struct fixture_outcome o;

	fixture_task_run(m, "text", "{\"bos\":\"document\"}", write_jsonl(), &o);
	ck_assert_uint_eq(json_count(o.items), 3);
	expect_item(&o, 0, "first", FIRST, strlen(FIRST), true, 2);
	expect_item(&o, 1, "line 2", SECOND, strlen(SECOND), true, 2);
	expect_item(&o, 2, "line 5", "x", 1, true, 1);
	ck_assert_double_eq(metric(&o, "n_skipped"), 1);
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(documents_and_tokens_can_be_limited)
{
	struct fixture_outcome o;

	fixture_task_run(m, "text", "{\"max_docs\":2,\"max_tokens_per_doc\":6}", write_jsonl(), &o);
	ck_assert_uint_eq(json_count(o.items), 2);
	expect_item(&o, 0, "first", "one t\xC3", 6, false, 1);
	expect_item(&o, 1, "line 2",
	            " a\xE3\x80\x80"
	            "b",
	            6, false, 2);
	ck_assert(json_true(json_get(fixture_item(&o, 0), "truncated")));
	ck_assert_double_eq(metric(&o, "n_truncated"), 2);
	ck_assert_double_eq(metric(&o, "n_skipped"), 0);
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(sums_and_metrics_are_those_of_pg19_with_one_window)
{
	static const char *const names[] = {"nll_token", "ppl_token", "bits_per_byte", "ppl_word", "ppl_doc_macro"};
	static const char *const bos[] = {"none", "document"};
	struct fixture_outcome text, pg19;
	char params[100], long_params[200];

	snprintf(params, sizeof params, "{\"bos\":\"%s\"}", bos[_i]);
	snprintf(long_params, sizeof long_params, "{\"bos\":\"%s\",\"lengths\":[64]}", bos[_i]);
	fixture_task_run(m, "text", params, write_jsonl(), &text);
	fixture_task_run(m, "pg19", long_params, path_of("d.jsonl"), &pg19);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const struct json *a = fixture_metric(text.metrics, names[i], 0);
		const struct json *b = fixture_metric(pg19.metrics, names[i], 64);

		ck_assert_double_eq(fixture_member(a, "value"), fixture_member(b, "value"));
		ck_assert_double_eq(fixture_member(a, "stderr"), fixture_member(b, "stderr"));
		ck_assert_double_eq(fixture_member(a, "n"), fixture_member(b, "n"));
		ck_assert_double_eq(fixture_member(a, "n_docs"), fixture_member(b, "n_docs"));
		ck_assert_str_eq(json_get_string(a, "unit"), json_get_string(b, "unit"));
	}
	for (size_t i = 0; i < json_count(text.items); i++)
		ck_assert_str_eq(json_get_string(fixture_item(&text, i), "key"),
		                 json_get_string(fixture_item(&pg19, i), "key"));
	fixture_outcome_release(&text);
	fixture_outcome_release(&pg19);
}
END_TEST

START_TEST(one_document_has_no_standard_error)
{
	struct fixture_outcome o;
	const struct json *ppl;

	fixture_task_run(m, "text", "{}", write_file("d.txt", FIRST), &o);
	ppl = fixture_metric(o.metrics, "ppl_token", 0);
	ck_assert(json_is_null(json_get(ppl, "stderr")));
	ck_assert_str_eq(json_get_string(ppl, "reason"), "one_document");
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(what_a_reader_should_know_is_a_warning)
{
	struct fixture_outcome o;
	char text[200];

	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	fixture_task_run(m, "text", "{}", write_file("d.txt", text), &o); /* the model's context is 64 */
	ck_assert(fixture_warned(&o,
	                         "1 of 1 documents are longer than the model's context of 64 tokens (first: 'd.txt', "
	                         "198)"));
	fixture_outcome_release(&o);
	fixture_task_run(m, "text", "{}", write_file("d.txt", "caf\xE9 au lait"), &o);
	ck_assert(fixture_warned(&o, "invalid UTF-8 became U+FFFD: 1 sequences in 1 of 1 documents (first: 'd.txt')"));
	fixture_outcome_release(&o);
}
END_TEST

START_TEST(bytes_that_the_tokenizer_drops_are_counted_in_a_warning)
{
	struct fixture_outcome o;
	struct model *letters = NULL;
	struct err e;
	uint32_t ab[] = {'a', 'b', ' '};

	fixture_edit(path_of("m"), "tokenizer.json", "\"x\":", "\"xx\":");
	ck_ok(model_open(path_of("m"), NULL, &letters, &e), &e);
	fixture_task_run(letters, "text", "{}", write_file("d.txt", "axxb x"), &o);
	ck_assert(fixture_warned(&o, "the tokenizer has no token for 3 bytes in 1 of 1 documents (first: 'd.txt')"));
	ck_assert_double_eq(fixture_member(fixture_item(&o, 0), "nll"), fixture_loss(letters, ab, 3, 1));
	ck_assert_double_eq(fixture_member(fixture_item(&o, 0), "n_bytes"), 4); /* xxb and a space */
	fixture_outcome_release(&o);
	model_free(letters);
}
END_TEST

START_TEST(data_without_a_text_is_refused)
{
	static const struct {
		const char *name, *text, *words;
	} cases[] = {
	    {"d.jsonl", "{\"text\":\"a b\"}\n{\"txt\":\"c\"}\n", "'d.jsonl' line 2: no string \"text\""},
	    {"d.jsonl", "\n", "no documents"},
	    {"d.txt", "x", "nothing to score: none of 1 documents has a token after its first"},
	    {"d.csv", "x,y", "d.csv"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		fixture_task_refused(m, "text", "{}", write_file(cases[i].name, cases[i].text), ERR_INPUT,
		                     cases[i].words);
}
END_TEST

Suite *text_suite(void);
Suite *text_suite(void)
{
	Suite *s = suite_create("text");
	TCase *t = tcase_create("text");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, a_document_is_scored_whole_but_for_its_first_token);
	tcase_add_test(t, with_bos_every_token_is_scored);
	tcase_add_test(t, documents_and_tokens_can_be_limited);
	tcase_add_loop_test(t, sums_and_metrics_are_those_of_pg19_with_one_window, 0, 2);
	tcase_add_test(t, one_document_has_no_standard_error);
	tcase_add_test(t, what_a_reader_should_know_is_a_warning);
	tcase_add_test(t, bytes_that_the_tokenizer_drops_are_counted_in_a_warning);
	tcase_add_test(t, data_without_a_text_is_refused);
	suite_add_tcase(s, t);
	return s;
}
