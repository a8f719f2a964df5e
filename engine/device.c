/* Devices: names, descriptions, and the signature that says whether two runs give the same bits. */
#include "engine/device.h"

#include <string.h>

#include "engine/buf.h"

static const struct backend_ops *const backends[] = {&backend_cpu};

err_code device_backend(const char *device, const struct backend_ops **out, struct err *e)
{
	if (!device || !strcmp(device, "auto") || !strcmp(device, "cpu")) {
		*out = backends[0];
		return ERR_OK;
	}
	if (!strncmp(device, "cuda", 4))
		err_set(e, ERR_DEVICE, "device '%s': this build has no CUDA; there is: cpu", device);
	else
		err_set(e, ERR_DEVICE, "device '%s' is not known; there is: cpu", device);
	return ERR_DEVICE;
}

err_code device_dtype(const struct backend_ops *ops, const char *dtype, enum dtype *out, struct err *e)
{
	struct device_info info;
	err_code rc;

	if (!dtype || !strcmp(dtype, "auto") || !strcmp(dtype, "f32")) {
		*out = DTYPE_F32;
		return ERR_OK;
	}
	if (!strcmp(dtype, "f16")) {
		err_set(e, ERR_DEVICE, "dtype 'f16': device '%s' has f32 and bf16", ops->kind);
		return ERR_DEVICE;
	}
	if (strcmp(dtype, "bf16") != 0) {
		err_set(e, ERR_INPUT, "dtype '%s' is not one of auto, f32, bf16, f16", dtype);
		return ERR_INPUT;
	}
	if ((rc = ops->describe(ops->kind, &info, e)))
		return rc;
	if (!info.bf16) {
		err_set(e, ERR_DEVICE,
		        "dtype 'bf16' needs a processor with AVX512_BF16 or AMX; '%s' has %s (%s): use f32", info.name,
		        info.isa, info.libraries);
		return ERR_DEVICE;
	}
	*out = DTYPE_BF16;
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
	return dtype_name(strcmp(d->kind, "cpu") ? DTYPE_BF16 : DTYPE_F32);
}

err_code engine_signature(const char *device, const char *dtype, struct buf *out, struct err *e)
{
	const struct backend_ops *ops;
	struct device_info info;
	enum dtype d;
	err_code rc;

	if ((rc = device_backend(device, &ops, e)) || (rc = device_dtype(ops, dtype, &d, e)) ||
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
