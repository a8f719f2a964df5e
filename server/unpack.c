/* Archives: see unpack.h. Only files that were asked for are written, and only under the
 * caller's names, so that nothing in an archive chooses a path. */
#include "server/unpack.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "engine/buf.h"
#include "eval/catalog.h"

#define BLOCK ((size_t)1 << 16)

/* The index of an entry among the members, or -1. */
static int find_member(const char *const *members, struct archive_entry *entry)
{
	const char *path = archive_entry_pathname(entry); /* NULL: a name that this locale has not */

	if (!path || archive_entry_filetype(entry) != AE_IFREG)
		return -1;
	path += strncmp(path, "./", 2) ? 0 : 2;
	for (int i = 0; members[i]; i++)
		if (!strcmp(members[i], path))
			return i;
	return -1;
}

/* The current entry into a file. */
static err_code write_member(struct archive *a, const char *dir, const char *member, struct err *e)
{
	char path[PATH_MAX], block[BLOCK];
	la_ssize_t n = 0;
	err_code rc = ERR_OK;
	FILE *f;

	snprintf(path, sizeof path, "%s/%s" UNPACK_SUFFIX, dir, catalog_base(member));
	f = fopen(path, "we");
	if (!f)
		return err_errno(e, "cannot write '%s'", path);
	while (!rc && (n = archive_read_data(a, block, sizeof block)) > 0)
		if (fwrite(block, 1, (size_t)n, f) != (size_t)n)
			rc = err_errno(e, "cannot write '%s'", path);
	if (!rc && n < 0)
		rc = err_set(e, ERR_INPUT, "'%s': %s", member, archive_error_string(a));
	if (!rc && (fflush(f) || fsync(fileno(f))))
		rc = err_errno(e, "cannot write '%s'", path);
	if (fclose(f) && !rc)
		rc = err_errno(e, "cannot write '%s'", path);
	return rc;
}

err_code unpack_members(const char *archive, const char *const *members, const char *dir, struct err *e)
{
	struct archive *a = archive_read_new();
	struct archive_entry *entry;
	size_t n = 0, left;
	bool *seen = NULL;
	err_code rc = ERR_OK;
	int i, status = ARCHIVE_OK;

	while (members[n])
		n++;
	left = n;
	seen = mem_zalloc(n, sizeof *seen, e);
	if (!a || !seen) {
		rc = err_set(e, ERR_MEMORY, "out of memory");
		goto out;
	}
	archive_read_support_filter_all(a);
	archive_read_support_format_zip(a);
	archive_read_support_format_tar(a);
	if (archive_read_open_filename(a, archive, BLOCK)) {
		rc = err_set(e, ERR_INPUT, "%s", archive_error_string(a));
		goto out;
	}
	while (!rc && left && (status = archive_read_next_header(a, &entry)) != ARCHIVE_EOF) {
		if (status < ARCHIVE_WARN) {
			rc = err_set(e, ERR_INPUT, "%s", archive_error_string(a));
		} else if ((i = find_member(members, entry)) >= 0 && !seen[i]) {
			rc = write_member(a, dir, members[i], e);
			seen[i] = true;
			left--;
		}
	}
	for (size_t k = 0; !rc && left && k < n; k++)
		if (!seen[k])
			rc = err_set(e, ERR_INPUT, "there is no file '%s' in it", members[k]);
out:
	if (rc)
		err_wrap(e, "archive '%s'", catalog_base(archive));
	archive_read_free(a);
	free(seen);
	return rc;
}
