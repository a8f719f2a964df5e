/* The list of datasets: sizes, hashes, and whether the catalog knows them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/catalog.h"
#include "server/api.h"

#define MAX_REPLY  ((size_t)16 << 20)
#define MAX_FILES  2000 /* of a dataset that are counted: a few milliseconds */
#define MAX_DEPTH  8
#define HASH_BYTES ((int64_t)64 << 20) /* read for one answer, about 50 ms; the next answer goes on from there */

struct tally {
	int64_t files, bytes;
	bool first_only; /* stop at the first file that is not empty */
	char format[16]; /* of the first file */
	char **paths;    /* [files] owned; NULL: could not be had */
	size_t cap;
};

static void count_file(struct tally *t, const char *path, const struct stat *st)
{
	struct err ignored;
	char **paths;

	if (!registry_is_data_file(path))
		return;
	paths = mem_grow(t->paths, &t->cap, (size_t)t->files + 1, sizeof *paths, &ignored);
	if (!paths)
		return;
	if (!t->files)
		snprintf(t->format, sizeof t->format, "%s", strrchr(path, '.') + 1);
	t->paths = paths;
	t->paths[t->files++] = strdup(path);
	t->bytes += st->st_size;
}

/* Hidden entries are left out, as the registry and the readers do. */
static void count_tree(struct tally *t, const char *path, int depth)
{
	char *child = NULL;
	struct dirent *d;
	struct stat st;
	DIR *dir;

	if (stat(path, &st))
		return;
	if (S_ISREG(st.st_mode)) {
		count_file(t, path, &st);
		return;
	}
	dir = S_ISDIR(st.st_mode) && depth < MAX_DEPTH ? opendir(path) : NULL;
	if (!dir)
		return;
	while (t->files < MAX_FILES && !(t->first_only && t->bytes) && (d = readdir(dir))) {
		if (d->d_name[0] == '.' || asprintf(&child, "%s/%s", path, d->d_name) < 0)
			continue;
		count_tree(t, child, depth + 1);
		free(child);
	}
	closedir(dir);
}

static void tally_release(struct tally *t)
{
	for (int64_t i = 0; i < t->files; i++)
		free(t->paths[i]);
	free(t->paths);
}

bool api_dataset_is_empty(const char *path)
{
	struct tally t = {.first_only = true};
	bool empty;

	count_tree(&t, path, 0);
	empty = t.bytes == 0;
	tally_release(&t);
	return empty;
}

/* -- the list ---------------------------------------------------------------------------------- */

struct dataset_list {
	struct json_writer w;
	int64_t left; /* of HASH_BYTES */
};

/* Whether all files are hashed, as far as that may go now. */
static bool hash_files(struct dataset_list *l, const struct tally *t)
{
	bool all = t->files && t->files < MAX_FILES;
	char hex[SHA256_HEX];
	struct err ignored;
	struct stat st;

	for (int64_t i = 0; i < t->files; i++) {
		if (t->paths[i] && sha256_known(t->paths[i], hex))
			continue;
		if (!t->paths[i] || stat(t->paths[i], &st) || st.st_size > l->left) {
			all = false;
			continue;
		}
		l->left -= st.st_size;
		all &= !sha256_file(t->paths[i], hex, &ignored);
	}
	return all;
}

/* Of files that are hashed: the fingerprint as results have it, where a task reads all of them; NULL members where
 * nothing is known. */
static void put_identity(struct dataset_list *l, const char *name, const char *path, const struct tally *t, bool folder)
{
	const struct catalog_entry *entry = NULL;
	char hex[SHA256_HEX], fingerprint[FINGERPRINT_LEN];
	const char **names = NULL;
	bool official = false, known = hash_files(l, t);
	struct err ignored;

	if (known)
		names = mem_alloc((size_t)t->files, sizeof *names, &ignored);
	for (int64_t i = 0; names && i < t->files; i++)
		names[i] = folder ? t->paths[i] + strlen(path) + 1 : catalog_base(path);
	known =
	    names && !fingerprint_files((const char *const *)t->paths, names, (size_t)t->files, fingerprint, &ignored);
	free(names);
	if (known && catalog_identify(name, path, &entry, &official, &ignored))
		entry = NULL;
	json_put_string(&l->w, "fingerprint", known ? fingerprint : NULL);
	json_put_string(&l->w, "sha256", known && !folder && sha256_known(path, hex) ? hex : NULL);
	json_put_string(&l->w, "known_as", entry ? entry->name : NULL);
	if (entry)
		json_put_bool(&l->w, "official", official);
	else
		json_put_null(&l->w, "official");
	if (entry && official && (folder || catalog_n_data_files(entry) == 1))
		json_put_int(&l->w, "n_items", entry->n_items);
	else
		json_put_null(&l->w, "n_items");
}

static int put_dataset(void *arg, const char *name, const char *path)
{
	struct dataset_list *l = arg;
	struct tally t = {0};
	struct stat st;

	if (stat(path, &st))
		return 0;
	count_tree(&t, path, 0);
	json_begin_object(&l->w, NULL);
	json_put_string(&l->w, "name", name);
	json_put_string(&l->w, "kind", S_ISDIR(st.st_mode) ? "directory" : "file");
	json_put_string(&l->w, "format", *t.format ? t.format : NULL);
	json_put_int(&l->w, "files", t.files);
	if (t.files == MAX_FILES)
		json_put_bool(&l->w, "and_more", true);
	json_put_int(&l->w, "bytes", t.bytes);
	put_identity(l, name, path, &t, S_ISDIR(st.st_mode));
	json_end_object(&l->w);
	tally_release(&t);
	return 0;
}

void api_dataset_list(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct dataset_list l = {.w = JSON_WRITER(&b), .left = HASH_BYTES};

	json_begin_object(&l.w, NULL);
	json_begin_array(&l.w, "data");
	registry_each_dataset(&api_of(r)->registry, put_dataset, &l);
	json_end_array(&l.w);
	json_end_object(&l.w);
	api_send_json(r, 200, &b);
}
