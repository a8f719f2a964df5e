/* model_flops against figures worked out by hand. */
#include <check.h>
#include <string.h>

#include "engine/engine.h"

/* A row in a layer: 2 * 32 * (64 + 32) for q, k, v and o, 2 * 2 * 32 * 64 for up and down: 14336. A pair in a layer:
 * 2 * 4 * (8 + 8) = 128. A scored token: 2 * 32 * 97 = 6208. */
static struct model_config tiny(void)
{
	return (struct model_config){
	    .n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 8, .dim = 32, .ffn_dim = 64, .n_vocab = 97};
}

static struct batch batch_of(const struct segment *segments, uint32_t n, const uint8_t *score)
{
	const struct segment *last = &segments[n - 1];

	return (struct batch){
	    .score = score, .n_tokens = last->start + last->len, .segments = segments, .n_segments = n};
}

START_TEST(a_window_counts_its_rows_its_causal_half_and_its_predictions)
{
	struct segment s[2] = {{-1, 0, 5}, {-1, 5, 5}};
	uint8_t score[10] = {0, 1, 1, 1, 1, 0, 0, 0, 1, 1};
	struct model_config c = tiny();
	struct batch b = batch_of(s, 1, score);

	/* 4 rows, 4 * 5 / 2 pairs, 4 scored */
	ck_assert_double_eq(model_flops(&c, &b), 2 * (4 * 14336 + 10 * 128) + 4 * 6208);
	b = batch_of(s, 2, score);
	ck_assert_double_eq(model_flops(&c, &b), 2 * (8 * 14336 + 20 * 128) + 6 * 6208);
	c.position.type = POSITION_POPE; /* a pair: 2 * 4 * (16 + 8) */
	ck_assert_double_eq(model_flops(&c, &b), 2 * (8 * 14336 + 20 * 192) + 6 * 6208);
	c.mlp_gated = true; /* a third matrix: 2 * 32 * 64 a row */
	ck_assert_double_eq(model_flops(&c, &b), 2 * (8 * 18432 + 20 * 192) + 6 * 6208);
}
END_TEST

START_TEST(a_context_counts_once_and_its_continuations_see_it)
{
	/* a context of 10 with children of 3 and 1, and a grandchild of 2 under the first: rows 10, 3, 0 and 1; pairs
	 * 55; 11 + 12 + 13; none; 14 */
	struct segment s[4] = {{-1, 0, 10}, {0, 10, 3}, {0, 13, 1}, {1, 14, 2}};
	uint8_t score[16] = {[10] = 1, [11] = 1, [13] = 1, [15] = 1};
	struct model_config c = tiny();
	struct batch b = batch_of(s, 4, score);

	ck_assert_double_eq(model_flops(&c, &b), 2 * (14 * 14336 + 105 * 128) + 4 * 6208);
}
END_TEST

/* The paper's 124M at 1024, by the rule of thumb 2 N a token and attention's own: N is 84.9 million in layers and 38.6
 * million in the output matrix, and a token sees 512.5 on average, itself among them. */
START_TEST(the_papers_model_asks_for_two_flops_a_parameter_and_attention)
{
	static uint8_t score[1025];
	struct segment s = {-1, 0, 1025};
	struct model_config c = {.n_layer = 12,
	                         .n_head = 12,
	                         .n_kv_head = 12,
	                         .head_dim = 64,
	                         .dim = 768,
	                         .ffn_dim = 3072,
	                         .n_vocab = 50257};
	struct batch b = {.score = score, .n_tokens = 1025, .segments = &s, .n_segments = 1};
	double a_token;

	memset(score + 1, 1, 1024);
	a_token = model_flops(&c, &b) / 1024;
	ck_assert_double_eq_tol(a_token, 2 * (84934656. + 38597376.) + 12 * 4 * 768 * 512.5, 1);
}
END_TEST

Suite *flops_suite(void);
Suite *flops_suite(void)
{
	Suite *s = suite_create("flops");
	TCase *t = tcase_create("flops");

	tcase_add_test(t, a_window_counts_its_rows_its_causal_half_and_its_predictions);
	tcase_add_test(t, a_context_counts_once_and_its_continuations_see_it);
	tcase_add_test(t, the_papers_model_asks_for_two_flops_a_parameter_and_attention);
	suite_add_tcase(s, t);
	return s;
}
