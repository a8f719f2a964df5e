/* Task choices: any questions with choices. The query is the context, and a choice follows after a space. */
#include "eval/example.h"

static err_code read_row(struct examples *x, const struct json *row, struct err *e)
{
	const char *query;
	int64_t gold;
	size_t n;

	if (row_string(row, "query", &query, e))
		return e->code;
	buf_puts(&x->text, query);
	if (examples_put_choices(x, json_get(row, "choices"), "choices", &n, e) ||
	    row_integer(row, "gold", 0, (int64_t)n - 1, &gold, e))
		return e->code;
	return examples_add(x, gold, e);
}

static err_code read_choices(struct examples *x, const struct param_value *v, struct err *e)
{
	(void)v;
	return examples_each_row(x, read_row, e);
}

static const struct example_reader reader = {.files = ".jsonl", .read = read_choices};

const struct task task_choices = {
    .name = "choices",
    .version = 1,
    .summary = "multiple choice, on questions of your own",
    .dataset = "a .jsonl with {\"query\": text, \"choices\": [texts], \"gold\": index} a line",
    CHOICE_TASK(reader),
};
