/* The connection: opening, locking, migrating, transactions and cached statements.
 *
 * 1. One writer a folder: it holds flock(DIR/lock) until store_close.
 * 2. The schema's version is PRAGMA user_version; migration N moves it from N-1 to N in one transaction.
 * 3. A cached statement is reset and unbound between uses, and finalised by store_close. */
#include "server/store_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/embedded.h"

/* Readers wait for a checkpoint. Nobody else writes; should a tool hold the lock, the core comes back rather
 * than stand still. */
#define READER_BUSY_MS 5000
#define WRITER_BUSY_MS 1000

/* -- errors and statements --------------------------------------------------------------------- */

err_code store_failed(struct store *s, struct err *e, const char *what)
{
	int rc = sqlite3_extended_errcode(s->db);
	err_code code = ERR_IO;

	if ((rc & 0xff) == SQLITE_NOMEM)
		code = ERR_MEMORY;
	if ((rc & 0xff) == SQLITE_CONSTRAINT)
		code = ERR_CONFLICT;
	return err_set(e, code, "database '%s': %s: %s (SQLite %d)", s->path, what, sqlite3_errmsg(s->db), rc);
}

static err_code prepare_cached(struct store *s, const char *sql, sqlite3_stmt **out, struct err *e)
{
	size_t i;

	for (i = 0; i < s->n_cached; i++)
		if (s->cached[i].sql == sql)
			break;
	if (i == s->n_cached) {
		assert(s->n_cached < STORE_MAX_STATEMENTS);
		if (sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) != SQLITE_OK)
			return store_failed(s, e, sql);
		s->cached[s->n_cached].sql = sql;
		s->cached[s->n_cached++].stmt = *out;
	}
	*out = s->cached[i].stmt;
	assert(!sqlite3_stmt_busy(*out));
	return ERR_OK;
}

static err_code bind_values(struct store *s, sqlite3_stmt *stmt, const char *types, va_list ap, struct err *e)
{
	int rc = SQLITE_OK;

	for (int i = 0; types[i] && rc == SQLITE_OK; i++) {
		const char *text;

		switch (types[i]) {
		case 'i':
			rc = sqlite3_bind_int64(stmt, i + 1, va_arg(ap, int64_t));
			break;
		case 'u':
			rc = sqlite3_bind_int64(stmt, i + 1, va_arg(ap, uint32_t));
			break;
		case 'd':
			rc = sqlite3_bind_double(stmt, i + 1, va_arg(ap, double));
			break;
		default:
			assert(types[i] == 's');
			text = va_arg(ap, const char *);
			/* borrowed until store_done: every caller's strings outlive the statement's use */
			rc = text ? sqlite3_bind_text64(stmt, i + 1, text, strlen(text), SQLITE_STATIC, SQLITE_UTF8)
			          : sqlite3_bind_null(stmt, i + 1);
		}
	}
	return rc == SQLITE_OK ? ERR_OK : store_failed(s, e, sqlite3_sql(stmt));
}

static err_code query_values(struct store *s, struct err *e, sqlite3_stmt **out, const char *sql, const char *types,
                             va_list ap)
{
	err_code rc = prepare_cached(s, sql, out, e);

	if (rc)
		return rc;
	rc = bind_values(s, *out, types, ap, e);
	if (rc)
		store_done(*out);
	return rc;
}

err_code store_query(struct store *s, struct err *e, sqlite3_stmt **out, const char *sql, const char *types, ...)
{
	va_list ap;
	err_code rc;

	va_start(ap, types);
	rc = query_values(s, e, out, sql, types, ap);
	va_end(ap);
	return rc;
}

void store_done(sqlite3_stmt *stmt)
{
	if (!stmt)
		return;
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
}

err_code store_step(struct store *s, sqlite3_stmt *stmt, bool *row, struct err *e)
{
	int rc = sqlite3_step(stmt);

	*row = rc == SQLITE_ROW;
	if (rc == SQLITE_ROW || rc == SQLITE_DONE)
		return ERR_OK;
	return store_failed(s, e, sqlite3_sql(stmt));
}

err_code store_run(struct store *s, struct err *e, int *changes, const char *sql, const char *types, ...)
{
	sqlite3_stmt *stmt = NULL;
	bool row;
	va_list ap;
	err_code rc;

	va_start(ap, types);
	rc = query_values(s, e, &stmt, sql, types, ap);
	va_end(ap);
	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc && changes)
		*changes = sqlite3_changes(s->db);
	store_done(stmt);
	return rc;
}

char *store_text(sqlite3_stmt *stmt, int column, bool *failed)
{
	const unsigned char *text = sqlite3_column_text(stmt, column);
	char *copy;

	if (!text) {
		if (sqlite3_column_type(stmt, column) != SQLITE_NULL)
			*failed = true;
		return NULL;
	}
	copy = strdup((const char *)text);
	if (!copy)
		*failed = true;
	return copy;
}

err_code store_ids(struct store *s, const char *sql, int64_t **ids, size_t *n, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	int64_t *list = NULL, *grown;
	size_t count = 0, cap = 0;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, sql, "");

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		grown = mem_grow(list, &cap, count + 1, sizeof *list, e);
		if (!grown) {
			rc = ERR_MEMORY;
			break;
		}
		list = grown;
		list[count++] = sqlite3_column_int64(stmt, 0);
	}
	store_done(stmt);
	if (rc) {
		free(list);
		return rc;
	}
	*ids = list;
	*n = count;
	return ERR_OK;
}

err_code store_refused(struct store *s, const char *sql, const char *what, int64_t id, const char *verb, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, sql, "i", id);

	if (!rc)
		rc = store_step(s, stmt, &row, e);
	if (!rc)
		rc = row ? err_set(e, ERR_CONFLICT, "%s %lld is %s: it cannot be %s", what, (long long)id,
		                   (const char *)sqlite3_column_text(stmt, 0), verb)
		         : err_set(e, ERR_NOT_FOUND, "no %s %lld", what, (long long)id);
	store_done(stmt);
	return rc;
}

err_code store_find_key(struct store *s, const char *sql, const char *what, const char *key, const char *hash,
                        int64_t *id, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, sql, "ss", key, hash);

	*id = 0;
	if (!rc)
		rc = store_step(s, stmt, &row, e);
	if (!rc && row) {
		*id = sqlite3_column_int64(stmt, 0);
		if (!sqlite3_column_int(stmt, 1))
			rc = err_set(e, ERR_CONFLICT, "idempotency key '%s' was used for another request (%s %lld)",
			             key, what, (long long)*id);
	}
	store_done(stmt);
	return rc;
}

/* -- transactions ------------------------------------------------------------------------------ */

err_code store_begin(struct store *s, struct err *e)
{
	err_code rc;

	assert(!s->in_transaction && !s->read_only);
	rc = store_run(s, e, NULL, "BEGIN IMMEDIATE", "");
	s->in_transaction = !rc;
	return rc;
}

static void rollback(struct store *s)
{
	struct err ignored;

	/* SQLite may have rolled back by itself (disk full): then there is nothing left to do */
	if (s->in_transaction && !sqlite3_get_autocommit(s->db))
		store_run(s, &ignored, NULL, "ROLLBACK", "");
	s->in_transaction = false;
}

err_code store_end(struct store *s, err_code rc, struct err *e)
{
	assert(rc || s->in_transaction);
	if (!rc)
		rc = store_run(s, e, NULL, "COMMIT", "");
	if (rc)
		rollback(s);
	s->in_transaction = false;
	return rc;
}

err_code store_savepoint(struct store *s, struct err *e)
{
	assert(s->in_transaction);
	return store_run(s, e, NULL, "SAVEPOINT request", "");
}

err_code store_savepoint_release(struct store *s, struct err *e)
{
	return store_run(s, e, NULL, "RELEASE request", "");
}

err_code store_savepoint_rollback(struct store *s, struct err *e)
{
	err_code rc = store_run(s, e, NULL, "ROLLBACK TO request", "");

	return rc ? rc : store_savepoint_release(s, e);
}

err_code store_checkpoint(struct store *s, struct err *e)
{
	int rc;

	assert(!s->in_transaction);
	rc = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	if (rc == SQLITE_BUSY)
		return ERR_OK; /* a reader is in the way: nothing is lost, the log is only longer */
	return rc == SQLITE_OK ? ERR_OK : store_failed(s, e, "checkpoint");
}

/* -- migrations -------------------------------------------------------------------------------- */

static err_code run_script(struct store *s, const char *sql, const char *what, struct err *e)
{
	return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? ERR_OK : store_failed(s, e, what);
}

static err_code read_version(struct store *s, int64_t *out, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt, "PRAGMA user_version", "");

	if (!rc)
		rc = store_step(s, stmt, &row, e);
	*out = row ? sqlite3_column_int64(stmt, 0) : 0;
	store_done(stmt);
	return rc;
}

static const struct embedded *find_migration(int64_t version)
{
	char prefix[40];

	snprintf(prefix, sizeof prefix, "migrations/%04lld_", (long long)version);
	for (size_t i = 0; i < embedded_count; i++)
		if (!strncmp(embedded_files[i].name, prefix, strlen(prefix)))
			return &embedded_files[i];
	return NULL;
}

static int64_t newest_version(void)
{
	int64_t v = 0;

	while (find_migration(v + 1))
		v++;
	return v;
}

static err_code migrate_one(struct store *s, int64_t version, struct err *e)
{
	const struct embedded *m = find_migration(version);
	char pragma[64];
	err_code rc = store_begin(s, e);

	snprintf(pragma, sizeof pragma, "PRAGMA user_version = %lld", (long long)version);
	if (!rc)
		rc = run_script(s, (const char *)m->data, m->name, e);
	if (!rc)
		rc = run_script(s, pragma, m->name, e);
	return store_end(s, rc, e);
}

static err_code migrate(struct store *s, struct err *e)
{
	int64_t have = 0, newest = newest_version();
	err_code rc = read_version(s, &have, e);

	if (rc)
		return rc;
	if (have > newest)
		return err_set(e, ERR_CONFLICT,
		               "database '%s' has schema version %lld, newer than the %lld that this program knows: "
		               "use the newer fathom",
		               s->path, (long long)have, (long long)newest);
	if (s->read_only && have < newest)
		return err_set(e, ERR_CONFLICT,
		               "database '%s' has schema version %lld, older than %lld: "
		               "the server migrates it when it starts",
		               s->path, (long long)have, (long long)newest);
	while (!rc && have < newest)
		rc = migrate_one(s, ++have, e);
	return rc;
}

/* -- opening ----------------------------------------------------------------------------------- */

/* Takes DIR/lock for as long as the process lives (the kernel drops it, whatever kills us). */
static err_code lock_folder(const char *dir, int *out, struct err *e)
{
	char path[4096], holder[32] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "%s/lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return err_errno(e, "cannot open '%s'", path);
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK) {
			err_errno(e, "cannot lock '%s'", path);
			close(fd);
			return e->code;
		}
		n = pread(fd, holder, sizeof holder - 1, 0);
		holder[n > 0 ? strcspn(holder, "\n") : 0] = 0;
		close(fd);
		return err_set(e, ERR_CONFLICT, "data folder '%s' is in use by another fathom serve (process %s)", dir,
		               *holder ? holder : "unknown");
	}
	/* for the message above only: a failure costs nothing but the number */
	n = snprintf(holder, sizeof holder, "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) || pwrite(fd, holder, (size_t)n, 0) != n)
		errno = 0;
	*out = fd;
	return ERR_OK;
}

static err_code configure(struct store *s, struct err *e)
{
	err_code rc;

	sqlite3_extended_result_codes(s->db, 1);
	sqlite3_busy_timeout(s->db, s->read_only ? READER_BUSY_MS : WRITER_BUSY_MS);
	rc = run_script(s, "PRAGMA foreign_keys = ON;", "configure", e);
	if (!rc && !s->read_only)
		rc = run_script(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;", "configure", e);
	return rc;
}

err_code store_open(const char *dir, bool read_only, struct store **out, struct err *e)
{
	int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	struct store *s = mem_zalloc(1, sizeof *s, e);
	struct buf path = BUF_INIT(4096);
	err_code rc = s ? ERR_OK : ERR_MEMORY;

	if (!s)
		goto out;
	s->lock_fd = -1;
	s->read_only = read_only;
	buf_printf(&path, "%s/fathom.db", dir);
	rc = buf_check(&path, "the data folder's path", e);
	if (rc)
		goto out;
	s->path = buf_steal(&path);
	if (!read_only) {
		if (mkdir(dir, 0777) && errno != EEXIST) {
			rc = err_errno(e, "cannot make the data folder '%s'", dir);
			goto out;
		}
		rc = lock_folder(dir, &s->lock_fd, e);
		if (rc)
			goto out;
	}
	/* NOMUTEX: a connection belongs to one thread */
	if (sqlite3_open_v2(s->path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
		rc = s->db ? store_failed(s, e, "open")
		           : err_set(e, ERR_MEMORY, "database '%s': out of memory", s->path);
		goto out;
	}
	rc = configure(s, e);
	if (!rc)
		rc = migrate(s, e);
	if (rc)
		goto out;
	*out = s;
	s = NULL;
out:
	buf_release(&path);
	store_close(s);
	return rc;
}

const char *store_path(const struct store *s)
{
	return s->path;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	rollback(s);
	for (size_t i = 0; i < s->n_cached; i++)
		sqlite3_finalize(s->cached[i].stmt);
	sqlite3_close(s->db);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	free(s->path);
	free(s);
}
