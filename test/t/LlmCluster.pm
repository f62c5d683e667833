# LlmCluster.pm - a temporary cluster with llm_infer preloaded, for TAP tests.
#
# The staged installation is found by the environment that scripts/test sets: LLM_STAGE and
# LLM_PKGLIBDIR. Most tests use the echo device: a model that answers with its prompt.
package LlmCluster;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(llm_cluster llm_engine_pid llm_wait_for llm_session llm_session_end
  llm_kv_is_clean llm_fault_wrapper llm_no_reset);

# The settings that load the staged extension.
sub staged_conf
{
    my ($pkglibdir, $stage) = ($ENV{LLM_PKGLIBDIR}, $ENV{LLM_STAGE});
    return <<"CONF";
shared_preload_libraries = 'llm_infer'
dynamic_library_path = '$stage$pkglibdir:\$libdir'
extension_destdir = '$stage'
llm_infer.engine_path = '$stage$pkglibdir/llm_infer_engine'
llm_infer.devices = 'echo'
llm_infer.engine_timeout = '10s'
log_min_messages = log
restart_after_crash = on
CONF
}

# A started cluster with the extension and the model 'echo'. conf: further settings; plain => 1: no
# extension; start => 0: initialised only.
sub llm_cluster
{
    my ($name, %opt) = @_;
    my $node = PostgreSQL::Test::Cluster->new($name);
    $node->init(allows_streaming => $opt{allows_streaming});
    $node->append_conf('postgresql.conf', staged_conf());
    $node->append_conf('postgresql.conf', $opt{conf}) if defined $opt{conf};
    return $node if defined $opt{start} && !$opt{start};
    $node->start;
    return $node if $opt{plain};
    $node->safe_psql('postgres',
        q{CREATE EXTENSION llm_infer; SELECT llm_model_register('echo', 'echo:')});
    return $node;
}

# Process id of the engine, once it is ready.
sub llm_engine_pid
{
    my ($node) = @_;
    my $pid;
    llm_wait_for(sub {
        $pid = $node->safe_psql('postgres',
            q{SELECT coalesce(pid, 0) FROM llm.stat_engine WHERE state = 'ready'});
        return $pid;
    }) or die 'the engine did not become ready';
    return $pid;
}

# Poll until the code gives a true value; false after the timeout (seconds, 20 by default).
sub llm_wait_for
{
    my ($code, $timeout) = @_;
    my $end = time() + ($timeout // 20);
    while (time() < $end)
    {
        my $r = eval { $code->() };
        return $r if $r;
        sleep 0.05;
    }
    return 0;
}

# Start psql in the background with the given SQL; finish it with llm_session_end.
sub llm_session
{
    my ($node, $sql, $dbname) = @_;
    my %s = (out => '', err => '', in => $sql);
    $s{h} = IPC::Run::start(
        [ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $node->connstr($dbname // 'postgres'), '-f', '-' ],
        '<', \$s{in}, '>', \$s{out}, '2>', \$s{err}, IPC::Run::timeout(120));
    return \%s;
}

# Wait for the session; returns (stdout, stderr).
sub llm_session_end
{
    my ($s) = @_;
    eval { $s->{h}->finish; 1 } or eval { $s->{h}->kill_kill };
    chomp $s->{out};
    return ($s->{out}, $s->{err});
}

# True when every KV page is free again and nothing runs or waits.
sub llm_kv_is_clean
{
    my ($node) = @_;
    return llm_wait_for(sub {
        $node->safe_psql('postgres',
            q{SELECT kv_pages_free + kv_pages_cached = kv_pages_total FROM llm.stat_engine}) eq 't';
    }, 10);
}

# A script that starts the staged engine with --fault=NAME; for llm_infer.engine_path. With a
# counter file the fault holds for the first n starts alone.
sub llm_fault_wrapper
{
    my ($node, $fault, $starts) = @_;
    my $engine = "$ENV{LLM_STAGE}$ENV{LLM_PKGLIBDIR}/llm_infer_engine";
    my $path = $node->basedir . '/engine_fault.sh';
    my $count = $node->basedir . '/engine_starts';
    $starts //= 1000000;
    PostgreSQL::Test::Utils::append_to_file($path, <<"SH");
#!/bin/sh
n=\$(cat '$count' 2>/dev/null || echo 0)
echo \$((n + 1)) > '$count'
[ \$n -lt $starts ] && exec '$engine' "\$@" '--fault=$fault'
exec '$engine' "\$@"
SH
    chmod 0755, $path or die;
    return $path;
}

# Fails when the server's log tells of a cluster reset.
sub llm_no_reset
{
    my ($node, $name) = @_;
    my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
    unlike($log, qr/terminating any other active server processes/, $name // 'no cluster reset');
    return;
}

1;
