/* pg/memo/memo_table.c - look-ups by a plain index scan, and the statements on the table; see the header. */
#include "postgres.h"

#include "pg/memo/memo_table.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pg/compat.h"
#include "pg/declared.h"
#include "pg/owned.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define ENTRIES "memo_entries"
#define ROW_NBYTES 200   /* what a row takes beside its texts, with its index entries */
#define REMOVE_ROWS 1000 /* by one statement */
/* In the tag of the writer's lock, where objects have the number of a part. */
#define WRITER_LOCK_MARK 0x4C4D
#define TIDY_MS 60000 /* between looks for what belongs to nobody */

enum /* columns of llm.memo_entries, from 0 */
{
	COLUMN_KEY,
	COLUMN_SERVER,
	COLUMN_ROLE,
	COLUMN_CREATED,
	COLUMN_USED,
	COLUMN_FINISH,
	COLUMN_PROMPT_TOKENS,
	COLUMN_COMPLETION_TOKENS,
	COLUMN_NUMERICS_KEY,
	COLUMN_NBYTES,
	COLUMN_ANSWER,
	COLUMN_REASONING,
	N_COLUMNS
};

static const Oid column_types[N_COLUMNS] = {UUIDOID,        OIDOID,  OIDOID,   TIMESTAMPTZOID,
											TIMESTAMPTZOID, INT4OID, INT4OID,  INT4OID,
											INT8OID,        INT4OID, BYTEAOID, BYTEAOID};

/* ---- look-ups ---- */

/* Lock a relation that one reads; it was looked up before and may have gone since. NULL when it has, or
 * when others have it locked. */
static Relation
open_conditionally(Oid relid)
{
	Relation rel;

	if (!OidIsValid(relid) || !ConditionalLockRelationOid(relid, AccessShareLock))
		return NULL;
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		UnlockRelationOid(relid, AccessShareLock);
	return rel;
}

static void
read_bytes(Datum value, MemoryContext cxt, const char **bytes, Size *n)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	bytea *b = DatumGetByteaPCopy(value);

	MemoryContextSwitchTo(old);
	*bytes = VARDATA(b);
	*n = VARSIZE(b) - VARHDRSZ;
}

static void
read_row(TupleTableSlot *slot, MemoryContext cxt, LlmMemoAnswer *out, TimestampTz *used)
{
	slot_getallattrs(slot);
	memset(out, 0, sizeof(*out));
	*used = DatumGetTimestampTz(slot->tts_values[COLUMN_USED]);
	out->finish = DatumGetInt32(slot->tts_values[COLUMN_FINISH]);
	out->prompt_tokens = DatumGetInt32(slot->tts_values[COLUMN_PROMPT_TOKENS]);
	out->completion_tokens = DatumGetInt32(slot->tts_values[COLUMN_COMPLETION_TOKENS]);
	out->numerics_key = (uint64) DatumGetInt64(slot->tts_values[COLUMN_NUMERICS_KEY]);
	read_bytes(slot->tts_values[COLUMN_ANSWER], cxt, &out->text, &out->n_text);
	if (!slot->tts_isnull[COLUMN_REASONING])
		read_bytes(slot->tts_values[COLUMN_REASONING], cxt, &out->reasoning, &out->n_reasoning);
}

/* The row of key as of now; out NULL = only whether there is one. What is committed since the statement's
 * snapshot counts too, so no snapshot is taken: the active one keeps what is seen from VACUUM. */
static bool
look_up(Relation rel, Relation index, const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out,
		TimestampTz *used)
{
	IndexScanDesc scan = llm_compat_index_beginscan(rel, index, SnapshotSelf);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ScanKeyData match;
	bool found;

	ScanKeyInit(&match, 1, BTEqualStrategyNumber, F_UUID_EQ, PointerGetDatum(key->bytes));
	index_rescan(scan, &match, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found && out != NULL)
		read_row(slot, cxt, out, used);
	ExecDropSingleTupleTableSlot(slot);
	index_endscan(scan);
	return found;
}

/* With the table open: the row of key, or false when the index is locked. */
static bool
look_up_in(Relation rel, const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out,
		   TimestampTz *used)
{
	Relation index = open_conditionally(llm_compat_primary_key(rel));
	bool found;

	if (index == NULL)
		return false;
	found = index->rd_index->indkey.values[0] == COLUMN_KEY + 1 &&
			look_up(rel, index, key, cxt, out, used);
	relation_close(index, AccessShareLock);
	return found;
}

bool
llm_memo_table_find(const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out, TimestampTz *used)
{
	Relation rel = open_conditionally(llm_owned_table(ENTRIES));
	bool snapshot = !ActiveSnapshotSet();
	bool found;

	if (rel == NULL)
		return false;
	if (rel->rd_rel->relkind != RELKIND_RELATION)
		llm_declared_refuse("llm." ENTRIES);
	llm_declared_check_columns("llm." ENTRIES, RelationGetDescr(rel), column_types, N_COLUMNS);
	if (snapshot)
		PushActiveSnapshot(GetLatestSnapshot());
	found = look_up_in(rel, key, cxt, out, used);
	if (snapshot)
		PopActiveSnapshot();
	relation_close(rel, AccessShareLock);
	return found;
}

/* ---- the launcher's ---- */

/* The writer's lock. */
static LOCKTAG
writer_tag(void)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, llm_owned_table(ENTRIES),
					   WRITER_LOCK_MARK);
	return tag;
}

bool
llm_memo_table_lock(void)
{
	Oid entries = llm_owned_table(ENTRIES);
	Oid sizes = llm_owned_table("memo_sizes");
	LOCKTAG tag = writer_tag();

	return OidIsValid(entries) && OidIsValid(sizes) &&
		   ConditionalLockRelationOid(entries, RowExclusiveLock) &&
		   ConditionalLockRelationOid(sizes, RowExclusiveLock) &&
		   LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Add rows and bytes; what there is then. Without a change nothing is written. */
static LlmMemoSize
add_up(int64 rows, int64 nbytes)
{
	static LlmOwnedStatement add = {
		"WITH others AS (DELETE FROM llm.memo_sizes WHERE NOT total RETURNING entries, bytes), "
		"more AS (SELECT coalesce(sum(entries), 0) AS entries, coalesce(sum(bytes), 0) AS bytes "
		"FROM others) "
		"UPDATE llm.memo_sizes AS s SET entries = s.entries + more.entries + $1, "
		"bytes = s.bytes + more.bytes + $2 FROM more WHERE total RETURNING "
		"s.entries::bigint, s.bytes::bigint",
		2,
		{INT8OID, INT8OID}};
	/* In one statement, so that both see the same removals. */
	static LlmOwnedStatement count = {
		"WITH others AS (DELETE FROM llm.memo_sizes) "
		"INSERT INTO llm.memo_sizes (total, entries, bytes) "
		"SELECT true, count(*), coalesce(sum(nbytes), 0) FROM llm.memo_entries "
		"RETURNING entries::bigint, bytes::bigint",
		0,
		{0}};
	static LlmOwnedStatement look = {"SELECT coalesce(sum(entries), 0)::bigint, "
									 "coalesce(sum(bytes), 0)::bigint FROM llm.memo_sizes",
									 0,
									 {0}};
	Datum values[] = {Int64GetDatum(rows), Int64GetDatum(nbytes)};
	LlmMemoSize size;

	if (rows == 0)
		(void) llm_owned_run(&look, NULL, NULL, LLM_OWNED_OF_TRANSACTION);
	else if (llm_owned_run(&add, values, NULL, LLM_OWNED_OF_TRANSACTION) == 0)
		(void) llm_owned_run(&count, NULL, NULL, LLM_OWNED_OF_TRANSACTION);
	size.entries = DatumGetInt64(llm_owned_get(0, 1));
	size.nbytes = DatumGetInt64(llm_owned_get(0, 2));
	return size;
}

static Datum
bytea_datum(const char *bytes, Size n)
{
	bytea *b = palloc(VARHDRSZ + n);

	SET_VARSIZE(b, VARHDRSZ + n);
	memcpy(VARDATA(b), bytes, n);
	return PointerGetDatum(b);
}

/* The bytes it takes, 0 = it was there. */
static int64
insert(Relation rel, const LlmMemoItem *item)
{
	static LlmOwnedStatement q = {
		"INSERT INTO llm.memo_entries (key, server, role, created, used, finish, prompt_tokens, "
		"completion_tokens, numerics_key, nbytes, answer, reasoning) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (key) DO NOTHING",
		N_COLUMNS,
		{UUIDOID, OIDOID, OIDOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, INT4OID, INT4OID,
		 INT8OID, INT4OID, BYTEAOID, BYTEAOID}};
	const LlmMemoAnswer *a = &item->answer;
	Size nbytes = ROW_NBYTES + a->n_text + a->n_reasoning;
	char nulls[N_COLUMNS + 1] = "            ";
	Datum values[N_COLUMNS];

	/* A row that somebody is removing would be waited for. */
	if (look_up_in(rel, &item->key, NULL, NULL, NULL))
		return 0;
	values[COLUMN_KEY] = PointerGetDatum(item->key.bytes);
	values[COLUMN_SERVER] = ObjectIdGetDatum(item->server);
	values[COLUMN_ROLE] = ObjectIdGetDatum(item->role);
	values[COLUMN_CREATED] = values[COLUMN_USED] = TimestampTzGetDatum(item->made);
	values[COLUMN_FINISH] = Int32GetDatum(a->finish);
	values[COLUMN_PROMPT_TOKENS] = Int32GetDatum(a->prompt_tokens);
	values[COLUMN_COMPLETION_TOKENS] = Int32GetDatum(a->completion_tokens);
	values[COLUMN_NUMERICS_KEY] = Int64GetDatum((int64) a->numerics_key);
	values[COLUMN_NBYTES] = Int32GetDatum((int32) nbytes);
	values[COLUMN_ANSWER] = bytea_datum(a->text, a->n_text);
	values[COLUMN_REASONING] = a->reasoning ? bytea_datum(a->reasoning, a->n_reasoning) : (Datum) 0;
	nulls[COLUMN_REASONING] = a->reasoning ? ' ' : 'n';
	return llm_owned_run(&q, values, nulls, LLM_OWNED_OF_TRANSACTION) > 0 ? (int64) nbytes : 0;
}

static void
note_use(const LlmMemoItem *item)
{
	static LlmOwnedStatement q = {"UPDATE llm.memo_entries SET used = $2 WHERE key IN "
								  "(SELECT key FROM llm.memo_entries WHERE key = $1 AND used < $2 "
								  "FOR UPDATE SKIP LOCKED)",
								  2,
								  {UUIDOID, TIMESTAMPTZOID}};
	Datum values[] = {PointerGetDatum(item->key.bytes), TimestampTzGetDatum(item->made)};

	(void) llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
}

LlmMemoSize
llm_memo_table_write(const LlmMemoBatch *batch)
{
	LlmOwnedUser before;
	Relation rel;
	int64 rows = 0;
	int64 nbytes = 0;
	LlmMemoSize size;

	llm_owned_enter(ENTRIES, &before);
	rel = table_open(llm_owned_table(ENTRIES), NoLock);
	llm_declared_check_columns("llm." ENTRIES, RelationGetDescr(rel), column_types, N_COLUMNS);
	for (int i = 0; i < batch->n; i++)
	{
		int64 n = batch->items[i].has_answer ? insert(rel, &batch->items[i]) : 0;

		if (!batch->items[i].has_answer)
			note_use(&batch->items[i]);
		nbytes += n;
		rows += n > 0;
	}
	table_close(rel, NoLock);
	size = add_up(rows, nbytes);
	llm_owned_leave(&before);
	return size;
}

/* The rows and bytes of {count, sum} in SPI_tuptable are gone: how many rows. */
static int64
subtract(void)
{
	int64 rows = DatumGetInt64(llm_owned_get(0, 1));

	if (rows > 0)
		(void) add_up(-rows, -DatumGetInt64(llm_owned_get(0, 2)));
	return rows;
}

int64
llm_memo_table_evict(const LlmMemoSize *size, int64 limit)
{
	static LlmOwnedStatement q = {
		"WITH old AS (SELECT s.key FROM (SELECT o.key, "
		"sum(o.nbytes) OVER (ROWS UNBOUNDED PRECEDING) - o.nbytes AS before "
		"FROM (SELECT key, nbytes FROM llm.memo_entries ORDER BY used LIMIT $2 "
		"FOR UPDATE SKIP LOCKED) AS o) AS s WHERE s.before < $1), "
		"gone AS (DELETE FROM llm.memo_entries AS e USING old WHERE e.key = old.key "
		"RETURNING e.nbytes) "
		"SELECT count(*), coalesce(sum(nbytes), 0)::bigint FROM gone",
		2,
		{INT8OID, INT8OID}};
	int64 over = size->nbytes - limit;
	/* of the average size, so that few are locked in vain */
	int64 rows = 1 + (int64) ((double) over * size->entries / size->nbytes);
	Datum values[] = {Int64GetDatum(over), Int64GetDatum(Min(rows, REMOVE_ROWS))};
	LlmOwnedUser before;

	llm_owned_enter(ENTRIES, &before);
	(void) llm_owned_run(&q, values, NULL, LLM_OWNED_OF_TRANSACTION);
	rows = subtract();
	llm_owned_leave(&before);
	return rows;
}

bool
llm_memo_table_tidy(void)
{
	/* Jumps from one (role, server) to the next through the index. */
	static LlmOwnedStatement q = {
		"WITH RECURSIVE askers AS ("
		"(SELECT role, server FROM llm.memo_entries ORDER BY role, server LIMIT 1) "
		"UNION ALL SELECT n.role, n.server FROM askers AS a, LATERAL ("
		"SELECT role, server FROM llm.memo_entries AS e "
		"WHERE (e.role, e.server) > (a.role, a.server) ORDER BY e.role, e.server LIMIT 1) AS n), "
		"lost AS MATERIALIZED (SELECT role, server FROM askers AS a "
		"WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = a.role) "
		"OR NOT EXISTS (SELECT FROM pg_foreign_server AS s WHERE s.oid = a.server) LIMIT 1), "
		"nobodys AS (SELECT e.key FROM lost, LATERAL ("
		"SELECT key FROM llm.memo_entries AS e WHERE e.role = lost.role AND e.server = lost.server "
		"LIMIT $1 FOR UPDATE SKIP LOCKED) AS e), "
		"gone AS (DELETE FROM llm.memo_entries AS e USING nobodys WHERE e.key = nobodys.key "
		"RETURNING e.nbytes) "
		"SELECT count(*), coalesce(sum(nbytes), 0)::bigint FROM gone",
		1,
		{INT8OID}};
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();
	Datum most = Int64GetDatum(REMOVE_ROWS);
	LlmOwnedUser before;
	bool more;

	if (now < TimestampTzPlusMilliseconds(last, TIDY_MS))
		return false;
	llm_owned_enter(ENTRIES, &before);
	(void) llm_owned_run(&q, &most, NULL, LLM_OWNED_OF_TRANSACTION);
	more = subtract() > 0;
	llm_owned_leave(&before);
	if (!more)
		last = now;
	return more;
}

/* ---- anybody's ---- */

void
llm_memo_table_wait_writer(void)
{
	LOCKTAG tag = writer_tag();

	(void) LockAcquire(&tag, ShareLock, false, false);
	(void) LockRelease(&tag, ShareLock, false);
}

Oid *
llm_memo_table_roles(Oid user, int *n)
{
	static LlmOwnedStatement q = {
		"SELECT oid FROM pg_roles WHERE pg_has_role($1, oid, 'USAGE') ORDER BY oid", 1, {OIDOID}};
	MemoryContext cxt = CurrentMemoryContext;
	Datum value = ObjectIdGetDatum(user);
	LlmOwnedUser before;
	Oid *roles;

	llm_owned_enter(ENTRIES, &before);
	*n = llm_owned_run(&q, &value, NULL, LLM_OWNED_OF_NOW);
	roles = MemoryContextAlloc(cxt, sizeof(Oid) * Max(*n, 1));
	for (int i = 0; i < *n; i++)
		roles[i] = DatumGetObjectId(llm_owned_get(i, 1));
	llm_owned_leave(&before);
	return roles;
}

static Datum
oids_datum(const Oid *oids, int n)
{
	Datum *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = ObjectIdGetDatum(oids[i]);
	return llm_owned_array(elems, n, OIDOID);
}

int64
llm_memo_table_forget(const List *servers, const Oid *roles, int n_roles)
{
	static LlmOwnedStatement q = {
		"WITH gone AS (DELETE FROM llm.memo_entries WHERE role = ANY ($1) "
		"AND ($2 IS NULL OR server = ANY ($2)) RETURNING nbytes), "
		"s AS (SELECT count(*) AS entries, coalesce(sum(nbytes), 0) AS bytes FROM gone) "
		"INSERT INTO llm.memo_sizes (total, entries, bytes) "
		"SELECT false, 0 - entries, 0 - bytes FROM s WHERE entries > 0 "
		"RETURNING (0 - entries)::bigint",
		2,
		{OIDARRAYOID, OIDARRAYOID}};
	Oid *some = palloc(sizeof(Oid) * Max(list_length(servers), 1));
	Datum values[2];
	LlmOwnedUser before;
	int64 n = 0;

	for (int i = 0; i < list_length(servers); i++)
		some[i] = list_nth_oid(servers, i);
	values[0] = oids_datum(roles, n_roles);
	values[1] = oids_datum(some, list_length(servers));
	llm_owned_enter(ENTRIES, &before);
	if (llm_owned_run(&q, values, servers == NIL ? " n" : "  ", LLM_OWNED_OF_NOW_WRITE) > 0)
		n = DatumGetInt64(llm_owned_get(0, 1));
	llm_owned_leave(&before);
	return n;
}
