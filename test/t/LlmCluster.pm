# LlmCluster.pm - temporary clusters with llm_infer preloaded, and what their tests ask again and again.
#
# The staged installation is found by the environment that scripts/test sets: LLM_STAGE and
# LLM_PKGLIBDIR. Most tests use the echo device: a model that answers with its prompt, and whose
# prompts may carry directives such as @tokens=100 or @crash.
#
# Sessions that shall run beside the test are psql processes of their own (llm_session). Nothing here
# sleeps for an event: llm_wait_for polls. Signals go to single processes, whose ids come from the
# cluster itself.
package LlmCluster;

use strict;
use warnings;
use Exporter 'import';
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(llm_cluster llm_conf llm_extension llm_engine_path llm_fault_wrapper
  llm_wait_for llm_engine_pid llm_supervisor_pid llm_processes llm_gone
  llm_session llm_session_end llm_backend llm_active llm_error llm_is_well llm_resets llm_log_since
  llm_answers llm_requests);

my $n_sessions = 0;

# A test that is stopped from outside stops its clusters too: they do so in their END block.
$SIG{$_} = sub { exit 1 } foreach qw(INT TERM HUP);

# ---- clusters ----

sub llm_engine_path
{
	return "$ENV{LLM_STAGE}$ENV{LLM_PKGLIBDIR}/llm_infer_engine";
}

# The settings that load the staged extension; preload => 0 leaves it to CREATE EXTENSION.
sub llm_conf
{
	my (%opt) = @_;
	my ($pkglibdir, $stage) = ($ENV{LLM_PKGLIBDIR}, $ENV{LLM_STAGE});
	my $conf = <<"CONF";
dynamic_library_path = '$stage$pkglibdir:\$libdir'
extension_destdir = '$stage'
log_statement = none
restart_after_crash = on
autovacuum = off
CONF
	return $conf if defined $opt{preload} && !$opt{preload};
	return $conf . <<"CONF";
shared_preload_libraries = 'llm_infer'
llm_infer.engine_path = '$stage$pkglibdir/llm_infer_engine'
llm_infer.devices = 'echo'
llm_infer.engine_timeout = '10s'
llm_infer.kv_cache_memory = '16MB'
CONF
}

# A started cluster with the extension and the model 'echo'. conf: further settings; fault: of the
# engine; preload => 0: not preloaded; plain => 1: no extension; start => 0: initialised only.
sub llm_cluster
{
	my ($name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(
		allows_streaming => $opt{allows_streaming},
		extra => [ '-E', $opt{encoding} // 'UTF8', '--locale=C' ]);
	$node->append_conf('postgresql.conf', llm_conf(preload => $opt{preload}));
	$node->append_conf('postgresql.conf',
		"llm_infer.engine_path = '" . llm_fault_wrapper($node, $opt{fault}) . "'")
	  if defined $opt{fault};
	$node->append_conf('postgresql.conf', $opt{conf}) if defined $opt{conf};
	return $node if defined $opt{start} && !$opt{start};
	$node->start;
	llm_extension($node) unless $opt{plain};
	return $node;
}

# The extension and the model 'echo' in one database.
sub llm_extension
{
	my ($node, $dbname) = @_;
	$node->safe_psql($dbname // 'postgres',
		q{CREATE EXTENSION llm_infer; SELECT llm_model_register('echo', 'echo:')});
	return;
}

# A program that starts the staged engine with --fault=FAULT, for llm_infer.engine_path. It notes the
# time of each start, a line each, in engine_starts below the node's folder.
sub llm_fault_wrapper
{
	my ($node, $fault) = @_;
	my ($engine, $dir) = (llm_engine_path(), $node->basedir);
	my $path = "$dir/engine_wrapper.sh";
	unlink $path;
	PostgreSQL::Test::Utils::append_to_file($path, <<"SH");
#!/bin/sh
date +%s.%N >> '$dir/engine_starts'
exec '$engine' "\$@" '--fault=$fault'
SH
	chmod 0755, $path or die "chmod $path: $!";
	return $path;
}

# ---- waiting ----

# Poll until the code gives a true value, and give that back; false after the timeout (seconds). Errors
# of the code count as not yet.
sub llm_wait_for
{
	my ($code, $timeout) = @_;
	my $end = time() + ($timeout // 20);
	while (1)
	{
		my $r = eval { $code->() };
		return $r if $r;
		return 0 if time() >= $end;
		sleep 0.03;
	}
}

# ---- processes ----

# Process id of the engine, once it is ready; not that of the engine other.
sub llm_engine_pid
{
	my ($node, $other) = @_;
	my $pid = llm_wait_for(sub {
		my $p = $node->safe_psql('postgres', q{SELECT pid FROM llm.stat_engine WHERE state = 'ready'});
		return defined $other && $p eq $other ? 0 : $p;
	});
	die 'the engine did not become ready' unless $pid;
	return $pid;
}

sub llm_supervisor_pid
{
	my ($node) = @_;
	return llm_wait_for(sub {
		$node->safe_psql('postgres',
			q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'llm_infer supervisor'});
	});
}

# State letter of a process; '' when there is none. What has ended and waits for its parent is 'Z'.
sub process_state
{
	my ($pid) = @_;
	open my $f, '<', "/proc/$pid/stat" or return '';
	my $line = <$f> // '';
	close $f;
	return $line =~ /\) (\S)/ ? $1 : '';
}

# True when none of the processes runs any more.
sub llm_gone
{
	my (@pids) = @_;
	return !grep { process_state($_) !~ /^[ZX]?$/ } @pids;
}

# Ids of the living processes that work in the node's data directory; engines => 1: of engines alone.
sub llm_processes
{
	my ($node, %opt) = @_;
	my @pids;
	my $dir = $node->data_dir;
	foreach my $proc (glob '/proc/[0-9]*')
	{
		my $cwd = readlink "$proc/cwd";
		next unless defined $cwd && $cwd eq $dir;
		next if $opt{engines} && (readlink("$proc/exe") // '') ne llm_engine_path();
		push @pids, $proc =~ s{^/proc/}{}r;
	}
	return grep { !llm_gone($_) } @pids;
}

# ---- sessions beside the test ----

# Run SQL in a psql of its own. dbname, or connstr for another server before it; app (application_name), user,
# stop (ON_ERROR_STOP, 0 by default). llm_session_end must be called.
sub llm_session
{
	my ($node, $sql, %opt) = @_;
	my $file = $node->basedir . '/session_' . ++$n_sessions;
	my $connstr = $opt{connstr} // $node->connstr($opt{dbname} // 'postgres');
	my $app = $opt{app} // "session_$n_sessions";
	PostgreSQL::Test::Utils::append_to_file("$file.sql", "$sql\n;\n");
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		$ENV{PGAPPNAME} = $app;
		$ENV{PGUSER} = $opt{user} if defined $opt{user};
		open(STDIN, '<', '/dev/null') && open(STDOUT, '>', "$file.out") && open(STDERR, '>', "$file.err")
		  && exec('psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-v', 'ON_ERROR_STOP=' . ($opt{stop} // 0),
			'-d', $connstr, '-f', "$file.sql");
		POSIX::_exit(127);
	}
	return { pid => $pid, file => $file, app => $app, begun => time() };
}

# Wait for a session; (stdout, stderr), without the last line end.
sub llm_session_end
{
	my ($s, $timeout) = @_;
	my $late = '';
	unless (llm_wait_for(sub { waitpid($s->{pid}, POSIX::WNOHANG()) != 0 }, $timeout // 60))
	{
		$late = "session $s->{app} did not end\n";
		kill 'KILL', $s->{pid};
		waitpid $s->{pid}, 0;
	}
	my $out = PostgreSQL::Test::Utils::slurp_file("$s->{file}.out");
	my $err = PostgreSQL::Test::Utils::slurp_file("$s->{file}.err") . $late;
	chomp($out, $err);
	return ($out, $err);
}

# Process id of the backend of a session, once it is there.
sub llm_backend
{
	my ($node, $s) = @_;
	return llm_wait_for(sub {
		$node->safe_psql('postgres',
			"SELECT pid FROM pg_stat_activity WHERE application_name = '$s->{app}'");
	});
}

# Wait until the engine works for n backends (1 by default), and give their process ids. One session looks
# often: a statement may be at work for less time than psql needs to start.
sub llm_active
{
	my ($node, $n) = @_;
	$n //= 1;
	my $pids = llm_wait_for(sub {
		my @p = split /\n/, $node->safe_psql('postgres', qq{
			DO \$\$ BEGIN
				FOR i IN 1 .. 2000 LOOP
					EXIT WHEN (SELECT count(*) >= $n FROM llm.stat_activity WHERE state = 'active');
					PERFORM pg_sleep(0.003);
				END LOOP;
			END \$\$;
			SELECT pid FROM llm.stat_activity WHERE state = 'active' ORDER BY pid});
		return @p >= $n ? \@p : 0;
	});
	die 'no backend became active' unless $pids;
	return @$pids;
}

# What psql prints about a statement that fails, with its SQLSTATE, detail and hint; '' when it works.
sub llm_error
{
	my ($node, $sql, $dbname) = @_;
	my ($out, $err);
	my $rc = $node->psql($dbname // 'postgres', $sql, stdout => \$out, stderr => \$err,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $rc == 0 ? '' : $err;
}

# ---- checks ----

# How often the cluster was reset, as its log tells.
sub llm_resets
{
	my ($node) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
	return scalar(() = $log =~ /all server processes terminated; reinitializing/g);
}

# The server log from an offset on; the offset is -s $node->logfile at an earlier time.
sub llm_log_since
{
	my ($node, $offset) = @_;
	return PostgreSQL::Test::Utils::slurp_file($node->logfile, $offset);
}

# 'row 1' to 'row n', a line each: what the echo device makes of such prompts.
sub llm_answers
{
	my ($n) = @_;
	return join "\n", map { "row $_" } 1 .. $n;
}

# Requests that the engine has had, when all who asked have their answers and the last cancelled one is counted: the
# engine comes to that when the session may be gone. undef when it does not.
sub llm_requests
{
	my ($node) = @_;
	my $n;
	llm_wait_for(sub {
		($n) = $node->safe_psql('postgres', q{SELECT 'kept', count(*) FROM llm.prefix_cache;
			SELECT 'asked', requests FROM llm.stat_engine WHERE running = 0 AND waiting = 0}) =~ /^asked\|(\d+)/m;
		return defined $n;
	});
	return $n;
}

# The state after an event: a call is answered, no backend hangs, no request is left in the engine or counted, no
# page is lost, one engine runs, and the cluster was reset as often as told. resets: 0 by default;
# model: 'echo' by default; unread: a cursor's answers that nobody has read may still be counted.
sub llm_is_well
{
	my ($node, $name, %opt) = @_;
	my @wrong;
	my $model = $opt{model} // 'echo';
	my $text = eval { $node->safe_psql('postgres', "SELECT llm_generate('all is well', '$model')") }
	  // "error: $@";
	push @wrong, "a call gave '$text'" unless $text eq 'all is well';
	my $stuck = '';
	my $idle = llm_wait_for(sub {
		$stuck = $node->safe_psql('postgres', q{SELECT pid, state, left(query, 60) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state = 'active'});
		return $stuck eq '';
	}, 5);
	push @wrong, "stuck backends: $stuck" unless $idle;
	my $engine = '';
	my $clean = llm_wait_for(sub {
		$engine = $node->safe_psql('postgres', q{SELECT pid, kv_pages_total, kv_pages_free,
			kv_pages_cached, running, waiting FROM llm.stat_engine});
		return $engine =~ /^\d+\|(\d+)\|(\d+)\|(\d+)\|0\|0$/ && $1 > 0 && $1 == $2 + $3;
	}, 5);
	push @wrong, "engine (pid, pages total, free, cached, running, waiting): $engine" unless $clean;
	my $counted = '';
	my $settled = $opt{unread} || llm_wait_for(sub {
		$counted = $node->safe_psql('postgres', q{SELECT string_agg(role || ' ' || in_flight, ', ')
			FROM llm.stat_users WHERE in_flight <> 0});
		return $counted eq '';
	}, 5);
	push @wrong, "counted as in flight: $counted" unless $settled;
	my @engines = llm_processes($node, engines => 1);
	push @wrong, "engines: @engines" unless "@engines" eq $engine =~ s/\|.*//sr;
	my $resets = llm_resets($node);
	push @wrong, "cluster resets: $resets" unless $resets == ($opt{resets} // 0);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(!@wrong, "all is well after: $name") or diag(join "\n", @wrong);
	return;
}

1;
