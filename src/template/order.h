/* template/order.h - equality, order, membership and sorting of values. */
#ifndef LLM_TEMPLATE_ORDER_H
#define LLM_TEMPLATE_ORDER_H

#include "template/value.h"

bool llm_tmpl_equal(LlmRun *run, LlmValue a, LlmValue b);
/* -1, 0 or 1; ends the run when the two have no order. */
int llm_tmpl_compare(LlmRun *run, LlmValue a, LlmValue b);
bool llm_tmpl_contains(LlmRun *run, LlmValue container, LlmValue item);
/* Sort by key, stable. */
void llm_tmpl_sort(LlmRun *run, LlmEntry *entries, size_t n, bool descending);

#endif
