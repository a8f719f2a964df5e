/* Regular expressions of tokenizer.json, run by PCRE2.
 *
 * They are written for Oniguruma. Only what means the same in both is accepted: a syntax that differs, or that
 * nobody has compared, is refused by name rather than run with another meaning. \s is exactly White_Space. */
#ifndef FATHOM_ENGINE_PATTERN_H
#define FATHOM_ENGINE_PATTERN_H

#include <stddef.h>

#include "engine/err.h"

struct pattern;       /* immutable */
struct pattern_match; /* one caller's scratch memory */

err_code pattern_compile(const char *source, struct pattern **out, struct err *e);
void pattern_free(struct pattern *p); /* NULL is fine */

err_code pattern_match_new(const struct pattern *p, struct pattern_match **out, struct err *e);
void pattern_match_free(struct pattern_match *m); /* NULL is fine */

/* The first match in text[0..len), valid UTF-8, at or after `at`: *from < *to; both len when there is none. */
err_code pattern_find(const struct pattern *p, struct pattern_match *m, const char *text, size_t len, size_t at,
                      size_t *from, size_t *to, struct err *e);

#endif
