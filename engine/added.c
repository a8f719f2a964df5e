/* Added tokens: see added.h. A set is a sorted array used as a trie: the patterns that share the bytes read so far
 * are a range of it, which each byte narrows. */
#include "engine/added.h"

#include <stdlib.h>
#include <string.h>

#include "engine/nfc.h"
#include "engine/unicode.h"
#include "engine/utf8.h"

/* -- finding ----------------------------------------------------------------------------------- */

/* The first index in sorted[lo..hi) whose byte at `depth` is at least c; all are longer than depth. */
static size_t lower(const struct added_set *set, size_t lo, size_t hi, size_t depth, unsigned c)
{
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if ((uint8_t)set->sorted[mid].pattern[depth] < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The longest pattern that begins at s, or NULL. */
static const struct added_token *longest(const struct added_set *set, const char *s, size_t len)
{
	const struct added_token *best = NULL;
	size_t lo = 0, hi = set->n;

	for (size_t depth = 0; lo < hi; depth++) {
		unsigned c;

		if (set->sorted[lo].pattern_len == depth) /* sorts before those that it begins */
			best = &set->sorted[lo++];
		if (depth == len)
			break;
		c = (uint8_t)s[depth];
		lo = lower(set, lo, hi, depth, c);
		hi = lower(set, lo, hi, depth, c + 1);
	}
	return best;
}

/* Is the character at text[i] of this class? false at the text's end. */
static bool is_class_at(const struct added_iter *it, size_t i, unsigned mask, unsigned want)
{
	size_t n;

	return i < it->len && (it->a->classes[utf8_at(it->text + i, &n)] & mask) == want;
}

static bool is_word_at(const struct added_iter *it, size_t i)
{
	return is_class_at(it, i, UNICODE_WORD, UNICODE_WORD);
}

static bool is_space_at(const struct added_iter *it, size_t i)
{
	return is_class_at(it, i, UNICODE_KIND, UNICODE_SPACE);
}

/* The next match at or after it->search that its flags allow, with the white space that it takes along. */
static bool find(struct added_iter *it, struct added_piece *out)
{
	const struct added_token *t = NULL;
	size_t from, to, n;

	for (from = it->search; from < it->len; from++) {
		if (!it->set->first[(uint8_t)it->text[from]])
			continue;
		t = longest(it->set, it->text + from, it->len - from);
		if (!t)
			continue;
		to = from + t->pattern_len;
		if (!t->single_word || (!is_word_at(it, to) && (!from || !is_word_at(it, utf8_last(it->text, from)))))
			break;
		from = to - 1; /* a match that is not a single word is passed over as a whole */
		t = NULL;
	}
	if (!t)
		return false;
	it->search = to = from + t->pattern_len;
	while (t->lstrip && from > it->done && is_space_at(it, utf8_last(it->text, from)))
		from = utf8_last(it->text, from);
	while (t->rstrip && is_space_at(it, to)) {
		utf8_at(it->text + to, &n);
		to += n;
	}
	*out = (struct added_piece){t, from, to};
	return true;
}

void added_begin(struct added_iter *it, const struct added *a, const struct added_set *set, const char *text,
                 size_t len)
{
	*it = (struct added_iter){.a = a, .set = set, .text = text, .len = len};
}

bool added_next(struct added_iter *it, struct added_piece *out)
{
	struct added_piece next;

	if (it->held.token) {
		*out = it->held;
		it->held.token = NULL;
	} else if (it->done == it->len) {
		return false;
	} else if (!it->set->n || !find(it, &next)) {
		*out = (struct added_piece){NULL, it->done, it->len};
	} else if (next.from > it->done) {
		*out = (struct added_piece){NULL, it->done, next.from};
		it->held = next;
	} else {
		*out = next;
	}
	it->done = out->to;
	return true;
}

/* -- reading ----------------------------------------------------------------------------------- */

void added_release(struct added *a)
{
	if (!a)
		return;
	free(a->plain.sorted);
	free(a->normalized.sorted);
	for (size_t i = 0; i < a->n; i++) {
		free(a->tokens[i].content);
		free(a->tokens[i].pattern);
	}
	free(a->tokens);
	*a = (struct added){0};
}

static err_code read_flag(const struct json *o, const char *key, bool *out, struct err *e)
{
	const struct json *v = json_get(o, key);

	if (v && !json_is_bool(v))
		return err_set(e, ERR_INPUT, "added_tokens: '%s' of '%.100s' is %s, not true or false", key,
		               json_get_string(o, "content"), json_type_name(v));
	*out = json_true(v);
	return ERR_OK;
}

static err_code set_pattern(struct added_token *t, bool nfc, struct err *e)
{
	struct nfc n = {0};
	err_code rc = ERR_OK;

	if (t->normalized && nfc)
		rc = nfc_apply(&n, t->content, t->len, e);
	if (!rc) {
		t->pattern = mem_strdup(n.n_runs ? buf_str(&n.text) : t->content, e);
		if (t->pattern)
			t->pattern_len = strlen(t->pattern);
		else
			rc = e->code;
	}
	nfc_release(&n);
	return rc;
}

static err_code read_token(const struct json *v, const struct bpe *vocab, bool nfc, uint32_t *next_id,
                           struct added_token *t, struct err *e)
{
	const char *content = json_get_string(v, "content");
	int64_t id;

	if (!content)
		return err_set(e, ERR_INPUT, "added_tokens: an entry without a string 'content'");
	if (read_flag(v, "single_word", &t->single_word, e) || read_flag(v, "lstrip", &t->lstrip, e) ||
	    read_flag(v, "rstrip", &t->rstrip, e) || read_flag(v, "normalized", &t->normalized, e))
		return e->code;
	t->content = mem_strdup(content, e);
	if (!t->content)
		return e->code;
	t->len = strlen(content);
	if (set_pattern(t, nfc, e))
		return e->code;
	t->id = bpe_find_spelled(vocab, content, t->len);
	if (t->id == BPE_NONE)
		t->id = (*next_id)++;
	if (!json_get_integer(v, "id", &id))
		return err_set(e, ERR_INPUT, "added_tokens: 'id' of '%.100s' is not an integer", content);
	if (id != t->id)
		return err_set(e, ERR_INPUT, "added_tokens: '%.100s' has id %lld, but after this vocabulary it is %u",
		               content, (long long)id, t->id);
	return ERR_OK;
}

static int compare_patterns(const void *a, const void *b)
{
	return strcmp(((const struct added_token *)a)->pattern, ((const struct added_token *)b)->pattern);
}

/* In Hugging Face's, where a token takes the white space after it, one that begins in that white space is
 * found again, and the text between goes in twice. Not reproduced. */
static err_code check_overlap(const struct added_set *set, struct err *e)
{
	const struct added_token *rstrip = NULL, *space = NULL;
	size_t n;

	for (size_t i = 0; i < set->n; i++) {
		const struct added_token *t = &set->sorted[i];

		if (i && !strcmp(t->pattern, set->sorted[i - 1].pattern))
			return err_set(e, ERR_INPUT, "added_tokens: '%.100s' is there twice", t->content);
		if (t->rstrip)
			rstrip = t;
		if (utf8_is_space(utf8_next(t->pattern, t->pattern_len, &n)))
			space = t;
	}
	if (rstrip && space)
		return err_set(e, ERR_INPUT,
		               "added_tokens: '%.100s' with rstrip beside '%.100s', which begins with white "
		               "space, is not supported",
		               rstrip->content, space->content);
	return ERR_OK;
}

static err_code make_set(const struct added *a, bool normalized, struct added_set *set, struct err *e)
{
	set->sorted = mem_alloc(a->n, sizeof *set->sorted, e);
	if (!set->sorted)
		return e->code;
	for (size_t i = 0; i < a->n; i++)
		if (a->tokens[i].normalized == normalized) {
			set->sorted[set->n++] = a->tokens[i];
			set->first[(uint8_t)a->tokens[i].pattern[0]] = true;
		}
	qsort(set->sorted, set->n, sizeof *set->sorted, compare_patterns);
	return check_overlap(set, e);
}

err_code added_read(const struct json *value, const struct bpe *vocab, bool nfc, struct added *out, struct err *e)
{
	uint32_t next_id = (uint32_t)vocab->n_token;
	err_code rc;

	*out = (struct added){0};
	if (value && !json_is_null(value) && !json_is_array(value))
		return err_set(e, ERR_INPUT, "added_tokens is %s, not an array", json_type_name(value));
	rc = unicode_classes(&out->classes, e);
	if (rc)
		return rc;
	out->tokens = mem_zalloc(json_count(value), sizeof *out->tokens, e);
	if (!out->tokens)
		return e->code;
	for (const struct json *v = json_first(value); v && !rc; v = json_next(v)) {
		const char *content = json_get_string(v, "content");

		if (content && !*content)
			continue; /* takes no id either */
		rc = read_token(v, vocab, nfc, &next_id, &out->tokens[out->n++], e);
	}
	if (!rc)
		rc = make_set(out, false, &out->plain, e);
	if (!rc)
		rc = make_set(out, true, &out->normalized, e);
	if (rc)
		added_release(out);
	return rc;
}
