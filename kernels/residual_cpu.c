/* The residual sum: x += y + bias, and whether every row of it is finite. */
#include "kernels/simd.h"

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
