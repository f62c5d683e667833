/*
 * pg/memo/memo.h - answers that are kept: what was generated once is not generated again.
 *
 * Only answers that are a function of their request are kept: greedy or seeded ones that ended by
 * themselves or by their length. The key is a digest of all that the answer depends on and of those who
 * share it (memo_key.h). An answer goes into a ring in shared memory when it arrives, whatever becomes
 * of the transaction that asked; the database's launcher writes it to llm.memo_entries in a transaction
 * of its own. On a standby nothing is written: the ring is all there is.
 */
#ifndef LLM_PG_MEMO_MEMO_H
#define LLM_PG_MEMO_MEMO_H

#include "postgres.h"

#define LLM_MEMO_KEY_NBYTES 16

typedef struct LlmMemoKey
{
	uint8 bytes[LLM_MEMO_KEY_NBYTES];
} LlmMemoKey;

typedef struct LlmMemoAnswer
{
	const char *text; /* [n_text] UTF-8, not terminated */
	Size n_text;
	const char *reasoning; /* [n_reasoning] UTF-8, not terminated; NULL = none */
	Size n_reasoning;
	int finish; /* Llm__Finish: stop or length */
	int32 prompt_tokens;
	int32 completion_tokens;
	uint64 numerics_key;
} LlmMemoAnswer;

/* The answer that is kept for key: out points into cxt. In a transaction; reads the ring, then the
 * table as it is committed now. Notes the use. False when there is none. */
extern bool llm_memo_find(const LlmMemoKey *key, MemoryContext cxt, LlmMemoAnswer *out);

/* Keep an answer for this database; server is the model's oid. Never waits, raises nothing: for a
 * backend that may be anywhere, also in the clean-up of an error. What does not fit is counted and lost. */
extern void llm_memo_keep(const LlmMemoKey *key, Oid server, Oid role, const LlmMemoAnswer *answer);

/* True when answers may be looked up and kept by this process now: the setting, the preload. */
extern bool llm_memo_enabled(void);

/* True when something is not written yet, and the last of it is at most a minute old. For a launcher that finds
 * no extension, which may be about to be there again: nobody else would write it. */
extern bool llm_memo_waits(void);
/* The launcher's turn: write what is in the ring for this database, note uses, remove the least recently
 * used beyond the limit. In a transaction with a snapshot. When it wants to be called again, in ms; -1 =
 * not before the launcher is woken. An error is logged and costs a minute; answers that wait for that keep
 * the launcher, for ten minutes after the last one. */
extern long llm_memo_flush(void);
/* That transaction is committed: what it wrote may be overwritten in the ring. */
extern void llm_memo_flushed(void);

#endif
