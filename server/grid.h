/* Grids of cells: what tables on a terminal and in Markdown are drawn from, by every report alike. */
#ifndef FATHOM_SERVER_GRID_H
#define FATHOM_SERVER_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/buf.h"

#define GRID_CELL    100 /* bytes of a cell, with its NUL */
#define GRID_COLUMNS 14  /* at most */

/* The first row is the header. Numbers stand right, except in the first column of a grid of names. */
struct grid {
	char (*cells)[GRID_CELL]; /* [n_rows, n_columns] owned */
	size_t n_columns, n_rows, cap_rows;
	bool failed, names;
};

/* A row of empty cells: [n_columns][GRID_CELL], borrowed until the next. NULL: out of memory, and g->failed. */
char *grid_add_row(struct grid *g);
void grid_draw(const struct grid *g, bool markdown, struct buf *out);
void grid_release(struct grid *g);

/* Five significant digits or so, and never an exponent before 1e9. */
void grid_number(char cell[GRID_CELL], double v);
/* 1234567 -> 1,234,567 */
void grid_count(char cell[GRID_CELL], int64_t v);

#endif
