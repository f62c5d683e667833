/* echo/echo_impl.h - the state of the echo device; for the files of this folder only. */
#ifndef LLM_ECHO_ECHO_IMPL_H
#define LLM_ECHO_ECHO_IMPL_H

#include "echo/echo_device.h"
#include "echo/echo_fault.h"
#include "sample/sample.h"

#define LLM_ECHO_PAGE_NBYTES ((int64_t) (LLM_PAGE_TOKENS * sizeof(int32_t)))

typedef struct LlmEchoDevice
{
	LlmDevice base;
	LlmEchoFault fault;
	LlmDeviceLimits limits;      /* all 0 until set */
	int32_t *acts;               /* [n_acts, act_cap] row numbers of the batch */
	int32_t act_cap;             /* larger of max_rows and max_out */
	int32_t n_acts;              /* used in this step */
	int32_t *tokens;             /* [max_pos] a sequence read back */
	char *text;                  /* [max_pos] its text */
	float *logits;               /* [max_out, vocab_size] */
	LlmSampler *sampler;         /* NULL until limits are set */
	int32_t *store;              /* [n_pages, 64] token ids; page 0 stays 0 */
	int32_t n_pages;             /* 0 = no store */
	LlmBatch batch;              /* of the step being recorded or run */
	LlmAct out;                  /* rows handed to sample */
	const LlmSampling *sampling; /* NULL until sample is recorded */
	int32_t slow_ms;             /* longest @slow of the step's rows */
	uint64_t step;               /* steps ended */
	LlmError error;              /* first failure of the step; code LLM_OK = none */
} LlmEchoDevice;

/* Keep the first failure of a step. */
#define LLM_ECHO_FAIL(d, ...)                                                                      \
	do                                                                                             \
	{                                                                                              \
		if ((d)->error.code == LLM_OK)                                                             \
			llm_error_set(&(d)->error, LLM_E_INTERNAL, __VA_ARGS__);                               \
	} while (0)

/* The KV entries of LlmDeviceOps. */
LlmStatus llm_echo_kv_create(LlmDevice *dev, const LlmKvGroup *groups, int n_groups,
							 int32_t n_pages, LlmError *err);
int64_t llm_echo_kv_page_nbytes(const LlmDevice *dev, const LlmKvGroup *group);
void llm_echo_kv_copy(LlmDevice *dev, int group, int32_t from, int32_t to, int32_t n_tokens);
LlmStatus llm_echo_kv_export(LlmDevice *dev, int group, const int32_t *pages, int n_pages,
							 float *out, LlmError *err);
LlmStatus llm_echo_kv_import(LlmDevice *dev, int group, const int32_t *pages, int n_pages,
							 const float *in, LlmError *err);

/* Pick or score for row r of the batch; delays and faults that its prompt asks for happen here.
 * logits [LLM_ECHO_VOCAB] come as zeros. */
void llm_echo_row_sample(LlmEchoDevice *d, int32_t r, const LlmSampleRow *row, float *logits,
						 LlmSampleOut *out);

#endif
