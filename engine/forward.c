/* See forward.h. Owns the layout of a batch: which tokens need a row, and which row predicts what.
 *
 * A token needs a row when its keys or its hidden state are used by a scored token later in its chain. So the last
 * token of a leaf has none, nor has what follows the last scored token. Rows stand in batch order, thus parents before
 * children: when a chunk of rows reaches attention, the keys of all it sees are there. */
#include "engine/forward.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"

#define MAX_CHAIN ((uint64_t)1 << 31) /* positions are uint32_t, and 2^31 leaves room for arithmetic */

/* A batch laid out. All owned, and kept for the next batch: fresh pages cost more than what is written to them. */
struct layout {
	struct pass_segment *segments;                 /* [n_segments] */
	uint8_t *whole;                                /* [n_segments] */
	uint32_t *tokens, *pos;                        /* [n_rows] */
	uint32_t *pred_row, *pred_target, *pred_token; /* [n_pred]; pred_token: the target's index in the batch */
	struct token_score *scores;                    /* [n_pred] */
	uint32_t n_rows, n_pred;
	size_t segments_cap, rows_cap, preds_cap;
};

static void rows_release(struct layout *l)
{
	free(l->tokens);
	free(l->pos);
	l->tokens = l->pos = NULL;
	l->rows_cap = 0;
}

static void preds_release(struct layout *l)
{
	free(l->pred_row);
	free(l->pred_target);
	free(l->pred_token);
	free(l->scores);
	l->pred_row = l->pred_target = l->pred_token = NULL;
	l->scores = NULL;
	l->preds_cap = 0;
}

static void segments_release(struct layout *l)
{
	free(l->segments);
	free(l->whole);
	l->segments = NULL;
	l->whole = NULL;
	l->segments_cap = 0;
}

static err_code reserve_segments(struct layout *l, uint32_t n, struct err *e)
{
	if (n <= l->segments_cap && l->segments)
		return ERR_OK;
	segments_release(l);
	if (!(l->segments = mem_alloc(n, sizeof *l->segments, e)) || !(l->whole = mem_alloc(n, 1, e))) {
		segments_release(l);
		return ERR_MEMORY;
	}
	l->segments_cap = n;
	return ERR_OK;
}

static err_code reserve_rows(struct layout *l, uint32_t n, struct err *e)
{
	if (n <= l->rows_cap && l->tokens)
		return ERR_OK;
	rows_release(l);
	if (!(l->tokens = mem_alloc(n, sizeof *l->tokens, e)) || !(l->pos = mem_alloc(n, sizeof *l->pos, e))) {
		rows_release(l);
		return ERR_MEMORY;
	}
	l->rows_cap = n;
	return ERR_OK;
}

static err_code reserve_preds(struct layout *l, uint32_t n, struct err *e)
{
	if (n <= l->preds_cap && l->pred_row)
		return ERR_OK;
	preds_release(l);
	if (!(l->pred_row = mem_alloc(n, sizeof *l->pred_row, e)) ||
	    !(l->pred_target = mem_alloc(n, sizeof *l->pred_target, e)) ||
	    !(l->pred_token = mem_alloc(n, sizeof *l->pred_token, e)) ||
	    !(l->scores = mem_alloc(n, sizeof *l->scores, e))) {
		preds_release(l);
		return ERR_MEMORY;
	}
	l->preds_cap = n;
	return ERR_OK;
}

void forward_release(struct forward_control *c)
{
	struct layout *l = c->layout;

	probe_release(&c->probe);
	if (!l)
		return;
	segments_release(l);
	rows_release(l);
	preds_release(l);
	free(l);
	c->layout = NULL;
}

/* -- the checks ---------------------------------------------------------------------------------- */

static err_code check_segment(const struct batch *b, uint32_t i, uint32_t start, struct err *e)
{
	const struct segment *s = &b->segments[i];

	if (!s->len)
		return err_set(e, ERR_INPUT, "batch: segment %u is empty", i);
	if (s->start != start)
		return err_set(e, ERR_INPUT, "batch: segment %u starts at token %u, not %u", i, s->start, start);
	if (s->len > b->n_tokens - start)
		return err_set(e, ERR_INPUT, "batch: segment %u ends beyond token %u", i, b->n_tokens);
	if (s->parent < -1 || s->parent >= (int64_t)i)
		return err_set(e, ERR_INPUT, "batch: segment %u has parent %d", i, s->parent);
	if (s->parent < 0 && b->score[start])
		return err_set(e, ERR_INPUT,
		               "batch: the first token of segment %u is scored, but nothing stands before it", i);
	return ERR_OK;
}

static err_code check_tokens(const struct batch *b, uint32_t i, uint32_t n_vocab, uint32_t start_pos, struct err *e)
{
	const struct segment *s = &b->segments[i];
	uint32_t most = 0;

	for (uint32_t j = 0; j < s->len; j++)
		most = b->tokens[s->start + j] > most ? b->tokens[s->start + j] : most;
	for (uint32_t j = 0; most >= n_vocab && j < s->len; j++)
		if (b->tokens[s->start + j] >= n_vocab)
			return err_set(e, ERR_INPUT,
			               "batch: token id %u at position %u of segment %u: the model has %u ids",
			               b->tokens[s->start + j], start_pos + j, i, n_vocab);
	return ERR_OK;
}

/* Checks all segments and gives each its place in its chain. */
static err_code check_batch(const struct batch *b, uint32_t n_vocab, struct pass_segment *out, struct err *e)
{
	uint32_t start = 0;

	for (uint32_t i = 0; i < b->n_segments; i++) {
		const struct segment *s = &b->segments[i];
		uint64_t pos = 0;

		if (check_segment(b, i, start, e))
			return e->code;
		if (s->parent >= 0)
			pos = (uint64_t)out[s->parent].start_pos + b->segments[s->parent].len;
		if (pos + s->len > MAX_CHAIN)
			return err_set(e, ERR_INPUT, "batch: the chain of segment %u has %" PRIu64 " tokens", i,
			               pos + s->len);
		out[i].parent = s->parent;
		out[i].start_pos = (uint32_t)pos;
		if (check_tokens(b, i, n_vocab, (uint32_t)pos, e))
			return e->code;
		start += s->len;
	}
	if (start != b->n_tokens)
		return err_set(e, ERR_INPUT, "batch: segments hold %u tokens of %u", start, b->n_tokens);
	return ERR_OK;
}

/* -- the layout ---------------------------------------------------------------------------------- */

/* n_row of every segment, children first: a segment that a child builds on needs all its rows. `whole` is scratch. */
static void count_rows(const struct batch *b, struct pass_segment *segments, uint8_t *whole)
{
	memset(whole, 0, b->n_segments);
	for (uint32_t i = b->n_segments; i-- > 0;) {
		const struct segment *s = &b->segments[i];
		uint32_t n = s->len;

		while (!whole[i] && n > 0 && !b->score[s->start + n - 1])
			n--;
		/* now token n - 1 is the last that is scored, and n - 1 rows stand before it */
		segments[i].n_row = whole[i] ? s->len : n ? n - 1 : 0;
		if (s->parent >= 0 && (segments[i].n_row || b->score[s->start]))
			whole[s->parent] = 1;
	}
}

static void fill_rows(struct layout *l, const struct batch *b)
{
	uint32_t row = 0, pred = 0;

	for (uint32_t i = 0; i < b->n_segments; i++) {
		struct pass_segment *p = &l->segments[i];
		uint32_t start = b->segments[i].start;

		p->row = row;
		memcpy(l->tokens + row, b->tokens + start, p->n_row * sizeof *l->tokens);
		for (uint32_t j = 0; j < p->n_row; j++)
			l->pos[row + j] = p->start_pos + j;
		row += p->n_row;
		for (uint32_t j = 0; j < b->segments[i].len; j++) {
			if (!b->score[start + j])
				continue;
			if (j == 0) {
				const struct pass_segment *parent = &l->segments[p->parent];

				l->pred_row[pred] = parent->row + parent->n_row - 1;
			} else {
				l->pred_row[pred] = p->row + j - 1;
			}
			l->pred_target[pred] = b->tokens[start + j];
			l->pred_token[pred++] = start + j;
		}
	}
}

static err_code layout_fill(struct layout *l, const struct batch *b, uint32_t n_vocab, struct err *e)
{
	err_code rc;

	l->n_rows = l->n_pred = 0;
	if ((rc = reserve_segments(l, b->n_segments, e)) || (rc = check_batch(b, n_vocab, l->segments, e)))
		return rc;
	count_rows(b, l->segments, l->whole);
	for (uint32_t i = 0; i < b->n_segments; i++)
		l->n_rows += l->segments[i].n_row;
	for (uint32_t i = 0; i < b->n_tokens; i++)
		l->n_pred += b->score[i] != 0;
	if ((rc = reserve_rows(l, l->n_rows, e)) || (rc = reserve_preds(l, l->n_pred, e)))
		return rc;
	fill_rows(l, b);
	return ERR_OK;
}

/* -- the pass ------------------------------------------------------------------------------------ */

/* Progress in steps: a row through a layer, or a prediction through the head. */
struct progress {
	struct forward_control *control;
	uint64_t base, n_tokens, n_steps, step;
};

static void progress_add(struct progress *p, uint64_t steps)
{
	p->step += steps;
	atomic_store(&p->control->done_tokens,
	             p->base + (uint64_t)((double)p->n_tokens * (double)p->step / (double)p->n_steps));
}

static err_code check_stop(const struct progress *p, struct err *e)
{
	if (atomic_load(&p->control->stop))
		return err_set(e, ERR_CANCELLED, "scoring was stopped");
	return ERR_OK;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static err_code run_layer(const struct backend_ops *ops, struct backend *b, const struct model_config *c,
                          uint32_t layer, uint32_t n_rows, struct progress *p, struct err *e)
{
	struct probe *probe = &p->control->probe;
	uint32_t chunk = ops->chunk_rows(b);

	for (uint32_t r0 = 0, r1; r0 < n_rows; r0 = r1) {
		err_code rc;

		r1 = r0 + min_u32(chunk, n_rows - r0);
		if ((rc = check_stop(p, e)) || (rc = ops->qkv(b, layer, r0, r1, e)) ||
		    (probe->use && (rc = probe_rows(probe, ops, b, c, layer, r0, r1, e))) ||
		    (rc = ops->attention(b, layer, r0, r1, e)) || (rc = ops->mlp(b, layer, r0, r1, e)))
			return rc;
		progress_add(p, r1 - r0);
	}
	return ERR_OK;
}

static err_code run_pass(const struct backend_ops *ops, struct backend *b, const struct layout *l,
                         const struct model_config *c, struct progress *p, struct err *e)
{
	uint32_t chunk = ops->chunk_rows(b);
	err_code rc;

	for (uint32_t r0 = 0, r1; r0 < l->n_rows; r0 = r1) {
		r1 = r0 + min_u32(chunk, l->n_rows - r0);
		if ((rc = ops->embed(b, r0, r1, e)))
			return rc;
	}
	for (uint32_t layer = 0; layer < c->n_layer; layer++)
		if ((rc = run_layer(ops, b, c, layer, l->n_rows, p, e)))
			return rc;
	if (p->control->probe.use)
		p->control->probe.use->n_rows += l->n_rows;
	for (uint32_t p0 = 0, p1; p0 < l->n_pred; p0 = p1) {
		p1 = p0 + min_u32(chunk, l->n_pred - p0);
		if ((rc = check_stop(p, e)) || (rc = ops->head(b, p0, p1, l->scores, e)))
			return rc;
		progress_add(p, p1 - p0);
	}
	return ERR_OK;
}

err_code forward_run(const struct backend_ops *ops, struct backend *b, const struct model_config *config,
                     const struct batch *batch, struct forward_control *control, struct token_score *out, struct err *e)
{
	struct progress p = {
	    .control = control, .base = atomic_load(&control->done_tokens), .n_tokens = batch->n_tokens};
	struct layout *l = control->layout;
	struct pass pass;
	struct err ignored;
	err_code rc;

	if (!l && !(l = control->layout = mem_zalloc(1, sizeof *l, e)))
		return e->code;
	if ((rc = layout_fill(l, batch, config->n_vocab, e)) || (rc = check_stop(&p, e)))
		return rc;
	if (l->n_pred) {
		pass = (struct pass){l->tokens,
		                     l->pos,
		                     l->n_rows,
		                     l->segments,
		                     batch->n_segments,
		                     l->pred_row,
		                     l->pred_target,
		                     l->n_pred,
		                     control->probe.use != NULL};
		p.n_steps = (uint64_t)l->n_rows * config->n_layer + l->n_pred;
		if ((rc = ops->begin(b, &pass, e)))
			return rc;
		rc = run_pass(ops, b, l, config, &p, e);
		if (rc)
			ops->end(b, &ignored);
		else
			rc = ops->end(b, e);
		if (rc)
			return rc;
	}
	atomic_store(&control->done_tokens, p.base + batch->n_tokens);
	for (uint32_t i = 0; i < l->n_pred; i++)
		out[l->pred_token[i]] = l->scores[i];
	return ERR_OK;
}
