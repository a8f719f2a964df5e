/* What memory owes the store: units given up, failures, cancels that are through, results, reasons to wait.
 *
 * Each is a condition on the job in memory, looked at whenever something happened, so none can be missed: what
 * the store refuses stays true and is tried again. Memory changes only after the commit. */
#include "server/core_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log.h"

#define RESULT_MAX_BYTES ((size_t)256 << 20)

static err_code store_given_up(struct core *c, struct sched_job *j, struct err *e)
{
	err_code rc = store_begin(c->store, e);

	for (uint32_t i = 0; !rc && i < j->n_given_up; i++)
		rc = store_unit_fail(c->store, j->id, j->given_up[i].unit, err_name(j->given_up[i].why.code),
		                     j->given_up[i].why.msg, e);
	rc = core_store_end(c, rc, e);
	while (!rc && j->n_given_up) {
		log_warn("job %lld: given up: %s", (long long)j->id, j->given_up[0].why.msg);
		scheduler_unit_failed(j, j->given_up[0].unit);
	}
	return rc;
}

static err_code finish_cancel(struct core *c, struct sched_job *j, struct err *e)
{
	err_code rc = store_begin(c->store, e);

	if (!rc)
		rc = store_job_cancelled(c->store, j->id, e);
	rc = core_store_end(c, rc, e);
	if (!rc) {
		log_info("job %lld: cancelled", (long long)j->id);
		scheduler_remove(&c->sched, j);
	}
	return rc;
}

/* {"code","message","units":[...]}, and the pointer to the member of the request that is to blame, where one is */
static void put_error(struct buf *out, const char *code, const char *message, const char *pointer,
                      const uint32_t *units, size_t n)
{
	struct json_writer w = JSON_WRITER(out);

	json_begin_object(&w, NULL);
	json_put_string(&w, "code", code);
	json_put_string(&w, "message", message);
	if (*pointer)
		json_put_string(&w, "pointer", pointer);
	json_begin_array(&w, "units");
	for (size_t i = 0; i < n; i++)
		json_put_uint(&w, NULL, units[i]);
	json_end_array(&w);
	json_end_object(&w);
}

static err_code finish_failure(struct core *c, struct sched_job *j, struct err *e)
{
	struct buf error = BUF_INIT(1 << 16);
	err_code rc;

	put_error(&error, err_name(j->failure.code), j->failure.msg, j->failure.pointer, NULL, 0);
	rc = buf_check(&error, "a job's error", e);
	if (!rc)
		rc = store_begin(c->store, e);
	if (!rc)
		rc = store_job_fail(c->store, j->id, buf_str(&error), NULL, e);
	rc = core_store_end(c, rc, e);
	if (!rc) {
		log_warn("job %lld: failed: %s", (long long)j->id, j->failure.msg);
		dispatch_cancel(c, j);
		scheduler_remove(&c->sched, j);
	}
	buf_release(&error);
	return rc;
}

/* -- results ----------------------------------------------------------------------------------- */

struct failures {
	uint32_t *units; /* owned */
	size_t n, cap;
	char code[32], message[1000]; /* of the first */
	bool out_of_memory;
};

static void note_failure(void *arg, uint32_t unit, bool failed, const char *code, const char *message)
{
	struct failures *f = arg;
	struct err ignored;
	uint32_t *grown;

	if (!failed)
		return;
	grown = mem_grow(f->units, &f->cap, f->n + 1, sizeof *grown, &ignored);
	if (!grown) {
		f->out_of_memory = true;
		return;
	}
	f->units = grown;
	if (!f->n) {
		snprintf(f->code, sizeof f->code, "%s", code);
		snprintf(f->message, sizeof f->message, "%s", message);
	}
	f->units[f->n++] = unit;
}

/* Appends the result's headline as JSON, or nothing where it has none. */
static err_code put_headline(const struct task *task, const struct buf *result, struct buf *out, struct err *e)
{
	struct json_writer w = JSON_WRITER(out);
	const struct json *headline;
	struct json *j = NULL;

	if (json_parse(buf_str(result), result->len, &j, e))
		return e->code;
	headline = result_headline(task, json_get(j, "metrics"));
	if (headline)
		json_put_value(&w, NULL, headline);
	json_free(j);
	return buf_check(out, "the headline", e);
}

/* A finished job's outcome, as it is stored. */
struct outcome {
	struct buf result, headline; /* JSON; empty: none */
	struct failures failures;
};

/* Folds the stored units into the result's text. `own` is set when the fold itself fails: then trying again is
 * of no use. */
static err_code fold(struct core *c, const struct job *row, struct outcome *o, bool *own, struct err *e)
{
	const struct failures *f = &o->failures;
	struct result_stats stats = {(uint64_t)row->done_tokens, row->seconds, f->units, f->n};
	struct json *params = NULL, *plan = NULL;
	struct json_writer w = JSON_WRITER(&o->result);
	struct unit_cursor *cursor = NULL;
	struct unit_source source;
	struct err closing;
	const struct task *task;
	err_code rc = unit_cursor_open(c->store, row->id, 0, &cursor, e);

	if (rc)
		return rc;
	source = (struct unit_source){unit_cursor_next, cursor};
	*own = true;
	task = task_find(row->task, e);
	rc = task ? ERR_OK : e->code;
	if (!rc)
		rc = json_parse(row->params, strlen(row->params), &params, e);
	if (!rc)
		rc = json_parse(row->plan, strlen(row->plan), &plan, e);
	if (!rc)
		rc = result_write(&w, task, params, plan, &source, &stats, e);
	if (!rc)
		rc = put_headline(task, &o->result, &o->headline, e);
	json_free(params);
	json_free(plan);
	if (unit_cursor_close(cursor, &closing)) {
		*own = false; /* a fold of what could not be read means nothing */
		*e = closing;
		rc = closing.code;
	}
	return rc;
}

static const char *text_of(const struct buf *b)
{
	return b->len ? buf_str(b) : NULL;
}

static err_code store_outcome(struct core *c, const struct sched_job *j, const struct outcome *o, struct err *e)
{
	const struct failures *f = &o->failures;
	struct buf error = BUF_INIT((size_t)64 << 20);
	char message[1200];
	err_code rc = store_begin(c->store, e);

	if (!rc && j->state == JOB_QUEUED) /* all was stored when the last server was killed */
		rc = store_job_start(c->store, j->id, e);
	if (!rc && !f->n)
		rc = store_job_succeed(c->store, j->id, text_of(&o->result), text_of(&o->headline), e);
	if (!rc && f->n) {
		snprintf(message, sizeof message, "%zu of %u units failed; unit %u: %s", f->n, j->n_units, f->units[0],
		         f->message);
		put_error(&error, f->code, message, "", f->units, f->n);
		rc = buf_check(&error, "a job's error", e);
	}
	if (!rc && f->n)
		rc = store_job_fail(c->store, j->id, buf_str(&error), text_of(&o->result), e);
	rc = core_store_end(c, rc, e);
	buf_release(&error);
	return rc;
}

static err_code finish(struct core *c, struct sched_job *j, struct err *e)
{
	struct outcome o = {BUF_INIT(RESULT_MAX_BYTES), BUF_INIT(1 << 16), {0}};
	struct failures *f = &o.failures;
	struct job row = {0};
	bool own = false;
	err_code rc = store_job_get(c->store, j->id, &row, e);

	if (!rc)
		rc = store_unit_each(c->store, j->id, note_failure, f, e);
	if (!rc && f->out_of_memory)
		rc = err_set(e, ERR_MEMORY, "out of memory finishing job %lld", (long long)j->id);
	if (!rc && (row.done_units || !f->n))
		rc = fold(c, &row, &o, &own, e);
	if (rc && own) {
		j->failure = *e;
		rc = finish_failure(c, j, e);
		goto out;
	}
	if (!rc)
		rc = store_outcome(c, j, &o, e);
	if (!rc) {
		log_info("job %lld: %s", (long long)j->id, f->n ? "failed, with a partial result" : "succeeded");
		scheduler_remove(&c->sched, j);
	}
out:
	buf_release(&o.result);
	buf_release(&o.headline);
	free(f->units);
	job_release(&row);
	return rc;
}

/* -- waiting ----------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

/* Writes why j waits, if that changed, and notes it in new_waiting. A running job that no worker can go on
 * with is queued again. */
static err_code write_waiting(struct core *c, struct sched_job *j, struct err *e)
{
	char why[512];
	const char *text = scheduler_job_waits(&c->sched, j, why, sizeof why) ? why : NULL;
	err_code rc = ERR_OK;

	if ((j->state != JOB_QUEUED && j->state != JOB_RUNNING) || same_text(text, j->waiting))
		return ERR_OK;
	if (j->state == JOB_RUNNING && scheduler_job_workers(&c->sched, j))
		return ERR_OK;
	j->new_waiting = mem_strdup(text ? text : "", e);
	if (!j->new_waiting)
		return ERR_MEMORY;
	if (j->state == JOB_RUNNING)
		rc = store_job_requeue(c->store, j->id, e);
	return rc ? rc : store_job_wait(c->store, j->id, text, e);
}

/* Takes over what was committed, or drops it. */
static void take_waiting(struct core *c, struct sched_job *j, bool committed)
{
	char *text = j->new_waiting;

	j->new_waiting = NULL;
	if (!text || !committed) {
		free(text);
		return;
	}
	if (*text)
		log_warn("job %lld: waits: %s", (long long)j->id, text);
	free(j->waiting);
	j->waiting = *text ? text : NULL;
	if (!*text)
		free(text);
	j->state = JOB_QUEUED;
	core_changed(c, j->id);
}

/* For all jobs in one transaction: when the last worker goes, a thousand jobs may begin to wait at once. */
static err_code update_waiting(struct core *c, struct err *e)
{
	bool any = false;
	char why[512];
	err_code rc = ERR_OK;

	for (const struct sched_job *j = c->sched.jobs; j && !any; j = j->next)
		any = !same_text(scheduler_job_waits(&c->sched, j, why, sizeof why) ? why : NULL, j->waiting);
	if (!any)
		return ERR_OK;
	rc = store_begin(c->store, e);
	for (struct sched_job *j = c->sched.jobs; !rc && j; j = j->next)
		rc = write_waiting(c, j, e);
	rc = core_store_end(c, rc, e);
	for (struct sched_job *j = c->sched.jobs; j; j = j->next)
		take_waiting(c, j, !rc);
	return rc;
}

/* -- all --------------------------------------------------------------------------------------- */

static err_code settle_job(struct core *c, struct sched_job *j, struct err *e)
{
	int64_t id = j->id;
	err_code rc = ERR_OK;

	if (j->n_given_up)
		rc = store_given_up(c, j, e);
	if (rc)
		return rc;
	if (j->state == JOB_CANCELLING) {
		if (scheduler_job_workers(&c->sched, j))
			return ERR_OK;
		rc = finish_cancel(c, j, e);
	} else if (j->failure.code) {
		rc = finish_failure(c, j, e);
	} else if (scheduler_job_complete(j)) {
		rc = finish(c, j, e);
	} else {
		return ERR_OK;
	}
	if (!rc)
		core_changed(c, id);
	return rc;
}

void settle_jobs(struct core *c)
{
	struct sched_job *next;
	struct err e;

	for (struct sched_job *j = c->sched.jobs; j; j = next) {
		next = j->next;
		if (!settle_job(c, j, &e))
			continue;
		if (e.code != ERR_CONFLICT) {
			core_store_refused(c, &e);
			return;
		}
		/* not a full disk: what is to be stored contradicts what is. The job fails; others go on. */
		log_error("job %lld: %s", (long long)j->id, e.msg);
		if (j->failure.code)
			scheduler_remove(&c->sched, j);
		else
			j->failure = e;
	}
	if (update_waiting(c, &e))
		core_store_refused(c, &e);
}
