/* Damaged and unsupported tokenizer.json files: each is refused with a message that names the file, the member and
 * its value, and none makes the program fall. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/buf.h"
#include "engine/tokenizer.h"
#include "tests/fixture.h"

#define SMALL "tests/golden/tokenizer/small.json"
#define PRE                                                                                                            \
	"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":"    \
	"true}"
#define ADDED  "\"added_tokens\":["
#define MERGES "\"merges\":["
#define POST   "\"post_processor\":null"
#define SINGLE "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"

static struct err e;
static const char *dir;

static const char *path_of(const char *name)
{
	static char path[4200];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void read_small(struct buf *text)
{
	*text = BUF_INIT(1 << 22);
	ck_ok(buf_read_file(text, SMALL, &e), &e);
}

static err_code open_text(const void *text, size_t len, struct tokenizer **t)
{
	if (!dir)
		dir = fixture_tmpdir();
	fixture_write(dir, "t.json", text, len);
	return tokenizer_open(path_of("t.json"), t, &e);
}

/* In small.json `old` is replaced by `new`; the message then holds `words`. */
static const struct {
	const char *old, *new, *words;
} damages[] = {
    {"\"version\":\"1.0\"", "\"version\":\"2.0\"", "version '2.0' is not supported"},
    {"\"version\":\"1.0\"", "\"version\":1", "version 'number'"},
    {"\"model\":{", "\"modell\":{", "model is absent, not an object"},
    {"\"model\":{", "\"model\":[],\"m\":{", "model is array"},
    {"\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "model.type 'WordPiece' is not supported"},
    {"\"dropout\":null", "\"dropout\":0.1", "model.dropout is not supported"},
    {"\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
     "model.continuing_subword_prefix '##'"},
    {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "model.end_of_word_suffix '</w>'"},
    {"\"vocab\":{", "\"vocabulary\":{", "model.vocab is absent"},
    {"\"vocab\":{", "\"vocab\":{},\"v\":{", "model.vocab is empty"},
    {"\"vocab\":{", "\"vocab\":[],\"v\":{", "model.vocab is array"},
    {"\"vocab\":{", "\"vocab\":{\"zz\":5,", "model.vocab: id 5 is given twice"},
    {"\"vocab\":{", "\"vocab\":{\"zz\":-1,", "model.vocab: the id of 'zz' is not an integer"},
    {"\"vocab\":{", "\"vocab\":{\"zz\":1.5,", "model.vocab: the id of 'zz' is not an integer"},
    {"\"vocab\":{", "\"vocab\":{\"zz\":\"1\",", "model.vocab: the id of 'zz' is not an integer"},
    {"\"vocab\":{", "\"vocab\":{\"zz\":4294967296,", "model.vocab: the id of 'zz' is not an integer from 0 to 4194303"},
    {"\"vocab\":{", "\"vocab\":{\"zz\":5000000,", "model.vocab: the id of 'zz'"},
    {"\"vocab\":{", "\"vocab\":{\"a\":2000,", "duplicate key 'a'"},
    {"\"a\":", "\"aaaaaaa\":", "'a' is not in model.vocab"},
    {MERGES, "\"mergers\":[", "model.merges is absent, not an array"},
    {MERGES, "\"merges\":{},\"m\":[", "model.merges is object"},
    {MERGES, MERGES "[\"a\",\"qqqqq\"],", "model.merges[0]: 'qqqqq' is not in model.vocab"},
    {MERGES, MERGES "[\"qqqqq\",\"a\"],", "model.merges[0]: 'qqqqq' is not in model.vocab"},
    {MERGES, MERGES "[\"q\",\"z\"],", "model.merges[0]: 'qz' is not in model.vocab"},
    {MERGES, MERGES "\"q z\",", "model.merges[0]: 'qz' is not in model.vocab"},
    {MERGES, MERGES "\"qz\",", "model.merges[0]: 'qz' is not two tokens"},
    {MERGES, MERGES "\"a b c\",", "model.merges[0]: 'a b c' is not two tokens"},
    {MERGES, MERGES "[\"a\"],", "model.merges[0] is neither"},
    {MERGES, MERGES "[\"a\",\"b\",\"c\"],", "model.merges[0] is neither"},
    {MERGES, MERGES "[1,2],", "model.merges[0] is neither"},
    {MERGES, MERGES "null,", "model.merges[0] is neither"},
    {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}", "normalizer.type 'Lowercase' is not supported"},
    {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"}]}", "'NFKC'"},
    {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Sequence\"}", "normalizer.normalizers is absent"},
    {"\"normalizer\":null", "\"normalizer\":7", "normalizer has no type"},
    {PRE, "\"pre_tokenizer\":null", "pre_tokenizer is null"},
    {PRE, "\"p\":null", "pre_tokenizer is absent"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Metaspace\"}", "pre_tokenizer.type 'Metaspace' is not supported"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":1}", "'use_regex' is number"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[]}", "no ByteLevel"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":{}}", "pre_tokenizer.pretokenizers is object"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":true}", "no ByteLevel"},
    {PRE,
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
     "{\"type\":\"Digits\"}]}",
     "'Digits' after ByteLevel"},
    {PRE,
     "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"ByteLevel\"}]}",
     "add_prefix_space after other steps"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Isolated\"}", "Split"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Removed\"}", "Split"},
    {PRE, "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(x\"},\"behavior\":\"Isolated\"}",
     "pre_tokenizer: pattern '(x'"},
    {POST, "\"post_processor\":{\"type\":\"BertProcessing\"}", "post_processor.type 'BertProcessing'"},
    {POST, SINGLE "{}}", "array 'single'"},
    {POST, SINGLE "[]}", "no Sequence A"},
    {POST, SINGLE "[{\"Sequence\":{\"id\":\"B\"}}]}", "a part that is not supported"},
    {POST, SINGLE "[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}]}",
     "no ids for the special token 'x'"},
    {POST,
     SINGLE
     "[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[9999]}}}",
     "id 9999 is not in the vocabulary of 768"},
    {POST,
     SINGLE
     "[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[-1]}}}",
     "an id of 'x' is not an integer"},
    {ADDED, "\"added_tokens\":{},\"a\":[", "added_tokens is object"},
    {ADDED, ADDED "7,", "added_tokens: an entry without a string 'content'"},
    {ADDED, ADDED "{\"id\":768},", "added_tokens: an entry without a string 'content'"},
    {ADDED, ADDED "{\"id\":900,\"content\":\"<m>\"},", "'<m>' has id 900, but after this vocabulary it is 768"},
    {ADDED, ADDED "{\"id\":3,\"content\":\"<m>\"},", "'<m>' has id 3"},
    {ADDED, ADDED "{\"content\":\"<m>\"},", "'id' of '<m>' is not an integer"},
    {ADDED, ADDED "{\"id\":768,\"content\":\"<m>\",\"lstrip\":\"no\"},", "'lstrip' of '<m>' is string"},
    {ADDED, ADDED "{\"id\":0,\"content\":\"<|endoftext|>\"},", "'<|endoftext|>' is there twice"},
    {ADDED, ADDED "{\"id\":768,\"content\":\"<m>\",\"rstrip\":true},{\"id\":769,\"content\":\"  \"},",
     "begins with white space"},
};

START_TEST(a_damaged_file_is_refused_by_name)
{
	struct buf text, out = BUF_INIT(1 << 22);
	struct tokenizer *t = NULL;
	const char *at;

	read_small(&text);
	at = strstr(text.data, damages[_i].old);
	ck_assert_msg(at != NULL, "'%s' is not in small.json", damages[_i].old);
	buf_append(&out, text.data, (size_t)(at - text.data));
	buf_puts(&out, damages[_i].new);
	buf_puts(&out, at + strlen(damages[_i].old));
	ck_err(open_text(out.data, out.len, &t), ERR_INPUT, damages[_i].words, &e);
	ck_assert_ptr_nonnull(strstr(e.msg, "t.json"));
	ck_assert_ptr_null(t);
	buf_release(&out);
	buf_release(&text);
}
END_TEST

#define LETTERS "{\"version\":\"1.0\"," PRE ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]"

/* Where a byte has no token, what is to become of it must be known. */
START_TEST(what_becomes_of_a_byte_without_a_token_must_be_clear)
{
	static const struct {
		const char *text, *words; /* words NULL: it opens */
	} cases[] = {
	    {LETTERS "}}", NULL},
	    {LETTERS ",\"unk_token\":null,\"byte_fallback\":false}}", NULL},
	    {LETTERS ",\"unk_token\":\"b\",\"fuse_unk\":true}}", NULL},
	    {LETTERS ",\"unk_token\":\"<unk>\"}}",
	     "model.unk_token '<unk>' is not in model.vocab, and the byte 0x00 has no token"},
	    {LETTERS ",\"unk_token\":7}}", "model.unk_token 'number' is not in model.vocab"},
	    {LETTERS ",\"byte_fallback\":true}}",
	     "model.byte_fallback is not supported where a byte has no token (0x00"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tokenizer *t = NULL;
		err_code rc = open_text(cases[i].text, strlen(cases[i].text), &t);

		ck_assert_msg(!rc == !cases[i].words, "%s: %s", cases[i].text, rc ? e.msg : "opened");
		ck_assert_msg(!rc || strstr(e.msg, cases[i].words), "'%s' not in: %s", cases[i].words, e.msg);
		tokenizer_free(t);
	}
}
END_TEST

START_TEST(what_is_no_tokenizer_is_refused)
{
	static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
	struct tokenizer *t = NULL;
	FILE *f;

	ck_err(open_text("", 0, &t), ERR_INPUT, "JSON", &e);
	ck_err(open_text("{}", 2, &t), ERR_INPUT, "model is absent", &e);
	ck_err(open_text("[]", 2, &t), ERR_INPUT, "the file is array, not an object", &e);
	ck_err(open_text("{\"model\":", 9, &t), ERR_INPUT, "malformed", &e);
	ck_err(open_text("\x1F\x8B\x08", 3, &t), ERR_INPUT, "invalid UTF-8", &e);
	ck_err(open_text(lfs, sizeof lfs - 1, &t), ERR_INPUT, "Git LFS pointer", &e);
	ck_err(tokenizer_open(path_of("absent.json"), &t, &e), ERR_NOT_FOUND, "absent.json", &e);
	ck_err(tokenizer_open(dir, &t, &e), ERR_IO, dir, &e);
	f = fopen(path_of("huge.json"), "w"); /* sparse */
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(ftruncate(fileno(f), (off_t)200 << 20), 0);
	fclose(f);
	ck_err(tokenizer_open(path_of("huge.json"), &t, &e), ERR_INPUT, "larger than", &e);
	ck_assert_ptr_null(t);
	tokenizer_free(NULL);
}
END_TEST

/* -- mutations ----------------------------------------------------------------------------------- */

static uint32_t draw(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return (uint32_t)((z ^ z >> 31) >> 33);
}

/* Changes up to four places: another byte, a stretch lost, a stretch moved, a word of the format. */
static void mutate(struct buf *text, uint64_t *seed)
{
	static const char *const words[] = {"null", "\"\"", "[]",   "{}",           "0", "-1",
	                                    "768",  "1e9",  "true", "\"\xC4\xA0\"", ",", "\\"};

	for (uint32_t n = draw(seed) % 4 + 1; n--;) {
		struct buf out = BUF_INIT(text->max);
		size_t at = draw(seed) % text->len, len = draw(seed) % 30, from = draw(seed) % text->len;
		uint32_t kind = draw(seed) % 4;

		/* the head of the file, where the settings are, as often as the long lists */
		if (draw(seed) % 2)
			at %= 700;
		if (at + len > text->len)
			len = text->len - at;
		if (from + len > text->len)
			from = text->len - len;
		buf_append(&out, text->data, at);
		if (kind == 0)
			buf_putc(&out, (char)(draw(seed) % 96 + 32));
		else if (kind == 1)
			buf_append(&out, text->data + from, len);
		else if (kind == 2)
			buf_puts(&out, words[draw(seed) % (sizeof words / sizeof *words)]);
		buf_append(&out, text->data + at + len, text->len - at - len);
		buf_release(text);
		*text = out;
	}
}

/* Keeps the JSON valid far more often: a number or a quoted string of the file becomes another of its own. */
static void mutate_values(struct buf *text, uint64_t *seed)
{
	struct buf out = BUF_INIT(text->max);
	size_t at = draw(seed) % (text->len - 40), from = draw(seed) % (text->len - 40), at_len, from_len;

	at += strcspn(text->data + at, ":,");
	from += strcspn(text->data + from, ":,");
	at_len = at < text->len ? 1 + strcspn(text->data + at + 1, ",]}") : 0;
	from_len = from < text->len ? 1 + strcspn(text->data + from + 1, ",]}") : 0;
	buf_append(&out, text->data, at);
	buf_append(&out, text->data + from, from_len);
	buf_append(&out, text->data + at + at_len, text->len - at - at_len);
	buf_release(text);
	*text = out;
}

/* Moves a run of merges to another place: such a file opens. */
static void mutate_merges(struct buf *text, uint64_t *seed)
{
	struct buf out = BUF_INIT(text->max);
	const char *merges = strstr(text->data, MERGES), *from, *to, *target;
	size_t len;

	ck_assert_ptr_nonnull(merges);
	len = strlen(merges) - 200; /* far enough from the end for another merge to follow */
	from = strstr(merges + draw(seed) % (len / 2), "],[") + 2;
	to = strstr(from + draw(seed) % 40, "],[") + 2;
	target = strstr(merges + len / 2 + draw(seed) % (len / 2), "],[") + 2;
	if (target < to)
		target = to;
	buf_append(&out, text->data, (size_t)(from - text->data));
	buf_append(&out, to, (size_t)(target - to));
	buf_append(&out, from, (size_t)(to - from));
	buf_puts(&out, target);
	buf_release(text);
	*text = out;
}

static size_t try_file(const struct buf *text)
{
	static const char sample[] =
	    "The captain  didn't see\n\n 1984 lighthouses<|endoftext|>; caf\xC3\xA9 e\xCC\x81 \xE6\xBC\xA2 <m>";
	struct token_list l = {0};
	struct tokenizer *t = NULL;
	size_t len;

	if (open_text(text->data, text->len, &t)) {
		if (!e.msg[0] || !strstr(e.msg, "t.json"))
			ck_abort_msg("a refusal without the file's name: '%s'", e.msg);
		return 0;
	}
	if (tokenizer_encode(t, sample, sizeof sample - 1, true, &l, &e))
		ck_abort_msg("a file that opens does not encode: %s", e.msg);
	for (size_t i = 0; i < l.n; i++)
		if (!tokenizer_token_bytes(t, l.ids[i], &len) && l.ids[i] >= tokenizer_n_vocab(t))
			ck_abort_msg("id %u of %u", l.ids[i], tokenizer_n_vocab(t));
	token_list_release(&l);
	tokenizer_free(t);
	return 1;
}

START_TEST(a_mutated_file_opens_or_is_refused)
{
	struct buf text;
	uint64_t seed = (uint64_t)_i + 1;
	size_t opened = 0;

	for (int i = 0; i < 150; i++) {
		read_small(&text);
		if (i % 3 == 0)
			mutate(&text, &seed);
		else if (i % 3 == 1)
			mutate_values(&text, &seed);
		else
			mutate_merges(&text, &seed);
		opened += try_file(&text);
		buf_release(&text);
	}
	ck_assert_uint_ge(opened, 50); /* else this tests the JSON reader alone */
}
END_TEST

START_TEST(a_file_cut_short_is_refused)
{
	struct buf text;
	struct tokenizer *t = NULL;

	read_small(&text);
	for (size_t len = 0; len + 2 < text.len; len += 1 + len / 7)
		if (open_text(text.data, len, &t) == ERR_OK)
			ck_abort_msg("%zu bytes open", len);
	buf_release(&text);
}
END_TEST

Suite *tokenizer_files_suite(void);
Suite *tokenizer_files_suite(void)
{
	Suite *s = suite_create("tokenizer_files");
	TCase *t = tcase_create("files");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_damaged_file_is_refused_by_name, 0, (int)(sizeof damages / sizeof *damages));
	tcase_add_test(t, what_becomes_of_a_byte_without_a_token_must_be_clear);
	tcase_add_test(t, what_is_no_tokenizer_is_refused);
	tcase_add_loop_test(t, a_mutated_file_opens_or_is_refused, 0, 4);
	tcase_add_test(t, a_file_cut_short_is_refused);
	suite_add_tcase(s, t);
	return s;
}
