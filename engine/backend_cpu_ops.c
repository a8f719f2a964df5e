/* The CPU backend's ops.
 *
 * Every op is one or two rounds of tasks over the pool: tiles of KERN_TILE rows counted from the chunk's start, or
 * (attention) a run of rows of one segment and one head. No task writes what another of its round reads, and a row's
 * arithmetic does not depend on its tile, so neither chunk nor threads change a bit.
 *
 * Keys and values lie in panels of KERN_PANEL keys, aligned to chain positions. A segment that starts inside a panel
 * begins with a copy of its parent's last one (stitch); the whole panels before it are its ancestors' own. */
#include <stdlib.h>
#include <string.h>

#include "engine/backend_cpu.h"
#include "engine/panels.h"

static void note_fault(struct backend *b, uint32_t row)
{
	pthread_mutex_lock(&b->lock);
	if (row < b->fault_row)
		b->fault_row = row;
	pthread_mutex_unlock(&b->lock);
}

/* Runs a product; its failure is noted, and shows when the op is finished. */
static void product(struct backend *b, float *out, const void *in, const struct kern_matmul *m, void *scratch)
{
	int rc = kern_matmul_cpu(out, in, m, scratch);

	if (rc) {
		pthread_mutex_lock(&b->lock);
		b->status = rc;
		pthread_mutex_unlock(&b->lock);
	}
}

/* What the tasks of an op have noted. */
static err_code check_op(const struct backend *b, const char *what, struct err *e)
{
	if (b->status)
		return err_set(e, ERR_DEVICE, "layer %u: %s: %s", b->layer, what, kern_status(b->status));
	if (b->fault_row == UINT32_MAX)
		return ERR_OK;
	return pass_fault(&b->pass, b->fault_row, b->layer == b->c.n_layer ? -1 : (int64_t)b->layer, what, e);
}

static uint32_t n_row_tiles(const struct backend *b)
{
	return (b->row1 - b->row0 + KERN_TILE - 1) / KERN_TILE;
}

static uint32_t tile_rows(const struct backend *b, uint32_t row)
{
	return b->row1 - row < KERN_TILE ? b->row1 - row : KERN_TILE;
}

static void set_op(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1)
{
	b->layer = layer;
	b->row0 = row0;
	b->row1 = row1;
}

/* -- ops ----------------------------------------------------------------------------------------- */

err_code cpu_embed(struct backend *b, uint32_t row0, uint32_t row1, struct err *e)
{
	size_t dim = b->c.dim;

	(void)e;
	for (uint32_t r = row0; r < row1; r++)
		tensor_to_f32(&b->model->embed, b->pass.tokens[r] * dim, dim, b->x + r * dim);
	return ERR_OK;
}

/* What queries are multiplied by: attention's exponential is 2^x. */
static float q_scale(const struct backend *b)
{
	return b->c.attention_scale * 1.44269504f;
}

static void qkv_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct backend *b = arg;
	const struct layer_cpu *l = &b->weights.layers[b->layer];
	struct scratch *s = &b->scratch[thread];
	uint32_t row = b->row0 + task * KERN_TILE, n = tile_rows(b, row), bad;
	size_t in_chunk = row - b->row0;

	bad = b->kern->rmsnorm(s->in, b->x + (size_t)row * b->c.dim, l->attn_norm, n, b->c.dim, b->c.rms_eps, b->type);
	if (bad < n) {
		note_fault(b, row + bad);
		return;
	}
	product(b, s->wide, s->in, l->qkv, s->product);
	bad = b->kern->qkv_post(&(struct kern_qkv_post){
	    .q = (char *)b->q + in_chunk * b->c.n_head * b->d_qk * kern_type_size(b->type),
	    .k = b->k,
	    .v = b->v,
	    .k_head_words = b->k_head_words,
	    .v_head_words = b->v_head_words,
	    .qkv = s->wide,
	    .bias = l->qkv_bias,
	    .pos = b->pass.pos + row,
	    .panel = b->row_panel + row,
	    .freq = b->table.freq,
	    .cos_delta = l->cos_delta,
	    .sin_delta = l->sin_delta,
	    .amplitude = b->table.amplitude,
	    .q_scale = q_scale(b),
	    .n_rows = n,
	    .n_head = b->c.n_head,
	    .n_kv_head = b->c.n_kv_head,
	    .head_dim = b->c.head_dim,
	    .pope = b->c.position.type == POSITION_POPE,
	    .type = b->type,
	});
	if (bad < n)
		note_fault(b, row + bad);
}

/* Copies columns 0..n_keys of a panel: all of it but what the child's own rows have already written. */
static void stitch_panel(struct backend *b, uint32_t to, uint32_t from, uint32_t n_keys)
{
	uint32_t size = (uint32_t)kern_type_size(b->type), pair = 4 / size, width = kern_v_width(b->c.head_dim);
	size_t k_words = kern_k_panel_words(b->d_qk, b->type);
	size_t v_words = kern_v_panel_words(b->c.head_dim, b->type);

	for (uint32_t h = 0; h < b->c.n_kv_head; h++) {
		float *k = b->k + h * b->k_head_words, *v = b->v + h * b->v_head_words;
		char *v_to = (char *)(v + to * v_words), *v_from = (char *)(v + from * v_words);

		for (uint32_t c = 0; c < b->d_qk / pair; c++)
			memcpy(k + to * k_words + c * KERN_PANEL, k + from * k_words + c * KERN_PANEL,
			       4 * (size_t)n_keys);
		for (uint32_t j = 0; j < n_keys; j++)
			for (uint32_t i = 0; i < width; i++) {
				size_t at = ((size_t)(j / pair) * width + i) * pair + j % pair;

				memcpy(v_to + at * size, v_from + at * size, size);
			}
	}
}

/* Segments that start in this chunk, in order: a parent's last panel is complete before its children copy it. */
static void stitch(struct backend *b)
{
	const struct pass *p = &b->pass;

	for (uint32_t i = pass_segment_of(p, b->row0); i < p->n_segments && p->segments[i].row < b->row1; i++) {
		const struct pass_segment *s = &p->segments[i];
		uint32_t n_keys = s->start_pos % KERN_PANEL;

		if (!s->n_row || s->row < b->row0 || !n_keys)
			continue;
		stitch_panel(b, b->segment_panel[i],
		             b->segment_panel[s->parent] + panels_of_segment(&p->segments[s->parent], KERN_PANEL) - 1,
		             n_keys);
	}
}

err_code cpu_qkv(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	err_code rc;

	set_op(b, layer, row0, row1);
	pool_run(b->pool, qkv_tile, b, n_row_tiles(b));
	if ((rc = check_op(b, "queries, keys and values", e)))
		return rc;
	stitch(b);
	return ERR_OK;
}

/* An element of the type, out of words that hold one f32 or a pair of bf16. */
static float word_element(const float *words, size_t i, enum kern_type type)
{
	uint32_t bits;
	uint16_t half;
	float x;

	if (type == KERN_F32)
		return words[i];
	memcpy(&half, (const char *)words + i * sizeof half, sizeof half);
	bits = (uint32_t)half << 16;
	memcpy(&x, &bits, sizeof x);
	return x;
}

err_code cpu_read_qk(struct backend *b, uint32_t row0, uint32_t row1, float *q, float *k, struct err *e)
{
	size_t width = (size_t)b->c.n_head * b->d_qk, k_words = kern_k_panel_words(b->d_qk, b->type);
	uint32_t pair = 4 / (uint32_t)kern_type_size(b->type);

	(void)e;
	for (uint32_t r = row0; r < row1; r++) {
		uint32_t column = b->pass.pos[r] % KERN_PANEL;

		for (size_t i = 0; i < width; i++)
			*q++ = word_element(b->q, (r - b->row0) * width + i, b->type) / q_scale(b);
		for (uint32_t h = 0; h < b->c.n_kv_head; h++) {
			const float *panel = b->k + h * b->k_head_words + b->row_panel[r] * k_words;

			for (uint32_t c = 0; c < b->d_qk; c++)
				*k++ =
				    word_element(panel + (size_t)(c / pair) * KERN_PANEL + column, c % pair, b->type);
		}
	}
	return ERR_OK;
}

/* The chunk's tiles, those with the longest chains first. */
static int tile_longer(const void *a, const void *b, void *arg)
{
	const uint32_t *pos = arg;
	uint32_t pa = pos[((const struct tile *)a)->row], pb = pos[((const struct tile *)b)->row];

	return pa < pb ? 1 : pa > pb ? -1 : 0;
}

static void list_tiles(struct backend *b)
{
	const struct pass *p = &b->pass;
	union {
		const uint32_t *in;
		void *arg;
	} pos = {.in = p->pos};

	b->n_tiles = 0;
	for (uint32_t i = pass_segment_of(p, b->row0), row = b->row0; row < b->row1; i++) {
		uint32_t end = p->segments[i].row + p->segments[i].n_row;

		end = end < b->row1 ? end : b->row1;
		for (; row < end; row += b->tiles[b->n_tiles++].n_rows)
			b->tiles[b->n_tiles] = (struct tile){i, row, end - row < KERN_TILE ? end - row : KERN_TILE};
	}
	qsort_r(b->tiles, b->n_tiles, sizeof *b->tiles, tile_longer, pos.arg);
}

/* The panels of a segment's chain, from position 0 to its last row. */
static void list_panels(const struct backend *b, uint32_t segment, uint32_t n_panels, uint32_t *panels)
{
	for (int64_t i = segment; i >= 0 && n_panels; i = b->pass.segments[i].parent) {
		uint32_t first = panel_of(b->pass.segments[i].start_pos);

		while (n_panels > first) {
			n_panels--;
			panels[n_panels] = b->segment_panel[i] + n_panels - first;
		}
	}
}

static void attention_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct backend *b = arg;
	struct scratch *s = &b->scratch[thread];
	uint32_t head = task / b->n_tiles, kv = head / (b->c.n_head / b->c.n_kv_head);
	const struct tile *t = &b->tiles[task % b->n_tiles];
	size_t size = kern_type_size(b->type), in_chunk = t->row - b->row0;
	struct kern_attention a = {
	    .out = (char *)b->attended + size * (in_chunk * b->head_width + head * b->c.head_dim),
	    .q = (char *)b->q + size * (in_chunk * b->c.n_head + head) * b->d_qk,
	    .k = b->k + kv * b->k_head_words,
	    .v = b->v + kv * b->v_head_words,
	    .panels = s->panels,
	    .out_stride = b->head_width,
	    .q_stride = (size_t)b->c.n_head * b->d_qk,
	    .n_rows = t->n_rows,
	    .pos0 = b->pass.pos[t->row],
	    .d_qk = b->d_qk,
	    .d_v = b->c.head_dim,
	    .scratch = s->attention,
	};
	uint32_t bad;

	list_panels(b, t->segment, panel_of(a.pos0 + a.n_rows - 1) + 1, s->panels);
	bad = b->type == KERN_BF16 ? b->kern->attention_bf16(&a) : b->kern->attention_f32(&a);
	if (bad < t->n_rows)
		note_fault(b, t->row + bad);
}

static void output_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct backend *b = arg;
	const struct layer_cpu *l = &b->weights.layers[b->layer];
	struct scratch *s = &b->scratch[thread];
	uint32_t row = b->row0 + task * KERN_TILE, n = tile_rows(b, row), bad;
	size_t at = (size_t)task * KERN_TILE * b->head_width * kern_type_size(b->type);

	product(b, s->wide, (char *)b->attended + at, l->o, s->product);
	bad = b->kern->residual(b->x + (size_t)row * b->c.dim, s->wide, l->o_bias, n, b->c.dim);
	if (bad < n)
		note_fault(b, row + bad);
}

err_code cpu_attention(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	err_code rc;

	set_op(b, layer, row0, row1);
	list_tiles(b);
	pool_run(b->pool, attention_tile, b, b->n_tiles * b->c.n_head);
	if ((rc = check_op(b, "attention", e)))
		return rc;
	pool_run(b->pool, output_tile, b, n_row_tiles(b));
	return check_op(b, "attention's output", e);
}

static void mlp_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct backend *b = arg;
	const struct layer_cpu *l = &b->weights.layers[b->layer];
	struct scratch *s = &b->scratch[thread];
	uint32_t row = b->row0 + task * KERN_TILE, n = tile_rows(b, row), bad;
	float *x = b->x + (size_t)row * b->c.dim;

	bad = b->kern->rmsnorm(s->in, x, l->mlp_norm, n, b->c.dim, b->c.rms_eps, b->type);
	if (bad == n) {
		product(b, s->wide, s->in, l->up, s->product);
		b->kern->activation(s->act, s->wide, l->up_bias, n, b->c.ffn_dim, backend_act(b->c.act), b->c.mlp_gated,
		                    b->type);
		product(b, s->wide, s->act, l->down, s->product);
		bad = b->kern->residual(x, s->wide, l->down_bias, n, b->c.dim);
	}
	if (bad < n)
		note_fault(b, row + bad);
}

err_code cpu_mlp(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	set_op(b, layer, row0, row1);
	pool_run(b->pool, mlp_tile, b, n_row_tiles(b));
	return check_op(b, "the mlp", e);
}

/* Here row0..row1 are predictions: the final norm, the logits in blocks of the vocabulary, each score. */
static void head_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct backend *b = arg;
	struct scratch *s = &b->scratch[thread];
	uint32_t pred = b->row0 + task * KERN_TILE, n = tile_rows(b, pred);
	struct kern_head_row rows[KERN_TILE];

	for (uint32_t i = 0; i < n; i++) {
		uint32_t row = b->pass.pred_row[pred + i];
		char *to = (char *)s->in + i * kern_type_size(b->type) * b->c.dim;

		if (b->kern->rmsnorm(to, b->x + (size_t)row * b->c.dim, b->weights.norm, 1, b->c.dim, b->c.rms_eps,
		                     b->type) != 1)
			note_fault(b, row);
		rows[i] = (struct kern_head_row){.target = b->pass.pred_target[pred + i]};
	}
	for (uint32_t i = 0; i < b->weights.n_head_block; i++) {
		uint32_t id0 = i * HEAD_BLOCK, n_ids = b->c.n_vocab - id0;

		n_ids = n_ids < HEAD_BLOCK ? n_ids : HEAD_BLOCK;
		product(b, s->wide, s->in, b->weights.head[i], s->product);
		b->kern->head(rows, s->wide, n_ids, n, id0, n_ids, i == 0);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct token_score *out = &b->out[pred + i];

		if (!b->kern->head_finish(&rows[i], &out->logprob, &out->argmax_logprob))
			note_fault(b, b->pass.pred_row[pred + i]);
		out->argmax = rows[i].argmax;
	}
}

err_code cpu_head(struct backend *b, uint32_t pred0, uint32_t pred1, struct token_score *out, struct err *e)
{
	set_op(b, b->c.n_layer, pred0, pred1);
	b->out = out;
	pool_run(b->pool, head_tile, b, n_row_tiles(b));
	return check_op(b, "the head", e);
}
