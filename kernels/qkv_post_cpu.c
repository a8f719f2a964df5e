/* From the fused q, k, v product to what attention reads: biases, the position scheme, q scaled, keys transposed into
 * panels. */
#include "kernels/simd.h"

#define MAX_D    KERN_MAX_HEAD_DIM
#define QK_LIMIT 1e18f /* d_qk products of two such values do not overflow */
#define V_LIMIT  3.4e38f

/* One row's cosines and sines, times the amplitude. */
struct turn {
	float cos[MAX_D + SIMD_WIDTH], sin[MAX_D + SIMD_WIDTH]; /* [n_freq], padded */
};

/* phase = pos * freq, exact modulo a turn; in half-turns it is a fraction of 31 bits (cf. position_phase) */
static void turn_init(struct turn *t, const struct kern_qkv_post *a, uint64_t pos)
{
	uint32_t n_freq = a->pope ? a->head_dim : a->head_dim / 2;
	float x[MAX_D + SIMD_WIDTH];
	vf s, c;

	memset(x + n_freq, 0, SIMD_WIDTH * sizeof *x);
	for (uint32_t i = 0; i < n_freq; i++)
		x[i] = (float)(int32_t)(uint32_t)((pos * a->freq[i]) >> 32) * 0x1p-31f;
	for (uint32_t i = 0; i < n_freq; i += SIMD_WIDTH) {
		simd_sincospi(simd_load(x + i), &s, &c);
		simd_store(t->cos + i, c * a->amplitude);
		simd_store(t->sin + i, s * a->amplitude);
	}
}

/* x[i], x[i + d/2] turned. Whole vectors: what the lower half spills over is written again by the upper. */
static void rope(float *out, const float *x, const struct turn *t, uint32_t d)
{
	uint32_t h = d / 2;

	for (uint32_t i = 0; i < h; i += SIMD_WIDTH)
		simd_store(out + i,
		           simd_load(x + i) * simd_load(t->cos + i) - simd_load(x + i + h) * simd_load(t->sin + i));
	for (uint32_t i = 0; i < h; i += SIMD_WIDTH)
		simd_store(out + i + h,
		           simd_load(x + i + h) * simd_load(t->cos + i) + simd_load(x + i) * simd_load(t->sin + i));
}

/* out = [mu cos(phase + delta), mu sin(phase + delta)], mu = softplus(x); no delta on queries.
 * cos(p + d) = cos p cos d - sin p sin d: exact angles stay exact, and there is no cosine per head. */
static void pope(float *out, const float *x, const struct turn *t, const float *cos_d, const float *sin_d, uint32_t d)
{
	for (uint32_t i = 0; i < d; i += SIMD_WIDTH) {
		vf c = simd_load(t->cos + i), s = simd_load(t->sin + i), mu = simd_softplus(simd_load(x + i));

		if (cos_d) {
			vf cd = simd_load_n(cos_d + i, d - i), sd = simd_load_n(sin_d + i, d - i), c0 = c;

			c = c0 * cd - s * sd;
			s = s * cd + c0 * sd;
		}
		simd_store_type(out, i, mu * c, d - i < SIMD_WIDTH ? d - i : SIMD_WIDTH, KERN_F32);
		simd_store(out + d + i, mu * s);
	}
}

/* One head's channels with their bias, zeros up to the next whole vector. */
static void read_head(float *x, const float *in, const float *bias, uint32_t d)
{
	for (uint32_t i = 0; i < d; i += SIMD_WIDTH) {
		vf v = simd_load_n(in + i, d - i);

		simd_store(x + i, bias ? v + simd_load_n(bias + i, d - i) : v);
	}
}

/* Whether no element is beyond the limit, or a NaN. */
static bool within(const float *x, uint32_t n, float limit)
{
	vi bad = {0};

	for (uint32_t i = 0; i < n; i += SIMD_WIDTH)
		bad |= ~(simd_abs(simd_load_n(x + i, n - i)) <= simd_splat(limit));
	return !simd_any(bad);
}

/* To the type, whole vectors at a time. */
static void convert(void *out, const float *x, uint32_t n, float scale, enum kern_type type)
{
	for (uint32_t i = 0; i < n; i += SIMD_WIDTH)
		simd_store_type(out, i, simd_load_n(x + i, n - i) * scale, n - i < SIMD_WIDTH ? n - i : SIMD_WIDTH,
		                type);
}

/* x as the column of a K panel, [d, 32] f32 or [d/2, 32] pairs: in either type a column of words */
static void put_key(float *panel, const float *x, uint32_t d, uint32_t column, enum kern_type type)
{
	uint32_t n_words = (uint32_t)(d * kern_type_size(type) / 4);
	float words[2 * MAX_D];

	convert(words, x, d, 1, type);
	for (uint32_t i = 0; i < n_words; i++)
		memcpy(panel + (size_t)i * KERN_PANEL + column, words + i, sizeof *words);
}

/* x as the row of a V panel, [32, width] f32 or [16, width] pairs; zeros up to width */
static void put_value(float *panel, const float *x, uint32_t d, uint32_t row, enum kern_type type)
{
	uint32_t width = kern_v_width(d);
	uint16_t half[MAX_D], *pairs = (uint16_t *)panel + (size_t)(row / 2) * width * 2 + row % 2;

	if (type == KERN_F32) {
		memcpy(panel + (size_t)row * width, x, d * sizeof *x);
		memset(panel + (size_t)row * width + d, 0, (width - d) * sizeof *x);
		return;
	}
	convert(half, x, d, 1, type);
	memset(half + d, 0, (width - d) * sizeof *half);
	for (uint32_t i = 0; i < width; i++)
		pairs[2 * (size_t)i] = half[i];
}

static bool post_row(const struct kern_qkv_post *a, uint32_t r)
{
	uint32_t d = a->head_dim, d_qk = a->pope ? 2 * d : d, column = a->pos[r] % KERN_PANEL;
	size_t width = (size_t)(a->n_head + 2 * a->n_kv_head) * d;
	size_t k_at = a->panel[r] * kern_k_panel_words(d_qk, a->type);
	size_t v_at = a->panel[r] * kern_v_panel_words(d, a->type);
	const float *in = a->qkv + r * width, *bias = a->bias;
	float x[MAX_D + SIMD_WIDTH], y[2 * MAX_D + SIMD_WIDTH];
	struct turn t;
	bool ok = true;

	turn_init(&t, a, a->pos[r]);
	for (uint32_t h = 0; h < a->n_head + a->n_kv_head; h++, in += d, bias += bias ? d : 0) {
		uint32_t kv = h - a->n_head;
		bool key = h >= a->n_head;

		read_head(x, in, bias, d);
		if (a->pope)
			pope(y, x, &t, key ? a->cos_delta + kv * d : NULL, key ? a->sin_delta + kv * d : NULL, d);
		else
			rope(y, x, &t, d);
		ok &= within(y, d_qk, QK_LIMIT);
		if (key)
			put_key((float *)a->k + kv * a->k_head_words + k_at, y, d_qk, column, a->type);
		else
			convert((char *)a->q + ((size_t)r * a->n_head + h) * d_qk * kern_type_size(a->type), y, d_qk,
			        a->q_scale, a->type);
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
