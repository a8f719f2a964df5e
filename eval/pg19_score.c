/* Task pg19: what a unit scores, and its result object. See pg19.h.
 *
 * Result: {"doc": index, "name", "item": id of its first item} and
 *   windows, sliding  {"length", "key" (part 0 only), "part", "parts", "n", "nll", "bytes", "words"}, sums over the
 *                     unit's windows; or {"length", "skipped": true}
 *   prefix            {"nll", "bytes", "words", "keys": one a length, "bins": summed loss by position}
 * Losses are summed in double in the order of the tokens, a window at a time. */
#include "eval/pg19.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/item_key.h"

/* The k-th window of a unit. */
static void unit_window(const struct pg19 *p, const struct pg19_unit *u, uint64_t k, struct window *w)
{
	struct window_rule rule;

	if (p->protocol == PROTOCOL_PREFIX) {
		*w = (struct window){.first = 1};
		w->len = (uint32_t)p->lengths[p->pass_each_length ? k : u->length] + 1;
		return;
	}
	rule = pg19_rule(p, u->length);
	window_at(&rule, p->docs.docs[u->doc].n - 1, u->window0 + k, w);
}

static void copy_window(const struct pg19 *p, const struct text_doc *d, const struct window *w, uint32_t *tokens)
{
	memcpy(tokens, d->seq + w->start, w->len * sizeof *tokens);
	if (p->bos == BOS_WINDOW)
		tokens[0] = p->bos_id;
}

err_code pg19_add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e)
{
	const struct pg19 *p = plan;
	const struct pg19_unit *u = &p->units[unit];
	struct window w;
	uint32_t start;

	for (uint64_t k = 0; k < u->n_window; k++) {
		unit_window(p, u, k, &w);
		if (batch_builder_add(b, -1, w.len, &start, e))
			return e->code;
		copy_window(p, &p->docs.docs[u->doc], &w, b->tokens + start);
		memset(b->score + start + w.first, 1, w.len - w.first);
	}
	return ERR_OK;
}

/* An item's key, over its windows in order. */
static err_code write_key(const struct pg19 *p, const struct pg19_unit *u, size_t length, struct json_writer *w,
                          const char *name, struct err *e)
{
	const struct text_doc *d = &p->docs.docs[u->doc];
	struct window_rule rule = pg19_rule(p, length);
	uint64_t n = p->protocol == PROTOCOL_PREFIX ? 1 : window_count(&rule, d->n - 1);
	uint32_t *tokens = mem_alloc((size_t)rule.length + 1, sizeof *tokens, e);
	struct sha256 *h = tokens ? sha256_new(e) : NULL;
	char key[ITEM_KEY_LEN];
	struct window win;

	for (uint64_t k = 0; h && k < n; k++) {
		window_at(&rule, d->n - 1, k, &win);
		copy_window(p, d, &win, tokens);
		item_key_add(h, tokens, win.len, win.first);
	}
	free(tokens);
	if (!h)
		return e->code;
	item_key_final(h, key);
	json_put_string(w, name, key);
	return ERR_OK;
}

static err_code check_finite(double nll, const struct text_doc *d, int64_t length, struct err *e)
{
	if (isfinite(nll))
		return ERR_OK;
	return err_set(e, ERR_NUMERIC, "document '%s', length %lld: the loss is not finite", d->name,
	               (long long)length);
}

static err_code write_windows(const struct pg19 *p, const struct pg19_unit *u, const struct token_score *scores,
                              struct json_writer *w, struct err *e)
{
	const struct text_doc *d = &p->docs.docs[u->doc];
	uint64_t n = 0, bytes = 0, words = 0;
	double nll = 0;
	struct window win;

	json_put_int(w, "length", p->lengths[u->length]);
	if (!u->n_window) {
		json_put_bool(w, "skipped", true);
		return ERR_OK;
	}
	for (uint64_t k = 0; k < u->n_window; k++) {
		uint64_t last, before;
		double sum = 0;

		unit_window(p, u, k, &win);
		for (uint32_t i = win.first; i < win.len; i++)
			sum -= (double)scores[i].logprob;
		scores += win.len;
		last = win.start + win.len - 1;
		before = win.start + win.first - 1;
		nll += sum;
		n += win.len - win.first;
		bytes += d->ends[last] - d->ends[before];
		words += d->words[last] - d->words[before];
	}
	if (u->part == 0 && write_key(p, u, u->length, w, "key", e))
		return e->code;
	json_put_uint(w, "part", u->part);
	json_put_uint(w, "parts", u->parts);
	json_put_uint(w, "n", n);
	json_put_double(w, "nll", nll);
	json_put_uint(w, "bytes", bytes);
	json_put_uint(w, "words", words);
	return check_finite(nll, d, p->lengths[u->length], e);
}

/* Sums of the first `length` predictions, for every length, and of the bins of position. */
static err_code write_prefix(const struct pg19 *p, const struct pg19_unit *u, const struct token_score *scores,
                             struct json_writer *w, struct err *e)
{
	const struct text_doc *d = &p->docs.docs[u->doc];
	int64_t edges[PG19_MAX_EDGES], at = 1;
	size_t n_edges = pg19_edges(p->lengths[p->n_lengths - 1], edges);
	const struct token_score *pass = scores;
	double total = 0;

	json_begin_array(w, "nll");
	for (size_t i = 0; i < p->n_lengths; i++) {
		if (p->pass_each_length && i) {
			pass += p->lengths[i - 1] + 1;
			at = 1;
			total = 0;
		}
		for (; at <= p->lengths[i]; at++)
			total -= (double)pass[at].logprob;
		json_put_double(w, NULL, total);
		if (check_finite(total, d, p->lengths[i], e))
			return e->code;
	}
	json_end_array(w);
	json_begin_array(w, "bins"); /* of the longest pass */
	for (size_t i = 0; i + 1 < n_edges; i++) {
		double sum = 0;

		for (at = edges[i]; at < edges[i + 1]; at++)
			sum -= (double)pass[at].logprob;
		json_put_double(w, NULL, sum);
	}
	json_end_array(w);
	json_begin_array(w, "bytes");
	for (size_t i = 0; i < p->n_lengths; i++)
		json_put_uint(w, NULL, d->ends[p->lengths[i]] - d->ends[0]);
	json_end_array(w);
	json_begin_array(w, "words");
	for (size_t i = 0; i < p->n_lengths; i++)
		json_put_uint(w, NULL, d->words[p->lengths[i]] - d->words[0]);
	json_end_array(w);
	json_begin_array(w, "keys");
	for (size_t i = 0; i < p->n_lengths; i++)
		if (write_key(p, u, i, w, NULL, e))
			return e->code;
	json_end_array(w);
	return ERR_OK;
}

err_code pg19_result(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
                     struct err *e)
{
	const struct pg19 *p = plan;
	const struct pg19_unit *u = &p->units[unit];
	err_code rc;

	json_begin_object(w, NULL);
	json_put_uint(w, "doc", u->doc);
	json_put_string(w, "name", p->docs.docs[u->doc].name);
	json_put_uint(w, "item", u->item);
	rc = p->protocol == PROTOCOL_PREFIX ? write_prefix(p, u, scores, w, e) : write_windows(p, u, scores, w, e);
	if (!rc)
		json_end_object(w);
	return rc;
}
