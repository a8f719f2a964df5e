/* Flash attention, one tile of queries and one head: S = Q K^T by panels, softmax online by blocks, O += P V.
 *
 * All operands are 32-bit words: a float, or a pair of bf16 along the summed dimension, so that f32 and bf16 share all
 * loops and differ in the one multiply-add. Each sum runs over its whole depth in order, in one lane: a row's bits do
 * not depend on the tile. A masked key adds exactly 0, so blocks and panels may be skipped or not. */
#include "kernels/simd.h"

/* In registers: MR x NV accumulators, NV vectors of keys or values, one broadcast. 32 registers, or 16. */
#if SIMD_WIDTH == 16
#define MR 8
#else
#define MR 4
#endif
#define NV           2
#define COLS         (NV * SIMD_WIDTH) /* divides KERN_PANEL */
#define BLOCK_PANELS (KERN_BLOCK / KERN_PANEL)
#define ROW_GROUP    8 /* rows are padded to this */

/* A tile's state. In scratch, in this order. */
struct state {
	float *s;     /* [KERN_TILE, KERN_BLOCK] scores, then probabilities */
	float *p;     /* bf16: [KERN_TILE, KERN_BLOCK / 2] pairs; f32: s */
	float *q;     /* [KERN_TILE, q_words] */
	float *o;     /* [KERN_TILE, v_width] not yet divided */
	float *sum;   /* [KERN_TILE, SIMD_WIDTH] by lanes */
	float *max;   /* [KERN_TILE] */
	float *alpha; /* [KERN_TILE] what this block does to earlier sums */
	uint32_t n_rows, q_words, p_words, v_width;
};

static inline vf multiply_add(vf a, vf b, vf c, bool bf16)
{
#ifdef SIMD_BF16
	if (bf16)
		return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
#endif
	(void)bf16;
	return simd_fma(a, b, c);
}

/* acc += A[MR, depth] B[depth, COLS] */
static inline __attribute__((always_inline)) void product(vf acc[MR][NV], const float *a, size_t lda, const float *b,
                                                          size_t ldb, uint32_t depth, bool bf16)
{
	for (uint32_t k = 0; k < depth; k++, b += ldb) {
		vf bv[NV];

#pragma GCC unroll 4
		for (int j = 0; j < NV; j++)
			bv[j] = simd_load(b + j * SIMD_WIDTH);
#pragma GCC unroll 8
		for (int i = 0; i < MR; i++) {
			vf av = simd_splat(a[i * lda + k]);

#pragma GCC unroll 4
			for (int j = 0; j < NV; j++)
				acc[i][j] = multiply_add(av, bv[j], acc[i][j], bf16);
		}
	}
}

/* S[:, columns of one panel] = Q K^T */
static inline __attribute__((always_inline)) void scores(const struct state *t, const float *panel, uint32_t column,
                                                         bool bf16)
{
	for (uint32_t c = 0; c < KERN_PANEL; c += COLS)
		for (uint32_t r = 0; r < t->n_rows; r += MR) {
			vf acc[MR][NV] = {0};

			product(acc, t->q + (size_t)r * t->q_words, t->q_words, panel + c, KERN_PANEL, t->q_words,
			        bf16);
#pragma GCC unroll 8
			for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
				for (int j = 0; j < NV; j++)
					simd_store(t->s + (r + i) * KERN_BLOCK + column + c + j * SIMD_WIDTH,
					           acc[i][j]);
		}
}

/* keys beyond the row's own position */
static void mask(float *s, uint32_t n_visible, uint32_t n_cols)
{
	for (uint32_t c = n_visible; c < n_cols; c++)
		s[c] = -__builtin_inff();
}

/* One row of a block: scores to probabilities, maximum and sums brought up to date. */
static inline __attribute__((always_inline)) void softmax_row(const struct state *t, uint32_t r, uint32_t n_cols,
                                                              bool bf16)
{
	float *s = t->s + (size_t)r * KERN_BLOCK, *sums = t->sum + (size_t)r * SIMD_WIDTH, max, alpha;
	vf m = simd_splat(t->max[r]), sum;

	for (uint32_t c = 0; c < n_cols; c += SIMD_WIDTH)
		m = simd_max(m, simd_load(s + c));
	max = simd_max_lane(m);
	alpha = simd_exp2(simd_splat(t->max[r] - max))[0];
	sum = simd_load(sums) * alpha;
	m = simd_splat(max);
	for (uint32_t c = 0; c < n_cols; c += SIMD_WIDTH) {
		vf p = simd_exp2(simd_load(s + c) - m);

		sum += p;
		simd_store_type(t->p, (size_t)r * KERN_BLOCK + c, p, SIMD_WIDTH, bf16 ? KERN_BF16 : KERN_F32);
	}
	simd_store(sums, sum);
	t->max[r] = max;
	t->alpha[r] = alpha;
}

/* O = O alpha + P V over a block's panels */
static inline __attribute__((always_inline)) void values(const struct state *t, const float *v, size_t panel_words,
                                                         const uint32_t *panels, uint32_t n_panels, bool bf16)
{
	uint32_t depth = bf16 ? KERN_PANEL / 2 : KERN_PANEL;

	for (uint32_t c = 0; c < t->v_width; c += COLS)
		for (uint32_t r = 0; r < t->n_rows; r += MR) {
			float *o = t->o + (size_t)r * t->v_width + c;
			vf acc[MR][NV];

#pragma GCC unroll 8
			for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
				for (int j = 0; j < NV; j++)
					acc[i][j] =
					    simd_load(o + (size_t)i * t->v_width + j * SIMD_WIDTH) * t->alpha[r + i];
			for (uint32_t n = 0; n < n_panels; n++)
				product(acc, t->p + (size_t)r * t->p_words + n * depth, t->p_words,
				        v + panels[n] * panel_words + c, t->v_width, depth, bf16);
#pragma GCC unroll 8
			for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
				for (int j = 0; j < NV; j++)
					simd_store(o + (size_t)i * t->v_width + j * SIMD_WIDTH, acc[i][j]);
		}
}

static void state_init(struct state *t, const struct kern_attention *a, bool bf16)
{
	size_t size = bf16 ? 2 : 4, rows = KERN_TILE;
	float *f = a->scratch;

	t->n_rows = (a->n_rows + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP;
	t->q_words = (uint32_t)(a->d_qk * size / 4);
	t->p_words = (uint32_t)(KERN_BLOCK * size / 4);
	t->v_width = kern_v_width(a->d_v);
	t->s = f;
	t->p = bf16 ? f + rows * KERN_BLOCK : f;
	t->q = f + rows * (KERN_BLOCK + KERN_BLOCK / 2);
	t->o = t->q + rows * a->d_qk;
	t->sum = t->o + rows * t->v_width;
	t->max = t->sum + rows * 16;
	t->alpha = t->max + rows;
	memset(t->q, 0, sizeof(float) * t->n_rows * t->q_words);
	memset(t->o, 0, sizeof(float) * t->n_rows * t->v_width);
	memset(t->sum, 0, sizeof(float) * t->n_rows * SIMD_WIDTH);
	for (uint32_t r = 0; r < t->n_rows; r++)
		t->max[r] = -__builtin_inff();
	for (uint32_t r = 0; r < a->n_rows; r++)
		memcpy(t->q + (size_t)r * t->q_words, (const char *)a->q + r * a->q_stride * size, a->d_qk * size);
}

/* out = O / sum; the first row whose sum is not a positive number */
static uint32_t finish(const struct state *t, const struct kern_attention *a, bool bf16)
{
	for (uint32_t r = 0; r < a->n_rows; r++) {
		float sum = simd_sum(simd_load(t->sum + (size_t)r * SIMD_WIDTH));
		const float *o = t->o + (size_t)r * t->v_width;
		vf inv = simd_splat(1.0f / sum);

		if (!(sum > 0 && sum < __builtin_inff()))
			return r;
		for (uint32_t i = 0; i < a->d_v; i += SIMD_WIDTH)
			simd_store_type(a->out, r * a->out_stride + i, simd_load(o + i) * inv,
			                a->d_v - i < SIMD_WIDTH ? a->d_v - i : SIMD_WIDTH, bf16 ? KERN_BF16 : KERN_F32);
	}
	return a->n_rows;
}

static inline __attribute__((always_inline)) uint32_t attend(const struct kern_attention *a, bool bf16)
{
	enum kern_type type = bf16 ? KERN_BF16 : KERN_F32;
	size_t k_words = kern_k_panel_words(a->d_qk, type), v_words = kern_v_panel_words(a->d_v, type);
	uint32_t last = a->pos0 + a->n_rows - 1, n_panels = last / KERN_PANEL + 1;
	struct state t;

	state_init(&t, a, bf16);
	for (uint32_t p = 0; p < n_panels; p += BLOCK_PANELS) {
		uint32_t n = n_panels - p < BLOCK_PANELS ? n_panels - p : BLOCK_PANELS;
		uint32_t key0 = p * KERN_PANEL, n_cols = n * KERN_PANEL;

		for (uint32_t i = 0; i < n; i++)
			scores(&t, (const float *)a->k + a->panels[p + i] * k_words, i * KERN_PANEL, bf16);
		for (uint32_t r = 0; r < t.n_rows; r++) {
			uint32_t pos = a->pos0 + r < last ? a->pos0 + r : last;

			if (pos < key0 + n_cols)
				mask(t.s + (size_t)r * KERN_BLOCK, pos < key0 ? 0 : pos + 1 - key0, n_cols);
			softmax_row(&t, r, n_cols, bf16);
		}
		values(&t, a->v, v_words, a->panels + p, n, bf16);
	}
	return finish(&t, a, bf16);
}

uint32_t KERN(attention_f32)(const struct kern_attention *a)
{
	return attend(a, false);
}

#ifdef SIMD_BF16
uint32_t KERN(attention_bf16)(const struct kern_attention *a)
{
	return attend(a, true);
}
#endif
