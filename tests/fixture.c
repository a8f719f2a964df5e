/* See fixture.h. */
#include "tests/fixture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kept {
	struct kept *next;
	char path[];
};

static const char *existing(const char *variable, const char *fallback, const char *path)
{
	static struct kept *kept; /* every path given out, reachable to the end */
	const char *root = getenv(variable);
	size_t size;
	struct kept *k;

	if (!root)
		root = fallback;
	size = strlen(root) + strlen(path) + 2;
	k = malloc(sizeof *k + size);
	if (!k)
		abort();
	snprintf(k->path, size, "%s/%s", root, path);
	k->next = kept;
	kept = k;
	return access(k->path, R_OK) ? NULL : k->path;
}

const char *fixture_shared(const char *path)
{
	return existing("FATHOM_SHARED", "../shared", path);
}

const char *fixture_data(const char *path)
{
	return existing("FATHOM_DATA", "build/data", path);
}

bool same_bits(const void *a, const void *b, size_t len)
{
	return !memcmp(a, b, len);
}

void fixture_skip(const char *test, const char *why)
{
	fprintf(stderr, "SKIP %s: %s\n", test, why);
}

static char tmpdir[PATH_MAX];
static pid_t tmpdir_owner;

static void remove_tmpdir(void)
{
	char cmd[PATH_MAX + 16];

	if (getpid() != tmpdir_owner)
		return;
	snprintf(cmd, sizeof cmd, "rm -rf '%s'", tmpdir);
	if (system(cmd))
		fprintf(stderr, "cannot remove %s\n", tmpdir);
}

const char *fixture_tmpdir(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(tmpdir, sizeof tmpdir, "%s/fathom-test-XXXXXX", base ? base : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(tmpdir));
	tmpdir_owner = getpid();
	atexit(remove_tmpdir);
	return tmpdir;
}

void fixture_write(const char *dir, const char *name, const void *data, size_t len)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "wb");
	ck_assert_msg(f != NULL, "cannot write %s", path);
	ck_assert_uint_eq(fwrite(data, 1, len, f), len);
	fclose(f);
}

#ifdef __SANITIZE_THREAD__
/* oneDNN is not instrumented: the guards of its C++ statics are locks that the sanitizer does not see. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:libdnnl.so\ncalled_from_lib:libdnnl.so\n";
}
#endif
