/* Runs of gates: rows, and the transitions of store_gate.h's diagram. The jobs of a run are made with it, and are jobs
 * like any other. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "server/store_gate.h"
#include "server/store_private.h"

static const char *const state_names[] = {"measuring", "judging", "done", "failed", "cancelled"};
#define N_STATES (sizeof state_names / sizeof *state_names)

const char *run_state_name(enum run_state s)
{
	assert((size_t)s < N_STATES);
	return state_names[s];
}

bool run_state_from_name(const char *name, enum run_state *out)
{
	for (size_t i = 0; i < N_STATES; i++) {
		if (!strcmp(name, state_names[i])) {
			*out = (enum run_state)i;
			return true;
		}
	}
	return false;
}

bool run_state_final(enum run_state s)
{
	return s == RUN_DONE || s == RUN_FAILED || s == RUN_CANCELLED;
}

void gate_run_release(struct gate_run *r)
{
	char *owned[] = {r->gate,    r->model, r->baseline, r->tags,      r->verdict,
	                 r->outcome, r->error, r->hook,     r->hook_error};

	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
		free(owned[i]);
	for (size_t i = 0; i < r->n_measures; i++) {
		free(r->measures[i].measure);
		free(r->measures[i].state);
	}
	free(r->measures);
	memset(r, 0, sizeof *r);
}

/* -- reading ----------------------------------------------------------------------------------- */

#define COLUMNS                                                                                                        \
	"id, gate, gate_version, model, baseline, baseline_version, tags, allow_engine_change, state, created_ms, "    \
	"finished_ms, verdict, outcome, error, hook, hook_tries, hook_at_ms, hook_error"

static err_code read_run(sqlite3_stmt *row, struct gate_run *out, struct err *e)
{
	bool failed = false;
	char *state = store_text(row, 8, &failed);
	struct gate_run r = {.id = sqlite3_column_int64(row, 0)};

	if (state && !run_state_from_name(state, &r.state))
		assert(!"the CHECK on gate_run.state");
	free(state);
	r.gate = store_text(row, 1, &failed);
	r.gate_version = sqlite3_column_int64(row, 2);
	r.model = store_text(row, 3, &failed);
	r.baseline = store_text(row, 4, &failed);
	r.baseline_version = sqlite3_column_int64(row, 5);
	r.tags = store_text(row, 6, &failed);
	r.allow_engine_change = sqlite3_column_int(row, 7);
	r.created_ms = sqlite3_column_int64(row, 9);
	r.finished_ms = sqlite3_column_int64(row, 10);
	r.verdict = store_text(row, 11, &failed);
	r.outcome = store_text(row, 12, &failed);
	r.error = store_text(row, 13, &failed);
	r.hook = store_text(row, 14, &failed);
	r.hook_tries = sqlite3_column_int64(row, 15);
	r.hook_at_ms = sqlite3_column_int64(row, 16);
	r.hook_error = store_text(row, 17, &failed);
	if (failed) {
		gate_run_release(&r);
		return err_set(e, ERR_MEMORY, "out of memory reading a run");
	}
	*out = r;
	return ERR_OK;
}

static err_code read_measures(struct store *s, struct gate_run *r, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false, failed = false;
	size_t cap = 0;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT m.measure, m.job_id, job.cached_from, job.state FROM gate_measure AS m"
	                          " LEFT JOIN job ON job.id = m.job_id WHERE m.run_id = ?1 ORDER BY m.place",
	                          "i", r->id);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		struct run_measure *grown = mem_grow(r->measures, &cap, r->n_measures + 1, sizeof *grown, e);

		if (!grown) {
			rc = ERR_MEMORY;
			break;
		}
		r->measures = grown;
		r->measures[r->n_measures++] =
		    (struct run_measure){store_text(stmt, 0, &failed), sqlite3_column_int64(stmt, 1),
		                         sqlite3_column_int64(stmt, 2), store_text(stmt, 3, &failed)};
	}
	store_done(stmt);
	if (!rc && failed)
		rc = err_set(e, ERR_MEMORY, "out of memory reading run %lld", (long long)r->id);
	return rc;
}

static err_code no_such_run(int64_t id, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "no run %lld", (long long)id);
}

err_code store_run_get(struct store *s, int64_t id, struct gate_run *out, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	struct gate_run r = {0};
	bool row = false;
	err_code rc = store_query(s, e, &stmt, "SELECT " COLUMNS " FROM gate_run WHERE id = ?1", "i", id);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc)
		rc = row ? read_run(stmt, &r, e) : no_such_run(id, e);
	store_done(stmt);
	if (!rc)
		rc = read_measures(s, &r, e);
	if (rc)
		gate_run_release(&r);
	else
		*out = r;
	return rc;
}

err_code store_run_list(struct store *s, const struct run_filter *f, struct gate_run **runs, size_t *n, struct err *e)
{
	struct gate_run *list = mem_zalloc((size_t)f->limit, sizeof *list, e);
	sqlite3_stmt *stmt = NULL;
	size_t count = 0;
	bool row = false;
	err_code rc;

	assert(f->limit >= 1 && f->limit <= 1000);
	if (!list)
		return ERR_MEMORY;
	rc = store_query(s, e, &stmt,
	                 "SELECT " COLUMNS
	                 " FROM gate_run WHERE (?1 IS NULL OR gate = ?1) AND (?2 IS NULL OR model = ?2)"
	                 " AND (?3 IS NULL OR tags ->> '$.branch' = ?3) AND (?4 IS NULL OR outcome = ?4)"
	                 " AND (?5 IS NULL OR state = ?5) AND (?6 = 0 OR id < ?6) ORDER BY id DESC LIMIT ?7",
	                 "sssssii", f->gate, f->model, f->branch, f->outcome,
	                 f->state < 0 ? NULL : run_state_name((enum run_state)f->state), f->after, (int64_t)f->limit);
	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		rc = read_run(stmt, &list[count], e);
		count += !rc;
	}
	store_done(stmt);
	for (size_t i = 0; !rc && i < count; i++)
		rc = read_measures(s, &list[i], e);
	if (!rc) {
		*runs = list;
		*n = count;
		return ERR_OK;
	}
	for (size_t i = 0; i < count; i++)
		gate_run_release(&list[i]);
	free(list);
	return rc;
}

err_code store_run_open(struct store *s, int64_t **ids, size_t *n, struct err *e)
{
	return store_ids(s,
	                 "SELECT id FROM gate_run WHERE state IN ('measuring', 'judging') OR hook = 'waiting'"
	                 " ORDER BY id",
	                 ids, n, e);
}

err_code store_run_totals(struct store *s, run_total_fn *f, void *arg, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT gate, coalesce(outcome, state), count(*) FROM gate_run GROUP BY 1, 2"
	                          " ORDER BY 1, 2",
	                          "");

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row)
		f(arg, (const char *)sqlite3_column_text(stmt, 0), (const char *)sqlite3_column_text(stmt, 1),
		  sqlite3_column_int64(stmt, 2));
	store_done(stmt);
	return rc;
}

err_code store_gate_branches(struct store *s, const char *gate, gate_branch_fn *f, void *arg, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT tags ->> '$.branch' AS branch, tags ->> '$.commit', outcome, model, id,"
	                          " finished_ms FROM gate_run WHERE id IN (SELECT max(id) FROM gate_run"
	                          " WHERE gate = ?1 AND state = 'done' GROUP BY tags ->> '$.branch') ORDER BY branch",
	                          "s", gate);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row)
		f(arg, &(struct gate_branch){
		           .branch = (const char *)sqlite3_column_text(stmt, 0),
		           .commit = (const char *)sqlite3_column_text(stmt, 1),
		           .outcome = (const char *)sqlite3_column_text(stmt, 2),
		           .model = (const char *)sqlite3_column_text(stmt, 3),
		           .run = sqlite3_column_int64(stmt, 4),
		           .at_ms = sqlite3_column_int64(stmt, 5),
		       });
	store_done(stmt);
	return rc;
}

err_code store_run_passed(struct store *s, const struct run_past *p, verdict_fn *f, void *arg, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT r.verdict, m.measure FROM (SELECT max(r.id) AS id, m.place FROM gate_run AS r"
	                          " JOIN gate_measure AS m ON m.run_id = r.id AND m.protocol = ?3"
	                          " WHERE r.gate = ?1 AND r.tags ->> '$.branch' IS ?2 AND r.id < ?5"
	                          " AND r.fingerprint <> ?4 AND (r.outcome = 'pass' OR (r.outcome = 'inconclusive'"
	                          " AND NOT EXISTS (SELECT 1 FROM json_each(r.verdict, '$.rules') AS v"
	                          " WHERE v.value ->> 'verdict' <> 'pass' AND v.value ->> 'type' <> 'history')))"
	                          " GROUP BY r.fingerprint) AS newest"
	                          " JOIN gate_run AS r ON r.id = newest.id JOIN gate_measure AS m"
	                          " ON m.run_id = newest.id AND m.place = newest.place ORDER BY r.id DESC LIMIT ?6",
	                          "ssssii", p->gate, p->branch, p->protocol, p->except, p->before, (int64_t)p->limit);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row)
		rc = f(arg, (const char *)sqlite3_column_text(stmt, 0), (const char *)sqlite3_column_text(stmt, 1), e);
	store_done(stmt);
	return rc;
}

/* -- making ------------------------------------------------------------------------------------ */

/* Pins the version of its baseline. */
static err_code pin_baseline(struct store *s, const struct run_new *n, int64_t *version, struct err *e)
{
	struct baseline b = {0};
	err_code rc;

	*version = 0;
	if (!n->baseline)
		return ERR_OK;
	rc = store_baseline_get(s, n->baseline, n->baseline_version, &b, e);
	if (rc)
		return rc == ERR_NOT_FOUND ? err_at(e, "/baseline") : rc;
	*version = b.version;
	baseline_release(&b);
	return ERR_OK;
}

static err_code put_row(struct store *s, const struct run_new *n, int64_t baseline_version, struct err *e)
{
	static const char with[] =
	    "INSERT INTO gate_run (gate, gate_version, model, tags, allow_engine_change, created_ms,"
	    " baseline, baseline_version, idempotency_key, request_hash)"
	    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, 0), ?9, ?10)";

	return store_run(s, e, NULL, with, "sissiisiss", n->gate, n->gate_version, n->model, n->tags,
	                 (int64_t)n->allow_engine_change, clock_unix_ms(), n->baseline, baseline_version,
	                 n->idempotency_key, n->request_hash);
}

err_code store_run_insert(struct store *s, const struct run_new *n, int64_t *id, bool *existed, struct err *e)
{
	int64_t version = 0, job = 0, known = 0;
	bool job_existed;
	err_code rc = ERR_OK;

	assert(s->in_transaction);
	if (n->idempotency_key)
		rc = store_find_key(s, "SELECT id, request_hash IS ?2 FROM gate_run WHERE idempotency_key = ?1", "run",
		                    n->idempotency_key, n->request_hash, &known, e);
	*existed = known != 0;
	*id = known;
	if (rc || known)
		return rc;
	rc = pin_baseline(s, n, &version, e);
	if (!rc)
		rc = put_row(s, n, version, e);
	if (rc)
		return rc;
	*id = sqlite3_last_insert_rowid(s->db);
	for (size_t i = 0; !rc && i < n->n_measures; i++) {
		rc = store_job_insert(s, &n->jobs[i], &job, &job_existed, e);
		if (!rc)
			rc = store_run(
			    s, e, NULL,
			    "INSERT INTO gate_measure (run_id, place, measure, job_id) VALUES (?1, ?2, ?3, ?4)", "iisi",
			    *id, (int64_t)i, n->measures[i], job);
	}
	return rc;
}

/* -- transitions ------------------------------------------------------------------------------- */

/* Ends a transition: rc and changes are its UPDATE's. */
static err_code moved(struct store *s, int64_t id, err_code rc, int changes, const char *verb, struct err *e)
{
	if (rc || changes)
		return rc;
	return store_refused(s, "SELECT state FROM gate_run WHERE id = ?1", "run", id, verb, e);
}

err_code store_run_judge(struct store *s, int64_t id, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE gate_run SET state = 'judging' WHERE id = ?1 AND state = 'measuring'", "i", id);

	return moved(s, id, rc, changes, "judged", e);
}

err_code store_run_done(struct store *s, int64_t id, const char *verdict, const char *outcome, const char *fingerprint,
                        bool hook, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE gate_run SET state = 'done', verdict = ?2, outcome = ?3, fingerprint = ?4,"
	                        " finished_ms = ?5, hook = ?6, hook_at_ms = iif(?6 IS NULL, NULL, ?5)"
	                        " WHERE id = ?1 AND state = 'judging'",
	                        "isssis", id, verdict, outcome, fingerprint, clock_unix_ms(), hook ? "waiting" : NULL);

	return moved(s, id, rc, changes, "done", e);
}

err_code store_run_protocol(struct store *s, int64_t id, size_t place, const char *protocol, struct err *e)
{
	return store_run(s, e, NULL, "UPDATE gate_measure SET protocol = ?3 WHERE run_id = ?1 AND place = ?2", "iis",
	                 id, (int64_t)place, protocol);
}

err_code store_run_fail(struct store *s, int64_t id, const char *error, struct err *e)
{
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE gate_run SET state = 'failed', error = ?2, finished_ms = ?3"
	                        " WHERE id = ?1 AND state IN ('measuring', 'judging')",
	                        "isi", id, error, clock_unix_ms());

	return moved(s, id, rc, changes, "failed", e);
}

static err_code cancel_job(struct store *s, const struct run_measure *m, struct err *e)
{
	enum job_state now;

	if (!m->state || !job_state_from_name(m->state, &now) || job_state_final(now))
		return ERR_OK;
	return store_job_cancel(s, m->job, e);
}

err_code store_run_cancel(struct store *s, int64_t id, struct err *e)
{
	struct gate_run r = {0};
	int changes = 0;
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE gate_run SET state = 'cancelled', finished_ms = ?2"
	                        " WHERE id = ?1 AND state IN ('measuring', 'judging')",
	                        "ii", id, clock_unix_ms());

	rc = moved(s, id, rc, changes, "cancelled", e);
	if (!rc)
		rc = store_run_get(s, id, &r, e);
	for (size_t i = 0; !rc && i < r.n_measures; i++)
		rc = cancel_job(s, &r.measures[i], e);
	gate_run_release(&r);
	return rc;
}

err_code store_run_hook(struct store *s, int64_t id, const char *error, int64_t next_ms, struct err *e)
{
	int changes = 0;
	const char *hook = !error ? "delivered" : next_ms ? "waiting" : "given_up";
	err_code rc = store_run(s, e, &changes,
	                        "UPDATE gate_run SET hook = ?2, hook_tries = hook_tries + 1, hook_error = ?3,"
	                        " hook_at_ms = ?4 WHERE id = ?1 AND hook = 'waiting'",
	                        "issi", id, hook, error, next_ms ? next_ms : clock_unix_ms());

	return moved(s, id, rc, changes, "delivered", e);
}
