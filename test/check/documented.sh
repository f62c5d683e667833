#!/usr/bin/env bash
# documented.sh - docs/reference.md names each SQLSTATE that is raised and each key of options, and no other; sql/documented.sql
# compares what the catalogue shows.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0
only_one() { # what, then the two sides: of the source, of the reference
    local odd
    odd=$(comm -3 <(sort -u <<<"$2") <(sort -u <<<"$3"))
    [ -n "$2" ] && [ -n "$3" ] && [ -z "$odd" ] || {
        printf '%s in the source alone, or (indented) in the reference alone:\n%s\n' "$1" "$odd"
        bad=1
    }
}
column() { # first column of the table whose heading matches
    awk -F'|' -v heading="$1" '/^\|/ && $2 ~ heading { on = 1; next } !/^\|/ { on = 0 } on && $2 !~ /---/ { print $2 }' docs/reference.md
}

# classes and codes that are only compared with, and success
raised=$(grep -rohE 'ERRCODE_[A-Z_]+' src/pg | sort -u |
    grep -vxE 'ERRCODE_(TO_CATEGORY|OPERATOR_INTERVENTION|TRANSACTION_ROLLBACK|T_R_SERIALIZATION_FAILURE|SUCCESSFUL_COMPLETION)')
codes=$("${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}" --includedir-server)/utils/errcodes.h
only_one SQLSTATEs "$(awk -F"[ (']" 'NR == FNR { raised[$1]; next } $2 in raised { gsub(/.*\(|[^0-9A-Z]/, ""); print }' <(echo "$raised") "$codes"
    grep -rohP "sqlstate = '\K\w{5}" src/pg)" "$(column SQLSTATE | grep -oE '[0-9A-Z]{5}' | grep -vx 22007)" # that one PostgreSQL's own parser raises

arguments=$(column '^ argument ' | grep -oE '[a-z_]+' | grep -vxE 'prompt|options')
keys=$(sed -n '/^static const OptionKey keys/,/^};/s/^\t{"\([a-z_]*\)", [a-z].*/\1/p; s/^\tPLAIN_KEY(\([a-z_]*\),.*/\1/p' src/pg/option_keys.c)
only_one 'keys of options' "$(grep -vxF "$arguments" <<<"$keys")" \
    "$(column 'key of `options`' | grep -oE '[a-z_]+'; echo not_before; echo max_attempts)"
exit $bad
