/* What the handlers of the REST API share: see api.h. */
#include "server/api.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/clock.h"
#include "server/problem.h"

#define MAX_WAIT_S 60
#define MAX_KEY    200 /* of Idempotency-Key */

bool api_parse_number(const char *s, int64_t min, int64_t max, int64_t *out)
{
	if (!*s || strspn(s, "0123456789") != strlen(s) || strlen(s) > 18)
		return false;
	*out = strtoll(s, NULL, 10);
	return *out >= min && *out <= max;
}

bool api_check_json(struct http_request *r)
{
	const char *type = http_header(r, "Content-Type");

	if (!type || (strcspn(type, "; \t") == 16 && !strncasecmp(type, "application/json", 16)))
		return true;
	problem_send(r, 415, "Content-Type is '%.100s', not application/json", type);
	return false;
}

bool api_check_key(struct http_request *r, const char **key)
{
	size_t len = 0;

	*key = http_header(r, "Idempotency-Key");
	while (*key && (*key)[len] >= 0x21 && (*key)[len] <= 0x7E)
		len++;
	if (!*key || (len && len <= MAX_KEY && !(*key)[len]))
		return true;
	problem_send(r, 400, "Idempotency-Key is to have 1 to %d visible ASCII characters", MAX_KEY);
	return false;
}

err_code api_check_name(const char *what, const char *name, struct err *e)
{
	static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t len = strlen(name);

	if (len && len <= 100 && strspn(name, known) == len && *name != '.')
		return ERR_OK;
	return err_set(
	    e, ERR_INPUT,
	    "the name of %s is to have 1 to 100 letters, digits, '.', '_', '-', and not begin with '.'; it is '%.120s'",
	    what, name);
}

bool api_read_number(struct http_request *r, const char *name, int64_t min, int64_t max, int64_t *out)
{
	const char *text = http_query(r, name);

	if (!text || api_parse_number(text, min, max, out))
		return true;
	problem_query(r, name, "%s is '%.40s', not a number from %lld to %lld", name, text, (long long)min,
	              (long long)max);
	return false;
}

bool api_read_version(struct http_request *r, int64_t *version)
{
	const char *text = http_query(r, "version");

	if (!text || api_parse_number(text, 1, INT32_MAX, version))
		return true;
	problem_query(r, "version", "version is '%.40s', not a number from 1", text);
	return false;
}

bool api_read_wait(struct http_request *r)
{
	const char *wait = http_query(r, "wait");
	int64_t seconds = 0;

	if (wait && !api_parse_number(wait, 0, MAX_WAIT_S, &seconds)) {
		problem_query(r, "wait", "wait is '%.40s', not a number of seconds from 0 to %d", wait, MAX_WAIT_S);
		return false;
	}
	if (seconds && !r->deadline_ms)
		r->deadline_ms = clock_mono_ms() + seconds * 1000;
	return true;
}

const char *api_query_task(const struct http_request *r)
{
	const char *name = http_query(r, "task");
	struct err ignored;
	const struct task *t = name ? task_find(name, &ignored) : NULL;

	return t ? task_name(t) : name;
}

void api_send_json(struct http_request *r, unsigned status, struct buf *b)
{
	struct err e;

	buf_putc(b, '\n');
	if (buf_check(b, "the reply", &e)) {
		buf_release(b);
		problem_error(r, &e);
		return;
	}
	http_send(r, status, "application/json", b);
}

void api_answer(struct http_request *r, unsigned status, struct buf *b, err_code rc, const struct err *e)
{
	if (!rc) {
		api_send_json(r, status, b);
		return;
	}
	buf_release(b);
	problem_error(r, e);
}

void api_remember_model(struct api *api, const char *name)
{
	char *copy = api->last_model && !strcmp(api->last_model, name) ? NULL : strdup(name);

	if (!copy)
		return;
	free(api->last_model);
	api->last_model = copy;
}

/* -- requests to the core ---------------------------------------------------------------------- */

static void call_free(void *state)
{
	struct api_call *c = state;

	if (c->data_free)
		c->data_free(c->data);
	json_free(c->body);
	free(c->core.text);
	json_free(c->core.reply);
	buf_release(&c->core.line);
	free(c);
}

struct api_call *api_call_new(struct http_request *r, enum request_kind kind)
{
	struct err e;
	struct api_call *c = mem_zalloc(1, sizeof *c, &e);

	if (!c) {
		problem_error(r, &e);
		return NULL;
	}
	c->core.kind = kind;
	c->core.job = r->id;
	r->state = c;
	r->state_free = call_free;
	return c;
}

struct api_call *api_call_read(struct http_request *r, enum request_kind kind, size_t size,
                               void (*data_free)(void *data))
{
	struct api_call *c = api_call_new(r, kind);
	struct err e;

	if (!c)
		return NULL;
	c->data = mem_zalloc(1, size, &e);
	if (!c->data) {
		problem_error(r, &e);
		return NULL;
	}
	c->data_free = data_free;
	if (json_parse(buf_str(&r->body), r->body.len, &c->body, &e)) {
		problem_send(r, 400, "%s", e.msg);
		return NULL;
	}
	return c;
}

/* On the core thread. */
static void on_done(struct request *q)
{
	http_complete(q->arg);
}

void api_call_submit(struct http_request *r, http_handler *then)
{
	struct api_call *c = r->state;

	c->core.done = on_done;
	c->core.arg = r;
	http_suspend(r, then);
	core_submit(api_of(r)->core, &c->core);
}

bool api_call_failed(struct http_request *r)
{
	const struct api_call *c = r->state;

	if (c->core.err.code)
		problem_error(r, &c->core.err);
	return c->core.err.code != ERR_OK;
}

bool api_create_failed(struct http_request *r)
{
	const struct api_call *c = r->state;

	if (c->core.err.code == ERR_CONFLICT) { /* draft-ietf-httpapi-idempotency-key-header: another payload */
		problem_send(r, 422, "%s", c->core.err.msg);
		return true;
	}
	if (c->core.existed)
		http_set_header(r, "Idempotent-Replayed", "true");
	return api_call_failed(r);
}
