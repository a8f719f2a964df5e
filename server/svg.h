/* What the server's drawings share: a document that stands alone, light and dark, and text in it. Plain presentation
 * classes and one media query, because viewers other than browsers know no custom properties. Coordinates are written
 * with two decimals: equal input gives equal bytes. */
#ifndef FATHOM_SERVER_SVG_H
#define FATHOM_SERVER_SVG_H

#include "engine/buf.h"

/* Begins a document: its title, read aloud and drawn from `left` on; its ground; the classes title, quiet, mid, end
 * (texts), back, grid, frame; and the rules `light`, and `dark` where a reader wants it dark. Ends with "</svg>\n",
 * which is the caller's. */
void svg_begin(struct buf *out, double width, double height, double left, const char *title, const char *light,
               const char *dark);

/* Text between tags or in quotes: valid UTF-8, markup escaped, what XML 1.0 does not know replaced; at most max
 * characters. */
void svg_put_text(struct buf *out, const char *s, size_t max);

#endif
