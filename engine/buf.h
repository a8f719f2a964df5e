/* Growable byte buffers with a hard maximum, and checked array allocation.
 *
 * A buf is always NUL-terminated past `len` (the NUL is not counted). Failure is sticky: when an append
 * would pass `max` or memory runs out, `failed` is set, later appends do nothing, and the caller asks
 * once, at the end, with buf_check. */
#ifndef FATHOM_ENGINE_BUF_H
#define FATHOM_ENGINE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

struct buf {
	char *data; /* owned; NULL until the first append */
	size_t len, cap, max;
	bool failed;
};

/* Initializer of an empty buffer of at most max_bytes. */
#define BUF_INIT(max_bytes) ((struct buf){.max = (max_bytes)})

void buf_release(struct buf *b); /* frees and empties; keeps max; NULL is fine */
void buf_clear(struct buf *b);   /* len = 0, failed = false; keeps the memory */
void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes (n <= len) */

/* ERR_OK, or ERR_MEMORY with "what: larger than N bytes or out of memory". */
err_code buf_check(const struct buf *b, const char *what, struct err *e);

/* The contents as a string, never NULL ("" when empty); borrowed until the next change. */
const char *buf_str(const struct buf *b);

/* Hands over the memory (free() it) and empties the buffer; NULL if failed. */
char *buf_steal(struct buf *b);

/* Reads a whole file of at most b->max bytes, appending. Names the path in its error: ERR_INPUT for a larger file. */
err_code buf_read_file(struct buf *b, const char *path, struct err *e);

/* Uninitialised memory for n items of `size` bytes; NULL with an error if the product overflows or memory runs
 * out. n = 0 gives a unique pointer. free() it. */
void *mem_alloc(size_t n, size_t size, struct err *e);
void *mem_zalloc(size_t n, size_t size, struct err *e);
/* Room for n items in a growing array of *cap: the array, perhaps moved, and *cap at least n; or NULL with an error,
 * the array and *cap as they were. Doubles, so that appending is cheap. */
void *mem_grow(void *array, size_t *cap, size_t n, size_t size, struct err *e);
/* strdup with an error. */
char *mem_strdup(const char *s, struct err *e);

#endif
