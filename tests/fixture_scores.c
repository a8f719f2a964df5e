/* See fixture_scores.h. */
#include "tests/fixture_scores.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/utf8.h"
#include "tests/fixture.h"

struct pack packed;
static struct err e;

/* -- one batch ----------------------------------------------------------------------------------- */

void pack_clear(void)
{
	packed.n_tokens = packed.n_segments = 0;
}

int32_t pack_add(int32_t parent, const uint32_t *tokens, uint32_t n)
{
	ck_assert_uint_le(packed.n_tokens + n, PACK_MAX_TOKENS);
	ck_assert_uint_lt(packed.n_segments, PACK_MAX_SEGMENTS);
	packed.segments[packed.n_segments] = (struct segment){parent, packed.n_tokens, n};
	memcpy(packed.tokens + packed.n_tokens, tokens, n * sizeof *tokens);
	memset(packed.marks + packed.n_tokens, 1, n);
	if (parent < 0)
		packed.marks[packed.n_tokens] = 0;
	packed.n_tokens += n;
	return (int32_t)packed.n_segments++;
}

struct batch pack_batch(void)
{
	return (struct batch){packed.tokens, packed.marks, packed.n_tokens, packed.segments, packed.n_segments};
}

void pack_run(struct session *s)
{
	struct batch b = pack_batch();

	memset(packed.out, 0xff, packed.n_tokens * sizeof *packed.out);
	ck_ok(session_score(s, &b, packed.out, &e), &e);
}

void pack_same(int32_t i, uint32_t first, const struct token_score *want, uint32_t n, const char *what)
{
	const struct token_score *got = packed.out + packed.segments[i].start + first;

	for (uint32_t j = 0; j < n; j++)
		ck_assert_msg(same_bits(&got[j], &want[j], sizeof *got),
		              "%s: token %u of %u of segment %d: %.9g (argmax %u), not %.9g (%u)", what, first + j,
		              first + n, i, got[j].logprob, got[j].argmax, want[j].logprob, want[j].argmax);
}

uint32_t *some_tokens(uint32_t n, uint32_t n_vocab, uint32_t seed)
{
	uint32_t *t = calloc(n, sizeof *t);

	ck_assert_ptr_nonnull(t);
	for (uint32_t i = 0; i < n; i++)
		t[i] = (seed = seed * 1664525u + 1013904223u) / 65536 % n_vocab;
	return t;
}

struct session *open_session(const struct model *m, const char *device, const char *dtype, uint32_t threads,
                             uint32_t chunk)
{
	struct session_options o = {.device = device, .dtype = dtype, .n_threads = threads, .chunk_rows = chunk};
	struct session *s = NULL;

	ck_ok(session_open(m, &o, &s, &e), &e);
	return s;
}

/* -- the same bits ------------------------------------------------------------------------------- */

void subject_init(struct subject *t, const struct model *m, const char *device, const char *dtype, uint32_t n)
{
	*t = (struct subject){.model = m,
	                      .device = device,
	                      .dtype = dtype,
	                      .session = open_session(m, device, dtype, 2, 0),
	                      .n = n,
	                      .doc = some_tokens(n, m->config.n_vocab, 7),
	                      .want = calloc(n, sizeof *t->want)};
	pack_clear();
	pack_add(-1, t->doc, n);
	pack_run(t->session);
	memcpy(t->want, packed.out, n * sizeof *t->want);
}

void subject_release(struct subject *t)
{
	session_close(t->session);
	free(t->doc);
	free(t->want);
}

void subject_under(const struct subject *t, uint32_t threads, uint32_t chunk)
{
	struct session *s = open_session(t->model, t->device, t->dtype, threads, chunk);
	char what[64];

	snprintf(what, sizeof what, "%s, %u threads, chunks of %u", t->dtype, threads, chunk);
	pack_clear();
	pack_add(-1, t->doc, t->n);
	pack_run(s);
	pack_same(0, 1, t->want + 1, t->n - 1, what);
	pack_run(s);
	pack_same(0, 1, t->want + 1, t->n - 1, "twice");
	session_close(s);
}

void subject_at_every_row(const struct subject *t, uint32_t rows)
{
	uint32_t *filler = some_tokens(rows + 1, t->model->config.n_vocab, 11), n = t->n < 150 ? t->n : 150;

	for (uint32_t i = 1; i <= rows; i++) {
		pack_clear();
		pack_add(-1, filler, i + 1);
		pack_add(-1, t->doc, n);
		pack_add(-1, filler, 2 + i % 5);
		pack_run(t->session);
		pack_same(1, 1, t->want + 1, n - 1, "every row's place");
	}
	free(filler);
}

/* The shared context and its four continuations, each against itself written out. */
static void check_context(const struct subject *t, uint32_t context, uint32_t *const child[4],
                          const uint32_t lengths[4])
{
	uint32_t *joined = calloc(context + 140, sizeof *joined);
	struct token_score want[4][140];
	int32_t parent, at[4];

	memcpy(joined, t->doc, context * sizeof *joined);
	for (uint32_t k = 0; k < 4; k++) {
		memcpy(joined + context, child[k], lengths[k] * sizeof *joined);
		pack_clear();
		pack_add(-1, joined, context + lengths[k]);
		pack_run(t->session);
		pack_same(0, 1, t->want + 1, context - 1, "the context before a continuation");
		memcpy(want[k], packed.out + context, lengths[k] * sizeof **want);
	}
	pack_clear();
	pack_add(-1, joined, context < 17 ? context : 17);
	parent = pack_add(-1, t->doc, context);
	for (uint32_t k = 0; k < 4; k++)
		at[k] = pack_add(parent, child[k], lengths[k]);
	pack_run(t->session);
	pack_same(parent, 1, t->want + 1, context - 1, "the shared context");
	for (uint32_t k = 0; k < 4; k++)
		pack_same(at[k], 0, want[k], lengths[k], "a shared prefix");
	free(joined);
}

void subject_with_shared_prefixes(const struct subject *t)
{
	static const uint32_t contexts[] = {1,   2,   31,  32,  33,  63,  64,  65,  100, 127,
	                                    128, 129, 160, 191, 192, 193, 255, 256, 257, 600};
	static const uint32_t lengths[] = {1, 20, 33, 140};
	uint32_t *child[4];

	for (uint32_t k = 0; k < 4; k++)
		child[k] = some_tokens(lengths[k], t->model->config.n_vocab, 20 + k);
	for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++)
		if (contexts[i] <= t->n)
			check_context(t, contexts[i], child, lengths);
	for (uint32_t k = 0; k < 4; k++)
		free(child[k]);
}

void subject_as_chains(const struct subject *t)
{
	static const uint32_t steps[] = {1, 7, 32, 50, 128, 3};
	uint32_t *branch = some_tokens(10, t->model->config.n_vocab, 5);

	for (int mixed = 0; mixed < 2; mixed++) {
		int32_t parent = -1;

		pack_clear();
		for (uint32_t at = 0, i = 0; at < t->n; i++) {
			uint32_t len = mixed ? steps[i % 6] : 1;

			len = len < t->n - at ? len : t->n - at;
			parent = pack_add(parent, t->doc + at, len);
			at += len;
			if (mixed)
				pack_add(parent, branch, 1 + i % 10);
		}
		pack_run(t->session);
		for (uint32_t i = 0, at = 0; i < packed.n_segments; i++) {
			const struct segment *s = &packed.segments[i];

			if (mixed && i % 2)
				continue; /* a branch */
			pack_same((int32_t)i, at == 0, t->want + at + (at == 0), s->len - (at == 0),
			          mixed ? "a chain with branches" : "a chain of single tokens");
			at += s->len;
		}
	}
	free(branch);
}

void subject_in_company(const struct subject *t)
{
	static const uint32_t lengths[] = {300, 1, 2, 65, 129, 400, 33, 64, 5, 128};
	uint32_t n_lengths = sizeof lengths / sizeof *lengths;

	for (int pass = 0; pass < 2; pass++) {
		pack_clear();
		for (uint32_t i = 0; i < n_lengths; i++) {
			uint32_t n = lengths[pass ? n_lengths - 1 - i : i];

			pack_add(-1, t->doc, n < t->n ? n : t->n);
		}
		for (uint32_t i = 0; pass && i < packed.n_tokens; i++)
			packed.marks[i] &= i % 3 == 0;
		pack_run(t->session);
		for (uint32_t i = 0; i < packed.n_segments; i++)
			for (uint32_t j = 1; j < packed.segments[i].len; j++)
				if (packed.marks[packed.segments[i].start + j])
					pack_same((int32_t)i, j, t->want + j, 1, "in company");
	}
}

/* -- trees --------------------------------------------------------------------------------------- */

#define TREE_SEGMENTS 40
#define TREE_CHAIN    700 /* the longest chain */

/* A batch of trees, kept while their chains run written out. */
struct trees {
	uint32_t tokens[TREE_SEGMENTS * TREE_CHAIN];
	uint8_t marks[TREE_SEGMENTS * TREE_CHAIN];
	struct token_score out[TREE_SEGMENTS * TREE_CHAIN];
	struct segment segments[TREE_SEGMENTS];
	uint32_t chain[TREE_SEGMENTS]; /* tokens of the chain that ends there */
	uint32_t n_tokens;
};

static void grow_trees(struct trees *r, uint32_t n_vocab, uint32_t seed)
{
	static const uint32_t lengths[] = {1, 2, 5, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 130, 191, 200};
	uint32_t *dice = some_tokens(3 * TREE_SEGMENTS, 1 << 15, seed);
	uint32_t *ids = some_tokens(TREE_SEGMENTS * 200, n_vocab, seed + 1);
	uint32_t *coins = some_tokens(TREE_SEGMENTS * 200, 2, seed + 2);

	pack_clear();
	for (uint32_t i = 0; i < TREE_SEGMENTS; i++) {
		uint32_t len = lengths[dice[3 * i] % 16];
		int32_t parent = i && dice[3 * i + 1] % 5 ? (int32_t)(dice[3 * i + 1] / 5 % i) : -1;

		if (parent >= 0 && r->chain[parent] + len > TREE_CHAIN)
			parent = -1;
		r->chain[i] = len + (parent >= 0 ? r->chain[parent] : 0);
		pack_add(parent, ids + 200 * i, len);
		for (uint32_t j = 0; j < len; j++) /* every fourth has no scored token: a leaf of them needs no row */
			packed.marks[packed.segments[i].start + j] &= coins[200 * i + j] && dice[3 * i + 2] % 4;
	}
	free(dice);
	free(ids);
	free(coins);
}

void subject_as_trees(const struct subject *t, uint32_t seed)
{
	struct trees *r = calloc(1, sizeof *r);
	uint32_t line[TREE_CHAIN];

	ck_assert_ptr_nonnull(r);
	grow_trees(r, t->model->config.n_vocab, seed);
	pack_run(t->session);
	r->n_tokens = packed.n_tokens;
	memcpy(r->tokens, packed.tokens, r->n_tokens * sizeof *r->tokens);
	memcpy(r->marks, packed.marks, r->n_tokens);
	memcpy(r->out, packed.out, r->n_tokens * sizeof *r->out);
	memcpy(r->segments, packed.segments, sizeof r->segments);
	pack_clear();
	for (int32_t i = 0; i < TREE_SEGMENTS; i++) {
		uint32_t end = r->chain[i];

		for (int32_t s = i; s >= 0; s = r->segments[s].parent) {
			end -= r->segments[s].len;
			memcpy(line + end, r->tokens + r->segments[s].start, r->segments[s].len * sizeof *line);
		}
		pack_add(-1, line, r->chain[i]);
	}
	pack_run(t->session);
	for (int32_t i = 0; i < TREE_SEGMENTS; i++) {
		const struct segment *s = &r->segments[i];

		for (uint32_t j = 0; j < s->len; j++)
			if (r->marks[s->start + j])
				pack_same(i, r->chain[i] - s->len + j, r->out + s->start + j, 1, "a tree");
	}
	free(r);
}

/* -- faults -------------------------------------------------------------------------------------- */

void *poison_tensor(struct tensor *t, uint64_t index, float value)
{
	size_t bytes = t->shape[0] * t->shape[1] * sizeof(float);
	float *copy = malloc(bytes);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, t->data, bytes);
	copy[index] = value;
	t->data = copy;
	return copy;
}

void scores_refused(const struct model *m, const char *device, const char *dtype, const uint32_t *tokens, uint32_t n,
                    const char *words)
{
	struct session *s = open_session(m, device, dtype, 0, 0);
	struct token_score *out = calloc(n, sizeof *out);
	uint8_t *marks = malloc(n);
	struct segment parts[2] = {{-1, 0, 60}, {0, 60, n - 60}};
	struct batch b = {tokens, marks, n, parts, 2};

	memset(marks, 1, n);
	marks[0] = 0;
	for (int twice = 0; twice < 2; twice++)
		ck_err(session_score(s, &b, out, &e), ERR_NUMERIC, words, &e);
	session_close(s);
	free(out);
	free(marks);
}

/* -- known numbers ------------------------------------------------------------------------------- */

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

static void check_entry(struct session *s, const struct model *m, const struct json *ref, double relative,
                        double absolute)
{
	const char *book = json_get_string(ref, "book");
	double want = number(json_get(ref, "nll_sum")), nll = 0;
	uint32_t length = (uint32_t)number(json_get(ref, "L")), i = 1;
	struct token_list list = read_book(m->tokenizer, book);

	ck_assert_uint_gt(list.n, length);
	pack_clear();
	pack_add(-1, list.ids, length + 1);
	pack_run(s);
	for (uint32_t t = 1; t <= length; t++)
		nll -= packed.out[t].logprob;
	fprintf(stderr, "  %s, %s, %u: sum off by %.1e\n", m->name, book, length, nll / want - 1);
	ck_assert_msg(fabs(nll / want - 1) <= relative, "%s, %s, %u: %.6f, not %.6f: off by %.2e", m->name, book,
	              length, nll, want, nll / want - 1);
	for (const struct json *t = json_first(json_get(ref, "first4")); absolute > 0 && t; t = json_next(t))
		ck_assert_double_eq_tol(-packed.out[i++].logprob, number(t), absolute);
	ck_assert_uint_eq(i, absolute > 0 ? 5 : 1);
	if (absolute > 0)
		ck_assert_double_eq_tol(-packed.out[length].logprob, number(json_get(ref, "last")), absolute);
	token_list_release(&list);
}

bool reference_check(const char *name, const char *device, const char *dtype, reference_filter *wanted, double relative,
                     double absolute)
{
	const char *path = fixture_shared("models/reference.json");
	struct json *root = NULL;
	const struct json *books;
	struct model *m = NULL;
	struct session *s;
	char dir[64];

	snprintf(dir, sizeof dir, "models/%s", name);
	if (!path || !fixture_shared(dir) || !fixture_data("pg19/test")) {
		fixture_skip("reference numbers", "no shared models or no books");
		return false;
	}
	ck_ok(json_parse_file(path, 16 << 20, &root, &e), &e);
	ck_ok(model_open(fixture_shared(dir), NULL, &m, &e), &e);
	books = json_get(json_get(json_get(root, "models"), name), "books");
	ck_assert_uint_gt(json_count(books), 0);
	s = open_session(m, device, dtype, 0, 0);
	for (const struct json *ref = json_first(books); ref; ref = json_next(ref))
		if (!wanted || wanted(json_get_string(ref, "book"), (uint32_t)number(json_get(ref, "L"))))
			check_entry(s, m, ref, relative, absolute);
	session_close(s);
	model_free(m);
	json_free(root);
	return true;
}
