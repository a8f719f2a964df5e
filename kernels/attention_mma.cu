/* Attention by mma.sync: every half-type shape on cards from sm_80 on; on Hopper the check of attention_sm90.cu.
 *
 * A block of WARPS warps has 16 WARPS FRAGS query rows of one tile and one head, and walks the chain by steps of STEP
 * keys from position 0. Keys of a step are fetched while the step before multiplies values, values while keys are
 * multiplied: one buffer of each is enough, and several blocks fit on a multiprocessor and fill each other's gaps.
 *
 * Bits of a row: scores add channels in ascending order, 16 at a time; a step's maximum, probabilities and sum belong
 * to the step alone; values are added keys ascending, 16 at a time. A step that a row does not see multiplies by
 * exactly 1 and adds exactly 0, so where tiles begin and end, and which steps a warp skips, does not show. */
#include "kernels/attention_tile.cuh"

#define STEP 64

namespace {

/* What a kernel of (DQK, DV) is made of. FRAGS: fragments of 16 rows in a warp; a fragment of keys or values read from
 * shared memory serves all of them. QREG: queries stay in registers. BLOCKS: on a multiprocessor, as registers go. */
template <int DQK_, int DV_, typename T_, int WARPS_, int FRAGS_, bool QREG_, int BLOCKS_>
struct config {
	static constexpr int DQK = DQK_, DV = DV_, WARPS = WARPS_, FRAGS = FRAGS_, BLOCKS = BLOCKS_;
	static constexpr bool QREG = QREG_;
	static constexpr int ROWS = 16 * WARPS * FRAGS, THREADS = WARP * WARPS;
	static constexpr int Q_BYTES = 2 * ROWS * DQK, K_BYTES = 2 * STEP * DQK, V_BYTES = 2 * STEP * DV;
	static constexpr int BYTES = Q_BYTES + K_BYTES + V_BYTES;
	typedef T_ T;
};

/* -- instructions ----------------------------------------------------------------------------------- */

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes, or zeros */
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0)
	             : "memory");
}

__device__ __forceinline__ void copies_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void copies_wait()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void load_fragments(uint32_t (&f)[4], uint32_t at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
	             : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
	             : "r"(at)
	             : "memory");
}

__device__ __forceinline__ void load_fragments_transposed(uint32_t (&f)[4], uint32_t at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
	             : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
	             : "r"(at)
	             : "memory");
}

/* c[16, 8] += a[16, 16] b[16, 8]. Lane 4 g + t holds c of rows g and g + 8, columns 2 t and 2 t + 1. */
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
	             "{%8, %9}, {%0, %1, %2, %3};"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __nv_bfloat16)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
	             "{%8, %9}, {%0, %1, %2, %3};"
	             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* -- shared memory ----------------------------------------------------------------------------------- */

/* Rows of D half-type numbers, in chunks of 16 bytes; chunk c of row r lies at c ^ (r & 7), so that eight rows' chunk c
 * are in eight different groups of banks. A row is a multiple of 128 bytes, hence the low three bits of c are bits 4 to
 * 6 of the address. */
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row_bytes, uint32_t row, uint32_t chunk)
{
	return row * row_bytes + ((chunk ^ (row & 7)) << 4);
}

/* Address of chunk 2 i + (the lane's own low bit), of a lane whose chunk of i = 0 is at `lane`. */
__device__ __forceinline__ uint32_t at_pair(uint32_t lane, int i)
{
	return (lane ^ ((i & 3) << 5)) + (i >> 2) * 128;
}

/* Keys or values of a step, 16 at a time from one panel each. Beyond the chain's panels: zeros. */
template <int D, int THREADS>
__device__ __forceinline__ void fetch_step(uint32_t to, const void *from, struct chain_at at)
{
	constexpr int CHUNKS = D / 8, PASS = THREADS / CHUNKS;
	uint32_t row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
	const char *group = nullptr;
	bool there = false;

#pragma unroll
	for (int i = 0; i < STEP / PASS; i++) {
		uint32_t r = row + i * PASS;

		if (i * PASS % 16 == 0) {
			uint32_t slot = chain_slot(at, r / 16 * 16, &there);

			group = static_cast<const char *>(from) + (size_t)slot * (2 * D);
		}
		copy16(to + chunk_offset(2 * D, r, chunk), group + (r % 16 * (2 * D) + chunk * 16), there);
	}
}

template <int D, int THREADS, int ROWS>
__device__ __forceinline__ void fetch_queries(uint32_t to, const void *from, uint32_t n_rows)
{
	constexpr int CHUNKS = D / 8, PASS = THREADS / CHUNKS;
	uint32_t row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;

#pragma unroll
	for (int i = 0; i < ROWS / PASS; i++) {
		uint32_t r = row + i * PASS;
		bool there = r < n_rows;

		copy16(to + chunk_offset(2 * D, r, chunk),
		       static_cast<const char *>(from) + (there ? r * (2 * D) + chunk * 16 : 0), there);
	}
}

/* -- the kernel ----------------------------------------------------------------------------------------- */

/* A warp's rows: lane 4 g + t has rows g and g + 8 of each fragment. */
template <typename C>
struct state {
	float o[C::FRAGS][C::DV / 8][4]; /* not yet divided */
	float max[C::FRAGS][2];          /* of q k^T, not scaled */
	float sum[C::FRAGS][2];          /* over the lane's own columns */
};

/* s = q k^T */
template <typename C>
__device__ __forceinline__ void scores(float (&s)[C::FRAGS][STEP / 8][4], const uint32_t (*held)[C::DQK / 16][4],
                                       uint32_t q, uint32_t k)
{
#pragma unroll
	for (int f = 0; f < C::FRAGS; f++)
#pragma unroll
		for (int n = 0; n < STEP / 8; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				s[f][n][i] = 0;
#pragma unroll
	for (int c = 0; c < C::DQK / 16; c++) {
		uint32_t a[C::FRAGS][4];

#pragma unroll
		for (int f = 0; f < C::FRAGS; f++)
			if (C::QREG)
				memcpy(a[f], held[f][c], sizeof a[f]);
			else
				load_fragments(a[f], at_pair(q, c) + f * 16 * 2 * C::DQK);
#pragma unroll
		for (int n = 0; n < STEP / 16; n++) {
			uint32_t b[4];

			load_fragments(b, at_pair(k, c) + n * 16 * 2 * C::DQK);
#pragma unroll
			for (int f = 0; f < C::FRAGS; f++) {
				multiply(s[f][2 * n], a[f], b[0], b[1], __half());
				multiply(s[f][2 * n + 1], a[f], b[2], b[3], __half());
			}
		}
	}
}

/* Scores of keys that a row does not see: minus infinity. seen: the warp's first row sees columns 0..seen of the step;
 * may be negative. */
template <typename C>
__device__ __forceinline__ void mask(float (&s)[C::FRAGS][STEP / 8][4], int seen)
{
	int row = threadIdx.x % WARP / 4, column = threadIdx.x % 4 * 2;

#pragma unroll
	for (int f = 0; f < C::FRAGS; f++)
#pragma unroll
		for (int n = 0; n < STEP / 8; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				if (n * 8 + column + i % 2 > seen + f * 16 + row + i / 2 * 8)
					s[f][n][i] = -INFINITY;
}

/* Scores to probabilities, packed as the left operand of the product with values. */
template <typename C>
__device__ __forceinline__ void softmax(uint32_t (&p)[C::FRAGS][STEP / 16][4], struct state<C> &t,
                                        const float (&s)[C::FRAGS][STEP / 8][4], float scale)
{
#pragma unroll
	for (int f = 0; f < C::FRAGS; f++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float old = t.max[f][h], max = old, alpha, shift, sum = 0;

#pragma unroll
			for (int n = 0; n < STEP / 8; n++)
				max = fmaxf(max, fmaxf(s[f][n][2 * h], s[f][n][2 * h + 1]));
			max = fmaxf(max, __shfl_xor_sync(FULL, max, 1));
			max = fmaxf(max, __shfl_xor_sync(FULL, max, 2));
			alpha = fast_exp2((old - max) * scale);
			shift = max * scale;
#pragma unroll
			for (int n = 0; n < STEP / 8; n++) {
				float a = fast_exp2(fmaf(s[f][n][2 * h], scale, -shift));
				float b = fast_exp2(fmaf(s[f][n][2 * h + 1], scale, -shift));

				sum += a + b;
				p[f][n / 2][n % 2 * 2 + h] = pack2<typename C::T>(a, b);
			}
			t.max[f][h] = max;
			t.sum[f][h] = fmaf(t.sum[f][h], alpha, sum);
			if (__any_sync(FULL, alpha != 1)) /* as a rule no maximum is new, and all factors are 1 */
#pragma unroll
				for (int n = 0; n < C::DV / 8; n++) {
					t.o[f][n][2 * h] *= alpha;
					t.o[f][n][2 * h + 1] *= alpha;
				}
		}
}

/* o += p v */
template <typename C>
__device__ __forceinline__ void values(struct state<C> &t, const uint32_t (&p)[C::FRAGS][STEP / 16][4], uint32_t v)
{
#pragma unroll
	for (int c = 0; c < STEP / 16; c++)
#pragma unroll
		for (int n = 0; n < C::DV / 16; n++) {
			uint32_t b[4];

			load_fragments_transposed(b, at_pair(v, n) + c * 16 * 2 * C::DV);
#pragma unroll
			for (int f = 0; f < C::FRAGS; f++) {
				multiply(t.o[f][2 * n], p[f][c], b[0], b[1], typename C::T());
				multiply(t.o[f][2 * n + 1], p[f][c], b[2], b[3], typename C::T());
			}
		}
}

template <typename C>
__device__ __forceinline__ void write_rows(const struct state<C> &t, typename C::T *out /* the warp's first row */,
                                           uint32_t stride, int n_rows, int width)
{
	int row = threadIdx.x % WARP / 4, column = threadIdx.x % 4 * 2;

#pragma unroll
	for (int f = 0; f < C::FRAGS; f++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float sum = t.sum[f][h], inverse;
			int r = f * 16 + h * 8 + row;

			sum += __shfl_xor_sync(FULL, sum, 1);
			sum += __shfl_xor_sync(FULL, sum, 2);
			inverse = 1 / sum;
#pragma unroll
			for (int n = 0; n < C::DV / 8; n++) {
				const float *o = &t.o[f][n][2 * h];
				uint32_t pair = pack2<typename C::T>(o[0] * inverse, o[1] * inverse);

				if (r < n_rows && n * 8 + column < width)
					*reinterpret_cast<uint32_t *>(out + (size_t)r * stride + n * 8 + column) = pair;
			}
		}
}

template <typename C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS) attend(const struct attention_args a, const uint32_t parts)
{
	extern __shared__ __align__(1024) unsigned char memory[];
	/* shuffled, so that the compiler knows it for the same in all lanes: 44 bytes spilt, not 220 */
	const uint32_t warp = __shfl_sync(FULL, threadIdx.x / WARP, 0);
	const uint32_t lane = threadIdx.x % WARP, warp_row = warp * 16 * C::FRAGS;
	const uint32_t head = blockIdx.y, kv_head = head / a.group;
	struct kern_tile tile = a.tiles[blockIdx.x / parts];
	const uint32_t part_row = blockIdx.x % parts * C::ROWS;

	if (part_row >= tile.n_rows)
		return;
	tile.row += part_row;
	tile.pos0 += part_row;
	tile.n_rows = min(tile.n_rows - part_row, (uint32_t)C::ROWS);

	const char *k = static_cast<const char *>(a.k) + (size_t)kv_head * a.n_slots * (2 * C::DQK);
	const char *v = static_cast<const char *>(a.v) + (size_t)kv_head * a.n_slots * (2 * C::DV);
	const uint32_t q_to = shared_address(memory), k_to = q_to + C::Q_BYTES, v_to = k_to + C::K_BYTES;
	const int last = tile.pos0 + tile.n_rows - 1, n_steps = last / STEP + 1, pos = tile.pos0 + warp_row;
	struct chain_at at = chain_begin(a, tile);

	fetch_queries<C::DQK, C::THREADS, C::ROWS>(
	    q_to, static_cast<const char *>(a.q) + ((size_t)head * a.q_rows + tile.row) * (2 * C::DQK), tile.n_rows);
	copies_commit();
	fetch_step<C::DQK, C::THREADS>(k_to, k, at);
	copies_commit();

	/* each lane's address in the four 8 x 8 matrices of a load */
	const uint32_t q_lane = q_to + chunk_offset(2 * C::DQK, warp_row + lane % 16, lane / 16);
	const uint32_t k_lane = k_to + chunk_offset(2 * C::DQK, lane % 8 + lane / 16 * 8, lane / 8 % 2);
	const uint32_t v_lane = v_to + chunk_offset(2 * C::DV, lane % 16, lane / 16);
	uint32_t held[C::QREG ? C::FRAGS : 1][C::DQK / 16][4];
	struct state<C> t;

	if (C::QREG) {
		copies_wait<1>();
		__syncthreads();
#pragma unroll
		for (int f = 0; f < C::FRAGS; f++)
#pragma unroll
			for (int c = 0; c < C::DQK / 16; c++)
				load_fragments(held[C::QREG ? f : 0][c], at_pair(q_lane, c) + f * 16 * 2 * C::DQK);
	}
#pragma unroll
	for (int f = 0; f < C::FRAGS; f++) {
		t.max[f][0] = t.max[f][1] = -INFINITY;
		t.sum[f][0] = t.sum[f][1] = 0;
#pragma unroll
		for (int n = 0; n < C::DV / 8; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				t.o[f][n][i] = 0;
	}
	for (int step = 0; step < n_steps; step++) {
		const int key0 = step * STEP;
		const bool sees = key0 < pos + 16 * C::FRAGS; /* any row of the warp */
		float s[C::FRAGS][STEP / 8][4];

		copies_wait<0>();
		__syncthreads(); /* keys are there, and everybody is done with the values before */
		fetch_step<C::DV, C::THREADS>(v_to, v, at);
		copies_commit();
		if (sees)
			scores<C>(s, held, q_lane, k_lane);
		copies_wait<0>();
		__syncthreads(); /* values are there, and everybody is done with the keys */
		if (step + 1 < n_steps) {
			chain_advance(&at, STEP);
			fetch_step<C::DQK, C::THREADS>(k_to, k, at);
			copies_commit();
		}
		if (sees) {
			uint32_t p[C::FRAGS][STEP / 16][4];

			if (key0 + STEP - 1 > pos)
				mask<C>(s, pos - key0);
			softmax<C>(p, t, s, a.scale_log2e);
			values<C>(t, p, v_lane);
		}
	}
	if (warp_row < tile.n_rows)
		write_rows<C>(t,
		              static_cast<typename C::T *>(a.out) + (size_t)(tile.row + warp_row) * a.out_stride +
		                  (size_t)head * a.head_dim,
		              a.out_stride, (int)(tile.n_rows - warp_row), (int)a.head_dim);
}

template <typename C>
int launch(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
           struct CUstream_st *stream)
{
	uint32_t parts = ceil_div(tile_rows, (uint32_t)C::ROWS);
	cudaError_t rc = cudaFuncSetAttribute(attend<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::BYTES);

	if (rc != cudaSuccess) {
		cudaGetLastError(); /* it is not the next launch's */
		return (int)rc;
	}
	attend<C><<<dim3(n_tiles * parts, n_head), C::THREADS, C::BYTES, stream>>>(*a, parts);
	return launched();
}

/* What is fastest on an H200; no choice changes a bit. TFLOP/s there, causal, 4 x 10240 (12 heads; 32 for values of
 * 128, 16 for 256), in this order: 275, 334, 350, 335, 306. */
template <typename T>
int launch_shape(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
                 struct CUstream_st *stream)
{
	switch (a->d_qk * 1000 + a->d_v) {
	case 64064:
		return launch<config<64, 64, T, 4, 2, true, 2>>(a, n_tiles, n_head, tile_rows, stream);
	case 128064:
		return launch<config<128, 64, T, 4, 2, false, 2>>(a, n_tiles, n_head, tile_rows, stream);
	case 128128:
		return launch<config<128, 128, T, 4, 2, false, 2>>(a, n_tiles, n_head, tile_rows, stream);
	case 256128:
		/* 112 KB; 8.6 and 8.9 have 99 */
		if (!launch<config<256, 128, T, 4, 2, false, 2>>(a, n_tiles, n_head, tile_rows, stream))
			return 0;
		return launch<config<256, 128, T, 4, 1, false, 2>>(a, n_tiles, n_head, tile_rows, stream);
	case 256256:
		return launch<config<256, 256, T, 4, 1, false, 2>>(a, n_tiles, n_head, tile_rows, stream);
	}
	return BAD_ARGS;
}

} // namespace

int attention_mma(const struct attention_args *a, uint32_t n_tiles, uint32_t n_head, uint32_t tile_rows,
                  enum kern_type type, struct CUstream_st *stream)
{
	switch (type) {
	case KERN_BF16:
		return launch_shape<__nv_bfloat16>(a, n_tiles, n_head, tile_rows, stream);
	case KERN_F16:
		return launch_shape<__half>(a, n_tiles, n_head, tile_rows, stream);
	case KERN_F32:
		break;
	}
	return BAD_ARGS;
}
