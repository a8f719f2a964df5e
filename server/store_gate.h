/* What the store keeps of gates: baselines (store_baseline.c), gates and their runs (store_gate.c, store_run.c), and
 * the values that their history is made of (store_history.c). Functions that write stand at the end of each part: they
 * are the core thread's, and run inside a transaction. */
#ifndef FATHOM_SERVER_STORE_GATE_H
#define FATHOM_SERVER_STORE_GATE_H

#include "server/store_write.h"

/* -- baselines --------------------------------------------------------------------------------- */

struct baseline_result {
	int64_t job;                             /* 0: imported */
	char *model, *task, *dataset, *headline; /* owned; names as the result has them; headline may be NULL */
};

struct baseline {
	char *name; /* owned */
	int64_t version, created_ms;
	struct baseline_result *results; /* [n_results] owned */
	size_t n_results;
};
void baseline_release(struct baseline *b);

/* What changes when a baseline does; `out` without quotes. */
#define BASELINE_ETAG 48
void baseline_etag(int64_t version, int64_t created_ms, char out[BASELINE_ETAG]);

/* version 0: the newest. ERR_NOT_FOUND. */
err_code store_baseline_get(struct store *s, const char *name, int64_t version, struct baseline *out, struct err *e);

/* The newest version of each name, by name; with `name`, all versions of that, newest first. At most `limit`. */
typedef void baseline_fn(void *arg, const char *name, int64_t version, int64_t created_ms, int64_t n_results);
err_code store_baseline_each(struct store *s, const char *name, int limit, baseline_fn *f, void *arg, struct err *e);

/* The results of a version, in order: a job's number, or the texts of an import (job 0). Borrowed for the call; an
 * error of f ends it. */
typedef err_code baseline_evidence_fn(void *arg, int64_t job, const char *result, const char *items, struct err *e);
err_code store_baseline_evidence(struct store *s, const char *name, int64_t version, baseline_evidence_fn *f, void *arg,
                                 struct err *e);

struct baseline_result_new {
	int64_t job;                /* 0: the texts */
	const char *result, *items; /* borrowed: an object without items, and their array */
};

struct baseline_new {
	const char *name;
	const struct baseline_result_new *results; /* [n_results] borrowed */
	size_t n_results;
	const char *if_match; /* the header's value: "*", or ETags in quotes; NULL: the name is to be new */
	int64_t version;      /* out */
	int64_t created_ms;   /* out */
};
/* ERR_CONFLICT: the name is there, and if_match is not given; ERR_CHANGED: if_match is not met. ERR_INPUT, with a
 * pointer /jobs/N: no such job, or it has no result. */
err_code store_baseline_put(struct store *s, struct baseline_new *n, struct err *e);
/* All versions. ERR_CONFLICT while a run that is not finished needs one; if_match as above, NULL: any. */
err_code store_baseline_delete(struct store *s, const char *name, const char *if_match, struct err *e);

/* -- gates ------------------------------------------------------------------------------------- */

struct gate_row {
	char *name, *definition; /* owned; JSON */
	int64_t version, created_ms, posted_ms;
};
void gate_row_release(struct gate_row *g);

/* version 0: the current one. ERR_NOT_FOUND. */
err_code store_gate_get(struct store *s, const char *name, int64_t version, struct gate_row *out, struct err *e);
/* The current version of each, by name; with `name`, all versions of that, newest first. last_run is the
 * number of its last run, or 0. */
typedef void gate_fn(void *arg, const struct gate_row *g, int64_t last_run);
err_code store_gate_each(struct store *s, const char *name, int limit, gate_fn *f, void *arg, struct err *e);

/* The last run of a gate on each branch that has a verdict, by branch; borrowed for the call, NULL: no such tag. */
struct gate_branch {
	const char *branch, *commit, *outcome, *model;
	int64_t run, at_ms;
};
typedef void gate_branch_fn(void *arg, const struct gate_branch *b);
err_code store_gate_branches(struct store *s, const char *gate, gate_branch_fn *f, void *arg, struct err *e);

/* Makes it current. *existed: that definition was there before. */
err_code store_gate_put(struct store *s, const char *name, const char *definition, int64_t *version, bool *existed,
                        struct err *e);

/* -- runs --------------------------------------------------------------------------------------
 *
 *   measuring -> judging -> done      with a verdict
 *       |-----------|-----> failed    it could not be judged: a fault of ours
 *       '-----------'-----> cancelled
 */
enum run_state { RUN_MEASURING, RUN_JUDGING, RUN_DONE, RUN_FAILED, RUN_CANCELLED };
const char *run_state_name(enum run_state s);
bool run_state_from_name(const char *name, enum run_state *out);
bool run_state_final(enum run_state s);

struct run_measure {
	char *measure;            /* owned; the measurement's id in the gate */
	int64_t job, cached_from; /* cached_from 0: it computed its own */
	char *state;              /* owned; of the job; NULL: it was deleted */
};

struct gate_run {
	int64_t id;
	char *gate; /* owned, as all strings here */
	int64_t gate_version;
	char *model;
	char *baseline; /* NULL: none */
	int64_t baseline_version;
	char *tags; /* JSON object of strings */
	bool allow_engine_change;
	enum run_state state;
	int64_t created_ms, finished_ms; /* 0: not yet */
	char *verdict, *outcome, *error; /* NULL: none */
	char *hook, *hook_error;
	int64_t hook_tries, hook_at_ms;
	struct run_measure *measures; /* [n_measures] owned */
	size_t n_measures;
};
void gate_run_release(struct gate_run *r);

err_code store_run_get(struct store *s, int64_t id, struct gate_run *out, struct err *e); /* ERR_NOT_FOUND */

struct run_filter {
	const char *gate, *model, *branch, *outcome; /* NULL: any; branch is the tag of that name */
	int state;                                   /* -1: any */
	int64_t after;                               /* only ids below this; 0: from the newest */
	int limit;                                   /* 1..1000 */
};
/* Newest first; *runs is owned by the caller: gate_run_release each and free. */
err_code store_run_list(struct store *s, const struct run_filter *f, struct gate_run **runs, size_t *n, struct err *e);

/* How many runs there are of each gate and outcome ("pass", ..., or the state of one without a verdict). */
typedef void run_total_fn(void *arg, const char *gate, const char *outcome, int64_t n);
err_code store_run_totals(struct store *s, run_total_fn *f, void *arg, struct err *e);

/* The ids of runs that are not finished, or whose webhook waits; *ids is the caller's. */
err_code store_run_open(struct store *s, int64_t **ids, size_t *n, struct err *e);

/* Which runs are a run's history. */
struct run_past {
	const char *gate, *branch; /* branch NULL: runs without one */
	const char *protocol;      /* of the measurement, as store_run_protocol kept it */
	const char *except;        /* the fingerprint of the model that is judged */
	int64_t before;            /* its run */
	int limit;
};
/* The verdicts of the runs that passed, or were kept from it by rules of type history alone (without that, no gate with
 * such a rule could ever begin to have a history), newest first, each model's fingerprint once, and what the
 * measurement was called there. Borrowed for the call; an error of f ends it. */
typedef err_code verdict_fn(void *arg, const char *verdict, const char *measure, struct err *e);
err_code store_run_passed(struct store *s, const struct run_past *p, verdict_fn *f, void *arg, struct err *e);

struct run_new {
	const char *gate;
	int64_t gate_version;
	const char *model, *baseline; /* baseline NULL: none */
	int64_t baseline_version;     /* 0: the newest, which is pinned now */
	const char *tags;
	bool allow_engine_change;
	const char *const *measures; /* [n_measures] */
	const struct job_new *jobs;  /* [n_measures] */
	size_t n_measures;
	const char *idempotency_key, *request_hash; /* as of struct job_new */
};
/* The run and its jobs; or, as store_job_insert, the old id of a known key. ERR_NOT_FOUND, with pointer /baseline, for
 * one that is not there. */
err_code store_run_insert(struct store *s, const struct run_new *n, int64_t *id, bool *existed, struct err *e);

err_code store_run_judge(struct store *s, int64_t id, struct err *e); /* measuring to judging */
/* judging to done; `hook`: a webhook is to be called. fingerprint may be NULL. */
err_code store_run_done(struct store *s, int64_t id, const char *verdict, const char *outcome, const char *fingerprint,
                        bool hook, struct err *e);
/* Of the measurement in this place. NULL: it came to nothing. */
err_code store_run_protocol(struct store *s, int64_t id, size_t place, const char *protocol, struct err *e);
err_code store_run_fail(struct store *s, int64_t id, const char *error, struct err *e); /* not finished to failed */
/* Not finished to cancelled, and its unfinished jobs as store_job_cancel does: no other run has them, as each makes its
 * own. */
err_code store_run_cancel(struct store *s, int64_t id, struct err *e);
/* A try of the webhook ended. error NULL: delivered; next_ms 0: given up; else the next is then. */
err_code store_run_hook(struct store *s, int64_t id, const char *error, int64_t next_ms, struct err *e);

/* -- history ----------------------------------------------------------------------------------- */

struct history_point {
	int64_t run, job; /* 0: none */
	int64_t at_ms;
	const char *model, *fingerprint, *commit, *branch; /* borrowed for the call; may be NULL */
	double value, stderr_;                             /* stderr_ < 0: none */
	const char *outcome;                               /* of the run; NULL: none */
};
typedef err_code history_fn(void *arg, const struct history_point *p, struct err *e);

struct history_of_jobs {
	const char *task, *metric;            /* required */
	const char *dataset, *branch, *group; /* NULL: any dataset, any branch, the metric without a group */
	int64_t length;                       /* 0: the metric without a length */
	int limit;                            /* the newest so many */
};
/* Succeeded jobs' values of a metric, oldest first. */
err_code store_history_jobs(struct store *s, const struct history_of_jobs *h, history_fn *f, void *arg, struct err *e);
/* A rule's values over the finished runs of a gate, oldest first, as far as they are of the metric, and measured in the
 * way, that the current version has; branch NULL: any. */
err_code store_history_rule(struct store *s, const char *gate, const char *rule, const char *branch, int limit,
                            history_fn *f, void *arg, struct err *e);

#endif
