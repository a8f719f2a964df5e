/* Datasets: see dataset.h. A dataset is a sorted list of files and a cursor; one document's text is in memory. */
#include "eval/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/buf.h"
#include "engine/json.h"
#include "engine/path.h"
#include "engine/sha256.h"
#include "engine/utf8.h"

#define MAX_DOCUMENT_BYTES ((size_t)2 << 30)
#define MAX_DEPTH          32 /* of folders */

struct dataset {
	char *root;            /* owned: the path as given */
	char **paths, **names; /* [n] owned: full path, and path relative to root */
	size_t n, cap;
	uint64_t bytes;
	char fingerprint[FINGERPRINT_LEN];
	bool jsonl;
	/* the cursor */
	size_t at;   /* next file; in a .jsonl the line last read */
	FILE *lines; /* owned: an open .jsonl */
	char *line;  /* owned: getline's buffer */
	size_t line_cap;
	struct buf raw, text, name;
	struct document doc;
};

/* -- listing ----------------------------------------------------------------------------------- */

static err_code add_file(struct dataset *d, const char *path, const char *name, uint64_t size, struct err *e)
{
	size_t cap = d->cap;
	char **p = mem_grow(d->paths, &cap, d->n + 1, sizeof *p, e);

	if (!p)
		return e->code;
	d->paths = p;
	p = mem_grow(d->names, &d->cap, d->n + 1, sizeof *p, e);
	if (!p)
		return e->code;
	d->names = p;
	d->names[d->n] = NULL;
	d->paths[d->n] = mem_strdup(path, e);
	if (!d->paths[d->n++])
		return e->code;
	d->names[d->n - 1] = mem_strdup(name, e);
	d->bytes += size;
	return d->names[d->n - 1] ? ERR_OK : e->code;
}

/* A symbolic link may point to a file inside the dataset, nowhere else. */
static err_code check_link(const struct dataset *d, const char *path, const char *name, const struct stat *target,
                           struct err *e)
{
	if (S_ISDIR(target->st_mode))
		return err_set(e, ERR_INPUT, "'%s' is a symbolic link to a folder: not followed", name);
	if (!path_is_inside(d->root, path))
		return err_set(e, ERR_INPUT, "'%s' is a symbolic link that leaves the dataset", name);
	return ERR_OK;
}

static err_code list_folder(struct dataset *d, const char *dir, const char *prefix, unsigned depth, struct err *e);

static err_code list_entry(struct dataset *d, const char *dir, const char *prefix, const char *entry, unsigned depth,
                           struct err *e)
{
	char path[PATH_MAX], name[PATH_MAX];
	struct stat link, st;

	if (snprintf(path, sizeof path, "%s/%s", dir, entry) >= (int)sizeof path ||
	    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "/" : "", entry) >= (int)sizeof name)
		return err_set(e, ERR_INPUT, "path too long: '%.100s...'", dir);
	if (lstat(path, &link) || stat(path, &st))
		return err_errno(e, "cannot stat '%s'", path);
	if (!S_ISDIR(st.st_mode) && !path_has_suffix(entry, ".txt"))
		return ERR_OK;
	if (S_ISLNK(link.st_mode) && check_link(d, path, name, &st, e))
		return e->code;
	if (S_ISDIR(st.st_mode))
		return list_folder(d, path, name, depth + 1, e);
	return S_ISREG(st.st_mode) ? add_file(d, path, name, (uint64_t)st.st_size, e) : ERR_OK;
}

static err_code list_folder(struct dataset *d, const char *dir, const char *prefix, unsigned depth, struct err *e)
{
	DIR *f;
	struct dirent *entry;
	err_code rc = ERR_OK;

	if (depth > MAX_DEPTH)
		return err_set(e, ERR_INPUT, "'%s': folders nested deeper than %d", prefix, MAX_DEPTH);
	f = opendir(dir);
	if (!f)
		return err_errno(e, "cannot open '%s'", dir);
	while (!rc && (errno = 0, entry = readdir(f)))
		if (entry->d_name[0] != '.')
			rc = list_entry(d, dir, prefix, entry->d_name, depth, e);
	if (!rc && errno)
		rc = err_errno(e, "cannot read '%s'", dir);
	closedir(f);
	return rc;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorting the names sorts the paths, which are the root, a slash and the name. */
static err_code list_root(struct dataset *d, struct err *e)
{
	const char *base = strrchr(d->root, '/');
	struct stat st;

	base = base && base[1] ? base + 1 : d->root;
	if (stat(d->root, &st))
		return err_errno(e, "cannot open '%s'", d->root);
	d->jsonl = path_has_suffix(d->root, ".jsonl");
	if (S_ISREG(st.st_mode) && (d->jsonl || path_has_suffix(d->root, ".txt")))
		return add_file(d, d->root, base, (uint64_t)st.st_size, e);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INPUT, "'%s' is neither a folder of .txt files nor a .txt or .jsonl file", base);
	d->jsonl = false;
	if (list_folder(d, d->root, "", 0, e))
		return e->code;
	if (!d->n)
		return err_set(e, ERR_INPUT, "no documents: no .txt file in it");
	qsort(d->names, d->n, sizeof *d->names, compare_names);
	qsort(d->paths, d->n, sizeof *d->paths, compare_names);
	return ERR_OK;
}

err_code dataset_open(const char *path, struct dataset **out, struct err *e)
{
	struct dataset *d = mem_zalloc(1, sizeof *d, e);
	size_t n;
	err_code rc;

	if (!d)
		return e->code;
	d->raw = d->text = BUF_INIT(MAX_DOCUMENT_BYTES);
	d->name = BUF_INIT(PATH_MAX);
	d->root = mem_strdup(path, e);
	rc = d->root ? ERR_OK : ERR_MEMORY;
	if (!rc) {
		for (n = strlen(d->root); n > 1 && d->root[n - 1] == '/'; n--)
			d->root[n - 1] = '\0';
		rc = list_root(d, e);
	}
	if (!rc)
		rc = fingerprint_files((const char *const *)d->paths, (const char *const *)d->names, d->n,
		                       d->fingerprint, e);
	if (!rc && d->jsonl) {
		d->lines = fopen(d->paths[0], "re");
		if (!d->lines)
			rc = err_errno(e, "cannot open '%s'", d->paths[0]);
	}
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
	for (size_t i = 0; i < d->n; i++) {
		free(d->paths[i]);
		free(d->names[i]);
	}
	free(d->paths);
	free(d->names);
	free(d->root);
	if (d->lines)
		fclose(d->lines);
	free(d->line);
	buf_release(&d->raw);
	buf_release(&d->text);
	buf_release(&d->name);
	free(d);
}

const char *dataset_fingerprint(const struct dataset *d)
{
	return d->fingerprint;
}

uint64_t dataset_bytes(const struct dataset *d)
{
	return d->bytes;
}

/* -- reading ----------------------------------------------------------------------------------- */

static err_code next_file(struct dataset *d, const struct document **out, struct err *e)
{
	buf_clear(&d->raw);
	if (buf_read_file(&d->raw, d->paths[d->at], e))
		return e->code;
	d->doc.name = d->names[d->at++];
	d->doc.read += d->raw.len;
	d->doc.n_replaced = utf8_clean(&d->text, buf_str(&d->raw), d->raw.len, true);
	*out = &d->doc;
	return ERR_OK;
}

static bool is_blank(const char *s, size_t len)
{
	while (len && strchr(" \t\r\n", s[len - 1]) && s[len - 1])
		len--;
	return !len;
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
		buf_printf(&d->name, "line %zu", d->at);
	d->doc.name = buf_str(&d->name);
	return ERR_OK;
}

static err_code next_line(struct dataset *d, const struct document **out, struct err *e)
{
	struct json *line = NULL;
	ssize_t n;
	err_code rc;

	do {
		errno = 0;
		n = getline(&d->line, &d->line_cap, d->lines);
		if (n < 0)
			return ferror(d->lines) || errno ? err_errno(e, "cannot read '%s'", d->paths[0]) : ERR_OK;
		d->at++;
		d->doc.read += (uint64_t)n;
	} while (is_blank(d->line, (size_t)n));
	buf_clear(&d->raw);
	d->doc.n_replaced = utf8_clean(&d->raw, d->line, (size_t)n, false);
	rc = buf_check(&d->raw, "a line", e);
	if (!rc)
		rc = json_parse(buf_str(&d->raw), d->raw.len, &line, e);
	if (!rc)
		rc = take_line(d, line, e);
	json_free(line);
	if (rc)
		return err_wrap(e, "'%s' line %zu", d->names[0], d->at);
	*out = &d->doc;
	return ERR_OK;
}

err_code dataset_next(struct dataset *d, const struct document **out, struct err *e)
{
	*out = NULL;
	buf_clear(&d->text);
	if (d->jsonl ? next_line(d, out, e) : d->at < d->n && next_file(d, out, e))
		return e->code;
	if (*out && buf_check(&d->text, d->doc.name, e))
		return e->code;
	d->doc.text = buf_str(&d->text);
	d->doc.len = d->text.len;
	return ERR_OK;
}

err_code dataset_check(struct dataset *d, struct err *e)
{
	char now[FINGERPRINT_LEN];

	if (fingerprint_files((const char *const *)d->paths, (const char *const *)d->names, d->n, now, e))
		return e->code;
	if (strcmp(now, d->fingerprint) != 0)
		return err_set(e, ERR_CHANGED, "a file changed while it was read");
	return ERR_OK;
}
