/* See link.h.
 *
 * 1. All our ends are non-blocking and close-on-exec; the child sees only 0, 1 and 2.
 * 2. A line is in `in` from `taken` on until link_take: an event is dropped only after its effect is stored.
 * 3. The process is waited for exactly once; its pid is not used after that. */
#include "server/link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/log.h"
#include "eval/wire.h"

#define READ_BYTES ((size_t)64 << 10)
#define READ_AHEAD ((size_t)1 << 20) /* with a whole line waiting, no more than this is read */
#define LOG_LINE   2000
#define LOG_BYTES  16384 /* of stderr in one turn: a flood must not keep the core */

/* A worker on the server's own processors gives way to it: answers first, then the evaluation. */
#define WORKER_NICE 5

struct link {
	pid_t pid;
	bool reaped, killed;
	int status;
	int to, from, err_fd; /* -1: closed */
	struct buf out;       /* bytes for stdin, of which `sent` went */
	size_t sent;
	struct buf in;   /* bytes of stdout: taken lines, then what link_line looks at */
	size_t taken;    /* first byte that was not taken */
	size_t scanned;  /* no newline in [taken, scanned) */
	size_t line_end; /* of the line at `taken`, or 0 */
	struct buf err_line;
	const char *fault; /* static; NULL: none */
	char name[64];
	char last_words[256];
	char obituary[400];
};

/* -- starting ---------------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* In the child, after fork: async-signal-safe calls only. */
static _Noreturn void become_worker(const struct launch *l, int in, int out, int err, pid_t parent)
{
	static const char message[] = "cannot be executed\n";

	launch_detach(SIGKILL, parent);
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		_exit(127);
	(void)!nice(WORKER_NICE);
	close_range(3, ~0U, 0); /* ours are close-on-exec; a library's may not be */
	execve(l->argv[0], l->argv, l->envp);
	if (write(2, message, sizeof message - 1) < 0)
		_exit(126);
	_exit(127);
}

static err_code make_pipe(int fds[2], struct err *e)
{
	return pipe2(fds, O_CLOEXEC) ? err_errno(e, "cannot make a pipe") : ERR_OK;
}

err_code link_open(const struct launch *launch, const char *name, struct link **out, struct err *e)
{
	struct link *l = mem_zalloc(1, sizeof *l, e);
	int in[2] = {-1, -1}, from[2] = {-1, -1}, err[2] = {-1, -1};
	pid_t parent = getpid();
	err_code rc = l ? ERR_OK : ERR_MEMORY;

	if (rc)
		goto out;
	if ((rc = make_pipe(in, e)) || (rc = make_pipe(from, e)) || (rc = make_pipe(err, e)))
		goto out;
	*l = (struct link){.to = in[1],
	                   .from = from[0],
	                   .err_fd = err[0],
	                   .out = BUF_INIT(2 * WIRE_MAX_LINE),
	                   .in = BUF_INIT(WIRE_MAX_LINE + READ_AHEAD + READ_BYTES),
	                   .err_line = BUF_INIT(LOG_LINE + 1)};
	snprintf(l->name, sizeof l->name, "%s", name);
	fcntl(l->to, F_SETFL, O_NONBLOCK);
	fcntl(l->from, F_SETFL, O_NONBLOCK);
	fcntl(l->err_fd, F_SETFL, O_NONBLOCK);
	l->pid = fork();
	if (!l->pid)
		become_worker(launch, in[0], from[1], err[1], parent);
	if (l->pid < 0) {
		rc = err_errno(e, "cannot start a process");
		goto out;
	}
	setpgid(l->pid, l->pid); /* also here: link_kill may come before the child ran */
	in[1] = from[0] = err[0] = -1;
	*out = l;
	l = NULL;
out:
	for (int i = 0; i < 2; i++) {
		close_fd(&in[i]);
		close_fd(&from[i]);
		close_fd(&err[i]);
	}
	free(l);
	return rc;
}

pid_t link_pid(const struct link *l)
{
	return l->pid;
}

/* -- ending ------------------------------------------------------------------------------------ */

void link_shut(struct link *l)
{
	close_fd(&l->to);
	buf_clear(&l->out);
	l->sent = 0;
}

void link_kill(struct link *l)
{
	if (!l->reaped) {
		kill(-l->pid, SIGKILL);
		kill(l->pid, SIGKILL);
	}
	l->killed = true;
}

static void reap(struct link *l, int flags)
{
	siginfo_t info = {0};

	if (l->reaped)
		return;
	/* WNOWAIT: its pid, and so its group's, must not be given away before the group is killed */
	while (waitid(P_PID, (id_t)l->pid, &info, WEXITED | WNOWAIT | flags) && errno == EINTR)
		;
	if (!info.si_pid)
		return;
	kill(-l->pid, SIGKILL); /* what it may have left behind */
	while (waitpid(l->pid, &l->status, 0) < 0 && errno == EINTR)
		;
	l->reaped = true;
}

void link_close(struct link *l)
{
	if (!l)
		return;
	link_kill(l);
	reap(l, 0);
	close_fd(&l->to);
	close_fd(&l->from);
	close_fd(&l->err_fd);
	buf_release(&l->out);
	buf_release(&l->in);
	buf_release(&l->err_line);
	free(l);
}

/* -- stderr ------------------------------------------------------------------------------------ */

/* A line of its log goes on under its own level, without its time; anything else is information. */
static void pass_on(struct link *l, const char *line)
{
	static const char *const levels[] = {" debug ", " info  ", " warn  ", " error "};
	enum log_level level = LOG_INFO;

	if (!*line)
		return;
	for (int i = LOG_DEBUG; strlen(line) > 31 && line[23] == 'Z' && i <= LOG_ERROR; i++) {
		if (!strncmp(line + 24, levels[i], 7)) {
			level = (enum log_level)i;
			line += 31;
			break;
		}
	}
	snprintf(l->last_words, sizeof l->last_words, "%s", line);
	log_line(level, "%s: %s", l->name, line);
}

static void flush_stderr(struct link *l)
{
	pass_on(l, buf_str(&l->err_line));
	buf_clear(&l->err_line);
}

static void read_stderr(struct link *l)
{
	char chunk[LOG_BYTES];
	ssize_t n = read(l->err_fd, chunk, sizeof chunk);

	for (ssize_t i = 0; i < n; i++) {
		bool control = (unsigned char)chunk[i] < ' ' && chunk[i] != '\t';

		if (chunk[i] == '\n' || l->err_line.len == LOG_LINE)
			flush_stderr(l);
		if (chunk[i] != '\n')
			buf_putc(&l->err_line, control ? '?' : chunk[i]);
	}
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		flush_stderr(l);
		close_fd(&l->err_fd);
	}
}

/* -- lines ------------------------------------------------------------------------------------- */

/* Moves what was not taken to the front, when that frees at least as much as it moves. */
static void compact(struct link *l)
{
	if (l->taken < l->in.len - l->taken)
		return;
	buf_consume(&l->in, l->taken);
	l->scanned -= l->taken;
	l->line_end -= l->line_end ? l->taken : 0;
	l->taken = 0;
	if (!l->in.len && l->in.cap > READ_AHEAD)
		buf_release(&l->in); /* it held a rare long line */
}

static bool wants_input(const struct link *l)
{
	return l->from >= 0 && !l->fault && (!l->line_end || l->in.len - l->taken < READ_AHEAD);
}

static bool find_line(struct link *l)
{
	const char *nl;

	if (l->line_end)
		return true;
	if (l->scanned == l->in.len)
		return false;
	nl = memchr(l->in.data + l->scanned, '\n', l->in.len - l->scanned);
	l->scanned = nl ? (size_t)(nl - l->in.data) : l->in.len;
	l->line_end = nl ? l->scanned : 0;
	if (l->scanned - l->taken > WIRE_MAX_LINE) {
		l->fault = "a line is longer than the wire allows";
		l->line_end = 0;
	}
	return l->line_end != 0;
}

static void read_stdout(struct link *l)
{
	char chunk[READ_BYTES];
	ssize_t n = 1;

	while (wants_input(l) && (n = read(l->from, chunk, sizeof chunk)) > 0) {
		compact(l);
		buf_append(&l->in, chunk, (size_t)n);
		if (l->in.failed)
			l->fault = "out of memory for its lines";
		else
			find_line(l);
	}
	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		close_fd(&l->from);
}

const char *link_line(struct link *l, size_t *len)
{
	if (l->fault || !find_line(l))
		return NULL;
	l->in.data[l->line_end] = 0;
	*len = l->line_end - l->taken;
	return l->in.data + l->taken;
}

void link_take(struct link *l)
{
	assert(l->line_end);
	l->taken = l->scanned = l->line_end + 1;
	l->line_end = 0;
	compact(l);
}

const char *link_fault(const struct link *l)
{
	return l->fault;
}

/* -- commands ---------------------------------------------------------------------------------- */

static void write_stdin(struct link *l)
{
	while (l->to >= 0 && l->sent < l->out.len) {
		ssize_t n = write(l->to, l->out.data + l->sent, l->out.len - l->sent);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			link_shut(l); /* it is dying: its end of stdout tells the rest */
		else
			l->sent += (size_t)n;
	}
	buf_clear(&l->out);
	l->sent = 0;
}

err_code link_send(struct link *l, const char *line, size_t len, struct err *e)
{
	assert(!memchr(line, '\n', len));
	if (l->to < 0)
		return ERR_OK;
	if (l->sent > l->out.len / 2) {
		buf_consume(&l->out, l->sent);
		l->sent = 0;
	}
	buf_append(&l->out, line, len);
	buf_putc(&l->out, '\n');
	if (l->out.failed)
		return err_set(e, ERR_MEMORY, "%s does not read its commands", l->name);
	write_stdin(l);
	return ERR_OK;
}

/* -- polling ----------------------------------------------------------------------------------- */

void link_poll(const struct link *l, bool pause, struct pollfd fds[LINK_FDS])
{
	fds[0] = (struct pollfd){.fd = l->out.len ? l->to : -1, .events = POLLOUT};
	fds[1] = (struct pollfd){.fd = !pause && wants_input(l) ? l->from : -1, .events = POLLIN};
	fds[2] = (struct pollfd){.fd = l->err_fd, .events = POLLIN};
}

void link_handle(struct link *l, const struct pollfd fds[LINK_FDS])
{
	if (fds[0].fd >= 0 && fds[0].revents)
		write_stdin(l);
	if (fds[1].fd >= 0 && fds[1].revents)
		read_stdout(l);
	if (fds[2].fd >= 0 && fds[2].revents)
		read_stderr(l);
}

bool link_ended(struct link *l)
{
	bool was = l->reaped;

	if (l->from < 0 || l->fault)
		link_kill(l); /* nothing more can come of it */
	reap(l, WNOHANG);
	if (!l->reaped)
		return false;
	if (!was) {
		/* a grandchild may hold the pipes open: take what is there, at most a pipe full, and wait no longer */
		for (int i = 0; i < 4 && l->err_fd >= 0; i++)
			read_stderr(l);
		flush_stderr(l);
	}
	if (l->from >= 0)
		read_stdout(l);
	return l->fault || !find_line(l);
}

const char *link_obituary(const struct link *l)
{
	struct link *m = (struct link *)l;
	int sig = WIFSIGNALED(l->status) ? WTERMSIG(l->status) : 0;
	int n = sig ? snprintf(m->obituary, sizeof m->obituary, "signal %d (%s)", sig, strsignal(sig))
	            : snprintf(m->obituary, sizeof m->obituary, "exit status %d", WEXITSTATUS(l->status));

	if (*l->last_words && n > 0)
		snprintf(m->obituary + n, sizeof m->obituary - (size_t)n, "; its last words: %s", l->last_words);
	return l->obituary;
}
