/*
 * pg/enrich/enrich_rows.c - list and claim the rows of an enrichment; see the header.
 *
 * A pass lists the places (table, ctid) of what is to be done, in the order of a scan, and claims walk that
 * list. What changes meanwhile is at another place then, where the next pass finds it; passes end when
 * one has nothing to claim.
 */
#include "postgres.h"

#include "pg/enrich/enrich_rows.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/enrich/enrich_look.h"
#include "pg/enrich/enrich_table.h"
#include "pg/func.h"
#include "pg/node/grouping.h"
#include "pg/subxact.h"
#include "storage/lock.h"
#include "utils/memutils.h"

#define LIST_MAX 1000000                /* places of one pass */
#define LIST_SPARE 10000                /* of these: rows that others may have claimed */
#define FETCH_ROWS 1000                 /* of one fetch */
#define CALLS_NBYTES (64 * 1024 * 1024) /* of rows in work; the one that passes it is the last */
#define LEASE_OFFSET 0x4000             /* SQL's advisory locks have small numbers there */

/* ---- leases ---- */

static void
set_lease_tag(LOCKTAG *tag, const LlmEnrich *e, const LlmEnrichPlace *place)
{
	/* by the column's name: its number may be another in a partition and in its parent */
	const char *column = NameStr(e->target->column);
	uint32 hash = hash_bytes((const unsigned char *) column, (int) strlen(column));

	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, hash_combine(place->table, hash),
						 ItemPointerGetBlockNumber(&place->tid),
						 LEASE_OFFSET + ItemPointerGetOffsetNumber(&place->tid));
}

static bool
lease(LlmEnrich *e, const LlmEnrichPlace *place)
{
	LOCKTAG tag;

	set_lease_tag(&tag, e, place);
	switch (LockAcquire(&tag, ExclusiveLock, true, true))
	{
		case LOCKACQUIRE_NOT_AVAIL:
			return false;
		case LOCKACQUIRE_ALREADY_HELD:
			(void) LockRelease(&tag, ExclusiveLock, true);
			return false; /* it came from another list, and is in work */
		default:
			break;
	}
	e->leased[e->n_leased++] = *place;
	return true;
}

/* Give back lease i. */
static void
release_at(LlmEnrich *e, int i)
{
	LOCKTAG tag;

	set_lease_tag(&tag, e, &e->leased[i]);
	e->leased[i] = e->leased[--e->n_leased];
	/* user code may have released all advisory locks */
	if (llm_compat_lock_held(&tag, ExclusiveLock))
		(void) LockRelease(&tag, ExclusiveLock, true);
}

static void
release(LlmEnrich *e, const LlmEnrichPlace *place)
{
	for (int i = 0; i < e->n_leased; i++)
	{
		if (e->leased[i].table != place->table ||
			!ItemPointerEquals(&e->leased[i].tid, unconstify(ItemPointerData *, &place->tid)))
			continue;
		release_at(e, i);
		return;
	}
}

void
llm_enrich_rows_begin(LlmEnrich *e)
{
	e->work = AllocSetContextCreate(CurrentMemoryContext, "llm_enrich transaction",
									ALLOCSET_DEFAULT_SIZES);
	e->calls =
		AllocSetContextCreate(CurrentMemoryContext, "llm_enrich calls", ALLOCSET_SMALL_SIZES);
	e->rows = palloc(sizeof(LlmEnrichRow) * (e->concurrency + e->batch_size));
	e->leased = palloc(sizeof(LlmEnrichPlace) * (2 * e->concurrency + e->batch_size));
}

void
llm_enrich_rows_end(LlmEnrich *e)
{
	while (e->n_leased > 0)
		release_at(e, e->n_leased - 1);
	llm_enrich_plans_free(&e->plans);
}

/* ---- listing ---- */

static Datum
column(uint64 row, int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, isnull);
}

/* A list that is being made. */
typedef struct Listing
{
	LlmEnrich *e;
	Portal portal;
	bool sifts;   /* the portal has all rows without a value */
	int64 wanted; /* places */
	int64 room;
} Listing;

static void
add_places(LlmEnrichList *list, int64 *room)
{
	bool isnull;

	if (list->n + (int64) SPI_processed > *room)
	{
		*room = Max(*room * 2, list->n + (int64) SPI_processed);
		list->places = repalloc_huge(list->places, sizeof(LlmEnrichPlace) * (Size) *room);
	}
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		LlmEnrichPlace *place = &list->places[list->n++];

		place->table = DatumGetObjectId(column(i, 1, &isnull));
		ItemPointerCopy((ItemPointer) DatumGetPointer(column(i, 2, &isnull)), &place->tid);
	}
}

/* Take those off the list, from a place on, that are not to be done. */
static void
sift(LlmEnrich *e, int from)
{
	LlmEnrichList *list = &e->list;
	MemoryContext cxt =
		AllocSetContextCreate(CurrentMemoryContext, "llm_enrich sift", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	bool *wanted = llm_enrich_look_wanted(e, false, &list->places[from], list->n - from);
	int n = list->n;

	list->n = from;
	for (int i = from; i < n; i++)
		if (wanted[i - from])
			list->places[list->n++] = list->places[i];
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

static void
fetch_places(void *arg)
{
	Listing *l = arg;
	LlmEnrichList *list = &l->e->list;
	uint64 n;

	do
	{
		int from = list->n;

		CHECK_FOR_INTERRUPTS();
		SPI_cursor_fetch(l->portal, true, FETCH_ROWS);
		n = SPI_processed;
		add_places(list, &l->room);
		SPI_freetuptable(SPI_tuptable);
		if (l->sifts)
			sift(l->e, from);
	} while (n > 0 && list->n < l->wanted);
}

/* List what has condition, "LIMIT n" being more or nothing. */
static void
open_list(Listing *l, const char *condition, const char *limit)
{
	const LlmEnrichTarget *t = l->e->target;
	const char *sort = l->e->sort;

	l->e->list.n = l->e->list.next = 0;
	l->portal = SPI_cursor_open_with_args(
		NULL,
		psprintf("SELECT %s.tableoid, %s.ctid FROM %s WHERE %s%s%s%s", t->alias, t->alias, t->table,
				 condition, sort != NULL ? " ORDER BY " : "", sort != NULL ? sort : "", limit),
		0, NULL, NULL, NULL, true, 0);
}

void
llm_enrich_rows_list(LlmEnrich *e)
{
	Listing l = {.e = e, .room = FETCH_ROWS};
	ErrorData *error;

	l.wanted = e->max_rows < 0 ? LIST_MAX : Min(e->max_rows - e->n_claimed, LIST_MAX);
	/* what has failed and what others have claimed is in the list and will not be claimed */
	l.wanted += LIST_SPARE + llm_enrich_table_open(e->target);
	if (e->list.places != NULL)
		pfree(e->list.places);
	e->list.places = MemoryContextAlloc(e->cxt, sizeof(LlmEnrichPlace) * (Size) l.room);
	e->n_skipped = 0;
	/* partitions may have come and gone */
	llm_enrich_plans_free(&e->plans);
	open_list(&l, e->target->todo, psprintf(" LIMIT " INT64_FORMAT, l.wanted));
	error = llm_subxact_try(fetch_places, &l);
	SPI_cursor_close(l.portal);
	if (error != NULL)
	{
		if (!llm_enrich_look_is_of_row(error->sqlerrcode))
			ReThrowError(error);
		/* The SQL raises an error for some row: which is found a thousand rows at a time. */
		l.sifts = true;
		open_list(&l, psprintf("%s IS NULL", e->target->value), "");
		fetch_places(&l);
		SPI_cursor_close(l.portal);
	}
	e->cut = e->list.n >= l.wanted;
}

/* ---- claiming ---- */

/* Lease the next places of the list, up to n; sorted. Those that were not used by the end of the claim
 * are given back. */
static void
lease_places(LlmEnrich *e, LlmEnrichList *list, int n, LlmEnrichLook *l)
{
	l->places = palloc(sizeof(LlmEnrichPlace) * n);
	while (l->n < n && list->next < list->n)
	{
		const LlmEnrichPlace *place = &list->places[list->next++];

		CHECK_FOR_INTERRUPTS();
		if (lease(e, place))
			l->places[l->n++] = *place;
	}
	llm_enrich_look_sort(l->places, l->n);
}

/* What was not looked at for want of room is claimed next. */
static void
put_back(LlmEnrichList *list, const LlmEnrichLook *l, int from)
{
	for (int i = l->n - 1; i >= from; i--)
		if (!l->seen[i])
			list->places[--list->next] = l->places[i];
}

/* Take rows out that have failed before. */
static void
skip_failed(LlmEnrich *e, LlmEnrichLook *l)
{
	Datum *keys = palloc(sizeof(Datum) * Max(l->n_rows, 1));
	Datum *xmins = palloc(sizeof(Datum) * Max(l->n_rows, 1));
	bool *skip = palloc(sizeof(bool) * Max(l->n_rows, 1));
	int n = l->n_rows;

	for (int i = 0; i < n; i++)
	{
		keys[i] = l->rows[i].key;
		xmins[i] = TransactionIdGetDatum(l->rows[i].xmin);
	}
	llm_enrich_table_skip(e->target, keys, xmins, n, e->max_attempts, e->started, skip);
	l->n_rows = 0;
	for (int i = 0; i < n; i++)
	{
		if (!skip[i])
		{
			l->prompts[l->n_rows] = l->prompts[i];
			l->rows[l->n_rows++] = l->rows[i];
			continue;
		}
		e->n_skipped++;
		MemoryContextDelete(l->rows[i].cxt);
	}
}

/* Queue the requests of rows, those with a common beginning side by side, and keep the rows; those that have
 * failed already come first. */
static void
ask(LlmEnrich *e, LlmEnrichLook *l)
{
	LlmGroupingRow *order = palloc0(sizeof(LlmGroupingRow) * Max(l->n_rows, 1));
	int n = 0;

	for (int i = 0; i < l->n_rows; i++)
	{
		LlmEnrichRow *row = &l->rows[i];

		if (row->failure.sqlstate != 0)
		{
			e->rows[e->n_rows++] = *row;
			continue;
		}
		e->args[0] = l->prompts[i];
		row->call =
			llm_call_create(llm_func_of(LLM_FUNC_GENERATE), LLM_ARG_COUNT, e->args, row->cxt);
		pfree(DatumGetPointer(l->prompts[i].value)); /* the call has a copy */
		order[n].prompt.model = "";
		order[n].number = order[n].slot = i;
		(void) llm_call_prompt(row->call, &order[n++].prompt);
	}
	llm_grouping_order(order, n);
	for (int i = 0; i < n; i++)
	{
		LlmEnrichRow *row = &e->rows[e->n_rows++];

		*row = l->rows[order[i].slot];
		llm_call_begin(row->call);
	}
	e->n_claimed += l->n_rows;
}

/* Give back the leases of rows that did not get into work. */
static void
release_unused(LlmEnrich *e, const LlmEnrichLook *l)
{
	bool *used = palloc0(sizeof(bool) * Max(l->n, 1));

	for (int i = 0; i < l->n_rows; i++)
		used[llm_enrich_look_at(l->places, l->n, &l->rows[i].place)] = true;
	for (int i = 0; i < l->n; i++)
		if (!used[i])
			release(e, &l->places[i]);
}

bool
llm_enrich_rows_full(const LlmEnrich *e)
{
	return MemoryContextMemAllocated(e->calls, true) >= CALLS_NBYTES;
}

void
llm_enrich_rows_claim(LlmEnrich *e, LlmEnrichList *list, int n)
{
	Size had = MemoryContextMemAllocated(e->calls, true);
	LlmEnrichLook l = {.e = e, .again = list->again, .claims = true};

	l.room = CALLS_NBYTES - Min(had, CALLS_NBYTES);
	lease_places(e, list, n, &l);
	put_back(list, &l, llm_enrich_look(&l));
	if (!list->again)
		skip_failed(e, &l);
	ask(e, &l);
	release_unused(e, &l);
}

void
llm_enrich_rows_fail(LlmEnrichRow *row, const ErrorData *error)
{
	row->failure.sqlstate = error->sqlerrcode;
	row->failure.message = MemoryContextStrdup(row->cxt, error->message);
}

bool
llm_enrich_rows_finished(const LlmEnrichRow *row)
{
	return row->call == NULL || llm_call_finished(row->call);
}

void
llm_enrich_rows_drop(LlmEnrich *e, int i)
{
	release(e, &e->rows[i].place);
	MemoryContextDelete(e->rows[i].cxt);
	e->n_rows--;
	memmove(&e->rows[i], &e->rows[i + 1], sizeof(LlmEnrichRow) * (e->n_rows - i));
}
