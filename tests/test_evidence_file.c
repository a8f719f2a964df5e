/* Files of evidence: plain and gzip, one result or several, what is refused, and that writing is reproducible. That
 * other programs read what is written is in tests/e2e/test_gate_cli.py. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "engine/json.h"
#include "server/evidence_file.h"
#include "server/gzip.h"
#include "tests/fixture.h"

#define RESULT "{\"task\":{},\"model\":{},\"dataset\":{},\"metrics\":[],\"items\":[{\"key\":\"00\"}]}"

static struct err e;
static const char *dir;

static const char *in(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void set_up(void)
{
	dir = fixture_tmpdir();
}

/* What a file of this text reads as. */
static struct buf text;

static err_code read_text(const char *name, const char *contents, size_t len)
{
	buf_release(&text);
	text = BUF_INIT(1 << 20);
	fixture_write(dir, name, contents, len);
	return evidence_file_read(in(name), &text, &e);
}

START_TEST(files_are_told_from_names_by_their_ending)
{
	ck_assert(evidence_file_named("main.json"));
	ck_assert(evidence_file_named("ci/main.json.gz"));
	ck_assert(!evidence_file_named("main"));
	ck_assert(!evidence_file_named("release-1.0"));
	ck_assert(!evidence_file_named(".json"));
}
END_TEST

START_TEST(one_result_and_a_list_of_one_are_the_same)
{
	static const char list[] = "{\"results\": [ " RESULT " ]}\n";

	ck_ok(read_text("a.json", RESULT, strlen(RESULT)), &e);
	ck_assert_str_eq(buf_str(&text), "{\"results\":[" RESULT "]}");
	ck_ok(read_text("b.json", list, strlen(list)), &e);
	ck_assert_str_eq(buf_str(&text), "{\"results\":[" RESULT "]}");
}
END_TEST

/* printf '{"task"...}' | gzip -n -9 */
static const unsigned char gzipped[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x2a,
                                        0x49, 0x2c, 0xce, 0x56, 0xb2, 0xaa, 0xae, 0xd5, 0x51, 0xca, 0xcd, 0x4f, 0x49,
                                        0xcd, 0x81, 0x30, 0x53, 0x12, 0x81, 0xc2, 0xa9, 0x25, 0x50, 0xf1, 0xd4, 0x92,
                                        0xa2, 0xcc, 0xe4, 0x62, 0x25, 0xab, 0xe8, 0x58, 0x1d, 0xa5, 0xcc, 0x92, 0xd4,
                                        0x5c, 0x10, 0xb3, 0x5a, 0x29, 0x3b, 0xb5, 0x52, 0xc9, 0x4a, 0xc9, 0xc0, 0x40,
                                        0xa9, 0x36, 0xb6, 0x16, 0x00, 0x80, 0x2c, 0x12, 0x32, 0x47, 0x00, 0x00, 0x00};

START_TEST(gzip_is_known_by_its_first_bytes)
{
	ck_ok(read_text("a.json.gz", (const char *)gzipped, sizeof gzipped), &e);
	ck_assert_str_eq(buf_str(&text), "{\"results\":[" RESULT "]}");
	ck_ok(read_text("b.json", (const char *)gzipped, sizeof gzipped), &e); /* whatever it is called */
	ck_ok(read_text("c.json.gz", RESULT, strlen(RESULT)), &e);
	ck_err(read_text("cut.json.gz", (const char *)gzipped, sizeof gzipped - 20), ERR_INPUT, "cut.json.gz", &e);
}
END_TEST

/* A byte of the checksum and one of the length (the last eight), and each of them cut off; zeros behind do no harm. */
START_TEST(a_damaged_gzip_is_refused)
{
	char copy[sizeof gzipped + 9000] = {0};

	for (size_t i = 1; i <= 8; i++) {
		memcpy(copy, gzipped, sizeof gzipped);
		copy[sizeof gzipped - i] ^= 1;
		ck_err(read_text("bits.json.gz", copy, sizeof gzipped), ERR_INPUT,
		       "bits.json.gz': its checksum is not that of its contents", &e);
		ck_err(read_text("short.json.gz", (const char *)gzipped, sizeof gzipped - i), ERR_INPUT,
		       "short.json.gz': truncated gzip input", &e);
	}
	memcpy(copy, gzipped, sizeof gzipped);
	ck_ok(read_text("padded.json.gz", copy, sizeof copy), &e);
	copy[sizeof gzipped + 5000] = 'x';
	ck_err(read_text("more.json.gz", copy, sizeof copy), ERR_INPUT, "or not one gzip stream", &e);
}
END_TEST

START_TEST(what_is_no_evidence_is_refused_with_file_and_place)
{
	static const struct {
		const char *text, *words;
	} table[] = {
	    {"{\"task\":", "x.json"},
	    {"[]", "is array, not a result object"},
	    {"{\"results\":[]}", "/results"},
	    {"{\"results\":{\"a\":1}}", "/results"},
	    {"{\"results\":[" RESULT ",7]}", "at /results/1"},
	    {"{\"results\":[" RESULT ",{\"task\":{},\"model\":{},\"dataset\":{},\"metrics\":[]}]}",
	     "at /results/1/items"},
	    {"{\"task\":{},\"model\":{},\"dataset\":{},\"metrics\":[]}", "fathom run --evidence"},
	    {"{\"task\":{},\"model\":{},\"dataset\":{},\"metrics\":3,\"items\":[]}", "metrics is number, not an array"},
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		ck_err(read_text("x.json", table[i].text, strlen(table[i].text)), ERR_INPUT, table[i].words, &e);
	buf_release(&text);
	text = BUF_INIT(1 << 20);
	ck_err(evidence_file_read(in("nowhere.json"), &text, &e), ERR_NOT_FOUND, "nowhere.json", &e);
}
END_TEST

static void write_one(const char *name)
{
	static const char items[] = "{\"key\":\"00\"}\n";
	static const char result[] = "{\"task\":{},\"model\":{},\"dataset\":{},\"metrics\":[]}";
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&out);
	struct json *j = NULL;
	struct output o;

	ck_ok(json_parse(result, strlen(result), &j, &e), &e);
	ck_ok(evidence_file_put(&w, NULL, j, items, strlen(items), &e), &e);
	ck_ok(output_open(&o, "FILE", in(name), &e), &e);
	ck_ok(evidence_file_commit(&o, &out, &e), &e);
	output_release(&o);
	buf_release(&out);
	json_free(j);
}

START_TEST(what_is_written_reads_back_and_is_the_same_every_time)
{
	static const char *const names[] = {"a.json", "a.json.gz", "b.json.gz"};
	struct buf files[3];

	for (int i = 0; i < 3; i++) {
		files[i] = BUF_INIT(1 << 20);
		write_one(names[i]);
		buf_release(&text);
		text = BUF_INIT(1 << 20);
		ck_ok(evidence_file_read(in(names[i]), &text, &e), &e);
		ck_assert_str_eq(buf_str(&text), "{\"results\":[" RESULT "]}");
		ck_ok(buf_read_file(&files[i], in(names[i]), &e), &e);
	}
	ck_assert_str_eq(buf_str(&files[0]), RESULT "\n");
	ck_assert_int_eq(files[1].data[0], 0x1F);
	ck_assert(files[1].len == files[2].len && !memcmp(files[1].data, files[2].data, files[1].len));
	ck_assert_uint_lt(files[1].len, 100); /* no block is filled */
	ck_assert_int_eq(files[1].data[4] | files[1].data[5] | files[1].data[6] | files[1].data[7],
	                 0); /* RFC 1952's MTIME */
	for (int i = 0; i < 3; i++)
		buf_release(&files[i]);
}
END_TEST

Suite *evidence_file_suite(void);
Suite *evidence_file_suite(void)
{
	Suite *s = suite_create("evidence_file");
	TCase *t = tcase_create("evidence_file");

	suite_add_tcase(s, t);
	tcase_add_checked_fixture(t, set_up, NULL);
	tcase_add_test(t, files_are_told_from_names_by_their_ending);
	tcase_add_test(t, one_result_and_a_list_of_one_are_the_same);
	tcase_add_test(t, gzip_is_known_by_its_first_bytes);
	tcase_add_test(t, a_damaged_gzip_is_refused);
	tcase_add_test(t, what_is_no_evidence_is_refused_with_file_and_place);
	tcase_add_test(t, what_is_written_reads_back_and_is_the_same_every_time);
	return s;
}
