/* A metric's history: see changes.h.
 *
 * Change points: a segment is split where the two means explain most of its variance, if a two-sample t-test
 * there (one variance, both sides) has p times the number of places <= alpha times the segment's share of the
 * series; then both parts are tried likewise. Bonferroni over the places makes up for having chosen the best one.
 * The shares do so for the recursion: segments without a change inside are disjoint, so their levels sum to at
 * most alpha. Then steps below the minimum effect are taken out, the smallest first. */
#include "eval/changes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "eval/special.h"
#include "eval/stats.h"

#define SEGMENT_MIN 3

bool history_bound(const double *x, size_t k, bool trend, double alpha, double min_effect, struct history_bound *out)
{
	double n = (double)k, mid = (n - 1) / 2, sxx = n * (n * n - 1) / 12, sxy = 0, slope, mean, q = 0, spread;

	if (k < HISTORY_MIN_RUNS)
		return false;
	mean = mean_value(x, k);
	for (size_t i = 0; i < k; i++)
		sxy += ((double)i - mid) * (x[i] - mean);
	slope = trend ? sxy / sxx : 0;
	for (size_t i = 0; i < k; i++) {
		double rest = x[i] - mean - slope * ((double)i - mid);

		q += rest * rest;
	}
	out->k = k;
	out->centre = mean + slope * (n - mid); /* the points are 0..k-1, the next one is k */
	out->df = n - (trend ? 2 : 1);
	out->s = sqrt(q / out->df);
	spread = 1 + 1 / n + (trend ? (n - mid) * (n - mid) / sxx : 0);
	out->half = fmax(min_effect, student_quantile(1 - alpha, out->df) * out->s * sqrt(spread));
	return true;
}

/* -- change points ------------------------------------------------------------------------------ */

struct series {
	const double *x; /* [n] borrowed */
	size_t n;
	double alpha;
	double rounding;     /* differences of means below it are none */
	struct change *list; /* [n / SEGMENT_MIN] owned */
	size_t n_list;
};

/* Where the two means of x[from..to) explain most: the sum of squares between them is the largest. */
static size_t best_split(const double *x, size_t from, size_t to)
{
	double mean = mean_value(x + from, to - from), sum = 0, most = -1, n = (double)(to - from);
	size_t best = from;

	for (size_t i = from + 1; i + SEGMENT_MIN <= to; i++) {
		double left = (double)(i - from), between;

		sum += x[i - 1] - mean;
		between = sum * sum / left * n / (n - left); /* the right side's sum is -sum */
		if (i >= from + SEGMENT_MIN && between > most) {
			most = between;
			best = i;
		}
	}
	return best;
}

static double squares(const double *x, size_t n, double mean)
{
	double q = 0;

	for (size_t i = 0; i < n; i++)
		q += (x[i] - mean) * (x[i] - mean);
	return q;
}

/* Two-sided p of the t-test of x[from..at) against x[at..to), times the places that the split could have had */
static double split_p(const double *x, size_t from, size_t at, size_t to, double step)
{
	double left = (double)(at - from), right = (double)(to - at), df = left + right - 2;
	double q = squares(x + from, at - from, mean_value(x + from, at - from)) +
	           squares(x + at, to - at, mean_value(x + at, to - at));
	double places = df + 3 - 2 * SEGMENT_MIN, t = fabs(step) / sqrt(q / df * (1 / left + 1 / right));

	return fmin(1, 2 * student_cdf(-t, df) * places);
}

static void split(struct series *s, size_t from, size_t to)
{
	size_t at;
	double p, step;

	if (to - from < 2 * SEGMENT_MIN)
		return;
	at = best_split(s->x, from, to);
	step = mean_value(s->x + at, to - at) - mean_value(s->x + from, at - from);
	if (fabs(step) <= s->rounding)
		return;
	p = split_p(s->x, from, at, to, step);
	if (p > s->alpha * (double)(to - from) / (double)s->n)
		return;
	split(s, from, at);
	s->list[s->n_list++] = (struct change){.index = at, .p = p};
	split(s, at, to);
}

/* Sets the segments' means; returns the index in the list of the smallest step. */
static size_t measure_steps(struct series *s)
{
	size_t smallest = 0;

	for (size_t i = 0; i < s->n_list; i++) {
		struct change *c = &s->list[i];
		size_t from = i ? c[-1].index : 0, to = i + 1 < s->n_list ? c[1].index : s->n;

		c->before = mean_value(s->x + from, c->index - from);
		c->after = mean_value(s->x + c->index, to - c->index);
		if (fabs(c->after - c->before) < fabs(s->list[smallest].after - s->list[smallest].before))
			smallest = i;
	}
	return smallest;
}

static void drop_small_steps(struct series *s, double min_effect)
{
	while (s->n_list) {
		size_t i = measure_steps(s);

		if (fabs(s->list[i].after - s->list[i].before) >= min_effect)
			return;
		for (s->n_list--; i < s->n_list; i++)
			s->list[i] = s->list[i + 1];
	}
}

err_code changes_find(const double *x, size_t n, double alpha, double min_effect, struct change **out, size_t *n_out,
                      struct err *e)
{
	struct series s = {.x = x, .n = n, .alpha = alpha};

	*out = NULL;
	*n_out = 0;
	if (n < 2 * SEGMENT_MIN)
		return ERR_OK;
	for (size_t i = 0; i < n; i++)
		s.rounding = fmax(s.rounding, 64 * DBL_EPSILON * fabs(x[i]));
	s.list = calloc(n / SEGMENT_MIN, sizeof *s.list);
	if (!s.list)
		return err_set(e, ERR_MEMORY, "no memory for the change points of %zu values", n);
	split(&s, 0, n);
	drop_small_steps(&s, min_effect);
	if (s.n_list) {
		*out = s.list;
		*n_out = s.n_list;
	} else {
		free(s.list);
	}
	return ERR_OK;
}
