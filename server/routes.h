/* The table of routes: what the router matches against, and what /openapi.json is made from. */
#ifndef FATHOM_SERVER_ROUTES_H
#define FATHOM_SERVER_ROUTES_H

#include <stddef.h>

#include "server/http.h"

struct route {
	const char *method, *path; /* {id}: a number; {name}: what is left, other names: up to a slash; decoded */
	const char *query;         /* the parameters that it knows, by spaces */
	http_handler *handler;
};

const struct route *routes_at(size_t i); /* NULL past the last */

#endif
