#!/usr/bin/env bash
# flags.sh - the compiler flags that exact numerics need (rule R5), in every engine object.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0

if grep -nE 'march=native|ffast-math|Ofast|funsafe-math|fassociative-math|freciprocal-math|mfpmath|flto|ffp-contract=(on|fast)' \
    Makefile $(find src -name '*.[ch]') scripts/test; then
    echo "the flags above change floating-point results"
    bad=1
fi
commands=$(make -n -B BUILD=build/check-flags engine | grep -E ' -c ' | grep -v 'llm.pb-c.c' | grep 'src/')
if [ -z "$commands" ]; then
    echo "no compile commands found"
    bad=1
fi
while IFS= read -r command; do
    for flag in -std=c11 -ffp-contract=off -fvisibility=hidden -Werror; do
        if [[ " $command " != *" $flag "* ]]; then
            echo "missing $flag: $command"
            bad=1
        fi
    done
done <<<"$commands"
if grep -rnE '#pragma +(STDC +FP_CONTRACT|GCC +optimize)|optimize\("' src; then
    echo "per-function optimisation changes floating-point results"
    bad=1
fi
# scalar libm on the way to a logit differs between machines
if grep -nE '\b(expf|logf|tanhf|sinf|cosf|powf|exp2f|log2f)\(' $(find src/kernels src/sample src/tensor -name '*.[ch]') |
    grep -vE 'llm_(expf|logf|tanhf|sinf|cosf)|^[^:]*:[0-9]*:[ \t/]*\*|//'; then
    echo "use tensor/mathf.h instead of libm"
    bad=1
fi
exit $bad
