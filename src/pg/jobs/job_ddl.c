/*
 * pg/jobs/job_ddl.c - DROP DATABASE and its like do not wait for our workers.
 *
 * These commands fail when anybody else is connected to the database after 5 s. Sessions of users are
 * their business; our workers are ended before the command and started again after it. What they were
 * doing is queued again.
 */
#include "postgres.h"

#include "pg/jobs/job_ddl.h"

#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pg/compat.h"
#include "pg/workers.h"
#include "tcop/utility.h"

#define HOLD_MS 60000 /* should the command's process die: workers may start again after this */

static ProcessUtility_hook_type prev_utility = NULL;

/* The value of an option that names a database, NULL = not given. */
static const char *
option_named(List *options, const char *name)
{
	ListCell *lc;

	foreach (lc, options)
	{
		DefElem *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, name) == 0)
			return defGetString(def);
	}
	return NULL;
}

/* The database that the command wants for itself, NULL = it is another command. */
static const char *
database_of(Node *command)
{
	switch (nodeTag(command))
	{
		case T_DropdbStmt:
			return castNode(DropdbStmt, command)->dbname;
		case T_CreatedbStmt:
			return option_named(castNode(CreatedbStmt, command)->options, "template");
		case T_AlterDatabaseStmt:
			if (option_named(castNode(AlterDatabaseStmt, command)->options, "tablespace") == NULL)
				return NULL;
			return castNode(AlterDatabaseStmt, command)->dbname;
		case T_RenameStmt:
			if (castNode(RenameStmt, command)->renameType != OBJECT_DATABASE)
				return NULL;
			return castNode(RenameStmt, command)->subname;
		default:
			return NULL;
	}
}

static void
run_utility(PlannedStmt *stmt, const char *query, bool read_only_tree,
			ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
			DestReceiver *dest, QueryCompletion *qc)
{
	const char *name = database_of(stmt->utilityStmt);
	Oid database = name ? get_database_oid(name, true) : InvalidOid;
	bool held = OidIsValid(database) && llm_compat_database_owned(database, GetUserId()) &&
				llm_workers_hold(database, HOLD_MS);

	PG_TRY();
	{
		if (prev_utility)
			prev_utility(stmt, query, read_only_tree, context, params, env, dest, qc);
		else
			standard_ProcessUtility(stmt, query, read_only_tree, context, params, env, dest, qc);
	}
	PG_FINALLY();
	{
		if (held)
			llm_workers_release(database);
	}
	PG_END_TRY();
}

void
llm_job_ddl_init(void)
{
	prev_utility = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
