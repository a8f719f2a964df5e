/* The map of frequency use: see frequency_svg.h. Layers go down from the first, frequencies to the right from the
 * highest. */
#include "server/frequency_svg.h"

#include <math.h>
#include <string.h>

#include "server/svg.h"

#define WIDTH     760.0
#define LEFT      72.0
#define RIGHT     648.0 /* of the map; to its right: */
#define BAR_LEFT  670.0
#define BAR_WIDTH 16.0
#define TOP       72.0  /* of the first map */
#define MAP       216.0 /* its height, unless its rows become too high or too low */
#define BELOW     74.0  /* from a map to the next: ticks, and the next one's title */
#define TICK_ROOM 14.0  /* a line of text */
#define N_TICKS   8
#define N_STOPS   52

/* viridis of matplotlib (CC0), every fifth of its 256 colours; between them it is as good as linear. */
static const uint32_t stops[N_STOPS] = {
    0x440154, 0x46085c, 0x471063, 0x481769, 0x481d6f, 0x482475, 0x472a7a, 0x46307e, 0x453781, 0x433d84, 0x414287,
    0x3f4889, 0x3d4e8a, 0x3a538b, 0x38598c, 0x355e8d, 0x33638d, 0x31688e, 0x2e6d8e, 0x2c718e, 0x2a768e, 0x297b8e,
    0x27808e, 0x25848e, 0x23898e, 0x218e8d, 0x20928c, 0x1f978b, 0x1e9c89, 0x1fa188, 0x21a585, 0x24aa83, 0x28ae80,
    0x2eb37c, 0x35b779, 0x3dbc74, 0x46c06f, 0x50c46a, 0x5ac864, 0x65cb5e, 0x70cf57, 0x7cd250, 0x89d548, 0x95d840,
    0xa2da37, 0xb0dd2f, 0xbddf26, 0xcae11f, 0xd8e219, 0xe5e419, 0xf1e51d, 0xfde725};

uint32_t viridis(double t)
{
	double at = fmin(fmax(t, 0), 1) * (N_STOPS - 1);
	size_t i = at < N_STOPS - 1 ? (size_t)at : N_STOPS - 2;
	uint32_t colour = 0;

	for (int shift = 16; shift >= 0; shift -= 8) {
		double a = stops[i] >> shift & 0xff, b = stops[i + 1] >> shift & 0xff;

		colour |= (uint32_t)lround(a + (b - a) * (at - (double)i)) << shift;
	}
	return colour;
}

/* One panel. */
struct panel {
	const char *title;
	const struct frequency_map *map;
	const double *mean; /* [n_layer, n_freq] */
	double top, row, low, high;
};

static struct panel panel_of(const struct frequency_map *map, int part, const char *title)
{
	struct panel p = {.title = title, .map = map, .mean = map->mean[part], .low = INFINITY, .high = -INFINITY};

	p.row = fmin(fmax(MAP / (double)map->n_layer, 6), 24);
	p.top = TOP + part * (p.row * (double)map->n_layer + BELOW);
	for (size_t i = 0; i < map->n_layer * map->n_freq; i++) {
		p.low = fmin(p.low, p.mean[i]);
		p.high = fmax(p.high, p.mean[i]);
	}
	return p;
}

static double bottom_of(const struct panel *p)
{
	return p->top + p->row * (double)p->map->n_layer;
}

static void put_cells(struct buf *out, const struct panel *p)
{
	double width = (RIGHT - LEFT) / (double)p->map->n_freq, span = p->high > p->low ? p->high - p->low : 1;

	for (size_t layer = 0; layer < p->map->n_layer; layer++)
		for (size_t i = 0; i < p->map->n_freq; i++) {
			double v = p->mean[layer * p->map->n_freq + i];

			buf_printf(out,
			           "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%06x\">"
			           "<title>layer %zu, frequency %zu (θ %.3g): %.4g</title></rect>\n",
			           LEFT + width * (double)i, p->top + p->row * (double)layer, width, p->row,
			           viridis((v - p->low) / span), layer, i, p->map->theta[i], v);
		}
}

static void put_ticks(struct buf *out, const struct panel *p)
{
	double width = (RIGHT - LEFT) / (double)p->map->n_freq;
	size_t every = (p->map->n_freq + N_TICKS - 1) / N_TICKS;
	size_t rows = (size_t)ceil(TICK_ROOM / p->row);

	for (size_t i = 0; i < p->map->n_freq; i += every)
		buf_printf(out,
		           "<text class=\"quiet mid\" x=\"%.2f\" y=\"%.2f\">%zu</text>"
		           "<text class=\"quiet mid small\" x=\"%.2f\" y=\"%.2f\">%.2g</text>\n",
		           LEFT + width * ((double)i + .5), bottom_of(p) + 16, i, LEFT + width * ((double)i + .5),
		           bottom_of(p) + 30, p->map->theta[i]);
	for (size_t layer = 0; layer < p->map->n_layer; layer += rows)
		buf_printf(out, "<text class=\"quiet end\" x=\"%.2f\" y=\"%.2f\">%zu</text>\n", LEFT - 7,
		           p->top + p->row * ((double)layer + .5) + 4.5, layer);
	buf_printf(out, "<text class=\"quiet mid\" transform=\"translate(24 %.2f) rotate(-90)\">Layer</text>\n",
	           (p->top + bottom_of(p)) / 2);
}

static void put_bar(struct buf *out, const struct panel *p)
{
	double height = bottom_of(p) - p->top;

	buf_printf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"url(#v)\"/>\n", BAR_LEFT,
	           p->top, BAR_WIDTH, height);
	for (int i = 0; i <= 2; i++)
		buf_printf(out, "<text class=\"quiet bar\" x=\"%.2f\" y=\"%.2f\">%.3g</text>\n",
		           BAR_LEFT + BAR_WIDTH + 6,
		           fmin(fmax(bottom_of(p) - height * i / 2 + 4.5, p->top + 10), bottom_of(p)),
		           p->low + (p->high - p->low) * i / 2);
}

static void put_panel(struct buf *out, const struct panel *p, const char *part)
{
	buf_printf(out, "<g data-part=\"%s\"><text x=\"%.2f\" y=\"%.2f\">%s</text>\n", part, LEFT, p->top - 10,
	           p->title);
	buf_puts(out, "<g class=\"cells\">\n");
	put_cells(out, p);
	buf_puts(out, "</g>\n");
	put_ticks(out, p);
	put_bar(out, p);
	buf_puts(out, "</g>\n");
}

/* The colour bars' gradient, the lowest at the bottom. */
static void put_gradient(struct buf *out)
{
	buf_puts(out, "<linearGradient id=\"v\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">");
	for (size_t i = 0; i < N_STOPS; i++)
		buf_printf(out, "<stop offset=\"%.4f\" stop-color=\"#%06x\"/>", (double)i / (N_STOPS - 1), stops[i]);
	buf_puts(out, "</linearGradient>\n");
}

static const char *text_of(const struct json *object, const char *key)
{
	const char *s = json_get_string(object, key);

	return s ? s : "?";
}

static void put_title(const struct json *result, struct buf *title)
{
	const struct json *model = json_get(result, "model");

	buf_printf(title, "Frequency use: %s (%s) on %s", text_of(model, "name"),
	           text_of(json_get(model, "position"), "type"), text_of(json_get(result, "dataset"), "name"));
}

static void draw(const struct json *result, const struct frequency_map *map, struct buf *out)
{
	bool pope = !strcmp(text_of(json_get(json_get(result, "model"), "position"), "type"), "pope");
	struct panel q = panel_of(
	    map, 0, pope ? "Queries: mean softplus of each element" : "Queries: mean 2-norm of each rotary pair");
	struct panel k =
	    panel_of(map, 1, pope ? "Keys: mean softplus of each element" : "Keys: mean 2-norm of each rotary pair");
	struct buf title = BUF_INIT(1 << 14);

	put_title(result, &title);
	svg_begin(out, WIDTH, bottom_of(&k) + 58, LEFT, buf_str(&title),
	          ".small{font-size:11px}.cells{shape-rendering:crispEdges}", "");
	put_gradient(out);
	put_panel(out, &q, "q");
	put_panel(out, &k, "k");
	buf_printf(out,
	           "<text class=\"quiet mid\" x=\"%.2f\" y=\"%.2f\">Frequency, and its θ (radians per token)</text>\n",
	           (LEFT + RIGHT) / 2, bottom_of(&k) + 50);
	buf_puts(out, "</svg>\n");
	buf_release(&title);
}

err_code frequency_svg(const struct json *result, struct buf *out, struct err *e)
{
	struct frequency_map map = {0};
	err_code rc = result_frequencies(json_get(result, "metrics"), &map, e);

	if (!rc && !map.n_layer)
		rc = err_set(e, ERR_NOT_FOUND, "task %s has no map of frequencies",
		             text_of(json_get(result, "task"), "name"));
	if (!rc) {
		draw(result, &map, out);
		rc = buf_check(out, "the map of frequencies", e);
	}
	frequency_map_release(&map);
	return rc;
}
