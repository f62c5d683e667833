/*
 * pg/enrich/enrich_target.h - what an enrichment works on: table, column, key, prompt; as SQL.
 *
 * Statements name the table and its columns with their schema and quotes, and operators of ours with
 * theirs, for the caller's search_path is in force: the caller's own SQL (filter, expr) needs it.
 */
#ifndef LLM_PG_ENRICH_ENRICH_TARGET_H
#define LLM_PG_ENRICH_ENRICH_TARGET_H

#include "postgres.h"

#include "access/attnum.h"
#include "access/tupdesc.h"
#include "fmgr.h"

typedef struct LlmEnrichTarget
{
	Oid relid;
	char *schema; /* names as they are */
	char *name;
	TupleDesc columns; /* of the table, when the SQL was made */
	NameData column;
	AttrNumber attno;
	Oid type; /* of the column */
	int32 typmod;
	FmgrInfo input; /* of the type */
	Oid ioparam;
	bool trims;   /* blanks around an answer are no part of a value */
	char *table;  /* "schema"."name" AS "name" */
	char *alias;  /* "name" */
	char *value;  /* "name"."column" */
	char *key;    /* jsonb expression of the primary key */
	char *wanted; /* condition: which rows shall have a value */
	char *todo;   /* condition: which of them have none */
	char *prompt; /* text expression */
} LlmEnrichTarget;

/* Look at the table and the column, as the current user, and make SQL of a template or of an
 * expression (the other is NULL), and a filter (NULL = none). In CurrentMemoryContext. Raises what is
 * wrong with any of them. */
extern LlmEnrichTarget *llm_enrich_target_open(Oid relid, const char *column, const char *template,
											   const char *expr, const char *filter);

/* jsonb_build_object('a', alias."a", ..) of the columns of a table's primary key: a row's key. alias is
 * quoted. NULL when the table has none. */
extern char *llm_enrich_target_key(Oid relid, const char *alias);

/* Whether a column of this type is in a key as jsonb has it: a number or a string, which becomes the same value
 * again. All others are there in the text form of their type's output function, whatever casts there are. */
extern bool llm_enrich_target_key_plain(Oid type);

/* Whether the table, which is locked, and its columns have the names that they had, and the columns
 * their types: the SQL names them. New columns do not matter. */
extern bool llm_enrich_target_same(const LlmEnrichTarget *t);

/* The value of an answer by the type's input function, in CurrentMemoryContext. Raises its errors. */
extern Datum llm_enrich_target_value(LlmEnrichTarget *t, char *answer);

#endif
