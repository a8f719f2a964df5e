/* A link is one child process, a worker or a judge, and its three pipes: commands to stdin, events from stdout a line
 * at a time, stderr into our log. It knows lines and bytes, not what they say. Core thread only; never blocks. */
#ifndef FATHOM_SERVER_LINK_H
#define FATHOM_SERVER_LINK_H

#include <poll.h>
#include <sys/types.h>

#include "engine/buf.h"
#include "server/launcher.h"

struct link;

/* Starts the process, in a process group of its own, with a clean signal mask; it is killed when this process dies.
 * `name` stands before its lines in our log. */
err_code link_open(const struct launch *l, const char *name, struct link **out, struct err *e);
/* Kills the group if it lives, waits for the process, closes. NULL is fine. */
void link_close(struct link *l);
pid_t link_pid(const struct link *l);

/* Queues a line (a newline is added). ERR_MEMORY when more than 2 * WIRE_MAX_LINE bytes wait: the worker does
 * not read. */
err_code link_send(struct link *l, const char *line, size_t len, struct err *e);

/* What to poll for (fd -1: nothing); with `pause` its stdout is left alone, so that the worker waits for us. */
#define LINK_FDS 3
void link_poll(const struct link *l, bool pause, struct pollfd fds[LINK_FDS]);
/* Reads and writes what poll allows. */
void link_handle(struct link *l, const struct pollfd fds[LINK_FDS]);

/* The oldest line that was not taken, without its newline and NUL-terminated; NULL: none. It stays until link_take. */
const char *link_line(struct link *l, size_t *len);
void link_take(struct link *l);

/* A fault of the stream, which ends it: a line longer than WIRE_MAX_LINE. NULL: none. */
const char *link_fault(const struct link *l);

void link_shut(struct link *l); /* closes its stdin: a worker then ends */
void link_kill(struct link *l); /* SIGKILL to the group */

/* True once the process has ended and all its lines were taken. Reaps it. */
bool link_ended(struct link *l);
/* After link_ended: "exit status 1", "signal 9 (Killed)", and its last line on stderr. Static storage. */
const char *link_obituary(const struct link *l);

#endif
