/* The CPU backend: opening, memory, and the layout of a pass. Owns the packed weights, the threads, each thread's
 * scratch, and one arena for a pass. The ops are in backend_cpu_ops.c. */
#include "engine/backend_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/buf.h"
#include "engine/panels.h"

#define DEFAULT_CHUNK 1024
#define BATCH_TOKENS  8192
#define MAX_THREADS   1024
#define THREAD_BYTES  ((size_t)256 << 10) /* a stack's touched part and the allocator's arena */
#define CODE_BYTES    ((size_t)7 << 20)   /* oneDNN: its own pages, and what it generates */

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
	s->attention =
	    round_up(kern_attention_scratch_bytes(pope ? 2 * c->head_dim : c->head_dim, c->head_dim), KERN_ALIGN);
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
		return err_set(e, ERR_INPUT, "head_dim %u: the cpu backend has at most %d", c->head_dim,
		               KERN_MAX_HEAD_DIM);
	if (c->head_dim % 2)
		return err_set(e, ERR_INPUT, "head_dim %u is odd", c->head_dim);
	return ERR_OK;
}

static err_code cpu_open(const struct model *m, const struct session_options *o, enum dtype dtype, struct backend **out,
                         struct err *e)
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
	b->n_threads = pool_size(o->n_threads, MAX_THREADS);
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

static bool cpu_takes(const struct backend *b, struct batch_size size)
{
	(void)b, (void)size;
	return true;
}

/* Bytes of the arena: the residual, panels of keys and values, a word a row and a segment. */
static size_t arena_bytes(const struct model_config *c, enum kern_type type, size_t n_rows, size_t n_panels,
                          size_t n_segments)
{
	uint32_t d_qk = c->position.type == POSITION_POPE ? 2 * c->head_dim : c->head_dim;
	size_t panel = kern_k_panel_words(d_qk, type) + kern_v_panel_words(c->head_dim, type);

	return 4 * (n_rows * c->dim + c->n_kv_head * n_panels * panel + n_rows + n_segments) + 5 * KERN_ALIGN;
}

static size_t cpu_memory(const struct model *m, const struct session_options *o, enum dtype dtype,
                         struct batch_size size)
{
	const struct model_config *c = &m->config;
	enum kern_type type = dtype == DTYPE_BF16 ? KERN_BF16 : KERN_F32;
	uint32_t n_threads = pool_size(o->n_threads, MAX_THREADS);
	size_t d_qk = c->position.type == POSITION_POPE ? 2 * c->head_dim : c->head_dim;
	size_t chunk = chunk_of(o) * (size_t)c->n_head * (d_qk + c->head_dim) * kern_type_size(type);
	size_t n_tokens = size.n_tokens, layout = n_tokens * (5 * sizeof(uint32_t) + sizeof(struct token_score));
	size_t n_rows_read = n_tokens < c->n_vocab ? n_tokens : c->n_vocab;
	size_t embedding = n_rows_read * c->dim * dtype_size(m->embed.dtype);
	size_t load = weights_cpu_load_bytes(c, n_threads), pass;
	struct scratch_sizes ignored;

	pass = chunk + layout + embedding + n_threads * scratch_sizes(&ignored, c, type) +
	       arena_bytes(c, type, n_tokens, panels_of_batch(size, KERN_PANEL), size.n_segments);
	return weights_cpu_bytes(c, type) + (pass > load ? pass : load) + n_threads * THREAD_BYTES + CODE_BYTES;
}

/* -- a pass -------------------------------------------------------------------------------------- */

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
			b->row_panel[s->row + r] = panel + panel_of(s->start_pos + r) - panel_of(s->start_pos);
		panel += panels_of_segment(s, KERN_PANEL);
	}
	/* A chunk may end inside a panel: the columns that it leaves are read (and masked), so must be finite. */
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

		n_panels += panels_of_segment(s, KERN_PANEL);
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

		if (key && strncmp(line, key, skip) != 0)
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
	*out = (struct device_info){
	    .device = "cpu", .kind = "cpu", .bf16 = kern_has_bf16(), .memory_bytes = free_memory()};
	cpu_name(out->name, sizeof out->name);
	snprintf(out->isa, sizeof out->isa, "%s", kern_isa());
	snprintf(out->libraries, sizeof out->libraries, "%s", kern_library());
	out->n_threads = pool_size(0, MAX_THREADS);
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
    .takes = cpu_takes,
    .begin = cpu_begin,
    .embed = cpu_embed,
    .qkv = cpu_qkv,
    .read_qk = cpu_read_qk,
    .attention = cpu_attention,
    .mlp = cpu_mlp,
    .head = cpu_head,
    .end = cpu_end,
};
