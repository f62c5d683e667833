/*
 * echo/echo_sample.c - read a sequence back through its block table and say the next token.
 *
 * A row's logits are 0 but for the token that the device expects, which has LOGIT_EXPECTED: the next
 * one of the reply, or, where the next token is known, the one that was read last once more. The
 * sampler then does what it does for every model: bias, mask and bans may make another token the
 * highest, and log-probabilities are 0 for what was expected, -LOGIT_EXPECTED for all else.
 */
#include "echo/echo_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echo/echo_reply.h"

#define LOGIT_EXPECTED 100.0f

static void __attribute__((format(printf, 3, 4)))
row_fail(LlmSampleOut *out, LlmStatus status, const char *fmt, ...)
{
	va_list ap;

	out->token = -1;
	out->status = status;
	va_start(ap, fmt);
	vsnprintf(out->message, sizeof(out->message), fmt, ap);
	va_end(ap);
}

/* Name the first token from position i on that is not what history says; false. */
static bool
history_differs(const LlmEchoDevice *d, const LlmSampleRow *row, int32_t i, LlmSampleOut *out)
{
	while (d->tokens[i] == row->history[i])
		i++;
	row_fail(out, LLM_E_INTERNAL, "position %d: store holds token %d, history %d", i, d->tokens[i],
			 row->history[i]);
	return false;
}

/* The sequence of row r up to the row, read back through its table into d->tokens; false when it is
 * not what the caller's history says. */
static bool
sequence_read(LlmEchoDevice *d, int32_t r, const LlmSampleRow *row, LlmSampleOut *out)
{
	const LlmBatch *b = &d->batch;
	int32_t seq = b->row_seq[r];
	int32_t len = row->n_history;
	bool rest = row->target != NULL && b->kv_len[seq] > len; /* rows of the sequence follow */

	if (b->pos[r] != len - 1 || (b->kv_len[seq] != len && !rest) || row->n_prompt > len ||
		len > d->limits.max_pos || len > b->table_stride * LLM_PAGE_TOKENS)
	{
		row_fail(out, LLM_E_INTERNAL, "position %d: store holds %d tokens, history %d", b->pos[r],
				 b->kv_len[seq], len);
		return false;
	}
	for (int32_t i = 0; i < len; i += LLM_PAGE_TOKENS)
	{
		int32_t page = b->table[0][seq * b->table_stride + i / LLM_PAGE_TOKENS];
		size_t nbytes =
			sizeof(int32_t) * (size_t) (len - i < LLM_PAGE_TOKENS ? len - i : LLM_PAGE_TOKENS);

		if (page <= 0 || page >= d->n_pages)
		{
			row_fail(out, LLM_E_INTERNAL, "position %d lies in page %d of %d", i, page, d->n_pages);
			return false;
		}
		memcpy(d->tokens + i, d->store + (int64_t) page * LLM_PAGE_TOKENS, nbytes);
		if (memcmp(d->tokens + i, row->history + i, nbytes) != 0)
			return history_differs(d, row, i, out);
	}
	return true;
}

static bool
may_end(const LlmSampleRow *row)
{
	if (row->mask != NULL && (row->mask[LLM_ECHO_EOS / 32] >> (LLM_ECHO_EOS % 32) & 1) == 0)
		return false;
	for (int32_t i = 0; i < row->n_banned; i++)
		if (row->banned[i] == LLM_ECHO_EOS)
			return false;
	return true;
}

/* Faults that the prompt asks for at its first token. */
static void
reply_faults(const LlmEchoReply *reply)
{
	if (reply->delay_ms > 0)
		llm_echo_sleep(reply->delay_ms);
	if (reply->hang)
		llm_echo_hang();
	if (reply->crash)
		abort();
}

/* The token that comes next in the reply; -1 when the row fails instead. */
static int32_t
reply_next(LlmEchoDevice *d, const LlmSampleRow *row, LlmSampleOut *out)
{
	LlmEchoReply reply;
	int32_t i = row->n_history - row->n_prompt;

	llm_echo_reply_parse(d->tokens, row->n_prompt, row->p.seed, d->text, &reply);
	if (i == 0)
		reply_faults(&reply);
	if (reply.slow_ms > d->slow_ms)
		d->slow_ms = reply.slow_ms;
	if (reply.status != LLM_OK)
		row_fail(out, reply.status, "%s", reply.message);
	else if (reply.nan)
		row_fail(out, LLM_E_INTERNAL, "logits are not finite");
	else
		return llm_echo_reply_token(&reply, i, !may_end(row));
	return -1;
}

void
llm_echo_row_sample(LlmEchoDevice *d, int32_t r, const LlmSampleRow *row, float *logits,
					LlmSampleOut *out)
{
	LlmSampleRow greedy = *row;
	int32_t expected;

	if (!sequence_read(d, r, row, out))
		return;
	expected = row->target != NULL ? d->tokens[row->n_history - 1] : reply_next(d, row, out);
	if (expected < 0)
		return;
	logits[expected] = LOGIT_EXPECTED;
	greedy.p = (LlmSampleParams){.top_p = 1.0f, .repetition_penalty = 1.0f};
	llm_sampler_pick(d->sampler, logits, &greedy, out);
}
