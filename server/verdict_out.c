/* Verdicts on their way out: see verdict_out.h. */
#include "server/verdict_out.h"

#include <stdio.h>

#include "eval/gate.h"
#include "server/gate_report.h"

#define MAX_TEXT ((size_t)64 << 20)

err_code verdict_out_open(struct verdict_out *v, const struct options *o, struct err *e)
{
	*v = (struct verdict_out){0};
	if (output_open(&v->junit, "--junit", options_get(o, "--junit"), e) ||
	    output_open(&v->markdown, "--markdown", options_get(o, "--markdown"), e) ||
	    output_open(&v->json, "--json", options_get(o, "--json"), e))
		return e->code;
	if (output_same(&v->junit, &v->markdown) || output_same(&v->junit, &v->json) ||
	    output_same(&v->markdown, &v->json))
		return err_set(e, ERR_INPUT, "--junit, --markdown and --json must be different files");
	return ERR_OK;
}

void verdict_out_release(struct verdict_out *v)
{
	output_release(&v->junit);
	output_release(&v->markdown);
	output_release(&v->json);
}

/* -- writing ----------------------------------------------------------------------------------- */

static err_code write_text(struct output *o, const struct buf *text, struct err *e)
{
	err_code rc = buf_check(text, "the verdict", e);

	if (!rc)
		fwrite(buf_str(text), 1, text->len, o->f);
	return rc ? rc : output_commit(o, e);
}

static err_code write_report(struct output *o, const struct json *verdict, enum gate_report_format format,
                             struct err *e)
{
	struct buf text = BUF_INIT(MAX_TEXT);
	err_code rc;

	if (!o->f)
		return ERR_OK;
	rc = gate_report_write(verdict, format, &text, e);
	if (!rc)
		rc = write_text(o, &text, e);
	buf_release(&text);
	return rc;
}

err_code verdict_out_write(struct verdict_out *v, const struct json *verdict, struct err *e)
{
	if (write_report(&v->junit, verdict, GATE_REPORT_JUNIT, e) ||
	    write_report(&v->markdown, verdict, GATE_REPORT_MARKDOWN, e) ||
	    write_report(&v->json, verdict, GATE_REPORT_JSON, e))
		return e->code;
	return ERR_OK;
}

err_code verdict_out_write_trouble(struct verdict_out *v, const char *gate, const struct err *why, struct err *e)
{
	static const char *const empty[] = {"rules", "results", "warnings"};
	struct buf text = BUF_INIT((size_t)1 << 16);
	struct json_writer w = JSON_WRITER(&text);
	struct json *verdict = NULL;
	err_code rc;

	json_begin_object(&w, NULL);
	json_put_int(&w, "schema", 1);
	json_put_string(&w, "gate", gate);
	json_put_string(&w, "verdict", gate_verdict_name(VERDICT_ERROR));
	json_put_null(&w, "baseline");
	json_begin_array(&w, "refused");
	json_put_string(&w, NULL, why->msg);
	json_end_array(&w);
	json_put_bool(&w, "engine_change", false);
	for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
		json_begin_array(&w, empty[i]);
		json_end_array(&w);
	}
	json_end_object(&w);
	rc = json_parse(buf_str(&text), text.len, &verdict, e);
	if (!rc)
		rc = verdict_out_write(v, verdict, e);
	json_free(verdict);
	buf_release(&text);
	return rc;
}

err_code verdict_print(const struct json *verdict, struct err *e)
{
	struct buf text = BUF_INIT(MAX_TEXT);
	err_code rc = gate_report_write(verdict, GATE_REPORT_TABLE, &text, e);

	if (!rc)
		rc = buf_check(&text, "the table", e);
	if (!rc)
		fputs(buf_str(&text), stdout);
	buf_release(&text);
	return rc;
}

int verdict_status(const struct json *verdict)
{
	const char *name = json_get_string(verdict, "verdict");
	enum gate_verdict v;

	if (!name || !gate_verdict_from_name(name, &v))
		return 2;
	return v == VERDICT_PASS ? 0 : v == VERDICT_FAIL ? 1 : v == VERDICT_INCONCLUSIVE ? 3 : 2;
}
