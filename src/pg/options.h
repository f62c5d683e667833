/*
 * pg/options.h - the arguments of a generation call that are not the prompt.
 *
 * Filled from named arguments, then from keys of the options jsonb, then from settings. What
 * depends on the model's vocabulary is checked by the engine, names, types and ranges here.
 */
#ifndef LLM_PG_OPTIONS_H
#define LLM_PG_OPTIONS_H

#include "postgres.h"

#include "llm.pb-c.h"
#include "pg/error.h"
#include "utils/jsonb.h"

#define LLM_OPTIONS_STOPS_MAX 16
#define LLM_OPTIONS_STOP_NBYTES_MAX 1024
#define LLM_OPTIONS_N_MAX 64 /* answers per prompt */
#define LLM_OPTIONS_TOP_LOGPROBS_MAX 20

typedef struct LlmOptions
{
	const char *model;         /* NULL = the default */
	const char *system_prompt; /* database encoding, NULL = none */
	bool has_max_tokens;       /* each value stands when its has_ does */
	bool has_temperature;
	bool has_seed;
	bool has_on_error;
	bool has_timeout;
	int32 max_tokens;
	float temperature;
	int64 seed;
	int on_error;          /* LlmOnError */
	int timeout_ms;        /* 0 = none */
	char **stops;          /* [n_stops] database encoding */
	int n_stops;           /* -1 = not given */
	int n;                 /* answers per prompt, 1 .. LLM_OPTIONS_N_MAX */
	char *template_kwargs; /* a JSON object in the database's encoding, NULL = none */
	Llm__Submit rest;      /* what goes to the engine as it is: top_p, top_k, ... */
} LlmOptions;

/* Places of the common arguments behind the first one, in every generation function. */
enum
{
	LLM_ARG_MODEL = 1,
	LLM_ARG_SYSTEM_PROMPT,
	LLM_ARG_MAX_TOKENS,
	LLM_ARG_TEMPERATURE,
	LLM_ARG_SEED,
	LLM_ARG_STOP,
	LLM_ARG_RESPONSE_FORMAT,
	LLM_ARG_ON_ERROR,
	LLM_ARG_OPTIONS,
	LLM_ARG_COUNT
};

/* Read args[LLM_ARG_COUNT] into o (CurrentMemoryContext). A named argument wins over the key of its
 * name. False and f set: 22023 names the argument or key, 0A000 one that is not built, 42501 a
 * priority that the role may not have. */
extern bool llm_options_read(LlmOptions *o, const NullableDatum *args, LlmFailure *f);

/* An argument that is not NULL. */
extern void llm_options_set(NullableDatum *arg, Datum value);
/* Take a key that calls do not know out of the options argument; NULL when it is not there, or null. */
extern JsonbValue *llm_options_take(NullableDatum *options, const char *key);
/* The same for max_attempts: from 1 to max, or without. Raises 22023. */
extern int llm_options_take_attempts(NullableDatum *options, int without, int max);

#endif
