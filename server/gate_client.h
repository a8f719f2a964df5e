/* What `fathom gate` and `fathom baseline` share: a server to talk to, somebody's or a private one (local.h), and how
 * evidence gets into it and out of it. */
#ifndef FATHOM_SERVER_GATE_CLIENT_H
#define FATHOM_SERVER_GATE_CLIENT_H

#include "engine/json.h"
#include "server/client.h"
#include "server/local.h"
#include "server/options.h"
#include "server/output.h"

/* Rows of a table of options, which gate_client_open reads. */
#define GATE_CLIENT_OPTIONS                                                                                            \
	{"--server",                                                                                                   \
	 "URL",                                                                                                        \
	 "FATHOM_URL",                                                                                                 \
	 NULL,                                                                                                         \
	 "the server; local: a private one, for this command alone (default local when --model is a folder, else "     \
	 "http://127.0.0.1:8080)",                                                                                     \
	 0,                                                                                                            \
	 NULL},                                                                                                        \
	    {"--store",                                                                                                \
	     "DIR",                                                                                                    \
	     NULL,                                                                                                     \
	     NULL,                                                                                                     \
	     "of a local server: where jobs, baselines and results are kept (default: a temporary folder)",            \
	     0,                                                                                                        \
	     NULL},                                                                                                    \
	    {"--datasets", "DIR", NULL, NULL, "of a local server: a folder of datasets; earlier ones win", 1, NULL},   \
	{                                                                                                              \
		"--workers", "SPEC", NULL, NULL, "of a local server: a worker, as of `fathom serve`", 1, NULL          \
	}

struct gate_client {
	struct client *client; /* owned, as below */
	struct local *local;   /* NULL: somebody's server */
	bool keeps;            /* it goes on with what it was given, when this command is over */
	const char *model;     /* borrowed: what the server calls the model; NULL: none was given */
	struct client_said said;
	double stuck_s; /* since when the job that is watched says that it waits; 0: it does not */
};

/* Whether these options mean a private server. */
bool gate_client_is_local(const struct options *o, const char *model);

/* model: the value of --model, or NULL. Release *g also after a failure. */
err_code gate_client_open(const struct options *o, const char *model, struct gate_client *g, struct err *e);
void gate_client_release(struct gate_client *g);

/* A request with a JSON body (NULL: none); the answer parsed. */
err_code gate_client_send(struct gate_client *g, const char *method, const char *path, const char *body,
                          const char *if_match, struct json **answer, struct err *e);

/* Makes a baseline of a file's evidence, named after its contents, so that it is the same in every run. *name is the
 * caller's. */
err_code gate_client_import_file(struct gate_client *g, const char *path, char **name, struct err *e);

/* POST /api/v1/baselines: `members` is JSON text of the members beside "name". A name that is there gets a new version.
 * The answer is the caller's. */
err_code gate_client_set_baseline(struct gate_client *g, const char *name, const char *members, struct json **answer,
                                  struct err *e);

err_code gate_client_set_jobs(struct gate_client *g, const char *name, const int64_t *jobs, size_t n,
                              struct json **answer, struct err *e);

/* Writes the evidence of jobs to an open output: {"results": [...]}. */
err_code gate_client_export_jobs(struct gate_client *g, const int64_t *jobs, size_t n, struct output *o, struct err *e);

/* What a command began and does not follow to its end goes on for nobody: it is cancelled by POST to `path`, and e, why
 * the command ends, says what became of it, which is called `what`. Not of a private server without a store, which ends
 * with all that it does. */
void gate_client_abandon(struct gate_client *g, const char *path, const char *what, struct err *e);

/* The "jobs" of a run: their ids, [*n], the caller's. */
err_code gate_client_job_ids(const struct json *array, int64_t **jobs, size_t *n, struct err *e);

/* GET a job; draws it where stderr is a terminal, and says that it ended. *final: it did. ERR_DEVICE for one of a local
 * server that has waited for half a minute: nobody else will start the worker that it needs. */
err_code gate_client_watch_job(struct gate_client *g, int64_t id, const char *what, bool *final, struct json **job,
                               struct err *e);

#endif
