/* pg/enrich/enrich_plans.c - prepare the statements of an enrichment; see the header. */
#include "postgres.h"

#include "pg/enrich/enrich_plans.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"

/* A condition of a default partition names the bounds of all others, and helps nobody. */
#define BOUNDS_MAX 4096

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

/* "bounds AND " of a partition, or "". */
static char *
bounds_condition(const LlmEnrichTarget *t, Oid table)
{
	char *bounds;

	if (table == t->relid || !get_rel_relispartition(table))
		return "";
	bounds = pg_get_partconstrdef_string(table, t->name);
	return *bounds == '\0' || strlen(bounds) > BOUNDS_MAX ? "" : psprintf("(%s) AND ", bounds);
}

static SPIPlanPtr
prepare_claim(const LlmEnrichTarget *t, const char *bounds, const char *condition)
{
	Oid types[] = {TIDARRAYOID, OIDOID};

	return prepare(psprintf("SELECT %s.ctid, %s.xmin, %s, %s FROM %s WHERE %s%s.ctid "
							"OPERATOR(pg_catalog.=) ANY ($1) AND %s.tableoid "
							"OPERATOR(pg_catalog.=) $2 AND %s FOR NO KEY UPDATE OF %s SKIP LOCKED",
							t->alias, t->alias, t->key, t->prompt, t->table, bounds, t->alias,
							t->alias, condition, t->alias),
				   2, types);
}

static void
prepare_set(LlmEnrichPlans *set, const LlmEnrichTarget *t)
{
	Oid types[] = {TIDOID, OIDOID, XIDOID, JSONBOID, t->type};
	const char *bounds = bounds_condition(t, set->table);
	char *same =
		psprintf("%s%s.ctid OPERATOR(pg_catalog.=) $1 AND %s.tableoid OPERATOR(pg_catalog.=) $2 "
				 "AND %s.xmin OPERATOR(pg_catalog.=) $3 AND %s OPERATOR(pg_catalog.=) $4",
				 bounds, t->alias, t->alias, t->alias, t->key);

	set->claim = prepare_claim(t, bounds, t->todo);
	set->claim_again = prepare_claim(t, bounds, t->wanted);
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
	SPIPlanPtr plans[] = {set->claim, set->claim_again, set->look, set->take, set->update};

	for (Size i = 0; i < lengthof(plans); i++)
		if (plans[i] != NULL)
			SPI_freeplan(plans[i]);
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

const LlmEnrichPlans *
llm_enrich_plans_get(LlmEnrichPlanCache *cache, const LlmEnrichTarget *t, Oid table)
{
	LlmEnrichPlans *set = NULL;

	for (int i = 0; i < cache->n && set == NULL; i++)
		if (cache->sets[i].table == table)
			set = &cache->sets[i];
	if (set == NULL)
	{
		set = make_room(cache);
		memset(set, 0, sizeof(*set));
		set->table = table;
		prepare_set(set, t);
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
}
