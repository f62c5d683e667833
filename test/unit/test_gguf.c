/*
 * test_gguf.c - well-formed GGUF files read back, and every class of broken file refused by name.
 *
 * links: model tensor core
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/gguf.h"
#include "gguf_build.h"

/* ---- a good file ---- */

static const float vector[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static void
good(GgufBuild *b)
{
	static const char *const words[3] = {"a", "", "long word"};
	float matrix[6 * 4];
	uint64_t dims[3] = {4, 3, 2};

	for (int i = 0; i < 24; i++)
		matrix[i] = (float) i;
	gguf_key_str(b, "text", "two\nlines");
	gguf_key_u32(b, "u32", 4000000000u);
	gguf_key(b, "u8", 0);
	gguf_put(&b->kv, "\xff", 1);
	gguf_key(b, "i64", 11);
	gguf_put_u64(&b->kv, (uint64_t) -5);
	gguf_key(b, "u64", 10);
	gguf_put_u64(&b->kv, UINT64_MAX);
	gguf_key_f32(b, "f32", 0.5f);
	gguf_key_bool(b, "yes", 1);
	gguf_key_array(b, "words", 8, 3);
	for (int i = 0; i < 3; i++)
		gguf_put_str(&b->kv, words[i]);
	gguf_key_array(b, "numbers", 3, 2);
	gguf_put(&b->kv, "\xfe\xff\x07\x00", 4);
	gguf_key_array(b, "nested", 9, 1);
	gguf_put_u32(&b->kv, 0);
	gguf_put_u64(&b->kv, 2);
	gguf_put(&b->kv, "xy", 2);
	gguf_tensor(b, "vector", 0, 8, 0, vector, sizeof(vector));
	gguf_tensor_raw(b, "cube", 3, dims, 0, b->data.len);
	gguf_put(&b->data, matrix, sizeof(matrix));
	gguf_pad(&b->data);
	gguf_tensor(b, "other", 1, 256, 10, matrix, 1);
}

static LlmGguf *
open_good(uint8_t **bytes, size_t *nbytes)
{
	GgufBuild b = {0};
	LlmError err = {0};
	LlmGguf *g;

	good(&b);
	*bytes = gguf_build_end(&b, nbytes);
	assert_int_equal(llm_gguf_open_memory(*bytes, *nbytes, &g, &err), LLM_OK);
	return g;
}

static void
values_are_read(void **state)
{
	uint8_t *bytes;
	size_t nbytes;
	LlmGguf *g = open_good(&bytes, &nbytes);
	LlmError err = {0};
	LlmStr s;
	const LlmStr *words;
	const int32_t *numbers, *again;
	uint64_t n;
	uint32_t u = 7;
	float f;
	bool yes;

	assert_int_equal(llm_gguf_str(g, "text", true, &s, &err), LLM_OK);
	assert_true(llm_str_eq(s, "two\nlines"));
	assert_int_equal(llm_gguf_u32(g, "u32", true, &u, &err), LLM_OK);
	assert_int_equal(u, 4000000000u);
	assert_int_equal(llm_gguf_u32(g, "u8", true, &u, &err), LLM_OK);
	assert_int_equal(u, 255);
	assert_int_equal(llm_gguf_f32(g, "f32", true, &f, &err), LLM_OK);
	assert_true(f == 0.5f);
	assert_int_equal(llm_gguf_bool(g, "yes", true, &yes, &err), LLM_OK);
	assert_true(yes);
	assert_int_equal(llm_gguf_str_array(g, "words", true, &words, &n, &err), LLM_OK);
	assert_int_equal(n, 3);
	assert_true(llm_str_eq(words[0], "a") && llm_str_eq(words[1], "") &&
				llm_str_eq(words[2], "long word"));
	assert_int_equal(llm_gguf_i32_array(g, "numbers", true, &numbers, &n, &err), LLM_OK);
	assert_int_equal(n, 2);
	assert_int_equal(numbers[0], -2);
	assert_int_equal(numbers[1], 7);
	assert_int_equal(llm_gguf_i32_array(g, "numbers", true, &again, &n, &err), LLM_OK);
	assert_ptr_equal(again, numbers);
	assert_true(llm_gguf_has(g, "nested"));
	assert_false(llm_gguf_has(g, "neste"));
	u = 7;
	assert_int_equal(llm_gguf_u32(g, "absent", false, &u, &err), LLM_OK);
	assert_int_equal(u, 7);
	llm_gguf_close(g);
	free(bytes);
}

static void
wrong_types_name_key_and_value(void **state)
{
	uint8_t *bytes;
	size_t nbytes;
	LlmGguf *g = open_good(&bytes, &nbytes);
	LlmError err = {0};
	LlmStr s;
	const LlmStr *words;
	const int32_t *numbers;
	uint64_t n;
	uint32_t u;
	float f;
	bool yes;

	assert_int_equal(llm_gguf_u32(g, "absent", true, &u, &err), LLM_E_MODEL);
	assert_string_equal(err.text, "key \"absent\" is missing");
	assert_int_equal(llm_gguf_u32(g, "text", false, &u, &err), LLM_E_MODEL);
	assert_string_equal(err.text, "key \"text\" is string \"two\\x0alines\", not an integer from 0 "
								  "to 4294967295");
	assert_int_equal(llm_gguf_u32(g, "i64", false, &u, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "\"i64\" is i64 -5"));
	assert_int_equal(llm_gguf_u32(g, "u64", false, &u, &err), LLM_E_MODEL);
	assert_int_equal(llm_gguf_f32(g, "u32", false, &f, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "\"u32\" is u32 4000000000"));
	assert_int_equal(llm_gguf_bool(g, "f32", false, &yes, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "\"f32\" is f32 0.5"));
	assert_int_equal(llm_gguf_str(g, "words", false, &s, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "\"words\" is array of 3 string"));
	assert_int_equal(llm_gguf_str_array(g, "numbers", false, &words, &n, &err), LLM_E_MODEL);
	assert_int_equal(llm_gguf_i32_array(g, "words", false, &numbers, &n, &err), LLM_E_MODEL);
	assert_int_equal(llm_gguf_i32_array(g, "yes", false, &numbers, &n, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, "\"yes\" is bool true"));
	llm_gguf_close(g);
	free(bytes);
}

/* False when the count that arg points to has reached 2. */
static bool
count_call(void *arg)
{
	return ++*(int *) arg < 2;
}

static void
tensors_are_views_of_the_file(void **state)
{
	uint8_t *bytes;
	size_t nbytes;
	LlmGguf *g = open_good(&bytes, &nbytes);
	LlmWeightView v;
	uint64_t digest[2], other[2];
	XXH128_hash_t want;
	int n_calls = 0;

	assert_int_equal(llm_gguf_n_tensors(g), 3);
	assert_string_equal(llm_gguf_tensor_name(g, 1), "cube");
	assert_int_equal(llm_gguf_tensor_n_params(g, 1), 24);
	assert_int_equal(llm_gguf_n_params(g), 8 + 24 + 256);
	assert_int_equal(llm_gguf_nbytes(g), nbytes);
	assert_true(llm_gguf_tensor(g, "vector", &v));
	assert_int_equal(v.rows, 1);
	assert_int_equal(v.cols, 8);
	assert_memory_equal(v.data, vector, sizeof(vector));
	assert_true(llm_gguf_tensor(g, "cube", &v));
	assert_int_equal(v.rows, 6);
	assert_int_equal(v.cols, 4);
	assert_int_equal(v.type, LLM_DTYPE_F32);
	assert_string_equal(v.name, "cube");
	assert_false(llm_gguf_tensor(g, "other", &v)); /* Q2_K has no LlmDtype */
	assert_int_equal(llm_gguf_tensor_type(g, "other"), 10);
	assert_int_equal(llm_gguf_tensor_type(g, "none"), -1);
	assert_int_equal(llm_gguf_digest(g, count_call, &n_calls, digest, NULL), LLM_OK);
	assert_int_equal(n_calls, 1);
	assert_int_equal(llm_gguf_digest(g, count_call, &n_calls, other, NULL), LLM_E_CANCELLED);
	llm_gguf_close(g);
	want =
		XXH3_128bits(bytes, nbytes); /* by the library's plain function, as xxh128sum prints it */
	assert_true(digest[0] == want.low64 && digest[1] == want.high64);

	bytes[nbytes - 1] ^= 1;
	assert_int_equal(llm_gguf_open_memory(bytes, nbytes, &g, NULL), LLM_OK);
	assert_int_equal(llm_gguf_digest(g, NULL, NULL, other, NULL), LLM_OK);
	assert_true(digest[0] != other[0] || digest[1] != other[1]);
	llm_gguf_close(g);
	free(bytes);
}

static void
a_file_on_disk_is_opened(void **state)
{
	char path[] = "/tmp/llm-test-gguf-XXXXXX";
	int fd = mkstemp(path);
	uint8_t *bytes;
	size_t nbytes;
	LlmGguf *g = open_good(&bytes, &nbytes);
	LlmError err = {0};
	uint64_t a[2], b[2];

	assert_int_equal(llm_gguf_digest(g, NULL, NULL, a, NULL), LLM_OK);
	llm_gguf_close(g);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, nbytes), nbytes);
	assert_int_equal(llm_gguf_open(NULL, path, &g, &err), LLM_OK);
	assert_int_equal(llm_gguf_digest(g, NULL, NULL, b, NULL), LLM_OK);
	assert_memory_equal(a, b, sizeof(a));
	llm_gguf_close(g);

	assert_int_equal(ftruncate(fd, 3), 0);
	assert_int_equal(llm_gguf_open(NULL, path, &g, &err), LLM_E_MODEL);
	assert_null(g);
	assert_non_null(strstr(err.detail, path));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(llm_gguf_open(NULL, path, &g, &err), LLM_E_MODEL);
	assert_int_equal(llm_gguf_open(NULL, "/dev/null", &g, &err), LLM_E_MODEL);
	close(fd);
	unlink(path);
	assert_int_equal(llm_gguf_open(NULL, path, &g, &err), LLM_E_MODEL);
	assert_non_null(strstr(err.text, path));
	free(bytes);
}

/* ---- broken files: each writes one, named after what is wrong with it ---- */

#define TOP ((uint64_t) 1 << 63)

static void
key_length_over_end(GgufBuild *b)
{
	gguf_put_u64(&b->kv, TOP);
	gguf_put(&b->kv, "kkkkkkkk", 8);
	b->n_kv_add = 1;
}

static void
key_length_wraps(GgufBuild *b)
{
	gguf_put_u64(&b->kv, UINT64_MAX);
	gguf_put(&b->kv, "kkkkkkkk", 8);
	b->n_kv_add = 1;
}

static void
key_empty(GgufBuild *b)
{
	gguf_key_u32(b, "", 1);
}

static void
key_with_nul(GgufBuild *b)
{
	gguf_put_u64(&b->kv, 4);
	gguf_put(&b->kv, "a\0b\xff\0\0\0\0\1", 9);
	b->n_kv_add = 1;
}

static void
key_not_utf8(GgufBuild *b)
{
	gguf_key_u32(b, "caf\xe9", 1);
}

static void
key_twice(GgufBuild *b)
{
	gguf_key_u32(b, "same", 1);
	gguf_key_u32(b, "between", 1);
	gguf_key_str(b, "same", "x");
}

static void
value_type_unknown(GgufBuild *b)
{
	gguf_key(b, "odd", 13);
	gguf_put_u64(&b->kv, 0);
}

static void
value_missing(GgufBuild *b)
{
	gguf_key(b, "short", 10);
	gguf_put_u32(&b->kv, 0);
}

static void
bool_not_a_bool(GgufBuild *b)
{
	gguf_key_bool(b, "flag", 2);
}

static void
string_over_end(GgufBuild *b)
{
	gguf_key(b, "text", 8);
	gguf_put_u64(&b->kv, 1u << 30);
	gguf_put(&b->kv, "0123456789", 10);
}

static void
array_over_end(GgufBuild *b)
{
	gguf_key_array(b, "bytes", 0, TOP);
}

static void
array_product_wraps(GgufBuild *b)
{
	gguf_key_array(b, "longs", 10, ((uint64_t) 1 << 61) + 1);
	gguf_put_u64(&b->kv, 1);
}

static void
array_of_strings_over_end(GgufBuild *b)
{
	gguf_key_array(b, "words", 8, 2);
	gguf_put_str(&b->kv, "fits");
	gguf_put_u64(&b->kv, 5);
	gguf_put(&b->kv, "fit", 3);
}

static void
array_of_too_many_strings(GgufBuild *b)
{
	gguf_key_array(b, "words", 8, (uint64_t) 1 << 60);
	gguf_put_str(&b->kv, "one");
}

static void
array_item_type_unknown(GgufBuild *b)
{
	gguf_key_array(b, "things", 77, 1);
	gguf_put_u64(&b->kv, 1);
}

static void
array_nested_deep(GgufBuild *b)
{
	gguf_key(b, "nest", 9);
	for (int i = 0; i < 10000; i++)
	{
		gguf_put_u32(&b->kv, 9);
		gguf_put_u64(&b->kv, 1);
	}
	gguf_put_u32(&b->kv, 0);
	gguf_put_u64(&b->kv, 0);
}

static void
array_of_too_many_arrays(GgufBuild *b)
{
	gguf_key_array(b, "nest", 9, TOP);
	gguf_put_u64(&b->kv, 0);
	gguf_put_u64(&b->kv, 0);
}

static void
too_many_kv(GgufBuild *b)
{
	b->n_kv_add = TOP - 1;
}

static void
negative_kv(GgufBuild *b)
{
	b->n_kv_add = UINT64_MAX;
}

static void
too_many_tensors(GgufBuild *b)
{
	b->n_tns_add = (uint64_t) 1 << 62;
}

static void
one_kv_too_many(GgufBuild *b)
{
	gguf_key_str(b, "text", "long enough for the count to pass");
	b->n_kv_add = 1;
}

static void
version_0(GgufBuild *b)
{
	b->version_add = 0u - 3;
}

static void
version_1(GgufBuild *b)
{
	b->version_add = 1u - 3;
}

static void
version_4(GgufBuild *b)
{
	b->version_add = 4 - 3;
}

static void
version_swapped(GgufBuild *b)
{
	b->version_add = 0x03000000u - 3;
}

static void
alignment_0(GgufBuild *b)
{
	gguf_key_u32(b, "general.alignment", 0);
}

static void
alignment_3(GgufBuild *b)
{
	gguf_key_u32(b, "general.alignment", 3);
}

static void
alignment_huge(GgufBuild *b)
{
	gguf_key_u32(b, "general.alignment", 1u << 30);
}

static void
alignment_signed(GgufBuild *b)
{
	gguf_key(b, "general.alignment", 5);
	gguf_put_u32(&b->kv, 32);
}

/* One tensor "t" of these dimensions and 64 bytes of data. */
static void
one_tensor(GgufBuild *b, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset)
{
	static const char zeroes[64];

	gguf_tensor_raw(b, "t", n_dims, dims, type, offset);
	gguf_put(&b->data, zeroes, sizeof(zeroes));
}

static void
dim_0(GgufBuild *b)
{
	one_tensor(b, 2, (uint64_t[]){1, 0}, 0, 0);
}

static void
dim_negative(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){UINT64_MAX}, 0, 0);
}

static void
dim_product_overflows(GgufBuild *b)
{
	one_tensor(b, 2, (uint64_t[]){TOP - 1, 2}, 24, 0);
}

static void
dim_product_too_large(GgufBuild *b)
{
	one_tensor(b, 4, (uint64_t[]){1, 1u << 30, 1u << 30, 1u << 30}, 0, 0);
}

static void
dim_huge(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){((uint64_t) 1 << 42) + 1}, 0, 0);
}

static void
dims_none(GgufBuild *b)
{
	one_tensor(b, 0, NULL, 0, 0);
}

static void
dims_5(GgufBuild *b)
{
	one_tensor(b, 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0);
}

static void
dims_countless(GgufBuild *b)
{
	one_tensor(b, UINT32_MAX, (uint64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, 0, 0);
}

static void
tensor_type_unknown(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){8}, 9999, 0);
}

static void
tensor_type_negative(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){8}, UINT32_MAX, 0);
}

static void
tensor_block_ragged(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){33}, 8, 0);
}

static void
tensor_offset_odd(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){8}, 0, 4);
}

static void
tensor_offset_over_end(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){8}, 0, 96);
}

static void
tensor_offset_wraps(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){8}, 0, UINT64_MAX - 31);
}

static void
tensor_data_over_end(GgufBuild *b)
{
	one_tensor(b, 1, (uint64_t[]){17}, 0, 0);
}

static void
tensor_data_over_end_by_rows(GgufBuild *b)
{
	one_tensor(b, 2, (uint64_t[]){INT32_MAX, INT32_MAX}, 0, 0);
}

static void
tensor_twice(GgufBuild *b)
{
	gguf_tensor(b, "same", 0, 8, 0, vector, sizeof(vector));
	gguf_tensor(b, "same", 0, 8, 0, vector, sizeof(vector));
}

static void
tensor_name_empty(GgufBuild *b)
{
	gguf_tensor(b, "", 0, 8, 0, vector, sizeof(vector));
}

static void
tensor_name_long(GgufBuild *b)
{
	char name[400];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	gguf_tensor(b, name, 0, 8, 0, vector, sizeof(vector));
}

/* What the error must name: the key, the tensor, or the number of the header. */
static const struct
{
	void (*build)(GgufBuild *b);
	const char *named;
} broken[] = {
	{key_length_over_end, "key 1 of 1 has a name of 9223372036854775808 bytes"},
	{key_length_wraps, "key 1 of 1 has a name of 18446744073709551615 bytes"},
	{key_empty, "key 1 of 1 has an empty name"},
	{key_with_nul, "key \"a\\x00b\\xff\""},
	{key_not_utf8, "key \"caf\\xe9\""},
	{key_twice, "key \"same\" occurs twice"},
	{value_type_unknown, "key \"odd\": unknown type 13"},
	{value_missing, "key \"short\": value is cut short"},
	{bool_not_a_bool, "key \"flag\": boolean is neither 0 nor 1 but 2"},
	{string_over_end, "key \"text\": string is cut short, length 1073741824"},
	{array_over_end, "key \"bytes\": array is cut short, length 9223372036854775808"},
	{array_product_wraps, "key \"longs\": array is cut short, length 2305843009213693953"},
	{array_of_strings_over_end, "key \"words\": array is cut short at item 1"},
	{array_of_too_many_strings, "key \"words\": array is cut short, length 1152921504606846976"},
	{array_item_type_unknown, "key \"things\": array of unknown type 77"},
	{array_nested_deep, "key \"nest\": arrays are nested deeper than 4"},
	{array_of_too_many_arrays, "key \"nest\": array is cut short, length 9223372036854775808"},
	{too_many_kv, "header declares 9223372036854775807 key-values"},
	{negative_kv, "header declares 18446744073709551615 key-values"},
	{too_many_tensors, "header declares 4611686018427387904 tensors"},
	{one_kv_too_many, "file ends before key 2 of 2"},
	{version_0, "GGUF version 0 "},
	{version_1, "GGUF version 1 "},
	{version_4, "GGUF version 4 "},
	{version_swapped, "GGUF version 0x03000000 is big-endian"},
	{alignment_0, "key \"general.alignment\": not a power of two from 8 to 1048576: 0"},
	{alignment_3, "key \"general.alignment\": not a power of two from 8 to 1048576: 3"},
	{alignment_huge, "key \"general.alignment\": not a power of two from 8 to 1048576: 1073741824"},
	{alignment_signed, "key \"general.alignment\": type"},
	{dim_0, "tensor \"t\": a dimension is not 1 to 2147483647 but 0"},
	{dim_negative, "tensor \"t\": a dimension is not 1 to 2147483647 but 18446744073709551615"},
	{dim_product_overflows, "tensor \"t\": a dimension"},
	{dim_product_too_large, "tensor \"t\": more than 2147483647 rows"},
	{dim_huge, "tensor \"t\": a dimension is not 1 to 2147483647 but 4398046511105"},
	{dims_none, "tensor \"t\": number of dimensions is not 1 to 4 but 0"},
	{dims_5, "tensor \"t\": number of dimensions is not 1 to 4 but 5"},
	{dims_countless, "tensor \"t\": number of dimensions is not 1 to 4 but 4294967295"},
	{tensor_type_unknown, "tensor \"t\": unknown type 9999"},
	{tensor_type_negative, "tensor \"t\": unknown type 4294967295"},
	{tensor_block_ragged, "tensor \"t\": first dimension is not a multiple"},
	{tensor_offset_odd, "tensor \"t\": offset is not a multiple of the alignment: 4"},
	{tensor_offset_over_end, "tensor \"t\": data runs over the end"},
	{tensor_offset_wraps, "tensor \"t\": data runs over the end"},
	{tensor_data_over_end, "tensor \"t\": data runs over the end of the file: bytes 68"},
	{tensor_data_over_end_by_rows, "tensor \"t\": data runs over the end"},
	{tensor_twice, "tensor \"same\" occurs twice"},
	{tensor_name_empty, "tensor 1 of 1 has an empty name"},
	{tensor_name_long, "tensor 1 of 1 has a name of 399 bytes"},
};

static void
broken_files_are_refused_by_name(void **state)
{
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
	{
		GgufBuild b = {0};
		LlmError err = {0};
		LlmGguf *g = (LlmGguf *) &b;
		size_t nbytes;
		uint8_t *bytes;

		broken[i].build(&b);
		bytes = gguf_build_end(&b, &nbytes);
		assert_int_equal(llm_gguf_open_memory(bytes, nbytes, &g, &err), LLM_E_MODEL);
		assert_null(g);
		if (strstr(err.text, broken[i].named) == NULL)
			fail_msg("case %zu: \"%s\" does not name \"%s\"", i, err.text, broken[i].named);
		free(bytes);
	}
}

/* Any beginning of a good file is refused: reads past the end of the exact block are seen by ASan
 * and valgrind. */
static void
every_prefix_is_refused(void **state)
{
	uint8_t *bytes;
	size_t nbytes;
	LlmGguf *g = open_good(&bytes, &nbytes);

	llm_gguf_close(g);
	/* The last tensor has one byte of data that is checked, then padding. */
	for (size_t n = 0; n + GGUF_BUILD_ALIGNMENT <= nbytes; n++)
	{
		uint8_t *prefix = malloc(n > 0 ? n : 1);

		memcpy(prefix, bytes, n);
		assert_int_equal(llm_gguf_open_memory(prefix, n, &g, NULL), LLM_E_MODEL);
		free(prefix);
	}
	free(bytes);
}

/* A changed byte gives an error or another file, never a crash; everything in it can be read. */
static void
every_changed_byte_is_survived(void **state)
{
	static const uint8_t changes[] = {0x01, 0x80, 0xFF};
	uint8_t *bytes;
	size_t nbytes;
	LlmGguf *g = open_good(&bytes, &nbytes);

	llm_gguf_close(g);
	for (size_t at = 0; at < nbytes; at++)
		for (size_t c = 0; c < sizeof(changes); c++)
		{
			const LlmStr *words;
			const int32_t *numbers;
			uint64_t n;
			LlmWeightView v;

			bytes[at] ^= changes[c];
			if (llm_gguf_open_memory(bytes, nbytes, &g, NULL) == LLM_OK)
			{
				llm_gguf_str_array(g, "words", false, &words, &n, NULL);
				llm_gguf_i32_array(g, "numbers", false, &numbers, &n, NULL);
				for (uint64_t i = 0; i < llm_gguf_n_tensors(g); i++)
					if (llm_gguf_tensor(g, llm_gguf_tensor_name(g, i), &v))
						assert_true(v.data >= bytes && v.data < bytes + nbytes);
				llm_gguf_close(g);
			}
			bytes[at] ^= changes[c];
		}
	free(bytes);
}

static void
text_is_shown_printable_and_cut(void **state)
{
	char show[LLM_GGUF_SHOW_CAP], text[200];

	memset(text, '\n', sizeof(text));
	llm_gguf_show((LlmStr){text, sizeof(text)}, show);
	assert_true(strlen(show) < sizeof(show));
	assert_string_equal(show + strlen(show) - 7, "\\x0a...");
	assert_string_equal(llm_gguf_show(llm_str("plain"), show), "plain");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(wrong_types_name_key_and_value),
		cmocka_unit_test(tensors_are_views_of_the_file),
		cmocka_unit_test(a_file_on_disk_is_opened),
		cmocka_unit_test(broken_files_are_refused_by_name),
		cmocka_unit_test(every_prefix_is_refused),
		cmocka_unit_test(every_changed_byte_is_survived),
		cmocka_unit_test(text_is_shown_printable_and_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
