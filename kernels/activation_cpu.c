/* The MLP's nonlinearity, with biases and the gate. */
#include <math.h>

#include "kernels/simd.h"

/* x sigmoid(z). The argument of 2^x is held below 126, where sigmoid(z) has vanished against any x. */
static inline vf times_sigmoid(vf x, vf z)
{
	vf t = z * -SIMD_LOG2E, top = simd_splat(126.0f);

	t = simd_select(t < top, t, top);
	return x / (simd_exp2(t) + 1.0f);
}

/* x (1 + tanh(u)) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + .044715 x^3) */
static inline vf gelu_tanh(vf x)
{
	vf u2 = x * simd_fma(x * x, simd_splat(2 * 0.7978845608f * 0.044715f), simd_splat(2 * 0.7978845608f));

	return times_sigmoid(x, u2);
}

static vf gelu_erf(vf x)
{
	for (int i = 0; i < SIMD_WIDTH; i++)
		x[i] = 0.5f * x[i] * erfcf(x[i] * -0.70710678f);
	return x;
}

static inline vf act(vf x, enum kern_act kind)
{
	switch (kind) {
	case KERN_GELU_TANH:
		return gelu_tanh(x);
	case KERN_GELU:
		return gelu_erf(x);
	case KERN_SILU:
		return times_sigmoid(x, x);
	case KERN_RELU:
		break;
	}
	return simd_max(simd_splat(0.0f), x);
}

void KERN(activation)(void *out, const float *in, const float *bias, uint32_t n_rows, uint32_t ffn_dim,
                      enum kern_act kind, bool gated, enum kern_type type)
{
	size_t stride = gated ? 2 * (size_t)ffn_dim : ffn_dim;

	for (uint32_t r = 0; r < n_rows; r++, in += stride)
		for (uint32_t i = 0; i < ffn_dim; i += SIMD_WIDTH) {
			uint32_t n = ffn_dim - i < SIMD_WIDTH ? ffn_dim - i : SIMD_WIDTH;
			vf x = simd_load_n(in + i, n);

			if (bias)
				x += simd_load_n(bias + i, n);
			x = act(x, kind);
			if (gated) {
				vf up = simd_load_n(in + ffn_dim + i, n);

				if (bias)
					up += simd_load_n(bias + ffn_dim + i, n);
				x *= up;
			}
			simd_store_type(out, (size_t)r * ffn_dim + i, x, n, type);
		}
}
