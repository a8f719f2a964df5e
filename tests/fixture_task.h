/* One task run from end to end for the suites: opened, scored on one thread, folded. Every call that should succeed
 * fails the test with its message. */
#ifndef FATHOM_TESTS_FIXTURE_TASK_H
#define FATHOM_TESTS_FIXTURE_TASK_H

#include "eval/eval.h"
#include "tests/fixture_eval.h"

struct fixture_outcome {
	struct json *params, *plan, *metrics, *items; /* owned */
	struct fixture_units units;
};

/* params: as a user gives them. path may be NULL for a task that makes its dataset. */
void fixture_task_run(const struct model *m, const char *task, const char *params, const char *path,
                      struct fixture_outcome *out);
/* The same on so many threads, at most so many units at once. */
void fixture_task_run_in(const struct model *m, const char *task, const char *params, const char *path, int n_threads,
                         uint32_t most, struct fixture_outcome *out);
void fixture_outcome_release(struct fixture_outcome *o);

/* Expects that opening is refused with this code and these words. */
void fixture_task_refused(const struct model *m, const char *task, const char *params, const char *path, err_code code,
                          const char *words);

/* Whether a warning of the plan holds these words. */
bool fixture_warned(const struct fixture_outcome *o, const char *words);

/* The item of this number, which must be there. */
const struct json *fixture_item(const struct fixture_outcome *o, size_t i);

/* The summed loss of ids[first..n), scored on their own. */
double fixture_loss(const struct model *m, const uint32_t *ids, uint32_t n, uint32_t first);

#endif
