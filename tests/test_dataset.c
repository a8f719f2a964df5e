/* Datasets: order, the newline rule, invalid UTF-8, .jsonl, links, fingerprints. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/sha256.h"
#include "eval/dataset.h"
#include "tests/fixture.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static char root[PATH_MAX];

static void set_up(void)
{
	snprintf(root, sizeof root, "%s/data", fixture_tmpdir());
	ck_assert_int_eq(mkdir(root, 0700), 0);
}

static const char *below(const char *name)
{
	static char path[2][2 * PATH_MAX];
	static unsigned i;

	i ^= 1;
	snprintf(path[i], sizeof path[i], "%s/%s", root, name);
	return path[i];
}

static void write_file(const char *name, const char *text)
{
	fixture_write(root, name, text, strlen(text));
}

static void check_document(struct dataset *d, const char *name, const char *text, size_t n_replaced)
{
	const struct document *doc;

	ck_ok(dataset_next(d, &doc, &e), &e);
	ck_assert_msg(doc != NULL, "no document '%s'", name);
	ck_assert_str_eq(doc->name, name);
	ck_assert_str_eq(doc->text, text);
	ck_assert_uint_eq(doc->len, strlen(text));
	ck_assert_uint_eq(doc->n_replaced, n_replaced);
}

static void check_end(struct dataset *d)
{
	const struct document *doc;

	ck_ok(dataset_next(d, &doc, &e), &e);
	ck_assert_ptr_null(doc);
	ck_ok(dataset_check(d, &e), &e);
	dataset_close(d);
}

START_TEST(documents_come_by_relative_path_bytewise_and_recursively)
{
	struct dataset *d;

	ck_assert_int_eq(mkdir(below("a"), 0700), 0);
	ck_assert_int_eq(mkdir(below("a/deep"), 0700), 0);
	ck_assert_int_eq(mkdir(below(".hidden"), 0700), 0);
	write_file("b.txt", "5");
	write_file("a.txt", "2"); /* '.' comes before '/' */
	write_file("a/b.txt", "3");
	write_file("a/deep/x.txt", "4");
	write_file("B.txt", "1");
	write_file("\xC3\xA4.txt", "6");
	write_file(".hidden/x.txt", "no");
	write_file(".x.txt", "no");
	write_file("readme.md", "no");
	write_file("txt", "no");
	ck_ok(dataset_open(root, &d, &e), &e);
	ck_assert_uint_eq(dataset_bytes(d), 6);
	check_document(d, "B.txt", "1", 0);
	check_document(d, "a.txt", "2", 0);
	check_document(d, "a/b.txt", "3", 0);
	check_document(d, "a/deep/x.txt", "4", 0);
	check_document(d, "b.txt", "5", 0);
	check_document(d, "\xC3\xA4.txt", "6", 0);
	check_end(d);
}
END_TEST

START_TEST(newlines_become_lf_and_nothing_else_is_touched)
{
	struct dataset *d;

	write_file("a.txt", "\xEF\xBB\xBF"
	                    "a\r\nb\rc\n\r\n\r\r\n \t\x0C\xC2\x85\xE2\x80\xA8 e\xCC\x81\r");
	ck_ok(dataset_open(below("a.txt"), &d, &e), &e);
	check_document(d, "a.txt",
	               "\xEF\xBB\xBF"
	               "a\nb\nc\n\n\n\n \t\x0C\xC2\x85\xE2\x80\xA8 e\xCC\x81\n",
	               0);
	check_end(d);
}
END_TEST

START_TEST(invalid_bytes_become_replacement_characters_and_are_counted)
{
	struct dataset *d;

	write_file("a.txt", "a\xFF"
	                    "b\xE2\x82z\xC0\xAF");
	write_file("b.txt", "fine");
	ck_ok(dataset_open(root, &d, &e), &e);
	check_document(d, "a.txt",
	               "a\xEF\xBF\xBD"
	               "b\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD",
	               4);
	check_document(d, "b.txt", "fine", 0); /* counted for each anew */
	check_end(d);
}
END_TEST

START_TEST(a_nul_in_a_file_is_a_character)
{
	const struct document *doc;
	struct dataset *d;

	fixture_write(root, "a.txt", "a\0b", 3);
	ck_ok(dataset_open(root, &d, &e), &e);
	ck_ok(dataset_next(d, &doc, &e), &e);
	ck_assert_uint_eq(doc->len, 3);
	ck_assert_mem_eq(doc->text, "a\0b", 4);
	dataset_close(d);
}
END_TEST

START_TEST(a_jsonl_gives_its_lines_in_file_order)
{
	struct dataset *d;

	write_file("x.jsonl", "{\"text\":\"one\\r\\ntwo\\u00e9\",\"id\":\"first\"}\n\n  \n"
	                      "{\"id\":12,\"text\":\"\"}\r\n{\"text\":\"a \xFF\",\"meta\":{\"text\":3}}");
	ck_ok(dataset_open(below("x.jsonl"), &d, &e), &e);
	check_document(d, "first", "one\ntwo\xC3\xA9", 0);
	check_document(d, "12", "", 0);
	check_document(d, "line 5", "a \xEF\xBF\xBD", 1);
	check_end(d);
}
END_TEST

START_TEST(a_bad_line_is_named)
{
	static const struct {
		const char *line, *words;
	} cases[] = {
	    {"{\"txt\":\"a\"}", "'x.jsonl' line 2: no string \"text\" (it is absent)"},
	    {"{\"text\":7}", "line 2: no string \"text\" (it is number)"},
	    {"[\"text\"]", "line 2: no string \"text\" (it is in no object)"},
	    {"{\"text\":\"a\"", "line 2: JSON:"},
	    {"{\"text\":\"a\\u0000\"}", "line 2: JSON: \\u0000"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct document *doc;
		char text[200];
		struct dataset *d;

		snprintf(text, sizeof text, "{\"text\":\"ok\"}\n%s\n", cases[i].line);
		write_file("x.jsonl", text);
		ck_ok(dataset_open(below("x.jsonl"), &d, &e), &e);
		check_document(d, "line 1", "ok", 0);
		ck_err(dataset_next(d, &doc, &e), ERR_INPUT, cases[i].words, &e);
		dataset_close(d);
	}
}
END_TEST

START_TEST(what_holds_no_document_is_refused)
{
	struct dataset *d;

	ck_err(dataset_open(root, &d, &e), ERR_INPUT, "no .txt file in it", &e);
	write_file("a.csv", "x");
	ck_err(dataset_open(root, &d, &e), ERR_INPUT, "no .txt file in it", &e);
	ck_err(dataset_open(below("a.csv"), &d, &e), ERR_INPUT, "neither a folder nor a .txt or .jsonl file", &e);
	ck_err(dataset_open(below("absent"), &d, &e), ERR_NOT_FOUND, "absent", &e);
}
END_TEST

START_TEST(links_stay_inside)
{
	char outside[2 * PATH_MAX];
	struct dataset *d;

	snprintf(outside, sizeof outside, "%s/../secret.txt", root);
	fixture_write(root, "../secret.txt", "secret", 6);
	write_file("a.txt", "a");
	ck_assert_int_eq(symlink("a.txt", below("b.txt")), 0);
	ck_ok(dataset_open(root, &d, &e), &e);
	check_document(d, "a.txt", "a", 0);
	check_document(d, "b.txt", "a", 0);
	check_end(d);
	ck_assert_int_eq(symlink("../secret.txt", below("c.txt")), 0);
	ck_err(dataset_open(root, &d, &e), ERR_INPUT, "'c.txt' is a symbolic link that leaves the dataset", &e);
	ck_assert_int_eq(unlink(below("c.txt")), 0);
	ck_assert_int_eq(symlink("..", below("loop")), 0);
	ck_err(dataset_open(root, &d, &e), ERR_INPUT, "'loop' is a symbolic link to a folder", &e);
}
END_TEST

START_TEST(the_fingerprint_is_of_names_sizes_and_bytes)
{
	/* sha256 of "a.txt 3 <sha256 of abc>\n" */
	static const char line[] = "a.txt 3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
	char want[SHA256_HEX], first[FINGERPRINT_LEN];
	struct dataset *d;

	write_file("a.txt", "abc");
	write_file("other.md", "not part of it");
	sha256_hex(line, strlen(line), want);
	ck_ok(dataset_open(root, &d, &e), &e);
	strcpy(first, dataset_fingerprint(d));
	ck_assert_int_eq(strncmp(first, "sha256:", 7), 0);
	ck_assert_str_eq(first + 7, want);
	write_file("a.txt", "abcd");
	ck_err(dataset_check(d, &e), ERR_CHANGED, "changed while it was read", &e);
	dataset_close(d);
	ck_ok(dataset_open(root, &d, &e), &e);
	ck_assert_str_ne(dataset_fingerprint(d), first);
	dataset_close(d);
}
END_TEST

Suite *dataset_suite(void);
Suite *dataset_suite(void)
{
	Suite *s = suite_create("dataset");
	TCase *c = tcase_create("dataset");

	tcase_add_checked_fixture(c, set_up, NULL);
	tcase_add_test(c, documents_come_by_relative_path_bytewise_and_recursively);
	tcase_add_test(c, newlines_become_lf_and_nothing_else_is_touched);
	tcase_add_test(c, invalid_bytes_become_replacement_characters_and_are_counted);
	tcase_add_test(c, a_nul_in_a_file_is_a_character);
	tcase_add_test(c, a_jsonl_gives_its_lines_in_file_order);
	tcase_add_test(c, a_bad_line_is_named);
	tcase_add_test(c, what_holds_no_document_is_refused);
	tcase_add_test(c, links_stay_inside);
	tcase_add_test(c, the_fingerprint_is_of_names_sizes_and_bytes);
	suite_add_tcase(s, c);
	return s;
}
