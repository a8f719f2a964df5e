/* UTF-8: decoding, Python's replacement rule, newlines, White_Space. Expected values are of Python 3.11:
 * bytes.decode("utf-8", "replace"). */
#include <string.h>

#include "engine/buf.h"
#include "engine/utf8.h"
#include "tests/fixture.h"

#define R "\xEF\xBF\xBD" /* U+FFFD */

START_TEST(every_scalar_value_survives)
{
	struct buf b = BUF_INIT(16);
	size_t n;

	for (uint32_t cp = 0; cp < 0x110000; cp++) {
		if (cp >= 0xD800 && cp <= 0xDFFF)
			continue;
		buf_clear(&b);
		utf8_put(&b, cp);
		if (utf8_next(b.data, b.len, &n) != cp || n != b.len || utf8_last(b.data, b.len) != 0 ||
		    utf8_valid_prefix(b.data, b.len) != b.len)
			ck_abort_msg("U+%04X does not survive", cp);
		/* cut short it is one malformed subpart */
		if (b.len > 1 && (utf8_next(b.data, b.len - 1, &n) != UTF8_INVALID || n != b.len - 1))
			ck_abort_msg("U+%04X cut short", cp);
	}
	buf_release(&b);
}
END_TEST

/* Two bytes: valid only as C2..DF 80..BF or two of ASCII. */
START_TEST(every_pair_of_bytes_is_judged)
{
	for (unsigned a = 0; a < 256; a++)
		for (unsigned b = 0; b < 256; b++) {
			char s[2] = {(char)a, (char)b};
			bool second = b >= 0x80 && b <= 0xBF;
			size_t want = a >= 0xC2 && a <= 0xDF && second ? 2 : a >= 0x80 ? 0 : b >= 0x80 ? 1 : 2;

			if (utf8_valid_prefix(s, 2) != want)
				ck_abort_msg("%02X %02X", a, b);
		}
}
END_TEST

static const struct {
	const char *raw;
	size_t len;
	const char *clean;
	size_t replaced;
} broken[] = {
#define CASE(raw, clean, n)                                                                                            \
	{                                                                                                              \
		raw, sizeof raw - 1, clean, n                                                                          \
	}
    CASE("", "", 0),
    CASE("plain", "plain", 0),
    CASE("\xFF", R, 1),
    CASE("\x80\x80", R R, 2),
    CASE("a\xC3", "a" R, 1),
    CASE("\xC3(", R "(", 1),
    CASE("\xE2\x82", R, 1),
    CASE("\xE2\x28\xA1", R "(" R, 2),
    CASE("\xE2\x82\x28", R "(", 1),
    CASE("\xF0\x9F\x98", R, 1),
    CASE("\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", 0),
    CASE("\xF0\x28\x8C\xBC", R "(" R R, 3),
    CASE("\xF0\x90\x28\xBC", R "(" R, 2),
    CASE("\xC0\xAF", R R, 2),                /* overlong */
    CASE("\xE0\x80\xAF", R R R, 3),          /* overlong */
    CASE("\xF0\x80\x80\xAF", R R R R, 4),    /* overlong */
    CASE("\xED\xA0\x80", R R R, 3),          /* a surrogate */
    CASE("\xED\x9F\xBF", "\xED\x9F\xBF", 0), /* the last character before them */
    CASE("\xEE\x80\x80", "\xEE\x80\x80", 0), /* the first one after */
    CASE("\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF", 0),
    CASE("\xF4\x90\x80\x80", R R R R, 4), /* beyond U+10FFFF */
    CASE("\xF8\xA1\xA1\xA1\xA1", R R R R R, 5),
    CASE("\xC2\xC2\xA0", R "\xC2\xA0", 1),
    CASE("\xEF\xBB\xBF"
         "x",
         "\xEF\xBB\xBF"
         "x",
         0), /* a BOM stays */
    CASE("\xE5\x8D\xE5\x8D\x97", R "\xE5\x8D\x97", 1),
    CASE("caf\xE9 d'\xEAtre", "caf" R " d'" R "tre", 2),
#undef CASE
};

START_TEST(malformed_bytes_are_replaced_as_in_python)
{
	struct buf b = BUF_INIT(1000);

	ck_assert_uint_eq(utf8_clean(&b, broken[_i].raw, broken[_i].len, false), broken[_i].replaced);
	ck_assert_str_eq(buf_str(&b), broken[_i].clean);
	ck_assert_uint_eq(utf8_valid_prefix(buf_str(&b), b.len), b.len);
	buf_release(&b);
}
END_TEST

START_TEST(newlines_become_lf_only_when_asked)
{
	static const char raw[] = "a\r\nb\rc\n\r\r\n\n\r";
	struct buf b = BUF_INIT(1000);

	ck_assert_uint_eq(utf8_clean(&b, raw, sizeof raw - 1, true), 0);
	ck_assert_str_eq(buf_str(&b), "a\nb\nc\n\n\n\n\n");
	buf_clear(&b);
	utf8_clean(&b, raw, sizeof raw - 1, false);
	ck_assert_str_eq(buf_str(&b), raw);
	buf_clear(&b);
	ck_assert_uint_eq(utf8_clean(&b, "\xC3\r\n\xFF\r", 5, true), 2);
	ck_assert_str_eq(buf_str(&b), R "\n" R "\n");
	buf_clear(&b);
	utf8_clean(&b, "a\0b\r", 4, true);
	ck_assert_uint_eq(b.len, 4);
	ck_assert(!memcmp(b.data, "a\0b\n", 4));
	buf_release(&b);
}
END_TEST

START_TEST(a_full_buffer_is_reported)
{
	struct buf b = BUF_INIT(4);
	struct err e = {0};

	utf8_clean(&b, "\xFF\xFF", 2, false); /* 6 bytes */
	ck_err(buf_check(&b, "text", &e), ERR_MEMORY, "larger than 4 bytes", &e);
	buf_release(&b);
}
END_TEST

/* The error lies in every place relative to the eight bytes that are looked at together. */
START_TEST(the_first_invalid_byte_is_found_at_any_offset)
{
	char s[40];

	for (size_t i = 0; i < sizeof s; i++) {
		memset(s, 'x', sizeof s);
		s[i] = (char)0x80;
		ck_assert_uint_eq(utf8_valid_prefix(s, sizeof s), i);
		ck_assert_uint_eq(utf8_valid_prefix(s, i), i);
	}
}
END_TEST

START_TEST(white_space_is_25_characters)
{
	size_t n = 0;

	for (uint32_t cp = 0; cp < 0x110000; cp++)
		n += utf8_is_space(cp);
	ck_assert_uint_eq(n, 25);
	ck_assert(utf8_is_space(0x85) && utf8_is_space(0xA0) && utf8_is_space(0x2028) && utf8_is_space(0x3000));
	/* Mongolian vowel separator, zero width space, word joiner, BOM, and the separators that Python adds */
	ck_assert(!utf8_is_space(0x180E) && !utf8_is_space(0x200B) && !utf8_is_space(0x2060) && !utf8_is_space(0xFEFF));
	ck_assert(!utf8_is_space(0x1C) && !utf8_is_space(0x1F));
}
END_TEST

Suite *utf8_suite(void);
Suite *utf8_suite(void)
{
	Suite *s = suite_create("utf8");
	TCase *t = tcase_create("utf8");

	tcase_set_timeout(t, 30);
	tcase_add_test(t, every_scalar_value_survives);
	tcase_add_test(t, every_pair_of_bytes_is_judged);
	tcase_add_loop_test(t, malformed_bytes_are_replaced_as_in_python, 0, (int)(sizeof broken / sizeof *broken));
	tcase_add_test(t, newlines_become_lf_only_when_asked);
	tcase_add_test(t, a_full_buffer_is_reported);
	tcase_add_test(t, the_first_invalid_byte_is_found_at_any_offset);
	tcase_add_test(t, white_space_is_25_characters);
	suite_add_tcase(s, t);
	return s;
}
