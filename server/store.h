/* The store: every job, unit and event, in one SQLite file (WAL). The only users of SQL are server/store_*.c, one noun
 * a file. One connection writes (the core thread's, synchronous=FULL); others are read-only, one a thread. */
#ifndef FATHOM_SERVER_STORE_H
#define FATHOM_SERVER_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/buf.h"
#include "engine/err.h"

struct store; /* one connection; belongs to one thread */

/* Opens (and creates and migrates, unless read_only) DIR/fathom.db. A database newer than the program is refused. A
 * writer holds an exclusive lock on DIR/lock, so that two servers cannot share a folder. */
err_code store_open(const char *dir, bool read_only, struct store **out, struct err *e);
void store_close(struct store *s);
const char *store_path(const struct store *s);        /* of its file; borrowed */
err_code store_begin(struct store *s, struct err *e); /* IMMEDIATE; nests are asserted */
/* Ends what begin began: commits when rc is ERR_OK, else rolls back, also after a begin that failed. Returns rc, or
 * why the commit failed: nothing is stored then. */
err_code store_end(struct store *s, err_code rc, struct err *e);
err_code store_checkpoint(struct store *s, struct err *e);

/* -- jobs (store_job.c) ------------------------------------------------------------------------
 *
 *   queued -> running -> succeeded | failed
 *     |          '--> cancelling -> cancelled
 *     '--> cancelled
 *
 * A start of the server puts running back to queued, and cancelling to cancelled; running also goes back when no worker
 * is left that may go on with it. */
enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_CANCELLING, JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELLED };
#define JOB_N_STATES 6
const char *job_state_name(enum job_state s);
bool job_state_from_name(const char *name, enum job_state *out);
bool job_state_final(enum job_state s);

struct job {
	int64_t id;
	enum job_state state;
	char *name, *model, *task, *dataset;         /* owned, as all strings here; name may be NULL */
	char *params;                                /* effective parameters, JSON object */
	char *engine;                                /* requested: {"device","dtype","position"}, JSON object */
	char *tags;                                  /* JSON object of strings */
	int priority;                                /* higher first; default 0 */
	int64_t created_ms, started_ms, finished_ms; /* Unix time; 0: not yet */
	char *plan;                                  /* the planned event's plan without unit_tokens; NULL before */
	int64_t n_units, done_units, failed_units;
	int64_t total_tokens, done_tokens; /* of units */
	double seconds;                    /* engine time of stored units */
	char *error;                       /* {"code","message","pointer"?,"units":[...]}; NULL: none */
	char *waiting;       /* why a queued job does not start ("no worker with signature ..."); NULL: none */
	char *result;        /* the result object; or, failed, what stands under "partial"; NULL: none */
	char *headline;      /* the result's metric that lists show (result_headline); NULL: none */
	bool cache;          /* it may take the units of an earlier job that computed the same */
	int64_t cached_from; /* the job that it took them from; 0: it computed its own */
};
void job_release(struct job *j); /* frees the strings, zeroes */

struct job_new {
	const char *name, *model, *task, *dataset, *params, *engine, *tags;
	int priority;
	bool cache;
	const char *idempotency_key; /* NULL: none */
	const char *request_hash;    /* sha256 of the canonical request, compared when the key is known */
};
/* Inserts; or, when the idempotency key is known: same hash gives the old id with *existed, another hash
 * ERR_CONFLICT. */
err_code store_job_insert(struct store *s, const struct job_new *n, int64_t *id, bool *existed, struct err *e);
err_code store_job_get(struct store *s, int64_t id, struct job *out, struct err *e); /* ERR_NOT_FOUND */

struct job_filter {
	const char *model, *task; /* NULL: any */
	const char *tag;          /* "key" or "key=value"; NULL: any */
	int state;                /* -1: any */
	int64_t after;            /* only ids below this; 0: from the newest */
	int limit;                /* 1..1000 */
};
/* Newest first; *jobs is owned by the caller: job_release each and free. `result` is left NULL. */
err_code store_job_list(struct store *s, const struct job_filter *f, struct job **jobs, size_t *n, struct err *e);
/* How many jobs are in each state, and the tokens that the unfinished ones have yet to score, as far as planned. */
err_code store_job_totals(struct store *s, int64_t n[JOB_N_STATES], int64_t *tokens_left, struct err *e);
err_code store_job_delete(struct store *s, int64_t id, struct err *e); /* ERR_CONFLICT unless final and free */

/* -- units (store_unit.c) ---------------------------------------------------------------------- */

/* Walks a job's stored unit results in unit order, past the first `skip` of them; step through with a unit_source
 * (eval/eval.h) made of this. */
struct unit_cursor;
err_code unit_cursor_open(struct store *s, int64_t job, int64_t skip, struct unit_cursor **out, struct err *e);
const char *unit_cursor_next(void *cursor, uint32_t *unit);       /* NULL at the end or on failure */
err_code unit_cursor_close(struct unit_cursor *c, struct err *e); /* reports what next met */

/* -- events (store_event.c) -------------------------------------------------------------------- */

struct store_event {
	int64_t id, job, at_ms;
	const char *kind, *data; /* borrowed for the call; data is a JSON object */
};
typedef void store_event_fn(void *arg, const struct store_event *ev);
/* At most `limit` events with an id above `after`, of one job (0: of all), in order. */
err_code store_event_each(struct store *s, int64_t job, int64_t after, int limit, store_event_fn *f, void *arg,
                          struct err *e);
err_code store_event_last(struct store *s, int64_t *id, struct err *e); /* 0 when there is none */

/* -- described models (store_model.c), keyed by path and the stat of its files ----------------- */

/* The cached description (JSON text, owned by the caller) or NULL in *out when absent or stale. */
err_code store_model_get(struct store *s, const char *path, const char *stat_key, char **out, struct err *e);
err_code store_model_put(struct store *s, const char *path, const char *stat_key, const char *description,
                         struct err *e);

#endif
