/* fathom models, datasets and tasks: what a server has, as a table, or one of it as JSON. */
#include <stdio.h>

#include "server/client.h"
#include "server/cmd.h"

static const struct option_spec specs[] = {
    CLIENT_OPTION,
    {"--json", NULL, NULL, NULL, "the server's answer as it is", 0, NULL},
};

static err_code add_model(struct client_table *t, const struct json *m, struct err *e)
{
	const struct json *position = json_get(m, "position"), *error = json_get(m, "error");
	char params[24] = "", context[24] = "", scheme[40] = "";
	double n, factor = 1;

	if (json_get_number(m, "n_params", &n))
		snprintf(params, sizeof params, n >= 1e9 ? "%.2fB" : "%.1fM", n >= 1e9 ? n / 1e9 : n / 1e6);
	if (json_get_number(m, "n_ctx", &n))
		snprintf(context, sizeof context, "%.0f", n);
	if (json_get_number(position, "factor", &factor) && factor > 1)
		snprintf(scheme, sizeof scheme, "%.20s x%.4g", json_get_string(position, "type"), factor);
	else if (json_get_string(position, "type"))
		snprintf(scheme, sizeof scheme, "%.20s", json_get_string(position, "type"));
	return client_table_add(t,
	                        (const char *const[]){json_get_string(m, "name"), scheme, params, context,
	                                              json_get_string(error, "message")},
	                        e);
}

static err_code add_task(struct client_table *t, const struct json *j, struct err *e)
{
	char version[24] = "";
	int64_t n;

	if (json_get_integer(j, "version", &n))
		snprintf(version, sizeof version, "%lld", (long long)n);
	return client_table_add(
	    t, (const char *const[]){json_get_string(j, "name"), version, json_get_string(j, "summary")}, e);
}

static err_code add_dataset(struct client_table *t, const struct json *j, struct err *e)
{
	const char *known_as = json_get_string(j, "known_as");
	char files[24] = "", size[24] = "", known[100] = "";
	int64_t n;
	double bytes;

	if (json_get_integer(j, "files", &n))
		snprintf(files, sizeof files, "%lld", (long long)n);
	if (json_get_number(j, "bytes", &bytes))
		snprintf(size, sizeof size, "%.1f", bytes / 1e6);
	if (known_as)
		snprintf(known, sizeof known, "%.60s, %s", known_as,
		         json_true(json_get(j, "official")) ? "official" : "not the official file");
	return client_table_add(
	    t, (const char *const[]){json_get_string(j, "name"), json_get_string(j, "format"), files, size, known}, e);
}

struct listing {
	const char *command, *usage, *summary, *path;
	bool describes; /* path/NAME is one of them */
	const char *head[5];
	bool right[5];
	size_t n_columns;
	client_add_row *add;
};

static const struct listing models = {
    "models",
    "fathom models [options] [NAME]",
    "Lists a server's models, or describes one as JSON.",
    "/api/v1/models",
    true,
    {"NAME", "POSITIONS", "PARAMETERS", "CONTEXT", "ERROR"},
    {false, false, true, true, false},
    5,
    add_model,
};
static const struct listing datasets = {
    "datasets",
    "fathom datasets [options]\n       fathom datasets fetch [options] [NAME...]",
    "Lists a server's datasets. `fathom datasets fetch` gets known ones from their publishers.",
    "/api/v1/datasets",
    false,
    {"NAME", "FORMAT", "FILES", "MB", "KNOWN AS"},
    {false, false, true, true, false},
    5,
    add_dataset,
};
static const struct listing tasks = {
    "tasks",
    "fathom tasks [options] [NAME]",
    "Lists a server's tasks, or describes one and its parameters as JSON.",
    "/api/v1/tasks",
    true,
    {"NAME", "VERSION", "SUMMARY"},
    {false, true, false},
    3,
    add_task,
};

static err_code print_list(struct client *c, const struct listing *l, struct err *e)
{
	struct client_table t = {.head = l->head, .right = l->right, .n_columns = l->n_columns};

	return client_print_list(c, l->path, &t, l->add, e);
}

static err_code show(struct client *c, const struct listing *l, const struct options *o, struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 14);
	err_code rc;

	buf_puts(&path, l->path);
	if (options_n_args(o) > l->describes) {
		rc = err_set(e, ERR_INPUT, "unexpected argument '%.100s'", options_arg(o, l->describes));
	} else if (options_n_args(o) == 1) {
		buf_putc(&path, '/');
		client_escape(&path, options_arg(o, 0));
		rc = client_print(c, buf_str(&path), e);
	} else {
		rc = options_count(o, "--json") ? client_print(c, l->path, e) : print_list(c, l, e);
	}
	buf_release(&path);
	return rc;
}

static int run(const struct listing *l, int argc, char **argv)
{
	struct options *o = NULL;
	struct client *c = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(specs, sizeof specs / sizeof *specs, l->usage, l->summary, argc, argv, &o, &help, &e))
		return cmd_error(l->command, &e);
	if (!help && (client_open(options_get(o, "--server"), &c, &e) || show(c, l, o, &e)))
		status = cmd_error(l->command, &e);
	client_close(c);
	options_free(o);
	return status;
}

int cmd_models(int argc, char **argv)
{
	return run(&models, argc, argv);
}

int cmd_datasets_list(int argc, char **argv)
{
	return run(&datasets, argc, argv);
}

int cmd_tasks(int argc, char **argv)
{
	return run(&tasks, argc, argv);
}
