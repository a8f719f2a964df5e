/* See fixture_task.h. */
#include "tests/fixture_task.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"

static struct err e;

static err_code open_task(const struct model *m, const struct task *t, const struct json *params, const char *path,
                          struct evaluation **ev)
{
	return evaluation_open(m, t, params, path, path ? "data" : GENERATED_DATASET, NULL, NULL, ev, &e);
}

static struct json *plan_of(const struct evaluation *ev)
{
	struct buf text = BUF_INIT(1 << 24);
	struct json_writer w = JSON_WRITER(&text);
	struct place place;
	struct json *j;

	ck_ok(place_init(&place, "cpu", "f32", 1, &e), &e);
	json_begin_object(&w, NULL);
	evaluation_write_plan(ev, "m", &place, 0, &w);
	json_end_object(&w);
	j = fixture_json(buf_str(&text));
	buf_release(&text);
	return j;
}

static struct session *open_session(const struct model *m, int n_threads)
{
	struct session_options o = {.device = "cpu", .dtype = "f32", .n_threads = n_threads};
	struct session *s = NULL;

	ck_ok(session_open(m, &o, &s, &e), &e);
	return s;
}

void fixture_task_run_in(const struct model *m, const char *task, const char *params, const char *path, int n_threads,
                         uint32_t most, struct fixture_outcome *out)
{
	const struct task *t = task_find(task, &e);
	struct session *s = open_session(m, n_threads);
	struct evaluation *ev = NULL;
	uint32_t *units, n_units;

	ck_assert_ptr_nonnull(t);
	*out = (struct fixture_outcome){.params = fixture_params(t, params)};
	ck_ok(open_task(m, t, out->params, path, &ev), &e);
	n_units = evaluation_n_units(ev);
	fixture_units_init(&out->units, n_units);
	units = calloc(n_units, sizeof *units);
	ck_assert_ptr_nonnull(units);
	for (uint32_t i = 0; i < n_units; i++)
		units[i] = i;
	for (uint32_t i = 0; i < n_units; i += most)
		fixture_run(ev, s, units + i, most < n_units - i ? most : n_units - i, &out->units);
	free(units);
	out->plan = plan_of(ev);
	out->metrics = fixture_metrics(t, out->params, &out->units);
	out->items = fixture_items(t, out->params, &out->units);
	evaluation_free(ev);
	session_close(s);
}

void fixture_task_run(const struct model *m, const char *task, const char *params, const char *path,
                      struct fixture_outcome *out)
{
	fixture_task_run_in(m, task, params, path, 1, UINT32_MAX / 2, out);
}

void fixture_outcome_release(struct fixture_outcome *o)
{
	json_free(o->params);
	json_free(o->plan);
	json_free(o->metrics);
	json_free(o->items);
	fixture_units_release(&o->units);
}

void fixture_task_refused(const struct model *m, const char *task, const char *params, const char *path, err_code code,
                          const char *words)
{
	const struct task *t = task_find(task, &e);
	struct evaluation *ev = NULL;
	struct json *p;

	ck_assert_ptr_nonnull(t);
	p = fixture_params(t, params);
	ck_err(open_task(m, t, p, path, &ev), code, words, &e);
	ck_assert_ptr_null(ev);
	json_free(p);
}

bool fixture_warned(const struct fixture_outcome *o, const char *words)
{
	for (const struct json *s = json_first(json_get(o->plan, "warnings")); s; s = json_next(s))
		if (strstr(json_string(s), words))
			return true;
	return false;
}

const struct json *fixture_item(const struct fixture_outcome *o, size_t i)
{
	const struct json *item = json_first(o->items);

	for (; item && i; i--)
		item = json_next(item);
	ck_assert_ptr_nonnull(item);
	return item;
}

double fixture_loss(const struct model *m, const uint32_t *ids, uint32_t n, uint32_t first)
{
	struct segment segment = {.parent = -1, .len = n};
	struct token_score *scores = calloc(n, sizeof *scores);
	uint8_t *mask = calloc(n, 1);
	struct batch b = {ids, mask, n, &segment, 1};
	struct session *s = fixture_eval_session(m);
	double nll = 0;

	ck_assert(scores && mask);
	memset(mask + first, 1, n - first);
	ck_ok(session_score(s, &b, scores, &e), &e);
	for (uint32_t i = first; i < n; i++)
		nll -= (double)scores[i].logprob;
	session_close(s);
	free(scores);
	free(mask);
	return nll;
}
