/* Each CPU kernel, for each instruction set that this processor has, against double precision: random inputs, poisoned
 * outputs and scratch, odd shapes. And that a row's bits do not depend on its tile. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static uint64_t seed = 1;

/* uniform in [-1, 1) */
static float uniform(void)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (float)(int32_t)(seed >> 32) * 0x1p-31f;
}

static float *random_floats(size_t n, float scale)
{
	float *x = aligned_alloc(KERN_ALIGN, (n * sizeof *x / KERN_ALIGN + 1) * KERN_ALIGN);

	ck_assert_ptr_nonnull(x);
	for (size_t i = 0; i < n; i++)
		x[i] = scale * uniform();
	return x;
}

/* NaN in both types */
static void *poison(size_t bytes)
{
	void *p = aligned_alloc(KERN_ALIGN, (bytes / KERN_ALIGN + 1) * KERN_ALIGN);

	ck_assert_ptr_nonnull(p);
	memset(p, 0xff, (bytes / KERN_ALIGN + 1) * KERN_ALIGN);
	return p;
}

static void *unconst(const void *p)
{
	union {
		const void *in;
		void *out;
	} u = {.in = p};

	return u.out;
}

static uint16_t bf16_of(float x)
{
	uint32_t b;

	memcpy(&b, &x, sizeof b);
	return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static float float_of(uint16_t h)
{
	uint32_t b = (uint32_t)h << 16;
	float x;

	memcpy(&x, &b, sizeof x);
	return x;
}

/* Element i of an array of either type. */
static double get(const void *p, size_t i, enum kern_type type)
{
	return type == KERN_BF16 ? float_of(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

static void put(void *p, size_t i, float x, enum kern_type type)
{
	if (type == KERN_BF16)
		((uint16_t *)p)[i] = bf16_of(x);
	else
		((float *)p)[i] = x;
}

/* What rounding to the type may add to a value. */
static double rounding(enum kern_type type, double x)
{
	return fabs(x) * (type == KERN_BF16 ? 0x1p-8 : 0x1p-22);
}

#define ck_close(got, want, tol)                                                                                       \
	do {                                                                                                           \
		double got_ = (got), want_ = (want), tol_ = (tol);                                                     \
		ck_assert_msg(fabs(got_ - want_) <= tol_, "%s: %s is %.9g, not %.9g (tolerance %.2g)", isa, #got,      \
		              got_, want_, tol_);                                                                      \
	} while (0)

static const struct kern_cpu *tables[4];
static int n_tables;

static void find_tables(void)
{
	n_tables = 0;
	tables[n_tables++] = &kern_cpu_base;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		tables[n_tables++] = &kern_cpu_avx2;
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512dq"))
		tables[n_tables++] = &kern_cpu_avx512;
	if (kern_has_bf16())
		tables[n_tables++] = &kern_cpu_avx512_bf16;
#endif
}

/* -- row-wise ------------------------------------------------------------------------------------ */

static const uint32_t widths[] = {1, 3, 4, 8, 15, 16, 17, 31, 64, 97, 512};
#define N_WIDTHS (sizeof widths / sizeof *widths)

static void check_rmsnorm(const struct kern_cpu *t, uint32_t dim, enum kern_type type)
{
	uint32_t n_rows = 5;
	float *x = random_floats(n_rows * dim, 3), *w = random_floats(dim, 1);
	void *out = poison(n_rows * dim * 4);
	const char *isa = t->isa;

	ck_assert_uint_eq(t->rmsnorm(out, x, w, n_rows, dim, 1e-5f, type), n_rows);
	for (uint32_t r = 0; r < n_rows; r++) {
		double ms = 0;

		for (uint32_t i = 0; i < dim; i++)
			ms += (double)x[r * dim + i] * x[r * dim + i] / dim;
		for (uint32_t i = 0; i < dim; i++) {
			double want = x[r * dim + i] / sqrt(ms + 1e-5f) * w[i];

			ck_close(get(out, r * dim + i, type), want, 4e-7 * fabs(want) + rounding(type, want));
		}
	}
	x[3 * dim + dim - 1] = NAN;
	ck_assert_uint_eq(t->rmsnorm(out, x, w, n_rows, dim, 1e-5f, type), 3);
	x[2 * dim] = INFINITY;
	ck_assert_uint_eq(t->rmsnorm(out, x, w, n_rows, dim, 1e-5f, type), 2);
	free(x);
	free(w);
	free(out);
}

START_TEST(rmsnorm_agrees_with_double_and_finds_the_row_that_is_not_finite)
{
	for (int i = 0; i < n_tables; i++)
		for (size_t j = 0; j < N_WIDTHS; j++)
			for (int type = KERN_F32; type <= KERN_BF16; type++)
				check_rmsnorm(tables[i], widths[j], type);
}
END_TEST

START_TEST(residual_adds_product_and_bias)
{
	for (int i = 0; i < n_tables; i++)
		for (size_t j = 0; j < N_WIDTHS; j++) {
			uint32_t dim = widths[j], n = 3 * dim;
			float *x = random_floats(n, 2), *y = random_floats(n, 2), *b = random_floats(dim, 2);
			float *was = random_floats(n, 0);
			const char *isa = tables[i]->isa;

			memcpy(was, x, n * sizeof *x);
			ck_assert_uint_eq(tables[i]->residual(x, y, b, 3, dim), 3);
			for (uint32_t k = 0; k < n; k++)
				ck_close(x[k], (double)was[k] + y[k] + b[k % dim], 1e-6);
			ck_assert_uint_eq(tables[i]->residual(x, y, NULL, 3, dim), 3);
			for (uint32_t k = 0; k < n; k++)
				ck_close(x[k], (double)was[k] + 2. * y[k] + b[k % dim], 2e-6);
			y[n - 1] = -INFINITY;
			ck_assert_uint_eq(tables[i]->residual(x, y, b, 3, dim), 2);
			free(x);
			free(y);
			free(b);
			free(was);
		}
}
END_TEST

static double activate(enum kern_act act, double x)
{
	switch (act) {
	case KERN_GELU_TANH:
		return .5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + .044715 * x * x * x)));
	case KERN_GELU:
		return .5 * x * erfc(-x * M_SQRT1_2);
	case KERN_SILU:
		return x / (1 + exp(-x));
	case KERN_RELU:
		break;
	}
	return x > 0 ? x : 0;
}

static void check_activation(const struct kern_cpu *t, enum kern_act act, bool gated, bool biased, uint32_t ffn,
                             enum kern_type type)
{
	uint32_t n_rows = 3, width = gated ? 2 * ffn : ffn;
	float *in = random_floats(n_rows * width, 12), *bias = random_floats(width, 1);
	void *out = poison(n_rows * ffn * 4);
	const char *isa = t->isa;

	t->activation(out, in, biased ? bias : NULL, n_rows, ffn, act, gated, type);
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t i = 0; i < ffn; i++) {
			float x = in[r * width + i] + (biased ? bias[i] : 0);
			float up = gated ? in[r * width + ffn + i] + (biased ? bias[ffn + i] : 0) : 1;
			double want = activate(act, x) * up;

			/* in the tail an exponent of -30 is rounded to 2e-6, and so is its power; beyond, 1 + tanh
			 * is all cancellation in double, too */
			ck_close(get(out, r * ffn + i, type), want, 5e-6 * fabs(want) + 1e-14 + rounding(type, want));
		}
	free(in);
	free(bias);
	free(out);
}

START_TEST(activations_agree_with_double)
{
	for (int i = 0; i < n_tables; i++)
		for (int act = KERN_GELU_TANH; act <= KERN_RELU; act++)
			for (int v = 0; v < 8; v++)
				for (size_t j = 0; j < N_WIDTHS; j++)
					check_activation(tables[i], act, v & 1, v & 2, widths[j],
					                 v & 4 ? KERN_BF16 : KERN_F32);
}
END_TEST

START_TEST(activations_hold_at_the_ends_of_the_range)
{
	static const float x[] = {0, -0.f, 1e-30f, -1e-30f, 20, -20, 80, -80, 1e4f, -1e4f, 1e18f, -1e18f};
	float out[12];

	for (int i = 0; i < n_tables; i++)
		for (int act = KERN_GELU_TANH; act <= KERN_RELU; act++) {
			const char *isa = tables[i]->isa;

			tables[i]->activation(out, x, NULL, 1, 12, act, false, KERN_F32);
			for (int j = 0; j < 12; j++) {
				double want = x[j] < -50 && act != KERN_RELU ? 0 : activate(act, x[j]);

				ck_close(out[j], want, 1e-6 * fabs(want) + 1e-7);
			}
		}
}
END_TEST

/* -- qkv_post ------------------------------------------------------------------------------------- */

struct post {
	struct kern_qkv_post a;
	float *qkv, *bias, *cos_delta, *sin_delta;
	double *delta, *theta; /* radians */
	uint32_t d_qk;
};

static void post_init(struct post *p, bool pope, uint32_t n_head, uint32_t n_kv, uint32_t d, uint32_t pos0,
                      uint32_t n_rows, enum kern_type type)
{
	uint32_t width = (n_head + 2 * n_kv) * d, n_freq = pope ? d : d / 2,
	         n_panels = (pos0 + n_rows) / KERN_PANEL + 1;
	uint32_t *pos = calloc(n_rows, sizeof *pos), *panel = calloc(n_rows, sizeof *panel);
	uint64_t *freq = calloc(n_freq, sizeof *freq);

	p->d_qk = pope ? 2 * d : d;
	p->qkv = random_floats((size_t)n_rows * width, 3);
	p->bias = random_floats(width, 1);
	p->cos_delta = random_floats(n_kv * d, 1);
	p->sin_delta = random_floats(n_kv * d, 1);
	p->delta = calloc(n_kv * d, sizeof *p->delta);
	p->theta = calloc(n_freq, sizeof *p->theta);
	for (uint32_t i = 0; i < n_kv * d; i++) {
		p->delta[i] = -3 + 3 * uniform();
		p->cos_delta[i] = (float)cos(p->delta[i]);
		p->sin_delta[i] = (float)sin(p->delta[i]);
	}
	for (uint32_t i = 0; i < n_freq; i++) {
		p->theta[i] = pow(10000, -(double)i / n_freq);
		freq[i] = (uint64_t)(p->theta[i] / (2 * M_PI) * 0x1p64);
		p->theta[i] = (double)freq[i] * 0x1p-64 * 2 * M_PI;
	}
	for (uint32_t r = 0; r < n_rows; r++) {
		pos[r] = pos0 + r;
		panel[r] = pos[r] / KERN_PANEL;
	}
	p->a = (struct kern_qkv_post){
	    .q = poison((size_t)n_rows * n_head * p->d_qk * 4),
	    .k_head_words = n_panels * kern_k_panel_words(p->d_qk, type),
	    .v_head_words = n_panels * kern_v_panel_words(d, type),
	    .qkv = p->qkv,
	    .bias = p->bias,
	    .pos = pos,
	    .panel = panel,
	    .freq = freq,
	    .cos_delta = p->cos_delta,
	    .sin_delta = p->sin_delta,
	    .amplitude = 1.125f,
	    .q_scale = .25f,
	    .n_rows = n_rows,
	    .n_head = n_head,
	    .n_kv_head = n_kv,
	    .head_dim = d,
	    .pope = pope,
	    .type = type,
	};
	p->a.k = poison(n_kv * p->a.k_head_words * 4);
	p->a.v = poison(n_kv * p->a.v_head_words * 4);
}

static void post_release(struct post *p)
{
	free(p->a.q);
	free(p->a.k);
	free(p->a.v);
	free(unconst(p->a.pos));
	free(unconst(p->a.panel));
	free(unconst(p->a.freq));
	free(p->qkv);
	free(p->bias);
	free(p->cos_delta);
	free(p->sin_delta);
	free(p->delta);
	free(p->theta);
}

/* Channel c of d_qk of head h (query heads, then kv heads) of row r, by the paper's formulas. */
static double post_want(const struct post *p, uint32_t r, uint32_t h, uint32_t c)
{
	uint32_t d = p->a.head_dim, width = (p->a.n_head + 2 * p->a.n_kv_head) * d, i = c % d;
	bool key = h >= p->a.n_head;
	const float *x = p->qkv + (size_t)r * width + h * d, *b = p->bias + h * d;
	double t = p->a.pos[r];

	if (p->a.pope) {
		double delta = key ? p->delta[(h - p->a.n_head) * d + i] : 0;
		double angle = t * p->theta[i] + delta, mu = log1p(exp((double)(x[i] + b[i])));

		return p->a.amplitude * mu * (c < d ? cos(angle) : sin(angle));
	}
	i = c % (d / 2);
	double re = x[i] + b[i], im = x[i + d / 2] + b[i + d / 2], angle = t * p->theta[i];

	return p->a.amplitude * (c < d / 2 ? re * cos(angle) - im * sin(angle) : im * cos(angle) + re * sin(angle));
}

static double get_key(const struct post *p, uint32_t kv, uint32_t pos, uint32_t c)
{
	const float *panel =
	    (const float *)p->a.k + kv * p->a.k_head_words + pos / KERN_PANEL * kern_k_panel_words(p->d_qk, p->a.type);
	uint32_t column = pos % KERN_PANEL;

	if (p->a.type == KERN_BF16)
		return get(panel, (c / 2 * KERN_PANEL + column) * 2 + c % 2, KERN_BF16);
	return get(panel, c * KERN_PANEL + column, KERN_F32);
}

static double get_value(const struct post *p, uint32_t kv, uint32_t pos, uint32_t c)
{
	const float *panel = (const float *)p->a.v + kv * p->a.v_head_words +
	                     pos / KERN_PANEL * kern_v_panel_words(p->a.head_dim, p->a.type);
	uint32_t row = pos % KERN_PANEL, width = kern_v_width(p->a.head_dim);

	if (p->a.type == KERN_BF16)
		return get(panel, (row / 2 * width + c) * 2 + row % 2, KERN_BF16);
	return get(panel, row * width + c, KERN_F32);
}

static void check_qkv_post(const struct kern_cpu *t, bool pope, uint32_t n_head, uint32_t n_kv, uint32_t d,
                           uint32_t pos0, enum kern_type type)
{
	const char *isa = t->isa;
	uint32_t n_rows = 37;
	struct post p;

	post_init(&p, pope, n_head, n_kv, d, pos0, n_rows, type);
	ck_assert_uint_eq(t->qkv_post(&p.a), n_rows);
	for (uint32_t r = 0; r < n_rows; r++) {
		for (uint32_t h = 0; h < n_head; h++)
			for (uint32_t c = 0; c < p.d_qk; c++) {
				double want = p.a.q_scale * post_want(&p, r, h, c);

				ck_close(get(p.a.q, ((size_t)r * n_head + h) * p.d_qk + c, type), want,
				         1e-6 + rounding(type, want));
			}
		for (uint32_t kv = 0; kv < n_kv; kv++)
			for (uint32_t c = 0; c < p.d_qk; c++) {
				double want = post_want(&p, r, n_head + kv, c);

				ck_close(get_key(&p, kv, pos0 + r, c), want, 4e-6 + rounding(type, want));
			}
		for (uint32_t kv = 0; kv < n_kv; kv++)
			for (uint32_t c = 0; c < kern_v_width(d); c++) {
				uint32_t at = (n_head + n_kv + kv) * d + c;
				double want = c < d ? p.qkv[r * (n_head + 2 * n_kv) * d + at] + p.bias[at] : 0;

				ck_close(get_value(&p, kv, pos0 + r, c), want, rounding(type, want));
			}
	}
	/* the last value of row 11 */
	p.qkv[12 * (n_head + 2 * n_kv) * d - 1] = NAN;
	ck_assert_uint_eq(t->qkv_post(&p.a), 11);
	p.qkv[7 * (n_head + 2 * n_kv) * d] = 1e30f;
	ck_assert_uint_eq(t->qkv_post(&p.a), 7);
	post_release(&p);
}

START_TEST(positions_turn_queries_and_keys_as_the_papers_say)
{
	static const uint32_t starts[] = {0, 96, 10240, 131072, 10000000 / KERN_PANEL * KERN_PANEL};

	for (int i = 0; i < n_tables; i++)
		for (int v = 0; v < 4; v++) {
			enum kern_type type = v & 2 ? KERN_BF16 : KERN_F32;

			for (int j = 0; j < 3; j++)
				check_qkv_post(tables[i], v & 1, 4, 2, 64, starts[j], type);
			check_qkv_post(tables[i], v & 1, 3, 1, 6, 32, type);
			check_qkv_post(tables[i], v & 1, 2, 2, 80, 64, type);
			check_qkv_post(tables[i], v & 1, 1, 1, 256, 64, type);
		}
	/* far positions: the phase is exact, so the tolerance stays; one head keeps the panels small */
	for (int j = 3; j < 5; j++)
		check_qkv_post(&kern_cpu_base, j & 1, 1, 1, 8, starts[j], KERN_F32);
}
END_TEST

/* -- attention ------------------------------------------------------------------------------------ */

struct attend {
	struct kern_attention a;
	enum kern_type type;
	uint32_t n_keys;
	float *keys, *values, *queries; /* [n_keys, d_qk] [n_keys, d_v] [n_rows, d_qk], rounded to the type */
	uint32_t *panels;
};

static float round_to(float x, enum kern_type type)
{
	return type == KERN_BF16 ? float_of(bf16_of(x)) : x;
}

/* Keys in panels of a shuffled order; what no key fills is large, for a masked key must not count. */
static void attend_init(struct attend *t, uint32_t pos0, uint32_t n_rows, uint32_t d_qk, uint32_t d_v,
                        enum kern_type type)
{
	uint32_t n = pos0 + n_rows, n_panels = (n - 1) / KERN_PANEL + 1, pair = type == KERN_BF16 ? 2 : 1;
	size_t k_words = kern_k_panel_words(d_qk, type), v_words = kern_v_panel_words(d_v, type);
	uint32_t width = kern_v_width(d_v);
	void *k = poison(4 * n_panels * k_words), *v = poison(4 * n_panels * v_words), *q;

	*t = (struct attend){.type = type,
	                     .n_keys = n,
	                     .keys = random_floats((size_t)n * d_qk, 1),
	                     .values = random_floats((size_t)n * d_v, 1),
	                     .queries = random_floats((size_t)n_rows * d_qk, .6f),
	                     .panels = calloc(n_panels, sizeof *t->panels)};
	q = poison((size_t)n_rows * d_qk * 4);
	for (size_t i = 0; i < (size_t)n_rows * d_qk; i++) {
		t->queries[i] = round_to(t->queries[i], type);
		put(q, i, t->queries[i], type);
	}
	for (uint32_t i = 0; i < n_panels; i++)
		t->panels[i] = i;
	for (uint32_t i = n_panels; i-- > 1;) {
		uint32_t j = (uint32_t)((uniform() + 1) / 2 * (float)(i + 1)) % (i + 1), was = t->panels[i];

		t->panels[i] = t->panels[j];
		t->panels[j] = was;
	}
	for (size_t i = 0; i < n_panels * k_words * pair; i++)
		put(k, i, 1e15f, type);
	for (size_t i = 0; i < n_panels * v_words * pair; i++)
		put(v, i, 1e30f, type);
	for (uint32_t s = 0; s < n; s++) {
		size_t panel = t->panels[s / KERN_PANEL], column = s % KERN_PANEL;

		for (uint32_t c = 0; c < d_qk; c++) {
			t->keys[(size_t)s * d_qk + c] = round_to(t->keys[(size_t)s * d_qk + c], type);
			put(k, panel * k_words * pair + (c / pair * KERN_PANEL + column) * pair + c % pair,
			    t->keys[(size_t)s * d_qk + c], type);
		}
		for (uint32_t c = 0; c < width; c++) {
			float x = c < d_v ? round_to(t->values[(size_t)s * d_v + c], type) : 0;

			if (c < d_v)
				t->values[(size_t)s * d_v + c] = x;
			put(v, panel * v_words * pair + (column / pair * width + c) * pair + column % pair, x, type);
		}
	}
	t->a = (struct kern_attention){.out = poison((size_t)n_rows * d_v * 4),
	                               .q = q,
	                               .k = k,
	                               .v = v,
	                               .panels = t->panels,
	                               .out_stride = d_v,
	                               .q_stride = d_qk,
	                               .n_rows = n_rows,
	                               .pos0 = pos0,
	                               .d_qk = d_qk,
	                               .d_v = d_v,
	                               .scratch = poison(kern_attention_scratch_bytes(d_qk, d_v))};
}

static void attend_release(struct attend *t)
{
	free(t->a.out);
	free(unconst(t->a.q));
	free(unconst(t->a.k));
	free(unconst(t->a.v));
	free(t->a.scratch);
	free(t->keys);
	free(t->values);
	free(t->queries);
	free(t->panels);
}

static uint32_t attend_run(const struct kern_cpu *k, const struct attend *t)
{
	return t->type == KERN_BF16 ? k->attention_bf16(&t->a) : k->attention_f32(&t->a);
}

/* tol: what f32 leaves of values within 1; bf16 rounds every probability and the result to 2^-9 of itself */
static void check_row(const char *isa, const struct attend *t, uint32_t r, double tol)
{
	uint32_t n = t->a.pos0 + r + 1, d_qk = t->a.d_qk, d_v = t->a.d_v;
	double *p = calloc(n, sizeof *p), max = -INFINITY, sum = 0;

	for (uint32_t s = 0; s < n; s++) {
		for (uint32_t c = 0; c < d_qk; c++)
			p[s] += (double)t->queries[r * d_qk + c] * t->keys[(size_t)s * d_qk + c];
		max = fmax(max, p[s]);
	}
	for (uint32_t s = 0; s < n; s++)
		sum += p[s] = exp2(p[s] - max);
	for (uint32_t c = 0; c < d_v; c++) {
		double want = 0;

		for (uint32_t s = 0; s < n; s++)
			want += p[s] / sum * t->values[(size_t)s * d_v + c];
		ck_close(get(t->a.out, r * t->a.out_stride + c, t->type), want,
		         t->type == KERN_BF16 ? 0x1p-9 + rounding(t->type, want) : tol);
	}
	free(p);
}

static void check_attention(const struct kern_cpu *k, uint32_t n_keys, uint32_t n_rows, uint32_t d_qk, uint32_t d_v,
                            enum kern_type type)
{
	struct attend t;
	char *whole;
	size_t row_bytes = d_v * kern_type_size(type);

	if (n_rows > n_keys)
		n_rows = n_keys;
	attend_init(&t, n_keys - n_rows, n_rows, d_qk, d_v, type);
	ck_assert_uint_eq(attend_run(k, &t), n_rows);
	for (uint32_t r = 0; r < n_rows; r++)
		check_row(k->isa, &t, r, 4e-6);
	/* one row by itself, in scratch that holds the whole tile's leavings */
	whole = poison(n_rows * row_bytes);
	memcpy(whole, t.a.out, n_rows * row_bytes);
	for (uint32_t r = 0; r < n_rows; r += 1 + n_rows / 3) {
		struct attend one = t;

		one.a.n_rows = 1;
		one.a.pos0 += r;
		one.a.q = (const char *)t.a.q + r * d_qk * kern_type_size(type);
		ck_assert_uint_eq(attend_run(k, &one), 1);
		ck_assert_msg(!memcmp(whole + r * row_bytes, t.a.out, row_bytes),
		              "%s: row %u of %u at key %u has other bits alone", k->isa, r, n_rows, n_keys);
	}
	free(whole);
	attend_release(&t);
}

START_TEST(attention_agrees_with_double_at_every_edge_of_a_block)
{
	static const uint32_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 1023, 1025};
	static const uint32_t shapes[][2] = {{64, 64}, {128, 64}, {6, 6}, {80, 80}, {160, 80}, {256, 128}};

	for (int i = 0; i < n_tables; i++)
		for (int type = KERN_F32; type <= KERN_BF16; type++) {
			if (type == KERN_BF16 && !tables[i]->attention_bf16)
				continue;
			for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
				for (size_t s = 0; s < 6; s++) {
					if (s > 1 && lengths[j] > 200)
						continue;
					check_attention(tables[i], lengths[j], KERN_TILE, shapes[s][0], shapes[s][1],
					                type);
					check_attention(tables[i], lengths[j], 7, shapes[s][0], shapes[s][1], type);
				}
		}
}
END_TEST

/* Scores that rise by blocks: every block replaces the maximum, and the first ones must vanish, not overflow. */
START_TEST(attention_holds_when_each_block_overtakes_the_last)
{
	struct attend t;

	for (int i = 0; i < n_tables; i++) {
		attend_init(&t, 600, 40, 64, 64, KERN_F32);
		for (uint32_t s = 0; s < t.n_keys; s++) {
			float *k =
			    (float *)unconst(t.a.k) + t.panels[s / KERN_PANEL] * kern_k_panel_words(64, KERN_F32);
			uint32_t height = s / 100 * 40;

			k[s % KERN_PANEL] = t.keys[(size_t)s * 64] = (float)height;
		}
		for (uint32_t r = 0; r < 40; r++)
			((float *)unconst(t.a.q))[r * 64] = t.queries[r * 64] = r % 2 ? 2.5f : -2.5f;
		ck_assert_uint_eq(attend_run(tables[i], &t), 40);
		for (uint32_t r = 0; r < 40; r++)
			check_row(tables[i]->isa, &t, r, 1e-4); /* scores of 600 are rounded to 3e-5 */
		attend_release(&t);
	}
}
END_TEST

START_TEST(attention_names_the_row_that_is_not_finite)
{
	struct attend t;

	for (int i = 0; i < n_tables; i++) {
		attend_init(&t, 100, 40, 64, 64, KERN_F32);
		((float *)unconst(t.a.q))[23 * 64 + 5] = NAN;
		ck_assert_uint_eq(attend_run(tables[i], &t), 23);
		attend_release(&t);
	}
}
END_TEST

/* -- head ----------------------------------------------------------------------------------------- */

static void check_head(const struct kern_cpu *t, uint32_t n_vocab, uint32_t block)
{
	uint32_t n_rows = 6;
	float *logits = random_floats((size_t)n_rows * n_vocab, 20);
	struct kern_head_row rows[6];
	const char *isa = t->isa;

	memset(rows, 0xff, sizeof rows);
	for (uint32_t r = 0; r < n_rows; r++) {
		uint32_t top = (r * 7919) % n_vocab, again = n_vocab - 1;

		rows[r].target = r % 2 ? top : (r * 31) % n_vocab;
		logits[(size_t)r * n_vocab + top] = 25;
		logits[(size_t)r * n_vocab + again] = 25; /* a tie: the smaller id wins */
	}
	for (uint32_t id = 0; id < n_vocab; id += block)
		t->head(rows, logits + id, n_vocab, n_rows, id, n_vocab - id < block ? n_vocab - id : block, id == 0);
	for (uint32_t r = 0; r < n_rows; r++) {
		const float *x = logits + (size_t)r * n_vocab;
		double sum = 0;
		float logprob, argmax_logprob;
		uint32_t argmax = 0;

		for (uint32_t i = 0; i < n_vocab; i++) {
			sum += exp((double)x[i]);
			argmax = x[i] > x[argmax] ? i : argmax;
		}
		ck_assert(t->head_finish(&rows[r], &logprob, &argmax_logprob));
		ck_assert_uint_eq(rows[r].argmax, argmax);
		ck_close(logprob, x[rows[r].target] - log(sum), 4e-6);
		ck_close(argmax_logprob, x[argmax] - log(sum), 1e-6);
		if (rows[r].target == argmax)
			ck_assert(logprob == argmax_logprob);
	}
	free(logits);
}

START_TEST(head_agrees_with_double_and_the_smallest_of_equal_ids_wins)
{
	static const uint32_t vocabs[] = {1, 2, 17, 97, 1000, 8192};

	for (int i = 0; i < n_tables; i++)
		for (size_t j = 0; j < 6; j++) {
			check_head(tables[i], vocabs[j], 1024);
			check_head(tables[i], vocabs[j], 33);
		}
}
END_TEST

START_TEST(head_says_when_a_logit_is_not_finite)
{
	static const float bad[] = {NAN, INFINITY};

	for (int i = 0; i < n_tables; i++)
		for (uint32_t at = 0; at < 40; at++)
			for (int b = 0; b < 2; b++) {
				float x[40] = {0}, lp, alp;
				struct kern_head_row row = {.target = 3};

				x[at] = bad[b];
				tables[i]->head(&row, x, 40, 1, 0, 20, true);
				tables[i]->head(&row, x + 20, 40, 1, 20, 20, false);
				ck_assert_msg(!tables[i]->head_finish(&row, &lp, &alp), "%s: logit %u", tables[i]->isa,
				              at);
			}
}
END_TEST

/* -- products ------------------------------------------------------------------------------------- */

static void check_matmul(uint32_t n, uint32_t k, enum kern_type type)
{
	const char *isa = kern_isa();
	float *w = random_floats((size_t)n * k, 1), *x = random_floats((size_t)KERN_TILE * k, 1);
	void *in = poison((size_t)KERN_TILE * k * 4);
	float *out = poison((size_t)KERN_TILE * n * 4), *moved = poison((size_t)KERN_TILE * n * 4);
	struct kern_matmul *m = NULL;
	void *scratch;

	for (size_t i = 0; i < (size_t)n * k; i++)
		w[i] = round_to(w[i], type);
	for (size_t i = 0; i < (size_t)KERN_TILE * k; i++)
		put(in, i, x[i], type);
	ck_assert_int_eq(kern_matmul_new(&m, w, n, k, type), 0);
	scratch = poison(kern_matmul_scratch_bytes(m));
	ck_assert_int_eq(kern_matmul_cpu(out, in, m, scratch), 0);
	for (uint32_t r = 0; r < KERN_TILE; r++)
		for (uint32_t c = 0; c < n; c++) {
			double want = 0, size = 0;

			for (uint32_t i = 0; i < k; i++) {
				double t = get(in, r * k + i, type) * w[(size_t)c * k + i];

				want += t;
				size += fabs(t);
			}
			ck_close(out[r * n + c], want, 4e-7 * size + 1e-6);
		}
	/* row r's input as row r + 1: the same bits one row further down */
	for (size_t i = 0; i < (size_t)KERN_TILE * k; i++)
		put(in, (i + k) % ((size_t)KERN_TILE * k), x[i], type);
	ck_assert_int_eq(kern_matmul_cpu(moved, in, m, scratch), 0);
	for (uint32_t r = 0; r < KERN_TILE; r++)
		ck_assert_msg(!memcmp(out + r * n, moved + (r + 1) % KERN_TILE * n, n * sizeof *out),
		              "%s: n %u, k %u: row %u has other bits in the next place", isa, n, k, r);
	kern_matmul_free(m);
	free(w);
	free(x);
	free(in);
	free(out);
	free(moved);
	free(scratch);
}

static const char *const isas[] = {"DEFAULT", "AVX512_CORE", "AVX2", "SSE41"};

START_TEST(products_agree_with_double_wherever_a_row_stands)
{
	static const uint32_t shapes[][2] = {{1, 1}, {3, 5}, {97, 32}, {192, 64}, {512, 512}, {64, 2048}, {65, 4096}};

	setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1); /* before this (forked) process first uses oneDNN */
	kern_thread_init();
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		check_matmul(shapes[i][0], shapes[i][1], KERN_F32);
		if (kern_has_bf16())
			check_matmul(shapes[i][0], shapes[i][1], KERN_BF16);
	}
}
END_TEST

START_TEST(the_cap_of_onednn_caps_the_kernels_too)
{
	setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);
	ck_assert_str_eq(kern_isa(), "sse41");
	ck_assert_ptr_eq(kern_cpu(), &kern_cpu_base);
	ck_assert(!kern_has_bf16());
}
END_TEST

Suite *kernels_suite(void);
Suite *kernels_suite(void)
{
	Suite *s = suite_create("kernels");
	TCase *vectors = tcase_create("vectors"), *products = tcase_create("products");

	tcase_add_checked_fixture(vectors, find_tables, NULL);
	tcase_set_timeout(vectors, 120);
	tcase_add_test(vectors, rmsnorm_agrees_with_double_and_finds_the_row_that_is_not_finite);
	tcase_add_test(vectors, residual_adds_product_and_bias);
	tcase_add_test(vectors, activations_agree_with_double);
	tcase_add_test(vectors, activations_hold_at_the_ends_of_the_range);
	tcase_add_test(vectors, positions_turn_queries_and_keys_as_the_papers_say);
	tcase_add_test(vectors, attention_agrees_with_double_at_every_edge_of_a_block);
	tcase_add_test(vectors, attention_holds_when_each_block_overtakes_the_last);
	tcase_add_test(vectors, attention_names_the_row_that_is_not_finite);
	tcase_add_test(vectors, head_agrees_with_double_and_the_smallest_of_equal_ids_wins);
	tcase_add_test(vectors, head_says_when_a_logit_is_not_finite);
	suite_add_tcase(s, vectors);
	tcase_set_timeout(products, 120);
	tcase_add_loop_test(products, products_agree_with_double_wherever_a_row_stands, 0, 4);
	tcase_add_test(products, the_cap_of_onednn_caps_the_kernels_too);
	suite_add_tcase(s, products);
	return s;
}
