/* Model FLOPs: the arithmetic that a model asks of a batch, whoever does it and how. What a kernel computes twice, or
 * for padding, is not counted; nor is what is no product (norms, activations, softmax, rotations). */
#include "engine/engine.h"

/* A product of an [n, k] matrix with a row. */
static double product(double n, double k)
{
	return 2 * n * k;
}

/* Of one row through one layer, attention's scores apart. */
static double row_flops(const struct model_config *c)
{
	double q = (double)c->n_head * c->head_dim, kv = (double)c->n_kv_head * c->head_dim;

	return product(q + 2 * kv, c->dim) + product(c->dim, q) + (c->mlp_gated ? 3 : 2) * product(c->ffn_dim, c->dim);
}

/* Of one pair of a query and a key that it sees, in one layer: q k^T and p v. PoPE's q and k are twice as wide. */
static double pair_flops(const struct model_config *c)
{
	double d_qk = (c->position.type == POSITION_POPE ? 2. : 1.) * c->head_dim;

	return c->n_head * (product(1, d_qk) + product(1, c->head_dim));
}

/* A tree's segments stand together, so a child of segment i comes before the next root. */
static bool is_leaf(const struct batch *b, uint32_t i)
{
	for (uint32_t j = i + 1; j < b->n_segments && b->segments[j].parent >= 0; j++)
		if (b->segments[j].parent == (int32_t)i)
			return false;
	return true;
}

double model_flops(const struct model_config *c, const struct batch *b)
{
	double rows = 0, pairs = 0, scored = 0;

	for (uint32_t i = 0; i < b->n_segments; i++) {
		const struct segment *s = &b->segments[i];
		double n = s->len - (is_leaf(b, i) ? 1. : 0.), before = 0;

		for (int32_t p = s->parent; p >= 0; p = b->segments[p].parent)
			before += b->segments[p].len;
		rows += n;
		pairs += n * before + n * (n + 1) / 2;
	}
	for (uint32_t i = 0; i < b->n_tokens; i++)
		scored += b->score[i] != 0;
	return c->n_layer * (rows * row_flops(c) + pairs * pair_flops(c)) + scored * product(c->n_vocab, c->dim);
}
