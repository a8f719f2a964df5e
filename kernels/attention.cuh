/* Between the attention kernels and their dispatch (attention.cu): who takes which shape. */
#ifndef FATHOM_KERNELS_ATTENTION_CUH
#define FATHOM_KERNELS_ATTENTION_CUH

#include "kernels/kernels_cuda.h"

/* Hopper (compute capability 9.0): half types, (d_qk, d_v) of (64, 64), (128, 64), (128, 128), (256, 128). Gives the
 * most rows of a tile (128 or 192) and the keys of a panel (a multiple of 16) and returns 0; -1 for any other shape.
 * The same for bf16 and f16, whatever the lengths. */
int kern_attention_sm90_shape(uint32_t d_qk, uint32_t d_v, uint32_t *tile_rows, uint32_t *block);

/* kern_attention_cuda on such a device. Widths as stored: d_v is 64 for head_dim <= 64, else 128; d_qk is d_v, or twice
 * that with PoPE. */
int kern_attention_sm90(const struct kern_attention_cuda *a, int device, struct CUstream_st *stream);

#endif
