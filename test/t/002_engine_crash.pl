# The engine dies, hangs or is poisoned: the supervisor starts another one, every row gets its own
# answer, only the prompt that crashes by itself is refused, and the cluster is never reset.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('crash', fault => 'slow_step=4', conf => <<'CONF');
llm_infer.engine_timeout = '2s'
max_connections = 30
CONF

# After a failure the next start waits longer; a restart by hand begins anew.
sub begin_anew
{
	my $pid = llm_engine_pid($node);
	$node->safe_psql('postgres', 'SELECT llm_engine_restart()');
	return llm_engine_pid($node, $pid);
}

# How many engines were started so far.
sub starts
{
	return $node->safe_psql('postgres', 'SELECT restarts + 1 FROM llm.stat_engine');
}

sub rows_sql
{
	my ($n) = @_;
	return "SELECT llm_generate('row ' || i) FROM generate_series(1, $n) i";
}

# ---- it dies ----

foreach my $signal (qw(SEGV KILL ABRT TERM))
{
	my $begin = -s $node->logfile;
	my $pid = llm_engine_pid($node);
	my $s = llm_session($node, rows_sql(1200));
	llm_active($node);
	kill $signal, $pid;
	my ($out, $err) = llm_session_end($s);
	is($out, llm_answers(1200), "SIG$signal: every row has its answer, in order");
	is($err, '', "SIG$signal: nobody notices");
	isnt(llm_engine_pid($node), $pid, "SIG$signal: another engine runs");
	cmp_ok($node->safe_psql('postgres', 'SELECT requests FROM llm.stat_engine'), '>', 10,
		"SIG$signal: it was given what the former one had not answered");
	ok(llm_gone($pid), "SIG$signal: the former one is gone");
	like(llm_log_since($node, $begin), qr/llm_infer: engine process $pid (was terminated by signal|exited)/,
		"SIG$signal: the log tells how it ended");
	llm_is_well($node, "SIG$signal of the engine");
	begin_anew();
}

{
	my $pid = llm_engine_pid($node);
	kill 'KILL', $pid;
	is($node->safe_psql('postgres', q{SELECT llm_generate('hello')}), 'hello', 'killed while idle');
	llm_is_well($node, 'SIGKILL of an idle engine');
}

{
	my $pid = begin_anew();
	my $gate = $node->background_psql('postgres');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	my @sessions = map { my $k = $_; llm_session($node, "DO 'BEGIN PERFORM pg_advisory_lock_shared(1); END';
		SELECT llm_generate('s$k row ' || i) FROM generate_series(1, 300) i") } 1 .. 8;
	llm_wait_for(sub { $node->safe_psql('postgres',
		q{SELECT count(*) = 8 FROM pg_stat_activity WHERE wait_event = 'advisory'}) eq 't' });
	$gate->quit;
	llm_active($node, 8);
	kill 'KILL', $pid;
	foreach my $k (1 .. 8)
	{
		my ($out, $err) = llm_session_end($sessions[ $k - 1 ]);
		is($out, llm_answers(300) =~ s/^/s$k /mgr, "8 backends wait: session $k has its own answers");
		is($err, '', "8 backends wait: session $k sees no error");
	}
	llm_is_well($node, 'SIGKILL while 8 backends wait');
}

{
	my $pid = begin_anew();
	my $s = llm_session($node, q{SELECT t FROM unnest((SELECT llm_generate(array_agg('row ' || i ORDER BY i))
		FROM generate_series(1, 1000) i)) t});
	llm_active($node);
	kill 'KILL', $pid;
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1000), 'SIGKILL during a call with an array');
	llm_is_well($node, 'SIGKILL during a call with an array');
}

{
	$node->safe_psql('postgres', q{SELECT llm_model_register('wide', 'echo:', '{"context_length": 100000}')});
	my $pid = begin_anew();
	my $s = llm_session($node, q{SELECT llm_generate('row ' || i || repeat(' x', 10000), 'wide',
		options => '{"raw": true}', max_tokens => 6) FROM generate_series(10, 49) i});
	llm_active($node);
	kill 'KILL', $pid;
	my ($out, $err) = llm_session_end($s);
	is("$out$err", join("\n", map { "row $_" } 10 .. 49), 'SIGKILL while long prompts are on their way');
	$node->safe_psql('postgres', q{SELECT llm_model_drop('wide')});
	llm_is_well($node, 'SIGKILL while long prompts are on their way');
}

{
	my $pid = begin_anew();
	my $idle = $node->background_psql('postgres');
	$idle->query_safe(q{BEGIN});
	$idle->query_safe(q{DECLARE c CURSOR FOR SELECT llm_generate('row ' || i) FROM generate_series(1, 300) i});
	is($idle->query_safe(q{FETCH 1 FROM c}), 'row 1', 'open cursor: first row');
	kill 'KILL', $pid;
	llm_engine_pid($node, $pid);
	is($idle->query_safe(q{FETCH ALL FROM c}), llm_answers(300) =~ s/^row 1\n//r,
		'open cursor: the rest comes from the next engine');
	$idle->query_safe(q{COMMIT});
	$idle->quit;
	llm_is_well($node, 'SIGKILL beside an open cursor');
}

{
	my $pid = begin_anew();
	my $s = llm_session($node, rows_sql(1200));
	llm_active($node);
	$node->safe_psql('postgres', 'SELECT llm_engine_restart()');
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1200), 'llm_engine_restart: running statements go on');
	isnt(llm_engine_pid($node), $pid, 'llm_engine_restart: it is another engine');
	llm_is_well($node, 'llm_engine_restart');
	# a restart that was asked for is no crash: who ran then is not blamed, however often
	$s = llm_session($node, q{SELECT llm_generate('@slow=10 @tokens=150 patient', max_tokens => 150)});
	for (1 .. 3)
	{
		llm_wait_for(sub { $node->safe_psql('postgres', 'SELECT running FROM llm.stat_engine') });
		$node->safe_psql('postgres', 'SELECT llm_engine_restart()');
	}
	($out, $err) = llm_session_end($s);
	like("$out$err", qr/^(patient)+/, 'llm_engine_restart: a request survives several');
	llm_is_well($node, 'several restarts');
}

# Who runs alone after a death is not to blame for the next ones when they come from outside.
{
	my $sql = q{SELECT llm_generate('@slow=10 @tokens=100 patient ' || i, max_tokens => 100) FROM generate_series(1, 3) i};
	my $expected = $node->safe_psql('postgres', $sql);
	my $pid = begin_anew();
	my $s = llm_session($node, $sql);
	for (1 .. 4)
	{
		llm_wait_for(sub { $node->safe_psql('postgres', 'SELECT running FROM llm.stat_engine') });
		kill 'KILL', $pid;
		$pid = llm_engine_pid($node, $pid);
	}
	my ($out, $err) = llm_session_end($s);
	is("$out$err", $expected, 'SIGKILL again and again: who runs alone is asked again');
	llm_is_well($node, 'SIGKILL again and again');
}

# The seventh failure in a row costs 3.2 s, and an eighth would cost twice that.
{
	my $pid = begin_anew();
	my $killed;
	for (1 .. 7)
	{
		kill 'KILL', $pid;
		$killed = time();
		$pid = llm_engine_pid($node, $pid);
	}
	my $took = time() - $killed;
	cmp_ok($took, '>=', 3.1, 'failures in a row: the next start waits');
	cmp_ok($took, '<', 6.3, 'failures in a row: not longer than it should');
	begin_anew();
	llm_is_well($node, 'failures in a row');
}

# ---- it hangs ----

{
	my $begin = -s $node->logfile;
	# longer than elsewhere: what is done meanwhile must end before the watchdog helps
	$node->append_conf('postgresql.conf', "llm_infer.engine_timeout = '5s'");
	$node->reload;
	my $pid = begin_anew();
	my $s = llm_session($node, rows_sql(1200));
	llm_active($node);
	kill 'STOP', $pid;
	my $stopped = time();
	like(llm_error($node, q{SET statement_timeout = '300ms'; SELECT llm_generate('x')}),
		qr/57014: canceling statement due to statement timeout/, 'SIGSTOP: statement_timeout works');
	$node->safe_psql('postgres', 'SELECT state FROM llm.stat_engine');
	cmp_ok(time() - $stopped, '<', 4.9, 'SIGSTOP: neither the call nor the view hangs');
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1200), 'SIGSTOP: every row has its answer');
	ok(llm_gone($pid), 'SIGSTOP: the watchdog has killed it');
	like(llm_log_since($node, $begin), qr/engine process $pid did not answer for 5000 ms, killing it/,
		'SIGSTOP: the log says so');
	$node->append_conf('postgresql.conf', "llm_infer.engine_timeout = '2s'");
	$node->reload;
	llm_is_well($node, 'SIGSTOP of the engine');
}
{
	my $pid = begin_anew();
	my $s = llm_session($node, q{SELECT llm_generate('@slow=100 @tokens=40 busy')});
	llm_active($node);
	my $supervisor = llm_supervisor_pid($node);
	kill 'STOP', $supervisor;
	sleep 3;
	kill 'CONT', $supervisor;
	my ($out, $err) = llm_session_end($s);
	like("$out$err", qr/^(busy)+$/, 'SIGSTOP of the supervisor: the call goes on');
	is(llm_engine_pid($node), $pid, 'SIGSTOP of the supervisor: its being late is not the engine\'s');
	llm_is_well($node, 'SIGSTOP of the supervisor');
}

# ---- poison ----

my $poison = q{SELECT i, (r).text, (r).error IS NOT NULL FROM (SELECT i, llm_generate_result(
	CASE WHEN i %% 15 = 7 THEN '%s x' ELSE 'row ' || i END, on_error => 'null') AS r
	FROM generate_series(1, %d) i OFFSET 0) s};

foreach my $case ([ '@crash', 45, 3, 7 ], [ '@hang', 14, 1, 4 ])
{
	my ($word, $n, $n_poison, $max_starts) = @$case;
	my $expected = join "\n", map { $_ % 15 == 7 ? "$_||t" : "$_|row $_|f" } 1 .. $n;
	my $begin = -s $node->logfile;
	begin_anew();
	my $before = starts();
	my $other = llm_session($node, rows_sql(100));
	my $s = llm_session($node, sprintf($poison, $word, $n));
	my ($out, $err) = llm_session_end($s);
	is($out, $expected, "$word beside good rows: the good ones are answered, $n_poison are not");
	like($err, qr/WARNING:  01000: $n_poison llm_infer calls? failed and gave NULL/, "$word: one warning");
	($out, $err) = llm_session_end($other);
	is("$out$err", llm_answers(100), "$word: another session has its answers");
	cmp_ok(starts() - $before, '<=', $max_starts, "$word: restarts are bounded");
	like(llm_log_since($node, $begin), qr/crash journal: \d+ requests will run alone/,
		"$word: the log tells of the suspects");
	llm_is_well($node, "$word beside good rows");

	begin_anew();
	like(llm_error($node, "SELECT llm_generate('$word x')"),
		qr/ERROR:  58000: the request crashed the engine when it ran alone\nHINT: /, "$word alone: 58000");
	llm_is_well($node, "$word alone");
}

# A poison prompt in a subtransaction is an error like any other.
begin_anew();
is($node->safe_psql('postgres', q{CREATE FUNCTION guarded(p text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN RETURN llm_generate(p); EXCEPTION WHEN system_error THEN RETURN 'caught'; END $$;
	SELECT llm_generate('row ' || i) || ' ' || guarded(CASE i WHEN 3 THEN '@crash' ELSE 'inner' END)
	FROM generate_series(1, 5) i}), join("\n", map { "row $_ " . ($_ == 3 ? 'caught' : 'inner') } 1 .. 5),
	'poison in a subtransaction');
llm_is_well($node, 'poison in a subtransaction');

like(llm_error($node, q{SELECT llm_generate('@nan x')}), qr/ERROR:  XX000: /, '@nan: an internal error');
like(llm_error($node, q{SELECT llm_generate('@error=odd x')}), qr/ERROR:  XX000: odd/, '@error: its text');
llm_is_well($node, 'failing rows');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
