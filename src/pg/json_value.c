/* pg/json_value.c - plain C values out of jsonb ones, and strings into them. */
#include "postgres.h"

#include "pg/json_value.h"

#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"

char *
llm_json_string(const JsonbValue *v)
{
	return pnstrdup(v->val.string.val, v->val.string.len);
}

bool
llm_json_string_is(const JsonbValue *v, const char *s)
{
	return v->type == jbvString && (Size) v->val.string.len == strlen(s) &&
		   memcmp(v->val.string.val, s, v->val.string.len) == 0;
}

bool
llm_json_real(const JsonbValue *v, double *out)
{
	if (v->type != jbvNumeric)
		return false;
	*out = DatumGetFloat8(
		DirectFunctionCall1(numeric_float8_no_overflow, NumericGetDatum(v->val.numeric)));
	return true;
}

bool
llm_json_int(const JsonbValue *v, int64 *out)
{
	char *s;
	char *end;

	if (v->type != jbvNumeric)
		return false;
	s = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(v->val.numeric)));
	errno = 0;
	*out = strtoll(s, &end, 10);
	if (*end == '.')
		end += 1 + strspn(end + 1, "0");
	return errno == 0 && *end == '\0' && end != s;
}

static JsonbIterator *
open_container(const JsonbValue *v, JsonbIteratorToken begin, int *n)
{
	JsonbIterator *it;
	JsonbValue container;

	if (v->type != jbvBinary)
		return NULL;
	it = JsonbIteratorInit(v->val.binary.data);
	if (JsonbIteratorNext(&it, &container, true) != begin)
		return NULL;
	if (n)
		*n = begin == WJB_BEGIN_ARRAY ? container.val.array.nElems : container.val.object.nPairs;
	return it;
}

JsonbIterator *
llm_json_array(const JsonbValue *v, int *n)
{
	return open_container(v, WJB_BEGIN_ARRAY, n);
}

JsonbIterator *
llm_json_object(const JsonbValue *v, int *n)
{
	return open_container(v, WJB_BEGIN_OBJECT, n);
}

bool
llm_json_next_element(JsonbIterator **it, JsonbValue *element)
{
	return JsonbIteratorNext(it, element, true) == WJB_ELEM;
}

bool
llm_json_next_member(JsonbIterator **it, JsonbValue *key, JsonbValue *value)
{
	if (JsonbIteratorNext(it, key, true) != WJB_KEY)
		return false;
	(void) JsonbIteratorNext(it, value, true);
	return true;
}

static void
push_string(JsonbParseState **state, JsonbIteratorToken token, char *s, Size n)
{
	JsonbValue v = {.type = jbvString};

	v.val.string.val = s;
	v.val.string.len = (int) n;
	(void) pushJsonbValue(state, token, &v);
}

void
llm_json_push_key(JsonbParseState **state, const char *key)
{
	push_string(state, WJB_KEY, unconstify(char *, key), strlen(key));
}

void
llm_json_push_string(JsonbParseState **state, char *s, Size n)
{
	push_string(state, WJB_VALUE, s, n);
}
