/*
 * echo/echo_device.h - a device without a model, for tests.
 *
 * Its KV store holds token ids, and `sample` reads the sequence back through the block table: a wrong
 * page, slot or length shows as a wrong reply. Directives at the start of the prompt steer it; they
 * are words that begin with @ and are not part of the reply:
 *   @delay=MS      sleep before the first token      @error=TEXT  the row fails with TEXT
 *   @nan           the row fails as NaN logits do    @crash       abort()
 *   @slow=MS       each token takes MS, slept once per step for all rows: a long request that
 *                  blocks nobody
 *   @hang          never return                      @tokens=N    repeat the reply up to N bytes
 *   @seed          the reply is the row's seed
 * The reply is the text of the prompt's last user turn (of the whole prompt when it has no turns),
 * without directives, then the end token; where the end token may not be picked, the reply again. A
 * reply's token that may not be picked is replaced by the highest that may: see echo_sample.c.
 */
#ifndef LLM_ECHO_ECHO_DEVICE_H
#define LLM_ECHO_ECHO_DEVICE_H

#include "tensor/device.h"

/* Ids 0..255 are bytes; then the control tokens of the built-in vocabulary. */
enum
{
	LLM_ECHO_BOS = 256,
	LLM_ECHO_EOS = 257,
	LLM_ECHO_TURN = 258, /* "<|im_start|>" */
	LLM_ECHO_VOCAB = 320 /* padded; ids above the last control token are unused */
};

/* fault: NULL or a per-engine fault for tests ("crash_at_start", "hang_at_step=N", ...); unknown
 * ones are LLM_E_INVALID. */
LlmStatus llm_echo_device_create(const char *fault, LlmDevice **out, LlmError *err);

#endif
