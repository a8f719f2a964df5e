/* A metric against length as an SVG that stands alone: log-log axes, error bars, a legend, light and dark. */
#ifndef FATHOM_SERVER_CURVE_SVG_H
#define FATHOM_SERVER_CURVE_SVG_H

#include "engine/buf.h"
#include "eval/eval.h"

struct curve_series {
	const char *label;                /* borrowed */
	const struct curve_point *points; /* [n] borrowed, ascending lengths */
	size_t n;
};

struct curve_chart {
	const char *title, *y_label;       /* borrowed */
	const struct curve_series *series; /* [n_series] borrowed; colour and marker follow from the index */
	size_t n_series;
};

/* Appends the document. Points that a log axis cannot show (length or value not above 0) are left out. */
void curve_svg(const struct curve_chart *c, struct buf *out);

#endif
