/* The HTTP thread: replies now and later, waits, limits, and stopping, over real sockets with handlers of the test's
 * own. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine/clock.h"
#include "server/http.h"
#include "tests/fixture.h"

/* -- the server under test ----------------------------------------------------------------------- */

struct app {
	pthread_mutex_t lock;
	struct http_request *held[64]; /* suspended: to be completed by the test */
	size_t n_held;
	int value; /* what /wait waits for */
};

static struct app app;

static void say(struct http_request *r, unsigned status, const char *text)
{
	struct buf b = BUF_INIT(HTTP_MAX_BODY + 1000);

	buf_puts(&b, text);
	http_send(r, status, "text/plain", &b);
}

static void late(struct http_request *r)
{
	say(r, 200, "late");
}

static void hold(struct http_request *r)
{
	struct app *a = r->app;

	http_suspend(r, late);
	pthread_mutex_lock(&a->lock);
	a->held[a->n_held++] = r;
	pthread_mutex_unlock(&a->lock);
}

/* Completes before the handler has returned. */
static void race(struct http_request *r)
{
	http_suspend(r, late);
	http_complete(r);
}

static void *complete_at_once(void *arg)
{
	http_complete(arg);
	return NULL;
}

static void race_thread(struct http_request *r)
{
	pthread_t t;

	http_suspend(r, late);
	ck_assert_int_eq(pthread_create(&t, NULL, complete_at_once, r), 0);
	pthread_detach(t);
}

static void set_and_wake(struct http *h)
{
	pthread_mutex_lock(&app.lock);
	app.value = 1;
	pthread_mutex_unlock(&app.lock);
	http_wake(h, 7);
}

static void wait_for_value(struct http_request *r)
{
	struct app *a = r->app;
	const char *ms = http_query(r, "ms");
	char text[32];
	int value;

	pthread_mutex_lock(&a->lock);
	value = a->value;
	pthread_mutex_unlock(&a->lock);
	if (!r->deadline_ms)
		r->deadline_ms = clock_mono_ms() + atoi(ms ? ms : "0");
	if (!value && !r->wait_over) {
		if (http_query(r, "race"))
			set_and_wake(r->http); /* as another thread might, just now */
		if (!http_wait(r, 7, wait_for_value))
			say(r, 503, "full");
		return;
	}
	snprintf(text, sizeof text, "value %d", value);
	say(r, 200, text);
}

/* Sends the value whenever it is another one than it sent last. */
static err_code pull_value(struct http_request *r, struct buf *out, struct err *e)
{
	struct app *a = r->app;

	(void)e;
	pthread_mutex_lock(&a->lock);
	if (a->value != (int)r->id)
		buf_printf(out, "<%d>", a->value);
	r->id = a->value;
	pthread_mutex_unlock(&a->lock);
	return ERR_OK;
}

static void stream_value(struct http_request *r)
{
	if (!http_stream(r, "text/plain", 7, pull_value, "beat"))
		say(r, 503, "full");
}

static err_code pull_error(struct http_request *r, struct buf *out, struct err *e)
{
	(void)r;
	buf_puts(out, "lost");
	return err_set(e, ERR_IO, "on purpose");
}

static void stream_error(struct http_request *r)
{
	http_stream(r, "text/plain", 7, pull_error, "beat");
}

static void echo(struct http_request *r)
{
	struct buf b = BUF_INIT(HTTP_MAX_BODY + 1000);
	const char *q = http_query(r, "q");

	if (r->body_too_large || r->bad_query) {
		say(r, r->body_too_large ? 413 : 400, "refused");
		return;
	}
	buf_printf(&b, "%s %s q=%s body=%zu:", r->method, r->path, q ? q : "", r->body.len);
	buf_append(&b, buf_str(&r->body), r->body.len);
	http_send(r, 200, "text/plain", &b);
}

static void tagged(struct http_request *r)
{
	if (!http_not_modified(r, "abc"))
		say(r, 200, "tagged");
}

static void on_request(struct http_request *r)
{
	static const struct {
		const char *path;
		http_handler *handler;
	} table[] = {
	    {"/hold", hold},  {"/race", race},           {"/race_thread", race_thread},  {"/wait", wait_for_value},
	    {"/tag", tagged}, {"/stream", stream_value}, {"/stream_error", stream_error}};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (!strcmp(r->path, table[i].path)) {
			table[i].handler(r);
			return;
		}
	}
	echo(r);
}

static struct http *server;

static void setup(void)
{
	struct http_options o = {.listen = "127.0.0.1:0", .handler = on_request, .app = &app};
	struct err e;

	pthread_mutex_init(&app.lock, NULL);
	ck_ok(http_open(&o, &server, &e), &e);
	ck_ok(http_start(server, &e), &e);
}

static void teardown(void)
{
	http_free(server);
}

static void complete_all(void)
{
	pthread_mutex_lock(&app.lock);
	while (app.n_held)
		http_complete(app.held[--app.n_held]);
	pthread_mutex_unlock(&app.lock);
}

static size_t n_held(void)
{
	size_t n;

	pthread_mutex_lock(&app.lock);
	n = app.n_held;
	pthread_mutex_unlock(&app.lock);
	return n;
}

static void pause_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* -- a client ---------------------------------------------------------------------------------- */

static int dial(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_port = htons((uint16_t)atoi(strrchr(http_url(server), ':') + 1));
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

static void send_text(int fd, const char *s)
{
	size_t len = strlen(s);

	ck_assert_int_eq(send(fd, s, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Reads one reply with Content-Length into out; returns its status, or 0 when the connection was closed first. */
static int read_reply(int fd, char *out, size_t size)
{
	size_t n = 0, need = 0;
	char *end;
	ssize_t k;

	for (;;) {
		out[n] = '\0';
		end = strstr(out, "\r\n\r\n");
		if (end && !need) {
			char *length = strstr(out, "Content-Length: ");

			need = (size_t)(end + 4 - out) + (length ? strtoul(length + 16, NULL, 10) : 0);
		}
		if (end && n >= need)
			return atoi(out + 9);
		ck_assert_uint_lt(n, size - 1);
		k = recv(fd, out + n, size - 1 - n, 0);
		if (k <= 0)
			return 0;
		n += (size_t)k;
	}
}

static char reply[3 << 20];

/* A request on a connection of its own. */
static int ask(const char *request)
{
	int fd = dial(), status;

	send_text(fd, request);
	status = read_reply(fd, reply, sizeof reply);
	close(fd);
	return status;
}

static const char *body_of(const char *r)
{
	return strstr(r, "\r\n\r\n") + 4;
}

static bool is_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) > 0;
}

/* -- tests ------------------------------------------------------------------------------------- */

START_TEST(path_stays_encoded_and_the_query_is_decoded)
{
	ck_assert_int_eq(ask("GET /a%2Fb?q=x%20y%2B+z HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	ck_assert_str_eq(body_of(reply), "GET /a%2Fb q=x y+ z body=0:");
	ck_assert_int_eq(ask("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"), 200);
	ck_assert_str_eq(body_of(reply), "POST /x q= body=5:hello");
	ck_assert_ptr_nonnull(strstr(reply, "X-Content-Type-Options: nosniff"));
	ck_assert_ptr_nonnull(strstr(reply, "Content-Security-Policy: default-src 'none'"));
}
END_TEST

START_TEST(malformed_and_repeated_query_parameters_are_marked)
{
	ck_assert_int_eq(ask("GET /?q=%zz HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	ck_assert_int_eq(ask("GET /?q=%00 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	ck_assert_int_eq(ask("GET /?q=%ff HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	ck_assert_int_eq(ask("GET /?q=1&q=2 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
	ck_assert_int_eq(ask("GET /?a=1&b=2&c&d&e&f&g&h&i&j&k&l&m&n&o&p HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	ck_assert_int_eq(ask("GET /?a=1&b=2&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
}
END_TEST

START_TEST(head_has_the_headers_alone)
{
	int fd = dial();
	char out[2000];
	ssize_t n, total = 0;

	send_text(fd, "HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	while ((n = recv(fd, out + total, sizeof out - 1 - (size_t)total, 0)) > 0)
		total += n;
	out[total] = '\0';
	ck_assert_ptr_nonnull(strstr(out, "200 OK"));
	ck_assert_ptr_nonnull(strstr(out, "Content-Length: 17")); /* of "HEAD / q= body=0:" */
	ck_assert_str_eq(body_of(out), "");
	close(fd);
}
END_TEST

START_TEST(a_body_is_taken_up_to_its_limit)
{
	size_t len = HTTP_MAX_BODY;
	char head[200], *big = malloc(len + 2);
	int fd = dial();

	memset(big, 'x', len + 1);
	big[len] = '\0';
	snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", len);
	send_text(fd, head);
	send_text(fd, big);
	ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 200);
	ck_assert_ptr_nonnull(strstr(reply, "body=1048576:xxx"));

	/* announced: refused before it is sent when the client asks, or when it is huge */
	snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
	         len + 1);
	ck_assert_int_eq(ask(head), 413);
	ck_assert_int_eq(ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n"), 413);
	ck_assert_int_eq(ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n"), 413);

	/* refused when it has come, announced or not */
	close(fd);
	fd = dial();
	big[len] = 'x';
	big[len + 1] = '\0';
	snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", len + 1);
	send_text(fd, head);
	send_text(fd, big);
	ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 413);
	snprintf(head, sizeof head, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n", len + 1);
	send_text(fd, head);
	send_text(fd, big);
	send_text(fd, "\r\n0\r\n\r\n");
	ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 413);
	close(fd);
	free(big);
}
END_TEST

START_TEST(a_held_request_is_answered_when_completed_and_others_meanwhile)
{
	int fd = dial();

	send_text(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
	ck_assert(!is_readable(fd, 100));
	ck_assert_int_eq(ask("GET /other HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	complete_all();
	ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 200);
	ck_assert_str_eq(body_of(reply), "late");
	/* the connection goes on */
	send_text(fd, "GET /again HTTP/1.1\r\nHost: h\r\n\r\n");
	ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 200);
	close(fd);
}
END_TEST

START_TEST(completion_may_come_before_the_handler_returns)
{
	int fd = dial();

	for (int i = 0; i < 300; i++) {
		send_text(fd, i % 2 ? "GET /race HTTP/1.1\r\nHost: h\r\n\r\n"
		                    : "GET /race_thread HTTP/1.1\r\nHost: h\r\n\r\n");
		ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 200);
		ck_assert_str_eq(body_of(reply), "late");
	}
	close(fd);
}
END_TEST

START_TEST(a_client_that_left_while_held_harms_nobody)
{
	for (int i = 0; i < 20; i++) {
		int fd = dial();

		send_text(fd, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
		for (int k = 0; k < 500 && n_held() == 0; k++)
			pause_ms(2);
		ck_assert_uint_eq(n_held(), 1);
		close(fd);
		complete_all();
	}
	ck_assert_int_eq(ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
}
END_TEST

START_TEST(a_wait_ends_by_its_key_or_its_deadline)
{
	int fd = dial();
	int64_t begun = clock_mono_ms();

	send_text(fd, "GET /wait?ms=20000 HTTP/1.1\r\nHost: h\r\n\r\n");
	ck_assert(!is_readable(fd, 100));
	http_wake(server, 8); /* another key */
	http_wake(server, 7); /* ours, but nothing has changed: it waits again */
	ck_assert(!is_readable(fd, 100));
	pthread_mutex_lock(&app.lock);
	app.value = 5;
	pthread_mutex_unlock(&app.lock);
	http_wake(server, 7);
	ck_assert_int_eq(read_reply(fd, reply, sizeof reply), 200);
	ck_assert_str_eq(body_of(reply), "value 5");
	ck_assert_int_lt(clock_mono_ms() - begun, 10000);
	close(fd);

	app.value = 0;
	begun = clock_mono_ms();
	ck_assert_int_eq(ask("GET /wait?ms=200 HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	ck_assert_str_eq(body_of(reply), "value 0");
	ck_assert_int_ge(clock_mono_ms() - begun, 190);
}
END_TEST

START_TEST(no_change_is_lost_between_reading_and_waiting)
{
	int64_t begun = clock_mono_ms();

	ck_assert_int_eq(ask("GET /wait?ms=5000&race=1 HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	ck_assert_str_eq(body_of(reply), "value 1");
	ck_assert_int_lt(clock_mono_ms() - begun, 3000);
}
END_TEST

START_TEST(waits_are_limited_and_a_client_that_left_frees_its_place)
{
	int fds[HTTP_MAX_WAITS];
	int status = 0;

	for (int i = 0; i < HTTP_MAX_WAITS; i++) {
		fds[i] = dial();
		send_text(fds[i], "GET /wait?ms=60000 HTTP/1.1\r\nHost: h\r\n\r\n");
	}
	for (int i = 0; i < 100 && status != 503; i++)
		status = ask("GET /wait?ms=1 HTTP/1.1\r\nHost: h\r\n\r\n");
	ck_assert_int_eq(status, 503);
	for (int i = 0; i < HTTP_MAX_WAITS; i++)
		close(fds[i]);
	for (int i = 0; i < 100 && status != 200; i++) {
		pause_ms(100); /* looked at every five seconds */
		status = ask("GET /wait?ms=1 HTTP/1.1\r\nHost: h\r\n\r\n");
	}
	ck_assert_int_eq(status, 200);
}
END_TEST

START_TEST(stopping_answers_waits_and_held_requests)
{
	int waiting = dial(), held = dial(), idle = dial();

	send_text(waiting, "GET /wait?ms=60000 HTTP/1.1\r\nHost: h\r\n\r\n");
	send_text(held, "GET /race_thread HTTP/1.1\r\nHost: h\r\n\r\n");
	ck_assert(!is_readable(waiting, 100));
	http_stop(server);
	ck_assert_int_eq(read_reply(waiting, reply, sizeof reply), 200);
	ck_assert_str_eq(body_of(reply), "value 0");
	ck_assert_int_eq(read_reply(held, reply, sizeof reply), 200);
	ck_assert_int_eq(recv(idle, reply, 1, 0), 0);
	close(waiting);
	close(held);
	close(idle);
}
END_TEST

static void *complete_later(void *arg)
{
	(void)arg;
	pause_ms(300);
	complete_all();
	return NULL;
}

START_TEST(stopping_waits_for_who_holds_requests)
{
	int held = dial();
	pthread_t t;

	send_text(held, "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
	for (int i = 0; i < 500 && n_held() == 0; i++)
		pause_ms(2);
	ck_assert_int_eq(pthread_create(&t, NULL, complete_later, NULL), 0);
	http_stop(server);
	ck_assert_uint_eq(n_held(), 0);
	ck_assert_int_eq(read_reply(held, reply, sizeof reply), 200);
	ck_assert_ptr_nonnull(strstr(reply, "Connection: close"));
	pthread_join(t, NULL);
	close(held);
}
END_TEST

static void set_value(int value)
{
	pthread_mutex_lock(&app.lock);
	app.value = value;
	pthread_mutex_unlock(&app.lock);
	http_wake(server, 7);
}

/* Reads until the text has come; what came is in reply. */
static void expect_text(int fd, const char *text)
{
	size_t n = 0;
	ssize_t k;

	for (reply[0] = '\0'; !strstr(reply, text); reply[n] = '\0') {
		ck_assert_msg(is_readable(fd, 10000), "%s did not come: %s", text, reply);
		k = recv(fd, reply + n, sizeof reply - 1 - n, 0);
		ck_assert_msg(k > 0, "closed before %s came: %s", text, reply);
		n += (size_t)k;
	}
}

START_TEST(a_stream_sends_what_is_new_and_ends_in_order)
{
	int fd = dial(), other = dial();

	send_text(fd, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
	expect_text(fd, "Transfer-Encoding: chunked");
	for (int i = 1; i < 50; i++) {
		char text[16];

		set_value(i);
		snprintf(text, sizeof text, "<%d>", i);
		expect_text(fd, text);
	}
	http_wake(server, 7); /* without news nothing is sent */
	ck_assert(!is_readable(fd, 100));
	send_text(other, "GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
	expect_text(other, "<49>");
	close(other); /* it leaves, and the rest goes on */
	set_value(50);
	expect_text(fd, "<50>");
	http_stop(server);
	expect_text(fd, "0\r\n\r\n");
	ck_assert_int_eq(recv(fd, reply, 1, 0), 0);
	close(fd);
}
END_TEST

START_TEST(a_stream_that_fails_is_cut)
{
	int fd = dial();
	size_t n = 0;
	ssize_t k;

	send_text(fd, "GET /stream_error HTTP/1.1\r\nHost: h\r\n\r\n");
	while ((k = recv(fd, reply + n, sizeof reply - 1 - n, 0)) > 0)
		n += (size_t)k;
	reply[n] = '\0';
	ck_assert_ptr_nonnull(strstr(reply, "200 OK"));
	ck_assert_ptr_null(strstr(reply, "lost"));
	ck_assert_ptr_null(strstr(reply, "0\r\n\r\n"));
	close(fd);
	ck_assert_int_eq(ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
}
END_TEST

START_TEST(a_known_version_is_not_sent_again)
{
	ck_assert_int_eq(ask("GET /tag HTTP/1.1\r\nHost: h\r\n\r\n"), 200);
	ck_assert_ptr_nonnull(strstr(reply, "ETag: \"abc\""));
	ck_assert_int_eq(ask("GET /tag HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"x\", W/\"abc\"\r\n\r\n"), 304);
	ck_assert_int_eq(ask("GET /tag HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\n\r\n"), 304);
	ck_assert_int_eq(ask("GET /tag HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"ab\"\r\n\r\n"), 200);
	ck_assert_int_eq(ask("GET /tag HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"abc\r\n\r\n"), 200);
}
END_TEST

START_TEST(addresses_are_read_and_refused_by_name)
{
	static const char *const bad[] = {"",         "8080",   ":8080",   "h:",          "h:x",
	                                  "h:123456", "::1:80", "[::1]80", "127.0.0.1:-1"};
	struct http_options o = {.handler = on_request, .app = &app};
	struct http *h = NULL;
	struct err e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		o.listen = bad[i];
		ck_err(http_open(&o, &h, &e), ERR_INPUT, bad[i], &e);
	}
	o.listen = http_url(server) + 7; /* taken */
	ck_err(http_open(&o, &h, &e), ERR_IO, "in use", &e);
	o.listen = "[::1]:0";
	if (http_open(&o, &h, &e)) {
		fixture_skip("listening on ::1", e.msg);
		return;
	}
	ck_assert(http_is_loopback(h));
	ck_assert_ptr_eq(strstr(http_url(h), "http://[::1]:"), http_url(h));
	http_free(h);
}
END_TEST

Suite *http_suite(void);
Suite *http_suite(void)
{
	Suite *s = suite_create("http");
	TCase *t = tcase_create("http");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, path_stays_encoded_and_the_query_is_decoded);
	tcase_add_test(t, malformed_and_repeated_query_parameters_are_marked);
	tcase_add_test(t, head_has_the_headers_alone);
	tcase_add_test(t, a_body_is_taken_up_to_its_limit);
	tcase_add_test(t, a_held_request_is_answered_when_completed_and_others_meanwhile);
	tcase_add_test(t, completion_may_come_before_the_handler_returns);
	tcase_add_test(t, a_client_that_left_while_held_harms_nobody);
	tcase_add_test(t, a_wait_ends_by_its_key_or_its_deadline);
	tcase_add_test(t, no_change_is_lost_between_reading_and_waiting);
	tcase_add_test(t, waits_are_limited_and_a_client_that_left_frees_its_place);
	tcase_add_test(t, stopping_answers_waits_and_held_requests);
	tcase_add_test(t, stopping_waits_for_who_holds_requests);
	tcase_add_test(t, a_stream_sends_what_is_new_and_ends_in_order);
	tcase_add_test(t, a_stream_that_fails_is_cut);
	tcase_add_test(t, a_known_version_is_not_sent_again);
	tcase_add_test(t, addresses_are_read_and_refused_by_name);
	return s;
}
