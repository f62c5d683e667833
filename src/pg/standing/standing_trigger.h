/*
 * pg/standing/standing_trigger.h - the trigger that queues rows for a standing enrichment, from the side of others.
 */
#ifndef LLM_PG_STANDING_STANDING_TRIGGER_H
#define LLM_PG_STANDING_STANDING_TRIGGER_H

#include "postgres.h"

#include "utils/guc.h"

/* What this process writes of itself does not queue rows of this enrichment (0 = of any): for its worker. What
 * triggers do because of such a write does, and the triggers of other enrichments are not concerned. */
extern void llm_standing_trigger_suspend(int64 id);

/* Set what the text of a value depends on to fixed values, so that a row has one key whoever writes it: for the
 * current nest level (GUC_ACTION_SAVE) or for the life of the process (GUC_ACTION_SET). */
extern void llm_standing_trigger_pin(GucAction action);

#endif
