/* Private to the gate files: metrics as rules know them, evidence as it is held, and what a rule came to. */
#ifndef FATHOM_EVAL_GATE_PRIVATE_H
#define FATHOM_EVAL_GATE_PRIVATE_H

#include "eval/choice.h"
#include "eval/gate.h"
#include "eval/paired.h"

/* -- rules ------------------------------------------------------------------------------------- */

/* Reads the rules of a gate that has its measures; and one, as a member of an open array of its normal form. */
err_code gate_rules_read(struct gate *g, const struct json *list, struct err *e);
void gate_rule_write(const struct gate *g, const struct gate_rule *r, struct json_writer *w);
/* Begins an object with what the rule is of: name, type, measure, and where they are metric, length, over, group. */
void gate_rule_begin(const struct gate *g, const struct gate_rule *r, struct json_writer *w);

/* -- metrics ----------------------------------------------------------------------------------- */

/* What a loss is divided by. The last two are a mean over items: of a document's own ratio, of the loss itself. */
enum metric_weight { BY_TOKENS, BY_BYTES, BY_WORDS, BY_OWN_TOKENS, BY_ITEMS };

/* How a metric is compared item by item. */
struct gate_metric {
	const char *name;
	bool fraction; /* right or wrong; else a loss */
	int norm;      /* fraction: NORM_*, index into evidence_item.right */
	enum metric_weight weight;
	double scale;          /* that the weight is multiplied by */
	bool log_ratio;        /* a perplexity: differences are of its logarithm */
	bool higher_is_better; /* a worsening is a fall */
	const char *unit;      /* of a difference: "nats/token"; NULL: per cent, or percentage points */
};

/* NULL: it has no paired comparison. */
const struct gate_metric *gate_metric_find(const char *name);

/* -- evidence ---------------------------------------------------------------------------------- */

enum { RIGHT_UNKNOWN = -1, RIGHT_NO, RIGHT_YES };

/* Numbers that an item does not carry are NaN. */
struct evidence_item {
	uint64_t key;
	bool has_key;
	bool broken; /* its loss is null: it turned NaN */
	int8_t right[N_NORMS];
	int32_t gold;        /* -1: none */
	uint32_t group, doc; /* offsets into names; 0: "" */
	int64_t length;      /* 0: none */
	double loss;         /* nats: of a document, or of the first continuation */
	double n_tokens, n_bytes, n_words;
};

/* Units that came to no result, or the whole measurement: in a class of its own what turned NaN. */
struct failures {
	size_t n;      /* units */
	uint32_t unit; /* the first of them, where n > 0 */
	char *why;     /* owned: the first's message; NULL: none failed */
};

struct evidence {
	struct json *result;         /* owned: without items */
	struct evidence_item *items; /* [n] owned */
	size_t n, cap;
	struct buf names;    /* strings of the items, each with its NUL; the first is "" */
	uint32_t last_group; /* offset: groups come in runs */
	struct failures numeric, other;
	bool told;       /* failures stand as evidence_add_failure told them, not as the result's "error" has them */
	bool ties_wrong; /* of the task's parameters */
	int64_t job, cached_from;
};

static inline const char *evidence_name(const struct evidence *ev, uint32_t at)
{
	return ev->names.data + at;
}

/* result_metric of its result. */
const struct json *evidence_metric(const struct evidence *ev, const char *name, int64_t length, const char *group);

/* -- pairs ------------------------------------------------------------------------------------- */

/* In an order that depends on nothing but the items. */
struct item_pair {
	const struct evidence_item *base, *cand;
	const char *name; /* borrowed: the group, or of a shape the document */
};
struct item_pairs {
	struct item_pair *list; /* [n] owned */
	size_t n;
};

/* Pairs the items that the rule is about (its length and group), key by key within a group; groups stand together.
 * Items of one key are the same text: there must be as many on both sides, and the pairs among them are of the most
 * equal. ERR_INPUT with the counts when the two sets of items differ. */
err_code pairs_by_key(const struct gate_rule *r, const struct evidence *base, const struct evidence *cand,
                      struct item_pairs *out, struct err *e);
/* Pairs the two lengths of a shape rule by document: base is of `over`, cand of `length`. Only documents that fill the
 * longer of the two: *n_short others are left out. */
err_code pairs_by_document(const struct gate_rule *r, const struct evidence *ev, struct item_pairs *out,
                           size_t *n_short, struct err *e);
void item_pairs_release(struct item_pairs *p);

/* -- comparability ----------------------------------------------------------------------------- */

/* ERR_INPUT names all that keeps the two from being compared, with both values. `engine` has room for the same about
 * dtype and kind of device, where allow_engine lets them differ: they are how a thing is computed. An override of
 * positions is what is computed, as a parameter is, and is never let differ. */
err_code evidence_comparable(const struct evidence *base, const struct evidence *cand, bool allow_engine,
                             struct buf *engine, struct err *e);

/* The result of a baseline that answers a measure's best; NULL: none is of its task. */
const struct evidence *evidence_match(const struct gate_measure *m, const struct evidence *cand,
                                      const struct evidence *const *baseline, size_t n);

/* -- outcomes ---------------------------------------------------------------------------------- */

/* What a rule came to. Numbers that it has not are NaN, counts that it has not -1. */
struct outcome {
	enum gate_verdict verdict;
	bool refused; /* the comparison was: message says why */
	double value, baseline_value, delta, lower, upper, limit;
	int64_t n;
	bool tested;          /* `paired` stands, and its p is one of Holm's family */
	struct paired paired; /* decided by settle_tested */
	double p_holm;
	int64_t items_needed;
	bool resampled;
	struct bootstrap bootstrap;
	const struct gate_metric *metric; /* tested: of the deltas */
	struct buf message;
};

/* Sets verdict and message: one sentence for people, without its full stop. */
void outcome_set(struct outcome *o, enum gate_verdict v, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* What judging a rule has at hand. Of the candidate there are a result and no failures. */
struct judgement {
	const struct gate *gate;
	const struct gate_case *c;
	const struct gate_rule *rule;
	const struct evidence *cand, *base; /* base NULL: the baseline has none, or there is no baseline */
	const char *refused;                /* why the two cannot be compared; NULL: they can */
	bool engine_differs;                /* as it is allowed to */
};

/* The rules of each kind. They fail only for lack of memory and where history does. judge_relative and judge_shape
 * leave the verdict on what they tested to settle_tested, after Holm. */
err_code judge_absolute(const struct judgement *j, struct outcome *o, struct err *e);
err_code judge_no_truncation(const struct judgement *j, struct outcome *o, struct err *e);
err_code judge_throughput(const struct judgement *j, struct outcome *o, struct err *e);
err_code judge_history(const struct judgement *j, struct outcome *o, struct err *e);
err_code judge_relative(const struct judgement *j, struct outcome *o, struct err *e);
err_code judge_shape(const struct judgement *j, struct outcome *o, struct err *e);
void settle_tested(const struct gate_rule *r, size_t n_tested, struct outcome *o);

/* Whether there is a baseline to compare with; else o says why not. */
bool can_compare(const struct judgement *j, struct outcome *o);
/* A metric of the candidate's result, as the rule names it: its value into *value. False: it is not there, and o says
 * so. An overflow is infinity. */
bool find_value(const struct judgement *j, const char *metric, int64_t length, double *value, struct outcome *o);

/* -- words ------------------------------------------------------------------------------------- */

/* "ppl_token at 8192", "acc of CN" */
void put_subject(const struct gate_rule *r, struct buf *out);
/* A worsening: "rose by 0.41 %", "fell by 0.62 percentage points", "did not change". */
void put_change(const struct gate_metric *m, double worsening, struct buf *out);
/* "-0.26 to 1.63 %" */
void put_bounds(const struct gate_metric *m, double lower, double upper, struct buf *out);
/* Of a relative or shape rule, as it was given: "1 %", "0.5 percentage points". */
void put_min_effect(const struct gate_rule *r, const struct gate_metric *m, struct buf *out);
/* "= 0.032", "< 0.0001" */
void put_p(double p, struct buf *out);
/* Five significant digits, or all of an integer. */
void put_number(double v, struct buf *out);

#endif
