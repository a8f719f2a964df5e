/* Evidence of jobs and baselines: see job_evidence.h. */
#include "server/job_evidence.h"

#include <string.h>

/* Folds a job's items into f. */
static err_code each_item(struct store *s, const struct job *row, item_fn *f, void *arg, struct err *e)
{
	struct unit_cursor *cursor = NULL;
	struct unit_source source = {.next = unit_cursor_next};
	struct json *params = NULL;
	const struct task *task = task_find(row->task, e);
	struct err late;
	err_code rc = task ? json_parse(row->params, strlen(row->params), &params, e) : e->code;

	if (!rc)
		rc = unit_cursor_open(s, row->id, 0, &cursor, e);
	source.arg = cursor;
	if (!rc)
		rc = task_items(task, params, &source, f, arg, e);
	if (cursor && unit_cursor_close(cursor, &late)) {
		*e = late; /* a fold of what could not be read means nothing */
		rc = late.code;
	}
	json_free(params);
	return rc ? err_wrap(e, "job %lld", (long long)row->id) : ERR_OK;
}

/* -- in memory --------------------------------------------------------------------------------- */

struct loading {
	struct evidence *evidence;
	err_code rc;
	struct err *e;
};

static int load_item(void *arg, const char *line, size_t len)
{
	struct loading *l = arg;

	l->rc = evidence_add_item(l->evidence, line, len, l->e);
	return l->rc != ERR_OK;
}

static void load_failure(void *arg, uint32_t unit, bool failed, const char *code, const char *message)
{
	struct loading *l = arg;

	if (failed && !l->rc)
		l->rc = evidence_add_failure(l->evidence, unit, code, message, l->e);
}

/* Of a job without a result: why. */
static err_code load_error(const char *code, const char *message, const char *error, struct evidence **out,
                           struct err *e)
{
	struct buf b = BUF_INIT((size_t)64 << 20);
	struct json_writer w = JSON_WRITER(&b);
	err_code rc;

	json_begin_object(&w, NULL);
	if (error) {
		json_put_raw(&w, "error", error);
	} else {
		json_begin_object(&w, "error");
		json_put_string(&w, "code", code);
		json_put_string(&w, "message", message);
		json_end_object(&w);
	}
	json_end_object(&w);
	rc = buf_check(&b, "a job's error", e);
	if (!rc)
		rc = evidence_parse(buf_str(&b), b.len, out, e);
	buf_release(&b);
	return rc;
}

static err_code load_result(struct store *s, const struct job *row, struct evidence **out, struct err *e)
{
	struct loading l = {.e = e};
	err_code rc = evidence_parse(row->result, strlen(row->result), &l.evidence, e);

	if (!rc)
		rc = each_item(s, row, load_item, &l, e);
	if (l.rc)
		rc = l.rc; /* the fold only knows that it was stopped */
	if (!rc && row->failed_units)
		rc = store_unit_each(s, row->id, load_failure, &l, e);
	if (!rc)
		rc = l.rc;
	if (rc)
		evidence_free(l.evidence);
	else
		*out = l.evidence;
	return rc;
}

err_code job_evidence_load(struct store *s, int64_t job, struct evidence **out, struct err *e)
{
	struct job row = {0};
	char message[200];
	err_code rc = store_job_get(s, job, &row, e);

	if (rc == ERR_NOT_FOUND) {
		snprintf(message, sizeof message, "job %lld was deleted", (long long)job);
		return load_error("not_found", message, NULL, out, e);
	}
	if (rc)
		return rc;
	snprintf(message, sizeof message, "job %lld was cancelled", (long long)job);
	if (row.result)
		rc = load_result(s, &row, out, e);
	else
		rc = load_error("cancelled", message, row.error, out, e);
	if (!rc)
		evidence_set_job(*out, job, row.cached_from);
	job_release(&row);
	return rc;
}

/* -- as text ----------------------------------------------------------------------------------- */

/* The object without its closing brace, which must have members. */
static void put_open(const char *object, FILE *out)
{
	size_t len = strlen(object);

	while (len && object[len - 1] != '}')
		len--;
	fwrite(object, 1, len ? len - 1 : 0, out);
}

/* An imported result with its items. */
static void write_imported(const char *result, const char *items, FILE *out)
{
	put_open(result, out);
	fprintf(out, ",\"items\":%s}", items);
}

struct writing {
	FILE *out;
	bool any;
};

static int write_item(void *arg, const char *line, size_t len)
{
	struct writing *w = arg;

	fputs(w->any ? ",\n" : "\n", w->out);
	w->any = true;
	fwrite(line, 1, len, w->out);
	return ferror(w->out);
}

/* A succeeded job's evidence object: the result, "job", "items". */
static err_code write_job(struct store *s, int64_t job, FILE *out, struct err *e)
{
	struct writing w = {.out = out};
	struct job row = {0};
	err_code rc = store_job_get(s, job, &row, e);

	if (rc)
		return rc;
	if (row.state != JOB_SUCCEEDED) {
		rc = err_set(e, ERR_CONFLICT, "job %lld has no result: it is %s", (long long)job,
		             job_state_name(row.state));
		goto out;
	}
	put_open(row.result, out);
	fprintf(out, ",\"job\":%lld,\"items\":[", (long long)job);
	rc = each_item(s, &row, write_item, &w, e);
	fputs("]}", out);
	if (ferror(out))
		rc = err_errno(e, "cannot write the evidence of job %lld", (long long)job);
out:
	job_release(&row);
	return rc;
}

struct exporting {
	struct store *store;
	FILE *out;
	bool any;
};

static err_code export_result(void *arg, int64_t job, const char *result, const char *items, struct err *e)
{
	struct exporting *x = arg;

	fputs(x->any ? ",\n" : "\n", x->out);
	x->any = true;
	if (job)
		return write_job(x->store, job, x->out, e);
	write_imported(result, items, x->out);
	return ferror(x->out) ? err_errno(e, "cannot write a baseline's evidence") : ERR_OK;
}

err_code baseline_evidence_write(struct store *s, const char *name, int64_t version, FILE *out, struct err *e)
{
	struct exporting x = {.store = s, .out = out};
	struct buf head = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&head);
	struct baseline b = {0};
	err_code rc = store_baseline_get(s, name, version, &b, e);

	if (rc)
		return rc;
	json_begin_object(&w, NULL);
	json_begin_object(&w, "baseline");
	json_put_string(&w, "name", name);
	json_put_int(&w, "version", b.version);
	json_end_object(&w);
	rc = buf_check(&head, "a baseline's name", e);
	fprintf(out, "%s,\"results\":[", buf_str(&head));
	if (!rc)
		rc = store_baseline_evidence(s, name, b.version, export_result, &x, e);
	fputs("\n]}\n", out);
	buf_release(&head);
	baseline_release(&b);
	return rc;
}
