/* kv/root.c - salts of the prefix cache and what is counted for each. */
#include <string.h>

#include "kv/prefix_impl.h"

static int32_t *
bucket_of(const LlmPrefix *p, uint64_t salt)
{
	uint64_t h = salt * 0x9E3779B97F4A7C15u;

	return (int32_t *) &p->root_buckets[(h >> 40) % LLM_PREFIX_ROOTS];
}

int32_t
llm_kv_root_find(const LlmPrefix *p, uint64_t salt)
{
	int32_t r = *bucket_of(p, salt);

	while (r != 0 && p->roots[r].stat.salt != salt)
		r = p->roots[r].chain;
	return r;
}

/* A place for a new root: an unused one, else that of the salt without entries that was not looked
 * for the longest; 0 = all have entries. */
static int32_t
place_get(LlmPrefix *p)
{
	int32_t best = 0;
	int32_t *link;

	if (p->n_roots < LLM_PREFIX_ROOTS)
		return ++p->n_roots;
	for (int32_t r = 1; r <= LLM_PREFIX_ROOTS; r++)
		if (p->roots[r].stat.blocks == 0 && (best == 0 || p->roots[r].seen < p->roots[best].seen))
			best = r;
	if (best == 0)
		return 0;
	link = bucket_of(p, p->roots[best].stat.salt);
	while (*link != best)
		link = &p->roots[*link].chain;
	*link = p->roots[best].chain;
	return best;
}

int32_t
llm_kv_root_get(LlmPrefix *p, uint64_t salt)
{
	int32_t r = llm_kv_root_find(p, salt);

	if (r == 0 && (r = place_get(p)) != 0)
	{
		int32_t *head = bucket_of(p, salt);

		p->roots[r] = (LlmKvRoot){.stat = {.salt = salt}, .chain = *head};
		*head = r;
	}
	if (r != 0)
		p->roots[r].seen = ++p->clock;
	return r;
}

/* ---- counters ---- */

void
llm_kv_prefix_looked(LlmPrefix *p, uint64_t salt)
{
	int32_t r = p->o.on ? llm_kv_root_get(p, salt) : 0;

	if (r != 0)
		p->roots[r].stat.lookups++;
}

void
llm_kv_prefix_saved(LlmPrefix *p, uint64_t salt, int32_t n_tokens, bool first)
{
	int32_t r = llm_kv_root_find(p, salt);

	if (r == 0)
		return;
	p->roots[r].stat.hits += first;
	p->roots[r].stat.tokens_saved += n_tokens;
}

int32_t
llm_kv_prefix_stats(const LlmPrefix *p, LlmPrefixStat *out, int32_t n)
{
	int32_t n_out = 0;

	for (int32_t r = 1; r <= p->n_roots; r++)
	{
		const LlmPrefixStat *s = &p->roots[r].stat;
		int32_t i = n_out;

		while (i > 0 && out[i - 1].blocks < s->blocks)
			i--;
		if (i == n)
			continue;
		n_out += n_out < n;
		memmove(&out[i + 1], &out[i], (size_t) (n_out - 1 - i) * sizeof(*out));
		out[i] = *s;
	}
	return n_out;
}
