/* The curve as SVG: see curve_svg.h. Series are told apart by colour, marker and dash. */
#include "server/curve_svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/svg.h"

#define WIDTH      760.0
#define LEFT       72.0
#define RIGHT      736.0
#define TOP        46.0
#define BOTTOM     400.0
#define LEGEND_TOP 462.0
#define LEGEND_ROW 22.0
#define N_STYLES   8
#define MAX_TICKS  64
#define MAX_LABEL  100 /* characters of a legend's row */

/* As the page's, so that a curve keeps its look when it is downloaded. */
static const struct {
	const char *light, *dark;
} colours[N_STYLES] = {
    {"#0b5cad", "#6cb2ff"}, {"#c2500a", "#ff9a56"}, {"#0a7f62", "#4fd1a5"}, {"#8a3ea8", "#cf9bff"},
    {"#9a7000", "#e6c34a"}, {"#c2296b", "#ff86b3"}, {"#2a86c4", "#a5dcff"}, {"#56626f", "#b3bfcc"},
};

struct axes {
	double x0, x1, y0, y1; /* natural logarithms of the ends */
};

struct ticks {
	double at[MAX_TICKS];
	size_t n;
};

/* -- geometry ---------------------------------------------------------------------------------- */

static bool is_shown(const struct curve_point *p)
{
	return p->length > 0 && isfinite(p->value) && p->value > 0;
}

static double x_of(const struct axes *a, double length)
{
	return LEFT + (log(length) - a->x0) / (a->x1 - a->x0) * (RIGHT - LEFT);
}

static double y_of(const struct axes *a, double value)
{
	double y = BOTTOM - (log(value) - a->y0) / (a->y1 - a->y0) * (BOTTOM - TOP);

	return y < TOP ? TOP : y > BOTTOM ? BOTTOM : y;
}

/* The lower end of an error bar: a log axis has no zero, so one that reaches below half its value is cut there. */
static double low_end(const struct curve_point *p)
{
	return p->stderr_ > 0 ? fmax(p->value - p->stderr_, p->value / 2) : p->value;
}

static double high_end(const struct curve_point *p)
{
	return p->stderr_ > 0 ? p->value + p->stderr_ : p->value;
}

static void widen(double *from, double *to, double share)
{
	double room = fmax((*to - *from) * share, 0.04);

	*from -= room;
	*to += room;
}

static struct axes fit_axes(const struct curve_chart *c)
{
	struct axes a = {INFINITY, -INFINITY, INFINITY, -INFINITY};

	for (size_t i = 0; i < c->n_series; i++) {
		for (size_t k = 0; k < c->series[i].n; k++) {
			const struct curve_point *p = &c->series[i].points[k];

			if (!is_shown(p))
				continue;
			a.x0 = fmin(a.x0, log((double)p->length));
			a.x1 = fmax(a.x1, log((double)p->length));
			a.y0 = fmin(a.y0, log(low_end(p)));
			a.y1 = fmax(a.y1, log(high_end(p)));
		}
	}
	if (a.x0 > a.x1)
		a = (struct axes){log(1), log(10), log(1), log(10)};
	widen(&a.x0, &a.x1, 0.04);
	widen(&a.y0, &a.y1, 0.08);
	return a;
}

/* -- ticks ------------------------------------------------------------------------------------- */

static void add_tick(struct ticks *t, double at)
{
	if (t->n < MAX_TICKS)
		t->at[t->n++] = at;
}

/* Evenly spaced round numbers: a narrow range. */
static void linear_ticks(struct ticks *t, double low, double high)
{
	static const double steps[] = {1, 2, 2.5, 5, 10};
	double rough = (high - low) / 5, size = pow(10, floor(log10(rough)));
	size_t i = 0;

	while (i < 4 && steps[i] * size < rough)
		i++;
	for (long k = (long)ceil(low / (steps[i] * size)); (double)k * steps[i] * size <= high; k++)
		add_tick(t, (double)k * steps[i] * size);
}

/* About five to nine round numbers: these steps in each decade. */
static void value_ticks(struct ticks *t, double low, double high)
{
	static const struct {
		double below; /* of high / low */
		double steps[7];
		size_t n;
	} table[] = {
	    {12, {1, 1.5, 2, 3, 4, 5, 7}, 7}, {60, {1, 2, 3, 5, 7}, 5}, {3000, {1, 2, 5}, 3}, {INFINITY, {1}, 1}};
	double ratio = high / low, tick;
	size_t row = 0;

	if (ratio < 3) {
		linear_ticks(t, low, high);
		return;
	}
	while (row < 3 && ratio >= table[row].below)
		row++;
	for (int decade = (int)floor(log10(low)); decade <= (int)log10(high); decade++) {
		for (size_t i = 0; i < table[row].n; i++) {
			tick = table[row].steps[i] * pow(10, decade);
			if (tick >= low && tick <= high)
				add_tick(t, tick);
		}
	}
}

static bool is_power_of_two(double x)
{
	uint64_t n = (uint64_t)x;

	return (n & (n - 1)) == 0;
}

static double label_width(double x)
{
	char text[32];

	return 7.5 * (double)snprintf(text, sizeof text, "%.0f", x) + 12;
}

static void keep_if_room(struct ticks *t, const struct axes *a, double x)
{
	for (size_t i = 0; i < t->n; i++)
		if (fabs(x_of(a, t->at[i]) - x_of(a, x)) < (label_width(x) + label_width(t->at[i])) / 2)
			return;
	add_tick(t, x);
}

/* The lengths themselves, as many as fit: the ends, then powers of two, then the rest. */
static void length_ticks(struct ticks *t, const struct axes *a, const struct curve_chart *c)
{
	double first = INFINITY, last = 0;

	for (int pass = 0; pass < 3; pass++) {
		for (size_t i = 0; i < c->n_series; i++) {
			for (size_t k = 0; k < c->series[i].n; k++) {
				double x = (double)c->series[i].points[k].length;

				if (!is_shown(&c->series[i].points[k]))
					continue;
				first = fmin(first, x);
				last = fmax(last, x);
				if ((pass == 1 && is_power_of_two(x)) || pass == 2)
					keep_if_room(t, a, x);
			}
		}
		if (!pass && last > 0) {
			keep_if_room(t, a, first);
			keep_if_room(t, a, last);
		}
	}
}

/* -- writing ----------------------------------------------------------------------------------- */

static void begin(struct buf *out, const struct curve_chart *c, double height)
{
	size_t n = c->n_series < N_STYLES ? c->n_series : N_STYLES;
	struct buf light = BUF_INIT(1 << 12), dark = BUF_INIT(1 << 12);

	buf_puts(&light, ".line{fill:none;stroke-width:2;stroke-linejoin:round}.bars{fill:none;stroke-width:1.5}"
	                 ".mark{stroke-width:2}.dashed{stroke-dasharray:6 4}.hollow .mark{fill:#fff}\n");
	buf_puts(&dark, ".hollow .mark{fill:#161d27}\n");
	for (size_t i = 0; i < n; i++) {
		buf_printf(&light, ".s%zu{stroke:%s;fill:%s}", i, colours[i].light, colours[i].light);
		buf_printf(&dark, ".s%zu{stroke:%s;fill:%s}", i, colours[i].dark, colours[i].dark);
	}
	buf_puts(&light, "\n.s text{stroke:none}.line,.bars{fill:none}");
	svg_begin(out, WIDTH, height, LEFT, c->title, buf_str(&light), buf_str(&dark));
	buf_release(&light);
	buf_release(&dark);
}

static void put_mark(struct buf *out, size_t style, double x, double y)
{
	switch (style % 4) {
	case 0:
		buf_printf(out, "<circle class=\"mark\" cx=\"%.2f\" cy=\"%.2f\" r=\"3.5\">", x, y);
		break;
	case 1:
		buf_printf(out, "<path class=\"mark\" d=\"M%.2f %.2fh7v7h-7z\">", x - 3.5, y - 3.5);
		break;
	case 2:
		buf_printf(out, "<path class=\"mark\" d=\"M%.2f %.2fl4.2 7.4h-8.4z\">", x, y - 4.6);
		break;
	default:
		buf_printf(out, "<path class=\"mark\" d=\"M%.2f %.2fl4.5 4.5l-4.5 4.5l-4.5-4.5z\">", x, y - 4.5);
		break;
	}
}

static void end_mark(struct buf *out, size_t style)
{
	buf_puts(out, style % 4 ? "</path>\n" : "</circle>\n");
}

static void put_axes(struct buf *out, const struct axes *a, const struct curve_chart *c)
{
	struct ticks x = {.n = 0}, y = {.n = 0};

	length_ticks(&x, a, c);
	value_ticks(&y, exp(a->y0), exp(a->y1));
	for (size_t i = 0; i < x.n; i++)
		buf_printf(out,
		           "<path class=\"grid\" d=\"M%.2f %.2fV%.2f\"/>"
		           "<text class=\"quiet mid\" x=\"%.2f\" y=\"%.2f\">%.0f</text>\n",
		           x_of(a, x.at[i]), TOP, BOTTOM, x_of(a, x.at[i]), BOTTOM + 18, x.at[i]);
	for (size_t i = 0; i < y.n; i++)
		buf_printf(out,
		           "<path class=\"grid\" d=\"M%.2f %.2fH%.2f\"/>"
		           "<text class=\"quiet end\" x=\"%.2f\" y=\"%.2f\">%.6g</text>\n",
		           LEFT, y_of(a, y.at[i]), RIGHT, LEFT - 7, y_of(a, y.at[i]) + 4.5, y.at[i]);
	buf_printf(out, "<path class=\"frame\" d=\"M%.2f %.2fV%.2fH%.2f\"/>\n", LEFT, TOP, BOTTOM, RIGHT);
	buf_printf(out, "<text class=\"quiet mid\" x=\"%.2f\" y=\"%.2f\">Length (tokens)</text>\n", (LEFT + RIGHT) / 2,
	           BOTTOM + 40);
	buf_printf(out, "<text class=\"quiet mid\" transform=\"translate(18 %.2f) rotate(-90)\">", (TOP + BOTTOM) / 2);
	svg_put_text(out, c->y_label, MAX_LABEL);
	buf_puts(out, "</text>\n");
}

static void put_bars(struct buf *out, const struct axes *a, const struct curve_series *s)
{
	buf_puts(out, "<path class=\"bars\" d=\"");
	for (size_t k = 0; k < s->n; k++) {
		const struct curve_point *p = &s->points[k];
		double x = x_of(a, (double)p->length);

		if (is_shown(p) && p->stderr_ > 0)
			buf_printf(out, "M%.2f %.2fH%.2fM%.2f %.2fV%.2fM%.2f %.2fH%.2f", x - 4, y_of(a, high_end(p)),
			           x + 4, x, y_of(a, high_end(p)), y_of(a, low_end(p)), x - 4, y_of(a, low_end(p)),
			           x + 4);
	}
	buf_puts(out, "\"/>\n");
}

static void put_series(struct buf *out, const struct axes *a, const struct curve_series *s, size_t index)
{
	size_t style = index % N_STYLES;
	bool first = true;

	buf_printf(out, "<g class=\"s s%zu%s\" data-series=\"", style, style >= 4 ? " hollow" : "");
	svg_put_text(out, s->label, 500);
	buf_puts(out, "\">\n");
	put_bars(out, a, s);
	buf_printf(out, "<path class=\"line%s\" d=\"", style >= 4 ? " dashed" : "");
	for (size_t k = 0; k < s->n; k++) {
		if (!is_shown(&s->points[k]))
			continue;
		buf_printf(out, "%s%.2f %.2f", first ? "M" : "L", x_of(a, (double)s->points[k].length),
		           y_of(a, s->points[k].value));
		first = false;
	}
	buf_puts(out, "\"/>\n");
	for (size_t k = 0; k < s->n; k++) {
		const struct curve_point *p = &s->points[k];

		if (!is_shown(p))
			continue;
		put_mark(out, style, x_of(a, (double)p->length), y_of(a, p->value));
		buf_printf(out, "<title>%lld tokens: %.6g", (long long)p->length, p->value);
		if (p->stderr_ >= 0)
			buf_printf(out, " ± %.2g", p->stderr_);
		buf_puts(out, "</title>");
		end_mark(out, style);
	}
	buf_puts(out, "</g>\n");
}

static void put_legend(struct buf *out, const struct curve_chart *c)
{
	for (size_t i = 0; i < c->n_series; i++) {
		size_t style = i % N_STYLES;
		double y = LEGEND_TOP + LEGEND_ROW * (double)i;

		buf_printf(out, "<g class=\"s s%zu%s\"><path class=\"line%s\" d=\"M%.2f %.2fh30\"/>", style,
		           style >= 4 ? " hollow" : "", style >= 4 ? " dashed" : "", LEFT, y);
		put_mark(out, style, LEFT + 15, y);
		end_mark(out, style);
		buf_printf(out, "</g><text class=\"key\" x=\"%.2f\" y=\"%.2f\">", LEFT + 40, y + 4.5);
		svg_put_text(out, c->series[i].label, MAX_LABEL);
		buf_puts(out, "</text>\n");
	}
}

void curve_svg(const struct curve_chart *c, struct buf *out)
{
	struct axes a = fit_axes(c);
	double height = LEGEND_TOP + LEGEND_ROW * (double)c->n_series;

	begin(out, c, height);
	put_axes(out, &a, c);
	for (size_t i = 0; i < c->n_series; i++)
		put_series(out, &a, &c->series[i], i);
	put_legend(out, c);
	buf_puts(out, "</svg>\n");
}
