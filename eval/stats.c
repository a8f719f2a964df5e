/* Statistics: see stats.h. Sums run in the order given, in double. */
#include "eval/stats.h"

#include <math.h>

static double sum_w(const struct cluster *c, size_t n)
{
	double w = 0;

	for (size_t i = 0; i < n; i++)
		w += c[i].w;
	return w;
}

double ratio_value(const struct cluster *c, size_t n)
{
	double s = 0, w = sum_w(c, n);

	for (size_t i = 0; i < n; i++)
		s += c[i].s;
	return w > 0 ? s / w : NAN;
}

double ratio_stderr(const struct cluster *c, size_t n)
{
	double r = ratio_value(c, n), q = 0, d = (double)n;

	if (n < 2)
		return NAN;
	for (size_t i = 0; i < n; i++)
		q += (c[i].s - r * c[i].w) * (c[i].s - r * c[i].w);
	return sqrt(d / (d - 1) * q) / sum_w(c, n);
}

double mean_value(const double *x, size_t n)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += x[i];
	return n ? s / (double)n : NAN;
}

double mean_stderr(const double *x, size_t n)
{
	double m = mean_value(x, n), q = 0;

	if (n < 2)
		return NAN;
	for (size_t i = 0; i < n; i++)
		q += (x[i] - m) * (x[i] - m);
	return sqrt(q / (double)(n - 1) / (double)n);
}
