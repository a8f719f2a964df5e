/* See pool.h. Owns the threads.
 *
 * The caller only waits: all tasks run in the pool's own threads, whose set-up (oneDNN's thread count) must not leak
 * into the caller's. `round` counts calls of pool_run; a thread works when it sees a new one, and the last
 * to find no task left wakes the caller. */
#include "engine/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/buf.h"

struct worker {
	struct pool *pool; /* borrowed */
	uint32_t index;
	pthread_t thread;
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t start, done;
	struct worker *workers; /* [n] owned */
	uint32_t n;
	void (*init)(void);

	/* under lock */
	uint64_t round;
	uint32_t n_busy;
	bool quit;
	/* written under lock before a round, read-only during it */
	void (*fn)(void *, uint32_t, uint32_t);
	void *arg;
	uint32_t n_tasks;

	atomic_uint next;
};

static bool wait_for_round(struct pool *p, uint64_t *seen)
{
	bool quit;

	pthread_mutex_lock(&p->lock);
	while (p->round == *seen && !p->quit)
		pthread_cond_wait(&p->start, &p->lock);
	*seen = p->round;
	quit = p->quit;
	pthread_mutex_unlock(&p->lock);
	return !quit;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	uint64_t seen = 0;
	uint32_t task;

	if (p->init)
		p->init();
	while (wait_for_round(p, &seen)) {
		while ((task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n_tasks)
			p->fn(p->arg, task, w->index);
		pthread_mutex_lock(&p->lock);
		if (--p->n_busy == 0)
			pthread_cond_signal(&p->done);
		pthread_mutex_unlock(&p->lock);
	}
	return NULL;
}

uint32_t pool_size(uint32_t asked, uint32_t most)
{
	cpu_set_t set;

	if (!asked && !sched_getaffinity(0, sizeof set, &set))
		asked = (uint32_t)CPU_COUNT(&set);
	return asked < 1 ? 1 : asked > most ? most : asked;
}

err_code pool_new(uint32_t n_threads, void (*init)(void), struct pool **out, struct err *e)
{
	struct pool *p = mem_zalloc(1, sizeof *p, e);

	if (!p)
		return e->code;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->start, NULL);
	pthread_cond_init(&p->done, NULL);
	p->init = init;
	p->workers = mem_zalloc(n_threads, sizeof *p->workers, e);
	if (!p->workers)
		goto fail;
	for (; p->n < n_threads; p->n++) {
		struct worker *w = &p->workers[p->n];

		w->pool = p;
		w->index = p->n;
		if (pthread_create(&w->thread, NULL, work, w)) {
			err_set(e, ERR_DEVICE, "cannot start thread %u of %u", p->n + 1, n_threads);
			goto fail;
		}
	}
	*out = p;
	return ERR_OK;
fail:
	pool_free(p);
	return e->code;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	pthread_cond_broadcast(&p->start);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->n; i++)
		pthread_join(p->workers[i].thread, NULL);
	pthread_cond_destroy(&p->start);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->lock);
	free(p->workers);
	free(p);
}

uint32_t pool_n_threads(const struct pool *p)
{
	return p->n;
}

void pool_run(struct pool *p, void (*fn)(void *, uint32_t, uint32_t), void *arg, uint32_t n_tasks)
{
	if (!n_tasks)
		return;
	pthread_mutex_lock(&p->lock);
	p->fn = fn;
	p->arg = arg;
	p->n_tasks = n_tasks;
	atomic_store_explicit(&p->next, 0, memory_order_relaxed);
	p->n_busy = p->n;
	p->round++;
	pthread_cond_broadcast(&p->start);
	while (p->n_busy)
		pthread_cond_wait(&p->done, &p->lock);
	pthread_mutex_unlock(&p->lock);
}
