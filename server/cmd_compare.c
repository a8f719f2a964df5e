/* fathom compare: a gate's verdict on results that are there already, in files: nothing is measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/gate.h"
#include "server/cmd.h"
#include "server/evidence_file.h"
#include "server/verdict_out.h"

static const struct option_spec specs[] = {
    {"--gate", "FILE", NULL, NULL, "the rules: a gates.json", 0, NULL},
    {"--baseline", "FILE", NULL, NULL, "what is compared with (.json, .json.gz)", 0, NULL},
    {"--tag", "KEY=VALUE", NULL, NULL, "a tag: commit and branch go into the verdict", 1, cmd_check_pair},
    {"--allow-engine-change", NULL, NULL, NULL, "compare across dtypes and kinds of device; the verdict says so", 0,
     NULL},
    VERDICT_OUT_OPTIONS,
    {"--lines", NULL, NULL, NULL,
     "judge many: a line of stdin is {\"candidate\": [...], \"baseline\": [...]}, results with their items; a line of "
     "stdout, its verdict",
     0, NULL},
};

/* Results of one side, read. */
struct results {
	struct evidence **list; /* [n] owned */
	size_t n;
};

static void results_release(struct results *r)
{
	for (size_t i = 0; i < r->n; i++)
		evidence_free(r->list[i]);
	free(r->list);
	*r = (struct results){0};
}

/* Appends those of an array. */
static err_code results_add(struct results *r, const struct json *array, struct err *e)
{
	size_t cap = r->n;

	for (const struct json *j = json_first(array); j; j = json_next(j)) {
		struct evidence **grown = mem_grow(r->list, &cap, r->n + 1, sizeof(struct evidence *), e);

		if (!grown)
			return e->code;
		r->list = grown;
		if (evidence_read(j, &r->list[r->n], e))
			return e->code;
		r->n++;
	}
	return ERR_OK;
}

static err_code results_add_file(struct results *r, const char *path, struct err *e)
{
	struct buf text = BUF_INIT(EVIDENCE_FILE_MAX);
	struct json *root = NULL;
	err_code rc = evidence_file_read(path, &text, e);

	if (!rc)
		rc = json_parse(buf_str(&text), text.len, &root, e);
	if (!rc && results_add(r, json_get(root, "results"), e))
		rc = err_wrap(e, "'%.300s'", path);
	json_free(root);
	buf_release(&text);
	return rc;
}

/* -- judging ----------------------------------------------------------------------------------- */

static bool same_text(const struct json *a, const struct json *b)
{
	struct buf x = BUF_INIT(1 << 20), y = BUF_INIT(1 << 20);
	struct json_writer wx = JSON_WRITER(&x), wy = JSON_WRITER(&y);
	bool same;

	json_put_value(&wx, NULL, a);
	json_put_value(&wy, NULL, b);
	same = a && b && !strcmp(buf_str(&x), buf_str(&y));
	buf_release(&x);
	buf_release(&y);
	return same;
}

/* Whether a result is what a measure of the gate asks for. */
static bool answers(const struct gate_measure *m, const struct evidence *ev)
{
	const struct json *r = evidence_result(ev), *task = json_get(r, "task");
	const char *name = json_get_string(task, "name"), *dataset = json_get_string(json_get(r, "dataset"), "name");

	return name && !strcmp(name, task_name(m->task)) && same_text(m->params, json_get(task, "params")) && dataset &&
	       !strcmp(dataset, m->dataset ? m->dataset : GENERATED_DATASET);
}

/* Whether it was measured in the way that the measure asks for: positions, and dtype where it does. */
static bool is_as_asked(const struct gate_measure *m, const struct evidence *ev)
{
	const char *dtype = json_get_string(m->engine, "dtype");
	const struct json *engine = json_get(evidence_result(ev), "engine");

	return evidence_has_positions(m, ev) &&
	       (!dtype || !strcmp(dtype, "auto") || same_text(json_get(m->engine, "dtype"), json_get(engine, "dtype")));
}

static bool is_used(const struct evidence **found, size_t n, const struct evidence *ev)
{
	for (size_t i = 0; i < n; i++)
		if (found[i] == ev)
			return true;
	return false;
}

/* A result for each measure, none for two. */
static void find_results(const struct gate *g, const struct results *cand, const struct evidence **found)
{
	for (size_t i = 0; i < g->n_measures; i++)
		for (size_t k = 0; k < cand->n && !found[i]; k++)
			if (answers(&g->measures[i], cand->list[k]) && is_as_asked(&g->measures[i], cand->list[k]) &&
			    !is_used(found, g->n_measures, cand->list[k]))
				found[i] = cand->list[k];
}

struct judging {
	const struct options *options;
	struct gate *gate;
	struct json *tags;    /* owned: {"tags": {...}} */
	const char *baseline; /* borrowed: its name in the verdict */
	bool bootstrap;
};

static err_code judge(const struct judging *j, const struct results *cand, const struct results *base,
                      struct json_writer *w, enum gate_verdict *v, struct err *e)
{
	const struct evidence **found = mem_zalloc(j->gate->n_measures, sizeof(struct evidence *), e);
	struct gate_case c = {.candidate = found,
	                      .baseline_name = j->baseline,
	                      .baseline = (const struct evidence *const *)base->list,
	                      .n_baseline = base->n,
	                      .tags = json_get(j->tags, "tags"),
	                      .allow_engine_change = options_count(j->options, "--allow-engine-change"),
	                      .bootstrap = j->bootstrap,
	                      .seed = GATE_SEED};
	err_code rc;

	if (!found)
		return e->code;
	find_results(j->gate, cand, found);
	rc = gate_judge(j->gate, &c, w, v, e);
	free(found);
	return rc;
}

/* -- one --------------------------------------------------------------------------------------- */

static err_code read_files(const struct options *o, struct results *cand, struct results *base, struct err *e)
{
	const char *baseline = options_get(o, "--baseline");

	if (!options_n_args(o))
		return err_set(e, ERR_INPUT, "no file of results is given");
	for (size_t i = 0; i < options_n_args(o); i++)
		if (results_add_file(cand, options_arg(o, i), e))
			return e->code;
	return baseline ? results_add_file(base, baseline, e) : ERR_OK;
}

static int compare_files(struct judging *j, struct err *e)
{
	struct results cand = {0}, base = {0};
	struct buf text = BUF_INIT((size_t)64 << 20);
	struct json_writer w = JSON_WRITER(&text);
	struct verdict_out out = {0};
	struct json *verdict = NULL;
	enum gate_verdict v;
	int status = 2;

	if (verdict_out_open(&out, j->options, e) || read_files(j->options, &cand, &base, e) ||
	    judge(j, &cand, &base, &w, &v, e) || buf_check(&text, "the verdict", e) ||
	    json_parse(buf_str(&text), text.len, &verdict, e) || verdict_print(verdict, e) ||
	    verdict_out_write(&out, verdict, e))
		cmd_error("compare", e);
	else
		status = verdict_status(verdict);
	json_free(verdict);
	verdict_out_release(&out);
	buf_release(&text);
	results_release(&cand);
	results_release(&base);
	return status;
}

/* -- many -------------------------------------------------------------------------------------- */

static err_code compare_line(const struct judging *j, const char *line, size_t len, struct buf *out, struct err *e)
{
	struct results cand = {0}, base = {0};
	struct json_writer w = JSON_WRITER(out);
	struct json *root = NULL;
	enum gate_verdict v;
	err_code rc = json_parse(line, len, &root, e);

	if (!rc && !json_is_array(json_get(root, "candidate")))
		rc =
		    err_set(e, ERR_INPUT, "candidate is %s, not an array", json_type_name(json_get(root, "candidate")));
	if (!rc)
		rc = results_add(&cand, json_get(root, "candidate"), e);
	if (!rc)
		rc = results_add(&base, json_get(root, "baseline"), e);
	if (!rc)
		rc = judge(j, &cand, &base, &w, &v, e);
	if (!rc)
		rc = buf_check(out, "the verdict", e);
	json_free(root);
	results_release(&cand);
	results_release(&base);
	return rc;
}

static int compare_lines(struct judging *j, struct err *e)
{
	struct buf out = BUF_INIT((size_t)64 << 20);
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;
	int status = 0;

	j->baseline = "baseline";
	while (!status && (len = getline(&line, &cap, stdin)) >= 0) {
		n++;
		buf_clear(&out);
		if (compare_line(j, line, (size_t)len, &out, e)) {
			err_wrap(e, "line %zu", n);
			status = cmd_error("compare", e);
		} else {
			puts(buf_str(&out));
		}
	}
	free(line);
	buf_release(&out);
	return status;
}

/* -- the command ------------------------------------------------------------------------------- */

static err_code read_tags(struct judging *j, struct err *e)
{
	struct buf text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&text);
	err_code rc;

	json_begin_object(&w, NULL);
	rc = cmd_put_tags(j->options, &w, e);
	json_end_object(&w);
	if (!rc)
		rc = json_parse(buf_str(&text), text.len, &j->tags, e);
	buf_release(&text);
	return rc;
}

static int run(struct judging *j, struct err *e)
{
	const char *path = options_get(j->options, "--gate");
	bool lines = options_count(j->options, "--lines");

	if (!path)
		err_set(e, ERR_INPUT, "--gate is missing");
	if (!path || cmd_read_gate(path, NULL, &j->gate, e) || read_tags(j, e))
		return cmd_error("compare", e);
	j->bootstrap = !lines;
	return lines ? compare_lines(j, e) : compare_files(j, e);
}

int cmd_compare(int argc, char **argv)
{
	struct judging j = {0};
	struct options *o = NULL;
	struct err e;
	int help, status = 0;

	if (options_parse(
	        specs, sizeof specs / sizeof *specs, "fathom compare --gate FILE [options] RESULTS...",
	        "Judges results that are in files, as `fathom run --evidence` writes them, by the rules of a\n"
	        "gate. The verdict goes to stdout. Exit status: 0 pass, 1 fail, 2 it could not be judged,\n"
	        "3 inconclusive.",
	        argc, argv, &o, &help, &e))
		return cmd_error("compare", &e);
	if (help)
		goto out;
	j.options = o;
	j.baseline = options_get(o, "--baseline");
	status = run(&j, &e);
out:
	gate_free(j.gate);
	json_free(j.tags);
	options_free(o);
	return status;
}
