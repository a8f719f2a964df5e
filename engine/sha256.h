/* SHA-256 (libcrypto), and fingerprints of sets of files. */
#ifndef FATHOM_ENGINE_SHA256_H
#define FATHOM_ENGINE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "engine/err.h"

#define SHA256_HEX 65 /* 64 hex digits and NUL */

struct sha256; /* a running hash */
struct sha256 *sha256_new(struct err *e);
void sha256_update(struct sha256 *h, const void *data, size_t len);
void sha256_final(struct sha256 *h, char hex[SHA256_HEX]); /* frees h */
/* HMAC-SHA256 (RFC 2104) of data under a key. */
void hmac_sha256_hex(const void *key, size_t key_len, const void *data, size_t len, char hex[SHA256_HEX]);
void sha256_hex(const void *data, size_t len, char hex[SHA256_HEX]);

/* Whether a file still is what it was: device, inode, size, mtime, ctime. */
bool file_unchanged(const struct stat *then, const struct stat *now);

/* sha256 of a file's raw bytes, remembered for this process by path while the file is unchanged. Thread-safe. */
err_code sha256_file(const char *path, char hex[SHA256_HEX], struct err *e);

/* The same, of a file that this process has hashed and that did not change since; false: it would have to be read. */
bool sha256_known(const char *path, char hex[SHA256_HEX]);

/* The fingerprint of a set of files (design: "sha256 of the sorted lines `name size sha256(raw bytes)`"): "sha256:"
 * and 64 hex digits. names[i] is how paths[i] is called in the set (its path relative to the model or dataset). */
#define FINGERPRINT_LEN 72
err_code fingerprint_files(const char *const *paths, const char *const *names, size_t n, char out[FINGERPRINT_LEN],
                           struct err *e);

#endif
