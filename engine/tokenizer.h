/* Tokenizers: text to token ids, equal to Hugging Face's `tokenizers` on every id.
 *
 * A tokenizer is immutable after it is opened and may be shared by threads. */
#ifndef FATHOM_ENGINE_TOKENIZER_H
#define FATHOM_ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct tokenizer;

/* Tokens of one text. Owned; zero-initialise, then token_list_release. */
struct token_list {
	uint32_t *ids; /* [n] */
	size_t *ends;  /* [n] the byte in the encoded text after token i's last byte: a token's bytes are
	                * ends[i-1]..ends[i]. Counted before any normaliser. */
	size_t n, cap;
	size_t n_dropped; /* bytes that the vocabulary has no token for and that left nothing, as in Hugging Face */
};
void token_list_release(struct token_list *l);

/* Reads tokenizer.json at `path`. What this program cannot reproduce exactly is refused by name
 * ("tokenizer: model.type 'WordPiece' is not supported"). */
err_code tokenizer_open(const char *path, struct tokenizer **out, struct err *e);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

/* Appends the tokens of text[0..len) to `out`. The text must be valid UTF-8 (utf8_clean makes it so; else ERR_INPUT
 * with the byte). add_special: also what the post-processor adds (BOS and such; these have empty byte ranges). Text
 * of added tokens ("<|endoftext|>") is recognised as in Hugging Face. */
err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool add_special,
                          struct token_list *out, struct err *e);

/* The largest p, 0 < p < len, such that whatever text begins with text[0..len), its tokens are those of text[0..p) and
 * then those of the text from p on; 0 when there is none or it cannot be told. What is encoded often with other ends
 * need not be encoded whole each time. */
size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t len);

/* The bytes that a token stands for (not NUL-terminated, not always valid UTF-8); NULL when id is unknown. */
const char *tokenizer_token_bytes(const struct tokenizer *t, uint32_t id, size_t *len);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);                      /* 1 + the largest id */
int64_t tokenizer_token_id(const struct tokenizer *t, const char *content); /* -1 when absent */
bool tokenizer_adds_bos(const struct tokenizer *t);                         /* add_special puts a token first */

#endif
