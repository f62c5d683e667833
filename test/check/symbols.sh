#!/usr/bin/env bash
# symbols.sh - what the products show to the outside: modules are loaded with RTLD_GLOBAL.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0
make --no-print-directory -s -j2 BUILD=build all

exported=$(nm -D --defined-only build/llm_infer.so | awk '{print $3}' |
    grep -vE '^(llm_|_PG_init$|Pg_magic_func$|pg_finfo_llm_)' || true)
if [ -n "$exported" ]; then
    echo "llm_infer.so exports: $exported"
    bad=1
fi
# Every global of the engine carries the prefix, so that archives never collide.
for a in build/engine/*.a; do
    odd=$(nm --defined-only "$a" 2>/dev/null | awk '$2 ~ /[A-TV-Z]/ {print $3}' | grep -vE '^(llm_|main$)' || true)
    if [ -n "$odd" ]; then
        echo "$a defines: $odd"
        bad=1
    fi
done
# The extension carries no engine code and no device library.
if ldd build/llm_infer.so | grep -E 'cuda|cublas|pcre2|jansson|utf8proc'; then
    echo "llm_infer.so links the libraries above"
    bad=1
fi
# The engine imports nothing of PostgreSQL.
if nm -D --undefined-only build/llm_infer_engine | grep -E ' (palloc|errstart|elog|MemoryContext)'; then
    echo "the engine imports PostgreSQL"
    bad=1
fi
exit $bad
