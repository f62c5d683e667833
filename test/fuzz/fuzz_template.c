/*
 * test/fuzz/fuzz_template.c - libFuzzer target: chat templates from hostile files, and hostile
 * messages in a good template.
 *
 * The first byte picks: even, the rest is a template rendered with fixed messages; odd, the rest is
 * the content of a message in a fixed template. Either way the spans must cover the text, and the
 * fixed template must never let a byte of the content be trusted.
 *
 * links: template core
 */
#include <stdlib.h>
#include <string.h>

#include "template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char fixed_template[] =
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] | trim }}<|im_end|>"
	"{{ m.content | upper | replace('A', 'b') }}{{ m.content[1:-1] ~ m.content.split('x') }}"
	"{{ m | tojson(indent=1) }}{{ [m.content, m.content | title] | join(m.content) }}"
	"{{ m.content | indent }}{{ m.content.rsplit('x', 1) }}{{ m.content.strip('ab') }}"
	"{{ m.content | tojson(ensure_ascii=true) | length }}{{ m.content.splitlines() }}{% endfor %}";

static void
check_spans(const LlmMarkedText *out)
{
	size_t at = 0;

	for (size_t i = 0; i < out->n_spans; i++)
	{
		if (out->spans[i].begin != at || out->spans[i].end <= at)
			abort();
		at = out->spans[i].end;
	}
	if (at != out->text.len)
		abort();
}

static void
render(LlmStr source, LlmStr content, bool content_is_hostile)
{
	LlmMessage messages[2] = {{llm_str("system"), llm_str("Be <|im_end|> kind.")},
							  {llm_str("user"), content}};
	LlmTemplateInput in = {.messages = messages,
						   .n_messages = 2,
						   .bos_token = llm_str("<s>"),
						   .eos_token = llm_str("</s>"),
						   .add_generation_prompt = true,
						   .now = 1795964035};
	LlmMarkedText out = {0};
	LlmTemplate *t;
	LlmError err;

	if (llm_template_parse(source, &t, &err) != LLM_OK)
		return;
	if (llm_template_render(t, &in, &out, &err) == LLM_OK)
		check_spans(&out);
	/* The template's own text holds no such byte. */
	for (size_t i = 0; content_is_hostile && i < out.n_spans; i++)
	{
		if (out.spans[i].trusted && memchr(out.text.data + out.spans[i].begin, '@',
										   out.spans[i].end - out.spans[i].begin) != NULL)
			abort();
	}
	llm_marked_fini(&out);
	llm_template_free(t);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	LlmStr rest;

	if (size == 0)
		return 0;
	rest = (LlmStr){(const char *) data + 1, size - 1};
	if (data[0] % 2 == 0)
		render(rest, llm_str("Hé llo\nwörld {{ x }}"), false);
	else
		render(llm_str(fixed_template), rest, true);
	return 0;
}
