/* What subcommands share: see cmd.h. */
#include "server/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/json.h"
#include "eval/gate.h"
#include "server/report.h"

int cmd_error(const char *name, const struct err *e)
{
	fprintf(stderr, "fathom %s: %s\n", name, e->msg);
	return 2;
}

err_code cmd_check_format(const char *value, struct err *e)
{
	enum report_format f;

	if (report_format_from_name(value, &f) && f != REPORT_SVG)
		return ERR_OK;
	return err_set(e, ERR_INPUT, "is not table, json, csv or markdown");
}

err_code cmd_check_threads(const char *value, struct err *e)
{
	char *end;
	long n = strtol(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || n > 1024)
		return err_set(e, ERR_INPUT, "is not a number from 0 to 1024");
	return ERR_OK;
}

err_code cmd_check_json(const char *value, struct err *e)
{
	struct json *j = NULL;
	bool good = !json_parse(value, strlen(value), &j, e) && json_is_object(j);

	json_free(j);
	return good ? ERR_OK : err_set(e, ERR_INPUT, "is not a JSON object");
}

err_code cmd_put_params(const struct options *o, const struct task *t, struct json_writer *w, struct err *e)
{
	size_t n;
	const char *const *sets = options_all(o, "--set", &n);

	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(sets[i], "=");

		if (task_param_parse(t, sets[i], w, e))
			return err_wrap(e, "--set");
		for (size_t k = 0; k < i; k++)
			if (strcspn(sets[k], "=") == len && !memcmp(sets[k], sets[i], len))
				return err_set(e, ERR_INPUT, "--set: %.*s is given twice", (int)len, sets[i]);
	}
	return ERR_OK;
}

err_code cmd_read_params(const struct options *o, const struct task *t, struct json **out, struct err *e)
{
	struct buf given = BUF_INIT(1 << 20), effective = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&given);
	struct json *j = NULL;
	err_code rc;

	json_begin_object(&w, NULL);
	rc = cmd_put_params(o, t, &w, e);
	json_end_object(&w);
	if (!rc)
		rc = buf_check(&given, "--set", e);
	if (!rc && (json_parse(buf_str(&given), given.len, &j, e) || task_params(t, j, &effective, e)))
		rc = err_wrap(e, "--set");
	if (!rc)
		rc = json_parse(buf_str(&effective), effective.len, out, e);
	json_free(j);
	buf_release(&given);
	buf_release(&effective);
	return rc;
}

err_code cmd_check_pair(const char *value, struct err *e)
{
	const char *eq = strchr(value, '=');

	return eq && eq != value ? ERR_OK : err_set(e, ERR_INPUT, "is not KEY=VALUE");
}

err_code cmd_put_tags(const struct options *o, struct json_writer *w, struct err *e)
{
	size_t n;
	const char *const *tags = options_all(o, "--tag", &n);

	json_begin_object(w, "tags");
	for (size_t i = 0; i < n; i++) {
		const char *eq = strchr(tags[i], '=');
		char *key = strndup(tags[i], (size_t)(eq - tags[i]));

		if (!key)
			return err_set(e, ERR_MEMORY, "out of memory");
		json_put_string(w, key, eq + 1);
		free(key);
	}
	json_end_object(w);
	return ERR_OK;
}

err_code cmd_read_gate(const char *path, struct buf *text, struct gate **out, struct err *e)
{
	struct buf own = BUF_INIT((size_t)1 << 20), *b = text ? text : &own;
	err_code rc = buf_read_file(b, path, e);

	if (!rc && gate_parse_text(buf_str(b), b->len, out, e))
		rc = err_wrap(e, "'%.300s'%s%s", path, e->pointer[0] ? " at " : "", e->pointer);
	buf_release(&own);
	return rc;
}
