/* Evaluations for the suites: a tiny byte-level model, a task's parameters as text, units run and folded. Every call
 * that should succeed fails the test with its message. */
#ifndef FATHOM_TESTS_FIXTURE_EVAL_H
#define FATHOM_TESTS_FIXTURE_EVAL_H

#include "eval/eval.h"

/* A model of 257 tokens (bytes, and "<|endoftext|>" as EOS) in DIR/name, opened. */
struct model *fixture_eval_model(const char *dir, const char *name, const char *position);

/* Makes the embedding of one byte NaN in DIR/name: whatever reads it fails. Open the model anew. */
void fixture_eval_poison(const char *dir, const char *name, unsigned byte);

struct session *fixture_eval_session(const struct model *m);

struct json *fixture_json(const char *text);

/* Effective parameters of a task, which must be right. json_free it. */
struct json *fixture_params(const struct task *t, const char *given);

/* Results of units, as text, by unit. */
struct fixture_units {
	char **text;  /* [n] owned; NULL: failed or not run */
	char **error; /* [n] owned; the message of a unit that failed */
	uint32_t n;
	uint32_t at; /* cursor of the source */
	uint32_t n_batches;
	struct unit_source source;
};
void fixture_units_init(struct fixture_units *u, uint32_t n);
void fixture_units_release(struct fixture_units *u);
struct unit_source *fixture_units_source(struct fixture_units *u); /* from the first unit */

/* Runs the listed units (NULL: all in order) into u. */
void fixture_run(struct evaluation *ev, struct session *s, const uint32_t *units, uint32_t n, struct fixture_units *u);

/* The folded metrics array, and the items as an array. json_free them. */
struct json *fixture_metrics(const struct task *t, const struct json *params, struct fixture_units *u);
struct json *fixture_items(const struct task *t, const struct json *params, struct fixture_units *u);

/* A metric by name and length (0: any); NULL when absent. */
const struct json *fixture_metric(const struct json *metrics, const char *name, int64_t length);
/* Its member, which must be a number. */
double fixture_member(const struct json *object, const char *key);

#endif
