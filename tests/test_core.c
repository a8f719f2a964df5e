/* The core thread with the real worker on a tiny model: requests from other threads, group commits, results,
 * the cache of descriptions, hangs, stopping. Needs the program itself (FATHOM) as its worker. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/core.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"

static struct err e;

/* A core that runs on a thread of its own, and a reader of its store. */
struct bench {
	char data[512], models[512], datasets[512];
	const char *dirs[2];
	struct core_options o;
	struct core *core;
	struct store *reader;
	pthread_t thread;
	err_code rc;
	struct err err;
	pthread_mutex_t lock;
	unsigned changes; /* calls of on_change, under the lock */
};

static struct bench bench;

static void count_change(void *arg, int64_t job)
{
	struct bench *b = arg;

	(void)job;
	pthread_mutex_lock(&b->lock);
	b->changes++;
	pthread_mutex_unlock(&b->lock);
}

static void *run_core(void *arg)
{
	struct bench *b = arg;

	b->rc = core_run(b->core, &b->err);
	return NULL;
}

static void start_core(const char *const *workers, size_t n)
{
	struct bench *b = &bench;

	b->o.workers = workers;
	b->o.n_workers = n;
	ck_ok(core_open(&b->o, &b->core, &e), &e);
	ck_ok(store_open(b->data, true, &b->reader, &e), &e);
	ck_assert_int_eq(pthread_create(&b->thread, NULL, run_core, b), 0);
}

static void stop_core(void)
{
	core_stop(bench.core);
	pthread_join(bench.thread, NULL);
	ck_assert_msg(!bench.rc, "%s", bench.err.msg);
	store_close(bench.reader);
	core_free(bench.core);
}

/* Folders with model "tiny" and dataset "books" of n documents. False, aloud: the program is not there. */
static bool prepare(const char *test, int n_docs)
{
	const char *self = getenv("FATHOM"), *dir;
	struct fixture_model m = FIXTURE_MODEL_DEFAULT;
	char path[600], name[16], text[800];

	if (!self || access(self, X_OK)) {
		fixture_skip(test, "FATHOM does not name the program");
		return false;
	}
	dir = fixture_tmpdir();
	bench = (struct bench){.lock = PTHREAD_MUTEX_INITIALIZER};
	snprintf(bench.data, sizeof bench.data, "%s/data", dir);
	snprintf(bench.models, sizeof bench.models, "%s/models", dir);
	snprintf(bench.datasets, sizeof bench.datasets, "%s/datasets", dir);
	mkdir(bench.models, 0777);
	mkdir(bench.datasets, 0777);
	snprintf(path, sizeof path, "%s/tiny", bench.models);
	mkdir(path, 0777);
	m.n_vocab = 300;
	m.tokenizer = true;
	fixture_model_write(path, &m);
	snprintf(path, sizeof path, "%s/books", bench.datasets);
	mkdir(path, 0777);
	for (int i = 0; i < n_docs; i++) {
		for (size_t k = 0; k < sizeof text; k++)
			text[k] = (char)('a' + (k * 7 + (k >> 3) * 5 + (size_t)i * 11) % 26);
		snprintf(name, sizeof name, "%03d.txt", i);
		fixture_write(path, name, text, sizeof text);
	}
	bench.dirs[0] = bench.models;
	bench.dirs[1] = bench.datasets;
	bench.o = (struct core_options){.data_dir = bench.data,
	                                .self = self,
	                                .registry = {bench.dirs, 1, bench.dirs + 1, 1},
	                                .on_change = count_change,
	                                .arg = &bench};
	return true;
}

/* -- requests ------------------------------------------------------------------------------------------ */

struct waiter {
	struct request r;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
};

static void request_done(struct request *r)
{
	struct waiter *w = r->arg;

	pthread_mutex_lock(&w->lock);
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void submit(struct waiter *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->done = false;
	w->r.done = request_done;
	w->r.arg = w;
	core_submit(bench.core, &w->r);
}

static err_code wait_done(struct waiter *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	return w->r.err.code;
}

static const struct job_new new_job = {.model = "tiny",
                                       .task = "pg19",
                                       .dataset = "books",
                                       .params = "{\"lengths\":[32,64]}",
                                       .engine = "{\"dtype\":\"f32\"}"};

static int64_t create(void)
{
	struct waiter w = {.r = {.kind = REQUEST_CREATE, .create = new_job}};

	submit(&w);
	ck_ok(wait_done(&w), &w.r.err);
	return w.r.job;
}

static err_code ask(enum request_kind kind, int64_t job, struct err *err)
{
	struct waiter w = {.r = {.kind = kind, .job = job}};

	submit(&w);
	wait_done(&w);
	*err = w.r.err;
	return err->code;
}

/* The job once it is in one of two states. */
static struct job wait_state(int64_t id, enum job_state a, enum job_state b)
{
	struct job j;

	for (;;) {
		ck_ok(store_job_get(bench.reader, id, &j, &e), &e);
		if (j.state == a || j.state == b)
			return j;
		job_release(&j);
		usleep(5000);
	}
}

static void expect_success(int64_t id)
{
	struct job j = wait_state(id, JOB_SUCCEEDED, JOB_FAILED);

	ck_assert_msg(j.state == JOB_SUCCEEDED, "%s", j.error ? j.error : "");
	ck_assert_int_eq(j.done_units, j.n_units);
	ck_assert_int_eq(j.done_tokens, j.total_tokens);
	ck_assert_ptr_nonnull(strstr(j.result, "\"metrics\":[{"));
	job_release(&j);
}

/* -- tests ----------------------------------------------------------------------------------------------- */

static const char *const one_cpu[] = {"cpu"};

START_TEST(jobs_run_and_their_result_comes_with_the_state)
{
	int64_t a, b;

	if (!prepare("jobs_run", 6))
		return;
	start_core(one_cpu, 1);
	a = create();
	b = create();
	ck_assert_int_eq(b, a + 1);
	expect_success(a);
	expect_success(b);
	pthread_mutex_lock(&bench.lock);
	ck_assert_uint_ge(bench.changes, 2 * 4); /* each: created, running, planned, results or success */
	pthread_mutex_unlock(&bench.lock);
	ck_assert_int_eq(core_job_live_tokens(bench.core, a), -1);
	stop_core();
}
END_TEST

START_TEST(requests_of_one_group_succeed_and_fail_each_for_itself)
{
	struct waiter w[40] = {0};
	int64_t last = 0;

	if (!prepare("requests_of_one_group", 1))
		return;
	start_core(NULL, 0);
	for (int i = 0; i < 40; i++) {
		w[i].r.kind = i % 4 == 1 ? REQUEST_CANCEL : i % 4 == 3 ? REQUEST_DELETE : REQUEST_CREATE;
		w[i].r.create = new_job;
		if (i % 4 == 2)
			w[i].r.create.params = "no JSON";
		w[i].r.job = 1000;
		submit(&w[i]);
	}
	for (int i = 0; i < 40; i++) {
		err_code rc = wait_done(&w[i]);

		if (i % 4 == 0) {
			ck_ok(rc, &w[i].r.err);
			ck_assert_int_gt(w[i].r.job, last);
			last = w[i].r.job;
		} else {
			ck_assert_int_eq(rc, i % 4 == 2 ? ERR_CONFLICT : ERR_NOT_FOUND);
		}
	}
	stop_core();
}
END_TEST

START_TEST(an_idempotency_key_makes_one_job)
{
	struct waiter w[2] = {0};

	if (!prepare("an_idempotency_key", 1))
		return;
	start_core(NULL, 0);
	for (int i = 0; i < 2; i++) {
		w[i].r.kind = REQUEST_CREATE;
		w[i].r.create = new_job;
		w[i].r.create.idempotency_key = "k";
		w[i].r.create.request_hash = "h";
		submit(&w[i]);
	}
	for (int i = 0; i < 2; i++)
		ck_ok(wait_done(&w[i]), &w[i].r.err);
	ck_assert_int_eq(w[0].r.job, w[1].r.job);
	ck_assert_int_ne(w[0].r.existed, w[1].r.existed);
	stop_core();
}
END_TEST

START_TEST(without_workers_a_job_waits_and_says_so)
{
	struct err why;
	struct job j;
	int64_t id;

	if (!prepare("without_workers", 1))
		return;
	start_core(NULL, 0);
	id = create();
	do {
		j = wait_state(id, JOB_QUEUED, JOB_QUEUED);
		if (j.waiting)
			break;
		job_release(&j);
		usleep(5000);
	} while (true);
	ck_assert_str_eq(j.waiting, "no worker is up");
	job_release(&j);
	ck_err(ask(REQUEST_DELETE, id, &why), ERR_CONFLICT, "is queued", &why);
	ck_ok(ask(REQUEST_CANCEL, id, &why), &why);
	ck_err(ask(REQUEST_CANCEL, id, &why), ERR_CONFLICT, "is cancelled", &why);
	stop_core();
	/* a restart of a cancelled job, with a worker */
	start_core(one_cpu, 1);
	ck_ok(ask(REQUEST_RESTART, id, &why), &why);
	expect_success(id);
	ck_ok(ask(REQUEST_DELETE, id, &why), &why);
	ck_err(store_job_get(bench.reader, id, &j, &e), ERR_NOT_FOUND, "no job", &e);
	stop_core();
}
END_TEST

START_TEST(a_plan_that_cannot_be_made_fails_the_job_with_its_reason)
{
	struct waiter w = {.r = {.kind = REQUEST_CREATE, .create = new_job}};
	struct job j;

	if (!prepare("a_plan_that_cannot_be_made", 1))
		return;
	start_core(one_cpu, 1);
	w.r.create.dataset = "none";
	submit(&w);
	ck_ok(wait_done(&w), &w.r.err);
	j = wait_state(w.r.job, JOB_FAILED, JOB_SUCCEEDED);
	ck_assert_int_eq(j.state, JOB_FAILED);
	ck_assert_ptr_nonnull(strstr(j.error, "\"code\":\"not_found\""));
	ck_assert_ptr_nonnull(strstr(j.error, "none"));
	ck_assert_ptr_null(j.result);
	job_release(&j);
	expect_success(create()); /* and the worker is as good as before */
	stop_core();
}
END_TEST

START_TEST(descriptions_are_made_once_and_again_when_a_file_changes)
{
	struct waiter w[4] = {0};
	struct waiter missing = {.r = {.kind = REQUEST_DESCRIBE, .model = "../tiny"}};
	char path[600];

	if (!prepare("descriptions", 1))
		return;
	start_core(NULL, 0);
	for (int i = 0; i < 4; i++) {
		w[i].r.kind = REQUEST_DESCRIBE;
		w[i].r.model = "tiny";
		submit(&w[i]); /* all at once: one worker answers them */
	}
	for (int i = 0; i < 4; i++) {
		ck_ok(wait_done(&w[i]), &w[i].r.err);
		ck_assert_str_eq(w[i].r.text, w[0].r.text);
		ck_assert_ptr_nonnull(strstr(w[i].r.text, "\"n_vocab\":300"));
	}
	/* the cache answers without a worker: one could not be started */
	bench.o.self = "/no/such/program";
	stop_core();
	start_core(NULL, 0);
	free(w[1].r.text);
	free(w[2].r.text);
	submit(&w[1]);
	ck_ok(wait_done(&w[1]), &w[1].r.err);
	ck_assert_str_eq(w[1].r.text, w[0].r.text);
	snprintf(path, sizeof path, "%s/tiny", bench.models);
	fixture_write(path, "generation_config.json", "{}", 2);
	submit(&w[2]);
	ck_err(wait_done(&w[2]), ERR_IO, "died", &w[2].r.err);
	submit(&missing);
	ck_assert_int_ne(wait_done(&missing), ERR_OK);
	stop_core();
	free(w[0].r.text);
	free(w[1].r.text);
	free(w[3].r.text);
}
END_TEST

/* A worker that says hello, and nothing more. */
static const char mute[] = "echo '{\"event\":\"hello\",\"protocol\":2,\"device\":{\"device\":\"cpu\",\"kind\":\"cpu\"},"
                           "\"signatures\":{\"f32\":\"mute\"}}'; cat > /dev/null\n";

START_TEST(a_worker_that_hangs_is_killed_and_counts_as_dead)
{
	const char *workers[1];
	char spec[600];
	struct job j;

	if (!prepare("a_worker_that_hangs", 1))
		return;
	fixture_write(bench.datasets, "mute.sh", mute, strlen(mute));
	snprintf(spec, sizeof spec, "sh %s/mute.sh", bench.datasets);
	workers[0] = spec;
	bench.o.hang_ms = 20; /* 200 for a plan */
	start_core(workers, 1);
	j = wait_state(create(), JOB_FAILED, JOB_SUCCEEDED);
	ck_assert_ptr_nonnull(strstr(j.error, "planned 3 times"));
	ck_assert_ptr_nonnull(strstr(j.error, "signal 9"));
	job_release(&j);
	stop_core();
}
END_TEST

static void put_line(struct waiter *w, const char *line)
{
	w->r.line = BUF_INIT(1000);
	buf_puts(&w->r.line, line);
}

/* The mute worker gets requests, too, and is killed for its silence: the other one answers them. If there is no other,
 * they are given up. */
START_TEST(requests_of_a_worker_that_hangs_are_another_ones)
{
	struct waiter w[4];
	const char *workers[2];
	char spec[600], line[200];

	if (!prepare("requests_of_a_worker_that_hangs", 1))
		return;
	fixture_write(bench.datasets, "mute.sh", mute, strlen(mute));
	snprintf(spec, sizeof spec, "sh %s/mute.sh", bench.datasets);
	workers[0] = spec;
	workers[1] = "cpu";
	bench.o.hang_ms = _i ? 500 : 3000; /* a slow machine is no worker that hangs */
	start_core(workers, _i ? 1 : 2);
	for (int i = 0; i < 4; i++) {
		w[i] = (struct waiter){.r = {.kind = REQUEST_SCORE, .id = i}};
		snprintf(
		    line, sizeof line,
		    "{\"cmd\":\"score\",\"request\":%d,\"model\":\"tiny\",\"prompts\":[[1,2,%d]],\"max_tokens\":1}", i,
		    i);
		put_line(&w[i], line);
		submit(&w[i]);
	}
	for (int i = 0; i < 4; i++) {
		if (_i) {
			ck_err(wait_done(&w[i]), ERR_DEVICE, "tried 3 times", &w[i].r.err);
		} else {
			ck_ok(wait_done(&w[i]), &w[i].r.err);
			ck_assert_uint_eq(json_count(json_get(w[i].r.reply, "prompts")), 1);
		}
		json_free(w[i].r.reply);
		buf_release(&w[i].r.line);
	}
	stop_core();
}
END_TEST

START_TEST(a_stopped_core_answers_requests_that_wait)
{
	struct waiter score = {.r = {.kind = REQUEST_SCORE, .id = 1}},
	              tokens = {.r = {.kind = REQUEST_TOKENS, .id = 2}};
	const char *workers[1];
	char spec[600];

	if (!prepare("requests_that_wait", 1))
		return;
	fixture_write(bench.datasets, "mute.sh", mute, strlen(mute));
	snprintf(spec, sizeof spec, "sh %s/mute.sh", bench.datasets);
	workers[0] = spec;
	start_core(workers, 1);
	put_line(&score, "{\"cmd\":\"score\",\"request\":1,\"model\":\"tiny\",\"prompts\":[[1]]}");
	put_line(&tokens, "{\"cmd\":\"tokenize\",\"request\":2,\"model\":\"tiny\",\"prompt\":\"ab\"}");
	submit(&score);
	submit(&tokens);
	ck_ok(wait_done(&tokens), &tokens.r.err); /* its own worker answers, whatever the other does */
	ck_assert_uint_eq(json_count(json_get(tokens.r.reply, "tokens")), 2);
	core_stop(bench.core);
	ck_err(wait_done(&score), ERR_CANCELLED, "stopping", &score.r.err);
	pthread_join(bench.thread, NULL);
	ck_assert_int_eq(bench.rc, ERR_OK);
	json_free(tokens.r.reply);
	buf_release(&tokens.r.line);
	buf_release(&score.r.line);
	store_close(bench.reader);
	core_free(bench.core);
}
END_TEST

START_TEST(workers_are_shown_from_any_thread)
{
	struct buf text = BUF_INIT(1 << 16);
	int64_t id;

	if (!prepare("workers_are_shown", 40))
		return;
	start_core(one_cpu, 1);
	id = create();
	for (;;) {
		struct json_writer w = JSON_WRITER(&text);
		struct json *j = NULL;
		const struct json *first;
		int64_t job = 0;

		buf_clear(&text);
		core_write_workers(bench.core, &w, NULL);
		core_job_live_tokens(bench.core, id);
		ck_ok(json_parse(text.data, text.len, &j, &e), &e);
		first = json_first(j);
		ck_assert_str_eq(json_get_string(first, "name"), "worker 0");
		if (json_get_integer(first, "job", &job))
			ck_assert_int_eq(job, id);
		json_free(j);
		if (job)
			break;
	}
	expect_success(id);
	buf_release(&text);
	stop_core();
}
END_TEST

START_TEST(a_stopped_core_answers_late_requests_at_once)
{
	struct waiter w = {.r = {.kind = REQUEST_CREATE, .create = new_job}};

	if (!prepare("a_stopped_core", 1))
		return;
	start_core(one_cpu, 1);
	core_stop(bench.core);
	pthread_join(bench.thread, NULL);
	ck_assert_int_eq(bench.rc, ERR_OK);
	submit(&w);
	ck_err(wait_done(&w), ERR_CANCELLED, "stopping", &w.r.err);
	store_close(bench.reader);
	core_free(bench.core);
}
END_TEST

Suite *core_suite(void);
Suite *core_suite(void)
{
	Suite *suite = suite_create("core");
	TCase *tc = tcase_create("core");

	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	tcase_add_test(tc, jobs_run_and_their_result_comes_with_the_state);
	tcase_add_test(tc, requests_of_one_group_succeed_and_fail_each_for_itself);
	tcase_add_test(tc, an_idempotency_key_makes_one_job);
	tcase_add_test(tc, without_workers_a_job_waits_and_says_so);
	tcase_add_test(tc, a_plan_that_cannot_be_made_fails_the_job_with_its_reason);
	tcase_add_test(tc, descriptions_are_made_once_and_again_when_a_file_changes);
	tcase_add_test(tc, a_worker_that_hangs_is_killed_and_counts_as_dead);
	tcase_add_loop_test(tc, requests_of_a_worker_that_hangs_are_another_ones, 0, 2);
	tcase_add_test(tc, a_stopped_core_answers_requests_that_wait);
	tcase_add_test(tc, workers_are_shown_from_any_thread);
	tcase_add_test(tc, a_stopped_core_answers_late_requests_at_once);
	return suite;
}
