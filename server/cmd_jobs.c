/* fathom jobs and fathom cancel. */
#include <stdio.h>
#include <string.h>

#include "engine/utf8.h"
#include "server/client.h"
#include "server/cmd.h"
#include "server/report.h"

/* -- jobs -------------------------------------------------------------------------------------- */

static const struct option_spec jobs_specs[] = {
    CLIENT_OPTION,
    {"--state", "NAME", NULL, NULL, "queued, running, cancelling, succeeded, failed or cancelled", 0, NULL},
    {"--model", "NAME", NULL, NULL, "only of this model", 0, NULL},
    {"--task", "NAME", NULL, NULL, "only of this task", 0, NULL},
    {"--tag", "KEY[=VALUE]", NULL, NULL, "only with this tag", 0, NULL},
    {"--limit", "N", NULL, "50", "at most so many", 0, NULL},
    {"--json", NULL, NULL, NULL, "the server's answer as it is", 0, NULL},
};

static void put_query(struct buf *path, const struct options *o)
{
	static const char *const flags[] = {"--limit", "--state", "--model", "--task", "--tag"};

	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		if (!options_get(o, flags[i]))
			continue;
		buf_printf(path, "%c%s=", i ? '&' : '?', flags[i] + 2);
		client_escape(path, options_get(o, flags[i]));
	}
}

#define WHY_MAX 60 /* bytes of why there is no result */

static void put_why(struct buf *out, const char *why)
{
	size_t len = strlen(why);
	bool cut = len > WHY_MAX;

	buf_append(out, why, utf8_valid_prefix(why, cut ? WHY_MAX : len));
	if (cut)
		buf_puts(out, "...");
}

static err_code add_job(struct client_table *t, const struct json *job, struct err *e)
{
	const struct json *progress = json_get(job, "progress");
	char id[24], percent[16] = "", when[CLIENT_TIME];
	double done, total;
	const struct json *headline = json_get(job, "headline");
	const char *waiting = json_get_string(job, "waiting");
	const char *why = waiting ? waiting : json_get_string(json_get(job, "error"), "message");
	struct buf result = BUF_INIT(1000);
	int64_t n = 0;
	err_code rc;

	json_get_integer(job, "id", &n);
	snprintf(id, sizeof id, "%lld", (long long)n);
	if (json_get_number(progress, "done", &done) && json_get_number(progress, "total", &total) && total > 0)
		snprintf(percent, sizeof percent, "%.0f %%", done / total * 100);
	if (json_is_object(headline))
		report_metric(headline, &result);
	else if (why)
		put_why(&result, why);
	rc = client_table_add(t,
	                      (const char *const[]){id, json_get_string(job, "state"), percent,
	                                            json_get_string(job, "model"), json_get_string(job, "task"),
	                                            json_get_string(job, "dataset"),
	                                            result.len ? buf_str(&result) : NULL, json_get_string(job, "name"),
	                                            client_time(json_get_string(job, "created_at"), when)},
	                      e);
	buf_release(&result);
	return rc;
}

static err_code print_jobs(struct client *c, const char *path, struct err *e)
{
	static const char *const head[] = {"ID",      "STATE",  "DONE", "MODEL",        "TASK",
	                                   "DATASET", "RESULT", "NAME", "CREATED (UTC)"};
	static const bool right[] = {true, false, true, false, false, false, false, false, false};
	struct client_table t = {.head = head, .right = right, .n_columns = 9};

	return client_print_list(c, path, &t, add_job, e);
}

int cmd_jobs(int argc, char **argv)
{
	struct buf path = BUF_INIT((size_t)1 << 14);
	struct options *o = NULL;
	struct client *c = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(jobs_specs, sizeof jobs_specs / sizeof *jobs_specs, "fathom jobs [options]",
	                  "Lists a server's jobs, newest first.", argc, argv, &o, &help, &e))
		return cmd_error("jobs", &e);
	if (help)
		goto out;
	buf_puts(&path, "/api/v1/jobs");
	put_query(&path, o);
	if (options_no_args(o, &e) || client_open(options_get(o, "--server"), &c, &e) ||
	    (options_count(o, "--json") ? client_print : print_jobs)(c, buf_str(&path), &e))
		status = cmd_error("jobs", &e);
out:
	client_close(c);
	buf_release(&path);
	options_free(o);
	return status;
}

/* -- cancel ------------------------------------------------------------------------------------ */

static const struct option_spec cancel_specs[] = {CLIENT_OPTION};

static err_code cancel_job(struct client *c, const char *id, struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 12);
	struct client_request q = {.method = "POST"};
	struct client_reply r;
	struct json *job = NULL;
	err_code rc;

	if (!*id || strspn(id, "0123456789") != strlen(id))
		return err_set(e, ERR_INPUT, "'%.100s' is not a job's number", id);
	buf_printf(&path, "/api/v1/jobs/%s/cancel", id);
	q.path = buf_str(&path);
	rc = client_call(c, &q, &r, e);
	if (!rc && !(rc = json_parse(buf_str(&r.body), r.body.len, &job, e)))
		printf("job %s is %s\n", id, json_get_string(job, "state"));
	json_free(job);
	client_reply_release(&r);
	buf_release(&path);
	return rc;
}

int cmd_cancel(int argc, char **argv)
{
	struct options *o = NULL;
	struct client *c = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(cancel_specs, 1, "fathom cancel [options] JOB...",
	                  "Cancels jobs, also while they run; what was computed stays.", argc, argv, &o, &help, &e))
		return cmd_error("cancel", &e);
	if (help)
		goto out;
	if (!options_n_args(o)) {
		err_set(&e, ERR_INPUT, "a job's number is needed");
		status = cmd_error("cancel", &e);
	} else if (client_open(options_get(o, "--server"), &c, &e)) {
		status = cmd_error("cancel", &e);
	}
	for (size_t i = 0; c && i < options_n_args(o); i++)
		if (cancel_job(c, options_arg(o, i), &e))
			status = cmd_error("cancel", &e);
out:
	client_close(c);
	options_free(o);
	return status;
}
