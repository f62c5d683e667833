/* server/server_stats.h - what the engine thread tells about itself, and how it goes over the wire. */
#ifndef LLM_SERVER_SERVER_STATS_H
#define LLM_SERVER_SERVER_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/str.h"
#include "engine/llm.h"
#include "server/spec.h"

#define LLM_RESIDENTS_MAX 64     /* models in memory at a time */
#define LLM_PREFIX_ROWS_MAX 1024 /* of a model */

typedef struct LlmModelStat
{
	LlmSpec *spec; /* one reference */
	bool loading;  /* model is not known yet */
	LlmModelInfo model;
	int32_t threads_used; /* by its last step */
	int64_t used_ms;      /* monotonic time when it was last used */
} LlmModelStat;

typedef struct LlmServerStats
{
	LlmEngineStats engine; /* sums over models; counters of those that are gone as well */
	int32_t waiting;       /* tickets that wait for a model, beside engine.waiting */
	int64_t memory_nbytes; /* weights and KV of all models */
	int64_t memory_limit;
	int32_t n_models;
	LlmModelStat models[LLM_RESIDENTS_MAX + 1]; /* [n_models] residents, and one that is loading */
} LlmServerStats;

/* Of the prefix cache of one model. */
typedef struct LlmPrefixRow
{
	const LlmSpec *spec; /* borrowed */
	LlmPrefixStat stat;
} LlmPrefixRow;

/* Copy what is in use, with references of its own. */
void llm_server_stats_copy(LlmServerStats *to, const LlmServerStats *from);
/* Release the references. */
void llm_server_stats_clear(LlmServerStats *s);

/* STATS_REPLY. False when memory is out. */
bool llm_server_stats_append(LlmBuf *out, uint64_t id, const LlmServerStats *s,
							 const LlmPrefixRow *rows, int32_t n_rows);

#endif
