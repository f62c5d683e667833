/* core/log.h - log lines of the engine; the host installs the sink, the default is stderr. */
#ifndef LLM_CORE_LOG_H
#define LLM_CORE_LOG_H

typedef enum LlmLogLevel
{
	LLM_LOG_DEBUG = 0,
	LLM_LOG_INFO = 1,
	LLM_LOG_WARNING = 2,
	LLM_LOG_ERROR = 3
} LlmLogLevel;

/* One line "LEVEL text\n" to stderr in a single write(2), cut at 1000 bytes; thread-safe. The
 * supervisor reads these lines from the engine's stderr and forwards them to the server log. Never
 * log prompts or generated text. */
void llm_log(LlmLogLevel level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Lines below this level are dropped; INFO by default. Call before threads start. */
void llm_log_set_level(LlmLogLevel level);

#endif
