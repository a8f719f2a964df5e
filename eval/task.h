/* Private to eval/: what a task is made of, and what an open evaluation holds.
 *
 * A task is a row of functions over its parameters. To add one: a file that defines a `const struct task`, a line in
 * TASKS below, and a test. Everything that a fold needs stands in the unit results, so that metrics and
 * items need neither model nor dataset. */
#ifndef FATHOM_EVAL_TASK_H
#define FATHOM_EVAL_TASK_H

#include "eval/eval.h"

#define TASK_MAX_PARAMS 16

/* -- parameters -------------------------------------------------------------------------------- */

/* The value of one parameter; the array stands in the order of the task's table. */
struct param_value {
	bool given;    /* by the request, and not as null */
	bool null;     /* no value: the parameter's "all" */
	int64_t i;     /* int, bool (0, 1), index into an enum's choices */
	int64_t *list; /* [n] PARAM_INT_LIST, owned */
	char *s;       /* PARAM_STRING, owned */
	size_t n;
};

/* Reads a request's (or effective) parameters, with defaults and cross-field rules. The same for every caller, so that
 * effective parameters read back as themselves. Release v also after a failure. */
err_code param_values(const struct task *t, const struct json *given, struct param_value v[TASK_MAX_PARAMS],
                      struct err *e);
void param_values_release(struct param_value v[TASK_MAX_PARAMS]);

/* -- batches ----------------------------------------------------------------------------------- */

/* Segments of a group of units, growing. The segments of a chain's root and all its descendants stand together. */
struct batch_builder {
	uint32_t *tokens; /* [n_tokens] owned, as all here */
	uint8_t *score;   /* [n_tokens] */
	struct segment *segments;
	size_t n_tokens, cap_tokens, n_segments, cap_segments;
};
/* Appends a segment whose tokens are zero and unscored: the caller fills tokens[start..start+len). */
err_code batch_builder_add(struct batch_builder *b, int32_t parent, uint32_t len, uint32_t *start, struct err *e);
void batch_builder_release(struct batch_builder *b);

/* -- tasks ------------------------------------------------------------------------------------- */

struct task_metric {
	const char *name, *unit, *help;
};

struct task {
	const char *name;
	int version; /* rises when the same parameters begin to give other numbers */
	const char *summary, *dataset;
	const struct param *params;
	size_t n_params;
	const struct task_metric *metrics;
	size_t n_metrics;
	const char *alias;                     /* another name of it; NULL: none */
	const struct example_reader *examples; /* of a task made of examples: example.h */
	/* How a result is shown. Names; NULL: the default. */
	const char *headline; /* the metric that stands for all in a list; NULL: the first of `metrics` */
	const char *figure;   /* what a page draws: "curve" (against length), "map"; NULL: "bars", with error bars */
	const char *formats;  /* suffixes of the dataset's files, ".txt|.jsonl"; NULL: those of `examples`, or any */

	/* A task that can make its dataset does so when this parameter has a value: there is no path then, and the
	 * text is in ev->generated. NULL: it cannot. */
	const char *generated_by;
	err_code (*generate)(const struct param_value *v, struct buf *text, struct err *e);

	/* Cross-field rules, and defaults that follow from other parameters; NULL: there are none. */
	err_code (*resolve)(struct param_value *v, struct err *e);

	/* Reads the dataset, sets ev->plan and the units (evaluation_add_unit) and warns. ev->plan is freed by
	 * plan_free, also after a failure. */
	err_code (*plan)(struct evaluation *ev, const struct param_value *v, struct err *e);
	void (*plan_free)(void *plan);

	/* Appends the unit's segments. The same for the same unit, always. */
	err_code (*add)(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e);
	/* Writes the unit's result object; `scores` are of the tokens that `add` appended, in that order. */
	err_code (*result)(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
	                   struct err *e);

	/* In place of `result`: a task that asks what session_probe sums. Its units are scored one at a time. */
	err_code (*use_result)(const void *plan, uint32_t unit, const struct frequency_use *use, struct json_writer *w,
	                       struct err *e);

	/* Folds. metrics: into the open array of w. */
	err_code (*fold_metrics)(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
	                         struct err *e);
	err_code (*fold_items)(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
	                       struct err *e);
};

/* All tasks, in the order in which they are listed: a line here, and API, command line and page have it. */
#define TASKS(ROW)                                                                                                     \
	ROW(pg19)                                                                                                      \
	ROW(text)                                                                                                      \
	ROW(token_nll)                                                                                                 \
	ROW(indirect_indexing)                                                                                         \
	ROW(lambada)                                                                                                   \
	ROW(hellaswag)                                                                                                 \
	ROW(cbt)                                                                                                       \
	ROW(blimp)                                                                                                     \
	ROW(piqa)                                                                                                      \
	ROW(arc_easy)                                                                                                  \
	ROW(choices)                                                                                                   \
	ROW(frequency_use)
#define TASK_DECLARE(name) extern const struct task task_##name;
TASKS(TASK_DECLARE)

const char *task_headline(const struct task *t); /* the name of a metric; "" when it has none */

/* Calls the next unit of a source and parses it; *out is NULL at the end. json_free it. */
err_code unit_source_next(const struct unit_source *units, uint32_t *unit, struct json **out, struct err *e);
/* ERR_INPUT: what a fold says of a unit's result that lacks `what`, or has it in another form. */
err_code unit_malformed(struct err *e, uint32_t unit, const char *what);

/* -- evaluations ------------------------------------------------------------------------------- */

struct evaluation {
	const struct model *model; /* borrowed */
	const struct task *task;
	char *dataset_name;   /* owned, as all below */
	char *dataset_path;   /* NULL: it was generated */
	struct buf generated; /* until the plan is made */
	char fingerprint[FINGERPRINT_LEN];
	const struct registry *registry; /* during evaluation_open only, as watch; NULL: names are paths */
	const struct evaluation_watch *watch;
	void *plan;
	uint64_t *unit_tokens; /* [n_units] input tokens */
	uint32_t n_units;
	size_t cap_units;
	uint64_t n_items, n_docs, tokens, largest_chain;
	double flops;        /* model_flops of all units */
	uint64_t n_segments; /* of all units */
	struct buf warnings; /* JSON strings with commas between */
};

/* Of a task that reads text. ERR_INPUT: the model has no tokenizer; the list has an id beyond its vocabulary. */
err_code evaluation_check_tokenizer(const struct evaluation *ev, struct err *e);
err_code evaluation_check_ids(const struct evaluation *ev, const struct token_list *l, struct err *e);

/* A unit of so many input tokens, whose largest chain (a root and all its descendants) has `chain` tokens. */
err_code evaluation_add_unit(struct evaluation *ev, uint64_t tokens, uint64_t chain, struct err *e);
/* Makes the dataset and its fingerprint. */
err_code evaluation_generate(struct evaluation *ev, const struct param_value *v, struct err *e);
void evaluation_warn(struct evaluation *ev, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
