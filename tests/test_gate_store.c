/* What the store keeps of gates: versions of baselines and gates, the states of runs, what holds a job, which jobs are
 * the same to the cache, which runs are a run's history; and the signature of a webhook's message. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sha256.h"
#include "server/embedded.h"
#include "server/store_gate.h"
#include "server/store_private.h"
#include "tests/fixture.h"
#include "tests/fixture_store.h"

static struct err e;

static struct store *open_store(void)
{
	struct store *s = NULL;

	ck_ok(store_open(fixture_tmpdir(), false, &s, &e), &e);
	return s;
}

static void begin(struct store *s)
{
	ck_ok(store_begin(s, &e), &e);
}

static void commit(struct store *s)
{
	ck_ok(store_end(s, ERR_OK, &e), &e);
}

static void run_sql(struct store *s, const char *sql)
{
	ck_assert_msg(sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(s->db));
}

/* What a job's identity to the cache is made of. */
struct identity {
	const char *model, *tokenizer, *dataset, *signature, *params, *engine, *task, *plan;
};
static const struct identity IDENTITY = {"sha256:m",
                                         "sha256:t",
                                         "sha256:d",
                                         "sig",
                                         "{\"lengths\":[64]}",
                                         "{\"device\":\"auto\",\"dtype\":\"auto\",\"position\":null}",
                                         "pg19",
                                         "{\"model\":{\"position\":{\"type\":\"rope\"}}}"};

/* A running job with a plan, of 3 units. Inside a transaction. */
static int64_t planned(struct store *s, const struct identity *i, bool cache)
{
	struct job_new n = {.model = "any",
	                    .task = i->task,
	                    .dataset = "books",
	                    .params = i->params,
	                    .engine = i->engine,
	                    .cache = cache};
	struct job_pins pins = {(char *)i->model, (char *)i->tokenizer, (char *)i->dataset, (char *)i->signature};
	int64_t id = 0;
	bool existed;

	ck_ok(store_job_insert(s, &n, &id, &existed, &e), &e);
	ck_ok(store_job_start(s, id, &e), &e);
	ck_ok(store_job_plan(s, id, i->plan, &pins, 3, 30, &e), &e);
	return id;
}

static void put_units(struct store *s, int64_t id)
{
	for (uint32_t u = 0; u < 3; u++) {
		char text[64];
		struct unit_result r = {u, text, 10};

		snprintf(text, sizeof text, "{\"nll\":%u.25}", u);
		ck_ok(store_unit_put(s, id, &r, 1, 0.5, NULL, &e), &e);
	}
}

static int64_t succeeded(struct store *s, const struct identity *i)
{
	int64_t id = planned(s, i, false);

	put_units(s, id);
	ck_ok(store_job_succeed(s, id, "{\"task\":{\"version\":1},\"metrics\":[]}", "{\"value\":1}", &e), &e);
	return id;
}

/* -- signatures -------------------------------------------------------------------------------- */

START_TEST(hmac_gives_the_vectors_of_rfc_4231)
{
	unsigned char key[131], data[152];
	char hex[SHA256_HEX];

	memset(key, 0x0b, 20); /* test case 1 */
	hmac_sha256_hex(key, 20, "Hi There", 8, hex);
	ck_assert_str_eq(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	hmac_sha256_hex("Jefe", 4, "what do ya want for nothing?", 28, hex); /* 2 */
	ck_assert_str_eq(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	memset(key, 0xaa, 20); /* 3 */
	memset(data, 0xdd, 50);
	hmac_sha256_hex(key, 20, data, 50, hex);
	ck_assert_str_eq(hex, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
	memset(key, 0xaa, 131); /* 6: a key longer than a block */
	hmac_sha256_hex(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, hex);
	ck_assert_str_eq(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
	hmac_sha256_hex(key, 131,
	                "This is a test using a larger than block-size key and a larger than block-size data. The key "
	                "needs to be hashed before being used by the HMAC algorithm.",
	                152, hex); /* 7 */
	ck_assert_str_eq(hex, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}
END_TEST

/* -- the cache --------------------------------------------------------------------------------- */

START_TEST(a_job_takes_the_units_of_one_that_computed_the_same)
{
	struct store *s = open_store();
	int64_t old, new, from = 0;
	struct job j;

	begin(s);
	old = succeeded(s, &IDENTITY);
	new = planned(s, &IDENTITY, true);
	ck_ok(store_job_take_cached(s, new, 1, &from, &e), &e);
	ck_assert_int_eq(from, old);
	commit(s);
	ck_ok(store_job_get(s, new, &j, &e), &e);
	ck_assert_int_eq(j.cached_from, old);
	ck_assert(j.cache);
	ck_assert_int_eq(j.done_units, 3);
	ck_assert_int_eq(j.done_tokens, 30);
	ck_assert_double_eq(j.seconds, 1.5);
	job_release(&j);
	ck_assert_int_eq(
	    query_int(s, "SELECT count(*) FROM unit AS a JOIN unit AS b ON a.unit = b.unit AND a.result = b.result"
	                 " WHERE a.job_id = 1 AND b.job_id = 2"),
	    3);
	begin(s);
	ck_ok(store_job_succeed(s, new, "{\"task\":{\"version\":1}}", NULL, &e), &e);
	/* the copy is a source only where the original is gone */
	new = planned(s, &IDENTITY, true);
	ck_ok(store_job_take_cached(s, new, 1, &from, &e), &e);
	ck_assert_int_eq(from, old);
	ck_ok(store_job_delete(s, old, &e), &e);
	new = planned(s, &IDENTITY, true);
	ck_ok(store_job_take_cached(s, new, 1, &from, &e), &e);
	ck_assert_int_eq(from, 2);
	commit(s);
	store_close(s);
}
END_TEST

START_TEST(what_is_not_the_same_in_all_is_computed)
{
	struct store *s = open_store();
	struct identity other[8];
	int64_t id, from = 7;

	for (size_t i = 0; i < 8; i++)
		other[i] = IDENTITY;
	other[0].model = "sha256:m2";
	other[1].tokenizer = "sha256:t2";
	other[2].dataset = "sha256:d2";
	other[3].signature = "sig2";
	other[4].params = "{\"lengths\":[65]}";
	other[5].engine = "{\"device\":\"auto\",\"dtype\":\"auto\",\"position\":{\"type\":\"linear\",\"factor\":2}}";
	other[6].task = "text";
	other[7].plan = "{\"model\":{\"position\":{\"type\":\"yarn\"}}}";
	begin(s);
	id = planned(s, &IDENTITY, true); /* it is its own only twin, and not done */
	ck_ok(store_job_take_cached(s, id, 1, &from, &e), &e);
	ck_assert_int_eq(from, 0);
	succeeded(s, &IDENTITY);
	for (size_t i = 0; i < 8; i++) {
		id = planned(s, &other[i], true);
		ck_ok(store_job_take_cached(s, id, 1, &from, &e), &e);
		ck_assert_msg(from == 0, "case %zu took the units of job %lld", i, (long long)from);
	}
	id = planned(s, &IDENTITY, true); /* another version of the task */
	ck_ok(store_job_take_cached(s, id, 2, &from, &e), &e);
	ck_assert_int_eq(from, 0);
	id = planned(s, &IDENTITY, false); /* it may not */
	ck_ok(store_job_take_cached(s, id, 1, &from, &e), &e);
	ck_assert_int_eq(from, 0);
	commit(s);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM job WHERE cached_from IS NOT NULL"), 0);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM unit"), 3);
	store_close(s);
}
END_TEST

START_TEST(a_restarted_job_forgets_the_cache)
{
	struct store *s = open_store();
	int64_t id, from;
	struct job j;

	begin(s);
	succeeded(s, &IDENTITY);
	id = planned(s, &IDENTITY, true);
	ck_ok(store_job_take_cached(s, id, 1, &from, &e), &e);
	ck_ok(store_job_succeed(s, id, "{\"task\":{\"version\":1}}", NULL, &e), &e);
	ck_ok(store_job_restart(s, id, &e), &e);
	commit(s);
	ck_ok(store_job_get(s, id, &j, &e), &e);
	ck_assert(!j.cache && !j.cached_from && !j.done_units);
	job_release(&j);
	store_close(s);
}
END_TEST

/* -- baselines --------------------------------------------------------------------------------- */

static err_code put_baseline(struct store *s, const char *name, int64_t job, const char *if_match,
                             char etag[BASELINE_ETAG])
{
	struct baseline_result_new r = {.job = job};
	struct baseline_new n = {.name = name, .results = &r, .n_results = 1, .if_match = if_match};
	err_code rc = store_baseline_put(s, &n, &e);

	if (!rc && etag) {
		char plain[BASELINE_ETAG];

		baseline_etag(n.version, n.created_ms, plain);
		snprintf(etag, BASELINE_ETAG, "\"%.40s\"", plain);
	}
	return rc;
}

START_TEST(a_baseline_changes_only_for_who_names_its_version)
{
	struct store *s = open_store();
	char first[BASELINE_ETAG], second[BASELINE_ETAG], weak[BASELINE_ETAG + 8], list[2 * BASELINE_ETAG + 8];
	int64_t job;

	begin(s);
	job = succeeded(s, &IDENTITY);
	ck_err(put_baseline(s, "main", job, "*", NULL), ERR_CHANGED, "no baseline 'main'", &e);
	ck_ok(put_baseline(s, "main", job, NULL, first), &e);
	ck_err(put_baseline(s, "main", job, NULL, NULL), ERR_CONFLICT, first, &e);
	ck_err(put_baseline(s, "main", job, "\"1-0\"", NULL), ERR_CHANGED, "\"1-0\"", &e);
	ck_err(put_baseline(s, "main", job, "", NULL), ERR_CHANGED, "main", &e);
	snprintf(weak, sizeof weak, "W/%s", first);
	ck_err(put_baseline(s, "main", job, weak, NULL), ERR_CHANGED, "main", &e);
	snprintf(list, sizeof list, " \"x\" ,%s ", first);
	ck_ok(put_baseline(s, "main", job, list, second), &e);
	ck_assert_str_ne(first, second);
	ck_err(put_baseline(s, "main", job, first, NULL), ERR_CHANGED, second, &e);
	ck_ok(put_baseline(s, "main", job, "*", NULL), &e);
	ck_err(put_baseline(s, "new", job + 1, NULL, NULL), ERR_INPUT, "no job", &e);
	ck_assert_str_eq(e.pointer, "/jobs/0");
	commit(s);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM baseline WHERE name = 'main'"), 3);
	store_close(s);
}
END_TEST

static err_code count_evidence(void *arg, int64_t job, const char *result, const char *items, struct err *err)
{
	int *n = arg;

	(void)err;
	ck_assert(!job && !strcmp(result, "{\"model\":{\"name\":\"m\"},\"task\":{\"name\":\"pg19\"},\"dataset\":{}}"));
	ck_assert_str_eq(items, "[{}]");
	++*n;
	return *n == 2 ? err_set(err, ERR_INPUT, "enough") : ERR_OK;
}

START_TEST(an_imported_result_comes_back_to_the_byte)
{
	struct store *s = open_store();
	struct baseline_result_new r = {
	    .result = "{\"model\":{\"name\":\"m\"},\"task\":{\"name\":\"pg19\"},\"dataset\":{}}", .items = "[{}]"};
	struct baseline_result_new both[] = {r, r};
	struct baseline_new n = {.name = "file", .results = both, .n_results = 2};
	struct baseline b;
	int count = 0;

	begin(s);
	ck_ok(store_baseline_put(s, &n, &e), &e);
	commit(s);
	ck_ok(store_baseline_get(s, "file", 0, &b, &e), &e);
	ck_assert_uint_eq(b.n_results, 2);
	ck_assert_str_eq(b.results[1].model, "m");
	ck_assert_str_eq(b.results[1].task, "pg19");
	ck_assert_ptr_null(b.results[1].dataset);
	baseline_release(&b);
	ck_err(store_baseline_evidence(s, "file", 1, count_evidence, &count, &e), ERR_INPUT, "enough", &e);
	ck_err(store_baseline_evidence(s, "file", 2, count_evidence, &count, &e), ERR_NOT_FOUND, "version 2", &e);
	store_close(s);
}
END_TEST

/* -- gates and runs ---------------------------------------------------------------------------- */

static int64_t put_gate(struct store *s, const char *definition, bool existed)
{
	int64_t version = 0;
	bool was;

	ck_ok(store_gate_put(s, "g", definition, &version, &was, &e), &e);
	ck_assert_int_eq(was, existed);
	return version;
}

static int64_t current_gate(struct store *s)
{
	struct gate_row g;
	int64_t version;

	ck_ok(store_gate_get(s, "g", 0, &g, &e), &e);
	version = g.version;
	gate_row_release(&g);
	return version;
}

START_TEST(a_gate_posted_again_is_the_version_that_it_was_and_current)
{
	struct store *s = open_store();

	begin(s);
	ck_assert_int_eq(put_gate(s, "{\"a\":1}", false), 1);
	ck_assert_int_eq(put_gate(s, "{\"a\":1}", true), 1);
	ck_assert_int_eq(put_gate(s, "{\"a\":2}", false), 2);
	ck_assert_int_eq(current_gate(s), 2);
	ck_assert_int_eq(put_gate(s, "{\"a\":1}", true), 1); /* within the same millisecond */
	ck_assert_int_eq(current_gate(s), 1);
	ck_assert_int_eq(put_gate(s, "{\"a\":2}", true), 2);
	ck_assert_int_eq(current_gate(s), 2);
	ck_assert_int_eq(put_gate(s, "{\"a\":3}", false), 3);
	ck_assert_int_eq(current_gate(s), 3);
	commit(s);
	store_close(s);
}
END_TEST

/* A run of gate g with one measurement. */
static int64_t insert_run(struct store *s, const char *tags, const char *baseline)
{
	static const char *const measures[] = {"books"};
	struct job_new job = {.model = "m", .task = "pg19", .dataset = "books", .params = "{}", .cache = true};
	struct run_new n = {.gate = "g",
	                    .gate_version = 1,
	                    .model = "m",
	                    .baseline = baseline,
	                    .tags = tags,
	                    .measures = measures,
	                    .jobs = &job,
	                    .n_measures = 1};
	int64_t id = 0;
	bool existed;

	ck_ok(store_run_insert(s, &n, &id, &existed, &e), &e);
	ck_assert(!existed);
	return id;
}

START_TEST(a_run_moves_only_along_its_states)
{
	struct store *s = open_store();
	struct gate_run r;
	int64_t id, *ids = NULL;
	size_t n = 0;

	begin(s);
	put_gate(s, "{}", false);
	id = insert_run(s, "{}", NULL);
	ck_err(store_run_done(s, id, "{}", "pass", "f", true, &e), ERR_CONFLICT, "is measuring", &e);
	ck_err(store_run_hook(s, id, NULL, 0, &e), ERR_CONFLICT, "is measuring", &e);
	ck_ok(store_run_judge(s, id, &e), &e);
	ck_err(store_run_judge(s, id, &e), ERR_CONFLICT, "is judging", &e);
	ck_ok(store_run_done(s, id, "{\"v\":1}", "pass", "f", true, &e), &e);
	ck_err(store_run_done(s, id, "{}", "fail", "f", true, &e), ERR_CONFLICT, "is done", &e);
	ck_err(store_run_fail(s, id, "x", &e), ERR_CONFLICT, "is done", &e);
	ck_err(store_run_judge(s, id + 1, &e), ERR_NOT_FOUND, "no run 2", &e);
	commit(s);
	ck_ok(store_run_get(s, id, &r, &e), &e);
	ck_assert_str_eq(r.verdict, "{\"v\":1}");
	ck_assert_str_eq(r.hook, "waiting");
	ck_assert_uint_eq(r.n_measures, 1);
	ck_assert_str_eq(r.measures[0].measure, "books");
	ck_assert_str_eq(r.measures[0].state, "queued");
	gate_run_release(&r);
	ck_ok(store_run_open(s, &ids, &n, &e), &e); /* done, but its webhook waits */
	ck_assert_uint_eq(n, 1);
	free(ids);
	begin(s);
	ck_ok(store_run_hook(s, id, "answered 500", 1234, &e), &e);
	ck_ok(store_run_hook(s, id, NULL, 0, &e), &e);
	ck_err(store_run_hook(s, id, NULL, 0, &e), ERR_CONFLICT, "is done", &e);
	commit(s);
	ck_ok(store_run_get(s, id, &r, &e), &e);
	ck_assert_str_eq(r.hook, "delivered");
	ck_assert_int_eq(r.hook_tries, 2);
	ck_assert_ptr_null(r.hook_error);
	gate_run_release(&r);
	ck_ok(store_run_open(s, &ids, &n, &e), &e);
	ck_assert_uint_eq(n, 0);
	free(ids);
	store_close(s);
}
END_TEST

START_TEST(a_run_is_cancelled_with_its_jobs_as_long_as_it_is_not_over)
{
	struct store *s = open_store();
	struct gate_run r;
	int64_t id, judged, done, other, *ids = NULL;
	size_t n = 0;

	begin(s);
	put_gate(s, "{}", false);
	id = insert_run(s, "{}", NULL);
	judged = insert_run(s, "{}", NULL);
	done = insert_run(s, "{}", NULL);
	other = insert_run(s, "{}", NULL);
	run_sql(s, "UPDATE job SET state = 'running', started_ms = 1 WHERE id = 1");
	run_sql(s, "UPDATE job SET state = 'cancelled', finished_ms = 1 WHERE id = 2"); /* by somebody */
	ck_ok(store_run_judge(s, judged, &e), &e);
	ck_ok(store_run_judge(s, done, &e), &e);
	ck_ok(store_run_done(s, done, "{}", "pass", "f", false, &e), &e);
	ck_ok(store_run_cancel(s, id, &e), &e);
	ck_ok(store_run_cancel(s, judged, &e), &e);
	ck_err(store_run_cancel(s, id, &e), ERR_CONFLICT, "is cancelled", &e);
	ck_err(store_run_cancel(s, done, &e), ERR_CONFLICT, "is done", &e);
	ck_err(store_run_judge(s, id, &e), ERR_CONFLICT, "is cancelled", &e);
	ck_err(store_run_done(s, judged, "{}", "pass", "f", true, &e), ERR_CONFLICT, "is cancelled", &e);
	commit(s);
	ck_ok(store_run_get(s, id, &r, &e), &e);
	ck_assert_int_eq(r.state, RUN_CANCELLED);
	ck_assert_int_gt(r.finished_ms, 0);
	ck_assert_str_eq(r.measures[0].state, "cancelling");
	gate_run_release(&r);
	ck_ok(store_run_get(s, other, &r, &e), &e);
	ck_assert_str_eq(r.measures[0].state, "queued");
	gate_run_release(&r);
	ck_ok(store_run_open(s, &ids, &n, &e), &e);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(ids[0], other);
	free(ids);
	store_close(s);
}
END_TEST

static void run_migration(sqlite3 *db, int version)
{
	char name[40];

	snprintf(name, sizeof name, "migrations/%04d_", version);
	for (size_t i = 0; i < embedded_count; i++)
		if (!strncmp(embedded_files[i].name, name, strlen(name)))
			ck_assert_int_eq(sqlite3_exec(db, (const char *)embedded_files[i].data, NULL, NULL, NULL),
			                 SQLITE_OK);
}

START_TEST(the_runs_of_an_older_program_are_kept)
{
	const char *dir = fixture_tmpdir();
	char path[400];
	sqlite3 *db;
	struct store *s = NULL;
	struct gate_run r;

	snprintf(path, sizeof path, "%s/fathom.db", dir);
	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	for (int v = 1; v <= 4; v++)
		run_migration(db, v);
	ck_assert_int_eq(sqlite3_exec(db,
	                              "PRAGMA user_version = 4; INSERT INTO gate VALUES ('g', 1, 1, 1, '{}');"
	                              "INSERT INTO gate_run (id, gate, gate_version, model, tags, allow_engine_change,"
	                              " state, created_ms, finished_ms, verdict, outcome, hook) VALUES"
	                              " (7, 'g', 1, 'm', '{}', 1, 'done', 5, 6, '{\"v\":1}', 'pass', 'waiting'),"
	                              " (9, 'g', 1, 'm', '{}', 0, 'measuring', 8, NULL, NULL, NULL, NULL);"
	                              "INSERT INTO gate_measure VALUES (7, 0, 'a', 3, 'p'), (7, 1, 'b', 4, NULL)",
	                              NULL, NULL, NULL),
	                 SQLITE_OK);
	sqlite3_close(db);
	ck_ok(store_open(dir, false, &s, &e), &e);
	ck_ok(store_run_get(s, 7, &r, &e), &e);
	ck_assert_str_eq(r.verdict, "{\"v\":1}");
	ck_assert_str_eq(r.hook, "waiting");
	ck_assert_int_eq(r.finished_ms, 6);
	ck_assert(r.allow_engine_change);
	ck_assert_uint_eq(r.n_measures, 2);
	ck_assert_str_eq(r.measures[1].measure, "b");
	ck_assert_int_eq(r.measures[1].job, 4);
	gate_run_release(&r);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM gate_measure WHERE protocol = 'p'"), 1);
	begin(s);
	ck_ok(store_run_cancel(s, 9, &e), &e);
	ck_assert_int_eq(insert_run(s, "{}", NULL), 10); /* no number is used again */
	commit(s);
	store_close(s);
}
END_TEST

START_TEST(what_holds_a_job_is_named)
{
	struct store *s = open_store();
	int64_t job, run;

	begin(s);
	job = succeeded(s, &IDENTITY);
	ck_ok(put_baseline(s, "main", job, NULL, NULL), &e);
	ck_err(store_job_delete(s, job, &e), ERR_CONFLICT, "baseline 'main' (version 1): it cannot be deleted", &e);
	ck_err(store_job_restart(s, job, &e), ERR_CONFLICT, "cannot be restarted", &e);
	put_gate(s, "{}", false);
	run = insert_run(s, "{}", "main");
	ck_err(store_baseline_delete(s, "main", NULL, &e), ERR_CONFLICT, "run 1 of gate 'g'", &e);
	run_sql(s, "UPDATE job SET state = 'cancelled', finished_ms = 1 WHERE id = 2");
	ck_err(store_job_delete(s, 2, &e), ERR_CONFLICT, "run 1 of gate 'g'", &e);
	ck_ok(store_run_fail(s, run, "a fault", &e), &e);
	ck_ok(store_job_delete(s, 2, &e), &e);
	ck_ok(store_baseline_delete(s, "main", NULL, &e), &e);
	ck_ok(store_job_delete(s, job, &e), &e);
	commit(s);
	store_close(s);
}
END_TEST

START_TEST(a_run_pins_the_version_of_its_baseline)
{
	struct store *s = open_store();
	struct gate_run r;
	int64_t job, id;

	begin(s);
	put_gate(s, "{}", false);
	job = succeeded(s, &IDENTITY);
	ck_ok(put_baseline(s, "main", job, NULL, NULL), &e);
	id = insert_run(s, "{}", "main");
	ck_ok(put_baseline(s, "main", job, "*", NULL), &e);
	commit(s);
	ck_ok(store_run_get(s, id, &r, &e), &e);
	ck_assert_int_eq(r.baseline_version, 1);
	gate_run_release(&r);
	store_close(s);
}
END_TEST

/* A finished run on branch main. */
static void past_run(struct store *s, const char *fingerprint, const char *outcome, const char *protocol, int value)
{
	char verdict[64];
	int64_t id = insert_run(s, "{\"branch\":\"main\"}", NULL);

	snprintf(verdict, sizeof verdict, "{\"value\":%d}", value);
	ck_ok(store_run_judge(s, id, &e), &e);
	ck_ok(store_run_done(s, id, verdict, outcome, fingerprint, false, &e), &e);
	ck_ok(store_run_protocol(s, id, 0, protocol, &e), &e);
}

static err_code add_verdict(void *arg, const char *verdict, const char *measure, struct err *err)
{
	(void)err;
	ck_assert_str_eq(measure, "books");
	strcat(arg, verdict);
	return ERR_OK;
}

START_TEST(history_has_each_model_that_passed_once_newest_first)
{
	struct store *s = open_store();
	struct run_past past = {
	    .gate = "g", .branch = "main", .protocol = "p", .except = "me", .before = 100, .limit = 10};
	char got[400] = "";

	begin(s);
	put_gate(s, "{}", false);
	past_run(s, "a", "pass", "p", 1);
	past_run(s, "b", "pass", "p", 2);
	past_run(s, "c", "fail", "p", 3);
	past_run(s, "a", "pass", "p", 4); /* a again: its newest counts */
	past_run(s, "d", "pass", "q", 5); /* measured otherwise */
	past_run(s, "me", "pass", "p", 6);
	past_run(s, "e", "inconclusive", "p", 7);
	run_sql(s, "UPDATE gate_run SET verdict = '{\"rules\":[{\"type\":\"relative\",\"verdict\":\"inconclusive\"},"
	           "{\"type\":\"history\",\"verdict\":\"pass\"}]}' WHERE outcome = 'inconclusive'");
	past_run(s, "g", "inconclusive", "p", 70);
	run_sql(s,
	        "UPDATE gate_run SET verdict = '{\"value\":70,\"rules\":[{\"type\":\"relative\",\"verdict\":\"pass\"},"
	        "{\"type\":\"history\",\"verdict\":\"inconclusive\"}]}' WHERE fingerprint = 'g'");
	past_run(s, "f", "pass", "p", 8);
	commit(s);
	ck_ok(store_run_passed(s, &past, add_verdict, got, &e), &e);
	ck_assert_str_eq(got, "{\"value\":8}{\"value\":70,\"rules\":[{\"type\":\"relative\",\"verdict\":\"pass\"},"
	                      "{\"type\":\"history\",\"verdict\":\"inconclusive\"}]}{\"value\":4}{\"value\":2}");
	past.limit = 1;
	past.before = 8; /* not yet */
	got[0] = '\0';
	ck_ok(store_run_passed(s, &past, add_verdict, got, &e), &e);
	ck_assert_str_eq(got, "{\"value\":4}");
	past.branch = NULL; /* runs without a branch: none */
	got[0] = '\0';
	ck_ok(store_run_passed(s, &past, add_verdict, got, &e), &e);
	ck_assert_str_eq(got, "");
	store_close(s);
}
END_TEST

Suite *gate_store_suite(void);
Suite *gate_store_suite(void)
{
	Suite *suite = suite_create("gate_store");
	TCase *tc = tcase_create("gate_store");

	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	tcase_add_test(tc, hmac_gives_the_vectors_of_rfc_4231);
	tcase_add_test(tc, a_job_takes_the_units_of_one_that_computed_the_same);
	tcase_add_test(tc, what_is_not_the_same_in_all_is_computed);
	tcase_add_test(tc, a_restarted_job_forgets_the_cache);
	tcase_add_test(tc, a_baseline_changes_only_for_who_names_its_version);
	tcase_add_test(tc, an_imported_result_comes_back_to_the_byte);
	tcase_add_test(tc, a_gate_posted_again_is_the_version_that_it_was_and_current);
	tcase_add_test(tc, a_run_moves_only_along_its_states);
	tcase_add_test(tc, a_run_is_cancelled_with_its_jobs_as_long_as_it_is_not_over);
	tcase_add_test(tc, the_runs_of_an_older_program_are_kept);
	tcase_add_test(tc, what_holds_a_job_is_named);
	tcase_add_test(tc, a_run_pins_the_version_of_its_baseline);
	tcase_add_test(tc, history_has_each_model_that_passed_once_newest_first);
	return suite;
}
