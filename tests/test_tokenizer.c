/* Tokenizers against Hugging Face's `tokenizers`, by the golden files of tests/golden/tokenizer (see generate.py,
 * which builds the large texts in the same way). Damaged files: test_tokenizer_files.c. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/json.h"
#include "engine/sha256.h"
#include "engine/tokenizer.h"
#include "engine/utf8.h"
#include "tests/fixture.h"

#define GOLDEN "tests/golden/tokenizer/"

static struct err e;

/* -- golden files and texts ----------------------------------------------------------------------- */

static const struct {
	const char *name, *shared, *data; /* where tokenizer.json lies; neither: ours */
	bool exact;                       /* no normaliser: tokens' bytes are the text's */
} files[] = {
    {"small", NULL, NULL, true},
    {"29m", "models/rope-29m/tokenizer.json", NULL, true},
    {"gpt2", NULL, "tokenizers/gpt2_tokenizer.json", true},
    {"neox", NULL, "tokenizers/gpt_neox_20B_tokenizer.json", false},
};
#define N_FILES ((int)(sizeof files / sizeof *files))

static struct json *load(const char *name)
{
	char path[200];
	struct json *j = NULL;

	snprintf(path, sizeof path, GOLDEN "%s", name);
	ck_ok(json_parse_file(path, 1 << 24, &j, &e), &e);
	return j;
}

/* Opens files[i]; NULL, said aloud, when it is not at hand. */
static struct tokenizer *open_file(int i, const char *test)
{
	const char *path = files[i].shared ? fixture_shared(files[i].shared)
	                   : files[i].data ? fixture_data(files[i].data)
	                                   : GOLDEN "small.json";
	struct tokenizer *t = NULL;

	if (!path) {
		fixture_skip(test, files[i].shared ? files[i].shared : files[i].data);
		return NULL;
	}
	ck_ok(tokenizer_open(path, &t, &e), &e);
	return t;
}

static struct json *load_ids(int i)
{
	char name[100];

	snprintf(name, sizeof name, "ids_%s.json", files[i].name);
	return load(name);
}

/* splitmix64, without its lowest 33 bits. */
static uint32_t draw(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return (uint32_t)((z ^ z >> 31) >> 33);
}

static void put_hex(struct buf *out, const char *hex)
{
	unsigned byte;

	for (; *hex && sscanf(hex, "%2x", &byte) == 1; hex += 2)
		buf_putc(out, (char)byte);
}

/* A text of cases.json: a string, or {"hex": bytes}. */
static void put_text(struct buf *out, const struct json *j)
{
	buf_clear(out);
	if (json_is_string(j))
		buf_puts(out, json_string(j));
	else
		put_hex(out, json_get_string(j, "hex"));
}

/* The code points assigned in Unicode 14. */
struct assigned {
	uint32_t *cps;
	size_t n, n_low; /* n_low: below 0x3000 */
};

static struct assigned load_assigned(void)
{
	struct assigned a = {.cps = calloc(0x110000, sizeof *a.cps)};
	struct json *j = load("assigned.json");

	ck_assert_ptr_nonnull(a.cps);
	for (const struct json *m = json_first(j); m; m = json_next(json_next(m))) {
		int64_t first = 0, last = 0;

		if (!json_integer(m, &first) || !json_integer(json_next(m), &last))
			ck_abort_msg("assigned.json is not pairs of integers");
		for (; first <= last; first++)
			a.cps[a.n++] = (uint32_t)first;
	}
	while (a.cps[a.n_low] < 0x3000)
		a.n_low++;
	json_free(j);
	return a;
}

/* generate.py: mixed() */
static void put_mixed(struct buf *out, const struct assigned *a, const struct json *parts, uint64_t seed)
{
	size_t n_parts = json_count(parts), n = draw(&seed) % 64 + 1;

	if (!n_parts || !a->n_low)
		ck_abort_msg("golden files without parts or characters");
	buf_clear(out);
	while (n--) {
		uint32_t kind = draw(&seed) % 4, r = draw(&seed);
		const struct json *part = json_first(parts);

		if (kind == 0) {
			utf8_put(out, a->cps[r % a->n]);
		} else if (kind == 1) {
			utf8_put(out, a->cps[r % a->n_low]);
		} else if (kind == 2) {
			buf_putc(out, (char)(r % 128));
		} else {
			for (size_t i = 0; i < r % n_parts; i++)
				part = json_next(part);
			buf_puts(out, json_string(part));
		}
	}
}

/* -- comparing ----------------------------------------------------------------------------------- */

/* Tokens cover the text in order, and are its bytes unless a normaliser changed them. (A passed ck_assert writes to a
 * file: too slow for every token.) */
static void check_ends(const struct tokenizer *t, const struct token_list *l, const char *text, size_t len, bool exact)
{
	size_t at = 0, n;

	for (size_t i = 0; i < l->n; i++) {
		const char *bytes = tokenizer_token_bytes(t, l->ids[i], &n);

		if (!bytes || l->ends[i] < at || l->ends[i] > len)
			ck_abort_msg("token %zu, id %u, ends at %zu after %zu of %zu", i, l->ids[i], l->ends[i], at,
			             len);
		if (exact && (l->ends[i] - at != n || memcmp(bytes, text + at, n) != 0))
			ck_abort_msg("token %zu, id %u, is not the text's bytes %zu to %zu", i, l->ids[i], at,
			             l->ends[i]);
		at = l->ends[i];
	}
	ck_assert_uint_eq(at, len);
}

static void encode(const struct tokenizer *t, const struct buf *text, bool exact, struct token_list *l)
{
	l->n = 0;
	ck_ok(tokenizer_encode(t, buf_str(text), text->len, false, l, &e), &e);
	check_ends(t, l, buf_str(text), text->len, exact);
}

/* A running sha256 of ids as little-endian uint32. */
struct digest {
	struct sha256 *h;
	size_t n;
};

static void digest_add(struct digest *d, const struct token_list *l)
{
	if (!d->h)
		d->h = sha256_new(&e);
	ck_assert_ptr_nonnull(d->h);
	for (size_t i = 0; i < l->n; i++) {
		uint32_t id = l->ids[i];
		uint8_t le[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16), (uint8_t)(id >> 24)};

		sha256_update(d->h, le, sizeof le);
	}
	d->n += l->n;
}

static void digest_expect(struct digest *d, const struct json *want, const char *what, int at)
{
	char hex[SHA256_HEX];
	int64_t n;

	ck_assert(json_get_integer(want, "n", &n));
	ck_assert_ptr_nonnull(d->h);
	sha256_final(d->h, hex);
	ck_assert_msg(d->n == (size_t)n, "%s %d: %zu tokens, not %lld", what, at, d->n, (long long)n);
	ck_assert_msg(!strcmp(hex, json_get_string(want, "sha256")), "%s %d: other ids", what, at);
	*d = (struct digest){0};
}

/* want: a list of ids, or a digest. */
static void expect(const struct token_list *l, const struct json *want, const char *what, int at)
{
	struct digest d = {0};
	size_t i = 0;
	int64_t id;

	if (json_is_object(want)) {
		digest_add(&d, l);
		digest_expect(&d, want, what, at);
		return;
	}
	for (const struct json *m = json_first(want); m; m = json_next(m), i++) {
		if (!json_integer(m, &id) || i >= l->n)
			ck_abort_msg("%s %d: only %zu tokens", what, at, l->n);
		if (l->ids[i] != id)
			ck_abort_msg("%s %d: token %zu is %u, not %lld", what, at, i, l->ids[i], (long long)id);
	}
	ck_assert_msg(i == l->n, "%s %d: %zu tokens, not %zu", what, at, l->n, i);
}

/* -- golden tests, for every tokenizer ------------------------------------------------------------ */

START_TEST(cases_have_the_ids_of_hugging_face)
{
	struct tokenizer *t = open_file(_i, "tokenizer cases");
	struct json *cases = load("cases.json"), *golden = load_ids(_i);
	struct buf text = BUF_INIT(1 << 20), raw = BUF_INIT(1 << 20);
	struct token_list l = {0};
	const struct json *want, *m;
	int at = 0;

	if (!t)
		goto out;
	want = json_first(json_get(golden, "cases"));
	for (m = json_first(json_get(cases, "cases")); m; m = json_next(m), want = json_next(want), at++) {
		put_text(&text, m);
		encode(t, &text, files[_i].exact, &l);
		expect(&l, want, "case", at);
	}
	ck_assert_int_gt(at, 100);
	ck_assert_ptr_null(want);
	want = json_first(json_get(golden, "broken"));
	for (m = json_first(json_get(cases, "broken")), at = 0; m; m = json_next(m), want = json_next(want), at++) {
		buf_clear(&raw);
		buf_clear(&text);
		put_hex(&raw, json_string(m));
		utf8_clean(&text, raw.data, raw.len, false);
		encode(t, &text, files[_i].exact, &l);
		expect(&l, want, "broken", at);
	}
	ck_assert_ptr_null(want);
out:
	token_list_release(&l);
	buf_release(&raw);
	buf_release(&text);
	json_free(golden);
	json_free(cases);
	tokenizer_free(t);
}
END_TEST

START_TEST(random_mixtures_have_the_ids_of_hugging_face)
{
	struct tokenizer *t = open_file(_i, "tokenizer mixtures");
	struct json *cases = load("cases.json"), *golden = load_ids(_i);
	struct assigned a = load_assigned();
	struct buf text = BUF_INIT(1 << 20), raw = BUF_INIT(1 << 20);
	struct token_list l = {0};
	struct digest d = {0};
	const struct json *want = json_first(json_get(golden, "mixed"));
	uint64_t seed = 7;

	for (uint64_t i = 0; t && i < 20; i++, want = json_next(want)) {
		for (uint64_t k = 0; k < 100; k++) {
			put_mixed(&text, &a, json_get(cases, "parts"), 1000 * i + k);
			encode(t, &text, files[_i].exact, &l);
			digest_add(&d, &l);
		}
		digest_expect(&d, want, "mixtures", (int)i);
	}
	for (size_t i = 0; t && i < 65536; i++)
		buf_putc(&raw, (char)(draw(&seed) % 256));
	buf_clear(&text);
	ck_assert(!t || utf8_clean(&text, raw.data, raw.len, false) > 10000);
	if (t) {
		encode(t, &text, files[_i].exact, &l);
		digest_add(&d, &l);
		digest_expect(&d, json_get(golden, "garbage"), "garbage", 0);
	}
	token_list_release(&l);
	buf_release(&raw);
	buf_release(&text);
	free(a.cps);
	json_free(golden);
	json_free(cases);
	tokenizer_free(t);
}
END_TEST

/* Wherever a beginning of the text lets it be cut, the tokens of the two parts are those of the whole. */
static size_t check_cuts(const struct tokenizer *t, const struct buf *text)
{
	struct token_list whole = {0}, parts = {0};
	size_t n_cuts = 0, last = 0;

	ck_ok(tokenizer_encode(t, buf_str(text), text->len, false, &whole, &e), &e);
	for (size_t len = 1; len <= text->len; len++) {
		size_t p = tokenizer_cut(t, buf_str(text), len);

		ck_assert_uint_lt(p, len);
		if (!p || p == last)
			continue;
		parts.n = 0;
		ck_ok(tokenizer_encode(t, buf_str(text), p, false, &parts, &e), &e);
		ck_ok(tokenizer_encode(t, buf_str(text) + p, text->len - p, false, &parts, &e), &e);
		ck_assert_uint_eq(parts.n, whole.n);
		ck_assert(!memcmp(parts.ids, whole.ids, whole.n * sizeof *whole.ids));
		last = p;
		n_cuts++;
	}
	token_list_release(&whole);
	token_list_release(&parts);
	return n_cuts;
}

START_TEST(a_text_may_be_encoded_in_two_parts_at_a_cut)
{
	struct tokenizer *t = open_file(_i, "tokenizer cuts");
	struct json *cases = load("cases.json");
	struct assigned a = load_assigned();
	struct buf text = BUF_INIT(1 << 20), mixed = BUF_INIT(1 << 20);
	size_t n_cuts = 0;

	for (uint64_t i = 0; t && i < 300; i++) {
		/* a space after every third piece, so that there are many to cut at */
		buf_clear(&text);
		for (uint64_t k = 0; k < 6; k++) {
			put_mixed(&mixed, &a, json_get(cases, "parts"), 10 * i + k);
			buf_append(&text, buf_str(&mixed), mixed.len);
			buf_puts(&text, k % 2 ? "x y" : "' s <|endoftext|> a  b");
		}
		n_cuts += check_cuts(t, &text);
	}
	ck_assert(!t || n_cuts > 2000);
	buf_release(&mixed);
	buf_release(&text);
	free(a.cps);
	json_free(cases);
	tokenizer_free(t);
}
END_TEST

START_TEST(every_character_of_unicode_14_has_the_ids_of_hugging_face)
{
	struct tokenizer *t = open_file(_i, "tokenizer characters");
	struct json *cases = load("cases.json"), *golden = load_ids(_i);
	struct assigned a = load_assigned();
	struct buf text = BUF_INIT(1 << 20);
	struct token_list l = {0};
	struct digest d = {0};
	const struct json *lists = json_first(json_get(golden, "everything"));
	const struct json *sep = json_first(json_get(cases, "separators"));

	for (; t && sep; sep = json_next(sep), lists = json_next(lists)) {
		const struct json *want = json_first(lists);

		for (size_t i = 0; i < a.n; i += 4096, want = json_next(want)) {
			buf_clear(&text);
			for (size_t k = i; k < a.n && k < i + 4096; k++) {
				utf8_put(&text, a.cps[k]);
				buf_puts(&text, json_string(sep));
			}
			encode(t, &text, files[_i].exact, &l);
			digest_add(&d, &l);
			digest_expect(&d, want, json_string(sep), (int)(i / 4096));
		}
	}
	token_list_release(&l);
	buf_release(&text);
	free(a.cps);
	json_free(golden);
	json_free(cases);
	tokenizer_free(t);
}
END_TEST

static void put_repeated(struct buf *out, const char *s, size_t n)
{
	buf_clear(out);
	while (n--)
		buf_puts(out, s);
}

/* With a merge loop that is quadratic these take hours. */
START_TEST(words_of_a_megabyte_have_the_ids_of_hugging_face)
{
	static const struct {
		const char *s;
		size_t n;
	} words[] = {{"a", 1000000}, {" ", 1000000}, {"ab1", 300000}, {"\xC3\xA9", 300000}};
	struct tokenizer *t = open_file(_i, "tokenizer long words");
	struct json *golden = load_ids(_i);
	struct buf text = BUF_INIT(1 << 21);
	struct token_list l = {0};
	struct digest d = {0};

	for (size_t i = 0; t && i < sizeof words / sizeof *words; i++) {
		put_repeated(&text, words[i].s, words[i].n);
		encode(t, &text, files[_i].exact, &l);
		digest_add(&d, &l);
	}
	if (t)
		digest_expect(&d, json_get(golden, "long"), "long words", 0);
	token_list_release(&l);
	buf_release(&text);
	json_free(golden);
	tokenizer_free(t);
}
END_TEST

static int is_visible(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

/* The PG-19 test books by name until `bytes` are read: generate.py, book(). */
static void put_book(struct buf *out, const char *folder, int64_t bytes)
{
	struct buf raw = BUF_INIT(1 << 26);
	struct dirent **names;
	char path[4096 + 300];
	int n = scandir(folder, &names, is_visible, alphasort);

	ck_assert_int_gt(n, 0);
	for (int i = 0; i < n; i++) {
		if ((int64_t)raw.len < bytes) {
			snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
			ck_ok(buf_read_file(&raw, path, &e), &e);
		}
		free(names[i]);
	}
	free(names);
	buf_clear(out);
	utf8_clean(out, raw.data, raw.len, true);
	buf_release(&raw);
}

START_TEST(books_and_documents_have_the_ids_of_hugging_face)
{
	struct tokenizer *t = open_file(_i, "tokenizer books");
	struct json *cases = load("cases.json"), *golden = load_ids(_i);
	struct buf text = BUF_INIT(1 << 26), raw = BUF_INIT(1 << 26);
	struct token_list l = {0};
	struct digest d = {0};
	const struct json *want = json_first(json_get(golden, "documents"));
	const char *folder = fixture_data("pg19/test");
	int64_t bytes;

	if (!folder) {
		fixture_skip("tokenizer books", "pg19/test");
		goto out;
	}
	if (!t)
		goto out;
	ck_assert(json_get_integer(cases, "book_bytes", &bytes));
	put_book(&text, folder, bytes);
	encode(t, &text, files[_i].exact, &l);
	digest_add(&d, &l);
	digest_expect(&d, json_get(golden, "book"), "book", 0);
	for (const struct json *m = json_first(json_get(cases, "documents")); m; m = json_next(m)) {
		buf_clear(&raw);
		buf_clear(&text);
		ck_ok(buf_read_file(&raw, fixture_data(json_string(m)), &e), &e);
		utf8_clean(&text, raw.data, raw.len, true);
		encode(t, &text, files[_i].exact, &l);
		digest_add(&d, &l);
		digest_expect(&d, want, json_string(m), 0);
		want = json_next(want);
	}
out:
	token_list_release(&l);
	buf_release(&raw);
	buf_release(&text);
	json_free(golden);
	json_free(cases);
	tokenizer_free(t);
}
END_TEST

/* -- variants of small.json ------------------------------------------------------------------------ */

/* Replaces the one occurrence of `old`. */
static void replace(struct buf *text, const char *old, const char *new)
{
	struct buf out = BUF_INIT(text->max);
	const char *at = strstr(text->data, old);

	ck_assert_msg(at != NULL, "'%s' is not in small.json", old);
	buf_append(&out, text->data, (size_t)(at - text->data));
	buf_puts(&out, new);
	buf_puts(&out, at + strlen(old));
	buf_release(text);
	*text = out;
}

static void read_small(struct buf *text)
{
	*text = BUF_INIT(1 << 22);
	ck_ok(buf_read_file(text, GOLDEN "small.json", &e), &e);
}

static err_code open_text(const struct buf *text, struct tokenizer **t)
{
	const char *dir = fixture_tmpdir();
	char path[4200];

	fixture_write(dir, "tokenizer.json", buf_str(text), text->len);
	snprintf(path, sizeof path, "%s/tokenizer.json", dir);
	return tokenizer_open(path, t, &e);
}

START_TEST(a_tokenizer_that_does_not_split_at_spaces_has_no_cut)
{
	static const char *const changes[][2] = {
	    {"\"use_regex\":true}", "\"use_regex\":false}"},
	    {"\"add_prefix_space\":false", "\"add_prefix_space\":true"},
	    {"\"lstrip\":false", "\"lstrip\":true"},
	    {"\"content\":\"<|endoftext|>\",\"single", "\"content\":\"a b\",\"single"},
	};
	struct tokenizer *t = NULL;
	struct buf text;

	read_small(&text);
	ck_ok(open_text(&text, &t), &e);
	ck_assert_uint_eq(tokenizer_cut(t, "to be or", 8), 5);
	ck_assert_uint_eq(tokenizer_cut(t, "to be or", 7), 5);
	ck_assert_uint_eq(tokenizer_cut(t, "to be or", 6), 2); /* what begins at the last space is not known */
	ck_assert_uint_eq(tokenizer_cut(t, "to  be\n or", 10), 0);
	ck_assert_uint_eq(tokenizer_cut(t, " to", 3), 0);
	ck_assert_uint_eq(tokenizer_cut(t, "", 0), 0);
	tokenizer_free(t);
	buf_release(&text);
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
		read_small(&text);
		replace(&text, changes[i][0], changes[i][1]);
		if (i == 3)
			replace(&text, "{\"<|endoftext|>\":0", "{\"a b\":0");
		ck_ok(open_text(&text, &t), &e);
		ck_assert_uint_eq(tokenizer_cut(t, "to be or", 8), 0);
		tokenizer_free(t);
		buf_release(&text);
	}
}
END_TEST

#define N_VARIANTS 20

START_TEST(other_settings_have_the_ids_of_hugging_face)
{
	struct json *golden = load("variants.json");
	const struct json *v = json_first(golden);
	const char *name;
	struct tokenizer *t = NULL;
	struct token_list l = {0};
	struct buf text;
	int at = 0;

	ck_assert_uint_eq(json_count(golden), N_VARIANTS);
	for (int i = 0; i < _i; i++)
		v = json_next(v);
	name = json_get_string(v, "name");
	read_small(&text);
	for (const struct json *c = json_first(json_get(v, "changes")); c; c = json_next(c))
		replace(&text, json_string(json_first(c)), json_string(json_next(json_first(c))));
	ck_ok(open_text(&text, &t), &e);
	for (const struct json *c = json_first(json_get(v, "cases")); c; c = json_next(c), at++) {
		const struct json *s = json_first(c), *ids = json_next(s), *special = json_next(ids);
		size_t len = strlen(json_string(s));

		l.n = 0;
		ck_ok(tokenizer_encode(t, json_string(s), len, false, &l, &e), &e);
		expect(&l, ids, name, at);
		check_ends(t, &l, json_string(s), len, false);
		l.n = 0;
		ck_ok(tokenizer_encode(t, json_string(s), len, true, &l, &e), &e);
		expect(&l, special, name, at);
		check_ends(t, &l, json_string(s), len, false);
	}
	ck_assert_int_gt(at, 0);
	ck_assert(tokenizer_adds_bos(t) == !strcmp(name, "template"));
	token_list_release(&l);
	tokenizer_free(t);
	buf_release(&text);
	json_free(golden);
}
END_TEST

#define N_GAPS 8

/* Where a byte has no token, the ends still are those of the text: the text up to the last end has as many bytes as
 * tokens stand for, and dropped ones between. */
START_TEST(bytes_without_a_token_are_dropped_or_unknown_as_in_hugging_face)
{
	struct json *golden = load("gaps.json");
	const struct json *g = json_first(golden);
	struct buf text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&text);
	struct tokenizer *t = NULL;
	struct token_list l = {0};
	int at = 0;

	ck_assert_uint_eq(json_count(golden), N_GAPS);
	for (int i = 0; i < _i; i++)
		g = json_next(g);
	json_put_value(&w, NULL, json_get(g, "tokenizer"));
	ck_ok(open_text(&text, &t), &e);
	for (const struct json *c = json_first(json_get(g, "cases")); c; c = json_next(c), at++) {
		const char *s = json_string(json_first(c));
		size_t len = strlen(s), covered = 0, before = 0;

		l.n = l.n_dropped = 0;
		ck_ok(tokenizer_encode(t, s, len, false, &l, &e), &e);
		expect(&l, json_next(json_first(c)), json_get_string(g, "name"), at);
		for (size_t i = 0; i < l.n; before = l.ends[i++]) {
			size_t n;
			const char *bytes = tokenizer_token_bytes(t, l.ids[i], &n);

			ck_assert(l.ends[i] > before && l.ends[i] <= len);
			if (!memcmp(s + l.ends[i] - 1, bytes + n - 1, 1)) /* not an unknown token */
				covered += n;
		}
		if (!json_get_string(json_get(json_get(g, "tokenizer"), "model"), "unk_token"))
			ck_assert_uint_eq(covered + l.n_dropped, len);
		else
			ck_assert_uint_eq(l.n_dropped, 0);
		if (l.n && !l.n_dropped)
			ck_assert_uint_eq(l.ends[l.n - 1], len);
	}
	ck_assert_int_gt(at, 0);
	token_list_release(&l);
	tokenizer_free(t);
	buf_release(&text);
	json_free(golden);
}
END_TEST

START_TEST(ends_are_those_of_the_text_where_bytes_were_dropped)
{
	struct json *golden = load("gaps.json");
	struct buf text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&text);
	struct tokenizer *t = NULL;
	struct token_list l = {0};
	static const char s[] = "zaxxbc the\n12x";
	static const size_t ends[] = {6, 10, 13}; /* abc, Ġthe, 12; z, xx, the newline and x left nothing */

	json_put_value(&w, NULL, json_get(json_first(golden), "tokenizer"));
	ck_ok(open_text(&text, &t), &e);
	for (int twice = 0; twice < 2; twice++) /* words are not taken from the cache with the wrong ends */
		ck_ok(tokenizer_encode(t, s, sizeof s - 1, false, &l, &e), &e);
	ck_assert_uint_eq(l.n, 6);
	ck_assert_uint_eq(l.n_dropped, 10);
	for (size_t i = 0; i < 6; i++)
		ck_assert_uint_eq(l.ends[i], ends[i % 3]);
	token_list_release(&l);
	tokenizer_free(t);
	buf_release(&text);
	json_free(golden);
}
END_TEST

/* Copies an object, its merges as "left right" where they are pairs. */
static void write_legacy(struct json_writer *w, const char *key, const struct json *j)
{
	char both[400];

	json_begin_object(w, key);
	for (const struct json *m = json_first(j); m; m = json_next(m)) {
		if (!strcmp(json_key(m), "model")) {
			write_legacy(w, "model", m);
		} else if (strcmp(json_key(m), "merges") != 0) {
			json_put_value(w, json_key(m), m);
		} else {
			json_begin_array(w, "merges");
			json_put_string(w, NULL, "#version: 0.2");
			for (const struct json *p = json_first(m); p; p = json_next(p)) {
				snprintf(both, sizeof both, "%s %s", json_string(json_first(p)),
				         json_string(json_next(json_first(p))));
				json_put_string(w, NULL, both);
			}
			json_end_array(w);
		}
	}
	json_end_object(w);
}

START_TEST(merges_may_be_strings_or_pairs)
{
	struct json *small = load("small.json"), *golden = load_ids(0), *cases = load("cases.json");
	struct buf file = BUF_INIT(1 << 20), text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&file);
	struct tokenizer *t = NULL;
	struct token_list l = {0};
	const struct json *want = json_first(json_get(golden, "cases"));

	ck_assert(json_is_array(json_first(json_get(json_get(small, "model"), "merges"))));
	write_legacy(&w, NULL, small);
	ck_ok(open_text(&file, &t), &e);
	for (const struct json *m = json_first(json_get(cases, "cases")); m; m = json_next(m), want = json_next(want)) {
		put_text(&text, m);
		encode(t, &text, true, &l);
		expect(&l, want, "case with merges as strings", 0);
	}
	token_list_release(&l);
	tokenizer_free(t);
	buf_release(&text);
	buf_release(&file);
	json_free(cases);
	json_free(golden);
	json_free(small);
}
END_TEST

/* -- the interface ------------------------------------------------------------------------------- */

START_TEST(ends_under_nfc_count_bytes_of_the_text)
{
	/* caf + e + U+0301, as one character after NFC; K + e + U+0323 + U+0301 */
	static const char text[] = "cafe\xCC\x81 \xE2\x84\xAA"
	                           "e\xCC\x81\xCC\xA3 x";
	struct tokenizer *t = NULL;
	struct token_list l = {0};
	struct buf file;
	bool boundary[sizeof text] = {false};

	read_small(&file);
	replace(&file, "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}");
	ck_ok(open_text(&file, &t), &e);
	ck_ok(tokenizer_encode(t, text, sizeof text - 1, false, &l, &e), &e);
	for (size_t i = 0; i < l.n; i++)
		boundary[l.ends[i]] = true;
	/* c a f | e+301 in one: the changed run begins at the e and is never cut inside */
	ck_assert(boundary[3] && boundary[6] && !boundary[4] && !boundary[5]);
	/* U+212A becomes K, alone */
	ck_assert(boundary[7] && boundary[10] && !boundary[8] && !boundary[9]);
	ck_assert(boundary[15] && !boundary[11] && !boundary[13]);
	ck_assert_uint_eq(l.ends[l.n - 1], sizeof text - 1);
	token_list_release(&l);
	tokenizer_free(t);
	buf_release(&file);
}
END_TEST

START_TEST(encode_appends_and_leaves_the_list_alone_on_failure)
{
	struct tokenizer *t = open_file(0, "");
	struct token_list l = {0};
	size_t n;

	ck_ok(tokenizer_encode(t, "the", 3, false, &l, &e), &e);
	n = l.n;
	ck_assert_uint_gt(n, 0);
	ck_ok(tokenizer_encode(t, "the", 3, false, &l, &e), &e);
	ck_assert_uint_eq(l.n, 2 * n);
	ck_assert(!memcmp(l.ids, l.ids + n, n * sizeof *l.ids));
	ck_assert_uint_eq(l.ends[2 * n - 1], 3);
	ck_err(tokenizer_encode(t, "the \xC3(", 6, false, &l, &e), ERR_INPUT, "invalid UTF-8 at byte 4", &e);
	ck_assert_uint_eq(l.n, 2 * n);
	ck_ok(tokenizer_encode(t, "", 0, true, &l, &e), &e);
	ck_assert_uint_eq(l.n, 2 * n);
	token_list_release(&l);
	tokenizer_free(t);
}
END_TEST

START_TEST(tokens_are_found_by_id_and_by_content)
{
	struct tokenizer *t = NULL;
	struct buf file;
	const char *bytes;
	size_t len;

	read_small(&file);
	replace(&file, "\"vocab\":{", "\"vocab\":{\"\xC4\xA0wholly\":1000,\"\xE6\xBC\xA2\":1001,");
	replace(&file, "\"added_tokens\":[",
	        "\"added_tokens\":[{\"id\":770,\"content\":\"\xC4\xA0\xC4\xA0\",\"normalized\":false},");
	ck_ok(open_text(&file, &t), &e);
	ck_assert_uint_eq(tokenizer_n_vocab(t), 1002);
	ck_assert_int_eq(tokenizer_token_id(t, "<|endoftext|>"), 0);
	ck_assert_int_eq(tokenizer_token_id(t, "\xC4\xA0wholly"), 1000);
	ck_assert_int_eq(tokenizer_token_id(t, "\xE6\xBC\xA2"), 1001); /* not in the byte alphabet: as it stands */
	ck_assert_int_eq(tokenizer_token_id(t, " wholly"), -1);
	ck_assert_int_eq(tokenizer_token_id(t, "nothing of the kind"), -1);
	bytes = tokenizer_token_bytes(t, 1000, &len);
	ck_assert(len == 7 && !memcmp(bytes, " wholly", 7));
	bytes = tokenizer_token_bytes(t, 1001, &len);
	ck_assert(len == 3 && !memcmp(bytes, "\xE6\xBC\xA2", 3));
	bytes = tokenizer_token_bytes(t, 770, &len); /* an added token's content is no spelling of bytes */
	ck_assert(len == 4 && !memcmp(bytes, "\xC4\xA0\xC4\xA0", 4));
	ck_assert_ptr_null(tokenizer_token_bytes(t, 900, &len)); /* a hole */
	ck_assert_ptr_null(tokenizer_token_bytes(t, 1002, &len));
	ck_assert_ptr_null(tokenizer_token_bytes(t, UINT32_MAX, &len));
	ck_assert(!tokenizer_adds_bos(t));
	tokenizer_free(t);
	buf_release(&file);
}
END_TEST

struct job {
	const struct tokenizer *t;
	const struct buf *text;
	const struct token_list *want;
	bool same;
};

static void *encode_in_thread(void *arg)
{
	struct job *job = arg;
	struct token_list l = {0};
	struct err mine = {0};

	job->same = true;
	for (int i = 0; i < 5; i++) {
		l.n = 0;
		job->same = job->same && !tokenizer_encode(job->t, job->text->data, job->text->len, false, &l, &mine) &&
		            l.n == job->want->n && !memcmp(l.ids, job->want->ids, l.n * sizeof *l.ids);
	}
	token_list_release(&l);
	return NULL;
}

START_TEST(threads_share_a_tokenizer)
{
	struct tokenizer *t = open_file(0, "");
	struct assigned a = load_assigned();
	struct json *cases = load("cases.json");
	struct buf text = BUF_INIT(1 << 20), piece = BUF_INIT(1 << 20);
	struct token_list want = {0};
	struct job jobs[4];
	pthread_t threads[4];

	for (uint64_t i = 0; i < 500; i++) {
		put_mixed(&piece, &a, json_get(cases, "parts"), i);
		buf_append(&text, piece.data, piece.len);
	}
	encode(t, &text, true, &want);
	for (int i = 0; i < 4; i++) {
		jobs[i] = (struct job){t, &text, &want, false};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_in_thread, &jobs[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		ck_assert(jobs[i].same);
	}
	token_list_release(&want);
	buf_release(&piece);
	buf_release(&text);
	json_free(cases);
	free(a.cps);
	tokenizer_free(t);
}
END_TEST

Suite *tokenizer_suite(void);
Suite *tokenizer_suite(void)
{
	Suite *s = suite_create("tokenizer");
	TCase *golden = tcase_create("golden"), *calls = tcase_create("interface");

	tcase_set_timeout(golden, 120);
	tcase_add_loop_test(golden, cases_have_the_ids_of_hugging_face, 0, N_FILES);
	tcase_add_loop_test(golden, random_mixtures_have_the_ids_of_hugging_face, 0, N_FILES);
	tcase_add_loop_test(golden, a_text_may_be_encoded_in_two_parts_at_a_cut, 0, N_FILES);
	tcase_add_test(golden, a_tokenizer_that_does_not_split_at_spaces_has_no_cut);
	tcase_add_loop_test(golden, every_character_of_unicode_14_has_the_ids_of_hugging_face, 0, N_FILES);
	tcase_add_loop_test(golden, words_of_a_megabyte_have_the_ids_of_hugging_face, 0, N_FILES);
	tcase_add_loop_test(golden, books_and_documents_have_the_ids_of_hugging_face, 0, N_FILES);
	tcase_add_loop_test(golden, other_settings_have_the_ids_of_hugging_face, 0, N_VARIANTS);
	tcase_add_loop_test(golden, bytes_without_a_token_are_dropped_or_unknown_as_in_hugging_face, 0, N_GAPS);
	tcase_add_test(golden, ends_are_those_of_the_text_where_bytes_were_dropped);
	tcase_add_test(golden, merges_may_be_strings_or_pairs);
	suite_add_tcase(s, golden);
	tcase_set_timeout(calls, 60);
	tcase_add_test(calls, ends_under_nfc_count_bytes_of_the_text);
	tcase_add_test(calls, encode_appends_and_leaves_the_list_alone_on_failure);
	tcase_add_test(calls, tokens_are_found_by_id_and_by_content);
	tcase_add_test(calls, threads_share_a_tokenizer);
	suite_add_tcase(s, calls);
	return s;
}
