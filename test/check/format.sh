#!/usr/bin/env bash
# format.sh - clang-format has nothing to change; scripts end in a newline and hold no tabs.
set -euo pipefail
cd "$(dirname "$0")/../.."
files=$(find src test -name '*.[ch]')
clang-format --dry-run --Werror $files 2>&1 | head -40
[ "${PIPESTATUS[0]}" = 0 ]
