/* Speed of the CUDA engine, as one JSON object: what tests/bench_gpu.py puts beside PyTorch's.
 *
 *     bench_gpu --model DIR --sequences 32 --length 1024 [--batches 2] [--ids FILE] [--scores FILE] [--repeat 12]
 *     bench_gpu --attention --head-dim 64 [--pope] --heads 12 --sequences 32 --length 1024 [--repeat 24]
 *
 * Scoring: batches of `sequences` segments of length + 1 tokens, all but the first scored: sequences * length tokens,
 * as PyTorch's side counts them. The time is session_score's, wall clock, by turns over the batches; ops_ms is one more
 * pass with a wait after each op, so that its sum is a little more than the pass. Attention: the kernel alone, by turns
 * over sets of random buffers that together exceed the L2, and the error of some rows against double precision. */
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/buf.h"
#include "engine/device.h"
#include "engine/engine.h"
#include "engine/forward.h"
#include "kernels/kernels_cuda.h"
#include "tests/bench.h"

#define MAX_REPEAT 1000
#define WARM_UP    2

struct options {
	const char *model, *dtype, *ids, *scores;
	uint32_t device, sequences, length, batches, repeat, head_dim, heads;
	bool attention, pope;
};

static double now_ms(void)
{
	return bench_now_s() * 1e3;
}

static err_code cuda_check(cudaError_t rc, const char *what, struct err *e)
{
	return rc ? err_set(e, ERR_DEVICE, "%s: %s", what, cudaGetErrorString(rc)) : ERR_OK;
}

static size_t min_free_bytes = SIZE_MAX;

static void note_memory(void)
{
	size_t free_bytes, total;

	if (!cudaMemGetInfo(&free_bytes, &total) && free_bytes < min_free_bytes)
		min_free_bytes = free_bytes;
}

/* -- batches ------------------------------------------------------------------------------------------- */

/* Log-probabilities of the scored tokens of the batch that was scored last, f32. */
static err_code write_scores(const struct bench_work *w, const char *path, struct err *e)
{
	FILE *f = fopen(path, "wb");
	bool ok = f != NULL;

	for (uint32_t i = 0; ok && i < w->n; i++)
		ok = !w->marks[i] || fwrite(&w->out[i].logprob, sizeof w->out[i].logprob, 1, f) == 1;
	if (f && fclose(f))
		ok = false;
	return ok ? ERR_OK : err_set(e, ERR_IO, "cannot write %s", path);
}

/* -- ops, one by one ----------------------------------------------------------------------------------- */

enum op { OP_BEGIN, OP_EMBED, OP_QKV, OP_ATTENTION, OP_MLP, OP_HEAD, OP_END, N_OP };
static const char *const OP_NAME[N_OP] = {"begin", "embed", "qkv", "attention", "mlp", "head", "end"};

/* What the wrappers below share: the table they wrap, time spent in each op, when begin and end returned. */
static struct {
	const struct backend_ops *ops;
	bool wait;
	double ms[N_OP], started, began, ended;
} trace;

static err_code traced(enum op op, err_code rc)
{
	if (trace.wait)
		cudaDeviceSynchronize();
	trace.ended = now_ms();
	trace.ms[op] += trace.ended - trace.started;
	if (op == OP_BEGIN)
		trace.began = trace.ended;
	return rc;
}

#define TRACED(op, call) (trace.started = now_ms(), traced(op, trace.ops->call))

static err_code trace_begin(struct backend *b, const struct pass *p, struct err *e)
{
	return TRACED(OP_BEGIN, begin(b, p, e));
}
static err_code trace_embed(struct backend *b, uint32_t row0, uint32_t row1, struct err *e)
{
	return TRACED(OP_EMBED, embed(b, row0, row1, e));
}
static err_code trace_qkv(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	return TRACED(OP_QKV, qkv(b, layer, row0, row1, e));
}
static err_code trace_attention(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	return TRACED(OP_ATTENTION, attention(b, layer, row0, row1, e));
}
static err_code trace_mlp(struct backend *b, uint32_t layer, uint32_t row0, uint32_t row1, struct err *e)
{
	return TRACED(OP_MLP, mlp(b, layer, row0, row1, e));
}
static err_code trace_head(struct backend *b, uint32_t p0, uint32_t p1, struct token_score *out, struct err *e)
{
	return TRACED(OP_HEAD, head(b, p0, p1, out, e));
}
static err_code trace_end(struct backend *b, struct err *e)
{
	return TRACED(OP_END, end(b, e));
}

/* One pass as it is, for host_ms (what a pass spends before its first op and after its last), and one that waits after
 * each op, for the ops' times. A backend of its own, after the session that was timed is closed. */
static err_code trace_ops(const struct options *o, const struct model *m, struct bench_work *w, double *host_ms,
                          struct err *e)
{
	char device[32];
	struct session_options so = {.device = device, .dtype = o->dtype};
	struct forward_control control = {0};
	struct backend *b = NULL;
	struct backend_ops t;
	enum dtype dtype = DTYPE_BF16;
	err_code rc;

	for (enum dtype d = DTYPE_F32; d <= DTYPE_BF16; d++)
		if (!strcmp(o->dtype, dtype_name(d)))
			dtype = d;
	snprintf(device, sizeof device, "cuda:%u", o->device);
	if ((rc = device_backend(device, &trace.ops, e)) || (rc = trace.ops->open(m, &so, dtype, &b, e)))
		return rc;
	t = *trace.ops;
	t.begin = trace_begin;
	t.embed = trace_embed;
	t.qkv = trace_qkv;
	t.attention = trace_attention;
	t.mlp = trace_mlp;
	t.head = trace_head;
	t.end = trace_end;
	for (int i = 0; i < WARM_UP + 2 && !rc; i++) {
		double start = now_ms();

		trace.wait = i == WARM_UP + 1;
		memset(trace.ms, 0, sizeof trace.ms);
		rc = forward_run(&t, b, &m->config, &w->batch[0], &control, w->out, e);
		if (i == WARM_UP)
			*host_ms = now_ms() - start - (trace.ended - trace.began);
	}
	trace.ops->close(b);
	return rc;
}

static void report_score(const struct options *o, const struct model *m, double *ms, double host_ms, double open_ms,
                         uint32_t batch_tokens)
{
	double n = (double)o->sequences * o->length, mid = bench_median(ms, o->repeat);

	printf("{\"model\":\"%s\",\"dtype\":\"%s\",\"sequences\":%u,\"length\":%u,\"tokens_per_s\":%.1f,\"ms\":%.4f,"
	       "\"best_ms\":%.4f,\"host_ms\":%.4f,\"open_ms\":%.1f,\"batch_tokens\":%u,\"min_free_bytes\":%zu,"
	       "\"ops_ms\":{",
	       m->name, o->dtype, o->sequences, o->length, n / mid * 1e3, mid, ms[0], host_ms, open_ms, batch_tokens,
	       min_free_bytes);
	for (int i = 0; i < N_OP; i++)
		printf("%s\"%s\":%.4f", i ? "," : "", OP_NAME[i], trace.ms[i]);
	printf("}}\n");
}

static err_code bench_score(const struct options *o, struct err *e)
{
	static double ms[MAX_REPEAT];
	char device[32];
	struct session_options so = {.device = device, .dtype = o->dtype};
	struct model *m = NULL;
	struct session *s = NULL;
	struct bench_work w = {0};
	double start, open_ms, host_ms = 0;
	uint32_t batch_tokens;
	err_code rc;

	snprintf(device, sizeof device, "cuda:%u", o->device);
	if ((rc = model_open(o->model, NULL, &m, e)))
		return rc;
	start = now_ms();
	if ((rc = session_open(m, &so, &s, e)) ||
	    (rc = bench_work_init(&w, o->sequences, o->length, o->batches, o->ids, m->config.n_vocab, e)))
		goto out;
	open_ms = now_ms() - start;
	batch_tokens = session_batch_tokens(s);
	for (uint32_t i = 0; i < WARM_UP + o->repeat; i++) {
		start = now_ms();
		if ((rc = session_score(s, &w.batch[i % o->batches], w.out, e)))
			goto out;
		if (i >= WARM_UP)
			ms[i - WARM_UP] = now_ms() - start;
		note_memory();
		if (i == 0 && o->scores && (rc = write_scores(&w, o->scores, e)))
			goto out;
	}
	session_close(s);
	s = NULL;
	if (!(rc = trace_ops(o, m, &w, &host_ms, e)))
		report_score(o, m, ms, host_ms, open_ms, batch_tokens);
out:
	bench_work_release(&w);
	session_close(s);
	model_free(m);
	return rc;
}

/* -- the attention kernel alone ------------------------------------------------------------------------ */

#define N_POOL   ((1u << 22) + 7) /* normals that fill all buffers, over and over: no two rows alike */
#define N_SET    3
#define N_SAMPLE 24 /* rows that are compared with double precision */

static uint16_t bf16_bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* |x| below 2^-14 becomes zero; there is nothing large here. */
static uint16_t f16_bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	if ((u >> 23 & 0xff) < 113)
		return (uint16_t)(u >> 16 & 0x8000);
	return (uint16_t)((u >> 16 & 0x8000) + (((u & 0x7fffffff) - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13));
}

static double bf16_value(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float x;

	memcpy(&x, &u, sizeof x);
	return (double)x;
}

static double f16_value(uint16_t h)
{
	double x = ldexp((h & 0x3ff) + 1024, (h >> 10 & 31) - 25);

	return !(h & 0x7fff) ? 0 : h & 0x8000 ? -x : x;
}

struct attention {
	struct kern_attention_shape shape;
	struct kern_attention_cuda call[N_SET];
	void *memory[4 * N_SET + 3]; /* of the device, owned: all that the calls point to */
	uint16_t *qk, *v;            /* [N_POOL] owned: f16, bf16 */
	struct kern_tile *tiles;     /* owned, host */
	uint32_t *panels;            /* owned, host */
	uint32_t n_memory, n_tiles, n_panels;
};

static void attention_release(struct attention *a)
{
	for (uint32_t i = 0; i < a->n_memory; i++)
		cudaFree(a->memory[i]);
	free(a->qk);
	free(a->v);
	free(a->tiles);
	free(a->panels);
}

/* Device memory, NaN at first in every type. NULL with an error. */
static void *new_memory(struct attention *a, size_t bytes, struct err *e)
{
	void *d = NULL;

	if (cuda_check(cudaMalloc(&d, bytes), "cudaMalloc", e))
		return NULL;
	a->memory[a->n_memory++] = d;
	return cuda_check(cudaMemset(d, 0xff, bytes), "cudaMemset", e) ? NULL : d;
}

static err_code fill_pools(struct attention *a, struct err *e)
{
	uint64_t state = 1;

	if (!(a->qk = mem_alloc(N_POOL, sizeof *a->qk, e)) || !(a->v = mem_alloc(N_POOL, sizeof *a->v, e)))
		return e->code;
	for (uint32_t i = 0; i < N_POOL; i++) {
		double u[2];

		for (int j = 0; j < 2; j++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			u[j] = ((double)(state >> 11) + .5) * 0x1p-53;
		}
		a->qk[i] = f16_bits((float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1])));
		a->v[i] = bf16_bits((float)(sqrt(-2 * log(u[0])) * sin(6.283185307179586 * u[1])));
	}
	return ERR_OK;
}

/* Device memory that holds the pool over and over, from element `start` of it on. */
static const void *fill(struct attention *a, size_t n, const uint16_t *pool, uint32_t start, struct err *e)
{
	uint16_t *d = new_memory(a, n * sizeof *d, e);

	for (size_t i = 0, k; d && i < n; i += k, start = 0) {
		k = n - i < N_POOL - start ? n - i : N_POOL - start;
		if (cuda_check(cudaMemcpy(d + i, pool + start, k * sizeof *d, cudaMemcpyHostToDevice), "copy", e))
			return NULL;
	}
	return d;
}

/* Tiles of all sequences, the longest chains first; sequence s has the panels [s n, (s + 1) n). */
static err_code make_tiles(struct attention *a, const struct options *o, struct err *e)
{
	uint32_t per = (o->length - 1) / a->shape.tile_rows + 1, n = (o->length - 1) / a->shape.block + 1, i = 0;

	a->n_tiles = per * o->sequences;
	a->n_panels = n * o->sequences;
	if (!(a->tiles = mem_alloc(a->n_tiles, sizeof *a->tiles, e)) ||
	    !(a->panels = mem_alloc(a->n_panels, sizeof *a->panels, e)))
		return e->code;
	for (uint32_t t = per; t-- > 0;)
		for (uint32_t s = 0; s < o->sequences; s++) {
			uint32_t pos0 = t * a->shape.tile_rows, left = o->length - pos0;

			a->tiles[i++] = (struct kern_tile){
			    s * o->length + pos0, left < a->shape.tile_rows ? left : a->shape.tile_rows, pos0, s * n};
		}
	for (i = 0; i < a->n_panels; i++)
		a->panels[i] = i;
	return ERR_OK;
}

static void *upload(struct attention *a, const void *from, size_t bytes, struct err *e)
{
	void *d = new_memory(a, bytes, e);

	return d && cuda_check(cudaMemcpy(d, from, bytes, cudaMemcpyHostToDevice), "copy", e) ? NULL : d;
}

/* Where set i's buffers start in the pools. */
static uint32_t pool_start(int set, int which)
{
	return (uint32_t)(set * 3 + which) * 424243 % N_POOL;
}

static err_code attention_init(struct attention *a, const struct options *o, struct err *e)
{
	uint32_t rows = o->sequences * o->length, q_rows = (rows + KERN_ROW_PAD - 1) / KERN_ROW_PAD * KERN_ROW_PAD;
	struct kern_attention_cuda c = {.n_head = o->heads,
	                                .n_kv_head = o->heads,
	                                .head_dim = o->head_dim,
	                                .q_rows = q_rows,
	                                .out_stride = o->heads * o->head_dim,
	                                .scale = (float)(1 / sqrt(o->head_dim)),
	                                .pope = o->pope,
	                                .type = KERN_BF16};
	uint32_t zero = 0;
	err_code rc;

	if ((rc = fill_pools(a, e)) || (rc = make_tiles(a, o, e)))
		return rc;
	c.n_tiles = a->n_tiles;
	c.n_slots = a->n_panels * a->shape.block;
	if (!(c.tiles = upload(a, a->tiles, a->n_tiles * sizeof *a->tiles, e)) ||
	    !(c.panels = upload(a, a->panels, a->n_panels * sizeof *a->panels, e)) ||
	    !(c.counter = upload(a, &zero, sizeof zero, e)))
		return e->code;
	for (int i = 0; i < N_SET; i++) {
		struct kern_attention_cuda *s = &a->call[i];
		size_t n_head = o->heads;

		*s = c;
		if (!(s->q = fill(a, n_head * q_rows * a->shape.d_qk, a->qk, pool_start(i, 0), e)) ||
		    !(s->k = fill(a, n_head * c.n_slots * a->shape.d_qk, a->qk, pool_start(i, 1), e)) ||
		    !(s->v = fill(a, n_head * c.n_slots * a->shape.d_v, a->v, pool_start(i, 2), e)) ||
		    !(s->out = new_memory(a, (size_t)q_rows * c.out_stride * 2, e)))
			return e->code;
	}
	return ERR_OK;
}

/* The largest difference of a row of set 0 from softmax(scale q k^T) v in double; NaN if there is one. */
static double row_error(const struct attention *a, const struct options *o, uint32_t row, uint32_t head,
                        const uint16_t *got /* [head_dim] bf16 */, double *p /* [length] */)
{
	const struct kern_attention_cuda *c = &a->call[0];
	uint32_t seq = row / o->length, pos = row % o->length, d_qk = a->shape.d_qk, d_v = a->shape.d_v;
	size_t slot0 = (size_t)head * c->n_slots + (size_t)seq * (c->n_slots / o->sequences);
	size_t q0 = ((size_t)head * c->q_rows + row) * d_qk + pool_start(0, 0);
	size_t k0 = slot0 * d_qk + pool_start(0, 1), v0 = slot0 * d_v + pool_start(0, 2);
	double max = -INFINITY, sum = 0, worst = 0;

	for (uint32_t j = 0; j <= pos; j++) {
		p[j] = 0;
		for (uint32_t i = 0; i < d_qk; i++)
			p[j] += f16_value(a->qk[(q0 + i) % N_POOL]) *
			        f16_value(a->qk[(k0 + (size_t)j * d_qk + i) % N_POOL]);
		p[j] *= (double)c->scale;
		max = fmax(max, p[j]);
	}
	for (uint32_t j = 0; j <= pos; j++)
		sum += p[j] = exp(p[j] - max);
	for (uint32_t i = 0; i < o->head_dim; i++) {
		double want = 0, error;

		for (uint32_t j = 0; j <= pos; j++)
			want += p[j] / sum * bf16_value(a->v[(v0 + (size_t)j * d_v + i) % N_POOL]);
		error = fabs(bf16_value(got[i]) - want);
		if (!(error <= worst))
			worst = error;
	}
	return worst;
}

static err_code attention_error(const struct attention *a, const struct options *o, double *worst, struct err *e)
{
	uint32_t rows = o->sequences * o->length, near[] = {0, 1, o->length - 1, o->length / 2};
	double *p = mem_alloc(o->length, sizeof *p, e);
	err_code rc = ERR_OK;

	*worst = 0;
	if (!p)
		return e->code;
	for (uint32_t i = 0; i < N_SAMPLE && !rc; i++) {
		uint32_t row = i < 4 ? near[i] : (uint32_t)((uint64_t)rows * (i - 3) / (N_SAMPLE - 3)) - 1;
		uint32_t head = i * 5 % o->heads;
		size_t at = (size_t)row * o->heads * o->head_dim + (size_t)head * o->head_dim;
		uint16_t got[KERN_MAX_HEAD_DIM];
		double error;

		rc = cuda_check(cudaMemcpy(got, (const uint16_t *)a->call[0].out + at, o->head_dim * sizeof *got,
		                           cudaMemcpyDeviceToHost),
		                "attention", e);
		error = rc ? 0 : row_error(a, o, row, head, got, p);
		if (!(error <= *worst))
			*worst = error;
	}
	free(p);
	return rc;
}

static err_code time_attention(const struct attention *a, const struct options *o, double *ms, struct err *e)
{
	static cudaEvent_t marks[MAX_REPEAT + 1];
	cudaStream_t stream;
	err_code rc = cuda_check(cudaStreamCreate(&stream), "cudaStreamCreate", e);

	if (rc)
		return rc;
	for (uint32_t i = 0; i <= o->repeat; i++)
		cudaEventCreate(&marks[i]);
	for (uint32_t i = 0; i < N_SET + o->repeat && !rc; i++) {
		int status;

		if (i == N_SET)
			cudaEventRecord(marks[0], stream);
		status = kern_attention_cuda(&a->call[i % N_SET], (int)o->device, stream);
		if (status)
			rc = err_set(e, ERR_DEVICE, "attention: %s", kern_cuda_error(status));
		if (i >= N_SET)
			cudaEventRecord(marks[i - N_SET + 1], stream);
	}
	if (!rc)
		rc = cuda_check(cudaStreamSynchronize(stream), "attention", e);
	for (uint32_t i = 0; i < o->repeat && !rc; i++) {
		float t = 0;

		cudaEventElapsedTime(&t, marks[i], marks[i + 1]);
		ms[i] = (double)t;
	}
	for (uint32_t i = 0; i <= o->repeat; i++)
		cudaEventDestroy(marks[i]);
	cudaStreamDestroy(stream);
	return rc;
}

static err_code bench_attention(const struct options *o, struct err *e)
{
	static double ms[MAX_REPEAT];
	struct attention a = {0};
	double error = 0, mid, flops;
	int major = 0, minor = 0;
	err_code rc;

	cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)o->device);
	cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, (int)o->device);
	if (kern_attention_shape_cuda(&a.shape, 10 * major + minor, KERN_BF16, o->head_dim, o->pope))
		return err_set(e, ERR_INPUT, "no kernel takes heads of %u", o->head_dim);
	if ((rc = attention_init(&a, o, e)) || (rc = time_attention(&a, o, ms, e)) ||
	    (rc = attention_error(&a, o, &error, e)))
		goto out;
	note_memory();
	mid = bench_median(ms, o->repeat);
	flops = (double)o->sequences * o->heads * (a.shape.d_qk + a.shape.d_v) * o->length * o->length;
	printf(
	    "{\"d_qk\":%u,\"d_v\":%u,\"tile_rows\":%u,\"block\":%u,\"ms\":%.4f,\"best_ms\":%.4f,\"flops_per_s\":%.6g,"
	    "\"max_error\":",
	    a.shape.d_qk, a.shape.d_v, a.shape.tile_rows, a.shape.block, mid, ms[0], flops / mid * 1e3);
	printf(isfinite(error) ? "%.6g" : "1e9", error);
	printf(",\"min_free_bytes\":%zu}\n", min_free_bytes);
out:
	attention_release(&a);
	return rc;
}

/* -- options ------------------------------------------------------------------------------------------- */

static uint32_t number(const char *s)
{
	return (uint32_t)strtoul(s, NULL, 10);
}

static bool parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
	    {"model", 1, NULL, 'm'},  {"attention", 0, NULL, 'a'}, {"head-dim", 1, NULL, 'h'},
	    {"pope", 0, NULL, 'p'},   {"heads", 1, NULL, 'H'},     {"sequences", 1, NULL, 's'},
	    {"length", 1, NULL, 'l'}, {"batches", 1, NULL, 'b'},   {"ids", 1, NULL, 'i'},
	    {"scores", 1, NULL, 'o'}, {"repeat", 1, NULL, 'r'},    {"dtype", 1, NULL, 'd'},
	    {"device", 1, NULL, 'D'}, {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'a':
			o->attention = true;
			break;
		case 'p':
			o->pope = true;
			break;
		case 'm':
			o->model = optarg;
			break;
		case 'd':
			o->dtype = optarg;
			break;
		case 'i':
			o->ids = optarg;
			break;
		case 'o':
			o->scores = optarg;
			break;
		case 'h':
			o->head_dim = number(optarg);
			break;
		case 'H':
			o->heads = number(optarg);
			break;
		case 's':
			o->sequences = number(optarg);
			break;
		case 'l':
			o->length = number(optarg);
			break;
		case 'b':
			o->batches = number(optarg);
			break;
		case 'r':
			o->repeat = number(optarg);
			break;
		case 'D':
			o->device = number(optarg);
			break;
		default:
			return false;
		}
	}
	return (o->model || o->attention) && o->sequences && o->length && o->repeat && o->repeat <= MAX_REPEAT &&
	       o->batches && o->batches <= BENCH_MAX_BATCHES && o->heads && o->head_dim &&
	       o->head_dim <= KERN_MAX_HEAD_DIM && (uint64_t)o->sequences * (o->length + 1) <= UINT32_MAX / 2;
}

int main(int argc, char **argv)
{
	struct options o = {
	    .dtype = "bf16", .sequences = 32, .length = 1024, .batches = 1, .repeat = 12, .head_dim = 64, .heads = 12};
	struct err e;

	if (!parse(&o, argc, argv)) {
		fprintf(stderr, "usage: bench_gpu --model DIR [--sequences N] [--length N] [--batches N] [--ids FILE]"
		                " [--scores FILE] [--dtype bf16|f16|f32] [--repeat N] [--device N]\n"
		                "       bench_gpu --attention [--head-dim N] [--pope] [--heads N] [--sequences N]"
		                " [--length N] [--repeat N] [--device N]\n");
		return 2;
	}
	if (cuda_check(cudaSetDevice((int)o.device), "the device", &e) ||
	    (o.attention ? bench_attention : bench_score)(&o, &e)) {
		fprintf(stderr, "bench_gpu: %s\n", e.msg);
		return 1;
	}
	return 0;
}
