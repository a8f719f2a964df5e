/* Pre-tokenisation: text to words, as the "pre_tokenizer" of tokenizer.json says.
 *
 * Known: ByteLevel (GPT-2's pattern, or none with use_regex false), alone or as the last of a Sequence after Split (a
 * regular expression, Isolated) and Digits. Anything else is refused by name.
 *
 * GPT-2's pattern runs as a scanner over the table of classes that PCRE2 fills (unicode.h), for speed; a test
 * holds it to the pattern run by PCRE2. Other patterns run in PCRE2. */
#ifndef FATHOM_ENGINE_PRETOKENIZE_H
#define FATHOM_ENGINE_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/json.h"
#include "engine/pattern.h"

#define PRETOKENIZE_MAX_STEPS 8

/* openai/gpt-2, encoder.py */
#define PRETOKENIZE_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct pretokenizer {                                 /* immutable */
	struct pattern *steps[PRETOKENIZE_MAX_STEPS]; /* NULL: GPT-2's, by the scanner; owned */
	size_t n_steps;                               /* each cuts the pieces of the one before; 0: one word */
	const uint8_t *classes;                       /* borrowed; lives as long as the process */
	bool add_prefix_space;                        /* the caller puts ' ' before a text without one */
};

/* One caller's scratch memory. Zero-initialise, then pretokenize_run_release. */
struct pretokenize_run {
	struct pattern_match *match[PRETOKENIZE_MAX_STEPS]; /* owned; made when needed */
};
void pretokenize_run_release(struct pretokenize_run *r);

/* Fills *out from the "pre_tokenizer" value; on failure there is nothing to release. */
err_code pretokenizer_read(const struct json *value, struct pretokenizer *out, struct err *e);
void pretokenizer_release(struct pretokenizer *p);

/* Calls fn for each word text[from..to) in order; they cover text[0..len), which must be valid UTF-8. Stops at
 * fn's first error. */
typedef err_code word_fn(void *ctx, size_t from, size_t to, struct err *e);
err_code pretokenize(const struct pretokenizer *p, struct pretokenize_run *r, const char *text, size_t len, word_fn *fn,
                     void *ctx, struct err *e);

#endif
