#!/usr/bin/env bash
# upgrade.sh - every released version updated to the current one has the catalogue of a fresh install; and this
# check would see it if not: a made-up version is updated by scripts that do something wrong.
set -euo pipefail
cd "$(dirname "$0")/../.."

current=$(sed -n 's/^LLM_INFER_VERSION = //p' Makefile)
versions=$(ls sql | sed -n 's/^llm_infer--\([0-9.]*\)\.sql$/\1/p' | grep -vx "$current" || true)
. scripts/instance.sh
trap instance_end EXIT
make --no-print-directory -s -j2 BUILD=build all
instance_work
instance_stage build

# What an update may do wrong to a version that is like the current one; the first does nothing.
wrong=(
    "SELECT 1"
    "DROP FUNCTION llm_count_tokens(text, text)"
    "CREATE FUNCTION llm_count_words(text) RETURNS int LANGUAGE sql RETURN 1"
    "ALTER FUNCTION llm_generate(text, text, text, int, float8, bigint, text[], jsonb, text, jsonb) COST 1"
    "GRANT EXECUTE ON FUNCTION llm_engine_restart() TO PUBLIC"
    "REVOKE USAGE ON SCHEMA llm FROM PUBLIC"
    "GRANT USAGE ON FOREIGN DATA WRAPPER llm_infer TO PUBLIC"
    "COMMENT ON VIEW llm.models IS NULL"
    "COMMENT ON COLUMN llm.quotas.role IS 'a role'"
    "ALTER TABLE llm.quotas ADD note text"
    "ALTER TABLE llm.quotas ALTER period SET DEFAULT '1 day'"
    "ALTER TABLE llm.quotas ALTER max_in_flight SET NOT NULL"
    "ALTER TABLE llm.quotas ADD CHECK (max_in_flight < 1000000)"
    "ALTER TABLE llm.quotas ENABLE ROW LEVEL SECURITY"
    "GRANT INSERT (role) ON llm.quotas TO pg_monitor"
    "CREATE INDEX ON llm.quotas (period)"
    "SELECT pg_catalog.pg_extension_config_dump('llm.quotas', '')"
    "ALTER VIEW llm.models SET (security_barrier)"
    "ALTER SEQUENCE llm.job_ids INCREMENT 2"
    "ALTER SCHEMA llm OWNER TO pg_monitor"
)
scripts=$work/stage$pg_sharedir/extension
for i in "${!wrong[@]}"; do
    cp "$scripts/llm_infer--$current.sql" "$scripts/llm_infer--like$i.sql"
    echo "${wrong[i]};" >"$scripts/llm_infer--like$i--$current.sql"
done

# All that the extension owns: identity, definition, owner, rights, comment, and what hangs on its tables.
cat >"$work/catalogue.sql" <<'SQL'
CREATE TEMP VIEW members AS SELECT d.classid, d.objid FROM pg_depend d
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid WHERE e.extname = 'llm_infer' AND d.deptype = 'e';
CREATE TEMP VIEW relations AS SELECT * FROM pg_class WHERE relnamespace = 'llm'::regnamespace;
SELECT pg_describe_object(classid, objid, 0), obj_description(objid, classid::regclass::name) FROM members ORDER BY 1;
SELECT oid::regprocedure, pg_get_functiondef(oid), proowner::regrole, proacl FROM pg_proc
	WHERE oid IN (SELECT objid FROM members WHERE classid = 'pg_proc'::regclass) ORDER BY oid::regprocedure::text;
SELECT relname, relkind, relpersistence, relrowsecurity, relforcerowsecurity, reloptions, relowner::regrole, relacl,
	CASE relkind WHEN 'v' THEN pg_get_viewdef(oid) WHEN 'i' THEN pg_get_indexdef(oid) END FROM relations ORDER BY 1;
SELECT relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attacl, pg_get_expr(adbin, adrelid),
	col_description(r.oid, attnum) FROM relations r JOIN pg_attribute a ON attrelid = r.oid LEFT JOIN pg_attrdef ON adrelid = r.oid AND adnum = attnum
	WHERE attnum > 0 AND NOT attisdropped ORDER BY 1, 2;
SELECT relname, pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN relations r ON conrelid = r.oid ORDER BY 1, 2;
SELECT relname, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN relations r ON tgrelid = r.oid WHERE NOT tgisinternal ORDER BY 1, 2;
SELECT relname, polname, polcmd, polroles::regrole[], pg_get_expr(polqual, polrelid) FROM pg_policy JOIN relations r ON polrelid = r.oid ORDER BY 1, 2;
SELECT seqrelid::regclass, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle FROM pg_sequence JOIN relations r ON seqrelid = r.oid ORDER BY 1;
SELECT nspowner::regrole, nspacl FROM pg_namespace WHERE nspname = 'llm';
SELECT fdwowner::regrole, fdwhandler::regproc, fdwvalidator::regproc, fdwacl, fdwoptions FROM pg_foreign_data_wrapper WHERE fdwname = 'llm_infer';
SELECT extversion, c::regclass, w FROM pg_extension, unnest(extconfig, extcondition) AS u (c, w) WHERE extname = 'llm_infer' ORDER BY 2;
SQL
instance_own
instance_init
instance_start

# What is there after these statements, which are rolled back.
catalogue_after() { instance_psql -qAt -c BEGIN -c "$1" -f "$work/catalogue.sql"; }

# Whether a version that is updated has the fresh catalogue.
equals_fresh() {
    catalogue_after "CREATE EXTENSION llm_infer VERSION '$1'; ALTER EXTENSION llm_infer UPDATE" >"$work/updated" || {
        echo "the update from $1 fails"
        bad=1
        return 1
    }
    diff -u "$work/updated" "$work/fresh" >"$work/diff"
}

catalogue_after 'CREATE EXTENSION llm_infer' >"$work/fresh"
bad=0
for v in $versions like0; do
    equals_fresh "$v" || {
        cat "$work/diff"
        echo "$v updated to $current differs from a fresh $current"
        bad=1
    }
done
for i in "${!wrong[@]}"; do
    if [ "$i" != 0 ] && equals_fresh "like$i"; then
        echo "nobody would notice that an update did this: ${wrong[i]}"
        bad=1
    fi
done
exit $bad
