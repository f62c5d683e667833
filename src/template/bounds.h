/*
 * template/bounds.h - the bounds of one parse or one rendering, and how it fails.
 *
 * Everything that a run makes lives in its arena, so a failure needs no clean-up on the way: it
 * fills the error and jumps back to the one setjmp in template.c. Nothing in this folder holds any
 * other resource while it runs. Time is bounded by steps (charged per node, and per piece of text
 * or list that is walked), the C stack by nest, memory by a byte count.
 */
#ifndef LLM_TEMPLATE_BOUNDS_H
#define LLM_TEMPLATE_BOUNDS_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mem.h"
#include "core/status.h"

/* Bytes of text that one step pays for. */
#define LLM_TMPL_BYTES_PER_STEP 128
/* Elements of a list or dictionary that one step pays for. */
#define LLM_TMPL_ITEMS_PER_STEP 16
/* Nodes and values inside one another while rendering: bounds the C stack (about 1 KiB each). */
#define LLM_TMPL_NEST_MAX 512

typedef struct LlmRun
{
	LlmArena *arena;  /* everything the run makes; the caller frees it */
	size_t used;      /* bytes taken from the arena */
	size_t limit;     /* bytes allowed */
	int64_t steps;    /* steps left */
	int nest;         /* current nesting */
	int nest_max;     /* allowed nesting */
	int line;         /* line of the template now at work, from 1 */
	int64_t now;      /* seconds since 1970 UTC, for strftime_now */
	bool dated;       /* which was asked for */
	LlmError *err;    /* the caller's, may be NULL */
	LlmStatus status; /* set by the failure before it jumps */
	jmp_buf fail;     /* where a failure goes; set by template.c */
} LlmRun;

/* End the run with LLM_E_MODEL, the text being "template line N: ..." */
_Noreturn void llm_tmpl_fail(LlmRun *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* End the run with the template's own message (raise_exception); the line goes into detail. */
_Noreturn void llm_tmpl_raise(LlmRun *run, const char *message, size_t len);

/* A name in a message, for "%.*s": at most 60 bytes of it. */
#define LLM_TMPL_SHOWN(name) (int) ((name).len < 60 ? (name).len : 60), (name).p

/* Zeroed memory for n elements; ends the run when the bound is passed or memory is out. */
void *llm_tmpl_alloc(LlmRun *run, size_t n, size_t size);

/* Room for `need` elements in the array *p (n used, *cap allocated), growing by half. The old array
 * stays in the arena. */
void llm_tmpl_grow(LlmRun *run, void **p, size_t n, size_t *cap, size_t need, size_t size);

_Noreturn void llm_tmpl_fail_steps(LlmRun *run);
_Noreturn void llm_tmpl_fail_nest(LlmRun *run);

static inline void
llm_tmpl_charge(LlmRun *run, size_t steps)
{
	if (steps >= (size_t) run->steps)
		llm_tmpl_fail_steps(run);
	run->steps -= (int64_t) steps;
}

/* Pay for walking n bytes of text. */
static inline void
llm_tmpl_charge_bytes(LlmRun *run, size_t n)
{
	llm_tmpl_charge(run, n / LLM_TMPL_BYTES_PER_STEP);
}

/* Pay for walking n elements. */
static inline void
llm_tmpl_charge_items(LlmRun *run, size_t n)
{
	llm_tmpl_charge(run, n / LLM_TMPL_ITEMS_PER_STEP);
}

static inline void
llm_tmpl_enter(LlmRun *run)
{
	if (++run->nest > run->nest_max)
		llm_tmpl_fail_nest(run);
}

static inline void
llm_tmpl_leave(LlmRun *run)
{
	run->nest--;
}

#endif
