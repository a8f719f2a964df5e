/* A verdict (eval/gate.h) on its way out of a command: the table, the files that were asked for, the exit status. */
#ifndef FATHOM_SERVER_VERDICT_OUT_H
#define FATHOM_SERVER_VERDICT_OUT_H

#include "engine/json.h"
#include "server/options.h"
#include "server/output.h"

/* Rows of a table of options. */
#define VERDICT_OUT_OPTIONS                                                                                            \
	{"--junit", "FILE", NULL, NULL, "also write the verdict as JUnit XML", 0, NULL},                               \
	    {"--markdown", "FILE", NULL, NULL, "also write it as Markdown, for a comment", 0, NULL},                   \
	{                                                                                                              \
		"--json", "FILE", NULL, NULL, "also write it as JSON", 0, NULL                                         \
	}

struct verdict_out {
	struct output junit, markdown, json;
};

/* Opens the files, before anything is measured. Release *v also after a failure. */
err_code verdict_out_open(struct verdict_out *v, const struct options *o, struct err *e);
void verdict_out_release(struct verdict_out *v);

err_code verdict_out_write(struct verdict_out *v, const struct json *verdict, struct err *e); /* the files */

/* The files when nothing could be judged: a verdict of "error" with the reason. */
err_code verdict_out_write_trouble(struct verdict_out *v, const char *gate, const struct err *why, struct err *e);

err_code verdict_print(const struct json *verdict, struct err *e); /* the table, to stdout */

int verdict_status(const struct json *verdict); /* 0 pass, 1 fail, 2 error, 3 inconclusive */

#endif
