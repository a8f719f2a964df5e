/* Task pg19: perplexity against length. The plan: documents as token ids with what each ends at in bytes and words, and
 * units in the order document, length, run of windows; under `prefix` a document is one unit.
 *
 * The BOS of bos=document is token 0 of the sequence. That of bos=window too, and every later window reads BOS in the
 * place of its first token, which the window before it predicted: so both are scored by the same windows. */
#include "eval/pg19.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"
#include "eval/dataset.h"

#define UNIT_TOKENS 65536 /* input tokens of a unit's windows, at most (a single longer window is a unit) */

static void plan_free(void *plan)
{
	struct pg19 *p = plan;

	if (!p)
		return;
	for (size_t i = 0; i < p->n_docs; i++) {
		free(p->docs[i].name);
		free(p->docs[i].seq);
		free(p->docs[i].ends);
		free(p->docs[i].words);
	}
	free(p->docs);
	free(p->units);
	free(p->lengths);
	free(p);
}

/* -- documents --------------------------------------------------------------------------------- */

/* words[i]: how many words begin before ends[i]. A word is a run of non-White_Space; it begins at its first byte. */
static void count_words(struct pg19_doc *d, const char *text, size_t len)
{
	uint32_t words = 0, i = 0;
	bool space = true;
	size_t step;

	for (size_t at = 0; at < len && i < d->n; at += step) {
		bool here = utf8_is_space(utf8_next(text + at, len - at, &step));

		for (; i < d->n && d->ends[i] <= at; i++)
			d->words[i] = words;
		words += space && !here;
		space = here;
	}
	for (; i < d->n; i++)
		d->words[i] = words;
}

/* Keeps the first n tokens of a document, behind BOS if there is one. */
static err_code add_doc(struct pg19 *p, const struct document *doc, const struct token_list *tokens, size_t n,
                        struct err *e)
{
	struct pg19_doc *d = mem_grow(p->docs, &p->cap_docs, p->n_docs + 1, sizeof *d, e);
	size_t bos = p->bos != BOS_NONE;

	if (!d)
		return e->code;
	p->docs = d;
	d = &p->docs[p->n_docs++];
	*d = (struct pg19_doc){.n = (uint32_t)(n + bos)};
	d->name = mem_strdup(doc->name, e);
	d->seq = mem_alloc(n + bos, sizeof *d->seq, e);
	d->ends = mem_alloc(n + bos, sizeof *d->ends, e);
	d->words = mem_alloc(n + bos, sizeof *d->words, e);
	if (!d->name || !d->seq || !d->ends || !d->words)
		return e->code;
	if (bos) {
		d->seq[0] = p->bos_id;
		d->ends[0] = 0;
	}
	for (size_t i = 0; i < n; i++) {
		d->seq[i + bos] = tokens->ids[i];
		d->ends[i + bos] = tokens->ends[i];
	}
	count_words(d, doc->text, doc->len);
	return ERR_OK;
}

static err_code check_ids(const struct model *m, const struct token_list *tokens, struct err *e)
{
	for (size_t i = 0; i < tokens->n; i++)
		if (tokens->ids[i] >= m->config.n_vocab)
			return err_set(e, ERR_INPUT, "token id %u is beyond the model's vocabulary of %u",
			               tokens->ids[i], m->config.n_vocab);
	return ERR_OK;
}

/* What there is to say about the documents read. */
struct notes {
	size_t n_short, n_replaced, n_invalid; /* documents, sequences, documents with such */
	char first_invalid[100];
};

/* Tokenizes one document and keeps it if it is long enough. */
static err_code take_doc(struct evaluation *ev, const struct param_value *v, const struct document *doc,
                         struct notes *notes, struct err *e)
{
	struct token_list tokens = {0};
	size_t n;
	err_code rc = tokenizer_encode(ev->model->tokenizer, doc->text, doc->len, false, &tokens, e);

	if (!rc)
		rc = check_ids(ev->model, &tokens, e);
	if (!rc && tokens.n > INT32_MAX)
		rc = err_set(e, ERR_INPUT, "%zu tokens: more than a document may have", tokens.n);
	n = tokens.n;
	if (!rc && !v[PG19_MIN_TOKENS].null && n < (size_t)v[PG19_MIN_TOKENS].i) {
		notes->n_short++;
	} else if (!rc) {
		if (!v[PG19_MAX_TOKENS].null && n > (size_t)v[PG19_MAX_TOKENS].i)
			n = (size_t)v[PG19_MAX_TOKENS].i;
		rc = add_doc(ev->plan, doc, &tokens, n, e);
		if (doc->n_replaced && !notes->n_invalid++)
			snprintf(notes->first_invalid, sizeof notes->first_invalid, "%s", doc->name);
		notes->n_replaced += doc->n_replaced;
	}
	token_list_release(&tokens);
	return rc ? err_wrap(e, "document '%s'", doc->name) : ERR_OK;
}

static err_code read_docs(struct evaluation *ev, const struct param_value *v, struct dataset *data, struct err *e)
{
	struct pg19 *p = ev->plan;
	const struct document *doc;
	struct notes notes = {0};

	while (v[PG19_MAX_DOCS].null || p->n_docs < (size_t)v[PG19_MAX_DOCS].i) {
		if (dataset_next(data, &doc, e))
			return e->code;
		if (!doc)
			break;
		if (take_doc(ev, v, doc, &notes, e))
			return e->code;
		if (ev->watch && ev->watch->tick(ev->watch->arg, doc->read, dataset_bytes(data)))
			return err_set(e, ERR_CANCELLED, "stopped while the documents were read");
	}
	if (notes.n_replaced)
		evaluation_warn(ev, "invalid UTF-8 became U+FFFD: %zu sequences in %zu of %zu documents (first: '%s')",
		                notes.n_replaced, notes.n_invalid, p->n_docs, notes.first_invalid);
	if (notes.n_short && p->n_docs)
		evaluation_warn(ev, "min_doc_tokens %lld leaves out %zu of %zu documents",
		                (long long)v[PG19_MIN_TOKENS].i, notes.n_short, notes.n_short + p->n_docs);
	if (notes.n_short && !p->n_docs)
		return err_set(e, ERR_INPUT, "no document has %lld tokens (min_doc_tokens); %zu are shorter",
		               (long long)v[PG19_MIN_TOKENS].i, notes.n_short);
	return p->n_docs ? ERR_OK : err_set(e, ERR_INPUT, "no documents");
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
	uint64_t n = p->docs[doc].n ? p->docs[doc].n - 1 : 0; /* predictions */
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

	for (size_t i = 0; i < p->n_docs; i++) {
		const struct pg19_doc *d = &p->docs[i];

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
		    (unsigned long long)rule.length, n_ragged, p->n_docs, ragged);
	if (n_none)
		evaluation_warn(ev, "length %llu: %zu of %zu documents without a window (first: '%s')",
		                (unsigned long long)rule.length, n_none, p->n_docs, none);
}

static err_code cut(struct evaluation *ev, struct err *e)
{
	struct pg19 *p = ev->plan;

	for (uint32_t doc = 0; doc < p->n_docs; doc++) {
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
		               p->docs[0].n);
	return ERR_OK;
}

static err_code choose_bos(struct evaluation *ev, struct err *e)
{
	struct pg19 *p = ev->plan;
	const struct model_config *c = &ev->model->config;
	int64_t id = c->bos >= 0 ? c->bos : c->eos;

	if (p->bos == BOS_NONE) {
		if (tokenizer_adds_bos(ev->model->tokenizer))
			evaluation_warn(ev, "the model's tokenizer adds BOS, and bos=none scores without it");
		return ERR_OK;
	}
	if (id < 0 || id >= c->n_vocab) {
		err_set(e, ERR_INPUT, "bos: model '%s' has no bos_token_id or eos_token_id", ev->model->name);
		return err_at(e, "/bos");
	}
	p->bos_id = (uint32_t)id;
	return ERR_OK;
}

static err_code plan(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	struct pg19 *p = mem_zalloc(1, sizeof *p, e);
	struct dataset *data = NULL;
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
	if (!ev->model->tokenizer)
		return err_set(e, ERR_INPUT, "model '%s' has no tokenizer.json, and task pg19 needs text",
		               ev->model->name);
	if (choose_bos(ev, e))
		return e->code;
	rc = dataset_open(ev->dataset_path, &data, e);
	if (!rc)
		rc = read_docs(ev, v, data, e);
	if (!rc)
		rc = dataset_check(data, e);
	if (!rc) {
		strcpy(ev->fingerprint, dataset_fingerprint(data));
		ev->n_docs = p->n_docs;
		rc = cut(ev, e);
	}
	dataset_close(data);
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
    .resolve = pg19_resolve,
    .plan = plan,
    .plan_free = plan_free,
    .add = pg19_add,
    .result = pg19_result,
    .fold_metrics = pg19_fold_metrics,
    .fold_items = pg19_fold_items,
};
