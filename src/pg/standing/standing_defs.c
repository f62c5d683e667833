/* pg/standing/standing_defs.c - the statements on llm.enrichment_defs; see the header. */
#include "postgres.h"

#include "pg/standing/standing_defs.h"

#include "catalog/pg_type.h"
#include "pg/jobs/job_table.h"
#include "pg/owned.h"
#include "utils/builtins.h"

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

#define COLUMN_TYPES                                                                               \
	NAMEOID, REGROLEOID, REGCLASSOID, NAMEOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, NAMEARRAYOID,   \
		INT4OID, INT4OID, TEXTOID, INT4OID, FLOAT8OID, INT8OID, JSONBOID, JSONBOID, BOOLOID,       \
		TEXTOID, BOOLOID

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
	return llm_owned_value(row, number + 2, isnull);
}

static Datum
column_not_null(int row, int number)
{
	return llm_owned_get(row, number + 2);
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

/* Those that q selects, [*n] in CurrentMemoryContext. What is committed counts, whatever the transaction's
 * snapshot: a trigger that it sees has a definition that it must see too. */
static LlmStandingDef *
select_rows(LlmOwnedStatement *q, Datum value, int *n)
{
	MemoryContext cxt = CurrentMemoryContext;
	LlmOwnedUser before;
	LlmStandingDef *defs;

	llm_job_table_enter(&before);
	*n = llm_owned_run(q, &value, NULL, LLM_OWNED_OF_NOW);
	MemoryContextSwitchTo(cxt);
	defs = palloc(sizeof(LlmStandingDef) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		take(&defs[i], i);
	llm_owned_leave(&before);
	return defs;
}

#define SELECT_COLUMNS "SELECT id, " COLUMNS " FROM llm.enrichment_defs"

LlmStandingDef *
llm_standing_defs_read(int64 id)
{
	static LlmOwnedStatement q = {SELECT_COLUMNS " WHERE id = $1", 1, {INT8OID}};
	int n;
	LlmStandingDef *def = select_rows(&q, Int64GetDatum(id), &n);

	return n > 0 ? def : NULL;
}

LlmStandingDef *
llm_standing_defs_find(const char *name)
{
	static LlmOwnedStatement q = {SELECT_COLUMNS " WHERE name = $1", 1, {NAMEOID}};
	NameData key;
	int n;
	LlmStandingDef *def;

	namestrcpy(&key, name);
	def = select_rows(&q, NameGetDatum(&key), &n);
	return n > 0 ? def : NULL;
}

LlmStandingDef *
llm_standing_defs_list(int *n)
{
	static LlmOwnedStatement q = {SELECT_COLUMNS " ORDER BY id", 0, {0}};

	return select_rows(&q, (Datum) 0, n);
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

	llm_job_table_enter(&before);
	if (llm_owned_run(lock ? &take : &look, &value, NULL, LLM_OWNED_OF_TRANSACTION) > 0)
		version = DatumGetTransactionId(llm_owned_get(0, 1));
	llm_owned_leave(&before);
	return version;
}

/* ---- writing ---- */

/* Run q, whose parameters are the columns and then the id. */
static int
write_row(const LlmStandingDef *def, LlmOwnedStatement *q)
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
	return llm_owned_run(q, values, nulls, LLM_OWNED_OF_TRANSACTION);
}

bool
llm_standing_defs_insert(LlmStandingDef *def)
{
	static LlmOwnedStatement q = {
		"INSERT INTO llm.enrichment_defs (" COLUMNS
		", created) VALUES ($1, $2, $3, $4, $5, $6, $7, "
		"$8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, clock_timestamp()) "
		"ON CONFLICT DO NOTHING RETURNING id",
		N_COLS,
		{COLUMN_TYPES}};
	LlmOwnedUser before;
	bool written;

	llm_job_table_enter(&before);
	written = write_row(def, &q) > 0;
	if (written)
		def->id = DatumGetInt64(llm_owned_get(0, 1));
	llm_owned_leave(&before);
	return written;
}

bool
llm_standing_defs_update(const LlmStandingDef *def)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.enrichment_defs AS d SET (" COLUMNS ") = ($1, $2, $3, $4, $5, $6, $7, $8, "
		"$9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) WHERE id = $21 AND NOT EXISTS "
		"(SELECT FROM llm.enrichment_defs AS o WHERE o.id <> d.id AND (o.name = $1 OR "
		"(o.relation, o.target) = ($3, $4)))",
		N_COLS + 1,
		{COLUMN_TYPES, INT8OID}};
	LlmOwnedUser before;
	bool written;

	llm_job_table_enter(&before);
	written = write_row(def, &q) > 0;
	llm_owned_leave(&before);
	return written;
}

void
llm_standing_defs_lock(int64 id)
{
	static LlmOwnedStatement q = {"SELECT FROM llm.enrichment_defs WHERE id = $1 FOR UPDATE",
								  1,
								  {INT8OID}};
	Datum value = Int64GetDatum(id);

	(void) llm_job_table_run(&q, &value, NULL, LLM_OWNED_OF_TRANSACTION);
}

void
llm_standing_defs_pause(int64 id, const char *reason)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.enrichment_defs SET active = false, reason = $2 WHERE id = $1",
		2,
		{INT8OID, TEXTOID}};
	Datum values[] = {Int64GetDatum(id), reason ? CStringGetTextDatum(reason) : (Datum) 0};

	(void) llm_job_table_run(&q, values, reason ? NULL : " n", LLM_OWNED_OF_TRANSACTION);
}

void
llm_standing_defs_backfilled(int64 id)
{
	static LlmOwnedStatement q = {"UPDATE llm.enrichment_defs SET backfill = false WHERE id = $1",
								  1,
								  {INT8OID}};
	Datum value = Int64GetDatum(id);

	(void) llm_job_table_run(&q, &value, NULL, LLM_OWNED_OF_TRANSACTION);
}

void
llm_standing_defs_remove(int64 id)
{
	static LlmOwnedStatement q = {"WITH gone AS (DELETE FROM llm.enrichment_defs WHERE id = $1) "
								  "DELETE FROM llm.enrich_queue WHERE enrichment = $1",
								  1,
								  {INT8OID}};
	Datum value = Int64GetDatum(id);

	(void) llm_job_table_run(&q, &value, NULL, LLM_OWNED_OF_TRANSACTION);
}
