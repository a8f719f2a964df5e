/* Statistics of ratios over clusters: the summed loss of a document over what it is divided by. */
#ifndef FATHOM_EVAL_STATS_H
#define FATHOM_EVAL_STATS_H

#include <stddef.h>

struct cluster {
	double s; /* numerator: summed loss */
	double w; /* denominator: tokens, bytes or words */
};

/* r = sum s / sum w; NaN when the denominator is 0. */
double ratio_value(const struct cluster *c, size_t n);

/* Standard error of r, clustered: sqrt(D/(D-1) * sum (s_d - r w_d)^2) / sum w. NaN for fewer than two clusters. */
double ratio_stderr(const struct cluster *c, size_t n);

/* Mean of n values, and the standard error of it, sd / sqrt(n) with n - 1 (NaN for fewer than two). */
double mean_value(const double *x, size_t n);
double mean_stderr(const double *x, size_t n);

#endif
