/* A metric's history: the bound of the last runs and the change points, against statsmodels and SciPy
 * (golden/stats/generate.py), by hand, and by simulation, seeded. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/json.h"
#include "eval/changes.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_simulation.h"

#define MANY 200

static struct json *golden;

static const struct json *cases(const char *name, size_t at_least)
{
	struct err e;

	ck_ok(json_parse_file("tests/golden/stats/changes.json", 1 << 20, &golden, &e), &e);
	ck_assert_uint_ge(json_count(json_get(golden, name)), at_least);
	return json_first(json_get(golden, name));
}

static void check_close(const char *what, double got, double want, double relative)
{
	ck_assert_msg(fabs(got - want) <= relative * fabs(want), "%s: %.17g, not %.17g", what, got, want);
}

static size_t read_values(const struct json *c, double *x)
{
	size_t n = 0;

	for (const struct json *j = json_first(json_get(c, "x")); j; j = json_next(j)) {
		ck_assert_uint_lt(n, MANY);
		ck_assert(json_number(j, &x[n++]));
	}
	return n;
}

/* -- the bound ---------------------------------------------------------------------------------- */

START_TEST(a_historys_bound_is_statsmodels_prediction_interval)
{
	for (const struct json *c = cases("history", 12); c; c = json_next(c)) {
		double x[MANY];
		size_t k = read_values(c, x);
		struct history_bound b;

		ck_assert(history_bound(x, k, json_true(json_get(c, "trend")), fixture_member(c, "alpha"), 0, &b));
		check_close("centre", b.centre, fixture_member(c, "centre"), 1e-12);
		check_close("s", b.s, fixture_member(c, "s"), 1e-10);
		check_close("half", b.half, fixture_member(c, "half"), 1e-9);
		ck_assert(b.df == fixture_member(c, "df") && b.k == k);
	}
	json_free(golden);
}
END_TEST

START_TEST(repeats_of_one_value_leave_the_minimum_effect_and_four_runs_nothing)
{
	double same[6] = {3.25, 3.25, 3.25, 3.25, 3.25, 3.25}, line[6] = {1, 2, 3, 4, 5, 6};
	struct history_bound b;

	ck_assert(!history_bound(same, 4, false, 0.05, 0.01, &b));
	ck_assert(!history_bound(same, 0, true, 0.05, 0.01, &b));
	ck_assert(history_bound(same, 5, false, 0.05, 0.01, &b));
	ck_assert(b.centre == 3.25 && b.s == 0 && b.half == 0.01 && b.df == 4);
	ck_assert(history_bound(line, 6, true, 0.05, 0.01, &b));
	ck_assert(b.centre == 7 && b.s == 0 && b.half == 0.01 && b.df == 4);
	/* mean 3.5, s = sqrt(17.5/5), t_{5,.95} = 2.0150 */
	ck_assert(history_bound(line, 6, false, 0.05, 0.01, &b));
	ck_assert_double_eq_tol(b.half, 2.0150 * sqrt(3.5) * sqrt(7.0 / 6), 2e-4);
}
END_TEST

/* -- change points ------------------------------------------------------------------------------ */

START_TEST(change_points_are_those_of_scipys_t_tests)
{
	size_t total = 0;

	for (const struct json *c = cases("series", 9); c; c = json_next(c)) {
		const struct json *want = json_first(json_get(c, "changes"));
		struct change *list;
		double x[MANY];
		size_t n, k = read_values(c, x);
		struct err e;

		ck_ok(changes_find(x, k, fixture_member(c, "alpha"), fixture_member(c, "min_effect"), &list, &n, &e),
		      &e);
		ck_assert_uint_eq(n, json_count(json_get(c, "changes")));
		ck_assert((n == 0) == (list == NULL));
		for (size_t i = 0; i < n; i++, want = json_next(want)) {
			ck_assert_uint_eq(list[i].index, (size_t)fixture_member(want, "index"));
			check_close("p", list[i].p, fixture_member(want, "p"), 1e-6);
			check_close("before", list[i].before, fixture_member(want, "before"), 1e-12);
			check_close("after", list[i].after, fixture_member(want, "after"), 1e-12);
		}
		total += n;
		free(list);
	}
	json_free(golden);
	ck_assert_uint_ge(total, 10);
}
END_TEST

START_TEST(a_deterministic_engines_step_is_found_and_rounding_is_none)
{
	double step[9] = {3.1, 3.1, 3.1, 3.1, 3.3, 3.3, 3.3, 3.1, 3.1}, flat[12];
	struct change *list;
	struct err e;
	size_t n;

	ck_ok(changes_find(step, 7, 0.05, 0, &list, &n, &e), &e);
	ck_assert_uint_eq(n, 1);
	ck_assert(list[0].index == 4 && list[0].p < 1e-20);
	ck_assert_double_eq_tol(list[0].before, 3.1, 1e-14);
	ck_assert_double_eq_tol(list[0].after, 3.3, 1e-14);
	free(list);
	ck_ok(changes_find(step, 7, 0.05, 0.21, &list, &n, &e), &e);
	ck_assert(n == 0 && !list);
	for (size_t i = 0; i < 12; i++)
		flat[i] = i < 6 ? 3.1 : nextafter(3.1, 4);
	ck_ok(changes_find(flat, 12, 0.05, 0, &list, &n, &e), &e);
	ck_assert(n == 0 && !list);
	ck_ok(changes_find(step, 5, 0.05, 0, &list, &n, &e), &e);
	ck_assert(n == 0 && !list);
	ck_ok(changes_find(NULL, 0, 0.05, 0, &list, &n, &e), &e);
	ck_assert(n == 0 && !list);
}
END_TEST

/* -- simulation --------------------------------------------------------------------------------- */

START_TEST(the_next_run_of_the_same_law_is_beyond_the_bound_at_most_at_alpha)
{
	simulation_seed(21);
	for (int trend = 0; trend < 2; trend++) {
		for (size_t k = 5; k <= 10; k += 5) {
			double x[10], beyond = 0;
			struct history_bound b;

			for (int t = 0; t < 10000; t++) {
				double slope = trend ? -0.3 : 0;

				for (size_t i = 0; i < k; i++)
					x[i] = 10 + slope * (double)i + gauss();
				ck_assert(history_bound(x, k, trend, 0.05, 0, &b));
				beyond += 10 + slope * (double)k + gauss() > b.centre + b.half;
			}
			check_at_most(trend ? "P(beyond), linear trend" : "P(beyond)", beyond / 10000, 0.05, 10000);
			ck_assert(beyond / 10000 > 0.04);
		}
	}
}
END_TEST

/* Noise of sd 1 and steps: how often anything is found that is not within one run of a step. */
static double false_rate(size_t n, size_t at, size_t until, double size, int trials, double *found)
{
	double any = 0, x[MANY];
	struct change *list;
	struct err e;
	size_t k;

	*found = 0;
	for (int t = 0; t < trials; t++) {
		bool wrong = false, right = false;

		for (size_t i = 0; i < n; i++)
			x[i] = gauss() + (i >= at && i < until ? size : 0);
		ck_ok(changes_find(x, n, 0.05, 0, &list, &k, &e), &e);
		for (size_t i = 0; i < k; i++) {
			bool near =
			    labs((long)list[i].index - (long)at) <= 1 || labs((long)list[i].index - (long)until) <= 1;

			right = right || near;
			wrong = wrong || !near;
		}
		any += wrong;
		*found += right;
		free(list);
	}
	*found /= trials;
	return any / trials;
}

START_TEST(noise_has_change_points_at_most_at_alpha_and_steps_are_found)
{
	double found;

	simulation_seed(22);
	check_at_most("P(any change point), 12 runs of noise", false_rate(12, 99, 99, 0, 4000, &found), 0.05, 4000);
	check_at_most("P(any change point), 40 runs of noise", false_rate(40, 99, 99, 0, 2000, &found), 0.05, 2000);
	check_at_most("P(a false one), a step of 6 sd", false_rate(40, 22, 40, 6, 1000, &found), 0.05, 1000);
	ck_assert_msg(found > 0.999, "a lasting step of 6 sd is found at a rate of %.4f", found);
	check_at_most("P(a false one), 8 runs worse by 6 sd", false_rate(40, 15, 23, 6, 1000, &found), 0.05, 1000);
	ck_assert_msg(found > 0.999, "a mended step of 6 sd is found at a rate of %.4f", found);
	false_rate(30, 27, 30, 6, 500, &found);
	ck_assert_msg(found > 0.95, "the last three runs, worse by 6 sd, are seen at a rate of %.4f", found);
}
END_TEST

Suite *changes_suite(void);
Suite *changes_suite(void)
{
	Suite *s = suite_create("changes");
	TCase *tc = tcase_create("values"), *sim = tcase_create("simulation");

	tcase_add_test(tc, a_historys_bound_is_statsmodels_prediction_interval);
	tcase_add_test(tc, repeats_of_one_value_leave_the_minimum_effect_and_four_runs_nothing);
	tcase_add_test(tc, change_points_are_those_of_scipys_t_tests);
	tcase_add_test(tc, a_deterministic_engines_step_is_found_and_rounding_is_none);
	suite_add_tcase(s, tc);
	tcase_set_timeout(sim, 300);
	tcase_add_test(sim, the_next_run_of_the_same_law_is_beyond_the_bound_at_most_at_alpha);
	tcase_add_test(sim, noise_has_change_points_at_most_at_alpha_and_steps_are_found);
	suite_add_tcase(s, sim);
	return s;
}
