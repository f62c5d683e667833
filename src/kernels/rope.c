/* kernels/rope.c - sine and cosine as FMA polynomials (rule R5), and the table of a position. */
#include "kernels/rope.h"

#include <math.h>

#include "tensor/mathf.h"

/* pi/2 as a sum of three floats; products with a whole number are exact inside an FMA. */
#define PI_2_A 1.5707963705062866f
#define PI_2_B (-4.371138828673793e-8f)
#define PI_2_C (-1.7151245100058819e-15f)
#define TWO_OVER_PI 0.636619772367581343f

void
llm_sincosf(float x, float *sin_x, float *cos_x)
{
	float n = fmaf(x, TWO_OVER_PI, LLM_ROUND_MAGIC) - LLM_ROUND_MAGIC;
	float r, z, s, c, t;

	r = fmaf(n, -PI_2_A, x);
	r = fmaf(n, -PI_2_B, r);
	r = fmaf(n, -PI_2_C, r);
	z = r * r;
	s = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
	s = fmaf(s, z, -1.6666654611e-1f);
	s = fmaf(s * z, r, r);
	c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
	c = fmaf(c, z, 4.166664568298827e-2f);
	c = fmaf(c, z * z, fmaf(z, -0.5f, 1.0f));
	switch ((int32_t) n & 3)
	{
		case 0:
			break;
		case 1:
			t = s;
			s = c;
			c = -t;
			break;
		case 2:
			s = -s;
			c = -c;
			break;
		default:
			t = s;
			s = -c;
			c = t;
			break;
	}
	*sin_x = s;
	*cos_x = c;
}

void
llm_rope_table(const LlmRope *rope, int32_t pos, float *cs, float *sn)
{
	int32_t half = rope->n_dims / 2;

	for (int32_t i = 0; i < half; i++)
	{
		int32_t a = rope->interleaved ? 2 * i : i;
		int32_t b = rope->interleaved ? 2 * i + 1 : i + half;
		float s, c;

		llm_sincosf((float) pos * rope->inv_freq[i], &s, &c);
		cs[a] = cs[b] = c;
		sn[a] = -s;
		sn[b] = s;
	}
}
