/* POST /api/v1/jobs: a body becomes a draft, and the draft a row. */
#include <stdlib.h>

#include "server/api.h"
#include "server/job_draft.h"
#include "server/problem.h"

#define MAX_KEY 200

static bool is_key(const char *s)
{
	size_t len = 0;

	for (; s[len]; len++)
		if (s[len] < 0x21 || s[len] > 0x7E)
			return false;
	return len && len <= MAX_KEY;
}

/* False when it was refused. */
static bool check_headers(struct http_request *r)
{
	const char *key = http_header(r, "Idempotency-Key");

	if (!api_check_json(r))
		return false;
	if (key && !is_key(key)) {
		problem_send(r, 400, "Idempotency-Key is to have 1 to %d visible ASCII characters", MAX_KEY);
		return false;
	}
	return true;
}

static void created(struct http_request *r)
{
	struct api_call *c = r->state;
	struct buf b = BUF_INIT((size_t)16 << 20);
	struct json_writer w = JSON_WRITER(&b);
	struct job j = {0};
	struct err e;

	if (c->core.err.code ==
	    ERR_CONFLICT) { /* draft-ietf-httpapi-idempotency-key-header: a key with another payload */
		problem_send(r, 422, "%s", c->core.err.msg);
		return;
	}
	if (api_call_failed(r))
		return;
	if (store_job_get(api_of(r)->store, c->core.job, &j, &e)) {
		problem_error(r, &e);
		return;
	}
	http_set_header(r, "Location", "/api/v1/jobs/%lld", (long long)j.id);
	if (c->core.existed)
		http_set_header(r, "Idempotent-Replayed", "true");
	job_write(&w, NULL, &j, core_job_live_tokens(api_of(r)->core, j.id), true);
	job_release(&j);
	api_send_json(r, 202, &b);
}

struct creation {
	struct job_draft *draft; /* owned; borrows from the body */
};

static void creation_free(void *data)
{
	struct creation *n = data;

	job_draft_free(n->draft);
	free(n);
}

void api_job_create(struct http_request *r)
{
	struct api_call *c;
	struct creation *n;
	struct err e = {0};

	if (!check_headers(r))
		return;
	c = api_call_read(r, REQUEST_CREATE, sizeof *n, creation_free);
	if (!c)
		return;
	n = c->data;
	if (job_draft_read(&api_of(r)->registry, c->body, &n->draft, &e)) {
		problem_error(r, &e);
		return;
	}
	c->core.create = job_draft_row(n->draft);
	c->core.create.idempotency_key = http_header(r, "Idempotency-Key");
	api_call_submit(r, created);
}
