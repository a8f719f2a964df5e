/* Baselines: named sets of results, versioned. A version is never changed; a job that one holds stays. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "server/store_gate.h"
#include "server/store_private.h"

void baseline_release(struct baseline *b)
{
	for (size_t i = 0; i < b->n_results; i++) {
		struct baseline_result *r = &b->results[i];

		free(r->model);
		free(r->task);
		free(r->dataset);
		free(r->headline);
	}
	free(b->results);
	free(b->name);
	memset(b, 0, sizeof *b);
}

/* The time tells a version from one of the same number of a name that was deleted. */
void baseline_etag(int64_t version, int64_t created_ms, char out[BASELINE_ETAG])
{
	snprintf(out, BASELINE_ETAG, "%lld-%llx", (long long)version, (unsigned long long)created_ms);
}

/* -- reading ----------------------------------------------------------------------------------- */

static err_code no_such_baseline(const char *name, int64_t version, struct err *e)
{
	if (version)
		return err_set(e, ERR_NOT_FOUND, "no version %lld of baseline '%.200s'", (long long)version, name);
	return err_set(e, ERR_NOT_FOUND, "no baseline '%.200s'", name);
}

/* Its version (0: the newest) and time; *version 0: it is not there. */
static err_code find_version(struct store *s, const char *name, int64_t *version, int64_t *created_ms, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc =
	    store_query(s, e, &stmt,
	                "SELECT version, created_ms FROM baseline WHERE name = ?1 AND (?2 = 0 OR version = ?2)"
	                " ORDER BY version DESC LIMIT 1",
	                "si", name, *version);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	*version = row ? sqlite3_column_int64(stmt, 0) : 0;
	*created_ms = row ? sqlite3_column_int64(stmt, 1) : 0;
	store_done(stmt);
	return rc;
}

static err_code read_results(struct store *s, struct baseline *b, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false, failed = false;
	size_t cap = 0;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT coalesce(r.job_id, 0), coalesce(job.model, r.result ->> '$.model.name'),"
	                          " coalesce(job.task, r.result ->> '$.task.name'),"
	                          " coalesce(job.dataset, r.result ->> '$.dataset.name'), job.headline"
	                          " FROM baseline_result AS r LEFT JOIN job ON job.id = r.job_id"
	                          " WHERE r.name = ?1 AND r.version = ?2 ORDER BY r.place",
	                          "si", b->name, b->version);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		struct baseline_result *grown = mem_grow(b->results, &cap, b->n_results + 1, sizeof *grown, e);

		if (!grown) {
			rc = ERR_MEMORY;
			break;
		}
		b->results = grown;
		b->results[b->n_results++] = (struct baseline_result){
		    .job = sqlite3_column_int64(stmt, 0),
		    .model = store_text(stmt, 1, &failed),
		    .task = store_text(stmt, 2, &failed),
		    .dataset = store_text(stmt, 3, &failed),
		    .headline = store_text(stmt, 4, &failed),
		};
	}
	store_done(stmt);
	if (!rc && failed)
		rc = err_set(e, ERR_MEMORY, "out of memory reading baseline '%.200s'", b->name);
	return rc;
}

err_code store_baseline_get(struct store *s, const char *name, int64_t version, struct baseline *out, struct err *e)
{
	struct baseline b = {.version = version};
	err_code rc = find_version(s, name, &b.version, &b.created_ms, e);

	if (!rc && !b.version)
		rc = no_such_baseline(name, version, e);
	if (!rc) {
		b.name = mem_strdup(name, e);
		rc = b.name ? read_results(s, &b, e) : ERR_MEMORY;
	}
	if (rc)
		baseline_release(&b);
	else
		*out = b;
	return rc;
}

err_code store_baseline_each(struct store *s, const char *name, int limit, baseline_fn *f, void *arg, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT name, version, created_ms, (SELECT count(*) FROM baseline_result AS r"
	                          " WHERE r.name = b.name AND r.version = b.version) FROM baseline AS b"
	                          " WHERE CASE WHEN ?1 IS NULL"
	                          " THEN version = (SELECT max(version) FROM baseline AS n WHERE n.name = b.name)"
	                          " ELSE name = ?1 END ORDER BY name, version DESC LIMIT ?2",
	                          "si", name, (int64_t)limit);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row)
		f(arg, (const char *)sqlite3_column_text(stmt, 0), sqlite3_column_int64(stmt, 1),
		  sqlite3_column_int64(stmt, 2), sqlite3_column_int64(stmt, 3));
	store_done(stmt);
	return rc;
}

err_code store_baseline_evidence(struct store *s, const char *name, int64_t version, baseline_evidence_fn *f, void *arg,
                                 struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	int64_t found = version, created_ms;
	bool row = false;
	err_code rc = find_version(s, name, &found, &created_ms, e);

	if (rc || !found)
		return rc ? rc : no_such_baseline(name, version, e);
	rc = store_query(s, e, &stmt,
	                 "SELECT coalesce(job_id, 0), result, items FROM baseline_result"
	                 " WHERE name = ?1 AND version = ?2 ORDER BY place",
	                 "si", name, found);
	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row)
		rc = f(arg, sqlite3_column_int64(stmt, 0), (const char *)sqlite3_column_text(stmt, 1),
		       (const char *)sqlite3_column_text(stmt, 2), e);
	store_done(stmt);
	return rc;
}

/* -- writing ----------------------------------------------------------------------------------- */

/* Whether an If-Match header names this version: "*", or a list of ETags in quotes (a weak one never matches). */
static bool is_matched(const char *if_match, int64_t version, int64_t created_ms)
{
	char etag[BASELINE_ETAG];

	baseline_etag(version, created_ms, etag);
	for (const char *at = if_match; *at;) {
		size_t len;

		at += strspn(at, " \t,");
		len = strcspn(at, ",");
		while (len && strchr(" \t", at[len - 1]))
			len--;
		if (len == 1 && *at == '*')
			return true;
		if (len == strlen(etag) + 2 && *at == '"' && at[len - 1] == '"' && !memcmp(at + 1, etag, len - 2))
			return true;
		at += strcspn(at, ",");
	}
	return false;
}

static err_code check_match(const char *name, const char *if_match, int64_t version, int64_t created_ms, struct err *e)
{
	char etag[BASELINE_ETAG];

	if (!version)
		return if_match ? err_set(e, ERR_CHANGED, "no baseline '%.200s' for If-Match to match", name) : ERR_OK;
	baseline_etag(version, created_ms, etag);
	if (!if_match)
		return err_set(e, ERR_CONFLICT,
		               "baseline '%.200s' is there: to change it, If-Match is to name its version (\"%s\")",
		               name, etag);
	if (!is_matched(if_match, version, created_ms))
		return err_set(e, ERR_CHANGED, "baseline '%.200s' is \"%s\" now, not %.100s", name, etag, if_match);
	return ERR_OK;
}

/* A job that a baseline takes must have a result. */
static err_code check_job(struct store *s, int64_t id, size_t place, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, "SELECT state FROM job WHERE id = ?1", "i", id);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc && !row)
		rc = err_set(e, ERR_INPUT, "no job %lld", (long long)id);
	else if (!rc && strcmp((const char *)sqlite3_column_text(stmt, 0), "succeeded") != 0)
		rc = err_set(e, ERR_INPUT, "job %lld has no result: it is %s", (long long)id,
		             (const char *)sqlite3_column_text(stmt, 0));
	store_done(stmt);
	return rc == ERR_INPUT ? err_at(e, "/jobs/%zu", place) : rc;
}

static err_code put_result(struct store *s, const struct baseline_new *n, size_t i, struct err *e)
{
	const struct baseline_result_new *r = &n->results[i];

	if (!r->job)
		return store_run(s, e, NULL,
		                 "INSERT INTO baseline_result (name, version, place, result, items)"
		                 " VALUES (?1, ?2, ?3, ?4, ?5)",
		                 "siiss", n->name, n->version, (int64_t)i, r->result, r->items);
	if (check_job(s, r->job, i, e))
		return e->code;
	return store_run(s, e, NULL,
	                 "INSERT INTO baseline_result (name, version, place, job_id) VALUES (?1, ?2, ?3, ?4)", "siii",
	                 n->name, n->version, (int64_t)i, r->job);
}

err_code store_baseline_put(struct store *s, struct baseline_new *n, struct err *e)
{
	int64_t version = 0, created_ms = 0;
	err_code rc = find_version(s, n->name, &version, &created_ms, e);

	assert(s->in_transaction);
	if (!rc)
		rc = check_match(n->name, n->if_match, version, created_ms, e);
	if (rc)
		return rc;
	n->version = version + 1;
	n->created_ms = clock_unix_ms();
	rc = store_run(s, e, NULL, "INSERT INTO baseline (name, version, created_ms) VALUES (?1, ?2, ?3)", "sii",
	               n->name, n->version, n->created_ms);
	for (size_t i = 0; !rc && i < n->n_results; i++)
		rc = put_result(s, n, i, e);
	return rc;
}

/* ERR_CONFLICT while an unfinished run compares with it. */
static err_code check_unused(struct store *s, const char *name, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT id, gate FROM gate_run WHERE baseline = ?1"
	                          " AND state IN ('measuring', 'judging') LIMIT 1",
	                          "s", name);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc && row)
		rc =
		    err_set(e, ERR_CONFLICT, "run %lld of gate '%.200s' compares with baseline '%.200s'",
		            (long long)sqlite3_column_int64(stmt, 0), (const char *)sqlite3_column_text(stmt, 1), name);
	store_done(stmt);
	return rc;
}

err_code store_baseline_delete(struct store *s, const char *name, const char *if_match, struct err *e)
{
	int64_t version = 0, created_ms = 0;
	err_code rc = find_version(s, name, &version, &created_ms, e);

	assert(s->in_transaction);
	if (!rc && !version)
		rc = no_such_baseline(name, 0, e);
	if (!rc && if_match)
		rc = check_match(name, if_match, version, created_ms, e);
	if (!rc)
		rc = check_unused(s, name, e);
	return rc ? rc : store_run(s, e, NULL, "DELETE FROM baseline WHERE name = ?1", "s", name);
}
