/*
 * pg/pieces.h - a text that the engine streams, piece by piece, over the loss of engines.
 *
 * What has come is kept whole. When the engine is lost the request goes to the next one with the same
 * seed, so the same text comes again, perhaps cut into other pieces: it is compared with what is
 * here, and only what is new makes new pieces. Owned by a request; zero-initialise.
 */
#ifndef LLM_PG_PIECES_H
#define LLM_PG_PIECES_H

#include "postgres.h"

typedef struct LlmPieces
{
	char *text; /* [n_text] UTF-8 in cap bytes; NULL = nothing has come */
	Size n_text;
	Size cap;
	Size *ends; /* [n_ends] of the pieces in text, in cap_ends places */
	int n_ends;
	int cap_ends;
	int n_taken;    /* pieces that were given out */
	Size n_checked; /* bytes that the engine of now has sent */
} LlmPieces;

/* The next engine begins at the beginning. */
extern void llm_pieces_again(LlmPieces *p);
/* A piece has come; its memory is taken from cxt. False when it contradicts what came before. */
extern bool llm_pieces_add(LlmPieces *p, MemoryContext cxt, const void *utf8, Size n);
/* The answer is complete: false when the engine of now has sent less than those before. */
extern bool llm_pieces_complete(const LlmPieces *p);

extern bool llm_pieces_any(const LlmPieces *p);
/* The next piece, borrowed until the next call of llm_pieces_add; there must be one. */
extern const char *llm_pieces_take(LlmPieces *p, Size *n);

#endif
