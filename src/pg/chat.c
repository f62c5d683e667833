/*
 * pg/chat.c - messages of a conversation, in the shape that chat programs exchange.
 *
 * A message is an object of "role" (system, user, assistant) and "content": a string, or an array of
 * parts {"type": "text", "text": ...} that are joined. What llm_chat itself returns can be put back
 * into the list: its "reasoning" is left out, as models are trained to be asked. Everything else is an
 * error rather than a message that the model never sees.
 */
#include "postgres.h"

#include "pg/chat.h"

#include "lib/stringinfo.h"
#include "pg/encoding.h"
#include "pg/json_value.h"

#define MESSAGES_MAX 4096 /* as the engine has it */

static bool
refuse(LlmFailure *f, int i, const char *must)
{
	return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE, "messages[%d] must %s", i, must);
}

static bool
refuse_tools(LlmFailure *f, int i, const char *what)
{
	return llm_failure_set(f, ERRCODE_FEATURE_NOT_SUPPORTED,
						   "messages[%d] has %s, which is not supported yet", i, what);
}

/* Append one part of a content; false when it is not text. */
static bool
append_part(StringInfo out, const JsonbValue *part)
{
	JsonbIterator *it = llm_json_object(part, NULL);
	JsonbValue key;
	JsonbValue value;
	bool is_text = false;
	bool has_text = false;

	if (it == NULL)
		return false;
	while (llm_json_next_member(&it, &key, &value))
	{
		if (llm_json_string_is(&key, "type"))
			is_text = llm_json_string_is(&value, "text");
		else if (llm_json_string_is(&key, "text") && value.type == jbvString)
		{
			appendBinaryStringInfo(out, value.val.string.val, value.val.string.len);
			has_text = true;
		}
		else
			return false;
	}
	return is_text && has_text;
}

static bool
read_content(const JsonbValue *v, int i, ProtobufCBinaryData *out, LlmFailure *f)
{
	JsonbIterator *it;
	JsonbValue part;
	StringInfoData joined;

	if (v->type == jbvString)
		return llm_encoding_copy_to_utf8(v->val.string.val, v->val.string.len, out, f);
	it = llm_json_array(v, NULL);
	if (it == NULL)
		return refuse(f, i, "have a string or an array of text parts as \"content\"");
	initStringInfo(&joined);
	while (llm_json_next_element(&it, &part))
		if (!append_part(&joined, &part))
			return refuse(f, i, "have only parts {\"type\": \"text\", \"text\": ...}");
	return llm_encoding_copy_to_utf8(joined.data, joined.len, out, f);
}

static bool
read_role(const JsonbValue *v, int i, ProtobufCBinaryData *out, LlmFailure *f)
{
	if (llm_json_string_is(v, "tool") || llm_json_string_is(v, "function"))
		return refuse_tools(f, i, "the role of a tool");
	if (!llm_json_string_is(v, "system") && !llm_json_string_is(v, "user") &&
		!llm_json_string_is(v, "assistant"))
		return refuse(f, i, "have system, user or assistant as \"role\"");
	return llm_encoding_copy_to_utf8(v->val.string.val, v->val.string.len, out, f);
}

/* One member of message i. */
static bool
read_member(const JsonbValue *key, const JsonbValue *value, int i, Llm__Message *m, LlmFailure *f)
{
	if (llm_json_string_is(key, "tool_calls") || llm_json_string_is(key, "tool_call_id") ||
		llm_json_string_is(key, "function_call"))
		return value->type == jbvNull || refuse_tools(f, i, "a tool call");
	if (llm_json_string_is(key, "role"))
		return read_role(value, i, &m->role, f);
	/* The content of a tool call may be null: say that it is a tool call, not that it has none. */
	if (llm_json_string_is(key, "content"))
		return value->type == jbvNull || read_content(value, i, &m->content, f);
	if (llm_json_string_is(key, "reasoning"))
		return true;
	return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
						   "messages[%d] has unknown key \"%s\"", i, llm_json_string(key));
}

static bool
read_message(const JsonbValue *v, int i, Llm__Message *m, LlmFailure *f)
{
	JsonbIterator *it = llm_json_object(v, NULL);
	JsonbValue key;
	JsonbValue value;

	if (it == NULL)
		return refuse(f, i, "be an object of \"role\" and \"content\"");
	llm__message__init(m);
	while (llm_json_next_member(&it, &key, &value))
		if (!read_member(&key, &value, i, m, f))
			return false;
	if (m->role.data == NULL || m->content.data == NULL)
		return refuse(f, i, "be an object of \"role\" and \"content\"");
	return true;
}

bool
llm_chat_read(Jsonb *messages, Llm__Submit *submit, LlmFailure *f)
{
	JsonbValue root;
	JsonbValue element;
	JsonbIterator *it;
	Llm__Message *list;
	int n;

	JsonbToJsonbValue(messages, &root);
	it = JB_ROOT_IS_SCALAR(messages) ? NULL : llm_json_array(&root, &n);
	if (it == NULL || n == 0)
		return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
							   "messages must be an array of at least one object");
	if (n > MESSAGES_MAX)
		return llm_failure_set(f, ERRCODE_INVALID_PARAMETER_VALUE,
							   "%d messages were given, at most %d are allowed", n, MESSAGES_MAX);
	list = palloc(sizeof(Llm__Message) * n);
	submit->messages = palloc(sizeof(Llm__Message *) * n);
	for (int i = 0; llm_json_next_element(&it, &element); i++)
	{
		if (!read_message(&element, i, &list[i], f))
			return false;
		submit->messages[i] = &list[i];
		submit->n_messages++;
	}
	return true;
}

/* ---- answers ---- */

static void
push_member(JsonbParseState **state, const char *key, const char *utf8, Size n_utf8)
{
	Size n;
	char *s = llm_encoding_from_utf8(utf8, n_utf8, &n);

	llm_json_push_key(state, key);
	llm_json_push_string(state, s, n);
}

static JsonbValue *
push_message(JsonbParseState **state, const LlmClientAnswer *a)
{
	(void) pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	push_member(state, "role", "assistant", strlen("assistant"));
	push_member(state, "content", a->text, a->n_text);
	if (a->reasoning)
		push_member(state, "reasoning", a->reasoning, a->n_reasoning);
	return pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

Datum
llm_chat_message(const LlmClientAnswer *answer)
{
	JsonbParseState *state = NULL;

	return JsonbPGetDatum(JsonbValueToJsonb(push_message(&state, answer)));
}

Datum
llm_chat_messages(const LlmClientAnswer **answers, int n)
{
	JsonbParseState *state = NULL;
	JsonbValue null = {.type = jbvNull};

	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < n; i++)
	{
		if (answers[i])
			(void) push_message(&state, answers[i]);
		else
			(void) pushJsonbValue(&state, WJB_ELEM, &null);
	}
	return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL)));
}
