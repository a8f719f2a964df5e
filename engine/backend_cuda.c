/* The CUDA backend: opening, and device memory. Owns the weights, the products' handle, one arena that grows, and
 * pinned memory for what goes up and comes down. A pass is laid out in backend_cuda_pass.c; the ops are in
 * backend_cuda_ops.c. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend_cuda.h"
#include "engine/buf.h"
#include "engine/panels.h"

#define DEFAULT_CHUNK 65536
#define MOST_TOKENS   65536
#define LEAST_TOKENS  1024
#define ROWS_STEP     4096 /* the arena grows by whole steps, for batches are never quite of one size */
#define PANELS_STEP   256  /* so do panels */
#define MAX_THREADS   8    /* that convert weights: more than the bus takes */
#define ALIGN         256
#define CODE_BYTES    ((size_t)48 << 20) /* kernels, which the driver loads when they are first used; graphs */

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static uint32_t min_u32(size_t a, size_t b)
{
	return (uint32_t)(a < b ? a : b);
}

/* -- the arena ------------------------------------------------------------------------------------- */

static void *carve(char *base, size_t *at, size_t bytes)
{
	void *p = base ? base + *at : NULL;

	*at += round_up(bytes, ALIGN);
	return p;
}

uint32_t cuda_count_freq(const struct model_config *c)
{
	return position_count_freq(&c->position, c->head_dim);
}

static bool fuses_qkv(const struct model_config *c, const struct kern_attention_shape *s, enum kern_type type,
                      int capability)
{
	return kern_qkv_takes_cuda(capability, type, c->dim, c->head_dim, s->d_qk, s->d_v,
	                           c->position.type == POSITION_POPE);
}

/* Places an arena's parts for what it has; returns its bytes. With a base of NULL it only counts. */
static size_t arena_place(struct arena *a, const struct model_config *c, const struct kern_attention_shape *s,
                          enum kern_type type, int capability, char *base)
{
	size_t size = kern_type_size(type), qk_size = kern_type_size(s->qk_type), at = 0, kv, top, end;
	size_t rows = round_up(a->has.rows, KERN_ROW_PAD), chunk = round_up(a->has.chunk, KERN_ROW_PAD);
	size_t width = (size_t)c->n_head * c->head_dim, qkv = width + 2 * (size_t)c->n_kv_head * c->head_dim;
	size_t up = (c->mlp_gated ? 2 : 1) * (size_t)c->ffn_dim;
	bool fused = fuses_qkv(c, s, type, capability);

	a->x = carve(base, &at, rows * c->dim * sizeof(float));
	a->y = carve(base, &at, rows * c->dim * size);
	kv = at;
	a->k = carve(base, &at, (size_t)c->n_kv_head * a->has.slots * s->d_qk * qk_size);
	a->v = carve(base, &at, (size_t)c->n_kv_head * a->has.slots * s->d_v * size);
	a->kv_bytes = at - kv;
	a->identity = (uint32_t)round_up(a->has.slots / s->block, ALIGN / sizeof(uint32_t));
	a->panels = carve(base, &at, a->identity * sizeof(uint32_t));
	a->up = carve(base, &at, (size_t)a->has.words * sizeof(uint32_t));
	a->scores = carve(base, &at, a->has.preds * sizeof *a->scores);
	a->fault = carve(base, &at, sizeof *a->fault);
	a->counter = carve(base, &at, sizeof *a->counter);
	a->turns = carve(base, &at, fused ? rows * cuda_count_freq(c) * 2 * sizeof(float) : 0);
	a->h = carve(base, &at, chunk * c->dim * size);
	top = at;
	a->wide = carve(base, &at, chunk * (qkv > up && !fused ? qkv : up) * size);
	end = at;
	a->q = carve(base, &at, chunk * c->n_head * s->d_qk * qk_size);
	a->attended = carve(base, &at, chunk * width * size);
	a->act = carve(base, &end, c->mlp_gated ? chunk * c->ffn_dim * size : 0);
	at = end > at ? end : at;
	a->scratch =
	    carve(base, &top,
	          kern_head_scratch_bytes(min_u32(a->has.preds, a->has.chunk), c->dim, c->n_vocab, type, capability));
	return top > at ? top : at;
}

/* What a batch needs, in panels by whole steps. A segment with a parent takes a list, and copies of half a panel. */
static struct extent extent_of(const struct kern_attention_shape *s, struct batch_size size, uint32_t chunk,
                               size_t panels_step)
{
	size_t rows = round_up(min_u32(size.n_tokens, 1u << 28), ROWS_STEP);
	size_t panels = round_up(panels_of_batch(size, s->block), panels_step);

	return (struct extent){.rows = (uint32_t)rows,
	                       .preds = (uint32_t)rows,
	                       .chunk = min_u32(chunk, rows),
	                       .slots = min_u32(panels, UINT32_MAX / 2 / s->block) * s->block,
	                       .words = min_u32(6 * rows + size.n_segments * (s->block + 8), UINT32_MAX / 2)};
}

static void free_arena(struct backend *b)
{
	cuda_drop_graphs(b);
	cudaFree(b->arena.memory);
	b->arena = (struct arena){0};
}

/* Pinned memory for what goes up and comes down. */
static int reserve_host(struct backend *b, const struct extent *has)
{
	int rc;

	if (b->host_words >= has->words && b->host_preds >= has->preds && b->host)
		return 0;
	cudaFreeHost(b->host);
	b->host = NULL;
	b->host_words = b->host_preds = 0;
	if ((rc = cudaMallocHost((void **)&b->host, (size_t)has->preds * sizeof *b->host_scores +
	                                                (size_t)has->words * sizeof *b->host_up + ALIGN)))
		return rc;
	b->host_fault = (unsigned long long *)b->host;
	b->host_scores = (struct kern_score *)((char *)b->host + ALIGN / 2);
	b->host_up =
	    (uint32_t *)((char *)b->host + round_up(ALIGN / 2 + (size_t)has->preds * sizeof *b->host_scores, 16));
	b->host_words = has->words;
	b->host_preds = has->preds;
	return 0;
}

/* One try: all of `has` at once, initialised. */
static int alloc_arena(struct backend *b, struct extent has)
{
	struct arena *a = &b->arena;
	uint32_t *identity;
	int rc;

	free_arena(b);
	a->has = has;
	a->bytes = arena_place(a, &b->c, &b->shape, b->type, b->capability, NULL);
	if ((rc = cudaMalloc((void **)&a->memory, a->bytes)) || (rc = reserve_host(b, &has)) ||
	    (rc = cudaMemsetAsync(a->memory, 0, a->bytes, b->stream)))
		return rc;
	arena_place(a, &b->c, &b->shape, b->type, b->capability, a->memory);
	identity = malloc(a->identity * sizeof *identity + 1);
	if (!identity)
		return cudaErrorMemoryAllocation;
	for (uint32_t i = 0; i < a->identity; i++)
		identity[i] = i;
	rc = cudaMemcpyAsync(a->panels, identity, a->identity * sizeof *identity, cudaMemcpyHostToDevice, b->stream);
	cudaStreamSynchronize(b->stream);
	free(identity);
	return rc;
}

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Half of a chunk above LEAST_CHUNK, and never less than that: a layout has room for chunks of so many rows. */
static uint32_t halve_chunk(uint32_t chunk)
{
	return most((uint32_t)round_up(chunk / 2, KERN_ROW_PAD), LEAST_CHUNK);
}

err_code cuda_reserve(struct backend *b, struct extent need, struct err *e)
{
	const struct extent *h = &b->arena.has;
	struct extent want;
	size_t bytes, free_bytes = 0, total;
	int rc;

	need.chunk = min_u32(round_up(need.chunk, KERN_ROW_PAD), b->chunk);
	if (b->arena.memory && h->rows >= need.rows && h->preds >= need.preds && h->slots >= need.slots &&
	    h->words >= need.words && h->chunk >= need.chunk)
		return ERR_OK;
	cudaStreamSynchronize(b->stream);
	want = (struct extent){
	    .rows = most(h->rows, (uint32_t)round_up(need.rows, ROWS_STEP)),
	    .preds = most(h->preds, (uint32_t)round_up(need.preds, ROWS_STEP)),
	    .chunk = most(h->chunk, min_u32(round_up(need.chunk, ROWS_STEP), b->chunk)),
	    .slots = most(h->slots, (uint32_t)round_up(need.slots, (size_t)PANELS_STEP * b->shape.block)),
	    .words = most(h->words, (uint32_t)round_up(need.words, (size_t)4 * ROWS_STEP)),
	};
	rc = alloc_arena(b, want);
	for (want = need; rc == cudaErrorMemoryAllocation; want.chunk = halve_chunk(want.chunk)) {
		cudaGetLastError(); /* not sticky */
		rc = alloc_arena(b, want);
		if (!rc && want.chunk < need.chunk)
			b->chunk = want.chunk;
		if (want.chunk <= LEAST_CHUNK)
			break;
	}
	if (!rc)
		return ERR_OK;
	bytes = b->arena.bytes;
	free_arena(b);
	cudaGetLastError();
	cudaMemGetInfo(&free_bytes, &total);
	return cuda_error(e, rc, "a batch of %u rows takes %zu MB, and device cuda:%d has %zu MB free", need.rows,
	                  bytes >> 20, b->device, free_bytes >> 20);
}

/* -- opening --------------------------------------------------------------------------------------- */

/* A number of rows that is whole tiles both of products and, unless it was asked for, of attention. */
static uint32_t chunk_of(const struct session_options *o, const struct kern_attention_shape *s)
{
	size_t step = KERN_ROW_PAD;

	if (o->chunk_rows)
		return (uint32_t)round_up(o->chunk_rows < (1u << 24) ? o->chunk_rows : 1u << 24, KERN_ROW_PAD);
	while (step % s->tile_rows)
		step += KERN_ROW_PAD;
	return (uint32_t)round_up(DEFAULT_CHUNK, step);
}

static enum kern_type type_of(enum dtype dtype)
{
	return dtype == DTYPE_F32 ? KERN_F32 : dtype == DTYPE_F16 ? KERN_F16 : KERN_BF16;
}

static void cuda_close(struct backend *b)
{
	if (!b)
		return;
	cudaSetDevice(b->device);
	if (b->stream)
		cudaStreamSynchronize(b->stream);
	pool_free(b->pool);
	free_arena(b);
	cudaFreeHost(b->host);
	weights_cuda_release(&b->weights);
	kern_blas_free(b->blas);
	for (int i = 0; i < N_AHEAD; i++)
		if (b->ahead[i])
			cudaEventDestroy(b->ahead[i]);
	if (b->done)
		cudaEventDestroy(b->done);
	if (b->stream)
		cudaStreamDestroy(b->stream);
	cuda_release_pass(b);
	free(b);
}

static err_code check_config(struct backend *b, struct err *e)
{
	const struct model_config *c = &b->c;
	bool pope = c->position.type == POSITION_POPE;

	if (kern_attention_shape_cuda(&b->shape, b->capability, b->type, c->head_dim, pope))
		return err_set(e, ERR_INPUT, "head_dim %u%s: no CUDA kernel takes it", c->head_dim,
		               pope ? " with PoPE" : "");
	if (c->head_dim % 2)
		return err_set(e, ERR_INPUT, "head_dim %u is odd", c->head_dim);
	return ERR_OK;
}

static err_code open_queues(struct backend *b, struct err *e)
{
	int rc = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);

	for (int i = 0; i < N_AHEAD && !rc; i++)
		rc = cudaEventCreateWithFlags(&b->ahead[i], cudaEventDisableTiming | cudaEventBlockingSync);
	if (!rc)
		rc = cudaEventCreateWithFlags(&b->done, cudaEventDisableTiming | cudaEventBlockingSync);
	if (!rc)
		rc = kern_blas_new(&b->blas, b->device, b->type);
	return rc ? cuda_error(e, rc, "device cuda:%d", b->device) : ERR_OK;
}

static bool cuda_takes(const struct backend *b, struct batch_size size)
{
	struct arena a = {.has = extent_of(&b->shape, size, b->chunk, PANELS_STEP)};

	return arena_place(&a, &b->c, &b->shape, b->type, b->capability, NULL) <= b->batch_bytes;
}

/* The largest power of two of tokens, in segments of a thousand, whose arena leaves a tenth of what is free. */
static void size_batches(struct backend *b)
{
	size_t free_bytes = 0, total;
	uint32_t n = MOST_TOKENS;

	if (!cudaMemGetInfo(&free_bytes, &total) && free_bytes / 10 * 9 > CODE_BYTES)
		b->batch_bytes = free_bytes / 10 * 9 - CODE_BYTES;
	while (n > LEAST_TOKENS && !cuda_takes(b, (struct batch_size){n, n / 1000}))
		n /= 2;
	b->batch_tokens = n;
}

static err_code cuda_open(const struct model *m, const struct session_options *o, enum dtype dtype,
                          struct backend **out, struct err *e)
{
	const struct model_config *c = &m->config;
	struct backend *b;
	int device, capability;

	if (cuda_device(o->device, &device, &capability, e))
		return e->code;
	b = mem_zalloc(1, sizeof *b, e);
	if (!b)
		return e->code;
	b->c = *c;
	b->type = type_of(dtype);
	b->device = device;
	b->capability = capability;
	b->head_width = c->n_head * c->head_dim;
	b->qkv_width = b->head_width + 2 * c->n_kv_head * c->head_dim;
	b->up_width = (c->mlp_gated ? 2 : 1) * c->ffn_dim;
	if (check_config(b, e) || open_queues(b, e) ||
	    pool_new(pool_size(o->n_threads, MAX_THREADS), NULL, &b->pool, e) ||
	    weights_cuda_load(&b->weights, m, b->type, b->pool, b->stream, e)) {
		cuda_close(b);
		return e->code;
	}
	pool_free(b->pool);
	b->pool = NULL;
	b->fused_qkv = fuses_qkv(c, &b->shape, b->type, capability);
	b->chunk = chunk_of(o, &b->shape);
	size_batches(b);
	*out = b;
	return ERR_OK;
}

static uint32_t cuda_chunk_rows(const struct backend *b)
{
	return b->chunk;
}

static uint32_t cuda_batch_tokens(const struct backend *b)
{
	return b->batch_tokens;
}

/* As cuda_reserve does: where memory is short, panels are those of the batch, and wide activations of fewer rows. */
static size_t cuda_memory(const struct model *m, const struct session_options *o, enum dtype dtype,
                          struct batch_size size)
{
	const struct model_config *c = &m->config;
	enum kern_type type = type_of(dtype);
	size_t fixed = weights_cuda_bytes(m, type) + kern_blas_bytes() + CODE_BYTES, free_bytes, total, bytes;
	struct kern_attention_shape s;
	struct err ignored;
	int device, capability;
	uint32_t chunk;

	if (cuda_device(o->device, &device, &capability, &ignored) || cudaMemGetInfo(&free_bytes, &total) ||
	    kern_attention_shape_cuda(&s, capability, type, c->head_dim, c->position.type == POSITION_POPE))
		return 0;
	chunk = chunk_of(o, &s);
	for (size_t step = PANELS_STEP;; step = 1) {
		struct arena a = {.has = extent_of(&s, size, chunk, step)};

		bytes = fixed + arena_place(&a, c, &s, type, capability, NULL);
		if (bytes <= free_bytes || (step == 1 && chunk <= LEAST_CHUNK))
			return bytes;
		if (step == 1)
			chunk = halve_chunk(chunk);
	}
}

const struct backend_ops backend_cuda = {
    .kind = "cuda",
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .memory = cuda_memory,
    .chunk_rows = cuda_chunk_rows,
    .batch_tokens = cuda_batch_tokens,
    .takes = cuda_takes,
    .begin = cuda_begin,
    .embed = cuda_embed,
    .qkv = cuda_qkv,
    .read_qk = cuda_read_qk,
    .attention = cuda_attention,
    .mlp = cuda_mlp,
    .head = cuda_head,
    .end = cuda_end,
};
