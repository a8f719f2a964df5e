/* Output files of a command: a file appears under its name only when it is whole. What is no regular file (a pipe,
 * /dev/stdout) is written as it comes, and never replaced. */
#ifndef FATHOM_SERVER_OUTPUT_H
#define FATHOM_SERVER_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "engine/err.h"

struct output {
	const char *path; /* borrowed; NULL: not wanted */
	char *target;     /* owned: path, links resolved */
	char *partial;    /* owned: target.partial; NULL: written as it comes */
	FILE *f;          /* owned; NULL: not wanted, or committed */
};

/* For option `flag`; a NULL path is no output. Whatever can be wrong with the path is said here, before anything is
 * computed. */
err_code output_open(struct output *o, const char *flag, const char *path, struct err *e);

/* Whether both would come to lie under one name. */
bool output_same(const struct output *a, const struct output *b);

/* Gives the file its name. What cannot get it is left where it is, and the message says where. */
err_code output_commit(struct output *o, struct err *e);

/* Removes what was not committed. Zeroed is fine. */
void output_release(struct output *o);

#endif
