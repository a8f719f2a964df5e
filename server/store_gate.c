/* Gates: named definitions, versioned by content. What is in one is eval/'s to know: here it is JSON text. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/clock.h"
#include "server/store_gate.h"
#include "server/store_private.h"

void gate_row_release(struct gate_row *g)
{
	free(g->name);
	free(g->definition);
	memset(g, 0, sizeof *g);
}

err_code store_gate_get(struct store *s, const char *name, int64_t version, struct gate_row *out, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false, failed = false;
	struct gate_row g = {0};
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT name, definition, version, created_ms, posted_ms FROM gate"
	                          " WHERE name = ?1 AND (?2 = 0 OR version = ?2)"
	                          " ORDER BY posted_ms DESC, version DESC LIMIT 1",
	                          "si", name, version);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	if (!rc && !row && version)
		rc = err_set(e, ERR_NOT_FOUND, "no version %lld of gate '%.200s'", (long long)version, name);
	else if (!rc && !row)
		rc = err_set(e, ERR_NOT_FOUND, "no gate '%.200s'", name);
	if (!rc)
		g = (struct gate_row){.name = store_text(stmt, 0, &failed),
		                      .definition = store_text(stmt, 1, &failed),
		                      .version = sqlite3_column_int64(stmt, 2),
		                      .created_ms = sqlite3_column_int64(stmt, 3),
		                      .posted_ms = sqlite3_column_int64(stmt, 4)};
	store_done(stmt);
	if (failed)
		rc = err_set(e, ERR_MEMORY, "out of memory reading gate '%.200s'", name);
	if (rc)
		gate_row_release(&g);
	else
		*out = g;
	return rc;
}

err_code store_gate_each(struct store *s, const char *name, int limit, gate_fn *f, void *arg, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false, failed = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT name, definition, version, created_ms, posted_ms,"
	                          " (SELECT coalesce(max(id), 0) FROM gate_run WHERE gate = g.name) FROM gate AS g"
	                          " WHERE CASE WHEN ?1 IS NULL THEN version = (SELECT version FROM gate AS n"
	                          " WHERE n.name = g.name ORDER BY posted_ms DESC, version DESC LIMIT 1)"
	                          " ELSE name = ?1 END ORDER BY name, version DESC LIMIT ?2",
	                          "si", name, (int64_t)limit);

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		struct gate_row g = {store_text(stmt, 0, &failed), store_text(stmt, 1, &failed),
		                     sqlite3_column_int64(stmt, 2), sqlite3_column_int64(stmt, 3),
		                     sqlite3_column_int64(stmt, 4)};

		if (failed)
			rc = err_set(e, ERR_MEMORY, "out of memory listing gates");
		else
			f(arg, &g, sqlite3_column_int64(stmt, 5));
		gate_row_release(&g);
	}
	store_done(stmt);
	return rc;
}

/* The version of this definition; 0: it is new. *newest: of all. */
static err_code find_definition(struct store *s, const char *name, const char *definition, int64_t *version,
                                int64_t *newest, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false;
	err_code rc = store_query(s, e, &stmt,
	                          "SELECT coalesce(max(version) FILTER (WHERE definition = ?2), 0),"
	                          " coalesce(max(version), 0) FROM gate WHERE name = ?1",
	                          "ss", name, definition);

	if (rc)
		return rc;
	rc = store_step(s, stmt, &row, e);
	*version = row ? sqlite3_column_int64(stmt, 0) : 0;
	*newest = row ? sqlite3_column_int64(stmt, 1) : 0;
	store_done(stmt);
	return rc;
}

err_code store_gate_put(struct store *s, const char *name, const char *definition, int64_t *version, bool *existed,
                        struct err *e)
{
	int64_t now = clock_unix_ms(), newest = 0;
	err_code rc = find_definition(s, name, definition, version, &newest, e);

	assert(s->in_transaction);
	if (rc)
		return rc;
	*existed = *version != 0;
	if (*existed) /* later than any other, also within a millisecond and after the clock was set back */
		return store_run(s, e, NULL,
		                 "UPDATE gate SET posted_ms = max(?3, (SELECT max(posted_ms) + 1 FROM gate"
		                 " WHERE name = ?1 AND version <> ?2)) WHERE name = ?1 AND version = ?2 AND EXISTS"
		                 " (SELECT 1 FROM gate WHERE name = ?1 AND version <> ?2)",
		                 "sii", name, *version, now);
	*version = newest + 1;
	return store_run(s, e, NULL,
	                 "INSERT INTO gate (name, version, created_ms, posted_ms, definition) VALUES (?1, ?2, ?3,"
	                 " max(?3, coalesce((SELECT max(posted_ms) + 1 FROM gate WHERE name = ?1), 0)), ?4)",
	                 "siis", name, *version, now, definition);
}
