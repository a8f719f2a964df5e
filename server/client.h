/* The REST API's client, for the thin subcommands: one connection, JSON both ways, problems as errors. */
#ifndef FATHOM_SERVER_CLIENT_H
#define FATHOM_SERVER_CLIENT_H

#include "engine/buf.h"
#include "engine/json.h"
#include "server/options.h"

/* The row that every client's table of options begins with. */
#define CLIENT_OPTION                                                                                                  \
	{                                                                                                              \
		"--server", "URL", "FATHOM_URL", "http://127.0.0.1:8080", "the server", 0, NULL                        \
	}

struct client;

struct client_request {
	const char *method, *path;                              /* path from "/", with its query */
	const char *body;                                       /* JSON; NULL: none */
	const char *idempotency_key, *if_none_match, *if_match; /* header values; NULL: none */
	long timeout_s;                                         /* 0: 60 */
};

struct client_reply {
	long status;
	struct buf body;
	char etag[100]; /* as received, with its quotes; "" when there is none */
	bool replayed;  /* an idempotency key was known: this is the answer to an earlier request */
};
void client_reply_release(struct client_reply *r);

err_code client_open(const char *url, struct client **out, struct err *e);
void client_close(struct client *c);            /* NULL is fine */
const char *client_url(const struct client *c); /* without a trailing slash */

/* A status of 400 or more is an error: the problem's detail and pointer; 404 ERR_NOT_FOUND, 409, 412 and 428
 * ERR_CONFLICT, other 4xx ERR_INPUT, 5xx and no answer at all ERR_IO. The reply is the caller's to release in any
 * case. */
err_code client_call(struct client *c, const struct client_request *q, struct client_reply *r, struct err *e);
/* GET, and its body parsed. */
err_code client_get(struct client *c, const char *path, struct json **out, struct err *e);

/* POST of what becomes a job or a run: its number. key: NULL, none; *replayed (may be NULL): it was known. */
err_code client_create(struct client *c, const char *path, const char *body, const char *key, int64_t *id,
                       bool *replayed, struct err *e);

/* GET, and its body to stdout as it is. */
err_code client_print(struct client *c, const char *path, struct err *e);

/* Appends s percent-encoded, so that it is one component of a path or one value of a query. */
void client_escape(struct buf *out, const char *s);

/* Rows of cells, printed in aligned columns under a head. Numeric columns go right. */
struct client_table {
	const char *const *head; /* [n_columns] borrowed */
	const bool *right;       /* [n_columns] borrowed */
	size_t n_columns;
	char **cells; /* [n_rows * n_columns] owned, strings too */
	size_t n_rows, cap_rows;
};
/* Copies n_columns strings; NULL shows as "-". */
err_code client_table_add(struct client_table *t, const char *const *cells, struct err *e);

void client_table_print(const struct client_table *t); /* to stdout */
void client_table_release(struct client_table *t);

/* GET; `add` makes a row of each member of "data"; then the table is printed. */
typedef err_code client_add_row(struct client_table *t, const struct json *member, struct err *e);
err_code client_print_list(struct client *c, const char *path, struct client_table *t, client_add_row *add,
                           struct err *e);

/* A time of the API for a table: "2026-01-31 12:00"; "" for none. Returns out. */
#define CLIENT_TIME 20
const char *client_time(const char *rfc3339, char out[CLIENT_TIME]);

bool client_job_is_final(const struct json *job);

/* What was said last of jobs that are watched, where stderr is no terminal; zeroed at first. */
struct client_said {
	double at_s; /* clock_mono_s() */
	char line[400];
};

/* cmd_wait.c: a job's state and progress on stderr, behind `what`: a line drawn over itself where that is a terminal,
 * elsewhere one each half minute; and one that stays when the job is final. */
void client_show_job(const char *what, const struct json *job, bool final, struct client_said *said);

/* cmd_wait.c: follows a job to its end, with a bar on stderr when that is a terminal; prints its result on stdout in
 * this format ("table", "json", "csv", "markdown"). The exit status of `fathom wait`. */
int client_follow(struct client *c, const char *command, int64_t job, const char *format);

#endif
