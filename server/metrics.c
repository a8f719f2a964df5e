/* /metrics: what the server does, in the text format of Prometheus (version 0.0.4). Gauges are of now; counters are of
 * this process, or, of a worker, of its process: they begin at 0 when that starts again, as Prometheus expects. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/api.h"
#include "server/problem.h"

#define MAX_REPLY ((size_t)1 << 20)

static void put_head(struct buf *b, const char *name, const char *type, const char *help)
{
	buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_number(struct buf *b, const char *name, const char *type, const char *help, double value)
{
	put_head(b, name, type, help);
	buf_printf(b, "%s %.17g\n", name, value);
}

/* A label's value: backslash, quote and line feed are escaped. */
static void put_label(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, "%s=\"", name);
	for (const char *s = value ? value : ""; *s; s++) {
		if (*s == '\n')
			buf_puts(b, "\\n");
		else if (*s == '\\' || *s == '"')
			buf_printf(b, "\\%c", *s);
		else
			buf_putc(b, *s);
	}
	buf_putc(b, '"');
}

/* -- jobs and requests ------------------------------------------------------------------------- */

static err_code put_jobs(struct buf *b, struct store *s, struct err *e)
{
	int64_t n[JOB_N_STATES], tokens_left;

	if (store_job_totals(s, n, &tokens_left, e))
		return e->code;
	put_head(b, "fathom_jobs", "gauge", "Jobs by state.");
	for (int i = 0; i < JOB_N_STATES; i++)
		buf_printf(b, "fathom_jobs{state=\"%s\"} %lld\n", job_state_name((enum job_state)i), (long long)n[i]);
	put_number(b, "fathom_queue_tokens", "gauge", "Tokens that planned jobs have yet to score.",
	           (double)tokens_left);
	return ERR_OK;
}

static void put_run_total(void *arg, const char *gate, const char *outcome, int64_t n)
{
	struct buf *b = arg;

	buf_puts(b, "fathom_gate_runs{");
	put_label(b, "gate", gate);
	buf_putc(b, ',');
	put_label(b, "outcome", outcome);
	buf_printf(b, "} %lld\n", (long long)n);
}

static err_code put_gates(struct buf *b, struct store *s, struct err *e)
{
	put_head(b, "fathom_gate_runs", "gauge", "Runs of gates by verdict, or by state where there is none.");
	return store_run_totals(s, put_run_total, b, e);
}

static void put_requests(struct buf *b, const struct http_stats *s)
{
	uint64_t n = 0;

	put_head(b, "fathom_http_replies_total", "counter", "Replies by class of status.");
	for (int i = 1; i < 6; i++) {
		buf_printf(b, "fathom_http_replies_total{code=\"%dxx\"} %llu\n", i, (unsigned long long)s->replies[i]);
		n += s->replies[i];
	}
	put_head(b, "fathom_http_request_seconds", "summary", "Time from a request's headers to the end of its reply.");
	buf_printf(b, "fathom_http_request_seconds_sum %.17g\nfathom_http_request_seconds_count %llu\n", s->seconds,
	           (unsigned long long)n);
	put_number(b, "fathom_http_open_requests", "gauge", "Requests under way.", (double)s->n_open);
	put_number(b, "fathom_http_waiting_requests", "gauge", "Requests under way that wait for news.",
	           (double)s->n_waiting);
}

/* -- workers ----------------------------------------------------------------------------------- */

static void put_worker_labels(struct buf *b, const char *name, const struct json *worker)
{
	buf_printf(b, "%s{", name);
	put_label(b, "worker", json_get_string(worker, "name"));
	buf_putc(b, ',');
	put_label(b, "device", json_get_string(worker, "device"));
}

static void put_worker_states(struct buf *b, const struct json *workers)
{
	static const char *const states[] = {"starting", "idle", "busy", "backing_off", "unusable"};

	put_head(b, "fathom_worker_state", "gauge", "1 for the state that a worker is in.");
	for (const struct json *k = json_first(workers); k; k = json_next(k)) {
		const char *state = json_get_string(k, "state");

		for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
			put_worker_labels(b, "fathom_worker_state", k);
			buf_printf(b, ",state=\"%s\"} %d\n", states[i], state && !strcmp(state, states[i]));
		}
	}
}

static void put_workers(struct buf *b, const struct json *workers)
{
	static const struct {
		const char *member, *name, *type, *help;
	} numbers[] = {
	    {"done_tokens", "fathom_worker_tokens_total", "counter", "Tokens that a worker's process has read."},
	    {"restarts", "fathom_worker_restarts_total", "counter", "Times that a worker's process was started again."},
	    {"requests", "fathom_worker_requests", "gauge", "Scoring requests that a worker has."},
	    {"memory_bytes", "fathom_worker_memory_bytes", "gauge", "Memory that was free when a worker started."},
	};
	double value;

	put_worker_states(b, workers);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		put_head(b, numbers[i].name, numbers[i].type, numbers[i].help);
		for (const struct json *k = json_first(workers); k; k = json_next(k)) {
			if (!json_get_number(k, numbers[i].member, &value))
				continue;
			put_worker_labels(b, numbers[i].name, k);
			buf_printf(b, "} %.17g\n", value);
		}
	}
}

/* The snapshot as the API gives it. */
static err_code read_workers(struct core *c, struct json **out, struct err *e)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	err_code rc;

	core_write_workers(c, &w, NULL);
	rc = buf_check(&b, "the workers", e);
	if (!rc)
		rc = json_parse(buf_str(&b), b.len, out, e);
	buf_release(&b);
	return rc;
}

/* -- the process ------------------------------------------------------------------------------- */

static void put_process(struct buf *b, const struct store *store)
{
	unsigned long long size, resident;
	struct rusage u;
	struct stat st;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%llu %llu", &size, &resident) == 2)
		put_number(b, "process_resident_memory_bytes", "gauge", "Resident memory of the server.",
		           (double)resident * (double)sysconf(_SC_PAGESIZE));
	if (f)
		fclose(f);
	if (!getrusage(RUSAGE_SELF, &u))
		put_number(b, "process_cpu_seconds_total", "counter", "Processor time of the server.",
		           (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
	if (!stat(store_path(store), &st))
		put_number(b, "fathom_store_bytes", "gauge", "Size of the database, without its log.",
		           (double)st.st_size);
}

void api_metrics(struct http_request *r)
{
	struct api *api = api_of(r);
	struct http_stats stats = http_stats(r);
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json *workers = NULL;
	struct err e;

	put_head(&b, "fathom_info", "gauge", "What runs here.");
	buf_puts(&b, "fathom_info{version=\"" FATHOM_VERSION "\"} 1\n");
	if (put_jobs(&b, api->store, &e) || put_gates(&b, api->store, &e) || read_workers(api->core, &workers, &e)) {
		problem_error(r, &e);
		goto out;
	}
	put_workers(&b, workers);
	put_requests(&b, &stats);
	put_process(&b, api->store);
	if (buf_check(&b, "the metrics", &e)) {
		problem_error(r, &e);
		goto out;
	}
	http_set_header(r, "Cache-Control", "no-store");
	http_send(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
out:
	json_free(workers);
	buf_release(&b);
}
