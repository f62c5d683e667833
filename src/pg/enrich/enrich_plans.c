/* pg/enrich/enrich_plans.c - prepare the statements of an enrichment; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_plans.h"

#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/timestamp.h"

/* Longer conditions (a list of very many values) cost more than they save. */
#define BOUNDS_MAX 4096
#define AGE_MS 2000

static SPIPlanPtr
prepare(const char *sql, int n_args, Oid *types)
{
	/* one plan for all places: it is the same scan by tid each time */
	SPIPlanPtr plan = SPI_prepare_cursor(sql, n_args, types, CURSOR_OPT_GENERIC_PLAN);

	/* kept, so that it notices changes of the table */
	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "could not prepare \"%s\": %s", sql, SPI_result_code_string(SPI_result));
	return plan;
}

/* The partition of the table, or the table itself, whose bounds let the planner leave out others: the lowest
 * that is not below a hash partition or a default one. */
static Oid
find_unit(const LlmEnrichTarget *t, Oid table)
{
	bool whole = table == t->relid || !get_rel_relispartition(table); /* or by INHERITS */
	List *ancestors = whole ? NIL : get_partition_ancestors(table);
	Oid unit = whole ? t->relid : table;
	Oid below = table;
	ListCell *cell;

	foreach (cell, ancestors)
	{
		Relation rel = table_open(lfirst_oid(cell), AccessShareLock);

		if (RelationGetPartitionKey(rel)->strategy == PARTITION_STRATEGY_HASH ||
			get_default_partition_oid(lfirst_oid(cell)) == below)
			unit = lfirst_oid(cell);
		below = lfirst_oid(cell);
		table_close(rel, NoLock);
		if (below == t->relid)
			break;
	}
	return unit;
}

/* "bounds AND " of a unit, or "". */
static char *
bounds_condition(const LlmEnrichTarget *t, Oid unit)
{
	char *bounds;

	if (unit == t->relid)
		return "";
	bounds = pg_get_partconstrdef_string(unit, t->name);
	return *bounds == '\0' || strlen(bounds) > BOUNDS_MAX ? "" : psprintf("(%s) AND ", bounds);
}

/* "column = that of the key $4 AND " for a unit with hash partitions, which so are left out when the statement
 * begins; of types whose text in jsonb is their own. */
static char *
hash_condition(const LlmEnrichTarget *t, Oid unit)
{
	Relation rel = table_open(unit, AccessShareLock);
	PartitionKey key = RelationGetPartitionKey(rel);
	StringInfoData sql;

	initStringInfo(&sql);
	for (int i = 0; key != NULL && key->strategy == PARTITION_STRATEGY_HASH && i < key->partnatts;
		 i++)
	{
		Oid type = key->parttypid[i];
		const char *name;

		if (key->partattrs[i] == 0 || (type != INT2OID && type != INT4OID && type != INT8OID &&
									   type != TEXTOID && type != VARCHAROID && type != UUIDOID))
			continue;
		name = get_attname(unit, key->partattrs[i], false);
		appendStringInfo(
			&sql, "%s.%s OPERATOR(pg_catalog.=) CAST($4 OPERATOR(pg_catalog.->>) %s AS %s) AND ",
			t->alias, quote_identifier(name), quote_literal_cstr(name),
			format_type_be_qualified(type));
	}
	table_close(rel, NoLock);
	return sql.data;
}

static SPIPlanPtr
prepare_claim(const LlmEnrichTarget *t, const char *bounds, const char *prompt,
			  const char *condition, const char *lock)
{
	Oid types[] = {TIDARRAYOID, OIDARRAYOID, BOOLOID};

	return prepare(psprintf("SELECT %s.tableoid, %s.ctid, %s.xmin, %s, %s FROM %s WHERE %s%s.ctid "
							"OPERATOR(pg_catalog.=) ANY ($1) AND %s.tableoid "
							"OPERATOR(pg_catalog.=) ANY ($2) AND ($3 OR %s IS NULL) AND %s%s",
							t->alias, t->alias, t->alias, t->key, prompt, t->table, bounds,
							t->alias, t->alias, t->value, condition, lock),
				   3, types);
}

static void
prepare_set(LlmEnrichPlans *set, const LlmEnrichTarget *t, Oid unit)
{
	Oid types[] = {TIDOID, OIDOID, XIDOID, JSONBOID, t->type};
	const char *bounds = bounds_condition(t, unit);
	char *same =
		psprintf("%s%s%s.ctid OPERATOR(pg_catalog.=) $1 AND %s.tableoid OPERATOR(pg_catalog.=) $2 "
				 "AND %s.xmin OPERATOR(pg_catalog.=) $3 AND %s OPERATOR(pg_catalog.=) $4",
				 bounds, hash_condition(t, unit), t->alias, t->alias, t->alias, t->key);

	set->claim = prepare_claim(t, bounds, t->prompt, t->wanted,
							   psprintf(" FOR NO KEY UPDATE OF %s SKIP LOCKED", t->alias));
	set->wanted = prepare_claim(t, bounds, psprintf("(%s)", t->wanted), "true", "");
	set->identify = prepare_claim(t, bounds, "NULL", "true", "");
	set->look = prepare(psprintf("SELECT FROM %s WHERE %s", t->table, same), 4, types);
	set->take = prepare(psprintf("SELECT FROM %s WHERE %s FOR NO KEY UPDATE OF %s SKIP LOCKED",
								 t->table, same, t->alias),
						4, types);
	set->update = prepare(psprintf("UPDATE %s SET %s = $5 WHERE %s RETURNING %s IS NULL", t->table,
								   quote_identifier(NameStr(t->column)), same, t->value),
						  5, types);
}

static void
free_set(LlmEnrichPlans *set)
{
	SPIPlanPtr plans[] = {set->claim, set->wanted, set->identify,
						  set->look,  set->take,   set->update};

	for (Size i = 0; i < lengthof(plans); i++)
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
	memset(set, 0, sizeof(*set));
}

/* A place for one more: the one that was used longest ago. */
static LlmEnrichPlans *
make_room(LlmEnrichPlanCache *cache)
{
	LlmEnrichPlans *oldest = &cache->sets[0];

	if (cache->n < LLM_ENRICH_PLANS_MAX)
		return &cache->sets[cache->n++];
	for (int i = 1; i < cache->n; i++)
		if (cache->sets[i].used < oldest->used)
			oldest = &cache->sets[i];
	free_set(oldest);
	return oldest;
}

Oid
llm_enrich_plans_unit(LlmEnrichPlanCache *cache, const LlmEnrichTarget *t, Oid table)
{
	LlmEnrichUnit *known = &cache->units[table % LLM_ENRICH_UNITS];

	if (known->table != table)
	{
		known->unit = find_unit(t, table);
		known->table = table;
	}
	return known->unit;
}

const LlmEnrichPlans *
llm_enrich_plans_get(LlmEnrichPlanCache *cache, const LlmEnrichTarget *t, Oid table)
{
	Oid unit = llm_enrich_plans_unit(cache, t, table);
	LlmEnrichPlans *set = NULL;

	for (int i = 0; i < cache->n && set == NULL; i++)
		if (cache->sets[i].unit == unit)
			set = &cache->sets[i];
	if (set == NULL)
		set = make_room(cache);
	else if (GetCurrentTimestamp() >= TimestampTzPlusMilliseconds(set->made, AGE_MS))
		free_set(set);
	if (set->unit != unit)
	{
		prepare_set(set, t, unit);
		set->made = GetCurrentTimestamp();
		set->unit = unit; /* from now on it is whole */
	}
	set->used = ++cache->clock;
	return set;
}

void
llm_enrich_plans_free(LlmEnrichPlanCache *cache)
{
	for (int i = 0; i < cache->n; i++)
		free_set(&cache->sets[i]);
	cache->n = 0;
	memset(cache->units, 0, sizeof(cache->units));
}
