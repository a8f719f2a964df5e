/* Baselines: named, versioned results to compare with; of jobs, or imported with their items. A change names the
 * version that it replaces (If-Match), so that two that change it at once do not overwrite each other unseen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/job_evidence.h"
#include "server/problem.h"

#define MAX_RESULTS 64
#define MAX_LIST    1000
#define MAX_REPLY   ((size_t)16 << 20)

/* -- writing one ------------------------------------------------------------------------------- */

struct creation {
	struct baseline_new row;
	struct baseline_result_new results[MAX_RESULTS];
	struct buf texts[2 * MAX_RESULTS]; /* owned: results, items */
	char *if_match;                    /* owned */
};

static void creation_free(void *data)
{
	struct creation *n = data;

	for (size_t i = 0; i < 2 * MAX_RESULTS; i++)
		buf_release(&n->texts[i]);
	free(n->if_match);
	free(n);
}

static err_code take_jobs(struct creation *n, const struct json *jobs, struct err *e)
{
	for (const struct json *j = json_first(jobs); j; j = json_next(j)) {
		size_t i = n->row.n_results++;
		int64_t id;

		if (!json_integer(j, &id) || id < 1) {
			err_set(e, ERR_INPUT, "a job is named by its number");
			return err_at(e, "/jobs/%zu", i);
		}
		n->results[i].job = id;
		for (size_t k = 0; k < i; k++)
			if (n->results[k].job == id) {
				err_set(e, ERR_INPUT, "job %lld is there twice", (long long)id);
				return err_at(e, "/jobs/%zu", i);
			}
	}
	return ERR_OK;
}

/* What can be compared at all: read as judging reads it. */
static err_code check_result(const struct json *result, struct err *e)
{
	static const char *const named[] = {"task", "model"};
	struct evidence *ev = NULL;
	err_code rc = evidence_read(result, &ev, e);

	for (size_t i = 0; !rc && i < sizeof named / sizeof *named; i++)
		if (!json_get_string(json_get(result, named[i]), "name")) {
			err_set(e, ERR_INPUT, "the name of a result's %s is missing, or no string", named[i]);
			rc = err_at(e, "/%s/name", named[i]);
		}
	if (!rc && !json_get(result, "metrics")) { /* it has an error in their place */
		err_set(e, ERR_INPUT, "a result without metrics is none");
		rc = err_at(e, "/metrics");
	}
	if (!rc && !evidence_n_items(ev))
		rc = err_set(e, ERR_INPUT, "the result of task '%.100s' has no items: nothing can be compared by item",
		             json_get_string(json_get(result, "task"), "name"));
	evidence_free(ev);
	return rc;
}

static err_code take_result(struct creation *n, size_t i, const struct json *result, struct err *e)
{
	struct buf *text = &n->texts[2 * i], *items = &n->texts[2 * i + 1];
	struct json_writer w = JSON_WRITER(text), wi = JSON_WRITER(items);

	if (check_result(result, e))
		return e->code;
	*text = *items = BUF_INIT(BASELINE_MAX_BODY);
	json_begin_object(&w, NULL);
	for (const struct json *m = json_first(result); m; m = json_next(m)) {
		const char *key = json_key(m);

		/* numbers of jobs are of the server that it comes from */
		if (strcmp(key, "items") != 0 && strcmp(key, "job") != 0 && strcmp(key, "cached_from") != 0)
			json_put_value(&w, key, m);
	}
	json_end_object(&w);
	json_put_value(&wi, NULL, json_get(result, "items"));
	if (buf_check(text, "a result", e) || buf_check(items, "its items", e))
		return e->code;
	n->results[i] = (struct baseline_result_new){.result = buf_str(text), .items = buf_str(items)};
	return ERR_OK;
}

static err_code take_results(struct creation *n, const struct json *results, struct err *e)
{
	char pointer[sizeof e->pointer];

	for (const struct json *r = json_first(results); r; r = json_next(r)) {
		size_t i = n->row.n_results++;

		if (!take_result(n, i, r, e))
			continue;
		memcpy(pointer, e->pointer, sizeof pointer);
		return err_at(e, "/results/%zu%.150s", i, pointer);
	}
	return ERR_OK;
}

/* A list of 1 to MAX_RESULTS. */
static err_code check_list(const struct json *list, const char *key, struct err *e)
{
	size_t n = json_count(list);

	if (!json_is_array(list))
		err_set(e, ERR_INPUT, "%s is to be an array, not %s", key, json_type_name(list));
	else if (!n || n > MAX_RESULTS)
		err_set(e, ERR_INPUT, "%s has %zu members, not 1 to %d", key, n, MAX_RESULTS);
	else
		return ERR_OK;
	return err_at(e, "/%s", key);
}

static err_code read_body(struct creation *n, const struct json *body, struct err *e)
{
	const struct json *jobs = json_get(body, "jobs"), *results = json_get(body, "results");

	if (!json_is_object(body))
		return err_set(e, ERR_INPUT, "the body is to be an object, not %s", json_type_name(body));
	for (const struct json *m = json_first(body); m; m = json_next(m)) {
		const char *key = json_key(m);

		/* "baseline" says in an export what it was called */
		if (strcmp(key, "name") != 0 && strcmp(key, "jobs") != 0 && strcmp(key, "results") != 0 &&
		    strcmp(key, "baseline") != 0) {
			err_set(e, ERR_INPUT, "unknown member '%.100s'; known: name, jobs, results", key);
			return err_at_member(e, "", key);
		}
	}
	n->row.name = json_get_string(body, "name");
	if (!n->row.name)
		err_set(e, ERR_INPUT, "name is missing, or no string");
	if (!n->row.name || api_check_name("a baseline", n->row.name, e))
		return err_at(e, "/name");
	if (!jobs == !results)
		return err_set(e, ERR_INPUT, "a baseline is made of either jobs or results");
	n->row.results = n->results;
	if (check_list(jobs ? jobs : results, jobs ? "jobs" : "results", e))
		return e->code;
	return jobs ? take_jobs(n, jobs, e) : take_results(n, results, e);
}

static err_code write_baseline(struct store *s, void *data, struct err *e)
{
	struct creation *n = data;

	return store_baseline_put(s, &n->row, e);
}

/* True when the core refused a change: 412 and 428 say what If-Match lacks. */
static bool was_refused(struct http_request *r)
{
	const struct api_call *c = r->state;

	if (c->core.err.code == ERR_CHANGED) {
		problem_send(r, 412, "%s", c->core.err.msg);
		return true;
	}
	return api_call_failed(r);
}

static void send_baseline(struct http_request *r, unsigned status, const char *name, int64_t version);

static void put(struct http_request *r)
{
	struct api_call *c = r->state;
	const struct creation *n = c->data;

	if (c->core.err.code == ERR_CONFLICT) {
		problem_send(r, 428, "%s", c->core.err.msg);
		return;
	}
	if (was_refused(r))
		return;
	http_set_header(r, "Location", "/api/v1/baselines/%s", n->row.name);
	send_baseline(r, 201, n->row.name, n->row.version);
}

void api_baseline_put(struct http_request *r)
{
	const char *if_match = http_header(r, "If-Match");
	struct api_call *c;
	struct creation *n;
	struct err e = {0};

	if (!api_check_json(r))
		return;
	c = api_call_read(r, REQUEST_STORE, sizeof *n, creation_free);
	if (!c)
		return;
	n = c->data;
	n->if_match = if_match ? mem_strdup(if_match, &e) : NULL;
	if ((if_match && !n->if_match) || read_body(n, c->body, &e)) {
		problem_error(r, &e);
		return;
	}
	n->row.if_match = n->if_match;
	c->core.write = write_baseline;
	c->core.data = n;
	api_call_submit(r, put);
}

/* -- reading ----------------------------------------------------------------------------------- */

static void put_history(void *arg, const char *name, int64_t version, int64_t created_ms, int64_t n_results)
{
	struct json_writer *w = arg;

	(void)name;
	json_begin_object(w, NULL);
	json_put_int(w, "version", version);
	api_put_time(w, "created_at", created_ms);
	json_put_int(w, "n_results", n_results);
	json_end_object(w);
}

static void put_results(struct json_writer *w, const struct baseline *b)
{
	json_begin_array(w, "results");
	for (size_t i = 0; i < b->n_results; i++) {
		const struct baseline_result *r = &b->results[i];

		json_begin_object(w, NULL);
		api_put_id(w, "job", r->job);
		json_put_string(w, "model", r->model);
		json_put_string(w, "task", r->task);
		json_put_string(w, "dataset", r->dataset);
		if (r->headline)
			json_put_raw(w, "headline", r->headline);
		else
			json_put_null(w, "headline");
		json_end_object(w);
	}
	json_end_array(w);
}

static err_code write_one(struct store *s, struct json_writer *w, const struct baseline *b, bool history, struct err *e)
{
	char etag[BASELINE_ETAG];
	err_code rc = ERR_OK;

	baseline_etag(b->version, b->created_ms, etag);
	json_begin_object(w, NULL);
	json_put_string(w, "name", b->name);
	json_put_int(w, "version", b->version);
	api_put_time(w, "created_at", b->created_ms);
	json_put_string(w, "etag", etag);
	put_results(w, b);
	if (history) {
		json_begin_array(w, "history");
		rc = store_baseline_each(s, b->name, MAX_LIST, put_history, w, e);
		json_end_array(w);
	}
	json_end_object(w);
	return rc;
}

static void send_baseline(struct http_request *r, unsigned status, const char *name, int64_t version)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct baseline row = {0};
	char etag[BASELINE_ETAG];
	struct err e;
	err_code rc;

	if (store_baseline_get(api_of(r)->store, name, version, &row, &e)) {
		problem_error(r, &e);
		return;
	}
	baseline_etag(row.version, row.created_ms, etag);
	if (status != 200)
		http_set_header(r, "ETag", "\"%s\"", etag);
	if (status == 200 && http_not_modified(r, etag))
		goto out;
	rc = write_one(api_of(r)->store, &w, &row, true, &e);
	api_answer(r, status, &b, rc, &e);
out:
	baseline_release(&row);
}

void api_baseline_get(struct http_request *r)
{
	int64_t version = 0;

	if (api_read_version(r, &version))
		send_baseline(r, 200, r->name, version);
}

struct names {
	char *names[MAX_LIST]; /* owned */
	size_t n;
	bool failed;
};

static void add_name(void *arg, const char *name, int64_t version, int64_t created_ms, int64_t n_results)
{
	struct names *l = arg;
	struct err ignored;

	(void)version;
	(void)created_ms;
	(void)n_results;
	l->names[l->n] = mem_strdup(name, &ignored);
	l->failed |= !l->names[l->n];
	l->n += !l->failed;
}

void api_baseline_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct names *l;
	struct err e;
	err_code rc;

	l = mem_zalloc(1, sizeof *l, &e);
	rc = l ? store_baseline_each(api_of(r)->store, NULL, MAX_LIST, add_name, l, &e) : ERR_MEMORY;
	if (!rc && l->failed)
		rc = err_set(&e, ERR_MEMORY, "out of memory listing baselines");
	json_begin_object(&w, NULL);
	json_begin_array(&w, "data");
	for (size_t i = 0; !rc && i < l->n; i++) {
		struct baseline row = {0};

		rc = store_baseline_get(api_of(r)->store, l->names[i], 0, &row, &e);
		if (!rc)
			rc = write_one(api_of(r)->store, &w, &row, false, &e);
		baseline_release(&row);
	}
	json_end_array(&w);
	json_end_object(&w);
	for (size_t i = 0; l && i < l->n; i++)
		free(l->names[i]);
	free(l);
	api_answer(r, 200, &b, rc, &e);
}

/* -- exporting --------------------------------------------------------------------------------- */

struct which {
	char name[128];
	int64_t version;
};

static err_code write_evidence(void *arg, struct store *s, FILE *out, struct err *e)
{
	const struct which *w = arg;

	return baseline_evidence_write(s, w->name, w->version, out, e);
}

void api_baseline_evidence(struct http_request *r)
{
	struct api_export x = {.type = "application/json", .write = write_evidence, .arg_free = free};
	struct baseline row = {0};
	struct which *w;
	struct err e;
	int64_t version = 0;

	if (!api_read_version(r, &version))
		return;
	if (store_baseline_get(api_of(r)->store, r->name, version, &row, &e)) {
		problem_error(r, &e);
		return;
	}
	w = mem_zalloc(1, sizeof *w, &e);
	if (!w) {
		problem_error(r, &e);
	} else {
		snprintf(w->name, sizeof w->name, "%s", row.name);
		w->version = row.version;
		snprintf(x.filename, sizeof x.filename, "baseline-%s-%lld.json", row.name, (long long)row.version);
		x.arg = w;
		api_export(r, &x);
	}
	baseline_release(&row);
}

/* -- deleting ---------------------------------------------------------------------------------- */

struct deletion {
	char *name, *if_match; /* owned */
};

static void deletion_free(void *data)
{
	struct deletion *d = data;

	free(d->name);
	free(d->if_match);
	free(d);
}

static err_code delete_baseline(struct store *s, void *data, struct err *e)
{
	const struct deletion *d = data;

	return store_baseline_delete(s, d->name, d->if_match, e);
}

static void deleted(struct http_request *r)
{
	struct buf none = BUF_INIT(0);

	if (!was_refused(r))
		http_send(r, 204, NULL, &none);
}

void api_baseline_delete(struct http_request *r)
{
	const char *if_match = http_header(r, "If-Match");
	struct api_call *c = api_call_new(r, REQUEST_STORE);
	struct deletion *d;
	struct err e;

	if (!c)
		return;
	d = mem_zalloc(1, sizeof *d, &e);
	if (d) {
		c->data = d;
		c->data_free = deletion_free;
		d->name = mem_strdup(r->name, &e);
		d->if_match = if_match ? mem_strdup(if_match, &e) : NULL;
	}
	if (!d || !d->name || (if_match && !d->if_match)) {
		problem_error(r, &e);
		return;
	}
	c->core.write = delete_baseline;
	c->core.data = d;
	api_call_submit(r, deleted);
}
