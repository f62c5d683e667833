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

#define LANES 16
#define BODY static inline __attribute__((always_inline))

BODY LlmRowTop
top_body(const float *x, int32_t n)
{
	float max[LANES];
	int32_t id[LANES];
	int32_t bad[LANES] = {0};
	LlmRowTop t = {-INFINITY, -1, false};
	int32_t i = 0;

	for (int l = 0; l < LANES; l++)
	{
		max[l] = -INFINITY;
		id[l] = -1;
	}
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
		{
			float v = x[i + l];
			bool up = v > max[l];

			max[l] = up ? v : max[l];
			id[l] = up ? i + l : id[l];
			bad[l] |= !(v <= FLT_MAX);
		}
	for (int l = 0; i + l < n; l++)
	{
		float v = x[i + l];

		bad[l] |= !(v <= FLT_MAX);
		if (v > max[l])
		{
			max[l] = v;
			id[l] = i + l;
		}
	}
	for (int l = 0; l < LANES; l++)
	{
		t.bad |= bad[l] != 0;
		if (id[l] >= 0 && (max[l] > t.max || (max[l] == t.max && id[l] < t.id)))
		{
			t.max = max[l];
			t.id = id[l];
		}
	}
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
		for (int l = 0; l < LANES; l++)
			z[i + l] = (x[i + l] - max) / temperature;
	for (; i < n; i++)
		z[i] = (x[i] - max) / temperature;
}

BODY void
weights_body(const float *z, int32_t n, uint64_t *w)
{
	float e[LANES];

	for (int32_t i = 0; i < n; i += LANES)
	{
		int32_t m = n - i < LANES ? n - i : LANES;

		for (int l = 0; l < LANES; l++)
			e[l] = llm_expf(z[i + (l < m ? l : 0)]);
		for (int l = 0; l < m; l++)
			w[i + l] = (uint64_t) (int64_t) (e[l] * (float) LLM_WEIGHT_ONE);
	}
}

BODY void
gumbel_body(uint64_t seed, uint32_t position, const int32_t *ids, int32_t n, float *g)
{
	float u[LANES];

	for (int32_t i = 0; i < n; i += LANES)
	{
		int32_t m = n - i < LANES ? n - i : LANES;

		for (int l = 0; l < LANES; l++)
			u[l] = llm_rng_uniform(seed, position, (uint32_t) ids[i + (l < m ? l : 0)]);
		for (int l = 0; l < LANES; l++)
			u[l] = -llm_logf(-llm_logf(u[l]));
		for (int l = 0; l < m; l++)
			g[i + l] = u[l];
	}
}

#define ROWMATH(suffix, target)                                                                    \
	target static LlmRowTop top_##suffix(const float *x, int32_t n)                                \
	{                                                                                              \
		return top_body(x, n);                                                                     \
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
	target static void gumbel_##suffix(uint64_t seed, uint32_t position, const int32_t *ids,       \
									   int32_t n, float *g)                                        \
	{                                                                                              \
		gumbel_body(seed, position, ids, n, g);                                                    \
	}                                                                                              \
	static const LlmRowMath table_##suffix = {#suffix,        top_##suffix,     sumexp_##suffix,   \
											  scale_##suffix, weights_##suffix, gumbel_##suffix}

ROWMATH(generic, );
#if defined(__x86_64__)
ROWMATH(avx2, __attribute__((target("avx2,fma"), flatten)));
#endif

const LlmRowMath *
llm_rowmath_generic(void)
{
	return &table_generic;
}

const LlmRowMath *
llm_rowmath_best(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &table_avx2;
#endif
	return &table_generic;
}
