/* pg/standing/standing_ddl.c - CREATE TRIGGER and what follows it; see the header. */
#include "postgres.h"

#include "pg/standing/standing_ddl.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "commands/extension.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "nodes/bitmapset.h"
#include "nodes/parsenodes.h"
#include "pg/standing/standing_defs.h"
#include "pg/standing/standing_queue.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* The two triggers of an enrichment. */
static const struct
{
	const char *name; /* printf format with the id */
	const char *event;
} kinds[] = {
	{"llm_enrich_" INT64_FORMAT "_insert", "INSERT ON %s REFERENCING NEW TABLE AS llm_new"},
	{"llm_enrich_" INT64_FORMAT "_update",
	 "UPDATE ON %s REFERENCING OLD TABLE AS llm_old NEW TABLE AS llm_new"},
};

/* llm.enrich_changed, for whoever asks: rights to schemas are no matter here. */
static Oid
function_oid(void)
{
	Oid schema = get_namespace_oid("llm", true);

	if (!OidIsValid(schema))
		return InvalidOid;
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum("enrich_changed"),
						   PointerGetDatum(buildoidvector(NULL, 0)), ObjectIdGetDatum(schema));
}

/* A temporary child's rows are seen by no worker. */
static bool
is_temporary(Oid relid)
{
	return get_rel_persistence(relid) == RELPERSISTENCE_TEMP;
}

#define BELOW "the table is a partition or child of another, through which rows can change unseen"

void
llm_standing_ddl_check_top(Oid relid)
{
	if (has_superclass(relid))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg(BELOW),
						errhint("Enrich the topmost table, with a filter on tableoid where it is "
								"for the rows of this one.")));
}

/* ---- one table ---- */

static void
create(int64 id, Oid relid, Size kind)
{
	char *name = psprintf(kinds[kind].name, id);
	char *table = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
											 get_rel_name(relid));
	StringInfoData sql;
	ObjectAddress trigger;
	ObjectAddress extension;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TRIGGER %s AFTER ", name);
	appendStringInfo(&sql, kinds[kind].event, table);
	appendStringInfo(&sql,
					 " FOR EACH STATEMENT EXECUTE FUNCTION llm.enrich_changed('" INT64_FORMAT "')",
					 id);
	if (SPI_execute(sql.data, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not run \"%s\"", sql.data);
	/* As ALTER TRIGGER .. DEPENDS ON EXTENSION, which is for the table's owner alone. */
	ObjectAddressSet(trigger, TriggerRelationId, get_trigger_oid(relid, name, false));
	ObjectAddressSet(extension, ExtensionRelationId, get_extension_oid("llm_infer", false));
	recordDependencyOn(&trigger, &extension, DEPENDENCY_AUTO_EXTENSION);
}

static bool
has(int64 id, Oid relid, Size kind)
{
	return OidIsValid(get_trigger_oid(relid, psprintf(kinds[kind].name, id), true));
}

bool
llm_standing_ddl_present(int64 id, Oid relid)
{
	return has(id, relid, 0) && has(id, relid, 1);
}

/* ---- a table and those below it ---- */

bool
llm_standing_ddl_create(int64 id, Oid relid)
{
	List *relids = find_all_inheritors(relid, ShareRowExclusiveLock, NULL);
	bool any = false;
	ListCell *lc;

	SPI_connect();
	foreach (lc, relids)
	{
		char relkind = get_rel_relkind(lfirst_oid(lc));

		if (is_temporary(lfirst_oid(lc)) || relkind == RELKIND_FOREIGN_TABLE)
			continue;
		for (Size i = 0; i < lengthof(kinds); i++)
		{
			if (has(id, lfirst_oid(lc), i))
				continue;
			create(id, lfirst_oid(lc), i);
			any = true;
		}
	}
	SPI_finish();
	return any;
}

void
llm_standing_ddl_drop(int64 id, Oid relid)
{
	List *relids;
	ObjectAddresses *triggers = new_object_addresses();
	ListCell *lc;

	LockRelationOid(relid, AccessExclusiveLock);
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		return; /* they have gone with the table */
	relids = find_all_inheritors(relid, AccessExclusiveLock, NULL);
	foreach (lc, relids)
		for (Size i = 0; i < lengthof(kinds); i++)
		{
			ObjectAddress trigger;

			ObjectAddressSet(trigger, TriggerRelationId,
							 get_trigger_oid(lfirst_oid(lc), psprintf(kinds[i].name, id), true));
			if (OidIsValid(trigger.objectId))
				add_exact_object_address(&trigger, triggers);
		}
	performMultipleDeletions(triggers, DROP_RESTRICT, 0);
	free_object_addresses(triggers);
}

static bool
inherits(Oid relid, Oid ancestor)
{
	Oid below = get_rel_type_id(relid);
	Oid above = get_rel_type_id(ancestor);

	return OidIsValid(below) && OidIsValid(above) && typeInheritsFrom(below, above);
}

bool
llm_standing_ddl_concerns(const LlmStandingDef *def, Oid relid)
{
	return relid == def->relation || inherits(relid, def->relation);
}

/* ---- the hook ---- */

static ProcessUtility_hook_type prev_utility = NULL;

/* Ids of the enrichments whose triggers a table has, int64 *. */
static List *
ids_of(Oid relid)
{
	Oid function = function_oid();
	Relation rel = table_open(relid, AccessShareLock);
	List *ids = NIL;

	for (int i = 0; OidIsValid(function) && rel->trigdesc != NULL && i < rel->trigdesc->numtriggers;
		 i++)
	{
		const Trigger *t = &rel->trigdesc->triggers[i];
		int64 *id;

		if (t->tgfoid != function || t->tgnargs != 1 || !TRIGGER_FOR_INSERT(t->tgtype))
			continue;
		id = palloc(sizeof(int64));
		*id = strtoll(t->tgargs[0], NULL, 10);
		ids = lappend(ids, id);
	}
	table_close(rel, NoLock);
	return ids;
}

/* A table has got a parent: what enriches that enriches it. */
static void
follow_attach(Oid relid, Oid parent)
{
	ListCell *lc;

	/* CREATE TABLE IF NOT EXISTS may have found another table */
	if (is_temporary(relid) || !inherits(relid, parent))
		return;
	foreach (lc, ids_of(relid))
	{
		const LlmStandingDef *def = llm_standing_defs_read(*(int64 *) lfirst(lc));

		if (def != NULL && def->relation == relid && def->active)
			llm_standing_defs_pause(def->id, BELOW);
	}
	foreach (lc, ids_of(parent))
		(void) llm_standing_ddl_create(*(int64 *) lfirst(lc), relid);
}

/* A table has lost a parent. */
static void
follow_detach(Oid relid)
{
	ListCell *lc;

	foreach (lc, ids_of(relid))
	{
		int64 id = *(int64 *) lfirst(lc);
		const LlmStandingDef *def = llm_standing_defs_read(id);

		if (def != NULL && !llm_standing_ddl_concerns(def, relid))
			llm_standing_ddl_drop(id, relid);
	}
}

static Oid
oid_of(Node *name)
{
	return RangeVarGetRelid(castNode(RangeVar, name), NoLock, true);
}

static void
follow_create(const CreateStmt *stmt)
{
	/* Its name may be that of a temporary table too. */
	Oid relid =
		get_relname_relid(stmt->relation->relname, RangeVarGetCreationNamespace(stmt->relation));
	ListCell *lc;

	foreach (lc, stmt->inhRelations)
	{
		Oid parent = oid_of(lfirst(lc));

		if (OidIsValid(relid) && OidIsValid(parent))
			follow_attach(relid, parent);
	}
}

static void
follow_alter(const AlterTableStmt *stmt)
{
	Oid relid = oid_of((Node *) stmt->relation);
	ListCell *lc;

	foreach (lc, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		Oid other;

		switch (cmd->subtype)
		{
			case AT_AttachPartition:
				other = oid_of((Node *) castNode(PartitionCmd, cmd->def)->name);
				if (OidIsValid(relid) && OidIsValid(other) &&
					get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
					follow_attach(other, relid);
				break;
			case AT_AddInherit:
				other = oid_of(cmd->def);
				if (OidIsValid(relid) && OidIsValid(other))
					follow_attach(relid, other);
				break;
			case AT_DetachPartition:
			case AT_DetachPartitionFinalize:
				other = oid_of((Node *) castNode(PartitionCmd, cmd->def)->name);
				if (OidIsValid(other))
					follow_detach(other);
				break;
			case AT_DropInherit:
				if (OidIsValid(relid))
					follow_detach(relid);
				break;
			default:
				break;
		}
	}
}

/* A column of a table has another name. What is queued has the names of the key's columns. */
static void
rename_keys(Oid relid, const char *column, const char *name)
{
	AttrNumber attno = get_attnum(relid, name);
	Oid constraint;
	ListCell *lc;

	foreach (lc, ids_of(relid))
	{
		const LlmStandingDef *def = llm_standing_defs_read(*(int64 *) lfirst(lc));

		if (def != NULL && def->relation == relid &&
			bms_is_member(attno - FirstLowInvalidHeapAttributeNumber,
						  get_primary_key_attnos(relid, true, &constraint)))
			llm_standing_queue_rename(def->id, column, name);
	}
}

/* The same column, in the table and those below it. */
static void
follow_rename(const RenameStmt *stmt)
{
	Oid relid = oid_of((Node *) stmt->relation);
	ListCell *lc;

	if (!OidIsValid(relid))
		return;
	foreach (lc, find_all_inheritors(relid, AccessShareLock, NULL))
		rename_keys(lfirst_oid(lc), stmt->subname, stmt->newname);
}

static void
run_utility(PlannedStmt *stmt, const char *query, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
			DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_utility)
		prev_utility(stmt, query, read_only_tree, context, params, env, dest, qc);
	else
		standard_ProcessUtility(stmt, query, read_only_tree, context, params, env, dest, qc);
	if (IsA(stmt->utilityStmt, CreateStmt) &&
		castNode(CreateStmt, stmt->utilityStmt)->inhRelations != NIL && OidIsValid(function_oid()))
	{
		CommandCounterIncrement();
		follow_create(castNode(CreateStmt, stmt->utilityStmt));
	}
	else if (IsA(stmt->utilityStmt, AlterTableStmt) && OidIsValid(function_oid()))
	{
		CommandCounterIncrement();
		follow_alter(castNode(AlterTableStmt, stmt->utilityStmt));
	}
	else if (IsA(stmt->utilityStmt, RenameStmt) &&
			 castNode(RenameStmt, stmt->utilityStmt)->renameType == OBJECT_COLUMN &&
			 castNode(RenameStmt, stmt->utilityStmt)->relationType == OBJECT_TABLE &&
			 OidIsValid(function_oid()))
	{
		CommandCounterIncrement();
		follow_rename(castNode(RenameStmt, stmt->utilityStmt));
	}
}

void
llm_standing_ddl_init(void)
{
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
