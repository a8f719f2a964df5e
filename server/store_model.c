/* Described models: a cache of JSON texts by path, valid while stat_key is the same. */
#include "server/store_private.h"

err_code store_model_get(struct store *s, const char *path, const char *stat_key, char **out, struct err *e)
{
	sqlite3_stmt *stmt = NULL;
	bool row = false, failed = false;
	err_code rc = store_query(s, e, &stmt, "SELECT description FROM model WHERE path = ?1 AND stat_key = ?2", "ss",
	                          path, stat_key);

	if (rc)
		return rc;
	*out = NULL;
	rc = store_step(s, stmt, &row, e);
	if (!rc && row)
		*out = store_text(stmt, 0, &failed);
	store_done(stmt);
	if (failed)
		rc = err_set(e, ERR_MEMORY, "out of memory reading the description of '%s'", path);
	return rc;
}

err_code store_model_put(struct store *s, const char *path, const char *stat_key, const char *description,
                         struct err *e)
{
	return store_run(s, e, NULL,
	                 "INSERT INTO model (path, stat_key, description) VALUES (?1, ?2, ?3)"
	                 " ON CONFLICT (path) DO UPDATE SET stat_key = excluded.stat_key,"
	                 " description = excluded.description",
	                 "sss", path, stat_key, description);
}
