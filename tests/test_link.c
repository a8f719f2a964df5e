/* Links to real processes: what the shell writes stands for a worker that behaves, or does not. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "eval/wire.h"
#include "server/launcher.h"
#include "server/link.h"
#include "tests/fixture.h"

static struct err e;

static struct link *start(const char *script)
{
	struct launch launch = {0};
	struct link *l = NULL;
	char spec[2000];

	snprintf(spec, sizeof spec, "sh -c '%s'", script);
	ck_ok(launch_make(spec, "unused", &(struct registry){0}, &launch, &e), &e);
	ck_ok(link_open(&launch, "worker 9", &l, &e), &e);
	launch_release(&launch);
	return l;
}

static void turn(struct link *l)
{
	struct pollfd fds[LINK_FDS];

	link_poll(l, false, fds);
	poll(fds, LINK_FDS, 20);
	link_handle(l, fds);
}

/* The next line, waited for. */
static const char *wait_line(struct link *l, size_t *len)
{
	const char *line;

	while ((line = link_line(l, len)) == NULL && !link_ended(l))
		turn(l);
	return line ? line : link_line(l, len);
}

/* Waits up to two seconds for a process that is not our child to be gone, or dead and not yet asked for. */
static bool ends_soon(pid_t pid)
{
	for (int i = 0; i < 200; i++) {
		char path[64], state = 'X';
		FILE *f;

		snprintf(path, sizeof path, "/proc/%d/stat", pid);
		f = fopen(path, "r");
		if (!f)
			return true;
		if (fscanf(f, "%*d %*s %c", &state) != 1)
			state = 'X';
		fclose(f);
		if (state == 'Z' || state == 'X')
			return true;
		usleep(10000);
	}
	return false;
}

static void wait_end(struct link *l)
{
	while (!link_ended(l))
		turn(l);
}

static void expect_line(struct link *l, const char *want)
{
	size_t len = 0;
	const char *line = wait_line(l, &len);

	ck_assert_ptr_nonnull(line);
	ck_assert_str_eq(line, want);
	ck_assert_uint_eq(len, strlen(want));
	link_take(l);
}

START_TEST(lines_come_whole_and_in_order_however_they_are_cut)
{
	struct link *l =
	    start("printf \"one\\ntw\"; sleep .05; printf \"o\\n\\nfour\\nfi\"; sleep .05; printf \"ve\\nrest\"");
	size_t len;

	expect_line(l, "one");
	expect_line(l, "two");
	expect_line(l, "");
	expect_line(l, "four");
	expect_line(l, "five");
	ck_assert_ptr_null(wait_line(l, &len)); /* a line without its end is none */
	ck_assert(link_ended(l));
	ck_assert_str_eq(link_obituary(l), "exit status 0");
	link_close(l);
}
END_TEST

START_TEST(a_line_stays_until_it_is_taken)
{
	struct link *l = start("echo a; echo b");
	size_t len;

	ck_assert_str_eq(wait_line(l, &len), "a");
	ck_assert_str_eq(link_line(l, &len), "a");
	for (int i = 0; i < 20; i++)
		turn(l);
	ck_assert(!link_ended(l)); /* dead, but not all of it is dealt with */
	expect_line(l, "a");
	ck_assert(!link_ended(l));
	expect_line(l, "b");
	ck_assert(link_ended(l));
	link_close(l);
}
END_TEST

START_TEST(a_line_of_many_megabytes_passes_both_ways)
{
	size_t n = 20 << 20, len = 0;
	char *big = malloc(n + 1);
	struct link *l = start("cat");
	const char *line;

	for (size_t i = 0; i < n; i++)
		big[i] = (char)('a' + i * 7 % 23);
	big[n] = 0;
	ck_ok(link_send(l, big, n, &e), &e);
	ck_ok(link_send(l, "short", 5, &e), &e);
	line = wait_line(l, &len);
	ck_assert_uint_eq(len, n);
	ck_assert_int_eq(memcmp(line, big, n), 0);
	link_take(l);
	expect_line(l, "short");
	link_shut(l);
	wait_end(l);
	link_close(l);
	free(big);
}
END_TEST

START_TEST(a_line_longer_than_the_wire_allows_is_a_fault)
{
	struct link *l = start("head -c 70000000 /dev/zero | tr \"\\\\0\" x; echo; echo after; sleep 100");
	size_t len;

	ck_assert_ptr_null(wait_line(l, &len));
	ck_assert_ptr_nonnull(link_fault(l));
	ck_assert_ptr_nonnull(strstr(link_fault(l), "longer than the wire allows"));
	ck_assert(link_ended(l)); /* which also ended the process */
	link_close(l);
}
END_TEST

START_TEST(a_reader_that_does_not_read_is_noticed_not_waited_for)
{
	struct link *l = start("sleep 100");
	size_t n = 8 << 20;
	char *big = malloc(n);
	int sent = 0;

	memset(big, 'x', n);
	while (sent < 100 && !link_send(l, big, n, &e))
		sent++;
	ck_assert_int_gt(sent, 10);
	ck_assert_int_lt(sent, 20); /* 2 * WIRE_MAX_LINE */
	ck_assert_int_eq(e.code, ERR_MEMORY);
	link_close(l);
	free(big);
}
END_TEST

START_TEST(a_kill_takes_the_whole_group)
{
	struct link *l = start("sleep 100 & echo $!; wait");
	size_t len;
	pid_t child = atoi(wait_line(l, &len));

	link_take(l);
	ck_assert_int_eq(kill(child, 0), 0);
	link_kill(l);
	wait_end(l);
	ck_assert_str_eq(link_obituary(l), "signal 9 (Killed)");
	link_close(l);
	ck_assert(ends_soon(child));
}
END_TEST

START_TEST(a_grandchild_that_holds_the_pipes_does_not_keep_a_dead_worker)
{
	struct link *l = start("setsid sleep 5 & echo last; exit 3");
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	expect_line(l, "last");
	wait_end(l);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 3);
	ck_assert_str_eq(link_obituary(l), "exit status 3");
	link_close(l);
}
END_TEST

START_TEST(its_last_words_are_in_the_obituary)
{
	struct link *l = start("echo 2026-01-01T00:00:00.000Z error cannot open x >&2; kill -SEGV $$");

	wait_end(l);
	ck_assert_ptr_nonnull(strstr(link_obituary(l), "signal 11"));
	ck_assert_ptr_nonnull(strstr(link_obituary(l), "its last words: cannot open x"));
	link_close(l);
}
END_TEST

START_TEST(a_program_that_is_not_there_dies_with_a_reason)
{
	struct launch launch = {0};
	struct link *l = NULL;

	ck_ok(launch_make("cpu", "/no/such/fathom", &(struct registry){0}, &launch, &e), &e);
	ck_ok(link_open(&launch, "worker 9", &l, &e), &e);
	launch_release(&launch);
	wait_end(l);
	ck_assert_ptr_nonnull(strstr(link_obituary(l), "exit status 127"));
	ck_assert_ptr_nonnull(strstr(link_obituary(l), "cannot be executed"));
	link_close(l);
}
END_TEST

START_TEST(a_worker_inherits_no_signal_mask_no_descriptors_and_no_rank)
{
	struct link *l;
	sigset_t all;
	int leaked = dup(0); /* without close-on-exec */

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
	setenv("RANK", "3", 1);
	setenv("MASTER_ADDR", "x", 1);
	setenv("SLURM_PROCID", "1", 1);
	setenv("SLURM_JOB_ID", "77", 1);
	setenv("KEPT", "yes", 1);
	/* bits 31 and 32, signals 32 and 33, belong to the C library: make's children may have them ignored */
	l = start("grep -E \"^Sig(Blk|Ign)\" /proc/self/status | tr -d \"\\\\t\\\\n\" | "
	          "sed \"s/0000000[01][08]\\([0-9a-f]\\{7\\}\\)$/000000000\\1/\"; echo; ls /proc/self/fd | wc -l; "
	          "echo $RANK$MASTER_ADDR$SLURM_PROCID,$SLURM_JOB_ID,$KEPT");
	expect_line(l, "SigBlk:0000000000000000SigIgn:0000000000000000");
	expect_line(l, "4"); /* 0, 1, 2, and the folder that ls reads */
	expect_line(l, ",77,yes");
	wait_end(l);
	link_close(l);
	close(leaked);
}
END_TEST

START_TEST(a_device_is_started_by_the_program_itself_with_its_folders)
{
	const char *models[] = {"/m1", "/m 2"}, *datasets[] = {"/d"};
	const struct registry r = {models, 2, datasets, 1};
	const char *want[] = {"/bin/fathom", "worker",   "--device", "cuda:1",     "--models",
	                      "/m1",         "--models", "/m 2",     "--datasets", "/d"};
	struct launch launch;

	setenv("SLURM_JOB_ID", "77", 1);
	ck_ok(launch_make("cuda:1", "/bin/fathom", &r, &launch, &e), &e);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		ck_assert_str_eq(launch.argv[i], want[i]);
	ck_assert_ptr_null(launch.argv[sizeof want / sizeof *want]);
	for (char **v = launch.envp; *v; v++)
		ck_assert(strncmp(*v, "SLURM_", 6) != 0);
	launch_release(&launch);
}
END_TEST

START_TEST(workers_die_with_the_server)
{
	struct link *l;
	int fds[2], status;
	pid_t server, worker = 0;

	ck_assert_int_eq(pipe(fds), 0);
	server = fork();
	if (!server) {
		size_t len;

		l = start("echo $$; exec sleep 100"); /* it does not even look at its stdin */
		worker = atoi(wait_line(l, &len));
		if (write(fds[1], &worker, sizeof worker) != sizeof worker)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(fds[0], &worker, sizeof worker), sizeof worker);
	ck_assert_int_eq(kill(worker, 0), 0);
	kill(server, SIGKILL);
	waitpid(server, &status, 0);
	ck_assert(ends_soon(worker));
}
END_TEST

Suite *link_suite(void);
Suite *link_suite(void)
{
	Suite *suite = suite_create("link");
	TCase *tc = tcase_create("link");

	tcase_set_timeout(tc, 60);
	suite_add_tcase(suite, tc);
	tcase_add_test(tc, lines_come_whole_and_in_order_however_they_are_cut);
	tcase_add_test(tc, a_line_stays_until_it_is_taken);
	tcase_add_test(tc, a_line_of_many_megabytes_passes_both_ways);
	tcase_add_test(tc, a_line_longer_than_the_wire_allows_is_a_fault);
	tcase_add_test(tc, a_reader_that_does_not_read_is_noticed_not_waited_for);
	tcase_add_test(tc, a_kill_takes_the_whole_group);
	tcase_add_test(tc, a_grandchild_that_holds_the_pipes_does_not_keep_a_dead_worker);
	tcase_add_test(tc, its_last_words_are_in_the_obituary);
	tcase_add_test(tc, a_program_that_is_not_there_dies_with_a_reason);
	tcase_add_test(tc, a_worker_inherits_no_signal_mask_no_descriptors_and_no_rank);
	tcase_add_test(tc, a_device_is_started_by_the_program_itself_with_its_folders);
	tcase_add_test(tc, workers_die_with_the_server);
	return suite;
}
