/* pg/result.h - answers of the engine as Datums in CurrentMemoryContext. */
#ifndef LLM_PG_RESULT_H
#define LLM_PG_RESULT_H

#include "postgres.h"

#include "pg/client.h"

/* Text of the engine, and that of an answer, in the database's encoding. */
extern Datum llm_result_utf8(const char *utf8, Size n);
extern Datum llm_result_text(const LlmClientAnswer *answer);

/* A row of llm.result; answer NULL and error set for a failed call, both NULL for one that was
 * cancelled; model may be NULL. */
extern Datum llm_result_composite(const LlmClientAnswer *answer, const char *model,
								  const char *error);

#endif
