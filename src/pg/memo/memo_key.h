/*
 * pg/memo/memo_key.h - requests and the memo: the key of an answer, asking, and keeping.
 *
 * The key is a digest of the request as the engine gets it (without what changes no answer: time,
 * priority, numbers), of the model's options, and of those who may share it: the scope of the prefix
 * cache, since who is answered at once knows that the same was asked before. Into it goes the numerics
 * key (memo_model.h): when asking, that of the model as it is now; when keeping, that which the answer
 * itself names. So an answer is never found under another's name, whatever changed in between.
 */
#ifndef LLM_PG_MEMO_KEY_H
#define LLM_PG_MEMO_KEY_H

#include "postgres.h"

#include "pg/client.h"

/* Answer req (filled in, not begun, a function of what it asks) from the memo, or mark it, so that its
 * answer is kept. True when it is FINISHED: with a kept answer, or since its model can give none.
 * patient: wait until it is known what the model is, which may load it. In a transaction. */
extern bool llm_memo_key_answer(LlmClientRequest *req, bool patient);

/* Keep the answer of a request that was marked. From anywhere; raises nothing. */
extern void llm_memo_key_keep(const LlmClientRequest *req);

#endif
