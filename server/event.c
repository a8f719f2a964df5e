/* Events of workers (eval/wire.h).
 *
 * An event that must be stored is stored first, in one transaction, and changes memory only after the commit:
 * when the store refuses, nothing has happened and the same line comes again. What a worker may not say
 * condemns it, never the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "eval/wire.h"
#include "server/core_private.h"

#define PROGRESS_MS 1000 /* at most one progress event a job in this time */
#define SHOW_MS     250  /* and one wake of its watchers */

/* What a handler works on. `job` is NULL when the event is about a plan that is not this worker's any more, or
 * about a job that is gone. */
struct wire_event {
	struct core *c;
	size_t w;
	struct slot *slot;
	struct sched_worker *worker;
	struct sched_job *job;
	struct json *json;
	bool taken; /* json is another's now */
	bool mine;  /* it carries the worker's ticket */
	int64_t now;
};

static err_code bad_event(struct wire_event *v, const char *what)
{
	supervise_condemn(v->c, v->w, what);
	return ERR_OK;
}

static void copy_text(char *out, size_t size, const char *s)
{
	snprintf(out, size, "%s", s ? s : "");
}

static void read_device(const struct json *j, struct device_info *out)
{
	int64_t memory = 0, threads = 0;

	*out = (struct device_info){.bf16 = json_true(json_get(j, "bf16"))};
	copy_text(out->device, sizeof out->device, json_get_string(j, "device"));
	copy_text(out->kind, sizeof out->kind, json_get_string(j, "kind"));
	copy_text(out->name, sizeof out->name, json_get_string(j, "name"));
	copy_text(out->isa, sizeof out->isa, json_get_string(j, "isa"));
	copy_text(out->libraries, sizeof out->libraries, json_get_string(j, "libraries"));
	json_get_integer(j, "n_threads", &threads);
	json_get_integer(j, "memory_bytes", &memory);
	out->n_threads = threads > 0 && threads < 1 << 16 ? (uint32_t)threads : 0;
	out->memory_bytes = memory > 0 ? (size_t)memory : 0;
}

static err_code on_hello(struct wire_event *v, struct err *e)
{
	const struct json *device = json_get(v->json, "device");
	struct sched_worker *k = v->worker;
	struct err why;
	int64_t protocol = 0;

	(void)e;
	if (v->slot->hello)
		return bad_event(v, "it said hello twice");
	if (!json_get_integer(v->json, "protocol", &protocol) || protocol != WIRE_PROTOCOL)
		return bad_event(v, "it speaks another version of the protocol: is it another fathom?");
	if (scheduler_up(&v->c->sched, v->w, json_get_string(device, "device"), json_get_string(device, "kind"),
	                 json_get(v->json, "signatures"), &why))
		return bad_event(v, why.msg);
	v->slot->hello = true;
	read_device(device, &v->slot->device);
	log_info("%s: ready: %s, %s", v->slot->name, k->device,
	         k->n_signatures ? k->signatures[0].signature : "no dtype");
	return ERR_OK;
}

/* Told once, and again when the reason changes. */
static err_code on_unusable(struct wire_event *v, struct err *e)
{
	struct err why;

	(void)e;
	event_failure(v->json, &why);
	if (v->slot->hello)
		return bad_event(v, "it said hello and then that it is unusable");
	if (strncmp(v->worker->unusable, why.msg, sizeof v->worker->unusable - 1) != 0)
		log_warn("%s (%s) is unusable, and is tried again every minute: %s", v->slot->name, v->slot->spec,
		         why.msg);
	v->slot->unusable = true;
	scheduler_unusable(&v->c->sched, v->w, why.msg);
	return ERR_OK;
}

/* The running command, plan or cancel is over for a job that wants no more of it. */
static err_code settle_worker(struct wire_event *v)
{
	dispatch_forget(v->c, v->w);
	scheduler_settled(&v->c->sched, v->w);
	v->slot->kill_ms = 0;
	return ERR_OK;
}

static bool is_unwanted(const struct wire_event *v)
{
	return !v->job || v->job->state == JOB_CANCELLING;
}

/* -- plans ------------------------------------------------------------------------------------- */

struct plan {
	struct job_pins pins; /* borrowed strings */
	int64_t n_units, tokens;
	uint32_t *unit_tokens; /* [n_units] owned */
	struct buf text;       /* owned: the plan without unit_tokens */
};

static void plan_release(struct plan *p)
{
	free(p->unit_tokens);
	buf_release(&p->text);
}

static bool read_unit_tokens(const struct json *list, struct plan *p)
{
	int64_t v, i = 0;

	p->unit_tokens = calloc((size_t)p->n_units + 1, sizeof *p->unit_tokens);
	if (!p->unit_tokens)
		return false;
	for (const struct json *t = json_first(list); t; t = json_next(t)) {
		if (i == p->n_units || !json_integer(t, &v) || v < 0 || v > UINT32_MAX)
			return false;
		p->unit_tokens[i++] = (uint32_t)v;
	}
	return i == p->n_units;
}

/* False: the plan is not one. */
static bool read_plan(const struct json *j, struct plan *p)
{
	const struct json *model = json_get(j, "model"), *dataset = json_get(j, "dataset"),
	                  *engine = json_get(j, "engine");
	struct json_writer w = JSON_WRITER(&p->text);

	/* the strings stay the tree's; job_pins has no const because elsewhere it owns */
	p->pins.model = (char *)json_get_string(model, "fingerprint");
	p->pins.tokenizer = (char *)json_get_string(model, "tokenizer_fingerprint");
	p->pins.dataset = (char *)json_get_string(dataset, "fingerprint");
	p->pins.signature = (char *)json_get_string(engine, "signature");
	if (!p->pins.model || !p->pins.tokenizer || !p->pins.dataset || !p->pins.signature)
		return false;
	if (!json_get_integer(j, "n_units", &p->n_units) || p->n_units < 0 || p->n_units > INT32_MAX ||
	    !json_get_integer(j, "tokens", &p->tokens) || p->tokens < 0)
		return false;
	if (!read_unit_tokens(json_get(j, "unit_tokens"), p))
		return false;
	json_begin_object(&w, NULL);
	for (const struct json *m = json_first(j); m; m = json_next(m))
		if (strcmp(json_key(m), "unit_tokens") != 0)
			json_put_value(&w, json_key(m), m);
	json_end_object(&w);
	return !p->text.failed;
}

/* What differs from the first plan, or NULL. */
static const char *changed(const struct sched_job *j, const struct plan *p)
{
	if (strcmp(j->pins.model, p->pins.model) != 0)
		return "model changed on disk";
	if (strcmp(j->pins.tokenizer, p->pins.tokenizer) != 0)
		return "tokenizer changed on disk";
	if (strcmp(j->pins.dataset, p->pins.dataset) != 0)
		return "dataset changed on disk";
	if (strcmp(j->pins.signature, p->pins.signature) != 0)
		return "the worker's signature is not the first plan's";
	if (j->n_units != p->n_units)
		return "the plan has another number of units than the first";
	return NULL;
}

static err_code copy_pins(const struct job_pins *from, struct job_pins *to, struct err *e)
{
	to->model = mem_strdup(from->model, e);
	to->tokenizer = mem_strdup(from->tokenizer, e);
	to->dataset = mem_strdup(from->dataset, e);
	to->signature = mem_strdup(from->signature, e);
	return to->model && to->tokenizer && to->dataset && to->signature ? ERR_OK : ERR_MEMORY;
}

/* In the transaction of its first plan. */
static err_code take_cached(struct wire_event *v, int64_t *from, struct err *e)
{
	struct err ignored; /* one that is not known here may be the worker's; it is computed */
	const struct task *t = task_find(v->job->task, &ignored);

	return t ? store_job_take_cached(v->c->store, v->job->id, task_version(t), from, e) : ERR_OK;
}

/* *from: the job whose units it took, or 0. */
static err_code pin(struct wire_event *v, const struct plan *p, int64_t *from, struct err *e)
{
	struct sched_job *j = v->job;
	struct store *s = v->c->store;
	struct job_pins kept = {0};
	err_code rc = copy_pins(&p->pins, &kept, e);

	if (!rc)
		rc = store_begin(s, e);
	if (!rc)
		rc = store_job_plan(s, j->id, buf_str(&p->text), &p->pins, p->n_units, p->tokens, e);
	if (!rc)
		rc = take_cached(v, from, e);
	rc = core_store_end(v->c, rc, e);
	if (rc)
		goto out;
	j->pins = kept;
	kept = (struct job_pins){0};
	core_changed(v->c, j->id);
	log_info("job %lld: planned by %s: %lld units, %lld tokens", (long long)j->id, v->slot->name,
	         (long long)p->n_units, (long long)p->tokens);
	if (*from)
		log_info("job %lld: the same as job %lld: nothing is to be computed", (long long)j->id,
		         (long long)*from);
out:
	job_pins_release(&kept);
	return rc;
}

static err_code on_planned(struct wire_event *v, struct err *e)
{
	struct plan p = {.text = BUF_INIT(WIRE_MAX_LINE)};
	const char *difference;
	struct err why;
	int64_t from = 0;
	err_code rc = ERR_OK;

	if (!v->mine)
		return ERR_OK;
	if (is_unwanted(v))
		return settle_worker(v);
	if (v->worker->state != WORKER_PLANNING)
		return bad_event(v, "it planned what it was not asked to");
	if (!read_plan(json_get(v->json, "plan"), &p)) {
		rc = bad_event(v, "its plan is malformed");
		goto out;
	}
	if (!v->job->pins.signature)
		rc = pin(v, &p, &from, e);
	if (rc)
		goto out;
	difference = v->job->units ? changed(v->job, &p) : NULL;
	if (difference) {
		err_set(&why, ERR_CHANGED, "%s", difference);
		dispatch_forget(v->c, v->w);
		scheduler_plan_failed(&v->c->sched, v->w, &why);
	} else {
		rc = scheduler_planned(&v->c->sched, v->w, p.unit_tokens, (uint32_t)p.n_units, e);
		for (uint32_t u = 0; !rc && from && u < (uint32_t)p.n_units; u++)
			scheduler_unit_done(v->job, u);
	}
out:
	plan_release(&p);
	return rc;
}

/* -- results ----------------------------------------------------------------------------------- */

/* An entry [unit, {...}] of a batch; its text goes to `texts`, at *at. */
static bool read_result(const struct wire_event *v, const struct json *pair, struct unit_result *r, struct buf *texts,
                        size_t *at)
{
	const struct json *result = json_next(json_first(pair));
	struct json_writer w = JSON_WRITER(texts);
	int64_t unit;

	if (!json_integer(json_first(pair), &unit) || unit < 0 || unit >= v->job->n_units || !json_is_object(result))
		return false;
	*at = texts->len;
	json_put_value(&w, NULL, result);
	buf_putc(texts, 0);
	r->unit = (uint32_t)unit;
	r->tokens = v->job->unit_tokens[unit];
	return !texts->failed;
}

static err_code store_results(struct wire_event *v, const struct unit_result *r, size_t n, double seconds,
                              struct err *e)
{
	struct store *s = v->c->store;
	bool progress = v->now - v->job->progress_ms >= PROGRESS_MS;
	size_t stored = 0;
	err_code rc = store_begin(s, e);

	if (!rc)
		rc = store_unit_put(s, v->job->id, r, n, seconds, &stored, e);
	if (!rc && progress)
		rc = store_event_progress(s, v->job->id, e);
	rc = core_store_end(v->c, rc, e);
	if (rc)
		return rc;
	if (stored)
		v->slot->backoff_ms = 0;
	if (stored < n)
		log_warn("job %lld: %s computed %zu units again that were stored", (long long)v->job->id, v->slot->name,
		         n - stored);
	if (progress)
		v->job->progress_ms = v->now;
	core_changed(v->c, v->job->id);
	return ERR_OK;
}

static err_code on_units(struct wire_event *v, struct err *e)
{
	const struct json *list = json_get(v->json, "units");
	size_t n = json_count(list), i = 0;
	struct unit_result *r = NULL;
	size_t *at = NULL;
	struct buf texts = BUF_INIT(2 * WIRE_MAX_LINE);
	double seconds = 0;
	err_code rc = ERR_OK;

	if (!v->mine || !v->job)
		return ERR_OK;
	if (v->worker->state != WORKER_RUNNING || !json_is_array(list))
		return bad_event(v, "it sent results that it was not asked for");
	r = mem_alloc(n, sizeof *r, e);
	at = mem_alloc(n, sizeof *at, e);
	if (!r || !at) {
		rc = ERR_MEMORY;
		goto out;
	}
	for (const struct json *pair = json_first(list); pair; pair = json_next(pair), i++) {
		if (!read_result(v, pair, &r[i], &texts, &at[i])) {
			rc = bad_event(v, "its results are malformed");
			goto out;
		}
	}
	for (i = 0; i < n; i++)
		r[i].result = texts.data + at[i];
	json_get_number(v->json, "seconds", &seconds);
	rc = store_results(v, r, n, seconds, e);
	for (i = 0; !rc && i < n; i++) {
		scheduler_reported(&v->c->sched, v->w, r[i].unit);
		scheduler_unit_done(v->job, r[i].unit);
	}
out:
	free(r);
	free(at);
	buf_release(&texts);
	return rc;
}

static err_code on_idle(struct wire_event *v, struct err *e)
{
	(void)e;
	if (!v->mine)
		return ERR_OK;
	if (is_unwanted(v))
		return settle_worker(v);
	if (v->worker->state == WORKER_RUNNING)
		scheduler_idle(&v->c->sched, v->w, v->now);
	return ERR_OK;
}

/* -- failures ---------------------------------------------------------------------------------- */

static err_code units_failed(struct wire_event *v, const struct json *units, const struct err *why, struct err *e)
{
	struct store *s = v->c->store;
	int64_t unit = 0;
	err_code rc;

	for (const struct json *u = json_first(units); u; u = json_next(u))
		if (!json_integer(u, &unit) || unit < 0 || unit >= v->job->n_units)
			return bad_event(v, "the units that failed are malformed");
	rc = store_begin(s, e);
	for (const struct json *u = json_first(units); !rc && u && json_integer(u, &unit); u = json_next(u))
		if (v->job->units[unit] == UNIT_OUT)
			rc = store_unit_fail(s, v->job->id, (uint32_t)unit, err_name(why->code), why->msg, e);
	rc = core_store_end(v->c, rc, e);
	if (rc)
		return rc;
	for (const struct json *u = json_first(units); u && json_integer(u, &unit); u = json_next(u)) {
		if (v->job->units[unit] != UNIT_OUT)
			continue;
		scheduler_reported(&v->c->sched, v->w, (uint32_t)unit);
		scheduler_unit_failed(v->job, (uint32_t)unit);
	}
	core_changed(v->c, v->job->id);
	return ERR_OK;
}

/* A command that failed whole. A run says nothing about its units one by one: they are tried alone. A device
 * that failed may stay broken for this process, so it is replaced, and the plan is tried with the next. */
static err_code command_failed(struct wire_event *v, const struct err *why)
{
	bool lost = v->worker->state == WORKER_RUNNING || why->code == ERR_DEVICE || why->code == ERR_CANCELLED;

	log_warn("job %lld: %s: %s", (long long)v->job->id, v->slot->name, why->msg);
	if (why->code == ERR_CHANGED && !v->job->failure.code)
		v->job->failure = *why;
	dispatch_forget(v->c, v->w);
	if (lost)
		scheduler_lost(&v->c->sched, v->w, false, why);
	else
		scheduler_plan_failed(&v->c->sched, v->w, why);
	if (why->code == ERR_DEVICE)
		supervise_condemn(v->c, v->w, why->msg);
	return ERR_OK;
}

static bool is_at_work(const struct wire_event *v)
{
	return v->worker->state == WORKER_RUNNING || v->worker->state == WORKER_PLANNING;
}

static err_code on_cancelled(struct wire_event *v, struct err *e)
{
	struct err why;

	(void)e;
	if (!v->mine)
		return ERR_OK;
	if (is_unwanted(v))
		return settle_worker(v);
	err_set(&why, ERR_CANCELLED, "it stopped without being told to");
	return is_at_work(v) ? command_failed(v, &why) : ERR_OK;
}

void event_failure(const struct json *event, struct err *why)
{
	const char *code = json_get_string(event, "code"), *message = json_get_string(event, "message");
	const char *pointer = json_get_string(event, "pointer");

	err_set(why, err_from_name(code ? code : "io"), "%s", message ? message : "the worker gave no reason");
	if (pointer)
		err_at(why, "%s", pointer);
}

static err_code on_failed(struct wire_event *v, struct err *e)
{
	const struct json *units = json_get(v->json, "units");
	int64_t request;
	struct err why;

	event_failure(v->json, &why);
	if (json_get_integer(v->json, "request", &request))
		score_failed(v->c, v->w, request, &why);
	if (!v->mine)
		return ERR_OK;
	if (units && v->job && v->worker->state == WORKER_RUNNING)
		return units_failed(v, units, &why, e);
	if (units)
		return ERR_OK;
	if (is_unwanted(v))
		return settle_worker(v);
	return is_at_work(v) ? command_failed(v, &why) : ERR_OK;
}

/* -- requests ---------------------------------------------------------------------------------- */

static err_code on_scored(struct wire_event *v, struct err *e)
{
	(void)e;
	v->taken = score_scored(v->c, v->w, v->json);
	return ERR_OK;
}

/* -- life signs -------------------------------------------------------------------------------- */

static err_code on_progress(struct wire_event *v, struct err *e)
{
	const char *phase = json_get_string(v->json, "phase");
	int64_t done = 0;

	(void)e;
	if (!v->mine || !v->job)
		return ERR_OK;
	json_get_integer(v->json, "done", &done);
	if (phase && !strcmp(phase, "run") && done >= 0)
		v->worker->progress_tokens = (uint64_t)done;
	if (v->now - v->job->shown_ms >= SHOW_MS) {
		v->job->shown_ms = v->now;
		core_changed(v->c, v->job->id);
	}
	return ERR_OK;
}

static err_code on_alive(struct wire_event *v, struct err *e)
{
	int64_t done = 0;

	(void)e;
	if (json_get_integer(v->json, "done_tokens", &done) && done != v->slot->done_tokens) {
		v->slot->done_tokens = done;
		v->slot->moved_ms = v->now;
	}
	return ERR_OK;
}

static const struct {
	const char *name;
	err_code (*handle)(struct wire_event *v, struct err *e);
} handlers[] = {
    {"hello", on_hello},       {"unusable", on_unusable}, {"planned", on_planned},     {"units", on_units},
    {"progress", on_progress}, {"idle", on_idle},         {"cancelled", on_cancelled}, {"failed", on_failed},
    {"alive", on_alive},       {"scored", on_scored},
};

err_code event_handle(struct core *c, size_t w, const char *line, size_t len, struct err *e)
{
	struct wire_event v = {
	    .c = c, .w = w, .slot = &c->slots[w], .worker = &c->sched.workers[w], .now = clock_mono_ms()};
	struct json *json = NULL;
	const char *name;
	int64_t ticket = 0;
	size_t i, n = sizeof handlers / sizeof *handlers;
	struct err bad;
	err_code rc = ERR_OK;

	if (json_parse(line, len, &json, &bad)) {
		supervise_condemn(c, w, bad.msg);
		return ERR_OK;
	}
	v.json = json;
	name = json_get_string(json, "event");
	v.mine = json_get_integer(json, "job", &ticket) && ticket && ticket == v.worker->ticket;
	v.job = v.mine ? v.worker->job : NULL;
	for (i = 0; name && i < n && strcmp(name, handlers[i].name) != 0; i++)
		;
	if (!name || i == n) {
		bad_event(&v, "it sent an event that the wire does not have");
	} else if (!v.slot->hello && handlers[i].handle != on_hello && handlers[i].handle != on_unusable) {
		bad_event(&v, "it did not begin with hello");
	} else {
		rc = handlers[i].handle(&v, e);
		if (rc == ERR_CONFLICT) { /* what it said contradicts what is stored: again would be no better */
			bad_event(&v, e->msg);
			rc = ERR_OK;
		}
		if (handlers[i].handle != on_alive) /* which only counts when its count moves */
			v.slot->moved_ms = v.now;
	}
	if (!v.taken)
		json_free(json);
	return rc;
}
