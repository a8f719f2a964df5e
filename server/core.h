/* The core thread: the scheduler, worker processes, timers and signals, and the only writer of the store.
 *
 * Other threads ask through `struct request`: it is queued, executed on the core thread inside one group transaction,
 * and once that is on disk `done` is called, on the core thread, without locks. */
#ifndef FATHOM_SERVER_CORE_H
#define FATHOM_SERVER_CORE_H

#include <stdint.h>

#include "eval/eval.h"
#include "server/store_gate.h"

struct core;

struct core_options {
	const char *data_dir;
	const char *self; /* path of this program, for the local launcher */
	const char *const
	    *workers; /* launcher specs: "cpu", "cuda:0", or a whole command ending in "worker --device ..." */
	size_t n_workers;
	struct registry registry;
	int64_t hang_ms;   /* a busy worker whose count of tokens stands still so long is killed; 0: 120 s */
	int64_t cancel_ms; /* as is one that has not stopped so long after a cancel; 0: 10 s */
	/* Called on the core thread when a job changed (state, progress, plan, deletion), or, with its number negative,
	 * a gate's run: wakes who waits for it. */
	void (*on_change)(void *arg, int64_t job);
	void *arg;
};

/* Opens the store as its writer and puts in order what a killed server left. Blocks SIGINT, SIGTERM and SIGCHLD on the
 * calling thread, for good: call it before other threads are started, so that they inherit that. SIGPIPE is ignored.
 * Strings of *o are borrowed until core_free. */
err_code core_open(const struct core_options *o, struct core **out, struct err *e);
/* Runs on the calling thread until SIGINT, SIGTERM or core_stop; then drains: workers are told to stop, the queue of
 * requests is answered with ERR_CANCELLED, the store is checkpointed. */
err_code core_run(struct core *c, struct err *e);
void core_stop(struct core *c);     /* from any thread */
bool core_stopping(struct core *c); /* asked to stop; from any thread */
void core_free(struct core *c);

enum request_kind {
	REQUEST_CREATE,     /* in: create.      out: job */
	REQUEST_CANCEL,     /* in: job          queued: cancelled at once; running: cancelling; final: ERR_CONFLICT */
	REQUEST_RESTART,    /* in: job          a final or waiting job: units dropped, queued again */
	REQUEST_DELETE,     /* in: job          ERR_CONFLICT unless final */
	REQUEST_RUN,        /* in: run.         out: job, the run's number; its jobs are queued */
	REQUEST_CANCEL_RUN, /* in: job, a run's number   its jobs, too; ERR_CONFLICT when it is over */
	REQUEST_STORE,      /* in: write, data  any change of the store that memory knows nothing of */
	REQUEST_DESCRIBE,   /* in: model        out: text (description JSON); by a short-lived worker, cached */
	REQUEST_SCORE,      /* in: id, line     out: reply (the worker's `scored` event) */
	REQUEST_TOKENS      /* in: id, line     out: reply (`tokens`); by a worker without a device */
};

struct request {
	enum request_kind kind;
	int64_t job;
	struct job_new create;                                         /* strings borrowed until done */
	struct run_new run;                                            /* the same */
	err_code (*write)(struct store *s, void *data, struct err *e); /* on the core thread, in a transaction */
	void *data;                                                    /* borrowed until done */
	const char *model;                                             /* borrowed until done */
	int64_t id;                                                    /* SCORE, TOKENS: the wire's "request", unique */
	struct buf line; /* SCORE, TOKENS: the command (eval/wire.h); the requester's */
	/* out */
	struct err err;
	bool existed;       /* CREATE, RUN: answered by an idempotency key */
	char *text;         /* DESCRIBE: owned by the requester */
	struct json *reply; /* SCORE, TOKENS: owned by the requester */
	void (*done)(struct request *r);
	void *arg;
	/* the core's */
	struct request *next;
	int worker;      /* that has it; -1: none */
	unsigned deaths; /* of workers that had it */
	int64_t sent_ms;
};
/* From any thread; r lives until done. Once core_run is over, done is called at once, on the calling thread, with
 * ERR_CANCELLED. */
void core_submit(struct core *c, struct request *r);

/* A snapshot of the workers as a JSON array, from any thread: name, spec, state (starting, idle, busy, backing_off,
 * unusable), error (why it is unusable), device, kind, device_name, isa, libraries, threads, memory_bytes (free at its
 * hello), signature, job, phase (plan, run), requests (that it scores for clients), pid, restarts, since_at,
 * done_tokens. */
void core_write_workers(struct core *c, struct json_writer *w, const char *key);

/* Live progress of a job that is finer than the store's: tokens done of units that are not stored yet, to be added to
 * job.done_tokens; -1 when no worker runs it. Any thread. */
int64_t core_job_live_tokens(struct core *c, int64_t job);

#endif
