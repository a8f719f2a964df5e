/* Command-line options: one table a subcommand gives flag, environment variable, default, check and help text. */
#ifndef FATHOM_SERVER_OPTIONS_H
#define FATHOM_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

struct option_spec {
	const char *flag;     /* "--listen" */
	const char *value;    /* "ADDR:PORT" in the help; NULL: a switch */
	const char *env;      /* environment variable that gives it when the flag is absent; NULL: none */
	const char *fallback; /* default; NULL: none */
	const char *help;     /* one line */
	bool repeat;          /* may be given more than once */
	err_code (*check)(const char *value, struct err *e); /* NULL: anything; the message: "is not ..." */
};

/* Values after options_parse: borrowed from argv, the environment or the table. */
struct options;

/* Parses argv[1..) (argv[0] is the subcommand). --help prints `usage`, `summary` and the table to stdout, sets *help
 * and leaves *out NULL. "--flag value" and "--flag=value" both work; "--" ends options. ERR_INPUT names the flag and
 * its value. */
err_code options_parse(const struct option_spec *specs, size_t n_specs, const char *usage, const char *summary,
                       int argc, char **argv, struct options **out, int *help, struct err *e);
void options_free(struct options *o);

const char *options_get(const struct options *o, const char *flag); /* last value, env, default or NULL */
size_t options_count(const struct options *o, const char *flag);
const char *const *options_all(const struct options *o, const char *flag, size_t *n); /* repeatable */
err_code options_no_args(const struct options *o, struct err *e); /* ERR_INPUT naming the first argument, if any */
size_t options_n_args(const struct options *o);
const char *options_arg(const struct options *o, size_t i);

#endif
