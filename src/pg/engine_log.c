/* pg/engine_log.c - "LEVEL text" lines from the engine to ereport. */
#include "postgres.h"

#include "pg/engine_log.h"

#include <unistd.h>

/* One turn forwards at most this much, so that a chatty engine cannot keep the supervisor busy. */
#define FORWARD_NBYTES 32768

typedef struct LogLevel
{
	const char *word; /* with the blank after it */
	int elevel;
} LogLevel;

static const LogLevel levels[] = {
	{"DEBUG ", DEBUG1},
	{"INFO ", LOG},
	{"WARNING ", WARNING},
	{"ERROR ", WARNING},
};

void
llm_engine_log_open(LlmEngineLog *log, int fd)
{
	memset(log, 0, sizeof(*log));
	log->fd = fd;
}

void
llm_engine_log_close(LlmEngineLog *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
}

/* Lines without a level come from libraries and sanitizers. */
static void
forward_line(LlmEngineLog *log)
{
	const char *text = log->line;
	int elevel = LOG;

	log->line[log->len] = '\0';
	for (int i = 0; i < log->len; i++)
		if ((unsigned char) log->line[i] < ' ')
			log->line[i] = ' ';
	for (Size i = 0; i < lengthof(levels); i++)
	{
		Size n = strlen(levels[i].word);

		if (strncmp(log->line, levels[i].word, n) != 0)
			continue;
		elevel = levels[i].elevel;
		text = log->line + n;
		if (strcmp(levels[i].word, "ERROR ") == 0)
			strlcpy(log->last_error, text, sizeof(log->last_error));
	}
	if (*text)
		ereport(elevel, (errmsg_internal("llm_infer engine: %s", text), errhidestmt(true)));
	log->len = 0;
}

static void
take_bytes(LlmEngineLog *log, const char *p, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++)
	{
		if (p[i] == '\n')
			forward_line(log);
		else
		{
			if (log->len == LLM_ENGINE_LOG_LINE - 1)
				forward_line(log);
			log->line[log->len++] = p[i];
		}
	}
}

bool
llm_engine_log_forward(LlmEngineLog *log)
{
	char buf[4096];

	for (int done = 0; log->fd >= 0 && done < FORWARD_NBYTES; done += (int) sizeof(buf))
	{
		ssize_t n = read(log->fd, buf, sizeof(buf));

		if (n > 0)
			take_bytes(log, buf, n);
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return false;
		else if (n == 0 || errno != EINTR)
		{
			if (log->len > 0)
				forward_line(log);
			llm_engine_log_close(log);
		}
	}
	return log->fd >= 0;
}
