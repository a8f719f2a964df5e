/* Gates: rules from JSON, checked against the measures that they are about, and back. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/changes.h"
#include "eval/fields.h"
#include "eval/gate_private.h"
#include "eval/task.h"

#define MAX_RUNS 1000

/* What each type of rule has beside name, type and measure: "metric!" is required. In the order of the normal form. */
static const struct rule_kind {
	const char *name;
	const char *members[9];
} kinds[] = {
    [RULE_ABSOLUTE] = {"absolute", {"metric!", "length", "group", "min", "max"}},
    [RULE_RELATIVE] = {"relative", {"metric!", "length", "group", "min_effect!", "confidence"}},
    [RULE_SHAPE] = {"shape", {"metric!", "length!", "over!", "max_ratio!", "test", "confidence"}},
    [RULE_HISTORY] = {"history", {"metric!", "length", "group", "k", "min_effect!", "trend", "confidence"}},
    [RULE_NO_TRUNCATION] = {"no_truncation", {NULL}},
    [RULE_THROUGHPUT] = {"throughput", {"min_ratio!"}},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* A rule while it is read. */
struct draft {
	const struct json *given;
	char parent[40]; /* its pointer */
	const struct gate *g;
	struct gate_rule r;
	const struct gate_measure *m;
	const struct gate_metric *metric; /* NULL: it has no paired comparison */
};

static err_code take_type(struct draft *d, struct err *e)
{
	const char *type;
	size_t i = 0;

	if (field_string(d->given, d->parent, "type", true, &type, e))
		return e->code;
	while (i < N_KINDS && strcmp(kinds[i].name, type) != 0)
		i++;
	if (i == N_KINDS)
		return REFUSE(e, d->parent, "type",
		              "type is '%.40s', none of absolute, relative, shape, history, no_truncation, throughput",
		              type);
	d->r.type = (enum gate_rule_type)i;
	return ERR_OK;
}

static err_code take_members(struct draft *d, struct err *e)
{
	static const char *const shared[] = {"name", "type", "measure", NULL};
	const char *const *own = kinds[d->r.type].members;
	char key[40];

	if (fields_check(d->given, d->parent, shared, own, e))
		return e->code;
	for (size_t i = 0; own[i]; i++) {
		snprintf(key, sizeof key, "%.*s", (int)strcspn(own[i], "!"), own[i]);
		if (strchr(own[i], '!') && !field_given(json_get(d->given, key)))
			return REFUSE(e, d->parent, key, "%s is missing: a rule of type %s needs it", key,
			              kinds[d->r.type].name);
	}
	return ERR_OK;
}

static bool has_metric(const struct task *t, const char *name)
{
	for (size_t i = 0; i < t->n_metrics; i++)
		if (!strcmp(t->metrics[i].name, name))
			return true;
	return false;
}

static err_code take_measure(struct draft *d, struct err *e)
{
	struct buf ids = BUF_INIT(8192);
	const char *id;
	size_t i;

	if (field_string(d->given, d->parent, "measure", false, &id, e))
		return e->code;
	for (i = 0; id && i < d->g->n_measures && strcmp(d->g->measures[i].id, id) != 0; i++)
		;
	if (i == d->g->n_measures || (!id && d->g->n_measures > 1)) {
		for (i = 0; i < d->g->n_measures; i++)
			buf_printf(&ids, "%s%s", i ? ", " : "", d->g->measures[i].id);
		if (id)
			err_set(e, ERR_INPUT, "there is no measure '%.100s' (there is: %s)", id, buf_str(&ids));
		else
			err_set(e, ERR_INPUT, "measure is missing: the gate has several (%s)", buf_str(&ids));
		buf_release(&ids);
		return err_at_member(e, d->parent, "measure");
	}
	d->r.measure = i;
	d->m = &d->g->measures[i];
	if (d->r.type == RULE_NO_TRUNCATION && !has_metric(d->m->task, "n_truncated"))
		return REFUSE(e, d->parent, "type", "task %s truncates nothing", task_name(d->m->task));
	return ERR_OK;
}

/* One number stands under this name (at one length, of one group). */
static err_code take_metric(struct draft *d, struct err *e)
{
	const struct task *t = d->m->task;
	struct buf names = BUF_INIT(8192);

	if (field_string(d->given, d->parent, "metric", false, &d->r.metric, e))
		return e->code;
	if (!d->r.metric)
		return ERR_OK;
	if (!has_metric(t, d->r.metric)) {
		for (size_t i = 0; i < t->n_metrics; i++)
			buf_printf(&names, "%s%s", i ? ", " : "", t->metrics[i].name);
		REFUSE(e, d->parent, "metric", "task %s has no metric '%.100s' (there is: %s)", task_name(t),
		       d->r.metric, buf_str(&names));
		buf_release(&names);
		return e->code;
	}
	if (!strcmp(d->r.metric, "nll_position") || !strcmp(task_figure(t), "map"))
		return REFUSE(e, d->parent, "metric", "metric '%s' is many numbers, and a rule is about one",
		              d->r.metric);
	d->metric = gate_metric_find(d->r.metric);
	if (d->r.type == RULE_RELATIVE && !d->metric)
		return REFUSE(e, d->parent, "metric",
		              "metric '%s' is not compared item by item: use an absolute or a history rule",
		              d->r.metric);
	return ERR_OK;
}

static err_code check_length(const struct draft *d, const char *key, int64_t length, struct err *e)
{
	const struct json *lengths = json_get(d->m->params, "lengths");
	int64_t at;

	if (!lengths)
		return length ? REFUSE(e, d->parent, key, "task %s has no lengths", task_name(d->m->task)) : ERR_OK;
	if (!length)
		return REFUSE(e, d->parent, key, "%s is missing: task %s measures at several lengths", key,
		              task_name(d->m->task));
	for (const struct json *l = json_first(lengths); l; l = json_next(l))
		if (json_integer(l, &at) && at == length)
			return ERR_OK;
	return REFUSE(e, d->parent, key, "%s %lld is none of the lengths that measure '%s' is made at", key,
	              (long long)length, d->m->id);
}

static err_code take_place(struct draft *d, struct err *e)
{
	if (!d->r.metric)
		return ERR_OK;
	if (field_integer(d->given, d->parent, "length", 1, INT32_MAX, &d->r.length, e) ||
	    field_integer(d->given, d->parent, "over", 1, INT32_MAX, &d->r.over, e) ||
	    field_string(d->given, d->parent, "group", false, &d->r.group, e) ||
	    check_length(d, "length", d->r.length, e))
		return e->code;
	if (d->r.group && field_check_name(d->r.group, d->parent, "group", e))
		return e->code;
	if (d->r.type != RULE_SHAPE)
		return ERR_OK;
	if (check_length(d, "over", d->r.over, e))
		return e->code;
	if (d->r.over == d->r.length)
		return REFUSE(e, d->parent, "over", "over and length are both %lld", (long long)d->r.over);
	return ERR_OK;
}

static err_code take_numbers(struct draft *d, struct err *e)
{
	static const char *const trends[2] = {"none", "linear"}, *const tests[2] = {"paired", "point"};
	const struct json *given = d->given;
	struct field_range any = {-1e300, 1e300, false}, positive = {0, 1e6, true}, share = {0, 1, true},
	                   confidence = {0.5, 0.999999, true};
	struct gate_rule *r = &d->r;
	int trend, test;

	r->confidence = r->type == RULE_RELATIVE || r->type == RULE_SHAPE || r->type == RULE_HISTORY ? 0.95 : NAN;
	r->k = r->type == RULE_HISTORY ? 10 : 0;
	if (field_number(given, d->parent, "min", any, &r->min, e) ||
	    field_number(given, d->parent, "max", any, &r->max, e) ||
	    field_number(given, d->parent, "min_effect", d->metric && d->metric->fraction ? share : positive,
	                 &r->min_effect, e) ||
	    field_number(given, d->parent, "confidence", confidence, &r->confidence, e) ||
	    field_number(given, d->parent, "max_ratio", positive, &r->max_ratio, e) ||
	    field_number(given, d->parent, "min_ratio", positive, &r->min_ratio, e) ||
	    field_integer(given, d->parent, "k", HISTORY_MIN_RUNS, MAX_RUNS, &r->k, e) ||
	    field_choice(given, d->parent, "trend", trends, &trend, e) ||
	    field_choice(given, d->parent, "test", tests, &test, e))
		return e->code;
	r->linear = trend;
	r->paired = r->type == RULE_SHAPE && !test;
	if (r->type == RULE_ABSOLUTE && isnan(r->min) && isnan(r->max))
		return REFUSE(e, d->parent, "max", "neither min nor max is given");
	if (r->min > r->max)
		return REFUSE(e, d->parent, "min", "min is %g, above max, which is %g", r->min, r->max);
	if (r->type == RULE_SHAPE && (!d->metric || d->metric->fraction || (r->paired && !d->metric->log_ratio)))
		return REFUSE(e, d->parent, "metric", "metric '%s' has no ratio of two lengths%s: use ppl_token",
		              r->metric, r->paired ? " that is tested in pairs" : "");
	if (r->paired && r->max_ratio <= 1)
		return REFUSE(e, d->parent, "max_ratio",
		              "max_ratio is %g, not above 1: a paired test needs room for an effect", r->max_ratio);
	return ERR_OK;
}

static err_code read_rule(struct draft *d, struct err *e)
{
	d->r = (struct gate_rule){
	    .min = NAN, .max = NAN, .min_effect = NAN, .confidence = NAN, .max_ratio = NAN, .min_ratio = NAN};
	if (field_string(d->given, d->parent, "name", true, &d->r.name, e))
		return ERR_INPUT;
	assert(d->r.name); /* it is required */
	if (field_check_name(d->r.name, d->parent, "name", e) || take_type(d, e) || take_members(d, e) ||
	    take_measure(d, e) || take_metric(d, e) || take_place(d, e))
		return ERR_INPUT;
	return take_numbers(d, e);
}

void gate_rule_begin(const struct gate *g, const struct gate_rule *r, struct json_writer *w)
{
	json_begin_object(w, NULL);
	json_put_string(w, "name", r->name);
	json_put_string(w, "type", kinds[r->type].name);
	json_put_string(w, "measure", g->measures[r->measure].id);
	if (r->metric)
		json_put_string(w, "metric", r->metric);
	if (r->length)
		json_put_int(w, "length", r->length);
	if (r->over)
		json_put_int(w, "over", r->over);
	if (r->group)
		json_put_string(w, "group", r->group);
}

void gate_rule_write(const struct gate *g, const struct gate_rule *r, struct json_writer *w)
{
	gate_rule_begin(g, r, w);
	if (!isnan(r->min))
		json_put_double(w, "min", r->min);
	if (!isnan(r->max))
		json_put_double(w, "max", r->max);
	if (r->k)
		json_put_int(w, "k", r->k);
	if (!isnan(r->min_effect))
		json_put_double(w, "min_effect", r->min_effect);
	if (!isnan(r->max_ratio))
		json_put_double(w, "max_ratio", r->max_ratio);
	if (!isnan(r->min_ratio))
		json_put_double(w, "min_ratio", r->min_ratio);
	if (r->type == RULE_SHAPE)
		json_put_string(w, "test", r->paired ? "paired" : "point");
	if (r->type == RULE_HISTORY)
		json_put_string(w, "trend", r->linear ? "linear" : "none");
	if (!isnan(r->confidence))
		json_put_double(w, "confidence", r->confidence);
	json_end_object(w);
}

err_code gate_rules_read(struct gate *g, const struct json *list, struct err *e)
{
	size_t n = 0;

	g->rules = mem_zalloc(json_count(list), sizeof *g->rules, e);
	if (!g->rules)
		return e->code;
	for (const struct json *m = json_first(list); m; m = json_next(m)) {
		struct draft d = {.given = m, .g = g};

		snprintf(d.parent, sizeof d.parent, "/rules/%zu", n);
		if (read_rule(&d, e))
			return e->code;
		for (size_t i = 0; i < n; i++)
			if (!strcmp(g->rules[i].name, d.r.name))
				return REFUSE(e, d.parent, "name", "two rules are called '%s'", d.r.name);
		g->rules[n++] = d.r;
	}
	g->n_rules = n;
	return ERR_OK;
}
