/* The map of frequency use: colours by value, a panel's own scale, text escaped; what is no map; and what reports make
 * of its many numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/frequency_svg.h"
#include "server/report.h"
#include "tests/fixture.h"
#include "tests/fixture_eval.h"
#include "tests/fixture_svg.h"

static struct err e;

/* A result whose mean of (part, layer, i) is value(part, layer, i). Keys come first, to no effect. */
static struct json *result_of(const char *model, const char *position, int n_layer, int n_freq,
                              double (*value)(int part, int layer, int i))
{
	struct buf text = BUF_INIT(1 << 26);
	struct json_writer w = JSON_WRITER(&text);
	struct json *j;

	json_begin_object(&w, NULL);
	json_begin_object(&w, "model");
	json_put_string(&w, "name", model);
	json_begin_object(&w, "position");
	json_put_string(&w, "type", position);
	json_end_object(&w);
	json_end_object(&w);
	json_begin_object(&w, "dataset");
	json_put_string(&w, "name", "books");
	json_end_object(&w);
	json_begin_array(&w, "metrics");
	for (int part = 1; part >= 0; part--)
		for (int at = 0; at < n_layer * n_freq; at++) {
			json_begin_object(&w, NULL);
			json_put_string(&w, "name", "frequency_use");
			json_put_string(&w, "part", part ? "k" : "q");
			json_put_int(&w, "layer", at / n_freq);
			json_put_int(&w, "frequency", at % n_freq);
			json_put_double(&w, "theta", pow(10000, -(double)(at % n_freq) / n_freq));
			json_put_double(&w, "value", value(part, at / n_freq, at % n_freq));
			json_put_int(&w, "n", 80);
			json_put_string(&w, "unit", "magnitude");
			json_end_object(&w);
		}
	json_end_array(&w);
	json_end_object(&w);
	j = fixture_json(buf_str(&text));
	buf_release(&text);
	return j;
}

static double ramp(int part, int layer, int i)
{
	return (part ? 10 : 1) * (1 + layer * 4 + i);
}

static double flat(int part, int layer, int i)
{
	(void)part, (void)layer, (void)i;
	return 0.5;
}

static struct buf draw(const struct json *result)
{
	struct buf b = BUF_INIT(1 << 26);

	ck_ok(frequency_svg(result, &b, &e), &e);
	svg_well_formed(buf_str(&b));
	return b;
}

/* The fill of the cell with this tooltip, among the cells of a part. */
static unsigned fill_of(const char *svg, const char *part, const char *title)
{
	char group[32];
	const char *cell, *fill = NULL;
	unsigned colour;

	snprintf(group, sizeof group, "data-part=\"%s\"", part);
	svg = strstr(svg, group);
	ck_assert_ptr_nonnull(svg);
	cell = strstr(svg, title);
	ck_assert_msg(cell != NULL, "no cell '%s'", title);
	for (const char *s = svg; s < cell && (s = strstr(s, "fill=\"#")) && s < cell; s++)
		fill = s;
	ck_assert_ptr_nonnull(fill);
	ck_assert_int_eq(sscanf(fill, "fill=\"#%06x\"", &colour), 1);
	return colour;
}

START_TEST(viridis_is_matplotlibs)
{
	/* matplotlib.colormaps['viridis'](i), 3.11 */
	static const struct {
		int i;
		uint32_t colour;
	} want[] = {{0, 0x440154},   {7, 0x460b5e},   {40, 0x453781},  {100, 0x2a768e},
	            {128, 0x21918c}, {200, 0x70cf57}, {250, 0xf1e51d}, {255, 0xfde725}};

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		uint32_t got = viridis(want[i].i / 255.);

		for (int shift = 0; shift <= 16; shift += 8)
			ck_assert_msg(abs((int)(got >> shift & 0xff) - (int)(want[i].colour >> shift & 0xff)) <= 1,
			              "%d: #%06x, not #%06x", want[i].i, got, want[i].colour);
	}
	ck_assert_uint_eq(viridis(-1), 0x440154);
	ck_assert_uint_eq(viridis(2), 0xfde725);
}
END_TEST

START_TEST(a_cell_has_the_colour_of_its_mean_on_its_panels_own_scale)
{
	struct json *result = result_of("m", "pope", 2, 4, ramp);
	struct buf b = draw(result);
	const char *svg = buf_str(&b);

	ck_assert_uint_eq(svg_count(svg, "<title>layer "), 2 * 2 * 4);
	ck_assert_uint_eq(fill_of(svg, "q", "layer 0, frequency 0 (θ 1): 1<"), 0x440154);
	ck_assert_uint_eq(fill_of(svg, "q", "layer 1, frequency 3 (θ 0.001): 8<"), 0xfde725);
	ck_assert_uint_eq(fill_of(svg, "k", "layer 0, frequency 0 (θ 1): 10<"), 0x440154);
	ck_assert_uint_eq(fill_of(svg, "k", "layer 1, frequency 3 (θ 0.001): 80<"), 0xfde725);
	/* 4 of 1..8 lies at 3/7 of the scale */
	ck_assert_uint_eq(fill_of(svg, "q", "layer 0, frequency 3 (θ 0.001): 4<"), viridis(3. / 7));
	/* the colour bars: low, middle, high */
	ck_assert_ptr_nonnull(strstr(svg, ">1</text>"));
	ck_assert_ptr_nonnull(strstr(svg, ">4.5</text>"));
	ck_assert_ptr_nonnull(strstr(svg, ">8</text>"));
	ck_assert_ptr_nonnull(strstr(svg, ">80</text>"));
	ck_assert_uint_eq(svg_count(svg, "url(#v)"), 2);
	ck_assert_ptr_nonnull(strstr(svg, "Queries: mean softplus of each element"));
	ck_assert_ptr_nonnull(strstr(svg, "Frequency use: m (pope) on books</title>"));
	buf_release(&b);
	json_free(result);
}
END_TEST

START_TEST(names_are_escaped_and_a_flat_map_is_drawn)
{
	struct json *result = result_of("a<b>&c", "yarn", 1, 3, flat);
	struct buf b = draw(result);

	ck_assert_ptr_nonnull(strstr(buf_str(&b), "a&lt;b&gt;&amp;c (yarn)"));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "Keys: mean 2-norm of each rotary pair"));
	ck_assert_ptr_null(strstr(buf_str(&b), "nan"));
	buf_release(&b);
	json_free(result);
}
END_TEST

START_TEST(what_is_no_map_is_refused)
{
	static const char one[] = "{\"name\":\"frequency_use\",\"part\":\"q\",\"layer\":0,\"frequency\":0,\"theta\":1,"
	                          "\"value\":1}";
	static const struct {
		const char *metrics;
		err_code code;
		const char *words;
	} cases[] = {
	    {"", ERR_NOT_FOUND, "task pg19 has no map of frequencies"},
	    {"{\"name\":\"ppl_token\",\"length\":1,\"value\":2}", ERR_NOT_FOUND, "has no map"},
	    {"%s", ERR_INPUT, "1 means of frequencies, not 2 parts of 1 layers of 1"},
	    {"%s,%s", ERR_INPUT, "malformed, or there twice"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf text = BUF_INIT(1 << 16), out = BUF_INIT(1 << 16);
		struct json *result;

		buf_puts(&text, "{\"task\":{\"name\":\"pg19\"},\"metrics\":[");
		for (const char *s = cases[i].metrics; *s; s++)
			if (s[0] == '%' && s[1] == 's')
				buf_puts(&text, one), s++;
			else
				buf_putc(&text, *s);
		buf_puts(&text, "]}");
		result = fixture_json(buf_str(&text));
		ck_err(frequency_svg(result, &out, &e), cases[i].code, cases[i].words, &e);
		json_free(result);
		buf_release(&text);
		buf_release(&out);
	}
}
END_TEST

START_TEST(a_table_has_a_line_a_layer_and_csv_all)
{
	struct json *result = result_of("m", "rope", 2, 4, ramp);
	struct buf b = BUF_INIT(1 << 20);
	const char *line;

	ck_ok(report_write(result, REPORT_TABLE, &b, &e), &e);
	ck_assert_uint_eq(svg_count(buf_str(&b), "frequency_use"), 0);
	/* queries of layer 1: 5 6 7 8; keys ten times that */
	line = strstr(buf_str(&b), "\n    1  6.5000     8.0000  3 (θ 0.001)  65.000     80.000  3 (θ 0.001)\n");
	ck_assert_msg(line != NULL, "%s", buf_str(&b));
	buf_clear(&b);
	ck_ok(report_write(result, REPORT_CSV, &b, &e), &e);
	ck_assert_uint_eq(svg_count(buf_str(&b), "\n"), 1 + 2 * 2 * 4);
	line = "model,position,task,dataset,protocol,dtype,metric,part,layer,frequency,theta,value,n,unit\n";
	ck_assert_ptr_eq(strstr(buf_str(&b), line), buf_str(&b));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\nm,rope,,books,,,frequency_use,q,1,3,0.001,8,80,magnitude\n"));
	buf_release(&b);
	json_free(result);
}
END_TEST

/* 80 layers of 128 frequencies, twice: no report may look at all for each. */
START_TEST(a_map_of_twenty_thousand_numbers_is_reported_at_once)
{
	struct json *result = result_of("m", "pope", 80, 128, ramp);
	struct buf b = BUF_INIT(1 << 26);
	clock_t begun = clock();

	for (int format = REPORT_TABLE; format <= REPORT_SVG; format++) {
		buf_clear(&b);
		ck_ok(report_write(result, (enum report_format)format, &b, &e), &e);
	}
	ck_assert_msg(clock() - begun < 5 * CLOCKS_PER_SEC, "%.1f s", (double)(clock() - begun) / CLOCKS_PER_SEC);
	svg_well_formed(buf_str(&b));
	buf_release(&b);
	json_free(result);
}
END_TEST

Suite *frequency_svg_suite(void);
Suite *frequency_svg_suite(void)
{
	Suite *s = suite_create("frequency_svg");
	TCase *t = tcase_create("frequency_svg");

	suite_add_tcase(s, t);
	tcase_add_test(t, viridis_is_matplotlibs);
	tcase_add_test(t, a_cell_has_the_colour_of_its_mean_on_its_panels_own_scale);
	tcase_add_test(t, names_are_escaped_and_a_flat_map_is_drawn);
	tcase_add_test(t, what_is_no_map_is_refused);
	tcase_add_test(t, a_table_has_a_line_a_layer_and_csv_all);
	tcase_add_test(t, a_map_of_twenty_thousand_numbers_is_reported_at_once);
	return s;
}
