/* Task pg19 without a model: the geometry of windows against its definition, the bins, and the folds from unit results
 * made by hand. With a model: test_evaluation.c. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/pg19.h"
#include "eval/stats.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct err e;

/* -- windows ----------------------------------------------------------------------------------- */

/* The definition, a token at a time: scored[i] = 1 + the first input of the window that scores prediction i, or 0. */
static void define(int64_t n, int64_t length, int64_t stride, bool drop, int64_t *scored)
{
	memset(scored, 0, (size_t)(n + 1) * sizeof *scored);
	for (int64_t k = 0, last_scored = 0;; k++) {
		int64_t start = k * stride, last = start + length; /* predicts start+1 .. last */

		if (last_scored >= n || start >= n)
			break;
		if (drop && last > n) /* fewer than `length` predictions */
			break;
		for (int64_t i = last_scored + 1; i <= last && i <= n; i++)
			scored[i] = start + 1;
		last_scored = last < n ? last : n;
	}
}

static void check_geometry(int64_t n, int64_t length, int64_t stride, bool drop)
{
	struct window_rule r = {.length = (uint64_t)length, .stride = (uint64_t)stride, .drop = drop};
	int64_t *want = calloc((size_t)n + 1, sizeof *want), *got = calloc((size_t)n + 1, sizeof *got);
	uint64_t count = window_count(&r, (uint64_t)n);

	define(n, length, stride, drop, want);
	for (uint64_t k = 0; k < count; k++) {
		struct window w;

		window_at(&r, (uint64_t)n, k, &w);
		ck_assert_uint_eq(w.start, k * (uint64_t)stride);
		ck_assert_uint_ge(w.first, 1);
		ck_assert_uint_lt(w.first, w.len); /* something is scored */
		ck_assert_uint_le(w.len - 1, (uint64_t)length);
		ck_assert_uint_le(w.start + w.len - 1, (uint64_t)n);
		if (k) /* the context of every scored token: at least L - stride tokens before the scored run */
			ck_assert_uint_eq(w.first, (uint64_t)(length - stride + 1));
		for (uint64_t i = w.start + w.first; i < w.start + w.len; i++) {
			if (got[i]) /* ck_assert is slow here */
				ck_abort_msg("token %lu is scored twice", i);
			got[i] = (int64_t)w.start + 1;
		}
	}
	for (int64_t i = 0; i <= n; i++) {
		if (got[i] != want[i])
			ck_abort_msg("n %ld L %ld stride %ld drop %d: token %ld by window at %ld, not %ld", n, length,
			             stride, drop, i, got[i] - 1, want[i] - 1);
		if (i && !drop && !got[i])
			ck_abort_msg("token %ld is not scored", i);
	}
	free(want);
	free(got);
}

START_TEST(every_token_but_the_first_is_scored_exactly_once_for_all_sizes)
{
	for (int64_t n = 0; n <= 30; n++)
		for (int64_t length = 1; length <= 12; length++)
			for (int64_t stride = 1; stride <= length; stride++)
				for (int drop = 0; drop < 2; drop++)
					check_geometry(n, length, stride, drop);
}
END_TEST

START_TEST(every_token_is_scored_once_in_large_documents_too)
{
	srand(1);
	for (int i = 0; i < 100; i++) {
		int64_t n = rand() % 20000, length = 1 + rand() % 3000;

		check_geometry(n, length, 1 + rand() % length, i % 2);
	}
}
END_TEST

START_TEST(a_short_document_is_one_ragged_window_unless_dropped)
{
	struct window_rule r = {.length = 10, .stride = 10};
	struct window w;

	ck_assert_uint_eq(window_count(&r, 0), 0);
	ck_assert_uint_eq(window_count(&r, 9), 1);
	window_at(&r, 9, 0, &w);
	ck_assert_uint_eq(w.len, 10); /* nine inputs, nine predictions */
	r.drop = true;
	ck_assert_uint_eq(window_count(&r, 9), 0);
	ck_assert_uint_eq(window_count(&r, 10), 1);
	ck_assert_uint_eq(window_count(&r, 19), 1);
}
END_TEST

START_TEST(bins_of_position_have_the_distinct_edges_of_half_powers_of_two)
{
	static const int64_t want[] = {1,  2,  4,   5,   8,   11,  16,  22,  32,   45,
	                               64, 90, 128, 181, 256, 362, 512, 724, 1024, 1025};
	int64_t edges[PG19_MAX_EDGES];

	ck_assert_uint_eq(pg19_edges(1024, edges), COUNT(want));
	ck_assert_mem_eq(edges, want, sizeof want);
	ck_assert_uint_eq(pg19_edges(1, edges), 2);
	ck_assert_int_eq(edges[0], 1);
	ck_assert_int_eq(edges[1], 2);
	ck_assert_uint_eq(pg19_edges(6, edges), 5); /* 1 2 4 5 | 7 */
	ck_assert_int_eq(edges[4], 7);
	ck_assert_uint_le(pg19_edges(1 << 24, edges), PG19_MAX_EDGES);
}
END_TEST

/* -- statistics -------------------------------------------------------------------------------- */

START_TEST(the_clustered_standard_error_is_the_hand_computed_one)
{
	/* r = 40/12 = 10/3; residuals 10 - 40/3 = -10/3 and 30 - 80/3 = 10/3; sum of squares 200/9;
	 * sqrt(2/1 * 200/9) / 12 = sqrt(400/9) / 12 = (20/3)/12 = 5/9 */
	static const struct cluster c[] = {{10, 4}, {30, 8}};
	static const double x[] = {1, 2, 6};

	ck_assert_double_eq_tol(ratio_value(c, 2), 10.0 / 3, 1e-15);
	ck_assert_double_eq_tol(ratio_stderr(c, 2), 5.0 / 9, 1e-15);
	ck_assert(isnan(ratio_stderr(c, 1)));
	ck_assert(isnan(ratio_value(c, 0)));
	/* mean 3, squares 4 + 1 + 9 = 14, sd^2 = 7, se = sqrt(7/3) */
	ck_assert_double_eq_tol(mean_value(x, 3), 3, 1e-15);
	ck_assert_double_eq_tol(mean_stderr(x, 3), sqrt(7.0 / 3), 1e-15);
	ck_assert(isnan(mean_stderr(x, 1)));
}
END_TEST

/* -- folds ------------------------------------------------------------------------------------- */

static struct json *fold(const char *params_text, const char *const *units, size_t n, struct json **items)
{
	struct json *params = fixture_params(task_find("pg19", &e), params_text), *metrics;
	struct fixture_units u;

	fixture_units_init(&u, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		u.text[i] = units[i] ? strdup(units[i]) : NULL;
	metrics = fixture_metrics(task_find("pg19", &e), params, &u);
	if (items)
		*items = fixture_items(task_find("pg19", &e), params, &u);
	fixture_units_release(&u);
	json_free(params);
	return metrics;
}

#define UNIT(doc, item, length, part, parts, key, n, nll, bytes, words)                                                \
	"{\"doc\":" #doc ",\"name\":\"d" #doc ".txt\",\"item\":" #item ",\"length\":" #length key ",\"part\":" #part   \
	",\"parts\":" #parts ",\"n\":" #n ",\"nll\":" #nll ",\"bytes\":" #bytes ",\"words\":" #words "}"
#define KEY(k) ",\"key\":\"" k "\""

static void check_metric(const struct json *metrics, const char *name, int64_t length, double value, double se)
{
	const struct json *m = fixture_metric(metrics, name, length);

	ck_assert_msg(m != NULL, "no %s at %ld", name, length);
	ck_assert_double_eq_tol(fixture_member(m, "value"), value, 1e-12 * fabs(value));
	ck_assert_double_eq_tol(fixture_member(m, "stderr"), se, 1e-12 * fabs(se));
}

START_TEST(metrics_are_token_weighted_and_clustered_by_document)
{
	/* document 0: two parts, together S 10, n 4, B 20, W 3; document 1: S 30, n 8, B 50, W 6 */
	static const char *const units[] = {
	    UNIT(0, 0, 64, 0, 2, KEY("0123456789abcdef"), 3, 7.5, 16, 2),
	    UNIT(0, 0, 64, 1, 2, "", 1, 2.5, 4, 1),
	    UNIT(1, 1, 64, 0, 1, KEY("00000000000000aa"), 8, 30, 50, 6),
	};
	struct json *items, *m = fold("{\"lengths\":[64]}", units, COUNT(units), &items);
	const struct json *it = json_first(items);
	double r, se;

	check_metric(m, "nll_token", 64, 10.0 / 3, 5.0 / 9);
	check_metric(m, "ppl_token", 64, exp(10.0 / 3), exp(10.0 / 3) * 5 / 9);
	/* bytes: r = 40/70; residuals 10 - 80/7 = -10/7, 30 - 200/7 = 10/7; sqrt(2 * 200/49) / 70 = (20/7)/70 = 2/49 */
	check_metric(m, "bits_per_byte", 64, 4.0 / 7 / log(2), 2.0 / 49 / log(2));
	/* words: r = 40/9; residuals 10 - 40/3 = -10/3, 10/3; (20/3)/9 */
	check_metric(m, "ppl_word", 64, exp(40.0 / 9), exp(40.0 / 9) * 20 / 27);
	/* macro: means 2.5 and 3.75: 3.125, sd = .625 sqrt 2, se = .625 */
	check_metric(m, "ppl_doc_macro", 64, exp(3.125), exp(3.125) * .625);
	ck_assert_double_eq(fixture_member(fixture_metric(m, "ppl_token", 64), "n"), 12);
	ck_assert_double_eq(fixture_member(fixture_metric(m, "ppl_token", 64), "n_docs"), 2);
	ck_assert_str_eq(json_get_string(fixture_metric(m, "bits_per_byte", 64), "unit"), "bits/byte");

	ck_assert_uint_eq(json_count(items), 2);
	ck_assert_str_eq(json_get_string(it, "key"), "0123456789abcdef");
	ck_assert_str_eq(json_get_string(it, "doc"), "d0.txt");
	ck_assert_double_eq(fixture_member(it, "nll"), 10);
	ck_assert_double_eq(fixture_member(it, "n_tokens"), 4);
	ck_assert_double_eq(fixture_member(it, "n_bytes"), 20);
	ck_assert_double_eq(fixture_member(it, "n_words"), 3);
	ck_assert_ptr_null(json_get(it, "partial"));
	r = fixture_member(json_next(it), "id");
	se = fixture_member(json_next(it), "nll");
	ck_assert_double_eq(r, 1);
	ck_assert_double_eq(se, 30);
	json_free(items);
	json_free(m);
}
END_TEST

START_TEST(the_mean_of_window_means_is_not_what_is_reported)
{
	/* 10 tokens of loss 1 and 1 of loss 12: (10 + 12)/11 = 2, not (1 + 12)/2 */
	static const char *const units[] = {UNIT(0, 0, 64, 0, 2, KEY("0123456789abcdef"), 10, 10, 10, 1),
	                                    UNIT(0, 0, 64, 1, 2, "", 1, 12, 1, 1)};
	struct json *m = fold("{\"lengths\":[64]}", units, COUNT(units), NULL);

	ck_assert_double_eq_tol(fixture_member(fixture_metric(m, "nll_token", 64), "value"), 2, 1e-15);
	json_free(m);
}
END_TEST

static void check_null(const struct json *metrics, const char *name, int64_t length, const char *value_null,
                       const char *reason)
{
	const struct json *m = fixture_metric(metrics, name, length);

	ck_assert_ptr_nonnull(m);
	ck_assert_int_eq(json_is_null(json_get(m, "value")), value_null != NULL);
	ck_assert(json_is_null(json_get(m, "stderr")));
	ck_assert_str_eq(json_get_string(m, "reason"), reason);
}

START_TEST(what_is_not_finite_is_null_with_a_reason)
{
	static const char *const units[] = {
	    "{\"doc\":0,\"name\":\"d0.txt\",\"item\":0,\"length\":16,\"skipped\":true}",
	    UNIT(0, 0, 32, 0, 1, KEY("0123456789abcdef"), 2, 1e6, 0, 0),
	};
	struct json *items, *m = fold("{\"lengths\":[16,32]}", units, COUNT(units), &items);

	check_null(m, "nll_token", 32, NULL, "one_document");
	check_null(m, "ppl_token", 32, "null", "overflow");
	check_null(m, "ppl_doc_macro", 32, "null", "overflow");
	check_null(m, "bits_per_byte", 32, "null", "no_bytes");
	check_null(m, "ppl_word", 32, "null", "no_words");
	check_null(m, "ppl_token", 16, "null", "no_documents");
	ck_assert_double_eq(fixture_member(fixture_metric(m, "nll_token", 32), "value"), 5e5);
	ck_assert_double_eq(fixture_member(fixture_metric(m, "n_skipped", 16), "value"), 1);
	ck_assert_double_eq(fixture_member(fixture_metric(m, "n_skipped", 32), "value"), 0);
	ck_assert_uint_eq(json_count(items), 1);
	json_free(items);
	json_free(m);
}
END_TEST

START_TEST(an_item_with_missing_units_is_partial_and_has_no_key)
{
	static const char *const units[] = {
	    UNIT(0, 0, 64, 0, 3, KEY("0123456789abcdef"), 3, 7.5, 16, 2),
	    NULL,
	    UNIT(0, 0, 64, 2, 3, "", 1, 2.5, 4, 1),
	    UNIT(1, 1, 64, 0, 1, KEY("00000000000000aa"), 8, 30, 50, 6),
	};
	struct json *items, *m = fold("{\"lengths\":[64]}", units, COUNT(units), &items);
	const struct json *it = json_first(items);

	ck_assert_uint_eq(json_count(items), 2);
	ck_assert(json_true(json_get(it, "partial")));
	ck_assert(json_is_null(json_get(it, "key")));
	ck_assert_double_eq(fixture_member(it, "nll"), 10);
	ck_assert_ptr_null(json_get(json_next(it), "partial"));
	ck_assert_str_eq(json_get_string(json_next(it), "key"), "00000000000000aa");
	json_free(items);
	json_free(m);
}
END_TEST

START_TEST(sliding_metrics_show_the_stride_of_each_length)
{
	static const char *const units[] = {UNIT(0, 0, 16, 0, 1, KEY("0123456789abcdef"), 8, 8, 8, 2),
	                                    UNIT(0, 1, 64, 0, 1, KEY("0123456789abcdef"), 8, 8, 8, 2)};
	struct json *m =
	    fold("{\"lengths\":[16,64],\"protocol\":\"sliding\",\"stride\":32}", units, COUNT(units), NULL);

	ck_assert_double_eq(fixture_member(fixture_metric(m, "ppl_token", 16), "stride"), 16);
	ck_assert_double_eq(fixture_member(fixture_metric(m, "ppl_token", 64), "stride"), 32);
	json_free(m);
}
END_TEST

START_TEST(a_prefix_unit_is_an_item_at_every_length_and_its_bins)
{
	/* edges for max 4: 1 2 4 5: bins of 1, 2, 1 predictions */
	static const char *const units[] = {
	    "{\"doc\":0,\"name\":\"a\",\"item\":0,\"nll\":[3,10],\"bytes\":[4,8],\"words\":[1,2],\"bins\":[1,5,4],"
	    "\"keys\":[\"0000000000000000\",\"0000000000000001\"]}",
	    "{\"doc\":1,\"name\":\"b\",\"item\":2,\"nll\":[5,14],\"bytes\":[4,8],\"words\":[1,2],\"bins\":[3,7,4],"
	    "\"keys\":[\"0000000000000002\",\"0000000000000003\"]}",
	};
	struct json *items, *m = fold("{\"lengths\":[2,4],\"protocol\":\"prefix\"}", units, COUNT(units), &items);
	const struct json *bin = fixture_metric(m, "nll_position", 0), *it = json_first(items);

	/* length 2: r = 8/4; residuals -1, 1; sqrt(2 * 2)/4 = 1/2. length 4: r = 24/8 = 3, residuals -2, 2; 4/8 */
	check_metric(m, "nll_token", 2, 2, .5);
	check_metric(m, "nll_token", 4, 3, .5);
	ck_assert_double_eq(fixture_member(bin, "from"), 1);
	ck_assert_double_eq(fixture_member(bin, "to"), 2);
	ck_assert_double_eq(fixture_member(bin, "value"), 2);
	ck_assert_double_eq(fixture_member(bin, "n"), 2);
	bin = json_next(bin);
	ck_assert_double_eq(fixture_member(bin, "from"), 2);
	ck_assert_double_eq(fixture_member(bin, "to"), 4);
	ck_assert_double_eq(fixture_member(bin, "value"), 3);
	ck_assert_double_eq(fixture_member(bin, "n"), 4);
	bin = json_next(bin);
	ck_assert_double_eq(fixture_member(bin, "to"), 5);
	ck_assert_ptr_null(json_next(bin));
	ck_assert_uint_eq(json_count(items), 4);
	for (int64_t i = 0; i < 4; i++, it = json_next(it)) {
		ck_assert_double_eq(fixture_member(it, "id"), (double)i);
		ck_assert_double_eq(fixture_member(it, "length"), i % 2 ? 4 : 2);
	}
	json_free(items);
	json_free(m);
}
END_TEST

START_TEST(a_malformed_unit_is_refused_with_its_number)
{
	static const char *const bad[] = {"{}",
	                                  "[]",
	                                  "{\"item\":0}",
	                                  "not json",
	                                  UNIT(0, 0, 63, 0, 1, "", 3, 7.5, 16, 2),
	                                  "{\"doc\":0,\"name\":\"a\",\"item\":0,\"length\":64,\"part\":0,\"parts\":1}"};
	struct json *params = fixture_params(task_find("pg19", &e), "{\"lengths\":[64]}");

	for (size_t i = 0; i < COUNT(bad); i++) {
		struct buf out = BUF_INIT(1 << 16);
		struct json_writer w = JSON_WRITER(&out);
		struct fixture_units u;

		fixture_units_init(&u, 2);
		u.text[1] = strdup(bad[i]);
		ck_err(task_metrics(task_find("pg19", &e), params, fixture_units_source(&u), &w, NULL, &e), ERR_INPUT,
		       "unit 1", &e);
		fixture_units_release(&u);
		buf_release(&out);
	}
	json_free(params);
}
END_TEST

/* -- a pass a length ----------------------------------------------------------------------------- */

/* The unit's result with scores that depend on the position in the window alone, as those of a scheme that does not
 * depend on the total length do. */
static char *prefix_result(bool pass_each_length)
{
	static int64_t lengths[] = {2, 5, 8};
	uint32_t seq[12], words[12];
	uint64_t ends[12];
	char name[] = "a.txt";
	struct text_doc doc = {.name = name, .seq = seq, .ends = ends, .words = words, .n = 12};
	struct pg19_unit unit = {.length = 2, .parts = 1, .n_window = pass_each_length ? 3 : 1};
	struct pg19 plan = {.lengths = lengths,
	                    .n_lengths = 3,
	                    .protocol = PROTOCOL_PREFIX,
	                    .docs = {&doc, 1, 1},
	                    .units = &unit,
	                    .n_units = 1,
	                    .pass_each_length = pass_each_length};
	struct batch_builder b = {0};
	struct buf out = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&out);
	struct token_score *scores;

	for (uint32_t i = 0; i < 12; i++) {
		seq[i] = i + 1;
		ends[i] = 3 * i;
		words[i] = i / 2;
	}
	ck_ok(pg19_add(&plan, 0, &b, &e), &e);
	ck_assert_uint_eq(b.n_segments, pass_each_length ? 3 : 1);
	scores = calloc(b.n_tokens, sizeof *scores);
	ck_assert_ptr_nonnull(scores);
	for (size_t s = 0; s < b.n_segments; s++)
		for (uint32_t i = 0; i < b.segments[s].len; i++) {
			ck_assert_uint_eq(b.tokens[b.segments[s].start + i], i + 1);
			ck_assert_uint_eq(b.score[b.segments[s].start + i], i > 0);
			scores[b.segments[s].start + i].logprob = -(float)(i * i) / 8;
		}
	ck_ok(pg19_result(&plan, 0, scores, &w, &e), &e);
	free(scores);
	batch_builder_release(&b);
	return buf_steal(&out);
}

START_TEST(a_pass_a_length_gives_what_one_pass_gives_where_lengths_do_not_matter)
{
	char *one = prefix_result(false), *each = prefix_result(true);

	ck_assert_str_eq(one, each);
	/* sums of i*i/8: up to 2: 5/8, up to 5: 55/8, up to 8: 204/8; bins [1,2) [2,4) [4,5) [5,8) [8,9) */
	ck_assert_ptr_nonnull(strstr(one, "\"nll\":[0.625,6.875,25.5],\"bins\":[0.125,1.625,2,13.75,8],"
	                                  "\"bytes\":[6,15,24],\"words\":[1,2,4]"));
	free(one);
	free(each);
}
END_TEST

/* -- results ----------------------------------------------------------------------------------- */

START_TEST(a_result_with_missing_units_is_marked_partial)
{
	static const char plan_text[] =
	    "{\"model\":{\"name\":\"m\",\"fingerprint\":\"sha256:1\",\"n_params\":5,\"position\":{}},"
	    "\"dataset\":{\"name\":\"d\",\"fingerprint\":\"sha256:2\",\"n_items\":1},"
	    "\"engine\":{\"device\":\"cuda:0\",\"dtype\":\"bf16\",\"model_flops_per_token\":2e9,\"peak_flops\":1e11},"
	    "\"n_units\":2,\"warnings\":[\"w\"]}";
	static const char *const units[] = {UNIT(0, 0, 64, 0, 1, KEY("0123456789abcdef"), 3, 7.5, 16, 2),
	                                    UNIT(1, 1, 64, 0, 1, KEY("0123456789abcdef"), 3, 7.5, 16, 2)};
	struct json *plan = fixture_json(plan_text),
	            *params = fixture_params(task_find("pg19", &e), "{\"lengths\":[64]}");

	for (uint32_t have = 1; have <= 2; have++) {
		struct result_stats stats = {.tokens = 100, .seconds = 4};
		struct buf out = BUF_INIT(1 << 16);
		struct json_writer w = JSON_WRITER(&out);
		struct curve_point *points;
		struct fixture_units u;
		struct json *r;
		size_t n;

		fixture_units_init(&u, 2);
		for (uint32_t i = 0; i < have; i++)
			u.text[i] = strdup(units[i]);
		ck_ok(result_write(&w, task_find("pg19", &e), params, plan, fixture_units_source(&u), &stats, &e), &e);
		r = fixture_json(buf_str(&out));
		ck_assert_int_eq(json_true(json_get(r, "partial")), have == 1);
		ck_assert_double_eq(fixture_member(r, "schema"), 1);
		ck_assert_double_eq(fixture_member(json_get(r, "engine"), "tokens_per_s"), 25);
		ck_assert_double_eq(fixture_member(json_get(r, "engine"), "tflops_per_s"), 0.05);
		ck_assert_double_eq(fixture_member(json_get(r, "engine"), "mfu"), 0.5);
		ck_assert_str_eq(json_get_string(json_get(r, "model"), "name"), "m");
		ck_assert_str_eq(json_get_string(json_get(r, "task"), "name"), "pg19");
		ck_assert_uint_eq(json_count(json_get(r, "warnings")), 1);
		ck_ok(result_curve(json_get(r, "metrics"), "nll_token", &points, &n, &e), &e);
		ck_assert_uint_eq(n, 1);
		ck_assert_int_eq(points[0].length, 64);
		ck_assert_double_eq(points[0].value, 2.5);
		ck_assert(have == 1 ? points[0].stderr_ == -1 : points[0].stderr_ == 0);
		free(points);
		json_free(r);
		buf_release(&out);
		fixture_units_release(&u);
	}
	json_free(plan);
	json_free(params);
}
END_TEST

Suite *pg19_suite(void);
Suite *pg19_suite(void)
{
	Suite *s = suite_create("pg19");
	TCase *windows = tcase_create("windows"), *folds = tcase_create("folds");

	tcase_add_test(windows, every_token_but_the_first_is_scored_exactly_once_for_all_sizes);
	tcase_add_test(windows, every_token_is_scored_once_in_large_documents_too);
	tcase_add_test(windows, a_short_document_is_one_ragged_window_unless_dropped);
	tcase_add_test(windows, bins_of_position_have_the_distinct_edges_of_half_powers_of_two);
	tcase_add_test(windows, a_pass_a_length_gives_what_one_pass_gives_where_lengths_do_not_matter);
	suite_add_tcase(s, windows);
	tcase_add_test(folds, the_clustered_standard_error_is_the_hand_computed_one);
	tcase_add_test(folds, metrics_are_token_weighted_and_clustered_by_document);
	tcase_add_test(folds, the_mean_of_window_means_is_not_what_is_reported);
	tcase_add_test(folds, what_is_not_finite_is_null_with_a_reason);
	tcase_add_test(folds, an_item_with_missing_units_is_partial_and_has_no_key);
	tcase_add_test(folds, sliding_metrics_show_the_stride_of_each_length);
	tcase_add_test(folds, a_prefix_unit_is_an_item_at_every_length_and_its_bins);
	tcase_add_test(folds, a_malformed_unit_is_refused_with_its_number);
	tcase_add_test(folds, a_result_with_missing_units_is_marked_partial);
	suite_add_tcase(s, folds);
	return s;
}
