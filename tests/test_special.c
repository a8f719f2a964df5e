/* Distribution functions against SciPy and mpmath (golden/stats/generate.py). */
#include <check.h>
#include <math.h>

#include "engine/json.h"
#include "eval/special.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"

static struct json *golden;

static const struct json *cases(const char *name)
{
	struct err e;

	ck_ok(json_parse_file("tests/golden/stats/special.json", 1 << 20, &golden, &e), &e);
	ck_assert_uint_ge(json_count(json_get(golden, name)), 10);
	return json_first(json_get(golden, name));
}

/* what of SciPy is not exact to the last digits is not asked for more */
static void check_close(const char *what, double got, double want, double relative)
{
	ck_assert_msg(fabs(got - want) <= relative * fabs(want), "%s: %.17g, not %.17g", what, got, want);
}

START_TEST(the_normal_and_its_quantile_are_scipys)
{
	for (const struct json *c = cases("normal"); c; c = json_next(c))
		/* x^2 times the rounding of x, which is 37 at most */
		check_close("cdf", normal_cdf(fixture_member(c, "x")), fixture_member(c, "cdf"), 1e-12);
	json_free(golden);
	for (const struct json *c = cases("normal_quantile"); c; c = json_next(c))
		check_close("quantile", normal_quantile(fixture_member(c, "p")), fixture_member(c, "x"), 1e-12);
	json_free(golden);
	ck_assert(normal_quantile(0) == -INFINITY && normal_quantile(1) == INFINITY);
	ck_assert(isnan(normal_quantile(-0.1)) && isnan(normal_quantile(1.1)) && isnan(normal_quantile(NAN)));
}
END_TEST

START_TEST(the_incomplete_beta_function_is_mpmaths)
{
	for (const struct json *c = cases("beta"); c; c = json_next(c))
		check_close("beta", beta_cdf(fixture_member(c, "x"), fixture_member(c, "a"), fixture_member(c, "b")),
		            fixture_member(c, "cdf"), 1e-11);
	json_free(golden);
	ck_assert(beta_cdf(0, 2, 3) == 0 && beta_cdf(1, 2, 3) == 1);
	ck_assert(isnan(beta_cdf(0.5, 0, 1)) && isnan(beta_cdf(1.5, 1, 1)) && isnan(beta_cdf(NAN, 1, 1)));
}
END_TEST

START_TEST(students_t_is_mpmaths_and_its_quantile_scipys)
{
	for (const struct json *c = cases("student"); c; c = json_next(c))
		check_close("cdf", student_cdf(fixture_member(c, "t"), fixture_member(c, "df")),
		            fixture_member(c, "cdf"), 1e-10);
	json_free(golden);
	for (const struct json *c = cases("student_quantile"); c; c = json_next(c))
		check_close("quantile", student_quantile(fixture_member(c, "p"), fixture_member(c, "df")),
		            fixture_member(c, "t"), 1e-9);
	json_free(golden);
	/* one degree: the tangent of an angle; the printed tables: 2.0150 (5 degrees), 1.7291 (19), one-sided .05 */
	check_close("Cauchy", student_quantile(0.75, 1), 1, 1e-12);
	ck_assert_double_eq_tol(student_quantile(0.95, 5), 2.0150, 5e-5);
	ck_assert_double_eq_tol(student_quantile(0.95, 19), 1.7291, 5e-5);
	ck_assert(student_cdf(INFINITY, 3) == 1 && student_cdf(-INFINITY, 3) == 0 && student_cdf(0, 3) == 0.5);
	ck_assert(isnan(student_cdf(1, 0)) && isnan(student_quantile(0.5, -1)));
}
END_TEST

/* A logarithm's absolute error is the probability's relative error. */
START_TEST(binomial_tails_are_mpmaths_up_to_millions_of_trials)
{
	for (const struct json *c = cases("binomial"); c; c = json_next(c)) {
		int64_t k = (int64_t)fixture_member(c, "k"), n = (int64_t)fixture_member(c, "n");
		double p = fixture_member(c, "p"), pmf = binomial_log_pmf(k, n, p), upper = binomial_log_upper(k, n, p);

		ck_assert_msg(fabs(pmf - fixture_member(c, "log_pmf")) < 1e-9, "pmf of %ld, %ld: %.17g", (long)k,
		              (long)n, pmf);
		ck_assert_msg(fabs(upper - fixture_member(c, "log_upper")) < 1e-9, "tail of %ld, %ld: %.17g", (long)k,
		              (long)n, upper);
	}
	json_free(golden);
	ck_assert(binomial_log_upper(0, 5, 0.5) == 0 && binomial_log_upper(-3, 5, 0.5) == 0);
	ck_assert(binomial_log_upper(6, 5, 0.5) == -INFINITY && binomial_log_pmf(6, 5, 0.5) == -INFINITY);
	ck_assert(binomial_log_upper(1, 5, 0) == -INFINITY && binomial_log_upper(5, 5, 1) == 0);
	ck_assert(binomial_log_upper(0, 0, 0.5) == 0 && binomial_log_pmf(0, 0, 0.5) == 0);
	ck_assert(isnan(binomial_log_upper(1, 2, 1.5)) && isnan(binomial_log_pmf(1, -2, 0.5)));
}
END_TEST

START_TEST(a_binomials_probabilities_sum_to_one_and_to_its_tails)
{
	for (int64_t n = 1; n <= 60; n++) {
		double sum = 0;

		for (int64_t k = n; k >= 0; k--) {
			sum += exp(binomial_log_pmf(k, n, 0.3));
			ck_assert_double_eq_tol(sum, exp(binomial_log_upper(k, n, 0.3)), 1e-13);
		}
		ck_assert_double_eq_tol(sum, 1, 1e-13);
	}
}
END_TEST

Suite *special_suite(void);
Suite *special_suite(void)
{
	Suite *s = suite_create("special");
	TCase *tc = tcase_create("special");

	tcase_add_test(tc, the_normal_and_its_quantile_are_scipys);
	tcase_add_test(tc, the_incomplete_beta_function_is_mpmaths);
	tcase_add_test(tc, students_t_is_mpmaths_and_its_quantile_scipys);
	tcase_add_test(tc, binomial_tails_are_mpmaths_up_to_millions_of_trials);
	tcase_add_test(tc, a_binomials_probabilities_sum_to_one_and_to_its_tails);
	suite_add_tcase(s, tc);
	return s;
}
