/*
 * engine/llm.h - the whole machine behind one header.
 *
 * An LlmEngine owns the devices, one resident model, its KV pages and every request. It is a plain
 * object without threads of its own (compute threads aside): one thread creates it, submits, steps,
 * cancels and frees it. Nothing blocks but llm_engine_step, which runs one step of the model.
 *
 *     create -> load -> { submit | cancel | step }* -> unload -> ... -> free
 *
 * Results come through the callbacks of LlmEngineEvents, called from inside submit, cancel, unload
 * and step on the calling thread; what they are handed is borrowed for the call. A callback must not
 * call the engine.
 *
 * Request states: waiting -> running (prefill, decode) -> done; preempted goes back to waiting. A
 * request ends exactly once: by `done`, with a result or an error. After llm_engine_cancel it ends
 * at once and its pages go back when no submitted step refers to them.
 *
 * Requests that would give the same answer (equal in all but who asks, until when and how urgently,
 * and greedy or of one seed) are generated once while the first of them is in flight; each has its
 * own `text` and `done`, and can be cancelled or time out without the others noticing.
 */
#ifndef LLM_ENGINE_LLM_H
#define LLM_ENGINE_LLM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"
#include "core/str.h"
#include "tensor/kv_spec.h"
#include "tensor/limits.h"
#include "tensor/sampling.h"

typedef struct LlmEngine LlmEngine;

/* ---- requests ---- */

typedef enum LlmRequestKind
{
	LLM_REQUEST_GENERATE = 0,
	LLM_REQUEST_TOKENIZE = 1,   /* text -> ids; answered inside submit */
	LLM_REQUEST_DETOKENIZE = 2, /* ids -> text; answered inside submit */
	LLM_REQUEST_SCORE = 3,      /* LLM_E_UNSUPPORTED for now */
	LLM_REQUEST_POOL = 4,       /* LLM_E_UNSUPPORTED for now */
	LLM_REQUEST_PIN = 5,  /* compute the pages of a prompt's beginning and keep them; see below */
	LLM_REQUEST_UNPIN = 6 /* let them be evicted again; answered inside submit */
} LlmRequestKind;

/*
 * PIN and UNPIN name a beginning of prompts: the text as the user's message, up to where what
 * follows it may change the tokens. Its pages stay cached until they are unpinned or the model is
 * unloaded; a hint that never changes an answer. At most half of the pool can be pinned
 * (LLM_E_KV_MEMORY with the numbers). Pinning twice is pinning once; an UNPIN of what is not pinned
 * is LLM_E_INVALID. The answer's prompt_tokens is the number of tokens that are pinned.
 */

typedef enum LlmTruncate
{
	LLM_TRUNCATE_ERROR = 0, /* a prompt over the context is LLM_E_CONTEXT */
	LLM_TRUNCATE_LEFT = 1,  /* drop the first tokens */
	LLM_TRUNCATE_RIGHT = 2  /* drop the last tokens */
} LlmTruncate;

typedef enum LlmFinish
{
	LLM_FINISH_STOP = 0,   /* end token or stop string */
	LLM_FINISH_LENGTH = 1, /* max_tokens or the context */
	LLM_FINISH_CANCELLED = 2,
	LLM_FINISH_ERROR = 3
} LlmFinish;

/* What a model that can think is asked to do; a template sees it as enable_thinking (and thinking)
 * and, for a level, reasoning_effort. */
typedef enum LlmReasoning
{
	LLM_REASONING_DEFAULT = 0, /* the template's own */
	LLM_REASONING_OFF = 1,
	LLM_REASONING_ON = 2,
	LLM_REASONING_LOW = 3,
	LLM_REASONING_MEDIUM = 4,
	LLM_REASONING_HIGH = 5
} LlmReasoning;

/* One message of a conversation. */
typedef struct LlmChatMessage
{
	LlmStr role; /* "system", "user" or "assistant" */
	LlmStr content;
} LlmChatMessage;

#define LLM_MESSAGES_MAX 4096
#define LLM_TOKEN_LIST_MAX 4096 /* allowed, forbidden or biased tokens of a request */
#define LLM_STOPS_MAX 16
#define LLM_STOP_NBYTES_MAX 1024
#define LLM_MAX_TOKENS_REST (-1) /* up to the room left in the context */

/* Who asked: requests are known by (client, id); a tenant's clients share fairly. */
typedef struct LlmRequestKey
{
	uint64_t client; /* connection */
	uint64_t id;     /* unique within the client */
} LlmRequestKey;

/* Everything borrowed for the call of llm_engine_submit. */
typedef struct LlmRequest
{
	LlmRequestKey key;
	LlmRequestKind kind;
	LlmStr prompt;         /* UTF-8 text of GENERATE, TOKENIZE, SCORE, POOL */
	LlmStr system;         /* p NULL = none, so that the template may have its own */
	const int32_t *tokens; /* [n_tokens] of DETOKENIZE */
	int32_t n_tokens;
	LlmSampleParams sample;      /* temperature < 0 = the model's own, else 0.7 */
	int32_t max_tokens;          /* >= 0, or LLM_MAX_TOKENS_REST */
	LlmStr stops[LLM_STOPS_MAX]; /* [n_stops] each 1 .. LLM_STOP_NBYTES_MAX bytes */
	int32_t n_stops;
	LlmTruncate truncate;
	bool raw;           /* no template: the text as it is (with BOS when the model adds it) */
	bool ignore_eos;    /* end tokens are not picked */
	bool stream;        /* `text` is called per piece; otherwise `done` has it all */
	bool alone;         /* run with no other request in the batch (crash suspects) */
	int32_t timeout_ms; /* from submit to done, 0 = none: LLM_E_TIMEOUT */
	int32_t priority;   /* higher first among waiting requests of all clients */
	uint64_t salt;      /* set by the server: what may share cached prefixes */
	uint64_t tenant;    /* set by the server: who pays; fair shares go over tenants, then clients */
	const LlmChatMessage *messages; /* NULL, or [n_messages] instead of prompt and system */
	int32_t n_messages;
	LlmReasoning reasoning;
	LlmStr template_kwargs;   /* p NULL, or a JSON object of further template variables */
	const LlmTokenBias *bias; /* [n_bias] ids of the vocabulary, each once */
	int32_t n_bias;
	const int32_t *allowed; /* [n_allowed] only these are picked; none = all */
	int32_t n_allowed;
	const int32_t *forbidden; /* [n_forbidden] never picked */
	int32_t n_forbidden;
	const int32_t *stop_tokens; /* [n_stop_tokens] end the answer as an end token does */
	int32_t n_stop_tokens;
	int32_t min_tokens;   /* end and stop tokens are not picked before; a stop string that is
							 complete before the min_tokens-th token is text */
	bool logprobs;        /* of the picked tokens */
	bool prompt_logprobs; /* of the prompt's, also with max_tokens 0; cached pages are not read */
	int32_t n_top;        /* likeliest tokens beside each logprob, 0 .. 20 */
} LlmRequest;

typedef struct LlmResult
{
	LlmRequestKey key;
	LlmStatus status;      /* LLM_OK, or why there is no result: see error */
	const LlmError *error; /* NULL when status is LLM_OK */
	LlmStr text;           /* whole UTF-8 characters; all of it, also when streamed */
	const int32_t *tokens; /* [n_tokens] of TOKENIZE */
	int32_t n_tokens;
	LlmFinish finish;
	int32_t prompt_tokens;
	int32_t cached_tokens; /* of prompt_tokens, read from the prefix cache; all of them when another
							* request in flight gave the answer */
	int32_t completion_tokens;
	const int32_t *generated; /* [completion_tokens] ids picked, the end token included */
	LlmStr reasoning;         /* what a thinking model wrote before its answer; p NULL = none */
	int32_t n_top;            /* of the request */
	const LlmLogprob
		*logprobs; /* NULL, or [completion_tokens][1 + n_top]: picked, then likeliest */
	const LlmLogprob
		*prompt_logprobs;  /* NULL, or [prompt_tokens][1 + n_top]; the first token, which
										  nothing precedes, has token id and NaN, then -1 */
	double queue_ms;       /* submit to first step; 0 also when it shared one that had begun */
	double first_token_ms; /* submit to first token, 0 = none; 0 also when it was there already */
	double total_ms;       /* submit to done */
	uint64_t numerics_key; /* build, device kind, ISA, model file, KV type (rule R1) */
	bool dated;            /* the chat template asked for the time: no function of the request */
	/* The bytes that a token stands for, perhaps part of a character; control tokens show their name.
	 * Empty for what is no token. */
	LlmStr (*token_text)(const void *vocabulary, int32_t token);
	const void *vocabulary;
} LlmResult;

typedef struct LlmEngineEvents
{
	void *arg;
	/* A piece of text of a streaming request, whole characters. */
	void (*text)(void *arg, LlmRequestKey key, LlmStr piece);
	/* The end of a request. */
	void (*done)(void *arg, const LlmResult *result);
	/* The set of requests in the batch is about to change: it is called before a step with the keys
	 * that will run in it, so that a crash can be blamed. Of those who asked the same, one is named;
	 * another when that one has left. */
	void (*step)(void *arg, const LlmRequestKey *keys, int32_t n);
} LlmEngineEvents;

/* ---- life ---- */

typedef struct LlmEngineOptions
{
	const char *devices;      /* "auto", "cpu", "echo", or a list "cpu,echo" */
	const char *isa;          /* NULL = best; for tests */
	const char *model_dir;    /* NULL = paths are the caller's own (command line) */
	const char *fault;        /* NULL, or a fault for the echo device */
	int32_t threads;          /* 0 = physical cores */
	int64_t kv_nbytes;        /* 0 = by the rule of kv_rule.h */
	int64_t memory_limit;     /* of all models together, for that rule; 0 = none */
	int64_t memory_left;      /* of memory_limit, for this one; counts when a limit is set */
	int32_t max_batch_tokens; /* rows in a step, 1 .. 8192; default 512 */
	int32_t max_running;      /* sequences in a step, 1 .. 1024; default 64 */
	bool prefix_cache;        /* default true: compute a prefix that requests share once */
	bool single_flight;       /* default true: identical requests in flight are generated once */
	int32_t idle_pages;       /* 0 = by the KV memory; benches: kept though nobody uses them */
	uint32_t preempt_every;   /* 0 = never; tests: preempt a random request every n steps */
} LlmEngineOptions;

LlmEngineOptions llm_engine_options_default(void);
LlmStatus llm_engine_create(const LlmEngineOptions *o, LlmEngineEvents events, LlmEngine **out,
							LlmError *err);
void llm_engine_free(LlmEngine *e);
/* Change max_batch_tokens, max_running, prefix_cache and single_flight; memory and threads at the
 * next load. */
LlmStatus llm_engine_settings(LlmEngine *e, const LlmEngineOptions *o, LlmError *err);

/* ---- models ---- */

/* What a user can say about a model; equal specs mean the same model. */
typedef struct LlmModelSpec
{
	const char *path;          /* GGUF file below model_dir, or "echo:" */
	const char *chat_template; /* NULL = the file's own */
	int32_t context_length;    /* 0 = the model's own */
	const char *kv_type;       /* "f16" (default, also for NULL), "f32" or "int8" */
} LlmModelSpec;

typedef struct LlmModelInfo
{
	char arch[32];
	char quantization[16];
	char isa[32];
	char device[32];
	int64_t n_params;
	int64_t nbytes;         /* of the file */
	int64_t device_nbytes;  /* weights on the device */
	int32_t context_length; /* in force: smaller of model's and spec's */
	int32_t kv_nbytes_per_token;
	int32_t vocab_size;
	bool has_template;
	int64_t kv_pages; /* of 64 tokens, in the pool */
	int64_t kv_page_nbytes;
	char kv_rule[120]; /* why that many, in words: for the log and llm.stat_engine */
	uint64_t numerics_key;
	uint64_t digest[2]; /* XXH3-128 of the file */
} LlmModelInfo;

/* Memory that a load takes: the size of the file stands for that of the weights. */
typedef struct LlmModelNeeds
{
	int64_t weight_nbytes;
	int64_t kv_nbytes;     /* by the rule, had it all of memory_limit for itself */
	int64_t kv_nbytes_min; /* the least that is worth a load */
} LlmModelNeeds;

/* What a load of spec would take; reads the head of the file alone. Errors as those of a load. */
LlmStatus llm_engine_needs(const LlmEngineOptions *o, const LlmModelSpec *spec, LlmModelNeeds *out,
						   LlmError *err);

/* Make spec the resident model. Refused with LLM_E_BUSY while requests are unfinished. Long; the
 * progress counter moves meanwhile. On failure no model is resident. */
LlmStatus llm_engine_load(LlmEngine *e, const LlmModelSpec *spec, LlmError *err);
/* Forget the model; requests still there end with LLM_E_CANCELLED. */
void llm_engine_unload(LlmEngine *e);
/* False when no model is resident. */
bool llm_engine_model(const LlmEngine *e, LlmModelInfo *out);
/* True when the resident model's file is gone, or another one is in its place. Asks the file system. */
bool llm_engine_file_changed(const LlmEngine *e);

/* ---- work ---- */

/* Render, tokenise, check that it can ever fit, queue. An error here is the request's end: `done`
 * is not called. Needs a resident model. */
LlmStatus llm_engine_submit(LlmEngine *e, const LlmRequest *r, LlmError *err);
/* Idempotent; unknown keys are ignored. `done` is not called for a cancelled request. */
void llm_engine_cancel(LlmEngine *e, LlmRequestKey key);
void llm_engine_cancel_client(LlmEngine *e, uint64_t client);
/* Run one step when there is work. *idle = nothing is waiting or running. A failure is the device's:
 * every running request has then ended with it. */
LlmStatus llm_engine_step(LlmEngine *e, bool *idle, LlmError *err);

/* ---- watching ---- */

typedef struct LlmEngineStats
{
	int64_t steps;
	int64_t prompt_tokens;
	int64_t cached_tokens;
	int64_t generated_tokens;
	int64_t preemptions;
	int64_t requests; /* ended, in whatever way */
	int64_t errors;   /* of them with an error */
	int64_t kv_pages_total;
	int64_t kv_pages_free;
	int64_t kv_pages_cached;
	int64_t shared; /* requests that were answered by an identical one in flight */
	int64_t copied; /* tokens of cached_tokens that were copied out of a block */
	int32_t running;
	int32_t waiting;
	int32_t threads;
	int32_t threads_used; /* by the last step; fewer while other processes have the cores */
} LlmEngineStats;

void llm_engine_stats(const LlmEngine *e, LlmEngineStats *out);

/* Up to n salts of the prefix cache, most blocks first; returns how many. */
int32_t llm_engine_prefix_stats(const LlmEngine *e, LlmPrefixStat *out, int32_t n);
/* Counter that moves with every step and with load progress; safe from any thread (watchdog). */
uint64_t llm_engine_progress(const LlmEngine *e);
/* True when free + cached + referenced pages = total and no request holds a page it should not. */
bool llm_engine_audit(const LlmEngine *e, LlmError *err);

/* ---- for tests and benchmarks ---- */

/* Called after each step with the logits of every output row, in step order. */
typedef void (*LlmLogitsHook)(void *arg, LlmRequestKey key, int32_t position, const float *logits,
							  int32_t vocab_size);
/* all_positions: prompt rows give logits as well, but for those found in the prefix cache. */
void llm_engine_logits_hook(LlmEngine *e, LlmLogitsHook hook, void *arg, bool all_positions);
/* Feed these ids as the prompt of the next submit instead of its text (teacher forcing, golden
 * prompts). Borrowed until that submit returns. */
void llm_engine_force_prompt(LlmEngine *e, const int32_t *ids, int32_t n);

/* One row per op kind of the device. */
typedef struct LlmEngineOpStat
{
	char name[24];
	int64_t calls;
	double seconds; /* 0 unless times are measured */
	double waited;  /* of seconds, by the mean thread for the others */
	double nbytes;  /* weights and KV read */
	double ops;     /* multiply-adds counted as two */
} LlmEngineOpStat;
/* Returns the number of rows, 0 when the device measures nothing. */
int llm_engine_op_stats(LlmEngine *e, LlmEngineOpStat *out, int n, bool reset);
/* Measure times as well, from the next step on; needs a resident model. */
void llm_engine_op_times(LlmEngine *e, bool on);

/* What this machine can do, measured now over about `seconds`; with as much memory as the weights
 * take, if there is twice that. */
void llm_engine_measure(LlmEngine *e, double seconds, LlmMachineLimits *out);

#endif
