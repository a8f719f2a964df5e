/* Gates: from JSON to a struct gate. What is given is first checked and written in its normalised form, and the gate is
 * then read from that, so that what is stored, shown and judged is one thing. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/fields.h"
#include "eval/gate_private.h"
#include "eval/task.h"

#define MAX_TEXT      ((size_t)4 << 20)
#define MAX_MEASURES  32
#define MAX_RULES     256

#define SECRET_PREFIX "FATHOM_WEBHOOK_"

/* -- measures ---------------------------------------------------------------------------------- */

static const char *measure_id(const struct json *measure, const struct task *t)
{
	const char *id = json_get_string(measure, "id");

	return id ? id : task_name(t);
}

static err_code write_params(const struct json *measure, const struct task *t, const char *parent,
                             struct json_writer *w, struct err *e)
{
	const struct json *given = json_get(measure, "params");
	struct buf params = BUF_INIT(MAX_TEXT);
	struct json *effective = NULL;
	char pointer[sizeof e->pointer];
	err_code rc;

	if (field_given(given) && !json_is_object(given))
		return REFUSE(e, parent, "params", "params is to be an object, not %s", json_type_name(given));
	rc = task_params(t, field_given(given) ? given : NULL, &params, e);
	if (rc) {
		memcpy(pointer, e->pointer, sizeof pointer);
		err_at(e, "%s/params%.150s", parent, pointer);
	}
	if (!rc)
		rc = json_parse(buf_str(&params), params.len, &effective, e);
	if (!rc) {
		rc = task_check_dataset(t, effective, field_given(json_get(measure, "dataset")), e);
		if (rc)
			err_at_member(e, parent, "dataset");
	}
	if (!rc)
		json_put_value(w, "params", effective);
	json_free(effective);
	buf_release(&params);
	return rc;
}

static err_code write_engine(const struct json *measure, const char *parent, struct json_writer *w, struct err *e)
{
	struct engine_options o;
	char at[120];

	snprintf(at, sizeof at, "%s/engine", parent);
	if (engine_options_read(json_get(measure, "engine"), at, &o, e))
		return e->code;
	json_begin_object(w, "engine");
	json_put_string(w, "device", o.device);
	json_put_string(w, "dtype", o.dtype);
	if (o.position)
		json_put_value(w, "position", o.position);
	json_end_object(w);
	return ERR_OK;
}

static err_code write_measure(const struct json *measure, const char *parent, struct json_writer *w, struct err *e)
{
	static const char *const known[] = {"id", "task", "dataset", "params", "engine", NULL};
	const char *id, *name, *dataset;
	const struct task *t;

	if (fields_check(measure, parent, known, NULL, e) || field_string(measure, parent, "id", false, &id, e) ||
	    field_string(measure, parent, "task", true, &name, e) ||
	    field_string(measure, parent, "dataset", false, &dataset, e))
		return e->code;
	t = task_find(name, e);
	if (!t)
		return err_at_member(e, parent, "task");
	if (field_check_name(measure_id(measure, t), parent, "id", e))
		return e->code;
	json_begin_object(w, NULL);
	json_put_string(w, "id", measure_id(measure, t));
	json_put_string(w, "task", task_name(t));
	if (dataset)
		json_put_string(w, "dataset", dataset);
	if (write_params(measure, t, parent, w, e) || write_engine(measure, parent, w, e))
		return e->code;
	json_end_object(w);
	return ERR_OK;
}

/* -- gates ------------------------------------------------------------------------------------- */

/* A gate's name stands in URLs. */
static err_code check_gate_name(const char *name, struct err *e)
{
	if (field_check_name(name, "", "name", e))
		return e->code;
	for (const char *s = name; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return REFUSE(e, "", "name",
			              "name '%.100s' has a character that is no letter, digit, '.', '_' or '-'", name);
	return *name == '.' ? REFUSE(e, "", "name", "name '%.100s' begins with a dot", name) : ERR_OK;
}

/* Whoever may post a gate may name a variable, and learns an HMAC of its value: only what is there for that. */
static bool is_secret_name(const char *s)
{
	size_t len = strlen(s), prefix = strlen(SECRET_PREFIX);

	return len > prefix && len <= FIELD_MAX_NAME && !strncmp(s, SECRET_PREFIX, prefix) &&
	       strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

static err_code write_webhook(const struct json *given, struct json_writer *w, struct err *e)
{
	static const char *const known[] = {"url", "secret_env", NULL};
	const struct json *v = json_get(given, "webhook");
	const char *url, *secret;

	if (!field_given(v))
		return ERR_OK;
	if (!json_is_object(v))
		return REFUSE(e, "", "webhook", "webhook is to be an object, not %s", json_type_name(v));
	if (fields_check(v, "/webhook", known, NULL, e) || field_string(v, "/webhook", "url", true, &url, e) ||
	    field_string(v, "/webhook", "secret_env", false, &secret, e))
		return e->code;
	if ((strncmp(url, "https://", 8) != 0 && strncmp(url, "http://", 7) != 0) || strlen(url) > 2000 ||
	    strpbrk(url, " \t\r\n"))
		return REFUSE(e, "/webhook", "url", "url '%.100s' is no http:// or https:// address", url);
	if (secret && !is_secret_name(secret))
		return REFUSE(e, "/webhook", "secret_env",
		              "secret_env '%.100s' is no name of a variable that begins with " SECRET_PREFIX
		              ": a gate may use no other of the server's environment",
		              secret);
	json_begin_object(w, "webhook");
	json_put_string(w, "url", url);
	if (secret)
		json_put_string(w, "secret_env", secret);
	json_end_object(w);
	return ERR_OK;
}

/* Borrows everything from the array of normal measures. */
static err_code bind_measures(struct gate *g, const struct json *list, struct err *e)
{
	size_t n = 0;

	g->measures = mem_zalloc(json_count(list), sizeof *g->measures, e);
	if (!g->measures)
		return e->code;
	for (const struct json *m = json_first(list); m; m = json_next(m)) {
		struct gate_measure *at = &g->measures[n];

		at->id = json_get_string(m, "id");
		at->task = task_find(json_get_string(m, "task"), e);
		at->dataset = json_get_string(m, "dataset");
		at->params = json_get(m, "params");
		at->engine = json_get(m, "engine");
		for (size_t i = 0; i < n; i++) {
			if (strcmp(g->measures[i].id, at->id) != 0)
				continue;
			err_set(e, ERR_INPUT, "two measures are called '%s': give them an id", at->id);
			return err_at(e, "/measure/%zu/id", n);
		}
		n++;
	}
	g->n_measures = n;
	return ERR_OK;
}

/* Name and measures as text, into a gate that has nothing but them. */
static err_code write_measures(const struct json *given, struct json_writer *w, struct err *e)
{
	const struct json *list;
	const char *name;
	char parent[40];
	size_t i = 0;

	if (field_string(given, "", "name", true, &name, e) || check_gate_name(name, e) ||
	    field_list(given, "measure", MAX_MEASURES, &list, e))
		return e->code;
	json_put_string(w, "name", name);
	json_begin_array(w, "measure");
	for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
		snprintf(parent, sizeof parent, "/measure/%zu", i);
		if (write_measure(m, parent, w, e))
			return e->code;
	}
	json_end_array(w);
	return ERR_OK;
}

/* The rest: `g` has the measures. */
static err_code write_rules(const struct json *given, struct gate *g, struct json_writer *w, struct err *e)
{
	const struct json *list;
	bool allow;

	if (field_list(given, "rules", MAX_RULES, &list, e) || gate_rules_read(g, list, e) ||
	    field_bool(given, "", "allow_engine_change", &allow, e))
		return e->code;
	json_begin_array(w, "rules");
	for (size_t i = 0; i < g->n_rules; i++)
		gate_rule_write(g, &g->rules[i], w);
	json_end_array(w);
	json_put_bool(w, "allow_engine_change", allow);
	return write_webhook(given, w, e);
}

/* Binds a gate to the normal form in `text`, which it takes. Nothing of it can be wrong. */
static err_code bind(struct gate *g, struct buf *text, struct err *e)
{
	const struct json *webhook;

	json_free(g->json);
	g->json = NULL;
	free(g->measures);
	free(g->rules);
	g->measures = NULL;
	g->rules = NULL;
	g->n_measures = g->n_rules = 0;
	if (json_parse(buf_str(text), text->len, &g->json, e) || bind_measures(g, json_get(g->json, "measure"), e) ||
	    gate_rules_read(g, json_get(g->json, "rules"), e))
		return e->code;
	webhook = json_get(g->json, "webhook");
	g->name = json_get_string(g->json, "name");
	g->allow_engine_change = json_true(json_get(g->json, "allow_engine_change"));
	g->webhook_url = json_get_string(webhook, "url");
	g->webhook_secret_env = json_get_string(webhook, "secret_env");
	g->text = buf_steal(text);
	return ERR_OK;
}

/* The normal form, in two steps: rules are checked against measures with their effective parameters. */
static err_code normalise(const struct json *given, struct gate *g, struct buf *text, struct err *e)
{
	static const char *const known[] = {"name", "measure", "rules", "allow_engine_change", "webhook", NULL};
	struct buf measures = BUF_INIT(MAX_TEXT);
	struct json_writer w = JSON_WRITER(&measures);
	err_code rc = fields_check(given, "", known, NULL, e);

	json_begin_object(&w, NULL);
	if (!rc)
		rc = write_measures(given, &w, e);
	if (!rc) {
		json_end_object(&w);
		rc = buf_check(&measures, "the gate's measures", e);
	}
	if (!rc)
		rc = json_parse(buf_str(&measures), measures.len, &g->json, e);
	if (!rc)
		rc = bind_measures(g, json_get(g->json, "measure"), e);
	w = JSON_WRITER(text);
	json_begin_object(&w, NULL);
	if (!rc) {
		json_put_string(&w, "name", json_get_string(g->json, "name"));
		json_put_value(&w, "measure", json_get(g->json, "measure"));
		rc = write_rules(given, g, &w, e);
	}
	if (!rc) {
		json_end_object(&w);
		rc = buf_check(text, "the gate", e);
	}
	buf_release(&measures);
	return rc;
}

err_code gate_parse(const struct json *given, struct gate **out, struct err *e)
{
	struct buf text = BUF_INIT(MAX_TEXT);
	struct gate *g;
	err_code rc;

	if (!json_is_object(given))
		return err_set(e, ERR_INPUT, "a gate is to be an object, not %s", json_type_name(given));
	g = mem_zalloc(1, sizeof *g, e);
	if (!g)
		return e->code;
	rc = normalise(given, g, &text, e);
	if (!rc)
		rc = bind(g, &text, e);
	buf_release(&text);
	if (rc)
		gate_free(g);
	else
		*out = g;
	return rc;
}

err_code gate_parse_text(const char *text, size_t len, struct gate **out, struct err *e)
{
	struct json *given = NULL;
	err_code rc = json_parse(text, len, &given, e);

	if (!rc)
		rc = gate_parse(given, out, e);
	json_free(given);
	return rc;
}

void gate_free(struct gate *g)
{
	if (!g)
		return;
	free(g->measures);
	free(g->rules);
	free(g->text);
	json_free(g->json);
	free(g);
}

bool gate_needs_baseline(const struct gate *g)
{
	for (size_t i = 0; i < g->n_rules; i++)
		if (g->rules[i].type == RULE_RELATIVE || g->rules[i].type == RULE_THROUGHPUT)
			return true;
	return false;
}
