/* The names of what launchers return: a cudaError_t, into which cuBLAS's statuses are translated where they arise. */
#include "kernels/cuda.cuh"

const char *kern_cuda_error(int status)
{
	return cudaGetErrorString((cudaError_t)status);
}
