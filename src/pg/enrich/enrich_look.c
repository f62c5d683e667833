/* pg/enrich/enrich_look.c - run the caller's SQL on rows at known places; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_look.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pg/owned.h"
#include "pg/subxact.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define FETCH_ROWS 1000 /* of one fetch, when there are no prompts */
#define MOVED_MAX 10    /* looks at the same places, while rows of them move away */

/* ---- places ---- */

static int
compare_places(const void *pa, const void *pb)
{
	const LlmEnrichPlace *a = pa;
	const LlmEnrichPlace *b = pb;

	if (a->table != b->table)
		return a->table < b->table ? -1 : 1;
	return ItemPointerCompare(unconstify(ItemPointerData *, &a->tid),
							  unconstify(ItemPointerData *, &b->tid));
}

void
llm_enrich_look_sort(LlmEnrichPlace *places, int n)
{
	qsort(places, n, sizeof(LlmEnrichPlace), compare_places);
}

int
llm_enrich_look_at(const LlmEnrichPlace *places, int n, const LlmEnrichPlace *place)
{
	const LlmEnrichPlace *found = bsearch(place, places, n, sizeof(LlmEnrichPlace), compare_places);

	return found == NULL ? -1 : (int) (found - places);
}

/* ---- errors ---- */

bool
llm_enrich_look_is_of_row(int sqlstate)
{
	static const char *const classes[] = {"20", "21", "22", "23", "2F", "38", "39", "54"};
	const char *state = unpack_sql_state(sqlstate);

	for (Size i = 0; i < lengthof(classes); i++)
		if (strncmp(state, classes[i], 2) == 0)
			return true;
	/* those that nobody has given a meaning to, and PL/pgSQL's */
	return state[0] >= 'I' && strncmp(state, "XX", 2) != 0;
}

/* ---- looking ---- */

static Datum
column(uint64 row, int number, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number, isnull);
}

static bool
is_full(const LlmEnrichLook *l)
{
	return l->claims && l->nbytes >= l->room;
}

static Portal
open_plan(const LlmEnrichLook *l, SPIPlanPtr plan, int from, int to)
{
	int n = to - from;
	Datum *tids = palloc(sizeof(Datum) * n);
	Datum *tables = palloc(sizeof(Datum) * n);
	Datum values[3];
	int n_tables = 0;

	for (int i = 0; i < n; i++)
	{
		LlmEnrichPlace *place = &l->places[from + i];

		tids[i] = PointerGetDatum(&place->tid);
		if (i == 0 || place->table != place[-1].table)
			tables[n_tables++] = ObjectIdGetDatum(place->table);
	}
	values[0] = llm_owned_array(tids, n, TIDOID);
	values[1] = llm_owned_array(tables, n_tables, OIDOID);
	values[2] = BoolGetDatum(l->again);
	return SPI_cursor_open(NULL, plan, values, NULL, false);
}

/* The row that was fetched, in a context of its own; it is one of l->rows when its prompt or failure is set. */
static LlmEnrichRow *
begin_row(LlmEnrichLook *l, const LlmEnrichPlace *place)
{
	LlmEnrichRow *row = &l->rows[l->n_rows];
	bool isnull;
	MemoryContext old;

	memset(row, 0, sizeof(*row));
	row->place = *place;
	row->cxt = AllocSetContextCreate(l->e->calls, "llm_infer row", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(row->cxt);
	row->xmin = DatumGetTransactionId(column(0, 3, &isnull));
	row->key = PointerGetDatum(PG_DETOAST_DATUM_COPY(column(0, 4, &isnull)));
	MemoryContextSwitchTo(old);
	return row;
}

/* A row that was fetched is one of those looked for, and seen for the first time. */
static void
see(LlmEnrichLook *l, uint64 fetched)
{
	NullableDatum *prompt = &l->prompts[l->n_rows];
	LlmEnrichPlace place;
	bool isnull;
	int at;

	place.table = DatumGetObjectId(column(fetched, 1, &isnull));
	ItemPointerCopy((ItemPointer) DatumGetPointer(column(fetched, 2, &isnull)), &place.tid);
	at = llm_enrich_look_at(l->places, l->n, &place);
	if (at < 0 || l->seen[at])
		return;
	if (l->claims)
	{
		prompt->value = column(fetched, 5, &prompt->isnull);
		if (prompt->isnull)
			return;
		prompt->value = PointerGetDatum(PG_DETOAST_DATUM_COPY(prompt->value));
		l->nbytes += VARSIZE(DatumGetPointer(prompt->value));
		(void) begin_row(l, &place);
		l->n_rows++;
	}
	else
		l->wanted[at] = DatumGetBool(column(fetched, 5, &isnull)) && !isnull;
	l->seen[at] = true;
}

/* Some of the places, which are of one unit. */
typedef struct Range
{
	LlmEnrichLook *l;
	int from, to; /* [from, to) */
} Range;

static const LlmEnrichPlans *
plans_of(const Range *r)
{
	return llm_enrich_plans_get(&r->l->e->plans, r->l->e->target, r->l->places[r->from].table);
}

/* Row by row when there are prompts: one is made when there is room for it. */
static void
look(void *arg)
{
	const Range *r = arg;
	LlmEnrichLook *l = r->l;
	const LlmEnrichPlans *plans = plans_of(r);
	Portal portal = open_plan(l, l->claims ? plans->claim : plans->wanted, r->from, r->to);
	uint64 n;

	do
	{
		SPI_cursor_fetch(portal, true, l->claims ? 1 : FETCH_ROWS);
		n = SPI_processed;
		for (uint64 i = 0; i < n; i++)
			see(l, i);
		SPI_freetuptable(SPI_tuptable);
	} while (n > 0 && !is_full(l));
	SPI_cursor_close(portal);
}

/* The row at the range's only place has raised an error. */
static void
blame(const Range *r, const ErrorData *error)
{
	LlmEnrichLook *l = r->l;
	Portal portal;

	if (!l->claims)
	{
		l->seen[r->from] = l->wanted[r->from] = true;
		return;
	}
	portal = open_plan(l, plans_of(r)->identify, r->from, r->to);
	SPI_cursor_fetch(portal, true, 1);
	if (SPI_processed > 0)
	{
		llm_enrich_rows_fail(begin_row(l, &l->places[r->from]), error);
		l->prompts[l->n_rows++].isnull = true;
		l->seen[r->from] = true;
	}
	SPI_freetuptable(SPI_tuptable);
	SPI_cursor_close(portal);
}

static void
look_at_range(LlmEnrichLook *l, int from, int to)
{
	Range r = {l, from, to};
	int had = l->n_rows;
	Size had_nbytes = l->nbytes;
	ErrorData *error;

	if (is_full(l))
		return;
	error = llm_subxact_try(look, &r);
	/* a row that was moved to another partition meanwhile cannot be skipped; a new snapshot does not see it there */
	for (int i = 0;
		 error != NULL && error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE && i < MOVED_MAX;
		 i++)
		error = llm_subxact_try(look, &r);
	if (error == NULL)
		return;
	if (!llm_enrich_look_is_of_row(error->sqlerrcode))
		ReThrowError(error);
	CHECK_FOR_INTERRUPTS();
	while (l->n_rows > had)
		MemoryContextDelete(l->rows[--l->n_rows].cxt);
	l->nbytes = had_nbytes;
	memset(&l->seen[from], 0, sizeof(bool) * (to - from));
	if (to - from == 1)
		blame(&r, error);
	else
	{
		look_at_range(l, from, from + (to - from) / 2);
		look_at_range(l, from + (to - from) / 2, to);
	}
}

int
llm_enrich_look(LlmEnrichLook *l)
{
	LlmEnrich *e = l->e;
	int to;

	l->seen = palloc0(sizeof(bool) * Max(l->n, 1));
	l->wanted = palloc0(sizeof(bool) * Max(l->n, 1));
	if (l->claims)
	{
		l->rows = palloc(sizeof(LlmEnrichRow) * (l->n + 1));
		l->prompts = palloc(sizeof(NullableDatum) * (l->n + 1));
	}
	for (int from = 0; from < l->n; from = to)
	{
		Oid unit = llm_enrich_plans_unit(&e->plans, e->target, l->places[from].table);

		for (to = from + 1; to < l->n; to++)
			if (llm_enrich_plans_unit(&e->plans, e->target, l->places[to].table) != unit)
				break;
		/* SQL that is wrong altogether is nobody's row */
		(void) llm_enrich_plans_get(&e->plans, e->target, l->places[from].table);
		look_at_range(l, from, to);
		if (is_full(l))
			return from;
	}
	return l->n;
}

bool *
llm_enrich_look_wanted(LlmEnrich *e, bool again, const LlmEnrichPlace *places, int n)
{
	LlmEnrichLook l = {.e = e, .again = again, .n = n};
	bool *wanted = palloc(sizeof(bool) * Max(n, 1));

	l.places = palloc(sizeof(LlmEnrichPlace) * Max(n, 1));
	memcpy(l.places, places, sizeof(LlmEnrichPlace) * n);
	llm_enrich_look_sort(l.places, n);
	(void) llm_enrich_look(&l);
	for (int i = 0; i < n; i++)
	{
		int at = llm_enrich_look_at(l.places, n, &places[i]);

		wanted[i] = l.wanted[at] || (again && !l.seen[at]);
	}
	return wanted;
}
