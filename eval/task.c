/* Tasks: the table of them, and their parameters: reading, checking, writing, explaining. What a task does with its
 * parameters stands in the task's own file. */
#include "eval/task.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/example.h"
#include "eval/gate.h"

#define TASK_ROW(name) &task_##name,
static const struct task *const tasks[] = {TASKS(TASK_ROW)};

#define LIST_MAX 256 /* items of a PARAM_INT_LIST */

size_t task_count(void)
{
	return sizeof tasks / sizeof tasks[0];
}

const struct task *task_at(size_t i)
{
	assert(i < task_count());
	return tasks[i];
}

const char *task_name(const struct task *t)
{
	return t->name;
}

int task_version(const struct task *t)
{
	return t->version;
}

/* Levenshtein distance, but at most 3 (and for short words only): good enough to guess what was meant. */
static unsigned edit_distance(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	unsigned row[64], left, diag, up;

	if (n >= 64 || m >= 64)
		return 3;
	for (size_t j = 0; j <= m; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		diag = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			up = row[j];
			left = row[j - 1];
			diag += a[i - 1] != b[j - 1];
			if (diag > up + 1)
				diag = up + 1;
			if (diag > left + 1)
				diag = left + 1;
			row[j] = diag;
			diag = up;
		}
	}
	return row[m] > 3 ? 3 : row[m];
}

const struct task *task_find(const char *name, struct err *e)
{
	struct buf names = BUF_INIT(4096);

	for (size_t i = 0; i < task_count(); i++) {
		if (!strcmp(tasks[i]->name, name) || (tasks[i]->alias && !strcmp(tasks[i]->alias, name))) {
			buf_release(&names);
			return tasks[i];
		}
		buf_printf(&names, "%s%s", i ? ", " : "", tasks[i]->name);
	}
	err_set(e, ERR_INPUT, "unknown task '%.100s' (there is: %s)", name, buf_str(&names));
	buf_release(&names);
	return NULL;
}

static bool is_text(const struct param *p)
{
	return p->type == PARAM_STRING || p->type == PARAM_DATASET;
}

/* -- one value --------------------------------------------------------------------------------- */

/* The i-th of "a|b|c", not NUL-terminated; NULL past the last. */
static const char *choice_at(const char *choices, int64_t i, size_t *len)
{
	for (; i > 0 && choices; i--) {
		choices = strchr(choices, '|');
		if (choices)
			choices++;
	}
	if (choices)
		*len = strcspn(choices, "|");
	return choices;
}

static int64_t choice_index(const char *choices, const char *name)
{
	const char *s;
	size_t len;

	for (int64_t i = 0; (s = choice_at(choices, i, &len)); i++)
		if (strlen(name) == len && !memcmp(s, name, len))
			return i;
	return -1;
}

/* An integer in the parameter's range. `where` is the parameter, or an item of it: "lengths/3". */
static err_code read_integer(const struct param *p, const struct json *j, const char *where, int64_t *out,
                             struct err *e)
{
	double d;

	if (!json_number(j, &d)) {
		err_set(e, ERR_INPUT, "%s: must be an integer, not %s", where, json_type_name(j));
		return err_at(e, "/%s", where);
	}
	if (!json_integer(j, out) || *out < p->min || *out > p->max) {
		err_set(e, ERR_INPUT, "%s: %.17g is not an integer from %lld to %lld", where, d, (long long)p->min,
		        (long long)p->max);
		return err_at(e, "/%s", where);
	}
	return ERR_OK;
}

static err_code read_list(const struct param *p, const struct json *j, struct param_value *v, struct err *e)
{
	size_t n = json_count(j), i = 0;
	char where[64];

	if (!json_is_array(j) || !n || n > LIST_MAX) {
		err_set(e, ERR_INPUT, "%s: must be a list of 1 to %d integers, not %s", p->name, LIST_MAX,
		        !json_is_array(j) ? json_type_name(j)
		        : n               ? "a longer one"
		                          : "an empty one");
		return err_at(e, "/%s", p->name);
	}
	v->list = mem_alloc(n, sizeof *v->list, e);
	if (!v->list)
		return e->code;
	for (j = json_first(j); j; j = json_next(j), i++) {
		snprintf(where, sizeof where, "%s/%zu", p->name, i);
		if (read_integer(p, j, where, &v->list[i], e))
			return e->code;
		if (i && v->list[i] <= v->list[i - 1]) {
			err_set(e, ERR_INPUT, "%s: must ascend: %lld follows %lld", p->name, (long long)v->list[i],
			        (long long)v->list[i - 1]);
			return err_at(e, "/%s", where);
		}
	}
	v->n = n;
	return ERR_OK;
}

static err_code read_choice(const struct param *p, const struct json *j, struct param_value *v, struct err *e)
{
	const char *s = json_string(j);

	v->i = s ? choice_index(p->choices, s) : -1;
	if (v->i >= 0)
		return ERR_OK;
	err_set(e, ERR_INPUT, "%s: must be one of %s, not %.100s", p->name, p->choices, s ? s : json_type_name(j));
	return err_at(e, "/%s", p->name);
}

static err_code read_bool(const struct param *p, const struct json *j, struct param_value *v, struct err *e)
{
	v->i = json_true(j);
	if (json_is_bool(j))
		return ERR_OK;
	err_set(e, ERR_INPUT, "%s: must be true or false, not %s", p->name, json_type_name(j));
	return err_at(e, "/%s", p->name);
}

static err_code read_string(const struct param *p, const struct json *j, struct param_value *v, struct err *e)
{
	const char *s = json_string(j);
	const char *control = s;

	if (!s) {
		err_set(e, ERR_INPUT, "%s: must be a string, not %s", p->name, json_type_name(j));
		return err_at(e, "/%s", p->name);
	}
	while (*control && (unsigned char)*control >= 0x20 && *control != 0x7F)
		control++;
	if (*control || strlen(s) < (size_t)p->min || strlen(s) > (size_t)p->max) {
		err_set(e, ERR_INPUT, "%s: '%.100s' is not %lld to %lld bytes without control characters", p->name, s,
		        (long long)p->min, (long long)p->max);
		return err_at(e, "/%s", p->name);
	}
	v->s = mem_strdup(s, e);
	return v->s ? ERR_OK : e->code;
}

static err_code read_value(const struct param *p, const struct json *j, struct param_value *v, struct err *e)
{
	v->null = json_is_null(j);
	if (v->null)
		return ERR_OK;
	switch (p->type) {
	case PARAM_INT:
		return read_integer(p, j, p->name, &v->i, e);
	case PARAM_INT_LIST:
		return read_list(p, j, v, e);
	case PARAM_ENUM:
		return read_choice(p, j, v, e);
	case PARAM_BOOL:
		return read_bool(p, j, v, e);
	case PARAM_STRING:
	case PARAM_DATASET:
		return read_string(p, j, v, e);
	}
	assert(!"a parameter of unknown type");
	return ERR_OK;
}

static err_code read_fallback(const struct param *p, struct param_value *v, struct err *e)
{
	struct json *j;
	err_code rc = json_parse(p->fallback, strlen(p->fallback), &j, e);

	assert(!rc);
	rc = read_value(p, j, v, e);
	json_free(j);
	return rc;
}

static void write_value(const struct param *p, const struct param_value *v, struct json_writer *w)
{
	const char *s;
	size_t len;

	if (v->null) {
		json_put_null(w, p->name);
	} else if (p->type == PARAM_INT) {
		json_put_int(w, p->name, v->i);
	} else if (p->type == PARAM_BOOL) {
		json_put_bool(w, p->name, v->i);
	} else if (is_text(p)) {
		json_put_string(w, p->name, v->s);
	} else if (p->type == PARAM_ENUM) {
		s = choice_at(p->choices, v->i, &len);
		assert(s);
		json_put_stringn(w, p->name, s, len);
	} else {
		json_begin_array(w, p->name);
		for (size_t i = 0; i < v->n; i++)
			json_put_int(w, NULL, v->list[i]);
		json_end_array(w);
	}
}

/* -- all values -------------------------------------------------------------------------------- */

static const struct param *find_param(const struct task *t, const char *name)
{
	for (size_t i = 0; i < t->n_params; i++)
		if (!strcmp(t->params[i].name, name))
			return &t->params[i];
	return NULL;
}

static err_code unknown_param(const struct task *t, const char *name, struct err *e)
{
	struct buf names = BUF_INIT(4096);
	const char *near = NULL;
	unsigned best = 3, d;

	for (size_t i = 0; i < t->n_params; i++) {
		d = edit_distance(name, t->params[i].name);
		if (d < best) {
			best = d;
			near = t->params[i].name;
		}
		buf_printf(&names, "%s%s", i ? ", " : "", t->params[i].name);
	}
	if (near)
		err_set(e, ERR_INPUT, "task %s has no parameter '%.100s': is '%s' meant?", t->name, name, near);
	else
		err_set(e, ERR_INPUT, "task %s has no parameter '%.100s', only %s", t->name, name, buf_str(&names));
	buf_release(&names);
	return err_at_member(e, "", name);
}

err_code param_values(const struct task *t, const struct json *given, struct param_value v[TASK_MAX_PARAMS],
                      struct err *e)
{
	const struct json *j;
	err_code rc = ERR_OK;

	assert(t->n_params <= TASK_MAX_PARAMS);
	memset(v, 0, TASK_MAX_PARAMS * sizeof v[0]);
	if (given && !json_is_object(given) && !json_is_null(given))
		return err_set(e, ERR_INPUT, "params: must be an object, not %s", json_type_name(given));
	for (j = json_is_object(given) ? json_first(given) : NULL; j; j = json_next(j))
		if (!find_param(t, json_key(j)))
			return unknown_param(t, json_key(j), e);
	for (size_t i = 0; i < t->n_params && !rc; i++) {
		j = json_is_object(given) ? json_get(given, t->params[i].name) : NULL;
		v[i].given = j && !json_is_null(j);
		rc = v[i].given ? read_value(&t->params[i], j, &v[i], e) : read_fallback(&t->params[i], &v[i], e);
	}
	return rc || !t->resolve ? rc : t->resolve(v, e);
}

void param_values_release(struct param_value v[TASK_MAX_PARAMS])
{
	for (size_t i = 0; i < TASK_MAX_PARAMS; i++) {
		free(v[i].list);
		free(v[i].s);
	}
	memset(v, 0, TASK_MAX_PARAMS * sizeof v[0]);
}

err_code task_params(const struct task *t, const struct json *given, struct buf *out, struct err *e)
{
	struct json_writer w = JSON_WRITER(out);
	struct param_value v[TASK_MAX_PARAMS];
	err_code rc = param_values(t, given, v, e);

	if (!rc) {
		json_begin_object(&w, NULL);
		for (size_t i = 0; i < t->n_params; i++)
			write_value(&t->params[i], &v[i], &w);
		json_end_object(&w);
		rc = buf_check(out, "parameters", e);
	}
	param_values_release(v);
	return rc;
}

err_code task_check_names(const struct task *t, const struct json *params, const struct registry *r, struct err *e)
{
	char *path = NULL;

	for (size_t i = 0; i < t->n_params; i++) {
		const struct param *p = &t->params[i];
		const char *name = p->type == PARAM_DATASET ? json_get_string(params, p->name) : NULL;

		if (name && registry_dataset(r, name, &path, e)) {
			err_wrap(e, "%s", p->name);
			return err_at(e, "/%s", p->name);
		}
		free(path);
		path = NULL;
	}
	return ERR_OK;
}

/* An integer that ends at `end`. */
static bool parse_integer(const char *s, const char *end, int64_t *out)
{
	char *stop;

	if (s == end || !strchr("-0123456789", *s))
		return false;
	errno = 0;
	*out = strtoll(s, &stop, 10);
	return stop == end && !errno && *out >= -JSON_INT_MAX && *out <= JSON_INT_MAX;
}

static err_code parse_list(const struct param *p, const char *value, struct json_writer *w, struct err *e)
{
	const char *end;
	int64_t i;

	json_begin_array(w, p->name);
	for (const char *s = value;; s = end + 1) {
		end = s + strcspn(s, ",");
		if (!parse_integer(s, end, &i))
			break;
		json_put_int(w, NULL, i);
		if (!*end) {
			json_end_array(w);
			return ERR_OK;
		}
	}
	json_end_array(w);
	return err_set(e, ERR_INPUT, "%s: '%.100s' is not a list of integers (a,b,...)", p->name, value);
}

err_code task_param_parse(const struct task *t, const char *assignment, struct json_writer *w, struct err *e)
{
	const char *eq = strchr(assignment, '='), *value;
	const struct param *p;
	char name[64];
	int64_t i;

	if (!eq || eq == assignment || (size_t)(eq - assignment) >= sizeof name)
		return err_set(e, ERR_INPUT, "'%.100s' is not of the form key=value", assignment);
	memcpy(name, assignment, (size_t)(eq - assignment));
	name[eq - assignment] = '\0';
	value = eq + 1;
	p = find_param(t, name);
	if (!p)
		return unknown_param(t, name, e);
	if (!strcmp(value, "null")) {
		json_put_null(w, p->name);
	} else if (p->type == PARAM_INT_LIST) {
		return parse_list(p, value, w, e);
	} else if (p->type == PARAM_ENUM || is_text(p)) {
		json_put_string(w, p->name, value);
	} else if (p->type == PARAM_BOOL) {
		if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
			return err_set(e, ERR_INPUT, "%s: must be true or false, not '%.100s'", p->name, value);
		json_put_bool(w, p->name, *value == 't');
	} else {
		if (!parse_integer(value, value + strlen(value), &i))
			return err_set(e, ERR_INPUT, "%s: '%.100s' is not an integer", p->name, value);
		json_put_int(w, p->name, i);
	}
	return ERR_OK;
}

/* -- descriptions ------------------------------------------------------------------------------ */

static const char *type_name(enum param_type type)
{
	static const char *const names[] = {"integer", "integer list", "choice", "boolean", "string", "dataset"};

	return names[type];
}

static void describe_param(const struct param *p, struct json_writer *w)
{
	const char *s;
	size_t len;

	json_begin_object(w, NULL);
	json_put_string(w, "name", p->name);
	json_put_string(w, "type", type_name(p->type));
	json_put_raw(w, "default", p->fallback);
	if (p->type == PARAM_ENUM) {
		json_begin_array(w, "choices");
		for (int64_t i = 0; (s = choice_at(p->choices, i, &len)); i++)
			json_put_stringn(w, NULL, s, len);
		json_end_array(w);
	} else if (is_text(p)) {
		json_put_int(w, "min_bytes", p->min);
		json_put_int(w, "max_bytes", p->max);
	} else if (p->type != PARAM_BOOL) {
		json_put_int(w, "min", p->min);
		json_put_int(w, "max", p->max);
	}
	json_put_string(w, "help", p->help);
	json_end_object(w);
}

const char *task_headline(const struct task *t)
{
	return t->headline ? t->headline : t->n_metrics ? t->metrics[0].name : "";
}

const char *task_figure(const struct task *t)
{
	return t->figure ? t->figure : "bars";
}

static void describe_formats(const struct task *t, struct json_writer *w)
{
	const char *formats = t->formats ? t->formats : t->examples ? t->examples->files : NULL, *s;
	size_t len;

	json_begin_array(w, "formats");
	for (int64_t i = 0; (s = choice_at(formats, i, &len)); i++)
		json_put_stringn(w, NULL, s + (*s == '.'), len - (*s == '.'));
	json_end_array(w);
}

void task_describe(const struct task *t, struct json_writer *w, const char *key)
{
	json_begin_object(w, key);
	json_put_string(w, "name", t->name);
	json_put_string(w, "alias", t->alias);
	json_put_int(w, "version", t->version);
	json_put_string(w, "summary", t->summary);
	json_put_string(w, "dataset", t->dataset);
	describe_formats(t, w);
	json_put_string(w, "generated_by", t->generated_by);
	json_put_string(w, "headline", task_headline(t));
	json_put_string(w, "figure", task_figure(t));
	json_begin_array(w, "params");
	for (size_t i = 0; i < t->n_params; i++)
		describe_param(&t->params[i], w);
	json_end_array(w);
	json_begin_array(w, "metrics");
	for (size_t i = 0; i < t->n_metrics; i++) {
		json_begin_object(w, NULL);
		json_put_string(w, "name", t->metrics[i].name);
		json_put_string(w, "unit", t->metrics[i].unit);
		json_put_bool(w, "log_ratio", gate_metric_is_log(t->metrics[i].name));
		json_put_string(w, "help", t->metrics[i].help);
		json_end_object(w);
	}
	json_end_array(w);
	json_end_object(w);
}

void task_help(const struct task *t, struct buf *out)
{
	buf_printf(out, "task %s (version %d): %s\ndataset: %s\n\nparameters (--set key=value):\n", t->name, t->version,
	           t->summary, t->dataset);
	for (size_t i = 0; i < t->n_params; i++) {
		const struct param *p = &t->params[i];

		buf_printf(out, "  %-20s %s\n", p->name, p->help);
		if (p->type == PARAM_ENUM)
			buf_printf(out, "  %-20s %s; default %s\n", "", p->choices, p->fallback);
		else if (p->type == PARAM_BOOL)
			buf_printf(out, "  %-20s true or false; default %s\n", "", p->fallback);
		else if (is_text(p))
			buf_printf(out, "  %-20s text; default %s\n", "", p->fallback);
		else
			buf_printf(out, "  %-20s %s, %lld to %lld; default %s\n", "", type_name(p->type),
			           (long long)p->min, (long long)p->max, p->fallback);
	}
	buf_puts(out, "\nmetrics:\n");
	for (size_t i = 0; i < t->n_metrics; i++)
		buf_printf(out, "  %-20s %s (%s)\n", t->metrics[i].name, t->metrics[i].help, t->metrics[i].unit);
}
