/*
 * engine/engine.h - the fields of an LlmEngine, for the files that make it up: engine.c (life and
 * watching), submit.c (requests coming and going), step.c (one step of the model).
 */
#ifndef LLM_ENGINE_ENGINE_H
#define LLM_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/mem.h"
#include "core/str.h"
#include "engine/flight.h"
#include "engine/llm.h"
#include "engine/loader.h"
#include "engine/request.h"
#include "sched/pack.h"
#include "sched/sched.h"

struct LlmEngine
{
	LlmEngineOptions o; /* in force at the next load; strings in `strings` */
	LlmEngineEvents events;
	LlmArena strings; /* of o, for the engine's life */

	/* The resident model; everything here is made by a load and goes with it. */
	bool loaded;
	LlmLoaded m;
	LlmSched *sched;
	LlmPack *pack;
	LlmSampleRow *rows;      /* [m.max_out] */
	LlmSampleOut *outs;      /* [m.max_out] */
	LlmRequestKey *keys;     /* [m.max_seqs] of the step before */
	LlmRequestKey *keys_now; /* [m.max_seqs] scratch */
	int32_t n_keys;

	LlmReqTable reqs;
	LlmFlights flights;
	int64_t next_deadline; /* no asker's deadline is earlier; INT64_MAX = none */
	LlmEngineStats stats;  /* counters; the rest is filled when asked */
	_Atomic uint64_t progress;

	LlmLogitsHook hook;
	void *hook_arg;
	bool all_positions;
	const int32_t *force_ids; /* NULL, or the next prompt */
	int32_t force_n;
};

/* Microseconds, monotonic. */
int64_t llm_engine_now(void);

/* End a request: `done` to every asker with its text or with error, then out of the table and the
 * scheduler. */
void llm_engine_end(LlmEngine *e, LlmReq *r, LlmFinish finish, const LlmError *error);
/* End one asker's part in its request: `done` with error, or nothing when that is NULL. The request
 * goes on for the others, or ends with the last. */
void llm_engine_drop(LlmEngine *e, LlmAsker *a, const LlmError *error);
/* Hand a streaming asker the text up to byte n that it has not seen. */
void llm_engine_show(LlmEngine *e, LlmAsker *a, size_t n);

#endif
