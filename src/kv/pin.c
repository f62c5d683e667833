/* kv/pin.c - chains of the prefix cache that stay because somebody said so. */
#include <string.h>

#include "kv/prefix_impl.h"

/* Tokens of a chain of n that lie in its last page. */
static int32_t
last_tokens(int32_t n)
{
	return (n - 1) % LLM_PAGE_TOKENS + 1;
}

/* True when the pin's chain holds exactly this text. */
static bool
is_pin_of(const LlmPrefix *p, const LlmKvPin *pin, const LlmPrefixText *text)
{
	int32_t end = text->n;
	int32_t n = last_tokens(end);

	if (pin->n_tokens == 0 || pin->n_tokens != text->n ||
		p->roots[p->entries[pin->last].root].stat.salt != text->salt)
		return false;
	for (int32_t id = pin->last; id != 0; id = p->entries[id].parent)
	{
		if (memcmp(llm_kv_entry_tokens(p, id), text->ids + (end - n), (size_t) n * sizeof(int32_t)))
			return false;
		end -= n;
		n = LLM_PAGE_TOKENS;
	}
	return true;
}

static LlmKvPin *
pin_of(LlmPrefix *p, const LlmPrefixText *text)
{
	for (int i = 0; i < LLM_PREFIX_PINS; i++)
		if (is_pin_of(p, &p->pins[i], text))
			return &p->pins[i];
	return NULL;
}

static LlmKvPin *
pin_unused(LlmPrefix *p)
{
	for (int i = 0; i < LLM_PREFIX_PINS; i++)
		if (p->pins[i].n_tokens == 0)
			return &p->pins[i];
	return NULL;
}

static LlmStatus
check_room(const LlmPrefix *p, int32_t last, int32_t max_pages, LlmError *err)
{
	int32_t n = p->n_pinned;

	for (int32_t id = last; id != 0; id = p->entries[id].parent)
		n += p->entries[id].n_pins == 0;
	if (n <= max_pages)
		return LLM_OK;
	llm_error_set(err, LLM_E_KV_MEMORY, "%d KV pages would be pinned, but only %d may be", n,
				  max_pages);
	llm_error_hint(err, "Unpin another prefix, or raise the KV cache memory.");
	llm_error_numbers(err, n, max_pages);
	return LLM_E_KV_MEMORY;
}

LlmStatus
llm_kv_prefix_pin(LlmPrefix *p, const LlmPrefixText *text, int32_t max_pages, LlmError *err)
{
	LlmPrefixHit hit = llm_kv_prefix_walk(p, text, text->n, INT32_MAX);
	int32_t last = hit.n_copy > 0 ? hit.source : hit.last;
	LlmKvPin *pin;
	LlmStatus st;

	if (!p->o.on)
		return llm_error_set(err, LLM_E_UNSUPPORTED,
							 "nothing can be pinned while the prefix cache is off");
	if (text->n < 1 || llm_kv_prefix_hit_tokens(&hit) != text->n)
		return llm_error_set(err, LLM_E_INTERNAL, "%d of %d tokens to pin are cached",
							 llm_kv_prefix_hit_tokens(&hit), text->n);
	if (pin_of(p, text) != NULL)
		return LLM_OK;
	if ((pin = pin_unused(p)) == NULL)
	{
		llm_error_set(err, LLM_E_BUSY, "%d prefixes are pinned, which is all that can be",
					  LLM_PREFIX_PINS);
		llm_error_numbers(err, LLM_PREFIX_PINS + 1, LLM_PREFIX_PINS);
		return LLM_E_BUSY;
	}
	if ((st = check_room(p, last, max_pages, err)) != LLM_OK)
		return st;
	*pin = (LlmKvPin){last, text->n};
	for (int32_t id = last; id != 0; id = p->entries[id].parent)
	{
		llm_kv_entry_ref(p, id);
		if (p->entries[id].n_pins++ > 0)
			continue;
		p->n_pinned++;
		p->roots[p->entries[id].root].stat.pinned++;
	}
	return LLM_OK;
}

static void
pin_drop(LlmPrefix *p, LlmKvPin *pin)
{
	int32_t parent;

	for (int32_t id = pin->last; id != 0; id = parent)
	{
		parent = p->entries[id].parent;
		if (--p->entries[id].n_pins == 0)
		{
			p->n_pinned--;
			p->roots[p->entries[id].root].stat.pinned--;
		}
		llm_kv_entry_release(p, id);
	}
	*pin = (LlmKvPin){0};
}

bool
llm_kv_prefix_unpin(LlmPrefix *p, const LlmPrefixText *text)
{
	LlmKvPin *pin = pin_of(p, text);

	if (pin != NULL)
		pin_drop(p, pin);
	return pin != NULL;
}

void
llm_kv_pin_clear(LlmPrefix *p)
{
	for (int i = 0; i < LLM_PREFIX_PINS; i++)
		if (p->pins[i].n_tokens > 0)
			pin_drop(p, &p->pins[i]);
}

int32_t
llm_kv_prefix_pinned(const LlmPrefix *p)
{
	return p->n_pinned;
}
