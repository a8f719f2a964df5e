/* Requests about tokenizers: answered by one worker without a device, which never waits for a batch. It is started when
 * it is first needed and ended when it was idle for a while. Requests that it leaves when it dies are asked again once,
 * of a new one. */
#include <string.h>

#include "engine/log.h"
#include "server/core_private.h"

#define IDLE_MS   60000
#define ANSWER_MS 60000 /* opening a large tokenizer takes seconds */
#define TRIES     2
#define SENT      0 /* request.worker of one that was sent; -1: not */

static void take_off(struct core *c, struct request *r)
{
	struct request **at = &c->tokens.requests;

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

static void refuse(struct core *c, struct request *r, const struct err *why)
{
	take_off(c, r);
	r->err = *why;
	r->done(r); /* the requester's again */
}

void tokens_request(struct core *c, struct request *r)
{
	struct request **at = &c->tokens.requests;

	r->worker = -1;
	r->deaths = 0;
	r->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = r;
}

/* -- events ------------------------------------------------------------------------------------ */

static void handle_line(struct core *c, const char *line, size_t len)
{
	struct request *r = c->tokens.requests;
	struct json *json = NULL;
	const char *event;
	int64_t id = -1;
	struct err e;

	if (json_parse(line, len, &json, &e)) {
		log_error("tokens: %s", e.msg);
		link_kill(c->tokens.link);
		return;
	}
	event = json_get_string(json, "event");
	json_get_integer(json, "request", &id);
	while (r && (r->worker != SENT || r->id != id))
		r = r->next;
	if (r && event && !strcmp(event, "tokens")) {
		take_off(c, r);
		r->reply = json;
		r->done(r);
		return;
	}
	if (r && event && !strcmp(event, "failed")) {
		event_failure(json, &e);
		refuse(c, r, &e);
	}
	json_free(json); /* hello, alive */
}

static void read_lines(struct core *c)
{
	const char *line;
	size_t len;

	while ((line = link_line(c->tokens.link, &len)) != NULL) {
		handle_line(c, line, len);
		link_take(c->tokens.link);
	}
}

/* -- its process ------------------------------------------------------------------------------- */

static err_code start(struct core *c, struct err *e)
{
	struct launch launch;
	err_code rc = launch_make("none", c->o.self, &c->o.registry, &launch, e);

	if (rc)
		return rc;
	rc = link_open(&launch, "tokens", &c->tokens.link, e);
	launch_release(&launch);
	return rc;
}

/* Its death: what it was asked is asked again, or given up. */
static void bury(struct core *c)
{
	struct request *next;
	struct err why;

	err_set(&why, ERR_IO, "the worker for tokens died: %s", link_obituary(c->tokens.link));
	link_close(c->tokens.link);
	c->tokens.link = NULL;
	for (struct request *r = c->tokens.requests; r; r = next) {
		next = r->next;
		if (r->worker != SENT)
			continue;
		r->worker = -1;
		if (++r->deaths >= TRIES)
			refuse(c, r, &why);
	}
}

static void send_all(struct core *c, int64_t now_ms)
{
	struct request *next;
	struct err e;

	for (struct request *r = c->tokens.requests; r; r = next) {
		next = r->next;
		if (r->worker == SENT)
			continue;
		r->worker = SENT;
		r->sent_ms = now_ms;
		if (link_send(c->tokens.link, r->line.data, r->line.len, &e))
			refuse(c, r, &e);
	}
}

void tokens_step(struct core *c, int64_t now_ms)
{
	struct request *first;
	struct err e;

	if (c->tokens.link) {
		read_lines(c);
		if (link_ended(c->tokens.link))
			bury(c);
	}
	first = c->tokens.requests;
	if (first && !c->tokens.link && start(c, &e)) {
		while (c->tokens.requests)
			refuse(c, c->tokens.requests, &e);
		return;
	}
	if (first) {
		send_all(c, now_ms);
		c->tokens.used_ms = now_ms;
		if (now_ms >= first->sent_ms + ANSWER_MS)
			link_kill(c->tokens.link);
	} else if (c->tokens.link && now_ms >= c->tokens.used_ms + IDLE_MS) {
		link_shut(c->tokens.link);
		c->tokens.used_ms = now_ms; /* when to look again */
	}
}

void tokens_cancel_all(struct core *c)
{
	struct err e;

	err_set(&e, ERR_CANCELLED, "the server is stopping");
	while (c->tokens.requests)
		refuse(c, c->tokens.requests, &e);
	link_close(c->tokens.link);
	c->tokens.link = NULL;
}

size_t tokens_poll(const struct core *c, struct pollfd *fds)
{
	if (!c->tokens.link)
		return 0;
	link_poll(c->tokens.link, false, fds);
	return LINK_FDS;
}

size_t tokens_handle(struct core *c, const struct pollfd *fds)
{
	if (!c->tokens.link)
		return 0;
	link_handle(c->tokens.link, fds);
	return LINK_FDS;
}

int64_t tokens_deadline(const struct core *c)
{
	if (!c->tokens.link)
		return INT64_MAX;
	return c->tokens.requests ? c->tokens.requests->sent_ms + ANSWER_MS : c->tokens.used_ms + IDLE_MS;
}
