/*
 * model/gguf.h - GGUF version 2 and 3: key-values and tensor descriptions of a mapped file.
 *
 * Every offset, count, length and type is checked before it is used; memory stays below the file's
 * size plus a constant. Source of the format: the GGUF specification in the ggml repository
 * (docs/gguf.md).
 */
#ifndef LLM_MODEL_GGUF_H
#define LLM_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/file.h"
#include "core/status.h"
#include "core/str.h"
#include "tensor/weight.h"

typedef struct LlmGguf LlmGguf;

/* Open, map and check a whole file. dir as in llm_file_open. Errors: LLM_E_MODEL; text or detail
 * names the key or tensor that is wrong. */
LlmStatus llm_gguf_open(const char *dir, const char *path, LlmGguf **out, LlmError *err);
/* The same over bytes that the caller keeps until llm_gguf_close. */
LlmStatus llm_gguf_open_memory(const void *data, size_t nbytes, LlmGguf **out, LlmError *err);
void llm_gguf_close(LlmGguf *g);
/* What comes of reading g, opened from `path`: status, or LLM_E_MODEL when the file was not to be trusted
 * meanwhile (llm_file_check). Whoever has read asks before g is closed. */
LlmStatus llm_gguf_check(const LlmGguf *g, const char *path, LlmStatus status, LlmError *err);
/* The file, open as long as g; fd -1 when g was opened from memory. */
const LlmFile *llm_gguf_file(const LlmGguf *g);

/* Presence of a key, whatever its type. */
bool llm_gguf_has(const LlmGguf *g, const char *key);

/* Typed reads. required false: an absent key leaves *out as it is and is no error. A key of another
 * type, or a value out of the range of *out, is LLM_E_MODEL naming key and value. Integers accept
 * every integer type that holds the value. Borrowed strings live as long as g. */
LlmStatus llm_gguf_u32(const LlmGguf *g, const char *key, bool required, uint32_t *out,
					   LlmError *err);
LlmStatus llm_gguf_f32(const LlmGguf *g, const char *key, bool required, float *out, LlmError *err);
LlmStatus llm_gguf_bool(const LlmGguf *g, const char *key, bool required, bool *out, LlmError *err);
LlmStatus llm_gguf_str(const LlmGguf *g, const char *key, bool required, LlmStr *out,
					   LlmError *err);
/* Arrays: n elements into *out, which lives as long as g. */
LlmStatus llm_gguf_str_array(const LlmGguf *g, const char *key, bool required, const LlmStr **out,
							 uint64_t *n, LlmError *err);
LlmStatus llm_gguf_i32_array(const LlmGguf *g, const char *key, bool required, const int32_t **out,
							 uint64_t *n, LlmError *err);

/* The tensor of that name as a [rows, cols] view, or NULL. More than two dimensions are folded into
 * rows. A tensor whose type has no LlmDtype is found by llm_gguf_tensor_type alone. */
bool llm_gguf_tensor(const LlmGguf *g, const char *name, LlmWeightView *out);
/* GGUF type number of a tensor, -1 when there is none of that name. */
int64_t llm_gguf_tensor_type(const LlmGguf *g, const char *name);
uint64_t llm_gguf_n_tensors(const LlmGguf *g);
const char *llm_gguf_tensor_name(const LlmGguf *g, uint64_t i);
/* Number of elements of tensor i, and of all tensors: "parameters". */
uint64_t llm_gguf_tensor_n_params(const LlmGguf *g, uint64_t i);
uint64_t llm_gguf_n_params(const LlmGguf *g);
uint64_t llm_gguf_nbytes(const LlmGguf *g); /* of the file */
/* XXH3-128 over the whole file, which reads all of it: go_on (may be NULL) is called every 16 MiB
 * and says whether to. LLM_E_MEMORY, LLM_E_CANCELLED. */
LlmStatus llm_gguf_digest(const LlmGguf *g, bool (*go_on)(void *arg), void *arg, uint64_t digest[2],
						  LlmError *err);

#define LLM_GGUF_SHOW_CAP 72

/* Text of a file made fit for an error message: printable ASCII, other bytes as \xNN, cut to the
 * room with "..." at its end. Returns out. */
const char *llm_gguf_show(LlmStr s, char out[LLM_GGUF_SHOW_CAP]);

#endif
