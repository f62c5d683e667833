/*
 * pg/jobs/starter.c - the short background worker that wants a launcher for llm_infer.databases.
 *
 * Launchers are otherwise wanted by those who submit: after a start of the server, a crash or a
 * promotion nobody does, and the jobs are in tables of databases that only a connection can read. A
 * launcher that finds no extension, or no jobs, ends at once.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/guc.h"
#include "pg/workers.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

LLM_EXPORTS_BEGIN
extern PGDLLEXPORT void llm_starter_main(Datum arg);
LLM_EXPORTS_END

#define RETRY_MS 200 /* while the table of workers is full */

/* True when name is in the list, which then is without it. */
static bool
take_name(List **names, const char *name)
{
	ListCell *lc;

	foreach (lc, *names)
	{
		if (strcmp(lfirst(lc), name) == 0)
		{
			*names = foreach_delete_current(*names, lc);
			return true;
		}
	}
	return false;
}

/* Databases to look at, Oids in cxt; a name without a database gets a line in the log. */
static List *
list_databases(List *names, bool all, MemoryContext cxt)
{
	Relation rel = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	List *oids = NIL;
	HeapTuple tuple;
	ListCell *lc;

	while (HeapTupleIsValid(tuple = heap_getnext(scan, ForwardScanDirection)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		bool named = take_name(&names, NameStr(form->datname));
		MemoryContext old = MemoryContextSwitchTo(cxt);

		if ((named || all) && form->datallowconn && !form->datistemplate)
			oids = lappend_oid(oids, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	foreach (lc, names)
		ereport(WARNING, (errmsg("llm_infer: database \"%s\" of llm_infer.databases does not exist",
								 (char *) lfirst(lc))));
	return oids;
}

void
llm_starter_main(Datum arg)
{
	MemoryContext cxt = TopMemoryContext; /* outlives the transaction */
	List *names = NIL;
	List *oids;
	ListCell *lc;
	bool all;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	all = strcmp(llm_guc_databases, "*") == 0;
	if (!all && !SplitIdentifierString(pstrdup(llm_guc_databases), ',', &names))
		ereport(WARNING, (errmsg("llm_infer: llm_infer.databases is not a list of names")));
	oids = list_databases(names, all, cxt);
	CommitTransactionCommand();
	foreach (lc, oids)
	{
		while (!llm_workers_wake(lfirst_oid(lc), InvalidOid, 0))
		{
			CHECK_FOR_INTERRUPTS();
			pg_usleep(RETRY_MS * 1000L);
		}
	}
	proc_exit(0);
}
