/* A job as it is asked for, checked: everything that can be refused without the model or the dataset's contents, with a
 * pointer to the member that is to blame. */
#ifndef FATHOM_SERVER_JOB_DRAFT_H
#define FATHOM_SERVER_JOB_DRAFT_H

#include "eval/eval.h"
#include "server/store.h"

struct job_draft;

/* body: {"model","task","dataset","params","engine","name","tags","priority","cache"}. Both are borrowed until
 * job_draft_free. */
err_code job_draft_read(const struct registry *registry, const struct json *body, struct job_draft **out,
                        struct err *e);
void job_draft_free(struct job_draft *d); /* NULL is fine */

/* Effective values, with their hash and without an idempotency key; strings are borrowed from the draft. */
struct job_new job_draft_row(const struct job_draft *d);

#endif
