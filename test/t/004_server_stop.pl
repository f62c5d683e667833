# Supervisor, backends and the server itself end while the engine is busy: nothing is left running,
# nothing stays behind, and everything comes back. CREATE and DROP DATABASE do not wait for calls.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('stop', fault => 'slow_step=4', conf => 'max_connections = 20');
my $long = q{SELECT llm_generate('@tokens=3900 x', max_tokens => 4000) FROM generate_series(1, 20)};
my $resets = 0;
$node->safe_psql('postgres', 'CREATE TABLE kept AS SELECT 1 AS i');

# ---- the supervisor ----

{
	my ($supervisor, $engine) = (llm_supervisor_pid($node), llm_engine_pid($node));
	my $s = llm_session($node, q{SELECT llm_generate('row ' || i) FROM generate_series(1, 1000) i});
	llm_active($node);
	kill 'TERM', $supervisor;
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1000), 'SIGTERM of the supervisor: every row has its answer');
	ok(llm_gone($supervisor, $engine), 'SIGTERM of the supervisor: its engine is gone with it');
	isnt(llm_supervisor_pid($node), $supervisor, 'SIGTERM of the supervisor: another one runs');
	llm_is_well($node, 'SIGTERM of the supervisor');
}

{
	my ($supervisor, $engine) = (llm_supervisor_pid($node), llm_engine_pid($node));
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($supervisor)");
	llm_engine_pid($node, $engine);
	llm_is_well($node, 'pg_terminate_backend of the supervisor');
}

# ---- databases come and go ----

{
	$node->safe_psql('postgres', 'CREATE DATABASE busy');
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	llm_extension($node, 'busy');
	my $s = llm_session($node, $long, dbname => 'busy');
	llm_active($node);
	my $begin = time();
	$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE other');
	$node->safe_psql('postgres', 'DROP DATABASE other');
	$node->safe_psql('postgres', 'DROP DATABASE copied');
	cmp_ok(time() - $begin, '<', 12, 'CREATE and DROP DATABASE do not wait for a busy session');
	like(llm_error($node, 'DROP DATABASE busy'), qr/ERROR:  55006: .*being accessed by other users/,
		'DROP DATABASE of a busy session: refused as usual');
	$begin = time();
	$node->safe_psql('postgres', 'DROP DATABASE busy WITH (FORCE)');
	cmp_ok(time() - $begin, '<', 12, 'DROP DATABASE WITH (FORCE) does not wait for it either');
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57P01: terminating connection/, 'DROP DATABASE WITH (FORCE): the session is told');
	llm_is_well($node, 'DROP DATABASE WITH (FORCE)');
}

{
	$node->safe_psql('postgres', 'CREATE DATABASE busy');
	llm_extension($node, 'busy');
	my $s = llm_session($node, q{SELECT llm_generate('@tokens=100 x', 'echo')}, dbname => 'busy');
	llm_active($node);
	$node->safe_psql('busy', 'DROP EXTENSION llm_infer CASCADE');
	my ($out, $err) = llm_session_end($s);
	is("$out$err", 'x' x 100, 'DROP EXTENSION: the running call is answered');
	like(llm_error($node, q{SELECT llm_generate('x')}, 'busy'), qr/ERROR:  42883: /,
		'DROP EXTENSION: the next one finds no function');
	llm_extension($node, 'busy');
	is($node->safe_psql('busy', q{SELECT llm_generate('again')}), 'again', 'CREATE EXTENSION again');
	$node->safe_psql('postgres', 'DROP DATABASE busy');
	llm_is_well($node, 'DROP EXTENSION');
}

# ---- a backend is killed: the cluster resets by PostgreSQL's own rule ----

{
	my ($supervisor, $engine) = (llm_supervisor_pid($node), llm_engine_pid($node));
	my @s = map { llm_session($node, $long) } 1 .. 3;
	my ($victim) = llm_active($node, 3);
	kill 'KILL', $victim;
	my @err = map { (llm_session_end($_))[1] } @s;
	is(scalar(grep { /57P02: terminating connection because of crash|server closed the connection/ } @err), 3,
		'kill -9 of a backend: every session is told');
	$resets++;
	llm_engine_pid($node, $engine);
	ok(llm_gone($supervisor, $engine, $victim), 'kill -9 of a backend: supervisor and engine went too');
	is($node->safe_psql('postgres', 'SELECT i FROM kept'), '1', 'kill -9 of a backend: data are there');
	llm_is_well($node, 'kill -9 of a backend', resets => $resets);
}

{
	my ($supervisor, $engine) = (llm_supervisor_pid($node), llm_engine_pid($node));
	my $s = llm_session($node, $long);
	llm_active($node);
	kill 'KILL', $supervisor;
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57P02: |server closed the connection/, 'kill -9 of the supervisor: it resets the cluster as well');
	$resets++;
	llm_engine_pid($node, $engine);
	ok(llm_gone($supervisor, $engine), 'kill -9 of the supervisor: its engine went too');
	llm_is_well($node, 'kill -9 of the supervisor', resets => $resets);
}

# ---- the server stops ----

# Stop it while sessions are busy, and start it again.
sub stop_while_busy
{
	my ($mode, $what, $prepare) = @_;
	my @s = map { llm_session($node, $long) } 1 .. 3;
	llm_active($node, 3);
	$prepare->() if $prepare;
	my @pids = llm_processes($node);
	my $begin = time();
	$node->stop($mode);
	my $took = time() - $begin;
	cmp_ok($took, '<', 4.8, "$what: nobody had to be killed, which takes 5 s");
	ok(llm_wait_for(sub { llm_gone(@pids) && !llm_processes($node) }), "$what: no process is left")
	  or diag(join ' ', llm_processes($node));
	my @err = map { (llm_session_end($_))[1] } @s;
	is(scalar(grep { /57P01|57P02|server closed the connection/ } @err), 3, "$what: every session is told");
	ok(!-e $node->data_dir . '/pgsql_tmp.llm_infer.sock', "$what: no socket is left") if $mode eq 'fast';
	$node->start;
	llm_engine_pid($node);
	llm_is_well($node, $what, resets => $resets);
	return;
}

stop_while_busy('fast', 'fast stop');
stop_while_busy('immediate', 'immediate stop');
stop_while_busy('fast', 'fast stop beside a stopped engine',
	sub { kill 'STOP', llm_processes($node, engines => 1) });
stop_while_busy('immediate', 'immediate stop beside a stopped engine',
	sub { kill 'STOP', llm_processes($node, engines => 1) });

{
	my $begin = time();
	$node->stop('smart');
	cmp_ok(time() - $begin, '<', 10, 'smart stop without sessions: the engine holds nothing up');
	is_deeply([ llm_processes($node) ], [], 'smart stop: no process is left');
	$node->start;
	llm_engine_pid($node);
}

{
	my @s = map { llm_session($node, $long) } 1 .. 3;
	llm_active($node, 3);
	my @pids = llm_processes($node);
	$node->kill9;
	my @err = map { (llm_session_end($_))[1] } @s;
	ok(llm_wait_for(sub { llm_gone(@pids) && !llm_processes($node) }, 10),
		'kill -9 of the postmaster: no process is left') or diag(join ' ', llm_processes($node));
	# Until init has reaped it, its process id would pass for a running server.
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock';
	$node->start;
	llm_engine_pid($node);
	llm_is_well($node, 'kill -9 of the postmaster', resets => $resets);
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
