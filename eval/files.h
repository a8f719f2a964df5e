/* The files of a dataset: one file, or what a folder holds (recursive, by relative path, bytewise); their fingerprint;
 * and their lines. What every reader of data shares, whatever it makes of the bytes. */
#ifndef FATHOM_EVAL_FILES_H
#define FATHOM_EVAL_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/buf.h"
#include "engine/sha256.h"

struct file_list {
	char *root;            /* owned, as all here: the path as given, without slashes at its end */
	char **paths, **names; /* [n] full path, and path relative to root */
	size_t n, cap;
	uint64_t bytes; /* of all files */
	char fingerprint[FINGERPRINT_LEN];
};

/* Lists and hashes. suffixes: what counts as a file of the dataset, as ".jsonl|.txt"; others, and hidden files and
 * folders, are passed over. ERR_INPUT when there is none, or a symbolic link leaves the folder. Zero-initialise l;
 * release it also after a failure. */
err_code file_list_open(struct file_list *l, const char *path, const char *suffixes, struct err *e);
void file_list_release(struct file_list *l);

/* ERR_CHANGED if a file is not what file_list_open hashed. */
err_code file_list_check(const struct file_list *l, struct err *e);

/* The lines of one file. */
struct line_reader {
	FILE *file; /* owned, as all here; NULL: closed */
	char *raw;  /* getline's buffer */
	size_t cap;
	struct buf line;   /* the line last read: valid UTF-8, without its newline (LF or CRLF) */
	size_t number;     /* of that line, from 1 */
	size_t n_replaced; /* malformed sequences of it that became U+FFFD */
	uint64_t read;     /* bytes of the file up to the line's end */
};
err_code line_reader_open(struct line_reader *r, const char *path, struct err *e); /* closes what was open */
err_code line_reader_next(struct line_reader *r, bool *more, struct err *e);
void line_reader_close(struct line_reader *r);

bool line_is_blank(const char *s, size_t len);

#endif
