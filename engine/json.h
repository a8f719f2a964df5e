/* JSON: strict reading through cJSON, exact writing.
 *
 * Reading refuses what RFC 8259 refuses, and also invalid UTF-8, U+0000 in strings, duplicate keys, bytes after the
 * document and nesting deeper than JSON_MAX_DEPTH, so that what was read can be written again. Keys are case-sensitive.
 * Writing never goes through cJSON (1.7.15 prints 15 digits and loses one double in nine): doubles have the fewest of
 * 15 to 17 digits that read back as the same, integers are integers, strings are valid UTF-8 or replaced. */
#ifndef FATHOM_ENGINE_JSON_H
#define FATHOM_ENGINE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/buf.h"
#include "engine/err.h"

struct json; /* a parsed value; the root owns the tree, all else is borrowed from it */

/* The largest integer that a double holds exactly with all below it: 2^53. */
#define JSON_INT_MAX   INT64_C(9007199254740992)

#define JSON_MAX_DEPTH 64 /* of arrays and objects within each other */

/* -- reading ----------------------------------------------------------------------------------- */

err_code json_parse(const char *text, size_t len, struct json **out, struct err *e);
err_code json_parse_file(const char *path, size_t max_bytes, struct json **out, struct err *e);
void json_free(struct json *root); /* NULL is fine */

/* All take NULL and then say no. */
bool json_is_object(const struct json *j);
bool json_is_array(const struct json *j);
bool json_is_string(const struct json *j);
bool json_is_number(const struct json *j);
bool json_is_bool(const struct json *j);
bool json_is_null(const struct json *j);          /* an explicit null; false for NULL */
const char *json_type_name(const struct json *j); /* "object", ..., "absent" for NULL */

const struct json *json_get(const struct json *object, const char *key); /* NULL when absent */
const struct json *json_first(const struct json *container);             /* first child or NULL */
const struct json *json_next(const struct json *child);
size_t json_count(const struct json *container); /* O(n) */
const char *json_key(const struct json *member); /* NULL outside objects */

const char *json_string(const struct json *j); /* NULL unless a string */
const char *json_get_string(const struct json *object, const char *key);
bool json_number(const struct json *j, double *out);   /* false unless a number */
bool json_integer(const struct json *j, int64_t *out); /* false unless integral, |x| <= 2^53 */
bool json_get_integer(const struct json *object, const char *key, int64_t *out);
bool json_get_number(const struct json *object, const char *key, double *out);
bool json_true(const struct json *j); /* is the literal true */

/* -- writing ----------------------------------------------------------------------------------- */

#define JSON_MAX_WRITTEN (2 * JSON_MAX_DEPTH) /* nesting: what was read, and what is put around it */
struct json_writer {
	struct buf *out; /* borrowed; its failure is sticky and is the writer's only error */
	unsigned depth;
	bool has_member[JSON_MAX_WRITTEN];
};
#define JSON_WRITER(buffer) ((struct json_writer){.out = (buffer)})

/* `key` is NULL inside arrays and at the top. Nesting is asserted. */
void json_begin_object(struct json_writer *w, const char *key);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w, const char *key);
void json_end_array(struct json_writer *w);
void json_put_string(struct json_writer *w, const char *key, const char *s); /* NULL writes null */
void json_put_stringn(struct json_writer *w, const char *key, const char *s, size_t len);
void json_put_int(struct json_writer *w, const char *key, int64_t v);
void json_put_uint(struct json_writer *w, const char *key, uint64_t v);
void json_put_double(struct json_writer *w, const char *key, double v); /* null unless finite */
void json_put_bool(struct json_writer *w, const char *key, bool v);
void json_put_null(struct json_writer *w, const char *key);
void json_put_raw(struct json_writer *w, const char *key, const char *json_text);  /* trusted */
void json_put_value(struct json_writer *w, const char *key, const struct json *v); /* a copy */

#endif
