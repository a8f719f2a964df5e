/* Matrix products, and all else that is asked of oneDNN: the one file that includes its header (v2 API, 2.6).
 *
 * How oneDNN splits a sum depends on the number of its threads and on the rows, so a product always has KERN_TILE rows
 * and its primitive is made and run with one thread. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"

struct kern_matmul {
	dnnl_primitive_t primitive;
	dnnl_memory_desc_t in, weights, out, scratch;
	void *packed; /* owned: the weights */
};

static struct {
	pthread_once_t once;
	dnnl_engine_t engine; /* lives as long as the process */
	dnnl_status_t status;
} shared = {.once = PTHREAD_ONCE_INIT};

static void shared_init(void)
{
	shared.status = dnnl_engine_create(&shared.engine, dnnl_cpu, 0);
}

static dnnl_status_t desc_init(dnnl_memory_desc_t *d, dnnl_dim_t rows, dnnl_dim_t cols, dnnl_data_type_t type,
                               dnnl_format_tag_t tag)
{
	dnnl_dims_t dims = {rows, cols};

	return dnnl_memory_desc_init_by_tag(d, 2, dims, type, tag);
}

/* in [KERN_TILE, k] times weights [k, n] in the layout that oneDNN likes best */
static dnnl_status_t primitive_create(struct kern_matmul *m, uint32_t n, uint32_t k, dnnl_data_type_t type)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_primitive_attr_t attr = NULL;
	dnnl_matmul_desc_t desc;
	dnnl_memory_desc_t any;
	dnnl_status_t rc;

	if ((rc = desc_init(&m->in, KERN_TILE, k, type, dnnl_ab)) ||
	    (rc = desc_init(&m->out, KERN_TILE, n, dnnl_f32, dnnl_ab)) ||
	    (rc = desc_init(&any, k, n, type, dnnl_format_tag_any)) || (rc = dnnl_primitive_attr_create(&attr)) ||
	    (rc = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)) ||
	    (rc = dnnl_matmul_desc_init(&desc, &m->in, &any, NULL, &m->out)) ||
	    (rc = dnnl_primitive_desc_create(&pd, &desc, attr, shared.engine, NULL)))
		goto out;
	m->weights = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
	m->scratch = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	rc = dnnl_primitive_create(&m->primitive, pd);
out:
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
	return rc;
}

static dnnl_status_t execute(dnnl_primitive_t p, const dnnl_exec_arg_t *args, int n_args)
{
	dnnl_stream_t stream = NULL;
	dnnl_status_t rc = dnnl_stream_create(&stream, shared.engine, dnnl_stream_default_flags);

	if (rc)
		return rc;
	rc = dnnl_primitive_execute(p, stream, n_args, args);
	if (!rc)
		rc = dnnl_stream_wait(stream);
	dnnl_stream_destroy(stream);
	return rc;
}

/* w [n, k] row-major is [k, n] column-major */
static dnnl_status_t weights_pack(struct kern_matmul *m, const float *w, uint32_t n, uint32_t k)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_primitive_t reorder = NULL;
	dnnl_memory_t from = NULL, to = NULL;
	dnnl_memory_desc_t plain;
	union {
		const float *in;
		void *out;
	} src = {.in = w}; /* oneDNN takes no pointers to const */
	size_t size = dnnl_memory_desc_get_size(&m->weights);
	dnnl_status_t rc;

	m->packed = aligned_alloc(KERN_ALIGN, (size + KERN_ALIGN - 1) / KERN_ALIGN * KERN_ALIGN);
	if (!m->packed)
		return dnnl_out_of_memory;
	if ((rc = desc_init(&plain, k, n, dnnl_f32, dnnl_ba)) ||
	    (rc = dnnl_memory_create(&from, &plain, shared.engine, src.out)) ||
	    (rc = dnnl_memory_create(&to, &m->weights, shared.engine, m->packed)) ||
	    (rc = dnnl_reorder_primitive_desc_create(&pd, &plain, shared.engine, &m->weights, shared.engine, NULL)) ||
	    (rc = dnnl_primitive_create(&reorder, pd)))
		goto out;
	rc = execute(reorder, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, 2);
out:
	dnnl_primitive_destroy(reorder);
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	dnnl_memory_destroy(from);
	dnnl_memory_destroy(to);
	return rc;
}

int kern_matmul_new(struct kern_matmul **out, const float *w, uint32_t n, uint32_t k, enum kern_type type)
{
	struct kern_matmul *m = calloc(1, sizeof *m);
	int threads = omp_get_max_threads();
	dnnl_status_t rc;

	if (!m)
		return dnnl_out_of_memory;
	pthread_once(&shared.once, shared_init);
	omp_set_num_threads(1);
	rc = shared.status;
	if (!rc)
		rc = primitive_create(m, n, k, type == KERN_BF16 ? dnnl_bf16 : dnnl_f32);
	if (!rc)
		rc = weights_pack(m, w, n, k);
	omp_set_num_threads(threads);
	if (rc) {
		kern_matmul_free(m);
		return rc;
	}
	*out = m;
	return 0;
}

void kern_matmul_free(struct kern_matmul *m)
{
	if (!m)
		return;
	dnnl_primitive_destroy(m->primitive);
	free(m->packed);
	free(m);
}

size_t kern_matmul_scratch_bytes(const struct kern_matmul *m)
{
	return dnnl_memory_desc_get_size(&m->scratch);
}

/* The wrappers of memory are small and made per call, so that a product has no state and threads may share it. */
int kern_matmul_cpu(float *out, const void *in, const struct kern_matmul *m, void *scratch)
{
	dnnl_memory_t mem[4] = {NULL};
	union {
		const void *in;
		void *out;
	} src = {.in = in};
	dnnl_status_t rc;

	if ((rc = dnnl_memory_create(&mem[0], &m->in, shared.engine, src.out)) ||
	    (rc = dnnl_memory_create(&mem[1], &m->weights, shared.engine, m->packed)) ||
	    (rc = dnnl_memory_create(&mem[2], &m->out, shared.engine, out)) ||
	    (rc = dnnl_memory_create(&mem[3], &m->scratch, shared.engine, scratch)))
		goto out;
	rc = execute(m->primitive,
	             (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, mem[0]},
	                                 {DNNL_ARG_WEIGHTS, mem[1]},
	                                 {DNNL_ARG_DST, mem[2]},
	                                 {DNNL_ARG_SCRATCHPAD, mem[3]}},
	             4);
out:
	for (int i = 0; i < 4; i++)
		dnnl_memory_destroy(mem[i]);
	return rc;
}

void kern_thread_init(void)
{
	omp_set_num_threads(1);
}

const char *kern_status(int status)
{
	switch ((dnnl_status_t)status) {
	case dnnl_out_of_memory:
		return "out of memory";
	case dnnl_invalid_arguments:
		return "oneDNN: invalid arguments";
	case dnnl_unimplemented:
		return "oneDNN: not implemented on this processor";
	default:
		return "oneDNN: runtime error";
	}
}

static char library[32];

static void library_init(void)
{
	const dnnl_version_t *v = dnnl_version();

	snprintf(library, sizeof library, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const char *kern_library(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, library_init);
	return library;
}

const char *kern_isa(void)
{
	switch (dnnl_get_effective_cpu_isa()) {
	case dnnl_cpu_isa_sse41:
		return "sse41";
	case dnnl_cpu_isa_avx:
		return "avx";
	case dnnl_cpu_isa_avx2:
		return "avx2";
	case dnnl_cpu_isa_avx2_vnni:
		return "avx2_vnni";
	case dnnl_cpu_isa_avx512_core:
		return "avx512_core";
	case dnnl_cpu_isa_avx512_core_vnni:
		return "avx512_core_vnni";
	case dnnl_cpu_isa_avx512_core_bf16:
		return "avx512_core_bf16";
	case dnnl_cpu_isa_avx512_core_amx:
		return "avx512_core_amx";
	default:
		return "base";
	}
}

const struct kern_cpu *kern_cpu(void)
{
#if defined(__x86_64__)
	switch (dnnl_get_effective_cpu_isa()) {
	case dnnl_cpu_isa_avx2:
	case dnnl_cpu_isa_avx2_vnni:
		return &kern_cpu_avx2;
	case dnnl_cpu_isa_avx512_core:
	case dnnl_cpu_isa_avx512_core_vnni:
		return &kern_cpu_avx512;
	case dnnl_cpu_isa_avx512_core_bf16:
	case dnnl_cpu_isa_avx512_core_amx:
		return &kern_cpu_avx512_bf16;
	default:
		break;
	}
#endif
	return &kern_cpu_base;
}

bool kern_has_bf16(void)
{
	return kern_cpu()->attention_bf16 != NULL;
}
