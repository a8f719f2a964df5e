/* GET /api/v1/jobs/{id}/items: a job's items as JSON lines; all, or a page of them: at most `limit`, past the first
 * `skip`, with `correct=false` only the wrong ones. Folding them reads every unit, which may take seconds:
 * api_export. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/problem.h"

#define MAX_PAGE 100000

struct items {
	struct job job; /* owned */
	const struct task *task;
	struct json *params; /* owned */
	const char *correct; /* "true" or "false": only items of which that is so; NULL: all */
	int64_t skip, limit; /* of those; limit 0: all */
	int64_t n_seen;
	FILE *file; /* borrowed */
};

static void items_free(void *arg)
{
	struct items *x = arg;

	job_release(&x->job);
	json_free(x->params);
	free(x);
}

/* -- on the export's thread -------------------------------------------------------------------- */

static bool is_wanted(const struct items *x, const char *line, size_t len)
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

static bool is_page_full(const struct items *x)
{
	return x->limit && x->n_seen >= x->skip + x->limit;
}

/* Stops the fold when the page is full. */
static int write_line(void *arg, const char *line, size_t len)
{
	struct items *x = arg;

	if (!is_wanted(x, line, len) || x->n_seen++ < x->skip)
		return 0;
	return fwrite(line, 1, len, x->file) != len || putc('\n', x->file) == EOF || is_page_full(x);
}

static err_code write_items(void *arg, struct store *store, FILE *out, struct err *e)
{
	struct items *x = arg;
	struct unit_cursor *cursor = NULL;
	struct unit_source source = {.next = unit_cursor_next};
	struct err late;
	err_code rc;

	/* Where an item is a unit, what is skipped is not even parsed. */
	x->n_seen = !x->correct && task_items_are_units(x->task) ? x->skip : 0;
	rc = unit_cursor_open(store, x->job.id, x->n_seen, &cursor, e);
	if (rc)
		return rc;
	x->file = out;
	source.arg = cursor;
	rc = task_items(x->task, x->params, &source, write_line, x, e);
	if (rc == ERR_CANCELLED && is_page_full(x)) {
		e->code = ERR_OK;
		rc = ERR_OK;
	}
	if (unit_cursor_close(cursor, &late) && !rc) {
		*e = late;
		rc = e->code;
	}
	return rc;
}

/* -- on the HTTP thread ------------------------------------------------------------------------ */

static bool read_page(struct http_request *r, struct items *x)
{
	x->correct = http_query(r, "correct");
	if (x->correct && strcmp(x->correct, "true") != 0 && strcmp(x->correct, "false") != 0) {
		problem_query(r, "correct", "correct is '%.40s', not true or false", x->correct);
		return false;
	}
	return api_read_number(r, "limit", 1, MAX_PAGE, &x->limit) &&
	       api_read_number(r, "skip", 0, UINT32_MAX, &x->skip);
}

static err_code prepare(struct items *x, struct http_request *r, struct err *e)
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
	struct api_export export = {.type = "application/x-ndjson", .write = write_items, .arg_free = items_free};
	struct err e;
	struct items *x = mem_zalloc(1, sizeof *x, &e);

	if (!x) {
		problem_error(r, &e);
		return;
	}
	if (!read_page(r, x)) {
		items_free(x);
		return;
	}
	if (prepare(x, r, &e)) {
		items_free(x);
		problem_error(r, &e);
		return;
	}
	snprintf(export.filename, sizeof export.filename, "job-%lld-items.jsonl", (long long)r->id);
	export.arg = x;
	api_export(r, &export);
}
