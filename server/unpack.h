/* Archives (zip, tar, compressed or not): named files of them, through libarchive. */
#ifndef FATHOM_SERVER_UNPACK_H
#define FATHOM_SERVER_UNPACK_H

#include "engine/err.h"

#define UNPACK_SUFFIX ".part"

/* Writes the regular files `members` (paths in the archive, up to a NULL) as dir/BASE.part, BASE being a path's last
 * component: the caller renames them once all is well. ERR_INPUT when the archive is none, is damaged, or lacks one. */
err_code unpack_members(const char *archive, const char *const *members, const char *dir, struct err *e);

#endif
