/*
 * tokenizer/special.c - finds the tokens that are recognised as text: control and user-defined.
 *
 * User-defined tokens (GGUF type 4) are recognised in every text, trusted or not, as the published
 * tokenizers do (Hugging Face: added tokens that are not special; llama.cpp likewise): they are
 * words of the vocabulary that training saw whole, such as runs of spaces. Control tokens (type 3)
 * and unknown ones (type 2) steer the model, so only trusted text may hold them.
 */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

static int
compare_text(const void *a, const void *b, void *arg)
{
	const LlmVocab *v = arg;
	LlmStr x = v->text[*(const int32_t *) a], y = v->text[*(const int32_t *) b];
	int c = memcmp(x.p, y.p, x.len < y.len ? x.len : y.len);

	return c != 0 ? c : (x.len > y.len) - (x.len < y.len);
}

static bool
is_special(const LlmVocab *v, int32_t id)
{
	return v->text[id].len > 0 &&
		   (v->type[id] == LLM_TOKEN_CONTROL || v->type[id] == LLM_TOKEN_UNKNOWN ||
			v->type[id] == LLM_TOKEN_USER_DEFINED);
}

LlmStatus
llm_special_init(LlmSpecials *s, const LlmVocab *v, LlmError *err)
{
	int32_t n = 0, at = 0;

	for (int32_t id = 0; id < v->n; id++)
		n += is_special(v, id);
	s->vocab = v;
	s->ids = malloc(((size_t) n + 1) * sizeof(*s->ids));
	if (s->ids == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for %d special tokens", n);
	n = 0;
	for (int32_t id = 0; id < v->n; id++)
		if (is_special(v, id))
			s->ids[n++] = id;
	qsort_r(s->ids, (size_t) n, sizeof(*s->ids), compare_text, (void *) v);
	for (int c = 0; c < 256; c++)
	{
		s->first[c] = at;
		while (at < n && (unsigned char) v->text[s->ids[at]].p[0] == c)
			at++;
	}
	s->first[256] = n;
	return LLM_OK;
}

void
llm_special_fini(LlmSpecials *s)
{
	free(s->ids);
	memset(s, 0, sizeof(*s));
}

/* First entry of ids[lo..hi) whose byte at `depth` is at least c; all share the bytes before it and
 * are longer than depth. */
static int32_t
lower_bound(const LlmSpecials *s, int32_t lo, int32_t hi, size_t depth, int c)
{
	while (lo < hi)
	{
		int32_t mid = lo + (hi - lo) / 2;

		if ((unsigned char) s->vocab->text[s->ids[mid]].p[depth] < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int32_t
llm_special_match(const LlmSpecials *s, LlmStr text, size_t pos, size_t trust_end)
{
	const LlmVocab *v = s->vocab;
	int c = (unsigned char) text.p[pos];
	int32_t lo = s->first[c], hi = s->first[c + 1];
	int32_t best = -1;

	for (size_t depth = 1; lo < hi; depth++)
	{
		int32_t id = s->ids[lo];

		if (v->text[id].len == depth)
		{
			if (v->type[id] == LLM_TOKEN_USER_DEFINED || pos + depth <= trust_end)
				best = id;
			lo++;
		}
		if (pos + depth >= text.len)
			break;
		c = (unsigned char) text.p[pos + depth];
		lo = lower_bound(s, lo, hi, depth, c);
		hi = lower_bound(s, lo, hi, depth, c + 1);
	}
	return best;
}
