/* session_score against a forward pass written out in double, for small random models of every shape; then what it
 * promises about batches: errors, subsets, progress, cancelling. */
#include <check.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/buf.h"
#include "engine/engine.h"
#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_scores.h"

static struct err e;

/* -- the forward pass in double -------------------------------------------------------------------- */

static double *read_tensor(const struct tensor *t)
{
	uint64_t n = t->data ? t->shape[0] * (t->n_dim == 2 ? t->shape[1] : 1) : 0;
	float *f = calloc(n + 1, sizeof *f);
	double *d = calloc(n + 1, sizeof *d);

	if (n)
		tensor_to_f32(t, 0, n, f);
	for (uint64_t i = 0; i < n; i++)
		d[i] = f[i];
	free(f);
	return d;
}

/* out [n, n_out] = x [n, n_in] w^T + bias */
static double *linear(const double *x, const struct tensor *w, const struct tensor *bias, uint32_t n)
{
	uint32_t n_out = (uint32_t)w->shape[0], n_in = (uint32_t)w->shape[1];
	double *m = read_tensor(w), *b = read_tensor(bias), *out = calloc((size_t)n * n_out, sizeof *out);

	for (uint32_t t = 0; t < n; t++)
		for (uint32_t o = 0; o < n_out; o++) {
			double sum = bias->data ? b[o] : 0;

			for (uint32_t i = 0; i < n_in; i++)
				sum += x[t * n_in + i] * m[o * n_in + i];
			out[t * n_out + o] = sum;
		}
	free(m);
	free(b);
	return out;
}

static double *norm(const double *x, const struct tensor *weight, uint32_t n, double eps)
{
	uint32_t dim = (uint32_t)weight->shape[0];
	double *w = read_tensor(weight), *out = calloc((size_t)n * dim, sizeof *out);

	for (uint32_t t = 0; t < n; t++) {
		double ms = 0;

		for (uint32_t i = 0; i < dim; i++)
			ms += x[t * dim + i] * x[t * dim + i] / dim;
		for (uint32_t i = 0; i < dim; i++)
			out[t * dim + i] = x[t * dim + i] / sqrt(ms + eps) * w[i];
	}
	free(w);
	return out;
}

/* q.k of a query at t and a key at s, unscaled, straight from the papers */
static double score(const struct model_config *c, const double *q, const double *k, const double *delta, double t,
                    double s)
{
	uint32_t d = c->head_dim;
	double sum = 0, base = c->position.theta, amplitude = c->position.attention_factor;

	if (c->position.type == POSITION_POPE) {
		for (uint32_t i = 0; i < d; i++)
			sum += log1p(exp(q[i])) * log1p(exp(k[i])) *
			       cos((s - t) * pow(base, -(double)i / d) + fmin(fmax(delta[i], -2 * M_PI), 0));
		return sum;
	}
	for (uint32_t i = 0; i < d / 2; i++) {
		double theta = pow(base, -2. * i / d);
		double a = (s - t) * (c->position.scaling == SCALING_LINEAR ? theta / c->position.factor : theta);
		double re = q[i] * k[i] + q[i + d / 2] * k[i + d / 2], im = q[i + d / 2] * k[i] - q[i] * k[i + d / 2];

		sum += re * cos(a) + im * sin(a);
	}
	return sum * amplitude * amplitude;
}

static double *attend(const struct model_config *c, const struct layer_weights *l, const double *h, uint32_t n)
{
	double *q = linear(h, &l->q, &l->q_bias, n), *k = linear(h, &l->k, &l->k_bias, n);
	double *v = linear(h, &l->v, &l->v_bias, n), *delta = read_tensor(&l->pope_delta);
	uint32_t d = c->head_dim, group = c->n_head / c->n_kv_head;
	double *out = calloc((size_t)n * c->n_head * d, sizeof *out), *p = calloc(n, sizeof *p), *o;

	for (uint32_t head = 0; head < c->n_head; head++)
		for (uint32_t t = 0; t < n; t++) {
			uint32_t kv = head / group;
			double max = -INFINITY, sum = 0;

			for (uint32_t s = 0; s <= t; s++) {
				p[s] =
				    c->attention_scale * score(c, q + (t * c->n_head + head) * d,
				                               k + (s * c->n_kv_head + kv) * d, delta + kv * d, t, s);
				max = fmax(max, p[s]);
			}
			for (uint32_t s = 0; s <= t; s++)
				sum += p[s] = exp(p[s] - max);
			for (uint32_t s = 0; s <= t; s++)
				for (uint32_t i = 0; i < d; i++)
					out[(t * c->n_head + head) * d + i] +=
					    p[s] / sum * v[(s * c->n_kv_head + kv) * d + i];
		}
	o = linear(out, &l->o, &l->o_bias, n);
	free(q);
	free(k);
	free(v);
	free(delta);
	free(out);
	free(p);
	return o;
}

static double activate(enum activation act, double x)
{
	switch (act) {
	case ACT_GELU_TANH:
		return .5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + .044715 * x * x * x)));
	case ACT_GELU:
		return .5 * x * (1 + erf(x * M_SQRT1_2));
	case ACT_SILU:
		return x / (1 + exp(-x));
	case ACT_RELU:
		break;
	}
	return x > 0 ? x : 0;
}

static double *mlp(const struct model_config *c, const struct layer_weights *l, const double *h, uint32_t n)
{
	double *up = linear(h, &l->up, &l->up_bias, n), *out;
	double *gate = c->mlp_gated ? linear(h, &l->gate, &l->gate_bias, n) : NULL;

	for (size_t i = 0; i < (size_t)n * c->ffn_dim; i++)
		up[i] = gate ? activate(c->act, gate[i]) * up[i] : activate(c->act, up[i]);
	out = linear(up, &l->down, &l->down_bias, n);
	free(up);
	free(gate);
	return out;
}

static void add_to(double *x, double *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] += y[i];
	free(y);
}

/* logits [n, n_vocab] of a sequence */
static double *forward(const struct model *m, const uint32_t *tokens, uint32_t n)
{
	const struct model_config *c = &m->config;
	size_t size = (size_t)n * c->dim;
	double *x = calloc(size, sizeof *x), *table = read_tensor(&m->embed), *h, *logits;
	static const struct tensor none;

	for (uint32_t t = 0; t < n; t++)
		memcpy(x + t * c->dim, table + tokens[t] * c->dim, c->dim * sizeof *x);
	for (uint32_t i = 0; i < c->n_layer; i++) {
		h = norm(x, &m->layers[i].attn_norm, n, c->rms_eps);
		add_to(x, attend(c, &m->layers[i], h, n), size);
		free(h);
		h = norm(x, &m->layers[i].mlp_norm, n, c->rms_eps);
		add_to(x, mlp(c, &m->layers[i], h, n), size);
		free(h);
	}
	h = norm(x, &m->norm, n, c->rms_eps);
	logits = linear(h, &m->head, &none, n);
	free(h);
	free(x);
	free(table);
	return logits;
}

/* -- sessions -------------------------------------------------------------------------------------- */

/* Scores a whole sequence but its first token, in poisoned output. */
static struct token_score *score_all(struct session *s, const uint32_t *tokens, uint32_t n)
{
	struct token_score *out = malloc(n * sizeof *out);
	uint8_t *marks = malloc(n);
	struct segment whole = {-1, 0, n};
	struct batch b = {tokens, marks, n, &whole, 1};

	memset(out, 0xff, n * sizeof *out);
	memset(marks, 1, n);
	marks[0] = 0;
	ck_ok(session_score(s, &b, out, &e), &e);
	free(marks);
	return out;
}

static void check_sequence(const struct model *m, struct session *s, uint32_t n, double tol)
{
	uint32_t n_vocab = m->config.n_vocab, *tokens = some_tokens(n, n_vocab, n);
	double *logits = forward(m, tokens, n);
	struct token_score *got = score_all(s, tokens, n);

	for (uint32_t t = 0; t + 1 < n; t++) {
		const double *x = logits + (size_t)t * n_vocab;
		double sum = 0, max = -INFINITY;

		for (uint32_t i = 0; i < n_vocab; i++) {
			sum += exp(x[i]);
			max = fmax(max, x[i]);
		}
		ck_assert_msg(fabs(got[t + 1].logprob - (x[tokens[t + 1]] - log(sum))) <= tol,
		              "length %u, token %u: %.7g, not %.7g", n, t + 1, got[t + 1].logprob,
		              x[tokens[t + 1]] - log(sum));
		ck_assert(fabs(got[t + 1].argmax_logprob - (max - log(sum))) <= tol);
		/* the argmax itself, unless two are closer than the tolerance */
		ck_assert(x[got[t + 1].argmax] >= max - 2 * tol);
	}
	free(tokens);
	free(logits);
	free(got);
}

static void check_model(const struct fixture_model *f, const uint32_t *lengths, size_t n_lengths)
{
	struct model *m = fixture_model_make(f);
	struct session *s = open_session(m, "cpu", "f32", 2, 0);
	struct device_info info;

	for (size_t i = 0; i < n_lengths; i++)
		check_sequence(m, s, lengths[i], 2e-5);
	session_close(s);
	ck_ok(device_describe("cpu", &info, &e), &e);
	if (info.bf16) {
		s = open_session(m, "cpu", "bf16", 2, 0);
		for (size_t i = 0; i < n_lengths; i++)
			check_sequence(m, s, lengths[i],
			               .25); /* logits of +-6 through 8 mantissa bits and two layers */
		session_close(s);
	} else {
		fixture_skip("forward in bf16", "no AVX512_BF16 here");
	}
	model_free(m);
}

START_TEST(scores_agree_with_double_at_every_edge)
{
	static const uint32_t lengths[] = {2, 3, 31, 33, 63, 64, 65, 66, 127, 128, 129, 130, 191, 192, 193, 194, 1025};
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	check_model(&f, lengths, sizeof lengths / sizeof *lengths);
	f.position = "pope";
	check_model(&f, lengths, sizeof lengths / sizeof *lengths);
}
END_TEST

START_TEST(scores_agree_with_double_for_every_architecture)
{
	static const uint32_t lengths[] = {70, 150};
	static const char *const acts[] = {"gelu_pytorch_tanh", "gelu", "silu", "relu"};

	for (int v = 0; v < 16; v++) {
		struct fixture_model f = FIXTURE_MODEL_DEFAULT;

		f.position = v & 1 ? "pope" : "rope";
		f.mlp_gated = v & 2;
		f.attention_bias = v & 4;
		f.mlp_bias = v & 8;
		f.tied = v % 3 == 0;
		f.hidden_act = acts[v / 4];
		f.dtype = v % 3;
		f.n_kv_head = 1u << v % 3;
		f.head_dim = v % 2 ? 6 : 10;
		f.dim = 20 + (uint32_t)v;
		f.ffn_dim = 50 + 3 * (uint32_t)v;
		f.n_shards = 1 + (uint32_t)v % 2;
		f.seed = 100 + (uint64_t)v;
		check_model(&f, lengths, 2);
	}
}
END_TEST

START_TEST(scores_agree_with_double_beyond_one_block_of_the_vocabulary)
{
	static const uint32_t lengths[] = {100};
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	f.n_vocab = 2500;
	f.rope_scaling = "{\"type\":\"linear\",\"factor\":4.0}";
	f.extra_config = "\"attention_scale\": 0.5";
	check_model(&f, lengths, 1);
}
END_TEST

/* -- batches --------------------------------------------------------------------------------------- */

static struct model *tiny;
static struct session *session;

static void setup(void)
{
	tiny = fixture_model_make(&FIXTURE_MODEL_DEFAULT);
	session = open_session(tiny, "cpu", "f32", 2, 0);
}

static void teardown(void)
{
	session_close(session);
	model_free(tiny);
}

START_TEST(malformed_batches_are_refused_by_name)
{
	uint32_t tokens[6] = {1, 2, 3, 4, 5, 6};
	uint8_t marks[6] = {0, 1, 1, 0, 1, 1};
	struct token_score out[6];
	struct segment two[2] = {{-1, 0, 3}, {-1, 3, 3}};
	struct batch b = {tokens, marks, 6, two, 2};

	ck_ok(session_score(session, &b, out, &e), &e);
	tokens[4] = 97;
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "token id 97 at position 1 of segment 1", &e);
	tokens[4] = 5;
	marks[3] = 1;
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "the first token of segment 1 is scored", &e);
	two[1].parent = 0;
	ck_ok(session_score(session, &b, out, &e), &e);
	two[1].parent = 1;
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segment 1 has parent 1", &e);
	two[1].parent = -2;
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segment 1 has parent -2", &e);
	two[1] = (struct segment){0, 4, 2};
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segment 1 starts at token 4, not 3", &e);
	two[1] = (struct segment){0, 3, 2};
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segments hold 5 tokens of 6", &e);
	two[1] = (struct segment){0, 3, 0};
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segment 1 is empty", &e);
	two[1] = (struct segment){0, 3, 4};
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segment 1 ends beyond token 6", &e);
	two[1] = (struct segment){0, 3, UINT32_MAX};
	ck_err(session_score(session, &b, out, &e), ERR_INPUT, "segment 1 ends beyond token 6", &e);
}
END_TEST

START_TEST(only_scored_tokens_are_written)
{
	uint32_t n = 90, *tokens = some_tokens(n, 97, 3);
	struct token_score *all = score_all(session, tokens, n), *some = malloc(n * sizeof *some);
	uint8_t marks[90] = {0};
	struct segment whole = {-1, 0, n};
	struct batch b = {tokens, marks, n, &whole, 1};

	memset(some, 0xee, n * sizeof *some);
	marks[17] = marks[18] = marks[60] = 1; /* and the tail needs no rows */
	ck_ok(session_score(session, &b, some, &e), &e);
	for (uint32_t i = 0; i < n; i++) {
		struct token_score untouched;

		memset(&untouched, 0xee, sizeof untouched);
		ck_assert(same_bits(&some[i], marks[i] ? &all[i] : &untouched, sizeof *some));
	}
	free(tokens);
	free(all);
	free(some);
}
END_TEST

START_TEST(a_batch_without_scores_is_done_at_once)
{
	uint32_t tokens[3] = {1, 2, 3};
	uint8_t marks[3] = {0};
	struct segment whole = {-1, 0, 3};
	struct batch b = {tokens, marks, 3, &whole, 1};
	struct token_score out[3];

	ck_ok(session_score(session, &b, out, &e), &e);
	ck_assert_uint_eq(session_done_tokens(session), 3);
	ck_ok(session_score(session, &(struct batch){tokens, marks, 0, &whole, 0}, out, &e), &e);
}
END_TEST

START_TEST(progress_counts_the_tokens_of_each_batch)
{
	uint32_t *tokens = some_tokens(500, 97, 3);

	free(score_all(session, tokens, 200));
	ck_assert_uint_eq(session_done_tokens(session), 200);
	free(score_all(session, tokens, 500));
	ck_assert_uint_eq(session_done_tokens(session), 700);
	free(tokens);
}
END_TEST

static void *stop_when_moving(void *arg)
{
	struct session *s = arg;

	while (!session_done_tokens(s))
		usleep(100);
	session_stop(s);
	return NULL;
}

START_TEST(a_stopped_session_says_so_and_goes_on_after_resume)
{
	uint32_t n = 40000, *tokens = some_tokens(n, 97, 3);
	struct token_score *out = calloc(n, sizeof *out);
	uint8_t *marks = calloc(n, 1);
	struct segment whole = {-1, 0, n};
	struct batch b = {tokens, marks, n, &whole, 1};
	struct session_options o = {.device = "cpu", .n_threads = 2, .chunk_rows = 64};
	struct session *s = NULL;
	pthread_t thread;
	uint64_t done;

	ck_ok(session_open(tiny, &o, &s, &e), &e);
	marks[n - 1] = 1;
	ck_assert_int_eq(pthread_create(&thread, NULL, stop_when_moving, s), 0);
	ck_err(session_score(s, &b, out, &e), ERR_CANCELLED, "stopped", &e);
	pthread_join(thread, NULL);
	done = session_done_tokens(s);
	ck_assert_uint_gt(done, 0);
	ck_assert_uint_lt(done, n);
	ck_err(session_score(s, &b, out, &e), ERR_CANCELLED, "stopped", &e);
	session_resume(s);
	free(score_all(s, tokens, 100));
	ck_assert_uint_eq(session_done_tokens(s), done + 100);
	session_close(s);
	free(tokens);
	free(out);
	free(marks);
}
END_TEST

/* -- what is not finite ---------------------------------------------------------------------------- */

/* A model one of whose embedding rows, or weights, is replaced. */
static struct model *poisoned_model(void **copy, bool embedding, uint64_t index, float value)
{
	struct model *m = fixture_model_make(&FIXTURE_MODEL_DEFAULT);

	*copy = poison_tensor(embedding ? &m->embed : &m->layers[1].down, index, value);
	return m;
}

START_TEST(a_nan_fails_with_layer_and_position)
{
	uint32_t n = 200, *tokens = some_tokens(n, 50, 4);
	void *copy;
	struct model *m;

	tokens[133] = 96; /* position 133 of segment 1's chain */
	m = poisoned_model(&copy, true, 96 * 32 + 5, NAN);
	scores_refused(m, "cpu", "f32", tokens, n, "layer 0, position 133 of segment 1: not a finite number");
	model_free(m);
	free(copy);
	m = poisoned_model(&copy, true, 96 * 32 + 5, INFINITY);
	scores_refused(m, "cpu", "f32", tokens, n, "layer 0, position 133 of segment 1: not a finite number");
	model_free(m);
	free(copy);
	m = poisoned_model(&copy, false, 0, NAN); /* every row, from the first on */
	scores_refused(m, "cpu", "f32", tokens, n, "layer 1, position 0 of segment 0: not a finite number in the mlp");
	model_free(m);
	free(copy);
	free(tokens);
}
END_TEST

START_TEST(a_delta_that_is_not_finite_and_a_head_too_large_are_refused_when_opened)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;
	struct session_options o = {.device = "cpu", .dtype = "f32", .n_threads = 1};
	struct session *s = NULL;
	float delta[2 * 8] = {0};
	struct model *m;

	f.position = "pope";
	m = fixture_model_make(&f);
	delta[9] = NAN;
	m->layers[1].pope_delta.data = delta;
	ck_err(session_open(m, &o, &s, &e), ERR_INPUT, "layer 1: pope_delta: element 9 is not finite", &e);
	delta[9] = -INFINITY;
	ck_err(session_open(m, &o, &s, &e), ERR_INPUT, "layer 1: pope_delta: element 9 is not finite", &e);
	model_free(m);
	f = FIXTURE_MODEL_DEFAULT;
	f.head_dim = 512;
	m = fixture_model_make(&f);
	ck_err(session_open(m, &o, &s, &e), ERR_INPUT, "head_dim 512", &e);
	model_free(m);
}
END_TEST

START_TEST(a_session_is_usable_after_a_fault)
{
	uint32_t n = 200, *tokens = some_tokens(n, 50, 4);
	struct token_score *before, *after, *out = calloc(n, sizeof *out);
	uint8_t *marks = malloc(n);
	struct segment whole = {-1, 0, n};
	struct batch b = {tokens, marks, n, &whole, 1};
	struct session *s;
	void *copy;
	struct model *m = poisoned_model(&copy, true, 96 * 32 + 5, NAN);

	memset(marks, 1, n);
	marks[0] = 0;
	s = open_session(m, "cpu", "f32", 2, 0);
	before = score_all(s, tokens, 170);
	tokens[190] = 96;
	ck_err(session_score(s, &b, out, &e), ERR_NUMERIC, "position 190", &e);
	after = score_all(s, tokens, 170);
	ck_assert(same_bits(before + 1, after + 1, 169 * sizeof *before));
	session_close(s);
	model_free(m);
	free(copy);
	free(tokens);
	free(marks);
	free(out);
	free(before);
	free(after);
}
END_TEST

/* -- devices --------------------------------------------------------------------------------------- */

START_TEST(devices_and_dtypes_that_are_not_there_are_refused_by_name)
{
	struct session *s = NULL;
	struct device_info info;
	struct buf sig = BUF_INIT(1000);

	ck_err(session_open(tiny, &(struct session_options){.device = "cuda:0"}, &s, &e), ERR_DEVICE, "cuda:0", &e);
	ck_err(session_open(tiny, &(struct session_options){.device = "tpu"}, &s, &e), ERR_DEVICE, "tpu", &e);
	ck_err(session_open(tiny, &(struct session_options){.dtype = "f16"}, &s, &e), ERR_DEVICE, "f16", &e);
	ck_err(session_open(tiny, &(struct session_options){.dtype = "f8"}, &s, &e), ERR_INPUT, "f8", &e);
	ck_ok(device_describe("auto", &info, &e), &e);
	ck_assert_str_eq(info.device, "cpu");
	ck_assert_uint_ge(info.n_threads, 1);
	ck_assert_uint_gt(info.memory_bytes, 1 << 20);
	ck_ok(engine_signature("cpu", "auto", &sig, &e), &e);
	ck_assert_ptr_nonnull(strstr(buf_str(&sig), info.name));
	ck_assert_ptr_nonnull(strstr(buf_str(&sig), info.isa));
	ck_assert_ptr_nonnull(strstr(buf_str(&sig), "; f32; oneDNN "));
	buf_release(&sig);
}
END_TEST

START_TEST(bf16_is_refused_where_the_processor_lacks_it)
{
	struct session *s = NULL;

	setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE", 1); /* before this process uses oneDNN */
	tiny = fixture_model_make(&FIXTURE_MODEL_DEFAULT);
	ck_err(session_open(tiny, &(struct session_options){.dtype = "bf16"}, &s, &e), ERR_DEVICE, "AVX512_BF16", &e);
	model_free(tiny);
}
END_TEST

/* -- memory ---------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* A line of /proc/self/status, in bytes. */
static size_t status_bytes(const char *key)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	size_t kib = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)))
			kib = strtoul(line + strlen(key), NULL, 10);
	fclose(f);
	return kib * 1024;
}

static void check_memory(const struct fixture_model *f, const char *dtype, uint32_t n)
{
	struct session_options o = {.device = "cpu", .dtype = dtype, .n_threads = 2};
	struct model *m = fixture_model_make(f);
	uint32_t *tokens = some_tokens(n, m->config.n_vocab, 3);
	size_t before = status_bytes("VmRSS:"), estimate = session_memory(m, &o, (struct batch_size){n, 1}), used;
	struct session *s = open_session(m, "cpu", dtype, 2, 0);
	struct token_score *out = score_all(s, tokens, n);

	used = status_bytes("VmHWM:") - before - n * (sizeof *out + 1); /* score_all's own */
	ck_assert_msg(estimate >= used && estimate <= used + used / 4, "%s, %u tokens: estimated %zu, used %zu bytes",
	              dtype, n, estimate, used);
	session_close(s);
	free(out);
	free(tokens);
	model_free(m);
}

/* Each in a process of its own: the high-water mark starts at what the parent had. */
START_TEST(memory_is_estimated_closely_from_above)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	if (SANITIZED) {
		fixture_skip("memory estimate", "a sanitizer's own memory is in the way");
		return;
	}
	f.position = _i & 1 ? "pope" : "rope";
	f.n_layer = 3;
	f.head_dim = 64;
	f.n_kv_head = 4;
	f.dim = 256;
	f.ffn_dim = 2048;
	f.n_vocab = 4000;
	f.dtype = DTYPE_BF16;
	check_memory(&f, "f32", _i & 2 ? 6000 : 1500);
}
END_TEST

Suite *forward_suite(void);
Suite *forward_suite(void)
{
	Suite *s = suite_create("forward");
	TCase *numbers = tcase_create("numbers"), *batches = tcase_create("batches"), *caps = tcase_create("caps");

	tcase_set_timeout(numbers, 300);
	tcase_add_test(numbers, scores_agree_with_double_at_every_edge);
	tcase_add_test(numbers, scores_agree_with_double_for_every_architecture);
	tcase_add_test(numbers, scores_agree_with_double_beyond_one_block_of_the_vocabulary);
	suite_add_tcase(s, numbers);
	tcase_add_checked_fixture(batches, setup, teardown);
	tcase_set_timeout(batches, 60);
	tcase_add_test(batches, malformed_batches_are_refused_by_name);
	tcase_add_test(batches, only_scored_tokens_are_written);
	tcase_add_test(batches, a_batch_without_scores_is_done_at_once);
	tcase_add_test(batches, progress_counts_the_tokens_of_each_batch);
	tcase_add_test(batches, a_stopped_session_says_so_and_goes_on_after_resume);
	tcase_add_test(batches, a_nan_fails_with_layer_and_position);
	tcase_add_test(batches, a_delta_that_is_not_finite_and_a_head_too_large_are_refused_when_opened);
	tcase_add_test(batches, a_session_is_usable_after_a_fault);
	tcase_add_test(batches, devices_and_dtypes_that_are_not_there_are_refused_by_name);
	suite_add_tcase(s, batches);
	tcase_set_timeout(caps, 60);
	tcase_add_loop_test(caps, memory_is_estimated_closely_from_above, 0, 4);
	tcase_add_test(caps, bf16_is_refused_where_the_processor_lacks_it);
	suite_add_tcase(s, caps);
	return s;
}
