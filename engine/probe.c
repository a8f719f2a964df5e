/* The probe of a session: the magnitudes of queries and keys by frequency (session_probe in engine.h). Reads them a few
 * rows at a time where attention would, after the turn: a turn keeps a pair's 2-norm, and PoPE's cosine and sine
 * give the softplus back as theirs, with delta or without. */
#include <math.h>
#include <stdlib.h>

#include "engine/buf.h"
#include "engine/forward.h"

#define ROWS 256 /* read at a time */

void probe_release(struct probe *p)
{
	free(p->q);
	free(p->k);
	p->q = p->k = NULL;
}

/* sums[i] += |(x_i, x_(i + n_freq))| / amplitude, of each of n heads in turn. */
static void add_heads(double *sums, const float *x, uint32_t n, uint32_t width, uint32_t n_freq, double amplitude)
{
	for (uint32_t h = 0; h < n; h++, x += width)
		for (uint32_t i = 0; i < n_freq; i++) {
			double a = x[i], b = x[i + n_freq];

			sums[i] += sqrt(a * a + b * b) / amplitude;
		}
}

err_code probe_rows(struct probe *p, const struct backend_ops *ops, struct backend *b, const struct model_config *c,
                    uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	uint32_t n_freq = position_count_freq(&c->position, c->head_dim);
	uint32_t d_qk = c->position.type == POSITION_POPE ? 2 * c->head_dim : c->head_dim;
	size_t q_width = (size_t)c->n_head * d_qk, k_width = (size_t)c->n_kv_head * d_qk;
	double *q_sums = p->use->sums + (size_t)layer * 2 * n_freq, *k_sums = q_sums + n_freq;
	double amplitude = (float)c->position.attention_factor; /* as a position_table has it */

	if (!p->q && !(p->q = mem_alloc(ROWS * q_width, sizeof *p->q, e)))
		return e->code;
	if (!p->k && !(p->k = mem_alloc(ROWS * k_width, sizeof *p->k, e)))
		return e->code;
	for (uint32_t r0 = row0, n; r0 < row1; r0 += n) {
		n = row1 - r0 < ROWS ? row1 - r0 : ROWS;
		if (ops->read_qk(b, r0, r0 + n, p->q, p->k, e))
			return e->code;
		for (uint32_t r = 0; r < n; r++) {
			add_heads(q_sums, p->q + r * q_width, c->n_head, d_qk, n_freq, amplitude);
			add_heads(k_sums, p->k + r * k_width, c->n_kv_head, d_qk, n_freq, amplitude);
		}
	}
	return ERR_OK;
}
