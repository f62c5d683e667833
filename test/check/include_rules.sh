#!/usr/bin/env bash
# include_rules.sh - who may include whom: the floors of the house, from the ground up.
#
#   core | tensor tokenizer template wire | sample kv | kernels echo model | sched | engine | server
#   pg stands on wire and core/status.h; in it pg/node and pg/jobs stand side by side on the rest,
#   pg/enrich on both, and pg/standing on that
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A may=(
    [core]=""
    [tensor]="core"
    [tokenizer]="core"
    [template]="core"
    [wire]="core/status.h"
    [sample]="core tensor"
    [kv]="core tensor"
    [kernels]="core tensor sample"
    [echo]="core tensor sample"
    [model]="core tensor kv"
    [sched]="core tensor kv"
    [engine]="core tensor tokenizer template sample kv model sched"
    [server]="core engine/llm.h wire"
    [pg]="wire core/status.h"
)
devices=" kernels/cpu_device.h echo/echo_device.h " # engine/loader.c alone knows the devices
bad=0

complain() {
    echo "$1"
    bad=1
}

allowed() {
    local folder=$1 file=$2 header=$3 entry
    for entry in "$folder" ${may[$folder]}; do
        [ "$header" = "$entry" ] && return 0
        [ "${header%%/*}" = "$entry" ] && return 0
    done
    [ "$folder/$(basename "$file")" = engine/loader.c ] && [[ $devices == *" $header "* ]]
}

for file in $(find src -name '*.[ch]' | sort); do
    folder=$(echo "$file" | cut -d/ -f2)
    if [ -z "${may[$folder]+known}" ]; then
        complain "$file: folder src/$folder is not in the table"
        continue
    fi
    while IFS= read -r header; do
        case $header in
            llm.pb-c.h)
                [[ $folder =~ ^(server|wire|pg)$ ]] || complain "$file: $header is for wire, server and pg"
                ;;
            ../*) complain "$file: \"$header\": write includes from src/" ;;
            */*)
                if [ -f "src/$header" ]; then
                    allowed "$folder" "$file" "$header" ||
                        complain "$file: src/$folder may not include \"$header\""
                elif [ "$folder" != pg ]; then
                    complain "$file: \"$header\" is not in the house"
                fi
                ;;
            *)
                [ "$folder" = pg ] || complain "$file: \"$header\": write includes from src/"
                ;;
        esac
    done < <(sed -n 's/^#[ ]*include "\([^"]*\)".*/\1/p' "$file")
done

# The engine never sees PostgreSQL; headers of pg other than its own never include postgres-free code.
if grep -lE '#include [<"](postgres|fmgr|pg_config)' $(find src -path src/pg -prune -o -name '*.[ch]' -print); then
    complain "the files above include PostgreSQL outside src/pg"
fi
# Only init.c, pg/enrich and, above that, pg/standing know both the node and the jobs.
if grep -nE '#include "pg/(node|jobs|enrich|standing)/' src/pg/*.[ch] | grep -v '^src/pg/init.c:' ||
    grep -nE '#include "pg/(jobs|enrich|standing)/' src/pg/node/*.[ch] ||
    grep -nE '#include "pg/(node|enrich|standing)/' src/pg/jobs/*.[ch] || grep -n '#include "pg/standing/' src/pg/enrich/*.[ch]; then
    complain "the files above include from pg/node, pg/jobs, pg/enrich or pg/standing"
fi
# Version differences live in one file.
if grep -nE 'PG_VERSION_NUM' $(find src/pg -name '*.[ch]' ! -name compat.h); then
    complain "PG_VERSION_NUM belongs into src/pg/compat.h alone"
fi
# Base names are unique.
twins=$(find src -name '*.c' -o -name '*.h' | xargs -n1 basename | sort | uniq -d)
[ -z "$twins" ] || complain "base names used twice: $twins"
exit $bad
