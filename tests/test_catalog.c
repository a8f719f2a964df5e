/* The catalog of known datasets: its rows, and what it takes for official. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/catalog.h"
#include "eval/eval.h"
#include "tests/fixture.h"

static struct err e;
static char root[PATH_MAX];

static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
}

static const char *below(const char *name)
{
	static char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", root, name);
	return path;
}

static void write_text(const char *name, const char *text)
{
	fixture_write(root, name, text, strlen(text));
}

static bool is_hex(const char *s)
{
	return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

START_TEST(rows_are_complete_and_names_are_unique)
{
	for (size_t i = 0; i < catalog_count(); i++) {
		const struct catalog_entry *c = catalog_at(i);

		ck_assert_ptr_eq(catalog_find(c->name), c);
		ck_assert_ptr_eq(catalog_of_task(c->task), c);
		ck_assert(c->n_items && c->n_sources && c->url[strlen(c->url) - 1] == '/');
		for (size_t k = 0; k < c->n_sources; k++) {
			ck_assert_msg(is_hex(c->sources[k].sha256), "%s", c->sources[k].file);
			ck_assert_msg(c->sources[k].bytes > 0, "%s", c->sources[k].file);
			for (size_t m = 0; m < k; m++)
				ck_assert_str_ne(c->sources[m].file, c->sources[k].file);
		}
	}
	ck_assert_ptr_null(catalog_find("books"));
	ck_assert_ptr_null(catalog_of_task("text"));
	ck_assert_uint_eq(catalog_find("blimp")->n_sources, 67);
	ck_assert_uint_eq(catalog_find("pg19")->n_sources, 100);
	ck_assert_uint_eq(catalog_n_data_files(catalog_find("pg19")), 100);
	ck_assert_uint_eq(catalog_n_data_files(catalog_find("cbt")), 4);
	ck_assert_uint_eq(catalog_n_data_files(catalog_find("piqa")), 1);
}
END_TEST

/* "abc" is the example of FIPS 180-2. */
static const struct catalog_source two[] = {
    {"far/a.txt", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 3, NULL},
    {"b.txt", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 0, NULL}, /* empty */
};
static const struct catalog_entry pair = {
    .name = "pair", .task = "t", .n_items = 2, .unit = "x", .url = "http://x/", .sources = two, .n_sources = 2};

static bool official(const struct catalog_entry *entry, const char *name)
{
	bool yes = false;

	ck_ok(catalog_check(entry, below(name), &yes, &e), &e);
	return yes;
}

START_TEST(a_folder_is_official_with_all_files_and_no_other_data)
{
	ck_assert_int_eq(mkdir(below("d"), 0700), 0);
	write_text("d/a.txt", "abc");
	ck_assert(!official(&pair, "d"));
	write_text("d/b.txt", "");
	ck_assert(official(&pair, "d"));
	write_text("d/readme.md", "no data");
	write_text("d/.hidden.txt", "no data");
	ck_assert(official(&pair, "d"));
	write_text("d/c.txt", "");
	ck_assert(!official(&pair, "d"));
	ck_assert_int_eq(remove(below("d/c.txt")), 0);
	ck_assert_int_eq(mkdir(below("d/more"), 0700), 0);
	ck_assert(!official(&pair, "d"));
	ck_assert_int_eq(remove(below("d/more")), 0);
	write_text("d/a.txt", "abd");
	ck_assert(!official(&pair, "d"));
	ck_err(catalog_check(&pair, below("none"), &(bool){0}, &e), ERR_NOT_FOUND, "none", &e);
}
END_TEST

START_TEST(a_file_is_official_by_its_bytes_under_any_name)
{
	write_text("mine.txt", "abc");
	write_text("a.txt", "ab");
	ck_assert(official(&pair, "mine.txt"));
	ck_assert(!official(&pair, "a.txt"));
}
END_TEST

static const char *const members[] = {"deep/er/q.txt", "l.lst", NULL};
static const struct catalog_source packed[] = {{"P.zip", "00", 9, members}};
static const struct catalog_entry archived = {
    .name = "packed", .task = "t", .n_items = 1, .unit = "x", .url = "http://x/", .sources = packed, .n_sources = 1};

START_TEST(what_an_archive_held_is_official_by_the_record_of_its_unpacking)
{
#define LINES                                                                                                          \
	"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  q.txt\n"                                    \
	"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  l.lst\n"
	ck_assert_int_eq(mkdir(below("p"), 0700), 0);
	write_text("p/q.txt", "abc");
	write_text("p/l.lst", "");
	ck_assert(!official(&archived, "p"));
	write_text("p/" CATALOG_RECORD, "# P.zip 01\n" LINES); /* of another archive */
	ck_assert(!official(&archived, "p"));
	write_text("p/" CATALOG_RECORD, "# P.zip 00\n" LINES);
	ck_assert(official(&archived, "p"));
	ck_assert(official(&archived, "p/q.txt"));
	write_text("p/x.txt", "abc"); /* not under its own name */
	ck_assert(!official(&archived, "p/x.txt"));
	ck_assert_int_eq(remove(below("p/x.txt")), 0);
	write_text("p/q.txt", "abd");
	ck_assert(!official(&archived, "p") && !official(&archived, "p/q.txt"));
	write_text("p/" CATALOG_RECORD, "# P.zip 00\n  q.txt\n"); /* damaged: no hash before the name */
	ck_assert(!official(&archived, "p/q.txt"));
}
END_TEST

START_TEST(names_say_what_a_dataset_claims_to_be_and_bytes_what_it_is)
{
	const struct catalog_entry *entry;
	bool yes;

	write_text("x.jsonl", "{}");
	ck_ok(catalog_identify("x.jsonl", below("x.jsonl"), &entry, &yes, &e), &e);
	ck_assert(!entry && !yes);
	ck_ok(catalog_identify("lambada", below("x.jsonl"), &entry, &yes, &e), &e);
	ck_assert_str_eq(entry->name, "lambada");
	ck_assert(!yes);
	write_text("hellaswag_val.jsonl", "{}");
	ck_ok(catalog_identify("h", below("hellaswag_val.jsonl"), &entry, &yes, &e), &e);
	ck_assert_str_eq(entry->name, "hellaswag");
	ck_assert(!yes);
}
END_TEST

START_TEST(the_published_files_are_official)
{
	static const struct {
		const char *path, *entry; /* NULL: known by nothing */
		bool official;
	} cases[] = {
	    {"lambada/lambada_test.jsonl", "lambada", true},
	    {"lambada", "lambada", true},
	    {"blimp", "blimp", true},
	    {"blimp/wh_island.jsonl", "blimp", true},
	    {"piqa", "piqa", false},
	    {"hellaswag/hellaswag_val_full.txt", NULL, false},
	    {"pg19/test/10146.txt", "pg19", false},
	    {"pg19/test/12204.txt", "pg19", true},
	};
	const struct catalog_entry *entry;
	bool yes;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *path = fixture_data(cases[i].path);

		if (!path) {
			fixture_skip("the_published_files_are_official", cases[i].path);
			continue;
		}
		ck_ok(catalog_identify(catalog_base(path), path, &entry, &yes, &e), &e);
		ck_assert_msg(yes == cases[i].official, "%s", path);
		ck_assert_msg(cases[i].entry ? entry && !strcmp(entry->name, cases[i].entry) : !entry, "%s is %s", path,
		              entry ? entry->name : "unknown");
	}
}
END_TEST

Suite *catalog_suite(void);
Suite *catalog_suite(void)
{
	Suite *s = suite_create("catalog");
	TCase *tc = tcase_create("catalog");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, rows_are_complete_and_names_are_unique);
	tcase_add_test(tc, a_folder_is_official_with_all_files_and_no_other_data);
	tcase_add_test(tc, a_file_is_official_by_its_bytes_under_any_name);
	tcase_add_test(tc, what_an_archive_held_is_official_by_the_record_of_its_unpacking);
	tcase_add_test(tc, names_say_what_a_dataset_claims_to_be_and_bytes_what_it_is);
	tcase_add_test(tc, the_published_files_are_official);
	suite_add_tcase(s, tc);
	return s;
}
