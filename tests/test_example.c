/* Tasks made of examples: tokens as lm-eval cuts them, truncation, shared contexts, shots, groups, and the folds, on a
 * byte-level model: a token is a byte (256: end of text), so that what is read and scored can be written down. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/example.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))
static struct err e;
static char root[PATH_MAX - 64];
static struct model *model;
static bool merging; /* the model's tokenizer has the merge "a b", as token 256, and the end of text is 257 */

static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	model = fixture_eval_model(root, "tiny", "rope");
}

static void tear_down(void)
{
	model_free(model);
}

static const char *below(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", root, name);
	return path;
}

static void write_file(const char *name, const char *text)
{
	fixture_write(root, name, text, strlen(text));
}

/* Replaces the model by one whose tokenizer.json is changed. */
static void edit_model(const char *from, const char *to)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	char dir[PATH_MAX];
	static int n;

	f.n_vocab = 300;
	f.tokenizer = true;
	snprintf(dir, sizeof dir, "%s/edited%d", root, n++);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	fixture_model_write(dir, &f);
	fixture_edit(dir, "tokenizer.json", from, to);
	merging = strstr(to, "\"ab\"") != NULL;
	if (merging) {
		fixture_edit(dir, "tokenizer.json", "\"merges\":[]", "\"merges\":[\"a b\"]");
		fixture_edit(dir, "tokenizer.json", "\"id\":256", "\"id\":257");
	}
	model_free(model);
	ck_ok(model_open(dir, NULL, &model, &e), &e);
}

#define ADDS_BOS                                                                                                       \
	"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"                   \
	"\"<|endoftext|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"                  \
	"\"special_tokens\":{\"<|endoftext|>\":{\"id\":\"<|endoftext|>\",\"ids\":[256],\"tokens\":["                   \
	"\"<|endoftext|>\"]}}}"

static err_code try_open(const struct task *t, const char *params, const char *file, const struct registry *registry,
                         struct evaluation **ev)
{
	struct json *p = fixture_params(t, params);
	err_code rc = evaluation_open(model, t, p, below(file), file, registry, NULL, ev, &e);

	json_free(p);
	return rc;
}

static struct evaluation *must_open(const char *task, const char *params, const char *file)
{
	struct evaluation *ev = NULL;

	ck_ok(try_open(task_find(task, &e), params, file, NULL, &ev), &e);
	return ev;
}

/* What a unit reads: a segment is "PARENT 'bytes|scored bytes'", the end of text is "#", the merged token "(ab)". */
static const char *layout(const struct evaluation *ev, uint32_t unit)
{
	static struct buf out = {.max = 1 << 20};
	struct batch_builder b = {0};

	buf_clear(&out);
	ck_ok(ev->task->add(ev->plan, unit, &b, &e), &e);
	for (size_t i = 0; i < b.n_segments; i++) {
		const struct segment *s = &b.segments[i];

		buf_printf(&out, "%s%d '", i ? ", " : "", s->parent);
		for (uint32_t k = s->start; k < s->start + s->len; k++) {
			if (b.score[k] && (k == s->start || !b.score[k - 1]))
				buf_putc(&out, '|');
			if (b.tokens[k] < 256)
				buf_putc(&out, (char)b.tokens[k]);
			else
				buf_puts(&out, merging ? "(ab)" : "#");
		}
		buf_putc(&out, '\'');
	}
	batch_builder_release(&b);
	return buf_str(&out);
}

static void write_choices(const char *query, const char *a, const char *b)
{
	struct buf line = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&line);

	json_begin_object(&w, NULL);
	json_put_string(&w, "query", query);
	json_begin_array(&w, "choices");
	json_put_string(&w, NULL, a);
	json_put_string(&w, NULL, b);
	json_end_array(&w);
	json_put_int(&w, "gold", 1);
	json_end_object(&w);
	write_file("q.jsonl", buf_str(&line));
	buf_release(&line);
}

/* -- tokens ------------------------------------------------------------------------------------ */

START_TEST(context_and_choices_become_one_context_and_a_continuation_each)
{
	static const struct {
		const char *query, *a, *b, *want;
	} cases[] = {
	    {"to be", "or", "not", "-1 'to be', 0 '| or', 0 '| not'"},
	    /* white space at the context's end moves to the continuation, newlines and U+00A0 too */
	    {"to  ", "or", "not", "-1 'to', 0 '|   or', 0 '|   not'"},
	    {"to \n\t\xC2\xA0", "or", "not", "-1 'to', 0 '| \n\t\xC2\xA0 or', 0 '| \n\t\xC2\xA0 not'"},
	    {" to\x1F", "or", "not", "-1 ' to', 0 '|\x1F or', 0 '|\x1F not'"},
	    /* an empty context is the end of text, here the only such token; so is one of white space */
	    {"", "or", "not", "-1 '#', 0 '| or', 0 '| not'"},
	    {" \n", "or", "not", "-1 '#', 0 '| \n or', 0 '| \n not'"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct evaluation *ev;

		write_choices(cases[i].query, cases[i].a, cases[i].b);
		ev = must_open("choices", "{}", "q.jsonl");
		ck_assert_str_eq(layout(ev, 0), cases[i].want);
		evaluation_free(ev);
	}
}
END_TEST

/* A task of continuations without a joint, for what begins with a special token. */
static err_code read_bare(struct examples *x, const struct json *row, struct err *err)
{
	const char *query, *a;

	if (row_string(row, "query", &query, err) || row_string(row, "a", &a, err))
		return err->code;
	x->group = json_get_string(row, "group");
	x->max_context_tokens = json_get(row, "max") ? 3 : 0;
	buf_puts(&x->text, query);
	examples_choice(x, "");
	buf_puts(&x->text, a);
	examples_choice(x, "");
	buf_puts(&x->text, "z");
	return examples_add(x, 0, err);
}

static err_code read_bare_files(struct examples *x, const struct param_value *v, struct err *err)
{
	(void)v;
	return examples_each_row(x, read_bare, err);
}

static const struct example_reader bare_reader = {.files = ".jsonl", .read = read_bare_files};
static const struct task bare = {.name = "bare", .version = 1, .summary = "", .dataset = "", CHOICE_TASK(bare_reader)};

static void check_bare(const char *row, const char *want)
{
	struct evaluation *ev = NULL;

	write_file("bare.jsonl", row);
	ck_ok(try_open(&bare, "{}", "bare.jsonl", NULL, &ev), &e);
	ck_assert_str_eq(layout(ev, 0), want);
	evaluation_free(ev);
}

START_TEST(a_continuation_that_begins_with_the_prefix_token_has_it_as_its_context)
{
	struct evaluation *ev = NULL;

	check_bare("{\"query\":\"\",\"a\":\"<|endoftext|>x\"}", "-1 '#', 0 '|x', 0 '|z'");
	check_bare("{\"query\":\"q\",\"a\":\"<|endoftext|>x\"}", "-1 'q', 0 '|#x', 0 '|z'");
	write_file("bare.jsonl", "{\"query\":\"\",\"a\":\"<|endoftext|>\"}");
	ck_err(try_open(&bare, "{}", "bare.jsonl", NULL, &ev), ERR_INPUT, "choice 0 has 0 tokens to score", &e);
}
END_TEST

START_TEST(an_empty_context_is_refused_where_the_model_has_no_token_to_begin_with)
{
	struct evaluation *ev = NULL;

	model->config.eos = -1;
	write_choices("", "or", "not");
	ck_err(try_open(task_find("choices", &e), "{}", "q.jsonl", NULL, &ev), ERR_INPUT,
	       "line 1: an empty context, and model 'tiny' has no bos_token_id or eos_token_id", &e);
	model->config.bos = 7; /* comes before EOS */
	model->config.eos = 256;
	ck_ok(try_open(task_find("choices", &e), "{}", "q.jsonl", NULL, &ev), &e);
	ck_assert_str_eq(layout(ev, 0), "-1 '\a', 0 '| or', 0 '| not'");
	evaluation_free(ev);
}
END_TEST

START_TEST(bos_stands_before_a_context_once_where_the_tokenizer_adds_it)
{
	edit_model("\"post_processor\":null", ADDS_BOS);
	check_bare("{\"query\":\"q\",\"a\":\"x\"}", "-1 '#q', 0 '|x', 0 '|z'");
	check_bare("{\"query\":\"<|endoftext|>q\",\"a\":\"x\"}", "-1 '#q', 0 '|x', 0 '|z'");
	check_bare("{\"query\":\"\",\"a\":\"x\"}", "-1 '#', 0 '|x', 0 '|z'");
	check_bare("{\"query\":\"abcdef\",\"a\":\"x\",\"max\":1}", "-1 'def', 0 '|x', 0 '|z'");
	check_bare("{\"query\":\"abc\",\"a\":\"x\",\"max\":1}", "-1 'abc', 0 '|x', 0 '|z'");
	check_bare("{\"query\":\"ab\",\"a\":\"x\",\"max\":1}", "-1 '#ab', 0 '|x', 0 '|z'");
}
END_TEST

/* With the merge "a b": the whole's tokens need not begin with the context's. lm-eval scores W[len(C)..] all the same.
 */
START_TEST(a_merge_across_the_boundary_is_counted_and_scored_as_lm_eval_does)
{
	static const struct {
		const char *row, *want;
		bool merged;
	} cases[] = {
	    {"{\"query\":\"xa\",\"a\":\"bc\"}", "-1 'xa', 0 '|c', 0 '|z'", true}, /* W = x (ab) c */
	    {"{\"query\":\"xa\",\"a\":\"b\"}", "-1 'xa', 0 '|b', 0 '|z'", true},  /* W = x (ab): nothing is left */
	    {"{\"query\":\"xab\",\"a\":\"ab\"}", "-1 'x(ab)', 0 '|(ab)', 0 '|z'", false},
	};

	edit_model("\"a\":97", "\"a\":97,\"ab\":256");
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct evaluation *ev = NULL;
		struct token_score scores[16] = {{0}};
		struct buf out = BUF_INIT(1 << 16);
		struct json_writer w = JSON_WRITER(&out);

		check_bare(cases[i].row, cases[i].want);
		ck_ok(try_open(&bare, "{}", "bare.jsonl", NULL, &ev), &e);
		ck_ok(ev->task->result(ev->plan, 0, scores, &w, &e), &e);
		ck_assert_msg((strstr(buf_str(&out), "\"merged\":true") != NULL) == cases[i].merged, "%s",
		              buf_str(&out));
		buf_release(&out);
		evaluation_free(ev);
	}
}
END_TEST

START_TEST(a_long_example_keeps_the_last_tokens_of_each_continuation_and_shares_no_context)
{
	struct evaluation *ev;

	write_choices("0123456789", "a", "bcd");
	ev = must_open("choices", "{\"max_length\":12}", "q.jsonl"); /* 13 tokens: 10 + 2, 10 + 4 */
	ck_assert_str_eq(layout(ev, 0), "-1 '0123456789| a', -1 '123456789| bcd'");
	ck_assert_uint_eq(evaluation_tokens(ev), 11 + 12);
	evaluation_free(ev);
	ev = must_open("choices", "{\"max_length\":13}", "q.jsonl");
	ck_assert_str_eq(layout(ev, 0), "-1 '0123456789', 0 '| a', 0 '| bcd'");
	ck_assert_uint_eq(evaluation_tokens(ev), 10 + 1 + 3);
	evaluation_free(ev);
	ev = must_open("choices", "{\"max_length\":4}", "q.jsonl");
	ck_assert_str_eq(layout(ev, 0), "-1 '789| a', -1 '9| bcd'");
	evaluation_free(ev);
	ck_err(try_open(task_find("choices", &e), "{\"max_length\":3}", "q.jsonl", NULL, &ev), ERR_INPUT,
	       "dataset 'q.jsonl': 'q.jsonl' line 1: choice 1 has 4 tokens to score: 1 to max_length, 3, are possible",
	       &e);
	/* the model's own context, 64 here */
	write_choices("0123456789012345678901234567890123456789012345678901234567890123", "a", "b");
	ev = must_open("choices", "{}", "q.jsonl");
	ck_assert_str_eq(layout(ev, 0), "-1 '123456789012345678901234567890123456789012345678901234567890123| a', "
	                                "-1 '123456789012345678901234567890123456789012345678901234567890123| b'");
	evaluation_free(ev);
}
END_TEST

/* -- scores ------------------------------------------------------------------------------------ */

struct outcome {
	struct json *params, *metrics, *items;
	struct fixture_units units;
};

/* Folds what stands in o->units. */
static void fold(const struct task *t, const char *params, struct outcome *o)
{
	o->params = fixture_params(t, params);
	o->metrics = fixture_metrics(t, o->params, &o->units);
	o->items = fixture_items(t, o->params, &o->units);
}

static void release(struct outcome *o)
{
	json_free(o->params);
	json_free(o->metrics);
	json_free(o->items);
	fixture_units_release(&o->units);
}

static void evaluate(const char *task, const char *params, const char *file, struct outcome *o)
{
	struct evaluation *ev = must_open(task, params, file);
	struct session *s = fixture_eval_session(model);

	fixture_units_init(&o->units, evaluation_n_units(ev));
	fixture_run(ev, s, NULL, 0, &o->units);
	session_close(s);
	evaluation_free(ev);
	fold(task_find(task, &e), params, o);
}

static const struct json *at(const struct json *list, size_t i)
{
	for (list = json_first(list); list && i; i--)
		list = json_next(list);
	return list;
}

static double number_at(const struct json *object, const char *key, size_t i)
{
	double d = NAN;

	ck_assert_msg(json_number(at(json_get(object, key), i), &d), "no number at %zu of '%s'", i, key);
	return d;
}

/* Log-probability of the bytes of `text` after the first n, scored as one chain; *greedy: all are the argmax. */
static double score_chain(struct session *s, const char *text, size_t n, bool *greedy)
{
	uint32_t tokens[64], len = (uint32_t)strlen(text);
	uint8_t mask[64] = {0};
	struct token_score scores[64];
	struct segment segment = {-1, 0, len};
	struct batch b = {tokens, mask, len, &segment, 1};
	double sum = 0;

	for (uint32_t i = 0; i < len; i++) {
		tokens[i] = (unsigned char)text[i];
		mask[i] = i >= n;
	}
	ck_ok(session_score(s, &b, scores, &e), &e);
	*greedy = true;
	for (size_t i = n; i < len; i++) {
		sum += (double)scores[i].logprob;
		*greedy &= scores[i].argmax == tokens[i];
	}
	return sum;
}

START_TEST(items_have_the_sums_of_their_choices_whether_the_context_is_shared_or_not)
{
	static const char *const chains[] = {"to be or", "to be n\xC3\xA4t"};
	struct session *s = fixture_eval_session(model);
	struct outcome shared, apart;

	write_choices("to be", "or", "n\xC3\xA4t");
	evaluate("choices", "{}", "q.jsonl", &shared);
	evaluate("choices", "{\"share\":false}", "q.jsonl", &apart);
	ck_assert_str_eq(shared.units.text[0], apart.units.text[0]); /* to the bit, and the key too */
	for (size_t i = 0; i < 2; i++) {
		const struct json *item = at(shared.items, 0);
		bool greedy;
		double want = score_chain(s, chains[i], 5, &greedy);

		ck_assert_double_eq(number_at(item, "logprobs", i), want);
		ck_assert(json_true(at(json_get(item, "greedy"), i)) == greedy);
		ck_assert_double_eq(number_at(item, "n_tokens", i), i ? 5 : 3);
		ck_assert_double_eq(number_at(item, "n_bytes", i), i ? 4 : 2); /* without the joining space */
		ck_assert_double_eq(number_at(item, "n_chars", i), i ? 3 : 2);
	}
	ck_assert_str_eq(json_get_string(at(shared.items, 0), "doc"), "line 1");
	release(&shared);
	release(&apart);
	session_close(s);
}
END_TEST

/* sha256 of 04000000 'q' 'x' as 32-bit integers ..., made by Python:
 * hashlib.sha256(b"".join(struct.pack("<%dI" % (1 + len(t)), len(t), *t) + bytes(m) for t, m in
 *   [((113, 32, 120), (0, 1, 1)), ((113, 32, 121, 122), (0, 1, 1, 1))])).hexdigest()[:16] */
START_TEST(an_items_key_is_the_hash_of_its_chains_and_their_masks)
{
	struct outcome o;

	write_choices("q", "x", "yz");
	evaluate("choices", "{}", "q.jsonl", &o);
	ck_assert_str_eq(json_get_string(at(o.items, 0), "key"), "d886592f235c5b9b");
	release(&o);
}
END_TEST

/* -- folds ------------------------------------------------------------------------------------- */

static void make_units(struct outcome *o, const char *const *results, uint32_t n)
{
	fixture_units_init(&o->units, n);
	for (uint32_t i = 0; i < n; i++)
		o->units.text[i] = strdup(results[i]);
}

static const struct json *find_metric(const struct json *metrics, const char *name, const char *group)
{
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		const char *g = json_get_string(m, "group");

		if (!strcmp(json_get_string(m, "name"), name) && (group ? g && !strcmp(g, group) : !g))
			return m;
	}
	ck_abort_msg("no metric '%s' of group '%s'", name, group ? group : "");
	return NULL;
}

static void check_metric(const struct outcome *o, const char *name, const char *group, double value, double se, int n)
{
	const struct json *m = find_metric(o->metrics, name, group);

	ck_assert_double_eq_tol(fixture_member(m, "value"), value, 1e-15);
	if (se < 0)
		ck_assert(json_is_null(json_get(m, "stderr")));
	else
		ck_assert_double_eq_tol(fixture_member(m, "stderr"), se, 1e-15);
	ck_assert_double_eq(fixture_member(m, "n"), n);
}

/* A choice of three: by sum the first (-6), by character the second (-8/4 = -2 against -6/2, -9/3), by byte the third
 * (-9/9 = -1), by token the second (-8/8). */
#define THREE(gold)                                                                                                    \
	"{\"key\":\"0123456789abcdef\",\"doc\":\"d\",\"logprobs\":[-6,-8,-9],\"greedy\":[false,false,false],"          \
	"\"n_tokens\":[2,8,3],\"n_chars\":[2,4,3],\"n_bytes\":[2,4,9],\"gold\":" gold "}"

START_TEST(each_accuracy_divides_by_its_own_length)
{
	static const char *const results[] = {THREE("0"), THREE("1"), THREE("2"), THREE("1")};
	static const struct {
		const char *params;
		double acc;
		int64_t choice;
	} norms[] = {{"{}", .25, 0},
	             {"{\"norm\":\"chars\"}", .5, 1},
	             {"{\"norm\":\"bytes\"}", .25, 2},
	             {"{\"norm\":\"tokens\"}", .5, 1}};
	const struct task *t = task_find("choices", &e);

	for (size_t i = 0; i < COUNT(norms); i++) {
		struct outcome o;
		int64_t choice;

		make_units(&o, results, 4);
		fold(t, norms[i].params, &o);
		check_metric(&o, "acc", NULL, norms[i].acc, sqrt(norms[i].acc * (1 - norms[i].acc) / 3), 4);
		check_metric(&o, "acc_norm", NULL, .5, sqrt(.25 / 3), 4);
		check_metric(&o, "acc_bytes", NULL, .25, sqrt(.1875 / 3), 4);
		check_metric(&o, "acc_token", NULL, .5, sqrt(.25 / 3), 4);
		check_metric(&o, "n_truncated", NULL, 0, -1, 4);
		ck_assert(json_get_integer(at(o.items, 0), "choice", &choice));
		ck_assert_int_eq(choice, norms[i].choice);
		ck_assert(json_true(json_get(at(o.items, 0), "correct")) == (norms[i].choice == 0));
		release(&o);
	}
}
END_TEST

#define TWO(first, second, gold, more)                                                                                 \
	"{\"key\":\"0123456789abcdef\",\"doc\":\"d\"," more "\"logprobs\":[" first "," second "],\"greedy\":[true,"    \
	"false],\"n_tokens\":[1,1],\"n_chars\":[1,1],\"n_bytes\":[1,1],\"gold\":" gold "}"

START_TEST(of_equal_choices_the_first_wins_or_none)
{
	static const char *const results[] = {TWO("-2", "-2", "0", ""), TWO("-2", "-2", "1", ""),
	                                      TWO("-2", "-1", "1", "")};
	const struct task *t = task_find("choices", &e);
	struct outcome o;

	make_units(&o, results, 3);
	fold(t, "{}", &o);
	check_metric(&o, "acc", NULL, 2 / 3., sqrt(2 / 9. / 2), 3);
	ck_assert(json_true(json_get(at(o.items, 0), "correct")));
	ck_assert(!json_true(json_get(at(o.items, 1), "correct")));
	release(&o);
	make_units(&o, results, 3);
	fold(t, "{\"ties\":\"wrong\"}", &o);
	check_metric(&o, "acc", NULL, 1 / 3., sqrt(2 / 9. / 2), 3);
	ck_assert(!json_true(json_get(at(o.items, 0), "correct")));
	ck_assert(json_true(json_get(at(o.items, 2), "correct")));
	release(&o);
}
END_TEST

/* What results and gates both ask. */
START_TEST(the_best_choice_is_the_first_of_equals_by_its_own_divisor)
{
	static const struct {
		double logprobs[3], divisors[3];
		size_t best;
		bool tie;
	} cases[] = {
	    {{-3, -2, -1}, {1, 1, 1}, 2, false}, {{-3, -2, -1}, {6, 1, 1}, 0, false},
	    {{-2, -2, -2}, {1, 1, 1}, 0, true},  {{-3, -1, -1}, {1, 1, 1}, 1, true},
	    {{-2, -2, -1}, {1, 1, 1}, 2, false}, {{-2, -4, -9}, {1, 2, 1}, 0, true},
	};
	bool tie;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const double *l = cases[i].logprobs, *d = cases[i].divisors;

		ck_assert_uint_eq(choice_best(l, d, 3, &tie), cases[i].best);
		ck_assert(tie == cases[i].tie);
		for (size_t gold = 0; gold < 3; gold++) {
			ck_assert(choice_is_right(l, d, 3, gold, false) == (gold == cases[i].best));
			ck_assert(choice_is_right(l, d, 3, gold, true) == (gold == cases[i].best && !tie));
		}
	}
}
END_TEST

/* Groups in the order in which they are met; the mean is over groups, not examples, and comes last. */
START_TEST(groups_have_rows_of_their_own_and_the_mean_over_them_comes_last)
{
	static const char *const results[] = {
	    TWO("-2", "-1", "1", "\"group\":\"z\","), TWO("-2", "-1", "1", "\"group\":\"z\",\"truncated\":true,"),
	    TWO("-2", "-1", "0", "\"group\":\"z\","), TWO("-2", "-1", "0", "\"group\":\"a\",\"merged\":true,"),
	    TWO("-2", "-1", "1", "\"group\":\"a\","),
	};
	double se_z = sqrt(2 / 9. / 2), se_a = sqrt(.25);
	struct outcome o;

	make_units(&o, results, 5);
	fold(task_find("choices", &e), "{}", &o);
	ck_assert_str_eq(json_get_string(at(o.metrics, 0), "group"), "z");
	ck_assert_str_eq(json_get_string(at(o.metrics, 1), "group"), "a");
	ck_assert_ptr_null(json_get(at(o.metrics, 2), "group"));
	check_metric(&o, "acc", "z", 2 / 3., se_z, 3);
	check_metric(&o, "acc", "a", .5, se_a, 2);
	check_metric(&o, "acc", NULL, (2 / 3. + .5) / 2, sqrt(se_z * se_z + se_a * se_a) / 2, 5);
	check_metric(&o, "n_truncated", NULL, 1, -1, 5);
	check_metric(&o, "n_boundary_merged", NULL, 1, -1, 5);
	ck_assert_str_eq(json_get_string(at(o.items, 3), "group"), "a");
	release(&o);
}
END_TEST

START_TEST(one_example_has_no_standard_error_and_none_has_no_accuracy)
{
	static const char *const results[] = {TWO("-2", "-1", "1", "")};
	const struct task *t = task_find("choices", &e);
	struct outcome o;

	make_units(&o, results, 1);
	fold(t, "{}", &o);
	check_metric(&o, "acc", NULL, 1, -1, 1);
	ck_assert_str_eq(json_get_string(find_metric(o.metrics, "acc", NULL), "reason"), "one_item");
	release(&o);
	make_units(&o, results, 0);
	fold(t, "{}", &o);
	ck_assert(json_is_null(json_get(find_metric(o.metrics, "acc", NULL), "value")));
	ck_assert_str_eq(json_get_string(find_metric(o.metrics, "acc", NULL), "reason"), "no_items");
	release(&o);
}
END_TEST

#define WORD(logprob, greedy)                                                                                          \
	"{\"key\":\"0123456789abcdef\",\"doc\":\"d\",\"logprobs\":[" logprob "],\"greedy\":[" greedy                   \
	"],\"n_tokens\":[2],\"n_chars\":[3],\"n_bytes\":[3],\"gold\":0}"

/* Losses 1, 2, 6: mean 3, deviations -2, -1, 3, sd^2 = 14/2, se = sqrt(7/3); of exp(3) that times exp(3). */
START_TEST(lambada_counts_greedy_words_and_its_perplexity_is_of_words)
{
	static const char *const results[] = {WORD("-1", "true"), WORD("-2", "false"), WORD("-6", "false")};
	struct outcome o;
	double ppl, want;

	make_units(&o, results, 3);
	fold(task_find("lambada", &e), "{}", &o);
	check_metric(&o, "acc", NULL, 1 / 3., sqrt(2 / 9. / 2), 3);
	ppl = fixture_member(find_metric(o.metrics, "ppl", NULL), "value");
	want = 20.085536923187668; /* exp(3) */
	ck_assert_double_eq_tol(ppl, want, 1e-13);
	ck_assert_double_eq_tol(fixture_member(find_metric(o.metrics, "ppl", NULL), "stderr"),
	                        want * 1.5275252316519468, 1e-13); /* sqrt(7/3) */
	ck_assert(json_true(json_get(at(o.items, 0), "correct")));
	ck_assert(!json_true(json_get(at(o.items, 1), "correct")));
	release(&o);
}
END_TEST

START_TEST(a_result_that_is_none_of_ours_is_refused_by_unit)
{
	static const char *const results[] = {"{\"logprobs\":[-1,-2],\"n_chars\":[1],\"gold\":0}"};
	const struct task *t = task_find("choices", &e);
	struct json *params = fixture_params(t, "{}");
	struct buf out = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&out);
	struct outcome o;

	make_units(&o, results, 1);
	ck_err(task_metrics(t, params, fixture_units_source(&o.units), &w, NULL, &e), ERR_INPUT,
	       "unit 0: its result has no usable 'n_chars'", &e);
	json_free(params);
	fixture_units_release(&o.units);
	buf_release(&out);
}
END_TEST

/* -- what is read ------------------------------------------------------------------------------ */

START_TEST(limit_takes_the_first_examples_of_each_group_in_file_order)
{
	struct evaluation *ev = NULL;

	write_file("bare.jsonl", "{\"query\":\"1\",\"a\":\"x\",\"group\":\"g\"}\n\n{\"query\":\"2\",\"a\":\"x\","
	                         "\"group\":\"g\"}\n{\"query\":\"3\",\"a\":\"x\",\"group\":\"h\"}\n");
	ck_ok(try_open(&bare, "{\"limit\":1}", "bare.jsonl", NULL, &ev), &e);
	ck_assert_uint_eq(evaluation_n_units(ev), 2);
	ck_assert_str_eq(layout(ev, 1), "-1 '3', 0 '|x', 0 '|z'");
	evaluation_free(ev);
	write_file("q.jsonl", "{\"query\":\"q\",\"choices\":[\"a\",\"b\"],\"gold\":0}\nnot read\n");
	ev = must_open("choices", "{\"limit\":1}", "q.jsonl");
	ck_assert_uint_eq(evaluation_n_units(ev), 1);
	evaluation_free(ev);
}
END_TEST

#define Q(query, a, b) "{\"query\":\"" query "\",\"choices\":[\"" a "\",\"" b "\"],\"gold\":1}\n"

static const char *with_shots(const char *more, const char *from)
{
	static char params[PATH_MAX + 200];

	snprintf(params, sizeof params, "{%s,\"shots_from\":\"%s\"}", more, from);
	return params;
}

static struct evaluation *open_shots(const char *more)
{
	return must_open("choices", with_shots(more, below("shots.jsonl")), "q.jsonl");
}

START_TEST(shots_are_the_first_of_their_file_but_never_the_scored_example)
{
	struct evaluation *ev, *other;

	write_file("shots.jsonl", Q("s", "a", "b") Q("t", "c", "d") Q("u", "e", "f"));
	write_file("q.jsonl", Q("q", "x", "y") Q("t", "c", "d"));
	ev = open_shots("\"n_shot\":2");
	ck_assert_str_eq(layout(ev, 0), "-1 's b\n\nt d\n\nq', 0 '| x', 0 '| y'");
	ck_assert_str_eq(layout(ev, 1), "-1 's b\n\nu f\n\nt', 0 '| c', 0 '| d'");
	/* the shots are part of the dataset's fingerprint */
	other = must_open("choices", "{}", "q.jsonl");
	ck_assert_str_ne(evaluation_fingerprint(ev), evaluation_fingerprint(other));
	evaluation_free(other);
	write_file("shots.jsonl", Q("s", "a", "b") Q("t", "c", "d") Q("u", "e", "g"));
	other = open_shots("\"n_shot\":2");
	ck_assert_str_ne(evaluation_fingerprint(ev), evaluation_fingerprint(other));
	evaluation_free(other);
	evaluation_free(ev);
	ck_err(
	    try_open(task_find("choices", &e), with_shots("\"n_shot\":3", below("shots.jsonl")), "q.jsonl", NULL, &ev),
	    ERR_INPUT, "line 2: n_shot: 3, and shots_from has 2 examples besides this one", &e);
	ck_assert_str_eq(e.pointer, "/n_shot");
}
END_TEST

/* Which of the twenty shots "a b\n\n" to "t b\n\n" stand before example `unit`, as letters. */
static const char *drawn(const struct evaluation *ev, uint32_t unit)
{
	static char letters[2][32];
	static unsigned which;
	const char *s = layout(ev, unit) + strlen("-1 '");
	size_t n = 0;

	which ^= 1;
	for (; !strncmp(s + 1, " b\n\n", 4); s += 5)
		letters[which][n++] = *s;
	letters[which][n] = '\0';
	return letters[which];
}

START_TEST(seeded_shots_are_drawn_anew_for_each_example_the_same_for_the_same_seed)
{
	struct buf shots = BUF_INIT(1 << 16);
	struct evaluation *ev, *same, *other;
	size_t n_equal = 0;

	for (int c = 'a'; c <= 't'; c++)
		buf_printf(&shots, "{\"query\":\"%c\",\"choices\":[\"x\",\"b\"],\"gold\":1}\n", c);
	write_file("shots.jsonl", buf_str(&shots));
	write_file("q.jsonl", buf_str(&shots)); /* each is among its own shots */
	ev = open_shots("\"n_shot\":19,\"shots\":\"seeded\",\"max_length\":300");
	for (uint32_t i = 0; i < 20; i++) {
		const char *letters = drawn(ev, i);

		ck_assert_uint_eq(strlen(letters), 19); /* all the others, each once */
		for (int c = 'a'; c <= 't'; c++)
			ck_assert((strchr(letters, c) != NULL) == (c != 'a' + (int)i));
	}
	evaluation_free(ev);
	ev = open_shots("\"n_shot\":4,\"shots\":\"seeded\"");
	same = open_shots("\"n_shot\":4,\"shots\":\"seeded\",\"seed\":0");
	other = open_shots("\"n_shot\":4,\"shots\":\"seeded\",\"seed\":1");
	for (uint32_t i = 0; i < 20; i++) {
		ck_assert_str_eq(drawn(ev, i), drawn(same, i));
		n_equal += !strcmp(drawn(ev, i), drawn(other, i));
		n_equal += i && !strcmp(drawn(ev, i), drawn(ev, i - 1));
	}
	ck_assert_uint_le(n_equal, 1); /* of 19*18*17*16 draws */
	evaluation_free(ev);
	evaluation_free(same);
	evaluation_free(other);
	/* SplitMix64 from 0 begins with 0xE220A8397B1DCDAF; a transcription in Python draws 15 of 20, 16 of 19, 1 of 18
	 * and 2 of 17 for Fisher and Yates: p, r, d, f */
	ev = open_shots("\"n_shot\":4,\"shots\":\"seeded\"");
	ck_assert_str_eq(drawn(ev, 0), "prdf");
	evaluation_free(ev);
	buf_release(&shots);
}
END_TEST

START_TEST(a_server_looks_shots_up_among_its_datasets_and_nowhere_else)
{
	const char *dirs[] = {root};
	struct registry registry = {.dataset_dirs = dirs, .n_dataset_dirs = 1};
	const struct task *t = task_find("choices", &e);
	struct evaluation *ev = NULL;

	write_file("shots.jsonl", Q("s", "a", "b"));
	write_file("q.jsonl", Q("q", "x", "y"));
	ck_ok(try_open(t, with_shots("\"n_shot\":1", "shots.jsonl"), "q.jsonl", &registry, &ev), &e);
	ck_assert_str_eq(layout(ev, 0), "-1 's b\n\nq', 0 '| x', 0 '| y'");
	evaluation_free(ev);
	ck_err(try_open(t, with_shots("\"n_shot\":1", below("shots.jsonl")), "q.jsonl", &registry, &ev), ERR_INPUT,
	       "is absolute", &e);
	ck_assert_str_eq(e.pointer, "/shots_from");
	ck_err(try_open(t, with_shots("\"n_shot\":1", "none.jsonl"), "q.jsonl", &registry, &ev), ERR_NOT_FOUND,
	       "shots_from 'none.jsonl': no dataset 'none.jsonl'", &e);
}
END_TEST

START_TEST(parameters_that_contradict_each_other_are_refused)
{
	static const struct {
		const char *given, *message, *pointer;
	} cases[] = {
	    {"{\"n_shot\":2}", "shots_from: n_shot 2 needs a dataset", "/shots_from"},
	    {"{\"shots_from\":\"a\"}", "shots_from: n_shot is 0", "/shots_from"},
	    {"{\"shots_from\":7}", "shots_from: must be a string, not number", "/shots_from"},
	    {"{\"shots_from\":\"\"}", "shots_from: '' is not 1 to 512 bytes", "/shots_from"},
	    {"{\"shots_from\":\"a\\nb\"}", "without control characters", "/shots_from"},
	    {"{\"norm\":\"words\"}", "norm: must be one of none|chars|bytes|tokens, not words", "/norm"},
	    {"{\"limit\":0}", "limit: 0 is not an integer from 1", "/limit"},
	};
	const struct task *t = task_find("piqa", &e);

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct json *j = fixture_json(cases[i].given);
		struct buf out = BUF_INIT(1 << 16);

		ck_err(task_params(t, j, &out, &e), ERR_INPUT, cases[i].message, &e);
		ck_assert_str_eq(e.pointer, cases[i].pointer);
		json_free(j);
		buf_release(&out);
	}
}
END_TEST

START_TEST(text_parameters_are_read_from_the_command_line_and_written_back)
{
	struct buf given = BUF_INIT(1 << 16), out = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&given);
	const struct task *t = task_find("lambada", &e);
	struct json *j;

	json_begin_object(&w, NULL);
	ck_ok(task_param_parse(t, "shots_from=a/\"b\".jsonl", &w, &e), &e);
	ck_ok(task_param_parse(t, "n_shot=1", &w, &e), &e);
	json_end_object(&w);
	j = fixture_json(buf_str(&given));
	ck_ok(task_params(t, j, &out, &e), &e);
	ck_assert_str_eq(buf_str(&out), "{\"limit\":null,\"max_length\":null,\"n_shot\":1,\"shots\":\"first\",\"shots_"
	                                "from\":\"a/\\\"b\\\".jsonl\",\"seed\":0}");
	json_free(j);
	buf_release(&given);
	buf_release(&out);
}
END_TEST

START_TEST(bytes_without_a_token_are_dropped_with_a_warning)
{
	struct evaluation *ev = NULL;

	edit_model("\"q\":113", "\"qq\":113");
	write_file("bare.jsonl", "{\"query\":\"aqb\",\"a\":\"x\"}\n{\"query\":\"b\",\"a\":\"x\"}\n");
	ck_ok(try_open(&bare, "{}", "bare.jsonl", NULL, &ev), &e);
	ck_assert_str_eq(layout(ev, 0), "-1 'ab', 0 '|x', 0 '|z'");
	ck_assert_msg(strstr(buf_str(&ev->warnings), "no token for some bytes of 1 of 2 examples") != NULL, "%s",
	              buf_str(&ev->warnings));
	evaluation_free(ev);
}
END_TEST

START_TEST(a_model_without_a_tokenizer_is_refused_by_name)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct evaluation *ev = NULL;

	model_free(model);
	model = fixture_model_make(&f);
	write_file("q.jsonl", Q("q", "x", "y"));
	ck_err(try_open(task_find("choices", &e), "{}", "q.jsonl", NULL, &ev), ERR_INPUT,
	       "has no tokenizer.json, and task choices needs text", &e);
}
END_TEST

Suite *example_suite(void);
Suite *example_suite(void)
{
	Suite *s = suite_create("example");
	TCase *c = tcase_create("example");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, context_and_choices_become_one_context_and_a_continuation_each);
	tcase_add_test(c, a_continuation_that_begins_with_the_prefix_token_has_it_as_its_context);
	tcase_add_test(c, an_empty_context_is_refused_where_the_model_has_no_token_to_begin_with);
	tcase_add_test(c, bos_stands_before_a_context_once_where_the_tokenizer_adds_it);
	tcase_add_test(c, a_merge_across_the_boundary_is_counted_and_scored_as_lm_eval_does);
	tcase_add_test(c, a_long_example_keeps_the_last_tokens_of_each_continuation_and_shares_no_context);
	tcase_add_test(c, items_have_the_sums_of_their_choices_whether_the_context_is_shared_or_not);
	tcase_add_test(c, an_items_key_is_the_hash_of_its_chains_and_their_masks);
	tcase_add_test(c, each_accuracy_divides_by_its_own_length);
	tcase_add_test(c, of_equal_choices_the_first_wins_or_none);
	tcase_add_test(c, the_best_choice_is_the_first_of_equals_by_its_own_divisor);
	tcase_add_test(c, groups_have_rows_of_their_own_and_the_mean_over_them_comes_last);
	tcase_add_test(c, one_example_has_no_standard_error_and_none_has_no_accuracy);
	tcase_add_test(c, lambada_counts_greedy_words_and_its_perplexity_is_of_words);
	tcase_add_test(c, a_result_that_is_none_of_ours_is_refused_by_unit);
	tcase_add_test(c, limit_takes_the_first_examples_of_each_group_in_file_order);
	tcase_add_test(c, shots_are_the_first_of_their_file_but_never_the_scored_example);
	tcase_add_test(c, seeded_shots_are_drawn_anew_for_each_example_the_same_for_the_same_seed);
	tcase_add_test(c, a_server_looks_shots_up_among_its_datasets_and_nowhere_else);
	tcase_add_test(c, parameters_that_contradict_each_other_are_refused);
	tcase_add_test(c, text_parameters_are_read_from_the_command_line_and_written_back);
	tcase_add_test(c, bytes_without_a_token_are_dropped_with_a_warning);
	tcase_add_test(c, a_model_without_a_tokenizer_is_refused_by_name);
	suite_add_tcase(s, c);
	return s;
}
