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
#include "kernels/attention.cuh"
#include "kernels/attention_sm90.cuh"
#include "kernels/sm90.cuh"

/* D_QK, D_V as stored; WG warpgroups of 64 rows; BLOCK keys of a panel; how many panels of K and of V and tiles of Q
 * are held; Q_REGS: a warpgroup takes its queries to registers, which saves shared memory's bandwidth, and power; LAZY:
 * sums of values are not scaled where no factor of the warp differs from 1. */
template <int D_QK_, int D_V_, int WG_, int BLOCK_, int K_STAGES_, int V_STAGES_, int Q_STAGES_, bool Q_REGS_,
          bool LAZY_>
struct shape {
	static const int D_QK = D_QK_, D_V = D_V_, WG = WG_, BLOCK = BLOCK_;
	static const int K_STAGES = K_STAGES_, V_STAGES = V_STAGES_, Q_STAGES = Q_STAGES_;
	static const bool Q_REGS = Q_REGS_, LAZY = LAZY_;
	static const int ROWS = 64 * WG, THREADS = 128 * (WG + 1);
	static const int Q_BYTES = ROWS * D_QK * 2, K_BYTES = BLOCK * D_QK * 2, V_BYTES = BLOCK * D_V * 2;
	static const int K_AT = Q_STAGES * Q_BYTES, V_AT = K_AT + K_STAGES * K_BYTES;
	static const int BARS_AT = V_AT + V_STAGES * V_BYTES;
	static const int SMEM = BARS_AT + 512 + 1024; /* 1024: to align the tiles */
	static const int CONSUMER_REGS = WG == 3 ? 160 : 240, PRODUCER_REGS = WG == 3 ? 32 : 24;
};

/* An H200 runs these at the limit of its power: 1.4 to 1.7 GHz, tensor cores 60 to 93 % busy. */
using shape_64_64 = shape<64, 64, 3, 128, 2, 2, 2, false, true>;
using shape_128_64 = shape<128, 64, 3, 128, 2, 2, 2, false, true>;
using shape_128_128 = shape<128, 128, 2, 128, 3, 3, 1, true, false>;
using shape_256_128 = shape<256, 128, 2, 96, 2, 2, 1, true, true>;

enum { W_STAGES = 4 }; /* pieces of work under way */

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
	uint32_t head, kv_head, go;
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

	__device__ __forceinline__ void prev(void)
	{
		if (slot-- == 0) {
			slot = STAGES - 1;
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
		w_empty = w_full + 8 * W_STAGES;
		end = w_empty + 8 * W_STAGES;
	}
};

/* -- the loader -------------------------------------------------------------------------------------- */

template <class S> SM90_DEV int panels_of(const struct kern_tile &t)
{
	return (int)((t.pos0 + t.n_rows - 1) / S::BLOCK) + 1;
}

/* Panel `first` of a tile's chain in lane 0, the one before it in lane 1 .. */
SM90_DEV uint32_t panels_at(const struct args &a, const struct kern_tile &t, int first)
{
	int i = first - (int)(threadIdx.x % 32);

	return i < 0 ? 0 : a.panels[t.panels + i];
}

/* Piece i of the launch's work (groups of heads, in them tiles, in them heads), and panels_at its last panel. */
template <class S> SM90_DEV uint32_t work_at(struct work *w, const struct args &a, uint32_t i)
{
	uint32_t per_group = a.n_tiles * a.group, g = i / per_group, in = i - g * per_group, heads, t;

	w->go = i < a.n_tiles * a.n_head;
	if (!w->go)
		return 0;
	heads = min(a.group, a.n_head - g * a.group); /* the last group may have fewer */
	t = in / heads;
	w->tile = a.tiles[t];
	w->head = g * a.group + in - t * heads;
	w->kv_head = w->head / a.rep;
	return panels_at(a, w->tile, panels_of<S>(w->tile) - 1);
}

template <int CHUNKS, int BLOCK>
SM90_DEV void load_panel(uint32_t to, const CUtensorMap *map, uint32_t bar, int slot, int head)
{
	mbar_arrive_expect(bar, CHUNKS * BLOCK * 128);
	for (int c = 0; c < CHUNKS; c++)
		tma_load_3d(to + c * BLOCK * 128, map, bar, c * 64, slot, head);
}

/* One warp. Loads in the order of consumption: Q, K of the first panel, then K of the next one before V of each. */
template <class S>
SM90_DEV void load_all(const struct args &a, const CUtensorMap *mq, const CUtensorMap *mk, const CUtensorMap *mv,
                       uint32_t smem, const bars<S> &b, struct work *ring)
{
	int lane = threadIdx.x % 32;
	uint32_t number = blockIdx.x;
	cursor<S::Q_STAGES> q = {0, 0};
	cursor<S::K_STAGES> k = {0, 0};
	cursor<S::V_STAGES> v = {0, 0};
	cursor<W_STAGES> w = {0, 0};
	struct work next;
	uint32_t panels = work_at<S>(&next, a, number);

	for (;;) {
		struct work it = next;
		int n = panels_of<S>(it.tile), slot = 0;

		mbar_wait(b.w_empty + 8 * w.slot, w.phase ^ 1);
		if (lane == 0) {
			ring[w.slot] = it;
			mbar_arrive(b.w_full + 8 * w.slot);
		}
		w.next();
		if (!it.go)
			return;
		mbar_wait(b.q_empty + 8 * q.slot, q.phase ^ 1);
		if (lane == 0) {
			mbar_arrive_expect(b.q_full + 8 * q.slot, S::Q_BYTES);
			for (int c = 0; c < S::D_QK / 64; c++)
				tma_load_3d(smem + q.slot * S::Q_BYTES + c * S::ROWS * 128, mq, b.q_full + 8 * q.slot,
				            c * 64, it.tile.row, it.head);
		}
		q.next();
		for (int i = 0; i <= n; i++) {
			int slot_before = slot;

			/* Late, so that no other block of threads could have begun it; early enough to come in time. */
			if (i == max(n - 3, 0) && lane == 0)
				number = gridDim.x + atomicAdd(a.counter, 1);
			if (i < n) {
				if (i % 32 == 0 && i > 0)
					panels = panels_at(a, it.tile, n - 1 - i);
				slot = (int)(__shfl_sync(0xffffffffu, panels, i % 32) * S::BLOCK);
				mbar_wait(b.k_empty + 8 * k.slot, k.phase ^ 1);
				if (lane == 0)
					load_panel<S::D_QK / 64, S::BLOCK>(smem + S::K_AT + k.slot * S::K_BYTES, mk,
					                                   b.k_full + 8 * k.slot, slot, it.kv_head);
				k.next();
			} else {
				number = __shfl_sync(0xffffffffu, number, 0);
				panels = work_at<S>(&next, a, number);
			}
			if (i > 0) {
				mbar_wait(b.v_empty + 8 * v.slot, v.phase ^ 1);
				if (lane == 0)
					load_panel<S::D_V / 64, S::BLOCK>(smem + S::V_AT + v.slot * S::V_BYTES, mv,
					                                  b.v_full + 8 * v.slot, slot_before,
					                                  it.kv_head);
				v.next();
			}
		}
	}
}

/* -- the warpgroups ------------------------------------------------------------------------------------- */

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

/* A piece of work as a warpgroup sees it. */
struct item {
	bool go;   /* there is one */
	int n;     /* panels */
	int mine;  /* those that some row here sees; 0: no rows here */
	int first; /* position of the warpgroup's first row */
};

template <class S> SM90_DEV struct item item_wait(const struct work *ring, const bars<S> &b, cursor<W_STAGES> w, int wg)
{
	struct item it;

	mbar_wait(b.w_full + 8 * w.slot, w.phase);

	const struct work *from = ring + w.slot;
	int n_rows = (int)uniform(from->tile.n_rows), pos0 = (int)uniform(from->tile.pos0);
	int rows = min(n_rows - 64 * wg, 64);

	it.go = uniform(from->go);
	it.n = (pos0 + n_rows - 1) / S::BLOCK + 1;
	it.first = pos0 + 64 * wg;
	it.mine = rows > 0 ? (it.first + rows - 1) / S::BLOCK + 1 : 0;
	return it;
}

/* Says that this warp is done with the slot of a ring, whose barriers of that kind start at `empty`. */
template <int STAGES> SM90_DEV void release(uint32_t empty, cursor<STAGES> *c)
{
	if (threadIdx.x % 32 == 0)
		mbar_arrive(empty + 8 * c->slot);
	c->next();
}

/* A panel that goes by: it must have come before it may be released. */
template <int STAGES> SM90_DEV void skip_slot(uint32_t full, uint32_t empty, cursor<STAGES> *c)
{
	mbar_wait(full + 8 * c->slot, c->phase);
	release(empty, c);
}

/* Warpgroups issue products one after the other: barrier 1 + wg says that it is wg's turn. Per tile, each takes as many
 * turns as there are panels. */
SM90_DEV void turn_begin(int wg)
{
	bar_sync(1 + wg, 256);
}

template <class S> SM90_DEV void turn_end(int wg)
{
	bar_arrive(1 + (wg + 1) % S::WG, 256);
}

/* One warpgroup: rows 64 wg.. of each tile. One loop runs over the panels of all tiles: a tile's last product with V is
 * issued behind the first scores of the next one. */
template <class S, class T>
SM90_DEV void attend_all(const struct args &a, uint32_t smem, const bars<S> &b, const struct work *ring, int wg)
{
	int t = threadIdx.x % 128, row = 64 * wg + t / 32 * 16 + t % 32 / 4;
	int own = row - 64 * wg - t % 4 * 2; /* the upper row, less this thread's first column */
	cursor<S::Q_STAGES> q = {0, 0};
	cursor<S::K_STAGES> k = {0, 0};
	cursor<S::V_STAGES> v = {0, 0};
	cursor<W_STAGES> w = {0, 0};
	float s[S::BLOCK / 2], o[S::D_V / 2], alpha[2], sum[2];
	uint32_t p[S::BLOCK / 4];
	struct queries<S> queries;
	struct softmax x;
	struct item it;

	if (wg == S::WG - 1)
		bar_arrive(1, 256);
	it = item_wait(ring, b, w, wg);
	while (it.go) {
		/* Nothing is under way. Panels that no row here sees go by. */
		for (int i = it.n; i > it.mine; i--) {
			skip_slot(b.k_full, b.k_empty, &k);
			turn_begin(wg);
			turn_end<S>(wg);
			skip_slot(b.v_full, b.v_empty, &v);
		}
		mbar_wait(b.q_full + 8 * q.slot, q.phase);
		if (!it.mine) {
			release(b.q_empty, &q);
			release(b.w_empty, &w);
			it = item_wait(ring, b, w, wg);
			continue;
		}
		queries_load(&queries, smem + q.slot * S::Q_BYTES, wg);
		if (S::Q_REGS)
			release(b.q_empty, &q);
		mbar_wait(b.k_full + 8 * k.slot, k.phase);
		turn_begin(wg);
		wgmma_fence();
		issue_scores<S>(s, queries, k_desc<S>(smem, k.slot));
		turn_end<S>(wg);
		wgmma_wait<0>();
		wgmma_pin(s);
		release(b.k_empty, &k);
		softmax_init(&x);
		zero(o);

		int i = it.mine - 1;
		mask_scores(s, it.first + own - i * S::BLOCK);
		softmax_step(s, x, alpha, a.scale_log2);
		if (i > 0)
			mbar_wait(b.k_full + 8 * k.slot, k.phase);
		pack_rows<T>(p, s);
		for (;;) {
			/* P of panel i waits for its V; next are the scores of panel i - 1, or of the next tile. */
			bool edge = i == 0;
			int skip = 0;
			cursor<W_STAGES> done = w;

			if (edge) {
				if (!S::Q_REGS)
					release(b.q_empty, &q);
				w.next();
				it = item_wait(ring, b, w, wg);
				i = it.mine;
				skip = it.n - i;
				if (!it.go || !i || skip > 1)
					break;
				if (skip) {
					skip_slot(b.k_full, b.k_empty, &k);
					turn_begin(wg);
					turn_end<S>(wg);
				}
				mbar_wait(b.q_full + 8 * q.slot, q.phase);
				queries_load(&queries, smem + q.slot * S::Q_BYTES, wg);
				if (S::Q_REGS)
					release(b.q_empty, &q);
				mbar_wait(b.k_full + 8 * k.slot, k.phase);
			}
			i--;
			mbar_wait(b.v_full + 8 * v.slot, v.phase);
			turn_begin(wg);
			wgmma_fence();
			issue_scores<S>(s, queries, k_desc<S>(smem, k.slot));
			issue_values<S, T>(o, p, v_desc<S>(smem, v.slot));
			turn_end<S>(wg);
			wgmma_wait<1>();
			wgmma_pin(s);
			release(b.k_empty, &k);
			if (edge) {
				row_factors(sum, x.sum);
				softmax_init(&x);
			}
			if ((i + 1) * S::BLOCK - 1 > it.first)
				mask_scores(s, it.first + own - i * S::BLOCK);
			softmax_step(s, x, alpha, a.scale_log2);
			/* The pin and the branch keep the compiler from moving the exponentials behind the wait. With
			 * three warpgroups there is enough to overlap without: 3 % faster if it may. */
			if (S::WG == 2)
				wgmma_pin(s);
			if (i > 0)
				mbar_wait(b.k_full + 8 * k.slot, k.phase);
			wgmma_wait<0>();
			wgmma_pin(o);
			wgmma_pin(s);
			release(b.v_empty, &v);
			pack_rows<T>(p, s);
			if (edge) {
				scale_rows(o, sum);
				store_rows<S, T>(a, ring[done.slot], o, row);
				release(b.w_empty, &done);
				zero(o);
				if (skip)
					skip_slot(b.v_full, b.v_empty, &v);
			} else if (!S::LAZY || __any_sync(0xffffffffu, alpha[0] != 1.f || alpha[1] != 1.f)) {
				scale_rows(o, alpha);
			}
		}
		mbar_wait(b.v_full + 8 * v.slot, v.phase);
		wgmma_fence();
		issue_values<S, T>(o, p, v_desc<S>(smem, v.slot));
		row_factors(sum, x.sum);
		wgmma_wait<0>();
		wgmma_pin(o);
		release(b.v_empty, &v);
		scale_rows(o, sum);
		w.prev();
		store_rows<S, T>(a, ring[w.slot], o, row);
		release(b.w_empty, &w);
	}
	if (wg == 0)
		bar_sync(1, 256);
}

template <class S, class T>
__global__ void __launch_bounds__(S::THREADS, 1)
        attention_kernel(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                         const __grid_constant__ CUtensorMap mv, const __grid_constant__ struct args a)
{
	extern __shared__ char raw[];
	__shared__ struct work ring[W_STAGES];
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
