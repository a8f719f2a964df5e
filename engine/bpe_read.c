/* The vocabulary from the "model" object of tokenizer.json: see bpe.h. Whatever a file may say is checked here;
 * bpe.c trusts the result. */
#include "engine/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"

/* The byte that a character of the alphabet stands for, or -1. Printable Latin-1 stands for itself; the other bytes
 * are, in order, U+0100 to U+0143 (openai/gpt-2, encoder.py: bytes_to_unicode). */
static int byte_of(uint32_t cp)
{
	if ((cp >= '!' && cp <= '~') || (cp >= 0xA1 && cp <= 0xFF && cp != 0xAD))
		return (int)cp;
	if (cp >= 0x100 && cp <= 0x120)
		return (int)(cp - 0x100);
	if (cp == 0x121)
		return 0x7F;
	if (cp >= 0x122 && cp <= 0x142)
		return (int)(cp - 0x122 + 0x80);
	return cp == 0x143 ? 0xAD : -1;
}

/* Undoes the byte alphabet: appends the bytes that s spells to out. false, with s itself appended, when s has a
 * character that is not in the alphabet. */
static bool put_spelled(struct buf *out, const char *s, size_t len)
{
	size_t start = out->len, n;
	int byte;

	for (size_t i = 0; i < len; i += n) {
		byte = byte_of(utf8_next(s + i, len - i, &n));
		if (byte < 0) {
			out->len = start;
			buf_append(out, s, len);
			return false;
		}
		buf_putc(out, (char)byte);
	}
	return true;
}

uint32_t bpe_find_spelled(const struct bpe *b, const char *s, size_t len)
{
	struct buf bytes = BUF_INIT(SIZE_MAX / 2);
	bool raw = !put_spelled(&bytes, s, len);
	uint32_t id = bytes.failed ? BPE_NONE : bpe_find(b, buf_str(&bytes), bytes.len, raw);

	buf_release(&bytes);
	return id;
}

static size_t table_size(size_t n)
{
	size_t size = 64;

	while (size < 2 * n)
		size *= 2;
	return size;
}

/* -- vocab ------------------------------------------------------------------------------------- */

/* The largest id; every id is checked for its type and range. */
static err_code check_ids(struct bpe *b, const struct json *vocab, struct err *e)
{
	int64_t id;

	for (const struct json *m = json_first(vocab); m; m = json_next(m)) {
		if (!json_integer(m, &id) || id < 0 || id >= BPE_MAX_ID)
			return err_set(e, ERR_INPUT, "model.vocab: the id of '%.100s' is not an integer from 0 to %u",
			               json_key(m), BPE_MAX_ID - 1);
		if ((uint32_t)id >= b->n_vocab)
			b->n_vocab = (uint32_t)id + 1;
		b->n_token++;
	}
	if (!b->n_token)
		return err_set(e, ERR_INPUT, "model.vocab is empty");
	return ERR_OK;
}

static err_code read_vocab(struct bpe *b, const struct json *vocab, struct err *e)
{
	size_t n_slots;
	int64_t id;

	if (!json_is_object(vocab))
		return err_set(e, ERR_INPUT, "model.vocab is %s, not an object", json_type_name(vocab));
	if (check_ids(b, vocab, e))
		return e->code;
	n_slots = table_size(b->n_token);
	b->word_mask = n_slots - 1;
	b->tokens = mem_zalloc(b->n_vocab, sizeof *b->tokens, e);
	b->words = b->tokens ? mem_alloc(n_slots, sizeof *b->words, e) : NULL;
	if (!b->words)
		return e->code;
	memset(b->words, 0xFF, n_slots * sizeof *b->words); /* all BPE_NONE */
	for (const struct json *m = json_first(vocab); m; m = json_next(m)) {
		struct bpe_token *t;

		if (!json_integer(m, &id))
			continue; /* cannot be: checked above */
		t = &b->tokens[id];
		if (t->used)
			return err_set(e, ERR_INPUT, "model.vocab: id %lld is given twice, also to '%.100s'",
			               (long long)id, json_key(m));
		t->used = true;
		t->start = (uint32_t)b->bytes.len;
		t->raw = !put_spelled(&b->bytes, json_key(m), strlen(json_key(m)));
		t->len = (uint32_t)(b->bytes.len - t->start);
	}
	buf_putc(&b->bytes, '\0'); /* so that data is never NULL */
	if (buf_check(&b->bytes, "model.vocab", e))
		return e->code;
	for (uint32_t i = 0; i < b->n_vocab; i++)
		if (b->tokens[i].used)
			bpe_add_word(b, i);
	return ERR_OK;
}

/* Can this byte stand in UTF-8? */
static bool is_utf8_byte(unsigned byte)
{
	return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

/* The tokens of single bytes. A vocabulary may lack some (one of letters only): then what becomes of such a byte is
 * read, too. */
static err_code read_bytes(struct bpe *b, const struct json *model, struct err *e)
{
	const struct json *unk = json_get(model, "unk_token");
	unsigned gap = 256;

	for (unsigned i = 0; i < 256; i++) {
		char byte = (char)i;

		b->byte_id[i] = bpe_find(b, &byte, 1, false);
		if (b->byte_id[i] == BPE_NONE && is_utf8_byte(i))
			gap = gap < i ? gap : i;
	}
	b->unk_id = BPE_NONE;
	b->has_gaps = gap < 256;
	if (!b->has_gaps)
		return ERR_OK;
	if (json_true(json_get(model, "byte_fallback")))
		return err_set(e, ERR_INPUT,
		               "model.byte_fallback is not supported where a byte has no token (0x%02X has none)", gap);
	if (!unk || json_is_null(unk))
		return ERR_OK;
	if (json_is_string(unk))
		b->unk_id = bpe_find_spelled(b, json_string(unk), strlen(json_string(unk)));
	b->fuse_unk = json_true(json_get(model, "fuse_unk"));
	if (b->unk_id != BPE_NONE)
		return ERR_OK;
	return err_set(e, ERR_INPUT, "model.unk_token '%.100s' is not in model.vocab, and the byte 0x%02X has no token",
	               json_is_string(unk) ? json_string(unk) : json_type_name(unk), gap);
}

/* -- merges ------------------------------------------------------------------------------------ */

/* The token spelled s[0..len), for merge `at`. */
static err_code find_part(const struct bpe *b, const char *s, size_t len, size_t at, uint32_t *id, struct err *e)
{
	*id = bpe_find_spelled(b, s, len);
	if (*id != BPE_NONE)
		return ERR_OK;
	return err_set(e, ERR_INPUT, "model.merges[%zu]: '%.*s' is not in model.vocab", at,
	               (int)(len < 100 ? len : 100), s);
}

/* The two parts of a merge: "left right", or ["left", "right"]. */
static err_code merge_parts(const struct json *m, size_t at, const char *part[2], size_t len[2], struct err *e)
{
	const char *s = json_string(m), *space = s ? strchr(s, ' ') : NULL;

	if (s) {
		if (!space || strchr(space + 1, ' '))
			return err_set(e, ERR_INPUT, "model.merges[%zu]: '%.100s' is not two tokens", at, s);
		part[0] = s;
		len[0] = (size_t)(space - s);
		part[1] = space + 1;
	} else {
		const struct json *left = json_is_array(m) ? json_first(m) : NULL;
		const struct json *right = left ? json_next(left) : NULL;

		if (!json_string(left) || !json_string(right) || json_next(right))
			return err_set(e, ERR_INPUT, "model.merges[%zu] is neither a string nor a pair of strings", at);
		part[0] = json_string(left);
		len[0] = strlen(part[0]);
		part[1] = json_string(right);
	}
	len[1] = strlen(part[1]);
	return ERR_OK;
}

static err_code read_merge(struct bpe *b, const struct json *m, size_t at, uint32_t rank, struct err *e)
{
	struct buf joined = BUF_INIT(SIZE_MAX / 2);
	const char *part[2] = {"", ""};
	size_t len[2] = {0, 0};
	uint32_t left = BPE_NONE, right = BPE_NONE, id = BPE_NONE;
	err_code rc;

	rc = merge_parts(m, at, part, len, e);
	if (!rc)
		rc = find_part(b, part[0], len[0], at, &left, e);
	if (!rc)
		rc = find_part(b, part[1], len[1], at, &right, e);
	if (rc)
		return rc;
	buf_append(&joined, part[0], len[0]);
	buf_append(&joined, part[1], len[1]);
	rc = buf_check(&joined, "model.merges", e);
	if (!rc)
		rc = find_part(b, buf_str(&joined), joined.len, at, &id, e);
	if (!rc) /* a pair that is listed twice has its last rank, as in Hugging Face's */
		*bpe_merge_slot(b, left, right) = (struct bpe_merge){left, right, rank, id};
	buf_release(&joined);
	return rc;
}

static err_code read_merges(struct bpe *b, const struct json *merges, struct err *e)
{
	size_t n_slots, at = 0;
	uint32_t rank = 0;
	err_code rc = ERR_OK;

	if (!json_is_array(merges))
		return err_set(e, ERR_INPUT, "model.merges is %s, not an array", json_type_name(merges));
	n_slots = table_size(json_count(merges));
	b->merge_mask = n_slots - 1;
	b->merges = mem_alloc(n_slots, sizeof *b->merges, e);
	if (!b->merges)
		return e->code;
	memset(b->merges, 0xFF, n_slots * sizeof *b->merges); /* all BPE_NONE */
	for (const struct json *m = json_first(merges); m && !rc; m = json_next(m), at++) {
		if (json_is_string(m) && !strncmp(json_string(m), "#version", 8))
			continue; /* the first line of merges.txt; takes no rank */
		rc = read_merge(b, m, at, rank++, e);
	}
	return rc;
}

static err_code mark_whole(struct bpe *b, struct err *e)
{
	struct bpe_run run = {0};
	err_code rc = ERR_OK;

	for (uint32_t i = 0; i < b->n_vocab && !rc; i++)
		if (b->tokens[i].used && !b->tokens[i].raw)
			rc = bpe_check_whole(b, &run, i, &b->tokens[i].whole, e);
	bpe_run_release(&run);
	return rc;
}

/* -- the model object -------------------------------------------------------------------------- */

/* Options that change what merges do, and that no byte-level tokenizer sets. */
static err_code check_options(const struct json *model, struct err *e)
{
	static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
	const struct json *type = json_get(model, "type"), *dropout = json_get(model, "dropout");
	double p;

	if (type && (!json_string(type) || strcmp(json_string(type), "BPE") != 0))
		return err_set(e, ERR_INPUT, "model.type '%.100s' is not supported (only BPE is)",
		               json_string(type) ? json_string(type) : json_type_name(type));
	if (dropout && !json_is_null(dropout) && (!json_number(dropout, &p) || p != 0))
		return err_set(e, ERR_INPUT, "model.dropout is not supported: it makes tokens random");
	for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
		const struct json *affix = json_get(model, affixes[i]);

		if (affix && !json_is_null(affix) && (!json_string(affix) || *json_string(affix)))
			return err_set(e, ERR_INPUT, "model.%s '%.100s' is not supported", affixes[i],
			               json_string(affix) ? json_string(affix) : json_type_name(affix));
	}
	return ERR_OK;
}

err_code bpe_read(const struct json *model, struct bpe **out, struct err *e)
{
	struct bpe *b;
	err_code rc;

	if (!json_is_object(model))
		return err_set(e, ERR_INPUT, "model is %s, not an object", json_type_name(model));
	if (check_options(model, e))
		return e->code;
	b = mem_zalloc(1, sizeof *b, e);
	if (!b)
		return e->code;
	b->bytes = BUF_INIT(UINT32_MAX);
	b->ignore_merges = json_true(json_get(model, "ignore_merges"));
	rc = read_vocab(b, json_get(model, "vocab"), e);
	if (!rc)
		rc = read_bytes(b, model, e);
	if (!rc)
		rc = read_merges(b, json_get(model, "merges"), e);
	if (!rc)
		rc = mark_whole(b, e);
	if (rc)
		bpe_free(b);
	else
		*out = b;
	return rc;
}

void bpe_free(struct bpe *b)
{
	if (!b)
		return;
	free(b->merges);
	free(b->words);
	free(b->tokens);
	buf_release(&b->bytes);
	free(b);
}
