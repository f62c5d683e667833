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

#define LIST_MAX 1000000    /* places of one pass */
#define LIST_SPARE 10000    /* of these: rows that others may have claimed */
#define FETCH_ROWS 1000     /* of one fetch */
#define LEASE_OFFSET 0x4000 /* SQL's advisory locks have small numbers there */

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
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, hash_combine(place->table, (uint32) e->target->attno),
						 ItemPointerGetBlockNumber(&place->tid),
						 LEASE_OFFSET + ItemPointerGetOffsetNumber(&place->tid));
}

static bool
lease(LlmEnrich *e, const LlmEnrichPlace *place)
{
	LOCKTAG tag;

	set_lease_tag(&tag, e, place);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
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
llm_enrich_rows_end(LlmEnrich *e)
{
	SPIPlanPtr plans[] = {e->claim, e->look, e->take, e->update};

	while (e->n_leased > 0)
		release_at(e, e->n_leased - 1);
	for (Size i = 0; i < lengthof(plans); i++)
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
}

/* ---- statements ---- */

static SPIPlanPtr
prepare(const char *sql, int n_args, Oid *types)
{
	SPIPlanPtr plan = SPI_prepare(sql, n_args, types);

	/* kept, so that it notices changes of the table */
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	return plan;
}

void
llm_enrich_rows_prepare(LlmEnrich *e)
{
	const LlmEnrichTarget *t = e->target;
	Oid claim_types[] = {TIDARRAYOID, OIDARRAYOID};
	Oid types[] = {TIDOID, OIDOID, XIDOID, JSONBOID, t->type};
	char *same =
		psprintf("%s.ctid OPERATOR(pg_catalog.=) $1 AND %s.tableoid OPERATOR(pg_catalog.=) $2 AND "
				 "%s.xmin OPERATOR(pg_catalog.=) $3 AND %s OPERATOR(pg_catalog.=) $4",
				 t->alias, t->alias, t->alias, t->key);

	e->claim = prepare(
		psprintf("SELECT %s.tableoid, %s.ctid, %s.xmin, %s, %s FROM %s WHERE %s.ctid "
				 "OPERATOR(pg_catalog.=) ANY ($1) AND %s.tableoid OPERATOR(pg_catalog.=) ANY ($2) "
				 "AND %s FOR NO KEY UPDATE OF %s SKIP LOCKED",
				 t->alias, t->alias, t->alias, t->key, t->prompt, t->table, t->alias, t->alias,
				 t->todo, t->alias),
		2, claim_types);
	e->look = prepare(psprintf("SELECT FROM %s WHERE %s", t->table, same), 4, types);
	e->take = prepare(psprintf("SELECT FROM %s WHERE %s FOR NO KEY UPDATE OF %s SKIP LOCKED",
							   t->table, same, t->alias),
					  4, types);
	e->update = prepare(psprintf("UPDATE %s SET %s = $5 WHERE %s RETURNING %s IS NULL", t->table,
								 quote_identifier(NameStr(t->column)), same, t->value),
						5, types);
}

/* ---- listing ---- */

static Datum
column(uint64 row, int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, isnull);
}

static void
add_places(LlmEnrich *e, int64 *room)
{
	bool isnull;

	if (e->n_list + (int64) SPI_processed > *room)
	{
		*room = Max(*room * 2, e->n_list + (int64) SPI_processed);
		e->list = repalloc_huge(e->list, sizeof(LlmEnrichPlace) * (Size) *room);
	}
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		LlmEnrichPlace *place = &e->list[e->n_list++];

		place->table = DatumGetObjectId(column(i, 1, &isnull));
		ItemPointerCopy((ItemPointer) DatumGetPointer(column(i, 2, &isnull)), &place->tid);
	}
}

void
llm_enrich_rows_list(LlmEnrich *e)
{
	const LlmEnrichTarget *t = e->target;
	int64 wanted = e->max_rows < 0 ? LIST_MAX : Min(e->max_rows - e->n_claimed, LIST_MAX);
	int64 room = FETCH_ROWS;
	Portal portal;

	/* what has failed and what others have claimed is in the list and will not be claimed */
	wanted += LIST_SPARE + llm_enrich_table_open(t);
	if (e->list != NULL)
		pfree(e->list);
	e->list = MemoryContextAlloc(e->cxt, sizeof(LlmEnrichPlace) * (Size) room);
	e->n_list = e->next = 0;
	e->n_skipped = 0;
	portal = SPI_cursor_open_with_args(
		NULL,
		psprintf("SELECT %s.tableoid, %s.ctid FROM %s WHERE %s LIMIT " INT64_FORMAT, t->alias,
				 t->alias, t->table, t->todo, wanted),
		0, NULL, NULL, NULL, true, 0);
	do
	{
		CHECK_FOR_INTERRUPTS();
		SPI_cursor_fetch(portal, true, FETCH_ROWS);
		add_places(e, &room);
		SPI_freetuptable(SPI_tuptable);
	} while (SPI_processed > 0);
	SPI_cursor_close(portal);
	e->cut = e->n_list >= wanted;
}

/* ---- claiming ---- */

/* The places that were leased for this claim, and which of them are rows now. */
typedef struct Lot
{
	int n;
	LlmEnrichPlace *places; /* [n] */
	bool *used;             /* [n] */
} Lot;

/* Lease the next places of the list, up to n; sorted. Those that were not used by the end of the claim
 * are given back. */
static void
lease_places(LlmEnrich *e, int n, Lot *lot)
{
	lot->n = 0;
	lot->places = palloc(sizeof(LlmEnrichPlace) * n);
	lot->used = palloc0(sizeof(bool) * n);
	while (lot->n < n && e->next < e->n_list)
	{
		const LlmEnrichPlace *place = &e->list[e->next++];

		CHECK_FOR_INTERRUPTS();
		if (lease(e, place))
			lot->places[lot->n++] = *place;
	}
	qsort(lot->places, lot->n, sizeof(LlmEnrichPlace), compare_places);
}

static void
run_claim(LlmEnrich *e, const Lot *lot)
{
	Datum *tids = palloc(sizeof(Datum) * lot->n);
	Datum *tables = palloc(sizeof(Datum) * lot->n);
	Datum values[2];
	int n_tables = 0;
	int rc;

	for (int i = 0; i < lot->n; i++)
	{
		tids[i] = PointerGetDatum(&lot->places[i].tid);
		if (i == 0 || lot->places[i].table != lot->places[i - 1].table)
			tables[n_tables++] = ObjectIdGetDatum(lot->places[i].table);
	}
	values[0] = PointerGetDatum(
		construct_array(tids, lot->n, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT));
	values[1] =
		PointerGetDatum(construct_array(tables, n_tables, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
	rc = SPI_execute_plan(e->claim, values, NULL, false, 0);
	if (rc < 0)
		elog(ERROR, "could not claim rows: %s", SPI_result_code_string(rc));
}

/* A row of the claim's result, if it is one that was leased and has a prompt: in a context of its own. */
static void
add_row(LlmEnrich *e, uint64 i, Lot *lot, LlmEnrichRow *row, NullableDatum *prompt)
{
	LlmEnrichPlace *place;
	bool isnull;
	MemoryContext old;

	memset(row, 0, sizeof(*row));
	row->place.table = DatumGetObjectId(column(i, 1, &isnull));
	ItemPointerCopy((ItemPointer) DatumGetPointer(column(i, 2, &isnull)), &row->place.tid);
	place = bsearch(&row->place, lot->places, lot->n, sizeof(LlmEnrichPlace), compare_places);
	prompt->value = column(i, 5, &prompt->isnull);
	if (place == NULL || prompt->isnull || lot->used[place - lot->places])
		return;
	row->cxt = AllocSetContextCreate(e->cxt, "llm_infer row", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(row->cxt);
	row->xmin = DatumGetTransactionId(column(i, 3, &isnull));
	row->key = PointerGetDatum(PG_DETOAST_DATUM_COPY(column(i, 4, &isnull)));
	MemoryContextSwitchTo(old);
	lot->used[place - lot->places] = true;
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

void
llm_enrich_rows_claim(LlmEnrich *e, int n)
{
	LlmEnrichRow *rows;
	NullableDatum *prompts;
	SPITupleTable *table;
	Lot lot;
	int n_rows = 0;

	lease_places(e, n, &lot);
	if (lot.n == 0)
		return;
	rows = palloc(sizeof(LlmEnrichRow) * lot.n);
	prompts = palloc(sizeof(NullableDatum) * lot.n);
	run_claim(e, &lot);
	table = SPI_tuptable;
	for (uint64 i = 0, n_found = SPI_processed; i < n_found && n_rows < lot.n; i++)
	{
		add_row(e, i, &lot, &rows[n_rows], &prompts[n_rows]);
		n_rows += rows[n_rows].cxt != NULL ? 1 : 0;
	}
	n_rows = skip_failed(e, rows, prompts, n_rows, &lot);
	ask(e, rows, prompts, n_rows);
	SPI_freetuptable(table);
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
