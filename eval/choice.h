/* Which of an example's choices a model takes, and whether that is the right one (protocols.md section 2). The metrics
 * of a result and the gates that compare its items both ask here. */
#ifndef FATHOM_EVAL_CHOICE_H
#define FATHOM_EVAL_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_CHOICES 256 /* of an example */

/* What a choice's log-probability is divided by; the order of the parameter `norm`. */
enum { NORM_NONE, NORM_CHARS, NORM_BYTES, NORM_TOKENS, N_NORMS };
struct choice_norm {
	const char *metric;  /* the accuracy: "acc_norm" */
	const char *divisor; /* of an example, the member that has one number a choice: "n_chars"; NULL: 1 */
};
extern const struct choice_norm choice_norms[N_NORMS];

/* The choice whose logprobs[i] / divisors[i], both [n], is highest: of equals the first, and *tie tells that there are.
 * n > 0. */
size_t choice_best(const double *logprobs, const double *divisors, size_t n, bool *tie);

/* Whether that is `gold`; with ties_wrong it is not where others are as good. */
bool choice_is_right(const double *logprobs, const double *divisors, size_t n, size_t gold, bool ties_wrong);

#endif
