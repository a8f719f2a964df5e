/* Grids of cells: see grid.h. */
#include "server/grid.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/utf8.h"

char *grid_add_row(struct grid *g)
{
	struct err ignored;
	char(*p)[GRID_CELL] = mem_grow(g->cells, &g->cap_rows, g->n_rows + 1, g->n_columns * sizeof *p, &ignored);

	if (!p) {
		g->failed = true;
		return NULL;
	}
	g->cells = p;
	memset(g->cells[g->n_rows * g->n_columns], 0, g->n_columns * GRID_CELL);
	return g->cells[g->n_rows++ * g->n_columns];
}

static void put_padded(struct buf *out, const char *s, size_t to, bool right)
{
	size_t pad = to > utf8_count(s) ? to - utf8_count(s) : 0;

	if (right)
		buf_printf(out, "%*s", (int)pad, "");
	buf_puts(out, s);
	if (!right)
		buf_printf(out, "%*s", (int)pad, "");
}

void grid_draw(const struct grid *g, bool markdown, struct buf *out)
{
	size_t widths[GRID_COLUMNS] = {0};

	for (size_t i = 0; i < g->n_rows * g->n_columns; i++)
		if (utf8_count(g->cells[i]) > widths[i % g->n_columns])
			widths[i % g->n_columns] = utf8_count(g->cells[i]);
	for (size_t r = 0; r < g->n_rows; r++) {
		for (size_t c = 0; c < g->n_columns; c++) {
			buf_puts(out, markdown ? "| " : c ? "  " : "");
			put_padded(out, g->cells[r * g->n_columns + c], widths[c], c || !g->names);
			buf_puts(out, markdown ? " " : "");
		}
		buf_puts(out, markdown ? "|\n" : "\n");
		for (size_t c = 0; markdown && !r && c < g->n_columns; c++)
			buf_printf(out, "|%s", c || !g->names ? "--:" : ":--");
		buf_puts(out, markdown && !r ? "|\n" : "");
	}
}

void grid_number(char cell[GRID_CELL], double v)
{
	double a = fabs(v);
	int decimals = a >= 10000 ? 0 : a >= 1000 ? 1 : a >= 100 ? 2 : a >= 10 ? 3 : 4;

	if (a >= 1e9)
		snprintf(cell, GRID_CELL, "%.4e", v);
	else
		snprintf(cell, GRID_CELL, "%.*f", decimals, v);
}

void grid_count(char cell[GRID_CELL], int64_t v)
{
	char digits[24];
	int n = snprintf(digits, sizeof digits, "%lld", (long long)v);

	for (int i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0 && digits[i - 1] != '-')
			*cell++ = ',';
		*cell++ = digits[i];
	}
	*cell = '\0';
}

void grid_release(struct grid *g)
{
	free(g->cells);
	g->cells = NULL;
}
