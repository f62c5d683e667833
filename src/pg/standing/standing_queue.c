/* pg/standing/standing_queue.c - the statements of workers on llm.enrich_queue; see the header. */
#include "postgres.h"

#include "pg/standing/standing_queue.h"

#include "catalog/pg_type.h"
#include "pg/owned.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* ---- the launcher's ---- */

LlmJobLane *
llm_standing_queue_lanes(int *n)
{
	static LlmOwnedStatement gone = {
		"WITH gone AS (DELETE FROM llm.enrichment_defs WHERE id IN "
		"(SELECT d.id FROM llm.enrichment_defs AS d WHERE NOT EXISTS "
		"(SELECT FROM pg_class AS c WHERE c.oid = d.relation::oid) FOR UPDATE SKIP LOCKED) "
		"RETURNING id) "
		"DELETE FROM llm.enrich_queue AS q USING gone WHERE q.enrichment = gone.id",
		0,
		{0}};
	static LlmOwnedStatement lanes = {
		"SELECT d.owner::oid, d.id, CASE WHEN d.backfill THEN clock_timestamp() ELSE q.due END "
		"FROM llm.enrichment_defs AS d LEFT JOIN LATERAL (SELECT due FROM llm.enrich_queue "
		"WHERE enrichment = d.id ORDER BY enrichment, due, id LIMIT 1) AS q ON true "
		"WHERE d.active AND (d.backfill OR q.due IS NOT NULL) ORDER BY d.id",
		0,
		{0}};

	(void) llm_job_table_run(&gone, NULL, NULL, LLM_OWNED_OF_TRANSACTION);
	return llm_job_table_select_lanes(&lanes, n);
}

/* ---- looking ---- */

/* Ids of an int8[] in CurrentMemoryContext. */
static void
read_ids(LlmStandingEntries *e, Datum array)
{
	Datum *elems;

	deconstruct_array(DatumGetArrayTypeP(array), INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elems, NULL, &e->n);
	e->ids = palloc(sizeof(int64) * e->n);
	for (int i = 0; i < e->n; i++)
		e->ids[i] = DatumGetInt64(elems[i]);
}

/* Take once; *n is the limit, and then what was found. */
static LlmStandingEntries *
take(int64 id, Datum without, LlmStandingPlace *place, int *n)
{
	/* All entries of a key that are there come with one that is due. */
	static LlmOwnedStatement q = {
		"WITH head AS MATERIALIZED (SELECT due, id, hash FROM llm.enrich_queue "
		"WHERE enrichment = $1 AND due <= $2 AND (due, id) > ($3, $4) AND hash <> ALL ($5) "
		"ORDER BY enrichment, due, id LIMIT $6), "
		"last AS (SELECT due, id FROM head ORDER BY due DESC, id DESC LIMIT 1) "
		"SELECT q.hash, q.key, array_agg(q.id), bool_and(q.only_null), last.due, last.id "
		"FROM (SELECT DISTINCT hash FROM head) AS h "
		"JOIN llm.enrich_queue AS q ON q.enrichment = $1 AND q.hash = h.hash, last "
		"GROUP BY q.hash, q.key, last.due, last.id ORDER BY min(q.due), min(q.id)",
		6,
		{INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, INT8ARRAYOID, INT8OID}};
	MemoryContext cxt = CurrentMemoryContext;
	Datum values[] = {Int64GetDatum(id),
					  TimestampTzGetDatum(GetCurrentTimestamp()),
					  TimestampTzGetDatum(place->go_on ? place->due : DT_NOBEGIN),
					  Int64GetDatum(place->go_on ? place->id : 0),
					  without,
					  Int64GetDatum(*n)};
	LlmStandingEntries *out;
	LlmOwnedUser before;

	llm_job_table_enter(&before);
	*n = llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
	MemoryContextSwitchTo(cxt);
	out = palloc(sizeof(LlmStandingEntries) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
	{
		out[i].hash = DatumGetInt64(llm_owned_get(i, 1));
		out[i].key = PointerGetDatum(PG_DETOAST_DATUM_COPY(llm_owned_get(i, 2)));
		read_ids(&out[i], llm_owned_get(i, 3));
		out[i].only_null = DatumGetBool(llm_owned_get(i, 4));
	}
	place->go_on = *n > 0;
	if (*n > 0)
	{
		place->due = DatumGetTimestampTz(llm_owned_get(0, 5));
		place->id = DatumGetInt64(llm_owned_get(0, 6));
	}
	llm_owned_leave(&before);
	MemoryContextSwitchTo(cxt);
	return out;
}

LlmStandingEntries *
llm_standing_queue_take(int64 id, const int64 *without, int n_without, LlmStandingPlace *place,
						int *n)
{
	Datum *hashes = palloc(sizeof(Datum) * Max(n_without, 1));
	bool whole = !place->go_on;
	int limit = *n;
	LlmStandingEntries *out;

	for (int i = 0; i < n_without; i++)
		hashes[i] = Int64GetDatum(without[i]);
	out = take(id, llm_owned_array(hashes, n_without, INT8OID), place, n);
	if (*n > 0 || whole)
		return out;
	/* what was committed late is before that place */
	*n = limit;
	return take(id, llm_owned_array(hashes, n_without, INT8OID), place, n);
}

LlmStandingEntries *
llm_standing_queue_find(int64 id, Datum *keys, int n)
{
	static LlmOwnedStatement q = {
		"SELECT k.i, q.hash, array_agg(q.id), bool_and(q.only_null) FROM unnest($2) WITH "
		"ORDINALITY AS k (key, i) "
		"JOIN llm.enrich_queue AS q ON q.enrichment = $1 "
		"AND q.hash = jsonb_hash_extended(k.key, 0) AND q.key = k.key GROUP BY k.i, q.hash",
		2,
		{INT8OID, JSONBARRAYOID}};
	MemoryContext cxt = CurrentMemoryContext;
	Datum values[] = {Int64GetDatum(id), llm_owned_array(keys, n, JSONBOID)};
	LlmStandingEntries *out = palloc0(sizeof(LlmStandingEntries) * Max(n, 1));
	LlmOwnedUser before;
	int n_found;

	llm_job_table_enter(&before);
	n_found = llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
	MemoryContextSwitchTo(cxt);
	for (int row = 0; row < n_found; row++)
	{
		LlmStandingEntries *e = &out[DatumGetInt64(llm_owned_get(row, 1)) - 1];

		e->hash = DatumGetInt64(llm_owned_get(row, 2));
		read_ids(e, llm_owned_get(row, 3));
		e->only_null = DatumGetBool(llm_owned_get(row, 4));
	}
	llm_owned_leave(&before);
	MemoryContextSwitchTo(cxt);
	return out;
}

/* ---- changing ---- */

void
llm_standing_queue_rename(int64 id, const char *column, const char *name)
{
	static LlmOwnedStatement q = {
		"UPDATE llm.enrich_queue SET (key, hash) = (SELECT n.key, jsonb_hash_extended(n.key, 0) "
		"FROM (SELECT key - $2 || jsonb_build_object($3, key -> $2) AS key) AS n) "
		"WHERE enrichment = $1 AND key ? $2",
		3,
		{INT8OID, TEXTOID, TEXTOID}};
	Datum values[] = {Int64GetDatum(id), CStringGetTextDatum(column), CStringGetTextDatum(name)};

	(void) llm_job_table_run(&q, values, NULL, LLM_OWNED_OF_NOW_WRITE);
}

/* Make room for n more in arrays, in CurrentMemoryContext. */
static void
make_room(Datum **const *arrays, int n_arrays, int *room, int used, int n)
{
	if (used + n <= *room)
		return;
	n = Max(Max(*room * 2, used + n), 64);
	for (int i = 0; i < n_arrays; i++)
		*arrays[i] =
			*room == 0 ? palloc(sizeof(Datum) * n) : repalloc(*arrays[i], sizeof(Datum) * n);
	*room = n;
}

void
llm_standing_queue_remove(LlmStandingChanges *c, const LlmStandingEntries *entries)
{
	Datum **arrays[] = {&c->hashes, &c->ids};

	make_room(arrays, lengthof(arrays), &c->room_removed, c->n_removed, entries->n);
	for (int i = 0; i < entries->n; i++)
	{
		c->hashes[c->n_removed] = Int64GetDatum(entries->hash);
		c->ids[c->n_removed++] = Int64GetDatum(entries->ids[i]);
	}
}

void
llm_standing_queue_add(LlmStandingChanges *c, Datum key, bool only_null, int ms)
{
	Datum **arrays[] = {&c->keys, &c->dues, &c->only_null};

	make_room(arrays, lengthof(arrays), &c->room_added, c->n_added, 1);
	c->keys[c->n_added] = key;
	c->only_null[c->n_added] = BoolGetDatum(only_null);
	c->dues[c->n_added++] =
		TimestampTzGetDatum(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms));
}

void
llm_standing_queue_change(LlmStandingChanges *c)
{
	static LlmOwnedStatement remove = {
		"DELETE FROM llm.enrich_queue AS q USING unnest($2, $3) AS r (hash, id) "
		"WHERE q.enrichment = $1 AND q.hash = r.hash AND q.id = r.id",
		3,
		{INT8OID, INT8ARRAYOID, INT8ARRAYOID}};
	static LlmOwnedStatement add = {
		"INSERT INTO llm.enrich_queue (enrichment, due, hash, key, only_null) "
		"SELECT $1, n.due, jsonb_hash_extended(n.key, 0), n.key, n.only_null "
		"FROM unnest($2, $3, $4) AS n (key, due, only_null)",
		4,
		{INT8OID, JSONBARRAYOID, TIMESTAMPTZARRAYOID, BOOLARRAYOID}};
	Datum values[4] = {Int64GetDatum(c->id)};
	LlmOwnedUser before;

	if (c->n_removed == 0 && c->n_added == 0)
		return;
	llm_job_table_enter(&before);
	if (c->n_removed > 0)
	{
		values[1] = llm_owned_array(c->hashes, c->n_removed, INT8OID);
		values[2] = llm_owned_array(c->ids, c->n_removed, INT8OID);
		(void) llm_owned_run(&remove, values, NULL, LLM_OWNED_OF_TRANSACTION);
	}
	if (c->n_added > 0)
	{
		values[1] = llm_owned_array(c->keys, c->n_added, JSONBOID);
		values[2] = llm_owned_array(c->dues, c->n_added, TIMESTAMPTZOID);
		values[3] = llm_owned_array(c->only_null, c->n_added, BOOLOID);
		(void) llm_owned_run(&add, values, NULL, LLM_OWNED_OF_TRANSACTION);
	}
	llm_owned_leave(&before);
}
