/* The worker's models and sessions. Main thread only, but for what is under the lock.
 *
 * Models are shared between plans and requests by path, dtype and bytes. At most two have a session (weights on the
 * device): the job's, and beside it one of a model that requests ask for, where the memory has room for both; else the
 * one takes the other's place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/worker.h"

/* -- sessions ---------------------------------------------------------------------------------- */

static void close_session(struct worker *w, struct loaded *l)
{
	if (!l->session)
		return;
	pthread_mutex_lock(&w->lock);
	w->now.past_tokens += session_done_tokens(l->session);
	for (size_t i = 0; i < WORKER_MAX_SESSIONS; i++)
		if (w->now.sessions[i] == l->session)
			w->now.sessions[i] = NULL;
	if (w->now.running == l->session)
		w->now.running = NULL;
	pthread_mutex_unlock(&w->lock);
	session_close(l->session);
	l->session = NULL;
}

static err_code open_session(struct worker *w, struct loaded *l, struct err *e)
{
	struct session_options o = {.device = w->device.device, .dtype = l->dtype, .n_threads = w->options->n_threads};
	size_t i = 0;

	if (session_open(l->model, &o, &l->session, e))
		return e->code;
	pthread_mutex_lock(&w->lock);
	while (w->now.sessions[i])
		i++; /* there is room: the caller saw to it */
	w->now.sessions[i] = l->session;
	pthread_mutex_unlock(&w->lock);
	return ERR_OK;
}

err_code worker_job_session(struct worker *w, struct loaded *l, struct err *e)
{
	if (!l->session) {
		for (struct loaded *other = w->loaded; other; other = other->next)
			close_session(w, other);
		worker_drop_unused(w);
		if (open_session(w, l, e))
			return e->code;
	}
	pthread_mutex_lock(&w->lock);
	w->now.running = l->session;
	pthread_mutex_unlock(&w->lock);
	return ERR_OK;
}

/* Half of what is free is left to the job, whose batches may not have had their full size yet. */
static bool has_room_beside(struct worker *w, const struct loaded *l)
{
	struct session_options o = {.device = w->device.device, .dtype = l->dtype, .n_threads = w->options->n_threads};
	struct device_info now;
	struct err ignored;
	size_t n = 0;

	for (const struct loaded *other = w->loaded; other; other = other->next)
		n += other->session != NULL;
	if (n >= WORKER_MAX_SESSIONS || device_describe(w->device.device, &now, &ignored))
		return n == 0;
	return n == 0 ||
	       session_memory(l->model, &o, (struct batch_size){l->model->config.n_ctx, 1}) <= now.memory_bytes / 2;
}

err_code worker_request_session(struct worker *w, struct loaded *l, struct err *e)
{
	err_code rc;

	if (l->session)
		return ERR_OK;
	if (!has_room_beside(w, l))
		for (struct loaded *other = w->loaded; other; other = other->next)
			close_session(w, other);
	l->refs++; /* it is nobody's yet */
	worker_drop_unused(w);
	rc = open_session(w, l, e);
	l->refs--;
	return rc;
}

/* -- models ------------------------------------------------------------------------------------ */

static void free_loaded(struct worker *w, struct loaded *l)
{
	struct loaded **p = &w->loaded;

	while (*p && *p != l)
		p = &(*p)->next;
	if (*p)
		*p = l->next;
	close_session(w, l);
	token_keys_free(l->keys);
	model_free(l->model);
	free(l);
}

void worker_drop_unused(struct worker *w)
{
	struct loaded *next;

	for (struct loaded *l = w->loaded; l; l = next) {
		next = l->next;
		if (!l->refs && !l->session)
			free_loaded(w, l);
	}
}

/* Takes m, also when it fails. */
static struct loaded *keep(struct worker *w, struct model *m, const char *dtype, bool own_position, struct err *e)
{
	struct loaded *l = mem_zalloc(1, sizeof *l, e);

	if (!l) {
		model_free(m);
		return NULL;
	}
	l->model = m;
	l->own_position = own_position;
	snprintf(l->dtype, sizeof l->dtype, "%s", dtype);
	l->next = w->loaded;
	w->loaded = l;
	return l;
}

/* A model that only requests asked for has not been hashed. */
static bool same_bytes(struct model *old, const struct model *m)
{
	struct err ignored;

	if (!*old->fingerprint && model_fingerprint(old, &ignored))
		return false;
	return !strcmp(old->fingerprint, m->fingerprint) &&
	       !strcmp(old->tokenizer_fingerprint, m->tokenizer_fingerprint);
}

err_code worker_load(struct worker *w, const char *path, const struct json *position, const char *dtype,
                     struct loaded **out, struct err *e)
{
	struct model *m;

	if (model_open(path, position, &m, e)) {
		char member[sizeof e->pointer];

		memcpy(member, e->pointer, sizeof member); /* relative to the override: say where the job has it */
		return *member ? err_at(e, "/engine/position%s", member) : e->code;
	}
	if (model_fingerprint(m, e)) {
		model_free(m);
		return e->code;
	}
	for (struct loaded *old = w->loaded; old; old = old->next) {
		if (strcmp(old->model->path, m->path) != 0 || strcmp(old->dtype, dtype) != 0 ||
		    !same_bytes(old->model, m))
			continue;
		model_free(m);
		*out = old;
		return ERR_OK;
	}
	*out = keep(w, m, dtype, !position, e);
	return *out ? ERR_OK : ERR_MEMORY;
}

err_code worker_load_unhashed(struct worker *w, const char *path, const char *dtype, struct loaded **out, struct err *e)
{
	struct loaded *l = w->loaded;
	struct model *m;
	struct err changed;

	while (l && (!l->own_position || strcmp(l->model->path, path) != 0 || strcmp(l->dtype, dtype) != 0 ||
	             model_unchanged(l->model, &changed)))
		l = l->next;
	if (!l && model_open(path, NULL, &m, e))
		return e->code;
	*out = l ? l : keep(w, m, dtype, true, e);
	return *out ? ERR_OK : ERR_MEMORY;
}

/* A session that is there counts as free: it makes room, or is the one asked for. */
size_t worker_held_bytes(const struct worker *w)
{
	struct session_options o = {.device = w->device.device, .n_threads = w->options->n_threads};
	size_t held = 0;

	for (const struct loaded *l = w->loaded; l; l = l->next) {
		o.dtype = l->dtype;
		if (l->session)
			held += session_memory(l->model, &o, (struct batch_size){session_batch_tokens(l->session), 1});
	}
	return held;
}

void worker_trim_models(struct worker *w, size_t n_kept)
{
	struct loaded *next, *l = w->loaded;

	for (size_t i = 0; l; i++, l = next) {
		next = l->next;
		if (i >= n_kept && !l->refs && !l->session)
			free_loaded(w, l);
	}
}
