/* Gates: what is parsed and refused, evidence from JSON, and verdicts beside SciPy's numbers (golden/gate). */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/gate.h"
#include "eval/paired.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"

#define GOLDEN "tests/golden/gate/cases.json"

static struct err e;

/* -- parsing ----------------------------------------------------------------------------------- */

#define BOOKS                 "{\"task\":\"pg19\",\"dataset\":\"books\",\"params\":{\"lengths\":[64,256]}}"
#define WORDS                 "{\"task\":\"lambada\",\"dataset\":\"l\"}"
#define GATE(measures, rules) "{\"name\":\"g\",\"measure\":[" measures "],\"rules\":[" rules "]}"
#define ENGINE(engine)        "{\"task\":\"lambada\",\"dataset\":\"b\",\"engine\":" engine "}"
#define RULE(members)         "{\"name\":\"r\"," members "}"

static const struct {
	const char *gate, *pointer, *message;
} refused[] = {
    {"[]", "", "a gate is to be an object, not array"},
    {"{}", "/name", "name is missing"},
    {"{\"name\":\"a b\"}", "/name", "name 'a b' has a character"},
    {"{\"name\":\".g\"}", "/name", "begins with a dot"},
    {"{\"name\":\"g\",\"nome\":1}", "/nome", "unknown member 'nome'; known: name, measure, rules"},
    {"{\"name\":\"g\"}", "/measure", "measure is missing"},
    {"{\"name\":\"g\",\"measure\":[]}", "/measure", "measure has 0 elements, not 1 to 32"},
    {"{\"name\":\"g\",\"measure\":[1]}", "/measure/0", "an element of measure is number"},
    {"{\"name\":\"g\",\"measure\":[" WORDS "]}", "/rules", "rules is missing"},
    {GATE("{\"task\":\"lambda\",\"dataset\":\"x\"}", ""), "/measure/0/task", "unknown task 'lambda'"},
    {GATE("{\"task\":\"lambada\"}", ""), "/measure/0/dataset", "dataset"},
    {GATE("{\"task\":\"pg19\",\"dataset\":\"b\",\"params\":{\"lengths\":[0]}}", ""), "/measure/0/params/lengths/0",
     "0"},
    {GATE("{\"task\":\"pg19\",\"dataset\":\"b\",\"params\":7}", ""), "/measure/0/params", "object, not number"},
    {GATE("{\"task\":\"lambada\",\"dataset\":\"b\",\"engine\":{\"gpu\":1}}", ""), "/measure/0/engine/gpu",
     "unknown member 'gpu'; known: device, dtype, position"},
    {GATE(ENGINE("7"), ""), "/measure/0/engine", "engine is to be an object, not number"},
    {GATE(ENGINE("{\"device\":\"gpu\"}"), ""), "/measure/0/engine/device", "device 'gpu' is none of auto, cpu"},
    {GATE(ENGINE("{\"dtype\":\"f64\"}"), ""), "/measure/0/engine/dtype", "dtype 'f64' is none of auto, f32"},
    {GATE(ENGINE("{\"position\":7}"), ""), "/measure/0/engine/position", "an object or null, not number"},
    {GATE(ENGINE("{\"position\":{}}"), ""), "/measure/0/engine/position/type", "position needs a type"},
    {GATE(ENGINE("{\"position\":{\"type\":1}}"), ""), "/measure/0/engine/position/type", "position needs a type"},
    {GATE(ENGINE("{\"position\":{\"type\":\"yarn\",\"x\":{}}}"), ""), "/measure/0/engine/position/x",
     "member 'x' of position is object"},
    {GATE(WORDS "," WORDS, ""), "/measure/1/id", "two measures are called 'lambada'"},
    {GATE(WORDS, ""), "/rules", "rules has 0 elements"},
    {GATE(WORDS, "{}"), "/rules/0/name", "name is missing"},
    {GATE(WORDS, RULE("\"type\":\"magic\"")), "/rules/0/type", "type is 'magic', none of absolute, relative"},
    {GATE(WORDS, RULE("\"type\":\"absolute\",\"max\":1")), "/rules/0/metric",
     "metric is missing: a rule of type absolute"},
    {GATE(WORDS, RULE("\"type\":\"absolute\",\"metric\":\"acc\"")), "/rules/0/max", "neither min nor max"},
    {GATE(WORDS, RULE("\"type\":\"absolute\",\"metric\":\"acc\",\"min\":2,\"max\":1")), "/rules/0/min", "above max"},
    {GATE(WORDS, RULE("\"type\":\"absolute\",\"metric\":\"acc\",\"max\":\"1\"")), "/rules/0/max",
     "a number, not string"},
    {GATE(WORDS, RULE("\"type\":\"absolute\",\"metric\":\"f1\",\"max\":1")), "/rules/0/metric",
     "task lambada has no metric 'f1' (there is: acc"},
    {GATE(WORDS, RULE("\"type\":\"absolute\",\"metric\":\"acc\",\"length\":9,\"max\":1")), "/rules/0/length",
     "task lambada has no lengths"},
    {GATE(BOOKS, RULE("\"type\":\"absolute\",\"metric\":\"ppl_token\",\"max\":1")), "/rules/0/length",
     "length is missing"},
    {GATE(BOOKS, RULE("\"type\":\"absolute\",\"metric\":\"ppl_token\",\"length\":65,\"max\":1")), "/rules/0/length",
     "length 65 is none of the lengths"},
    {GATE(BOOKS, RULE("\"type\":\"absolute\",\"metric\":\"nll_position\",\"max\":1")), "/rules/0/metric",
     "many numbers"},
    {GATE(WORDS "," BOOKS, RULE("\"type\":\"no_truncation\"")), "/rules/0/measure",
     "the gate has several (lambada, pg19)"},
    {GATE(WORDS, RULE("\"type\":\"no_truncation\",\"measure\":\"x\"")), "/rules/0/measure", "there is no measure 'x'"},
    {GATE(BOOKS, RULE("\"type\":\"no_truncation\"")), "/rules/0/type", "task pg19 truncates nothing"},
    {GATE(WORDS, RULE("\"type\":\"no_truncation\",\"metric\":\"acc\"")), "/rules/0/metric", "unknown member 'metric'"},
    {GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"acc\"")), "/rules/0/min_effect", "min_effect is missing"},
    {GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"acc\",\"min_effect\":0")), "/rules/0/min_effect",
     "not above 0"},
    {GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"acc\",\"min_effect\":5")), "/rules/0/min_effect",
     "at most 1"},
    {GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"acc\",\"min_effect\":0.1,\"confidence\":1")),
     "/rules/0/confidence", "confidence is 1"},
    {GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"n_truncated\",\"min_effect\":1")), "/rules/0/metric",
     "not compared item by item"},
    {GATE(WORDS, RULE("\"type\":\"history\",\"metric\":\"acc\",\"min_effect\":0.1,\"k\":4")), "/rules/0/k",
     "from 5 to 1000"},
    {GATE(WORDS, RULE("\"type\":\"history\",\"metric\":\"acc\",\"min_effect\":0.1,\"trend\":\"up\"")), "/rules/0/trend",
     "trend is 'up', not none or linear"},
    {GATE(BOOKS, RULE("\"type\":\"shape\",\"metric\":\"ppl_token\",\"length\":256,\"over\":64,\"max_ratio\":1")),
     "/rules/0/max_ratio", "not above 1"},
    {GATE(BOOKS, RULE("\"type\":\"shape\",\"metric\":\"ppl_token\",\"length\":256,\"over\":256,\"max_ratio\":2")),
     "/rules/0/over", "both 256"},
    {GATE(BOOKS, RULE("\"type\":\"shape\",\"metric\":\"bits_per_byte\",\"length\":256,\"over\":64,\"max_ratio\":2")),
     "/rules/0/metric", "tested in pairs"},
    {GATE(WORDS, RULE("\"type\":\"throughput\",\"min_ratio\":-1")), "/rules/0/min_ratio", "not above 0"},
    {GATE(WORDS, RULE("\"type\":\"no_truncation\"") "," RULE("\"type\":\"no_truncation\"")), "/rules/1/name",
     "two rules are called 'r'"},
    {"{\"name\":\"g\",\"measure\":[" WORDS
     "],\"rules\":[" RULE("\"type\":\"no_truncation\"") "],"
                                                        "\"allow_engine_change\":1}",
     "/allow_engine_change", "true or false, not number"},
    {"{\"name\":\"g\",\"measure\":[" WORDS
     "],\"rules\":[" RULE("\"type\":\"no_truncation\"") "],"
                                                        "\"webhook\":{\"url\":\"ftp://x\"}}",
     "/webhook/url", "'ftp://x' is no http"},
    {"{\"name\":\"g\",\"measure\":[" WORDS
     "],\"rules\":[" RULE("\"type\":\"no_truncation\"") "],"
                                                        "\"webhook\":{\"url\":\"http://x\",\"secret_env\":\"$A\"}}",
     "/webhook/secret_env", "secret_env '$A' is no name of a variable that begins with FATHOM_WEBHOOK_"},
};

START_TEST(a_gate_names_no_variable_that_is_not_there_for_webhooks)
{
	static const struct {
		const char *name;
		bool ok;
	} table[] = {{"FATHOM_WEBHOOK_SECRET", true},
	             {"FATHOM_WEBHOOK_a9_", true},
	             {"FATHOM_WEBHOOK_", false},
	             {"AWS_SECRET_ACCESS_KEY", false},
	             {"PATH", false},
	             {"", false},
	             {"FATHOM_URL", false},
	             {"fathom_webhook_a", false},
	             {"XFATHOM_WEBHOOK_A", false},
	             {"FATHOM_WEBHOOK_A B", false},
	             {"FATHOM_WEBHOOK_A=B", false}};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct gate *g = NULL;
		char text[400];
		err_code rc;

		snprintf(text, sizeof text,
		         "{\"name\":\"g\",\"measure\":[" WORDS "],\"rules\":[" RULE(
		             "\"type\":\"no_truncation\"") "],"
		                                           "\"webhook\":{\"url\":\"http://x\",\"secret_env\":\"%s\"}}",
		         table[i].name);
		rc = gate_parse_text(text, strlen(text), &g, &e);
		ck_assert_msg(rc == (table[i].ok ? ERR_OK : ERR_INPUT), "%s", text);
		ck_assert(table[i].ok ||
		          (strstr(e.msg, "begins with FATHOM_WEBHOOK_") && strstr(e.msg, table[i].name)));
		gate_free(rc ? NULL : g);
	}
}
END_TEST

START_TEST(what_cannot_be_judged_is_refused_with_a_pointer)
{
	struct gate *g = NULL;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		e = (struct err){0};
		ck_assert_msg(gate_parse_text(refused[i].gate, strlen(refused[i].gate), &g, &e) == ERR_INPUT, "%s",
		              refused[i].gate);
		ck_assert_msg(!strcmp(e.pointer, refused[i].pointer), "%s: %s at '%s'", refused[i].gate, e.msg,
		              e.pointer);
		ck_assert_msg(strstr(e.msg, refused[i].message), "%s: %s", refused[i].gate, e.msg);
	}
}
END_TEST

static const char full[] =
    "{\"rules\":[{\"type\":\"relative\",\"min_effect\":0.01,\"name\":\"no worse\",\"metric\":\"ppl_token\",\"length\":"
    "256,\"measure\":\"books\"},{\"name\":\"long\",\"type\":\"shape\",\"measure\":\"books\",\"metric\":\"ppl_token\","
    "\"length\":256,\"over\":64,\"max_ratio\":1.02},{\"name\":\"trend\",\"type\":\"history\",\"measure\":\"books\","
    "\"metric\":\"ppl_token\",\"length\":64,\"min_effect\":0.01},{\"name\":\"w\",\"type\":\"no_truncation\","
    "\"measure\":"
    "\"lambada\"}],\"measure\":[{\"task\":\"pg19\",\"id\":\"books\",\"dataset\":\"b\",\"params\":{\"lengths\":[64,256]}"
    ","
    "\"engine\":{\"dtype\":\"f32\"}},{\"task\":\"lambada_openai\",\"dataset\":\"l\"}],\"name\":\"long-context\","
    "\"webhook\":{\"url\":\"https://ci.example/hook\",\"secret_env\":\"FATHOM_WEBHOOK_SECRET\"}}";

START_TEST(a_gate_has_one_normal_form)
{
	struct gate *g = NULL, *again = NULL;

	ck_ok(gate_parse_text(full, strlen(full), &g, &e), &e);
	ck_assert_str_eq(g->name, "long-context");
	ck_assert_uint_eq(g->n_measures, 2);
	ck_assert_str_eq(g->measures[0].id, "books");
	ck_assert_str_eq(g->measures[1].id, "lambada"); /* the task's own name, not its alias */
	ck_assert_str_eq(json_get_string(g->measures[0].params, "protocol"), "windows");
	ck_assert_str_eq(json_get_string(g->measures[0].engine, "dtype"), "f32");
	ck_assert_str_eq(json_get_string(g->measures[1].engine, "dtype"), "auto");
	ck_assert_uint_eq(g->n_rules, 4);
	ck_assert_double_eq(g->rules[0].confidence, 0.95);
	ck_assert(g->rules[1].paired);
	ck_assert_int_eq(g->rules[2].k, 10);
	ck_assert(!g->rules[2].linear);
	ck_assert_uint_eq(g->rules[3].measure, 1);
	ck_assert(gate_needs_baseline(g));
	ck_assert_str_eq(g->webhook_secret_env, "FATHOM_WEBHOOK_SECRET");
	ck_ok(gate_parse_text(g->text, strlen(g->text), &again, &e), &e);
	ck_assert_str_eq(g->text, again->text);
	gate_free(again);
	gate_free(g);
}
END_TEST

/* -- evidence ---------------------------------------------------------------------------------- */

#define HEAD                                                                                                           \
	"{\"model\":{\"name\":\"m\"},\"task\":{\"name\":\"lambada\",\"params\":{}},\"dataset\":{},\"engine\":{},"      \
	"\"metrics\":[]"

static struct evidence *parse_evidence(const char *text)
{
	struct evidence *ev = NULL;

	e = (struct err){0};
	return evidence_parse(text, strlen(text), &ev, &e) ? NULL : ev;
}

/* A result and the text of its items. */
static struct evidence *parse_apart(const char *result, const char *items)
{
	struct evidence *ev = parse_evidence(result);

	if (ev && evidence_add_items(ev, items, strlen(items), &e)) {
		evidence_free(ev);
		return NULL;
	}
	return ev;
}

START_TEST(items_are_read_with_their_result_or_as_a_text_of_their_own)
{
	static const char *const texts[] = {
	    "[{\"key\":\"0123456789abcdef\",\"correct\":true},{\"correct\":false}]",
	    " [ {\"doc\":\"[,]\\\"}\"} , {} ] \n",
	    "[{\"doc\":\"\\\\\"},{\"x\":[[],{\"y\":[1,{}]}]}]",
	};
	struct buf whole = BUF_INIT(4096);

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct evidence *ev = parse_apart(HEAD "}", texts[i]), *tree;

		ck_assert_msg(ev, "%s: %s", texts[i], e.msg);
		buf_clear(&whole);
		buf_printf(&whole, HEAD ",\"items\":%s}", texts[i]);
		tree = parse_evidence(buf_str(&whole));
		ck_assert_msg(tree, "%s: %s", texts[i], e.msg);
		ck_assert_uint_eq(evidence_n_items(ev), 2);
		ck_assert_uint_eq(evidence_n_items(tree), 2);
		ck_assert_ptr_null(json_get(evidence_result(tree), "items"));
		evidence_free(ev);
		evidence_free(tree);
	}
	buf_release(&whole);
}
END_TEST

START_TEST(a_text_of_items_that_is_malformed_is_refused_by_item)
{
	static const struct {
		const char *items, *pointer, *message;
	} bad[] = {
	    {"", "/items", "items is not an array"},
	    {"[", "/items", "items is not an array"},
	    {"{}", "/items", "items is not an array"},
	    {"[{}", "/items", "items is not an array"},
	    {"[{}]x", "/items", "items is not an array"},
	    {"[{},]", "", "item 1"},
	    {"[{} {}]", "", "item 0"},
	    {"[{}]]", "/items", "a bracket is closed behind item 0"},
	    {"[{},[]]", "/items/1", "item 1: it is array, not an object"},
	    {"[{\"nll\":\"1\"}]", "/items/0/nll", "item 0: its nll is not a number"},
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ck_assert_msg(!parse_apart(HEAD "}", bad[i].items), "%s", bad[i].items);
		ck_assert_msg(strstr(e.msg, bad[i].message), "%s: %s", bad[i].items, e.msg);
		ck_assert_msg(!*bad[i].pointer || !strcmp(e.pointer, bad[i].pointer), "%s: %s", bad[i].items,
		              e.pointer);
	}
	ck_assert(!parse_apart("{\"model\":{},\"task\":{},\"dataset\":{\"n_items\":2},\"engine\":{},\"metrics\":[]}",
	                       "[{}]"));
	ck_assert_str_eq(e.pointer, "/dataset/n_items");
}
END_TEST

START_TEST(malformed_evidence_is_refused_by_item_and_member)
{
	static const struct {
		const char *text, *pointer, *message;
	} bad[] = {
	    {"", "", ""},
	    {"[]", "", "a result is to be an object"},
	    {"{}", "/metrics", "metrics is to be an array, not absent"},
	    {"{\"metrics\":[]}", "/model", "model is to be an object"},
	    {HEAD ",\"items\":7}", "/items", "items is to be an array, not number"},
	    {HEAD ",\"items\":[{}", "", ""},
	    {HEAD ",\"items\":[{}],\"items\":[{}]}", "", ""},
	    {HEAD ",\"items\":[{},[]]}", "/items/1", "item 1: it is array, not an object"},
	    {HEAD ",\"items\":[{\"key\":\"xyz\"}]}", "/items/0/key", "item 0: its key is not 16 hexadecimal digits"},
	    {HEAD ",\"items\":[{\"nll\":\"1\"}]}", "/items/0/nll", "item 0: its nll is not a number"},
	    {HEAD ",\"items\":[{\"correct\":1}]}", "/items/0/correct", "item 0: its correct is not true or false"},
	    {HEAD ",\"items\":[{\"length\":0}]}", "/items/0/length", "item 0: its length is not a length"},
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		ck_assert_msg(!parse_evidence(bad[i].text), "%s", bad[i].text);
		ck_assert_msg(strstr(e.msg, bad[i].message), "%s: %s", bad[i].text, e.msg);
		ck_assert_msg(!*bad[i].pointer || !strcmp(e.pointer, bad[i].pointer), "%s: %s", bad[i].text, e.pointer);
	}
}
END_TEST

START_TEST(counts_that_the_items_contradict_are_refused_with_both_numbers)
{
#define WHOLE(n_items, metric, more)                                                                                   \
	"{\"model\":{},\"task\":{},\"engine\":{},\"dataset\":{" n_items                                                \
	"},\"metrics\":[{\"name\":\"x\",\"value\":1,\"n\":7},"                                                         \
	"{\"value\":1," metric "}]" more ",\"items\":["                                                                \
	"{\"group\":\"a\",\"correct\":true},{\"group\":\"b\",\"correct\":true},{\"group\":\"a\",\"correct\":false},"   \
	"{\"length\":8,\"nll\":1,\"n_tokens\":5},{\"length\":8,\"nll\":1,\"n_tokens\":4},{\"length\":9,\"nll\":1}]}"
	static const struct {
		const char *text, *pointer, *message;
	} table[] = {
	    {WHOLE("\"n_items\":6", "\"name\":\"acc\",\"group\":\"a\",\"n\":2", ""), "", ""},
	    {WHOLE("\"n_items\":7", "\"name\":\"acc\"", ""), "/dataset/n_items",
	     "n_items of dataset is 7, and 6 items are there"},
	    {WHOLE("\"n_items\":0", "\"name\":\"acc\"", ""), "/dataset/n_items", "is 0, and 6 items"},
	    {WHOLE("\"n_items\":-1", "\"name\":\"acc\"", ""), "/dataset/n_items", "is -1, and 6 items"},
	    {WHOLE("\"n_items\":7", "\"name\":\"acc\",\"n\":9", ",\"partial\":true"), "", ""},
	    {WHOLE("", "\"name\":\"acc\",\"n\":3", ""), "", ""},
	    {WHOLE("", "\"name\":\"acc\",\"n\":4", ""), "/metrics/1/n",
	     "n of metric 'acc' is 4, and its items come to 3"},
	    {WHOLE("", "\"name\":\"acc_norm\",\"group\":\"a\",\"n\":3", ""), "/metrics/1/n",
	     "n of metric 'acc_norm' of a is 3, and its items come to 2"},
	    {WHOLE("", "\"name\":\"ppl\",\"length\":9,\"n\":2", ""), "/metrics/1/n", "is 2, and its items come to 1"},
	    {WHOLE("", "\"name\":\"ppl_token\",\"length\":8,\"n\":9", ""), "", ""},
	    {WHOLE("", "\"name\":\"ppl_word\",\"length\":8,\"n\":8", ""), "/metrics/1/n",
	     "n of metric 'ppl_word' is 8, and its items come to 9"},
	    {WHOLE("", "\"name\":\"ppl_token\",\"length\":9,\"n\":99", ""), "", ""}, /* they do not tell */
	};

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct evidence *ev = parse_evidence(table[i].text), *tree = NULL;
		struct json *j = NULL;
		err_code rc;

		ck_assert_msg(!ev == (*table[i].message != '\0'), "%s: %s", table[i].text, e.msg);
		ck_assert_msg(strstr(e.msg, table[i].message) && !strcmp(e.pointer, table[i].pointer), "%s: %s at %s",
		              table[i].text, e.msg, e.pointer);
		evidence_free(ev);
		ck_ok(json_parse(table[i].text, strlen(table[i].text), &j, &e), &e);
		rc = evidence_read(j, &tree, &e);
		ck_assert_int_eq(rc, *table[i].message ? ERR_INPUT : ERR_OK);
		evidence_free(rc ? NULL : tree);
		json_free(j);
	}
}
END_TEST

START_TEST(sixty_seven_thousand_items_are_read_and_judged)
{
	static const char gate[] = GATE("{\"task\":\"blimp\",\"dataset\":\"b\"}",
	                                RULE("\"type\":\"relative\",\"metric\":\"acc\",\"min_effect\":0.01"));
	struct buf text = BUF_INIT((size_t)64 << 20), out = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&out);
	struct evidence *ev;
	const struct evidence *list;
	struct gate_case c = {
	    .candidate = &list, .baseline_name = "b", .baseline = &list, .n_baseline = 1, .bootstrap = true};
	enum gate_verdict verdict;
	struct gate *g = NULL;

	buf_putc(&text, '[');
	for (unsigned i = 0; i < 67000; i++)
		buf_printf(&text, "%s{\"key\":\"%016x\",\"group\":\"p%u\",\"correct\":%s}", i ? "," : "",
		           i * 2654435761U, i / 1000, i % 3 ? "true" : "false");
	buf_putc(&text, ']');
	ev = parse_apart("{\"model\":{},\"task\":{\"name\":\"blimp\"},\"dataset\":{\"fingerprint\":\"f\"},"
	                 "\"engine\":{\"device\":\"cpu\"},\"metrics\":[]}",
	                 buf_str(&text));
	ck_assert_ptr_nonnull(ev);
	ck_assert_uint_eq(evidence_n_items(ev), 67000);
	list = ev;
	ck_ok(gate_parse_text(gate, strlen(gate), &g, &e), &e);
	ck_ok(gate_judge(g, &c, &w, &verdict, &e), &e);
	ck_assert_msg(verdict == VERDICT_PASS, "%s", buf_str(&out));
	gate_free(g);
	evidence_free(ev);
	buf_release(&text);
	buf_release(&out);
}
END_TEST

/* -- verdicts ---------------------------------------------------------------------------------- */

#define MAX_SIDE 4

struct trial {
	const struct json *golden, *the_case; /* borrowed */
	struct evidence *owned[2 * MAX_SIDE];
	size_t n_owned;
};

/* Named evidence; its items may be another's. */
static struct evidence *load(struct trial *t, const char *name)
{
	const struct json *all = json_get(t->golden, "evidence"), *j = json_get(all, name);
	const char *items_of = json_get_string(j, "items_of");
	struct buf line = BUF_INIT(1 << 20);
	struct evidence *ev = NULL;

	ck_assert_msg(j, "no evidence '%s'", name);
	ck_ok(evidence_read(j, &ev, &e), &e);
	for (j = json_first(json_get(json_get(all, items_of ? items_of : ""), "items")); j; j = json_next(j)) {
		struct json_writer w = JSON_WRITER(&line);

		buf_clear(&line);
		json_put_value(&w, NULL, j);
		ck_ok(evidence_add_item(ev, buf_str(&line), line.len, &e), &e);
	}
	buf_release(&line);
	return t->owned[t->n_owned++] = ev;
}

static size_t load_list(struct trial *t, const char *key, const struct evidence **out)
{
	size_t n = 0;

	for (const struct json *j = json_first(json_get(t->the_case, key)); j; j = json_next(j))
		out[n++] = json_is_null(j) ? NULL : load(t, json_string(j));
	return n;
}

static err_code give_history(void *arg, const struct gate_rule *r, double *values, size_t max, size_t *n,
                             struct err *why)
{
	const struct trial *t = arg;

	(void)why;
	ck_assert_uint_eq(max, r->k);
	for (const struct json *j = json_first(json_get(t->the_case, "history")); j; j = json_next(j))
		ck_assert(*n < max && json_number(j, &values[(*n)++]));
	return ERR_OK;
}

/* Numbers agree to 1e-9 of themselves; what is null there is null here. */
static void check_rule(const struct json *want, const struct json *got, const char *name)
{
	const char *message = json_get_string(got, "message"), *contains = json_get_string(want, "contains");
	double a, b;

	ck_assert_msg(message && strlen(message) > 10 && message[strlen(message) - 1] == '.', "%s: %s", name, message);
	ck_assert_msg(!contains || strstr(message, contains), "%s: '%s' is not in '%s'", name, contains, message);
	for (const struct json *j = json_first(json_get(want, "absent")); j; j = json_next(j))
		ck_assert_msg(!json_get(got, json_string(j)), "%s: %s", name, json_string(j));
	for (const struct json *j = json_first(want); j; j = json_next(j)) {
		const char *key = json_key(j);

		if (!strcmp(key, "contains") || !strcmp(key, "absent"))
			continue;
		if (json_is_string(j)) {
			ck_assert_msg(!strcmp(json_string(j), json_get_string(got, key)), "%s: %s is '%s'; %s", name,
			              key, json_get_string(got, key), message);
		} else if (json_number(j, &a)) {
			ck_assert_msg(json_get_number(got, key, &b), "%s: no %s: %s", name, key, message);
			ck_assert_msg(fabs(a - b) <= 1e-9 * fabs(a) + 1e-12, "%s: %s is %.17g, not %.17g: %s", name,
			              key, b, a, message);
		} else {
			ck_assert_msg(!json_get_number(got, key, &b), "%s: %s is not null", name, key);
		}
	}
}

/* The sentences of a list are as many as wanted, and have the words. */
static void check_list(const struct json *the_case, const struct json *got, const char *key, const char *name)
{
	const struct json *at = json_first(json_get(got, key));

	for (const struct json *j = json_first(json_get(the_case, key)); j; j = json_next(j)) {
		ck_assert_msg(at && strstr(json_string(at), json_string(j)), "%s: %s: %s", name, key,
		              at ? json_string(at) : "nothing");
		at = json_next(at);
	}
	ck_assert_msg(!at || (!json_get(the_case, key) && !strcmp(key, "refused")), "%s: %s", name, json_string(at));
}

static void check_verdict(const struct trial *t, const struct json *got, const char *name)
{
	const struct json *rule = json_first(json_get(got, "rules"));

	for (const struct json *j = json_first(json_get(t->the_case, "rules")); j; j = json_next(j)) {
		check_rule(j, rule, name);
		rule = json_next(rule);
	}
	ck_assert_msg(!rule, "%s", name);
	ck_assert_msg(!strcmp(json_get_string(got, "verdict"), json_get_string(t->the_case, "verdict")), "%s: %s", name,
	              json_get_string(got, "verdict"));
	check_list(t->the_case, got, "refused", name);
	check_list(t->the_case, got, "warnings", name);
	ck_assert_msg(json_true(json_get(got, "engine_change")) == json_true(json_get(t->the_case, "engine_change")),
	              "%s", name);
}

static void run_case(const struct json *golden, const struct json *the_case)
{
	struct trial t = {.golden = golden, .the_case = the_case};
	const struct evidence *candidate[MAX_SIDE], *baseline[MAX_SIDE];
	struct gate_case c = {
	    .candidate = candidate, .baseline = baseline, .history_arg = &t, .bootstrap = true, .seed = 1};
	struct buf out = BUF_INIT(1 << 22);
	struct json_writer w = JSON_WRITER(&out);
	struct json *got = NULL;
	enum gate_verdict verdict;
	struct gate *g = NULL;
	const char *name = json_get_string(the_case, "name");

	ck_assert_msg(!gate_parse(json_get(the_case, "gate"), &g, &e), "%s: %s", name, e.msg);
	ck_assert_uint_eq(load_list(&t, "candidate", candidate), g->n_measures);
	c.n_baseline = load_list(&t, "baseline", baseline);
	c.baseline_name = json_is_null(json_get(the_case, "baseline")) ? NULL : "main";
	c.allow_engine_change = json_true(json_get(the_case, "allow_engine_change"));
	c.history = json_get(the_case, "history") ? give_history : NULL;
	ck_assert_msg(!gate_judge(g, &c, &w, &verdict, &e), "%s: %s", name, e.msg);
	ck_ok(json_parse(buf_str(&out), out.len, &got, &e), &e);
	ck_assert_str_eq(gate_verdict_name(verdict), json_get_string(got, "verdict"));
	check_verdict(&t, got, name);
	json_free(got);
	buf_release(&out);
	gate_free(g);
	while (t.n_owned)
		evidence_free(t.owned[--t.n_owned]);
}

START_TEST(verdicts_are_what_scipy_computes)
{
	struct json *golden = NULL;
	size_t n = 0;

	ck_ok(json_parse_file(GOLDEN, (size_t)64 << 20, &golden, &e), &e);
	for (const struct json *j = json_first(json_get(golden, "cases")); j; j = json_next(j), n++)
		run_case(golden, j);
	ck_assert_uint_ge(n, 80);
	json_free(golden);
}
END_TEST

/* The rule of a gate with one absolute rule, judged on this. */
static struct json *judge_alone(const struct evidence *ev)
{
	static const char gate[] = GATE(WORDS, RULE("\"type\":\"absolute\",\"metric\":\"acc\",\"min\":0"));
	struct gate_case c = {.candidate = &ev};
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&out);
	enum gate_verdict verdict;
	struct gate *g = NULL;
	struct json *j = NULL;

	ck_ok(gate_parse_text(gate, strlen(gate), &g, &e), &e);
	ck_ok(gate_judge(g, &c, &w, &verdict, &e), &e);
	ck_ok(json_parse(buf_str(&out), out.len, &j, &e), &e);
	gate_free(g);
	buf_release(&out);
	return j;
}

static void check_alone(const struct evidence *ev, const char *verdict, const char *message)
{
	struct json *j = judge_alone(ev);

	ck_assert_str_eq(json_get_string(j, "verdict"), verdict);
	ck_assert_str_eq(json_get_string(json_first(json_get(j, "rules")), "message"), message);
	json_free(j);
}

START_TEST(failed_units_that_are_told_stand_for_what_the_result_says)
{
	struct evidence *ev =
	    parse_evidence(HEAD ",\"partial\":true,\"error\":{\"code\":\"device\",\"message\":\"the GPU "
	                        "is gone\",\"units\":[4]}}");

	check_alone(ev, "error", "measure 'lambada' could not be measured: the GPU is gone.");
	ck_ok(evidence_add_failure(ev, 9, "numeric", "layer 3, position 1 of segment 0: not a finite number", &e), &e);
	ck_ok(evidence_add_failure(ev, 12, "numeric", "layer 0", &e), &e);
	check_alone(
	    ev, "fail",
	    "measure 'lambada' came to no finite number in 2 units; unit 9: layer 3, position 1 of segment 0: not a "
	    "finite number.");
	ck_ok(evidence_add_failure(ev, 20, "memory", "out of memory", &e), &e);
	check_alone(ev, "error", "measure 'lambada' could not be measured in 1 unit; unit 20: out of memory.");
	evidence_free(ev);
}
END_TEST

/* A gate may measure one dataset twice: as the checkpoint is, and with a scaling, or in another dtype. */
START_TEST(each_of_two_measures_meets_the_result_of_its_own_positions_and_engine)
{
	static const char gate[] =
	    "{\"name\":\"g\",\"measure\":["
	    "{\"id\":\"raw\",\"task\":\"lambada\",\"dataset\":\"d\"},"
	    "{\"id\":\"scaled\",\"task\":\"lambada\",\"dataset\":\"d\",\"engine\":{\"position\":{\"type\":\"yarn\"}}},"
	    "{\"id\":\"half\",\"task\":\"lambada\",\"dataset\":\"d\",\"engine\":{\"dtype\":\"bf16\"}}],\"rules\":["
	    "{\"name\":\"0\",\"type\":\"relative\",\"measure\":\"raw\",\"metric\":\"acc\",\"min_effect\":0.1},"
	    "{\"name\":\"1\",\"type\":\"relative\",\"measure\":\"scaled\",\"metric\":\"acc\",\"min_effect\":0.1},"
	    "{\"name\":\"2\",\"type\":\"relative\",\"measure\":\"half\",\"metric\":\"acc\",\"min_effect\":0.1}]}";
	static const struct {
		const char *position, *dtype;
	} made[3] = {{"null", "f32"}, {"{\"type\":\"yarn\"}", "f32"}, {"null", "bf16"}};
	struct evidence *owned[3];
	const struct evidence *cand[3], *base[3];
	struct gate_case c = {.candidate = cand, .baseline_name = "b", .baseline = base, .n_baseline = 3};
	struct gate *g = NULL;

	for (int i = 0; i < 3; i++) {
		char text[1000];

		snprintf(text, sizeof text,
		         "{\"model\":{\"position\":{\"type\":\"rope\"}},\"task\":{\"name\":\"lambada\"},\"dataset\":{"
		         "\"name\":"
		         "\"d\"},\"engine\":{\"device\":\"cpu\",\"position\":%s,\"dtype\":\"%s\"},\"metrics\":[{"
		         "\"name\":\"acc\","
		         "\"value\":0.%d}],"
		         "\"items\":[{\"key\":\"0123456789abcdef\",\"correct\":true}]}",
		         made[i].position, made[i].dtype, i + 1);
		cand[i] = owned[i] = parse_evidence(text);
	}
	ck_ok(gate_parse_text(gate, strlen(gate), &g, &e), &e);
	for (int turn = 0; turn < 3; turn++) { /* the order in which a baseline has them tells nothing */
		struct buf out = BUF_INIT(1 << 20);
		struct json_writer w = JSON_WRITER(&out);
		enum gate_verdict verdict;
		struct json *got = NULL;

		for (int i = 0; i < 3; i++)
			base[i] = owned[(i + turn) % 3];
		ck_ok(gate_judge(g, &c, &w, &verdict, &e), &e);
		ck_assert_msg(verdict == VERDICT_PASS, "%s", buf_str(&out));
		ck_ok(json_parse(buf_str(&out), out.len, &got, &e), &e);
		for (const struct json *r = json_first(json_get(got, "rules")); r; r = json_next(r))
			ck_assert_double_eq(fixture_member(r, "value"), fixture_member(r, "baseline_value"));
		json_free(got);
		buf_release(&out);
	}
	for (int i = 0; i < 3; i++)
		evidence_free(owned[i]);
	gate_free(g);
}
END_TEST

/* Two results whose engines have these members more; the sentence that refuses them, or "". */
static void compare_engines(const char *base_more, const char *cand_more, bool allow, char *told, size_t size)
{
	static const char gate[] = GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"acc\",\"min_effect\":0.1"));
	const char *more[2] = {base_more, cand_more};
	const struct evidence *side[2];
	struct evidence *owned[2];
	struct gate_case c = {.candidate = &side[1],
	                      .baseline_name = "b",
	                      .baseline = &side[0],
	                      .n_baseline = 1,
	                      .allow_engine_change = allow};
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&out);
	struct json *got = NULL;
	enum gate_verdict verdict;
	struct gate *g = NULL;
	const char *why;

	for (int i = 0; i < 2; i++) {
		char text[1000];

		snprintf(
		    text, sizeof text,
		    "{\"model\":{},\"task\":{\"name\":\"lambada\"},\"dataset\":{},\"engine\":{\"device\":\"cpu\"%s},"
		    "\"metrics\":[],\"items\":[{\"key\":\"0123456789abcdef\",\"correct\":true}]}",
		    more[i]);
		side[i] = owned[i] = parse_evidence(text);
	}
	ck_ok(gate_parse_text(gate, strlen(gate), &g, &e), &e);
	ck_ok(gate_judge(g, &c, &w, &verdict, &e), &e);
	ck_ok(json_parse(buf_str(&out), out.len, &got, &e), &e);
	why = json_string(json_first(json_get(got, "refused")));
	ck_assert_int_eq(verdict, why ? VERDICT_ERROR : VERDICT_PASS);
	snprintf(told, size, "%s", why ? why : "");
	json_free(got);
	buf_release(&out);
	gate_free(g);
	evidence_free(owned[0]);
	evidence_free(owned[1]);
}

START_TEST(what_was_measured_with_other_positions_than_the_models_own_is_compared_with_the_same_alone)
{
#define YARN ",\"position\":{\"type\":\"yarn\",\"factor\":4}"
	static const struct {
		const char *base, *cand, *words;
	} table[] = {
	    {"", "", ""},
	    {"", ",\"position\":null", ""},
	    {YARN, YARN, ""},
	    {YARN, ",\"position\":{\"factor\":4.0,\"mscale\":null,\"type\":\"yarn\"}", ""},
	    {"", YARN, "the override of positions is {\"type\":\"yarn\",\"factor\":4}, and not given in the baseline"},
	    {YARN, ",\"position\":null",
	     "the override of positions is not given, and {\"type\":\"yarn\",\"factor\":4} in the baseline"},
	    {YARN, ",\"position\":{\"type\":\"yarn\",\"factor\":2}",
	     "{\"type\":\"yarn\",\"factor\":2}, and {\"type\":\"yarn\",\"factor\":4} in"},
	    {YARN, ",\"position\":{\"type\":\"yarn\"}", "{\"type\":\"yarn\"}, and"},
	    {",\"position\":{\"type\":\"yarn\"}", YARN, "and {\"type\":\"yarn\"} in"},
	};
	char told[1000];

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (int allow = 0; allow < 2; allow++) {
			compare_engines(table[i].base, table[i].cand, allow, told, sizeof told);
			ck_assert_msg(*table[i].words ? strstr(told, table[i].words) != NULL : !*told, "%zu: %s", i,
			              told);
		}
}
END_TEST

/* 12 worse and 5 better of 200: p is P(X >= 12) of Binomial(17, 1/2), 9402/131072 = .0717; U about .07. A variance of
 * .0842 needs 6.18 * .0842/.065^2 = 124 items, fewer than there are: it makes no sense to ask for so many. */
START_TEST(where_the_items_would_have_done_an_inconclusive_verdict_asks_for_many_more)
{
	static const char gate[] = GATE(WORDS, RULE("\"type\":\"relative\",\"metric\":\"acc\",\"min_effect\":0.065"));
	const struct evidence *side[2];
	struct evidence *owned[2];
	struct gate_case c = {.candidate = &side[1],
	                      .baseline_name = "b",
	                      .baseline = &side[0],
	                      .n_baseline = 1,
	                      .bootstrap = true,
	                      .seed = UINT64_MAX - 7};
	struct bootstrap again;
	const struct json *bounds;
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&out);
	struct json *got = NULL;
	enum gate_verdict verdict;
	struct gate *g = NULL;

	for (int is_cand = 0; is_cand < 2; is_cand++) {
		struct buf text = BUF_INIT(1 << 20);

		buf_puts(&text, "{\"model\":{},\"task\":{\"name\":\"lambada\"},\"dataset\":{},\"engine\":{\"device\":"
		                "\"cpu\"},\"metrics\":[],\"items\":[");
		for (int i = 0; i < 200; i++)
			buf_printf(&text, "%s{\"key\":\"%016x\",\"correct\":%s}", i ? "," : "", i,
			           (is_cand ? i >= 12 : i < 195) ? "true" : "false");
		buf_puts(&text, "]}");
		side[is_cand] = owned[is_cand] = parse_evidence(buf_str(&text));
		buf_release(&text);
	}
	ck_ok(gate_parse_text(gate, strlen(gate), &g, &e), &e);
	ck_ok(gate_judge(g, &c, &w, &verdict, &e), &e);
	ck_assert_msg(verdict == VERDICT_INCONCLUSIVE && strstr(buf_str(&out), "\"items_needed\":124,"), "%s",
	              buf_str(&out));
	ck_assert_msg(strstr(buf_str(&out), "; about 124 items do where nothing changed, so it lies between") != NULL,
	              "%s", buf_str(&out));
	ck_assert_msg(strstr(buf_str(&out), "\"resamples\":10000,\"seed\":18446744073709551608}"), "%s", buf_str(&out));
	/* whoever has the verdict and its pairs repeats the bounds */
	ck_ok(bootstrap_accuracy(&(struct discordance){200, 12, 5}, 1, 0.05, UINT64_MAX - 7, &again, &e), &e);
	ck_ok(json_parse(buf_str(&out), out.len, &got, &e), &e);
	bounds = json_get(json_first(json_get(got, "rules")), "bootstrap");
	ck_assert_double_eq(fixture_member(bounds, "lower"), again.lower);
	ck_assert_double_eq(fixture_member(bounds, "upper"), again.upper);
	ck_assert_double_lt(again.lower, again.upper);
	json_free(got);
	gate_free(g);
	evidence_free(owned[0]);
	evidence_free(owned[1]);
	buf_release(&out);
}
END_TEST

static err_code no_history(void *arg, const struct gate_rule *r, double *values, size_t max, size_t *n, struct err *why)
{
	(void)arg, (void)r, (void)values, (void)max, (void)n;
	return err_set(why, ERR_IO, "the store is gone");
}

START_TEST(a_history_that_cannot_be_read_ends_the_call)
{
	static const char gate[] = GATE(WORDS, RULE("\"type\":\"history\",\"metric\":\"acc\",\"min_effect\":0.1"));
	struct evidence *ev =
	    parse_evidence("{\"model\":{},\"task\":{},\"dataset\":{},\"engine\":{},\"metrics\":[{\"name\":"
	                   "\"acc\",\"value\":0.5}]}");
	const struct evidence *list = ev;
	struct gate_case c = {.candidate = &list, .history = no_history};
	struct buf out = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&out);
	enum gate_verdict verdict;
	struct gate *g = NULL;

	ck_ok(gate_parse_text(gate, strlen(gate), &g, &e), &e);
	ck_err(gate_judge(g, &c, &w, &verdict, &e), ERR_IO, "rule 'r': the store is gone", &e);
	gate_free(g);
	evidence_free(ev);
	buf_release(&out);
}
END_TEST

/* The row's `value` tells which it is. */
START_TEST(a_row_of_metrics_is_found_by_name_length_and_group)
{
	static const char rows[] = "[{\"value\":0},{\"name\":\"a\",\"frequency\":0,\"value\":1},"
	                           "{\"name\":\"a\",\"length\":8,\"from\":1,\"value\":2},"
	                           "{\"name\":\"a\",\"group\":\"x\",\"value\":3},{\"name\":\"a\",\"value\":4},"
	                           "{\"name\":\"a\",\"length\":8,\"value\":5},{\"name\":\"a\",\"value\":6}]";
	static const struct {
		const char *name;
		int64_t length;
		const char *group;
		int64_t value; /* -1: there is none */
	} cases[] = {{"a", 0, NULL, 4}, {"a", 0, "x", 3},   {"a", 8, NULL, 5}, {"a", 8, "x", -1},
	             {"a", 0, "y", -1}, {"a", 9, NULL, -1}, {"b", 0, NULL, -1}};
	struct json *metrics = NULL;

	ck_ok(json_parse(rows, strlen(rows), &metrics, &e), &e);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t value = -1;

		json_get_integer(result_metric(metrics, cases[i].name, cases[i].length, cases[i].group), "value",
		                 &value);
		ck_assert_int_eq(value, cases[i].value);
	}
	json_free(metrics);
}
END_TEST

Suite *gate_suite(void);
Suite *gate_suite(void)
{
	Suite *s = suite_create("gate");
	TCase *t = tcase_create("gate");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_cannot_be_judged_is_refused_with_a_pointer);
	tcase_add_test(t, a_gate_names_no_variable_that_is_not_there_for_webhooks);
	tcase_add_test(t, a_gate_has_one_normal_form);
	tcase_add_test(t, items_are_read_with_their_result_or_as_a_text_of_their_own);
	tcase_add_test(t, a_text_of_items_that_is_malformed_is_refused_by_item);
	tcase_add_test(t, malformed_evidence_is_refused_by_item_and_member);
	tcase_add_test(t, counts_that_the_items_contradict_are_refused_with_both_numbers);
	tcase_add_test(t, sixty_seven_thousand_items_are_read_and_judged);
	tcase_add_test(t, verdicts_are_what_scipy_computes);
	tcase_add_test(t, failed_units_that_are_told_stand_for_what_the_result_says);
	tcase_add_test(t, each_of_two_measures_meets_the_result_of_its_own_positions_and_engine);
	tcase_add_test(t, what_was_measured_with_other_positions_than_the_models_own_is_compared_with_the_same_alone);
	tcase_add_test(t, where_the_items_would_have_done_an_inconclusive_verdict_asks_for_many_more);
	tcase_add_test(t, a_history_that_cannot_be_read_ends_the_call);
	tcase_add_test(t, a_row_of_metrics_is_found_by_name_length_and_group);
	suite_add_tcase(s, t);
	return s;
}
