/* A token's score depends on its chain alone, to the bit: not on threads, chunk, what else is in the batch, where its
 * row stands, or whether its prefix is shared. Under each instruction set that oneDNN can be capped to, in f32 and
 * bf16, for random models, and for the 29M models whose numbers are known (parity). */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/buf.h"
#include "engine/engine.h"
#include "engine/utf8.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"

static struct err e;

/* The very bits, as the engine promises: == would take -0 for 0. */
static bool same_bits(const void *a, const void *b, size_t len)
{
	return !memcmp(a, b, len);
}
static const char *const isas[] = {"DEFAULT", "AVX512_CORE", "AVX2", "SSE41"};
#define N_ISAS 4

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* ten times slower: the small models do */
#else
#define SANITIZED false
#endif

/* -- batches that grow ----------------------------------------------------------------------------- */

#define MAX_TOKENS   20000
#define MAX_SEGMENTS 1200

struct pack {
	uint32_t tokens[MAX_TOKENS];
	uint8_t marks[MAX_TOKENS];
	struct segment segments[MAX_SEGMENTS];
	struct token_score out[MAX_TOKENS];
	uint32_t n_tokens, n_segments;
};

static struct pack pack;

/* Adds a segment; returns its index. Every token is scored that can be. */
static int32_t add(int32_t parent, const uint32_t *tokens, uint32_t n)
{
	ck_assert_uint_le(pack.n_tokens + n, MAX_TOKENS);
	ck_assert_uint_lt(pack.n_segments, MAX_SEGMENTS);
	pack.segments[pack.n_segments] = (struct segment){parent, pack.n_tokens, n};
	memcpy(pack.tokens + pack.n_tokens, tokens, n * sizeof *tokens);
	memset(pack.marks + pack.n_tokens, 1, n);
	if (parent < 0)
		pack.marks[pack.n_tokens] = 0;
	pack.n_tokens += n;
	return (int32_t)pack.n_segments++;
}

static void run(struct session *s)
{
	struct batch b = {pack.tokens, pack.marks, pack.n_tokens, pack.segments, pack.n_segments};

	memset(pack.out, 0xff, pack.n_tokens * sizeof *pack.out);
	ck_ok(session_score(s, &b, pack.out, &e), &e);
}

static void clear(void)
{
	pack.n_tokens = pack.n_segments = 0;
}

/* The scores of segment i, from its token `first`, are those of want. */
static void same(int32_t i, uint32_t first, const struct token_score *want, uint32_t n, const char *what)
{
	const struct token_score *got = pack.out + pack.segments[i].start + first;

	for (uint32_t j = 0; j < n; j++)
		ck_assert_msg(same_bits(&got[j], &want[j], sizeof *got),
		              "%s: token %u of %u: %.9g (argmax %u), not %.9g (%u)", what, j, n, got[j].logprob,
		              got[j].argmax, want[j].logprob, want[j].argmax);
}

static uint32_t *some_tokens(uint32_t n, uint32_t n_vocab, uint32_t seed)
{
	uint32_t *t = calloc(n, sizeof *t);

	for (uint32_t i = 0; i < n; i++)
		t[i] = (seed = seed * 1664525u + 1013904223u) / 65536 % n_vocab;
	return t;
}

/* -- the checks ------------------------------------------------------------------------------------ */

struct subject {
	const struct model *model;
	const char *dtype;
	struct session *session; /* two threads, the backend's own chunk */
	uint32_t n;              /* length of the document */
	uint32_t *doc;
	struct token_score *want; /* [n] its scores, alone; [0] is not filled */
};

static struct session *open_session(const struct model *m, const char *dtype, uint32_t threads, uint32_t chunk)
{
	struct session_options o = {.device = "cpu", .dtype = dtype, .n_threads = threads, .chunk_rows = chunk};
	struct session *s = NULL;

	ck_ok(session_open(m, &o, &s, &e), &e);
	return s;
}

static void subject_init(struct subject *t, const struct model *m, const char *dtype, uint32_t n)
{
	*t = (struct subject){.model = m,
	                      .dtype = dtype,
	                      .session = open_session(m, dtype, 2, 0),
	                      .n = n,
	                      .doc = some_tokens(n, m->config.n_vocab, 7),
	                      .want = calloc(n, sizeof *t->want)};
	clear();
	add(-1, t->doc, n);
	run(t->session);
	memcpy(t->want, pack.out, n * sizeof *t->want);
}

static void subject_release(struct subject *t)
{
	session_close(t->session);
	free(t->doc);
	free(t->want);
}

static void check_threads_and_chunks(const struct subject *t, bool all)
{
	static const uint32_t threads[] = {1, 3, 2}, chunks[] = {64, 0, 128, 1000};
	char what[64];

	for (int i = 0; i < (all ? 3 : 2); i++)
		for (int j = 0; j < (all ? 4 : 1); j++) {
			struct session *s = open_session(t->model, t->dtype, threads[i], chunks[j]);

			snprintf(what, sizeof what, "%s, %u threads, chunks of %u", t->dtype, threads[i], chunks[j]);
			clear();
			add(-1, t->doc, t->n);
			run(s);
			same(0, 1, t->want + 1, t->n - 1, what);
			run(s);
			same(0, 1, t->want + 1, t->n - 1, "twice");
			session_close(s);
		}
}

/* Fillers of 1..64 rows put the document's first row at every place of a tile. */
static void check_row_places(const struct subject *t)
{
	uint32_t *filler = some_tokens(66, t->model->config.n_vocab, 11), n = t->n < 150 ? t->n : 150;

	for (uint32_t rows = 1; rows <= 64; rows++) {
		clear();
		add(-1, filler, rows + 1);
		add(-1, t->doc, n);
		add(-1, filler, 5);
		run(t->session);
		same(1, 1, t->want + 1, n - 1, "every row's place");
	}
	free(filler);
}

/* A context and its continuations, shared and repeated, for contexts that end anywhere in a panel or block. */
static void check_shared_prefix(const struct subject *t)
{
	static const uint32_t contexts[] = {1, 2, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 160, 255, 256, 257};
	static const uint32_t lengths[] = {1, 20, 33, 140};
	uint32_t n_vocab = t->model->config.n_vocab, *child[4], *joined = calloc(t->n + 200, sizeof *joined);

	for (uint32_t k = 0; k < 4; k++)
		child[k] = some_tokens(lengths[k], n_vocab, 20 + k);
	for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
		uint32_t c = contexts[i];
		struct token_score want[4][140];
		int32_t context, first = -1;

		for (uint32_t k = 0; k < 4; k++) {
			memcpy(joined, t->doc, c * sizeof *joined);
			memcpy(joined + c, child[k], lengths[k] * sizeof *joined);
			clear();
			add(-1, joined, c + lengths[k]);
			run(t->session);
			same(0, 1, t->want + 1, c - 1, "the context before a continuation");
			memcpy(want[k], pack.out + c, lengths[k] * sizeof **want);
		}
		clear();
		add(-1, joined, 17);
		context = add(-1, t->doc, c);
		for (uint32_t k = 0; k < 4; k++) {
			int32_t at = add(context, child[k], lengths[k]);

			first = k ? first : at;
		}
		run(t->session);
		same(context, 1, t->want + 1, c - 1, "the shared context");
		for (uint32_t k = 0; k < 4; k++)
			same(first + (int32_t)k, 0, want[k], lengths[k], "a shared prefix");
	}
	for (uint32_t k = 0; k < 4; k++)
		free(child[k]);
	free(joined);
}

/* The document as a chain of segments: of one token each, of mixed lengths, and with side branches off every link. */
static void check_chains(const struct subject *t)
{
	static const uint32_t steps[] = {1, 7, 32, 50, 128, 3};
	uint32_t *branch = some_tokens(10, t->model->config.n_vocab, 5);

	for (int mixed = 0; mixed < 2; mixed++) {
		int32_t parent = -1;

		clear();
		for (uint32_t at = 0, i = 0; at < t->n; i++) {
			uint32_t len = mixed ? steps[i % 6] : 1;

			len = len < t->n - at ? len : t->n - at;
			parent = add(parent, t->doc + at, len);
			at += len;
			if (mixed)
				add(parent, branch, 1 + i % 10);
		}
		run(t->session);
		for (uint32_t i = 0, at = 0; i < pack.n_segments; i++) {
			const struct segment *s = &pack.segments[i];

			if (mixed && i % 2)
				continue; /* a branch */
			same((int32_t)i, at == 0, t->want + at + (at == 0), s->len - (at == 0),
			     mixed ? "a chain with branches" : "a chain of single tokens");
			at += s->len;
		}
	}
	free(branch);
}

/* Many of them together, in another order, with only every third token scored. */
static void check_company(const struct subject *t)
{
	static const uint32_t lengths[] = {300, 1, 2, 65, 129, 400, 33, 64, 5, 128};
	uint32_t n_lengths = sizeof lengths / sizeof *lengths;

	for (int pass = 0; pass < 2; pass++) {
		clear();
		for (uint32_t i = 0; i < n_lengths; i++) {
			uint32_t n = lengths[pass ? n_lengths - 1 - i : i];

			add(-1, t->doc, n < t->n ? n : t->n);
		}
		for (uint32_t i = 0; pass && i < pack.n_tokens; i++)
			pack.marks[i] &= i % 3 == 0;
		run(t->session);
		for (uint32_t i = 0; i < pack.n_segments; i++)
			for (uint32_t j = 1; j < pack.segments[i].len; j++)
				if (pack.marks[pack.segments[i].start + j])
					same((int32_t)i, j, t->want + j, 1, "in company");
	}
}

static void check_subject(const struct model *m, const char *dtype, uint32_t n)
{
	struct subject t;

	subject_init(&t, m, dtype, n);
	check_threads_and_chunks(&t, true);
	check_row_places(&t);
	check_shared_prefix(&t);
	check_chains(&t);
	check_company(&t);
	subject_release(&t);
}

static bool has_bf16(void)
{
	struct device_info info;

	ck_ok(device_describe("cpu", &info, &e), &e);
	return info.bf16;
}

static void check_fixture(const struct fixture_model *f, uint32_t n)
{
	struct model *m = fixture_model_make(f);

	check_subject(m, "f32", n);
	if (has_bf16())
		check_subject(m, "bf16", n);
	model_free(m);
}

/* Sums of 2048 and more are where oneDNN would split over threads, and by rows. */
START_TEST(small_models_score_to_the_same_bits)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1); /* before this (forked) process first uses oneDNN */
	check_fixture(&f, 700);
	f.position = "pope";
	f.head_dim = 16;
	f.ffn_dim = 2500;
	f.n_vocab = 1100;
	check_fixture(&f, 400);
}
END_TEST

START_TEST(scores_of_the_29m_models_are_the_same_bits)
{
	static const char *const names[] = {"models/rope-29m", "models/pope-29m"};
	struct model *m = NULL;

	setenv("ONEDNN_MAX_CPU_ISA", _i ? "AVX2" : "DEFAULT", 1);
	for (int i = 0; i < 2; i++) {
		const char *dir = fixture_shared(names[i]);
		struct subject t;

		if (!dir || SANITIZED) {
			fixture_skip("invariance of the 29M models", dir ? "sanitized" : "no shared models");
			return;
		}
		ck_ok(model_open(dir, NULL, &m, &e), &e);
		for (int bf16 = 0; bf16 <= has_bf16(); bf16++) {
			subject_init(&t, m, bf16 ? "bf16" : "f32", 200);
			check_threads_and_chunks(&t, false);
			check_chains(&t);
			check_company(&t);
			subject_release(&t);
		}
		model_free(m);
	}
}
END_TEST

/* -- parity ---------------------------------------------------------------------------------------- */

static struct token_list read_book(const struct tokenizer *t, const char *book)
{
	struct buf raw = BUF_INIT(32 << 20), clean = BUF_INIT(32 << 20);
	struct token_list list = {0};
	char path[64];

	snprintf(path, sizeof path, "pg19/test/%s.txt", book);
	ck_ok(buf_read_file(&raw, fixture_data(path), &e), &e);
	utf8_clean(&clean, raw.data, raw.len, true);
	ck_ok(tokenizer_encode(t, clean.data, clean.len, false, &list, &e), &e);
	buf_release(&raw);
	buf_release(&clean);
	return list;
}

static double number(const struct json *j)
{
	double x = NAN;

	ck_assert(json_number(j, &x));
	return x;
}

static void check_reference(struct session *s, const struct model *m, const struct json *ref, bool f32)
{
	const char *book = json_get_string(ref, "book");
	double want = number(json_get(ref, "nll_sum")), nll = 0;
	uint32_t length = (uint32_t)number(json_get(ref, "L")), i = 1;
	struct token_list list = read_book(m->tokenizer, book);

	ck_assert_uint_gt(list.n, length);
	clear();
	add(-1, list.ids, length + 1);
	run(s);
	for (uint32_t t = 1; t <= length; t++)
		nll -= pack.out[t].logprob;
	ck_assert_msg(fabs(nll / want - 1) <= (f32 ? 1e-5 : 3e-3), "%s, %s, %u: %.6f, not %.6f", m->name, book, length,
	              nll, want);
	for (const struct json *t = json_first(json_get(ref, "first4")); f32 && t; t = json_next(t))
		ck_assert_double_eq_tol(-pack.out[i++].logprob, number(t), 3e-4);
	ck_assert_uint_eq(i, f32 ? 5 : 1);
	if (f32)
		ck_assert_double_eq_tol(-pack.out[length].logprob, number(json_get(ref, "last")), 3e-4);
	token_list_release(&list);
}

/* All of them would take minutes: one book's in f32, its shorter ones in bf16, and the other book's shortest. */
static bool is_chosen(const char *book, double length, double max_length, bool f32)
{
	bool first = !strcmp(book, "15562");

	return length <= max_length && (first ? f32 || length < 5000 : length < 2000);
}

static void check_parity(const char *name, double max_length)
{
	struct buf text = BUF_INIT(16 << 20);
	const char *path = fixture_shared("models/reference.json");
	struct json *root = NULL;
	const struct json *books;
	struct model *m = NULL;
	char dir[64];

	if (!path || !fixture_data("pg19/test") || SANITIZED) {
		fixture_skip("parity", SANITIZED ? "sanitized" : "no shared models or no books");
		return;
	}
	ck_ok(buf_read_file(&text, path, &e), &e);
	ck_ok(json_parse(text.data, text.len, &root, &e), &e);
	snprintf(dir, sizeof dir, "models/%s", name);
	ck_ok(model_open(fixture_shared(dir), NULL, &m, &e), &e);
	books = json_get(json_get(json_get(root, "models"), name), "books");
	ck_assert_uint_gt(json_count(books), 0);
	for (int f32 = 1; f32 >= (has_bf16() ? 0 : 1); f32--) {
		struct session *s = open_session(m, f32 ? "f32" : "bf16", 0, 0);

		for (const struct json *ref = json_first(books); ref; ref = json_next(ref))
			if (is_chosen(json_get_string(ref, "book"), number(json_get(ref, "L")), max_length, f32))
				check_reference(s, m, ref, f32);
		session_close(s);
	}
	model_free(m);
	json_free(root);
	buf_release(&text);
}

static const char *const trained[] = {"rope-29m", "yarn-29m", "pope-29m"};

START_TEST(the_29m_models_agree_with_the_reference)
{
	check_parity(trained[_i], 10240);
}
END_TEST

START_TEST(the_29m_models_agree_with_the_reference_under_avx2)
{
	setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
	check_parity(trained[_i], 1024);
}
END_TEST

Suite *invariance_suite(void);
Suite *invariance_suite(void)
{
	Suite *s = suite_create("invariance");
	TCase *bits = tcase_create("bits"), *parity = tcase_create("parity");

	tcase_set_timeout(bits, 600);
	tcase_add_loop_test(bits, small_models_score_to_the_same_bits, 0, N_ISAS);
	tcase_add_loop_test(bits, scores_of_the_29m_models_are_the_same_bits, 0, 2);
	suite_add_tcase(s, bits);
	tcase_set_timeout(parity, 600);
	tcase_add_loop_test(parity, the_29m_models_agree_with_the_reference, 0, 3);
	tcase_add_loop_test(parity, the_29m_models_agree_with_the_reference_under_avx2, 0, 3);
	suite_add_tcase(s, parity);
	return s;
}
