/* Errors: one code and one complete sentence.
 *
 * Every function that can fail returns err_code (0 is success) and takes the caller's `struct err *`
 * as its last argument: never NULL, untouched on success. The message is lower case, names the thing
 * and its value, and is wrapped at most once per layer ("model 'x': tensor 'y': ..."). Nothing below
 * main prints an error or exits. */
#ifndef FATHOM_ENGINE_ERR_H
#define FATHOM_ENGINE_ERR_H

typedef enum {
	ERR_OK = 0,
	ERR_INPUT,     /* a value from a user, client or file is not acceptable */
	ERR_NOT_FOUND, /* a named thing is not there */
	ERR_CONFLICT,  /* the thing is in a state that does not allow this */
	ERR_CHANGED,   /* a fingerprint differs from the pinned one */
	ERR_IO,        /* the operating system refused */
	ERR_MEMORY,    /* allocation failed, or an estimate exceeds what there is */
	ERR_DEVICE,    /* the compute device or its library failed */
	ERR_NUMERIC,   /* NaN or infinity in a forward pass */
	ERR_CANCELLED  /* stopped on request */
} err_code;

struct err {
	err_code code;
	char msg[1000];
	char pointer[200]; /* JSON pointer (RFC 6901) to the offending member of the request, or "" */
};

/* Set the error; returns `code`, so that `return err_set(e, ...)` reads well. Clears the pointer. */
err_code err_set(struct err *e, err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, with ": " and strerror(errno) appended; the code is ERR_NOT_FOUND for ENOENT, else ERR_IO. */
err_code err_errno(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put "prefix: " before the message; keeps code and pointer. Returns e->code. */
err_code err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Set the JSON pointer of an error already set, e.g. "/params/lengths". Returns e->code. */
err_code err_at(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for member `key` of `parent` ("" for the root), escaped as RFC 6901 says. */
err_code err_at_member(struct err *e, const char *parent, const char *key);

/* "input", "not_found", ...: stable names for logs and JSON; NULL-free for every code. */
const char *err_name(err_code code);

/* The code of a name as err_name gives it; ERR_IO for an unknown one. */
err_code err_from_name(const char *name);

#endif
