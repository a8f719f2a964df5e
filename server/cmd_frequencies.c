/* fathom frequencies: task frequency_use in this process, like `fathom run`, and its map as an SVG. */
#include "server/cmd.h"
#include "server/options.h"
#include "server/report.h"

#define TASK "frequency_use"

static err_code check_format(const char *value, struct err *e)
{
	enum report_format f;

	if (report_format_from_name(value, &f))
		return ERR_OK;
	return err_set(e, ERR_INPUT, "is not table, json, csv, markdown or svg");
}

static const struct option_spec specs[] = {
    {"--model", "DIR", NULL, NULL, "the model's folder", 0, NULL},
    {"--data", "PATH", NULL, NULL, "texts: a folder of .txt files, one .txt, or a .jsonl", 0, NULL},
    CMD_RUN_OPTIONS,
    {"--format", "FORMAT", NULL, "table", "table (a line a layer), json, csv, markdown, or svg: the map", 0,
     check_format},
    {"--items", "FILE", NULL, NULL, "also write the map of each document, one JSON object a line", 0, NULL},
    {"--out", "FILE", NULL, NULL, "write the result there rather than to stdout", 0, NULL},
};

int cmd_frequencies(int argc, char **argv)
{
	struct options *options = NULL;
	struct err e;
	int help, status;

	if (options_parse(specs, sizeof specs / sizeof specs[0], "fathom frequencies --model DIR --data PATH [options]",
	                  "Maps how much each layer's queries and keys use each frequency of the positions: their mean "
	                  "magnitude.",
	                  argc, argv, &options, &help, &e))
		return cmd_error("frequencies", &e);
	if (help)
		return cmd_print_task_help("frequencies", TASK);
	status = cmd_run_task("frequencies", TASK, options);
	options_free(options);
	return status;
}
