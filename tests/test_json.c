/* The base that all else stands on: JSON in and out, errors, buffers. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/err.h"
#include "engine/json.h"
#include "tests/fixture.h"

static struct err e;

/* -- numbers ------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

static double as_double(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof v);
	return v;
}

static uint64_t as_bits(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof bits);
	return bits;
}

/* Any bits; or what programs compute: ratios, small integers, decimals. */
static double draw_double(uint64_t *seed)
{
	uint64_t r = draw(seed);
	double v = as_double(draw(seed));

	switch (r % 4) {
	case 0:
		return (double)(int64_t)(r >> 40) / (double)(1 + r % 1000);
	case 1:
		return (double)(r >> 11);
	case 2:
		return (double)(r % 100000) / 1e4;
	default:
		return isfinite(v) ? v : 0.1;
	}
}

/* 10,000 doubles a document, a hundred documents. cJSON's own printing loses one in nine. */
START_TEST(a_million_doubles_survive_to_the_bit)
{
	enum { N = 10000 };
	struct buf b = BUF_INIT(1 << 20);
	double *v = malloc(N * sizeof *v), got;
	uint64_t seed = (uint64_t)_i;
	struct json *j = NULL;
	size_t i = 0;

	ck_assert_ptr_nonnull(v);
	for (int round = 0; round < 100; round++) {
		struct json_writer w = JSON_WRITER(&b);

		buf_clear(&b);
		json_begin_array(&w, NULL);
		for (i = 0; i < N; i++)
			json_put_double(&w, NULL, v[i] = draw_double(&seed));
		json_end_array(&w);
		ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
		i = 0;
		for (const struct json *m = json_first(j); m; m = json_next(m), i++)
			if (!json_number(m, &got) || as_bits(got) != as_bits(v[i]))
				ck_abort_msg("%.17g came back as %.17g", v[i], got);
		ck_assert_uint_eq(i, N);
		json_free(j);
	}
	free(v);
	buf_release(&b);
}
END_TEST

START_TEST(edge_doubles_survive)
{
	static const double edges[] = {
	    0.0, -0.0,    DBL_MIN, -DBL_MIN, DBL_MAX, -DBL_MAX, DBL_TRUE_MIN,         DBL_EPSILON,
	    0.1, 1.0 / 3, 2.0 / 3, 1e308,    1e-308,  5e-324,   123456789012345678.0, 9007199254740993.0};
	struct buf b = BUF_INIT(1000);
	struct json *j = NULL;
	double got;

	for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
		struct json_writer w = JSON_WRITER(&b);

		buf_clear(&b);
		json_put_double(&w, NULL, edges[i]);
		ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
		ck_assert(json_number(j, &got));
		ck_assert_msg(as_bits(got) == as_bits(edges[i]), "%s", buf_str(&b));
		/* and once more as a copied value */
		buf_clear(&b);
		w = JSON_WRITER(&b);
		json_put_value(&w, NULL, j);
		json_free(j);
		ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
		ck_assert(json_number(j, &got));
		ck_assert_msg(as_bits(got) == as_bits(edges[i]), "copied: %s", buf_str(&b));
		json_free(j);
	}
	buf_release(&b);
}
END_TEST

START_TEST(what_is_not_finite_is_written_as_null)
{
	struct buf b = BUF_INIT(1000);
	struct json_writer w = JSON_WRITER(&b);

	json_begin_array(&w, NULL);
	json_put_double(&w, NULL, NAN);
	json_put_double(&w, NULL, INFINITY);
	json_put_double(&w, NULL, -INFINITY);
	json_end_array(&w);
	ck_assert_str_eq(buf_str(&b), "[null,null,null]");
	buf_release(&b);
}
END_TEST

START_TEST(integers_are_exact_to_2_to_the_53)
{
	static const int64_t values[] = {0,
	                                 1,
	                                 -1,
	                                 255,
	                                 -4096,
	                                 2147483647,
	                                 2147483648,
	                                 -2147483649,
	                                 4294967296,
	                                 999999999999999,
	                                 1000000000000001,
	                                 JSON_INT_MAX - 1,
	                                 JSON_INT_MAX,
	                                 -JSON_INT_MAX,
	                                 1 - JSON_INT_MAX};
	struct buf b = BUF_INIT(1000);
	struct json *j = NULL;
	char digits[32];
	int64_t got;

	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct json_writer w = JSON_WRITER(&b);

		buf_clear(&b);
		json_put_int(&w, NULL, values[i]);
		snprintf(digits, sizeof digits, "%lld", (long long)values[i]);
		ck_assert_str_eq(buf_str(&b), digits);
		ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
		ck_assert(json_integer(j, &got));
		ck_assert_int_eq(got, values[i]);
		buf_clear(&b);
		w = JSON_WRITER(&b);
		json_put_value(&w, NULL, j);
		ck_assert_str_eq(buf_str(&b), digits);
		json_free(j);
	}
	buf_clear(&b);
	json_put_uint(&JSON_WRITER(&b), NULL, UINT64_MAX);
	ck_assert_str_eq(buf_str(&b), "18446744073709551615");
	buf_release(&b);
}
END_TEST

START_TEST(what_is_no_integer_is_not_taken_for_one)
{
	static const char *const texts[] = {
	    "1.5", "9007199254740994", "-9007199254740994", "1e300", "\"1\"", "true", "null", "[1]", "1e-5"};
	struct json *j = NULL;
	int64_t got = 77;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		ck_ok(json_parse(texts[i], strlen(texts[i]), &j, &e), &e);
		ck_assert_msg(!json_integer(j, &got), "%s", texts[i]);
		ck_assert_int_eq(got, 77);
		json_free(j);
	}
	ck_ok(json_parse("1e3", 3, &j, &e), &e);
	ck_assert(json_integer(j, &got) && got == 1000);
	json_free(j);
}
END_TEST

/* -- what is refused, and what is not ------------------------------------------------------------ */

static const struct {
	const char *text;
	size_t len;
	const char *words;
} refused[] = {
#define CASE(text, words)                                                                                              \
	{                                                                                                              \
		text, sizeof text - 1, words                                                                           \
	}
    CASE("", "JSON"),
    CASE(" ", "JSON"),
    CASE("{", "malformed"),
    CASE("[1,]", "malformed"),
    CASE("{\"a\":1,}", "malformed"),
    CASE("{a:1}", "JSON"),
    CASE("{'a':1}", "unexpected character"),
    CASE("[1 2]", "malformed"),
    CASE("nul", "malformed"),
    CASE("NaN", "unexpected character"),
    CASE("[Infinity]", "unexpected character"),
    CASE("// c\n1", "unexpected character"),
    CASE("1 1", "after the document"),
    CASE("{} x", "JSON"),
    CASE("[1]]", "after the document"),
    CASE("{}\0", "JSON"),
    CASE("{\"a\":1,\"a\":1}", "duplicate key 'a'"),
    CASE("[[{\"x\":{\"k\":1,\"m\":2,\"k\":3}}]]", "duplicate key 'k'"),
    CASE("{\"a\":1,\"\\u0061\":2}", "duplicate key 'a'"),
    CASE("\"\\u0000\"", "\\u0000"),
    CASE("{\"a\\u0000b\":1}", "\\u0000"),
    CASE("\"a\0b\"", "control character"),
    CASE("\"a\nb\"", "control character"),
    CASE("\"a\tb\"", "control character"),
    CASE("\"abc", "unexpected end"),
    CASE("\"\\\"", "unexpected end"),
    CASE("\"\\x41\"", "malformed"),
    CASE("\"\\ud800\"", "malformed"),
    CASE("\"\\udc00\\ud800\"", "malformed"),
    CASE("\"\\u12g4\"", "malformed"),
    CASE("\"\xFF\"", "invalid UTF-8 at byte 1"),
    CASE("\"\xC0\x80\"", "invalid UTF-8"),
    CASE("\"\xED\xA0\x80\"", "invalid UTF-8"),
    CASE("01", "malformed number"),
    CASE("-", "malformed number"),
    CASE("+1", "unexpected character"),
    CASE(".5", "unexpected character"),
    CASE("1.", "malformed number"),
    CASE("1e", "malformed number"),
    CASE("1e+", "malformed number"),
    CASE("-01", "malformed number"),
    CASE("1.2.3", "malformed number"),
    CASE("0x10", "JSON"),
    CASE("1e999", "out of range"),
    CASE("[-1e999]", "out of range"),
    CASE("1111111111111111111111111111111111111111111111111111111111111", "number of 61 characters"),
#undef CASE
};

START_TEST(what_is_not_json_is_refused)
{
	struct json *j = NULL;

	ck_err(json_parse(refused[_i].text, refused[_i].len, &j, &e), ERR_INPUT, refused[_i].words, &e);
	ck_assert_ptr_null(j);
}
END_TEST

START_TEST(what_is_json_is_read)
{
	static const char text[] =
	    " {\"a\" : [1 , -2.5e-3,0,-0, 1E+2],\t\"\\u00e9\\ud83d\\ude00\\\\\\/\\b\\f\\n\\r\\t\":\r\n"
	    "{\"\":null,\"A\":true,\"a\":false}} \n";
	struct json *j = NULL;
	const struct json *inner;
	double v;

	ck_ok(json_parse(text, sizeof text - 1, &j, &e), &e);
	ck_assert(json_is_object(j) && json_count(j) == 2 && json_count(json_get(j, "a")) == 5);
	ck_assert(json_number(json_next(json_first(json_get(j, "a"))), &v) && v == -2.5e-3);
	inner = json_get(j, "\xC3\xA9\xF0\x9F\x98\x80\\/\b\f\n\r\t");
	ck_assert_ptr_nonnull(inner);
	ck_assert(json_is_null(json_get(inner, "")) && !json_is_null(json_get(inner, "b")));
	ck_assert(json_true(json_get(inner, "A")) && !json_true(json_get(inner, "a")) &&
	          json_is_bool(json_get(inner, "a")));
	ck_assert_str_eq(json_type_name(json_get(inner, "none")), "absent");
	ck_assert_str_eq(json_type_name(inner), "object");
	ck_assert_ptr_null(json_get_string(j, "a"));
	json_free(j);
	json_free(NULL);
}
END_TEST

/* `depth` opening brackets, with their ends if `closed`. */
static void put_nested(struct buf *b, const char *open, const char *close, size_t depth, bool closed)
{
	buf_clear(b);
	for (size_t i = 0; i < depth; i++)
		buf_puts(b, open);
	buf_puts(b, "1");
	for (size_t i = 0; closed && i < depth; i++)
		buf_puts(b, close);
}

START_TEST(deep_nesting_is_refused_not_run_over)
{
	struct buf b = BUF_INIT(1 << 24);
	struct json *j = NULL;

	put_nested(&b, "[", "]", 64, true);
	ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
	json_free(j);
	j = NULL;
	put_nested(&b, "[", "]", 65, true);
	ck_err(json_parse(buf_str(&b), b.len, &j, &e), ERR_INPUT, "nested deeper than 64 at byte 64", &e);
	put_nested(&b, "[", "]", 1000000, true);
	ck_err(json_parse(buf_str(&b), b.len, &j, &e), ERR_INPUT, "nested deeper", &e);
	put_nested(&b, "[", "]", 1000000, false);
	ck_err(json_parse(buf_str(&b), b.len, &j, &e), ERR_INPUT, "nested deeper", &e);
	put_nested(&b, "{\"a\":", "}", 1000000, true);
	ck_err(json_parse(buf_str(&b), b.len, &j, &e), ERR_INPUT, "nested deeper", &e);
	ck_assert_ptr_null(j);
	/* brackets in strings, and many side by side, are no nesting */
	buf_clear(&b);
	buf_puts(&b, "[\"[\\\"");
	for (int i = 0; i < 1000; i++)
		buf_puts(&b, "[{");
	buf_puts(&b, "\"");
	for (int i = 0; i < 1000; i++)
		buf_puts(&b, ",[],{}");
	buf_puts(&b, "]");
	ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
	ck_assert_uint_eq(json_count(j), 2001);
	json_free(j);
	buf_release(&b);
}
END_TEST

/* As a server does with what a client sends: it is put below an answer's own members. */
START_TEST(what_was_read_can_be_written_within_more)
{
	struct buf b = BUF_INIT(1 << 16), out = BUF_INIT(1 << 16), want = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&out);
	struct json *j = NULL;

	put_nested(&b, "{\"a\":", "}", 64, true);
	ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
	for (int i = 0; i < 32; i++)
		json_begin_array(&w, NULL);
	json_put_value(&w, NULL, j);
	for (int i = 0; i < 32; i++)
		json_end_array(&w);
	for (int i = 0; i < 32; i++)
		buf_putc(&want, '[');
	buf_append(&want, b.data, b.len);
	for (int i = 0; i < 32; i++)
		buf_putc(&want, ']');
	ck_assert_str_eq(buf_str(&out), buf_str(&want));
	json_free(j);
	buf_release(&b);
	buf_release(&out);
	buf_release(&want);
}
END_TEST

START_TEST(a_file_error_names_the_file)
{
	const char *dir = fixture_tmpdir();
	char path[300];
	struct json *j = NULL;

	fixture_write(dir, "bad.json", "[1,", 3);
	snprintf(path, sizeof path, "%.200s/bad.json", dir);
	ck_err(json_parse_file(path, 100, &j, &e), ERR_INPUT, "bad.json", &e);
	ck_err(json_parse_file(path, 2, &j, &e), ERR_INPUT, "larger than 2 bytes", &e);
	snprintf(path, sizeof path, "%.200s/absent.json", dir);
	ck_err(json_parse_file(path, 100, &j, &e), ERR_NOT_FOUND, "absent.json", &e);
	ck_err(json_parse_file(dir, 100, &j, &e), ERR_IO, dir, &e);
}
END_TEST

/* -- writing ------------------------------------------------------------------------------------- */

START_TEST(strings_are_escaped_and_valid)
{
	static const char raw[] = "a\"b\\c/\n\t\r\x01\x7F\xC3\xA9\xFF\xED\xA0\x80z";
	struct buf b = BUF_INIT(1000);
	struct json *j = NULL;

	json_put_string(&JSON_WRITER(&b), NULL, raw);
	ck_assert_str_eq(buf_str(&b),
	                 "\"a\\\"b\\\\c/\\n\\t\\u000d\\u0001\\u007f\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
	                 "\xEF\xBF\xBDz\"");
	ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
	ck_assert_str_eq(json_string(j),
	                 "a\"b\\c/\n\t\r\x01\x7F\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz");
	json_free(j);
	buf_clear(&b);
	json_put_stringn(&JSON_WRITER(&b), NULL, "abc", 2);
	ck_assert_str_eq(buf_str(&b), "\"ab\"");
	buf_clear(&b);
	json_put_string(&JSON_WRITER(&b), NULL, NULL);
	ck_assert_str_eq(buf_str(&b), "null");
	buf_release(&b);
}
END_TEST

START_TEST(structures_have_their_commas)
{
	struct buf b = BUF_INIT(1000);
	struct json_writer w = JSON_WRITER(&b);
	struct json *j = NULL;
	char *first;

	json_begin_object(&w, NULL);
	json_begin_array(&w, "empty");
	json_end_array(&w);
	json_begin_object(&w, "o");
	json_put_bool(&w, "t", true);
	json_put_bool(&w, "f", false);
	json_put_null(&w, "n");
	json_end_object(&w);
	json_begin_array(&w, "list");
	json_put_int(&w, NULL, -1);
	json_put_raw(&w, NULL, "{\"raw\":[]}");
	json_put_string(&w, NULL, "s");
	json_end_array(&w);
	json_put_double(&w, "d\"", 0.5);
	json_end_object(&w);
	ck_assert_str_eq(buf_str(&b), "{\"empty\":[],\"o\":{\"t\":true,\"f\":false,\"n\":null},"
	                              "\"list\":[-1,{\"raw\":[]},\"s\"],\"d\\\"\":0.5}");
	ck_ok(json_parse(buf_str(&b), b.len, &j, &e), &e);
	first = buf_steal(&b);
	json_put_value(&JSON_WRITER(&b), NULL, j);
	ck_assert_str_eq(buf_str(&b), first);
	free(first);
	json_free(j);
	buf_release(&b);
}
END_TEST

/* -- buffers ------------------------------------------------------------------------------------- */

START_TEST(a_buffer_stops_at_its_maximum)
{
	struct buf b = BUF_INIT(10);

	ck_assert_str_eq(buf_str(&b), "");
	buf_puts(&b, "0123456789"); /* exactly full is not too full */
	ck_ok(buf_check(&b, "it", &e), &e);
	ck_assert_uint_eq(b.len, 10);
	buf_putc(&b, 'x');
	ck_err(buf_check(&b, "it", &e), ERR_MEMORY, "it: larger than 10 bytes", &e);
	buf_puts(&b, ""); /* sticky */
	ck_assert(b.failed);
	ck_assert_str_eq(buf_str(&b), "0123456789");
	ck_assert_ptr_null(buf_steal(&b));
	ck_assert(!b.failed && b.len == 0 && b.max == 10);
	buf_printf(&b, "%s-%d", "abc", 123456);
	ck_ok(buf_check(&b, "it", &e), &e);
	ck_assert_str_eq(buf_str(&b), "abc-123456");
	buf_printf(&b, "%d", 7);
	ck_assert(b.failed);
	buf_clear(&b);
	ck_assert(!b.failed && b.len == 0);
	buf_append(&b, "xyz", SIZE_MAX); /* a length that would wrap */
	ck_assert(b.failed);
	buf_release(&b);
	ck_assert_uint_eq(b.max, 10);
	buf_release(NULL);
}
END_TEST

START_TEST(a_buffer_holds_any_bytes)
{
	struct buf b = BUF_INIT(1 << 20);
	char *stolen;

	for (int i = 0; i < 100000; i++)
		buf_putc(&b, (char)i);
	ck_assert_uint_eq(b.len, 100000);
	for (int i = 0; i < 100000; i++)
		if (b.data[i] != (char)i)
			ck_abort_msg("byte %d", i);
	ck_assert_int_eq(b.data[b.len], 0);
	buf_consume(&b, 99998);
	ck_assert_uint_eq(b.len, 2);
	ck_assert_int_eq(b.data[0], (char)99998);
	buf_consume(&b, 0);
	buf_consume(&b, 2);
	ck_assert_uint_eq(b.len, 0);
	stolen = buf_steal(&b);
	ck_assert_str_eq(stolen, "");
	free(stolen);
	stolen = buf_steal(&b); /* of an empty buffer: an empty string all the same */
	ck_assert_str_eq(stolen, "");
	free(stolen);
}
END_TEST

START_TEST(allocation_sizes_do_not_wrap)
{
	volatile size_t huge = SIZE_MAX / 8 + 2; /* times 8 it wraps round to 8 */
	void *p = mem_alloc(huge, 8, &e);

	ck_assert_ptr_null(p);
	ck_assert_int_eq(e.code, ERR_MEMORY);
	e = (struct err){0};
	p = mem_zalloc(huge, 8, &e);
	ck_assert_ptr_null(p);
	ck_assert_int_eq(e.code, ERR_MEMORY);
	p = mem_alloc(0, 8, &e);
	ck_assert_ptr_nonnull(p);
	free(p);
}
END_TEST

/* -- errors -------------------------------------------------------------------------------------- */

START_TEST(an_error_is_one_complete_sentence)
{
	struct err x = {0};

	ck_assert_int_eq(err_set(&x, ERR_INPUT, "tensor '%s' has %d dimensions", "w", 3), ERR_INPUT);
	ck_assert_str_eq(x.msg, "tensor 'w' has 3 dimensions");
	ck_assert_int_eq(err_at(&x, "/params/%s", "lengths"), ERR_INPUT);
	ck_assert_str_eq(x.pointer, "/params/lengths");
	ck_assert_int_eq(err_wrap(&x, "model '%s'", "m"), ERR_INPUT);
	ck_assert_str_eq(x.msg, "model 'm': tensor 'w' has 3 dimensions");
	ck_assert_str_eq(x.pointer, "/params/lengths");
	err_set(&x, ERR_DEVICE, "other");
	ck_assert_str_eq(x.pointer, "");
	errno = ENOENT;
	ck_assert_int_eq(err_errno(&x, "cannot open '%s'", "f"), ERR_NOT_FOUND);
	ck_assert_str_eq(x.msg, "cannot open 'f': No such file or directory");
	errno = EACCES;
	ck_assert_int_eq(err_errno(&x, "cannot open '%s'", "f"), ERR_IO);
}
END_TEST

START_TEST(long_messages_are_cut_not_overrun)
{
	struct err x = {0};
	char *text = malloc(5001);

	ck_assert_ptr_nonnull(text);
	memset(text, 'y', 5000);
	text[5000] = '\0';
	err_set(&x, ERR_IO, "%s", text);
	ck_assert_uint_eq(strlen(x.msg), sizeof x.msg - 1);
	err_wrap(&x, "%s", text);
	ck_assert_uint_eq(strlen(x.msg), sizeof x.msg - 1);
	err_at(&x, "%s", text);
	ck_assert_uint_eq(strlen(x.pointer), sizeof x.pointer - 1);
	errno = EIO;
	err_errno(&x, "%s", text);
	ck_assert_ptr_nonnull(strstr(x.msg, "Input/output error"));
	free(text);
}
END_TEST

START_TEST(names_of_errors_lead_back)
{
	for (int c = ERR_OK; c <= ERR_CANCELLED; c++)
		ck_assert_int_eq(err_from_name(err_name((err_code)c)), c);
	ck_assert_int_eq(err_from_name("no such"), ERR_IO);
	ck_assert_str_eq(err_name((err_code)1000), "unknown");
}
END_TEST

Suite *json_suite(void);
Suite *json_suite(void)
{
	Suite *s = suite_create("json");
	TCase *t = tcase_create("json"), *base = tcase_create("base");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_million_doubles_survive_to_the_bit);
	tcase_add_test(t, edge_doubles_survive);
	tcase_add_test(t, what_is_not_finite_is_written_as_null);
	tcase_add_test(t, integers_are_exact_to_2_to_the_53);
	tcase_add_test(t, what_is_no_integer_is_not_taken_for_one);
	tcase_add_loop_test(t, what_is_not_json_is_refused, 0, (int)(sizeof refused / sizeof *refused));
	tcase_add_test(t, what_is_json_is_read);
	tcase_add_test(t, deep_nesting_is_refused_not_run_over);
	tcase_add_test(t, what_was_read_can_be_written_within_more);
	tcase_add_test(t, a_file_error_names_the_file);
	tcase_add_test(t, strings_are_escaped_and_valid);
	tcase_add_test(t, structures_have_their_commas);
	suite_add_tcase(s, t);
	tcase_add_test(base, a_buffer_stops_at_its_maximum);
	tcase_add_test(base, a_buffer_holds_any_bytes);
	tcase_add_test(base, allocation_sizes_do_not_wrap);
	tcase_add_test(base, an_error_is_one_complete_sentence);
	tcase_add_test(base, long_messages_are_cut_not_overrun);
	tcase_add_test(base, names_of_errors_lead_back);
	suite_add_tcase(s, base);
	return s;
}
