/* Documents of a dataset: see dataset.h. A cursor over its files; one document's text is in memory. */
#include "eval/dataset.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/json.h"
#include "engine/path.h"
#include "engine/utf8.h"
#include "eval/files.h"

#define MAX_DOCUMENT_BYTES ((size_t)2 << 30)

struct dataset {
	struct file_list files; /* owned, as all here */
	size_t at;              /* the next file, where a file is a document */
	bool jsonl;
	struct line_reader lines; /* of the .jsonl */
	struct buf raw, text, name;
	struct document doc;
};

/* -- opening ----------------------------------------------------------------------------------- */

err_code dataset_open(const char *path, struct dataset **out, struct err *e)
{
	struct dataset *d = mem_zalloc(1, sizeof *d, e);
	struct stat st;
	err_code rc;

	if (!d)
		return e->code;
	d->raw = d->text = BUF_INIT(MAX_DOCUMENT_BYTES);
	d->name = BUF_INIT(PATH_MAX);
	/* in a folder a .jsonl is no document */
	rc = file_list_open(&d->files, path, !stat(path, &st) && S_ISDIR(st.st_mode) ? ".txt" : ".txt|.jsonl", e);
	d->jsonl = !rc && path_has_suffix(d->files.paths[0], ".jsonl");
	if (!rc && d->jsonl)
		rc = line_reader_open(&d->lines, d->files.paths[0], e);
	if (!rc)
		*out = d;
	else
		dataset_close(d);
	return rc;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	file_list_release(&d->files);
	line_reader_close(&d->lines);
	buf_release(&d->raw);
	buf_release(&d->text);
	buf_release(&d->name);
	free(d);
}

const char *dataset_fingerprint(const struct dataset *d)
{
	return d->files.fingerprint;
}

uint64_t dataset_bytes(const struct dataset *d)
{
	return d->files.bytes;
}

/* -- reading ----------------------------------------------------------------------------------- */

static err_code next_file(struct dataset *d, const struct document **out, struct err *e)
{
	buf_clear(&d->raw);
	if (buf_read_file(&d->raw, d->files.paths[d->at], e))
		return e->code;
	d->doc.name = d->files.names[d->at++];
	d->doc.read += d->raw.len;
	d->doc.n_replaced = utf8_clean(&d->text, buf_str(&d->raw), d->raw.len, true);
	*out = &d->doc;
	return ERR_OK;
}

/* Takes text and id out of a line's object. The newline rule holds for the text inside the string. */
static err_code take_line(struct dataset *d, const struct json *line, struct err *e)
{
	const char *text = json_get_string(line, "text"), *id = json_get_string(line, "id");
	int64_t number;

	if (!text)
		return err_set(e, ERR_INPUT, "no string \"text\" (it is %s)",
		               json_is_object(line) ? json_type_name(json_get(line, "text")) : "in no object");
	utf8_clean(&d->text, text, strlen(text), true);
	buf_clear(&d->name);
	if (id)
		buf_puts(&d->name, id);
	else if (json_get_integer(line, "id", &number))
		buf_printf(&d->name, "%lld", (long long)number);
	else
		buf_printf(&d->name, "line %zu", d->lines.number);
	d->doc.name = buf_str(&d->name);
	return ERR_OK;
}

static err_code next_line(struct dataset *d, const struct document **out, struct err *e)
{
	struct json *line = NULL;
	bool more = true;
	err_code rc;

	do {
		rc = line_reader_next(&d->lines, &more, e);
	} while (!rc && more && line_is_blank(buf_str(&d->lines.line), d->lines.line.len));
	if (!rc && !more)
		return ERR_OK;
	d->doc.read = d->lines.read;
	d->doc.n_replaced = d->lines.n_replaced;
	if (!rc)
		rc = json_parse(buf_str(&d->lines.line), d->lines.line.len, &line, e);
	if (!rc)
		rc = take_line(d, line, e);
	json_free(line);
	if (rc)
		return err_wrap(e, "'%s' line %zu", d->files.names[0], d->lines.number);
	*out = &d->doc;
	return ERR_OK;
}

err_code dataset_next(struct dataset *d, const struct document **out, struct err *e)
{
	*out = NULL;
	buf_clear(&d->text);
	if (d->jsonl ? next_line(d, out, e) : d->at < d->files.n && next_file(d, out, e))
		return e->code;
	if (*out && buf_check(&d->text, d->doc.name, e))
		return e->code;
	d->doc.text = buf_str(&d->text);
	d->doc.len = d->text.len;
	return ERR_OK;
}

err_code dataset_check(struct dataset *d, struct err *e)
{
	return file_list_check(&d->files, e);
}
