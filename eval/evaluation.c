/* Evaluations: a task opened on a dataset, and the loop that scores units in batches. Knows no task by name. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log.h"
#include "eval/catalog.h"
#include "eval/task.h"

#define MAX_UNITS    (4u << 20) /* so that a plan stays under the wire's longest line */

#define SMALL_BATCH  8192 /* session_batch_tokens of a CPU; a device with more of it chooses it by its free memory */
#define MAX_TOGETHER 4096 /* units of a batch, many of which may have no token */

/* -- opening ----------------------------------------------------------------------------------- */

/* Every unit's batch is made once to see what it asks for: a copy of its tokens, nothing beside scoring them. The
 * dataset is read by now, which is what the watch is told. */
static err_code count_work(struct evaluation *ev, struct err *e)
{
	struct batch_builder b = {0};
	err_code rc = ERR_OK;

	for (uint32_t i = 0; !rc && i < ev->n_units; i++) {
		if (ev->watch && ev->watch->tick(ev->watch->arg, 1, 1)) {
			rc = err_set(e, ERR_CANCELLED, "stopped while it was planned");
			break;
		}
		b.n_tokens = b.n_segments = 0;
		rc = ev->task->add(ev->plan, i, &b, e);
		ev->n_segments += b.n_segments;
		if (!rc)
			ev->flops +=
			    model_flops(&ev->model->config, &(struct batch){b.tokens, b.score, (uint32_t)b.n_tokens,
			                                                    b.segments, (uint32_t)b.n_segments});
	}
	batch_builder_release(&b);
	return rc;
}

/* Published scores are of published files. */
static err_code warn_of_other_data(struct evaluation *ev, struct err *e)
{
	const struct catalog_entry *known = catalog_of_task(ev->task->name);
	bool official;

	if (!known || known->open || !ev->dataset_path)
		return ERR_OK;
	if (catalog_check(known, ev->dataset_path, &official, e))
		return err_wrap(e, "dataset '%s'", ev->dataset_name);
	if (!official)
		evaluation_warn(ev,
		                "dataset '%s' is not the official %s data (`fathom datasets fetch %s` gets it): scores "
		                "may differ from published ones",
		                ev->dataset_name, known->name, known->name);
	return ERR_OK;
}

err_code evaluation_open(const struct model *m, const struct task *t, const struct json *params,
                         const char *dataset_path, const char *dataset_name, const struct registry *registry,
                         const struct evaluation_watch *watch, struct evaluation **out, struct err *e)
{
	struct evaluation *ev = mem_zalloc(1, sizeof *ev, e);
	struct param_value v[TASK_MAX_PARAMS];
	err_code rc;

	if (!ev)
		return e->code;
	ev->model = m;
	ev->task = t;
	ev->registry = registry;
	ev->watch = watch;
	ev->warnings = BUF_INIT(1 << 20);
	rc = param_values(t, params, v, e);
	if (!rc) {
		ev->dataset_name = mem_strdup(dataset_name, e);
		ev->dataset_path = dataset_path ? mem_strdup(dataset_path, e) : NULL;
		rc = ev->dataset_name && (ev->dataset_path || !dataset_path) ? ERR_OK : ERR_MEMORY;
	}
	if (!rc)
		rc = task_check_dataset(t, params, dataset_path != NULL, e);
	if (!rc && !dataset_path)
		rc = evaluation_generate(ev, v, e);
	if (!rc)
		rc = t->plan(ev, v, e);
	buf_release(&ev->generated);
	if (!rc)
		rc = warn_of_other_data(ev, e);
	if (!rc)
		rc = buf_check(&ev->warnings, "warnings", e);
	if (!rc)
		rc = count_work(ev, e);
	param_values_release(v);
	ev->registry = NULL;
	ev->watch = NULL;
	if (rc)
		evaluation_free(ev);
	else
		*out = ev;
	return rc;
}

void evaluation_free(struct evaluation *ev)
{
	if (!ev)
		return;
	ev->task->plan_free(ev->plan);
	free(ev->dataset_name);
	free(ev->dataset_path);
	free(ev->unit_tokens);
	buf_release(&ev->warnings);
	free(ev);
}

err_code evaluation_check_tokenizer(const struct evaluation *ev, struct err *e)
{
	if (ev->model->tokenizer)
		return ERR_OK;
	return err_set(e, ERR_INPUT, "model '%s' has no tokenizer.json, and task %s needs text", ev->model->name,
	               ev->task->name);
}

err_code evaluation_check_ids(const struct evaluation *ev, const struct token_list *l, struct err *e)
{
	uint32_t n_vocab = ev->model->config.n_vocab;

	for (size_t i = 0; i < l->n; i++)
		if (l->ids[i] >= n_vocab)
			return err_set(e, ERR_INPUT, "token id %u is beyond the model's vocabulary of %u", l->ids[i],
			               n_vocab);
	return ERR_OK;
}

err_code evaluation_add_unit(struct evaluation *ev, uint64_t tokens, uint64_t chain, struct err *e)
{
	uint64_t *p;

	if (ev->n_units == MAX_UNITS)
		return err_set(e, ERR_INPUT, "more than %u units of work: take fewer documents or a longer stride",
		               MAX_UNITS);
	p = mem_grow(ev->unit_tokens, &ev->cap_units, ev->n_units + 1u, sizeof *p, e);
	if (!p)
		return e->code;
	ev->unit_tokens = p;
	ev->unit_tokens[ev->n_units++] = tokens;
	ev->tokens += tokens;
	if (chain > ev->largest_chain)
		ev->largest_chain = chain;
	return ERR_OK;
}

void evaluation_warn(struct evaluation *ev, const char *fmt, ...)
{
	struct json_writer w = JSON_WRITER(&ev->warnings);
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (ev->warnings.len)
		buf_putc(&ev->warnings, ',');
	json_put_string(&w, NULL, text);
}

uint32_t evaluation_n_units(const struct evaluation *ev)
{
	return ev->n_units;
}

uint64_t evaluation_unit_tokens(const struct evaluation *ev, uint32_t unit)
{
	assert(unit < ev->n_units);
	return ev->unit_tokens[unit];
}

uint64_t evaluation_tokens(const struct evaluation *ev)
{
	return ev->tokens;
}

double evaluation_flops_per_token(const struct evaluation *ev)
{
	return ev->tokens ? ev->flops / (double)ev->tokens : 0;
}

struct batch_size evaluation_batch_size(const struct evaluation *ev)
{
	uint64_t n = ev->tokens < SMALL_BATCH ? ev->tokens : SMALL_BATCH;

	if (ev->largest_chain > n)
		n = ev->largest_chain;
	return (struct batch_size){n, ev->tokens ? (n * ev->n_segments - 1) / ev->tokens + 1 : 0};
}

const char *evaluation_fingerprint(const struct evaluation *ev)
{
	return ev->fingerprint;
}

static void write_engine(const struct evaluation *ev, const struct place *p, struct json_writer *w)
{
	double peak = place_peak_flops(p);

	json_begin_object(w, "engine");
	json_put_string(w, "device", p->device.device);
	json_put_string(w, "device_name", p->device.name);
	json_put_string(w, "dtype", p->dtype);
	if (ev->model->override)
		json_put_raw(w, "position", ev->model->override);
	else
		json_put_null(w, "position");
	json_put_string(w, "version", engine_version());
	json_put_string(w, "signature", p->signature);
	json_put_double(w, "model_flops_per_token", evaluation_flops_per_token(ev));
	if (peak > 0)
		json_put_double(w, "peak_flops", peak);
	else
		json_put_null(w, "peak_flops");
	json_end_object(w);
}

void evaluation_write_plan(const struct evaluation *ev, const char *model_name, const struct place *p,
                           size_t memory_bytes, struct json_writer *w)
{
	json_begin_object(w, "model");
	json_put_string(w, "name", model_name);
	json_put_string(w, "fingerprint", ev->model->fingerprint);
	json_put_string(w, "tokenizer_fingerprint", ev->model->tokenizer_fingerprint);
	json_put_uint(w, "n_params", ev->model->n_params);
	position_write(&ev->model->config.position, w, "position");
	json_end_object(w);
	write_engine(ev, p, w);
	json_begin_object(w, "dataset");
	json_put_string(w, "name", ev->dataset_name);
	json_put_string(w, "fingerprint", ev->fingerprint);
	json_put_uint(w, "n_items", ev->n_items);
	json_put_uint(w, "n_docs", ev->n_docs);
	json_end_object(w);
	json_put_uint(w, "n_units", ev->n_units);
	json_put_uint(w, "tokens", ev->tokens);
	json_begin_array(w, "unit_tokens");
	for (uint32_t i = 0; i < ev->n_units; i++)
		json_put_uint(w, NULL, ev->unit_tokens[i]);
	json_end_array(w);
	json_begin_array(w, "warnings");
	if (ev->warnings.len)
		json_put_raw(w, NULL, buf_str(&ev->warnings));
	json_end_array(w);
	json_put_uint(w, "memory_bytes", memory_bytes);
}

/* -- batches ----------------------------------------------------------------------------------- */

err_code batch_builder_add(struct batch_builder *b, int32_t parent, uint32_t len, uint32_t *start, struct err *e)
{
	size_t n = b->n_tokens + len, cap = b->cap_tokens;
	struct segment *segments;
	uint32_t *tokens;
	uint8_t *score;

	assert(len && parent < (int32_t)b->n_segments);
	if (n > UINT32_MAX)
		return err_set(e, ERR_MEMORY, "a batch of %zu tokens", n);
	tokens = mem_grow(b->tokens, &cap, n, sizeof *tokens, e);
	if (!tokens)
		return e->code;
	b->tokens = tokens;
	score = mem_grow(b->score, &b->cap_tokens, n, sizeof *score, e);
	if (!score)
		return e->code;
	b->score = score;
	segments = mem_grow(b->segments, &b->cap_segments, b->n_segments + 1, sizeof *segments, e);
	if (!segments)
		return e->code;
	b->segments = segments;
	*start = (uint32_t)b->n_tokens;
	memset(b->tokens + *start, 0, len * sizeof *b->tokens);
	memset(b->score + *start, 0, len);
	b->segments[b->n_segments++] = (struct segment){.parent = parent, .start = *start, .len = len};
	b->n_tokens = n;
	return ERR_OK;
}

void batch_builder_release(struct batch_builder *b)
{
	free(b->tokens);
	free(b->score);
	free(b->segments);
	*b = (struct batch_builder){0};
}

/* -- running ----------------------------------------------------------------------------------- */

struct run {
	struct evaluation *ev;
	struct session *session; /* may be another after a turn; NULL: it failed */
	const struct evaluation_sink *sink;
	uint64_t budget;            /* input tokens of a batch, unless one chain is longer */
	uint64_t too_large;         /* input tokens of the batch that did not fit in memory; 0: none */
	bool one_chain;             /* it was a single chain, so that no smaller batch will do */
	struct batch_builder built; /* of the units now scored together */
	struct token_score *scores; /* [cap_scores] owned: of built.tokens */
	size_t cap_scores;
	struct frequency_use use; /* sums [n_sums] owned: of the unit that is scored, if its task asks */
	size_t n_sums;
};

/* Between two batches. What others score then is not counted. */
static err_code take_turn(struct run *r, struct err *e)
{
	err_code rc;

	if (!r->sink->turn)
		return ERR_OK;
	if (r->use.sums)
		session_probe(r->session, NULL);
	rc = r->sink->turn(r->sink->arg, &r->session, e);
	if (!rc && r->use.sums)
		session_probe(r->session, &r->use);
	return rc;
}

/* Input tokens of segments first..end, as units count theirs: a chain has one less than tokens, so a tree one less a
 * leaf. The first child of a segment stands right after it. */
static uint64_t count_inputs(const struct batch_builder *b, size_t first, size_t end)
{
	uint64_t n = 0;

	for (size_t i = first; i < end; i++) {
		bool leaf = i + 1 == b->n_segments || b->segments[i + 1].parent != (int32_t)i;

		n += b->segments[i].len - leaf;
	}
	return n;
}

/* Scores segments first..end as one batch. */
static err_code score_segments(struct run *r, size_t first, size_t end, struct err *e)
{
	const struct segment *s = r->built.segments;
	uint32_t base = s[first].start;
	struct batch b = {.tokens = r->built.tokens + base,
	                  .score = r->built.score + base,
	                  .n_tokens = s[end - 1].start + s[end - 1].len - base,
	                  .n_segments = (uint32_t)(end - first)};
	struct segment *local;
	size_t roots = 0;
	err_code rc;

	if (take_turn(r, e) || !(local = mem_alloc(end - first, sizeof *local, e)))
		return e->code;
	for (size_t i = first; i < end; i++) {
		local[i - first] = s[i];
		local[i - first].start -= base;
		if (s[i].parent >= 0)
			local[i - first].parent -= (int32_t)first;
		roots += s[i].parent < 0;
	}
	b.segments = local;
	rc = session_score(r->session, &b, r->scores + base, e);
	if (rc == ERR_MEMORY) {
		r->too_large = count_inputs(&r->built, first, end);
		r->one_chain = roots == 1;
		err_wrap(e, "a batch of %u tokens", b.n_tokens);
	}
	free(local);
	return rc;
}

/* Scores all that is built, cut where a chain begins so that a batch keeps to the budget: in input tokens, as units
 * count theirs. Else a group that fills the budget would leave a chain. Where memory is short, many short segments are
 * beyond it sooner. */
static err_code score_built(struct run *r, struct err *e)
{
	const struct batch_builder *b = &r->built;
	size_t first = 0, tree = 0;   /* first segment of the batch, and of the last whole chain in it */
	struct batch_size size = {0}; /* of the batch, in input tokens */

	if (r->cap_scores < b->n_tokens) {
		free(r->scores);
		r->scores = mem_alloc(b->n_tokens, sizeof *r->scores, e);
		r->cap_scores = r->scores ? b->n_tokens : 0;
		if (!r->scores)
			return e->code;
	}
	for (size_t i = 1; i <= b->n_segments; i++) {
		uint64_t last;

		if (i < b->n_segments && b->segments[i].parent >= 0)
			continue;
		/* a chain ends before segment i */
		last = count_inputs(b, tree, i);
		size.n_tokens += last;
		size.n_segments += i - tree;
		if (tree > first && (size.n_tokens > r->budget || !session_takes(r->session, size))) {
			if (score_segments(r, first, tree, e))
				return e->code;
			first = tree;
			size = (struct batch_size){last, i - tree};
		}
		tree = i;
	}
	return b->n_segments ? score_segments(r, first, b->n_segments, e) : ERR_OK;
}

/* Scores n units together and reports them. Nothing has been reported when it fails, except by the sink's own stop. */
static err_code run_together(struct run *r, const uint32_t *units, uint32_t n, struct err *e)
{
	const struct task *t = r->ev->task;
	const struct evaluation_sink *sink = r->sink;
	struct buf all = BUF_INIT((size_t)1 << 30); /* results with NULs between: reported when all are made */
	size_t *at = mem_alloc(n, sizeof *at, e);
	err_code rc = at ? ERR_OK : ERR_MEMORY;

	r->built.n_tokens = r->built.n_segments = 0;
	r->use.n_rows = 0;
	if (r->use.sums)
		memset(r->use.sums, 0, r->n_sums * sizeof *r->use.sums);
	for (uint32_t i = 0; i < n && !rc; i++) {
		at[i] = r->built.n_tokens;
		rc = t->add(r->ev->plan, units[i], &r->built, e);
	}
	if (!rc)
		rc = score_built(r, e);
	for (uint32_t i = 0; i < n && !rc; i++) {
		struct json_writer w = JSON_WRITER(&all);
		size_t start = all.len;

		rc = t->use_result ? t->use_result(r->ev->plan, units[i], &r->use, &w, e)
		                   : t->result(r->ev->plan, units[i], r->scores + at[i], &w, e);
		buf_putc(&all, '\0');
		at[i] = start;
	}
	if (!rc)
		rc = buf_check(&all, "unit results", e);
	for (uint32_t i = 0; i < n && !rc; i++)
		if (sink->done(sink->arg, units[i], all.data + at[i], r->ev->unit_tokens[units[i]]))
			rc = err_set(e, ERR_CANCELLED, "stopped after unit %u", units[i]);
	if (!rc && sink->batch)
		sink->batch(sink->arg);
	free(at);
	buf_release(&all);
	return rc;
}

/* After a batch that did not fit: false when a smaller one cannot be. */
static bool shrink(struct run *r, const struct err *why)
{
	if (!r->too_large || r->one_chain)
		return false;
	r->budget = r->too_large / 2;
	while (session_batch_tokens(r->session) > r->budget && session_shrink(r->session))
		; /* so that later calls begin with what fits */
	log_warn("%s: from here on batches have %llu tokens", why->msg, (unsigned long long)r->budget);
	return true;
}

/* As run_together, in batches that are as small as the memory wants them. */
static err_code run_fitting(struct run *r, const uint32_t *units, uint32_t n, struct err *e)
{
	err_code rc;

	do {
		r->too_large = 0;
		rc = run_together(r, units, n, e);
	} while (rc == ERR_MEMORY && shrink(r, e));
	return rc;
}

/* Scores n units together; after a failure that is some unit's own each of several alone, so that only the guilty
 * fail. */
static err_code run_group(struct run *r, const uint32_t *units, uint32_t n, struct err *e)
{
	struct err why;
	err_code rc = run_fitting(r, units, n, &why);
	bool own = rc == ERR_NUMERIC || (rc == ERR_MEMORY && r->too_large);

	if (own && n == 1) {
		r->sink->failed(r->sink->arg, units[0], &why);
		return ERR_OK;
	}
	if (rc && !own) {
		*e = why;
		return rc;
	}
	for (uint32_t i = 0; rc && i < n; i++)
		if (run_group(r, units + i, 1, e))
			return e->code;
	return ERR_OK;
}

static err_code open_probe(struct run *r, struct err *e)
{
	const struct model_config *c = &r->ev->model->config;

	if (!r->ev->task->use_result)
		return ERR_OK;
	r->n_sums = 2 * (size_t)c->n_layer * position_count_freq(&c->position, c->head_dim);
	r->use.sums = mem_zalloc(r->n_sums, sizeof *r->use.sums, e);
	if (!r->use.sums)
		return e->code;
	session_probe(r->session, &r->use);
	return ERR_OK;
}

err_code evaluation_run(struct evaluation *ev, struct session *s, const uint32_t *units, uint32_t n,
                        const struct evaluation_sink *sink, struct err *e)
{
	struct run r = {.ev = ev, .session = s, .sink = sink, .budget = session_batch_tokens(s)};
	uint32_t most = ev->task->use_result ? 1 : MAX_TOGETHER, i, together;
	err_code rc = open_probe(&r, e);

	for (i = 0; i < n && !rc; i += together) {
		uint64_t tokens = ev->unit_tokens[units[i]];

		for (together = 1; i + together < n && together < most; together++) {
			tokens += ev->unit_tokens[units[i + together]];
			if (tokens > r.budget)
				break;
		}
		rc = run_group(&r, units + i, together, e);
	}
	if (r.session)
		session_probe(r.session, NULL);
	batch_builder_release(&r.built);
	free(r.scores);
	free(r.use.sums);
	return rc;
}
