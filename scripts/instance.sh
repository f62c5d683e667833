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
pg_bindir=$("$pg_config" --bindir)
pg_pkglibdir=$("$pg_config" --pkglibdir)
pg_sharedir=$("$pg_config" --sharedir)
work=
keep=${keep:-0}

as_pg() {
    if [ "$(id -u)" = 0 ]; then
        runuser -u postgres -- "$@"
    else
        "$@"
    fi
}

instance_work() {
    local base=${TMPDIR:-/tmp}
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

instance_stop() {
    if [ -f "$work/data/postmaster.pid" ]; then
        as_pg "$pg_bindir/pg_ctl" -s -w -t 60 -D "$work/data" -m fast stop || true
    fi
}

instance_psql() { as_pg "$pg_bindir/psql" -X -h "$work/socket" -U postgres -v ON_ERROR_STOP=1 "$@"; }

instance_end() {
    [ -n "$work" ] || return 0
    if [ "$keep" = 1 ] && [ -d "$work/data" ]; then
        echo
        echo "The instance is kept. Connect:  $pg_bindir/psql -h $work/socket -U postgres"
        echo "Stop it:  $(id -nu) runs '$pg_bindir/pg_ctl -D $work/data stop' as the server's user, then remove $work"
    else
        instance_stop
        rm -rf "$work"
    fi
}
