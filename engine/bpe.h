/* Byte-level BPE: the vocabulary and merges of a tokenizer, and words to token ids.
 *
 * A `struct bpe` is immutable after bpe_read and may be shared by threads; what encoding needs besides
 * is in the caller's `struct bpe_run`. Tokens are kept as the bytes that they stand for: the printable alphabet
 * in which tokenizer.json spells bytes is undone when the file is read. */
#ifndef FATHOM_ENGINE_BPE_H
#define FATHOM_ENGINE_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/buf.h"
#include "engine/err.h"
#include "engine/json.h"
#include "engine/tokenizer.h"

#define BPE_NONE   UINT32_MAX /* no token */
#define BPE_MAX_ID (1u << 22) /* ids are below it: a larger one is taken for damage */

/* -- the vocabulary: bpe.c encodes with it, bpe_read.c makes it -------------------------------- */

struct bpe_token {
	uint32_t start, len; /* in bpe.bytes */
	bool used;           /* the id is a token */
	bool raw;            /* spelled with characters outside the byte alphabet: no word leads to it */
	bool whole;          /* its bytes as a word encode to it alone */
};

struct bpe_merge {
	uint32_t left, right; /* left BPE_NONE: a free slot */
	uint32_t rank, id;    /* rank: place in the list of merges; id: of the merged token */
};

struct bpe {
	struct buf bytes;         /* all tokens' bytes */
	struct bpe_token *tokens; /* [n_vocab]; owned */
	uint32_t n_vocab;         /* 1 + the largest id */
	size_t n_token;           /* entries of model.vocab; less than n_vocab where it has holes */
	uint32_t byte_id[256];    /* the token of a single byte, or BPE_NONE: it is dropped, or becomes unk_id */
	uint32_t unk_id;          /* BPE_NONE: none */
	struct bpe_word {
		uint32_t hash, id; /* id BPE_NONE: a free slot */
	} * words;                 /* tokens by bytes, [word_mask + 1], linear probing; owned */
	size_t word_mask;
	struct bpe_merge *merges; /* by pair, [merge_mask + 1], linear probing; owned */
	size_t merge_mask;
	bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
	bool has_gaps;      /* a byte that text can have is BPE_NONE in byte_id */
	bool fuse_unk;      /* neighbouring bytes without a token become one unk_id */
};

/* Reads the "model" object of a tokenizer.json. Errors name the member and its value. */
err_code bpe_read(const struct json *model, struct bpe **out, struct err *e);
void bpe_free(struct bpe *b); /* NULL is fine */

/* The token of these bytes, or BPE_NONE. raw: among those outside the byte alphabet. */
uint32_t bpe_find(const struct bpe *b, const char *bytes, size_t len, bool raw);

/* The token that tokenizer.json spells s[0..len), or BPE_NONE. */
uint32_t bpe_find_spelled(const struct bpe *b, const char *s, size_t len);

/* For bpe_read.c, which fills the tables: enters token `id` by its bytes; the slot of a pair, or the free one where it
 * belongs; whether a token's bytes encode to it alone (*whole). */
void bpe_add_word(struct bpe *b, uint32_t id);
struct bpe_merge *bpe_merge_slot(const struct bpe *b, uint32_t left, uint32_t right);
struct bpe_run;
err_code bpe_check_whole(const struct bpe *b, struct bpe_run *r, uint32_t id, bool *whole, struct err *e);

/* -- encoding ---------------------------------------------------------------------------------- */

/* One caller's scratch memory and word cache. The cache holds words by address: valid while the
 * texts that the words came from, and the list that they were appended to, stay as they are; bpe_run_forget
 * when they do not. Zero-initialise, then bpe_run_release. */
struct bpe_run {
	struct bpe_symbol *symbols; /* [cap]; owned */
	size_t n_symbols;           /* that the last word began as */
	uint64_t *heap;             /* [2 * cap]; owned */
	size_t cap;
	struct bpe_cached *cache; /* [cache_mask + 1]; owned; NULL until a word needs it */
	size_t cache_mask;
};
void bpe_run_release(struct bpe_run *r);
void bpe_run_forget(struct bpe_run *r);

/* Appends the tokens of word[0..len) to `out`, their ends counted from `base`, where the word begins. O(n log n) for
 * any word. text_len only sizes the cache. A byte without a token is, as in Hugging Face's, the unknown token; where
 * there is none it is dropped, its neighbours may merge, and out->n_dropped counts it. */
err_code bpe_encode(const struct bpe *b, struct bpe_run *r, const char *word, size_t len, size_t base, size_t text_len,
                    struct token_list *out, struct err *e);

/* Makes room for n more tokens. */
err_code token_list_reserve(struct token_list *l, size_t n, struct err *e);

#endif
