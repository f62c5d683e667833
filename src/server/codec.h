/*
 * server/codec.h - messages of llm.proto to and from what the engine understands.
 *
 * Nothing that a peer sends is believed: unpacking runs on a memory budget in proportion to the
 * frame, and every number is checked before the engine sees it. Encoders append one whole frame,
 * header included, and return false when memory is out (the buffer is then unchanged).
 */
#ifndef LLM_SERVER_CODEC_H
#define LLM_SERVER_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/str.h"
#include "engine/llm.h"

#include "llm.pb-c.h"

/* A frame, or NULL when the bytes are not one or need more memory than such a frame ever should.
 * Free with llm_codec_free. */
Llm__Frame *llm_codec_unpack(const uint8_t *body, size_t nbytes);
void llm_codec_free(Llm__Frame *f); /* NULL is fine */

/* Check a SUBMIT and fill r, its salt by scope; key.client, alone and deadline are the caller's. r
 * borrows the message's memory, and *lists (NULL, or malloc memory to be freed after r).
 * LLM_E_INVALID: a value out of range; LLM_E_PROTOCOL: a shape that no correct peer sends;
 * LLM_E_MEMORY. */
LlmStatus llm_codec_request(const Llm__Submit *m, Llm__PrefixScope scope, LlmRequest *r,
							void **lists, LlmError *err);

bool llm_codec_append(LlmBuf *out, const Llm__Frame *f);
/* DONE or ERROR of a request. The text is left out when it was streamed. */
bool llm_codec_append_result(LlmBuf *out, const LlmResult *r, bool streamed);
bool llm_codec_append_error(LlmBuf *out, uint64_t id, const LlmError *e);
bool llm_codec_append_tokens(LlmBuf *out, uint64_t id, LlmStr piece);
/* DONE of a LOAD, with the key of the model, or of an UNLOAD (0). */
bool llm_codec_append_done(LlmBuf *out, uint64_t id, uint64_t numerics_key);

#endif
