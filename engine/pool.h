/* A pool of threads that take numbered tasks. Which thread takes which task is not defined, so a task's result may not
 * depend on it: `thread` is only for scratch memory. */
#ifndef FATHOM_ENGINE_POOL_H
#define FATHOM_ENGINE_POOL_H

#include <stdint.h>

#include "engine/err.h"

struct pool;

/* How many threads to start: as many as `asked`; 0: as the process has processors. 1 to `most`. */
uint32_t pool_size(uint32_t asked, uint32_t most);

/* `init` (or NULL) runs once in each thread before any task. */
err_code pool_new(uint32_t n_threads, void (*init)(void), struct pool **out, struct err *e);
void pool_free(struct pool *p); /* NULL is fine; not while tasks run */

uint32_t pool_n_threads(const struct pool *p);

/* Calls fn(arg, task, thread) once for each task below n_tasks, lower tasks first, and waits for all. One caller at a
 * time. */
void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t task, uint32_t thread), void *arg, uint32_t n_tasks);

#endif
