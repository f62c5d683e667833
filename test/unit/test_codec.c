/*
 * test_codec.c - lists and messages of a SUBMIT, log-probabilities of a DONE.
 * links: server wire core
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/codec.h"
#include "wire/frame.h"

static ProtobufCBinaryData
bytes(const char *z)
{
	return (ProtobufCBinaryData){strlen(z), (uint8_t *) z};
}

static LlmStatus
check(const Llm__Submit *m, LlmRequest *r, void **lists, LlmError *e)
{
	return llm_codec_request(m, LLM__PREFIX_SCOPE__SCOPE_ROLE, r, lists, e);
}

/* A request that is fine but for what a test puts into it. */
static Llm__Submit
plain_submit(void)
{
	Llm__Submit m = LLM__SUBMIT__INIT;

	m.id = 1;
	m.model = 1;
	m.has_prompt = true;
	m.prompt = bytes("x");
	return m;
}

static void
test_fields(void **state)
{
	Llm__Submit m = plain_submit();
	int32_t tokens[] = {7, 9};
	float biases[] = {-100, 0.5f};
	LlmRequest r;
	void *lists;
	LlmError e;

	m.bias_token = m.allowed = m.forbidden = m.stop_token = tokens;
	m.n_bias_token = m.n_bias = m.n_allowed = 2;
	m.n_forbidden = m.n_stop_token = 1;
	m.bias = biases;
	m.has_min_tokens = m.has_logprobs = m.has_prompt_logprobs = m.has_top_logprobs = true;
	m.min_tokens = 3;
	m.logprobs = m.prompt_logprobs = true;
	m.top_logprobs = 20;
	m.has_reasoning = m.has_template_kwargs = true;
	m.reasoning = LLM__REASONING__REASONING_HIGH;
	m.template_kwargs = bytes("{\"a\":1}");
	assert_int_equal(check(&m, &r, &lists, &e), LLM_OK);
	assert_int_equal(r.n_bias, 2);
	assert_int_equal(r.bias[1].token, 9);
	assert_true(r.bias[0].bias == -100 && r.bias[1].bias == 0.5f);
	assert_int_equal(r.n_allowed, 2);
	assert_int_equal(r.allowed[1], 9);
	assert_int_equal(r.n_forbidden, 1);
	assert_int_equal(r.n_stop_tokens, 1);
	assert_int_equal(r.min_tokens, 3);
	assert_true(r.logprobs && r.prompt_logprobs);
	assert_int_equal(r.n_top, 20);
	assert_int_equal(r.reasoning, LLM_REASONING_HIGH);
	assert_int_equal(r.template_kwargs.len, 7);
	assert_null(r.messages);
	free(lists);
}

static void
test_messages(void **state)
{
	Llm__Submit m = plain_submit();
	Llm__Message a = LLM__MESSAGE__INIT;
	Llm__Message b = LLM__MESSAGE__INIT;
	Llm__Message *both[] = {&a, &b};
	LlmRequest r;
	void *lists;
	LlmError e;

	a.role = bytes("user");
	a.content = bytes("hello");
	b.role = bytes("assistant");
	b.content = bytes("");
	m.messages = both;
	m.n_messages = 2;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_PROTOCOL); /* beside a prompt */
	m.has_prompt = false;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_OK);
	assert_int_equal(r.n_messages, 2);
	assert_true(llm_str_eq(r.messages[0].role, "user"));
	assert_true(llm_str_eq(r.messages[0].content, "hello"));
	assert_true(llm_str_eq(r.messages[1].role, "assistant"));
	assert_int_equal(r.messages[1].content.len, 0);
	free(lists);
	m.kind = LLM__KIND__PIN;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_PROTOCOL);
	m.kind = LLM__KIND__GENERATE;
	b.role = bytes("tool");
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_PROTOCOL);
	assert_null(lists);
}

static void
test_limits(void **state)
{
	static int32_t many[LLM_TOKEN_LIST_MAX + 1];
	static float zeros[LLM_TOKEN_LIST_MAX + 1];
	Llm__Submit good = plain_submit();
	Llm__Submit m;
	float wrong[] = {100.5f, -101, NAN, INFINITY};
	LlmRequest r;
	void *lists;
	LlmError e;

	good.allowed = good.forbidden = good.stop_token = good.bias_token = many;
	good.n_allowed = good.n_forbidden = good.n_stop_token = LLM_TOKEN_LIST_MAX;
	good.n_bias_token = good.n_bias = LLM_TOKEN_LIST_MAX;
	good.bias = zeros;
	assert_int_equal(check(&good, &r, &lists, &e), LLM_OK);
	free(lists);
	for (int i = 0; i < 4; i++)
	{
		m = good;
		m.n_allowed += i == 0;
		m.n_forbidden += i == 1;
		m.n_stop_token += i == 2;
		m.n_bias_token += i == 3;
		assert_int_equal(check(&m, &r, &lists, &e), LLM_E_INVALID);
		assert_int_equal(e.limit, LLM_TOKEN_LIST_MAX);
		assert_int_equal(e.got, LLM_TOKEN_LIST_MAX + 1);
		assert_null(lists);
	}
	m = good;
	m.n_bias--;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_PROTOCOL);
	for (int i = 0; i < 4; i++)
	{
		m = good;
		m.bias = &wrong[i];
		m.n_bias = m.n_bias_token = 1;
		assert_int_equal(check(&m, &r, &lists, &e), LLM_E_INVALID);
	}
	m = good;
	m.has_top_logprobs = true;
	m.top_logprobs = LLM_TOP_LOGPROBS_MAX + 1;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_INVALID);
	m.top_logprobs = -1;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_INVALID);
	m = good;
	m.has_min_tokens = true;
	m.min_tokens = -1;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_INVALID);
	m = good;
	m.has_reasoning = true;
	m.reasoning = (Llm__Reasoning) 6;
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_PROTOCOL);
	m.has_reasoning = false;
	m.kind = (Llm__Kind) (LLM__KIND__UNPIN + 1);
	assert_int_equal(check(&m, &r, &lists, &e), LLM_E_PROTOCOL);
}

/* As many short messages, and as many tokens of one byte, as there may be come through the budget. */
static void
test_budget(void **state)
{
	Llm__Submit m = plain_submit();
	Llm__Message message = LLM__MESSAGE__INIT;
	Llm__Message **messages = calloc(LLM_MESSAGES_MAX, sizeof(*messages));
	int32_t *tokens = calloc(8 << 20, sizeof(*tokens));
	uint8_t *body = malloc(9 << 20);
	Llm__Frame f = LLM__FRAME__INIT;
	Llm__Frame *g;
	size_t n;

	assert_non_null(messages);
	assert_non_null(tokens);
	assert_non_null(body);
	message.role = bytes("user");
	message.content = bytes("");
	for (int i = 0; i < LLM_MESSAGES_MAX; i++)
		messages[i] = &message;
	f.body_case = LLM__FRAME__BODY_SUBMIT;
	f.submit = &m;
	m.messages = messages;
	m.n_messages = LLM_MESSAGES_MAX;
	n = llm__frame__pack(&f, body);
	g = llm_codec_unpack(body, n);
	assert_non_null(g);
	assert_int_equal(g->submit->n_messages, LLM_MESSAGES_MAX);
	llm_codec_free(g);
	m.n_messages = 0;
	m.tokens = tokens;
	m.n_tokens = 8 << 20;
	n = llm__frame__pack(&f, body);
	g = llm_codec_unpack(body, n);
	assert_non_null(g);
	assert_int_equal(g->submit->n_tokens, 8 << 20);
	llm_codec_free(g);
	free(messages);
	free(tokens);
	free(body);
}

/* Put a field of a length before what is at *at. */
static void
prepend(uint8_t **at, const uint8_t *end, uint8_t tag)
{
	size_t n = (size_t) (end - *at);

	*at -= 5; /* a varint may be longer than it has to be */
	for (int i = 0; i < 5; i++)
		(*at)[i] = (uint8_t) ((n >> (7 * i) & 127) | (i < 4 ? 128 : 0));
	*--*at = tag;
}

/* No message holds itself: what claims to be one in the other, however deep, costs no stack. */
static void
test_depth(void **state)
{
	static const uint8_t element[] = {0x08, 0, 0x15, 0, 0, 0, 0, 0x1a, 0};
	const int depth = 200000;
	size_t cap = (size_t) depth * (sizeof(element) + 6) + 100;
	uint8_t *body = malloc(cap);
	uint8_t *end = body + cap;
	uint8_t *at = end;

	assert_non_null(body);
	for (int i = 0; i < depth; i++)
	{
		at -= sizeof(element);
		memcpy(at, element, sizeof(element));
		prepend(&at, end,
				i + 1 < depth ? 0x22 : 0x6a); /* a field of the message itself, Done.logprobs */
	}
	*--at = 1;
	*--at = 0x08;            /* Done.id */
	prepend(&at, end, 0x42); /* Frame.done */
	llm_codec_free(llm_codec_unpack(at, (size_t) (end - at)));
	free(body);
}

static LlmStr
letter(const void *vocabulary, int32_t token)
{
	const char *letters = vocabulary;

	return (LlmStr){letters + token, token >= 0 && token < 26 ? 1 : 0};
}

static Llm__Frame *
unpack_one(const LlmBuf *out)
{
	uint32_t n;

	assert_int_equal(llm_frame_peek(out->data, out->len, &n), LLM_FRAME_WHOLE);
	assert_int_equal(out->len, n + LLM_FRAME_HEADER);
	return llm__frame__unpack(NULL, n, (const uint8_t *) out->data + LLM_FRAME_HEADER);
}

static void
test_logprobs(void **state)
{
	const LlmLogprob picked[] = {{1, -0.5f}, {1, -0.5f}, {2, -1}, {3, -INFINITY}, {3, 0}, {-1, 0}};
	const LlmLogprob prompt[] = {{4, NAN}, {-1, NAN}, {-1, NAN}};
	LlmResult r = {.key = {1, 5},
				   .completion_tokens = 2,
				   .prompt_tokens = 1,
				   .n_top = 2,
				   .logprobs = picked,
				   .prompt_logprobs = prompt,
				   .reasoning = {"why", 3},
				   .token_text = letter,
				   .vocabulary = "abcdefghijklmnopqrstuvwxyz"};
	LlmBuf out = {0};
	Llm__Frame *f;
	const Llm__Done *d;

	assert_true(llm_codec_append_result(&out, &r, false));
	f = unpack_one(&out);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_DONE);
	d = f->done;
	assert_true(d->has_reasoning);
	assert_memory_equal(d->reasoning.data, "why", 3);
	assert_int_equal(d->n_logprobs, 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(d->logprobs[i]->top, i != 0 && i != 3);
	assert_int_equal(d->logprobs[0]->token, 1);
	assert_true(d->logprobs[0]->logprob == -0.5f);
	assert_memory_equal(d->logprobs[0]->text.data, "b", 1);
	assert_int_equal(d->logprobs[2]->token, 2);
	assert_memory_equal(d->logprobs[2]->text.data, "c", 1);
	assert_true(isinf(d->logprobs[3]->logprob)); /* and has one beside it: there is no second */
	assert_int_equal(d->n_prompt_logprobs, 1);
	assert_int_equal(d->prompt_logprobs[0]->token, 4);
	assert_true(isnan(d->prompt_logprobs[0]->logprob));
	llm__frame__free_unpacked(f, NULL);
	llm_buf_fini(&out);
}

/* More of them than a frame holds: the request fails with the number, the connection lives. */
static void
test_logprobs_many(void **state)
{
	LlmLogprob one = {0, 0};
	LlmResult r = {.key = {1, 5},
				   .completion_tokens = 10 << 20,
				   .n_top = 0,
				   .logprobs = &one,
				   .token_text = letter,
				   .vocabulary = "a"};
	LlmBuf out = {0};
	Llm__Frame *f;

	assert_true(llm_codec_append_result(&out, &r, false));
	f = unpack_one(&out);
	assert_non_null(f);
	assert_int_equal(f->body_case, LLM__FRAME__BODY_ERROR);
	assert_int_equal(f->error->id, 5);
	assert_int_equal(f->error->status, LLM_E_CONTEXT);
	llm__frame__free_unpacked(f, NULL);
	llm_buf_fini(&out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields),        cmocka_unit_test(test_messages),
		cmocka_unit_test(test_limits),        cmocka_unit_test(test_budget),
		cmocka_unit_test(test_depth),         cmocka_unit_test(test_logprobs),
		cmocka_unit_test(test_logprobs_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
