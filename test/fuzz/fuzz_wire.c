/*
 * fuzz_wire.c - bytes of a client: frame headers, bodies, and requests made of them.
 * links: server wire core
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/codec.h"
#include "server/spec.h"
#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the checks have let through must keep what they promise. */
static void
check_request(const LlmRequest *r)
{
	if (r->n_stops < 0 || r->n_stops > LLM_STOPS_MAX || r->max_tokens < LLM_MAX_TOKENS_REST ||
		r->timeout_ms < 0 || r->key.id == 0 || r->sample.top_k < 0 ||
		!(r->sample.top_p > 0 && r->sample.top_p <= 1) ||
		!(r->sample.min_p >= 0 && r->sample.min_p <= 1) || !(r->sample.repetition_penalty > 0) ||
		(unsigned) r->kind > LLM_REQUEST_UNPIN || (unsigned) r->truncate > LLM_TRUNCATE_RIGHT)
		abort();
	if (r->n_messages < 0 || r->n_messages > LLM_MESSAGES_MAX || r->n_bias < 0 ||
		r->n_bias > LLM_TOKEN_LIST_MAX || r->n_allowed > LLM_TOKEN_LIST_MAX ||
		r->n_forbidden > LLM_TOKEN_LIST_MAX || r->n_stop_tokens > LLM_TOKEN_LIST_MAX ||
		r->min_tokens < 0 || r->n_top < 0 || r->n_top > LLM_TOP_LOGPROBS_MAX ||
		(unsigned) r->reasoning > LLM_REASONING_HIGH)
		abort();
	for (int i = 0; i < r->n_bias; i++)
		if (!(r->bias[i].bias >= -100 && r->bias[i].bias <= 100))
			abort();
	for (int i = 0; i < r->n_messages; i++)
		if (r->messages[i].role.len == 0)
			abort();
	for (int i = 0; i < r->n_stops; i++)
		if (r->stops[i].len == 0 || r->stops[i].len > LLM_STOP_NBYTES_MAX)
			abort();
}

static void
try_frame(const Llm__Frame *f)
{
	LlmRequest r;
	LlmSpec *spec = NULL;
	void *lists;
	LlmError e;

	if (f->body_case == LLM__FRAME__BODY_SUBMIT)
	{
		if (llm_codec_request(f->submit, LLM__PREFIX_SCOPE__SCOPE_ROLE, &r, &lists, &e) == LLM_OK)
			check_request(&r);
		else if (e.text[0] == '\0')
			abort();
		free(lists);
	}
	if (f->body_case == LLM__FRAME__BODY_LOAD &&
		llm_spec_create(f->load->spec, &spec, &e) == LLM_OK)
		llm_spec_release(spec);
	if (f->body_case == LLM__FRAME__BODY_UNLOAD &&
		llm_spec_create(f->unload->spec, &spec, &e) == LLM_OK)
		llm_spec_release(spec);
}

/* A frame that was understood packs into a whole frame. (Not always into one that is understood:
 * protobuf-c takes an unknown field numbered 0 in a long form and writes it in the short form, which
 * it refuses.) */
static void
try_pack(const Llm__Frame *f)
{
	LlmBuf out = {0};
	uint32_t n = 0;

	if (llm_codec_append(&out, f) && (llm_frame_peek(out.data, out.len, &n) != LLM_FRAME_WHOLE ||
									  n + LLM_FRAME_HEADER != out.len))
		abort();
	llm_buf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint32_t n = 0;

	while (llm_frame_peek(data, size, &n) == LLM_FRAME_WHOLE)
	{
		Llm__Frame *f = llm_codec_unpack(data + LLM_FRAME_HEADER, n);

		if (f != NULL)
		{
			try_frame(f);
			try_pack(f);
			llm_codec_free(f);
		}
		data += LLM_FRAME_HEADER + (size_t) n;
		size -= LLM_FRAME_HEADER + (size_t) n;
	}
	return 0;
}
