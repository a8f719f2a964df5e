/* Gate reports: see gate_report.h. */
#include "server/gate_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"
#include "eval/gate.h"
#include "server/grid.h"
#include "server/svg.h"

#define MAX_TEXT 4000 /* characters of one message in XML */

static const char *text_of(const struct json *object, const char *key, const char *otherwise)
{
	const char *s = json_get_string(object, key);

	return s ? s : otherwise;
}

static bool is_verdict(const struct json *object, const char *name)
{
	return !strcmp(text_of(object, "verdict", "error"), name);
}

/* -- Markdown text ----------------------------------------------------------------------------- */

/* Text that stays text: in a paragraph, and in a cell of a table. */
static void put_markdown(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			buf_putc(out, ' ');
		else if (*s == '<')
			buf_puts(out, "&lt;");
		else if (*s == '&')
			buf_puts(out, "&amp;");
		else if (strchr("\\`*_[]|~#@!", *s))
			buf_printf(out, "\\%c", *s);
		else
			buf_putc(out, *s);
	}
}

/* On a terminal nothing that it would obey. */
static void put_text(struct buf *out, const char *s, bool markdown)
{
	if (markdown)
		put_markdown(out, s);
	for (; !markdown && *s; s++)
		buf_putc(out, (unsigned char)*s < ' ' || *s == 0x7f ? ' ' : *s);
}

/* -- the head ---------------------------------------------------------------------------------- */

static void put_model(const struct json *model, bool markdown, struct buf *out)
{
	const char *fingerprint = json_get_string(model, "fingerprint");

	put_text(out, text_of(model, "name", "?"), markdown);
	if (fingerprint)
		buf_printf(out, " (%.19s)", fingerprint); /* "sha256:" and twelve digits */
}

static void put_baseline(const struct json *baseline, bool markdown, struct buf *out)
{
	int64_t version;

	if (!json_is_object(baseline)) {
		buf_puts(out, ", without a baseline");
		return;
	}
	buf_puts(out, ", against baseline ");
	put_text(out, text_of(baseline, "name", "?"), markdown);
	if (json_get_integer(baseline, "version", &version))
		buf_printf(out, " version %lld", (long long)version);
	if (json_is_object(json_get(baseline, "model"))) {
		buf_puts(out, ", which is ");
		put_model(json_get(baseline, "model"), markdown, out);
	}
}

/* "from the store: books (job 3), words (job 4)": what was measured before. */
static void put_cached(const struct json *verdict, bool markdown, struct buf *out)
{
	size_t n = 0;
	int64_t job;

	for (const struct json *r = json_first(json_get(verdict, "results")); r; r = json_next(r)) {
		if (!json_true(json_get(r, "cached")) || !json_get_integer(r, "cached_from", &job))
			continue;
		buf_puts(out, n++ ? ", " : "from the store: ");
		put_text(out, text_of(r, "measure", "?"), markdown);
		buf_printf(out, " (job %lld)", (long long)job);
	}
	if (n)
		buf_puts(out, markdown ? "  \n" : "\n");
}

/* "model a (sha256:...), against baseline main version 3, which is b (...)"; "commit c on branch d" */
static void put_sides(const struct json *verdict, bool markdown, struct buf *out)
{
	const char *commit = json_get_string(verdict, "commit"), *branch = json_get_string(verdict, "branch");

	if (json_is_object(json_get(verdict, "model"))) {
		buf_puts(out, "model ");
		put_model(json_get(verdict, "model"), markdown, out);
		put_baseline(json_get(verdict, "baseline"), markdown, out);
		buf_puts(out, markdown ? "  \n" : "\n");
	}
	if (commit) {
		buf_puts(out, "commit ");
		put_text(out, commit, markdown);
	}
	if (branch) {
		buf_puts(out, commit ? " on branch " : "branch ");
		put_text(out, branch, markdown);
	}
	if (commit || branch)
		buf_puts(out, markdown ? "  \n" : "\n");
	put_cached(verdict, markdown, out);
}

/* -- the rules --------------------------------------------------------------------------------- */

/* Cuts at a character, and keeps Markdown's table whole. */
static void put_cell(char *cell, const char *s, bool markdown)
{
	struct buf text = BUF_INIT(1 << 20);
	const char *at;
	size_t len;

	put_text(&text, s, markdown);
	at = buf_str(&text);
	len = strlen(at);
	if (len >= GRID_CELL) {
		len = GRID_CELL - 4;
		while (len && ((unsigned char)at[len] & 0xC0) == 0x80)
			len--;
		while (markdown && len && at[len - 1] == '\\')
			len--;
		snprintf(cell, GRID_CELL, "%.*s...", (int)len, at);
	} else {
		memcpy(cell, at, len + 1);
	}
	buf_release(&text);
}

static void put_value(char *cell, const struct json *rule, const char *key)
{
	double v;

	if (json_get_number(rule, key, &v))
		grid_number(cell, v);
}

static void put_p_value(char *cell, const struct json *rule)
{
	double p;

	if (!json_get_number(rule, "p_holm", &p))
		return;
	snprintf(cell, GRID_CELL, p < 1e-4 ? "<0.0001" : "%.4f", p);
}

/* A worsening, or a bound of it. */
static void put_delta(char *cell, const struct json *rule, const char *key, const char *before)
{
	struct buf text = BUF_INIT(200);
	const char *points;
	double d;

	if (json_get_number(rule, key, &d)) {
		gate_put_delta(text_of(rule, "metric", ""), d, &text);
		points = strstr(buf_str(&text), "percentage points");
		snprintf(cell, GRID_CELL, "%s%.*s%s", before, points ? (int)(points - text.data) : 90, buf_str(&text),
		         points ? "pp" : "");
	}
	buf_release(&text);
}

/* "ppl_token at 8192", "acc of CN", "tokens/s" */
static void put_subject(char *cell, const struct json *rule, bool markdown)
{
	const char *metric = json_get_string(rule, "metric"), *group = json_get_string(rule, "group");
	struct buf text = BUF_INIT(4096);
	int64_t length, over;

	buf_puts(&text, metric                                                ? metric
	                : !strcmp(text_of(rule, "type", ""), "throughput")    ? "tokens/s"
	                : !strcmp(text_of(rule, "type", ""), "no_truncation") ? "n_truncated"
	                                                                      : "");
	if (group)
		buf_printf(&text, " of %s", group);
	if (json_get_integer(rule, "length", &length))
		buf_printf(&text, " at %lld", (long long)length);
	if (json_get_integer(rule, "over", &over))
		buf_printf(&text, " over %lld", (long long)over);
	put_cell(cell, buf_str(&text), markdown);
	buf_release(&text);
}

static void rule_row(const struct json *rule, bool markdown, struct grid *g)
{
	char *row = grid_add_row(g);
	double delta;
	int64_t n;

	if (!row)
		return;
	put_cell(row, text_of(rule, "name", "?"), markdown);
	snprintf(row + GRID_CELL, GRID_CELL, "%s", text_of(rule, "verdict", "error"));
	put_subject(row + 2 * GRID_CELL, rule, markdown);
	put_value(row + 3 * GRID_CELL, rule, "value");
	put_value(row + 4 * GRID_CELL, rule, "baseline_value");
	if (json_get_number(rule, "delta", &delta))
		put_delta(row + 5 * GRID_CELL, rule, "delta", delta > 0 ? "+" : "");
	put_delta(row + 6 * GRID_CELL, rule, "lower", "");
	put_delta(row + 7 * GRID_CELL, rule, "upper", "");
	put_p_value(row + 8 * GRID_CELL, rule);
	if (json_get_integer(rule, "n", &n))
		grid_count(row + 9 * GRID_CELL, n);
}

static err_code put_grid(const struct json *rules, bool markdown, struct buf *out, struct err *e)
{
	static const char *const header[] = {"rule",     "verdict", "of",    "value", "baseline",
	                                     "worse by", "lower",   "upper", "p",     "n"};
	struct grid g = {.n_columns = sizeof header / sizeof *header, .names = true};
	char *row = grid_add_row(&g);
	bool failed;

	for (size_t i = 0; row && i < g.n_columns; i++)
		snprintf(row + i * GRID_CELL, GRID_CELL, "%s", header[i]);
	for (const struct json *r = json_first(rules); r; r = json_next(r))
		rule_row(r, markdown, &g);
	if (g.n_rows > 1)
		grid_draw(&g, markdown, out);
	failed = g.failed;
	grid_release(&g);
	return failed ? err_set(e, ERR_MEMORY, "out of memory for a report") : ERR_OK;
}

/* -- what is said in sentences ----------------------------------------------------------------- */

static void put_messages(const struct json *rules, bool passed, bool markdown, struct buf *out)
{
	for (const struct json *r = json_first(rules); r; r = json_next(r)) {
		if (is_verdict(r, "pass") != passed)
			continue;
		buf_puts(out, markdown ? "- " : "  ");
		buf_printf(out, "%s%s%s ", markdown ? "**" : "", text_of(r, "verdict", "error"), markdown ? "**" : "");
		put_text(out, text_of(r, "name", "?"), markdown);
		buf_puts(out, ": ");
		put_text(out, text_of(r, "message", "it says nothing."), markdown);
		buf_putc(out, '\n');
	}
}

/* Whether a rule says the same already. */
static bool is_said(const struct json *rules, const char *text)
{
	for (const struct json *r = json_first(rules); r; r = json_next(r))
		if (!strcmp(text_of(r, "message", ""), text))
			return true;
	return false;
}

static void put_list(const struct json *verdict, const char *key, const char *label, bool markdown, struct buf *out)
{
	for (const struct json *j = json_first(json_get(verdict, key)); j; j = json_next(j)) {
		if (!json_string(j) || is_said(json_get(verdict, "rules"), json_string(j)))
			continue;
		buf_printf(out, "%s%s: ", markdown ? "- " : "  ", label);
		put_text(out, json_string(j), markdown);
		buf_putc(out, '\n');
	}
}

static size_t count_passed(const struct json *rules)
{
	size_t n = 0;

	for (const struct json *r = json_first(rules); r; r = json_next(r))
		n += is_verdict(r, "pass");
	return n;
}

/* "3 of 4 rules passed" */
static void put_summary(const struct json *rules, struct buf *out)
{
	size_t n = json_count(rules);

	buf_printf(out, "%zu of %zu rule%s passed", count_passed(rules), n, n == 1 ? "" : "s");
}

static err_code write_table(const struct json *verdict, struct buf *out, struct err *e)
{
	const struct json *rules = json_get(verdict, "rules");
	size_t said;

	put_sides(verdict, false, out);
	buf_putc(out, '\n');
	if (put_grid(rules, false, out, e))
		return e->code;
	if (json_first(rules))
		buf_putc(out, '\n');
	said = out->len;
	put_messages(rules, false, false, out);
	put_list(verdict, "refused", "refused", false, out);
	put_list(verdict, "warnings", "warning", false, out);
	buf_printf(out, "%sgate %s: %s, ", out->len > said ? "\n" : "", text_of(verdict, "gate", "?"),
	           text_of(verdict, "verdict", "error"));
	put_summary(rules, out);
	if (json_true(json_get(verdict, "engine_change")))
		buf_puts(out, ", across an allowed change of the engine");
	buf_putc(out, '\n');
	return buf_check(out, "the report", e);
}

static err_code write_markdown(const struct json *verdict, struct buf *out, struct err *e)
{
	const struct json *rules = json_get(verdict, "rules");
	const char *sign = is_verdict(verdict, "pass")   ? ":white_check_mark:"
	                   : is_verdict(verdict, "fail") ? ":x:"
	                                                 : ":warning:";

	/* the first line lets a CI job find its own comment again */
	buf_puts(out, "<!-- fathom gate ");
	svg_put_text(out, text_of(verdict, "gate", "?"), 100);
	buf_printf(out, " -->\n### %s Gate ", sign);
	put_markdown(out, text_of(verdict, "gate", "?"));
	buf_printf(out, ": %s, ", text_of(verdict, "verdict", "error"));
	put_summary(rules, out);
	buf_puts(out, "\n\n");
	put_sides(verdict, true, out);
	buf_putc(out, '\n');
	if (put_grid(rules, true, out, e))
		return e->code;
	buf_putc(out, '\n');
	put_messages(rules, false, true, out);
	put_list(verdict, "refused", "refused", true, out);
	put_list(verdict, "warnings", "warning", true, out);
	if (json_true(json_get(verdict, "engine_change")))
		buf_puts(out, "- The engine changed between baseline and candidate, as allowed.\n");
	if (count_passed(rules)) {
		buf_puts(out, "\n<details><summary>Rules that passed</summary>\n\n");
		put_messages(rules, true, true, out);
		buf_puts(out, "\n</details>\n");
	}
	return buf_check(out, "the report", e);
}

/* -- JUnit ------------------------------------------------------------------------------------- */

struct junit_counts {
	size_t tests, failures, errors;
};

static void count(const char *verdict, struct junit_counts *c)
{
	c->tests++;
	c->errors += !strcmp(verdict, "error");
	c->failures += !strcmp(verdict, "fail") || !strcmp(verdict, "inconclusive");
}

static void put_attribute(struct buf *out, const char *name, const char *value)
{
	buf_printf(out, " %s=\"", name);
	svg_put_text(out, value, MAX_TEXT);
	buf_putc(out, '"');
}

static void put_testcase(struct buf *out, const char *gate, const char *measure, const char *name, const char *verdict,
                         const char *message)
{
	const char *element = !strcmp(verdict, "error") ? "error" : "failure";
	struct buf class = BUF_INIT(4096);

	buf_printf(&class, "%s%s%s", gate, measure ? "." : "", measure ? measure : "");
	buf_puts(out, "    <testcase");
	put_attribute(out, "classname", buf_str(&class));
	put_attribute(out, "name", name);
	buf_puts(out, " time=\"0\">\n");
	if (!strcmp(verdict, "pass")) {
		buf_puts(out, "      <system-out>");
		svg_put_text(out, message, MAX_TEXT);
		buf_puts(out, "</system-out>\n");
	} else {
		buf_printf(out, "      <%s", element);
		put_attribute(out, "type", verdict);
		put_attribute(out, "message", message);
		buf_putc(out, '>');
		svg_put_text(out, message, MAX_TEXT);
		buf_printf(out, "</%s>\n", element);
	}
	buf_puts(out, "    </testcase>\n");
	buf_release(&class);
}

/* A gate that came to no rules has one test case of its own, so that no reader takes silence for success. */
static err_code write_junit(const struct json *verdict, struct buf *out, struct err *e)
{
	const struct json *rules = json_get(verdict, "rules");
	const char *gate = text_of(verdict, "gate", "?"), *why = json_string(json_first(json_get(verdict, "refused")));
	struct buf suite = BUF_INIT(4096);
	struct junit_counts c = {0};

	for (const struct json *r = json_first(rules); r; r = json_next(r))
		count(text_of(r, "verdict", "error"), &c);
	if (!c.tests)
		count("error", &c);
	buf_printf(&suite, "fathom gate %s", gate);
	buf_printf(
	    out,
	    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"fathom\" tests=\"%zu\" failures=\"%zu\" "
	    "errors=\"%zu\" time=\"0\">\n  <testsuite",
	    c.tests, c.failures, c.errors);
	put_attribute(out, "name", buf_str(&suite));
	buf_printf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"0\" time=\"0\">\n", c.tests,
	           c.failures, c.errors);
	for (const struct json *r = json_first(rules); r; r = json_next(r))
		put_testcase(out, gate, json_get_string(r, "measure"), text_of(r, "name", "?"),
		             text_of(r, "verdict", "error"), text_of(r, "message", ""));
	if (!json_first(rules))
		put_testcase(out, gate, NULL, "gate", "error", why ? why : "the gate could not be judged.");
	buf_puts(out, "  </testsuite>\n</testsuites>\n");
	buf_release(&suite);
	return buf_check(out, "the report", e);
}

/* -- all --------------------------------------------------------------------------------------- */

static err_code write_json(const struct json *verdict, struct buf *out, struct err *e)
{
	struct json_writer w = JSON_WRITER(out);

	json_put_value(&w, NULL, verdict);
	buf_putc(out, '\n');
	return buf_check(out, "the report", e);
}

err_code gate_report_write(const struct json *verdict, enum gate_report_format format, struct buf *out, struct err *e)
{
	switch (format) {
	case GATE_REPORT_TABLE:
		return write_table(verdict, out, e);
	case GATE_REPORT_JSON:
		return write_json(verdict, out, e);
	case GATE_REPORT_JUNIT:
		return write_junit(verdict, out, e);
	case GATE_REPORT_MARKDOWN:
		return write_markdown(verdict, out, e);
	}
	return err_set(e, ERR_INPUT, "unknown format of a report");
}

/* Of at most max characters in 11 px Verdana, about, by three sorts of letters; textLength makes every font keep to
 * it. */
static unsigned badge_width(const char *text, size_t max)
{
	unsigned tenths = 0;

	for (size_t n = 0; *text && n < max; text++)
		if (((unsigned char)*text & 0xC0) != 0x80) {
			n++;
			tenths += strchr("fijlrtI .,:;!|()[]/-'", *text) ? 40 : strchr("mwMW@%", *text) ? 98 : 68;
		}
	return (tenths + 9) / 10;
}

void gate_badge_write(const char *label, const char *verdict, struct buf *out)
{
	static const struct {
		const char *verdict, *colour;
	} colours[] = {{"pass", "#2a7d3f"}, {"fail", "#c0392b"}, {"inconclusive", "#9a6700"}, {"error", "#7a3b8f"}};
	const char *word = "unknown", *colour = "#5f6b7a";
	size_t n = utf8_count(label);
	unsigned left = badge_width(label, 40) + 10, right;

	for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
		if (verdict && !strcmp(colours[i].verdict, verdict)) {
			word = verdict;
			colour = colours[i].colour;
		}
	right = badge_width(word, 40) + 10;
	buf_printf(out,
	           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"20\" role=\"img\" "
	           "aria-labelledby=\"t\">\n<title id=\"t\">",
	           left + right);
	svg_put_text(out, label, 100);
	buf_printf(out,
	           ": %s</title>\n<clipPath id=\"c\"><rect width=\"%u\" height=\"20\" rx=\"3\"/></clipPath>\n"
	           "<g clip-path=\"url(#c)\"><rect width=\"%u\" height=\"20\" fill=\"#3d4856\"/>"
	           "<rect x=\"%u\" width=\"%u\" height=\"20\" fill=\"%s\"/></g>\n"
	           "<g fill=\"#fff\" font-family=\"Verdana,'DejaVu Sans',sans-serif\" font-size=\"11\">"
	           "<text x=\"5\" y=\"14\" textLength=\"%u\">",
	           word, left + right, left, left, right, colour, left - 10);
	svg_put_text(out, label, n > 40 ? 39 : 40);
	buf_printf(out, "</text><text x=\"%u\" y=\"14\" textLength=\"%u\">%s</text></g>\n</svg>\n", left + 5,
	           right - 10, word);
}
