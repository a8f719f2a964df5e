/* Datasets that a task makes itself, when the parameter says so that it names in `generated_by`. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "eval/task.h"

bool task_generates(const struct task *t, const struct json *params)
{
	const struct json *by = t->generated_by ? json_get(params, t->generated_by) : NULL;

	return by && !json_is_null(by);
}

err_code task_check_dataset(const struct task *t, const struct json *params, bool given, struct err *e)
{
	bool generates = task_generates(t, params);

	if (given && generates)
		return err_set(e, ERR_INPUT, "with %s, task %s makes its dataset: none can be given", t->generated_by,
		               t->name);
	if (given || generates)
		return ERR_OK;
	if (!t->generated_by)
		return err_set(e, ERR_INPUT, "a dataset is missing");
	return err_set(e, ERR_INPUT, "a dataset is missing (or %s, with which task %s makes one)", t->generated_by,
	               t->name);
}

err_code task_generate(const struct task *t, const struct json *params, struct buf *out, struct err *e)
{
	struct param_value v[TASK_MAX_PARAMS];
	err_code rc;

	if (!t->generate)
		return err_set(e, ERR_INPUT, "task %s makes no dataset", t->name);
	if (!task_generates(t, params))
		return err_set(e, ERR_INPUT, "%s is missing: task %s makes a dataset by it", t->generated_by, t->name);
	rc = param_values(t, params, v, e);
	if (!rc)
		rc = t->generate(v, out, e);
	param_values_release(v);
	return rc;
}

err_code evaluation_generate(struct evaluation *ev, const struct param_value *v, struct err *e)
{
	char hex[SHA256_HEX], line[2 * SHA256_HEX];
	int n;

	assert(!ev->dataset_path);
	ev->generated = BUF_INIT((size_t)1 << 30);
	if (ev->task->generate(v, &ev->generated, e))
		return e->code;
	sha256_hex(buf_str(&ev->generated), ev->generated.len, hex);
	n = snprintf(line, sizeof line, "%s %zu %s\n", GENERATED_DATASET, ev->generated.len, hex);
	sha256_hex(line, (size_t)n, hex); /* as of a file of this name: see fingerprint_files */
	snprintf(ev->fingerprint, sizeof ev->fingerprint, "sha256:%s", hex);
	return ERR_OK;
}
