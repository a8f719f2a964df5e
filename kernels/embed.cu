/* Rows of the embedding table become the residual stream. A warp takes a row; a lane moves 4 elements at a time.
 *
 * Bytes an element: 2 or 4 read (the table may stay in L2), 4 written. H200, bf16, 32768 rows: 41.6 us at 768, 67.6 us
 * at 1280: 3.6 and 3.7 TB/s of 4.16 that a copy reaches. */
#include "kernels/cuda.cuh"

#define ROWS 8 /* a block's */

template <typename T, int N>
__global__ void __launch_bounds__(ROWS *WARP) embed(float *x, const T *table, const uint32_t *tokens, uint32_t n_rows,
                                                    uint32_t dim)
{
	uint32_t row = blockIdx.x * ROWS + threadIdx.x / WARP;

	if (row >= n_rows)
		return;
	table += (size_t)tokens[row] * dim;
	x += (size_t)row * dim;
#pragma unroll 4
	for (uint32_t i = threadIdx.x % WARP * N; i < dim; i += WARP * N) {
		float v[N];

		load(v, table + i);
		store(x + i, v);
	}
}

int kern_embed_cuda(float *x, const void *table, const uint32_t *tokens, uint32_t n_rows, uint32_t dim,
                    enum kern_type type, struct CUstream_st *stream)
{
	if (!n_rows)
		return 0;
	if (!dim)
		return BAD_ARGS;
	return with_type(type, [&](auto zero) {
		using T = decltype(zero);
		auto kernel = dim % 4 ? embed<T, 1> : embed<T, 4>;

		kernel<<<ceil_div(n_rows, ROWS), ROWS * WARP, 0, stream>>>(x, (const T *)table, tokens, n_rows, dim);
		return launched();
	});
}
