# Processes die while jobs are queued, running and being written: every job ends once, with its own
# answer, and nobody has to submit anything for that.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('jobs', fault => 'slow_step=2');
my $resets = 0;
my $first = 1;

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

# Submit 'row 1' .. 'row n', and wait until some are running; the first id.
sub submit
{
	my ($n, $prefix) = @_;
	$prefix //= '';
	$first = one(qq{SELECT min(i) FROM llm_job_submit(array(SELECT '${prefix}row ' || i FROM generate_series(1, $n) i)) i});
	return $first;
}

sub running { return llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE state = 'running'}) }); }

sub pid_of { return one(q{SELECT pid FROM llm.job_workers WHERE state = 'running' AND owner IS } . ($_[0] ? 'NOT NULL' : 'NULL')); }

# All n jobs since the last submit are done, with their own answers. Only looks: llm_job_wait would
# wake those who have to come by themselves.
sub all_done
{
	my ($n, $name, $timeout) = @_;
	my $open = '';
	my $ok = llm_wait_for(sub {
		$open = one(qq{SELECT string_agg(DISTINCT state, ' ') FROM llm.jobs WHERE id >= $first AND finished IS NULL});
		return $open eq '';
	}, $timeout // 30);
	is(one(qq{SELECT count(*) FILTER (WHERE (llm_job_result(id)).text = 'row ' || id - $first + 1) || ' of ' || count(*) FROM llm.jobs
		WHERE id >= $first}) . ($ok ? '' : " ($open)"), "$n of $n", "$name: every job has its answer");
	return;
}

# ---- the engine ----

submit(400, '@slow=20 ');
running();
kill 'KILL', llm_engine_pid($node);
all_done(400, 'SIGKILL of the engine');
is(one("SELECT max(attempts) FROM llm.jobs WHERE id >= $first"), '1', 'no attempt was lost on it');
llm_is_well($node, 'SIGKILL of the engine');

{
	submit(3);
	my $bad = one(q{SELECT llm_job_submit('@crash')});
	submit(3);
	all_done(3, 'a prompt that crashes the engine');
	is(one("SELECT llm_job_wait($bad, '20 s')"), 'failed', 'it fails');
	like(one("SELECT sqlstate, message FROM llm.jobs WHERE id = $bad"), qr/^58000\|/, 'with its reason');
	llm_is_well($node, 'a prompt that crashes the engine');
}

# ---- workers, ended in order ----

foreach my $who (1, 0)
{
	my $name = 'SIGTERM of the ' . ($who ? 'worker' : 'launcher');
	submit(400, '@slow=10 ');
	running();
	my $pid = pid_of($who);
	kill 'TERM', $pid;
	all_done(400, $name);
	ok(llm_gone($pid), "$name: it is gone");
	llm_is_well($node, $name, resets => $resets);
}

submit(400, '@slow=10 ');
running();
kill 'TERM', llm_supervisor_pid($node);
all_done(400, 'SIGTERM of the supervisor');
llm_is_well($node, 'SIGTERM of the supervisor', resets => $resets);

# ---- killed: the cluster resets by PostgreSQL's own rule ----

foreach my $who (1, 0)
{
	my $name = 'kill -9 of the ' . ($who ? 'worker' : 'launcher');
	submit(400, '@slow=10 ');
	running();
	my $engine = llm_engine_pid($node);
	kill 'KILL', pid_of($who);
	$resets++;
	llm_engine_pid($node, $engine);
	all_done(400, $name);
	llm_is_well($node, $name, resets => $resets);
}

# A backend that dies with what it has not committed.
{
	my $s = llm_session($node, q{BEGIN; SELECT llm_job_submit('never'); SELECT pg_sleep(60)});
	my $pid = llm_backend($node, $s);
	llm_wait_for(sub { one("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $pid") eq 't' });
	my $before = one('SELECT count(*) FROM llm.jobs');
	my $engine = llm_engine_pid($node);
	kill 'KILL', $pid;
	$resets++;
	llm_session_end($s);
	llm_engine_pid($node, $engine);
	is(one('SELECT count(*) FROM llm.jobs'), $before, 'kill -9 of the submitter: nothing was submitted');
}

# ---- the server ----

foreach my $mode ('immediate', 'fast')
{
	submit(400, '@slow=10 ');
	running();
	$node->stop($mode);
	is_deeply([ llm_processes($node) ], [], "$mode stop: no process is left");
	$node->start;
	all_done(400, "$mode stop and start");
	llm_is_well($node, "$mode stop and start", resets => $resets);
}

is(one(q{SELECT count(*) FROM llm.jobs WHERE state = 'running'}), '0', 'nothing is stuck');
$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
