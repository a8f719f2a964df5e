/* Task arc_easy: questions of school science with three to five choices, in three layouts of a row:
 *   {"question": text, "choices": [texts], "gold": index}
 *   {"question": {"stem": text, "choices": [{"label", "text"}]}, "answerKey"}       as AI2 publishes it
 *   {"question": text, "choices": {"text": [texts], "label": [labels]}, "answerKey"}   as on Hugging Face
 * Labels are A to E or 1 to 5. */
#include <string.h>

#include "eval/example.h"

/* The labels of a row's choices, in order, of which one is the answer's. */
struct labels {
	const char *key;               /* borrowed: the answer's */
	const char *seen[MAX_CHOICES]; /* [n] borrowed */
	int64_t n, gold;               /* gold: -1 until the answer's label is met */
};

static err_code add_label(struct labels *l, const char *label, struct err *e)
{
	if (l->n == MAX_CHOICES)
		return err_set(e, ERR_INPUT, "more than %d choices", MAX_CHOICES);
	for (int64_t i = 0; i < l->n; i++)
		if (!strcmp(l->seen[i], label))
			return err_set(e, ERR_INPUT, "choices %lld and %lld both have the label '%.100s'", (long long)i,
			               (long long)l->n, label);
	if (!strcmp(label, l->key))
		l->gold = l->n;
	l->seen[l->n++] = label;
	return ERR_OK;
}

/* AI2's list of {"label", "text"}. */
static err_code put_ai2(struct examples *x, const struct json *choices, struct labels *l, struct err *e)
{
	const char *label, *text;
	int64_t i = 0;

	if (!json_is_array(choices))
		return err_set(e, ERR_INPUT, "\"question\" has no list \"choices\" (it is %s)",
		               json_type_name(choices));
	for (const struct json *c = json_first(choices); c; c = json_next(c), i++) {
		if (row_string(c, "label", &label, e) || row_string(c, "text", &text, e))
			return err_wrap(e, "choice %lld", (long long)i);
		if (add_label(l, label, e))
			return e->code;
		examples_choice(x, " ");
		buf_puts(&x->text, text);
	}
	return ERR_OK;
}

/* Hugging Face's lists "text" and "label". */
static err_code put_hf(struct examples *x, const struct json *choices, struct labels *l, struct err *e)
{
	const struct json *labels = json_get(choices, "label");
	size_t n;

	if (examples_put_choices(x, json_get(choices, "text"), "choices.text", &n, e))
		return e->code;
	if (!json_is_array(labels) || json_count(labels) != n)
		return err_set(e, ERR_INPUT, "\"choices.label\" must be a list of %zu labels", n);
	for (const struct json *j = json_first(labels); j; j = json_next(j)) {
		if (!json_is_string(j))
			return err_set(e, ERR_INPUT, "\"choices.label\": label %lld must be a string, not %s",
			               (long long)l->n, json_type_name(j));
		if (add_label(l, json_string(j), e))
			return e->code;
	}
	return ERR_OK;
}

static err_code read_row(struct examples *x, const struct json *row, struct err *e)
{
	const struct json *question = json_get(row, "question"), *choices = json_get(row, "choices");
	struct labels l = {.gold = -1};
	const char *stem;
	size_t n;

	if (json_is_object(question) ? row_string(question, "stem", &stem, e) : row_string(row, "question", &stem, e))
		return e->code;
	buf_printf(&x->text, "Question: %s\nAnswer:", stem);
	if (!json_is_object(question) && !json_is_object(choices)) {
		if (examples_put_choices(x, choices, "choices", &n, e) ||
		    row_integer(row, "gold", 0, (int64_t)n - 1, &l.gold, e))
			return e->code;
		return examples_add(x, l.gold, e);
	}
	if (row_string(row, "answerKey", &l.key, e))
		return e->code;
	if (json_is_object(question) ? put_ai2(x, json_get(question, "choices"), &l, e) : put_hf(x, choices, &l, e))
		return e->code;
	return l.gold >= 0 ? examples_add(x, l.gold, e)
	                   : err_set(e, ERR_INPUT, "\"answerKey\": '%.100s' is no choice's label", l.key);
}

static err_code read_arc(struct examples *x, const struct param_value *v, struct err *e)
{
	(void)v;
	return examples_each_row(x, read_row, e);
}

static const struct example_reader reader = {.files = ".jsonl", .read = read_arc};

const struct task task_arc_easy = {
    .name = "arc_easy",
    .version = 1,
    .summary = "questions of school science with three to five choices",
    .dataset =
        "a .jsonl of {\"question\", \"choices\", \"gold\"}, or as AI2 or Hugging Face have it, with \"answerKey\"",
    CHOICE_TASK(reader),
};
