/* What gate commands share: see gate_client.h. */
#include "server/gate_client.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/clock.h"
#include "engine/sha256.h"
#include "server/evidence_file.h"

#define DEFAULT_URL "http://127.0.0.1:8080"
#define SAME_HEX    12 /* digits of a file's hash in the name of its baseline */
#define MAX_TRIES   5  /* when others change a baseline at the same time */
#define PATIENCE_S  30 /* for a worker to come up */
#define ABANDON_S   5  /* for a server that is told to cancel; who interrupts may soon kill */

/* -- the server -------------------------------------------------------------------------------- */

static bool is_folder(const char *path)
{
	struct stat st;

	return path && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static err_code open_local(const struct options *o, const char *model, struct gate_client *g, struct err *e)
{
	struct local_options local = {.model = model, .store = options_get(o, "--store")};

	g->keeps = local.store;
	local.datasets = options_all(o, "--datasets", &local.n_datasets);
	local.workers = options_all(o, "--workers", &local.n_workers);
	if (local_start(&local, &g->local, e))
		return e->code;
	g->model = local_model(g->local);
	return client_open(local_url(g->local), &g->client, e);
}

bool gate_client_is_local(const struct options *o, const char *model)
{
	const char *server = options_get(o, "--server");

	return server ? !strcmp(server, "local") : is_folder(model) || options_get(o, "--store");
}

err_code gate_client_open(const struct options *o, const char *model, struct gate_client *g, struct err *e)
{
	static const char *const local_only[] = {"--store", "--datasets", "--workers"};
	const char *server = options_get(o, "--server");

	*g = (struct gate_client){.model = model, .keeps = true};
	if (gate_client_is_local(o, model))
		return open_local(o, model, g, e);
	for (size_t i = 0; i < sizeof local_only / sizeof *local_only; i++)
		if (options_count(o, local_only[i]))
			return err_set(e, ERR_INPUT, "%s is of a local server, and the server is %s", local_only[i],
			               server ? server : DEFAULT_URL);
	return client_open(server ? server : DEFAULT_URL, &g->client, e);
}

void gate_client_release(struct gate_client *g)
{
	client_close(g->client);
	local_stop(g->local);
	*g = (struct gate_client){0};
}

err_code gate_client_send(struct gate_client *g, const char *method, const char *path, const char *body,
                          const char *if_match, struct json **answer, struct err *e)
{
	struct client_request q = {
	    .method = method, .path = path, .body = body, .if_match = if_match, .timeout_s = 600};
	struct client_reply r;
	err_code rc = client_call(g->client, &q, &r, e);

	if (!rc && r.body.len && json_parse(buf_str(&r.body), r.body.len, answer, e))
		rc = err_wrap(e, "%s%s", client_url(g->client), path);
	client_reply_release(&r);
	return rc;
}

/* -- baselines --------------------------------------------------------------------------------- */

/* The ETag of the current version; "" when there is none of that name. */
static err_code current_etag(struct gate_client *g, const char *name, char etag[100], struct err *e)
{
	struct buf path = BUF_INIT((size_t)1 << 12);
	struct client_request q = {.method = "GET"};
	struct client_reply r;
	err_code rc;

	buf_puts(&path, "/api/v1/baselines/");
	client_escape(&path, name);
	q.path = buf_str(&path);
	rc = client_call(g->client, &q, &r, e);
	snprintf(etag, 100, "%s", rc ? "" : r.etag);
	if (rc == ERR_NOT_FOUND && r.status == 404)
		rc = ERR_OK;
	client_reply_release(&r);
	buf_release(&path);
	return rc;
}

err_code gate_client_set_baseline(struct gate_client *g, const char *name, const char *members, struct json **answer,
                                  struct err *e)
{
	struct buf body = BUF_INIT(EVIDENCE_FILE_MAX);
	struct json_writer w = JSON_WRITER(&body);
	char etag[100];
	err_code rc;

	json_begin_object(&w, NULL);
	json_put_string(&w, "name", name);
	buf_putc(&body, ',');
	buf_puts(&body, members);
	json_end_object(&w);
	rc = buf_check(&body, "the baseline", e);
	for (int i = 0; !rc && i < MAX_TRIES; i++) {
		rc = current_etag(g, name, etag, e);
		if (!rc)
			rc = gate_client_send(g, "POST", "/api/v1/baselines", buf_str(&body), *etag ? etag : NULL,
			                      answer, e);
		if (rc != ERR_CONFLICT)
			break;
		rc = i + 1 < MAX_TRIES ? ERR_OK : rc;
	}
	buf_release(&body);
	return rc ? err_wrap(e, "baseline '%.100s'", name) : ERR_OK;
}

err_code gate_client_set_jobs(struct gate_client *g, const char *name, const int64_t *jobs, size_t n,
                              struct json **answer, struct err *e)
{
	struct buf members = BUF_INIT((size_t)1 << 20);
	err_code rc;

	for (size_t i = 0; i < n; i++)
		buf_printf(&members, "%s%lld", i ? "," : "\"jobs\":[", (long long)jobs[i]);
	buf_putc(&members, ']');
	rc = buf_check(&members, "the baseline", e);
	if (!rc)
		rc = gate_client_set_baseline(g, name, buf_str(&members), answer, e);
	buf_release(&members);
	return rc;
}

/* "ci/main.json.gz" and its text: "main-0123456789ab". */
static err_code name_of_file(const char *path, const struct buf *text, char **name, struct err *e)
{
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	char hex[SHA256_HEX];

	sha256_hex(buf_str(text), text->len, hex);
	if (asprintf(name, "%.*s-%.*s", (int)strcspn(base, "."), base, SAME_HEX, hex) < 0)
		return err_set(e, ERR_MEMORY, "out of memory");
	for (char *s = *name; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("-_", *s))
			*s = '_';
	return ERR_OK;
}

err_code gate_client_import_file(struct gate_client *g, const char *path, char **name, struct err *e)
{
	struct buf text = BUF_INIT(EVIDENCE_FILE_MAX), members = BUF_INIT(EVIDENCE_FILE_MAX);
	struct json *answer = NULL;
	char etag[100];
	err_code rc = evidence_file_read(path, &text, e);

	if (!rc)
		rc = name_of_file(path, &text, name, e);
	if (!rc)
		rc = current_etag(g, *name, etag, e);
	if (!rc && !*etag) {
		buf_append(&members, buf_str(&text) + 1, text.len - 2); /* the object without its braces */
		rc = buf_check(&members, path, e);
		if (!rc)
			rc = gate_client_set_baseline(g, *name, buf_str(&members), &answer, e);
		if (rc)
			err_wrap(e, "'%.300s'", path);
	}
	json_free(answer);
	buf_release(&members);
	buf_release(&text);
	return rc;
}

void gate_client_abandon(struct gate_client *g, const char *path, const char *what, struct err *e)
{
	struct client_request q = {.method = "POST", .path = path, .timeout_s = ABANDON_S};
	struct client_reply r;
	struct err why, told = *e;

	if (!g->keeps)
		return;
	if (!client_call(g->client, &q, &r, &why))
		err_set(e, told.code, "%s; %s is cancelled", told.msg, what);
	else if (why.code != ERR_CONFLICT) /* it is over already */
		err_set(e, told.code, "%s; %s was not cancelled: %s", told.msg, what, why.msg);
	client_reply_release(&r);
}

/* -- jobs -------------------------------------------------------------------------------------- */

err_code gate_client_job_ids(const struct json *array, int64_t **jobs, size_t *n, struct err *e)
{
	size_t count = json_count(array);

	*n = 0;
	*jobs = mem_alloc(count, sizeof **jobs, e);
	if (!*jobs)
		return e->code;
	for (const struct json *j = json_first(array); j; j = json_next(j))
		if (!json_get_integer(j, "id", &(*jobs)[(*n)++]))
			return err_set(e, ERR_IO, "the server's list of jobs is without their ids");
	return ERR_OK;
}

static err_code put_job(struct gate_client *g, int64_t job, struct json_writer *w, struct err *e)
{
	char path[80];
	struct client_request items = {.method = "GET", .path = path, .timeout_s = 600};
	struct client_reply r = {.body = BUF_INIT(0)};
	struct json *result = NULL;
	err_code rc;

	snprintf(path, sizeof path, "/api/v1/jobs/%lld/result", (long long)job);
	rc = client_get(g->client, path, &result, e);
	if (!rc) {
		snprintf(path, sizeof path, "/api/v1/jobs/%lld/items", (long long)job);
		rc = client_call(g->client, &items, &r, e);
	}
	if (!rc)
		rc = evidence_file_put(w, NULL, result, buf_str(&r.body), r.body.len, e);
	client_reply_release(&r);
	json_free(result);
	return rc ? err_wrap(e, "job %lld", (long long)job) : ERR_OK;
}

err_code gate_client_export_jobs(struct gate_client *g, const int64_t *jobs, size_t n, struct output *o, struct err *e)
{
	struct buf text = BUF_INIT(EVIDENCE_FILE_MAX);
	struct json_writer w = JSON_WRITER(&text);
	err_code rc = ERR_OK;

	json_begin_object(&w, NULL);
	json_begin_array(&w, "results");
	for (size_t i = 0; !rc && i < n; i++)
		rc = put_job(g, jobs[i], &w, e);
	json_end_array(&w);
	json_end_object(&w);
	if (!rc)
		rc = buf_check(&text, "the evidence", e);
	if (!rc)
		rc = evidence_file_commit(o, &text, e);
	buf_release(&text);
	return rc;
}

static err_code check_stuck(struct gate_client *g, const struct json *job, struct err *e)
{
	const char *waiting = json_get_string(job, "waiting");
	double now_s = clock_mono_s();

	if (!g->local || !waiting) {
		g->stuck_s = 0;
		return ERR_OK;
	}
	if (g->stuck_s <= 0)
		g->stuck_s = now_s;
	if (now_s - g->stuck_s < PATIENCE_S)
		return ERR_OK;
	return err_set(e, ERR_DEVICE, "nothing can measure this: %s", waiting);
}

err_code gate_client_watch_job(struct gate_client *g, int64_t id, const char *what, bool *final, struct json **job,
                               struct err *e)
{
	char path[80];

	snprintf(path, sizeof path, "/api/v1/jobs/%lld", (long long)id);
	if (client_get(g->client, path, job, e))
		return e->code;
	*final = client_job_is_final(*job);
	client_show_job(what, *job, *final, &g->said);
	return check_stuck(g, *job, e);
}
