/* Task pg19: perplexity against length. The plan: documents (docs.h) and units in the order document, length, run of
 * windows; under `prefix` a document is one unit.
 *
 * The BOS of bos=document is token 0 of the sequence. That of bos=window too, and every later window reads BOS in the
 * place of its first token, which the window before it predicted: so both are scored by the same windows. */
#include "eval/pg19.h"

#include <stdlib.h>
#include <string.h>

#define UNIT_TOKENS 65536 /* input tokens of a unit's windows, at most (a single longer window is a unit) */

static void plan_free(void *plan)
{
	struct pg19 *p = plan;

	if (!p)
		return;
	text_docs_release(&p->docs);
	free(p->units);
	free(p->lengths);
	free(p);
}

/* -- units ------------------------------------------------------------------------------------- */

static err_code add_unit(struct evaluation *ev, const struct pg19_unit *u, uint64_t tokens, uint64_t chain,
                         struct err *e)
{
	struct pg19 *p = ev->plan;
	struct pg19_unit *units = mem_grow(p->units, &p->cap_units, p->n_units + 1, sizeof *units, e);

	if (!units)
		return e->code;
	p->units = units;
	p->units[p->n_units++] = *u;
	return evaluation_add_unit(ev, tokens, chain, e);
}

/* The units of one document at one length; the number of windows to a unit depends on the length alone. */
static err_code cut_length(struct evaluation *ev, uint32_t doc, uint32_t length, struct err *e)
{
	struct pg19 *p = ev->plan;
	uint64_t n = p->docs.docs[doc].n ? p->docs.docs[doc].n - 1 : 0; /* predictions */
	struct window_rule rule = pg19_rule(p, length);
	uint64_t total = window_count(&rule, n);
	uint64_t each = rule.length < UNIT_TOKENS ? UNIT_TOKENS / rule.length : 1;
	struct pg19_unit u = {.doc = doc, .length = length, .item = ev->n_items};
	struct window w = {0};

	if (!total)
		return add_unit(ev, &u, 0, 0, e);
	ev->n_items++;
	if ((total - 1) / each >= UINT32_MAX)
		return err_set(e, ERR_INPUT, "more windows than a job may have");
	u.parts = (uint32_t)((total - 1) / each + 1);
	for (; u.part < u.parts; u.part++) {
		uint64_t tokens = 0, chain = 0;

		u.window0 = u.part * each;
		u.n_window = total - u.window0 < each ? total - u.window0 : each;
		for (uint64_t k = 0; k < u.n_window; k++) {
			window_at(&rule, n, u.window0 + k, &w);
			tokens += w.len - 1;
			chain = w.len > chain ? w.len : chain;
		}
		if (add_unit(ev, &u, tokens, chain, e))
			return e->code;
	}
	return ERR_OK;
}

/* Under prefix a document is one unit: one window of the longest length, or one a length. */
static err_code cut_prefix(struct evaluation *ev, uint32_t doc, struct err *e)
{
	struct pg19 *p = ev->plan;
	uint64_t longest = (uint64_t)p->lengths[p->n_lengths - 1], tokens = longest;
	struct pg19_unit u = {
	    .doc = doc, .length = (uint32_t)p->n_lengths - 1, .parts = 1, .n_window = 1, .item = ev->n_items};

	for (size_t i = 0; p->pass_each_length && i + 1 < p->n_lengths; i++, u.n_window++)
		tokens += (uint64_t)p->lengths[i];
	ev->n_items += p->n_lengths;
	return add_unit(ev, &u, tokens, longest + 1, e);
}

/* Documents too short for a length: a warning a length, naming the first. */
static void warn_short(struct evaluation *ev, size_t length)
{
	struct pg19 *p = ev->plan;
	struct window_rule rule = pg19_rule(p, length);
	size_t n_ragged = 0, n_none = 0;
	const char *ragged = NULL, *none = NULL;

	for (size_t i = 0; i < p->docs.n; i++) {
		const struct text_doc *d = &p->docs.docs[i];

		if (d->n && d->n - 1 >= rule.length)
			continue;
		if (!window_count(&rule, d->n ? d->n - 1 : 0)) {
			none = n_none++ ? none : d->name;
		} else {
			ragged = n_ragged++ ? ragged : d->name;
		}
	}
	if (n_ragged)
		evaluation_warn(
		    ev, "length %llu: %zu of %zu documents shorter than it, one ragged window each (first: '%s')",
		    (unsigned long long)rule.length, n_ragged, p->docs.n, ragged);
	if (n_none)
		evaluation_warn(ev, "length %llu: %zu of %zu documents without a window (first: '%s')",
		                (unsigned long long)rule.length, n_none, p->docs.n, none);
}

static err_code cut(struct evaluation *ev, struct err *e)
{
	struct pg19 *p = ev->plan;

	for (uint32_t doc = 0; doc < p->docs.n; doc++) {
		if (p->protocol == PROTOCOL_PREFIX) {
			if (cut_prefix(ev, doc, e))
				return e->code;
			continue;
		}
		for (uint32_t i = 0; i < p->n_lengths; i++)
			if (cut_length(ev, doc, i, e))
				return e->code;
	}
	for (size_t i = 0; i < p->n_lengths; i++)
		warn_short(ev, i);
	if (!ev->n_items)
		return err_set(e, ERR_INPUT,
		               "nothing to score: no document has a window at any length (the longest has %u tokens)",
		               p->docs.docs[0].n);
	return ERR_OK;
}

static err_code plan(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	struct pg19 *p = mem_zalloc(1, sizeof *p, e);
	struct text_rule rule = {
	    .max_docs = &v[PG19_MAX_DOCS], .max_tokens = &v[PG19_MAX_TOKENS], .min_tokens = &v[PG19_MIN_TOKENS]};
	err_code rc;

	if (!p)
		return e->code;
	ev->plan = p;
	p->n_lengths = v[PG19_LENGTHS].n;
	p->lengths = mem_alloc(p->n_lengths, sizeof *p->lengths, e);
	if (!p->lengths)
		return e->code;
	memcpy(p->lengths, v[PG19_LENGTHS].list, p->n_lengths * sizeof *p->lengths);
	p->protocol = (int)v[PG19_PROTOCOL].i;
	p->bos = (int)v[PG19_BOS].i;
	p->drop = v[PG19_LAST].i == LAST_DROP;
	p->stride = v[PG19_STRIDE].null ? 0 : v[PG19_STRIDE].i;
	p->pass_each_length = position_depends_on_length(&ev->model->config.position);
	rule.bos = p->bos != BOS_NONE;
	if (text_bos(ev, rule.bos, &p->bos_id, e))
		return e->code;
	rule.bos_id = p->bos_id;
	rc = text_docs_read(ev, &rule, &p->docs, e);
	if (!rc)
		rc = cut(ev, e);
	return rc ? err_wrap(e, "dataset '%s'", ev->dataset_name) : ERR_OK;
}

static const struct task_metric metrics[] = {
    {"nll_token", "nats/token", "summed loss over scored tokens"},
    {"ppl_token", "perplexity", "exp of nll_token: token-weighted"},
    {"bits_per_byte", "bits/byte", "summed loss over bytes, in bits"},
    {"ppl_word", "perplexity", "exp of summed loss over words"},
    {"ppl_doc_macro", "perplexity", "exp of the mean over documents of loss a token"},
    {"nll_position", "nats/token", "prefix only: loss of the predictions from `from` up to `to`"},
    {"n_skipped", "items", "documents without a window at a length"},
};

const struct task task_pg19 = {
    .name = "pg19",
    .version = 1,
    .summary = "perplexity against length, on long documents",
    .dataset = "a folder of .txt files (recursive), one .txt, or a .jsonl with a string \"text\" a line",
    .params = pg19_params,
    .n_params = PG19_LAST + 1,
    .metrics = metrics,
    .n_metrics = sizeof metrics / sizeof metrics[0],
    .headline = "ppl_token",
    .figure = "curve",
    .formats = ".txt|.jsonl",
    .resolve = pg19_resolve,
    .plan = plan,
    .plan_free = plan_free,
    .add = pg19_add,
    .result = pg19_result,
    .fold_metrics = pg19_fold_metrics,
    .fold_items = pg19_fold_items,
};
