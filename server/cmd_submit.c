/* fathom submit: options become the body of POST /api/v1/jobs. The server checks values: it knows its models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"
#include "server/client.h"
#include "server/cmd.h"

static err_code check_number(const char *value, struct err *e)
{
	char *end;

	strtol(value, &end, 10);
	return *value && !*end ? ERR_OK : err_set(e, ERR_INPUT, "is not a number");
}

static const struct option_spec specs[] = {
    CLIENT_OPTION,
    {"--model", "NAME", NULL, NULL, "a model of the server (fathom models lists them)", 0, NULL},
    {"--task", "NAME", NULL, NULL, "a task (fathom tasks lists them and their parameters)", 0, NULL},
    {"--data", "NAME", NULL, NULL, "a dataset of the server (fathom datasets lists them)", 0, NULL},
    {"--set", "KEY=VALUE", NULL, NULL, "a parameter of the task: --set lengths=1024,4096", 1, cmd_check_pair},
    {"--device", "NAME", NULL, NULL, "auto, cpu, cuda or cuda:N", 0, NULL},
    {"--dtype", "NAME", NULL, NULL, "auto, f32, bf16 or f16", 0, NULL},
    {"--position", "JSON", NULL, NULL, "another position scaling: '{\"type\":\"yarn\",\"factor\":4}'", 0,
     cmd_check_json},
    {"--name", "TEXT", NULL, NULL, "the job's name", 0, NULL},
    {"--tag", "KEY=VALUE", NULL, NULL, "a tag, for finding it again", 1, cmd_check_pair},
    {"--priority", "N", NULL, NULL, "higher ones run first", 0, check_number},
    {"--idempotency-key", "KEY", NULL, NULL, "submitting again with it gives the same job", 0, NULL},
    {"--wait", NULL, NULL, NULL, "wait for the end and print the result, as fathom wait does", 0, NULL},
    {"--format", "NAME", NULL, "table", "of --wait: table, json, csv or markdown", 0, cmd_check_format},
};

static void put_given(struct json_writer *w, const char *key, const struct options *o, const char *flag)
{
	if (options_get(o, flag))
		json_put_string(w, key, options_get(o, flag));
}

static void put_engine(struct json_writer *w, const struct options *o)
{
	json_begin_object(w, "engine");
	put_given(w, "device", o, "--device");
	put_given(w, "dtype", o, "--dtype");
	if (options_get(o, "--position"))
		json_put_raw(w, "position", options_get(o, "--position"));
	json_end_object(w);
}

static err_code put_params(struct json_writer *w, const struct options *o, struct err *e)
{
	const struct task *t;

	if (!options_count(o, "--set"))
		return ERR_OK;
	t = task_find(options_get(o, "--task"), e);
	if (!t)
		return err_wrap(e, "--task");
	json_begin_object(w, "params");
	if (cmd_put_params(o, t, w, e))
		return e->code;
	json_end_object(w);
	return ERR_OK;
}

static err_code write_body(struct buf *b, const struct options *o, struct err *e)
{
	static const char *const needed[] = {"--model", "--task"};
	struct json_writer w = JSON_WRITER(b);

	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (!options_get(o, needed[i]))
			return err_set(e, ERR_INPUT, "%s is missing", needed[i]);
	if (options_no_args(o, e))
		return e->code;
	json_begin_object(&w, NULL);
	put_given(&w, "model", o, "--model");
	put_given(&w, "task", o, "--task");
	put_given(&w, "dataset", o, "--data");
	put_given(&w, "name", o, "--name");
	put_engine(&w, o);
	if (put_params(&w, o, e) || cmd_put_tags(o, &w, e))
		return e->code;
	if (options_get(o, "--priority"))
		json_put_int(&w, "priority", strtol(options_get(o, "--priority"), NULL, 10));
	json_end_object(&w);
	return buf_check(b, "the request", e);
}

static err_code post(struct client *c, const struct options *o, int64_t *id, struct err *e)
{
	struct buf body = BUF_INIT((size_t)1 << 20);
	err_code rc = write_body(&body, o, e);

	if (!rc)
		rc = client_create(c, "/api/v1/jobs", buf_str(&body), options_get(o, "--idempotency-key"), id, NULL, e);
	buf_release(&body);
	return rc;
}

int cmd_submit(int argc, char **argv)
{
	struct options *o = NULL;
	struct client *c = NULL;
	int64_t id = 0;
	struct err e;
	int help, status = 0;

	if (options_parse(
	        specs, sizeof specs / sizeof *specs, "fathom submit --model NAME --task NAME --data NAME [options]",
	        "Queues an evaluation on a running server and prints the job's number.", argc, argv, &o, &help, &e))
		return cmd_error("submit", &e);
	if (help)
		goto out;
	if (client_open(options_get(o, "--server"), &c, &e) || post(c, o, &id, &e)) {
		status = cmd_error("submit", &e);
		goto out;
	}
	if (options_count(o, "--wait")) {
		fprintf(stderr, "job %lld: %s/#/jobs/%lld\n", (long long)id, client_url(c), (long long)id);
		status = client_follow(c, "submit", id, options_get(o, "--format"));
	} else {
		printf("%lld\n", (long long)id);
	}
out:
	client_close(c);
	options_free(o);
	return status;
}
