/* tensor/block.h - block layouts of quantised weights as the GGUF file holds them (plain C; a CUDA
 * compiler reads it too). d, m are IEEE half floats. */
#ifndef LLM_TENSOR_BLOCK_H
#define LLM_TENSOR_BLOCK_H

#include <stdint.h>

#define LLM_BLOCK 32 /* elements per block, along K */

/* x = (q - 8) * d; byte j holds element j in its low nibble and element 16 + j in its high one. */
typedef struct LlmBlockQ4_0
{
	uint16_t d;
	uint8_t q[LLM_BLOCK / 2];
} LlmBlockQ4_0;

/* x = q * d + m; nibbles as in Q4_0. */
typedef struct LlmBlockQ4_1
{
	uint16_t d;
	uint16_t m;
	uint8_t q[LLM_BLOCK / 2];
} LlmBlockQ4_1;

/* x = q * d. */
typedef struct LlmBlockQ8_0
{
	uint16_t d;
	int8_t q[LLM_BLOCK];
} LlmBlockQ8_0;

#ifndef __cplusplus
_Static_assert(sizeof(LlmBlockQ4_0) == 18, "Q4_0 block");
_Static_assert(sizeof(LlmBlockQ4_1) == 20, "Q4_1 block");
_Static_assert(sizeof(LlmBlockQ8_0) == 34, "Q8_0 block");
#endif

#endif
