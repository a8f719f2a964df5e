/* UTF-8: see utf8.h. The decoder follows the table of well-formed byte sequences (Unicode 15, table 3-7). */
#include "engine/utf8.h"

#include <string.h>

uint32_t utf8_next(const char *str, size_t len, size_t *n)
{
	const uint8_t *s = (const uint8_t *)str;
	uint8_t lo = 0x80, hi = 0xBF; /* the range of the second byte, narrowed by the first */
	uint32_t cp;
	size_t need;

	*n = 1;
	if (s[0] < 0x80)
		return s[0];
	if (s[0] < 0xC2 || s[0] > 0xF4)
		return UTF8_INVALID;
	if (s[0] < 0xE0) {
		need = 1;
		cp = s[0] & 0x1Fu;
	} else if (s[0] < 0xF0) {
		need = 2;
		cp = s[0] & 0x0Fu;
		if (s[0] == 0xE0)
			lo = 0xA0;
		if (s[0] == 0xED)
			hi = 0x9F; /* no surrogates */
	} else {
		need = 3;
		cp = s[0] & 0x07u;
		if (s[0] == 0xF0)
			lo = 0x90;
		if (s[0] == 0xF4)
			hi = 0x8F;
	}
	for (size_t i = 1; i <= need; i++) {
		if (i >= len || s[i] < lo || s[i] > hi) {
			*n = i;
			return UTF8_INVALID;
		}
		cp = cp << 6 | (s[i] & 0x3Fu);
		lo = 0x80;
		hi = 0xBF;
	}
	*n = need + 1;
	return cp;
}

size_t utf8_last(const char *s, size_t len)
{
	size_t at = len - 1;

	while (at && ((uint8_t)s[at] & 0xC0) == 0x80)
		at--;
	return at;
}

void utf8_put(struct buf *out, uint32_t cp)
{
	char s[4];
	size_t n;

	if (cp < 0x80) {
		s[0] = (char)cp;
		n = 1;
	} else if (cp < 0x800) {
		s[0] = (char)(0xC0 | cp >> 6);
		s[1] = (char)(0x80 | (cp & 0x3F));
		n = 2;
	} else if (cp < 0x10000) {
		s[0] = (char)(0xE0 | cp >> 12);
		s[1] = (char)(0x80 | (cp >> 6 & 0x3F));
		s[2] = (char)(0x80 | (cp & 0x3F));
		n = 3;
	} else {
		s[0] = (char)(0xF0 | cp >> 18);
		s[1] = (char)(0x80 | (cp >> 12 & 0x3F));
		s[2] = (char)(0x80 | (cp >> 6 & 0x3F));
		s[3] = (char)(0x80 | (cp & 0x3F));
		n = 4;
	}
	buf_append(out, s, n);
}

size_t utf8_count(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xC0) != 0x80;
	return n;
}

/* Bytes from s that are ASCII, eight at a time. */
static size_t ascii_run(const char *s, size_t len)
{
	size_t i = 0;
	uint64_t w;

	for (; i + 8 <= len; i += 8) {
		memcpy(&w, s + i, 8);
		if (w & 0x8080808080808080u)
			break;
	}
	while (i < len && !(s[i] & 0x80))
		i++;
	return i;
}

size_t utf8_valid_prefix(const char *s, size_t len)
{
	size_t i = 0, n;

	while ((i += ascii_run(s + i, len - i)) < len) {
		if (utf8_next(s + i, len - i, &n) == UTF8_INVALID)
			return i;
		i += n;
	}
	return len;
}

size_t utf8_clean(struct buf *out, const char *s, size_t len, bool newlines)
{
	size_t start = 0, i = 0, n, replaced = 0; /* s[start..i) is clean and not yet copied */

	while (i < len) {
		if (newlines && s[i] == '\r') {
			buf_append(out, s + start, i - start);
			buf_putc(out, '\n');
			i += i + 1 < len && s[i + 1] == '\n' ? 2 : 1;
			start = i;
			continue;
		}
		if (utf8_next(s + i, len - i, &n) == UTF8_INVALID) {
			buf_append(out, s + start, i - start);
			buf_puts(out, "\xEF\xBF\xBD");
			replaced++;
			start = i + n;
		}
		i += n;
	}
	buf_append(out, s + start, len - start);
	return replaced;
}

bool utf8_is_space(uint32_t cp)
{
	return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
	       (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
	       cp == 0x3000;
}
