/* GET /v1/models, and what lm-eval's remote tokenizer asks for at the root: /tokenizer_info, /tokenize, /detokenize.
 * Those need not name a model: ?model= or the member "model" does, else it is the only one there is, else the one that
 * completions were asked of last. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval/wire.h"
#include "server/openai.h"

#define MAX_REPLY ((size_t)64 << 20)

/* -- models ------------------------------------------------------------------------------------ */

static int put_model(void *arg, const char *name, const char *path)
{
	struct json_writer *w = arg;
	struct stat st;

	json_begin_object(w, NULL);
	json_put_string(w, "id", name);
	json_put_string(w, "object", "model");
	json_put_int(w, "created", stat(path, &st) ? 0 : (int64_t)st.st_mtim.tv_sec);
	json_put_string(w, "owned_by", "fathom");
	json_end_object(w);
	return 0;
}

void openai_models(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	json_begin_object(&w, NULL);
	json_put_string(&w, "object", "list");
	json_begin_array(&w, "data");
	registry_each_model(&api_of(r)->registry, put_model, &w);
	json_end_array(&w);
	json_end_object(&w);
	api_send_json(r, 200, &b);
}

void openai_model(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	char *path = NULL;
	struct err e;

	if (registry_model(&api_of(r)->registry, r->name, &path, &e)) {
		openai_refuse(r, 404, "model", "model_not_found", "%s", e.msg);
		return;
	}
	put_model(&w, r->name, path);
	free(path);
	api_send_json(r, 200, &b);
}

/* -- which model ------------------------------------------------------------------------------- */

struct only {
	char *name; /* owned */
	size_t n;
};

static int count_model(void *arg, const char *name, const char *path)
{
	struct only *o = arg;

	(void)path;
	if (o->n++ == 0)
		o->name = strdup(name);
	return o->n > 1;
}

/* The name, to be freed; NULL: refused. */
static char *choose_model(struct http_request *r, const struct json *body)
{
	const char *asked = http_query(r, "model");
	const struct json *member = json_get(body, "model");
	struct only only = {0};

	if (!asked)
		asked = json_string(member);
	if (!asked && member && !json_is_null(member)) {
		openai_refuse(r, 400, "model", NULL, "model is %s, want a string", json_type_name(member));
		return NULL;
	}
	if (!asked) {
		registry_each_model(&api_of(r)->registry, count_model, &only);
		if (only.n == 1 && only.name)
			return only.name;
		free(only.name);
		asked = api_of(r)->last_model;
	}
	if (!asked) {
		openai_refuse(
		    r, 400, "model", NULL,
		    only.n ? "there are several models: say which with ?model=NAME or the member \"model\" (without, "
		             "it is the one that completions were asked of last)"
		           : "there is no model");
		return NULL;
	}
	return openai_has_model(r, asked) ? strdup(asked) : NULL;
}

/* -- asking ------------------------------------------------------------------------------------ */

/* Sends {"cmd",...,"model", then the members}; `then` answers. Takes body. */
static void ask(struct http_request *r, const char *cmd, struct json *body, const char *const *members,
                http_handler *then)
{
	struct api_call *call = api_call_new(r, REQUEST_TOKENS);
	struct json_writer w;
	char *model = call ? choose_model(r, body) : NULL;
	struct err e;

	if (!model) {
		json_free(body);
		return;
	}
	call->core.id = api_of(r)->next_request++;
	call->core.line = BUF_INIT(WIRE_MAX_LINE);
	w = JSON_WRITER(&call->core.line);
	json_begin_object(&w, NULL);
	json_put_string(&w, "cmd", cmd);
	json_put_int(&w, "request", call->core.id);
	json_put_string(&w, "model", model);
	for (; *members; members++)
		if (json_get(body, *members))
			json_put_value(&w, *members, json_get(body, *members));
	json_end_object(&w);
	free(model);
	json_free(body);
	if (buf_check(&call->core.line, "the request", &e))
		openai_refuse_error(r, NULL, &e);
	else
		api_call_submit(r, then);
}

static bool failed(struct http_request *r, const char *param)
{
	const struct api_call *call = r->state;

	if (call->core.err.code)
		openai_refuse_error(r, param, &call->core.err);
	return call->core.err.code != ERR_OK;
}

/* Members of the worker's reply, under names of their own. */
static void send_members(struct http_request *r, const char *const (*members)[2], size_t n)
{
	const struct api_call *call = r->state;
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	json_begin_object(&w, NULL);
	for (size_t i = 0; i < n; i++)
		if (json_get(call->core.reply, members[i][0]))
			json_put_value(&w, members[i][1], json_get(call->core.reply, members[i][0]));
	json_end_object(&w);
	http_set_header(r, "Cache-Control", "no-store");
	api_send_json(r, 200, &b);
}

static void informed(struct http_request *r)
{
	static const char *const members[][2] = {{"eos_token", "eos_token"},
	                                         {"bos_token", "bos_token"},
	                                         {"pad_token", "pad_token"},
	                                         {"chat_template", "chat_template"}};

	if (!failed(r, "model"))
		send_members(r, members, 4);
}

void openai_tokenizer_info(struct http_request *r)
{
	static const char *const members[] = {NULL};

	ask(r, "tokenizer_info", NULL, members, informed);
}

static void tokenized(struct http_request *r)
{
	static const char *const members[][2] = {{"tokens", "tokens"}, {"n_ctx", "max_model_len"}};

	if (!failed(r, "prompt"))
		send_members(r, members, 2);
}

void openai_tokenize(struct http_request *r)
{
	static const char *const members[] = {"prompt", "add_special_tokens", NULL};
	struct json *body = openai_body(r);
	bool add_special; /* passed on as it stands */

	if (!body)
		return;
	if (!json_get_string(body, "prompt")) {
		openai_refuse(r, 400, "prompt", NULL, "prompt is %s, want a string",
		              json_type_name(json_get(body, "prompt")));
		json_free(body);
		return;
	}
	if (!openai_take_bool(r, body, "add_special_tokens", &add_special)) {
		json_free(body);
		return;
	}
	ask(r, "tokenize", body, members, tokenized);
}

static void detokenized(struct http_request *r)
{
	static const char *const members[][2] = {{"prompt", "prompt"}};

	if (!failed(r, "tokens"))
		send_members(r, members, 1);
}

void openai_detokenize(struct http_request *r)
{
	static const char *const members[] = {"tokens", NULL};
	struct json *body = openai_body(r);

	if (!body)
		return;
	if (!json_is_array(json_get(body, "tokens"))) {
		openai_refuse(r, 400, "tokens", NULL, "tokens is %s, want an array of token ids",
		              json_type_name(json_get(body, "tokens")));
		json_free(body);
		return;
	}
	ask(r, "detokenize", body, members, detokenized);
}
