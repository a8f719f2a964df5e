/* Members of a JSON object that a person wrote: each function reads one, and refuses with ERR_INPUT and a JSON pointer
 * what is of another type or out of range. `parent` is the object's own pointer ("" for the root). Absent and null are
 * the same. */
#ifndef FATHOM_EVAL_FIELDS_H
#define FATHOM_EVAL_FIELDS_H

#include "engine/json.h"

#define FIELD_MAX_NAME 100

/* ERR_INPUT at parent/key. */
#define REFUSE(e, parent, key, ...) (err_set(e, ERR_INPUT, __VA_ARGS__), err_at_member(e, parent, key))

bool field_given(const struct json *v); /* neither absent nor null */

/* Every member of the object is one of `shared` or of `own` (may be NULL): NULL-terminated lists of names, whose '!' at
 * the end is no part of them. */
err_code fields_check(const struct json *object, const char *parent, const char *const *shared, const char *const *own,
                      struct err *e);

/* *out, borrowed, is NULL where it is absent; that is refused where it is required. */
err_code field_string(const struct json *object, const char *parent, const char *key, bool required, const char **out,
                      struct err *e);

/* A name that was read: 1 to FIELD_MAX_NAME bytes without control characters. */
err_code field_check_name(const char *name, const char *parent, const char *key, struct err *e);

/* min to max; above: min itself is not allowed. Here and below *out is as it was where the member is absent. */
struct field_range {
	double min, max;
	bool above;
};
err_code field_number(const struct json *object, const char *parent, const char *key, struct field_range in,
                      double *out, struct err *e);
err_code field_integer(const struct json *object, const char *parent, const char *key, int64_t min, int64_t max,
                       int64_t *out, struct err *e);

/* *out is the index among two choices, 0 where it is absent; and false. */
err_code field_choice(const struct json *object, const char *parent, const char *key, const char *const choices[2],
                      int *out, struct err *e);
err_code field_bool(const struct json *object, const char *parent, const char *key, bool *out, struct err *e);

/* A member of the root that is an array of 1 to max objects. */
err_code field_list(const struct json *given, const char *key, size_t max, const struct json **out, struct err *e);

#endif
