/*
 * pg/standing/standing_trigger.c - llm.enrich_changed: keys of new and changed rows go into llm.enrich_queue.
 *
 * A statement trigger, once per INSERT and UPDATE, with the rows in transition tables. It runs inside of other
 * people's statements, so it is cheap, asks the engine for nothing, and is silent where the enrichment is at
 * fault: a definition that is gone, a column that was renamed. Then too much is queued rather than too little,
 * or the worker is woken to find the fault. What was queued is what it was for when the worker comes: it looks
 * at the row again, so that an entry too many costs a look.
 *
 * INSERT queues the rows whose target is NULL: a value that came with the row is not to be generated. UPDATE
 * queues the rows of which a column that the enrichment reads is other than before, or the key, or whose target
 * was made NULL. Old and new are compared bit by bit, so that no operator of anybody is called.
 *
 * Whose rights: keys are computed as the current user, who pays for what types of the table's owner do when they
 * are written as jsonb, as with any trigger of that owner. Then they are values, and the owner of llm.enrich_queue
 * inserts them. The trigger's argument is only a number: a definition counts for its table and those below it.
 */
#include "postgres.h"

#include "pg/standing/standing_trigger.h"

#include "access/htup_details.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/enrich/enrich_target.h"
#include "pg/jobs/job_commit.h"
#include "pg/jobs/job_table.h"
#include "pg/standing/standing_ddl.h"
#include "access/sysattr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_enrich_changed);
LLM_EXPORTS_END

#define CHUNK                                                                                      \
	200 /* keys in memory: an index takes some of 600 kB, where they are compressed well */
#define FEW_ROWS 100 /* of a statement: any plan will do */

static int64 suspended = 0;

void
llm_standing_trigger_suspend(int64 id)
{
	suspended = id;
}

void
llm_standing_trigger_pin(GucAction action)
{
	static const char *const settings[][2] = {
		{"DateStyle", "ISO, YMD"},
		{"IntervalStyle", "postgres"},
		{"TimeZone", "UTC"},
		{"bytea_output", "hex"},
		{"extra_float_digits", "1"},
		{"lc_monetary", "C"},
		{"search_path", "pg_catalog, pg_temp"},
	};

	for (Size i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION, action,
								 true, 0, false);
}

/* ---- what there is to compare ---- */

/* Column of the table, 0 = there is none. */
static AttrNumber
column_number(Relation rel, const char *name)
{
	AttrNumber attno = get_attnum(RelationGetRelid(rel), name);

	return Max(attno, 0);
}

/* The columns that the enrichment reads, of the trigger's table; NULL when one is not there any more. */
static Bitmapset *
source_columns(const LlmStandingDef *def, Relation rel)
{
	Bitmapset *columns = bms_make_singleton(0); /* never NULL */
	Datum *names;
	int n;

	if (def->sources == (Datum) 0)
	{
		TupleDesc desc = RelationGetDescr(rel);

		for (int i = 0; i < desc->natts; i++)
			if (!TupleDescAttr(desc, i)->attisdropped &&
				strcmp(NameStr(TupleDescAttr(desc, i)->attname), NameStr(def->target)) != 0)
				columns = bms_add_member(columns, i + 1);
		return columns;
	}
	deconstruct_array(DatumGetArrayTypeP(def->sources), NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &names, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		AttrNumber attno = column_number(rel, NameStr(*DatumGetName(names[i])));

		if (attno == 0)
			return NULL;
		columns = bms_add_member(columns, attno);
	}
	return columns;
}

/* True when a statement that assigned to these columns has changed nothing that matters, so that no row need be
 * looked at. A row trigger may assign to anything, and so may those of partitions and children. */
static bool
is_indifferent(const LlmStandingDef *def, Relation rel, const Bitmapset *sources,
			   const Bitmapset *assigned)
{
	Bitmapset *key;
	Oid constraint;
	int i = -1;

	if (sources == NULL || assigned == NULL || rel->rd_rel->relhassubclass ||
		(rel->trigdesc != NULL && rel->trigdesc->trig_update_before_row))
		return false;
	key = get_primary_key_attnos(def->relation, true, &constraint);
	while ((i = bms_next_member(assigned, i)) >= 0)
	{
		int attno = i + FirstLowInvalidHeapAttributeNumber;
		const char *name;

		if (attno <= 0 || bms_is_member(attno, sources))
			return false;
		name = get_attname(RelationGetRelid(rel), (AttrNumber) attno, false);
		if (strcmp(name, NameStr(def->target)) == 0 ||
			bms_is_member(get_attnum(def->relation, name) - FirstLowInvalidHeapAttributeNumber,
						  key))
			return false;
	}
	return true;
}

/* ---- the query: keys of the rows to be queued ---- */

/* "SELECT <key> AS k, ROW(<sources>) AS s, <target is NULL> AS t FROM <table>" */
static void
append_rows(StringInfo sql, const char *table, const char *key, const char *target, Relation rel,
			const Bitmapset *sources)
{
	const char *separator = "";
	int attno = 0;

	appendStringInfo(sql, "(SELECT %s AS k, ROW(", key);
	while ((attno = bms_next_member(sources, attno)) >= 0)
	{
		appendStringInfo(sql, "%sr.%s", separator,
						 quote_identifier(
							 get_attname(RelationGetRelid(rel), (AttrNumber) attno, false)));
		separator = ", ";
	}
	appendStringInfo(sql, ") AS s, %s AS t FROM %s AS r)", target, table);
}

/* Of (key, only_null): what entries are made of. NULL when there is nothing to be queued. */
static char *
make_query(const LlmStandingDef *def, const TriggerData *t)
{
	Relation rel = t->tg_relation;
	const char *key = llm_enrich_target_key(def->relation, "r");
	const char *target =
		"true"; /* when it is not there: no value to be kept, no change to be seen */
	Bitmapset *sources;
	StringInfoData sql;

	initStringInfo(&sql);
	if (column_number(rel, NameStr(def->target)) != 0)
		target = psprintf("r.%s IS NULL", quote_identifier(NameStr(def->target)));
	if (TRIGGER_FIRED_BY_INSERT(t->tg_event))
	{
		appendStringInfo(&sql, "SELECT %s, true FROM llm_new AS r WHERE %s", key, target);
		return sql.data;
	}
	sources = source_columns(def, rel);
	if (is_indifferent(def, rel, sources, t->tg_updatedcols))
		return NULL;
	if (sources == NULL)
	{
		appendStringInfo(&sql, "SELECT %s, false FROM llm_new AS r", key);
		return sql.data;
	}
	appendStringInfoString(&sql, "SELECT n.k, o.k IS NOT NULL FROM ");
	append_rows(&sql, "llm_new", key, target, rel, sources);
	appendStringInfoString(&sql, " AS n LEFT JOIN ");
	append_rows(&sql, "llm_old", key, target, rel, sources);
	appendStringInfoString(&sql, " AS o ON o.k OPERATOR(pg_catalog.=) n.k "
								 "AND o.s OPERATOR(pg_catalog.*=) n.s "
								 "WHERE o.k IS NULL OR (n.t AND NOT o.t)");
	return sql.data;
}

/* ---- queueing ---- */

/* Entries for keys [n], jsonb, and whether each is only_null. */
static void
queue(int64 id, Datum *keys, Datum *only_null, int n)
{
	static LlmOwnedStatement q = {
		"INSERT INTO llm.enrich_queue (enrichment, due, hash, key, only_null) "
		"SELECT $1, clock_timestamp(), jsonb_hash_extended(n.key, 0), n.key, n.only_null "
		"FROM unnest($2, $3) AS n (key, only_null)",
		3,
		{INT8OID, JSONBARRAYOID, BOOLARRAYOID}};
	Datum values[] = {Int64GetDatum(id), llm_owned_array(keys, n, JSONBOID),
					  llm_owned_array(only_null, n, BOOLOID)};

	(void) llm_job_table_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

/* The table has no key by which to know its rows: the worker shall see that there were some. */
static void
queue_unknown(int64 id)
{
	Datum key = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
	Datum only_null = BoolGetDatum(true);

	queue(id, &key, &only_null, 1);
}

/* The query's plan, kept for the next statement when there are few rows: with many rows another plan is better,
 * and its price does not matter. Called within SPI, where the trigger's tables are known. */
static SPIPlanPtr
plan_query(const char *sql, const TriggerData *t)
{
	typedef struct Kept
	{
		Oid trigger;
		char *sql;
		SPIPlanPtr plan;
	} Kept;

	static HTAB *kept = NULL;
	bool few = tuplestore_tuple_count(t->tg_newtable) <= FEW_ROWS;
	Kept *k = NULL;
	SPIPlanPtr plan;
	bool found = false;

	if (kept == NULL)
	{
		HASHCTL ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(Kept)};

		kept = hash_create("llm_infer triggers", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	if (few)
		k = hash_search(kept, &t->tg_trigger->tgoid, HASH_FIND, &found);
	if (found && strcmp(k->sql, sql) == 0)
		return k->plan;
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	if (!few || SPI_keepplan(plan) != 0)
		return plan;
	k = hash_search(kept, &t->tg_trigger->tgoid, HASH_ENTER, &found);
	if (found)
	{
		SPI_freeplan(k->plan);
		pfree(k->sql);
	}
	k->plan = plan;
	k->sql = MemoryContextStrdup(TopMemoryContext, sql);
	return plan;
}

/* Run the query and queue what it gives. True when that was something. */
static bool
queue_rows(int64 id, const char *sql, TriggerData *t)
{
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "llm_infer keys", ALLOCSET_DEFAULT_SIZES);
	bool any = false;
	int nest_level;
	Portal portal;

	SPI_connect();
	if (SPI_register_trigger_data(t) < 0)
		elog(ERROR, "SPI_register_trigger_data failed");
	nest_level = NewGUCNestLevel();
	llm_standing_trigger_pin(GUC_ACTION_SAVE);
	portal = SPI_cursor_open(NULL, plan_query(sql, t), NULL, NULL, false);
	for (;;)
	{
		MemoryContext old;
		Datum *keys;
		Datum *only_null;
		int n;

		SPI_cursor_fetch(portal, true, CHUNK);
		n = (int) SPI_processed;
		if (n == 0)
			break;
		old = MemoryContextSwitchTo(cxt);
		keys = palloc(sizeof(Datum) * n);
		only_null = palloc(sizeof(Datum) * n);
		for (int i = 0; i < n; i++)
		{
			keys[i] = llm_owned_get(i, 1);
			only_null[i] = llm_owned_get(i, 2);
		}
		queue(id, keys, only_null, n);
		MemoryContextSwitchTo(old);
		MemoryContextReset(cxt);
		SPI_freetuptable(SPI_tuptable);
		any = true;
	}
	SPI_cursor_close(portal);
	AtEOXact_GUC(true, nest_level);
	SPI_finish();
	MemoryContextDelete(cxt);
	return any;
}

/* ---- the trigger ---- */

/* The id in the trigger's argument; an error unless it was called by such a trigger. */
static int64
check_trigger(FunctionCallInfo fcinfo)
{
	static const LlmDeclared as_trigger = {0, NULL, TRIGGEROID, false};
	const TriggerData *t = (const TriggerData *) fcinfo->context;

	llm_declared_check(fcinfo, &as_trigger);
	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(t->tg_event) ||
		TRIGGER_FIRED_FOR_ROW(t->tg_event) || t->tg_trigger->tgnargs != 1 ||
		t->tg_newtable == NULL || !(TRIGGER_FIRED_BY_INSERT(t->tg_event) || t->tg_oldtable != NULL))
		ereport(
			ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("llm.enrich_changed was called by something else than an enrichment's trigger"),
			 errhint("Triggers are created by llm_enrich_create and llm_enrich_resume.")));
	return strtoll(t->tg_trigger->tgargs[0], NULL, 10);
}

/* True when the statement is one of an enrichment's worker, and not of a trigger that it fired. */
static bool
is_of_worker(void)
{
	return suspended != 0 && DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0)) <= 1;
}

/* llm.enrich_changed(): trigger */
Datum
llm_enrich_changed(PG_FUNCTION_ARGS)
{
	int64 id = check_trigger(fcinfo);
	TriggerData *t = (TriggerData *) fcinfo->context;
	const LlmStandingDef *def;
	const char *sql;
	bool wake = true;

	if (tuplestore_tuple_count(t->tg_newtable) == 0 || (id == suspended && is_of_worker()))
		return PointerGetDatum(NULL);
	if (llm_declared_strange_table() != NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows of table \"%s\" are not queued for its enrichment",
						RelationGetRelationName(t->tg_relation)),
				 errdetail("Table llm.%s is of another version of llm_infer than its library.",
						   llm_declared_strange_table()),
				 errhint("Use ALTER EXTENSION llm_infer UPDATE, then llm_enrich_resume with "
						 "backfill.")));
		return PointerGetDatum(NULL);
	}
	def = llm_standing_defs_read(id);
	if (def == NULL || !llm_standing_ddl_concerns(def, RelationGetRelid(t->tg_relation)))
		return PointerGetDatum(NULL);
	/* Two that read whole rows would wake each other for ever, with a column that each write changes; and one itself,
	 * with a trigger that changes one. */
	if (def->sources == (Datum) 0 && suspended != 0)
		return PointerGetDatum(NULL);
	if (llm_enrich_target_key(def->relation, "r") == NULL)
		queue_unknown(id);
	else
	{
		sql = make_query(def, t);
		wake = sql != NULL && queue_rows(id, sql, t);
	}
	if (wake && def->active)
		llm_job_commit_note(def->owner, id, false);
	return PointerGetDatum(NULL);
}
