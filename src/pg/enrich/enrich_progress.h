/* pg/enrich/enrich_progress.h - the view llm.stat_progress_enrich: how far running enrichments are. */
#ifndef LLM_PG_ENRICH_ENRICH_PROGRESS_H
#define LLM_PG_ENRICH_ENRICH_PROGRESS_H

#include "postgres.h"

#include "pg/enrich/enrich_rows.h"
#include "pg/shmem.h"

/* Show what this backend's enrichment does now. */
extern void llm_enrich_progress_show(const LlmEnrich *e, LlmProgressPhase phase);

/* It runs no more; also while an error is handled. A process that dies shows nothing anyway. */
extern void llm_enrich_progress_end(void);

#endif
