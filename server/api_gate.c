/* Gates: named sets of rules, versioned by content. The same file posted again is the same version. */
#include <stdlib.h>
#include <string.h>

#include "eval/gate.h"
#include "server/api.h"
#include "server/problem.h"

#define MAX_LIST  1000
#define MAX_REPLY ((size_t)64 << 20)

/* -- writing one ------------------------------------------------------------------------------- */

struct creation {
	struct gate *gate; /* owned */
	int64_t version;
	bool existed;
};

static void creation_free(void *data)
{
	struct creation *n = data;

	gate_free(n->gate);
	free(n);
}

static err_code write_gate(struct store *s, void *data, struct err *e)
{
	struct creation *n = data;

	return store_gate_put(s, n->gate->name, n->gate->text, &n->version, &n->existed, e);
}

static void send_gate(struct http_request *r, unsigned status, const char *name, int64_t version);

static void put(struct http_request *r)
{
	struct api_call *c = r->state;
	const struct creation *n = c->data;

	if (api_call_failed(r))
		return;
	http_set_header(r, "Location", "/api/v1/gates/%s", n->gate->name);
	send_gate(r, n->existed ? 200 : 201, n->gate->name, n->version);
}

void api_gate_put(struct http_request *r)
{
	struct api_call *c;
	struct creation *n;
	struct err e = {0};

	if (!api_check_json(r))
		return;
	c = api_call_read(r, REQUEST_STORE, sizeof *n, creation_free);
	if (!c)
		return;
	n = c->data;
	if (gate_parse(c->body, &n->gate, &e)) {
		problem_error(r, &e);
		return;
	}
	if (api_check_name("a gate", n->gate->name, &e)) {
		err_at(&e, "/name");
		problem_error(r, &e);
		return;
	}
	c->core.write = write_gate;
	c->core.data = n;
	api_call_submit(r, put);
}

/* -- reading ----------------------------------------------------------------------------------- */

static void put_branch(void *arg, const struct gate_branch *b)
{
	struct json_writer *w = arg;

	json_begin_object(w, NULL);
	json_put_string(w, "branch", b->branch);
	json_put_int(w, "run", b->run);
	json_put_string(w, "verdict", b->outcome);
	json_put_string(w, "model", b->model);
	json_put_string(w, "commit", b->commit);
	api_put_time(w, "at", b->at_ms);
	json_end_object(w);
}

/* Leaves the object open. */
static err_code begin_gate(struct store *s, struct json_writer *w, const struct gate_row *g, struct err *e)
{
	err_code rc;

	json_begin_object(w, NULL);
	json_put_string(w, "name", g->name);
	json_put_int(w, "version", g->version);
	api_put_time(w, "created_at", g->created_ms);
	json_put_raw(w, "gate", g->definition);
	json_begin_array(w, "branches");
	rc = store_gate_branches(s, g->name, put_branch, w, e);
	json_end_array(w);
	return rc;
}

static void put_version(void *arg, const struct gate_row *g, int64_t last_run)
{
	struct json_writer *w = arg;

	(void)last_run;
	json_begin_object(w, NULL);
	json_put_int(w, "version", g->version);
	api_put_time(w, "created_at", g->created_ms);
	json_end_object(w);
}

static void send_gate(struct http_request *r, unsigned status, const char *name, int64_t version)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct gate_row row = {0};
	struct err e;
	err_code rc = store_gate_get(api_of(r)->store, name, version, &row, &e);

	if (!rc) {
		rc = begin_gate(api_of(r)->store, &w, &row, &e);
		json_begin_array(&w, "history");
		if (!rc)
			rc = store_gate_each(api_of(r)->store, name, MAX_LIST, put_version, &w, &e);
		json_end_array(&w);
		json_end_object(&w);
	}
	gate_row_release(&row);
	api_answer(r, status, &b, rc, &e);
}

void api_gate_get(struct http_request *r)
{
	int64_t version = 0;

	if (api_read_version(r, &version))
		send_gate(r, 200, r->name, version);
}

struct listing {
	struct store *store;
	struct json_writer *w;
	err_code rc;
	struct err *e;
};

static void put_gate(void *arg, const struct gate_row *g, int64_t last_run)
{
	struct listing *l = arg;

	if (l->rc)
		return;
	l->rc = begin_gate(l->store, l->w, g, l->e);
	api_put_id(l->w, "last_run", last_run);
	json_end_object(l->w);
}

void api_gate_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct err e;
	struct listing l = {api_of(r)->store, &w, ERR_OK, &e};
	err_code rc;

	json_begin_object(&w, NULL);
	json_begin_array(&w, "data");
	rc = store_gate_each(api_of(r)->store, NULL, MAX_LIST, put_gate, &l, &e);
	json_end_array(&w);
	json_end_object(&w);
	api_answer(r, 200, &b, rc ? rc : l.rc, &e);
}
