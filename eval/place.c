/* Places: a device and a dtype that an evaluation runs on. What `fathom run` and the worker ask before they begin. */
#include <stdio.h>
#include <string.h>

#include "engine/log.h"
#include "eval/eval.h"

err_code place_device(const char *device, struct device_info *out, struct err *e)
{
	err_code rc = device_describe(device, out, e);
	struct err why;

	if (!rc && !strcmp(device, "auto") && !strcmp(out->kind, "cpu") && !device_has_gpu(&why))
		log_info("device auto is the CPU: %s", why.msg);
	return rc;
}

err_code place_init(struct place *p, const char *device, const char *dtype, uint32_t n_threads, struct err *e)
{
	struct buf signature = BUF_INIT(sizeof p->signature);
	err_code rc = place_device(device, &p->device, e);

	if (rc)
		return rc;
	if (!dtype || !strcmp(dtype, "auto"))
		dtype = device_auto_dtype(&p->device);
	rc = engine_signature(p->device.device, dtype, &signature, e); /* knows which dtypes there are */
	if (!rc) {
		snprintf(p->dtype, sizeof p->dtype, "%s", dtype);
		snprintf(p->signature, sizeof p->signature, "%s", buf_str(&signature));
		p->n_threads = n_threads;
	}
	buf_release(&signature);
	return rc;
}

struct session_options place_session(const struct place *p)
{
	return (struct session_options){.device = p->device.device, .dtype = p->dtype, .n_threads = p->n_threads};
}

double place_peak_flops(const struct place *p)
{
	return strcmp(p->dtype, "f32") ? p->device.peak_flops : 0;
}

err_code place_fits(const struct place *p, const struct model *m, struct batch_size size, size_t held, size_t *need,
                    struct err *e)
{
	struct session_options o = place_session(p);
	size_t have = p->device.memory_bytes + held;

	*need = session_memory(m, &o, size);
	if (*need <= have)
		return ERR_OK;
	return err_set(e, ERR_MEMORY,
	               "model '%s' in %s with batches of %llu tokens needs %zu MB, and device %s (%s) has %zu MB free",
	               m->name, p->dtype, (unsigned long long)size.n_tokens, *need >> 20, p->device.device,
	               p->device.name, have >> 20);
}
