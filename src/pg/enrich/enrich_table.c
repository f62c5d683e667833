/* pg/enrich/enrich_table.c - the statements on llm.enrich_failures; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_table.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pg/jobs/job_table.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* Run sql, whose first two parameters are the target's. */
static void
run(const LlmEnrichTarget *t, const char *sql, int n_args, Oid *types, Datum *values)
{
	int rc;

	types[0] = OIDOID;
	types[1] = NAMEOID;
	values[0] = ObjectIdGetDatum(t->relid);
	values[1] = NameGetDatum(&t->column);
	rc = SPI_execute_with_args(sql, n_args, types, values, NULL, false, 0);
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(rc));
}

static Datum
column(int row, int number)
{
	bool isnull;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, &isnull);
}

static Datum
key_array(Datum *keys, int n)
{
	return PointerGetDatum(construct_array(keys, n, JSONBOID, -1, false, TYPALIGN_INT));
}

int64
llm_enrich_table_open(const LlmEnrichTarget *t)
{
	LlmJobUser before;
	Oid types[2];
	Datum values[2];
	int64 n;

	llm_job_table_enter(&before);
	run(t,
		"WITH gone AS (DELETE FROM llm.enrich_failures AS f WHERE NOT EXISTS "
		"(SELECT FROM pg_attribute AS a WHERE a.attrelid = f.relation AND a.attname = f.target)) "
		"SELECT count(*) FROM llm.enrich_failures WHERE relation = $1 AND target = $2",
		2, types, values);
	n = DatumGetInt64(column(0, 1));
	llm_job_table_leave(&before);
	return n;
}

void
llm_enrich_table_skip(const LlmEnrichTarget *t, Datum *keys, Datum *xmins, int n, int max_attempts,
					  TimestampTz since, bool *skip)
{
	Oid types[6] = {InvalidOid, InvalidOid, JSONBARRAYOID, XIDARRAYOID, INT4OID, TIMESTAMPTZOID};
	Datum values[6];
	LlmJobUser before;

	values[2] = key_array(keys, n);
	values[3] = PointerGetDatum(
		construct_array(xmins, n, XIDOID, sizeof(TransactionId), true, TYPALIGN_INT));
	values[4] = Int32GetDatum(max_attempts);
	values[5] = TimestampTzGetDatum(since);
	memset(skip, 0, sizeof(bool) * n);
	llm_job_table_enter(&before);
	run(t,
		"SELECT r.i FROM unnest($3, $4) WITH ORDINALITY AS r (key, row_xmin, i) "
		"JOIN llm.enrich_failures AS f ON f.key = r.key AND f.row_xmin = r.row_xmin "
		"WHERE f.relation = $1 AND f.target = $2 AND (f.attempts >= $5 OR f.failed >= $6)",
		6, types, values);
	for (uint64 i = 0; i < SPI_processed; i++)
		skip[DatumGetInt64(column((int) i, 1)) - 1] = true;
	llm_job_table_leave(&before);
}

int
llm_enrich_table_note(const LlmEnrichTarget *t, Datum key, TransactionId xmin, int sqlstate,
					  const char *message)
{
	Oid types[7] = {InvalidOid, InvalidOid, JSONBOID, XIDOID, OIDOID, TEXTOID, TEXTOID};
	Datum values[7];
	LlmJobUser before;
	int attempts;

	values[2] = key;
	values[3] = TransactionIdGetDatum(xmin);
	values[4] = ObjectIdGetDatum(GetUserId());
	values[5] = CStringGetTextDatum(unpack_sql_state(sqlstate));
	values[6] = CStringGetTextDatum(message);
	llm_job_table_enter(&before);
	run(t,
		"INSERT INTO llm.enrich_failures AS f "
		"(relation, target, key, row_xmin, role, sqlstate, message, attempts, failed) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7, 1, clock_timestamp()) "
		"ON CONFLICT (relation, target, key) DO UPDATE SET row_xmin = $4, role = $5, "
		"sqlstate = $6, message = $7, failed = excluded.failed, "
		"attempts = CASE WHEN f.row_xmin = $4 THEN f.attempts + 1 ELSE 1 END "
		"RETURNING attempts",
		7, types, values);
	attempts = DatumGetInt32(column(0, 1));
	llm_job_table_leave(&before);
	return attempts;
}

void
llm_enrich_table_clear(const LlmEnrichTarget *t, Datum *keys, int n)
{
	Oid types[3] = {InvalidOid, InvalidOid, JSONBARRAYOID};
	Datum values[3];
	LlmJobUser before;

	if (n == 0)
		return;
	values[2] = key_array(keys, n);
	llm_job_table_enter(&before);
	run(t,
		"DELETE FROM llm.enrich_failures "
		"WHERE relation = $1 AND target = $2 AND key = ANY ($3)",
		3, types, values);
	llm_job_table_leave(&before);
}
