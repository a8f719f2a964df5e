/* Evaluation: tasks, their units, items and metrics. The one header that server/ includes from this layer.
 *
 * A task cuts a dataset into *units*, fixed by task, parameters and dataset alone: what is handed out, stored and
 * resumed. A unit's result is a JSON object that carries all that the metrics need. *Items* (a document at a length, an
 * example) and *metrics* are folded from unit results, in unit order, in double, without a model: the server and
 * `fathom run` call the same fold, so a resumed job is bit-equal to an uninterrupted one. */
#ifndef FATHOM_EVAL_EVAL_H
#define FATHOM_EVAL_EVAL_H

#include "engine/engine.h"

/* -- tasks and their parameters ---------------------------------------------------------------- */

enum param_type {
	PARAM_INT,      /* integer in [min, max] */
	PARAM_INT_LIST, /* strictly ascending integers in [min, max], at least one, at most 256 */
	PARAM_ENUM,     /* one of `choices` */
	PARAM_BOOL,
	PARAM_STRING, /* of min to max bytes, without control characters */
	PARAM_DATASET /* the same: a dataset's name; without a server, a path */
};

struct param {
	const char *name;
	enum param_type type;
	const char *fallback; /* default as JSON text: "256", "\"windows\"", "[1024,2048]"; "null": none (all) */
	const char *choices;  /* PARAM_ENUM: "windows|sliding|prefix" */
	int64_t min, max;
	const char *help; /* one line */
};

struct task; /* a row of the table in task.c; immutable, static */

const struct task *task_find(const char *name, struct err *e); /* NULL: ERR_INPUT that lists the tasks */
size_t task_count(void);
const struct task *task_at(size_t i);
const char *task_name(const struct task *t);
int task_version(const struct task *t);
const char *task_figure(const struct task *t); /* what a page draws of a result: "curve", "bars", "map" */

/* Name, version, summary, dataset formats, how a result is shown (headline, figure), every parameter (type, default,
 * choices, range, help), metric names. */
void task_describe(const struct task *t, struct json_writer *w, const char *key);
/* The same for people: the text of `fathom run --task NAME --help`. */
void task_help(const struct task *t, struct buf *out);

/* Checks `given` (a JSON object or NULL) against the task's table and its cross-field rules, and appends the
 * effective parameters (every one, in table order) as a JSON object to out. e->pointer is relative to params:
 * "/lengths/3". */
err_code task_params(const struct task *t, const struct json *given, struct buf *out, struct err *e);

/* Parses command-line "key=value" into a JSON object member appended to w by the parameter's type: lengths=512,1024. */
err_code task_param_parse(const struct task *t, const char *assignment, struct json_writer *w, struct err *e);

/* What a dataset is called that a task makes itself, from its parameters. */
#define GENERATED_DATASET "generated"

/* Whether these effective parameters let the task make its dataset. */
bool task_generates(const struct task *t, const struct json *params);

/* Whether a dataset is given just when there is need of one; ERR_INPUT says what is too much or missing. */
err_code task_check_dataset(const struct task *t, const struct json *params, bool given, struct err *e);

/* Appends the dataset that these effective parameters make. */
err_code task_generate(const struct task *t, const struct json *params, struct buf *out, struct err *e);

/* -- names ------------------------------------------------------------------------------------- */

/* Directories that hold models or datasets, in order of precedence. Borrowed strings. */
struct registry {
	const char *const *model_dirs;
	size_t n_model_dirs;
	const char *const *dataset_dirs;
	size_t n_dataset_dirs;
};

/* A name is a path of one or more components below one of the directories: no "..", no absolute path, no empty or
 * hidden component, no symlink that leaves the directory. ERR_NOT_FOUND names it and lists where was looked. */
err_code registry_model(const struct registry *r, const char *name, char **path, struct err *e);
err_code registry_dataset(const struct registry *r, const char *name, char **path, struct err *e);

/* Whether a file of this name is data: .txt, .jsonl, .json, .tsv. */
bool registry_is_data_file(const char *name);

/* Calls f for each model (a directory with config.json) or dataset (a data file, or a directory that holds some) of
 * depth at most two, sorted by name, the first of equal names. Stops when f returns non-zero, and returns that. */
typedef int registry_fn(void *arg, const char *name, const char *path);
int registry_each_model(const struct registry *r, registry_fn *f, void *arg);
int registry_each_dataset(const struct registry *r, registry_fn *f, void *arg);

/* ERR_NOT_FOUND or ERR_INPUT, with a pointer, for a dataset that the parameters name and that is not there. */
err_code task_check_names(const struct task *t, const struct json *params, const struct registry *r, struct err *e);

/* What a job's "engine" asks for: as given, borrowed from it. */
struct engine_options {
	const char *device, *dtype;  /* "auto" where nothing is said */
	const struct json *position; /* an object that replaces the model's scaling; NULL: its own */
};
/* v: an object, null or NULL; at: its JSON pointer. ERR_INPUT with a pointer for what no engine has. */
err_code engine_options_read(const struct json *v, const char *at, struct engine_options *out, struct err *e);

/* -- evaluations (need a model; never opened in `serve`) --------------------------------------- */

struct evaluation; /* a task on a dataset, tokenized and cut into units */

/* Called now and then while an evaluation is opened: bytes of the dataset read so far, and all. Non-zero stops it
 * (ERR_CANCELLED). */
struct evaluation_watch {
	int (*tick)(void *arg, uint64_t done, uint64_t total);
	void *arg;
};

/* Loads, tokenizes and plans. params: effective, from task_params. The model must outlive it; watch may be NULL.
 * dataset_path is NULL where the task makes its dataset (task_generates). A dataset that a parameter names (shots_from)
 * is looked up in the registry; without one (NULL) it is a path. ERR_INPUT when there is nothing to score ("dataset
 * 'x': no documents"). */
err_code evaluation_open(const struct model *m, const struct task *t, const struct json *params,
                         const char *dataset_path, const char *dataset_name, const struct registry *registry,
                         const struct evaluation_watch *watch, struct evaluation **out, struct err *e);
void evaluation_free(struct evaluation *ev);

uint32_t evaluation_n_units(const struct evaluation *ev);
uint64_t evaluation_unit_tokens(const struct evaluation *ev, uint32_t unit); /* input tokens: the work */
uint64_t evaluation_tokens(const struct evaluation *ev);                     /* of all units */
double evaluation_flops_per_token(const struct evaluation *ev);       /* model_flops of all units, by input tokens */
struct batch_size evaluation_batch_size(const struct evaluation *ev); /* for session_memory: its longest chain, or its
                                                                * small units together, in segments as long as they
                                                                * are on the average */
const char *evaluation_fingerprint(const struct evaluation *ev);      /* of the dataset; borrowed */

/* Where an evaluation runs: a device and a dtype, both resolved ("auto" is neither), and the signature of the two. */
struct place {
	struct device_info device; /* at the time of place_init */
	char dtype[8];             /* "bf16" */
	char signature[512];
	uint32_t n_threads;
};
/* device_describe; logs why it is the CPU where "auto" came to that. */
err_code place_device(const char *device, struct device_info *out, struct err *e);
err_code place_init(struct place *p, const char *device, const char *dtype, uint32_t n_threads, struct err *e);
/* Strings are borrowed from p. */
struct session_options place_session(const struct place *p);
double place_peak_flops(const struct place *p); /* for the dtype; 0: not known */
/* ERR_MEMORY, with the numbers, unless a session of m for batches of this size fits in the device's free memory and the
 * `held` bytes that the caller can free. *need is the estimate either way. */
err_code place_fits(const struct place *p, const struct model *m, struct batch_size size, size_t held, size_t *need,
                    struct err *e);

/* The members of the "planned" event's plan (wire.h), into the open object of w. model_name: as it was asked for;
 * memory_bytes: place_fits's estimate. A unit of 0 tokens has nothing to score (a document without a window) and still
 * has a result. */
void evaluation_write_plan(const struct evaluation *ev, const char *model_name, const struct place *p,
                           size_t memory_bytes, struct json_writer *w);

/* Scores units[0..n) in batches of about session_batch_tokens: small units share one, a large one is spread over
 * several. Calls done(arg, unit, result JSON text, tokens) for each, in the order given, and batch(arg) (may be NULL)
 * after the units that were scored together. A batch that fails with ERR_NUMERIC is tried again unit by unit:
 * failed(arg, unit, e) is called for those that fail alone, and the rest go on. So it is with ERR_MEMORY, once batches
 * were halved down to a single chain (session_shrink tells the session what fits). Any other error ends the call. done
 * may return non-zero to stop (ERR_CANCELLED). */
struct evaluation_sink {
	int (*done)(void *arg, uint32_t unit, const char *result, uint64_t tokens);
	void (*failed)(void *arg, uint32_t unit, const struct err *why);
	void (*batch)(void *arg);
	/* Before every batch, may be NULL: somebody else's turn. *s is the session to go on with, or NULL when it
	 * fails, which ends the call. */
	err_code (*turn)(void *arg, struct session **s, struct err *e);
	void *arg;
};
err_code evaluation_run(struct evaluation *ev, struct session *s, const uint32_t *units, uint32_t n,
                        const struct evaluation_sink *sink, struct err *e);

/* -- folding (no model) ------------------------------------------------------------------------ */

/* Unit results in unit order; entry i is unit ids[i] (gaps: a partial fold). Parsed one at a time, so that a big job
 * needs no big tree: next() returns the JSON text of the next unit and its id, or NULL at the end; borrowed until the
 * next call. */
struct unit_source {
	const char *(*next)(void *arg, uint32_t *unit);
	void *arg;
};

/* Appends the metrics array (and n_skipped etc. as metrics of unit "items") under `key`. */
err_code task_metrics(const struct task *t, const struct json *params, const struct unit_source *units,
                      struct json_writer *w, const char *key, struct err *e);

/* Calls f with each item as one line of JSON without newline, in dataset order. */
typedef int item_fn(void *arg, const char *line, size_t len);
err_code task_items(const struct task *t, const struct json *params, const struct unit_source *units, item_fn *f,
                    void *arg, struct err *e);
bool task_items_are_units(const struct task *t); /* each unit is one item: items from the nth on are units from there */

/* Whether a row of a result's metrics is this one, and the row that is; NULL: there is none. length 0: none; group
 * NULL: over all. Bins of positions ("from") and places of a map ("frequency") are of no such name. */
bool result_metric_is(const struct json *row, const char *name, int64_t length, const char *group);
const struct json *result_metric(const struct json *metrics, const char *name, int64_t length, const char *group);

/* The curve of a result: what charts draw. Empty for tasks without lengths. Owned by the caller: free(points). */
struct curve_point {
	int64_t length;
	double value, stderr_; /* stderr_ < 0: null */
};
err_code result_curve(const struct json *metrics, const char *metric /* "ppl_token" */, struct curve_point **points,
                      size_t *n, struct err *e);

/* The metrics of task frequency_use as two maps: what is drawn and summed up. */
struct frequency_map {
	size_t n_layer, n_freq; /* 0: the result has no such metrics */
	double *theta;          /* [n_freq] owned */
	double *mean[2];        /* [n_layer, n_freq] of queries, of keys; owned */
};
/* ERR_INPUT unless there is one number for each part, layer and frequency. Release *out also after a failure. */
err_code result_frequencies(const struct json *metrics, struct frequency_map *out, struct err *e);
void frequency_map_release(struct frequency_map *m);

/* The metric that stands for all where there is room for one number: the task's headline, over all groups, at the
 * longest length. Borrowed from metrics; NULL: there is none. */
const struct json *result_headline(const struct task *t, const struct json *metrics);

/* The whole result object, at the top of w: `plan` is the planned event's plan, engine times come from the caller. With
 * them "engine" has "tokens_per_s", and "tflops_per_s" and "mfu" (the share of the device's peak, or null and
 * "mfu_reason") from model_flops: of one device, when several shared the work.
 * When units of the plan are missing from the source, the object has "partial": true and "failed_units". */
struct result_stats {
	uint64_t tokens;
	double seconds;
	const uint32_t *failed_units; /* [n_failed_units] borrowed; may be NULL */
	size_t n_failed_units;
};
err_code result_write(struct json_writer *w, const struct task *t, const struct json *params, const struct json *plan,
                      const struct unit_source *units, const struct result_stats *stats, struct err *e);

/* -- the worker -------------------------------------------------------------------------------- */

struct worker_options {
	const char *device; /* "cpu", "cuda:0", "none" (describes only) */
	uint32_t n_threads;
	struct registry registry;
};
/* The loop of `fathom worker`: commands on fd 0, events on fd 1, until EOF. Wire format: eval/wire.h. Returns an exit
 * status. */
int worker_main(const struct worker_options *o);

#endif
