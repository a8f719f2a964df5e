/* Examples while they are read: files, lines and rows for a task's reader, and the example that it writes. See
 * example.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"
#include "eval/example_plan.h"

/* -- files and lines --------------------------------------------------------------------------- */

err_code examples_next_file(struct examples *x, const char **name, struct err *e)
{
	*name = NULL;
	x->read_before += x->lines.read;
	if (x->file == x->files.n) {
		line_reader_close(&x->lines);
		return ERR_OK;
	}
	json_free(x->row);
	x->row = NULL;
	if (line_reader_open(&x->lines, x->files.paths[x->file], e))
		return e->code;
	*name = x->files.names[x->file++];
	return ERR_OK;
}

err_code examples_next_line(struct examples *x, const char **line, size_t *len, struct err *e)
{
	const struct evaluation_watch *watch = x->ev->watch;
	bool more;

	*line = NULL;
	if (line_reader_next(&x->lines, &more, e))
		return e->code;
	if (watch && !x->shots && watch->tick(watch->arg, x->read_before + x->lines.read, x->files.bytes))
		return err_set(e, ERR_CANCELLED, "stopped while the examples were read");
	if (!more)
		return ERR_OK;
	x->n_replaced += x->lines.n_replaced;
	x->n_invalid += x->lines.n_replaced > 0;
	*line = buf_str(&x->lines.line);
	*len = x->lines.line.len;
	return ERR_OK;
}

err_code examples_next_row(struct examples *x, const struct json **row, struct err *e)
{
	const char *line;
	size_t len;

	*row = NULL;
	json_free(x->row);
	x->row = NULL;
	do {
		if (examples_next_line(x, &line, &len, e))
			return e->code;
	} while (line && line_is_blank(line, len));
	if (!line)
		return ERR_OK;
	if (json_parse(line, len, &x->row, e))
		return e->code;
	if (!json_is_object(x->row))
		return err_set(e, ERR_INPUT, "is %s, not an object", json_type_name(x->row));
	*row = x->row;
	return ERR_OK;
}

err_code examples_each_row(struct examples *x, row_fn *f, struct err *e)
{
	const struct json *row;
	const char *name;
	err_code rc;

	while (!(rc = examples_next_file(x, &name, e)) && name)
		while (x->group || !examples_full(x)) { /* with groups, one that is not full may follow */
			if (examples_next_row(x, &row, e))
				return e->code;
			if (!row)
				break;
			if (f(x, row, e))
				return e->code;
		}
	return rc;
}

err_code row_string(const struct json *row, const char *field, const char **out, struct err *e)
{
	const struct json *j = json_get(row, field);

	*out = json_string(j);
	return *out ? ERR_OK : err_set(e, ERR_INPUT, "\"%s\" must be a string, not %s", field, json_type_name(j));
}

err_code row_integer(const struct json *row, const char *field, int64_t min, int64_t max, int64_t *out, struct err *e)
{
	const struct json *j = json_get(row, field);
	const char *s = json_string(j);
	char *end;
	double d;

	if (s && *s) {
		errno = 0;
		*out = strtoll(s, &end, 10);
		if (!*end && !errno && *out >= min && *out <= max)
			return ERR_OK;
	} else if (json_integer(j, out) && *out >= min && *out <= max) {
		return ERR_OK;
	}
	if (json_number(j, &d))
		return err_set(e, ERR_INPUT, "\"%s\": %.17g is not an integer from %lld to %lld", field, d,
		               (long long)min, (long long)max);
	return err_set(e, ERR_INPUT, "\"%s\" must be an integer from %lld to %lld, not %s%.100s%s", field,
	               (long long)min, (long long)max, s ? "'" : "", s ? s : json_type_name(j), s ? "'" : "");
}

/* -- one example ------------------------------------------------------------------------------- */

void examples_choice(struct examples *x, const char *joint)
{
	struct err e;
	struct choice_start *p = mem_grow(x->choices, &x->cap_choices, x->n_choices + 1, sizeof *p, &e);

	if (!p) {
		x->text.failed = true;
		return;
	}
	x->choices = p;
	x->choices[x->n_choices++] = (struct choice_start){x->text.len, strlen(joint)};
	buf_puts(&x->text, joint);
}

err_code examples_put_choices(struct examples *x, const struct json *list, const char *field, size_t *n, struct err *e)
{
	*n = 0;
	if (!json_is_array(list))
		return err_set(e, ERR_INPUT, "\"%s\" must be a list, not %s", field, json_type_name(list));
	for (const struct json *j = json_first(list); j; j = json_next(j), ++*n) {
		if (!json_is_string(j))
			return err_set(e, ERR_INPUT, "\"%s\": choice %zu must be a string, not %s", field, *n,
			               json_type_name(j));
		examples_choice(x, " ");
		buf_puts(&x->text, json_string(j));
	}
	return *n ? ERR_OK : err_set(e, ERR_INPUT, "\"%s\" is an empty list", field);
}

/* The index of the example's group, which is new if need be. */
static err_code find_group(struct example_plan *p, const char *name, struct err *e)
{
	struct example_group *g;

	if (p->n_groups && !strcmp(p->names.data + p->groups[p->group].name, name))
		return ERR_OK;
	for (p->group = 0; p->group < p->n_groups; p->group++)
		if (!strcmp(p->names.data + p->groups[p->group].name, name))
			return ERR_OK;
	g = mem_grow(p->groups, &p->cap_groups, p->n_groups + 1, sizeof *g, e);
	if (!g)
		return e->code;
	p->groups = g;
	p->groups[p->n_groups++] = (struct example_group){.name = p->names.len};
	buf_append(&p->names, name, strlen(name) + 1);
	return buf_check(&p->names, "names of groups", e);
}

bool examples_full(const struct examples *x)
{
	const struct example_plan *p = x->plan;
	const char *name = x->group ? x->group : "";

	if (x->shots)
		return false;
	for (size_t i = 0; i < p->n_groups; i++)
		if (!strcmp(p->names.data + p->groups[i].name, name))
			return p->groups[i].n >= p->limit;
	return false;
}

/* Where the example came from: the document that items name. */
static void name_doc(struct examples *x, struct buf *out)
{
	const char *id = json_get_string(x->row, "id");
	int64_t number;

	if (x->doc || id)
		buf_puts(out, x->doc ? x->doc : id);
	else if (json_get_integer(x->row, "id", &number))
		buf_printf(out, "%lld", (long long)number);
	else if (x->files.n > 1)
		buf_printf(out, "%s line %zu", x->files.names[x->file - 1], x->lines.number);
	else
		buf_printf(out, "line %zu", x->lines.number);
	buf_putc(out, '\0');
}

static err_code check_example(const struct examples *x, int64_t gold, struct err *e)
{
	bool single = x->ev->task->examples->single;

	if (buf_check(&x->text, "an example's text", e))
		return e->code;
	if (single ? x->n_choices != 1 : x->n_choices < 2 || x->n_choices > MAX_CHOICES)
		return err_set(e, ERR_INPUT, "%zu choices: an example has 2 to %d", x->n_choices, MAX_CHOICES);
	if (gold < 0 || (size_t)gold >= x->n_choices)
		return err_set(e, ERR_INPUT, "the right choice is %lld, and there are choices 0 to %zu",
		               (long long)gold, x->n_choices - 1);
	for (size_t i = 0; i < x->n_choices; i++) {
		size_t end = i + 1 < x->n_choices ? x->choices[i + 1].at : x->text.len;

		if (end - x->choices[i].at <= x->choices[i].joint)
			return err_set(e, ERR_INPUT, "choice %zu is empty", i);
	}
	return ERR_OK;
}

static err_code keep(struct examples *x, int64_t gold, struct err *e)
{
	struct example_plan *p = x->plan;
	struct example_item item = {.gold = (uint32_t)gold}, *items;
	uint64_t tokens = 0, chain = 0, all;

	if (find_group(p, x->group ? x->group : "", e))
		return e->code;
	if (p->groups[p->group].n >= p->limit)
		return ERR_OK;
	if (example_encode(x, &item, e))
		return e->code;
	item.group = (uint32_t)p->group;
	item.doc = p->names.len;
	name_doc(x, &p->names);
	if (buf_check(&p->names, "names of examples", e))
		return e->code;
	items = mem_grow(p->items, &p->cap_items, p->n_items + 1, sizeof *items, e);
	if (!items)
		return e->code;
	p->items = items;
	p->items[p->n_items++] = item;
	p->groups[p->group].n++;
	all = item.n_context;
	for (size_t i = 0; i < item.n_choices; i++) {
		uint64_t n = item_chain(p, &item, i);

		all += p->choices[item.choice + i].n;
		tokens += n - 1;
		chain = n > chain ? n : chain;
	}
	if (!item.apart && item.n_choices > 1) { /* the context is read once */
		tokens = all - item.n_choices;
		chain = all;
	}
	return evaluation_add_unit(x->ev, tokens, chain, e);
}

err_code examples_add(struct examples *x, int64_t gold, struct err *e)
{
	err_code rc = check_example(x, gold, e);

	if (!rc)
		rc = x->shots ? shots_add(x->plan, x, gold, e) : keep(x, gold, e);
	buf_clear(&x->text);
	x->n_choices = 0;
	x->doc = NULL;
	return rc;
}
