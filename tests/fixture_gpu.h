/* What the suites of CUDA kernels share: device memory that is poisoned and guarded, transfers that convert between
 * f32 and a kernel's type, random numbers, and errors against double precision.
 *
 * Memory from here, device and host, is owned by the fixture: gpu_end checks the guards and frees all of it. Any CUDA
 * error fails the test. Link with cudart; call only in the (forked) test process. */
#ifndef FATHOM_TESTS_FIXTURE_GPU_H
#define FATHOM_TESTS_FIXTURE_GPU_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels_cuda.h"

/* Whether there is a device; without one says "SKIP <test>" aloud. FATHOM_GPU picks one (0 by default). */
bool fixture_gpu_present(const char *test);
int gpu_capability(void); /* 90: compute capability 9.0 */

/* -- device memory ------------------------------------------------------------------------------- */

/* All bytes 0xff: NaN in f32, bf16 and f16. Aligned to 256 bytes; 4 KB on either side are guarded. */
void *gpu_new(size_t bytes);
void *gpu_new_n(size_t n, enum kern_type type);
void gpu_poison(void *device, size_t bytes);
/* A new buffer that holds x, converted (round to nearest even). */
void *gpu_upload(const float *x, size_t n, enum kern_type type);
void *gpu_upload_bytes(const void *x, size_t bytes);
/* Both wait for the device; a fault of an earlier kernel fails the test here. */
float *gpu_download(const void *device, size_t n, enum kern_type type);
void *gpu_download_bytes(const void *device, size_t bytes);
void gpu_check_guards(void); /* waits; fails the test if anything wrote outside of its buffer */
void gpu_end(void);          /* gpu_check_guards, then frees all that this header's functions gave */

/* A kernel's fault word: all ones. */
struct kern_fault gpu_fault(uint32_t stage, uint32_t row0);
/* What the word holds: stage << 32 | row, or UINT64_MAX. */
uint64_t gpu_fault_seen(const struct kern_fault *f);

/* A launcher's status must be 0. */
#define gpu_ok(call)                                                                                                   \
	do {                                                                                                           \
		int rc_ = (call);                                                                                      \
		ck_assert_msg(rc_ == 0, #call ": %s", kern_cuda_error(rc_));                                           \
	} while (0)

/* -- numbers ------------------------------------------------------------------------------------- */

void gpu_seed(uint64_t seed);
uint32_t gpu_u32(void);
float gpu_uniform(void);                       /* [-1, 1) */
float *gpu_normals(size_t n, float scale);     /* mean 0, variance scale^2 */
float gpu_round(float x, enum kern_type type); /* to the type and back */
/* Normals rounded to the type: what the device and the reference both see. */
float *gpu_normals_of(size_t n, float scale, enum kern_type type);

uint16_t gpu_bits(float x, enum kern_type type); /* bf16 or f16 */
float gpu_float(uint16_t bits, enum kern_type type);
double gpu_epsilon(enum kern_type type); /* half a unit in the last place at 1: 2^-24, 2^-8, 2^-11 */

/* Fails unless |got - want| <= absolute + relative |want| for each; names the worst, and how many are beyond. `width`
 * tells rows from columns in the message. */
void gpu_near(const char *what, const float *got, const double *want, size_t n, size_t width, double absolute,
              double relative);

#endif
