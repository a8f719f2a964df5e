/* Task pg19: unit results to items and metrics (protocols.md section 1). No model, no dataset: everything stands in the
 * results. Sums run in unit order, which is document, length, run of windows. */
#include "eval/pg19.h"

#include <stdlib.h>
#include <string.h>

#include "eval/item_key.h"
#include "eval/metric.h"
#include "eval/stats.h"

/* -- items ------------------------------------------------------------------------------------- */

struct item {
	int64_t id, length;
	size_t at;              /* index of the length */
	char key[ITEM_KEY_LEN]; /* "" unless complete */
	struct buf doc;         /* the document's name */
	int64_t n, bytes, words;
	double nll;
	int64_t parts, seen; /* units: seen < parts in a partial fold */
};

struct visitor {
	err_code (*item)(void *arg, const struct item *it, struct err *e);
	err_code (*skipped)(void *arg, size_t length, struct err *e);        /* may be NULL */
	err_code (*bins)(void *arg, const struct json *bins, struct err *e); /* may be NULL */
	void *arg;
};

static bool length_index(const struct param_value *v, int64_t length, size_t *at)
{
	for (*at = 0; *at < v[PG19_LENGTHS].n; ++*at)
		if (v[PG19_LENGTHS].list[*at] == length)
			return true;
	return false;
}

/* The item ends: all its units have been met, or the others are missing. */
static err_code flush(struct item *it, const struct visitor *vis, struct err *e)
{
	err_code rc = ERR_OK;

	if (it->seen) {
		if (it->seen < it->parts)
			it->key[0] = '\0';
		rc = vis->item(vis->arg, it, e);
	}
	it->seen = 0;
	return rc;
}

static err_code begin_item(const struct param_value *v, struct item *it, const struct json *j, uint32_t unit,
                           struct err *e)
{
	const char *name = json_get_string(j, "name");

	it->n = it->bytes = it->words = it->parts = 0;
	it->nll = 0;
	it->key[0] = '\0';
	if (!json_get_integer(j, "item", &it->id))
		return unit_malformed(e, unit, "item");
	if (!name)
		return unit_malformed(e, unit, "name");
	if (!json_get_integer(j, "length", &it->length) || !length_index(v, it->length, &it->at))
		return unit_malformed(e, unit, "length");
	buf_clear(&it->doc);
	buf_puts(&it->doc, name);
	return buf_check(&it->doc, "name", e);
}

/* Adds a unit of windows to the open item, or opens the next. */
static err_code visit_windows(const struct param_value *v, struct item *it, const struct json *j, uint32_t unit,
                              const struct visitor *vis, struct err *e)
{
	int64_t id, n, bytes, words;
	const char *key;
	double nll;

	if (!json_get_integer(j, "item", &id))
		return unit_malformed(e, unit, "item");
	if ((it->seen && id != it->id) || json_true(json_get(j, "skipped")))
		if (flush(it, vis, e))
			return e->code;
	if (!it->seen && begin_item(v, it, j, unit, e))
		return e->code;
	if (json_true(json_get(j, "skipped")))
		return vis->skipped ? vis->skipped(vis->arg, it->at, e) : ERR_OK;
	if (!json_get_integer(j, "n", &n) || !json_get_integer(j, "bytes", &bytes) ||
	    !json_get_integer(j, "words", &words) || !json_get_integer(j, "parts", &it->parts))
		return unit_malformed(e, unit, "n, bytes, words, parts");
	if (!json_get_number(j, "nll", &nll))
		return unit_malformed(e, unit, "nll");
	key = json_get_string(j, "key");
	if (key && strlen(key) == ITEM_KEY_LEN - 1)
		strcpy(it->key, key);
	it->n += n;
	it->bytes += bytes;
	it->words += words;
	it->nll += nll;
	it->seen++;
	return ERR_OK;
}

/* A unit of protocol prefix is an item at every length, and its bins. */
static err_code visit_prefix(const struct param_value *v, struct item *it, const struct json *j, uint32_t unit,
                             const struct visitor *vis, struct err *e)
{
	const char *name = json_get_string(j, "name"), *key;
	const struct json *nll = json_first(json_get(j, "nll")), *bytes = json_first(json_get(j, "bytes"));
	const struct json *words = json_first(json_get(j, "words")), *keys = json_first(json_get(j, "keys"));

	if (!name || !json_get_integer(j, "item", &it->id))
		return unit_malformed(e, unit, "name, item");
	buf_clear(&it->doc);
	buf_puts(&it->doc, name);
	for (it->at = 0; it->at < v[PG19_LENGTHS].n; it->at++, it->id++) {
		key = json_string(keys);
		if (!key || strlen(key) != ITEM_KEY_LEN - 1 || !json_number(nll, &it->nll) ||
		    !json_integer(bytes, &it->bytes) || !json_integer(words, &it->words))
			return unit_malformed(e, unit, "nll, bytes, words, keys");
		strcpy(it->key, key);
		it->length = it->n = v[PG19_LENGTHS].list[it->at];
		it->seen = it->parts = 1;
		if (flush(it, vis, e))
			return e->code;
		nll = json_next(nll);
		bytes = json_next(bytes);
		words = json_next(words);
		keys = json_next(keys);
	}
	return vis->bins ? vis->bins(vis->arg, json_get(j, "bins"), e) : ERR_OK;
}

static err_code walk(const struct param_value *v, const struct unit_source *units, const struct visitor *vis,
                     struct err *e)
{
	struct item it = {.doc = BUF_INIT(1 << 20)};
	struct json *j;
	uint32_t unit;
	err_code rc;

	while (!(rc = unit_source_next(units, &unit, &j, e)) && j) {
		rc = v[PG19_PROTOCOL].i == PROTOCOL_PREFIX ? visit_prefix(v, &it, j, unit, vis, e)
		                                           : visit_windows(v, &it, j, unit, vis, e);
		json_free(j);
		if (rc)
			break;
	}
	if (!rc)
		rc = flush(&it, vis, e);
	buf_release(&it.doc);
	return rc;
}

struct item_writer {
	item_fn *f;
	void *arg;
	struct buf line;
};

static err_code write_item(void *arg, const struct item *it, struct err *e)
{
	struct item_writer *iw = arg;
	struct json_writer w = JSON_WRITER(&iw->line);

	buf_clear(&iw->line);
	json_begin_object(&w, NULL);
	json_put_int(&w, "id", it->id);
	json_put_string(&w, "key", it->key[0] ? it->key : NULL);
	json_put_string(&w, "doc", buf_str(&it->doc));
	json_put_int(&w, "length", it->length);
	json_put_int(&w, "n_tokens", it->n);
	json_put_int(&w, "n_bytes", it->bytes);
	json_put_int(&w, "n_words", it->words);
	json_put_double(&w, "nll", it->nll);
	if (it->seen < it->parts)
		json_put_bool(&w, "partial", true); /* some of its windows failed or are not done */
	json_end_object(&w);
	if (buf_check(&iw->line, "item", e))
		return e->code;
	if (iw->f(iw->arg, buf_str(&iw->line), iw->line.len))
		return err_set(e, ERR_CANCELLED, "stopped at item %lld", (long long)it->id);
	return ERR_OK;
}

err_code pg19_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                         struct err *e)
{
	struct item_writer iw = {.f = f, .arg = arg, .line = BUF_INIT(1 << 21)};
	struct visitor vis = {.item = write_item, .arg = &iw};
	err_code rc = walk(v, units, &vis, e);

	buf_release(&iw.line);
	return rc;
}

/* -- metrics ----------------------------------------------------------------------------------- */

struct length_sum {
	struct doc_losses losses; /* of the documents that have a window at this length */
	int64_t n_skipped;
};

struct sums {
	struct length_sum *lengths; /* [n_lengths] owned */
	size_t n_lengths;
	int64_t edges[PG19_MAX_EDGES];
	size_t n_bins;
	double *bins; /* [n_bin_docs][n_bins] owned */
	size_t n_bin_docs, cap_bin_docs;
};

static err_code sum_item(void *arg, const struct item *it, struct err *e)
{
	struct sums *sums = arg;

	return doc_losses_add(&sums->lengths[it->at].losses,
	                      (struct doc_loss){it->nll, (double)it->n, (double)it->bytes, (double)it->words}, e);
}

static err_code sum_skipped(void *arg, size_t length, struct err *e)
{
	struct sums *sums = arg;

	(void)e;
	sums->lengths[length].n_skipped++;
	return ERR_OK;
}

static err_code sum_bins(void *arg, const struct json *bins, struct err *e)
{
	struct sums *sums = arg;
	size_t i = 0;
	double *p;

	if (json_count(bins) != sums->n_bins)
		return err_set(e, ERR_INPUT, "a unit's result has %zu bins, not %zu", json_count(bins), sums->n_bins);
	p = mem_grow(sums->bins, &sums->cap_bin_docs, sums->n_bin_docs + 1, sums->n_bins * sizeof *p, e);
	if (!p)
		return e->code;
	sums->bins = p;
	p = sums->bins + sums->n_bin_docs++ * sums->n_bins;
	for (bins = json_first(bins); bins; bins = json_next(bins))
		if (!json_number(bins, &p[i++]))
			return err_set(e, ERR_INPUT, "a unit's result has a bin that is no number");
	return ERR_OK;
}

/* The five metrics of a length, and what was skipped there. */
static err_code write_length(const struct param_value *v, const struct sums *sums, size_t at, struct json_writer *w,
                             struct err *e)
{
	const struct length_sum *l = &sums->lengths[at];
	struct metric_row r = {.length = v[PG19_LENGTHS].list[at]};

	if (v[PG19_PROTOCOL].i == PROTOCOL_SLIDING)
		r.stride = pg19_stride(v, r.length);
	if (metric_perplexities(&l->losses, &r, w, e))
		return e->code;
	metric_row_count(&r, "n_skipped", l->n_skipped, (int64_t)l->losses.n + l->n_skipped, w);
	return ERR_OK;
}

static err_code write_bins(const struct sums *sums, struct json_writer *w, struct err *e)
{
	struct metric_row r = {.why_value = "no_documents", .why_stderr = "one_document", .n_docs = sums->n_bin_docs};
	struct cluster *c = mem_alloc(sums->n_bin_docs, sizeof *c, e);

	if (!c)
		return e->code;
	for (size_t b = 0; b < sums->n_bins; b++) {
		r.from = sums->edges[b];
		r.to = sums->edges[b + 1];
		for (size_t i = 0; i < sums->n_bin_docs; i++)
			c[i] = (struct cluster){sums->bins[i * sums->n_bins + b], (double)(r.to - r.from)};
		r.n = (r.to - r.from) * (int64_t)sums->n_bin_docs;
		metric_row_write(&r, "nll_position", "nats/token", ratio_value(c, sums->n_bin_docs),
		                 ratio_stderr(c, sums->n_bin_docs), w);
	}
	free(c);
	return ERR_OK;
}

err_code pg19_fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                           struct err *e)
{
	bool prefix = v[PG19_PROTOCOL].i == PROTOCOL_PREFIX;
	struct sums sums = {.n_lengths = v[PG19_LENGTHS].n};
	struct visitor vis = {.item = sum_item, .skipped = sum_skipped, .bins = sum_bins, .arg = &sums};
	err_code rc;

	sums.n_bins = pg19_edges(v[PG19_LENGTHS].list[sums.n_lengths - 1], sums.edges) - 1;
	sums.lengths = mem_zalloc(sums.n_lengths, sizeof *sums.lengths, e);
	rc = sums.lengths ? walk(v, units, &vis, e) : ERR_MEMORY;
	for (size_t i = 0; i < sums.n_lengths && !rc; i++)
		rc = write_length(v, &sums, i, w, e);
	if (!rc && prefix)
		rc = write_bins(&sums, w, e);
	for (size_t i = 0; sums.lengths && i < sums.n_lengths; i++)
		doc_losses_release(&sums.lengths[i].losses);
	free(sums.lengths);
	free(sums.bins);
	return rc;
}
