/* Metrics: see metric.h. Sums run in the order of the documents, in double. */
#include "eval/metric.h"

#include <math.h>
#include <stdlib.h>

#include "eval/stats.h"

void metric_row_write(struct metric_row *r, const char *name, const char *unit, double value, double stderr_,
                      struct json_writer *w)
{
	const char *reason = NULL;

	r->name = name;
	r->unit = unit;
	r->value = value;
	r->stderr_ = stderr_;
	if (!isfinite(r->value))
		reason = isnan(r->value) ? r->why_value : "overflow";
	else if (!isfinite(r->stderr_))
		reason = isnan(r->stderr_) ? r->why_stderr : "overflow";
	json_begin_object(w, NULL);
	json_put_string(w, "name", r->name);
	if (r->group)
		json_put_string(w, "group", r->group);
	if (r->length)
		json_put_int(w, "length", r->length);
	if (r->stride)
		json_put_int(w, "stride", r->stride);
	if (r->to) {
		json_put_int(w, "from", r->from);
		json_put_int(w, "to", r->to);
	}
	json_put_double(w, "value", r->value);
	json_put_double(w, "stderr", isfinite(r->value) ? r->stderr_ : NAN);
	json_put_int(w, "n", r->n);
	if (r->n_docs)
		json_put_uint(w, "n_docs", r->n_docs);
	json_put_string(w, "unit", r->unit);
	if (reason)
		json_put_string(w, "reason", reason);
	json_end_object(w);
}

void metric_row_count(struct metric_row *r, const char *name, int64_t count, int64_t of, struct json_writer *w)
{
	r->why_stderr = "count";
	r->n = of;
	metric_row_write(r, name, "items", (double)count, NAN, w);
}

/* -- losses of documents ----------------------------------------------------------------------- */

err_code doc_losses_add(struct doc_losses *l, struct doc_loss d, struct err *e)
{
	struct doc_loss *p = mem_grow(l->docs, &l->cap, l->n + 1, sizeof *p, e);

	if (!p)
		return e->code;
	l->docs = p;
	l->docs[l->n++] = d;
	return ERR_OK;
}

void doc_losses_release(struct doc_losses *l)
{
	free(l->docs);
	*l = (struct doc_losses){0};
}

enum denominator { BY_TOKEN, BY_BYTE, BY_WORD };

static void gather(const struct doc_losses *l, enum denominator by, struct cluster *c)
{
	for (size_t i = 0; i < l->n; i++) {
		c[i].s = l->docs[i].s;
		c[i].w = by == BY_TOKEN ? l->docs[i].n : by == BY_BYTE ? l->docs[i].bytes : l->docs[i].words;
	}
}

static void write_nll(const struct doc_losses *l, struct cluster *c, struct metric_row *r, struct json_writer *w)
{
	r->n = 0;
	for (size_t i = 0; i < l->n; i++)
		r->n += (int64_t)l->docs[i].n;
	r->n_docs = l->n;
	r->why_stderr = "one_document";
	r->why_value = "no_documents";
	gather(l, BY_TOKEN, c);
	metric_row_write(r, "nll_token", "nats/token", ratio_value(c, l->n), ratio_stderr(c, l->n), w);
}

err_code metric_nll_token(const struct doc_losses *l, struct metric_row *r, struct json_writer *w, struct err *e)
{
	struct cluster *c = mem_alloc(l->n, sizeof *c, e);

	if (!c)
		return e->code;
	write_nll(l, c, r, w);
	free(c);
	return ERR_OK;
}

static void write_macro(const struct doc_losses *l, double *means, struct metric_row *r, struct json_writer *w)
{
	double value;

	for (size_t i = 0; i < l->n; i++)
		means[i] = l->docs[i].s / l->docs[i].n;
	r->why_value = "no_documents";
	value = exp(mean_value(means, l->n));
	metric_row_write(r, "ppl_doc_macro", "perplexity", value, value * mean_stderr(means, l->n), w);
}

err_code metric_perplexities(const struct doc_losses *l, struct metric_row *r, struct json_writer *w, struct err *e)
{
	struct cluster *c = mem_alloc(l->n, sizeof *c, e);
	double *means = mem_alloc(l->n, sizeof *means, e), value;

	if (!c || !means) {
		free(c);
		free(means);
		return e->code;
	}
	write_nll(l, c, r, w);
	value = exp(ratio_value(c, l->n));
	metric_row_write(r, "ppl_token", "perplexity", value, value * ratio_stderr(c, l->n), w);

	gather(l, BY_BYTE, c);
	r->why_value = l->n ? "no_bytes" : "no_documents";
	metric_row_write(r, "bits_per_byte", "bits/byte", ratio_value(c, l->n) / log(2), ratio_stderr(c, l->n) / log(2),
	                 w);

	gather(l, BY_WORD, c);
	r->why_value = l->n ? "no_words" : "no_documents";
	value = exp(ratio_value(c, l->n));
	metric_row_write(r, "ppl_word", "perplexity", value, value * ratio_stderr(c, l->n), w);

	write_macro(l, means, r, w);
	free(c);
	free(means);
	return ERR_OK;
}
