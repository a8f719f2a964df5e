/* The queue in memory: which worker does what next, and what the death of one means. It only decides: no SQL,
 * no processes, no clock (the time is passed in), so that every rule can be tested without them. Core thread
 * only. */
#ifndef FATHOM_SERVER_SCHEDULER_H
#define FATHOM_SERVER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/json.h"
#include "server/store_write.h"

#define SCHEDULER_MAX_WORKERS 64
#define SCHEDULER_STRIKES     3
#define SCHEDULER_HOPELESS    5 /* units given up before any result: the job is */

/* What only its error says: units that are given up but not yet stored as failed. */
struct given_up {
	uint32_t unit;
	struct err why;
};

struct sched_job {
	int64_t id;
	int priority;
	enum job_state state;                           /* as stored; never final */
	char *model, *task, *dataset, *params, *engine; /* owned; see struct job */
	char *device, *dtype;                           /* owned; what engine asks for, NULL: any */
	struct job_pins pins;                           /* owned; signature NULL: not planned yet */
	uint32_t n_units;
	uint8_t *units;        /* [n_units] owned; enum unit_state */
	uint8_t *strikes;      /* [n_units] owned */
	uint32_t *unit_tokens; /* [n_units] owned; NULL: not planned since the server started */
	uint32_t first_todo;   /* no unit below it is UNIT_TODO */
	uint32_t n_todo, n_suspect, n_out, n_done, n_failed, n_given_up;
	struct given_up *given_up; /* [n_given_up] owned */
	unsigned plan_deaths;
	uint32_t n_lost;        /* units given up since the server started */
	uint64_t refused_by;    /* bit w: worker w cannot plan it */
	struct err failure;     /* code != 0: to be failed with this */
	char *waiting;          /* owned; as stored */
	char *new_waiting;      /* owned; being written: "" for none; NULL: nothing is */
	int64_t progress_ms;    /* when its last progress event was written, */
	int64_t shown_ms;       /* and when its watchers were last woken for progress */
	struct sched_job *next; /* by priority, then id */
};

enum unit_state { UNIT_TODO, UNIT_SUSPECT, UNIT_OUT, UNIT_DONE, UNIT_GIVEN_UP, UNIT_FAILED };

enum worker_state {
	WORKER_DOWN,     /* no process, or it has not said hello */
	WORKER_IDLE,     /* may hold the plan of `job` */
	WORKER_PLANNING, /* `job` */
	WORKER_RUNNING,  /* `job`, units[0..n_units) */
	WORKER_SETTLING  /* told to cancel a job that is gone from here; busy until it says so */
};

struct sched_signature {
	char *dtype, *signature; /* owned */
};

struct sched_worker {
	enum worker_state state;
	bool known;                         /* device and signatures are those of its last hello */
	bool heard;                         /* said hello, or died, at least once */
	bool hopeless;                      /* died again and again before hello: nobody waits for it */
	char unusable[256];                 /* why it is hopeless, when it said so itself; "" */
	char *device, *kind;                /* owned */
	struct sched_signature *signatures; /* [n_signatures] owned */
	size_t n_signatures;
	struct sched_job *job; /* borrowed; NULL: holds no plan */
	int64_t ticket;        /* the wire's "job": one for each plan, so that late events are told apart; 0: none */
	uint32_t *units;       /* [n_units] owned; of the running command, in order */
	uint32_t n_units, n_reported;
	size_t cap_units;
	uint64_t command_tokens, reported_tokens, progress_tokens;
	int64_t command_ms;   /* when it was handed out */
	double tokens_per_ms; /* of its last command for this plan; 0: not measured */
};

struct scheduler {
	struct sched_job *jobs; /* owned list */
	struct sched_worker workers[SCHEDULER_MAX_WORKERS];
	size_t n_workers;
	int64_t next_ticket;
};

void scheduler_init(struct scheduler *s, size_t n_workers);
void scheduler_release(struct scheduler *s);

/* -- jobs -------------------------------------------------------------------------------------- */

/* Adds a stored job that is not final. `pins` is taken (zeroed). Mark its stored units with the calls below. */
err_code scheduler_add(struct scheduler *s, const struct job *j, struct job_pins *pins, struct sched_job **out,
                       struct err *e);
/* Forgets a job. Workers that are busy with it go on as WORKER_SETTLING; those that held its plan keep their ticket
 * with job NULL, to be told. */
void scheduler_remove(struct scheduler *s, struct sched_job *j);
struct sched_job *scheduler_find(struct scheduler *s, int64_t id);
/* Workers that plan or run it now. */
size_t scheduler_job_workers(const struct scheduler *s, const struct sched_job *j);
/* Nothing is left to compute or to store: results are to be folded. */
bool scheduler_job_complete(const struct sched_job *j);
/* Why no worker can do it, into out; false: some worker can, or may turn out to. */
bool scheduler_job_waits(const struct scheduler *s, const struct sched_job *j, char *out, size_t size);

/* After the row is in the store. From any state of the unit; again is harmless. */
void scheduler_unit_done(struct sched_job *j, uint32_t unit);
void scheduler_unit_failed(struct sched_job *j, uint32_t unit);

/* -- workers ----------------------------------------------------------------------------------- */

/* It said hello: what it is, and its signatures (an object: dtype to signature). It is idle, and jobs that it
 * refused may ask it again. ERR_INPUT when that does not make sense. */
err_code scheduler_up(struct scheduler *s, size_t w, const char *device, const char *kind,
                      const struct json *signatures, struct err *e);
/* It said that it cannot work, and why: nobody waits for it, until it says hello. */
void scheduler_unusable(struct scheduler *s, size_t w, const char *why);
void scheduler_forget_hello(struct sched_worker *k); /* frees what it said; nothing is known of it */
/* May worker w do the job: device, dtype, pinned signature, and it has not refused. */
bool scheduler_suits(const struct scheduler *s, size_t w, const struct sched_job *j);
/* Should worker w, which may do the job, leave it to another? */
bool scheduler_leaves_to_gpu(const struct scheduler *s, size_t w, const struct sched_job *j);
/* The first plan gives the job its units (once; `n` must agree with n_units if those are known), each plan of
 * a server's life its tokens. The worker is idle after it, and holds the plan. */
err_code scheduler_planned(struct scheduler *s, size_t w, const uint32_t *unit_tokens, uint32_t n, struct err *e);
/* A result of the running command came (stored or not). */
void scheduler_reported(struct scheduler *s, size_t w, uint32_t unit);
/* The running command ended at now_ms; units it did not report are suspects, one that was alone is struck. */
void scheduler_idle(struct scheduler *s, size_t w, int64_t now_ms);
/* The process died, or its command failed whole, as `why` says: its units become suspects, one that ran alone
 * gets a strike; a plan counts against its job. `down`: there is no process any more; else it is idle and
 * holds no plan. */
void scheduler_lost(struct scheduler *s, size_t w, bool down, const struct err *why);
/* A plan that failed with an error of its own: the job fails with it, unless another worker holds its plan and
 * it is only that this worker cannot. The worker is idle and holds no plan. */
void scheduler_plan_failed(struct scheduler *s, size_t w, const struct err *why);
/* A cancelled command ended. Idle, holds no plan. */
void scheduler_settled(struct scheduler *s, size_t w);

enum sched_step { STEP_NONE, STEP_PLAN, STEP_RUN };
/* What an idle worker should do next, without doing it: *job is set unless STEP_NONE. */
enum sched_step scheduler_next(struct scheduler *s, size_t w, struct sched_job **job);
/* Does it. Plan: gives the worker a new ticket. Run: w's units[0..n_units) are the command's, alone if they
 * are a suspect. */
void scheduler_plan(struct scheduler *s, size_t w, struct sched_job *j);
err_code scheduler_run(struct scheduler *s, size_t w, int64_t now_ms, struct err *e);

#endif
