/*
 * pg/replicated.c - what logical replication brings for the tables of schema llm is left out.
 *
 * A publication FOR ALL TABLES has them too. A job that came so would be run here and there, its later
 * changes would be written over another job with the same number, and an enrichment would be that of tables
 * which do not exist here. So each of these tables has a trigger that fires in apply workers alone
 * (ENABLE REPLICA) and keeps the row away. Sessions that set session_replication_role = replica, as some
 * do when they restore a dump, are no such workers. What our own functions write there, called by a trigger
 * of the user's that fires for a row which has arrived, is a change made here: they run as a local user
 * (owned.h), an apply worker's own changes do not.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "replication/logicalworker.h"
#include "replication/origin.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_skip_replicated);
LLM_EXPORTS_END

/* llm.skip_replicated(): a trigger BEFORE INSERT OR UPDATE OR DELETE, FOR EACH ROW */
Datum
llm_skip_replicated(PG_FUNCTION_ARGS)
{
	static const LlmDeclared as_trigger = {0, NULL, TRIGGEROID, false};
	TriggerData *data = (TriggerData *) fcinfo->context;

	llm_declared_check(fcinfo, &as_trigger);
	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(data->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
						errmsg("llm.skip_replicated is for triggers BEFORE changes of rows")));
	if ((IsLogicalWorker() || replorigin_session_origin != InvalidRepOriginId) &&
		!InLocalUserIdChange())
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple
																   : data->tg_trigtuple);
}
