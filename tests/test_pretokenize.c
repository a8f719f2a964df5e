/* Words, patterns, classes and NFC. The scanner for GPT-2's pattern is held to the pattern itself, run by PCRE2, over
 * every short text of an alphabet in which all its alternatives meet, and over every code point. */
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/json.h"
#include "engine/nfc.h"
#include "engine/pattern.h"
#include "engine/pretokenize.h"
#include "engine/unicode.h"
#include "engine/utf8.h"
#include "tests/fixture.h"

static struct err e;

/* -- words --------------------------------------------------------------------------------------- */

struct ends {
	size_t at[4096], n, last;
};

static err_code put_end(void *ctx, size_t from, size_t to, struct err *err)
{
	struct ends *ends = ctx;

	(void)err;
	if (from != ends->last || to <= from || ends->n == sizeof ends->at / sizeof *ends->at)
		ck_abort_msg("word %zu is %zu to %zu after %zu", ends->n, from, to, ends->last);
	ends->at[ends->n++] = ends->last = to;
	return ERR_OK;
}

struct pair {
	struct pretokenizer scanner, pattern;
	struct pretokenize_run scanner_run, pattern_run;
};

static void open_pair(struct pair *p)
{
	*p = (struct pair){0};
	ck_ok(unicode_classes(&p->scanner.classes, &e), &e);
	p->pattern.classes = p->scanner.classes;
	p->scanner.n_steps = p->pattern.n_steps = 1;
	ck_ok(pattern_compile(PRETOKENIZE_GPT2, &p->pattern.steps[0], &e), &e);
}

static void close_pair(struct pair *p)
{
	pretokenize_run_release(&p->scanner_run);
	pretokenize_run_release(&p->pattern_run);
	pretokenizer_release(&p->scanner);
	pretokenizer_release(&p->pattern);
}

static void compare(struct pair *p, const char *s, size_t len)
{
	static struct ends a, b;

	a.n = b.n = a.last = b.last = 0;
	if (pretokenize(&p->scanner, &p->scanner_run, s, len, put_end, &a, &e) ||
	    pretokenize(&p->pattern, &p->pattern_run, s, len, put_end, &b, &e))
		ck_abort_msg("%s", e.msg);
	if (a.n != b.n || a.last != len || b.last != len || memcmp(a.at, b.at, a.n * sizeof *a.at) != 0)
		ck_abort_msg("'%.*s': %zu words by the scanner, %zu by PCRE2", (int)len, s, a.n, b.n);
}

START_TEST(the_scanner_cuts_every_short_text_as_the_pattern_does)
{
	static const char *const letters[] = {"'", "s",  "l",        "r",        "e", "1",
	                                      " ", "\n", "\xC2\xA0", "\xC3\xA9", "!", "\xCC\x81"};
	enum { N = sizeof letters / sizeof *letters };
	struct pair p;
	size_t n_texts = 0;

	open_pair(&p);
	for (unsigned long len = 1, n = N; len <= 5; len++, n *= N)
		for (unsigned long i = 0; i < n; i++) {
			char s[5 * 2 + 1] = "";
			unsigned long rest = i;

			for (unsigned long k = 0; k < len; k++, rest /= N)
				strcat(s, letters[rest % N]);
			compare(&p, s, strlen(s));
			n_texts++;
		}
	ck_assert_uint_eq(n_texts, 12 + 144 + 1728 + 20736 + 248832);
	close_pair(&p);
}
END_TEST

START_TEST(the_scanner_knows_every_character_as_the_pattern_does)
{
	struct buf b = BUF_INIT(1000);
	struct pair p;

	open_pair(&p);
	for (uint32_t cp = 0; cp < UNICODE_N; cp++) {
		if (cp >= 0xD800 && cp <= 0xDFFF)
			continue;
		buf_clear(&b);
		for (const char *c = "a 1 !'s  \nx"; *c; c++) {
			utf8_put(&b, cp);
			buf_putc(&b, *c);
		}
		utf8_put(&b, cp);
		compare(&p, b.data, b.len);
	}
	buf_release(&b);
	close_pair(&p);
}
END_TEST

START_TEST(long_runs_do_not_exhaust_pcre2)
{
	static const char *const units[] = {" ", "a", "!", "\xE3\x80\x80", "\xE6\xBC\xA2"};
	struct pretokenizer p = {0};
	struct pretokenize_run run = {0};
	struct buf b = BUF_INIT(1 << 24);
	static struct ends ends;

	p.n_steps = 1;
	ck_ok(pattern_compile("\\s*[\\r\\n]+|\\s+(?!\\S)|[^\\s\\p{L}]+|\\p{L}+|\\s+", &p.steps[0], &e), &e);
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		buf_clear(&b);
		for (int k = 0; k < 300000; k++)
			buf_puts(&b, units[i]);
		buf_puts(&b, "1x");
		ends.n = ends.last = 0;
		ck_ok(pretokenize(&p, &run, b.data, b.len, put_end, &ends, &e), &e);
		ck_assert_uint_eq(ends.last, b.len);
		ck_assert_uint_le(ends.n, 4);
	}
	pretokenize_run_release(&run);
	pretokenizer_release(&p);
	buf_release(&b);
}
END_TEST

START_TEST(each_step_cuts_the_pieces_of_the_one_before)
{
	static const char text[] =
	    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":false},"
	    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"b+\"},\"behavior\":\"Isolated\",\"invert\":false},"
	    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]}";
	static const char s[] = "a b12bb3 x\n";
	static const size_t want[] = {1, 2, 3, 5, 7, 8, 10, 11};
	static struct ends ends;
	struct json *j = NULL;
	struct pretokenizer p;
	struct pretokenize_run run = {0};

	ck_ok(json_parse(text, sizeof text - 1, &j, &e), &e);
	ck_ok(pretokenizer_read(j, &p, &e), &e);
	ends.n = ends.last = 0;
	ck_ok(pretokenize(&p, &run, s, sizeof s - 1, put_end, &ends, &e), &e);
	ck_assert_uint_eq(ends.n, sizeof want / sizeof *want);
	ck_assert(!memcmp(ends.at, want, sizeof want));
	ends.n = ends.last = 0;
	ck_ok(pretokenize(&p, &run, "", 0, put_end, &ends, &e), &e);
	ck_assert_uint_eq(ends.n, 0);
	pretokenize_run_release(&run);
	pretokenizer_release(&p);
	json_free(j);
}
END_TEST

/* -- classes ------------------------------------------------------------------------------------- */

START_TEST(classes_are_those_of_unicode_14)
{
	static const struct {
		uint32_t cp;
		unsigned class;
	} known[] = {
	    {'a', UNICODE_LETTER | UNICODE_WORD},
	    {'0', UNICODE_NUMBER | UNICODE_WORD},
	    {'_', UNICODE_OTHER | UNICODE_WORD},
	    {'-', UNICODE_OTHER},
	    {' ', UNICODE_SPACE},
	    {0x85, UNICODE_SPACE},
	    {0xA0, UNICODE_SPACE},
	    {0xAA, UNICODE_LETTER | UNICODE_WORD},
	    {0xB2, UNICODE_NUMBER}, /* No: a number, no \w */
	    {0x301, UNICODE_OTHER | UNICODE_WORD},
	    {0x180E, UNICODE_OTHER}, /* white space until Unicode 6.3 */
	    {0x200B, UNICODE_OTHER},
	    {0x200D, UNICODE_OTHER | UNICODE_WORD},  /* Join_Control */
	    {0x2160, UNICODE_NUMBER | UNICODE_WORD}, /* Nl, Alphabetic */
	    {0x24B6, UNICODE_OTHER | UNICODE_WORD},  /* So, Alphabetic */
	    {0x3000, UNICODE_SPACE},
	    {0x6F22, UNICODE_LETTER | UNICODE_WORD},
	    {0x1F600, UNICODE_OTHER},
	    {0x1DF00, UNICODE_LETTER | UNICODE_WORD}, /* new in 14 */
	    {0xE000, UNICODE_OTHER},
	    {0x10FFFF, UNICODE_OTHER},
	};
	const uint8_t *classes = NULL, *again = NULL;
	size_t n_space = 0;

	ck_ok(unicode_classes(&classes, &e), &e);
	ck_ok(unicode_classes(&again, &e), &e);
	ck_assert_ptr_eq(classes, again);
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		ck_assert_msg(classes[known[i].cp] == known[i].class, "U+%04X is %u", known[i].cp,
		              classes[known[i].cp]);
	for (uint32_t cp = 0; cp < UNICODE_N; cp++) {
		bool space = (classes[cp] & UNICODE_KIND) == UNICODE_SPACE;

		n_space += space;
		if (space != utf8_is_space(cp))
			ck_abort_msg("U+%04X", cp);
	}
	ck_assert_uint_eq(n_space, 25);
}
END_TEST

/* -- patterns ------------------------------------------------------------------------------------ */

/* Syntax that means something else in PCRE2 than in Oniguruma, or was not compared. */
static const char *const refused[] = {
    "a.b",     "^a",        "a$",        "\\w+",       "\\bx",         "\\d\\D",  "\\h",     "\\X",         "\\Aa",
    "\\1",     "(a)\\k<1>", "\\p{Han}+", "\\p{Greek}", "\\p{IsAlpha}", "\\pL",    "\\p{^L}", "[[:alpha:]]", "[a[bc]]",
    "[a&&b]",  "[\\S]",     "[\\w]",     "(?<=a)b",    "(?<!a)b",      "(?<n>a)", "(?>a)",   "(?i)a",       "(?m:a)",
    "(?#c)a",  "(*UCP)a",   "a{,3}",     "a{",         "a{2}+",        "a{x}",    "[]a]",    "[^]a]",       "a\\",
    "\\u0041", "\\x41",     "\\x{41}",   "\\e",        "\\0",
};

START_TEST(a_pattern_that_could_mean_something_else_is_refused)
{
	struct pattern *p = NULL;

	ck_err(pattern_compile(refused[_i], &p, &e), ERR_INPUT, "is not supported", &e);
	ck_assert_ptr_nonnull(strstr(e.msg, refused[_i]));
	ck_assert_ptr_null(p);
}
END_TEST

START_TEST(a_broken_pattern_is_refused)
{
	static const char *const broken[] = {"(a", "a)", "[a", "*a", "a{3,1}", "[z-a]"}, *const empty[] = {
	                                                                                     "a*", "", "a?", "(?=a)",
	                                                                                     "a|"};
	struct pattern *p = NULL;
	char *huge = malloc(20001);

	for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
		ck_err(pattern_compile(broken[i], &p, &e), ERR_INPUT, broken[i], &e);
	for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
		ck_err(pattern_compile(empty[i], &p, &e), ERR_INPUT, "it may match nothing", &e);
	ck_assert_ptr_nonnull(huge);
	memset(huge, 'a', 20000);
	huge[20000] = '\0';
	ck_err(pattern_compile(huge, &p, &e), ERR_INPUT, "20000 bytes is too long", &e);
	free(huge);
}
END_TEST

static const struct {
	const char *pattern, *text;
	size_t from, to; /* the first match */
} found[] = {
    {"\\s", "x\xE1\xA0\x8E\xC2\x85", 4, 6},   /* U+180E is no space, U+0085 is */
    {"[\\s]+", "x\x1F \xE2\x80\xA8 y", 2, 7}, /* U+001F is none, U+2028 is */
    {"\\S+", " \xE2\x80\x8B ", 1, 4},         /* U+200B is none */
    {"[^\\s\\p{L}]+", "a\xC2\xA0!\xCC\x81 ", 3, 6},
    {"\\p{N}{1,3}", "a12345", 1, 4},
    {"\\p{Lu}\\p{Ll}+", "aBcd", 1, 4},
    {"\\P{L}", "\xC3\xA9!", 2, 3},
    {"(?i:'s|'ll)", "x'S", 1, 3},
    {"(?i:'s)", "x'\xC5\xBF", 1, 4}, /* the long s, as in Oniguruma */
    {"\\s+(?!\\S)", "a   b", 1, 3},
    {"a++b|c?+d", "aab", 0, 3},
    {"(?:ab){2}", "xabab", 1, 5},
    {"a+?", "aaa", 0, 1},
    {"[\\-\\]\\[]+", "a-[]b", 1, 4},
    {"x", "aaa", 3, 3},
};

START_TEST(a_pattern_finds_its_first_match)
{
	struct pattern *p = NULL;
	struct pattern_match *m = NULL;
	size_t from, to, len = strlen(found[_i].text);

	ck_ok(pattern_compile(found[_i].pattern, &p, &e), &e);
	ck_ok(pattern_match_new(p, &m, &e), &e);
	ck_ok(pattern_find(p, m, found[_i].text, len, 0, &from, &to, &e), &e);
	ck_assert_msg(from == found[_i].from && to == found[_i].to, "'%s': %zu to %zu", found[_i].pattern, from, to);
	ck_ok(pattern_find(p, m, found[_i].text, len, len, &from, &to, &e), &e);
	ck_assert(from == len && to == len);
	pattern_match_free(m);
	pattern_free(p);
}
END_TEST

/* -- NFC ----------------------------------------------------------------------------------------- */

static const struct {
	const char *text, *normal;
} forms[] = {
    {"", NULL},
    {"plain \xC3\xA9\xC3\x9F\xE6\xBC\xA2\xF0\x9F\x98\x80", NULL},
    {"e\xCC\x81", "\xC3\xA9"},
    {"xe\xCC\x81y", "x\xC3\xA9y"},
    {"a\xCC\x83", "\xC3\xA3"},
    {"q\xCC\x81", NULL},                                      /* nothing to compose to */
    {"e\xCC\x81\xCC\xA3", "\xE1\xBA\xB9\xCC\x81"},            /* the dot below goes first */
    {"\xE2\x84\xAB", "\xC3\x85"},                             /* the angstrom sign */
    {"\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"},             /* composition exclusion */
    {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "\xEA\xB0\x81"}, /* Hangul L V T */
    {"\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81"},             /* LV T */
    {"\xE0\xA7\x87\xE0\xA6\xBE", "\xE0\xA7\x8B"},             /* Bengali e + aa */
    {"\xCC\x81\xCC\xA3", "\xCC\xA3\xCC\x81"},                 /* marks with no base */
    {"\xCD\x84", "\xCC\x88\xCC\x81"},                         /* U+0344 */
    {"a\xE0\xA2\x98\xCC\xA3", NULL},                          /* U+0898, new in Unicode 14, stands still */
    {"\xEF\xA4\x80\xEF\xA4\x81", "\xE8\xB1\x88\xE6\x9B\xB4"},
};

START_TEST(text_is_put_into_nfc)
{
	struct nfc n = {0};
	const char *s = forms[_i].text;

	ck_ok(nfc_apply(&n, s, strlen(s), &e), &e);
	ck_assert_msg((n.n_runs > 0) == (forms[_i].normal != NULL), "%d", _i);
	if (forms[_i].normal) {
		ck_assert_str_eq(buf_str(&n.text), forms[_i].normal);
		/* twice is once */
		ck_ok(nfc_apply(&n, forms[_i].normal, strlen(forms[_i].normal), &e), &e);
		ck_assert_uint_eq(n.n_runs, 0);
	}
	nfc_release(&n);
}
END_TEST

START_TEST(places_in_nfc_lead_back_to_the_text)
{
	/*                       0123  4    6  7   8  9   11   12 bytes: ab | e U+0301 | c | U+212A (3) | d */
	static const char s[] = "ab"
	                        "e\xCC\x81"
	                        "c"
	                        "\xE2\x84\xAA"
	                        "d"; /* -> ab é(2) c K d */
	static const size_t want[] = {0, 1, 2, 5, 5, 6, 9, 10};
	struct nfc n = {0};
	size_t run = 0;

	ck_ok(nfc_apply(&n, s, sizeof s - 1, &e), &e);
	ck_assert_str_eq(buf_str(&n.text), "ab\xC3\xA9"
	                                   "cKd");
	ck_assert_uint_eq(n.n_runs, 2);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		ck_assert_msg(nfc_origin(&n, i, &run) == want[i], "%zu", i);
	nfc_release(&n);
}
END_TEST

/* A sort by neighbours, as in utf8proc, would take 10^11 steps. */
START_TEST(a_megabyte_of_marks_is_ordered_in_time)
{
	enum { N = 250000 };
	struct buf b = BUF_INIT(1 << 21);
	struct nfc n = {0};
	size_t at = 3;

	buf_puts(&b, "a");
	for (int i = 0; i < N; i++)
		buf_puts(&b, "\xCC\x81\xCC\xA3");
	ck_ok(nfc_apply(&n, b.data, b.len, &e), &e);
	ck_assert_uint_eq(n.text.len, 3 + 2 * (2 * N - 1));
	ck_assert(!memcmp(n.text.data, "\xE1\xBA\xA1", 3)); /* a with dot below */
	for (int i = 1; i < 2 * N; i++, at += 2)
		if (memcmp(n.text.data + at, i < N ? "\xCC\xA3" : "\xCC\x81", 2) != 0)
			ck_abort_msg("mark %d", i);
	nfc_release(&n);
	buf_release(&b);
}
END_TEST

Suite *pretokenize_suite(void);
Suite *pretokenize_suite(void)
{
	Suite *s = suite_create("pretokenize");
	TCase *t = tcase_create("pretokenize");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, the_scanner_cuts_every_short_text_as_the_pattern_does);
	tcase_add_test(t, the_scanner_knows_every_character_as_the_pattern_does);
	tcase_add_test(t, long_runs_do_not_exhaust_pcre2);
	tcase_add_test(t, each_step_cuts_the_pieces_of_the_one_before);
	tcase_add_test(t, classes_are_those_of_unicode_14);
	tcase_add_loop_test(t, a_pattern_that_could_mean_something_else_is_refused, 0,
	                    (int)(sizeof refused / sizeof *refused));
	tcase_add_test(t, a_broken_pattern_is_refused);
	tcase_add_loop_test(t, a_pattern_finds_its_first_match, 0, (int)(sizeof found / sizeof *found));
	tcase_add_loop_test(t, text_is_put_into_nfc, 0, (int)(sizeof forms / sizeof *forms));
	tcase_add_test(t, places_in_nfc_lead_back_to_the_text);
	tcase_add_test(t, a_megabyte_of_marks_is_ordered_in_time);
	suite_add_tcase(s, t);
	return s;
}
