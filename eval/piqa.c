/* Task piqa: which of two solutions reaches a goal. Rows have their label, or the folder has the official labels file
 * of a line a row beside them: valid-labels.lst for valid.jsonl. */
#include <stdlib.h>
#include <string.h>

#include "engine/path.h"
#include "eval/example.h"

/* The labels of one file. */
struct labels {
	char *name; /* owned: of the rows' file; NULL: there are none */
	char *of;   /* [n] owned: '0' or '1' */
	size_t n, cap, at;
};

static err_code read_labels(struct examples *x, struct labels *l, const char *name, struct err *e)
{
	static const char suffix[] = "-labels.lst";
	size_t len = strlen(name);
	const char *line;
	err_code rc;

	if (!path_has_suffix(name, suffix))
		return err_set(e, ERR_INPUT, "a .lst file that is not named NAME%s", suffix);
	free(l->name);
	l->n = l->at = 0;
	if (asprintf(&l->name, "%.*s.jsonl", (int)(len - (sizeof suffix - 1)), name) < 0) {
		l->name = NULL;
		return err_set(e, ERR_MEMORY, "out of memory");
	}
	while (!(rc = examples_next_line(x, &line, &len, e)) && line) {
		char *p = mem_grow(l->of, &l->cap, l->n + 1, 1, e);

		if (!p)
			return e->code;
		l->of = p;
		if (len != 1 || (*line != '0' && *line != '1'))
			return err_set(e, ERR_INPUT, "a label must be 0 or 1, not '%.100s'", line);
		l->of[l->n++] = *line;
	}
	return rc;
}

static err_code read_row(struct examples *x, const struct json *row, struct labels *l, struct err *e)
{
	const char *goal, *sol1, *sol2;
	int64_t gold;

	if (row_string(row, "goal", &goal, e) || row_string(row, "sol1", &sol1, e) || row_string(row, "sol2", &sol2, e))
		return e->code;
	if (!l->name) {
		if (row_integer(row, "label", 0, 1, &gold, e))
			return e->code;
	} else if (l->at < l->n) {
		gold = l->of[l->at++] - '0';
	} else {
		return err_set(e, ERR_INPUT, "its labels file has only %zu lines", l->n);
	}
	buf_printf(&x->text, "Question: %s\nAnswer:", goal);
	examples_choice(x, " ");
	buf_puts(&x->text, sol1);
	examples_choice(x, " ");
	buf_puts(&x->text, sol2);
	return examples_add(x, gold, e);
}

static err_code read_rows(struct examples *x, struct labels *l, const char *name, struct err *e)
{
	const struct json *row;

	if (l->name && strcmp(l->name, name) != 0) {
		free(l->name); /* of another file */
		l->name = NULL;
	}
	while (!examples_full(x)) {
		if (examples_next_row(x, &row, e))
			return e->code;
		if (!row)
			return !l->name || l->at == l->n
			           ? ERR_OK
			           : err_set(e, ERR_INPUT, "its labels file has %zu lines for %zu rows", l->n, l->at);
		if (read_row(x, row, l, e))
			return e->code;
	}
	return ERR_OK;
}

static err_code read_piqa(struct examples *x, const struct param_value *v, struct err *e)
{
	struct labels l = {0}; /* a labels file comes just before its rows: '-' sorts before '.' */
	const char *name;
	err_code rc;

	(void)v;
	while (!(rc = examples_next_file(x, &name, e)) && name) {
		rc = path_has_suffix(name, ".lst") ? read_labels(x, &l, name, e) : read_rows(x, &l, name, e);
		if (rc)
			break;
	}
	free(l.name);
	free(l.of);
	return rc;
}

static const struct example_reader reader = {.files = ".jsonl|.lst", .read = read_piqa};

const struct task task_piqa = {
    .name = "piqa",
    .version = 1,
    .summary = "physical common sense: which of two solutions reaches a goal",
    .dataset =
        "a .jsonl with {\"goal\", \"sol1\", \"sol2\", \"label\"} a line, or a folder of the official valid.jsonl and "
        "valid-labels.lst",
    CHOICE_TASK(reader),
};
