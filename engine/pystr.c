/* Python's str: see pystr.h. Simple mappings of case are utf8proc's; those to several characters, which it lacks, are
 * of SpecialCasing.txt (Unicode 15, unconditional, titlecase), and the one context of lower case is the final sigma's.
 */
#include "engine/pystr.h"

#include <utf8proc.h>

#include "engine/utf8.h"

#define SIGMA       0x3A3u
#define FINAL_SIGMA 0x3C2u

static const uint32_t titles[][4] = {
    {0xDF, 0x53, 0x73},
    {0x149, 0x2BC, 0x4E},
    {0x1F0, 0x4A, 0x30C},
    {0x390, 0x399, 0x308, 0x301},
    {0x3B0, 0x3A5, 0x308, 0x301},
    {0x587, 0x535, 0x582},
    {0x1E96, 0x48, 0x331},
    {0x1E97, 0x54, 0x308},
    {0x1E98, 0x57, 0x30A},
    {0x1E99, 0x59, 0x30A},
    {0x1E9A, 0x41, 0x2BE},
    {0x1F50, 0x3A5, 0x313},
    {0x1F52, 0x3A5, 0x313, 0x300},
    {0x1F54, 0x3A5, 0x313, 0x301},
    {0x1F56, 0x3A5, 0x313, 0x342},
    {0x1FB2, 0x1FBA, 0x345},
    {0x1FB4, 0x386, 0x345},
    {0x1FB6, 0x391, 0x342},
    {0x1FB7, 0x391, 0x342, 0x345},
    {0x1FC2, 0x1FCA, 0x345},
    {0x1FC4, 0x389, 0x345},
    {0x1FC6, 0x397, 0x342},
    {0x1FC7, 0x397, 0x342, 0x345},
    {0x1FD2, 0x399, 0x308, 0x300},
    {0x1FD3, 0x399, 0x308, 0x301},
    {0x1FD6, 0x399, 0x342},
    {0x1FD7, 0x399, 0x308, 0x342},
    {0x1FE2, 0x3A5, 0x308, 0x300},
    {0x1FE3, 0x3A5, 0x308, 0x301},
    {0x1FE4, 0x3A1, 0x313},
    {0x1FE6, 0x3A5, 0x342},
    {0x1FE7, 0x3A5, 0x308, 0x342},
    {0x1FF2, 0x1FFA, 0x345},
    {0x1FF4, 0x38F, 0x345},
    {0x1FF6, 0x3A9, 0x342},
    {0x1FF7, 0x3A9, 0x342, 0x345},
    {0xFB00, 0x46, 0x66},
    {0xFB01, 0x46, 0x69},
    {0xFB02, 0x46, 0x6C},
    {0xFB03, 0x46, 0x66, 0x69},
    {0xFB04, 0x46, 0x66, 0x6C},
    {0xFB05, 0x53, 0x74},
    {0xFB06, 0x53, 0x74},
    {0xFB13, 0x544, 0x576},
    {0xFB14, 0x544, 0x565},
    {0xFB15, 0x544, 0x56B},
    {0xFB16, 0x54E, 0x576},
    {0xFB17, 0x544, 0x56D},
};

/* str.isspace */
static bool is_space(uint32_t cp)
{
	return utf8_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
}

size_t pystr_rstrip(const char *s, size_t len)
{
	size_t at, n;

	for (; len; len = at) {
		at = utf8_last(s, len);
		if (!is_space(utf8_next(s + at, len - at, &n)))
			break;
	}
	return len;
}

size_t pystr_lstrip(const char *s, size_t len)
{
	size_t at, n = 0;

	for (at = 0; at < len && is_space(utf8_next(s + at, len - at, &n)); at += n)
		;
	return at;
}

static uint32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), uint32_t cp)
{
	return (uint32_t)map((utf8proc_int32_t)cp);
}

static void put_title(struct buf *out, uint32_t cp)
{
	for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
		if (titles[i][0] != cp)
			continue;
		for (size_t k = 1; k < 4 && titles[i][k]; k++)
			utf8_put(out, titles[i][k]);
		return;
	}
	utf8_put(out, simple(utf8proc_totitle, cp));
}

/* Whether a letter with case stands next, characters without a say (Case_Ignorable) passed over: forwards from s, or
 * backwards from its end. */
static bool meets_cased(const char *s, size_t len, bool forwards)
{
	static const uint32_t between[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
	                                   0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};

	while (len) {
		size_t at = forwards ? 0 : utf8_last(s, len), n;
		utf8proc_category_t kind;
		bool ignored;
		uint32_t cp;

		cp = utf8_at(s + at, &n);
		kind = utf8proc_category((utf8proc_int32_t)cp);
		ignored = kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
		          kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK;
		for (size_t i = 0; i < sizeof between / sizeof *between; i++)
			ignored |= between[i] == cp;
		if (!ignored)
			return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
			       kind == UTF8PROC_CATEGORY_LT;
		len -= n;
		s += forwards ? n : 0;
	}
	return false;
}

void pystr_capitalize(struct buf *out, const char *s, size_t len)
{
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		uint32_t cp = utf8_at(s + i, &n);

		if (!i) {
			put_title(out, cp);
		} else if (cp == 0x130) { /* the only letter whose lower case is two characters */
			utf8_put(out, 'i');
			utf8_put(out, 0x307);
		} else if (cp == SIGMA && meets_cased(s, i, false) && !meets_cased(s + i + n, len - i - n, true)) {
			utf8_put(out, FINAL_SIGMA);
		} else {
			utf8_put(out, simple(utf8proc_tolower, cp));
		}
	}
}
