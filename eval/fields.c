/* Members of JSON objects that people write: see fields.h. */
#include "eval/fields.h"

#include <stdio.h>
#include <string.h>

bool field_given(const struct json *v)
{
	return v && !json_is_null(v);
}

static bool is_member(const char *listed, const char *key)
{
	size_t n = strcspn(listed, "!");

	return !strncmp(listed, key, n) && !key[n];
}

err_code fields_check(const struct json *object, const char *parent, const char *const *shared, const char *const *own,
                      struct err *e)
{
	struct buf known = BUF_INIT(4096);
	const struct json *m;

	for (m = json_first(object); m; m = json_next(m)) {
		bool found = false;

		for (size_t i = 0; !found && shared[i]; i++)
			found = is_member(shared[i], json_key(m));
		for (size_t i = 0; !found && own && own[i]; i++)
			found = is_member(own[i], json_key(m));
		if (!found)
			break;
	}
	if (!m)
		return ERR_OK;
	for (size_t i = 0; shared[i]; i++)
		buf_printf(&known, "%s%.*s", i ? ", " : "", (int)strcspn(shared[i], "!"), shared[i]);
	for (size_t i = 0; own && own[i]; i++)
		buf_printf(&known, ", %.*s", (int)strcspn(own[i], "!"), own[i]);
	REFUSE(e, parent, json_key(m), "unknown member '%.100s'; known: %s", json_key(m), buf_str(&known));
	buf_release(&known);
	return e->code;
}

err_code field_string(const struct json *object, const char *parent, const char *key, bool required, const char **out,
                      struct err *e)
{
	const struct json *v = json_get(object, key);

	*out = json_string(v);
	if (!*out && field_given(v))
		return REFUSE(e, parent, key, "%s is to be a string, not %s", key, json_type_name(v));
	if (!*out && required)
		return REFUSE(e, parent, key, "%s is missing", key);
	return ERR_OK;
}

err_code field_check_name(const char *name, const char *parent, const char *key, struct err *e)
{
	size_t len = strlen(name);

	if (!len || len > FIELD_MAX_NAME)
		return REFUSE(e, parent, key, "%s has %zu bytes, not 1 to %d", key, len, FIELD_MAX_NAME);
	for (; *name; name++)
		if ((unsigned char)*name < ' ' || *name == 0x7f)
			return REFUSE(e, parent, key, "%s has a control character", key);
	return ERR_OK;
}

err_code field_number(const struct json *object, const char *parent, const char *key, struct field_range in,
                      double *out, struct err *e)
{
	const struct json *v = json_get(object, key);
	double d;

	if (!field_given(v))
		return ERR_OK;
	if (!json_number(v, &d))
		return REFUSE(e, parent, key, "%s is to be a number, not %s", key, json_type_name(v));
	if (!(d >= in.min && d <= in.max) || (in.above && d <= in.min))
		return REFUSE(e, parent, key, "%s is %.17g, not %s %g and at most %g", key, d,
		              in.above ? "above" : "at least", in.min, in.max);
	*out = d;
	return ERR_OK;
}

err_code field_integer(const struct json *object, const char *parent, const char *key, int64_t min, int64_t max,
                       int64_t *out, struct err *e)
{
	const struct json *v = json_get(object, key);

	if (!field_given(v))
		return ERR_OK;
	if (!json_integer(v, out) || *out < min || *out > max)
		return REFUSE(e, parent, key, "%s is to be an integer from %lld to %lld", key, (long long)min,
		              (long long)max);
	return ERR_OK;
}

err_code field_choice(const struct json *object, const char *parent, const char *key, const char *const choices[2],
                      int *out, struct err *e)
{
	const char *s;

	*out = 0;
	if (field_string(object, parent, key, false, &s, e))
		return e->code;
	if (s && strcmp(s, choices[0]) != 0 && strcmp(s, choices[1]) != 0)
		return REFUSE(e, parent, key, "%s is '%.40s', not %s or %s", key, s, choices[0], choices[1]);
	*out = s && !strcmp(s, choices[1]);
	return ERR_OK;
}

err_code field_bool(const struct json *object, const char *parent, const char *key, bool *out, struct err *e)
{
	const struct json *v = json_get(object, key);

	if (field_given(v) && !json_is_bool(v))
		return REFUSE(e, parent, key, "%s is to be true or false, not %s", key, json_type_name(v));
	*out = json_true(v);
	return ERR_OK;
}

err_code field_list(const struct json *given, const char *key, size_t max, const struct json **out, struct err *e)
{
	const struct json *v = json_get(given, key);
	size_t i = 0;
	char parent[40];

	if (!json_is_array(v))
		return field_given(v)
		           ? REFUSE(e, "", key, "%s is to be an array of objects, not %s", key, json_type_name(v))
		           : REFUSE(e, "", key, "%s is missing", key);
	if (!json_count(v) || json_count(v) > max)
		return REFUSE(e, "", key, "%s has %zu elements, not 1 to %zu", key, json_count(v), max);
	for (const struct json *m = json_first(v); m; m = json_next(m), i++) {
		if (json_is_object(m))
			continue;
		snprintf(parent, sizeof parent, "/%s/%zu", key, i);
		err_set(e, ERR_INPUT, "an element of %s is %s, not an object", key, json_type_name(m));
		return err_at(e, "%s", parent);
	}
	*out = v;
	return ERR_OK;
}
