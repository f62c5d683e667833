/*
 * pg/standing/standing_keys.c - look up rows by their keys, through the index of the primary key.
 *
 * A key is a value of jsonb with the columns of the primary key. It becomes columns of their types, which are
 * compared by the operators of the index. All of that runs as the owner of the enrichment.
 */
#include "postgres.h"

#include "pg/standing/standing_keys.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/sysattr.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "pg/subxact.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Append "OPERATOR(schema.=)", the equality of column i of an index. */
static void
append_operator(StringInfo sql, Relation index, int i)
{
	Oid type = index->rd_opcintype[i];
	Oid oid = get_opfamily_member(index->rd_opfamily[i], type, type, BTEqualStrategyNumber);
	HeapTuple tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(oid));
	Form_pg_operator form;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("primary key \"%s\" has no operator of equality",
							   RelationGetRelationName(index))));
	form = (Form_pg_operator) GETSTRUCT(tuple);
	appendStringInfo(sql, " OPERATOR(%s.%s) ",
					 quote_identifier(get_namespace_name(form->oprnamespace)),
					 NameStr(form->oprname));
	ReleaseSysCache(tuple);
}

/* "columns" of the key with their types, and the condition that a row of alias has them. */
static void
write_key(const LlmEnrichTarget *t, const char *from, StringInfo columns, StringInfo condition)
{
	Oid constraint = InvalidOid;
	Relation index;

	if (get_primary_key_attnos(t->relid, true, &constraint) == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("table \"%s\" has no primary key", t->name)));
	index = index_open(get_constraint_index(constraint), AccessShareLock);
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
	{
		AttrNumber attno = index->rd_index->indkey.values[i];
		const char *name = quote_identifier(get_attname(t->relid, attno, false));
		Oid oid = get_atttype(t->relid, attno);
		const char *type =
			format_type_extended(oid, -1, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
		bool is_json = getBaseType(oid) == JSONBOID; /* a record takes strings as they are */

		appendStringInfo(columns, "%s%s %s", i == 0 ? "" : ", ", name,
						 is_json ? "pg_catalog.text" : type);
		appendStringInfo(condition, "%s%s.%s", i == 0 ? "" : " AND ", t->alias, name);
		append_operator(condition, index, i);
		appendStringInfo(condition, is_json ? "CAST(%s.%s AS %s)" : "%s.%s", from, name, type);
	}
	index_close(index, AccessShareLock);
}

static char *
write_query(const LlmEnrichTarget *t)
{
	const char *from = strcmp(t->name, "llm_key") == 0 ? "llm_keys" : "llm_key";
	StringInfoData columns;
	StringInfoData condition;

	initStringInfo(&columns);
	initStringInfo(&condition);
	write_key(t, from, &columns, &condition);
	return psprintf(
		"SELECT llm_list.i, llm_row.* FROM pg_catalog.unnest($1) WITH ORDINALITY AS "
		"llm_list (key, i), LATERAL pg_catalog.jsonb_to_record(llm_list.key) AS %s (%s), "
		"LATERAL (SELECT %s.tableoid, %s.ctid, NOT (%s IS NULL) FROM %s WHERE %s) AS llm_row (t, "
		"c, "
		"v)",
		from, columns.data, t->alias, t->alias, t->value, t->table, condition.data);
}

/* A look for keys [from, to), which adds to what was found. */
typedef struct Look
{
	LlmOwnedStatement *q;
	Datum *keys;
	int from, to;
	int n_found;
	LlmStandingFound *found;
} Look;

static void
look(void *arg)
{
	Look *l = arg;
	Datum value = llm_owned_array(l->keys + l->from, l->to - l->from, JSONBOID);
	int n = llm_owned_run(l->q, &value, NULL, LLM_OWNED_OF_TRANSACTION);

	l->found = repalloc(l->found, sizeof(LlmStandingFound) * (l->n_found + n + 1));
	for (int i = 0; i < n; i++)
	{
		LlmStandingFound *found = &l->found[l->n_found++];

		found->key = l->from + (int) DatumGetInt64(llm_owned_get(i, 1)) - 1;
		found->place.table = DatumGetObjectId(llm_owned_get(i, 2));
		ItemPointerCopy((ItemPointer) DatumGetPointer(llm_owned_get(i, 3)), &found->place.tid);
		found->has_value = DatumGetBool(llm_owned_get(i, 4));
	}
	SPI_freetuptable(SPI_tuptable);
}

/* The error of a look, when it is that a key is no value of its column's type any more; NULL = none. */
static ErrorData *
try_look(Look *l)
{
	ErrorData *error = llm_subxact_try(look, l);

	/* classes of data, and of what domains check */
	if (error != NULL &&
		ERRCODE_TO_CATEGORY(error->sqlerrcode) != MAKE_SQLSTATE('2', '2', '0', '0', '0') &&
		ERRCODE_TO_CATEGORY(error->sqlerrcode) != MAKE_SQLSTATE('2', '3', '0', '0', '0'))
		ReThrowError(error);
	return error;
}

LlmStandingFound *
llm_standing_keys_find(const LlmEnrichTarget *t, LlmOwnedStatement *q, Datum *keys, int n,
					   int *n_found)
{
	Look l = {q, keys, 0, n};

	if (q->sql == NULL)
	{
		q->sql = MemoryContextStrdup(TopMemoryContext, write_query(t));
		q->n_args = 1;
		q->types[0] = JSONBARRAYOID;
	}
	l.found = palloc(sizeof(LlmStandingFound));
	if (try_look(&l) != NULL)
		for (l.from = 0; l.from < n; l.from++)
		{
			ErrorData *error;

			l.to = l.from + 1;
			error = try_look(&l);
			if (error != NULL)
				ereport(LOG, (errmsg("llm_infer: a queued key is none of table \"%s\" any more: %s",
									 t->name, error->message)));
		}
	*n_found = l.n_found;
	return l.found;
}

bool
llm_standing_keys_fit(const LlmEnrichTarget *t, Datum *keys, int n)
{
	Oid constraint;
	Bitmapset *columns = get_primary_key_attnos(t->relid, true, &constraint);
	int column = -1;

	for (int i = 0; i < n; i++)
		if (JB_ROOT_COUNT(DatumGetJsonbP(keys[i])) != (uint32) bms_num_members(columns))
			return false;
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber attno = (AttrNumber) (column + FirstLowInvalidHeapAttributeNumber);
		const char *name = get_attname(t->relid, attno, false);

		for (int i = 0; i < n; i++)
			if (getKeyJsonValueFromContainer(&DatumGetJsonbP(keys[i])->root, name,
											 (int) strlen(name), NULL) == NULL)
				return false;
	}
	return true;
}
