/* Distribution functions: see special.h. The logarithms of gamma functions are taken apart by Stirling's formula, whose
 * large terms then cancel on paper and not in rounding. */
#include "eval/special.h"

#include <math.h>
#include <stdbool.h>

/* ln Gamma(x) - ((x - 1/2) ln x - x + ln(2 pi)/2), x > 0 */
static double stirling_rest(double x)
{
	double y = 1 / (x * x);

	if (x < 16)
		return lgamma(x) - ((x - 0.5) * log(x) - x + 0.5 * log(2 * M_PI));
	return (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y / 1188)))) / x;
}

double normal_cdf(double x)
{
	return 0.5 * erfc(-x / sqrt(2));
}

/* -- the incomplete beta function --------------------------------------------------------------- */

/* ln B(a, b) for a >= b: with a large, ln Gamma(a) - ln Gamma(a + b) without its large terms */
static double log_beta(double a, double b)
{
	if (a < 16)
		return lgamma(a) + lgamma(b) - lgamma(a + b);
	return lgamma(b) + stirling_rest(a) - stirling_rest(a + b) - (a - 0.5) * log1p(b / a) - b * log(a + b) + b;
}

/* The continued fraction of I_x(a, b) (Abramowitz and Stegun 26.5.8) by Lentz's method; it converges fast for x below
 * (a + 1)/(a + b + 2). */
static double beta_fraction(double x, double a, double b)
{
	const double tiny = 1e-300;
	double c = 1, d = 1 - (a + b) * x / (a + 1), f;

	f = d = 1 / (fabs(d) < tiny ? tiny : d);
	for (int i = 1; i < 1000000; i++) {
		double m = i;
		double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
		double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
		double was = f;

		d = 1 + even * d;
		c = 1 + even / c;
		d = 1 / (fabs(d) < tiny ? tiny : d);
		c = fabs(c) < tiny ? tiny : c;
		f *= c * d;
		d = 1 + odd * d;
		c = 1 + odd / c;
		d = 1 / (fabs(d) < tiny ? tiny : d);
		c = fabs(c) < tiny ? tiny : c;
		f *= c * d;
		if (fabs(f - was) <= 1e-16 * fabs(f))
			break;
	}
	return f;
}

/* I_x(a, b) with y = 1 - x given apart, because either may be too small to be recovered from the other */
static double beta_both(double x, double y, double a, double b)
{
	double front;

	if (x <= 0 || y <= 0)
		return x <= 0 ? 0 : 1;
	front = a * (x < 0.5 ? log(x) : log1p(-y)) + b * (y < 0.5 ? log(y) : log1p(-x));
	front = exp(front - (a >= b ? log_beta(a, b) : log_beta(b, a)));
	if (x < (a + 1) / (a + b + 2))
		return front * beta_fraction(x, a, b) / a;
	return 1 - front * beta_fraction(y, b, a) / b;
}

double beta_cdf(double x, double a, double b)
{
	if (!(a > 0 && b > 0 && x >= 0 && x <= 1))
		return NAN;
	return beta_both(x, 1 - x, a, b);
}

/* -- Student's t, and quantiles ----------------------------------------------------------------- */

double student_cdf(double t, double df)
{
	double tail;

	if (!(df > 0) || isnan(t))
		return NAN;
	if (isinf(t))
		return t > 0;
	tail = 0.5 * beta_both(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5);
	return t > 0 ? 1 - tail : tail;
}

static double normal_lower(double x, double unused)
{
	(void)unused;
	return normal_cdf(x);
}

/* x with cdf(x, df) = p, by bisection to the last bit: the distribution is symmetric, and its lower tail is exact. */
static double quantile(double (*cdf)(double, double), double p, double df)
{
	double lo = 0, hi = 1, mid, tail = fmin(p, 1 - p);

	if (!(p >= 0 && p <= 1))
		return NAN;
	if (p == 0.5)
		return 0;
	if (tail <= 0)
		return p < 0.5 ? -INFINITY : INFINITY;
	while (cdf(-hi, df) > tail && hi < 1e300)
		hi *= 2;
	while ((mid = lo + (hi - lo) / 2) > lo && mid < hi && hi > 1e-300) {
		if (cdf(-mid, df) > tail)
			lo = mid;
		else
			hi = mid;
	}
	return p < 0.5 ? -hi : hi;
}

double normal_quantile(double p)
{
	return quantile(normal_lower, p, 0);
}

double student_quantile(double p, double df)
{
	return df > 0 ? quantile(student_cdf, p, df) : NAN;
}

/* -- the binomial ------------------------------------------------------------------------------- */

static bool is_binomial(int64_t n, double p)
{
	return n >= 0 && p >= 0 && p <= 1;
}

/* k ln(k/mean), which is 0 for k = 0 */
static double deviance(double k, double mean)
{
	return k > 0 ? k * log(k / mean) : 0;
}

double binomial_log_pmf(int64_t k, int64_t n, double p)
{
	double a = (double)k, b = (double)(n - k), m = (double)n;

	if (!is_binomial(n, p))
		return NAN;
	if (k < 0 || k > n)
		return -INFINITY;
	if (k == 0)
		return n ? m * log1p(-p) : 0;
	if (k == n)
		return m * log(p);
	if (p <= 0 || p >= 1)
		return -INFINITY;
	/* ln n! = (n + 1/2) ln n - n + ln(2 pi)/2 + rest(n), of n, k and n - k */
	return stirling_rest(m) - stirling_rest(a) - stirling_rest(b) - deviance(a, m * p) - deviance(b, m * (1 - p)) +
	       0.5 * log(m / (2 * M_PI * a * b));
}

double binomial_log_upper(int64_t k, int64_t n, double p)
{
	double odds = p / (1 - p), sum = 1, term = 1, first;

	if (!is_binomial(n, p))
		return NAN;
	if (k <= 0 || k > n)
		return k <= 0 ? 0 : -INFINITY;
	if (p <= 0 || p >= 1)
		return p <= 0 ? -INFINITY : 0;
	if ((double)k > (double)n * p) {
		for (int64_t i = k; i < n && term > 1e-18 * sum; i++)
			sum += term *= (double)(n - i) / (double)(i + 1) * odds;
		return binomial_log_pmf(k, n, p) + log(sum);
	}
	for (int64_t i = k - 1; i > 0 && term > 1e-18 * sum; i--)
		sum += term *= (double)i / (double)(n - i + 1) / odds;
	first = binomial_log_pmf(k - 1, n, p);
	return log1p(-exp(first + log(sum)));
}
