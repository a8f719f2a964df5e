/* Units: results, failures, and the job's counts of them, which change in the same transaction. */
#include "server/store_private.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/json.h"

static err_code put_one(struct store *s, int64_t job, const struct unit_result *u, int *inserted, struct err *e)
{
	return store_run(s, e, inserted,
	                 "INSERT INTO unit (job_id, unit, result) VALUES (?1, ?2, ?3)"
	                 " ON CONFLICT DO NOTHING",
	                 "ius", job, u->unit, u->result);
}

err_code store_unit_put(struct store *s, int64_t job, const struct unit_result *units, size_t n, double seconds,
                        size_t *stored, struct err *e)
{
	size_t n_new = 0;
	int64_t tokens = 0;
	int inserted = 0, changes = 0;
	err_code rc = ERR_OK;

	assert(s->in_transaction);
	for (size_t i = 0; !rc && i < n; i++) {
		rc = put_one(s, job, &units[i], &inserted, e);
		if (!rc && inserted) {
			n_new++;
			tokens += units[i].tokens;
		}
	}
	if (!rc)
		rc = store_run(s, e, &changes,
		               "UPDATE job SET done_units = done_units + ?2, done_tokens = done_tokens + ?3,"
		               " seconds = seconds + ?4, repeated_units = repeated_units + ?5"
		               " WHERE id = ?1 AND state IN ('running', 'cancelling')",
		               "iiidi", job, (int64_t)n_new, tokens, seconds > 0 ? seconds : 0.0, (int64_t)(n - n_new));
	if (!rc && !changes)
		rc = err_set(e, ERR_CONFLICT, "job %lld takes no results: it is not running", (long long)job);
	if (!rc && stored)
		*stored = n_new;
	return rc;
}

err_code store_unit_fail(struct store *s, int64_t job, uint32_t unit, const char *code, const char *message,
                         struct err *e)
{
	struct buf data = BUF_INIT(8192);
	struct json_writer w = JSON_WRITER(&data);
	int inserted = 0;
	err_code rc = store_run(s, e, &inserted,
	                        "INSERT INTO unit_failure (job_id, unit, code, message) VALUES (?1, ?2, ?3, ?4)"
	                        " ON CONFLICT DO NOTHING",
	                        "iuss", job, unit, code, message);

	if (rc || !inserted)
		return rc;
	json_begin_object(&w, NULL);
	json_put_uint(&w, "unit", unit);
	json_put_string(&w, "code", code);
	json_put_string(&w, "message", message);
	json_end_object(&w);
	rc = buf_check(&data, "a unit's error", e);
	if (!rc)
		rc = store_run(s, e, NULL, "UPDATE job SET failed_units = failed_units + 1 WHERE id = ?1", "i", job);
	if (!rc)
		rc = store_event_put(s, job, "unit_failed", buf_str(&data), e);
	buf_release(&data);
	return rc;
}

err_code store_unit_each(struct store *s, int64_t job, unit_fn *f, void *arg, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT unit, NULL, NULL FROM unit WHERE job_id = ?1"
	                          " UNION ALL SELECT unit, code, message FROM unit_failure WHERE job_id = ?1",
	                          "i", job);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		const char *code = (const char *)sqlite3_column_text(stmt, 1);
		const char *message = (const char *)sqlite3_column_text(stmt, 2);

		f(arg, (uint32_t)sqlite3_column_int64(stmt, 0), code != NULL, code, message);
	}
	store_done(stmt);
	return rc;
}

/* -- walking results --------------------------------------------------------------------------- */

/* Has a statement of its own, not a cached one: two cursors may be open on one connection. */
struct unit_cursor {
	struct store *store; /* borrowed */
	sqlite3_stmt *stmt;  /* owned */
	struct err err;      /* what next met, for close */
};

err_code unit_cursor_open(struct store *s, int64_t job, int64_t skip, struct unit_cursor **out, struct err *e)
{
	struct unit_cursor *c = mem_zalloc(1, sizeof *c, e);

	if (!c)
		return ERR_MEMORY;
	c->store = s;
	if (sqlite3_prepare_v2(s->db,
	                       "SELECT unit, result FROM unit WHERE job_id = ?1 ORDER BY unit LIMIT -1 OFFSET ?2", -1,
	                       &c->stmt, NULL) != SQLITE_OK ||
	    sqlite3_bind_int64(c->stmt, 1, job) != SQLITE_OK || sqlite3_bind_int64(c->stmt, 2, skip) != SQLITE_OK) {
		store_failed(s, e, "reading units");
		sqlite3_finalize(c->stmt);
		free(c);
		return e->code;
	}
	*out = c;
	return ERR_OK;
}

const char *unit_cursor_next(void *cursor, uint32_t *unit)
{
	struct unit_cursor *c = cursor;
	const char *text;
	bool row = false;

	if (c->err.code || store_step(c->store, c->stmt, &row, &c->err) || !row)
		return NULL;
	*unit = (uint32_t)sqlite3_column_int64(c->stmt, 0);
	text = (const char *)sqlite3_column_text(c->stmt, 1);
	if (!text)
		err_set(&c->err, ERR_MEMORY, "out of memory reading unit %u", *unit);
	return text;
}

err_code unit_cursor_close(struct unit_cursor *c, struct err *e)
{
	err_code rc = c->err.code;

	if (rc)
		*e = c->err;
	sqlite3_finalize(c->stmt);
	free(c);
	return rc;
}
