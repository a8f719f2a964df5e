/* What other threads may see of the workers: copies under the lock, made anew on every turn of the core. */
#include <stdio.h>
#include <string.h>

#include "engine/clock.h"
#include "server/core_private.h"

static const char *state_name(const struct slot *s, const struct sched_worker *k, size_t n_requests)
{
	if (k->unusable[0])
		return "unusable";
	if (!s->link)
		return "backing_off";
	if (!s->hello)
		return "starting";
	return k->state == WORKER_IDLE && !n_requests ? "idle" : "busy";
}

/* The signature that its job is pinned to, else its first. */
static const char *signature_shown(const struct sched_worker *k)
{
	if (k->job && k->job->pins.signature)
		return k->job->pins.signature;
	return k->n_signatures ? k->signatures[0].signature : "";
}

static void fill_view(struct core *c, size_t w, struct worker_view *v)
{
	struct slot *s = &c->slots[w];
	const struct sched_worker *k = &c->sched.workers[w];
	bool busy = k->job && k->state != WORKER_IDLE;

	*v = (struct worker_view){.job = busy ? k->job->id : 0,
	                          .pid = s->link ? link_pid(s->link) : 0,
	                          .done_tokens = s->done_tokens,
	                          .live_tokens = -1,
	                          .requests = score_waiting(c, w),
	                          .restarts = s->restarts};
	snprintf(v->name, sizeof v->name, "%s", s->name);
	snprintf(v->spec, sizeof v->spec, "%s", s->spec);
	snprintf(v->state, sizeof v->state, "%s", state_name(s, k, v->requests));
	snprintf(v->device, sizeof v->device, "%s", k->known ? k->device : "");
	snprintf(v->signature, sizeof v->signature, "%s", signature_shown(k));
	snprintf(v->error, sizeof v->error, "%s", k->unusable);
	if (k->known)
		v->about = s->device;
	snprintf(v->phase, sizeof v->phase, "%s", !busy ? "" : k->state == WORKER_PLANNING ? "plan" : "run");
	if (busy && k->state == WORKER_RUNNING)
		v->live_tokens =
		    k->progress_tokens > k->reported_tokens ? (int64_t)(k->progress_tokens - k->reported_tokens) : 0;
}

void view_publish(struct core *c)
{
	struct worker_view v;

	for (size_t w = 0; w < c->n_slots; w++) {
		fill_view(c, w, &v);
		/* only this thread writes views, so it may read them without the lock */
		v.since_ms = strcmp(v.state, c->views[w].state) ? clock_unix_ms() : c->views[w].since_ms;
		pthread_mutex_lock(&c->lock);
		c->views[w] = v;
		pthread_mutex_unlock(&c->lock);
	}
}

/* Its device as its last hello had it: memory is what was free then. */
static void put_about(struct json_writer *w, const struct device_info *d)
{
	json_put_string(w, "kind", *d->kind ? d->kind : NULL);
	json_put_string(w, "device_name", *d->name ? d->name : NULL);
	json_put_string(w, "isa", *d->isa ? d->isa : NULL);
	json_put_string(w, "libraries", *d->libraries ? d->libraries : NULL);
	json_put_uint(w, "threads", d->n_threads);
	json_put_uint(w, "memory_bytes", d->memory_bytes);
}

void core_write_workers(struct core *c, struct json_writer *w, const char *key)
{
	struct worker_view v;
	char since[CLOCK_TEXT];

	json_begin_array(w, key);
	for (size_t i = 0; i < c->n_slots; i++) {
		pthread_mutex_lock(&c->lock);
		v = c->views[i];
		pthread_mutex_unlock(&c->lock);
		json_begin_object(w, NULL);
		json_put_string(w, "name", v.name);
		json_put_string(w, "spec", v.spec);
		json_put_string(w, "state", v.state);
		json_put_string(w, "phase", *v.phase ? v.phase : NULL);
		json_put_string(w, "device", *v.device ? v.device : NULL);
		put_about(w, &v.about);
		json_put_string(w, "signature", *v.signature ? v.signature : NULL);
		json_put_string(w, "error", *v.error ? v.error : NULL);
		if (v.job)
			json_put_int(w, "job", v.job);
		else
			json_put_null(w, "job");
		json_put_uint(w, "requests", v.requests);
		json_put_int(w, "pid", v.pid);
		json_put_uint(w, "restarts", v.restarts);
		clock_format(v.since_ms, since);
		json_put_string(w, "since_at", since);
		json_put_int(w, "done_tokens", v.done_tokens);
		json_end_object(w);
	}
	json_end_array(w);
}

int64_t core_job_live_tokens(struct core *c, int64_t job)
{
	int64_t tokens = -1;

	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; i < c->n_slots; i++)
		if (c->views[i].job == job && c->views[i].live_tokens >= 0)
			tokens = (tokens < 0 ? 0 : tokens) + c->views[i].live_tokens;
	pthread_mutex_unlock(&c->lock);
	return tokens;
}
