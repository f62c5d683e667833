/*
 * pg/jobs/job_wait.c - waiting for the end of a job, and giving up the statement's snapshot for it.
 *
 * SELECT llm_job_wait(42) runs below an executor that has registered a snapshot, once for the query
 * and once for its state, and has pushed it. As long as that is there no row that died since can be
 * vacuumed, in any table. A query that reads no table has no use for it: it is given up before the
 * sleep, and a new one takes its place afterwards, as if the statement had begun then. This is done
 * only where the snapshot is the only active one, belongs to a SELECT that the client has sent, was
 * taken in this subtransaction, and where the isolation level lets statements have their own.
 * Elsewhere (in a function, over a table, in REPEATABLE READ) the wait works but holds it. An error
 * in between ends the statement; nothing looks at the snapshots of a failed one.
 */
#include "postgres.h"

#include "pg/jobs/job_wait.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/workers.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define LOOK_MS 1000 /* ends that nobody tells of: a cancel in a prepared transaction, a standby */

/* The query whose snapshot was given up, or NULL. */
static QueryDesc *
give_up_snapshot(void)
{
	Portal portal = ActivePortal;
	QueryDesc *query = portal ? portal->queryDesc : NULL;

	if (query == NULL || query->estate == NULL || portal->strategy != PORTAL_ONE_SELECT)
		return NULL;
	if (IsolationUsesXactSnapshot() || portal->createSubid != GetCurrentSubTransactionId())
		return NULL;
	if (query->plannedstmt->relationOids != NIL || query->estate->es_snapshot != query->snapshot)
		return NULL;
	if (!ActiveSnapshotSet() || GetActiveSnapshot() != query->snapshot)
		return NULL;
	PopActiveSnapshot();
	if (ActiveSnapshotSet())
	{
		PushActiveSnapshot(query->snapshot);
		return NULL;
	}
	UnregisterSnapshotFromOwner(query->snapshot, portal->resowner);
	UnregisterSnapshotFromOwner(query->snapshot, portal->resowner);
	query->snapshot = query->estate->es_snapshot = InvalidSnapshot;
	return query;
}

static void
take_snapshot(QueryDesc *query)
{
	ResourceOwner owner = ActivePortal->resowner;

	query->snapshot = RegisterSnapshotOnOwner(GetTransactionSnapshot(), owner);
	query->estate->es_snapshot = RegisterSnapshotOnOwner(query->snapshot, owner);
	PushActiveSnapshot(query->snapshot);
}

bool
llm_job_wait_until(bool (*finished)(void *arg), void *arg, int64 timeout_ms)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), timeout_ms);
	QueryDesc *query = give_up_snapshot();
	bool done;

	for (;;)
	{
		long left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);

		CHECK_FOR_INTERRUPTS();
		/* An end between the look and the sleep must not be missed. */
		llm_workers_prepare_wait();
		done = finished(arg);
		if (done || left <= 0)
			break;
		InvalidateCatalogSnapshot();
		llm_workers_wait_finished(Min(left, LOOK_MS));
	}
	llm_workers_end_wait();
	if (query != NULL)
		take_snapshot(query);
	return done;
}
