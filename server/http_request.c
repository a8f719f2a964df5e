/* Requests as MHD sees them: the access handler, limits, decoding, and queueing replies. See http.h. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "engine/utf8.h"
#include "server/http_private.h"

#define IDLE_S       60                  /* a connection that neither sends nor takes a byte */
#define MEMORY_BYTES ((size_t)32 << 10)  /* a connection's request line and headers */
#define MAX_DISCARD  (8 * HTTP_MAX_BODY) /* of a body that is refused anyway */
#define QUERY_BYTES  2000                /* of one decoded parameter */

/* -- decoding ---------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *http_decode(const char *s, size_t len)
{
	char *out = malloc(len + 1);
	size_t n = 0;

	for (size_t i = 0; out && i < len; i++) {
		int c = (unsigned char)s[i];

		if (c == '%') {
			int hi = i + 2 < len ? hex_digit(s[i + 1]) : -1;
			int lo = i + 2 < len ? hex_digit(s[i + 2]) : -1;

			c = hi < 0 || lo < 0 ? 0 : hi * 16 + lo;
			i += 2;
		}
		if (!c)
			goto bad;
		out[n++] = (char)c;
	}
	if (!out || utf8_valid_prefix(out, n) != n)
		goto bad;
	out[n] = '\0';
	return out;
bad:
	free(out);
	return NULL;
}

/* MHD would decode before splitting the path, which loses the difference between / and %2F. */
static size_t keep_encoded(void *arg, struct MHD_Connection *c, char *s)
{
	(void)arg;
	(void)c;
	return strlen(s);
}

static enum MHD_Result take_query(void *arg, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct http_request *r = arg;
	struct http_pair *p = &r->query[r->n_query];

	(void)kind;
	if (r->n_query == HTTP_MAX_QUERY || strlen(key) > QUERY_BYTES || (value && strlen(value) > QUERY_BYTES)) {
		r->bad_query = true;
		return MHD_NO;
	}
	p->name = http_decode(key, strlen(key));
	p->value = http_decode(value ? value : "", value ? strlen(value) : 0);
	r->n_query++;
	if (!p->name || !p->value || http_query(r, p->name) != p->value)
		r->bad_query = true; /* malformed, or given twice */
	return r->bad_query ? MHD_NO : MHD_YES;
}

const char *http_header(const struct http_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_query; i++)
		if (r->query[i].name && !strcmp(r->query[i].name, name))
			return r->query[i].value;
	return NULL;
}

/* -- answering --------------------------------------------------------------------------------- */

void http_set_header(struct http_request *r, const char *name, const char *fmt, ...)
{
	va_list ap;
	size_t i;

	for (i = 0; i < r->n_headers && strcasecmp(r->headers[i].name, name) != 0; i++)
		;
	assert(i < HTTP_MAX_HEADERS);
	if (i == r->n_headers)
		r->n_headers++;
	r->headers[i].name = name;
	va_start(ap, fmt);
	vsnprintf(r->headers[i].value, sizeof r->headers[i].value, fmt, ap);
	va_end(ap);
}

static bool has_header(const struct http_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (!strcasecmp(r->headers[i].name, name))
			return true;
	return false;
}

static void set_default_header(struct http_request *r, const char *name, const char *value)
{
	if (!has_header(r, name))
		http_set_header(r, name, "%s", value);
}

/* MHD takes memory that it only reads as void *. */
static void *unconst(const void *p)
{
	union {
		const void *in;
		void *out;
	} u = {.in = p};

	return u.out;
}

static void set_response(struct http_request *r, unsigned status, const char *type, struct MHD_Response *response,
                         size_t len)
{
	assert(!r->response && !r->suspended);
	r->response = response;
	r->status = status;
	r->reply_bytes = len;
	if (type)
		http_set_header(r, "Content-Type", "%s", type);
}

void http_send(struct http_request *r, unsigned status, const char *type, struct buf *body)
{
	size_t len = body->len;
	char *data = body->failed ? NULL : buf_steal(body);
	struct MHD_Response *response = NULL;

	if (data)
		response = MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
	if (data && !response)
		free(data);
	if (!response && (len || body->failed)) { /* out of memory */
		status = 500;
		type = NULL;
		len = 0;
	}
	buf_release(body);
	if (!response)
		response = MHD_create_response_from_buffer(0, unconst(""), MHD_RESPMEM_PERSISTENT);
	set_response(r, status, len ? type : NULL, response, len);
}

void http_send_static(struct http_request *r, const char *type, const void *data, size_t len)
{
	set_response(r, 200, type, MHD_create_response_from_buffer(len, unconst(data), MHD_RESPMEM_PERSISTENT), len);
}

void http_send_file(struct http_request *r, const char *type, int fd, uint64_t size)
{
	struct MHD_Response *response = MHD_create_response_from_fd64(size, fd);

	if (!response)
		close(fd);
	set_response(r, 200, type, response, (size_t)size);
}

/* If-None-Match is "*" or a list of tags, each perhaps W/"...": compared weakly, as RFC 9110 13.1.2 says. */
bool http_etag_matches(const struct http_request *r, const char *etag)
{
	const char *list = http_header(r, "If-None-Match");
	size_t len = strlen(etag);

	if (!list)
		return false;
	if (!strcmp(list, "*"))
		return true;
	for (const char *at = strchr(list, '"'); at; at = strchr(at + 1, '"')) {
		const char *end = strchr(at + 1, '"');

		if (!end)
			return false;
		if ((size_t)(end - at - 1) == len && !memcmp(at + 1, etag, len))
			return true;
		at = end;
	}
	return false;
}

bool http_not_modified(struct http_request *r, const char *etag)
{
	struct buf none = BUF_INIT(0);

	http_set_header(r, "ETag", "\"%s\"", etag);
	if (!http_etag_matches(r, etag))
		return false;
	http_send(r, MHD_HTTP_NOT_MODIFIED, NULL, &none);
	return true;
}

/* -- streams ----------------------------------------------------------------------------------- */

/* What there is to send now, into r->stream: news, else a beat when one is due. */
static err_code refill(struct http_request *r, struct err *e)
{
	buf_clear(&r->stream);
	if (r->pull(r, &r->stream, e) || buf_check(&r->stream, "the stream", e))
		return e->code;
	if (!r->stream.len && r->wait_over)
		buf_puts(&r->stream, r->beat);
	if (r->stream.len || r->wait_over)
		r->deadline_ms = clock_mono_ms() + HTTP_BEAT_MS;
	r->wait_over = false;
	return ERR_OK;
}

/* MHD asks for bytes; 0 with the connection suspended means later. */
static ssize_t on_pull(void *arg, uint64_t pos, char *out, size_t max)
{
	struct http_request *r = arg;
	struct err e;
	size_t n;

	(void)pos;
	if (!r->stream.len && r->http->stopping)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (!r->stream.len && refill(r, &e)) {
		log_error("http: %s: %s", r->path, e.msg);
		return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	if (!r->stream.len) {
		http_wait_link(r, r->wait_key);
		return 0;
	}
	n = r->stream.len < max ? r->stream.len : max;
	memcpy(out, r->stream.data, n);
	buf_consume(&r->stream, n);
	r->reply_bytes += n;
	return (ssize_t)n;
}

bool http_stream(struct http_request *r, const char *type, int64_t key, http_pull *pull, const char *beat)
{
	if (r->http->n_waits >= HTTP_MAX_WAITS)
		return false;
	r->pull = pull;
	r->beat = beat;
	r->wait_key = key;
	r->stream = BUF_INIT(HTTP_MAX_BODY);
	r->deadline_ms = clock_mono_ms() + HTTP_BEAT_MS;
	set_response(r, 200, type, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 14, on_pull, r, NULL), 0);
	return true;
}

/* Queues what the handler left. MHD_NO closes the connection: only when memory ran out. */
static enum MHD_Result queue_reply(struct http_request *r)
{
	enum MHD_Result rc = MHD_YES;

	if (!r->response)
		return MHD_NO;
	set_default_header(r, "Cache-Control", "no-cache");
	set_default_header(r, "Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
	set_default_header(r, "X-Content-Type-Options", "nosniff");
	if (r->http->stopping)
		set_default_header(r, "Connection", "close");
	for (size_t i = 0; i < r->n_headers; i++)
		if (MHD_add_response_header(r->response, r->headers[i].name, r->headers[i].value) != MHD_YES)
			log_warn("http: header %s not added", r->headers[i].name);
	rc = MHD_queue_response(r->connection, r->status, r->response);
	MHD_destroy_response(r->response);
	r->response = NULL;
	return rc;
}

/* -- the life of a request --------------------------------------------------------------------- */

static struct http_request *request_new(struct http *h, struct MHD_Connection *c, const char *url, const char *method)
{
	struct http_request *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->http = h;
	r->app = h->app;
	r->connection = c;
	r->method = method;
	r->path = url;
	r->max_body = h->max_body ? h->max_body(url) : HTTP_MAX_BODY;
	r->body = BUF_INIT(r->max_body);
	r->begun_s = clock_mono_s();
	h->n_requests++;
	MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, take_query, r);
	return r;
}

static void request_free(struct http_request *r)
{
	assert(!r->suspended);
	if (r->state_free)
		r->state_free(r->state);
	if (r->response)
		MHD_destroy_response(r->response);
	for (size_t i = 0; i < r->n_query; i++) {
		free(r->query[i].name);
		free(r->query[i].value);
	}
	free(r->name);
	buf_release(&r->body);
	buf_release(&r->stream);
	r->http->n_requests--;
	free(r);
}

/* False when so much was sent of a refused body that the connection is to be cut. */
static bool take_body(struct http_request *r, const char *data, size_t len)
{
	r->reply_bytes += len; /* counts what came, until there is a reply */
	if (len > r->max_body - r->body.len)
		r->body_too_large = true;
	if (!r->body_too_large)
		buf_append(&r->body, data, len);
	return r->reply_bytes <= MAX_DISCARD;
}

/* A body that is announced as too large is still read before it is refused, so that the client is not cut off in the
 * middle of sending and sees why; unless it asked first, or would go on for long. */
static bool refuse_unread(struct http_request *r)
{
	const char *s = http_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
	unsigned long long len = s ? strtoull(s, NULL, 10) : 0;

	if (len > r->max_body)
		r->body_too_large = true;
	return len > MAX_DISCARD || (r->body_too_large && http_header(r, MHD_HTTP_HEADER_EXPECT));
}

static enum MHD_Result run_handler(struct http_request *r)
{
	http_handler *f = r->then ? r->then : r->http->handler;

	r->then = NULL;
	f(r);
	return r->suspended ? MHD_YES : queue_reply(r);
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                                 const char *version, const char *data, size_t *len, void **con_cls)
{
	struct http_request *r = *con_cls;

	(void)version;
	if (!r) { /* headers only */
		*con_cls = r = request_new(arg, c, url, method);
		if (!r)
			return MHD_NO;
		return refuse_unread(r) ? run_handler(r) : MHD_YES;
	}
	if (*len) {
		if (!take_body(r, data, *len))
			return MHD_NO;
		*len = 0;
		return MHD_YES;
	}
	return run_handler(r);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **con_cls, enum MHD_RequestTerminationCode why)
{
	struct http_request *r = *con_cls;
	double seconds;

	(void)arg;
	(void)c;
	if (!r)
		return;
	seconds = clock_mono_s() - r->begun_s;
	r->http->replies[r->status / 100 < 6 ? r->status / 100 : 0]++;
	r->http->reply_seconds += seconds;
	log_debug("http: %s %s: %u, %zu bytes, %.1f ms%s", r->method, r->path, r->status, r->reply_bytes, seconds * 1e3,
	          why == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : ", not delivered");
	request_free(r);
	*con_cls = NULL;
}

__attribute__((format(printf, 2, 0))) static void on_log(void *arg, const char *fmt, va_list ap)
{
	char text[500];
	size_t n;

	(void)arg;
	vsnprintf(text, sizeof text, fmt, ap);
	n = strlen(text);
	while (n && text[n - 1] == '\n')
		text[--n] = '\0';
	log_debug("http: %s", text);
}

/* -- the daemon -------------------------------------------------------------------------------- */

struct MHD_Daemon *http_daemon_new(struct http *h)
{
	unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem options[] = {
	    {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)on_log, NULL}, /* first, to log about the others */
	    {MHD_OPTION_LISTEN_SOCKET, h->listen_fd, NULL},
	    {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, h},
	    {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_encoded, NULL},
	    {MHD_OPTION_CONNECTION_LIMIT, HTTP_MAX_CONNECTIONS, NULL},
	    {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, NULL},
	    {MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)MEMORY_BYTES, NULL},
	    {MHD_OPTION_END, 0, NULL},
	};

	if (strstr(h->url, "//["))
		flags |= MHD_USE_IPv6;
	errno = 0;
	h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_access, h, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
	if (!h->daemon && !errno)
		errno = EINVAL;
	return h->daemon;
}

void http_daemon_stop(struct http *h)
{
	if (h->listen_fd >= 0)
		h->listen_fd = -1; /* MHD closes it */
	MHD_stop_daemon(h->daemon);
	h->daemon = NULL;
}

int http_daemon_epoll_fd(const struct http *h)
{
	return MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

int http_daemon_timeout_ms(const struct http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;

	if (MHD_get_timeout(h->daemon, &ms) != MHD_YES)
		return -1;
	return ms < 3600000 ? (int)ms : 3600000;
}

static unsigned n_connections(const struct http *h)
{
	return MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)->num_connections;
}

/* A daemon at its limit does not listen, and takes it up again only when a run begins: one more after each that
 * closed any. */
void http_daemon_run(struct http *h)
{
	unsigned before;

	do {
		before = n_connections(h);
		MHD_run(h->daemon);
	} while (n_connections(h) < before);
}

void http_daemon_quiesce(struct http *h)
{
	MHD_socket fd = MHD_quiesce_daemon(h->daemon);

	if (fd != MHD_INVALID_SOCKET) {
		close(fd);
		h->listen_fd = -1;
	}
}

void http_connection_suspend(struct http_request *r)
{
	MHD_suspend_connection(r->connection);
}

void http_connection_resume(struct http_request *r)
{
	MHD_resume_connection(r->connection);
}

/* MHD does not watch a suspended connection. A client that only shut down its sending side counts as gone too: it gets
 * its answer early. */
bool http_client_gone(const struct http_request *r)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	char c;
	ssize_t n;

	if (!info)
		return true;
	n = recv(info->connect_fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
