/* Vectors of SIMD_WIDTH floats, for the instruction set that is being compiled, and the few functions that the kernels
 * need on them. An op's file compiled by itself gives the baseline; cpu_<isa>.c includes all of them again under
 * another target. KERN(op) is then kern_op_<isa>.
 *
 * Every function is exact about special values where a kernel relies on it: simd_exp2(-inf) is 0, simd_exp2(0) is 1. */
#ifndef FATHOM_KERNELS_SIMD_H
#define FATHOM_KERNELS_SIMD_H

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/kernels.h"

#ifndef SIMD_ISA
#define SIMD_ISA   base
#define SIMD_WIDTH 4
#endif

#define SIMD_PASTE_(a, b) kern_##a##_##b
#define SIMD_PASTE(a, b)  SIMD_PASTE_(a, b)
#define KERN(op)          SIMD_PASTE(op, SIMD_ISA)

typedef float vf __attribute__((vector_size(SIMD_WIDTH * 4)));
typedef int32_t vi __attribute__((vector_size(SIMD_WIDTH * 4)));
typedef uint16_t vh __attribute__((vector_size(SIMD_WIDTH * 2)));

static inline vf simd_load(const float *p)
{
	vf v;

	memcpy(&v, p, sizeof v);
	return v;
}

static inline void simd_store(float *p, vf v)
{
	memcpy(p, &v, sizeof v);
}

/* The first n elements at most; the rest is 0. */
static inline vf simd_load_n(const float *p, size_t n)
{
	float t[SIMD_WIDTH] = {0};

	if (n >= SIMD_WIDTH)
		return simd_load(p);
	memcpy(t, p, n * sizeof *t);
	return simd_load(t);
}

static inline vf simd_splat(float x)
{
#if SIMD_WIDTH == 16
	return _mm512_set1_ps(x);
#elif SIMD_WIDTH == 8
	return _mm256_set1_ps(x);
#else
	return (vf){x, x, x, x};
#endif
}

/* a * b + c, in one rounding where the instruction set has it */
static inline vf simd_fma(vf a, vf b, vf c)
{
#if SIMD_WIDTH == 16
	return _mm512_fmadd_ps(a, b, c);
#elif SIMD_WIDTH == 8
	return _mm256_fmadd_ps(a, b, c);
#else
	return a * b + c;
#endif
}

static inline vf simd_select(vi mask, vf yes, vf no)
{
	return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}

/* a > b ? a : b, so a NaN in b comes through */
static inline vf simd_max(vf a, vf b)
{
#if SIMD_WIDTH == 16
	return _mm512_max_ps(a, b);
#elif SIMD_WIDTH == 8
	return _mm256_max_ps(a, b);
#else
	return simd_select(a > b, a, b);
#endif
}

static inline vf simd_abs(vf x)
{
	return (vf)((vi)x & 0x7fffffff);
}

static inline bool simd_any(vi mask)
{
	int32_t any = 0;

	for (int i = 0; i < SIMD_WIDTH; i++)
		any |= mask[i];
	return any != 0;
}

/* Sum and maximum of the lanes, in a fixed tree. */
static inline float simd_sum(vf v)
{
	float t[SIMD_WIDTH];

	simd_store(t, v);
	for (int n = SIMD_WIDTH / 2; n > 0; n /= 2)
		for (int i = 0; i < n; i++)
			t[i] += t[i + n];
	return t[0];
}

static inline float simd_max_lane(vf v)
{
#if SIMD_WIDTH == 16
	return _mm512_reduce_max_ps(v);
#else
	float m = v[0];

	for (int i = 1; i < SIMD_WIDTH; i++)
		m = v[i] > m ? v[i] : m;
	return m;
#endif
}

/* 2^x for x <= 126, relative error 1e-7; 0 below -127; NaN gives NaN. The integer part is rounded by adding
 * 1.5 * 2^23, and goes into the exponent bits as it is. */
static inline vf simd_exp2(vf x)
{
	vf r, f, p;

	x = simd_max(simd_splat(-127.0f), x);
	r = x + 0x1.8p23f;
	f = x - (r - 0x1.8p23f);
	p = simd_fma(simd_splat(1.540350824e-04f), f, simd_splat(1.339073546e-03f));
	p = simd_fma(p, f, simd_splat(9.618237508e-03f));
	p = simd_fma(p, f, simd_splat(5.550357434e-02f));
	p = simd_fma(p, f, simd_splat(2.402264979e-01f));
	p = simd_fma(p, f, simd_splat(6.931471879e-01f));
	p = simd_fma(p, f, simd_splat(1.0f));
	return (vf)((vi)p + ((vi)r << 23));
}

#define SIMD_LOG2E 1.44269504f

/* log(1 + u) for u in [0, 1]: 2 artanh(z), z = u / (2 + u) <= 1/3. Relative error 2e-7. */
static inline vf simd_log1p(vf u)
{
	vf z = u / (u + 2.0f), w = z * z, p;

	p = simd_fma(simd_splat(2.817832608e-01f), w, simd_splat(2.796060472e-01f));
	p = simd_fma(p, w, simd_splat(4.002491015e-01f));
	p = simd_fma(p, w, simd_splat(6.666631468e-01f));
	p = simd_fma(p, w, simd_splat(2.0f));
	return p * z;
}

/* max(x, 0) + log1p(exp(-|x|)) */
static inline vf simd_softplus(vf x)
{
	return simd_max(x, simd_splat(0.0f)) + simd_log1p(simd_exp2(simd_abs(x) * -SIMD_LOG2E));
}

/* sin and cos of pi x for x in [-1, 1]; absolute error 1e-7 */
static inline void simd_sincospi(vf x, vf *s, vf *c)
{
	vf n2 = x * 2.0f + 0x1.8p23f;
	vi n = (vi)n2; /* low bits: the quadrant, round(2x) */
	vf r = simd_fma(n2 - 0x1.8p23f, simd_splat(-0.5f), x), w = r * r;
	vf ps, pc;
	vi swap = -(n & 1);

	ps = simd_fma(simd_splat(-5.890122085e-01f), w, simd_splat(2.549761048e+00f));
	ps = simd_fma(ps, w, simd_splat(-5.167707682e+00f));
	ps = simd_fma(ps, w, simd_splat(3.141592643e+00f)) * r;
	pc = simd_fma(simd_splat(2.321160279e-01f), w, simd_splat(-1.335136932e+00f));
	pc = simd_fma(pc, w, simd_splat(4.058710545e+00f));
	pc = simd_fma(pc, w, simd_splat(-4.934802197e+00f));
	pc = simd_fma(pc, w, simd_splat(1.0f));
	*s = (vf)((vi)simd_select(swap, pc, ps) ^ (((n & 2) > 0) & INT32_MIN));
	*c = (vf)((vi)simd_select(swap, ps, pc) ^ ((((n + 1) & 2) > 0) & INT32_MIN));
}

/* To bf16, round to nearest even; the caller has no NaN. */
static inline vh simd_to_bf16(vf x)
{
#ifdef SIMD_BF16
	return (vh)_mm512_cvtneps_pbh(x);
#else
	vi b = (vi)x;

	b += 0x7fff + ((b >> 16) & 1);
	return __builtin_convertvector(b >> 16, vh);
#endif
}

/* Stores n <= SIMD_WIDTH elements at element i of out. */
static inline void simd_store_type(void *out, size_t i, vf v, size_t n, enum kern_type type)
{
	size_t size = kern_type_size(type);
	char *to = (char *)out + i * size;
	char from[sizeof v];

	if (type == KERN_BF16) {
		vh h = simd_to_bf16(v);

		if (n == SIMD_WIDTH) {
			memcpy(to, &h, sizeof h);
			return;
		}
		memcpy(from, &h, sizeof h);
	} else {
		if (n == SIMD_WIDTH) {
			memcpy(to, &v, sizeof v);
			return;
		}
		memcpy(from, &v, sizeof v);
	}
	memcpy(to, from, n * size);
}

/* This instruction set's ops: see struct kern_cpu. */
uint32_t KERN(rmsnorm)(void *out, const float *x, const float *w, uint32_t n_rows, uint32_t dim, float eps,
                       enum kern_type type);
uint32_t KERN(qkv_post)(const struct kern_qkv_post *a);
uint32_t KERN(attention_f32)(const struct kern_attention *a);
uint32_t KERN(attention_bf16)(const struct kern_attention *a);
void KERN(activation)(void *out, const float *in, const float *bias, uint32_t n_rows, uint32_t ffn_dim,
                      enum kern_act act, bool gated, enum kern_type type);
uint32_t KERN(residual)(float *x, const float *y, const float *bias, uint32_t n_rows, uint32_t dim);
void KERN(head)(struct kern_head_row *rows, const float *logits, size_t stride, uint32_t n_rows, uint32_t id0,
                uint32_t n_ids, bool first_block);
bool KERN(head_finish)(const struct kern_head_row *row, float *logprob, float *argmax_logprob);

#ifdef SIMD_BF16
#define SIMD_ATTENTION_BF16 KERN(attention_bf16)
#else
#define SIMD_ATTENTION_BF16 NULL
#endif

#define SIMD_TABLE(name)                                                                                               \
	{                                                                                                              \
		.isa = name, .rmsnorm = KERN(rmsnorm), .qkv_post = KERN(qkv_post),                                     \
		.attention_f32 = KERN(attention_f32), .attention_bf16 = SIMD_ATTENTION_BF16,                           \
		.activation = KERN(activation), .residual = KERN(residual), .head = KERN(head),                        \
		.head_finish = KERN(head_finish),                                                                      \
	}

#endif
