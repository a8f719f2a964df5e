/* A small reader of tags, in the place of an XML library, for the suites of drawings. */
#ifndef FATHOM_TESTS_FIXTURE_SVG_H
#define FATHOM_TESTS_FIXTURE_SVG_H

#include <stddef.h>

/* Tags nest and close, and no markup character stands bare in text or attributes; else the test fails. */
void svg_well_formed(const char *svg);

size_t svg_count(const char *svg, const char *what); /* how often it stands there */

#endif
