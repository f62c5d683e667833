/*
 * pg/running.h - which plan this backend runs, and how far.
 *
 * Plans run inside each other: a function that a plan calls runs statements of its own. The innermost
 * is the one that calls of our functions belong to.
 */
#ifndef LLM_PG_RUNNING_H
#define LLM_PG_RUNNING_H

#include "postgres.h"

#include "nodes/execnodes.h"

/* The execution of the innermost plan that runs; NULL = none. */
extern EState *llm_running_plan(void);

/* True when that is estate's, and it is run until there are no more rows. False below cursors, in loops
 * over rows, and wherever else somebody has asked for a number of rows and may then leave it. */
extern bool llm_running_to_end(const EState *estate);

/* Install the hook that knows. */
extern void llm_running_init(void);

#endif
