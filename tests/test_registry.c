/* The registry: which names resolve, which are refused, what is listed. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eval/eval.h"
#include "tests/fixture.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static char root[PATH_MAX], first[PATH_MAX + 8], second[PATH_MAX + 8];
static const char *dirs[2];
static struct registry registry;

static void make_dir(const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", root, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void make_link(const char *target, const char *name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", root, name);
	ck_assert_int_eq(symlink(target, path), 0);
}

/* root/1 and root/2 are configured; root/secret is not. */
static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	snprintf(first, sizeof first, "%s/1", root);
	snprintf(second, sizeof second, "%s/2", root);
	make_dir("1");
	make_dir("2");
	make_dir("secret");
	fixture_write(root, "secret/config.json", "{}", 2);
	fixture_write(root, "secret/x.txt", "x", 1);
	dirs[0] = first;
	dirs[1] = second;
	registry = (struct registry){.model_dirs = dirs, .n_model_dirs = 2, .dataset_dirs = dirs, .n_dataset_dirs = 2};
}

static void make_model(const char *name)
{
	char config[PATH_MAX];

	make_dir(name);
	snprintf(config, sizeof config, "%s/config.json", name);
	fixture_write(root, config, "{}", 2);
}

static void check_model(const char *name, const char *where)
{
	char want[2 * PATH_MAX], *path = NULL;

	ck_ok(registry_model(&registry, name, &path, &e), &e);
	snprintf(want, sizeof want, "%s/%s", root, where);
	ck_assert_str_eq(path, want);
	free(path);
}

START_TEST(a_name_resolves_in_the_first_directory_that_has_it)
{
	make_model("1/a");
	make_model("2/a");
	make_model("2/b");
	make_dir("1/group");
	make_model("1/group/c");
	check_model("a", "1/a");
	check_model("b", "2/b");
	check_model("group/c", "1/group/c");
}
END_TEST

START_TEST(a_name_that_could_leave_is_refused)
{
	static const struct {
		const char *name, *words;
	} cases[] = {
	    {"", "is empty"},
	    {"..", "hidden or relative"},
	    {".", "hidden or relative"},
	    {"../secret", "hidden or relative"},
	    {"a/../../secret", "hidden or relative"},
	    {"a/..", "hidden or relative"},
	    {"a/./b", "hidden or relative"},
	    {".hidden", "hidden or relative"},
	    {"a/.hidden", "hidden or relative"},
	    {"/etc", "is absolute"},
	    {"//a", "is absolute"},
	    {"a//b", "empty component"},
	    {"a/", "empty component"},
	    {"a\nb", "control character"},
	    {"a\x01", "control character"},
	    {"a\x7F", "control character"},
	};
	char longer[1024], *path = NULL;

	for (size_t i = 0; i < COUNT(cases); i++) {
		ck_err(registry_model(&registry, cases[i].name, &path, &e), ERR_INPUT, cases[i].words, &e);
		ck_err(registry_dataset(&registry, cases[i].name, &path, &e), ERR_INPUT, cases[i].words, &e);
	}
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	ck_err(registry_model(&registry, longer, &path, &e), ERR_INPUT, "is too long", &e);
	ck_assert_ptr_null(path);
}
END_TEST

START_TEST(an_unknown_name_says_where_was_looked)
{
	char *path = NULL;

	make_dir("1/no-model");
	ck_err(registry_model(&registry, "absent", &path, &e), ERR_NOT_FOUND, "no model 'absent' in ", &e);
	ck_assert_ptr_nonnull(strstr(e.msg, first));
	ck_assert_ptr_nonnull(strstr(e.msg, second));
	ck_err(registry_model(&registry, "no-model", &path, &e), ERR_NOT_FOUND, "no model 'no-model'", &e);
	ck_err(registry_dataset(&registry, "absent", &path, &e), ERR_NOT_FOUND, "no dataset 'absent' in ", &e);
	registry.n_model_dirs = 0;
	ck_err(registry_model(&registry, "absent", &path, &e), ERR_NOT_FOUND, "none is configured", &e);
}
END_TEST

START_TEST(a_link_that_leaves_the_directory_is_not_followed)
{
	char *path = NULL;

	make_link("../secret", "1/out");
	make_link("../secret/x.txt", "1/out.txt");
	make_model("1/a");
	make_link("a", "1/alias");
	ck_err(registry_model(&registry, "out", &path, &e), ERR_NOT_FOUND, "no model 'out'", &e);
	ck_err(registry_dataset(&registry, "out", &path, &e), ERR_NOT_FOUND, "no dataset 'out'", &e);
	ck_err(registry_dataset(&registry, "out.txt", &path, &e), ERR_NOT_FOUND, "no dataset 'out.txt'", &e);
	ck_err(registry_dataset(&registry, "out/x.txt", &path, &e), ERR_NOT_FOUND, "no dataset", &e);
	check_model("alias", "1/alias");
}
END_TEST

START_TEST(a_sibling_whose_name_begins_like_the_directory_is_outside)
{
	char *path = NULL;

	make_model("11");
	make_link("../11", "1/out");
	ck_err(registry_model(&registry, "out", &path, &e), ERR_NOT_FOUND, "no model 'out'", &e);
}
END_TEST

START_TEST(a_dataset_is_a_folder_or_a_file_of_data)
{
	char *path = NULL;

	make_dir("1/books");
	fixture_write(root, "1/books/a.txt", "a", 1);
	fixture_write(root, "1/x.jsonl", "", 0);
	fixture_write(root, "1/x.bin", "", 0);
	ck_ok(registry_dataset(&registry, "books", &path, &e), &e);
	free(path);
	ck_ok(registry_dataset(&registry, "books/a.txt", &path, &e), &e);
	free(path);
	ck_ok(registry_dataset(&registry, "x.jsonl", &path, &e), &e);
	free(path);
	path = NULL;
	ck_err(registry_dataset(&registry, "x.bin", &path, &e), ERR_NOT_FOUND, "x.bin", &e);
}
END_TEST

static int add_name(void *arg, const char *name, const char *path)
{
	struct buf *out = arg;

	ck_assert_ptr_nonnull(strstr(path, name));
	buf_printf(out, "%s ", name);
	return 0;
}

static int stop(void *arg, const char *name, const char *path)
{
	(void)name;
	(void)path;
	return ++*(int *)arg == 2 ? 42 : 0;
}

START_TEST(listings_are_sorted_two_deep_and_without_repeats)
{
	struct buf names = BUF_INIT(4096);
	int n = 0;

	make_model("1/b");
	make_model("2/b");
	make_model("2/a");
	make_dir("1/group");
	make_model("1/group/c");
	make_dir("1/group/deeper");
	make_model("1/group/deeper/d");
	make_model("1/.hidden");
	make_link("../secret", "1/out");
	make_dir("2/books");
	fixture_write(root, "2/books/x.txt", "x", 1);
	fixture_write(root, "2/z.jsonl", "", 0);
	fixture_write(root, "2/notes.md", "", 0);
	registry_each_model(&registry, add_name, &names);
	ck_assert_str_eq(buf_str(&names), "a b group/c ");
	buf_clear(&names);
	registry_each_dataset(&registry, add_name, &names);
	ck_assert_str_eq(buf_str(&names), "books z.jsonl ");
	buf_release(&names);
	ck_assert_int_eq(registry_each_model(&registry, stop, &n), 42);
	ck_assert_int_eq(n, 2);
}
END_TEST

Suite *registry_suite(void);
Suite *registry_suite(void)
{
	Suite *s = suite_create("registry");
	TCase *c = tcase_create("registry");

	tcase_add_checked_fixture(c, set_up, NULL);
	tcase_add_test(c, a_name_resolves_in_the_first_directory_that_has_it);
	tcase_add_test(c, a_name_that_could_leave_is_refused);
	tcase_add_test(c, an_unknown_name_says_where_was_looked);
	tcase_add_test(c, a_link_that_leaves_the_directory_is_not_followed);
	tcase_add_test(c, a_sibling_whose_name_begins_like_the_directory_is_outside);
	tcase_add_test(c, a_dataset_is_a_folder_or_a_file_of_data);
	tcase_add_test(c, listings_are_sorted_two_deep_and_without_repeats);
	suite_add_tcase(s, c);
	return s;
}
