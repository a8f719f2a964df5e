/* Methods of Python's str that protocols are defined by. Strings are valid UTF-8. */
#ifndef FATHOM_ENGINE_PYSTR_H
#define FATHOM_ENGINE_PYSTR_H

#include <stddef.h>

#include "engine/buf.h"

/* str.rstrip: the length of s without the white space at its end (White_Space and the four separators of ASCII). */
size_t pystr_rstrip(const char *s, size_t len);
/* str.lstrip: the bytes of white space that s begins with. */
size_t pystr_lstrip(const char *s, size_t len);

/* str.capitalize: appends the first character in title case and all others in lower case. */
void pystr_capitalize(struct buf *out, const char *s, size_t len);

#endif
