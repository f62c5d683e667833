/* server/main.c - the command line of llm_infer_engine. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "server/cli_bench.h"
#include "server/cli_run.h"
#include "server/server.h"
#include "wire/frame.h"

static int
usage(FILE *to, int rc)
{
	fputs("usage: llm_infer_engine COMMAND [OPTIONS]\n"
		  "\n"
		  "  serve [--fault=NAME]  serve a PostgreSQL cluster; started by its supervisor with a\n"
		  "                        listening socket, a control socket and the crash journal as\n"
		  "                        descriptors 3, 4 and 5\n"
		  "  run ...               generate from a model file; see run --help\n"
		  "  bench ...             measure a model file; see bench --help\n"
		  "  --version             print the version and the protocol\n"
		  "  --help                print this\n",
		  to);
	return rc;
}

static int
serve(int argc, char **argv)
{
	LlmServerOptions o = {LLM_FD_LISTEN, LLM_FD_CONTROL, LLM_FD_JOURNAL, NULL};
	LlmServerEnd end;
	LlmError e;

	for (int i = 0; i < argc; i++)
	{
		if (strncmp(argv[i], "--fault=", 8) != 0)
		{
			llm_log(LLM_LOG_ERROR, "unknown option: %s", argv[i]);
			return 2;
		}
		o.fault = argv[i] + 8;
	}
	if (llm_server_run(&o, &end, &e) != LLM_OK)
	{
		llm_log(LLM_LOG_ERROR, "%s", e.text);
		return 2;
	}
	/* In all other cases the engine thread still runs: nothing may be torn down under it. */
	if (end == LLM_SERVER_TERMINATED)
		return 0;
	_exit(end == LLM_SERVER_STUCK ? 0 : 1);
}

int
main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (strcmp(command, "serve") == 0)
		return serve(argc - 2, argv + 2);
	if (strcmp(command, "run") == 0)
		return llm_cli_run(argc - 1, argv + 1);
	if (strcmp(command, "bench") == 0)
		return llm_cli_bench(argc - 1, argv + 1);
	if (strcmp(command, "--version") == 0)
	{
		printf("llm_infer_engine %s (protocol %d)\n", LLM_VERSION, LLM_WIRE_VERSION);
		return 0;
	}
	if (strcmp(command, "--help") == 0)
		return usage(stdout, 0);
	return usage(stderr, 2);
}
