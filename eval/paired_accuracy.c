/* Paired comparison of accuracies, by group: see paired.h. With G groups of n_g pairs, b_g of them worse and
 * c_g better,
 *     Delta = 1/G sum (b_g - c_g)/n_g.
 * Every sum runs in the groups' order. */
#include <assert.h>
#include <math.h>

#include "eval/paired.h"
#include "eval/special.h"

/* -- the exact test -------------------------------------------------------------------------------
 * Given which m_g pairs are discordant, each is worse or better like the toss of a coin, if no group changed: b_g
 * of Binomial(m_g, 1/2), independent. Delta then orders the outcomes as T = sum a_g b_g does, a_g a multiple of
 * 1/n_g. Groups of one size: T is the number of worse pairs, and the test McNemar's of all pairs. Other sizes: the
 * a_g are integers, and the law of a sum on a lattice is computed exactly; a_g = lcm(n)/n_g, or where that lattice
 * is too large, the integers near to a multiple of 1/n_g, which is another statistic by a rounding, and as exact a
 * test: the a_g depend on the data by the number of discordant pairs alone, which is what the test is conditional
 * on. So the level holds exactly where no group changed. Where Delta <= 0 because groups' changes cancel, the
 * variance that the test gives b_g - c_g, m_g, is on average above the true one, E m_g - n_g (Delta_g)^2: the more
 * the groups differ, the more conservative. tests/test_paired.c simulates both. */

#define LATTICE_SIZE (1 << 22)

static uint64_t lattice_weight(const struct discordance *g, double grid)
{
	return (uint64_t)fmax(1, round(grid / (double)g->n));
}

/* P(T >= t), T = sum a_g b_g on 0..N-1, from its characteristic function, which is real about the mean: with
 * th_k = pi k/N,
 *     P = (N - t - sum_{k=1}^{N-1} (-1)^k sin(2 t th_k)/(2 sin th_k) prod_g cos(a_g th_k)^{m_g}) / N,
 * whose terms are the same for k and N - k. Arguments of sin and cos are reduced in integers. Error about 1e-14. */
static double lattice_upper(const struct discordance *g, size_t n_groups, double grid, uint64_t size, uint64_t t)
{
	double sum = (double)(size - t), scale = M_PI / (double)size;

	for (uint64_t k = 1; 2 * k <= size; k++) {
		double term = sin(2 * scale * (double)(k * t % size)) / (2 * sin(scale * (double)k));

		for (size_t i = 0; i < n_groups && fabs(term) > 1e-18; i++)
			term *= pow(cos(scale * (double)(k * lattice_weight(&g[i], grid) % (2 * size))),
			            (double)(g[i].worse + g[i].better));
		sum -= (k % 2 ? -term : term) * (2 * k == size ? 1 : 2);
	}
	return sum / (double)size;
}

/* The scale that makes the lattice's size about LATTICE_SIZE (weight = sum m_g/n_g), or the sizes' least common
 * multiple where that makes it smaller. */
static double lattice_grid(const struct discordance *g, size_t n_groups, double weight)
{
	double most = LATTICE_SIZE / weight, lcm = 1;

	for (size_t i = 0; i < n_groups; i++) {
		double a = lcm, b = (double)g[i].n;

		while (b > 0) {
			double rest = fmod(a, b);

			a = b;
			b = rest;
		}
		lcm *= (double)g[i].n / a;
		if (lcm > most)
			return most;
	}
	return lcm;
}

static double exact_p(const struct discordance *g, size_t n_groups)
{
	double weight = 0, grid, p;
	uint64_t size = 1, t = 0;
	int64_t worse = 0, all = 0;
	bool one_size = true;

	for (size_t i = 0; i < n_groups; i++) {
		one_size = one_size && g[i].n == g[0].n;
		worse += g[i].worse;
		all += g[i].worse + g[i].better;
		weight += (double)(g[i].worse + g[i].better) / (double)g[i].n;
	}
	if (one_size || !worse)
		return exp(binomial_log_upper(worse, all, 0.5));
	grid = lattice_grid(g, n_groups, weight);
	for (size_t i = 0; i < n_groups; i++) {
		uint64_t a = lattice_weight(&g[i], grid);

		size += a * (uint64_t)(g[i].worse + g[i].better);
		t += a * (uint64_t)g[i].worse;
	}
	p = lattice_upper(g, n_groups, grid, size, t);
	return fmin(1, fmax(p, exp(-M_LN2 * (double)all))); /* all of them worse is the least p there is */
}

/* -- the score interval ---------------------------------------------------------------------------
 * U is the largest Delta_0 that the score test does not reject at z: (Delta - Delta_0)/sqrt(V) = -z, V the
 * variance of the estimate Delta at the most likely p (worse), q (better) and r = 1 - p - q of all groups under
 * sum (p_g - q_g)/G = Delta_0. With Lagrange's multiplier x of that constraint, group by group,
 *     maximise b ln p + c ln q + (n - b - c) ln r - mu (p - q),  mu = x/G, and then  Delta - Delta_0 = x V,
 * because a multinomial's score is its information times (estimate - constrained). So U is where x sqrt(V(x)) =
 * -z: one unknown for any number of groups. One group: Tango (Statistics in Medicine 17, 1998, 891-908). */

struct group_fit {
	double delta, var; /* p - q, and the variance of its estimate: (p + q - (p - q)^2)/n */
};

/* p = b/(kappa + mu), q = c/(kappa - mu), r = (n - b - c)/kappa, kappa >= |mu| such that they sum to 1. The
 * unknown is d = kappa - |mu| >= 0, so that no denominator is a difference. Each share is at most 1: that bounds
 * d from below, where the sum is at least 1, convex and decreasing: Newton's steps stay below the root. */
static struct group_fit fit_group(const struct discordance *g, double mu)
{
	/* near: the side whose share mu makes larger, near/d; far/(d + 2 |mu|) */
	double far = (double)(mu > 0 ? g->worse : g->better), near = (double)(mu > 0 ? g->better : g->worse);
	double size = fabs(mu), n = (double)g->n, rest = n - near - far, a, b, c, step;
	double d = fmax(fmax(0, rest - size), fmax(near, far - 2 * size));

	for (int i = 0; i < 200; i++) {
		a = near > 0 ? near / d : 0;
		b = far > 0 ? far / (d + 2 * size) : 0;
		c = rest > 0 ? rest / (d + size) : 0;
		step = a + b + c - 1;
		if (!(step > 0))
			break;
		step /= (near > 0 ? a / d : 0) + (far > 0 ? b / (d + 2 * size) : 0) + (rest > 0 ? c / (d + size) : 0);
		if (!(step > 1e-16 * d))
			break;
		d += step;
	}
	/* less than 1 already at d = 0: the rest of it is of the near side, of which no pair was observed */
	if (d <= 0)
		a = 1 - b - c;
	return (struct group_fit){mu > 0 ? b - a : a - b, fmax(0, (a + b - (a - b) * (a - b)) / n)};
}

static struct group_fit fit(const struct discordance *g, size_t n_groups, double x)
{
	double k = (double)n_groups;
	struct group_fit sum = {0, 0}, one;

	for (size_t i = 0; i < n_groups; i++) {
		one = fit_group(&g[i], x / k);
		sum.delta += one.delta / k;
		sum.var += one.var / (k * k);
	}
	return sum;
}

/* The bound in the direction of `sign` (+1: U, -1: L): the multiplier is doubled until the test rejects, then
 * bisected. Where every pair is on that side already, V = 0 and no Delta_0 is rejected: the bound is the
 * estimate. */
static double score_bound(const struct discordance *g, size_t n_groups, double z, double sign, double estimate)
{
	double lo = 0, hi = 1, mid;

	while (hi < 1e18 && hi * sqrt(fit(g, n_groups, -sign * hi).var) < z)
		hi *= 2;
	if (hi >= 1e18)
		return estimate;
	while ((mid = lo + (hi - lo) / 2) > lo && mid < hi) {
		if (mid * sqrt(fit(g, n_groups, -sign * mid).var) < z)
			lo = mid;
		else
			hi = mid;
	}
	return fit(g, n_groups, -sign * hi).delta;
}

void paired_accuracy(const struct discordance *groups, size_t n_groups, double alpha, struct paired *out)
{
	double k = (double)n_groups, delta = 0, var = 0, z = normal_quantile(1 - alpha);

	*out = (struct paired){.delta = NAN, .se = NAN, .lower = NAN, .upper = NAN, .p = 1};
	for (size_t i = 0; i < n_groups; i++) {
		double n = (double)groups[i].n, m = (double)(groups[i].worse + groups[i].better);
		double d = (double)(groups[i].worse - groups[i].better) / n;

		assert(groups[i].worse >= 0 && groups[i].better >= 0 && groups[i].n >= 1 && m <= n);
		out->n += (size_t)groups[i].n;
		out->n_differ += (size_t)m;
		delta += d / k;
		var += (m / n - d * d) / (n - 1) / (k * k); /* one pair: 0/0, or unknown */
	}
	if (!n_groups)
		return;
	out->n_effective = (double)out->n;
	out->delta = delta;
	out->se = sqrt(var);
	if (!out->n_differ) {
		out->se = out->lower = out->upper = 0;
		return;
	}
	out->p = exact_p(groups, n_groups);
	out->upper = score_bound(groups, n_groups, z, 1, delta);
	out->lower = score_bound(groups, n_groups, z, -1, delta);
	if (out->p > alpha)
		out->lower = fmin(out->lower, 0);
}
