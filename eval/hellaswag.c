/* Task hellaswag: how a text goes on, of four endings. The official rows are prepared as lm-evaluation-harness does;
 * the form of six lines (context, label, four endings) is prepared already and taken as it is. */
#include <string.h>

#include "engine/path.h"
#include "engine/pystr.h"
#include "eval/example.h"

#define N_ENDINGS 4

/* The first c from s on, or end. `last` is what was found from a place before s, so that all calls take linear time. */
static const char *find_from(const char *last, const char *s, const char *end, char c)
{
	const char *at = last && last >= s ? last : memchr(s, c, (size_t)(end - s));

	return at ? at : end;
}

/* P of the protocol, of the text from `start` on, in place: stripped; " [title]" becomes ". ", what is in brackets on a
 * line goes, and two spaces become one, in one pass each and in this order. */
static err_code prepare(struct buf *b, size_t start, struct err *e)
{
	struct buf out = BUF_INIT(b->max);
	const char *s = buf_str(b) + start, *end, *close = NULL, *newline = NULL;
	size_t len = b->len - start, n;

	n = pystr_lstrip(s, len);
	s += n;
	len = pystr_rstrip(s, len - n);
	for (size_t i = 0; i < len; i += n) {
		n = 1;
		if (len - i >= 8 && !memcmp(s + i, " [title]", 8)) {
			n = 8;
			buf_puts(&out, ". ");
		} else {
			buf_putc(&out, s[i]);
		}
	}
	b->len = start; /* there is room for all, since nothing grew */
	s = buf_str(&out);
	for (end = s + out.len; s < end; s += n) {
		close = find_from(close, s, end, ']');
		newline = find_from(newline, s, end, '\n');
		n = *s == '[' && close < newline ? (size_t)(close - s) + 1 : 1;
		if (n == 1)
			buf_putc(b, *s);
	}
	/* spaces, in place: what is written never passes what is read */
	n = start;
	for (size_t i = start; i < b->len; i++) {
		b->data[n++] = b->data[i];
		i += b->data[i] == ' ' && i + 1 < b->len && b->data[i + 1] == ' ';
	}
	b->len = n;
	b->data[n] = '\0';
	buf_release(&out);
	return buf_check(b, "an example's text", e);
}

static err_code put_query(struct examples *x, const struct json *row, struct err *e)
{
	const char *label, *a, *b;

	if (row_string(row, "activity_label", &label, e) || row_string(row, "ctx_a", &a, e) ||
	    row_string(row, "ctx_b", &b, e))
		return e->code;
	buf_printf(&x->text, "%s: %s ", label, a);
	pystr_capitalize(&x->text, b, strlen(b));
	return prepare(&x->text, 0, e);
}

static err_code read_row(struct examples *x, const struct json *row, struct err *e)
{
	const struct json *endings = json_get(row, "endings");
	int64_t gold;

	if (put_query(x, row, e))
		return e->code;
	if (!json_is_array(endings) || json_count(endings) != N_ENDINGS)
		return err_set(e, ERR_INPUT, "\"endings\" must be a list of %d texts", N_ENDINGS);
	for (const struct json *j = json_first(endings); j; j = json_next(j)) {
		size_t start;

		if (!json_string(j))
			return err_set(e, ERR_INPUT, "an ending must be a string, not %s", json_type_name(j));
		examples_choice(x, " ");
		start = x->text.len;
		buf_puts(&x->text, json_string(j));
		if (prepare(&x->text, start, e))
			return e->code;
	}
	if (row_integer(row, "label", 0, N_ENDINGS - 1, &gold, e))
		return e->code;
	return examples_add(x, gold, e);
}

/* The six lines of one question; *more is false at the end of the file. */
static err_code read_six_lines(struct examples *x, bool *more, struct err *e)
{
	const char *line;
	int64_t gold = 0;
	size_t len;

	for (int i = 0; i < 2 + N_ENDINGS; i++) {
		if (examples_next_line(x, &line, &len, e))
			return e->code;
		*more = line != NULL;
		if (!line)
			return i ? err_set(e, ERR_INPUT, "the file ends after %d of a question's %d lines", i,
			                   2 + N_ENDINGS)
			         : ERR_OK;
		if (i == 1) {
			if (len != 1 || *line < '0' || *line >= '0' + N_ENDINGS)
				return err_set(e, ERR_INPUT, "a label must be 0 to %d, not '%.100s'", N_ENDINGS - 1,
				               line);
			gold = *line - '0';
			continue;
		}
		if (i)
			examples_choice(x, " ");
		buf_append(&x->text, line, len);
	}
	return examples_add(x, gold, e);
}

static err_code read_hellaswag(struct examples *x, const struct param_value *v, struct err *e)
{
	const struct json *row;
	const char *name;
	bool more;

	(void)v;
	for (;;) {
		if (examples_next_file(x, &name, e))
			return e->code;
		if (!name)
			return ERR_OK;
		for (more = true; more && !examples_full(x);) {
			if (path_has_suffix(name, ".txt")) {
				if (read_six_lines(x, &more, e))
					return e->code;
				continue;
			}
			if (examples_next_row(x, &row, e) || (row && read_row(x, row, e)))
				return e->code;
			more = row != NULL;
		}
	}
}

static const struct example_reader reader = {.files = ".jsonl|.txt", .read = read_hellaswag};

const struct task task_hellaswag = {
    .name = "hellaswag",
    .version = 1,
    .summary = "common sense: which of four endings follows",
    .dataset =
        "the official .jsonl (hellaswag_val.jsonl), or a .txt of six lines a question: context, label (0 to 3), four "
        "endings, taken as they are",
    CHOICE_TASK(reader),
};
