/* A job as the API shows it. Times are RFC 3339 in UTC; columns that hold JSON go out as they are stored. */
#include <stdio.h>
#include <string.h>

#include "engine/clock.h"
#include "server/api.h"

void api_put_time(struct json_writer *w, const char *key, int64_t ms)
{
	char text[CLOCK_TEXT];

	clock_format(ms, text);
	json_put_string(w, key, ms && *text ? text : NULL);
}

void api_put_id(struct json_writer *w, const char *key, int64_t id)
{
	if (id)
		json_put_int(w, key, id);
	else
		json_put_null(w, key);
}

static void put_json(struct json_writer *w, const char *key, const char *text)
{
	if (text)
		json_put_raw(w, key, text);
	else
		json_put_null(w, key);
}

/* Tokens a second: of the units that are stored, else of the first batch by the clock; 0 when unknown. */
static double rate_of(const struct job *j, int64_t done)
{
	double elapsed_s;

	if (j->seconds > 0 && j->done_tokens > 0)
		return (double)j->done_tokens / j->seconds;
	elapsed_s = (double)(clock_unix_ms() - j->started_ms) / 1e3;
	return j->started_ms && elapsed_s >= 1 ? (double)done / elapsed_s : 0;
}

/* The share of the device's peak that the model's arithmetic reaches at this rate; of running jobs, which are few. */
static void put_utilisation(struct json_writer *w, const struct job *j, double rate)
{
	struct json *plan = NULL;
	const struct json *engine;
	double flops, peak;
	struct err ignored;

	if (j->state == JOB_RUNNING && j->plan && json_parse(j->plan, strlen(j->plan), &plan, &ignored))
		plan = NULL;
	engine = json_get(plan, "engine");
	if (rate > 0 && json_get_number(engine, "model_flops_per_token", &flops) &&
	    json_get_number(engine, "peak_flops", &peak))
		json_put_double(w, "mfu", rate * flops / peak);
	else
		json_put_null(w, "mfu");
	json_free(plan);
}

/* In tenths. */
static void put_tenths(struct json_writer *w, const char *key, bool known, double v)
{
	if (known)
		json_put_double(w, key, (double)(int64_t)(v * 10) / 10);
	else
		json_put_null(w, key);
}

static void put_progress(struct json_writer *w, const struct job *j, int64_t live)
{
	int64_t done = j->done_tokens + (live > 0 ? live : 0);
	double rate;
	bool known;

	if (done > j->total_tokens)
		done = j->total_tokens;
	rate = rate_of(j, done);
	known = j->state == JOB_RUNNING && rate > 0;
	json_begin_object(w, "progress");
	json_put_int(w, "done", done);
	json_put_int(w, "total", j->total_tokens);
	json_put_string(w, "unit", "tokens");
	put_tenths(w, "tokens_per_s", known, rate);
	put_tenths(w, "eta_s", known, known ? (double)(j->total_tokens - done) / rate : 0);
	put_utilisation(w, j, rate);
	json_put_int(w, "units_done", j->done_units);
	json_put_int(w, "units_failed", j->failed_units);
	json_put_int(w, "units_total", j->n_units);
	json_end_object(w);
}

/* The plan's warnings stand on the job itself: a client reads them while it runs. Few plans have any, and a list has
 * many plans: an empty array is recognised without parsing. (In a JSON string these quotes would be escaped.) */
static void put_warnings(struct json_writer *w, const char *plan)
{
	struct json *j = NULL;
	struct err ignored;

	if (plan && !strstr(plan, "\"warnings\":[]") && json_parse(plan, strlen(plan), &j, &ignored))
		j = NULL;
	if (json_is_array(json_get(j, "warnings"))) {
		json_put_value(w, "warnings", json_get(j, "warnings"));
	} else {
		json_begin_array(w, "warnings");
		json_end_array(w);
	}
	json_free(j);
}

static void put_link(struct json_writer *w, const char *key, int64_t id, const char *rest)
{
	char path[80];

	snprintf(path, sizeof path, "/api/v1/jobs/%lld%s", (long long)id, rest);
	json_put_string(w, key, path);
}

/* Whether its headline stands at a length: then it has a curve. (In a JSON string these quotes would be escaped.) */
static bool has_lengths(const struct job *j)
{
	return j->headline && strstr(j->headline, "\"length\":");
}

static bool has_map(const struct job *j)
{
	struct err ignored;
	const struct task *t = task_find(j->task, &ignored);

	return t && !strcmp(task_figure(t), "map");
}

static void put_links(struct json_writer *w, const struct job *j)
{
	json_begin_object(w, "links");
	put_link(w, "self", j->id, "");
	if (!job_state_final(j->state))
		put_link(w, "cancel", j->id, "/cancel");
	if (j->state == JOB_SUCCEEDED) {
		put_link(w, "result", j->id, "/result.json");
		if (has_lengths(j))
			put_link(w, "curve", j->id, "/curve.svg");
		if (has_map(j))
			put_link(w, "frequencies", j->id, "/frequencies.svg");
	}
	if (j->done_units)
		put_link(w, "items", j->id, "/items");
	json_end_object(w);
}

void job_write(struct json_writer *w, const char *key, const struct job *j, int64_t live_tokens, bool full)
{
	json_begin_object(w, key);
	json_put_int(w, "id", j->id);
	json_put_string(w, "name", j->name);
	json_put_string(w, "state", job_state_name(j->state));
	json_put_string(w, "model", j->model);
	json_put_string(w, "task", j->task);
	json_put_string(w, "dataset", j->dataset);
	put_json(w, "params", j->params);
	put_json(w, "engine", j->engine);
	put_json(w, "tags", j->tags);
	json_put_bool(w, "cache", j->cache);
	api_put_id(w, "cached_from", j->cached_from);
	json_put_int(w, "priority", j->priority);
	put_progress(w, j, live_tokens);
	api_put_time(w, "created_at", j->created_ms);
	api_put_time(w, "started_at", j->started_ms);
	api_put_time(w, "finished_at", j->finished_ms);
	json_put_string(w, "waiting", j->waiting);
	put_json(w, "error", j->error);
	put_warnings(w, j->plan);
	put_json(w, "plan", j->plan);
	put_json(w, "headline", j->headline);
	if (full && j->state == JOB_SUCCEEDED)
		put_json(w, "result", j->result);
	else if (full && j->result)
		put_json(w, "partial", j->result);
	put_links(w, j);
	json_end_object(w);
}
