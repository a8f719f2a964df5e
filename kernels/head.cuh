/* What the head's kernels share: a softmax's running state and how it ends. Internal to head.cu and head_sm90.cu. */
#ifndef FATHOM_KERNELS_HEAD_CUH
#define FATHOM_KERNELS_HEAD_CUH

#include "kernels/cuda.cuh"

/* Some logits of a row: the largest, the sum of exp(logit - max), and the smallest id that has the largest. */
struct head_state {
	float max, sum;
	uint32_t argmax;
};

static __device__ __forceinline__ struct head_state head_empty(void)
{
	struct head_state s = {-INFINITY, 0, UINT32_MAX};

	return s;
}

/* The union of two sets of logits. A NaN or +inf among them leaves a sum that is a NaN. */
static __device__ __forceinline__ struct head_state head_join(struct head_state a, struct head_state b)
{
	float max = fmaxf(a.max, b.max), top = max == -INFINITY ? 0 : max;
	struct head_state s;

	s.max = max;
	s.sum = a.sum * fast_exp2((a.max - top) * LOG2E) + b.sum * fast_exp2((b.max - top) * LOG2E);
	s.argmax = a.max > b.max || (a.max == b.max && a.argmax < b.argmax) ? a.argmax : b.argmax;
	return s;
}

/* The logarithm is taken in double: where the target is the argmax, both differences are the same. */
static __device__ __forceinline__ void head_finish(struct kern_score *out, struct head_state s, float target_logit,
                                                   struct kern_fault fault, uint32_t row)
{
	double lse = (double)s.max + log((double)s.sum);
	struct kern_score score = {(float)((double)target_logit - lse), (float)((double)s.max - lse), s.argmax};

	*out = score;
	if (!isfinite(score.logprob) || !isfinite(score.argmax_logprob))
		note_fault(fault, row);
}

/* head_sm90.cu, for compute capability 9.0: as the two of kernels_cuda.h. */
bool kern_head_sm90_takes(uint32_t dim, uint32_t n_vocab, enum kern_type type);
size_t kern_head_sm90_scratch_bytes(uint32_t n_rows, uint32_t n_vocab);
int kern_head_sm90(const struct kern_head_cuda *a, int n_sm, struct CUstream_st *stream);

#endif
