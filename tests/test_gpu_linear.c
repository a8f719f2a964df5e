/* The fused product of queries, keys and values against double precision on the CPU: every scheme, odd numbers of
 * heads, slots in any order; that a row's bits depend on that row alone, that nothing else is written, and faults. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture_gpu.h"

#define MAX_ROWS  768
#define N_SLOTS   1024
#define AMPLITUDE 1.1F

struct shape {
	uint32_t n_head, n_kv_head, head_dim, dim;
	bool pope, bias;
	enum kern_type type;
};

static const struct shape shapes[] = {
    {4, 4, 64, 256, false, false, KERN_BF16},  {4, 4, 64, 256, true, false, KERN_BF16},
    {7, 2, 64, 64, true, true, KERN_BF16},     {6, 1, 64, 72, false, true, KERN_F16},
    {5, 5, 64, 320, true, false, KERN_F16},    {3, 1, 128, 192, false, false, KERN_BF16},
    {4, 2, 128, 384, true, true, KERN_BF16},   {1, 1, 64, 8, true, false, KERN_BF16},
    {12, 12, 64, 768, true, false, KERN_BF16},
};
#define N_SHAPES (int)(sizeof shapes / sizeof *shapes)

/* A layer on the host and on the device. */
struct layer {
	struct shape s;
	struct kern_qkv_cuda a;
	float *in, *w, *bias, *cos_delta, *sin_delta;
	uint32_t n_freq, width, d_qk;
	uint32_t *pos, *slot; /* [MAX_ROWS] */
	uint64_t *freq;
	size_t q_bytes, k_bytes, v_bytes;
};

static int this_device(void)
{
	int device;

	ck_assert_int_eq(cudaGetDevice(&device), cudaSuccess);
	return device;
}

static void *must(void *p)
{
	ck_assert_ptr_nonnull(p);
	return p;
}

/* Positions far apart, slots a permutation. */
static void place_rows(struct layer *l)
{
	l->pos = must(malloc(MAX_ROWS * sizeof *l->pos));
	l->slot = must(malloc(MAX_ROWS * sizeof *l->slot));
	for (uint32_t r = 0; r < MAX_ROWS; r++) {
		l->pos[r] = r < 400 ? r : 1000000 + r;
		l->slot[r] = r * 37 % N_SLOTS;
	}
}

static bool layer_init(struct layer *l, const struct shape *s)
{
	uint32_t dim = s->dim;

	memset(l, 0, sizeof *l);
	l->s = *s;
	l->d_qk = s->pope ? 2 * s->head_dim : s->head_dim;
	if (!kern_qkv_takes_cuda(gpu_capability(), s->type, dim, s->head_dim, l->d_qk, s->head_dim, s->pope))
		return false;
	l->n_freq = s->pope ? s->head_dim : s->head_dim / 2;
	l->width = (s->n_head + 2 * s->n_kv_head) * s->head_dim;
	l->in = gpu_normals_of((size_t)MAX_ROWS * dim, 1, s->type);
	l->w = gpu_normals_of((size_t)l->width * dim, 1 / sqrtf((float)dim), s->type);
	l->bias = s->bias ? gpu_normals(l->width, 1) : NULL;
	l->cos_delta = gpu_normals((size_t)s->n_kv_head * s->head_dim, 1);
	l->sin_delta = gpu_normals((size_t)s->n_kv_head * s->head_dim, 1);
	for (uint32_t i = 0; i < s->n_kv_head * s->head_dim; i++) {
		float delta = l->cos_delta[i];

		l->cos_delta[i] = cosf(delta);
		l->sin_delta[i] = sinf(delta);
	}
	l->freq = must(malloc(l->n_freq * sizeof *l->freq));
	for (uint32_t i = 0; i < l->n_freq; i++)
		l->freq[i] = (uint64_t)(pow(10000, -(double)i / l->n_freq) / (2 * M_PI) * 0x1p64);
	place_rows(l);
	l->q_bytes = (size_t)s->n_head * MAX_ROWS * l->d_qk * 2;
	l->k_bytes = (size_t)s->n_kv_head * N_SLOTS * l->d_qk * 2;
	l->v_bytes = (size_t)s->n_kv_head * N_SLOTS * s->head_dim * 2;
	l->a = (struct kern_qkv_cuda){
	    .post = {.q = gpu_new(l->q_bytes),
	             .k = gpu_new(l->k_bytes),
	             .v = gpu_new(l->v_bytes),
	             .bias = s->bias ? gpu_upload(l->bias, l->width, KERN_F32) : NULL,
	             .pos = gpu_upload_bytes(l->pos, MAX_ROWS * sizeof *l->pos),
	             .slot = gpu_upload_bytes(l->slot, MAX_ROWS * sizeof *l->slot),
	             .freq = gpu_upload_bytes(l->freq, l->n_freq * sizeof *l->freq),
	             .cos_delta = gpu_upload(l->cos_delta, (size_t)s->n_kv_head * s->head_dim, KERN_F32),
	             .sin_delta = gpu_upload(l->sin_delta, (size_t)s->n_kv_head * s->head_dim, KERN_F32),
	             .amplitude = AMPLITUDE,
	             .n_rows = MAX_ROWS,
	             .q_rows = MAX_ROWS,
	             .n_slots = N_SLOTS,
	             .n_head = s->n_head,
	             .n_kv_head = s->n_kv_head,
	             .head_dim = s->head_dim,
	             .d_qk = l->d_qk,
	             .d_v = s->head_dim,
	             .pope = s->pope,
	             .type = s->type,
	             .fault = gpu_fault(5, 100)},
	    .in = gpu_upload(l->in, (size_t)MAX_ROWS * dim, s->type),
	    .w = gpu_upload(l->w, (size_t)l->width * dim, s->type),
	    .turns = gpu_new((size_t)MAX_ROWS * l->n_freq * 2 * sizeof(float)),
	    .dim = dim,
	};
	return true;
}

/* Rows row0 .. row0 + n, as rows 0 .. n of q. */
static void layer_run(struct layer *l, uint32_t row0, uint32_t n)
{
	struct kern_qkv_cuda a = l->a;
	float *turns = gpu_new((size_t)n * l->n_freq * 2 * sizeof(float));

	gpu_poison(a.post.q, l->q_bytes);
	gpu_poison(a.post.k, l->k_bytes);
	gpu_poison(a.post.v, l->v_bytes);
	a.post.n_rows = n;
	a.post.pos += row0;
	a.post.slot += row0;
	a.post.fault.row0 += row0;
	a.in = (const char *)a.in + (size_t)row0 * l->s.dim * 2;
	a.turns = turns;
	gpu_ok(kern_turns_cuda(turns, a.post.pos, a.post.freq, AMPLITUDE, n, l->n_freq, NULL));
	gpu_ok(kern_qkv_cuda(&a, this_device(), NULL));
	gpu_check_guards();
}

static void layer_release(struct layer *l)
{
	free(l->pos);
	free(l->slot);
	free(l->freq);
	gpu_end();
}

/* One head of one row, turned: out [d_qk], or [head_dim] of a value. */
static void reference(double *out, const struct layer *l, uint32_t row, uint32_t head)
{
	uint32_t d = l->s.head_dim, n_qk = l->s.n_head + l->s.n_kv_head;
	double x[KERN_MAX_HEAD_DIM] = {0};

	for (uint32_t c = 0; c < d; c++) {
		const float *in = l->in + (size_t)row * l->s.dim, *w = l->w + (size_t)(head * d + c) * l->s.dim;

		x[c] = l->bias ? l->bias[head * d + c] : 0;
		for (uint32_t i = 0; i < l->s.dim; i++)
			x[c] += (double)in[i] * w[i];
	}
	if (head >= n_qk) {
		memcpy(out, x, d * sizeof *x);
		return;
	}
	for (uint32_t i = 0; i < l->n_freq; i++) {
		double angle = 2 * M_PI * (double)(l->pos[row] * l->freq[i]) * 0x1p-64;
		double c = AMPLITUDE * cos(angle), s = AMPLITUDE * sin(angle);

		if (l->s.pope) {
			double mu = log1p(exp(x[i]));

			if (head >= l->s.n_head) {
				uint32_t at = (head - l->s.n_head) * d + i;
				double cd = l->cos_delta[at], sd = l->sin_delta[at], t = c * cd - s * sd;

				s = s * cd + c * sd;
				c = t;
			}
			out[i] = mu * c;
			out[d + i] = mu * s;
		} else {
			out[i] = x[i] * c - x[i + d / 2] * s;
			out[i + d / 2] = x[i + d / 2] * c + x[i] * s;
		}
	}
}

static bool is_poison(const uint16_t *x, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (x[i] != 0xffff)
			return false;
	return true;
}

/* What lies at a head of `got` [.., rows, width], against a row of the reference. */
static void check_head(const char *what, const uint16_t *got, const double *want, uint32_t width, enum kern_type type,
                       uint32_t row, uint32_t head)
{
	for (uint32_t c = 0; c < width; c++) {
		double x = gpu_float(got[c], type), tolerance = 2e-5 + 2 * gpu_epsilon(type) * fabs(want[c]);

		ck_assert_msg(fabs(x - want[c]) <= tolerance, "%s of row %u, head %u, channel %u: %g, not %g", what,
		              row, head, c, x, want[c]);
	}
}

START_TEST(queries_keys_and_values_are_right)
{
	struct layer l;
	const struct shape *s = &shapes[_i];
	double want[2 * KERN_MAX_HEAD_DIM] = {0};
	uint16_t *q, *k, *v;
	bool used[N_SLOTS] = {false};

	if (!fixture_gpu_present("fused queries, keys and values") || !layer_init(&l, s))
		return;
	layer_run(&l, 0, 700);
	ck_assert_uint_eq(gpu_fault_seen(&l.a.post.fault), UINT64_MAX);
	q = gpu_download_bytes(l.a.post.q, l.q_bytes);
	k = gpu_download_bytes(l.a.post.k, l.k_bytes);
	v = gpu_download_bytes(l.a.post.v, l.v_bytes);
	for (uint32_t r = 0; r < 700; r += r % 5 ? 17 : 1)
		for (uint32_t h = 0; h < s->n_head + 2 * s->n_kv_head; h++) {
			uint32_t kv = h - s->n_head;

			reference(want, &l, r, h);
			if (h < s->n_head)
				check_head("q", q + ((size_t)h * MAX_ROWS + r) * l.d_qk, want, l.d_qk, KERN_F16, r, h);
			else if (kv < s->n_kv_head)
				check_head("k", k + ((size_t)kv * N_SLOTS + l.slot[r]) * l.d_qk, want, l.d_qk, KERN_F16,
				           r, kv);
			else
				check_head("v", v + ((size_t)(kv - s->n_kv_head) * N_SLOTS + l.slot[r]) * s->head_dim,
				           want, s->head_dim, s->type, r, kv - s->n_kv_head);
		}
	for (uint32_t r = 0; r < 700; r++)
		used[l.slot[r]] = true;
	for (uint32_t h = 0; h < s->n_head; h++)
		ck_assert(is_poison(q + ((size_t)h * MAX_ROWS + 700) * l.d_qk, (MAX_ROWS - 700) * l.d_qk));
	for (uint32_t h = 0; h < s->n_kv_head; h++)
		for (uint32_t i = 0; i < N_SLOTS; i++)
			if (!used[i]) {
				ck_assert(is_poison(k + ((size_t)h * N_SLOTS + i) * l.d_qk, l.d_qk));
				ck_assert(is_poison(v + ((size_t)h * N_SLOTS + i) * s->head_dim, s->head_dim));
			}
	layer_release(&l);
}
END_TEST

START_TEST(a_rows_queries_keys_and_values_depend_on_that_row_alone)
{
	static const struct {
		uint32_t row0, n;
	} parts[] = {{0, 1}, {0, 2}, {0, 255}, {0, 256}, {0, 257}, {8, 500}, {256, 512}};
	const struct shape *s = &shapes[_i];
	uint16_t *q, *k, *v, *part_q, *part_k, *part_v;
	struct layer l;

	if (!fixture_gpu_present("fused queries, keys and values: bits") || !layer_init(&l, s))
		return;
	layer_run(&l, 0, MAX_ROWS);
	q = gpu_download_bytes(l.a.post.q, l.q_bytes);
	k = gpu_download_bytes(l.a.post.k, l.k_bytes);
	v = gpu_download_bytes(l.a.post.v, l.v_bytes);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		layer_run(&l, parts[i].row0, parts[i].n);
		part_q = gpu_download_bytes(l.a.post.q, l.q_bytes);
		part_k = gpu_download_bytes(l.a.post.k, l.k_bytes);
		part_v = gpu_download_bytes(l.a.post.v, l.v_bytes);
		for (uint32_t r = 0; r < parts[i].n; r++) {
			size_t row = parts[i].row0 + r, slot = l.slot[row];

			for (size_t h = 0; h < s->n_head; h++)
				ck_assert(!memcmp(part_q + (h * MAX_ROWS + r) * l.d_qk,
				                  q + (h * MAX_ROWS + row) * l.d_qk, l.d_qk * 2));
			for (size_t h = 0; h < s->n_kv_head; h++) {
				ck_assert(!memcmp(part_k + (h * N_SLOTS + slot) * l.d_qk,
				                  k + (h * N_SLOTS + slot) * l.d_qk, l.d_qk * 2));
				ck_assert(!memcmp(part_v + (h * N_SLOTS + slot) * s->head_dim,
				                  v + (h * N_SLOTS + slot) * s->head_dim, s->head_dim * 2));
			}
		}
	}
	layer_release(&l);
}
END_TEST

/* A weight large enough to pass 65504 in one query; a NaN of the input; the smaller row wins. */
START_TEST(what_f16_cannot_hold_is_a_fault)
{
	const struct shape *s = &shapes[0];
	struct layer l;

	if (!fixture_gpu_present("fused queries, keys and values: faults") || !layer_init(&l, s))
		return;
	l.in[300 * s->dim + 3] = 1e7F;
	l.in[555 * s->dim + 5] = NAN;
	l.a.in = gpu_upload(l.in, (size_t)MAX_ROWS * s->dim, s->type);
	layer_run(&l, 0, 200);
	ck_assert_uint_eq(gpu_fault_seen(&l.a.post.fault), UINT64_MAX);
	layer_run(&l, 301, 400);
	ck_assert_uint_eq(gpu_fault_seen(&l.a.post.fault), (uint64_t)5 << 32 | (100 + 555));
	layer_run(&l, 0, MAX_ROWS);
	ck_assert_uint_eq(gpu_fault_seen(&l.a.post.fault), (uint64_t)5 << 32 | (100 + 300));
	layer_release(&l);
}
END_TEST

Suite *gpu_linear_suite(void);
Suite *gpu_linear_suite(void)
{
	Suite *s = suite_create("gpu_linear");
	TCase *t = tcase_create("gpu");

	tcase_set_tags(t, "gpu");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, queries_keys_and_values_are_right, 0, N_SHAPES);
	tcase_add_loop_test(t, a_rows_queries_keys_and_values_depend_on_that_row_alone, 0, N_SHAPES);
	tcase_add_test(t, what_f16_cannot_hold_is_a_fault);
	suite_add_tcase(s, t);
	return s;
}
