/* Jobs: rows, and the transitions of store.h's diagram. Each transition is one UPDATE that names
 * the states it may leave, so a wrong one changes nothing, and writes its event beside it. */
#include "server/store_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "engine/json.h"

static const char *const state_names[JOB_N_STATES] = {"queued",    "running", "cancelling",
                                                      "succeeded", "failed",  "cancelled"};

const char *job_state_name(enum job_state s)
{
	assert((size_t)s < JOB_N_STATES);
	return state_names[s];
}

bool job_state_from_name(const char *name, enum job_state *out)
{
	for (size_t i = 0; i < JOB_N_STATES; i++) {
		if (!strcmp(name, state_names[i])) {
			*out = (enum job_state)i;
			return true;
		}
	}
	return false;
}

bool job_state_final(enum job_state s)
{
	return s == JOB_SUCCEEDED || s == JOB_FAILED || s == JOB_CANCELLED;
}

void job_release(struct job *j)
{
	char *owned[] = {j->name, j->model, j->task,  j->dataset, j->params,   j->engine,
	                 j->tags, j->plan,  j->error, j->waiting, j->headline, j->result};

	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
		free(owned[i]);
	memset(j, 0, sizeof *j);
}

void job_pins_release(struct job_pins *p)
{
	free(p->model);
	free(p->tokenizer);
	free(p->dataset);
	free(p->signature);
	memset(p, 0, sizeof *p);
}

/* -- reading ----------------------------------------------------------------------------------- */

#define COLUMNS                                                                                                        \
	"id, state, name, model, task, dataset, params, engine, tags, priority, created_ms, started_ms, finished_ms, " \
	"plan, n_units, done_units, failed_units, total_tokens, done_tokens, seconds, error, waiting, "                \
	"headline, cache, cached_from, "

static err_code read_job(sqlite3_stmt *row, struct job *out, struct err *e)
{
	bool failed = false;
	char *state = store_text(row, 1, &failed);
	struct job j = {.id = sqlite3_column_int64(row, 0)};

	if (state && !job_state_from_name(state, &j.state))
		assert(!"the CHECK on job.state");
	free(state);
	j.name = store_text(row, 2, &failed);
	j.model = store_text(row, 3, &failed);
	j.task = store_text(row, 4, &failed);
	j.dataset = store_text(row, 5, &failed);
	j.params = store_text(row, 6, &failed);
	j.engine = store_text(row, 7, &failed);
	j.tags = store_text(row, 8, &failed);
	j.priority = sqlite3_column_int(row, 9);
	j.created_ms = sqlite3_column_int64(row, 10);
	j.started_ms = sqlite3_column_int64(row, 11);
	j.finished_ms = sqlite3_column_int64(row, 12);
	j.plan = store_text(row, 13, &failed);
	j.n_units = sqlite3_column_int64(row, 14);
	j.done_units = sqlite3_column_int64(row, 15);
	j.failed_units = sqlite3_column_int64(row, 16);
	j.total_tokens = sqlite3_column_int64(row, 17);
	j.done_tokens = sqlite3_column_int64(row, 18);
	j.seconds = sqlite3_column_double(row, 19);
	j.error = store_text(row, 20, &failed);
	j.waiting = store_text(row, 21, &failed);
	j.headline = store_text(row, 22, &failed);
	j.cache = sqlite3_column_int(row, 23);
	j.cached_from = sqlite3_column_int64(row, 24);
	j.result = store_text(row, 25, &failed);
	if (failed) {
		job_release(&j);
		return err_set(e, ERR_MEMORY, "out of memory reading a job");
	}
	*out = j;
	return ERR_OK;
}

static err_code no_such_job(int64_t id, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "no job %lld", (long long)id);
}

err_code store_job_get(struct store *s, int64_t id, struct job *out, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, "SELECT " COLUMNS "result FROM job WHERE id = ?1", "i", id);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc)
		rc = row ? read_job(stmt, out, e) : no_such_job(id, e);
	store_done(stmt);
	return rc;
}

err_code store_job_list(struct store *s, const struct job_filter *f, struct job **jobs, size_t *n, struct err *e)
{
	const char *value = f->tag ? strchr(f->tag, '=') : NULL;
	char *key = f->tag ? strndup(f->tag, value ? (size_t)(value - f->tag) : strlen(f->tag)) : NULL;
	struct job *list = mem_zalloc((size_t)f->limit, sizeof *list, e);
	sqlite3_stmt *stmt = NULL;
	size_t count = 0;
	bool row = false;
	err_code rc = list ? ERR_OK : ERR_MEMORY;

	assert(f->limit >= 1 && f->limit <= 1000);
	if (!rc && f->tag && !key)
		rc = err_set(e, ERR_MEMORY, "out of memory listing jobs");
	if (rc)
		goto out;
	rc = store_query(s, e, &stmt,
	                 "SELECT " COLUMNS "NULL FROM job"
	                 " WHERE (?1 IS NULL OR model = ?1) AND (?2 IS NULL OR task = ?2)"
	                 " AND (?3 IS NULL OR EXISTS (SELECT 1 FROM json_each(job.tags) AS tag"
	                 "                            WHERE tag.key = ?3 AND (?4 IS NULL OR tag.value = ?4)))"
	                 " AND (?5 IS NULL OR state = ?5) AND (?6 = 0 OR id < ?6) ORDER BY id DESC LIMIT ?7",
	                 "sssssii", f->model, f->task, key, value ? value + 1 : NULL,
	                 f->state < 0 ? NULL : job_state_name((enum job_state)f->state), f->after, (int64_t)f->limit);
	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		rc = read_job(stmt, &list[count], e);
		count += !rc;
	}
	store_done(stmt);
	if (rc)
		goto out;
	*jobs = list;
	*n = count;
	list = NULL;
out:
	for (size_t i = 0; list && i < count; i++)
		job_release(&list[i]);
	free(list);
	free(key);
	return rc;
}

err_code store_job_pins(struct store *s, int64_t id, struct job_pins *out, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	struct job_pins p = {0};
	bool row = false, failed = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT pin_model, pin_tokenizer, pin_dataset, pin_signature"
	                          " FROM job WHERE id = ?1",
	                          "i", id);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc && !row)
		rc = no_such_job(id, e);
	if (!rc) {
		p.model = store_text(stmt, 0, &failed);
		p.tokenizer = store_text(stmt, 1, &failed);
		p.dataset = store_text(stmt, 2, &failed);
		p.signature = store_text(stmt, 3, &failed);
		if (failed)
			rc = err_set(e, ERR_MEMORY, "out of memory reading the pins of job %lld", (long long)id);
	}
	store_done(stmt);
	if (rc)
		job_pins_release(&p);
	else
		*out = p;
	return rc;
}

err_code store_job_active(struct store *s, int64_t **ids, size_t *n, struct err *e)
{
	return store_ids(s,
	                 "SELECT id FROM job WHERE state IN ('queued', 'running', 'cancelling')"
	                 " ORDER BY priority DESC, id",
	                 ids, n, e);
}

/* -- making and deleting ----------------------------------------------------------------------- */

err_code store_job_insert(struct store *s, const struct job_new *n, int64_t *id, bool *existed, struct err *e)
{
	int64_t known = 0;
	err_code rc = ERR_OK;

	if (n->idempotency_key)
		rc = store_find_key(s, "SELECT id, request_hash IS ?2 FROM job WHERE idempotency_key = ?1", "job",
		                    n->idempotency_key, n->request_hash, &known, e);
	if (rc)
		return rc;
	if (known) {
		*id = known;
		*existed = true;
		return ERR_OK;
	}
	rc = store_run(s, e, NULL,
	               "INSERT INTO job (name, model, task, dataset, params, engine, tags, priority, created_ms,"
	               " idempotency_key, request_hash, cache)"
	               " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
	               "sssssssiissi", n->name, n->model, n->task, n->dataset, n->params, n->engine ? n->engine : "{}",
	               n->tags ? n->tags : "{}", (int64_t)n->priority, clock_unix_ms(), n->idempotency_key,
	               n->request_hash, (int64_t)n->cache);
	if (rc)
		return rc;
	*id = sqlite3_last_insert_rowid(s->db);
	*existed = false;
	return store_event_put(s, *id, "created", "{}", e);
}

/* After an UPDATE that touched nothing: why. */
static err_code refuse(struct store *s, int64_t id, const char *verb, struct err *e)
{
	return store_refused(s, "SELECT state FROM job WHERE id = ?1", "job", id, verb, e);
}

err_code store_job_totals(struct store *s, int64_t n[JOB_N_STATES], int64_t *tokens_left, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	enum job_state state;
	bool row = false;
	err_code rc = store_query(
	    s, e, &stmt, "SELECT state, count(*), sum(total_tokens - done_tokens) FROM job GROUP BY state", "");

	memset(n, 0, JOB_N_STATES * sizeof *n);
	*tokens_left = 0;
	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		if (!job_state_from_name((const char *)sqlite3_column_text(stmt, 0), &state))
			continue;
		n[state] = sqlite3_column_int64(stmt, 1);
		if (!job_state_final(state))
			*tokens_left += sqlite3_column_int64(stmt, 2);
	}
	store_done(stmt);
	return rc;
}

/* Why a job may not be deleted or computed anew: ERR_CONFLICT, it is a baseline's or an unfinished run's. */
static err_code check_free(struct store *s, int64_t id, const char *verb, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc =
	    store_query(s, e, &stmt,
	                "SELECT 'baseline ''' || name || ''' (version ' || version || ')' FROM baseline_result"
	                " WHERE job_id = ?1 UNION ALL SELECT 'run ' || r.id || ' of gate ''' || r.gate || ''''"
	                " FROM gate_measure AS m JOIN gate_run AS r ON r.id = m.run_id"
	                " WHERE m.job_id = ?1 AND r.state IN ('measuring', 'judging') LIMIT 1",
	                "i", id);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc && row)
		rc = err_set(e, ERR_CONFLICT, "job %lld is held by %s: it cannot be %s", (long long)id,
		             (const char *)sqlite3_column_text(stmt, 0), verb);
	store_done(stmt);
	return rc;
}

err_code store_job_delete(struct store *s, int64_t id, struct err *e)
{
	int changes = 0;
	err_code rc = check_free(s, id, "deleted", e);

	if (!rc) /* units go by their reference's ON DELETE CASCADE */
		rc = store_run(s, e, &changes,
		               "DELETE FROM job WHERE id = ?1"
		               " AND state IN ('succeeded', 'failed', 'cancelled')",
		               "i", id);
	if (!rc && !changes)
		rc = refuse(s, id, "deleted", e);
	if (!rc)
		rc = store_run(s, e, NULL, "DELETE FROM event WHERE job_id = ?1", "i", id);
	return rc ? rc : store_event_put(s, id, "deleted", "{}", e);
}

/* -- transitions ------------------------------------------------------------------------------- */

static err_code put_state(struct store *s, int64_t id, enum job_state now, struct err *e)
{
	char data[64];

	snprintf(data, sizeof data, "{\"state\":\"%s\"}", job_state_name(now));
	return store_event_put(s, id, "state", data, e);
}

/* Ends a transition: rc and changes are its UPDATE's. */
static err_code moved(struct store *s, int64_t id, err_code rc, int changes, enum job_state now, const char *verb,
                      struct err *e)
{
	if (!rc && !changes)
		rc = refuse(s, id, verb, e);
	return rc ? rc : put_state(s, id, now, e);
}

err_code store_job_start(struct store *s, int64_t id, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE job SET state = 'running', waiting = NULL,"
	                        " started_ms = coalesce(started_ms, ?2) WHERE id = ?1 AND state = 'queued'",
	                        "ii", id, clock_unix_ms());

	return moved(s, id, rc, changes, JOB_RUNNING, "started", e);
}

err_code store_job_requeue(struct store *s, int64_t id, struct err *e)
{
	int changes = 0;
	err_code rc =
	    store_run(s, e, &changes, "UPDATE job SET state = 'queued' WHERE id = ?1 AND state = 'running'", "i", id);

	return moved(s, id, rc, changes, JOB_QUEUED, "queued again", e);
}

err_code store_job_wait(struct store *s, int64_t id, const char *why, struct err *e)
{
	struct buf data = BUF_INIT(4096);
	struct json_writer w = JSON_WRITER(&data);
	int changes = 0;
	err_code rc =
	    store_run(s, e, &changes, "UPDATE job SET waiting = ?2 WHERE id = ?1 AND state = 'queued'", "is", id, why);

	if (!rc && !changes)
		rc = refuse(s, id, "made to wait", e);
	json_begin_object(&w, NULL);
	json_put_string(&w, "waiting", why);
	json_end_object(&w);
	if (!rc)
		rc = buf_check(&data, "why a job waits", e);
	if (!rc)
		rc = store_event_put(s, id, "waiting", buf_str(&data), e);
	buf_release(&data);
	return rc;
}

err_code store_job_plan(struct store *s, int64_t id, const char *plan, const struct job_pins *pins, int64_t n_units,
                        int64_t total_tokens, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE job SET plan = ?2, pin_model = ?3, pin_tokenizer = ?4, pin_dataset = ?5,"
	                        " pin_signature = ?6, n_units = ?7, total_tokens = ?8"
	                        " WHERE id = ?1 AND state = 'running' AND plan IS NULL",
	                        "isssssii", id, plan, pins->model, pins->tokenizer, pins->dataset, pins->signature,
	                        n_units, total_tokens);

	if (!rc && !changes)
		rc = refuse(s, id, "planned", e);
	return rc ? rc : store_event_put(s, id, "planned", plan, e);
}

err_code store_job_cancel(struct store *s, int64_t id, struct err *e)
{
	enum job_state now = JOB_CANCELLED;
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE job SET state = 'cancelled', waiting = NULL, finished_ms = ?2"
	                        " WHERE id = ?1 AND state = 'queued'",
	                        "ii", id, clock_unix_ms());

	if (!rc && !changes) {
		rc = store_run(s, e, &changes,
		               "UPDATE job SET state = 'cancelling'"
		               " WHERE id = ?1 AND state IN ('running', 'cancelling')",
		               "i", id);
		now = JOB_CANCELLING;
	}
	return moved(s, id, rc, changes, now, "cancelled", e);
}

err_code store_job_cancelled(struct store *s, int64_t id, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE job SET state = 'cancelled', finished_ms = ?2"
	                        " WHERE id = ?1 AND state = 'cancelling'",
	                        "ii", id, clock_unix_ms());

	return moved(s, id, rc, changes, JOB_CANCELLED, "cancelled", e);
}

/* A finished job needs no progress on record: its counts say it all. */
static err_code drop_progress(struct store *s, int64_t id, struct err *e)
{
	return store_run(s, e, NULL, "DELETE FROM event WHERE job_id = ?1 AND kind = 'progress'", "i", id);
}

err_code store_job_succeed(struct store *s, int64_t id, const char *result, const char *headline, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE job SET state = 'succeeded', result = ?2, headline = ?3, finished_ms = ?4"
	                        " WHERE id = ?1 AND state = 'running'",
	                        "issi", id, result, headline, clock_unix_ms());

	rc = moved(s, id, rc, changes, JOB_SUCCEEDED, "finished", e);
	return rc ? rc : drop_progress(s, id, e);
}

err_code store_job_fail(struct store *s, int64_t id, const char *error, const char *partial, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE job SET state = 'failed', waiting = NULL, error = ?2,"
	                        " result = ?3, finished_ms = ?4 WHERE id = ?1 AND state IN ('queued', 'running')",
	                        "issi", id, error, partial, clock_unix_ms());

	rc = moved(s, id, rc, changes, JOB_FAILED, "failed", e);
	return rc ? rc : drop_progress(s, id, e);
}

err_code store_job_restart(struct store *s, int64_t id, struct err *e)
{
	int changes = 0;
	err_code rc = check_free(s, id, "restarted", e);

	if (!rc)
		rc = store_run(
		    s, e, &changes,
		    "UPDATE job SET state = 'queued', waiting = NULL, started_ms = NULL,"
		    " finished_ms = NULL, cache = 0, cached_from = NULL,"
		    " plan = NULL, pin_model = NULL, pin_tokenizer = NULL, pin_dataset = NULL,"
		    " pin_signature = NULL, n_units = 0, total_tokens = 0, done_units = 0,"
		    " failed_units = 0, done_tokens = 0, seconds = 0, repeated_units = 0, error = NULL,"
		    " result = NULL, headline = NULL WHERE id = ?1 AND (state IN ('succeeded', 'failed', 'cancelled')"
		    " OR (state = 'queued' AND waiting IS NOT NULL))",
		    "i", id);

	if (!rc && !changes)
		rc = refuse(s, id, "restarted", e);
	if (!rc)
		rc = store_run(s, e, NULL, "DELETE FROM unit WHERE job_id = ?1", "i", id);
	if (!rc)
		rc = store_run(s, e, NULL, "DELETE FROM unit_failure WHERE job_id = ?1", "i", id);
	if (!rc)
		rc = store_event_put(s, id, "restarted", "{}", e);
	return rc ? rc : put_state(s, id, JOB_QUEUED, e);
}

err_code store_recover(struct store *s, struct err *e)
{
	int64_t *ids = NULL;
	size_t n = 0;
	struct job j = {0};
	err_code rc = store_job_active(s, &ids, &n, e);

	for (size_t i = 0; !rc && i < n; i++) {
		rc = store_job_get(s, ids[i], &j, e);
		if (rc)
			break;
		if (j.state == JOB_RUNNING)
			rc = store_job_requeue(s, ids[i], e);
		else if (j.state == JOB_CANCELLING)
			rc = store_job_cancelled(s, ids[i], e);
		job_release(&j);
	}
	free(ids);
	return rc;
}
