/* Tensors of a checkpoint, and their dtypes. */
#ifndef FATHOM_ENGINE_TENSOR_H
#define FATHOM_ENGINE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
const char *dtype_name(enum dtype d); /* "f32", "f16", "bf16" */
size_t dtype_size(enum dtype d);      /* bytes */

/* A tensor in a file: row-major, little-endian, mapped read-only. */
struct tensor {
	const void *data; /* [shape[0], shape[1]] or [shape[0]], of dtype; borrowed from the map; any alignment */
	enum dtype dtype;
	uint32_t n_dim;
	uint64_t shape[2];
};

/* Copies a tensor to float, `count` elements from element `first`. Exact: every dtype is a subset of float. */
void tensor_to_f32(const struct tensor *t, uint64_t first, uint64_t count, float *out /* [count] */);

#endif
