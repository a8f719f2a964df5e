/* Names of token ids for clients that know tokens by their text, and ids back to text.
 *
 * A key is a token's text if that is UTF-8 without U+0000 and no other id's, else "token_id:N": no two ids share
 * one. */
#ifndef FATHOM_EVAL_TOKEN_KEYS_H
#define FATHOM_EVAL_TOKEN_KEYS_H

#include "engine/engine.h"

struct token_keys; /* immutable; borrows from the tokenizer */

/* Of the ids below n_vocab. t may be NULL: then every key is "token_id:N". */
err_code token_keys_make(const struct tokenizer *t, uint32_t n_vocab, struct token_keys **out, struct err *e);
void token_keys_free(struct token_keys *k); /* NULL is fine */

/* The key, not NUL-terminated: borrowed from the tokenizer, or written into scratch. */
#define TOKEN_KEY_BYTES 24
const char *token_keys_get(const struct token_keys *k, uint32_t id, char scratch[TOKEN_KEY_BYTES], size_t *len);

/* Appends the text of ids[0..n): their bytes together, what is not UTF-8 and U+0000 as U+FFFD, ids without a token as
 * nothing. offsets[i], [n] or NULL: the character of the appended text in which token i begins. */
err_code token_keys_text(const struct token_keys *k, const uint32_t *ids, size_t n, struct buf *out, uint32_t *offsets,
                         struct err *e);

#endif
