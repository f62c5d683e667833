/* pg/declared.c - compare declarations in the catalogue with those that the library knows. */
#include "postgres.h"

#include "pg/declared.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/lsyscache.h"
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
