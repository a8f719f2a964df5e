/* fathom gate: judges a model by the rules of a file. One path for somebody's server and a private one: the gate is
 * posted, a run of it is started and followed, and its verdict becomes a table, files and the exit status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "eval/gate.h"
#include "server/cmd.h"
#include "server/evidence_file.h"
#include "server/gate_client.h"
#include "server/progress.h"
#include "server/verdict_out.h"

#define POLL_S     2  /* of one long poll: Ctrl-C is looked at in between */
#define PATIENCE_S 60 /* for a server that went away to come back */

static const struct option_spec specs[] = {
    {"--gate", "FILE", NULL, NULL, "the rules: a gates.json", 0, NULL},
    {"--model", "DIR|NAME", NULL, NULL, "a model's folder, or its name on the server", 0, NULL},
    {"--baseline", "NAME|FILE", NULL, NULL,
     "what is compared with: a baseline of the server, or a file (.json, .json.gz)", 0, NULL},
    GATE_CLIENT_OPTIONS,
    {"--tag", "KEY=VALUE", NULL, NULL, "a tag of the run; commit and branch are known to the history", 1,
     cmd_check_pair},
    {"--idempotency-key", "KEY", NULL, NULL,
     "asking again with it gives the same run: one for each attempt of a pipeline", 0, NULL},
    {"--no-cache", NULL, NULL, NULL, "measure anew also what the server has measured before", 0, NULL},
    {"--allow-engine-change", NULL, NULL, NULL, "compare across dtypes and kinds of device; the verdict says so", 0,
     NULL},
    VERDICT_OUT_OPTIONS,
    {"--update-baseline", NULL, NULL, NULL, "on a pass, these results become the baseline", 0, NULL},
};

struct run {
	const struct options *options;
	const char *baseline; /* borrowed: --baseline, or its name on the server */
	char *imported;       /* owned, as below: the name that a file got */
	struct buf gate_text;
	struct gate *gate;
	struct verdict_out out;
	struct output update;
	struct gate_client server;
	int64_t id;
	bool replayed;       /* the run is an earlier command's, of the same --idempotency-key */
	bool *told;          /* [gate.n_measures]: that the job ended */
	struct json *answer; /* the run as the server shows it, at its end */
};

static void run_release(struct run *r)
{
	gate_client_release(&r->server);
	verdict_out_release(&r->out);
	output_release(&r->update);
	buf_release(&r->gate_text);
	gate_free(r->gate);
	json_free(r->answer);
	free(r->told);
	free(r->imported);
}

/* -- the request ------------------------------------------------------------------------------- */

static err_code read_gate(struct run *r, const char *path, struct err *e)
{
	if (cmd_read_gate(path, &r->gate_text, &r->gate, e))
		return e->code;
	r->told = mem_zalloc(r->gate->n_measures, sizeof *r->told, e);
	return r->told ? ERR_OK : e->code;
}

/* What would be lost, or cannot be, is said before anything is measured. */
static err_code check_baseline(struct run *r, struct err *e)
{
	const struct options *o = r->options;
	const char *server = options_get(o, "--server");
	bool update = options_count(o, "--update-baseline"), file = r->baseline && evidence_file_named(r->baseline);
	bool keeps = options_get(o, "--store") || (server && strcmp(server, "local") != 0);

	if (!r->baseline && update)
		return err_set(e, ERR_INPUT, "--update-baseline: --baseline says which, and is missing");
	if (!r->baseline && gate_needs_baseline(r->gate))
		return err_set(e, ERR_INPUT, "--baseline is missing: a rule of gate '%.100s' compares with one",
		               r->gate->name);
	if (r->baseline && !file && !keeps && gate_client_is_local(o, options_get(o, "--model")))
		return err_set(e, ERR_INPUT,
		               "--baseline '%.100s': a local server without --store has no baselines; give --store or "
		               "a file (.json, .json.gz)",
		               r->baseline);
	if (file && update)
		return output_open(&r->update, "--baseline", r->baseline, e);
	return ERR_OK;
}

static err_code read_request(struct run *r, struct err *e)
{
	static const char *const needed[] = {"--gate", "--model"};
	const struct options *o = r->options;

	if (verdict_out_open(&r->out, o, e)) {
		verdict_out_release(&r->out);
		r->out = (struct verdict_out){0};
		return e->code;
	}
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (!options_get(o, needed[i]))
			return err_set(e, ERR_INPUT, "%s is missing", needed[i]);
	r->baseline = options_get(o, "--baseline");
	if (options_no_args(o, e) || read_gate(r, options_get(o, "--gate"), e))
		return e->code;
	return check_baseline(r, e);
}

/* -- the run ----------------------------------------------------------------------------------- */

/* posted: the server's answer about the gate. The run is of the version that it names, whatever a pipeline beside this
 * one posts under the same name meanwhile. */
static err_code write_body(struct run *r, const struct json *posted, struct buf *body, struct err *e)
{
	int64_t version;
	struct json_writer w = JSON_WRITER(body);

	json_begin_object(&w, NULL);
	json_put_string(&w, "model", r->server.model);
	if (json_get_integer(posted, "version", &version))
		json_put_int(&w, "gate_version", version);
	if (r->baseline)
		json_put_string(&w, "baseline", r->baseline);
	if (cmd_put_tags(r->options, &w, e))
		return e->code;
	json_put_bool(&w, "cache", !options_count(r->options, "--no-cache"));
	json_put_bool(&w, "allow_engine_change", options_count(r->options, "--allow-engine-change"));
	json_end_object(&w);
	return buf_check(body, "the request", e);
}

/* "/api/v1/gates/NAME/runs", of the gate's own name. */
static err_code put_path(const struct run *r, struct buf *path, struct err *e)
{
	buf_puts(path, "/api/v1/gates/");
	client_escape(path, r->gate->name);
	buf_puts(path, "/runs");
	return buf_check(path, "the path", e);
}

static err_code begin(struct run *r, struct err *e)
{
	struct buf body = BUF_INIT((size_t)1 << 20), path = BUF_INIT((size_t)1 << 12);
	struct json *gate = NULL;
	err_code rc = gate_client_open(r->options, options_get(r->options, "--model"), &r->server, e);

	if (!rc && r->baseline && evidence_file_named(r->baseline)) {
		rc = gate_client_import_file(&r->server, r->baseline, &r->imported, e);
		r->baseline = r->imported;
	}
	if (!rc)
		rc = gate_client_send(&r->server, "POST", "/api/v1/gates", buf_str(&r->gate_text), NULL, &gate, e);
	if (!rc)
		rc = write_body(r, gate, &body, e);
	if (!rc)
		rc = put_path(r, &path, e);
	if (!rc && progress_interrupted())
		rc = err_set(e, ERR_CANCELLED, "interrupted");
	if (!rc)
		rc = client_create(r->server.client, buf_str(&path), buf_str(&body),
		                   options_get(r->options, "--idempotency-key"), &r->id, &r->replayed, e);
	json_free(gate);
	buf_release(&path);
	buf_release(&body);
	return rc;
}

/* The first job that is under way is drawn; each says once that it ended. */
static err_code show(struct run *r, const struct json *run, struct err *e)
{
	const struct json *j = json_first(json_get(run, "jobs"));
	err_code rc = ERR_OK;

	for (size_t i = 0; j && i < r->gate->n_measures && !rc; i++, j = json_next(j)) {
		struct json *job = NULL;
		char what[160];
		int64_t id;

		if (r->told[i] || !json_get_integer(j, "id", &id))
			continue;
		snprintf(what, sizeof what, "%.100s: ", r->gate->measures[i].id);
		rc = gate_client_watch_job(&r->server, id, what, &r->told[i], &job, e);
		json_free(job);
		if (!r->told[i])
			break;
	}
	return rc == ERR_DEVICE ? rc : ERR_OK; /* what else goes wrong here, shows in the run */
}

static bool is_final(const struct json *run)
{
	const char *state = json_get_string(run, "state");

	return state && (!strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled"));
}

/* A server that answered once may be started anew meanwhile. */
static bool may_come_back(const struct run *r, err_code rc, double *lost_s)
{
	if (rc != ERR_IO || r->server.local || progress_interrupted())
		return false;
	if (*lost_s <= 0)
		*lost_s = clock_mono_s();
	if (clock_mono_s() - *lost_s > PATIENCE_S)
		return false;
	clock_sleep_ms(1000);
	return true;
}

/* Of a run that is not seen to its end: what this command began is cancelled. */
static err_code abandon(struct run *r, struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 12);
	struct err ignored;
	char what[40];

	if (r->replayed) {
		struct err why = *e;

		return err_set(e, why.code, "%s; run %lld is an earlier command's, and goes on", why.msg,
		               (long long)r->id);
	}
	snprintf(what, sizeof what, "run %lld", (long long)r->id);
	if (!put_path(r, &path, &ignored)) {
		buf_printf(&path, "/%lld/cancel", (long long)r->id);
		gate_client_abandon(&r->server, buf_str(&path), what, e);
	}
	buf_release(&path);
	return e->code;
}

static err_code follow(struct run *r, struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 12);
	err_code rc = put_path(r, &path, e);
	double lost_s = 0;

	buf_printf(&path, "/%lld?wait=%d", (long long)r->id, POLL_S);
	while (!rc) {
		json_free(r->answer);
		r->answer = NULL;
		rc = client_get(r->server.client, buf_str(&path), &r->answer, e);
		if (rc && may_come_back(r, rc, &lost_s)) {
			rc = ERR_OK;
			continue;
		}
		lost_s = 0;
		if (!rc)
			rc = show(r, r->answer, e);
		if (!rc && is_final(r->answer))
			break;
		if (!rc && progress_interrupted())
			rc = err_set(e, ERR_CANCELLED, "interrupted");
	}
	buf_release(&path);
	return rc ? abandon(r, e) : ERR_OK;
}

/* -- the verdict ------------------------------------------------------------------------------- */

static err_code update_baseline(struct run *r, struct err *e)
{
	struct json *answer = NULL;
	int64_t *ids = NULL;
	size_t n;
	err_code rc = gate_client_job_ids(json_get(r->answer, "jobs"), &ids, &n, e);

	if (!rc && r->update.f)
		rc = gate_client_export_jobs(&r->server, ids, n, &r->update, e);
	else if (!rc)
		rc = gate_client_set_jobs(&r->server, r->baseline, ids, n, &answer, e);
	if (!rc)
		fprintf(stderr, "fathom gate: these results are baseline '%s' now\n",
		        options_get(r->options, "--baseline"));
	json_free(answer);
	free(ids);
	return rc;
}

static void print_log(const struct local *l)
{
	struct buf text = BUF_INIT(1 << 20);

	local_log(l, &text);
	fprintf(stderr, "The last that the local server said:\n%s\n", buf_str(&text));
	buf_release(&text);
}

/* There is no verdict: a CI finds why in the files, too. */
static int tell_trouble(struct run *r, const struct err *why)
{
	const char *path = options_get(r->options, "--gate");
	struct err e;

	cmd_error("gate", why);
	if (r->server.local && (why->code == ERR_IO || why->code == ERR_DEVICE))
		print_log(r->server.local);
	if (verdict_out_write_trouble(&r->out, r->gate ? r->gate->name : path ? path : "", why, &e))
		cmd_error("gate", &e);
	return 2;
}

/* The run is at its end. */
static int report(struct run *r, struct err *e)
{
	const struct json *verdict = json_get(r->answer, "verdict");
	int status;

	if (!json_is_object(verdict)) {
		const char *state = json_get_string(r->answer, "state"), *why = json_get_string(r->answer, "error");

		if (!strcmp(state, "cancelled"))
			err_set(e, ERR_CANCELLED, "run %lld was cancelled by somebody", (long long)r->id);
		else
			err_set(e, ERR_IO, "run %lld failed: %s", (long long)r->id, why ? why : "no reason is given");
		return tell_trouble(r, e);
	}
	if (verdict_print(verdict, e) || verdict_out_write(&r->out, verdict, e))
		return cmd_error("gate", e);
	status = verdict_status(verdict);
	if (status == 0 && options_count(r->options, "--update-baseline") && update_baseline(r, e))
		return cmd_error("gate", e);
	return status;
}

int cmd_gate(int argc, char **argv)
{
	struct run r = {.gate_text = BUF_INIT((size_t)1 << 20)};
	struct options *o = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(
	        specs, sizeof specs / sizeof *specs, "fathom gate --gate FILE --model DIR|NAME [options]",
	        "Measures a model and judges it by the rules of a file. The verdict goes to stdout, progress\n"
	        "to stderr. Exit status: 0 pass, 1 fail, 2 it could not be judged, 3 inconclusive: more items\n"
	        "are needed, and the verdict says how many. SIGINT (Ctrl-C) and SIGTERM cancel what it began on\n"
	        "the server; the status is 2.",
	        argc, argv, &o, &help, &e))
		return cmd_error("gate", &e);
	if (help)
		goto out;
	progress_catch_signals();
	r.options = o;
	status = read_request(&r, &e) || begin(&r, &e) || follow(&r, &e) ? tell_trouble(&r, &e) : report(&r, &e);
out:
	run_release(&r);
	options_free(o);
	return status;
}
