/* Worker processes: started, watched, buried, started again.
 *
 * 1. A line is taken from its link only after event_handle has stored its effect; while the store refuses, links are
 *    not read, so workers wait.
 * 2. A dead worker's lines are all dealt with before its death is: what it reported is not computed again.
 * 3. A new process starts only after the old one is reaped: its device is free then. */
#include "server/core_private.h"

#include <stdio.h>

#include "engine/log.h"

#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS   10000
#define HELLO_MS         60000
#define HANG_MS          120000
#define HOPELESS_DEATHS  3
#define UNUSABLE_MS      60000 /* between processes of a worker that says itself that it cannot work */

err_code supervise_open(struct core *c, struct err *e)
{
	err_code rc = ERR_OK;

	if (c->o.n_workers > SCHEDULER_MAX_WORKERS)
		return err_set(e, ERR_INPUT, "%zu workers are more than the %d that one server has", c->o.n_workers,
		               SCHEDULER_MAX_WORKERS);
	scheduler_init(&c->sched, c->o.n_workers);
	c->n_slots = c->o.n_workers;
	for (size_t w = 0; !rc && w < c->n_slots; w++) {
		struct slot *s = &c->slots[w];

		snprintf(s->name, sizeof s->name, "worker %zu", w);
		s->spec = c->o.workers[w];
		rc = launch_make(s->spec, c->o.self, &c->o.registry, &s->launch, e);
	}
	return rc;
}

void supervise_close(struct core *c)
{
	for (size_t w = 0; w < c->n_slots; w++) {
		link_close(c->slots[w].link);
		c->slots[w].link = NULL;
		launch_release(&c->slots[w].launch);
	}
}

static void back_off(struct slot *s, int64_t now_ms)
{
	s->backoff_ms = s->backoff_ms ? s->backoff_ms * 2 : BACKOFF_FIRST_MS;
	if (s->backoff_ms > BACKOFF_MAX_MS)
		s->backoff_ms = BACKOFF_MAX_MS;
	s->restart_ms = now_ms + s->backoff_ms;
}

static void start(struct core *c, size_t w, int64_t now_ms)
{
	struct slot *s = &c->slots[w];
	struct err e;

	s->hello = s->unusable = s->condemned = false;
	s->kill_ms = 0;
	s->done_tokens = 0;
	s->started_ms = s->moved_ms = now_ms;
	if (link_open(&s->launch, s->name, &s->link, &e)) {
		log_error("%s: %s", s->name, e.msg);
		back_off(s, now_ms);
		return;
	}
	log_line(c->sched.workers[w].unusable[0] ? LOG_DEBUG : LOG_INFO, "%s: started, process %ld: %s", s->name,
	         (long)link_pid(s->link), s->spec); /* an unusable one is tried every minute: that is no news */
}

static void bury(struct core *c, size_t w, int64_t now_ms)
{
	struct slot *s = &c->slots[w];
	struct err why;

	err_set(&why, ERR_DEVICE, "%s (%s) died: %s", s->name, s->spec, link_obituary(s->link));
	if (!s->unusable)
		c->sched.workers[w].unusable[0] = '\0'; /* it dies of something else now */
	if (!c->draining && !s->unusable)
		log_warn("%s", why.msg);
	s->early_deaths = s->hello ? 0 : s->early_deaths + 1;
	if (s->early_deaths >= HOPELESS_DEATHS) {
		c->sched.workers[w].known = false;
		c->sched.workers[w].hopeless = true;
	}
	scheduler_lost(&c->sched, w, true, &why);
	score_lost(c, w, &why);
	link_close(s->link);
	s->link = NULL;
	s->hello = false;
	if (s->unusable) {
		s->restart_ms = now_ms + UNUSABLE_MS;
		return;
	}
	s->restarts++;
	back_off(s, now_ms);
}

void supervise_condemn(struct core *c, size_t w, const char *why)
{
	struct slot *s = &c->slots[w];

	log_error("%s: killed: %s", s->name, why);
	s->condemned = true;
	link_kill(s->link);
}

void supervise_send(struct core *c, size_t w, const struct buf *line)
{
	struct err e;

	if (buf_check(line, "a command", &e) || link_send(c->slots[w].link, line->data, line->len, &e))
		supervise_condemn(c, w, e.msg);
}

static void read_events(struct core *c, size_t w, int64_t now_ms)
{
	struct slot *s = &c->slots[w];
	const char *line;
	size_t len;
	struct err e;

	while (!core_store_waits(c, now_ms) && (line = link_line(s->link, &len)) != NULL) {
		if (!s->condemned && event_handle(c, w, line, len, &e)) {
			core_store_refused(c, &e);
			return;
		}
		link_take(s->link);
	}
	if (link_fault(s->link) && !s->condemned)
		supervise_condemn(c, w, link_fault(s->link));
}

/* A plan reads and hashes whole files, and tells of tokens only at its end: it has ten times as long. */
static int64_t hang_ms(const struct core *c, size_t w)
{
	int64_t ms = c->o.hang_ms ? c->o.hang_ms : HANG_MS;

	return c->sched.workers[w].state == WORKER_PLANNING ? 10 * ms : ms;
}

static bool is_working(const struct core *c, size_t w)
{
	enum worker_state state = c->sched.workers[w].state;

	return state == WORKER_PLANNING || state == WORKER_RUNNING || state == WORKER_SETTLING || score_waiting(c, w);
}

static void kill_late(struct core *c, size_t w, int64_t now_ms)
{
	struct slot *s = &c->slots[w];

	if (s->condemned)
		return;
	if (s->kill_ms && now_ms >= s->kill_ms)
		supervise_condemn(c, w, "it did not stop when told to");
	else if (!s->hello && now_ms >= s->started_ms + HELLO_MS)
		supervise_condemn(c, w, "it did not say hello");
	else if (is_working(c, w) && !c->refusals && now_ms >= s->moved_ms + hang_ms(c, w))
		supervise_condemn(c, w, "it hangs: its count of tokens stands still");
}

/* Not before its lines are dealt with; the end may bring the last of them. */
static bool is_dead(struct core *c, size_t w, int64_t now_ms)
{
	read_events(c, w, now_ms);
	if (link_ended(c->slots[w].link))
		return true;
	read_events(c, w, now_ms);
	return link_ended(c->slots[w].link);
}

void supervise_step(struct core *c, int64_t now_ms)
{
	for (size_t w = 0; w < c->n_slots; w++) {
		struct slot *s = &c->slots[w];

		if (!s->link && !c->draining && now_ms >= s->restart_ms)
			start(c, w, now_ms);
		if (!s->link)
			continue;
		if (is_dead(c, w, now_ms))
			bury(c, w, now_ms);
		else
			kill_late(c, w, now_ms);
	}
}

void supervise_shut(struct core *c)
{
	for (size_t w = 0; w < c->n_slots; w++)
		if (c->slots[w].link)
			link_shut(c->slots[w].link);
}

bool supervise_any(const struct core *c)
{
	for (size_t w = 0; w < c->n_slots; w++)
		if (c->slots[w].link)
			return true;
	return false;
}

int64_t supervise_deadline(const struct core *c)
{
	int64_t first = INT64_MAX;

	for (size_t w = 0; w < c->n_slots; w++) {
		const struct slot *s = &c->slots[w];
		int64_t at = INT64_MAX;

		if (!s->link)
			at = c->draining ? INT64_MAX : s->restart_ms;
		else if (s->condemned)
			continue;
		else if (!s->hello)
			at = s->started_ms + HELLO_MS;
		else if (is_working(c, w))
			at = s->moved_ms + hang_ms(c, w);
		if (s->link && s->kill_ms && s->kill_ms < at)
			at = s->kill_ms;
		if (at < first)
			first = at;
	}
	return first;
}
