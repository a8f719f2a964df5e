/* GET /api/v1/jobs/{id}/items: a job's items as JSON lines; all, or a page of them: at most `limit`, past the first
 * `skip`, with `correct=false` only the wrong ones. Folding them reads every unit, which may take seconds, so a
 * short-lived thread with its own read-only connection writes them to an unlinked file, and the file is then sent. (A
 * cursor held open over a slow download would pin the HTTP thread's view of the database.) */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/api.h"
#include "server/problem.h"

#define MAX_EXPORTS 2
#define MAX_PAGE    100000

struct export
{
	struct http_request *r; /* borrowed: suspended until the thread is done with everything here */
	struct api *api;        /* borrowed */
	struct job job;         /* owned */
	const struct task *task;
	struct json *params;  /* owned */
	const char *correct;  /* "true" or "false": only items of which that is so; NULL: all */
	uint64_t skip, limit; /* of those; limit 0: all */
	uint64_t n_seen;
	pthread_t thread;
	bool started;
	FILE *file; /* owned */
	struct err err;
};

static void export_free(void *state)
{
	struct export *x = state;

	if (x->started) { /* also when the client left meanwhile, and nobody asks for the file */
		pthread_join(x->thread, NULL);
		x->api->n_exports--;
	}
	if (x->file)
		fclose(x->file);
	job_release(&x->job);
	json_free(x->params);
	free(x);
}

/* -- on the export's thread -------------------------------------------------------------------- */

static FILE *open_unlinked(const char *dir, struct err *e)
{
	char *path = NULL;
	FILE *f = NULL;
	int fd;

	if (asprintf(&path, "%s/export-XXXXXX", dir) < 0) {
		err_set(e, ERR_MEMORY, "out of memory");
		return NULL;
	}
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		err_errno(e, "cannot write %s", path);
	} else {
		unlink(path);
		f = fdopen(fd, "w+");
		if (!f) {
			err_errno(e, "fdopen");
			close(fd);
		}
	}
	free(path);
	return f;
}

static bool is_wanted(const struct export *x, const char *line, size_t len)
{
	struct json *item = NULL;
	const struct json *correct;
	struct err ignored;
	bool wanted;

	if (!x->correct)
		return true;
	if (json_parse(line, len, &item, &ignored))
		return false;
	correct = json_get(item, "correct");
	wanted = json_is_bool(correct) && json_true(correct) == !strcmp(x->correct, "true");
	json_free(item);
	return wanted;
}

static bool is_page_full(const struct export *x)
{
	return x->limit && x->n_seen >= x->skip + x->limit;
}

/* Stops the fold when the page is full. */
static int write_line(void *arg, const char *line, size_t len)
{
	struct export *x = arg;

	if (!is_wanted(x, line, len) || x->n_seen++ < x->skip)
		return 0;
	return fwrite(line, 1, len, x->file) != len || putc('\n', x->file) == EOF || is_page_full(x);
}

static err_code write_items(struct export *x, struct err *e)
{
	struct store *store = NULL;
	struct unit_cursor *cursor = NULL;
	struct unit_source source = {.next = unit_cursor_next};
	struct err late;
	err_code rc = store_open(x->api->data_dir, true, &store, e);

	if (!rc)
		rc = unit_cursor_open(store, x->job.id, &cursor, e);
	source.arg = cursor;
	if (!rc)
		rc = task_items(x->task, x->params, &source, write_line, x, e);
	if (rc == ERR_CANCELLED && is_page_full(x)) {
		e->code = ERR_OK;
		rc = ERR_OK;
	}
	if (cursor && unit_cursor_close(cursor, &late) && !rc) {
		*e = late;
		rc = e->code;
	}
	store_close(store);
	if (!rc && (ferror(x->file) || fflush(x->file)))
		rc = err_errno(e, "cannot write the items of job %lld", (long long)x->job.id);
	return rc;
}

static void *export_main(void *arg)
{
	struct export *x = arg;

	x->file = open_unlinked(x->api->data_dir, &x->err);
	if (x->file)
		write_items(x, &x->err);
	http_complete(x->r); /* the last use of x here */
	return NULL;
}

/* -- on the HTTP thread ------------------------------------------------------------------------ */

static void exported(struct http_request *r)
{
	struct export *x = r->state;
	int fd = -1;
	off_t size = 0;

	if (!x->err.code) {
		size = ftello(x->file);
		fd = dup(fileno(x->file));
		if (fd < 0)
			err_errno(&x->err, "cannot send the items of job %lld", (long long)r->id);
	}
	if (x->err.code) {
		problem_error(r, &x->err);
		return;
	}
	http_set_header(r, "Content-Disposition", "inline; filename=\"job-%lld-items.jsonl\"", (long long)r->id);
	http_send_file(r, "application/x-ndjson", fd, (uint64_t)size);
}

/* A query parameter that is a number from `min` to `max`; absent: *out stays. */
static bool read_number(struct http_request *r, const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *text = http_query(r, name);

	if (!text)
		return true;
	if (*text && strspn(text, "0123456789") == strlen(text) && strlen(text) <= 15) {
		*out = strtoull(text, NULL, 10);
		if (*out >= min && *out <= max)
			return true;
	}
	problem_query(r, name, "%s is '%.40s', not a number from %llu to %llu", name, text, (unsigned long long)min,
	              (unsigned long long)max);
	return false;
}

static bool read_page(struct http_request *r, struct export *x)
{
	x->correct = http_query(r, "correct");
	if (x->correct && strcmp(x->correct, "true") != 0 && strcmp(x->correct, "false") != 0) {
		problem_query(r, "correct", "correct is '%.40s', not true or false", x->correct);
		return false;
	}
	return read_number(r, "limit", 1, MAX_PAGE, &x->limit) && read_number(r, "skip", 0, UINT32_MAX, &x->skip);
}

static err_code export_prepare(struct export *x, struct http_request *r, struct err *e)
{
	if (store_job_get(api_of(r)->store, r->id, &x->job, e))
		return e->code;
	if (!job_state_final(x->job.state))
		return err_set(e, ERR_CONFLICT, "job %lld is %s: its items are there when it has finished",
		               (long long)r->id, job_state_name(x->job.state));
	x->task = task_find(x->job.task, e);
	if (!x->task)
		return err_wrap(e, "job %lld", (long long)r->id);
	return json_parse(x->job.params, strlen(x->job.params), &x->params, e);
}

void api_items(struct http_request *r)
{
	struct err e;
	struct export *x;

	if (api_of(r)->n_exports >= MAX_EXPORTS) {
		problem_send(r, 503, "%d exports are being written already", MAX_EXPORTS);
		return;
	}
	x = mem_zalloc(1, sizeof *x, &e);
	if (!x) {
		problem_error(r, &e);
		return;
	}
	x->r = r;
	x->api = api_of(r);
	r->state = x;
	r->state_free = export_free;
	if (!read_page(r, x))
		return;
	if (export_prepare(x, r, &e)) {
		problem_error(r, &e);
		return;
	}
	http_suspend(r, exported);
	x->started = !pthread_create(&x->thread, NULL, export_main, x);
	if (x->started) {
		api_of(r)->n_exports++;
	} else {
		err_set(&x->err, ERR_IO, "cannot start a thread");
		http_complete(r);
	}
}
