/* The worker: threads, lines and the queue of commands: see worker.h, and wire.h for the format. */
#include "eval/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/log.h"
#include "eval/wire.h"

#define TICK_MS     250
#define ALIVE_TICKS 8 /* 2 s */

/* -- events ------------------------------------------------------------------------------------ */

void worker_emit(struct worker *w, struct buf *line)
{
	size_t at = 0;
	ssize_t n;

	buf_putc(line, '\n');
	if (line->failed || line->len > WIRE_MAX_LINE) {
		log_error("an event of %zu bytes does not fit a line", line->len);
		_exit(1); /* the server sees a dead worker, rather than half an event */
	}
	pthread_mutex_lock(&w->out_lock);
	while (at < line->len) {
		n = write(w->out_fd, line->data + at, line->len - at);
		if (n < 0 && errno != EINTR)
			_exit(0); /* nobody reads: the same as EOF on stdin */
		at += n > 0 ? (size_t)n : 0;
	}
	pthread_mutex_unlock(&w->out_lock);
	buf_release(line);
}

void worker_emit_failed(struct worker *w, int64_t job, const char *model, const struct err *why)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "failed");
	if (job >= 0)
		json_put_int(&j, "job", job);
	if (model)
		json_put_string(&j, "model", model);
	json_put_string(&j, "code", err_name(why->code));
	json_put_string(&j, "message", why->msg);
	if (why->pointer[0])
		json_put_string(&j, "pointer", why->pointer);
	json_end_object(&j);
	worker_emit(w, &line);
}

void worker_emit_refused(struct worker *w, int64_t request, const struct err *why)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "failed");
	json_put_int(&j, "request", request);
	json_put_string(&j, "code", err_name(why->code));
	json_put_string(&j, "message", why->msg);
	json_end_object(&j);
	worker_emit(w, &line);
}

static void put_signature(struct worker *w, struct json_writer *j, const char *dtype)
{
	struct buf signature = BUF_INIT(4096);
	struct err e;

	if (!engine_signature(w->device.device, dtype, &signature, &e))
		json_put_string(j, dtype, buf_str(&signature));
	buf_release(&signature);
}

static void emit_hello(struct worker *w)
{
	static const char *const dtypes[] = {"f32", "bf16", "f16"};
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "hello");
	json_put_int(&j, "protocol", WIRE_PROTOCOL);
	json_put_string(&j, "version", engine_version());
	json_put_int(&j, "pid", getpid());
	json_begin_object(&j, "device");
	json_put_string(&j, "device", w->device.device);
	json_put_string(&j, "kind", w->device.kind);
	json_put_string(&j, "name", w->device.name);
	json_put_string(&j, "isa", w->device.isa);
	json_put_string(&j, "libraries", w->device.libraries);
	json_put_bool(&j, "bf16", w->device.bf16);
	json_put_uint(&j, "n_threads", w->options->n_threads ? w->options->n_threads : w->device.n_threads);
	json_put_uint(&j, "memory_bytes", w->device.memory_bytes);
	json_end_object(&j);
	json_begin_object(&j, "signatures"); /* the dtypes that this device has */
	for (size_t i = 0; w->has_device && i < sizeof dtypes / sizeof dtypes[0]; i++)
		put_signature(w, &j, dtypes[i]);
	json_end_object(&j);
	json_end_object(&j);
	worker_emit(w, &line);
}

/* Instead of hello: a new process would fare no better. */
static void emit_unusable(struct worker *w, const struct err *why)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct json_writer j = JSON_WRITER(&line);

	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "unusable");
	json_put_string(&j, "code", err_name(why->code));
	json_put_string(&j, "message", why->msg);
	json_end_object(&j);
	worker_emit(w, &line);
}

/* -- the ticker -------------------------------------------------------------------------------- */

uint64_t worker_done_tokens(const struct worker *w)
{
	uint64_t done = w->now.past_tokens;

	for (size_t i = 0; i < WORKER_MAX_SESSIONS; i++)
		done += w->now.sessions[i] ? session_done_tokens(w->now.sessions[i]) : 0;
	return done;
}

static void emit_alive(struct worker *w)
{
	struct buf line = BUF_INIT(4096);
	struct json_writer j = JSON_WRITER(&line);

	pthread_mutex_lock(&w->lock);
	json_begin_object(&j, NULL);
	json_put_string(&j, "event", "alive");
	json_put_uint(&j, "done_tokens", worker_done_tokens(w));
	json_end_object(&j);
	pthread_mutex_unlock(&w->lock);
	worker_emit(w, &line);
}

/* A progress event when the running command has moved since the last one. */
static void emit_progress(struct worker *w, uint64_t *last)
{
	struct buf line = BUF_INIT(4096);
	struct json_writer j = JSON_WRITER(&line);
	uint64_t done;

	pthread_mutex_lock(&w->lock);
	if (w->now.scoring) { /* tokens of requests are not the job's */
		pthread_mutex_unlock(&w->lock);
		return;
	}
	done = w->now.phase == PHASE_RUN ? worker_done_tokens(w) - w->now.base : w->now.done;
	if (done > w->now.total)
		done = w->now.total; /* a batch was done twice: it failed, and its units ran alone */
	if (w->now.phase != PHASE_NONE && done && done != *last) {
		json_begin_object(&j, NULL);
		json_put_string(&j, "event", "progress");
		json_put_int(&j, "job", w->now.command->job);
		json_put_string(&j, "phase", w->now.phase == PHASE_RUN ? "run" : "plan");
		json_put_uint(&j, "done", done);
		json_put_uint(&j, "total", w->now.total);
		json_end_object(&j);
	}
	*last = done;
	pthread_mutex_unlock(&w->lock);
	if (line.len)
		worker_emit(w, &line);
}

static void *tick(void *arg)
{
	struct worker *w = arg;
	uint64_t last = 0;

	for (unsigned n = 1;; n++) {
		clock_sleep_ms(TICK_MS);
		emit_progress(w, &last);
		if (n % ALIVE_TICKS == 0)
			emit_alive(w);
	}
	return NULL;
}

/* -- the reader -------------------------------------------------------------------------------- */

/* A cancel overtakes the queue: it stops what runs, and marks what waits. */
static void cancel(struct worker *w, int64_t job)
{
	pthread_mutex_lock(&w->lock);
	for (struct command *c = w->head; c; c = c->next)
		if (c->job == job)
			c->cancelled = true;
	if (w->now.command && w->now.command->job == job) {
		w->now.command->cancelled = true;
		if (w->now.phase == PHASE_RUN && w->now.running)
			session_stop(w->now.running);
		if (w->now.scoring)
			session_stop(w->now.scoring); /* it begins again once the command has ended */
	}
	pthread_mutex_unlock(&w->lock);
}

static err_code check_command(const struct json *json, struct command *c, struct err *e)
{
	static const struct {
		const char *name;
		bool job, request; /* which number it needs */
	} commands[] = {{"describe", false, false},      {"plan", true, false},     {"run", true, false},
	                {"cancel", true, false},         {"forget", true, false},   {"score", false, true},
	                {"tokenizer_info", false, true}, {"tokenize", false, true}, {"detokenize", false, true}};

	c->job = c->request = -1;
	c->name = json_get_string(json, "cmd");
	if (!c->name)
		return err_set(e, ERR_INPUT, "command: no string 'cmd'");
	json_get_integer(json, "job", &c->job);
	json_get_integer(json, "request", &c->request);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		if (strcmp(c->name, commands[i].name) != 0)
			continue;
		if ((commands[i].job && c->job < 0) || (commands[i].request && c->request < 0))
			return err_set(e, ERR_INPUT, "command '%s': no integer '%s' of at least 0", c->name,
			               commands[i].job ? "job" : "request");
		return ERR_OK;
	}
	return err_set(e, ERR_INPUT, "command '%.100s' is not known", c->name);
}

/* Puts a command into the queue where it belongs. */
static void queue(struct worker *w, struct command *c)
{
	pthread_mutex_lock(&w->lock);
	if (!strcmp(c->name, "score")) {
		*w->scores_tail = c;
		w->scores_tail = &c->next;
		w->n_scores++;
	} else {
		*w->tail = c;
		w->tail = &c->next;
	}
	pthread_cond_signal(&w->ready);
	pthread_mutex_unlock(&w->lock);
}

static void take_line(struct worker *w, const char *line, size_t len)
{
	struct command *c = NULL, checked = {.job = -1, .request = -1};
	struct json *json = NULL;
	struct err e;
	err_code rc = json_parse(line, len, &json, &e);

	if (rc)
		err_wrap(&e, "command");
	if (!rc)
		rc = check_command(json, &checked, &e);
	if (!rc && !strcmp(checked.name, "cancel")) {
		cancel(w, checked.job);
		json_free(json);
		return;
	}
	if (!rc) {
		c = mem_zalloc(1, sizeof *c, &e);
		rc = c ? ERR_OK : ERR_MEMORY;
	}
	if (rc) {
		if (checked.request >= 0)
			worker_emit_refused(w, checked.request, &e);
		else
			worker_emit_failed(w, checked.job, NULL, &e);
		json_free(json);
		return;
	}
	*c = checked;
	c->json = json;
	queue(w, c);
}

/* Lines of at most WIRE_MAX_LINE; of a longer one only its failure is told. EOF: the server is gone. */
static void *read_commands(void *arg)
{
	static char chunk[1 << 16];
	struct err too_long = {.code = ERR_INPUT, .msg = "command: longer than a line may be"};
	struct buf line = BUF_INIT(WIRE_MAX_LINE);
	struct worker *w = arg;
	ssize_t n;

	while ((n = read(0, chunk, sizeof chunk)) != 0) {
		const char *s = chunk, *end, *stop = chunk + (n > 0 ? n : 0);

		if (n < 0 && errno != EINTR)
			break;
		for (; (end = memchr(s, '\n', (size_t)(stop - s))); s = end + 1) {
			buf_append(&line, s, (size_t)(end - s));
			if (line.failed)
				worker_emit_failed(w, -1, NULL, &too_long);
			else if (line.len)
				take_line(w, line.data, line.len);
			buf_clear(&line);
		}
		buf_append(&line, s, (size_t)(stop - s));
	}
	_exit(0);
}

/* -- the loop ---------------------------------------------------------------------------------- */

/* NULL when only requests wait. */
static struct command *next_command(struct worker *w)
{
	struct command *c;

	pthread_mutex_lock(&w->lock);
	while (!w->head && !w->scores)
		pthread_cond_wait(&w->ready, &w->lock);
	c = w->head;
	if (c)
		w->head = c->next;
	if (!w->head)
		w->tail = &w->head;
	w->now.command = c;
	pthread_mutex_unlock(&w->lock);
	return c;
}

/* fd 1 becomes ours alone; whatever a library prints goes to stderr. */
static err_code take_stdout(struct worker *w, struct err *e)
{
	w->out_fd = fcntl(1, F_DUPFD_CLOEXEC, 3);
	if (w->out_fd < 0 || dup2(2, 1) < 0)
		return err_errno(e, "cannot set up the protocol on stdout");
	return ERR_OK;
}

static err_code open_device(struct worker *w, struct err *e)
{
	const char *device = w->options->device;

	w->has_device = strcmp(device, "none") != 0;
	if (w->has_device)
		return place_device(device, &w->device, e);
	strcpy(w->device.device, "none");
	strcpy(w->device.kind, "none");
	return ERR_OK;
}

int worker_main(const struct worker_options *o)
{
	static struct worker w; /* threads outlive any frame: the process ends by _exit */
	pthread_condattr_t monotonic;
	struct command *c;
	pthread_t thread;
	struct err e;

	w.options = o;
	w.tail = &w.head;
	w.scores_tail = &w.scores;
	pthread_mutex_init(&w.lock, NULL);
	pthread_mutex_init(&w.out_lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w.ready, &monotonic);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, SIG_IGN); /* a terminal's Ctrl-C reaches the server too, which decides */
	if (take_stdout(&w, &e)) {
		log_error("worker: %s", e.msg);
		return 2;
	}
	if (open_device(&w, &e)) { /* the event is the whole message: the server tries again and again */
		emit_unusable(&w, &e);
		return 2;
	}
	emit_hello(&w);
	if (pthread_create(&thread, NULL, read_commands, &w) || pthread_create(&thread, NULL, tick, &w)) {
		log_error("worker: cannot start a thread");
		return 1;
	}
	for (;;) {
		c = next_command(&w);
		if (worker_has_scores(&w))
			worker_score(&w, !c);
		if (!c)
			continue;
		worker_do(&w, c);
		pthread_mutex_lock(&w.lock);
		w.now.command = NULL;
		pthread_mutex_unlock(&w.lock);
		json_free(c->json);
		free(c);
	}
}
