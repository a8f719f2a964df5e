/* POST /v1/completions: prompts scored, and a few tokens generated at temperature 0. The contract is the one that
 * lm-eval counts on: prompt and generated tokens have one entry each in `token_logprobs`, the first of a prompt null; a
 * token's `top_logprobs` hold the most probable token and the token itself.
 *
 * Members that would only change how tokens are drawn (temperature, seed, top_p, penalties) are ignored, as is what is
 * not known; members that ask for another answer than the one given (n, stream, suffix, logit_bias) are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "eval/wire.h"
#include "server/openai.h"

#define MAX_STOPS 16
#define MAX_REPLY ((size_t)256 << 20)

/* What the answer needs beside the reply. */
struct completion {
	struct json *body; /* owned */
	const char *model; /* borrowed from body */
	int64_t logprobs;  /* -1: none */
	bool counted;      /* among the API's n_scores */
	struct api *api;
};

static void completion_free(void *data)
{
	struct completion *c = data;

	if (c->counted)
		c->api->n_scores--;
	json_free(c->body);
	free(c);
}

/* -- what is asked ----------------------------------------------------------------------------- */

/* An integer in [min, max], or the fallback when it is absent or null. */
static bool take_integer(struct http_request *r, const struct json *body, const char *key, int64_t min, int64_t max,
                         int64_t fallback, const char *why, int64_t *out)
{
	const struct json *v = json_get(body, key);

	*out = fallback;
	if (!v || json_is_null(v))
		return true;
	if (json_integer(v, out) && *out >= min && *out <= max)
		return true;
	openai_refuse(r, 400, key, NULL, "%s is to be an integer from %lld to %lld%s", key, (long long)min,
	              (long long)max, why);
	return false;
}

/* Members that this endpoint cannot honour, and must not ignore. */
static bool check_others(struct http_request *r, const struct json *body)
{
	bool stream;
	int64_t n;

	if (!take_integer(r, body, "n", 1, 1, 1, ": one answer a prompt is given", &n) ||
	    !take_integer(r, body, "best_of", 1, 1, 1, ": one answer a prompt is given", &n))
		return false;
	if (!openai_take_bool(r, body, "stream", &stream))
		return false;
	if (stream) {
		openai_refuse(r, 400, "stream", NULL, "answers are not streamed");
		return false;
	}
	if (json_get_string(body, "suffix")) {
		openai_refuse(r, 400, "suffix", NULL, "a suffix is not supported");
		return false;
	}
	if (json_count(json_get(body, "logit_bias"))) {
		openai_refuse(r, 400, "logit_bias", NULL, "logit_bias is not supported");
		return false;
	}
	return true;
}

/* Strings, at most MAX_STOPS, as an array. */
static bool put_stop(struct http_request *r, struct json_writer *w, const struct json *stop)
{
	bool good = !stop || json_is_null(stop) || json_is_string(stop) || json_is_array(stop);

	for (const struct json *s = json_is_array(stop) ? json_first(stop) : NULL; s; s = json_next(s))
		good &= json_is_string(s);
	if (!good || (json_is_array(stop) && json_count(stop) > MAX_STOPS)) {
		openai_refuse(r, 400, "stop", NULL, "stop is to be a string, or an array of at most %d", MAX_STOPS);
		return false;
	}
	if (json_is_array(stop)) {
		json_put_value(w, "stop", stop);
	} else if (json_is_string(stop)) {
		json_begin_array(w, "stop");
		json_put_value(w, NULL, stop);
		json_end_array(w);
	}
	return true;
}

/* What is wrong with a prompt, or NULL: a string, or an array of token ids. */
static const char *fault_of(const struct json *prompt)
{
	int64_t id;

	if (json_is_string(prompt))
		return NULL; /* the tokenizer may make a token of none */
	if (!json_is_array(prompt))
		return "is neither a string nor an array of token ids";
	if (!json_first(prompt))
		return "is empty";
	for (const struct json *v = json_first(prompt); v; v = json_next(v))
		if (!json_integer(v, &id) || id < 0 || id > UINT32_MAX)
			return "has an element that is not a token id";
	return NULL;
}

/* A string, token ids, or an array of either. */
static bool put_prompts(struct http_request *r, struct json_writer *w, const struct json *prompt)
{
	bool one = json_is_string(prompt) || (json_is_array(prompt) && json_is_number(json_first(prompt)));
	const struct json *v = one ? prompt : json_first(prompt);
	size_t n = 0;

	if (!one && (!json_is_array(prompt) || !v)) {
		openai_refuse(r, 400, "prompt", NULL, "prompt is %s: want a string, token ids, or an array of either",
		              json_is_array(prompt) ? "empty" : json_type_name(prompt));
		return false;
	}
	json_begin_array(w, "prompts");
	for (; v; v = one ? NULL : json_next(v), n++) {
		const char *fault = fault_of(v);

		if (n == WIRE_MAX_PROMPTS)
			openai_refuse(r, 400, "prompt", NULL, "more than %d prompts", WIRE_MAX_PROMPTS);
		else if (fault)
			openai_refuse(r, 400, "prompt", NULL, "prompt %zu %s", n, fault);
		if (n == WIRE_MAX_PROMPTS || fault)
			return false;
		json_put_value(w, NULL, v);
	}
	json_end_array(w);
	return true;
}

/* Writes the worker's command. False: refused. */
static bool put_command(struct http_request *r, struct completion *c, int64_t id, struct json_writer *w)
{
	const struct json *body = c->body;
	int64_t max_tokens;
	bool echo;

	c->model = json_get_string(body, "model");
	if (!c->model) {
		openai_refuse(r, 400, "model", NULL, "model is %s, want a string",
		              json_type_name(json_get(body, "model")));
		return false;
	}
	if (!openai_has_model(r, c->model) || !check_others(r, body) ||
	    !take_integer(r, body, "max_tokens", 0, WIRE_MAX_NEW, WIRE_MAX_NEW /* OpenAI's default, too */,
	                  ": this endpoint scores, and generates little", &max_tokens) ||
	    !openai_take_bool(r, body, "echo", &echo) ||
	    !take_integer(r, body, "logprobs", 0, 1, -1, ": the most probable token and the token itself",
	                  &c->logprobs))
		return false;
	json_begin_object(w, NULL);
	json_put_string(w, "cmd", "score");
	json_put_int(w, "request", id);
	json_put_string(w, "model", c->model);
	json_put_int(w, "max_tokens", max_tokens);
	json_put_bool(w, "echo", echo);
	json_put_bool(w, "logprobs", c->logprobs >= 0);
	if (!put_stop(r, w, json_get(body, "stop")) || !put_prompts(r, w, json_get(body, "prompt")))
		return false;
	json_end_object(w);
	return true;
}

/* -- the answer -------------------------------------------------------------------------------- */

/* Walks the parallel arrays of a prompt's result. */
static void put_top_logprobs(struct json_writer *w, const struct json *p, int64_t logprobs)
{
	const struct json *token = json_first(json_get(p, "tokens")), *own = json_first(json_get(p, "logprobs")),
	                  *argmax = json_first(json_get(p, "argmax")),
	                  *best = json_first(json_get(p, "argmax_logprobs"));

	json_begin_array(w, "top_logprobs");
	while (token && own && argmax && best) {
		if (json_is_number(own)) {
			json_begin_object(w, NULL);
			if (logprobs && strcmp(json_string(argmax), json_string(token)) != 0)
				json_put_value(w, json_string(argmax), best);
			json_put_value(w, json_string(token), own);
			json_end_object(w);
		} else {
			json_put_null(w, NULL);
		}
		token = json_next(token);
		own = json_next(own);
		argmax = json_next(argmax);
		best = json_next(best);
	}
	json_end_array(w);
}

static void put_choice(struct json_writer *w, const struct json *p, int64_t index, int64_t logprobs)
{
	json_begin_object(w, NULL);
	json_put_int(w, "index", index);
	json_put_string(w, "text", json_get_string(p, "text"));
	if (logprobs < 0) {
		json_put_null(w, "logprobs");
	} else {
		json_begin_object(w, "logprobs");
		json_put_value(w, "tokens", json_get(p, "tokens"));
		json_put_value(w, "token_logprobs", json_get(p, "logprobs"));
		put_top_logprobs(w, p, logprobs);
		json_put_value(w, "text_offset", json_get(p, "offsets"));
		json_end_object(w);
	}
	json_put_string(w, "finish_reason", json_get_string(p, "finish"));
	json_end_object(w);
}

static void put_answer(struct json_writer *w, const struct completion *c, int64_t id, const struct json *reply)
{
	int64_t n_prompt = 0, n_generated = 0, n, index = 0;
	char name[32];

	snprintf(name, sizeof name, "cmpl-%lld", (long long)id);
	json_begin_object(w, NULL);
	json_put_string(w, "id", name);
	json_put_string(w, "object", "text_completion");
	json_put_int(w, "created", clock_unix_ms() / 1000);
	json_put_string(w, "model", c->model);
	json_put_string(w, "system_fingerprint", json_get_string(reply, "signature"));
	json_begin_array(w, "choices");
	for (const struct json *p = json_first(json_get(reply, "prompts")); p; p = json_next(p)) {
		put_choice(w, p, index++, c->logprobs);
		n_prompt += json_get_integer(p, "n_prompt", &n) ? n : 0;
		n_generated += json_get_integer(p, "n_generated", &n) ? n : 0;
	}
	json_end_array(w);
	json_begin_object(w, "usage");
	json_put_int(w, "prompt_tokens", n_prompt);
	json_put_int(w, "completion_tokens", n_generated);
	json_put_int(w, "total_tokens", n_prompt + n_generated);
	json_end_object(w);
	json_end_object(w);
}

/* Everything that is written is there, of the type that is written: the worker may be of another program. */
static bool is_answer(const struct completion *c, const struct json *reply)
{
	static const char *const lists[] = {"tokens", "logprobs", "argmax", "argmax_logprobs"};
	const struct json *p = json_first(json_get(reply, "prompts"));
	bool good = p != NULL;

	for (; p; p = json_next(p)) {
		good &= json_get_string(p, "text") && json_is_array(json_get(p, "offsets"));
		for (size_t i = 0; c->logprobs >= 0 && i < 4; i++)
			good &= json_is_array(json_get(p, lists[i]));
		for (const struct json *t = json_first(json_get(p, "tokens")); t; t = json_next(t))
			good &= json_is_string(t);
		for (const struct json *t = json_first(json_get(p, "argmax")); t; t = json_next(t))
			good &= json_is_string(t) || json_is_null(t);
	}
	return good;
}

static void completed(struct http_request *r)
{
	struct api_call *call = r->state;
	struct completion *c = call->data;
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);

	c->api->n_scores--;
	c->counted = false;
	if (call->core.err.code) {
		openai_refuse_error(r, "prompt", &call->core.err);
		return;
	}
	if (!is_answer(c, call->core.reply)) {
		openai_refuse(r, 500, NULL, NULL, "the worker's answer is malformed");
		return;
	}
	put_answer(&w, c, call->core.id, call->core.reply);
	http_set_header(r, "Cache-Control", "no-store");
	api_send_json(r, 200, &b);
}

void openai_completions(struct http_request *r)
{
	struct api *api = api_of(r);
	struct api_call *call;
	struct completion *c;
	struct json_writer w;
	struct err e;

	if (api->n_scores >= OPENAI_MAX_WAITING) {
		openai_refuse(r, 429, NULL, "too_many_requests", "%d requests wait already", OPENAI_MAX_WAITING);
		return;
	}
	call = api_call_new(r, REQUEST_SCORE);
	if (!call)
		return;
	c = mem_zalloc(1, sizeof *c, &e);
	if (!c) {
		openai_refuse_error(r, NULL, &e);
		return;
	}
	c->api = api;
	call->data = c;
	call->data_free = completion_free;
	c->body = openai_body(r);
	if (!c->body)
		return;
	call->core.id = api->next_request++;
	call->core.line = BUF_INIT(WIRE_MAX_LINE);
	w = JSON_WRITER(&call->core.line);
	if (!put_command(r, c, call->core.id, &w))
		return;
	if (buf_check(&call->core.line, "the request", &e)) {
		openai_refuse_error(r, NULL, &e);
		return;
	}
	api_remember_model(api, c->model);
	c->counted = true;
	api->n_scores++;
	buf_release(&r->body);
	api_call_submit(r, completed);
}
