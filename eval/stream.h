/* Streams: sequences of token ids, each of which is scored from some id to its end in one chain: a unit and an item.
 * What the tasks text, token_nll and indirect_indexing share: each makes its streams, and folds what they came to. */
#ifndef FATHOM_EVAL_STREAM_H
#define FATHOM_EVAL_STREAM_H

#include "eval/metric.h"
#include "eval/task.h"

struct stream {
	char *name;    /* owned */
	uint32_t *ids; /* [n] owned */
	uint32_t n;
	uint32_t first;        /* ids[first..n) are scored; first is at least 1; not below n: nothing is */
	bool truncated;        /* some of it was left out */
	bool has_text;         /* of the scored ids: */
	uint64_t bytes, words; /* as protocols.md section 1 counts them */
	uint64_t item;         /* set by stream_add */
};

struct stream_plan {
	struct stream *streams; /* [n] owned */
	size_t n, cap;
};

/* Adds a stream and its unit to ev, whose plan is a stream_plan (zeroed at first); s's memory is taken also on failure.
 * ERR_INPUT when it is longer than the model's positions reach. */
err_code stream_add(struct evaluation *ev, struct stream *s, struct err *e);
/* After the last: sets n_docs, warns of streams beyond the model's context. ERR_INPUT when nothing is scored. noun:
 * "documents", "pieces". */
err_code stream_finish(struct evaluation *ev, const char *noun, struct err *e);

/* Of struct task. A unit's result: {"name", "item", "n", "nll", "key", "greedy": whether every scored id is the
 * argmax, and "bytes", "words", "truncated" where they are}; or {"name", "skipped": true}. */
void stream_plan_free(void *plan);
err_code stream_unit_add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e);
err_code stream_unit_result(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
                            struct err *e);

/* -- folds ------------------------------------------------------------------------------------- */

/* A unit's result, read back. Strings are borrowed until the next. */
struct stream_item {
	const char *name, *key;
	bool skipped, truncated, greedy, has_text;
	int64_t id, n, bytes, words;
	double nll;
};

/* What the results come to. */
struct stream_sums {
	struct doc_losses losses; /* of streams that are scored */
	int64_t n_skipped, n_truncated, n_greedy;
};
err_code stream_sum(const struct unit_source *units, struct stream_sums *out, struct err *e);
void stream_sums_release(struct stream_sums *s);

/* Metrics of the losses, then n_skipped and n_truncated, of all streams. */
err_code stream_fold_metrics(const struct unit_source *units, metric_losses_fn *metrics, struct json_writer *w,
                             struct err *e);

/* Items of perplexity: {"id", "key", "doc", "n_tokens", "n_bytes", "n_words", "nll"}, without the text's where there is
 * none. A task's fold_items. */
err_code stream_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                           struct err *e);

/* Items one by one, for a task that writes its own: write puts the members of `it` into w's open object. */
typedef void stream_write_fn(const struct stream_item *it, struct json_writer *w);
err_code stream_each_item(const struct unit_source *units, stream_write_fn *write, item_fn *f, void *arg,
                          struct err *e);

#endif
