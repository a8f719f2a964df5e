/* The functions of cuBLASLt that matmul.cu calls, defined here and passed on to the library, which is loaded when the
 * first is called. So the program needs it only where it computes on a GPU: linked as usual, it costs every start a
 * tenth of a second and 200 MB of pages, and without it the program would not start at all. */
#include <cublasLt.h>
#include <dlfcn.h>

#include "kernels/kernels_cuda.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define LIBRARY  "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

static void *library()
{
	static void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	return handle;
}

bool kern_blas_found(void)
{
	return library() != nullptr;
}

/* Looks a function up once. */
#define FIND(name) static const auto f = (decltype(&name))(library() ? dlsym(library(), #name) : nullptr)
#define PASS(name, ...)                                       \
	FIND(name);                                           \
	return f ? f(__VA_ARGS__) : CUBLAS_STATUS_NOT_INITIALIZED

extern "C" {

size_t cublasLtGetVersion(void)
{
	FIND(cublasLtGetVersion);
	return f ? f() : 0;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	PASS(cublasLtCreate, handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	PASS(cublasLtDestroy, handle);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_desc, const void *b, cublasLtMatrixLayout_t b_desc,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_desc, void *d,
                              cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
	PASS(cublasLtMatmul, handle, desc, alpha, a, a_desc, b, b_desc, beta, c, c_desc, d, d_desc, algo, workspace,
	     workspace_bytes, stream);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n)
{
	PASS(cublasLtMatmulAlgoGetHeuristic, handle, desc, a, b, c, d, preference, wanted, results, n);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t size, size_t *written)
{
	PASS(cublasLtMatmulAlgoConfigGetAttribute, algo, attribute, value, size, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
	PASS(cublasLtMatmulDescInit_internal, desc, size, compute, scale);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size)
{
	PASS(cublasLtMatmulDescSetAttribute, desc, attribute, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size)
{
	PASS(cublasLtMatmulPreferenceInit_internal, preference, size);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size)
{
	PASS(cublasLtMatmulPreferenceSetAttribute, preference, attribute, value, size);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld)
{
	PASS(cublasLtMatrixLayoutInit_internal, layout, size, type, rows, cols, ld);
}
}
