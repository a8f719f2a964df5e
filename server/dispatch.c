/* Commands to workers (eval/wire.h): what an idle one does next, and that one should stop. */
#include "server/core_private.h"

#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "eval/wire.h"

#define CANCEL_MS 10000

static void begin_command(struct json_writer *w, const char *cmd, int64_t ticket)
{
	json_begin_object(w, NULL);
	json_put_string(w, "cmd", cmd);
	json_put_int(w, "job", ticket);
}

static void send_simple(struct core *c, size_t w, const char *cmd, int64_t ticket)
{
	struct buf line = BUF_INIT(256);
	struct json_writer j = JSON_WRITER(&line);

	begin_command(&j, cmd, ticket);
	json_end_object(&j);
	supervise_send(c, w, &line);
	buf_release(&line);
}

static void put_engine(struct json_writer *w, const struct sched_job *j)
{
	struct json *engine = NULL;
	struct err ignored; /* the store and the scheduler have parsed it before */

	if (json_parse(j->engine, strlen(j->engine), &engine, &ignored))
		engine = NULL;
	json_begin_object(w, "engine");
	json_put_string(w, "dtype", j->dtype ? j->dtype : "auto");
	if (json_get(engine, "position"))
		json_put_value(w, "position", json_get(engine, "position"));
	else
		json_put_null(w, "position");
	json_end_object(w);
	json_free(engine);
}

static void send_plan(struct core *c, size_t w)
{
	const struct sched_worker *k = &c->sched.workers[w];
	const struct sched_job *j = k->job;
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer out = JSON_WRITER(&line);

	begin_command(&out, "plan", k->ticket);
	json_put_string(&out, "model", j->model);
	json_put_string(&out, "task", j->task);
	json_put_string(&out, "dataset", j->dataset);
	json_put_raw(&out, "params", j->params);
	put_engine(&out, j);
	if (j->pins.signature) {
		json_begin_object(&out, "pins");
		json_put_string(&out, "model", j->pins.model);
		json_put_string(&out, "tokenizer", j->pins.tokenizer);
		json_put_string(&out, "dataset", j->pins.dataset);
		json_put_string(&out, "signature", j->pins.signature);
		json_end_object(&out);
	} else {
		json_put_null(&out, "pins");
	}
	json_end_object(&out);
	log_debug("%s: plan job %lld", c->slots[w].name, (long long)j->id);
	supervise_send(c, w, &line);
	buf_release(&line);
}

/* Its units as half-open ranges: [[0,8],[12,13]]. */
static void put_ranges(struct json_writer *out, const struct sched_worker *k)
{
	json_begin_array(out, "units");
	for (uint32_t i = 0, n; i < k->n_units; i += n) {
		n = 1;
		while (i + n < k->n_units && k->units[i + n] == k->units[i] + n)
			n++;
		json_begin_array(out, NULL);
		json_put_uint(out, NULL, k->units[i]);
		json_put_uint(out, NULL, (uint64_t)k->units[i] + n);
		json_end_array(out);
	}
	json_end_array(out);
}

static void send_run(struct core *c, size_t w)
{
	const struct sched_worker *k = &c->sched.workers[w];
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer out = JSON_WRITER(&line);

	begin_command(&out, "run", k->ticket);
	put_ranges(&out, k);
	json_end_object(&out);
	log_debug("%s: job %lld: %s", c->slots[w].name, (long long)k->job->id, buf_str(&line));
	supervise_send(c, w, &line);
	buf_release(&line);
}

/* queued to running, before the first command of a job goes out. */
static err_code start_job(struct core *c, struct sched_job *j, struct err *e)
{
	err_code rc = store_begin(c->store, e);

	if (!rc)
		rc = store_job_start(c->store, j->id, e);
	rc = core_store_end(c, rc, e);
	if (rc)
		return rc;
	j->state = JOB_RUNNING;
	free(j->waiting);
	j->waiting = NULL;
	core_changed(c, j->id);
	return ERR_OK;
}

void dispatch_forget(struct core *c, size_t w)
{
	struct sched_worker *k = &c->sched.workers[w];

	if (k->ticket)
		send_simple(c, w, "forget", k->ticket);
	k->ticket = 0;
}

void dispatch_assign(struct core *c, size_t w)
{
	struct sched_worker *k = &c->sched.workers[w];
	struct slot *s = &c->slots[w];
	int64_t now = clock_mono_ms();
	enum sched_step step;
	struct sched_job *j;
	struct err e;

	if (!s->link || !s->hello || s->condemned || k->state != WORKER_IDLE)
		return;
	if (!k->job)
		dispatch_forget(c, w); /* of a job that is gone */
	step = scheduler_next(&c->sched, w, &j);
	if (step == STEP_NONE)
		return;
	if (j->state == JOB_QUEUED && start_job(c, j, &e)) {
		if (e.code == ERR_CONFLICT)
			j->failure = e;
		else
			core_store_refused(c, &e);
		return;
	}
	s->moved_ms = now;
	if (step == STEP_PLAN) {
		dispatch_forget(c, w);
		scheduler_plan(&c->sched, w, j);
		send_plan(c, w);
	} else if (scheduler_run(&c->sched, w, now, &e)) {
		log_error("%s: %s", s->name, e.msg); /* it stays idle, and is asked again */
	} else {
		send_run(c, w);
	}
}

void dispatch_cancel(struct core *c, const struct sched_job *j)
{
	for (size_t w = 0; w < c->n_slots; w++) {
		struct sched_worker *k = &c->sched.workers[w];

		if (k->job != j || (k->state != WORKER_PLANNING && k->state != WORKER_RUNNING))
			continue;
		send_simple(c, w, "cancel", k->ticket);
		c->slots[w].kill_ms = clock_mono_ms() + (c->o.cancel_ms ? c->o.cancel_ms : CANCEL_MS);
	}
}
