/* The REST API: handlers of the routes in routes.c, and what they share. All run on the HTTP thread. */
#ifndef FATHOM_SERVER_API_H
#define FATHOM_SERVER_API_H

#include <stdio.h>

#include "engine/json.h"
#include "server/core.h"
#include "server/http.h"
#include "server/store.h"

struct api {
	struct core *core;   /* borrowed */
	struct store *store; /* borrowed: read-only, the HTTP thread's own */
	struct registry registry;
	const char *data_dir; /* borrowed: exports open their own connection */
	bool loopback;        /* only this machine's names are accepted as Host */
	int n_exports;        /* running export threads; the HTTP thread counts */
	int n_scores;         /* scoring requests that wait; the same */
	int64_t next_request; /* their numbers */
	char *last_model;     /* owned: that completions were asked of last; NULL: none yet */
};

void routes_dispatch(struct http_request *r); /* routes.c: the handler of every request; r->app is a struct api */
size_t routes_max_body(const char *path);     /* of a request to it */

/* api_job.c */
void api_job_list(struct http_request *r);
void api_job_get(struct http_request *r);
void api_job_cancel(struct http_request *r);
void api_job_restart(struct http_request *r);
void api_job_delete(struct http_request *r);
/* api_job_create.c */
void api_job_create(struct http_request *r);
/* api_result.c */
void api_result_json(struct http_request *r);
void api_result_csv(struct http_request *r);
void api_result_markdown(struct http_request *r);
void api_job_curve(struct http_request *r);
void api_curve(struct http_request *r);
void api_job_frequencies(struct http_request *r);
/* api_items.c */
void api_items(struct http_request *r);
/* api_baseline.c */
#define BASELINE_MAX_BODY ((size_t)128 << 20) /* results with their items */
void api_baseline_put(struct http_request *r);
void api_baseline_list(struct http_request *r);
void api_baseline_get(struct http_request *r);
void api_baseline_delete(struct http_request *r);
void api_baseline_evidence(struct http_request *r);
/* api_gate.c */
void api_gate_put(struct http_request *r);
void api_gate_list(struct http_request *r);
void api_gate_get(struct http_request *r);
/* api_gate_run.c */
void api_run_create(struct http_request *r);
void api_run_list(struct http_request *r);
void api_run_get(struct http_request *r);
void api_run_cancel(struct http_request *r);
/* api_gate_report.c */
void api_run_json(struct http_request *r);
void api_run_junit(struct http_request *r);
void api_run_markdown(struct http_request *r);
void api_gate_badge(struct http_request *r);
/* api_history.c */
void api_history(struct http_request *r);
/* api_events.c */
void api_events(struct http_request *r);
/* api_catalog.c */
void api_model_list(struct http_request *r);
void api_model_get(struct http_request *r);
void api_task_list(struct http_request *r);
void api_task_get(struct http_request *r);
void api_dataset_list(struct http_request *r);
void api_worker_list(struct http_request *r);
void api_health(struct http_request *r);
/* openapi.c */
void api_openapi(struct http_request *r);
/* metrics.c */
void api_metrics(struct http_request *r);
/* api_static.c */
void api_static(struct http_request *r);

/* -- shared ------------------------------------------------------------------------------------ */

/* The HTTP thread's store and the rest, of a request. */
static inline struct api *api_of(const struct http_request *r)
{
	return r->app;
}

/* A whole decimal number, of digits only, within [min, max]. */
bool api_parse_number(const char *s, int64_t min, int64_t max, int64_t *out);

/* False, and a problem was sent, unless the body is said to be JSON, or nothing is said of it. */
bool api_check_json(struct http_request *r);

/* The Idempotency-Key of a request that makes something; NULL: none. False: it was refused. */
bool api_check_key(struct http_request *r, const char **key);
/* api_call_failed for such a request: another request's key is a 422. False: Idempotent-Replayed is set where the key
 * was known. */
bool api_create_failed(struct http_request *r);

/* What names of gates and baselines are made of: 1 to 100 letters, digits, '.', '_', '-', the first no '.'.
 * ERR_INPUT. */
err_code api_check_name(const char *what, const char *name, struct err *e);

/* Query parameters; false: it was refused. A number in [min, max]: *out stays where it is absent. */
bool api_read_number(struct http_request *r, const char *name, int64_t min, int64_t max, int64_t *out);
/* ?version=N; *version stays where it is absent. */
bool api_read_version(struct http_request *r, int64_t *version);
/* ?wait=S, seconds from the request's first handler on: sets r->deadline_ms, which is 0 where nothing is to be waited
 * for. */
bool api_read_wait(struct http_request *r);

/* ?task=NAME by its own name where an alias is given; NULL when absent. Borrowed from the request. */
const char *api_query_task(const struct http_request *r);

/* A document that a thread of its own writes to an unlinked file, with a store of its own, and which is then sent: what
 * is folded from many units must not hold up the HTTP thread. */
typedef err_code export_fn(void *arg, struct store *s, FILE *out, struct err *e);
struct api_export {
	const char *type; /* Content-Type; a literal */
	char filename[120];
	export_fn *write;            /* on the thread */
	void *arg;                   /* its */
	void (*arg_free)(void *arg); /* NULL: nothing to free */
};
/* Takes x->arg in any case. 503 when two are being written. */
void api_export(struct http_request *r, const struct api_export *x);

/* Ends a JSON body and sends it, or 500. */
void api_send_json(struct http_request *r, unsigned status, struct buf *b);

/* The same, or, where writing it failed with rc, the problem of e. Takes b in any case. */
void api_answer(struct http_request *r, unsigned status, struct buf *b, err_code rc, const struct err *e);

/* A job as JSON. live_tokens: core_job_live_tokens. full: with result or partial. */
void job_write(struct json_writer *w, const char *key, const struct job *j, int64_t live_tokens, bool full);

/* RFC 3339 in UTC with milliseconds; 0 writes null. */
void api_put_time(struct json_writer *w, const char *key, int64_t unix_ms);
/* The number of a job or run; 0 writes null. */
void api_put_id(struct json_writer *w, const char *key, int64_t id);

/* The run of the path: {gate} is its gate. */
err_code api_load_run(struct http_request *r, struct gate_run *run, struct err *e);

/* A request to the core, as the `state` of the HTTP request that waits for it. Allocated by api_call_new, freed with
 * the request. */
struct api_call {
	struct request core;
	struct json *body; /* owned: the request's, where api_call_read made the call */
	void *data;        /* of the handler; data_free'd with it, before the body */
	void (*data_free)(void *data);
};
struct api_call *api_call_new(struct http_request *r, enum request_kind kind); /* NULL: 500 was sent */
/* A call with the body parsed and `size` zeroed bytes of data. NULL: 400 or 500 was sent. */
struct api_call *api_call_read(struct http_request *r, enum request_kind kind, size_t size,
                               void (*data_free)(void *data));
void api_call_submit(struct http_request *r, http_handler *then);
/* True when the core refused: the problem has been sent. */
bool api_call_failed(struct http_request *r);

/* Keeps the name of the model that completions were asked of. */
void api_remember_model(struct api *api, const char *name);

/* Whether a folder or file holds anything that a task could read. */
bool api_dataset_is_empty(const char *path);

#endif
