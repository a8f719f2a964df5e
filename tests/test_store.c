/* The store: transitions, units, events, keys, migrations, the lock, and what a full disk does. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/store.h"
#include "server/store_private.h"
#include "server/store_write.h"
#include "tests/fixture.h"
#include "tests/fixture_store.h"

static struct err e;

static struct store *open_store(const char *dir)
{
	struct store *s = NULL;

	ck_ok(store_open(dir, false, &s, &e), &e);
	return s;
}

static struct job_new new_job(void)
{
	return (struct job_new){.model = "m", .task = "pg19", .dataset = "books", .params = "{\"lengths\":[64]}"};
}

static int64_t insert(struct store *s, const struct job_new *n)
{
	int64_t id = 0;
	bool existed = true;

	ck_ok(store_job_insert(s, n, &id, &existed, &e), &e);
	ck_assert(!existed);
	return id;
}

/* Inserts and starts a job with n units of 10 tokens. Inside a transaction. */
static int64_t insert_running(struct store *s, int64_t n_units)
{
	struct job_new n = new_job();
	struct job_pins pins = {(char[]){"sha256:m"}, (char[]){"sha256:t"}, (char[]){"sha256:d"}, (char[]){"sig"}};
	int64_t id = insert(s, &n);

	ck_ok(store_job_start(s, id, &e), &e);
	ck_ok(store_job_plan(s, id, "{\"n_units\":3}", &pins, n_units, n_units * 10, &e), &e);
	return id;
}

static void put_units(struct store *s, int64_t id, uint32_t from, uint32_t to)
{
	for (uint32_t u = from; u < to; u++) {
		char text[64];
		struct unit_result r = {u, text, 10};

		snprintf(text, sizeof text, "{\"nll\":%u}", u);
		ck_ok(store_unit_put(s, id, &r, 1, 0.5, NULL, &e), &e);
	}
}

static struct job get(struct store *s, int64_t id)
{
	struct job j = {0};

	ck_ok(store_job_get(s, id, &j, &e), &e);
	return j;
}

static enum job_state state_of(struct store *s, int64_t id)
{
	struct job j = get(s, id);
	enum job_state state = j.state;

	job_release(&j);
	return state;
}

START_TEST(a_job_comes_back_as_it_was_put)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_new n = new_job();
	struct job j;
	int64_t id;

	n.name = "näme";
	n.engine = "{\"dtype\":\"f32\"}";
	n.tags = "{\"ci\":\"main\"}";
	n.priority = -3;
	ck_ok(store_begin(s, &e), &e);
	id = insert(s, &n);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	j = get(s, id);
	ck_assert_int_eq(j.state, JOB_QUEUED);
	ck_assert_str_eq(j.name, "näme");
	ck_assert_str_eq(j.engine, "{\"dtype\":\"f32\"}");
	ck_assert_str_eq(j.tags, "{\"ci\":\"main\"}");
	ck_assert_str_eq(j.params, n.params);
	ck_assert_int_eq(j.priority, -3);
	ck_assert_int_gt(j.created_ms, 1600000000000);
	ck_assert_int_eq(j.started_ms, 0);
	ck_assert_ptr_null(j.result);
	ck_assert_ptr_null(j.waiting);
	job_release(&j);
	ck_err(store_job_get(s, id + 1, &j, &e), ERR_NOT_FOUND, "no job 2", &e);
	store_close(s);
}
END_TEST

START_TEST(every_transition_is_allowed_only_from_its_states)
{
	/* for each state, which of the operations below succeed */
	static const struct {
		enum job_state from;
		bool start, requeue, cancelled, succeed, fail, restart, delete;
	} table[] = {
	    {JOB_QUEUED, true, false, false, false, true, false, false},
	    {JOB_RUNNING, false, true, false, true, true, false, false},
	    {JOB_CANCELLING, false, false, true, false, false, false, false},
	    {JOB_SUCCEEDED, false, false, false, false, false, true, true},
	    {JOB_FAILED, false, false, false, false, false, true, true},
	    {JOB_CANCELLED, false, false, false, false, false, true, true},
	};
	struct store *s = open_store(fixture_tmpdir());

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int op = 0; op < 7; op++) {
			const bool want[] = {table[i].start, table[i].requeue, table[i].cancelled, table[i].succeed,
			                     table[i].fail,  table[i].restart, table[i].delete};
			struct job_new n = new_job();
			int64_t id;
			err_code rc = ERR_OK;

			ck_ok(store_begin(s, &e), &e);
			id = table[i].from == JOB_QUEUED ? insert(s, &n) : insert_running(s, 2);
			put_units(s, id, 0, table[i].from == JOB_QUEUED ? 0 : 2);
			if (table[i].from == JOB_CANCELLING || table[i].from == JOB_CANCELLED)
				ck_ok(store_job_cancel(s, id, &e), &e);
			if (table[i].from == JOB_CANCELLED)
				ck_ok(store_job_cancelled(s, id, &e), &e);
			if (table[i].from == JOB_SUCCEEDED)
				ck_ok(store_job_succeed(s, id, "{}", NULL, &e), &e);
			if (table[i].from == JOB_FAILED)
				ck_ok(store_job_fail(s, id, "{}", NULL, &e), &e);
			ck_assert_int_eq(state_of(s, id), table[i].from);

			rc = op == 0   ? store_job_start(s, id, &e)
			     : op == 1 ? store_job_requeue(s, id, &e)
			     : op == 2 ? store_job_cancelled(s, id, &e)
			     : op == 3 ? store_job_succeed(s, id, "{}", NULL, &e)
			     : op == 4 ? store_job_fail(s, id, "{}", "{\"a\":1}", &e)
			     : op == 5 ? store_job_restart(s, id, &e)
			               : store_job_delete(s, id, &e);
			ck_assert_msg(rc == (want[op] ? ERR_OK : ERR_CONFLICT), "%s, operation %d: %d %s",
			              job_state_name(table[i].from), op, rc, e.msg);
			if (rc)
				ck_assert_ptr_nonnull(strstr(e.msg, job_state_name(table[i].from)));
			ck_ok(store_end(s, ERR_OK, &e), &e);
		}
	}
	store_close(s);
}
END_TEST

START_TEST(cancel_moves_by_state)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_new n = new_job();
	int64_t queued, running;

	ck_ok(store_begin(s, &e), &e);
	queued = insert(s, &n);
	running = insert_running(s, 2);
	ck_ok(store_job_cancel(s, queued, &e), &e);
	ck_assert_int_eq(state_of(s, queued), JOB_CANCELLED);
	for (int i = 0; i < 2; i++) {
		ck_ok(store_job_cancel(s, running, &e), &e);
		ck_assert_int_eq(state_of(s, running), JOB_CANCELLING);
	}
	ck_err(store_job_cancel(s, queued, &e), ERR_CONFLICT, "is cancelled", &e);
	ck_err(store_job_cancel(s, 99, &e), ERR_NOT_FOUND, "no job 99", &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	store_close(s);
}
END_TEST

START_TEST(a_unit_is_stored_once_and_counted_once)
{
	struct store *s = open_store(fixture_tmpdir());
	struct unit_result again[] = {{1, "{\"nll\":-1}", 10}, {2, "{\"nll\":2}", 10}};
	struct unit_cursor *c = NULL;
	struct job j;
	size_t stored = 99;
	uint32_t unit;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 3);
	put_units(s, id, 0, 2);
	ck_ok(store_unit_put(s, id, again, 2, 1.0, &stored, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_assert_uint_eq(stored, 1);
	j = get(s, id);
	ck_assert_int_eq(j.done_units, 3);
	ck_assert_int_eq(j.done_tokens, 30);
	ck_assert_double_eq(j.seconds, 2.0);
	job_release(&j);
	ck_assert_int_eq(query_int(s, "SELECT repeated_units FROM job"), 1);

	ck_ok(unit_cursor_open(s, id, 0, &c, &e), &e);
	for (uint32_t u = 0; u < 3; u++) {
		char want[32];

		snprintf(want, sizeof want, "{\"nll\":%u}", u); /* the first result of unit 1 stays */
		ck_assert_str_eq(unit_cursor_next(c, &unit), want);
		ck_assert_uint_eq(unit, u);
	}
	ck_assert_ptr_null(unit_cursor_next(c, &unit));
	ck_ok(unit_cursor_close(c, &e), &e);
	store_close(s);
}
END_TEST

START_TEST(a_cursor_skips_units_that_are_there)
{
	static const uint32_t want[] = {3, 7, 8};
	struct store *s = open_store(fixture_tmpdir());
	struct unit_cursor *c;
	uint32_t unit;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 20);
	put_units(s, id, 2, 4); /* 4 to 6 are missing */
	put_units(s, id, 7, 9);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_ok(unit_cursor_open(s, id, 1, &c, &e), &e);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_ptr_nonnull(unit_cursor_next(c, &unit));
		ck_assert_uint_eq(unit, want[i]);
	}
	ck_assert_ptr_null(unit_cursor_next(c, &unit));
	ck_ok(unit_cursor_close(c, &e), &e);
	ck_ok(unit_cursor_open(s, id, UINT32_MAX, &c, &e), &e);
	ck_assert_ptr_null(unit_cursor_next(c, &unit));
	ck_ok(unit_cursor_close(c, &e), &e);
	store_close(s);
}
END_TEST

START_TEST(units_of_a_final_job_are_refused)
{
	struct store *s = open_store(fixture_tmpdir());
	struct unit_result r = {1, "{}", 10};
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 2);
	ck_ok(store_job_fail(s, id, "{}", NULL, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_ok(store_begin(s, &e), &e);
	ck_err(store_unit_put(s, id, &r, 1, 0, NULL, &e), ERR_CONFLICT, "not running", &e);
	store_end(s, ERR_CANCELLED, &e);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM unit"), 0);
	store_close(s);
}
END_TEST

struct seen {
	uint32_t done, failed;
};

static void see_unit(void *arg, uint32_t unit, bool failed, const char *code, const char *message)
{
	struct seen *seen = arg;

	if (!failed) {
		seen->done |= 1u << unit;
		return;
	}
	seen->failed |= 1u << unit;
	ck_assert_str_eq(code, "numeric");
	ck_assert_str_eq(message, "NaN at layer 3");
}

START_TEST(a_failed_unit_is_counted_and_told)
{
	struct store *s = open_store(fixture_tmpdir());
	struct seen seen = {0};
	struct job j;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 3);
	put_units(s, id, 0, 1);
	ck_ok(store_unit_fail(s, id, 2, "numeric", "NaN at layer 3", &e), &e);
	ck_ok(store_unit_fail(s, id, 2, "numeric", "NaN at layer 3", &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_ok(store_unit_each(s, id, see_unit, &seen, &e), &e);
	ck_assert_uint_eq(seen.done, 1);
	ck_assert_uint_eq(seen.failed, 4);
	j = get(s, id);
	ck_assert_int_eq(j.failed_units, 1);
	job_release(&j);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM event WHERE kind = 'unit_failed'"), 1);
	/* a job with a failed unit cannot succeed: the CHECK, not only our own care */
	ck_ok(store_begin(s, &e), &e);
	ck_err(store_job_succeed(s, id, "{}", NULL, &e), ERR_CONFLICT, "CHECK", &e);
	store_end(s, ERR_CANCELLED, &e);
	store_close(s);
}
END_TEST

START_TEST(an_idempotency_key_gives_the_old_job_or_a_conflict)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_new n = new_job();
	int64_t id, again;
	bool existed;

	n.idempotency_key = "k";
	n.request_hash = "h1";
	ck_ok(store_begin(s, &e), &e);
	id = insert(s, &n);
	ck_ok(store_job_insert(s, &n, &again, &existed, &e), &e);
	ck_assert(existed);
	ck_assert_int_eq(again, id);
	n.request_hash = "h2";
	ck_err(store_job_insert(s, &n, &again, &existed, &e), ERR_CONFLICT, "idempotency key 'k'", &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM job"), 1);
	store_close(s);
}
END_TEST

START_TEST(a_restart_of_the_server_requeues_running_and_ends_cancelling)
{
	const char *dir = fixture_tmpdir();
	struct store *s = open_store(dir);
	struct job j;
	int64_t running, cancelling, *ids = NULL;
	size_t n = 0;

	ck_ok(store_begin(s, &e), &e);
	running = insert_running(s, 3);
	cancelling = insert_running(s, 3);
	put_units(s, running, 0, 2);
	ck_ok(store_job_cancel(s, cancelling, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	store_close(s);
	s = open_store(dir);
	ck_ok(store_begin(s, &e), &e);
	ck_ok(store_recover(s, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	j = get(s, running);
	ck_assert_int_eq(j.state, JOB_QUEUED);
	ck_assert_int_eq(j.done_units, 2);
	job_release(&j);
	j = get(s, cancelling);
	ck_assert_int_eq(j.state, JOB_CANCELLED);
	job_release(&j);
	ck_ok(store_job_active(s, &ids, &n, &e), &e);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(ids[0], running);
	free(ids);
	store_close(s);
}
END_TEST

START_TEST(restart_of_a_job_drops_units_plan_and_pins)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_pins pins;
	struct job j;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 3);
	put_units(s, id, 0, 2);
	ck_ok(store_unit_fail(s, id, 2, "numeric", "x", &e), &e);
	ck_ok(store_job_pins(s, id, &pins, &e), &e);
	ck_assert_str_eq(pins.signature, "sig");
	job_pins_release(&pins);
	ck_ok(store_job_fail(s, id, "{\"code\":\"numeric\"}", "{\"partial\":true}", &e), &e);
	j = get(s, id);
	ck_assert_str_eq(j.result, "{\"partial\":true}");
	job_release(&j);
	ck_ok(store_job_restart(s, id, &e), &e);
	ck_ok(store_job_pins(s, id, &pins, &e), &e);
	ck_assert_ptr_null(pins.signature);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	j = get(s, id);
	ck_assert_int_eq(j.state, JOB_QUEUED);
	ck_assert_int_eq(j.done_units + j.failed_units + j.n_units + j.started_ms + j.finished_ms, 0);
	ck_assert_ptr_null(j.plan);
	ck_assert_ptr_null(j.error);
	ck_assert_ptr_null(j.result);
	job_release(&j);
	ck_assert_int_eq(query_int(s, "SELECT (SELECT count(*) FROM unit) + (SELECT count(*) FROM unit_failure)"), 0);
	store_close(s);
}
END_TEST

START_TEST(a_job_that_waits_says_why_and_may_be_restarted)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_new n = new_job();
	struct job j;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert(s, &n);
	ck_err(store_job_restart(s, id, &e), ERR_CONFLICT, "is queued", &e);
	ck_ok(store_job_wait(s, id, "no worker with signature \"x\"", &e), &e);
	j = get(s, id);
	ck_assert_str_eq(j.waiting, "no worker with signature \"x\"");
	job_release(&j);
	ck_ok(store_job_restart(s, id, &e), &e);
	ck_ok(store_job_wait(s, id, "y", &e), &e);
	ck_ok(store_job_start(s, id, &e), &e);
	j = get(s, id);
	ck_assert_ptr_null(j.waiting);
	job_release(&j);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	store_close(s);
}
END_TEST

START_TEST(delete_removes_units_and_events_and_never_reuses_the_id)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_new n = new_job();
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 1);
	put_units(s, id, 0, 1);
	ck_ok(store_job_succeed(s, id, "{}", NULL, &e), &e);
	ck_ok(store_job_delete(s, id, &e), &e);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM unit"), 0);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM event"), 1);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM event WHERE kind = 'deleted'"), 1);
	ck_assert_int_gt(insert(s, &n), id);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	store_close(s);
}
END_TEST

START_TEST(list_filters_and_pages)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_filter f = {.state = -1, .limit = 3};
	struct job *jobs;
	size_t n;

	ck_ok(store_begin(s, &e), &e);
	for (int i = 1; i <= 10; i++) {
		struct job_new j = new_job();

		j.model = i % 2 ? "odd" : "even";
		j.tags = i % 5 ? "{\"ci\":\"no\"}" : "{\"ci\":\"yes\",\"five\":\"\"}";
		insert(s, &j);
	}
	ck_ok(store_end(s, ERR_OK, &e), &e);
#define LISTS(count, first)                                                                                            \
	do {                                                                                                           \
		ck_ok(store_job_list(s, &f, &jobs, &n, &e), &e);                                                       \
		ck_assert_uint_eq(n, (count));                                                                         \
		ck_assert_int_eq(n ? jobs[0].id : 0, (first));                                                         \
		for (size_t k = 0; k < n; k++)                                                                         \
			job_release(&jobs[k]);                                                                         \
		free(jobs);                                                                                            \
	} while (0)
	LISTS(3, 10);
	f.after = 8;
	LISTS(3, 7);
	f.after = 2;
	LISTS(1, 1);
	f = (struct job_filter){.state = -1, .limit = 100, .model = "odd"};
	LISTS(5, 9);
	f.tag = "five";
	LISTS(1, 5);
	f.tag = "ci=yes";
	f.model = NULL;
	LISTS(2, 10);
	f.tag = "ci=maybe";
	LISTS(0, 0);
	f.tag = NULL;
	f.state = JOB_RUNNING;
	LISTS(0, 0);
	f.state = JOB_QUEUED;
	f.task = "lambada";
	LISTS(0, 0);
	store_close(s);
}
END_TEST

START_TEST(a_reader_sees_what_is_committed_and_cannot_write)
{
	const char *dir = fixture_tmpdir();
	struct store *s = open_store(dir), *r = NULL;
	struct job_new n = new_job();
	struct job j;
	int64_t id;

	ck_ok(store_open(dir, true, &r, &e), &e);
	ck_ok(store_begin(s, &e), &e);
	id = insert(s, &n);
	ck_err(store_job_get(r, id, &j, &e), ERR_NOT_FOUND, "no job", &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	j = get(r, id);
	job_release(&j);
	ck_assert_int_ne(store_run(r, &e, NULL, "DELETE FROM job", ""), ERR_OK);
	ck_assert_ptr_nonnull(strstr(e.msg, "readonly"));
	ck_ok(store_checkpoint(s, &e), &e);
	store_close(r);
	store_close(s);
}
END_TEST

START_TEST(one_request_of_a_group_fails_alone)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_new good = new_job(), bad = new_job();
	int64_t id;
	bool existed;

	bad.params = "not json";
	ck_ok(store_begin(s, &e), &e);
	ck_ok(store_savepoint(s, &e), &e);
	insert(s, &good);
	ck_ok(store_savepoint_release(s, &e), &e);
	ck_ok(store_savepoint(s, &e), &e);
	ck_err(store_job_insert(s, &bad, &id, &existed, &e), ERR_CONFLICT, "CHECK", &e);
	ck_ok(store_savepoint_rollback(s, &e), &e);
	ck_ok(store_savepoint(s, &e), &e);
	insert(s, &good);
	ck_ok(store_savepoint_release(s, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM job"), 2);
	store_close(s);
}
END_TEST

START_TEST(a_full_disk_is_an_error_with_its_name_and_nothing_is_half_written)
{
	struct store *s = open_store(fixture_tmpdir());
	char *big = malloc(1 << 20);
	struct job_new n = new_job();
	struct job j;
	int64_t id;
	err_code rc;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 100);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	memset(big, 'x', (1 << 20) - 1);
	big[(1 << 20) - 1] = 0;
	sqlite3_exec(s->db, "PRAGMA max_page_count = 300", NULL, NULL, NULL); /* 1.2 MB */
	ck_ok(store_begin(s, &e), &e);
	rc = ERR_OK;
	for (uint32_t u = 0; !rc && u < 10; u++) {
		struct unit_result r = {u, big, 1};

		rc = store_unit_put(s, id, &r, 1, 0, NULL, &e);
	}
	ck_assert_int_eq(rc, ERR_IO);
	ck_assert_ptr_nonnull(strstr(e.msg, "full"));
	ck_assert_ptr_nonnull(strstr(e.msg, "fathom.db"));
	store_end(s, ERR_CANCELLED, &e);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM unit"), 0);
	j = get(s, id);
	ck_assert_int_eq(j.done_units, 0);
	job_release(&j);
	/* and the connection goes on once there is room */
	sqlite3_exec(s->db, "PRAGMA max_page_count = 1000000", NULL, NULL, NULL);
	ck_ok(store_begin(s, &e), &e);
	put_units(s, id, 0, 1);
	insert(s, &n);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	free(big);
	store_close(s);
}
END_TEST

START_TEST(two_servers_cannot_share_a_folder)
{
	const char *dir = fixture_tmpdir();
	struct store *s = open_store(dir), *second = NULL;
	char pid[32];

	ck_err(store_open(dir, false, &second, &e), ERR_CONFLICT, "in use by another fathom serve", &e);
	snprintf(pid, sizeof pid, "process %ld", (long)getpid());
	ck_assert_ptr_nonnull(strstr(e.msg, pid));
	store_close(s);
	s = open_store(dir);
	store_close(s);
}
END_TEST

START_TEST(a_database_newer_than_the_program_is_refused_naming_both_versions)
{
	const char *dir = fixture_tmpdir();
	struct store *s = open_store(dir);

	ck_assert_int_eq(query_int(s, "PRAGMA user_version"), 5);
	sqlite3_exec(s->db, "PRAGMA user_version = 97", NULL, NULL, NULL);
	store_close(s);
	ck_err(store_open(dir, false, &s, &e), ERR_CONFLICT, "version 97, newer than the 5", &e);
}
END_TEST

START_TEST(an_old_database_is_migrated_and_keeps_its_rows)
{
	static const char old_result[] =
	    "{\"metrics\":[{\"name\":\"ppl_token\",\"length\":64,\"value\":3.5},{\"name\":\"ppl_token\",\"length\":256,"
	    "\"value\":2.0712345678901234},{\"name\":\"ppl_word\",\"length\":512,\"value\":9}]}";
	const char *dir = fixture_tmpdir();
	struct store *s = open_store(dir);
	struct job_new n = new_job();
	char *text = NULL;
	struct job j;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	insert(s, &n);
	id = insert_running(s, 0);
	ck_ok(store_job_succeed(s, id, old_result, NULL, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_assert_int_eq(sqlite3_exec(s->db,
	                              "DROP TABLE gate_measure; DROP TABLE gate_run; DROP TABLE gate;"
	                              "DROP TABLE baseline_result; DROP TABLE baseline; DROP INDEX job_pins;"
	                              "ALTER TABLE job DROP COLUMN cache; ALTER TABLE job DROP COLUMN cached_from;"
	                              "DROP TABLE model; ALTER TABLE job DROP COLUMN headline; PRAGMA user_version = 1",
	                              NULL, NULL, NULL),
	                 SQLITE_OK);
	store_close(s);
	ck_err(store_open(dir, true, &s, &e), ERR_CONFLICT, "older than 5", &e);
	s = open_store(dir);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM job"), 2);
	ck_ok(store_job_get(s, id, &j, &e), &e);
	ck_assert_str_eq(j.headline, "{\"name\":\"ppl_token\",\"length\":256,\"value\":2.0712345678901234}");
	job_release(&j);
	ck_ok(store_model_get(s, "/m", "k", &text, &e), &e);
	ck_assert_ptr_null(text);
	store_close(s);
}
END_TEST

START_TEST(a_headline_stands_in_lists_and_goes_with_its_result)
{
	struct store *s = open_store(fixture_tmpdir());
	struct job_filter all = {.state = -1, .limit = 10};
	struct job *jobs = NULL;
	size_t n = 0;
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 0);
	ck_ok(store_job_succeed(s, id, "{}", "{\"name\":\"acc\",\"value\":0.25}", &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	for (int restarted = 0; restarted < 2; restarted++) {
		ck_ok(store_job_list(s, &all, &jobs, &n, &e), &e);
		ck_assert_uint_eq(n, 1);
		if (restarted)
			ck_assert_ptr_null(jobs->headline);
		else
			ck_assert_str_eq(jobs->headline, "{\"name\":\"acc\",\"value\":0.25}");
		job_release(jobs);
		free(jobs);
		ck_ok(store_begin(s, &e), &e);
		ck_ok(store_end(s, store_job_restart(s, id, &e), &e), &e);
		ck_ok(store_begin(s, &e), &e);
		ck_ok(store_end(s, store_job_wait(s, id, "for a test", &e), &e), &e);
	}
	store_close(s);
}
END_TEST

START_TEST(the_writer_is_durable)
{
	struct store *s = open_store(fixture_tmpdir());
	sqlite3_stmt *stmt = NULL;

	ck_assert_int_eq(query_int(s, "PRAGMA synchronous"), 2);
	ck_assert_int_eq(query_int(s, "PRAGMA foreign_keys"), 1);
	ck_assert_int_eq(sqlite3_prepare_v2(s->db, "PRAGMA journal_mode", -1, &stmt, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
	ck_assert_str_eq((const char *)sqlite3_column_text(stmt, 0), "wal");
	sqlite3_finalize(stmt);
	store_close(s);
}
END_TEST

START_TEST(a_description_is_stale_when_its_files_changed)
{
	struct store *s = open_store(fixture_tmpdir());
	char *text = NULL;

	ck_ok(store_model_put(s, "/m", "k1", "{\"a\":1}", &e), &e);
	ck_ok(store_model_get(s, "/m", "k1", &text, &e), &e);
	ck_assert_str_eq(text, "{\"a\":1}");
	free(text);
	ck_ok(store_model_get(s, "/m", "k2", &text, &e), &e);
	ck_assert_ptr_null(text);
	ck_ok(store_model_put(s, "/m", "k2", "{\"a\":2}", &e), &e);
	ck_ok(store_model_get(s, "/m", "k2", &text, &e), &e);
	ck_assert_str_eq(text, "{\"a\":2}");
	free(text);
	store_close(s);
}
END_TEST

START_TEST(every_state_change_has_its_event_and_progress_goes_with_the_end)
{
	struct store *s = open_store(fixture_tmpdir());
	int64_t id;

	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 1);
	put_units(s, id, 0, 1);
	ck_ok(store_event_progress(s, id, &e), &e);
	ck_assert_int_eq(query_int(s, "SELECT data ->> 'done_units' FROM event WHERE kind = 'progress'"), 1);
	ck_ok(store_job_succeed(s, id, "{}", NULL, &e), &e);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM event WHERE kind = 'progress'"), 0);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM event WHERE kind = 'state'"), 2);
	ck_assert_int_eq(query_int(s, "SELECT count(*) FROM event"), 4); /* created, running, planned, succeeded */
	store_close(s);
}
END_TEST

/* kill -9 at random moments of a run of commits: what was committed is there, all of a transaction
 * or nothing. */
START_TEST(a_killed_writer_loses_no_commit)
{
	const char *dir = fixture_tmpdir();
	struct store *s;
	struct job j;
	int64_t id;
	int status;
	uint32_t told;

	s = open_store(dir);
	ck_ok(store_begin(s, &e), &e);
	id = insert_running(s, 1000000);
	ck_ok(store_end(s, ERR_OK, &e), &e);
	store_close(s);
	for (int round = 0; round < 5; round++) {
		int fds[2];
		pid_t pid;

		ck_assert_int_eq(pipe(fds), 0);
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			s = open_store(dir);
			for (uint32_t u = (uint32_t)round * 100000;; u += 2) {
				ck_ok(store_begin(s, &e), &e);
				put_units(s, id, u, u + 2);
				ck_ok(store_end(s, ERR_OK, &e), &e);
				if (write(fds[1], &u, sizeof u) != sizeof u)
					_exit(1);
			}
		}
		close(fds[1]);
		for (int i = 0; i < 3 + 2 * round; i++)
			ck_assert_int_eq(read(fds[0], &told, sizeof told), sizeof told);
		kill(pid, SIGKILL);
		while (read(fds[0], &told, sizeof told) == sizeof told)
			;
		close(fds[0]);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		s = open_store(dir);
		j = get(s, id);
		ck_assert_int_eq(j.done_units % 2, 0);
		ck_assert_int_eq(j.done_units, query_int(s, "SELECT count(*) FROM unit"));
		ck_assert_int_ge(query_int(s, "SELECT max(unit) FROM unit"), told + 1);
		job_release(&j);
		store_close(s);
	}
}
END_TEST

Suite *store_suite(void);
Suite *store_suite(void)
{
	Suite *suite = suite_create("store");
	TCase *tc = tcase_create("store");

	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	tcase_add_test(tc, a_job_comes_back_as_it_was_put);
	tcase_add_test(tc, every_transition_is_allowed_only_from_its_states);
	tcase_add_test(tc, cancel_moves_by_state);
	tcase_add_test(tc, a_unit_is_stored_once_and_counted_once);
	tcase_add_test(tc, a_cursor_skips_units_that_are_there);
	tcase_add_test(tc, units_of_a_final_job_are_refused);
	tcase_add_test(tc, a_failed_unit_is_counted_and_told);
	tcase_add_test(tc, an_idempotency_key_gives_the_old_job_or_a_conflict);
	tcase_add_test(tc, a_restart_of_the_server_requeues_running_and_ends_cancelling);
	tcase_add_test(tc, restart_of_a_job_drops_units_plan_and_pins);
	tcase_add_test(tc, a_job_that_waits_says_why_and_may_be_restarted);
	tcase_add_test(tc, delete_removes_units_and_events_and_never_reuses_the_id);
	tcase_add_test(tc, list_filters_and_pages);
	tcase_add_test(tc, a_reader_sees_what_is_committed_and_cannot_write);
	tcase_add_test(tc, one_request_of_a_group_fails_alone);
	tcase_add_test(tc, a_full_disk_is_an_error_with_its_name_and_nothing_is_half_written);
	tcase_add_test(tc, two_servers_cannot_share_a_folder);
	tcase_add_test(tc, a_database_newer_than_the_program_is_refused_naming_both_versions);
	tcase_add_test(tc, an_old_database_is_migrated_and_keeps_its_rows);
	tcase_add_test(tc, a_headline_stands_in_lists_and_goes_with_its_result);
	tcase_add_test(tc, the_writer_is_durable);
	tcase_add_test(tc, a_description_is_stale_when_its_files_changed);
	tcase_add_test(tc, every_state_change_has_its_event_and_progress_goes_with_the_end);
	tcase_add_test(tc, a_killed_writer_loses_no_commit);
	return suite;
}
