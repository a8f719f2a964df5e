/* Routes: one table of methods and paths, and what is checked before any handler runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/api.h"
#include "server/openai.h"
#include "server/problem.h"
#include "server/routes.h"

/* A route has its words, for people, in server/openapi.json. */
static const struct route routes[] = {
    {"POST", "/api/v1/jobs", "", api_job_create},
    {"GET", "/api/v1/jobs", "state model task tag limit after", api_job_list},
    {"GET", "/api/v1/jobs/{id}", "wait", api_job_get},
    {"DELETE", "/api/v1/jobs/{id}", "", api_job_delete},
    {"POST", "/api/v1/jobs/{id}/cancel", "", api_job_cancel},
    {"POST", "/api/v1/jobs/{id}/restart", "", api_job_restart},
    {"GET", "/api/v1/jobs/{id}/result", "", api_result_json},
    {"GET", "/api/v1/jobs/{id}/result.json", "", api_result_json},
    {"GET", "/api/v1/jobs/{id}/result.csv", "", api_result_csv},
    {"GET", "/api/v1/jobs/{id}/result.md", "", api_result_markdown},
    {"GET", "/api/v1/jobs/{id}/items", "limit skip correct", api_items},
    {"GET", "/api/v1/jobs/{id}/curve.svg", "metric with", api_job_curve},
    {"GET", "/api/v1/jobs/{id}/frequencies.svg", "", api_job_frequencies},
    {"GET", "/api/v1/jobs/{id}/events", "after", api_events},
    {"GET", "/api/v1/events", "after", api_events},
    {"GET", "/api/v1/curve.svg", "metric jobs", api_curve},
    {"POST", "/api/v1/baselines", "", api_baseline_put},
    {"GET", "/api/v1/baselines", "", api_baseline_list},
    {"GET", "/api/v1/baselines/{baseline}", "version", api_baseline_get},
    {"DELETE", "/api/v1/baselines/{baseline}", "", api_baseline_delete},
    {"GET", "/api/v1/baselines/{baseline}/evidence", "version", api_baseline_evidence},
    {"POST", "/api/v1/gates", "", api_gate_put},
    {"GET", "/api/v1/gates", "", api_gate_list},
    {"GET", "/api/v1/gates/{gate}", "version", api_gate_get},
    {"GET", "/api/v1/gates/{gate}/badge.svg", "branch", api_gate_badge},
    {"POST", "/api/v1/gates/{gate}/runs", "wait", api_run_create},
    {"GET", "/api/v1/gates/{gate}/runs", "state model branch verdict limit after", api_run_list},
    {"GET", "/api/v1/gates/{gate}/runs/{id}", "wait", api_run_get},
    {"POST", "/api/v1/gates/{gate}/runs/{id}/cancel", "", api_run_cancel},
    {"GET", "/api/v1/gates/{gate}/runs/{id}.json", "", api_run_json},
    {"GET", "/api/v1/gates/{gate}/runs/{id}.xml", "", api_run_junit},
    {"GET", "/api/v1/gates/{gate}/runs/{id}.md", "", api_run_markdown},
    {"GET", "/api/v1/history", "gate rule task dataset metric length group branch min_effect limit", api_history},
    {"GET", "/api/v1/models", "", api_model_list},
    {"GET", "/api/v1/models/{name}", "", api_model_get},
    {"GET", "/api/v1/tasks", "", api_task_list},
    {"GET", "/api/v1/tasks/{name}", "", api_task_get},
    {"GET", "/api/v1/datasets", "", api_dataset_list},
    {"GET", "/api/v1/workers", "", api_worker_list},
    {"GET", "/healthz", "", api_health},
    {"GET", "/metrics", "", api_metrics},
    {"GET", "/openapi.json", "", api_openapi},
    {"POST", "/v1/completions", "", openai_completions},
    {"GET", "/v1/models", "", openai_models},
    {"GET", "/v1/models/{name}", "", openai_model},
    {"GET", "/tokenizer_info", "model", openai_tokenizer_info},
    {"POST", "/tokenize", "model", openai_tokenize},
    {"POST", "/detokenize", "model", openai_detokenize},
    {"GET", "/", "", api_static},
    {"GET", "/{name}", "", api_static}, /* last: it matches what nothing else does */
};
#define N_ROUTES (sizeof routes / sizeof *routes)

const struct route *routes_at(size_t i)
{
	return i < N_ROUTES ? &routes[i] : NULL;
}

/* -- matching ---------------------------------------------------------------------------------- */

/* A job's number at the start of s: 1 to 18 digits, no leading zero. Returns what follows, or NULL. */
static const char *match_id(const char *s, int64_t *id)
{
	size_t n = strspn(s, "0123456789");

	if (!n || n > 18 || *s == '0' || (s[n] && s[n] != '/' && s[n] != '.'))
		return NULL;
	*id = strtoll(s, NULL, 10);
	return s + n;
}

/* What stands for a name in a path, as it was sent. */
struct tail {
	const char *s;
	size_t len;
};

/* {name} is all that is left of the path; any other text, such as {gate}, goes up to the next slash. */
static bool match_path(const char *pattern, const char *path, int64_t *id, struct tail *name)
{
	while (*pattern) {
		if (!strncmp(pattern, "{id}", 4)) {
			path = match_id(path, id);
			if (!path)
				return false;
			pattern += 4;
		} else if (!strcmp(pattern, "{name}")) {
			*name = (struct tail){path, strlen(path)};
			return *path != '\0';
		} else if (*pattern == '{') {
			*name = (struct tail){path, strcspn(path, "/")};
			if (!name->len)
				return false;
			path += name->len;
			pattern = strchr(pattern, '}') + 1;
		} else if (*pattern++ != *path++) {
			return false;
		}
	}
	return !*path;
}

static bool same_method(const char *route, const char *method)
{
	return !strcmp(route, strcmp(method, "HEAD") ? method : "GET");
}

static bool matches_all(const struct route *t)
{
	return !strcmp(t->path, "/{name}");
}

/* The methods that a path has, as the value of Allow; "" for a path that only the last route matches. */
static void allowed_methods(const char *path, char *allow, size_t size)
{
	struct tail name;
	int64_t id;

	*allow = '\0';
	for (size_t i = 0; i < N_ROUTES; i++)
		if (!matches_all(&routes[i]) && match_path(routes[i].path, path, &id, &name))
			snprintf(allow + strlen(allow), size - strlen(allow), "%s%s%s", *allow ? ", " : "",
			         strcmp(routes[i].method, "GET") ? "" : "HEAD, ", routes[i].method);
}

/* 404, or 405 with what the path does allow; 204 for OPTIONS. */
static void send_no_route(struct http_request *r, const char *allow)
{
	struct buf none = BUF_INIT(0);

	if (!*allow) {
		problem_send(r, 404, "nothing at %.500s", r->path);
		return;
	}
	http_set_header(r, "Allow", "%s, OPTIONS", allow);
	if (!strcmp(r->method, "OPTIONS"))
		http_send(r, 204, NULL, &none);
	else
		problem_send(r, 405, "%.20s is not allowed here; allowed: %s", r->method, allow);
}

/* -- checks before any handler ----------------------------------------------------------------- */

static bool is_safe(const char *method)
{
	return !strcmp(method, "GET") || !strcmp(method, "HEAD") || !strcmp(method, "OPTIONS");
}

/* A page of another site may resolve its own name to 127.0.0.1 and talk to us with that name as Host: a server that
 * listens on loopback only answers to loopback's names. */
static bool is_local_host(const char *host)
{
	size_t len = strcspn(host, ":");

	if (host[0] == '[')
		return !strncmp(host, "[::1]", 5) && (!host[5] || host[5] == ':');
	return (len == 9 && !strncasecmp(host, "localhost", 9)) ||
	       (len > 10 && !strncasecmp(host + len - 10, ".localhost", 10)) ||
	       (!strncmp(host, "127.", 4) && strspn(host, "0123456789.") == len);
}

/* A browser names the page that a request comes from; only our own page may write. */
static bool is_same_origin(const char *origin, const char *host)
{
	const char *sep = strstr(origin, "://");

	return host && sep && !strncmp(origin, "http", 4) && !strcasecmp(sep + 3, host);
}

/* False when the request was refused. */
static bool check_sender(struct http_request *r)
{
	const char *host = http_header(r, "Host"), *origin = http_header(r, "Origin");

	if (api_of(r)->loopback && host && !is_local_host(host)) {
		problem_send(r, 403, "host '%.200s' is not a name of this machine's loopback interface", host);
		return false;
	}
	if (!is_safe(r->method) && origin && !is_same_origin(origin, host)) {
		problem_send(r, 403, "a page of '%.200s' may not change anything here", origin);
		return false;
	}
	return true;
}

static bool is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *s = list; *s; s += strspn(s, " ")) {
		size_t n = strcspn(s, " ");

		if (n == len && !memcmp(s, word, n))
			return true;
		s += n;
	}
	return false;
}

static bool check_query(struct http_request *r, const struct route *t)
{
	for (size_t i = 0; i < r->n_query; i++) {
		if (is_listed(t->query, r->query[i].name))
			continue;
		problem_query(r, r->query[i].name, "unknown query parameter '%.100s'%s%s", r->query[i].name,
		              *t->query ? "; known: " : "", t->query);
		return false;
	}
	return true;
}

size_t routes_max_body(const char *path)
{
	if (!strcmp(path, "/api/v1/baselines"))
		return BASELINE_MAX_BODY;
	return openai_owns(path) ? OPENAI_MAX_BODY : HTTP_MAX_BODY;
}

void routes_dispatch(struct http_request *r)
{
	const struct route *t = NULL;
	struct tail name = {0};
	char allow[100];

	if (r->body_too_large) {
		problem_send(r, 413, "the body is larger than %zu bytes", r->max_body);
		return;
	}
	if (r->bad_query) {
		problem_send(r, 400, "the query is malformed, too long, or gives a parameter twice");
		return;
	}
	if (!check_sender(r))
		return;
	for (size_t i = 0; i < N_ROUTES && !t; i++)
		if (same_method(routes[i].method, r->method) && match_path(routes[i].path, r->path, &r->id, &name))
			t = &routes[i];
	allowed_methods(r->path, allow, sizeof allow);
	if (!t || (matches_all(t) && *allow)) {
		send_no_route(r, allow);
		return;
	}
	if (!check_query(r, t))
		return;
	if (name.s && strchr(t->path, '{')) {
		r->name = http_decode(name.s, name.len);
		if (!r->name) {
			problem_send(r, 400, "the path is not percent-encoded UTF-8");
			return;
		}
	}
	t->handler(r);
}
