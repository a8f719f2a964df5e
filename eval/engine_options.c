/* What a job or a gate's measurement asks of the engine, as far as it can be told without a model and a device: the
 * position schemes themselves are known to the engine alone, which refuses the rest when the job is planned. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "eval/eval.h"
#include "eval/fields.h"

#define MAX_POSITION 32

/* choices: "auto|cpu|cuda" */
static bool is_one_of(const char *s, const char *choices)
{
	size_t len = strlen(s);

	for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
		if (len && strcspn(at, "|") == len && !memcmp(at, s, len))
			return true;
	return false;
}

static bool is_device(const char *s)
{
	if (is_one_of(s, "auto|cpu|cuda"))
		return true;
	return !strncmp(s, "cuda:", 5) && isdigit((unsigned char)s[5]) && strlen(s) <= 8 &&
	       strspn(s + 5, "0123456789") == strlen(s + 5);
}

static err_code read_position(const struct json *engine, const char *parent, const struct json **out, struct err *e)
{
	const struct json *v = json_get(engine, "position");
	char at[120];

	snprintf(at, sizeof at, "%s/position", parent);
	if (!field_given(v))
		return ERR_OK;
	if (!json_is_object(v))
		return REFUSE(e, parent, "position", "position is to be an object or null, not %s", json_type_name(v));
	if (json_count(v) > MAX_POSITION)
		return REFUSE(e, parent, "position", "position has %zu members; at most %d", json_count(v),
		              MAX_POSITION);
	for (const struct json *m = json_first(v); m; m = json_next(m))
		if (json_is_object(m) || json_is_array(m))
			return REFUSE(e, at, json_key(m), "member '%.100s' of position is %s", json_key(m),
			              json_type_name(m));
	if (!json_get_string(v, "type"))
		return REFUSE(e, at, "type", "position needs a type, such as \"yarn\"");
	*out = v;
	return ERR_OK;
}

err_code engine_options_read(const struct json *v, const char *at, struct engine_options *out, struct err *e)
{
	static const char *const known[] = {"device", "dtype", "position", NULL};

	*out = (struct engine_options){.device = "auto", .dtype = "auto"};
	if (!field_given(v))
		return ERR_OK;
	if (!json_is_object(v)) {
		err_set(e, ERR_INPUT, "engine is to be an object, not %s", json_type_name(v));
		return err_at(e, "%s", at);
	}
	if (fields_check(v, at, known, NULL, e) || field_string(v, at, "device", false, &out->device, e) ||
	    field_string(v, at, "dtype", false, &out->dtype, e))
		return e->code;
	out->device = out->device ? out->device : "auto";
	out->dtype = out->dtype ? out->dtype : "auto";
	if (!is_device(out->device))
		return REFUSE(e, at, "device", "device '%.40s' is none of auto, cpu, cuda, cuda:N", out->device);
	if (!is_one_of(out->dtype, "auto|f32|bf16|f16"))
		return REFUSE(e, at, "dtype", "dtype '%.40s' is none of auto, f32, bf16, f16", out->dtype);
	return read_position(v, at, &out->position, e);
}
