/* RMSNorm, the residual sum, and the conversion to bf16: the row-wise ops without structure. */
#include "kernels/simd.h"

/* The sum over lanes: element i goes to lane i % SIMD_WIDTH, lanes are added in a fixed tree. */
static float mean_square(const float *x, uint32_t dim)
{
	vf sum = simd_splat(0);
	uint32_t i = 0;

	for (; i + SIMD_WIDTH <= dim; i += SIMD_WIDTH)
		sum = simd_fma(simd_load(x + i), simd_load(x + i), sum);
	if (i < dim) {
		vf t = simd_load_n(x + i, dim - i);

		sum = simd_fma(t, t, sum);
	}
	return simd_sum(sum) / (float)dim;
}

uint32_t KERN(rmsnorm)(void *out, const float *x, const float *w, uint32_t n_rows, uint32_t dim, float eps,
                       enum kern_type type)
{
	for (uint32_t r = 0; r < n_rows; r++, x += dim) {
		float ms = mean_square(x, dim);
		size_t at = (size_t)r * dim;
		uint32_t i = 0;
		vf inv;

		if (!(ms < __builtin_inff()))
			return r;
		inv = simd_splat(1.0f / __builtin_sqrtf(ms + eps));
		for (; i + SIMD_WIDTH <= dim; i += SIMD_WIDTH)
			simd_store_type(out, at + i, simd_load(x + i) * inv * simd_load(w + i), SIMD_WIDTH, type);
		if (i < dim)
			simd_store_type(out, at + i, simd_load_n(x + i, dim - i) * inv * simd_load_n(w + i, dim - i),
			                dim - i, type);
	}
	return n_rows;
}

uint32_t KERN(residual)(float *x, const float *y, const float *bias, uint32_t n_rows, uint32_t dim)
{
	vf inf = simd_splat(__builtin_inff());

	for (uint32_t r = 0; r < n_rows; r++, x += dim, y += dim) {
		vi bad = {0};

		for (uint32_t i = 0; i < dim; i += SIMD_WIDTH) {
			uint32_t n = dim - i < SIMD_WIDTH ? dim - i : SIMD_WIDTH;
			vf s = simd_load_n(y + i, n);

			if (bias)
				s += simd_load_n(bias + i, n);
			s += simd_load_n(x + i, n);
			bad |= ~(simd_abs(s) < inf);
			simd_store_type(x, i, s, n, KERN_F32);
		}
		if (simd_any(bad))
			return r;
	}
	return n_rows;
}

void KERN(to_bf16)(uint16_t *out, const float *in, size_t n)
{
	for (size_t i = 0; i < n; i += SIMD_WIDTH) {
		size_t m = n - i < SIMD_WIDTH ? n - i : SIMD_WIDTH;

		simd_store_type(out, i, simd_load_n(in + i, m), m, KERN_BF16);
	}
}
