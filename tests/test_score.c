/* What scoring requests are made of: chains that share their beginnings, keys of token ids, prompts and their passes.
 * The worker around them: test_worker.c; the server: e2e/test_openai.py. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/ask.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"

#define MAX_CHAINS 64
#define MAX_LEN    400

static struct err e;

/* Chains with ids and scores of their own. */
static struct {
	uint32_t ids[MAX_CHAINS][MAX_LEN];
	struct token_score scores[MAX_CHAINS][MAX_LEN];
	struct chain chains[MAX_CHAINS], *list[MAX_CHAINS];
	size_t n;
} set;

static struct chain *add_chain(uint32_t n, uint32_t from)
{
	size_t i = set.n++;

	ck_assert_uint_lt(i, MAX_CHAINS);
	set.chains[i] = (struct chain){.ids = set.ids[i], .n = n, .from = from, .scores = set.scores[i]};
	set.list[i] = &set.chains[i];
	return &set.chains[i];
}

/* Ids that are the same wherever `seed` is: a beginning that several chains have. */
static void fill(size_t chain, uint32_t from, uint32_t to, uint32_t seed)
{
	for (uint32_t i = from; i < to; i++)
		set.ids[chain][i] = (seed * 2654435761u + i * 40503u) >> 7 & 255;
}

static uint32_t *placed[MAX_CHAINS];

static void pack(struct batch_builder *b, bool share)
{
	for (size_t i = 0; i < set.n; i++)
		placed[i] = malloc(MAX_LEN * sizeof *placed[i]);
	chains_sort(set.list, set.n, share);
	ck_ok(chains_pack(set.list, set.n, b, placed, &e), &e);
	/* whatever the tree is: the parents' tokens and its own are the chain */
	for (size_t i = 0; i < set.n; i++)
		for (uint32_t at = 0; at < set.list[i]->n; at++)
			ck_assert_uint_eq(b->tokens[placed[i][at]], set.list[i]->ids[at]);
}

static void unpack(struct batch_builder *b)
{
	for (size_t i = 0; i < set.n; i++)
		free(placed[i]);
	batch_builder_release(b);
}

/* -- packing ----------------------------------------------------------------------------------- */

static void check_segment(const struct batch_builder *b, size_t i, int32_t parent, uint32_t len)
{
	ck_assert_int_eq(b->segments[i].parent, parent);
	ck_assert_uint_eq(b->segments[i].len, len);
}

/* 100 tokens in common are shared up to 96, three steps of 32. */
START_TEST(chains_that_begin_alike_share_whole_steps)
{
	struct batch_builder b = {0};

	for (size_t i = 0; i < 3; i++) {
		add_chain(120, 1);
		fill(i, 0, 100, 1);
		fill(i, 100, 120, 10 + (uint32_t)i);
	}
	add_chain(50, 1);
	fill(3, 0, 50, 2); /* has nothing in common with them */
	pack(&b, true);
	ck_assert_uint_eq(b.n_segments, 5);
	ck_assert_uint_eq(b.n_tokens, 96 + 3 * 24 + 50);
	for (size_t i = 0, root = 0; i < b.n_segments; i++) {
		if (b.segments[i].len == 96)
			root = i;
		if (b.segments[i].len == 24)
			check_segment(&b, i, (int32_t)root, 24);
		else
			ck_assert_int_eq(b.segments[i].parent, -1);
	}
	unpack(&b);
	pack(&b, false);
	ck_assert_uint_eq(b.n_segments, 4);
	ck_assert_uint_eq(b.n_tokens, 410);
	unpack(&b);
}
END_TEST

/* 64 in common to all, 64 more to the first two: the third ends where it branches off, the fourth is the second. */
START_TEST(branches_nest_and_a_chain_may_end_where_another_goes_on)
{
	struct batch_builder b = {0};
	static const uint32_t lens[] = {160, 140, 64, 140};

	for (size_t i = 0; i < 4; i++) {
		add_chain(lens[i], 1);
		fill(i, 0, 64, 1);
		fill(i, 64, 128, 2);
	}
	for (size_t i = 0; i < 4; i++)
		fill(i, 128, lens[i], i == 0 ? 3 : 4);
	pack(&b, true);
	ck_assert_uint_eq(b.n_segments, 5);
	ck_assert_uint_eq(b.n_tokens, 64 + 64 + 32 + 12 + 12);
	check_segment(&b, 0, -1, 64);
	check_segment(&b, 1, 0, 64);
	for (size_t i = 2; i < 5; i++)
		ck_assert_int_eq(b.segments[i].parent, 1);
	unpack(&b);
}
END_TEST

START_TEST(a_token_is_scored_if_any_of_its_chains_wants_it)
{
	struct batch_builder b = {0};

	add_chain(70, 69);
	add_chain(70, 40);
	fill(0, 0, 70, 1);
	fill(1, 0, 69, 1);
	set.ids[1][69] = set.ids[0][69] + 1;
	pack(&b, true);
	ck_assert_uint_eq(b.n_segments, 3);
	for (uint32_t i = 0; i < 64; i++)
		ck_assert_uint_eq(b.score[i], i >= 40);
	unpack(&b);
}
END_TEST

/* -- scoring ----------------------------------------------------------------------------------- */

static void never_fails(void *arg, struct chain *c, const struct err *why)
{
	(void)arg;
	(void)c;
	ck_abort_msg("a chain failed: %s", why->msg);
}

/* Trees of chains of many lengths: some the same, some the beginning of others, none longer than MAX_LEN. */
static void plant(unsigned seed)
{
	uint32_t state = seed;

	set.n = 0;
	for (size_t i = 0; i < MAX_CHAINS; i++) {
		uint32_t n, cut, other = 0;

		state = state * 1664525 + 1013904223;
		n = 1 + (state >> 8) % MAX_LEN;
		cut = (state >> 16) % n;
		add_chain(n, 1 + (state >> 3) % (i % 3 ? 1 : n));
		fill(i, 0, n, state);
		if (i) {
			other = (state >> 11) % i;
			cut = cut < set.chains[other].n ? cut : set.chains[other].n;
			memcpy(set.ids[i], set.ids[other], cut * sizeof(uint32_t));
		}
		if (i % 7 == 6) /* the same again */
			memcpy(set.ids[i], set.ids[i - 1], MAX_LEN * sizeof(uint32_t));
	}
}

static void check_alone(struct session *s, const struct chain *c)
{
	struct segment one = {-1, 0, c->n};
	struct token_score *want = calloc(c->n, sizeof *want);
	uint8_t *score = calloc(c->n, 1);

	memset(score + c->from, 1, c->n > c->from ? c->n - c->from : 0);
	ck_ok(session_score(s, &(struct batch){c->ids, score, c->n, &one, 1}, want, &e), &e);
	ck_assert(c->from >= c->n || same_bits(want + c->from, c->scores + c->from, (c->n - c->from) * sizeof *want));
	free(want);
	free(score);
}

START_TEST(together_and_shared_they_score_to_the_bits_of_each_alone)
{
	struct model *m = fixture_eval_model(fixture_tmpdir(), "tiny", _i ? "pope" : "rope");
	struct session *s = fixture_eval_session(m);

	while (session_shrink(s))
		; /* so that several batches are needed */
	for (unsigned seed = 1; seed < 6; seed++) {
		plant(seed);
		ck_ok(chains_score(s, set.list, set.n, seed != 3, never_fails, NULL, &e), &e);
		for (size_t i = 0; i < set.n; i++)
			check_alone(s, &set.chains[i]);
	}
	session_close(s);
	model_free(m);
}
END_TEST

static void count_failed(void *arg, struct chain *c, const struct err *why)
{
	unsigned *failed = arg;

	ck_assert_int_eq(why->code, ERR_NUMERIC);
	failed[c - set.chains]++;
}

START_TEST(a_chain_that_fails_alone_does_not_touch_the_others)
{
	const char *dir = fixture_tmpdir();
	unsigned failed[MAX_CHAINS] = {0};
	struct model *m = fixture_eval_model(dir, "tiny", "rope");
	struct session *s;
	char path[PATH_MAX];

	model_free(m);
	fixture_eval_poison(dir, "tiny", 'x');
	snprintf(path, sizeof path, "%s/tiny", dir);
	ck_ok(model_open(path, NULL, &m, &e), &e);
	s = fixture_eval_session(m);
	for (size_t i = 0; i < 20; i++) {
		add_chain(80, 1);
		fill(i, 0, 80, i < 10 ? 1 : (uint32_t)i);
		for (uint32_t at = 0; at < 80; at++)
			if (set.ids[i][at] == 'x')
				set.ids[i][at]++;
	}
	set.ids[4][70] = set.ids[13][2] = 'x';
	ck_ok(chains_score(s, set.list, set.n, true, count_failed, failed, &e), &e);
	for (size_t i = 0; i < set.n; i++) {
		ck_assert_uint_eq(failed[i], i == 4 || i == 13);
		if (!failed[i])
			check_alone(s, &set.chains[i]);
	}
	session_close(s);
	model_free(m);
}
END_TEST

/* -- keys -------------------------------------------------------------------------------------- */

static void check_key(const struct token_keys *k, uint32_t id, const char *want)
{
	char scratch[TOKEN_KEY_BYTES];
	size_t len;
	const char *key = token_keys_get(k, id, scratch, &len);

	ck_assert_msg(len == strlen(want) && !memcmp(key, want, len), "id %u: '%.*s', not '%s'", id, (int)len, key,
	              want);
}

/* 257: U+65E5 spelled by its bytes; 258: the same outside the byte alphabet; 259: as if it were an id's key. */
static struct model *model_with_twins(const char *dir)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	f.n_vocab = 300;
	f.tokenizer = true;
	fixture_model_write(dir, &f);
	fixture_edit(dir, "tokenizer.json", "},\"merges\":[]",
	             ",\"\xC3\xA6\xC4\xB9\xC2\xA5\":257,\"\xE6\x97\xA5\":258,\"token_id:7\":259},\"merges\":[]");
	fixture_edit(dir, "tokenizer.json", "\"\xC3\xA6\xC4\xB9\xC2\xA5\":257",
	             "\"<|endoftext|>\":256,\"\xC3\xA6\xC4\xB9\xC2\xA5\":257");
	return fixture_model_open(dir, NULL);
}

START_TEST(no_two_ids_have_the_same_key)
{
	struct model *m = model_with_twins(fixture_tmpdir());
	struct token_keys *k = NULL;

	ck_ok(token_keys_make(m->tokenizer, m->config.n_vocab, &k, &e), &e);
	check_key(k, 'a', "a");
	check_key(k, 0, "token_id:0"); /* U+0000 */
	check_key(k, 0xE6, "token_id:230");
	check_key(k, 256, "<|endoftext|>");
	check_key(k, 257, "token_id:257");
	check_key(k, 258, "token_id:258");
	check_key(k, 259, "token_id:259");
	check_key(k, 299, "token_id:299"); /* the model has it, the tokenizer not */
	token_keys_free(k);
	ck_ok(token_keys_make(NULL, 10, &k, &e), &e);
	check_key(k, 9, "token_id:9");
	token_keys_free(k);
	model_free(m);
}
END_TEST

/* "a", the three bytes of U+65E5 in three tokens, a lone continuation byte, U+0000, "b", an id without a token, "c". */
START_TEST(text_is_made_of_all_bytes_together_and_offsets_are_characters)
{
	static const uint32_t ids[] = {'a', 0xE6, 0x97, 0xA5, 0x97, 0, 'b', 299, 'c'};
	static const uint32_t want[] = {0, 1, 1, 1, 2, 3, 4, 5, 5};
	struct model *m = model_with_twins(fixture_tmpdir());
	struct buf text = BUF_INIT(1000);
	struct token_keys *k = NULL;
	uint32_t offsets[9];

	ck_ok(token_keys_make(m->tokenizer, m->config.n_vocab, &k, &e), &e);
	ck_ok(token_keys_text(k, ids, 9, &text, offsets, &e), &e);
	ck_assert_str_eq(buf_str(&text), "a\xE6\x97\xA5\xEF\xBF\xBD\xEF\xBF\xBD"
	                                 "bc");
	for (size_t i = 0; i < 9; i++)
		ck_assert_uint_eq(offsets[i], want[i]);
	buf_clear(&text);
	ck_ok(token_keys_text(k, ids, 2, &text, offsets, &e), &e);
	ck_assert_str_eq(buf_str(&text), "a\xEF\xBF\xBD");
	buf_release(&text);
	token_keys_free(k);
	model_free(m);
}
END_TEST

/* -- prompts ----------------------------------------------------------------------------------- */

static struct ask *make_ask(const struct model *m, const char *json, struct json **keep)
{
	static struct token_keys *k;
	struct ask *a = NULL;

	token_keys_free(k);
	ck_ok(token_keys_make(m->tokenizer, m->config.n_vocab, &k, &e), &e);
	*keep = fixture_json(json);
	ck_ok(ask_new(&(struct ask_model){m, k, m->config.n_ctx}, *keep, &a, &e), &e);
	return a;
}

static void check_ids(const struct prompt *p, const uint32_t *want, uint32_t n)
{
	ck_assert_uint_eq(p->n, n);
	ck_assert(same_bits(p->ids, want, n * sizeof *want));
}

START_TEST(a_text_gets_bos_once_and_ids_never)
{
	const char *dir = fixture_tmpdir();
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct json *keep;
	struct model *m;
	struct ask *a;

	f.tokenizer = true;
	fixture_model_write(dir, &f);
	fixture_edit(dir, "tokenizer.json", "\"post_processor\":null",
	             "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"B\","
	             "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":"
	             "{\"B\":{\"id\":\"B\",\"ids\":[256],\"tokens\":[\"B\"]}}}");
	m = fixture_model_open(dir, NULL);
	a = make_ask(m, "{\"prompts\":[\"ab\",\"<|endoftext|>ab\",[97,98],\"\"]}", &keep);
	ck_assert_uint_eq(a->n_prompts, 4);
	check_ids(&a->prompts[0], (uint32_t[]){256, 'a', 'b'}, 3);
	check_ids(&a->prompts[1], (uint32_t[]){256, 'a', 'b'}, 3);
	check_ids(&a->prompts[2], (uint32_t[]){'a', 'b'}, 2);
	check_ids(&a->prompts[3], (uint32_t[]){256}, 1);
	ask_free(a);
	json_free(keep);
	model_free(m);
}
END_TEST

/* The context has 64 tokens (FIXTURE_MODEL_DEFAULT). */
START_TEST(what_a_pass_computes_follows_from_what_is_asked)
{
	static const struct {
		const char *members;
		uint32_t n_prompt, n, from; /* of the chain; n 0: nothing is computed */
	} cases[] = {
	    {"\"echo\":true,\"logprobs\":true,\"max_tokens\":0", 10, 10, 1},
	    {"\"echo\":true,\"logprobs\":true,\"max_tokens\":1", 10, 11, 1},
	    {"\"echo\":true,\"max_tokens\":1", 10, 11, 10},
	    {"\"logprobs\":true,\"max_tokens\":3", 10, 11, 10},
	    {"\"echo\":true,\"max_tokens\":0", 10, 0, 0},
	    {"\"echo\":true,\"logprobs\":true,\"max_tokens\":0", 1, 0, 0},
	    {"\"echo\":true,\"logprobs\":true,\"max_tokens\":1", 1, 2, 1},
	    {"\"echo\":true,\"logprobs\":true,\"max_tokens\":1", 64, 65, 1},
	    {"\"echo\":true,\"logprobs\":true,\"max_tokens\":1", 65, 65, 1}, /* no room for another */
	    {"\"max_tokens\":1", 65, 0, 0},
	};
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m;

	f.tokenizer = true;
	m = fixture_model_make(&f);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf text = BUF_INIT(10000);
		struct json *keep;
		struct ask *a;
		bool any;

		buf_printf(&text, "{\"prompts\":[[1");
		for (uint32_t k = 1; k < cases[i].n_prompt; k++)
			buf_puts(&text, ",2");
		buf_printf(&text, "]],%s}", cases[i].members);
		a = make_ask(m, buf_str(&text), &keep);
		any = prompt_begin(&a->prompts[0]);
		ck_assert_msg(any == (cases[i].n > 0), "case %zu", i);
		if (any) {
			ck_assert_uint_eq(a->prompts[0].chain.n, cases[i].n);
			ck_assert_uint_eq(a->prompts[0].chain.from, cases[i].from);
		} else {
			ck_assert(ask_is_complete(a));
		}
		ask_free(a);
		json_free(keep);
		buf_release(&text);
	}
	model_free(m);
}
END_TEST

Suite *score_suite(void);
Suite *score_suite(void)
{
	Suite *s = suite_create("score");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, chains_that_begin_alike_share_whole_steps);
	tcase_add_test(tc, branches_nest_and_a_chain_may_end_where_another_goes_on);
	tcase_add_test(tc, a_token_is_scored_if_any_of_its_chains_wants_it);
	tcase_add_loop_test(tc, together_and_shared_they_score_to_the_bits_of_each_alone, 0, 2);
	tcase_add_test(tc, a_chain_that_fails_alone_does_not_touch_the_others);
	tcase_add_test(tc, no_two_ids_have_the_same_key);
	tcase_add_test(tc, text_is_made_of_all_bytes_together_and_offsets_are_characters);
	tcase_add_test(tc, a_text_gets_bos_once_and_ids_never);
	tcase_add_test(tc, what_a_pass_computes_follows_from_what_is_asked);
	suite_add_tcase(s, tc);
	return s;
}
