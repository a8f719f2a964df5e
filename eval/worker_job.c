/* The worker's commands about jobs: describe, plan, run, forget. Main thread only, but for what is under the lock.
 *
 * A plan keeps its evaluation and a reference to its model. Between the batches of a run, and now and then during a
 * plan, requests that wait are answered (worker_score.c): a job never holds them up for longer than a batch. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "eval/wire.h"
#include "eval/worker.h"

struct planned {
	struct planned *next;
	int64_t job;
	struct loaded *loaded; /* counted */
	struct evaluation *ev; /* owned */
};

static void free_planned(struct planned *p)
{
	if (!p)
		return;
	evaluation_free(p->ev);
	if (p->loaded)
		p->loaded->refs--;
	free(p);
}

static struct planned *find_planned(struct worker *w, int64_t job)
{
	struct planned *p = w->plans;

	while (p && p->job != job)
		p = p->next;
	return p;
}

static void forget(struct worker *w, int64_t job)
{
	struct planned **p = &w->plans, *gone;

	while (*p && (*p)->job != job)
		p = &(*p)->next;
	gone = *p;
	if (!gone)
		return;
	*p = gone->next;
	free_planned(gone);
	worker_drop_unused(w);
}

/* -- what runs now ----------------------------------------------------------------------------- */

/* False when the command was cancelled while it waited. */
static bool begin_phase(struct worker *w, const struct command *c, enum phase phase, uint64_t total)
{
	bool go;

	pthread_mutex_lock(&w->lock);
	go = !c->cancelled; /* from here on a cancel finds the session */
	w->now.phase = phase;
	w->now.done = 0;
	w->now.total = total;
	w->now.base = worker_done_tokens(w);
	if (w->now.running)
		session_resume(w->now.running); /* a stop of the command before */
	pthread_mutex_unlock(&w->lock);
	return go;
}

static void end_phase(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->now.phase = PHASE_NONE;
	pthread_mutex_unlock(&w->lock);
}

static void emit_simple(struct worker *w, const char *event, int64_t job)
{
	struct buf line = BUF_INIT(4096);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", event);
	json_put_int(&j, "job", job);
	json_end_object(&j);
	worker_emit(w, &line);
}

/* Ends a plan or a run that came to `rc`. A device that failed may need a new process: the server retries its units. */
static void finish(struct worker *w, const struct command *c, err_code rc, const struct err *e)
{
	end_phase(w);
	if (rc == ERR_CANCELLED) {
		emit_simple(w, "cancelled", c->job);
	} else if (rc == ERR_DEVICE && !strcmp(c->name, "run")) {
		log_error("job %lld: %s", (long long)c->job, e->msg);
		_exit(1);
	} else if (rc) {
		worker_emit_failed(w, c->job, NULL, e);
	}
}

/* -- describe ---------------------------------------------------------------------------------- */

static void describe(struct worker *w, const struct command *c)
{
	const char *name = json_get_string(c->json, "model");
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);
	struct model *m = NULL;
	char *path = NULL;
	struct err e;
	err_code rc = name ? registry_model(&w->options->registry, name, &path, &e)
	                   : err_set(&e, ERR_INPUT, "describe: no string 'model'");

	if (!rc)
		rc = model_open(path, NULL, &m, &e);
	if (rc) {
		worker_emit_failed(w, -1, name, &e);
	} else {
		json_begin_object(&j, NULL);
		json_put_string(&j, "event", "described");
		json_put_string(&j, "model", name);
		model_describe(m, &j, "description");
		json_end_object(&j);
		worker_emit(w, &line);
	}
	model_free(m);
	free(path);
}

/* -- plan -------------------------------------------------------------------------------------- */

/* What a plan command asks for; strings are borrowed from it. */
struct wish {
	const char *model, *task, *dataset, *dtype;
	const struct json *params, *position, *pins;
	char *model_path, *dataset_path; /* owned */
};

static err_code read_wish(struct worker *w, const struct json *j, struct wish *wish, struct err *e)
{
	const struct json *engine = json_get(j, "engine");
	const struct task *t;

	*wish = (struct wish){.model = json_get_string(j, "model"),
	                      .task = json_get_string(j, "task"),
	                      .dataset = json_get_string(j, "dataset"),
	                      .params = json_get(j, "params"),
	                      .dtype = json_get_string(engine, "dtype"),
	                      .position = json_get(engine, "position"),
	                      .pins = json_get(j, "pins")};
	if (!wish->model || !wish->task || !wish->dataset)
		return err_set(e, ERR_INPUT, "plan: needs the strings 'model', 'task' and 'dataset'");
	if (!w->has_device)
		return err_set(e, ERR_DEVICE, "this worker has no device: it only describes models");
	if (json_is_null(wish->position))
		wish->position = NULL;
	if (registry_model(&w->options->registry, wish->model, &wish->model_path, e))
		return e->code;
	t = task_find(wish->task, e);
	if (!t)
		return e->code;
	return task_generates(t, wish->params)
	           ? ERR_OK
	           : registry_dataset(&w->options->registry, wish->dataset, &wish->dataset_path, e);
}

static err_code check_pin(const struct wish *wish, const char *what, const char *name, const char *pin, const char *now,
                          struct err *e)
{
	const char *pinned = json_get_string(wish->pins, pin);

	if (!pinned || !strcmp(pinned, now))
		return ERR_OK;
	return err_set(e, ERR_CHANGED, "%s '%s' changed on disk: it was %s when the job began, now it is %s", what,
	               name, pinned, now);
}

static int plan_tick(void *arg, uint64_t done, uint64_t total)
{
	struct worker *w = arg;
	int stop;

	if (worker_has_scores(w))
		worker_score(w, false);
	pthread_mutex_lock(&w->lock);
	w->now.done = done;
	w->now.total = total;
	stop = w->now.command->cancelled;
	pthread_mutex_unlock(&w->lock);
	return stop;
}

static void emit_planned(struct worker *w, const struct wish *wish, const struct planned *p, const struct place *place,
                         size_t memory)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "planned");
	json_put_int(&j, "job", p->job);
	json_begin_object(&j, "plan");
	evaluation_write_plan(p->ev, wish->model, place, memory, &j);
	json_end_object(&j);
	json_end_object(&j);
	worker_emit(w, &line);
}

/* Makes the plan; *memory is its estimate. */
static err_code make_plan(struct worker *w, const struct wish *wish, struct place *place, struct planned *p,
                          size_t *memory, struct err *e)
{
	struct evaluation_watch watch = {.tick = plan_tick, .arg = w};
	const struct task *t = task_find(wish->task, e);
	const char *pinned = json_get_string(wish->pins, "signature");
	const struct model *m;
	err_code rc;

	if (!t || worker_load(w, wish->model_path, wish->position, place->dtype, &p->loaded, e))
		return e->code;
	p->loaded->refs++;
	m = p->loaded->model;
	if (pinned && strcmp(pinned, place->signature) != 0)
		return err_set(e, ERR_CONFLICT, "this worker is '%s', and the job began on '%s'", place->signature,
		               pinned);
	if (check_pin(wish, "model", wish->model, "model", m->fingerprint, e) ||
	    check_pin(wish, "tokenizer of", wish->model, "tokenizer", m->tokenizer_fingerprint, e))
		return e->code;
	rc = evaluation_open(m, t, wish->params, wish->dataset_path, wish->dataset, &w->options->registry, &watch,
	                     &p->ev, e);
	if (rc)
		return rc;
	if (check_pin(wish, "dataset", wish->dataset, "dataset", evaluation_fingerprint(p->ev), e))
		return e->code;
	if (device_describe(w->device.device, &place->device, e)) /* requests may have taken memory meanwhile */
		return e->code;
	return place_fits(place, m, evaluation_batch_size(p->ev), worker_held_bytes(w), memory, e);
}

static void plan(struct worker *w, const struct command *c)
{
	struct planned *p = NULL;
	struct wish wish = {0};
	struct place place;
	size_t memory = 0;
	struct err e;
	err_code rc;

	forget(w, c->job);
	if (!begin_phase(w, c, PHASE_PLAN, 0))
		rc = ERR_CANCELLED;
	else
		rc = read_wish(w, c->json, &wish, &e);
	if (!rc)
		rc = place_init(&place, w->device.device, wish.dtype, w->options->n_threads, &e);
	if (!rc) {
		p = mem_zalloc(1, sizeof *p, &e);
		rc = p ? ERR_OK : ERR_MEMORY;
	}
	if (!rc) {
		p->job = c->job;
		rc = make_plan(w, &wish, &place, p, &memory, &e);
	}
	finish(w, c, rc, &e);
	if (!rc) {
		p->next = w->plans;
		w->plans = p;
		emit_planned(w, &wish, p, &place, memory);
	} else {
		free_planned(p);
	}
	worker_drop_unused(w);
	free(wish.model_path);
	free(wish.dataset_path);
}

/* -- run --------------------------------------------------------------------------------------- */

/* Half-open ranges [[0,8],[12,13]] to a list. */
static err_code read_units(const struct json *ranges, uint32_t n_units, uint32_t **out, uint32_t *n, struct err *e)
{
	const struct json *r;
	int64_t a, b, total = 0;
	uint32_t *units;

	for (r = json_first(ranges); r; r = json_next(r)) {
		if (json_count(r) != 2 || !json_integer(json_first(r), &a) ||
		    !json_integer(json_next(json_first(r)), &b) || a < 0 || a >= b || b > n_units)
			return err_set(e, ERR_INPUT, "run: a unit range is not [from, to) within %u units", n_units);
		total += b - a;
	}
	if (!total || total > n_units)
		return err_set(e, ERR_INPUT, "run: %lld units of %u", (long long)total, n_units);
	units = mem_alloc((size_t)total, sizeof *units, e);
	if (!units)
		return e->code;
	*n = 0;
	for (r = json_first(ranges); r; r = json_next(r)) {
		json_integer(json_first(r), &a);
		json_integer(json_next(json_first(r)), &b);
		for (; a < b; a++)
			units[(*n)++] = (uint32_t)a;
	}
	*out = units;
	return ERR_OK;
}

/* Results of the units that are scored together, until they go out as one event. */
struct outbox {
	struct worker *w;
	int64_t job;
	struct buf units; /* "[0,{...}],[1,{...}]" */
	uint64_t tokens;
	double since_s;
	struct loaded *loaded; /* borrowed: the plan's */
};

static int unit_done(void *arg, uint32_t unit, const char *result, uint64_t tokens)
{
	struct outbox *o = arg;

	buf_printf(&o->units, "%s[%u,", o->units.len ? "," : "", unit);
	buf_puts(&o->units, result);
	buf_putc(&o->units, ']');
	o->tokens += tokens;
	return 0;
}

static void batch_done(void *arg)
{
	struct outbox *o = arg;
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);
	double now_s = clock_mono_s();

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "units");
	json_put_int(&j, "job", o->job);
	json_begin_array(&j, "units");
	json_put_raw(&j, NULL, buf_str(&o->units));
	json_end_array(&j);
	json_put_uint(&j, "tokens", o->tokens);
	json_put_double(&j, "seconds", now_s - o->since_s);
	json_end_object(&j);
	worker_emit(o->w, &line);
	buf_clear(&o->units);
	o->tokens = 0;
	o->since_s = now_s;
}

static void unit_failed(void *arg, uint32_t unit, const struct err *why)
{
	struct outbox *o = arg;
	struct buf line = BUF_INIT(1 << 16);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "failed");
	json_put_int(&j, "job", o->job);
	json_begin_array(&j, "units");
	json_put_uint(&j, NULL, unit);
	json_end_array(&j);
	json_put_string(&j, "code", err_name(why->code));
	json_put_string(&j, "message", why->msg);
	json_end_object(&j);
	worker_emit(o->w, &line);
}

/* Answers requests that wait, in a pause in which the session may be another model's. */
static err_code give_way(void *arg, struct session **s, struct err *e)
{
	struct outbox *o = arg;
	struct worker *w = o->w;
	double since_s = clock_mono_s();
	bool cancelled;

	if (!worker_has_scores(w))
		return ERR_OK;
	*s = NULL;
	worker_score(w, false);
	if (worker_job_session(w, o->loaded, e))
		return e->code;
	pthread_mutex_lock(&w->lock);
	cancelled = w->now.command->cancelled;
	if (!cancelled)
		session_resume(o->loaded->session);
	pthread_mutex_unlock(&w->lock);
	*s = o->loaded->session;
	o->since_s += clock_mono_s() - since_s;
	return cancelled ? err_set(e, ERR_CANCELLED, "cancelled between two batches") : ERR_OK;
}

static void run(struct worker *w, const struct command *c)
{
	struct outbox o = {.w = w, .job = c->job, .units = BUF_INIT(WIRE_MAX_LINE - 4096)};
	struct evaluation_sink sink = {
	    .done = unit_done, .failed = unit_failed, .batch = batch_done, .turn = give_way, .arg = &o};
	struct planned *p = find_planned(w, c->job);
	uint32_t *units = NULL, n = 0;
	uint64_t total = 0;
	struct err e;
	err_code rc;

	if (!p) {
		finish(w, c, err_set(&e, ERR_CONFLICT, "run: job %lld is not planned here", (long long)c->job), &e);
		return;
	}
	rc = read_units(json_get(c->json, "units"), evaluation_n_units(p->ev), &units, &n, &e);
	if (!rc)
		rc = worker_job_session(w, p->loaded, &e);
	for (uint32_t i = 0; i < n; i++)
		total += evaluation_unit_tokens(p->ev, units[i]);
	if (!rc && !begin_phase(w, c, PHASE_RUN, total))
		rc = ERR_CANCELLED;
	if (!rc) {
		o.loaded = p->loaded;
		o.since_s = clock_mono_s();
		rc = evaluation_run(p->ev, p->loaded->session, units, n, &sink, &e);
	}
	finish(w, c, rc, &e);
	if (!rc)
		emit_simple(w, "idle", c->job);
	buf_release(&o.units);
	free(units);
}

void worker_do(struct worker *w, struct command *c)
{
	if (!strcmp(c->name, "describe"))
		describe(w, c);
	else if (!strcmp(c->name, "plan"))
		plan(w, c);
	else if (!strcmp(c->name, "run"))
		run(w, c);
	else if (!strcmp(c->name, "forget"))
		forget(w, c->job);
	else
		worker_do_tokens(w, c);
}
