/* POST /api/v1/jobs: a body becomes a draft, and the draft a row. */
#include <stdlib.h>

#include "server/api.h"
#include "server/job_draft.h"
#include "server/problem.h"

static void created(struct http_request *r)
{
	struct api_call *c = r->state;
	struct buf b = BUF_INIT((size_t)16 << 20);
	struct json_writer w = JSON_WRITER(&b);
	struct job j = {0};
	struct err e;

	if (api_create_failed(r))
		return;
	if (store_job_get(api_of(r)->store, c->core.job, &j, &e)) {
		problem_error(r, &e);
		return;
	}
	http_set_header(r, "Location", "/api/v1/jobs/%lld", (long long)j.id);
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
	const char *key;
	struct err e = {0};

	if (!api_check_json(r) || !api_check_key(r, &key))
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
	c->core.create.idempotency_key = key;
	api_call_submit(r, created);
}
