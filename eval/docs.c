/* Documents of text: see docs.h. */
#include "eval/docs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"
#include "eval/dataset.h"

void text_docs_release(struct text_docs *d)
{
	for (size_t i = 0; i < d->n; i++) {
		free(d->docs[i].name);
		free(d->docs[i].seq);
		free(d->docs[i].ends);
		free(d->docs[i].words);
	}
	free(d->docs);
	*d = (struct text_docs){0};
}

err_code text_bos(struct evaluation *ev, bool wanted, uint32_t *id, struct err *e)
{
	const struct model_config *c = &ev->model->config;
	int64_t bos = c->bos >= 0 ? c->bos : c->eos;

	if (!wanted) {
		if (ev->model->tokenizer && tokenizer_adds_bos(ev->model->tokenizer))
			evaluation_warn(ev, "the model's tokenizer adds BOS, and bos=none scores without it");
		return ERR_OK;
	}
	if (bos < 0 || bos >= c->n_vocab) {
		err_set(e, ERR_INPUT, "bos: model '%s' has no bos_token_id or eos_token_id", ev->model->name);
		return err_at(e, "/bos");
	}
	*id = (uint32_t)bos;
	return ERR_OK;
}

/* words[i]: how many words begin before ends[i]. A word is a run of non-White_Space; it begins at its first byte. */
static void count_words(struct text_doc *d, const char *text, size_t len)
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
static err_code add_doc(struct text_docs *out, const struct text_rule *rule, const struct document *doc,
                        const struct token_list *tokens, size_t n, struct err *e)
{
	struct text_doc *d = mem_grow(out->docs, &out->cap, out->n + 1, sizeof *d, e);
	size_t bos = rule->bos;

	if (!d)
		return e->code;
	out->docs = d;
	d = &out->docs[out->n++];
	*d = (struct text_doc){.n = (uint32_t)(n + bos), .cut = n < tokens->n};
	d->name = mem_strdup(doc->name, e);
	d->seq = mem_alloc(n + bos, sizeof *d->seq, e);
	d->ends = mem_alloc(n + bos, sizeof *d->ends, e);
	d->words = mem_alloc(n + bos, sizeof *d->words, e);
	if (!d->name || !d->seq || !d->ends || !d->words)
		return e->code;
	if (bos) {
		d->seq[0] = rule->bos_id;
		d->ends[0] = 0;
	}
	for (size_t i = 0; i < n; i++) {
		d->seq[i + bos] = tokens->ids[i];
		d->ends[i + bos] = tokens->ends[i];
	}
	count_words(d, doc->text, doc->len);
	return ERR_OK;
}

/* Something that was met in documents: how often, in how many, and in which first. */
struct finding {
	size_t n, n_docs;
	char first[100];
};

static void find(struct finding *f, size_t n, const char *doc)
{
	if (n && !f->n_docs++)
		snprintf(f->first, sizeof f->first, "%s", doc);
	f->n += n;
}

/* What there is to say about the documents read. */
struct notes {
	size_t n_short;
	struct finding replaced, dropped;
};

/* Tokenizes one document and keeps it if it is long enough. */
static err_code take_doc(const struct evaluation *ev, const struct text_rule *rule, const struct document *doc,
                         struct text_docs *out, struct notes *notes, struct err *e)
{
	struct token_list tokens = {0};
	size_t n;
	err_code rc = tokenizer_encode(ev->model->tokenizer, doc->text, doc->len, false, &tokens, e);

	if (!rc)
		rc = evaluation_check_ids(ev, &tokens, e);
	if (!rc && tokens.n > INT32_MAX)
		rc = err_set(e, ERR_INPUT, "%zu tokens: more than a document may have", tokens.n);
	n = tokens.n;
	if (!rc && rule->min_tokens && !rule->min_tokens->null && n < (size_t)rule->min_tokens->i) {
		notes->n_short++;
	} else if (!rc) {
		if (!rule->max_tokens->null && n > (size_t)rule->max_tokens->i)
			n = (size_t)rule->max_tokens->i;
		rc = add_doc(out, rule, doc, &tokens, n, e);
		find(&notes->replaced, doc->n_replaced, doc->name);
		find(&notes->dropped, tokens.n_dropped, doc->name);
	}
	token_list_release(&tokens);
	return rc ? err_wrap(e, "document '%s'", doc->name) : ERR_OK;
}

static err_code report(struct evaluation *ev, const struct text_rule *rule, const struct notes *notes, size_t n_docs,
                       struct err *e)
{
	if (notes->replaced.n)
		evaluation_warn(ev, "invalid UTF-8 became U+FFFD: %zu sequences in %zu of %zu documents (first: '%s')",
		                notes->replaced.n, notes->replaced.n_docs, n_docs, notes->replaced.first);
	if (notes->dropped.n)
		evaluation_warn(ev,
		                "the tokenizer has no token for %zu bytes in %zu of %zu documents (first: '%s'): they "
		                "are not read",
		                notes->dropped.n, notes->dropped.n_docs, n_docs, notes->dropped.first);
	if (notes->n_short && n_docs)
		evaluation_warn(ev, "min_doc_tokens %lld leaves out %zu of %zu documents",
		                (long long)rule->min_tokens->i, notes->n_short, notes->n_short + n_docs);
	if (notes->n_short && !n_docs)
		return err_set(e, ERR_INPUT, "no document has %lld tokens (min_doc_tokens); %zu are shorter",
		               (long long)rule->min_tokens->i, notes->n_short);
	return n_docs ? ERR_OK : err_set(e, ERR_INPUT, "no documents");
}

static err_code read_docs(struct evaluation *ev, const struct text_rule *rule, struct dataset *data,
                          struct text_docs *out, struct err *e)
{
	const struct document *doc;
	struct notes notes = {0};

	while (rule->max_docs->null || out->n < (size_t)rule->max_docs->i) {
		if (dataset_next(data, &doc, e))
			return e->code;
		if (!doc)
			break;
		if (take_doc(ev, rule, doc, out, &notes, e))
			return e->code;
		if (ev->watch && ev->watch->tick(ev->watch->arg, doc->read, dataset_bytes(data)))
			return err_set(e, ERR_CANCELLED, "stopped while the documents were read");
	}
	return report(ev, rule, &notes, out->n, e);
}

err_code text_docs_read(struct evaluation *ev, const struct text_rule *rule, struct text_docs *out, struct err *e)
{
	struct dataset *data = NULL;
	err_code rc;

	if (evaluation_check_tokenizer(ev, e))
		return e->code;
	rc = dataset_open(ev->dataset_path, &data, e);
	if (!rc)
		rc = read_docs(ev, rule, data, out, e);
	if (!rc)
		rc = dataset_check(data, e);
	if (!rc) {
		strcpy(ev->fingerprint, dataset_fingerprint(data));
		ev->n_docs = out->n;
	}
	dataset_close(data);
	return rc;
}
