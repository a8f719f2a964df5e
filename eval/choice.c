/* Choices: see choice.h. */
#include "eval/choice.h"

const struct choice_norm choice_norms[N_NORMS] = {
    [NORM_NONE] = {"acc", NULL},
    [NORM_CHARS] = {"acc_norm", "n_chars"},
    [NORM_BYTES] = {"acc_bytes", "n_bytes"},
    [NORM_TOKENS] = {"acc_token", "n_tokens"},
};

size_t choice_best(const double *logprobs, const double *divisors, size_t n, bool *tie)
{
	size_t best = 0;

	*tie = false;
	for (size_t i = 1; i < n; i++) {
		double a = logprobs[i] / divisors[i], b = logprobs[best] / divisors[best];

		if (a > b) {
			best = i;
			*tie = false;
		} else if (a == b) {
			*tie = true;
		}
	}
	return best;
}

bool choice_is_right(const double *logprobs, const double *divisors, size_t n, size_t gold, bool ties_wrong)
{
	bool tie;

	return choice_best(logprobs, divisors, n, &tie) == gold && !(tie && ties_wrong);
}
