/* Runs of gates, after their jobs were queued: when all jobs have ended, a child of this program judges (`fathom
 * judge`) and, where the gate has a webhook, another tells it (`fathom notify`). Both read the store by themselves and
 * say one line; the core neither folds items nor waits for a network.
 *
 *   MEASURING ── no job is left in the scheduler ──> JUDGING ── a verdict is stored ──> DONE ── webhook told, or given
 *                                                       '── three children died ──> FAILED      up: forgotten here
 *   A run that is cancelled is forgotten at once, with its child; so it has no verdict, and its webhook is not told.
 *
 * 1. The state is in the store before it is here; a start of the server takes it up from there.
 * 2. A child's line is dropped only after its effect is stored; while the store refuses, it is looked at again.
 * 3. A webhook is told at least once: a server that is killed in between tells again, with the same
 *    X-Fathom-Delivery. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "eval/wire.h"
#include "server/core_private.h"

#define DEATHS      3
#define JUDGE_MS    600000
#define NOTIFY_MS   30000
#define RETRY_MS    1000
#define HOOK_TRIES  8
#define HOOK_MS     1000 /* before the second try; each wait is three times the one before */
#define HOOK_MAX_MS 600000

struct open_run {
	int64_t id;
	enum run_state state;
	int64_t *jobs; /* [n_jobs] owned */
	size_t n_jobs;
	bool hook;                      /* of a done run: its webhook waits */
	int64_t hook_tries, hook_at_ms; /* Unix time */
	struct link *link;              /* owned; the child at work; NULL: none */
	int64_t deadline_ms, retry_ms;  /* monotonic: kill the child then; do not start one before */
	unsigned deaths;                /* of judges, in a row */
	struct open_run *next;
};

static void free_run(struct open_run *r)
{
	link_close(r->link);
	free(r->jobs);
	free(r);
}

void gate_run_close_all(struct core *c)
{
	while (c->runs) {
		struct open_run *r = c->runs;

		c->runs = r->next;
		free_run(r);
	}
}

void gate_run_forget(struct core *c, int64_t id)
{
	struct open_run **at = &c->runs, *r;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	r = *at;
	if (!r)
		return;
	*at = r->next;
	free_run(r);
}

/* -- loading ----------------------------------------------------------------------------------- */

err_code gate_run_load(struct core *c, int64_t id, struct err *e)
{
	struct open_run *r = mem_zalloc(1, sizeof *r, e), **at = &c->runs;
	struct gate_run row = {0};
	err_code rc = r ? store_run_get(c->store, id, &row, e) : ERR_MEMORY;

	if (!rc) {
		r->jobs = mem_zalloc(row.n_measures, sizeof *r->jobs, e);
		rc = r->jobs ? ERR_OK : ERR_MEMORY;
	}
	if (rc) {
		free(r);
		gate_run_release(&row);
		return rc;
	}
	r->id = id;
	r->state = row.state;
	for (size_t i = 0; i < row.n_measures; i++)
		r->jobs[r->n_jobs++] = row.measures[i].job;
	r->hook = row.hook && !strcmp(row.hook, "waiting");
	r->hook_tries = row.hook_tries;
	r->hook_at_ms = row.hook_at_ms;
	while (*at)
		at = &(*at)->next;
	*at = r;
	gate_run_release(&row);
	return ERR_OK;
}

err_code gate_run_load_all(struct core *c, struct err *e)
{
	int64_t *ids = NULL;
	size_t n = 0;
	err_code rc = store_run_open(c->store, &ids, &n, e);

	for (size_t i = 0; !rc && i < n; i++)
		rc = gate_run_load(c, ids[i], e);
	free(ids);
	return rc;
}

/* -- transitions ------------------------------------------------------------------------------- */

static err_code begin_judging(struct core *c, struct open_run *r, struct err *e)
{
	err_code rc;

	for (size_t i = 0; i < r->n_jobs; i++)
		if (scheduler_find(&c->sched, r->jobs[i]))
			return ERR_OK;
	rc = store_begin(c->store, e);
	if (!rc)
		rc = store_run_judge(c->store, r->id, e);
	rc = core_store_end(c, rc, e);
	if (rc)
		return rc;
	r->state = RUN_JUDGING;
	core_changed(c, -r->id);
	return ERR_OK;
}

/* {"event":"judged","outcome":"pass","fingerprint":"sha256:..","protocols":["..."],"hook":true,"verdict":{...}} */
static err_code take_verdict(struct core *c, struct open_run *r, const struct json *event, struct err *e)
{
	const char *outcome = json_get_string(event, "outcome");
	const struct json *protocols = json_get(event, "protocols");
	struct buf verdict = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer w = JSON_WRITER(&verdict);
	bool hook = json_true(json_get(event, "hook"));
	size_t i = 0;
	err_code rc;

	json_put_value(&w, NULL, json_get(event, "verdict"));
	rc = buf_check(&verdict, "a verdict", e);
	if (!rc)
		rc = store_begin(c->store, e);
	if (!rc)
		rc = store_run_done(c->store, r->id, buf_str(&verdict), outcome, json_get_string(event, "fingerprint"),
		                    hook, e);
	for (const struct json *p = json_first(protocols); !rc && p; p = json_next(p))
		rc = store_run_protocol(c->store, r->id, i++, json_string(p), e);
	rc = core_store_end(c, rc, e);
	buf_release(&verdict);
	if (rc)
		return rc;
	log_info("run %lld: %s", (long long)r->id, outcome);
	r->state = RUN_DONE;
	r->hook = hook;
	r->hook_at_ms = clock_unix_ms();
	core_changed(c, -r->id);
	return ERR_OK;
}

static err_code fail(struct core *c, struct open_run *r, const struct err *why, struct err *e)
{
	err_code rc = store_begin(c->store, e);

	if (!rc)
		rc = store_run_fail(c->store, r->id, why->msg, e);
	rc = core_store_end(c, rc, e);
	if (rc)
		return rc;
	log_error("run %lld: not judged: %s", (long long)r->id, why->msg);
	r->state = RUN_FAILED;
	core_changed(c, -r->id);
	return ERR_OK;
}

/* A try of the webhook ended; why NULL: it was told. */
static err_code take_delivery(struct core *c, struct open_run *r, const struct err *why, struct err *e)
{
	int64_t wait = HOOK_MS, next = 0;
	err_code rc;

	for (int64_t i = 0; i < r->hook_tries && wait < HOOK_MAX_MS; i++)
		wait *= 3;
	if (why && r->hook_tries + 1 < HOOK_TRIES)
		next = clock_unix_ms() + (wait < HOOK_MAX_MS ? wait : HOOK_MAX_MS);
	rc = store_begin(c->store, e);
	if (!rc)
		rc = store_run_hook(c->store, r->id, why ? why->msg : NULL, next, e);
	rc = core_store_end(c, rc, e);
	if (rc)
		return rc;
	if (why)
		log_warn("run %lld: webhook, try %lld: %s", (long long)r->id, (long long)r->hook_tries + 1, why->msg);
	r->hook_tries++;
	r->hook = next != 0;
	r->hook_at_ms = next;
	core_changed(c, -r->id);
	return ERR_OK;
}

/* The child at work failed or died. */
static err_code child_failed(struct core *c, struct open_run *r, const struct err *why, int64_t now_ms, struct err *e)
{
	if (r->state == RUN_DONE)
		return take_delivery(c, r, why, e);
	if (r->deaths + 1 >= DEATHS)
		return fail(c, r, why, e);
	log_warn("run %lld: judging it failed, and is tried again: %s", (long long)r->id, why->msg);
	r->deaths++;
	r->retry_ms = now_ms + RETRY_MS;
	return ERR_OK;
}

/* -- children ---------------------------------------------------------------------------------- */

static err_code begin_child(struct core *c, struct open_run *r, int64_t now_ms, struct err *e)
{
	const char *cmd = r->state == RUN_JUDGING ? "judge" : "notify";
	char id[24], name[40];
	const char *argv[] = {c->o.self, cmd, "--data", c->o.data_dir, "--run", id, NULL};
	struct launch launch;
	err_code rc;

	snprintf(id, sizeof id, "%lld", (long long)r->id);
	snprintf(name, sizeof name, "%s %s", cmd, id);
	rc = launch_self(argv, &launch, e);
	if (rc)
		return rc;
	rc = link_open(&launch, name, &r->link, e);
	launch_release(&launch);
	r->deadline_ms = now_ms + (r->state == RUN_JUDGING ? JUDGE_MS : NOTIFY_MS);
	return rc;
}

static err_code handle_line(struct core *c, struct open_run *r, const char *line, size_t len, int64_t now_ms,
                            struct err *e)
{
	struct json *event = NULL;
	const char *kind;
	struct err why;
	err_code rc;

	if (json_parse(line, len, &event, &why))
		return child_failed(c, r, &why, now_ms, e);
	kind = json_get_string(event, "event");
	if (kind && r->state == RUN_JUDGING && !strcmp(kind, "judged")) {
		rc = take_verdict(c, r, event, e);
	} else if (kind && r->state == RUN_DONE && !strcmp(kind, "delivered")) {
		rc = take_delivery(c, r, NULL, e);
	} else {
		event_failure(event, &why);
		rc = child_failed(c, r, &why, now_ms, e);
	}
	json_free(event);
	return rc;
}

/* One line, or its death, ends a child. */
static err_code watch(struct core *c, struct open_run *r, int64_t now_ms, struct err *e)
{
	size_t len = 0;
	const char *line = link_line(r->link, &len);
	struct err why;
	err_code rc;

	if (line) {
		rc = handle_line(c, r, line, len, now_ms, e);
	} else if (link_ended(r->link)) {
		err_set(&why, ERR_IO, "the process died: %s", link_obituary(r->link));
		rc = child_failed(c, r, &why, now_ms, e);
	} else if (now_ms >= r->deadline_ms) {
		err_set(&why, ERR_IO, "no answer in time");
		rc = child_failed(c, r, &why, now_ms, e);
	} else {
		return ERR_OK;
	}
	if (rc)
		return rc; /* the line is still there */
	link_close(r->link);
	r->link = NULL;
	return ERR_OK;
}

static size_t count_children(const struct core *c)
{
	size_t n = 0;

	for (const struct open_run *r = c->runs; r; r = r->next)
		n += r->link != NULL;
	return n;
}

static bool is_due(const struct open_run *r, int64_t now_ms)
{
	if (now_ms < r->retry_ms)
		return false;
	return r->state == RUN_JUDGING || (r->state == RUN_DONE && r->hook && clock_unix_ms() >= r->hook_at_ms);
}

static err_code step(struct core *c, struct open_run *r, int64_t now_ms, struct err *e)
{
	struct err why;
	err_code rc = ERR_OK;

	if (r->link)
		rc = watch(c, r, now_ms, e);
	else if (r->state == RUN_MEASURING)
		rc = begin_judging(c, r, e);
	if (!rc && !r->link && is_due(r, now_ms) && count_children(c) < GATE_RUN_CHILDREN &&
	    begin_child(c, r, now_ms, &why))
		rc = child_failed(c, r, &why, now_ms, e);
	return rc;
}

void gate_run_step(struct core *c, int64_t now_ms)
{
	struct open_run **at = &c->runs, *r;
	struct err e;

	while ((r = *at) != NULL) {
		err_code rc = step(c, r, now_ms, &e);

		if (rc && e.code != ERR_CONFLICT) {
			core_store_refused(c, &e);
			return;
		}
		if (rc) /* what is to be stored contradicts what is: somebody deleted it */
			log_error("run %lld: %s", (long long)r->id, e.msg);
		if (rc || r->state == RUN_FAILED || (r->state == RUN_DONE && !r->hook && !r->link)) {
			*at = r->next;
			free_run(r);
		} else {
			at = &r->next;
		}
	}
}

/* -- the loop's -------------------------------------------------------------------------------- */

size_t gate_run_poll(const struct core *c, struct pollfd *fds)
{
	size_t n = 0;

	for (const struct open_run *r = c->runs; r; r = r->next) {
		if (!r->link)
			continue;
		link_poll(r->link, core_store_waits(c, clock_mono_ms()), fds + n);
		n += LINK_FDS;
	}
	return n;
}

size_t gate_run_handle(struct core *c, const struct pollfd *fds)
{
	size_t n = 0;

	for (const struct open_run *r = c->runs; r; r = r->next) {
		if (!r->link)
			continue;
		link_handle(r->link, fds + n);
		n += LINK_FDS;
	}
	return n;
}

/* When this run wants attention, if its child says nothing; monotonic. */
static int64_t due_ms(const struct core *c, const struct open_run *r)
{
	int64_t at;

	if (r->link)
		return r->deadline_ms;
	if (count_children(c) >= GATE_RUN_CHILDREN)
		return INT64_MAX; /* a child's end wakes the loop */
	if (r->state == RUN_JUDGING)
		return r->retry_ms;
	if (r->state != RUN_DONE || !r->hook)
		return INT64_MAX;
	at = clock_mono_ms() + (r->hook_at_ms - clock_unix_ms());
	return at > r->retry_ms ? at : r->retry_ms;
}

int64_t gate_run_deadline(const struct core *c)
{
	int64_t first = INT64_MAX, at;

	if (core_store_waits(c, clock_mono_ms()))
		return INT64_MAX; /* nothing can be done before */
	for (const struct open_run *r = c->runs; r; r = r->next) {
		at = due_ms(c, r);
		first = at < first ? at : first;
	}
	return first;
}
