#!/usr/bin/env bash
# upgrade.sh - every released version updated to the current one has the catalogue of a fresh install.
set -euo pipefail
cd "$(dirname "$0")/../.."

current=$(sed -n 's/^LLM_INFER_VERSION = //p' Makefile)
versions=$(ls sql | sed -n 's/^llm_infer--\([0-9.]*\)\.sql$/\1/p' | grep -vx "$current" || true)
if [ -z "$versions" ]; then
    echo "SKIP upgrade: $current is the first version"
    exit 0
fi
. scripts/instance.sh
trap instance_end EXIT
make --no-print-directory -s -j2 BUILD=build all
instance_work
instance_stage build
instance_init
instance_start

# All that the extension owns: identity, definition, rights and comment.
catalogue() {
    instance_psql -At -d "$1" <<'SQL'
SELECT pg_describe_object(d.classid, d.objid, 0),
    CASE d.classid WHEN 'pg_proc'::regclass THEN pg_get_functiondef(d.objid) END,
    CASE d.classid WHEN 'pg_class'::regclass THEN pg_get_viewdef(d.objid) END,
    (SELECT proacl FROM pg_proc WHERE oid = d.objid), (SELECT relacl FROM pg_class WHERE oid = d.objid),
    obj_description(d.objid, d.classid::regclass::name)
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'llm_infer' AND d.deptype = 'e' ORDER BY 1;
SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'llm'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 2;
SQL
}

instance_psql -q -c 'CREATE DATABASE fresh'
instance_psql -q -d fresh -c 'CREATE EXTENSION llm_infer'
catalogue fresh >"$work/fresh"
bad=0
for v in $versions; do
    instance_psql -q -c "CREATE DATABASE \"from_$v\""
    instance_psql -q -d "from_$v" -c "CREATE EXTENSION llm_infer VERSION '$v'" -c 'ALTER EXTENSION llm_infer UPDATE'
    catalogue "from_$v" >"$work/from_$v"
    if ! diff -u "$work/from_$v" "$work/fresh"; then
        echo "$v updated to $current differs from a fresh $current"
        bad=1
    fi
done
exit $bad
