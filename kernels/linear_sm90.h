/* Products of half types on Hopper by kernels of our own, for matmul.cu; see linear_sm90.cu. */
#ifndef FATHOM_KERNELS_LINEAR_SM90_H
#define FATHOM_KERNELS_LINEAR_SM90_H

#include "kernels/kernels_cuda.h"

/* Whether a layer's product is faster here than with cuBLASLt: a function of its shape alone. */
bool kern_linear_sm90_takes(enum kern_type type, enum kern_type out_type, uint32_t n, uint32_t k, bool gelu_tanh);

/* As kern_matmul_cuda, all buffers aligned to 16 bytes. */
int kern_linear_sm90(void *out, const void *in, const void *w, uint32_t n_rows, uint32_t n, uint32_t k, bool gelu_tanh,
                     enum kern_type type, int n_sm, struct CUstream_st *stream);

#endif
