/* How a model uses the frequencies of its positions, as an SVG that stands alone: layer by frequency, a panel for
 * queries and one for keys, in viridis from the panel's lowest mean to its highest, each with its own colour bar. */
#ifndef FATHOM_SERVER_FREQUENCY_SVG_H
#define FATHOM_SERVER_FREQUENCY_SVG_H

#include <stdint.h>

#include "engine/buf.h"
#include "eval/eval.h"

/* Appends the map of a result object. ERR_NOT_FOUND when it has none: it is not of task frequency_use. */
err_code frequency_svg(const struct json *result, struct buf *out, struct err *e);

/* viridis at t in [0, 1] as 0xrrggbb: matplotlib's, within one unit of a channel. */
uint32_t viridis(double t);

#endif
