/* pg/enrich/enrich_progress.c - running enrichments in their backends' activity slots; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_progress.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

LLM_EXPORTS_BEGIN
PG_FUNCTION_INFO_V1(llm_stat_progress_enrich);
LLM_EXPORTS_END

static const char *const phases[] = {NULL,         "listing", "claiming",
									 "generating", "writing", "waiting"};

void
llm_enrich_progress_show(const LlmEnrich *e, LlmProgressPhase phase)
{
	LlmProgress p = {.phase = phase};

	p.relation = e->target->relid;
	p.target = e->target->column;
	p.enrichment = e->enrichment;
	p.role = GetUserId();
	p.done = e->n_written;
	p.failed = e->n_failed;
	p.in_flight = e->n_rows;
	p.pending = e->list.n - e->list.next;
	if (e->max_rows >= 0)
		p.pending = Min(p.pending, e->max_rows - e->n_claimed);
	p.started = e->started;
	llm_shmem_activity_progress(&p);
}

void
llm_enrich_progress_end(void)
{
	static const LlmProgress none = {.phase = LLM_PROGRESS_NONE};

	llm_shmem_activity_progress(&none);
}

/* Three digits: a speed is for people to read. */
static double
speed_shown(double rows_per_s)
{
	char text[32];

	snprintf(text, sizeof(text), "%.2e", rows_per_s);
	return strtod(text, NULL);
}

/* A row of the view. Names of other databases are not known here, and NULL. */
static void
put(ReturnSetInfo *rsinfo, const LlmActivity *a)
{
	const LlmProgress *p = &a->progress;
	double seconds = Max((double) (GetCurrentTimestamp() - p->started) / 1e6, 1e-3);
	bool here = a->database == MyDatabaseId;
	bool nulls[] = {false, false, !here, !here, !here || p->enrichment == 0,
					false, false, false, false, false,
					false, false, false};
	Datum values[] = {
		Int32GetDatum(a->pid),
		ObjectIdGetDatum(a->database),
		ObjectIdGetDatum(p->relation),
		NameGetDatum(&p->target),
		Int64GetDatum(p->enrichment),
		ObjectIdGetDatum(p->role),
		CStringGetTextDatum(phases[p->phase]),
		Int64GetDatum(p->done),
		Int64GetDatum(p->failed),
		Int64GetDatum(p->pending),
		Int64GetDatum(p->in_flight),
		Float8GetDatum(speed_shown((double) (p->done + p->failed) / seconds)),
		TimestampTzGetDatum(p->started),
	};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* llm.stat_get_progress_enrich(): the caller's own backends; all for pg_read_all_stats */
Datum
llm_stat_progress_enrich(PG_FUNCTION_ARGS)
{
	static const Oid types[] = {INT4OID, OIDOID,    OIDOID,        NAMEOID, INT8OID,
								OIDOID,  TEXTOID,   INT8OID,       INT8OID, INT8OID,
								INT8OID, FLOAT8OID, TIMESTAMPTZOID};
	bool all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	LlmActivity a;
	int n_slots = 0;

	llm_declared_begin_rows(fcinfo, types, lengthof(types));
	if (!llm_shmem_attached())
		return (Datum) 0;
	for (int i = 0; i == 0 || i < n_slots; i++)
		if (llm_shmem_activity_read(i, &a, &n_slots) && a.progress.phase != LLM_PROGRESS_NONE &&
			(all || has_privs_of_role(GetUserId(), a.role)))
			put((ReturnSetInfo *) fcinfo->resultinfo, &a);
	return (Datum) 0;
}
