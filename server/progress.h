/* Progress on stderr, from a thread of its own: a bar when stderr is a terminal, else a line now and then. The same
 * thread turns SIGINT and SIGTERM into a call. */
#ifndef FATHOM_SERVER_PROGRESS_H
#define FATHOM_SERVER_PROGRESS_H

#include <stdint.h>

#include "engine/err.h"

struct progress {
	uint64_t (*done)(void *arg); /* from the progress thread */
	void (*stop)(void *arg);     /* once, from the progress thread, after SIGINT or SIGTERM */
	void *arg;
	uint64_t total;
	const char *unit; /* "tokens" */
	double full_rate; /* units a second at the device's peak; 0: not known */
};

/* A bar of this share, 0 to 1. */
#define PROGRESS_BAR 30
void progress_bar(double part, char out[PROGRESS_BAR + 1]);

/* Catches SIGINT and SIGTERM from now on; a second one kills. And SIGPIPE: that nobody reads its progress any more does
 * not end a long run. */
void progress_catch_signals(void);
int progress_interrupted(void); /* the signal, or 0 */

struct progress_thread;
err_code progress_start(const struct progress *p, struct progress_thread **out, struct err *e); /* p lives on */
void progress_stop(struct progress_thread *t); /* clears the bar; NULL is fine */

#endif
