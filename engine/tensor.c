/* Tensors and their dtypes: see tensor.h. Conversions to float are exact, work at any alignment, and are written
 * without branches over blocks of a fixed size, which the compiler turns into vector code at -O2. */
#include "engine/tensor.h"

#include <assert.h>
#include <string.h>

#define BLOCK 64

static const struct {
	const char *name;
	size_t size;
} dtypes[] = {[DTYPE_F32] = {"f32", 4}, [DTYPE_F16] = {"f16", 2}, [DTYPE_BF16] = {"bf16", 2}};

const char *dtype_name(enum dtype d)
{
	return dtypes[d].name;
}

size_t dtype_size(enum dtype d)
{
	return dtypes[d].size;
}

/* bfloat16 is the upper half of a float. */
static inline uint32_t bf16_bits(uint16_t h)
{
	return (uint32_t)h << 16;
}

/* IEEE half: sign, 5 bits of exponent (bias 15), 10 of mantissa. Subnormals go through an integer, which no
 * flush-to-zero mode can touch. */
static inline uint32_t f16_bits(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h & 0x7c00, rest = (uint32_t)(h & 0x7fff) << 13;
	uint32_t normal = rest + ((uint32_t)(127 - 15) << 23), special = rest | 0x7f800000;
	uint32_t mask_tiny = exponent ? 0 : ~0u, mask_special = exponent == 0x7c00 ? ~0u : 0, small;
	float tiny = (float)(int32_t)(h & 0x3ff) * 0x1p-24f;

	memcpy(&small, &tiny, sizeof small);
	return sign | (small & mask_tiny) | (special & mask_special) | (normal & ~(mask_tiny | mask_special));
}

#define DEFINE_CONVERT(name, to_bits)                                                                                  \
	static void name(const unsigned char *in, uint64_t count, float *out)                                          \
	{                                                                                                              \
		uint16_t half[BLOCK];                                                                                  \
		uint32_t bits[BLOCK];                                                                                  \
                                                                                                                       \
		for (; count >= BLOCK; count -= BLOCK, in += sizeof half, out += BLOCK) {                              \
			memcpy(half, in, sizeof half);                                                                 \
			for (int i = 0; i < BLOCK; i++)                                                                \
				bits[i] = to_bits(half[i]);                                                            \
			memcpy(out, bits, sizeof bits);                                                                \
		}                                                                                                      \
		for (; count; count--, in += sizeof *half, out++) {                                                    \
			memcpy(half, in, sizeof *half);                                                                \
			bits[0] = to_bits(half[0]);                                                                    \
			memcpy(out, bits, sizeof *bits);                                                               \
		}                                                                                                      \
	}

DEFINE_CONVERT(convert_bf16, bf16_bits)
DEFINE_CONVERT(convert_f16, f16_bits)

void tensor_to_f32(const struct tensor *t, uint64_t first, uint64_t count, float *out)
{
	const unsigned char *in = (const unsigned char *)t->data + first * dtype_size(t->dtype);
	uint64_t total = t->shape[0] * (t->n_dim > 1 ? t->shape[1] : 1);

	assert(t->data && first <= total && count <= total - first);
	switch (t->dtype) {
	case DTYPE_F32:
		memcpy(out, in, count * sizeof *out);
		break;
	case DTYPE_F16:
		convert_f16(in, count, out);
		break;
	case DTYPE_BF16:
		convert_bf16(in, count, out);
		break;
	}
}
