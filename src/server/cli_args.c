/* server/cli_args.c - strict numbers, and errors a person can act on. */
#include "server/cli_args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* strtoll and its kin take leading blanks, and unsigned ones a minus; a value here has neither. */
static bool
starts_as_number(const char *text)
{
	return text[0] == '-' || (text[0] >= '0' && text[0] <= '9') || text[0] == '.';
}

bool
llm_cli_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	if (errno == 0 && end != text && *end == '\0' && starts_as_number(text) && *out >= min &&
		*out <= max)
		return true;
	fprintf(stderr, "%s: \"%s\" is not a whole number between %lld and %lld\n", option, text,
			(long long) min, (long long) max);
	return false;
}

bool
llm_cli_u64(const char *option, const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (errno == 0 && end != text && *end == '\0' && starts_as_number(text) && text[0] != '-')
		return true;
	fprintf(stderr, "%s: \"%s\" is not a whole number between 0 and 2^64-1\n", option, text);
	return false;
}

bool
llm_cli_float(const char *option, const char *text, double min, double max, float *out)
{
	char *end;
	double v = strtod(text, &end);

	*out = (float) v;
	if (end != text && *end == '\0' && starts_as_number(text) && v >= min && v <= max)
		return true;
	fprintf(stderr, "%s: \"%s\" is not a number between %g and %g\n", option, text, min, max);
	return false;
}

bool
llm_cli_list(const char *option, const char *text, int64_t max, LlmTokens *out)
{
	char item[24];

	for (;;)
	{
		size_t len = strcspn(text, ",");
		int64_t v;

		snprintf(item, sizeof(item), "%.*s", (int) (len < sizeof(item) ? len : sizeof(item) - 1),
				 text);
		if (!llm_cli_int(option, item, 0, max, &v))
			return false;
		if (!llm_tokens_push(out, (int32_t) v))
		{
			fprintf(stderr, "%s: out of memory\n", option);
			return false;
		}
		if (text[len] == '\0')
			return true;
		text += len + 1;
	}
}

void
llm_cli_error_print(const char *command, const LlmError *err)
{
	fprintf(stderr, "llm_infer_engine %s: %s\n", command, err->text);
	if (err->detail[0] != '\0')
		fprintf(stderr, "  %s\n", err->detail);
	if (err->hint[0] != '\0')
		fprintf(stderr, "  hint: %s\n", err->hint);
}
