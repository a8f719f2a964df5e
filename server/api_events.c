/* GET /api/v1/events and /api/v1/jobs/{id}/events: Server-Sent Events (WHATWG HTML, 9.2), straight from the event
 * table, so a client that names the last id it saw misses nothing, also over a restart of the server. */
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/problem.h"

#define PAGE 100 /* events of one pull */

struct stream {
	int64_t job;  /* 0: all */
	int64_t last; /* id of the last event that was sent */
};

struct page {
	struct stream *stream;
	struct buf *out;
};

static void put_event(void *arg, const struct store_event *ev)
{
	struct page *p = arg;
	struct json_writer w = JSON_WRITER(p->out);

	buf_printf(p->out, "id: %lld\nevent: %s\ndata: ", (long long)ev->id, ev->kind);
	json_begin_object(&w, NULL);
	json_put_int(&w, "job", ev->job);
	json_put_string(&w, "kind", ev->kind);
	api_put_time(&w, "at", ev->at_ms);
	json_put_raw(&w, "data", ev->data); /* one line: written by json.h or by SQLite */
	json_end_object(&w);
	buf_puts(p->out, "\n\n");
	p->stream->last = ev->id;
}

static err_code pull(struct http_request *r, struct buf *out, struct err *e)
{
	struct page p = {.stream = r->state, .out = out};

	return store_event_each(api_of(r)->store, p.stream->job, p.stream->last, PAGE, put_event, &p, e);
}

/* Where to go on: Last-Event-ID, which a browser sends by itself, or ?after; else a job's first event, or what comes
 * next of all jobs. False when it was refused. */
static bool find_start(struct http_request *r, int64_t *last)
{
	const char *header = http_header(r, "Last-Event-ID"), *after = http_query(r, "after");
	const char *s = header ? header : after;
	struct err e;

	*last = 0;
	if (s && !api_parse_number(s, 0, INT64_MAX, last)) {
		problem_query(r, header ? "Last-Event-ID" : "after", "'%.40s' is not an event's id", s);
		return false;
	}
	if (s || r->id || !store_event_last(api_of(r)->store, last, &e))
		return true;
	problem_error(r, &e);
	return false;
}

/* The key of http_wake: a job's id, or 0 for any. */
void api_events(struct http_request *r)
{
	struct stream *s;
	struct job j = {0};
	struct err e;
	int64_t last;

	if (r->id && store_job_get(api_of(r)->store, r->id, &j, &e)) {
		problem_error(r, &e);
		return;
	}
	job_release(&j);
	if (!find_start(r, &last))
		return;
	s = mem_zalloc(1, sizeof *s, &e);
	if (!s) {
		problem_error(r, &e);
		return;
	}
	*s = (struct stream){.job = r->id, .last = last};
	r->state = s;
	r->state_free = free;
	http_set_header(r, "Cache-Control", "no-store");
	if (!http_stream(r, "text/event-stream", r->id, pull, ": nothing new\n\n"))
		problem_send(r, 503, "%d clients wait already", HTTP_MAX_WAITS);
}
