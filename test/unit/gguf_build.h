/*
 * gguf_build.h - write GGUF files in memory for tests, well-formed ones and broken ones.
 *
 * Keys and tensors are appended to a GgufBuild; gguf_build_end joins header, key-values, tensor
 * descriptions and data. Broken files come from the raw functions, which write any length, type or
 * count, or from the fields that override what the header says.
 */
#ifndef LLM_TEST_GGUF_BUILD_H
#define LLM_TEST_GGUF_BUILD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/str.h"

#define GGUF_BUILD_ALIGNMENT 32

typedef struct GgufBuild
{
	LlmBuf kv;      /* key-values */
	LlmBuf tensors; /* descriptions */
	LlmBuf data;
	uint64_t n_kv;
	uint64_t n_tensors;
	uint32_t version_add; /* added to version 3, modulo 2^32 */
	uint64_t n_kv_add;    /* added to what the header says */
	uint64_t n_tns_add;   /* likewise */
} GgufBuild;

static inline void
gguf_put(LlmBuf *b, const void *p, size_t n)
{
	if (n > 0 && !llm_buf_append(b, p, n))
		exit(2);
}

static inline void
gguf_put_u32(LlmBuf *b, uint32_t v)
{
	gguf_put(b, &v, sizeof(v));
}

static inline void
gguf_put_u64(LlmBuf *b, uint64_t v)
{
	gguf_put(b, &v, sizeof(v));
}

static inline void
gguf_put_str(LlmBuf *b, const char *s)
{
	gguf_put_u64(b, strlen(s));
	gguf_put(b, s, strlen(s));
}

/* Key and type; the caller puts the value into b->kv. */
static inline void
gguf_key(GgufBuild *b, const char *key, uint32_t type)
{
	gguf_put_str(&b->kv, key);
	gguf_put_u32(&b->kv, type);
	b->n_kv++;
}

static inline void
gguf_key_u32(GgufBuild *b, const char *key, uint32_t v)
{
	gguf_key(b, key, 4);
	gguf_put_u32(&b->kv, v);
}

static inline void
gguf_key_f32(GgufBuild *b, const char *key, float v)
{
	gguf_key(b, key, 6);
	gguf_put(&b->kv, &v, sizeof(v));
}

static inline void
gguf_key_bool(GgufBuild *b, const char *key, uint8_t v)
{
	gguf_key(b, key, 7);
	gguf_put(&b->kv, &v, 1);
}

static inline void
gguf_key_str(GgufBuild *b, const char *key, const char *v)
{
	gguf_key(b, key, 8);
	gguf_put_str(&b->kv, v);
}

/* An array's head; the caller puts n items. */
static inline void
gguf_key_array(GgufBuild *b, const char *key, uint32_t item_type, uint64_t n)
{
	gguf_key(b, key, 9);
	gguf_put_u32(&b->kv, item_type);
	gguf_put_u64(&b->kv, n);
}

/* A tensor's description as it is told. */
static inline void
gguf_tensor_raw(GgufBuild *b, const char *name, uint32_t n_dims, const uint64_t *dims,
				uint32_t type, uint64_t offset)
{
	gguf_put_str(&b->tensors, name);
	gguf_put_u32(&b->tensors, n_dims);
	for (uint32_t i = 0; i < n_dims && i < 8; i++)
		gguf_put_u64(&b->tensors, dims[i]);
	gguf_put_u32(&b->tensors, type);
	gguf_put_u64(&b->tensors, offset);
	b->n_tensors++;
}

/* Zeroes up to the next multiple of the alignment. */
static inline void
gguf_pad(LlmBuf *b)
{
	static const char zeroes[GGUF_BUILD_ALIGNMENT];

	gguf_put(b, zeroes, (size_t) -b->len % GGUF_BUILD_ALIGNMENT);
}

/* A tensor [rows, cols] with its data; rows 0 = a vector of one dimension. */
static inline void
gguf_tensor(GgufBuild *b, const char *name, uint64_t rows, uint64_t cols, uint32_t type,
			const void *data, size_t nbytes)
{
	uint64_t dims[2] = {cols, rows};

	gguf_tensor_raw(b, name, rows == 0 ? 1 : 2, dims, type, b->data.len);
	gguf_put(&b->data, data, nbytes);
	gguf_pad(&b->data);
}

/* The file in memory that valgrind and ASan know the exact size of; frees b. */
static inline uint8_t *
gguf_build_end(GgufBuild *b, size_t *nbytes)
{
	LlmBuf f = {0};
	uint8_t *exact;

	gguf_put(&f, "GGUF", 4);
	gguf_put_u32(&f, 3 + b->version_add);
	gguf_put_u64(&f, b->n_tensors + b->n_tns_add);
	gguf_put_u64(&f, b->n_kv + b->n_kv_add);
	gguf_put(&f, b->kv.data, b->kv.len);
	gguf_put(&f, b->tensors.data, b->tensors.len);
	if (b->data.len > 0)
		gguf_pad(&f);
	gguf_put(&f, b->data.data, b->data.len);
	*nbytes = f.len;
	exact = malloc(f.len);
	if (exact == NULL)
		exit(2);
	memcpy(exact, f.data, f.len);
	llm_buf_fini(&f);
	llm_buf_fini(&b->kv);
	llm_buf_fini(&b->tensors);
	llm_buf_fini(&b->data);
	*b = (GgufBuild){0};
	return exact;
}

#endif
