#!/usr/bin/env bash
# call_table.sh - the tables in docs/calls.md are those that sql/call_counts.sql measures.
set -euo pipefail
cd "$(dirname "$0")/../.."
rows() { sed -n 's/ *$//; /^ .* | /p' "$1"; }
diff <(rows expected/call_counts.out) <(rows docs/calls.md) || {
    echo "docs/calls.md does not show what expected/call_counts.out has"
    exit 1
}
