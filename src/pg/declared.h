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

/* The first of our tables for jobs and enrichments (declared_tables.c) that is not there or has other columns;
 * NULL = all are as this library knows them. Takes no lock. */
extern const char *llm_declared_strange_table(void);
/* Raise 55000 when there is one. */
extern void llm_declared_check_tables(void);

/* Begin the result of a function behind a view: a set of rows whose columns have these types, else
 * 55000. */
extern void llm_declared_begin_rows(FunctionCallInfo fcinfo, const Oid *types, int ntypes);

/* Raise 55000 about the object that what names. */
extern _Noreturn void llm_declared_refuse(const char *what);

/* Raise 42883: a function of a statement is gone since it was planned. */
extern _Noreturn void llm_declared_lost(void);

#endif
