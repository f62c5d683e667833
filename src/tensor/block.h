/* tensor/block.h - block layouts of quantised weights as the GGUF file holds them (plain C; a CUDA
 * compiler reads it too). d, m are IEEE half floats. */
#ifndef LLM_TENSOR_BLOCK_H
#define LLM_TENSOR_BLOCK_H

#include <stdint.h>

#define LLM_BLOCK 32    /* elements per block, along K */
#define LLM_BLOCK_K 256 /* of the types whose name ends in _K */

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

/* x = (q - 16) * d; nibbles as in Q4_0, bit i of `high` is the fifth bit of element i. */
typedef struct LlmBlockQ5_0
{
	uint16_t d;
	uint8_t high[4];
	uint8_t q[LLM_BLOCK / 2];
} LlmBlockQ5_0;

/* x = q * d + m; quants as in Q5_0. */
typedef struct LlmBlockQ5_1
{
	uint16_t d;
	uint16_t m;
	uint8_t high[4];
	uint8_t q[LLM_BLOCK / 2];
} LlmBlockQ5_1;

/* 8 sub-blocks of 32 with 6-bit factors dd and mm: x = q * (d * dd) - m * mm. Byte j of the 32 from
 * 32 i on holds element j of sub-block 2 i in its low nibble and of 2 i + 1 in its high one. Of the
 * 12 bytes of factors, the low 6 bits of bytes 0..3 are dd of sub-blocks 0..3 and those of 4..7 mm;
 * for sub-blocks 4..7 nibbles of bytes 8..11 (low dd, high mm) stand below the 2 bits left over. */
typedef struct LlmBlockQ4_K
{
	uint16_t d;
	uint16_t m;
	uint8_t scales[12];
	uint8_t q[LLM_BLOCK_K / 2];
} LlmBlockQ4_K;

/* As Q4_K; bit s of byte j of `high` is the fifth bit of element j of sub-block s. */
typedef struct LlmBlockQ5_K
{
	uint16_t d;
	uint16_t m;
	uint8_t scales[12];
	uint8_t high[LLM_BLOCK_K / 8];
	uint8_t q[LLM_BLOCK_K / 2];
} LlmBlockQ5_K;

/* 16 sub-blocks of 16 with 8-bit factors: x = (q - 32) * d * dd. Of each 128 elements, byte j of 64
 * of `low` holds the low bits of element j (low nibble) and 64 + j (high nibble), byte j of 32 of
 * `high` two bits each of elements j, 32 + j, 64 + j and 96 + j, from the lowest up. */
typedef struct LlmBlockQ6_K
{
	uint8_t low[LLM_BLOCK_K / 2];
	uint8_t high[LLM_BLOCK_K / 4];
	int8_t scales[LLM_BLOCK_K / 16];
	uint16_t d;
} LlmBlockQ6_K;

#ifndef __cplusplus
_Static_assert(sizeof(LlmBlockQ4_0) == 18, "Q4_0 block");
_Static_assert(sizeof(LlmBlockQ4_1) == 20, "Q4_1 block");
_Static_assert(sizeof(LlmBlockQ8_0) == 34, "Q8_0 block");
_Static_assert(sizeof(LlmBlockQ5_0) == 22, "Q5_0 block");
_Static_assert(sizeof(LlmBlockQ5_1) == 24, "Q5_1 block");
_Static_assert(sizeof(LlmBlockQ4_K) == 144, "Q4_K block");
_Static_assert(sizeof(LlmBlockQ5_K) == 176, "Q5_K block");
_Static_assert(sizeof(LlmBlockQ6_K) == 210, "Q6_K block");
#endif

#endif
