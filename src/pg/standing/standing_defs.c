/* pg/standing/standing_defs.c - the statements on llm.enrichment_defs; see the header. */
#include "postgres.h"

#include "pg/standing/standing_defs.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "pg/jobs/job_table.h"
#include "pg/owned.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/snapmgr.h"

/* Columns of a definition behind the id, in this order everywhere. */
enum
{
	COL_NAME,
	COL_OWNER,
	COL_RELATION,
	COL_TARGET,
	COL_PROMPT,
	COL_EXPR,
	COL_FILTER,
	COL_SEARCH_PATH,
	COL_SOURCES,
	COL_BATCH_SIZE,
	COL_CONCURRENCY,
	COL_MODEL,
	COL_MAX_TOKENS,
	COL_TEMPERATURE,
	COL_SEED,
	COL_RESPONSE_FORMAT,
	COL_OPTIONS,
	COL_ACTIVE,
	COL_REASON,
	COL_BACKFILL,
	N_COLS
};
#define COLUMNS                                                                                    \
	"name, owner, relation, target, prompt, expr, filter, search_path, sources, batch_size, "      \
	"concurrency, model, max_tokens, temperature, seed, response_format, options, active, "        \
	"reason, backfill"

static Oid types[N_COLS + 1] = {NAMEOID, REGROLEOID, REGCLASSOID,  NAMEOID,  TEXTOID,  TEXTOID,
								TEXTOID, TEXTOID,    NAMEARRAYOID, INT4OID,  INT4OID,  TEXTOID,
								INT4OID, FLOAT8OID,  INT8OID,      JSONBOID, JSONBOID, BOOLOID,
								TEXTOID, BOOLOID,    INT8OID};

/* Those that are arguments of the calls. */
static const struct
{
	int column;
	int arg;
	int16 typlen; /* -1 = a varlena */
} call_args[] = {
	{COL_MODEL, LLM_ARG_MODEL, -1},
	{COL_MAX_TOKENS, LLM_ARG_MAX_TOKENS, sizeof(int32)},
	{COL_TEMPERATURE, LLM_ARG_TEMPERATURE, sizeof(float8)},
	{COL_SEED, LLM_ARG_SEED, sizeof(int64)},
	{COL_RESPONSE_FORMAT, LLM_ARG_RESPONSE_FORMAT, -1},
	{COL_OPTIONS, LLM_ARG_OPTIONS, -1},
};

/* ---- reading ---- */

static Datum
column(int row, int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number + 2, isnull);
}

static Datum
column_not_null(int row, int number)
{
	bool isnull;

	return column(row, number, &isnull);
}

/* Texts in the current context, which is the caller's; NULL when it is null. */
static char *
column_text(int row, int number)
{
	bool isnull;
	Datum value = column(row, number, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

static Datum
column_varlena(int row, int number, bool *isnull)
{
	Datum value = column(row, number, isnull);

	return *isnull ? (Datum) 0 : PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
}

static void
take(LlmStandingDef *def, int row)
{
	bool isnull;

	memset(def, 0, sizeof(*def));
	def->id = DatumGetInt64(column_not_null(row, -1));
	def->name = *DatumGetName(column_not_null(row, COL_NAME));
	def->owner = DatumGetObjectId(column_not_null(row, COL_OWNER));
	def->relation = DatumGetObjectId(column_not_null(row, COL_RELATION));
	def->target = *DatumGetName(column_not_null(row, COL_TARGET));
	def->prompt = column_text(row, COL_PROMPT);
	def->expr = column_text(row, COL_EXPR);
	def->filter = column_text(row, COL_FILTER);
	def->search_path = column_text(row, COL_SEARCH_PATH);
	def->sources = column_varlena(row, COL_SOURCES, &isnull);
	def->batch_size = DatumGetInt32(column_not_null(row, COL_BATCH_SIZE));
	def->concurrency = DatumGetInt32(column_not_null(row, COL_CONCURRENCY));
	def->active = DatumGetBool(column_not_null(row, COL_ACTIVE));
	def->reason = column_text(row, COL_REASON);
	def->backfill = DatumGetBool(column_not_null(row, COL_BACKFILL));
	for (int i = 0; i < LLM_ARG_COUNT; i++)
		def->args[i].isnull = true;
	for (Size i = 0; i < lengthof(call_args); i++)
	{
		NullableDatum *arg = &def->args[call_args[i].arg];

		if (call_args[i].typlen < 0)
			arg->value = column_varlena(row, call_args[i].column, &arg->isnull);
		else
			arg->value = column(row, call_args[i].column, &arg->isnull);
	}
}

/* Those that sql selects, [*n] in CurrentMemoryContext. The plan is kept in *plan. What is committed counts,
 * whatever the transaction's snapshot: a trigger that it sees has a definition that it must see too. */
static LlmStandingDef *
select_rows(SPIPlanPtr *plan, const char *sql, Oid type, Datum value, int *n)
{
	MemoryContext cxt = CurrentMemoryContext;
	LlmJobUser before;
	LlmStandingDef *defs;
	int rc;

	llm_job_table_enter(&before);
	if (*plan == NULL)
	{
		*plan = SPI_prepare(sql, OidIsValid(type) ? 1 : 0, &type);
		if (*plan == NULL || SPI_keepplan(*plan) != 0)
			elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	}
	rc = SPI_execute_snapshot(*plan, &value, NULL, GetLatestSnapshot(), InvalidSnapshot, true, true,
							  0);
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(rc));
	*n = (int) SPI_processed;
	MemoryContextSwitchTo(cxt);
	defs = palloc(sizeof(LlmStandingDef) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		take(&defs[i], i);
	llm_job_table_leave(&before);
	return defs;
}

#define SELECT_COLUMNS "SELECT id, " COLUMNS " FROM llm.enrichment_defs"

LlmStandingDef *
llm_standing_defs_read(int64 id)
{
	static SPIPlanPtr plan = NULL;
	int n;
	LlmStandingDef *def =
		select_rows(&plan, SELECT_COLUMNS " WHERE id = $1", INT8OID, Int64GetDatum(id), &n);

	return n > 0 ? def : NULL;
}

LlmStandingDef *
llm_standing_defs_find(const char *name)
{
	static SPIPlanPtr plan = NULL;
	NameData key;
	int n;
	LlmStandingDef *def;

	namestrcpy(&key, name);
	def = select_rows(&plan, SELECT_COLUMNS " WHERE name = $1", NAMEOID, NameGetDatum(&key), &n);
	return n > 0 ? def : NULL;
}

LlmStandingDef *
llm_standing_defs_list(int *n)
{
	static SPIPlanPtr plan = NULL;

	return select_rows(&plan, SELECT_COLUMNS " ORDER BY id", InvalidOid, (Datum) 0, n);
}

TransactionId
llm_standing_defs_version(int64 id, bool lock)
{
	static LlmOwnedStatement look = {
		"SELECT xmin FROM llm.enrichment_defs WHERE id = $1 AND active", 1, {INT8OID}};
	static LlmOwnedStatement take = {"SELECT xmin FROM llm.enrichment_defs "
									 "WHERE id = $1 AND active FOR NO KEY UPDATE SKIP LOCKED",
									 1,
									 {INT8OID}};
	Datum value = Int64GetDatum(id);
	TransactionId version = InvalidTransactionId;
	LlmOwnedUser before;
	bool isnull;

	llm_job_table_enter(&before);
	if (llm_owned_run(lock ? &take : &look, &value, NULL, LLM_OWNED_OF_TRANSACTION) > 0)
		version = DatumGetTransactionId(llm_owned_value(0, 1, &isnull));
	llm_owned_leave(&before);
	return version;
}

/* ---- writing ---- */

/* Run sql, whose parameters are the columns and then the id. */
static int
write_row(const LlmStandingDef *def, const char *sql)
{
	Datum values[N_COLS + 1];
	char nulls[N_COLS + 2];
	const struct
	{
		int column;
		const char *text;
	} texts[] = {
		{COL_PROMPT, def->prompt},           {COL_EXPR, def->expr},     {COL_FILTER, def->filter},
		{COL_SEARCH_PATH, def->search_path}, {COL_REASON, def->reason},
	};
	int rc;

	memset(nulls, ' ', sizeof(nulls));
	values[COL_NAME] = NameGetDatum(&def->name);
	values[COL_OWNER] = ObjectIdGetDatum(def->owner);
	values[COL_RELATION] = ObjectIdGetDatum(def->relation);
	values[COL_TARGET] = NameGetDatum(&def->target);
	values[COL_SOURCES] = def->sources;
	nulls[COL_SOURCES] = def->sources == (Datum) 0 ? 'n' : ' ';
	values[COL_BATCH_SIZE] = Int32GetDatum(def->batch_size);
	values[COL_CONCURRENCY] = Int32GetDatum(def->concurrency);
	values[COL_ACTIVE] = BoolGetDatum(def->active);
	values[COL_BACKFILL] = BoolGetDatum(def->backfill);
	values[N_COLS] = Int64GetDatum(def->id);
	for (Size i = 0; i < lengthof(texts); i++)
	{
		nulls[texts[i].column] = texts[i].text == NULL ? 'n' : ' ';
		values[texts[i].column] =
			texts[i].text == NULL ? (Datum) 0 : CStringGetTextDatum(texts[i].text);
	}
	for (Size i = 0; i < lengthof(call_args); i++)
	{
		values[call_args[i].column] = def->args[call_args[i].arg].value;
		nulls[call_args[i].column] = def->args[call_args[i].arg].isnull ? 'n' : ' ';
	}
	rc = SPI_execute_with_args(sql, N_COLS + 1, types, values, nulls, false, 0);
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(rc));
	return (int) SPI_processed;
}

bool
llm_standing_defs_insert(LlmStandingDef *def)
{
	LlmJobUser before;
	bool isnull;
	bool written;

	llm_job_table_enter(&before);
	written =
		write_row(def, "INSERT INTO llm.enrichment_defs (" COLUMNS ", created) VALUES ($1, $2, $3, "
					   "$4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, "
					   "$20, clock_timestamp()) ON CONFLICT DO NOTHING RETURNING id") > 0;
	if (written)
		def->id =
			DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	llm_job_table_leave(&before);
	return written;
}

bool
llm_standing_defs_update(const LlmStandingDef *def)
{
	LlmJobUser before;
	bool written;

	llm_job_table_enter(&before);
	written =
		write_row(def,
				  "UPDATE llm.enrichment_defs AS d SET (" COLUMNS
				  ") = ($1, $2, $3, $4, $5, $6, $7, $8, "
				  "$9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) WHERE id = $21 AND "
				  "NOT EXISTS "
				  "(SELECT FROM llm.enrichment_defs AS o WHERE o.id <> d.id AND (o.name = $1 OR "
				  "(o.relation, o.target) = ($3, $4)))") > 0;
	llm_job_table_leave(&before);
	return written;
}

/* Run sql for a definition; $2 is a text, which may be NULL. */
static void
run(const char *sql, int64 id, const char *text)
{
	Oid arg_types[] = {INT8OID, TEXTOID};
	Datum values[] = {Int64GetDatum(id), text == NULL ? (Datum) 0 : CStringGetTextDatum(text)};
	LlmJobUser before;
	int rc;

	llm_job_table_enter(&before);
	rc = SPI_execute_with_args(sql, 2, arg_types, values, text == NULL ? " n" : NULL, false, 0);
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", sql, SPI_result_code_string(rc));
	llm_job_table_leave(&before);
}

void
llm_standing_defs_lock(int64 id)
{
	run("SELECT FROM llm.enrichment_defs WHERE id = $1 FOR UPDATE", id, NULL);
}

void
llm_standing_defs_pause(int64 id, const char *reason)
{
	run("UPDATE llm.enrichment_defs SET active = false, reason = $2 WHERE id = $1", id, reason);
}

void
llm_standing_defs_backfilled(int64 id)
{
	run("UPDATE llm.enrichment_defs SET backfill = false WHERE id = $1", id, NULL);
}

void
llm_standing_defs_remove(int64 id)
{
	run("DELETE FROM llm.enrichment_defs WHERE id = $1", id, NULL);
	run("DELETE FROM llm.enrich_queue WHERE enrichment = $1", id, NULL);
}
