/* What server/store_*.c share: the connection and its statements. Nobody else includes this, or writes SQL. */
#ifndef FATHOM_SERVER_STORE_PRIVATE_H
#define FATHOM_SERVER_STORE_PRIVATE_H

#include <sqlite3.h>

#include "server/store.h"
#include "server/store_write.h"

#define STORE_MAX_STATEMENTS 128

struct store {
	sqlite3 *db;
	char *path;  /* owned: DIR/fathom.db */
	int lock_fd; /* -1: a reader */
	bool read_only;
	bool in_transaction;
	size_t n_cached;
	struct {
		const char *sql; /* borrowed: a literal, found again by its address */
		sqlite3_stmt *stmt;
	} cached[STORE_MAX_STATEMENTS];
};

/* Sets the error from the connection's last one: "database 'PATH': what: why". ERR_MEMORY,
 * ERR_CONFLICT (a constraint), else ERR_IO. Returns its code. */
err_code store_failed(struct store *s, struct err *e, const char *what);

/* The statement of a literal, prepared once and kept; values bound by `types`, one letter each: i int64_t, u uint32_t
 * (as int), d double, s const char * (NULL: null). Give it back with store_done. */
err_code store_query(struct store *s, struct err *e, sqlite3_stmt **out, const char *sql, const char *types, ...);
void store_done(sqlite3_stmt *stmt);

/* The next row: *row false at the end. */
err_code store_step(struct store *s, sqlite3_stmt *stmt, bool *row, struct err *e);

/* Runs a statement without rows; *changes (may be NULL) is how many rows it touched. */
err_code store_run(struct store *s, struct err *e, int *changes, const char *sql, const char *types, ...);

/* The first column of every row of a literal without parameters; *ids is the caller's to free, NULL without rows. */
err_code store_ids(struct store *s, const char *sql, int64_t **ids, size_t *n, struct err *e);

/* Why an UPDATE of row `id` touched nothing, where sql, a literal, selects its state: ERR_NOT_FOUND "no job 7", or
 * ERR_CONFLICT "job 7 is queued: it cannot be <verb>". what: "job". */
err_code store_refused(struct store *s, const char *sql, const char *what, int64_t id, const char *verb, struct err *e);

/* The row of an idempotency key, where sql, a literal, selects (id, request_hash IS ?2) by idempotency_key = ?1: *id 0
 * when there is none. ERR_CONFLICT when the key was used for a request of another hash. what: "job". */
err_code store_find_key(struct store *s, const char *sql, const char *what, const char *key, const char *hash,
                        int64_t *id, struct err *e);

/* A copy of a text column; NULL stays NULL. Fails sticky: on want of memory *failed is set. */
char *store_text(sqlite3_stmt *stmt, int column, bool *failed);

#endif
