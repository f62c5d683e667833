/*
 * pg/catalog.h - models are foreign servers of the wrapper llm_infer.
 *
 * So they have owners, USAGE, dumps and invalidation. Nothing is cached here: a lookup costs
 * microseconds beside a generation.
 */
#ifndef LLM_PG_CATALOG_H
#define LLM_PG_CATALOG_H

#include "postgres.h"

#include "llm.pb-c.h"
#include "nodes/pg_list.h"
#include "pg/error.h"

typedef struct LlmModel
{
	Oid server;
	char *name;
	Llm__ModelSpec spec; /* strings are UTF-8, palloc'd beside it */
} LlmModel;

/* The model of a call: name, else (NULL) llm_infer.default_model, else the only one there is. With
 * usage, the current user's USAGE is checked. NULL and f set on failure. CurrentMemoryContext. */
extern LlmModel *llm_catalog_find_model(const char *name, bool usage, LlmFailure *f);

/* All models of the database, as LlmModel *; [] when the extension is not there. */
extern List *llm_catalog_list_models(void);

/* Check one option of a model; raises 22023 or 0A000. value may be NULL only for unknown names. */
extern void llm_catalog_check_option(const char *name, const char *value);

#endif
