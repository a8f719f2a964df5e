/* Paths: questions that several files ask about them. */
#ifndef FATHOM_ENGINE_PATH_H
#define FATHOM_ENGINE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

/* Whether a path ends in the suffix (".txt"), and is more than that. */
bool path_has_suffix(const char *path, const char *suffix);

/* Whether the real path lies below the real directory: no link, no ".." leads out. False when either is not there. */
bool path_is_inside(const char *dir, const char *path);

/* Whether these bytes are a Git LFS pointer, which a clone without LFS has in place of the file. */
bool path_is_lfs_pointer(const void *data, size_t len);

/* The last component of the path as given ("models/x/" is x), so that a link keeps its name; of the real path where
 * that says nothing: ".", "..", "/". The caller's; NULL with an error. */
char *path_name(const char *path, struct err *e);

#endif
