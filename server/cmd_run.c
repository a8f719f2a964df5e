/* fathom run: one evaluation in this process, without a server. The same evaluation and the same fold as a job's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/path.h"
#include "eval/eval.h"
#include "server/cmd.h"
#include "server/evidence_file.h"
#include "server/options.h"
#include "server/output.h"
#include "server/progress.h"
#include "server/report.h"

static const struct option_spec specs[] = {
    {"--model", "DIR", NULL, NULL, "the model's folder", 0, NULL},
    {"--task", "NAME", NULL, "pg19", "what to measure; `--task NAME --help` explains its parameters", 0, NULL},
    {"--data", "PATH", NULL, NULL, "the dataset: a file or folder", 0, NULL},
    CMD_RUN_OPTIONS,
    {"--format", "FORMAT", NULL, "table", "table, json, csv or markdown", 0, cmd_check_format},
    {"--items", "FILE", NULL, NULL, "also write the items, one JSON object a line", 0, NULL},
    {"--out", "FILE", NULL, NULL, "write the result there rather than to stdout", 0, NULL},
    {"--evidence", "FILE", NULL, NULL,
     "also write result and items as one object, which a gate can compare with (.json, or .json.gz for gzip)", 0, NULL},
};

/* One run, from the command line to the result. */
struct local_run {
	const struct options *options;
	const char *command; /* "run" */
	const struct task *task;
	struct json *params, *position, *plan; /* owned, as all below */
	struct model *model;
	struct evaluation *ev;
	struct session *session;
	struct place place;
	struct output out, items, evidence;

	char **results;   /* [n_units], NULL where a unit failed */
	uint32_t *failed; /* [n_failed], room for n_units */
	size_t n_failed;
	struct err first_failure;
	size_t cursor; /* of the unit source */
	struct result_stats stats;
};

static void run_release(struct local_run *r)
{
	for (uint32_t i = 0; r->results && i < evaluation_n_units(r->ev); i++)
		free(r->results[i]);
	free(r->results);
	free(r->failed);
	session_close(r->session);
	evaluation_free(r->ev);
	model_free(r->model);
	json_free(r->params);
	json_free(r->position);
	json_free(r->plan);
	output_release(&r->out);
	output_release(&r->items);
	output_release(&r->evidence);
}

/* -- the request ------------------------------------------------------------------------------- */

static err_code read_request(struct local_run *r, const char *task, struct err *e)
{
	const char *position = options_get(r->options, "--position");
	const char *evidence = strcmp(r->command, "run") ? NULL : options_get(r->options, "--evidence");

	if (options_no_args(r->options, e))
		return e->code;
	if (!options_get(r->options, "--model"))
		return err_set(e, ERR_INPUT, "--model is missing");
	r->task = task_find(task, e);
	if (!r->task || cmd_read_params(r->options, r->task, &r->params, e))
		return e->code;
	if (task_check_dataset(r->task, r->params, options_get(r->options, "--data"), e))
		return err_wrap(e, "--data");
	if (position && json_parse(position, strlen(position), &r->position, e))
		return err_wrap(e, "--position");
	if (output_open(&r->out, "--out", options_get(r->options, "--out"), e) ||
	    output_open(&r->items, "--items", options_get(r->options, "--items"), e) ||
	    output_open(&r->evidence, "--evidence", evidence, e))
		return e->code;
	if (output_same(&r->out, &r->items))
		return err_set(e, ERR_INPUT, "--out and --items are one file: '%.200s'", r->out.path);
	if (output_same(&r->evidence, &r->items) || output_same(&r->evidence, &r->out))
		return err_set(e, ERR_INPUT, "--evidence and another output are one file: '%.200s'", r->evidence.path);
	return ERR_OK;
}

/* -- the plan ---------------------------------------------------------------------------------- */

static int plan_tick(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	(void)done;
	(void)total;
	return progress_interrupted();
}

static err_code parse_plan(struct local_run *r, size_t memory, struct err *e)
{
	struct buf text = BUF_INIT((size_t)1 << 30);
	struct json_writer w = JSON_WRITER(&text);
	err_code rc;

	json_begin_object(&w, NULL);
	evaluation_write_plan(r->ev, r->model->name, &r->place, memory, &w);
	json_end_object(&w);
	rc = buf_check(&text, "plan", e);
	if (!rc)
		rc = json_parse(buf_str(&text), text.len, &r->plan, e);
	buf_release(&text);
	return rc;
}

static err_code make_plan(struct local_run *r, struct err *e)
{
	uint32_t n_threads = (uint32_t)strtoul(options_get(r->options, "--threads"), NULL, 10);
	const char *data = options_get(r->options, "--data");
	struct evaluation_watch watch = {.tick = plan_tick};
	char *name = data ? path_name(data, e) : mem_strdup(GENERATED_DATASET, e);
	size_t memory = 0;
	err_code rc = name ? ERR_OK : e->code;

	if (!rc)
		rc = place_init(&r->place, options_get(r->options, "--device"), options_get(r->options, "--dtype"),
		                n_threads, e);
	if (!rc)
		rc = model_open(options_get(r->options, "--model"), r->position, &r->model, e);
	if (!rc)
		rc = model_fingerprint(r->model, e);
	if (!rc)
		rc = evaluation_open(r->model, r->task, r->params, data, name, NULL, &watch, &r->ev, e);
	if (!rc)
		rc = place_fits(&r->place, r->model, evaluation_batch_size(r->ev), 0, &memory, e);
	if (!rc)
		rc = parse_plan(r, memory, e);
	free(name);
	return rc;
}

static void print_warnings(const struct local_run *r)
{
	for (const struct json *s = json_first(json_get(r->plan, "warnings")); s; s = json_next(s))
		fprintf(stderr, "fathom %s: warning: %s\n", r->command, json_string(s));
}

/* -- the run ----------------------------------------------------------------------------------- */

static int unit_done(void *arg, uint32_t unit, const char *result, uint64_t tokens)
{
	struct local_run *r = arg;

	r->results[unit] = strdup(result);
	r->stats.tokens += tokens;
	return !r->results[unit];
}

static void unit_failed(void *arg, uint32_t unit, const struct err *why)
{
	struct local_run *r = arg;

	if (!r->n_failed)
		r->first_failure = *why;
	r->failed[r->n_failed++] = unit;
}

static uint64_t done_tokens(void *arg)
{
	return session_done_tokens(((struct local_run *)arg)->session);
}

static void stop_session(void *arg)
{
	session_stop(((struct local_run *)arg)->session);
}

static err_code score(struct local_run *r, struct err *e)
{
	struct evaluation_sink sink = {.done = unit_done, .failed = unit_failed, .arg = r};
	struct progress progress = {.done = done_tokens,
	                            .stop = stop_session,
	                            .arg = r,
	                            .total = evaluation_tokens(r->ev),
	                            .unit = "tokens",
	                            .full_rate = place_peak_flops(&r->place) / evaluation_flops_per_token(r->ev)};
	struct session_options options = place_session(&r->place);
	struct progress_thread *thread = NULL;
	uint32_t n = evaluation_n_units(r->ev);
	uint32_t *units = mem_alloc(n, sizeof *units, e);
	double begun_s;
	err_code rc;

	r->results = mem_zalloc(n, sizeof *r->results, e);
	r->failed = mem_alloc(n, sizeof *r->failed, e);
	rc = units && r->results && r->failed ? ERR_OK : ERR_MEMORY;
	for (uint32_t i = 0; !rc && i < n; i++)
		units[i] = i;
	if (!rc)
		rc = session_open(r->model, &options, &r->session, e);
	if (!rc)
		rc = progress_start(&progress, &thread, e);
	begun_s = clock_mono_s();
	if (!rc)
		rc = evaluation_run(r->ev, r->session, units, n, &sink, e);
	r->stats.seconds = clock_mono_s() - begun_s;
	progress_stop(thread);
	free(units);
	return rc;
}

/* -- the result -------------------------------------------------------------------------------- */

static const char *next_result(void *arg, uint32_t *unit)
{
	struct local_run *r = arg;

	while (r->cursor < evaluation_n_units(r->ev)) {
		*unit = (uint32_t)r->cursor++;
		if (r->results[*unit])
			return r->results[*unit];
	}
	return NULL;
}

static int write_item(void *arg, const char *line, size_t len)
{
	FILE *f = arg;

	return fwrite(line, 1, len, f) != len || putc('\n', f) == EOF;
}

static err_code write_items(struct local_run *r, struct err *e)
{
	struct unit_source units = {.next = next_result, .arg = r};

	if (!r->items.f)
		return ERR_OK;
	r->cursor = 0;
	if (task_items(r->task, r->params, &units, write_item, r->items.f, e))
		return e->code == ERR_CANCELLED ? err_errno(e, "cannot write '%s'", r->items.path) : e->code;
	return output_commit(&r->items, e);
}

static int add_item(void *arg, const char *line, size_t len)
{
	struct buf *b = arg;

	buf_append(b, line, len);
	buf_putc(b, '\n');
	return b->failed;
}

static err_code write_evidence(struct local_run *r, const struct json *result, struct err *e)
{
	struct buf items = BUF_INIT(EVIDENCE_FILE_MAX), text = BUF_INIT(EVIDENCE_FILE_MAX);
	struct unit_source units = {.next = next_result, .arg = r};
	struct json_writer w = JSON_WRITER(&text);
	err_code rc;

	if (!r->evidence.f)
		return ERR_OK;
	r->cursor = 0;
	rc = task_items(r->task, r->params, &units, add_item, &items, e);
	if (!rc)
		rc = evidence_file_put(&w, NULL, result, buf_str(&items), items.len, e);
	if (!rc)
		rc = buf_check(&text, "the evidence", e);
	if (!rc)
		rc = evidence_file_commit(&r->evidence, &text, e);
	buf_release(&items);
	buf_release(&text);
	return rc;
}

static err_code write_result(struct local_run *r, struct err *e)
{
	struct buf text = BUF_INIT((size_t)1 << 30), report = BUF_INIT((size_t)1 << 30);
	struct json_writer w = JSON_WRITER(&text);
	struct unit_source units = {.next = next_result, .arg = r};
	enum report_format format = REPORT_TABLE;
	struct json *result = NULL;
	err_code rc;

	report_format_from_name(options_get(r->options, "--format"), &format);
	r->cursor = 0;
	r->stats.failed_units = r->failed;
	r->stats.n_failed_units = r->n_failed;
	rc = result_write(&w, r->task, r->params, r->plan, &units, &r->stats, e);
	if (!rc)
		rc = json_parse(buf_str(&text), text.len, &result, e);
	if (!rc)
		rc = report_write(result, format, &report, e);
	if (!rc)
		fwrite(buf_str(&report), 1, report.len, r->out.f ? r->out.f : stdout);
	if (!rc)
		rc = output_commit(&r->out, e);
	if (!rc)
		rc = write_evidence(r, result, e);
	json_free(result);
	buf_release(&text);
	buf_release(&report);
	return rc;
}

/* The result is written whatever becomes of the items. */
static err_code write_outputs(struct local_run *r, struct err *e)
{
	struct err items;
	err_code items_rc = write_items(r, &items), rc = write_result(r, e);

	if (rc || !items_rc)
		return rc;
	*e = items;
	return items_rc;
}

/* What cannot begin is usage or bad input (2); what began and did not end well is a failed evaluation (1). */
static int run(struct local_run *r, const char *task)
{
	struct err e;
	err_code rc = read_request(r, task, &e);

	if (!rc)
		rc = make_plan(r, &e);
	if (rc) {
		cmd_error(r->command, &e);
		return rc == ERR_MEMORY || rc == ERR_CANCELLED || rc == ERR_IO ? 1 : 2;
	}
	print_warnings(r);
	rc = score(r, &e);
	if (!rc)
		rc = write_outputs(r, &e);
	if (!rc && r->n_failed) {
		e = r->first_failure;
		rc = err_wrap(&e, "%zu of %u units failed, the first", r->n_failed, evaluation_n_units(r->ev));
	}
	if (rc)
		cmd_error(r->command, &e);
	return rc ? 1 : 0;
}

int cmd_run_task(const char *command, const char *task, const struct options *o)
{
	struct local_run r = {.options = o, .command = command};
	int status;

	progress_catch_signals();
	status = run(&r, task);
	run_release(&r);
	return status;
}

int cmd_print_task_help(const char *command, const char *task)
{
	struct buf text = BUF_INIT(1 << 20);
	struct err e;
	const struct task *t = task_find(task, &e);

	if (!t)
		return cmd_error(command, &e);
	task_help(t, &text);
	printf("\n%s", buf_str(&text));
	buf_release(&text);
	return 0;
}

/* `--task NAME --help`: the task's own help after the command's. */
static int print_task_help(int argc, char **argv)
{
	const char *name = NULL;

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--task=", 7))
			name = argv[i] + 7;
		else if (!strcmp(argv[i], "--task") && i + 1 < argc)
			name = argv[i + 1];
	}
	return name ? cmd_print_task_help("run", name) : 0;
}

int cmd_run(int argc, char **argv)
{
	struct options *options = NULL;
	struct err e;
	int help, status;

	if (options_parse(specs, sizeof specs / sizeof specs[0], "fathom run --model DIR --data PATH [options]",
	                  "Evaluates one model in this process. The result goes to stdout, progress to stderr.", argc,
	                  argv, &options, &help, &e))
		return cmd_error("run", &e);
	if (help)
		return print_task_help(argc, argv);
	status = cmd_run_task("run", options_get(options, "--task"), options);
	options_free(options);
	return status;
}
