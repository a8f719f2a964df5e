/* Chains of tokens, scored together: what requests of many clients come down to.
 *
 * Chains that begin alike share that beginning, in steps of CHAINS_STEP tokens: the engine gives a token the same bits
 * whether its prefix is shared or repeated. They are packed into batches of about session_batch_tokens. */
#ifndef FATHOM_EVAL_CHAINS_H
#define FATHOM_EVAL_CHAINS_H

#include "eval/task.h"

#define CHAINS_STEP 32 /* a shorter segment of its own costs more rows in its tiles than it saves */

struct chain {
	const uint32_t *ids;        /* [n] borrowed */
	uint32_t n, from;           /* wanted: the scores of ids[from..n); from >= 1 */
	struct token_score *scores; /* [n] borrowed; filled from `from` on */
	void *owner;                /* of the caller */

	/* set by chains_sort */
	uint32_t shared; /* with the chain before it, in order */
};

/* Packs the chains of list[0..n), which stand in order (chains_sort), into b. place[i], [list[i]->n], gets the index in
 * the batch of each of its tokens. share: false where angles depend on the chain's length. */
void chains_sort(struct chain **list, size_t n, bool share);
err_code chains_pack(struct chain *const *list, size_t n, struct batch_builder *b, uint32_t *const *place,
                     struct err *e);

/* Scores all chains; reorders list. A chain that fails alone (ERR_NUMERIC, ERR_MEMORY) is told to `failed` and the rest
 * go on; any other error ends the call. */
typedef void chains_failed(void *arg, struct chain *c, const struct err *why);
err_code chains_score(struct session *s, struct chain **list, size_t n, bool share, chains_failed *failed, void *arg,
                      struct err *e);

#endif
