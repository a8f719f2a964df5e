/* Refusals: RFC 9457 problem details, {"type","title","status","detail"} and what points at the cause: "pointer" (a
 * JSON pointer into the request's body) or "parameter" (of the query). */
#ifndef FATHOM_SERVER_PROBLEM_H
#define FATHOM_SERVER_PROBLEM_H

#include "server/http.h"

/* Sends a problem about the request as a whole. */
void problem_send(struct http_request *r, unsigned status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* 422 that names a query parameter. */
void problem_query(struct http_request *r, const char *parameter, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends an error of the layers below: the status follows from its code, and a pointer makes it 422. */
void problem_error(struct http_request *r, const struct err *e);

#endif
