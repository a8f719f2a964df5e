/* What the OpenAI routes share: see openai.h. */
#include "server/openai.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log.h"

bool openai_owns(const char *path)
{
	static const char *const paths[] = {"/tokenizer_info", "/tokenize", "/detokenize"};

	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
		if (!strcmp(path, paths[i]))
			return true;
	return !strncmp(path, "/v1/", 4);
}

static const char *type_of(unsigned status)
{
	return status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

void openai_refuse(struct http_request *r, unsigned status, const char *param, const char *code, const char *fmt, ...)
{
	struct buf b = BUF_INIT((size_t)1 << 16);
	struct json_writer w = JSON_WRITER(&b);
	char message[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof message, fmt, ap);
	va_end(ap);
	json_begin_object(&w, NULL);
	json_begin_object(&w, "error");
	json_put_string(&w, "message", message);
	json_put_string(&w, "type", type_of(status));
	json_put_string(&w, "param", param);
	json_put_string(&w, "code", code);
	json_end_object(&w);
	json_end_object(&w);
	buf_putc(&b, '\n');
	if (status == 429 || status == 503)
		http_set_header(r, "Retry-After", status == 429 ? "1" : "2");
	http_set_header(r, "Cache-Control", "no-store");
	http_send(r, status, "application/json", &b);
}

void openai_refuse_error(struct http_request *r, const char *param, const struct err *e)
{
	switch (e->code) {
	case ERR_INPUT:
		openai_refuse(r, 400, param, NULL, "%s", e->msg);
		break;
	case ERR_NOT_FOUND:
		openai_refuse(r, 404, "model", "model_not_found", "%s", e->msg);
		break;
	case ERR_CANCELLED:
	case ERR_DEVICE: /* no worker, or one that died again and again */
	case ERR_IO:
		openai_refuse(r, 503, NULL, "unavailable", "%s", e->msg);
		break;
	default:
		log_error("http: %s %s: %s", r->method, r->path, e->msg);
		openai_refuse(r, 500, NULL, err_name(e->code), "%s", e->msg);
	}
}

struct json *openai_body(struct http_request *r)
{
	struct json *body = NULL;
	struct err e;

	if (json_parse(buf_str(&r->body), r->body.len, &body, &e)) {
		openai_refuse(r, 400, NULL, NULL, "the body: %s", e.msg);
		return NULL;
	}
	if (!json_is_object(body)) {
		openai_refuse(r, 400, NULL, NULL, "the body is %s, not an object", json_type_name(body));
		json_free(body);
		return NULL;
	}
	return body;
}

bool openai_take_bool(struct http_request *r, const struct json *body, const char *key, bool *out)
{
	const struct json *v = json_get(body, key);

	*out = json_true(v);
	if (!v || json_is_null(v) || json_is_bool(v))
		return true;
	openai_refuse(r, 400, key, NULL, "%s is %s, want true or false", key, json_type_name(v));
	return false;
}

bool openai_has_model(struct http_request *r, const char *name)
{
	char *path = NULL;
	struct err e;
	err_code rc = registry_model(&api_of(r)->registry, name, &path, &e);

	free(path);
	if (rc)
		openai_refuse(r, 404, "model", "model_not_found", "%s", e.msg);
	return !rc;
}
