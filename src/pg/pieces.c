/* pg/pieces.c - a streamed text; see pieces.h. */
#include "postgres.h"

#include "pg/pieces.h"

#include "utils/memutils.h"

#define FIRST_NBYTES 256
#define FIRST_ENDS 64

void
llm_pieces_again(LlmPieces *p)
{
	p->n_checked = 0;
}

/* Room for n more bytes and one more end. */
static void
reserve(LlmPieces *p, MemoryContext cxt, Size n)
{
	/* Each allocation may leave by an error: then what it was for is as it was. */
	if (p->text == NULL)
	{
		p->text = MemoryContextAlloc(cxt, FIRST_NBYTES);
		p->cap = FIRST_NBYTES;
	}
	if (p->ends == NULL)
	{
		p->ends = MemoryContextAlloc(cxt, sizeof(Size) * FIRST_ENDS);
		p->cap_ends = FIRST_ENDS;
	}
	if (p->n_text + n > p->cap)
	{
		Size cap = Max(p->n_text + n, 2 * p->cap);

		p->text = repalloc_huge(p->text, cap);
		p->cap = cap;
	}
	if (p->n_ends == p->cap_ends)
	{
		p->ends = repalloc_huge(p->ends, sizeof(Size) * 2 * p->cap_ends);
		p->cap_ends *= 2;
	}
}

bool
llm_pieces_add(LlmPieces *p, MemoryContext cxt, const void *utf8, Size n)
{
	Size again = Min(n, p->n_text - p->n_checked);

	if (again > 0 && memcmp(p->text + p->n_checked, utf8, again) != 0)
		return false;
	if (n > again)
	{
		reserve(p, cxt, n - again);
		memcpy(p->text + p->n_text, (const char *) utf8 + again, n - again);
		p->n_text += n - again;
		p->ends[p->n_ends++] = p->n_text;
	}
	p->n_checked += n;
	return true;
}

bool
llm_pieces_complete(const LlmPieces *p)
{
	return p->n_checked == p->n_text;
}

bool
llm_pieces_any(const LlmPieces *p)
{
	return p->n_taken < p->n_ends;
}

const char *
llm_pieces_take(LlmPieces *p, Size *n)
{
	Size begin = p->n_taken == 0 ? 0 : p->ends[p->n_taken - 1];

	*n = p->ends[p->n_taken++] - begin;
	return p->text + begin;
}
