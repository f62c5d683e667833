/*
 * pg/option_keys.h - the keys of the options jsonb, and the checks that they share with arguments.
 *
 * All give false and set f (22023, or 0A000 for what is known but not built) on failure.
 */
#ifndef LLM_PG_OPTION_KEYS_H
#define LLM_PG_OPTION_KEYS_H

#include "postgres.h"

#include "pg/options.h"
#include "utils/jsonb.h"

/* Below this a temperature is greedy: logits divided by less would overflow a float. */
#define LLM_TEMPERATURE_GREEDY 1e-6

/* Read every key of the object into o. What an argument has set stays. */
extern bool llm_option_keys_read(LlmOptions *o, Jsonb *json, LlmFailure *f);

/* "option KEY must be EXPECTED"; always false. */
extern bool llm_options_refuse(LlmFailure *f, const char *key, const char *expected);

extern bool llm_options_set_max_tokens(LlmOptions *o, const char *key, int64 v, LlmFailure *f);
extern bool llm_options_set_temperature(LlmOptions *o, const char *key, double v, LlmFailure *f);
extern bool llm_options_set_on_error(LlmOptions *o, const char *key, const char *v, LlmFailure *f);
/* Room for n stop strings, then each of them; v NULL is refused, else it must stay. */
extern bool llm_options_begin_stops(LlmOptions *o, const char *key, int n, LlmFailure *f);
extern bool llm_options_add_stop(LlmOptions *o, const char *key, char *v, LlmFailure *f);

#endif
