/* See weights_cpu.h. A list of jobs, one a matrix, is worked off by the pool: each converts to f32 and packs. */
#include "engine/weights_cpu.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/buf.h"

#define MAX_PARTS  3
#define DROP_EVERY ((uint64_t)1 << 20) /* elements */

struct job {
	struct kern_matmul **out;
	const struct tensor *parts[MAX_PARTS]; /* stacked by rows; borrowed */
	uint32_t n_parts;
	uint32_t first, n, k; /* rows first..first + n of the stack */
};

struct loader {
	struct job *jobs; /* [n_jobs] owned */
	uint32_t n_jobs;
	enum kern_type type;
	const struct model *model;
	float **rows; /* [n_threads] owned, and each: a job's matrix in f32 */
	pthread_mutex_t lock;
	uint64_t mapped; /* under lock: elements read since pages were dropped */
	struct err err;  /* the first failure; code ERR_OK while there is none */
};

static void fail(struct loader *l, int status, const struct job *j)
{
	pthread_mutex_lock(&l->lock);
	if (!l->err.code)
		err_set(&l->err, ERR_DEVICE, "packing a matrix of %u by %u: %s", j->n, j->k, kern_status(status));
	pthread_mutex_unlock(&l->lock);
}

/* The map's pages are copies of what is packed already: dropped every so often, they do not double the peak. */
static void drop_pages(struct loader *l, uint64_t n_read)
{
	pthread_mutex_lock(&l->lock);
	l->mapped += n_read;
	if (l->mapped > DROP_EVERY) {
		l->mapped = 0;
		model_drop_pages(l->model);
	}
	pthread_mutex_unlock(&l->lock);
}

static void run_job(void *arg, uint32_t task, uint32_t thread)
{
	struct loader *l = arg;
	const struct job *j = &l->jobs[task];
	float *to = l->rows[thread];
	uint64_t first = (uint64_t)j->first * j->k, left = (uint64_t)j->n * j->k;
	int rc;

	for (uint32_t i = 0; i < j->n_parts && left; i++) {
		uint64_t count = j->parts[i]->shape[0] * j->parts[i]->shape[1] - first;

		if (count > left)
			count = left;
		tensor_to_f32(j->parts[i], first, count, to);
		to += count;
		left -= count;
		first = 0;
	}
	rc = kern_matmul_new(j->out, l->rows[thread], j->n, j->k, l->type);
	if (rc)
		fail(l, rc, j);
	drop_pages(l, (uint64_t)j->n * j->k);
}

static void add_job(struct loader *l, struct kern_matmul **out, uint32_t n, uint32_t k, const struct tensor *a,
                    const struct tensor *b, const struct tensor *c)
{
	struct job *j = &l->jobs[l->n_jobs++];

	*j = (struct job){.out = out, .parts = {a, b, c}, .n_parts = b ? c ? 3 : 2 : 1, .n = n, .k = k};
}

/* A vector in f32, several stacked; NULL without an error when all are absent. */
static err_code copy_vectors(float **out, const struct tensor *const *parts, uint32_t n_parts, struct err *e)
{
	uint64_t total = 0, at = 0;
	bool any = false;

	for (uint32_t i = 0; i < n_parts; i++) {
		any |= parts[i]->data != NULL;
		total += parts[i]->shape[0];
	}
	if (!any)
		return ERR_OK;
	*out = mem_zalloc(total, sizeof **out, e);
	if (!*out)
		return e->code;
	for (uint32_t i = 0; i < n_parts; at += parts[i++]->shape[0])
		if (parts[i]->data)
			tensor_to_f32(parts[i], 0, parts[i]->shape[0], *out + at);
	return ERR_OK;
}

static err_code copy_vector(float **out, const struct tensor *t, struct err *e)
{
	return copy_vectors(out, &t, 1, e);
}

static err_code copy_delta(struct layer_cpu *l, const struct tensor *t, struct err *e)
{
	uint64_t n = t->shape[0] * t->shape[1];
	err_code rc;

	if (!t->data)
		return ERR_OK;
	l->cos_delta = mem_alloc(n, sizeof(float), e);
	l->sin_delta = mem_alloc(n, sizeof(float), e);
	if (!l->cos_delta || !l->sin_delta)
		return e->code;
	rc = position_delta(t, false, l->cos_delta, e);
	return rc ? rc : position_delta(t, true, l->sin_delta, e);
}

static err_code add_layer(struct loader *load, struct layer_cpu *l, const struct layer_weights *m,
                          const struct model_config *c, struct err *e)
{
	const struct tensor *qkv_bias[] = {&m->q_bias, &m->k_bias, &m->v_bias};
	const struct tensor *up_bias[] = {&m->gate_bias, &m->up_bias};
	uint32_t width = c->n_head * c->head_dim;
	err_code rc;

	if ((rc = copy_vector(&l->attn_norm, &m->attn_norm, e)) || (rc = copy_vector(&l->mlp_norm, &m->mlp_norm, e)) ||
	    (rc = copy_vectors(&l->qkv_bias, qkv_bias, 3, e)) || (rc = copy_vector(&l->o_bias, &m->o_bias, e)) ||
	    (rc = c->mlp_gated ? copy_vectors(&l->up_bias, up_bias, 2, e) : copy_vector(&l->up_bias, &m->up_bias, e)) ||
	    (rc = copy_vector(&l->down_bias, &m->down_bias, e)) || (rc = copy_delta(l, &m->pope_delta, e)))
		return rc;
	add_job(load, &l->qkv, width + 2 * c->n_kv_head * c->head_dim, c->dim, &m->q, &m->k, &m->v);
	add_job(load, &l->o, c->dim, width, &m->o, NULL, NULL);
	if (c->mlp_gated)
		add_job(load, &l->up, 2 * c->ffn_dim, c->dim, &m->gate, &m->up, NULL);
	else
		add_job(load, &l->up, c->ffn_dim, c->dim, &m->up, NULL, NULL);
	add_job(load, &l->down, c->dim, c->ffn_dim, &m->down, NULL, NULL);
	return ERR_OK;
}

static void add_head(struct loader *l, struct weights_cpu *w, const struct model *m)
{
	uint32_t n_vocab = m->config.n_vocab;

	for (uint32_t i = 0; i < w->n_head_block; i++) {
		uint32_t first = i * HEAD_BLOCK, n = n_vocab - first;

		add_job(l, &w->head[i], n < HEAD_BLOCK ? n : HEAD_BLOCK, m->config.dim, &m->head, NULL, NULL);
		l->jobs[l->n_jobs - 1].first = first;
	}
}

/* Rows for the largest job, a buffer a thread: freed at the end, they leave nothing in the heaps of the threads. */
static err_code alloc_rows(struct loader *l, uint32_t n_threads, struct err *e)
{
	size_t most = 0;

	for (uint32_t i = 0; i < l->n_jobs; i++) {
		size_t n = (size_t)l->jobs[i].n * l->jobs[i].k;

		most = n > most ? n : most;
	}
	l->rows = mem_zalloc(n_threads, sizeof *l->rows, e);
	for (uint32_t i = 0; l->rows && i < n_threads; i++)
		if (!(l->rows[i] = mem_alloc(most, sizeof(float), e)))
			return e->code;
	return l->rows ? ERR_OK : e->code;
}

static void loader_release(struct loader *l, uint32_t n_threads)
{
	for (uint32_t i = 0; l->rows && i < n_threads; i++)
		free(l->rows[i]);
	free(l->rows);
	free(l->jobs);
}

static void find_scratch(struct weights_cpu *w, const struct loader *l)
{
	for (uint32_t i = 0; i < l->n_jobs; i++) {
		size_t n = kern_matmul_scratch_bytes(*l->jobs[i].out);

		w->scratch_bytes = n > w->scratch_bytes ? n : w->scratch_bytes;
	}
}

err_code weights_cpu_load(struct weights_cpu *w, const struct model *m, enum kern_type type, struct pool *pool,
                          struct err *e)
{
	const struct model_config *c = &m->config;
	struct loader l = {.type = type, .model = m, .lock = PTHREAD_MUTEX_INITIALIZER};
	err_code rc;

	*w = (struct weights_cpu){.n_layer = c->n_layer, .n_head_block = (c->n_vocab + HEAD_BLOCK - 1) / HEAD_BLOCK};
	if (!(w->layers = mem_zalloc(c->n_layer, sizeof *w->layers, e)) ||
	    !(w->head = mem_zalloc(w->n_head_block, sizeof(struct kern_matmul *), e)) ||
	    !(l.jobs = mem_alloc(4 * (size_t)c->n_layer + w->n_head_block, sizeof *l.jobs, e))) {
		rc = e->code;
		goto out;
	}
	if ((rc = copy_vector(&w->norm, &m->norm, e)))
		goto out;
	for (uint32_t i = 0; i < c->n_layer; i++)
		if ((rc = add_layer(&l, &w->layers[i], &m->layers[i], c, e))) {
			err_wrap(e, "model '%s': layer %u", m->name, i);
			goto out;
		}
	add_head(&l, w, m);
	if ((rc = alloc_rows(&l, pool_n_threads(pool), e)))
		goto out;
	pool_run(pool, run_job, &l, l.n_jobs);
	if ((rc = l.err.code)) {
		*e = l.err;
		goto out;
	}
	find_scratch(w, &l);
	model_drop_pages(m);
out:
	loader_release(&l, pool_n_threads(pool));
	if (rc)
		weights_cpu_release(w);
	return rc;
}

static void layer_release(struct layer_cpu *l)
{
	kern_matmul_free(l->qkv);
	kern_matmul_free(l->o);
	kern_matmul_free(l->up);
	kern_matmul_free(l->down);
	free(l->attn_norm);
	free(l->mlp_norm);
	free(l->qkv_bias);
	free(l->o_bias);
	free(l->up_bias);
	free(l->down_bias);
	free(l->cos_delta);
	free(l->sin_delta);
}

void weights_cpu_release(struct weights_cpu *w)
{
	for (uint32_t i = 0; w->layers && i < w->n_layer; i++)
		layer_release(&w->layers[i]);
	for (uint32_t i = 0; w->head && i < w->n_head_block; i++)
		kern_matmul_free(w->head[i]);
	free(w->layers);
	free(w->head);
	free(w->norm);
	*w = (struct weights_cpu){0};
}

size_t weights_cpu_load_bytes(const struct model_config *c, uint32_t n_threads)
{
	size_t head_width = (size_t)c->n_head * c->head_dim, kv_width = (size_t)c->n_kv_head * c->head_dim;
	size_t qkv = c->dim * (head_width + 2 * kv_width), up = (c->mlp_gated ? 2 : 1) * (size_t)c->dim * c->ffn_dim;
	size_t head = (size_t)HEAD_BLOCK * c->dim, most = qkv > up ? qkv : up;

	return sizeof(float) * (n_threads * (most > head ? most : head) + DROP_EVERY);
}

size_t weights_cpu_bytes(const struct model_config *c, enum kern_type type)
{
	size_t head_width = (size_t)c->n_head * c->head_dim, kv_width = (size_t)c->n_kv_head * c->head_dim;
	size_t attention = c->dim * (2 * head_width + 2 * kv_width);
	size_t mlp = (c->mlp_gated ? 3 : 2) * (size_t)c->dim * c->ffn_dim;

	return kern_type_size(type) * (c->n_layer * (attention + mlp) + (size_t)c->n_vocab * c->dim) +
	       c->n_layer * 4 * (2 * (size_t)c->dim + 2 * kv_width);
}
