/* Evidence: a result and its items, read from JSON and held in little: 67,000 items are read one by one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/gate_private.h"

#define MAX_NAMES  ((size_t)1 << 30)
#define MAX_RESULT ((size_t)256 << 20)

/* -- items ------------------------------------------------------------------------------------- */

static err_code put_name(struct evidence *ev, const char *name, uint32_t *at, struct err *e)
{
	*at = (uint32_t)ev->names.len;
	buf_append(&ev->names, name, strlen(name) + 1);
	return buf_check(&ev->names, "the names of items", e);
}

static err_code malformed(struct err *e, const char *member, const char *want)
{
	err_set(e, ERR_INPUT, "its %s is not %s", member, want);
	return err_at(e, "/%s", member);
}

/* A member's number, or that of the first element where it is an array; NaN where it is absent or null. *null: it is
 * there, and null. */
static err_code read_number(const struct json *item, const char *key, double *out, bool *null, struct err *e)
{
	const struct json *v = json_get(item, key);

	*out = NAN;
	if (json_is_array(v))
		v = json_first(v);
	if (json_is_null(v))
		*null = true;
	if (!v || json_is_null(v) || json_number(v, out))
		return ERR_OK;
	return malformed(e, key, "a number");
}

static err_code read_key(const struct json *item, struct evidence_item *it, struct err *e)
{
	const struct json *v = json_get(item, "key");
	const char *key = json_string(v);

	if (!v || json_is_null(v))
		return ERR_OK;
	if (!key || strlen(key) != 16 || strspn(key, "0123456789abcdef") != 16)
		return malformed(e, "key", "16 hexadecimal digits");
	it->key = strtoull(key, NULL, 16);
	it->has_key = true;
	return ERR_OK;
}

static err_code read_names(struct evidence *ev, const struct json *item, struct evidence_item *it, struct err *e)
{
	const struct json *doc = json_get(item, "doc"), *group = json_get(item, "group");

	if (json_is_string(doc)) {
		if (put_name(ev, json_string(doc), &it->doc, e))
			return e->code;
	} else if (doc && !json_is_null(doc)) {
		return malformed(e, "doc", "a string");
	}
	if (!group || json_is_null(group))
		return ERR_OK;
	if (!json_is_string(group))
		return malformed(e, "group", "a string");
	if (strcmp(evidence_name(ev, ev->last_group), json_string(group)) != 0 &&
	    put_name(ev, json_string(group), &ev->last_group, e))
		return e->code;
	it->group = ev->last_group;
	return ERR_OK;
}

/* Reads at most MAX_CHOICES numbers (an item of more has no metrics beside acc); 0 unless all of the array are. *null:
 * one is null. */
static size_t read_list(const struct json *list, double *out, bool *null)
{
	size_t n = 0;

	for (const struct json *j = json_first(list); j; j = json_next(j), n++) {
		if (json_is_null(j))
			*null = true;
		if (n == MAX_CHOICES || !json_number(j, &out[n]))
			return 0;
	}
	return n;
}

static err_code read_choices(const struct evidence *ev, const struct json *item, struct evidence_item *it,
                             struct err *e)
{
	const struct json *correct = json_get(item, "correct");
	double logprobs[MAX_CHOICES], divisors[MAX_CHOICES];
	size_t n = read_list(json_get(item, "logprobs"), logprobs, &it->broken);
	bool ignored = false;
	int64_t gold;

	if (json_is_bool(correct))
		it->right[0] = json_true(correct) ? RIGHT_YES : RIGHT_NO;
	else if (json_is_null(correct))
		it->broken = true;
	else if (correct)
		return malformed(e, "correct", "true or false");
	if (!json_get_integer(item, "gold", &gold) || gold < 0 || gold >= MAX_CHOICES)
		return ERR_OK;
	it->gold = (int32_t)gold;
	for (int k = NORM_NONE + 1; k < N_NORMS && n > 1; k++)
		if (read_list(json_get(item, choice_norms[k].divisor), divisors, &ignored) == n)
			it->right[k] =
			    choice_is_right(logprobs, divisors, n, (size_t)gold, ev->ties_wrong) ? RIGHT_YES : RIGHT_NO;
	return ERR_OK;
}

static err_code read_item(struct evidence *ev, const struct json *item, struct err *e)
{
	struct evidence_item it = {.gold = -1, .right = {RIGHT_UNKNOWN, RIGHT_UNKNOWN, RIGHT_UNKNOWN, RIGHT_UNKNOWN}};
	const struct json *length = json_get(item, "length");
	double logprob;
	bool ignored = false;

	if (!json_is_object(item))
		return err_set(e, ERR_INPUT, "it is %s, not an object", json_type_name(item));
	if (length && !json_is_null(length) && (!json_integer(length, &it.length) || it.length < 1))
		return malformed(e, "length", "a length");
	if (read_key(item, &it, e) || read_names(ev, item, &it, e) ||
	    read_number(item, "nll", &it.loss, &it.broken, e) ||
	    read_number(item, "logprobs", &logprob, &it.broken, e) ||
	    read_number(item, "n_tokens", &it.n_tokens, &ignored, e) ||
	    read_number(item, "n_bytes", &it.n_bytes, &ignored, e) ||
	    read_number(item, "n_words", &it.n_words, &ignored, e) || read_choices(ev, item, &it, e))
		return e->code;
	if (isnan(it.loss))
		it.loss = -logprob;
	if (json_true(json_get(item, "partial")))
		it.broken = true;
	ev->items[ev->n++] = it;
	return ERR_OK;
}

static err_code add_item(struct evidence *ev, const struct json *item, struct err *e)
{
	struct evidence_item *p = mem_grow(ev->items, &ev->cap, ev->n + 1, sizeof *p, e);
	char pointer[sizeof e->pointer];

	if (!p)
		return e->code;
	ev->items = p;
	if (!read_item(ev, item, e))
		return ERR_OK;
	memcpy(pointer, e->pointer, sizeof pointer);
	err_wrap(e, "item %zu", ev->n);
	return err_at(e, "/items/%zu%.150s", ev->n, pointer);
}

err_code evidence_add_item(struct evidence *ev, const char *line, size_t len, struct err *e)
{
	struct json *item = NULL;
	err_code rc = json_parse(line, len, &item, e);

	if (rc)
		err_wrap(e, "item %zu", ev->n);
	else
		rc = add_item(ev, item, e);
	json_free(item);
	return rc;
}

/* -- failures ---------------------------------------------------------------------------------- */

static err_code note_failure(struct failures *f, bool has_unit, uint32_t unit, const char *message, struct err *e)
{
	if (!f->why)
		f->why = mem_strdup(message, e);
	if (!f->why)
		return e->code;
	if (has_unit && (!f->n || unit < f->unit))
		f->unit = unit;
	f->n += has_unit;
	return ERR_OK;
}

static void forget_failures(struct failures *f)
{
	free(f->why);
	*f = (struct failures){0};
}

err_code evidence_add_failure(struct evidence *ev, uint32_t unit, const char *code, const char *message, struct err *e)
{
	if (!ev->told) {
		forget_failures(&ev->numeric);
		forget_failures(&ev->other);
		ev->told = true;
	}
	return note_failure(strcmp(code, err_name(ERR_NUMERIC)) != 0 ? &ev->other : &ev->numeric, true, unit, message,
	                    e);
}

/* A job's "error"; or "partial" alone. */
static err_code read_error(struct evidence *ev, struct err *e)
{
	const struct json *error = json_get(ev->result, "error"), *units = json_get(error, "units");
	const char *code = json_get_string(error, "code"), *message = json_get_string(error, "message");
	struct failures *f = code && !strcmp(code, err_name(ERR_NUMERIC)) ? &ev->numeric : &ev->other;
	int64_t unit;

	if (!error && !json_true(json_get(ev->result, "partial")))
		return ERR_OK;
	if (!error)
		units = json_get(ev->result, "failed_units");
	if (!message)
		message = json_is_string(error) ? json_string(error) : "some of its units are not done";
	if (!json_first(units))
		return note_failure(f, false, 0, message, e);
	for (units = json_first(units); units; units = json_next(units))
		if (json_integer(units, &unit) && unit >= 0 && unit <= UINT32_MAX &&
		    note_failure(f, true, (uint32_t)unit, message, e))
			return e->code;
	return ERR_OK;
}

/* -- results ----------------------------------------------------------------------------------- */

static err_code check_result(const struct json *r, struct err *e)
{
	static const char *const objects[] = {"model", "task", "dataset", "engine"};
	double ignored;

	if (!json_is_object(r))
		return err_set(e, ERR_INPUT, "a result is to be an object, not %s", json_type_name(r));
	if (!json_is_array(json_get(r, "metrics"))) {
		if (json_get(r, "error"))
			return ERR_OK;
		err_set(e, ERR_INPUT, "metrics is to be an array, not %s", json_type_name(json_get(r, "metrics")));
		return err_at(e, "/metrics");
	}
	for (const struct json *m = json_first(json_get(r, "metrics")); m; m = json_next(m))
		if (!json_get_string(m, "name") ||
		    (!json_get_number(m, "value", &ignored) && !json_is_null(json_get(m, "value")))) {
			err_set(e, ERR_INPUT, "a metric has no name, or its value is neither a number nor null");
			return err_at(e, "/metrics");
		}
	for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
		if (!json_is_object(json_get(r, objects[i]))) {
			err_set(e, ERR_INPUT, "%s is to be an object, not %s", objects[i],
			        json_type_name(json_get(r, objects[i])));
			return err_at(e, "/%s", objects[i]);
		}
	return ERR_OK;
}

/* The object without its items, as a tree of its own. */
static err_code copy_result(const struct json *r, struct json **out, struct err *e)
{
	struct buf text = BUF_INIT(MAX_RESULT);
	struct json_writer w = JSON_WRITER(&text);
	err_code rc;

	json_begin_object(&w, NULL);
	for (const struct json *m = json_first(r); m; m = json_next(m))
		if (strcmp(json_key(m), "items") != 0)
			json_put_value(&w, json_key(m), m);
	json_end_object(&w);
	rc = buf_check(&text, "the result", e);
	if (!rc)
		rc = json_parse(buf_str(&text), text.len, out, e);
	buf_release(&text);
	return rc;
}

/* What a metric's n says of the items: how many there are of its length and group; of a loss by tokens, their tokens,
 * NaN where one does not tell. */
static double count_of(const struct evidence *ev, const struct json *metric, const struct gate_metric *how)
{
	const char *group = json_get_string(metric, "group");
	bool by_tokens = !how->fraction && how->weight != BY_ITEMS, is_group = !group;
	uint32_t last = UINT32_MAX; /* groups come in runs: names are compared where one begins */
	int64_t length = 0;
	double sum = 0;

	json_get_integer(metric, "length", &length);
	for (size_t i = 0; i < ev->n; i++) {
		const struct evidence_item *it = &ev->items[i];

		if (group && it->group != last)
			is_group = !strcmp(evidence_name(ev, it->group), group);
		last = it->group;
		if (is_group && it->length == length)
			sum += by_tokens ? it->n_tokens : 1;
	}
	return sum;
}

/* A result that was cut or put together by hand contradicts its items. One that is not whole need not agree. */
static err_code check_counts(const struct evidence *ev, struct err *e)
{
	size_t at = 0;
	int64_t n;

	if (ev->numeric.why || ev->other.why)
		return ERR_OK;
	if (json_get_integer(json_get(ev->result, "dataset"), "n_items", &n) && (uint64_t)n != ev->n) {
		err_set(e, ERR_INPUT, "n_items of dataset is %lld, and %zu items are there", (long long)n, ev->n);
		return err_at(e, "/dataset/n_items");
	}
	for (const struct json *m = json_first(json_get(ev->result, "metrics")); m; m = json_next(m), at++) {
		const char *name = json_get_string(m, "name"), *group = json_get_string(m, "group");
		const struct gate_metric *how = gate_metric_find(name);
		double want;

		if (!how || !json_get_integer(m, "n", &n))
			continue;
		want = count_of(ev, m, how);
		if (isnan(want) || want == (double)n)
			continue;
		err_set(e, ERR_INPUT, "n of metric '%.100s'%s%.100s is %lld, and its items come to %.0f", name,
		        group ? " of " : "", group ? group : "", (long long)n, want);
		return err_at(e, "/metrics/%zu/n", at);
	}
	return ERR_OK;
}

/* All but the items. */
static err_code read_result(const struct json *result, struct evidence **out, struct err *e)
{
	struct evidence *ev;
	const char *ties;
	uint32_t empty;
	err_code rc = check_result(result, e);

	if (rc)
		return rc;
	ev = mem_zalloc(1, sizeof *ev, e);
	if (!ev)
		return ERR_MEMORY;
	ev->names = BUF_INIT(MAX_NAMES);
	rc = put_name(ev, "", &empty, e);
	if (!rc)
		rc = copy_result(result, &ev->result, e);
	if (!rc) {
		ties = json_get_string(json_get(json_get(ev->result, "task"), "params"), "ties");
		ev->ties_wrong = ties && !strcmp(ties, "wrong");
		json_get_integer(ev->result, "job", &ev->job);
		json_get_integer(ev->result, "cached_from", &ev->cached_from);
		rc = read_error(ev, e);
	}
	if (rc)
		evidence_free(ev);
	else
		*out = ev;
	return rc;
}

err_code evidence_read(const struct json *result, struct evidence **out, struct err *e)
{
	const struct json *items = json_get(result, "items");
	struct evidence *ev = NULL;
	err_code rc = read_result(result, &ev, e);

	if (!rc && items && !json_is_array(items)) {
		err_set(e, ERR_INPUT, "items is to be an array, not %s", json_type_name(items));
		rc = err_at(e, "/items");
	}
	for (const struct json *i = json_first(items); i && !rc; i = json_next(i))
		rc = add_item(ev, i, e);
	if (!rc && items)
		rc = check_counts(ev, e);
	if (rc)
		evidence_free(ev);
	else
		*out = ev;
	return rc;
}

void evidence_free(struct evidence *ev)
{
	if (!ev)
		return;
	json_free(ev->result);
	free(ev->items);
	buf_release(&ev->names);
	forget_failures(&ev->numeric);
	forget_failures(&ev->other);
	free(ev);
}

void evidence_set_job(struct evidence *ev, int64_t job, int64_t cached_from)
{
	ev->job = job;
	ev->cached_from = cached_from;
}

const struct json *evidence_result(const struct evidence *ev)
{
	return ev->result;
}

size_t evidence_n_items(const struct evidence *ev)
{
	return ev->n;
}

const struct json *evidence_metric(const struct evidence *ev, const char *name, int64_t length, const char *group)
{
	return result_metric(json_get(ev->result, "metrics"), name, length, group);
}

/* -- text -------------------------------------------------------------------------------------- */

static const char *skip_space(const char *s, const char *end)
{
	while (s < end && strchr(" \t\r\n", *s) && *s)
		s++;
	return s;
}

/* Past the value that begins at s, by brackets and strings alone: what is between is parsed later. At a comma or
 * closing bracket that is not the value's own, or the end. */
static const char *skip_value(const char *s, const char *end)
{
	size_t depth = 0;
	bool quoted = false;

	for (; s < end; s++) {
		if (quoted && *s == '\\' && s + 1 < end)
			s++;
		else if (*s == '"')
			quoted = !quoted;
		else if (quoted)
			continue;
		else if (!depth && (*s == ',' || *s == ']' || *s == '}'))
			return s;
		else if (*s == '[' || *s == '{')
			depth++;
		else if (*s == ']' || *s == '}')
			depth--;
	}
	return s;
}

static err_code parse_items(struct evidence *ev, const char *s, const char *end, struct err *e)
{
	const char *next;

	while (end > s && strchr(" \t\r\n", end[-1]) && end[-1])
		end--;
	s = skip_space(s, end);
	if (end - s < 2 || *s != '[' || end[-1] != ']')
		return err_set(e, ERR_INPUT, "items is not an array, between brackets"), err_at(e, "/items");
	end--;
	s = skip_space(s + 1, end);
	if (s == end)
		return ERR_OK;
	for (;; s = next + 1) {
		next = skip_value(s, end);
		if (evidence_add_item(ev, s, (size_t)(next - s), e))
			return e->code;
		if (next == end)
			return ERR_OK;
		if (*next != ',')
			return err_set(e, ERR_INPUT, "a bracket is closed behind item %zu", ev->n - 1),
			       err_at(e, "/items");
	}
}

err_code evidence_add_items(struct evidence *ev, const char *text, size_t len, struct err *e)
{
	err_code rc = parse_items(ev, text, text + len, e);

	return rc ? rc : check_counts(ev, e);
}

err_code evidence_parse(const char *text, size_t len, struct evidence **out, struct err *e)
{
	struct json *result = NULL;
	err_code rc = json_parse(text, len, &result, e);

	if (!rc)
		rc = evidence_read(result, out, e);
	json_free(result);
	return rc;
}
