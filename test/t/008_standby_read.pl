# A hot standby has an engine of its own: read-only calls work there, through a crash of that engine, changes
# of models, quotas and the extension on the primary, a promotion, and after it.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = llm_cluster('primary', allows_streaming => 1, fault => 'slow_step=5');
$primary->safe_psql('postgres', q{CREATE TABLE docs AS SELECT i, 'row ' || i AS body FROM generate_series(1, 1000) i});
my $rows = q{SELECT llm_generate(body) FROM docs ORDER BY i};

my $s = llm_session($primary, $rows);
$primary->backup('b');
my ($out, $err) = llm_session_end($s);
is("$out$err", llm_answers(1000), 'a base backup beside a busy engine');
ok(!-e $primary->backup_dir . '/b/pgsql_tmp.llm_infer.sock', 'the backup is without the socket');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'it is a standby');
is($standby->safe_psql('postgres', $rows), llm_answers(1000), 'read-only calls work');
isnt(llm_engine_pid($standby), llm_engine_pid($primary), 'with an engine of its own');
like(llm_error($standby, q{SELECT llm_model_register('b', 'echo:')}), qr/ERROR:  25006: /, 'registering does not');
is($standby->safe_psql('postgres', q{SELECT llm_model_load('echo'); SELECT name, state FROM llm.models}),
	"\necho|resident", 'loading does');
llm_is_well($standby, 'calls on a standby');

{
	my $pid = llm_engine_pid($standby);
	$s = llm_session($standby, $rows);
	llm_active($standby);
	kill 'KILL', $pid;
	($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1000), 'SIGKILL of its engine: every row has its answer');
	llm_is_well($standby, 'SIGKILL of the engine on a standby');
}

# Replay must not wait for calls: the session of a database that is dropped has to go.
{
	$primary->safe_psql('postgres', 'CREATE DATABASE gone');
	llm_extension($primary, 'gone');
	$primary->wait_for_catchup($standby);
	$s = llm_session($standby, q{SELECT llm_generate('@tokens=3900 x', max_tokens => 4000)}, dbname => 'gone');
	llm_active($standby);
	$primary->safe_psql('postgres', 'DROP DATABASE gone');
	$primary->wait_for_catchup($standby, 'replay');
	($out, $err) = llm_session_end($s);
	like($err, qr/57P04: |terminating connection due to conflict with recovery/, 'DROP DATABASE is replayed at once');
	llm_is_well($standby, 'a conflict with recovery');
}

$primary->safe_psql('postgres', q{SELECT llm_model_register('second', 'echo:')});
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', q{SELECT llm_generate('x', 'second')}), 'x', 'a model registered on the primary arrives');

# What changes on the primary is in force in open sessions of the standby.
{
	my $idle = $standby->background_psql('postgres', on_error_stop => 0);
	my $execute = sub {
		$primary->safe_psql('postgres', $_[0]);
		$primary->wait_for_catchup($standby, 'replay');
		my $out = $idle->query('EXECUTE p;');
		my $said = $out . $idle->{stderr};
		$idle->{stderr} = '';
		return $said;
	};
	$idle->query_safe(q{PREPARE p AS SELECT length(llm_generate(repeat('x', 100), 'second'))});
	is($idle->query('EXECUTE p;'), '100', 'a prepared call');
	like($execute->(q{ALTER SERVER second OPTIONS (ADD context_length '64')}), qr/ERROR:  the prompt has \d+ tokens, but the context of 64 /, 'a model that is altered');
	like($execute->(q{ALTER SERVER second OPTIONS (DROP context_length); INSERT INTO llm.quotas VALUES ('-', 1, '1 day', NULL)}),
		qr/ERROR:  token quota of role "\w+" is spent/, 'a quota');
	like($execute->('DELETE FROM llm.quotas'), qr/^100/, 'until it is gone');
	like($execute->('DROP SERVER second'), qr/ERROR:  model "second" does not exist/, 'a model that is dropped');
	$idle->quit;

	$primary->safe_psql('postgres', 'CREATE DATABASE other');
	llm_extension($primary, 'other');
	$primary->wait_for_catchup($standby, 'replay');
	$s = llm_session($standby, q{SELECT llm_generate('row ' || i) FROM generate_series(1, 20000) i}, dbname => 'other');
	llm_active($standby);
	$primary->safe_psql('other', 'SET client_min_messages = error; DROP EXTENSION llm_infer CASCADE');
	$primary->wait_for_catchup($standby, 'replay');
	($out, $err) = llm_session_end($s);
	like($err, qr/ERROR:  (?:55000: no model is registered|42883: llm_infer was dropped)/, 'DROP EXTENSION is replayed under a statement');
	$primary->safe_psql('other', q{CREATE EXTENSION llm_infer; SELECT llm_model_register('echo', 'echo:')});
	$primary->wait_for_catchup($standby, 'replay');
	is($standby->safe_psql('other', q{SELECT llm_generate('again')}), 'again', 'and so is CREATE EXTENSION');
}

{
	my $pid = llm_engine_pid($standby);
	$s = llm_session($standby, q{SELECT llm_generate('row ' || i, 'echo') FROM generate_series(1, 3000) i});
	llm_active($standby);
	$standby->promote;
	($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(3000), 'promotion while a session is busy: every row has its answer');
	is(llm_engine_pid($standby), $pid, 'the engine stays');
	is($standby->safe_psql('postgres', q{UPDATE docs SET body = llm_generate('new ' || i, 'echo') WHERE i <= 50;
		SELECT count(*) FROM docs WHERE body = 'new ' || i}), '50', 'and writes work');
	$standby->safe_psql('postgres', q{SELECT llm_model_register('third', 'echo:')});
	llm_is_well($standby, 'promotion');
}
llm_is_well($primary, 'all that on the primary');

foreach my $node ($standby, $primary)
{
	$node->stop;
	is_deeply([ llm_processes($node) ], [], 'no process is left');
}
done_testing();
