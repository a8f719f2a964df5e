/* Results: from unit results to the object that users see. Needs no model, so `serve` calls it too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/task.h"

err_code unit_source_next(const struct unit_source *units, uint32_t *unit, struct json **out, struct err *e)
{
	const char *text = units->next(units->arg, unit);

	*out = NULL;
	if (!text)
		return ERR_OK;
	return json_parse(text, strlen(text), out, e) ? err_wrap(e, "result of unit %u", *unit) : ERR_OK;
}

err_code task_metrics(const struct task *t, const struct json *params, const struct unit_source *units,
                      struct json_writer *w, const char *key, struct err *e)
{
	struct param_value v[TASK_MAX_PARAMS];
	err_code rc = param_values(t, params, v, e);

	json_begin_array(w, key);
	if (!rc)
		rc = t->fold_metrics(v, units, w, e);
	json_end_array(w);
	param_values_release(v);
	return rc;
}

err_code task_items(const struct task *t, const struct json *params, const struct unit_source *units, item_fn *f,
                    void *arg, struct err *e)
{
	struct param_value v[TASK_MAX_PARAMS];
	err_code rc = param_values(t, params, v, e);

	if (!rc)
		rc = t->fold_items(v, units, f, arg, e);
	param_values_release(v);
	return rc;
}

static int compare_points(const void *pa, const void *pb)
{
	const struct curve_point *a = pa, *b = pb;

	return (a->length > b->length) - (a->length < b->length);
}

err_code result_curve(const struct json *metrics, const char *metric, struct curve_point **points, size_t *n,
                      struct err *e)
{
	struct curve_point *p = mem_alloc(json_count(metrics), sizeof *p, e);

	if (!p)
		return e->code;
	*n = 0;
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		const char *name = json_get_string(m, "name");
		struct curve_point at;

		if (!name || strcmp(name, metric) != 0 || !json_get_integer(m, "length", &at.length) ||
		    !json_get_number(m, "value", &at.value))
			continue;
		if (!json_get_number(m, "stderr", &at.stderr_))
			at.stderr_ = -1;
		p[(*n)++] = at;
	}
	if (*n)
		qsort(p, *n, sizeof *p, compare_points);
	*points = p;
	return ERR_OK;
}

const struct json *result_headline(const struct task *t, const struct json *metrics)
{
	const struct json *best = NULL;
	int64_t length, longest = -1;

	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		const char *name = json_get_string(m, "name");

		if (!name || strcmp(name, task_headline(t)) != 0 || json_get(m, "group") || json_get(m, "from"))
			continue;
		if (!json_get_integer(m, "length", &length))
			length = 0;
		if (length > longest) {
			longest = length;
			best = m;
		}
	}
	return best;
}

/* Passes a source on and counts it. */
struct counted {
	const struct unit_source *units;
	uint64_t n;
};

static const char *count_next(void *arg, uint32_t *unit)
{
	struct counted *c = arg;
	const char *text = c->units->next(c->units->arg, unit);

	c->n += text != NULL;
	return text;
}

/* What the model asked for in a second, and its share of the device's peak. Plans of before have neither figure. */
static void write_utilisation(struct json_writer *w, const struct json *engine, double rate)
{
	const char *dtype = json_get_string(engine, "dtype"), *device = json_get_string(engine, "device_name");
	double flops, peak;
	char why[200];

	if (!json_get_number(engine, "model_flops_per_token", &flops))
		return;
	json_put_double(w, "tflops_per_s", rate * flops / 1e12);
	if (json_get_number(engine, "peak_flops", &peak)) {
		json_put_double(w, "mfu", rate * flops / peak);
		return;
	}
	snprintf(why, sizeof why, "the peak of %s in %s is not known", device ? device : "the device",
	         dtype ? dtype : "its dtype");
	json_put_null(w, "mfu");
	json_put_string(w, "mfu_reason", why);
}

/* The engine of the plan, with the times. */
static void write_engine(struct json_writer *w, const struct json *plan, const struct result_stats *stats)
{
	const struct json *engine = json_get(plan, "engine");
	double rate = stats->seconds > 0 ? (double)stats->tokens / stats->seconds : 0;

	json_begin_object(w, "engine");
	for (const struct json *m = json_first(engine); m; m = json_next(m))
		json_put_value(w, json_key(m), m);
	json_put_uint(w, "tokens", stats->tokens);
	json_put_double(w, "seconds", stats->seconds);
	json_put_double(w, "tokens_per_s", rate);
	write_utilisation(w, engine, rate);
	json_end_object(w);
}

err_code result_write(struct json_writer *w, const struct task *t, const struct json *params, const struct json *plan,
                      const struct unit_source *units, const struct result_stats *stats, struct err *e)
{
	struct counted counted = {.units = units};
	struct unit_source source = {.next = count_next, .arg = &counted};
	int64_t n_units = 0;

	json_begin_object(w, NULL);
	json_put_int(w, "schema", 1);
	json_put_value(w, "model", json_get(plan, "model"));
	json_begin_object(w, "task");
	json_put_string(w, "name", t->name);
	json_put_int(w, "version", t->version);
	json_put_value(w, "params", params);
	json_end_object(w);
	json_put_value(w, "dataset", json_get(plan, "dataset"));
	if (task_metrics(t, params, &source, w, "metrics", e))
		return e->code;
	write_engine(w, plan, stats);
	json_put_value(w, "warnings", json_get(plan, "warnings"));
	json_get_integer(plan, "n_units", &n_units);
	if (counted.n < (uint64_t)n_units || stats->n_failed_units) {
		json_put_bool(w, "partial", true);
		json_begin_array(w, "failed_units");
		for (size_t i = 0; i < stats->n_failed_units; i++)
			json_put_uint(w, NULL, stats->failed_units[i]);
		json_end_array(w);
	}
	json_end_object(w);
	return buf_check(w->out, "result", e);
}
