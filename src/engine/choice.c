/* engine/choice.c - token lists of a request: checks, and the form that the sampler reads. */
#include "engine/choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks ---- */

/* Tokens that are both in the text vocabulary and among the model's logits. */
static int32_t
vocabulary(const LlmLoaded *m)
{
	int32_t n_logits = llm_model_config(m->model)->vocab_size;

	return m->info.vocab_size < n_logits ? m->info.vocab_size : n_logits;
}

static LlmStatus
check_count(const char *what, int32_t n, LlmError *err)
{
	if (n >= 0 && n <= LLM_TOKEN_LIST_MAX)
		return LLM_OK;
	llm_error_set(err, LLM_E_INVALID, "%s has %d tokens, but at most %d may be listed", what, n,
				  LLM_TOKEN_LIST_MAX);
	llm_error_numbers(err, n, LLM_TOKEN_LIST_MAX);
	return LLM_E_INVALID;
}

static LlmStatus
check_id(const LlmLoaded *m, const char *what, int32_t id, LlmError *err)
{
	int32_t n = vocabulary(m);

	if (id >= 0 && id < n)
		return LLM_OK;
	llm_error_set(err, LLM_E_INVALID, "%s names token %d, but the vocabulary has %d tokens", what,
				  id, n);
	llm_error_numbers(err, id, n - 1);
	return LLM_E_INVALID;
}

static LlmStatus
check_ids(const LlmLoaded *m, const char *what, const int32_t *ids, int32_t n, LlmError *err)
{
	LlmStatus st = check_count(what, n, err);

	for (int32_t i = 0; st == LLM_OK && i < n; i++)
		st = check_id(m, what, ids[i], err);
	return st;
}

static LlmStatus
check_min_tokens(const LlmRequest *r, LlmError *err)
{
	if (r->min_tokens >= 0 && (r->max_tokens < 0 || r->min_tokens <= r->max_tokens))
		return LLM_OK;
	if (r->min_tokens < 0)
		llm_error_set(err, LLM_E_INVALID, "min_tokens is %d, not 0 or more", r->min_tokens);
	else
		llm_error_set(err, LLM_E_INVALID, "min_tokens is %d, more than max_tokens, which is %d",
					  r->min_tokens, r->max_tokens);
	llm_error_numbers(err, r->min_tokens, r->max_tokens);
	return LLM_E_INVALID;
}

static LlmStatus
check(const LlmLoaded *m, const LlmRequest *r, LlmError *err)
{
	LlmStatus st = check_count("logit_bias", r->n_bias, err);

	for (int32_t i = 0; st == LLM_OK && i < r->n_bias; i++)
	{
		st = check_id(m, "logit_bias", r->bias[i].token, err);
		if (st == LLM_OK && !isfinite(r->bias[i].bias))
			st = llm_error_set(err, LLM_E_INVALID, "the logit_bias of token %d is not finite",
							   r->bias[i].token);
	}
	if (st == LLM_OK)
		st = check_ids(m, "allowed_tokens", r->allowed, r->n_allowed, err);
	if (st == LLM_OK)
		st = check_ids(m, "forbidden_tokens", r->forbidden, r->n_forbidden, err);
	if (st == LLM_OK)
		st = check_ids(m, "stop_token_ids", r->stop_tokens, r->n_stop_tokens, err);
	return st == LLM_OK ? check_min_tokens(r, err) : st;
}

/* ---- layout ---- */

static void
bit_set(uint32_t *bits, int32_t id, bool on)
{
	uint32_t bit = 1u << (id % 32);

	bits[id / 32] = on ? bits[id / 32] | bit : bits[id / 32] & ~bit;
}

static bool
bit_get(const uint32_t *bits, int32_t id)
{
	return (bits[id / 32] >> (id % 32) & 1) != 0;
}

/* Bits of what allowed and forbidden leave. */
static void
mask_fill(uint32_t *bits, size_t n_words, const LlmRequest *r)
{
	memset(bits, r->n_allowed > 0 ? 0 : 0xFF, n_words * sizeof(*bits));
	for (int32_t i = 0; i < r->n_allowed; i++)
		bit_set(bits, r->allowed[i], true);
	for (int32_t i = 0; i < r->n_forbidden; i++)
		bit_set(bits, r->forbidden[i], false);
}

/* No token may be biased twice; bits [n_words] are scratch. */
static LlmStatus
bias_check_twice(uint32_t *bits, size_t n_words, const LlmRequest *r, LlmError *err)
{
	memset(bits, 0, n_words * sizeof(*bits));
	for (int32_t i = 0; i < r->n_bias; i++)
	{
		if (bit_get(bits, r->bias[i].token))
			return llm_error_set(err, LLM_E_INVALID, "logit_bias names token %d twice",
								 r->bias[i].token);
		bit_set(bits, r->bias[i].token, true);
	}
	return LLM_OK;
}

/* The first pick must have something to choose from; bits [n_words] are scratch. */
static LlmStatus
begin_check(uint32_t *bits, size_t n_words, const LlmChoice *c, const LlmLoaded *m,
			const LlmRequest *r, LlmError *err)
{
	int32_t n = vocabulary(m);

	mask_fill(bits, n_words, r);
	for (int32_t i = 0; i < (c->min_tokens > 0 ? c->n_banned_early : c->n_banned); i++)
		if (c->banned[i] < n)
			bit_set(bits, c->banned[i], false);
	for (int32_t id = 0; id < n; id++)
		if (bit_get(bits, id))
			return LLM_OK;
	llm_error_set(err, LLM_E_INVALID, "no token is left to pick: %d are allowed, %d forbidden",
				  r->n_allowed > 0 ? r->n_allowed : n, r->n_forbidden);
	llm_error_detail(err, "Unused tokens are never picked, end and stop tokens not before "
						  "min_tokens, end tokens not with ignore_eos.");
	return LLM_E_INVALID;
}

/* The lists into one block of memory, whose last part is scratch for the checks. */
static LlmStatus
lay_out(LlmChoice *c, const LlmLoaded *m, const LlmRequest *r, LlmError *err)
{
	size_t n_words = ((size_t) llm_model_config(m->model)->vocab_size + 31) / 32;
	int32_t n_model = m->n_banned + m->n_end;
	size_t n_ids = (size_t) (n_model + r->n_stop_tokens);
	LlmTokenBias *bias;
	uint32_t *mask, *scratch;
	int32_t *ids;
	LlmStatus st;

	c->memory = malloc((size_t) r->n_bias * sizeof(*bias) + 2 * n_words * sizeof(*mask) +
					   n_ids * sizeof(*ids));
	if (c->memory == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the token lists of a request");
	bias = c->memory;
	mask = (uint32_t *) (bias + r->n_bias);
	scratch = mask + n_words;
	ids = (int32_t *) (scratch + n_words);
	if (r->n_bias > 0)
		memcpy(bias, r->bias, (size_t) r->n_bias * sizeof(*bias));
	if (n_model > 0)
		memcpy(ids, m->banned, (size_t) n_model * sizeof(*ids));
	if (r->n_stop_tokens > 0)
		memcpy(ids + n_model, r->stop_tokens, (size_t) r->n_stop_tokens * sizeof(*ids));
	mask_fill(mask, n_words, r);
	c->bias = bias;
	c->n_bias = r->n_bias;
	c->mask = r->n_allowed > 0 || r->n_forbidden > 0 ? mask : NULL;
	c->banned = ids;
	c->n_banned_early = (int32_t) n_ids;
	c->stop_tokens = ids + n_model;
	c->n_stop_tokens = r->n_stop_tokens;
	if ((st = bias_check_twice(scratch, n_words, r, err)) == LLM_OK)
		st = begin_check(scratch, n_words, c, m, r, err);
	return st;
}

LlmStatus
llm_choice_init(LlmChoice *c, const LlmLoaded *m, const LlmRequest *r, LlmError *err)
{
	LlmStatus st = check(m, r, err);

	*c = (LlmChoice){.banned = m->banned,
					 .n_banned = m->n_banned + (r->ignore_eos ? m->n_end : 0),
					 .n_banned_early = m->n_banned + m->n_end,
					 .min_tokens = r->min_tokens,
					 .ignore_eos = r->ignore_eos};
	if (st != LLM_OK || (r->n_bias | r->n_allowed | r->n_forbidden | r->n_stop_tokens) == 0)
		return st; /* most requests: the model's own list does */
	if ((st = lay_out(c, m, r, err)) != LLM_OK)
		llm_choice_fini(c);
	return st;
}

void
llm_choice_fini(LlmChoice *c)
{
	free(c->memory);
	memset(c, 0, sizeof(*c));
}

/* ---- use ---- */

void
llm_choice_row(const LlmChoice *c, int32_t n_new, LlmSampleRow *row)
{
	row->bias = c->bias;
	row->n_bias = c->n_bias;
	row->mask = c->mask;
	row->banned = c->banned;
	row->n_banned = n_new < c->min_tokens ? c->n_banned_early : c->n_banned;
}

bool
llm_choice_ends(const LlmChoice *c, const LlmTokenizer *tok, int32_t token)
{
	if (!c->ignore_eos && llm_tokenizer_is_end(tok, token))
		return true;
	for (int32_t i = 0; i < c->n_stop_tokens; i++)
		if (c->stop_tokens[i] == token)
			return true;
	return false;
}
