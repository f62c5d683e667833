/* pg/chat.h - messages of a conversation: from jsonb to a request, from an answer to jsonb. */
#ifndef LLM_PG_CHAT_H
#define LLM_PG_CHAT_H

#include "postgres.h"

#include "pg/client.h"
#include "pg/error.h"
#include "utils/jsonb.h"

/* Check messages and put them into submit, in CurrentMemoryContext. False and f set, naming the
 * message: 22023 for a wrong shape, 0A000 for tools, 22P05 for text that does not convert. */
extern bool llm_chat_read(Jsonb *messages, Llm__Submit *submit, LlmFailure *f);

/* {"role": "assistant", "content": ...}, with "reasoning" when there is some. */
extern Datum llm_chat_message(const LlmClientAnswer *answer);
/* An array of n such messages; null where answers[i] is NULL. */
extern Datum llm_chat_messages(const LlmClientAnswer **answers, int n);

#endif
