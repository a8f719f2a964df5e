/* gzip: see gzip.h. */
#include "server/gzip.h"

#include <stdint.h>
#include <string.h>

#include <archive.h>
#include <archive_entry.h>

#define BLOCK   ((size_t)1 << 16)
#define TRAILER 8 /* bytes: CRC-32 and length of what was packed, the lowest byte first */

static bool begins_as_gzip(const char *path)
{
	unsigned char head[2] = {0};
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(head, 1, 2, f) : 0;

	if (f)
		fclose(f);
	return n == 2 && head[0] == 0x1F && head[1] == 0x8B; /* RFC 1952, section 2.3.1 */
}

/* RFC 1952, section 8. */
static uint32_t crc32_of(const char *s, size_t len)
{
	uint32_t table[256], crc = UINT32_MAX;

	for (uint32_t i = 0; i < 256; i++) {
		table[i] = i;
		for (int k = 0; k < 8; k++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ UINT32_C(0xEDB88320) : table[i] >> 1;
	}
	for (size_t i = 0; i < len; i++)
		crc = table[(crc ^ (unsigned char)s[i]) & 0xFF] ^ crc >> 8;
	return ~crc;
}

/* libarchive looks at neither checksum nor length. The trailer of what was unpacked is the file's end, but for zeros
 * that fill a block. */
static bool is_whole(const char *path, const char *s, size_t len)
{
	uint64_t want = (uint64_t)(uint32_t)len << 32 | crc32_of(s, len);
	unsigned char tail[BLOCK], trailer[TRAILER];
	FILE *f = fopen(path, "re");
	size_t n = 0;
	long size;

	if (f && !fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0 &&
	    !fseek(f, size > (long)BLOCK ? size - (long)BLOCK : 0, SEEK_SET))
		n = fread(tail, 1, sizeof tail, f);
	if (f)
		fclose(f);
	for (int i = 0; i < TRAILER; i++)
		trailer[i] = (unsigned char)(want >> 8 * i);
	for (; n >= TRAILER; n--) {
		if (!memcmp(tail + n - TRAILER, trailer, TRAILER))
			return true;
		if (tail[n - 1])
			return false;
	}
	return false;
}

static const char *why(struct archive *a)
{
	const char *text = archive_error_string(a);

	return text ? text : "truncated gzip input";
}

static err_code unpack(struct buf *b, struct archive *a, const char *path, struct err *e)
{
	struct archive_entry *entry;
	size_t before = b->len;
	char block[BLOCK];
	la_ssize_t n = 0;

	if (archive_read_support_filter_gzip(a) || archive_read_support_format_raw(a) ||
	    archive_read_open_filename(a, path, BLOCK) || archive_read_next_header(a, &entry))
		return err_set(e, ERR_INPUT, "'%.300s': %s", path, why(a));
	while ((n = archive_read_data(a, block, sizeof block)) > 0)
		buf_append(b, block, (size_t)n);
	if (n < 0)
		return err_set(e, ERR_INPUT, "'%.300s': %s", path, why(a));
	if (buf_check(b, path, e))
		return e->code;
	if (!is_whole(path, buf_str(b) + before, b->len - before))
		return err_set(e, ERR_INPUT,
		               "'%.300s': its checksum is not that of its contents: damaged, or not one gzip stream",
		               path);
	return ERR_OK;
}

err_code gzip_read_file(struct buf *b, const char *path, struct err *e)
{
	struct archive *a;
	err_code rc;

	if (!begins_as_gzip(path))
		return buf_read_file(b, path, e);
	a = archive_read_new();
	rc = a ? unpack(b, a, path, e) : err_set(e, ERR_MEMORY, "out of memory");
	archive_read_free(a);
	return rc;
}

static err_code pack(struct archive *a, struct archive_entry *entry, FILE *f, const struct buf *text, struct err *e)
{
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_pathname(entry, "data"); /* asked for, and not written */
	if (archive_write_set_bytes_in_last_block(a, 1) || archive_write_add_filter_gzip(a) ||
	    archive_write_set_format_raw(a) || archive_write_set_filter_option(a, "gzip", "timestamp", NULL) ||
	    archive_write_open_FILE(a, f) || archive_write_header(a, entry) ||
	    archive_write_data(a, buf_str(text), text->len) != (la_ssize_t)text->len || archive_write_close(a))
		return err_set(e, ERR_IO, "cannot write gzip: %s", archive_error_string(a));
	return ERR_OK;
}

err_code gzip_write(FILE *f, const struct buf *text, struct err *e)
{
	struct archive *a = archive_write_new();
	struct archive_entry *entry = archive_entry_new();
	err_code rc = a && entry ? pack(a, entry, f, text, e) : err_set(e, ERR_MEMORY, "out of memory");

	archive_entry_free(entry);
	archive_write_free(a);
	return rc;
}
