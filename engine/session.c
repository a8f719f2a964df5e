/* Sessions: a model on a device. Resolves device and dtype; the backend does the rest. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/buf.h"
#include "engine/device.h"
#include "engine/forward.h"

#define LEAST_BATCH 1024 /* tokens: smaller ones save little */

struct session {
	const struct model *model; /* borrowed */
	const struct backend_ops *ops;
	struct backend *backend; /* owned */
	uint32_t batch_tokens;
	struct forward_control control;
};

err_code session_open(const struct model *m, const struct session_options *o, struct session **out, struct err *e)
{
	const struct backend_ops *ops;
	enum dtype dtype;
	struct session *s;
	err_code rc;

	if ((rc = device_backend(o->device, &ops, e)) || (rc = device_dtype(ops, o->device, o->dtype, &dtype, e)))
		return rc;
	s = mem_zalloc(1, sizeof *s, e);
	if (!s)
		return e->code;
	s->model = m;
	s->ops = ops;
	rc = ops->open(m, o, dtype, &s->backend, e);
	if (rc) {
		free(s);
		return err_wrap(e, "model '%s'", m->name ? m->name : "");
	}
	s->batch_tokens = ops->batch_tokens(s->backend);
	*out = s;
	return ERR_OK;
}

void session_close(struct session *s)
{
	if (!s)
		return;
	s->ops->close(s->backend);
	forward_release(&s->control);
	free(s);
}

err_code session_score(struct session *s, const struct batch *b, struct token_score *out, struct err *e)
{
	return forward_run(s->ops, s->backend, &s->model->config, b, &s->control, out, e);
}

void session_probe(struct session *s, struct frequency_use *use)
{
	s->control.probe.use = use;
}

void session_stop(struct session *s)
{
	atomic_store(&s->control.stop, true);
}

void session_resume(struct session *s)
{
	atomic_store(&s->control.stop, false);
}

uint64_t session_done_tokens(const struct session *s)
{
	return atomic_load(&s->control.done_tokens);
}

size_t session_memory(const struct model *m, const struct session_options *o, struct batch_size size)
{
	const struct backend_ops *ops;
	enum dtype dtype;
	struct err e;

	if (device_backend(o->device, &ops, &e) || device_dtype(ops, o->device, o->dtype, &dtype, &e))
		return 0; /* there is no such session: session_open says why */
	return ops->memory(m, o, dtype, size);
}

uint32_t session_batch_tokens(const struct session *s)
{
	return s->batch_tokens;
}

bool session_takes(const struct session *s, struct batch_size size)
{
	return size.n_tokens <= s->batch_tokens && s->ops->takes(s->backend, size);
}

bool session_shrink(struct session *s)
{
	if (s->batch_tokens <= LEAST_BATCH)
		return false;
	s->batch_tokens /= 2;
	return true;
}
