/* Gate reports: a verdict object (eval/gate.h) as a table for people, JSON, JUnit XML for CI servers, Markdown for a
 * comment on a change; and a badge.
 *
 * Whatever the verdict lacks is left out, so that one made by a client ("nothing could be measured") is shown as well.
 * A rule that is inconclusive is a failure of type "inconclusive" in JUnit, which knows no such thing: it is not
 * passed. */
#ifndef FATHOM_SERVER_GATE_REPORT_H
#define FATHOM_SERVER_GATE_REPORT_H

#include "engine/json.h"

enum gate_report_format { GATE_REPORT_TABLE, GATE_REPORT_JSON, GATE_REPORT_JUNIT, GATE_REPORT_MARKDOWN };

err_code gate_report_write(const struct json *verdict, enum gate_report_format format, struct buf *out, struct err *e);

/* Appends an SVG of one line: the label (a gate's name), and the verdict: "pass", "fail", "inconclusive" or "error";
 * NULL: "unknown". */
void gate_badge_write(const char *label, const char *verdict, struct buf *out);

#endif
