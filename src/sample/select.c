/*
 * sample/select.c - radix selection over ordered float keys, and a short sorted list of the highest.
 *
 * Three passes narrow the key at which the running sum of weights, taken from the highest key down,
 * first reaches the target: 11, 11 and 10 bits of the key each, with a histogram of weights. What
 * lies above the key is kept; of those that share it, the lowest ids until the target is met. Weights
 * are integers, so sums do not depend on their order and the cut is exactly that of a full sort.
 *
 * The short list is held against the row: once it is full, few values beat its last one, so the row
 * is read in blocks, and a block without such a value costs one comparison per value and no branch
 * on them. Ids ascend, so a value equal to the last of the list never goes before it.
 */
#include "sample/select.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BITS 11
#define BUCKETS (1 << BITS)
#define BLOCK 32 /* values looked at together for the short list */

/* A number that orders as the float does; -0 and +0 are one value. */
static inline uint32_t
order_key(float x)
{
	uint32_t bits;

	x += 0.0f;
	memcpy(&bits, &x, sizeof(bits));
	return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

/* The float of a number. */
static inline float
order_value(uint32_t key)
{
	uint32_t bits = (key >> 31) != 0 ? key & 0x7FFFFFFFu : ~key;
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* One pass: among keys that agree with *key above `shift` + `bits`, settle the next `bits` bits.
 * *above is the weight of all that sorts before; it grows to stay below target. False when the
 * target is beyond the sum of all. */
static int
narrow(const float *x, const uint64_t *w, int32_t n, uint64_t target, int shift, int bits,
	   uint32_t *key, uint64_t *above)
{
	uint64_t sum[BUCKETS] = {0};
	uint64_t high = ~(uint64_t) 0 << (shift + bits); /* bits already settled */
	uint32_t mask = (1u << bits) - 1;

	for (int32_t i = 0; i < n; i++)
	{
		uint32_t k = order_key(x[i]);

		if ((k & high) == (*key & high))
			sum[(k >> shift) & mask] += w == NULL ? 1 : w[i];
	}
	for (int32_t b = (int32_t) mask; b >= 0; b--)
	{
		if (sum[b] > 0 && *above + sum[b] >= target)
		{
			*key |= (uint32_t) b << shift;
			return 1;
		}
		*above += sum[b];
	}
	return 0;
}

/* The key at which the sum of weights (NULL: 1 each) from the highest key down first reaches target, and
 * the sum above it. */
static int
find_key(const float *x, const uint64_t *w, int32_t n, uint64_t target, uint32_t *key,
		 uint64_t *above)
{
	*key = 0;
	*above = 0;
	return narrow(x, w, n, target, 32 - BITS, BITS, key, above) &&
		   narrow(x, w, n, target, 32 - 2 * BITS, BITS, key, above) &&
		   narrow(x, w, n, target, 0, 32 - 2 * BITS, key, above);
}

float
llm_select_value(const float *x, int32_t n, int32_t k)
{
	uint32_t key;
	uint64_t above;

	return find_key(x, NULL, n, (uint64_t) k, &key, &above) ? order_value(key) : -INFINITY;
}

void
llm_select_prefix(LlmCandidates *c, int by_count, uint64_t target)
{
	uint32_t key;
	uint64_t above;
	int32_t n = 0;

	if (target == 0)
		target = 1;
	if (!find_key(c->x, by_count ? NULL : c->w, c->n, target, &key, &above))
		return;
	for (int32_t i = 0; i < c->n; i++)
	{
		uint32_t k = order_key(c->x[i]);
		uint64_t w = by_count ? 1 : c->w[i];

		if (k < key || (k == key && above >= target))
			continue;
		if (k == key)
			above += w;
		c->id[n] = c->id[i];
		c->x[n] = c->x[i];
		c->z[n] = c->z[i];
		c->w[n] = w;
		n++;
	}
	c->n = n;
}

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
llm_select_likeliest(const float *x, int32_t n, int32_t n_top, LlmLogprob *top)
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
