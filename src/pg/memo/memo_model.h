/*
 * pg/memo/memo_model.h - by whose arithmetic a model would answer now: the engine's numerics key.
 *
 * It stands for the engine's build, the device, the weights, the tokenizer and the file's template. The
 * engine tells it when a model is loaded, which the first question may cause; it is remembered, for all
 * processes, as long as the engine is the same and the model's file, which is looked at each time, was
 * not touched: also when the model is unloaded for another's sake, and while the engine is down.
 */
#ifndef LLM_PG_MEMO_MODEL_H
#define LLM_PG_MEMO_MODEL_H

#include "postgres.h"

#include "pg/catalog.h"
#include "pg/error.h"
#include "storage/lwlock.h"

/* Shared memory: its size, and its creation at startup, under AddinShmemInitLock. */
extern Size llm_memo_model_nbytes(void);
extern void llm_memo_model_startup(LWLock *lock);

/* The numerics key that answers of a model (found by a name, held by the caller) would have now. Waits
 * for it, interruptibly: at most timeout_ms, 0 = as long as a load takes; with patient false a second
 * at most, and not again and again. 0 when it is not known, with f set (memory of
 * CurrentMemoryContext) when the model cannot answer at all, or not in time. In a transaction. */
extern uint64 llm_memo_model_numerics(LlmModel *model, bool patient, int timeout_ms, LlmFailure *f);

#endif
