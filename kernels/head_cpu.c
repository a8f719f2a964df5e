/* Online log-sum-exp of one block of logits per call, with the target's logit and the argmax picked up on the way. */
#include <math.h>

#include "kernels/simd.h"

static float block_max(const float *x, uint32_t n)
{
	vf inf = simd_splat(-__builtin_inff()), m = inf;
	uint32_t i = 0;

	for (; i + SIMD_WIDTH <= n; i += SIMD_WIDTH)
		m = simd_max(simd_load(x + i), m);
	float max = simd_max_lane(m);
	for (; i < n; i++)
		max = x[i] > max ? x[i] : max;
	return max;
}

/* sum of exp(x - max): element i goes to lane i % SIMD_WIDTH; a NaN comes through */
static float block_sum(const float *x, uint32_t n, float max)
{
	vf sum = simd_splat(0), top = simd_splat(max);
	uint32_t i = 0;

	for (; i + SIMD_WIDTH <= n; i += SIMD_WIDTH)
		sum += simd_exp2((simd_load(x + i) - top) * SIMD_LOG2E);
	if (i < n) {
		float t[SIMD_WIDTH];

		for (uint32_t j = 0; j < SIMD_WIDTH; j++)
			t[j] = i + j < n ? x[i + j] : -__builtin_inff();
		sum += simd_exp2((simd_load(t) - top) * SIMD_LOG2E);
	}
	return simd_sum(sum);
}

static uint32_t find(const float *x, uint32_t n, float value)
{
	for (uint32_t i = 0; i < n; i++)
		if (x[i] == value)
			return i;
	return 0;
}

void KERN(head)(struct kern_head_row *rows, const float *logits, size_t stride, uint32_t n_rows, uint32_t id0,
                uint32_t n_ids, bool first_block)
{
	for (uint32_t r = 0; r < n_rows; r++, logits += stride) {
		struct kern_head_row *row = &rows[r];
		float max = block_max(logits, n_ids);

		if (first_block || max > row->max) {
			float old = first_block ? 0 : row->sum;

			if (!first_block) {
				vf d = simd_splat((row->max - max) * SIMD_LOG2E);

				old *= simd_exp2(d)[0];
			}
			row->argmax = id0 + find(logits, n_ids, max);
			row->max = max;
			row->sum = old;
		}
		row->sum += block_sum(logits, n_ids, row->max);
		if (row->target - id0 < n_ids)
			row->target_logit = logits[row->target - id0];
	}
}

bool KERN(head_finish)(const struct kern_head_row *row, float *logprob, float *argmax_logprob)
{
	double lse = (double)row->max + log((double)row->sum);

	*logprob = (float)((double)row->target_logit - lse);
	*argmax_logprob = (float)((double)row->max - lse);
	return isfinite(*logprob) && isfinite(*argmax_logprob);
}
