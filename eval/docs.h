/* Documents of text as token ids, each with what its tokens end at in bytes and words: what the tasks of perplexity
 * share (pg19, text). */
#ifndef FATHOM_EVAL_DOCS_H
#define FATHOM_EVAL_DOCS_H

#include "eval/task.h"

struct text_doc {
	char *name;      /* owned, as all here */
	uint32_t *seq;   /* [n] BOS if there is one, then the tokens */
	uint64_t *ends;  /* [n] byte after the token's last; 0 for BOS */
	uint32_t *words; /* [n] words that begin before ends[i] */
	uint32_t n;
	bool cut; /* by max_tokens */
};

struct text_docs {
	struct text_doc *docs; /* [n] owned */
	size_t n, cap;
};

/* Which documents, and how much of each; the values may be null. */
struct text_rule {
	bool bos;
	uint32_t bos_id;
	const struct param_value *max_docs, *max_tokens, *min_tokens;
};

/* The id of BOS, or where the model has none of EOS; ERR_INPUT at /bos when it has neither. wanted: whether it is asked
 * for; if not, *id is left alone and a tokenizer that adds BOS is warned of. */
err_code text_bos(struct evaluation *ev, bool wanted, uint32_t *id, struct err *e);

/* Reads ev's dataset, sets its fingerprint and n_docs, and warns. ERR_INPUT when no document is left, and for a model
 * without a tokenizer. Zero-initialise out; release it also after a failure. */
err_code text_docs_read(struct evaluation *ev, const struct text_rule *rule, struct text_docs *out, struct err *e);
void text_docs_release(struct text_docs *d);

#endif
