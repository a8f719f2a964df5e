/* Unicode properties of every code point, and NFC.
 *
 * PCRE2 is the authority on the properties that patterns name (10.42: Unicode 14), utf8_is_space on white space,
 * utf8proc on normalisation (2.8: Unicode 15). Tables are made once a process, on first use, and are immutable
 * from then on. */
#ifndef FATHOM_ENGINE_UNICODE_H
#define FATHOM_ENGINE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/buf.h"
#include "engine/err.h"

#define UNICODE_N 0x110000u

/* The class of a code point: exactly one of the first four, and perhaps UNICODE_WORD. */
#define UNICODE_OTHER  0x00u
#define UNICODE_LETTER 0x01u /* \p{L} */
#define UNICODE_NUMBER 0x02u /* \p{N} */
#define UNICODE_SPACE  0x03u /* White_Space: 25 characters, none of them L or N */
#define UNICODE_KIND   0x03u /* the mask of the four */
#define UNICODE_WORD   0x04u /* \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control */

/* The classes of all code points, [UNICODE_N]. Thread-safe. */
err_code unicode_classes(const uint8_t **classes, struct err *e);

/* A class, for PCRE2, of exactly White_Space, without its brackets. (PCRE2's own \s under UCP is another set.) */
#define UNICODE_SPACE_CLASS                                                                                            \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"           \
	"\\x{3000}"

/* The scalar value at s, which must be valid UTF-8; *n is its length. */
static inline uint32_t unicode_at(const char *str, size_t *n)
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

/* -- NFC --------------------------------------------------------------------------------------- */

/* A run whose normal form differs: bytes from..to of the text became out_from..out_to. Outside the runs
 * text and normal form are the same, byte by byte. */
struct nfc_run {
	size_t from, to, out_from, out_to;
};

struct nfc {
	struct buf text;      /* the normal form; valid only if n_runs > 0 */
	struct nfc_run *runs; /* [n_runs], ascending; owned */
	size_t n_runs, cap_runs;
};
void nfc_release(struct nfc *n); /* zero-initialise before the first use */

/* Normalises s, which must be valid UTF-8. n_runs = 0: s is in NFC already (and n->text is empty).
 *
 * This is NFC as Hugging Face's `tokenizers` (0.23) computes it, from tables of Unicode 9: the marks that
 * came later are left where they are and nothing moves across them. */
err_code nfc_apply(struct nfc *n, const char *s, size_t len, struct err *e);

/* The byte of the text that byte `at` of the normal form comes from. Inside a run, where there is no such byte,
 * the run's end: the token that opens a changed run owns all its bytes. *run is a cursor for ascending
 * calls; start it at 0. */
size_t nfc_origin(const struct nfc *n, size_t at, size_t *run);

#endif
