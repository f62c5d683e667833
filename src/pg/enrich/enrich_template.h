/* pg/enrich/enrich_template.h - 'Summarise: {body}' as SQL. */
#ifndef LLM_PG_ENRICH_ENRICH_TEMPLATE_H
#define LLM_PG_ENRICH_ENRICH_TEMPLATE_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/rel.h"

/* The next field at or after p: its brace, and in *end the closing one; or the end of the text. 22023 when
 * it is not closed. */
extern const char *llm_enrich_template_field(const char *template, const char *p, const char **end);

/* The column of a field; 42703 when there is none. */
extern AttrNumber llm_enrich_template_column(Relation rel, const char *name);

/* Append to prompt a text expression over the columns of alias, which is quoted, and to wanted
 * " AND .. IS NOT NULL" for each of them: a row in which one is NULL has no prompt. 22023 and 42703 say
 * what is wrong with the template; the column target cannot be in it. */
extern void llm_enrich_template_compile(const char *template, Relation rel, const char *alias,
										AttrNumber target, StringInfo prompt, StringInfo wanted);

#endif
