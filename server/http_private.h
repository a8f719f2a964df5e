/* Between server/http*.c: the server's state, by the thread that owns it. */
#ifndef FATHOM_SERVER_HTTP_PRIVATE_H
#define FATHOM_SERVER_HTTP_PRIVATE_H

#include <pthread.h>

#include "server/http.h"

struct MHD_Daemon;

#define HTTP_MAX_CHANGED 64

struct http {
	char url[1100]; /* a scope id may make a host as long as NI_MAXHOST */
	bool loopback;
	http_handler *handler;
	size_t (*max_body)(const char *path);
	void *app;
	int listen_fd; /* owned until the daemon is stopped or quiesced; -1: not ours any more */
	int event_fd;  /* owned: rings when anything under `lock` was set */
	struct MHD_Daemon *daemon;
	pthread_t thread;
	bool started;

	/* The HTTP thread's own. */
	struct http_request *waits; /* doubly linked */
	size_t n_waits, n_suspended, n_requests;
	uint64_t replies[6]; /* see http_stats */
	double reply_seconds;
	int64_t next_check_ms; /* when to look whether waiting clients are still there */
	bool stopping;

	pthread_mutex_t lock; /* guards what follows; held for a few instructions, no call is made under it */
	struct http_request *completed;
	int64_t changed[HTTP_MAX_CHANGED];
	size_t n_changed;
	bool all_changed, stop;
};

/* http_listen.c: a bound, listening, non-blocking socket; fills url and loopback. */
err_code http_listen(const char *address, int *fd, char *url, size_t url_size, bool *loopback, struct err *e);

/* http.c: puts a request among the waits; its connection is suspended. */
void http_wait_link(struct http_request *r, int64_t key);

/* http_request.c */
struct MHD_Daemon *http_daemon_new(struct http *h); /* takes over h->listen_fd when it succeeds; NULL: errno */
void http_daemon_stop(struct http *h);
int http_daemon_epoll_fd(const struct http *h);
int http_daemon_timeout_ms(const struct http *h); /* -1: none */
void http_daemon_run(struct http *h);
void http_daemon_quiesce(struct http *h);
void http_connection_suspend(struct http_request *r);
void http_connection_resume(struct http_request *r);
bool http_client_gone(const struct http_request *r);

#endif
