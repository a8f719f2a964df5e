/* Runs of gates: a model is measured as the gate says, by ordinary jobs, and judged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "eval/gate.h"
#include "server/api.h"
#include "server/job_draft.h"
#include "server/problem.h"

#define DEFAULT_LIMIT 50
#define MAX_LIMIT     500
#define MAX_REPLY     ((size_t)256 << 20)

/* -- as JSON ----------------------------------------------------------------------------------- */

static void put_jobs(struct json_writer *w, const struct gate_run *run)
{
	json_begin_array(w, "jobs");
	for (size_t i = 0; i < run->n_measures; i++) {
		const struct run_measure *m = &run->measures[i];

		json_begin_object(w, NULL);
		json_put_string(w, "measure", m->measure);
		json_put_int(w, "id", m->job);
		json_put_string(w, "state", m->state);
		api_put_id(w, "cached_from", m->cached_from);
		json_end_object(w);
	}
	json_end_array(w);
}

static void put_webhook(struct json_writer *w, const struct gate_run *run)
{
	if (!run->hook) {
		json_put_null(w, "webhook");
		return;
	}
	json_begin_object(w, "webhook");
	json_put_string(w, "state", run->hook);
	json_put_int(w, "tries", run->hook_tries);
	api_put_time(w, strcmp(run->hook, "waiting") ? "at" : "next_at", run->hook_at_ms);
	json_put_string(w, "error", run->hook_error);
	json_end_object(w);
}

static void put_link(struct json_writer *w, const char *key, const struct gate_run *run, const char *rest)
{
	char path[200];

	snprintf(path, sizeof path, "/api/v1/gates/%s/runs/%lld%s", run->gate, (long long)run->id, rest);
	json_put_string(w, key, path);
}

/* full: with the verdict. */
static void put_run(struct json_writer *w, const struct gate_run *run, bool full)
{
	json_begin_object(w, NULL);
	json_put_int(w, "id", run->id);
	json_put_string(w, "gate", run->gate);
	json_put_int(w, "gate_version", run->gate_version);
	json_put_string(w, "model", run->model);
	if (run->baseline) {
		json_begin_object(w, "baseline");
		json_put_string(w, "name", run->baseline);
		json_put_int(w, "version", run->baseline_version);
		json_end_object(w);
	} else {
		json_put_null(w, "baseline");
	}
	json_put_raw(w, "tags", run->tags);
	json_put_bool(w, "allow_engine_change", run->allow_engine_change);
	json_put_string(w, "state", run_state_name(run->state));
	put_jobs(w, run);
	api_put_time(w, "created_at", run->created_ms);
	api_put_time(w, "finished_at", run->finished_ms);
	json_put_string(w, "error", run->error);
	json_put_string(w, "outcome", run->outcome);
	put_webhook(w, run);
	if (full && run->verdict)
		json_put_raw(w, "verdict", run->verdict);
	else if (full)
		json_put_null(w, "verdict");
	json_begin_object(w, "links");
	put_link(w, "self", run, "");
	if (run->verdict) {
		put_link(w, "verdict", run, ".json");
		put_link(w, "junit", run, ".xml");
		put_link(w, "markdown", run, ".md");
	}
	json_end_object(w);
	json_end_object(w);
}

/* -- making one -------------------------------------------------------------------------------- */

struct creation {
	const struct json *body;  /* borrowed from the call; the rest is owned */
	struct gate_row row;      /* of the gate */
	struct gate *gate;        /* its definition */
	struct json **asked;      /* [gate.n_measures] what each job is asked for as */
	struct job_draft **draft; /* [gate.n_measures] */
	const char **measures;    /* [gate.n_measures] borrowed from gate */
	struct job_new *jobs;     /* [gate.n_measures] borrowed from draft */
	bool cache;
	int64_t gate_version; /* asked for; 0: the current one */
	char hash[SHA256_HEX];
};

static void creation_free(void *data)
{
	struct creation *n = data;

	for (size_t i = 0; n->draft && i < n->gate->n_measures; i++)
		job_draft_free(n->draft[i]);
	for (size_t i = 0; n->asked && i < n->gate->n_measures; i++)
		json_free(n->asked[i]);
	free(n->draft);
	free(n->asked);
	free(n->measures);
	free(n->jobs);
	gate_free(n->gate);
	gate_row_release(&n->row);
	free(n);
}

/* An optional member of a type. */
static err_code read_bool(const struct json *body, const char *key, bool *out, struct err *e)
{
	const struct json *v = json_get(body, key);

	if (!v || json_is_null(v))
		return ERR_OK;
	if (!json_is_bool(v)) {
		err_set(e, ERR_INPUT, "%s is to be true or false, not %s", key, json_type_name(v));
		return err_at_member(e, "", key);
	}
	*out = json_true(v);
	return ERR_OK;
}

static err_code read_string(const struct json *body, const char *key, const char **out, struct err *e)
{
	const struct json *v = json_get(body, key);

	if (!v || json_is_null(v))
		return ERR_OK;
	if (!json_is_string(v)) {
		err_set(e, ERR_INPUT, "%s is to be a string, not %s", key, json_type_name(v));
		return err_at_member(e, "", key);
	}
	*out = json_string(v);
	return ERR_OK;
}

static err_code read_version(const struct json *body, const char *key, int64_t *out, struct err *e)
{
	const struct json *v = json_get(body, key);

	if (!v || json_is_null(v) || (json_integer(v, out) && *out >= 1 && *out <= INT32_MAX))
		return ERR_OK;
	err_set(e, ERR_INPUT, "%s is to be a version's number", key);
	return err_at_member(e, "", key);
}

static err_code read_body(struct creation *n, struct run_new *run, struct err *e)
{
	static const char known[] =
	    "model, baseline, baseline_version, gate_version, tags, cache, allow_engine_change, "
	    "priority";

	if (!json_is_object(n->body))
		return err_set(e, ERR_INPUT, "the body is to be an object, not %s", json_type_name(n->body));
	for (const struct json *m = json_first(n->body); m; m = json_next(m)) {
		const char *key = json_key(m), *at = strstr(known, key);
		size_t len = strlen(key);

		if (len && at && (at == known || at[-1] == ' ') && (!at[len] || at[len] == ','))
			continue;
		err_set(e, ERR_INPUT, "unknown member '%.100s'; known: %s", key, known);
		return err_at_member(e, "", key);
	}
	n->cache = true;
	if (read_bool(n->body, "cache", &n->cache, e) ||
	    read_bool(n->body, "allow_engine_change", &run->allow_engine_change, e) ||
	    read_string(n->body, "model", &run->model, e) || read_string(n->body, "baseline", &run->baseline, e) ||
	    read_version(n->body, "baseline_version", &run->baseline_version, e) ||
	    read_version(n->body, "gate_version", &n->gate_version, e))
		return e->code;
	if (run->model)
		return ERR_OK;
	err_set(e, ERR_INPUT, "model is missing");
	return err_at(e, "/model");
}

/* What a client would post to /api/v1/jobs for this measurement. */
static err_code put_asked(const struct creation *n, const struct gate_measure *m, const char *model, struct buf *out,
                          struct err *e)
{
	struct json_writer w = JSON_WRITER(out);
	const struct json *tags = json_get(n->body, "tags"), *priority = json_get(n->body, "priority");
	char name[200];

	snprintf(name, sizeof name, "gate %s: %.90s", n->gate->name, m->id);
	json_begin_object(&w, NULL);
	json_put_string(&w, "model", model);
	json_put_string(&w, "task", task_name(m->task));
	if (m->dataset)
		json_put_string(&w, "dataset", m->dataset);
	json_put_value(&w, "params", m->params);
	json_put_value(&w, "engine", m->engine);
	json_put_string(&w, "name", name);
	if (tags)
		json_put_value(&w, "tags", tags);
	if (priority)
		json_put_value(&w, "priority", priority);
	json_put_bool(&w, "cache", n->cache);
	json_end_object(&w);
	return buf_check(out, "a measurement", e);
}

/* What the request itself says keeps its pointer; the rest is the gate's. */
static err_code blame(const struct creation *n, const struct gate_measure *m, struct err *e)
{
	static const char *const own[] = {"/model", "/tags", "/priority"};

	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (!strncmp(e->pointer, own[i], strlen(own[i])))
			return e->code;
	if (e->code == ERR_NOT_FOUND)
		e->code = ERR_INPUT;
	err_at(e, "%s", "");
	return err_wrap(e, "gate '%s', measurement '%s'", n->gate->name, m->id);
}

static err_code draft_jobs(struct creation *n, const struct registry *registry, const char *model, struct err *e)
{
	struct buf text = BUF_INIT((size_t)1 << 20);
	size_t count = n->gate->n_measures;
	err_code rc = ERR_OK;

	n->asked = mem_zalloc(count, sizeof(struct json *), e);
	n->draft = mem_zalloc(count, sizeof(struct job_draft *), e);
	n->measures = mem_zalloc(count, sizeof *n->measures, e);
	n->jobs = mem_zalloc(count, sizeof *n->jobs, e);
	if (!n->asked || !n->draft || !n->measures || !n->jobs)
		return ERR_MEMORY;
	for (size_t i = 0; !rc && i < count; i++) {
		const struct gate_measure *m = &n->gate->measures[i];

		buf_clear(&text);
		rc = put_asked(n, m, model, &text, e);
		if (!rc)
			rc = json_parse(buf_str(&text), text.len, &n->asked[i], e);
		if (!rc && job_draft_read(registry, n->asked[i], &n->draft[i], e))
			rc = blame(n, m, e);
		if (rc)
			break;
		n->measures[i] = m->id;
		n->jobs[i] = job_draft_row(n->draft[i]);
	}
	buf_release(&text);
	return rc;
}

/* Of what is asked, not of what that comes to: asked again when there is a newer version of the gate or the baseline,
 * it is the same request. */
static err_code hash_request(struct creation *n, const struct run_new *run, struct err *e)
{
	struct buf b = BUF_INIT((size_t)1 << 20);
	struct json_writer w = JSON_WRITER(&b);
	err_code rc;

	json_begin_array(&w, NULL);
	json_put_string(&w, NULL, n->gate->name);
	json_put_int(&w, NULL, n->gate_version);
	json_put_string(&w, NULL, run->model);
	json_put_string(&w, NULL, run->baseline);
	json_put_int(&w, NULL, run->baseline_version);
	json_put_raw(&w, NULL, run->tags);
	json_put_int(&w, NULL, n->jobs[0].priority);
	json_put_bool(&w, NULL, n->cache);
	json_put_bool(&w, NULL, run->allow_engine_change);
	json_end_array(&w);
	rc = buf_check(&b, "the request", e);
	if (!rc)
		sha256_hex(b.data, b.len, n->hash);
	buf_release(&b);
	return rc;
}

static err_code prepare(struct http_request *r, struct creation *n, struct run_new *run, struct err *e)
{
	if (read_body(n, run, e) || store_gate_get(api_of(r)->store, r->name, n->gate_version, &n->row, e) ||
	    gate_parse_text(n->row.definition, strlen(n->row.definition), &n->gate, e))
		return e->code;
	if (gate_needs_baseline(n->gate) && !run->baseline) {
		err_set(e, ERR_INPUT, "gate '%s' compares with a baseline, and none is named", n->gate->name);
		return err_at(e, "/baseline");
	}
	if (draft_jobs(n, &api_of(r)->registry, run->model, e))
		return e->code;
	run->gate = n->gate->name;
	run->gate_version = n->row.version;
	run->tags = n->jobs[0].tags;
	run->measures = n->measures;
	run->jobs = n->jobs;
	run->n_measures = n->gate->n_measures;
	run->request_hash = n->hash;
	return hash_request(n, run, e);
}

static void send_run(struct http_request *r, unsigned status, const struct gate_run *run)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	put_run(&w, run, true);
	api_send_json(r, status, &b);
}

/* 202, at the latest when what the client waits for is over. */
static void answer_created(struct http_request *r)
{
	struct gate_run run = {0};
	struct err e;

	if (store_run_get(api_of(r)->store, r->id, &run, &e)) {
		problem_error(r, &e);
		return;
	}
	http_set_header(r, "Location", "/api/v1/gates/%s/runs/%lld", run.gate, (long long)run.id);
	/* one too many that wait is answered at once: its run is made */
	if (!r->deadline_ms || r->wait_over || run_state_final(run.state) || !http_wait(r, -run.id, answer_created))
		send_run(r, 202, &run);
	gate_run_release(&run);
}

static void created(struct http_request *r)
{
	const struct api_call *c = r->state;

	if (api_create_failed(r))
		return;
	r->id = c->core.job;
	answer_created(r);
}

void api_run_create(struct http_request *r)
{
	struct api_call *c;
	struct creation *n;
	const char *key;
	struct err e = {0};

	if (!api_check_json(r) || !api_check_key(r, &key) || !api_read_wait(r))
		return;
	c = api_call_read(r, REQUEST_RUN, sizeof *n, creation_free);
	if (!c)
		return;
	n = c->data;
	n->body = c->body;
	c->core.run.idempotency_key = key;
	if (prepare(r, n, &c->core.run, &e)) {
		problem_error(r, &e);
		return;
	}
	api_call_submit(r, created);
}

/* -- cancelling -------------------------------------------------------------------------------- */

static void cancelled(struct http_request *r)
{
	struct gate_run run = {0};
	struct err e;

	if (api_call_failed(r))
		return;
	if (store_run_get(api_of(r)->store, r->id, &run, &e)) {
		problem_error(r, &e);
		return;
	}
	send_run(r, 202, &run);
	gate_run_release(&run);
}

void api_run_cancel(struct http_request *r)
{
	struct gate_run run = {0};
	struct err e;

	if (api_load_run(r, &run, &e)) {
		problem_error(r, &e);
		return;
	}
	gate_run_release(&run);
	if (api_call_new(r, REQUEST_CANCEL_RUN))
		api_call_submit(r, cancelled);
}

/* -- reading ----------------------------------------------------------------------------------- */

/* What changes when a run's representation does. */
static void etag_of(const struct gate_run *run, char etag[17])
{
	struct buf b = BUF_INIT((size_t)1 << 16);
	char hex[SHA256_HEX];

	buf_printf(&b, "%lld %d %s %lld ", (long long)run->id, run->state, run->hook ? run->hook : "",
	           (long long)run->hook_tries);
	for (size_t i = 0; i < run->n_measures; i++)
		buf_printf(&b, "%s ", run->measures[i].state ? run->measures[i].state : "");
	sha256_hex(buf_str(&b), b.len, hex);
	snprintf(etag, 17, "%.16s", hex);
	buf_release(&b);
}

/* ?wait: until it is over; with If-None-Match, too, until it differs from what the client has. */
void api_run_get(struct http_request *r)
{
	struct gate_run run = {0};
	char etag[17];
	struct err e;

	if (!api_read_wait(r))
		return;
	if (api_load_run(r, &run, &e)) {
		problem_error(r, &e);
		return;
	}
	etag_of(&run, etag);
	if (r->deadline_ms && !r->wait_over && !run_state_final(run.state) &&
	    (!http_header(r, "If-None-Match") || http_etag_matches(r, etag))) {
		if (!http_wait(r, -run.id, api_run_get))
			problem_send(r, 503, "%d clients wait already", HTTP_MAX_WAITS);
	} else if (!http_not_modified(r, etag)) {
		send_run(r, 200, &run);
	}
	gate_run_release(&run);
}

err_code api_load_run(struct http_request *r, struct gate_run *run, struct err *e)
{
	err_code rc = store_run_get(api_of(r)->store, r->id, run, e);

	if (rc || !strcmp(run->gate, r->name))
		return rc;
	gate_run_release(run);
	return err_set(e, ERR_NOT_FOUND, "no run %lld of gate '%.100s'", (long long)r->id, r->name);
}

/* False when a parameter was refused. */
static bool read_filter(struct http_request *r, struct run_filter *f)
{
	const char *state = http_query(r, "state"), *after = http_query(r, "after");
	enum gate_verdict verdict;
	enum run_state s;
	int64_t n = DEFAULT_LIMIT;

	*f = (struct run_filter){.gate = r->name,
	                         .model = http_query(r, "model"),
	                         .branch = http_query(r, "branch"),
	                         .outcome = http_query(r, "verdict"),
	                         .state = -1};
	if (state && !run_state_from_name(state, &s)) {
		problem_query(r, "state", "state '%.40s' is none of measuring, judging, done, failed, cancelled",
		              state);
		return false;
	}
	if (state)
		f->state = (int)s;
	if (f->outcome && !gate_verdict_from_name(f->outcome, &verdict)) {
		problem_query(r, "verdict", "verdict '%.40s' is none of pass, fail, inconclusive, error", f->outcome);
		return false;
	}
	if (!api_read_number(r, "limit", 1, MAX_LIMIT, &n))
		return false;
	f->limit = (int)n;
	if (after && !api_parse_number(after, 1, INT64_MAX, &f->after)) {
		problem_query(r, "after", "after is '%.40s', not a run's number", after);
		return false;
	}
	return true;
}

void api_run_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct gate_row gate = {0};
	struct run_filter f;
	struct gate_run *runs = NULL;
	size_t n = 0, shown;
	struct err e;

	if (!read_filter(r, &f))
		return;
	shown = (size_t)f.limit++; /* one more tells whether there is a next page */
	if (store_gate_get(api_of(r)->store, r->name, 0, &gate, &e) ||
	    store_run_list(api_of(r)->store, &f, &runs, &n, &e)) {
		gate_row_release(&gate);
		problem_error(r, &e);
		return;
	}
	gate_row_release(&gate);
	json_begin_object(&w, NULL);
	json_begin_array(&w, "data");
	for (size_t i = 0; i < n && i < shown; i++)
		put_run(&w, &runs[i], false);
	json_end_array(&w);
	api_put_id(&w, "next", n > shown ? runs[shown - 1].id : 0);
	json_end_object(&w);
	for (size_t i = 0; i < n; i++)
		gate_run_release(&runs[i]);
	free(runs);
	api_send_json(r, 200, &b);
}
