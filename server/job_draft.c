/* What a client asks for becomes a row: see job_draft.h. Member by member, through one table. */
#include "server/job_draft.h"

#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/api.h"

#define MAX_NAME     200
#define MAX_TAGS     32
#define MAX_KEY      64
#define MAX_PRIORITY 100
#define MAX_TEXT     ((size_t)64 << 10)

struct job_draft {
	const struct registry *registry; /* borrowed */
	const struct json *body;         /* borrowed, and so are the strings below that are not bufs */
	const struct task *task;
	const char *name, *model, *dataset;
	struct buf params, engine, tags; /* effective values as JSON objects, members in a fixed order */
	int priority;
	bool cache;
	char hash[SHA256_HEX];
};

void job_draft_free(struct job_draft *d)
{
	if (!d)
		return;
	buf_release(&d->params);
	buf_release(&d->engine);
	buf_release(&d->tags);
	free(d);
}

/* -- members ----------------------------------------------------------------------------------- */

static bool is_given(const struct json *v)
{
	return v && !json_is_null(v);
}

static err_code need_string(const struct json *v, const char *what, const char **out, struct err *e)
{
	if (!json_is_string(v))
		return v ? err_set(e, ERR_INPUT, "%s is to be a string, not %s", what, json_type_name(v))
		         : err_set(e, ERR_INPUT, "%s is missing", what);
	*out = json_string(v);
	return ERR_OK;
}

static err_code take_model(struct job_draft *d, const struct json *v, struct err *e)
{
	char *path = NULL;
	err_code rc = need_string(v, "model", &d->model, e);

	if (!rc)
		rc = registry_model(d->registry, d->model, &path, e);
	free(path);
	return rc;
}

static err_code take_task(struct job_draft *d, const struct json *v, struct err *e)
{
	const char *name = NULL;

	if (need_string(v, "task", &name, e))
		return e->code;
	d->task = task_find(name, e);
	return d->task ? ERR_OK : e->code;
}

static err_code take_dataset(struct job_draft *d, const struct json *v, struct err *e)
{
	struct json *params = NULL;
	char *path = NULL;
	bool generates;
	err_code rc = json_parse(buf_str(&d->params), d->params.len, &params, e);

	if (rc)
		return rc;
	generates = task_generates(d->task, params);
	rc = task_check_dataset(d->task, params, is_given(v), e);
	json_free(params);
	if (!rc && generates) {
		d->dataset = GENERATED_DATASET;
		return ERR_OK;
	}
	if (!rc)
		rc = need_string(v, "dataset", &d->dataset, e);
	if (!rc)
		rc = registry_dataset(d->registry, d->dataset, &path, e);
	if (!rc && api_dataset_is_empty(path))
		rc = err_set(e, ERR_INPUT, "dataset '%.200s' is empty", d->dataset);
	free(path);
	return rc;
}

static err_code take_params(struct job_draft *d, const struct json *v, struct err *e)
{
	struct json *params = NULL;
	char pointer[sizeof e->pointer];
	err_code rc;

	if (is_given(v) && !json_is_object(v))
		return err_set(e, ERR_INPUT, "params is to be an object, not %s", json_type_name(v));
	rc = task_params(d->task, is_given(v) ? v : NULL, &d->params, e);
	if (!rc)
		rc = json_parse(buf_str(&d->params), d->params.len, &params, e);
	if (!rc)
		rc = task_check_names(d->task, params, d->registry, e);
	json_free(params);
	if (!rc)
		return ERR_OK;
	memcpy(pointer, e->pointer, sizeof pointer);
	err_at(e, "/params%.180s", pointer);
	return e->code;
}

static err_code take_engine(struct job_draft *d, const struct json *v, struct err *e)
{
	struct json_writer w = JSON_WRITER(&d->engine);
	struct engine_options o;

	if (engine_options_read(v, "/engine", &o, e))
		return e->code;
	json_begin_object(&w, NULL);
	json_put_string(&w, "device", o.device);
	json_put_string(&w, "dtype", o.dtype);
	if (o.position)
		json_put_value(&w, "position", o.position);
	else
		json_put_null(&w, "position");
	json_end_object(&w);
	return ERR_OK;
}

static bool is_plain_text(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7F)
			return false;
	return true;
}

static err_code take_name(struct job_draft *d, const struct json *v, struct err *e)
{
	if (!is_given(v))
		return ERR_OK;
	if (need_string(v, "name", &d->name, e))
		return e->code;
	if (!*d->name || strlen(d->name) > MAX_NAME || !is_plain_text(d->name))
		return err_set(e, ERR_INPUT, "name is to have 1 to %d bytes and no control characters", MAX_NAME);
	return ERR_OK;
}

static int compare_tags(const void *a, const void *b)
{
	return strcmp(json_key(*(const struct json *const *)a), json_key(*(const struct json *const *)b));
}

static err_code check_tag(const struct json *m, struct err *e)
{
	const char *key = json_key(m), *value = json_string(m);

	if (!*key || strlen(key) > MAX_KEY || strchr(key, '=') || !is_plain_text(key))
		err_set(e, ERR_INPUT, "a tag's key is to have 1 to %d bytes, without '=' or control characters",
		        MAX_KEY);
	else if (!value || strlen(value) > MAX_NAME || !is_plain_text(value))
		err_set(e, ERR_INPUT, "tag '%.64s' is to be a string of at most %d bytes, without control characters",
		        key, MAX_NAME);
	else
		return ERR_OK;
	return err_at_member(e, "/tags", key);
}

/* Sorted by key, so that equal tags give equal requests. */
static err_code take_tags(struct job_draft *d, const struct json *v, struct err *e)
{
	struct json_writer w = JSON_WRITER(&d->tags);
	const struct json *tags[MAX_TAGS];
	size_t n = 0;

	if (is_given(v) && !json_is_object(v))
		return err_set(e, ERR_INPUT, "tags is to be an object of strings, not %s", json_type_name(v));
	if (json_count(v) > MAX_TAGS)
		return err_set(e, ERR_INPUT, "%zu tags; at most %d", json_count(v), MAX_TAGS);
	for (const struct json *m = json_first(v); m; m = json_next(m)) {
		if (check_tag(m, e))
			return e->code;
		tags[n++] = m;
	}
	if (n)
		qsort(tags, n, sizeof *tags, compare_tags); /* NOLINT(bugprone-sizeof-expression): pointers are meant */
	json_begin_object(&w, NULL);
	for (size_t i = 0; i < n; i++)
		json_put_string(&w, json_key(tags[i]), json_string(tags[i]));
	json_end_object(&w);
	return ERR_OK;
}

static err_code take_priority(struct job_draft *d, const struct json *v, struct err *e)
{
	int64_t n = 0;

	if (is_given(v) && (!json_integer(v, &n) || n < -MAX_PRIORITY || n > MAX_PRIORITY))
		return err_set(e, ERR_INPUT, "priority is to be an integer from %d to %d", -MAX_PRIORITY, MAX_PRIORITY);
	d->priority = (int)n;
	return ERR_OK;
}

static err_code take_cache(struct job_draft *d, const struct json *v, struct err *e)
{
	if (is_given(v) && !json_is_bool(v))
		return err_set(e, ERR_INPUT, "cache is to be true or false, not %s", json_type_name(v));
	d->cache = json_true(v);
	return ERR_OK;
}

/* In this order: params need the task, and they say whether there is need of a dataset. */
static const struct member {
	const char *name;
	err_code (*take)(struct job_draft *d, const struct json *v, struct err *e); /* v is NULL when absent */
} members[] = {
    {"model", take_model},     {"task", take_task},         {"params", take_params},
    {"dataset", take_dataset}, {"engine", take_engine},     {"name", take_name},
    {"tags", take_tags},       {"priority", take_priority}, {"cache", take_cache},
};
#define N_MEMBERS (sizeof members / sizeof *members)

static err_code refuse_unknown(const struct json *body, struct err *e)
{
	size_t i;

	for (const struct json *m = json_first(body); m; m = json_next(m)) {
		for (i = 0; i < N_MEMBERS && strcmp(members[i].name, json_key(m)) != 0; i++)
			;
		if (i < N_MEMBERS)
			continue;
		err_set(e, ERR_INPUT,
		        "unknown member '%.100s'; known: model, task, dataset, params, engine, name, tags, priority, "
		        "cache",
		        json_key(m));
		return err_at_member(e, "", json_key(m));
	}
	return ERR_OK;
}

static err_code draft_read(struct job_draft *d, struct err *e)
{
	if (!json_is_object(d->body))
		return err_set(e, ERR_INPUT, "the body is to be an object, not %s", json_type_name(d->body));
	if (refuse_unknown(d->body, e))
		return e->code;
	for (size_t i = 0; i < N_MEMBERS; i++) {
		e->code = ERR_OK;
		if (!members[i].take(d, json_get(d->body, members[i].name), e))
			continue;
		if (!e->pointer[0])
			err_at(e, "/%s", members[i].name);
		return e->code;
	}
	if (buf_check(&d->params, "params", e) || buf_check(&d->engine, "engine", e))
		return e->code;
	return buf_check(&d->tags, "tags", e);
}

/* Of the effective values, not of the bytes sent: spelling a default out is the same request. */
static err_code draft_hash(struct job_draft *d, struct err *e)
{
	struct buf b = BUF_INIT(4 * MAX_TEXT);
	struct json_writer w = JSON_WRITER(&b);
	err_code rc;

	json_begin_array(&w, NULL);
	json_put_string(&w, NULL, d->model);
	json_put_string(&w, NULL, task_name(d->task));
	json_put_int(&w, NULL, task_version(d->task));
	json_put_string(&w, NULL, d->dataset);
	json_put_raw(&w, NULL, buf_str(&d->params));
	json_put_raw(&w, NULL, buf_str(&d->engine));
	json_put_string(&w, NULL, d->name);
	json_put_raw(&w, NULL, buf_str(&d->tags));
	json_put_int(&w, NULL, d->priority);
	if (d->cache) /* the hashes of before had none */
		json_put_bool(&w, NULL, true);
	json_end_array(&w);
	rc = buf_check(&b, "the request", e);
	if (!rc)
		sha256_hex(b.data, b.len, d->hash);
	buf_release(&b);
	return rc;
}

err_code job_draft_read(const struct registry *registry, const struct json *body, struct job_draft **out, struct err *e)
{
	struct job_draft *d = mem_zalloc(1, sizeof *d, e);

	if (!d)
		return ERR_MEMORY;
	d->registry = registry;
	d->body = body;
	d->params = d->engine = d->tags = BUF_INIT(MAX_TEXT);
	if (draft_read(d, e) || draft_hash(d, e)) {
		job_draft_free(d);
		return e->code;
	}
	*out = d;
	return ERR_OK;
}

struct job_new job_draft_row(const struct job_draft *d)
{
	return (struct job_new){
	    .name = d->name,
	    .model = d->model,
	    .task = task_name(d->task),
	    .dataset = d->dataset,
	    .params = buf_str(&d->params),
	    .engine = buf_str(&d->engine),
	    .tags = buf_str(&d->tags),
	    .priority = d->priority,
	    .cache = d->cache,
	    .request_hash = d->hash,
	};
}
