/* A metric's history: see changes.h.
 *
 * Change points, after circular binary segmentation (Olshen, Venkatraman, Lucito, Wigler, Biostatistics 5, 2004):
 * the arc [i, j) of a segment whose mean differs most from the rest of it, j its end or not, so that a fault that
 * was mended is seen as well as a lasting one. The arc counts if a two-sample t-test has p times the number of
 * arcs <= alpha times the segment's share of the series. Then the segment is split at the clearer of the arc's
 * two ends, and both parts are tried likewise. Bonferroni over the arcs makes up for having chosen the best. The
 * shares do so for the recursion: segments with no change inside are disjoint, so their levels sum to at most
 * alpha. */
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

static double squares(const double *x, size_t n, double mean)
{
	double q = 0;

	for (size_t i = 0; i < n; i++)
		q += (x[i] - mean) * (x[i] - mean);
	return q;
}

struct arc {
	size_t from, to;
	double n_arcs; /* of which it is the best */
};

/* The arc of x[0..n) that explains most: the largest sum of squares between it and the rest, S^2 n/(m (n - m)), S
 * the sum of its m centred values. Arc and what is left on either side have SEGMENT_MIN points, or none on the
 * right. */
static struct arc best_arc(const double *x, size_t n)
{
	double mean = mean_value(x, n), most = -1, all = (double)n;
	struct arc best = {0, 0, 0};

	for (size_t i = SEGMENT_MIN; i + SEGMENT_MIN <= n; i++) {
		double sum = 0, m = 0, between;

		for (size_t j = i + 1; j <= n; j++) {
			sum += x[j - 1] - mean;
			m++;
			if (j < i + SEGMENT_MIN || (j < n && j + SEGMENT_MIN > n))
				continue;
			between = sum * sum * all / (m * (all - m));
			best.n_arcs++;
			if (between > most) {
				most = between;
				best.from = i;
				best.to = j;
			}
		}
	}
	return best;
}

/* |t| of two samples with one variance, given their sizes, the sum of squares within, and the difference of means */
static double two_sample_t(double m, double n, double within, double step)
{
	return fabs(step) / sqrt(within / (m + n - 2) * (1 / m + 1 / n));
}

/* Two-sided p of the arc against the rest of x[0..n), times the number of arcs; 1 for a step that is rounding. */
static double arc_p(const struct arc *a, const double *x, size_t n, double rounding)
{
	double m = (double)(a->to - a->from), rest = (double)n - m, mean = mean_value(x + a->from, a->to - a->from);
	double outside = (mean_value(x, n) * (double)n - mean * m) / rest;
	double within = squares(x + a->from, a->to - a->from, mean) + squares(x, a->from, outside) +
	                squares(x + a->to, n - a->to, outside);

	if (fabs(mean - outside) <= rounding)
		return 1;
	return fmin(1, 2 * student_cdf(-two_sample_t(m, rest, within, mean - outside), (double)n - 2) * a->n_arcs);
}

/* |t| of x[0..at) against x[at..n) */
static double edge_t(const double *x, size_t at, size_t n)
{
	double left = mean_value(x, at), right = mean_value(x + at, n - at);

	return two_sample_t((double)at, (double)(n - at), squares(x, at, left) + squares(x + at, n - at, right),
	                    right - left);
}

static void split(struct series *s, size_t from, size_t to)
{
	const double *x = s->x + from;
	size_t n = to - from, at;
	struct arc arc;
	double p;

	if (n < 2 * SEGMENT_MIN)
		return;
	arc = best_arc(x, n);
	p = arc_p(&arc, x, n, s->rounding);
	if (p > s->alpha * (double)n / (double)s->n)
		return;
	at = arc.from;
	if (arc.to < n && edge_t(x + arc.from, arc.to - arc.from, n - arc.from) > edge_t(x, arc.from, arc.to))
		at = arc.to;
	split(s, from, from + at);
	s->list[s->n_list++] = (struct change){.index = from + at, .p = p};
	split(s, from + at, to);
}

/* Sets the means of the segments; keeps the steps of at least min_effect. */
static void measure_steps(struct series *s, double min_effect)
{
	size_t from = 0, kept = 0;

	for (size_t i = 0; i < s->n_list; i++) {
		struct change c = s->list[i];
		size_t to = i + 1 < s->n_list ? s->list[i + 1].index : s->n;

		c.before = mean_value(s->x + from, c.index - from);
		c.after = mean_value(s->x + c.index, to - c.index);
		from = c.index;
		if (fabs(c.after - c.before) >= min_effect)
			s->list[kept++] = c;
	}
	s->n_list = kept;
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
	measure_steps(&s, min_effect);
	if (s.n_list) {
		*out = s.list;
		*n_out = s.n_list;
	} else {
		free(s.list);
	}
	return ERR_OK;
}
