/*
 * engine/flight.h - which requests in flight would give the same answer, to generate it once.
 *
 * A request's name is every field of it that its answer depends on, but for the prompt, which is
 * compared as token ids. The seed belongs to the name only where there is noise, so a greedy request
 * is the twin of every other greedy one. Two of one name and one prompt are one request with two
 * askers (request.h): exact, since an answer is a function of name and prompt and of nothing else.
 *
 * Twins are found from submission to the end of the answer, whatever part of it is there by then.
 */
#ifndef LLM_ENGINE_FLIGHT_H
#define LLM_ENGINE_FLIGHT_H

#include <stdbool.h>

#include "engine/llm.h"
#include "engine/request.h"

#define LLM_FLIGHT_BUCKETS 1024

/* The live requests that have a name, by it and their prompt. Zero-initialise. */
typedef struct LlmFlights
{
	LlmReq *bucket[LLM_FLIGHT_BUCKETS];
} LlmFlights;

/* Give r, made from `from`, its name; one that must run by itself has none. False when memory is
 * out. */
bool llm_flight_name(LlmReq *r, const LlmRequest *from);

/* The request that answers r too, or NULL; r must have a name and not be among the flights. */
LlmReq *llm_flight_find(const LlmFlights *f, const LlmReq *r);
/* Enter / take out a request; nothing happens to one without a name. */
void llm_flight_insert(LlmFlights *f, LlmReq *r);
void llm_flight_remove(LlmFlights *f, LlmReq *r);

#endif
