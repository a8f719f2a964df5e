/* NFC: see nfc.h. Text is cut before every character that neither moves nor joins to the left ("boundary");
 * only pieces that hold something else are decomposed, ordered and composed, so nearly all text is not copied.
 * Ordering is a stable sort: utf8proc's own is quadratic in a run of marks. */
#include "engine/nfc.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/utf8.h"

/* The largest canonical decomposition of one character is 4. */
#define MAX_DECOMPOSED 8

/* Marks that joined Unicode after version 9, up to 15, which utf8proc 2.8 has (and 11930, the second half of 11938):
 * unknown to the library that is the definition, so they stand still. DerivedAge.txt, canonical class not 0. */
static const struct {
	uint32_t first, last;
} newer[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

enum kind {
	INERT,    /* its own normal form, and nothing to its left or right changes that */
	BOUNDARY, /* its own normal form, never moves or joins to the left; a mark after it may join */
	CHANGES,  /* another normal form, but as BOUNDARY to the left */
	MARK,     /* may move or join to the left */
};

static bool is_newer(uint32_t cp)
{
	for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
		if (cp >= newer[i].first && cp <= newer[i].last)
			return true;
	return false;
}

/* May move, or join what stands before it. Wider than need be: in Unicode 14 only marks and the vowels
 * and final consonants of Hangul do. */
static bool is_mark(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_get_property((utf8proc_int32_t)cp)->category;

	return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME ||
	       (cp >= 0x1160 && cp <= 0x11FF);
}

static size_t decompose(uint32_t cp, utf8proc_int32_t *out)
{
	int last = 0;
	utf8proc_ssize_t n =
	    utf8proc_decompose_char((utf8proc_int32_t)cp, out, MAX_DECOMPOSED, UTF8PROC_DECOMPOSE, &last);

	if (n < 1 || n > MAX_DECOMPOSED) { /* unassigned, as utf8proc sees it */
		out[0] = (utf8proc_int32_t)cp;
		return 1;
	}
	return (size_t)n;
}

static enum kind kind_of(uint32_t cp)
{
	utf8proc_int32_t d[MAX_DECOMPOSED];
	size_t n;

	if (cp < 0x300) /* all of Latin-1 and its extensions */
		return BOUNDARY;
	if (cp >= 0xAC00 && cp <= 0xD7A3)
		return BOUNDARY;
	if (is_mark(cp))
		return is_newer(cp) ? INERT : MARK;
	if (is_newer(cp))
		return INERT;
	n = decompose(cp, d);
	if (n == 1)
		return d[0] == (utf8proc_int32_t)cp ? BOUNDARY : is_mark((uint32_t)d[0]) ? MARK : CHANGES;
	if (is_mark((uint32_t)d[0]))
		return MARK;
	n = (size_t)utf8proc_normalize_utf32(d, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	return n == 1 && d[0] == (utf8proc_int32_t)cp ? BOUNDARY : CHANGES;
}

/* -- one piece --------------------------------------------------------------------------------- */

static int compare_order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Puts each run of non-starters of cps[0..n) into canonical order; keys is scratch of n. */
static void order_marks(utf8proc_int32_t *cps, uint64_t *keys, size_t n)
{
	size_t i = 0, end;
	uint8_t ccc, before;

	while (i < n) {
		bool sorted = true;

		before = 0;
		for (end = i; end < n; end++) {
			ccc = (uint8_t)utf8proc_get_property(cps[end])->combining_class;
			if (!ccc)
				break;
			sorted = sorted && ccc >= before;
			before = ccc;
			/* class, place, character: 8 + 35 + 21 bits */
			keys[end] = (uint64_t)ccc << 56 | (uint64_t)(end - i) << 21 | (uint64_t)cps[end];
		}
		if (!sorted) {
			qsort(keys + i, end - i, sizeof *keys, compare_order);
			for (size_t k = i; k < end; k++)
				cps[k] = (utf8proc_int32_t)(keys[k] & 0x1FFFFF);
		}
		i = end + 1;
	}
}

/* Appends the normal form of the piece s[0..len). */
static err_code put_piece(struct buf *out, const char *s, size_t len, struct err *e)
{
	utf8proc_int32_t *cps = mem_alloc(len, MAX_DECOMPOSED * sizeof *cps, e);
	uint64_t *keys = mem_alloc(len, MAX_DECOMPOSED * sizeof *keys, e);
	utf8proc_ssize_t composed;
	size_t n = 0, step;

	if (!cps || !keys) {
		free(cps);
		free(keys);
		return e->code;
	}
	for (size_t i = 0; i < len; i += step)
		n += decompose(utf8_at(s + i, &step), cps + n);
	order_marks(cps, keys, n);
	composed = utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	for (utf8proc_ssize_t i = 0; i < composed; i++)
		utf8_put(out, (uint32_t)cps[i]);
	free(cps);
	free(keys);
	return ERR_OK;
}

/* -- the whole text ---------------------------------------------------------------------------- */

void nfc_release(struct nfc *n)
{
	if (!n)
		return;
	buf_release(&n->text);
	free(n->runs);
	*n = (struct nfc){0};
}

static err_code add_run(struct nfc *n, struct nfc_run run, struct err *e)
{
	struct nfc_run *p = mem_grow(n->runs, &n->cap_runs, n->n_runs + 1, sizeof *p, e);

	if (!p)
		return ERR_MEMORY;
	n->runs = p;
	n->runs[n->n_runs++] = run;
	return ERR_OK;
}

/* Normalises s[from..to), which begins at a boundary and ends before one; *copied is how much of s is in n->text. */
static err_code change_piece(struct nfc *n, const char *s, size_t from, size_t to, size_t *copied, struct err *e)
{
	struct buf piece = BUF_INIT(SIZE_MAX / 2);
	err_code rc = put_piece(&piece, s + from, to - from, e);

	if (rc)
		goto out;
	rc = buf_check(&piece, "normalised text", e);
	if (rc || (piece.len == to - from && !memcmp(piece.data, s + from, piece.len)))
		goto out;
	buf_append(&n->text, s + *copied, from - *copied);
	rc = add_run(n, (struct nfc_run){from, to, n->text.len, n->text.len + piece.len}, e);
	buf_append(&n->text, piece.data, piece.len);
	*copied = to;
out:
	buf_release(&piece);
	return rc;
}

err_code nfc_apply(struct nfc *n, const char *s, size_t len, struct err *e)
{
	size_t start = 0, copied = 0, step; /* start: where the piece at hand begins */
	bool may_change = false;            /* it holds something else than boundaries */

	n->text.max = SIZE_MAX / 2;
	buf_clear(&n->text);
	n->n_runs = 0;
	for (size_t i = 0; i < len; i += step) {
		enum kind kind;

		if (!may_change && (uint8_t)s[i] < 0xCC) { /* below U+0300 */
			start = i;
			step = (uint8_t)s[i] < 0x80 ? 1 : 2;
			continue;
		}
		kind = kind_of(utf8_at(s + i, &step));
		if (kind == MARK) {
			may_change = true;
			continue;
		}
		if (may_change && change_piece(n, s, start, i, &copied, e))
			return e->code;
		may_change = kind == CHANGES;
		start = kind == INERT ? i + step : i;
	}
	if (may_change && change_piece(n, s, start, len, &copied, e))
		return e->code;
	if (!n->n_runs)
		return ERR_OK;
	buf_append(&n->text, s + copied, len - copied);
	return buf_check(&n->text, "normalised text", e);
}

size_t nfc_origin(const struct nfc *n, size_t at, size_t *run)
{
	const struct nfc_run *r;

	while (*run < n->n_runs && n->runs[*run].out_to <= at)
		++*run;
	if (*run < n->n_runs && at > n->runs[*run].out_from)
		return n->runs[*run].to;
	if (*run == 0)
		return at;
	r = &n->runs[*run - 1];
	return r->to + (at - r->out_to);
}
