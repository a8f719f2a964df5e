/* The way of one unit through the server, from the queue to the store:
 *
 *   HTTP thread              core thread                                              worker process
 *   api_*.c ── request ───> core.c ── one group commit ──> store_job.c: a row, queued
 *                             │ load_job
 *                             v
 *                           scheduler.c: TODO
 *                             │ scheduler_run: OUT
 *                             v
 *                           dispatch.c ── "run" ───> link.c ──────── stdin ─────────> eval/worker.c
 *                                                                                        │
 *                           event.c <── supervise.c <── link.c <──── stdout ── "units" ──'
 *                             │ store_unit_put, committed; then scheduler_unit_done: DONE
 *                             v
 *                           settle.c: all are stored: folded, store_job_succeed, forgotten by the scheduler
 *                             │ core_changed
 *   ?wait, event streams <────'
 *
 *   core.c       the loop, requests of other threads, the store's refusals
 *   view.c       what other threads may see of the workers
 *   dispatch.c   commands out: plan, run, cancel, forget
 *   event.c      events in: what must be stored is stored before memory changes
 *   settle.c     what memory owes the store: results, failures, cancels, reasons to wait
 *   supervise.c  worker processes: started, read, watched, killed, buried
 *   describe.c   short-lived workers that describe models, on links of their own
 *   gate_run.c   runs of gates: waits for their jobs, then children that judge them and call webhooks
 *   score.c      scoring requests: to a worker and back, beside its jobs
 *   tokens.c     a worker without a device that answers for tokenizers
 *
 * These ten are one room: they share struct core, and nobody else includes this header. Below it, and knowing nothing
 * of it: scheduler.c (decides; no SQL, no process, no clock) with scheduler_suit.c (which worker may do which job),
 * link.c (one process and its pipes), launcher.c (from a spec to argv and environment), store_*.c. */
#ifndef FATHOM_SERVER_CORE_PRIVATE_H
#define FATHOM_SERVER_CORE_PRIVATE_H

#include <poll.h>
#include <pthread.h>

#include "server/core.h"
#include "server/launcher.h"
#include "server/link.h"
#include "server/scheduler.h"
#include "server/store_write.h"

/* One worker's place: its process comes and goes. scheduler.workers[i] says what it does. */
struct slot {
	char name[32];                   /* "worker 0" */
	const char *spec;                /* borrowed from core_options */
	struct launch launch;            /* owned */
	struct link *link;               /* owned; NULL: backing off */
	bool hello, unusable;            /* this process said so */
	struct device_info device;       /* as its last hello says; device "": it said none */
	bool condemned;                  /* killed for what it said: its lines are dropped */
	unsigned restarts, early_deaths; /* early: before hello, in a row */
	int64_t started_ms;              /* all times are monotonic */
	int64_t restart_ms;              /* start a process then */
	int64_t backoff_ms;              /* before the next restart; 0: the shortest */
	int64_t kill_ms;                 /* kill it then; 0: no */
	int64_t moved_ms;                /* when done_tokens or its state last changed */
	int64_t done_tokens;
};

/* What other threads may see of a worker. */
struct worker_view {
	char name[32], spec[256], state[16], device[64], signature[256], phase[8], error[256];
	struct device_info about;
	int64_t job, pid, since_ms, done_tokens, live_tokens;
	size_t requests; /* scoring requests that it has */
	unsigned restarts;
};

struct describe;
struct open_run;

struct core {
	struct core_options o; /* borrowed strings */
	struct store *store;
	struct scheduler sched;
	struct slot slots[SCHEDULER_MAX_WORKERS];
	size_t n_slots;
	struct describe *describes; /* owned list, oldest first */
	struct open_run *runs;      /* owned list, oldest first */
	struct request *scores;     /* not owned; oldest first */
	unsigned scores_given_up;   /* in a row */
	struct {
		struct link *link;        /* owned; NULL: not running */
		struct request *requests; /* not owned; oldest first */
		int64_t used_ms;
	} tokens;
	int signal_fd, wake_fd;
	bool draining;
	int64_t retry_ms;  /* the store refused: nothing is written before then; 0: it is fine */
	unsigned refusals; /* in a row */
	struct err last_refusal;

	pthread_mutex_t lock; /* guards the rest; held for copies only, never during I/O or a callback */
	struct request *queue, **queue_end;
	bool stop, closed; /* closed: core_run is over */
	struct worker_view views[SCHEDULER_MAX_WORKERS];
};

void core_changed(struct core *c, int64_t job);
/* The store refused what must not be lost: it is tried again in a second, and told. */
void core_store_refused(struct core *c, const struct err *why);
/* store_end; a commit that the store took ends its refusals. */
err_code core_store_end(struct core *c, err_code rc, struct err *e);
bool core_store_waits(const struct core *c, int64_t now_ms);

/* supervise.c */
err_code supervise_open(struct core *c, struct err *e);
void supervise_close(struct core *c);
void supervise_step(struct core *c, int64_t now_ms); /* starts, reads events, buries, kills what is late */
void supervise_send(struct core *c, size_t w, const struct buf *line); /* kills the worker if it cannot be sent */
void supervise_condemn(struct core *c, size_t w, const char *why);
void supervise_shut(struct core *c);              /* tells all to stop */
bool supervise_any(const struct core *c);         /* is a process left? */
int64_t supervise_deadline(const struct core *c); /* the next thing to do by time; INT64_MAX: none */

/* dispatch.c */
void dispatch_assign(struct core *c, size_t w);                  /* gives an idle worker something to do */
void dispatch_cancel(struct core *c, const struct sched_job *j); /* tells its workers to stop */
void dispatch_forget(struct core *c, size_t w);                  /* ends its hold on a plan, if it has one */

/* event.c */
/* ERR_OK: the line is done with. Else the store refused its effect, nothing was changed, and it must come again. */
err_code event_handle(struct core *c, size_t w, const char *line, size_t len, struct err *e);

/* Why, of a "failed" event, into *why. */
void event_failure(const struct json *event, struct err *why);

/* settle.c */
void settle_jobs(struct core *c);

/* view.c */
void view_publish(struct core *c);

/* describe.c */
void describe_request(struct core *c, struct request *r);
void describe_step(struct core *c, int64_t now_ms);
void describe_cancel_all(struct core *c);
#define DESCRIBE_MAX 2
size_t describe_poll(const struct core *c, struct pollfd *fds); /* at most DESCRIBE_MAX * LINK_FDS */
void describe_handle(struct core *c, const struct pollfd *fds);
int64_t describe_deadline(const struct core *c);

/* gate_run.c */
err_code gate_run_load_all(struct core *c, struct err *e); /* what the last server left unfinished */
err_code gate_run_load(struct core *c, int64_t id, struct err *e);
void gate_run_forget(struct core *c, int64_t id); /* it was cancelled */
void gate_run_step(struct core *c, int64_t now_ms);
void gate_run_close_all(struct core *c);
#define GATE_RUN_CHILDREN 2
size_t gate_run_poll(const struct core *c, struct pollfd *fds); /* at most GATE_RUN_CHILDREN * LINK_FDS; how many */
size_t gate_run_handle(struct core *c, const struct pollfd *fds);
int64_t gate_run_deadline(const struct core *c);

/* score.c */
void score_request(struct core *c, struct request *r);
void score_step(struct core *c);                                 /* sends what waits to workers */
size_t score_waiting(const struct core *c, size_t w);            /* requests that it has */
bool score_scored(struct core *c, size_t w, struct json *event); /* true: it took the event */
void score_failed(struct core *c, size_t w, int64_t id, const struct err *why);
void score_lost(struct core *c, size_t w, const struct err *why); /* it died */
void score_cancel_all(struct core *c);

/* tokens.c */
void tokens_request(struct core *c, struct request *r);
void tokens_step(struct core *c, int64_t now_ms);
void tokens_cancel_all(struct core *c);
size_t tokens_poll(const struct core *c, struct pollfd *fds); /* at most LINK_FDS; how many */
size_t tokens_handle(struct core *c, const struct pollfd *fds);
int64_t tokens_deadline(const struct core *c);

#endif
