/* /openapi.json: an OpenAPI 3.1 document, made from the table of routes, so that no route is forgotten and none is
 * invented: methods, paths and parameters are the table's. What a table cannot say stands in server/openapi.json, which
 * is part of the program: words, bodies and replies of an operation ("operations", by "METHOD PATH"), what a query
 * parameter or a header is, and the schemas. A reply is the name of a schema, a media type, or null for no body. */
#include <stdio.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/api.h"
#include "server/embedded.h"
#include "server/openai.h"
#include "server/problem.h"
#include "server/routes.h"

#define MAX_REPLY ((size_t)4 << 20)

static const char *const tags[][2] = {
    {"jobs", "evaluations: submitted, watched, cancelled"},
    {"results", "what came out of them"},
    {"events", "what happens, as it happens"},
    {"gates", "named sets of rules, and the runs that they judged"},
    {"baselines", "named, versioned results to compare with"},
    {"catalog", "what there is to evaluate, and what with"},
    {"openai", "scoring for other programs, as OpenAI's completions"},
    {"server", "the server itself"},
};

static err_code read_words(struct json **out, struct err *e)
{
	for (size_t i = 0; i < embedded_count; i++)
		if (!strcmp(embedded_files[i].name, "server/openapi.json"))
			return json_parse((const char *)embedded_files[i].data, embedded_files[i].len, out, e);
	return err_set(e, ERR_NOT_FOUND, "the program was built without server/openapi.json");
}

/* The page's files are no operation. */
static bool is_shown(const struct route *t)
{
	return strcmp(t->path, "/{name}") != 0;
}

/* -- parameters -------------------------------------------------------------------------------- */

static void put_param(struct json_writer *w, const char *in, const char *name, size_t len, const struct json *words,
                      const char *schema)
{
	bool required = !strcmp(in, "path") || json_true(json_get(words, "required"));

	json_begin_object(w, NULL);
	json_put_string(w, "in", in);
	json_put_stringn(w, "name", name, len);
	if (json_get(words, "description"))
		json_put_value(w, "description", json_get(words, "description"));
	if (required)
		json_put_bool(w, "required", true);
	if (json_get(words, "schema"))
		json_put_value(w, "schema", json_get(words, "schema"));
	else
		json_put_raw(w, "schema", schema);
	json_end_object(w);
}

static void put_path_params(struct json_writer *w, const char *path)
{
	for (const char *s = strchr(path, '{'); s; s = strchr(s + 1, '{')) {
		size_t len = strcspn(++s, "}");
		bool id = len == 2 && !memcmp(s, "id", 2);

		put_param(w, "path", s, len, NULL,
		          id ? "{\"type\":\"integer\",\"minimum\":1}" : "{\"type\":\"string\",\"minLength\":1}");
	}
}

/* What an operation says of a parameter itself goes before what is said of all of that name. */
static void put_query(struct json_writer *w, const char *list, const struct json *own, const struct json *all)
{
	char name[64];

	for (const char *s = list; *s; s += strspn(s, " ")) {
		size_t len = strcspn(s, " ");
		const struct json *words;

		snprintf(name, sizeof name, "%.*s", (int)len, s);
		words = json_get(own, name) ? json_get(own, name) : json_get(all, name);
		put_param(w, "query", s, len, words, "{\"type\":\"string\"}");
		s += len;
	}
}

static void put_params(struct json_writer *w, const struct route *t, const struct json *op, const struct json *words)
{
	const struct json *headers = json_get(words, "headers");

	json_begin_array(w, "parameters");
	put_path_params(w, t->path);
	put_query(w, t->query, json_get(op, "query"), json_get(words, "query"));
	for (const struct json *h = json_first(json_get(op, "headers")); h; h = json_next(h))
		put_param(w, "header", json_string(h), strlen(json_string(h)), json_get(headers, json_string(h)),
		          "{\"type\":\"string\"}");
	json_end_array(w);
}

/* -- bodies and replies ------------------------------------------------------------------------ */

/* `what`: the name of a schema, whose example is the body's, or a media type. */
static void put_content(struct json_writer *w, const char *what, const char *type)
{
	char ref[120];

	snprintf(ref, sizeof ref, "#/components/schemas/%s", what);
	json_begin_object(w, "content");
	json_begin_object(w, strchr(what, '/') ? what : type);
	json_begin_object(w, "schema");
	if (strchr(what, '/'))
		json_put_string(w, "type", "string");
	else
		json_put_string(w, "$ref", ref);
	json_end_object(w);
	json_end_object(w);
	json_end_object(w);
}

static void put_refusal(struct json_writer *w, const char *path)
{
	json_begin_object(w, "default");
	json_put_string(w, "description", "refused, or failed");
	if (openai_owns(path))
		put_content(w, "OpenAIError", "application/json");
	else
		put_content(w, "Problem", "application/problem+json");
	json_end_object(w);
}

static void put_replies(struct json_writer *w, const struct json *replies, const char *path)
{
	json_begin_object(w, "responses");
	for (const struct json *r = json_first(replies); r; r = json_next(r)) {
		json_begin_object(w, json_key(r));
		json_put_string(w, "description",
		                !strcmp(json_key(r), "304") ? "what you have is what there is" : "done");
		if (json_string(r))
			put_content(w, json_string(r), "application/json");
		json_end_object(w);
	}
	put_refusal(w, path);
	json_end_object(w);
}

/* -- the document ------------------------------------------------------------------------------ */

/* "GET /api/v1/jobs/{id}" -> "get_jobs_id". */
static void put_operation_id(struct json_writer *w, const struct route *t)
{
	const char *path = strncmp(t->path, "/api/v1/", 8) ? t->path : t->path + 7;
	char id[120];
	size_t n = 0;

	for (const char *s = t->method; *s && n < 10; s++)
		id[n++] = (char)(*s - 'A' + 'a');
	for (const char *s = path; *s && n < sizeof id - 2; s++) {
		bool word = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9');

		if (word)
			id[n++] = *s;
		else if (n && id[n - 1] != '_')
			id[n++] = '_';
	}
	while (n && id[n - 1] == '_')
		n--;
	json_put_stringn(w, "operationId", id, n);
}

static void put_operation(struct json_writer *w, const struct route *t, const struct json *words)
{
	char name[120], method[8] = "";
	const struct json *op;
	const char *request;

	for (size_t i = 0; t->method[i] && i + 1 < sizeof method; i++)
		method[i] = (char)(t->method[i] - 'A' + 'a');
	snprintf(name, sizeof name, "%s %s", t->method, t->path);
	op = json_get(json_get(words, "operations"), name);
	request = json_get_string(op, "request");
	json_begin_object(w, method);
	put_operation_id(w, t);
	json_begin_array(w, "tags");
	json_put_string(w, NULL, json_get_string(op, "tag") ? json_get_string(op, "tag") : "server");
	json_end_array(w);
	if (json_get(op, "summary"))
		json_put_value(w, "summary", json_get(op, "summary"));
	if (json_get(op, "description"))
		json_put_value(w, "description", json_get(op, "description"));
	put_params(w, t, op, words);
	if (request) {
		json_begin_object(w, "requestBody");
		json_put_bool(w, "required", true);
		put_content(w, request, "application/json");
		json_end_object(w);
	}
	put_replies(w, json_get(op, "replies"), t->path);
	json_end_object(w);
}

/* A path's operations stand together, where its first one is. */
static void put_paths(struct json_writer *w, const struct json *words)
{
	const struct route *t, *other;

	json_begin_object(w, "paths");
	for (size_t i = 0; (t = routes_at(i)); i++) {
		size_t first = 0;

		while (strcmp(routes_at(first)->path, t->path) != 0)
			first++;
		if (first < i || !is_shown(t))
			continue;
		json_begin_object(w, t->path);
		for (size_t k = i; (other = routes_at(k)); k++)
			if (!strcmp(other->path, t->path))
				put_operation(w, other, words);
		json_end_object(w);
	}
	json_end_object(w);
}

static void put_document(struct json_writer *w, const struct json *words)
{
	json_begin_object(w, NULL);
	json_put_string(w, "openapi", "3.1.0");
	json_begin_object(w, "info");
	json_put_string(w, "title", "fathom");
	json_put_string(w, "version", FATHOM_VERSION);
	json_put_string(w, "description", "Long-context evaluation of language models: jobs, results, gates.");
	json_end_object(w);
	json_begin_array(w, "tags");
	for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
		json_begin_object(w, NULL);
		json_put_string(w, "name", tags[i][0]);
		json_put_string(w, "description", tags[i][1]);
		json_end_object(w);
	}
	json_end_array(w);
	put_paths(w, words);
	json_begin_object(w, "components");
	json_put_value(w, "schemas", json_get(words, "schemas"));
	json_end_object(w);
	json_end_object(w);
}

void api_openapi(struct http_request *r)
{
	struct buf b = BUF_INIT(MAX_REPLY);
	struct json_writer w = JSON_WRITER(&b);
	struct json *words = NULL;
	char hex[SHA256_HEX];
	struct err e;

	if (read_words(&words, &e)) {
		problem_error(r, &e);
		return;
	}
	put_document(&w, words);
	json_free(words);
	sha256_hex(buf_str(&b), b.len, hex);
	hex[32] = '\0';
	if (http_not_modified(r, hex))
		buf_release(&b);
	else
		api_send_json(r, 200, &b);
}
