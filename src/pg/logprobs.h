/* pg/logprobs.h - log-probabilities of an answer as jsonb. */
#ifndef LLM_PG_LOGPROBS_H
#define LLM_PG_LOGPROBS_H

#include "postgres.h"

#include "pg/client.h"

/* {"content": [...], "prompt": [...]}, each when it was asked for. answer->logprobs is not NULL. */
extern Datum llm_logprobs_json(const LlmClientAnswer *answer);

#endif
