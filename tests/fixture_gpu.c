/* See fixture_gpu.h. */
#include "tests/fixture_gpu.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"

#define GUARD 4096 /* bytes on either side; a multiple of the alignment */
#define FILL  0xff
#define BOUND 0xa5 /* what guards hold */
#define MAX   4096 /* buffers of a test */

static struct {
	char *at; /* with its guards */
	size_t bytes;
} buffers[MAX];
static void *hosts[MAX];
static size_t n_buffers, n_hosts;
static uint64_t state = 1;

#define cuda_ok(call)                                                                                                  \
	do {                                                                                                           \
		cudaError_t rc_ = (call);                                                                              \
		ck_assert_msg(rc_ == cudaSuccess, #call ": %s", cudaGetErrorString(rc_));                              \
	} while (0)

static int device_number(void)
{
	const char *s = getenv("FATHOM_GPU");

	return s ? (int)strtol(s, NULL, 10) : 0;
}

bool fixture_gpu_present(const char *test)
{
	int n = 0;
	cudaError_t rc = cudaGetDeviceCount(&n);

	if (rc != cudaSuccess || n <= device_number()) {
		fixture_skip(test, rc == cudaSuccess ? "no such CUDA device" : cudaGetErrorString(rc));
		return false;
	}
	cuda_ok(cudaSetDevice(device_number()));
	return true;
}

int gpu_capability(void)
{
	int major, minor;

	cuda_ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_number()));
	cuda_ok(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_number()));
	return 10 * major + minor;
}

/* -- memory -------------------------------------------------------------------------------------- */

static void *host_new(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	ck_assert_ptr_nonnull(p);
	ck_assert_uint_lt(n_hosts, MAX);
	hosts[n_hosts++] = p;
	return p;
}

void *gpu_new(size_t bytes)
{
	size_t inner = (bytes + 255) / 256 * 256;
	char *p = NULL;

	ck_assert_uint_lt(n_buffers, MAX);
	cuda_ok(cudaMalloc((void **)&p, inner + 2 * GUARD));
	cuda_ok(cudaMemset(p, BOUND, inner + 2 * GUARD));
	cuda_ok(cudaMemset(p + GUARD, FILL, bytes));
	buffers[n_buffers].at = p;
	buffers[n_buffers++].bytes = bytes;
	return p + GUARD;
}

void *gpu_new_n(size_t n, enum kern_type type)
{
	return gpu_new(n * kern_type_size(type));
}

void gpu_poison(void *device, size_t bytes)
{
	cuda_ok(cudaMemset(device, FILL, bytes));
}

void *gpu_upload_bytes(const void *x, size_t bytes)
{
	void *p = gpu_new(bytes);

	cuda_ok(cudaMemcpy(p, x, bytes, cudaMemcpyHostToDevice));
	return p;
}

void *gpu_upload(const float *x, size_t n, enum kern_type type)
{
	uint16_t *half;
	void *p;

	if (type == KERN_F32)
		return gpu_upload_bytes(x, n * sizeof *x);
	half = malloc((n ? n : 1) * sizeof *half);
	ck_assert_ptr_nonnull(half);
	for (size_t i = 0; i < n; i++)
		half[i] = gpu_bits(x[i], type);
	p = gpu_upload_bytes(half, n * sizeof *half);
	free(half);
	return p;
}

void *gpu_download_bytes(const void *device, size_t bytes)
{
	void *p = host_new(bytes, 1);

	cuda_ok(cudaDeviceSynchronize());
	cuda_ok(cudaMemcpy(p, device, bytes, cudaMemcpyDeviceToHost));
	return p;
}

float *gpu_download(const void *device, size_t n, enum kern_type type)
{
	float *out = host_new(n, sizeof *out);
	uint16_t *half = (uint16_t *)out;

	cuda_ok(cudaDeviceSynchronize());
	cuda_ok(cudaMemcpy(out, device, n * kern_type_size(type), cudaMemcpyDeviceToHost));
	if (type != KERN_F32)
		for (size_t i = n; i-- > 0;) {
			float x;

			x = gpu_float(half[i], type);
			memcpy(out + i, &x, sizeof x);
		}
	return out;
}

static void check_guard(const unsigned char *bytes, size_t n, const char *side, size_t buffer, size_t size)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != BOUND)
			ck_abort_msg("buffer %zu of %zu bytes: byte %zu %s it was written", buffer, size, i, side);
}

void gpu_check_guards(void)
{
	unsigned char guard[GUARD + 256];

	cuda_ok(cudaDeviceSynchronize());
	for (size_t i = 0; i < n_buffers; i++) {
		size_t bytes = buffers[i].bytes, after = (bytes + 255) / 256 * 256 - bytes + GUARD;

		cuda_ok(cudaMemcpy(guard, buffers[i].at, GUARD, cudaMemcpyDeviceToHost));
		check_guard(guard, GUARD, "of 4096 before", i, bytes);
		cuda_ok(cudaMemcpy(guard, buffers[i].at + GUARD + bytes, after, cudaMemcpyDeviceToHost));
		check_guard(guard, after, "after", i, bytes);
	}
}

void gpu_end(void)
{
	gpu_check_guards();
	while (n_buffers)
		cuda_ok(cudaFree(buffers[--n_buffers].at));
	while (n_hosts)
		free(hosts[--n_hosts]);
}

struct kern_fault gpu_fault(uint32_t stage, uint32_t row0)
{
	return (struct kern_fault){.word = gpu_new(sizeof(uint64_t)), .stage = stage, .row0 = row0};
}

uint64_t gpu_fault_seen(const struct kern_fault *f)
{
	uint64_t word;

	cuda_ok(cudaDeviceSynchronize());
	cuda_ok(cudaMemcpy(&word, f->word, sizeof word, cudaMemcpyDeviceToHost));
	return word;
}

/* -- numbers ------------------------------------------------------------------------------------- */

void gpu_seed(uint64_t seed)
{
	state = seed;
}

uint32_t gpu_u32(void)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(state >> 32);
}

float gpu_uniform(void)
{
	return (float)((int32_t)gpu_u32() >> 8) * 0x1p-23f;
}

/* Mean 0, variance 1: Box and Muller, one of the pair. */
static float normal(void)
{
	float u = ((float)(gpu_u32() >> 8) + 0.5f) * 0x1p-24f;

	return sqrtf(-2 * logf(u)) * cosf(3.14159265f * gpu_uniform());
}

float *gpu_normals(size_t n, float scale)
{
	return gpu_normals_of(n, scale, KERN_F32);
}

float *gpu_normals_of(size_t n, float scale, enum kern_type type)
{
	float *x = host_new(n, sizeof *x);

	for (size_t i = 0; i < n; i++)
		x[i] = gpu_round(scale * normal(), type);
	return x;
}

float gpu_round(float x, enum kern_type type)
{
	return type == KERN_F32 ? x : gpu_float(gpu_bits(x, type), type);
}

static uint16_t f16_bits(float x)
{
	uint32_t b, sign;

	memcpy(&b, &x, sizeof b);
	sign = b >> 16 & 0x8000;
	b &= 0x7fffffff;
	if (b > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (b >= 0x477ff000) /* 65520 and above round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (b < 0x38800000) { /* subnormal: the last place of .5f is 2^-24, as that of f16 here */
		float f = fabsf(x) + 0.5f;

		memcpy(&b, &f, sizeof b);
		return (uint16_t)(sign | (b - 0x3f000000));
	}
	b += 0xfff + (b >> 13 & 1);
	return (uint16_t)(sign | ((b - 0x38000000) >> 13));
}

uint16_t gpu_bits(float x, enum kern_type type)
{
	uint32_t b;

	if (type == KERN_F16)
		return f16_bits(x);
	memcpy(&b, &x, sizeof b);
	if (x != x)
		return 0x7fff;
	return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

float gpu_float(uint16_t bits, enum kern_type type)
{
	uint32_t b = (uint32_t)bits << 16;
	float x;

	if (type == KERN_F16) {
		uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;

		if (!exponent)
			x = (float)mantissa * 0x1p-24f;
		else if (exponent == 31)
			x = mantissa ? NAN : INFINITY;
		else
			x = ldexpf((float)(1024 + mantissa), (int)exponent - 25);
		return bits & 0x8000 ? -x : x;
	}
	memcpy(&x, &b, sizeof x);
	return x;
}

double gpu_epsilon(enum kern_type type)
{
	return type == KERN_F32 ? 0x1p-24 : type == KERN_BF16 ? 0x1p-8 : 0x1p-11;
}

/* The index of the largest |got - want| - relative |want|, NaN first. */
static size_t find_worst(const float *got, const double *want, size_t n, double relative)
{
	size_t worst = 0;
	double most = -INFINITY;

	for (size_t i = 0; i < n; i++) {
		double over = fabs(got[i] - want[i]) - relative * fabs(want[i]);

		if (isnan(over))
			return i;
		if (over > most) {
			most = over;
			worst = i;
		}
	}
	return worst;
}

void gpu_near(const char *what, const float *got, const double *want, size_t n, size_t width, double absolute,
              double relative)
{
	size_t bad = 0, i;

	for (i = 0; i < n; i++)
		bad += !(fabs(got[i] - want[i]) <= absolute + relative * fabs(want[i]));
	if (!bad)
		return;
	i = find_worst(got, want, n, relative);
	ck_abort_msg("%s: %zu of %zu are off; worst at row %zu, column %zu: %.9g, not %.9g (off by %.3g, may be %.3g)",
	             what, bad, n, i / width, i % width, (double)got[i], want[i], got[i] - want[i],
	             absolute + relative * fabs(want[i]));
}
