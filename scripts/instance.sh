# instance.sh - a temporary PostgreSQL instance with llm_infer, for demo, test and bench (sourced).
#
# Everything lives in one folder made by mktemp and owned by the user that runs the server: the
# staged installation, the data directory, the socket, the models. Nothing outside it is written, so
# Debian's own clusters stay as they are. PostgreSQL refuses to run as root; then user postgres runs
# the server.
#
#   instance_work            make the folder: $work
#   instance_stage BUILD     install the products of BUILD into $work/stage
#   instance_conf            print the settings that load the staged extension
#   instance_init, instance_start, instance_stop
#   instance_psql ARGS...    psql on it
#   instance_end             stop and remove (set keep=1 to leave everything in place)

pg_config=${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}
[ -x "$pg_config" ] || pg_config=pg_config
export PG_CONFIG=$pg_config # the build is for the server that runs it
pg_bindir=$("$pg_config" --bindir)
pg_pkglibdir=$("$pg_config" --pkglibdir)
pg_sharedir=$("$pg_config" --sharedir)
work=
keep=${keep:-0}
# where the user's own sessions go is nothing to the temporary instance
unset PGHOST PGHOSTADDR PGPORT PGDATABASE PGUSER PGOPTIONS PGSERVICE PGDATA PGSSLMODE

# The server's user may have no right to the current folder, nor to $TMPDIR.
as_pg() (
    cd "${work:-/}"
    export TMPDIR=${work:-/tmp}
    if [ "$(id -u)" = 0 ]; then
        exec runuser -u postgres -- "$@"
    else
        exec "$@"
    fi
)

# Below $TMPDIR, unless the server's user cannot enter that or a socket's name would grow too long.
instance_work() {
    local base
    base=$(cd "${TMPDIR:-/tmp}" && pwd)
    if [ ${#base} -gt 50 ] || ! as_pg test -x "$base"; then
        base=/tmp
    fi
    work=$(mktemp -d "$base/llm_infer.XXXXXX")
    mkdir -p "$work/models" "$work/socket"
    instance_own
}

# The server's user must own what it reads and writes.
instance_own() {
    if [ "$(id -u)" = 0 ]; then
        chown -R postgres "$work"
    fi
    chmod 700 "$work"
}

instance_stage() {
    local build=$1
    make --no-print-directory BUILD="$build" PG_CONFIG="$pg_config" DESTDIR="$work/stage" install \
        >"$work/install.log" 2>&1 || {
        cat "$work/install.log"
        return 1
    }
    instance_own
}

engine_path() { echo "$work/stage$pg_pkglibdir/llm_infer_engine"; }

instance_conf() {
    cat <<CONF
shared_preload_libraries = 'llm_infer'
dynamic_library_path = '$work/stage$pg_pkglibdir:\$libdir'
extension_destdir = '$work/stage'
llm_infer.engine_path = '$(engine_path)'
llm_infer.model_dir = '$work/models'
listen_addresses = ''
unix_socket_directories = '$work/socket'
fsync = off
logging_collector = off
CONF
}

instance_init() {
    as_pg "$pg_bindir/initdb" -D "$work/data" -U postgres --auth=trust -E UTF8 --locale=C.UTF-8 \
        >"$work/initdb.log"
    instance_conf >>"$work/data/postgresql.conf"
}

instance_start() {
    as_pg "$pg_bindir/pg_ctl" -s -w -t 60 -D "$work/data" -l "$work/server.log" start
}

# Every server below $work: also those of an interrupted test program.
instance_stop() {
    local pid_file
    while read -r pid_file; do
        as_pg "$pg_bindir/pg_ctl" -s -w -t 60 -D "${pid_file%/*}" -m fast stop </dev/null || true
    done < <(find "$work" -name postmaster.pid 2>/dev/null)
}

instance_psql() { as_pg "$pg_bindir/psql" -X -h "$work/socket" -U postgres -v ON_ERROR_STOP=1 "$@"; }

instance_end() {
    local as=
    [ -n "$work" ] || return 0
    trap '' INT TERM
    if [ "$keep" = 1 ] && [ -f "$work/data/postmaster.pid" ]; then
        [ "$(id -u)" != 0 ] || as='runuser -u postgres -- '
        echo
        echo "The instance is kept."
        echo "Connect:  $pg_bindir/psql -h $work/socket -U postgres"
        echo "Remove:   (cd / && $as$pg_bindir/pg_ctl -D $work/data stop) && rm -r $work"
    elif [ "$keep" = 1 ]; then
        instance_stop
        echo
        echo "Kept: $work"
    else
        instance_stop
        rm -rf "$work"
    fi
}
