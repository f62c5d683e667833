/*
 * pg/enrich/enrich_template.c - compile a template over a row's columns to a SQL expression.
 *
 * {name} is a column by its exact name, in the way that a cast to text shows it; {{ and }} are braces, and a
 * lone } is itself. Nothing is put into the template but by that: values are not scanned for braces.
 */
#include "postgres.h"

#include "pg/enrich/enrich_template.h"

#include "utils/builtins.h"

/* The columns, for an error. */
static char *
column_names(Relation rel)
{
	TupleDesc desc = RelationGetDescr(rel);
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "",
							 NameStr(TupleDescAttr(desc, i)->attname));
	return names.data;
}

AttrNumber
llm_enrich_template_column(Relation rel, const char *name)
{
	TupleDesc desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return (AttrNumber) (i + 1);
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("template names \"%s\", which is no column of table \"%s\"", name,
						   RelationGetRelationName(rel)),
					errdetail("Its columns are: %s.", column_names(rel)),
					/* of JSON and the like */
					strpbrk(name, " \t\r\n\":,") != NULL ? errhint("Write {{ for a brace.") : 0));
	return InvalidAttrNumber;
}

const char *
llm_enrich_template_field(const char *template, const char *p, const char **end)
{
	while (*p != '\0' && (*p != '{' || p[1] == '{'))
		p += *p == '{' ? 2 : 1;
	*end = *p == '\0' ? p : strchr(p, '}');
	if (*end == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("template has a { without a }, at byte %d", (int) (p - template) + 1),
				 errhint("Write {{ for a brace.")));
	return p;
}

/* Append [p, end) of the template as a literal. */
static void
append_literal(const char *p, const char *end, StringInfo prompt)
{
	StringInfoData literal;

	if (p == end)
		return;
	initStringInfo(&literal);
	for (; p < end; p++)
	{
		appendStringInfoChar(&literal, *p);
		p += (*p == '{' || *p == '}') && p[1] == *p ? 1 : 0;
	}
	appendStringInfo(prompt, " OPERATOR(pg_catalog.||) %s", quote_literal_cstr(literal.data));
}

void
llm_enrich_template_compile(const char *template, Relation rel, const char *alias,
							AttrNumber target, StringInfo prompt, StringInfo wanted)
{
	const char *p = template;

	appendStringInfoString(prompt, "''::pg_catalog.text");
	for (;;)
	{
		const char *end;
		const char *field = llm_enrich_template_field(template, p, &end);
		const char *column;
		char *name;

		append_literal(p, field, prompt);
		if (*field == '\0')
			break;
		name = pnstrdup(field + 1, end - field - 1);
		if (llm_enrich_template_column(rel, name) == target)
			ereport(
				ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("template names the target \"%s\", which is NULL in all rows to be done",
						name)));
		column = quote_identifier(name);
		appendStringInfo(prompt, " OPERATOR(pg_catalog.||) CAST(%s.%s AS pg_catalog.text)", alias,
						 column);
		appendStringInfo(wanted, " AND CAST(%s.%s AS pg_catalog.text) IS NOT NULL", alias, column);
		p = end + 1;
	}
	if (p == template)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("template names no column of table \"%s\"", RelationGetRelationName(rel)),
				 errdetail("Its columns are: %s.", column_names(rel)),
				 errhint("Write {name} where the value of a column belongs. For one prompt for "
						 "all rows use expr.")));
}
