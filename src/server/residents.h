/*
 * server/residents.h - the models in memory, each with an engine of its own, under one limit.
 *
 * A resident is made by a load and lives until it is closed, which needs it to be idle: no ticket in
 * its engine and no work left there. Three things close one by themselves: room for another model is
 * needed and it was used least recently, its file has changed (stale), or the settings that it was
 * loaded with have (outdated). A stale one, and one that is leaving, take no new tickets, so that
 * they become idle however many come.
 *
 * What counts against the limit: weights on the device and KV pages. Engine thread only.
 */
#ifndef LLM_SERVER_RESIDENTS_H
#define LLM_SERVER_RESIDENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/batch_marks.h"
#include "server/exchange.h"

typedef struct LlmResident
{
	LlmSpec *spec;     /* one reference */
	LlmEngine *engine; /* owned; the model is loaded */
	LlmModelInfo model;
	LlmEngineOptions options; /* sizes that it was loaded with; strings are not kept */
	int64_t nbytes;           /* counted against the limit */
	int32_t n_admitted;       /* tickets in the engine */
	bool working;             /* the engine may have something to do: step it */
	bool leaving;             /* another model needs the room */
	bool stale;               /* the file has changed */
	bool outdated;            /* to be closed when it is idle */
	int64_t used_ms;          /* the last ticket came or ended */
	int64_t checked_ms;       /* the file was looked at */
	LlmBatchMarks batch;
} LlmResident;

/* Zero-initialise and set exchange. */
typedef struct LlmResidents
{
	LlmExchange *exchange; /* told which engine is at work; borrowed */
	LlmResident *at[LLM_RESIDENTS_MAX];
	int32_t n;
	int32_t turn;        /* the next that may step */
	int64_t limit;       /* bytes */
	LlmEngineStats gone; /* counters of those that were closed */
} LlmResidents;

/* NULL = not resident. */
LlmResident *llm_residents_find(const LlmResidents *rs, const LlmSpec *spec);
bool llm_resident_busy(const LlmResident *r);
int64_t llm_residents_nbytes(const LlmResidents *rs);

/* Load. memory_left of o is set here. Long; errors as those of llm_engine_load. */
LlmStatus llm_residents_open(LlmResidents *rs, LlmSpec *spec, const LlmEngineOptions *o,
							 LlmEngineEvents events, LlmResident **out, LlmError *err);
void llm_residents_close(LlmResidents *rs, LlmResident *r);

/* Choose who leaves so that nbytes more fit below the limit: idle ones first, then busy ones, least
 * recently used first. The idle ones are closed. False when busy ones have to go. */
bool llm_residents_make_room(LlmResidents *rs, int64_t nbytes);
/* Nobody needs room any more. */
void llm_residents_keep(LlmResidents *rs);
/* Options and limit have changed: what can be closed for it is closed, the rest when it is idle. */
void llm_residents_settings(LlmResidents *rs, const LlmEngineOptions *o, int64_t limit);
/* Close the outdated ones that are idle. */
void llm_residents_tidy(LlmResidents *rs);
/* Whether r may take tickets. Looks at its file: now (look), or when it has not for a second. */
bool llm_resident_open_for_tickets(LlmResident *r, int64_t now_ms, bool look);

/* The next one with work, in turn; NULL = all are idle. */
LlmResident *llm_residents_next(LlmResidents *rs);
/* Close all, whatever they do. */
void llm_residents_fini(LlmResidents *rs);
/* Sums, counters and a row for each; s->n_models is 0 before. */
void llm_residents_stats(const LlmResidents *rs, LlmServerStats *s);

#endif
