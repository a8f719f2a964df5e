/* The head: log-softmax of h w^T at the target, and the argmax. Owns the dispatch, and the path that every card and
 * type can take: f32 logits of some rows at a time by cuBLASLt, then one pass over them.
 *
 * Dispatch, a function of device model, type and shape alone:
 *   compute capability 9.0, bf16 or f16, dim a multiple of 8 -> head_sm90.cu: logits never reach memory
 *   else                                                     -> chunks of logits
 * H200, bf16, 32768 rows, 50257 ids, ms: dim 768 3.39, in chunks 6.59; dim 1280 5.5 to 6.2, in chunks 9.04.
 *
 * Padded rows of w give logits of 0, which win over negative ones: ids from n_vocab on are never looked at. */
#include "kernels/head.cuh"

#define CHUNK_BYTES ((size_t)256 << 20) /* of logits, unless KERN_ROW_PAD rows take more */
#define THREADS     256
#define IN_FLIGHT   4 /* float4 a thread asks for at a time */

static size_t pad(size_t n, size_t to)
{
	return ceil_div(n, to) * to;
}

static uint32_t chunk_rows(uint32_t n_vocab)
{
	size_t rows = CHUNK_BYTES / sizeof(float) / pad(n_vocab, KERN_VOCAB_PAD) / KERN_ROW_PAD * KERN_ROW_PAD;

	return rows < KERN_ROW_PAD ? KERN_ROW_PAD : (uint32_t)rows;
}

static bool is_sm90(int compute_capability, uint32_t dim, uint32_t n_vocab, enum kern_type type)
{
	return compute_capability == 90 && kern_head_sm90_takes(dim, n_vocab, type);
}

size_t kern_head_scratch_bytes(uint32_t n_rows, uint32_t dim, uint32_t n_vocab, enum kern_type type,
                               int compute_capability)
{
	size_t rows = pad(n_rows, KERN_ROW_PAD);

	if (is_sm90(compute_capability, dim, n_vocab, type))
		return kern_head_sm90_scratch_bytes(n_rows, n_vocab);
	if (rows > chunk_rows(n_vocab))
		rows = chunk_rows(n_vocab);
	return rows * pad(n_vocab, KERN_VOCAB_PAD) * sizeof(float);
}

/* Ids id..id+3 of a row; what is beyond the vocabulary counts for nothing. */
static __device__ __forceinline__ void add4(struct head_state *s, float4 x, uint32_t id, uint32_t n_vocab)
{
	float v[4] = {x.x, x.y, x.z, x.w};
	float max = s->max, top;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (id + i >= n_vocab)
			v[i] = -INFINITY;
		if (v[i] > max) {
			max = v[i];
			s->argmax = id + i;
		}
	}
	top = max == -INFINITY ? 0 : max;
	if (max > s->max)
		s->sum *= fast_exp2((s->max - top) * LOG2E);
	s->max = max;
#pragma unroll
	for (int i = 0; i < 4; i++)
		s->sum += fast_exp2((v[i] - top) * LOG2E);
}

static __device__ __forceinline__ struct head_state shuffle(struct head_state s, int lane)
{
	struct head_state o;

	o.max = __shfl_xor_sync(FULL, s.max, lane);
	o.sum = __shfl_xor_sync(FULL, s.sum, lane);
	o.argmax = __shfl_xor_sync(FULL, s.argmax, lane);
	return o;
}

/* A block a row. Thread t takes float4 t, t + THREADS, ...; then lanes, then warps, in a fixed order. */
static __global__ void __launch_bounds__(THREADS)
    score_rows(struct kern_score *out, const float *logits /* [n_rows, stride] */, const uint32_t *targets,
               uint32_t n_vocab, uint32_t stride, struct kern_fault fault)
{
	__shared__ struct head_state parts[THREADS / 32];
	uint32_t row = blockIdx.x, n4 = (n_vocab + 3) / 4;
	const float *x = logits + (size_t)row * stride;
	const float4 *x4 = (const float4 *)x;
	struct head_state s = head_empty();

	for (uint32_t i = threadIdx.x; i < n4; i += THREADS * IN_FLIGHT) {
		float4 v[IN_FLIGHT];

#pragma unroll
		for (int j = 0; j < IN_FLIGHT; j++)
			if (i + j * THREADS < n4)
				v[j] = __ldcs(x4 + i + j * THREADS);
#pragma unroll
		for (int j = 0; j < IN_FLIGHT; j++)
			if (i + j * THREADS < n4)
				add4(&s, v[j], (i + j * THREADS) * 4, n_vocab);
	}
	for (int lane = 16; lane > 0; lane /= 2)
		s = head_join(s, shuffle(s, lane));
	if (threadIdx.x % 32 == 0)
		parts[threadIdx.x / 32] = s;
	__syncthreads();
	if (threadIdx.x)
		return;
	for (int i = 1; i < THREADS / 32; i++)
		s = head_join(s, parts[i]);
	head_finish(&out[row], s, x[targets[row]], fault, row);
}

static int head_chunks(const struct kern_head_cuda *a, struct kern_blas *b, struct CUstream_st *stream)
{
	uint32_t stride = (uint32_t)pad(a->n_vocab, KERN_VOCAB_PAD), chunk = chunk_rows(a->n_vocab);
	size_t row_bytes = a->dim * kern_type_size(a->type);
	float *logits = (float *)a->scratch;

	for (uint32_t r = 0, n; r < a->n_rows; r += n) {
		struct kern_fault fault = a->fault;
		int rc;

		n = a->n_rows - r < chunk ? a->n_rows - r : chunk;
		fault.row0 += r;
		rc = kern_matmul_cuda(b, logits, KERN_F32, (const char *)a->h + r * row_bytes, a->w, n, stride, a->dim,
		                      false, stream);
		if (rc)
			return rc;
		score_rows<<<n, THREADS, 0, stream>>>(a->out + r, logits, a->targets + r, a->n_vocab, stride, fault);
		if ((rc = launched()))
			return rc;
	}
	return cudaSuccess;
}

int kern_head_cuda(const struct kern_head_cuda *a, struct kern_blas *b, int device, struct CUstream_st *stream)
{
	int capability, n_sm, rc;

	if (!a->dim || !a->n_vocab)
		return BAD_ARGS;
	if (!a->n_rows)
		return cudaSuccess;
	if ((rc = capability_of(&capability, device)) ||
	    (rc = cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device)))
		return rc;
	if (is_sm90(capability, a->dim, a->n_vocab, a->type))
		return kern_head_sm90(a, n_sm, stream);
	return head_chunks(a, b, stream);
}
