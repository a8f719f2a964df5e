/* The CUDA backend's ops: launches, in order, on one stream; nothing waits, but for a large pass that would run too far
 * ahead of the device to be stopped, and for what a probe reads.
 *
 * A branch leaves its output in y; the next norm adds it, and the branch's bias, to the residual x. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "engine/backend_cuda.h"
#include "engine/buf.h"

/* Where a row of x or y, or a word of what went up, lies. */
static float *x_at(const struct backend *b, uint32_t row)
{
	return b->arena.x + (size_t)row * b->c.dim;
}

static void *y_at(const struct backend *b, uint32_t row)
{
	return (char *)b->arena.y + (size_t)row * b->c.dim * kern_type_size(b->type);
}

static uint32_t *up_at(const struct backend *b, uint32_t word)
{
	return b->arena.up + word;
}

static struct kern_fault fault_of(const struct backend *b, uint32_t layer, enum stage step, uint32_t row0)
{
	return (struct kern_fault){.word = b->arena.fault, .stage = N_STAGES * layer + step, .row0 = row0};
}

static err_code fail(const char *what, uint32_t layer, int rc, struct err *e)
{
	return cuda_error(e, rc, "layer %u: %s", layer, what);
}

/* x += y + bias, h = norm(x). Nothing is pending before the first layer. */
static int norm(struct backend *b, uint32_t layer, enum stage step, uint32_t row0, uint32_t row1)
{
	const struct layer_cuda *l = &b->weights.layers[layer];
	bool first = step == STAGE_INPUT && layer == 0;
	struct kern_rmsnorm_cuda a = {
	    .out = b->arena.h,
	    .x = x_at(b, row0),
	    .y = first ? NULL : y_at(b, row0),
	    .bias = step == STAGE_MLP ? l->o_bias
	            : first           ? NULL
	                              : b->weights.layers[layer - 1].down_bias,
	    .w = step == STAGE_MLP ? l->mlp_norm : l->attn_norm,
	    .n_rows = row1 - row0,
	    .dim = b->c.dim,
	    .eps = b->c.rms_eps,
	    .type = b->type,
	    .fault = fault_of(b, layer, step, row0),
	};

	return kern_rmsnorm_cuda(&a, b->stream);
}

static int product(struct backend *b, void *out, const void *in, const void *w, uint32_t n_rows, uint32_t n, uint32_t k,
                   bool gelu)
{
	return kern_matmul_cuda(b->blas, out, b->type, in, w, n_rows, n, k, gelu, b->stream);
}

/* A layer of a large pass is not launched before the device has come to N_AHEAD layers before it. */
static int keep_pace(struct backend *b, uint32_t layer)
{
	struct CUevent_st *event = b->ahead[layer % N_AHEAD];
	int rc;

	if (b->key.n_rows <= GRAPH_ROWS)
		return 0;
	if (layer >= N_AHEAD && (rc = cudaEventSynchronize(event)))
		return rc;
	return cudaEventRecord(event, b->stream);
}

/* -- ops ------------------------------------------------------------------------------------------- */

static float *turns_at(const struct backend *b, uint32_t row)
{
	return b->arena.turns + 2 * (size_t)row * cuda_count_freq(&b->c);
}

/* Also the angles of all layers. */
err_code cuda_embed(struct backend *b, uint32_t row0, uint32_t row1, struct err *e)
{
	int rc;

	if (b->mode == PASS_REPLAY)
		return ERR_OK;
	rc = kern_embed_cuda(x_at(b, row0), b->weights.embed, up_at(b, b->at.tokens + row0), row1 - row0, b->c.dim,
	                     b->type, b->stream);
	if (!rc && b->fused_qkv)
		rc = kern_turns_cuda(turns_at(b, row0), up_at(b, b->at.pos + row0), b->weights.freq,
		                     b->weights.amplitude, row1 - row0, cuda_count_freq(&b->c), b->stream);
	return rc ? cuda_error(e, rc, "the embedding") : ERR_OK;
}

/* h -> q, k, v in their places. */
static int spread(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1)
{
	const struct layer_cuda *l = &b->weights.layers[layer];
	struct kern_qkv_post_cuda a = {
	    .q = b->arena.q,
	    .k = b->arena.k,
	    .v = b->arena.v,
	    .qkv = b->arena.wide,
	    .bias = l->qkv_bias,
	    .pos = up_at(b, b->at.pos + row0),
	    .slot = up_at(b, b->at.slot + row0),
	    .freq = b->weights.freq,
	    .cos_delta = l->cos_delta,
	    .sin_delta = l->sin_delta,
	    .amplitude = b->weights.amplitude,
	    .n_rows = row1 - row0,
	    .q_rows = b->arena.has.chunk,
	    .n_slots = b->arena.has.slots,
	    .n_head = b->c.n_head,
	    .n_kv_head = b->c.n_kv_head,
	    .head_dim = b->c.head_dim,
	    .d_qk = b->shape.d_qk,
	    .d_v = b->shape.d_v,
	    .pope = b->c.position.type == POSITION_POPE,
	    .type = b->type,
	    .fault = fault_of(b, layer, STAGE_QKV, row0),
	};
	int rc;

	if (b->fused_qkv) {
		struct kern_qkv_cuda fused = {
		    .post = a, .in = b->arena.h, .w = l->qkv, .turns = turns_at(b, row0), .dim = b->c.dim};

		return kern_qkv_cuda(&fused, b->device, b->stream);
	}
	rc = product(b, b->arena.wide, b->arena.h, l->qkv, row1 - row0, b->qkv_width, b->c.dim, false);
	return rc ? rc : kern_qkv_post_cuda(&a, b->stream);
}

static int stitch(struct backend *b, uint32_t row0)
{
	uint32_t chunk = row0 / b->chunk, first = b->chunk_copies[chunk], n = b->chunk_copies[chunk + 1] - first;
	const struct kern_slot_copy *copies = (const struct kern_slot_copy *)up_at(b, b->at.copies) + first;

	if (!n)
		return 0;
	return kern_stitch_cuda(b->arena.k, b->arena.v, copies, n, b->c.n_kv_head, b->arena.has.slots, b->shape.d_qk,
	                        b->shape.d_v, b->shape.qk_type, b->type, b->stream);
}

err_code cuda_qkv(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	int rc;

	if (b->mode == PASS_REPLAY)
		return ERR_OK;
	if ((row0 == 0 && (rc = keep_pace(b, layer))) || (rc = norm(b, layer, STAGE_INPUT, row0, row1)) ||
	    (rc = spread(b, layer, row0, row1)) || (rc = stitch(b, row0)))
		return fail("queries, keys and values", layer, rc, e);
	return ERR_OK;
}

/* staged [n_heads, n_staged, d_qk as stored] qk_type to out [n, n_heads, d_qk] f32. Row r of n lies at slot[r] -
 * slot[0], or at r. */
static void unpack(const struct backend *b, const void *staged, uint32_t n_heads, uint32_t n_staged,
                   const uint32_t *slot, uint32_t n, float *out)
{
	struct tensor t = {.data = staged,
	                   .dtype = b->shape.qk_type == KERN_F32 ? DTYPE_F32 : DTYPE_F16,
	                   .n_dim = 2,
	                   .shape = {(uint64_t)n_heads * n_staged, b->shape.d_qk}};
	uint32_t halves = b->c.position.type == POSITION_POPE ? 2 : 1, stored = b->shape.d_qk / halves;

	for (uint32_t r = 0; r < n; r++)
		for (uint32_t h = 0; h < n_heads; h++)
			for (uint32_t i = 0; i < halves; i++, out += b->c.head_dim) {
				size_t row = (size_t)h * n_staged + (slot ? slot[r] - slot[0] : r);

				tensor_to_f32(&t, (row * halves + i) * stored, b->c.head_dim, out);
			}
}

/* Waits for the device: a pass that is probed is not a fast one. */
err_code cuda_read_qk(struct backend *b, uint32_t row0, uint32_t row1, float *q, float *k, struct err *e)
{
	size_t vector = b->shape.d_qk * kern_type_size(b->shape.qk_type);
	const uint32_t *slot = b->host_up + b->at.slot + row0;
	uint32_t n = row1 - row0, n_slots = slot[n - 1] - slot[0] + 1; /* slots ascend with rows */
	char *staged_q = mem_alloc((size_t)b->c.n_head * n, vector, e);
	char *staged_k = mem_alloc((size_t)b->c.n_kv_head * n_slots, vector, e);
	const char *from_q = (const char *)b->arena.q + row0 % b->chunk * vector;
	const char *from_k = (const char *)b->arena.k + slot[0] * vector;
	int rc;

	if (!staged_q || !staged_k) {
		free(staged_q);
		free(staged_k);
		return e->code;
	}
	if (!(rc = cudaMemcpy2DAsync(staged_q, n * vector, from_q, b->arena.has.chunk * vector, n * vector, b->c.n_head,
	                             cudaMemcpyDeviceToHost, b->stream)) &&
	    !(rc = cudaMemcpy2DAsync(staged_k, n_slots * vector, from_k, b->arena.has.slots * vector, n_slots * vector,
	                             b->c.n_kv_head, cudaMemcpyDeviceToHost, b->stream)) &&
	    !(rc = cudaStreamSynchronize(b->stream))) {
		unpack(b, staged_q, b->c.n_head, n, NULL, n, q);
		unpack(b, staged_k, b->c.n_kv_head, n_slots, slot, n, k);
	}
	free(staged_q);
	free(staged_k);
	return rc ? cuda_error(e, rc, "reading queries and keys") : ERR_OK;
}

err_code cuda_attention(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	uint32_t chunk = row0 / b->chunk, first = b->chunk_tiles[chunk];
	struct kern_attention_cuda a = {
	    .out = b->arena.attended,
	    .q = b->arena.q,
	    .k = b->arena.k,
	    .v = b->arena.v,
	    .tiles = (const struct kern_tile *)up_at(b, b->at.tiles) + first,
	    .panels = b->arena.panels,
	    .n_tiles = b->chunk_tiles[chunk + 1] - first,
	    .n_head = b->c.n_head,
	    .n_kv_head = b->c.n_kv_head,
	    .head_dim = b->c.head_dim,
	    .q_rows = b->arena.has.chunk,
	    .n_slots = b->arena.has.slots,
	    .out_stride = b->head_width,
	    .scale = b->c.attention_scale,
	    .pope = b->c.position.type == POSITION_POPE,
	    .type = b->type,
	    .counter = b->arena.counter,
	};
	int rc;

	if (b->mode == PASS_REPLAY)
		return ERR_OK;
	if ((rc = kern_attention_cuda(&a, b->device, b->stream)) ||
	    (rc = product(b, y_at(b, row0), b->arena.attended, b->weights.layers[layer].o, row1 - row0, b->c.dim,
	                  b->head_width, false)))
		return fail("attention", layer, rc, e);
	return ERR_OK;
}

/* act(gate) * up, or act(up): where it is, in *out. A product may have applied the activation. */
static int activate(struct backend *b, const struct layer_cuda *l, uint32_t n_rows, bool done, void **out)
{
	*out = b->c.mlp_gated ? b->arena.act : b->arena.wide;
	if (done)
		return 0;
	return kern_activation_cuda(*out, b->arena.wide, l->up_bias, n_rows, b->c.ffn_dim, backend_act(b->c.act),
	                            b->c.mlp_gated, b->type, b->stream);
}

err_code cuda_mlp(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	const struct layer_cuda *l = &b->weights.layers[layer];
	bool gelu = b->c.act == ACT_GELU_TANH && !b->c.mlp_gated && !l->up_bias;
	uint32_t n = row1 - row0;
	void *act;
	int rc;

	if (b->mode == PASS_REPLAY)
		return ERR_OK;
	if ((rc = norm(b, layer, STAGE_MLP, row0, row1)) ||
	    (rc = product(b, b->arena.wide, b->arena.h, l->up, n, b->up_width, b->c.dim, gelu)) ||
	    (rc = activate(b, l, n, gelu, &act)) ||
	    (rc = product(b, y_at(b, row0), act, l->down, n, b->c.dim, b->c.ffn_dim, false)))
		return fail("the mlp", layer, rc, e);
	return ERR_OK;
}

/* The last branch's output is added to the scored rows alone. */
static int gather(struct backend *b, uint32_t pred0, uint32_t pred1)
{
	struct kern_rmsnorm_cuda a = {
	    .out = b->arena.h,
	    .x = b->arena.x,
	    .y = b->arena.y,
	    .bias = b->weights.layers[b->c.n_layer - 1].down_bias,
	    .w = b->weights.norm,
	    .rows = up_at(b, b->at.pred_row + pred0),
	    .n_rows = pred1 - pred0,
	    .dim = b->c.dim,
	    .eps = b->c.rms_eps,
	    .type = b->type,
	    .fault = fault_of(b, b->c.n_layer, STAGE_INPUT, 0),
	};

	return kern_rmsnorm_cuda(&a, b->stream);
}

err_code cuda_head(struct backend *b, uint32_t pred0, uint32_t pred1, struct token_score *out, struct err *e)
{
	struct kern_head_cuda a = {
	    .out = b->arena.scores + pred0,
	    .h = b->arena.h,
	    .w = b->weights.head,
	    .targets = up_at(b, b->at.targets + pred0),
	    .n_rows = pred1 - pred0,
	    .dim = b->c.dim,
	    .n_vocab = b->c.n_vocab,
	    .type = b->type,
	    .scratch = b->arena.scratch,
	    .fault = fault_of(b, b->c.n_layer, STAGE_QKV, pred0),
	};
	int rc = 0;

	b->out = out;
	if (b->mode != PASS_REPLAY && !(rc = gather(b, pred0, pred1)) &&
	    !(rc = kern_head_cuda(&a, b->blas, b->device, b->stream)))
		rc = cudaMemcpyAsync(b->host_scores + pred0, b->arena.scores + pred0,
		                     (pred1 - pred0) * sizeof *b->host_scores, cudaMemcpyDeviceToHost, b->stream);
	if (rc)
		return cuda_error(e, rc, "the head");
	b->complete = pred1 == b->pass.n_pred;
	return ERR_OK;
}
