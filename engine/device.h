/* Which device and dtype a session gets: names to backends. The public part is in engine.h. */
#ifndef FATHOM_ENGINE_DEVICE_H
#define FATHOM_ENGINE_DEVICE_H

#include "engine/backend.h"

/* The backend of "auto", "cpu", "cuda:N" or NULL; ERR_DEVICE naming what there is. */
err_code device_backend(const char *device, const struct backend_ops **out, struct err *e);

/* "auto", "f32", "bf16", "f16" or NULL, as this backend offers it on the device; ERR_DEVICE says what it lacks. */
err_code device_dtype(const struct backend_ops *ops, const char *device, const char *dtype, enum dtype *out,
                      struct err *e);

#endif
