/* What the benchmarks of scoring share: clocks, the median, and batches of sequences of one length. */
#ifndef FATHOM_TESTS_BENCH_H
#define FATHOM_TESTS_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/buf.h"
#include "engine/engine.h"

#define BENCH_MAX_BATCHES 16

static inline double bench_clock_s(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline double bench_now_s(void)
{
	return bench_clock_s(CLOCK_MONOTONIC);
}

static inline int bench_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Sorts x, so that x[0] is the best time. */
static inline double bench_median(double *x, uint32_t n)
{
	qsort(x, n, sizeof *x, bench_by_value);
	return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Batches of sequences of `length` predictions: length + 1 tokens, all but the first scored. */
struct bench_work {
	uint32_t *tokens;         /* [n_batches, n] owned */
	uint8_t *marks;           /* [n] owned */
	struct segment *segments; /* [n_sequences] owned */
	struct token_score *out;  /* [n] owned: of the batch that was scored last */
	struct batch batch[BENCH_MAX_BATCHES];
	uint32_t n; /* tokens of a batch */
};

static inline void bench_work_release(struct bench_work *w)
{
	free(w->tokens);
	free(w->marks);
	free(w->segments);
	free(w->out);
}

/* ids: a file of token ids as uint32, so that a peer can score the same; NULL: they are drawn. */
static inline err_code bench_work_init(struct bench_work *w, uint32_t n_sequences, uint32_t length, uint32_t n_batches,
                                       const char *ids, uint32_t n_vocab, struct err *e)
{
	uint32_t len = length + 1;
	size_t n = (size_t)n_sequences * len, n_all = n * n_batches, got = n_all;
	FILE *f;

	w->n = (uint32_t)n;
	if (!(w->tokens = mem_alloc(n_all, sizeof *w->tokens, e)) || !(w->marks = mem_alloc(n, 1, e)) ||
	    !(w->segments = mem_alloc(n_sequences, sizeof *w->segments, e)) ||
	    !(w->out = mem_alloc(n, sizeof *w->out, e)))
		return e->code;
	for (size_t i = 0, x = 1; i < n_all; i++)
		w->tokens[i] = (uint32_t)((x = x * 6364136223846793005u + 1442695040888963407u) >> 33) % n_vocab;
	if (ids) {
		f = fopen(ids, "rb");
		got = f ? fread(w->tokens, sizeof *w->tokens, n_all, f) : 0;
		if (f)
			fclose(f);
	}
	if (got != n_all)
		return err_set(e, ERR_IO, "%s: %zu token ids, not %zu", ids, got, n_all);
	memset(w->marks, 1, n);
	for (uint32_t i = 0; i < n_sequences; i++) {
		w->segments[i] = (struct segment){-1, i * len, len};
		w->marks[(size_t)i * len] = 0;
	}
	for (uint32_t i = 0; i < n_batches; i++)
		w->batch[i] = (struct batch){w->tokens + i * n, w->marks, w->n, w->segments, n_sequences};
	return ERR_OK;
}

#endif
