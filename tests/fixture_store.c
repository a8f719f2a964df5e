/* See fixture_store.h. */
#include <sqlite3.h>

#include "server/store_private.h"
#include "tests/fixture.h"
#include "tests/fixture_store.h"

int64_t query_int(struct store *s, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	int64_t v;

	ck_assert_int_eq(sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
	v = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return v;
}
