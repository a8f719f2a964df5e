/* A token's score depends on its chain alone, to the bit: not on threads, chunk, what else is in the batch, where its
 * row stands, or whether its prefix is shared. Under each instruction set that oneDNN can be capped to, in f32 and
 * bf16, for random models, and for the 29M models whose numbers are known (parity). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixture.h"
#include "tests/fixture_model.h"
#include "tests/fixture_scores.h"

static struct err e;

static const char *const isas[] = {"DEFAULT", "AVX512_CORE", "AVX2", "SSE41"};
#define N_ISAS 4

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* ten times slower: the small models do */
#else
#define SANITIZED false
#endif

static void check_threads_and_chunks(const struct subject *t, bool all)
{
	static const uint32_t threads[] = {1, 3, 2}, chunks[] = {64, 0, 128, 1000};

	for (int i = 0; i < (all ? 3 : 2); i++)
		for (int j = 0; j < (all ? 4 : 1); j++)
			subject_under(t, threads[i], chunks[j]);
}

static void check_subject(const struct model *m, const char *dtype, uint32_t n)
{
	struct subject t;

	subject_init(&t, m, "cpu", dtype, n);
	check_threads_and_chunks(&t, true);
	subject_at_every_row(&t, 64);
	subject_with_shared_prefixes(&t);
	subject_as_chains(&t);
	subject_as_trees(&t, 1);
	subject_in_company(&t);
	subject_release(&t);
}

static bool has_bf16(void)
{
	struct device_info info;

	ck_ok(device_describe("cpu", &info, &e), &e);
	return info.bf16;
}

static void check_fixture(const struct fixture_model *f, uint32_t n)
{
	struct model *m = fixture_model_make(f);

	check_subject(m, "f32", n);
	if (has_bf16())
		check_subject(m, "bf16", n);
	model_free(m);
}

/* Sums of 2048 and more are where oneDNN would split over threads, and by rows. */
START_TEST(small_models_score_to_the_same_bits)
{
	struct fixture_model f = FIXTURE_MODEL_DEFAULT;

	setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1); /* before this (forked) process first uses oneDNN */
	check_fixture(&f, 700);
	f.position = "pope";
	f.head_dim = 16;
	f.ffn_dim = 2500;
	f.n_vocab = 1100;
	check_fixture(&f, 400);
}
END_TEST

START_TEST(scores_of_the_29m_models_are_the_same_bits)
{
	static const char *const names[] = {"models/rope-29m", "models/pope-29m"};
	struct model *m = NULL;

	setenv("ONEDNN_MAX_CPU_ISA", _i ? "AVX2" : "DEFAULT", 1);
	for (int i = 0; i < 2; i++) {
		const char *dir = fixture_shared(names[i]);
		struct subject t;

		if (!dir || SANITIZED) {
			fixture_skip("invariance of the 29M models", dir ? "sanitized" : "no shared models");
			return;
		}
		ck_ok(model_open(dir, NULL, &m, &e), &e);
		for (int bf16 = 0; bf16 <= has_bf16(); bf16++) {
			subject_init(&t, m, "cpu", bf16 ? "bf16" : "f32", 200);
			check_threads_and_chunks(&t, false);
			subject_as_chains(&t);
			subject_in_company(&t);
			subject_release(&t);
		}
		model_free(m);
	}
}
END_TEST

/* -- parity ---------------------------------------------------------------------------------------- */

/* All of them would take minutes: one book's in f32, its shorter ones in bf16, and the other book's shortest. */
static bool of_f32(const char *book, uint32_t length)
{
	return !strcmp(book, "15562") || length < 2000;
}

static bool of_bf16(const char *book, uint32_t length)
{
	return length < (strcmp(book, "15562") ? 2000 : 5000);
}

static bool of_avx2(const char *book, uint32_t length)
{
	(void)book;
	return length <= 1024;
}

static void check_parity(const char *name, bool avx2)
{
	if (SANITIZED)
		fixture_skip("parity", "sanitized");
	else if (reference_check(name, "cpu", "f32", avx2 ? of_avx2 : of_f32, 1e-5, 3e-4) && has_bf16())
		reference_check(name, "cpu", "bf16", avx2 ? of_avx2 : of_bf16, 3e-3, 0);
}

static const char *const trained[] = {"rope-29m", "yarn-29m", "pope-29m"};

START_TEST(the_29m_models_agree_with_the_reference)
{
	check_parity(trained[_i], false);
}
END_TEST

START_TEST(the_29m_models_agree_with_the_reference_under_avx2)
{
	setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
	check_parity(trained[_i], true);
}
END_TEST

Suite *invariance_suite(void);
Suite *invariance_suite(void)
{
	Suite *s = suite_create("invariance");
	TCase *bits = tcase_create("bits"), *parity = tcase_create("parity");

	tcase_set_timeout(bits, 600);
	tcase_add_loop_test(bits, small_models_score_to_the_same_bits, 0, N_ISAS);
	tcase_add_loop_test(bits, scores_of_the_29m_models_are_the_same_bits, 0, 2);
	suite_add_tcase(s, bits);
	tcase_set_timeout(parity, 600);
	tcase_add_loop_test(parity, the_29m_models_agree_with_the_reference, 0, 3);
	tcase_add_loop_test(parity, the_29m_models_agree_with_the_reference_under_avx2, 0, 3);
	suite_add_tcase(s, parity);
	return s;
}
