/*
 * pg/enrich/enrich_write.c - write the answers of finished rows; see enrich_rows.h.
 *
 * Answers become values; rows that nobody has changed or locked since their claim are locked and
 * written in one subtransaction, with deferred constraints checked in it, and when that fails by halves, so
 * that an error is that of its own row. No lock is waited for: a row that somebody has locked is
 * written another time.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pg/enrich/enrich_rows.h"
#include "pg/enrich/enrich_table.h"
#include "pg/subxact.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define VAIN_WRITES 20 /* of a row, ended by others each time, before that is its failure */

/* The finished rows. */
typedef struct Batch
{
	int n;
	LlmEnrichRow **rows; /* [n] */
} Batch;

/* Some of them, for a step that is tried. */
typedef struct Range
{
	LlmEnrich *e;
	Batch *b;
	int from, to; /* [from, to) */
} Range;

static void
fail(LlmEnrichRow *row, const ErrorData *error)
{
	row->failure.sqlstate = error->sqlerrcode;
	row->failure.message = MemoryContextStrdup(row->cxt, error->message);
}

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
		const LlmFailure *f = llm_call_failure(row->call);

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
		fail(b->rows[from++], error);
	}
}

/* ---- writing ---- */

static void
update(void *arg)
{
	const Range *r = arg;
	Datum values[5];
	bool isnull;

	for (int i = r->from; i < r->to; i++)
	{
		LlmEnrichRow *row = r->b->rows[i];
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

/* An error that others cause, through triggers, foreign keys and unique indexes, which wait: deadlock,
 * lock_timeout. */
static bool
is_in_the_way(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		   sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

static void
update_range(LlmEnrich *e, Batch *b, int from, int to)
{
	Range r = {e, b, from, to};
	ErrorData *error = llm_subxact_try(update, &r);

	if (error == NULL)
		return;
	CHECK_FOR_INTERRUPTS();
	if (to - from > 1)
	{
		update_range(e, b, from, from + (to - from) / 2);
		update_range(e, b, from + (to - from) / 2, to);
	}
	else if (is_in_the_way(error->sqlerrcode) && ++b->rows[from]->n_vain < VAIN_WRITES)
		b->rows[from]->hold = LLM_ENRICH_NOT_NOW;
	else
		fail(b->rows[from], error);
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
	llm_call_usage(row->call, &e->usage);
	if (row->hold == LLM_ENRICH_LOST)
		e->n_lost++;
	else if (row->failure.sqlstate == 0)
		e->n_written++;
	else
	{
		MemoryContext old = MemoryContextSwitchTo(e->cxt);

		if (e->n_failed++ == 0)
			llm_failure_set(&e->failure, row->failure.sqlstate, "%s", row->failure.message);
		MemoryContextSwitchTo(old);
	}
}

void
llm_enrich_write(LlmEnrich *e)
{
	Batch b = {0};

	b.rows = palloc(sizeof(LlmEnrichRow *) * Max(e->n_rows, 1));
	for (int i = 0; i < e->n_rows; i++)
		if (llm_call_finished(e->rows[i].call))
			b.rows[b.n++] = &e->rows[i];
	convert_all(e, &b);
	update_range(e, &b, 0, b.n);
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

		if (!llm_call_finished(row->call) || row->hold == LLM_ENRICH_NOT_NOW)
			continue;
		count(e, row);
		llm_enrich_rows_drop(e, i);
	}
}
