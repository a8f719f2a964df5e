/* Option tables: flags, environment, defaults, checks, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/options.h"
#include "tests/fixture.h"

#define N(a) (sizeof(a) / sizeof *(a))

static err_code check_digits(const char *value, struct err *e)
{
	if (!*value || strspn(value, "0123456789") != strlen(value))
		return err_set(e, ERR_INPUT, "is not a number");
	return ERR_OK;
}

static const struct option_spec specs[] = {
    {"--listen", "ADDR:PORT", "FATHOM_TEST_LISTEN", "127.0.0.1:8080", "where", 0, NULL},
    {"--models", "DIR", NULL, NULL, "directories", 1, NULL},
    {"--count", "N", "FATHOM_TEST_COUNT", NULL, "a number", 0, check_digits},
    {"--json", NULL, NULL, NULL, "a switch", 0, NULL},
};

static err_code parse(const char *const *args, struct options **o, int *help, struct err *e)
{
	static char copy[16][64];
	char *argv[16];
	int argc = 0;

	for (; args[argc]; argc++) {
		strcpy(copy[argc], args[argc]);
		argv[argc] = copy[argc];
	}
	return options_parse(specs, N(specs), "fathom test", "Tests.", argc, argv, o, help, e);
}
#define PARSE(o, help, e, ...) parse((const char *const[]){"test", ##__VA_ARGS__, NULL}, o, help, e)

START_TEST(absent_flags_take_the_default_and_present_ones_their_value)
{
	struct options *o;
	struct err e;
	int help;

	ck_ok(PARSE(&o, &help, &e), &e);
	ck_assert_int_eq(help, 0);
	ck_assert_str_eq(options_get(o, "--listen"), "127.0.0.1:8080");
	ck_assert_ptr_null(options_get(o, "--count"));
	ck_assert_uint_eq(options_count(o, "--json"), 0);
	options_free(o);

	ck_ok(PARSE(&o, &help, &e, "--listen=[::1]:0", "--count", "12", "--json"), &e);
	ck_assert_str_eq(options_get(o, "--listen"), "[::1]:0");
	ck_assert_str_eq(options_get(o, "--count"), "12");
	ck_assert_uint_eq(options_count(o, "--json"), 1);
	options_free(o);
}
END_TEST

START_TEST(repeated_flags_keep_their_order_and_arguments_mix_in)
{
	struct options *o;
	const char *const *dirs;
	struct err e;
	size_t n;
	int help;

	ck_ok(PARSE(&o, &help, &e, "a", "--models", "x", "-", "--models=y=z", "--", "--json", "b"), &e);
	dirs = options_all(o, "--models", &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(dirs[0], "x");
	ck_assert_str_eq(dirs[1], "y=z");
	ck_assert_str_eq(options_get(o, "--models"), "y=z");
	ck_assert_uint_eq(options_n_args(o), 4);
	ck_assert_str_eq(options_arg(o, 0), "a");
	ck_assert_str_eq(options_arg(o, 1), "-");
	ck_assert_str_eq(options_arg(o, 2), "--json");
	ck_assert_str_eq(options_arg(o, 3), "b");
	ck_assert_uint_eq(options_count(o, "--json"), 0);
	options_free(o);
}
END_TEST

START_TEST(the_environment_fills_in_and_is_checked)
{
	struct options *o;
	struct err e;
	int help;

	setenv("FATHOM_TEST_LISTEN", "h:1", 1);
	ck_ok(PARSE(&o, &help, &e), &e);
	ck_assert_str_eq(options_get(o, "--listen"), "h:1");
	options_free(o);
	ck_ok(PARSE(&o, &help, &e, "--listen", "h:2"), &e);
	ck_assert_str_eq(options_get(o, "--listen"), "h:2");
	options_free(o);
	setenv("FATHOM_TEST_LISTEN", "", 1);
	ck_ok(PARSE(&o, &help, &e), &e);
	ck_assert_str_eq(options_get(o, "--listen"), "127.0.0.1:8080");
	options_free(o);
	setenv("FATHOM_TEST_COUNT", "ten", 1);
	ck_err(PARSE(&o, &help, &e), ERR_INPUT, "FATHOM_TEST_COUNT: 'ten' is not a number", &e);
	unsetenv("FATHOM_TEST_COUNT");
	unsetenv("FATHOM_TEST_LISTEN");
}
END_TEST

START_TEST(bad_lines_are_refused_by_name)
{
	struct options *o = NULL;
	struct err e;
	int help;

	ck_err(PARSE(&o, &help, &e, "--nope"), ERR_INPUT, "unknown option --nope", &e);
	ck_err(PARSE(&o, &help, &e, "-x"), ERR_INPUT, "unknown option -x", &e);
	ck_err(PARSE(&o, &help, &e, "--list=3"), ERR_INPUT, "unknown option --list", &e);
	ck_err(PARSE(&o, &help, &e, "--listen"), ERR_INPUT, "--listen needs a value: ADDR:PORT", &e);
	ck_err(PARSE(&o, &help, &e, "--json=1"), ERR_INPUT, "--json takes no value", &e);
	ck_err(PARSE(&o, &help, &e, "--count", "1", "--count=2"), ERR_INPUT, "--count is given twice", &e);
	ck_err(PARSE(&o, &help, &e, "--count", "-1"), ERR_INPUT, "--count: '-1' is not a number", &e);
	ck_assert_ptr_null(o);
}
END_TEST

START_TEST(help_wins_over_errors)
{
	struct options *o;
	struct err e;
	int help;

	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
	ck_ok(PARSE(&o, &help, &e, "--nope", "--help"), &e);
	ck_assert_int_eq(help, 1);
	ck_assert_ptr_null(o);
}
END_TEST

Suite *options_suite(void);
Suite *options_suite(void)
{
	Suite *s = suite_create("options");
	TCase *t = tcase_create("options");

	suite_add_tcase(s, t);
	tcase_add_test(t, absent_flags_take_the_default_and_present_ones_their_value);
	tcase_add_test(t, repeated_flags_keep_their_order_and_arguments_mix_in);
	tcase_add_test(t, the_environment_fills_in_and_is_checked);
	tcase_add_test(t, bad_lines_are_refused_by_name);
	tcase_add_test(t, help_wins_over_errors);
	return s;
}
