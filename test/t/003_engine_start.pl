# An engine that cannot start: the server starts all the same, calls say why within engine_timeout, the
# supervisor tries again ever more seldom, and all is fine as soon as a good engine is there.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('start', start => 0);
my $engine = $node->basedir . '/engine';
my $starts = $node->basedir . '/engine_starts';
$node->append_conf('postgresql.conf', "llm_infer.engine_path = '$engine'");
$node->append_conf('postgresql.conf', "llm_infer.engine_timeout = '1s'");

# Put a program at the engine's path; undef removes it.
sub place
{
	my ($text, $mode) = @_;
	unlink $engine, "$engine.new";
	return unless defined $text;
	PostgreSQL::Test::Utils::append_to_file("$engine.new", $text);
	chmod $mode // 0755, "$engine.new" or die;
	rename "$engine.new", $engine or die;
	return;
}

# Have the engine that runs replaced by what is at its path; that would wait for one that is ready.
sub restart_engine
{
	$node->psql('postgres', q{SET statement_timeout = '20ms'; SELECT llm_engine_restart()});
	return;
}

sub replace
{
	llm_engine_pid($node);
	place(@_);
	restart_engine();
	return;
}

sub is_refused
{
	my ($what, $reason) = @_;
	my $begin = time();
	my $err = llm_error($node, q{SELECT llm_generate('x')});
	my $took = time() - $begin;
	like($err, qr/ERROR:  08006: no llm_infer engine was available for 1000 ms\nDETAIL:  .*$reason/,
		"$what: 08006 with the reason");
	cmp_ok($took, '<', 5, "$what: within engine_timeout");
	return;
}

# A good engine takes over, by itself or at once when asked for.
sub recovers
{
	my ($what, $ask) = @_;
	place("#!/bin/sh\nexec '" . llm_engine_path() . "' \"\$@\"\n");
	$node->safe_psql('postgres', 'SELECT llm_engine_restart()') if $ask;
	llm_engine_pid($node);
	llm_is_well($node, $what);
	return;
}

# ---- no program at all ----

$node->start;
pass('the server starts without an engine');
llm_extension($node);
my $offset = -s $node->logfile;
is_refused('missing program', 'engine program ".*/engine" cannot be executed: No such file');
is($node->safe_psql('postgres', q{SELECT state, pid IS NULL, message LIKE '%No such file%'
	FROM llm.stat_engine}), 'down|t|t', 'the view says the same');
is($node->safe_psql('postgres', q{SELECT name, state IS NULL FROM llm.models}), 'echo|t', 'llm.models answers');
like(llm_error($node, q{SELECT llm_model_load('echo')}), qr/ERROR:  08006: /, 'llm_model_load says so too');
unlike(llm_log_since($node, $offset), qr/(WARNING:  llm_infer: engine program.*){2}/s, 'the log tells it once');
{
	my $s = llm_session($node, "SET statement_timeout = '200ms'; SELECT llm_generate('x')");
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014/, 'statement_timeout works meanwhile');
}
recovers('the program has appeared', 0);

# ---- programs that are none ----

foreach my $case (
	[ 'program without the right to run', "#!/bin/sh\n", 0644, 'Permission denied' ],
	[ 'garbage as program', "\x01\x02garbage\n" x 100, 0755, 'could not execute ".*/engine": Exec format error' ],
	[ 'program that fails at once', "#!/bin/sh\nexit 3\n", 0755, 'exited with code 3' ],
	[ 'program that says why', "#!/bin/sh\necho 'ERROR the fan is missing' >&2\nexit 2\n", 0755,
		'exited with code 2: the fan is missing' ],
	[ 'program that dies', "#!/bin/sh\nkill -SEGV \$\$\n", 0755, 'terminated by signal 11' ])
{
	my ($what, $text, $mode, $reason) = @$case;
	replace($text, $mode);
	is_refused($what, $reason);
	recovers($what, 1);
}

{
	place(undef);
	mkdir $engine or die;
	restart_engine();
	is_refused('directory as program', '(Permission denied|Is a directory)');
	rmdir $engine;
	recovers('directory as program', 1);
}

{
	$offset = -s $node->logfile;
	replace("#!/bin/sh\nexec sleep 1000\n");
	is_refused('program that only sleeps', '(did not answer|engine is starting)');
	ok(llm_wait_for(sub { llm_log_since($node, $offset) =~ /did not answer for 1000 ms, killing it/ }, 5),
		'program that only sleeps: the watchdog kills it');
	recovers('program that only sleeps', 1);
}

# ---- back-off ----

{
	$offset = -s $node->logfile;
	replace("#!/bin/sh\ndate +%s.%N >> '$starts'\nexit 1\n");
	ok(llm_wait_for(sub { -e $starts && (() = slurp_file($starts) =~ /\n/g) >= 6 }, 20), 'it is tried again');
	my @times = split /\n/, slurp_file($starts);
	my @gaps = map { $times[ $_ + 1 ] - $times[$_] } 0 .. 4;
	cmp_ok($gaps[4], '>', 0.6, "ever more seldom (@gaps)");
	cmp_ok((() = llm_log_since($node, $offset) =~ /\n/g), '<', 40, 'the log is not flooded');
	like(llm_error($node, q{SELECT llm_engine_restart()}),
		qr/ERROR:  08006: the engine was not ready within 1000 ms\nDETAIL:  .*exited with code 1/,
		'llm_engine_restart tells that it failed');
	recovers('back-off', 0);
}

# ---- an engine that runs and cannot work ----

$node->append_conf('postgresql.conf', "llm_infer.devices = 'abacus'");
$node->restart;
like(llm_error($node, q{SELECT llm_generate('x')}),
	qr/ERROR:  08006: "abacus" is no device\nHINT:  Devices are/, 'unknown device: 08006 with the reason');
like($node->safe_psql('postgres', 'SELECT state, message FROM llm.stat_engine'), qr/^starting\|"abacus" is no/,
	'unknown device: the view says it');
$node->append_conf('postgresql.conf', "llm_infer.devices = 'echo'");
$node->restart;
llm_engine_pid($node);
llm_is_well($node, 'unknown device');

# ---- no room for the supervisor ----

$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
is_refused('no worker slot', 'the llm_infer supervisor is not running');
is($node->safe_psql('postgres', 'SELECT state FROM llm.stat_engine'), 'off', 'no worker slot: the view');
like(llm_error($node, 'SELECT llm_engine_restart()'), qr/ERROR:  08006: the llm_infer supervisor is not running/,
	'no worker slot: llm_engine_restart');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
llm_engine_pid($node);
llm_is_well($node, 'no worker slot');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
