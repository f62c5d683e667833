#!/usr/bin/env bash
# tests_listed.sh - no test is forgotten: each has what makes it run, and nothing is left over.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0
shopt -s nullglob
complain() {
    echo "$1"
    bad=1
}

for f in test/unit/test_*.c; do
    grep -qE '^ \* links: ' "$f" || complain "$f: no ' * links:' line, so it is not linked"
    for name in $(sed -n 's/^\(static void\|void\)$/&/;/^test_[a-z0-9_]*(void \*\*/s/(.*//p' "$f"); do
        grep -qE "cmocka_unit_test[a-z_]*\($name\b" "$f" || complain "$f: $name is never run"
    done
done
for f in sql/*.sql; do
    case $f in *--*) continue ;; esac
    [ -f "expected/$(basename "$f" .sql).out" ] || complain "$f has no expected output"
done
for f in expected/*.out; do
    base=$(basename "$f" .out)
    [ -f "sql/${base%_[0-9]}.sql" ] || complain "$f belongs to no test"
done
for f in test/isolation/specs/*.spec; do
    [ -e "$f" ] || continue
    [ -f "test/isolation/expected/$(basename "$f" .spec).out" ] || complain "$f has no expected output"
done
for f in test/fuzz/fuzz_*.c; do
    dir=test/fuzz/corpus/$(basename "$f" .c | sed 's/^fuzz_//')
    [ -n "$(ls "$dir" 2>/dev/null)" ] || complain "$f has no saved corpus in $dir"
done
for f in test/t/*.pl; do
    [[ $(basename "$f") =~ ^[0-9]{3}_[a-z0-9_]+\.pl$ ]] || complain "$f: name tests NNN_noun_theme.pl"
done
exit $bad
