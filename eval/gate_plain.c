/* Gates: rules about values as they are, without pairs: a bound, no truncation, throughput, the last runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/changes.h"
#include "eval/gate_private.h"

static void refuse(struct outcome *o, const char *why)
{
	outcome_set(o, VERDICT_ERROR, "%s", why);
	o->refused = true;
}

bool can_compare(const struct judgement *j, struct outcome *o)
{
	const struct gate_measure *m = &j->gate->measures[j->rule->measure];

	if (!j->c->baseline_name) {
		outcome_set(o, VERDICT_ERROR, "there is no baseline to compare with");
		return false;
	}
	if (!j->base) {
		outcome_set(o, VERDICT_ERROR, "baseline '%s' has no result of task %s to compare measure '%s' with",
		            j->c->baseline_name, task_name(m->task), m->id);
		o->refused = true;
		return false;
	}
	if (j->refused)
		refuse(o, j->refused);
	return !j->refused;
}

bool find_value(const struct judgement *j, const char *metric, int64_t length, double *value, struct outcome *o)
{
	const struct gate_rule *r = j->rule;
	const struct json *m = evidence_metric(j->cand, metric, length, r->group);
	struct gate_rule named = *r;
	struct buf subject = BUF_INIT(1000);
	const char *reason = json_get_string(m, "reason");
	bool found = true;

	named.metric = metric;
	named.length = length;
	put_subject(&named, &subject);
	if (!m) {
		outcome_set(o, VERDICT_ERROR, "the result of measure '%s' has no %s", j->gate->measures[r->measure].id,
		            buf_str(&subject));
		found = false;
	} else if (!json_get_number(m, "value", value)) {
		*value = INFINITY;
		found = reason && !strcmp(reason, "overflow");
		if (!found)
			outcome_set(o, VERDICT_ERROR, "%s has no value: %s", buf_str(&subject),
			            reason ? reason : "the result gives no reason");
	}
	buf_release(&subject);
	return found;
}

err_code judge_absolute(const struct judgement *j, struct outcome *o, struct err *e)
{
	const struct gate_rule *r = j->rule;
	struct buf text = BUF_INIT(2000);
	bool above, below;

	if (!find_value(j, r->metric, r->length, &o->value, o))
		return ERR_OK;
	above = o->value > r->max;
	below = o->value < r->min;
	o->limit = below || isnan(r->max) ? r->min : r->max;
	put_subject(r, &text);
	buf_puts(&text, isinf(o->value) ? " overflowed" : " is ");
	if (!isinf(o->value))
		put_number(o->value, &text);
	if (above || below) {
		buf_puts(&text, above ? ", above the maximum of " : ", below the minimum of ");
		put_number(o->limit, &text);
	} else {
		buf_puts(&text, ", within the bound of ");
		if (!isnan(r->min)) {
			buf_puts(&text, "at least ");
			put_number(r->min, &text);
		}
		buf_puts(&text, !isnan(r->min) && !isnan(r->max) ? " and " : "");
		if (!isnan(r->max)) {
			buf_puts(&text, "at most ");
			put_number(r->max, &text);
		}
	}
	outcome_set(o, above || below ? VERDICT_FAIL : VERDICT_PASS, "%s", buf_str(&text));
	buf_release(&text);
	return buf_check(&o->message, "a message", e);
}

err_code judge_no_truncation(const struct judgement *j, struct outcome *o, struct err *e)
{
	const struct json *m = evidence_metric(j->cand, "n_truncated", 0, NULL);
	const char *id = j->gate->measures[j->rule->measure].id;
	int64_t n = 0;

	o->limit = 0;
	if (!find_value(j, "n_truncated", 0, &o->value, o))
		return ERR_OK;
	if (json_get_integer(m, "n", &n))
		o->n = n;
	if (o->value > 0)
		outcome_set(o, VERDICT_FAIL, "%.0f of the %lld items of measure '%s' were truncated", o->value,
		            (long long)n, id);
	else
		outcome_set(o, VERDICT_PASS, "none of the %lld items of measure '%s' was truncated", (long long)n, id);
	return buf_check(&o->message, "a message", e);
}

/* -- throughput -------------------------------------------------------------------------------- */

static const char *engine_text(const struct evidence *ev, const char *key)
{
	const char *s = json_get_string(json_get(ev->result, "engine"), key);

	return s ? s : "not given";
}

/* A figure of one device says nothing about another. */
static bool is_same_device(const struct judgement *j, struct outcome *o)
{
	static const char *const keys[] = {"device", "device_name", "dtype"};

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		const char *a = engine_text(j->base, keys[i]), *b = engine_text(j->cand, keys[i]);

		if (!strcmp(a, b))
			continue;
		outcome_set(
		    o, j->engine_differs ? VERDICT_INCONCLUSIVE : VERDICT_ERROR,
		    "throughput is compared on the same device only, but %s is %.100s, and %.100s in the baseline",
		    keys[i], b, a);
		o->refused = !j->engine_differs;
		return false;
	}
	return true;
}

static bool read_rate(const struct evidence *ev, double *out)
{
	return json_get_number(json_get(ev->result, "engine"), "tokens_per_s", out) && *out > 0;
}

err_code judge_throughput(const struct judgement *j, struct outcome *o, struct err *e)
{
	double ratio;

	o->limit = j->rule->min_ratio;
	if (!can_compare(j, o) || !is_same_device(j, o))
		return ERR_OK;
	if (!read_rate(j->cand, &o->value) || !read_rate(j->base, &o->baseline_value)) {
		outcome_set(o, VERDICT_ERROR, "tokens_per_s of the %s is not known",
		            read_rate(j->cand, &o->value) ? "baseline" : "candidate");
		return ERR_OK;
	}
	ratio = o->value / o->baseline_value;
	outcome_set(o, ratio < j->rule->min_ratio ? VERDICT_FAIL : VERDICT_PASS,
	            "%.0f tokens/s are %.3f of the baseline's %.0f, %s %g", o->value, ratio, o->baseline_value,
	            ratio < j->rule->min_ratio ? "below the minimum ratio of" : "at least", j->rule->min_ratio);
	return buf_check(&o->message, "a message", e);
}

/* -- history ----------------------------------------------------------------------------------- */

/* The last runs' values, of a perplexity as logarithms. */
static err_code read_history(const struct judgement *j, bool log_ratio, double *values, size_t *n, struct err *e)
{
	*n = 0;
	if (j->c->history && j->c->history(j->c->history_arg, j->rule, values, (size_t)j->rule->k, n, e))
		return e->code;
	for (size_t i = 0; i < *n; i++)
		if (log_ratio)
			values[i] = log(values[i]);
	return ERR_OK;
}

/* What the runs before set: centre and half are of values, or of their logarithms. */
static void judge_bound(const struct judgement *j, const struct gate_metric *m, const struct history_bound *b,
                        struct outcome *o)
{
	bool higher = m && m->higher_is_better, log_ratio = m && m->log_ratio;
	double value = log_ratio ? log(o->value) : o->value, worsening = higher ? b->centre - value : value - b->centre,
	       limit = higher ? b->centre - b->half : b->centre + b->half;
	struct buf text = BUF_INIT(2000);

	o->n = (int64_t)b->k;
	o->baseline_value = log_ratio ? exp(b->centre) : b->centre;
	o->delta = worsening;
	o->limit = log_ratio ? exp(limit) : limit;
	put_subject(j->rule, &text);
	buf_puts(&text, " is ");
	put_number(o->value, &text);
	buf_printf(&text, ", %s than ", worsening > b->half ? "worse" : "not worse");
	put_number(o->limit, &text);
	buf_printf(&text, ", the %g %% bound that the last %zu runs set around ", 100 * j->rule->confidence, b->k);
	put_number(o->baseline_value, &text);
	buf_puts(&text, j->rule->linear ? ", where their trend goes" : ", their mean");
	outcome_set(o, worsening > b->half ? VERDICT_FAIL : VERDICT_PASS, "%s", buf_str(&text));
	buf_release(&text);
}

err_code judge_history(const struct judgement *j, struct outcome *o, struct err *e)
{
	const struct gate_rule *r = j->rule;
	const struct gate_metric *m = gate_metric_find(r->metric);
	struct history_bound b;
	double *values;
	size_t n;

	if (!find_value(j, r->metric, r->length, &o->value, o))
		return ERR_OK;
	values = mem_alloc((size_t)r->k, sizeof *values, e);
	if (!values)
		return e->code;
	if (read_history(j, m && m->log_ratio, values, &n, e)) {
		free(values);
		return err_wrap(e, "rule '%s'", r->name);
	}
	o->n = (int64_t)n;
	if (history_bound(values, n, r->linear, 1 - r->confidence, r->min_effect, &b))
		judge_bound(j, m, &b, o);
	else
		outcome_set(o, VERDICT_INCONCLUSIVE,
		            "%zu earlier run%s of this gate and branch passed, and a bound needs at least %d", n,
		            n == 1 ? "" : "s", HISTORY_MIN_RUNS);
	free(values);
	return buf_check(&o->message, "a message", e);
}
