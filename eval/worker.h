/* Private to the worker: what its three threads share.
 *
 *   reader: fd 0 -> lines -> the queue of commands; marks what a cancel means; EOF ends the process
 *   main:   takes commands off the queue and does them (worker_job.c)
 *   ticker: every 250 ms `progress` if it moved, every 2 s `alive`
 *
 * Locks: `lock` guards the queue and `now`; `out_lock` guards the output and is taken last. */
#ifndef FATHOM_EVAL_WORKER_H
#define FATHOM_EVAL_WORKER_H

#include <pthread.h>

#include "eval/eval.h"

struct command {
	struct command *next;
	struct json *json; /* owned */
	const char *name;  /* borrowed from json: "plan" */
	int64_t job;       /* -1: none */
	bool cancelled;    /* under the lock: by a cancel that came while it waited or ran */
};

enum phase { PHASE_NONE, PHASE_PLAN, PHASE_RUN };

struct worker {
	const struct worker_options *options; /* borrowed */
	bool has_device;
	struct device_info device;

	pthread_mutex_t out_lock;
	int out_fd;

	pthread_mutex_t lock;
	pthread_cond_t ready;         /* a command was queued */
	struct command *head, **tail; /* the queue, owned */
	struct {
		struct command *command; /* borrowed: what the main thread does, from the pop on; NULL: nothing */
		enum phase phase;
		uint64_t done, total;    /* PHASE_PLAN: bytes; PHASE_RUN: total tokens of the command */
		uint64_t base;           /* PHASE_RUN: done_tokens when the command began */
		struct session *session; /* borrowed: the open session, in any phase */
		uint64_t past_tokens;    /* done by sessions that are closed */
	} now;

	/* main thread only */
	struct loaded *loaded; /* owned list: models that plans use, and the one with the session */
	struct planned *plans; /* owned list */
};

/* Writes one event: the line and its newline. A server that went away ends the process. */
void worker_emit(struct worker *w, struct buf *line);

/* An event {"event":"failed", ...}; job < 0 and model NULL leave those members out. */
void worker_emit_failed(struct worker *w, int64_t job, const char *model, const struct err *why);

/* Tokens that all sessions have done. Under the lock. */
uint64_t worker_done_tokens(const struct worker *w);

/* Does one command, on the main thread, and emits what came of it. */
void worker_do(struct worker *w, struct command *c);

#endif
