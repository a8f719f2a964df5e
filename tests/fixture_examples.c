/* See fixture_examples.h. */
#include "tests/fixture_examples.h"

#include "eval/example_plan.h"
#include "tests/fixture.h"

#define PREFIX 256

static struct err e;

struct evaluation *fixture_examples_open(const struct model *m, const char *task, const char *params, const char *path)
{
	const struct task *t = task_find(task, &e);
	struct json *given = fixture_json(params), *effective;
	struct buf text = BUF_INIT(1 << 20);
	struct json_writer w = JSON_WRITER(&text);
	struct evaluation *ev = NULL;

	json_begin_object(&w, NULL);
	json_put_int(&w, "max_length", 1 << 20);
	for (const struct json *j = json_first(given); j; j = json_next(j))
		json_put_value(&w, json_key(j), j);
	json_end_object(&w);
	effective = fixture_json(buf_str(&text));
	ck_ok(evaluation_open(m, t, effective, path, "data", NULL, NULL, &ev, &e), &e);
	json_free(given);
	json_free(effective);
	buf_release(&text);
	return ev;
}

static struct buf out = BUF_INIT(1 << 20);

const char *fixture_example(const struct evaluation *ev, uint32_t unit)
{
	const struct example_plan *p = ev->plan;
	struct batch_builder b = {0};

	buf_clear(&out);
	ck_ok(ev->task->add(p, unit, &b, &e), &e);
	ck_assert_int_eq(b.segments[0].parent, -1);
	for (size_t i = 0; i < b.n_segments; i++) {
		ck_assert(!i || b.segments[i].parent == 0);
		if (i)
			buf_putc(&out, '|');
		for (size_t k = b.segments[i].start; k < b.segments[i].start + b.segments[i].len; k++) {
			ck_assert_int_eq(b.score[k], i > 0);
			if (b.tokens[k] == PREFIX)
				buf_puts(&out, "<P>");
			else
				buf_putc(&out, (char)b.tokens[k]);
		}
	}
	buf_printf(&out, " =%u", p->items[unit].gold);
	ck_ok(buf_check(&out, "an example", &e), &e);
	batch_builder_release(&b);
	return buf_str(&out);
}

const char *fixture_groups(const struct evaluation *ev)
{
	const struct example_plan *p = ev->plan;

	buf_clear(&out);
	for (size_t i = 0; i < p->n_groups; i++)
		buf_printf(&out, "%s%s: %u", i ? ", " : "", p->names.data + p->groups[i].name, p->groups[i].n);
	return buf_str(&out);
}
