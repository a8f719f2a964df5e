/* Tensors: conversion to float, of every value of the 16-bit types. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/model.h"

/* By definition: (-1)^s 2^(e-bias) 1.m, with subnormals, infinities and NaN. */
static double decode(unsigned h, int exponent_bits, int mantissa_bits)
{
	unsigned mantissa = h & ((1u << mantissa_bits) - 1);
	unsigned exponent = h >> mantissa_bits & ((1u << exponent_bits) - 1);
	int bias = (1 << (exponent_bits - 1)) - 1;
	double v;

	if (exponent == (1u << exponent_bits) - 1)
		v = mantissa ? NAN : INFINITY;
	else if (!exponent)
		v = ldexp(mantissa, 1 - bias - mantissa_bits);
	else
		v = ldexp(mantissa + (1u << mantissa_bits), (int)exponent - bias - mantissa_bits);
	return h & 0x8000 ? -v : v;
}

START_TEST(all_half_values_convert_exactly_at_any_alignment)
{
	static unsigned char bytes[2 * 65536 + 8];
	static float out[65536];

	for (int shift = 0; shift < 3; shift++) {
		for (unsigned h = 0; h < 65536; h++)
			memcpy(bytes + shift + 2 * h, &(uint16_t){(uint16_t)h}, 2);
		for (int d = 0; d < 2; d++) {
			enum dtype dtype = d ? DTYPE_BF16 : DTYPE_F16;
			struct tensor t = {.data = bytes + shift, .dtype = dtype, .n_dim = 2, .shape = {256, 256}};

			memset(out, 0x55, sizeof out);
			tensor_to_f32(&t, 0, 65536, out);
			for (unsigned h = 0; h < 65536; h++) {
				double want = d ? decode(h, 8, 7) : decode(h, 5, 10);

				ck_assert_msg(isnan(want) ? isnan(out[h]) : (double)out[h] == want,
				              "%s %04x is %.9g, not %.9g", dtype_name(dtype), h, (double)out[h], want);
				ck_assert(!signbit(out[h]) == !(h & 0x8000));
			}
		}
	}
}
END_TEST

START_TEST(any_range_of_a_tensor_converts)
{
	unsigned char bytes[4 * 200 + 1];
	float out[202], v;

	for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
		struct tensor t = {.data = bytes + 1, .dtype = (enum dtype)dtype, .n_dim = 1, .shape = {200, 1}};

		for (unsigned i = 0; i < 200; i++) {
			uint16_t half = (uint16_t)(0x3f80 + i);

			v = (float)i;
			memcpy(bytes + 1 + i * dtype_size(t.dtype), dtype == DTYPE_F32 ? (void *)&v : (void *)&half,
			       dtype_size(t.dtype));
		}
		for (unsigned first = 0; first <= 200; first += 7) {
			for (unsigned count = 0; first + count <= 200; count += 13) {
				memset(out, 0, sizeof out);
				tensor_to_f32(&t, first, count, out + 1);
				ck_assert(out[0] == 0 && out[count + 1] == 0);
				for (unsigned i = 0; i < count; i++) {
					double want = dtype == DTYPE_F32
					                  ? first + i
					                  : decode(0x3f80 + first + i, dtype == DTYPE_F16 ? 5 : 8,
					                           dtype == DTYPE_F16 ? 10 : 7);

					ck_assert((double)out[i + 1] == want);
				}
			}
		}
	}
}
END_TEST

Suite *tensor_suite(void);
Suite *tensor_suite(void)
{
	Suite *s = suite_create("tensor");
	TCase *t = tcase_create("tensor");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, all_half_values_convert_exactly_at_any_alignment);
	tcase_add_test(t, any_range_of_a_tensor_converts);
	suite_add_tcase(s, t);
	return s;
}
