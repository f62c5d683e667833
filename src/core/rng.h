/*
 * core/rng.h - counter-based random numbers: a pure function of its arguments, no state.
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Noise for
 * a token is a function of (seed, position, token id), so a pick never depends on the batch, the
 * order of arrival, preemption or speculation.
 */
#ifndef LLM_CORE_RNG_H
#define LLM_CORE_RNG_H

#include <stdint.h>

#define LLM_PHILOX_M0 0xD2511F53u
#define LLM_PHILOX_M1 0xCD9E8D57u
#define LLM_PHILOX_W0 0x9E3779B9u
#define LLM_PHILOX_W1 0xBB67AE85u
#define LLM_PHILOX_ROUNDS 10

static inline void
llm_philox_round(uint32_t c[4], const uint32_t k[2])
{
	uint64_t p0 = (uint64_t) LLM_PHILOX_M0 * c[0];
	uint64_t p1 = (uint64_t) LLM_PHILOX_M1 * c[2];
	uint32_t c1 = c[1], c3 = c[3];

	c[0] = (uint32_t) (p1 >> 32) ^ c1 ^ k[0];
	c[1] = (uint32_t) p1;
	c[2] = (uint32_t) (p0 >> 32) ^ c3 ^ k[1];
	c[3] = (uint32_t) p0;
}

/* 32 random bits for (seed, position, id). */
static inline uint32_t
llm_rng_u32(uint64_t seed, uint32_t position, uint32_t id)
{
	uint32_t k[2] = {(uint32_t) seed, (uint32_t) (seed >> 32)};
	uint32_t c[4] = {id, position, 0, 0};

#pragma GCC unroll 10
	for (int i = 0; i < LLM_PHILOX_ROUNDS; i++)
	{
		llm_philox_round(c, k);
		k[0] += LLM_PHILOX_W0;
		k[1] += LLM_PHILOX_W1;
	}
	return c[0];
}

/* 32 random bits as a number in the open interval (0, 1): odd multiples of 2^-24. 23 of them, so that the
 * half that is added is exact; with 24, the largest would round to 1 and its logarithm to 0. */
static inline float
llm_rng_unit(uint32_t bits)
{
	return ((float) (bits >> 9) + 0.5f) * 0x1p-23f;
}

/* Uniform in (0, 1) for (seed, position, id). */
static inline float
llm_rng_uniform(uint64_t seed, uint32_t position, uint32_t id)
{
	return llm_rng_unit(llm_rng_u32(seed, position, id));
}

#endif
