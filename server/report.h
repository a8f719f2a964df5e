/* Reports: a result object (design: `fathom run --format json`) as a table for people, Markdown, CSV or JSON. */
#ifndef FATHOM_SERVER_REPORT_H
#define FATHOM_SERVER_REPORT_H

#include <stdbool.h>

#include "engine/json.h"

enum report_format { REPORT_TABLE, REPORT_JSON, REPORT_CSV, REPORT_MARKDOWN, REPORT_SVG };

/* "table", "json", "csv", "markdown", "svg". */
bool report_format_from_name(const char *name, enum report_format *out);

/* Appends the report. CSV has one metric a line, in full precision, with what tells one result from another beside it:
 * model, position, task, dataset, protocol, dtype, metric, group, length, from, to, value, stderr, n, unit, reason. A
 * map of frequencies has, from group on: part, layer, frequency, theta, value, n, unit. Only such a map has an SVG
 * (frequency_svg.h). */
err_code report_write(const struct json *result, enum report_format format, struct buf *out, struct err *e);

/* Appends one metric in words: "acc 0.3256 ± 0.0065", "ppl_token 19.520 ± 0.5300 at 4096". */
void report_metric(const struct json *metric, struct buf *out);

#endif
