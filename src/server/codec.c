/* server/codec.c - checked decoding of requests and encoding of answers. */
#include "server/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"

/* ---- decoding ---- */

/* A packed token of one byte becomes four in memory; nothing that a correct peer sends grows more. */
#define BUDGET_FACTOR 4
#define BUDGET_BASE ((size_t) 64 << 10)

static void *
budget_alloc(void *data, size_t nbytes)
{
	size_t *left = data;

	if (nbytes > *left)
		return NULL;
	*left -= nbytes;
	return malloc(nbytes);
}

static void
budget_free(void *data, void *p)
{
	free(p);
}

Llm__Frame *
llm_codec_unpack(const uint8_t *body, size_t nbytes)
{
	size_t left = BUDGET_BASE + BUDGET_FACTOR * nbytes;
	ProtobufCAllocator a = {budget_alloc, budget_free, &left};

	return llm__frame__unpack(&a, nbytes, body);
}

void
llm_codec_free(Llm__Frame *f)
{
	ProtobufCAllocator a = {budget_alloc, budget_free, NULL};

	if (f != NULL)
		llm__frame__free_unpacked(f, &a);
}

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
stop_strings(const Llm__Submit *m, LlmRequest *r, LlmError *err)
{
	if (m->n_stop > LLM_STOPS_MAX)
	{
		llm_error_set(err, LLM_E_INVALID, "%zu stop strings, but at most %d are possible",
					  m->n_stop, LLM_STOPS_MAX);
		llm_error_numbers(err, (int64_t) m->n_stop, LLM_STOPS_MAX);
		return LLM_E_INVALID;
	}
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
	};
	unsigned kind = (unsigned) m->kind;
	unsigned truncate = m->has_truncate ? (unsigned) m->truncate : 0;

	if (kind >= sizeof(kinds) / sizeof(kinds[0]))
		return llm_error_set(err, LLM_E_PROTOCOL, "unknown kind of request: %d", (int) m->kind);
	if (truncate >= sizeof(truncates) / sizeof(truncates[0]))
		return llm_error_set(err, LLM_E_PROTOCOL, "unknown way to truncate: %d", (int) m->truncate);
	r->kind = kinds[kind];
	r->truncate = truncates[truncate];
	return LLM_OK;
}

LlmStatus
llm_codec_request(const Llm__Submit *m, Llm__PrefixScope scope, LlmRequest *r, LlmError *err)
{
	LlmStatus st;

	memset(r, 0, sizeof(*r));
	r->key.id = m->id;
	if (m->id == 0)
		return llm_error_set(err, LLM_E_PROTOCOL, "a request without a number");
	if ((st = enum_fields(m, r, err)) != LLM_OK)
		return st;
	if (!m->has_prompt && r->kind != LLM_REQUEST_DETOKENIZE)
		return llm_error_set(err, LLM_E_PROTOCOL, "a request without a prompt");
	if (m->n_tokens > INT32_MAX || (m->n_tokens > 0 && r->kind != LLM_REQUEST_DETOKENIZE))
		return llm_error_set(err, LLM_E_PROTOCOL, "token ids where a prompt belongs");
	r->prompt = bytes_str(m->has_prompt, m->prompt);
	r->system = bytes_str(m->has_system, m->system);
	r->tokens = m->tokens;
	r->n_tokens = (int32_t) m->n_tokens;
	r->max_tokens = m->has_max_tokens ? m->max_tokens : LLM_MAX_TOKENS_REST;
	if (m->has_max_tokens && m->max_tokens < 0)
		return llm_error_set(err, LLM_E_INVALID, "max_tokens must not be negative, but is %d",
							 m->max_tokens);
	r->timeout_ms = m->has_timeout_ms ? m->timeout_ms : 0;
	if (r->timeout_ms < 0)
		return llm_error_set(err, LLM_E_INVALID, "timeout must not be negative, but is %d ms",
							 r->timeout_ms);
	if ((st = sample_params(m, &r->sample, err)) != LLM_OK ||
		(st = stop_strings(m, r, err)) != LLM_OK)
		return st;
	r->raw = m->has_raw && m->raw;
	r->ignore_eos = m->has_ignore_eos && m->ignore_eos;
	r->stream = m->has_stream && m->stream;
	r->priority = m->has_priority ? m->priority : 0;
	r->salt =
		oid_pair(m->has_database && scope != LLM__PREFIX_SCOPE__SCOPE_CLUSTER ? m->database : 0,
				 m->has_role && scope == LLM__PREFIX_SCOPE__SCOPE_ROLE ? m->role : 0);
	r->tenant = oid_pair(m->has_database ? m->database : 0, m->has_role ? m->role : 0);
	return LLM_OK;
}

/* ---- encoding ---- */

bool
llm_codec_append(LlmBuf *out, const Llm__Frame *f)
{
	size_t nbytes = llm__frame__get_packed_size(f);
	uint8_t *p;

	if (nbytes > LLM_FRAME_MAX || !llm_buf_reserve(out, LLM_FRAME_HEADER + nbytes))
		return false;
	p = (uint8_t *) out->data + out->len;
	llm_frame_header(p, (uint32_t) nbytes);
	llm__frame__pack(f, p + LLM_FRAME_HEADER);
	out->len += LLM_FRAME_HEADER + nbytes;
	out->data[out->len] = '\0';
	return true;
}

bool
llm_codec_append_error(LlmBuf *out, uint64_t id, const LlmError *e)
{
	Llm__Error m = LLM__ERROR__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.id = id;
	m.status = (uint32_t) e->code;
	m.text = (char *) e->text;
	m.detail = e->detail[0] == '\0' ? NULL : (char *) e->detail;
	m.hint = e->hint[0] == '\0' ? NULL : (char *) e->hint;
	m.has_limit = m.has_got = e->limit != 0 || e->got != 0;
	m.limit = e->limit;
	m.got = e->got;
	f.body_case = LLM__FRAME__BODY_ERROR;
	f.error = &m;
	return llm_codec_append(out, &f);
}

static bool
append_done(LlmBuf *out, Llm__Done *m)
{
	Llm__Frame f = LLM__FRAME__INIT;

	f.body_case = LLM__FRAME__BODY_DONE;
	f.done = m;
	if (llm__frame__get_packed_size(&f) > LLM_FRAME_MAX)
	{
		LlmError e;

		llm_error_set(&e, LLM_E_CONTEXT, "the answer is larger than the %u bytes of a frame",
					  LLM_FRAME_MAX);
		return llm_codec_append_error(out, m->id, &e);
	}
	return llm_codec_append(out, &f);
}

bool
llm_codec_append_done(LlmBuf *out, uint64_t id)
{
	Llm__Done m = LLM__DONE__INIT;

	m.id = id;
	return append_done(out, &m);
}

bool
llm_codec_append_result(LlmBuf *out, const LlmResult *r, bool streamed)
{
	static const Llm__Finish finishes[] = {
		[LLM_FINISH_STOP] = LLM__FINISH__FINISH_STOP,
		[LLM_FINISH_LENGTH] = LLM__FINISH__FINISH_LENGTH,
		[LLM_FINISH_CANCELLED] = LLM__FINISH__FINISH_CANCELLED,
		[LLM_FINISH_ERROR] = LLM__FINISH__FINISH_ERROR,
	};
	Llm__Done m = LLM__DONE__INIT;

	if (r->status != LLM_OK)
	{
		LlmError e;

		llm_error_set(&e, r->status, "the request failed: %s", llm_status_name(r->status));
		return llm_codec_append_error(out, r->key.id, r->error != NULL ? r->error : &e);
	}
	m.id = r->key.id;
	m.has_text = !streamed;
	m.text.data = (uint8_t *) r->text.p;
	m.text.len = r->text.len;
	m.tokens = (int32_t *) r->tokens;
	m.n_tokens = (size_t) r->n_tokens;
	m.has_finish = true;
	m.finish = finishes[r->finish];
	m.has_prompt_tokens = m.has_cached_tokens = m.has_completion_tokens = true;
	m.prompt_tokens = r->prompt_tokens;
	m.cached_tokens = r->cached_tokens;
	m.completion_tokens = r->completion_tokens;
	m.has_queue_ms = m.has_first_token_ms = m.has_total_ms = true;
	m.queue_ms = r->queue_ms;
	m.first_token_ms = r->first_token_ms;
	m.total_ms = r->total_ms;
	m.has_numerics_key = true;
	m.numerics_key = r->numerics_key;
	return append_done(out, &m);
}

bool
llm_codec_append_tokens(LlmBuf *out, uint64_t id, LlmStr piece)
{
	Llm__Tokens m = LLM__TOKENS__INIT;
	Llm__Frame f = LLM__FRAME__INIT;

	m.id = id;
	m.text.data = (uint8_t *) piece.p;
	m.text.len = piece.len;
	f.body_case = LLM__FRAME__BODY_TOKENS;
	f.tokens = &m;
	return llm_codec_append(out, &f);
}

/* The wire's view of s->model; digest is [16] of the caller. */
static void
model_info(const LlmServerStats *s, Llm__ModelInfo *m, Llm__ModelSpec *spec, uint8_t *digest)
{
	const LlmModelInfo *i = &s->model;

	spec->path = (char *) s->spec->spec.path;
	spec->chat_template = (char *) s->spec->spec.chat_template;
	spec->kv_type = (char *) s->spec->spec.kv_type;
	spec->has_context_length = s->spec->spec.context_length > 0;
	spec->context_length = (uint32_t) s->spec->spec.context_length;
	m->spec = spec;
	m->state = s->loading ? "loading" : "resident";
	if (s->loading)
		return;
	m->arch = (char *) i->arch;
	m->quantization = (char *) i->quantization;
	m->has_n_params = m->has_nbytes = m->has_context_length = true;
	m->n_params = i->n_params;
	m->nbytes = i->nbytes;
	m->context_length = i->context_length;
	m->has_kv_nbytes_per_token = m->has_numerics_key = m->has_digest = true;
	m->kv_nbytes_per_token = i->kv_nbytes_per_token;
	m->numerics_key = i->numerics_key;
	for (int b = 0; b < 16; b++)
		digest[b] = (uint8_t) (i->digest[b / 8] >> (8 * (b % 8)));
	m->digest.data = digest;
	m->digest.len = 16;
}

bool
llm_codec_append_stats(LlmBuf *out, uint64_t id, const LlmServerStats *s)
{
	const LlmEngineStats *e = &s->engine;
	Llm__StatsReply m = LLM__STATS_REPLY__INIT;
	Llm__ModelInfo info = LLM__MODEL_INFO__INIT;
	Llm__ModelInfo *infos[1] = {&info};
	Llm__ModelSpec spec = LLM__MODEL_SPEC__INIT;
	Llm__Frame f = LLM__FRAME__INIT;
	uint8_t digest[16];

	m.id = id;
	if (s->spec != NULL)
	{
		model_info(s, &info, &spec, digest);
		m.models = infos;
		m.n_models = 1;
		m.device = s->loading ? NULL : (char *) s->model.device;
		m.isa = s->loading ? NULL : (char *) s->model.isa;
	}
	m.has_threads = m.has_kv_pages_total = m.has_kv_pages_free = m.has_kv_pages_cached = true;
	m.threads = e->threads;
	m.kv_pages_total = e->kv_pages_total;
	m.kv_pages_free = e->kv_pages_free;
	m.kv_pages_cached = e->kv_pages_cached;
	m.has_steps = m.has_prompt_tokens = m.has_cached_tokens = m.has_generated_tokens = true;
	m.steps = e->steps;
	m.prompt_tokens = e->prompt_tokens;
	m.cached_tokens = e->cached_tokens;
	m.generated_tokens = e->generated_tokens;
	m.has_preemptions = m.has_requests = m.has_errors = m.has_running = m.has_waiting = true;
	m.preemptions = e->preemptions;
	m.requests = e->requests;
	m.errors = e->errors;
	m.running = e->running;
	m.waiting = e->waiting + s->waiting;
	f.body_case = LLM__FRAME__BODY_STATS_REPLY;
	f.stats_reply = &m;
	return llm_codec_append(out, &f);
}

/* The finish reasons are a closed set on both sides. */
_Static_assert(LLM_FINISH_ERROR == 3, "a new finish reason needs a number in llm.proto");
