/* Unicode properties of every code point. PCRE2 is the authority on those that patterns name (10.42: Unicode 14),
 * utf8_is_space on white space. The table is made once a process, on first use, and is immutable from then on. */
#ifndef FATHOM_ENGINE_UNICODE_H
#define FATHOM_ENGINE_UNICODE_H

#include <stdint.h>

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

#endif
