/* Streams: see stream.h. Losses are summed in double in the order of the ids. */
#include "eval/stream.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/item_key.h"

/* -- the plan ---------------------------------------------------------------------------------- */

void stream_plan_free(void *plan)
{
	struct stream_plan *p = plan;

	if (!p)
		return;
	for (size_t i = 0; i < p->n; i++) {
		free(p->streams[i].name);
		free(p->streams[i].ids);
	}
	free(p->streams);
	free(p);
}

static bool is_scored(const struct stream *s)
{
	return s->first < s->n;
}

err_code stream_add(struct evaluation *ev, struct stream *s, struct err *e)
{
	struct stream_plan *p = ev->plan;
	struct stream *streams = mem_grow(p->streams, &p->cap, p->n + 1, sizeof *streams, e);
	uint32_t limit = position_limit(&ev->model->config.position);

	assert(s->first);
	if (!streams) {
		free(s->name);
		free(s->ids);
		return e->code;
	}
	p->streams = streams;
	s->item = ev->n_items;
	p->streams[p->n++] = *s;
	if (!is_scored(s))
		return evaluation_add_unit(ev, 0, 0, e);
	if (limit && s->n - 1 > limit)
		return err_set(e, ERR_INPUT, "'%s' has %u tokens, and model '%s' has positions for %u", s->name,
		               s->n - 1, ev->model->name, limit);
	ev->n_items++;
	return evaluation_add_unit(ev, s->n - 1, s->n, e);
}

err_code stream_finish(struct evaluation *ev, const char *noun, struct err *e)
{
	const struct stream_plan *p = ev->plan;
	const struct stream *first = NULL;
	uint32_t n_ctx = ev->model->config.n_ctx;
	size_t n_long = 0;

	ev->n_docs = p->n;
	if (!p->n)
		return err_set(e, ERR_INPUT, "no %s", noun);
	if (!ev->n_items)
		return err_set(e, ERR_INPUT, "nothing to score: none of %zu %s has a token after its first", p->n,
		               noun);
	for (size_t i = 0; i < p->n; i++) {
		if (!is_scored(&p->streams[i]) || p->streams[i].n - 1 <= n_ctx)
			continue;
		first = n_long++ ? first : &p->streams[i];
	}
	if (first)
		evaluation_warn(ev, "%zu of %zu %s are longer than the model's context of %u tokens (first: '%s', %u)",
		                n_long, p->n, noun, n_ctx, first->name, first->n - 1);
	return ERR_OK;
}

/* -- units ------------------------------------------------------------------------------------- */

err_code stream_unit_add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e)
{
	const struct stream *s = &((const struct stream_plan *)plan)->streams[unit];
	uint32_t start;

	if (!is_scored(s))
		return ERR_OK;
	if (batch_builder_add(b, -1, s->n, &start, e))
		return e->code;
	memcpy(b->tokens + start, s->ids, s->n * sizeof *s->ids);
	memset(b->score + start + s->first, 1, s->n - s->first);
	return ERR_OK;
}

static err_code write_key(const struct stream *s, struct json_writer *w, struct err *e)
{
	struct sha256 *h = sha256_new(e);
	char key[ITEM_KEY_LEN];

	if (!h)
		return e->code;
	item_key_add(h, s->ids, s->n, s->first);
	item_key_final(h, key);
	json_put_string(w, "key", key);
	return ERR_OK;
}

err_code stream_unit_result(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
                            struct err *e)
{
	const struct stream *s = &((const struct stream_plan *)plan)->streams[unit];
	bool greedy = true;
	double nll = 0;

	json_begin_object(w, NULL);
	json_put_string(w, "name", s->name);
	if (s->truncated)
		json_put_bool(w, "truncated", true);
	if (!is_scored(s)) {
		json_put_bool(w, "skipped", true);
		json_end_object(w);
		return ERR_OK;
	}
	for (uint32_t i = s->first; i < s->n; i++) {
		nll -= (double)scores[i].logprob;
		greedy = greedy && scores[i].argmax == s->ids[i];
	}
	json_put_uint(w, "item", s->item);
	json_put_uint(w, "n", s->n - s->first);
	json_put_double(w, "nll", nll);
	json_put_bool(w, "greedy", greedy);
	if (s->has_text) {
		json_put_uint(w, "bytes", s->bytes);
		json_put_uint(w, "words", s->words);
	}
	if (write_key(s, w, e))
		return e->code;
	json_end_object(w);
	return isfinite(nll) ? ERR_OK : err_set(e, ERR_NUMERIC, "'%s': the loss is not finite", s->name);
}

/* -- folds ------------------------------------------------------------------------------------- */

struct reader {
	const struct unit_source *units; /* borrowed */
	struct json *json;               /* owned: the result last read */
};

static void reader_release(struct reader *r)
{
	json_free(r->json);
	r->json = NULL;
}

/* The next unit's; *more is false at the end. */
static err_code read_item(struct reader *r, struct stream_item *out, bool *more, struct err *e)
{
	const struct json *j;
	uint32_t unit;

	reader_release(r);
	if (unit_source_next(r->units, &unit, &r->json, e))
		return e->code;
	j = r->json;
	*more = j != NULL;
	if (!j)
		return ERR_OK;
	*out = (struct stream_item){.name = json_get_string(j, "name"),
	                            .key = json_get_string(j, "key"),
	                            .skipped = json_true(json_get(j, "skipped")),
	                            .truncated = json_true(json_get(j, "truncated")),
	                            .greedy = json_true(json_get(j, "greedy")),
	                            .has_text = json_get(j, "bytes") != NULL};
	if (!out->name)
		return unit_malformed(e, unit, "name");
	if (out->skipped)
		return ERR_OK;
	if (!out->key || !json_get_integer(j, "item", &out->id))
		return unit_malformed(e, unit, "key, item");
	if (!json_get_integer(j, "n", &out->n) || !json_get_number(j, "nll", &out->nll))
		return unit_malformed(e, unit, "n, nll");
	if (out->has_text && (!json_get_integer(j, "bytes", &out->bytes) || !json_get_integer(j, "words", &out->words)))
		return unit_malformed(e, unit, "bytes, words");
	return ERR_OK;
}

err_code stream_sum(const struct unit_source *units, struct stream_sums *out, struct err *e)
{
	struct reader r = {.units = units};
	struct stream_item it;
	bool more = false;
	err_code rc;

	while (!(rc = read_item(&r, &it, &more, e)) && more) {
		out->n_skipped += it.skipped;
		out->n_truncated += it.truncated;
		out->n_greedy += it.greedy;
		if (it.skipped)
			continue;
		rc = doc_losses_add(&out->losses,
		                    (struct doc_loss){it.nll, (double)it.n, (double)it.bytes, (double)it.words}, e);
		if (rc)
			break;
	}
	reader_release(&r);
	return rc;
}

void stream_sums_release(struct stream_sums *s)
{
	doc_losses_release(&s->losses);
}

err_code stream_fold_metrics(const struct unit_source *units, metric_losses_fn *metrics, struct json_writer *w,
                             struct err *e)
{
	struct stream_sums sums = {0};
	struct metric_row r = {0};
	err_code rc = stream_sum(units, &sums, e);
	int64_t n = (int64_t)sums.losses.n + sums.n_skipped;

	if (!rc)
		rc = metrics(&sums.losses, &r, w, e);
	if (!rc) {
		metric_row_count(&r, "n_skipped", sums.n_skipped, n, w);
		metric_row_count(&r, "n_truncated", sums.n_truncated, n, w);
	}
	stream_sums_release(&sums);
	return rc;
}

err_code stream_each_item(const struct unit_source *units, stream_write_fn *write, item_fn *f, void *arg, struct err *e)
{
	struct reader r = {.units = units};
	struct buf line = BUF_INIT(1 << 21);
	struct stream_item it;
	bool more = false;
	err_code rc;

	while (!(rc = read_item(&r, &it, &more, e)) && more) {
		struct json_writer w = JSON_WRITER(&line);

		if (it.skipped)
			continue;
		buf_clear(&line);
		json_begin_object(&w, NULL);
		json_put_int(&w, "id", it.id);
		json_put_string(&w, "key", it.key);
		json_put_string(&w, "doc", it.name);
		write(&it, &w);
		json_end_object(&w);
		rc = buf_check(&line, "item", e);
		if (!rc && f(arg, buf_str(&line), line.len))
			rc = err_set(e, ERR_CANCELLED, "stopped at item %lld", (long long)it.id);
		if (rc)
			break;
	}
	reader_release(&r);
	buf_release(&line);
	return rc;
}

static void write_loss(const struct stream_item *it, struct json_writer *w)
{
	json_put_int(w, "n_tokens", it->n);
	if (it->has_text) {
		json_put_int(w, "n_bytes", it->bytes);
		json_put_int(w, "n_words", it->words);
	}
	json_put_double(w, "nll", it->nll);
	if (it->truncated)
		json_put_bool(w, "truncated", true);
}

err_code stream_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                           struct err *e)
{
	(void)v;
	return stream_each_item(units, write_loss, f, arg, e);
}
