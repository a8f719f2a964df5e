/* The private server: see local.h. Its log goes to a file without a name, which is read only to learn the port and to
 * tell what went wrong. */
#include "server/local.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/clock.h"
#include "server/launcher.h"
#include "server/progress.h"

#define START_S   60 /* for the server to listen */
#define STOP_S    30 /* for it to end in order */
#define TAIL      4000
#define TAIL_ROWS 12

struct local {
	pid_t pid;   /* 0: reaped, or never started */
	int log;     /* -1: none */
	char *store; /* owned, as below */
	char *models, *model;
	char *url;
	bool temporary;
};

/* -- the model's folder and name --------------------------------------------------------------- */

/* A model is named below its parent, as in a server's --models. Links are followed: a server would not. */
static err_code find_model(struct local *l, const char *path, struct err *e)
{
	char real[PATH_MAX], *slash;
	struct stat st;

	if (!path)
		return ERR_OK;
	if (!realpath(path, real) || stat(real, &st))
		return err_errno(e, "--model '%.300s'", path);
	slash = strrchr(real, '/');
	if (!S_ISDIR(st.st_mode) || !slash[1])
		return err_set(e, ERR_INPUT, "--model '%.300s' is not a model's folder", path);
	l->model = mem_strdup(slash + 1, e);
	slash[slash == real] = '\0';
	l->models = l->model ? mem_strdup(real, e) : NULL;
	return l->models ? ERR_OK : e->code;
}

/* -- the store --------------------------------------------------------------------------------- */

static err_code make_store(struct local *l, const char *path, struct err *e)
{
	const char *tmp = getenv("TMPDIR");
	char made[PATH_MAX];

	if (path) {
		l->store = mem_strdup(path, e);
		return l->store ? ERR_OK : e->code;
	}
	if (snprintf(made, sizeof made, "%s/fathom-XXXXXX", tmp && *tmp ? tmp : "/tmp") >= (int)sizeof made)
		return err_set(e, ERR_INPUT, "TMPDIR is too long: %.100s...", tmp);
	if (!mkdtemp(made))
		return err_errno(e, "cannot make a temporary folder '%s'", made);
	l->temporary = true;
	l->store = mem_strdup(made, e);
	if (!l->store)
		rmdir(made);
	return l->store ? ERR_OK : e->code;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	(void)remove(path); /* what cannot be removed stays */
	return 0;
}

/* -- the child --------------------------------------------------------------------------------- */

/* In the child, after fork: async-signal-safe calls only. */
static _Noreturn void become_server(const char *const *argv, int log, pid_t parent)
{
	int null = open("/dev/null", O_RDWR);

	launch_detach(SIGTERM, parent);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0)
		_exit(127);
	close_range(3, ~0U, 0);
	execv("/proc/self/exe", (char *const *)argv);
	_exit(127);
}

static err_code spawn(struct local *l, const struct local_options *o, struct err *e)
{
	size_t n = 0;
	const char **argv = mem_alloc(2 * (o->n_datasets + o->n_workers) + 10, sizeof *argv, e);
	pid_t parent = getpid();

	if (!argv)
		return e->code;
	argv[n++] = "fathom";
	argv[n++] = "serve";
	argv[n++] = "--listen";
	argv[n++] = "127.0.0.1:0";
	argv[n++] = "--data";
	argv[n++] = l->store;
	if (l->models) {
		argv[n++] = "--models";
		argv[n++] = l->models;
	}
	for (size_t i = 0; i < o->n_datasets; i++) {
		argv[n++] = "--datasets";
		argv[n++] = o->datasets[i];
	}
	for (size_t i = 0; i < o->n_workers; i++) {
		argv[n++] = "--workers";
		argv[n++] = o->workers[i];
	}
	argv[n] = NULL;
	l->log = memfd_create("fathom-serve", MFD_CLOEXEC);
	if (l->log >= 0)
		fcntl(l->log, F_SETFL, O_APPEND); /* server and workers share the offset; reads here are by position */
	l->pid = l->log < 0 ? -1 : fork();
	if (!l->pid)
		become_server(argv, l->log, parent);
	free(argv);
	if (l->pid > 0)
		return ERR_OK;
	l->pid = 0;
	return err_errno(e, "cannot start a server");
}

/* -- its log ----------------------------------------------------------------------------------- */

/* The last `size` - 1 bytes of the log. */
static void read_tail(const struct local *l, char *out, size_t size)
{
	struct stat st;
	ssize_t n = 0;

	if (l->log >= 0 && !fstat(l->log, &st))
		n = pread(l->log, out, size - 1, st.st_size >= (off_t)size ? st.st_size - (off_t)size + 1 : 0);
	out[n > 0 ? n : 0] = '\0';
}

void local_log(const struct local *l, struct buf *out)
{
	char tail[TAIL], *from;
	int rows = 0;

	read_tail(l, tail, sizeof tail);
	from = tail + strlen(tail);
	while (from > tail && rows <= TAIL_ROWS)
		rows += *--from == '\n';
	buf_puts(out, from + (*from == '\n'));
}

/* What a server says that does not come up, without its "fathom serve: ". */
static err_code not_started(const struct local *l, struct err *e)
{
	char tail[TAIL], *said;

	read_tail(l, tail, sizeof tail);
	said = strstr(tail, "fathom serve: ");
	said = said ? said + strlen("fathom serve: ") : tail;
	said[strcspn(said, "\n")] = '\0';
	return err_set(e, ERR_INPUT, "the local server did not start: %.800s", *said ? said : "it said nothing");
}

static bool find_url(struct local *l, struct err *e)
{
	static const char words[] = "listening on ";
	char tail[TAIL], *url, *end;

	read_tail(l, tail, sizeof tail);
	url = strstr(tail, words);
	end = url ? strchr(url, '\n') : NULL;
	if (!end)
		return false;
	*end = '\0';
	l->url = mem_strdup(url + strlen(words), e);
	return true;
}

static err_code wait_until_it_listens(struct local *l, struct err *e)
{
	double until_s = clock_mono_s() + START_S;

	while (clock_mono_s() < until_s) {
		bool ended = waitpid(l->pid, NULL, WNOHANG) == l->pid;

		if (ended)
			l->pid = 0;
		if (!ended && find_url(l, e))
			return l->url ? ERR_OK : e->code;
		if (ended)
			return not_started(l, e);
		if (progress_interrupted())
			return err_set(e, ERR_CANCELLED, "interrupted");
		clock_sleep_ms(10);
	}
	return err_set(e, ERR_IO, "the local server did not listen within %d s", START_S);
}

/* -- all of it --------------------------------------------------------------------------------- */

err_code local_start(const struct local_options *o, struct local **out, struct err *e)
{
	struct local *l = mem_zalloc(1, sizeof *l, e);

	if (!l)
		return e->code;
	l->log = -1;
	if (find_model(l, o->model, e) || make_store(l, o->store, e) || spawn(l, o, e) || wait_until_it_listens(l, e)) {
		local_stop(l);
		return e->code;
	}
	*out = l;
	return ERR_OK;
}

const char *local_url(const struct local *l)
{
	return l->url;
}

const char *local_model(const struct local *l)
{
	return l->model;
}

static void end(struct local *l)
{
	double until_s = clock_mono_s() + STOP_S;

	kill(l->pid, SIGTERM);
	while (waitpid(l->pid, NULL, WNOHANG) == 0) {
		if (clock_mono_s() > until_s) {
			kill(l->pid, SIGKILL); /* its workers end with it */
			until_s += STOP_S;
		}
		clock_sleep_ms(10);
	}
}

void local_stop(struct local *l)
{
	if (!l)
		return;
	if (l->pid > 0)
		end(l);
	if (l->temporary && l->store)
		nftw(l->store, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	if (l->log >= 0)
		close(l->log);
	free(l->store);
	free(l->models);
	free(l->model);
	free(l->url);
	free(l);
}
