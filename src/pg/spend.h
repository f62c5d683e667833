/*
 * pg/spend.h - what the running statement has cost, and llm_infer.max_statement_tokens.
 *
 * A statement is what the client sends at a time, with all that its functions do: one FETCH, one CALL,
 * one DO, or the several statements of one simple query. Tokens are counted as quotas count them: when
 * an answer arrives, prompt and generated, cached ones too, and those of rows that were read ahead.
 */
#ifndef LLM_PG_SPEND_H
#define LLM_PG_SPEND_H

#include "postgres.h"

#include "pg/error.h"

/* An answer, or a piece of one, has cost so many tokens. */
extern void llm_spend_add(int64 tokens);

/* May a request begin? False and f set (53400, with the numbers) when the limit is used up. */
extern bool llm_spend_admit(LlmFailure *f);

/* Raise the same error when more than the limit is used. */
extern void llm_spend_check(void);

#endif
