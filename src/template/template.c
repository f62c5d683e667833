/* template/template.c - parsing and rendering: the two entrances of this folder. */
#include "template/template.h"

#include <stdlib.h>
#include <string.h>

#include "template/eval.h"
#include "template/parser.h"

#define PARSE_MEMORY ((size_t) 4 << 20)
#define PARSE_MEMORY_PER_BYTE 128
#define RENDER_MEMORY ((size_t) 16 << 20)

/* The only setjmp of a parse. What changes meanwhile lies in the caller's frame. */
static LlmStatus
parse(LlmRun *run, LlmTemplate *t, LlmStr source)
{
	if (setjmp(run->fail) != 0)
		return run->status;
	llm_tmpl_parse(run, t, source);
	return LLM_OK;
}

LlmStatus
llm_template_parse(LlmStr source, LlmTemplate **out, LlmError *err)
{
	LlmStatus status;
	LlmTemplate *t;
	LlmRun run = {.steps = INT64_MAX, .nest_max = LLM_TEMPLATE_DEPTH_MAX, .line = 1, .err = err};

	*out = NULL;
	if (source.len > LLM_TEMPLATE_SOURCE_MAX)
	{
		llm_error_set(err, LLM_E_MODEL, "the chat template has %zu bytes, more than %zu",
					  source.len, LLM_TEMPLATE_SOURCE_MAX);
		llm_error_numbers(err, (int64_t) source.len, (int64_t) LLM_TEMPLATE_SOURCE_MAX);
		return LLM_E_MODEL;
	}
	if (!llm_utf8_valid(source.p, source.len))
		return llm_error_set(err, LLM_E_MODEL, "the chat template is not valid UTF-8");
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a chat template");
	run.arena = &t->arena;
	run.limit = PARSE_MEMORY + source.len * PARSE_MEMORY_PER_BYTE;
	status = parse(&run, t, source);
	if (status == LLM_OK)
		*out = t;
	else
		llm_template_free(t);
	return status;
}

void
llm_template_free(LlmTemplate *t)
{
	if (t == NULL)
		return;
	llm_arena_fini(&t->arena);
	free(t);
}

/* Set a variable if the template mentions it. */
static void
set_global(LlmRender *r, const LlmTemplate *t, LlmStr name, LlmValue value)
{
	const LlmSym *sym = llm_tmpl_sym_find(t, name);

	if (sym != NULL)
		r->globals[sym->id] = value;
}

static LlmValue
borrowed(LlmRender *r, LlmStr s, bool trusted)
{
	llm_tmpl_allow_input(&r->run, s.len);
	return llm_tmpl_str_borrow(&r->run, s, trusted);
}

/* The messages as a list of mappings, whichever form they came in. */
static LlmValue
messages_value(LlmRender *r, const LlmTemplateInput *in)
{
	LlmRun *run = &r->run;
	LlmValue role, content;
	LlmList *list;

	if (in->messages_json != NULL)
		return llm_tmpl_from_json(run, in->messages_json);
	llm_tmpl_allow_input(run, in->n_messages * 32);
	role = llm_tmpl_str_borrow(run, llm_str("role"), false);
	content = llm_tmpl_str_borrow(run, llm_str("content"), false);
	list = llm_tmpl_list_new(run, in->n_messages);
	for (size_t i = 0; i < in->n_messages; i++)
	{
		LlmDict *dict = llm_tmpl_dict_new(run, 2);

		llm_tmpl_dict_set(run, dict, role, borrowed(r, in->messages[i].role, false));
		llm_tmpl_dict_set(run, dict, content, borrowed(r, in->messages[i].content, false));
		llm_tmpl_list_push(run, list, (LlmValue){.kind = LLM_V_DICT, .dict = dict});
	}
	return llm_tmpl_list(LLM_V_LIST, list);
}

/* The caller's variables first, so that they cannot replace the model's own tokens. */
static void
set_globals(LlmRender *r, const LlmTemplate *t, const LlmTemplateInput *in)
{
	LlmRun *run = &r->run;
	const char *key;
	json_t *value;

	for (const LlmDef *def = llm_tmpl_functions; def->name != NULL; def++)
		set_global(r, t, llm_str(def->name), (LlmValue){.kind = LLM_V_FUNCTION, .function = def});
	set_global(r, t, llm_str("documents"), llm_tmpl_none());
	json_object_foreach((json_t *) (uintptr_t) in->kwargs, key, value)
	{
		if (llm_tmpl_sym_find(t, llm_str(key)) != NULL)
			set_global(r, t, llm_str(key), llm_tmpl_from_json(run, value));
	}
	set_global(r, t, llm_str("messages"), messages_value(r, in));
	set_global(r, t, llm_str("tools"),
			   in->tools == NULL ? llm_tmpl_none() : llm_tmpl_from_json(run, in->tools));
	set_global(r, t, llm_str("add_generation_prompt"), llm_tmpl_bool(in->add_generation_prompt));
	set_global(r, t, llm_str("bos_token"), borrowed(r, in->bos_token, true));
	set_global(r, t, llm_str("eos_token"), borrowed(r, in->eos_token, true));
}

/* Append the finished text to out with its marks; false when memory is out. */
static bool
hand_over(const LlmTextBuf *text, LlmMarkedText *out)
{
	size_t begin = 0;

	for (size_t i = 0; i < text->n_marks; i++)
	{
		if (!llm_marked_append(out, text->data + begin, text->marks[i].end - begin,
							   text->marks[i].trusted))
			return false;
		begin = text->marks[i].end;
	}
	return true;
}

/* The only setjmp of a rendering. What changes meanwhile lies in the caller's frame. */
static LlmStatus
render(LlmRender *r, const LlmTemplate *t, const LlmTemplateInput *in, LlmMarkedText *out)
{
	if (setjmp(r->run.fail) != 0)
		return r->run.status;
	r->globals = llm_tmpl_alloc(&r->run, t->n_syms, sizeof(LlmValue));
	set_globals(r, t, in);
	r->out = llm_tmpl_buf_new(&r->run, 0);
	llm_tmpl_exec(r, t->root);
	out->dated = out->dated || r->run.dated;
	if (!hand_over(r->out, out))
		return llm_error_set(r->run.err, LLM_E_MEMORY, "out of memory for a rendered prompt");
	return LLM_OK;
}

LlmStatus
llm_template_render(const LlmTemplate *t, const LlmTemplateInput *in, LlmMarkedText *out,
					LlmError *err)
{
	LlmStatus status;
	LlmArena arena = {0};
	LlmRender r = {.run = {.arena = &arena,
						   .limit = RENDER_MEMORY,
						   .steps = LLM_TEMPLATE_STEPS_MAX,
						   .nest_max = LLM_TMPL_NEST_MAX,
						   .line = 1,
						   .now = in->now,
						   .err = err}};

	status = render(&r, t, in, out);
	llm_arena_fini(&arena);
	return status;
}
