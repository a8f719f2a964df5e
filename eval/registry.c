/* Names of models and datasets: the one place where a name from a request becomes a path. A name never leaves the
 * directory that it was found in: not by "..", not by a slash in front, not by a symbolic link. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/path.h"
#include "eval/eval.h"

enum kind { KIND_MODEL, KIND_DATASET };

#define MAX_NAME 512

/* One or more components, none empty, none hidden (so neither "." nor ".."), no control characters. */
static err_code check_name(const char *what, const char *name, struct err *e)
{
	const char *why = NULL;

	if (!*name || strlen(name) > MAX_NAME)
		why = *name ? "is too long" : "is empty";
	for (const char *s = name; *s && !why; s++) {
		if ((unsigned char)*s < 0x20 || *s == 0x7F)
			why = "holds a control character";
		else if (*s == '.' && (s == name || s[-1] == '/'))
			why = "has a hidden or relative component";
		else if (*s == '/' && (s == name || s[1] == '/' || !s[1]))
			why = s == name ? "is absolute" : "has an empty component";
	}
	return why ? err_set(e, ERR_INPUT, "%s name '%.100s' %s", what, name, why) : ERR_OK;
}

static bool is_model(const char *path)
{
	char config[PATH_MAX + 16];
	struct stat st;

	snprintf(config, sizeof config, "%s/config.json", path);
	return !stat(config, &st) && S_ISREG(st.st_mode);
}

bool registry_is_data_file(const char *name)
{
	return path_has_suffix(name, ".txt") || path_has_suffix(name, ".jsonl") || path_has_suffix(name, ".json") ||
	       path_has_suffix(name, ".tsv");
}

/* A file of data, or a folder that holds one. */
static bool is_dataset(const char *path)
{
	struct dirent *entry;
	struct stat st;
	bool found = false;
	DIR *d;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return !stat(path, &st) && S_ISREG(st.st_mode) && registry_is_data_file(path);
	if (is_model(path))
		return false; /* its tokenizer.json is no data */
	d = opendir(path);
	while (d && !found && (entry = readdir(d)))
		found = entry->d_name[0] != '.' && registry_is_data_file(entry->d_name);
	if (d)
		closedir(d);
	return found;
}

static err_code resolve(const char *what, const char *const *dirs, size_t n_dirs, enum kind kind, const char *name,
                        char **path, struct err *e)
{
	struct buf looked = BUF_INIT(1 << 14);
	char full[PATH_MAX];
	struct stat st;
	bool there;

	if (check_name(what, name, e))
		return e->code;
	for (size_t i = 0; i < n_dirs; i++) {
		buf_printf(&looked, "%s%s", i ? ", " : "", dirs[i]);
		if (snprintf(full, sizeof full, "%s/%s", dirs[i], name) >= (int)sizeof full || stat(full, &st))
			continue;
		/* any folder is a dataset to whoever names it: its reader says what is wrong with it */
		there = kind == KIND_MODEL
		            ? is_model(full)
		            : S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && registry_is_data_file(full));
		if (!there || !path_is_inside(dirs[i], full))
			continue;
		buf_release(&looked);
		*path = mem_strdup(full, e);
		return *path ? ERR_OK : e->code;
	}
	err_set(e, ERR_NOT_FOUND, "no %s '%.200s' in %s", what, name,
	        n_dirs ? buf_str(&looked) : "any folder: none is configured");
	buf_release(&looked);
	return e->code;
}

err_code registry_model(const struct registry *r, const char *name, char **path, struct err *e)
{
	return resolve("model", r->model_dirs, r->n_model_dirs, KIND_MODEL, name, path, e);
}

err_code registry_dataset(const struct registry *r, const char *name, char **path, struct err *e)
{
	return resolve("dataset", r->dataset_dirs, r->n_dataset_dirs, KIND_DATASET, name, path, e);
}

/* -- listing ----------------------------------------------------------------------------------- */

struct found {
	char *name, *path; /* owned */
	size_t dir;        /* index of the directory: precedence */
};

struct listing {
	struct found *found; /* [n] owned */
	size_t n, cap, dir;
	const char *root;
	enum kind kind;
};

static void add_found(struct listing *l, const char *name, const char *path)
{
	struct err ignored;
	struct found *p = mem_grow(l->found, &l->cap, l->n + 1, sizeof *p, &ignored), f = {.dir = l->dir};

	if (!p)
		return; /* a shorter list */
	l->found = p;
	f.name = strdup(name);
	f.path = strdup(path);
	if (f.name && f.path) {
		l->found[l->n++] = f;
	} else {
		free(f.name);
		free(f.path);
	}
}

/* What a folder holds: models, or datasets; and, one level down, what is in folders that are neither. */
static void list(struct listing *l, const char *dir, const char *prefix)
{
	char path[PATH_MAX], name[MAX_NAME];
	struct dirent *entry;
	struct err ignored;
	struct stat st;
	DIR *d = opendir(dir);

	while (d && (entry = readdir(d))) {
		if (snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >= (int)sizeof path ||
		    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "/" : "", entry->d_name) >=
		        (int)sizeof name)
			continue;
		if (check_name("", name, &ignored) || !path_is_inside(l->root, path))
			continue;
		if (l->kind == KIND_MODEL ? is_model(path) : is_dataset(path))
			add_found(l, name, path);
		else if (!*prefix && !stat(path, &st) && S_ISDIR(st.st_mode) && !is_model(path))
			list(l, path, name);
	}
	if (d)
		closedir(d);
}

static int compare_found(const void *pa, const void *pb)
{
	const struct found *a = pa, *b = pb;
	int order = strcmp(a->name, b->name);

	return order ? order : (a->dir > b->dir) - (a->dir < b->dir);
}

static int each(const char *const *dirs, size_t n_dirs, enum kind kind, registry_fn *f, void *arg)
{
	struct listing l = {.kind = kind};
	int rc = 0;

	for (l.dir = 0; l.dir < n_dirs; l.dir++) {
		l.root = dirs[l.dir];
		list(&l, l.root, "");
	}
	if (l.n)
		qsort(l.found, l.n, sizeof *l.found, compare_found);
	for (size_t i = 0; i < l.n && !rc; i++)
		if (!i || strcmp(l.found[i].name, l.found[i - 1].name) != 0)
			rc = f(arg, l.found[i].name, l.found[i].path);
	for (size_t i = 0; i < l.n; i++) {
		free(l.found[i].name);
		free(l.found[i].path);
	}
	free(l.found);
	return rc;
}

int registry_each_model(const struct registry *r, registry_fn *f, void *arg)
{
	return each(r->model_dirs, r->n_model_dirs, KIND_MODEL, f, arg);
}

int registry_each_dataset(const struct registry *r, registry_fn *f, void *arg)
{
	return each(r->dataset_dirs, r->n_dataset_dirs, KIND_DATASET, f, arg);
}
