/*
 * pg/standing/standing_funcs.c - llm_enrich_create, _drop, _pause, _resume, _alter and _retry_failed.
 *
 * What would stop the worker is looked for here, so that the error comes to who made it: the table, the SQL, the
 * arguments and the rights of the current user. The worker looks again, as the owner, whenever it begins.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/parsenodes.h"
#include "nodes/nodeFuncs.h"
#include "pg/catalog.h"
#include "pg/client.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/enrich/enrich_rows.h"
#include "pg/enrich/enrich_target.h"
#include "pg/jobs/job_commit.h"
#include "pg/jobs/job_table.h"
#include "pg/options.h"
#include "pg/standing/standing_ddl.h"
#include "pg/standing/standing_defs.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_enrich_create);
PG_FUNCTION_INFO_V1(llm_enrich_alter);
PG_FUNCTION_INFO_V1(llm_enrich_drop);
PG_FUNCTION_INFO_V1(llm_enrich_pause);
PG_FUNCTION_INFO_V1(llm_enrich_resume);
PG_FUNCTION_INFO_V1(llm_enrich_retry_failed);
LLM_EXPORTS_END

/* ---- arguments ---- */

/* Those that create and alter have in common, in this order. */
enum
{
	ARG_TARGET,
	ARG_PROMPT,
	ARG_EXPR,
	ARG_FILTER,
	ARG_BATCH_SIZE,
	ARG_CONCURRENCY,
	ARG_MODEL,
	ARG_MAX_TOKENS,
	ARG_TEMPERATURE,
	ARG_SEED,
	ARG_RESPONSE_FORMAT,
	ARG_OPTIONS,
	N_ARGS
};
#define ARG_TYPES                                                                                  \
	NAMEOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT4OID, TEXTOID, INT4OID, FLOAT8OID, INT8OID,    \
		JSONBOID, JSONBOID

/* A text; without when it is '', which takes away what was there. */
static void
set_text(char **place, const NullableDatum *arg)
{
	if (arg->isnull)
		return;
	*place = TextDatumGetCString(arg->value);
	if (**place == '\0')
		*place = NULL;
}

static void
set_name(LlmStandingDef *def, Datum name)
{
	def->name = *DatumGetName(name);
	if (NameStr(def->name)[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the name of an enrichment must not be empty")));
}

static void
set_number(int *place, const NullableDatum *arg, const char *name)
{
	if (arg->isnull)
		return;
	*place = DatumGetInt32(arg->value);
	if (*place < 1 || *place > LLM_ENRICH_ROWS_MAX)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("%s must be between 1 and %d", name, LLM_ENRICH_ROWS_MAX)));
}

/* Set what is given of args[N_ARGS]. */
static void
set_arguments(LlmStandingDef *def, const NullableDatum *args)
{
	static const struct
	{
		int to;
		int from;
	} places[] = {
		{LLM_ARG_MODEL, ARG_MODEL},
		{LLM_ARG_MAX_TOKENS, ARG_MAX_TOKENS},
		{LLM_ARG_TEMPERATURE, ARG_TEMPERATURE},
		{LLM_ARG_SEED, ARG_SEED},
		{LLM_ARG_RESPONSE_FORMAT, ARG_RESPONSE_FORMAT},
		{LLM_ARG_OPTIONS, ARG_OPTIONS},
	};

	if (!args[ARG_PROMPT].isnull && !args[ARG_EXPR].isnull)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("an enrichment needs prompt or expr, and not both")));
	if (!args[ARG_TARGET].isnull)
		def->target = *DatumGetName(args[ARG_TARGET].value);
	if (!args[ARG_PROMPT].isnull || !args[ARG_EXPR].isnull)
		def->prompt = def->expr = NULL;
	set_text(&def->prompt, &args[ARG_PROMPT]);
	set_text(&def->expr, &args[ARG_EXPR]);
	set_text(&def->filter, &args[ARG_FILTER]);
	set_number(&def->batch_size, &args[ARG_BATCH_SIZE], "batch_size");
	set_number(&def->concurrency, &args[ARG_CONCURRENCY], "concurrency");
	for (Size i = 0; i < lengthof(places); i++)
		if (!args[places[i].from].isnull)
			def->args[places[i].to] = args[places[i].from];
	if (!args[ARG_MODEL].isnull && VARSIZE_ANY_EXHDR(DatumGetTextPP(args[ARG_MODEL].value)) == 0)
		def->args[LLM_ARG_MODEL].isnull = true;
}

/* ---- checks ---- */

/* Rights that creating triggers needs, and what no worker could do; before anything is locked for it. */
static void
check_table(Oid relid)
{
	List *relids;
	ListCell *lc;

	if (pg_class_aclcheck(relid, GetUserId(), ACL_TRIGGER) != ACLCHECK_OK)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("permission denied for table %s", get_rel_name(relid)),
						errhint("A standing enrichment needs the right TRIGGER on its table.")));
	if (get_rel_persistence(relid) == RELPERSISTENCE_TEMP)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("\"%s\" is a temporary table", get_rel_name(relid)),
						errdetail("Background workers do not see its rows."),
						errhint("CALL llm_enrich for it.")));
	llm_standing_ddl_check_top(relid);
	relids = find_all_inheritors(relid, AccessShareLock, NULL);
	foreach (lc, relids)
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("\"%s\" has a foreign table among its partitions or children, \"%s\"",
							get_rel_name(relid), get_rel_name(lfirst_oid(lc))),
					 errhint("CALL llm_enrich for it.")));
}

/* The names of the columns, as name[]. */
static Datum
name_array(Oid relid, const Bitmapset *columns)
{
	Datum *names = palloc(sizeof(Datum) * Max(bms_num_members(columns), 1));
	int n = 0;
	int i = -1;

	while ((i = bms_next_member(columns, i)) >= 0)
	{
		int attno = i + FirstLowInvalidHeapAttributeNumber;
		Name name = palloc(sizeof(NameData));

		if (attno <= 0)
			continue;
		namestrcpy(name, get_attname(relid, (AttrNumber) attno, false));
		names[n++] = NameGetDatum(name);
	}
	return PointerGetDatum(construct_array(names, n, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR));
}

typedef struct Found
{
	Bitmapset *columns; /* as in attno - FirstLowInvalidHeapAttributeNumber */
	Index depth;        /* sub-selects between here and the query */
} Found;

/* Columns of the query's first table. */
static bool
find_columns(Node *node, void *context)
{
	Found *found = context;

	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		const Var *var = (const Var *) node;

		if (var->varno == 1 && var->varlevelsup == found->depth)
			found->columns =
				bms_add_member(found->columns, var->varattno - FirstLowInvalidHeapAttributeNumber);
		return false;
	}
	if (IsA(node, Query))
	{
		found->depth++;
		(void) query_tree_walker((Query *) node, find_columns, found, 0);
		found->depth--;
		return false;
	}
	return expression_tree_walker(node, find_columns, found);
}

/* Put the columns that generated ones are made of in their place; those are not generated. */
static void
resolve_generated(Oid relid, Found *found)
{
	Relation rel = table_open(relid, AccessShareLock);
	int i = -1;

	while ((i = bms_next_member(found->columns, i)) >= 0)
	{
		int attno = i + FirstLowInvalidHeapAttributeNumber;

		if (attno <= 0 || TupleDescAttr(RelationGetDescr(rel), attno - 1)->attgenerated == '\0')
			continue;
		found->columns = bms_del_member(found->columns, i);
		(void) find_columns(build_column_default(rel, attno), found);
	}
	table_close(rel, NoLock);
}

/* Which columns the last one of a query over one table, and its condition, read, but the target; 0 = it may be
 * any: the whole row is handed to a function. */
static Datum
find_sources(const LlmEnrichTarget *t, Query *query)
{
	Found found = {0};

	(void) find_columns(llast(query->targetList), &found);
	(void) find_columns(query->jointree->quals, &found);
	resolve_generated(t->relid, &found);
	if (bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, found.columns))
		return (Datum) 0;
	return name_array(t->relid,
					  bms_del_member(found.columns, t->attno - FirstLowInvalidHeapAttributeNumber));
}

/* Run sql without a row, so that rights and types are looked at; its sources, in cxt. */
static Datum
try_query(const LlmEnrichTarget *t, const char *sql, MemoryContext cxt)
{
	SPIPlanPtr plan;
	const CachedPlanSource *source;
	Datum sources;
	MemoryContext old;

	SPI_connect();
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	source = linitial(SPI_plan_get_plan_sources(plan));
	old = MemoryContextSwitchTo(cxt);
	sources = find_sources(t, linitial_node(Query, source->query_list));
	MemoryContextSwitchTo(old);
	if (SPI_execute_plan(plan, NULL, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not run \"%s\"", sql);
	SPI_finish();
	return sources;
}

/* The columns that a definition is known to read, a list of String. */
static List *
source_names(const LlmStandingDef *def)
{
	Datum *names;
	int n = 0;
	List *list = NIL;

	if (def->sources != (Datum) 0)
		deconstruct_array(DatumGetArrayTypeP(def->sources), NAMEOID, NAMEDATALEN, false,
						  TYPALIGN_CHAR, &names, NULL, &n);
	for (int i = 0; i < n; i++)
		list = lappend(list, makeString(pstrdup(NameStr(*DatumGetName(names[i])))));
	return list;
}

/* Raise an error when what an enrichment writes comes back to it through others of the table: they would never
 * end. The table is locked, so that no two make a circle at the same time. What reads whole rows does not count, see standing_trigger.c. */
static void
check_circle(const LlmStandingDef *def)
{
	int n;
	LlmStandingDef *defs = llm_standing_defs_list(&n);
	List *changed = list_make1(makeString(pstrdup(NameStr(def->target))));
	List *sources = source_names(def);
	int before;

	do
	{
		before = list_length(changed);
		for (int i = 0; i < n; i++)
			if (defs[i].relation == def->relation && defs[i].id != def->id &&
				list_intersection(source_names(&defs[i]), changed) != NIL)
				changed = list_append_unique(changed, makeString(NameStr(defs[i].target)));
	} while (list_length(changed) > before);
	sources = list_intersection(sources, changed);
	if (sources != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("enrichment \"%s\" would read in \"%s\" what follows from its own values",
						NameStr(def->name), strVal(linitial(sources))),
				 errdetail("Other enrichments of the table would go round in a circle with it.")));
}

/* The worker has no settings for calls: what those of this session say for args, of a call, is kept as an argument. The
 * model in any case, so that one more does not make a question of it. */
static void
keep_settings(LlmStandingDef *def, const NullableDatum *args)
{
	LlmOptions o;
	LlmFailure f;
	const LlmModel *model = NULL;

	if (llm_options_read(&o, args, &f))
		model = llm_catalog_find_model(o.model, true, &f);
	if (model == NULL)
		llm_failure_raise(&f);
	llm_options_set(&def->args[LLM_ARG_MODEL], CStringGetTextDatum(model->name));
	if (def->id != 0) /* is altered: what is not given stays */
		return;
	if (o.has_max_tokens)
		llm_options_set(&def->args[LLM_ARG_MAX_TOKENS], Int32GetDatum(o.max_tokens));
	if (o.has_temperature)
		llm_options_set(&def->args[LLM_ARG_TEMPERATURE], Float8GetDatum(o.temperature));
}

/* Raise what is wrong with a definition for its owner, and find out what it reads. It is looked at as the owner,
 * whoever asks: planning its SQL may already run functions. */
static void
check_definition(LlmStandingDef *def)
{
	LlmEnrichTarget *t;
	LlmEnrich call = {0};
	LlmFailure f;
	Oid user;
	int context;
	int nest_level;

	if (!llm_client_available(&f))
		llm_failure_raise(&f);
	if ((def->prompt == NULL) == (def->expr == NULL))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("an enrichment needs prompt or expr, and not both"),
						errhint("prompt is a template such as 'Summarise: {body}', expr an SQL "
								"expression that gives the prompt.")));
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(def->owner,
						   context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	nest_level = NewGUCNestLevel();
	memcpy(call.args, def->args, sizeof(call.args));
	(void) llm_enrich_check_call(&call);
	keep_settings(def, call.args);
	(void) set_config_option("search_path", def->search_path, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	t = llm_enrich_target_open(def->relation, NameStr(def->target), def->prompt, def->expr,
							   def->filter);
	def->sources =
		try_query(t,
				  psprintf("SELECT %s, %s.tableoid, %s.ctid, %s.xmin, %s FROM %s WHERE %s LIMIT 0",
						   t->key, t->alias, t->alias, t->alias, t->prompt, t->table, t->wanted),
				  CurrentMemoryContext);
	AtEOXact_GUC(true, nest_level);
	SetUserIdAndSecContext(user, context);
}

/* ---- a definition by its name ---- */

static Oid
owner_of(Oid relid)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid owner = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
		ReleaseSysCache(tuple);
	}
	return owner;
}

/* The one in the first argument, which the current user may change: as a member of its owner, and of the table's
 * where that will do. With whole, the table and the owner have to be there: else it can only be dropped. */
static LlmStandingDef *
find(FunctionCallInfo fcinfo, bool table_owner_too, bool whole)
{
	LlmStandingDef *def;
	const char *name;
	Oid table_owner;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name must not be NULL")));
	name = NameStr(*PG_GETARG_NAME(0));
	def = llm_standing_defs_find(name);
	if (def != NULL && whole)
	{
		/* What another transaction is about to change is not written over. */
		llm_standing_defs_lock(def->id);
		def = llm_standing_defs_read(def->id);
	}
	if (def == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("enrichment \"%s\" does not exist", name),
						errhint("The view llm.enrichments lists those that you may see.")));
	table_owner = owner_of(def->relation);
	if (!has_privs_of_role(GetUserId(), def->owner) &&
		!(table_owner_too && OidIsValid(table_owner) &&
		  has_privs_of_role(GetUserId(), table_owner)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for enrichment \"%s\"", name),
				 errhint("Its owner may change it; the table's owner may pause and drop it.")));
	if (whole && !SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(def->owner)))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("the owner of enrichment \"%s\" does not exist any more", name),
						errhint("Use llm_enrich_drop.")));
	if (whole && !OidIsValid(table_owner))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("the table of enrichment \"%s\" does not exist any more", name),
						errhint("Use llm_enrich_drop.")));
	return def;
}

static void
raise_taken(const LlmStandingDef *def)
{
	if (llm_standing_defs_find(NameStr(def->name)) != NULL)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT),
						errmsg("enrichment \"%s\" already exists", NameStr(def->name))));
	ereport(ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT),
					errmsg("column \"%s\" of table \"%s\" has an enrichment already",
						   NameStr(def->target), get_rel_name(def->relation)),
					errhint("A column has one at most: use llm_enrich_alter.")));
}

static void
check_declared(FunctionCallInfo fcinfo, const Oid *args, int nargs, Oid result)
{
	LlmDeclared d = {nargs, args, result, false};

	llm_declared_check(fcinfo, &d);
}

/* ---- the functions ---- */

/* llm_enrich_create(name, relation, target, .., backfill) */
Datum
llm_enrich_create(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {NAMEOID, REGCLASSOID, ARG_TYPES, BOOLOID};
	LlmStandingDef def = {0};

	check_declared(fcinfo, types, lengthof(types), VOIDOID);
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("name, relation and target must not be NULL")));
	set_name(&def, PG_GETARG_DATUM(0));
	def.relation = PG_GETARG_OID(1);
	def.owner = GetUserId();
	def.search_path = pstrdup(GetConfigOption("search_path", false, false));
	def.batch_size = 64;
	def.concurrency = 128;
	def.active = true;
	def.backfill = PG_ARGISNULL(lengthof(types) - 1) || PG_GETARG_BOOL(lengthof(types) - 1);
	for (int i = 0; i < LLM_ARG_COUNT; i++)
		def.args[i].isnull = true;
	set_arguments(&def, &fcinfo->args[2]);
	check_definition(&def);
	check_table(def.relation);
	LockRelationOid(def.relation, ShareRowExclusiveLock);
	check_circle(&def);
	if (!llm_standing_defs_insert(&def))
		raise_taken(&def);
	(void) llm_standing_ddl_create(def.id, def.relation);
	llm_job_commit_note(def.owner, def.id, false);
	PG_RETURN_VOID();
}

/* llm_enrich_alter(name, target, .., backfill, new_name): what is NULL stays */
Datum
llm_enrich_alter(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {NAMEOID, ARG_TYPES, BOOLOID, NAMEOID};
	const NullableDatum *args = &fcinfo->args[1];
	LlmStandingDef *def;
	bool asks_other;

	check_declared(fcinfo, types, lengthof(types), VOIDOID);
	def = find(fcinfo, false, true);
	set_arguments(def, args);
	/* SQL is read as whoever wrote it saw it. */
	if (!args[ARG_EXPR].isnull || !args[ARG_FILTER].isnull)
		def->search_path = pstrdup(GetConfigOption("search_path", false, false));
	asks_other = !args[ARG_TARGET].isnull || !args[ARG_PROMPT].isnull || !args[ARG_EXPR].isnull ||
				 !args[ARG_FILTER].isnull;
	check_definition(def);
	LockRelationOid(def->relation, ShareUpdateExclusiveLock);
	check_circle(def);
	/* Rows that had no prompt, or were filtered out, may be to be done now. */
	if (args[N_ARGS].isnull ? asks_other : DatumGetBool(args[N_ARGS].value))
		def->backfill = true;
	if (!args[N_ARGS + 1].isnull)
		set_name(def, args[N_ARGS + 1].value);
	if (!llm_standing_defs_update(def))
		raise_taken(def);
	llm_job_commit_note(def->owner, def->id, false);
	PG_RETURN_VOID();
}

static const Oid name_arg[] = {NAMEOID, BOOLOID}; /* resume has both */

/* llm_enrich_drop(name) */
Datum
llm_enrich_drop(PG_FUNCTION_ARGS)
{
	LlmStandingDef *def;

	check_declared(fcinfo, name_arg, 1, VOIDOID);
	def = find(fcinfo, true, false);
	llm_standing_ddl_drop(def->id, def->relation);
	llm_standing_defs_remove(def->id);
	llm_job_commit_note(def->owner, def->id, false);
	PG_RETURN_VOID();
}

/* llm_enrich_pause(name) */
Datum
llm_enrich_pause(PG_FUNCTION_ARGS)
{
	LlmStandingDef *def;

	check_declared(fcinfo, name_arg, 1, VOIDOID);
	def = find(fcinfo, true, true);
	llm_standing_defs_pause(def->id, NULL);
	llm_job_commit_note(def->owner, def->id, false);
	PG_RETURN_VOID();
}

/* llm_enrich_resume(name, backfill) */
Datum
llm_enrich_resume(PG_FUNCTION_ARGS)
{
	LlmStandingDef *def;
	bool created;

	check_declared(fcinfo, name_arg, lengthof(name_arg), VOIDOID);
	def = find(fcinfo, false, true);
	check_definition(def);
	llm_standing_ddl_check_top(def->relation);
	LockRelationOid(def->relation, ShareUpdateExclusiveLock);
	check_circle(def);
	def->active = true;
	def->reason = NULL;
	created = llm_standing_ddl_create(def->id, def->relation);
	/* Without its triggers rows have come that nobody queued. */
	if (PG_ARGISNULL(1) ? created : PG_GETARG_BOOL(1))
		def->backfill = true;
	if (!llm_standing_defs_update(def))
		raise_taken(def);
	llm_job_commit_note(def->owner, def->id, false);
	PG_RETURN_VOID();
}

/* llm_enrich_retry_failed(name): the number of rows that are queued again */
Datum
llm_enrich_retry_failed(PG_FUNCTION_ARGS)
{
	static LlmOwnedStatement q = {
		"WITH failed AS (DELETE FROM llm.enrich_failures WHERE relation = $2 AND target = $3 "
		"RETURNING key) INSERT INTO llm.enrich_queue (enrichment, due, hash, key, only_null) "
		"SELECT $1, clock_timestamp(), jsonb_hash_extended(key, 0), key, false FROM failed",
		3,
		{INT8OID, OIDOID, NAMEOID}};
	LlmStandingDef *def;
	Datum values[3];
	int n;

	check_declared(fcinfo, name_arg, 1, INT8OID);
	def = find(fcinfo, false, true);
	values[0] = Int64GetDatum(def->id);
	values[1] = ObjectIdGetDatum(def->relation);
	values[2] = NameGetDatum(&def->target);
	n = llm_job_table_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
	if (n > 0)
		llm_job_commit_note(def->owner, def->id, false);
	PG_RETURN_INT64(n);
}
