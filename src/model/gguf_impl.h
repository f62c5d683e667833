/* model/gguf_impl.h - what an opened GGUF file is made of; for the gguf_*.c files only. */
#ifndef LLM_MODEL_GGUF_IMPL_H
#define LLM_MODEL_GGUF_IMPL_H

#include "core/file.h"
#include "core/mem.h"
#include "model/gguf.h"

/* Value types, by the numbers in the file. */
enum
{
	LLM_GGUF_U8 = 0,
	LLM_GGUF_I8 = 1,
	LLM_GGUF_U16 = 2,
	LLM_GGUF_I16 = 3,
	LLM_GGUF_U32 = 4,
	LLM_GGUF_I32 = 5,
	LLM_GGUF_F32 = 6,
	LLM_GGUF_BOOL = 7,
	LLM_GGUF_STR = 8,
	LLM_GGUF_ARRAY = 9,
	LLM_GGUF_U64 = 10,
	LLM_GGUF_I64 = 11,
	LLM_GGUF_F64 = 12,
	LLM_GGUF_N_TYPES = 13
};

/* A key and where its value lies. The extent has been checked: a reader may trust n and nbytes. */
typedef struct LlmGgufKv
{
	LlmStr key;           /* first, so that a sorted index of names finds the record */
	uint32_t type;        /* LLM_GGUF_* */
	uint32_t item_type;   /* of an array */
	uint64_t n;           /* items of an array */
	const uint8_t *value; /* [nbytes] in the file, unaligned: scalar, text, or items of an array */
	size_t nbytes;
	void *decoded; /* [n] array already handed out, in the arena; NULL until it is asked for */
} LlmGgufKv;

/* A tensor; data is inside the file when the type has an LlmDtype. */
typedef struct LlmGgufTensor
{
	LlmStr name;         /* first; NUL-terminated copy in the arena */
	uint32_t type;       /* GGUF number */
	int32_t rows;        /* product of all dimensions but the first */
	int32_t cols;        /* first dimension */
	uint64_t offset;     /* within the data section */
	const uint8_t *data; /* NULL when the type has no LlmDtype */
} LlmGgufTensor;

struct LlmGguf
{
	LlmFile file;        /* fd -1 when opened from memory */
	const uint8_t *data; /* [len] the whole file, borrowed from file or from the caller */
	size_t len;
	LlmArena arena_memory;
	LlmArena *arena;     /* &arena_memory: array reads of a const file add to it */
	LlmGgufKv *kv;       /* [n_kv] in file order */
	const LlmStr **keys; /* [n_kv] sorted; each the first member of its LlmGgufKv */
	uint64_t n_kv;
	LlmGgufTensor *tensors; /* [n_tensors] in file order */
	const LlmStr **names;   /* [n_tensors] sorted; each the first member of its LlmGgufTensor */
	uint64_t n_tensors;
	uint64_t n_params;
	uint64_t alignment; /* of the data section and of every tensor in it */
};

/* Bytes of a scalar type; 0 for strings, arrays and unknown types. */
size_t llm_gguf_scalar_nbytes(uint32_t type);

/* The record whose first member is `name`, found in a sorted index; NULL when there is none. */
const LlmStr *llm_gguf_find(const LlmStr *const *index, uint64_t n, LlmStr name);

/* Sort an index; a name that stands in it twice is LLM_E_MODEL, told as a `what`. */
LlmStatus llm_gguf_index_sort(const LlmStr **index, uint64_t n, const char *what, LlmError *err);

/* NULL when there is no such key. Not const: a decoded array is remembered in it. */
LlmGgufKv *llm_gguf_find_kv(const LlmGguf *g, const char *key);

#endif
