/* Position schemes: frequencies and phases against exact arithmetic (golden/position), settings and overrides. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/position.h"
#include "tests/fixture.h"

static struct json *parse(const char *text)
{
	struct json *j = NULL;
	struct err e;

	ck_ok(json_parse(text, strlen(text), &j, &e), &e);
	return j;
}

/* Reads a config.json of {"position_embedding_type": type, "max_position_embeddings": 1024, <more>}. */
static err_code read_config(const char *type, const char *more, uint32_t head_dim, struct position *p, struct err *e)
{
	char text[2000];
	struct json *j;
	err_code rc;

	snprintf(text, sizeof text, "{\"position_embedding_type\": \"%s\", \"max_position_embeddings\": 1024%s%s}",
	         type, *more ? ", " : "", more);
	j = parse(text);
	rc = position_from_config(j, head_dim, p, e);
	json_free(j);
	return rc;
}

static err_code override(struct position *p, const char *text, struct err *e)
{
	struct json *j = parse(text);
	err_code rc = position_override(p, j, 64, e);

	json_free(j);
	return rc;
}

/* -- golden ------------------------------------------------------------------------------------ */

static struct json *read_golden(void)
{
	struct json *golden = NULL;
	struct err e;

	ck_ok(json_parse_file("tests/golden/position/frequencies.json", 1 << 20, &golden, &e), &e);
	ck_assert_uint_ge(json_count(json_get(golden, "cases")), 20);
	return golden;
}

static double number(const struct json *object, const char *key)
{
	double v = NAN;

	ck_assert_msg(json_get_number(object, key, &v), "no number %s", key);
	return v;
}

/* The case's settings through the same door as a checkpoint's. */
static void read_case(const struct json *c, struct position *p, uint32_t *head_dim)
{
	const char *scaling = json_get_string(c, "scaling");
	char more[600], extra[400] = "";
	struct err e;

	*head_dim = (uint32_t)number(c, "head_dim");
	if (!strcmp(scaling, "yarn"))
		snprintf(extra, sizeof extra,
		         ", \"original_max_position_embeddings\": %.0f, \"beta_fast\": %.17g, "
		         "\"beta_slow\": %.17g, \"truncate\": %s",
		         number(c, "original"), number(c, "beta_fast"), number(c, "beta_slow"),
		         json_true(json_get(c, "truncate")) ? "true" : "false");
	if (!strcmp(scaling, "none"))
		snprintf(more, sizeof more, "\"rope_theta\": %.17g", number(c, "theta"));
	else
		snprintf(more, sizeof more,
		         "\"rope_theta\": %.17g, \"rope_scaling\": {\"rope_type\": \"%s\", \"factor\": %.17g%s}",
		         number(c, "theta"), scaling, number(c, "factor"), extra);
	ck_ok(read_config(json_get_string(c, "type"), more, *head_dim, p, &e), &e);
}

/* `relative` is 2^-62 where all is computed in long double, and 1e-15 where yarn's unrounded range is a double. */
static void check_frequencies(const struct json *want, const struct position *p, uint32_t head_dim, double relative)
{
	struct position_table t;
	struct err e;
	uint32_t c = 0;

	ck_ok(position_table_init(&t, p, head_dim, 1, &e), &e);
	ck_assert_uint_eq(t.n_freq, p->type == POSITION_POPE ? head_dim : head_dim / 2);
	ck_assert_uint_eq(t.n_freq, json_count(want));
	for (const struct json *j = json_first(want); j; j = json_next(j), c++) {
		uint64_t exact = strtoull(json_string(j), NULL, 16);
		uint64_t error = exact > t.freq[c] ? exact - t.freq[c] : t.freq[c] - exact;

		ck_assert_msg((double)error <= 1 + (double)exact * relative,
		              "channel %u: %016" PRIx64 ", exact %016" PRIx64, c, t.freq[c], exact);
	}
	position_table_release(&t);
}

START_TEST(frequencies_equal_exact_arithmetic)
{
	struct json *golden = read_golden();
	uint32_t head_dim;
	struct position p;

	for (const struct json *c = json_first(json_get(golden, "cases")); c; c = json_next(c)) {
		read_case(c, &p, &head_dim);
		check_frequencies(json_get(c, "freq"), &p, head_dim, p.truncate ? 0x1p-61 : 1e-15);
	}
	json_free(golden);
}
END_TEST

START_TEST(f32_frequencies_are_rounded_before_anything_else)
{
	struct json *golden = read_golden();
	uint32_t head_dim;
	struct position p;

	for (const struct json *c = json_first(json_get(golden, "cases")); c; c = json_next(c)) {
		read_case(c, &p, &head_dim);
		p.f32_freq = true;
		check_frequencies(json_get(c, "freq_f32"), &p, head_dim, 0x1p-61);
	}
	json_free(golden);
}
END_TEST

/* A phase is a 24-bit float: at most 2^-25 of a half-turn off; and the product is cut after its 32nd bit: 2^-31. */
#define PHASE_ERROR ((0x1p-25 + 0x1p-31) * M_PI + 1e-10) /* 9.52e-8 radians */

START_TEST(phases_are_exact_up_to_16_million_positions)
{
	struct json *golden = read_golden();
	const struct json *positions = json_get(golden, "positions");
	double worst = 0;
	uint32_t head_dim;
	struct position p;
	struct err e;

	for (const struct json *c = json_first(json_get(golden, "cases")); c; c = json_next(c)) {
		struct position_table t;

		read_case(c, &p, &head_dim);
		ck_ok(position_table_init(&t, &p, head_dim, 1, &e), &e);
		for (const struct json *f = json_first(json_get(c, "phases")); f; f = json_next(f)) {
			const struct json *pos = json_first(positions);
			const struct json *want = json_first(json_get(f, "half_turns"));
			uint64_t freq = t.freq[(int)number(f, "channel")];

			for (; want; want = json_next(want), pos = json_next(pos)) {
				int64_t at;
				double error;

				ck_assert(json_integer(pos, &at));
				error =
				    fabs((double)position_phase((uint64_t)at, freq) - strtod(json_string(want), NULL));
				if (error > 1)
					error = fabs(error - 2); /* across the seam at -1 = 1 */
				worst = fmax(worst, error * M_PI);
			}
		}
		position_table_release(&t);
	}
	json_free(golden);
	ck_assert_msg(worst <= PHASE_ERROR, "off by %g radians", worst);
	ck_assert_msg(worst > 1e-8, "too good to be a float: %g", worst);
}
END_TEST

/* -- yarn -------------------------------------------------------------------------------------- */

START_TEST(yarn_amplitude_is_a_tenth_of_ln_s_plus_one)
{
	/* public figures for factors 2 to 128 */
	static const double want[] = {1.069315, 1.138629, 1.207944, 1.277259, 1.346574, 1.415888, 1.485203};
	struct position_table t;
	struct position p;
	struct err e;
	char more[200];

	for (int i = 0; i < 7; i++) {
		snprintf(more, sizeof more, "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": %d}", 2 << i);
		ck_ok(read_config("rope", more, 64, &p, &e), &e);
		ck_assert_double_eq_tol(p.attention_factor, want[i], 5e-7);
		ck_ok(position_table_init(&t, &p, 64, 1, &e), &e);
		ck_assert_double_eq_tol((double)t.amplitude, want[i], 6e-7); /* once, as a float */
		position_table_release(&t);
	}
}
END_TEST

#define YARN(more) "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4" more "}"

START_TEST(explicit_amplitude_wins_and_mscale_is_a_ratio)
{
	const double ln4 = 1.3862943611198906;
	const struct {
		const char *more;
		double want;
	} rows[] = {
	    {YARN(", \"attention_factor\": 1.5"), 1.5},
	    {YARN(", \"attention_factor\": 1.5, \"mscale\": 0.7, \"mscale_all_dim\": 1"), 1.5},
	    {YARN(", \"attention_factor\": 1.5, \"mscale\": 0.7"), 1.5},
	    {YARN(", \"attention_factor\": null"), .1 * ln4 + 1},
	    {YARN(", \"mscale\": 0.707, \"mscale_all_dim\": 1.0"), (.0707 * ln4 + 1) / (.1 * ln4 + 1)},
	    {YARN(", \"mscale\": 1.0, \"mscale_all_dim\": 1.0"), 1},
	    {YARN(", \"mscale\": 0, \"mscale_all_dim\": 0"), .1 * ln4 + 1},
	    {"\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 1.0}", 1},
	    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}", 1},
	};
	struct position p;
	struct err e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_ok(read_config("rope", rows[i].more, 64, &p, &e), &e);
		ck_assert_double_eq_tol(p.attention_factor, rows[i].want, 1e-15);
	}
}
END_TEST

/* d = 64, b = 1e4, L = 1024, s = 4: pairs up to 5 keep their frequency, from 18 on it is a quarter. */
START_TEST(yarn_interpolates_from_pair_5_to_pair_18)
{
	struct position_table plain, scaled;
	struct position rope, yarn;
	struct err e;

	ck_ok(read_config("rope", "", 64, &rope, &e), &e);
	ck_ok(read_config("rope", YARN(""), 64, &yarn, &e), &e);
	ck_ok(position_table_init(&plain, &rope, 64, 1, &e), &e);
	ck_ok(position_table_init(&scaled, &yarn, 64, 1, &e), &e);
	for (int i = 0; i < 32; i++) {
		double ramp = i <= 5 ? 0 : i >= 18 ? 1 : (i - 5) / 13., want = 1 - .75 * ramp;

		ck_assert_double_eq_tol((double)scaled.freq[i] / (double)plain.freq[i], want, 1e-14);
	}
	ck_assert(plain.amplitude == 1);
	ck_assert(!position_depends_on_length(&yarn));
	position_table_release(&plain);
	position_table_release(&scaled);
}
END_TEST

/* -- settings ---------------------------------------------------------------------------------- */

static void write_position(const struct position *p, struct buf *out)
{
	struct json_writer w = JSON_WRITER(out);

	buf_clear(out);
	position_write(p, &w, NULL);
}

static void check_written(const struct position *p, const char *want)
{
	struct buf out = BUF_INIT(4096);

	write_position(p, &out);
	ck_assert_str_eq(buf_str(&out), want);
	buf_release(&out);
}

#define WRITTEN(head, tail) "{\"type\":\"" head ",\"max_position_embeddings\":" tail "}"
#define WRITTEN_YARN                                                                                                   \
	WRITTEN("yarn\",\"theta\":10000,\"factor\":4,\"original_max_position_embeddings\":1024,"                       \
	        "\"attention_factor\":1.138629436111989,\"beta_fast\":32,\"beta_slow\":1,"                             \
	        "\"truncate\":true",                                                                                   \
	        "1024,\"inv_freq\":\"exact\"")

START_TEST(every_spelling_of_the_settings_is_read)
{
	static const struct {
		const char *type, *more, *want;
	} rows[] = {
	    {"rope", "", WRITTEN("rope\",\"theta\":10000", "1024,\"inv_freq\":\"exact\"")},
	    {"rope", "\"rope_theta\": 500000.0, \"rope_scaling\": null, \"rope_parameters\": null",
	     WRITTEN("rope\",\"theta\":500000", "1024,\"inv_freq\":\"exact\"")},
	    {"pope", "\"rope_theta\": 5000, \"partial_rotary_factor\": 1.0",
	     WRITTEN("pope\",\"theta\":5000", "1024,\"inv_freq\":\"exact\"")},
	    {"rope", "\"rope_parameters\": {\"rope_theta\": 5e5, \"factor\": null}",
	     WRITTEN("rope\",\"theta\":500000", "1024,\"inv_freq\":\"exact\"")},
	    {"rope", "\"rope_theta\": 5e5, \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"default\"}",
	     WRITTEN("rope\",\"theta\":500000", "1024,\"inv_freq\":\"exact\"")},
	    {"pope", "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000}",
	     WRITTEN("pope\",\"theta\":10000", "1024,\"inv_freq\":\"exact\"")},
	    {"rope", "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0}", WRITTEN_YARN},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", WRITTEN_YARN},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"yarn\", \"factor\": 4}", WRITTEN_YARN},
	    {"rope", "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 10000.0}",
	     WRITTEN_YARN},
	    {"rope", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}",
	     WRITTEN("linear\",\"theta\":10000,\"factor\":2.5,\"original_max_position_embeddings\":1024",
	             "1024,\"inv_freq\":\"exact\"")},
	};
	struct position p;
	struct err e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_ok(read_config(rows[i].type, rows[i].more, 64, &p, &e), &e);
		check_written(&p, rows[i].want);
	}
}
END_TEST

START_TEST(impossible_settings_are_refused_by_name)
{
	static const struct {
		const char *type, *more, *words;
	} rows[] = {
	    {"alibi", "", "'alibi' is not supported yet"},
	    {"learned", "", "'learned' is not supported yet"},
	    {"rotary", "", "'rotary' is unknown"},
	    {"rope", "\"rope_theta\": 0", "rope_theta is 0"},
	    {"rope", "\"rope_theta\": 1", "rope_theta is 1"},
	    {"rope", "\"rope_theta\": -1e4", "rope_theta is -10000"},
	    {"rope", "\"rope_theta\": \"1e4\"", "rope_theta is string"},
	    {"rope", "\"partial_rotary_factor\": 0.5", "partial rotary (partial_rotary_factor) is not supported yet"},
	    {"rope", "\"rotary_pct\": 0.25", "partial rotary (rotary_pct)"},
	    {"rope", "\"rope_parameters\": {\"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}", "partial rotary"},
	    {"rope", "\"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 5e5}", "500000 in rope_parameters"},
	    {"rope", "\"rope_scaling\": 4", "rope_scaling is number"},
	    {"rope", "\"rope_scaling\": {\"factor\": 4}", "neither rope_type nor type"},
	    {"rope", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}", "type 'dynamic' is not supported yet"},
	    {"rope", "\"rope_scaling\": {\"rope_type\": \"llama3\"}", "rope_type 'llama3' is not supported yet"},
	    {"rope", "\"rope_scaling\": {\"type\": \"longrope\"}", "'longrope' is not supported yet"},
	    {"rope", "\"rope_parameters\": {\"rope_type\": \"dynamic\"}", "rope_parameters: rope_type 'dynamic'"},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarm\", \"factor\": 4}", "'yarm' is unknown"},
	    {"rope", "\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"yarn\"}", "rope_type is 'yarn'"},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarn\"}", "needs a factor"},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 0.5}", "factor is 0.5"},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": \"4\"}", "factor is string"},
	    {"rope", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 1e9}", "factor is 1e+09"},
	    {"rope", YARN(", \"facter\": 8"), "'facter' is not a setting of type 'yarn'"},
	    {"rope", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 32}", "'beta_fast'"},
	    {"rope", YARN(", \"original_max_position_embeddings\": 0"), "original_max_position_embeddings is 0"},
	    {"rope", YARN(", \"original_max_position_embeddings\": 10.5"), "is a fraction"},
	    {"rope", YARN(", \"beta_fast\": 1, \"beta_slow\": 2"), "beta_slow is 2"},
	    {"rope", YARN(", \"attention_factor\": 0"), "attention_factor is 0"},
	    {"rope", YARN(", \"attention_factor\": -1"), "attention_factor is -1"},
	    {"rope", YARN(", \"truncate\": 0"), "truncate is number"},
	    {"rope", YARN(", \"mscale\": 0.7"), "mscale without mscale_all_dim"},
	    {"rope", YARN(", \"mscale_all_dim\": 0.7"), "mscale_all_dim without mscale"},
	    {"rope", YARN("") ", \"rope_parameters\": {\"rope_theta\": 1e4}", "both rope_scaling and rope_parameters"},
	    {"pope", YARN(""), "'yarn' on PoPE"},
	    {"pope", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "'linear' on PoPE"},
	};
	struct position p;
	struct err e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_err(read_config(rows[i].type, rows[i].more, 64, &p, &e), ERR_INPUT, rows[i].words, &e);
		ck_assert_str_eq(e.pointer, ""); /* not the fault of a request */
	}
	ck_err(read_config("rope", "", 63, &p, &e), ERR_INPUT, "head_dim is 63", &e);
	ck_ok(read_config("pope", "", 63, &p, &e), &e);
}
END_TEST

START_TEST(the_context_must_be_given)
{
	static const char *const rows[][2] = {
	    {"{\"position_embedding_type\": \"rope\"}", "max_position_embeddings is absent"},
	    {"{\"position_embedding_type\": \"rope\", \"max_position_embeddings\": 0}", "is 0"},
	    {"{\"position_embedding_type\": \"rope\", \"max_position_embeddings\": -5}", "is -5"},
	    {"{\"position_embedding_type\": \"rope\", \"max_position_embeddings\": 1e10}", "is 10000000000"},
	    {"{\"max_position_embeddings\": 64}", "position_embedding_type is absent"},
	    {"{\"max_position_embeddings\": 64, \"position_embedding_type\": 3}", "is number, want a string"},
	};
	struct position p;
	struct err e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct json *j = parse(rows[i][0]);

		ck_err(position_from_config(j, 64, &p, &e), ERR_INPUT, rows[i][1], &e);
		json_free(j);
	}
}
END_TEST

/* -- overrides --------------------------------------------------------------------------------- */

START_TEST(an_override_replaces_the_scaling)
{
	static const struct {
		const char *more, *override, *want;
	} rows[] = {
	    {"", "{}", WRITTEN("rope\",\"theta\":10000", "1024,\"inv_freq\":\"exact\"")},
	    {"", "{\"type\": \"none\"}", WRITTEN("rope\",\"theta\":10000", "1024,\"inv_freq\":\"exact\"")},
	    {"", "{\"inv_freq\": \"f32\"}", WRITTEN("rope\",\"theta\":10000", "1024,\"inv_freq\":\"f32\"")},
	    {"", "{\"rope_theta\": 40000}", WRITTEN("rope\",\"theta\":40000", "1024,\"inv_freq\":\"exact\"")},
	    /* the checkpoint's context is the original, and is multiplied */
	    {"", "{\"type\": \"yarn\", \"factor\": 4}",
	     WRITTEN("yarn\",\"theta\":10000,\"factor\":4,\"original_max_position_embeddings\":1024,"
	             "\"attention_factor\":1.138629436111989,\"beta_fast\":32,\"beta_slow\":1,\"truncate\":true",
	             "4096,\"inv_freq\":\"exact\"")},
	    {"", "{\"type\": \"linear\", \"factor\": 2.5, \"original_max_position_embeddings\": 100}",
	     WRITTEN("linear\",\"theta\":10000,\"factor\":2.5,\"original_max_position_embeddings\":100",
	             "250,\"inv_freq\":\"exact\"")},
	    /* a yarn checkpoint: its own original is the base, its amplitude is forgotten */
	    {YARN(", \"original_max_position_embeddings\": 256, \"attention_factor\": 2, \"beta_fast\": 64"),
	     "{\"type\": \"yarn\", \"factor\": 8}",
	     WRITTEN("yarn\",\"theta\":10000,\"factor\":8,\"original_max_position_embeddings\":256,"
	             "\"attention_factor\":1.2079441541679836,\"beta_fast\":32,\"beta_slow\":1,\"truncate\":true",
	             "2048,\"inv_freq\":\"exact\"")},
	    {YARN(", \"original_max_position_embeddings\": 256"), "{\"type\": \"none\"}",
	     WRITTEN("rope\",\"theta\":10000", "256,\"inv_freq\":\"exact\"")},
	    {YARN(", \"original_max_position_embeddings\": 256"), "{\"type\": \"rope\"}",
	     WRITTEN("rope\",\"theta\":10000", "256,\"inv_freq\":\"exact\"")},
	    {YARN(""), "{\"inv_freq\": \"exact\"}", WRITTEN_YARN},
	};
	struct position p;
	struct err e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_ok(read_config("rope", rows[i].more, 64, &p, &e), &e);
		ck_ok(override(&p, rows[i].override, &e), &e);
		check_written(&p, rows[i].want);
	}
}
END_TEST

START_TEST(a_bad_override_points_at_the_value)
{
	static const struct {
		const char *type, *override, *pointer, *words;
	} rows[] = {
	    {"rope", "[]", "", "array, want an object"},
	    {"rope", "{\"type\": \"dynamic\", \"factor\": 2}", "/type", "'dynamic' is not supported yet"},
	    {"rope", "{\"type\": \"longrope\"}", "/type", "not supported yet"},
	    {"rope", "{\"type\": \"pope\"}", "/type", "'pope' is unknown"},
	    {"pope", "{\"type\": \"rope\"}", "/type", "'rope' is unknown"},
	    {"rope", "{\"type\": \"YARN\", \"factor\": 2}", "/type", "'YARN' is unknown"},
	    {"rope", "{\"type\": 4}", "/type", "type is number"},
	    {"rope", "{\"type\": null}", "/type", "type is null"},
	    {"rope", "{\"factor\": 4}", "/factor", "needs a type"},
	    {"rope", "{\"type\": \"yarn\"}", "/factor", "needs a factor"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": 0.99}", "/factor", "factor is 0.99"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": -4}", "/factor", "factor is -4"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": \"NaN\"}", "/factor", "factor is string"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": null}", "/factor", "factor is null"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": 1e300}", "/factor", "factor is 1e+300"},
	    {"rope", "{\"type\": \"linear\", \"factor\": 1e6, \"original_max_position_embeddings\": 1000000}",
	     "/factor", "a context of 1000000000000"},
	    {"rope", "{\"type\": \"linear\", \"factor\": 4, \"beta_fast\": 32}", "/beta_fast", "'beta_fast'"},
	    {"rope", "{\"type\": \"none\", \"factor\": 4}", "/factor", "not a setting of type 'none'"},
	    {"rope", "{\"typ\": \"yarn\"}", "/typ", "'typ' is not a setting"},
	    {"rope", "{\"a/b~c\": 1}", "/a~1b~0c", "'a/b~c'"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": 4, \"rope_type\": \"yarn\"}", "/rope_type", "'rope_type'"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 0}", "/attention_factor", "is 0"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": 4, \"truncate\": 1}", "/truncate", "want a boolean"},
	    {"rope", "{\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 1.5}",
	     "/original_max_position_embeddings", "fraction"},
	    {"rope", "{\"inv_freq\": \"f16\"}", "/inv_freq", "inv_freq is 'f16'"},
	    {"rope", "{\"inv_freq\": true}", "/inv_freq", "want a string"},
	    {"rope", "{\"rope_theta\": 0}", "/rope_theta", "rope_theta is 0"},
	    {"pope", "{\"type\": \"yarn\", \"factor\": 4}", "/type", "'yarn' on PoPE"},
	    {"pope", "{\"type\": \"linear\", \"factor\": 1}", "/type", "'linear' on PoPE"},
	};
	struct buf before = BUF_INIT(4096);
	struct position p;
	struct err e;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_ok(read_config(rows[i].type, "", 64, &p, &e), &e);
		write_position(&p, &before);
		ck_err(override(&p, rows[i].override, &e), ERR_INPUT, rows[i].words, &e);
		ck_assert_str_eq(e.pointer, rows[i].pointer);
		check_written(&p, buf_str(&before)); /* left alone */
	}
	buf_release(&before);
}
END_TEST

START_TEST(an_override_of_nothing_is_neutral_on_pope)
{
	struct position p;
	struct err e;

	ck_ok(read_config("pope", "", 64, &p, &e), &e);
	ck_ok(override(&p, "{\"type\": \"none\", \"inv_freq\": \"exact\"}", &e), &e);
	check_written(&p, WRITTEN("pope\",\"theta\":10000", "1024,\"inv_freq\":\"exact\""));
}
END_TEST

Suite *position_suite(void);
Suite *position_suite(void)
{
	Suite *s = suite_create("position");
	TCase *t = tcase_create("golden");

	tcase_add_test(t, frequencies_equal_exact_arithmetic);
	tcase_add_test(t, f32_frequencies_are_rounded_before_anything_else);
	tcase_add_test(t, phases_are_exact_up_to_16_million_positions);
	suite_add_tcase(s, t);
	t = tcase_create("yarn");
	tcase_add_test(t, yarn_amplitude_is_a_tenth_of_ln_s_plus_one);
	tcase_add_test(t, explicit_amplitude_wins_and_mscale_is_a_ratio);
	tcase_add_test(t, yarn_interpolates_from_pair_5_to_pair_18);
	suite_add_tcase(s, t);
	t = tcase_create("settings");
	tcase_add_test(t, every_spelling_of_the_settings_is_read);
	tcase_add_test(t, impossible_settings_are_refused_by_name);
	tcase_add_test(t, the_context_must_be_given);
	tcase_add_test(t, an_override_replaces_the_scaling);
	tcase_add_test(t, a_bad_override_points_at_the_value);
	tcase_add_test(t, an_override_of_nothing_is_neutral_on_pope);
	suite_add_tcase(s, t);
	return s;
}
