/* Python's str methods, against CPython 3.11's own answers. */
#include <check.h>
#include <string.h>

#include "engine/pystr.h"
#include "engine/sha256.h"
#include "engine/utf8.h"
#include "tests/fixture.h"

static struct err e;

/* What str.capitalize printed for each (CPython 3.11, Unicode 14). */
static const struct {
	const char *in, *out;
} capitals[] = {
    {"", ""},
    {"hELLO", "Hello"},
    {"1A", "1a"},
    {"\u00E9COLE", "\u00C9cole"},
    {"\u01C4x\u01C4", "\u01C5x\u01C6"},                                     /* title case is not upper case */
    {"\u00DFTRASSE", "Sstrasse"},                                           /* one character becomes two */
    {"\u0149A", "\u02BCNa"},                                                /* three */
    {"\u1F52A", "\u03A5\u0313\u0300a"},                                     /* three again */
    {"\uFB17X", "\u0544\u056Dx"},                                           /* a ligature */
    {"\u0130\u0130", "\u0130i\u0307"},                                      /* the one lower case of two characters */
    {"\u039F\u0394\u039F\u03A3 \u03A3", "\u039F\u03B4\u03BF\u03C2 \u03C3"}, /* sigma at a word's end, and alone */
    {"\u03A3\u0391\u03A3. A\u03A3'B a\u03A3'", "\u03A3\u03B1\u03C2. a\u03C3'b a\u03C2'"}, /* behind what has no say */
};

START_TEST(capitalize_is_title_case_then_lower_case)
{
	struct buf out = BUF_INIT(1 << 16);

	for (size_t i = 0; i < sizeof capitals / sizeof *capitals; i++) {
		buf_clear(&out);
		pystr_capitalize(&out, capitals[i].in, strlen(capitals[i].in));
		ck_assert_str_eq(buf_str(&out), capitals[i].out);
	}
	buf_release(&out);
}
END_TEST

/* sha256 over chr(c).capitalize() and ("x" + chr(c)).capitalize() in UTF-8, of blocks to which no letter was added for
 * years: CPython 3.11's. */
START_TEST(capitalize_agrees_on_every_letter_of_long_standing)
{
	static const uint32_t blocks[][2] = {{0, 0x1C80}, {0x1D00, 0x2C00}, {0xFB00, 0xFB20}};
	struct buf all = BUF_INIT(1 << 24), in = BUF_INIT(16);
	char hex[SHA256_HEX];

	for (size_t i = 0; i < 3; i++) {
		for (uint32_t cp = blocks[i][0]; cp < blocks[i][1]; cp++) {
			buf_clear(&in);
			buf_putc(&in, 'x');
			utf8_put(&in, cp);
			pystr_capitalize(&all, in.data + 1, in.len - 1);
			pystr_capitalize(&all, in.data, in.len);
		}
	}
	ck_ok(buf_check(&all, "text", &e), &e);
	sha256_hex(all.data, all.len, hex);
	ck_assert_str_eq(hex, "073fd87fc801231d5aef3eb9fa3bca2052899ae49d763fcbae138de7c38efd37");
	buf_release(&all);
	buf_release(&in);
}
END_TEST

START_TEST(strip_takes_white_space_and_the_separators_of_ascii)
{
	static const char text[] = "\u3000\x1C\ta b\u00A0\x1F\u2003 \n";
	size_t n = pystr_lstrip(text, sizeof text - 1);

	ck_assert_uint_eq(n, 5);
	ck_assert_uint_eq(pystr_rstrip(text, sizeof text - 1), n + 3);
	ck_assert_uint_eq(pystr_lstrip(" \n", 2), 2);
	ck_assert_uint_eq(pystr_rstrip(" \n", 2), 0);
	ck_assert_uint_eq(pystr_rstrip("\u200B", 3), 3); /* no white space */
	ck_assert_uint_eq(pystr_rstrip("", 0) + pystr_lstrip("", 0), 0);
}
END_TEST

Suite *pystr_suite(void);
Suite *pystr_suite(void)
{
	Suite *s = suite_create("pystr");
	TCase *tc = tcase_create("pystr");

	tcase_add_test(tc, capitalize_is_title_case_then_lower_case);
	tcase_add_test(tc, capitalize_agrees_on_every_letter_of_long_standing);
	tcase_add_test(tc, strip_takes_white_space_and_the_separators_of_ascii);
	suite_add_tcase(s, tc);
	return s;
}
