/* Distribution functions that the gates' statistics need: the normal, Student's t, the incomplete beta function
 * and the tails of the binomial. Relative error below 1e-9; pure. An argument outside the stated range gives
 * NaN. */
#ifndef FATHOM_EVAL_SPECIAL_H
#define FATHOM_EVAL_SPECIAL_H

#include <stdint.h>

double normal_cdf(double x);      /* P(Z <= x); the upper tail is normal_cdf(-x), without cancellation */
double normal_quantile(double p); /* x with normal_cdf(x) = p; 0 gives -inf, 1 gives inf */

/* The regularised incomplete beta function I_x(a, b), a and b > 0, 0 <= x <= 1. */
double beta_cdf(double x, double a, double b);

/* Student's t with df > 0 degrees of freedom, not necessarily whole. The upper tail is student_cdf(-t, df). */
double student_cdf(double t, double df);
double student_quantile(double p, double df);

/* X successes of n >= 0 trials, each of probability p: ln P(X = k), -inf outside 0..n, and ln P(X >= k), 0 for k
 * <= 0 and -inf for k > n. In log space: no underflow. The tail sums a few standard deviations' terms, so
 * millions of trials are cheap. */
double binomial_log_pmf(int64_t k, int64_t n, double p);
double binomial_log_upper(int64_t k, int64_t n, double p);

#endif
