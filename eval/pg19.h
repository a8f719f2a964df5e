/* Private to the task pg19 (protocols.md section 1): its parameters and the geometry of its windows, which is pure
 * arithmetic (pg19_params.c); its plan (pg19.c); what a unit scores and reports (pg19_score.c); and how unit results
 * become items and metrics (pg19_fold.c). */
#ifndef FATHOM_EVAL_PG19_H
#define FATHOM_EVAL_PG19_H

#include "eval/docs.h"

/* Indices into the task's parameters and its choices, in the order of its tables. */
enum { PG19_LENGTHS, PG19_PROTOCOL, PG19_STRIDE, PG19_BOS, PG19_MAX_DOCS, PG19_MAX_TOKENS, PG19_MIN_TOKENS, PG19_LAST };
enum { PROTOCOL_WINDOWS, PROTOCOL_SLIDING, PROTOCOL_PREFIX };
enum { BOS_NONE, BOS_DOCUMENT, BOS_WINDOW };
enum { LAST_KEEP, LAST_DROP };

extern const struct param pg19_params[];
err_code pg19_resolve(struct param_value *v, struct err *e);

/* The windows of one document at one length. The document is a sequence s[0..n_predictions]: its tokens, after BOS
 * if there is one. Window k reads s[k stride ..] and scores what no window before it scored. */
struct window_rule {
	uint64_t length, stride; /* 1 <= stride <= length; windows: stride = length */
	bool drop;               /* windows with fewer than `length` predictions do not count */
};
struct window {
	uint64_t start; /* index in s of the first input */
	uint32_t len;   /* tokens of the segment: inputs, and the last one that is only predicted */
	uint32_t first; /* index in the segment of the first scored token; all after it are scored */
};
uint64_t window_count(const struct window_rule *r, uint64_t n_predictions);
void window_at(const struct window_rule *r, uint64_t n_predictions, uint64_t k, struct window *out);

/* Edges of the loss-by-position bins: the distinct floor(2^(k/2)) up to max, then max + 1. Returns the number of
 * edges, at least 2 and at most PG19_MAX_EDGES; a bin is [edge[i], edge[i+1]) of the 1-based prediction index. */
#define PG19_MAX_EDGES 64
size_t pg19_edges(int64_t max, int64_t edges[PG19_MAX_EDGES]);

/* The stride that a length is measured with. */
int64_t pg19_stride(const struct param_value *v, int64_t length);

/* -- the plan ---------------------------------------------------------------------------------- */

struct pg19_unit {
	uint32_t doc, length;       /* indices; under prefix `length` is the longest's */
	uint32_t part, parts;       /* of its item */
	uint64_t window0, n_window; /* its windows; none: the document has no window at this length */
	uint64_t item;              /* id of its (first) item */
};

struct pg19 {
	int64_t *lengths; /* [n_lengths] owned */
	size_t n_lengths;
	int protocol, bos;
	bool drop, pass_each_length; /* prefix: a forward pass a length, for schemes that depend on it */
	int64_t stride;
	uint32_t bos_id;
	struct text_docs docs;   /* owned */
	struct pg19_unit *units; /* [n_units] owned */
	size_t n_units, cap_units;
};

struct window_rule pg19_rule(const struct pg19 *p, size_t length /* index */);

/* The rest of the task's functions: see struct task. */
err_code pg19_add(const void *plan, uint32_t unit, struct batch_builder *b, struct err *e);
err_code pg19_result(const void *plan, uint32_t unit, const struct token_score *scores, struct json_writer *w,
                     struct err *e);
err_code pg19_fold_metrics(const struct param_value *v, const struct unit_source *units, struct json_writer *w,
                           struct err *e);
err_code pg19_fold_items(const struct param_value *v, const struct unit_source *units, item_fn *f, void *arg,
                         struct err *e);

#endif
