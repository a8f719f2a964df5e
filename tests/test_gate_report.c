/* Reports of a verdict: what a person reads, what CI servers parse, what a badge says; hostile names stay text. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "server/gate_report.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_svg.h"

static struct err e;

#define SIDES                                                                                                          \
	"\"model\":{\"name\":\"step-9000\",\"fingerprint\":\"sha256:0123456789abcdef\"},\"baseline\":{\"name\":"       \
	"\"main\","                                                                                                    \
	"\"version\":3,\"model\":{\"name\":\"step-8000\",\"fingerprint\":\"sha256:fedcba9876543210\"}},"               \
	"\"commit\":\"c0ffee\",\"branch\":\"main\","

static const char verdict[] =
    "{\"schema\":1,\"gate\":\"long-context\",\"verdict\":\"error\"," SIDES "\"rules\":["
    "{\"name\":\"no worse\",\"type\":\"relative\",\"measure\":\"books\",\"metric\":\"ppl_token\",\"length\":8192,"
    "\"verdict\":\"fail\",\"value\":31.25,\"baseline_value\":30.5,\"delta\":0.0243,\"lower\":0.0101,\"upper\":0.0385,"
    "\"p\":0.004,\"p_holm\":0.008,\"n\":67,\"message\":\"ppl_token at 8192 rose by 2.46 %.\"},"
    "{\"name\":\"words\",\"type\":\"relative\",\"measure\":\"lambada\",\"metric\":\"acc\",\"group\":\"CN\","
    "\"verdict\":\"pass\",\"value\":0.5,\"baseline_value\":0.5,\"delta\":-0.0012,\"lower\":-0.004,\"upper\":0.002,"
    "\"p_holm\":0.71,\"n\":5153,\"message\":\"acc rose by 0.12 percentage points.\"},"
    "{\"name\":\"trend\",\"type\":\"history\",\"measure\":\"books\",\"metric\":\"ppl_token\",\"length\":1024,"
    "\"verdict\":\"inconclusive\",\"value\":25.125,\"n\":3,\"message\":\"3 earlier runs passed.\"},"
    "{\"name\":\"speed\",\"type\":\"throughput\",\"measure\":\"books\",\"verdict\":\"error\",\"value\":null,"
    "\"message\":\"throughput is compared on the same device only.\"}],"
    "\"refused\":[\"throughput is compared on the same device only.\"],\"engine_change\":true,\"results\":[],"
    "\"warnings\":[\"measure 'books': 3 bytes were invalid\"]}";

static char *report(const char *text, enum gate_report_format format)
{
	struct json *j = fixture_json(text);
	struct buf out = BUF_INIT(1 << 20);

	ck_ok(gate_report_write(j, format, &out, &e), &e);
	json_free(j);
	return buf_steal(&out);
}

static void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "'%s' is not in:\n%s", part, text);
}

START_TEST(a_table_has_a_row_a_rule_and_says_why)
{
	char *t = report(verdict, GATE_REPORT_TABLE);

	has(t, "model step-9000 (sha256:0123456789ab), against baseline main version 3, which is step-8000 "
	       "(sha256:fedcba987654)\ncommit c0ffee on branch main\n");
	has(t, "no worse          fail  ppl_token at 8192  31.250    30.500   +2.46 %    1.02 %   3.93 %  0.0080     "
	       "67\n");
	has(t, "words             pass          acc of CN  0.5000    0.5000  -0.12 pp  -0.40 pp  0.20 pp  0.7100  "
	       "5,153\n");
	has(t, "\n  fail no worse: ppl_token at 8192 rose by 2.46 %.\n  inconclusive trend: 3 earlier runs passed.\n"
	       "  error speed: throughput is compared on the same device only.\n"
	       "  warning: measure 'books': 3 bytes were invalid\n");
	has(t, "\ngate long-context: error, 1 of 4 rules passed, across an allowed change of the engine\n");
	ck_assert_ptr_null(strstr(t, "refused:")); /* a rule says it already */
	ck_assert_ptr_null(strstr(t, "acc rose"));
	free(t);
}
END_TEST

START_TEST(what_came_from_the_store_is_marked)
{
	static const char cached[] =
	    "{\"gate\":\"g\",\"verdict\":\"pass\",\"rules\":[],\"branch\":\"main\",\"results\":["
	    "{\"measure\":\"b*oks\",\"cached\":true,\"cached_from\":3},{\"measure\":\"new\",\"cached\":false},"
	    "{\"measure\":\"words\",\"cached\":true,\"cached_from\":14}]}";
	char *t = report(cached, GATE_REPORT_TABLE);

	has(t, "branch main\nfrom the store: b*oks (job 3), words (job 14)\n");
	free(t);
	t = report(cached, GATE_REPORT_MARKDOWN);
	has(t, "branch main  \nfrom the store: b\\*oks (job 3), words (job 14)  \n");
	free(t);
	t = report(verdict, GATE_REPORT_TABLE);
	ck_assert_ptr_null(strstr(t, "from the store"));
	free(t);
}
END_TEST

START_TEST(junit_counts_its_cases_and_an_inconclusive_one_is_not_passed)
{
	char *t = report(verdict, GATE_REPORT_JUNIT);

	svg_well_formed(strstr(t, "<testsuites"));
	ck_assert_int_eq(strncmp(t,
	                         "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"fathom\" tests=\"4\" "
	                         "failures=\"2\" errors=\"1\" time=\"0\">\n  <testsuite name=\"fathom gate "
	                         "long-context\" tests=\"4\" failures=\"2\" errors=\"1\" skipped=\"0\" time=\"0\">",
	                         80),
	                 0);
	ck_assert_uint_eq(svg_count(t, "<testcase "), 4);
	ck_assert_uint_eq(svg_count(t, "<failure "), 2);
	ck_assert_uint_eq(svg_count(t, "<error "), 1);
	has(t, "<testcase classname=\"long-context.books\" name=\"no worse\" time=\"0\">\n      <failure type=\"fail\" "
	       "message=\"ppl_token at 8192 rose by 2.46 %.\">");
	has(t, "<failure type=\"inconclusive\"");
	has(t, "<system-out>acc rose by 0.12 percentage points.</system-out>");
	free(t);
}
END_TEST

START_TEST(a_gate_without_rules_is_one_error)
{
	static const char none[] =
	    "{\"gate\":\"g\",\"verdict\":\"error\",\"rules\":[],\"refused\":[\"no such model.\"]}";
	char *t = report(none, GATE_REPORT_JUNIT);

	has(t, "tests=\"1\" failures=\"0\" errors=\"1\"");
	has(t, "<testcase classname=\"g\" name=\"gate\" time=\"0\">\n      <error type=\"error\" message=\"no such "
	       "model.\">");
	free(t);
	t = report(none, GATE_REPORT_TABLE);
	has(t, "refused: no such model.\n\ngate g: error, 0 of 0 rules passed\n");
	free(t);
	t = report(none, GATE_REPORT_MARKDOWN);
	has(t, "- refused: no such model.\n");
	free(t);
}
END_TEST

START_TEST(markdown_is_a_comment_that_ci_finds_again)
{
	char *t = report(verdict, GATE_REPORT_MARKDOWN);

	ck_assert_int_eq(
	    strncmp(t,
	            "<!-- fathom gate long-context -->\n### :warning: Gate long-context: error, 1 of 4 rules "
	            "passed\n\n",
	            90),
	    0);
	has(t, "| rule     | ");
	has(t, "\n|:--");
	has(t, "\n- **fail** no worse: ppl\\_token at 8192 rose by 2.46 %.\n");
	has(t, "<summary>Rules that passed</summary>\n\n- **pass** words: acc rose by 0.12 percentage points.\n");
	has(t, "The engine changed between baseline and candidate, as allowed.");
	free(t);
}
END_TEST

START_TEST(hostile_names_stay_text)
{
	static const char hostile[] =
	    "{\"gate\":\"g\",\"verdict\":\"fail\",\"model\":{\"name\":\"<b>&|\\\"'\"},\"baseline\":null,\"rules\":[{"
	    "\"name\":"
	    "\"a|b\\n# "
	    "<i>]]>\\u0007\",\"type\":\"absolute\",\"measure\":\"<m>\",\"metric\":\"ppl_token\",\"verdict\":\"fail\","
	    "\"value\":1e300,\"message\":\"x <y> & \\\"z\\\".\"}]}";
	char *t = report(hostile, GATE_REPORT_JUNIT), *row;

	svg_well_formed(strstr(t, "<testsuites"));
	has(t, "classname=\"g.&lt;m&gt;\"");
	has(t, "message=\"x &lt;y&gt; &amp; &quot;z&quot;.\"");
	ck_assert_ptr_null(strchr(t, '\a'));
	free(t);
	t = report(hostile, GATE_REPORT_MARKDOWN);
	has(t, "model &lt;b>&amp;\\|\"', without a baseline");
	row = strstr(t, "| a\\|b \\# &lt;i>\\]\\]>");
	ck_assert_msg(row, "%s", t);
	ck_assert_ptr_null(strstr(t, "Rules that passed"));
	free(t);
	t = report(hostile, GATE_REPORT_TABLE);
	has(t, "a|b # <i>]]>      fail");
	ck_assert_ptr_null(strchr(t, '\a'));
	free(t);
}
END_TEST

START_TEST(a_long_name_is_cut_at_a_character)
{
	static const char text[] =
	    "{\"gate\":\"g\",\"verdict\":\"pass\",\"rules\":[{\"name\":\""
	    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
	    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
	    "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
	    "\",\"verdict\":\"pass\"}]}";
	char *t = report(text, GATE_REPORT_TABLE);

	has(t, "\u00e9...     pass ");
	free(t);
}
END_TEST

START_TEST(a_badge_has_the_gate_and_its_verdict)
{
	static const char *const words[] = {"pass", "fail", "inconclusive", "error"};
	static const char *const ends[] = {"\"28\">pass<", "\"19\">fail<", "\"74\">inconclusive<", "\"26\">error<"};
	struct buf out = BUF_INIT(1 << 16);

	for (size_t i = 0; i < 4; i++) {
		buf_clear(&out);
		gate_badge_write("a <gate> & more", words[i], &out);
		svg_well_formed(buf_str(&out));
		has(buf_str(&out), "a &lt;gate&gt; &amp; more</text>");
		has(buf_str(&out), ends[i]);
	}
	buf_clear(&out);
	gate_badge_write("a gate whose name is longer than forty characters", NULL, &out);
	svg_well_formed(buf_str(&out));
	has(buf_str(&out), "textLength=\"234\"");
	has(buf_str(&out), ">unknown</text>");
	buf_release(&out);
}
END_TEST

Suite *gate_report_suite(void);
Suite *gate_report_suite(void)
{
	Suite *s = suite_create("gate_report");
	TCase *t = tcase_create("gate_report");

	tcase_add_test(t, a_table_has_a_row_a_rule_and_says_why);
	tcase_add_test(t, what_came_from_the_store_is_marked);
	tcase_add_test(t, junit_counts_its_cases_and_an_inconclusive_one_is_not_passed);
	tcase_add_test(t, a_gate_without_rules_is_one_error);
	tcase_add_test(t, markdown_is_a_comment_that_ci_finds_again);
	tcase_add_test(t, hostile_names_stay_text);
	tcase_add_test(t, a_long_name_is_cut_at_a_character);
	tcase_add_test(t, a_badge_has_the_gate_and_its_verdict);
	suite_add_tcase(s, t);
	return s;
}
