/* Task frequency_use: how much each layer uses each frequency of the position scheme (the PoPE paper's map): the mean
 * magnitude of queries and of keys over tokens and heads. A document is read in windows as pg19 cuts them, and every
 * input counts.
 *
 * A unit is a document, and so is an item. Result: {"doc": index, "name", "key", "length", "n": inputs, "n_head",
 * "n_kv_head", "theta": [n_freq], "q": [n_layer][n_freq], "k"}: sums over inputs and heads. Folds divide, so that a
 * mean is one of tokens, never of documents. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/docs.h"
#include "eval/item_key.h"

#define MAX_FIGURES ((size_t)1 << 24) /* of all results together: some 300 MB as text */

enum { LENGTH, MAX_DOCS, MAX_TOKENS, MIN_TOKENS };

static const struct param params[] = {
    {"length", PARAM_INT, "1024", NULL, 1, 1 << 24, "inputs of a window, in tokens"},
    {"max_docs", PARAM_INT, "null", NULL, 1, INT32_MAX,
     "only the first documents of at least min_doc_tokens; null: all"},
    {"max_tokens_per_doc", PARAM_INT, "null", NULL, 2, INT32_MAX,
     "cut each document after so many tokens; null: none is cut"},
    {"min_doc_tokens", PARAM_INT, "2", NULL, 2, INT32_MAX, "leave out shorter documents"},
};

/* -- the plan ---------------------------------------------------------------------------------- */

struct use_plan {
	struct text_docs docs; /* of two tokens or more */
	uint32_t length;
	uint32_t n_layer, n_head, n_kv_head, n_freq;
	double *theta; /* [n_freq] owned: radians a token */
};

static void plan_free(void *plan)
{
	struct use_plan *p = plan;

	if (!p)
		return;
	text_docs_release(&p->docs);
	free(p->theta);
	free(p);
}

static err_code read_model(struct use_plan *p, const struct model *m, struct err *e)
{
	const struct model_config *c = &m->config;
	struct position_table table;

	if (position_table_init(&table, &c->position, c->head_dim, p->length, e))
		return e->code;
	p->n_layer = c->n_layer;
	p->n_head = c->n_head;
	p->n_kv_head = c->n_kv_head;
	p->n_freq = table.n_freq;
	p->theta = mem_alloc(p->n_freq, sizeof *p->theta, e);
	for (uint32_t i = 0; p->theta && i < p->n_freq; i++)
		p->theta[i] = ldexp((double)table.freq[i], -64) * 2 * M_PI;
	position_table_release(&table);
	if (!p->theta)
		return e->code;
	if (!p->n_freq)
		return err_set(e, ERR_INPUT, "model '%s' has positions without frequencies: there is no use of them",
		               m->name);
	return ERR_OK;
}

static err_code cut(struct evaluation *ev, struct err *e)
{
	const struct use_plan *p = ev->plan;
	size_t figures = 2 * (size_t)p->n_layer * p->n_freq;

	if (p->docs.n > MAX_FIGURES / figures)
		return err_set(e, ERR_INPUT, "%zu documents of %zu figures each: at most %zu documents (max_docs)",
		               p->docs.n, figures, MAX_FIGURES / figures);
	for (size_t i = 0; i < p->docs.n; i++) {
		uint32_t n = p->docs.docs[i].n;

		if (evaluation_add_unit(ev, n - 1, n <= p->length ? n : p->length + 1u, e))
			return e->code;
	}
	ev->n_items = p->docs.n;
	if (p->length > ev->model->config.position.max_ctx)
		evaluation_warn(ev, "windows of %u tokens are beyond the model's context of %u", p->length,
		                ev->model->config.position.max_ctx);
	return ERR_OK;
}

static err_code plan(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	struct text_rule rule = {.max_docs = &v[MAX_DOCS], .max_tokens = &v[MAX_TOKENS], .min_tokens = &v[MIN_TOKENS]};
	struct use_plan *p = mem_zalloc(1, sizeof *p, e);
	err_code rc;

	if (!p)
		return e->code;
	ev->plan = p;
	p->length = (uint32_t)v[LENGTH].i;
	rc = read_model(p, ev->model, e);
	if (rc)
		return rc;
	rc = text_docs_read(ev, &rule, &p->docs, e);
	if (!rc)
		rc = cut(ev, e);
	return rc ? err_wrap(e, "dataset '%s'", ev->dataset_name) : ERR_OK;
}

/* -- units ------------------------------------------------------------------------------------- */

/* The window that begins at token `at`: its inputs, and one token that it predicts. */
static uint32_t window_len(const struct use_plan *p, const struct text_doc *d, uint32_t at)
{
	return (d->n - 1 - at < p->length ? d->n - 1 - at : p->length) + 1;
}

/* Windows side by side. The last token of each is scored, so that all before it are computed. */
static err_code add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e)
{
	const struct use_plan *p = plan;
	const struct text_doc *d = &p->docs.docs[unit];
	uint32_t start;

	for (uint32_t at = 0, len; at + 1 < d->n; at += len - 1) {
		len = window_len(p, d, at);
		if (batch_builder_add(b, -1, len, &start, e))
			return e->code;
		memcpy(b->tokens + start, d->seq + at, len * sizeof *b->tokens);
		b->score[start + len - 1] = 1;
	}
	return ERR_OK;
}

static err_code put_key(const struct use_plan *p, const struct text_doc *d, struct json_writer *w, struct err *e)
{
	struct sha256 *h = sha256_new(e);
	char key[ITEM_KEY_LEN];

	if (!h)
		return e->code;
	for (uint32_t at = 0, len; at + 1 < d->n; at += len - 1) {
		len = window_len(p, d, at);
		item_key_add(h, d->seq + at, len, len - 1);
	}
	item_key_final(h, key);
	json_put_string(w, "key", key);
	return ERR_OK;
}

static void put_sums(struct json_writer *w, const char *key, const struct use_plan *p, const double *sums)
{
	json_begin_array(w, key);
	for (uint32_t layer = 0; layer < p->n_layer; layer++, sums += 2 * (size_t)p->n_freq) {
		json_begin_array(w, NULL);
		for (uint32_t i = 0; i < p->n_freq; i++)
			json_put_double(w, NULL, sums[i]);
		json_end_array(w);
	}
	json_end_array(w);
}

static err_code result(const void *plan, uint32_t unit, const struct frequency_use *use, struct json_writer *w,
                       struct err *e)
{
	const struct use_plan *p = plan;
	const struct text_doc *d = &p->docs.docs[unit];

	assert(use->n_rows == d->n - 1);
	json_begin_object(w, NULL);
	json_put_uint(w, "doc", unit);
	json_put_string(w, "name", d->name);
	if (put_key(p, d, w, e))
		return e->code;
	json_put_uint(w, "length", p->length);
	json_put_uint(w, "n", use->n_rows);
	json_put_uint(w, "n_head", p->n_head);
	json_put_uint(w, "n_kv_head", p->n_kv_head);
	json_begin_array(w, "theta");
	for (uint32_t i = 0; i < p->n_freq; i++)
		json_put_double(w, NULL, p->theta[i]);
	json_end_array(w);
	put_sums(w, "q", p, use->sums);
	put_sums(w, "k", p, use->sums + p->n_freq);
	json_end_object(w);
	return ERR_OK;
}

/* -- folds ------------------------------------------------------------------------------------- */

static const char *const parts[] = {"q", "k"};

/* A unit's result, or the sum of many. */
struct use_sums {
	size_t n_layer, n_freq;
	int64_t n, n_head[2];
	double *theta;   /* [n_freq] owned */
	double *sums[2]; /* [n_layer, n_freq] owned: queries, keys */
};

static void sums_release(struct use_sums *s)
{
	free(s->theta);
	free(s->sums[0]);
	free(s->sums[1]);
}

/* The first unit gives the shape. */
static err_code shape_sums(struct use_sums *s, const struct json *j, uint32_t unit, struct err *e)
{
	const struct json *theta = json_get(j, "theta");
	size_t i = 0;

	s->n_freq = json_count(theta);
	s->n_layer = json_count(json_get(j, "q"));
	if (!s->n_freq || !s->n_layer || !json_get_integer(j, "n_head", &s->n_head[0]) ||
	    !json_get_integer(j, "n_kv_head", &s->n_head[1]))
		return unit_malformed(e, unit, "theta, q, n_head, n_kv_head");
	s->theta = mem_alloc(s->n_freq, sizeof *s->theta, e);
	for (int part = 0; part < 2; part++)
		s->sums[part] = mem_zalloc(s->n_layer * s->n_freq, sizeof *s->sums[part], e);
	if (!s->theta || !s->sums[0] || !s->sums[1])
		return e->code;
	for (theta = json_first(theta); theta; theta = json_next(theta))
		if (!json_number(theta, &s->theta[i++]))
			return unit_malformed(e, unit, "theta");
	return ERR_OK;
}

/* sums += a unit's; what has another shape is malformed. */
static bool add_part(const struct use_sums *s, const struct json *layers, double *sums)
{
	double *end = sums + s->n_layer * s->n_freq, x;

	for (const struct json *layer = json_first(layers); layer; layer = json_next(layer)) {
		if (json_count(layer) != s->n_freq)
			return false;
		for (const struct json *f = json_first(layer); f; f = json_next(f), sums++) {
			if (sums == end || !json_number(f, &x))
				return false;
			*sums += x;
		}
	}
	return sums == end;
}

static err_code add_unit(struct use_sums *s, const struct json *j, uint32_t unit, struct err *e)
{
	int64_t n;

	if (!s->theta && shape_sums(s, j, unit, e))
		return e->code;
	for (int part = 0; part < 2; part++)
		if (!add_part(s, json_get(j, parts[part]), s->sums[part]))
			return unit_malformed(e, unit, parts[part]);
	if (!json_get_integer(j, "n", &n) || n < 1)
		return unit_malformed(e, unit, "n");
	s->n += n;
	return ERR_OK;
}

static double mean_of(const struct use_sums *s, int part, size_t at)
{
	return s->sums[part][at] / ((double)s->n * (double)s->n_head[part]);
}

static void put_metrics(const struct use_sums *s, int part, struct json_writer *w)
{
	for (size_t at = 0; at < s->n_layer * s->n_freq; at++) {
		json_begin_object(w, NULL);
		json_put_string(w, "name", "frequency_use");
		json_put_string(w, "part", parts[part]);
		json_put_uint(w, "layer", at / s->n_freq);
		json_put_uint(w, "frequency", at % s->n_freq);
		json_put_double(w, "theta", s->theta[at % s->n_freq]);
		json_put_double(w, "value", mean_of(s, part, at));
		json_put_int(w, "n", s->n * s->n_head[part]);
		json_put_string(w, "unit", "magnitude");
		json_end_object(w);
	}
}

static err_code fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                             struct err *e)
{
	struct use_sums s = {0};
	struct json *j;
	uint32_t unit;
	err_code rc;

	(void)v;
	while (!(rc = unit_source_next(units, &unit, &j, e)) && j) {
		rc = add_unit(&s, j, unit, e);
		json_free(j);
		if (rc)
			break;
	}
	for (int part = 0; !rc && part < 2; part++)
		put_metrics(&s, part, w);
	sums_release(&s);
	return rc;
}

static void put_means(const struct use_sums *s, int part, struct json_writer *w)
{
	json_begin_array(w, parts[part]);
	for (size_t layer = 0; layer < s->n_layer; layer++) {
		json_begin_array(w, NULL);
		for (size_t i = 0; i < s->n_freq; i++)
			json_put_double(w, NULL, mean_of(s, part, layer * s->n_freq + i));
		json_end_array(w);
	}
	json_end_array(w);
}

static err_code put_item(const struct json *j, uint32_t unit, struct buf *line, struct err *e)
{
	struct json_writer w = JSON_WRITER(line);
	struct use_sums s = {0};
	err_code rc = add_unit(&s, j, unit, e);
	int64_t length = 0;

	if (!rc &&
	    (!json_get_string(j, "key") || !json_get_string(j, "name") || !json_get_integer(j, "length", &length)))
		rc = unit_malformed(e, unit, "name, key, length");
	if (!rc) {
		json_begin_object(&w, NULL);
		json_put_uint(&w, "id", unit);
		json_put_string(&w, "key", json_get_string(j, "key"));
		json_put_string(&w, "doc", json_get_string(j, "name"));
		json_put_int(&w, "length", length);
		json_put_int(&w, "n_tokens", s.n);
		put_means(&s, 0, &w);
		put_means(&s, 1, &w);
		json_end_object(&w);
		rc = buf_check(line, "item", e);
	}
	sums_release(&s);
	return rc;
}

static err_code fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                           struct err *e)
{
	struct buf line = BUF_INIT((size_t)64 << 20);
	struct json *j;
	uint32_t unit;
	err_code rc;

	(void)v;
	while (!(rc = unit_source_next(units, &unit, &j, e)) && j) {
		buf_clear(&line);
		rc = put_item(j, unit, &line, e);
		json_free(j);
		if (!rc && f(arg, buf_str(&line), line.len))
			rc = err_set(e, ERR_CANCELLED, "stopped at item %u", unit);
		if (rc)
			break;
	}
	buf_release(&line);
	return rc;
}

static const struct task_metric metrics[] = {
    {"frequency_use", "magnitude",
     "mean over tokens and heads, of a part (q, k), layer and frequency: the 2-norm of a pair (rope), the softplus of "
     "an element (pope)"},
};

const struct task task_frequency_use = {
    .name = "frequency_use",
    .version = 1,
    .summary = "how much each layer's queries and keys use each frequency of the positions",
    .dataset = "a folder of .txt files (recursive), one .txt, or a .jsonl with a string \"text\" a line",
    .params = params,
    .n_params = sizeof params / sizeof params[0],
    .metrics = metrics,
    .n_metrics = sizeof metrics / sizeof metrics[0],
    .headline = "", /* no one number */
    .figure = "map",
    .formats = ".txt|.jsonl",
    .plan = plan,
    .plan_free = plan_free,
    .add = add,
    .use_result = result,
    .fold_metrics = fold_metrics,
    .fold_items = fold_items,
};
