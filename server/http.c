/* HTTP: the thread, its timers, and requests that wait. See http.h; MHD itself is called in http_request.c. */
#include "server/http.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "server/http_private.h"

#define CHECK_MS  5000 /* how long a client that left may hold a wait */
#define LINGER_MS 2000 /* for replies under way when stopping */

/* Makes the thread look at what is under the lock. An eventfd write fails only when the counter is full: it rings
 * then. */
static void ring(struct http *h)
{
	uint64_t one = 1;

	if (write(h->event_fd, &one, sizeof one) < 0)
		assert(errno == EAGAIN || errno == EINTR);
}

/* -- opening and closing ----------------------------------------------------------------------- */

err_code http_open(const struct http_options *o, struct http **out, struct err *e)
{
	struct http *h = mem_zalloc(1, sizeof *h, e);

	if (!h)
		return e->code;
	pthread_mutex_init(&h->lock, NULL);
	h->handler = o->handler;
	h->max_body = o->max_body;
	h->app = o->app;
	h->listen_fd = -1;
	h->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->event_fd < 0) {
		err_errno(e, "eventfd");
		goto fail;
	}
	if (http_listen(o->listen, &h->listen_fd, h->url, sizeof h->url, &h->loopback, e))
		goto fail;
	*out = h;
	return ERR_OK;
fail:
	http_free(h);
	return e->code;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_stop(h);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	if (h->event_fd >= 0)
		close(h->event_fd);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

const char *http_url(const struct http *h)
{
	return h->url;
}

bool http_is_loopback(const struct http *h)
{
	return h->loopback;
}

bool http_stopping(const struct http_request *r)
{
	return r->http->stopping;
}

struct http_stats http_stats(const struct http_request *r)
{
	const struct http *h = r->http;
	struct http_stats s = {.seconds = h->reply_seconds, .n_open = h->n_requests, .n_waiting = h->n_waits};

	memcpy(s.replies, h->replies, sizeof s.replies);
	return s;
}

/* -- requests that wait ------------------------------------------------------------------------ */

static void link_wait(struct http *h, struct http_request *r)
{
	r->prev_wait = NULL;
	r->next_wait = h->waits;
	if (h->waits)
		h->waits->prev_wait = r;
	h->waits = r;
	h->n_waits++;
}

static void unlink_wait(struct http *h, struct http_request *r)
{
	if (r->prev_wait)
		r->prev_wait->next_wait = r->next_wait;
	else
		h->waits = r->next_wait;
	if (r->next_wait)
		r->next_wait->prev_wait = r->prev_wait;
	h->n_waits--;
}

void http_suspend(struct http_request *r, http_handler *then)
{
	assert(!r->response && !r->suspended);
	r->then = then;
	r->suspended = true;
	r->http->n_suspended++;
	http_connection_suspend(r);
}

void http_wait_link(struct http_request *r, int64_t key)
{
	assert(!r->suspended);
	r->suspended = true;
	r->http->n_suspended++;
	r->waiting = true;
	r->wait_key = key;
	link_wait(r->http, r);
	http_connection_suspend(r);
}

bool http_wait(struct http_request *r, int64_t key, http_handler *then)
{
	if (r->http->n_waits >= HTTP_MAX_WAITS)
		return false;
	r->then = then;
	http_wait_link(r, key);
	return true;
}

static void resume(struct http *h, struct http_request *r)
{
	assert(r->suspended);
	if (r->waiting)
		unlink_wait(h, r);
	r->waiting = false;
	r->suspended = false;
	h->n_suspended--;
	http_connection_resume(r);
}

void http_complete(struct http_request *r)
{
	struct http *h = r->http;

	pthread_mutex_lock(&h->lock);
	r->next_complete = h->completed;
	h->completed = r;
	pthread_mutex_unlock(&h->lock);
	ring(h);
}

/* A key is queued even when nobody waits: a handler may have read the old state and be about to wait. It is looked at
 * only after that handler has returned, on its own thread, so no change is lost. */
void http_wake(struct http *h, int64_t key)
{
	size_t i;

	pthread_mutex_lock(&h->lock);
	for (i = 0; i < h->n_changed && h->changed[i] != key; i++)
		;
	if (i == HTTP_MAX_CHANGED)
		h->all_changed = true;
	else if (i == h->n_changed)
		h->changed[h->n_changed++] = key;
	pthread_mutex_unlock(&h->lock);
	ring(h);
}

/* -- the thread -------------------------------------------------------------------------------- */

/* What other threads asked for, copied out of the lock. */
struct news {
	struct http_request *completed;
	int64_t changed[HTTP_MAX_CHANGED];
	size_t n_changed;
	bool all_changed, stop;
};

static void take_news(struct http *h, struct news *n)
{
	uint64_t count;

	if (read(h->event_fd, &count, sizeof count) < 0)
		assert(errno == EAGAIN || errno == EINTR);
	pthread_mutex_lock(&h->lock);
	n->completed = h->completed;
	n->n_changed = h->n_changed;
	memcpy(n->changed, h->changed, h->n_changed * sizeof *h->changed);
	n->all_changed = h->all_changed;
	n->stop = h->stop;
	h->completed = NULL;
	h->n_changed = 0;
	h->all_changed = false;
	pthread_mutex_unlock(&h->lock);
}

static bool is_changed(const struct news *n, int64_t key)
{
	for (size_t i = 0; i < n->n_changed; i++)
		if (n->changed[i] == key)
			return true;
	return n->all_changed;
}

static void wake_waits(struct http *h, const struct news *n)
{
	int64_t now = clock_mono_ms();
	bool check = now >= h->next_check_ms;
	struct http_request *next;

	if (check)
		h->next_check_ms = now + CHECK_MS;
	for (struct http_request *r = h->waits; r; r = next) {
		next = r->next_wait;
		if (h->stopping || now >= r->deadline_ms || (check && http_client_gone(r)))
			r->wait_over = true;
		if (r->wait_over || is_changed(n, r->wait_key))
			resume(h, r);
	}
}

static void handle_news(struct http *h)
{
	struct news n;

	take_news(h, &n);
	if (n.stop && !h->stopping) {
		h->stopping = true;
		http_daemon_quiesce(h);
	}
	while (n.completed) {
		struct http_request *r = n.completed;

		n.completed = r->next_complete;
		resume(h, r);
	}
	wake_waits(h, &n);
}

/* Until MHD, a deadline or the next check wants attention; -1: forever. */
static int poll_timeout(const struct http *h)
{
	int64_t now = clock_mono_ms(), at = INT64_MAX;
	int mhd = http_daemon_timeout_ms(h), ours = -1;

	if (h->waits)
		at = h->next_check_ms;
	for (const struct http_request *r = h->waits; r; r = r->next_wait)
		at = r->deadline_ms < at ? r->deadline_ms : at;
	if (h->stopping && at > now + 50)
		at = now + 50;
	if (at != INT64_MAX)
		ours = at > now ? (int)(at - now) : 0;
	if (mhd < 0 || ours < 0)
		return mhd < 0 ? ours : mhd;
	return mhd < ours ? mhd : ours;
}

static void *http_main(void *arg)
{
	struct http *h = arg;
	struct pollfd fds[2] = {{.fd = http_daemon_epoll_fd(h), .events = POLLIN},
	                        {.fd = h->event_fd, .events = POLLIN}};
	int64_t give_up_ms = 0;

	while (!h->stopping || h->n_suspended || (h->n_requests && clock_mono_ms() < give_up_ms)) {
		if (poll(fds, 2, poll_timeout(h)) < 0 && errno != EINTR)
			log_error("http: poll: %s", strerror(errno));
		handle_news(h);
		if (h->stopping && !give_up_ms)
			give_up_ms = clock_mono_ms() + LINGER_MS;
		http_daemon_run(h);
	}
	return NULL;
}

err_code http_start(struct http *h, struct err *e)
{
	int rc;

	h->daemon = http_daemon_new(h);
	if (!h->daemon)
		return err_errno(e, "http: cannot start on %s", h->url);
	rc = pthread_create(&h->thread, NULL, http_main, h);
	if (rc) {
		http_daemon_stop(h);
		errno = rc;
		return err_errno(e, "http: cannot start a thread");
	}
	h->started = true;
	return ERR_OK;
}

void http_stop(struct http *h)
{
	if (!h->started)
		return;
	pthread_mutex_lock(&h->lock);
	h->stop = true;
	pthread_mutex_unlock(&h->lock);
	ring(h);
	pthread_join(h->thread, NULL);
	http_daemon_stop(h);
	h->started = false;
}
