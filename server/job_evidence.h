/* A finished job as evidence (eval/gate.h): its result and its items, which are folded from the stored units. */
#ifndef FATHOM_SERVER_JOB_EVIDENCE_H
#define FATHOM_SERVER_JOB_EVIDENCE_H

#include <stdio.h>

#include "eval/gate.h"
#include "server/store_gate.h"

/* A job that failed is evidence of what it came to, with its failures; one that was cancelled or is gone, of that. */
err_code job_evidence_load(struct store *s, int64_t job, struct evidence **out, struct err *e);

/* {"baseline":{"name","version"},"results":[...]}: what `fathom baseline export` writes. version 0: the newest. */
err_code baseline_evidence_write(struct store *s, const char *name, int64_t version, FILE *out, struct err *e);

#endif
