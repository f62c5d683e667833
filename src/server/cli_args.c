/* server/cli_args.c - options, strict numbers, and errors a person can act on. */
#include "server/cli_args.h"

#include <errno.h>
#include <getopt.h>
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

#define OPTION_BASE 256 /* above every character that getopt_long gives back by itself */

static bool
option_apply(const LlmCliOption *o, const char *text)
{
	char name[40];
	int64_t v = 0;

	snprintf(name, sizeof(name), "--%s", o->name);
	switch (o->kind)
	{
		case LLM_CLI_FLAG:
			*(bool *) o->to = true;
			return true;
		case LLM_CLI_ONOFF:
			*(bool *) o->to = strcmp(text, "on") == 0;
			if (!*(bool *) o->to && strcmp(text, "off") != 0)
			{
				fprintf(stderr, "%s: \"%s\" is neither on nor off\n", name, text);
				return false;
			}
			return true;
		case LLM_CLI_TEXT:
			*(const char **) o->to = text;
			return true;
		case LLM_CLI_I32:
			if (!llm_cli_int(name, text, (int64_t) o->min, (int64_t) o->max, &v))
				return false;
			*(int32_t *) o->to = (int32_t) v;
			return true;
		case LLM_CLI_I64:
			return llm_cli_int(name, text, (int64_t) o->min, (int64_t) o->max, o->to);
		case LLM_CLI_U64:
			return llm_cli_u64(name, text, o->to);
		case LLM_CLI_FLOAT:
			return llm_cli_float(name, text, o->min, o->max, o->to);
		case LLM_CLI_LIST:
			((LlmTokens *) o->to)->len = 0;
			return llm_cli_list(name, text, (int64_t) o->max, o->to);
	}
	return false;
}

int
llm_cli_options_read(int argc, char **argv, const LlmCliOption *table, size_t n, const char *usage)
{
	struct option longs[LLM_CLI_OPTIONS_MAX + 2] = {0};
	char text[200];
	int option;

	for (size_t i = 0; i < n; i++)
		longs[i] = (struct option){table[i].name,
								   table[i].kind == LLM_CLI_FLAG ? no_argument : required_argument,
								   NULL, OPTION_BASE + (int) i};
	longs[n] = (struct option){"help", no_argument, NULL, OPTION_BASE + (int) n};
	optind = 1;
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
	{
		if (option == OPTION_BASE + (int) n)
		{
			fputs(usage, stdout);
			return 0;
		}
		if (option == '?' || !option_apply(&table[option - OPTION_BASE], optarg))
			return LLM_CLI_USAGE_STATUS;
	}
	if (optind == argc)
		return -1;
	snprintf(text, sizeof(text), "\"%s\" is not an option", argv[optind]);
	return llm_cli_usage_error(argv[0], text);
}

int
llm_cli_usage_error(const char *command, const char *text)
{
	fprintf(stderr, "%s: %s\nTry llm_infer_engine %s --help.\n", command, text, command);
	return LLM_CLI_USAGE_STATUS;
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
