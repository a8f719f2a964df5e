/* See fixture_eval.h. */
#include "tests/fixture_eval.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fixture.h"
#include "tests/fixture_model.h"

static struct err e;

struct model *fixture_eval_model(const char *dir, const char *name, const char *position)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct model *m = NULL;
	char path[PATH_MAX];

	f.position = position;
	f.n_vocab = 257;
	f.tokenizer = true;
	f.tied = false;
	snprintf(path, sizeof path, "%s/%s", dir, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	fixture_model_write(path, &f);
	ck_ok(model_open(path, NULL, &m, &e), &e);
	return m;
}

void fixture_eval_poison(const char *dir, const char *name, unsigned byte)
{
	static const float nan_row[] = {NAN};
	uint64_t header;
	char path[2 * PATH_MAX], *at;
	struct buf file = BUF_INIT(1 << 24);
	unsigned long from;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	fixture_read(path, "model.safetensors", &file);
	memcpy(&header, file.data, 8);
	at = strstr(file.data + 8, "\"model.embed_tokens.weight\"");
	ck_assert_ptr_nonnull(at);
	at = strstr(at, "\"data_offsets\":[");
	ck_assert_ptr_nonnull(at);
	from = strtoul(at + strlen("\"data_offsets\":["), NULL, 10);
	memcpy(file.data + 8 + header + from + byte * 32 * sizeof(float), nan_row, sizeof nan_row);
	fixture_write(path, "model.safetensors", file.data, file.len);
	buf_release(&file);
}

struct session *fixture_eval_session(const struct model *m)
{
	struct session_options o = {.device = "cpu", .dtype = "f32", .n_threads = 1};
	struct session *s = NULL;

	ck_ok(session_open(m, &o, &s, &e), &e);
	return s;
}

struct json *fixture_json(const char *text)
{
	struct json *j = NULL;

	ck_ok(json_parse(text, strlen(text), &j, &e), &e);
	return j;
}

struct json *fixture_params(const struct task *t, const char *given)
{
	struct json *j = fixture_json(given), *effective;
	struct buf out = BUF_INIT(1 << 20);

	ck_ok(task_params(t, j, &out, &e), &e);
	effective = fixture_json(buf_str(&out));
	json_free(j);
	buf_release(&out);
	return effective;
}

/* -- units ------------------------------------------------------------------------------------- */

static const char *next(void *arg, uint32_t *unit)
{
	struct fixture_units *u = arg;

	while (u->at < u->n && !u->text[u->at])
		u->at++;
	*unit = u->at;
	return u->at < u->n ? u->text[u->at++] : NULL;
}

void fixture_units_init(struct fixture_units *u, uint32_t n)
{
	*u = (struct fixture_units){.n = n};
	u->text = calloc(n + 1, sizeof *u->text);
	u->error = calloc(n + 1, sizeof *u->error);
	ck_assert_ptr_nonnull(u->text);
	ck_assert_ptr_nonnull(u->error);
}

void fixture_units_release(struct fixture_units *u)
{
	for (uint32_t i = 0; i < u->n; i++) {
		free(u->text[i]);
		free(u->error[i]);
	}
	free(u->text);
	free(u->error);
}

struct unit_source *fixture_units_source(struct fixture_units *u)
{
	u->at = 0;
	u->source = (struct unit_source){.next = next, .arg = u};
	return &u->source;
}

static int done(void *arg, uint32_t unit, const char *result, uint64_t tokens)
{
	struct fixture_units *u = arg;

	(void)tokens;
	ck_assert_uint_lt(unit, u->n);
	ck_assert_msg(!u->text[unit] && !u->error[unit], "unit %u was reported twice", unit);
	u->text[unit] = strdup(result);
	return 0;
}

static void failed(void *arg, uint32_t unit, const struct err *why)
{
	struct fixture_units *u = arg;

	ck_assert_msg(!u->text[unit] && !u->error[unit], "unit %u was reported twice", unit);
	u->error[unit] = strdup(why->msg);
}

static void batch(void *arg)
{
	((struct fixture_units *)arg)->n_batches++;
}

void fixture_run(struct evaluation *ev, struct session *s, const uint32_t *units, uint32_t n, struct fixture_units *u)
{
	struct evaluation_sink sink = {.done = done, .failed = failed, .batch = batch, .arg = u};
	uint32_t *all = NULL;

	if (!units) {
		n = evaluation_n_units(ev);
		all = calloc(n, sizeof *all);
		ck_assert_ptr_nonnull(all);
		for (uint32_t i = 0; i < n; i++)
			all[i] = i;
	}
	ck_ok(evaluation_run(ev, s, units ? units : all, n, &sink, &e), &e);
	free(all);
}

/* -- folds ------------------------------------------------------------------------------------- */

struct json *fixture_metrics(const struct task *t, const struct json *params, struct fixture_units *u)
{
	struct buf out = BUF_INIT(1 << 24);
	struct json_writer w = JSON_WRITER(&out);
	struct json *j;

	ck_ok(task_metrics(t, params, fixture_units_source(u), &w, NULL, &e), &e);
	j = fixture_json(buf_str(&out));
	buf_release(&out);
	return j;
}

static int add_item(void *arg, const char *line, size_t len)
{
	struct buf *out = arg;

	ck_assert_uint_eq(strlen(line), len);
	ck_assert_ptr_null(strchr(line, '\n'));
	buf_printf(out, "%s%s", out->len > 1 ? "," : "", line);
	return 0;
}

struct json *fixture_items(const struct task *t, const struct json *params, struct fixture_units *u)
{
	struct buf out = BUF_INIT(1 << 24);
	struct json *j;

	buf_putc(&out, '[');
	ck_ok(task_items(t, params, fixture_units_source(u), add_item, &out, &e), &e);
	buf_putc(&out, ']');
	j = fixture_json(buf_str(&out));
	buf_release(&out);
	return j;
}

const struct json *fixture_metric(const struct json *metrics, const char *name, int64_t length)
{
	const char *s;
	int64_t l;

	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		s = json_get_string(m, "name");
		if (s && !strcmp(s, name) && (!length || (json_get_integer(m, "length", &l) && l == length)))
			return m;
	}
	return NULL;
}

double fixture_member(const struct json *object, const char *key)
{
	double v = 0;

	ck_assert_msg(json_get_number(object, key, &v), "no number '%s'", key);
	return v;
}
