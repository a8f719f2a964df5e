/* Judging a run of a gate: everything that its verdict needs is read from the store. For a process of its own
 * (`fathom judge`), since folding the items of large jobs takes seconds. */
#ifndef FATHOM_SERVER_JUDGE_H
#define FATHOM_SERVER_JUDGE_H

#include "engine/json.h"
#include "server/store.h"

/* Writes the event that the core stores (gate_run.c) at the top of w. */
err_code judge_run(struct store *s, int64_t run, struct json_writer *w, struct err *e);

#endif
