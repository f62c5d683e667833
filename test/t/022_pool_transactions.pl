# Behind PgBouncer in transaction mode: many clients share few server connections, each call belongs to the
# transaction that makes it, a cancel finds its way, and nothing of ours stays for the next client.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'PgBouncer is not there' unless $ENV{LLM_PGBOUNCER};

my $node = llm_cluster('pooled', fault => 'slow_step=2', conf => "client_connection_check_interval = '100ms'");
$node->safe_psql('postgres', q{CREATE ROLE client LOGIN; CREATE ROLE other; GRANT other TO client;
	GRANT USAGE ON FOREIGN SERVER echo TO client, other; INSERT INTO llm.quotas VALUES ('other', NULL, NULL, 2)});

my $port = PostgreSQL::Test::Cluster::get_free_port();
my ($host, $dir) = ($node->host, $node->basedir);
append_to_file("$dir/users.txt", qq{"client" ""\n"postgres" ""\n});
append_to_file("$dir/pgbouncer.ini", <<"INI");
[databases]
few = host=$host port=@{[$node->port]} dbname=postgres pool_size=3
one = host=$host port=@{[$node->port]} dbname=postgres pool_size=1
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $host
auth_type = trust
auth_file = $dir/users.txt
pool_mode = transaction
max_client_conn = 200
logfile = $dir/pgbouncer.log
pidfile = $dir/pgbouncer.pid
ignore_startup_parameters = extra_float_digits
INI
my $bouncer = fork // die "fork: $!";
if ($bouncer == 0)
{
	open(STDOUT, '>', "$dir/pgbouncer.out") && open(STDERR, '>&', \*STDOUT) && exec($ENV{LLM_PGBOUNCER}, "$dir/pgbouncer.ini");
	POSIX::_exit(127);
}
END { kill 'TERM', $bouncer if $bouncer; }

sub pooled
{
	my ($db, $sql, %opt) = @_;
	return llm_session($node, $sql, connstr => "host=$host port=$port dbname=$db user=client", %opt);
}

# What a client prints, errors too.
sub said
{
	my ($db, $sql) = @_;
	return join '', llm_session_end(pooled($db, $sql));
}
ok(llm_wait_for(sub { said('one', 'SELECT 1') eq '1' }), 'PgBouncer serves') or BAIL_OUT('no PgBouncer');

# ---- many clients ----

{
	my $n = 40;
	my @s = map { pooled('few', "SELECT llm_generate('row ' || i) FROM generate_series(1, 50) i;
		BEGIN; SELECT llm_generate('client $_'); SAVEPOINT s; SELECT llm_generate('\@error=x'); ROLLBACK TO s;
		SELECT (llm_generate_result('client $_, last')).text; COMMIT") } 1 .. $n;
	my $right = 0;
	foreach my $i (1 .. $n)
	{
		my ($out, $err) = llm_session_end($s[$i - 1]);
		my $errors = () = $err =~ /ERROR:/g;
		$right++ if $out eq llm_answers(50) . "\nclient $i\nclient $i, last" && $errors == 1;
	}
	is($right, $n, "$n clients of 3 server connections: each has its answers and its error");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'client' AND backend_type = 'client backend'}) <= 4,
		1, 'no more connections than the pool has');
	llm_is_well($node, 'many clients');
}

# ---- cancels ----

{
	my $s = pooled('one', q{SELECT llm_generate('@slow=20 @tokens=3000 x' || i, max_tokens => 4000) FROM generate_series(1, 8) i});
	my ($pid) = llm_active($node);
	kill 'INT', $s->{pid};
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014: canceling statement due to user request/, 'a cancel through PgBouncer');
	is($node->poll_query_until('postgres', 'SELECT running + waiting FROM llm.stat_engine', '0'), 1, 'reaches the engine');
	is(said('one', q{SELECT pg_backend_pid(), llm_generate('next')}), "$pid|next", 'and the next client has the connection');

	$s = pooled('one', q{SELECT llm_generate('@slow=20 @tokens=3000 x' || i, max_tokens => 4000) FROM generate_series(1, 8) i});
	llm_active($node);
	kill 'KILL', $s->{pid};
	llm_session_end($s);
	ok(llm_wait_for(sub { said('one', q{SELECT llm_generate('next')}) eq 'next' }), 'a client that vanishes takes its calls along');
	is($node->poll_query_until('postgres', 'SELECT running + waiting FROM llm.stat_engine', '0'), 1, 'out of the engine too');
}

# ---- nothing stays ----

{
	my $pid = said('one', 'SELECT pg_backend_pid()');
	is(said('one', q{BEGIN; SET LOCAL llm_infer.max_tokens = 2; SET LOCAL llm_infer.default_model = 'echo';
		SELECT llm_generate('short'); COMMIT; SELECT pg_backend_pid(), llm_generate('long again'), current_setting('llm_infer.max_tokens')}),
		"sh\n$pid|long again|256", 'SET LOCAL ends with its transaction');
	like(said('one', q{BEGIN; SET LOCAL llm_infer.max_statement_tokens = 3; SELECT llm_generate('too much'); ROLLBACK}), qr/53400: token limit/, 'so does a limit');
	is(said('one', q{SELECT pg_backend_pid(), llm_generate('enough for this one')}), "$pid|enough for this one", 'for whoever comes next');

	my $used = sub { $node->safe_psql('postgres', q{SELECT string_agg(role || '=' || requests, ' ' ORDER BY role::text) FROM llm.stat_users
		WHERE role IN ('client'::regrole, 'other'::regrole)}) };
	my ($before) = $used->() =~ /client=(\d+)/;
	said('one', q{BEGIN; SET LOCAL ROLE other; SELECT llm_generate('row ' || i) FROM generate_series(1, 5) i; COMMIT});
	is(said('one', q{SELECT pg_backend_pid(), llm_generate('mine')}), "$pid|mine", 'a role of one transaction');
	is($used->(), 'client=' . ($before + 1) . ' other=5', 'is not billed for the next');

	my $asked = sub { $node->safe_psql('postgres', 'SELECT requests FROM llm.stat_engine') };
	my $requests = $asked->();
	my $same = q{SELECT pg_backend_pid(), count(llm_generate('same', temperature => 0)) FROM generate_series(1, 3) i};
	is(said('one', $same) . said('one', $same), "$pid|3$pid|3", 'the same greedy call by two clients');
	is($asked->() - $requests, 2, 'is asked once by each: answers are not kept for others');

	is(said('one', q{BEGIN; DECLARE c CURSOR FOR SELECT llm_generate('row ' || i) FROM generate_series(1, 500) i; FETCH 1 FROM c; COMMIT}),
		'row 1', 'a cursor that is left open');
	is(said('one', q{SELECT pg_backend_pid(), count(*) FROM pg_cursors}), "$pid|0", 'is closed for the next client');
	is($node->safe_psql('postgres', q{SELECT state FROM llm.stat_activity WHERE pid = } . $pid), 'idle', 'whose connection is idle');
	is($node->safe_psql('postgres', q{SELECT sum(in_flight) FROM llm.stat_users}), '0', 'with nothing in flight');
	llm_is_well($node, 'transactions of many clients');
}

kill 'TERM', $bouncer;
ok(llm_wait_for(sub { waitpid($bouncer, POSIX::WNOHANG()) != 0 }), 'PgBouncer ends');
$bouncer = 0;
$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
