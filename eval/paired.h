/* Paired comparison of two runs over the same documents or items (protocols.md section 5): a gate's relative and
 * shape rules. Delta is always the worsening: above 0, the candidate is worse. L and U are one-sided bounds, each
 * of level 1 - alpha. Pure: no state, the same numbers on every machine; the caller has matched the pairs (by key).
 * alpha lies in (0, 0.5), delta (the minimum effect) above 0; values are finite. */
#ifndef FATHOM_EVAL_PAIRED_H
#define FATHOM_EVAL_PAIRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "eval/stats.h"

#define PAIRED_MIN_DOCS  8
#define PAIRED_RESAMPLES 10000
#define PAIRED_POWER     0.8 /* of items_needed */

/* What a comparison found. Not measured (n == 0; se and bounds of one document): NaN, and p is 1. */
struct paired {
	size_t n;            /* pairs: documents, or items */
	size_t n_differ;     /* pairs whose two sides differ; of an accuracy: the discordant ones */
	bool too_few;        /* documents: 1 to PAIRED_MIN_DOCS - 1, which decide nothing unless none differs */
	double delta, se;    /* the worsening and its standard error */
	double df;           /* degrees of freedom of t; 0: an accuracy, which has none */
	double n_effective;  /* (sum w)^2/sum w^2 of the candidate: n for documents of one length; an accuracy: n */
	double lower, upper; /* L and U; with delta 0 where no pair differs */
	double p;            /* of "Delta <= 0", one-sided, before Holm */
};

/* Losses, clustered by document: Delta = sum(cand.s)/sum(cand.w) - sum(base.s)/sum(base.w); with s the summed nll
 * and w the scored tokens, the log-ratio of ppl_token (w the bytes: ln 2 times the difference of bits_per_byte; one
 * cluster an item with w = 1: the log-ratio of lambada's ppl). The two sides of a document may have different w (>
 * 0): a shape rule gives the long length as cand and the short one as base. Standard error from the documents'
 * influences,
 *     u_d = (cand.s_d - r_cand cand.w_d)/sum(cand.w) - (base.s_d - r_base base.w_d)/sum(base.w),
 *     se = sqrt(D/(D-1) sum u_d^2),
 * which is section 1's where the w are the same. Student's t with D - 1 degrees of freedom gives p, L and U. The level
 * is exact for documents of one length (normal differences); with few of very unequal ones it is above alpha: simulated
 * .055 for .05 with 8 of 1000 to 4000 tokens, .078 with 8 whose logarithm of length has sd .8. n_effective tells. */
void paired_ratio(const struct cluster *cand, const struct cluster *base, size_t n, double alpha, struct paired *out);

/* Of one group (paradigm, kind), or of all items: how many pairs, and how many of them are discordant. */
struct discordance {
	int64_t n;     /* pairs, >= 1 */
	int64_t worse; /* right in the baseline, wrong in the candidate */
	int64_t better;
};

/* Accuracy: Delta = mean over groups of (worse - better)/n, the groups' mean being the metric without a group; one
 * group is the plain accuracy. p: the exact one-sided McNemar test, by group (paired_accuracy.c has the
 * construction and why it holds its level). L and U: the score interval, for one group Tango's (1998); L is not
 * above 0 where p > alpha, because p decides. se is the plain estimate sqrt(sum var_g/n_g)/groups, var_g the
 * variance (with n - 1) of a pair's difference. */
void paired_accuracy(const struct discordance *groups, size_t n_groups, double alpha, struct paired *out);

/* Percentile bootstrap: PAIRED_RESAMPLES resamples of whole documents (items, within their group), the alpha and 1
 * - alpha quantiles of Delta. The same seed gives the same bounds. Reported beside, and never decides. n or
 * n_groups >= 1. */
struct bootstrap {
	double lower, upper;
	uint64_t seed; /* that it was given */
};
err_code bootstrap_ratio(const struct cluster *cand, const struct cluster *base, size_t n, double alpha, uint64_t seed,
                         struct bootstrap *out, struct err *e);
err_code bootstrap_accuracy(const struct discordance *groups, size_t n_groups, double alpha, uint64_t seed,
                            struct bootstrap *out, struct err *e);

/* Holm's adjusted p-values of n tests, in their order: adjusted[i] (another array) is of p[i], at most 1. */
void holm_adjust(const double *p, double *adjusted, size_t n);

enum paired_verdict { PAIRED_PASS, PAIRED_FAIL, PAIRED_INCONCLUSIVE };

/* Pass if U < delta; else fail if p_holm <= alpha; else inconclusive. No pair: inconclusive. Pairs of which none
 * differs: pass, be they ever so few (a model is not worse than itself). too_few, and some differ: inconclusive. */
enum paired_verdict paired_decide(const struct paired *r, double delta, double alpha, double p_holm);

/* Pairs (documents, items) at which a true Delta of 0 passes, and one of delta is found, with probability
 * PAIRED_POWER: (z_{1-alpha} + z_{.8})^2 s^2/delta^2 rounded up, s^2 = n se^2 being the variance of a pair's
 * difference. -1: se unknown. */
int64_t items_needed(const struct paired *r, double delta, double alpha);

#endif
