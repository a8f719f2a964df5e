/* From the fused q, k, v product to what attention reads: biases, the position scheme, q scaled, keys transposed into
 * panels. A row costs a thousandth of its products, so this favours plain loops. */
#include "kernels/simd.h"

#define MAX_D    KERN_MAX_HEAD_DIM
#define QK_LIMIT 1e18f /* d_qk products of two such values do not overflow */
#define V_LIMIT  3.4e38f

/* One row's cosines and sines, times the amplitude. */
struct turn {
	float cos[MAX_D], sin[MAX_D]; /* [n_freq, padded to SIMD_WIDTH] */
};

/* phase = pos * freq, exact modulo a turn; in half-turns it is a fraction of 31 bits (cf. position_phase) */
static void turn_init(struct turn *t, const struct kern_qkv_post *a, uint64_t pos)
{
	uint32_t n_freq = a->pope ? a->head_dim : a->head_dim / 2;
	float x[MAX_D] = {0};
	vf s, c;

	for (uint32_t i = 0; i < n_freq; i++)
		x[i] = (float)(int32_t)(uint32_t)((pos * a->freq[i]) >> 32) * 0x1p-31f;
	for (uint32_t i = 0; i < n_freq; i += SIMD_WIDTH) {
		simd_sincospi(simd_load(x + i), &s, &c);
		simd_store(t->cos + i, c * a->amplitude);
		simd_store(t->sin + i, s * a->amplitude);
	}
}

/* x[i], x[i + d/2] turned */
static void rope(float *out, const float *x, const struct turn *t, uint32_t d)
{
	uint32_t h = d / 2;

	for (uint32_t i = 0; i < h; i++) {
		out[i] = x[i] * t->cos[i] - x[i + h] * t->sin[i];
		out[i + h] = x[i + h] * t->cos[i] + x[i] * t->sin[i];
	}
}

/* out = [mu cos(phase + delta), mu sin(phase + delta)], mu = softplus(x); no delta on queries.
 * cos(p + d) = cos p cos d - sin p sin d: exact angles stay exact, and there is no cosine per head. */
static void pope(float *out, const float *x, const struct turn *t, const float *cos_d, const float *sin_d,
                 uint32_t d)
{
	float mu[MAX_D];

	for (uint32_t i = 0; i < d; i += SIMD_WIDTH)
		simd_store(mu + i, simd_softplus(simd_load(x + i)));
	for (uint32_t i = 0; i < d; i++) {
		float c = t->cos[i], s = t->sin[i];

		out[i] = mu[i] * (cos_d ? c * cos_d[i] - s * sin_d[i] : c);
		out[i + d] = mu[i] * (cos_d ? s * cos_d[i] + c * sin_d[i] : s);
	}
}

/* One head's channels with their bias, zeros after them. */
static void read_head(float *x /* [MAX_D] */, const float *in, const float *bias, uint32_t d)
{
	memcpy(x, in, d * sizeof *x);
	memset(x + d, 0, (MAX_D - d) * sizeof *x);
	for (uint32_t i = 0; bias && i < d; i++)
		x[i] += bias[i];
}

static bool within(const float *x, uint32_t n, float limit)
{
	bool ok = true;

	for (uint32_t i = 0; i < n; i++)
		ok &= x[i] <= limit && x[i] >= -limit;
	return ok;
}

static uint16_t bf16_of(float x)
{
	uint32_t b;

	memcpy(&b, &x, sizeof b);
	return (uint16_t)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}

/* x as the column of a K panel: [d, 32] f32 or [d/2, 32] pairs */
static void put_key(void *panel, const float *x, uint32_t d, uint32_t column, enum kern_type type)
{
	if (type == KERN_BF16)
		for (uint32_t i = 0; i < d; i++)
			((uint16_t *)panel)[((size_t)(i / 2) * KERN_PANEL + column) * 2 + i % 2] =
			    bf16_of(x[i]);
	else
		for (uint32_t i = 0; i < d; i++)
			((float *)panel)[(size_t)i * KERN_PANEL + column] = x[i];
}

/* x as the row of a V panel: [32, width] f32 or [16, width] pairs; zeros up to width */
static void put_value(void *panel, const float *x, uint32_t d, uint32_t row, enum kern_type type)
{
	uint32_t width = kern_v_width(d);

	if (type == KERN_BF16)
		for (uint32_t i = 0; i < width; i++)
			((uint16_t *)panel)[((size_t)(row / 2) * width + i) * 2 + row % 2] =
			    i < d ? bf16_of(x[i]) : 0;
	else
		for (uint32_t i = 0; i < width; i++)
			((float *)panel)[(size_t)row * width + i] = i < d ? x[i] : 0;
}

static void put_query(const struct kern_qkv_post *a, uint32_t row, uint32_t head, const float *x,
                      uint32_t d_qk)
{
	size_t at = ((size_t)row * a->n_head + head) * d_qk;

	for (uint32_t i = 0; i < d_qk; i++)
		if (a->type == KERN_BF16)
			((uint16_t *)a->q)[at + i] = bf16_of(x[i] * a->q_scale);
		else
			((float *)a->q)[at + i] = x[i] * a->q_scale;
}

static bool post_row(const struct kern_qkv_post *a, uint32_t r)
{
	uint32_t d = a->head_dim, d_qk = a->pope ? 2 * d : d, column = a->pos[r] % KERN_PANEL;
	size_t width = (size_t)(a->n_head + 2 * a->n_kv_head) * d;
	size_t k_at = a->panel[r] * kern_k_panel_words(d_qk, a->type);
	size_t v_at = a->panel[r] * kern_v_panel_words(d, a->type);
	const float *in = a->qkv + r * width, *bias = a->bias;
	float x[MAX_D], y[2 * MAX_D];
	struct turn t;
	bool ok = true;

	turn_init(&t, a, a->pos[r]);
	for (uint32_t h = 0; h < a->n_head + a->n_kv_head; h++, in += d, bias += bias ? d : 0) {
		uint32_t kv = h - a->n_head;
		bool key = h >= a->n_head;

		read_head(x, in, bias, d);
		if (a->pope)
			pope(y, x, &t, key ? a->cos_delta + kv * d : NULL,
			     key ? a->sin_delta + kv * d : NULL, d);
		else
			rope(y, x, &t, d);
		ok &= within(y, d_qk, QK_LIMIT);
		if (key)
			put_key((float *)a->k + kv * a->k_head_words + k_at, y, d_qk, column, a->type);
		else
			put_query(a, r, h, y, d_qk);
	}
	for (uint32_t kv = 0; kv < a->n_kv_head; kv++, in += d, bias += bias ? d : 0) {
		read_head(x, in, bias, d);
		ok &= within(x, d, V_LIMIT);
		put_value((float *)a->v + kv * a->v_head_words + v_at, x, d, column, a->type);
	}
	return ok;
}

uint32_t KERN(qkv_post)(const struct kern_qkv_post *a)
{
	for (uint32_t r = 0; r < a->n_rows; r++)
		if (!post_row(a, r))
			return r;
	return a->n_rows;
}
