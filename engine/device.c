/* Devices: names, descriptions, and the signature that says whether two runs give the same bits. */
#include "engine/device.h"

#include <string.h>

#include "engine/buf.h"

/* The one place that knows what was built in. */
#ifdef FATHOM_CUDA
static const struct backend_ops *const gpu = &backend_cuda;
#else
static const struct backend_ops *const gpu = NULL;
#endif

bool device_has_gpu(struct err *why)
{
	struct device_info info;

	if (gpu)
		return !gpu->describe("cuda:0", &info, why);
	err_set(why, ERR_DEVICE, "this build has no CUDA");
	return false;
}

err_code device_backend(const char *device, const struct backend_ops **out, struct err *e)
{
	struct err ignored;

	*out = &backend_cpu;
	if (!device || !strcmp(device, "auto")) {
		if (device_has_gpu(&ignored))
			*out = gpu;
		return ERR_OK;
	}
	if (!strcmp(device, "cpu"))
		return ERR_OK;
	if (strncmp(device, "cuda", 4) != 0)
		return err_set(e, ERR_DEVICE, "device '%s' is not known; there is: cpu%s", device,
		               gpu ? ", cuda:N" : "");
	if (!gpu)
		return err_set(e, ERR_DEVICE, "device '%s': this build has no CUDA; there is: cpu", device);
	*out = gpu;
	return ERR_OK;
}

/* What "auto" is on a kind of device. */
static enum dtype auto_dtype(const char *kind)
{
	return strcmp(kind, "cpu") ? DTYPE_BF16 : DTYPE_F32;
}

err_code device_dtype(const struct backend_ops *ops, const char *device, const char *dtype, enum dtype *out,
                      struct err *e)
{
	struct device_info info;
	err_code rc;

	*out = auto_dtype(ops->kind);
	if (!dtype || !strcmp(dtype, "auto"))
		return ERR_OK;
	for (*out = DTYPE_F32; *out <= DTYPE_BF16 && strcmp(dtype, dtype_name(*out)) != 0;)
		++*out;
	if (*out > DTYPE_BF16)
		return err_set(e, ERR_INPUT, "dtype '%s' is not one of auto, f32, bf16, f16", dtype);
	if (*out == DTYPE_F16 && !strcmp(ops->kind, "cpu"))
		return err_set(e, ERR_DEVICE, "dtype 'f16': device '%s' has f32 and bf16", ops->kind);
	if (*out != DTYPE_BF16)
		return ERR_OK;
	if ((rc = ops->describe(device, &info, e)))
		return rc;
	if (!info.bf16)
		return err_set(e, ERR_DEVICE,
		               "dtype 'bf16' needs a processor with AVX512_BF16 or AMX; '%s' has %s (%s): use f32",
		               info.name, info.isa, info.libraries);
	return ERR_OK;
}

err_code device_describe(const char *device, struct device_info *out, struct err *e)
{
	const struct backend_ops *ops;
	err_code rc = device_backend(device, &ops, e);

	return rc ? rc : ops->describe(device, out, e);
}

const char *device_auto_dtype(const struct device_info *d)
{
	return dtype_name(auto_dtype(d->kind));
}

err_code engine_signature(const char *device, const char *dtype, struct buf *out, struct err *e)
{
	const struct backend_ops *ops;
	struct device_info info;
	enum dtype d;
	err_code rc;

	if ((rc = device_backend(device, &ops, e)) || (rc = device_dtype(ops, device, dtype, &d, e)) ||
	    (rc = ops->describe(device, &info, e)))
		return rc;
	buf_printf(out, "fathom %s; %s; %s; %s; %s", engine_version(), info.name, info.isa, dtype_name(d),
	           info.libraries);
	return buf_check(out, "engine signature", e);
}

const char *engine_version(void)
{
	return FATHOM_VERSION;
}
