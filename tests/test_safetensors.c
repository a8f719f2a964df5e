/* Checkpoint files: what a good one gives, and that every way of lying in a header is refused by file and tensor. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/safetensors.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"

#define INDEX "model.safetensors.index.json"

static const char *dir;

static void make_dir(void)
{
	dir = fixture_tmpdir();
}

static void write_text(const char *name, const char *text)
{
	fixture_write(dir, name, text, strlen(text));
}

/* Opens the directory's weights; the checkpoint is freed on failure. */
static err_code open_weights(struct checkpoint **out, struct err *e)
{
	err_code rc;

	ck_ok(checkpoint_open(dir, out, e), e);
	rc = checkpoint_map_weights(*out, e);
	if (rc)
		checkpoint_free(*out);
	return rc;
}

static void check_refused(err_code code, const char *words)
{
	struct checkpoint *c = NULL;
	struct err e;

	ck_err(open_weights(&c, &e), code, words, &e);
}

/* -- good files -------------------------------------------------------------------------------- */

START_TEST(tensors_are_found_with_shape_dtype_and_data)
{
	static const unsigned char data[28] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 60, 128, 63, 1, 2, 3, 4, 5, 6, 7, 8};
	struct checkpoint *c;
	struct tensor t;
	struct err e;
	float v[2];

	/* out of order, an empty tensor, a dtype that is no weight's, an odd header length: all legal */
	fixture_safetensors_write(
	    dir, "model.safetensors",
	    "{\"z\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"__metadata__\":{\"a\":\"b\"},"
	    "\"h\":{\"dtype\":\"F16\",\"shape\":[1,1],\"data_offsets\":[8,10]},"
	    "\"mask\":{\"dtype\":\"I64\",\"shape\":[1,1,1],\"data_offsets\":[12,20]},"
	    "\"b\":{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[10,12]},"
	    "\"deep\":{\"dtype\":\"F32\",\"shape\":[1,2,1],\"data_offsets\":[20,28]},"
	    "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]}}",
	    data, sizeof data);
	ck_ok(open_weights(&c, &e), &e);
	ck_assert_uint_eq(checkpoint_n_tensors(c), 6);
	ck_assert_str_eq(checkpoint_tensor_name(c, 0), "b");
	ck_assert_int_eq(checkpoint_find(c, "z"), 5);
	ck_assert_int_eq(checkpoint_find(c, "y"), -1);
	ck_assert_int_eq(checkpoint_find(c, ""), -1);

	ck_ok(checkpoint_tensor(c, 5, &t, &e), &e);
	ck_assert(t.dtype == DTYPE_F32 && t.n_dim == 1 && t.shape[0] == 2 && t.shape[1] == 1);
	tensor_to_f32(&t, 0, 2, v);
	ck_assert(v[0] == 1 && v[1] == 2);
	ck_ok(checkpoint_tensor(c, (size_t)checkpoint_find(c, "h"), &t, &e), &e);
	ck_assert(t.dtype == DTYPE_F16 && t.n_dim == 2 && t.shape[0] == 1 && t.shape[1] == 1);
	tensor_to_f32(&t, 0, 1, v);
	ck_assert(v[0] == 1);
	ck_ok(checkpoint_tensor(c, 0, &t, &e), &e);
	tensor_to_f32(&t, 0, 1, v);
	ck_assert(t.dtype == DTYPE_BF16 && v[0] == 1);

	ck_err(checkpoint_tensor(c, (size_t)checkpoint_find(c, "mask"), &t, &e), ERR_INPUT, "'mask' is I64", &e);
	ck_err(checkpoint_tensor(c, (size_t)checkpoint_find(c, "deep"), &t, &e), ERR_INPUT, "3 dimensions", &e);
	checkpoint_drop_pages(c);
	checkpoint_free(c);
}
END_TEST

/* -- headers that lie -------------------------------------------------------------------------- */

#define F32(name, shape, offsets) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

START_TEST(a_lying_header_is_refused_naming_the_tensor)
{
	static const struct {
		const char *header;
		size_t bytes; /* of data */
		const char *words;
	} rows[] = {
	    {"{" F32("x", "[4]", "[0,16]") "}", 15,
	     "tensor 'x' ends at byte 16 of the data, which has 15: the file is cut off, 1 bytes"},
	    {"{" F32("x", "[2]", "[0,8]") "," F32("y", "[6]", "[8,32]") "}", 20,
	     "tensor 'y' ends at byte 32 of the data, which has 20: the file is cut off, 12 bytes"},
	    {"{" F32("x", "[4]", "[0,16]") "}", 0, "16 bytes of it are missing"},
	    {"{" F32("x", "[4]", "[9007199254740976,9007199254740992]") "}", 16, "leaves a hole of"},
	    {"{" F32("x", "[4]", "[0,16]") "}", 17, "1 bytes after the last tensor"},
	    {"{" F32("x", "[4]", "[0,16]") "," F32("y", "[2]", "[8,16]") "}", 16, "tensor 'y' overlaps tensor 'x'"},
	    {"{" F32("x", "[4]", "[0,16]") "," F32("y", "[4]", "[0,16]") "}", 16, "overlaps"},
	    {"{" F32("x", "[1]", "[0,4]") "," F32("y", "[2]", "[8,16]") "}", 16, "tensor 'y' leaves a hole of 4 bytes"},
	    {"{" F32("x", "[3]", "[4,16]") "}", 16, "tensor 'x' leaves a hole of 4 bytes"},
	    {"{" F32("x", "[4]", "[0,12]") "}", 12, "tensor 'x': its shape of F32 needs 16 bytes"},
	    {"{" F32("x", "[4]", "[16,0]") "}", 16, "tensor 'x': data_offsets are not an increasing pair"},
	    {"{" F32("x", "[4]", "[-16,0]") "}", 16, "tensor 'x': data_offsets are not"},
	    {"{" F32("x", "[4]", "[0,1e300]") "}", 16, "tensor 'x': data_offsets are not"},
	    {"{" F32("x", "[4]", "[0]") "}", 16, "tensor 'x': data_offsets is not an array of two"},
	    {"{" F32("x", "[4]", "{}") "}", 16, "tensor 'x': data_offsets is not an array of two"},
	    {"{" F32("x", "[4]", "[0,16.5]") "}", 16, "tensor 'x': data_offsets are not"},
	    {"{" F32("x", "[4294967296,4294967296]", "[0,16]") "}", 16, "tensor 'x': shape's product overflows"},
	    {"{" F32("x", "[4294967296,1073741824]", "[0,16]") "}", 16, "tensor 'x': shape's product overflows"},
	    {"{" F32("x", "[9007199254740992,2048,0]", "[0,0]") "}", 16, "tensor 'x': shape's product overflows"},
	    {"{" F32("x", "[-4]", "[0,16]") "}", 16, "tensor 'x': dimension 0 is not a size"},
	    {"{" F32("x", "[2,2.5]", "[0,16]") "}", 16, "tensor 'x': dimension 1 is not a size"},
	    {"{" F32("x", "[\"4\"]", "[0,16]") "}", 16, "tensor 'x': dimension 0 is not a size"},
	    {"{" F32("x", "4", "[0,16]") "}", 16, "tensor 'x': shape is number, not an array"},
	    {"{\"x\":{\"dtype\":\"F33\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "unknown dtype 'F33'"},
	    {"{\"x\":{\"dtype\":4,\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "tensor 'x': unknown dtype"},
	    {"{\"x\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "not whole bytes"},
	    {"{\"x\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, "tensor 'x': unknown dtype"},
	    {"{\"x\":[]}", 0, "tensor 'x': its entry is array, not an object"},
	    {"{" F32("x", "[4]", "[0,16]") "," F32("x", "[4]", "[0,16]") "}", 16, "duplicate key 'x'"},
	    {"{" F32("x", "[4]", "[0,16]") ",}", 16, "header: JSON"},
	    {"{" F32("x", "[4]", "[0,16]") "} x", 16, "header: JSON"},
	    {"{\"x\":", 16, "header: JSON"},
	    {"{\"__metadata__\":3}", 0, "__metadata__ is not an object"},
	    {"{}", 0, "no tensors"},
	    {"{\"__metadata__\":{}}", 0, "no tensors"},
	    {"[]", 0, "header does not begin with '{'"},
	    {"", 16, "header does not begin with '{'"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		fixture_safetensors_write(dir, "model.safetensors", rows[i].header, NULL, rows[i].bytes);
		check_refused(ERR_INPUT, rows[i].words);
		check_refused(ERR_INPUT, "/model.safetensors'");
	}
}
END_TEST

/* The length field alone, over a file of 8 + 2 bytes. */
static void write_length(uint64_t n)
{
	unsigned char file[10] = {[8] = '{', [9] = '}'};

	memcpy(file, &n, sizeof n);
	fixture_write(dir, "model.safetensors", file, sizeof file);
}

START_TEST(a_header_that_cannot_be_there_is_refused)
{
	char path[PATH_MAX];

	write_length(3);
	check_refused(ERR_INPUT, "header of 3 bytes is larger than the file of 10");
	write_length(100000001);
	check_refused(ERR_INPUT, "header of 100000001 bytes is larger than the format's 100000000");
	write_length(UINT64_MAX);
	check_refused(ERR_INPUT, "header of 18446744073709551615 bytes");
	write_length(UINT64_MAX - 7);
	check_refused(ERR_INPUT, "header of 18446744073709551608 bytes");
	write_length((uint64_t)1 << 63);
	check_refused(ERR_INPUT, "header of 9223372036854775808 bytes");
	/* the limit holds even in a file that is large enough */
	write_length(100000001);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	ck_assert_int_eq(truncate(path, 200000000), 0);
	check_refused(ERR_INPUT, "larger than the format's");

	fixture_write(dir, "model.safetensors", "", 0);
	check_refused(ERR_INPUT, "is empty");
	fixture_write(dir, "model.safetensors", "1234567", 7);
	check_refused(ERR_INPUT, "7 bytes are too few");
	write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"
	                                "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
	                                "size 58744928\n");
	check_refused(ERR_INPUT, "this is a Git LFS pointer, not the weights");
	write_text("model.safetensors", "<!DOCTYPE html><html><body>Not found</body></html>");
	check_refused(ERR_INPUT, "not a safetensors file?");
}
END_TEST

START_TEST(what_is_not_a_regular_file_is_refused)
{
	struct checkpoint *c = NULL;
	char path[PATH_MAX];
	struct json *j;
	struct err e;

	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	check_refused(ERR_INPUT, "is not a regular file"); /* and does not wait for a writer */
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	check_refused(ERR_INPUT, "is not a regular file");
	rmdir(path);
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	check_refused(ERR_INPUT, "is not a regular file");
	unlink(path);
	check_refused(ERR_NOT_FOUND, "has neither model.safetensors nor model.safetensors.index.json");

	snprintf(path, sizeof path, "%s/config.json", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_err(checkpoint_open(path, &c, &e), ERR_INPUT, "is not a directory", &e);
	ck_err(checkpoint_open("/nowhere/at/all", &c, &e), ERR_NOT_FOUND, "/nowhere/at/all", &e);
	ck_ok(checkpoint_open(dir, &c, &e), &e);
	ck_err(checkpoint_read_json(c, "config.json", 100, &j, &e), ERR_INPUT, "is not a regular file", &e);
	ck_err(checkpoint_read_json(c, "absent.json", 100, &j, &e), ERR_NOT_FOUND, "absent.json", &e);
	ck_assert_uint_eq(checkpoint_n_files(c), 0);
	write_text("a.json", "{\"a\": 1, \"a\": 2}");
	ck_err(checkpoint_read_json(c, "a.json", 100, &j, &e), ERR_INPUT, "a.json': JSON: duplicate key", &e);
	write_text("a.json", "{\"a\": 1}");
	ck_err(checkpoint_read_json(c, "a.json", 7, &j, &e), ERR_INPUT, "a.json", &e);
	write_text("a.json", "version https://git-lfs.github.com/spec/v1\noid");
	ck_err(checkpoint_read_json(c, "a.json", 100, &j, &e), ERR_INPUT, "Git LFS pointer", &e);
	checkpoint_free(c);
}
END_TEST

/* -- shards ------------------------------------------------------------------------------------ */

static void write_shard(const char *name, const char *tensor, uint32_t value)
{
	char header[200];

	snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
	fixture_safetensors_write(dir, name, header, &value, sizeof value);
}

START_TEST(an_index_decides_which_shard_holds_a_tensor)
{
	struct checkpoint *c;
	struct tensor t;
	uint32_t value;
	struct err e;

	write_text(
	    INDEX,
	    "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"y\":\"b.safetensors\",\"x\":\"a.safetensors\"}}");
	write_shard("a.safetensors", "x", 17);
	fixture_safetensors_write(dir, "b.safetensors", "{" F32("x", "[1]", "[0,4]") "," F32("y", "[1]", "[4,8]") "}",
	                          NULL, 8);
	write_text("stray.safetensors", "not even a header");
	ck_ok(open_weights(&c, &e), &e);
	ck_assert_uint_eq(checkpoint_n_tensors(c), 2);
	ck_ok(checkpoint_tensor(c, (size_t)checkpoint_find(c, "x"), &t, &e), &e);
	memcpy(&value, t.data, sizeof value);
	ck_assert_uint_eq(value, 17); /* that of a, although b has one too */
	ck_assert_uint_eq(checkpoint_n_files(c), 3);
	ck_assert_str_eq(checkpoint_file(c, 0)->name, INDEX);
	ck_assert_str_eq(checkpoint_file(c, 1)->name, "b.safetensors");
	checkpoint_free(c);

	write_shard("model.safetensors", "z", 1); /* one file goes before an index */
	ck_ok(open_weights(&c, &e), &e);
	ck_assert_uint_eq(checkpoint_n_tensors(c), 1);
	ck_assert_uint_eq(checkpoint_n_files(c), 1);
	checkpoint_free(c);
}
END_TEST

START_TEST(a_lying_index_is_refused)
{
	static const struct {
		const char *index;
		err_code code;
		const char *words;
	} rows[] = {
	    {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"gone.safetensors\"}}", ERR_NOT_FOUND,
	     "gone.safetensors"},
	    {"{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"a.safetensors\"}}", ERR_INPUT,
	     "tensor 'y' is not in 'a.safetensors', where the index puts it"},
	    {"{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\"}}", ERR_INPUT,
	     "tensor 'x' is not in 'b.safetensors'"},
	    {"{\"weight_map\":{\"x\":\"../a.safetensors\"}}", ERR_INPUT,
	     "tensor 'x': '../a.safetensors' is not a file name"},
	    {"{\"weight_map\":{\"x\":\"/etc/passwd\"}}", ERR_INPUT, "'/etc/passwd' is not a file name"},
	    {"{\"weight_map\":{\"x\":\"sub/a.safetensors\"}}", ERR_INPUT, "is not a file name"},
	    {"{\"weight_map\":{\"x\":\"sub\\\\a.safetensors\"}}", ERR_INPUT, "is not a file name"},
	    {"{\"weight_map\":{\"x\":\"..\"}}", ERR_INPUT, "is not a file name"},
	    {"{\"weight_map\":{\"x\":\".\"}}", ERR_INPUT, "is not a file name"},
	    {"{\"weight_map\":{\"x\":\"\"}}", ERR_INPUT, "is not a file name"},
	    {"{\"weight_map\":{\"x\":7}}", ERR_INPUT, "tensor 'x': 'number' is not a file name"},
	    {"{\"weight_map\":{\"x\":\"bad.safetensors\"}}", ERR_INPUT, "bad.safetensors': 3 bytes are too few"},
	    {"{\"weight_map\":{\"x\":\"a.safetensors\",\"x\":\"b.safetensors\"}}", ERR_INPUT, "duplicate key 'x'"},
	    {"{\"weight_map\":{}}", ERR_INPUT, "weight_map is empty"},
	    {"{\"weight_map\":[]}", ERR_INPUT, "weight_map is array"},
	    {"{}", ERR_INPUT, "weight_map is absent"},
	    {"[1]", ERR_INPUT, "weight_map is absent"},
	    {"{", ERR_INPUT, INDEX},
	};

	write_shard("a.safetensors", "x", 1);
	write_shard("b.safetensors", "y", 2);
	write_text("bad.safetensors", "abc");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		write_text(INDEX, rows[i].index);
		check_refused(rows[i].code, rows[i].words);
		check_refused(rows[i].code, INDEX);
	}
}
END_TEST

START_TEST(a_file_that_changed_after_opening_is_noticed)
{
	struct checkpoint *c;
	char path[PATH_MAX];
	struct err e;

	write_shard("model.safetensors", "x", 1);
	ck_ok(open_weights(&c, &e), &e);
	ck_ok(checkpoint_check(c, &e), &e);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	unlink(path);
	ck_err(checkpoint_check(c, &e), ERR_CHANGED, "model.safetensors' is gone", &e);
	write_shard("model.safetensors", "x", 1);
	ck_err(checkpoint_check(c, &e), ERR_CHANGED, "model.safetensors' changed", &e);
	checkpoint_free(c);
}
END_TEST

/* -- mutations --------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t *state) /* Knuth's MMIX generator, upper half */
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 32);
}

/* One to four edits of the kinds that files suffer. */
static void mutate(struct buf *f, uint64_t *state)
{
	static const char tokens[] = "{}[],:\"0123456789-eE.\\u \0FBI";
	int n = 1 + (int)(draw(state) % 4);

	while (n-- && f->len) {
		size_t at = draw(state) % (draw(state) % 4 ? (f->len < 400 ? f->len : 400) : f->len);

		switch (draw(state) % 4) {
		case 0:
			f->data[at] ^= (char)(1 << draw(state) % 8);
			break;
		case 1:
			f->data[at] = tokens[draw(state) % (sizeof tokens - 1)];
			break;
		case 2:
			memmove(f->data + at, f->data + at + 1, f->len - at - 1);
			f->len--;
			break;
		case 3:
			f->len = at;
			break;
		}
	}
}

/* Reads every byte that the checkpoint offers, and all of them lie in the file. */
static unsigned touch_all(const struct checkpoint *c)
{
	const struct checkpoint_file *f = checkpoint_file(c, 0);
	unsigned sum = 0;
	struct tensor t;
	struct err e;

	for (size_t i = 0; i < checkpoint_n_tensors(c); i++) {
		size_t bytes;

		if (checkpoint_tensor(c, i, &t, &e))
			continue;
		bytes = t.shape[0] * t.shape[1] * dtype_size(t.dtype);
		ck_assert((const unsigned char *)t.data >= f->map);
		ck_assert((const unsigned char *)t.data + bytes <= f->map + f->st.st_size);
		for (size_t k = 0; k < bytes; k++)
			sum += ((const unsigned char *)t.data)[k];
	}
	return sum;
}

START_TEST(mutated_files_are_read_or_refused_never_believed)
{
	struct fixture_model m = FIXTURE_MODEL_DEFAULT;
	struct buf good = BUF_INIT(1 << 20), bad = BUF_INIT(1 << 20);
	const char *rounds = getenv("FATHOM_FUZZ_ROUNDS");
	long n = rounds ? strtol(rounds, NULL, 10) : 2000, n_opened = 0;
	uint64_t state = 42;
	char path[PATH_MAX];
	struct err e;

	m.n_layer = 1;
	m.dtype = DTYPE_BF16;
	fixture_model_write(dir, &m);
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	ck_ok(buf_read_file(&good, path, &e), &e);
	for (long i = 0; i < n; i++) {
		struct checkpoint *c;

		buf_clear(&bad);
		buf_append(&bad, good.data, good.len);
		mutate(&bad, &state);
		fixture_write(dir, "model.safetensors", bad.data, bad.len);
		e.msg[0] = '\0';
		if (open_weights(&c, &e)) {
			ck_assert_msg(strstr(e.msg, "model.safetensors") != NULL, "%s", e.msg);
			continue;
		}
		n_opened++;
		touch_all(c);
		checkpoint_free(c);
	}
	/* a mutation of the data alone, or of a name, is legal: both outcomes must occur */
	ck_assert_int_gt(n_opened, n / 50);
	ck_assert_int_lt(n_opened, n / 2);
	buf_release(&good);
	buf_release(&bad);
}
END_TEST

Suite *safetensors_suite(void);
Suite *safetensors_suite(void)
{
	Suite *s = suite_create("safetensors");
	TCase *t = tcase_create("files");

	tcase_add_checked_fixture(t, make_dir, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, tensors_are_found_with_shape_dtype_and_data);
	tcase_add_test(t, a_lying_header_is_refused_naming_the_tensor);
	tcase_add_test(t, a_header_that_cannot_be_there_is_refused);
	tcase_add_test(t, what_is_not_a_regular_file_is_refused);
	tcase_add_test(t, an_index_decides_which_shard_holds_a_tensor);
	tcase_add_test(t, a_lying_index_is_refused);
	tcase_add_test(t, a_file_that_changed_after_opening_is_noticed);
	tcase_add_test(t, mutated_files_are_read_or_refused_never_believed);
	suite_add_tcase(s, t);
	return s;
}
