/*
 * pg/enrich/enrich_rows.c - list and claim the rows of an enrichment; see the header.
 *
 * A pass lists the places (table, ctid) of what is to be done, in the order of a scan, and claims walk that
 * list. What changes meanwhile is at another place then, where the next pass finds it; passes end when
 * one has nothing to claim.
 */
#include "postgres.h"

#include "pg/enrich/enrich_rows.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pg/enrich/enrich_table.h"
#include "pg/func.h"
#include "pg/node/grouping.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define LIST_MAX 1000000                /* places of one pass */
#define LIST_SPARE 10000                /* of these: rows that others may have claimed */
#define FETCH_ROWS 1000                 /* of one fetch */
#define CALLS_NBYTES (64 * 1024 * 1024) /* of rows in work; the one that passes it is the last */
#define LEASE_OFFSET 0x4000             /* SQL's advisory locks have small numbers there */

/* ---- leases ---- */

static int
compare_places(const void *pa, const void *pb)
{
	const LlmEnrichPlace *a = pa;
	const LlmEnrichPlace *b = pb;

	if (a->table != b->table)
		return a->table < b->table ? -1 : 1;
	return ItemPointerCompare((ItemPointer) &a->tid, (ItemPointer) &b->tid);
}

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
	(void) LockRelease(&tag, ExclusiveLock, true);
}

static void
release(LlmEnrich *e, const LlmEnrichPlace *place)
{
	for (int i = 0; i < e->n_leased; i++)
	{
		if (compare_places(&e->leased[i], place) != 0)
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

void
llm_enrich_rows_list(LlmEnrich *e)
{
	const LlmEnrichTarget *t = e->target;
	LlmEnrichList *list = &e->list;
	int64 wanted = e->max_rows < 0 ? LIST_MAX : Min(e->max_rows - e->n_claimed, LIST_MAX);
	int64 room = FETCH_ROWS;
	Portal portal;

	/* what has failed and what others have claimed is in the list and will not be claimed */
	wanted += LIST_SPARE + llm_enrich_table_open(t);
	if (list->places != NULL)
		pfree(list->places);
	list->places = MemoryContextAlloc(e->cxt, sizeof(LlmEnrichPlace) * (Size) room);
	list->n = list->next = 0;
	e->n_skipped = 0;
	/* partitions may have come and gone */
	llm_enrich_plans_free(&e->plans);
	portal = SPI_cursor_open_with_args(
		NULL,
		psprintf("SELECT %s.tableoid, %s.ctid FROM %s WHERE %s%s%s LIMIT " INT64_FORMAT, t->alias,
				 t->alias, t->table, t->todo, e->sort != NULL ? " ORDER BY " : "",
				 e->sort != NULL ? e->sort : "", wanted),
		0, NULL, NULL, NULL, true, 0);
	do
	{
		CHECK_FOR_INTERRUPTS();
		SPI_cursor_fetch(portal, true, FETCH_ROWS);
		add_places(list, &room);
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0);
	SPI_cursor_close(portal);
	e->cut = list->n >= wanted;
}

/* ---- claiming ---- */

/* The places that were leased for this claim, and what has come of them. */
typedef struct Lot
{
	int n;
	LlmEnrichPlace *places; /* [n], sorted */
	bool *seen;             /* [n] a row was found there */
	bool *used;             /* [n] it is in work from now on */
} Lot;

/* The rows that were found there. */
typedef struct Found
{
	int n;
	LlmEnrichRow *rows;     /* [n], room for all of the lot */
	NullableDatum *prompts; /* [n] */
	Size nbytes;            /* of the prompts */
} Found;

/* Lease the next places of the list, up to n; sorted. Those that were not used by the end of the claim
 * are given back. */
static void
lease_places(LlmEnrich *e, LlmEnrichList *list, int n, Lot *lot)
{
	lot->n = 0;
	lot->places = palloc(sizeof(LlmEnrichPlace) * n);
	lot->seen = palloc0(sizeof(bool) * n);
	lot->used = palloc0(sizeof(bool) * n);
	while (lot->n < n && list->next < list->n)
	{
		const LlmEnrichPlace *place = &list->places[list->next++];

		CHECK_FOR_INTERRUPTS();
		if (lease(e, place))
			lot->places[lot->n++] = *place;
	}
	qsort(lot->places, lot->n, sizeof(LlmEnrichPlace), compare_places);
}

static Portal
open_claim(LlmEnrich *e, bool again, const LlmEnrichPlace *places, int n)
{
	Datum *tids = palloc(sizeof(Datum) * n);
	Datum *tables = palloc(sizeof(Datum) * n);
	Datum values[2];
	const LlmEnrichPlans *plans = llm_enrich_plans_get(&e->plans, e->target, places[0].table);
	int n_tables = 0;

	for (int i = 0; i < n; i++)
	{
		tids[i] = PointerGetDatum(&places[i].tid);
		if (i == 0 || places[i].table != places[i - 1].table)
			tables[n_tables++] = ObjectIdGetDatum(places[i].table);
	}
	values[0] = PointerGetDatum(
		construct_array(tids, n, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
	values[1] =
		PointerGetDatum(construct_array(tables, n_tables, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
	return SPI_cursor_open(NULL, again ? plans->claim_again : plans->claim, values, NULL, false);
}

/* The row that was fetched, if its place was leased and it has a prompt: in a context of its own. */
static void
add_row(LlmEnrich *e, Lot *lot, Found *found)
{
	LlmEnrichRow *row = &found->rows[found->n];
	NullableDatum *prompt = &found->prompts[found->n];
	LlmEnrichPlace *place;
	bool isnull;
	MemoryContext old;

	memset(row, 0, sizeof(*row));
	row->place.table = DatumGetObjectId(column(0, 1, &isnull));
	ItemPointerCopy((ItemPointer) DatumGetPointer(column(0, 2, &isnull)), &row->place.tid);
	place = bsearch(&row->place, lot->places, lot->n, sizeof(LlmEnrichPlace), compare_places);
	prompt->value = column(0, 5, &prompt->isnull);
	if (place == NULL || prompt->isnull || lot->used[place - lot->places])
		return;
	lot->seen[place - lot->places] = lot->used[place - lot->places] = true;
	prompt->value = PointerGetDatum(PG_DETOAST_DATUM_COPY(prompt->value));
	found->nbytes += VARSIZE(DatumGetPointer(prompt->value));
	row->cxt = AllocSetContextCreate(e->calls, "llm_infer row", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(row->cxt);
	row->xmin = DatumGetTransactionId(column(0, 3, &isnull));
	row->key = PointerGetDatum(PG_DETOAST_DATUM_COPY(column(0, 4, &isnull)));
	MemoryContextSwitchTo(old);
	found->n++;
}

/* Look at places [from, to) of the lot, which are of one unit, row by row: a prompt is made when there
 * is room for it. False when there is no more. */
static bool
find_rows(LlmEnrich *e, bool again, Lot *lot, int from, int to, Size room, Found *found)
{
	Portal portal = open_claim(e, again, &lot->places[from], to - from);
	uint64 n;

	do
	{
		SPI_cursor_fetch(portal, true, 1);
		n = SPI_processed;
		if (n > 0)
			add_row(e, lot, found);
		SPI_freetuptable(SPI_tuptable);
	} while (n > 0 && found->n < lot->n && found->nbytes < room);
	SPI_cursor_close(portal);
	return found->nbytes < room;
}

/* What was not looked at for want of room is claimed next. */
static void
put_back(LlmEnrichList *list, const Lot *lot, int from)
{
	for (int i = lot->n - 1; i >= from; i--)
		if (!lot->seen[i])
			list->places[--list->next] = lot->places[i];
}

/* Take those out of rows [n] that have failed before; their leases go with the lot's. */
static int
skip_failed(LlmEnrich *e, LlmEnrichRow *rows, NullableDatum *prompts, int n, Lot *lot)
{
	Datum *keys = palloc(sizeof(Datum) * Max(n, 1));
	Datum *xmins = palloc(sizeof(Datum) * Max(n, 1));
	bool *skip = palloc(sizeof(bool) * Max(n, 1));
	int kept = 0;

	for (int i = 0; i < n; i++)
	{
		keys[i] = rows[i].key;
		xmins[i] = TransactionIdGetDatum(rows[i].xmin);
	}
	llm_enrich_table_skip(e->target, keys, xmins, n, e->max_attempts, e->started, skip);
	for (int i = 0; i < n; i++)
	{
		LlmEnrichPlace *place =
			bsearch(&rows[i].place, lot->places, lot->n, sizeof(LlmEnrichPlace), compare_places);

		if (!skip[i])
		{
			prompts[kept] = prompts[i];
			rows[kept++] = rows[i];
			continue;
		}
		lot->used[place - lot->places] = false;
		e->n_skipped++;
		MemoryContextDelete(rows[i].cxt);
	}
	return kept;
}

/* Queue the requests of rows [n], those with a common beginning side by side, and keep the rows. */
static void
ask(LlmEnrich *e, LlmEnrichRow *rows, NullableDatum *prompts, int n)
{
	LlmGroupingRow *order = palloc0(sizeof(LlmGroupingRow) * Max(n, 1));

	for (int i = 0; i < n; i++)
	{
		e->args[0] = prompts[i];
		rows[i].call =
			llm_call_create(llm_func_of(LLM_FUNC_GENERATE), LLM_ARG_COUNT, e->args, rows[i].cxt);
		pfree(DatumGetPointer(prompts[i].value)); /* the call has a copy */
		order[i].prompt.model = "";
		order[i].number = order[i].slot = i;
		(void) llm_call_prompt(rows[i].call, &order[i].prompt);
	}
	llm_grouping_order(order, n);
	for (int i = 0; i < n; i++)
	{
		LlmEnrichRow *row = &e->rows[e->n_rows++];

		*row = rows[order[i].slot];
		llm_call_begin(row->call);
	}
	e->n_claimed += n;
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
	Found found = {0};
	Lot lot;
	int to;

	lease_places(e, list, n, &lot);
	found.rows = palloc(sizeof(LlmEnrichRow) * (lot.n + 1));
	found.prompts = palloc(sizeof(NullableDatum) * (lot.n + 1));
	for (int from = 0; from < lot.n; from = to)
	{
		Oid unit = llm_enrich_plans_unit(&e->plans, e->target, lot.places[from].table);

		for (to = from + 1; to < lot.n; to++)
			if (llm_enrich_plans_unit(&e->plans, e->target, lot.places[to].table) != unit)
				break;
		if (find_rows(e, list->again, &lot, from, to, CALLS_NBYTES - Min(had, CALLS_NBYTES),
					  &found))
			continue;
		put_back(list, &lot, from);
		break;
	}
	if (!list->again)
		found.n = skip_failed(e, found.rows, found.prompts, found.n, &lot);
	ask(e, found.rows, found.prompts, found.n);
	for (int i = 0; i < lot.n; i++)
		if (!lot.used[i])
			release(e, &lot.places[i]);
}

void
llm_enrich_rows_drop(LlmEnrich *e, int i)
{
	release(e, &e->rows[i].place);
	MemoryContextDelete(e->rows[i].cxt);
	e->n_rows--;
	memmove(&e->rows[i], &e->rows[i + 1], sizeof(LlmEnrichRow) * (e->n_rows - i));
}
