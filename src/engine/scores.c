/* engine/scores.c - memory of log-probabilities, and one row of it. */
#include "engine/scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static LlmStatus
check(const LlmRequest *r, size_t nbytes, LlmError *err)
{
	if (r->n_top < 0 || r->n_top > LLM_TOP_LOGPROBS_MAX)
	{
		llm_error_set(err, LLM_E_INVALID, "top_logprobs is %d, not 0 to %d", r->n_top,
					  LLM_TOP_LOGPROBS_MAX);
		llm_error_numbers(err, r->n_top, LLM_TOP_LOGPROBS_MAX);
		return LLM_E_INVALID;
	}
	if (r->n_top > 0 && !r->logprobs && !r->prompt_logprobs)
		return llm_error_set(err, LLM_E_INVALID, "top_logprobs is %d, but logprobs is off",
							 r->n_top);
	if (nbytes > LLM_SCORES_NBYTES_MAX)
	{
		llm_error_set(err, LLM_E_INVALID,
					  "the log-probabilities would take %zu bytes, more than %zu", nbytes,
					  LLM_SCORES_NBYTES_MAX);
		llm_error_hint(err, "Ask for fewer tokens or a smaller top_logprobs.");
		llm_error_numbers(err, (int64_t) nbytes, (int64_t) LLM_SCORES_NBYTES_MAX);
		return LLM_E_INVALID;
	}
	return LLM_OK;
}

static size_t
width(const LlmScores *s)
{
	return (size_t) s->n_top + 1;
}

/* Row i; what out lacks is -1 and NaN. */
static void
put(const LlmScores *s, LlmLogprob *rows, int32_t i, const LlmSampleOut *out)
{
	LlmLogprob *row = rows + (size_t) i * width(s);

	row[0] = (LlmLogprob){out->token, out->logprob};
	for (int32_t k = 0; k < s->n_top; k++)
		row[1 + k] = k < out->n_top ? out->top[k] : (LlmLogprob){-1, NAN};
}

LlmStatus
llm_scores_init(LlmScores *s, const LlmRequest *r, const LlmTokens *prompt, int32_t max_new,
				LlmError *err)
{
	size_t row_nbytes = (size_t) (r->n_top > 0 ? r->n_top + 1 : 1) * sizeof(LlmLogprob);
	size_t answer_nbytes = r->logprobs ? (size_t) max_new * row_nbytes : 0;
	size_t prompt_nbytes = r->prompt_logprobs ? prompt->len * row_nbytes : 0;
	LlmStatus st = check(r, answer_nbytes + prompt_nbytes, err);

	memset(s, 0, sizeof(*s));
	if (st != LLM_OK)
		return st;
	s->n_top = r->n_top;
	if (r->logprobs)
		s->answer = malloc(answer_nbytes + 1);
	if (r->prompt_logprobs)
		s->prompt = malloc(prompt_nbytes + 1);
	if ((r->logprobs && s->answer == NULL) || (r->prompt_logprobs && s->prompt == NULL))
	{
		llm_scores_fini(s);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for log-probabilities");
	}
	if (r->prompt_logprobs) /* the others come with their rows: memory that waits is not touched */
		put(s, s->prompt, 0, &(LlmSampleOut){.token = prompt->ids[0], .logprob = NAN});
	return LLM_OK;
}

void
llm_scores_fini(LlmScores *s)
{
	free(s->answer);
	free(s->prompt);
	memset(s, 0, sizeof(*s));
}

void
llm_scores_answer(LlmScores *s, int32_t i, const LlmSampleOut *out)
{
	if (s->answer != NULL)
		put(s, s->answer, i, out);
}

void
llm_scores_prompt(LlmScores *s, int32_t i, const LlmSampleOut *out)
{
	if (s->prompt != NULL)
		put(s, s->prompt, i, out);
}
