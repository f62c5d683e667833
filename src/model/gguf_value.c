/* model/gguf_value.c - typed reads of GGUF key-values; a wrong type or value is told with its key. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/gguf_impl.h"

/* Items of an array that are decoded into memory of our own; with it that memory is bounded, however
 * long the file is. Vocabularies hold up to half a million merges. */
#define ARRAY_N_MAX (1u << 21)

LlmGgufKv *
llm_gguf_find_kv(const LlmGguf *g, const char *key)
{
	const LlmStr *found = llm_gguf_find(g->keys, g->n_kv, llm_str(key));

	/* The records belong to g, which hands out its index as const only. */
	return found == NULL ? NULL : &g->kv[(const LlmGgufKv *) found - g->kv];
}

static const char *
type_name(uint32_t type)
{
	static const char *const names[LLM_GGUF_N_TYPES] = {
		[LLM_GGUF_U8] = "u8",       [LLM_GGUF_I8] = "i8",     [LLM_GGUF_U16] = "u16",
		[LLM_GGUF_I16] = "i16",     [LLM_GGUF_U32] = "u32",   [LLM_GGUF_I32] = "i32",
		[LLM_GGUF_F32] = "f32",     [LLM_GGUF_BOOL] = "bool", [LLM_GGUF_STR] = "string",
		[LLM_GGUF_ARRAY] = "array", [LLM_GGUF_U64] = "u64",   [LLM_GGUF_I64] = "i64",
		[LLM_GGUF_F64] = "f64",
	};

	return type < LLM_GGUF_N_TYPES ? names[type] : "unknown";
}

/* Integer types widened; false for other types. Values over INT64_MAX saturate: no reader of this
 * file takes integers of that size. */
static bool
integer_decode(uint32_t type, const uint8_t *p, int64_t *out)
{
	int spare = 64 - 8 * (int) llm_gguf_scalar_nbytes(type); /* bits above the value */
	bool is_signed =
		type == LLM_GGUF_I8 || type == LLM_GGUF_I16 || type == LLM_GGUF_I32 || type == LLM_GGUF_I64;
	uint64_t v = 0;

	if (spare == 64 || type == LLM_GGUF_F32 || type == LLM_GGUF_F64 || type == LLM_GGUF_BOOL)
		return false;
	memcpy(&v, p, llm_gguf_scalar_nbytes(type)); /* little-endian, as the machine is */
	if (is_signed)
		*out = (int64_t) (v << spare) >> spare;
	else
		*out = v > INT64_MAX ? INT64_MAX : (int64_t) v;
	return true;
}

/* F32 or F64; false for other types. */
static bool
float_decode(const LlmGgufKv *kv, double *out)
{
	float f;

	if (kv->type == LLM_GGUF_F64)
		memcpy(out, kv->value, sizeof(*out));
	else if (kv->type == LLM_GGUF_F32)
	{
		memcpy(&f, kv->value, sizeof(f));
		*out = (double) f;
	}
	else
		return false;
	return true;
}

#define DESCRIBE_CAP (LLM_GGUF_SHOW_CAP + 24)

/* Type and value in words, for errors. */
static const char *
value_describe(const LlmGgufKv *kv, char out[DESCRIBE_CAP])
{
	char show[LLM_GGUF_SHOW_CAP];
	double f;
	int64_t i;

	if (kv->type == LLM_GGUF_STR)
		snprintf(out, DESCRIBE_CAP, "string \"%s\"",
				 llm_gguf_show((LlmStr){(const char *) kv->value, kv->nbytes}, show));
	else if (kv->type == LLM_GGUF_ARRAY)
		snprintf(out, DESCRIBE_CAP, "array of %" PRIu64 " %s", kv->n, type_name(kv->item_type));
	else if (kv->type == LLM_GGUF_BOOL)
		snprintf(out, DESCRIBE_CAP, "bool %s", kv->value[0] ? "true" : "false");
	else if (float_decode(kv, &f))
		snprintf(out, DESCRIBE_CAP, "%s %g", type_name(kv->type), f);
	else if (integer_decode(kv->type, kv->value, &i))
		snprintf(out, DESCRIBE_CAP, "%s %" PRId64, type_name(kv->type), i);
	else
		snprintf(out, DESCRIBE_CAP, "of unknown type %" PRIu32, kv->type);
	return out;
}

static LlmStatus
type_error(const LlmGgufKv *kv, const char *key, const char *wanted, LlmError *err)
{
	char is[DESCRIBE_CAP];

	return llm_error_set(err, LLM_E_MODEL, "key \"%s\" is %s, not %s", key, value_describe(kv, is),
						 wanted);
}

/* The record of a key. NULL with *status LLM_OK: absent and not required. */
static LlmGgufKv *
kv_get(const LlmGguf *g, const char *key, bool required, LlmStatus *status, LlmError *err)
{
	LlmGgufKv *kv = llm_gguf_find_kv(g, key);

	*status = LLM_OK;
	if (kv == NULL && required)
		*status = llm_error_set(err, LLM_E_MODEL, "key \"%s\" is missing", key);
	return kv;
}

bool
llm_gguf_has(const LlmGguf *g, const char *key)
{
	return llm_gguf_find_kv(g, key) != NULL;
}

LlmStatus
llm_gguf_u32(const LlmGguf *g, const char *key, bool required, uint32_t *out, LlmError *err)
{
	LlmStatus status;
	const LlmGgufKv *kv = kv_get(g, key, required, &status, err);
	int64_t v;

	if (kv == NULL)
		return status;
	if (!integer_decode(kv->type, kv->value, &v) || v < 0 || v > UINT32_MAX)
		return type_error(kv, key, "an integer from 0 to 4294967295", err);
	*out = (uint32_t) v;
	return LLM_OK;
}

LlmStatus
llm_gguf_f32(const LlmGguf *g, const char *key, bool required, float *out, LlmError *err)
{
	LlmStatus status;
	const LlmGgufKv *kv = kv_get(g, key, required, &status, err);
	double v;

	if (kv == NULL)
		return status;
	if (!float_decode(kv, &v) || (isfinite(v) && fabs(v) > (double) FLT_MAX))
		return type_error(kv, key, "a 32-bit float", err);
	*out = (float) v;
	return LLM_OK;
}

LlmStatus
llm_gguf_bool(const LlmGguf *g, const char *key, bool required, bool *out, LlmError *err)
{
	LlmStatus status;
	const LlmGgufKv *kv = kv_get(g, key, required, &status, err);

	if (kv == NULL)
		return status;
	if (kv->type != LLM_GGUF_BOOL)
		return type_error(kv, key, "a boolean", err);
	*out = kv->value[0] != 0;
	return LLM_OK;
}

LlmStatus
llm_gguf_str(const LlmGguf *g, const char *key, bool required, LlmStr *out, LlmError *err)
{
	LlmStatus status;
	const LlmGgufKv *kv = kv_get(g, key, required, &status, err);

	if (kv == NULL)
		return status;
	if (kv->type != LLM_GGUF_STR)
		return type_error(kv, key, "a string", err);
	*out = (LlmStr){(const char *) kv->value, kv->nbytes};
	return LLM_OK;
}

/* Room for an array's decoded form, remembered in the record; NULL with *status. */
static void *
array_alloc(const LlmGguf *g, LlmGgufKv *kv, const char *key, size_t size, LlmStatus *status,
			LlmError *err)
{
	if (kv->n > ARRAY_N_MAX)
	{
		*status =
			llm_error_set(err, LLM_E_MODEL, "key \"%s\" is an array of %" PRIu64 ", more than %u",
						  key, kv->n, ARRAY_N_MAX);
		llm_error_numbers(err, kv->n > INT64_MAX ? INT64_MAX : (int64_t) kv->n, ARRAY_N_MAX);
		return NULL;
	}
	void *p = llm_arena_array(g->arena, kv->n, size);

	if (p == NULL)
		*status = llm_error_set(err, LLM_E_MEMORY, "out of memory for key \"%s\"", key);
	return p;
}

LlmStatus
llm_gguf_str_array(const LlmGguf *g, const char *key, bool required, const LlmStr **out,
				   uint64_t *n, LlmError *err)
{
	LlmStatus status;
	LlmGgufKv *kv = kv_get(g, key, required, &status, err);

	if (kv == NULL)
		return status;
	if (kv->type != LLM_GGUF_ARRAY || kv->item_type != LLM_GGUF_STR)
		return type_error(kv, key, "an array of strings", err);
	if (kv->decoded == NULL)
	{
		LlmCursor c = {.p = kv->value, .left = kv->nbytes};
		LlmStr *items = array_alloc(g, kv, key, sizeof(*items), &status, err);

		if (items == NULL)
			return status;
		for (uint64_t i = 0; i < kv->n; i++)
		{
			items[i].len = (size_t) llm_cursor_u64(&c);
			items[i].p = (const char *) llm_cursor_bytes(&c, items[i].len);
		}
		kv->decoded = items;
	}
	*out = kv->decoded;
	*n = kv->n;
	return LLM_OK;
}

LlmStatus
llm_gguf_i32_array(const LlmGguf *g, const char *key, bool required, const int32_t **out,
				   uint64_t *n, LlmError *err)
{
	LlmStatus status;
	LlmGgufKv *kv = kv_get(g, key, required, &status, err);
	int64_t v;

	if (kv == NULL)
		return status;
	if (kv->type != LLM_GGUF_ARRAY || kv->item_type == LLM_GGUF_STR ||
		kv->item_type == LLM_GGUF_F32 || kv->item_type == LLM_GGUF_F64 ||
		kv->item_type == LLM_GGUF_BOOL || kv->item_type == LLM_GGUF_ARRAY)
		return type_error(kv, key, "an array of integers", err);
	if (kv->decoded == NULL)
	{
		size_t nbytes = llm_gguf_scalar_nbytes(kv->item_type);
		int32_t *items = array_alloc(g, kv, key, sizeof(*items), &status, err);

		if (items == NULL)
			return status;
		for (uint64_t i = 0; i < kv->n; i++)
		{
			if (!integer_decode(kv->item_type, kv->value + i * nbytes, &v) || v < INT32_MIN ||
				v > INT32_MAX)
				return llm_error_set(err, LLM_E_MODEL,
									 "key \"%s\": item %" PRIu64 " is %" PRId64
									 ", not a 32-bit integer",
									 key, i, v);
			items[i] = (int32_t) v;
		}
		kv->decoded = items;
	}
	*out = kv->decoded;
	*n = kv->n;
	return LLM_OK;
}
