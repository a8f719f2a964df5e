/* A private server: `fathom serve` as a child on a free port of loopback, for commands that work without a server of
 * somebody else's. One path for both: the command talks HTTP to it as to any other. */
#ifndef FATHOM_SERVER_LOCAL_H
#define FATHOM_SERVER_LOCAL_H

#include <stddef.h>

#include "engine/buf.h"

struct local_options {
	const char *model;           /* the model's folder; NULL: nothing is to be evaluated */
	const char *store;           /* a folder, kept (made when it is not there); NULL: a temporary one */
	const char *const *datasets; /* [n_datasets] folders; none: what the environment says */
	size_t n_datasets;
	const char *const *workers; /* [n_workers] specs of `fathom serve --workers`; none: its default */
	size_t n_workers;
};

struct local;

/* Starts it and waits until it listens. The child has a process group of its own, so that Ctrl-C reaches this process
 * alone, and ends in order when this process ends, however it does. ERR_CANCELLED after SIGINT or SIGTERM
 * (progress.h). */
err_code local_start(const struct local_options *o, struct local **out, struct err *e);

const char *local_url(const struct local *l);
const char *local_model(const struct local *l); /* what the server calls the model; NULL without one */

/* Appends the last lines of what the server and its workers said. */
void local_log(const struct local *l, struct buf *out);

/* SIGTERM, and waits for its end; a temporary store is removed. NULL is fine. */
void local_stop(struct local *l);

#endif
