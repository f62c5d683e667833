/* pg/json_value.h - plain C values out of jsonb ones, and strings into them. */
#ifndef LLM_PG_JSON_VALUE_H
#define LLM_PG_JSON_VALUE_H

#include "postgres.h"

#include "utils/jsonb.h"

/* A palloc'd copy of a string; v->type must be jbvString. */
extern char *llm_json_string(const JsonbValue *v);
extern bool llm_json_string_is(const JsonbValue *v, const char *s);

/* False when v is not a number. */
extern bool llm_json_real(const JsonbValue *v, double *out);
/* Whole numbers only; those beyond 64 bits are false too. */
extern bool llm_json_int(const JsonbValue *v, int64 *out);

/* Iterators over v; NULL when it is something else. The first step is done: llm_json_next_element and
 * llm_json_next_member give false at the end. n (may be NULL) is the number of elements or members. */
extern JsonbIterator *llm_json_array(const JsonbValue *v, int *n);
extern JsonbIterator *llm_json_object(const JsonbValue *v, int *n);
extern bool llm_json_next_element(JsonbIterator **it, JsonbValue *element);
extern bool llm_json_next_member(JsonbIterator **it, JsonbValue *key, JsonbValue *value);

/* Append to what is being built: the key of a member, a string that stays. */
extern void llm_json_push_key(JsonbParseState **state, const char *key);
extern void llm_json_push_string(JsonbParseState **state, char *s, Size n);

#endif
