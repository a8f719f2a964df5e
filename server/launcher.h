/* Launchers: from a spec ("cpu", "cuda:0", or a whole command) to what execve needs, and a child on its way there. */
#ifndef FATHOM_SERVER_LAUNCHER_H
#define FATHOM_SERVER_LAUNCHER_H

#include <sys/types.h>

#include "eval/eval.h"

struct launch {
	char **argv, **envp; /* owned, NULL-terminated, all strings too */
};

/* A spec without a space is a device of this machine: SELF worker --device SPEC with the registry's folders.
 * Any other is a command for the shell ("ssh host fathom worker --device cuda:0"), which names its own
 * folders. */
err_code launch_make(const char *spec, const char *self, const struct registry *r, struct launch *out, struct err *e);
/* This program (argv[0] is its path) with the arguments up to a NULL. */
err_code launch_self(const char *const *argv, struct launch *out, struct err *e);
void launch_release(struct launch *l);

/* In a child, after fork: signals as at first, a process group of its own, and on_death sent to it when its parent
 * dies; ends it when that is dead already. Async-signal-safe. */
void launch_detach(int on_death, pid_t parent);

#endif
