/* Private to the worker: what its three threads share.
 *
 *   reader: fd 0 -> lines -> two queues, of commands and of scoring requests; marks what a cancel means; EOF ends the
 *           process
 *   main:   takes both off (worker_job.c, worker_tokens.c; worker_score.c, also between a job's batches)
 *   ticker: every 250 ms `progress` if it moved, every 2 s `alive`
 *
 * Locks: `lock` guards the queue and `now`; `out_lock` guards the output and is taken last. */
#ifndef FATHOM_EVAL_WORKER_H
#define FATHOM_EVAL_WORKER_H

#include <pthread.h>

#include "eval/eval.h"
#include "eval/token_keys.h"

#define WORKER_MAX_SESSIONS 2

struct command {
	struct command *next;
	struct json *json; /* owned */
	const char *name;  /* borrowed from json: "plan" */
	int64_t job;       /* -1: none */
	int64_t request;   /* -1: none */
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
	pthread_cond_t ready;                  /* a command was queued */
	struct command *head, **tail;          /* the queue, owned */
	struct command *scores, **scores_tail; /* scoring requests that wait, owned */
	size_t n_scores;
	struct {
		struct command *command; /* borrowed: what the main thread does, from the pop on; NULL: nothing */
		enum phase phase;
		uint64_t done, total; /* PHASE_PLAN: bytes; PHASE_RUN: total tokens of the command */
		uint64_t base;        /* PHASE_RUN: done_tokens when the command began */
		struct session *sessions[WORKER_MAX_SESSIONS]; /* borrowed: the open ones, in any phase */
		struct session *running;                       /* borrowed: the job's; a cancel stops it */
		struct session *scoring;                       /* borrowed: computes for requests now; stopped, too */
		uint64_t past_tokens;                          /* done by sessions that are closed */
	} now;

	/* main thread only */
	struct loaded *loaded; /* owned list: models that plans use, and those with a session */
	struct planned *plans; /* owned list */
	size_t last_round;     /* requests that were answered together last */
};

/* Writes one event: the line and its newline. A server that went away ends the process. */
void worker_emit(struct worker *w, struct buf *line);

/* An event {"event":"failed", ...}; job < 0 and model NULL leave those members out. */
void worker_emit_failed(struct worker *w, int64_t job, const char *model, const struct err *why);

/* The same of a request. */
void worker_emit_refused(struct worker *w, int64_t request, const struct err *why);

/* Tokens that all sessions have done. Under the lock. */
uint64_t worker_done_tokens(const struct worker *w);

/* Does one command, on the main thread, and emits what came of it. */
void worker_do(struct worker *w, struct command *c);
void worker_do_tokens(struct worker *w, const struct command *c); /* tokenize, detokenize, tokenizer_info */

/* Answers the scoring requests that wait, in one round. `gather`: waits a few milliseconds for more of them. Ends early
 * when the command that it interrupts is cancelled: the rest wait on. */
void worker_score(struct worker *w, bool gather);
bool worker_has_scores(struct worker *w);

/* -- models (worker_model.c) -------------------------------------------------------------------- */

struct loaded {
	struct loaded *next;
	struct model *model;     /* owned */
	char dtype[8];           /* effective: "f32"; "" for its tokenizer alone */
	bool own_position;       /* the checkpoint's, not a job's override */
	char signature[512];     /* of device and dtype; "" until worker_score.c asked */
	struct session *session; /* owned; at most WORKER_MAX_SESSIONS of the list have one */
	struct token_keys *keys; /* owned; NULL until they are asked for */
	unsigned refs;           /* plans that use it */
};

/* Opens a model afresh and hashes it, so that a change on disk shows; gives the one that is there already if it is the
 * same. Its owner is the list: count a reference. */
err_code worker_load(struct worker *w, const char *path, const struct json *position, const char *dtype,
                     struct loaded **out, struct err *e);
/* The same without a hash: one that is there is taken when its files have not been touched. */
err_code worker_load_unhashed(struct worker *w, const char *path, const char *dtype, struct loaded **out,
                              struct err *e);

/* The session of a job's model, and of a request's: see worker_model.c for who makes room. */
err_code worker_job_session(struct worker *w, struct loaded *l, struct err *e);
err_code worker_request_session(struct worker *w, struct loaded *l, struct err *e);

size_t worker_held_bytes(const struct worker *w);
/* Drops models that no plan uses, but for those with a session: the next job often wants it again. */
void worker_drop_unused(struct worker *w);
/* The same, but the first n_kept stay. */
void worker_trim_models(struct worker *w, size_t n_kept);

#endif
