/* The drawn curve: well-formed, every point where the axes say, text escaped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/curve_svg.h"
#include "tests/fixture.h"
#include "tests/fixture_svg.h"

static const struct curve_point rising[] = {{512, 24.16, 1.1}, {1024, 23.07, 1}, {2048, 39.23, 2}, {8192, 190.2, 10}};
static const struct curve_point flat[] = {{512, 24.27, -1}, {1024, 23.25, -1}, {2048, 22.81, -1}};

static struct buf draw(const struct curve_series *series, size_t n)
{
	struct curve_chart c = {"Perplexity: books", "Perplexity per token", series, n};
	struct buf b = BUF_INIT(1 << 20);
	struct err e;

	curve_svg(&c, &b);
	ck_ok(buf_check(&b, "svg", &e), &e);
	return b;
}

/* The vertices of the i-th series' line. */
static size_t vertices(const char *svg, size_t i, double x[16], double y[16])
{
	const char *s = svg;
	size_t n = 0;
	int used;

	for (size_t k = 0; k <= i; k++) {
		s = strstr(k ? s + 1 : s, "data-series=");
		ck_assert_ptr_nonnull(s);
	}
	s = strstr(s, "class=\"line");
	s = strstr(s, " d=\"") + 4;
	while (n < 16 && sscanf(s, "%*1[ML]%lf %lf%n", &x[n], &y[n], &used) == 2) {
		s += used;
		n++;
	}
	return n;
}

START_TEST(points_lie_where_logarithmic_axes_put_them)
{
	struct curve_series series[] = {{"a", rising, 4}, {"b", flat, 3}};
	struct buf b = draw(series, 2);
	double x[16], y[16];

	svg_well_formed(buf_str(&b));
	ck_assert_uint_eq(vertices(buf_str(&b), 0, x, y), 4);
	/* x: equal factors, equal steps; 2048 to 8192 is two of them */
	ck_assert_double_eq_tol(x[1] - x[0], x[2] - x[1], 0.02);
	ck_assert_double_eq_tol(x[3] - x[2], 2 * (x[1] - x[0]), 0.02);
	/* y grows downwards; the step of a value is its logarithm's */
	ck_assert_double_gt(y[1], y[0]);
	ck_assert_double_lt(y[3], y[2]);
	ck_assert_double_eq_tol((y[2] - y[3]) / (y[0] - y[2]), log(190.2 / 39.23) / log(39.23 / 24.16), 0.01);
	/* within the frame */
	for (int i = 0; i < 4; i++)
		ck_assert(x[i] > 72 && x[i] < 736 && y[i] > 46 && y[i] < 400);
	ck_assert_uint_eq(vertices(buf_str(&b), 1, x, y), 3);
	/* a marker a point, and one a row of the legend */
	ck_assert_uint_eq(svg_count(buf_str(&b), "class=\"mark\""), 4 + 3 + 2);
	buf_release(&b);
}
END_TEST

START_TEST(error_bars_reach_a_standard_error_up_and_down)
{
	struct curve_series series[] = {{"a", rising, 4}};
	struct buf b = draw(series, 1);
	double x[16], y[16], x0, x1, top, bottom;
	const char *s = strstr(buf_str(&b), "class=\"bars\" d=\"");

	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(vertices(buf_str(&b), 0, x, y), 4);
	ck_assert_int_eq(sscanf(s, "class=\"bars\" d=\"M%lf %lfH%lfM%*f %*fV%lf", &x0, &top, &x1, &bottom), 4);
	ck_assert_double_eq_tol((x0 + x1) / 2, x[0], 0.01);
	ck_assert_double_eq_tol((y[0] - top) / (bottom - y[0]), log(25.26 / 24.16) / log(24.16 / 23.06), 0.02);
	buf_release(&b);
	series[0] = (struct curve_series){"none", flat, 3}; /* one document: no standard error */
	b = draw(series, 1);
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "class=\"bars\" d=\"\""));
	buf_release(&b);
}
END_TEST

START_TEST(the_legend_names_each_curve_and_escapes_it)
{
	struct curve_series series[] = {{"m<1> · RoPE & \"x\"", rising, 4}, {"bad \xff\x01 utf-8", flat, 3}};
	struct buf b = draw(series, 2);

	svg_well_formed(buf_str(&b));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), ">m&lt;1&gt; · RoPE &amp; &quot;x&quot;</text>"));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "bad \xEF\xBF\xBD\xEF\xBF\xBD utf-8</text>"));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "prefers-color-scheme:dark"));
	buf_release(&b);
}
END_TEST

START_TEST(what_a_logarithm_cannot_show_is_left_out)
{
	struct curve_point odd[] = {{0, 5, 1},          {64, 0, 1},    {128, -3, 1},
	                            {256, INFINITY, 1}, {512, NAN, 1}, {1024, 20, 30}};
	struct curve_series series[] = {{"odd", odd, 6}, {"empty", NULL, 0}};
	struct buf b = draw(series, 2);
	double x[16], y[16];

	svg_well_formed(buf_str(&b));
	ck_assert_uint_eq(vertices(buf_str(&b), 0, x, y), 1);
	ck_assert_uint_eq(vertices(buf_str(&b), 1, x, y), 0);
	ck_assert_ptr_null(strstr(buf_str(&b), "nan"));
	ck_assert_ptr_null(strstr(buf_str(&b), "inf"));
	buf_release(&b);
	b = draw(NULL, 0);
	svg_well_formed(buf_str(&b));
	buf_release(&b);
}
END_TEST

START_TEST(many_lengths_are_labelled_without_overlap)
{
	struct curve_point many[64];
	struct curve_series series[] = {{"many", many, 64}};
	struct buf b;
	double x[64] = {0};
	size_t n = 0;

	for (int i = 0; i < 64; i++)
		many[i] = (struct curve_point){1000 + 1000 * i, 20 + i, 1};
	b = draw(series, 1);
	for (const char *s = buf_str(&b); (s = strstr(s, "class=\"quiet mid\" x=\"")) && n < 64; s++) {
		x[n] = strtod(s + 21, NULL);
		if (strstr(s, "Length") != strchr(s, '>') + 1)
			n++;
	}
	ck_assert_uint_ge(n, 5);
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++)
			ck_assert_double_gt(fabs(x[i] - x[k]), 30);
	buf_release(&b);
}
END_TEST

Suite *curve_svg_suite(void);
Suite *curve_svg_suite(void)
{
	Suite *s = suite_create("curve_svg");
	TCase *t = tcase_create("curve_svg");

	suite_add_tcase(s, t);
	tcase_add_test(t, points_lie_where_logarithmic_axes_put_them);
	tcase_add_test(t, error_bars_reach_a_standard_error_up_and_down);
	tcase_add_test(t, the_legend_names_each_curve_and_escapes_it);
	tcase_add_test(t, what_a_logarithm_cannot_show_is_left_out);
	tcase_add_test(t, many_lengths_are_labelled_without_overlap);
	return s;
}
