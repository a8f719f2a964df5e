/* fathom generate: the dataset that a task makes from its parameters, as text. `fathom run` with the same parameters
 * and no --data evaluates on the very same. */
#include <stdio.h>

#include "server/cmd.h"
#include "server/options.h"
#include "server/output.h"

static const struct option_spec specs[] = {
    {"--task", "NAME", NULL, NULL, "a task that makes a dataset: indirect_indexing", 0, NULL},
    {"--set", "KEY=VALUE", NULL, NULL, "a parameter of the task (`fathom run --task NAME --help` explains them)", 1,
     NULL},
    {"--out", "FILE", NULL, NULL, "write it there rather than to stdout", 0, NULL},
};

static err_code write_text(const char *path, const struct buf *text, struct err *e)
{
	struct output out = {0};
	err_code rc = output_open(&out, "--out", path, e);

	if (!rc && fwrite(text->data, 1, text->len, path ? out.f : stdout) != text->len)
		rc = err_errno(e, "cannot write to %s", path ? path : "stdout");
	if (!rc)
		rc = output_commit(&out, e);
	output_release(&out);
	return rc;
}

static err_code generate(const struct options *o, struct err *e)
{
	const char *name = options_get(o, "--task");
	struct buf text = BUF_INIT((size_t)1 << 30);
	struct json *params = NULL;
	const struct task *t;
	err_code rc = options_no_args(o, e);

	if (rc)
		return rc;
	if (!name)
		return err_set(e, ERR_INPUT, "--task is missing");
	t = task_find(name, e);
	if (!t)
		return e->code;
	rc = cmd_read_params(o, t, &params, e);
	if (!rc)
		rc = task_generate(t, params, &text, e);
	if (!rc)
		rc = write_text(options_get(o, "--out"), &text, e);
	json_free(params);
	buf_release(&text);
	return rc;
}

int cmd_generate(int argc, char **argv)
{
	struct options *options = NULL;
	struct err e;
	int help;
	err_code rc = options_parse(
	    specs, sizeof specs / sizeof specs[0], "fathom generate --task NAME --set KEY=VALUE... [--out FILE]",
	    "Prints the dataset that a task makes from its parameters.", argc, argv, &options, &help, &e);

	if (!rc && help)
		return 0;
	if (!rc)
		rc = generate(options, &e);
	options_free(options);
	return rc ? cmd_error("generate", &e) : 0;
}
