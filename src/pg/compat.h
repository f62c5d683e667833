/* pg/compat.h - differences between PostgreSQL 15 and 18; the only place for PG_VERSION_NUM. */
#ifndef LLM_PG_COMPAT_H
#define LLM_PG_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "llm_infer needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#endif

#endif
