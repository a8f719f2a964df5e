/* What tests of the store read behind its back. */
#ifndef FATHOM_TESTS_FIXTURE_STORE_H
#define FATHOM_TESTS_FIXTURE_STORE_H

#include <stdint.h>

struct store;

/* The first column of the first row of a query that has one. */
int64_t query_int(struct store *s, const char *sql);

#endif
