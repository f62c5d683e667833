/*
 * pg/node/grouping.c - group rows by the beginning of their prompts, oldest group first.
 *
 * Sorted by bytes, rows that share a beginning are neighbours, and the least that neighbours of a
 * range share is what the whole range shares. A range falls apart where neighbours share hardly more
 * than that; its parts go by their oldest row, and each part falls apart in the same way. So rows of
 * one template with texts of their own are parts of one row each, and stay in input order.
 */
#include "postgres.h"

#include "pg/node/grouping.h"

#include "miscadmin.h"

/* Less than this many bytes more in common is not worth another order: about 16 tokens. */
#define GAIN_NBYTES 64

/* A run of sorted rows. */
typedef struct Part
{
	int begin;
	int end;
	int64 oldest;
} Part;

static Size
shared_bytes(LlmCallBytes a, LlmCallBytes b)
{
	Size n = Min(a.len, b.len);
	Size i = 0;

	while (n - i >= 64 && memcmp(a.data + i, b.data + i, 64) == 0)
		i += 64;
	while (i < n && a.data[i] == b.data[i])
		i++;
	return i;
}

static Size
shared_prompt(const LlmCallPrompt *a, const LlmCallPrompt *b)
{
	Size n;

	if (strcmp(a->model, b->model) != 0)
		return 0;
	n = shared_bytes(a->system, b->system);
	if (n == a->system.len && n == b->system.len)
		n += shared_bytes(a->prompt, b->prompt);
	return n;
}

static int
compare_bytes(LlmCallBytes a, LlmCallBytes b)
{
	Size n = Min(a.len, b.len);
	int c = n == 0 ? 0 : memcmp(a.data, b.data, n);

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

static int
compare_prompts(const void *pa, const void *pb)
{
	const LlmGroupingRow *a = pa;
	const LlmGroupingRow *b = pb;
	int c;

	CHECK_FOR_INTERRUPTS(); /* prompts may be long, and many */
	c = strcmp(a->prompt.model, b->prompt.model);
	if (c == 0)
		c = compare_bytes(a->prompt.system, b->prompt.system);
	if (c == 0)
		c = compare_bytes(a->prompt.prompt, b->prompt.prompt);
	return c != 0 ? c : (a->number > b->number) - (a->number < b->number);
}

static int
compare_parts(const void *pa, const void *pb)
{
	int64 a = ((const Part *) pa)->oldest;
	int64 b = ((const Part *) pb)->oldest;

	return (a > b) - (a < b);
}

/* Split sorted rows [n] where neighbours share less than GAIN_NBYTES more than all do. */
static int
split(const LlmGroupingRow *rows, int n, Part *parts)
{
	Size all = rows[1].shared;
	int n_parts = 0;

	for (int i = 2; i < n; i++)
		all = Min(all, rows[i].shared);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || rows[i].shared < all + GAIN_NBYTES)
			parts[n_parts++] = (Part){.begin = i, .oldest = rows[i].number};
		parts[n_parts - 1].end = i + 1;
		parts[n_parts - 1].oldest = Min(parts[n_parts - 1].oldest, rows[i].number);
	}
	return n_parts;
}

/* Sorted rows from [n] into the order to send, to [n]. Each level shares GAIN_NBYTES more than the
 * one above, so that the depth is bounded by the prompts' bytes. */
static void
arrange(const LlmGroupingRow *from, int n, LlmGroupingRow *to)
{
	Part *parts;
	int n_parts;

	check_stack_depth();
	if (n == 1)
	{
		*to = *from;
		return;
	}
	parts = palloc(sizeof(Part) * n);
	n_parts = split(from, n, parts);
	qsort(parts, n_parts, sizeof(Part), compare_parts);
	for (int i = 0; i < n_parts; i++)
	{
		int size = parts[i].end - parts[i].begin;

		arrange(from + parts[i].begin, size, to);
		to += size;
	}
	pfree(parts);
}

void
llm_grouping_order(LlmGroupingRow *rows, int n)
{
	LlmGroupingRow *sorted;

	if (n < 2)
		return;
	sorted = palloc(sizeof(LlmGroupingRow) * n);
	memcpy(sorted, rows, sizeof(LlmGroupingRow) * n);
	qsort(sorted, n, sizeof(LlmGroupingRow), compare_prompts);
	for (int i = 1; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		sorted[i].shared = shared_prompt(&sorted[i - 1].prompt, &sorted[i].prompt);
	}
	arrange(sorted, n, rows);
	pfree(sorted);
}
