/* pg/quota.c - read llm.quotas, and say no with the numbers. */
#include "postgres.h"

#include "pg/quota.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pg/declared.h"
#include "pg/usage.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#define READ_AGAIN_US 1000000 /* a long statement sees changes after this time */

/* Columns of llm.quotas. */
enum
{
	COLUMN_ROLE = 1,
	COLUMN_TOKENS,
	COLUMN_PERIOD,
	COLUMN_MAX_IN_FLIGHT,
	COLUMN_MAX_QUEUED_JOBS,
	N_COLUMNS = COLUMN_MAX_QUEUED_JOBS
};

static const Oid column_types[N_COLUMNS] = {REGROLEOID, INT8OID, INTERVALOID, INT4OID, INT4OID};

/* Limits of a role. */
typedef struct Quota
{
	Oid role;
	bool has_tokens;
	int64 tokens;          /* per period */
	Interval period;       /* above 0 */
	int32 max_in_flight;   /* 0 = any number */
	int32 max_queued_jobs; /* the same */
	TimestampTz statement; /* when it was read: in that statement, */
	TimestampTz read;      /* at that time */
} Quota;

static Quota known; /* of the last role that asked */

static void
take_row(Quota *q, HeapTuple tuple, TupleDesc desc)
{
	bool null_tokens;
	bool null_period;
	bool null_in_flight;
	bool null_jobs;
	Datum tokens = heap_getattr(tuple, COLUMN_TOKENS, desc, &null_tokens);
	Datum period = heap_getattr(tuple, COLUMN_PERIOD, desc, &null_period);
	Datum in_flight = heap_getattr(tuple, COLUMN_MAX_IN_FLIGHT, desc, &null_in_flight);
	Datum jobs = heap_getattr(tuple, COLUMN_MAX_QUEUED_JOBS, desc, &null_jobs);

	q->has_tokens = !null_tokens && !null_period;
	q->tokens = q->has_tokens ? DatumGetInt64(tokens) : 0;
	if (q->has_tokens)
		q->period = *DatumGetIntervalP(period);
	q->max_in_flight = null_in_flight ? 0 : DatumGetInt32(in_flight);
	q->max_queued_jobs = null_jobs ? 0 : DatumGetInt32(jobs);
}

/* Read the limits of role as they are committed now. No right on the table is asked for: the caller
 * is any user. */
static void
read_quota(Oid role, Quota *q)
{
	Oid schema = get_namespace_oid("llm", true);
	Oid relid = OidIsValid(schema) ? get_relname_relid("quotas", schema) : InvalidOid;
	Relation rel;
	SysScanDesc scan;
	HeapTuple tuple;
	bool own = false;

	memset(q, 0, sizeof(*q));
	q->role = role;
	if (!OidIsValid(relid))
		return;
	rel = try_relation_open(relid, AccessShareLock);
	if (rel == NULL)
		return; /* dropped while we waited for the lock */
	if (rel->rd_rel->relkind != RELKIND_RELATION)
		llm_declared_refuse("table llm.quotas");
	llm_declared_check_columns("table llm.quotas", RelationGetDescr(rel), column_types, N_COLUMNS);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (!own && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool isnull;
		Oid whose =
			DatumGetObjectId(heap_getattr(tuple, COLUMN_ROLE, RelationGetDescr(rel), &isnull));

		own = whose == role;
		if (own || whose == InvalidOid)
			take_row(q, tuple, RelationGetDescr(rel));
	}
	systable_endscan(scan);
	relation_close(rel, AccessShareLock);
}

static const Quota *
quota_of(Oid role, TimestampTz now)
{
	TimestampTz statement = GetCurrentStatementStartTimestamp();

	if (known.role == role && known.statement == statement && now >= known.read &&
		now - known.read < READ_AGAIN_US)
		return &known;
	known.role = InvalidOid; /* should reading fail */
	{
		Quota q;

		read_quota(role, &q);
		q.statement = statement;
		q.read = now;
		known = q;
	}
	return &known;
}

static char *
name_of(Oid role)
{
	char *name = GetUserNameFromId(role, true);

	return name != NULL ? name : psprintf("%u", role);
}

static bool
refuse_tokens(const Quota *q, int64 used, TimestampTz end, LlmFailure *f)
{
	llm_failure_set(f, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
					"token quota of role \"%s\" is spent: " INT64_FORMAT " of " INT64_FORMAT
					" tokens used",
					name_of(q->role), used, q->tokens);
	llm_failure_detail(f, "The period ends at %s.", timestamptz_to_str(end));
	llm_failure_hint(f, "Wait until then, or have the role's row in llm.quotas changed.");
	return false;
}

bool
llm_quota_admit(Oid role, int32 *max_in_flight, LlmFailure *f)
{
	TimestampTz now = GetCurrentTimestamp();
	const Quota *q = quota_of(role, now);
	LlmUsage usage;
	TimestampTz end;

	*max_in_flight = q->max_in_flight;
	if (!q->has_tokens)
		return true;
	if (!llm_usage_find(role, &usage))
		usage.period_start = now;
	end = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
												  TimestampTzGetDatum(usage.period_start),
												  IntervalPGetDatum(&q->period)));
	if (now >= end)
	{
		llm_usage_begin_period(role, usage.period_start, now);
		return true;
	}
	return usage.period_tokens < q->tokens || refuse_tokens(q, usage.period_tokens, end, f);
}

int32
llm_quota_in_flight(Oid role)
{
	return quota_of(role, GetCurrentTimestamp())->max_in_flight;
}

void
llm_quota_fail_in_flight(Oid role, int32 max_in_flight, int64 waited_ms, LlmFailure *f)
{
	LlmUsage usage;

	llm_usage_find(role, &usage);
	llm_failure_set(f, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
					"quota of requests in flight of role \"%s\" is used up: %d of %d",
					name_of(role), usage.in_flight, max_in_flight);
	llm_failure_detail(f, "The request has waited for " INT64_FORMAT " ms.", waited_ms);
	llm_failure_hint(f, "Ask again later, or have the role's row in llm.quotas changed.");
}

int32
llm_quota_queued_jobs(Oid role)
{
	return quota_of(role, GetCurrentTimestamp())->max_queued_jobs;
}

void
llm_quota_fail_queued_jobs(Oid role, int32 max_queued_jobs, int64 jobs, int64 n, LlmFailure *f)
{
	llm_failure_set(f, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
					"quota of unfinished jobs of role \"%s\" is used up: " INT64_FORMAT " of %d",
					name_of(role), jobs, max_queued_jobs);
	llm_failure_detail(f, "The call submits " INT64_FORMAT " more.", n);
	llm_failure_hint(f, "Wait for jobs to end or cancel some, see llm.jobs, or have the role's row "
						"in llm.quotas changed.");
}
