/* Scoring requests: prompts of many clients, scored together on the main thread, between whatever else it does.
 *
 *   queue -> a round: all that wait -> by model -> asks (ask.c) -> passes (chains.c) -> a `scored` or `failed` each
 *
 * A cancel of the job that a round interrupts stops the round; what was not answered waits again, from the start. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/log.h"
#include "eval/ask.h"
#include "eval/wire.h"
#include "eval/worker.h"

#define GATHER_MS   4
#define SMALL_BATCH 8192 /* tokens: what a session should have room for, and a longer prompt is asked about */

/* Requests for one model. */
struct group {
	struct worker *w;
	struct loaded *loaded;
	struct ask_model model;
	struct ask *asks, **tail; /* owned */
};

static void free_command(struct command *c)
{
	if (c)
		json_free(c->json);
	free(c);
}

static void refuse(struct worker *w, struct command *c, const struct err *why)
{
	worker_emit_refused(w, c->request, why);
	free_command(c);
}

/* -- the model --------------------------------------------------------------------------------- */

/* Whether a chain of n_tokens fits, which asks the device for its memory. */
static err_code check_memory(struct group *g, uint64_t n_tokens, struct err *e)
{
	struct worker *w = g->w;
	struct loaded *l = g->loaded;
	struct place place;
	size_t need;

	assert(l);
	if (place_init(&place, w->device.device, l->dtype, w->options->n_threads, e))
		return e->code;
	memcpy(l->signature, place.signature, sizeof l->signature);
	return place_fits(&place, l->model, (struct batch_size){n_tokens, 1}, worker_held_bytes(w), &need, e);
}

static err_code open_model(struct group *g, const char *name, struct err *e)
{
	struct worker *w = g->w;
	struct loaded *l;
	char *path;

	if (!w->has_device)
		return err_set(e, ERR_DEVICE, "this worker has no device");
	if (!name)
		return err_set(e, ERR_INPUT, "score: no string 'model'");
	if (registry_model(&w->options->registry, name, &path, e))
		return e->code;
	worker_load_unhashed(w, path, device_auto_dtype(&w->device), &g->loaded, e);
	free(path);
	l = g->loaded;
	if (!l)
		return e->code;
	if (!l->keys && token_keys_make(l->model->tokenizer, l->model->config.n_vocab, &l->keys, e))
		return e->code;
	g->model = (struct ask_model){l->model, l->keys, l->model->config.n_ctx};
	if (l->session && *l->signature)
		return ERR_OK;
	if (check_memory(g, SMALL_BATCH < g->model.limit ? SMALL_BATCH : g->model.limit, e))
		return e->code;
	return worker_request_session(w, l, e);
}

/* -- asks -------------------------------------------------------------------------------------- */

static err_code check_ask(struct group *g, const struct ask *a, struct err *e)
{
	uint32_t longest = 0;

	for (size_t i = 0; i < a->n_prompts; i++)
		longest = a->prompts[i].n > longest ? a->prompts[i].n : longest;
	return longest > SMALL_BATCH ? check_memory(g, longest, e) : ERR_OK;
}

/* Takes the command. */
static void add_ask(struct group *g, struct command *c)
{
	struct ask *a = NULL;
	struct err e;

	if (ask_new(&g->model, c->json, &a, &e) || check_ask(g, a, &e)) {
		ask_free(a);
		refuse(g->w, c, &e);
		return;
	}
	a->command = c;
	*g->tail = a;
	g->tail = &a->next;
}

static void answer(const struct group *g, struct ask *a)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE - 4096);
	struct json_writer w = JSON_WRITER(&line);

	json_begin_object(&w, NULL);
	json_put_string(&w, "event", "scored");
	json_put_int(&w, "request", a->command->request);
	json_put_string(&w, "signature", g->loaded->signature);
	if (!a->why.code)
		ask_write(a, &w, "prompts", &a->why);
	json_end_object(&w);
	if (!a->why.code && line.failed)
		err_set(&a->why, ERR_INPUT, "the answer is longer than %zu MB: ask for fewer tokens at once",
		        WIRE_MAX_LINE >> 20);
	if (a->why.code)
		worker_emit_refused(g->w, a->command->request, &a->why);
	else
		worker_emit(g->w, &line);
	buf_release(&line);
	free_command(a->command);
	a->command = NULL;
}

static void answer_complete(struct group *g)
{
	for (struct ask *a = g->asks; a; a = a->next)
		if (a->command && ask_is_complete(a))
			answer(g, a);
}

/* -- passes ------------------------------------------------------------------------------------ */

/* False: the command that this interrupts was cancelled. */
static bool begin_pass(struct worker *w, struct session *s, uint64_t *before)
{
	bool go;

	pthread_mutex_lock(&w->lock);
	go = !w->now.command || !w->now.command->cancelled;
	*before = worker_done_tokens(w);
	if (go) {
		session_resume(s); /* a stop of an earlier command */
		w->now.scoring = s;
	}
	pthread_mutex_unlock(&w->lock);
	return go;
}

static void end_pass(struct worker *w, uint64_t before)
{
	pthread_mutex_lock(&w->lock);
	w->now.scoring = NULL;
	w->now.base += worker_done_tokens(w) - before; /* the job did not do these */
	pthread_mutex_unlock(&w->lock);
}

/* The chains of all prompts that are not complete. */
static struct chain **list_chains(struct group *g, size_t *n, struct err *e)
{
	struct chain **list;
	size_t cap = 0;

	for (const struct ask *a = g->asks; a; a = a->next)
		cap += a->n_prompts;
	list = mem_alloc(cap, sizeof(struct chain *), e);
	*n = 0;
	for (struct ask *a = g->asks; list && a; a = a->next)
		for (size_t i = 0; a->command && !a->why.code && i < a->n_prompts; i++)
			if (prompt_begin(&a->prompts[i]))
				list[(*n)++] = &a->prompts[i].chain;
	return list;
}

static void chain_failed(void *arg, struct chain *c, const struct err *why)
{
	struct prompt *p = c->owner;

	(void)arg;
	p->ask->why = *why;
	err_wrap(&p->ask->why, "prompt %zu", (size_t)(p - p->ask->prompts));
}

/* One pass over all prompts that are not complete. *any: there were some. */
static err_code pass(struct group *g, bool *any, struct err *e)
{
	const struct position *position = &g->model.model->config.position;
	struct session *s = g->loaded->session;
	uint64_t before;
	size_t n;
	struct chain **list = list_chains(g, &n, e);
	err_code rc = list ? ERR_OK : ERR_MEMORY;

	*any = n > 0;
	if (!rc && n && !begin_pass(g->w, s, &before)) {
		rc = err_set(e, ERR_CANCELLED, "the job that they interrupt was cancelled");
	} else if (!rc && n) {
		rc = chains_score(s, list, n, !position_depends_on_length(position), chain_failed, NULL, e);
		end_pass(g->w, before);
	}
	for (size_t i = 0; !rc && i < n; i++) {
		struct prompt *p = list[i]->owner;

		if (!p->ask->why.code)
			rc = prompt_end(p, e);
	}
	free(list);
	return rc;
}

/* -- a model's requests ------------------------------------------------------------------------ */

/* Requests that were not answered, back to where they came from: the head of the queue. */
static void give_back(struct worker *w, struct command *list)
{
	struct command **end = &list;
	size_t n = 0;

	for (; *end; end = &(*end)->next)
		n++;
	if (!n)
		return;
	pthread_mutex_lock(&w->lock);
	*end = w->scores;
	if (!w->scores)
		w->scores_tail = end;
	w->scores = list;
	w->n_scores += n;
	pthread_mutex_unlock(&w->lock);
}

/* Ends the group: what was not answered goes back or is refused. */
static void end_group(struct group *g, err_code rc, const struct err *e)
{
	struct command *list = NULL, **end = &list, *c;

	while (g->asks) {
		struct ask *a = g->asks;

		g->asks = a->next;
		if (a->command) {
			*end = a->command;
			end = &a->command->next;
		}
		ask_free(a);
	}
	*end = NULL;
	if (rc == ERR_CANCELLED) {
		give_back(g->w, list);
		return;
	}
	while ((c = list) != NULL) {
		list = c->next;
		refuse(g->w, c, e);
	}
}

/* Answers requests for one model, which it takes. False: it was stopped, and the rest is in the queue again. */
static bool score_group(struct worker *w, struct command *list)
{
	struct group g = {.w = w, .tail = &g.asks};
	struct command *next;
	struct err e;
	bool any = true;
	err_code rc = open_model(&g, json_get_string(list->json, "model"), &e);

	for (struct command *c = list; c; c = next) {
		next = c->next;
		c->next = NULL;
		if (rc)
			refuse(w, c, &e);
		else
			add_ask(&g, c);
	}
	while (!rc && any) {
		rc = pass(&g, &any, &e);
		if (!rc)
			answer_complete(&g);
	}
	if (rc == ERR_DEVICE && w->has_device) {
		log_error("requests: %s", e.msg);
		_exit(1); /* it may need a new process: the server asks that one */
	}
	end_group(&g, rc, &e);
	return rc != ERR_CANCELLED;
}

/* -- rounds ------------------------------------------------------------------------------------ */

bool worker_has_scores(struct worker *w)
{
	bool any;

	pthread_mutex_lock(&w->lock);
	any = w->scores != NULL;
	pthread_mutex_unlock(&w->lock);
	return any;
}

/* Clients that were answered together ask again at about the same time: as many as last time are waited for, a little.
 * So one client alone never waits. */
static struct command *take_round(struct worker *w, bool gather)
{
	struct timespec until;
	struct command *list;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += GATHER_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&w->lock);
	while (gather && !w->head && w->n_scores < w->last_round)
		if (pthread_cond_timedwait(&w->ready, &w->lock, &until))
			break;
	list = w->scores;
	w->last_round = w->n_scores;
	w->scores = NULL;
	w->scores_tail = &w->scores;
	w->n_scores = 0;
	pthread_mutex_unlock(&w->lock);
	return list;
}

static bool same_model(const struct command *a, const struct command *b)
{
	const char *x = json_get_string(a->json, "model"), *y = json_get_string(b->json, "model");

	return x == y || (x && y && !strcmp(x, y));
}

/* Takes those for the first one's model off the list. */
static struct command *take_group(struct command **list)
{
	struct command *first = *list, *group = NULL, **end = &group, **at = list;

	while (*at) {
		struct command *c = *at;

		if (c != first && !same_model(c, first)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		*end = c;
		end = &c->next;
	}
	*end = NULL;
	return group;
}

void worker_score(struct worker *w, bool gather)
{
	struct command *list = take_round(w, gather);

	while (list)
		if (!score_group(w, take_group(&list))) {
			give_back(w, list);
			break;
		}
}
