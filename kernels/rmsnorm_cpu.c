/* RMSNorm of rows. A row that is not finite shows in its mean square, and is not written. */
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
