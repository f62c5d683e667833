/* pg/enrich/enrich_table.c - the statements on llm.enrich_failures; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_table.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pg/jobs/job_table.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Run q, whose first two parameters are the target's, between enter and leave. */
static int
run(const LlmEnrichTarget *t, LlmOwnedStatement *q, Datum *values)
{
	values[0] = ObjectIdGetDatum(t->relid);
	values[1] = NameGetDatum(&t->column);
	return llm_owned_run(q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

int64
llm_enrich_table_open(const LlmEnrichTarget *t)
{
	static LlmOwnedStatement q = {
		"WITH gone AS (DELETE FROM llm.enrich_failures AS f WHERE NOT EXISTS "
		"(SELECT FROM pg_attribute AS a WHERE a.attrelid = f.relation AND a.attname = f.target)) "
		"SELECT count(*) FROM llm.enrich_failures WHERE relation = $1 AND target = $2",
		2,
		{OIDOID, NAMEOID}};
	LlmOwnedUser before;
	Datum values[2];
	int64 n;

	llm_job_table_enter(&before);
	(void) run(t, &q, values);
	n = DatumGetInt64(llm_owned_get(0, 1));
	llm_owned_leave(&before);
	return n;
}

void
llm_enrich_table_skip(const LlmEnrichTarget *t, Datum *keys, Datum *xmins, int n, int max_attempts,
					  TimestampTz since, bool *skip)
{
	static LlmOwnedStatement q = {
		"SELECT r.i FROM unnest($3, $4) WITH ORDINALITY AS r (key, row_xmin, i) "
		"JOIN llm.enrich_failures AS f ON f.hash = jsonb_hash_extended(r.key, 0) "
		"AND f.key = r.key AND f.row_xmin = r.row_xmin "
		"WHERE f.relation = $1 AND f.target = $2 AND (f.attempts >= $5 OR f.failed >= $6)",
		6,
		{OIDOID, NAMEOID, JSONBARRAYOID, XIDARRAYOID, INT4OID, TIMESTAMPTZOID}};
	Datum values[] = {0,
					  0,
					  llm_owned_array(keys, n, JSONBOID),
					  llm_owned_array(xmins, n, XIDOID),
					  Int32GetDatum(max_attempts),
					  TimestampTzGetDatum(since)};
	LlmOwnedUser before;
	int n_skipped;

	memset(skip, 0, sizeof(bool) * n);
	llm_job_table_enter(&before);
	n_skipped = run(t, &q, values);
	for (int i = 0; i < n_skipped; i++)
		skip[DatumGetInt64(llm_owned_get(i, 1)) - 1] = true;
	llm_owned_leave(&before);
}

int
llm_enrich_table_note(const LlmEnrichTarget *t, Datum key, TransactionId xmin, int sqlstate,
					  const char *message)
{
	static LlmOwnedStatement q = {
		"INSERT INTO llm.enrich_failures AS f "
		"(relation, target, hash, key, row_xmin, role, sqlstate, message, attempts, failed) "
		"VALUES ($1, $2, jsonb_hash_extended($3, 0), $3, $4, $5, $6, $7, 1, clock_timestamp()) "
		"ON CONFLICT (relation, target, hash) DO UPDATE SET key = $3, row_xmin = $4, role = $5, "
		"sqlstate = $6, message = $7, failed = excluded.failed, "
		"attempts = CASE WHEN f.row_xmin = $4 THEN f.attempts + 1 ELSE 1 END "
		"RETURNING attempts",
		7,
		{OIDOID, NAMEOID, JSONBOID, XIDOID, OIDOID, TEXTOID, TEXTOID}};
	Datum values[] = {0,
					  0,
					  key,
					  TransactionIdGetDatum(xmin),
					  ObjectIdGetDatum(GetUserId()),
					  CStringGetTextDatum(unpack_sql_state(sqlstate)),
					  CStringGetTextDatum(message)};
	LlmOwnedUser before;
	int attempts;

	llm_job_table_enter(&before);
	(void) run(t, &q, values);
	attempts = DatumGetInt32(llm_owned_get(0, 1));
	llm_owned_leave(&before);
	return attempts;
}

void
llm_enrich_table_clear(const LlmEnrichTarget *t, Datum *keys, int n)
{
	static LlmOwnedStatement q = {"DELETE FROM llm.enrich_failures AS f USING unnest($3) AS k "
								  "WHERE f.relation = $1 AND f.target = $2 "
								  "AND f.hash = jsonb_hash_extended(k, 0) AND f.key = k",
								  3,
								  {OIDOID, NAMEOID, JSONBARRAYOID}};
	Datum values[] = {0, 0, llm_owned_array(keys, n, JSONBOID)};
	LlmOwnedUser before;

	if (n == 0)
		return;
	llm_job_table_enter(&before);
	(void) run(t, &q, values);
	llm_owned_leave(&before);
}
