/* sched/seq.c - memory of a sequence. */
#include "sched/seq.h"

#include <stdlib.h>
#include <string.h>

LlmStatus
llm_seq_init(LlmSeq *s, int32_t max_len, int32_t n_groups, LlmError *err)
{
	memset(s, 0, sizeof(*s));
	s->max_len = max_len;
	s->n_groups = n_groups;
	s->cap_pages = llm_seq_pages(max_len);
	s->tokens.ids = malloc((size_t) max_len * sizeof(int32_t));
	s->tokens.cap = (size_t) max_len;
	s->hashes = malloc((size_t) s->cap_pages * sizeof(*s->hashes));
	for (int g = 0; g < n_groups; g++)
		s->table[g] = malloc((size_t) s->cap_pages * sizeof(int32_t));
	for (int g = 0; g < n_groups; g++)
		if (s->table[g] == NULL || s->tokens.ids == NULL || s->hashes == NULL)
		{
			llm_seq_fini(s);
			return llm_error_set(err, LLM_E_MEMORY, "out of memory for a sequence of %d tokens",
								 max_len);
		}
	return LLM_OK;
}

void
llm_seq_fini(LlmSeq *s)
{
	llm_tokens_fini(&s->tokens);
	for (int g = 0; g < LLM_KV_GROUPS_MAX; g++)
		free(s->table[g]);
	free(s->hashes);
	memset(s, 0, sizeof(*s));
}
