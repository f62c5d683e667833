/* server/codec_submit.c - a SUBMIT, checked number by number, as the engine's request. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/codec.h"

#define BIAS_MAX 100.0 /* more than any logit is apart from another */

static LlmStr
bytes_str(bool has, ProtobufCBinaryData b)
{
	LlmStr s = {NULL, 0};

	if (has)
	{
		s.p = b.data == NULL ? "" : (const char *) b.data;
		s.len = b.len;
	}
	return s;
}

/* Value of an optional float, checked against [low, high]; NaN is out of every range. */
static LlmStatus
float_option(bool has, float v, float low, float high, const char *name, float *out, LlmError *err)
{
	if (!has)
		return LLM_OK;
	if (!(v >= low && v <= high))
		return llm_error_set(err, LLM_E_INVALID, "%s must be between %g and %g, not %g", name,
							 (double) low, (double) high, (double) v);
	*out = v;
	return LLM_OK;
}

static LlmStatus
sample_params(const Llm__Submit *m, LlmSampleParams *p, LlmError *err)
{
	const float tiny = 0x1p-126f; /* smallest normal: "above zero" */
	const float big = 1e6f;
	const struct
	{
		bool has;
		float v, low, high;
		const char *name;
		float *out;
	} options[] = {
		{m->has_temperature, m->temperature, -1, big, "temperature", &p->temperature},
		{m->has_top_p, m->top_p, tiny, 1, "top_p", &p->top_p},
		{m->has_min_p, m->min_p, 0, 1, "min_p", &p->min_p},
		{m->has_repetition_penalty, m->repetition_penalty, tiny, big, "repetition_penalty",
		 &p->repetition_penalty},
		{m->has_presence_penalty, m->presence_penalty, -big, big, "presence_penalty",
		 &p->presence_penalty},
		{m->has_frequency_penalty, m->frequency_penalty, -big, big, "frequency_penalty",
		 &p->frequency_penalty},
	};

	*p = (LlmSampleParams){.temperature = -1, .top_p = 1, .repetition_penalty = 1};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
	{
		LlmStatus st = float_option(options[i].has, options[i].v, options[i].low, options[i].high,
									options[i].name, options[i].out, err);

		if (st != LLM_OK)
			return st;
	}
	if (m->has_top_k)
		p->top_k = m->top_k;
	if (p->top_k < 0)
		return llm_error_set(err, LLM_E_INVALID, "top_k must not be negative, but is %d", p->top_k);
	p->seed = m->has_seed ? m->seed : 0;
	return LLM_OK;
}

static LlmStatus
check_count(size_t n, int32_t max, const char *what, LlmError *err)
{
	if (n <= (size_t) max)
		return LLM_OK;
	llm_error_set(err, LLM_E_INVALID, "%zu %s, but at most %d are possible", n, what, max);
	llm_error_numbers(err, (int64_t) n, max);
	return LLM_E_INVALID;
}

static LlmStatus
stop_strings(const Llm__Submit *m, LlmRequest *r, LlmError *err)
{
	LlmStatus st = check_count(m->n_stop, LLM_STOPS_MAX, "stop strings", err);

	if (st != LLM_OK)
		return st;
	for (size_t i = 0; i < m->n_stop; i++)
	{
		size_t len = m->stop[i].len;

		if (len == 0)
			return llm_error_set(err, LLM_E_INVALID, "a stop string is empty");
		if (len > LLM_STOP_NBYTES_MAX)
		{
			llm_error_set(err, LLM_E_INVALID, "a stop string has %zu bytes, but at most %d fit",
						  len, LLM_STOP_NBYTES_MAX);
			llm_error_numbers(err, (int64_t) len, LLM_STOP_NBYTES_MAX);
			return LLM_E_INVALID;
		}
		r->stops[i] = bytes_str(true, m->stop[i]);
	}
	r->n_stops = (int32_t) m->n_stop;
	return LLM_OK;
}

/* A salt or tenant; whoever counts by it reads the pair out of it again. */
static uint64_t
oid_pair(uint32_t database, uint32_t role)
{
	return (uint64_t) database << 32 | role;
}

/* Enumerations arrive as any number at all. */
static LlmStatus
enum_fields(const Llm__Submit *m, LlmRequest *r, LlmError *err)
{
	static const LlmTruncate truncates[] = {
		[LLM__TRUNCATE__TRUNCATE_ERROR] = LLM_TRUNCATE_ERROR,
		[LLM__TRUNCATE__TRUNCATE_LEFT] = LLM_TRUNCATE_LEFT,
		[LLM__TRUNCATE__TRUNCATE_RIGHT] = LLM_TRUNCATE_RIGHT,
	};
	static const LlmRequestKind kinds[] = {
		[LLM__KIND__GENERATE] = LLM_REQUEST_GENERATE,
		[LLM__KIND__TOKENIZE] = LLM_REQUEST_TOKENIZE,
		[LLM__KIND__DETOKENIZE] = LLM_REQUEST_DETOKENIZE,
		[LLM__KIND__SCORE] = LLM_REQUEST_SCORE,
		[LLM__KIND__POOL] = LLM_REQUEST_POOL,
		[LLM__KIND__PIN] = LLM_REQUEST_PIN,
		[LLM__KIND__UNPIN] = LLM_REQUEST_UNPIN,
	};
	static const LlmReasoning reasonings[] = {
		[LLM__REASONING__REASONING_DEFAULT] = LLM_REASONING_DEFAULT,
		[LLM__REASONING__REASONING_OFF] = LLM_REASONING_OFF,
		[LLM__REASONING__REASONING_ON] = LLM_REASONING_ON,
		[LLM__REASONING__REASONING_LOW] = LLM_REASONING_LOW,
		[LLM__REASONING__REASONING_MEDIUM] = LLM_REASONING_MEDIUM,
		[LLM__REASONING__REASONING_HIGH] = LLM_REASONING_HIGH,
	};
	unsigned kind = (unsigned) m->kind;
	unsigned truncate = m->has_truncate ? (unsigned) m->truncate : 0;
	unsigned reasoning = m->has_reasoning ? (unsigned) m->reasoning : 0;

	if (kind >= sizeof(kinds) / sizeof(kinds[0]))
		return llm_error_set(err, LLM_E_PROTOCOL, "unknown kind of request: %d", (int) m->kind);
	if (truncate >= sizeof(truncates) / sizeof(truncates[0]))
		return llm_error_set(err, LLM_E_PROTOCOL, "unknown way to truncate: %d", (int) m->truncate);
	if (reasoning >= sizeof(reasonings) / sizeof(reasonings[0]))
		return llm_error_set(err, LLM_E_PROTOCOL, "unknown reasoning: %d", (int) m->reasoning);
	r->kind = kinds[kind];
	r->truncate = truncates[truncate];
	r->reasoning = reasonings[reasoning];
	return LLM_OK;
}

/* What is asked: messages, a prompt or token ids, as the kind wants it. */
static LlmStatus
check_input(const Llm__Submit *m, LlmRequest *r, LlmError *err)
{
	if (m->n_messages > 0 && (r->kind != LLM_REQUEST_GENERATE || m->has_prompt || m->has_system))
		return llm_error_set(err, LLM_E_PROTOCOL, "messages where a prompt belongs");
	if (!m->has_prompt && m->n_messages == 0 && r->kind != LLM_REQUEST_DETOKENIZE)
		return llm_error_set(err, LLM_E_PROTOCOL, "a request without a prompt");
	if (m->n_tokens > INT32_MAX || (m->n_tokens > 0 && r->kind != LLM_REQUEST_DETOKENIZE))
		return llm_error_set(err, LLM_E_PROTOCOL, "token ids where a prompt belongs");
	r->prompt = bytes_str(m->has_prompt, m->prompt);
	r->system = bytes_str(m->has_system, m->system);
	r->tokens = m->tokens;
	r->n_tokens = (int32_t) m->n_tokens;
	return LLM_OK;
}

/* ---- lists ---- */

/* Lists of token ids, whose range is the vocabulary's and so the engine's to check. */
static LlmStatus
token_lists(const Llm__Submit *m, LlmRequest *r, LlmError *err)
{
	LlmStatus st;

	if ((st = check_count(m->n_allowed, LLM_TOKEN_LIST_MAX, "allowed tokens", err)) != LLM_OK ||
		(st = check_count(m->n_forbidden, LLM_TOKEN_LIST_MAX, "forbidden tokens", err)) != LLM_OK ||
		(st = check_count(m->n_stop_token, LLM_TOKEN_LIST_MAX, "stop tokens", err)) != LLM_OK)
		return st;
	r->allowed = m->allowed;
	r->n_allowed = (int32_t) m->n_allowed;
	r->forbidden = m->forbidden;
	r->n_forbidden = (int32_t) m->n_forbidden;
	r->stop_tokens = m->stop_token;
	r->n_stop_tokens = (int32_t) m->n_stop_token;
	return LLM_OK;
}

static LlmStatus
check_bias(const Llm__Submit *m, LlmError *err)
{
	LlmStatus st = check_count(m->n_bias_token, LLM_TOKEN_LIST_MAX, "biased tokens", err);

	if (st != LLM_OK)
		return st;
	if (m->n_bias != m->n_bias_token)
		return llm_error_set(err, LLM_E_PROTOCOL, "%zu biases for %zu tokens", m->n_bias,
							 m->n_bias_token);
	for (size_t i = 0; i < m->n_bias; i++)
		if (!(m->bias[i] >= -BIAS_MAX && m->bias[i] <= BIAS_MAX))
			return llm_error_set(err, LLM_E_INVALID, "a bias must be between %g and %g, not %g",
								 -BIAS_MAX, BIAS_MAX, (double) m->bias[i]);
	return LLM_OK;
}

static LlmStatus
check_messages(const Llm__Submit *m, LlmError *err)
{
	LlmStatus st = check_count(m->n_messages, LLM_MESSAGES_MAX, "messages", err);

	for (size_t i = 0; st == LLM_OK && i < m->n_messages; i++)
	{
		LlmStr role = bytes_str(true, m->messages[i]->role);

		if (!llm_str_eq(role, "system") && !llm_str_eq(role, "user") &&
			!llm_str_eq(role, "assistant"))
			st = llm_error_set(err, LLM_E_PROTOCOL, "message %zu has an unknown role", i);
	}
	return st;
}

/* Biases and messages in the engine's shape, in one block. */
static LlmStatus
fill_lists(const Llm__Submit *m, LlmRequest *r, void **lists, LlmError *err)
{
	LlmChatMessage *messages;
	LlmTokenBias *bias;

	if (m->n_messages == 0 && m->n_bias == 0)
		return LLM_OK;
	*lists = malloc(m->n_messages * sizeof(*messages) + m->n_bias * sizeof(*bias));
	if (*lists == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a request");
	messages = *lists;
	bias = (LlmTokenBias *) (messages + m->n_messages);
	for (size_t i = 0; i < m->n_messages; i++)
		messages[i] = (LlmChatMessage){bytes_str(true, m->messages[i]->role),
									   bytes_str(true, m->messages[i]->content)};
	for (size_t i = 0; i < m->n_bias; i++)
		bias[i] = (LlmTokenBias){m->bias_token[i], m->bias[i]};
	r->messages = m->n_messages > 0 ? messages : NULL;
	r->n_messages = (int32_t) m->n_messages;
	r->bias = m->n_bias > 0 ? bias : NULL;
	r->n_bias = (int32_t) m->n_bias;
	return LLM_OK;
}

/* Numbers and switches beside the sampling parameters. */
static LlmStatus
plain_fields(const Llm__Submit *m, LlmRequest *r, LlmError *err)
{
	r->max_tokens = m->has_max_tokens ? m->max_tokens : LLM_MAX_TOKENS_REST;
	if (m->has_max_tokens && m->max_tokens < 0)
		return llm_error_set(err, LLM_E_INVALID, "max_tokens must not be negative, but is %d",
							 m->max_tokens);
	r->timeout_ms = m->has_timeout_ms ? m->timeout_ms : 0;
	if (r->timeout_ms < 0)
		return llm_error_set(err, LLM_E_INVALID, "timeout must not be negative, but is %d ms",
							 r->timeout_ms);
	r->min_tokens = m->has_min_tokens ? m->min_tokens : 0;
	if (r->min_tokens < 0)
		return llm_error_set(err, LLM_E_INVALID, "min_tokens must not be negative, but is %d",
							 r->min_tokens);
	r->n_top = m->has_top_logprobs ? m->top_logprobs : 0;
	if (r->n_top < 0 || r->n_top > LLM_TOP_LOGPROBS_MAX)
		return llm_error_set(err, LLM_E_INVALID, "top_logprobs must be between 0 and %d, not %d",
							 LLM_TOP_LOGPROBS_MAX, r->n_top);
	r->logprobs = m->has_logprobs && m->logprobs;
	r->prompt_logprobs = m->has_prompt_logprobs && m->prompt_logprobs;
	r->template_kwargs = bytes_str(m->has_template_kwargs, m->template_kwargs);
	r->raw = m->has_raw && m->raw;
	r->ignore_eos = m->has_ignore_eos && m->ignore_eos;
	r->stream = m->has_stream && m->stream;
	r->priority = m->has_priority ? m->priority : 0;
	return LLM_OK;
}

LlmStatus
llm_codec_request(const Llm__Submit *m, Llm__PrefixScope scope, LlmRequest *r, void **lists,
				  LlmError *err)
{
	LlmStatus st;

	memset(r, 0, sizeof(*r));
	*lists = NULL;
	r->key.id = m->id;
	if (m->id == 0)
		return llm_error_set(err, LLM_E_PROTOCOL, "a request without a number");
	if ((st = enum_fields(m, r, err)) != LLM_OK || (st = check_input(m, r, err)) != LLM_OK ||
		(st = check_messages(m, err)) != LLM_OK || (st = check_bias(m, err)) != LLM_OK ||
		(st = token_lists(m, r, err)) != LLM_OK || (st = plain_fields(m, r, err)) != LLM_OK ||
		(st = sample_params(m, &r->sample, err)) != LLM_OK ||
		(st = stop_strings(m, r, err)) != LLM_OK)
		return st;
	r->salt =
		oid_pair(m->has_database && scope != LLM__PREFIX_SCOPE__SCOPE_CLUSTER ? m->database : 0,
				 m->has_role && scope == LLM__PREFIX_SCOPE__SCOPE_ROLE ? m->role : 0);
	r->tenant = oid_pair(m->has_database ? m->database : 0, m->has_role ? m->role : 0);
	return fill_lists(m, r, lists, err);
}
