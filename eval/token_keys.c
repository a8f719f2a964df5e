/* See token_keys.h. */
#include "eval/token_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/utf8.h"

#define PREFIX   "token_id:"
#define MAX_TEXT ((size_t)256 << 20)

struct token_text {
	const char *bytes; /* borrowed; NULL: the id is no token */
	uint32_t len;
	bool is_key;
};

struct token_keys {
	uint32_t n;
	struct token_text texts[]; /* [n] */
};

/* -- which texts are keys ---------------------------------------------------------------------- */

static bool could_be_key(const struct token_text *t)
{
	if (!t->bytes || memchr(t->bytes, 0, t->len) || utf8_valid_prefix(t->bytes, t->len) != t->len)
		return false;
	return t->len < sizeof PREFIX || memcmp(t->bytes, PREFIX, sizeof PREFIX - 1) != 0;
}

static uint64_t hash(const struct token_text *t)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

	for (uint32_t i = 0; i < t->len; i++)
		h = (h ^ (unsigned char)t->bytes[i]) * UINT64_C(1099511628211);
	return h ^ h >> 29;
}

/* Of several ids with one text none has it as its key. */
static err_code mark_keys(struct token_keys *k, struct err *e)
{
	size_t mask = 1;
	uint32_t *slots; /* id + 1; 0: free */

	while (mask < 2 * (size_t)k->n)
		mask *= 2;
	slots = mem_zalloc(mask--, sizeof *slots, e);
	if (!slots)
		return e->code;
	for (uint32_t id = 0; id < k->n; id++) {
		struct token_text *t = &k->texts[id], *other = NULL;
		size_t at = hash(t) & mask;

		if (!could_be_key(t))
			continue;
		for (; slots[at]; at = (at + 1) & mask) {
			other = &k->texts[slots[at] - 1];
			if (other->len == t->len && !memcmp(other->bytes, t->bytes, t->len))
				break;
		}
		t->is_key = !slots[at];
		if (slots[at])
			other->is_key = false;
		else
			slots[at] = id + 1;
	}
	free(slots);
	return ERR_OK;
}

err_code token_keys_make(const struct tokenizer *t, uint32_t n_vocab, struct token_keys **out, struct err *e)
{
	struct token_keys *k = mem_zalloc(1, sizeof *k + (size_t)n_vocab * sizeof k->texts[0], e);
	size_t len;

	if (!k)
		return e->code;
	k->n = n_vocab;
	for (uint32_t id = 0; t && id < n_vocab; id++) {
		k->texts[id].bytes = tokenizer_token_bytes(t, id, &len);
		if (k->texts[id].bytes)
			k->texts[id].len = (uint32_t)len;
	}
	if (mark_keys(k, e)) {
		free(k);
		return e->code;
	}
	*out = k;
	return ERR_OK;
}

void token_keys_free(struct token_keys *k)
{
	free(k);
}

const char *token_keys_get(const struct token_keys *k, uint32_t id, char scratch[TOKEN_KEY_BYTES], size_t *len)
{
	if (id < k->n && k->texts[id].is_key) {
		*len = k->texts[id].len;
		return k->texts[id].bytes;
	}
	*len = (size_t)snprintf(scratch, TOKEN_KEY_BYTES, PREFIX "%u", id);
	return scratch;
}

/* -- text -------------------------------------------------------------------------------------- */

static const struct token_text *text_of(const struct token_keys *k, uint32_t id)
{
	static const struct token_text none = {.bytes = ""};

	return id < k->n && k->texts[id].bytes ? &k->texts[id] : &none;
}

err_code token_keys_text(const struct token_keys *k, const uint32_t *ids, size_t n, struct buf *out, uint32_t *offsets,
                         struct err *e)
{
	struct buf raw = BUF_INIT(MAX_TEXT);
	size_t next = 0, starts = 0; /* the token that begins next, and where */
	uint32_t n_chars = 0;
	err_code rc;

	for (size_t i = 0; i < n; i++)
		buf_append(&raw, text_of(k, ids[i])->bytes, text_of(k, ids[i])->len);
	rc = buf_check(&raw, "the text of tokens", e);
	for (size_t at = 0, len; !rc && at < raw.len; at += len, n_chars++) {
		uint32_t c = utf8_next(raw.data + at, raw.len - at, &len);

		utf8_put(out, c == UTF8_INVALID || !c ? 0xFFFD : c);
		for (; next < n && starts < at + len; starts += text_of(k, ids[next++])->len)
			if (offsets)
				offsets[next] = n_chars;
	}
	for (; !rc && offsets && next < n; next++)
		offsets[next] = n_chars;
	buf_release(&raw);
	return rc;
}
