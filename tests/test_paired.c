/* Paired comparisons: against statsmodels and SciPy (golden/stats/generate.py), published examples, and by
 * simulation, seeded: the error rates are at most nominal plus three standard errors of the simulation, and the
 * power is as computed. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/json.h"
#include "eval/paired.h"
#include "eval/special.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_simulation.h"

#define MANY 128

static struct json *golden;

static const struct json *cases(const char *name, size_t at_least)
{
	struct err e;

	ck_ok(json_parse_file("tests/golden/stats/paired.json", 1 << 20, &golden, &e), &e);
	ck_assert_uint_ge(json_count(json_get(golden, name)), at_least);
	return json_first(json_get(golden, name));
}

static void check_close(const char *what, double got, double want, double relative, double absolute)
{
	ck_assert_msg(fabs(got - want) <= relative * fabs(want) + absolute, "%s: %.17g, not %.17g", what, got, want);
}

static double value(const struct json *j)
{
	double v = NAN;

	ck_assert(json_number(j, &v));
	return v;
}

static size_t read_numbers(const struct json *list, double *x)
{
	size_t n = 0;

	for (const struct json *j = json_first(list); j; j = json_next(j)) {
		ck_assert_uint_lt(n, MANY);
		x[n++] = value(j);
	}
	return n;
}

static size_t read_clusters(const struct json *list, struct cluster *c)
{
	size_t n = 0;

	for (const struct json *j = json_first(list); j; j = json_next(j)) {
		ck_assert_uint_lt(n, MANY);
		c[n++] = (struct cluster){value(json_first(j)), value(json_next(json_first(j)))};
	}
	return n;
}

static size_t read_groups(const struct json *list, struct discordance *g)
{
	size_t n = 0;

	for (const struct json *j = json_first(list); j; j = json_next(j)) {
		const struct json *worse = json_next(json_first(j));

		ck_assert_uint_lt(n, MANY);
		g[n++] = (struct discordance){(int64_t)value(json_first(j)), (int64_t)value(worse),
		                              (int64_t)value(json_next(worse))};
	}
	return n;
}

/* -- golden ------------------------------------------------------------------------------------ */

START_TEST(ratios_are_statsmodels_clustered_regressions)
{
	for (const struct json *c = cases("ratio", 7); c; c = json_next(c)) {
		struct cluster cand[MANY], base[MANY];
		struct paired r;
		size_t n = read_clusters(json_get(c, "cand"), cand);

		ck_assert_uint_eq(read_clusters(json_get(c, "base"), base), n);
		paired_ratio(cand, base, n, fixture_member(c, "alpha"), &r);
		ck_assert(r.n_effective > 1 && r.n_effective < (double)n);
		check_close("delta", r.delta, fixture_member(c, "delta"), 1e-9, 1e-14);
		check_close("se", r.se, fixture_member(c, "se"), 1e-9, 0);
		check_close("lower", r.lower, fixture_member(c, "lower"), 1e-9, 1e-12);
		check_close("upper", r.upper, fixture_member(c, "upper"), 1e-9, 1e-12);
		check_close("p", r.p, fixture_member(c, "p"), 1e-8, 0);
		ck_assert(r.df == fixture_member(c, "df") && r.n == n && r.n_differ == n && r.too_few == (n < 8));
	}
	json_free(golden);
}
END_TEST

START_TEST(accuracies_are_mcnemars_and_tangos)
{
	for (const struct json *c = cases("accuracy", 30); c; c = json_next(c)) {
		struct discordance g[MANY];
		double alpha = fixture_member(c, "alpha"), p = fixture_member(c, "p"),
		       lower = fixture_member(c, "lower");
		size_t k = read_groups(json_get(c, "groups"), g);
		/* of several groups by a numerical optimum, good to some six digits */
		double tol = k == 1 ? 1e-9 : 2e-6;
		struct paired r;

		paired_accuracy(g, k, alpha, &r);
		check_close("delta", r.delta, fixture_member(c, "delta"), 1e-12, 1e-15);
		check_close("se", r.se, fixture_member(c, "se"), 1e-10, 0);
		check_close("p", r.p, p, 1e-9, 0);
		check_close("upper", r.upper, fixture_member(c, "upper"), 0, tol);
		check_close("lower", r.lower, p > alpha ? fmin(lower, 0) : lower, 0, tol);
		ck_assert(r.df == 0 && !r.too_few);
	}
	json_free(golden);
}
END_TEST

/* Tango 1998: soft contact lenses, 1 and 0 of 44 pairs: -.059 to .118. Fagerland, Lydersen and Laake 2014:
 * airways of 21 children, 1 and 7: Tango's interval -.517 to -.026, and the exact conditional test's two-sided p
 * of .070. */
START_TEST(the_published_examples_come_out)
{
	struct discordance lenses = {44, 1, 0}, airways = {21, 1, 7}, mirrored = {21, 7, 1};
	struct paired r;

	paired_accuracy(&lenses, 1, 0.025, &r);
	ck_assert_double_eq_tol(r.lower, -0.059, 5e-4);
	ck_assert_double_eq_tol(r.upper, 0.118, 5e-4);
	paired_accuracy(&airways, 1, 0.025, &r);
	ck_assert_double_eq_tol(r.lower, -0.517, 5e-4);
	ck_assert_double_eq_tol(r.upper, -0.026, 5e-4);
	paired_accuracy(&mirrored, 1, 0.025, &r);
	ck_assert_double_eq_tol(2 * r.p, 0.070, 5e-4);
	ck_assert_double_eq_tol(r.upper, 0.517, 5e-4);
	ck_assert(r.lower == 0); /* .026, but p > alpha */
}
END_TEST

START_TEST(holms_p_values_are_statsmodels)
{
	for (const struct json *c = cases("holm", 5); c; c = json_next(c)) {
		double p[MANY], want[MANY] = {0}, got[MANY];
		size_t n = read_numbers(json_get(c, "p"), p);

		ck_assert_uint_eq(read_numbers(json_get(c, "adjusted"), want), n);
		holm_adjust(p, got, n);
		for (size_t i = 0; i < n; i++)
			check_close("adjusted", got[i], want[i], 1e-14, 0);
	}
	json_free(golden);
}
END_TEST

START_TEST(items_needed_are_statsmodels)
{
	struct paired unknown = {.n = 1, .se = NAN}, same = {.n = 10, .se = 0};

	for (const struct json *c = cases("items", 4); c; c = json_next(c)) {
		struct paired r = {.n = (size_t)fixture_member(c, "n"), .se = fixture_member(c, "se")};

		ck_assert_int_eq(items_needed(&r, fixture_member(c, "delta"), fixture_member(c, "alpha")),
		                 (int64_t)fixture_member(c, "items"));
	}
	json_free(golden);
	ck_assert_int_eq(items_needed(&unknown, 0.01, 0.05), -1);
	ck_assert_int_eq(items_needed(&same, 0.01, 0.05), 0);
}
END_TEST

/* -- by hand ----------------------------------------------------------------------------------- */

/* Four tosses: the heavy pair (a group of 1) and three light ones (of 3): weights 3 and 1. */
START_TEST(the_exact_test_of_unequal_groups_counts_outcomes)
{
	/* worse: the heavy one and one light: T = 4 of 3 + {0..3}: at least 4 are (3, >= 1): 7 of 16 outcomes */
	struct discordance g[2] = {{1, 1, 0}, {3, 1, 2}};
	struct paired r;

	paired_accuracy(g, 2, 0.05, &r);
	check_close("p", r.p, 7.0 / 16, 1e-13, 0);
	check_close("delta", r.delta, (1 - 1.0 / 3) / 2, 1e-15, 0);
	/* all worse: one of 16 */
	g[1] = (struct discordance){3, 3, 0};
	paired_accuracy(g, 2, 0.05, &r);
	check_close("p", r.p, 1.0 / 16, 1e-13, 0);
	/* none worse: all outcomes */
	g[0] = (struct discordance){1, 0, 1};
	g[1] = (struct discordance){3, 0, 2};
	paired_accuracy(g, 2, 0.05, &r);
	check_close("p", r.p, 1, 1e-13, 0);
}
END_TEST

/* Sizes without a small common multiple: the lattice is rounded, and p lies between those of ties counted and not. */
START_TEST(large_unequal_groups_have_the_normal_limits_p)
{
	struct discordance g[6] = {{9973, 420, 300}, {8009, 150, 190}, {7001, 90, 60},
	                           {5003, 60, 61},   {2003, 40, 30},   {30011, 900, 950}};
	double variance = 0, sum = 0;
	struct paired r;

	for (size_t i = 0; i < 6; i++) {
		double n = (double)g[i].n;

		sum += (double)(g[i].worse - g[i].better) / n;
		variance += (double)(g[i].worse + g[i].better) / (n * n);
	}
	paired_accuracy(g, 6, 0.05, &r);
	check_close("p", r.p, normal_cdf(-sum / sqrt(variance)), 0.01, 0);
}
END_TEST

static void check_none(const struct paired *r, enum paired_verdict want)
{
	ck_assert_int_eq(paired_decide(r, 0.01, 0.05, r->p), want);
	ck_assert(r->p == 1);
}

START_TEST(pairs_that_do_not_differ_pass_and_no_pairs_decide_nothing)
{
	struct cluster docs[9] = {{10, 3}, {20, 7}, {5, 2}};
	struct discordance g[2] = {{100, 0, 0}, {50, 0, 0}};
	struct paired r;

	for (size_t n = 1; n < 4; n += 2) {
		paired_ratio(docs, docs, n, 0.05, &r);
		ck_assert(r.delta == 0 && r.lower == 0 && r.upper == 0 && r.n_differ == 0 && r.too_few);
		check_none(&r, PAIRED_PASS);
	}
	paired_accuracy(g, 2, 0.05, &r);
	ck_assert(r.delta == 0 && r.lower == 0 && r.upper == 0 && r.se == 0 && r.n == 150);
	check_none(&r, PAIRED_PASS);
	paired_ratio(docs, docs, 0, 0.05, &r);
	ck_assert(isnan(r.delta) && isnan(r.upper));
	check_none(&r, PAIRED_INCONCLUSIVE);
	paired_accuracy(g, 0, 0.05, &r);
	check_none(&r, PAIRED_INCONCLUSIVE);
}
END_TEST

START_TEST(fewer_than_eight_documents_that_differ_are_inconclusive)
{
	struct cluster base[8], cand[8];
	struct paired r;

	for (size_t i = 0; i < 8; i++) {
		base[i] = (struct cluster){100, 50};
		cand[i] = (struct cluster){100 + 50 * 0.5 + (double)i * 0.01, 50};
	}
	paired_ratio(cand, base, 8, 0.05, &r);
	ck_assert_int_eq(paired_decide(&r, 0.01, 0.05, r.p), PAIRED_FAIL);
	paired_ratio(base, cand, 8, 0.05, &r);
	ck_assert_int_eq(paired_decide(&r, 0.01, 0.05, r.p), PAIRED_PASS);
	for (size_t n = 1; n < 8; n++) {
		paired_ratio(cand, base, n, 0.05, &r);
		ck_assert_int_eq(paired_decide(&r, 0.01, 0.05, r.p), PAIRED_INCONCLUSIVE);
		paired_ratio(base, cand, n, 0.05, &r);
		ck_assert_int_eq(paired_decide(&r, 0.01, 0.05, r.p), PAIRED_INCONCLUSIVE);
	}
}
END_TEST

START_TEST(the_decision_is_pass_then_fail_then_inconclusive)
{
	struct paired r = {.n = 100, .n_differ = 10, .delta = 0.002, .lower = 0.001, .upper = 0.0049, .p = 0.001};

	/* surely worse, and surely by less than the minimum effect */
	ck_assert_int_eq(paired_decide(&r, 0.005, 0.05, 0.001), PAIRED_PASS);
	ck_assert_int_eq(paired_decide(&r, 0.0049, 0.05, 0.001), PAIRED_FAIL);
	ck_assert_int_eq(paired_decide(&r, 0.0049, 0.05, 0.05), PAIRED_FAIL);
	ck_assert_int_eq(paired_decide(&r, 0.0049, 0.05, 0.0500001), PAIRED_INCONCLUSIVE);
	r.upper = NAN;
	ck_assert_int_eq(paired_decide(&r, 0.005, 0.05, 1), PAIRED_INCONCLUSIVE);
}
END_TEST

START_TEST(every_pair_worse_has_bounds_and_the_least_p)
{
	static const int64_t sizes[] = {12, 30, 100, 5000};
	struct paired r;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct discordance all = {sizes[i], sizes[i], 0}, none = {sizes[i], 0, sizes[i]};

		paired_accuracy(&all, 1, 0.05, &r);
		ck_assert(r.upper == 1 && r.lower > 0.6 && r.lower < 1);
		check_close("p", r.p, exp2(-(double)sizes[i]), 1e-12, 0);
		paired_accuracy(&none, 1, 0.05, &r);
		ck_assert(r.lower == -1 && r.upper < -0.6 && r.upper > -1);
		check_close("p", r.p, 1, 1e-12, 0);
	}
}
END_TEST

/* -- the bootstrap ------------------------------------------------------------------------------ */

/* Drawing by counts has the law of drawing items: bounds as those of bootstrap_ratio over the items, w = 1, whose
 * Delta is the same. Two quantiles of 10,000 each differ by about sqrt(2) sqrt(.05 .95/10,000)/density = .0065
 * se/.103 = .03 se. */
START_TEST(a_bootstrap_of_counts_is_that_of_items)
{
	static struct cluster cand[400], base[400];
	struct discordance g = {400, 31, 12};
	struct bootstrap items, counts, again;
	struct paired r;
	struct err e;

	for (size_t i = 0; i < 400; i++) {
		cand[i] = (struct cluster){i < 31, 1};
		base[i] = (struct cluster){i >= 31 && i < 43, 1};
	}
	paired_accuracy(&g, 1, 0.05, &r);
	ck_ok(bootstrap_ratio(cand, base, 400, 0.05, 1, &items, &e), &e);
	ck_ok(bootstrap_accuracy(&g, 1, 0.05, 2, &counts, &e), &e);
	/* steps of 1/400 are .15 se */
	ck_assert_double_eq_tol(items.lower, counts.lower, 0.25 * r.se);
	ck_assert_double_eq_tol(items.upper, counts.upper, 0.25 * r.se);
	ck_assert_double_eq_tol(counts.upper, r.delta + 1.645 * r.se, 0.25 * r.se);
	ck_assert_double_eq_tol(counts.lower, r.delta - 1.645 * r.se, 0.25 * r.se);
	ck_ok(bootstrap_accuracy(&g, 1, 0.05, 2, &again, &e), &e);
	ck_assert(same_bits(&again, &counts, sizeof again));
	ck_ok(bootstrap_ratio(cand, base, 400, 0.05, 1, &again, &e), &e);
	ck_assert(same_bits(&again, &items, sizeof again));
}
END_TEST

START_TEST(a_bootstrap_of_many_groups_is_near_the_normal_interval)
{
	struct discordance g[67]; /* as BLiMP has them */
	struct bootstrap b;
	struct paired r;
	struct err e;

	for (size_t i = 0; i < 67; i++)
		g[i] = (struct discordance){1000, 20 + (int64_t)i, 70 - (int64_t)i};
	paired_accuracy(g, 67, 0.05, &r);
	ck_ok(bootstrap_accuracy(g, 67, 0.05, 7, &b, &e), &e);
	ck_assert_double_eq_tol(b.lower, r.delta - 1.645 * r.se, 0.1 * r.se);
	ck_assert_double_eq_tol(b.upper, r.delta + 1.645 * r.se, 0.1 * r.se);
	g[0] = (struct discordance){1, 0, 0};
	ck_ok(bootstrap_accuracy(g, 1, 0.05, 7, &b, &e), &e);
	ck_assert(b.lower == 0 && b.upper == 0);
}
END_TEST

/* -- simulation --------------------------------------------------------------------------------- */

/* rates of one setting: of fail, and of pass */
struct rates {
	double fail, pass, n;
};

static void count(struct rates *r, const struct paired *x, double delta, double alpha)
{
	enum paired_verdict v = paired_decide(x, delta, alpha, x->p);

	r->n++;
	r->fail += v == PAIRED_FAIL;
	r->pass += v == PAIRED_PASS;
}

static void check_near(const char *what, double rate, double computed, double slack, double n)
{
	double tol = slack + 3 * sqrt(computed * (1 - computed) / n);

	fprintf(stderr, "simulated %s: %.4f, computed %.4f, within %.4f\n", what, rate, computed, tol);
	ck_assert_msg(fabs(rate - computed) <= tol, "%s: %.4f, computed %.4f", what, rate, computed);
}

/* Documents whose loss differs by effect + noise: of sd .03 a document, and .1/sqrt(tokens/100). Of one length,
 * or of 1000 to 4000 tokens. */
static void draw_documents(struct cluster *cand, struct cluster *base, size_t n, bool one_length, double effect)
{
	for (size_t i = 0; i < n; i++) {
		double w = one_length ? 2000 : floor(1000 + 3000 * uniform()), level = 3 + 0.3 * gauss();

		base[i] = (struct cluster){w * level, w};
		cand[i] = (struct cluster){w * (level + effect + 0.03 * gauss() + 0.1 * gauss() / sqrt(w / 100)), w};
	}
}

static struct rates simulate_ratio(size_t n, bool one_length, double effect, double delta, int trials)
{
	struct cluster cand[MANY], base[MANY];
	struct rates r = {0, 0, 0};
	struct paired x;

	for (int i = 0; i < trials; i++) {
		draw_documents(cand, base, n, one_length, effect);
		paired_ratio(cand, base, n, 0.05, &x);
		count(&r, &x, delta, 0.05);
	}
	r.fail /= r.n;
	r.pass /= r.n;
	return r;
}

/* A fail is looked for with next to no minimum effect, for a pass goes first. */
#define TINY 1e-9

START_TEST(documents_error_rates_hold_and_power_is_as_computed)
{
	static const size_t sizes[] = {8, 12, 40};
	double sd = hypot(0.03, 0.1 / sqrt(20)), delta;
	struct rates r;

	simulation_seed(11);
	for (size_t i = 0; i < 3; i++) {
		r = simulate_ratio(sizes[i], true, 0, TINY, 10000);
		check_at_most("P(fail), documents, no change", r.fail, 0.05, r.n);
		ck_assert(r.fail > 0.04); /* and the test is not asleep */
		r = simulate_ratio(sizes[i], true, 0.02, 0.02, 10000);
		check_at_most("P(pass), documents, change of delta", r.pass, 0.05, r.n);
		ck_assert(r.pass > 0.04);
	}
	/* delta such that 100 documents are needed */
	delta = (normal_quantile(0.95) + normal_quantile(0.8)) * sd / 10;
	ck_assert_int_eq(items_needed(&(struct paired){.n = 100, .se = sd / 10}, delta * (1 + 1e-12), 0.05), 100);
	r = simulate_ratio(100, true, 0, delta, 4000);
	check_near("P(pass), documents needed, no change", r.pass, 0.8, 0.01, r.n);
	r = simulate_ratio(100, true, delta, delta, 4000);
	check_near("P(fail), documents needed, change of delta", r.fail, 0.8, 0.01, r.n);
}
END_TEST

/* The clustered standard error is a little short where few documents of unequal length weigh unequally: as
 * paired.h says. */
START_TEST(documents_of_unequal_length_err_by_little_more)
{
	struct rates r;

	simulation_seed(15);
	r = simulate_ratio(8, false, 0, TINY, 10000);
	check_at_most("P(fail), 8 documents of 1000 to 4000 tokens, no change", r.fail, 0.055, r.n);
	r = simulate_ratio(100, false, 0, TINY, 10000);
	check_at_most("P(fail), 100 documents of 1000 to 4000 tokens, no change", r.fail, 0.0515, r.n);
	r = simulate_ratio(100, false, 0.002, 0.002, 10000);
	check_at_most("P(pass), 100 documents of 1000 to 4000 tokens, change of delta", r.pass, 0.0515, r.n);
	ck_assert(r.pass > 0.04);
}
END_TEST

/* A shape rule: two lengths of the same documents, each with its own tokens; the ratio of the laws' means is the
 * truth. */
START_TEST(two_lengths_of_the_same_documents_keep_the_level)
{
	struct cluster longer[MANY], shorter[MANY];
	struct rates no = {0, 0, 0}, at = {0, 0, 0};
	struct paired x;

	simulation_seed(16);
	for (int t = 0; t < 10000; t++) {
		for (size_t i = 0; i < 12; i++) {
			double level = 3 + 0.3 * gauss();

			shorter[i] = (struct cluster){1024 * (level + 0.05 * gauss()), 1024};
			longer[i] = (struct cluster){8192 * (level + 0.02 * gauss()), 8192};
		}
		paired_ratio(longer, shorter, 12, 0.05, &x);
		count(&no, &x, TINY, 0.05);
		for (size_t i = 0; i < 12; i++)
			longer[i].s += 8192 * log(1.02);
		paired_ratio(longer, shorter, 12, 0.05, &x);
		count(&at, &x, log(1.02), 0.05);
	}
	check_at_most("P(fail), two lengths, the same", no.fail / no.n, 0.05, no.n);
	check_at_most("P(pass), two lengths, the ratio allowed", at.pass / at.n, 0.05, at.n);
	ck_assert(no.fail / no.n > 0.04 && at.pass / at.n > 0.04);
}
END_TEST

/* what a group's pairs are: the probabilities of worse and of better */
struct law {
	int64_t n;
	double worse, better;
};

static int64_t draw_binomial(int64_t n, double p)
{
	int64_t k = 0;

	for (int64_t i = 0; i < n; i++)
		k += uniform() < p;
	return k;
}

static struct rates simulate_accuracy(const struct law *law, size_t k, double delta, int trials)
{
	struct rates r = {0, 0, 0};
	struct discordance g[8];
	struct paired x;

	for (int t = 0; t < trials; t++) {
		for (size_t i = 0; i < k; i++) {
			int64_t m = draw_binomial(law[i].n, law[i].worse + law[i].better);
			int64_t b = draw_binomial(m, law[i].worse / (law[i].worse + law[i].better));

			g[i] = (struct discordance){law[i].n, b, m - b};
		}
		paired_accuracy(g, k, 0.05, &x);
		count(&r, &x, delta, 0.05);
	}
	r.fail /= r.n;
	r.pass /= r.n;
	return r;
}

START_TEST(accuracies_error_rates_hold_and_power_is_as_computed)
{
	static const struct law same = {300, 0.05, 0.05}, worse = {300, 0.08, 0.03}, rare = {2000, 0.004, 0.004};
	static const struct law enough = {4947, 0.04, 0.04}, enough_worse = {4947, 0.045, 0.035};
	double delta = 0.01, s2 = 0.08, z = normal_quantile(0.95) + normal_quantile(0.8);
	struct rates r;

	simulation_seed(12);
	r = simulate_accuracy(&same, 1, TINY, 6000);
	check_at_most("P(fail), items, no change", r.fail, 0.05, r.n);
	ck_assert(r.fail > 0.02); /* exact, so conservative */
	r = simulate_accuracy(&rare, 1, TINY, 3000);
	check_at_most("P(fail), rare discordance, no change", r.fail, 0.05, r.n);
	r = simulate_accuracy(&worse, 1, 0.05, 6000);
	check_at_most("P(pass), items, change of delta", r.pass, 0.05, r.n);
	ck_assert(r.pass > 0.03);
	ck_assert_int_eq((int64_t)ceil(s2 * z * z / (delta * delta)), enough.n);
	r = simulate_accuracy(&enough, 1, delta, 2000);
	check_near("P(pass), items needed, no change", r.pass, 0.8, 0.01, r.n);
	r = simulate_accuracy(&enough_worse, 1, delta, 2000);
	check_near("P(fail), items needed, change of delta", r.fail, 0.8, 0.02, r.n); /* the exact test costs 1 % */
}
END_TEST

/* Groups of unequal sizes: no group changed, and changes that cancel in the mean (where pooled pairs would not). */
START_TEST(groups_error_rates_hold_where_none_changed_and_where_changes_cancel)
{
	static const struct law none[4] = {{100, 0.1, 0.1}, {150, 0.04, 0.04}, {300, 0.08, 0.08}, {400, 0.03, 0.03}};
	static const struct law cancel[4] = {{100, 0.02, 0.12}, {150, 0.05, 0.05}, {300, 0.1, 0.04}, {400, 0.06, 0.02}};
	static const struct law shifted[4] = {
	    {100, 0.06, 0.08}, {150, 0.08, 0.04}, {300, 0.13, 0.03}, {400, 0.08, 0.02}};
	struct rates r;

	simulation_seed(13);
	r = simulate_accuracy(none, 4, TINY, 4000);
	check_at_most("P(fail), groups, none changed", r.fail, 0.05, r.n);
	ck_assert(r.fail > 0.03);
	r = simulate_accuracy(cancel, 4, TINY, 4000);
	check_at_most("P(fail), groups, changes that cancel", r.fail, 0.05, r.n);
	ck_assert(r.fail > 0.02);
	r = simulate_accuracy(shifted, 4, (-0.02 + 0.04 + 0.1 + 0.06) / 4, 4000);
	check_at_most("P(pass), groups, change of delta", r.pass, 0.05, r.n);
	ck_assert(r.pass > 0.03);
}
END_TEST

START_TEST(holm_keeps_the_level_of_all_rules_together)
{
	double p[6], adjusted[6], any = 0;

	simulation_seed(14);
	for (int t = 0; t < 20000; t++) {
		bool failed = false;

		for (size_t i = 0; i < 6; i++)
			p[i] = i < 2 ? uniform() * 1e-4 : uniform(); /* two are worse indeed */
		holm_adjust(p, adjusted, 6);
		for (size_t i = 2; i < 6; i++)
			failed = failed || adjusted[i] <= 0.05;
		any += failed;
	}
	check_at_most("P(any false fail) of four rules beside two true ones", any / 20000, 0.05, 20000);
	ck_assert(any / 20000 > 0.04);
}
END_TEST

Suite *paired_suite(void);
Suite *paired_suite(void)
{
	Suite *s = suite_create("paired");
	TCase *tc = tcase_create("values"), *sim = tcase_create("simulation");

	tcase_add_test(tc, ratios_are_statsmodels_clustered_regressions);
	tcase_add_test(tc, accuracies_are_mcnemars_and_tangos);
	tcase_add_test(tc, the_published_examples_come_out);
	tcase_add_test(tc, holms_p_values_are_statsmodels);
	tcase_add_test(tc, items_needed_are_statsmodels);
	tcase_add_test(tc, the_exact_test_of_unequal_groups_counts_outcomes);
	tcase_add_test(tc, large_unequal_groups_have_the_normal_limits_p);
	tcase_add_test(tc, pairs_that_do_not_differ_pass_and_no_pairs_decide_nothing);
	tcase_add_test(tc, fewer_than_eight_documents_that_differ_are_inconclusive);
	tcase_add_test(tc, the_decision_is_pass_then_fail_then_inconclusive);
	tcase_add_test(tc, every_pair_worse_has_bounds_and_the_least_p);
	tcase_add_test(tc, a_bootstrap_of_counts_is_that_of_items);
	tcase_add_test(tc, a_bootstrap_of_many_groups_is_near_the_normal_interval);
	suite_add_tcase(s, tc);
	tcase_set_timeout(sim, 300); /* seconds of arithmetic; minutes under sanitizers on a loaded machine */
	tcase_add_test(sim, documents_error_rates_hold_and_power_is_as_computed);
	tcase_add_test(sim, documents_of_unequal_length_err_by_little_more);
	tcase_add_test(sim, two_lengths_of_the_same_documents_keep_the_level);
	tcase_add_test(sim, accuracies_error_rates_hold_and_power_is_as_computed);
	tcase_add_test(sim, groups_error_rates_hold_where_none_changed_and_where_changes_cancel);
	tcase_add_test(sim, holm_keeps_the_level_of_all_rules_together);
	suite_add_tcase(s, sim);
	return s;
}
