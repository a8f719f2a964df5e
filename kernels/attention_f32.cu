/* Attention in f32 by plain FFMA, for any width: the check of everything else, and what a model in f32 runs.
 *
 * A block has ROWS query rows of one head and walks the chain by steps of STEP keys from position 0. Its 16 x 16
 * threads have 4 x 4 scores each, and 4 rows by DV / 16 columns of the output. Channels pass through shared memory
 * CHANNELS at a time, channel first, so that a thread's four rows or keys are one vector.
 *
 * Bits of a row: each score is one chain of fused products, channels ascending; so is each output, keys ascending. */
#include "kernels/attention_tile.cuh"

#define ROWS     64
#define STEP     64
#define CHANNELS 32
#define KEYS     16 /* of a step, whose values are in shared memory */
#define PITCH    (ROWS + 4) /* a vector's four banks off from row to row */
#define THREADS  256

namespace {

template <int DV>
struct memory {
	float p[STEP][PITCH]; /* probabilities, key first */
	union {
		struct {
			float q[CHANNELS][PITCH], k[CHANNELS][PITCH];
		};
		float v[KEYS][DV];
	};
};

/* A thread's four rows. */
template <int DV>
struct state {
	float o[4][DV / 16]; /* columns 4 tx + 64 i and the three after */
	float max[4], sum[4];
};

__device__ __forceinline__ void load4(float (&x)[4], const float *p)
{
	load<float, 4>(x, p);
}

/* s += q k^T over one chunk of channels */
template <int DV>
__device__ __forceinline__ void scores(float (&s)[4][4], const struct memory<DV> &m, int tx, int ty)
{
#pragma unroll 8
	for (int c = 0; c < CHANNELS; c++) {
		float q[4], k[4];

		load4(q, &m.q[c][4 * ty]);
		load4(k, &m.k[c][4 * tx]);
#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				s[i][j] = fmaf(q[i], k[j], s[i][j]);
	}
}

/* Masks, and turns scores to probabilities in m.p. The 16 threads of a row are half a warp. */
template <int DV>
__device__ __forceinline__ void softmax(struct memory<DV> &m, struct state<DV> &t, float (&s)[4][4], int seen,
                                        float scale, int tx, int ty)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float old = t.max[i], max = old, alpha, sum = 0;

#pragma unroll
		for (int j = 0; j < 4; j++) {
			s[i][j] = 4 * tx + j > seen + 4 * ty + i ? -INFINITY : s[i][j];
			max = fmaxf(max, s[i][j]);
		}
#pragma unroll
		for (int d = 1; d < 16; d *= 2)
			max = fmaxf(max, __shfl_xor_sync(FULL, max, d));
		alpha = exp2f((old - max) * scale);
#pragma unroll
		for (int j = 0; j < 4; j++) {
			s[i][j] = exp2f((s[i][j] - max) * scale);
			sum += s[i][j];
		}
		t.max[i] = max;
		t.sum[i] = fmaf(t.sum[i], alpha, sum);
#pragma unroll
		for (int j = 0; j < DV / 16; j++)
			t.o[i][j] *= alpha;
	}
#pragma unroll
	for (int j = 0; j < 4; j++) {
		const float p[4] = {s[0][j], s[1][j], s[2][j], s[3][j]};

		store(&m.p[4 * tx + j][4 * ty], p);
	}
}

/* o += p v over KEYS keys from key0 of the step */
template <int DV>
__device__ __forceinline__ void values(struct state<DV> &t, const struct memory<DV> &m, int key0, int tx, int ty)
{
#pragma unroll 4
	for (int key = 0; key < KEYS; key++) {
		float p[4], v[4];

		load4(p, &m.p[key0 + key][4 * ty]);
#pragma unroll
		for (int n = 0; n < DV / 64; n++) {
			load4(v, &m.v[key][64 * n + 4 * tx]);
#pragma unroll
			for (int i = 0; i < 4; i++)
#pragma unroll
				for (int j = 0; j < 4; j++)
					t.o[i][4 * n + j] = fmaf(p[i], v[j], t.o[i][4 * n + j]);
		}
	}
}

/* Four channels of a row to the columns of `to`; zeros where there is no row or no channel. */
__device__ __forceinline__ void fetch4(float (*to)[PITCH], int row, int channel, const float *from, bool there)
{
	float x[4] = {0, 0, 0, 0};

	if (there)
		load4(x, from);
#pragma unroll
	for (int i = 0; i < 4; i++)
		to[channel + i][row] = x[i];
}

template <int DV>
__global__ void __launch_bounds__(THREADS) attend(const struct attention_args a, const uint32_t parts)
{
	__shared__ __align__(16) struct memory<DV> m;
	const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, d_qk = (int)a.d_qk, d_v = (int)a.d_v;
	const uint32_t head = blockIdx.y, kv_head = head / a.group;
	struct kern_tile tile = a.tiles[blockIdx.x / parts];
	const uint32_t part_row = blockIdx.x % parts * ROWS;

	if (part_row >= tile.n_rows)
		return;
	tile.row += part_row;
	tile.pos0 += part_row;
	tile.n_rows = min(tile.n_rows - part_row, (uint32_t)ROWS);

	const float *q = static_cast<const float *>(a.q) + ((size_t)head * a.q_rows + tile.row) * d_qk;
	const float *k = static_cast<const float *>(a.k) + (size_t)kv_head * a.n_slots * d_qk;
	const float *v = static_cast<const float *>(a.v) + (size_t)kv_head * a.n_slots * d_v;
	const int pos0 = (int)tile.pos0, n_rows = (int)tile.n_rows, last = pos0 + n_rows - 1;
	const int own_row = threadIdx.x % 64, own_part = threadIdx.x / 64 * 4; /* of q and k, while fetching */
	struct chain_at at = chain_begin(a, tile);
	struct state<DV> t;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		t.max[i] = -INFINITY;
		t.sum[i] = 0;
#pragma unroll
		for (int j = 0; j < DV / 16; j++)
			t.o[i][j] = 0;
	}
	for (int key0 = 0; key0 <= last; key0 += STEP, chain_advance(&at, STEP)) {
		float s[4][4] = {};
		bool there;
		const float *key = k + (size_t)(chain_slot(at, own_row / 16 * 16, &there) + own_row % 16) * d_qk;

		for (int c0 = 0; c0 < d_qk; c0 += CHANNELS) {
			__syncthreads();
#pragma unroll
			for (int c = own_part; c < CHANNELS; c += 16) {
				fetch4(m.q, own_row, c, q + (size_t)own_row * d_qk + c0 + c,
				       own_row < n_rows && c0 + c < d_qk);
				fetch4(m.k, own_row, c, key + c0 + c, there && c0 + c < d_qk);
			}
			__syncthreads();
			scores(s, m, tx, ty);
		}
		softmax(m, t, s, pos0 - key0, a.scale_log2e, tx, ty);
		for (int g = 0; g < STEP; g += KEYS) {
			const float *value = v + (size_t)chain_slot(at, g, &there) * d_v;

			__syncthreads();
#pragma unroll
			for (int i = threadIdx.x; i < KEYS * DV / 4; i += THREADS) {
				int r = i / (DV / 4), c = i % (DV / 4) * 4;
				float x[4] = {0, 0, 0, 0};

				if (there && c < d_v)
					load4(x, value + r * d_v + c);
				store(&m.v[r][c], x);
			}
			__syncthreads();
			values(t, m, g, tx, ty);
		}
	}
	for (int i = 0; i < 4; i++) {
		float sum = t.sum[i];
		float *out = static_cast<float *>(a.out) + (size_t)(tile.row + 4 * ty + i) * a.out_stride +
		             (size_t)head * a.head_dim;

#pragma unroll
		for (int d = 1; d < 16; d *= 2)
			sum += __shfl_xor_sync(FULL, sum, d);
		if (4 * ty + i < n_rows)
#pragma unroll
			for (int j = 0; j < DV / 16; j++)
				if (j / 4 * 64 + 4 * tx + j % 4 < (int)a.head_dim)
					out[j / 4 * 64 + 4 * tx + j % 4] = t.o[i][j] / sum;
	}
}

template <int DV>
int launch(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
           struct CUstream_st *stream)
{
	uint32_t parts = ceil_div(tile_rows, (uint32_t)ROWS);

	attend<DV><<<dim3(n_tiles * parts, n_head), THREADS, 0, stream>>>(*a, parts);
	return launched();
}

} // namespace

int attention_f32(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
                  struct CUstream_st *stream)
{
	if (a->d_qk % 4 || a->d_v % 4)
		return BAD_ARGS;
	if (a->d_v <= 64)
		return launch<64>(a, n_tiles, n_head, tile_rows, stream);
	if (a->d_v <= 128)
		return launch<128>(a, n_tiles, n_head, tile_rows, stream);
	if (a->d_v <= 256)
		return launch<256>(a, n_tiles, n_head, tile_rows, stream);
	return BAD_ARGS;
}
