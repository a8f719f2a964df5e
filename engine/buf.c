/* Buffers and checked allocation: see buf.h. */
#include "engine/buf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void buf_release(struct buf *b)
{
	if (!b)
		return;
	free(b->data);
	*b = BUF_INIT(b->max);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

/* Makes room for `more` bytes and the NUL. */
static bool reserve(struct buf *b, size_t more)
{
	size_t need, cap;
	char *p;

	if (b->failed)
		return false;
	if (more > b->max || b->len > b->max - more) {
		b->failed = true;
		return false;
	}
	need = b->len + more + 1;
	if (need <= b->cap)
		return true;
	cap = b->cap ? b->cap : 64;
	while (cap < need)
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	p = realloc(b->data, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->data = p;
	b->cap = cap;
	return true;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
	if (!reserve(b, len))
		return;
	if (len)
		memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
	buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->failed = true;
		return;
	}
	if (!reserve(b, (size_t)n))
		return;
	va_start(ap, fmt);
	n = vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	if (!n)
		return;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
	b->data[b->len] = '\0';
}

err_code buf_check(const struct buf *b, const char *what, struct err *e)
{
	if (!b->failed)
		return ERR_OK;
	return err_set(e, ERR_MEMORY, "%s: larger than %zu bytes, or out of memory", what, b->max);
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}

char *buf_steal(struct buf *b)
{
	char *p;

	if (!b->data)
		buf_append(b, "", 0);
	if (b->failed) {
		buf_release(b);
		return NULL;
	}
	p = b->data;
	*b = BUF_INIT(b->max);
	return p;
}

err_code buf_read_file(struct buf *b, const char *path, struct err *e)
{
	char chunk[65536];
	ssize_t n;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "cannot open '%s'", path);
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size > b->max - b->len) {
		close(fd);
		return err_set(e, ERR_INPUT, "%s: larger than %zu bytes", path, b->max - b->len);
	}
	while ((n = read(fd, chunk, sizeof chunk)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			err_errno(e, "cannot read '%s'", path);
			close(fd);
			return e->code;
		}
		buf_append(b, chunk, (size_t)n);
		if (b->failed)
			break;
	}
	close(fd);
	return buf_check(b, path, e);
}

void *mem_alloc(size_t n, size_t size, struct err *e)
{
	void *p = NULL;
	size_t bytes;

	if (!__builtin_mul_overflow(n, size, &bytes))
		p = malloc(bytes ? bytes : 1);
	if (!p)
		err_set(e, ERR_MEMORY, "out of memory for %zu items of %zu bytes", n, size);
	return p;
}

void *mem_zalloc(size_t n, size_t size, struct err *e)
{
	void *p = NULL;
	size_t bytes;

	if (!__builtin_mul_overflow(n, size, &bytes))
		p = calloc(bytes ? bytes : 1, 1);
	if (!p)
		err_set(e, ERR_MEMORY, "out of memory for %zu items of %zu bytes", n, size);
	return p;
}

void *mem_grow(void *array, size_t *cap, size_t n, size_t size, struct err *e)
{
	size_t want = *cap > SIZE_MAX / 2 ? n : 2 * *cap, bytes;
	void *p = NULL;

	if (n <= *cap && array)
		return array;
	want = want < 16 ? 16 : want;
	want = want < n ? n : want;
	if (!__builtin_mul_overflow(want, size, &bytes))
		p = realloc(array, bytes);
	if (p)
		*cap = want;
	else
		err_set(e, ERR_MEMORY, "out of memory for %zu items of %zu bytes", want, size);
	return p;
}

char *mem_strdup(const char *s, struct err *e)
{
	size_t n = strlen(s) + 1;
	char *p = mem_alloc(n, 1, e);

	return p ? memcpy(p, s, n) : NULL;
}
