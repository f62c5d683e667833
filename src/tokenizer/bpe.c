/*
 * tokenizer/bpe.c - byte pair encoding of one word: merges by rank.
 *
 * The algorithm of Sennrich et al. 2016 as GPT-2 uses it: begin with one token per byte, then merge
 * again and again the adjacent pair of the best rank, the leftmost of equals. The word is a linked
 * list; a binary heap holds rank and place of every pair that can be merged. An entry whose place has
 * got another pair since is stale and skipped: symbols only grow, so a pair never comes back.
 *
 * Most words of real text are one token. A word that has been merged into the one token of all its
 * bytes is remembered by that token (`direct`), so that it costs one look-up from then on.
 */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define FREE_KEY UINT64_MAX
#define SCRATCH_MIN 128 /* bytes of a word; few are longer */

/* ---- the table of merges ---- */

static uint64_t
pair_key(int32_t left, int32_t right)
{
	return (uint64_t) (uint32_t) left << 32 | (uint32_t) right;
}

/* The slot of the pair, or the free one where it would go. Ids are below 2^31: no key is FREE_KEY. */
static LlmBpePair *
find_pair(const LlmBpe *b, uint64_t key)
{
	uint64_t h = (key ^ key >> 29) * 0x9E3779B97F4A7C15u >> b->shift;

	while (b->pairs[h].key != FREE_KEY && b->pairs[h].key != key)
		h = (h + 1) & b->mask;
	return &b->pairs[h];
}

/* Bytes of a part of a rule: stand-ins when it is written in them, its own text otherwise. */
static size_t
part_bytes(const LlmVocab *v, LlmStr part, char *out)
{
	size_t n;

	if (llm_vocab_unmap(v, part, out, &n))
		return n;
	memcpy(out, part.p, part.len);
	return part.len;
}

static bool
may_merge(const LlmVocab *v, int32_t id)
{
	return v->type[id] == LLM_TOKEN_NORMAL || v->type[id] == LLM_TOKEN_USER_DEFINED;
}

static LlmStatus
add_merge(LlmBpe *b, LlmStr rule, int32_t rank, LlmError *err)
{
	char bytes[2 * LLM_VOCAB_TOKEN_NBYTES_MAX];
	const LlmVocab *v = b->vocab;
	const char *space = rule.len > 2 ? memchr(rule.p + 1, ' ', rule.len - 2) : NULL;
	LlmStr left, right;
	int32_t l, r, both;
	size_t n_left, n_right;
	LlmBpePair *pair;

	if (space == NULL || !llm_utf8_valid(rule.p, rule.len))
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.merges: rule %d has no two parts",
							 rank);
	left = (LlmStr){rule.p, (size_t) (space - rule.p)};
	right = (LlmStr){space + 1, rule.len - left.len - 1};
	if (left.len > LLM_VOCAB_TOKEN_NBYTES_MAX || right.len > LLM_VOCAB_TOKEN_NBYTES_MAX)
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.merges: rule %d has %zu bytes", rank,
							 rule.len);
	n_left = part_bytes(v, left, bytes);
	n_right = part_bytes(v, right, bytes + n_left);
	l = llm_vocab_find(v, bytes, n_left);
	r = llm_vocab_find(v, bytes + n_left, n_right);
	both = llm_vocab_find(v, bytes, n_left + n_right);
	if (l < 0 || r < 0 || both < 0)
		return llm_error_set(err, LLM_E_MODEL,
							 "tokenizer.ggml.merges: %s of rule %d is not a token",
							 both < 0 && l >= 0 && r >= 0 ? "the result" : "a part", rank);
	if (!may_merge(v, l) || !may_merge(v, r) || !may_merge(v, both))
		return LLM_OK;
	pair = find_pair(b, pair_key(l, r));
	if (pair->key != FREE_KEY)
		return llm_error_set(err, LLM_E_MODEL, "tokenizer.ggml.merges: rule %d repeats rule %u",
							 rank, pair->rank);
	*pair = (LlmBpePair){pair_key(l, r), (uint32_t) rank, both};
	return LLM_OK;
}

LlmStatus
llm_bpe_init(LlmBpe *b, const LlmVocab *v, const LlmStr *merges, int32_t n_merges,
			 bool ignore_merges, LlmError *err)
{
	size_t n_slots = 16;

	b->vocab = v;
	b->shift = 60;
	while (n_slots < (size_t) n_merges * 2)
	{
		n_slots *= 2;
		b->shift--;
	}
	b->mask = n_slots - 1;
	b->pairs = malloc(n_slots * sizeof(*b->pairs));
	b->direct = calloc((size_t) v->n, sizeof(*b->direct));
	if (b->pairs == NULL || b->direct == NULL)
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for %d merges", n_merges);
	for (size_t i = 0; i < n_slots; i++)
		b->pairs[i].key = FREE_KEY;
	for (int32_t i = 0; i < n_merges; i++)
	{
		LlmStatus st = add_merge(b, merges[i], i, err);

		if (st != LLM_OK)
			return st;
	}
	for (int32_t id = 0; ignore_merges && id < v->n; id++)
		b->direct[id] = v->mapped[id];
	return LLM_OK;
}

void
llm_bpe_fini(LlmBpe *b)
{
	free(b->pairs);
	free(b->direct);
	memset(b, 0, sizeof(*b));
}

/* ---- scratch ---- */

void
llm_bpe_scratch_fini(LlmBpeScratch *s)
{
	free(s->nodes);
	free(s->heap);
	memset(s, 0, sizeof(*s));
}

/* Room for a word of n bytes; what was in the scratch is lost. */
static bool
reserve(LlmBpeScratch *s, size_t n)
{
	size_t cap = SCRATCH_MIN;

	if (n <= s->cap)
		return true;
	while (cap < n)
		cap *= 2;
	llm_bpe_scratch_fini(s);
	s->nodes = malloc(cap * sizeof(*s->nodes));
	s->heap = malloc(2 * cap * sizeof(*s->heap));
	if (s->nodes == NULL || s->heap == NULL)
		return false;
	s->cap = cap;
	return true;
}

/* ---- merging ---- */

static void
heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
	size_t i = (*n)++;

	while (i > 0 && heap[(i - 1) / 2] > v)
	{
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = v;
}

static uint64_t
heap_pop(uint64_t *heap, size_t *n)
{
	uint64_t top = heap[0], v = heap[--*n];
	size_t i = 0;

	for (;;)
	{
		size_t c = 2 * i + 1;

		if (c >= *n)
			break;
		if (c + 1 < *n && heap[c + 1] < heap[c])
			c++;
		if (heap[c] >= v)
			break;
		heap[i] = heap[c];
		i = c;
	}
	heap[i] = v;
	return top;
}

/* Look up the pair that begins at node i, note its rank and queue it. */
static void
queue_pair(const LlmBpe *b, LlmBpeScratch *s, uint32_t i, size_t *n_heap)
{
	LlmBpeNode *node = &s->nodes[i];
	const LlmBpePair *pair;

	node->rank = NONE;
	if (node->next == NONE)
		return;
	pair = find_pair(b, pair_key(node->id, s->nodes[node->next].id));
	if (pair->key == FREE_KEY)
		return;
	node->rank = pair->rank;
	heap_push(s->heap, n_heap, (uint64_t) pair->rank << 32 | i);
}

/* The heap has at most n - 1 entries at first; a merge takes one and adds two: below 2 n for ever. */
static void
merge_all(const LlmBpe *b, LlmBpeScratch *s, uint32_t n)
{
	size_t n_heap = 0;

	for (uint32_t i = 0; i < n; i++)
		queue_pair(b, s, i, &n_heap);
	while (n_heap > 0)
	{
		uint64_t top = heap_pop(s->heap, &n_heap);
		uint32_t i = (uint32_t) top;
		LlmBpeNode *left = &s->nodes[i], *right;

		if (left->rank != (uint32_t) (top >> 32))
			continue;
		right = &s->nodes[left->next];
		left->id = find_pair(b, pair_key(left->id, right->id))->id;
		right->rank = NONE;
		left->next = right->next;
		if (left->next != NONE)
			s->nodes[left->next].prev = i;
		queue_pair(b, s, i, &n_heap);
		if (left->prev != NONE)
			queue_pair(b, s, left->prev, &n_heap);
	}
}

LlmStatus
llm_bpe_encode(const LlmBpe *b, LlmBpeScratch *s, const char *p, size_t n, LlmTokens *out,
			   LlmError *err)
{
	int32_t whole = llm_vocab_find(b->vocab, p, n);

	if (whole >= 0 && atomic_load_explicit(&b->direct[whole], memory_order_relaxed) != 0)
		return llm_tokens_push(out, whole) ? LLM_OK
										   : llm_error_set(err, LLM_E_MEMORY, "out of memory");
	if (n > LLM_BPE_WORD_NBYTES_MAX)
	{
		llm_error_set(err, LLM_E_INVALID, "a word of the text has %zu bytes, the limit is %zu", n,
					  LLM_BPE_WORD_NBYTES_MAX);
		llm_error_numbers(err, (int64_t) n, (int64_t) LLM_BPE_WORD_NBYTES_MAX);
		return LLM_E_INVALID;
	}
	if (!reserve(s, n))
		return llm_error_set(err, LLM_E_MEMORY, "out of memory for a word of %zu bytes", n);
	for (uint32_t i = 0; i < n; i++)
	{
		int32_t id = b->vocab->byte_id[(unsigned char) p[i]];

		if (id < 0)
			return llm_error_set(err, LLM_E_ENCODING,
								 "the model's vocabulary has no token for byte 0x%02x",
								 (unsigned char) p[i]);
		s->nodes[i] = (LlmBpeNode){id, i == 0 ? NONE : i - 1, i + 1 < n ? i + 1 : NONE, NONE};
	}
	merge_all(b, s, (uint32_t) n);
	if (whole >= 0 && s->nodes[0].id == whole)
		atomic_store_explicit(&b->direct[whole], 1, memory_order_relaxed);
	for (uint32_t i = 0; i != NONE; i = s->nodes[i].next)
		if (!llm_tokens_push(out, s->nodes[i].id))
			return llm_error_set(err, LLM_E_MEMORY, "out of memory for the tokens of a text");
	return LLM_OK;
}
