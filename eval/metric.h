/* Rows of a result's metrics array, and the metrics of loss over documents that every task of perplexity has
 * (protocols.md section 1): nll_token, ppl_token, bits_per_byte, ppl_word, ppl_doc_macro. */
#ifndef FATHOM_EVAL_METRIC_H
#define FATHOM_EVAL_METRIC_H

#include "engine/json.h"

/* A value that is not finite is null with a reason, and so is its standard error. */
struct metric_row {
	const char *name, *unit;
	const char *group;      /* paradigm or kind; NULL: none */
	int64_t length, stride; /* 0: none */
	int64_t from, to;       /* 0: none */
	double value, stderr_;  /* NaN or infinite: null */
	const char *why_value;  /* reason of a null value that is not an overflow */
	const char *why_stderr;
	int64_t n;
	size_t n_docs; /* 0: of no documents, or of none */
};

/* Sets the four members and writes the row into the open array of w. */
void metric_row_write(struct metric_row *r, const char *name, const char *unit, double value, double stderr_,
                      struct json_writer *w);

/* A count of items: no standard error. */
void metric_row_count(struct metric_row *r, const char *name, int64_t count, int64_t of, struct json_writer *w);

/* What a document adds: its summed loss, and what that is divided by. */
struct doc_loss {
	double s, n, bytes, words;
};

struct doc_losses {
	struct doc_loss *docs; /* [n] owned */
	size_t n, cap;
};
err_code doc_losses_add(struct doc_losses *l, struct doc_loss d, struct err *e);
void doc_losses_release(struct doc_losses *l);

/* nll_token, clustered by document; all five. r has the row's other members (length); n and n_docs are set. */
err_code metric_nll_token(const struct doc_losses *l, struct metric_row *r, struct json_writer *w, struct err *e);
err_code metric_perplexities(const struct doc_losses *l, struct metric_row *r, struct json_writer *w, struct err *e);
typedef err_code metric_losses_fn(const struct doc_losses *l, struct metric_row *r, struct json_writer *w,
                                  struct err *e); /* either */

#endif
