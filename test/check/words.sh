#!/usr/bin/env bash
# words.sh - the repository speaks of the product alone: no machine's paths, no left-overs.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0
if ! git rev-parse --git-dir >/dev/null 2>&1; then
    echo "SKIP words: not a git checkout"
    exit 0
fi
if git grep -nE '(/work/|/root/|/home/[a-z]+/|\.\./shared)' -- . ':!test/check/words.sh'; then
    echo "paths of one machine"
    bad=1
fi
if git grep -nE '\b(TODO|FIXME|XXX|HACK)\b' -- src sql scripts ':!test/check/words.sh'; then
    echo "left-overs: finish them or put them into the issue tracker"
    bad=1
fi
v=$(sed -n 's/^LLM_INFER_VERSION = //p' Makefile)
grep -q "default_version = '$v'" llm_infer.control || { echo "llm_infer.control is not version $v"; bad=1; }
grep -q "\"version\": \"$v\"" META.json || { echo "META.json is not version $v"; bad=1; }
[ -f "sql/llm_infer--$v.sql" ] || { echo "sql/llm_infer--$v.sql is missing"; bad=1; }
exit $bad
