/* pg/token_keys.h - keys of the options jsonb that list tokens of the vocabulary. */
#ifndef LLM_PG_TOKEN_KEYS_H
#define LLM_PG_TOKEN_KEYS_H

#include "postgres.h"

#include "pg/options.h"
#include "utils/jsonb.h"

#define LLM_TOKEN_KEYS_MAX 4096 /* tokens of one list, as the engine has it */

/* Each reads one key into o->rest; false and f set (22023, the key named). Whether the model has the
 * tokens is the engine's to say. */
extern bool llm_token_keys_bias(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f);
extern bool llm_token_keys_allowed(LlmOptions *o, const char *key, const JsonbValue *v,
								   LlmFailure *f);
extern bool llm_token_keys_forbidden(LlmOptions *o, const char *key, const JsonbValue *v,
									 LlmFailure *f);
extern bool llm_token_keys_stop(LlmOptions *o, const char *key, const JsonbValue *v, LlmFailure *f);

#endif
