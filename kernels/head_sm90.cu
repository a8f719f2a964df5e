/* The head on Hopper: a product whose epilogue reduces its tile of logits, in f32 registers, to each row's largest, sum
 * of exponentials and argmax; then a small pass that joins the tiles of a row in order. Logits never reach memory.
 *
 * Scratch, in this order, with rows padded to KERN_ROW_PAD: parts (max, sum) [n_tiles, rows], target's logit [rows],
 * column of the tile's largest [n_tiles, rows] as bytes. */
#include "kernels/gemm_sm90.cuh"
#include "kernels/head.cuh"

#define JOIN_ROWS    32 /* rows of a block of the joining pass */
#define JOIN_STREAMS 8  /* threads that share a row */

/* In turns. H200, bf16, 32768 rows, 50257 ids, ms: dim 768 3.39, 1280 5.5 to 6.2; by 128 x 256 tiles that both
 * warpgroups share 4.29 and 6.42: a long epilogue must run under the other's products. */
typedef gemm_plan<128, 7, 2, GEMM_TURNS> head_plan;

static_assert(KERN_ROW_PAD % (GEMM_BM * head_plan::CLUSTER) == 0 && KERN_VOCAB_PAD % head_plan::BN == 0,
              "the buffers' padding is whole tiles");

struct head_parts {
	float2 *part;        /* [n_tiles, rows] max, sum of exp(logit - max) */
	float *target_logit; /* [rows] */
	uint8_t *column;     /* [n_tiles, rows] */
	uint32_t rows, n_tiles;
};

static uint32_t rows_of(uint32_t n_rows)
{
	return ceil_div(n_rows, (uint32_t)KERN_ROW_PAD) * KERN_ROW_PAD;
}

bool kern_head_sm90_takes(uint32_t dim, uint32_t n_vocab, enum kern_type type)
{
	return type != KERN_F32 && dim % 8 == 0 && n_vocab > 0;
}

size_t kern_head_sm90_scratch_bytes(uint32_t n_rows, uint32_t n_vocab)
{
	size_t n_tiles = ceil_div(n_vocab, (uint32_t)head_plan::BN);

	return (size_t)rows_of(n_rows) * (n_tiles * (sizeof(float2) + 1) + sizeof(float));
}

/* -- the epilogue ------------------------------------------------------------------------------------ */

/* A thread's sums of one of its two rows, `row` 0 or 1, in order of their columns: number i is column COLUMN_OF(i) + 8
 * (lane % 4) of the tile. */
#define AT(d, row, i) (d)[(i) / 2 * 4 + (row) * 2 + (i) % 2]
#define COLUMN_OF(i)  ((i) / 8 * 32 + (i) % 8)

/* Row's part; valid in the first lane of the four that share it. `first`: the thread's first column. */
template <int N>
static __device__ __forceinline__ float2 reduce_row(const float (&d)[N], int row, uint32_t first,
                                                    uint32_t *column)
{
	float max[4], sum[4] = {0, 0, 0, 0}, thread_max, top, bias, all;
	uint32_t at = UINT32_MAX;

#pragma unroll
	for (int i = 0; i < 4; i++)
		max[i] = AT(d, row, i);
#pragma unroll
	for (int i = 4; i < N / 2; i++)
		max[i % 4] = fmaxf(max[i % 4], AT(d, row, i));
	thread_max = fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3]));
	all = fmaxf(thread_max, __shfl_xor_sync(FULL, thread_max, 1));
	all = fmaxf(all, __shfl_xor_sync(FULL, all, 2));
	top = all == -INFINITY ? 0 : all;
	bias = -top * LOG2E;
#pragma unroll
	for (int i = N / 2 - 1; i >= 0; i--) {
		sum[i % 4] += fast_exp2(fmaf(AT(d, row, i), LOG2E, bias));
		if (AT(d, row, i) == all)
			at = COLUMN_OF(i);
	}
	sum[0] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
	sum[0] += __shfl_xor_sync(FULL, sum[0], 1);
	sum[0] += __shfl_xor_sync(FULL, sum[0], 2);
	at = at == UINT32_MAX ? at : at + first;
	at = min(at, __shfl_xor_sync(FULL, at, 1));
	at = min(at, __shfl_xor_sync(FULL, at, 2));
	*column = at;
	return make_float2(all, sum[0]);
}

struct head_epilogue {
	struct head_parts p;
	const uint32_t *targets;
	uint32_t n_rows, n_vocab;

	template <int N>
	__device__ __forceinline__ void operator()(float (&d)[N], uint32_t row0, uint32_t col0) const
	{
		const int BN = 2 * N;
		uint32_t lane = threadIdx.x % 32, first = lane % 4 * 8;

		row0 += threadIdx.x % 128 / 32 * 16 + lane / 4;
		if (col0 + BN > n_vocab) {
#pragma unroll
			for (int i = 0; i < N; i++)
				if (col0 + COLUMN_OF(i / 4 * 2 + i % 2) + first >= n_vocab)
					d[i] = -INFINITY;
		}
#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint32_t row = row0 + h * 8, column;
			uint32_t target = (row < n_rows ? targets[row] : UINT32_MAX) - col0;
			float2 part = reduce_row(d, h, first, &column);

			if (lane % 4 == 0) {
				size_t at = (size_t)(col0 / BN) * p.rows + row;

				p.part[at] = part;
				p.column[at] = (uint8_t)column;
			}
			if (target < BN && target % 32 / 8 == lane % 4) {
				float logit = 0;

#pragma unroll
				for (int i = 0; i < N / 2; i++)
					if (COLUMN_OF(i) + first == target)
						logit = AT(d, h, i);
				p.target_logit[row] = logit;
			}
		}
	}
};

template <class T, class P>
static __global__ void __cluster_dims__(P::CLUSTER, 1, 1) __launch_bounds__(GEMM_THREADS, 1)
    reduce_tiles(const __grid_constant__ CUtensorMap h, const __grid_constant__ CUtensorMap w, struct gemm_shape s,
                 struct head_epilogue e)
{
	gemm_body<T, P>(s, &h, &w, e);
}

/* -- joining a row's tiles ----------------------------------------------------------------------------- */

/* Thread (x, y) of a block takes row x and the y-th run of tiles. */
template <int BN>
static __global__ void __launch_bounds__(JOIN_ROWS * JOIN_STREAMS)
    join_tiles(struct kern_score *out, struct head_parts p, uint32_t n_rows, struct kern_fault fault)
{
	__shared__ struct head_state states[JOIN_STREAMS][JOIN_ROWS];
	uint32_t row = blockIdx.x * JOIN_ROWS + threadIdx.x, each = ceil_div(p.n_tiles, JOIN_STREAMS);
	uint32_t first = threadIdx.y * each, last = min(first + each, p.n_tiles);
	struct head_state s = head_empty();

	if (row < n_rows) {
#pragma unroll 8
		for (uint32_t t = first; t < last; t++) {
			float2 part = p.part[(size_t)t * p.rows + row];
			struct head_state o = {part.x, part.y, t * BN + p.column[(size_t)t * p.rows + row]};

			s = head_join(s, o);
		}
	}
	states[threadIdx.y][threadIdx.x] = s;
	__syncthreads();
	if (threadIdx.y || row >= n_rows)
		return;
	for (int i = 1; i < JOIN_STREAMS; i++)
		s = head_join(s, states[i][threadIdx.x]);
	head_finish(&out[row], s, p.target_logit[row], fault, row);
}

template <class T, class P>
static int head_run(const struct kern_head_cuda *a, int n_sm, struct CUstream_st *stream)
{
	bool bf16 = wgmma_type<T>::bf16;
	uint32_t rows = rows_of(a->n_rows), n_tiles = ceil_div(a->n_vocab, (uint32_t)P::BN);
	struct gemm_shape s = {rows / (GEMM_BM * P::CLUSTER), n_tiles, (a->dim + GEMM_BK - 1) / GEMM_BK};
	struct head_epilogue e;
	CUtensorMap h, w;
	int rc;

	e.p.part = (float2 *)a->scratch;
	e.p.target_logit = (float *)(e.p.part + (size_t)n_tiles * rows);
	e.p.column = (uint8_t *)(e.p.target_logit + rows);
	e.p.rows = rows;
	e.p.n_tiles = n_tiles;
	e.targets = a->targets;
	e.n_rows = a->n_rows;
	e.n_vocab = a->n_vocab;
	if ((rc = gemm_map_a(&h, bf16, a->h, rows, a->dim)) ||
	    (rc = gemm_map_b(&w, bf16, a->w, n_tiles * P::BN, a->dim, P::BN / P::CLUSTER)) ||
	    (rc = cudaFuncSetAttribute(reduce_tiles<T, P>, cudaFuncAttributeMaxDynamicSharedMemorySize, P::SMEM)))
		return rc;
	reduce_tiles<T, P><<<n_sm / P::CLUSTER * P::CLUSTER, GEMM_THREADS, P::SMEM, stream>>>(h, w, s, e);
	if ((rc = launched()))
		return rc;
	join_tiles<P::BN><<<ceil_div(a->n_rows, (uint32_t)JOIN_ROWS), dim3(JOIN_ROWS, JOIN_STREAMS), 0, stream>>>(
	    a->out, e.p, a->n_rows, a->fault);
	return launched();
}

int kern_head_sm90(const struct kern_head_cuda *a, int n_sm, struct CUstream_st *stream)
{
	return a->type == KERN_BF16 ? head_run<__nv_bfloat16, head_plan>(a, n_sm, stream)
	                            : head_run<__half, head_plan>(a, n_sm, stream);
}
