/* Percentile bootstrap of a paired difference: see paired.h. Resamples of items of an accuracy are drawn by their
 * counts, which has the same law and costs a draw for a discordant item, not for each. */
#include <math.h>
#include <stdlib.h>

#include "eval/paired.h"
#include "eval/random.h"
#include "eval/special.h"

/* One of 0..n-1. Not random_below: two divisions a draw are most of the time here, and a bias of n/2^64 is nothing. */
static size_t draw_index(uint64_t *state, size_t n)
{
	return (size_t)((unsigned __int128)random_next(state) * n >> 64);
}

static double draw_unit(uint64_t *state)
{
	return (double)(random_next(state) >> 11) * 0x1p-53;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void take_quantiles(double *x, double alpha, struct bootstrap *out)
{
	size_t i = (size_t)(alpha * PAIRED_RESAMPLES);

	qsort(x, PAIRED_RESAMPLES, sizeof *x, compare);
	out->lower = x[i];
	out->upper = x[PAIRED_RESAMPLES - 1 - i];
}

err_code bootstrap_ratio(const struct cluster *cand, const struct cluster *base, size_t n, double alpha, uint64_t seed,
                         struct bootstrap *out, struct err *e)
{
	double *x = malloc(PAIRED_RESAMPLES * sizeof *x);

	if (!x)
		return err_set(e, ERR_MEMORY, "no memory for %d resamples", PAIRED_RESAMPLES);
	out->seed = seed;
	for (size_t r = 0; r < PAIRED_RESAMPLES; r++) {
		struct cluster a = {0, 0}, b = {0, 0};

		for (size_t i = 0; i < n; i++) {
			size_t d = draw_index(&seed, n);

			a.s += cand[d].s;
			a.w += cand[d].w;
			b.s += base[d].s;
			b.w += base[d].w;
		}
		x[r] = a.s / a.w - b.s / b.w;
	}
	take_quantiles(x, alpha, out);
	free(x);
	return ERR_OK;
}

/* P(X <= first + i), X of Binomial(n, p), over the range outside which it has no weight in double */
struct binomial_table {
	int64_t first;
	size_t n;
	double *upto; /* [n] owned */
};

static err_code table_init(struct binomial_table *t, int64_t n, double p, struct err *e)
{
	double mean = (double)n * p, reach = 9 * sqrt(mean * (1 - p)) + 40, sum = 0;
	int64_t last = (int64_t)fmin((double)n, ceil(mean + reach));

	t->first = (int64_t)fmax(0, floor(mean - reach));
	t->n = (size_t)(last - t->first + 1);
	t->upto = malloc(t->n * sizeof *t->upto);
	if (!t->upto)
		return err_set(e, ERR_MEMORY, "no memory for a table of %zu probabilities", t->n);
	for (size_t i = 0; i < t->n; i++)
		t->upto[i] = sum += exp(binomial_log_pmf(t->first + (int64_t)i, n, p));
	return ERR_OK;
}

static int64_t table_draw(const struct binomial_table *t, uint64_t *state)
{
	double u = draw_unit(state);
	size_t lo = 0, hi = t->n - 1;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->upto[mid] > u)
			hi = mid;
		else
			lo = mid + 1;
	}
	return t->first + (int64_t)lo;
}

/* Adds a group's weight * (worse - better) of every resample: how many discordant items, then how many are worse. */
static err_code resample_group(const struct discordance *g, double weight, uint64_t *state, double *x, struct err *e)
{
	int64_t m = g->worse + g->better;
	double share = m ? (double)g->worse / (double)m : 0;
	struct binomial_table t;
	err_code rc = table_init(&t, g->n, (double)m / (double)g->n, e);

	for (size_t r = 0; !rc && r < PAIRED_RESAMPLES; r++) {
		int64_t draws = table_draw(&t, state), worse = 0;

		for (int64_t i = 0; i < draws; i++)
			worse += draw_unit(state) < share;
		x[r] += weight * (double)(2 * worse - draws);
	}
	free(t.upto);
	return rc;
}

err_code bootstrap_accuracy(const struct discordance *groups, size_t n_groups, double alpha, uint64_t seed,
                            struct bootstrap *out, struct err *e)
{
	double *x = calloc(PAIRED_RESAMPLES, sizeof *x);
	err_code rc = ERR_OK;

	if (!x)
		return err_set(e, ERR_MEMORY, "no memory for %d resamples", PAIRED_RESAMPLES);
	out->seed = seed;
	for (size_t i = 0; !rc && i < n_groups; i++)
		rc = resample_group(&groups[i], 1 / (double)groups[i].n / (double)n_groups, &seed, x, e);
	if (!rc)
		take_quantiles(x, alpha, out);
	free(x);
	return rc;
}
