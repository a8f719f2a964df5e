/* The verdict of a run in its forms, and a gate's badge. */
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/gate_report.h"
#include "server/problem.h"

#define MAX_REPLY ((size_t)64 << 20)

/* -- verdicts ---------------------------------------------------------------------------------- */

static void send_verdict(struct http_request *r, enum gate_report_format format, const char *type, const char *suffix)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct gate_run run = {0};
	struct json *verdict = NULL;
	struct err e;
	err_code rc = api_load_run(r, &run, &e);

	if (!rc && !run.verdict) {
		err_set(&e, ERR_CONFLICT, "run %lld has no verdict: it is %s%s%s", (long long)run.id,
		        run_state_name(run.state), run.error ? ": " : "", run.error ? run.error : "");
		rc = ERR_CONFLICT;
	}
	if (!rc)
		rc = json_parse(run.verdict, strlen(run.verdict), &verdict, &e);
	if (!rc)
		rc = gate_report_write(verdict, format, &b, &e);
	if (!rc)
		rc = buf_check(&b, "the report", &e);
	if (rc) {
		buf_release(&b);
		problem_error(r, &e);
	} else {
		http_set_header(r, "Content-Disposition", "inline; filename=\"run-%lld.%s\"", (long long)run.id,
		                suffix);
		http_send(r, 200, type, &b);
	}
	json_free(verdict);
	gate_run_release(&run);
}

void api_run_json(struct http_request *r)
{
	send_verdict(r, GATE_REPORT_JSON, "application/json", "json");
}

void api_run_junit(struct http_request *r)
{
	send_verdict(r, GATE_REPORT_JUNIT, "application/xml; charset=utf-8", "xml");
}

void api_run_markdown(struct http_request *r)
{
	send_verdict(r, GATE_REPORT_MARKDOWN, "text/markdown; charset=utf-8", "md");
}

/* -- badges ------------------------------------------------------------------------------------ */

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
	gate_badge_write(gate.name, n ? runs[0].outcome : NULL, &b);
	for (size_t i = 0; i < n; i++)
		gate_run_release(&runs[i]);
	free(runs);
	gate_row_release(&gate);
	http_set_header(r, "Cache-Control", "no-cache"); /* proxies of README pages keep images for hours otherwise */
	http_set_header(r, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
	http_send(r, 200, "image/svg+xml", &b);
}
