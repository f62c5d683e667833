/*
 * pg/declared.h - whether the catalogue declares our objects as this library knows them.
 *
 * After an upgrade of the package and before ALTER EXTENSION UPDATE, or before the restart of the
 * server, the two are of different versions. C code believes what it is told about arguments and
 * columns, so each entry point compares before it reads or fills any.
 */
#ifndef LLM_PG_DECLARED_H
#define LLM_PG_DECLARED_H

#include "postgres.h"

#include "access/htup.h"
#include "access/tupdesc.h"
#include "fmgr.h"
#include "utils/relcache.h"

/* How the install script declares a C function. */
typedef struct LlmDeclared
{
	int nargs;
	const Oid *args; /* [nargs] types */
	Oid result; /* InvalidOid = some composite type: its columns are checked when it is built */
	bool set;   /* SETOF */
} LlmDeclared;

/* Whether the function of a pg_proc tuple is declared like that. */
extern bool llm_declared_like(HeapTuple proc, const LlmDeclared *d);

/* Raise 55000 unless the function that is being called is declared like that, 42883 when it is no
 * more. One look into the syscache. */
extern void llm_declared_check(FunctionCallInfo fcinfo, const LlmDeclared *d);

/* Raise 55000 unless the columns have these types; what names the object in the message. */
extern void llm_declared_check_columns(const char *what, TupleDesc desc, const Oid *types,
									   int ntypes);

/* A table of schema llm, as our statements know it: names, order and types of its columns. */
typedef struct LlmDeclaredColumn
{
	const char *name;
	Oid type; /* InvalidOid = some composite type */
} LlmDeclaredColumn;

typedef struct LlmDeclaredTable
{
	const char *name;
	int n;
	const LlmDeclaredColumn *columns; /* [n] */
} LlmDeclaredTable;

/* Whether the relation is a table with exactly these columns. */
extern bool llm_declared_table_like(Relation rel, const LlmDeclaredTable *t);
/* Open llm.NAME with AccessShareLock: 55000 when it is not like that, 42P01 when it is not there. */
extern Relation llm_declared_open_table(const LlmDeclaredTable *t);

/* Begin the result of a function behind a view: a set of rows whose columns have these types, else
 * 55000. */
extern void llm_declared_begin_rows(FunctionCallInfo fcinfo, const Oid *types, int ntypes);

/* Raise 55000 about the object that what names. */
extern _Noreturn void llm_declared_refuse(const char *what);

/* Raise 42883: a function of a statement is gone since it was planned. */
extern _Noreturn void llm_declared_lost(void);

#endif
