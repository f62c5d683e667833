/* tensor/limits.h - what a machine can do at best, as measured: what fractions in benchmarks refer
 * to. */
#ifndef LLM_TENSOR_LIMITS_H
#define LLM_TENSOR_LIMITS_H

/* Of many short runs; 0 when the machine cannot do it. */
typedef struct LlmLimit
{
	double best;
	double median;
} LlmLimit;

/* Bytes/s, and operations/s where a multiply-add counts as two; all threads unless said. */
typedef struct LlmMachineLimits
{
	LlmLimit read_one;     /* reads in order that fetch ahead, one thread */
	LlmLimit read_all;     /* the same, each thread its part */
	LlmLimit read_weights; /* the same of as many bytes as a model's weights, if these are more */
	LlmLimit int8_ops;     /* the int8 vector instruction of the best products */
	LlmLimit amx_ops;      /* int8 products of AMX tiles */
	LlmLimit f32_ops;
} LlmMachineLimits;

#endif
