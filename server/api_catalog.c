/* What is there: models, tasks, workers, health. */
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/problem.h"

#define MAX_REPLY ((size_t)16 << 20)

/* -- models ------------------------------------------------------------------------------------ */

/* The list carries each model's description, so it is a chain of requests to the core: one at a time, which a cache
 * answers for all but new models. */
struct model_list {
	char **names; /* [n] owned */
	size_t n, cap, at;
	struct buf body;
	struct json_writer w;
};

static void model_list_free(void *data)
{
	struct model_list *l = data;

	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	buf_release(&l->body);
	free(l);
}

static int add_name(void *arg, const char *name, const char *path)
{
	struct model_list *l = arg;
	struct err ignored;
	char **names = mem_grow(l->names, &l->cap, l->n + 1, sizeof *names, &ignored);

	(void)path;
	if (!names)
		return 1;
	l->names = names;
	l->names[l->n] = strdup(name);
	return l->names[l->n] ? (l->n++, 0) : 1;
}

/* A description under the name that it is asked for by; or, what is wrong with the model. */
static void put_model(struct json_writer *w, const char *name, const char *description, const struct err *why)
{
	struct json *d = NULL;
	struct err e;

	if (description && json_parse(description, strlen(description), &d, &e))
		why = &e;
	json_begin_object(w, NULL);
	json_put_string(w, "name", name);
	for (const struct json *m = json_first(d); m; m = json_next(m))
		if (strcmp(json_key(m), "name") != 0)
			json_put_value(w, json_key(m), m);
	if (!d && why) {
		json_begin_object(w, "error");
		json_put_string(w, "code", err_name(why->code));
		json_put_string(w, "message", why->msg);
		json_end_object(w);
	}
	json_end_object(w);
	json_free(d);
}

static void finish_models(struct http_request *r, struct model_list *l)
{
	json_end_array(&l->w);
	json_end_object(&l->w);
	api_send_json(r, 200, &l->body);
}

/* Asks for the description of the next model. */
static void next_model(struct http_request *r);

static void described_one(struct http_request *r)
{
	struct api_call *c = r->state;
	struct model_list *l = c->data;

	if (c->core.err.code == ERR_CANCELLED) { /* the server stops */
		problem_error(r, &c->core.err);
		return;
	}
	put_model(&l->w, l->names[l->at], c->core.text, &c->core.err);
	free(c->core.text);
	c->core.text = NULL;
	c->core.err = (struct err){0};
	l->at++;
	next_model(r);
}

static void next_model(struct http_request *r)
{
	struct api_call *c = r->state;
	struct model_list *l = c->data;

	if (l->at == l->n) {
		finish_models(r, l);
		return;
	}
	c->core.model = l->names[l->at];
	api_call_submit(r, described_one);
}

void api_model_list(struct http_request *r)
{
	struct api_call *c = api_call_new(r, REQUEST_DESCRIBE);
	struct model_list *l;
	struct err e;

	if (!c)
		return;
	l = mem_zalloc(1, sizeof *l, &e);
	if (!l) {
		problem_error(r, &e);
		return;
	}
	c->data = l;
	c->data_free = model_list_free;
	l->body = BUF_INIT(MAX_REPLY);
	l->w = JSON_WRITER(&l->body);
	if (registry_each_model(&api_of(r)->registry, add_name, l)) {
		problem_send(r, 500, "out of memory listing models");
		return;
	}
	json_begin_object(&l->w, NULL);
	json_begin_array(&l->w, "data");
	next_model(r);
}

static void described(struct http_request *r)
{
	struct api_call *c = r->state;
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	if (api_call_failed(r))
		return;
	put_model(&w, r->name, c->core.text, &c->core.err);
	api_send_json(r, 200, &b);
}

void api_model_get(struct http_request *r)
{
	struct api_call *c;
	char *path = NULL;
	struct err e;

	if (registry_model(&api_of(r)->registry, r->name, &path, &e)) {
		problem_send(r, 404, "%s", e.msg);
		return;
	}
	free(path);
	c = api_call_new(r, REQUEST_DESCRIBE);
	if (!c)
		return;
	c->core.model = r->name;
	api_call_submit(r, described);
}

/* -- tasks ------------------------------------------------------------------------------------- */

void api_task_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	json_begin_object(&w, NULL);
	json_begin_array(&w, "data");
	for (size_t i = 0; i < task_count(); i++)
		task_describe(task_at(i), &w, NULL);
	json_end_array(&w);
	json_end_object(&w);
	api_send_json(r, 200, &b);
}

void api_task_get(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct err e;
	const struct task *t = task_find(r->name, &e);

	if (!t) {
		problem_send(r, 404, "%s", e.msg);
		return;
	}
	task_describe(t, &w, NULL);
	api_send_json(r, 200, &b);
}

/* -- workers and health ------------------------------------------------------------------------ */

void api_worker_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	json_begin_object(&w, NULL);
	core_write_workers(api_of(r)->core, &w, "data");
	json_end_object(&w);
	api_send_json(r, 200, &b);
}

void api_health(struct http_request *r)
{
	struct buf b = BUF_INIT(1000);
	struct json_writer w = JSON_WRITER(&b);
	bool stopping = http_stopping(r) || core_stopping(api_of(r)->core);

	json_begin_object(&w, NULL);
	json_put_string(&w, "status", stopping ? "stopping" : "ok");
	json_put_string(&w, "version", FATHOM_VERSION);
	json_end_object(&w);
	http_set_header(r, "Cache-Control", "no-store");
	api_send_json(r, stopping ? 503 : 200, &b);
}
