/*
 * pg/declared_tables.c - the columns of our tables for jobs and enrichments, as our statements know them.
 *
 * They are compared before anything reads or writes one of them, in the catalogue's caches: that takes no
 * lock, so nobody waits behind DDL for it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "pg/declared.h"
#include "pg/owned.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

typedef struct Column
{
	const char *name; /* NULL = the end */
	Oid type;         /* InvalidOid = some composite type */
} Column;

static const Column job_queue[] = {
	{"id", INT8OID},
	{"owner", REGROLEOID},
	{"rank", INT4OID},
	{"due", TIMESTAMPTZOID},
	{"state", TEXTOID},
	{"attempts", INT4OID},
	{"max_attempts", INT4OID},
	{"submitted", TIMESTAMPTZOID},
	{"started", TIMESTAMPTZOID},
	{"finished", TIMESTAMPTZOID},
	{"model", TEXTOID},
	{"prompt", TEXTOID},
	{"system_prompt", TEXTOID},
	{"max_tokens", INT4OID},
	{"temperature", FLOAT8OID},
	{"seed", INT8OID},
	{"stop", TEXTARRAYOID},
	{"options", JSONBOID},
	{"result", InvalidOid},
	{"sqlstate", TEXTOID},
	{"message", TEXTOID},
	{NULL, 0},
};
static const Column enrich_failures[] = {
	{"relation", OIDOID},
	{"target", NAMEOID},
	{"hash", INT8OID},
	{"key", JSONBOID},
	{"row_xmin", XIDOID},
	{"role", OIDOID},
	{"attempts", INT4OID},
	{"failed", TIMESTAMPTZOID},
	{"sqlstate", TEXTOID},
	{"message", TEXTOID},
	{NULL, 0},
};
static const Column enrichment_defs[] = {
	{"id", INT8OID},
	{"name", NAMEOID},
	{"owner", REGROLEOID},
	{"relation", REGCLASSOID},
	{"target", NAMEOID},
	{"prompt", TEXTOID},
	{"expr", TEXTOID},
	{"filter", TEXTOID},
	{"search_path", TEXTOID},
	{"sources", NAMEARRAYOID},
	{"batch_size", INT4OID},
	{"concurrency", INT4OID},
	{"model", TEXTOID},
	{"max_tokens", INT4OID},
	{"temperature", FLOAT8OID},
	{"seed", INT8OID},
	{"response_format", JSONBOID},
	{"options", JSONBOID},
	{"active", BOOLOID},
	{"reason", TEXTOID},
	{"backfill", BOOLOID},
	{"created", TIMESTAMPTZOID},
	{NULL, 0},
};
static const Column enrich_queue[] = {
	{"id", INT8OID},   {"enrichment", INT8OID}, {"due", TIMESTAMPTZOID},
	{"hash", INT8OID}, {"key", JSONBOID},       {"only_null", BOOLOID},
	{NULL, 0},
};

static const struct
{
	const char *name;
	const Column *columns;
} tables[] = {
	{"job_queue", job_queue},
	{"enrich_failures", enrich_failures},
	{"enrichment_defs", enrichment_defs},
	{"enrich_queue", enrich_queue},
};

static bool
column_like(const Column *c, Form_pg_attribute a)
{
	return c->name != NULL && strcmp(NameStr(a->attname), c->name) == 0 &&
		   (OidIsValid(c->type) ? a->atttypid == c->type
								: get_typtype(a->atttypid) == TYPTYPE_COMPOSITE);
}

/* Whether the relation is a table with exactly these columns; dropped ones do not count. */
static bool
table_like(Oid relid, const Column *c)
{
	bool same = OidIsValid(relid) && get_rel_relkind(relid) == RELKIND_RELATION;
	HeapTuple tuple;

	for (AttrNumber i = 1; same; i++)
	{
		Form_pg_attribute a;

		tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid), Int16GetDatum(i));
		if (!HeapTupleIsValid(tuple))
			break;
		a = (Form_pg_attribute) GETSTRUCT(tuple);
		if (!a->attisdropped)
			same = column_like(c++, a);
		ReleaseSysCache(tuple);
	}
	return same && c->name == NULL;
}

const char *
llm_declared_strange_table(void)
{
	for (Size i = 0; i < lengthof(tables); i++)
		if (!table_like(llm_owned_table(tables[i].name), tables[i].columns))
			return tables[i].name;
	return NULL;
}

void
llm_declared_check_tables(void)
{
	const char *name = llm_declared_strange_table();

	if (name != NULL && !OidIsValid(get_extension_oid("llm_infer", true)))
		llm_declared_lost();
	if (name != NULL)
		llm_declared_refuse(psprintf("table llm.%s", name));
}
