/* Task lambada: the last word of a passage. The context is the text up to its last space, the continuation that space
 * and the word (lm-eval's lambada_openai). */
#include <string.h>

#include "eval/example.h"

static err_code read_row(struct examples *x, const struct json *row, struct err *e)
{
	const char *text, *space;

	if (row_string(row, "text", &text, e))
		return e->code;
	space = strrchr(text, ' ');
	if (space)
		buf_append(&x->text, text, (size_t)(space - text));
	examples_choice(x, " ");
	buf_puts(&x->text, space ? space + 1 : text);
	return examples_add(x, 0, e);
}

static err_code read_lambada(struct examples *x, const struct param_value *v, struct err *e)
{
	(void)v;
	return examples_each_row(x, read_row, e);
}

static const struct example_reader reader = {.files = ".jsonl", .read = read_lambada, .single = true};

const struct task task_lambada = {
    .name = "lambada",
    .alias = "lambada_openai",
    .version = 1,
    .summary = "the last word of a passage, from all that stands before it",
    .dataset = "a .jsonl with a string \"text\" a line (OpenAI's lambada_test.jsonl)",
    EXAMPLE_TASK(reader),
};
