/*
 * sample/likeliest.c - a short sorted list that the row is held against.
 *
 * Once the list is full, few values beat its last one, so a row is read in blocks: a block without
 * such a value costs one comparison per value and no branch on them. Ids ascend, so a value equal to
 * the last of the list never goes before it.
 */
#include "sample/likeliest.h"

#include <stdbool.h>

#define BLOCK 32

/* Insert behind all that are at least as high; the last one falls out when the list is full. */
static int32_t
insert(LlmLogprob *top, int32_t len, int32_t cap, int32_t id, float x)
{
	int32_t i = len < cap ? len : cap - 1;

	for (; i > 0 && top[i - 1].logprob < x; i--)
		top[i] = top[i - 1];
	top[i] = (LlmLogprob){id, x};
	return len < cap ? len + 1 : cap;
}

static bool
any_above(const float *x, float least)
{
	int any = 0;

	for (int i = 0; i < BLOCK; i++)
		any |= x[i] > least;
	return any != 0;
}

int32_t
llm_sample_likeliest(const float *x, int32_t n, int32_t n_top, LlmLogprob *top)
{
	int32_t len = 0;
	int32_t i = 0;

	if (n_top <= 0)
		return 0;
	for (; i < n && len < n_top; i++)
		len = insert(top, len, n_top, i, x[i]);
	while (i < n)
	{
		int32_t end = n - i < BLOCK ? n : i + BLOCK;

		if (end - i < BLOCK || any_above(x + i, top[len - 1].logprob))
			for (int32_t k = i; k < end; k++)
				if (x[k] > top[len - 1].logprob)
					insert(top, len, n_top, k, x[k]);
		i = end;
	}
	return len;
}
