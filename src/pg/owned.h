/*
 * pg/owned.h - statements on the extension's own tables, which have no rights for anybody but their owner.
 *
 * They run as that owner, with search_path = pg_catalog and planner settings of their own, between
 * llm_owned_enter and llm_owned_leave. An error in between needs no clean-up: the end of the (sub)transaction sets user and settings back.
 */
#ifndef LLM_PG_OWNED_H
#define LLM_PG_OWNED_H

#include "postgres.h"

#include "executor/spi.h"

typedef struct LlmOwnedUser
{
	Oid user;
	int context;
	int nest_level; /* of settings */
} LlmOwnedUser;

/* The relation llm.name; InvalidOid when there is none. */
extern Oid llm_owned_table(const char *name);

/* Become the owner of the table llm.name, and connect to SPI; 42P01 when there is no such table. */
extern void llm_owned_enter(const char *name, LlmOwnedUser *before);
extern void llm_owned_leave(const LlmOwnedUser *before);

#define LLM_OWNED_ARGS_MAX 21

/* A statement and its plan, kept for the life of the process. */
typedef struct LlmOwnedStatement
{
	const char *sql;
	int n_args;
	Oid types[LLM_OWNED_ARGS_MAX];
	SPIPlanPtr plan; /* NULL = not yet made */
} LlmOwnedStatement;

/* Which rows a statement sees. */
typedef enum LlmOwnedSight
{
	LLM_OWNED_OF_TRANSACTION,
	LLM_OWNED_OF_NOW, /* committed at this moment, whatever the isolation level; changes nothing */
	LLM_OWNED_OF_NOW_WRITE /* the same, for a change */
} LlmOwnedSight;

/* Run q between enter and leave. The number of rows, which are in SPI_tuptable. */
extern int llm_owned_run(LlmOwnedStatement *q, Datum *values, const char *nulls,
						 LlmOwnedSight sight);
/* A value of SPI_tuptable, also outside of enter and leave; rows count from 0, columns from 1. */
extern Datum llm_owned_value(int row, int column, bool *isnull);
/* One that is not null. */
extern Datum llm_owned_get(int row, int column);
/* An array of values[n], none of them null. */
extern Datum llm_owned_array(Datum *values, int n, Oid type);

#endif
