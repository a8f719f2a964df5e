/* The worker process over its pipes: `fathom worker` with the real engine and a tiny model. FATHOM is the program, else
 * build/fathom. */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eval/eval.h"
#include "eval/wire.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_model.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define WAIT_MS      20000

static struct err e;
static char root[PATH_MAX], models[PATH_MAX + 16], datasets[PATH_MAX + 16];
static pid_t worker;
static int to_worker, from_worker;
static struct buf input;

/* -- the process ------------------------------------------------------------------------------- */

static void start(const char *device)
{
	const char *program = getenv("FATHOM");
	int in[2], out[2];

	if (!program)
		program = "build/fathom";
	ck_assert_int_eq(pipe(in), 0);
	ck_assert_int_eq(pipe(out), 0);
	worker = fork();
	ck_assert_int_ge(worker, 0);
	if (!worker) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[0]);
		close(in[1]);
		close(out[0]);
		close(out[1]);
		execl(program, "fathom", "worker", "--device", device, "--threads", "1", "--models", models,
		      "--datasets", datasets, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	to_worker = in[1];
	from_worker = out[0];
	input = BUF_INIT(WIRE_MAX_LINE);
}

/* Ends the worker as a server's death does, and returns its exit status. */
static int finish(void)
{
	int status;

	close(to_worker);
	ck_assert_int_eq(waitpid(worker, &status, 0), worker);
	close(from_worker);
	buf_release(&input);
	worker = 0;
	ck_assert_msg(WIFEXITED(status), "the worker died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void say(const char *line)
{
	size_t n = strlen(line);

	ck_assert_int_eq(write(to_worker, line, n), (ssize_t)n);
	ck_assert_int_eq(write(to_worker, "\n", 1), 1);
}

/* The next event, whatever it is. */
static struct json *next_event(void)
{
	struct pollfd p = {.fd = from_worker, .events = POLLIN};
	struct json *j = NULL;
	char chunk[1 << 16], *end;
	ssize_t n;

	while (!(end = memchr(buf_str(&input), '\n', input.len))) {
		ck_assert_msg(poll(&p, 1, WAIT_MS) == 1, "no event for %d ms", WAIT_MS);
		n = read(from_worker, chunk, sizeof chunk);
		ck_assert_msg(n > 0, "the worker ended");
		buf_append(&input, chunk, (size_t)n);
	}
	ck_ok(json_parse(input.data, (size_t)(end - input.data), &j, &e), &e);
	buf_consume(&input, (size_t)(end - input.data) + 1);
	return j;
}

static bool is_event(const struct json *j, const char *name)
{
	ck_assert_ptr_nonnull(json_get_string(j, "event"));
	return !strcmp(json_get_string(j, "event"), name);
}

/* The next event but for progress and alive; it must be of this name. */
static struct json *expect(const char *name)
{
	struct json *j = next_event();

	while (is_event(j, "progress") || is_event(j, "alive")) {
		json_free(j);
		j = next_event();
	}
	ck_assert_msg(is_event(j, name), "event %s (%s), not %s", json_get_string(j, "event"),
	              json_get_string(j, "message") ? json_get_string(j, "message") : "", name);
	return j;
}

static void expect_failure(int64_t job, const char *code, const char *words)
{
	struct json *j = expect("failed");
	int64_t got = -1;

	json_get_integer(j, "job", &got);
	ck_assert_int_eq(got, job);
	ck_assert_str_eq(json_get_string(j, "code"), code);
	ck_assert_msg(strstr(json_get_string(j, "message"), words) != NULL, "%s", json_get_string(j, "message"));
	json_free(j);
}

static void write_words(const char *name, size_t n)
{
	char *text = malloc(n);

	ck_assert_ptr_nonnull(text);
	for (size_t i = 0; i < n; i++)
		text[i] = i % 6 == 5 ? ' ' : (char)('a' + i * i % 26);
	fixture_write(datasets, name, text, n);
	free(text);
}

static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	snprintf(models, sizeof models, "%s/models", root);
	snprintf(datasets, sizeof datasets, "%s/datasets", root);
	ck_assert_int_eq(mkdir(models, 0700), 0);
	ck_assert_int_eq(mkdir(datasets, 0700), 0);
	model_free(fixture_eval_model(models, "tiny", "pope"));
	write_words("a.txt", 100);
	signal(SIGPIPE, SIG_IGN);
	start("cpu");
	json_free(expect("hello"));
}

static void tear_down(void)
{
	if (worker)
		finish();
}

#define PLAN(job, model, dataset, params, rest)                                                                        \
	"{\"cmd\":\"plan\",\"job\":" #job ",\"model\":\"" model "\",\"task\":\"pg19\",\"dataset\":\"" dataset          \
	"\",\"params\":" params rest "}"
#define ENGINE ",\"engine\":{\"dtype\":\"auto\",\"position\":null},\"pins\":null"

/* -- events ------------------------------------------------------------------------------------ */

START_TEST(the_first_line_says_hello_with_device_and_signatures)
{
	struct json *j;
	const struct json *device;

	finish();
	start("cpu");
	j = next_event();
	ck_assert(is_event(j, "hello"));
	ck_assert_double_eq(fixture_member(j, "protocol"), WIRE_PROTOCOL);
	ck_assert_double_eq(fixture_member(j, "pid"), worker);
	device = json_get(j, "device");
	ck_assert_str_eq(json_get_string(device, "kind"), "cpu");
	ck_assert_double_eq(fixture_member(device, "n_threads"), 1);
	ck_assert_double_gt(fixture_member(device, "memory_bytes"), 1e6);
	ck_assert_ptr_nonnull(strstr(json_get_string(json_get(j, "signatures"), "f32"), "; f32; "));
	json_free(j);
}
END_TEST

START_TEST(a_job_is_planned_and_run_and_its_units_are_those_of_a_local_run)
{
	struct model *m = NULL;
	struct session *s;
	struct evaluation *ev = NULL;
	struct fixture_units want;
	struct json *params = fixture_params(task_find("pg19", &e), "{\"lengths\":[8,32]}"), *j;
	const struct json *plan, *unit;
	char path[2 * PATH_MAX], data[2 * PATH_MAX];
	uint32_t seen = 0;

	snprintf(path, sizeof path, "%s/tiny", models);
	snprintf(data, sizeof data, "%s/a.txt", datasets);
	ck_ok(model_open(path, NULL, &m, &e), &e);
	s = fixture_eval_session(m);
	ck_ok(evaluation_open(m, task_find("pg19", &e), params, data, "a.txt", NULL, NULL, &ev, &e), &e);
	fixture_units_init(&want, 2);
	fixture_run(ev, s, NULL, 0, &want);

	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8,32]}", ENGINE));
	j = expect("planned");
	plan = json_get(j, "plan");
	ck_assert_double_eq(fixture_member(j, "job"), 7);
	ck_assert_double_eq(fixture_member(plan, "n_units"), 2);
	ck_assert_double_eq(fixture_member(plan, "tokens"), 198);
	ck_assert_uint_eq(json_count(json_get(plan, "unit_tokens")), 2);
	ck_assert_double_gt(fixture_member(plan, "memory_bytes"), 1000);
	ck_assert_str_eq(json_get_string(json_get(plan, "dataset"), "fingerprint"), evaluation_fingerprint(ev));
	ck_assert_str_eq(json_get_string(json_get(plan, "engine"), "dtype"), "f32");
	json_free(j);
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[1,2],[0,1]]}");
	while (seen < 2) {
		j = expect("units");
		ck_assert_double_ge(fixture_member(j, "seconds"), 0);
		for (unit = json_first(json_get(j, "units")); unit; unit = json_next(unit), seen++) {
			struct buf text = BUF_INIT(1 << 16);
			struct json_writer w = JSON_WRITER(&text);
			int64_t i;

			ck_assert(json_integer(json_first(unit), &i));
			ck_assert_int_eq(i, 1 - (int64_t)seen); /* in the order asked for */
			json_put_value(&w, NULL, json_next(json_first(unit)));
			ck_assert_str_eq(buf_str(&text), want.text[i]); /* to the bit */
			buf_release(&text);
		}
		json_free(j);
	}
	json_free(expect("idle"));
	fixture_units_release(&want);
	evaluation_free(ev);
	session_close(s);
	model_free(m);
	json_free(params);
}
END_TEST

START_TEST(what_is_no_command_is_answered_and_survived)
{
	static const struct {
		const char *line;
		int64_t job;
		const char *words;
	} cases[] = {
	    {"garbage", -1, "command: JSON"},
	    {"{\"cmd\":\"run\"", -1, "command: JSON"},
	    {"[]", -1, "no string 'cmd'"},
	    {"{\"cmd\":7}", -1, "no string 'cmd'"},
	    {"{\"cmd\":\"dance\",\"job\":3}", 3, "command 'dance' is not known"},
	    {"{\"cmd\":\"run\",\"units\":[[0,1]]}", -1, "no integer 'job'"},
	    {"{\"cmd\":\"run\",\"job\":-2}", -1, "no integer 'job'"},
	    {"{\"cmd\":\"run\",\"job\":99,\"units\":[[0,1]]}", 99, "job 99 is not planned here"},
	    {"{\"cmd\":\"plan\",\"job\":4}", 4, "needs the strings"},
	    {"{\"cmd\":\"describe\"}", -1, "no string 'model'"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct json *j;
		int64_t job = -1;

		say(cases[i].line);
		j = expect("failed");
		json_get_integer(j, "job", &job);
		if (cases[i].job >= 0)
			ck_assert_int_eq(job, cases[i].job);
		ck_assert_msg(strstr(json_get_string(j, "message"), cases[i].words) != NULL, "%s",
		              json_get_string(j, "message"));
		json_free(j);
	}
	say("{\"cmd\":\"forget\",\"job\":5}");
	say("{\"cmd\":\"cancel\",\"job\":5}"); /* nothing to forget or to cancel: no event */
	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
	json_free(expect("planned"));
	ck_assert_int_eq(finish(), 0);
}
END_TEST

START_TEST(a_line_that_is_too_long_is_dropped_and_told)
{
	static char chunk[1 << 20];

	memset(chunk, 'x', sizeof chunk);
	for (size_t i = 0; i < (WIRE_MAX_LINE >> 20) + 2; i++)
		for (size_t at = 0; at < sizeof chunk;) {
			ssize_t n = write(to_worker, chunk + at, sizeof chunk - at);

			ck_assert_int_gt(n, 0);
			at += (size_t)n;
		}
	ck_assert_int_eq(write(to_worker, "\n", 1), 1);
	expect_failure(-1, "input", "longer than a line may be");
	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
	json_free(expect("planned"));
}
END_TEST

START_TEST(what_a_plan_cannot_do_fails_the_job_and_not_the_worker)
{
	static const struct {
		const char *line, *code, *words;
	} cases[] = {
	    {PLAN(7, "absent", "a.txt", "{}", ENGINE), "not_found", "no model 'absent'"},
	    {PLAN(7, "../models/tiny", "a.txt", "{}", ENGINE), "input", "hidden or relative"},
	    {PLAN(7, "tiny", "b.txt", "{}", ENGINE), "not_found", "no dataset 'b.txt'"},
	    {PLAN(7, "tiny", "../a.txt", "{}", ENGINE), "input", "hidden or relative"},
	    {PLAN(7, "tiny", "a.txt", "{\"lengths\":[0]}", ENGINE), "input", "0 is not an integer"},
	    {PLAN(7, "tiny", "a.txt", "{\"lengths\":[500],\"last_window\":\"drop\"}", ENGINE), "input",
	     "no document has a window"},
	    {PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ",\"engine\":{\"dtype\":\"f64\"}"), "input", "f64"},
	    {PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ",\"engine\":{\"position\":{\"type\":\"alibi\"}}"), "input",
	     "alibi"},
	    {"{\"cmd\":\"plan\",\"job\":7,\"model\":\"tiny\",\"task\":\"pg20\",\"dataset\":\"a.txt\",\"params\":{}}",
	     "input", "unknown task 'pg20'"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		say(cases[i].line);
		expect_failure(7, cases[i].code, cases[i].words);
	}
}
END_TEST

START_TEST(a_run_of_units_that_are_not_there_is_refused)
{
	static const char *const ranges[] = {"[[0,3]]", "[[2,2]]", "[[-1,1]]", "[[1,0]]",      "[]",
	                                     "[[0]]",   "[0,1]",   "null",     "[[0,2],[0,2]]"};
	char line[200];

	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8,16]}", ENGINE));
	json_free(expect("planned"));
	for (size_t i = 0; i < COUNT(ranges); i++) {
		snprintf(line, sizeof line, "{\"cmd\":\"run\",\"job\":7,\"units\":%s}", ranges[i]);
		say(line);
		expect_failure(7, "input", "run: ");
	}
	say("{\"cmd\":\"forget\",\"job\":7}");
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,1]]}");
	expect_failure(7, "conflict", "not planned here");
}
END_TEST

START_TEST(a_lying_checkpoint_fails_its_job_by_the_tensors_name)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/tiny/model.safetensors", models);
	ck_assert_int_eq(truncate(path, 20000), 0);
	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
	expect_failure(7, "input", "tensor '");
	say("{\"cmd\":\"describe\",\"model\":\"tiny\"}");
	expect_failure(-1, "input", "model.safetensors");
	ck_assert_int_eq(finish(), 0);
}
END_TEST

/* -- pins -------------------------------------------------------------------------------------- */

/* The plan's pins as JSON, from a planned event. */
static void take_pins(char *out, size_t size, const char *signature)
{
	struct json *j = expect("planned");
	const struct json *plan = json_get(j, "plan"), *model = json_get(plan, "model");

	snprintf(out, size, "{\"model\":\"%s\",\"tokenizer\":\"%s\",\"dataset\":\"%s\",\"signature\":\"%s\"}",
	         json_get_string(model, "fingerprint"), json_get_string(model, "tokenizer_fingerprint"),
	         json_get_string(json_get(plan, "dataset"), "fingerprint"),
	         signature ? signature : json_get_string(json_get(plan, "engine"), "signature"));
	json_free(j);
}

static void say_pinned(const char *pins)
{
	char line[2000];

	snprintf(line, sizeof line,
	         "{\"cmd\":\"plan\",\"job\":8,\"model\":\"tiny\",\"task\":\"pg19\",\"dataset\":\"a.txt\","
	         "\"params\":{\"lengths\":[8]},\"engine\":{},\"pins\":%s}",
	         pins);
	say(line);
}

START_TEST(a_pinned_job_goes_on_only_with_the_same_bytes)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	char pins[1200], other[1200], path[2 * PATH_MAX];

	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
	take_pins(pins, sizeof pins, NULL);
	say_pinned(pins);
	take_pins(other, sizeof other, "fathom 0.0; another");
	say_pinned(other);
	expect_failure(8, "conflict", "this worker is 'fathom");

	write_words("a.txt", 101);
	say_pinned(pins);
	expect_failure(8, "changed", "dataset 'a.txt' changed on disk");
	write_words("a.txt", 100);
	say_pinned(pins);
	json_free(expect("planned"));

	f.position = "pope";
	f.n_vocab = 257;
	f.tokenizer = true;
	f.tied = false;
	f.seed += 1;
	snprintf(path, sizeof path, "%s/tiny", models);
	fixture_model_write(path, &f);
	say_pinned(pins);
	expect_failure(8, "changed", "model 'tiny' changed on disk");
	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE)); /* without pins: the new one */
	json_free(expect("planned"));
}
END_TEST

START_TEST(a_model_that_changed_under_the_same_name_is_loaded_anew)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	char path[2 * PATH_MAX];
	double nll[3];

	for (int i = 0; i < 3; i++) { /* the same twice, then another */
		struct json *j;

		if (i == 2) {
			f.position = "pope";
			f.n_vocab = 257;
			f.tokenizer = true;
			f.tied = false;
			f.seed += 1;
			snprintf(path, sizeof path, "%s/tiny", models);
			fixture_model_write(path, &f);
		}
		say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
		json_free(expect("planned"));
		say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,1]]}");
		j = expect("units");
		nll[i] = fixture_member(json_next(json_first(json_first(json_get(j, "units")))), "nll");
		json_free(j);
		json_free(expect("idle"));
	}
	ck_assert(nll[0] == nll[1]);
	ck_assert(nll[1] != nll[2]);
}
END_TEST

/* The nll of one unit of a job that is planned. */
static double run_unit(int job, int unit)
{
	char line[200];
	struct json *j;
	double nll;

	snprintf(line, sizeof line, "{\"cmd\":\"run\",\"job\":%d,\"units\":[[%d,%d]]}", job, unit, unit + 1);
	say(line);
	j = expect("units");
	nll = fixture_member(json_next(json_first(json_first(json_get(j, "units")))), "nll");
	json_free(j);
	json_free(expect("idle"));
	return nll;
}

START_TEST(jobs_of_two_models_interleave)
{
	double first[2], second[2];

	model_free(fixture_eval_model(models, "other", "rope"));
	say(PLAN(1, "tiny", "a.txt", "{\"lengths\":[8,32]}", ENGINE));
	json_free(expect("planned"));
	say(PLAN(2, "other", "a.txt", "{\"lengths\":[8,32]}", ENGINE));
	json_free(expect("planned"));
	for (int i = 0; i < 2; i++) {
		first[i] = run_unit(1, i);
		second[i] = run_unit(2, i);
		ck_assert(first[i] != second[i]);
	}
	say("{\"cmd\":\"forget\",\"job\":1}");
	for (int i = 0; i < 2; i++)
		ck_assert(run_unit(2, i) == second[i]);
	say(PLAN(1, "tiny", "a.txt", "{\"lengths\":[8,32]}", ENGINE));
	json_free(expect("planned"));
	for (int i = 0; i < 2; i++)
		ck_assert(run_unit(1, i) == first[i]);
}
END_TEST

START_TEST(a_unit_that_fails_is_told_and_the_run_goes_on)
{
	char folder[2 * PATH_MAX];
	struct json *j;

	snprintf(folder, sizeof folder, "%s/three", datasets);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	fixture_eval_poison(models, "tiny", 'Z');
	fixture_write(datasets, "three/a.txt", "all is well", 11);
	fixture_write(datasets, "three/b.txt", "a Zebra", 7);
	fixture_write(datasets, "three/c.txt", "well again", 10);
	say(PLAN(7, "tiny", "three", "{\"lengths\":[8]}", ENGINE));
	json_free(expect("planned"));
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,3]]}");
	json_free(expect("units"));
	j = expect("failed");
	ck_assert_str_eq(json_get_string(j, "code"), "numeric");
	ck_assert_uint_eq(json_count(json_get(j, "units")), 1);
	ck_assert_double_eq(fixture_member(j, "job"), 7);
	json_free(j);
	json_free(expect("units"));
	json_free(expect("idle"));
}
END_TEST

/* -- cancel, life and death -------------------------------------------------------------------- */

START_TEST(a_running_job_is_cancelled_and_the_worker_goes_on)
{
	struct json *j;
	bool running = false;

	write_words("long.txt", 2000000);
	say(PLAN(7, "tiny", "long.txt", "{\"lengths\":[512]}", ENGINE));
	json_free(expect("planned"));
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,30]]}");
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,1]]}"); /* waits in the queue, and is cancelled there */
	while (!running) {
		j = next_event();
		running = is_event(j, "progress");
		if (running)
			ck_assert_str_eq(json_get_string(j, "phase"), "run");
		json_free(j);
	}
	say("{\"cmd\":\"cancel\",\"job\":6}"); /* another job: nothing stops */
	say("{\"cmd\":\"cancel\",\"job\":7}");
	for (bool cancelled = false; !cancelled; json_free(j)) {
		j = next_event();
		ck_assert(!is_event(j, "idle") && !is_event(j, "failed"));
		cancelled = is_event(j, "cancelled");
	}
	json_free(expect("cancelled"));
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[]}");
	expect_failure(7, "input", "run: "); /* not "not planned here": the plan is still there */
	say(PLAN(8, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
	json_free(expect("planned"));
	say("{\"cmd\":\"run\",\"job\":8,\"units\":[[0,1]]}");
	json_free(expect("units"));
	json_free(expect("idle"));
}
END_TEST

START_TEST(alive_comes_every_two_seconds_with_a_count_that_moves)
{
	double last = -1;
	int n = 0;

	write_words("long.txt", 8000000);
	say(PLAN(7, "tiny", "long.txt", "{\"lengths\":[4096]}", ENGINE));
	json_free(expect("planned"));
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,122]]}");
	while (n < 2) {
		struct json *j = next_event();

		ck_assert(!is_event(j, "idle"));
		if (is_event(j, "alive") && fixture_member(j, "done_tokens") > 0) {
			ck_assert_double_gt(fixture_member(j, "done_tokens"), last);
			last = fixture_member(j, "done_tokens");
			n++;
		}
		json_free(j);
	}
	ck_assert_int_eq(finish(), 0); /* EOF in the middle of a run: gone at once */
}
END_TEST

START_TEST(the_end_of_stdin_ends_the_worker_at_once)
{
	ck_assert_int_eq(finish(), 0);
}
END_TEST

START_TEST(a_worker_ignores_the_terminals_interrupt)
{
	ck_assert_int_eq(kill(worker, SIGINT), 0);
	say(PLAN(7, "tiny", "a.txt", "{\"lengths\":[8]}", ENGINE));
	json_free(expect("planned"));
}
END_TEST

START_TEST(a_worker_without_a_device_describes_and_refuses_the_rest)
{
	struct json *j;

	finish();
	start("none");
	j = expect("hello");
	ck_assert_str_eq(json_get_string(json_get(j, "device"), "kind"), "none");
	ck_assert_uint_eq(json_count(json_get(j, "signatures")), 0);
	json_free(j);
	say("{\"cmd\":\"describe\",\"model\":\"tiny\"}");
	j = expect("described");
	ck_assert_str_eq(json_get_string(j, "model"), "tiny");
	ck_assert_double_eq(fixture_member(json_get(j, "description"), "n_vocab"), 257);
	json_free(j);
	say(PLAN(7, "tiny", "a.txt", "{}", ENGINE));
	expect_failure(7, "device", "has no device");
}
END_TEST

START_TEST(a_device_that_is_not_there_is_told_and_an_exit_status)
{
	struct json *j;

	finish();
	start("cuda:99");
	j = expect("unusable");
	ck_assert_str_eq(json_get_string(j, "code"), "device");
	ck_assert_ptr_nonnull(strstr(json_get_string(j, "message"), "device 'cuda:99'"));
	json_free(j);
	ck_assert_int_eq(finish(), 2);
}
END_TEST

/* -- requests ---------------------------------------------------------------------------------- */

static void check_number(const struct json *list, size_t i, float want)
{
	const struct json *v = json_first(list);
	double got;

	while (i--)
		v = json_next(v);
	ck_assert(json_number(v, &got));
	ck_assert_double_eq(got, (double)want); /* to the bit */
}

START_TEST(prompts_are_scored_to_the_bits_of_a_session)
{
	uint32_t ids[] = {'h', 'e', 'l', 'l', 'o', ' ', 'y', 'o', 'u', 0};
	uint8_t score[] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1};
	struct segment one = {-1, 0, 10};
	struct token_score want[10];
	struct model *m = NULL;
	struct session *s;
	struct json *j;
	const struct json *p;
	char path[2 * PATH_MAX], key[2] = "";

	snprintf(path, sizeof path, "%s/tiny", models);
	ck_ok(model_open(path, NULL, &m, &e), &e);
	s = fixture_eval_session(m);
	ck_ok(session_score(s, &(struct batch){ids, score, 10, &one, 1}, want, &e), &e);
	say("{\"cmd\":\"score\",\"request\":5,\"model\":\"tiny\",\"prompts\":[\"hello "
	    "you\",[104,101]],\"max_tokens\":1,"
	    "\"echo\":true,\"logprobs\":true}");
	j = expect("scored");
	ck_assert_double_eq(fixture_member(j, "request"), 5);
	ck_assert_ptr_nonnull(strstr(json_get_string(j, "signature"), "; f32; "));
	ck_assert_uint_eq(json_count(json_get(j, "prompts")), 2);
	p = json_first(json_get(j, "prompts"));
	ck_assert_double_eq(fixture_member(p, "n_prompt"), 9);
	ck_assert_double_eq(fixture_member(p, "n_generated"), 1);
	ck_assert(json_is_null(json_first(json_get(p, "logprobs"))));
	for (size_t i = 1; i < 9; i++) {
		check_number(json_get(p, "logprobs"), i, want[i].logprob);
		check_number(json_get(p, "argmax_logprobs"), i, want[i].argmax_logprob);
	}
	check_number(json_get(p, "logprobs"), 9, want[9].argmax_logprob); /* the most probable token */
	if (want[9].argmax < 128 && want[9].argmax) {
		key[0] = (char)want[9].argmax;
		ck_assert_str_eq(json_get_string(p, "text") + 9, key);
	}
	check_number(json_get(json_next(p), "logprobs"), 1, want[1].logprob);
	json_free(j);
	session_close(s);
	model_free(m);
}
END_TEST

static void expect_refusal(int64_t request, const char *code, const char *words)
{
	struct json *j = expect("failed");
	int64_t got = -1;

	json_get_integer(j, "request", &got);
	ck_assert_int_eq(got, request);
	ck_assert_str_eq(json_get_string(j, "code"), code);
	ck_assert_msg(strstr(json_get_string(j, "message"), words) != NULL, "%s", json_get_string(j, "message"));
	json_free(j);
}

#define SCORE(request, rest) "{\"cmd\":\"score\",\"request\":" #request "," rest "}"

START_TEST(what_is_wrong_with_a_request_is_said_of_it_alone)
{
	static const struct {
		const char *line, *code, *words;
	} cases[] = {
	    {SCORE(3, "\"model\":\"absent\",\"prompts\":[\"a\"]"), "not_found", "no model 'absent'"},
	    {SCORE(3, "\"prompts\":[\"a\"]"), "input", "no string 'model'"},
	    {SCORE(3, "\"model\":\"tiny\""), "input", "0 prompts"},
	    {SCORE(3, "\"model\":\"tiny\",\"prompts\":[]"), "input", "0 prompts"},
	    {SCORE(3, "\"model\":\"tiny\",\"prompts\":[\"a\",\"\"]"), "input", "prompt 1: it has no token"},
	    {SCORE(3, "\"model\":\"tiny\",\"prompts\":[[1,257]]"), "input", "token id 257 at position 1"},
	    {SCORE(3, "\"model\":\"tiny\",\"prompts\":[[1,-1]]"), "input", "element 1 is not a token id"},
	    {SCORE(3, "\"model\":\"tiny\",\"prompts\":[\"a\"],\"max_tokens\":17"), "input", "want 0 to 16"},
	    {"{\"cmd\":\"tokenize\",\"request\":3,\"model\":\"tiny\"}", "input", "no string 'prompt'"},
	    {"{\"cmd\":\"detokenize\",\"request\":3,\"model\":\"tiny\"}", "input", "no array 'tokens'"},
	    {"{\"cmd\":\"tokenizer_info\",\"request\":3,\"model\":\"absent\"}", "not_found", "no model"},
	    {"{\"cmd\":\"dance\",\"request\":3}", "input", "command 'dance' is not known"},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		say(cases[i].line);
		expect_refusal(3, cases[i].code, cases[i].words);
	}
	say("{\"cmd\":\"score\",\"model\":\"tiny\",\"prompts\":[\"a\"]}");
	expect_failure(-1, "input", "no integer 'request'");
	say(SCORE(4, "\"model\":\"tiny\",\"prompts\":[\"a\"],\"max_tokens\":2"));
	json_free(expect("scored"));
}
END_TEST

START_TEST(a_request_that_turns_nan_fails_alone)
{
	model_free(fixture_eval_model(models, "sick", "rope"));
	fixture_eval_poison(models, "sick", 'x');
	say(SCORE(1, "\"model\":\"sick\",\"prompts\":[\"all is well\",\"not for xs\"],\"max_tokens\":1"));
	expect_refusal(1, "numeric", "prompt 1");
	say(SCORE(2, "\"model\":\"sick\",\"prompts\":[\"all is well\"],\"max_tokens\":1"));
	json_free(expect("scored"));
}
END_TEST

START_TEST(without_a_device_there_are_tokens_and_no_scores)
{
	struct json *j;

	finish();
	start("none");
	json_free(expect("hello"));
	say(SCORE(1, "\"model\":\"tiny\",\"prompts\":[\"a\"]"));
	expect_refusal(1, "device", "no device");
	say("{\"cmd\":\"tokenize\",\"request\":2,\"model\":\"tiny\",\"prompt\":\"a<|endoftext|>b\"}");
	j = expect("tokens");
	ck_assert_uint_eq(json_count(json_get(j, "tokens")), 3);
	check_number(json_get(j, "tokens"), 1, 256);
	ck_assert_double_eq(fixture_member(j, "n_ctx"), 64);
	json_free(j);
	say("{\"cmd\":\"detokenize\",\"request\":3,\"model\":\"tiny\",\"tokens\":[97,256,195,164]}");
	j = expect("tokens");
	ck_assert_str_eq(json_get_string(j, "prompt"), "a<|endoftext|>\xC3\xA4");
	json_free(j);
}
END_TEST

/* A job of many small batches, and a request: the request is answered before the job ends, wherever it comes. */
START_TEST(a_job_gives_way_to_a_request_between_its_batches)
{
	struct json *j;
	bool scored = false;
	unsigned after = 0;

	write_words("long.txt", 200000);
	say(PLAN(7, "tiny", "long.txt", "{\"lengths\":[64]}", ENGINE));
	json_free(expect("planned"));
	say("{\"cmd\":\"run\",\"job\":7,\"units\":[[0,2]]}");
	say(SCORE(1, "\"model\":\"tiny\",\"prompts\":[\"hello\"],\"max_tokens\":1"));
	for (j = next_event(); !is_event(j, "idle"); j = next_event()) {
		if (is_event(j, "scored"))
			scored = true;
		else if (is_event(j, "units"))
			after += scored;
		json_free(j);
	}
	json_free(j);
	ck_assert(scored);
	ck_assert_uint_ge(after, 1);
	say("{\"cmd\":\"cancel\",\"job\":7}");
	say(SCORE(2, "\"model\":\"tiny\",\"prompts\":[\"hello\"],\"max_tokens\":1")); /* no stop is left behind */
	json_free(expect("scored"));
}
END_TEST

Suite *worker_suite(void);
Suite *worker_suite(void)
{
	Suite *s = suite_create("worker");
	TCase *c = tcase_create("worker");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 120);
	tcase_add_test(c, the_first_line_says_hello_with_device_and_signatures);
	tcase_add_test(c, a_job_is_planned_and_run_and_its_units_are_those_of_a_local_run);
	tcase_add_test(c, what_is_no_command_is_answered_and_survived);
	tcase_add_test(c, a_line_that_is_too_long_is_dropped_and_told);
	tcase_add_test(c, what_a_plan_cannot_do_fails_the_job_and_not_the_worker);
	tcase_add_test(c, a_run_of_units_that_are_not_there_is_refused);
	tcase_add_test(c, a_lying_checkpoint_fails_its_job_by_the_tensors_name);
	tcase_add_test(c, a_pinned_job_goes_on_only_with_the_same_bytes);
	tcase_add_test(c, a_model_that_changed_under_the_same_name_is_loaded_anew);
	tcase_add_test(c, jobs_of_two_models_interleave);
	tcase_add_test(c, a_unit_that_fails_is_told_and_the_run_goes_on);
	tcase_add_test(c, a_running_job_is_cancelled_and_the_worker_goes_on);
	tcase_add_test(c, alive_comes_every_two_seconds_with_a_count_that_moves);
	tcase_add_test(c, the_end_of_stdin_ends_the_worker_at_once);
	tcase_add_test(c, a_worker_ignores_the_terminals_interrupt);
	tcase_add_test(c, a_worker_without_a_device_describes_and_refuses_the_rest);
	tcase_add_test(c, a_device_that_is_not_there_is_told_and_an_exit_status);
	tcase_add_test(c, prompts_are_scored_to_the_bits_of_a_session);
	tcase_add_test(c, what_is_wrong_with_a_request_is_said_of_it_alone);
	tcase_add_test(c, a_request_that_turns_nan_fails_alone);
	tcase_add_test(c, without_a_device_there_are_tokens_and_no_scores);
	tcase_add_test(c, a_job_gives_way_to_a_request_between_its_batches);
	suite_add_tcase(s, c);
	return s;
}
