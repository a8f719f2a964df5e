/* Files that are part of the program: migrations and the web page. build/<mode>/embedded.c is
 * written by tests/embed.py from the Makefile's list. */
#ifndef FATHOM_SERVER_EMBEDDED_H
#define FATHOM_SERVER_EMBEDDED_H

#include <stddef.h>

struct embedded {
	const char *name;          /* "migrations/0001_job.sql", "web/chart.js" */
	const unsigned char *data; /* [len], and a NUL at data[len] */
	size_t len;
};

extern const struct embedded embedded_files[]; /* [embedded_count], sorted by name */
extern const size_t embedded_count;

#endif
