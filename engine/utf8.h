/* UTF-8: decoding, validation, the replacement rule, and Unicode White_Space. */
#ifndef FATHOM_ENGINE_UTF8_H
#define FATHOM_ENGINE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/buf.h"

#define UTF8_INVALID 0xFFFFFFFFu

/* Decodes one scalar value at s (len > 0): returns it and sets *n to its length. A malformed sequence returns
 * UTF8_INVALID with *n the length of its maximal subpart (Unicode 15, section 3.9, table 3-8), which is what
 * Python's errors="replace" turns into one U+FFFD. */
uint32_t utf8_next(const char *s, size_t len, size_t *n);

/* The scalar value at s, which must be valid UTF-8; *n is its length. */
static inline uint32_t utf8_at(const char *str, size_t *n)
{
	const uint8_t *s = (const uint8_t *)str;

	if (s[0] < 0x80) {
		*n = 1;
		return s[0];
	}
	if (s[0] < 0xE0) {
		*n = 2;
		return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
	}
	if (s[0] < 0xF0) {
		*n = 3;
		return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
	}
	*n = 4;
	return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

/* Where the last character of valid UTF-8 begins; len > 0. */
size_t utf8_last(const char *s, size_t len);

/* Appends the UTF-8 form of a scalar value. */
void utf8_put(struct buf *out, uint32_t cp);

/* Characters of a string of valid UTF-8: near enough to columns on a terminal. */
size_t utf8_count(const char *s);

/* The index of the first byte that is not part of well-formed UTF-8; len when all is well. */
size_t utf8_valid_prefix(const char *s, size_t len);

/* Appends s to out with every malformed subpart as U+FFFD, and, if newlines is set, CRLF and a lone CR as LF.
 * Returns the number of replacements. out's failure is sticky: check it. */
size_t utf8_clean(struct buf *out, const char *s, size_t len, bool newlines);

/* Unicode White_Space (PropList.txt): 25 characters, stable since Unicode 6.3. */
bool utf8_is_space(uint32_t cp);

#endif
