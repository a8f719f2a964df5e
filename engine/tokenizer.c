/* Tokenizers: see tokenizer.h. This file reads tokenizer.json and leads a text through its stages:
 *
 *   text ── added tokens ── normaliser ── added tokens ── words ── BPE ── ids, ends
 *           (plain)         (NFC or none)  (normalized)
 *
 * Each in its own file: added, nfc, pretokenize, bpe. Ends are counted in the normalised text while a stretch is
 * encoded and led back to the text at its end. "truncation" and "padding" of the file are not applied: a text is
 * always encoded whole. "decoder" is not needed: byte-level tokens are bytes. */
#include "engine/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "engine/added.h"
#include "engine/bpe.h"
#include "engine/buf.h"
#include "engine/json.h"
#include "engine/nfc.h"
#include "engine/pretokenize.h"
#include "engine/utf8.h"

#define MAX_FILE_BYTES ((size_t)128 << 20) /* the largest in use have 35 MB */
#define MAX_SPECIAL    16                  /* tokens of a post-processor on either side */

struct tokenizer {
	struct bpe *bpe; /* owned */
	struct added added;
	struct pretokenizer pre;
	bool nfc;
	uint32_t before[MAX_SPECIAL], after[MAX_SPECIAL]; /* what add_special puts round a text */
	size_t n_before, n_after;
	uint32_t n_vocab;
	bool cuts; /* a space between words always begins a word: tokenizer_cut */
};

/* -- encoding ---------------------------------------------------------------------------------- */

/* One call's state. */
struct encoder {
	const struct tokenizer *t;
	struct token_list *out;
	struct bpe_run bpe;
	struct pretokenize_run pre;
	struct nfc nfc;
	struct buf spaced; /* a text with the space before it */
	size_t len;        /* of the whole text */
	const char *words; /* what the words are cut from ... */
	size_t base;       /* ... and where that begins in the stretch; wraps to -1 with a space before its start */
};

static err_code put_word(void *ctx, size_t from, size_t to, struct err *e)
{
	struct encoder *enc = ctx;

	return bpe_encode(enc->t->bpe, &enc->bpe, enc->words + from, to - from, enc->base + from, enc->len, enc->out,
	                  e);
}

static err_code put_id(struct token_list *out, uint32_t id, size_t end, struct err *e)
{
	if (token_list_reserve(out, 1, e))
		return e->code;
	out->ids[out->n] = id;
	out->ends[out->n++] = end;
	return ERR_OK;
}

/* Text without added tokens, s[from..to) of a stretch. */
static err_code encode_plain(struct encoder *enc, const char *s, size_t from, size_t to, struct err *e)
{
	err_code rc;

	enc->words = s + from;
	enc->base = from;
	if (!enc->t->pre.add_prefix_space || s[from] == ' ')
		return pretokenize(&enc->t->pre, &enc->pre, enc->words, to - from, put_word, enc, e);
	buf_clear(&enc->spaced);
	buf_putc(&enc->spaced, ' ');
	buf_append(&enc->spaced, s + from, to - from);
	if (buf_check(&enc->spaced, "text", e))
		return e->code;
	enc->words = enc->spaced.data;
	enc->base = from - 1;
	bpe_run_forget(&enc->bpe);
	rc = pretokenize(&enc->t->pre, &enc->pre, enc->words, to - from + 1, put_word, enc, e);
	bpe_run_forget(&enc->bpe); /* its words lie in `spaced` */
	return rc;
}

/* Leads ends from the normal form back to the stretch, and to the text, where the stretch begins at `offset`. */
static void restore_ends(const struct encoder *enc, size_t first, size_t offset)
{
	size_t *ends = enc->out->ends, run = 0;

	for (size_t i = first; i < enc->out->n; i++)
		ends[i] = offset + (enc->nfc.n_runs ? nfc_origin(&enc->nfc, ends[i], &run) : ends[i]);
}

/* A stretch of text between plain added tokens, which begins at `offset` of the text. */
static err_code encode_stretch(struct encoder *enc, const char *s, size_t len, size_t offset, struct err *e)
{
	size_t first = enc->out->n;
	struct added_iter it;
	struct added_piece piece;
	err_code rc = ERR_OK;

	if (enc->t->nfc && nfc_apply(&enc->nfc, s, len, e))
		return e->code;
	if (enc->nfc.n_runs) {
		s = enc->nfc.text.data;
		len = enc->nfc.text.len;
	}
	added_begin(&it, &enc->t->added, &enc->t->added.normalized, s, len);
	while (!rc && added_next(&it, &piece))
		rc = piece.token ? put_id(enc->out, piece.token->id, piece.to, e)
		                 : encode_plain(enc, s, piece.from, piece.to, e);
	if (rc)
		return rc;
	if (offset || enc->nfc.n_runs)
		restore_ends(enc, first, offset);
	if (enc->nfc.n_runs)
		bpe_run_forget(&enc->bpe); /* its words lie in the normal form */
	return ERR_OK;
}

static err_code encode_text(struct encoder *enc, const char *text, size_t len, struct err *e)
{
	struct added_iter it;
	struct added_piece piece;
	err_code rc = ERR_OK;

	added_begin(&it, &enc->t->added, &enc->t->added.plain, text, len);
	while (!rc && added_next(&it, &piece))
		rc = piece.token ? put_id(enc->out, piece.token->id, piece.to, e)
		                 : encode_stretch(enc, text + piece.from, piece.to - piece.from, piece.from, e);
	return rc;
}

err_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, bool add_special,
                          struct token_list *out, struct err *e)
{
	struct encoder enc = {.t = t, .out = out, .spaced = BUF_INIT(SIZE_MAX / 2), .len = len};
	size_t valid = utf8_valid_prefix(text, len), n = out->n, n_dropped = out->n_dropped;
	err_code rc = ERR_OK;

	if (valid < len)
		return err_set(e, ERR_INPUT, "text: invalid UTF-8 at byte %zu", valid);
	/* English books have four bytes a token; a guess that is too small only costs a copy */
	if (token_list_reserve(out, len / 4 + MAX_SPECIAL, e))
		return e->code;
	for (size_t i = 0; add_special && i < t->n_before && !rc; i++)
		rc = put_id(out, t->before[i], 0, e);
	if (!rc)
		rc = encode_text(&enc, text, len, e);
	for (size_t i = 0; add_special && i < t->n_after && !rc; i++)
		rc = put_id(out, t->after[i], len, e);
	if (rc) {
		out->n = n;
		out->n_dropped = n_dropped;
	}
	bpe_run_release(&enc.bpe);
	pretokenize_run_release(&enc.pre);
	nfc_release(&enc.nfc);
	buf_release(&enc.spaced);
	return rc;
}

/* Whether a text may be cut before any single space: under GPT-2's pattern a word ends there, and the space begins one;
 * NFC composes nothing with it. An added token may have it only in a run of several spaces. */
static bool cuts_at_spaces(const struct tokenizer *t)
{
	if (t->pre.n_steps != 1 || t->pre.steps[0] || t->pre.add_prefix_space)
		return false;
	for (size_t i = 0; i < t->added.n; i++) {
		const struct added_token *a = &t->added.tokens[i];
		size_t n_spaces = strspn(a->pattern, " ");

		if (a->lstrip || a->rstrip || (strchr(a->pattern, ' ') && (n_spaces < 2 || a->pattern[n_spaces])))
			return false;
	}
	return true;
}

static bool is_graph(char c)
{
	return c > ' ' && c < 0x7F;
}

size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t len)
{
	for (size_t p = len; t->cuts && p > 2; p--)
		if (text[p - 2] == ' ' && is_graph(text[p - 3]) && is_graph(text[p - 1]))
			return p - 2;
	return 0;
}

/* -- the vocabulary ---------------------------------------------------------------------------- */

const char *tokenizer_token_bytes(const struct tokenizer *t, uint32_t id, size_t *len)
{
	for (size_t i = 0; i < t->added.n; i++)
		if (t->added.tokens[i].id == id) {
			*len = t->added.tokens[i].len;
			return t->added.tokens[i].content;
		}
	if (id >= t->bpe->n_vocab || !t->bpe->tokens[id].used)
		return NULL;
	*len = t->bpe->tokens[id].len;
	return t->bpe->bytes.data + t->bpe->tokens[id].start;
}

int64_t tokenizer_token_id(const struct tokenizer *t, const char *content)
{
	uint32_t id;

	for (size_t i = 0; i < t->added.n; i++)
		if (!strcmp(t->added.tokens[i].content, content))
			return t->added.tokens[i].id;
	id = bpe_find_spelled(t->bpe, content, strlen(content));
	return id == BPE_NONE ? -1 : (int64_t)id;
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
	return t->n_vocab;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
	return t->n_before > 0;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* A member that may be one object or a Sequence of them under `list`: calls `read` for each. */
static err_code read_each(const struct json *value, const char *what, const char *list, struct tokenizer *t,
                          err_code (*read)(const struct json *, const char *type, struct tokenizer *, struct err *),
                          struct err *e)
{
	const char *type = json_get_string(value, "type");
	const struct json *items = json_get(value, list);
	err_code rc = ERR_OK;

	if (!value || json_is_null(value))
		return ERR_OK;
	if (!type)
		return err_set(e, ERR_INPUT, "%s has no type", what);
	if (strcmp(type, "Sequence") != 0)
		return read(value, type, t, e);
	if (!json_is_array(items))
		return err_set(e, ERR_INPUT, "%s.%s is %s, not an array", what, list, json_type_name(items));
	for (const struct json *v = json_first(items); v && !rc; v = json_next(v)) {
		type = json_get_string(v, "type");
		rc = read(v, type ? type : "", t, e);
	}
	return rc;
}

static err_code read_normalizer(const struct json *value, const char *type, struct tokenizer *t, struct err *e)
{
	(void)value;
	if (strcmp(type, "NFC") != 0)
		return err_set(e, ERR_INPUT, "normalizer.type '%.100s' is not supported (only NFC is)", type);
	t->nfc = true;
	return ERR_OK;
}

/* Adds the ids of a template's special token to a list. */
static err_code put_special(const struct json *template, const char *name, uint32_t *ids, size_t *n, struct err *e)
{
	const struct json *list = json_get(json_get(json_get(template, "special_tokens"), name), "ids");
	int64_t id;

	if (!json_is_array(list))
		return err_set(e, ERR_INPUT, "post_processor: no ids for the special token '%.100s'", name);
	for (const struct json *v = json_first(list); v; v = json_next(v)) {
		if (!json_integer(v, &id) || id < 0 || id >= BPE_MAX_ID)
			return err_set(e, ERR_INPUT, "post_processor: an id of '%.100s' is not an integer from 0 to %u",
			               name, BPE_MAX_ID - 1);
		if (*n == MAX_SPECIAL)
			return err_set(e, ERR_INPUT, "post_processor: more than %d special tokens", MAX_SPECIAL);
		ids[(*n)++] = (uint32_t)id;
	}
	return ERR_OK;
}

/* "single": special tokens round one Sequence A. */
static err_code read_template(const struct json *value, struct tokenizer *t, struct err *e)
{
	const struct json *single = json_get(value, "single");
	bool after = false;
	err_code rc = ERR_OK;

	if (!json_is_array(single) || t->n_before || t->n_after)
		return err_set(e, ERR_INPUT,
		               "post_processor: one TemplateProcessing with an array 'single' is supported");
	for (const struct json *v = json_first(single); v && !rc; v = json_next(v)) {
		const char *name = json_get_string(json_get(v, "SpecialToken"), "id");
		const char *sequence = json_get_string(json_get(v, "Sequence"), "id");

		if (name && after)
			rc = put_special(value, name, t->after, &t->n_after, e);
		else if (name)
			rc = put_special(value, name, t->before, &t->n_before, e);
		else if (sequence && !strcmp(sequence, "A") && !after)
			after = true;
		else
			rc = err_set(e, ERR_INPUT, "post_processor: 'single' has a part that is not supported");
	}
	if (!rc && !after)
		rc = err_set(e, ERR_INPUT, "post_processor: 'single' has no Sequence A");
	return rc;
}

static err_code read_post_processor(const struct json *value, const char *type, struct tokenizer *t, struct err *e)
{
	if (!strcmp(type, "ByteLevel")) /* trims offsets, adds no token */
		return ERR_OK;
	if (!strcmp(type, "TemplateProcessing"))
		return read_template(value, t, e);
	return err_set(e, ERR_INPUT, "post_processor.type '%.100s' is not supported", type);
}

static err_code check_version(const struct json *root, struct err *e)
{
	const struct json *version = json_get(root, "version");

	if (!json_is_object(root))
		return err_set(e, ERR_INPUT, "the file is %s, not an object", json_type_name(root));
	if (version && (!json_string(version) || strcmp(json_string(version), "1.0") != 0))
		return err_set(e, ERR_INPUT, "version '%.100s' is not supported (only 1.0 is)",
		               json_string(version) ? json_string(version) : json_type_name(version));
	return ERR_OK;
}

static err_code read_root(const struct json *root, struct tokenizer *t, struct err *e)
{
	err_code rc = check_version(root, e);

	if (!rc)
		rc = read_each(json_get(root, "normalizer"), "normalizer", "normalizers", t, read_normalizer, e);
	if (!rc)
		rc = read_each(json_get(root, "post_processor"), "post_processor", "processors", t, read_post_processor,
		               e);
	if (!rc)
		rc = bpe_read(json_get(root, "model"), &t->bpe, e);
	if (!rc)
		rc = pretokenizer_read(json_get(root, "pre_tokenizer"), &t->pre, e);
	if (!rc)
		rc = added_read(json_get(root, "added_tokens"), t->bpe, t->nfc, &t->added, e);
	if (rc)
		return rc;
	t->cuts = cuts_at_spaces(t);
	t->n_vocab = t->bpe->n_vocab;
	for (size_t i = 0; i < t->added.n; i++)
		if (t->added.tokens[i].id >= t->n_vocab)
			t->n_vocab = t->added.tokens[i].id + 1;
	for (size_t i = 0; i < t->n_before + t->n_after; i++) {
		uint32_t id = i < t->n_before ? t->before[i] : t->after[i - t->n_before];

		if (id >= t->n_vocab)
			return err_set(e, ERR_INPUT, "post_processor: id %u is not in the vocabulary of %u", id,
			               t->n_vocab);
	}
	return ERR_OK;
}

err_code tokenizer_open(const char *path, struct tokenizer **out, struct err *e)
{
	struct json *root = NULL;
	struct tokenizer *t = mem_zalloc(1, sizeof *t, e);
	err_code rc;

	if (!t)
		return err_wrap(e, "tokenizer '%s'", path);
	rc = json_parse_file(path, MAX_FILE_BYTES, &root, e);
	if (!rc && (rc = read_root(root, t, e)))
		err_wrap(e, "'%s'", path);
	json_free(root);
	if (rc) {
		tokenizer_free(t);
		return err_wrap(e, "tokenizer");
	}
	*out = t;
	return ERR_OK;
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	added_release(&t->added);
	pretokenizer_release(&t->pre);
	bpe_free(t->bpe);
	free(t);
}
