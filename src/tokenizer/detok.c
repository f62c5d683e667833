/*
 * tokenizer/detok.c - ids to whole UTF-8 characters: bytes wait until their character is complete.
 *
 * The bytes that wait are always the valid beginning of one character. A byte that cannot continue it
 * turns them into one U+FFFD (the "maximal subpart" practice of Unicode, section 3.9) and is then
 * looked at again as a beginning.
 */
#include "tokenizer/detok.h"

#include <string.h>

static bool
push_byte(LlmDetok *d, char c, LlmBuf *out)
{
	d->wait[d->n_wait++] = c;
	if (llm_utf8_valid(d->wait, (size_t) d->n_wait))
	{
		int n = d->n_wait;

		d->n_wait = 0;
		return c == '\0' || llm_buf_append(out, d->wait, (size_t) n);
	}
	if (d->n_wait < 4 && llm_utf8_complete(d->wait, (size_t) d->n_wait) == 0)
		return true;
	if (d->n_wait == 1)
	{
		d->n_wait = 0;
		return llm_buf_append(out, "\xEF\xBF\xBD", 3);
	}
	d->n_wait = 0;
	return llm_buf_append(out, "\xEF\xBF\xBD", 3) && push_byte(d, c, out);
}

bool
llm_detok_push(LlmDetok *d, const LlmTokenizer *tok, int32_t id, bool with_control, LlmBuf *out)
{
	LlmStr s = llm_tokenizer_piece(tok, id, with_control);

	for (size_t i = 0; i < s.len; i++)
		if (!push_byte(d, s.p[i], out))
			return false;
	return true;
}

void
llm_detok_end(LlmDetok *d)
{
	d->n_wait = 0;
}
