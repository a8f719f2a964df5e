/* Tasks made of examples (protocols.md section 2): a context and its continuations, each scored given the context.
 *
 * A task's own file has a reader, which turns the files of a dataset into examples, and its `struct task`. All else is
 * the core's: parameters, tokens, truncation, shared contexts, shots, results, items, metrics. So a task may be
 *
 *	static err_code read_row(struct examples *x, const struct json *row, struct err *e)
 *	{
 *		if (row_string(row, "ctx", &context, e) || row_integer(row, "label", 0, 1, &gold, e))
 *			return e->code;
 *		buf_puts(&x->text, context);
 *		examples_choice(x, " ");
 *		buf_puts(&x->text, ending1);
 *		...
 *		return examples_add(x, gold, e);
 *	}
 *	static err_code read_files(struct examples *x, const struct param_value *v, struct err *e)
 *	{
 *		return examples_each_row(x, read_row, e);
 *	}
 *	static const struct example_reader reader = {.files = ".jsonl|.txt", .read = read_files};
 *	const struct task task_x = {.name = "x", .version = 1, .summary = "...", .dataset = "...", CHOICE_TASK(reader)};
 *
 * The same reader reads the file that shots are taken from. */
#ifndef FATHOM_EVAL_EXAMPLE_H
#define FATHOM_EVAL_EXAMPLE_H

#include "eval/choice.h"
#include "eval/files.h"
#include "eval/task.h"

/* -- for a task's reader ----------------------------------------------------------------------- */

/* A dataset while it is read. The reader writes `text`, `group`, `doc`, `max_context_tokens`; the rest is the core's.
 * An example is written in one go into `text`: its context, then examples_choice and a continuation, as often as there
 * are continuations; examples_add takes it and empties `text`. */
struct examples {
	struct buf text;
	const char *group; /* paradigm or kind, borrowed until it is changed; NULL (at first): none. Groups come
	                              * in the order in which they are first met */
	const char *doc;   /* what items call "doc", borrowed until examples_add, which resets it to NULL: the
	                              * row's "id", else the line, and in a folder the file, where it ended */
	uint32_t max_context_tokens; /* 0: all; else only the last ones of a context are read */
	/* private */
	struct evaluation *ev;     /* borrowed */
	struct example_plan *plan; /* borrowed */
	struct file_list files;
	struct line_reader lines;
	struct json *row;             /* owned: the last examples_next_row */
	size_t file;                  /* index + 1 of the open one */
	uint64_t read_before;         /* bytes of the files before the open one */
	struct choice_start *choices; /* [n_choices] owned: of the example being written */
	size_t n_choices, cap_choices;
	bool shots;                   /* these are the examples that shots are taken from: no limit */
	size_t n_replaced, n_invalid; /* malformed sequences, and lines with such */
};

/* Opens the next file of the dataset, in order; *name, relative to the dataset, is NULL after the last. */
err_code examples_next_file(struct examples *x, const char **name, struct err *e);

/* The open file's next line (blank ones too), without its newline; NULL at the end. Valid UTF-8, borrowed until the
 * next call. Errors that a reader returns are wrapped by the core with the file and the line last read. */
err_code examples_next_line(struct examples *x, const char **line, size_t *len, struct err *e);

/* The next line that is not blank, which must hold a JSON object; NULL at the end. Borrowed until the next call. */
err_code examples_next_row(struct examples *x, const struct json **row, struct err *e);

/* Calls f with every row of every file; without groups, until there are as many examples as `limit` has. */
typedef err_code row_fn(struct examples *x, const struct json *row, struct err *e);
err_code examples_each_row(struct examples *x, row_fn *f, struct err *e);

/* Whether the group has all examples that `limit` lets it have: the reader may pass over the rest of them. */
bool examples_full(const struct examples *x);

/* The context, or the choice before, is complete: a choice begins, with what joins it to the context (" " or ""), which
 * the model reads and no length counts. */
void examples_choice(struct examples *x, const char *joint);

/* A list of strings as choices that follow after a space; *n is their number. `field` is its name in errors. */
err_code examples_put_choices(struct examples *x, const struct json *list, const char *field, size_t *n, struct err *e);

/* The example is complete; `gold` is the index of the right choice. A choice without a character (beyond its joint) is
 * an error, and so are more than MAX_CHOICES. */
err_code examples_add(struct examples *x, int64_t gold, struct err *e);

/* Members of a row: a string; an integer in [min, max], which may be written as a string ("3"). Errors name field and
 * value. */
err_code row_string(const struct json *row, const char *field, const char **out, struct err *e);
err_code row_integer(const struct json *row, const char *field, int64_t min, int64_t max, int64_t *out, struct err *e);

struct example_reader {
	const char *files; /* suffixes of its files: ".jsonl|.txt" */
	/* From the first file to the last. v: the task's parameters. */
	err_code (*read)(struct examples *x, const struct param_value *v, struct err *e);
	bool single; /* EXAMPLE_TASK: an example has one continuation; else it has two or more */
};

/* -- for a task's row -------------------------------------------------------------------------- */

/* Parameters: a task with some of its own makes a table {CHOICE_PARAMS, {"detokenize", ...}}, which it names in
 * CHOICE_TASK_WITH; v[CHOICE_N_PARAMS] is its first. */
enum {
	EXAMPLE_LIMIT,
	EXAMPLE_MAX_LENGTH,
	EXAMPLE_N_SHOT,
	EXAMPLE_SHOTS,
	EXAMPLE_SHOTS_FROM,
	EXAMPLE_SEED,
	EXAMPLE_N_PARAMS,
	CHOICE_TIES = EXAMPLE_N_PARAMS,
	CHOICE_NORM,
	CHOICE_SHARE,
	CHOICE_N_PARAMS
};
enum { SHOTS_FIRST, SHOTS_SEEDED };
enum { TIES_FIRST, TIES_WRONG };

/* clang-format off */
#define EXAMPLE_PARAMS                                                                                                 \
	{"limit", PARAM_INT, "null", NULL, 1, INT32_MAX,                                                               \
	 "only the first examples in file order, of each group; null: all"},                                           \
	{"max_length", PARAM_INT, "null", NULL, 1, 1 << 24,                                                            \
	 "inputs of a continuation, in tokens: of more only the last are read; null: the model's context"},            \
	{"n_shot", PARAM_INT, "0", NULL, 0, 1000, "solved examples before each context, with blank lines between"},    \
	{"shots", PARAM_ENUM, "\"first\"", "first|seeded", 0, 0,                                                       \
	 "which: the first ones of shots_from, or drawn for each example by `seed`"},                                  \
	{"shots_from", PARAM_DATASET, "null", NULL, 1, 512,                                                            \
	 "the dataset that shots are taken from; never the scored example itself"},                                    \
	{"seed", PARAM_INT, "0", NULL, 0, INT32_MAX, "of shots=seeded"}
#define CHOICE_PARAMS                                                                                                  \
	EXAMPLE_PARAMS,                                                                                                \
	{"ties", PARAM_ENUM, "\"first\"", "first|wrong", 0, 0,                                                         \
	 "of equally good choices the first is taken, or the answer is wrong"},                                        \
	{"norm", PARAM_ENUM, "\"none\"", "none|chars|bytes|tokens", 0, 0,                                              \
	 "what a choice's score is divided by in acc and in the items"},                                               \
	{"share", PARAM_BOOL, "true", NULL, 0, 0,                                                                      \
	 "read a context once for all its choices; false gives the same numbers, later"}
/* clang-format on */

/* The functions of struct task, and parameters and metrics: of a task with one right choice, and of one whose single
 * continuation is right when each of its tokens is the argmax. */
#define EXAMPLE_TASK(reader)                                                                                           \
	.examples = &(reader), .params = example_params, .n_params = EXAMPLE_N_PARAMS, .metrics = example_metrics,     \
	.n_metrics = EXAMPLE_N_METRICS, .fold_metrics = example_fold_metrics, .fold_items = example_fold_items,        \
	EXAMPLE_FUNCTIONS
#define CHOICE_TASK(reader) CHOICE_TASK_WITH(reader, choice_params, CHOICE_N_PARAMS)
#define CHOICE_TASK_WITH(reader, own, n_own)                                                                           \
	.examples = &(reader), .params = (own), .n_params = (n_own), .metrics = choice_metrics,                        \
	.n_metrics = CHOICE_N_METRICS, .fold_metrics = choice_fold_metrics, .fold_items = choice_fold_items,           \
	EXAMPLE_FUNCTIONS
#define EXAMPLE_FUNCTIONS                                                                                              \
	.resolve = example_resolve, .plan = example_plan, .plan_free = example_plan_free, .add = example_add,          \
	.result = example_result

#define EXAMPLE_N_METRICS 4
#define CHOICE_N_METRICS  6
extern const struct param example_params[EXAMPLE_N_PARAMS], choice_params[CHOICE_N_PARAMS];
extern const struct task_metric example_metrics[EXAMPLE_N_METRICS], choice_metrics[CHOICE_N_METRICS];

err_code example_resolve(struct param_value *v, struct err *e);
err_code example_plan(struct evaluation *ev, const struct param_value *v, struct err *e);
void example_plan_free(void *plan);
err_code example_add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e);
err_code example_result(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
                        struct err *e);
err_code example_fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                              struct err *e);
err_code example_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                            struct err *e);
err_code choice_fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                             struct err *e);
err_code choice_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                           struct err *e);

#endif
