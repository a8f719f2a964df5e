/* The arithmetic of attention_sm90.cu: what a warpgroup does with its 64 rows. S is the kernel's shape: D_QK, D_V, ROWS
 * of a tile, BLOCK keys of a panel, Q_REGS. A thread holds parts of two rows, as wgmma lays them out (sm90.cuh).
 *
 * What happens to a row depends on that row alone, in one order: roundings are spelled out, so that the compiler cannot
 * treat the two rows of a thread differently. */
#ifndef FATHOM_KERNELS_ATTENTION_SM90_CUH
#define FATHOM_KERNELS_ATTENTION_SM90_CUH

#include <math.h>

#include "kernels/cuda.cuh"
#include "kernels/sm90.cuh"

template <class S> SM90_DEV uint64_t k_desc(uint32_t smem, uint32_t slot)
{
	return wgmma_desc_k(smem + S::K_AT + slot * S::K_BYTES);
}

template <class S> SM90_DEV uint64_t v_desc(uint32_t smem, uint32_t slot)
{
	return wgmma_desc_mn(smem + S::V_AT + slot * S::V_BYTES, S::BLOCK * 128);
}

/* This thread's part of Q: from registers a product takes A at no cost in shared memory's bandwidth. */
template <class S> struct queries {
	uint32_t r[S::Q_REGS ? S::D_QK / 4 : 1];
	uint64_t desc;
};

template <class S> SM90_DEV void queries_load(struct queries<S> *q, uint32_t tile, int wg)
{
	if constexpr (S::Q_REGS) {
		int t = threadIdx.x % 128, row = 64 * wg + t / 32 * 16 + t % 16;

#pragma unroll
		for (int i = 0; i < S::D_QK / 16; i++)
			ldmatrix4(q->r + 4 * i, tile + i / 4 * (S::ROWS * 128) + row * 128 +
			                                (((i % 4 * 2 + t % 32 / 16) ^ (row % 8)) << 4));
		__syncwarp();
	} else {
		q->desc = wgmma_desc_k(tile + wg * 64 * 128);
	}
}

/* s = Q K^T for 64 rows. */
template <class S> SM90_DEV void issue_scores(float (&s)[S::BLOCK / 2], const struct queries<S> &q, uint64_t k)
{
#pragma unroll
	for (int i = 0; i < S::D_QK / 16; i++) {
		uint64_t at = wgmma_desc_step(k, i / 4 * (S::BLOCK * 8) + i % 4 * 2);

		if constexpr (S::Q_REGS)
			wgmma_rs<S::BLOCK, __half, 0>(s, q.r + 4 * i, at, i > 0);
		else
			wgmma_ss<S::BLOCK, __half>(s, wgmma_desc_step(q.desc, i / 4 * (S::ROWS * 8) + i % 4 * 2), at,
			                           i > 0);
	}
	wgmma_commit();
}

template <class S, class T>
SM90_DEV void issue_values(float (&o)[S::D_V / 2], const uint32_t (&p)[S::BLOCK / 4], uint64_t v)
{
#pragma unroll
	for (int i = 0; i < S::BLOCK / 16; i++)
		wgmma_rs<S::D_V, T, 1>(o, p + 4 * i, wgmma_desc_step(v, 128 * i), 1);
	wgmma_commit();
}

/* Scores of keys that a row does not see become -inf. last: the number, in the panel, of the last key that this
 * thread's upper row sees, less its own first column; the lower row stands 8 on. */
template <int N> SM90_DEV void mask_scores(float (&s)[N], int last)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		int column = i / 4 * 8 + i % 2;

		if (column > last + (i % 4 < 2 ? 0 : 8))
			s[i] = -INFINITY;
	}
}

/* Running maximum (of unscaled scores) and sum of a thread's two rows; the sum is of this thread's columns only. */
struct softmax {
	float max[2], sum[2];
};

SM90_DEV void softmax_init(struct softmax *x)
{
	x->max[0] = x->max[1] = -INFINITY;
	x->sum[0] = x->sum[1] = 0.f;
}

/* s becomes exp2(c (s - max)), alpha what earlier sums are to be multiplied with. Of a row that has seen nothing yet,
 * max is -inf and everything stays 0. */
template <int N> SM90_DEV void softmax_step(float (&s)[N], struct softmax &x, float (&alpha)[2], float c)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float m0 = s[2 * r], m1 = s[2 * r + 1], neg;

#pragma unroll
		for (int i = 4; i < N; i += 4) {
			m0 = fmaxf(m0, s[i + 2 * r]);
			m1 = fmaxf(m1, s[i + 2 * r + 1]);
		}
		m0 = fmaxf(m0, m1);
		m0 = fmaxf(m0, __shfl_xor_sync(0xffffffffu, m0, 1));
		m0 = fmaxf(m0, __shfl_xor_sync(0xffffffffu, m0, 2));
		m0 = fmaxf(m0, x.max[r]);
		m1 = m0 == -INFINITY ? 0.f : m0;
		alpha[r] = fast_exp2(__fmul_rn(x.max[r] - m1, c));
		x.max[r] = m0;
		neg = -__fmul_rn(m1, c);
		x.sum[r] = __fmul_rn(x.sum[r], alpha[r]);

		float a0 = 0.f, a1 = 0.f;

#pragma unroll
		for (int i = 0; i < N; i += 4) {
			s[i + 2 * r] = fast_exp2(__fmaf_rn(s[i + 2 * r], c, neg));
			s[i + 2 * r + 1] = fast_exp2(__fmaf_rn(s[i + 2 * r + 1], c, neg));
			a0 = __fadd_rn(a0, s[i + 2 * r]);
			a1 = __fadd_rn(a1, s[i + 2 * r + 1]);
		}
		x.sum[r] = __fadd_rn(x.sum[r], __fadd_rn(a0, a1));
	}
}

/* What scales a row's sum of values, from a thread's part of the row's sum. */
SM90_DEV void row_factors(float (&by)[2], const float (&sum)[2])
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float all = __fadd_rn(sum[r], __shfl_xor_sync(0xffffffffu, sum[r], 1));

		by[r] = fast_rcp(__fadd_rn(all, __shfl_xor_sync(0xffffffffu, all, 2)));
	}
}

template <int N> SM90_DEV void zero(float (&o)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		o[i] = 0.f;
}

template <int N> SM90_DEV void scale_rows(float (&o)[N], const float (&by)[2])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		o[i] = __fmul_rn(o[i], by[i % 4 / 2]);
}

template <class T, int N> SM90_DEV void pack_rows(uint32_t (&p)[N / 2], const float (&s)[N])
{
#pragma unroll
	for (int i = 0; i < N / 2; i++)
		p[i] = pack2<T>(s[2 * i], s[2 * i + 1]);
}

/* Four lanes hold 4 words of a row each, those of every fourth pair of columns; afterwards lane i has the i-th four. */
SM90_DEV void transpose4(uint32_t (&x)[4])
{
	int lane = threadIdx.x;

#pragma unroll
	for (int bit = 1; bit < 4; bit *= 2) {
		bool up = lane & bit;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (i & bit)
				continue;
			uint32_t y = __shfl_xor_sync(0xffffffffu, up ? x[i] : x[i | bit], bit);

			if (up)
				x[i] = y;
			else
				x[i | bit] = y;
		}
	}
}

#endif
