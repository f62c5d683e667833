# Beside pg_cron, auto_explain, pg_stat_statements and postgres_fdw, preloaded before us and after: what
# they report, what we do, and JIT for every expression.
use strict;
use warnings;
use JSON::PP;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('preload', start => 0, conf => <<'CONF');
max_connections = 20
compute_query_id = on
jit = on
jit_above_cost = 0
pg_stat_statements.track = all
pg_stat_statements.track_planning = on
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_buffers = on
auto_explain.log_nested_statements = on
auto_explain.log_format = json
cron.database_name = 'postgres'
cron.use_background_workers = on
CONF

# The plans that auto_explain has logged since an offset.
sub logged_plans
{
	my ($offset) = @_;
	my @plans;
	my $log = llm_log_since($node, $offset);
	push @plans, decode_json($1) while $log =~ /^[^\n]*duration: [\d.]+ ms  plan:\n(\t\{\n.*?\n\t\})$/msg;
	return @plans;
}

# The LLM Batch nodes of a plan.
sub batches
{
	my ($plan) = @_;
	my $mine = ($plan->{'Custom Plan Provider'} // '') eq 'LLM Batch';
	return (($mine ? $plan : ()), map { batches($_) } @{ $plan->{Plans} // [] });
}

my $started = 0;
foreach my $order ('llm_infer, auto_explain, pg_stat_statements, pg_cron', 'pg_cron, pg_stat_statements, auto_explain, llm_infer')
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$order'");
	if ($started++)
	{
		$node->restart;
	}
	else
	{
		$node->start;
		llm_extension($node);
		$node->safe_psql('postgres', q{
			CREATE EXTENSION pg_stat_statements; CREATE EXTENSION pg_cron; CREATE EXTENSION postgres_fdw;
			CREATE TABLE cron_answers (text text);
			SELECT cron.schedule('@reboot', $$INSERT INTO cron_answers SELECT llm_generate('row ' || i) FROM generate_series(1, 30) i$$);
			CREATE TABLE docs AS SELECT i, 'row ' || i AS body FROM generate_series(1, 200) i;
			CREATE FUNCTION nested() RETURNS bigint LANGUAGE plpgsql AS $$
			BEGIN
				RETURN (SELECT count(llm_generate(body)) FROM docs WHERE i <= 10);
			END $$;
			CREATE TABLE far1 (i int, body text);
			CREATE TABLE far2 (i int, body text);
			INSERT INTO far1 SELECT i, body FROM docs WHERE i <= 100;
			INSERT INTO far2 SELECT i, body FROM docs WHERE i > 100;
			CREATE TABLE near (i int, body text) PARTITION BY RANGE (i)});
		$node->safe_psql('postgres', sprintf(q{
			CREATE SERVER self FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres', async_capable 'true');
			CREATE USER MAPPING FOR CURRENT_USER SERVER self;
			CREATE FOREIGN TABLE near1 PARTITION OF near FOR VALUES FROM (1) TO (101) SERVER self OPTIONS (table_name 'far1');
			CREATE FOREIGN TABLE near2 PARTITION OF near FOR VALUES FROM (101) TO (1001) SERVER self OPTIONS (table_name 'far2')},
			$node->host, $node->port));
	}
	llm_engine_pid($node);
	my $first = (split /,/, $order)[0] . ' first';

	# rows, and what the others saw of them
	$node->safe_psql('postgres', 'SELECT pg_stat_statements_reset()');
	my $offset = -s $node->logfile;
	is($node->safe_psql('postgres', 'SELECT llm_generate(body) FROM docs ORDER BY i'), llm_answers(200), "$first: a batch");
	is($node->safe_psql('postgres', 'SELECT nested()'), 10, "$first: a nested one");
	is($node->safe_psql('postgres', q{SELECT calls, plans, rows, jit_functions > 0 FROM pg_stat_statements
		WHERE query LIKE 'SELECT llm_generate(body) FROM docs%'}), '1|1|200|t', "$first: pg_stat_statements");
	my @found = map { batches($_->{Plan}) } logged_plans($offset);
	# pg_cron's job of 30 rows may run now
	is(join(' ', sort { $a <=> $b } grep { $_ != 30 } map { $_->{'LLM Requests'} } @found), '10 200', "$first: auto_explain, nested statements too");
	my ($id) = map { $_->{'Query Identifier'} } decode_json($node->safe_psql('postgres',
		'EXPLAIN (VERBOSE, FORMAT JSON) SELECT llm_generate(body) FROM docs ORDER BY i'))->[0];
	is($id, $node->safe_psql('postgres', q{SELECT queryid FROM pg_stat_statements
		WHERE query LIKE 'SELECT llm_generate(body) FROM docs%'}), "$first: the query's identifier");
	my $pulled = q{SELECT count(*) FROM docs a JOIN docs b ON b.i = a.i + 0 WHERE llm_generate(a.body) > '' AND b.i = 3};
	is($node->safe_psql('postgres', $pulled), 1, "$first: a query that is planned twice");
	is($node->safe_psql('postgres', q{SELECT calls, plans FROM pg_stat_statements
		WHERE query LIKE 'SELECT count(*) FROM docs a%'}), '1|1', "$first: is counted once");
	# EXPLAIN of what fails, of what is the same
	like(llm_error($node, q{EXPLAIN (ANALYZE) SELECT llm_generate('@error=mine ' || body) FROM docs}), qr/mine/, "$first: EXPLAIN of a failure");
	like($node->safe_psql('postgres', q{EXPLAIN (ANALYZE, BUFFERS, WAL, SETTINGS) SELECT llm_generate('x', temperature => 0) FROM docs}),
		qr/Requests: 200   Distinct: 1 .*JIT:/s, "$first: EXPLAIN ANALYZE");
	my $xml = $node->safe_psql('postgres', 'EXPLAIN (ANALYZE, VERBOSE, FORMAT XML) SELECT llm_generate(body) FROM docs');
	is($node->safe_psql('postgres', "SELECT (xpath('//x:LLM-Requests/text()', \$x\$$xml\$x\$::xml,
		ARRAY[ARRAY['x', 'http://www.postgresql.org/2009/explain']]))[1]"), 200, "$first: EXPLAIN as XML");
	# foreign scans, also such as run at the same time
	foreach my $query ('SELECT i, llm_generate(body) FROM near ORDER BY i',
		q{SELECT i, llm_generate(body) FROM near WHERE llm_generate('a ' || body) LIKE '%5' ORDER BY i},
		q{SELECT i, llm_generate('x' || i) FROM near1 UNION ALL SELECT i, llm_generate('y' || i) FROM near2 ORDER BY i},
		'SELECT * FROM (SELECT i, llm_generate(body) FROM near1 UNION ALL SELECT i, body FROM near2) s ORDER BY i',
		q{SELECT i FROM near1 b1 JOIN near1 b2 USING (i) WHERE llm_generate(b1.body || b2.body) LIKE '%5row%' ORDER BY i},
		'SELECT i, b1.body || llm_generate(b2.body) FROM near1 b1 JOIN near1 b2 USING (i) ORDER BY i',
		'SELECT count(llm_generate(body)), llm_generate(max(body)) FROM near2 GROUP BY i % 3 ORDER BY 2')
	{
		is($node->safe_psql('postgres', $query), $node->safe_psql('postgres', "SET llm_infer.enable_batch = off; $query"), "$first: $query");
		like($node->safe_psql('postgres', "EXPLAIN (COSTS OFF, VERBOSE) $query"), qr/LLM Batch/, "$first: batched");
	}
	like($node->safe_psql('postgres', 'EXPLAIN (COSTS OFF) SELECT llm_generate(body) FROM near'),
		qr/LLM Batch.*Append.*Async Foreign Scan.*Async Foreign Scan/s, "$first: above asynchronous scans");
	is($node->safe_psql('postgres', 'WITH u AS (UPDATE near1 SET body = body WHERE i < 9 RETURNING body) SELECT llm_generate(body) FROM u'),
		llm_answers(8), "$first: rows that the other server has modified");
	is($node->safe_psql('postgres', 'UPDATE near1 SET body = body WHERE i < 9 RETURNING llm_generate(body)'), llm_answers(8), "$first: what it returns");
	# ends
	my $s = llm_session($node, q{SELECT llm_generate('@slow=10 @tokens=3000 ' || body, max_tokens => 3000) FROM docs});
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	my (undef, $err) = llm_session_end($s);
	like($err, qr/57014/, "$first: cancel");
	# a job that pg_cron starts with the server, in a worker of its own
	ok($node->poll_query_until('postgres', 'SELECT count(*) FROM cron_answers', 30 * ($started - 1)), "$first: a job of pg_cron") if $started > 1;
	is($node->safe_psql('postgres', 'SELECT string_agg(text, chr(10) ORDER BY ctid) FROM cron_answers'), llm_answers(30), "$first: its rows") if $started > 1;
	llm_is_well($node, $first);
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
