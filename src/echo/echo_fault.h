/* echo/echo_fault.h - faults of a whole engine, for tests of what survives it. */
#ifndef LLM_ECHO_ECHO_FAULT_H
#define LLM_ECHO_ECHO_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

/* From a list such as "slow_step=20,crash_at_step=7"; all zero = no fault. */
typedef struct LlmEchoFault
{
	bool crash_at_start; /* abort when the device is created */
	bool fail_load;      /* every load fails with LLM_E_MODEL */
	int64_t hang_at;     /* step that never returns, 1 = the first; 0 = none */
	int64_t crash_at;    /* step that aborts; 0 = none */
	int64_t slow_ms;     /* added to every step */
} LlmEchoFault;

/* text NULL or '' = no fault; LLM_E_INVALID for a fault or number that is not known. */
LlmStatus llm_echo_fault_parse(const char *text, LlmEchoFault *out, LlmError *err);

/* Called in every step with its number: sleep, hang or abort as told. */
void llm_echo_fault_step(const LlmEchoFault *f, uint64_t step);

void llm_echo_sleep(int64_t ms);
_Noreturn void llm_echo_hang(void);

#endif
