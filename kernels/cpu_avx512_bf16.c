/* The vector kernels for AVX-512 with bf16 dot products; f32 has the bits of cpu_avx512.c. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "kernels/kernels.h"

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))),                 \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

#define SIMD_ISA   avx512_bf16
#define SIMD_WIDTH 16
#define SIMD_BF16

/* NOLINTBEGIN(bugprone-suspicious-include): the ops once more, for this target */
#include "kernels/activation_cpu.c"
#include "kernels/attention_cpu.c"
#include "kernels/head_cpu.c"
#include "kernels/qkv_post_cpu.c"
#include "kernels/residual_cpu.c"
#include "kernels/rmsnorm_cpu.c"
/* NOLINTEND(bugprone-suspicious-include) */

const struct kern_cpu kern_cpu_avx512_bf16 = SIMD_TABLE("avx512_bf16");

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
