/* What a task of examples makes of its data, as text: a model whose tokens are bytes shows it. */
#ifndef FATHOM_TESTS_FIXTURE_EXAMPLES_H
#define FATHOM_TESTS_FIXTURE_EXAMPLES_H

#include "eval/eval.h"
#include "tests/fixture_eval.h"

/* Opens the task with these parameters, as a user gives them, and max_length so that nothing is cut. */
struct evaluation *fixture_examples_open(const struct model *m, const char *task, const char *params, const char *path);

/* "context|choice|choice =gold" as the model reads it, "<P>" being the prefix token. Static storage. */
const char *fixture_example(const struct evaluation *ev, uint32_t unit);

/* "group: items, group: items" in the order of groups. Static storage. */
const char *fixture_groups(const struct evaluation *ev);

#endif
