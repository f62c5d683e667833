/* tensor/weight.h - a weight as it lies in a file: borrowed, typed, with its shape. */
#ifndef LLM_TENSOR_WEIGHT_H
#define LLM_TENSOR_WEIGHT_H

#include <stdint.h>

#include "tensor/dtype.h"

/* Row-major [rows = N outputs, cols = K inputs]; a vector has rows 1. Valid while the file is
 * mapped; unaligned. */
typedef struct LlmWeightView
{
	const char *name;    /* tensor name, for errors; NUL-terminated, borrowed */
	const uint8_t *data; /* [rows * row bytes] in the file's blocks */
	int32_t rows;        /* N */
	int32_t cols;        /* K */
	LlmDtype type;
} LlmWeightView;

#endif
