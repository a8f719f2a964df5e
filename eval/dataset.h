/* Datasets of documents: a directory of .txt files (recursive, by relative path, bytewise), one .txt, or a .jsonl
 * whose lines have a string "text".
 *
 * Text is UTF-8 with CRLF and a lone CR made LF and every invalid byte made U+FFFD as Python's errors="replace"
 * does; nothing else is touched. */
#ifndef FATHOM_EVAL_DATASET_H
#define FATHOM_EVAL_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct document {
	const char *name; /* relative path; in a .jsonl the line's "id", else "line 12" */
	const char *text; /* [len] valid UTF-8, newlines LF */
	size_t len;
	size_t n_replaced; /* malformed sequences that became U+FFFD */
	uint64_t read;     /* bytes of the dataset up to this document's end */
};

struct dataset;

/* Lists and hashes the files. ERR_INPUT when there is no document to be had or a symbolic link leaves the directory;
 * hidden files and folders are passed over. */
err_code dataset_open(const char *path, struct dataset **out, struct err *e);
void dataset_close(struct dataset *d); /* NULL is fine */

const char *dataset_fingerprint(const struct dataset *d);
uint64_t dataset_bytes(const struct dataset *d); /* of all its files */

/* The next document, borrowed until the next call; *out is NULL at the end. */
err_code dataset_next(struct dataset *d, const struct document **out, struct err *e);

/* ERR_CHANGED if a file is not what dataset_open hashed. */
err_code dataset_check(struct dataset *d, struct err *e);

#endif
