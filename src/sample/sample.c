/*
 * sample/sample.c - one row of logits to one token.
 *
 * Most rows need little of it: a greedy row without penalties is one pass for the highest logit and,
 * where it is wanted, one for its log-probability. A draw collects few candidates in one more pass, by
 * a bound on the logit: what could not win even with the highest noise there is, what is below the
 * k-th highest of the maxima that the first pass has left, or what adds up to less than top-p leaves
 * out. The few near the highest are looked at first: they may be all that top-p keeps, and the best
 * of them with its noise rules most others out. Only candidates are scaled, and cut by selection
 * (select.h) rather than by sorting. None of this changes the pick.
 *
 * The weights that top-p adds up are exp(z) as integers in units of 2^-40 of the highest one: exact
 * in any order, and below that unit a token counts as 0.
 */
#include "sample/sample.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample/rowmath.h"
#include "sample/select.h"
#include "tensor/mathf.h"

/* Below this a draw differs from the highest logit only between logits that all but tie: greedy. */
#define TEMPERATURE_MIN 1e-6f
#define NEAR_Z (-6.0f) /* scaled logits of the few tokens that are looked at first */

struct LlmSampler
{
	const LlmRowMath *math;
	int32_t vocab_size;
	float *logits;   /* [vocab_size] the row after bias, penalties and mask, when there are any */
	float *maxima;   /* [llm_row_n_maxima(vocab_size)] of the row that is drawn from */
	float *noise;    /* [vocab_size] per candidate */
	LlmCandidates c; /* arrays of [vocab_size], and what collect() needs */
	int32_t *generated; /* [vocab_size] times in the generated tokens; all 0 between picks */
	uint8_t *seen;      /* [vocab_size] 1 = in the history; all 0 between picks */
};

LlmStatus
llm_sampler_create(int32_t vocab_size, LlmSampler **out, LlmError *err)
{
	const LlmRowMath *all[LLM_ROWMATH_MAX];
	LlmSampler *s;
	size_t n = (size_t) vocab_size;

	*out = NULL;
	if (vocab_size <= 0)
		return llm_error_set(err, LLM_E_INVALID, "a vocabulary of %d tokens cannot be sampled",
							 vocab_size);
	s = calloc(1, sizeof(*s));
	if (s != NULL)
	{
		llm_rowmath_list(all);
		s->math = all[0];
		s->vocab_size = vocab_size;
		s->logits = calloc(n, sizeof(float));
		s->maxima = calloc((size_t) llm_row_n_maxima(vocab_size), sizeof(float));
		s->noise = calloc(n, sizeof(float));
		s->c.id = calloc(n + LLM_ROW_LANES, sizeof(int32_t));
		s->c.x = calloc(n + LLM_ROW_LANES, sizeof(float));
		s->c.z = calloc(n, sizeof(float));
		s->c.w = calloc(n, sizeof(uint64_t));
		s->generated = calloc(n, sizeof(int32_t));
		s->seen = calloc(n, 1);
	}
	if (s == NULL || s->logits == NULL || s->maxima == NULL || s->noise == NULL ||
		s->c.id == NULL || s->c.x == NULL || s->c.z == NULL || s->c.w == NULL ||
		s->generated == NULL || s->seen == NULL)
	{
		llm_sampler_free(s);
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the sampler");
	}
	*out = s;
	return LLM_OK;
}

void
llm_sampler_free(LlmSampler *s)
{
	if (s == NULL)
		return;
	free(s->logits);
	free(s->maxima);
	free(s->noise);
	free(s->c.id);
	free(s->c.x);
	free(s->c.z);
	free(s->c.w);
	free(s->generated);
	free(s->seen);
	free(s);
}

void
llm_sampler_use(LlmSampler *s, const LlmRowMath *math)
{
	s->math = math;
}

static void __attribute__((format(printf, 3, 4)))
fail(LlmSampleOut *out, LlmStatus status, const char *fmt, ...)
{
	va_list ap;

	out->token = -1;
	out->logprob = 0.0f;
	out->status = status;
	va_start(ap, fmt);
	vsnprintf(out->message, sizeof(out->message), fmt, ap);
	va_end(ap);
}

static bool
has_penalties(const LlmSampleParams *p)
{
	return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f ||
		   p->frequency_penalty != 0.0f;
}

/* Parameters and history come from other modules; one bad value must not index or divide. */
static bool
row_check(const LlmSampler *s, const LlmSampleRow *row, LlmSampleOut *out)
{
	const LlmSampleParams *p = &row->p;
	const char *bad = !(p->temperature >= 0.0f && p->temperature <= FLT_MAX) ? "temperature"
					  : !(p->top_p > 0.0f && p->top_p <= 1.0f)               ? "top_p"
					  : !(p->min_p >= 0.0f && p->min_p <= 1.0f)              ? "min_p"
					  : p->top_k < 0                                         ? "top_k"
					  : !(p->repetition_penalty > 0.0f && p->repetition_penalty <= FLT_MAX)
						  ? "repetition_penalty"
					  : !(fabsf(p->presence_penalty) <= FLT_MAX)  ? "presence_penalty"
					  : !(fabsf(p->frequency_penalty) <= FLT_MAX) ? "frequency_penalty"
																  : NULL;

	if (bad != NULL)
	{
		fail(out, LLM_E_INVALID, "%s is out of range", bad);
		return false;
	}
	for (int32_t i = 0; has_penalties(p) && i < row->n_history; i++)
		if (row->history[i] < 0 || row->history[i] >= s->vocab_size)
		{
			fail(out, LLM_E_INTERNAL, "history holds token %d of a vocabulary of %d",
				 row->history[i], s->vocab_size);
			return false;
		}
	for (int32_t i = 0; i < row->n_bias; i++)
		if (row->bias[i].token < 0 || row->bias[i].token >= s->vocab_size ||
			!(fabsf(row->bias[i].bias) <= FLT_MAX))
		{
			fail(out, LLM_E_INTERNAL, "bias %g for token %d of a vocabulary of %d",
				 (double) row->bias[i].bias, row->bias[i].token, s->vocab_size);
			return false;
		}
	return true;
}

/* A finite logit stays finite. */
static float
clamp_finite(float x)
{
	return x != x ? -FLT_MAX : fminf(fmaxf(x, -FLT_MAX), FLT_MAX);
}

/* What is -inf stays so. */
static void
bias_apply(LlmSampler *s, const LlmSampleRow *row)
{
	for (int32_t i = 0; i < row->n_bias; i++)
	{
		float *x = &s->logits[row->bias[i].token];

		if (*x > -INFINITY)
			*x = clamp_finite(*x + row->bias[i].bias);
	}
}

/* Repetition over all of the history, then frequency and presence over what was generated. Finite
 * logits stay finite. Counts are cleared as they are used. */
static void
penalties_apply(LlmSampler *s, const LlmSampleRow *row)
{
	const LlmSampleParams *p = &row->p;

	for (int32_t i = 0; i < row->n_history; i++)
	{
		s->seen[row->history[i]] = 1;
		s->generated[row->history[i]] += i >= row->n_prompt;
	}
	for (int32_t i = 0; i < row->n_history; i++)
	{
		int32_t id = row->history[i];
		float x = s->logits[id];

		if (!s->seen[id])
			continue;
		if (x > -INFINITY)
		{
			x = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
			if (s->generated[id] > 0)
			{
				x = fmaf(-(float) s->generated[id], p->frequency_penalty, x);
				x -= p->presence_penalty;
			}
			s->logits[id] = clamp_finite(x);
		}
		s->seen[id] = 0;
		s->generated[id] = 0;
	}
}

static void
mask_apply(LlmSampler *s, const LlmSampleRow *row)
{
	for (int32_t i = 0; row->mask != NULL && i < s->vocab_size; i++)
		if ((row->mask[i / 32] >> (i % 32) & 1) == 0)
			s->logits[i] = -INFINITY;
	for (int32_t i = 0; i < row->n_banned; i++)
		if (row->banned[i] >= 0 && row->banned[i] < s->vocab_size)
			s->logits[row->banned[i]] = -INFINITY;
}

/* A bound on logits: all whose scaled one is at least min_z <= 0 are above it, and hardly any other. The
 * roundings of scale() are far below the margins here. */
static float
logit_bound(float min_z, float max, float temperature)
{
	double x = (double) max + ((double) min_z - 1e-44) * (double) temperature * (1.0 + 1e-5);

	x -= fabs(x) * 1e-6;
	return x > -(double) FLT_MAX ? (float) x : -FLT_MAX;
}

/* Candidates: tokens of row x with a logit of at least `least`, scaled. */
static void
candidates_collect(LlmSampler *s, const float *x, float least, LlmRowTop top, float temperature)
{
	s->c.n = s->math->collect(x, s->vocab_size, least, s->c.id, s->c.x);
	s->math->scale(s->c.x, s->c.n, top.max, temperature, s->c.z);
}

static void
candidates_drop(LlmCandidates *c, float min_z)
{
	int32_t n = 0;

	for (int32_t i = 0; i < c->n; i++)
	{
		c->id[n] = c->id[i];
		c->x[n] = c->x[i];
		c->z[n] = c->z[i];
		n += c->z[i] >= min_z;
	}
	c->n = n;
}

static uint64_t
candidates_weigh(LlmSampler *s)
{
	uint64_t total = 0;

	s->math->weights(s->c.z, s->c.n, s->c.w);
	for (int32_t i = 0; i < s->c.n; i++)
		total += s->c.w[i];
	return total;
}

/* The part of a total that top_p asks for, as a sum of weights. */
static uint64_t
top_p_target(uint64_t total, float top_p)
{
	return (uint64_t) ((double) total * (double) top_p);
}

/* The k first of the row. The k-th highest of values that are different tokens' is no higher than the
 * k-th highest of all. */
static void
top_k_collect(LlmSampler *s, const float *x, LlmRowTop top, const LlmSampleParams *p)
{
	int32_t n = llm_row_n_maxima(s->vocab_size);
	float least = p->top_k <= n ? llm_select_value(s->maxima, n, p->top_k) : -FLT_MAX;

	candidates_collect(s, x, least, top, p->temperature);
	if (p->top_k < s->c.n)
		llm_select_prefix(&s->c, true, (uint64_t) p->top_k);
	if (p->top_p < 1.0f)
		llm_select_prefix(&s->c, false, top_p_target(candidates_weigh(s), p->top_p));
}

/* The shortest beginning of the sorted row that has top_p of the weight. The tokens below exp(z) = rest /
 * n have less than the rest together, so all of it is above. Tokens are looked at
 * from the highest down, in few steps: those that reach the target together hold all of it. */
static void
top_p_collect(LlmSampler *s, const float *x, LlmRowTop top, const LlmSampleParams *p)
{
	uint64_t total = s->math->weight_sum(x, s->vocab_size, top.max, p->temperature);
	uint64_t target = top_p_target(total, p->top_p);
	float rest = (float) (total - target) / (float) LLM_WEIGHT_ONE / (float) s->vocab_size;
	float min_z = fmaxf(llm_logf(rest) - 0.01f, LLM_WEIGHT_MIN_Z);

	float z = NEAR_Z; /* a few tokens may be enough */

	for (bool enough = false; !enough; z *= 2.0f)
	{
		enough = z <= min_z;
		candidates_collect(s, x, logit_bound(fmaxf(z, min_z), top.max, p->temperature), top,
						   p->temperature);
		enough |= candidates_weigh(s) >= target;
	}
	llm_select_prefix(&s->c, false, target);
}

/* Gumbel-max: the highest z + noise is a draw from softmax(z). Ties go to the first in the order.
 * *score: of the candidate that is picked. */
static int32_t
gumbel_pick(LlmSampler *s, const LlmSampleRow *row, float *score)
{
	LlmCandidates *c = &s->c;
	int32_t best = 0;

	s->math->gumbel(row->p.seed, (uint32_t) row->position, c->id, c->n, s->noise);
	*score = c->z[0] + s->noise[0];
	for (int32_t i = 1; i < c->n; i++)
	{
		float at = c->z[i] + s->noise[i];

		if (at > *score || (at == *score && c->x[i] > c->x[best]))
		{
			best = i;
			*score = at;
		}
	}
	return c->id[best];
}

/* All that may win, when nothing is cut: what the best of the highest tokens cannot beat. */
static void
all_collect(LlmSampler *s, const float *x, LlmRowTop top, const LlmSampleRow *row, float least)
{
	float temperature = row->p.temperature, score;

	candidates_collect(s, x, logit_bound(fmaxf(least, NEAR_Z), top.max, temperature), top,
					   temperature);
	if (least >= NEAR_Z)
		return;
	candidates_drop(&s->c, least);
	gumbel_pick(s, row, &score);
	least = fmaxf(least, score - LLM_GUMBEL_MAX);
	candidates_collect(s, x, logit_bound(least, top.max, temperature), top, temperature);
}

/* A draw from row x, whose highest value is top. */
static int32_t
row_draw(LlmSampler *s, const float *x, LlmRowTop top, const LlmSampleRow *row)
{
	const LlmSampleParams *p = &row->p;
	float least; /* z below it cannot win: the noise of the highest token is known */
	float g;

	s->math->gumbel(p->seed, (uint32_t) row->position, &top.id, 1, &g);
	least = g - LLM_GUMBEL_MAX;
	if (p->min_p > 0.0f)
		least = fmaxf(least, llm_logf(p->min_p));
	if (p->top_k > 0 && p->top_k < s->vocab_size)
		top_k_collect(s, x, top, p);
	else if (p->top_p < 1.0f)
		top_p_collect(s, x, top, p);
	else
		all_collect(s, x, top, row, least);
	candidates_drop(&s->c, least);
	return gumbel_pick(s, row, &g);
}

static bool
is_banned(const LlmSampleRow *row, int32_t id)
{
	for (int32_t i = 0; i < row->n_banned; i++)
		if (row->banned[i] == id)
			return true;
	return false;
}

/* The token of a row by everything that it asks for; -1 when that leaves none. */
static int32_t
row_pick(LlmSampler *s, const float *logits, LlmRowTop raw, const LlmSampleRow *row)
{
	const float *x = logits;
	bool greedy = row->p.temperature < TEMPERATURE_MIN;
	bool changed = has_penalties(&row->p) || row->mask != NULL || row->n_bias > 0;
	LlmRowTop top = raw;

	/* Bans alone matter to a greedy row only when they hit its highest token. */
	if (changed || (greedy ? is_banned(row, raw.id) : row->n_banned > 0))
	{
		memcpy(s->logits, logits, (size_t) s->vocab_size * sizeof(float));
		bias_apply(s, row);
		if (has_penalties(&row->p))
			penalties_apply(s, row);
		mask_apply(s, row);
		x = s->logits;
		top = s->math->top(x, s->vocab_size, s->maxima);
		if (top.id < 0)
			return -1;
	}
	return greedy ? top.id : row_draw(s, x, top, row);
}

/* Log-probabilities of the row's token and of the likeliest ones, all from one sum. */
static void
row_score(LlmSampler *s, const float *logits, LlmRowTop raw, int32_t n_top, LlmSampleOut *out)
{
	float log_sum = llm_logf(s->math->sumexp(logits, s->vocab_size, raw.max));

	out->logprob = (logits[out->token] - raw.max) - log_sum;
	out->n_top = llm_select_likeliest(logits, s->vocab_size, n_top, out->top);
	for (int32_t i = 0; i < out->n_top; i++)
		out->top[i].logprob = (out->top[i].logprob - raw.max) - log_sum;
}

void
llm_sampler_pick(LlmSampler *s, const float *logits, const LlmSampleRow *row, LlmSampleOut *out)
{
	LlmRowTop raw = s->math->top(logits, s->vocab_size, s->maxima);

	memset(out, 0, sizeof(*out));
	if (raw.bad || raw.id < 0)
		fail(out, LLM_E_INTERNAL, "logits are not finite");
	else if (row->n_top < 0 || row->n_top > LLM_TOP_LOGPROBS_MAX)
		fail(out, LLM_E_INTERNAL, "%d likeliest tokens are wanted of a row", row->n_top);
	else if (row->target != NULL)
	{
		if (*row->target < 0 || *row->target >= s->vocab_size)
			fail(out, LLM_E_INTERNAL, "the next token is %d of a vocabulary of %d", *row->target,
				 s->vocab_size);
		else
		{
			out->token = *row->target;
			row_score(s, logits, raw, row->n_top, out);
		}
	}
	else if (row_check(s, row, out))
	{
		out->token = row_pick(s, logits, raw, row);
		if (out->token < 0)
			fail(out, LLM_E_INVALID, "no token is left to pick: all are masked or banned");
		else if (!row->unscored)
			row_score(s, logits, raw, row->n_top, out);
	}
}
