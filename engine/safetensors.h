/* Checkpoint files: which files of a directory were read, and the tensors in its safetensors files.
 *
 * A checkpoint owns the memory maps (read-only, private) and remembers how each file looked when it was opened, so that
 * a later hash can be tied to the bytes that were used. Everything a header says is checked against the file before it
 * is believed; errors name file and tensor. Immutable once its weights are mapped.
 *
 * What checks at open cannot see: a file that is truncated later. Reading its lost pages raises SIGBUS, which ends this
 * process (a worker: the server lives and retries the unit); checkpoint_check narrows the window. */
#ifndef FATHOM_ENGINE_SAFETENSORS_H
#define FATHOM_ENGINE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "engine/err.h"
#include "engine/json.h"
#include "engine/tensor.h"

/* The format's own limit on a header (safetensors: MAX_HEADER_SIZE). */
#define SAFETENSORS_MAX_HEADER_BYTES UINT64_C(100000000)

struct checkpoint;

/* A file that was opened. Borrowed from the checkpoint. */
struct checkpoint_file {
	char *name; /* relative to the directory */
	char *path;
	struct stat st;           /* as it was when it was opened */
	const unsigned char *map; /* [st.st_size]; NULL for JSON files */
};

/* Starts with a directory and nothing read from it. */
err_code checkpoint_open(const char *dir, struct checkpoint **out, struct err *e);
void checkpoint_free(struct checkpoint *c); /* NULL is fine */

/* Notes a file as read: it must be a regular file (symbolic links are followed). Returns its record, or NULL with an
 * error: ERR_NOT_FOUND when it is absent. */
const struct checkpoint_file *checkpoint_add(struct checkpoint *c, const char *name, struct err *e);

/* Parses a JSON file of the directory, of at most max_bytes, and notes it. */
err_code checkpoint_read_json(struct checkpoint *c, const char *name, size_t max_bytes, struct json **out,
                              struct err *e);

/* Maps model.safetensors, or else the shards that model.safetensors.index.json names, and reads their headers. Once. */
err_code checkpoint_map_weights(struct checkpoint *c, struct err *e);

/* Tensors are numbered in order of their names (bytewise). */
size_t checkpoint_n_tensors(const struct checkpoint *c);
const char *checkpoint_tensor_name(const struct checkpoint *c, size_t i);

/* The tensor's number, or -1 when there is none of that name. */
int64_t checkpoint_find(const struct checkpoint *c, const char *name);

/* The tensor's data and shape. Refused: a dtype other than F32, F16, BF16, no dimension, more than two. */
err_code checkpoint_tensor(const struct checkpoint *c, size_t i, struct tensor *out, struct err *e);

/* In the order in which they were opened. */
size_t checkpoint_n_files(const struct checkpoint *c);
const struct checkpoint_file *checkpoint_file(const struct checkpoint *c, size_t i);

/* ERR_CHANGED naming the first file that no longer is what was opened (device, inode, size, mtime, ctime). */
err_code checkpoint_check(const struct checkpoint *c, struct err *e);

/* Tells the kernel that no mapped page is needed for now. */
void checkpoint_drop_pages(const struct checkpoint *c);

#endif
