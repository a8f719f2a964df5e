/* Attention on Hopper (sm_90a): one persistent launch for all tiles and heads. The last warpgroup of a block of threads
 * loads (TMA, one warp), the others each own 64 rows of the tile:
 *
 *   work ring     loader -> all     (tile, head), taken from a counter: longest chains first
 *   Q, K, V rings loader -> wgmma   panels from the diagonal down to the chain's start
 *
 * A warpgroup issues S' = Q K'^T of the next panel and O += P V of this one, and does the softmax of S' while P V runs;
 * warpgroups take turns to issue (a baton of named barriers), so that one's softmax runs beside the others' products.
 *
 * A row's result does not depend on its tile: panels come in one order, masked scores are exactly 0 after exp, and a
 * panel that a row does not see leaves its sums as they were, bit for bit; so a warpgroup may skip it. */
#include <math.h>

#include "kernels/attention.cuh"
#include "kernels/sm90.cuh"

/* D_QK, D_V as stored; WG warpgroups of 64 rows; BLOCK keys of a panel; stages of K and V; buffers of Q. */
template <int D_QK_, int D_V_, int WG_, int BLOCK_, int K_STAGES_, int V_STAGES_, int Q_STAGES_, bool BATON_>
struct shape {
	static const int D_QK = D_QK_, D_V = D_V_, WG = WG_, BLOCK = BLOCK_;
	static const int K_STAGES = K_STAGES_, V_STAGES = V_STAGES_, Q_STAGES = Q_STAGES_;
	static const bool BATON = BATON_;
	static const int ROWS = 64 * WG, THREADS = 128 * (WG + 1);
	static const int Q_BYTES = ROWS * D_QK * 2, K_BYTES = BLOCK * D_QK * 2, V_BYTES = BLOCK * D_V * 2;
	static const int K_AT = Q_STAGES * Q_BYTES, V_AT = K_AT + K_STAGES * K_BYTES;
	static const int BARS_AT = V_AT + V_STAGES * V_BYTES;
	static const int SMEM = BARS_AT + 512 + 1024; /* 1024: to align the tiles */
	static const int CONSUMER_REGS = WG == 3 ? 160 : 240, PRODUCER_REGS = WG == 3 ? 32 : 24;
};

using shape_64_64 = shape<64, 64, 3, 128, 2, 2, 2, true>;
using shape_128_64 = shape<128, 64, 3, 128, 2, 2, 2, true>;
using shape_128_128 = shape<128, 128, 2, 128, 2, 2, 2, true>;
using shape_256_128 = shape<256, 128, 2, 96, 2, 2, 1, true>;

struct args {
	void *out;
	const struct kern_tile *tiles;
	const uint32_t *panels;
	uint32_t *counter;
	uint32_t n_tiles, n_head;
	uint32_t rep, group; /* heads of a kv head; heads done before the next ones begin */
	uint32_t head_dim, out_stride, fast_store;
	float scale_log2;
};

struct work {
	struct kern_tile tile;
	uint32_t head, go;
};

/* A ring's slot and the parity of its current use. */
template <int STAGES> struct cursor {
	uint32_t slot, phase;

	__device__ __forceinline__ void next(void)
	{
		if (++slot == STAGES) {
			slot = 0;
			phase ^= 1;
		}
	}
};

/* Barriers in shared memory: 8 bytes each, in this order. */
template <class S> struct bars {
	uint32_t q_full, q_empty, k_full, k_empty, v_full, v_empty, w_full, w_empty, end;

	__device__ __forceinline__ explicit bars(uint32_t at)
	{
		q_full = at;
		q_empty = q_full + 8 * S::Q_STAGES;
		k_full = q_empty + 8 * S::Q_STAGES;
		k_empty = k_full + 8 * S::K_STAGES;
		v_full = k_empty + 8 * S::K_STAGES;
		v_empty = v_full + 8 * S::V_STAGES;
		w_full = v_empty + 8 * S::V_STAGES;
		w_empty = w_full + 16;
		end = w_empty + 16;
	}
};

/* -- the loader -------------------------------------------------------------------------------------- */

/* Item i of the launch: groups of heads, in them tiles, in them heads. */
SM90_DEV void work_at(struct work *w, const struct args &a, uint32_t i)
{
	uint32_t per_group = a.n_tiles * a.group, g = i / per_group, in = i - g * per_group;
	uint32_t heads = g * a.group < a.n_head ? min(a.group, a.n_head - g * a.group) : 1, t = in / heads;

	/* the last group may have fewer heads: the numbers that it leaves unused end the work as those after it do */
	w->go = g * a.group < a.n_head && t < a.n_tiles;
	if (!w->go)
		return;
	w->tile = a.tiles[t];
	w->head = g * a.group + in - t * heads;
}

/* One warp. Loads in the order of consumption: Q, K of the first panel, then K of the next one before V of each. */
template <class S>
SM90_DEV void load_all(const struct args &a, const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv,
                       uint32_t smem, const bars<S> &b, struct work *ring)
{
	int lane = threadIdx.x % 32;
	uint32_t item = blockIdx.x;
	cursor<S::Q_STAGES> q = {0, 0};
	cursor<S::K_STAGES> k = {0, 0};
	cursor<S::V_STAGES> v = {0, 0};
	cursor<2> w = {0, 0};

	for (;;) {
		struct work it;

		mbar_wait(b.w_empty + 8 * w.slot, w.phase ^ 1);
		work_at(&it, a, item);
		if (lane == 0) {
			ring[w.slot] = it;
			mbar_arrive(b.w_full + 8 * w.slot);
		}
		w.next();
		if (!it.go)
			return;
		if (lane == 0)
			item = gridDim.x + atomicAdd(a.counter, 1);
		item = __shfl_sync(0xffffffffu, item, 0);

		uint32_t n = (it.tile.pos0 + it.tile.n_rows - 1) / S::BLOCK + 1, kv = it.head / a.rep;
		const uint32_t *list = a.panels + it.tile.panels;
		uint32_t ahead = 0;  /* panel numbers, one a lane: those of panels i - lane */
		int slot_before = 0; /* first slot of the panel above */

		mbar_wait(b.q_empty + 8 * q.slot, q.phase ^ 1);
		if (lane == 0) {
			mbar_arrive_expect(b.q_full + 8 * q.slot, S::Q_BYTES);
			for (int c = 0; c < S::D_QK / 64; c++)
				tma_load_3d(smem + q.slot * S::Q_BYTES + c * S::ROWS * 128, mq, b.q_full + 8 * q.slot,
				            c * 64, it.tile.row, it.head);
		}
		q.next();
		for (int i = 0; i <= (int)n; i++) {
			int slot = 0;

			if (i < (int)n) {
				if (i % 32 == 0)
					ahead = lane < (int)n - i ? list[n - 1 - i - lane] : 0;
				slot = (int)(__shfl_sync(0xffffffffu, ahead, i % 32) * S::BLOCK);
				mbar_wait(b.k_empty + 8 * k.slot, k.phase ^ 1);
				if (lane == 0) {
					mbar_arrive_expect(b.k_full + 8 * k.slot, S::K_BYTES);
					for (int c = 0; c < S::D_QK / 64; c++)
						tma_load_3d(smem + S::K_AT + k.slot * S::K_BYTES + c * S::BLOCK * 128,
						            mk, b.k_full + 8 * k.slot, c * 64, slot, kv);
				}
				k.next();
			}
			if (i > 0) {
				mbar_wait(b.v_empty + 8 * v.slot, v.phase ^ 1);
				if (lane == 0) {
					mbar_arrive_expect(b.v_full + 8 * v.slot, S::V_BYTES);
					for (int c = 0; c < S::D_V / 64; c++)
						tma_load_3d(smem + S::V_AT + v.slot * S::V_BYTES + c * S::BLOCK * 128,
						            mv, b.v_full + 8 * v.slot, c * 64, slot_before, kv);
				}
				v.next();
			}
			slot_before = slot;
		}
	}
}

/* -- products and softmax ------------------------------------------------------------------------------ */

template <class S> SM90_DEV uint64_t k_desc(uint32_t smem, uint32_t slot)
{
	return wgmma_desc_k(smem + S::K_AT + slot * S::K_BYTES);
}

template <class S> SM90_DEV uint64_t v_desc(uint32_t smem, uint32_t slot)
{
	return wgmma_desc_mn(smem + S::V_AT + slot * S::V_BYTES, S::BLOCK * 128);
}

/* s = Q K^T for 64 rows: q, k are descriptors of the first 64 columns. */
template <class S> SM90_DEV void issue_scores(float (&s)[S::BLOCK / 2], uint64_t q, uint64_t k)
{
#pragma unroll
	for (int i = 0; i < S::D_QK / 16; i++)
		wgmma_ss<S::BLOCK, __half>(s, wgmma_desc_step(q, i / 4 * (S::ROWS * 8) + i % 4 * 2),
		                           wgmma_desc_step(k, i / 4 * (S::BLOCK * 8) + i % 4 * 2), i > 0);
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

template <class T> SM90_DEV uint32_t pack2(float lo, float hi);

template <> __device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float lo, float hi)
{
	uint32_t r;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}

template <> __device__ __forceinline__ uint32_t pack2<__half>(float lo, float hi)
{
	uint32_t r;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
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
		alpha[r] = ex2(__fmul_rn(x.max[r] - m1, c));
		x.max[r] = m0;
		neg = -__fmul_rn(m1, c);
		x.sum[r] = __fmul_rn(x.sum[r], alpha[r]);

		float a0 = 0.f, a1 = 0.f;

#pragma unroll
		for (int i = 0; i < N; i += 4) {
			s[i + 2 * r] = ex2(__fmaf_rn(s[i + 2 * r], c, neg));
			s[i + 2 * r + 1] = ex2(__fmaf_rn(s[i + 2 * r + 1], c, neg));
			a0 = __fadd_rn(a0, s[i + 2 * r]);
			a1 = __fadd_rn(a1, s[i + 2 * r + 1]);
		}
		x.sum[r] = __fadd_rn(x.sum[r], __fadd_rn(a0, a1));
	}
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

/* Rows of o to memory; row: this thread's upper row in the tile. */
template <class S, class T>
SM90_DEV void store_rows(const struct args &a, const struct work &w, const float (&o)[S::D_V / 2], int row)
{
	int t = threadIdx.x % 4;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		bool on = row + 8 * r < (int)w.tile.n_rows;
		T *to = (T *)a.out + ((size_t)w.tile.row + row + 8 * r) * a.out_stride + (size_t)w.head * a.head_dim;

#pragma unroll
		for (int i = 0; i < S::D_V / 32; i++) {
			uint32_t x[4];

#pragma unroll
			for (int j = 0; j < 4; j++)
				x[j] = pack2<T>(o[16 * i + 4 * j + 2 * r], o[16 * i + 4 * j + 2 * r + 1]);
			if (a.fast_store) {
				transpose4(x);
				if (on && 32 * i + 8 * t < (int)a.head_dim)
					*(uint4 *)(to + 32 * i + 8 * t) = make_uint4(x[0], x[1], x[2], x[3]);
				continue;
			}
#pragma unroll
			for (int j = 0; j < 4; j++) {
				int column = 32 * i + 8 * j + 2 * t;

				if (on && column < (int)a.head_dim)
					((uint16_t *)to)[column] = (uint16_t)x[j];
				if (on && column + 1 < (int)a.head_dim)
					((uint16_t *)to)[column + 1] = (uint16_t)(x[j] >> 16);
			}
		}
	}
}

/* The compiler must see that a warp's threads agree on where they go: else it serialises the products. */
SM90_DEV uint32_t uniform(uint32_t x)
{
	return __shfl_sync(0xffffffffu, x, 0);
}

/* One warpgroup: rows 64 wg.. of each tile. */
template <class S, class T>
SM90_DEV void attend_all(const struct args &a, uint32_t smem, const bars<S> &b, const struct work *ring, int wg)
{
	int t = threadIdx.x % 128, lane = t % 32, row = 64 * wg + t / 32 * 16 + lane / 4;
	int baton = 1 + wg, baton_next = 1 + (wg + 1) % S::WG;
	cursor<S::Q_STAGES> q = {0, 0};
	cursor<S::K_STAGES> k = {0, 0};
	cursor<S::V_STAGES> v = {0, 0};
	cursor<2> w = {0, 0};
	float s[S::BLOCK / 2], o[S::D_V / 2], alpha[2];
	uint32_t p[S::BLOCK / 4];
	struct softmax x;

	if (S::BATON && wg == S::WG - 1)
		bar_arrive(1, 256);
	for (;;) {
		mbar_wait(b.w_full + 8 * w.slot, w.phase);
		const struct work *it = ring + w.slot;
		if (!uniform(it->go))
			break;

		int n_rows = (int)uniform(it->tile.n_rows), pos0 = (int)uniform(it->tile.pos0);
		int n = (pos0 + n_rows - 1) / S::BLOCK + 1;
		int rows = min(n_rows - 64 * wg, 64), first = pos0 + 64 * wg;
		int mine = rows > 0 ? (first + rows - 1) / S::BLOCK + 1 : 0; /* panels that some row here sees */
		uint64_t desc_q = wgmma_desc_k(smem + q.slot * S::Q_BYTES + wg * 64 * 128);

		for (int i = n - 1; i >= mine; i--) {
			mbar_wait(b.k_full + 8 * k.slot, k.phase);
			if (lane == 0)
				mbar_arrive(b.k_empty + 8 * k.slot);
			k.next();
			if (S::BATON && i > 0) {
				bar_sync(baton, 256);
				bar_arrive(baton_next, 256);
			}
			mbar_wait(b.v_full + 8 * v.slot, v.phase);
			if (lane == 0)
				mbar_arrive(b.v_empty + 8 * v.slot);
			v.next();
		}
		mbar_wait(b.q_full + 8 * q.slot, q.phase);
		if (mine > 0) {
			int last = first + row - 64 * wg - lane % 4 * 2; /* upper row: position less first column */

			x.max[0] = x.max[1] = -INFINITY;
			x.sum[0] = x.sum[1] = 0.f;
#pragma unroll
			for (int i = 0; i < S::D_V / 2; i++)
				o[i] = 0.f;
			mbar_wait(b.k_full + 8 * k.slot, k.phase);
			wgmma_fence();
			issue_scores<S>(s, desc_q, k_desc<S>(smem, k.slot));
			wgmma_wait<0>();
			wgmma_pin(s);
			if (lane == 0)
				mbar_arrive(b.k_empty + 8 * k.slot);
			k.next();
			mask_scores(s, last - (mine - 1) * S::BLOCK);
			softmax_step(s, x, alpha, a.scale_log2);
			if (mine > 1)
				mbar_wait(b.k_full + 8 * k.slot, k.phase);
			pack_rows<T>(p, s);
			for (int i = mine - 2; i >= 0; i--) {
				mbar_wait(b.v_full + 8 * v.slot, v.phase);
				if (S::BATON)
					bar_sync(baton, 256);
				wgmma_fence();
				issue_scores<S>(s, desc_q, k_desc<S>(smem, k.slot));
				issue_values<S, T>(o, p, v_desc<S>(smem, v.slot));
				if (S::BATON)
					bar_arrive(baton_next, 256);
				wgmma_wait<1>();
				wgmma_pin(s);
				if (lane == 0)
					mbar_arrive(b.k_empty + 8 * k.slot);
				k.next();
				if ((i + 1) * S::BLOCK - 1 > first)
					mask_scores(s, last - i * S::BLOCK);
				softmax_step(s, x, alpha, a.scale_log2);
				/* This branch also keeps ptxas from moving the wait below up over the softmax. */
				if (i > 0)
					mbar_wait(b.k_full + 8 * k.slot, k.phase);
				wgmma_wait<0>();
				wgmma_pin(o);
				wgmma_pin(s);
				if (lane == 0)
					mbar_arrive(b.v_empty + 8 * v.slot);
				v.next();
				pack_rows<T>(p, s);
				scale_rows(o, alpha);
			}
		}
		if (lane == 0)
			mbar_arrive(b.q_empty + 8 * q.slot);
		q.next();
		if (mine > 0) {
			mbar_wait(b.v_full + 8 * v.slot, v.phase);
			wgmma_fence();
			issue_values<S, T>(o, p, v_desc<S>(smem, v.slot));
#pragma unroll
			for (int r = 0; r < 2; r++) {
				x.sum[r] = __fadd_rn(x.sum[r], __shfl_xor_sync(0xffffffffu, x.sum[r], 1));
				x.sum[r] = __fadd_rn(x.sum[r], __shfl_xor_sync(0xffffffffu, x.sum[r], 2));
				alpha[r] = rcp(x.sum[r]);
			}
			wgmma_wait<0>();
			wgmma_pin(o);
			if (lane == 0)
				mbar_arrive(b.v_empty + 8 * v.slot);
			v.next();
			scale_rows(o, alpha);
			store_rows<S, T>(a, *it, o, row);
		}
		if (lane == 0)
			mbar_arrive(b.w_empty + 8 * w.slot);
		w.next();
	}
	if (S::BATON && wg == 0)
		bar_sync(1, 256);
}

template <class S, class T>
__global__ void __launch_bounds__(S::THREADS, 1)
        attention_kernel(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                         const __grid_constant__ CUtensorMap mv, const __grid_constant__ struct args a)
{
	extern __shared__ char raw[];
	__shared__ struct work ring[2];
	uint32_t smem = (smem_u32(raw) + 1023) & ~1023u;
	bars<S> b(smem + S::BARS_AT);
	int wg = warpgroup_index();

	if (threadIdx.x == 0) {
		for (uint32_t at = b.q_full; at < b.end; at += 8) {
			bool empty = (at >= b.q_empty && at < b.k_full) || (at >= b.k_empty && at < b.v_full) ||
			             (at >= b.v_empty && at < b.w_full) || at >= b.w_empty;

			mbar_init(at, empty ? 4 * S::WG : 1);
		}
		mbar_init_fence();
		tma_prefetch_map(&mq);
		tma_prefetch_map(&mk);
		tma_prefetch_map(&mv);
	}
	__syncthreads();
	if (wg == S::WG) {
		regs_give<S::PRODUCER_REGS>();
		if (warp_index() == 4 * S::WG)
			load_all<S>(a, &mq, &mk, &mv, smem, b, ring);
	} else {
		regs_take<S::CONSUMER_REGS>();
		attend_all<S, T>(a, smem, b, ring, wg);
	}
}

/* -- host ---------------------------------------------------------------------------------------------- */

/* [n, rows, width] of halves in boxes of 64 columns and `box` rows. */
static int map_heads(CUtensorMap *map, bool bf16, const void *base, uint32_t n, uint32_t rows, uint32_t width,
                     uint32_t box)
{
	uint64_t dims[3] = {width, rows, n}, stride[2] = {2ull * width, 2ull * width * rows};
	uint32_t boxes[3] = {64, box, 1};

	return tma_map_2b(map, bf16, base, 3, dims, stride, boxes);
}

/* Heads that run together: as many as keep their keys and values in a part of L2, but enough to fill the device. */
static uint32_t head_group(const struct kern_attention_cuda *a, uint32_t n_sm, size_t slot_bytes)
{
	uint32_t rep = a->n_head / a->n_kv_head, fit, fill;

	fit = (uint32_t)((size_t)(32 << 20) / (slot_bytes * a->n_slots)) * rep;
	fill = (3 * n_sm + a->n_tiles - 1) / a->n_tiles;
	if (fit < fill)
		fit = (fill + rep - 1) / rep * rep;
	return fit < a->n_head ? fit : a->n_head;
}

template <class S, class T> static int launch(const struct kern_attention_cuda *a, int device, cudaStream_t stream)
{
	static bool ready[64]; /* per device: the attribute is set; a race sets it twice */
	CUtensorMap mq, mk, mv;
	struct args args = {};
	int n_sm, e;

	if ((e = cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device)))
		return e;
	if (device < 0 || device >= 64 || !ready[device]) {
		if ((e = cudaFuncSetAttribute(attention_kernel<S, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
		                              S::SMEM)))
			return e;
		if (device >= 0 && device < 64)
			ready[device] = true;
	}
	if ((e = map_heads(&mq, false, a->q, a->n_head, a->q_rows, S::D_QK, S::ROWS)) ||
	    (e = map_heads(&mk, false, a->k, a->n_kv_head, a->n_slots, S::D_QK, S::BLOCK)) ||
	    (e = map_heads(&mv, a->type == KERN_BF16, a->v, a->n_kv_head, a->n_slots, S::D_V, S::BLOCK)))
		return e;
	args.out = a->out;
	args.tiles = a->tiles;
	args.panels = a->panels;
	args.counter = a->counter;
	args.n_tiles = a->n_tiles;
	args.n_head = a->n_head;
	args.rep = a->n_head / a->n_kv_head;
	args.group = head_group(a, (uint32_t)n_sm, 2 * (S::D_QK + S::D_V));
	args.head_dim = a->head_dim;
	args.out_stride = a->out_stride;
	args.fast_store = a->head_dim % 8 == 0 && a->out_stride % 8 == 0 && (uintptr_t)a->out % 16 == 0;
	args.scale_log2 = (float)(a->scale * 1.4426950408889634);
	if ((e = cudaMemsetAsync(a->counter, 0, sizeof *a->counter, stream)))
		return e;
	attention_kernel<S, T><<<n_sm, S::THREADS, S::SMEM, stream>>>(mq, mk, mv, args);
	return cudaGetLastError();
}

template <class S> static int launch_type(const struct kern_attention_cuda *a, int device, cudaStream_t stream)
{
	if (a->type == KERN_BF16)
		return launch<S, __nv_bfloat16>(a, device, stream);
	return launch<S, __half>(a, device, stream);
}

template <class S> static int shape_of(uint32_t *tile_rows, uint32_t *block)
{
	*tile_rows = S::ROWS;
	*block = S::BLOCK;
	return 0;
}

int kern_attention_sm90_shape(uint32_t d_qk, uint32_t d_v, uint32_t *tile_rows, uint32_t *block)
{
	if (d_qk == 64 && d_v == 64)
		return shape_of<shape_64_64>(tile_rows, block);
	if (d_qk == 128 && d_v == 64)
		return shape_of<shape_128_64>(tile_rows, block);
	if (d_qk == 128 && d_v == 128)
		return shape_of<shape_128_128>(tile_rows, block);
	if (d_qk == 256 && d_v == 128)
		return shape_of<shape_256_128>(tile_rows, block);
	return -1;
}

int kern_attention_sm90(const struct kern_attention_cuda *a, int device, struct CUstream_st *stream)
{
	if ((a->type != KERN_BF16 && a->type != KERN_F16) || !a->head_dim || a->head_dim > 128 || !a->n_kv_head ||
	    a->n_head % a->n_kv_head)
		return cudaErrorInvalidValue;
	if (!a->n_tiles)
		return cudaSuccess;
	if (a->head_dim <= 64 && !a->pope)
		return launch_type<shape_64_64>(a, device, stream);
	if (a->head_dim <= 64)
		return launch_type<shape_128_64>(a, device, stream);
	if (!a->pope)
		return launch_type<shape_128_128>(a, device, stream);
	return launch_type<shape_256_128>(a, device, stream);
}
