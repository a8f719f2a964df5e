/* Attention on the GPU: the dispatch, the kernel of older cards and f32 against double precision, and the same bits
 * whatever the tiles, the packing and the sharing of prefixes. Every case runs all kernels that take its shape. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels_cuda.h"
#include "tests/fixture.h"
#include "tests/fixture_gpu.h"

#define MAX_SEGMENTS 32
#define SLACK        7 /* columns of `out` beyond the heads, less one when the heads are even */

struct shape {
	enum kern_type type;
	uint32_t head_dim, n_head, n_kv_head;
	bool pope;
};

/* Tokens as a model sees them; what a token asks and offers stands in live channels only. */
struct tokens {
	struct shape s;
	uint32_t n;
	float *q; /* [n, n_head, width] */
	float *k; /* [n, n_kv_head, width]; width: head_dim, pope twice that */
	float *v; /* [n, n_kv_head, head_dim] */
};

/* A run of tokens first..first + len that continues its parent. */
struct segment {
	int parent;
	uint32_t first, len;
	uint32_t start, row, panel; /* set by pack: chain position, row, first panel */
};

/* A packed batch on the device. */
struct packed {
	struct kern_attention_shape shape;
	struct segment segments[MAX_SEGMENTS];
	uint32_t n_segments, n_rows;
	uint32_t list[MAX_SEGMENTS]; /* each segment's list of panels */
	uint32_t *panels;            /* host */
	struct kern_attention_cuda a;
	size_t out_bytes;
};

static const char *const type_names[] = {"f32", "bf16", "f16"};

static const char *name_of(const struct shape *s)
{
	static char name[64];

	snprintf(name, sizeof name, "%s %s head_dim %u, %u of %u heads", type_names[s->type], s->pope ? "pope" : "rope",
	         s->head_dim, s->n_kv_head, s->n_head);
	return name;
}

static uint32_t width_of(const struct shape *s)
{
	return s->pope ? 2 * s->head_dim : s->head_dim;
}

static struct tokens tokens_new(struct shape s, uint32_t n)
{
	enum kern_type qk = s.type == KERN_F32 ? KERN_F32 : KERN_F16;
	size_t width = width_of(&s);

	return (struct tokens){
	    .s = s,
	    .n = n,
	    .q = gpu_normals_of(n * s.n_head * width, 1, qk),
	    .k = gpu_normals_of(n * s.n_kv_head * width, 1, qk),
	    .v = gpu_normals_of(n * s.n_kv_head * (size_t)s.head_dim, 1, s.type),
	};
}

/* -- packing ------------------------------------------------------------------------------------- */

/* The token at a position of a segment's chain. */
static uint32_t token_at(const struct packed *p, int segment, uint32_t pos)
{
	while (p->segments[segment].start > pos)
		segment = p->segments[segment].parent;
	return p->segments[segment].first + pos - p->segments[segment].start;
}

/* Live channels to their places among d. */
static void spread(float *out, const float *in, const struct shape *s, uint32_t d, bool halves)
{
	memset(out, 0, sizeof *out * d);
	memcpy(out, in, sizeof *out * s->head_dim);
	if (halves)
		memcpy(out + d / 2, in + s->head_dim, sizeof *out * s->head_dim);
}

static uint32_t first_panel(const struct packed *p, const struct segment *s)
{
	return s->start / p->shape.block;
}

static uint32_t count_panels(const struct packed *p, const struct segment *s)
{
	return (s->start + s->len - 1) / p->shape.block + 1 - first_panel(p, s);
}

/* Panels in a random order, so that nothing relies on their being in a row. */
static uint32_t place_panels(struct packed *p)
{
	uint32_t n = 0, *order, at = 0;

	for (uint32_t i = 0; i < p->n_segments; i++)
		n += count_panels(p, &p->segments[i]);
	p->panels = malloc(sizeof *p->panels * (size_t)n * (p->n_segments + 1));
	order = calloc(n, sizeof *order);
	ck_assert(p->panels && order);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = gpu_u32() % (i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	for (uint32_t i = 0, used = 0; i < p->n_segments; i++) {
		struct segment *s = &p->segments[i];

		s->panel = used;
		used += count_panels(p, s);
	}
	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct segment *s = &p->segments[i];
		uint32_t end = first_panel(p, s) + count_panels(p, s);

		p->list[i] = at;
		for (int j = (int)i; j >= 0 && end; j = p->segments[j].parent)
			while (end > first_panel(p, &p->segments[j])) {
				end--;
				p->panels[at + end] =
				    order[p->segments[j].panel + end - first_panel(p, &p->segments[j])];
			}
		at += first_panel(p, s) + count_panels(p, s);
	}
	free(order);
	return n;
}

/* Keys and values of all panels. Slots of positions that nobody sees hold large numbers. */
static void fill_slots(const struct packed *p, const struct tokens *t, float *k, float *v)
{
	const struct shape *s = &t->s;
	uint32_t d_qk = p->shape.d_qk, d_v = p->shape.d_v, block = p->shape.block, n_slots = p->a.n_slots;

	for (size_t i = 0; i < (size_t)s->n_kv_head * n_slots * d_qk; i++)
		k[i] = i % 2 ? 30000 : -30000;
	for (size_t i = 0; i < (size_t)s->n_kv_head * n_slots * d_v; i++)
		v[i] = i % 3 ? 60000 : -60000;
	for (uint32_t i = 0; i < p->n_segments; i++)
		for (uint32_t pos = first_panel(p, &p->segments[i]) * block;
		     pos < p->segments[i].start + p->segments[i].len; pos++) {
			uint32_t token = token_at(p, (int)i, pos);
			size_t slot = (size_t)p->panels[p->list[i] + pos / block] * block + pos % block;

			for (uint32_t h = 0; h < s->n_kv_head; h++) {
				size_t from = (size_t)token * s->n_kv_head + h;

				spread(k + ((size_t)h * n_slots + slot) * d_qk, t->k + from * width_of(s), s, d_qk,
				       s->pope);
				spread(v + ((size_t)h * n_slots + slot) * d_v, t->v + from * s->head_dim, s, d_v,
				       false);
			}
		}
}

static void fill_queries(const struct packed *p, const struct tokens *t, float *q)
{
	const struct shape *s = &t->s;

	for (uint32_t i = 0; i < p->n_segments; i++)
		for (uint32_t r = 0; r < p->segments[i].len; r++)
			for (uint32_t h = 0; h < s->n_head; h++)
				spread(q + ((size_t)h * p->a.q_rows + p->segments[i].row + r) * p->shape.d_qk,
				       t->q + ((size_t)(p->segments[i].first + r) * s->n_head + h) * width_of(s), s,
				       p->shape.d_qk, s->pope);
}

/* Lays a batch out and uploads it. Some rows lie between the segments. False: no kernel takes the shape. */
static bool pack(struct packed *p, const struct tokens *t, const struct segment *segments, uint32_t n)
{
	const struct shape *s = &t->s;
	float *host;
	uint32_t longest = 0;

	memset(p, 0, sizeof *p);
	if (kern_attention_shape_cuda(&p->shape, gpu_capability(), s->type, s->head_dim, s->pope))
		return false;
	ck_assert_uint_le(n, MAX_SEGMENTS);
	memcpy(p->segments, segments, sizeof *segments * n);
	p->n_segments = n;
	for (uint32_t i = 0; i < n; i++) {
		struct segment *g = &p->segments[i];

		g->start = g->parent < 0 ? 0 : p->segments[g->parent].start + p->segments[g->parent].len;
		g->row = p->n_rows;
		p->n_rows += g->len + i % 3;
		longest = g->start + g->len > longest ? g->start + g->len : longest;
	}
	p->a = (struct kern_attention_cuda){
	    .n_head = s->n_head,
	    .n_kv_head = s->n_kv_head,
	    .head_dim = s->head_dim,
	    .q_rows = p->n_rows,
	    .out_stride = (s->n_head * s->head_dim + SLACK) / 2 * 2,
	    .scale = 1.5f / sqrtf((float)s->head_dim),
	    .pope = s->pope,
	    .type = s->type,
	};
	p->a.n_slots = place_panels(p) * p->shape.block;
	p->a.panels = gpu_upload_bytes(
	    p->panels,
	    sizeof *p->panels *
	        (p->list[n - 1] + (p->segments[n - 1].start + p->segments[n - 1].len - 1) / p->shape.block + 1));

	size_t n_q = (size_t)s->n_head * p->n_rows * p->shape.d_qk;
	size_t n_k = (size_t)s->n_kv_head * p->a.n_slots * p->shape.d_qk;
	size_t n_v = (size_t)s->n_kv_head * p->a.n_slots * p->shape.d_v;

	host = malloc(sizeof *host * (n_q + n_k + n_v));
	ck_assert_ptr_nonnull(host);
	memset(host, 0, sizeof *host * n_q);
	fill_queries(p, t, host);
	fill_slots(p, t, host + n_q, host + n_q + n_k);
	p->a.q = gpu_upload(host, n_q, p->shape.qk_type);
	p->a.k = gpu_upload(host + n_q, n_k, p->shape.qk_type);
	p->a.v = gpu_upload(host + n_q + n_k, n_v, s->type);
	free(host);
	p->a.counter = gpu_new(sizeof *p->a.counter);
	p->out_bytes = (size_t)p->n_rows * p->a.out_stride * kern_type_size(s->type);
	p->a.out = gpu_new(p->out_bytes);
	return true;
}

static int longer(const void *a, const void *b)
{
	const struct kern_tile *s = a, *t = b;

	return s->pos0 + s->n_rows < t->pos0 + t->n_rows ? 1 : -1;
}

/* Whole tiles, longest chains first; or tiles of random heights, in any order. */
static void cut(struct packed *p, bool at_random)
{
	struct kern_tile *tiles = malloc(sizeof *tiles * p->n_rows);
	uint32_t n = 0;

	ck_assert_ptr_nonnull(tiles);
	for (uint32_t i = 0; i < p->n_segments; i++)
		for (uint32_t r = 0; r < p->segments[i].len; r += tiles[n++].n_rows) {
			uint32_t rows = at_random ? 1 + gpu_u32() % p->shape.tile_rows : p->shape.tile_rows;

			if (rows > p->segments[i].len - r)
				rows = p->segments[i].len - r;
			tiles[n] =
			    (struct kern_tile){p->segments[i].row + r, rows, p->segments[i].start + r, p->list[i]};
		}
	if (!at_random)
		qsort(tiles, n, sizeof *tiles, longer);
	p->a.tiles = gpu_upload_bytes(tiles, sizeof *tiles * n);
	p->a.n_tiles = n;
	free(tiles);
}

typedef int launcher(const struct kern_attention_cuda *, int, struct CUstream_st *);

/* The output's bytes, from poison. */
static unsigned char *attend(struct packed *p, launcher *launch, const char *what)
{
	int device, rc;

	ck_assert_int_eq(cudaGetDevice(&device), cudaSuccess);
	gpu_poison(p->a.out, p->out_bytes);
	rc = launch(&p->a, device, NULL);
	ck_assert_msg(rc == 0, "%s: %s", what, kern_cuda_error(rc));
	return gpu_download_bytes(p->a.out, p->out_bytes);
}

/* -- checks ---------------------------------------------------------------------------------------- */

/* One row of one head in double: want = softmax(scale q k^T) v, size = softmax(..) |v|. */
static void reference(double *want, double *size, const struct packed *p, const struct tokens *t, int segment,
                      uint32_t r, uint32_t head)
{
	const struct shape *s = &t->s;
	uint32_t width = width_of(s), pos = p->segments[segment].start + r, kv = head / (s->n_head / s->n_kv_head);
	const float *q = t->q + ((size_t)(p->segments[segment].first + r) * s->n_head + head) * width;
	double *score = malloc(sizeof *score * (pos + 1)), max = -INFINITY, sum = 0;

	ck_assert_ptr_nonnull(score);
	for (uint32_t i = 0; i <= pos; i++) {
		const float *k = t->k + ((size_t)token_at(p, segment, i) * s->n_kv_head + kv) * width;

		score[i] = 0;
		for (uint32_t c = 0; c < width; c++)
			score[i] += (double)q[c] * k[c];
		score[i] *= p->a.scale;
		max = score[i] > max ? score[i] : max;
	}
	memset(want, 0, sizeof *want * s->head_dim);
	memset(size, 0, sizeof *size * s->head_dim);
	for (uint32_t i = 0; i <= pos; i++) {
		const float *v = t->v + ((size_t)token_at(p, segment, i) * s->n_kv_head + kv) * s->head_dim;
		double e = exp(score[i] - max);

		sum += e;
		for (uint32_t c = 0; c < s->head_dim; c++) {
			want[c] += e * v[c];
			size[c] += e * fabs((double)v[c]);
		}
	}
	for (uint32_t c = 0; c < s->head_dim; c++) {
		want[c] /= sum;
		size[c] /= sum;
	}
	free(score);
}

static float number_at(const unsigned char *out, size_t i, enum kern_type type)
{
	uint16_t bits;
	float x;

	if (type == KERN_F32) {
		memcpy(&x, out + 4 * i, 4);
		return x;
	}
	memcpy(&bits, out + 2 * i, 2);
	return gpu_float(bits, type);
}

/* The rows of a segment that are checked: around every multiple of 64, the ends, and some more. */
static bool sampled(const struct segment *s, uint32_t r)
{
	uint32_t pos = s->start + r;

	if (s->len > 300)
		return r < 2 || r + 3 > s->len || (pos + 1) % 512 < 2 || pos % 251 == 0;
	return r < 3 || r + 3 > s->len || (pos + 2) % 64 < 4 || pos % 16 == 7;
}

/* Tolerance of an output x = sum p v, |x|' = sum p |v|: half a unit in the last place of the output (of x) and of each
 * probability (of |x|', unless f32). Then f32 sums, in units of 2^-24: scores add `width` products (64 units, and a
 * quarter for each); the sum over keys, which tensor cores truncate, is off by at most 2 for each 16 of them. */
static double tolerance(const struct shape *s, uint32_t pos, double want, double size)
{
	double eps = gpu_epsilon(s->type), sums = (64 + width_of(s) / 4.0 + (pos + 1) / 16.0 * 2) * 0x1p-24;

	return eps * fabs(want) + (sums + (s->type == KERN_F32 ? 0 : eps)) * size;
}

/* Returns the largest share of the tolerance. (No assertion a number: Check writes down each that passes.) */
static double check_row(const struct packed *p, const struct tokens *t, const unsigned char *out, uint32_t segment,
                        uint32_t r, uint32_t head, const char *what)
{
	const struct shape *s = &t->s;
	const struct segment *g = &p->segments[segment];
	double want[KERN_MAX_HEAD_DIM], size[KERN_MAX_HEAD_DIM], worst = 0;

	reference(want, size, p, t, (int)segment, r, head);
	for (uint32_t c = 0; c < s->head_dim; c++) {
		size_t at = (size_t)(g->row + r) * p->a.out_stride + head * s->head_dim + c;
		double may = tolerance(s, g->start + r, want[c], size[c]), got = number_at(out, at, s->type);
		double share = fabs(got - want[c]) / may;

		if (!(share <= 1))
			ck_abort_msg(
			    "%s, %s: segment %u of %u at %u, row %u, head %u, column %u: %g, not %g (may be %.3g off)",
			    what, name_of(s), segment, g->len, g->start, r, head, c, got, want[c], may);
		worst = share > worst ? share : worst;
	}
	return worst;
}

static void check_rows(const struct packed *p, const struct tokens *t, const unsigned char *out, const char *what)
{
	double worst = 0;

	for (uint32_t i = 0; i < p->n_segments; i++)
		for (uint32_t r = 0; r < p->segments[i].len; r++)
			for (uint32_t h = 0; h < t->s.n_head && sampled(&p->segments[i], r); h++)
				worst = fmax(worst, check_row(p, t, out, i, r, h, what));
	if (getenv("FATHOM_TEST_VERBOSE"))
		fprintf(stderr, "%s, %s: at most %.2f of the tolerance\n", what, name_of(&t->s), worst);
}

/* What is no segment's row, and columns beyond the heads, keep their poison. */
static void check_rest(const struct packed *p, const struct tokens *t, const unsigned char *out, const char *what)
{
	size_t size = kern_type_size(t->s.type), stride = p->a.out_stride * size;
	size_t used = size * t->s.n_head * t->s.head_dim;

	for (uint32_t row = 0, i = 0; row < p->n_rows; row++) {
		bool ours;

		while (i + 1 < p->n_segments && p->segments[i + 1].row <= row)
			i++;
		ours = row - p->segments[i].row < p->segments[i].len;
		for (size_t b = ours ? used : 0; b < stride; b++)
			if (out[row * stride + b] != 0xff)
				ck_abort_msg("%s, %s: row %u, byte %zu was written", what, name_of(&t->s), row, b);
	}
}

/* Segment i of p and rows from r0 of segment j of p2: the same bits. */
static void check_same(const struct packed *p, const unsigned char *out, uint32_t i, const struct packed *p2,
                       const unsigned char *out2, uint32_t j, uint32_t r0, const char *what)
{
	const struct segment *g = &p->segments[i];
	size_t size = kern_type_size(p->a.type), stride = size * p->a.out_stride;
	size_t used = size * p->a.n_head * p->a.head_dim;

	for (uint32_t r = 0; r < g->len; r++) {
		const unsigned char *a = out + (g->row + r) * stride;
		const unsigned char *b = out2 + (p2->segments[j].row + r0 + r) * stride;
		size_t c = 0;

		if (!memcmp(a, b, used))
			continue;
		while (a[c] == b[c])
			c++;
		c /= size;
		ck_abort_msg("%s, head_dim %u: segment %u of %u at %u, row %u, column %zu: bits differ: %.9g and %.9g",
		             what, p->a.head_dim, i, g->len, g->start, r, c, number_at(a, c, p->a.type),
		             number_at(b, c, p->a.type));
	}
}

static void release(struct packed *p)
{
	free(p->panels);
	p->panels = NULL;
}

/* -- tests ------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	launcher *launch;
} kernels[] = {
    {"dispatch", kern_attention_cuda}, {"mma", kern_attention_mma_cuda}, /* not f32 */
};
#define N_KERNELS (sizeof kernels / sizeof *kernels)

static const struct shape shapes[] = {
    {KERN_BF16, 64, 2, 2, false},
    {KERN_BF16, 64, 2, 2, true},
    {KERN_BF16, 128, 2, 2, false},
    {KERN_BF16, 128, 2, 2, true},
    {KERN_F16, 64, 2, 2, false},
    {KERN_F16, 64, 2, 2, true},
    {KERN_F16, 128, 2, 2, false},
    {KERN_F16, 128, 2, 2, true},
    {KERN_BF16, 256, 2, 2, false},
    {KERN_F16, 256, 2, 2, false},
    {KERN_F32, 64, 2, 2, true},
    {KERN_F32, 128, 2, 2, false},
    {KERN_F32, 256, 1, 1, true},
    /* widths that are padded, and heads that share keys */
    {KERN_BF16, 48, 4, 2, false},
    {KERN_BF16, 48, 2, 1, true},
    {KERN_BF16, 80, 4, 1, true},
    {KERN_F16, 96, 8, 2, false},
    {KERN_BF16, 2, 3, 1, true},
    {KERN_F16, 192, 4, 2, false},
    {KERN_F32, 80, 4, 2, false},
    {KERN_F32, 6, 3, 3, true},
    {KERN_BF16, 64, 8, 1, true},
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* kernels.md's lengths, and one more than a panel of any kernel */
static const uint32_t lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1023, 1025};
#define N_LENGTHS (sizeof lengths / sizeof *lengths)

static uint32_t sequences(struct segment *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N_LENGTHS; n += lengths[i++])
		out[i] = (struct segment){.parent = -1, .first = n, .len = lengths[i]};
	return n;
}

/* All kernels that take a packed batch's shape. */
#define each_kernel(i, p) for (uint32_t i = 0; i < ((p)->a.type == KERN_F32 ? 1 : N_KERNELS); i++)

static void check_lengths(struct shape shape)
{
	struct segment s[N_LENGTHS];
	struct tokens t = tokens_new(shape, sequences(s));
	struct packed p;

	ck_assert(pack(&p, &t, s, N_LENGTHS));
	cut(&p, false);
	each_kernel(i, &p)
	{
		unsigned char *out = attend(&p, kernels[i].launch, kernels[i].name);

		check_rows(&p, &t, out, kernels[i].name);
		check_rest(&p, &t, out, kernels[i].name);
	}
	release(&p);
	gpu_end();
}

START_TEST(every_length_is_near_double_precision)
{
	if (!fixture_gpu_present("gpu_attention"))
		return;
	gpu_seed(1);
	for (uint32_t i = 0; i < N_SHAPES; i++)
		check_lengths(shapes[i]);
}
END_TEST

/* The longest sequences alone, in other panels; all of them in tiles cut at random. */
static void check_packing(struct shape shape)
{
	struct segment s[N_LENGTHS];
	struct tokens t = tokens_new(shape, sequences(s));
	struct packed p, alone;

	ck_assert(pack(&p, &t, s, N_LENGTHS));
	each_kernel(i, &p)
	{
		unsigned char *whole, *out;

		cut(&p, false);
		whole = attend(&p, kernels[i].launch, kernels[i].name);
		for (int round = 0; round < 3; round++) {
			cut(&p, round > 0); /* round 0: twice the same */
			out = attend(&p, kernels[i].launch, kernels[i].name);
			check_rest(&p, &t, out, kernels[i].name);
			for (uint32_t j = 0; j < N_LENGTHS; j++)
				check_same(&p, out, j, &p, whole, j, 0, kernels[i].name);
		}
		for (uint32_t j = N_LENGTHS - 4; j < N_LENGTHS; j++) {
			ck_assert(pack(&alone, &t, &s[j], 1));
			cut(&alone, false);
			out = attend(&alone, kernels[i].launch, kernels[i].name);
			check_same(&alone, out, 0, &p, whole, j, 0, kernels[i].name);
			release(&alone);
		}
	}
	release(&p);
	gpu_end();
}

START_TEST(tiles_and_packing_do_not_change_a_bit)
{
	if (!fixture_gpu_present("gpu_attention"))
		return;
	gpu_seed(2);
	for (uint32_t i = 0; i < N_SHAPES; i++)
		check_packing(shapes[i]);
}
END_TEST

/* A segment's chain, repeated as one sequence. */
static struct tokens chain_of(const struct packed *p, const struct tokens *t, int segment)
{
	const struct shape *s = &t->s;
	uint32_t n = p->segments[segment].start + p->segments[segment].len;
	size_t nq = (size_t)s->n_head * width_of(s), nk = (size_t)s->n_kv_head * width_of(s);
	size_t nv = (size_t)s->n_kv_head * s->head_dim;
	struct tokens chain = tokens_new(*s, n);

	for (uint32_t pos = 0; pos < n; pos++) {
		size_t token = token_at(p, segment, pos);

		memcpy(chain.q + pos * nq, t->q + token * nq, nq * sizeof *t->q);
		memcpy(chain.k + pos * nk, t->k + token * nk, nk * sizeof *t->k);
		memcpy(chain.v + pos * nv, t->v + token * nv, nv * sizeof *t->v);
	}
	return chain;
}

/* A tree whose segments start on a panel's edge, beside it and in its middle; then each leaf's chain in full. */
static void check_tree(struct shape shape)
{
	static const struct segment tree[] = {
	    {.parent = -1, .first = 0, .len = 100},  {.parent = 0, .first = 100, .len = 28},
	    {.parent = 0, .first = 128, .len = 300}, {.parent = 1, .first = 428, .len = 130},
	    {.parent = 1, .first = 558, .len = 1},   {.parent = 4, .first = 559, .len = 63},
	    {.parent = 4, .first = 622, .len = 1},   {.parent = 6, .first = 623, .len = 2},
	    {.parent = 2, .first = 625, .len = 200}, {.parent = 7, .first = 825, .len = 400},
	};
	static const int leaves[] = {3, 5, 8, 9};
	struct tokens t = tokens_new(shape, 1225), chain;
	struct packed p, full;
	unsigned char *out[N_KERNELS];

	ck_assert(pack(&p, &t, tree, sizeof tree / sizeof *tree));
	cut(&p, false);
	each_kernel(i, &p)
	{
		out[i] = attend(&p, kernels[i].launch, kernels[i].name);
		check_rows(&p, &t, out[i], kernels[i].name);
		check_rest(&p, &t, out[i], kernels[i].name);
	}
	for (uint32_t j = 0; j < sizeof leaves / sizeof *leaves; j++) {
		uint32_t leaf = (uint32_t)leaves[j], start = p.segments[leaf].start;
		struct segment whole = {.parent = -1, .len = start + p.segments[leaf].len};

		chain = chain_of(&p, &t, leaves[j]);
		ck_assert(pack(&full, &chain, &whole, 1));
		cut(&full, false);
		each_kernel(i, &p)
		{
			unsigned char *repeated = attend(&full, kernels[i].launch, kernels[i].name);

			check_same(&p, out[i], leaf, &full, repeated, 0, start, kernels[i].name);
		}
		release(&full);
	}
	release(&p);
	gpu_end();
}

START_TEST(shared_prefixes_are_as_repeated_ones)
{
	if (!fixture_gpu_present("gpu_attention"))
		return;
	gpu_seed(3);
	for (uint32_t i = 0; i < N_SHAPES; i++)
		check_tree(shapes[i]);
}
END_TEST

START_TEST(a_long_sequence_is_near_double_precision)
{
	static const struct shape of[] = {{KERN_BF16, 64, 1, 1, true},
	                                  {KERN_BF16, 128, 1, 1, false},
	                                  {KERN_F16, 128, 1, 1, true},
	                                  {KERN_F32, 64, 1, 1, false}};
	struct segment s = {.parent = -1, .len = 10241};

	if (!fixture_gpu_present("gpu_attention"))
		return;
	gpu_seed(4);
	for (size_t j = 0; j < sizeof of / sizeof *of; j++) {
		struct tokens t = tokens_new(of[j], s.len);
		struct packed p;

		ck_assert(pack(&p, &t, &s, 1));
		cut(&p, false);
		each_kernel(i, &p) check_rows(&p, &t, attend(&p, kernels[i].launch, kernels[i].name), kernels[i].name);
		release(&p);
		gpu_end();
	}
}
END_TEST

/* From: heads [n, from_head]; to: [n, to_head], 64-bit apart. */
static const void *far_apart(const void *from, size_t from_head, size_t to_head, uint32_t n, void **owned)
{
	ck_assert_int_eq(cudaMalloc(owned, n * to_head), cudaSuccess);
	for (size_t h = 0; h < n; h++)
		ck_assert_int_eq(cudaMemcpy((char *)*owned + h * to_head, (const char *)from + h * from_head, from_head,
		                            cudaMemcpyDeviceToDevice),
		                 cudaSuccess);
	return *owned;
}

/* The second head begins 4.6 GB after the first. */
START_TEST(offsets_are_wider_than_32_bits)
{
	enum { HEADS = 2, ROWS = 9000000 };
	struct segment s = {.parent = -1, .len = 65};
	struct packed p, wide;
	struct tokens t;
	size_t free_bytes, total, n_slots, row;
	unsigned char *want[N_KERNELS];
	void *owned[3];

	if (!fixture_gpu_present("gpu_attention"))
		return;
	ck_assert_int_eq(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
	if (free_bytes < (size_t)26 << 30) {
		fixture_skip("gpu_attention", "offsets beyond 32 bits need 26 GB");
		return;
	}
	gpu_seed(5);
	t = tokens_new((struct shape){KERN_BF16, 128, HEADS, HEADS, true}, s.len);
	ck_assert(pack(&p, &t, &s, 1));
	cut(&p, false);
	each_kernel(i, &p) want[i] = attend(&p, kernels[i].launch, kernels[i].name);
	n_slots = ROWS / p.shape.block * p.shape.block;
	row = (size_t)2 * p.shape.d_qk;
	wide = p;
	wide.a.q_rows = ROWS;
	wide.a.n_slots = (uint32_t)n_slots;
	wide.a.q = far_apart(p.a.q, row * p.a.q_rows, row * ROWS, HEADS, &owned[0]);
	wide.a.k = far_apart(p.a.k, row * p.a.n_slots, row * n_slots, HEADS, &owned[1]);
	row = (size_t)2 * p.shape.d_v;
	wide.a.v = far_apart(p.a.v, row * p.a.n_slots, row * n_slots, HEADS, &owned[2]);
	each_kernel(i, &p)
	    check_same(&wide, attend(&wide, kernels[i].launch, kernels[i].name), 0, &p, want[i], 0, 0, kernels[i].name);
	for (int i = 0; i < 3; i++)
		cudaFree(owned[i]);
	release(&p);
	gpu_end();
}
END_TEST

START_TEST(shapes_that_no_kernel_takes_are_refused)
{
	struct kern_attention_shape s;

	ck_assert_int_eq(kern_attention_shape_cuda(&s, 75, KERN_F16, 64, false), -1);
	ck_assert_int_eq(kern_attention_shape_cuda(&s, 90, KERN_BF16, 0, false), -1);
	ck_assert_int_eq(kern_attention_shape_cuda(&s, 90, KERN_BF16, 63, false), -1);
	ck_assert_int_eq(kern_attention_shape_cuda(&s, 90, KERN_BF16, 258, false), -1);
	ck_assert_int_eq(kern_attention_shape_cuda(&s, 90, KERN_BF16, 130, true), -1);
	ck_assert_int_eq(kern_attention_shape_cuda(&s, 80, KERN_F16, 256, true), -1);
	ck_assert_int_eq(kern_attention_shape_cuda(&s, 90, KERN_F32, 258, false), -1);
}
END_TEST

START_TEST(widths_are_padded)
{
	static const struct {
		enum kern_type type;
		uint32_t head_dim;
		bool pope;
		uint32_t d_qk, d_v;
		enum kern_type qk_type;
	} cases[] = {
	    {KERN_BF16, 64, false, 64, 64, KERN_F16},    {KERN_BF16, 48, true, 128, 64, KERN_F16},
	    {KERN_F16, 66, false, 128, 128, KERN_F16},   {KERN_BF16, 128, true, 256, 128, KERN_F16},
	    {KERN_BF16, 130, false, 256, 256, KERN_F16}, {KERN_F32, 6, true, 16, 8, KERN_F32},
	    {KERN_F32, 256, true, 512, 256, KERN_F32},   {KERN_F32, 80, false, 80, 80, KERN_F32},
	};
	static const int capabilities[] = {80, 86, 89, 90, 100, 120};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (size_t j = 0; j < sizeof capabilities / sizeof *capabilities; j++) {
			struct kern_attention_shape s;

			ck_assert_int_eq(kern_attention_shape_cuda(&s, capabilities[j], cases[i].type,
			                                           cases[i].head_dim, cases[i].pope),
			                 0);
			ck_assert_uint_eq(s.d_qk, cases[i].d_qk);
			ck_assert_uint_eq(s.d_v, cases[i].d_v);
			ck_assert_int_eq(s.qk_type, cases[i].qk_type);
			ck_assert_uint_ge(s.block, 64); /* the mma kernel's walk relies on these two */
			ck_assert_uint_eq(s.block % 16, 0);
			ck_assert_uint_ge(s.tile_rows, 64);
		}
}
END_TEST

Suite *gpu_attention_suite(void);
Suite *gpu_attention_suite(void)
{
	Suite *s = suite_create("gpu_attention");
	TCase *c = tcase_create("gpu_attention");

	tcase_set_tags(c, "gpu");
	tcase_set_timeout(c, 600);
	tcase_add_test(c, shapes_that_no_kernel_takes_are_refused);
	tcase_add_test(c, widths_are_padded);
	tcase_add_test(c, every_length_is_near_double_precision);
	tcase_add_test(c, tiles_and_packing_do_not_change_a_bit);
	tcase_add_test(c, shared_prefixes_are_as_repeated_ones);
	tcase_add_test(c, a_long_sequence_is_near_double_precision);
	tcase_add_test(c, offsets_are_wider_than_32_bits);
	suite_add_tcase(s, c);
	return s;
}
