/* pg/owned.c - statements as the owner of our tables; see the header. */
#include "postgres.h"

#include "pg/owned.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

Oid
llm_owned_table(const char *name)
{
	Oid schema = get_namespace_oid("llm", true);

	return OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
}

/* Names mean what they mean for us. Plans must not depend on how many rows there were when they were made:
 * only the index will do. */
static const char *const pins[][2] = {
	{"search_path", "pg_catalog, pg_temp"},
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_indexscan", "on"},
	{"enable_nestloop", "on"},
	{"jit", "off"},
};

void
llm_owned_enter(const char *name, LlmOwnedUser *before)
{
	Oid relid = llm_owned_table(name);
	Relation rel;
	Oid owner;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table \"llm.%s\" does not exist", name),
				 errhint("Use ALTER EXTENSION llm_infer UPDATE.")));
	rel = table_open(relid, AccessShareLock);
	owner = rel->rd_rel->relowner;
	table_close(rel, NoLock);
	GetUserIdAndSecContext(&before->user, &before->context);
	/* Triggers of the owner must not leave anything behind for the caller to run at COMMIT. */
	SetUserIdAndSecContext(owner, before->context | SECURITY_LOCAL_USERID_CHANGE |
									  SECURITY_RESTRICTED_OPERATION);
	before->nest_level = NewGUCNestLevel();
	for (Size i = 0; i < lengthof(pins); i++)
		(void) set_config_option(pins[i][0], pins[i][1], PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
}

void
llm_owned_leave(const LlmOwnedUser *before)
{
	SPI_finish();
	AtEOXact_GUC(true, before->nest_level);
	SetUserIdAndSecContext(before->user, before->context);
}

int
llm_owned_run(LlmOwnedStatement *q, Datum *values, const char *nulls, LlmOwnedSight sight)
{
	int rc;

	if (q->plan == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(q->sql, q->n_args, q->types);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			elog(ERROR, "could not prepare \"%s\": %s", q->sql, SPI_result_code_string(SPI_result));
		q->plan = plan;
	}
	if (sight != LLM_OWNED_OF_TRANSACTION)
		rc = SPI_execute_snapshot(q->plan, values, nulls, GetLatestSnapshot(), InvalidSnapshot,
								  sight == LLM_OWNED_OF_NOW, true, 0);
	else
		rc = SPI_execute_plan(q->plan, values, nulls, false, 0);
	if (rc < 0)
		elog(ERROR, "could not run \"%s\": %s", q->sql, SPI_result_code_string(rc));
	return (int) SPI_processed;
}

Datum
llm_owned_value(int row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

Datum
llm_owned_get(int row, int column)
{
	bool isnull;

	return llm_owned_value(row, column, &isnull);
}

Datum
llm_owned_array(Datum *values, int n, Oid type)
{
	int16 typlen;
	bool typbyval;
	char typalign;

	get_typlenbyvalalign(type, &typlen, &typbyval, &typalign);
	return PointerGetDatum(construct_array(values, n, type, typlen, typbyval, typalign));
}
