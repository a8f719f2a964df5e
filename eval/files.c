/* Files of a dataset: see files.h. */
#include "eval/files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/path.h"
#include "engine/utf8.h"

#define MAX_LINE_BYTES ((size_t)2 << 30)
#define MAX_DEPTH      32 /* of folders */

/* -- listing ----------------------------------------------------------------------------------- */

static err_code add_file(struct file_list *l, const char *path, const char *name, uint64_t size, struct err *e)
{
	size_t cap = l->cap;
	char **p = mem_grow(l->paths, &cap, l->n + 1, sizeof *p, e);

	if (!p)
		return e->code;
	l->paths = p;
	p = mem_grow(l->names, &l->cap, l->n + 1, sizeof *p, e);
	if (!p)
		return e->code;
	l->names = p;
	l->names[l->n] = NULL;
	l->paths[l->n] = mem_strdup(path, e);
	if (!l->paths[l->n++])
		return e->code;
	l->names[l->n - 1] = mem_strdup(name, e);
	l->bytes += size;
	return l->names[l->n - 1] ? ERR_OK : e->code;
}

/* Whether a name ends in one of the suffixes ".jsonl|.txt". */
static bool is_data(const char *name, const char *suffixes)
{
	char suffix[32];
	size_t len;

	for (const char *s = suffixes; *s; s += len + (s[len] == '|')) {
		len = strcspn(s, "|");
		snprintf(suffix, sizeof suffix, "%.*s", (int)len, s);
		if (path_has_suffix(name, suffix))
			return true;
	}
	return false;
}

/* A symbolic link may point to a file inside the dataset, nowhere else. */
static err_code check_link(const struct file_list *l, const char *path, const char *name, const struct stat *target,
                           struct err *e)
{
	if (S_ISDIR(target->st_mode))
		return err_set(e, ERR_INPUT, "'%s' is a symbolic link to a folder: not followed", name);
	if (!path_is_inside(l->root, path))
		return err_set(e, ERR_INPUT, "'%s' is a symbolic link that leaves the dataset", name);
	return ERR_OK;
}

static err_code list_folder(struct file_list *l, const char *dir, const char *prefix, const char *suffixes,
                            unsigned depth, struct err *e);

static err_code list_entry(struct file_list *l, const char *dir, const char *prefix, const char *suffixes,
                           const char *entry, unsigned depth, struct err *e)
{
	char path[PATH_MAX], name[PATH_MAX];
	struct stat link, st;

	if (snprintf(path, sizeof path, "%s/%s", dir, entry) >= (int)sizeof path ||
	    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "/" : "", entry) >= (int)sizeof name)
		return err_set(e, ERR_INPUT, "path too long: '%.100s...'", dir);
	if (lstat(path, &link) || stat(path, &st))
		return err_errno(e, "cannot stat '%s'", path);
	if (!S_ISDIR(st.st_mode) && !is_data(entry, suffixes))
		return ERR_OK;
	if (S_ISLNK(link.st_mode) && check_link(l, path, name, &st, e))
		return e->code;
	if (S_ISDIR(st.st_mode))
		return list_folder(l, path, name, suffixes, depth + 1, e);
	return S_ISREG(st.st_mode) ? add_file(l, path, name, (uint64_t)st.st_size, e) : ERR_OK;
}

static err_code list_folder(struct file_list *l, const char *dir, const char *prefix, const char *suffixes,
                            unsigned depth, struct err *e)
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
			rc = list_entry(l, dir, prefix, suffixes, entry->d_name, depth, e);
	if (!rc && errno)
		rc = err_errno(e, "cannot read '%s'", dir);
	closedir(f);
	return rc;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "a .txt, .jsonl or .lst file" from ".txt|.jsonl|.lst" */
static const char *spell(const char *suffixes, char text[200])
{
	size_t n = 0;

	for (const char *s = suffixes; *s && n + 8 < 200; s++) {
		if (*s != '|')
			text[n++] = *s;
		else
			n += (size_t)snprintf(text + n, 200 - n, "%s", strchr(s + 1, '|') ? ", " : " or ");
	}
	text[n] = '\0';
	return text;
}

/* Sorting the names sorts the paths, which are the root, a slash and the name. */
static err_code list_root(struct file_list *l, const char *suffixes, struct err *e)
{
	const char *base = strrchr(l->root, '/');
	char kinds[200];
	struct stat st;

	base = base && base[1] ? base + 1 : l->root;
	if (stat(l->root, &st))
		return err_errno(e, "cannot open '%s'", l->root);
	if (S_ISREG(st.st_mode) && is_data(l->root, suffixes))
		return add_file(l, l->root, base, (uint64_t)st.st_size, e);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INPUT, "'%s' is neither a folder nor a %s file", base, spell(suffixes, kinds));
	if (list_folder(l, l->root, "", suffixes, 0, e))
		return e->code;
	if (!l->n)
		return err_set(e, ERR_INPUT, "nothing to read: no %s file in it", spell(suffixes, kinds));
	qsort(l->names, l->n, sizeof *l->names, compare_names);
	qsort(l->paths, l->n, sizeof *l->paths, compare_names);
	return ERR_OK;
}

err_code file_list_open(struct file_list *l, const char *path, const char *suffixes, struct err *e)
{
	l->root = mem_strdup(path, e);
	if (!l->root)
		return e->code;
	for (size_t n = strlen(l->root); n > 1 && l->root[n - 1] == '/'; n--)
		l->root[n - 1] = '\0';
	if (list_root(l, suffixes, e))
		return e->code;
	return fingerprint_files((const char *const *)l->paths, (const char *const *)l->names, l->n, l->fingerprint, e);
}

void file_list_release(struct file_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->paths[i]);
		free(l->names[i]);
	}
	free(l->paths);
	free(l->names);
	free(l->root);
	*l = (struct file_list){0};
}

err_code file_list_check(const struct file_list *l, struct err *e)
{
	char now[FINGERPRINT_LEN];

	if (fingerprint_files((const char *const *)l->paths, (const char *const *)l->names, l->n, now, e))
		return e->code;
	if (strcmp(now, l->fingerprint) != 0)
		return err_set(e, ERR_CHANGED, "a file changed while it was read");
	return ERR_OK;
}

/* -- lines ------------------------------------------------------------------------------------- */

bool line_is_blank(const char *s, size_t len)
{
	while (len && strchr(" \t\r\n", s[len - 1]) && s[len - 1])
		len--;
	return !len;
}

err_code line_reader_open(struct line_reader *r, const char *path, struct err *e)
{
	line_reader_close(r);
	r->line = BUF_INIT(MAX_LINE_BYTES);
	r->file = fopen(path, "re");
	return r->file ? ERR_OK : err_errno(e, "cannot open '%s'", path);
}

err_code line_reader_next(struct line_reader *r, bool *more, struct err *e)
{
	ssize_t n;

	*more = false;
	errno = 0;
	n = getline(&r->raw, &r->cap, r->file);
	if (n < 0)
		return ferror(r->file) || errno ? err_errno(e, "line %zu: cannot read on", r->number + 1) : ERR_OK;
	r->number++;
	r->read += (uint64_t)n;
	if (n && r->raw[n - 1] == '\n')
		n--;
	if (n && r->raw[n - 1] == '\r')
		n--;
	buf_clear(&r->line);
	r->n_replaced = utf8_clean(&r->line, r->raw, (size_t)n, false);
	*more = true;
	return buf_check(&r->line, "a line", e);
}

void line_reader_close(struct line_reader *r)
{
	if (r->file)
		fclose(r->file);
	free(r->raw);
	buf_release(&r->line);
	*r = (struct line_reader){0};
}
