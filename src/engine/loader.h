/*
 * engine/loader.h - from a model's spec to everything that a step needs; the only file that knows
 * which devices there are.
 */
#ifndef LLM_ENGINE_LOADER_H
#define LLM_ENGINE_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/file.h"
#include "core/pool.h"
#include "core/status.h"
#include "engine/llm.h"
#include "engine/think.h"
#include "kv/store.h"
#include "model/model.h"
#include "template/template.h"
#include "tensor/device.h"
#include "tokenizer/tokenizer.h"

/* A resident model with its device. Zero when nothing is loaded. */
typedef struct LlmLoaded
{
	LlmPool *pool; /* NULL for devices without threads of ours */
	LlmDevice *dev;
	LlmModel *model;
	LlmKvStore store;
	LlmTokenizer *tok;
	LlmTemplate *tmpl; /* NULL = the model has none */
	LlmThinkMarks think;
	LlmModelInfo info;     /* what llm_engine_model answers */
	float temperature;     /* the model's own default */
	int32_t max_rows;      /* of a step */
	int32_t max_seqs;      /* of a step */
	int32_t max_out;       /* output rows of a step */
	int32_t max_piece;     /* bytes of the longest token */
	const int32_t *banned; /* [n_banned + n_end] ids never picked (unused ones); then the end ids */
	int32_t n_banned;      /* without the end ids */
	int32_t n_end;         /* end ids */
	int32_t *banned_memory; /* owned */
	char *path;             /* of the file, owned; NULL = there is none */
	LlmFileId file;         /* what path named when it was loaded */
} LlmLoaded;

/* Which devices an option list ("auto", "cpu,echo") allows. */
typedef struct LlmDeviceList
{
	bool cpu;
	bool echo;
} LlmDeviceList;

typedef struct LlmLoaderArgs
{
	const LlmEngineOptions *options; /* checked by the engine */
	const LlmModelSpec *spec;
	bool all_outputs;            /* every row of a step may want logits */
	void (*progress)(void *arg); /* called now and then, by any thread */
	void *arg;
} LlmLoaderArgs;

/* LLM_E_INVALID for a name that is no device, LLM_E_UNSUPPORTED for one that is not built. */
LlmStatus llm_loader_devices(const char *list, LlmDeviceList *out, LlmError *err);

/* Everything for a model; the KV store has the pages that kv_rule.h allows. The file is closed again:
 * nothing that happens to it later reaches the model.
 *
 * A chat template that does not parse is refused, with its line; what shows only while it runs fails
 * the prompt. On failure *out is zero. */
LlmStatus llm_loader_open(const LlmLoaderArgs *a, LlmLoaded *out, LlmError *err);
void llm_loader_close(LlmLoaded *m);
/* What llm_engine_needs answers. */
LlmStatus llm_loader_needs(const LlmEngineOptions *o, const LlmModelSpec *spec, LlmModelNeeds *out,
						   LlmError *err);

/* Limits of this machine, on the threads of a loaded model or else on `threads` new ones. */
void llm_loader_measure(const LlmLoaded *m, int32_t threads, double seconds, LlmMachineLimits *out);

#endif
