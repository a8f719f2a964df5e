/* See weights_cuda.h. Tensors are cut into pieces of a pinned buffer's size; there are two buffers, so that threads
 * convert a piece while the one before it is on its way. */
#include "engine/weights_cuda.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend_cuda.h"
#include "engine/buf.h"

#define PIECE      ((uint64_t)4 << 20)   /* elements of a pinned buffer */
#define TASK       ((uint64_t)1 << 16)   /* elements of a thread's task */
#define DROP_EVERY ((uint64_t)256 << 20) /* bytes of the map */
#define ALIGN      256

struct uploader {
	const struct model *model;
	struct pool *pool;
	cudaStream_t stream;
	float *pinned[2]; /* [PIECE] owned */
	cudaEvent_t sent[2];
	uint32_t turn;
	uint64_t mapped; /* bytes read since pages were dropped */

	/* the piece that threads convert */
	const struct tensor *t;
	uint64_t first, count;
	enum kern_type type;
	atomic_bool overflow; /* a number beyond f16's range */
};

/* -- conversion ------------------------------------------------------------------------------------ */

/* To the nearest, ties to even; a NaN stays one. */
static uint16_t bf16_of(uint32_t bits)
{
	uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* Likewise; beyond 65520 it is an infinity. Subnormals get their rounding from a float's addition. */
static uint16_t f16_of(uint32_t bits)
{
	uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff, half;
	float f;

	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (rest >= 0x477ff000)
		return (uint16_t)(sign | 0x7c00);
	if (rest < 0x38800000) {
		memcpy(&f, &rest, sizeof f);
		f += 0.5f; /* whose last place is that of a half's subnormals, 2^-24 */
		memcpy(&half, &f, sizeof half);
		return (uint16_t)(sign | (half - 0x3f000000));
	}
	return (uint16_t)(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
}

static void convert_task(void *arg, uint32_t task, uint32_t thread)
{
	struct uploader *u = arg;
	uint64_t first = task * TASK, end = first + TASK < u->count ? first + TASK : u->count;
	float *to = u->pinned[u->turn];
	uint16_t *half = (uint16_t *)to;
	uint32_t bits[1024];
	bool overflow = false;

	(void)thread;
	if (u->type == KERN_F32) {
		tensor_to_f32(u->t, u->first + first, end - first, to + first);
		return;
	}
	for (uint64_t n; first < end; first += n) {
		n = end - first < 1024 ? end - first : 1024;
		tensor_to_f32(u->t, u->first + first, n, (float *)bits);
		if (u->type == KERN_BF16) {
			for (uint64_t i = 0; i < n; i++)
				half[first + i] = bf16_of(bits[i]);
			continue;
		}
		for (uint64_t i = 0; i < n; i++) {
			half[first + i] = f16_of(bits[i]);
			overflow |= (half[first + i] & 0x7fff) == 0x7c00 && (bits[i] & 0x7fffffff) != 0x7f800000;
		}
	}
	if (overflow)
		atomic_store(&u->overflow, true);
}

/* -- uploading ------------------------------------------------------------------------------------- */

static err_code uploader_init(struct uploader *u, struct err *e)
{
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++)
		if (!(rc = cudaMallocHost((void **)&u->pinned[i], PIECE * sizeof(float))))
			rc = cudaEventCreateWithFlags(&u->sent[i], cudaEventDisableTiming);
	return rc ? cuda_error(e, rc, "pinned memory to load weights through") : ERR_OK;
}

static void uploader_release(struct uploader *u)
{
	cudaStreamSynchronize(u->stream);
	for (int i = 0; i < 2; i++) {
		cudaFreeHost(u->pinned[i]);
		if (u->sent[i])
			cudaEventDestroy(u->sent[i]);
	}
}

/* Sends `bytes` of the buffer whose turn it is. */
static err_code send(struct uploader *u, void *to, size_t bytes, struct err *e)
{
	int rc = cudaMemcpyAsync(to, u->pinned[u->turn], bytes, cudaMemcpyHostToDevice, u->stream);

	if (!rc)
		rc = cudaEventRecord(u->sent[u->turn], u->stream);
	u->turn ^= 1;
	if (!rc) /* free to be written: at once, when it never was sent */
		rc = cudaEventSynchronize(u->sent[u->turn]);
	return rc ? cuda_error(e, rc, "uploading weights") : ERR_OK;
}

static uint64_t count_of(const struct tensor *t)
{
	return t->shape[0] * (t->n_dim > 1 ? t->shape[1] : 1);
}

/* A tensor in `type`; its count of elements is added to *at. An absent one leaves zeros. */
static err_code send_tensor(struct uploader *u, void *to, uint64_t *at, const struct tensor *t, enum kern_type type,
                            struct err *e)
{
	uint64_t total = count_of(t);
	char *out = (char *)to + *at * kern_type_size(type);

	*at += total;
	if (!t->data)
		return ERR_OK;
	u->t = t;
	u->type = type;
	for (u->first = 0; u->first < total; u->first += u->count) {
		u->count = total - u->first < PIECE ? total - u->first : PIECE;
		pool_run(u->pool, convert_task, u, (uint32_t)((u->count + TASK - 1) / TASK));
		if (send(u, out + u->first * kern_type_size(type), u->count * kern_type_size(type), e))
			return e->code;
		u->mapped += u->count * dtype_size(t->dtype);
		if (u->mapped > DROP_EVERY) {
			u->mapped = 0;
			model_drop_pages(u->model);
		}
	}
	if (atomic_load(&u->overflow))
		return err_set(e, ERR_INPUT, "a weight is beyond the range of f16: use bf16 or f32");
	return ERR_OK;
}

/* Tensors stacked by rows. */
static err_code send_tensors(struct uploader *u, void *to, enum kern_type type, const struct tensor *a,
                             const struct tensor *b, const struct tensor *c, struct err *e)
{
	uint64_t at = 0;
	err_code rc = ERR_OK;

	if (!to)
		return ERR_OK;
	if ((rc = send_tensor(u, to, &at, a, type, e)) || (b && (rc = send_tensor(u, to, &at, b, type, e))) ||
	    (c && (rc = send_tensor(u, to, &at, c, type, e))))
		return rc;
	return ERR_OK;
}

static err_code send_delta(struct uploader *u, const struct layer_cuda *l, const struct tensor *t, struct err *e)
{
	size_t bytes = t->shape[0] * t->shape[1] * sizeof(float);
	err_code rc;

	if (!t->data)
		return ERR_OK;
	if ((rc = position_delta(t, false, u->pinned[u->turn], e)) || (rc = send(u, l->cos_delta, bytes, e)) ||
	    (rc = position_delta(t, true, u->pinned[u->turn], e)) || (rc = send(u, l->sin_delta, bytes, e)))
		return rc;
	return ERR_OK;
}

static err_code send_layer(struct uploader *u, const struct layer_cuda *l, const struct layer_weights *m,
                           enum kern_type type, bool gated, struct err *e)
{
	const struct tensor *up = gated ? &m->gate : &m->up, *up2 = gated ? &m->up : NULL;
	const struct tensor *up_bias = gated ? &m->gate_bias : &m->up_bias, *up2_bias = gated ? &m->up_bias : NULL;
	err_code rc;

	if ((rc = send_tensors(u, l->attn_norm, KERN_F32, &m->attn_norm, NULL, NULL, e)) ||
	    (rc = send_tensors(u, l->qkv, type, &m->q, &m->k, &m->v, e)) ||
	    (rc = send_tensors(u, l->qkv_bias, KERN_F32, &m->q_bias, &m->k_bias, &m->v_bias, e)) ||
	    (rc = send_delta(u, l, &m->pope_delta, e)) || (rc = send_tensors(u, l->o, type, &m->o, NULL, NULL, e)) ||
	    (rc = send_tensors(u, l->o_bias, KERN_F32, &m->o_bias, NULL, NULL, e)) ||
	    (rc = send_tensors(u, l->mlp_norm, KERN_F32, &m->mlp_norm, NULL, NULL, e)) ||
	    (rc = send_tensors(u, l->up, type, up, up2, NULL, e)) ||
	    (rc = send_tensors(u, l->up_bias, KERN_F32, up_bias, up2_bias, NULL, e)) ||
	    (rc = send_tensors(u, l->down, type, &m->down, NULL, NULL, e)) ||
	    (rc = send_tensors(u, l->down_bias, KERN_F32, &m->down_bias, NULL, NULL, e)))
		return rc;
	return ERR_OK;
}

/* -- places ---------------------------------------------------------------------------------------- */

/* The next `n` elements of `size` bytes; NULL when there is nothing to hold. `base` may be NULL: then all is
 * counting. */
static void *place(char *base, size_t *at, uint64_t n, size_t size)
{
	void *p = base ? base + *at : NULL;

	*at += (n * size + ALIGN - 1) / ALIGN * ALIGN;
	return n ? p : NULL;
}

static void place_layer(struct layer_cuda *l, const struct layer_weights *m, const struct model_config *c, size_t size,
                        char *base, size_t *at)
{
	uint64_t dim = c->dim, width = (uint64_t)c->n_head * c->head_dim, kv = (uint64_t)c->n_kv_head * c->head_dim;
	uint64_t up = (c->mlp_gated ? 2 : 1) * (uint64_t)c->ffn_dim;
	bool qkv_bias = m->q_bias.data || m->k_bias.data || m->v_bias.data, delta = m->pope_delta.data;
	bool up_bias = m->up_bias.data || m->gate_bias.data;

	l->attn_norm = place(base, at, dim, 4);
	l->qkv = place(base, at, (width + 2 * kv) * dim, size);
	l->qkv_bias = place(base, at, qkv_bias ? width + 2 * kv : 0, 4);
	l->cos_delta = place(base, at, delta ? kv : 0, 4);
	l->sin_delta = place(base, at, delta ? kv : 0, 4);
	l->o = place(base, at, width * dim, size);
	l->o_bias = place(base, at, m->o_bias.data ? dim : 0, 4);
	l->mlp_norm = place(base, at, dim, 4);
	l->up = place(base, at, up * dim, size);
	l->up_bias = place(base, at, up_bias ? up : 0, 4);
	l->down = place(base, at, dim * c->ffn_dim, size);
	l->down_bias = place(base, at, m->down_bias.data ? dim : 0, 4);
}

/* Bytes of all, which go where `base` says if w has layers. */
static size_t place_all(struct weights_cuda *w, const struct model *m, enum kern_type type, char *base)
{
	const struct model_config *c = &m->config;
	uint64_t padded = ((uint64_t)c->n_vocab + KERN_VOCAB_PAD - 1) / KERN_VOCAB_PAD * KERN_VOCAB_PAD;
	size_t size = kern_type_size(type), at = 0;
	struct layer_cuda counted;

	w->head = place(base, &at, padded * c->dim, size);
	w->embed = c->tied ? w->head : place(base, &at, (uint64_t)c->n_vocab * c->dim, size);
	w->norm = place(base, &at, c->dim, 4);
	w->freq = place(base, &at, c->head_dim, 8);
	for (uint32_t i = 0; i < c->n_layer; i++)
		place_layer(w->layers ? &w->layers[i] : &counted, &m->layers[i], c, size, base, &at);
	return at;
}

size_t weights_cuda_bytes(const struct model *m, enum kern_type type)
{
	struct weights_cuda w = {0};

	return place_all(&w, m, type, NULL);
}

/* -- loading --------------------------------------------------------------------------------------- */

/* Frequencies hold for chains of every length: no scheme of today's depends on it. */
static err_code send_frequencies(struct uploader *u, struct weights_cuda *w, const struct model_config *c,
                                 struct err *e)
{
	struct position_table table;
	err_code rc;

	if (position_depends_on_length(&c->position))
		return err_set(e, ERR_INPUT, "a position scheme that depends on the chain's length: not on CUDA yet");
	if (position_table_init(&table, &c->position, c->head_dim, c->n_ctx, e))
		return e->code;
	w->amplitude = table.amplitude;
	memcpy(u->pinned[u->turn], table.freq, table.n_freq * sizeof *table.freq);
	rc = send(u, w->freq, table.n_freq * sizeof *table.freq, e);
	position_table_release(&table);
	return rc;
}

static err_code send_all(struct uploader *u, struct weights_cuda *w, const struct model *m, enum kern_type type,
                         struct err *e)
{
	const struct model_config *c = &m->config;
	err_code rc;

	if ((rc = send_frequencies(u, w, c, e)) || (rc = send_tensors(u, w->head, type, &m->head, NULL, NULL, e)) ||
	    (!c->tied && (rc = send_tensors(u, w->embed, type, &m->embed, NULL, NULL, e))) ||
	    (rc = send_tensors(u, w->norm, KERN_F32, &m->norm, NULL, NULL, e)))
		return rc;
	for (uint32_t i = 0; i < c->n_layer; i++)
		if (send_layer(u, &w->layers[i], &m->layers[i], type, c->mlp_gated, e))
			return err_wrap(e, "layer %u", i);
	return ERR_OK;
}

err_code weights_cuda_load(struct weights_cuda *w, const struct model *m, enum kern_type type, struct pool *pool,
                           struct CUstream_st *stream, struct err *e)
{
	struct uploader u = {.model = m, .pool = pool, .stream = stream};
	err_code rc;
	int status;

	*w = (struct weights_cuda){.layers = mem_zalloc(m->config.n_layer, sizeof *w->layers, e)};
	if (!w->layers)
		return e->code;
	w->bytes = place_all(w, m, type, NULL);
	if ((status = cudaMalloc((void **)&w->memory, w->bytes)) ||
	    (status = cudaMemsetAsync(w->memory, 0, w->bytes, stream))) { /* the head's padding */
		rc = cuda_error(e, status, "%zu MB for the weights", w->bytes >> 20);
		goto out;
	}
	place_all(w, m, type, w->memory);
	rc = uploader_init(&u, e);
	if (!rc)
		rc = send_all(&u, w, m, type, e);
	if (!rc && (status = cudaStreamSynchronize(stream)))
		rc = cuda_error(e, status, "uploading weights");
	model_drop_pages(m);
out:
	uploader_release(&u);
	if (rc)
		weights_cuda_release(w);
	return rc;
}

void weights_cuda_release(struct weights_cuda *w)
{
	cudaFree(w->memory);
	free(w->layers);
	*w = (struct weights_cuda){0};
}
