/* Jobs: reading, listing, waiting, and the changes that have no body. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/api.h"
#include "server/problem.h"

#define DEFAULT_LIMIT 50
#define MAX_LIMIT     500
#define MAX_REPLY     ((size_t)256 << 20)

/* -- one job ----------------------------------------------------------------------------------- */

/* What changes when a job's representation does, but for its estimate of the time left. */
static void etag_of(const struct job *j, int64_t live, char etag[17])
{
	struct buf b = BUF_INIT((size_t)1 << 20);
	char hex[SHA256_HEX];

	buf_printf(&b, "%" PRId64 " %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " ", j->id, j->state,
	           j->started_ms, j->done_units, j->failed_units, j->done_tokens, live);
	buf_printf(&b, "%d%d %s %s", j->plan != NULL, j->result != NULL, j->waiting ? j->waiting : "",
	           j->error ? j->error : "");
	sha256_hex(buf_str(&b), b.len, hex);
	snprintf(etag, 17, "%.16s", hex);
	buf_release(&b);
}

static void send_job(struct http_request *r, unsigned status, const struct job *j, int64_t live)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	job_write(&w, NULL, j, live, true);
	api_send_json(r, status, &b);
}

/* With ?wait: until the job is final; with If-None-Match too: until it differs from what the client has. */
static bool must_wait(struct http_request *r, const struct job *j, const char *etag)
{
	if (!r->deadline_ms || r->wait_over || job_state_final(j->state))
		return false;
	return !http_header(r, "If-None-Match") || http_etag_matches(r, etag);
}

void api_job_get(struct http_request *r)
{
	struct job j = {0};
	char etag[17];
	struct err e;
	int64_t live;

	if (!api_read_wait(r))
		return;
	if (store_job_get(api_of(r)->store, r->id, &j, &e)) {
		problem_error(r, &e);
		return;
	}
	live = core_job_live_tokens(api_of(r)->core, j.id);
	etag_of(&j, live, etag);
	if (must_wait(r, &j, etag)) {
		if (!http_wait(r, j.id, api_job_get))
			problem_send(r, 503, "%d clients wait already", HTTP_MAX_WAITS);
	} else if (!http_not_modified(r, etag)) {
		send_job(r, 200, &j, live);
	}
	job_release(&j);
}

/* -- the list ---------------------------------------------------------------------------------- */

/* False when a parameter was refused. */
static bool read_filter(struct http_request *r, struct job_filter *f)
{
	const char *state = http_query(r, "state"), *after = http_query(r, "after");
	enum job_state s;
	int64_t n = DEFAULT_LIMIT;

	*f = (struct job_filter){
	    .model = http_query(r, "model"), .task = api_query_task(r), .tag = http_query(r, "tag"), .state = -1};
	if (state && !job_state_from_name(state, &s)) {
		problem_query(r, "state",
		              "state '%.40s' is none of queued, running, cancelling, succeeded, failed, cancelled",
		              state);
		return false;
	}
	if (state)
		f->state = (int)s;
	if (!api_read_number(r, "limit", 1, MAX_LIMIT, &n))
		return false;
	f->limit = (int)n;
	if (after && !api_parse_number(after, 1, INT64_MAX, &f->after)) {
		problem_query(r, "after", "after is '%.40s', not a job's number", after);
		return false;
	}
	return true;
}

void api_job_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct job_filter f;
	struct job *jobs = NULL;
	size_t n = 0, shown;
	struct err e;

	if (!read_filter(r, &f))
		return;
	shown = (size_t)f.limit++; /* one more tells whether there is a next page */
	if (store_job_list(api_of(r)->store, &f, &jobs, &n, &e)) {
		problem_error(r, &e);
		return;
	}
	json_begin_object(&w, NULL);
	json_begin_array(&w, "data");
	for (size_t i = 0; i < n && i < shown; i++)
		job_write(&w, NULL, &jobs[i], core_job_live_tokens(api_of(r)->core, jobs[i].id), false);
	json_end_array(&w);
	api_put_id(&w, "next", n > shown ? jobs[shown - 1].id : 0);
	json_end_object(&w);
	for (size_t i = 0; i < n; i++)
		job_release(&jobs[i]);
	free(jobs);
	api_send_json(r, 200, &b);
}

/* -- changes ----------------------------------------------------------------------------------- */

static void changed(struct http_request *r)
{
	struct job j = {0};
	struct err e;

	if (api_call_failed(r))
		return;
	if (store_job_get(api_of(r)->store, r->id, &j, &e)) {
		problem_error(r, &e);
		return;
	}
	send_job(r, 202, &j, core_job_live_tokens(api_of(r)->core, j.id));
	job_release(&j);
}

static void deleted(struct http_request *r)
{
	struct buf none = BUF_INIT(0);

	if (!api_call_failed(r))
		http_send(r, 204, NULL, &none);
}

void api_job_cancel(struct http_request *r)
{
	if (api_call_new(r, REQUEST_CANCEL))
		api_call_submit(r, changed);
}

void api_job_restart(struct http_request *r)
{
	if (api_call_new(r, REQUEST_RESTART))
		api_call_submit(r, changed);
}

void api_job_delete(struct http_request *r)
{
	if (api_call_new(r, REQUEST_DELETE))
		api_call_submit(r, deleted);
}
