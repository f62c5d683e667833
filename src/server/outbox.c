/* server/outbox.c - a record before each frame. */
#include "server/outbox.h"

#include <stddef.h>
#include <string.h>

#include "core/log.h"
#include "server/codec.h"

/* Begin a record; its frame is encoded next. Returns its offset. */
static size_t
record_begin(LlmOutbox *o, LlmRequestKey key, bool final)
{
	LlmOutRecord r = {key, final, 0};
	size_t at = o->out.len;

	if (!llm_buf_append(&o->out, &r, sizeof(r)))
		o->failed = true;
	return at;
}

static void
record_end(LlmOutbox *o, size_t at, bool encoded)
{
	size_t begin = at + sizeof(LlmOutRecord);
	uint32_t nbytes;

	if (o->failed || !encoded)
	{
		if (!o->failed)
			llm_log(LLM_LOG_ERROR, "out of memory for an answer");
		o->failed = true;
		o->out.len = at;
		return;
	}
	nbytes = (uint32_t) (o->out.len - begin);
	memcpy(o->out.data + at + offsetof(LlmOutRecord, nbytes), &nbytes, sizeof(nbytes));
}

void
llm_outbox_error(LlmOutbox *o, LlmRequestKey key, const LlmError *e)
{
	size_t at = record_begin(o, key, true);

	record_end(o, at, llm_codec_append_error(&o->out, key.id, e));
}

void
llm_outbox_done(LlmOutbox *o, LlmRequestKey key, uint64_t numerics_key)
{
	size_t at = record_begin(o, key, true);

	record_end(o, at, llm_codec_append_done(&o->out, key.id, numerics_key));
}

void
llm_outbox_text(LlmOutbox *o, LlmRequestKey key, LlmStr piece)
{
	size_t at = record_begin(o, key, false);

	record_end(o, at, llm_codec_append_tokens(&o->out, key.id, piece));
}

void
llm_outbox_result(LlmOutbox *o, const LlmResult *r, bool streamed)
{
	size_t at = record_begin(o, r->key, true);

	record_end(o, at, llm_codec_append_result(&o->out, r, streamed));
}

void
llm_outbox_stats(LlmOutbox *o, LlmRequestKey key, const LlmServerStats *s, const LlmPrefixRow *rows,
				 int32_t n_rows)
{
	size_t at = record_begin(o, key, true);

	record_end(o, at, llm_server_stats_append(&o->out, key.id, s, rows, n_rows));
}
