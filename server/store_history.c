/* Values over time: a metric of comparable jobs, or a rule's value over the runs of its gate. */
#include <string.h>

#include "server/store_gate.h"
#include "server/store_private.h"

/* Columns: run, job, at_ms, model, fingerprint, commit, branch, value, stderr, outcome. */
static err_code each_point(struct store *s, sqlite3_stmt *stmt, history_fn *f, void *arg, struct err *e)
{
	bool row = false;
	err_code rc = ERR_OK;

	while (!rc && (rc = store_step(s, stmt, &row, e)) == ERR_OK && row) {
		struct history_point p = {
		    .run = sqlite3_column_int64(stmt, 0),
		    .job = sqlite3_column_int64(stmt, 1),
		    .at_ms = sqlite3_column_int64(stmt, 2),
		    .model = (const char *)sqlite3_column_text(stmt, 3),
		    .fingerprint = (const char *)sqlite3_column_text(stmt, 4),
		    .commit = (const char *)sqlite3_column_text(stmt, 5),
		    .branch = (const char *)sqlite3_column_text(stmt, 6),
		    .value = sqlite3_column_double(stmt, 7),
		    .stderr_ = sqlite3_column_type(stmt, 8) == SQLITE_NULL ? -1 : sqlite3_column_double(stmt, 8),
		    .outcome = (const char *)sqlite3_column_text(stmt, 9),
		};

		rc = f(arg, &p, e);
	}
	store_done(stmt);
	return rc;
}

/* Only jobs that measured the same as the newest: parameters, data, version of the task, tokenizer, positions that were
 * asked for, dtype and device. Numbers of different protocols make no line. */
err_code store_history_jobs(struct store *s, const struct history_of_jobs *h, history_fn *f, void *arg, struct err *e)
{
	static const char sql[] =
	    "WITH chosen AS (SELECT * FROM job WHERE state = 'succeeded' AND task = ?1 AND (?2 IS NULL OR dataset = ?2)"
	    "  AND (?3 IS NULL OR tags ->> '$.branch' = ?3)),"
	    " newest AS (SELECT params, pin_dataset, pin_tokenizer, engine, result FROM chosen"
	    "  WHERE EXISTS (SELECT 1 FROM json_each(chosen.result, '$.metrics') AS m WHERE m.value ->> 'name' = ?4"
	    "   AND coalesce(m.value ->> 'length', 0) = ?5 AND m.value ->> 'group' IS ?6)"
	    "  ORDER BY id DESC LIMIT 1),"
	    " points AS (SELECT 0 AS run, chosen.id AS job, finished_ms, model, pin_model, tags ->> '$.commit' AS com,"
	    "  tags ->> '$.branch' AS branch, m.value ->> 'value' AS v, m.value ->> 'stderr' AS se"
	    "  FROM chosen JOIN newest ON chosen.params = newest.params AND chosen.pin_dataset = newest.pin_dataset"
	    "   AND chosen.pin_tokenizer IS newest.pin_tokenizer"
	    "   AND chosen.engine ->> '$.position' IS newest.engine ->> '$.position'"
	    "   AND chosen.result ->> '$.task.version' = newest.result ->> '$.task.version'"
	    "   AND chosen.result ->> '$.engine.dtype' IS newest.result ->> '$.engine.dtype'"
	    "   AND chosen.result ->> '$.engine.device_name' IS newest.result ->> '$.engine.device_name',"
	    "  json_each(chosen.result, '$.metrics') AS m"
	    "  WHERE m.value ->> 'name' = ?4 AND coalesce(m.value ->> 'length', 0) = ?5 AND m.value ->> 'group' IS ?6"
	    "   AND m.value ->> 'from' IS NULL AND m.value ->> 'value' IS NOT NULL"
	    "  ORDER BY finished_ms DESC, chosen.id DESC LIMIT ?7)"
	    " SELECT run, job, finished_ms, model, pin_model, com, branch, v, se, NULL FROM points"
	    " ORDER BY finished_ms, job";
	sqlite3_stmt *stmt = NULL;
	err_code rc = store_query(s, e, &stmt, sql, "ssssisi", h->task, h->dataset, h->branch, h->metric, h->length,
	                          h->group, (int64_t)h->limit);

	return rc ? rc : each_point(s, stmt, f, arg, e);
}

/* What had the rule's name but meant something else makes no line with it, nor does what was measured by another
 * protocol (judge.c) than the newest: on other data, in another dtype. The value of a shape is a ratio, and the
 * verdict has the standard error of its logarithm. */
err_code store_history_rule(struct store *s, const char *gate, const char *rule, const char *branch, int limit,
                            history_fn *f, void *arg, struct err *e)
{
	static const char sql[] =
	    "WITH now AS MATERIALIZED (SELECT w.value AS rule,"
	    "   (SELECT m.value FROM json_each(g.definition, '$.measure') AS m"
	    "    WHERE m.value ->> 'id' = w.value ->> 'measure') AS measure"
	    "  FROM gate AS g, json_each(g.definition, '$.rules') AS w WHERE g.name = ?1 AND w.value ->> 'name' = ?2"
	    "  AND g.version = (SELECT version FROM gate WHERE name = ?1"
	    "   ORDER BY posted_ms DESC, version DESC LIMIT 1)),"
	    " newest AS MATERIALIZED (SELECT m.protocol FROM now, gate_run AS r JOIN gate AS g ON g.name = r.gate"
	    "   AND g.version = r.gate_version JOIN gate_measure AS m ON m.run_id = r.id"
	    "   AND m.measure = now.rule ->> 'measure' AND m.protocol IS NOT NULL"
	    "  WHERE r.gate = ?1 AND r.state = 'done' AND (?3 IS NULL OR r.tags ->> '$.branch' = ?3)"
	    "   AND now.measure = (SELECT d.value FROM json_each(g.definition, '$.measure') AS d"
	    "    WHERE d.value ->> 'id' = m.measure) ORDER BY r.id DESC LIMIT 1),"
	    " points AS (SELECT r.id AS run, coalesce((SELECT m.job_id FROM gate_measure AS m WHERE m.run_id = r.id"
	    "   AND m.measure = v.value ->> 'measure'), 0) AS job, r.finished_ms AS at, r.model, r.fingerprint,"
	    "  r.tags ->> '$.commit' AS com, r.tags ->> '$.branch' AS branch, v.value ->> 'value' AS value,"
	    "  CASE WHEN v.value ->> 'over' IS NOT NULL THEN v.value ->> 'value' * (v.value ->> 'stderr') ELSE"
	    "  (SELECT m.value ->> 'stderr' FROM json_each(r.verdict, '$.results') AS res,"
	    "    json_each(res.value, '$.metrics') AS m WHERE res.value ->> 'measure' = v.value ->> 'measure'"
	    "    AND m.value ->> 'name' = v.value ->> 'metric' AND m.value ->> 'length' IS v.value ->> 'length'"
	    "    AND m.value ->> 'group' IS v.value ->> 'group' LIMIT 1) END AS se, v.value ->> 'verdict' AS outcome"
	    "  FROM now, gate_run AS r JOIN gate AS g ON g.name = r.gate AND g.version = r.gate_version,"
	    "   json_each(r.verdict, '$.rules') AS v"
	    "  WHERE r.gate = ?1 AND r.state = 'done' AND (?3 IS NULL OR r.tags ->> '$.branch' = ?3)"
	    "   AND v.value ->> 'name' = ?2 AND v.value ->> 'value' IS NOT NULL"
	    "   AND v.value ->> 'metric' IS now.rule ->> 'metric' AND v.value ->> 'length' IS now.rule ->> 'length'"
	    "   AND v.value ->> 'over' IS now.rule ->> 'over' AND v.value ->> 'group' IS now.rule ->> 'group'"
	    "   AND now.measure = (SELECT m.value FROM json_each(g.definition, '$.measure') AS m"
	    "    WHERE m.value ->> 'id' = v.value ->> 'measure')"
	    "   AND EXISTS (SELECT 1 FROM newest, gate_measure AS m WHERE m.run_id = r.id"
	    "    AND m.measure = v.value ->> 'measure' AND m.protocol = newest.protocol)"
	    "  ORDER BY r.id DESC LIMIT ?4)"
	    " SELECT run, job, at, model, fingerprint, com, branch, value, se, outcome FROM points ORDER BY run";
	sqlite3_stmt *stmt = NULL;
	err_code rc = store_query(s, e, &stmt, sql, "sssi", gate, rule, branch, (int64_t)limit);

	return rc ? rc : each_point(s, stmt, f, arg, e);
}
