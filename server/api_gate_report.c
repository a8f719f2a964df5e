/* The verdict of a run in its forms, and a gate's badge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/problem.h"
#include "server/svg.h"

#define MAX_REPLY ((size_t)64 << 20)

/* -- verdicts ---------------------------------------------------------------------------------- */

void api_run_json(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct gate_run run = {0};
	struct err e;
	err_code rc = api_load_run(r, &run, &e);

	if (!rc && !run.verdict)
		rc = err_set(&e, ERR_CONFLICT, "run %lld has no verdict: it is %s%s%s", (long long)run.id,
		             run_state_name(run.state), run.error ? ": " : "", run.error ? run.error : "");
	if (rc) {
		problem_error(r, &e);
	} else {
		buf_puts(&b, run.verdict);
		api_send_json(r, 200, &b);
	}
	gate_run_release(&run);
}

/* -- badges ------------------------------------------------------------------------------------ */

#define BADGE_HEIGHT 20
#define CHAR_WIDTH   6.6 /* of 11 px sans-serif, on the average; textLength makes it so */
#define PADDING      6

static const struct {
	const char *outcome, *colour;
} colours[] = {{"pass", "#1a7f37"}, {"fail", "#c62828"}, {"inconclusive", "#9a6700"}, {"error", "#6e4aa8"}};

static const char *colour_of(const char *outcome)
{
	for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
		if (!strcmp(colours[i].outcome, outcome))
			return colours[i].colour;
	return "#57606a";
}

static void put_part(struct buf *b, double x, double width, const char *text, const char *colour)
{
	buf_printf(b, "<rect x=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", x, width, BADGE_HEIGHT, colour);
	buf_printf(b, "<text x=\"%.1f\" y=\"14\" textLength=\"%.1f\">", x + PADDING, width - 2 * PADDING);
	svg_put_text(b, text, 100);
	buf_puts(b, "</text>");
}

/* "long-context | pass": plain, so that it looks the same in every viewer. */
static void put_badge(struct buf *b, const char *gate, const char *outcome)
{
	double left = (double)strlen(gate) * CHAR_WIDTH + 2 * PADDING,
	       right = (double)strlen(outcome) * CHAR_WIDTH + 2 * PADDING;

	buf_printf(b,
	           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.1f\" height=\"%d\" role=\"img\" "
	           "aria-label=\"",
	           left + right, BADGE_HEIGHT);
	svg_put_text(b, gate, 100);
	buf_printf(b, ": %s\"><title>", outcome);
	svg_put_text(b, gate, 100);
	buf_printf(b, ": %s</title><clipPath id=\"r\"><rect width=\"%.1f\" height=\"%d\" rx=\"3\"/></clipPath>",
	           outcome, left + right, BADGE_HEIGHT);
	buf_puts(b, "<g clip-path=\"url(#r)\" fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" "
	            "font-size=\"11\">");
	put_part(b, 0, left, gate, "#3b4148");
	put_part(b, left, right, outcome, colour_of(outcome));
	buf_puts(b, "</g></svg>\n");
}

/* The last verdict; with ?branch, of that branch. */
void api_gate_badge(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct run_filter last = {.gate = r->name, .branch = http_query(r, "branch"), .state = RUN_DONE, .limit = 1};
	struct gate_row gate = {0};
	struct gate_run *runs = NULL;
	size_t n = 0;
	struct err e;

	if (store_gate_get(api_of(r)->store, r->name, 0, &gate, &e) ||
	    store_run_list(api_of(r)->store, &last, &runs, &n, &e)) {
		gate_row_release(&gate);
		problem_error(r, &e);
		return;
	}
	put_badge(&b, gate.name, n ? runs[0].outcome : "no verdict");
	for (size_t i = 0; i < n; i++)
		gate_run_release(&runs[i]);
	free(runs);
	gate_row_release(&gate);
	http_set_header(r, "Cache-Control", "no-cache"); /* proxies of README pages keep images for hours otherwise */
	http_set_header(r, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
	http_send(r, 200, "image/svg+xml", &b);
}
