/* Evaluations of pg19 with the real engine on a tiny byte-level model: a token is a byte, so that bytes, words, windows
 * and sums can be computed here from the text alone. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/utf8.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;
static char root[PATH_MAX], data[PATH_MAX + 8];
static struct model *model;
static struct session *session;

static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	snprintf(data, sizeof data, "%s/data", root);
	ck_assert_int_eq(mkdir(data, 0700), 0);
	model = fixture_eval_model(root, "tiny", "rope");
	session = fixture_eval_session(model);
}

static void tear_down(void)
{
	session_close(session);
	model_free(model);
}

static void write_doc(const char *name, const char *text)
{
	fixture_write(data, name, text, strlen(text));
}

/* n bytes of words, the same for the same seed. */
static void write_words(const char *name, size_t n, unsigned seed)
{
	char *text = malloc(n + 1);

	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1103515245 + 12345;
		text[i] = (seed >> 16) % 5 ? (char)('a' + (seed >> 18) % 26) : " \n"[(seed >> 18) % 2];
	}
	text[n] = '\0';
	write_doc(name, text);
	free(text);
}

static err_code try_open(const char *params_text, struct evaluation **ev)
{
	struct json *params = fixture_params(task_find("pg19", &e), params_text);
	err_code rc = evaluation_open(model, task_find("pg19", &e), params, data, "data", NULL, NULL, ev, &e);

	json_free(params);
	return rc;
}

/* Opens, runs everything, folds. */
struct outcome {
	struct evaluation *ev;
	struct json *params, *metrics, *items, *plan;
	struct fixture_units units;
};

static void evaluate(const char *params_text, struct outcome *o)
{
	struct place place = {.device = {.device = "cpu", .name = "a processor"}, .dtype = "f32", .signature = "s"};
	struct buf text = BUF_INIT(1 << 24);
	struct json_writer w = JSON_WRITER(&text);

	ck_ok(try_open(params_text, &o->ev), &e);
	json_begin_object(&w, NULL);
	evaluation_write_plan(o->ev, "tiny", &place, 1, &w);
	json_end_object(&w);
	o->plan = fixture_json(buf_str(&text));
	buf_release(&text);
	o->params = fixture_params(task_find("pg19", &e), params_text);
	fixture_units_init(&o->units, evaluation_n_units(o->ev));
	fixture_run(o->ev, session, NULL, 0, &o->units);
	o->metrics = fixture_metrics(task_find("pg19", &e), o->params, &o->units);
	o->items = fixture_items(task_find("pg19", &e), o->params, &o->units);
}

static void release(struct outcome *o)
{
	json_free(o->params);
	json_free(o->metrics);
	json_free(o->items);
	json_free(o->plan);
	fixture_units_release(&o->units);
	evaluation_free(o->ev);
}

/* -- sums against the definition --------------------------------------------------------------- */

/* One window scored by itself: -sum of log p of seq[first..] given seq[start..]. */
static double score_window(const uint32_t *seq, size_t start, size_t first, size_t end)
{
	size_t n = end - start;
	uint8_t *mask = calloc(n, 1);
	struct token_score *out = calloc(n, sizeof *out);
	struct segment s = {.parent = -1, .start = 0, .len = (uint32_t)n};
	struct batch b = {
	    .tokens = seq + start, .score = mask, .n_tokens = (uint32_t)n, .segments = &s, .n_segments = 1};
	double sum = 0;

	memset(mask + (first - start), 1, end - first);
	ck_ok(session_score(session, &b, out, &e), &e);
	for (size_t i = first - start; i < n; i++)
		sum -= (double)out[i].logprob;
	free(mask);
	free(out);
	return sum;
}

struct expected {
	double nll;
	int64_t n, bytes, words;
};

/* The protocol's definition, window by window. `bos`: 'n', 'd' or 'w'; stride = length: windows. */
static struct expected define(const char *text, char bos, size_t length, size_t stride, bool drop)
{
	size_t len = strlen(text), n = len + (bos == 'd'), last_scored = 0;
	uint32_t *seq = calloc(n + 2, sizeof *seq), *window = calloc(length + 2, sizeof *window);
	struct expected x = {0};

	seq[0] = 256;
	for (size_t i = 0; i < len; i++)
		seq[i + (bos == 'd')] = (unsigned char)text[i];
	for (size_t k = 0; bos == 'w' && k * length < len;
	     k++) { /* window k reads BOS, t[kL ..] and predicts t[kL ..] */
		size_t m = len - k * length < length ? len - k * length : length;

		if (drop && m < length)
			break;
		window[0] = 256;
		memcpy(window + 1, seq + k * length, m * sizeof *seq);
		x.nll += score_window(window, 0, 1, m + 1);
		x.n += (int64_t)m;
		last_scored = k * length + m;
	}
	for (size_t k = 0; bos != 'w' && last_scored + 1 < n; k++) {
		size_t last = k * stride + length < n - 1 ? k * stride + length : n - 1;

		if (drop && k * stride + length > n - 1)
			break;
		x.nll += score_window(seq, k * stride, last_scored + 1, last + 1);
		x.n += (int64_t)(last - last_scored);
		last_scored = last;
	}
	/* a token is a byte: scored bytes from `from` up to `to` */
	size_t from = bos == 'n' ? 1 : 0, to = from + (size_t)x.n;

	x.bytes = x.n;
	for (size_t i = from; i < to; i++)
		x.words += !strchr(" \n\t", text[i]) && (!i || strchr(" \n\t", text[i - 1]));
	free(seq);
	free(window);
	return x;
}

static void check_item(const struct json *item, const struct expected *x, int64_t length)
{
	ck_assert_ptr_nonnull(item);
	ck_assert_double_eq(fixture_member(item, "length"), (double)length);
	ck_assert_double_eq(fixture_member(item, "n_tokens"), (double)x->n);
	ck_assert_double_eq(fixture_member(item, "n_bytes"), (double)x->bytes);
	ck_assert_double_eq(fixture_member(item, "n_words"), (double)x->words);
	ck_assert_msg(fixture_member(item, "nll") == x->nll, "length %ld: nll %.17g, not %.17g",
	              length, /* to the bit */
	              fixture_member(item, "nll"), x->nll);
}

START_TEST(sums_are_those_of_the_definition_for_every_protocol)
{
	static const char text[] = "It was the best of times,\nit was  the worst of times, it was the age of wisdom. ";
	static const struct {
		const char *params;
		size_t stride; /* 0: the length */
		char bos;
		bool drop;
	} cases[] = {
	    {"{\"lengths\":[1,7,16,80,200]}", 0, 'n', false},
	    {"{\"lengths\":[1,7,16,80,200],\"last_window\":\"drop\"}", 0, 'n', true},
	    {"{\"lengths\":[1,7,16,80,200],\"bos\":\"document\"}", 0, 'd', false},
	    {"{\"lengths\":[1,7,16,81,200],\"bos\":\"window\"}", 0, 'w', false},
	    {"{\"lengths\":[1,7,16,81,200],\"bos\":\"window\",\"last_window\":\"drop\"}", 0, 'w', true},
	    {"{\"lengths\":[1,7,16,80,200],\"protocol\":\"sliding\",\"stride\":5}", 5, 'n', false},
	    {"{\"lengths\":[1,7,16,80,200],\"protocol\":\"sliding\",\"stride\":5,\"bos\":\"document\"}", 5, 'd', false},
	    {"{\"lengths\":[1,7,16,80,200],\"protocol\":\"sliding\",\"stride\":5,\"last_window\":\"drop\"}", 5, 'n',
	     true},
	    {"{\"lengths\":[1,7,16,80,200],\"protocol\":\"sliding\",\"stride\":200}", 0, 'n', false},
	};

	write_doc("a.txt", text);
	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct json *length;
		struct outcome o = {0};
		const struct json *item;
		struct expected x;
		size_t stride;
		int64_t l;

		evaluate(cases[i].params, &o);
		item = json_first(o.items);
		for (length = json_first(json_get(o.params, "lengths")); length; length = json_next(length)) {
			ck_assert(json_integer(length, &l));
			stride = cases[i].stride && cases[i].stride < (size_t)l ? cases[i].stride : (size_t)l;
			x = define(text, cases[i].bos, (size_t)l, stride, cases[i].drop);
			if (!x.n)
				continue; /* no window, no item */
			check_item(item, &x, l);
			item = json_next(item);
		}
		ck_assert_ptr_null(item);
		release(&o);
	}
}
END_TEST

START_TEST(words_follow_the_text_and_bytes_telescope_over_windows)
{
	/* U+00A0 and U+3000 are White_Space, U+200B is not; an a-umlaut is one word's two bytes */
	static const char text[] = "ab\xC2\xA0"
	                           "cd\xE3\x80\x80\xC3\xA4 \xE2\x80\x8B x\r\ny\n";
	struct outcome o = {0};

	write_doc("a.txt", text);
	evaluate("{\"lengths\":[1,2,3,5,64],\"bos\":\"document\"}", &o);
	for (const struct json *item = json_first(o.items); item; item = json_next(item)) {
		ck_assert_double_eq(fixture_member(item, "n_bytes"), (double)(strlen(text) - 1)); /* CRLF is LF */
		ck_assert_double_eq(fixture_member(item, "n_words"), 6); /* ab cd ä U+200B x y */
	}
	release(&o);
	evaluate("{\"lengths\":[1,2,3,5,64]}",
	         &o); /* the first byte of "ab" is in the first token, which is not scored */
	for (const struct json *item = json_first(o.items); item; item = json_next(item)) {
		ck_assert_double_eq(fixture_member(item, "n_bytes"), (double)(strlen(text) - 2));
		ck_assert_double_eq(fixture_member(item, "n_words"), 5);
	}
	release(&o);
}
END_TEST

START_TEST(prefix_is_the_first_window_of_windows_to_the_bit)
{
	static const int64_t lengths[] = {3, 17, 64};
	struct outcome prefix = {0};
	const struct json *item;

	write_words("a.txt", 200, 1);
	write_words("b.txt", 65, 2);
	write_words("short.txt", 64, 3); /* has no 64 predictions: out of the subset at every length */
	evaluate("{\"lengths\":[3,17,64],\"protocol\":\"prefix\"}", &prefix);
	ck_assert_uint_eq(json_count(prefix.items), 6);
	ck_assert_uint_eq(evaluation_n_units(prefix.ev), 2); /* one unit a document */
	for (size_t i = 0; i < COUNT(lengths); i++) {
		struct outcome windows = {0};
		char params[200];

		snprintf(params, sizeof params, "{\"lengths\":[%ld],\"max_tokens_per_doc\":%ld,\"min_doc_tokens\":65}",
		         lengths[i], lengths[i] + 1);
		evaluate(params, &windows);
		ck_assert_uint_eq(json_count(windows.items), 2);
		item = json_first(prefix.items);
		for (const struct json *w = json_first(windows.items); w; w = json_next(w)) {
			while (fixture_member(item, "length") != (double)lengths[i])
				item = json_next(item);
			ck_assert_str_eq(json_get_string(item, "doc"), json_get_string(w, "doc"));
			ck_assert_str_eq(json_get_string(item, "key"), json_get_string(w, "key"));
			ck_assert(fixture_member(item, "nll") == fixture_member(w, "nll"));
			ck_assert(fixture_member(item, "n_bytes") == fixture_member(w, "n_bytes"));
			ck_assert(fixture_member(item, "n_words") == fixture_member(w, "n_words"));
			item = json_next(item);
		}
		release(&windows);
	}
	release(&prefix);
}
END_TEST

START_TEST(the_bins_of_position_sum_to_the_longest_length)
{
	double sum = 0, n = 0, total;
	struct outcome o = {0};

	write_words("a.txt", 200, 1);
	write_words("b.txt", 150, 2);
	evaluate("{\"lengths\":[10,100],\"protocol\":\"prefix\"}", &o);
	total = fixture_member(fixture_metric(o.metrics, "nll_token", 100), "value") * 200;
	for (const struct json *m = fixture_metric(o.metrics, "nll_position", 0); m; m = json_next(m)) {
		ck_assert_str_eq(json_get_string(m, "name"), "nll_position");
		ck_assert_double_eq(fixture_member(m, "from"), n / 2 + 1); /* bins follow one another */
		sum += fixture_member(m, "value") * fixture_member(m, "n");
		n += fixture_member(m, "n");
		ck_assert_double_eq(fixture_member(m, "to"), n / 2 + 1);
	}
	ck_assert_double_eq(n, 200);
	ck_assert_double_eq_tol(sum, total, 1e-9 * total);
	release(&o);
}
END_TEST

/* -- tokens of many bytes ---------------------------------------------------------------------- */

/* Bytes and words of tokens a..b (inclusive) of a text, by the definition and slowly. */
static void count_range(const char *text, const struct token_list *t, size_t a, size_t b, int64_t *bytes,
                        int64_t *words)
{
	size_t from = a ? t->ends[a - 1] : 0, to = t->ends[b], n;
	bool space = true;

	*bytes = (int64_t)(to - from);
	*words = 0;
	for (size_t i = 0, len = strlen(text); i < len; i += n) {
		bool here = utf8_is_space(utf8_next(text + i, len - i, &n));

		*words += space && !here && i >= from && i < to; /* a run's first byte lies in the range */
		space = here;
	}
}

START_TEST(bytes_and_words_of_merged_tokens_are_those_of_their_text)
{
	static const char text[] = "The caf\xC3\xA9 \xE2\x80\x94 na\xC3\xAFve,  \xF0\x9F\x98\x80\xF0\x9F\x98\x80 "
	                           "and\n\n\tthe end\xE3\x80\x80of it; "
	                           "whether in the morning or the evening, nothing remained of the house.\n";
	static const int64_t lengths[] = {1, 4, 9, 100};
	struct token_list tokens = {0};
	int64_t bytes, words;

	session_close(session);
	model_free(model);
	ck_ok(model_open("eval/demo/pope-demo", NULL, &model, &e), &e);
	session = fixture_eval_session(model);
	write_doc("a.txt", text);
	ck_ok(tokenizer_encode(model->tokenizer, text, strlen(text), false, &tokens, &e), &e);
	ck_assert_uint_lt(tokens.n, strlen(text) / 2); /* merged */
	for (int drop = 0; drop < 2; drop++) {
		struct outcome o = {0};
		const struct json *item;

		evaluate(drop ? "{\"lengths\":[1,4,9,100],\"last_window\":\"drop\"}" : "{\"lengths\":[1,4,9,100]}", &o);
		item = json_first(o.items);
		for (size_t i = 0; i < COUNT(lengths); i++) {
			size_t last = tokens.n - 1; /* the last scored token */

			if (drop)
				last -= last % (size_t)lengths[i];
			if (!last)
				continue;
			count_range(text, &tokens, 1, last, &bytes, &words);
			ck_assert_double_eq(fixture_member(item, "n_tokens"), (double)last);
			ck_assert_double_eq(fixture_member(item, "n_bytes"), (double)bytes);
			ck_assert_double_eq(fixture_member(item, "n_words"), (double)words);
			item = json_next(item);
		}
		ck_assert_ptr_null(item);
		release(&o);
	}
	token_list_release(&tokens);
}
END_TEST

/* -- keys -------------------------------------------------------------------------------------- */

START_TEST(the_key_is_the_hash_of_windows_ids_and_mask)
{
	/* "abcd" at length 2, windows: [a b c], then [c d], each its number of tokens, ids, mask */
	static const unsigned char bytes[] = {3, 0, 0, 0, 'a', 0, 0,   0, 'b', 0, 0,   0, 'c', 0, 0, 0, 0,
	                                      1, 1, 2, 0, 0,   0, 'c', 0, 0,   0, 'd', 0, 0,   0, 0, 1};
	struct outcome o = {0};
	char hex[SHA256_HEX];

	write_doc("a.txt", "abcd");
	evaluate("{\"lengths\":[2]}", &o);
	sha256_hex(bytes, sizeof bytes, hex);
	hex[16] = '\0';
	ck_assert_str_eq(json_get_string(json_first(o.items), "key"), hex);
	release(&o);
}
END_TEST

/* -- units: order, resume, failure ------------------------------------------------------------- */

START_TEST(units_come_out_the_same_whatever_they_are_scored_with)
{
	struct outcome o = {0};
	struct fixture_units u;
	uint32_t n;

	for (int i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof name, "%d.txt", i);
		write_words(name, 40 + 37 * (size_t)i, (unsigned)i);
	}
	evaluate("{\"lengths\":[5,16,64]}", &o);
	n = evaluation_n_units(o.ev);
	ck_assert_uint_eq(n, 18);
	ck_assert_uint_lt(o.units.n_batches, n); /* small units share a batch */
	fixture_units_init(&u, n);
	for (uint32_t i = n; i-- > 0;)
		fixture_run(o.ev, session, &i, 1, &u); /* alone, backwards */
	for (uint32_t i = 0; i < n; i++)
		ck_assert_str_eq(u.text[i], o.units.text[i]);
	fixture_units_release(&u);
	release(&o);
}
END_TEST

START_TEST(a_large_document_is_cut_into_units_that_fold_to_one_item)
{
	struct outcome o = {0};
	const struct json *item;
	uint64_t tokens = 0;

	write_words("a.txt", 150000, 1);
	evaluate("{\"lengths\":[16]}", &o);
	ck_assert_uint_eq(evaluation_n_units(o.ev), 3);
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_le(evaluation_unit_tokens(o.ev, i), 65536);
		tokens += evaluation_unit_tokens(o.ev, i);
	}
	ck_assert_uint_eq(tokens, 149999);
	/* windows share a batch; of 9375 with 149,999 tokens these are 512.003 */
	ck_assert_uint_eq(evaluation_batch_size(o.ev).n_tokens, 8192);
	ck_assert_uint_eq(evaluation_batch_size(o.ev).n_segments, 513);
	ck_assert_ptr_nonnull(strstr(o.units.text[0], "\"key\""));
	ck_assert_ptr_null(strstr(o.units.text[1], "\"key\""));
	item = json_first(o.items);
	ck_assert_uint_eq(json_count(o.items), 1);
	ck_assert_double_eq(fixture_member(item, "n_tokens"), 149999);
	ck_assert_double_eq(fixture_member(item, "n_bytes"), 149999);
	ck_assert_ptr_null(json_get(item, "partial"));
	release(&o);
}
END_TEST

START_TEST(a_unit_that_is_not_finite_fails_alone)
{
	struct outcome o = {0};

	session_close(session);
	session = NULL;
	fixture_eval_poison(root, "tiny", 'Z');
	model_free(model);
	snprintf(root + strlen(root), sizeof root - strlen(root), "/tiny");
	ck_ok(model_open(root, NULL, &model, &e), &e);
	session = fixture_eval_session(model);
	write_doc("a.txt", "all is well here");
	write_doc("b.txt", "but in Zanzibar");
	write_doc("c.txt", "nothing of that");
	evaluate("{\"lengths\":[8]}", &o);
	ck_assert_ptr_nonnull(o.units.text[0]);
	ck_assert_ptr_null(o.units.text[1]);
	ck_assert_ptr_nonnull(o.units.error[1]);
	ck_assert_ptr_nonnull(strstr(o.units.error[1], "layer"));
	ck_assert_ptr_nonnull(o.units.text[2]);
	ck_assert_uint_eq(json_count(o.items), 2);
	release(&o);
}
END_TEST

static int stop_after_one(void *arg, uint32_t unit, const char *result, uint64_t tokens)
{
	(void)unit;
	(void)result;
	(void)tokens;
	return ++*(int *)arg == 2;
}

static void never_fails(void *arg, uint32_t unit, const struct err *why)
{
	(void)arg;
	ck_abort_msg("unit %u: %s", unit, why->msg);
}

/* -- memory ------------------------------------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* their shadow is larger than any limit */
#else
#define SANITIZED false
#endif

static struct rlimit unlimited;

/* This process may take `bytes` more of address space. */
static void limit_memory(size_t bytes)
{
	FILE *f = fopen("/proc/self/statm", "r");
	struct rlimit limit;
	char line[100];

	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
	fclose(f);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &unlimited), 0);
	limit = unlimited;
	limit.rlim_cur = strtoul(line, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) + bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* All units of an evaluation by `session`, and by one of its model that may take 24 MB. */
static void run_limited(struct evaluation *ev, struct fixture_units *whole, struct fixture_units *limited)
{
	uint32_t n = evaluation_n_units(ev);

	fixture_units_init(whole, n);
	fixture_units_init(limited, n);
	fixture_run(ev, session, NULL, 0, whole);
	session_close(session);
	session = fixture_eval_session(model);
	limit_memory((size_t)24 << 20);
	fixture_run(ev, session, NULL, 0, limited);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &unlimited), 0);
}

/* 4 KB a token for the residual alone: a batch of 8192 needs more than 32 MB, one chain of 256 little. Chains of a
 * single input token are twice as many tokens. */
START_TEST(batches_that_do_not_fit_are_halved_and_a_chain_that_does_not_fails_its_unit)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct fixture_units whole, halved;
	struct session *first = session;
	struct model *old = model;
	struct evaluation *ev;

	if (SANITIZED) {
		fixture_skip("batches that do not fit", "sanitized");
		return;
	}
	f.dim = 1024;
	f.n_layer = 1;
	f.n_vocab = 257;
	f.tokenizer = true;
	model = fixture_model_make(&f);
	session = fixture_eval_session(model);
	write_words("a.txt", 30000, 1);
	write_words("b.txt", 20000, 2);
	ck_ok(try_open(_i ? "{\"lengths\":[1]}" : "{\"lengths\":[256,16384]}", &ev), &e);
	ck_assert_uint_eq(evaluation_n_units(ev), _i ? 2 : 4);
	run_limited(ev, &whole, &halved);
	for (uint32_t i = 0; i < whole.n; i++) {
		if (_i || i % 2 == 0) {
			ck_assert_str_eq(halved.text[i], whole.text[i]);
		} else {
			ck_assert_ptr_null(halved.text[i]);
			ck_assert_ptr_nonnull(strstr(halved.error[i], "a batch of 16385 tokens: "));
		}
	}
	fixture_units_release(&whole);
	fixture_units_release(&halved);
	evaluation_free(ev);
	session_close(session);
	model_free(model);
	session = first;
	model = old;
}
END_TEST

START_TEST(a_run_stops_when_its_sink_or_the_session_says_so)
{
	int n = 0;
	struct evaluation_sink sink = {.done = stop_after_one, .failed = never_fails, .arg = &n};
	struct evaluation *ev = NULL;
	uint32_t units[] = {0, 1, 2};

	write_words("a.txt", 100, 1);
	ck_ok(try_open("{\"lengths\":[4,8,16]}", &ev), &e);
	ck_err(evaluation_run(ev, session, units, 3, &sink, &e), ERR_CANCELLED, "unit 1", &e);
	ck_assert_int_eq(n, 2);
	session_stop(session);
	ck_assert_int_eq(evaluation_run(ev, session, units, 3, &sink, &e), ERR_CANCELLED);
	ck_assert_int_eq(n, 2);
	session_resume(session);
	ck_ok(evaluation_run(ev, session, units, 1, &sink, &e), &e);
	evaluation_free(ev);
}
END_TEST

/* -- subsets and plans ------------------------------------------------------------------------- */

static bool warns(const struct outcome *o, const char *words)
{
	for (const struct json *s = json_first(json_get(o->plan, "warnings")); s; s = json_next(s))
		if (strstr(json_string(s), words))
			return true;
	return false;
}

START_TEST(subsets_take_the_first_long_enough_documents_and_cut_them)
{
	struct outcome o = {0};

	write_words("a.txt", 10, 1);
	write_words("b.txt", 100, 2);
	write_words("c.txt", 100, 3);
	write_words("d.txt", 100, 4);
	evaluate("{\"lengths\":[8],\"min_doc_tokens\":50,\"max_docs\":2,\"max_tokens_per_doc\":33}", &o);
	ck_assert_uint_eq(json_count(o.items), 2);
	ck_assert_str_eq(json_get_string(json_first(o.items), "doc"), "b.txt");
	ck_assert_double_eq(fixture_member(json_first(o.items), "n_tokens"), 32);
	ck_assert(warns(&o, "min_doc_tokens 50 leaves out 1 of 3 documents"));
	ck_assert_double_eq(fixture_member(json_get(o.plan, "dataset"), "n_items"), 2);
	release(&o);
}
END_TEST

START_TEST(short_documents_are_ragged_with_a_warning_or_skipped_and_counted)
{
	struct outcome o = {0};

	write_words("a.txt", 10, 1);
	write_words("b.txt", 100, 2);
	evaluate("{\"lengths\":[8,50]}", &o);
	ck_assert(warns(&o, "length 50: 1 of 2 documents shorter than it, one ragged window each (first: 'a.txt')"));
	ck_assert(!warns(&o, "length 8"));
	ck_assert_uint_eq(json_count(o.items), 4);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "n_skipped", 50), "value"), 0);
	release(&o);
	evaluate("{\"lengths\":[8,50],\"last_window\":\"drop\"}", &o);
	ck_assert(warns(&o, "length 50: 1 of 2 documents without a window (first: 'a.txt')"));
	ck_assert_uint_eq(json_count(o.items), 3);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "n_skipped", 50), "value"), 1);
	ck_assert_double_eq(fixture_member(fixture_metric(o.metrics, "ppl_token", 50), "n_docs"), 1);
	for (const struct json *it = json_first(o.items), *prev = NULL; it; prev = it, it = json_next(it))
		ck_assert_double_eq(fixture_member(it, "id"), prev ? fixture_member(prev, "id") + 1 : 0);
	release(&o);
}
END_TEST

START_TEST(what_has_nothing_to_score_is_refused_at_the_plan)
{
	struct evaluation *ev = NULL;

	ck_err(try_open("{\"lengths\":[8]}", &ev), ERR_INPUT, "dataset 'data': nothing to read: no .txt file", &e);
	write_words("a.txt", 10, 1);
	ck_err(try_open("{\"lengths\":[50],\"last_window\":\"drop\"}", &ev), ERR_INPUT, "no document has a window", &e);
	ck_err(try_open("{\"lengths\":[50],\"protocol\":\"prefix\"}", &ev), ERR_INPUT, "no document has 51 tokens", &e);
	ck_err(try_open("{\"lengths\":[8],\"min_doc_tokens\":11}", &ev), ERR_INPUT, "no document has 11 tokens", &e);
	write_doc("a.txt", "x");
	ck_err(try_open("{\"lengths\":[8]}", &ev), ERR_INPUT, "no document has a window", &e);
	ck_assert_ptr_null(ev);
}
END_TEST

START_TEST(replaced_bytes_are_counted_in_a_warning)
{
	struct outcome o = {0};

	write_doc("a.txt", "ok");
	write_doc("b.txt", "bad \xFF\xC3 bytes");
	evaluate("{\"lengths\":[8]}", &o);
	ck_assert(warns(&o, "invalid UTF-8 became U+FFFD: 2 sequences in 1 of 2 documents (first: 'b.txt')"));
	release(&o);
}
END_TEST

/* -- what the model must have ------------------------------------------------------------------- */

/* Opens DIR/tiny anew after an edit of one of its files. */
static void edit_model(const char *file, const char *from, const char *to)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/tiny", root);
	fixture_edit(path, file, from, to);
	session_close(session);
	model_free(model);
	session = NULL;
	ck_ok(model_open(path, NULL, &model, &e), &e);
}

START_TEST(bos_is_the_bos_token_else_eos_else_refused)
{
	struct evaluation *ev = NULL;
	struct outcome o = {0};
	char first[17];

	write_doc("a.txt", "abc");
	evaluate("{\"lengths\":[4],\"bos\":\"document\"}", &o); /* eos: checked to the bit elsewhere */
	snprintf(first, sizeof first, "%s", json_get_string(json_first(o.items), "key"));
	release(&o);
	edit_model("config.json", "\"bos_token_id\":null", "\"bos_token_id\":7");
	session = fixture_eval_session(model);
	evaluate("{\"lengths\":[4],\"bos\":\"document\"}", &o);
	ck_assert_str_ne(json_get_string(json_first(o.items), "key"), first);
	release(&o);
	edit_model("config.json", "\"bos_token_id\":7", "\"bos_token_id\":null");
	edit_model("config.json", "\"eos_token_id\":256", "\"eos_token_id\":null");
	ck_err(try_open("{\"lengths\":[4],\"bos\":\"document\"}", &ev), ERR_INPUT,
	       "has no bos_token_id or eos_token_id", &e);
	ck_assert_str_eq(e.pointer, "/bos");
}
END_TEST

START_TEST(a_tokenizer_that_adds_bos_gets_a_warning_unless_bos_is_set)
{
	struct outcome o = {0};

	write_doc("a.txt", "abc");
	edit_model("tokenizer.json", "\"post_processor\":null",
	           "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|"
	           "endoftext|>\","
	           "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":"
	           "{\"<|endoftext|>\":{\"id\":\"<|endoftext|>\",\"ids\":[256],\"tokens\":[\"<|endoftext|>\"]}}}");
	session = fixture_eval_session(model);
	evaluate("{\"lengths\":[4]}", &o);
	ck_assert(warns(&o, "tokenizer adds BOS"));
	ck_assert_double_eq(fixture_member(json_first(o.items), "n_tokens"), 2); /* and no BOS was added */
	release(&o);
	evaluate("{\"lengths\":[4],\"bos\":\"document\"}", &o);
	ck_assert(!warns(&o, "tokenizer adds BOS"));
	ck_assert_double_eq(fixture_member(json_first(o.items), "n_tokens"), 3); /* once, not twice */
	release(&o);
}
END_TEST

START_TEST(a_model_without_a_tokenizer_is_refused_by_name)
{
	struct evaluation *ev = NULL;
	char path[2 * PATH_MAX];

	write_doc("a.txt", "abc");
	snprintf(path, sizeof path, "%s/tiny/tokenizer.json", root);
	ck_assert_int_eq(unlink(path), 0);
	edit_model("config.json", "\"bos_token_id\":null", "\"bos_token_id\":7");
	ck_err(try_open("{\"lengths\":[4]}", &ev), ERR_INPUT, "model 'tiny' has no tokenizer.json", &e);
}
END_TEST

/* -- the shared models --------------------------------------------------------------------------- */

START_TEST(the_first_thousand_tokens_of_a_book_have_the_reference_loss)
{
	struct json *reference, *params;
	struct evaluation *ev = NULL;
	struct fixture_units units;
	struct json *items;
	const char *path = fixture_shared("models/rope-29m");
	double want = 0, got;

	if (!path || !fixture_data("pg19/test/15562.txt")) {
		fixture_skip("the_first_thousand_tokens_of_a_book_have_the_reference_loss",
		             "no shared models and books");
		return;
	}
	session_close(session);
	model_free(model);
	ck_ok(model_open(path, NULL, &model, &e), &e);
	session = fixture_eval_session(model);
	ck_ok(json_parse_file(fixture_shared("models/reference.json"), 1 << 24, &reference, &e), &e);
	for (const struct json *b = json_first(json_get(json_get(json_get(reference, "models"), "rope-29m"), "books"));
	     b; b = json_next(b))
		if (!strcmp(json_get_string(b, "book"), "15562") && fixture_member(b, "L") == 1024)
			want = fixture_member(b, "nll_sum");
	params = fixture_params(task_find("pg19", &e), "{\"lengths\":[1024],\"max_tokens_per_doc\":1025}");
	ck_ok(evaluation_open(model, task_find("pg19", &e), params, fixture_data("pg19/test/15562.txt"), "book", NULL,
	                      NULL, &ev, &e),
	      &e);
	fixture_units_init(&units, evaluation_n_units(ev));
	fixture_run(ev, session, NULL, 0, &units);
	items = fixture_items(task_find("pg19", &e), params, &units);
	got = fixture_member(json_first(items), "nll");
	ck_assert_double_eq(fixture_member(json_first(items), "n_tokens"), 1024);
	ck_assert_double_eq_tol(got, want, 1e-5 * want); /* f32, another order of sums */
	json_free(items);
	json_free(params);
	json_free(reference);
	fixture_units_release(&units);
	evaluation_free(ev);
}
END_TEST

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	ck_assert_uint_le(done, total);
	ck_assert_uint_eq(total, 300);
	return done >= 200;
}

START_TEST(a_plan_can_be_stopped)
{
	struct evaluation_watch watch = {.tick = stop_at_once};
	struct json *params = fixture_params(task_find("pg19", &e), "{\"lengths\":[8]}");
	struct evaluation *ev = NULL;

	write_words("a.txt", 100, 1);
	write_words("b.txt", 100, 2);
	write_words("c.txt", 100, 3);
	ck_err(evaluation_open(model, task_find("pg19", &e), params, data, "data", NULL, &watch, &ev, &e),
	       ERR_CANCELLED, "stopped", &e);
	json_free(params);
}
END_TEST

Suite *evaluation_suite(void);
Suite *evaluation_suite(void)
{
	Suite *s = suite_create("evaluation");
	TCase *c = tcase_create("evaluation");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, sums_are_those_of_the_definition_for_every_protocol);
	tcase_add_test(c, words_follow_the_text_and_bytes_telescope_over_windows);
	tcase_add_test(c, bytes_and_words_of_merged_tokens_are_those_of_their_text);
	tcase_add_test(c, prefix_is_the_first_window_of_windows_to_the_bit);
	tcase_add_test(c, the_bins_of_position_sum_to_the_longest_length);
	tcase_add_test(c, the_key_is_the_hash_of_windows_ids_and_mask);
	tcase_add_test(c, units_come_out_the_same_whatever_they_are_scored_with);
	tcase_add_test(c, a_large_document_is_cut_into_units_that_fold_to_one_item);
	tcase_add_test(c, a_unit_that_is_not_finite_fails_alone);
	tcase_add_loop_test(c, batches_that_do_not_fit_are_halved_and_a_chain_that_does_not_fails_its_unit, 0, 2);
	tcase_add_test(c, a_run_stops_when_its_sink_or_the_session_says_so);
	tcase_add_test(c, subsets_take_the_first_long_enough_documents_and_cut_them);
	tcase_add_test(c, short_documents_are_ragged_with_a_warning_or_skipped_and_counted);
	tcase_add_test(c, what_has_nothing_to_score_is_refused_at_the_plan);
	tcase_add_test(c, replaced_bytes_are_counted_in_a_warning);
	tcase_add_test(c, bos_is_the_bos_token_else_eos_else_refused);
	tcase_add_test(c, a_tokenizer_that_adds_bos_gets_a_warning_unless_bos_is_set);
	tcase_add_test(c, a_model_without_a_tokenizer_is_refused_by_name);
	tcase_add_test(c, the_first_thousand_tokens_of_a_book_have_the_reference_loss);
	tcase_add_test(c, a_plan_can_be_stopped);
	suite_add_tcase(s, c);
	return s;
}
