/* The scheduler's rules, without processes: who plans, who runs what, what a death means. */
#include <stdlib.h>
#include <string.h>

#include "server/scheduler.h"
#include "tests/fixture.h"

#define SIGNATURE "fathom; cpu; f32"

static struct err e;
static struct scheduler sched;
static const struct err death = {ERR_DEVICE, "worker died: signal 9", ""};

static void up_as(size_t w, const char *device, const char *kind, const char *signatures)
{
	struct json *j = NULL;

	ck_ok(json_parse(signatures, strlen(signatures), &j, &e), &e);
	ck_ok(scheduler_up(&sched, w, device, kind, j, &e), &e);
	json_free(j);
}

static void up(size_t w)
{
	up_as(w, "cpu", "cpu", "{\"f32\":\"" SIGNATURE "\"}");
}

static struct sched_job *add_as(int64_t id, int priority, const char *engine, int64_t n_units)
{
	struct job j = {.id = id, .priority = priority, .state = JOB_QUEUED, .n_units = n_units};
	struct job_pins pins = {0};
	struct sched_job *out = NULL;

	j.model = j.task = j.dataset = (char[]){"x"};
	j.params = (char[]){"{}"};
	j.engine = (char *)engine;
	if (n_units)
		pins = (struct job_pins){strdup("m"), strdup("t"), strdup("d"), strdup(SIGNATURE)};
	ck_ok(scheduler_add(&sched, &j, &pins, &out, &e), &e);
	return out;
}

static struct sched_job *add(int64_t id, int priority)
{
	return add_as(id, priority, "{}", 0);
}

/* What the planned event of worker w does: n units of `tokens` each. */
static void plans(size_t w, uint32_t n, uint32_t tokens)
{
	uint32_t *list = malloc((n + 1) * sizeof *list);
	struct sched_job *j = sched.workers[w].job;

	for (uint32_t i = 0; i < n; i++)
		list[i] = tokens;
	if (!j->pins.signature)
		j->pins = (struct job_pins){strdup("m"), strdup("t"), strdup("d"), strdup(SIGNATURE)};
	j->state = JOB_RUNNING;
	ck_ok(scheduler_planned(&sched, w, list, n, &e), &e);
	free(list);
}

static void expect_next(size_t w, enum sched_step want, int64_t id)
{
	struct sched_job *j = NULL;

	ck_assert_int_eq(scheduler_next(&sched, w, &j), want);
	ck_assert_int_eq(j ? j->id : 0, id);
}

/* Takes the next step, which must be a plan of job `id`. */
static void take_plan(size_t w, int64_t id)
{
	expect_next(w, STEP_PLAN, id);
	scheduler_plan(&sched, w, scheduler_find(&sched, id));
}

static void take_run(size_t w, int64_t id, int64_t now_ms)
{
	expect_next(w, STEP_RUN, id);
	ck_ok(scheduler_run(&sched, w, now_ms, &e), &e);
}

/* Reports and stores the first n units of w's command. */
static void report(size_t w, uint32_t n)
{
	struct sched_worker *k = &sched.workers[w];

	for (uint32_t i = 0; i < n; i++) {
		uint32_t unit = k->units[k->n_reported];

		scheduler_reported(&sched, w, unit);
		scheduler_unit_done(k->job, unit);
	}
}

static void check_counts(const struct sched_job *j)
{
	uint32_t n[UNIT_FAILED + 1] = {0};

	for (uint32_t u = 0; u < j->n_units; u++)
		n[j->units[u]]++;
	ck_assert_uint_eq(n[UNIT_TODO], j->n_todo);
	ck_assert_uint_eq(n[UNIT_SUSPECT], j->n_suspect);
	ck_assert_uint_eq(n[UNIT_OUT], j->n_out);
	ck_assert_uint_eq(n[UNIT_DONE], j->n_done);
	ck_assert_uint_eq(n[UNIT_FAILED], j->n_failed);
	ck_assert_uint_eq(n[UNIT_GIVEN_UP], j->n_given_up);
}

static void with_workers(size_t n)
{
	scheduler_init(&sched, n);
	for (size_t w = 0; w < n; w++)
		up(w);
}

START_TEST(priority_goes_before_id)
{
	with_workers(1);
	add(1, 0);
	add(2, 5);
	add(3, 5);
	expect_next(0, STEP_PLAN, 2);
	scheduler_remove(&sched, scheduler_find(&sched, 2));
	expect_next(0, STEP_PLAN, 3);
	scheduler_remove(&sched, scheduler_find(&sched, 3));
	expect_next(0, STEP_PLAN, 1);
	scheduler_release(&sched);
}
END_TEST

START_TEST(one_worker_plans_first_and_then_two_share_the_job)
{
	struct sched_job *j;

	with_workers(2);
	j = add(1, 0);
	take_plan(0, 1);
	expect_next(1, STEP_NONE, 0); /* the first plan pins: nobody else meanwhile */
	plans(0, 10, 4096);
	take_run(0, 1, 0); /* 8192 tokens at first: two units */
	ck_assert_uint_eq(sched.workers[0].n_units, 2);
	take_plan(1, 1);
	plans(1, 10, 4096);
	take_run(1, 1, 0);
	ck_assert_uint_eq(sched.workers[1].units[0], 2); /* no unit is out twice */
	ck_assert_uint_eq(j->n_out, 4);
	check_counts(j);
	scheduler_release(&sched);
}
END_TEST

START_TEST(two_workers_take_one_each_of_two_equal_jobs)
{
	with_workers(2);
	add(1, 0);
	add(2, 0);
	take_plan(0, 1);
	plans(0, 10, 100);
	take_run(0, 1, 0);
	take_plan(1, 2);
	plans(1, 10, 100);
	take_run(1, 2, 0);
	/* and stay with the plan that they hold */
	report(0, 10);
	scheduler_unit_done(scheduler_find(&sched, 1), 0);
	scheduler_idle(&sched, 0, 100);
	expect_next(0, STEP_NONE, 0); /* job 1 is all done, job 2 all out */
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_job_of_higher_priority_comes_in_between_commands)
{
	with_workers(1);
	add(1, 0);
	take_plan(0, 1);
	plans(0, 10, 8192);
	take_run(0, 1, 0);
	add(2, 1);
	report(0, 1);
	scheduler_idle(&sched, 0, 10);
	take_plan(0, 2);
	ck_assert_ptr_eq(sched.workers[0].job, scheduler_find(&sched, 2));
	plans(0, 1, 10);
	take_run(0, 2, 20);
	report(0, 1);
	scheduler_idle(&sched, 0, 30);
	scheduler_remove(&sched, scheduler_find(&sched, 2));
	take_plan(0, 1); /* its plan was given up for the other's */
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_command_is_sized_to_some_seconds_of_work)
{
	struct sched_job *j;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 10000, 1000);
	take_run(0, 1, 0);
	ck_assert_uint_eq(sched.workers[0].n_units, 8);
	report(0, 8);
	scheduler_idle(&sched, 0, 400); /* 20 tokens a ms: 60 000 in 3 s */
	take_run(0, 1, 1000);
	ck_assert_uint_eq(sched.workers[0].n_units, 60);
	report(0, 60);
	scheduler_idle(&sched, 0, 1000 + 60000000); /* nothing moves: still one unit at least */
	take_run(0, 1, 0);
	ck_assert_uint_eq(sched.workers[0].n_units, 1);
	check_counts(j);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_death_makes_suspects_that_run_alone)
{
	struct sched_job *j;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 8, 2048);
	take_run(0, 1, 0);
	ck_assert_uint_eq(sched.workers[0].n_units, 4);
	report(0, 1);
	scheduler_lost(&sched, 0, true, &death);
	ck_assert_uint_eq(j->n_suspect, 3);
	ck_assert_uint_eq(j->n_todo, 4);
	ck_assert_uint_eq(j->n_done, 1);
	check_counts(j);
	up(0);
	take_plan(0, 1);
	plans(0, 8, 2048);
	for (uint32_t u = 1; u < 4; u++) {
		take_run(0, 1, 0);
		ck_assert_uint_eq(sched.workers[0].n_units, 1);
		ck_assert_uint_eq(sched.workers[0].units[0], u);
		report(0, 1);
		scheduler_idle(&sched, 0, 100);
	}
	take_run(0, 1, 0);
	ck_assert_uint_gt(sched.workers[0].n_units, 1); /* the rest goes together again */
	ck_assert_uint_eq(j->n_given_up + j->n_failed, 0);
	check_counts(j);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_unit_is_given_up_after_three_deaths_alone_and_only_it)
{
	struct sched_job *j;
	int deaths = 0;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 5, 2000);
	/* unit 2 kills whatever runs it */
	while (!scheduler_job_complete(j) && deaths < 20) {
		struct sched_worker *k = &sched.workers[0];
		bool poison = false;
		uint32_t before = 0;

		take_run(0, 1, 0);
		for (uint32_t i = 0; i < k->n_units && !poison; i++) {
			poison = k->units[i] == 2;
			before += !poison;
		}
		report(0, before);
		if (poison) {
			deaths++;
			scheduler_lost(&sched, 0, true, &death);
			check_counts(j);
			up(0);
			if (j->n_given_up) {
				ck_assert_uint_eq(j->given_up[0].unit, 2);
				ck_assert_ptr_nonnull(strstr(j->given_up[0].why.msg, "signal 9"));
				scheduler_unit_failed(j, 2);
			}
			if (!scheduler_job_complete(j)) {
				take_plan(0, 1);
				plans(0, 5, 2000);
			}
		} else {
			scheduler_idle(&sched, 0, 100);
		}
	}
	ck_assert_int_eq(deaths, 4); /* once in company, three times alone */
	ck_assert_uint_eq(j->n_done, 4);
	ck_assert_uint_eq(j->n_failed, 1);
	scheduler_release(&sched);
}
END_TEST

/* Ends every command of worker 0 with its death, until there is nothing to do; how many there were. */
static unsigned die_to_the_end(struct sched_job *j)
{
	struct sched_job *next = NULL;
	unsigned deaths = 0;

	while (scheduler_next(&sched, 0, &next) != STEP_NONE) {
		take_plan(0, j->id);
		plans(0, j->n_units, 100);
		take_run(0, j->id, 0);
		scheduler_lost(&sched, 0, true, &death);
		up(0);
		ck_assert_uint_lt(++deaths, 1000);
	}
	return deaths;
}

START_TEST(a_job_that_only_ever_kills_its_worker_is_given_up_early)
{
	struct sched_job *j;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 100, 100);
	take_run(0, 1, 0); /* of many units; then five are tried alone */
	scheduler_lost(&sched, 0, true, &death);
	up(0);
	ck_assert_uint_eq(die_to_the_end(j), SCHEDULER_HOPELESS * SCHEDULER_STRIKES);
	ck_assert_int_eq(j->failure.code, ERR_DEVICE);
	ck_assert_ptr_nonnull(strstr(j->failure.msg, "after 5 units"));
	ck_assert_ptr_nonnull(strstr(j->failure.msg, "signal 9"));
	check_counts(j);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_job_with_a_result_tries_every_unit)
{
	struct sched_job *j;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 10, 100);
	take_run(0, 1, 0);
	report(0, 1);
	scheduler_lost(&sched, 0, true, &death);
	up(0);
	ck_assert_uint_eq(die_to_the_end(j), 9 * SCHEDULER_STRIKES);
	ck_assert_int_eq(j->failure.code, ERR_OK);
	ck_assert_uint_eq(j->n_given_up, 9);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_worker_that_dies_idle_or_planning_strikes_no_unit)
{
	struct sched_job *j;

	with_workers(1);
	j = add_as(1, 0, "{}", 3);
	for (int i = 0; i < 2; i++) {
		take_plan(0, 1);
		scheduler_lost(&sched, 0, true, &death);
		up(0);
	}
	take_plan(0, 1);
	plans(0, 3, 10);
	ck_assert_uint_eq(j->plan_deaths, 0); /* a plan that came through clears them */
	scheduler_lost(&sched, 0, true, &death);
	ck_assert_uint_eq(j->n_todo, 3);
	up(0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(j->failure.code, ERR_OK);
		take_plan(0, 1);
		scheduler_lost(&sched, 0, true, &death);
		up(0);
	}
	ck_assert_int_eq(j->failure.code, ERR_DEVICE);
	ck_assert_ptr_nonnull(strstr(j->failure.msg, "planned 3 times"));
	expect_next(0, STEP_NONE, 0);
	scheduler_release(&sched);
}
END_TEST

START_TEST(stored_units_are_not_handed_out_after_a_restart)
{
	struct sched_job *j;

	with_workers(1);
	j = add_as(1, 0, "{}", 6);
	scheduler_unit_done(j, 0);
	scheduler_unit_done(j, 3);
	scheduler_unit_failed(j, 4);
	scheduler_unit_done(j, 3);
	check_counts(j);
	take_plan(0, 1);
	plans(0, 6, 10);
	take_run(0, 1, 0);
	ck_assert_uint_eq(sched.workers[0].n_units, 3);
	ck_assert_uint_eq(sched.workers[0].units[0], 1);
	ck_assert_uint_eq(sched.workers[0].units[1], 2);
	ck_assert_uint_eq(sched.workers[0].units[2], 5);
	report(0, 3);
	ck_assert(scheduler_job_complete(j));
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_pinned_job_waits_for_its_signature_and_says_so)
{
	char why[300];
	struct sched_job *j;

	scheduler_init(&sched, 2);
	j = add_as(1, 0, "{}", 3);
	ck_assert(!scheduler_job_waits(&sched, j, why, sizeof why)); /* nobody has said hello yet */
	up_as(0, "cpu", "cpu", "{\"f32\":\"another\"}");
	expect_next(0, STEP_NONE, 0);
	ck_assert(!scheduler_job_waits(&sched, j, why, sizeof why)); /* worker 1 may be the one */
	sched.workers[1].hopeless = true;
	ck_assert(scheduler_job_waits(&sched, j, why, sizeof why));
	ck_assert_ptr_nonnull(strstr(why, "no worker with signature '" SIGNATURE "'"));
	up(1);
	ck_assert(!scheduler_job_waits(&sched, j, why, sizeof why));
	expect_next(1, STEP_PLAN, 1);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_worker_that_says_it_is_unusable_is_waited_for_by_nobody_until_it_says_hello)
{
	char why[300];
	struct sched_job *any, *gpu;

	scheduler_init(&sched, 2);
	any = add_as(1, 0, "{}", 0);
	gpu = add_as(2, 0, "{\"device\":\"cuda\"}", 0);
	scheduler_unusable(&sched, 1, "device 'cuda:0': no driver");
	ck_assert(!scheduler_job_waits(&sched, gpu, why, sizeof why)); /* worker 0 may be the one */
	up(0);
	ck_assert(!scheduler_job_waits(&sched, any, why, sizeof why));
	expect_next(0, STEP_PLAN, 1);
	ck_assert(scheduler_job_waits(&sched, gpu, why, sizeof why));
	ck_assert_str_eq(why, "no worker with device 'cuda'; worker 1 is unusable: device 'cuda:0': no driver");
	up_as(1, "cuda:0", "cuda", "{\"bf16\":\"gpu\"}");
	ck_assert(!scheduler_job_waits(&sched, gpu, why, sizeof why));
	ck_assert_str_eq(sched.workers[1].unusable, "");
	scheduler_release(&sched);
}
END_TEST

START_TEST(device_and_dtype_choose_the_worker)
{
	static const struct {
		const char *engine, *why; /* NULL: goes to worker 1 */
	} table[] = {
	    {"{\"device\":\"cuda\"}", NULL},
	    {"{\"device\":\"cuda:1\",\"dtype\":\"bf16\"}", NULL},
	    {"{\"device\":\"cuda:0\"}", "no worker with device 'cuda:0'"},
	    {"{\"device\":\"cpu\",\"dtype\":\"bf16\"}", "no worker computes in 'bf16'"},
	    {"{\"dtype\":\"f16\"}", "no worker computes in 'f16'"},
	};
	char why[300];

	scheduler_init(&sched, 2);
	up(0);
	up_as(1, "cuda:1", "cuda", "{\"f32\":\"gpu f32\",\"bf16\":\"gpu bf16\"}");
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct sched_job *j = add_as(1, 0, table[i].engine, 0);

		expect_next(0, STEP_NONE, 0);
		ck_assert_int_eq(scheduler_job_waits(&sched, j, why, sizeof why), table[i].why != NULL);
		if (table[i].why)
			ck_assert_str_eq(why, table[i].why);
		else
			expect_next(1, STEP_PLAN, 1);
		scheduler_remove(&sched, j);
	}
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_job_that_asks_for_no_device_goes_to_a_gpu_if_there_is_one)
{
	scheduler_init(&sched, 2);
	up(0);
	add_as(1, 0, "{\"device\":\"auto\",\"dtype\":\"auto\"}", 0);
	add_as(2, 0, "{\"device\":\"cpu\"}", 0);
	expect_next(0, STEP_PLAN, 2); /* worker 1 may be a GPU */
	up_as(1, "cuda:0", "cuda", "{\"bf16\":\"gpu\"}");
	expect_next(0, STEP_PLAN, 2);
	expect_next(1, STEP_PLAN, 1);
	/* one that is known to be away for a while is still waited for; one that never came is not */
	scheduler_lost(&sched, 1, true, &death);
	expect_next(0, STEP_PLAN, 2);
	scheduler_forget_hello(&sched.workers[1]);
	expect_next(0, STEP_PLAN, 1);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_plan_that_fails_fails_the_job_unless_another_worker_has_it)
{
	const struct err memory = {ERR_MEMORY, "needs 9 GB", ""}, changed = {ERR_CHANGED, "model changed", ""};
	struct sched_job *j;

	with_workers(2);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 4, 10);
	take_plan(1, 1);
	scheduler_plan_failed(&sched, 1, &memory);
	ck_assert_int_eq(j->failure.code, ERR_OK);
	expect_next(1, STEP_NONE, 0); /* it is not asked again */
	expect_next(0, STEP_RUN, 1);
	scheduler_lost(&sched, 1, true, &death);
	up(1); /* until it starts anew */
	take_plan(1, 1);
	scheduler_plan_failed(&sched, 1, &changed);
	ck_assert_int_eq(j->failure.code, ERR_CHANGED);
	scheduler_remove(&sched, j);
	j = add(2, 0);
	take_plan(0, 2);
	scheduler_plan_failed(&sched, 0, &memory);
	ck_assert_int_eq(j->failure.code, ERR_MEMORY);
	scheduler_release(&sched);
}
END_TEST

START_TEST(a_job_that_goes_leaves_its_workers_to_settle)
{
	struct sched_job *j;
	int64_t ticket;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 4, 10);
	take_run(0, 1, 0);
	ticket = sched.workers[0].ticket;
	scheduler_remove(&sched, j);
	ck_assert_int_eq(sched.workers[0].state, WORKER_SETTLING);
	ck_assert_int_eq(sched.workers[0].ticket, ticket);
	scheduler_reported(&sched, 0, 0); /* a late result harms nothing */
	scheduler_settled(&sched, 0);
	ck_assert_int_eq(sched.workers[0].state, WORKER_IDLE);
	add(1, 0);
	take_plan(0, 1);
	ck_assert_int_gt(sched.workers[0].ticket, ticket); /* late events of the old plan are told apart */
	scheduler_release(&sched);
}
END_TEST

START_TEST(units_that_a_command_did_not_report_are_suspects)
{
	struct sched_job *j;

	with_workers(1);
	j = add(1, 0);
	take_plan(0, 1);
	plans(0, 4, 10);
	take_run(0, 1, 0);
	report(0, 3);
	scheduler_idle(&sched, 0, 10);
	ck_assert_uint_eq(j->n_suspect, 1);
	ck_assert_uint_eq(j->strikes[3], 0);
	/* a worker that never reports it must not have it for ever */
	for (int i = 0; i < 3; i++) {
		take_run(0, 1, 10);
		ck_assert_uint_eq(sched.workers[0].n_units, 1);
		scheduler_idle(&sched, 0, 20);
	}
	ck_assert_uint_eq(j->n_given_up, 1);
	expect_next(0, STEP_NONE, 0);
	scheduler_release(&sched);
}
END_TEST

/* Random deaths, failures and jobs: every unit ends once, no unit is out twice, the counts hold. */
START_TEST(any_order_of_events_ends_every_unit_once)
{
	for (unsigned seed = 1; seed <= 200; seed++) {
		struct sched_job *j;
		uint32_t n = 1 + (unsigned)rand_r(&seed) % 40;
		unsigned steps = 0;

		with_workers(3);
		j = add_as(1, 0, "{}", n);
		while (!scheduler_job_complete(j)) {
			size_t w = (unsigned)rand_r(&seed) % 3;
			struct sched_worker *k = &sched.workers[w];
			struct sched_job *next;

			ck_assert_uint_lt(steps++, 100000);
			if (k->state == WORKER_DOWN) {
				up(w);
			} else if (k->state == WORKER_IDLE) {
				enum sched_step step = scheduler_next(&sched, w, &next);

				if (step == STEP_PLAN)
					scheduler_plan(&sched, w, next);
				if (step == STEP_RUN)
					ck_ok(scheduler_run(&sched, w, steps, &e), &e);
			} else if (k->state == WORKER_PLANNING) {
				plans(w, n, 1 + (unsigned)rand_r(&seed) % 5000);
			} else if (rand_r(&seed) % 8 == 0) {
				scheduler_lost(&sched, w, true, &death);
			} else if (k->n_reported < k->n_units) {
				uint32_t unit = k->units[k->n_reported];

				ck_assert_uint_eq(j->units[unit], UNIT_OUT);
				scheduler_reported(&sched, w, unit);
				if (rand_r(&seed) % 16)
					scheduler_unit_done(j, unit);
				else
					scheduler_unit_failed(j, unit);
			} else {
				scheduler_idle(&sched, w, steps);
			}
			while (j->n_given_up)
				scheduler_unit_failed(j, j->given_up[0].unit);
			check_counts(j);
		}
		ck_assert_uint_eq(j->n_done + j->n_failed, n);
		scheduler_release(&sched);
	}
}
END_TEST

Suite *scheduler_suite(void);
Suite *scheduler_suite(void)
{
	Suite *suite = suite_create("scheduler");
	TCase *tc = tcase_create("scheduler");

	suite_add_tcase(suite, tc);
	tcase_add_test(tc, priority_goes_before_id);
	tcase_add_test(tc, one_worker_plans_first_and_then_two_share_the_job);
	tcase_add_test(tc, two_workers_take_one_each_of_two_equal_jobs);
	tcase_add_test(tc, a_job_of_higher_priority_comes_in_between_commands);
	tcase_add_test(tc, a_command_is_sized_to_some_seconds_of_work);
	tcase_add_test(tc, a_death_makes_suspects_that_run_alone);
	tcase_add_test(tc, a_unit_is_given_up_after_three_deaths_alone_and_only_it);
	tcase_add_test(tc, a_job_that_only_ever_kills_its_worker_is_given_up_early);
	tcase_add_test(tc, a_job_with_a_result_tries_every_unit);
	tcase_add_test(tc, a_worker_that_dies_idle_or_planning_strikes_no_unit);
	tcase_add_test(tc, stored_units_are_not_handed_out_after_a_restart);
	tcase_add_test(tc, a_pinned_job_waits_for_its_signature_and_says_so);
	tcase_add_test(tc, a_worker_that_says_it_is_unusable_is_waited_for_by_nobody_until_it_says_hello);
	tcase_add_test(tc, device_and_dtype_choose_the_worker);
	tcase_add_test(tc, a_job_that_asks_for_no_device_goes_to_a_gpu_if_there_is_one);
	tcase_add_test(tc, a_plan_that_fails_fails_the_job_unless_another_worker_has_it);
	tcase_add_test(tc, a_job_that_goes_leaves_its_workers_to_settle);
	tcase_add_test(tc, units_that_a_command_did_not_report_are_suspects);
	tcase_add_test(tc, any_order_of_events_ends_every_unit_once);
	return suite;
}
