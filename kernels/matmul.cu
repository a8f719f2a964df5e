/* Products: by cuBLASLt, with the choice of its algorithms; on Hopper, where linear_sm90.cu takes a layer's shape, by
 * that. Row-major here is column-major in cuBLASLt with the roles of rows and columns exchanged: out^T [n, n_rows] =
 * w [n, k] in^T [k, n_rows].
 *
 * A row's bits never depend on how many rows there are: the algorithm is asked for once for each shape of a layer, at
 * ASK_ROWS rows and with a workspace of fixed size, and is the first in the library's order that neither splits k nor
 * reduces through memory; then it runs on any number of rows, rounded up to KERN_ROW_PAD. Nothing is ever timed. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <new>
#include <stdio.h>
#include <string.h>

#include "kernels/linear_sm90.h"

#define ASK_ROWS        8192 /* for how many rows algorithms are asked */
#define ASK_MAX         16   /* candidates to look at */
#define WORKSPACE_BYTES ((size_t)32 << 20)
#define MAX_PLANS       64 /* distinct layer shapes of a model: five or six */
#define ALIGN           16 /* bytes: rows and buffers are at least so aligned, or a slower algorithm serves */

/* A shape's algorithm. */
struct plan {
	uint32_t n, k, align;
	enum kern_type out_type;
	bool gelu;
	bool gelu_apart; /* no algorithm applies the activation: a pass of its own follows */
	cublasLtMatmulAlgo_t algo;
};

struct kern_blas {
	cublasLtHandle_t lt;
	void *workspace; /* [WORKSPACE_BYTES] device */
	enum kern_type type;
	int n_sm_hopper; /* multiprocessors of a device of compute capability 9.0; others: 0 */
	uint32_t n_plans;
	struct plan plans[MAX_PLANS];
};

/* One product's descriptors, on the stack. */
struct product {
	cublasLtMatmulDescOpaque_t desc;
	cublasLtMatrixLayoutOpaque_t w, in, out;
};

static int error_of(cublasStatus_t s)
{
	switch (s) {
	case CUBLAS_STATUS_SUCCESS:
		return cudaSuccess;
	case CUBLAS_STATUS_ALLOC_FAILED:
		return cudaErrorMemoryAllocation;
	case CUBLAS_STATUS_INVALID_VALUE:
		return cudaErrorInvalidValue;
	case CUBLAS_STATUS_NOT_SUPPORTED:
		return cudaErrorNotSupported;
	case CUBLAS_STATUS_ARCH_MISMATCH:
		return cudaErrorNoKernelImageForDevice;
	case CUBLAS_STATUS_NOT_INITIALIZED:
		return cudaErrorInitializationError;
	case CUBLAS_STATUS_EXECUTION_FAILED:
		return cudaErrorLaunchFailure;
	default:
		return cudaErrorUnknown;
	}
}

static cudaDataType data_type(enum kern_type t)
{
	return t == KERN_F32 ? CUDA_R_32F : t == KERN_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

int kern_blas_new(struct kern_blas **out, int device, enum kern_type type)
{
	int major, minor, n_sm, rc;
	struct kern_blas *b;
	cublasStatus_t s;

	*out = NULL;
	if ((rc = cudaSetDevice(device)) ||
	    (rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) ||
	    (rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)) ||
	    (rc = cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device)))
		return rc;
	b = new (std::nothrow) kern_blas;
	if (!b)
		return cudaErrorMemoryAllocation;
	memset(b, 0, sizeof *b);
	b->type = type;
	b->n_sm_hopper = major == 9 && minor == 0 ? n_sm : 0;
	if ((rc = cudaMalloc(&b->workspace, WORKSPACE_BYTES))) {
		(void)cudaGetLastError();
		kern_blas_free(b);
		return rc;
	}
	if ((s = cublasLtCreate(&b->lt))) {
		kern_blas_free(b);
		return error_of(s);
	}
	*out = b;
	return cudaSuccess;
}

void kern_blas_free(struct kern_blas *b)
{
	if (!b)
		return;
	if (b->lt)
		cublasLtDestroy(b->lt);
	cudaFree(b->workspace);
	delete b;
}

size_t kern_blas_bytes(void)
{
	return WORKSPACE_BYTES;
}

void kern_blas_library(char *out, size_t size)
{
	size_t v = cublasLtGetVersion(); /* 130101: 13.1.1 */

	snprintf(out, size, "cuBLAS %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

static cublasStatus_t product_init(struct product *p, const struct kern_blas *b, const struct plan *plan,
                                   uint32_t n_rows)
{
	/* pedantic: f32 products never pass through TF32 */
	cublasComputeType_t compute = b->type == KERN_F32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
	cublasLtEpilogue_t gelu = CUBLASLT_EPILOGUE_GELU; /* the tanh form */
	cublasOperation_t transpose = CUBLAS_OP_T;
	cublasStatus_t s;

	if ((s = cublasLtMatmulDescInit(&p->desc, compute, CUDA_R_32F)) ||
	    (s = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose)))
		return s;
	if (plan->gelu && !plan->gelu_apart &&
	    (s = cublasLtMatmulDescSetAttribute(&p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &gelu, sizeof gelu)))
		return s;
	if ((s = cublasLtMatrixLayoutInit(&p->w, data_type(b->type), plan->k, plan->n, plan->k)) ||
	    (s = cublasLtMatrixLayoutInit(&p->in, data_type(b->type), plan->k, n_rows, plan->k)) ||
	    (s = cublasLtMatrixLayoutInit(&p->out, data_type(plan->out_type), plan->n, n_rows, plan->n)))
		return s;
	return CUBLAS_STATUS_SUCCESS;
}

/* Whether an algorithm sums all of k in one place. */
static bool is_whole(const cublasLtMatmulAlgo_t *a)
{
	int32_t split = 0;
	uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
	size_t n;

	return !cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &n) &&
	       split <= 1 &&
	       !cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme,
	                                             &n) &&
	       scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static cublasStatus_t ask(struct plan *plan, const struct kern_blas *b)
{
	cublasLtMatmulHeuristicResult_t found[ASK_MAX];
	cublasLtMatmulPreferenceOpaque_t pref;
	uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
	size_t workspace = WORKSPACE_BYTES;
	struct product p;
	cublasStatus_t s;
	int n = 0;

	if ((s = product_init(&p, b, plan, ASK_ROWS)) || (s = cublasLtMatmulPreferenceInit(&pref)) ||
	    (s = cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
	                                              sizeof workspace)) ||
	    (s = cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
	                                              sizeof scheme)))
		return s;
	for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
		if ((s = cublasLtMatmulPreferenceSetAttribute(&pref, (cublasLtMatmulPreferenceAttributes_t)i,
		                                              &plan->align, sizeof plan->align)))
			return s;
	s = cublasLtMatmulAlgoGetHeuristic(b->lt, &p.desc, &p.w, &p.in, &p.out, &p.out, &pref, ASK_MAX, found, &n);
	if (s)
		return s;
	for (int i = 0; i < n; i++)
		if (!found[i].state && found[i].workspaceSize <= WORKSPACE_BYTES && is_whole(&found[i].algo)) {
			plan->algo = found[i].algo;
			return CUBLAS_STATUS_SUCCESS;
		}
	return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Finds or makes the plan of a shape. */
static int get_plan(struct plan **out, struct kern_blas *b, const struct plan *want)
{
	struct plan *p;
	cublasStatus_t s;

	for (uint32_t i = 0; i < b->n_plans; i++) {
		p = &b->plans[i];
		if (p->n == want->n && p->k == want->k && p->align == want->align && p->out_type == want->out_type &&
		    p->gelu == want->gelu) {
			*out = p;
			return cudaSuccess;
		}
	}
	if (b->n_plans == MAX_PLANS)
		return cudaErrorInvalidValue;
	p = &b->plans[b->n_plans];
	*p = *want;
	s = ask(p, b);
	if (s == CUBLAS_STATUS_NOT_SUPPORTED && p->gelu) {
		p->gelu_apart = true;
		s = ask(p, b);
	}
	if (s)
		return error_of(s);
	b->n_plans++;
	*out = p;
	return cudaSuccess;
}

int kern_matmul_cuda(struct kern_blas *b, void *out, enum kern_type out_type, const void *in, const void *w,
                     uint32_t n_rows, uint32_t n, uint32_t k, bool gelu_tanh, struct CUstream_st *stream)
{
	uint32_t size = (uint32_t)kern_type_size(b->type);
	uint32_t rows = (uint32_t)(((uint64_t)n_rows + KERN_ROW_PAD - 1) / KERN_ROW_PAD * KERN_ROW_PAD);
	struct plan want = {}, *plan = NULL;
	struct product p;
	float one = 1, zero = 0;
	cublasStatus_t s;
	int rc;

	if (!n || !k || rows < n_rows || (out_type != b->type && (out_type != KERN_F32 || gelu_tanh)))
		return cudaErrorInvalidValue;
	if (!n_rows)
		return cudaSuccess;
	want.n = n;
	want.k = k;
	want.out_type = out_type;
	want.gelu = gelu_tanh;
	/* a function of buffers, but those of a model all have the same: see ALIGN */
	want.align = ((uintptr_t)out | (uintptr_t)in | (uintptr_t)w) % ALIGN ? size : ALIGN;
	if (b->n_sm_hopper && want.align == ALIGN && kern_linear_sm90_takes(b->type, out_type, n, k, gelu_tanh))
		return kern_linear_sm90(out, in, w, n_rows, n, k, gelu_tanh, b->type, b->n_sm_hopper, stream);
	if ((rc = get_plan(&plan, b, &want)))
		return rc;
	if ((s = product_init(&p, b, plan, rows)))
		return error_of(s);
	s = cublasLtMatmul(b->lt, &p.desc, &one, w, &p.w, in, &p.in, &zero, out, &p.out, out, &p.out, &plan->algo,
	                   b->workspace, WORKSPACE_BYTES, stream);
	if (s)
		return error_of(s);
	if (plan->gelu_apart)
		return kern_activation_cuda(out, out, NULL, n_rows, n, KERN_GELU_TANH, false, out_type, stream);
	return cudaSuccess;
}
