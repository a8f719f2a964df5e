/* Evidence in files: see evidence_file.h. What the members mean is eval/evidence.c's to check; here only that it is a
 * result with items. */
#include "server/evidence_file.h"

#include <string.h>

#include "engine/path.h"
#include "server/gzip.h"

bool evidence_file_named(const char *word)
{
	return path_has_suffix(word, ".json") || path_has_suffix(word, ".json.gz");
}

/* -- reading ----------------------------------------------------------------------------------- */

static err_code check_member(const struct json *result, const char *key, bool (*is)(const struct json *),
                             const char *type, struct err *e)
{
	const struct json *j = json_get(result, key);

	if (is(j))
		return ERR_OK;
	err_set(e, ERR_INPUT, "%s is %s, not %s%s", key, json_type_name(j), type,
	        strcmp(key, "items") ? ""
	                             : " (a result without its items cannot be compared: `fathom run --evidence`)");
	return err_at_member(e, "", key);
}

static err_code check_result(const struct json *result, struct err *e)
{
	if (!json_is_object(result)) {
		err_set(e, ERR_INPUT, "is %s, not a result object", json_type_name(result));
		return e->code;
	}
	if (check_member(result, "task", json_is_object, "an object", e) ||
	    check_member(result, "model", json_is_object, "an object", e) ||
	    check_member(result, "dataset", json_is_object, "an object", e) ||
	    check_member(result, "metrics", json_is_array, "an array", e) ||
	    check_member(result, "items", json_is_array, "an array", e))
		return e->code;
	return ERR_OK;
}

/* One object stands for a list of one. */
static err_code put_results(const struct json *root, struct json_writer *w, struct err *e)
{
	const struct json *list = json_get(root, "results");
	const struct json *j = list ? json_first(list) : root;
	char pointer[40] = "";

	if (list && (!json_is_array(list) || !j))
		return err_set(e, ERR_INPUT, "results is not an array of result objects (at /results)");
	json_begin_array(w, "results");
	for (size_t i = 0; j; i++, j = list ? json_next(j) : NULL) {
		if (list)
			snprintf(pointer, sizeof pointer, "/results/%zu", i);
		if (check_result(j, e)) {
			char member[sizeof e->pointer];

			snprintf(member, sizeof member, "%s", e->pointer);
			return err_wrap(e, "at %s%s%s", pointer, member, *pointer || *member ? "" : "the top");
		}
		json_put_value(w, NULL, j);
	}
	json_end_array(w);
	return ERR_OK;
}

err_code evidence_file_read(const char *path, struct buf *out, struct err *e)
{
	struct buf text = BUF_INIT(EVIDENCE_FILE_MAX);
	struct json_writer w = JSON_WRITER(out);
	struct json *root = NULL;
	err_code rc = gzip_read_file(&text, path, e);

	if (rc)
		goto out;
	rc = json_parse(buf_str(&text), text.len, &root, e);
	if (!rc) {
		json_begin_object(&w, NULL);
		rc = put_results(root, &w, e);
	}
	if (rc) {
		err_wrap(e, "'%.300s'", path);
		goto out;
	}
	json_end_object(&w);
	rc = buf_check(out, path, e);
out:
	json_free(root);
	buf_release(&text);
	return rc;
}

/* -- writing ----------------------------------------------------------------------------------- */

static err_code put_items(struct json_writer *w, const char *lines, size_t len, struct err *e)
{
	struct buf line = BUF_INIT(EVIDENCE_FILE_MAX);
	err_code rc = ERR_OK;

	json_begin_array(w, "items");
	while (len && !rc) {
		const char *end = memchr(lines, '\n', len);
		size_t n = end ? (size_t)(end - lines) : len;

		buf_clear(&line);
		buf_append(&line, lines, n);
		rc = buf_check(&line, "an item", e);
		if (!rc && n)
			json_put_raw(w, NULL, buf_str(&line));
		n += end != NULL;
		lines += n;
		len -= n;
	}
	json_end_array(w);
	buf_release(&line);
	return rc;
}

err_code evidence_file_put(struct json_writer *w, const char *key, const struct json *result, const char *lines,
                           size_t len, struct err *e)
{
	err_code rc;

	json_begin_object(w, key);
	for (const struct json *j = json_first(result); j; j = json_next(j))
		json_put_value(w, json_key(j), j);
	rc = put_items(w, lines, len, e);
	json_end_object(w);
	return rc;
}

err_code evidence_file_commit(struct output *o, const struct buf *text, struct err *e)
{
	if (path_has_suffix(o->path, ".gz")) {
		if (gzip_write(o->f, text, e))
			return err_wrap(e, "'%.300s'", o->path);
	} else if (fwrite(buf_str(text), 1, text->len, o->f) != text->len || putc('\n', o->f) == EOF) {
		return err_errno(e, "cannot write '%s'", o->path);
	}
	return output_commit(o, e);
}
