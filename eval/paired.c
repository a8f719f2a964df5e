/* Paired comparison of losses, and what decides: see paired.h. */
#include "eval/paired.h"

#include <math.h>

#include "eval/special.h"

/* delta and se are set, and some pair differs */
static void bound_by_t(struct paired *out, double alpha)
{
	double half = student_quantile(1 - alpha, out->df) * out->se;

	out->lower = out->delta - half;
	out->upper = out->delta + half;
	if (out->se > 0)
		out->p = student_cdf(-out->delta / out->se, out->df);
	else
		out->p = out->delta > 0 ? 0 : 1; /* every document by the same amount */
}

void paired_ratio(const struct cluster *cand, const struct cluster *base, size_t n, double alpha, struct paired *out)
{
	double r_cand = ratio_value(cand, n), r_base = ratio_value(base, n), w_cand = 0, w_base = 0, squares = 0, q = 0;

	*out = (struct paired){.n = n, .too_few = n > 0 && n < PAIRED_MIN_DOCS, .delta = NAN, .se = NAN, .p = 1};
	out->lower = out->upper = NAN;
	for (size_t i = 0; i < n; i++) {
		out->n_differ += cand[i].s != base[i].s || cand[i].w != base[i].w;
		w_cand += cand[i].w;
		w_base += base[i].w;
		squares += cand[i].w * cand[i].w;
	}
	if (!n)
		return;
	out->df = (double)n - 1;
	out->n_effective = w_cand * w_cand / squares;
	if (!out->n_differ) {
		out->delta = out->se = out->lower = out->upper = 0;
		return;
	}
	out->delta = r_cand - r_base;
	if (n < 2)
		return;
	for (size_t i = 0; i < n; i++) {
		double u = (cand[i].s - r_cand * cand[i].w) / w_cand - (base[i].s - r_base * base[i].w) / w_base;

		q += u * u;
	}
	out->se = sqrt((double)n / out->df * q);
	bound_by_t(out, alpha);
}

void holm_adjust(const double *p, double *adjusted, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t rank = 0;

		for (size_t j = 0; j < n; j++)
			rank += p[j] < p[i] || (p[j] == p[i] && j < i);
		adjusted[i] = fmin(1, (double)(n - rank) * p[i]);
	}
	/* a test is not rejected before one of smaller p: what was raised already is that of a p in between */
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++)
			if (p[j] <= p[i] && adjusted[j] > adjusted[i])
				adjusted[i] = adjusted[j];
}

enum paired_verdict paired_decide(const struct paired *r, double delta, double alpha, double p_holm)
{
	if (!r->n)
		return PAIRED_INCONCLUSIVE;
	if (!r->n_differ)
		return PAIRED_PASS;
	if (r->too_few)
		return PAIRED_INCONCLUSIVE;
	if (r->upper < delta)
		return PAIRED_PASS;
	return p_holm <= alpha ? PAIRED_FAIL : PAIRED_INCONCLUSIVE;
}

int64_t items_needed(const struct paired *r, double delta, double alpha)
{
	double z = normal_quantile(1 - alpha) + normal_quantile(PAIRED_POWER), n = (double)r->n * r->se * r->se;

	n = ceil(n * (z / delta) * (z / delta));
	return isfinite(n) && n < 0x1p62 ? (int64_t)n : -1;
}
