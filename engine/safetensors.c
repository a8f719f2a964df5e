/* Safetensors: see safetensors.h. A file is: u64 n, little-endian; n bytes of JSON, name -> {dtype, shape,
 * data_offsets [begin, end) in the data}; the data. The format wants the data covered exactly, without overlap or hole.
 *
 * Invariant: an entry in c->entries has had begin, end, dtype and shape checked against the size of its map. */
#include "engine/safetensors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/log.h"
#include "engine/path.h"
#include "engine/sha256.h"

#define SINGLE_FILE     "model.safetensors"
#define INDEX_FILE      "model.safetensors.index.json"
#define INDEX_MAX_BYTES ((size_t)64 << 20)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian");

/* All dtypes of the format, so that a tensor that nobody asks for (a mask of bytes) is no error. */
static const struct dtype_info {
	const char *name;
	unsigned bits;
	int dtype; /* enum dtype, or -1: not for weights */
} dtypes[] = {
    {"F32", 32, DTYPE_F32}, {"F16", 16, DTYPE_F16}, {"BF16", 16, DTYPE_BF16}, {"F64", 64, -1},    {"I64", 64, -1},
    {"U64", 64, -1},        {"I32", 32, -1},        {"U32", 32, -1},          {"I16", 16, -1},    {"U16", 16, -1},
    {"I8", 8, -1},          {"U8", 8, -1},          {"BOOL", 8, -1},          {"F8_E4M3", 8, -1}, {"F8_E5M2", 8, -1},
    {"F8_E8M0", 8, -1},     {"F4", 4, -1},          {"F6_E2M3", 6, -1},       {"F6_E3M2", 6, -1}, {"C64", 64, -1},
};

struct entry {
	char *name; /* owned */
	const struct dtype_info *dtype;
	uint64_t begin, end; /* bytes in the data of its file */
	uint64_t shape[2];   /* the first two dimensions */
	uint32_t n_dim, file;
	bool wanted; /* the index puts it in this file */
};

struct checkpoint {
	char *dir;                     /* owned */
	struct checkpoint_file *files; /* [n_files] owned */
	size_t n_files, cap_files;
	struct entry *entries; /* [n_entries] owned; sorted by name once the weights are mapped */
	size_t n_entries, cap_entries;
};

/* -- files ------------------------------------------------------------------------------------- */

err_code checkpoint_open(const char *dir, struct checkpoint **out, struct err *e)
{
	struct checkpoint *c;
	struct stat st;

	if (stat(dir, &st))
		return err_errno(e, "cannot open '%s'", dir);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INPUT, "'%s' is not a directory", dir);
	c = mem_zalloc(1, sizeof *c, e);
	if (!c)
		return e->code;
	c->dir = mem_strdup(dir, e);
	if (!c->dir) {
		free(c);
		return e->code;
	}
	*out = c;
	return ERR_OK;
}

void checkpoint_free(struct checkpoint *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_entries; i++)
		free(c->entries[i].name);
	free(c->entries);
	for (size_t i = 0; i < c->n_files; i++) {
		if (c->files[i].map)
			munmap((void *)c->files[i].map, (size_t)c->files[i].st.st_size);
		free(c->files[i].name);
		free(c->files[i].path);
	}
	free(c->files);
	free(c->dir);
	free(c);
}

/* A new record, its name and path set, everything else zero. */
static struct checkpoint_file *push_file(struct checkpoint *c, const char *name, struct err *e)
{
	struct checkpoint_file *f = mem_grow(c->files, &c->cap_files, c->n_files + 1, sizeof *f, e);
	size_t len = strlen(c->dir) + strlen(name) + 2;

	if (!f)
		return NULL;
	c->files = f;
	f += c->n_files;
	*f = (struct checkpoint_file){.name = mem_strdup(name, e), .path = mem_alloc(len, 1, e)};
	if (!f->name || !f->path) {
		free(f->name);
		free(f->path);
		return NULL;
	}
	snprintf(f->path, len, "%s/%s", c->dir, name);
	c->n_files++;
	return f;
}

const struct checkpoint_file *checkpoint_add(struct checkpoint *c, const char *name, struct err *e)
{
	struct checkpoint_file *f = push_file(c, name, e);

	if (!f)
		return NULL;
	if (stat(f->path, &f->st))
		err_errno(e, "cannot open '%s'", f->path);
	else if (!S_ISREG(f->st.st_mode))
		err_set(e, ERR_INPUT, "'%s' is not a regular file", f->path);
	else
		return f;
	free(f->name);
	free(f->path);
	c->n_files--;
	return NULL;
}

err_code checkpoint_read_json(struct checkpoint *c, const char *name, size_t max_bytes, struct json **out,
                              struct err *e)
{
	const struct checkpoint_file *f = checkpoint_add(c, name, e);

	return f ? json_parse_file(f->path, max_bytes, out, e) : e->code;
}

/* O_NONBLOCK: opening a FIFO must not wait for a writer. */
static err_code map_file(struct checkpoint *c, const char *name, struct err *e)
{
	struct checkpoint_file *f = push_file(c, name, e);
	err_code rc = ERR_OK;
	void *map;
	int fd;

	if (!f)
		return e->code;
	fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_errno(e, "cannot open '%s'", f->path);
	if (fstat(fd, &f->st)) {
		rc = err_errno(e, "cannot stat '%s'", f->path);
	} else if (!S_ISREG(f->st.st_mode)) {
		rc = err_set(e, ERR_INPUT, "'%s' is not a regular file", f->path);
	} else if (!f->st.st_size) {
		rc = err_set(e, ERR_INPUT, "'%s' is empty", f->path);
	} else {
		map = mmap(NULL, (size_t)f->st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map == MAP_FAILED)
			rc = err_errno(e, "cannot map '%s'", f->path);
		else
			f->map = map;
	}
	close(fd);
	return rc;
}

size_t checkpoint_n_files(const struct checkpoint *c)
{
	return c->n_files;
}

const struct checkpoint_file *checkpoint_file(const struct checkpoint *c, size_t i)
{
	return &c->files[i];
}

err_code checkpoint_check(const struct checkpoint *c, struct err *e)
{
	struct stat now;

	for (const struct checkpoint_file *f = c->files; f < c->files + c->n_files; f++) {
		if (stat(f->path, &now))
			return err_set(e, ERR_CHANGED, "'%s' is gone since it was opened", f->path);
		if (!file_unchanged(&f->st, &now))
			return err_set(e, ERR_CHANGED, "'%s' changed since it was opened", f->path);
	}
	return ERR_OK;
}

void checkpoint_drop_pages(const struct checkpoint *c)
{
	for (const struct checkpoint_file *f = c->files; f < c->files + c->n_files; f++)
		if (f->map)
			madvise((void *)f->map, (size_t)f->st.st_size, MADV_DONTNEED);
}

/* -- headers ----------------------------------------------------------------------------------- */

static struct entry *push_entry(struct checkpoint *c, struct err *e)
{
	struct entry *p = mem_grow(c->entries, &c->cap_entries, c->n_entries + 1, sizeof *p, e);

	if (!p)
		return NULL;
	c->entries = p;
	p = &c->entries[c->n_entries++];
	*p = (struct entry){0};
	return p;
}

static const struct dtype_info *find_dtype(const char *name)
{
	for (size_t i = 0; name && i < sizeof dtypes / sizeof *dtypes; i++)
		if (!strcmp(dtypes[i].name, name))
			return &dtypes[i];
	return NULL;
}

/* A member of an array that must be a size; -1 otherwise. */
static int64_t size_value(const struct json *j)
{
	int64_t v;

	return json_integer(j, &v) && v >= 0 ? v : -1;
}

/* Shape and number of bytes of an entry. */
static err_code read_shape(const struct json *shape, struct entry *t, uint64_t *bytes, struct err *e)
{
	uint64_t count = 1;

	if (!json_is_array(shape))
		return err_set(e, ERR_INPUT, "shape is %s, not an array", json_type_name(shape));
	for (const struct json *j = json_first(shape); j; j = json_next(j), t->n_dim++) {
		int64_t v = size_value(j);

		if (v < 0)
			return err_set(e, ERR_INPUT, "dimension %" PRIu32 " is not a size", t->n_dim);
		if (__builtin_mul_overflow(count, (uint64_t)v, &count))
			return err_set(e, ERR_INPUT, "shape's product overflows");
		if (t->n_dim < 2)
			t->shape[t->n_dim] = (uint64_t)v;
	}
	if (__builtin_mul_overflow(count, t->dtype->bits, bytes))
		return err_set(e, ERR_INPUT, "shape's product overflows");
	if (*bytes % 8)
		return err_set(e, ERR_INPUT, "shape of %s is not whole bytes", t->dtype->name);
	*bytes /= 8;
	return ERR_OK;
}

static err_code read_entry(const struct json *member, struct entry *t, struct err *e)
{
	const struct json *offsets = json_get(member, "data_offsets"), *first = json_first(offsets);
	const char *dtype = json_get_string(member, "dtype");
	int64_t begin, end;
	uint64_t bytes = 0;

	if (!json_is_object(member))
		return err_set(e, ERR_INPUT, "its entry is %s, not an object", json_type_name(member));
	t->dtype = find_dtype(dtype);
	if (!t->dtype)
		return err_set(e, ERR_INPUT, "unknown dtype '%.50s'", dtype ? dtype : "");
	if (read_shape(json_get(member, "shape"), t, &bytes, e))
		return e->code;
	if (!json_is_array(offsets) || json_count(offsets) != 2)
		return err_set(e, ERR_INPUT, "data_offsets is not an array of two");
	begin = size_value(first);
	end = size_value(json_next(first));
	if (begin < 0 || end < begin)
		return err_set(e, ERR_INPUT, "data_offsets are not an increasing pair of sizes");
	t->begin = (uint64_t)begin;
	t->end = (uint64_t)end;
	if (t->end - t->begin != bytes)
		return err_set(e, ERR_INPUT,
		               "its shape of %s needs %" PRIu64 " bytes, its data_offsets [%" PRIu64 ", %" PRIu64
		               "] hold %" PRIu64,
		               t->dtype->name, bytes, t->begin, t->end, t->end - t->begin);
	return ERR_OK;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/* Sorts t[0..n) by offset and checks that together they cover the data exactly. */
static err_code check_cover(struct entry *t, size_t n, uint64_t data_bytes, struct err *e)
{
	uint64_t at = 0;

	qsort(t, n, sizeof *t, compare_offsets);
	for (size_t i = 0; i < n; at = t[i++].end) {
		if (t[i].begin < at)
			return err_set(e, ERR_INPUT, "tensor '%.200s' overlaps tensor '%.200s'", t[i].name,
			               t[i - 1].name);
		if (t[i].begin > at)
			return err_set(e, ERR_INPUT, "tensor '%.200s' leaves a hole of %" PRIu64 " bytes before it",
			               t[i].name, t[i].begin - at);
		if (t[i].end > data_bytes)
			return err_set(e, ERR_INPUT,
			               "tensor '%.200s' ends at byte %" PRIu64 " of the data, which has %" PRIu64
			               ": the file is cut off, %" PRIu64 " bytes of it are missing",
			               t[i].name, t[i].end, data_bytes, t[i].end - data_bytes);
	}
	if (at < data_bytes)
		return err_set(e, ERR_INPUT, "%" PRIu64 " bytes after the last tensor's data", data_bytes - at);
	return ERR_OK;
}

/* The length of the header, once it is known to lie within the file. */
static err_code header_bytes(const struct checkpoint_file *f, uint64_t *out, struct err *e)
{
	uint64_t size = (uint64_t)f->st.st_size, n;

	if (path_is_lfs_pointer(f->map, size))
		return err_set(e, ERR_INPUT, "this is a Git LFS pointer, not the weights");
	if (size < sizeof n)
		return err_set(e, ERR_INPUT, "%" PRIu64 " bytes are too few for a safetensors file", size);
	memcpy(&n, f->map, sizeof n);
	if (n > SAFETENSORS_MAX_HEADER_BYTES)
		return err_set(e, ERR_INPUT,
		               "header of %" PRIu64 " bytes is larger than the format's %" PRIu64
		               " (not a safetensors file?)",
		               n, SAFETENSORS_MAX_HEADER_BYTES);
	if (n > size - sizeof n)
		return err_set(e, ERR_INPUT, "header of %" PRIu64 " bytes is larger than the file of %" PRIu64, n,
		               size);
	if (!n || f->map[sizeof n] != '{')
		return err_set(e, ERR_INPUT, "header does not begin with '{' (not a safetensors file?)");
	*out = n;
	return ERR_OK;
}

static uint64_t data_start(const struct checkpoint_file *f)
{
	uint64_t n = 0;

	memcpy(&n, f->map, sizeof n);
	return n + sizeof n;
}

/* Appends the entries of one file. */
static err_code read_header(struct checkpoint *c, uint32_t file, struct err *e)
{
	const struct checkpoint_file *f = &c->files[file];
	size_t first = c->n_entries;
	struct json *header = NULL;
	err_code rc;
	uint64_t n = 0;

	rc = header_bytes(f, &n, e);
	if (!rc && json_parse((const char *)f->map + sizeof n, n, &header, e))
		rc = err_wrap(e, "header");
	for (const struct json *j = json_first(header); j && !rc; j = json_next(j)) {
		struct entry *t;

		if (!strcmp(json_key(j), "__metadata__")) {
			if (!json_is_object(j))
				rc = err_set(e, ERR_INPUT, "header: __metadata__ is not an object");
			continue;
		}
		t = push_entry(c, e);
		if (!t || !(t->name = mem_strdup(json_key(j), e)))
			rc = e->code;
		else if (read_entry(j, t, e))
			rc = err_wrap(e, "tensor '%.200s'", t->name);
		else
			t->file = file;
	}
	if (!rc && c->n_entries > first)
		rc = check_cover(c->entries + first, c->n_entries - first, (uint64_t)f->st.st_size - n - sizeof n, e);
	else if (!rc)
		rc = err_set(e, ERR_INPUT, "no tensors");
	json_free(header);
	return rc ? err_wrap(e, "'%s'", f->path) : ERR_OK;
}

/* -- one file or shards ------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->file > y->file) - (x->file < y->file);
}

/* The entry of that name in that file (entries are sorted), or NULL. */
static struct entry *find_entry(const struct checkpoint *c, const char *name, uint32_t file)
{
	struct entry key = {.name = (char *)name, .file = file};

	return bsearch(&key, c->entries, c->n_entries, sizeof key, compare_names);
}

/* A shard is a file beside the index: a name from a file must not lead out of the directory. */
static bool is_plain_name(const char *name)
{
	return name && *name && !strpbrk(name, "/\\") && !strstr(name, "..") && strcmp(name, ".") != 0;
}

/* The file's number among c->files[first..), mapping it and reading its header when it is new; -1 with an error. */
static int64_t open_shard(struct checkpoint *c, size_t first, const char *name, struct err *e)
{
	for (size_t i = c->n_files; i-- > first;)
		if (!strcmp(c->files[i].name, name))
			return (int64_t)i;
	if (map_file(c, name, e) || read_header(c, (uint32_t)(c->n_files - 1), e))
		return -1;
	return (int64_t)c->n_files - 1;
}

static err_code open_shards(struct checkpoint *c, const struct json *map, size_t first, struct err *e)
{
	for (const struct json *j = json_first(map); j; j = json_next(j)) {
		const char *shard = json_string(j);

		if (!is_plain_name(shard))
			return err_set(e, ERR_INPUT, "tensor '%.200s': '%.200s' is not a file name", json_key(j),
			               shard ? shard : json_type_name(j));
		if (open_shard(c, first, shard, e) < 0)
			return err_wrap(e, "tensor '%.200s'", json_key(j));
	}
	return ERR_OK;
}

/* Keeps exactly what the index lists: a tensor that a shard holds without being listed is not part of the model. */
static err_code keep_listed(struct checkpoint *c, const struct json *map, size_t first, struct err *e)
{
	size_t kept = 0;

	qsort(c->entries, c->n_entries, sizeof *c->entries, compare_names);
	for (const struct json *j = json_first(map); j; j = json_next(j)) {
		int64_t file = open_shard(c, first, json_string(j), e);
		struct entry *t = find_entry(c, json_key(j), (uint32_t)file);

		if (!t)
			return err_set(e, ERR_INPUT, "tensor '%.200s' is not in '%.200s', where the index puts it",
			               json_key(j), json_string(j));
		t->wanted = true;
	}
	for (size_t i = 0; i < c->n_entries; i++) {
		if (c->entries[i].wanted)
			c->entries[kept++] = c->entries[i];
		else
			free(c->entries[i].name);
	}
	c->n_entries = kept;
	return ERR_OK;
}

static err_code map_indexed(struct checkpoint *c, struct err *e)
{
	struct json *index = NULL;
	const struct json *map;
	err_code rc = checkpoint_read_json(c, INDEX_FILE, INDEX_MAX_BYTES, &index, e);
	size_t first = c->n_files;

	if (rc)
		return rc;
	map = json_get(index, "weight_map");
	if (!json_is_object(map) || !json_first(map))
		rc = err_set(e, ERR_INPUT, "weight_map is %s, not an object with tensors",
		             json_is_object(map) ? "empty" : json_type_name(map));
	if (!rc)
		rc = open_shards(c, map, first, e);
	if (!rc)
		rc = keep_listed(c, map, first, e);
	json_free(index);
	return rc ? err_wrap(e, "'%s/" INDEX_FILE "'", c->dir) : ERR_OK;
}

static bool has_file(const struct checkpoint *c, const char *name)
{
	struct buf path = BUF_INIT(1 << 16);
	bool there;

	buf_printf(&path, "%s/%s", c->dir, name);
	there = !path.failed && !access(buf_str(&path), F_OK);
	buf_release(&path);
	return there;
}

err_code checkpoint_map_weights(struct checkpoint *c, struct err *e)
{
	bool single = has_file(c, SINGLE_FILE), indexed = has_file(c, INDEX_FILE);

	if (!single && !indexed)
		return err_set(e, ERR_NOT_FOUND, "'%s' has neither " SINGLE_FILE " nor " INDEX_FILE, c->dir);
	if (!single)
		return map_indexed(c, e);
	if (indexed)
		log_warn("'%s' has both " SINGLE_FILE " and " INDEX_FILE ": the first is used", c->dir);
	if (map_file(c, SINGLE_FILE, e) || read_header(c, (uint32_t)(c->n_files - 1), e))
		return e->code;
	qsort(c->entries, c->n_entries, sizeof *c->entries, compare_names);
	return ERR_OK;
}

/* -- tensors ----------------------------------------------------------------------------------- */

size_t checkpoint_n_tensors(const struct checkpoint *c)
{
	return c->n_entries;
}

const char *checkpoint_tensor_name(const struct checkpoint *c, size_t i)
{
	return c->entries[i].name;
}

int64_t checkpoint_find(const struct checkpoint *c, const char *name)
{
	size_t low = 0, high = c->n_entries, mid;
	int order;

	while (low < high) {
		mid = low + (high - low) / 2;
		order = strcmp(name, c->entries[mid].name);
		if (!order)
			return (int64_t)mid;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return -1;
}

err_code checkpoint_tensor(const struct checkpoint *c, size_t i, struct tensor *out, struct err *e)
{
	const struct entry *t = &c->entries[i];
	const struct checkpoint_file *f = &c->files[t->file];

	if (t->dtype->dtype < 0)
		return err_set(e, ERR_INPUT, "'%s': tensor '%.200s' is %s, want F32, F16 or BF16", f->path, t->name,
		               t->dtype->name);
	if (t->n_dim < 1 || t->n_dim > 2)
		return err_set(e, ERR_INPUT, "'%s': tensor '%.200s' has %" PRIu32 " dimensions, want 1 or 2", f->path,
		               t->name, t->n_dim);
	*out = (struct tensor){.data = f->map + data_start(f) + t->begin,
	                       .dtype = (enum dtype)t->dtype->dtype,
	                       .n_dim = t->n_dim,
	                       .shape = {t->shape[0], t->n_dim > 1 ? t->shape[1] : 1}};
	return ERR_OK;
}
