/* The catalog: see catalog.h. What is official is decided by bytes alone; names only say what a file claims to be. */
#include "eval/catalog.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/buf.h"
#include "eval/eval.h"

#define MAX_RECORD_BYTES ((size_t)1 << 20)

size_t catalog_count(void)
{
	return catalog_n_entries;
}

const struct catalog_entry *catalog_at(size_t i)
{
	return &catalog_entries[i];
}

const struct catalog_entry *catalog_find(const char *name)
{
	for (size_t i = 0; i < catalog_n_entries; i++)
		if (!strcmp(catalog_entries[i].name, name))
			return &catalog_entries[i];
	return NULL;
}

const struct catalog_entry *catalog_of_task(const char *task)
{
	for (size_t i = 0; i < catalog_n_entries; i++)
		if (!strcmp(catalog_entries[i].task, task))
			return &catalog_entries[i];
	return NULL;
}

uint64_t catalog_entry_bytes(const struct catalog_entry *entry)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < entry->n_sources; i++)
		bytes += entry->sources[i].bytes;
	return bytes;
}

size_t catalog_n_data_files(const struct catalog_entry *entry)
{
	size_t n = 0;

	for (size_t i = 0; i < entry->n_sources; i++) {
		const struct catalog_source *s = &entry->sources[i];

		n += !s->members && registry_is_data_file(s->file);
		for (size_t k = 0; s->members && s->members[k]; k++)
			n += registry_is_data_file(s->members[k]);
	}
	return n;
}

const char *catalog_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* -- what is official -------------------------------------------------------------------------- */

/* Whether there is a regular file of this sha256; one of another size (0: any) is not read. */
static err_code has_hash(const char *path, const char *sha256, uint64_t bytes, bool *yes, struct err *e)
{
	char hex[SHA256_HEX];
	struct stat st;

	*yes = false;
	if (stat(path, &st))
		return errno == ENOENT || errno == ENOTDIR ? ERR_OK : err_errno(e, "cannot stat '%s'", path);
	if (!S_ISREG(st.st_mode) || (bytes && (uint64_t)st.st_size != bytes))
		return ERR_OK;
	if (sha256_file(path, hex, e))
		return e->code;
	*yes = !strcmp(hex, sha256);
	return ERR_OK;
}

/* What the record in `dir` says of a file: its sha256, or "" where there is no record, it is not of this archive, or
 * does not name the file. */
static err_code recorded(const char *dir, const struct catalog_source *archive, const char *file, char hex[SHA256_HEX],
                         struct err *e)
{
	struct buf text = BUF_INIT(MAX_RECORD_BYTES);
	char path[PATH_MAX], head[PATH_MAX], tail[NAME_MAX + 8];
	struct err why = {0};
	const char *at;

	hex[0] = '\0';
	snprintf(path, sizeof path, "%s/" CATALOG_RECORD, dir);
	snprintf(head, sizeof head, "# %s %s\n", archive->file, archive->sha256);
	snprintf(tail, sizeof tail, "  %s\n", file);
	if (buf_read_file(&text, path, &why)) {
		buf_release(&text);
		return why.code == ERR_NOT_FOUND ? ERR_OK : err_set(e, why.code, "%s", why.msg);
	}
	at = strstr(buf_str(&text), head) ? strstr(buf_str(&text), tail) : NULL;
	if (at && at - buf_str(&text) >= SHA256_HEX - 1)
		snprintf(hex, SHA256_HEX, "%s", at - (SHA256_HEX - 1));
	buf_release(&text);
	return ERR_OK;
}

static err_code check_member(const struct catalog_source *archive, const char *dir, const char *member, bool *yes,
                             struct err *e)
{
	char hex[SHA256_HEX], path[PATH_MAX];

	*yes = false;
	snprintf(path, sizeof path, "%s/%s", dir, catalog_base(member));
	if (recorded(dir, archive, catalog_base(member), hex, e))
		return e->code;
	return *hex ? has_hash(path, hex, 0, yes, e) : ERR_OK;
}

/* All of a source's data in a folder. */
static err_code check_source(const struct catalog_source *s, const char *dir, bool *yes, struct err *e)
{
	char path[PATH_MAX];

	*yes = true;
	for (size_t i = 0; s->members && s->members[i] && *yes; i++)
		if (check_member(s, dir, s->members[i], yes, e))
			return e->code;
	if (s->members)
		return ERR_OK;
	snprintf(path, sizeof path, "%s/%s", dir, catalog_base(s->file));
	return has_hash(path, s->sha256, s->bytes, yes, e);
}

/* One file, under any name; of an archive's, under its own. */
static err_code check_file(const struct catalog_entry *entry, const char *path, bool *yes, struct err *e)
{
	const char *base = catalog_base(path);
	char dir[PATH_MAX];

	snprintf(dir, sizeof dir, "%.*s", base == path ? 1 : (int)(base - path), base == path ? "." : path);
	*yes = false;
	for (size_t i = 0; i < entry->n_sources && !*yes; i++) {
		const struct catalog_source *s = &entry->sources[i];

		if (!s->members && has_hash(path, s->sha256, s->bytes, yes, e))
			return e->code;
		for (size_t k = 0; s->members && s->members[k] && !*yes; k++)
			if (!strcmp(catalog_base(s->members[k]), base) && check_member(s, dir, s->members[k], yes, e))
				return e->code;
	}
	return ERR_OK;
}

/* Whether data calls itself the entry's. */
static bool claims(const struct catalog_entry *entry, const char *name, const char *path)
{
	const char *base = catalog_base(path);

	if (!strcmp(name, entry->name))
		return true;
	for (size_t i = 0; i < entry->n_sources; i++) {
		const struct catalog_source *s = &entry->sources[i];

		if (!s->members && !strcmp(catalog_base(s->file), base))
			return true;
		for (size_t k = 0; s->members && s->members[k]; k++)
			if (!strcmp(catalog_base(s->members[k]), base))
				return true;
	}
	return false;
}

/* Whether a reader of the folder would meet data that is not the entry's: another file, or a folder. */
static err_code has_others(const struct catalog_entry *entry, const char *dir, bool *yes, struct err *e)
{
	DIR *d = opendir(dir);
	char path[PATH_MAX];
	struct dirent *f;
	struct stat st;

	if (!d)
		return err_errno(e, "cannot open '%s'", dir);
	*yes = false;
	while (!*yes && (f = readdir(d))) {
		snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
		if (f->d_name[0] != '.' && !stat(path, &st))
			*yes = S_ISDIR(st.st_mode) || (registry_is_data_file(f->d_name) && !claims(entry, "", path));
	}
	closedir(d);
	return ERR_OK;
}

err_code catalog_check(const struct catalog_entry *entry, const char *path, bool *official, struct err *e)
{
	bool others = false;
	struct stat st;

	if (stat(path, &st))
		return err_errno(e, "cannot stat '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return check_file(entry, path, official, e);
	if (has_others(entry, path, &others, e))
		return e->code;
	*official = !others;
	for (size_t i = 0; i < entry->n_sources && *official; i++)
		if (check_source(&entry->sources[i], path, official, e))
			return e->code;
	return ERR_OK;
}

err_code catalog_identify(const char *name, const char *path, const struct catalog_entry **entry, bool *official,
                          struct err *e)
{
	*entry = NULL;
	*official = false;
	for (size_t i = 0; i < catalog_n_entries && !*official; i++) {
		if (catalog_check(&catalog_entries[i], path, official, e))
			return e->code;
		if (*official || (!*entry && claims(&catalog_entries[i], name, path)))
			*entry = &catalog_entries[i];
	}
	return ERR_OK;
}
