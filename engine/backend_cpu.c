/* The CPU backend. Owns the packed weights, the threads, each thread's scratch, and one arena for a pass.
 *
 * Every op is one or two rounds of tasks over the pool: tiles of KERN_TILE rows counted from the chunk's start, or
 * (attention) a run of rows of one segment and one head. No task writes what another of its round reads, and a row's
 * arithmetic does not depend on its tile, so neither chunk nor threads change a bit.
 *
 * Keys and values lie in panels of KERN_PANEL keys, aligned to chain positions. A segment that starts inside a panel
 * begins with a copy of its parent's last one (stitch); the whole panels before it are its ancestors' own. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/backend.h"
#include "engine/buf.h"
#include "engine/pool.h"
#include "engine/weights_cpu.h"
#include "kernels/kernels.h"

#define DEFAULT_CHUNK    1024
#define BATCH_TOKENS     8192
#define MAX_THREADS      1024

/* One thread's working memory. Carved from `memory`. */
struct scratch {
	char *memory;     /* owned */
	void *in;         /* [KERN_TILE, dim] type: a product's input */
	float *wide;      /* [KERN_TILE, the widest product] f32 */
	void *act;        /* [KERN_TILE, ffn_dim] type */
	void *attention, *product;
	uint32_t *panels; /* [max_panels] owned */
};

/* Attention's task without the head: rows of one segment within the chunk. */
struct tile {
	uint32_t segment, row, n_rows;
};

struct backend {
	const struct model *model; /* borrowed */
	struct model_config c;
	enum kern_type type;
	const struct kern_cpu *kern;
	struct pool *pool;         /* owned */
	struct weights_cpu weights;
	struct scratch *scratch;   /* [n_threads] owned */
	uint32_t n_threads, chunk, d_qk, qkv_width, head_width;
	void *q;                   /* [chunk, n_head, d_qk] type, owned */
	void *attended;            /* [chunk, n_head, head_dim] type, owned; whole tiles */
	struct tile *tiles;        /* [max_tiles] owned */
	uint32_t n_tiles, max_tiles;

	/* during a pass */
	struct pass pass;
	struct position_table table;
	char *arena;               /* owned; grows */
	size_t arena_bytes;
	float *x;                  /* [n_rows, dim] f32: the residual */
	float *k, *v;              /* [n_kv_head, n_panels] panels */
	size_t k_head_words, v_head_words;
	uint32_t *row_panel;       /* [n_rows] */
	uint32_t *segment_panel;   /* [n_segments] a segment's first own panel */

	/* the current op */
	uint32_t layer, row0, row1;
	struct token_score *out;
	pthread_mutex_t lock;
	uint32_t fault_row;        /* under lock: the lowest row with a NaN or infinity, UINT32_MAX: none */
	int status;                /* under lock: the first failure of oneDNN */
};

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

static void *aligned_zero(size_t bytes, struct err *e)
{
	void *p = aligned_alloc(KERN_ALIGN, round_up(bytes ? bytes : 1, KERN_ALIGN));

	if (!p)
		err_set(e, ERR_MEMORY, "cannot allocate %zu bytes", bytes);
	else
		memset(p, 0, bytes);
	return p;
}

/* -- opening ------------------------------------------------------------------------------------- */

static uint32_t count_threads(const struct session_options *o)
{
	cpu_set_t set;
	uint32_t n = o->n_threads;

	if (!n && !sched_getaffinity(0, sizeof set, &set))
		n = (uint32_t)CPU_COUNT(&set);
	return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

static uint32_t chunk_of(const struct session_options *o)
{
	uint32_t n = o->chunk_rows ? o->chunk_rows : DEFAULT_CHUNK;

	return n > (1u << 20) ? 1u << 20 : (uint32_t)round_up(n, KERN_TILE);
}

/* The parts of a thread's scratch, in bytes; their sum is returned. */
struct scratch_sizes {
	size_t in, wide, act, attention;
};

static size_t scratch_sizes(struct scratch_sizes *s, const struct model_config *c, enum kern_type type)
{
	size_t size = kern_type_size(type), pope = c->position.type == POSITION_POPE;
	size_t wide = (size_t)(c->n_head + 2 * c->n_kv_head) * c->head_dim;
	size_t up = (c->mlp_gated ? 2 : 1) * (size_t)c->ffn_dim;

	wide = wide > up ? wide : up;
	wide = wide > c->dim ? wide : c->dim;
	wide = wide > HEAD_BLOCK ? wide : HEAD_BLOCK;
	s->in = round_up(KERN_TILE * size * c->dim, KERN_ALIGN);
	s->wide = round_up(KERN_TILE * sizeof(float) * wide, KERN_ALIGN);
	s->act = round_up(KERN_TILE * size * c->ffn_dim, KERN_ALIGN);
	s->attention = round_up(kern_attention_scratch_bytes(pope ? 2 * c->head_dim : c->head_dim,
	                                                     c->head_dim),
	                        KERN_ALIGN);
	return s->in + s->wide + s->act + s->attention;
}

static err_code scratch_init(struct scratch *s, const struct backend *b, struct err *e)
{
	struct scratch_sizes n;
	size_t total = scratch_sizes(&n, &b->c, b->type);

	s->memory = aligned_zero(total + b->weights.scratch_bytes, e);
	if (!s->memory)
		return e->code;
	s->in = s->memory;
	s->wide = (float *)(s->memory + n.in);
	s->act = s->memory + n.in + n.wide;
	s->attention = s->memory + n.in + n.wide + n.act;
	s->product = s->memory + total;
	return ERR_OK;
}

static void cpu_close(struct backend *b)
{
	if (!b)
		return;
	pool_free(b->pool);
	weights_cpu_release(&b->weights);
	for (uint32_t i = 0; b->scratch && i < b->n_threads; i++) {
		free(b->scratch[i].memory);
		free(b->scratch[i].panels);
	}
	free(b->scratch);
	free(b->q);
	free(b->attended);
	free(b->tiles);
	free(b->arena);
	position_table_release(&b->table);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static err_code check_config(const struct model_config *c, struct err *e)
{
	if (c->head_dim > KERN_MAX_HEAD_DIM)
		return err_set(e, ERR_DEVICE, "head_dim %u: the cpu backend has at most %d", c->head_dim,
		               KERN_MAX_HEAD_DIM);
	if (c->head_dim % 2)
		return err_set(e, ERR_DEVICE, "head_dim %u is odd", c->head_dim);
	return ERR_OK;
}

static err_code cpu_open(const struct model *m, const struct session_options *o, enum dtype dtype,
                         struct backend **out, struct err *e)
{
	const struct model_config *c = &m->config;
	struct backend *b;
	size_t size;

	if (check_config(c, e))
		return e->code;
	b = mem_zalloc(1, sizeof *b, e);
	if (!b)
		return e->code;
	pthread_mutex_init(&b->lock, NULL);
	b->model = m;
	b->c = *c;
	b->type = dtype == DTYPE_BF16 ? KERN_BF16 : KERN_F32;
	b->kern = kern_cpu();
	b->n_threads = count_threads(o);
	b->chunk = chunk_of(o);
	b->d_qk = c->position.type == POSITION_POPE ? 2 * c->head_dim : c->head_dim;
	b->head_width = c->n_head * c->head_dim;
	b->qkv_width = b->head_width + 2 * c->n_kv_head * c->head_dim;
	size = kern_type_size(b->type);
	if (pool_new(b->n_threads, kern_thread_init, &b->pool, e) ||
	    weights_cpu_load(&b->weights, m, b->type, b->pool, e) ||
	    !(b->scratch = mem_zalloc(b->n_threads, sizeof *b->scratch, e)) ||
	    !(b->q = aligned_zero(size * b->chunk * c->n_head * b->d_qk, e)) ||
	    !(b->attended = aligned_zero(size * b->chunk * b->head_width, e)))
		goto fail;
	for (uint32_t i = 0; i < b->n_threads; i++)
		if (scratch_init(&b->scratch[i], b, e))
			goto fail;
	*out = b;
	return ERR_OK;
fail:
	cpu_close(b);
	return e->code;
}

static uint32_t cpu_chunk_rows(const struct backend *b)
{
	return b->chunk;
}

static uint32_t cpu_batch_tokens(const struct backend *b)
{
	(void)b;
	return BATCH_TOKENS;
}

/* Bytes of the arena: the residual, panels of keys and values, a word a row and a segment. */
static size_t arena_bytes(const struct model_config *c, enum kern_type type, size_t n_rows, size_t n_panels,
                          size_t n_segments)
{
	uint32_t d_qk = c->position.type == POSITION_POPE ? 2 * c->head_dim : c->head_dim;
	size_t panel = kern_k_panel_words(d_qk, type) + kern_v_panel_words(c->head_dim, type);

	return 4 * (n_rows * c->dim + c->n_kv_head * n_panels * panel + n_rows + n_segments) +
	       5 * KERN_ALIGN;
}

static size_t cpu_memory(const struct model *m, const struct session_options *o, enum dtype dtype,
                         uint64_t n_tokens)
{
	const struct model_config *c = &m->config;
	enum kern_type type = dtype == DTYPE_BF16 ? KERN_BF16 : KERN_F32;
	size_t d_qk = c->position.type == POSITION_POPE ? 2 * c->head_dim : c->head_dim;
	size_t chunk_row = (size_t)c->n_head * (d_qk + c->head_dim) * kern_type_size(type);
	size_t layout = n_tokens * (8 + 12 + sizeof(struct token_score));
	size_t small = n_tokens < BATCH_TOKENS ? n_tokens : BATCH_TOKENS;
	struct scratch_sizes ignored;

	/* Short segments round up to panels; batches of them are small, so one more panel for 64 tokens
	 * of a small batch is a bound that costs little. */
	return weights_cpu_bytes(c, type) + chunk_of(o) * chunk_row + layout +
	       count_threads(o) * (scratch_sizes(&ignored, c, type) + (256 << 10)) +
	       arena_bytes(c, type, n_tokens, n_tokens / KERN_PANEL + 1 + small / 64, small / 64) +
	       (8 << 20);
}

/* -- a pass -------------------------------------------------------------------------------------- */

static uint32_t panel_of(uint32_t pos)
{
	return pos / KERN_PANEL;
}

/* The panels that a segment owns: those with its rows. */
static uint32_t count_panels(const struct pass_segment *s)
{
	return s->n_row ? panel_of(s->start_pos + s->n_row - 1) - panel_of(s->start_pos) + 1 : 0;
}

static err_code grow_arena(struct backend *b, size_t bytes, struct err *e)
{
	if (bytes <= b->arena_bytes)
		return ERR_OK;
	free(b->arena);
	b->arena_bytes = 0;
	b->arena = aligned_alloc(2 << 20, round_up(bytes, 2 << 20));
	if (!b->arena)
		return err_set(e, ERR_MEMORY, "cannot allocate %zu bytes for a batch", bytes);
	madvise(b->arena, round_up(bytes, 2 << 20), MADV_HUGEPAGE); /* long strides of keys: fewer TLB misses */
	b->arena_bytes = bytes;
	return ERR_OK;
}

static void *carve(char **at, size_t bytes)
{
	void *p = *at;

	*at += round_up(bytes, KERN_ALIGN);
	return p;
}

static err_code place_rows(struct backend *b, size_t n_panels, struct err *e)
{
	const struct pass *p = &b->pass;
	size_t k_words = kern_k_panel_words(b->d_qk, b->type);
	size_t v_words = kern_v_panel_words(b->c.head_dim, b->type);
	uint32_t panel = 0;
	char *at;

	if (grow_arena(b, arena_bytes(&b->c, b->type, p->n_rows, n_panels, p->n_segments), e))
		return e->code;
	at = b->arena;
	b->k_head_words = n_panels * k_words;
	b->v_head_words = n_panels * v_words;
	b->k = carve(&at, 4 * b->c.n_kv_head * b->k_head_words);
	b->v = carve(&at, 4 * b->c.n_kv_head * b->v_head_words);
	b->x = carve(&at, 4 * (size_t)p->n_rows * b->c.dim);
	b->row_panel = carve(&at, 4 * (size_t)p->n_rows);
	b->segment_panel = carve(&at, 4 * (size_t)p->n_segments);
	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct pass_segment *s = &p->segments[i];

		b->segment_panel[i] = panel;
		for (uint32_t r = 0; r < s->n_row; r++)
			b->row_panel[s->row + r] =
			    panel + panel_of(s->start_pos + r) - panel_of(s->start_pos);
		panel += count_panels(s);
	}
	/* A chunk may end inside a panel: the columns that it does not fill are read (and masked), so must be finite. */
	memset(b->k, 0, 4 * b->c.n_kv_head * b->k_head_words);
	memset(b->v, 0, 4 * b->c.n_kv_head * b->v_head_words);
	return ERR_OK;
}

static err_code cpu_begin(struct backend *b, const struct pass *p, struct err *e)
{
	uint32_t length = 0, n_tiles = b->chunk / KERN_TILE + 1;
	size_t n_panels = 0;
	err_code rc;

	b->pass = *p;
	b->status = 0;
	b->fault_row = UINT32_MAX;
	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct pass_segment *s = &p->segments[i];

		n_panels += count_panels(s);
		if (s->n_row && s->start_pos + s->n_row > length)
			length = s->start_pos + s->n_row;
	}
	position_table_release(&b->table);
	if ((rc = position_table_init(&b->table, &b->c.position, b->c.head_dim, length, e)) ||
	    (rc = place_rows(b, n_panels, e)))
		return rc;
	/* a chunk has at most a tile more than its rows fill for each segment in it */
	n_tiles += p->n_segments < b->chunk ? p->n_segments : b->chunk;
	if (n_tiles > b->max_tiles) {
		free(b->tiles);
		b->max_tiles = 0;
		if (!(b->tiles = mem_alloc(n_tiles, sizeof *b->tiles, e)))
			return e->code;
		b->max_tiles = n_tiles;
	}
	for (uint32_t i = 0; i < b->n_threads; i++) {
		free(b->scratch[i].panels);
		b->scratch[i].panels = mem_alloc(panel_of(length) + 1, sizeof(uint32_t), e);
		if (!b->scratch[i].panels)
			return e->code;
	}
	return ERR_OK;
}

static err_code cpu_end(struct backend *b, struct err *e)
{
	(void)b, (void)e; /* every op reports its own faults */
	return ERR_OK;
}

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

static uint32_t segment_of(const struct pass *p, uint32_t row)
{
	uint32_t i = 0;

	while (i + 1 < p->n_segments && p->segments[i].row + p->segments[i].n_row <= row)
		i++;
	return i;
}

/* What the tasks of an op have noted. */
static err_code check_op(const struct backend *b, const char *what, struct err *e)
{
	if (b->status)
		return err_set(e, ERR_DEVICE, "layer %u: %s: %s", b->layer, what, kern_status(b->status));
	if (b->fault_row == UINT32_MAX)
		return ERR_OK;
	if (b->layer == b->c.n_layer)
		return err_set(e, ERR_NUMERIC, "%s, position %u of segment %u: not a finite number", what,
		               b->pass.pos[b->fault_row], segment_of(&b->pass, b->fault_row));
	return err_set(e, ERR_NUMERIC, "layer %u, position %u of segment %u: not a finite number in %s",
	               b->layer, b->pass.pos[b->fault_row], segment_of(&b->pass, b->fault_row), what);
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

static err_code cpu_embed(struct backend *b, uint32_t row0, uint32_t row1, struct err *e)
{
	size_t dim = b->c.dim;

	(void)e;
	for (uint32_t r = row0; r < row1; r++)
		tensor_to_f32(&b->model->embed, b->pass.tokens[r] * dim, dim, b->x + r * dim);
	return ERR_OK;
}

static void qkv_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct backend *b = arg;
	const struct layer_cpu *l = &b->weights.layers[b->layer];
	struct scratch *s = &b->scratch[thread];
	uint32_t row = b->row0 + task * KERN_TILE, n = tile_rows(b, row), bad;
	size_t in_chunk = row - b->row0;

	bad = b->kern->rmsnorm(s->in, b->x + (size_t)row * b->c.dim, l->attn_norm, n, b->c.dim,
	                       b->c.rms_eps, b->type);
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
	    .q_scale = b->c.attention_scale * 1.44269504f,
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

	for (uint32_t i = segment_of(p, b->row0); i < p->n_segments && p->segments[i].row < b->row1; i++) {
		const struct pass_segment *s = &p->segments[i];
		uint32_t n_keys = s->start_pos % KERN_PANEL;

		if (!s->n_row || s->row < b->row0 || !n_keys)
			continue;
		stitch_panel(b, b->segment_panel[i],
		             b->segment_panel[s->parent] + count_panels(&p->segments[s->parent]) - 1,
		             n_keys);
	}
}

static err_code cpu_qkv(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	err_code rc;

	set_op(b, layer, row0, row1);
	pool_run(b->pool, qkv_tile, b, n_row_tiles(b));
	if ((rc = check_op(b, "queries, keys and values", e)))
		return rc;
	stitch(b);
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
	for (uint32_t i = segment_of(p, b->row0), row = b->row0; row < b->row1; i++) {
		uint32_t end = p->segments[i].row + p->segments[i].n_row;

		end = end < b->row1 ? end : b->row1;
		for (; row < end; row += b->tiles[b->n_tiles++].n_rows)
			b->tiles[b->n_tiles] = (struct tile){
			    i, row, end - row < KERN_TILE ? end - row : KERN_TILE};
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

static err_code cpu_attention(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
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
	static const enum kern_act acts[] = {
	    [ACT_GELU_TANH] = KERN_GELU_TANH,
	    [ACT_GELU] = KERN_GELU,
	    [ACT_SILU] = KERN_SILU,
	    [ACT_RELU] = KERN_RELU,
	};

	bad = b->kern->rmsnorm(s->in, x, l->mlp_norm, n, b->c.dim, b->c.rms_eps, b->type);
	if (bad == n) {
		product(b, s->wide, s->in, l->up, s->product);
		b->kern->activation(s->act, s->wide, l->up_bias, n, b->c.ffn_dim, acts[b->c.act],
		                    b->c.mlp_gated, b->type);
		product(b, s->wide, s->act, l->down, s->product);
		bad = b->kern->residual(x, s->wide, l->down_bias, n, b->c.dim);
	}
	if (bad < n)
		note_fault(b, row + bad);
}

static err_code cpu_mlp(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
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

		if (b->kern->rmsnorm(to, b->x + (size_t)row * b->c.dim, b->weights.norm, 1, b->c.dim,
		                     b->c.rms_eps, b->type) != 1)
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

static err_code cpu_head(struct backend *b, uint32_t pred0, uint32_t pred1, struct token_score *out,
                         struct err *e)
{
	set_op(b, b->c.n_layer, pred0, pred1);
	b->out = out;
	pool_run(b->pool, head_tile, b, n_row_tiles(b));
	return check_op(b, "the head", e);
}

/* -- the device ---------------------------------------------------------------------------------- */

static void cpu_name(char *out, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "r");
	char line[256], *colon;

	snprintf(out, size, "cpu");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "model name", 10) && (colon = strchr(line, ':'))) {
			colon += 1 + strspn(colon + 1, " \t");
			snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
			break;
		}
	if (f)
		fclose(f);
}

/* A number in a file, after `key` if there is one; UINT64_MAX when it is not there ("max", no file). */
static uint64_t read_number(const char *path, const char *key)
{
	FILE *f = fopen(path, "r");
	char line[256], *end;
	uint64_t n = UINT64_MAX;

	while (f && fgets(line, sizeof line, f)) {
		size_t skip = key ? strlen(key) : 0;

		if (key && strncmp(line, key, skip))
			continue;
		n = strtoull(line + skip, &end, 10);
		if (end == line + skip)
			n = UINT64_MAX;
		break;
	}
	if (f)
		fclose(f);
	return n;
}

/* What the system says is available, and what the control group leaves. */
static size_t free_memory(void)
{
	uint64_t kib = read_number("/proc/meminfo", "MemAvailable:");
	uint64_t max = read_number("/sys/fs/cgroup/memory.max", NULL);
	uint64_t used = read_number("/sys/fs/cgroup/memory.current", NULL);
	uint64_t n = kib == UINT64_MAX ? SIZE_MAX : kib * 1024;

	if (max != UINT64_MAX && used != UINT64_MAX && max > used && max - used < n)
		n = max - used;
	return n;
}

static err_code cpu_describe(const char *device, struct device_info *out, struct err *e)
{
	(void)device, (void)e;
	*out = (struct device_info){.device = "cpu", .kind = "cpu", .bf16 = kern_has_bf16(),
	                            .memory_bytes = free_memory()};
	cpu_name(out->name, sizeof out->name);
	snprintf(out->isa, sizeof out->isa, "%s", kern_isa());
	snprintf(out->libraries, sizeof out->libraries, "%s", kern_library());
	out->n_threads = count_threads(&(struct session_options){0});
	return ERR_OK;
}

const struct backend_ops backend_cpu = {
    .kind = "cpu",
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .memory = cpu_memory,
    .chunk_rows = cpu_chunk_rows,
    .batch_tokens = cpu_batch_tokens,
    .begin = cpu_begin,
    .embed = cpu_embed,
    .qkv = cpu_qkv,
    .attention = cpu_attention,
    .mlp = cpu_mlp,
    .head = cpu_head,
    .end = cpu_end,
};
