/* What the suites share: where data lies, temporary folders, and checks on err_code. */
#ifndef FATHOM_TESTS_FIXTURE_H
#define FATHOM_TESTS_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

/* Fails the test with the error's own message. */
#define ck_ok(call, e)                                                                                                 \
	do {                                                                                                           \
		err_code rc_ = (call);                                                                                 \
		ck_assert_msg(rc_ == ERR_OK, #call ": %s: %s", err_name(rc_), (e)->msg);                               \
	} while (0)

/* Expects this code and that the message holds `words`. */
#define ck_err(call, want, words, e)                                                                                   \
	do {                                                                                                           \
		err_code rc_ = (call);                                                                                 \
		ck_assert_msg(rc_ == (want), #call " gave %s, not %s", err_name(rc_), err_name(want));                 \
		ck_assert_msg(strstr((e)->msg, (words)) != NULL, "'%s' not in: %s", (words), (e)->msg);                \
	} while (0)

/* A path below the optional folder of shared models and data (FATHOM_SHARED, else ../shared beside the checkout);
 * NULL when it is not there: the caller says so with fixture_skip and returns. The path stays as it is
 * to the end of the program, whatever is asked for next. */
const char *fixture_shared(const char *path);

/* As fixture_shared, below the unpacked data folder (FATHOM_DATA, else build/data). */
const char *fixture_data(const char *path);

/* The very bits: == would take -0 for 0, and refuse a NaN. */
bool same_bits(const void *a, const void *b, size_t len);

/* Prints "SKIP <test>: <why>" on stderr. */
void fixture_skip(const char *test, const char *why);

/* A new empty folder under $TMPDIR, removed when the (forked) test process ends. Static storage. */
const char *fixture_tmpdir(void);

/* Writes a file below a folder. */
void fixture_write(const char *dir, const char *name, const void *data, size_t len);

#endif
