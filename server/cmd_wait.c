/* fathom wait: follows a job over long polls, which outlast a restart of the server, and prints its result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/clock.h"
#include "server/client.h"
#include "server/cmd.h"
#include "server/progress.h"
#include "server/report.h"

#define POLL_S          30  /* of one long poll */
#define SAY_S           29  /* between two lines of a log: less than a long poll */
#define PATIENCE_S      60  /* for a server that went away to come back */
#define MIN_INTERVAL_MS 150 /* between two drawings */

/* -- the bar ----------------------------------------------------------------------------------- */

static void put_count(char out[16], double n)
{
	static const char units[] = " kMGT";
	int u = 0;

	while (n >= 999.5 && units[u + 1]) {
		n /= 1000;
		u++;
	}
	snprintf(out, 16, u ? "%.3g%c" : "%.0f", n, units[u]);
}

static void put_eta(char out[40], const struct json *progress)
{
	double s;

	*out = '\0';
	if (!json_get_number(progress, "eta_s", &s))
		return;
	if (s < 90)
		snprintf(out, 40, "  %.0f s left", s);
	else if (s < 5400)
		snprintf(out, 40, "  %.0f min left", s / 60);
	else
		snprintf(out, 40, "  %.1f h left", s / 3600);
}

/* One line on a terminal, drawn over itself. */
static void draw(const char *what, const struct json *job)
{
	const struct json *progress = json_get(job, "progress");
	const char *state = json_get_string(job, "state"), *waiting = json_get_string(job, "waiting");
	char bar[PROGRESS_BAR + 1], done_text[16], total_text[16], eta[40];
	double done = 0, total = 0;

	json_get_number(progress, "done", &done);
	json_get_number(progress, "total", &total);
	if (total <= 0) {
		fprintf(stderr, "\r\033[K%s%s%s%.100s", what, state ? state : "", waiting ? ": " : "",
		        waiting ? waiting : "");
		return;
	}
	progress_bar(done / total, bar);
	put_count(done_text, done);
	put_count(total_text, total);
	put_eta(eta, progress);
	fprintf(stderr, "\r\033[K%s%s [%s] %3.0f %%  %s of %s tokens%s", what, state ? state : "", bar,
	        done / total * 100, done_text, total_text, eta);
}

/* Where there is no terminal: a line now and then, if it says something new, so that a log does not fall silent; why a
 * job waits is said at once. */
static void tell(const char *what, const struct json *job, struct client_said *said)
{
	const struct json *progress = json_get(job, "progress");
	const char *waiting = json_get_string(job, "waiting");
	char line[sizeof said->line], eta[40];
	double done = 0, total = 0, now_s = clock_mono_s();
	int64_t id = 0;
	int n;

	json_get_integer(job, "id", &id);
	n = snprintf(line, sizeof line, "%.100sjob %lld %s", what, (long long)id, json_get_string(job, "state"));
	json_get_number(progress, "done", &done);
	json_get_number(progress, "total", &total);
	put_eta(eta, progress);
	if (waiting)
		snprintf(line + n, sizeof line - (size_t)n, ": %.200s", waiting);
	else if (total > 0)
		snprintf(line + n, sizeof line - (size_t)n, ": %.0f %%%s", done / total * 100, eta);
	if (said->at_s <= 0)
		said->at_s = now_s;
	if (!strcmp(line, said->line) || (!waiting && now_s - said->at_s < SAY_S))
		return;
	said->at_s = now_s;
	strcpy(said->line, line);
	fprintf(stderr, "%s\n", line);
}

void client_show_job(const char *what, const struct json *job, bool final, struct client_said *said)
{
	bool watch = isatty(STDERR_FILENO);
	int64_t id = 0;

	if (watch && !final)
		draw(what, job);
	else if (!final)
		tell(what, job, said);
	json_get_integer(job, "id", &id);
	if (final)
		fprintf(stderr, "%s%sjob %lld %s%s\n", watch ? "\r\033[K" : "", what, (long long)id,
		        json_get_string(job, "state"),
		        json_is_number(json_get(job, "cached_from")) ? " (from the store)" : "");
}

/* -- following --------------------------------------------------------------------------------- */

/* One look, or one long poll. *job stays NULL when nothing changed. Watching a terminal, any change ends a poll; else
 * only the end. */
static err_code poll_job(struct client *c, int64_t id, bool watch, bool look, char etag[100], struct json **job,
                         struct err *e)
{
	char path[80];
	struct client_request q = {.method = "GET", .path = path, .timeout_s = POLL_S + 30};
	struct client_reply r;
	err_code rc;

	snprintf(path, sizeof path, "/api/v1/jobs/%lld?wait=%d", (long long)id, POLL_S);
	if (look)
		*strchr(path, '?') = '\0';
	else if (watch)
		q.if_none_match = etag;
	rc = client_call(c, &q, &r, e);
	if (!rc && r.status != 304)
		rc = json_parse(buf_str(&r.body), r.body.len, job, e);
	if (!rc)
		snprintf(etag, 100, "%s", r.etag);
	client_reply_release(&r);
	return rc;
}

/* Until the job is final; the last state is the caller's to free. A server that answered once may go away, so the first
 * look does not wait. */
static err_code follow(struct client *c, int64_t id, struct json **last, struct err *e)
{
	bool watch = isatty(STDERR_FILENO), answered = false;
	double lost_s = 0;
	char etag[100] = "";
	struct client_said said = {0};
	struct json *job;
	err_code rc;

	for (;;) {
		job = NULL;
		rc = poll_job(c, id, watch, !answered || (watch && !*etag), etag, &job, e);
		if (rc == ERR_IO && answered && (lost_s <= 0 || clock_mono_s() - lost_s < PATIENCE_S)) {
			lost_s = lost_s > 0 ? lost_s : clock_mono_s();
			*etag = '\0';
			clock_sleep_ms(1000);
			continue;
		}
		if (rc)
			break;
		answered = true;
		lost_s = 0;
		if (!job)
			continue;
		if (watch)
			draw("", job);
		if (client_job_is_final(job))
			break;
		if (watch)
			clock_sleep_ms(MIN_INTERVAL_MS);
		else
			tell("", job, &said);
		json_free(job);
	}
	if (watch && answered)
		fputs("\r\033[K", stderr);
	*last = job;
	return rc;
}

/* -- the end ----------------------------------------------------------------------------------- */

static int print_file(struct client *c, const char *command, int64_t id, const char *suffix)
{
	char path[80];
	struct err e;

	snprintf(path, sizeof path, "/api/v1/jobs/%lld/result.%s", (long long)id, suffix);
	return client_print(c, path, &e) ? cmd_error(command, &e) : 0;
}

static int print_table(const char *command, const struct json *result)
{
	struct buf b = BUF_INIT((size_t)64 << 20);
	struct err e;
	int status = 0;

	if (report_write(result, REPORT_TABLE, &b, &e) || buf_check(&b, "the table", &e))
		status = cmd_error(command, &e);
	else
		fputs(buf_str(&b), stdout);
	buf_release(&b);
	return status;
}

static void print_warnings(const char *command, const struct json *job)
{
	for (const struct json *w = json_first(json_get(job, "warnings")); w; w = json_next(w))
		fprintf(stderr, "fathom %s: warning: %s\n", command, json_string(w) ? json_string(w) : "");
}

/* Says how a job ended that gave no result. */
static int tell_end(const char *command, int64_t id, const struct json *job)
{
	const struct json *error = json_get(job, "error"), *units = json_get(error, "units");
	const char *message = json_get_string(error, "message");
	size_t shown = 0;
	int64_t unit;

	fprintf(stderr, "fathom %s: job %lld %s%s%s", command, (long long)id, json_get_string(job, "state"),
	        message ? ": " : "", message ? message : "");
	for (const struct json *u = json_first(units); u && shown < 20; u = json_next(u))
		if (json_integer(u, &unit))
			fprintf(stderr, "%s%lld", shown++ ? ", " : " (units ", (long long)unit);
	fprintf(stderr, "%s%s\n", json_count(units) > shown ? ", ..." : "", shown ? ")" : "");
	return 1;
}

int client_follow(struct client *c, const char *command, int64_t id, const char *format)
{
	struct json *job = NULL;
	const char *state;
	struct err e;
	int status;

	if (follow(c, id, &job, &e))
		return cmd_error(command, &e);
	print_warnings(command, job);
	state = json_get_string(job, "state");
	if (!state || strcmp(state, "succeeded") != 0)
		status = tell_end(command, id, job);
	else if (!strcmp(format, "table"))
		status = print_table(command, json_get(job, "result"));
	else
		status = print_file(c, command, id, strcmp(format, "markdown") ? format : "md");
	json_free(job);
	return status;
}

static const struct option_spec specs[] = {
    CLIENT_OPTION,
    {"--format", "NAME", NULL, "table", "table, json, csv or markdown", 0, cmd_check_format},
};

int cmd_wait(int argc, char **argv)
{
	struct options *o = NULL;
	struct client *c = NULL;
	struct err e;
	char *end = NULL;
	long long id;
	int help, status;

	if (options_parse(
	        specs, sizeof specs / sizeof *specs, "fathom wait [options] JOB",
	        "Waits until a job has ended and prints its result. Exit status: 0 it succeeded, 1 it failed or\n"
	        "was cancelled, 2 it could not be asked for. Ctrl-C ends the waiting, not the job: fathom cancel\n"
	        "does that.",
	        argc, argv, &o, &help, &e))
		return cmd_error("wait", &e);
	if (help) {
		options_free(o);
		return 0;
	}
	id = options_n_args(o) == 1 ? strtoll(options_arg(o, 0), &end, 10) : 0;
	if (id < 1 || *end) {
		err_set(&e, ERR_INPUT, "one job's number is needed");
		status = cmd_error("wait", &e);
	} else if (client_open(options_get(o, "--server"), &c, &e)) {
		status = cmd_error("wait", &e);
	} else {
		status = client_follow(c, "wait", id, options_get(o, "--format"));
	}
	client_close(c);
	options_free(o);
	return status;
}
