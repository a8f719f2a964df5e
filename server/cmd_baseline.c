/* fathom baseline: what gates compare with, on a server, in a store or in a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "eval/gate.h"
#include "server/cmd.h"
#include "server/evidence_file.h"
#include "server/gate_client.h"
#include "server/progress.h"

#define BASELINES "/api/v1/baselines"
#define POLL_MS   200

static const struct option_spec specs[] = {
    GATE_CLIENT_OPTIONS,
    {"--gate", "FILE", NULL, NULL, "of make: the gates.json whose measurements are made", 0, NULL},
    {"--model", "DIR|NAME", NULL, NULL, "of make: a model's folder, or its name on the server", 0, NULL},
    {"--no-cache", NULL, NULL, NULL, "of make: measure anew also what the server has measured before", 0, NULL},
    {"--json", NULL, NULL, NULL, "of list: the server's answer as it is", 0, NULL},
};

struct call {
	const struct options *options;
	struct gate_client server;
};

/* Arguments after the action. */
static size_t n_args(const struct call *c)
{
	return options_n_args(c->options) - 1;
}

static const char *arg(const struct call *c, size_t i)
{
	return options_arg(c->options, i + 1);
}

static err_code reach(struct call *c, struct err *e)
{
	return gate_client_open(c->options, options_get(c->options, "--model"), &c->server, e);
}

/* -- list -------------------------------------------------------------------------------------- */

static err_code add_row(struct client_table *t, const struct json *baseline, struct err *e)
{
	const struct json *result = json_first(json_get(baseline, "results"));
	char version[24] = "", count[24], when[CLIENT_TIME];
	int64_t n;

	if (json_get_integer(baseline, "version", &n))
		snprintf(version, sizeof version, "%lld", (long long)n);
	snprintf(count, sizeof count, "%zu", json_count(json_get(baseline, "results")));
	return client_table_add(t,
	                        (const char *const[]){json_get_string(baseline, "name"), version, count,
	                                              json_get_string(result, "model"),
	                                              client_time(json_get_string(baseline, "created_at"), when)},
	                        e);
}

static err_code list(struct call *c, struct err *e)
{
	static const char *const head[] = {"NAME", "VERSION", "RESULTS", "MODEL", "CREATED (UTC)"};
	static const bool right[] = {false, true, true, false, false};
	struct client_table t = {.head = head, .right = right, .n_columns = 5};

	if (reach(c, e))
		return e->code;
	if (options_count(c->options, "--json"))
		return client_print(c->server.client, BASELINES, e);
	return client_print_list(c->server.client, BASELINES, &t, add_row, e);
}

/* -- set, import, export, delete --------------------------------------------------------------- */

/* Says which version it is now. */
static err_code tell(const char *name, struct json *answer, err_code rc)
{
	int64_t version = 0;

	if (!rc && json_get_integer(answer, "version", &version))
		printf("baseline %s version %lld\n", name, (long long)version);
	json_free(answer);
	return rc;
}

static err_code set_ids(struct call *c, const int64_t *jobs, size_t n, struct err *e)
{
	struct json *answer = NULL;
	err_code rc = gate_client_set_jobs(&c->server, arg(c, 0), jobs, n, &answer, e);

	return tell(arg(c, 0), answer, rc);
}

static err_code set_jobs(struct call *c, struct err *e)
{
	size_t n = n_args(c) - 1;
	int64_t *jobs = mem_alloc(n, sizeof *jobs, e);
	err_code rc = ERR_OK;

	if (!jobs)
		return e->code;
	for (size_t i = 0; i < n && !rc; i++) {
		const char *word = arg(c, i + 1);
		char *end;

		jobs[i] = strtoll(word, &end, 10);
		if (jobs[i] < 1 || *end)
			rc = err_set(e, ERR_INPUT, "'%.100s' is not a job's number", word);
	}
	if (!rc)
		rc = reach(c, e);
	if (!rc)
		rc = set_ids(c, jobs, n, e);
	free(jobs);
	return rc;
}

/* The results of several files become one list. */
static err_code add_file(const char *path, struct buf *members, struct err *e)
{
	static const char before[] = "{\"results\":[", after[] = "]}"; /* as evidence_file_read writes them */
	struct buf text = BUF_INIT(EVIDENCE_FILE_MAX);
	err_code rc = evidence_file_read(path, &text, e);

	if (!rc) {
		buf_puts(members, members->len ? "," : "\"results\":[");
		buf_append(members, buf_str(&text) + strlen(before), text.len - strlen(before) - strlen(after));
		rc = buf_check(members, path, e);
	}
	buf_release(&text);
	return rc;
}

static err_code import(struct call *c, struct err *e)
{
	struct buf members = BUF_INIT(EVIDENCE_FILE_MAX);
	struct json *answer = NULL;
	err_code rc = ERR_OK;

	for (size_t i = 1; i < n_args(c) && !rc; i++)
		rc = add_file(arg(c, i), &members, e);
	buf_putc(&members, ']');
	if (!rc)
		rc = reach(c, e);
	if (!rc)
		rc = gate_client_set_baseline(&c->server, arg(c, 0), buf_str(&members), &answer, e);
	rc = tell(arg(c, 0), answer, rc);
	buf_release(&members);
	return rc;
}

static void put_name(struct buf *path, const char *name, const char *tail)
{
	buf_puts(path, BASELINES "/");
	client_escape(path, name);
	buf_puts(path, tail);
}

static err_code export(struct call *c, struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 12);
	struct client_request q = {.method = "GET", .timeout_s = 600};
	struct client_reply r = {.body = BUF_INIT(0)};
	struct output out = {0};
	err_code rc = output_open(&out, "FILE", n_args(c) > 1 ? arg(c, 1) : NULL, e);

	if (!rc)
		rc = reach(c, e);
	put_name(&path, arg(c, 0), "/evidence");
	q.path = buf_str(&path);
	if (!rc)
		rc = client_call(c->server.client, &q, &r, e);
	if (!rc && out.f)
		rc = evidence_file_commit(&out, &r.body, e);
	else if (!rc)
		fwrite(buf_str(&r.body), 1, r.body.len, stdout);
	client_reply_release(&r);
	output_release(&out);
	buf_release(&path);
	return rc;
}

static err_code delete (struct call *c, struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 12);
	struct json *answer = NULL;
	err_code rc = reach(c, e);

	put_name(&path, arg(c, 0), "");
	if (!rc)
		rc = gate_client_send(&c->server, "DELETE", buf_str(&path), NULL, NULL, &answer, e);
	json_free(answer);
	buf_release(&path);
	return rc;
}

/* -- make -------------------------------------------------------------------------------------- */

static err_code submit(struct call *c, const struct gate *g, const struct gate_measure *m, int64_t *id, struct err *e)
{
	struct buf body = BUF_INIT((size_t)1 << 20);
	struct json_writer w = JSON_WRITER(&body);
	err_code rc;

	json_begin_object(&w, NULL);
	json_put_string(&w, "model", c->server.model);
	json_put_string(&w, "task", task_name(m->task));
	if (m->dataset)
		json_put_string(&w, "dataset", m->dataset);
	json_put_value(&w, "params", m->params);
	json_put_value(&w, "engine", m->engine);
	json_put_string(&w, "name", g->name);
	json_put_bool(&w, "cache", !options_count(c->options, "--no-cache"));
	json_end_object(&w);
	rc = buf_check(&body, "the request", e);
	if (!rc)
		rc = client_create(c->server.client, "/api/v1/jobs", buf_str(&body), NULL, id, NULL, e);
	buf_release(&body);
	return rc ? err_wrap(e, "measure '%.100s'", m->id) : ERR_OK;
}

static err_code wait_for(struct call *c, const struct gate_measure *m, int64_t id, struct err *e)
{
	bool final = false;
	err_code rc = ERR_OK;
	char what[160];

	snprintf(what, sizeof what, "%.100s: ", m->id);
	while (!rc && !final) {
		struct json *job = NULL;
		const char *state, *why;

		rc = gate_client_watch_job(&c->server, id, what, &final, &job, e);
		state = json_get_string(job, "state");
		why = json_get_string(json_get(job, "error"), "message");
		if (!rc && final && strcmp(state, "succeeded") != 0)
			rc = err_set(e, ERR_IO, "measure '%.100s': job %lld %s%s%s", m->id, (long long)id, state,
			             why ? ": " : "", why ? why : "");
		json_free(job);
		if (!rc && !final && progress_interrupted())
			rc = err_set(e, ERR_CANCELLED, "interrupted");
		if (!rc && !final)
			clock_sleep_ms(POLL_MS);
	}
	return rc;
}

static err_code measure(struct call *c, const struct gate *g, int64_t *jobs, struct err *e)
{
	size_t n = 0, over = 0;
	err_code rc = ERR_OK;
	char path[80], what[40];

	for (; n < g->n_measures && !rc; n += !rc)
		rc = submit(c, g, &g->measures[n], &jobs[n], e);
	for (; over < n && !rc; over += !rc)
		rc = wait_for(c, &g->measures[over], jobs[over], e);
	for (size_t i = over; rc && i < n; i++) {
		snprintf(path, sizeof path, "/api/v1/jobs/%lld/cancel", (long long)jobs[i]);
		snprintf(what, sizeof what, "job %lld", (long long)jobs[i]);
		gate_client_abandon(&c->server, path, what, e);
	}
	return rc;
}

/* Where make puts what it measures; said before anything is. */
static err_code open_target(struct call *c, struct output *file, struct err *e)
{
	const char *name = arg(c, 0), *model = options_get(c->options, "--model");

	if (!options_get(c->options, "--gate") || !model)
		return err_set(e, ERR_INPUT, "%s is missing", model ? "--gate" : "--model");
	if (evidence_file_named(name))
		return output_open(file, "FILE", name, e);
	if (gate_client_is_local(c->options, model) && !options_get(c->options, "--store"))
		return err_set(e, ERR_INPUT,
		               "'%.100s': a local server without --store keeps nothing; give --store or a file (.json, "
		               ".json.gz)",
		               name);
	return ERR_OK;
}

static err_code make(struct call *c, struct err *e)
{
	struct output file = {0};
	struct gate *g = NULL;
	int64_t *jobs = NULL;
	err_code rc = open_target(c, &file, e);

	if (!rc)
		rc = cmd_read_gate(options_get(c->options, "--gate"), NULL, &g, e);
	if (!rc)
		rc = reach(c, e);
	if (rc)
		goto out;
	jobs = mem_zalloc(g->n_measures, sizeof *jobs, e);
	rc = jobs ? measure(c, g, jobs, e) : e->code;
	if (!rc && file.f) {
		rc = gate_client_export_jobs(&c->server, jobs, g->n_measures, &file, e);
		if (!rc)
			printf("baseline %s\n", arg(c, 0));
	} else if (!rc) {
		rc = set_ids(c, jobs, g->n_measures, e);
	}
out:
	free(jobs);
	gate_free(g);
	output_release(&file);
	return rc;
}

/* -- the command ------------------------------------------------------------------------------- */

static const struct action {
	const char *name;
	const char *args; /* as the help has them */
	size_t min, max;  /* how many */
	err_code (*run)(struct call *c, struct err *e);
} actions[] = {
    {"list", "no arguments", 0, 0, list},      {"make", "NAME|FILE", 1, 1, make},
    {"set", "NAME JOB...", 2, 1000, set_jobs}, {"import", "NAME FILE...", 2, 1000, import},
    {"export", "NAME [FILE]", 1, 2, export},   {"delete", "NAME", 1, 1, delete},
};
#define N_ACTIONS (sizeof actions / sizeof *actions)

static const char usage[] = "fathom baseline ACTION [options]";
static const char summary[] =
    "What gates compare with: results under a name, versioned, on a server or in a store, or in a file.\n\n"
    "  list                       the baselines\n"
    "  make NAME|FILE             measures --model as --gate says; SIGINT (Ctrl-C) and SIGTERM cancel that\n"
    "  set NAME JOB...            of jobs that succeeded\n"
    "  import NAME FILE...        of files that make, export or `fathom run --evidence` wrote\n"
    "  export NAME [FILE]         its results and items, to commit beside your code (.json, .json.gz)\n"
    "  delete NAME                with all versions";

static err_code run(struct call *c, struct err *e)
{
	const char *name = options_n_args(c->options) ? options_arg(c->options, 0) : NULL;

	for (size_t i = 0; name && i < N_ACTIONS; i++) {
		const struct action *a = &actions[i];

		if (strcmp(a->name, name) != 0)
			continue;
		if (n_args(c) < a->min || n_args(c) > a->max)
			return err_set(e, ERR_INPUT, "%s takes %s", name, a->args);
		return a->run(c, e);
	}
	return err_set(e, ERR_INPUT, "%s%.100s%s: list, make, set, import, export or delete is needed",
	               name ? "unknown action '" : "no action", name ? name : "", name ? "'" : "");
}

int cmd_baseline(int argc, char **argv)
{
	struct call c = {0};
	struct options *o = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(specs, sizeof specs / sizeof *specs, usage, summary, argc, argv, &o, &help, &e))
		return cmd_error("baseline", &e);
	if (help)
		goto out;
	progress_catch_signals();
	c.options = o;
	if (run(&c, &e))
		status = cmd_error("baseline", &e);
out:
	gate_client_release(&c.server);
	options_free(o);
	return status;
}
