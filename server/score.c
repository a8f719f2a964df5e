/* Scoring requests in the core: which worker answers which, and what a worker's death means for them. What they ask for
 * is the worker's affair (eval/wire.h): a request is a line that is sent, and its answer a line with the same number.
 *
 * 1. A request is with one worker at most; workers pack what they have, also between the batches of a job.
 * 2. Those that a dying worker leaves are suspects: each is tried again alone, SCORE_TRIES times in all. While any
 *    waits, no other request goes out; while one is out, none to its worker.
 * 3. If there is a GPU they all go to GPUs: a client's requests should not differ by the processor that was free.
 * 4. Nothing waits for ever: a worker hangs, dies or answers, and one that will not come up again is hopeless; after
 *    SCORE_HOPELESS requests in a row that were given up the other suspects are, too. */
#include <string.h>

#include "engine/clock.h"
#include "server/core_private.h"

#define SCORE_TRIES     3
#define SCORE_HOPELESS  3 /* given up without an answer between: it is the model or the machine, not the request */
#define MAX_BYTES_AHEAD ((size_t)16 << 20) /* of a worker's requests: its queue of commands has a maximum */

/* What a worker has. */
struct load {
	size_t n, bytes;
	bool suspect;
};

static void answer(struct core *c, struct request *r)
{
	struct request **at = &c->scores;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->done(r); /* the requester's again */
}

static void refuse(struct core *c, struct request *r, const struct err *why)
{
	r->err = *why;
	answer(c, r);
}

void score_request(struct core *c, struct request *r)
{
	struct request **at = &c->scores;

	r->worker = -1;
	r->deaths = 0;
	r->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = r;
}

size_t score_waiting(const struct core *c, size_t w)
{
	size_t n = 0;

	for (const struct request *r = c->scores; r; r = r->next)
		n += r->worker == (int)w;
	return n;
}

/* -- assigning --------------------------------------------------------------------------------- */

static bool is_gpu(const struct sched_worker *k)
{
	return k->known && strcmp(k->kind, "cpu") != 0;
}

/* Whether to wait for workers that have not yet said what they are, or are GPUs. */
static bool leaves_to_gpu(const struct core *c, size_t w)
{
	if (is_gpu(&c->sched.workers[w]))
		return false;
	for (size_t i = 0; i < c->n_slots; i++)
		if (!c->sched.workers[i].heard || is_gpu(&c->sched.workers[i]))
			return true;
	return false;
}

static bool is_up(const struct core *c, size_t w)
{
	const struct slot *s = &c->slots[w];

	return s->link && s->hello && !s->condemned && c->sched.workers[w].state != WORKER_DOWN;
}

/* The worker with the fewest requests; -1: none may take it now. */
static int pick(const struct core *c, const struct request *r, const struct load *load)
{
	int best = -1;

	for (size_t w = 0; w < c->n_slots; w++) {
		if (!is_up(c, w) || leaves_to_gpu(c, w) || load[w].suspect)
			continue;
		if (load[w].n && (r->deaths || load[w].bytes + r->line.len > MAX_BYTES_AHEAD))
			continue;
		if (best < 0 || load[w].n < load[best].n)
			best = (int)w;
	}
	return best;
}

static void send(struct core *c, struct request *r, size_t w, struct load *load)
{
	if (!load->n)
		c->slots[w].moved_ms = clock_mono_ms(); /* from here on it is watched */
	r->worker = (int)w;
	load->n++;
	load->bytes += r->line.len;
	load->suspect = r->deaths > 0;
	supervise_send(c, w, &r->line);
}

/* Why nobody can answer; false: somebody can, or may come up. */
static bool nobody(const struct core *c, struct err *why)
{
	const char *reason = "";

	for (size_t w = 0; w < c->n_slots; w++) {
		if (!c->sched.workers[w].hopeless)
			return false;
		if (c->sched.workers[w].unusable[0])
			reason = c->sched.workers[w].unusable;
	}
	err_set(why, ERR_DEVICE, "no worker is up%s%s", *reason ? ": " : "", reason);
	return true;
}

void score_step(struct core *c)
{
	struct load load[SCHEDULER_MAX_WORKERS] = {0};
	bool suspects = false;
	struct request *next;
	struct err why;

	if (c->scores && nobody(c, &why)) {
		while (c->scores)
			refuse(c, c->scores, &why);
		return;
	}
	for (const struct request *r = c->scores; r; r = r->next) {
		suspects |= r->worker < 0 && r->deaths;
		if (r->worker < 0)
			continue;
		load[r->worker].n++;
		load[r->worker].bytes += r->line.len;
		load[r->worker].suspect |= r->deaths > 0;
	}
	for (struct request *r = c->scores; r; r = next) {
		int w = r->worker < 0 && (r->deaths || !suspects) ? pick(c, r, load) : -1;

		next = r->next;
		if (w >= 0)
			send(c, r, (size_t)w, &load[w]);
	}
}

/* -- what workers say -------------------------------------------------------------------------- */

static struct request *find(struct core *c, size_t w, int64_t id)
{
	struct request *r = c->scores;

	while (r && (r->id != id || r->worker != (int)w))
		r = r->next;
	return r;
}

bool score_scored(struct core *c, size_t w, struct json *event)
{
	int64_t id = -1;
	struct request *r = json_get_integer(event, "request", &id) ? find(c, w, id) : NULL;

	if (!r)
		return false;
	r->reply = event;
	c->slots[w].backoff_ms = 0;
	c->scores_given_up = 0;
	answer(c, r);
	return true;
}

void score_failed(struct core *c, size_t w, int64_t id, const struct err *why)
{
	struct request *r = find(c, w, id);

	if (r)
		refuse(c, r, why);
}

void score_lost(struct core *c, size_t w, const struct err *why)
{
	struct request *next;
	struct err last = *why;

	err_wrap(&last, "tried %d times, the last of them alone", SCORE_TRIES);
	for (struct request *r = c->scores; r; r = next) {
		next = r->next;
		if (r->worker != (int)w)
			continue;
		r->worker = -1;
		if (++r->deaths < SCORE_TRIES)
			continue;
		c->scores_given_up++;
		refuse(c, r, &last);
	}
	if (c->scores_given_up < SCORE_HOPELESS)
		return;
	err_wrap(&last, "given up as %u requests before", c->scores_given_up);
	for (struct request *r = c->scores; r; r = next) {
		next = r->next;
		if (r->worker < 0 && r->deaths)
			refuse(c, r, &last);
	}
}

void score_cancel_all(struct core *c)
{
	struct err e;

	err_set(&e, ERR_CANCELLED, "the server is stopping");
	while (c->scores)
		refuse(c, c->scores, &e);
}
