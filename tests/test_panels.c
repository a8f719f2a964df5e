/* How many panels of keys and values segments own, counted position by position, and the estimate of a batch. */
#include <check.h>
#include <stdlib.h>

#include "engine/panels.h"

static uint64_t count(uint32_t start_pos, uint32_t n_row, uint32_t block)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < n_row; i++)
		n += !i || (start_pos + i) % block == 0;
	return n;
}

START_TEST(a_segment_owns_the_panels_that_its_rows_touch)
{
	static const uint32_t blocks[] = {32, 64, 80, 128};

	for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
		for (uint32_t start = 0; start < 300; start += 7)
			for (uint32_t n = 0; n < 400; n++) {
				struct pass_segment s = {.parent = -1, .start_pos = start, .n_row = n};

				ck_assert_uint_eq(panels_of_segment(&s, blocks[b]), count(start, n, blocks[b]));
			}
}
END_TEST

START_TEST(a_batch_of_segments_that_begin_chains_has_no_more_than_the_estimate)
{
	uint64_t owned = 0;
	struct batch_size size = {0};

	srand(1);
	for (uint32_t i = 0; i < 20000; i++) {
		struct pass_segment s = {.parent = -1, .n_row = 1 + (uint32_t)rand() % (i % 50 ? 40 : 2000)};

		owned += panels_of_segment(&s, 128);
		size.n_tokens += s.n_row;
		size.n_segments++;
		ck_assert_uint_le(owned, panels_of_batch(size, 128));
	}
	ck_assert_uint_lt(panels_of_batch(size, 128), owned + owned / 4);
	ck_assert_uint_gt(owned, 3 * size.n_tokens / 128); /* which tokens alone do not tell */
}
END_TEST

START_TEST(where_segments_begin_anywhere_the_estimate_is_the_mean)
{
	for (uint32_t n = 1; n < 700; n += 23) {
		struct batch_size size = {0};
		uint64_t owned = 0;

		for (uint32_t start = 128; start < 256; start++) {
			struct pass_segment s = {.parent = 0, .start_pos = start, .n_row = n};

			owned += panels_of_segment(&s, 128);
			size.n_tokens += n;
			size.n_segments++;
		}
		ck_assert_uint_eq(panels_of_batch(size, 128), owned);
	}
}
END_TEST

START_TEST(an_estimate_of_nothing_is_nothing_and_of_very_much_does_not_wrap)
{
	ck_assert_uint_eq(panels_of_batch((struct batch_size){0}, 128), 0);
	ck_assert_uint_eq(panels_of_batch((struct batch_size){1, 1}, 128), 1);
	ck_assert_uint_eq(panels_of_batch((struct batch_size){(uint64_t)1 << 40, (uint64_t)1 << 40}, 128),
	                  (uint64_t)1 << 40);
}
END_TEST

Suite *panels_suite(void);
Suite *panels_suite(void)
{
	Suite *s = suite_create("panels");
	TCase *c = tcase_create("count");

	tcase_add_test(c, a_segment_owns_the_panels_that_its_rows_touch);
	tcase_add_test(c, a_batch_of_segments_that_begin_chains_has_no_more_than_the_estimate);
	tcase_add_test(c, where_segments_begin_anywhere_the_estimate_is_the_mean);
	tcase_add_test(c, an_estimate_of_nothing_is_nothing_and_of_very_much_does_not_wrap);
	suite_add_tcase(s, c);
	return s;
}
