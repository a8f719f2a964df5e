/* Paths: see path.h. */
#include "engine/path.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"

bool path_has_suffix(const char *path, const char *suffix)
{
	size_t n = strlen(path), m = strlen(suffix);

	return n > m && !strcmp(path + n - m, suffix);
}

bool path_is_inside(const char *dir, const char *path)
{
	char root[PATH_MAX], real[PATH_MAX];
	size_t n;

	if (!realpath(dir, root) || !realpath(path, real))
		return false;
	n = strcmp(root, "/") ? strlen(root) : 0;
	return !strncmp(real, root, n) && real[n] == '/';
}

bool path_is_lfs_pointer(const void *data, size_t len)
{
	static const char magic[] = "version https://git-lfs.github.com/spec/";

	return len >= sizeof magic - 1 && !memcmp(data, magic, sizeof magic - 1);
}

char *path_name(const char *path, struct err *e)
{
	size_t end = strlen(path), start;
	char *real, *name;

	while (end && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	name = strndup(path + start, end - start);
	if (name && *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		return name;
	free(name);
	real = realpath(path, NULL);
	if (!real) {
		err_errno(e, "cannot open '%s'", path);
		return NULL;
	}
	name = mem_strdup(strrchr(real, '/') + 1, e);
	free(real);
	return name;
}
