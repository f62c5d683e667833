/* echo/echo_fault.c - parse and commit the faults that tests ask for. */
#include "echo/echo_fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/str.h"

#define NUMBER_MAX 1000000000

/* "name=N" with N in 1 .. NUMBER_MAX into *out. */
static bool
number_match(LlmStr word, const char *name, int64_t *out)
{
	size_t len = strlen(name);
	int64_t v = 0;

	if (word.len <= len + 1 || word.len > len + 11 || memcmp(word.p, name, len) != 0 ||
		word.p[len] != '=')
		return false;
	for (size_t i = len + 1; i < word.len; i++)
	{
		if (word.p[i] < '0' || word.p[i] > '9')
			return false;
		v = v * 10 + (word.p[i] - '0');
	}
	*out = v;
	return v >= 1 && v <= NUMBER_MAX;
}

LlmStatus
llm_echo_fault_parse(const char *text, LlmEchoFault *out, LlmError *err)
{
	LlmStr rest = llm_str(text);

	memset(out, 0, sizeof(*out));
	while (rest.len > 0)
	{
		const char *comma = memchr(rest.p, ',', rest.len);
		LlmStr word = {rest.p, comma == NULL ? rest.len : (size_t) (comma - rest.p)};
		size_t used = word.len + (comma != NULL);

		if (llm_str_eq(word, "crash_at_start"))
			out->crash_at_start = true;
		else if (llm_str_eq(word, "fail_load"))
			out->fail_load = true;
		else if (!number_match(word, "hang_at_step", &out->hang_at) &&
				 !number_match(word, "crash_at_step", &out->crash_at) &&
				 !number_match(word, "slow_step", &out->slow_ms))
		{
			llm_error_set(err, LLM_E_INVALID, "unknown fault \"%.*s\"", (int) word.len, word.p);
			llm_error_hint(err, "Faults: crash_at_start, fail_load, hang_at_step=N, "
								"crash_at_step=N, slow_step=MS.");
			return LLM_E_INVALID;
		}
		rest.p += used;
		rest.len -= used;
	}
	return LLM_OK;
}

void
llm_echo_fault_step(const LlmEchoFault *f, uint64_t step)
{
	if (f->slow_ms > 0)
		llm_echo_sleep(f->slow_ms);
	if (f->hang_at > 0 && step == (uint64_t) f->hang_at)
		llm_echo_hang();
	if (f->crash_at > 0 && step == (uint64_t) f->crash_at)
		abort();
}

void
llm_echo_sleep(int64_t ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&t, &t) != 0 && errno == EINTR)
		continue;
}

void
llm_echo_hang(void)
{
	for (;;)
		pause();
}
