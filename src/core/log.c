/* core/log.c - one write(2) per line, so that lines of several threads never mix. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void
llm_log(LlmLogLevel level, const char *fmt, ...)
{
	static const char *const names[] = {"INFO", "WARNING", "ERROR"};
	char line[1000];
	int n;
	int m;
	va_list ap;

	n = snprintf(line, sizeof(line), "%s ", names[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t) n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n += m;
	if (n > (int) sizeof(line) - 2)
		n = (int) sizeof(line) - 2;
	/* A line break out of somebody's text would begin a line of its own. */
	for (int i = 0; i < n; i++)
		if (line[i] == '\n' || line[i] == '\r')
			line[i] = ' ';
	line[n++] = '\n';
	/* A full or closed pipe loses the line; nothing better can be done with it here. */
	if (write(STDERR_FILENO, line, (size_t) n) < 0)
		return;
}
