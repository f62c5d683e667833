/*
 * pg/catalog.h - models are foreign servers of the wrapper llm_infer.
 *
 * So they have owners, USAGE, dumps and invalidation. What was found by a name is known until a server
 * or the wrapper changes; USAGE is asked for each time.
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
	Llm__ModelSpec spec; /* strings are UTF-8 */

	/* of one that was found by a name */
	uint8 *key; /* [n_key] the spec packed: equal for equal specs */
	Size n_key;
	MemoryContext cxt;         /* own: this struct and what it points to */
	int n_holders;             /* it goes with the last */
	struct LlmMemoModel *memo; /* pg/memo/memo_model.c's; NULL = not asked yet */
} LlmModel;

/* The model of a call: name, else (NULL) llm_infer.default_model, else the only one there is. With
 * usage, the current user's USAGE is checked. NULL and f set on failure. It is held, as it was found,
 * until CurrentMemoryContext is reset. */
extern LlmModel *llm_catalog_find_model(const char *name, bool usage, LlmFailure *f);
/* Hold one more time, until CurrentMemoryContext is reset. */
extern void llm_catalog_hold_model(LlmModel *model);

/* Oids of the servers with the options of a model that was found by a name: they name the same one. */
extern List *llm_catalog_list_same(const LlmModel *model);

/* All models of the database, as LlmModel * in CurrentMemoryContext; [] when the extension is not
 * there. */
extern List *llm_catalog_list_models(void);

/* Check one option of a model; raises 22023 or 0A000. value may be NULL only for unknown names. */
extern void llm_catalog_check_option(const char *name, const char *value);

#endif
