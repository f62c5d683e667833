# Quotas of roles hold over all sessions, and outlive cancelled statements, terminated backends and
# lost engines; the table is dumped, the counters begin anew with the server.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('quota', conf => 'max_connections = 20');
my $engine = llm_engine_pid($node);
$node->safe_psql('postgres', q{CREATE ROLE worker LOGIN; CREATE ROLE idle; GRANT USAGE ON FOREIGN SERVER echo TO worker;
	INSERT INTO llm.quotas VALUES ('worker', NULL, NULL, 3), ('-', 1000000, '1 month', NULL)});

sub worker
{
	my ($column) = @_;
	return $node->safe_psql('postgres', "SELECT $column FROM llm.stat_users WHERE role = 'worker'::regrole");
}

sub in_flight_becomes
{
	my ($n, $name) = @_;
	my $got = '';
	ok(llm_wait_for(sub { ($got = worker('in_flight')) eq $n }), $name) or diag("in flight: $got");
	return;
}

my $long = q{SELECT llm_generate('@slow=20 @tokens=3000 x' || i, max_tokens => 4000) FROM generate_series(1, 8) i};

# ---- three sessions, one quota ----

{
	my @s = map { llm_session($node, q{SELECT llm_generate('@slow=1 row ' || i) FROM generate_series(1, 60) i},
		user => 'worker') } 1 .. 3;
	my $most = 0;
	llm_wait_for(sub {
		my $n = worker('in_flight') || 0;
		$most = $n if $n > $most;
		return worker('requests') eq '180';
	}, 30);
	foreach my $s (@s)
	{
		my ($out, $err) = llm_session_end($s);
		is("$out$err", llm_answers(60), 'all rows are answered, in their order');
	}
	ok($most >= 1 && $most <= 3, "never more than three in flight ($most)");
	in_flight_becomes(0, 'none afterwards');
}

# ---- ends of statements and backends ----

{
	my $s = llm_session($node, $long, user => 'worker');
	in_flight_becomes(3, 'a statement fills the quota');
	ok($node->poll_query_until('postgres', 'SELECT running FROM llm.stat_engine', '3'), 'the engine has as many');
	is($node->safe_psql('postgres', 'SELECT running + waiting FROM llm.stat_engine'), '3', 'and no more');
	like(llm_error($node, q{SET ROLE worker; SELECT llm_generate('x', options => '{"timeout": 100}')}),
		qr/ERROR:  53400: quota of requests in flight of role "worker" is used up: 3 of 3/, 'another session is refused after its timeout');
	is($node->safe_psql('postgres', q{SELECT llm_generate('x')}), 'x', 'another role is not');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	in_flight_becomes(0, 'a cancelled statement leaves nothing');

	my $before = worker('generated_tokens');
	$s = llm_session($node, "SELECT llm_generate('before'); $long", user => 'worker');
	in_flight_becomes(3, 'another one fills it');
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	in_flight_becomes(0, 'a terminated backend leaves nothing');
	is(worker('generated_tokens') - $before, 7, 'the tokens of its answer stay');

	# the server is told to wait for clients that vanish no longer than this
	$s = llm_session($node, "SET client_connection_check_interval = '50ms'; $long", user => 'worker');
	in_flight_becomes(3, 'a third one fills it');
	kill 'KILL', $s->{pid};
	llm_session_end($s);
	in_flight_becomes(0, 'a vanished client leaves nothing');
}

# ---- more roles than entries ----

{
	# its steps are everybody's: short ones
	my $s = llm_session($node, $long =~ s/slow=20/slow=2/r, user => 'worker');
	in_flight_becomes(3, 'a statement is at work while others come');
	my $before = worker('requests');
	$node->safe_psql('postgres', q{GRANT USAGE ON FOREIGN SERVER echo TO PUBLIC;
		DO $$BEGIN
			FOR i IN 1 .. 1100 LOOP
				EXECUTE format('CREATE ROLE many_%s', i);
			END LOOP;
		END$$;
		DO $$BEGIN
			FOR i IN 1 .. 1100 LOOP
				EXECUTE format('SET ROLE many_%s', i);
				PERFORM llm_generate('x', max_tokens => 1);
				RESET ROLE;
			END LOOP;
		END$$});
	is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE role = 'many_1100'::regrole) FROM llm.stat_users}),
		'1024|1', 'the entry used longest ago gives way');
	cmp_ok(worker('requests'), '>=', $before, 'but not one with requests in flight');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	in_flight_becomes(0, 'which are counted out in their time');
}

# ---- another engine ----

{
	my $s = llm_session($node, q{SELECT llm_generate('@slow=20 row ' || i) FROM generate_series(1, 12) i}, user => 'worker');
	in_flight_becomes(3, 'a statement is at work');
	kill 'KILL', $engine;
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(12), 'it ends with the next engine');
	in_flight_becomes(0, 'nothing is counted twice');
	llm_is_well($node, 'another engine');
}

# ---- the table ----

{
	$node->safe_psql('postgres', 'CREATE DATABASE copy');
	my $file = $node->basedir . '/dump.sql';
	$node->command_ok([ 'pg_dump', '-f', $file, $node->connstr('postgres') ], 'a dump');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('copy'), '-f', $file ], 'is restored');
	is($node->safe_psql('copy', 'SELECT role, tokens_per_period, period, max_in_flight FROM llm.quotas ORDER BY role'),
		"-|1000000|1 mon|\nworker|||3", 'with the quotas');
	is($node->safe_psql('copy', 'SELECT count(*) FROM llm.stat_users'), '0', 'usage is counted per database');
	$node->command_fails_like([ 'pg_dump', '-U', 'worker', $node->connstr('postgres') ], qr/permission denied for table \w+|permission denied for sequence \w+/,
		'who may not read the table');
	$node->command_ok([ 'pg_dump', '-U', 'worker', '-f', $file, '--exclude-table-data=llm.*', $node->connstr('postgres') ],
		'can dump the rest');
	$node->safe_psql('postgres', 'DROP DATABASE copy');
}

$node->restart;
is($node->safe_psql('postgres', 'SELECT count(*) FROM llm.stat_users'), '0', 'the counters begin anew with the server');
is($node->safe_psql('postgres', q{SET ROLE worker; SELECT llm_generate('x')}), 'x', 'and the quota is there');
llm_is_well($node, 'quotas');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
