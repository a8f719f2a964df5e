/* Scoring speed of the CPU engine: bench_score --model DIR [--length 1024] [--tokens 8192] [--dtype f32] [--threads 2]
 * [--repeat 5] [--ids FILE]. Prints one JSON object.
 *
 * A batch is tokens/length sequences of `length` predictions. Model FLOPs count every product once and half the
 * attention square (the causal half). oneDNN's own rate is that of its product at the model's MLP shape, all threads
 * at work on tiles, measured between the repetitions: the machine is noisy, so only ratios within one run count.
 * --ids: token ids as uint32, so that a peer can score the same windows; otherwise they are drawn. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/buf.h"
#include "engine/engine.h"
#include "engine/pool.h"
#include "kernels/kernels.h"
#include "tests/bench.h"

#define MAX_REPEAT 100

struct options {
	const char *model, *dtype, *ids;
	uint32_t length, tokens, threads, repeat;
};

/* Processor time of all threads: what it would take on a machine that does nothing else. */
static double cpu_s(void)
{
	return bench_clock_s(CLOCK_PROCESS_CPUTIME_ID);
}

static size_t peak_rss_bytes(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (size_t)u.ru_maxrss * 1024;
}

/* -- oneDNN's own rate ------------------------------------------------------------------------------- */

struct gemm {
	struct kern_matmul *m; /* owned */
	uint32_t n, k, n_threads;
	char **memory; /* [n_threads] owned: in, out, scratch */
	size_t in_bytes, out_bytes;
	struct pool *pool; /* owned */
};

static void *aligned(size_t bytes)
{
	char *p = aligned_alloc(KERN_ALIGN, (bytes / KERN_ALIGN + 1) * KERN_ALIGN);

	for (size_t i = 0; p && i < bytes / 2; i++)
		((uint16_t *)(void *)p)[i] = (uint16_t)(0x3c00 + i * 2654435761u % 512); /* small, in both types */
	return p;
}

static void gemm_tile(void *arg, uint32_t task, uint32_t thread)
{
	struct gemm *g = arg;
	char *p = g->memory[thread];

	(void)task;
	if (kern_matmul_cpu((float *)(void *)(p + g->in_bytes), p, g->m, p + g->in_bytes + g->out_bytes))
		abort();
}

static err_code gemm_init(struct gemm *g, uint32_t n, uint32_t k, uint32_t n_threads, bool bf16, struct err *e)
{
	enum kern_type type = bf16 ? KERN_BF16 : KERN_F32;
	float *w = aligned((size_t)n * k * sizeof *w);
	int rc = w ? kern_matmul_new(&g->m, w, n, k, type) : 1;

	free(w);
	if (rc)
		return err_set(e, ERR_DEVICE, "the reference product: %s", kern_status(rc));
	g->n = n;
	g->k = k;
	g->n_threads = n_threads;
	g->in_bytes = KERN_TILE * k * kern_type_size(type);
	g->out_bytes = KERN_TILE * sizeof(float) * n;
	g->memory = mem_zalloc(n_threads, sizeof *g->memory, e);
	if (!g->memory)
		return e->code;
	for (uint32_t i = 0; i < n_threads; i++)
		if (!(g->memory[i] = aligned(g->in_bytes + g->out_bytes + kern_matmul_scratch_bytes(g->m) + 64)))
			return err_set(e, ERR_MEMORY, "out of memory");
	return pool_new(n_threads, kern_thread_init, &g->pool, e);
}

static void gemm_release(struct gemm *g)
{
	pool_free(g->pool);
	for (uint32_t i = 0; g->memory && i < g->n_threads; i++)
		free(g->memory[i]);
	free(g->memory);
	kern_matmul_free(g->m);
}

/* FLOP/s over about a fifth of a second; *cpu: the same for each second of a processor */
static double gemm_rate(struct gemm *g, double *cpu)
{
	double flops = 2. * KERN_TILE * g->n * g->k, t0 = bench_now_s(), cpu0 = cpu_s(), t;
	uint32_t tiles = 0, n = (uint32_t)(2e9 * g->n_threads / flops) + 1;

	do {
		pool_run(g->pool, gemm_tile, g, n);
		tiles += n;
		t = bench_now_s() - t0;
	} while (t < .2);
	*cpu = flops * tiles / (cpu_s() - cpu0);
	return flops * tiles / t;
}

/* -- scoring ------------------------------------------------------------------------------------------ */

/* [repeat] each; cpu_*: per second of processor time */
struct times {
	double seconds[MAX_REPEAT], cpu_seconds[MAX_REPEAT], gemm[MAX_REPEAT], cpu_gemm[MAX_REPEAT];
	double open_s, load_s;
};

static void report(const struct options *o, const struct model *m, const struct bench_work *w, struct times *t,
                   size_t rss)
{
	uint32_t n_seq = w->batch->n_segments;
	double nll = 0, s = bench_median(t->seconds, o->repeat), g = bench_median(t->gemm, o->repeat);
	double flops = model_flops(&m->config, w->batch), rate = flops / s;
	double cpu_rate = flops / bench_median(t->cpu_seconds, o->repeat);

	for (uint32_t i = 0; i < w->batch->n_tokens; i++)
		nll -= w->marks[i] ? w->out[i].logprob : 0;
	printf("{\"model\":\"%s\",\"dtype\":\"%s\",\"length\":%u,\"sequences\":%u,\"threads\":%u,\"isa\":\"%s\","
	       "\"tokens_per_s\":%.1f,\"best_tokens_per_s\":%.1f,\"model_gflops\":%.1f,\"onednn_gflops\":%.1f,"
	       "\"of_onednn\":%.3f,\"of_onednn_cpu_time\":%.3f,\"cpu_s\":%.4f,\"nll_mean\":%.6f,\"open_s\":%.3f,\"load_"
	       "s\":%.3f,\"peak_rss_mb\":%.1f,"
	       "\"estimate_mb\":%.1f}\n",
	       m->name, o->dtype, o->length, n_seq, o->threads, kern_isa(), o->length * n_seq / s,
	       o->length * n_seq / t->seconds[0], rate * 1e-9, g * 1e-9, rate / g,
	       cpu_rate / bench_median(t->cpu_gemm, o->repeat), flops / cpu_rate, nll / (o->length * n_seq), t->open_s,
	       t->load_s, (double)rss * 1e-6,
	       (double)session_memory(m, &(struct session_options){.dtype = o->dtype, .n_threads = o->threads},
	                              (struct batch_size){w->batch->n_tokens, w->batch->n_segments}) *
	           1e-6);
}

static err_code bench(const struct options *o, struct err *e)
{
	struct session_options so = {.device = "cpu", .dtype = o->dtype, .n_threads = o->threads};
	struct model *m = NULL;
	struct session *s = NULL;
	struct gemm g = {0};
	struct bench_work w = {0};
	static struct times times;
	uint32_t n_seq = o->tokens / o->length ? o->tokens / o->length : 1;
	double t = bench_now_s(), cpu;
	size_t rss;
	err_code rc;

	if ((rc = model_open(o->model, NULL, &m, e)))
		return rc;
	times.open_s = bench_now_s() - t;
	t = bench_now_s();
	if ((rc = session_open(m, &so, &s, e)))
		goto out;
	times.load_s = bench_now_s() - t;
	if ((rc = bench_work_init(&w, n_seq, o->length, 1, o->ids, m->config.n_vocab, e)) ||
	    (rc = session_score(s, w.batch, w.out, e)))
		goto out;
	rss = peak_rss_bytes();
	if ((rc = gemm_init(&g, m->config.ffn_dim, m->config.dim, o->threads, !strcmp(o->dtype, "bf16"), e)))
		goto out;
	for (uint32_t i = 0; i < o->repeat; i++) {
		times.gemm[i] = gemm_rate(&g, &times.cpu_gemm[i]);
		t = bench_now_s();
		cpu = cpu_s();
		if ((rc = session_score(s, w.batch, w.out, e)))
			goto out;
		times.seconds[i] = bench_now_s() - t;
		times.cpu_seconds[i] = cpu_s() - cpu;
	}
	report(o, m, &w, &times, rss);
out:
	gemm_release(&g);
	bench_work_release(&w);
	session_close(s);
	model_free(m);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
	    {"model", 1, NULL, 'm'},   {"length", 1, NULL, 'l'}, {"tokens", 1, NULL, 'n'}, {"dtype", 1, NULL, 'd'},
	    {"threads", 1, NULL, 't'}, {"repeat", 1, NULL, 'r'}, {"ids", 1, NULL, 'i'},    {NULL, 0, NULL, 0},
	};
	struct options o = {.dtype = "f32", .length = 1024, .tokens = 8192, .threads = 2, .repeat = 5};
	struct err e;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		switch (c) {
		case 'm':
			o.model = optarg;
			break;
		case 'd':
			o.dtype = optarg;
			break;
		case 'i':
			o.ids = optarg;
			break;
		case 'l':
			o.length = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'n':
			o.tokens = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 't':
			o.threads = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'r':
			o.repeat = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		default:
			return 2;
		}
	if (!o.model || !o.length || !o.threads || !o.repeat || o.repeat > MAX_REPEAT) {
		fprintf(stderr, "usage: bench_score --model DIR [--length N] [--tokens N] [--dtype f32|bf16]"
		                " [--threads N] [--repeat N] [--ids FILE]\n");
		return 2;
	}
	if (bench(&o, &e)) {
		fprintf(stderr, "bench_score: %s\n", e.msg);
		return 1;
	}
	return 0;
}
