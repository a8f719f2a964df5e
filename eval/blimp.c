/* Task blimp: which of two sentences is grammatical. Each is scored as a whole, after the prefix token; a paradigm is a
 * group. */
#include <string.h>

#include "eval/example.h"

enum { LEADING_SPACE = CHOICE_N_PARAMS, N_PARAMS };

static const struct param params[N_PARAMS] = {
    CHOICE_PARAMS,
    {"leading_space", PARAM_BOOL, "false", NULL, 0, 0,
     "a space before each sentence, as lm-evaluation-harness's own task file has it"},
};

/* The paradigm is the row's "UID", else the file's name. */
static err_code set_group(struct examples *x, const struct json *row, const char *file, struct buf *group,
                          struct err *e)
{
	const char *uid = file;

	if (json_get(row, "UID") && row_string(row, "UID", &uid, e))
		return e->code;
	if (x->group && !strcmp(x->group, uid))
		return ERR_OK;
	buf_clear(group);
	buf_puts(group, uid);
	x->group = buf_str(group);
	return buf_check(group, "a paradigm's name", e);
}

static err_code read_pair(struct examples *x, const struct json *row, const char *joint, struct err *e)
{
	const char *good, *bad;

	if (row_string(row, "sentence_good", &good, e) || row_string(row, "sentence_bad", &bad, e))
		return e->code;
	examples_choice(x, joint);
	buf_puts(&x->text, good);
	examples_choice(x, joint);
	buf_puts(&x->text, bad);
	return examples_add(x, 0, e);
}

static err_code read_file(struct examples *x, const char *name, const char *joint, struct buf *group, struct err *e)
{
	const struct json *row;

	for (;;) {
		if (examples_next_row(x, &row, e))
			return e->code;
		if (!row)
			return ERR_OK;
		if (set_group(x, row, name, group, e) || read_pair(x, row, joint, e))
			return e->code;
	}
}

static err_code read_blimp(struct examples *x, const struct param_value *v, struct err *e)
{
	const char *joint = v[LEADING_SPACE].i ? " " : "", *name = NULL;
	struct buf group = BUF_INIT(4096);
	err_code rc;

	do {
		rc = examples_next_file(x, &name, e);
		if (!rc && name)
			rc = read_file(x, name, joint, &group, e);
	} while (!rc && name);
	x->group = NULL;
	buf_release(&group);
	return rc;
}

static const struct example_reader reader = {.files = ".jsonl", .read = read_blimp};

const struct task task_blimp = {
    .name = "blimp",
    .version = 1,
    .summary = "grammar: which of two sentences is acceptable, by paradigm",
    .dataset = "a folder of the official .jsonl files, a paradigm a file: {\"sentence_good\", \"sentence_bad\", "
               "\"UID\"} a line",
    CHOICE_TASK_WITH(reader, params, N_PARAMS),
};
