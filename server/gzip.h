/* One gzip stream in a file, through libarchive. */
#ifndef FATHOM_SERVER_GZIP_H
#define FATHOM_SERVER_GZIP_H

#include <stdio.h>

#include "engine/buf.h"

/* Appends a file's contents, unpacked when it begins as gzip does. At most b->max bytes; the error names the path. */
err_code gzip_read_file(struct buf *b, const char *path, struct err *e);

/* Writes text to f as gzip: the same bytes for the same text (no time, no name). f stays open. */
err_code gzip_write(FILE *f, const struct buf *text, struct err *e);

#endif
