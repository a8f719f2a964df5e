/* Reports: see report.h. Table and Markdown are one grid of cells, drawn in two ways. */
#include "server/report.h"

#include <stdio.h>
#include <string.h>

#include "eval/eval.h"
#include "server/frequency_svg.h"
#include "server/grid.h"

bool report_format_from_name(const char *name, enum report_format *out)
{
	static const char *const names[] = {"table", "json", "csv", "markdown", "svg"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (!strcmp(name, names[i])) {
			*out = (enum report_format)i;
			return true;
		}
	}
	return false;
}

/* -- CSV --------------------------------------------------------------------------------------- */

/* A field after RFC 4180: quoted when it must be. */
static void put_field(struct buf *out, const char *s)
{
	if (!s)
		return;
	if (!s[strcspn(s, ",\"\r\n")]) {
		buf_puts(out, s);
		return;
	}
	buf_putc(out, '"');
	for (; *s; s++) {
		if (*s == '"')
			buf_putc(out, '"');
		buf_putc(out, *s);
	}
	buf_putc(out, '"');
}

static void put_member(struct buf *out, const struct json *object, const char *key)
{
	const struct json *j = json_get(object, key);
	struct json_writer w = JSON_WRITER(out);

	if (json_is_string(j))
		put_field(out, json_string(j));
	else if (json_is_number(j))
		json_put_value(&w, NULL, j);
}

/* The numbers of a map have other columns than the rest. */
static void write_csv(const struct json *result, struct buf *out)
{
	static const char *const shared[] = {"name",  "group",  "length", "from", "to",
	                                     "value", "stderr", "n",      "unit", "reason"};
	static const char *const of_map[] = {"name", "part", "layer", "frequency", "theta", "value", "n", "unit"};
	const struct json *model = json_get(result, "model"), *task = json_get(result, "task");
	const struct json *metrics = json_get(result, "metrics");
	bool map = json_get(json_first(metrics), "frequency");
	const char *const *columns = map ? of_map : shared;
	size_t n = map ? sizeof of_map / sizeof *of_map : sizeof shared / sizeof *shared;

	buf_puts(out, "model,position,task,dataset,protocol,dtype,metric");
	for (size_t i = 1; i < n; i++)
		buf_printf(out, ",%s", columns[i]);
	buf_putc(out, '\n');
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		put_member(out, model, "name");
		buf_putc(out, ',');
		put_member(out, json_get(model, "position"), "type");
		buf_putc(out, ',');
		put_member(out, task, "name");
		buf_putc(out, ',');
		put_member(out, json_get(result, "dataset"), "name");
		buf_putc(out, ',');
		put_member(out, json_get(task, "params"), "protocol");
		buf_putc(out, ',');
		put_member(out, json_get(result, "engine"), "dtype");
		for (size_t i = 0; i < n; i++) {
			buf_putc(out, ',');
			put_member(out, m, columns[i]);
		}
		buf_putc(out, '\n');
	}
}

/* -- values ------------------------------------------------------------------------------------ */

#define CELL        GRID_CELL
#define MAX_COLUMNS GRID_COLUMNS

static void format_value(char cell[CELL], const struct json *metric)
{
	const char *reason = json_get_string(metric, "reason");
	double v;

	if (json_get_number(metric, "value", &v))
		grid_number(cell, v);
	else
		snprintf(cell, CELL, "%s", reason ? reason : "-");
}

static void format_error(char cell[CELL], const struct json *metric)
{
	double se;

	if (json_get_number(metric, "stderr", &se))
		grid_number(cell, se);
	else
		snprintf(cell, CELL, "-");
}

/* One line a length. */
static void curve_grid(const struct json *metrics, struct grid *g)
{
	static const char *const header[] = {"length",   "ppl_token",     "±",     "bits_per_byte", "±",
	                                     "ppl_word", "ppl_doc_macro", "tokens"};
	static const char *const names[] = {"ppl_token", "bits_per_byte", "ppl_word", "ppl_doc_macro"};
	static const struct {
		int value, error;
	} at[] = {{1, 2}, {3, 4}, {5, 0}, {6, 0}};
	int64_t length, n;
	char *row;

	g->n_columns = sizeof header / sizeof header[0];
	row = grid_add_row(g);
	for (size_t c = 0; row && c < g->n_columns; c++)
		snprintf(row + c * CELL, CELL, "%s", header[c]);
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		const char *name = json_get_string(m, "name");

		if (!name || strcmp(name, "ppl_token") != 0 || !json_get_integer(m, "length", &length))
			continue;
		row = grid_add_row(g);
		if (!row)
			return;
		snprintf(row, CELL, "%lld", (long long)length);
		for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
			const struct json *metric = result_metric(metrics, names[i], length, NULL);

			format_value(row + at[i].value * CELL, metric);
			if (at[i].error)
				format_error(row + at[i].error * CELL, metric);
		}
		if (json_get_integer(m, "n", &n))
			grid_count(row + 7 * CELL, n);
	}
}

/* -- use of frequencies ------------------------------------------------------------------------ */

/* A part's mean in a layer, its highest, and where that is. */
static void use_cells(const struct frequency_map *map, int part, size_t layer, char *row)
{
	const double *mean = map->mean[part] + layer * map->n_freq;
	size_t most = 0;
	double sum = 0;

	for (size_t i = 0; i < map->n_freq; i++) {
		sum += mean[i];
		most = mean[i] > mean[most] ? i : most;
	}
	row += (1 + 3 * (size_t)part) * CELL;
	grid_number(row, sum / (double)map->n_freq);
	grid_number(row + CELL, mean[most]);
	snprintf(row + 2 * CELL, CELL, "%zu (θ %.2g)", most, map->theta[most]);
}

/* One line a layer: a map has more numbers than a table. */
static void use_grid(const struct json *metrics, struct grid *g)
{
	static const char *const header[] = {"layer", "q mean", "q highest", "at", "k mean", "k highest", "at"};
	struct frequency_map map;
	struct err ignored; /* a malformed map is no map */
	char *row;

	g->n_columns = sizeof header / sizeof header[0];
	if (!result_frequencies(metrics, &map, &ignored)) {
		row = grid_add_row(g);
		for (size_t c = 0; row && c < g->n_columns; c++)
			snprintf(row + c * CELL, CELL, "%s", header[c]);
		for (size_t layer = 0; layer < map.n_layer && (row = grid_add_row(g)); layer++) {
			snprintf(row, CELL, "%zu", layer);
			use_cells(&map, 0, layer, row);
			use_cells(&map, 1, layer, row);
		}
	}
	frequency_map_release(&map);
}

/* -- parts of a task (paradigms, kinds) --------------------------------------------------------- */

static bool is_count(const struct json *m)
{
	const char *unit = json_get_string(m, "unit");

	return unit && !strcmp(unit, "items");
}

/* The names of metrics that parts have: in `names`, at most `max`. */
static size_t part_names(const struct json *metrics, const char **names, size_t max)
{
	size_t n = 0, i;

	for (const struct json *m = json_first(metrics); m && n < max; m = json_next(m)) {
		const char *name = json_get_string(m, "name");

		if (!name || !json_get_string(m, "group") || is_count(m))
			continue;
		for (i = 0; i < n && strcmp(names[i], name) != 0; i++)
			;
		if (i == n)
			names[n++] = name;
	}
	return n;
}

static void part_row(const struct json *metrics, const char *const *names, size_t n_names, const char *group,
                     const char *label, struct grid *g)
{
	char *row = grid_add_row(g);
	const struct json *m;
	int64_t n;

	if (!row)
		return;
	snprintf(row, CELL, "%s", label);
	for (size_t i = 0; i < n_names; i++) {
		m = result_metric(metrics, names[i], 0, group);
		format_value(row + (1 + 2 * i) * CELL, m);
		format_error(row + (2 + 2 * i) * CELL, m);
		if (json_get_integer(m, "n", &n))
			grid_count(row + (g->n_columns - 1) * CELL, n);
	}
}

/* One line a part, in the result's order; the mean over them is the last. */
static void part_grid(const struct json *metrics, struct grid *g)
{
	const char *names[(MAX_COLUMNS - 2) / 2], *group;
	size_t n_names = part_names(metrics, names, sizeof names / sizeof names[0]), n_parts = 0;
	char label[CELL], *row;

	if (!n_names)
		return;
	g->n_columns = 2 + 2 * n_names;
	g->names = true;
	row = grid_add_row(g);
	for (size_t i = 0; row && i < n_names; i++) {
		snprintf(row + (1 + 2 * i) * CELL, CELL, "%s", names[i]);
		snprintf(row + (2 + 2 * i) * CELL, CELL, "±");
	}
	if (row) {
		snprintf(row, CELL, "group");
		snprintf(row + (g->n_columns - 1) * CELL, CELL, "n");
	}
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		group = json_get_string(m, "group");
		if (!group || result_metric(metrics, names[0], 0, group) != m)
			continue;
		part_row(metrics, names, n_names, group, group, g);
		n_parts++;
	}
	snprintf(label, sizeof label, "mean of %zu", n_parts);
	if (result_metric(metrics, names[0], 0, NULL))
		part_row(metrics, names, n_names, NULL, label, g);
}

/* Whether the grid of parts has it. */
static bool in_part_grid(const struct json *metrics, const struct json *m)
{
	const char *names[(MAX_COLUMNS - 2) / 2];
	size_t n = part_names(metrics, names, sizeof names / sizeof names[0]);
	const char *name = json_get_string(m, "name");

	for (size_t i = 0; name && i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* What stands in no other grid: one line each. nll_position and counts of zero are left to CSV and JSON. */
static void list_grid(const struct json *metrics, struct grid *g)
{
	static const char *const header[] = {"metric", "value", "±", "n", "unit"};
	const char *group, *unit;
	int64_t n, length;
	double value;
	char *row;

	g->n_columns = sizeof header / sizeof header[0];
	g->names = true;
	row = grid_add_row(g);
	for (size_t c = 0; row && c < g->n_columns; c++)
		snprintf(row + c * CELL, CELL, "%s", header[c]);
	for (const struct json *m = json_first(metrics); m; m = json_next(m)) {
		if (json_get_integer(m, "length", &length) || json_get(m, "from") || json_get(m, "frequency") ||
		    in_part_grid(metrics, m))
			continue;
		if (is_count(m) && json_get_number(m, "value", &value) && value == 0)
			continue;
		row = grid_add_row(g);
		if (!row)
			return;
		group = json_get_string(m, "group");
		unit = json_get_string(m, "unit");
		snprintf(row, CELL, "%s%s%s", json_get_string(m, "name"), group ? " " : "", group ? group : "");
		if (is_count(m) && json_get_integer(m, "value", &n)) {
			grid_count(row + CELL, n);
		} else {
			format_value(row + CELL, m);
			format_error(row + 2 * CELL, m);
		}
		if (json_get_integer(m, "n", &n))
			grid_count(row + 3 * CELL, n);
		snprintf(row + 4 * CELL, CELL, "%s", unit ? unit : "");
	}
}

/* -- table and Markdown ------------------------------------------------------------------------ */

static void put_params(const struct json *params, struct buf *out)
{
	bool first = true;

	for (const struct json *p = json_first(params); p; p = json_next(p)) {
		struct json_writer w = JSON_WRITER(out);

		if (json_is_null(p) || !strcmp(json_key(p), "lengths"))
			continue;
		buf_printf(out, "%s%s ", first ? "" : ", ", json_key(p));
		if (json_is_string(p))
			buf_puts(out, json_string(p));
		else
			json_put_value(&w, NULL, p);
		first = false;
	}
}

static const char *text_of(const struct json *object, const char *key)
{
	const char *s = json_get_string(object, key);

	return s ? s : "?";
}

static void put_head(const struct json *result, bool markdown, struct buf *out)
{
	const struct json *model = json_get(result, "model"), *task = json_get(result, "task");
	const struct json *position = json_get(model, "position"), *engine = json_get(result, "engine");
	const struct json *dataset = json_get(result, "dataset");
	const char *bold = markdown ? "**" : "";
	char count[CELL];
	int64_t n;
	double factor;

	buf_printf(out, "%s%s%s (%s", bold, text_of(model, "name"), bold, text_of(position, "type"));
	if (json_get_number(position, "factor", &factor) && factor != 1)
		buf_printf(out, " x %g", factor);
	buf_printf(out, ", %s on %s), task %s on %s", text_of(engine, "dtype"), text_of(engine, "device"),
	           text_of(task, "name"), text_of(dataset, "name"));
	if (json_get(json_get(task, "params"), "lengths") && json_get_integer(dataset, "n_docs", &n)) {
		buf_printf(out, ", %lld document%s", (long long)n, n == 1 ? "" : "s");
	} else if (json_get_integer(dataset, "n_items", &n)) {
		grid_count(count, n);
		buf_printf(out, ", %s item%s", count, n == 1 ? "" : "s");
	}
	buf_puts(out, markdown ? "  \n" : "\n");
	put_params(json_get(task, "params"), out);
	buf_puts(out, "\n\n");
}

static void put_foot(const struct json *result, struct buf *out)
{
	const struct json *engine = json_get(result, "engine");
	double seconds, rate, tflops, mfu;
	char count[CELL];
	int64_t tokens;

	if (json_get_integer(engine, "tokens", &tokens) && json_get_number(engine, "seconds", &seconds) &&
	    json_get_number(engine, "tokens_per_s", &rate)) {
		grid_count(count, tokens);
		buf_printf(out, "\n%s tokens in %.1f s: %.0f tokens/s", count, seconds, rate);
		if (json_get_number(engine, "tflops_per_s", &tflops) && json_get_number(engine, "mfu", &mfu))
			buf_printf(out, ", %.0f TFLOP/s: %.0f %% of the device's peak", tflops, 100 * mfu);
		buf_puts(out, "\n");
	}
	if (json_true(json_get(result, "partial")))
		buf_puts(out, "PARTIAL: some units failed or are not done; the figures are over the rest\n");
}

static err_code write_grids(const struct json *result, bool markdown, struct buf *out, struct err *e)
{
	void (*const make[])(const struct json *, struct grid *) = {curve_grid, use_grid, part_grid, list_grid};
	bool failed = false, drawn = false;

	put_head(result, markdown, out);
	for (size_t i = 0; i < sizeof make / sizeof make[0]; i++) {
		struct grid g = {0};

		make[i](json_get(result, "metrics"), &g);
		if (g.n_rows > 1) {
			buf_puts(out, drawn ? "\n" : "");
			grid_draw(&g, markdown, out);
			drawn = true;
		}
		failed |= g.failed;
		grid_release(&g);
	}
	put_foot(result, out);
	return failed ? err_set(e, ERR_MEMORY, "out of memory for a report") : ERR_OK;
}

err_code report_write(const struct json *result, enum report_format format, struct buf *out, struct err *e)
{
	struct json_writer w = JSON_WRITER(out);

	if (format == REPORT_JSON) {
		json_put_value(&w, NULL, result);
		buf_putc(out, '\n');
	} else if (format == REPORT_CSV) {
		write_csv(result, out);
	} else if (format == REPORT_SVG) {
		return frequency_svg(result, out, e);
	} else if (write_grids(result, format == REPORT_MARKDOWN, out, e)) {
		return e->code;
	}
	return buf_check(out, "report", e);
}

void report_metric(const struct json *metric, struct buf *out)
{
	char value[CELL], error[CELL];
	int64_t length;

	format_value(value, metric);
	format_error(error, metric);
	buf_printf(out, "%s %s", text_of(metric, "name"), value);
	if (strcmp(error, "-") != 0)
		buf_printf(out, " ± %s", error);
	if (json_get_integer(metric, "length", &length))
		buf_printf(out, " at %lld", (long long)length);
}
