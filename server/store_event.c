/* Events: an append-only record of what happened to jobs, in the order of their ids. */
#include "server/store_private.h"

#include <assert.h>

#include "engine/clock.h"

err_code store_event_put(struct store *s, int64_t job, const char *kind, const char *data, struct err *e)
{
	assert(s->in_transaction);
	return store_run(s, e, NULL, "INSERT INTO event (job_id, at_ms, kind, data) VALUES (?1, ?2, ?3, ?4)", "iiss",
	                 job, clock_unix_ms(), kind, data);
}

err_code store_event_progress(struct store *s, int64_t job, struct err *e)
{
	assert(s->in_transaction);
	return store_run(s, e, NULL,
	                 "INSERT INTO event (job_id, at_ms, kind, data)"
	                 " SELECT id, ?2, 'progress', json_object('done_units', done_units,"
	                 " 'failed_units', failed_units, 'n_units', n_units,"
	                 " 'done_tokens', done_tokens, 'total_tokens', total_tokens)"
	                 " FROM job WHERE id = ?1",
	                 "ii", job, clock_unix_ms());
}

err_code store_event_each(struct store *s, int64_t job, int64_t after, int limit, store_event_fn *f, void *arg,
                          struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          job ? "SELECT id, job_id, at_ms, kind, data FROM event"
	                                " WHERE job_id = ?2 AND id > ?1 ORDER BY id LIMIT ?3"
	                              : "SELECT id, job_id, at_ms, kind, data FROM event"
	                                " WHERE id > ?1 AND ?2 = 0 ORDER BY id LIMIT ?3",
	                          "iii", after, job, (int64_t)limit);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row)
		f(arg, &(struct store_event){
		           .id = sqlite3_column_int64(stmt, 0),
		           .job = sqlite3_column_int64(stmt, 1),
		           .at_ms = sqlite3_column_int64(stmt, 2),
		           .kind = (const char *)sqlite3_column_text(stmt, 3),
		           .data = (const char *)sqlite3_column_text(stmt, 4),
		       });
	store_done(stmt);
	return rc;
}

err_code store_event_last(struct store *s, int64_t *id, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, "SELECT coalesce(max(id), 0) FROM event", "");

	if (!rc)
		rc = store_step(s, stmt, &row, e);
	if (!rc)
		*id = row ? sqlite3_column_int64(stmt, 0) : 0;
	store_done(stmt);
	return rc;
}
