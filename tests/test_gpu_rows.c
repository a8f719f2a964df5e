/* The CUDA kernels that work on rows, against double precision: random inputs, poisoned and guarded outputs, odd
 * shapes, every type. That a row's bits do not depend on where it stands, and that faults name the first row.
 *
 * Tolerances: the rounding to the type (gpu_epsilon), and what f32 arithmetic may do on the way, named at each use. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture_gpu.h"

static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_F16};
static const char *const names[] = {"f32", "bf16", "f16"};

#define N_TYPES (sizeof types / sizeof *types)
#define F32_EPS 0x1p-24 /* half a unit in the last place */

#define skip_without_gpu()                                                                                             \
	do {                                                                                                           \
		if (!fixture_gpu_present(__func__))                                                                    \
			return;                                                                                        \
	} while (0)

static double *doubles(size_t n)
{
	double *x = calloc(n ? n : 1, sizeof *x);

	ck_assert_ptr_nonnull(x);
	return x;
}

/* As gpu_near; where `want` is a NaN, the poison must still be there. */
static void near_or_poison(const char *what, float *got, double *want, size_t n, size_t width, double absolute,
                           double relative)
{
	for (size_t i = 0; i < n; i++) {
		if (!isnan(want[i]))
			continue;
		if (!isnan(got[i]))
			ck_abort_msg("%s: row %zu, column %zu was written: %g", what, i / width, i % width,
			             (double)got[i]);
		got[i] = 0;
		want[i] = 0;
	}
	gpu_near(what, got, want, n, width, absolute, relative);
}

static void same_rows(const char *what, const void *a, const void *b, size_t n_rows, size_t row_bytes)
{
	for (size_t r = 0; r < n_rows; r++)
		if (memcmp((const char *)a + r * row_bytes, (const char *)b + r * row_bytes, row_bytes) != 0)
			ck_abort_msg("%s: row %zu differs", what, r);
}

/* -- embedding ------------------------------------------------------------------------------------- */

START_TEST(an_embedding_is_the_tables_row)
{
	static const uint32_t dims[] = {1, 2, 3, 4, 63, 64, 65, 127, 128, 129, 768, 1280, 4097};
	static const uint32_t counts[] = {1, 2, 7, 8, 9, 65};
	const uint32_t n_vocab = 37;

	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
			for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
				uint32_t dim = dims[d], n = counts[c], tokens[65];
				float *table = gpu_normals_of((size_t)n_vocab * dim, 1, types[t]), *got;
				float *x = gpu_new_n((size_t)n * dim, KERN_F32);

				for (uint32_t i = 0; i < n; i++)
					tokens[i] = i ? gpu_u32() % n_vocab : n_vocab - 1;
				gpu_ok(kern_embed_cuda(x, gpu_upload(table, (size_t)n_vocab * dim, types[t]),
				                       gpu_upload_bytes(tokens, n * sizeof *tokens), n, dim, types[t],
				                       NULL));
				got = gpu_download(x, (size_t)n * dim, KERN_F32);
				for (uint32_t i = 0; i < n; i++)
					if (memcmp(got + (size_t)i * dim, table + (size_t)tokens[i] * dim,
					           dim * sizeof *got) != 0)
						ck_abort_msg("%s, dim %u, %u rows: row %u", names[t], dim, n, i);
				gpu_end();
			}
}
END_TEST

/* -- norm ------------------------------------------------------------------------------------------ */

struct norm_case {
	uint32_t dim, n_rows, n_x; /* n_x: rows of x, of which n_rows are asked for */
	bool y, bias, gather;
	enum kern_type type;
};

static void check_norm(const struct norm_case *c)
{
	size_t dim = c->dim, n_x = c->n_x, n = c->n_rows;
	float *x = gpu_normals(n_x * dim, 3), *w = gpu_normals(dim, 1), *bias = gpu_normals(dim, .5f);
	float *y = gpu_normals_of(n_x * dim, 2, c->type);
	double *sum = doubles(n_x * dim), *want = doubles(n * dim);
	uint32_t *rows = malloc(n * sizeof *rows);
	char what[128];
	struct kern_rmsnorm_cuda a = {
	    .out = gpu_new_n(n * dim, c->type),
	    .x = gpu_upload(x, n_x * dim, KERN_F32),
	    .y = c->y ? gpu_upload(y, n_x * dim, c->type) : NULL,
	    .bias = c->bias ? gpu_upload(bias, dim, KERN_F32) : NULL,
	    .w = gpu_upload(w, dim, KERN_F32),
	    .n_rows = c->n_rows,
	    .dim = c->dim,
	    .eps = 1e-5f,
	    .type = c->type,
	    .fault = gpu_fault(3, 100),
	};

	ck_assert_ptr_nonnull(rows);
	for (size_t i = 0; i < n; i++)
		rows[i] = c->gather ? gpu_u32() % c->n_x : (uint32_t)i;
	if (c->gather)
		a.rows = gpu_upload_bytes(rows, n * sizeof *rows);
	for (size_t i = 0; i < n_x * dim; i++)
		sum[i] = (double)x[i] + (c->y ? (double)y[i] + (c->bias ? (double)bias[i % dim] : 0) : 0);
	for (size_t r = 0; r < n; r++) {
		const double *v = sum + rows[r] * dim;
		double squares = 0;

		for (size_t i = 0; i < dim; i++)
			squares += v[i] * v[i];
		for (size_t i = 0; i < dim; i++)
			want[r * dim + i] = v[i] / sqrt(squares / (double)dim + (double)a.eps) * w[i];
	}
	gpu_ok(kern_rmsnorm_cuda(&a, NULL));
	snprintf(what, sizeof what, "%s, dim %u, %u of %u rows%s%s%s", names[c->type], c->dim, c->n_rows, c->n_x,
	         c->y ? ", y" : "", c->bias ? ", bias" : "", c->gather ? ", gathered" : "");
	/* f32: x is rounded thrice, and a term that cancels leaves its rounding (values to 20); the sum of squares adds
	 * dim / 32 roundings in a lane at most, which cancel for the most part; three more for the products */
	gpu_near(what, gpu_download(a.out, n * dim, c->type), want, n * dim, dim, 60 * F32_EPS,
	         gpu_epsilon(c->type) + 40 * F32_EPS);
	if (c->gather)
		for (size_t i = 0; i < n_x * dim; i++)
			sum[i] = x[i];
	gpu_near(what, gpu_download(a.x, n_x * dim, KERN_F32), sum, n_x * dim, dim, c->gather ? 0 : 30 * F32_EPS,
	         c->gather ? 0 : F32_EPS);
	ck_assert_uint_eq(gpu_fault_seen(&a.fault), UINT64_MAX);
	free(rows);
	free(sum);
	free(want);
	gpu_end();
}

START_TEST(a_norm_adds_the_branch_and_scales)
{
	static const uint32_t dims[] = {1,   2,   4,    63,   64,   65,   127,  128,  129,  512, 516,
	                                768, 772, 1024, 1280, 1284, 2048, 2052, 4096, 4097, 8192};
	static const uint32_t counts[] = {1, 7, 9, 33};

	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
			for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
				uint32_t n = counts[c];
				struct norm_case k = {.dim = dims[d], .n_rows = n, .n_x = n, .type = types[t]};

				if (dims[d] > 2048 && n > 9)
					continue;
				check_norm(&k);
				k.y = true;
				check_norm(&k);
				k.bias = true;
				check_norm(&k);
				k.gather = true;
				k.n_x = 5 + n / 2;
				check_norm(&k);
			}
}
END_TEST

START_TEST(a_norm_gives_a_row_the_same_bits_anywhere)
{
	static const uint32_t dims[] = {65, 768, 1280, 4096, 4097};

	skip_without_gpu();
	for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
		size_t dim = dims[d], n = 37;
		float *x = gpu_normals(n * dim, 3), *y = gpu_normals_of(n * dim, 1, KERN_BF16);
		uint32_t rows[37];
		struct kern_rmsnorm_cuda a = {.out = gpu_new_n(n * dim, KERN_BF16),
		                              .x = gpu_upload(x, n * dim, KERN_F32),
		                              .y = gpu_upload(y, n * dim, KERN_BF16),
		                              .w = gpu_upload(gpu_normals(dim, 1), dim, KERN_F32),
		                              .n_rows = (uint32_t)n,
		                              .dim = (uint32_t)dim,
		                              .eps = 1e-6f,
		                              .type = KERN_BF16,
		                              .fault = gpu_fault(0, 0)};
		struct kern_rmsnorm_cuda one = a;
		const char *all;

		for (uint32_t i = 0; i < n; i++)
			rows[i] = (uint32_t)n - 1 - i;
		gpu_ok(kern_rmsnorm_cuda(&a, NULL));
		all = gpu_download_bytes(a.out, n * dim * 2);
		one.x = gpu_upload(x, n * dim, KERN_F32);
		one.rows = gpu_upload_bytes(rows, sizeof rows);
		gpu_ok(kern_rmsnorm_cuda(&one, NULL)); /* from the last to the first */
		for (size_t r = 0; r < n; r++) {
			const char *got = gpu_download_bytes((char *)one.out + r * dim * 2, dim * 2);

			same_rows("gathered", got, all + (n - 1 - r) * dim * 2, 1, dim * 2);
		}
		one.rows = NULL;
		one.n_rows = 1;
		for (size_t r = 0; r < n; r += 3) { /* each alone */
			one.out = gpu_new_n(dim, KERN_BF16);
			one.x = gpu_upload(x + r * dim, dim, KERN_F32);
			one.y = (const char *)a.y + r * dim * 2;
			gpu_ok(kern_rmsnorm_cuda(&one, NULL));
			same_rows("alone", gpu_download_bytes(one.out, dim * 2), all + r * dim * 2, 1, dim * 2);
		}
		gpu_end();
	}
}
END_TEST

START_TEST(a_norm_reports_the_first_stage_and_row_that_is_not_finite)
{
	static const uint32_t dims[] = {64, 768, 4096, 129};
	static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};

	skip_without_gpu();
	for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
		for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
			size_t dim = dims[d], n = 50;
			float *x = gpu_normals(n * dim, 1);
			uint32_t rows[2] = {49, 33};
			struct kern_rmsnorm_cuda a = {.out = gpu_new_n(n * dim, KERN_F16),
			                              .w = gpu_upload(gpu_normals(dim, 1), dim, KERN_F32),
			                              .n_rows = (uint32_t)n,
			                              .dim = (uint32_t)dim,
			                              .eps = 1e-6f,
			                              .type = KERN_F16,
			                              .fault = gpu_fault(7, 1000)};

			x[41 * dim + dim - 1] = bad[b];
			x[33 * dim] = bad[b];
			x[49 * dim + dim / 2] = bad[b];
			a.x = gpu_upload(x, n * dim, KERN_F32);
			gpu_ok(kern_rmsnorm_cuda(&a, NULL));
			ck_assert_uint_eq(gpu_fault_seen(&a.fault), UINT64_C(7) << 32 | 1033);
			a.fault.stage = 8;
			a.fault.row0 = 0;
			gpu_ok(kern_rmsnorm_cuda(&a, NULL)); /* a later stage does not hide it */
			ck_assert_uint_eq(gpu_fault_seen(&a.fault), UINT64_C(7) << 32 | 1033);
			a.fault.stage = 2;
			a.rows = gpu_upload_bytes(rows, sizeof rows);
			a.n_rows = 2;
			gpu_ok(kern_rmsnorm_cuda(&a, NULL)); /* gathered: the row of x is named */
			ck_assert_uint_eq(gpu_fault_seen(&a.fault), UINT64_C(2) << 32 | 33);
			gpu_end();
		}
}
END_TEST

/* -- activation ------------------------------------------------------------------------------------ */

static double act_of(double x, enum kern_act act)
{
	switch (act) {
	case KERN_GELU_TANH: /* (1 + tanh u) / 2 = 1 / (1 + e^-2u) keeps small numbers exact */
		return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + .044715 * x * x * x)));
	case KERN_GELU:
		return x * .5 * erfc(-x / sqrt(2));
	case KERN_SILU:
		return x / (1 + exp(-x));
	case KERN_RELU:
		break;
	}
	return x > 0 ? x : 0;
}

static void check_activation(uint32_t n, uint32_t ffn_dim, enum kern_act act, bool gated, bool bias,
                             enum kern_type type)
{
	size_t width = gated ? 2 * (size_t)ffn_dim : ffn_dim, n_out = (size_t)n * ffn_dim;
	float *in = gpu_normals_of(n * width, 3, type), *b = gpu_normals(width, 1);
	double *want = doubles(n_out);
	void *device_in, *out = gpu_new_n(n_out, type);
	char what[128];

	in[0] = gpu_round(-11, type);
	in[width - 1] = gpu_round(-6, type);
	for (size_t i = 0; i < n_out; i++) {
		size_t r = i / ffn_dim, c = i % ffn_dim;
		double x = (double)(in[r * width + c] + (bias ? b[c] : 0));

		want[i] = act_of(x, act);
		if (gated)
			want[i] *= (double)(in[r * width + ffn_dim + c] + (bias ? b[ffn_dim + c] : 0));
	}
	device_in = gpu_upload(in, n * width, type);
	gpu_ok(kern_activation_cuda(out, device_in, bias ? gpu_upload(b, width, KERN_F32) : NULL, n, ffn_dim, act,
	                            gated, type, NULL));
	snprintf(what, sizeof what, "%s, act %d, %u x %u%s%s", names[type], (int)act, n, ffn_dim,
	         gated ? ", gated" : "", bias ? ", bias" : "");
	/* f32: e^z of |z| <= 100 or x^2/2 <= 70 carries the rounding of its argument: 100 units; the last f16 place
	 * below 2^-14 is 2^-24, and a sigmoid below 2^-126 is 0 */
	gpu_near(what, gpu_download(out, n_out, type), want, n_out, ffn_dim, type == KERN_F16 ? 0x1p-25 : 1e-35,
	         gpu_epsilon(type) + (type == KERN_F32 ? 200 : 500) * F32_EPS);
	if (!gated) { /* in place */
		const void *once = gpu_download_bytes(out, n_out * kern_type_size(type));

		gpu_ok(kern_activation_cuda(device_in, device_in, bias ? gpu_upload(b, width, KERN_F32) : NULL, n,
		                            ffn_dim, act, gated, type, NULL));
		same_rows(what, gpu_download_bytes(device_in, n_out * kern_type_size(type)), once, n,
		          ffn_dim * kern_type_size(type));
	}
	free(want);
	gpu_end();
}

START_TEST(an_activation_is_its_function)
{
	static const uint32_t dims[] = {1, 2, 63, 64, 65, 127, 128, 129, 768, 3072};
	static const uint32_t counts[] = {1, 3, 17};

	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
			for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
				for (int act = KERN_GELU_TANH; act <= KERN_RELU; act++)
					for (int how = 0; how < 4; how++)
						check_activation(counts[c], dims[d], (enum kern_act)act, how & 1,
						                 how & 2, types[t]);
}
END_TEST

START_TEST(an_activation_lets_nan_through)
{
	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (int act = KERN_GELU_TANH; act <= KERN_RELU; act++)
			for (int gated = 0; gated < 2; gated++) {
				float in[32] = {0}, *got;
				void *out = gpu_new_n(16, types[t]);

				in[5] = NAN;
				in[31] = NAN;
				gpu_ok(kern_activation_cuda(out, gpu_upload(in, 32, types[t]), NULL, 1, 16,
				                            (enum kern_act)act, gated, types[t], NULL));
				got = gpu_download(out, 16, types[t]);
				for (int i = 0; i < 16; i++)
					ck_assert_int_eq(isnan(got[i]) != 0, i == 5 || (gated && i == 15));
				gpu_end();
			}
}
END_TEST

/* -- position schemes ------------------------------------------------------------------------------ */

struct post_case {
	uint32_t n_rows, n_head, n_kv_head, head_dim, d_qk, d_v;
	bool pope, bias;
	enum kern_type type;
};

/* A case's inputs and outputs. */
struct post {
	struct kern_qkv_post_cuda a;
	enum kern_type qk_type;
	float *qkv, *bias, *cos_delta, *sin_delta;
	uint32_t *pos, *slot;
	uint64_t *freq;
	size_t width, n_q, n_k, n_v;
};

static uint32_t some_pos(uint32_t i)
{
	static const uint32_t pos[] = {0, 1, 1023, 16777215, 131071, 2, 10240, 16000000};

	return i < 8 ? pos[i] : gpu_u32() % 16777216;
}

static void post_init(struct post *p, const struct post_case *c)
{
	uint32_t n_freq = c->pope ? c->head_dim : c->head_dim / 2, n_slots = c->n_rows + 13;

	memset(p, 0, sizeof *p);
	p->qk_type = c->type == KERN_F32 ? KERN_F32 : KERN_F16;
	p->width = (size_t)(c->n_head + 2 * c->n_kv_head) * c->head_dim;
	p->qkv = gpu_normals_of(c->n_rows * p->width, 2, c->type);
	p->bias = gpu_normals(p->width, 1);
	p->cos_delta = gpu_normals((size_t)c->n_kv_head * c->head_dim, 1);
	p->sin_delta = gpu_normals((size_t)c->n_kv_head * c->head_dim, 1);
	p->pos = calloc(c->n_rows, sizeof *p->pos);
	p->slot = calloc(c->n_rows, sizeof *p->slot);
	p->freq = calloc(n_freq, sizeof *p->freq);
	ck_assert(p->pos && p->slot && p->freq);
	for (uint32_t i = 0; i < c->n_kv_head * c->head_dim; i++) {
		double delta = -6.28 * fabs((double)gpu_uniform());

		p->cos_delta[i] = (float)cos(delta);
		p->sin_delta[i] = (float)sin(delta);
	}
	for (uint32_t i = 0; i < c->n_rows; i++) {
		p->pos[i] = some_pos(i);
		p->slot[i] = (13 * i + 3) % n_slots; /* some stay free */
	}
	for (uint32_t i = 0; i < n_freq; i++)
		p->freq[i] = (uint64_t)(powl(10000, -(long double)i / n_freq) / (2 * M_PIl) * 0x1p64L);
	p->n_q = (size_t)c->n_head * (c->n_rows + 5) * c->d_qk;
	p->n_k = (size_t)c->n_kv_head * n_slots * c->d_qk;
	p->n_v = (size_t)c->n_kv_head * n_slots * c->d_v;
	p->a = (struct kern_qkv_post_cuda){
	    .q = gpu_new_n(p->n_q, p->qk_type),
	    .k = gpu_new_n(p->n_k, p->qk_type),
	    .v = gpu_new_n(p->n_v, c->type),
	    .qkv = gpu_upload(p->qkv, c->n_rows * p->width, c->type),
	    .bias = c->bias ? gpu_upload(p->bias, p->width, KERN_F32) : NULL,
	    .pos = gpu_upload_bytes(p->pos, c->n_rows * sizeof *p->pos),
	    .slot = gpu_upload_bytes(p->slot, c->n_rows * sizeof *p->slot),
	    .freq = gpu_upload_bytes(p->freq, n_freq * sizeof *p->freq),
	    .cos_delta = gpu_upload(p->cos_delta, (size_t)c->n_kv_head * c->head_dim, KERN_F32),
	    .sin_delta = gpu_upload(p->sin_delta, (size_t)c->n_kv_head * c->head_dim, KERN_F32),
	    .amplitude = 1.138629f,
	    .n_rows = c->n_rows,
	    .q_rows = c->n_rows + 5,
	    .n_slots = n_slots,
	    .n_head = c->n_head,
	    .n_kv_head = c->n_kv_head,
	    .head_dim = c->head_dim,
	    .d_qk = c->d_qk,
	    .d_v = c->d_v,
	    .pope = c->pope,
	    .type = c->type,
	    .fault = gpu_fault(5, 64),
	};
}

static void post_release(struct post *p)
{
	free(p->pos);
	free(p->slot);
	free(p->freq);
	gpu_end();
}

/* The head's channels as attention should see them: y[0..d_qk) */
static void post_head(const struct post *p, const double *x, uint32_t row, int kv, double *y)
{
	uint32_t d = p->a.head_dim, n_freq = p->a.pope ? d : d / 2, second = p->a.pope ? p->a.d_qk / 2 : d / 2;

	memset(y, 0, p->a.d_qk * sizeof *y);
	for (uint32_t i = 0; i < n_freq; i++) {
		double angle = (double)(int64_t)(p->pos[row] * p->freq[i]) * 0x1p-63 * M_PI;
		double c = cos(angle) * (double)p->a.amplitude, s = sin(angle) * (double)p->a.amplitude;

		if (!p->a.pope) {
			y[i] = x[i] * c - x[i + second] * s;
			y[i + second] = x[i + second] * c + x[i] * s;
		} else {
			double mu = fmax(x[i], 0) + log1p(exp(-fabs(x[i])));
			double cd = kv < 0 ? 1 : (double)p->cos_delta[(uint32_t)kv * d + i];
			double sd = kv < 0 ? 0 : (double)p->sin_delta[(uint32_t)kv * d + i];

			y[i] = mu * (c * cd - s * sd);
			y[i + second] = mu * (s * cd + c * sd);
		}
	}
}

static void fill_nan(double *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = NAN;
}

static void post_want(const struct post *p, double *q, double *k, double *v)
{
	const struct kern_qkv_post_cuda *a = &p->a;
	double x[KERN_MAX_HEAD_DIM];

	ck_assert_uint_gt(a->n_kv_head, 0);
	fill_nan(q, p->n_q);
	fill_nan(k, p->n_k);
	fill_nan(v, p->n_v);
	for (uint32_t r = 0; r < a->n_rows; r++)
		for (uint32_t h = 0; h < a->n_head + 2 * a->n_kv_head; h++) {
			int kv = h < a->n_head ? -1 : (int)((h - a->n_head) % a->n_kv_head);
			size_t at = (size_t)(kv < 0 ? 0 : kv) * a->n_slots + p->slot[r];

			for (uint32_t i = 0; i < a->head_dim; i++) {
				size_t column = (size_t)h * a->head_dim + i;

				x[i] = (double)(p->qkv[r * p->width + column] + (a->bias ? p->bias[column] : 0));
			}
			if (h < a->n_head)
				post_head(p, x, r, -1, q + ((size_t)h * a->q_rows + r) * a->d_qk);
			else if (h < a->n_head + a->n_kv_head)
				post_head(p, x, r, kv, k + at * a->d_qk);
			else
				for (uint32_t i = 0; i < a->d_v; i++)
					v[at * a->d_v + i] = i < a->head_dim ? x[i] : 0;
		}
}

static void check_post(const struct post_case *c)
{
	struct post p;
	double *q, *k, *v;
	char what[160];
	/* f32: a phase is 1e-7 off, and the products of values to 15 round at 2^-24. f16: that, the softplus of 2^x and
	 * log2 to 2e-7, times 1.14, and half of the last place of what is below 2^-14 */
	double absolute = c->type == KERN_F32 ? 3e-6 : 3e-6 + 0x1p-25, relative;

	post_init(&p, c);
	relative = gpu_epsilon(p.qk_type) + 4 * F32_EPS;
	q = doubles(p.n_q);
	k = doubles(p.n_k);
	v = doubles(p.n_v);
	post_want(&p, q, k, v);
	gpu_ok(kern_qkv_post_cuda(&p.a, NULL));
	snprintf(what, sizeof what, "%s %s, %u rows, heads %u/%u of %u in %u/%u%s", names[c->type],
	         c->pope ? "pope" : "rope", c->n_rows, c->n_head, c->n_kv_head, c->head_dim, c->d_qk, c->d_v,
	         c->bias ? ", bias" : "");
	near_or_poison(what, gpu_download(p.a.q, p.n_q, p.qk_type), q, p.n_q, c->d_qk, absolute, relative);
	near_or_poison(what, gpu_download(p.a.k, p.n_k, p.qk_type), k, p.n_k, c->d_qk, absolute, relative);
	near_or_poison(what, gpu_download(p.a.v, p.n_v, c->type), v, p.n_v, c->d_v, 0x1p-25, gpu_epsilon(c->type));
	ck_assert_uint_eq(gpu_fault_seen(&p.a.fault), UINT64_MAX);
	free(q);
	free(k);
	free(v);
	post_release(&p);
}

START_TEST(queries_and_keys_turn_by_exact_angles)
{
	static const struct {
		uint32_t head_dim, d_v; /* d_qk is d_v, or twice that */
	} dims[] = {{32, 64},   {48, 64},   {130, 136}, {64, 64}, {80, 128}, {96, 128}, {128, 128},
	            {256, 256}, {128, 192}, {48, 48},   {20, 32}, {6, 6},    {2, 8}};
	static const uint32_t heads[][2] = {{1, 1}, {8, 2}, {12, 12}};
	static const uint32_t counts[] = {1, 9, 67};

	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
			for (size_t h = 0; h < sizeof heads / sizeof *heads; h++)
				for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
					for (int how = 0; how < 4; how++)
						check_post(&(struct post_case){
						    .n_rows = counts[c],
						    .n_head = heads[h][0],
						    .n_kv_head = heads[h][1],
						    .head_dim = dims[d].head_dim,
						    .d_qk = (how & 1 ? 2 : 1) * dims[d].d_v,
						    .d_v = dims[d].d_v,
						    .pope = how & 1,
						    .bias = how & 2,
						    .type = types[t],
						});
}
END_TEST

/* Rows of one launch against the same rows in launches of their own, with other slots and another q. */
START_TEST(a_rows_queries_and_keys_have_the_same_bits_anywhere)
{
	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (int pope = 0; pope < 2; pope++) {
			struct post_case c = {70, 6, 2, 80, pope ? 256 : 128, 128, pope, true, types[t]};
			struct post p;
			struct kern_qkv_post_cuda one;
			size_t qk_row, qk_size, in_row;
			const char *q, *k;

			post_init(&p, &c);
			gpu_ok(kern_qkv_post_cuda(&p.a, NULL));
			qk_size = kern_type_size(p.qk_type);
			qk_row = c.d_qk * qk_size;
			in_row = p.width * kern_type_size(c.type);
			q = gpu_download_bytes(p.a.q, p.n_q * qk_size);
			k = gpu_download_bytes(p.a.k, p.n_k * qk_size);
			for (uint32_t r = 0; r < c.n_rows; r += 11) {
				uint32_t n = r % 2 ? 1 : 3, slots[3] = {2, 0, 3};

				n = n < c.n_rows - r ? n : c.n_rows - r;
				one = p.a;
				one.n_rows = n;
				one.q_rows = n;
				one.n_slots = 4;
				one.qkv = (const char *)p.a.qkv + r * in_row;
				one.pos = p.a.pos + r;
				one.slot = gpu_upload_bytes(slots, sizeof slots);
				one.q = gpu_new(c.n_head * n * qk_row);
				one.k = gpu_new(c.n_kv_head * 4 * qk_row);
				one.v = gpu_new_n((size_t)c.n_kv_head * 4 * c.d_v, c.type);
				gpu_ok(kern_qkv_post_cuda(&one, NULL));
				for (uint32_t i = 0; i < n; i++) {
					const char *q1 = gpu_download_bytes(one.q, c.n_head * n * qk_row);
					const char *k1 = gpu_download_bytes(one.k, c.n_kv_head * 4 * qk_row);

					for (uint32_t h = 0; h < c.n_head; h++)
						same_rows("q", q1 + (h * n + i) * qk_row,
						          q + (h * p.a.q_rows + r + i) * qk_row, 1, qk_row);
					for (uint32_t h = 0; h < c.n_kv_head; h++)
						same_rows("k", k1 + (h * 4 + slots[i]) * qk_row,
						          k + (h * p.a.n_slots + p.slot[r + i]) * qk_row, 1, qk_row);
				}
			}
			post_release(&p);
		}
}
END_TEST

/* Three rows have x among queries (part 0), keys or values, at angle 0: 60000 times the amplitude is beyond f16. */
static void check_post_fault(enum kern_type type, bool pope, uint32_t part, float x)
{
	struct post_case c = {90, 4, 2, 64, pope ? 128 : 64, 64, pope, false, type};
	uint32_t column = (part == 0 ? 3 : part == 1 ? 5 : 7) * 64 + 17, rows[] = {83, 71, 89};
	bool fault = !isfinite(x) || (type != KERN_F32 && part < 2);
	struct post p;
	uint64_t seen;

	post_init(&p, &c);
	for (uint32_t i = 0; i < 3; i++) {
		p.qkv[rows[i] * p.width + column + i] = x;
		p.pos[rows[i]] = 0;
	}
	for (uint32_t i = 0; i < c.n_kv_head * c.head_dim; i++) {
		p.cos_delta[i] = 1;
		p.sin_delta[i] = 0;
	}
	p.a.cos_delta = gpu_upload(p.cos_delta, (size_t)c.n_kv_head * c.head_dim, KERN_F32);
	p.a.sin_delta = gpu_upload(p.sin_delta, (size_t)c.n_kv_head * c.head_dim, KERN_F32);
	p.a.pos = gpu_upload_bytes(p.pos, c.n_rows * sizeof *p.pos);
	p.a.qkv = gpu_upload(p.qkv, c.n_rows * p.width, c.type);
	gpu_ok(kern_qkv_post_cuda(&p.a, NULL));
	seen = gpu_fault_seen(&p.a.fault);
	ck_assert_msg(seen == (fault ? UINT64_C(5) << 32 | (64 + 71) : UINT64_MAX), "%s %s, part %u, %g: %llx",
	              names[type], pope ? "pope" : "rope", part, (double)x, (unsigned long long)seen);
	post_release(&p);
}

START_TEST(a_query_key_or_value_that_is_not_finite_or_beyond_f16_is_a_fault)
{
	static const float bad[] = {NAN, INFINITY, 60000};

	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (int pope = 0; pope < 2; pope++)
			for (uint32_t part = 0; part < 3; part++)
				for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
					check_post_fault(types[t], pope, part, bad[i]);
}
END_TEST

START_TEST(stitching_copies_keys_and_values_of_all_heads)
{
	static const uint32_t widths[][2] = {{64, 64}, {256, 128}, {2, 8}, {48, 48}};

	skip_without_gpu();
	for (size_t t = 0; t < N_TYPES; t++)
		for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
			enum kern_type qk = types[t] == KERN_F32 ? KERN_F32 : KERN_F16;
			uint32_t d_qk = widths[w][0], d_v = widths[w][1], n_slots = 300, n_kv = 5, n = 100;
			struct kern_slot_copy copies[100];
			size_t n_k = (size_t)n_kv * n_slots * d_qk, n_v = (size_t)n_kv * n_slots * d_v;
			float *k = gpu_normals_of(n_k, 1, qk), *v = gpu_normals_of(n_v, 1, types[t]);
			void *device_k = gpu_upload(k, n_k, qk), *device_v = gpu_upload(v, n_v, types[t]);

			for (uint32_t i = 0; i < n; i++)
				copies[i] = (struct kern_slot_copy){.to = 299 - 2 * i, .from = 2 * (gpu_u32() % 150)};
			gpu_ok(kern_stitch_cuda(device_k, device_v, gpu_upload_bytes(copies, sizeof copies), n, n_kv,
			                        n_slots, d_qk, d_v, qk, types[t], NULL));
			for (uint32_t h = 0; h < n_kv; h++)
				for (uint32_t i = 0; i < n; i++) {
					size_t to = h * n_slots + copies[i].to, from = h * n_slots + copies[i].from;

					memcpy(k + to * d_qk, k + from * d_qk, d_qk * sizeof *k);
					memcpy(v + to * d_v, v + from * d_v, d_v * sizeof *v);
				}
			same_rows("k", gpu_download(device_k, n_k, qk), k, n_k / d_qk, d_qk * sizeof *k);
			same_rows("v", gpu_download(device_v, n_v, types[t]), v, n_v / d_v, d_v * sizeof *v);
			gpu_end();
		}
}
END_TEST

/* -- launchers ------------------------------------------------------------------------------------- */

START_TEST(nothing_to_do_is_no_error_and_impossible_shapes_are)
{
	struct kern_rmsnorm_cuda norm = {.dim = 8};
	struct kern_qkv_post_cuda post = {
	    .n_head = 1, .n_kv_head = 1, .head_dim = 8, .d_qk = 8, .d_v = 8, .n_rows = 1, .type = KERN_BF16};

	skip_without_gpu();
	gpu_ok(kern_embed_cuda(NULL, NULL, NULL, 0, 8, KERN_BF16, NULL));
	gpu_ok(kern_rmsnorm_cuda(&norm, NULL));
	gpu_ok(kern_activation_cuda(NULL, NULL, NULL, 0, 8, KERN_SILU, false, KERN_F16, NULL));
	gpu_ok(kern_stitch_cuda(NULL, NULL, NULL, 0, 1, 1, 8, 8, KERN_F16, KERN_BF16, NULL));
	ck_assert_int_ne(kern_embed_cuda(NULL, NULL, NULL, 1, 0, KERN_BF16, NULL), 0);
	post.head_dim = 7; /* pairs need an even width */
	ck_assert_int_ne(kern_qkv_post_cuda(&post, NULL), 0);
	post.head_dim = 16; /* wider than it is stored */
	ck_assert_int_ne(kern_qkv_post_cuda(&post, NULL), 0);
	post.head_dim = 8;
	post.pope = true;
	ck_assert_int_ne(kern_qkv_post_cuda(&post, NULL), 0);
	ck_assert_str_eq(kern_cuda_error(2), "out of memory");
}
END_TEST

Suite *gpu_rows_suite(void);
Suite *gpu_rows_suite(void)
{
	Suite *s = suite_create("gpu_rows");
	TCase *t = tcase_create("rows");

	tcase_set_tags(t, "gpu");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, an_embedding_is_the_tables_row);
	tcase_add_test(t, a_norm_adds_the_branch_and_scales);
	tcase_add_test(t, a_norm_gives_a_row_the_same_bits_anywhere);
	tcase_add_test(t, a_norm_reports_the_first_stage_and_row_that_is_not_finite);
	tcase_add_test(t, an_activation_is_its_function);
	tcase_add_test(t, an_activation_lets_nan_through);
	tcase_add_test(t, queries_and_keys_turn_by_exact_angles);
	tcase_add_test(t, a_rows_queries_and_keys_have_the_same_bits_anywhere);
	tcase_add_test(t, a_query_key_or_value_that_is_not_finite_or_beyond_f16_is_a_fault);
	tcase_add_test(t, stitching_copies_keys_and_values_of_all_heads);
	tcase_add_test(t, nothing_to_do_is_no_error_and_impossible_shapes_are);
	suite_add_tcase(s, t);
	return s;
}
