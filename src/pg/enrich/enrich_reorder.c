/* pg/enrich/enrich_reorder.c - choose the order of a template's lines; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_reorder.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "pg/enrich/enrich_template.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#define COLUMNS_MAX 32 /* bits of a set */
#define LINES_MAX 12   /* all sets of lines are looked at */
#define RULES_MAX 256  /* of CREATE STATISTICS */
#define GAIN_MIN 0.01  /* part of the cost for which lines are moved */

typedef uint32 Set; /* of columns by their place in Facts, or of lines */

/* A column that the template names. */
typedef struct Column
{
	AttrNumber attno;
	char *name;
	bool known;      /* has statistics */
	double distinct; /* values */
	double width;    /* bytes */
	double nulls;    /* part of the rows */
} Column;

/* What CREATE STATISTICS has of some columns. */
typedef struct Rule
{
	Set from;     /* determine */
	Set to;       /* this one, with that degree; 0: they have that many distinct combinations */
	double value; /* degree or count */
} Rule;

typedef struct Facts
{
	double rows; /* that have a prompt */
	int n_columns;
	Column columns[COLUMNS_MAX];
	int by_distinct[COLUMNS_MAX]; /* their places, those with most values first */
	int n_rules;
	Rule rules[RULES_MAX];
} Facts;

/* A line that can be moved. */
typedef struct Line
{
	const char *text; /* in the template, without its line end */
	int len;
	Set columns;
} Line;

typedef struct Lines
{
	const char *lead; /* text before them, and after: these stay */
	int lead_len;
	const char *trail;
	int n;
	Line lines[LINES_MAX];
} Lines;

/* ---- the template ---- */

/* The place of a column, which is added when it is not there; -1 when there are too many. */
static int
place_of(Facts *f, Relation rel, const char *name)
{
	AttrNumber attno = llm_enrich_template_column(rel, name);

	for (int i = 0; i < f->n_columns; i++)
		if (f->columns[i].attno == attno)
			return i;
	if (f->n_columns == COLUMNS_MAX)
		return -1;
	f->columns[f->n_columns] = (Column){.attno = attno, .name = pstrdup(name)};
	return f->n_columns++;
}

/* Cut the template into lines. False when there are too many of them, or columns in them. */
static bool
cut(const char *template, Relation rel, Facts *f, Lines *l)
{
	const char *begin = template; /* of the line, or of those without columns before it */
	const char *field = template;

	memset(l, 0, sizeof(*l));
	for (;;)
	{
		const char *after = field;
		const char *end;
		Line line = {0};

		/* the line of the next field */
		field = llm_enrich_template_field(template, field, &end);
		if (*field == '\0')
			break;
		if (l->n == 0)
		{
			for (const char *p = after; p < field; p++)
				begin = *p == '\n' ? p + 1 : begin;
			l->lead = template;
			l->lead_len = (int) (begin - template);
		}
		do
		{
			int i = place_of(f, rel, pnstrdup(field + 1, end - field - 1));

			if (i < 0)
				return false;
			line.columns |= (Set) 1 << i;
			after = end + 1;
			field = llm_enrich_template_field(template, after, &end);
		} while (*field != '\0' && memchr(after, '\n', field - after) == NULL);
		if (l->n == LINES_MAX)
			return false;
		line.text = begin;
		line.len = (int) (strcspn(after, "\n") + (after - begin));
		l->trail = begin = line.text + line.len;
		begin += *begin == '\n' ? 1 : 0;
		field = after + strcspn(after, "\n");
		l->lines[l->n++] = line;
	}
	return true;
}

static char *
put_together(const Lines *l, const int *order)
{
	StringInfoData text;

	initStringInfo(&text);
	appendBinaryStringInfo(&text, l->lead, l->lead_len);
	for (int i = 0; i < l->n; i++)
	{
		if (i > 0)
			appendStringInfoChar(&text, '\n');
		appendBinaryStringInfo(&text, l->lines[order[i]].text, l->lines[order[i]].len);
	}
	appendStringInfoString(&text, l->trail);
	return text.data;
}

/* ---- statistics ---- */

/* Of the table with its partitions or children. */
static double
count_rows(Oid relid)
{
	List *tables = find_all_inheritors(relid, NoLock, NULL);
	double n = 0;
	ListCell *cell;

	foreach (cell, tables)
	{
		HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(cell)));

		if (!HeapTupleIsValid(tuple))
			continue;
		if (((Form_pg_class) GETSTRUCT(tuple))->relkind != RELKIND_PARTITIONED_TABLE)
			n += Max(((Form_pg_class) GETSTRUCT(tuple))->reltuples, 0);
		ReleaseSysCache(tuple);
	}
	return Max(n, 1);
}

/* Run a query on a view of statistics, of the table by its names. */
static void
query(const LlmEnrichTarget *t, const char *sql)
{
	NameData names[2];
	Oid types[] = {NAMEOID, NAMEOID};
	Datum values[] = {NameGetDatum(&names[0]), NameGetDatum(&names[1])};
	int rc;

	namestrcpy(&names[0], t->schema);
	namestrcpy(&names[1], t->name);
	rc = SPI_execute_with_args(sql, 2, types, values, NULL, true, 0);
	if (rc < 0)
		elog(ERROR, "could not read statistics: %s", SPI_result_code_string(rc));
}

static char *
text_of(uint64 row, int number)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, number);
}

static void
read_columns(const LlmEnrichTarget *t, Facts *f, double rows)
{
	query(t, "SELECT attname, n_distinct, avg_width, null_frac FROM pg_catalog.pg_stats "
			 "WHERE schemaname OPERATOR(pg_catalog.=) $1 AND tablename OPERATOR(pg_catalog.=) $2 "
			 "ORDER BY inherited");
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		const char *name = text_of(row, 1);

		for (int i = 0; i < f->n_columns; i++)
		{
			Column *c = &f->columns[i];
			double distinct = strtod(text_of(row, 2), NULL);

			if (strcmp(c->name, name) != 0)
				continue;
			/* 0 = not known */
			c->known = distinct != 0;
			c->distinct = Max(distinct < 0 ? -distinct * rows : distinct, 1);
			c->width = strtod(text_of(row, 3), NULL);
			c->nulls = strtod(text_of(row, 4), NULL);
		}
	}
	SPI_freetuptable(SPI_tuptable);
	f->rows = rows;
	for (int i = 0; i < f->n_columns; i++)
	{
		int k = i;

		f->rows = Max(f->rows * (1 - f->columns[i].nulls), 1);
		for (; k > 0 && f->columns[f->by_distinct[k - 1]].distinct < f->columns[i].distinct; k--)
			f->by_distinct[k] = f->by_distinct[k - 1];
		f->by_distinct[k] = i;
	}
}

/* "1, 2": the columns with these numbers; 0 unless the template has them all. */
static Set
read_set(const Facts *f, const char *p, const char *end)
{
	Set set = 0;

	while (p < end)
	{
		char *next;
		long attno = strtol(p, &next, 10);
		Set member = 0;

		for (int i = 0; i < f->n_columns; i++)
			member |= f->columns[i].attno == attno ? (Set) 1 << i : 0;
		if (member == 0 || next == p)
			return 0;
		set |= member;
		p = next + strspn(next, ", ");
	}
	return set;
}

/* Counts of combinations come as "1, 2", dependencies as "1, 2 => 3". */
static void
read_rules(const LlmEnrichTarget *t, Facts *f)
{
	query(t,
		  "SELECT k.key, k.value FROM pg_catalog.pg_stats_ext AS s, "
		  "LATERAL (SELECT * FROM "
		  "pg_catalog.json_each_text(s.n_distinct::pg_catalog.text::pg_catalog.json) "
		  "UNION ALL SELECT * FROM "
		  "pg_catalog.json_each_text(s.dependencies::pg_catalog.text::pg_catalog.json)) AS k "
		  "WHERE s.schemaname OPERATOR(pg_catalog.=) $1 AND s.tablename OPERATOR(pg_catalog.=) $2");
	for (uint64 row = 0; row < SPI_processed && f->n_rules < RULES_MAX; row++)
	{
		const char *key = text_of(row, 1);
		const char *arrow = strstr(key, " => ");
		Rule rule = {.value = strtod(text_of(row, 2), NULL)};

		rule.from = read_set(f, key, arrow != NULL ? arrow : key + strlen(key));
		rule.to = arrow != NULL ? read_set(f, arrow + 4, key + strlen(key)) : 0;
		if (rule.from != 0 && (arrow == NULL || rule.to != 0))
			f->rules[f->n_rules++] = rule;
	}
	SPI_freetuptable(SPI_tuptable);
}

/* Distinct combinations of some columns: what was counted together, times those of the others, of which one
 * that follows from those before it adds none. */
static double
count_distinct(const Facts *f, Set set)
{
	Set left = set;
	double n = 1;

	for (;;)
	{
		const Rule *best = NULL;

		for (const Rule *r = f->rules; r < f->rules + f->n_rules; r++)
			if (r->to == 0 && (r->from & ~left) == 0 &&
				(best == NULL || pg_popcount32(r->from) > pg_popcount32(best->from)))
				best = r;
		if (best == NULL)
			break;
		n *= Max(best->value, 1);
		left &= ~best->from;
	}
	for (int i = 0; i < f->n_columns; i++)
	{
		const Column *c = &f->columns[f->by_distinct[i]];
		Set member = (Set) 1 << f->by_distinct[i];
		double degree = 0;

		if ((left & member) == 0)
			continue;
		left &= ~member;
		for (const Rule *r = f->rules; r < f->rules + f->n_rules; r++)
			if (r->to == member && (r->from & ~(set & ~left)) == 0)
				degree = Max(degree, r->value);
		n *= degree + (1 - degree) * c->distinct;
	}
	return Min(n, f->rows);
}

/* ---- the order ---- */

static Set
columns_of(const Lines *l, Set lines)
{
	Set columns = 0;

	for (int i = 0; i < l->n; i++)
		columns |= (lines >> i & 1) != 0 ? l->lines[i].columns : 0;
	return columns;
}

/* Bytes of a line in a prompt. */
static double
width_of(const Facts *f, const Line *line)
{
	double width = line->len + 1;

	for (int i = 0; i < f->n_columns; i++)
		width += (line->columns >> i & 1) != 0 ? f->columns[i].width : 0;
	return width;
}

/* The bytes to be computed for the lines in this order. */
static double
cost_of(const Facts *f, const Lines *l, const int *order)
{
	double cost = 0;
	Set done = 0;

	for (int i = 0; i < l->n; i++)
	{
		done |= (Set) 1 << order[i];
		cost += count_distinct(f, columns_of(l, done)) * width_of(f, &l->lines[order[i]]);
	}
	return cost;
}

/* The cheapest order: for each set of lines, which is best as its last. Of equals they stay as written. */
static void
find_order(const Facts *f, const Lines *l, int *order)
{
	Size n_sets = (Size) 1 << l->n;
	double *cost = palloc0(sizeof(double) * n_sets);
	int8 *last = palloc0(n_sets);

	for (Set set = 1; set < n_sets; set++)
	{
		double distinct = count_distinct(f, columns_of(l, set));

		cost[set] = -1;
		for (int i = l->n - 1; i >= 0; i--)
		{
			double c;

			if ((set >> i & 1) == 0)
				continue;
			c = cost[set & ~((Set) 1 << i)] + distinct * width_of(f, &l->lines[i]);
			if (cost[set] >= 0 && c >= cost[set] * (1 - 1e-9))
				continue;
			cost[set] = c;
			last[set] = (int8) i;
		}
	}
	for (Set set = (Set) (n_sets - 1), i = l->n; i > 0; set &= ~((Set) 1 << order[i]))
	{
		i--;
		order[i] = last[set];
	}
}

/* Rows in the order of their prompts, as far as several rows begin alike. */
static char *
sort_of(const LlmEnrichTarget *t, const Facts *f, const Lines *l, const int *order)
{
	StringInfoData sort;
	Set before = 0;

	initStringInfo(&sort);
	for (int i = 0; i < l->n; i++)
	{
		Set columns = l->lines[order[i]].columns;

		if (count_distinct(f, before | columns) > f->rows / 2)
			break;
		for (int k = 0; k < f->n_columns; k++)
			if ((columns & ~before) >> k & 1)
				appendStringInfo(&sort, "%sCAST(%s.%s AS pg_catalog.text) COLLATE pg_catalog.\"C\"",
								 sort.len > 0 ? ", " : "", t->alias,
								 quote_identifier(f->columns[k].name));
		before |= columns;
	}
	return sort.len > 0 ? sort.data : NULL;
}

/* Why nothing can be moved; NULL when something can. */
static const char *
find_obstacle(const Facts *f, const Lines *l, bool fits, const char **hint)
{
	*hint = NULL;
	if (!fits)
		return psprintf("more than %d of its lines have columns", LINES_MAX);
	*hint = "What is moved is a line: write columns on lines of their own.";
	if (l->n < 2)
		return "fewer than two of its lines have columns";
	*hint = "ANALYZE the table; statistics of columns that one may not read are not seen.";
	for (int i = 0; i < f->n_columns; i++)
		if (!f->columns[i].known)
			return psprintf("there are no statistics of column \"%s\"", f->columns[i].name);
	return NULL;
}

/* Fill in what comes of an order, and tell. */
static void
choose(const LlmEnrichTarget *t, const Facts *f, const Lines *l, const int *order,
	   LlmEnrichOrder *out)
{
	int as_written[LINES_MAX] = {0};
	double rest = strlen(l->trail) * f->rows + l->lead_len; /* the lead is computed once */
	double all = (strlen(l->trail) + l->lead_len) * f->rows;
	StringInfoData names;
	double before;
	double after;

	initStringInfo(&names);
	for (int i = 0; i < l->n; i++)
	{
		as_written[i] = i;
		all += width_of(f, &l->lines[i]) * f->rows;
		for (int k = 0; k < f->n_columns; k++)
			if ((l->lines[order[i]].columns >> k & 1) != 0)
				appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", f->columns[k].name);
	}
	before = cost_of(f, l, as_written) + rest;
	after = cost_of(f, l, order) + rest;
	out->known = true;
	out->as_written = 1 - before / all;
	if (after < before * (1 - GAIN_MIN))
		out->template = put_together(l, order);
	out->sort = sort_of(t, f, l, out->template != NULL ? order : as_written);
	if (out->template == NULL)
		ereport(NOTICE, (errmsg("llm_enrich leaves the template as it is: its lines have the best "
								"order already: %s",
								names.data)));
	else
		ereport(NOTICE,
				(errmsg("llm_enrich orders the template's lines: %s", names.data),
				 errdetail("The template is now: %s", out->template),
				 errhint("By the statistics %.0f%% of the prompts are shared so, as written "
						 "%.0f%%.",
						 100 * (1 - after / all), 100 * out->as_written)));
}

void
llm_enrich_reorder(const LlmEnrichTarget *t, const char *template, LlmEnrichOrder *out)
{
	Relation rel = table_open(t->relid, AccessShareLock);
	double rows = count_rows(t->relid);
	Facts *f = palloc0(sizeof(Facts));
	int order[LINES_MAX];
	Lines l;
	const char *hint;
	const char *obstacle;
	bool fits = cut(template, rel, f, &l);

	memset(out, 0, sizeof(*out));
	table_close(rel, NoLock);
	if (fits && l.n > 1)
		read_columns(t, f, rows);
	obstacle = find_obstacle(f, &l, fits, &hint);
	if (obstacle != NULL)
	{
		ereport(NOTICE, (errmsg("llm_enrich leaves the template as it is: %s", obstacle),
						 hint != NULL ? errhint("%s", hint) : 0));
		return;
	}
	read_rules(t, f);
	find_order(f, &l, order);
	choose(t, f, &l, order, out);
}
