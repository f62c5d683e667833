/*
 * pg/standing/standing_claim.c - rows of the queue and of the backfill get into work.
 *
 * An entry that is due leads to its rows by their key (standing_keys.h); these are claimed like any others,
 * whatever value they have. An entry without such a row goes, one whose row somebody else has is queued again
 * for later. The backfill lists rows without a value, as llm_enrich does, until a pass finds none. What a row
 * is done for goes along with it, to be removed with its write: also for one of the backfill, so that a new
 * row is not done twice.
 */
#include "postgres.h"

#include "pg/standing/standing_claim.h"

#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "pg/enrich/enrich_look.h"
#include "pg/enrich/enrich_progress.h"
#include "pg/standing/standing_defs.h"
#include "pg/standing/standing_keys.h"
#include "pg/workers.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

/* ---- what rows are done for ---- */

/* Give entries to a row, in its memory. */
static void
attach(LlmEnrichRow *row, const LlmStandingEntries *entries)
{
	MemoryContext old = MemoryContextSwitchTo(row->cxt);
	LlmStandingEntries *mine = palloc(sizeof(LlmStandingEntries));

	*mine = *entries;
	mine->key = row->key;
	mine->ids = palloc(sizeof(int64) * entries->n);
	memcpy(mine->ids, entries->ids, sizeof(int64) * entries->n);
	row->entries = mine;
	MemoryContextSwitchTo(old);
}

/* ---- the queue ---- */

/* Entries that were taken, and the rows that they lead to. */
typedef struct Taken
{
	int n;
	LlmStandingEntries *entries; /* [n] */
	int *n_wanted;               /* [n] rows that are to be done */
	int *n_claimed;              /* [n] of them: those in work */
	bool unknown;                /* some are not keys of this table */
	int n_found;
	LlmStandingFound *found; /* [n_found] */
} Taken;

static int
compare_found(const void *a, const void *b)
{
	const LlmStandingFound *x = a;
	const LlmStandingFound *y = b;

	if (x->place.table != y->place.table)
		return x->place.table < y->place.table ? -1 : 1;
	return ItemPointerCompare(unconstify(ItemPointerData *, &x->place.tid),
							  unconstify(ItemPointerData *, &y->place.tid));
}

/* Entries that are due, up to n, but for those of rows in work. */
static void
take(LlmStanding *s, int n, Taken *t)
{
	int64 *without = palloc(sizeof(int64) * Max(s->e.n_rows, 1));
	int n_without = 0;

	for (int i = 0; i < s->e.n_rows; i++)
	{
		const LlmStandingEntries *entries = s->e.rows[i].entries;

		if (entries != NULL)
			without[n_without++] = entries->hash;
	}
	t->n = n;
	t->entries = llm_standing_queue_take(s->id, without, n_without, &s->place, &t->n);
	t->n_wanted = palloc0(sizeof(int) * Max(t->n, 1));
	t->n_claimed = palloc0(sizeof(int) * Max(t->n, 1));
}

/* Their rows, by place; those to be done are the list. */
static void
find(LlmStanding *s, Taken *t, LlmEnrichList *list)
{
	Datum *keys = palloc(sizeof(Datum) * t->n);
	bool *seen = palloc0(sizeof(bool) * t->n);
	LlmEnrichPlace *places;
	int *of; /* places' keys */
	bool *wanted;
	int n_gone = 0;
	int n = 0;

	for (int i = 0; i < t->n; i++)
		keys[i] = t->entries[i].key;
	t->found = llm_standing_keys_find(s->e.target, &s->find, keys, t->n, &t->n_found);
	places = palloc(sizeof(LlmEnrichPlace) * Max(t->n_found, 1));
	of = palloc(sizeof(int) * Max(t->n_found, 1));
	for (int i = 0; i < t->n_found; i++)
	{
		seen[t->found[i].key] = true;
		if (t->found[i].has_value && t->entries[t->found[i].key].only_null)
			continue;
		of[n] = t->found[i].key;
		places[n++] = t->found[i].place;
	}
	for (int i = 0; i < t->n; i++)
		if (!seen[i])
			keys[n_gone++] = keys[i];
	t->unknown = !llm_standing_keys_fit(s->e.target, keys, n_gone);
	wanted = llm_enrich_look_wanted(&s->e, true, places, n);
	list->places = places;
	for (int i = 0; i < n; i++)
	{
		if (!wanted[i])
			continue;
		t->n_wanted[of[i]]++;
		places[list->n++] = places[i];
	}
	qsort(t->found, t->n_found, sizeof(LlmStandingFound), compare_found);
}

/* Rows [from, ..) of those in work are of this claim. */
static void
attach_taken(LlmStanding *s, Taken *t, int from)
{
	for (int i = from; i < s->e.n_rows; i++)
	{
		LlmStandingFound key = {.place = s->e.rows[i].place};
		const LlmStandingFound *found =
			bsearch(&key, t->found, t->n_found, sizeof(LlmStandingFound), compare_found);

		attach(&s->e.rows[i], &t->entries[found->key]);
		t->n_claimed[found->key]++;
	}
}

/* Rows were written whose keys are not known: the table had no primary key, or another one. A backfill begins anew,
 * and finds those of them that have no value; without one it is its owner's to say whether to look for these. False
 * when that cannot be done now: the definition is being changed. */
static bool
meet_unknown(LlmStanding *s)
{
	static const char reason[] =
		"rows were written while their table had no primary key, or another one "
		"(llm_enrich_resume with backfill => true finds those without a value)";

	if (s->backfill)
	{
		s->in_pass = false;
		s->e.list.n = s->e.list.next = 0;
		return true;
	}
	if (llm_standing_defs_version(s->id, true) != s->version)
		return false;
	llm_standing_defs_pause(s->id, reason);
	ereport(LOG, (errmsg("llm_infer: enrichment " INT64_FORMAT " is paused: %s", s->id, reason)));
	s->over = true;
	return true;
}

static bool
claim_queue(LlmStanding *s, int n)
{
	LlmStandingChanges changes = {.id = s->id};
	LlmEnrichList list = {.again = true};
	int from = s->e.n_rows;
	bool settled;
	Taken t = {0};

	if (!s->queue_more || !llm_standing_begin(s, "claiming changed rows"))
		return false;
	take(s, n, &t);
	s->queue_more = t.n > 0;
	if (t.n > 0)
	{
		find(s, &t, &list);
		if (list.n > 0)
			llm_enrich_rows_claim(&s->e, &list, n);
		attach_taken(s, &t, from);
	}
	/* else, for want of memory, these are found again */
	settled = list.next == list.n && (!t.unknown || meet_unknown(s));
	if (!settled)
		s->place.go_on = false;
	for (int i = 0; i < t.n && settled; i++)
	{
		if (t.n_claimed[i] == 0)
			llm_standing_queue_remove(&changes, &t.entries[i]);
		if (t.n_claimed[i] < t.n_wanted[i])
			llm_standing_queue_add(&changes, t.entries[i].key, t.entries[i].only_null,
								   LLM_STANDING_LATE_MS);
	}
	llm_standing_queue_change(&changes);
	llm_standing_end(s);
	return t.n > 0;
}

/* ---- the backfill ---- */

/* Whether rows of the table have keys of their own: not so in children by INHERITS. */
static bool
has_unique_keys(Oid relid)
{
	return get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE || !has_subclass(relid);
}

/* Whether a row of the queue among the first n in work has this key. */
static bool
is_in_work(const LlmStanding *s, int n, Datum key)
{
	for (int i = 0; i < n; i++)
		if (s->e.rows[i].entries != NULL && datumIsEqual(s->e.rows[i].key, key, false, -1))
			return true;
	return false;
}

/* Give entries to rows [from, ..) of those in work. One of which the queue has an older version in work is left to
 * the next pass: that will be queued again. */
static void
attach_queued(LlmStanding *s, int from)
{
	Datum *keys = palloc(sizeof(Datum) * (s->e.n_rows + 1));
	LlmStandingEntries *entries;
	int n;

	if (!has_unique_keys(s->e.target->relid))
		return;
	for (int i = s->e.n_rows - 1; i >= from; i--)
		if (is_in_work(s, from, s->e.rows[i].key))
			llm_enrich_rows_drop(&s->e, i);
	n = s->e.n_rows - from;
	if (n == 0)
		return;
	for (int i = 0; i < n; i++)
		keys[i] = s->e.rows[from + i].key;
	entries = llm_standing_queue_find(s->id, keys, n);
	for (int i = 0; i < n; i++)
		if (entries[i].n > 0)
			attach(&s->e.rows[from + i], &entries[i]);
}

/* There is no row without a value, but for those that have failed. */
static void
finish_backfill(LlmStanding *s)
{
	if (llm_standing_defs_version(s->id, true) != s->version)
		return; /* it is changed at this moment */
	llm_standing_defs_backfilled(s->id);
	s->version = llm_standing_defs_version(s->id, false);
	s->backfill = false;
}

/* The pass has come to the end of its list. In a transaction. */
static void
end_pass(LlmStanding *s)
{
	s->in_pass = false;
	if (s->e.list.n == s->e.n_skipped)
	{
		finish_backfill(s);
		return;
	}
	s->n_vain = s->n_found > 0 ? 0 : s->n_vain + 1;
	s->pass_due = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
											  llm_workers_backoff_ms(Max(s->n_vain, 1)));
}

static bool
claim_backfill(LlmStanding *s, int n)
{
	int from = s->e.n_rows;
	bool any;

	/* what is in work has no value yet; it need not be listed again */
	if (!s->backfill ||
		(!s->in_pass && (s->e.n_rows > 0 || s->n_vain > 0) && GetCurrentTimestamp() < s->pass_due))
		return false;
	llm_enrich_progress_show(&s->e, s->in_pass ? LLM_PROGRESS_CLAIMING : LLM_PROGRESS_LISTING);
	if (!llm_standing_begin(s, s->in_pass ? "claiming rows" : "listing rows"))
		return false;
	if (!s->in_pass)
	{
		llm_enrich_rows_list(&s->e);
		s->in_pass = true;
		s->n_found = 0;
	}
	llm_enrich_rows_claim(&s->e, &s->e.list, n);
	attach_queued(s, from);
	any = s->e.n_rows > from;
	s->n_found += s->e.n_rows - from;
	if (s->e.list.next == s->e.list.n)
		end_pass(s);
	llm_standing_end(s);
	return any || s->in_pass;
}

/* ---- in turn ---- */

bool
llm_standing_claim(LlmStanding *s)
{
	int n = llm_enrich_room(&s->e);

	for (int i = 0; i < 2 && n > 0 && !s->over; i++)
	{
		s->queue_last = !s->queue_last;
		if (s->queue_last ? claim_queue(s, n) : claim_backfill(s, n))
			return true;
	}
	return false;
}
