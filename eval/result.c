/* Results: from unit results to the object that users see. Needs no model, so `serve` calls it too. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/task.h"

#define MAP_SIDE 65536 /* layers, frequencies */

err_code unit_source_next(const struct unit_source *units, uint32_t *unit, struct json **out, struct err *e)
{
	const char *text = units->next(units->arg, unit);

	*out = NULL;
	if (!text)
		return ERR_OK;
	return json_parse(text, strlen(text), out, e) ? err_wrap(e, "result of unit %u", *unit) : ERR_OK;
}

err_code unit_malformed(struct err *e, uint32_t unit, const char *what)
{
	return err_set(e, ERR_INPUT, "unit %u: its result has no usable '%s'", unit, what);
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

bool task_items_are_units(const struct task *t)
{
	return t->examples;
}

bool result_metric_is(const struct json *row, const char *name, int64_t length, const char *group)
{
	const char *its_name = json_get_string(row, "name"), *its_group = json_get_string(row, "group");
	int64_t its_length = 0;

	json_get_integer(row, "length", &its_length);
	return its_name && !strcmp(its_name, name) && its_length == length && !json_get(row, "from") &&
	       !json_get(row, "frequency") && (group && its_group ? !strcmp(group, its_group) : group == its_group);
}

const struct json *result_metric(const struct json *metrics, const char *name, int64_t length, const char *group)
{
	for (const struct json *m = json_first(metrics); m; m = json_next(m))
		if (result_metric_is(m, name, length, group))
			return m;
	return NULL;
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
		struct curve_point at;

		if (!json_get_integer(m, "length", &at.length) || !result_metric_is(m, metric, at.length, NULL) ||
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

void frequency_map_release(struct frequency_map *m)
{
	free(m->theta);
	free(m->mean[0]);
	free(m->mean[1]);
	*m = (struct frequency_map){0};
}

static bool is_frequency(const struct json *metric)
{
	const char *name = json_get_string(metric, "name");

	return name && !strcmp(name, "frequency_use");
}

/* The numbers of layers and of frequencies, and of metrics that have them. */
static size_t measure_map(const struct json *metrics, struct frequency_map *out)
{
	size_t n = 0;
	int64_t layer, i;

	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		if (!is_frequency(m) || !json_get_integer(m, "layer", &layer) ||
		    !json_get_integer(m, "frequency", &i) || layer < 0 || i < 0 || layer >= MAP_SIDE || i >= MAP_SIDE)
			continue;
		n++;
		out->n_layer = (size_t)layer >= out->n_layer ? (size_t)layer + 1 : out->n_layer;
		out->n_freq = (size_t)i >= out->n_freq ? (size_t)i + 1 : out->n_freq;
	}
	return n;
}

/* Puts one metric in its place; false where that is taken or is none. */
static bool place_mean(const struct json *m, struct frequency_map *out)
{
	const char *part = json_get_string(m, "part");
	int64_t layer, i;
	double *at;

	if (!part || (strcmp(part, "q") != 0 && strcmp(part, "k") != 0))
		return false;
	if (!json_get_integer(m, "layer", &layer) || !json_get_integer(m, "frequency", &i) || layer < 0 || i < 0 ||
	    (size_t)layer >= out->n_layer || (size_t)i >= out->n_freq)
		return false;
	at = &out->mean[*part == 'k'][(size_t)layer * out->n_freq + (size_t)i];
	return isnan(*at) && json_get_number(m, "value", at) && json_get_number(m, "theta", &out->theta[i]);
}

err_code result_frequencies(const struct json *metrics, struct frequency_map *out, struct err *e)
{
	size_t n, cells;

	*out = (struct frequency_map){0};
	n = measure_map(metrics, out);
	cells = out->n_layer * out->n_freq;
	if (n != 2 * cells)
		return err_set(e, ERR_INPUT, "%zu means of frequencies, not 2 parts of %zu layers of %zu", n,
		               out->n_layer, out->n_freq);
	out->theta = mem_alloc(out->n_freq, sizeof *out->theta, e);
	for (int part = 0; part < 2; part++)
		out->mean[part] = mem_alloc(cells, sizeof *out->mean[part], e);
	if (!out->theta || !out->mean[0] || !out->mean[1])
		return e->code;
	for (size_t i = 0; i < cells; i++)
		out->mean[0][i] = out->mean[1][i] = NAN;
	for (const struct json *m = json_first(metrics); m; m = json_next(m))
		if (is_frequency(m) && !place_mean(m, out))
			return err_set(e, ERR_INPUT, "a mean of a frequency is malformed, or there twice");
	return ERR_OK;
}

const struct json *result_headline(const struct task *t, const struct json *metrics)
{
	const struct json *best = NULL;
	int64_t length, longest = -1;

	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		if (!json_get_integer(m, "length", &length))
			length = 0;
		if (length > longest && result_metric_is(m, task_headline(t), length, NULL)) {
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
