/* What only the core thread may do to the store: the transitions of a job, unit results, events.
 *
 * All of these run inside a transaction (store_begin) and write their event in it. A transition
 * from a state that does not allow it is ERR_CONFLICT and changes nothing. */
#ifndef FATHOM_SERVER_STORE_WRITE_H
#define FATHOM_SERVER_STORE_WRITE_H

#include "server/store.h"

/* One request of a group can fail without the others: release or roll back before the next. A rollback that finds the
 * whole transaction gone (disk full) fails: then none of the group is done. */
err_code store_savepoint(struct store *s, struct err *e);
err_code store_savepoint_release(struct store *s, struct err *e);
err_code store_savepoint_rollback(struct store *s, struct err *e);

/* -- jobs -------------------------------------------------------------------------------------- */

/* What the first plan found. Owned strings; all NULL before it. */
struct job_pins {
	char *model, *tokenizer, *dataset, *signature;
};
void job_pins_release(struct job_pins *p);
err_code store_job_pins(struct store *s, int64_t id, struct job_pins *out, struct err *e);

/* A start of the server: running back to queued, cancelling to cancelled. */
err_code store_recover(struct store *s, struct err *e);
/* The ids of all jobs that are not final, by priority and id; *ids is the caller's. */
err_code store_job_active(struct store *s, int64_t **ids, size_t *n, struct err *e);

err_code store_job_start(struct store *s, int64_t id, struct err *e);                 /* queued to running */
err_code store_job_requeue(struct store *s, int64_t id, struct err *e);               /* running to queued */
err_code store_job_wait(struct store *s, int64_t id, const char *why, struct err *e); /* queued; NULL: no more */
err_code store_job_plan(struct store *s, int64_t id, const char *plan, const struct job_pins *pins, int64_t n_units,
                        int64_t total_tokens, struct err *e); /* running, once */
/* A planned job that may (job.cache) takes all units, and their times, of a succeeded job that computed the same: of
 * the same pins, task, version of the task, effective parameters and position. *from is that job, 0: there is none. */
err_code store_job_take_cached(struct store *s, int64_t id, int task_version, int64_t *from, struct err *e);
/* queued: cancelled at once; running: cancelling; cancelling: as it is. */
err_code store_job_cancel(struct store *s, int64_t id, struct err *e);
err_code store_job_cancelled(struct store *s, int64_t id, struct err *e); /* cancelling to cancelled */
/* headline: of the result, a metric object; NULL: none. */
err_code store_job_succeed(struct store *s, int64_t id, const char *result, const char *headline, struct err *e);
/* running or queued to failed; `partial` (NULL: none) is the fold of the units that are there. */
err_code store_job_fail(struct store *s, int64_t id, const char *error, const char *partial, struct err *e);
/* A final or a waiting job to queued: units, plan and pins are dropped, and it computes its own. */
err_code store_job_restart(struct store *s, int64_t id, struct err *e);

/* -- units ------------------------------------------------------------------------------------- */

struct unit_result {
	uint32_t unit;
	const char *result; /* JSON text */
	int64_t tokens;
};
/* A batch's results: units that are already there keep their first result and are counted in repeated_units.
 * `seconds` is the engine's time. Sets *stored to the number of new ones (may be NULL). */
err_code store_unit_put(struct store *s, int64_t job, const struct unit_result *units, size_t n, double seconds,
                        size_t *stored, struct err *e);
err_code store_unit_fail(struct store *s, int64_t job, uint32_t unit, const char *code, const char *message,
                         struct err *e);
/* Calls f for each unit that has a result (failed false) or is given up (failed true, with why). */
typedef void unit_fn(void *arg, uint32_t unit, bool failed, const char *code, const char *message);
err_code store_unit_each(struct store *s, int64_t job, unit_fn *f, void *arg, struct err *e);

/* -- events ------------------------------------------------------------------------------------ */

/* Appends the job's counts as a "progress" event; the caller keeps it to one a second. */
err_code store_event_progress(struct store *s, int64_t job, struct err *e);
err_code store_event_put(struct store *s, int64_t job, const char *kind, const char *data, struct err *e);

#endif
