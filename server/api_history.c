/* GET /api/v1/history: a rule's values over the runs of its gate, or a metric's over the jobs that measured the same,
 * with the points where its level changed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/changes.h"
#include "eval/gate.h"
#include "server/api.h"
#include "server/problem.h"

#define DEFAULT_LIMIT 200
#define MAX_LIMIT     2000
#define MAX_REPLY     ((size_t)16 << 20)
#define ALPHA         .05 /* of a false change point in a whole series */

struct series {
	struct json_writer points;
	struct buf text; /* of the array's members */
	double *values;  /* [n] owned; of a perplexity its logarithm */
	char **commits;  /* [n] owned; NULL: none */
	size_t n, cap_values, cap_commits;
	bool log;
	double min_effect; /* smaller steps are none */
};

static void series_release(struct series *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->commits[i]);
	free(s->values);
	free(s->commits);
	buf_release(&s->text);
}

static err_code add_point(void *arg, const struct history_point *p, struct err *e)
{
	struct series *s = arg;
	struct json_writer *w = &s->points;
	double *values = mem_grow(s->values, &s->cap_values, s->n + 1, sizeof *values, e);
	char **commits;

	if (!values)
		return ERR_MEMORY;
	s->values = values;
	commits = mem_grow(s->commits, &s->cap_commits, s->n + 1, sizeof(char *), e);
	if (!commits)
		return ERR_MEMORY;
	s->commits = commits;
	s->values[s->n] = s->log && p->value > 0 ? log(p->value) : p->value;
	s->commits[s->n++] = p->commit ? strdup(p->commit) : NULL;
	json_begin_object(w, NULL);
	api_put_time(w, "time", p->at_ms);
	json_put_double(w, "value", p->value);
	if (p->stderr_ >= 0)
		json_put_double(w, "stderr", p->stderr_);
	else
		json_put_null(w, "stderr");
	json_put_string(w, "commit", p->commit);
	json_put_string(w, "branch", p->branch);
	api_put_id(w, "job", p->job);
	api_put_id(w, "run", p->run);
	json_put_string(w, "model", p->model);
	json_put_string(w, "fingerprint", p->fingerprint);
	json_put_string(w, "verdict", p->outcome);
	json_end_object(w);
	return ERR_OK;
}

static err_code put_changes(struct json_writer *w, const struct series *s, struct err *e)
{
	struct change *changes = NULL;
	size_t n = 0;
	err_code rc = changes_find(s->values, s->n, ALPHA, s->min_effect, &changes, &n, e);

	json_begin_array(w, "change_points");
	for (size_t i = 0; !rc && i < n; i++) {
		const struct change *c = &changes[i];

		json_begin_object(w, NULL);
		json_put_uint(w, "index", c->index);
		json_put_double(w, "before", s->log ? exp(c->before) : c->before);
		json_put_double(w, "after", s->log ? exp(c->after) : c->after);
		json_put_string(w, "commit", s->commits[c->index]);
		json_put_double(w, "p", c->p);
		json_end_object(w);
	}
	json_end_array(w);
	free(changes);
	return rc;
}

static void send_series(struct http_request *r, const char *metric, struct series *s)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct err e;
	err_code rc;

	json_begin_object(&w, NULL);
	json_put_string(&w, "metric", metric);
	json_begin_array(&w, "points");
	if (s->n)
		json_put_raw(&w, NULL, buf_str(&s->text));
	json_end_array(&w);
	rc = buf_check(&s->text, "a history", &e);
	if (!rc)
		rc = put_changes(&w, s, &e);
	json_end_object(&w);
	api_answer(r, 200, &b, rc, &e);
}

/* -- what is asked for ------------------------------------------------------------------------- */

/* The metric of a gate's rule, and its minimum effect, if it has one. */
static err_code read_rule(struct store *s, const char *gate, const char *rule, char *out, size_t size,
                          double *min_effect, struct err *e)
{
	struct gate_row row = {0};
	struct gate *g = NULL;
	err_code rc = store_gate_get(s, gate, 0, &row, e);

	*out = '\0';
	if (!rc)
		rc = gate_parse_text(row.definition, strlen(row.definition), &g, e);
	for (size_t i = 0; !rc && i < g->n_rules; i++)
		if (!strcmp(g->rules[i].name, rule) && g->rules[i].metric) {
			snprintf(out, size, "%s", g->rules[i].metric);
			*min_effect = g->rules[i].min_effect > 0 ? g->rules[i].min_effect : 0;
		}
	gate_free(g);
	gate_row_release(&row);
	return rc;
}

static bool read_effect(struct http_request *r, double *out)
{
	const char *text = http_query(r, "min_effect");
	char *end = NULL;
	double v = text ? strtod(text, &end) : 0;

	if (text && (end == text || *end || !(v >= 0) || v > 1e6)) {
		problem_query(r, "min_effect", "min_effect is '%.40s', not a number from 0", text);
		return false;
	}
	if (text)
		*out = v;
	return true;
}

static bool is_needed(struct http_request *r, const char *name)
{
	if (http_query(r, name))
		return false;
	problem_query(r, name,
	              "%s is missing: a history is of a gate's rule (gate, rule), or of a task's metric (task, metric)",
	              name);
	return true;
}

void api_history(struct http_request *r)
{
	const char *gate = http_query(r, "gate"), *branch = http_query(r, "branch");
	struct history_of_jobs h = {.task = api_query_task(r),
	                            .metric = http_query(r, "metric"),
	                            .dataset = http_query(r, "dataset"),
	                            .group = http_query(r, "group"),
	                            .branch = branch};
	struct series s = {.text = BUF_INIT(MAX_REPLY)};
	int64_t limit = DEFAULT_LIMIT;
	char metric[64];
	struct err e;
	err_code rc;

	s.points = JSON_WRITER(&s.text);
	if (!api_read_number(r, "limit", 1, MAX_LIMIT, &limit) ||
	    !api_read_number(r, "length", 1, INT64_C(1) << 31, &h.length))
		return;
	h.limit = (int)limit;
	if (gate) {
		if (is_needed(r, "rule"))
			return;
		rc = read_rule(api_of(r)->store, gate, http_query(r, "rule"), metric, sizeof metric, &s.min_effect, &e);
		s.log = !rc && gate_metric_is_log(metric);
		if (!rc)
			rc = store_history_rule(api_of(r)->store, gate, http_query(r, "rule"), branch, (int)limit,
			                        add_point, &s, &e);
	} else {
		if (is_needed(r, "task") || is_needed(r, "metric"))
			return;
		snprintf(metric, sizeof metric, "%s", h.metric);
		s.log = gate_metric_is_log(metric);
		rc = store_history_jobs(api_of(r)->store, &h, add_point, &s, &e);
	}
	if (rc)
		problem_error(r, &e);
	else if (read_effect(r, &s.min_effect))
		send_series(r, *metric ? metric : NULL, &s);
	series_release(&s);
}
