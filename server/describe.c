/* Descriptions of models: by short-lived workers without a device, at most DESCRIBE_MAX at a time, kept in the
 * store until a file of the model changes. Requests for a model that is being described wait for the same
 * answer. */
#include "server/core_private.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/log.h"
#include "engine/path.h"

#define DESCRIBE_MS 60000

struct describe {
	char *model, *path, *stat_key; /* owned */
	struct request *requests;      /* linked by next; not owned */
	struct link *link;             /* owned; NULL: not started */
	int64_t deadline_ms;
	bool done; /* answered: to be freed */
	struct describe *next;
};

/* -- what the description depends on ----------------------------------------------------------- */

static bool is_model_file(const char *name)
{
	static const char *const ends[] = {".json", ".safetensors", ".gguf", ".model"};

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (name[0] != '.' && path_has_suffix(name, ends[i]))
			return true;
	return false;
}

static void put_stat(struct buf *out, const char *path, const char *name)
{
	struct stat st;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return;
	buf_printf(out, "\n%s %lld %lld.%09ld %lld.%09ld", name, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
	           st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

/* Program version, then a line for each file of the model: name, size, mtime, ctime. */
static char *make_stat_key(const char *path, struct err *e)
{
	struct buf key = BUF_INIT(4 << 20), file = BUF_INIT(8192);
	struct dirent **names = NULL;
	int n = scandir(path, &names, NULL, alphasort);
	err_code rc;

	buf_printf(&key, "fathom %s", FATHOM_VERSION);
	if (n < 0)
		put_stat(&key, path, "");
	for (int i = 0; i < n; i++) {
		if (is_model_file(names[i]->d_name)) {
			buf_clear(&file);
			buf_printf(&file, "%s/%s", path, names[i]->d_name);
			put_stat(&key, buf_str(&file), names[i]->d_name);
		}
		free(names[i]);
	}
	free(names);
	buf_release(&file);
	rc = buf_check(&key, "the list of a model's files", e);
	if (rc) {
		buf_release(&key);
		return NULL;
	}
	return buf_steal(&key);
}

/* -- answers ----------------------------------------------------------------------------------- */

static void answer(struct request *r, const char *text, const struct err *why)
{
	if (text) {
		r->text = strdup(text);
		if (!r->text)
			err_set(&r->err, ERR_MEMORY, "out of memory");
	} else {
		r->err = *why;
	}
	r->done(r);
}

/* Either a text or why not. */
static void answer_all(struct describe *d, const char *text, const struct err *why)
{
	struct request *r = d->requests, *next;

	d->requests = NULL;
	d->done = true;
	for (; r; r = next) {
		next = r->next;
		answer(r, text, why);
	}
}

static void describe_free(struct describe *d)
{
	link_close(d->link);
	free(d->model);
	free(d->path);
	free(d->stat_key);
	free(d);
}

static struct describe *find(struct core *c, const char *path, const char *stat_key)
{
	struct describe *d = c->describes;

	while (d && (d->done || strcmp(d->path, path) != 0 || strcmp(d->stat_key, stat_key) != 0))
		d = d->next;
	return d;
}

static err_code queue(struct core *c, struct request *r, char *path, char *stat_key, struct err *e)
{
	struct describe *d = mem_zalloc(1, sizeof *d, e), **at = &c->describes;

	if (d)
		d->model = mem_strdup(r->model, e);
	if (!d || !d->model) {
		free(d);
		free(path);
		free(stat_key);
		return ERR_MEMORY;
	}
	d->path = path;
	d->stat_key = stat_key;
	d->requests = r;
	r->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = d;
	return ERR_OK;
}

void describe_request(struct core *c, struct request *r)
{
	char *path = NULL, *stat_key = NULL, *text = NULL;
	struct describe *d;
	struct err e;

	if (!registry_model(&c->o.registry, r->model, &path, &e))
		stat_key = make_stat_key(path, &e);
	if (!stat_key || store_model_get(c->store, path, stat_key, &text, &e) || text) {
		answer(r, text, &e);
		goto out;
	}
	d = find(c, path, stat_key);
	if (d) {
		r->next = d->requests;
		d->requests = r;
		goto out;
	}
	if (queue(c, r, path, stat_key, &e))
		answer(r, NULL, &e);
	return;
out:
	free(path);
	free(stat_key);
	free(text);
}

/* -- workers ----------------------------------------------------------------------------------- */

static err_code begin(struct core *c, struct describe *d, int64_t now_ms, struct err *e)
{
	struct buf line = BUF_INIT(1 << 16);
	struct json_writer w = JSON_WRITER(&line);
	struct launch launch;
	err_code rc = launch_make("none", c->o.self, &c->o.registry, &launch, e);

	if (rc)
		return rc;
	rc = link_open(&launch, "describe", &d->link, e);
	launch_release(&launch);
	json_begin_object(&w, NULL);
	json_put_string(&w, "cmd", "describe");
	json_put_string(&w, "model", d->model);
	json_end_object(&w);
	if (!rc)
		rc = buf_check(&line, "a command", e);
	if (!rc)
		rc = link_send(d->link, line.data, line.len, e);
	buf_release(&line);
	d->deadline_ms = now_ms + DESCRIBE_MS;
	return rc;
}

static void keep(struct core *c, const struct describe *d, const char *text)
{
	struct err e;
	err_code rc = store_begin(c->store, &e);

	if (!rc)
		rc = store_model_put(c->store, d->path, d->stat_key, text, &e);
	if (core_store_end(c, rc, &e))
		log_warn("the description of model '%s' is not kept: %s", d->model, e.msg);
}

static void handle_line(struct core *c, struct describe *d, const char *line, size_t len)
{
	struct json *json = NULL;
	struct buf text = BUF_INIT((size_t)16 << 20);
	struct json_writer w = JSON_WRITER(&text);
	const char *event;
	struct err why;

	if (json_parse(line, len, &json, &why)) {
		answer_all(d, NULL, &why);
		return;
	}
	event = json_get_string(json, "event");
	if (event && !strcmp(event, "described") && json_is_object(json_get(json, "description"))) {
		json_put_value(&w, NULL, json_get(json, "description"));
		if (buf_check(&text, "a description", &why)) {
			answer_all(d, NULL, &why);
		} else {
			keep(c, d, buf_str(&text));
			answer_all(d, buf_str(&text), NULL);
		}
	} else if (event && !strcmp(event, "failed")) {
		event_failure(json, &why);
		answer_all(d, NULL, &why);
	}
	buf_release(&text);
	json_free(json);
}

static void watch(struct core *c, struct describe *d, int64_t now_ms)
{
	const char *line;
	size_t len;
	struct err why;

	while (!d->done && !link_ended(d->link) && (line = link_line(d->link, &len)) != NULL) {
		handle_line(c, d, line, len);
		link_take(d->link);
	}
	if (!d->done && link_ended(d->link)) {
		err_set(&why, ERR_IO, "model '%s': the worker that describes it died: %s", d->model,
		        link_obituary(d->link));
		answer_all(d, NULL, &why);
	} else if (!d->done && now_ms >= d->deadline_ms) {
		err_set(&why, ERR_IO, "model '%s': it was not described within %d s", d->model, DESCRIBE_MS / 1000);
		answer_all(d, NULL, &why);
	}
}

void describe_step(struct core *c, int64_t now_ms)
{
	struct describe **at = &c->describes, *d;
	unsigned n = 0;
	struct err e;

	while ((d = *at) != NULL) {
		if (!d->link && n < DESCRIBE_MAX && begin(c, d, now_ms, &e))
			answer_all(d, NULL, &e);
		if (d->link && !d->done)
			watch(c, d, now_ms);
		n += d->link && !d->done;
		if (d->done) {
			*at = d->next;
			describe_free(d);
		} else {
			at = &d->next;
		}
	}
}

void describe_cancel_all(struct core *c)
{
	struct err e;

	err_set(&e, ERR_CANCELLED, "the server is stopping");
	while (c->describes) {
		struct describe *d = c->describes;

		c->describes = d->next;
		answer_all(d, NULL, &e);
		describe_free(d);
	}
}

size_t describe_poll(const struct core *c, struct pollfd *fds)
{
	size_t n = 0;

	for (const struct describe *d = c->describes; d; d = d->next) {
		if (!d->link)
			continue;
		link_poll(d->link, false, fds + n);
		n += LINK_FDS;
	}
	return n;
}

void describe_handle(struct core *c, const struct pollfd *fds)
{
	for (struct describe *d = c->describes; d; d = d->next) {
		if (!d->link)
			continue;
		link_handle(d->link, fds);
		fds += LINK_FDS;
	}
}

int64_t describe_deadline(const struct core *c)
{
	int64_t first = INT64_MAX;

	for (const struct describe *d = c->describes; d; d = d->next)
		if (d->link && d->deadline_ms < first)
			first = d->deadline_ms;
	return first;
}
