/* See fixture.h. */
#include "tests/fixture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *fixture_shared(const char *path)
{
	static char out[PATH_MAX];
	const char *root = getenv("FATHOM_SHARED");

	snprintf(out, sizeof out, "%s/%s", root ? root : "../shared", path);
	return access(out, R_OK) ? NULL : out;
}

const char *fixture_data(const char *path)
{
	static char out[PATH_MAX];
	const char *root = getenv("FATHOM_DATA");

	snprintf(out, sizeof out, "%s/%s", root ? root : "build/data", path);
	return access(out, R_OK) ? NULL : out;
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
