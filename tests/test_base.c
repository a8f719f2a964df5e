/* The base that has no suite of its own: errors, growing arrays, clocks, paths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/buf.h"
#include "engine/clock.h"
#include "engine/path.h"
#include "tests/fixture.h"

START_TEST(a_member_of_a_pointer_is_escaped_and_never_cut_in_an_escape)
{
	char slashes[300];
	struct err e;

	err_set(&e, ERR_INPUT, "x");
	ck_assert_int_eq(err_at_member(&e, "", "a~b/c"), ERR_INPUT);
	ck_assert_str_eq(e.pointer, "/a~0b~1c");
	err_at_member(&e, "/tags", "k");
	ck_assert_str_eq(e.pointer, "/tags/k");
	memset(slashes, '/', sizeof slashes - 1);
	slashes[sizeof slashes - 1] = '\0';
	err_at_member(&e, "", slashes);
	ck_assert_uint_lt(strlen(e.pointer), sizeof e.pointer);
	ck_assert_str_eq(e.pointer + strlen(e.pointer) - 2, "~1");
}
END_TEST

START_TEST(an_array_grows_and_survives_a_refusal)
{
	size_t cap = 0;
	struct err e;
	int *p = mem_grow(NULL, &cap, 1, sizeof *p, &e), *q;

	ck_assert(p && cap >= 1);
	p[0] = 7;
	q = mem_grow(p, &cap, cap, sizeof *p, &e);
	ck_assert_ptr_eq(q, p); /* there was room */
	q = mem_grow(p, &cap, 1000, sizeof *p, &e);
	ck_assert(q && cap >= 1000 && q[0] == 7);
	p = q;
	q = mem_grow(p, &cap, SIZE_MAX / 2, sizeof *p, &e);
	ck_assert(!q && e.code == ERR_MEMORY && cap < 10000 && p[0] == 7);
	free(p);
}
END_TEST

START_TEST(times_are_rfc_3339_in_utc)
{
	char text[CLOCK_TEXT];

	clock_format(INT64_C(1769860800123), text);
	ck_assert_str_eq(text, "2026-01-31T12:00:00.123Z");
	clock_format(INT64_C(253402300800000), text); /* the year 10000 */
	ck_assert_str_eq(text, "");
	ck_assert_int_ge(clock_mono_ms(), 0);
	ck_assert_int_gt(clock_unix_ms(), INT64_C(1700000000000));
}
END_TEST

START_TEST(a_path_is_judged_by_what_it_leads_to)
{
	const char *dir = fixture_tmpdir();
	char inside[4096], sibling[4096], out[4096];

	snprintf(inside, sizeof inside, "%s/a.txt", dir);
	snprintf(sibling, sizeof sibling, "%sx", dir);
	snprintf(out, sizeof out, "%s/out", dir);
	fixture_write(dir, "a.txt", "x", 1);
	ck_assert(!symlink("/etc", out));
	ck_assert(path_is_inside(dir, inside));
	ck_assert(path_is_inside("/", inside));
	ck_assert(!path_is_inside(dir, dir));
	ck_assert(!path_is_inside(dir, out));
	ck_assert(!path_is_inside(dir, sibling));
	ck_assert(path_has_suffix("a.txt", ".txt") && !path_has_suffix(".txt", ".txt") &&
	          !path_has_suffix("t", ".txt"));
}
END_TEST

START_TEST(a_path_has_a_name_even_where_it_shows_none)
{
	static const char *const cases[][2] = {{"models/x/", "x"}, {"x", "x"}, {"/a//b///", "b"}, {"/tmp/..", ""}};
	struct err e;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *name = path_name(cases[i][0], &e);

		ck_assert_msg(name != NULL, "%s: %s", cases[i][0], e.msg);
		ck_assert_str_eq(name, cases[i][1]);
		free(name);
	}
	ck_assert(!path_name("", &e) && e.code == ERR_NOT_FOUND);
}
END_TEST

Suite *base_suite(void);
Suite *base_suite(void)
{
	Suite *s = suite_create("base");
	TCase *t = tcase_create("base");

	tcase_add_test(t, a_member_of_a_pointer_is_escaped_and_never_cut_in_an_escape);
	tcase_add_test(t, an_array_grows_and_survives_a_refusal);
	tcase_add_test(t, times_are_rfc_3339_in_utc);
	tcase_add_test(t, a_path_is_judged_by_what_it_leads_to);
	tcase_add_test(t, a_path_has_a_name_even_where_it_shows_none);
	suite_add_tcase(s, t);
	return s;
}
