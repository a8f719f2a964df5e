/* Products and the head on CUDA against double precision on the CPU, and that a row's bits depend on that row alone. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/fixture_gpu.h"

#define MAX_ROWS 1024

static const enum kern_type types[] = {KERN_F32, KERN_BF16, KERN_F16};
static const char *type_names[] = {"f32", "bf16", "f16"};
static const uint32_t row_counts[] = {1, 2, 255, 256, 257, 1000};
#define N_TYPES      (sizeof types / sizeof *types)
#define N_ROW_COUNTS (sizeof row_counts / sizeof *row_counts)

static int this_device(void)
{
	int device;

	ck_assert_int_eq(cudaGetDevice(&device), cudaSuccess);
	return device;
}

static size_t padded(size_t n)
{
	return (n + KERN_ROW_PAD - 1) / KERN_ROW_PAD * KERN_ROW_PAD;
}

static double dot(const float *a, const float *b, uint32_t n)
{
	double s = 0;

	for (uint32_t i = 0; i < n; i++)
		s += (double)a[i] * b[i];
	return s;
}

static double gelu(double x)
{
	return .5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + .044715 * x * x * x)));
}

/* x [n_rows, width], uploaded with rows up to `rows`, all zero. */
static void *upload_padded(const float *x, size_t n_rows, size_t rows, size_t width, enum kern_type type)
{
	float *all = calloc(rows * width, sizeof *all);
	void *d;

	ck_assert_ptr_nonnull(all);
	memcpy(all, x, n_rows * width * sizeof *all);
	d = gpu_upload(all, rows * width, type);
	free(all);
	return d;
}

/* -- products ------------------------------------------------------------------------------------ */

struct product {
	uint32_t n, k;
	enum kern_type type, out_type;
	bool gelu;
};

static const struct product products[] = {
    {768, 256, KERN_BF16, KERN_BF16, false},  {1024, 256, KERN_BF16, KERN_BF16, true},
    {256, 1024, KERN_BF16, KERN_BF16, false}, {768, 256, KERN_BF16, KERN_F32, false},
    {768, 256, KERN_F16, KERN_F16, false},    {1024, 256, KERN_F16, KERN_F16, true},
    {256, 72, KERN_F16, KERN_F32, false},     {768, 256, KERN_F32, KERN_F32, false},
    {1024, 256, KERN_F32, KERN_F32, true},    {256, 1024, KERN_F32, KERN_F32, false},
    {24, 8, KERN_BF16, KERN_BF16, false},     {40, 200, KERN_F32, KERN_F32, true},
    {36, 100, KERN_BF16, KERN_BF16, false},   {3, 5, KERN_F32, KERN_F32, false},
    {7, 3, KERN_BF16, KERN_F32, false},       {2304, 768, KERN_BF16, KERN_BF16, false},
    {288, 2056, KERN_BF16, KERN_BF16, false}, {32, 2056, KERN_F16, KERN_F16, false},
    {160, 40, KERN_BF16, KERN_BF16, true},
};
#define N_PRODUCTS (int)(sizeof products / sizeof *products)

/* What a product may be off by: the rounding of what comes out, and f32 sums of k terms of variance 1 / k; a half
 * type's GELU is by an approximate tanh. */
static void check_product(const struct product *p, const float *got, const double *want, uint32_t n_rows)
{
	char what[96];

	snprintf(what, sizeof what, "%s -> %s, n %u, k %u%s, %u rows", type_names[p->type], type_names[p->out_type],
	         p->n, p->k, p->gelu ? ", gelu" : "", n_rows);
	gpu_near(what, got, want, (size_t)n_rows * p->n, p->n, p->gelu && p->type != KERN_F32 ? 2e-3 : 1e-5,
	         2 * gpu_epsilon(p->out_type) + 1e-6);
}

START_TEST(products_are_right_and_a_rows_bits_do_not_depend_on_how_many_rows_there_are)
{
	const struct product *p = &products[_i];
	size_t row_bytes = p->n * kern_type_size(p->out_type);
	struct kern_blas *b;
	float *in, *w;
	double *want;
	void *d_in, *d_w, *d_out;
	char *all;

	if (!fixture_gpu_present("products"))
		return;
	in = gpu_normals_of((size_t)MAX_ROWS * p->k, 1, p->type);
	w = gpu_normals_of((size_t)p->n * p->k, 1 / sqrtf((float)p->k), p->type);
	want = malloc((size_t)MAX_ROWS * p->n * sizeof *want);
	ck_assert_ptr_nonnull(want);
	for (size_t i = 0; i < MAX_ROWS; i++)
		for (size_t j = 0; j < p->n; j++) {
			double x = dot(in + i * p->k, w + j * p->k, p->k);

			want[i * p->n + j] = p->gelu ? gelu(x) : x;
		}
	d_in = gpu_upload(in, (size_t)MAX_ROWS * p->k, p->type);
	d_w = gpu_upload(w, (size_t)p->n * p->k, p->type);
	d_out = gpu_new_n((size_t)MAX_ROWS * p->n, p->out_type);
	gpu_ok(kern_blas_new(&b, this_device(), p->type));
	gpu_ok(kern_matmul_cuda(b, d_out, p->out_type, d_in, d_w, MAX_ROWS, p->n, p->k, p->gelu, NULL));
	check_product(p, gpu_download(d_out, (size_t)MAX_ROWS * p->n, p->out_type), want, MAX_ROWS);
	all = gpu_download_bytes(d_out, MAX_ROWS * row_bytes);
	for (size_t i = 0; i < N_ROW_COUNTS; i++) {
		uint32_t n = row_counts[i];

		gpu_poison(d_out, MAX_ROWS * row_bytes);
		gpu_ok(kern_matmul_cuda(b, d_out, p->out_type, d_in, d_w, n, p->n, p->k, p->gelu, NULL));
		ck_assert_msg(!memcmp(gpu_download_bytes(d_out, n * row_bytes), all, n * row_bytes),
		              "%u rows, product %d: not the bits of %u rows", n, _i, MAX_ROWS);
	}
	/* a row's place */
	gpu_poison(d_out, MAX_ROWS * row_bytes);
	gpu_ok(kern_matmul_cuda(b, d_out, p->out_type, (char *)d_in + (size_t)8 * p->k * kern_type_size(p->type), d_w,
	                        700, p->n, p->k, p->gelu, NULL));
	ck_assert_msg(!memcmp(gpu_download_bytes(d_out, 700 * row_bytes), all + 8 * row_bytes, 700 * row_bytes),
	              "product %d: rows moved by 8 have other bits", _i);
	kern_blas_free(b);
	free(want);
	gpu_end();
}
END_TEST

START_TEST(wrong_products_are_refused)
{
	struct kern_blas *b;
	void *x;

	if (!fixture_gpu_present("wrong products"))
		return;
	x = gpu_new(1 << 20);
	gpu_ok(kern_blas_new(&b, this_device(), KERN_BF16));
	ck_assert_int_ne(kern_matmul_cuda(b, x, KERN_F16, x, x, 256, 64, 64, false, NULL), 0);
	ck_assert_int_ne(kern_matmul_cuda(b, x, KERN_BF16, x, x, 256, 0, 64, false, NULL), 0);
	ck_assert_int_ne(kern_matmul_cuda(b, x, KERN_F32, x, x, 256, 64, 64, true, NULL), 0);
	ck_assert_int_eq(kern_matmul_cuda(b, x, KERN_BF16, x, x, 0, 64, 64, false, NULL), 0);
	kern_blas_free(b);
	kern_blas_free(NULL);
	gpu_end();
}
END_TEST

/* -- the head ------------------------------------------------------------------------------------ */

struct head {
	struct kern_head_cuda a; /* all that is on the device */
	struct kern_blas *blas;
	float *h, *w; /* host */
	uint32_t *targets;
	uint32_t rows; /* of h, padded */
};

/* Rows h [n_rows, dim] and weights w [n_vocab, dim] are those of the caller; targets are random. */
static void head_init(struct head *t, float *h, float *w, uint32_t n_rows, uint32_t dim, uint32_t n_vocab,
                      enum kern_type type)
{
	memset(t, 0, sizeof *t);
	t->h = h;
	t->w = w;
	t->rows = (uint32_t)padded(n_rows);
	t->targets = malloc(n_rows * sizeof *t->targets);
	ck_assert_ptr_nonnull(t->targets);
	for (uint32_t i = 0; i < n_rows; i++)
		t->targets[i] = i < 2 ? i * (n_vocab - 1) : gpu_u32() % n_vocab;
	t->a.h = upload_padded(h, n_rows, t->rows, dim, type);
	t->a.w = upload_padded(w, n_vocab, (n_vocab + KERN_VOCAB_PAD - 1) / KERN_VOCAB_PAD * KERN_VOCAB_PAD, dim, type);
	t->a.targets = gpu_upload_bytes(t->targets, n_rows * sizeof *t->targets);
	t->a.n_rows = n_rows;
	t->a.dim = dim;
	t->a.n_vocab = n_vocab;
	t->a.type = type;
	t->a.fault = gpu_fault(7, 1000);
	gpu_ok(kern_blas_new(&t->blas, this_device(), type));
}

static void head_release(struct head *t)
{
	kern_blas_free(t->blas);
	free(t->targets);
	gpu_end();
}

/* Scores of the first n rows: with fresh memory, of just the size that is asked for. */
static struct kern_score *head_run(struct head *t, uint32_t n)
{
	t->a.n_rows = n;
	t->a.out = gpu_new(n * sizeof *t->a.out);
	t->a.scratch = gpu_new(kern_head_scratch_bytes(n, t->a.dim, t->a.n_vocab, t->a.type, gpu_capability()));
	gpu_ok(kern_head_cuda(&t->a, t->blas, this_device(), NULL));
	gpu_check_guards();
	return gpu_download_bytes(t->a.out, n * sizeof *t->a.out);
}

/* One row in double. The argmax may be another one whose logit is as large but for rounding. Tensor cores add 16
 * products at a time and cut the sum off where f32 would round it: an error of one sign that grows with dim. */
static void check_score(const struct head *t, uint32_t row, const struct kern_score *got)
{
	uint32_t n = t->a.n_vocab, dim = t->a.dim;
	double *logit = malloc(n * sizeof *logit), max = -INFINITY, sum = 0, lse, scale = 1;

	ck_assert_ptr_nonnull(logit);
	for (uint32_t v = 0; v < n; v++) {
		logit[v] = dot(t->h + (size_t)row * dim, t->w + (size_t)v * dim, dim);
		max = fmax(max, logit[v]);
		scale = fmax(scale, fabs(logit[v]));
	}
	for (uint32_t v = 0; v < n; v++)
		sum += exp(logit[v] - max);
	lse = max + log(sum);
	scale *= 2e-6 + dim * (6e-8 / 16);
	ck_assert_msg(fabs(got->logprob - (logit[t->targets[row]] - lse)) <= scale,
	              "row %u of %u, vocabulary %u: %.9g, not %.9g", row, t->a.n_rows, n, got->logprob,
	              logit[t->targets[row]] - lse);
	ck_assert_msg(fabs(got->argmax_logprob - (max - lse)) <= scale,
	              "row %u of %u, vocabulary %u: argmax %.9g, not %.9g", row, t->a.n_rows, n, got->argmax_logprob,
	              max - lse);
	ck_assert_uint_lt(got->argmax, n);
	ck_assert_msg(max - logit[got->argmax] <= scale,
	              "row %u of %u, vocabulary %u: argmax %u has %g, but %g is there", row, t->a.n_rows, n,
	              got->argmax, logit[got->argmax], max);
	free(logit);
}

static const struct {
	uint32_t dim, n_vocab;
} heads[] = {{768, 50257}, {64, 67},    {72, 257},   {128, 256}, {8, 1},
             {100, 300},   {512, 1000}, {40, 50257}, {4, 5},     {1280, 515}};
#define N_HEADS (int)(sizeof heads / sizeof *heads)

START_TEST(scores_are_right_and_their_bits_do_not_depend_on_how_many_rows_there_are)
{
	uint32_t dim = heads[_i / (int)N_TYPES].dim, n_vocab = heads[_i / (int)N_TYPES].n_vocab;
	enum kern_type type = types[_i % (int)N_TYPES];
	struct kern_score *all;
	struct head t;

	if (!fixture_gpu_present("scores"))
		return;
	head_init(&t, gpu_normals_of((size_t)MAX_ROWS * dim, 1, type),
	          gpu_normals_of((size_t)n_vocab * dim, 2 / sqrtf((float)dim), type), MAX_ROWS, dim, n_vocab, type);
	all = head_run(&t, MAX_ROWS);
	for (uint32_t r = 0; r<MAX_ROWS; r += n_vocab> 1000 ? 311 : 13)
		check_score(&t, r, &all[r]);
	for (size_t i = 0; i < N_ROW_COUNTS; i++)
		ck_assert_msg(!memcmp(head_run(&t, row_counts[i]), all, row_counts[i] * sizeof *all),
		              "%u rows: not the bits of %u rows", row_counts[i], MAX_ROWS);
	ck_assert_uint_eq(gpu_fault_seen(&t.a.fault), UINT64_MAX);
	/* targets that are the argmax */
	for (uint32_t r = 0; r < MAX_ROWS; r++)
		t.targets[r] = all[r].argmax;
	t.a.targets = gpu_upload_bytes(t.targets, MAX_ROWS * sizeof *t.targets);
	all = head_run(&t, MAX_ROWS);
	for (uint32_t r = 0; r < MAX_ROWS; r++) {
		ck_assert_uint_eq(all[r].argmax, t.targets[r]);
		ck_assert(same_bits(&all[r].logprob, &all[r].argmax_logprob, sizeof(float)));
	}
	head_release(&t);
}
END_TEST

/* Zero rows pad the vocabulary: their logits of 0 must not win over negative ones, nor count. */
START_TEST(padding_never_wins_over_negative_logits)
{
	enum kern_type type = types[_i];
	uint32_t dim = 64, n_vocab = 300, n_rows = 9;
	struct kern_score *s;
	struct head t;
	float *h, *w;

	if (!fixture_gpu_present("padding"))
		return;
	h = gpu_normals_of((size_t)n_rows * dim, 1, type);
	w = gpu_normals_of((size_t)n_vocab * dim, 1, type);
	for (uint32_t i = 0; i < n_rows * dim; i++)
		h[i] = fabsf(h[i]);
	for (uint32_t i = 0; i < n_vocab * dim; i++)
		w[i] = -fabsf(w[i]);
	head_init(&t, h, w, n_rows, dim, n_vocab, type);
	s = head_run(&t, n_rows);
	for (uint32_t r = 0; r < n_rows; r++)
		check_score(&t, r, &s[r]);
	head_release(&t);
}
END_TEST

/* Copies of the best row of weights: in one lane's numbers, in another's, in another tile. */
START_TEST(the_smallest_of_equal_ids_is_the_argmax)
{
	static const uint32_t copies[][4] = {
	    {3, 4, 5, 700}, {8, 0, 9, 255}, {256, 257, 511, 600}, {699, 698, 130, 131}};
	enum kern_type type = types[_i];
	uint32_t dim = 64, n_vocab = 701, n_rows = 4;
	struct kern_score *s;
	struct head t;
	float *h, *w;

	if (!fixture_gpu_present("equal ids"))
		return;
	h = gpu_normals_of((size_t)n_rows * dim, 1, type);
	w = gpu_normals_of((size_t)n_vocab * dim, .1F, type);
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t i = 0; i < 4; i++)
			memcpy(w + (size_t)copies[r][i] * dim, h + (size_t)r * dim, dim * sizeof *w);
	head_init(&t, h, w, n_rows, dim, n_vocab, type);
	s = head_run(&t, n_rows);
	for (uint32_t r = 0; r < n_rows; r++) {
		uint32_t want = n_vocab;

		for (uint32_t i = 0; i < 4; i++)
			want = copies[r][i] < want ? copies[r][i] : want;
		ck_assert_uint_eq(s[r].argmax, want);
		check_score(&t, r, &s[r]);
	}
	head_release(&t);
}
END_TEST

START_TEST(a_row_that_is_not_finite_is_a_fault_and_harms_no_other)
{
	enum kern_type type = types[_i];
	uint32_t dim = 64, n_vocab = 600, n_rows = 300;
	struct kern_score *good, *bad;
	struct head t;
	float *h;

	if (!fixture_gpu_present("fault"))
		return;
	h = gpu_normals_of((size_t)n_rows * dim, 1, type);
	head_init(&t, h, gpu_normals_of((size_t)n_vocab * dim, .2F, type), n_rows, dim, n_vocab, type);
	good = head_run(&t, n_rows);
	ck_assert_uint_eq(gpu_fault_seen(&t.a.fault), UINT64_MAX);
	h[267 * dim + 1] = INFINITY;
	h[131 * dim + 63] = NAN;
	t.a.h = upload_padded(h, n_rows, t.rows, dim, type);
	bad = head_run(&t, n_rows);
	ck_assert_uint_eq(gpu_fault_seen(&t.a.fault), (uint64_t)7 << 32 | (1000 + 131));
	for (uint32_t r = 0; r < n_rows; r++)
		if (r != 131 && r != 267)
			ck_assert(same_bits(&good[r], &bad[r], sizeof *good));
	head_release(&t);
}
END_TEST

Suite *gpu_matmul_suite(void);
Suite *gpu_matmul_suite(void)
{
	Suite *s = suite_create("gpu_matmul");
	TCase *t = tcase_create("gpu");

	tcase_set_tags(t, "gpu");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, products_are_right_and_a_rows_bits_do_not_depend_on_how_many_rows_there_are, 0,
	                    N_PRODUCTS);
	tcase_add_test(t, wrong_products_are_refused);
	tcase_add_loop_test(t, scores_are_right_and_their_bits_do_not_depend_on_how_many_rows_there_are, 0,
	                    N_HEADS * (int)N_TYPES);
	tcase_add_loop_test(t, padding_never_wins_over_negative_logits, 0, (int)N_TYPES);
	tcase_add_loop_test(t, the_smallest_of_equal_ids_is_the_argmax, 0, (int)N_TYPES);
	tcase_add_loop_test(t, a_row_that_is_not_finite_is_a_fault_and_harms_no_other, 0, (int)N_TYPES);
	suite_add_tcase(s, t);
	return s;
}
