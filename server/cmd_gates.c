/* fathom gates: a server's gates with the last verdict of each branch, or the runs of one. */
#include <stdio.h>
#include <string.h>

#include "server/client.h"
#include "server/cmd.h"

static const struct option_spec specs[] = {
    CLIENT_OPTION,
    {"--branch", "NAME", NULL, NULL, "only runs of this branch", 0, NULL},
    {"--limit", "N", NULL, "50", "at most so many runs", 0, NULL},
    {"--json", NULL, NULL, NULL, "the server's answer as it is", 0, NULL},
};

/* A row a branch; one without, of a gate that was never run. */
static err_code add_gate(struct client_table *t, const struct json *gate, struct err *e)
{
	const struct json *branch = json_first(json_get(gate, "branches"));
	char version[24] = "", run[24], when[CLIENT_TIME];
	int64_t n;

	if (json_get_integer(gate, "version", &n))
		snprintf(version, sizeof version, "%lld", (long long)n);
	do {
		*run = '\0';
		if (json_get_integer(branch, "run", &n))
			snprintf(run, sizeof run, "%lld", (long long)n);
		if (client_table_add(
		        t,
		        (const char *const[]){json_get_string(gate, "name"), version, json_get_string(branch, "branch"),
		                              run, json_get_string(branch, "verdict"), json_get_string(branch, "model"),
		                              json_get_string(branch, "commit"),
		                              client_time(json_get_string(branch, "at"), when)},
		        e))
			return e->code;
		branch = branch ? json_next(branch) : NULL;
	} while (branch);
	return ERR_OK;
}

static err_code add_run(struct client_table *t, const struct json *run, struct err *e)
{
	const struct json *tags = json_get(run, "tags"), *baseline = json_get(run, "baseline");
	const char *outcome = json_get_string(run, "outcome"), *name;
	char id[24] = "", against[120] = "", when[CLIENT_TIME];
	int64_t n;

	if (json_get_integer(run, "id", &n))
		snprintf(id, sizeof id, "%lld", (long long)n);
	name = json_get_string(baseline, "name");
	if (name && json_get_integer(baseline, "version", &n))
		snprintf(against, sizeof against, "%.90s %lld", name, (long long)n);
	return client_table_add(t,
	                        (const char *const[]){id, json_get_string(run, "state"), outcome,
	                                              json_get_string(run, "model"), against,
	                                              json_get_string(tags, "branch"), json_get_string(tags, "commit"),
	                                              client_time(json_get_string(run, "created_at"), when)},
	                        e);
}

static err_code print_gates(struct client *c, const char *path, struct err *e)
{
	static const char *const head[] = {"GATE",    "VERSION", "BRANCH", "RUN",
	                                   "VERDICT", "MODEL",   "COMMIT", "AT (UTC)"};
	static const bool right[] = {false, true, false, true, false, false, false, false};
	struct client_table t = {.head = head, .right = right, .n_columns = 8};

	return client_print_list(c, path, &t, add_gate, e);
}

static err_code print_runs(struct client *c, const char *path, struct err *e)
{
	static const char *const head[] = {"RUN",      "STATE",  "VERDICT", "MODEL",
	                                   "BASELINE", "BRANCH", "COMMIT",  "CREATED (UTC)"};
	static const bool right[] = {true, false, false, false, false, false, false, false};
	struct client_table t = {.head = head, .right = right, .n_columns = 8};

	return client_print_list(c, path, &t, add_run, e);
}

static err_code show(struct client *c, const struct options *o, struct err *e)
{
	const char *gate = options_n_args(o) ? options_arg(o, 0) : NULL, *branch = options_get(o, "--branch");
	struct buf path = BUF_INIT((size_t)1 << 14);
	err_code rc;

	if (options_n_args(o) > 1)
		return err_set(e, ERR_INPUT, "unexpected argument '%.100s'", options_arg(o, 1));
	if (!gate && branch)
		return err_set(e, ERR_INPUT, "--branch is of one gate's runs, and no gate is named");
	buf_puts(&path, "/api/v1/gates");
	if (gate) {
		buf_putc(&path, '/');
		client_escape(&path, gate);
		buf_puts(&path, "/runs?limit=");
		client_escape(&path, options_get(o, "--limit"));
		buf_puts(&path, branch ? "&branch=" : "");
		client_escape(&path, branch ? branch : "");
	}
	rc = (options_count(o, "--json") ? client_print : gate ? print_runs : print_gates)(c, buf_str(&path), e);
	buf_release(&path);
	return rc;
}

int cmd_gates(int argc, char **argv)
{
	struct options *o = NULL;
	struct client *c = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(
	        specs, sizeof specs / sizeof *specs, "fathom gates [options] [GATE]",
	        "Lists a server's gates with the last verdict of each branch, or the runs of one, newest first.", argc,
	        argv, &o, &help, &e))
		return cmd_error("gates", &e);
	if (!help && (client_open(options_get(o, "--server"), &c, &e) || show(c, o, &e)))
		status = cmd_error("gates", &e);
	client_close(c);
	options_free(o);
	return status;
}
