/* pg/memo/memo_funcs.c - llm_memo_forget, and the function behind llm.stat_memo. */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pg/catalog.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/guc.h"
#include "pg/memo/memo_ring.h"
#include "pg/memo/memo_table.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_memo_forget);
PG_FUNCTION_INFO_V1(llm_stat_memo);
LLM_EXPORTS_END

static List *
servers_of(text *model)
{
	LlmFailure f = {0};
	const LlmModel *found = llm_catalog_find_model(text_to_cstring(model), false, &f);

	if (found == NULL)
		llm_failure_raise(&f);
	return llm_catalog_list_same(found);
}

/* llm_memo_forget(model text): one's own entries; how many. Those that come from the ring while this runs
 * are in the table when the launcher's transaction is over, and it takes none of those marked here. */
Datum
llm_memo_forget(PG_FUNCTION_ARGS)
{
	static const Oid args[] = {TEXTOID};
	static const LlmDeclared declared = {lengthof(args), args, INT8OID, false};
	List *servers; /* NIL = all */
	Oid *roles;
	int n_roles;
	int64 n = 0;

	llm_declared_check(fcinfo, &declared);
	PreventCommandIfReadOnly("llm_memo_forget()");
	PreventCommandDuringRecovery("llm_memo_forget()");
	servers = PG_ARGISNULL(0) ? NIL : servers_of(PG_GETARG_TEXT_PP(0));
	roles = llm_memo_table_roles(GetUserId(), &n_roles);
	if (llm_memo_ring_available())
		n = llm_memo_ring_forget(servers, roles, n_roles);
	llm_memo_table_wait_writer();
	PG_RETURN_INT64(n + llm_memo_table_forget(servers, roles, n_roles));
}

/* llm.stat_get_memo(): what is counted of this database. Counters tell about other roles' requests, and
 * are for monitors. */
Datum
llm_stat_memo(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT8OID, INT8OID, INT8OID, INT8OID,
								INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	bool nulls[lengthof(types)];
	Datum values[lengthof(types)];
	LlmMemoCounts c;

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	memset(&c, 0, sizeof(c));
	if (llm_memo_ring_available())
		llm_memo_ring_counts(&c);
	values[0] = Int64GetDatum((int64) llm_guc_memo_size * 1024);
	values[1] = Int64GetDatum(c.hits);
	values[2] = Int64GetDatum(c.misses);
	values[3] = Int64GetDatum(c.kept);
	values[4] = Int64GetDatum(c.pending);
	values[5] = Int64GetDatum(c.lost);
	values[6] = Int64GetDatum(c.evicted);
	values[7] = TimestampTzGetDatum(c.since);
	memset(nulls, !all, sizeof(nulls));
	nulls[0] = false;
	nulls[7] = !all || c.since == 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}
