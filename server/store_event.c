/* Events: an append-only record of what happened to jobs, in the order of their ids. */
#include "server/store_private.h"

#include <assert.h>

err_code store_event_put(struct store *s, int64_t job, const char *kind, const char *data, struct err *e)
{
	assert(s->in_transaction);
	return store_run(s, e, NULL, "INSERT INTO event (job_id, at_ms, kind, data) VALUES (?1, ?2, ?3, ?4)", "iiss",
	                 job, store_now_ms(), kind, data);
}

err_code store_event_progress(struct store *s, int64_t job, struct err *e)
{
	assert(s->in_transaction);
	return store_run(s, e, NULL,
	                 "INSERT INTO event (job_id, at_ms, kind, data)"
	                 " SELECT id, ?2, 'progress', json_object('done_units', done_units, 'failed_units', "
	                 "failed_units,"
	                 " 'n_units', n_units, 'done_tokens', done_tokens, 'total_tokens', total_tokens)"
	                 " FROM job WHERE id = ?1",
	                 "ii", job, store_now_ms());
}
