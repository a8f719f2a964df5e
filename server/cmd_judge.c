/* fathom judge, fathom notify: children of `fathom serve` that read its store, do one thing for a run of a gate, and
 * say on one line what came of it (server/gate_run.c). */
#include <stdio.h>
#include <stdlib.h>

#include "eval/wire.h"
#include "server/cmd.h"
#include "server/judge.h"
#include "server/webhook.h"

static err_code check_number(const char *value, struct err *e)
{
	char *end;

	return *value >= '1' && *value <= '9' && strtoll(value, &end, 10) > 0 && !*end
	           ? ERR_OK
	           : err_set(e, ERR_INPUT, "is not a run's number");
}

static const struct option_spec specs[] = {
    {"--data", "DIR", NULL, NULL, "the server's data folder, which is read", 0, NULL},
    {"--run", "N", NULL, NULL, "the run", 0, check_number},
};

typedef err_code child_fn(struct store *s, int64_t run, struct json_writer *w, struct err *e);

static void put_failure(struct buf *line, const struct err *why)
{
	struct json_writer w = JSON_WRITER(line);

	buf_clear(line);
	json_begin_object(&w, NULL);
	json_put_string(&w, "event", "failed");
	json_put_string(&w, "code", err_name(why->code));
	json_put_string(&w, "message", why->msg);
	json_end_object(&w);
}

static int run_child(const char *name, const char *summary, child_fn *f, int argc, char **argv)
{
	struct buf line = BUF_INIT(WIRE_MAX_LINE), usage = BUF_INIT(100);
	struct json_writer w = JSON_WRITER(&line);
	struct options *o = NULL;
	struct store *s = NULL;
	struct err e;
	int help, status = 0;

	buf_printf(&usage, "fathom %s --data DIR --run N", name);
	if (options_parse(specs, sizeof specs / sizeof *specs, buf_str(&usage), summary, argc, argv, &o, &help, &e)) {
		status = cmd_error(name, &e);
		goto out;
	}
	if (help)
		goto out;
	if (options_no_args(o, &e) || !options_get(o, "--data") || !options_get(o, "--run")) {
		fprintf(stderr, "fathom %s: --data and --run are needed, and nothing else\n", name);
		status = 2;
		goto out;
	}
	if (store_open(options_get(o, "--data"), true, &s, &e) ||
	    f(s, strtoll(options_get(o, "--run"), NULL, 10), &w, &e)) {
		put_failure(&line, &e);
		status = 1;
	}
	puts(buf_str(&line));
out:
	store_close(s);
	options_free(o);
	buf_release(&line);
	buf_release(&usage);
	return status;
}

int cmd_judge(int argc, char **argv)
{
	return run_child("judge",
	                 "Judges a run of a gate by what is stored, and prints the verdict. Started by `fathom serve`.",
	                 judge_run, argc, argv);
}

int cmd_notify(int argc, char **argv)
{
	return run_child("notify", "Tells a gate's webhook the verdict of a run. Started by `fathom serve`.",
	                 webhook_notify, argc, argv);
}
