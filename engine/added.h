/* Added tokens: contents that are found in the text before it is cut into words, as Hugging Face's AddedVocabulary
 * does: leftmost, then longest; first those with normalized false in the text itself, then the others in what lies
 * between, after the normaliser. */
#ifndef FATHOM_ENGINE_ADDED_H
#define FATHOM_ENGINE_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/bpe.h"
#include "engine/err.h"
#include "engine/json.h"

struct added_token {
	char *content; /* as in the file; owned */
	char *pattern; /* what is looked for: content, after the normaliser if `normalized`; owned */
	size_t len, pattern_len;
	uint32_t id;
	bool single_word;    /* only where no \w stands on either side */
	bool lstrip, rstrip; /* takes the white space before, after it along */
	bool normalized;
};

/* Tokens of one kind, by pattern. */
struct added_set {
	struct added_token *sorted; /* [n], by pattern, bytewise; owned, its strings borrowed */
	size_t n;
	bool first[256]; /* some pattern begins with this byte */
};

struct added {                      /* immutable once read */
	struct added_token *tokens; /* [n]; owned */
	size_t n;
	struct added_set plain, normalized;
	const uint8_t *classes; /* borrowed: unicode_classes */
};

/* Reads the "added_tokens" value (absent or null: none). nfc: the tokenizer's normaliser. On failure there is nothing
 * to release. Ids are those that Hugging Face gives: of the vocabulary, else counted on from its size; a file that
 * says otherwise is refused. */
err_code added_read(const struct json *value, const struct bpe *vocab, bool nfc, struct added *out, struct err *e);
void added_release(struct added *a);

/* A piece of a text: an added token, or (token NULL) what lies between. */
struct added_piece {
	const struct added_token *token;
	size_t from, to;
};

/* Walks text[0..len) in pieces that cover it. */
struct added_iter {
	const struct added *a;
	const struct added_set *set;
	const char *text;
	size_t len;
	size_t done;             /* pieces up to here were given */
	size_t search;           /* where the next match may begin */
	struct added_piece held; /* the token after the piece given last, if held.token */
};
void added_begin(struct added_iter *it, const struct added *a, const struct added_set *set, const char *text,
                 size_t len);
bool added_next(struct added_iter *it, struct added_piece *out); /* false at the end */

#endif
