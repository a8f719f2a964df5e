/* The core thread: see core.h.
 *
 *   poll ─> read links ─> store events ─> requests (one group commit) ─> settle ─> assign ─> views ─┐
 *    ^─────────────────────────────────────────────────────────────────────────────────────────────┘
 *
 * 1. Only this thread touches the store's writer, the scheduler, the links and the slots.
 * 2. `lock` guards the queue of requests and the views, for copies only; callbacks run without it.
 * 3. A refused write pauses all that writes for a second; after a minute of refusals core_run gives up: a server that
 *    cannot keep results must not seem to. All is resumed by the next start.
 *
 * poll(2) rather than epoll: some dozens of descriptors that change with every process, and nothing to keep in step. */
#include "server/core_private.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/log.h"

#define RETRY_MS     1000
#define MAX_REFUSALS 60
#define DRAIN_MS     3000

void core_changed(struct core *c, int64_t job)
{
	if (c->o.on_change)
		c->o.on_change(c->o.arg, job);
}

void core_store_refused(struct core *c, const struct err *why)
{
	log_error("the store refused a write, which is tried again: %s", why->msg);
	c->retry_ms = clock_mono_ms() + RETRY_MS;
	c->refusals++;
	c->last_refusal = *why;
}

err_code core_store_end(struct core *c, err_code rc, struct err *e)
{
	rc = store_end(c->store, rc, e);
	if (!rc) {
		c->retry_ms = 0;
		c->refusals = 0;
	}
	return rc;
}

bool core_store_waits(const struct core *c, int64_t now_ms)
{
	return now_ms < c->retry_ms;
}

/* -- opening ----------------------------------------------------------------------------------- */

static void mark_unit(void *arg, uint32_t unit, bool failed, const char *code, const char *message)
{
	(void)code;
	(void)message;
	if (failed)
		scheduler_unit_failed(arg, unit);
	else
		scheduler_unit_done(arg, unit);
}

/* Puts a stored job that is not final into the scheduler. */
static err_code load_job(struct core *c, int64_t id, struct err *e)
{
	struct job_pins pins = {0};
	struct sched_job *j = NULL;
	struct job row = {0};
	err_code rc = store_job_get(c->store, id, &row, e);

	if (!rc)
		rc = store_job_pins(c->store, id, &pins, e);
	if (!rc)
		rc = scheduler_add(&c->sched, &row, &pins, &j, e);
	if (!rc)
		rc = store_unit_each(c->store, id, mark_unit, j, e);
	job_pins_release(&pins);
	job_release(&row);
	return rc;
}

static err_code recover(struct core *c, struct err *e)
{
	int64_t *ids = NULL;
	size_t n = 0;
	err_code rc = store_begin(c->store, e);

	if (!rc)
		rc = store_recover(c->store, e);
	rc = core_store_end(c, rc, e);
	if (!rc)
		rc = store_job_active(c->store, &ids, &n, e);
	for (size_t i = 0; !rc && i < n; i++)
		rc = load_job(c, ids[i], e);
	free(ids);
	return rc ? rc : gate_run_load_all(c, e);
}

static err_code open_fds(struct core *c, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN); /* a client or worker that left shows as EPIPE */
	c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->signal_fd < 0)
		return err_errno(e, "cannot make a signalfd");
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return c->wake_fd < 0 ? err_errno(e, "cannot make an eventfd") : ERR_OK;
}

err_code core_open(const struct core_options *o, struct core **out, struct err *e)
{
	struct core *c = mem_zalloc(1, sizeof *c, e);
	err_code rc;

	if (!c)
		return ERR_MEMORY;
	c->o = *o;
	c->signal_fd = c->wake_fd = -1;
	c->queue_end = &c->queue;
	pthread_mutex_init(&c->lock, NULL);
	rc = store_open(o->data_dir, false, &c->store, e);
	if (!rc)
		rc = open_fds(c, e);
	if (!rc)
		rc = supervise_open(c, e);
	if (!rc)
		rc = recover(c, e);
	if (rc) {
		core_free(c);
		return rc;
	}
	view_publish(c);
	*out = c;
	return ERR_OK;
}

void core_free(struct core *c)
{
	if (!c)
		return;
	describe_cancel_all(c);
	tokens_cancel_all(c);
	gate_run_close_all(c);
	supervise_close(c);
	scheduler_release(&c->sched);
	store_close(c->store);
	if (c->signal_fd >= 0)
		close(c->signal_fd);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* -- requests ---------------------------------------------------------------------------------- */

static void wake(struct core *c)
{
	uint64_t one = 1;

	if (write(c->wake_fd, &one, sizeof one) < 0)
		assert(errno == EAGAIN); /* the counter is full: it will wake */
}

void core_submit(struct core *c, struct request *r)
{
	bool closed;

	r->next = NULL;
	r->err = (struct err){0};
	r->text = NULL;
	r->reply = NULL;
	r->existed = false;
	pthread_mutex_lock(&c->lock);
	closed = c->closed;
	if (!closed) {
		*c->queue_end = r;
		c->queue_end = &r->next;
	}
	pthread_mutex_unlock(&c->lock);
	if (!closed) {
		wake(c);
		return;
	}
	err_set(&r->err, ERR_CANCELLED, "the server is stopping");
	r->done(r);
}

void core_stop(struct core *c)
{
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_mutex_unlock(&c->lock);
	wake(c);
}

static struct request *take_queue(struct core *c, bool close_it)
{
	struct request *list;

	pthread_mutex_lock(&c->lock);
	list = c->queue;
	c->queue = NULL;
	c->queue_end = &c->queue;
	c->closed |= close_it;
	pthread_mutex_unlock(&c->lock);
	return list;
}

static void refuse_all(struct request *list, const struct err *why)
{
	struct request *next;

	for (struct request *r = list; r; r = next) {
		next = r->next; /* r is the requester's again after done */
		if (!r->err.code)
			r->err = *why;
		r->done(r);
	}
}

static err_code write_request(struct core *c, struct request *r, struct err *e)
{
	switch (r->kind) {
	case REQUEST_CREATE:
		return store_job_insert(c->store, &r->create, &r->job, &r->existed, e);
	case REQUEST_CANCEL:
		return store_job_cancel(c->store, r->job, e);
	case REQUEST_RESTART:
		return store_job_restart(c->store, r->job, e);
	case REQUEST_RUN:
		return store_run_insert(c->store, &r->run, &r->job, &r->existed, e);
	case REQUEST_CANCEL_RUN:
		return store_run_cancel(c->store, r->job, e);
	case REQUEST_STORE:
		return r->write(c->store, r->data, e);
	default:
		assert(r->kind == REQUEST_DELETE);
		return store_job_delete(c->store, r->job, e);
	}
}

/* One transaction for all; a savepoint each, so that one that fails does not take others along. */
static err_code write_group(struct core *c, struct request *list, struct err *e)
{
	err_code rc = store_begin(c->store, e);

	for (struct request *r = list; !rc && r; r = r->next) {
		rc = store_savepoint(c->store, e);
		if (rc)
			break;
		rc = write_request(c, r, &r->err) ? store_savepoint_rollback(c->store, e)
		                                  : store_savepoint_release(c->store, e);
	}
	return core_store_end(c, rc, e);
}

static err_code apply_run(struct core *c, int64_t id, struct err *e)
{
	struct gate_run row = {0};
	err_code rc = store_run_get(c->store, id, &row, e);

	for (size_t i = 0; !rc && i < row.n_measures; i++)
		rc = load_job(c, row.measures[i].job, e);
	for (size_t i = 0; !rc && i < row.n_measures; i++)
		core_changed(c, row.measures[i].job);
	gate_run_release(&row);
	return rc ? rc : gate_run_load(c, id, e);
}

static void apply_cancel(struct core *c, int64_t id)
{
	struct sched_job *j = scheduler_find(&c->sched, id);

	if (j && j->state == JOB_QUEUED) {
		scheduler_remove(&c->sched, j);
	} else if (j && j->state == JOB_RUNNING) {
		j->state = JOB_CANCELLING;
		dispatch_cancel(c, j);
	}
}

static err_code apply_cancel_run(struct core *c, int64_t id, struct err *e)
{
	struct gate_run row = {0};
	err_code rc = store_run_get(c->store, id, &row, e);

	for (size_t i = 0; !rc && i < row.n_measures; i++) {
		apply_cancel(c, row.measures[i].job);
		core_changed(c, row.measures[i].job);
	}
	gate_run_release(&row);
	gate_run_forget(c, id);
	return rc;
}

/* Brings the scheduler up to what the commit made true. */
static err_code apply_request(struct core *c, const struct request *r, struct err *e)
{
	struct sched_job *j;

	if (r->kind == REQUEST_STORE || r->existed)
		return ERR_OK;
	if (r->kind == REQUEST_RUN)
		return apply_run(c, r->job, e);
	if (r->kind == REQUEST_CANCEL_RUN)
		return apply_cancel_run(c, r->job, e);
	j = scheduler_find(&c->sched, r->job);
	if (r->kind == REQUEST_CREATE)
		return load_job(c, r->job, e);
	if (r->kind == REQUEST_RESTART) {
		if (j)
			scheduler_remove(&c->sched, j);
		return load_job(c, r->job, e);
	}
	if (r->kind == REQUEST_CANCEL)
		apply_cancel(c, r->job);
	return ERR_OK;
}

/* Takes the requests that write out of a list; the others go to those whose workers answer them. */
static struct request *split_writes(struct core *c, struct request *list)
{
	struct request *writes = NULL, **end = &writes, *next;

	for (struct request *r = list; r; r = next) {
		next = r->next;
		r->next = NULL;
		if (r->kind == REQUEST_DESCRIBE) {
			describe_request(c, r);
		} else if (r->kind == REQUEST_SCORE) {
			score_request(c, r);
		} else if (r->kind == REQUEST_TOKENS) {
			tokens_request(c, r);
		} else {
			*end = r;
			end = &r->next;
		}
	}
	return writes;
}

static err_code serve_requests(struct core *c, struct err *e)
{
	struct request *list = split_writes(c, take_queue(c, false)), *next;
	struct err refused;
	err_code rc = ERR_OK;

	if (!list)
		return ERR_OK;
	if (write_group(c, list, &refused)) {
		log_error("requests are refused: %s", refused.msg);
		for (struct request *r = list; r; r = r->next)
			r->err = refused;
		refuse_all(list, &refused);
		return ERR_OK;
	}
	for (struct request *r = list; r; r = next) {
		next = r->next; /* r is the requester's again after done */
		/* a failure here is ours alone: what was asked for is stored, and is read anew by the next start */
		if (!r->err.code && !rc)
			rc = apply_request(c, r, e);
		if (!r->err.code && r->kind != REQUEST_STORE && !r->existed)
			core_changed(c, r->kind == REQUEST_RUN || r->kind == REQUEST_CANCEL_RUN ? -r->job : r->job);
		r->done(r);
	}
	return rc;
}

/* -- the loop ---------------------------------------------------------------------------------- */

bool core_stopping(struct core *c)
{
	bool stop;

	pthread_mutex_lock(&c->lock);
	stop = c->stop;
	pthread_mutex_unlock(&c->lock);
	return stop;
}

static void read_wakes(struct core *c, const struct pollfd fds[2])
{
	struct signalfd_siginfo info;
	uint64_t count;

	if (fds[0].revents)
		while (read(c->signal_fd, &info, sizeof info) == sizeof info) {
			if (info.ssi_signo == SIGCHLD)
				continue; /* links look at their processes on every turn */
			log_info("signal %u: stopping", info.ssi_signo);
			core_stop(c);
		}
	if (fds[1].revents && read(c->wake_fd, &count, sizeof count) < 0)
		assert(errno == EAGAIN);
}

static int timeout_until(const struct core *c, int64_t latest_ms)
{
	int64_t now = clock_mono_ms(), at = supervise_deadline(c), describe = describe_deadline(c);

	at = describe < at ? describe : at;
	at = tokens_deadline(c) < at ? tokens_deadline(c) : at;
	at = gate_run_deadline(c) < at ? gate_run_deadline(c) : at;
	at = latest_ms < at ? latest_ms : at;
	if (c->retry_ms > now && c->retry_ms < at)
		at = c->retry_ms;
	if (at == INT64_MAX)
		return -1;
	return at <= now ? 0 : at - now > 60000 ? 60000 : (int)(at - now);
}

/* Waits for something to happen, until latest_ms at most, and moves bytes. */
static void wait_and_move(struct core *c, int64_t latest_ms)
{
	struct pollfd fds[2 + (SCHEDULER_MAX_WORKERS + DESCRIBE_MAX + GATE_RUN_CHILDREN + 1) * LINK_FDS] = {
	    {.fd = c->signal_fd, .events = POLLIN}, {.fd = c->wake_fd, .events = POLLIN}};
	bool pause = core_store_waits(c, clock_mono_ms());
	size_t n = 2, at = 2;

	for (size_t w = 0; w < c->n_slots; w++)
		if (c->slots[w].link) {
			link_poll(c->slots[w].link, pause, fds + n);
			n += LINK_FDS;
		}
	n += tokens_poll(c, fds + n);
	n += gate_run_poll(c, fds + n);
	n += describe_poll(c, fds + n);
	if (poll(fds, n, timeout_until(c, latest_ms)) <= 0)
		return;
	read_wakes(c, fds);
	for (size_t w = 0; w < c->n_slots; w++)
		if (c->slots[w].link) {
			link_handle(c->slots[w].link, fds + at);
			at += LINK_FDS;
		}
	at += tokens_handle(c, fds + at);
	at += gate_run_handle(c, fds + at);
	describe_handle(c, fds + at);
}

static void assign_all(struct core *c)
{
	for (size_t w = 0; w < c->n_slots && !core_store_waits(c, clock_mono_ms()); w++)
		dispatch_assign(c, w);
}

/* Workers end when their stdin does. What they had sent is still stored; what is left is in the store as it stands. */
static err_code drain(struct core *c, struct err *e)
{
	int64_t deadline = clock_mono_ms() + DRAIN_MS;
	struct err stopping;

	c->draining = true;
	err_set(&stopping, ERR_CANCELLED, "the server is stopping");
	refuse_all(take_queue(c, true), &stopping);
	describe_cancel_all(c);
	score_cancel_all(c);
	tokens_cancel_all(c);
	gate_run_close_all(c);
	supervise_shut(c);
	while (supervise_any(c) && clock_mono_ms() < deadline) {
		supervise_step(c, clock_mono_ms());
		if (supervise_any(c))
			wait_and_move(c, deadline);
	}
	supervise_close(c);
	view_publish(c);
	return store_checkpoint(c->store, e);
}

err_code core_run(struct core *c, struct err *e)
{
	struct err ignored;
	err_code rc = ERR_OK;

	while (!rc && !core_stopping(c)) {
		int64_t now = clock_mono_ms();

		supervise_step(c, now);
		rc = serve_requests(c, e);
		if (rc)
			break;
		describe_step(c, now);
		tokens_step(c, now);
		score_step(c);
		if (!core_store_waits(c, now))
			settle_jobs(c);
		if (!core_store_waits(c, now))
			gate_run_step(c, now);
		assign_all(c);
		view_publish(c);
		if (c->refusals >= MAX_REFUSALS) {
			*e = c->last_refusal;
			rc = err_wrap(e, "the store refuses every write");
			break;
		}
		wait_and_move(c, INT64_MAX);
	}
	if (!rc)
		return drain(c, e);
	drain(c, &ignored); /* the first error is the one to tell */
	return rc;
}
