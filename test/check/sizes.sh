#!/usr/bin/env bash
# sizes.sh - files stay under 1,000 lines and functions under 120 (a forward pass: 160).
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0

for file in $(find src test -name '*.[ch]' | sort); do
    n=$(wc -l <"$file")
    if [ "$n" -gt 1000 ]; then
        echo "$file: $n lines"
        bad=1
    fi
done

# A function's body is what stands between "{" and "}" in column 1.
long=$(find src -name '*.c' -o -name '*.h' | sort | xargs awk '
    FNR == 1 { start = 0 }
    /^[a-zA-Z_].*\(/ && !/;/ { name = $0 }
    /^\{/ { start = FNR; body = name }
    /^\}/ && start { n = FNR - start + 1
        limit = body ~ /forward/ ? 160 : 120
        if (n > limit) printf "%s: %d lines: %s\n", FILENAME, n, body
        start = 0 }')
if [ -n "$long" ]; then
    echo "$long"
    bad=1
fi

# Nothing large in the tree.
large=$(git ls-files -z 2>/dev/null | xargs -0 -r stat -c '%s %n' 2>/dev/null | awk '$1 > 1000000' || true)
if [ -n "$large" ]; then
    echo "files over 1 MB: $large"
    bad=1
fi
exit $bad
