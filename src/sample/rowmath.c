/*
 * sample/rowmath.c - one body per routine, compiled for each instruction set.
 *
 * The bodies work on groups of 16 values in plain loops, which the compiler turns into vectors;
 * without fast-math it may not change a bit in doing so. The wrappers carry the target and `flatten`,
 * so that fmaf becomes one instruction where the target has it (a library call elsewhere).
 */
#include "sample/rowmath.h"

#include <float.h>
#include <math.h>

#include "core/rng.h"
#include "tensor/mathf.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LANES LLM_ROW_LANES
#define RANDOM_IDS (8 * LANES)
#define BODY static inline __attribute__((always_inline))

/* Maxima of up to a block of values by lane; whether there was a NaN. */
BODY bool
block_maxima(const float *x, int32_t n, float max[LANES])
{
	int32_t nan[LANES] = {0};
	int32_t any = 0;
	int32_t i = 0;

	for (int l = 0; l < LANES; l++)
		max[l] = -INFINITY;
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
		{
			max[l] = x[i + l] > max[l] ? x[i + l] : max[l];
			nan[l] |= x[i + l] != x[i + l];
		}
	for (int l = 0; i + l < n; l++)
	{
		max[l] = x[i + l] > max[l] ? x[i + l] : max[l];
		nan[l] |= x[i + l] != x[i + l];
	}
	for (int l = 0; l < LANES; l++)
		any |= nan[l];
	return any != 0;
}

/* Where is looked for only once it is known what: an index per lane would double the work. */
BODY LlmRowTop
top_body(const float *x, int32_t n, float *maxima)
{
	LlmRowTop t = {-INFINITY, -1, false};
	int32_t block = 0;

	for (int32_t i = 0; i < n; i += LLM_ROW_BLOCK)
	{
		float max[LANES];

		t.bad |= block_maxima(x + i, n - i < LLM_ROW_BLOCK ? n - i : LLM_ROW_BLOCK, max);
		for (int l = 0; l < LANES; l++)
		{
			if (max[l] > t.max)
			{
				t.max = max[l];
				block = i;
			}
			*maxima++ = max[l];
		}
	}
	t.bad |= t.max > FLT_MAX;
	if (t.bad || t.max == -INFINITY)
		return t;
	for (t.id = block; x[t.id] != t.max; t.id++)
		;
	t.max = x[t.id]; /* of two zeros, the one that is there */
	return t;
}

/* Sum of 16 lanes by the fixed tree of rule R4. */
BODY float
fold(float lane[LANES])
{
	for (int step = LANES / 2; step > 0; step /= 2)
		for (int l = 0; l < step; l++)
			lane[l] += lane[l + step];
	return lane[0];
}

BODY float
sumexp_body(const float *x, int32_t n, float max)
{
	float sum[LANES] = {0};
	int32_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			sum[l] += llm_expf(x[i + l] - max);
	for (int l = 0; i + l < n; l++)
		sum[l] += llm_expf(x[i + l] - max);
	return fold(sum);
}

BODY void
scale_body(const float *x, int32_t n, float max, float temperature, float *z)
{
	int32_t i = 0;

	for (; i + LANES <= n; i += LANES)
	{
		float y[LANES]; /* z may be x, which would keep the compiler from vectors */

		for (int l = 0; l < LANES; l++)
			y[l] = (x[i + l] - max) / temperature;
		for (int l = 0; l < LANES; l++)
			z[i + l] = y[l];
	}
	for (; i < n; i++)
		z[i] = (x[i] - max) / temperature;
}

/* Lane by lane, in 16 values of `count` that are wanted: a block without any costs a comparison each. */
BODY int32_t
collect_body(const float *x, int32_t n, float least, int32_t *id, float *out)
{
	int32_t len = 0;

	for (int32_t i = 0; i < n; i += LANES)
	{
		int32_t m = n - i < LANES ? n - i : LANES;
		int32_t any = m < LANES;

		for (int l = 0; l < LANES && m == LANES; l++)
			any |= x[i + l] >= least;
		for (int32_t l = 0; any != 0 && l < m; l++)
		{
			id[len] = i + l;
			out[len] = x[i + l];
			len += x[i + l] >= least && x[i + l] > -INFINITY;
		}
	}
	return len;
}

/* exp(z) in units of 2^-40 as two halves of 20 bits, the lower one rounded down: 32-bit numbers are
 * what every instruction set converts in vectors, and every step is exact. */
BODY void
weight_halves(const float z[LANES], uint32_t high[LANES], uint32_t low[LANES])
{
	const float half = (float) (1 << (LLM_WEIGHT_BITS / 2));

	for (int l = 0; l < LANES; l++)
	{
		float e = llm_expf(z[l]) * half;
		int32_t h = (int32_t) e;

		high[l] = (uint32_t) h;
		low[l] = (uint32_t) (int32_t) ((e - (float) h) * half);
	}
}

BODY void
weights_body(const float *z, int32_t n, uint64_t *w)
{
	for (int32_t i = 0; i < n; i += LANES)
	{
		int32_t m = n - i < LANES ? n - i : LANES;
		uint32_t high[LANES], low[LANES];
		float e[LANES];

		for (int l = 0; l < LANES; l++)
			e[l] = z[i + (l < m ? l : 0)];
		weight_halves(e, high, low);
		for (int l = 0; l < m; l++)
			w[i + l] = ((uint64_t) high[l] << (LLM_WEIGHT_BITS / 2)) + low[l];
	}
}

/* In 32 bits a lane holds the sum of a block's halves: 64 of at most 2^20. */
BODY uint64_t
weight_sum_body(const float *x, int32_t n, float max, float temperature)
{
	uint64_t sum = 0;

	for (int32_t i = 0; i < n; i += LLM_ROW_BLOCK)
	{
		uint32_t sum_high[LANES] = {0}, sum_low[LANES] = {0};
		int32_t end = n - i < LLM_ROW_BLOCK ? n : i + LLM_ROW_BLOCK;

		for (int32_t k = i; k < end; k += LANES)
		{
			uint32_t high[LANES], low[LANES];
			float z[LANES];

			if (end - k < LANES)
				for (int l = 0; l < LANES; l++)
					z[l] = k + l < end ? (x[k + l] - max) / temperature : -INFINITY;
			else
				for (int l = 0; l < LANES; l++)
					z[l] = (x[k + l] - max) / temperature;
			weight_halves(z, high, low);
			for (int l = 0; l < LANES; l++)
			{
				sum_high[l] += high[l];
				sum_low[l] += low[l];
			}
		}
		for (int l = 0; l < LANES; l++)
			sum += ((uint64_t) sum_high[l] << (LLM_WEIGHT_BITS / 2)) + sum_low[l];
	}
	return sum;
}

/* The first m of 16 noises from their random bits. */
BODY void
noise(const uint32_t bits[LANES], int32_t m, float *g)
{
	float u[LANES];

	for (int l = 0; l < LANES; l++)
		u[l] = -llm_logf(-llm_logf(llm_rng_unit(bits[l])));
	for (int l = 0; l < m; l++)
		g[l] = u[l];
}

BODY void
gumbel_body(uint64_t seed, uint32_t position, const int32_t *ids, int32_t n, float *g)
{
	uint32_t bits[LANES];

	for (int32_t i = 0; i < n; i += LANES)
	{
		int32_t m = n - i < LANES ? n - i : LANES;

		for (int l = 0; l < LANES; l++)
			bits[l] = llm_rng_u32(seed, position, (uint32_t) ids[i + (l < m ? l : 0)]);
		noise(bits, m, g + i);
	}
}

#define ROWMATH(suffix, target)                                                                    \
	target static LlmRowTop top_##suffix(const float *x, int32_t n, float *maxima)                 \
	{                                                                                              \
		return top_body(x, n, maxima);                                                             \
	}                                                                                              \
	target static float sumexp_##suffix(const float *x, int32_t n, float max)                      \
	{                                                                                              \
		return sumexp_body(x, n, max);                                                             \
	}                                                                                              \
	target static void scale_##suffix(const float *x, int32_t n, float max, float temperature,     \
									  float *z)                                                    \
	{                                                                                              \
		scale_body(x, n, max, temperature, z);                                                     \
	}                                                                                              \
	target static void weights_##suffix(const float *z, int32_t n, uint64_t *w)                    \
	{                                                                                              \
		weights_body(z, n, w);                                                                     \
	}                                                                                              \
	target static uint64_t weight_sum_##suffix(const float *x, int32_t n, float max,               \
											   float temperature)                                  \
	{                                                                                              \
		return weight_sum_body(x, n, max, temperature);                                            \
	}

/* Routines for which AVX-512 has instructions that the compiler does not find. */
#define ROWMATH_PLAIN(suffix, target)                                                              \
	target static void gumbel_##suffix(uint64_t seed, uint32_t position, const int32_t *ids,       \
									   int32_t n, float *g)                                        \
	{                                                                                              \
		gumbel_body(seed, position, ids, n, g);                                                    \
	}                                                                                              \
	target static int32_t collect_##suffix(const float *x, int32_t n, float least, int32_t *id,    \
										   float *out)                                             \
	{                                                                                              \
		return collect_body(x, n, least, id, out);                                                 \
	}

#define TABLE(suffix)                                                                              \
	{                                                                                              \
#suffix, top_##suffix, sumexp_##suffix, collect_##suffix, scale_##suffix,                  \
			weights_##suffix, weight_sum_##suffix, gumbel_##suffix                                 \
	}

ROWMATH(generic, )
ROWMATH_PLAIN(generic, )
static const LlmRowMath table_generic = TABLE(generic);

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma"), flatten))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), flatten))

ROWMATH(avx2, AVX2)
ROWMATH_PLAIN(avx2, AVX2)
ROWMATH(avx512, AVX512)

AVX512 static int32_t
collect_avx512(const float *x, int32_t n, float least, int32_t *id, float *out)
{
	__m512 bound = _mm512_set1_ps(least > -FLT_MAX ? least : -FLT_MAX);
	__m512i ids = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	int32_t len = 0;
	int32_t i = 0;

	for (; i + LANES <= n; i += LANES)
	{
		__m512 v = _mm512_loadu_ps(x + i);
		__mmask16 keep = _mm512_cmp_ps_mask(v, bound, _CMP_GE_OQ);

		if (keep != 0)
		{
			_mm512_storeu_ps(out + len, _mm512_maskz_compress_ps(keep, v));
			_mm512_storeu_si512(id + len, _mm512_maskz_compress_epi32(keep, ids));
			len += __builtin_popcount(keep);
		}
		ids = _mm512_add_epi32(ids, _mm512_set1_epi32(LANES));
	}
	for (; i < n; i++)
		if (x[i] >= least && x[i] > -INFINITY)
		{
			id[len] = i;
			out[len++] = x[i];
		}
	return len;
}

/* One round of llm_rng_u32 for 8 ids. 32-bit numbers lie in 64-bit lanes whose upper halves do not
 * count, so products need no moving. */
AVX512 static inline void
philox_8(__m512i c[4], __m512i k0, __m512i k1)
{
	__m512i p0 = _mm512_mul_epu32(_mm512_set1_epi64(LLM_PHILOX_M0), c[0]);
	__m512i p1 = _mm512_mul_epu32(_mm512_set1_epi64(LLM_PHILOX_M1), c[2]);

	c[0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c[1], k0, 0x96); /* xor */
	c[2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c[3], k1, 0x96);
	c[1] = p1;
	c[3] = p0;
}

AVX512 static void
gumbel_avx512(uint64_t seed, uint32_t position, const int32_t *ids, int32_t n, float *g)
{
	__m512i k[2 * LLM_PHILOX_ROUNDS], zero = _mm512_setzero_si512();
	uint32_t k0 = (uint32_t) seed, k1 = (uint32_t) (seed >> 32);
	uint32_t bits[RANDOM_IDS]; /* several blocks: their long chains overlap without logarithms */

	for (int i = 0; i < LLM_PHILOX_ROUNDS; i++, k0 += LLM_PHILOX_W0, k1 += LLM_PHILOX_W1)
	{
		k[2 * i] = _mm512_set1_epi64(k0);
		k[2 * i + 1] = _mm512_set1_epi64(k1);
	}
	for (int32_t i = 0; i < n; i += LANES)
	{
		int32_t m = n - i < LANES ? n - i : LANES;
		uint32_t *to = bits + i % RANDOM_IDS;
		__m512i id = _mm512_maskz_loadu_epi32((__mmask16) ((1u << m) - 1), ids + i);
		__m512i a[4] = {_mm512_cvtepu32_epi64(_mm512_castsi512_si256(id)),
						_mm512_set1_epi64(position), zero, zero};
		__m512i b[4] = {_mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(id, 1)),
						_mm512_set1_epi64(position), zero, zero};

#pragma GCC unroll 10
		for (int r = 0; r < LLM_PHILOX_ROUNDS; r++)
		{
			philox_8(a, k[2 * r], k[2 * r + 1]);
			philox_8(b, k[2 * r], k[2 * r + 1]);
		}
		_mm256_storeu_si256((__m256i *) to, _mm512_cvtepi64_epi32(a[0]));
		_mm256_storeu_si256((__m256i *) (to + 8), _mm512_cvtepi64_epi32(b[0]));
		if (i % RANDOM_IDS == RANDOM_IDS - LANES || n - i <= LANES)
			for (int32_t j = i / RANDOM_IDS * RANDOM_IDS; j <= i; j += LANES)
				noise(bits + j % RANDOM_IDS, j < i ? LANES : m, g + j);
	}
}

static const LlmRowMath table_avx2 = TABLE(avx2);
static const LlmRowMath table_avx512 = TABLE(avx512);
#endif

int
llm_rowmath_list(const LlmRowMath *out[LLM_ROWMATH_MAX])
{
	int n = 0;

#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		out[n++] = &table_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		out[n++] = &table_avx2;
#endif
	out[n++] = &table_generic;
	return n;
}
