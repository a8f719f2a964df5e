/* Gates: named sets of rules over measured results, and the verdict on a model by them (protocols.md section 5). Pure:
 * no files, no SQL, no HTTP; everything that is judged comes in, and a verdict goes out.
 *
 *   gate_parse: a gates.json into a struct gate      evidence_*: a result and its items
 *   gate_judge: a gate, the candidate's evidence, a baseline's and a history into a verdict, as JSON
 *
 * Invariants: no verdict depends on the order of items, of rules or of a baseline's results. A rule passes only on
 * evidence for it: what could not be compared is an error, what cannot be told is inconclusive, never a pass. */
#ifndef FATHOM_EVAL_GATE_H
#define FATHOM_EVAL_GATE_H

#include "eval/eval.h"

/* -- gates ------------------------------------------------------------------------------------- */

enum gate_rule_type {
	RULE_ABSOLUTE,      /* min <= value <= max */
	RULE_RELATIVE,      /* against the baseline, paired by item */
	RULE_SHAPE,         /* one length against another of the same run */
	RULE_HISTORY,       /* against the last k runs that passed */
	RULE_NO_TRUNCATION, /* n_truncated is 0 */
	RULE_THROUGHPUT     /* tokens a second, as a ratio to the baseline's */
};

/* What is measured: the members of a job (POST /api/v1/jobs) but for the model. All strings and JSON of a gate are
 * borrowed from its normalised form. */
struct gate_measure {
	const char *id; /* unique in the gate */
	const struct task *task;
	const char *dataset;       /* NULL: the task makes its own, from its parameters */
	const struct json *params; /* effective: every one */
	const struct json *engine; /* an object, perhaps empty: device, dtype, position */
};

/* Numbers that a rule of this type has not are NaN or 0, strings NULL. */
struct gate_rule {
	const char *name; /* unique in the gate */
	enum gate_rule_type type;
	size_t measure;             /* index into measures */
	const char *metric, *group; /* group NULL: over all */
	int64_t length, over;       /* 0: none; over: the other length of a shape */
	double min, max;            /* absolute; NaN: not bounded there */
	double min_effect; /* relative, history: delta > 0, in the metric's worse direction: of ppl_* a log-ratio,
	                               * of the others a difference, in the metric's unit */
	double confidence; /* relative, shape, history: 0.95 */
	double max_ratio, min_ratio; /* shape; throughput */
	bool paired;                 /* shape: test is "paired", not "point" */
	int64_t k;                   /* history: how many runs; at least 5 */
	bool linear;                 /* history: trend is "linear", not "none" */
};

struct gate {
	const char *name;
	struct gate_measure *measures; /* [n_measures] */
	size_t n_measures;
	struct gate_rule *rules; /* [n_rules] */
	size_t n_rules;
	bool allow_engine_change;
	const char *webhook_url, *webhook_secret_env; /* NULL: none */
	char *text;                                   /* owned: the normalised form */
	struct json *json;                            /* owned: the same, parsed */
};

/* Checks and reads a gate. Its normalised form has every member in a fixed order, with defaults and effective
 * parameters in their places: equal gates are equal bytes, and parse into themselves. ERR_INPUT with a JSON pointer
 * for what is unknown, missing or cannot be judged ("/rules/2/min_effect"). Names of datasets are not looked up. */
err_code gate_parse(const struct json *given, struct gate **out, struct err *e);
err_code gate_parse_text(const char *text, size_t len, struct gate **out, struct err *e);
void gate_free(struct gate *g); /* NULL is fine */

bool gate_needs_baseline(const struct gate *g); /* a rule compares with one */

/* Whether rules compare a metric as a ratio, by the difference of its logarithms: perplexities. */
bool gate_metric_is_log(const char *name);

/* -- evidence ---------------------------------------------------------------------------------- */

struct evidence; /* a measured result: the result object, its items (compact), and what failed */

/* result: a result object (result_write), which may carry what is read here as well: "items", "error" (a job's:
 * {"code","message","units"}), "job", "cached_from". An object with nothing but "error" is a measurement that came to
 * no result. ERR_INPUT names the item and the member that is malformed, or the count of a whole result, of its items or
 * a metric's n, that its items contradict. */
err_code evidence_read(const struct json *result, struct evidence **out, struct err *e);
err_code evidence_parse(const char *text, size_t len, struct evidence **out, struct err *e);
void evidence_free(struct evidence *ev); /* NULL is fine */

/* One item more, as task_items gives it (a line of JSON); an item_fn is a shell around it. */
err_code evidence_add_item(struct evidence *ev, const char *line, size_t len, struct err *e);

/* All items of one that has none, as the text of an array; there is no tree of it: 67,000 are no burden. Checks the
 * counts as evidence_read does. */
err_code evidence_add_items(struct evidence *ev, const char *text, size_t len, struct err *e);

/* A unit of the job that came to no result. Of code "numeric" (a NaN) it fails the rules of its measurement, of any
 * other it is an error of them. */
err_code evidence_add_failure(struct evidence *ev, uint32_t unit, const char *code, const char *message, struct err *e);

/* Where it comes from, for the verdict's "results": ids of jobs, 0: none. */
void evidence_set_job(struct evidence *ev, int64_t job, int64_t cached_from);

const struct json *evidence_result(const struct evidence *ev); /* without items; borrowed */
size_t evidence_n_items(const struct evidence *ev);

/* Whether it was measured with the positions that the measure asks for: its override, or none. */
bool evidence_has_positions(const struct gate_measure *m, const struct evidence *ev);

/* -- verdicts ---------------------------------------------------------------------------------- */

enum gate_verdict { VERDICT_PASS, VERDICT_INCONCLUSIVE, VERDICT_FAIL, VERDICT_ERROR }; /* the worse, the higher */

const char *gate_verdict_name(enum gate_verdict v); /* "pass", "inconclusive", "fail", "error" */
bool gate_verdict_from_name(const char *name, enum gate_verdict *out);

/* A verdict's delta, lower or upper in words, by the metric's name: "0.41 %", "-0.62 percentage points". */
void gate_put_delta(const char *metric, double delta, struct buf *out);

/* Everything borrowed, during the call. */
struct gate_case {
	const struct evidence *const *candidate; /* [gate.n_measures] of each measure, in order; NULL: not measured */
	const char *baseline_name;               /* NULL: no baseline */
	int64_t baseline_version;                /* 0: it has none (a file) */
	const struct evidence *const *baseline;  /* [n_baseline] any order: matched by task, parameters and dataset */
	size_t n_baseline;
	const struct json *tags;  /* an object or NULL: "commit" and "branch" go into the verdict */
	bool allow_engine_change; /* so does the gate's own */

	/* The rule's metric of the last k distinct fingerprints that passed in this gate and branch, measured under the
	 * same protocol as the candidate; oldest first, at most max = k. The candidate is none of them. NULL: none. */
	err_code (*history)(void *arg, const struct gate_rule *rule, double *values, size_t max, size_t *n,
	                    struct err *e);
	void *history_arg;

	bool bootstrap; /* report its bounds beside the others (10,000 resamples); they never decide */
	uint64_t seed;  /* of it, and beside its bounds in the verdict; the commands' is GATE_SEED */
};
#define GATE_SEED 1

/* Writes the verdict object at the top of w. What is wrong with the evidence is in the verdict; the call itself fails
 * only for lack of memory and where history does. */
err_code gate_judge(const struct gate *g, const struct gate_case *c, struct json_writer *w, enum gate_verdict *verdict,
                    struct err *e);

#endif
