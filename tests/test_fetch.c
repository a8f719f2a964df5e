/* Archives of known datasets: fetched from a local server (tests/e2e/mirror.py), unpacked, recorded. Plain files,
 * broken connections and the command itself are in tests/e2e/test_datasets.py. */
#include <check.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>

#include "engine/buf.h"
#include "server/fetch.h"
#include "server/unpack.h"
#include "tests/fixture.h"

static struct err e;
static char root[PATH_MAX], published[PATH_MAX + 16], datasets[PATH_MAX + 16];

static void set_up(void)
{
	snprintf(root, sizeof root, "%s", fixture_tmpdir());
	snprintf(published, sizeof published, "%s/published", root);
	snprintf(datasets, sizeof datasets, "%s/datasets", root);
	ck_assert_int_eq(mkdir(published, 0700), 0);
	ck_assert_int_eq(mkdir(datasets, 0700), 0);
}

static const char *in(const char *dir, const char *name)
{
	static char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void add(struct archive *a, const char *path, const char *text)
{
	struct archive_entry *entry = archive_entry_new();

	archive_entry_set_pathname(entry, path);
	archive_entry_set_filetype(entry, text ? AE_IFREG : AE_IFDIR);
	archive_entry_set_perm(entry, 0644);
	archive_entry_set_size(entry, text ? (la_int64_t)strlen(text) : 0);
	ck_assert_int_eq(archive_write_header(a, entry), ARCHIVE_OK);
	if (text)
		ck_assert_int_eq(archive_write_data(a, text, strlen(text)), (la_ssize_t)strlen(text));
	archive_entry_free(entry);
}

static const char *const members[] = {"Set/data/q.txt", "Set/labels.lst", NULL};

/* A zip or a .tar.gz with the members among others, one of which wants to be written elsewhere. */
static void write_archive(const char *path, bool zip, const char *questions)
{
	struct archive *a = archive_write_new();

	if (zip) {
		archive_write_set_format_zip(a);
	} else {
		archive_write_add_filter_gzip(a);
		archive_write_set_format_pax_restricted(a);
	}
	ck_assert_int_eq(archive_write_open_filename(a, path), ARCHIVE_OK);
	add(a, "Set/", NULL);
	add(a, "../escaped.txt", "no");
	add(a, "Set/data/other.txt", "not asked for");
	add(a, zip ? "Set/data/q.txt" : "./Set/data/q.txt", questions);
	add(a, "Set/labels.lst", "0\n1\n");
	ck_assert_int_eq(archive_write_close(a), ARCHIVE_OK);
	archive_write_free(a);
}

static void check_file(const char *dir, const char *name, const char *text)
{
	struct buf b = BUF_INIT(1 << 20);

	ck_ok(buf_read_file(&b, in(dir, name), &e), &e);
	ck_assert_str_eq(buf_str(&b), text);
	buf_release(&b);
}

/* -- unpacking --------------------------------------------------------------------------------- */

START_TEST(members_of_a_zip_and_of_a_tar_are_unpacked_under_their_own_names)
{
	const char *names[] = {"a.zip", "a.tgz"};
	char path[2 * PATH_MAX];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s", in(published, names[i]));
		write_archive(path, i == 0, "the questions\n");
		ck_ok(unpack_members(path, members, datasets, &e), &e);
		check_file(datasets, "q.txt.part", "the questions\n");
		check_file(datasets, "labels.lst.part", "0\n1\n");
		ck_assert_int_eq(remove(in(datasets, "q.txt.part")), 0);
		ck_assert_int_eq(remove(in(datasets, "labels.lst.part")), 0);
		ck_assert_int_eq(rmdir(datasets), 0); /* nothing else was written */
		ck_assert_int_eq(access(in(root, "escaped.txt"), F_OK), -1);
		ck_assert_int_eq(mkdir(datasets, 0700), 0);
	}
}
END_TEST

START_TEST(archives_that_are_none_or_lack_a_file_are_refused_by_name)
{
	static const char *const more[] = {"Set/data/q.txt", "Set/absent.txt", NULL};
	char path[2 * PATH_MAX];

	snprintf(path, sizeof path, "%s", in(published, "a.zip"));
	write_archive(path, true, "q");
	ck_err(unpack_members(path, more, datasets, &e), ERR_INPUT,
	       "archive 'a.zip': there is no file 'Set/absent.txt'", &e);
	fixture_write(published, "b.zip", "this is no archive", 18);
	ck_err(unpack_members(in(published, "b.zip"), members, datasets, &e), ERR_INPUT, "archive 'b.zip'", &e);
	ck_assert_int_eq(truncate(path, 60), 0);
	ck_err(unpack_members(path, members, datasets, &e), ERR_INPUT, "archive 'a.zip'", &e);
}
END_TEST

/* -- fetching ---------------------------------------------------------------------------------- */

static pid_t mirror;
static char url[64];

static void stop_mirror(void)
{
	kill(mirror, SIGKILL);
	waitpid(mirror, NULL, 0);
}

/* Serves `published`; the first answer breaks off after `cut` bytes. */
static void start_mirror(const char *cut)
{
	char port[16] = "";
	int out[2], hold[2];

	ck_assert_int_eq(pipe(out), 0);
	ck_assert_int_eq(pipe(hold), 0);
	mirror = fork();
	if (!mirror) {
		dup2(out[1], 1);
		dup2(hold[0], 0);
		close(hold[1]);
		execlp("python3", "python3", "tests/e2e/mirror.py", published, cut, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	close(hold[0]); /* hold[1] stays open until this process ends, and the mirror with it */
	ck_assert_int_gt(read(out[0], port, sizeof port - 1), 0);
	close(out[0]);
	snprintf(url, sizeof url, "http://127.0.0.1:%d", atoi(port));
}

static struct catalog_source source;
static const struct catalog_entry set = {.name = "set",
                                         .task = "t",
                                         .n_items = 1,
                                         .unit = "x",
                                         .url = "http://127.0.0.1:1/",
                                         .sources = &source,
                                         .n_sources = 1};

static void publish(bool zip, const char *questions)
{
	static char hex[SHA256_HEX];
	char path[2 * PATH_MAX];
	struct stat st;

	if (access(in(published, "set"), F_OK))
		ck_assert_int_eq(mkdir(in(published, "set"), 0700), 0);
	snprintf(path, sizeof path, "%s", in(published, zip ? "set/S.zip" : "set/S.tgz"));
	write_archive(path, zip, questions);
	ck_ok(sha256_file(path, hex, &e), &e);
	ck_assert_int_eq(stat(path, &st), 0);
	source = (struct catalog_source){zip ? "S.zip" : "S.tgz", hex, (uint64_t)st.st_size, members};
}

START_TEST(an_archive_is_fetched_verified_unpacked_recorded_and_removed)
{
	struct fetch f = {.dir = datasets};
	struct buf record = BUF_INIT(1 << 16);
	char dir[PATH_MAX + 32], hex[SHA256_HEX];
	bool official;

	snprintf(dir, sizeof dir, "%s/set", datasets);
	publish(_i == 0, "the questions\n");
	start_mirror("100");
	f.mirror = url;
	ck_ok(fetch_dataset(&set, &f, &e), &e);
	ck_assert_uint_eq(f.n_bytes_loaded, source.bytes);
	ck_assert_uint_eq(f.done, source.bytes);
	check_file(dir, "q.txt", "the questions\n");
	check_file(dir, "labels.lst", "0\n1\n");
	sha256_hex("the questions\n", 14, hex);
	buf_printf(&record, "# %s %s\n%s  q.txt\n", source.file, source.sha256, hex);
	sha256_hex("0\n1\n", 4, hex);
	buf_printf(&record, "%s  labels.lst\n", hex);
	check_file(dir, CATALOG_RECORD, buf_str(&record));
	buf_release(&record);
	ck_ok(catalog_check(&set, dir, &official, &e), &e);
	ck_assert(official);
	ck_assert_int_eq(remove(in(dir, "q.txt")), 0);
	ck_assert_int_eq(remove(in(dir, "labels.lst")), 0);
	ck_assert_int_eq(remove(in(dir, CATALOG_RECORD)), 0);
	ck_assert_int_eq(rmdir(dir), 0); /* nothing else is left */
	stop_mirror();
}
END_TEST

START_TEST(what_is_there_is_not_fetched_again_and_a_lost_file_is)
{
	struct fetch f = {.dir = datasets};

	publish(true, "q");
	start_mirror("100");
	f.mirror = url;
	ck_ok(fetch_dataset(&set, &f, &e), &e);
	f.n_bytes_loaded = 0;
	ck_ok(fetch_dataset(&set, &f, &e), &e);
	ck_assert_uint_eq(f.n_bytes_loaded, 0);
	ck_assert_int_eq(remove(in(datasets, "set/q.txt")), 0);
	ck_ok(fetch_dataset(&set, &f, &e), &e);
	ck_assert_uint_eq(f.n_bytes_loaded, source.bytes);
	check_file(datasets, "set/q.txt", "q");
	stop_mirror();
	fixture_write(datasets, "set/q.txt", "mine", 4);
	ck_err(fetch_dataset(&set, &f, &e), ERR_INPUT, "is not the published file", &e);
	check_file(datasets, "set/q.txt", "mine");
}
END_TEST

START_TEST(nothing_is_unpacked_from_an_archive_with_a_wrong_checksum)
{
	struct fetch f = {.dir = datasets};

	publish(true, "the right questions");
	source.sha256 = "0000000000000000000000000000000000000000000000000000000000000000";
	start_mirror("100");
	f.mirror = url;
	ck_err(fetch_dataset(&set, &f, &e), ERR_INPUT, "S.zip is not the published file: its sha256 is", &e);
	ck_assert_int_eq(access(in(datasets, "set/q.txt"), F_OK), -1);
	ck_assert_int_eq(access(in(datasets, "set/S.zip.part"), F_OK), -1);
	ck_assert_int_eq(access(in(datasets, "set/S.zip.rejected"), F_OK), 0);
	stop_mirror();
}
END_TEST

START_TEST(a_stop_keeps_what_came_and_a_dead_server_is_an_error)
{
	struct fetch f = {.dir = datasets, .stop = true};

	publish(true, "q");
	start_mirror("100");
	f.mirror = url;
	ck_err(fetch_dataset(&set, &f, &e), ERR_CANCELLED, "goes on from there", &e);
	stop_mirror();
	f = (struct fetch){.dir = datasets, .mirror = url};
	ck_err(fetch_dataset(&set, &f, &e), ERR_IO, "bytes are kept", &e);
}
END_TEST

Suite *fetch_suite(void);
Suite *fetch_suite(void)
{
	Suite *s = suite_create("fetch");
	TCase *tc = tcase_create("fetch");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, members_of_a_zip_and_of_a_tar_are_unpacked_under_their_own_names);
	tcase_add_test(tc, archives_that_are_none_or_lack_a_file_are_refused_by_name);
	tcase_add_loop_test(tc, an_archive_is_fetched_verified_unpacked_recorded_and_removed, 0, 2);
	tcase_add_test(tc, what_is_there_is_not_fetched_again_and_a_lost_file_is);
	tcase_add_test(tc, nothing_is_unpacked_from_an_archive_with_a_wrong_checksum);
	tcase_add_test(tc, a_stop_keeps_what_came_and_a_dead_server_is_an_error);
	suite_add_tcase(s, tc);
	return s;
}
