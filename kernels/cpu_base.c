/* The baseline: SSE2 on x86-64, or whatever four floats are elsewhere. The ops' own files are its code. */
#include "kernels/simd.h"

const struct kern_cpu kern_cpu_base = SIMD_TABLE("base");
