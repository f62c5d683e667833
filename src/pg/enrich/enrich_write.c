/*
 * pg/enrich/enrich_write.c - write the answers of finished rows; see enrich_rows.h.
 *
 * Answers become values; rows that nobody has changed or locked since their claim are locked and
 * written in one subtransaction, with deferred constraints checked in it. When that fails it is done again without
 * the row that has failed, or by halves when only the constraints know which. No row is waited for: what somebody has
 * locked is written another time. Foreign keys and triggers wait, for a moment.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/enrich/enrich_rows.h"
#include "pg/enrich/enrich_table.h"
#include "pg/subxact.h"
#include "tcop/pquery.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define VAIN_WRITES 10 /* of a row, ended by deadlocks each time, before that is its failure */
#define BLOCKED_MAX 4  /* tries of one transaction that others may end */

/* The finished rows. */
typedef struct Batch
{
	int n;
	LlmEnrichRow **rows; /* [n], those that others have put off last */
	int n_blocked;       /* tries that others have ended */
} Batch;

/* Some of them, for a step that is tried. */
typedef struct Range
{
	LlmEnrich *e;
	Batch *b;
	int from, to; /* [from, to) */
	int at;       /* where it is; to = done with each, at what is checked for all */
} Range;

/* ---- rows ---- */

/* The parameters that say "this version of this row". */
static void
set_identity(LlmEnrichRow *row, Datum *values)
{
	values[0] = PointerGetDatum(&row->place.tid);
	values[1] = ObjectIdGetDatum(row->place.table);
	values[2] = TransactionIdGetDatum(row->xmin);
	values[3] = row->key;
}

static const LlmEnrichPlans *
plans_of(LlmEnrich *e, const LlmEnrichRow *row)
{
	return llm_enrich_plans_get(&e->plans, e->target, row->place.table);
}

/* The number of rows that a statement finds, or gives back. */
static uint64
run(SPIPlanPtr plan, Datum *values)
{
	int rc = SPI_execute_plan(plan, values, NULL, false, 0);

	if (rc < 0)
		elog(ERROR, "could not write a row: %s", SPI_result_code_string(rc));
	return SPI_processed;
}

static bool
find(SPIPlanPtr plan, Datum *values)
{
	uint64 n = run(plan, values);

	SPI_freetuptable(SPI_tuptable);
	return n > 0;
}

/* Lock a row if it is what it was. */
static void
hold(const LlmEnrichPlans *plans, LlmEnrichRow *row, Datum *values)
{
	if (find(plans->take, values))
		row->hold = LLM_ENRICH_OURS;
	else
		row->hold = find(plans->look, values) ? LLM_ENRICH_NOT_NOW : LLM_ENRICH_LOST;
}

static bool
is_due(const LlmEnrichRow *row)
{
	return row->hold != LLM_ENRICH_LOST && row->failure.sqlstate == 0;
}

/* ---- values ---- */

static void
convert(void *arg)
{
	const Range *r = arg;

	for (int i = r->from; i < r->to; i++)
	{
		LlmEnrichRow *row = r->b->rows[i];
		MemoryContext old;
		bool isnull;
		bool failed;

		if (!is_due(row) || row->converted)
			continue;
		old = MemoryContextSwitchTo(row->cxt);
		row->value = llm_enrich_target_value(r->e->target,
											 TextDatumGetCString(
												 llm_call_result(row->call, &isnull, &failed)));
		MemoryContextSwitchTo(old);
		row->converted = true;
	}
}

static void
convert_all(LlmEnrich *e, Batch *b)
{
	for (int i = 0; i < b->n; i++)
	{
		LlmEnrichRow *row = b->rows[i];
		const LlmFailure *f = row->call == NULL ? NULL : llm_call_failure(row->call);

		if (f == NULL)
			continue;
		if (llm_failure_hideable(f))
			row->failure = *f;
		else
		{
			row->hold = LLM_ENRICH_LOST; /* and called again some day */
			e->stop = *f;
		}
	}
	for (int from = 0; from < b->n;)
	{
		Range r = {e, b, from, b->n};
		ErrorData *error = llm_subxact_try(convert, &r);

		if (error == NULL)
			return;
		/* it is the first's that is not converted */
		while (!is_due(b->rows[from]) || b->rows[from]->converted)
			from++;
		llm_enrich_rows_fail(b->rows[from++], error);
	}
}

/* ---- writing ---- */

static void
update(void *arg)
{
	Range *r = arg;
	Datum values[5];
	bool isnull;

	for (r->at = r->from; r->at < r->to; r->at++)
	{
		LlmEnrichRow *row = r->b->rows[r->at];
		const LlmEnrichPlans *plans;

		if (!is_due(row))
			continue;
		CHECK_FOR_INTERRUPTS();
		plans = plans_of(r->e, row);
		set_identity(row, values);
		/* in the same subtransaction: otherwise the row would get a multixact */
		hold(plans, row, values);
		if (row->hold != LLM_ENRICH_OURS)
			continue;
		values[4] = row->value;
		if (run(plans->update, values) == 0 ||
			DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)))
			ereport(ERROR, (errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
							errmsg("a trigger or rule kept the value out of the row")));
		SPI_freetuptable(SPI_tuptable);
	}
	(void) SPI_execute("SET CONSTRAINTS ALL IMMEDIATE", false, 0);
}

/* An error that others cause, through triggers, foreign keys and unique indexes, which wait: a deadlock,
 * a lock that was not to be had. */
static bool
is_in_the_way(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		   sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

static int
compare_vain(const void *pa, const void *pb)
{
	const LlmEnrichRow *a = *(LlmEnrichRow *const *) pa;
	const LlmEnrichRow *b = *(LlmEnrichRow *const *) pb;

	if (a->n_vain != b->n_vain)
		return a->n_vain < b->n_vain ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* The write of row [from, to) has failed, or that of all together. */
static void
blame(Batch *b, int from, int to, const ErrorData *error)
{
	for (int i = from; i < to; i++)
	{
		LlmEnrichRow *row = b->rows[i];

		if (!is_due(row))
			continue;
		row->n_vain++;
		if (is_in_the_way(error->sqlerrcode) &&
			(row->n_vain < VAIN_WRITES || error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE))
			row->hold = LLM_ENRICH_NOT_NOW;
		else
			llm_enrich_rows_fail(row, error);
	}
}

static void
update_range(LlmEnrich *e, Batch *b, int from, int to)
{
	Range r = {e, b, from, to, from};
	ErrorData *error;
	bool blocked;

	for (int i = from; i < to && b->n_blocked >= BLOCKED_MAX; i++)
		b->rows[i]->hold = is_due(b->rows[i]) ? LLM_ENRICH_NOT_NOW : b->rows[i]->hold;
	if (from == to || b->n_blocked >= BLOCKED_MAX)
		return;
	error = llm_subxact_try(update, &r);
	if (error == NULL)
		return;
	CHECK_FOR_INTERRUPTS();
	blocked = is_in_the_way(error->sqlerrcode);
	if (r.at < to)
	{
		blame(b, r.at, r.at + 1, error);
		update_range(e, b, from, r.at);
		b->n_blocked += blocked;
		update_range(e, b, r.at + 1, to);
	}
	else if (blocked || to - from == 1)
	{
		blame(b, from, to, error);
		b->n_blocked += blocked;
	}
	else
	{
		update_range(e, b, from, from + (to - from) / 2);
		update_range(e, b, from + (to - from) / 2, to);
	}
}

/* Write all together but those that others have put off: these by themselves, as it may be one that keeps
 * others from being written, and those first that have been tried less. */
static void
update_all(LlmEnrich *e, Batch *b)
{
	int n_fresh = 0;

	qsort(b->rows, b->n, sizeof(LlmEnrichRow *), compare_vain);
	while (n_fresh < b->n && b->rows[n_fresh]->n_vain == 0)
		n_fresh++;
	update_range(e, b, 0, n_fresh);
	for (int i = n_fresh; i < b->n; i++)
		update_range(e, b, i, i + 1);
}

/* Keep the errors, and forget those of rows that are written now. */
static void
note_failures(LlmEnrich *e, Batch *b)
{
	Datum *written = palloc(sizeof(Datum) * Max(b->n, 1));
	Datum values[4];
	int n_written = 0;

	for (int i = 0; i < b->n; i++)
	{
		LlmEnrichRow *row = b->rows[i];

		if (is_due(row) && row->hold == LLM_ENRICH_OURS)
			written[n_written++] = row->key;
		if (row->failure.sqlstate == 0)
			continue;
		set_identity(row, values);
		row->hold = find(plans_of(e, row)->look, values) ? LLM_ENRICH_OURS : LLM_ENRICH_LOST;
		if (row->hold == LLM_ENRICH_OURS)
			row->attempts = llm_enrich_table_note(e->target, row->key, row->xmin,
												  row->failure.sqlstate, row->failure.message);
	}
	llm_enrich_table_clear(e->target, written, n_written);
}

/* ---- all ---- */

/* After the commit: what has come of a row. */
static void
count(LlmEnrich *e, const LlmEnrichRow *row)
{
	if (row->call != NULL)
		llm_call_usage(row->call, &e->usage);
	if (row->hold == LLM_ENRICH_LOST)
		e->n_lost++;
	else if (row->failure.sqlstate == 0)
		e->n_written++;
	else
	{
		MemoryContext old = MemoryContextSwitchTo(e->cxt);

		if (e->n_failed++ == 0)
		{
			Jsonb *key = DatumGetJsonbP(row->key);

			llm_failure_set(&e->failure, row->failure.sqlstate, "%s", row->failure.message);
			llm_failure_detail(&e->failure, "The row is %s of table \"%s\".",
							   JsonbToCString(NULL, &key->root, VARSIZE(key)), e->target->name);
		}
		MemoryContextSwitchTo(old);
	}
}

/* Whoever waits for a lock has those of the rows that are written, and others wait for these. So it is
 * not for long, and for less than a deadlock takes to be found: the other should not have to give way. */
static void
limit_waits(void)
{
	int ms = Max(DeadlockTimeout / 4, 1);
	char value[32];

	if (LockTimeout > 0 && LockTimeout <= ms)
		return;
	snprintf(value, sizeof(value), "%d", ms);
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL,
							 true, 0, false);
}

void
llm_enrich_write(LlmEnrich *e)
{
	Batch b = {0};

	b.rows = palloc(sizeof(LlmEnrichRow *) * Max(e->n_rows, 1));
	for (int i = 0; i < e->n_rows; i++)
		if (llm_enrich_rows_finished(&e->rows[i]))
			b.rows[b.n++] = &e->rows[i];
	limit_waits();
	convert_all(e, &b);
	update_all(e, &b);
	note_failures(e, &b);
	MemoryContextSwitchTo(e->cxt);
	if (e->stop.sqlstate != 0)
	{
		/* its strings are a row's */
		LlmFailure f = e->stop;

		llm_failure_set(&e->stop, f.sqlstate, "%s", f.message);
		e->stop.detail = f.detail ? pstrdup(f.detail) : NULL;
		e->stop.hint = f.hint ? pstrdup(f.hint) : NULL;
	}
}

void
llm_enrich_settle(LlmEnrich *e)
{
	for (int i = e->n_rows - 1; i >= 0; i--)
	{
		LlmEnrichRow *row = &e->rows[i];

		if (!llm_enrich_rows_finished(row) || row->hold == LLM_ENRICH_NOT_NOW)
			continue;
		count(e, row);
		llm_enrich_rows_drop(e, i);
	}
}
