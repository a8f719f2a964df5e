/* The REST API's client: see client.h. Shares libcurl with fetch.c. */
#include "server/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

#include "engine/utf8.h"

#define MAX_REPLY ((size_t)1 << 30)

struct client {
	CURL *curl; /* owned, as the rest */
	char *url;
	struct curl_slist *headers; /* of the call under way */
};

err_code client_open(const char *url, struct client **out, struct err *e)
{
	struct client *c = mem_zalloc(1, sizeof *c, e);
	size_t len;

	if (!c)
		return e->code;
	if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
		err_set(e, ERR_INPUT, "server '%.200s' does not begin with http:// or https://", url);
		goto fail;
	}
	curl_global_init(CURL_GLOBAL_DEFAULT);
	c->curl = curl_easy_init();
	c->url = mem_strdup(url, e);
	if (!c->curl || !c->url) {
		err_set(e, ERR_MEMORY, "out of memory");
		goto fail;
	}
	for (len = strlen(c->url); len && c->url[len - 1] == '/'; len--)
		c->url[len - 1] = '\0';
	*out = c;
	return ERR_OK;
fail:
	client_close(c);
	return e->code;
}

void client_close(struct client *c)
{
	if (!c)
		return;
	if (c->curl)
		curl_easy_cleanup(c->curl);
	free(c->url);
	free(c);
	curl_global_cleanup();
}

const char *client_url(const struct client *c)
{
	return c->url;
}

void client_reply_release(struct client_reply *r)
{
	buf_release(&r->body);
}

/* -- calling ----------------------------------------------------------------------------------- */

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct client_reply *r = arg;

	buf_append(&r->body, data, size * n);
	return r->body.failed ? 0 : size * n;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct client_reply *r = arg;
	size_t len = size * n;

	r->replayed |= len > 20 && !strncasecmp(data, "Idempotent-Replayed:", 20);
	if (len > 5 && !strncasecmp(data, "ETag:", 5)) {
		data += 5;
		len -= 5;
		while (len && (*data == ' ' || *data == '\t')) {
			data++;
			len--;
		}
		while (len && strchr(" \t\r\n", data[len - 1]))
			len--;
		snprintf(r->etag, sizeof r->etag, "%.*s", (int)len, data);
	}
	return size * n;
}

static void add_header(struct client *c, const char *name, const char *value)
{
	char line[400];

	if (!value)
		return;
	snprintf(line, sizeof line, "%s: %s", name, value);
	c->headers = curl_slist_append(c->headers, line);
}

static err_code configure(struct client *c, const struct client_request *q, const char *url, struct client_reply *r,
                          struct err *e)
{
	bool ok = true;

	curl_easy_reset(c->curl); /* keeps the connection */
	add_header(c, "Content-Type", q->body ? "application/json" : NULL);
	add_header(c, "Idempotency-Key", q->idempotency_key);
	add_header(c, "If-None-Match", q->if_none_match);
	add_header(c, "If-Match", q->if_match);
	add_header(c, "Expect", ""); /* no 100-continue round trip */
	ok &= !curl_easy_setopt(c->curl, CURLOPT_URL, url);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_CUSTOMREQUEST, q->method);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->headers);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT, 10L);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_TIMEOUT, q->timeout_s ? q->timeout_s : 60L);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_USERAGENT, "fathom/" FATHOM_VERSION);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, on_body);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_WRITEDATA, r);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, on_header);
	ok &= !curl_easy_setopt(c->curl, CURLOPT_HEADERDATA, r);
	if (q->body) {
		ok &= !curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(q->body));
		ok &= !curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, q->body);
	} else if (!strcmp(q->method, "POST")) {
		ok &= !curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE, 0L);
		ok &= !curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, "");
	}
	return ok ? ERR_OK : err_set(e, ERR_MEMORY, "libcurl refused an option");
}

static err_code code_of(long status)
{
	if (status == 404)
		return ERR_NOT_FOUND;
	if (status == 409 || status == 412 || status == 428)
		return ERR_CONFLICT;
	return status < 500 ? ERR_INPUT : ERR_IO;
}

/* The server's own words where it has any. */
static err_code problem(const struct client *c, const struct client_reply *r, struct err *e)
{
	struct json *j = NULL;
	struct err ignored;
	const char *detail, *where;

	if (json_parse(buf_str(&r->body), r->body.len, &j, &ignored))
		j = NULL;
	detail = json_get_string(j, "detail");
	where = json_get_string(j, "pointer");
	if (!where)
		where = json_get_string(j, "parameter");
	if (detail)
		err_set(e, code_of(r->status), "%s%s%s%s", detail, where ? " (at " : "", where ? where : "",
		        where ? ")" : "");
	else
		err_set(e, code_of(r->status), "%s answered %ld", c->url, r->status);
	json_free(j);
	return e->code;
}

/* ERR_OK when there was an answer, whatever its status. */
static err_code perform(struct client *c, struct client_reply *r, struct err *e)
{
	CURLcode rc = curl_easy_perform(c->curl);

	if (rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST)
		return err_set(e, ERR_IO, "no server answers at %s (is `fathom serve` running?)", c->url);
	if (rc)
		return err_set(e, ERR_IO, "%s: %s", c->url, curl_easy_strerror(rc));
	curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &r->status);
	return ERR_OK;
}

err_code client_call(struct client *c, const struct client_request *q, struct client_reply *r, struct err *e)
{
	struct buf url = BUF_INIT((size_t)1 << 16);
	err_code rc;

	*r = (struct client_reply){.body = BUF_INIT(MAX_REPLY)};
	buf_printf(&url, "%s%s", c->url, q->path);
	rc = buf_check(&url, "the URL", e);
	if (!rc)
		rc = configure(c, q, buf_str(&url), r, e);
	if (!rc)
		rc = perform(c, r, e);
	if (!rc && r->status >= 400)
		rc = problem(c, r, e);
	curl_slist_free_all(c->headers);
	c->headers = NULL;
	buf_release(&url);
	return rc;
}

err_code client_get(struct client *c, const char *path, struct json **out, struct err *e)
{
	struct client_request q = {.method = "GET", .path = path};
	struct client_reply r;
	err_code rc = client_call(c, &q, &r, e);

	if (!rc && (rc = json_parse(buf_str(&r.body), r.body.len, out, e)) != ERR_OK)
		err_wrap(e, "%s%s", c->url, path);
	client_reply_release(&r);
	return rc;
}

err_code client_create(struct client *c, const char *path, const char *body, const char *key, int64_t *id,
                       bool *replayed, struct err *e)
{
	struct client_request q = {.method = "POST", .path = path, .body = body, .idempotency_key = key};
	struct client_reply r;
	struct json *made = NULL;
	err_code rc = client_call(c, &q, &r, e);

	if (!rc)
		rc = json_parse(buf_str(&r.body), r.body.len, &made, e);
	if (!rc && !json_get_integer(made, "id", id))
		rc = err_set(e, ERR_IO, "%s answered without an id", c->url);
	if (!rc && replayed)
		*replayed = r.replayed;
	json_free(made);
	client_reply_release(&r);
	return rc;
}

err_code client_print(struct client *c, const char *path, struct err *e)
{
	struct client_request q = {.method = "GET", .path = path};
	struct client_reply r;
	err_code rc = client_call(c, &q, &r, e);

	if (!rc)
		fwrite(buf_str(&r.body), 1, r.body.len, stdout);
	client_reply_release(&r);
	return rc;
}

void client_escape(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
		    strchr("-._~", *s))
			buf_putc(out, *s);
		else
			buf_printf(out, "%%%02X", (unsigned)(unsigned char)*s);
	}
}

bool client_job_is_final(const struct json *job)
{
	const char *state = json_get_string(job, "state");

	return state && (!strcmp(state, "succeeded") || !strcmp(state, "failed") || !strcmp(state, "cancelled"));
}

/* -- tables ------------------------------------------------------------------------------------ */

const char *client_time(const char *rfc3339, char out[CLIENT_TIME])
{
	*out = '\0';
	if (rfc3339 && strlen(rfc3339) >= 16)
		snprintf(out, CLIENT_TIME, "%.10s %.5s", rfc3339, rfc3339 + 11);
	return out;
}

err_code client_table_add(struct client_table *t, const char *const *cells, struct err *e)
{
	char **grown = mem_grow(t->cells, &t->cap_rows, t->n_rows + 1, t->n_columns * sizeof *grown, e);

	if (!grown)
		return e->code;
	t->cells = grown;
	for (size_t i = 0; i < t->n_columns; i++) {
		t->cells[t->n_rows * t->n_columns + i] = mem_strdup(cells[i] && *cells[i] ? cells[i] : "-", e);
		if (!t->cells[t->n_rows * t->n_columns + i]) {
			while (i--)
				free(t->cells[t->n_rows * t->n_columns + i]);
			return e->code;
		}
	}
	t->n_rows++;
	return ERR_OK;
}

static void print_cell(const char *s, size_t width, bool right, bool last)
{
	size_t room = width - utf8_count(s);

	if (right)
		printf("%*s%s", (int)room, "", s);
	else
		printf("%s%*s", s, last ? 0 : (int)room, "");
	fputs(last ? "\n" : "  ", stdout);
}

void client_table_print(const struct client_table *t)
{
	size_t width[16] = {0};

	for (size_t i = 0; i < t->n_columns; i++) {
		width[i] = utf8_count(t->head[i]);
		for (size_t k = 0; k < t->n_rows; k++) {
			size_t w = utf8_count(t->cells[k * t->n_columns + i]);

			width[i] = w > width[i] ? w : width[i];
		}
	}
	for (size_t i = 0; i < t->n_columns; i++)
		print_cell(t->head[i], width[i], t->right[i], i + 1 == t->n_columns);
	for (size_t k = 0; k < t->n_rows * t->n_columns; k++)
		print_cell(t->cells[k], width[k % t->n_columns], t->right[k % t->n_columns],
		           (k + 1) % t->n_columns == 0);
}

void client_table_release(struct client_table *t)
{
	for (size_t k = 0; k < t->n_rows * t->n_columns; k++)
		free(t->cells[k]);
	free(t->cells);
}

err_code client_print_list(struct client *c, const char *path, struct client_table *t, client_add_row *add,
                           struct err *e)
{
	struct json *list = NULL;
	err_code rc = client_get(c, path, &list, e);

	for (const struct json *j = json_first(json_get(list, "data")); j && !rc; j = json_next(j))
		rc = add(t, j, e);
	if (!rc)
		client_table_print(t);
	client_table_release(t);
	json_free(list);
	return rc;
}
