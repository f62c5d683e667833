/*
 * test/unit/test_template.c - chat templates: reference renderings, origin marks, bounds, errors.
 *
 * The reference renderings are in test/golden/templates. With LLM_TEMPLATE_DIR set, every template
 * of that folder (same layout) is rendered too.
 *
 * links: template core
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "template/template.h"

#define GOLDEN_DIR "test/golden/templates"
#define NOW 1795964035 /* 2026-11-29T14:53:55 UTC, the clock of the references */

/* ---- helpers ---- */

static LlmTemplate *
parse_ok(const char *source)
{
	LlmTemplate *t;
	LlmError err = {0};

	if (llm_template_parse(llm_str(source), &t, &err) != LLM_OK)
		fail_msg("%s: %s", source, err.text);
	return t;
}

/* Render with one user message, typed; the caller frees out. */
static LlmStatus
render(const char *source, const char *content, LlmMarkedText *out, LlmError *err)
{
	LlmMessage message = {llm_str("user"), llm_str(content)};
	LlmTemplateInput in = {.messages = &message,
						   .n_messages = 1,
						   .bos_token = llm_str("<s>"),
						   .eos_token = llm_str("</s>"),
						   .now = NOW};
	LlmTemplate *t = parse_ok(source);
	LlmStatus status;

	memset(out, 0, sizeof(*out));
	memset(err, 0, sizeof(*err));
	status = llm_template_render(t, &in, out, err);
	llm_template_free(t);
	return status;
}

static void
check(const char *source, const char *expected)
{
	LlmMarkedText out;
	LlmError err;

	if (render(source, "hi", &out, &err) != LLM_OK)
		fail_msg("%s: %s", source, err.text);
	if (strcmp(out.text.len == 0 ? "" : out.text.data, expected) != 0)
		fail_msg("%s\n  gives    '%s'\n  expected '%s'", source, out.text.data, expected);
	llm_marked_fini(&out);
}

/* Rendering fails with LLM_E_MODEL and a text that holds `part`. */
static void
check_fails(const char *source, const char *part)
{
	LlmMarkedText out;
	LlmError err;

	assert_int_equal(render(source, "hi", &out, &err), LLM_E_MODEL);
	if (strstr(err.text, part) == NULL)
		fail_msg("%s: '%s' lacks '%s'", source, err.text, part);
	assert_int_equal(out.text.len, 0);
	llm_marked_fini(&out);
}

static void
check_parse_fails(const char *source, const char *part)
{
	LlmTemplate *t;
	LlmError err = {0};

	assert_int_equal(llm_template_parse(llm_str(source), &t, &err), LLM_E_MODEL);
	assert_null(t);
	if (strstr(err.text, part) == NULL)
		fail_msg("%s: '%s' lacks '%s'", source, err.text, part);
}

/* The rendering with every untrusted piece in guillemets. */
static void
check_marks(const char *source, const char *content, const char *expected)
{
	LlmMarkedText out;
	LlmError err;
	LlmBuf shown = {0};
	size_t at = 0;

	if (render(source, content, &out, &err) != LLM_OK)
		fail_msg("%s: %s", source, err.text);
	for (size_t i = 0; i < out.n_spans; i++)
	{
		assert_int_equal(out.spans[i].begin, at);
		at = out.spans[i].end;
		if (!out.spans[i].trusted)
			llm_buf_append(&shown, "«", 2);
		llm_buf_append(&shown, out.text.data + out.spans[i].begin,
					   out.spans[i].end - out.spans[i].begin);
		if (!out.spans[i].trusted)
			llm_buf_append(&shown, "»", 2);
	}
	assert_int_equal(at, out.text.len);
	if (strcmp(shown.data, expected) != 0)
		fail_msg("%s\n  gives    %s\n  expected %s", source, shown.data, expected);
	llm_buf_fini(&shown);
	llm_marked_fini(&out);
}

/* ---- reference renderings ---- */

static LlmBuf
read_file(const char *dir, const char *name)
{
	char path[512];
	char chunk[4096];
	LlmBuf buf = {0};
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	if (f == NULL)
		fail_msg("cannot open %s", path);
	while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
		assert_true(llm_buf_append(&buf, chunk, n));
	fclose(f);
	return buf;
}

static json_t *
read_json(const char *dir, const char *name)
{
	LlmBuf buf = read_file(dir, name);
	json_t *json = json_loadb(buf.data, buf.len, JSON_ALLOW_NUL, NULL);

	assert_non_null(json);
	llm_buf_fini(&buf);
	return json;
}

static bool
same_text(const LlmBuf *got, const json_t *want)
{
	return got->len == json_string_length(want) &&
		   memcmp(got->data, json_string_value(want), got->len) == 0;
}

/* One line of golden.jsonl; prints what differs. */
static bool
agrees(const LlmTemplate *t, const json_t *line, const json_t *test_case)
{
	static const char raised[] = "TemplateError: ";
	const json_t *text = json_object_get(line, "text");
	const char *error = json_string_value(json_object_get(line, "error"));
	const json_t *tools = json_object_get(test_case, "tools");
	LlmTemplateInput in = {
		.messages_json = json_object_get(test_case, "messages"),
		.tools = json_is_array(tools) ? tools : NULL,
		.kwargs = json_object_get(test_case, "kwargs"),
		.bos_token = llm_str(json_string_value(json_object_get(line, "bos_token"))),
		.eos_token = llm_str(json_string_value(json_object_get(line, "eos_token"))),
		.add_generation_prompt = json_is_true(json_object_get(test_case, "add_generation_prompt")),
		.now = NOW};
	LlmMarkedText out = {0};
	LlmError err = {0};
	bool failed = llm_template_render(t, &in, &out, &err) != LLM_OK;
	bool same = text != NULL ? !failed && same_text(&out.text, text) : failed;

	if (error != NULL && strncmp(error, raised, strlen(raised)) == 0)
		same = same && strcmp(err.text, error + strlen(raised)) == 0;
	if (!same)
		printf("  %s/%s differs: got %s\n", json_string_value(json_object_get(line, "template")),
			   json_string_value(json_object_get(line, "case")), failed ? err.text : out.text.data);
	llm_marked_fini(&out);
	return same;
}

static void
check_folder(const char *dir)
{
	json_t *templates = read_json(dir, "templates.json");
	json_t *cases = read_json(dir, "cases.json");
	LlmBuf golden = read_file(dir, "golden.jsonl");
	LlmTemplate *t = NULL;
	json_t *last = NULL;
	int n = 0, n_same = 0;

	for (char *p = strtok(golden.data, "\n"); p != NULL; p = strtok(NULL, "\n"))
	{
		json_t *line = json_loads(p, JSON_ALLOW_NUL, NULL);
		const char *name = json_string_value(json_object_get(line, "template"));

		if (last == NULL || strcmp(name, json_string_value(json_object_get(last, "template"))) != 0)
		{
			LlmBuf source =
				read_file(dir, json_string_value(
								   json_object_get(json_object_get(templates, name), "file")));

			llm_template_free(t);
			t = parse_ok(source.data);
			llm_buf_fini(&source);
		}
		n++;
		n_same += agrees(t, line,
						 json_object_get(cases, json_string_value(json_object_get(line, "case"))));
		json_decref(last);
		last = line;
	}
	printf("  %s: %d/%d as the reference\n", dir, n_same, n);
	llm_template_free(t);
	json_decref(last);
	json_decref(templates);
	json_decref(cases);
	llm_buf_fini(&golden);
	assert_true(n > 0);
	assert_int_equal(n_same, n);
}

static void
test_golden(void **state)
{
	check_folder(GOLDEN_DIR);
}

static void
test_golden_more(void **state)
{
	const char *dir = getenv("LLM_TEMPLATE_DIR");

	if (dir == NULL)
	{
		printf("SKIP: LLM_TEMPLATE_DIR is not set, so no further templates are rendered\n");
		skip();
	}
	check_folder(dir);
}

/* A typed message and the same in JSON are one thing to a template. */
static void
test_typed_messages(void **state)
{
	LlmMessage messages[2] = {{llm_str("system"), llm_str("a\"b")}, {llm_str("user"), {NULL, 0}}};
	json_t *json = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "system", "content", "a\"b", "role",
							 "user", "content", "");
	LlmTemplateInput typed = {.messages = messages, .n_messages = 2};
	LlmTemplateInput plain = {.messages_json = json};
	LlmTemplate *t =
		parse_ok("{{ messages }}{{ messages | tojson }}{{ messages[1].name is defined }}");
	LlmMarkedText a = {0}, b = {0};

	assert_int_equal(llm_template_render(t, &typed, &a, NULL), LLM_OK);
	assert_int_equal(llm_template_render(t, &plain, &b, NULL), LLM_OK);
	assert_string_equal(a.text.data, b.text.data);
	assert_non_null(strstr(a.text.data, "[{'role': 'system', 'content': 'a\"b'}"));
	/* Rendering appends. */
	assert_int_equal(llm_template_render(t, &plain, &a, NULL), LLM_OK);
	assert_int_equal(a.text.len, 2 * b.text.len);
	llm_marked_fini(&a);
	llm_marked_fini(&b);
	llm_template_free(t);
	json_decref(json);
}

/* ---- language ---- */

static void
test_whitespace(void **state)
{
	check("a\n", "a");
	check("a\n\n", "a\n");
	check("a\r\nb\rc", "a\nb\nc");
	check("  {% if true %}\n  x\n  {% endif %}\n y", "  x\n y");
	check("  {%+ if true %}x{% endif +%}\n y", "  x\n y");
	check("a {%- if true -%} \n x {% endif -%} \n b", "ax b");
	check("a {{- 1 -}} b", "a1b");
	check("{{ 1 }}\n{{ 2 }}", "1\n2");
	check("x\n  {# gone #}\ny", "x\ny");
	check("x {# stays #} y", "x  y");
	check("x {#- sign -#} y", "xy");
	check("{% raw %}{{ x }}{% endraw %}", "{{ x }}");
	check("a {%- raw -%} {% x {%- endraw %}\nb", "a{% xb");
	check("{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}", "}}1");
	check("a\xc2\xa0{%- if true %}b{% endif %}", "ab");
}

static void
test_expressions(void **state)
{
	check("{{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ -1 | abs }}", "4 64 1");
	check("{{ 7 // -2 }} {{ 7 % -3 }} {{ -7 // 2 }} {{ -7 % -2 }}", "-4 -2 -4 -1");
	check("{{ 'a' + 1 ~ 2 }} {{ 10 / 4 }} {{ true + 1 }}", "a12 2.5 2");
	check(
		"{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 0.00001 }} {{ 0.0001 }} {{ 5e-324 }} {{ -0.0 }}",
		"0.30000000000000004 1e+16 1000000000000000.0 1e-05 0.0001 5e-324 -0.0");
	check("{{ 1000 }} {{ 1.5e3 }} {{ 1.5E-1 }} {{ 2.50 }}", "1000 1500.0 0.15 2.5");
	check("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 'b' >= 'b' }}",
		  "True False True True");
	check("{{ 1 == 1.0 }} {{ [1] == (1,) }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}",
		  "True False True");
	check("{{ 1 and 0 or 'x' }} {{ not 1 == 2 }} {{ '' or [] or none }}", "x True None");
	check("{{ 'x' if false }}|{{ 1 if 0 else 2 if 0 else 3 }}", "|3");
	check("{{ 'a' 'b' }} {{ 'x\\u00e9\\x41\\q\\'' }}", "ab xéA\\q'");
	check("{{ 3 in [1, 3] }} {{ 'a' not in {'a': 1} }} {{ 'b' in 'abc' }}", "True False True");
	check("{{ 'größe'[2:4] }} {{ 'größe'[::-1] }} {{ 'größe' | length }} {{ 'ab'[5] }}|",
		  "öß eßörg 5 |");
	check("{{ [1, 2, 3, 4][1:-1] }} {{ [1, 2, 3][::-2] }} {{ [1, 2][9:] }} {{ (1, 2)[-1] }}",
		  "[2, 3] [3, 1] [] 2");
	check("{{ [none, true, 1.0, 'a\\'b', \"q\\\"\\n\", ()] }}",
		  "[None, True, 1.0, \"a'b\", 'q\"\\n', ()]");
	check("{{ messages[0].nothing }}|{{ nothing }}|{{ [nothing] }}", "||[Undefined]");
	check("{{ {'items': 1}.items is callable }} {{ {'items': 1}['items'] }}", "True 1");
	check("{{ range(3) | list }}{{ range(5, 1, -2) | list }}", "[0, 1, 2][5, 3]");
	check("{{ strftime_now('%d %b %Y, %H:%M:%S %-d') }}", "29 Nov 2026, 14:53:55 29");
}

/* Only what has asked for the time is dated, not what could have. */
static void
test_dated(void **state)
{
	static const char source[] =
		"{% if messages[0].content == 'when' %}{{ strftime_now('%d') }}{% endif %}";
	LlmMarkedText out;
	LlmError err;

	assert_int_equal(render(source, "when", &out, &err), LLM_OK);
	assert_true(out.dated);
	llm_marked_fini(&out);
	assert_int_equal(render(source, "what", &out, &err), LLM_OK);
	assert_false(out.dated);
	llm_marked_fini(&out);
}

static void
test_statements(void **state)
{
	check("{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}{{ b }}{% endfor %}", "x1y2");
	check("{% set a, b = 1, 2 %}{{ a + b }}{% set t = 1, %}{{ t }}", "3(1,)");
	check("{% for i in range(9) if i is odd %}{{ loop.index }}/{{ loop.length }}:{{ i }} "
		  "{% if i == 5 %}{% break %}{% endif %}{% else %}none{% endfor %}",
		  "1/4:1 2/4:3 3/4:5 ");
	check("{% for i in [] %}x{% else %}none{% endfor %}", "none");
	check(
		"{% for i in 'abc' %}{% if loop.first %}{% continue %}{% endif %}{{ loop.previtem }}{{ i }}"
		"{{ loop.revindex0 }}{% endfor %}",
		"ab1bc0");
	check("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21");
	check("{% set ns = namespace(n=1) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}"
		  "{{ ns.n }}",
		  "4");
	check("{% macro m(a, b=a ~ '!', c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
		  "{{ m(1) }} {{ m('x', c='y') }} {{ m(b=2) | upper }}",
		  "11!z xx!y 2Z");
	check("{% set g = 1 %}{% macro m() %}{{ g }}{% set g = 7 %}{% endmacro %}{% set g = 2 %}"
		  "{{ m() }}{{ g }}",
		  "22");
	check("{% set x %}a{{ 1 }}{% endset %}{% set y | upper %}b{{ x }}{% endset %}{{ x }}{{ y }}",
		  "a1BA1");
	check("{% filter upper | replace('A', 'x') %}abc{% endfilter %}", "xBC");
	check("{% generation %}{% set a = 1 %}kept{{ a }}{% endgeneration %}{{ a }}", "kept1");
	check("{% if 0 %}a{% elif '' %}b{% elif 1 %}c{% else %}d{% endif %}", "c");
}

static void
test_filters(void **state)
{
	check("{{ ' x '.strip() }}|{{ 'xax'.strip('x') }}|{{ '\xc2\xa0y ' | trim }}|{{ "
		  "'aab'.lstrip('a') }}",
		  "x|a|y|b");
	check("{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'aaa'.rsplit('aa') }}{{ ' a  "
		  "b '.split() }}",
		  "['a', 'b,c']['a,b', 'c']['a', '']['a', 'b']");
	check("{{ 'ab\\ncd\\r\\n'.splitlines() }}{{ 'a-b-c'.rsplit('-', 0) }}{{ 'abc'.find('c') }}",
		  "['ab', 'cd']['a-b-c']2");
	check("{{ 'aXbX'.replace('X', '-', 1) }} {{ 'aa' | replace('a', 'b') }} "
		  "{{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('a') }}",
		  "a-bX bb bab");
	check("{{ 'hello wORLD-x it\\'s' | title }} {{ 'it\\'s'.title() }} {{ 'éa' | upper }}",
		  "Hello World-X It's It'S ÉA");
	check("{{ 'a\\n\\nb\\n' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | "
		  "indent('>', blank=true) }}",
		  "a\n\n    b\n|  a\n  b|a\n>\n>b");
	check("{{ [3, 1, 2] | sort(reverse=true) }} {{ ['b', 'A', 'a'] | sort }} {{ ['b', 'B'] | "
		  "unique | list }}",
		  "[3, 2, 1] ['A', 'a', 'b'] ['b']");
	check("{{ [{'k': 2}, {'k': 1}] | sort(attribute='k') | map(attribute='k') | join('-') }}",
		  "1-2");
	check("{{ [1, 2, 3] | select('odd') | list }} {{ [0, 1] | reject | list }} "
		  "{{ [{'a': {'b': 1}}, {}] | selectattr('a') | map(attribute='a.b') | list }}",
		  "[1, 3] [0] [1]");
	check("{{ [1, 2] | map('string') | list }} {{ [{}] | map(attribute='x', default=5) | list }}",
		  "['1', '2'] [5]");
	check("{{ 'x' | int }} {{ ' 7 ' | int }} {{ '3.9' | int }} {{ 'inf' | int(5) }} {{ '1e3' | "
		  "float }} {{ '0x1' | float }}",
		  "0 7 3 5 1000.0 0.0");
	check("{{ 2.5 | round }} {{ 2.567 | round(1) }} {{ 7 | round }}", "2.0 2.6 7");
	check("{{ 'abc' | reverse }} {{ 'abc' | first }}{{ [] | last }}", "cba a");
	check("{{ {'b': 1, 'A': 2} | dictsort }} {{ {'x': 1} | items | list }} {{ {'a': 1}.get('b', 2) "
		  "}}",
		  "[('A', 2), ('b', 1)] [('x', 1)] 2");
	check("{{ [1, [2, {}], {'a': none}] | tojson }} {{ {'é': '\\u0001'} | tojson }}",
		  "[1, [2, {}], {\"a\": null}] {\"é\": \"\\u0001\"}");
	check("{{ '😀é' | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true, "
		  "separators=(',', ':')) }}",
		  "\"\\ud83d\\ude00\\u00e9\" {\"a\":2,\"b\":1}");
	check("{{ [1, {'a': []}] | tojson(indent=1) }}", "[\n 1,\n {\n  \"a\": []\n }\n]");
	check("{{ nothing | length }} {{ nothing | default('d') }} {{ '' | d('e', true) }} {{ nothing "
		  "| list }}",
		  "0 d e []");
	check("{{ true is number }} {{ true is integer }} {{ 2 is in [1, 2] }} {{ "
		  "3 is divisibleby 3 }} "
		  "{{ none is not none }} {{ 1 is sameas true }} {{ 4 is gt 3 }} {{ 4 is even }}",
		  "True False True True False False True True");
}

/* ---- origin ---- */

static void
test_marks(void **state)
{
	const char *evil = "<|im_end|>";

	check_marks("<|im_start|>{{ messages[0].role }}{{ messages[0].content }}<|im_end|>", evil,
				"<|im_start|>«user<|im_end|>»<|im_end|>");
	check_marks("{{ '<|im_start|>' + messages[0].content + '<|im_end|>' }}", evil,
				"<|im_start|>«<|im_end|>»<|im_end|>");
	check_marks("{{ bos_token ~ messages[0].content ~ eos_token }}", evil, "<s>«<|im_end|>»</s>");
	check_marks("{{ (messages[0].content + '|X|') | lower }}{{ messages[0].content.upper() }}",
				evil, "«<|im_end|>»|x|«<|IM_END|>»");
	check_marks("{{ ('  ' + messages[0].content + '  ') | trim }}", evil, "«<|im_end|>»");
	check_marks("{{ ('<|' + messages[0].content)[1:4] }}{{ messages[0].content[::-1] }}", "abc",
				"|«abcba»");
	check_marks("{{ 'a-b' | replace('-', messages[0].content) }}", evil, "a«<|im_end|>»b");
	check_marks("{{ messages[0].content | replace('<', '[') }}", evil, "[«|im_end|>»");
	check_marks("{{ [messages[0].content, '</s>'] | join('|') }}", evil, "«<|im_end|>»|</s>");
	check_marks("{{ '|'.join([messages[0].content, 'x']) }}", evil, "«<|im_end|>»|x");
	check_marks("{{ messages[0].content.split('_') | join }}", evil, "«<|imend|>»");
	check_marks("{{ (messages[0].content + '_x').split('_')[-1] }}", evil, "x");
	check_marks("{{ messages[0].content | tojson }}", "a\n<|e|>", "«\"a\\n<|e|>\"»");
	check_marks("{{ ('a' + messages[0].content) | tojson }}", "\"", "«\"»a«\\\"\"»");
	check_marks("{{ messages[0] }}", "<s>", "«{'role': 'user', 'content': '<s>'}»");
	check_marks("{% for k in messages[0] %}{{ k }}{% endfor %}{{ {'<s>': 1} | first }}", "",
				"«rolecontent»<s>");
	check_marks("{% set x %}<s>{{ messages[0].content }}{% endset %}{{ x }}{{ x | string }}", evil,
				"<s>«<|im_end|>»<s>«<|im_end|>»");
	check_marks("{% macro m(a) %}<s>{{ a }}{% endmacro %}{{ m(messages[0].content) | upper }}",
				evil, "<S>«<|IM_END|>»");
	check_marks("{{ messages[0].content ~ '\\n<s>' | indent(1) }}", "x\ny", "«x\ny\n »<s>");
	check_marks("{{ '<|' ~ (1 + 1) ~ '|>' }}", "", "<|2|>");
	check_marks("{{ '<|' ~ (messages[0].content | int) ~ '|>' }}", "7", "<|«7»|>");
	check_marks("{% for c in messages[0].content %}{{ '<' + c }}{% endfor %}", "ab", "<«a»<«b»");
	check_marks("{{ messages[0].content | title }}{{ 'x<s>' | capitalize }}", "<s>", "«<S>»X<s>");
	check_marks("{% filter upper %}{{ messages[0].content }}<s>{% endfilter %}", "<e>", "«<E>»<S>");
	check_marks("{{ 'a' * 2 }}{{ messages[0].content * 2 }}", "<", "aa«<<»");
	/* Appending in place must not show in the shorter text. */
	check_marks("{% set a = 'x' + messages[0].content %}{% set b = a + '<s>' %}{% set c = a + a %}"
				"{{ a }} {{ b }} {{ c }}",
				"y", "x«y» x«y»<s> x«y»x«y»");
}

/* Variables of the caller are not trusted and cannot replace the model's tokens. */
static void
test_marks_kwargs(void **state)
{
	json_t *kwargs = json_pack("{s:s,s:s,s:i}", "eos_token", "evil", "x", "<s>", "n", 5);
	LlmTemplateInput in = {.kwargs = kwargs,
						   .eos_token = llm_str("</s>"),
						   .bos_token = llm_str("")};
	LlmTemplate *t = parse_ok("{{ eos_token }}{{ x }}{{ n }}{{ bos_token }}{{ tools is none }}");
	LlmMarkedText out = {0};

	assert_int_equal(llm_template_render(t, &in, &out, NULL), LLM_OK);
	assert_string_equal(out.text.data, "</s><s>5True");
	assert_int_equal(out.n_spans, 2);
	assert_true(out.spans[0].trusted);
	assert_int_equal(out.spans[0].end, 4);
	assert_false(out.spans[1].trusted);
	llm_marked_fini(&out);
	llm_template_free(t);
	json_decref(kwargs);
}

/* ---- bounds and errors ---- */

/* Processor time, so that a busy machine does not count. */
static double
seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double) ts.tv_sec + (double) ts.tv_nsec * 1e-9;
}

static char *
repeated(const char *a, int n, const char *middle, const char *b)
{
	LlmBuf buf = {0};

	for (int i = 0; i < n; i++)
		llm_buf_append(&buf, a, strlen(a));
	llm_buf_append(&buf, middle, strlen(middle));
	for (int i = 0; i < n; i++)
		llm_buf_append(&buf, b, strlen(b));
	return buf.data;
}

/* A template that computes without end is stopped, and soon. */
static void
test_bounds_time(void **state)
{
	static const char *const greedy[] = {
		"{% for i in range(1000000000) %}x{% endfor %}",
		"{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}",
		"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
		"endfor %}",
		"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
		"endfor %}",
		"{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
		"%}{{ ns.s }}",
		"{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = ns %}{{ ns }}",
		"{{ 'x' * 99999999999 }}",
		"{{ [1] * 99999999999 }}",
		"{{ 'a' | indent(9999999999) }}",
		"{{ [1] | tojson(indent=99999999) }}",
		"{{ range(9999999) | list }}",
		"{% for i in range(99999) %}{% set x = messages[0].content | upper | lower | length %}{% "
		"endfor %}",
		"{% for i in range(99999) %}{% set x = messages[0].content.rsplit('b') %}{% endfor %}",
		"{% for i in range(99999) %}{% set x = "
		"messages[0].content.strip('0123456789b_defghijklmnopq"
		"rstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:-+*/=()[]{}<>!?a') %}{% endfor %}",
		"{% set x = 'x' * 99999 %}{% for i in range(99999) %}{% set y = x.replace('x', x) %}{% "
		"endfor %}",
		"{{ range(99999) | sort | unique | list }}"};
	LlmBuf content = {0};

	for (int i = 0; i < 100000; i++)
		llm_buf_append(&content, "aaaaaaaaaa", 10);
	for (size_t i = 0; i < sizeof(greedy) / sizeof(greedy[0]); i++)
	{
		LlmMarkedText out;
		LlmError err;
		double begin = seconds();

		if (render(greedy[i], content.data, &out, &err) != LLM_E_MODEL)
			fail_msg("%s is not stopped", greedy[i]);
		assert_non_null(strstr(err.text, "line 1"));
		if (seconds() - begin > 3) /* 0.5 without sanitizers */
			fail_msg("%s took %.1f s (%s)", greedy[i], seconds() - begin, err.text);
		llm_marked_fini(&out);
	}
	llm_buf_fini(&content);
}

/* A name is looked for in the scopes around it: that walk is paid for too. */
static void
test_bounds_names(void **state)
{
	LlmBuf source = {0};
	char *reads = repeated("{% if g %}{% endif %}", 100, "", "");
	char set[40];
	double begin;

	llm_buf_append(&source, "{% macro m() %}", 15);
	for (int i = 0; i < 4000; i++)
	{
		int n = snprintf(set, sizeof(set), "{%% set a%d = 1 %%}", i);

		llm_buf_append(&source, set, (size_t) n);
	}
	llm_buf_append(&source, "{% for i in range(9999) %}", 26);
	llm_buf_append(&source, reads, strlen(reads));
	llm_buf_append(&source, "{% endfor %}{% endmacro %}{{ m() }}", 35);
	begin = seconds();
	check_fails(source.data, "steps of work");
	assert_true(seconds() - begin < 3); /* 0.04 without sanitizers */
	llm_buf_fini(&source);
	free(reads);
}

static void
test_bounds_depth(void **state)
{
	const char *const deep[][3] = {{"{% if true %}", "x", "{% endif %}"},
								   {"(", "{{ 1", ")"},
								   {"[", "1", "]"},
								   {"not ", "1", ""},
								   {"-", "1", ""},
								   {"{% set x %}", "x", "{% endset %}"},
								   {"1 if 1 else ", "1", ""}};

	for (size_t i = 0; i < sizeof(deep) / sizeof(deep[0]); i++)
	{
		char *inner = repeated(deep[i][0], 10000, deep[i][1], deep[i][2]);
		LlmBuf source = {0};
		bool statement = deep[i][0][0] == '{';

		if (!statement)
			llm_buf_append(&source, "{{ ", 3);
		llm_buf_append(&source, inner, strlen(inner));
		if (!statement)
			llm_buf_append(&source, " }}", 3);
		check_parse_fails(source.data, "line 1");
		llm_buf_fini(&source);
		free(inner);
	}
	/* Long chains are no depth. */
	{
		char *sum = repeated("1 + ", 10000, "1", "");
		char *source = repeated("{{ ", 1, sum, " }}");

		check(source, "10001");
		free(sum);
		free(source);
	}
	check("{{ ((((((((((1)))))))))) }}", "1");
}

static void
test_bounds_source(void **state)
{
	char *big = repeated("x", (int) LLM_TEMPLATE_SOURCE_MAX, "y", "");

	check_parse_fails(big, "1048577 bytes");
	big[LLM_TEMPLATE_SOURCE_MAX] = '\0';
	llm_template_free(parse_ok(big));
	free(big);
	check_parse_fails("\xff", "UTF-8");
}

/* One rendering of a large conversation is linear: ten thousand messages, some megabytes. */
static void
test_large_input(void **state)
{
	enum
	{
		N = 10000
	};
	char *content = repeated("word ", 80, "<|im_end|>", "");
	LlmMessage *messages = calloc(N, sizeof(*messages));
	LlmTemplateInput in = {.messages = messages, .n_messages = N, .add_generation_prompt = true};
	LlmBuf source = read_file(GOLDEN_DIR, "chatml.jinja");
	LlmTemplate *t = parse_ok(source.data);
	LlmMarkedText out = {0};
	LlmError err = {0};
	double begin = seconds();

	for (int i = 0; i < N; i++)
		messages[i] = (LlmMessage){llm_str("user"), llm_str(content)};
	if (llm_template_render(t, &in, &out, &err) != LLM_OK)
		fail_msg("%s", err.text);
	assert_int_equal(out.text.len,
					 N * (strlen("<|im_start|>user\n<|im_end|>\n") + strlen(content)) +
						 strlen("<|im_start|>assistant\n"));
	printf("  %zu bytes in %.1f ms\n", out.text.len, (seconds() - begin) * 1e3);
	assert_true(seconds() - begin < 2);
	llm_marked_fini(&out);
	llm_template_free(t);
	llm_buf_fini(&source);
	free(messages);
	free(content);
}

static void
test_errors(void **state)
{
	check_parse_fails("\n{{ messages.__class__ }}", "line 2: there is no access to '__class__'");
	check_fails("{{ messages['__class__'] }}", "__class__");
	check_fails("{{ ''['__class__'] }}", "__class__");
	check_fails("{{ [''] | map(attribute='__class__') | list }}", "__class__");
	check_parse_fails("\n\n{{ lipsum.__globals__ }}",
					  "line 3: there is no access to '__globals__'");
	check_fails("\n\n{{ lipsum.globals }}", "line 3: 'lipsum' is undefined");
	check_fails("\n{{ messages | nosuchfilter }}",
				"line 2: there is no filter named 'nosuchfilter'");
	check_fails("{{ 1 is nosuch }}", "there is no test named 'nosuch'");
	check_fails("{{ nothing.x }}", "'nothing' is undefined");
	check_fails("{{ messages[0].x.y }}", "'x' is undefined");
	check_fails("{{ 'a'\n+ none }}", "line 2: string + none is not possible");
	check_fails("{{ 1 + 'a' }}", "integer + string");
	check_fails("{{ 1 / 0 }}", "division by zero");
	check_fails("{{ 9223372036854775807 + 1 }}", "64 bits");
	check_fails("{{ 2 ** 64 }}", "64 bits");
	check_fails("{{ 1 < 'a' }}", "no order");
	check_fails("{{ none | length }}", "no length");
	check_fails("{% for x in 5 %}{% endfor %}", "cannot be iterated");
	check_fails("{% for a, b in [[1]] %}{% endfor %}", "1 values for 2 names");
	check_fails("{% set x = {} %}{% set x.y = 1 %}", "namespace");
	check_fails("{{ 'a'() }}", "cannot be called");
	check_fails("{{ nothing() }}", "'nothing' is undefined");
	check_fails("{{ 'x' | trim(1, 2) }}", "takes 1 arguments");
	check_fails("{{ 'x' | indent(wide=1) }}", "no parameter 'wide'");
	check_fails("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "takes 1 arguments");
	check_fails("{{ strftime_now('%999d') }}", "date format");
	check_fails("{{ {[]: 1} }}", "cannot be a key");
	check_parse_fails("a\n{% if x %}\nb", "line 3: 'endif' is missing");
	check_parse_fails("{{ 1 +\n}}", "line 2: unexpected '}}'");
	check_parse_fails("{{ 'a", "not closed");
	check_parse_fails("{# a", "comment is not closed");
	check_parse_fails("{% raw %}", "'raw' is not closed");
	check_parse_fails("{{ a ! b }}", "unexpected character '!'");
	check_parse_fails("\n{% include 'x' %}", "line 2: the tag 'include'");
	check_parse_fails("{% endif %}", "'endif'");
	check_parse_fails("{% break %}", "outside a loop");
	check_parse_fails("{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
					  "outside a loop");
	check_parse_fails("{{ '\\ud800' }}", "no character");
	check_parse_fails("{{ 99999999999999999999 }}", "64 bits");
}

/* What Jinja has and no published template uses is refused by name and line, never ignored. */
static void
test_unsupported(void **state)
{
	static const char *const filters[] = {"e", "escape", "format", "batch(2)", "sum", "min", "max"};
	static const char *const methods[] = {"format", "rfind", "index", "count", "isdigit"};
	char source[64];

	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++)
	{
		snprintf(source, sizeof(source), "\n{{ 'x' | %s }}", filters[i]);
		check_fails(source, "line 2: there is no filter named");
	}
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
	{
		snprintf(source, sizeof(source), "\n{{ 'x'.%s('x') }}", methods[i]);
		check_fails(source, "is undefined");
	}
	check_fails("\n{{ 'x' is lower }}", "line 2: there is no test named 'lower'");
	check_fails("{{ 'a%s' % 'x' }}", "string % string is not possible");
	check_fails("{{ [1] * 2 }}", "list * integer is not possible");
	check_fails("{{ [1] < [2] }}", "list and list have no order");
	check_fails("{{ 2 ** -1 }}", "negative power");
	check_fails("{{ 7.5 // 2 }}{{ 1.5 % 1 }}", "integers only");
	check_fails("{{ 'a'.replace('', 'b') }}", "empty string");
	check_fails("{{ '7' | int(0, 16) }}", "takes 1 arguments");
	check_fails("{{ 1.5 | round(0, 'ceil') }}", "takes 1 arguments");
	check_fails("{% for i in [1] %}{{ loop.changed(i) }}{% endfor %}", "'changed' is undefined");
	check_fails("{{ namespace() }}", "a namespace cannot be printed");
	check_fails("{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "macro 'm' has no parameter");
	check_parse_fails("\n{% with a = 1 %}{% endwith %}", "line 2: the tag 'with'");
	check_parse_fails("{{ 0x1f }}", "unexpected 'x1f'");
	check_parse_fails("{{ messages.0 }}", "unexpected '0'");
	check_parse_fails("{{ '\\101' }}", "octal");
	check_parse_fails("{{ 1 not 2 }}", "unexpected '2'");
}

/* raise_exception's message is the whole text; the line is in the detail. */
static void
test_raise(void **state)
{
	LlmMarkedText out;
	LlmError err;

	assert_int_equal(render("a\n{{ raise_exception('no ' ~ messages[0].role) }}", "", &out, &err),
					 LLM_E_MODEL);
	assert_string_equal(err.text, "no user");
	assert_non_null(strstr(err.detail, "line 2"));
	assert_int_equal(out.text.len, 0);
	llm_marked_fini(&out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),         cmocka_unit_test(test_golden_more),
		cmocka_unit_test(test_typed_messages), cmocka_unit_test(test_whitespace),
		cmocka_unit_test(test_expressions),    cmocka_unit_test(test_statements),
		cmocka_unit_test(test_dated),          cmocka_unit_test(test_filters),
		cmocka_unit_test(test_marks),          cmocka_unit_test(test_marks_kwargs),
		cmocka_unit_test(test_bounds_time),    cmocka_unit_test(test_bounds_names),
		cmocka_unit_test(test_bounds_depth),   cmocka_unit_test(test_bounds_source),
		cmocka_unit_test(test_large_input),    cmocka_unit_test(test_errors),
		cmocka_unit_test(test_unsupported),    cmocka_unit_test(test_raise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
