/*
 * model/gguf.c - read the header of a GGUF file and refuse whatever does not add up.
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_kv
 *     n_kv      x { string key | u32 type | value }
 *     n_tensors x { string name | u32 n_dims | u64 dim[n_dims] | u32 type | u64 offset }
 *     zeroes up to the alignment | data, each tensor at a multiple of the alignment
 *
 * string = u64 length | bytes; array = u32 item type | u64 n | items. Little-endian.
 *
 * The file is a stranger's. Three rules keep reading it harmless:
 *   - A length is compared with the bytes left (LlmCursor) before anything is read by it.
 *   - A count is compared with the bytes left, divided by the least size of an item, and with a cap,
 *     before anything is allocated by it. The caps make the memory of records and decoded arrays a
 *     constant, whatever the file says; the rest is the mapping.
 *   - A dimension is at least 1, and products are taken with an overflow check.
 * After llm_gguf_open every extent has been checked, and the accessors do no checks of that kind.
 *
 * Source of the format: docs/gguf.md in the ggml repository.
 */
#include "model/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h> /* the same functions for the widest vectors that the CPU has */
#else
#include <xxhash.h>
#endif

#include "model/gguf_impl.h"

#define VERSION_MIN 2
#define VERSION_MAX 3
#define N_KV_MAX 65536
#define N_TENSORS_MAX 65536
#define KV_NBYTES_MIN 14     /* length, 1 byte of key, type, 1 byte of value */
#define TENSOR_NBYTES_MIN 33 /* length, 1 byte of name, n_dims, 1 dimension, type, offset */
#define ARRAY_NBYTES_MIN 12  /* item type, count */
#define KEY_NBYTES_MAX 65535
#define NAME_NBYTES_MAX 255
#define N_DIMS_MAX 4
#define ARRAY_DEPTH_MAX 4
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MIN 8
#define ALIGNMENT_MAX (1u << 20)
#define DIGEST_CHUNK ((size_t) 16 << 20)

/* What the parsing functions hand around. */
typedef struct Parser
{
	LlmGguf *g;
	LlmCursor c;
	LlmError *err;
} Parser;

size_t
llm_gguf_scalar_nbytes(uint32_t type)
{
	static const uint8_t nbytes[LLM_GGUF_N_TYPES] = {
		[LLM_GGUF_U8] = 1,  [LLM_GGUF_I8] = 1,  [LLM_GGUF_U16] = 2, [LLM_GGUF_I16] = 2,
		[LLM_GGUF_U32] = 4, [LLM_GGUF_I32] = 4, [LLM_GGUF_F32] = 4, [LLM_GGUF_BOOL] = 1,
		[LLM_GGUF_U64] = 8, [LLM_GGUF_I64] = 8, [LLM_GGUF_F64] = 8,
	};

	return type < LLM_GGUF_N_TYPES ? nbytes[type] : 0;
}

/* ---- names ---- */

/* A key or a tensor's name: 1 .. max bytes of UTF-8 without NUL. `what` and i (from 0) of n name
 * the record in errors, as there is no better name yet. */
static LlmStatus
name_read(Parser *p, uint64_t max, const char *what, uint64_t i, uint64_t n, LlmStr *out)
{
	uint64_t len = llm_cursor_u64(&p->c);
	char show[LLM_GGUF_SHOW_CAP];

	if (p->c.bad)
		return llm_error_set(p->err, LLM_E_MODEL, "file ends before %s %" PRIu64 " of %" PRIu64,
							 what, i + 1, n);
	if (len == 0)
		return llm_error_set(p->err, LLM_E_MODEL, "%s %" PRIu64 " of %" PRIu64 " has an empty name",
							 what, i + 1, n);
	if (len > max || len > p->c.left)
		return llm_error_set(p->err, LLM_E_MODEL,
							 "%s %" PRIu64 " of %" PRIu64 " has a name of %" PRIu64
							 " bytes; %zu are left in the file and %" PRIu64 " allowed",
							 what, i + 1, n, len, p->c.left, max);
	out->len = (size_t) len;
	out->p = (const char *) llm_cursor_bytes(&p->c, len);
	if (memchr(out->p, 0, out->len) != NULL || !llm_utf8_valid(out->p, out->len))
		return llm_error_set(p->err, LLM_E_MODEL, "%s \"%s\" has a name that is not valid text",
							 what, llm_gguf_show(*out, show));
	return LLM_OK;
}

/* ---- values ---- */

static LlmStatus
value_error(Parser *p, const LlmGgufKv *kv, const char *what, uint64_t number)
{
	char show[LLM_GGUF_SHOW_CAP];

	return llm_error_set(p->err, LLM_E_MODEL, "key \"%s\": %s %" PRIu64,
						 llm_gguf_show(kv->key, show), what, number);
}

/* A value that is longer than the rest of the file. */
static LlmStatus
value_overrun(Parser *p, const LlmGgufKv *kv, const char *what, uint64_t number)
{
	size_t left = p->c.left;

	value_error(p, kv, what, number);
	llm_error_detail(p->err, "The value runs over the end of the file: %zu bytes are left.", left);
	return LLM_E_MODEL;
}

/* Step over n items of an array; depth counts the arrays around them. */
static LlmStatus
items_skip(Parser *p, const LlmGgufKv *kv, uint32_t type, uint64_t n, int depth)
{
	size_t nbytes = llm_gguf_scalar_nbytes(type);
	LlmStatus status = LLM_OK;

	if (nbytes > 0)
	{
		if (n > p->c.left / nbytes)
			return value_overrun(p, kv, "array is cut short, length", n);
		llm_cursor_bytes(&p->c, n * nbytes);
		return LLM_OK;
	}
	if (type == LLM_GGUF_STR)
	{
		if (n > p->c.left / sizeof(uint64_t))
			return value_overrun(p, kv, "array is cut short, length", n);
		for (uint64_t i = 0; i < n; i++)
		{
			llm_cursor_bytes(&p->c, llm_cursor_u64(&p->c));
			if (p->c.bad)
				return value_overrun(p, kv, "array is cut short at item", i);
		}
		return LLM_OK;
	}
	if (type != LLM_GGUF_ARRAY)
		return value_error(p, kv, "array of unknown type", type);
	if (depth >= ARRAY_DEPTH_MAX)
		return value_error(p, kv, "arrays are nested deeper than", ARRAY_DEPTH_MAX);
	if (n > p->c.left / ARRAY_NBYTES_MIN)
		return value_overrun(p, kv, "array is cut short, length", n);
	for (uint64_t i = 0; i < n && status == LLM_OK; i++)
	{
		uint32_t item_type = llm_cursor_u32(&p->c);
		uint64_t n_items = llm_cursor_u64(&p->c);

		if (p->c.bad)
			return value_overrun(p, kv, "array is cut short at item", i);
		status = items_skip(p, kv, item_type, n_items, depth + 1);
	}
	return status;
}

/* Read a value's extent. */
static LlmStatus
value_read(Parser *p, LlmGgufKv *kv)
{
	size_t nbytes = llm_gguf_scalar_nbytes(kv->type);
	uint64_t len;

	if (nbytes > 0)
	{
		kv->value = llm_cursor_bytes(&p->c, nbytes);
		kv->nbytes = nbytes;
		if (kv->value == NULL)
			return value_overrun(p, kv, "value is cut short, bytes", nbytes);
		if (kv->type == LLM_GGUF_BOOL && kv->value[0] > 1)
			return value_error(p, kv, "boolean is neither 0 nor 1 but", kv->value[0]);
		return LLM_OK;
	}
	if (kv->type == LLM_GGUF_STR)
	{
		len = llm_cursor_u64(&p->c);
		if (p->c.bad || len > p->c.left)
			return value_overrun(p, kv, "string is cut short, length", len);
		kv->value = llm_cursor_bytes(&p->c, len);
		kv->nbytes = (size_t) len;
		return LLM_OK;
	}
	if (kv->type != LLM_GGUF_ARRAY)
		return value_error(p, kv, "unknown type", kv->type);
	kv->item_type = llm_cursor_u32(&p->c);
	kv->n = llm_cursor_u64(&p->c);
	if (p->c.bad)
		return value_overrun(p, kv, "array is cut short, type", kv->item_type);
	kv->value = p->c.p;
	LlmStatus status = items_skip(p, kv, kv->item_type, kv->n, 1);
	kv->nbytes = (size_t) (p->c.p - kv->value);
	return status;
}

static LlmStatus
kv_read(Parser *p)
{
	LlmGguf *g = p->g;
	char show[LLM_GGUF_SHOW_CAP];
	LlmStatus status;

	g->kv = llm_arena_array(g->arena, g->n_kv, sizeof(*g->kv));
	g->keys = llm_arena_array(g->arena, g->n_kv, sizeof(*g->keys));
	if (g->kv == NULL || g->keys == NULL)
		return llm_error_set(p->err, LLM_E_MEMORY, "out of memory for %" PRIu64 " key-values",
							 g->n_kv);
	for (uint64_t i = 0; i < g->n_kv; i++)
	{
		LlmGgufKv *kv = &g->kv[i];

		status = name_read(p, KEY_NBYTES_MAX, "key", i, g->n_kv, &kv->key);
		if (status != LLM_OK)
			return status;
		kv->type = llm_cursor_u32(&p->c);
		if (p->c.bad)
			return llm_error_set(p->err, LLM_E_MODEL, "file ends after key \"%s\"",
								 llm_gguf_show(kv->key, show));
		status = value_read(p, kv);
		if (status != LLM_OK)
			return status;
		g->keys[i] = &kv->key;
	}
	return llm_gguf_index_sort(g->keys, g->n_kv, "key", p->err);
}

static LlmStatus
alignment_read(Parser *p)
{
	const LlmGgufKv *kv = llm_gguf_find_kv(p->g, "general.alignment");
	uint32_t v;

	p->g->alignment = ALIGNMENT_DEFAULT;
	if (kv == NULL)
		return LLM_OK;
	if (kv->type != LLM_GGUF_U32)
		return value_error(p, kv, "type is not that of an unsigned 32-bit integer but", kv->type);
	memcpy(&v, kv->value, sizeof(v));
	if (v < ALIGNMENT_MIN || v > ALIGNMENT_MAX || (v & (v - 1)) != 0)
	{
		value_error(p, kv, "not a power of two from 8 to 1048576:", v);
		llm_error_numbers(p->err, v, ALIGNMENT_MAX);
		return LLM_E_MODEL;
	}
	p->g->alignment = v;
	return LLM_OK;
}

/* ---- tensors ---- */

static LlmStatus
tensor_error(Parser *p, const LlmGgufTensor *t, const char *what, uint64_t number)
{
	char show[LLM_GGUF_SHOW_CAP];

	return llm_error_set(p->err, LLM_E_MODEL, "tensor \"%s\": %s %" PRIu64,
						 llm_gguf_show(t->name, show), what, number);
}

/* Dimensions folded to rows and columns, each below 2^31. */
static LlmStatus
dims_read(Parser *p, LlmGgufTensor *t)
{
	uint32_t n_dims = llm_cursor_u32(&p->c);
	uint64_t rows = 1;

	if (p->c.bad)
		return tensor_error(p, t, "file ends in its description; bytes left:", p->c.left);
	if (n_dims < 1 || n_dims > N_DIMS_MAX)
		return tensor_error(p, t, "number of dimensions is not 1 to 4 but", n_dims);
	for (uint32_t i = 0; i < n_dims; i++)
	{
		uint64_t d = llm_cursor_u64(&p->c);

		if (p->c.bad)
			return tensor_error(p, t, "file ends in its description; dimensions:", n_dims);
		if (d < 1 || d > INT32_MAX)
			return tensor_error(p, t, "a dimension is not 1 to 2147483647 but", d);
		if (i == 0)
			t->cols = (int32_t) d;
		else if (__builtin_mul_overflow(rows, d, &rows) || rows > INT32_MAX)
			return tensor_error(p, t, "more than 2147483647 rows by dimension", d);
	}
	t->rows = (int32_t) rows;
	return LLM_OK;
}

static LlmStatus
tensor_read(Parser *p, LlmGgufTensor *t)
{
	const LlmDtypeInfo *info;
	LlmStatus status = dims_read(p, t);

	if (status != LLM_OK)
		return status;
	t->type = llm_cursor_u32(&p->c);
	t->offset = llm_cursor_u64(&p->c);
	if (p->c.bad)
		return tensor_error(p, t, "file ends in its description; bytes left:", p->c.left);
	if (strcmp(llm_dtype_gguf_name(t->type), "unknown") == 0)
		return tensor_error(p, t, "unknown type", t->type);
	info = llm_dtype_info(t->type);
	if (info != NULL && t->cols % info->block != 0)
	{
		tensor_error(p, t,
					 "first dimension is not a multiple of the type's block:", (uint64_t) t->cols);
		llm_error_detail(p->err, "Type %s has blocks of %d values.", info->name, info->block);
		return LLM_E_MODEL;
	}
	if (t->offset % p->g->alignment != 0)
		return tensor_error(p, t, "offset is not a multiple of the alignment:", t->offset);
	if (__builtin_add_overflow(p->g->n_params, (uint64_t) t->rows * (uint64_t) t->cols,
							   &p->g->n_params) ||
		p->g->n_params > INT64_MAX)
		return tensor_error(p, t, "the file has too many parameters; rows:", (uint64_t) t->rows);
	return LLM_OK;
}

static LlmStatus
tensors_read(Parser *p)
{
	LlmGguf *g = p->g;
	LlmStatus status;

	g->tensors = llm_arena_array(g->arena, g->n_tensors, sizeof(*g->tensors));
	g->names = llm_arena_array(g->arena, g->n_tensors, sizeof(*g->names));
	if (g->tensors == NULL || g->names == NULL)
		return llm_error_set(p->err, LLM_E_MEMORY, "out of memory for %" PRIu64 " tensors",
							 g->n_tensors);
	for (uint64_t i = 0; i < g->n_tensors; i++)
	{
		LlmGgufTensor *t = &g->tensors[i];

		status = name_read(p, NAME_NBYTES_MAX, "tensor", i, g->n_tensors, &t->name);
		if (status != LLM_OK)
			return status;
		t->name.p = llm_arena_copy(g->arena, t->name.p, t->name.len);
		if (t->name.p == NULL)
			return llm_error_set(p->err, LLM_E_MEMORY, "out of memory for names of tensors");
		status = tensor_read(p, t);
		if (status != LLM_OK)
			return status;
		g->names[i] = &t->name;
	}
	return llm_gguf_index_sort(g->names, g->n_tensors, "tensor", p->err);
}

/* Point every tensor at its data, once the size of the header is known. */
static LlmStatus
data_locate(Parser *p)
{
	LlmGguf *g = p->g;
	size_t header = g->len - p->c.left;
	size_t begin = (header + g->alignment - 1) / g->alignment * g->alignment;
	size_t room = begin < g->len ? g->len - begin : 0;

	for (uint64_t i = 0; i < g->n_tensors; i++)
	{
		LlmGgufTensor *t = &g->tensors[i];
		uint64_t nbytes = 1; /* of a type that cannot be read: at least its beginning is there */

		if (llm_dtype_info(t->type) != NULL)
			nbytes = (uint64_t) t->rows * llm_dtype_row_nbytes((LlmDtype) t->type, t->cols);
		if (t->offset > room || nbytes > room - t->offset)
		{
			tensor_error(p, t, "data runs over the end of the file: bytes", nbytes);
			llm_error_detail(p->err, "Offset %" PRIu64 " in a data section of %zu bytes.",
							 t->offset, room);
			return LLM_E_MODEL;
		}
		if (llm_dtype_info(t->type) != NULL)
			t->data = g->data + begin + t->offset;
	}
	return LLM_OK;
}

/* ---- the whole file ---- */

/* A count of the header: at most cap, and at most what the bytes left can hold. */
static LlmStatus
count_check(Parser *p, const char *what, uint64_t n, size_t nbytes_min, uint64_t cap)
{
	uint64_t limit = p->c.left / nbytes_min;

	if (limit > cap)
		limit = cap;
	if (n <= limit)
		return LLM_OK;
	llm_error_set(p->err, LLM_E_MODEL,
				  "header declares %" PRIu64 " %s; a file of %zu bytes has at most %" PRIu64, n,
				  what, p->g->len, limit);
	llm_error_numbers(p->err, n > INT64_MAX ? INT64_MAX : (int64_t) n, (int64_t) limit);
	return LLM_E_MODEL;
}

static LlmStatus
header_read(Parser *p)
{
	const uint8_t *magic = llm_cursor_bytes(&p->c, 4);
	uint32_t version = llm_cursor_u32(&p->c);
	LlmStatus status;

	if (magic == NULL || memcmp(magic, "GGUF", 4) != 0)
		return llm_error_set(p->err, LLM_E_MODEL, "file is not in GGUF format");
	p->g->n_tensors = llm_cursor_u64(&p->c);
	p->g->n_kv = llm_cursor_u64(&p->c);
	if (p->c.bad)
		return llm_error_set(p->err, LLM_E_MODEL, "file ends in the GGUF header after %zu bytes",
							 p->g->len);
	if (version < VERSION_MIN || version > VERSION_MAX)
		return llm_error_set(p->err, LLM_E_MODEL,
							 version == __builtin_bswap32(VERSION_MIN) ||
									 version == __builtin_bswap32(VERSION_MAX)
								 ? "GGUF version 0x%08" PRIx32 " is big-endian, not little-endian"
								 : "GGUF version %" PRIu32 " is not one of 2 and 3",
							 version);
	status = count_check(p, "tensors", p->g->n_tensors, TENSOR_NBYTES_MIN, N_TENSORS_MAX);
	if (status == LLM_OK)
		status = count_check(p, "key-values", p->g->n_kv, KV_NBYTES_MIN, N_KV_MAX);
	return status;
}

/* Parse g->data. */
static LlmStatus
parse(LlmGguf *g, LlmError *err)
{
	Parser p = {.g = g, .c = {.p = g->data, .left = g->len}, .err = err};
	LlmStatus status;

	g->arena = &g->arena_memory;
	if ((status = header_read(&p)) == LLM_OK && (status = kv_read(&p)) == LLM_OK &&
		(status = alignment_read(&p)) == LLM_OK && (status = tensors_read(&p)) == LLM_OK)
		status = data_locate(&p);
	return status;
}

/* Hand g out, or close it. */
static LlmStatus
hand_out(LlmGguf *g, LlmStatus status, LlmGguf **out)
{
	if (status == LLM_OK)
		*out = g;
	else
		llm_gguf_close(g);
	return status;
}

LlmStatus
llm_gguf_open(const char *dir, const char *path, LlmGguf **out, LlmError *err)
{
	LlmGguf *g = calloc(1, sizeof(*g));
	LlmStatus status;

	*out = NULL;
	if (g == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a model file");
	status = llm_file_open(dir, path, &g->file, err);
	if (status != LLM_OK)
	{
		free(g);
		return status;
	}
	g->data = g->file.data;
	g->len = g->file.len;
	status = parse(g, err);
	if (status != LLM_OK && err != NULL && err->detail[0] == '\0')
		llm_error_detail(err, "File: %s", path);
	return hand_out(g, llm_gguf_check(g, path, status, err), out);
}

LlmStatus
llm_gguf_open_memory(const void *data, size_t nbytes, LlmGguf **out, LlmError *err)
{
	LlmGguf *g = calloc(1, sizeof(*g));

	*out = NULL;
	if (g == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a model file");
	g->file.fd = -1;
	g->data = data;
	g->len = nbytes;
	return hand_out(g, parse(g, err), out);
}

void
llm_gguf_close(LlmGguf *g)
{
	if (g == NULL)
		return;
	llm_file_close(&g->file);
	llm_arena_fini(&g->arena_memory);
	free(g);
}

LlmStatus
llm_gguf_check(const LlmGguf *g, const char *path, LlmStatus status, LlmError *err)
{
	LlmStatus file = llm_file_check(&g->file, path, err);

	return file != LLM_OK ? file : status;
}

const LlmFile *
llm_gguf_file(const LlmGguf *g)
{
	return &g->file;
}

/* ---- tensors, as asked for ---- */

static const LlmGgufTensor *
tensor_find(const LlmGguf *g, const char *name)
{
	return (const LlmGgufTensor *) llm_gguf_find(g->names, g->n_tensors, llm_str(name));
}

bool
llm_gguf_tensor(const LlmGguf *g, const char *name, LlmWeightView *out)
{
	const LlmGgufTensor *t = tensor_find(g, name);

	if (t == NULL || t->data == NULL)
		return false;
	*out = (LlmWeightView){
		.name = t->name.p,
		.data = t->data,
		.rows = t->rows,
		.cols = t->cols,
		.type = (LlmDtype) t->type,
	};
	return true;
}

int64_t
llm_gguf_tensor_type(const LlmGguf *g, const char *name)
{
	const LlmGgufTensor *t = tensor_find(g, name);

	return t == NULL ? -1 : (int64_t) t->type;
}

uint64_t
llm_gguf_n_tensors(const LlmGguf *g)
{
	return g->n_tensors;
}

const char *
llm_gguf_tensor_name(const LlmGguf *g, uint64_t i)
{
	return g->tensors[i].name.p;
}

uint64_t
llm_gguf_tensor_n_params(const LlmGguf *g, uint64_t i)
{
	return (uint64_t) g->tensors[i].rows * (uint64_t) g->tensors[i].cols;
}

uint64_t
llm_gguf_n_params(const LlmGguf *g)
{
	return g->n_params;
}

uint64_t
llm_gguf_nbytes(const LlmGguf *g)
{
	return g->len;
}

LlmStatus
llm_gguf_digest(const LlmGguf *g, bool (*go_on)(void *arg), void *arg, uint64_t digest[2],
				LlmError *err)
{
	XXH3_state_t *state = XXH3_createState();
	XXH128_hash_t h;
	bool wanted = true;

	if (state == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for the digest of a model file");
	XXH3_128bits_reset(state);
	for (size_t at = 0; at < g->len && wanted; at += DIGEST_CHUNK)
	{
		size_t left = g->len - at;

		XXH3_128bits_update(state, g->data + at, left < DIGEST_CHUNK ? left : DIGEST_CHUNK);
		wanted = go_on == NULL || go_on(arg);
	}
	h = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	if (!wanted)
		return llm_error_set(err, LLM_E_CANCELLED, "the digest of a model file was stopped");
	digest[0] = h.low64;
	digest[1] = h.high64;
	return LLM_OK;
}
