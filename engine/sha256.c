/* SHA-256 and fingerprints: see sha256.h. Hashes of files are cached in a list under one lock: a process sees few. */
#include "engine/sha256.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "engine/buf.h"

struct sha256 *sha256_new(struct err *e)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();

	if (!ctx || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL)) {
		EVP_MD_CTX_free(ctx);
		err_set(e, ERR_MEMORY, "sha256: cannot start a hash");
		return NULL;
	}
	return (struct sha256 *)ctx;
}

void sha256_update(struct sha256 *h, const void *data, size_t len)
{
	int ok = EVP_DigestUpdate((EVP_MD_CTX *)h, data, len);

	assert(ok);
}

static void to_hex(const unsigned char digest[32], char hex[SHA256_HEX])
{
	for (int i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

void sha256_final(struct sha256 *h, char hex[SHA256_HEX])
{
	unsigned char digest[32];
	int ok = EVP_DigestFinal_ex((EVP_MD_CTX *)h, digest, NULL);

	assert(ok);
	EVP_MD_CTX_free((EVP_MD_CTX *)h);
	to_hex(digest, hex);
}

void sha256_hex(const void *data, size_t len, char hex[SHA256_HEX])
{
	unsigned char digest[32];
	int ok = EVP_Digest(data, len, digest, NULL, EVP_sha256(), NULL);

	assert(ok);
	to_hex(digest, hex);
}

void hmac_sha256_hex(const void *key, size_t key_len, const void *data, size_t len, char hex[SHA256_HEX])
{
	unsigned char digest[32];
	unsigned n = 0;
	const unsigned char *ok = HMAC(EVP_sha256(), key, (int)key_len, data, len, digest, &n);

	assert(ok && n == sizeof digest);
	to_hex(digest, hex);
}

/* -- files ------------------------------------------------------------------------------------- */

struct seen {
	struct seen *next;
	struct stat st;
	char hex[SHA256_HEX];
	char path[];
};
static struct seen *seen_files;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool file_unchanged(const struct stat *then, const struct stat *now)
{
	return then->st_dev == now->st_dev && then->st_ino == now->st_ino && then->st_size == now->st_size &&
	       same_time(then->st_mtim, now->st_mtim) && same_time(then->st_ctim, now->st_ctim);
}

static bool recall(const char *path, const struct stat *st, char hex[SHA256_HEX])
{
	bool found = false;

	pthread_mutex_lock(&seen_lock);
	for (const struct seen *s = seen_files; s && !found; s = s->next) {
		found = !strcmp(s->path, path) && file_unchanged(&s->st, st);
		if (found)
			memcpy(hex, s->hex, SHA256_HEX);
	}
	pthread_mutex_unlock(&seen_lock);
	return found;
}

static void remember(const char *path, const struct stat *st, const char hex[SHA256_HEX])
{
	struct seen *s = malloc(sizeof *s + strlen(path) + 1);

	if (!s)
		return; /* only slower next time */
	s->st = *st;
	memcpy(s->hex, hex, SHA256_HEX);
	strcpy(s->path, path);
	pthread_mutex_lock(&seen_lock);
	s->next = seen_files;
	seen_files = s;
	pthread_mutex_unlock(&seen_lock);
}

static err_code hash_fd(int fd, const char *path, char hex[SHA256_HEX], struct err *e)
{
	struct sha256 *h = sha256_new(e);
	char chunk[1 << 16];
	ssize_t n;

	if (!h)
		return e->code;
	while ((n = read(fd, chunk, sizeof chunk)) != 0) {
		if (n > 0)
			sha256_update(h, chunk, (size_t)n);
		else if (errno != EINTR)
			break;
	}
	sha256_final(h, hex);
	return n < 0 ? err_errno(e, "cannot read '%s'", path) : ERR_OK;
}

err_code sha256_file(const char *path, char hex[SHA256_HEX], struct err *e)
{
	struct stat st;
	err_code rc = ERR_OK;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "cannot open '%s'", path);
	if (fstat(fd, &st)) {
		rc = err_errno(e, "cannot stat '%s'", path);
	} else if (!recall(path, &st, hex)) {
		rc = hash_fd(fd, path, hex, e);
		if (!rc)
			remember(path, &st, hex);
	}
	close(fd);
	return rc;
}

bool sha256_known(const char *path, char hex[SHA256_HEX])
{
	struct stat st;

	return !stat(path, &st) && recall(path, &st, hex);
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

err_code fingerprint_files(const char *const *paths, const char *const *names, size_t n, char out[FINGERPRINT_LEN],
                           struct err *e)
{
	struct buf all = BUF_INIT((size_t)1 << 30), line = BUF_INIT(1 << 16);
	char **lines = mem_zalloc(n, sizeof *lines, e);
	char hex[SHA256_HEX];
	struct stat st;
	err_code rc = ERR_OK;

	if (!lines)
		return e->code;
	for (size_t i = 0; i < n && !rc; i++) {
		rc = sha256_file(paths[i], hex, e);
		if (!rc && stat(paths[i], &st))
			rc = err_errno(e, "cannot stat '%s'", paths[i]);
		if (rc)
			break;
		buf_printf(&line, "%s %lld %s\n", names[i], (long long)st.st_size, hex);
		lines[i] = buf_steal(&line);
		if (!lines[i])
			rc = err_set(e, ERR_MEMORY, "out of memory for the fingerprint of %zu files", n);
	}
	if (!rc) {
		qsort(lines, n, sizeof *lines, compare_lines);
		for (size_t i = 0; i < n; i++)
			buf_puts(&all, lines[i]);
		rc = buf_check(&all, "fingerprint", e);
	}
	if (!rc) {
		sha256_hex(buf_str(&all), all.len, hex);
		snprintf(out, FINGERPRINT_LEN, "sha256:%s", hex);
	}
	for (size_t i = 0; i < n; i++)
		free(lines[i]);
	free(lines);
	buf_release(&all);
	buf_release(&line);
	return rc;
}
