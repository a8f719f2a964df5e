/* HTTP: a listening socket, one thread, and requests that are answered at once or later. Knows no routes and no jobs;
 * the only user of libmicrohttpd (MHD).
 *
 * One thread, ours, polls MHD's epoll set beside an eventfd and calls MHD_run, so MHD is entered from no other thread.
 * (MHD's internal thread would need another one for timers.) A request lives from its headers until MHD reports it
 * completed, on that thread:
 *
 *   headers -> body -> handler --- http_send... ----------------------------------> sent, freed
 *                        |  ^--------------------------------------.      ^
 *                        |--- http_suspend -> (any thread) http_complete -'  then `then` runs as a handler
 *                        |--- http_wait ----> http_wake, deadline, client gone, stop -'
 *                        '--- http_stream: headers, then `pull` after each http_wake, until client or server is gone
 *
 * 1. A handler, and each `then`, ends in exactly one of http_send..., http_suspend, http_wait and
 *    http_stream.
 * 2. A suspended request cannot be freed: MHD does not look at its socket. http_suspend comes before the request goes
 *    to whoever will complete it; completing it may then happen at any time, also before the handler has returned.
 * 3. `then` does not run when the client is found gone first: what must happen in any case belongs into state_free.
 * 4. http_stop returns only when nothing is suspended, so whoever holds requests must complete them first or
 *    meanwhile. */
#ifndef FATHOM_SERVER_HTTP_H
#define FATHOM_SERVER_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/buf.h"

#define HTTP_MAX_BODY        ((size_t)1 << 20)
#define HTTP_MAX_CONNECTIONS 512
#define HTTP_MAX_WAITS       128
#define HTTP_MAX_HEADERS     12
#define HTTP_MAX_QUERY       16

struct http;
struct http_request;
struct MHD_Connection;
struct MHD_Response;
typedef void http_handler(struct http_request *r);
typedef err_code http_pull(struct http_request *r, struct buf *out, struct err *e);

struct http_options {
	const char *listen;                   /* "127.0.0.1:8080", "[::1]:0", "host:80" */
	http_handler *handler;                /* of every request */
	size_t (*max_body)(const char *path); /* of a request's body; NULL: HTTP_MAX_BODY for all */
	void *app;                            /* for the handlers: r->app */
};

/* Binds and listens; http_start begins to answer. Errors name the address. */
err_code http_open(const struct http_options *o, struct http **out, struct err *e);
err_code http_start(struct http *h, struct err *e);
const char *http_url(const struct http *h); /* "http://127.0.0.1:8080", with the port that was given */
bool http_is_loopback(const struct http *h);
void http_stop(struct http *h); /* no new connections, wakes all waits, lets replies go out (2 s), joins the thread */
void http_free(struct http *h); /* stops first if need be; NULL is fine */

/* Wakes the requests that http_wait for `key`, from any thread. Cheap when nobody waits. */
void http_wake(struct http *h, int64_t key);

struct http_pair {
	char *name, *value; /* owned by the request */
};

struct http_request {
	struct http *http;
	void *app;
	const char *method;                     /* as sent */
	const char *path;                       /* as sent, before '?': still percent-encoded */
	struct buf body;                        /* complete when the handler runs */
	struct http_pair query[HTTP_MAX_QUERY]; /* decoded */
	size_t n_query;
	int64_t id; /* {id} and {name} of the path: set by the router, freed here */
	char *name;
	void *state; /* of whoever suspended it; state_free (or NULL) is called when the request is freed */
	void (*state_free)(void *state);
	int64_t deadline_ms; /* monotonic; of http_wait */
	bool wait_over;      /* deadline passed, client gone or server stopping: answer now */

	/* Private to http*.c. */
	struct MHD_Connection *connection;
	struct MHD_Response *response; /* owned until queued */
	unsigned status;
	size_t n_headers, reply_bytes;
	struct {
		const char *name;
		char value[256];
	} headers[HTTP_MAX_HEADERS];
	http_handler *then;
	size_t max_body;
	bool body_too_large, bad_query, suspended, waiting;
	int64_t wait_key;
	double begun_s;
	http_pull *pull; /* of a stream */
	const char *beat;
	struct buf stream; /* pulled and not yet sent */
	struct http_request *prev_wait, *next_wait, *next_complete;
};

/* -- reading ----------------------------------------------------------------------------------- */

const char *http_header(const struct http_request *r, const char *name); /* borrowed; NULL when absent */
const char *http_query(const struct http_request *r, const char *name);  /* decoded, borrowed; NULL when absent */
bool http_stopping(const struct http_request *r);

/* What this server answered so far. */
struct http_stats {
	uint64_t replies[6]; /* by the first digit of their status; 0: none was sent */
	double seconds;      /* of all, from headers to the end */
	size_t n_open;       /* requests under way, this one too */
	size_t n_waiting;    /* of them, waits and streams */
};
struct http_stats http_stats(const struct http_request *r);

/* Decodes percent-encoding; NULL when malformed, not UTF-8, or with a NUL. free() it. */
char *http_decode(const char *s, size_t len);

/* -- answering --------------------------------------------------------------------------------- */

/* `name` is a literal; the value is copied (truncated at 255 bytes). Setting a name again replaces it. */
void http_set_header(struct http_request *r, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends body's contents and leaves it empty. A body that failed (memory) becomes a bare 500. */
void http_send(struct http_request *r, unsigned status, const char *type, struct buf *body);
/* Sends memory that outlives the server. */
void http_send_static(struct http_request *r, const char *type, const void *data, size_t len);
/* Sends a whole file and closes fd. */
void http_send_file(struct http_request *r, const char *type, int fd, uint64_t size);
/* Sets the ETag; true when the client has this version (If-None-Match) and 304 has been sent. */
bool http_not_modified(struct http_request *r, const char *etag);
bool http_etag_matches(const struct http_request *r, const char *etag);

/* -- answering later --------------------------------------------------------------------------- */

/* `then` runs on the HTTP thread after http_complete(r). */
void http_suspend(struct http_request *r, http_handler *then);
void http_complete(struct http_request *r); /* from any thread, once a http_suspend */

/* Waits for http_wake(key) or r->deadline_ms, then runs `then`. False, with nothing done, when HTTP_MAX_WAITS wait
 * already. */
bool http_wait(struct http_request *r, int64_t key, http_handler *then);

/* A reply without end. `pull` appends what is new, or nothing: it is called again after http_wake(key). Every
 * HTTP_BEAT_MS without news `beat` is sent, so that a client that left is noticed. An error of pull ends the stream.
 * Counts as a wait: false as http_wait. */
#define HTTP_BEAT_MS 15000
bool http_stream(struct http_request *r, const char *type, int64_t key, http_pull *pull, const char *beat);

#endif
