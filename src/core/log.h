/* core/log.h - log lines of the engine, on stderr. */
#ifndef LLM_CORE_LOG_H
#define LLM_CORE_LOG_H

typedef enum LlmLogLevel
{
	LLM_LOG_INFO,
	LLM_LOG_WARNING,
	LLM_LOG_ERROR
} LlmLogLevel;

/* One line "LEVEL text\n" to stderr in a single write(2), cut at 1000 bytes; thread-safe. The
 * supervisor reads these lines from the engine's stderr and forwards them to the server log. Never
 * log prompts or generated text. */
void llm_log(LlmLogLevel level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
