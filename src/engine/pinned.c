/* engine/pinned.c - pins and the prefix cache's counters at the engine's door. */
#include "engine/pinned.h"

#include <stdlib.h>

#include "engine/prompt.h"

/* What may follow a text: a letter, a digit, a line's end. */
static const char *const follow[] = {"a", "1", "\n"};

/* Ids of the request with `more` at the end of its text. */
static LlmStatus
encode_with(const LlmLoaded *m, const LlmRequest *q, const char *more, LlmPrompt *out,
			LlmError *err)
{
	LlmRequest one = *q;
	LlmBuf text = {0};
	LlmStatus st;

	if (!llm_buf_append(&text, q->prompt.p, q->prompt.len) || !llm_buf_append(&text, more, 1))
		st = llm_error_set(err, LLM_E_MEMORY, "out of memory for a prefix");
	else
	{
		one.prompt = (LlmStr){text.data, text.len};
		one.truncate = LLM_TRUNCATE_ERROR;
		st = llm_prompt_encode(m, &one, out, err);
	}
	llm_buf_fini(&text);
	return st;
}

LlmStatus
llm_pinned_encode(const LlmLoaded *m, const LlmRequest *q, LlmPrompt *out, LlmError *err)
{
	LlmTokens *ids = &out->ids;
	LlmStatus st;

	if (q->messages != NULL)
		return llm_error_set(err, LLM_E_INVALID, "a prefix is a text, not messages");
	st = encode_with(m, q, follow[0], out, err);
	for (size_t i = 1; st == LLM_OK && i < sizeof(follow) / sizeof(follow[0]); i++)
	{
		LlmPrompt other = {0};
		size_t n = 0;

		st = encode_with(m, q, follow[i], &other, err);
		while (st == LLM_OK && n < ids->len && n < other.ids.len && ids->ids[n] == other.ids.ids[n])
			n++;
		ids->len = n;
		llm_prompt_fini(&other);
	}
	if (st == LLM_OK && ids->len == 0)
		st = llm_error_set(err, LLM_E_INVALID,
						   "no token of the text is the same whatever follows it");
	return st;
}

LlmRequest
llm_pinned_request(const LlmRequest *q)
{
	return (LlmRequest){.key = q->key,
						.kind = q->kind,
						.sample = {.top_p = 1.0f, .repetition_penalty = 1.0f},
						.max_tokens = 1,
						.timeout_ms = q->timeout_ms,
						.priority = q->priority,
						.alone = q->alone,
						.salt = q->salt,
						.tenant = q->tenant};
}

void
llm_pinned_end(LlmEngine *e, LlmReq *r)
{
	LlmError err;

	if (llm_sched_pin(e->sched, &r->seq, &err) == LLM_OK)
		llm_engine_end(e, r, LLM_FINISH_LENGTH, NULL);
	else
		llm_engine_end(e, r, LLM_FINISH_ERROR, &err);
}

int32_t
llm_engine_prefix_stats(const LlmEngine *e, LlmPrefixStat *out, int32_t n)
{
	return e->loaded ? llm_sched_prefix_stats(e->sched, out, n) : 0;
}
