/* tensor/half.h - IEEE half floats and bfloat16 in plain C; hardware conversions give the same bits. */
#ifndef LLM_TENSOR_HALF_H
#define LLM_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline float
llm_half_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t) (h & 0x8000) << 16;
	uint32_t exp = (h >> 10) & 0x1F;
	uint32_t man = h & 0x3FF;
	uint32_t bits;
	float f;

	if (exp == 0x1F)
		bits = sign | 0x7F800000u | (man << 13) | (man != 0 ? 0x400000u : 0);
	else if (exp != 0)
		bits = sign | ((exp + 112) << 23) | (man << 13);
	else
	{
		f = (float) man * 0x1p-24f; /* exact: subnormal or zero */
		memcpy(&bits, &f, sizeof(bits));
		bits |= sign;
	}
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Round to nearest even; overflow gives infinity, NaN stays a quiet NaN. */
static inline uint16_t
llm_half_from_f32(float f)
{
	uint32_t bits;
	uint32_t abs;
	uint16_t sign;

	memcpy(&bits, &f, sizeof(bits));
	sign = (uint16_t) ((bits >> 16) & 0x8000);
	abs = bits & 0x7FFFFFFFu;
	if (abs > 0x7F800000u)
		return (uint16_t) (sign | 0x7E00 | ((abs >> 13) & 0x1FF));
	if (abs >= 0x477FF000u) /* 65520 and above round to infinity */
		return (uint16_t) (sign | 0x7C00);
	if (abs < 0x38800000u) /* below the smallest normal half */
	{
		float a;
		uint32_t r;

		memcpy(&a, &abs, sizeof(a));
		a += 0.5f; /* the sum's last bit is 2^-24: the hardware rounds to nearest even for us */
		memcpy(&r, &a, sizeof(r));
		return (uint16_t) (sign | (uint16_t) (r - 0x3F000000u));
	}
	abs += 0xFFF + ((abs >> 13) & 1);
	return (uint16_t) (sign | (uint16_t) ((abs - 0x38000000u) >> 13));
}

/* A float of 16 bits (bfloat16) is the upper half of a float of 32. */
static inline float
llm_bf16_to_f32(uint16_t h)
{
	uint32_t bits = (uint32_t) h << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

#define LLM_HALF_MAX 65504.0f /* largest finite half */

#endif
