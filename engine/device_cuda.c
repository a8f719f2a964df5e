/* What CUDA devices there are, and why one cannot be used. The runtime starts here, when a device is asked for, and
 * never before: it does not survive a fork. */
#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend_cuda.h"

#define LEAST_CAPABILITY 80

err_code cuda_error(struct err *e, int status, const char *fmt, ...)
{
	char what[300];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof what, fmt, args);
	va_end(args);
	cudaGetLastError(); /* so that the next call does not report it again: a sticky one will */
	return err_set(e, status == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE, "%s: %s", what,
	               kern_cuda_error(status));
}

/* Why there are no devices at all, or ERR_OK and their number. */
static err_code count_devices(const char *device, int *n, struct err *e)
{
	int rc, driver = 0, runtime = 0;

	*n = 0;
	cudaRuntimeGetVersion(&runtime);
	if (cudaDriverGetVersion(&driver) || !driver)
		return err_set(e, ERR_DEVICE, "device '%s': no NVIDIA driver on this machine; there is: cpu", device);
	rc = cudaGetDeviceCount(n);
	if (rc == cudaErrorInsufficientDriver)
		return err_set(e, ERR_DEVICE,
		               "device '%s': the NVIDIA driver supports CUDA %d.%d, and this build needs %d.%d", device,
		               driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	if (rc == cudaErrorNoDevice || (!rc && !*n))
		return err_set(e, ERR_DEVICE, "device '%s': there is a driver, but no CUDA device; there is: cpu",
		               device);
	if (rc)
		return cuda_error(e, rc, "device '%s'", device);
	return ERR_OK;
}

/* -1: not a device's name. "cuda" and "auto" are the first. */
static long number_of(const char *device)
{
	const char *digits;

	if (!strcmp(device, "auto") || !strcmp(device, "cuda"))
		return 0;
	if (strncmp(device, "cuda:", strlen("cuda:")) != 0)
		return -1;
	digits = device + strlen("cuda:");
	if (!*digits || strspn(digits, "0123456789") != strlen(digits) || strlen(digits) > 6)
		return -1;
	return strtol(digits, NULL, 10);
}

err_code cuda_device(const char *device, int *number, int *capability, struct err *e)
{
	int n, major = 0, minor = 0, rc;
	long wanted;
	err_code code;

	device = device ? device : "auto";
	wanted = number_of(device);
	if (wanted < 0)
		return err_set(e, ERR_DEVICE, "device '%s' is not cuda:N", device);
	if ((code = count_devices(device, &n, e)))
		return code;
	if (wanted >= n)
		return err_set(e, ERR_DEVICE, "device '%s': there %s %d, cuda:0%s%d", device, n > 1 ? "are" : "is", n,
		               n > 1 ? " to cuda:" : "; not cuda:", n > 1 ? n - 1 : (int)wanted);
	if (!kern_blas_found())
		return err_set(e, ERR_DEVICE, "device '%s': cuBLASLt's library is not on this machine", device);
	*number = (int)wanted;
	if ((rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, *number)) ||
	    (rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, *number)))
		return cuda_error(e, rc, "device '%s'", device);
	*capability = 10 * major + minor;
	if (*capability < LEAST_CAPABILITY)
		return err_set(e, ERR_DEVICE, "device '%s' has compute capability %d.%d; the least is %d.%d", device,
		               major, minor, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
	if ((rc = cudaSetDevice(*number)))
		return cuda_error(e, rc, "device '%s'", device);
	return ERR_OK;
}

/* Dense bf16 products at the clock of the data sheet, whose figure gives what a multiprocessor does in a cycle: A100
 * 312e12 / 108 / 1.41e9, L40S 362e12 / 142 / 2.52e9, H100 and H200 989e12 / 132 / 1.83e9, B200 2250e12 / 148 / 1.85e9.
 * 0: not known. */
static double peak_flops(int number, int capability)
{
	static const struct {
		int capability, per_cycle, khz;
	} known[] = {{80, 2048, 1410000}, {89, 1024, 2520000}, {90, 4096, 1830000}, {100, 8192, 1850000}};
	int n = 0, khz = 0;

	if (cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, number) ||
	    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, number))
		return 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].capability == capability)
			return (double)n * (khz < known[i].khz ? khz : known[i].khz) * 1e3 * known[i].per_cycle;
	return 0;
}

err_code cuda_describe(const char *device, struct device_info *out, struct err *e)
{
	struct cudaDeviceProp prop;
	int number = 0, capability = 0, rc, runtime = 0;
	char blas[64];
	size_t total;

	if (cuda_device(device, &number, &capability, e))
		return e->code;
	*out = (struct device_info){.kind = "cuda", .bf16 = true};
	if ((rc = cudaGetDeviceProperties(&prop, number)) || (rc = cudaMemGetInfo(&out->memory_bytes, &total)) ||
	    (rc = cudaRuntimeGetVersion(&runtime)))
		return cuda_error(e, rc, "device '%s'", device ? device : "auto");
	kern_blas_library(blas, sizeof blas);
	snprintf(out->device, sizeof out->device, "cuda:%d", number);
	snprintf(out->name, sizeof out->name, "%.127s", prop.name);
	snprintf(out->isa, sizeof out->isa, "sm_%d", capability);
	snprintf(out->libraries, sizeof out->libraries, "CUDA %d.%d runtime, %s", runtime / 1000, runtime % 1000 / 10,
	         blas);
	out->peak_flops = peak_flops(number, capability);
	return ERR_OK;
}
