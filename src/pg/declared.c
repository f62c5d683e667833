/* pg/declared.c - compare declarations in the catalogue with those that the library knows. */
#include "postgres.h"

#include "pg/declared.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

bool
llm_declared_like(HeapTuple proc, const LlmDeclared *d)
{
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(proc);

	if (form->pronargs != d->nargs || form->proretset != d->set)
		return false;
	for (int i = 0; i < d->nargs; i++)
		if (form->proargtypes.values[i] != d->args[i])
			return false;
	if (OidIsValid(d->result))
		return form->prorettype == d->result;
	return get_typtype(form->prorettype) == TYPTYPE_COMPOSITE;
}

/* Nothing locks the functions of a running statement. */
void
llm_declared_lost(void)
{
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
					errmsg("llm_infer was dropped while a statement used it")));
}

void
llm_declared_check(FunctionCallInfo fcinfo, const LlmDeclared *d)
{
	Oid oid = fcinfo->flinfo->fn_oid;
	HeapTuple proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	bool same;

	if (!HeapTupleIsValid(proc))
		llm_declared_lost();
	same = llm_declared_like(proc, d);
	ReleaseSysCache(proc);
	if (!same)
		llm_declared_refuse(psprintf("function %s", format_procedure(oid)));
}

void
llm_declared_check_columns(const char *what, TupleDesc desc, const Oid *types, int ntypes)
{
	bool same = desc->natts == ntypes;

	for (int i = 0; same && i < ntypes; i++)
		same =
			!TupleDescAttr(desc, i)->attisdropped && TupleDescAttr(desc, i)->atttypid == types[i];
	if (!same)
		llm_declared_refuse(what);
}

bool
llm_declared_table_like(Relation rel, const LlmDeclaredTable *t)
{
	TupleDesc desc = RelationGetDescr(rel);
	int n = 0;

	if (rel->rd_rel->relkind != RELKIND_RELATION)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);
		const LlmDeclaredColumn *c = &t->columns[n];

		if (a->attisdropped)
			continue;
		if (n == t->n || strcmp(NameStr(a->attname), c->name) != 0)
			return false;
		if (OidIsValid(c->type) ? a->atttypid != c->type
								: get_typtype(a->atttypid) != TYPTYPE_COMPOSITE)
			return false;
		n++;
	}
	return n == t->n;
}

Relation
llm_declared_open_table(const LlmDeclaredTable *t)
{
	Oid schema = get_namespace_oid("llm", true);
	Oid relid = OidIsValid(schema) ? get_relname_relid(t->name, schema) : InvalidOid;
	Relation rel;

	if (!OidIsValid(relid))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("table \"llm.%s\" does not exist", t->name),
						errhint("Use ALTER EXTENSION llm_infer UPDATE.")));
	rel = relation_open(relid, AccessShareLock);
	if (!llm_declared_table_like(rel, t))
		llm_declared_refuse(psprintf("table llm.%s", t->name));
	return rel;
}

void
llm_declared_begin_rows(FunctionCallInfo fcinfo, const Oid *types, int ntypes)
{
	static const LlmDeclared as_view = {0, NULL, RECORDOID, true};

	llm_declared_check(fcinfo, &as_view);
	InitMaterializedSRF(fcinfo, 0);
	llm_declared_check_columns(psprintf("function %s", format_procedure(fcinfo->flinfo->fn_oid)),
							   ((ReturnSetInfo *) fcinfo->resultinfo)->setDesc, types, ntypes);
}

void
llm_declared_refuse(const char *what)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("%s is of another version of llm_infer than its library", what),
					errhint("Restart the server if the library is new, then use ALTER EXTENSION "
							"llm_infer UPDATE.")));
	pg_unreachable();
}
