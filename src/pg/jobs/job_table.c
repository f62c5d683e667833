/* pg/jobs/job_table.c - the statements on llm.job_queue; see the header. */
#include "postgres.h"

#include "pg/jobs/job_table.h"

#include "catalog/pg_type.h"
#include "pg/declared.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define EXPIRE_ROWS "1000" /* removed by one transaction */

#define QUEUE "job_queue"

void
llm_job_table_enter(LlmOwnedUser *before)
{
	llm_declared_check_tables();
	llm_owned_enter(QUEUE, before);
}

int
llm_job_table_run(LlmOwnedStatement *q, Datum *values, const char *nulls, LlmOwnedSight sight)
{
	LlmOwnedUser before;
	int n;

	llm_job_table_enter(&before);
	n = llm_owned_run(q, values, nulls, sight);
	llm_owned_leave(&before);
	return n;
}

LlmJobTableLock
llm_job_table_lock(void)
{
	static Oid first = InvalidOid; /* plans are made for that one */
	Oid relid = llm_owned_table(QUEUE);

	if (!OidIsValid(relid) || (OidIsValid(first) && relid != first))
		return LLM_JOB_TABLE_GONE;
	first = relid;
	if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return LLM_JOB_TABLE_BUSY;
	/* It may have gone before the lock came. */
	AcceptInvalidationMessages();
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		return LLM_JOB_TABLE_GONE;
	return llm_declared_strange_table() == NULL ? LLM_JOB_TABLE_LOCKED : LLM_JOB_TABLE_STRANGE;
}

/* Text of a column in cxt, NULL when it is null. */
static char *
column_text(int row, int number, MemoryContext cxt)
{
	bool isnull;
	Datum value = llm_owned_value(row, number, &isnull);

	return isnull ? NULL : MemoryContextStrdup(cxt, TextDatumGetCString(value));
}

static Datum
copy_varlena(Datum value, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Datum copy = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));

	MemoryContextSwitchTo(old);
	return copy;
}

/* ---- everybody's ---- */

/* Columns of the arguments, in the order of LLM_ARG_*; response_format and on_error have none. */
static const struct
{
	int arg;
	Oid type;
} arguments[] = {
	{0, TEXTOID},
	{LLM_ARG_MODEL, TEXTOID},
	{LLM_ARG_SYSTEM_PROMPT, TEXTOID},
	{LLM_ARG_MAX_TOKENS, INT4OID},
	{LLM_ARG_TEMPERATURE, FLOAT8OID},
	{LLM_ARG_SEED, INT8OID},
	{LLM_ARG_STOP, TEXTARRAYOID},
	{LLM_ARG_OPTIONS, JSONBOID},
};
#define ARGUMENT_COLUMNS                                                                           \
	"prompt, model, system_prompt, max_tokens, temperature, seed, stop, options"

int64
llm_job_table_insert(const LlmJobOrder *order)
{
	static LlmOwnedStatement q = {
		"INSERT INTO llm.job_queue (id, state, submitted, owner, rank, due, "
		"max_attempts, " ARGUMENT_COLUMNS ") VALUES "
		"(nextval('llm.job_ids'), 'queued', clock_timestamp(), $1, $2, $3, $4, $5, "
		"$6, $7, $8, $9, $10, $11, $12) RETURNING id",
		12,
		{OIDOID, INT4OID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID, TEXTOID, INT4OID, FLOAT8OID,
		 INT8OID, TEXTARRAYOID, JSONBOID}};
	Datum values[LLM_OWNED_ARGS_MAX] = {ObjectIdGetDatum(order->owner), Int32GetDatum(order->rank),
										TimestampTzGetDatum(order->due),
										Int32GetDatum(order->max_attempts)};
	char nulls[LLM_OWNED_ARGS_MAX] = "    ";

	for (Size i = 0; i < lengthof(arguments); i++)
	{
		values[4 + i] = order->args[arguments[i].arg].value;
		nulls[4 + i] = order->args[arguments[i].arg].isnull ? 'n' : ' ';
	}
	(void) llm_owned_run(&q, values, nulls, LLM_OWNED_OF_TRANSACTION);
	return DatumGetInt64(llm_owned_get(0, 1));
}

static bool
is_expired(int64 id)
{
	static LlmOwnedStatement q = {"SELECT last_value FROM llm.job_expired", 0, {0}};

	(void) llm_owned_run(&q, NULL, NULL, LLM_OWNED_OF_NOW);
	return id <= DatumGetInt64(llm_owned_get(0, 1));
}

bool
llm_job_table_look(int64 id, bool payload, LlmJobRow *row, bool *expired)
{
	static LlmOwnedStatement brief = {"SELECT owner, state, finished, xmin, model, message "
									  "FROM llm.job_queue WHERE id = $1",
									  1,
									  {INT8OID}};
	static LlmOwnedStatement whole = {"SELECT owner, state, finished, xmin, model, message, result "
									  "FROM llm.job_queue WHERE id = $1",
									  1,
									  {INT8OID}};
	MemoryContext cxt = CurrentMemoryContext;
	LlmOwnedUser before;
	Datum key = Int64GetDatum(id);
	Datum value;
	bool isnull;
	bool found;

	memset(row, 0, sizeof(*row));
	llm_job_table_enter(&before);
	found = llm_owned_run(payload ? &whole : &brief, &key, NULL, LLM_OWNED_OF_NOW) > 0;
	if (found)
	{
		row->owner = DatumGetObjectId(llm_owned_get(0, 1));
		strlcpy(row->state, TextDatumGetCString(llm_owned_get(0, 2)), sizeof(row->state));
		value = llm_owned_value(0, 3, &isnull);
		row->finished = isnull ? 0 : DatumGetTimestampTz(value);
		row->xmin = DatumGetTransactionId(llm_owned_get(0, 4));
		row->model = column_text(0, 5, cxt);
		row->message = column_text(0, 6, cxt);
		value = payload ? llm_owned_value(0, 7, &isnull) : (Datum) 0;
		row->result = payload && !isnull ? copy_varlena(value, cxt) : (Datum) 0;
	}
	*expired = !found && id > 0 && is_expired(id);
	llm_owned_leave(&before);
	return found;
}

bool
llm_job_table_cancel(int64 id)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.job_queue SET state = 'cancelled', finished = clock_timestamp() "
		"WHERE id = $1 AND finished IS NULL",
		1,
		{INT8OID}};
	Datum key = Int64GetDatum(id);

	return llm_job_table_run(&q, &key, NULL, LLM_OWNED_OF_NOW_WRITE) > 0;
}

/* ---- the launcher's ---- */

LlmJobLane *
llm_job_table_select_lanes(LlmOwnedStatement *q, int *n)
{
	MemoryContext cxt = CurrentMemoryContext;
	LlmOwnedUser before;
	LlmJobLane *lanes;

	llm_job_table_enter(&before);
	*n = llm_owned_run(q, NULL, NULL, LLM_OWNED_OF_TRANSACTION);
	lanes = MemoryContextAlloc(cxt, sizeof(LlmJobLane) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		bool isnull;
		Datum due = llm_owned_value(i, 3, &isnull);

		lanes[i].owner = DatumGetObjectId(llm_owned_get(i, 1));
		lanes[i].task = DatumGetInt64(llm_owned_get(i, 2));
		lanes[i].due = isnull ? DT_NOEND : DatumGetTimestampTz(due);
	}
	llm_owned_leave(&before);
	return lanes;
}

LlmJobLane *
llm_job_table_lanes(int *n)
{
	/* Jumps from one (owner, rank, model) to the next through the index: the number of jobs plays no
	 * part. */
	static LlmOwnedStatement q = {
		"WITH RECURSIVE lanes AS ("
		"(SELECT owner, rank, model FROM llm.job_queue WHERE finished IS NULL "
		"ORDER BY owner, rank, model LIMIT 1) "
		"UNION ALL SELECT n.owner, n.rank, n.model FROM lanes AS l, LATERAL ("
		"SELECT owner, rank, model FROM llm.job_queue AS q WHERE q.finished IS NULL "
		"AND (q.owner, q.rank, q.model) > (l.owner, l.rank, l.model) "
		"ORDER BY q.owner, q.rank, q.model LIMIT 1) AS n) "
		"SELECT l.owner, 0::bigint, min((SELECT due FROM llm.job_queue AS q WHERE q.finished IS "
		"NULL "
		"AND q.owner = l.owner AND q.rank = l.rank AND q.model = l.model AND q.state = 'queued' "
		"ORDER BY due LIMIT 1)) "
		"FROM lanes AS l GROUP BY l.owner ORDER BY l.owner",
		0,
		{0}};

	return llm_job_table_select_lanes(&q, n);
}

Oid *
llm_job_table_running(int *n)
{
	static LlmOwnedStatement q = {
		"SELECT DISTINCT owner FROM llm.job_queue WHERE state = 'running'", 0, {0}};
	MemoryContext cxt = CurrentMemoryContext;
	LlmOwnedUser before;
	Oid *owners;

	llm_job_table_enter(&before);
	*n = llm_owned_run(&q, NULL, NULL, LLM_OWNED_OF_TRANSACTION);
	owners = MemoryContextAlloc(cxt, sizeof(Oid) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		owners[i] = DatumGetObjectId(llm_owned_get(i, 1));
	llm_owned_leave(&before);
	return owners;
}

void
llm_job_table_release(Oid owner)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.job_queue SET "
		"state = CASE WHEN attempts >= $2 THEN 'failed' ELSE 'queued' END, "
		"finished = CASE WHEN attempts >= $2 THEN clock_timestamp() END, "
		"due = CASE WHEN attempts < 2 THEN due ELSE clock_timestamp() "
		"+ random() * least(2 ^ (attempts - 1), 60) * INTERVAL '1 s' END, "
		"sqlstate = '57P01', message = 'the worker ended while the job was running' "
		"WHERE id = ANY (ARRAY(SELECT id FROM llm.job_queue "
		"WHERE state = 'running' AND owner = $1 FOR UPDATE SKIP LOCKED))",
		2,
		{OIDOID, INT4OID}};
	Datum values[] = {ObjectIdGetDatum(owner), Int32GetDatum(LLM_JOB_LOSSES_MAX)};

	(void) llm_job_table_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

void
llm_job_table_fail_all(Oid owner, int sqlstate, const char *message)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.job_queue SET state = 'failed', finished = clock_timestamp(), "
		"sqlstate = $2, message = $3 WHERE id = ANY (ARRAY(SELECT id FROM llm.job_queue "
		"WHERE finished IS NULL AND owner = $1 FOR UPDATE SKIP LOCKED))",
		3,
		{OIDOID, TEXTOID, TEXTOID}};
	Datum values[] = {ObjectIdGetDatum(owner), CStringGetTextDatum(unpack_sql_state(sqlstate)),
					  CStringGetTextDatum(message)};

	(void) llm_job_table_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

bool
llm_job_table_expire(TimestampTz before_time)
{
	static LlmOwnedStatement q = {
		"WITH old AS (SELECT id FROM llm.job_queue WHERE finished < $1 "
		"ORDER BY finished LIMIT " EXPIRE_ROWS " FOR UPDATE SKIP LOCKED), "
		"gone AS (DELETE FROM llm.job_queue AS j USING old WHERE j.id = old.id "
		"RETURNING j.id) "
		"SELECT count(*), max(id) FROM gone",
		1,
		{TIMESTAMPTZOID}};
	static LlmOwnedStatement note = {"SELECT setval('llm.job_expired', greatest(last_value, $1)) "
									 "FROM llm.job_expired",
									 1,
									 {INT8OID}};
	LlmOwnedUser before;
	Datum value = TimestampTzGetDatum(before_time);
	int64 n;

	llm_job_table_enter(&before);
	(void) llm_owned_run(&q, &value, NULL, LLM_OWNED_OF_TRANSACTION);
	n = DatumGetInt64(llm_owned_get(0, 1));
	value = llm_owned_get(0, 2);
	if (n > 0)
		(void) llm_owned_run(&note, &value, NULL, LLM_OWNED_OF_TRANSACTION);
	llm_owned_leave(&before);
	return n >= atoi(EXPIRE_ROWS);
}

bool
llm_job_table_prepared(void)
{
	static LlmOwnedStatement q = {
		"SELECT FROM pg_prepared_xacts WHERE database = current_database() LIMIT 1", 0, {0}};

	return llm_job_table_run(&q, NULL, NULL, LLM_OWNED_OF_TRANSACTION) > 0;
}

/* ---- the worker's ---- */

/* A text[] of strings. */
static Datum
text_array(const char **strings, int n)
{
	Datum *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = CStringGetTextDatum(strings[i]);
	return llm_owned_array(elems, n, TEXTOID);
}

#define CLAIM_OF_LANE                                                                              \
	"SELECT q.id, octet_length(q.prompt) AS n FROM llm.job_queue AS q "                            \
	"WHERE q.finished IS NULL AND q.owner = $1 "                                                   \
	"AND q.rank = l.rank AND q.model = l.model AND q.due <= $2 AND q.state = 'queued' "
#define CLAIM_ORDER "ORDER BY q.owner, q.rank, q.model, q.due, q.id LIMIT $3 FOR UPDATE SKIP LOCKED"
/* Of the rows j those that come before there are bytes enough. */
#define CLAIM_PICKED(rows)                                                                         \
	"picked AS (SELECT s.id FROM (SELECT j.id, sum(j.n) OVER (ROWS UNBOUNDED PRECEDING) - j.n "    \
	"AS before FROM " rows " LIMIT $3) AS s "                                                      \
	"WHERE s.before < " CppAsString2(LLM_JOB_CLAIM_NBYTES) ") "
#define CLAIM_UPDATE                                                                               \
	"UPDATE llm.job_queue AS q SET state = 'running', attempts = attempts + 1, "                   \
	"started = clock_timestamp() FROM picked WHERE q.id = picked.id "                              \
	"RETURNING q.id, attempts, max_attempts, model, rank, due"

LlmJobClaim *
llm_job_table_claim(Oid owner, const char **without, int n_without, LlmJobPlace *place, int *n)
{
	/* The lowest rank first, in it one model after the other, in it the earliest. */
	static LlmOwnedStatement first = {
		"WITH RECURSIVE lanes AS ("
		"(SELECT rank, model FROM llm.job_queue WHERE finished IS NULL AND owner = $1 "
		"ORDER BY owner, rank, model LIMIT 1) "
		"UNION ALL SELECT n.rank, n.model FROM lanes AS l, LATERAL ("
		"SELECT q.rank, q.model FROM llm.job_queue AS q WHERE q.finished IS NULL AND q.owner = $1 "
		"AND (q.rank, q.model) > (l.rank, l.model) "
		"ORDER BY q.owner, q.rank, q.model LIMIT 1) AS n), " CLAIM_PICKED(
			"(SELECT rank, model FROM lanes WHERE model <> ALL ($4) "
			"ORDER BY rank, model <= $5, model) AS l, "
			"LATERAL (" CLAIM_OF_LANE CLAIM_ORDER ") AS j") CLAIM_UPDATE,
		5,
		{OIDOID, TIMESTAMPTZOID, INT8OID, TEXTARRAYOID, TEXTOID}};
	static LlmOwnedStatement next = {
		"WITH " CLAIM_PICKED("(SELECT $4 AS rank, $5 AS model) AS l, LATERAL (" CLAIM_OF_LANE
							 "AND (q.due, q.id) > ($6, $7) " CLAIM_ORDER ") AS j") CLAIM_UPDATE,
		7,
		{OIDOID, TIMESTAMPTZOID, INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, INT8OID}};
	MemoryContext cxt = CurrentMemoryContext;
	Datum values[] = {ObjectIdGetDatum(owner),
					  TimestampTzGetDatum(GetCurrentTimestamp()),
					  Int64GetDatum(*n),
					  place->go_on ? Int32GetDatum(place->rank) : text_array(without, n_without),
					  CStringGetTextDatum(place->model),
					  TimestampTzGetDatum(place->due),
					  Int64GetDatum(place->id)};
	LlmOwnedUser before;
	LlmJobClaim *claims;

	llm_job_table_enter(&before);
	*n = llm_owned_run(place->go_on ? &next : &first, values, NULL, LLM_OWNED_OF_TRANSACTION);
	claims = MemoryContextAlloc(cxt, sizeof(LlmJobClaim) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		claims[i].id = DatumGetInt64(llm_owned_get(i, 1));
		claims[i].attempts = DatumGetInt32(llm_owned_get(i, 2));
		claims[i].max_attempts = DatumGetInt32(llm_owned_get(i, 3));
	}
	if (*n > 0)
	{
		place->id = claims[*n - 1].id;
		text_to_cstring_buffer(DatumGetTextPP(llm_owned_get(*n - 1, 4)), place->model,
							   sizeof(place->model));
		place->rank = DatumGetInt32(llm_owned_get(*n - 1, 5));
		place->due = DatumGetTimestampTz(llm_owned_get(*n - 1, 6));
	}
	llm_owned_leave(&before);
	return claims;
}

void
llm_job_table_read(int64 id, MemoryContext cxt, NullableDatum *args)
{
	static LlmOwnedStatement q = {"SELECT " ARGUMENT_COLUMNS " FROM llm.job_queue WHERE id = $1",
								  1,
								  {INT8OID}};
	Datum key = Int64GetDatum(id);

	if (llm_owned_run(&q, &key, NULL, LLM_OWNED_OF_TRANSACTION) != 1)
		elog(ERROR, "job " INT64_FORMAT " is not there", id);
	for (int a = 0; a < LLM_ARG_COUNT; a++)
		args[a].isnull = true;
	for (int a = 0; a < (int) lengthof(arguments); a++)
	{
		NullableDatum *arg = &args[arguments[a].arg];

		arg->value = llm_owned_value(0, 1 + a, &arg->isnull);
		if (!arg->isnull && !get_typbyval(arguments[a].type))
			arg->value = copy_varlena(arg->value, cxt);
	}
}

/* Ids of rows in SPI_tuptable become `hold` in out, where they have been `from`. */
static void
mark(const int64 *ids, int n, int n_rows, LlmJobHold from, LlmJobHold hold, LlmJobHold *out)
{
	for (int row = 0; row < n_rows; row++)
	{
		int64 id = DatumGetInt64(llm_owned_get(row, 1));

		for (int i = 0; i < n; i++)
			if (ids[i] == id && out[i] == from)
				out[i] = hold;
	}
}

void
llm_job_table_hold(const int64 *ids, int n, bool lock, LlmJobHold *out)
{
	static LlmOwnedStatement look = {
		"SELECT id FROM llm.job_queue WHERE id = ANY ($1) AND state = 'running'",
		1,
		{INT8ARRAYOID}};
	static LlmOwnedStatement take = {
		"SELECT id FROM llm.job_queue WHERE id = ANY ($1) AND state = 'running' "
		"FOR UPDATE SKIP LOCKED",
		1,
		{INT8ARRAYOID}};
	Datum *elems = palloc(sizeof(Datum) * Max(n, 1));
	LlmOwnedUser before;
	Datum array;
	int n_rows;

	for (int i = 0; i < n; i++)
	{
		elems[i] = Int64GetDatum(ids[i]);
		out[i] = LLM_JOB_LOST;
	}
	array = llm_owned_array(elems, n, INT8OID);
	llm_job_table_enter(&before);
	n_rows = llm_owned_run(&look, &array, NULL, LLM_OWNED_OF_TRANSACTION);
	mark(ids, n, n_rows, LLM_JOB_LOST, LLM_JOB_NOT_NOW, out);
	if (lock)
	{
		n_rows = llm_owned_run(&take, &array, NULL, LLM_OWNED_OF_TRANSACTION);
		mark(ids, n, n_rows, LLM_JOB_NOT_NOW, LLM_JOB_OURS, out);
	}
	llm_owned_leave(&before);
}

void
llm_job_table_done(int64 id, Datum result)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.job_queue SET state = 'done', finished = clock_timestamp(), "
		"result = $2, sqlstate = NULL, message = NULL WHERE id = $1",
		2,
		{INT8OID, InvalidOid}};
	Datum values[] = {Int64GetDatum(id), result};

	/* The type's oid is new after DROP and CREATE EXTENSION: but then this is another process. */
	q.types[1] = HeapTupleHeaderGetTypeId(DatumGetHeapTupleHeader(result));
	(void) llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

void
llm_job_table_fail(int64 id, int sqlstate, const char *message)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.job_queue SET state = 'failed', finished = clock_timestamp(), "
		"sqlstate = $2, message = $3 WHERE id = $1",
		3,
		{INT8OID, TEXTOID, TEXTOID}};
	Datum values[] = {Int64GetDatum(id), CStringGetTextDatum(unpack_sql_state(sqlstate)),
					  CStringGetTextDatum(message)};

	(void) llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

void
llm_job_table_retry(int64 id, int delay_ms, bool counts, int sqlstate, const char *message)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.job_queue SET state = 'queued', due = $2, "
		"attempts = attempts - $3, sqlstate = $4, message = $5 WHERE id = $1",
		5,
		{INT8OID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID}};
	TimestampTz due = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay_ms);
	Datum values[] = {Int64GetDatum(id), TimestampTzGetDatum(due), Int32GetDatum(counts ? 0 : 1),
					  CStringGetTextDatum(unpack_sql_state(sqlstate)),
					  CStringGetTextDatum(message)};

	(void) llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}
