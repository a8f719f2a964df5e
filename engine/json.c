/* JSON: see json.h. The only file that knows cJSON. Text is checked by `struct lexer` first, because cJSON
 * accepts more than JSON (raw control characters, "01", "\u0000" as an end of string). */
#include "engine/json.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "engine/path.h"
#include "engine/utf8.h"

/* -- reading ----------------------------------------------------------------------------------- */

static const cJSON *c(const struct json *j)
{
	return (const cJSON *)j;
}

static bool is_digit(char ch)
{
	return ch >= '0' && ch <= '9';
}

/* The end of a JSON number at s, or NULL: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static const char *number_end(const char *s, const char *end)
{
	if (s < end && *s == '-')
		s++;
	if (s == end || !is_digit(*s))
		return NULL;
	if (*s++ != '0')
		while (s < end && is_digit(*s))
			s++;
	if (s < end && *s == '.') {
		if (++s == end || !is_digit(*s))
			return NULL;
		while (s < end && is_digit(*s))
			s++;
	}
	if (s < end && (*s == 'e' || *s == 'E')) {
		s++;
		if (s < end && (*s == '+' || *s == '-'))
			s++;
		if (s == end || !is_digit(*s))
			return NULL;
		while (s < end && is_digit(*s))
			s++;
	}
	return s;
}

/* The end of a string whose opening quote is at s, or NULL with an error. */
static const char *string_end(const char *text, const char *s, const char *end, struct err *e)
{
	size_t n_hex;

	for (s++; s < end; s++) {
		if (*s == '"')
			return s + 1;
		if ((unsigned char)*s < 0x20)
			break;
		if (*s != '\\' || ++s == end || *s != 'u')
			continue; /* cJSON knows the other escapes, but takes \u12g4 for U+0000 */
		for (n_hex = 0; n_hex < 4 && s + 1 + n_hex < end && isxdigit((unsigned char)s[1 + n_hex]); n_hex++)
			;
		if (n_hex < 4 || !memcmp(s, "u0000", 5)) {
			err_set(e, ERR_INPUT, "JSON: %s in a string at byte %td",
			        n_hex < 4 ? "malformed \\u" : "\\u0000", s - text);
			return NULL;
		}
	}
	err_set(e, ERR_INPUT, "JSON: %s in a string at byte %td", s < end ? "a control character" : "unexpected end",
	        s - text);
	return NULL;
}

/* Everything that cJSON would let pass. */
static err_code lex(const char *text, size_t len, struct err *e)
{
	const char *s = text, *end = text + len, *after;
	size_t good = utf8_valid_prefix(text, len), depth = 0;

	if (good < len)
		return err_set(e, ERR_INPUT, "JSON: invalid UTF-8 at byte %zu", good);
	while (s < end) {
		if (*s == '"') {
			s = string_end(text, s, end, e);
			if (!s)
				return e->code;
		} else if (*s == '-' || is_digit(*s)) {
			after = number_end(s, end);
			if (!after || (after < end && (is_digit(*after) || *after == '.')))
				return err_set(e, ERR_INPUT, "JSON: malformed number at byte %td", s - text);
			if (after - s > 60)
				return err_set(e, ERR_INPUT, "JSON: number of %td characters at byte %td", after - s,
				               s - text);
			s = after;
		} else if (*s && strchr(" \t\r\n{}[]:,truefalsn", *s)) {
			depth += *s == '[' || *s == '{';
			depth -= depth && (*s == ']' || *s == '}');
			if (depth > JSON_MAX_DEPTH)
				return err_set(e, ERR_INPUT, "JSON: nested deeper than %d at byte %td", JSON_MAX_DEPTH,
				               s - text);
			s++;
		} else {
			return err_set(e, ERR_INPUT, "JSON: unexpected character at byte %td", s - text);
		}
	}
	return ERR_OK;
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuses duplicate keys and numbers that overflow, at every level. */
static err_code check_tree(const cJSON *j, struct err *e)
{
	const char **keys = NULL;
	size_t n = 0, i = 0;

	if (cJSON_IsNumber(j) && !isfinite(j->valuedouble))
		return err_set(e, ERR_INPUT, "JSON: number out of range");
	for (const cJSON *m = j->child; m; m = m->next, n++)
		if ((m->child || cJSON_IsNumber(m)) && check_tree(m, e))
			return e->code;
	if (!cJSON_IsObject(j) || n < 2)
		return ERR_OK;
	keys = mem_alloc(n, sizeof *keys, e);
	if (!keys)
		return e->code;
	for (const cJSON *m = j->child; m; m = m->next)
		keys[i++] = m->string;
	qsort(keys, n, sizeof *keys, compare_keys);
	for (i = 1; i < n && strcmp(keys[i - 1], keys[i]) != 0; i++)
		;
	if (i < n)
		err_set(e, ERR_INPUT, "JSON: duplicate key '%.100s'", keys[i]);
	free(keys);
	return i < n ? e->code : ERR_OK;
}

err_code json_parse(const char *text, size_t len, struct json **out, struct err *e)
{
	const char *end = text, *stop = text + len;
	cJSON *j;

	if (!len)
		return err_set(e, ERR_INPUT, "JSON: the text is empty");
	if (lex(text, len, e))
		return e->code;
	j = cJSON_ParseWithLengthOpts(text, len, &end, 0);
	if (!j)
		return err_set(e, ERR_INPUT, "JSON: malformed at byte %td", end ? end - text : 0);
	while (end < stop && *end && strchr(" \t\r\n", *end))
		end++;
	if (end != stop) {
		cJSON_Delete(j);
		return err_set(e, ERR_INPUT, "JSON: bytes after the document at byte %td", end - text);
	}
	if (check_tree(j, e)) {
		cJSON_Delete(j);
		return e->code;
	}
	*out = (struct json *)j;
	return ERR_OK;
}

err_code json_parse_file(const char *path, size_t max_bytes, struct json **out, struct err *e)
{
	struct buf text = BUF_INIT(max_bytes);
	err_code rc = buf_read_file(&text, path, e);

	if (!rc && path_is_lfs_pointer(buf_str(&text), text.len))
		rc = err_set(e, ERR_INPUT, "'%s' is a Git LFS pointer, not the file itself (git lfs pull)", path);
	else if (!rc && json_parse(buf_str(&text), text.len, out, e))
		rc = err_wrap(e, "'%s'", path);
	buf_release(&text);
	return rc;
}

void json_free(struct json *root)
{
	cJSON_Delete((cJSON *)root);
}

bool json_is_object(const struct json *j)
{
	return cJSON_IsObject(c(j));
}

bool json_is_array(const struct json *j)
{
	return cJSON_IsArray(c(j));
}

bool json_is_string(const struct json *j)
{
	return cJSON_IsString(c(j));
}

bool json_is_number(const struct json *j)
{
	return cJSON_IsNumber(c(j));
}

bool json_is_bool(const struct json *j)
{
	return cJSON_IsBool(c(j));
}

bool json_is_null(const struct json *j)
{
	return cJSON_IsNull(c(j));
}

const char *json_type_name(const struct json *j)
{
	return !j                  ? "absent"
	       : json_is_object(j) ? "object"
	       : json_is_array(j)  ? "array"
	       : json_is_string(j) ? "string"
	       : json_is_number(j) ? "number"
	       : json_is_bool(j)   ? "boolean"
	                           : "null";
}

const struct json *json_get(const struct json *object, const char *key)
{
	return (const struct json *)cJSON_GetObjectItemCaseSensitive(c(object), key);
}

const struct json *json_first(const struct json *container)
{
	return container ? (const struct json *)c(container)->child : NULL;
}

const struct json *json_next(const struct json *child)
{
	return (const struct json *)c(child)->next;
}

size_t json_count(const struct json *container)
{
	size_t n = 0;

	for (const struct json *j = json_first(container); j; j = json_next(j))
		n++;
	return n;
}

const char *json_key(const struct json *member)
{
	return c(member)->string;
}

const char *json_string(const struct json *j)
{
	return cJSON_GetStringValue(c(j));
}

const char *json_get_string(const struct json *object, const char *key)
{
	return json_string(json_get(object, key));
}

bool json_number(const struct json *j, double *out)
{
	if (!json_is_number(j))
		return false;
	*out = c(j)->valuedouble;
	return true;
}

bool json_integer(const struct json *j, int64_t *out)
{
	double v;

	if (!json_number(j, &v) || v != floor(v) || fabs(v) > (double)JSON_INT_MAX)
		return false;
	*out = (int64_t)v;
	return true;
}

bool json_get_integer(const struct json *object, const char *key, int64_t *out)
{
	return json_integer(json_get(object, key), out);
}

bool json_get_number(const struct json *object, const char *key, double *out)
{
	return json_number(json_get(object, key), out);
}

bool json_true(const struct json *j)
{
	return cJSON_IsTrue(c(j));
}

/* -- writing ----------------------------------------------------------------------------------- */

static void put_quoted(struct buf *out, const char *s, size_t len)
{
	size_t n;

	buf_putc(out, '"');
	for (size_t i = 0; i < len; i += n) {
		unsigned char ch = (unsigned char)s[i];

		n = 1;
		if (ch == '"' || ch == '\\')
			buf_printf(out, "\\%c", ch);
		else if (ch == '\n')
			buf_puts(out, "\\n");
		else if (ch == '\t')
			buf_puts(out, "\\t");
		else if (ch < 0x20 || ch == 0x7F)
			buf_printf(out, "\\u%04x", ch);
		else if (ch < 0x80)
			buf_putc(out, (char)ch);
		else if (utf8_next(s + i, len - i, &n) == UTF8_INVALID)
			buf_puts(out, "\xEF\xBF\xBD");
		else
			buf_append(out, s + i, n);
	}
	buf_putc(out, '"');
}

/* The comma and the key before a value. */
static void lead(struct json_writer *w, const char *key)
{
	if (w->has_member[w->depth])
		buf_putc(w->out, ',');
	w->has_member[w->depth] = true;
	if (!key)
		return;
	put_quoted(w->out, key, strlen(key));
	buf_putc(w->out, ':');
}

static void begin(struct json_writer *w, const char *key, char bracket)
{
	lead(w, key);
	buf_putc(w->out, bracket);
	assert(w->depth + 1 < JSON_MAX_WRITTEN);
	w->has_member[++w->depth] = false;
}

static void end(struct json_writer *w, char bracket)
{
	assert(w->depth > 0);
	w->depth--;
	buf_putc(w->out, bracket);
}

void json_begin_object(struct json_writer *w, const char *key)
{
	begin(w, key, '{');
}

void json_end_object(struct json_writer *w)
{
	end(w, '}');
}

void json_begin_array(struct json_writer *w, const char *key)
{
	begin(w, key, '[');
}

void json_end_array(struct json_writer *w)
{
	end(w, ']');
}

void json_put_string(struct json_writer *w, const char *key, const char *s)
{
	if (s)
		json_put_stringn(w, key, s, strlen(s));
	else
		json_put_null(w, key);
}

void json_put_stringn(struct json_writer *w, const char *key, const char *s, size_t len)
{
	lead(w, key);
	put_quoted(w->out, s, len);
}

void json_put_int(struct json_writer *w, const char *key, int64_t v)
{
	lead(w, key);
	buf_printf(w->out, "%lld", (long long)v);
}

void json_put_uint(struct json_writer *w, const char *key, uint64_t v)
{
	lead(w, key);
	buf_printf(w->out, "%llu", (unsigned long long)v);
}

void json_put_double(struct json_writer *w, const char *key, double v)
{
	char text[32] = "null";

	lead(w, key);
	for (int digits = 15; isfinite(v) && digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	buf_puts(w->out, text);
}

void json_put_bool(struct json_writer *w, const char *key, bool v)
{
	lead(w, key);
	buf_puts(w->out, v ? "true" : "false");
}

void json_put_null(struct json_writer *w, const char *key)
{
	lead(w, key);
	buf_puts(w->out, "null");
}

void json_put_raw(struct json_writer *w, const char *key, const char *json_text)
{
	lead(w, key);
	buf_puts(w->out, json_text);
}

void json_put_value(struct json_writer *w, const char *key, const struct json *v)
{
	int64_t i;

	if (json_is_object(v) || json_is_array(v)) {
		begin(w, key, json_is_object(v) ? '{' : '[');
		for (const struct json *m = json_first(v); m; m = json_next(m))
			json_put_value(w, json_key(m), m);
		end(w, json_is_object(v) ? '}' : ']');
	} else if (json_is_string(v)) {
		json_put_string(w, key, json_string(v));
	} else if (json_integer(v, &i) && (i != 0 || !signbit(c(v)->valuedouble))) {
		json_put_int(w, key, i);
	} else if (json_is_number(v)) {
		json_put_double(w, key, c(v)->valuedouble);
	} else if (json_is_bool(v)) {
		json_put_bool(w, key, json_true(v));
	} else {
		json_put_null(w, key);
	}
}
