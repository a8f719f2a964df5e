/* The cache of results: a job's identity is what its plan pinned, and a job of the same identity has its units. There
 * is no copy of results: they are folded from the units, as any job's are, so that names and warnings are its own. */
#include <assert.h>

#include "server/store_private.h"

/* Names are no part of it: a model is its bytes. Of what was asked for, the position stands beside the resolved one
 * of the plan; device and dtype are in the signature. */
static err_code find_same(struct store *s, int64_t id, int task_version, int64_t *from, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(
	    s, e, &stmt,
	    "SELECT old.id FROM job AS new JOIN job AS old ON old.state = 'succeeded' AND old.pin_model = new.pin_model"
	    " AND old.pin_dataset = new.pin_dataset AND old.pin_tokenizer = new.pin_tokenizer"
	    " AND old.pin_signature = new.pin_signature AND old.task = new.task AND old.params = new.params"
	    " AND old.engine ->> '$.position' IS new.engine ->> '$.position'"
	    " AND old.plan ->> '$.model.position' IS new.plan ->> '$.model.position'"
	    " AND old.result ->> '$.task.version' = ?2 AND old.n_units = new.n_units"
	    " WHERE new.id = ?1 AND new.cache AND old.id <> new.id"
	    " ORDER BY old.cached_from IS NOT NULL, old.id DESC LIMIT 1",
	    "ii", id, (int64_t)task_version);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	*from = row ? sqlite3_column_int64(stmt, 0) : 0;
	store_done(stmt);
	return rc;
}

err_code store_job_take_cached(struct store *s, int64_t id, int task_version, int64_t *from, struct err *e)
{
	err_code rc = find_same(s, id, task_version, from, e);

	assert(s->in_transaction);
	if (rc || !*from)
		return rc;
	rc = store_run(s, e, NULL,
	               "INSERT INTO unit (job_id, unit, result) SELECT ?1, unit, result FROM unit"
	               " WHERE job_id = ?2",
	               "ii", id, *from);
	return rc ? rc
	          : store_run(s, e, NULL,
	                      "UPDATE job SET cached_from = old.id, done_units = old.done_units,"
	                      " done_tokens = old.done_tokens, seconds = old.seconds"
	                      " FROM (SELECT id, done_units, done_tokens, seconds FROM job WHERE id = ?2) AS old"
	                      " WHERE job.id = ?1",
	                      "ii", id, *from);
}
