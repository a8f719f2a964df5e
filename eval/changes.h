/* A metric's history, run after run: the bound that the last k runs set for the next (protocols.md section 5), and
 * the points where the series changed its level. Values in the order of time, finite. Perplexities are given as
 * their logarithm, so that differences are log-ratios, the unit of a minimum effect. Pure; no randomness. */
#ifndef FATHOM_EVAL_CHANGES_H
#define FATHOM_EVAL_CHANGES_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

#define HISTORY_MIN_RUNS 5 /* fewer say nothing */

/* One-sided 1 - alpha bound for the next run: worse than centre by more than half is a fail (above centre + half
 * where less is better, below centre - half where more is). */
struct history_bound {
	size_t k;
	double centre; /* the mean; with a trend: the line at the next point */
	double s;      /* standard deviation of the values, or of the residuals from the line */
	double df;     /* k - 1, or k - 2 */
	double half;   /* t_{df,1-alpha} s sqrt(1 + 1/k), with a trend + (next - mean)^2/Sxx; at least min_effect */
};

/* False, and out is not set, for k < HISTORY_MIN_RUNS: inconclusive. */
bool history_bound(const double *x, size_t k, bool trend, double alpha, double min_effect, struct history_bound *out);

/* The level changed between x[index - 1] and x[index]. */
struct change {
	size_t index;
	double before, after; /* means of the segments on either side */
	double p;             /* of the test that found it, Bonferroni over what it chose from */
};

/* Change points by circular binary segmentation (changes.c has the method and its error rate): at most alpha is the
 * probability of any false one in a series of normal noise. Segments have at least 3 points; steps of less than
 * min_effect (>= 0) are not reported. Time n^2 a change. *out is owned by the caller (free), by index; none: NULL. */
err_code changes_find(const double *x, size_t n, double alpha, double min_effect, struct change **out, size_t *n_out,
                      struct err *e);

#endif
