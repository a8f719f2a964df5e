/* Progress: see progress.h. */
#include "server/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine/buf.h"
#include "engine/clock.h"

#define TICK_MS 100
#define LINE_S  10 /* between lines when stderr is no terminal */

struct progress_thread {
	const struct progress *p; /* borrowed */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool end; /* under lock */
	bool tty;
	double started, next_line;
};

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

void progress_catch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};

	sigemptyset(&a.sa_mask);
	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int progress_interrupted(void)
{
	return caught;
}

void progress_bar(double part, char out[PROGRESS_BAR + 1])
{
	for (int i = 0; i < PROGRESS_BAR; i++)
		out[i] = i < (int)(part * PROGRESS_BAR) ? '#' : '.';
	out[PROGRESS_BAR] = '\0';
}

/* "  4:33 left", "  2:04:33 left"; nothing where that is not known. */
static void put_left(double seconds)
{
	int s = seconds < 1e6 ? (int)seconds : 1000000;

	if (s >= 3600)
		fprintf(stderr, "  %d:%02d:%02d left", s / 3600, s / 60 % 60, s % 60);
	else if (s >= 0)
		fprintf(stderr, "  %d:%02d left", s / 60, s % 60);
}

static void draw_bar(const struct progress_thread *t, double part, double rate, double left)
{
	char bar[PROGRESS_BAR + 1];

	progress_bar(part, bar);
	fprintf(stderr, "\r[%s] %5.1f %%  %.0f %s/s", bar, 100 * part, rate, t->p->unit);
	if (t->p->full_rate > 0)
		fprintf(stderr, " (%.0f %% of peak)", 100 * rate / t->p->full_rate);
	put_left(left);
	fputs("\x1b[K", stderr);
	fflush(stderr);
}

static void show(struct progress_thread *t)
{
	double now = clock_mono_s(), seconds = now - t->started;
	uint64_t counted = t->p->done(t->p->arg);
	uint64_t done = t->p->total && counted > t->p->total ? t->p->total : counted;
	double part = t->p->total ? (double)done / (double)t->p->total : 0;
	double rate = seconds > 0 ? (double)done / seconds : 0;
	double left = rate > 0 && part < 1 ? ((double)t->p->total - (double)done) / rate : -1;

	if (t->tty) {
		draw_bar(t, part, rate, left);
	} else if (now >= t->next_line && done) {
		fprintf(stderr, "%.0f %% (%llu of %llu %s, %.0f %s/s)", 100 * part, (unsigned long long)done,
		        (unsigned long long)t->p->total, t->p->unit, rate, t->p->unit);
		put_left(left);
		putc('\n', stderr);
		t->next_line = now + LINE_S;
	}
}

static void *watch(void *arg)
{
	struct progress_thread *t = arg;
	struct timespec until;
	bool stopped = false;

	pthread_mutex_lock(&t->lock);
	while (!t->end) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += TICK_MS * 1000000L;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_nsec -= 1000000000L;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&t->wake, &t->lock, &until);
		if (caught && !stopped) {
			t->p->stop(t->p->arg);
			stopped = true;
		}
		if (!t->end)
			show(t);
	}
	pthread_mutex_unlock(&t->lock);
	if (t->tty)
		fputs("\r\x1b[K", stderr);
	return NULL;
}

err_code progress_start(const struct progress *p, struct progress_thread **out, struct err *e)
{
	struct progress_thread *t = mem_zalloc(1, sizeof *t, e);
	pthread_condattr_t monotonic;

	if (!t)
		return e->code;
	t->p = p;
	t->tty = isatty(2);
	t->started = clock_mono_s();
	t->next_line = t->started + LINE_S;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (pthread_create(&t->thread, NULL, watch, t)) {
		free(t);
		return err_set(e, ERR_IO, "cannot start a thread");
	}
	*out = t;
	return ERR_OK;
}

void progress_stop(struct progress_thread *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->end = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
