/* Problem details: see problem.h. */
#include "server/problem.h"

#include <stdarg.h>
#include <stdio.h>

#include "engine/json.h"
#include "engine/log.h"
#include "server/openai.h"

static const char *title_of(unsigned status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 409:
		return "Conflict";
	case 412:
		return "Precondition Failed";
	case 413:
		return "Content Too Large";
	case 415:
		return "Unsupported Media Type";
	case 422:
		return "Unprocessable Content";
	case 428:
		return "Precondition Required";
	case 503:
		return "Service Unavailable";
	default:
		return "Internal Server Error";
	}
}

/* `member` ("pointer" or "parameter") is left out when its value is empty. */
static void send(struct http_request *r, unsigned status, const char *member, const char *value, const char *detail)
{
	struct buf b = BUF_INIT((size_t)1 << 16);
	struct json_writer w = JSON_WRITER(&b);

	if (openai_owns(r->path)) { /* its clients know another shape */
		openai_refuse(r, status == 422 ? 400 : status, value && *value ? value : NULL, NULL, "%s", detail);
		return;
	}
	json_begin_object(&w, NULL);
	json_put_string(&w, "type", "about:blank");
	json_put_string(&w, "title", title_of(status));
	json_put_int(&w, "status", status);
	json_put_string(&w, "detail", detail);
	if (value && *value)
		json_put_string(&w, member, value);
	json_end_object(&w);
	buf_putc(&b, '\n');
	if (status == 503) {
		http_set_header(r, "Retry-After", "2");
		http_set_header(r, "Connection", "close"); /* an idle connection would hold another's place */
	}
	http_set_header(r, "Cache-Control", "no-store");
	http_send(r, status, "application/problem+json", &b);
}

void problem_send(struct http_request *r, unsigned status, const char *fmt, ...)
{
	char detail[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	send(r, status, "pointer", NULL, detail);
}

void problem_query(struct http_request *r, const char *parameter, const char *fmt, ...)
{
	char detail[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(detail, sizeof detail, fmt, ap);
	va_end(ap);
	send(r, 422, "parameter", parameter, detail);
}

static unsigned status_of(const struct err *e)
{
	switch (e->code) {
	case ERR_INPUT:
		return 422;
	case ERR_NOT_FOUND:
		return e->pointer[0] ? 422 : 404;
	case ERR_CONFLICT:
	case ERR_CHANGED:
		return 409;
	case ERR_CANCELLED:
		return 503;
	default:
		return 500;
	}
}

void problem_error(struct http_request *r, const struct err *e)
{
	unsigned status = status_of(e);

	if (status == 500)
		log_error("http: %s %s: %s", r->method, r->path, e->msg);
	send(r, status, "pointer", e->pointer, e->msg);
}
