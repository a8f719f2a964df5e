/* Errors: see err.h. Owns nothing; every string lives in the caller's struct err. */
#include "engine/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [ERR_OK] = "ok",
    [ERR_INPUT] = "input",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_CONFLICT] = "conflict",
    [ERR_CHANGED] = "changed",
    [ERR_IO] = "io",
    [ERR_MEMORY] = "memory",
    [ERR_DEVICE] = "device",
    [ERR_NUMERIC] = "numeric",
    [ERR_CANCELLED] = "cancelled",
};
#define N_NAMES (sizeof names / sizeof *names)

__attribute__((format(printf, 3, 0))) static void format(char *out, size_t size, const char *fmt, va_list ap)
{
	if (vsnprintf(out, size, fmt, ap) < 0)
		out[0] = '\0';
}

err_code err_set(struct err *e, err_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	format(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	e->code = code;
	e->pointer[0] = '\0';
	return code;
}

err_code err_errno(struct err *e, const char *fmt, ...)
{
	int saved = errno;
	char what[sizeof e->msg];
	va_list ap;

	va_start(ap, fmt);
	format(what, sizeof what, fmt, ap);
	va_end(ap);
	return err_set(e, saved == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%.800s: %s", what, strerror(saved));
}

err_code err_wrap(struct err *e, const char *fmt, ...)
{
	char prefix[400], old[sizeof e->msg];
	va_list ap;

	va_start(ap, fmt);
	format(prefix, sizeof prefix, fmt, ap);
	va_end(ap);
	memcpy(old, e->msg, sizeof old);
	if (snprintf(e->msg, sizeof e->msg, "%s: %s", prefix, old) < 0)
		e->msg[0] = '\0';
	return e->code;
}

err_code err_at(struct err *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	format(e->pointer, sizeof e->pointer, fmt, ap);
	va_end(ap);
	return e->code;
}

err_code err_at_member(struct err *e, const char *parent, const char *key)
{
	size_t n;

	err_at(e, "%s/", parent);
	for (n = strlen(e->pointer); *key && n + 2 < sizeof e->pointer; key++) {
		bool escaped = *key == '~' || *key == '/';

		e->pointer[n++] = escaped ? '~' : *key;
		if (escaped)
			e->pointer[n++] = *key == '~' ? '0' : '1';
	}
	e->pointer[n] = '\0';
	return e->code;
}

const char *err_name(err_code code)
{
	return (size_t)code < N_NAMES ? names[code] : "unknown";
}

err_code err_from_name(const char *name)
{
	for (size_t i = 0; i < N_NAMES; i++)
		if (!strcmp(names[i], name))
			return (err_code)i;
	return ERR_IO;
}
