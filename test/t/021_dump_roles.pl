# A database with models, quotas and calls goes to another cluster by dump, whoever dumps and restores, and its rows
# by subscription; roles that own models, have quotas or have requests in flight can be reassigned and dropped.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

# 63 bytes, with all that needs quoting
my $odd = qq{Odd "schema" it's \$1 \\ caf\xc3\xa9 } . 'x' x 34;
(my $quoted = $odd) =~ s/"/""/g;
$quoted = qq{"$quoted"};
is(length $odd, 63, 'an odd schema');

my $node = llm_cluster('from', plain => 1, fault => 'slow_step=2', allows_streaming => 'logical');
$node->safe_psql('postgres', qq{
	CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN CREATEDB; CREATE ROLE gone; CREATE ROLE worker LOGIN;
	CREATE SCHEMA $quoted; CREATE EXTENSION llm_infer SCHEMA $quoted;
	GRANT USAGE ON SCHEMA $quoted TO PUBLIC; GRANT USAGE ON FOREIGN DATA WRAPPER llm_infer TO alice, bob;
	SELECT $quoted.llm_model_register('echo', 'echo:');
	GRANT USAGE ON FOREIGN SERVER echo TO PUBLIC;
	CREATE SCHEMA s AUTHORIZATION bob;
	INSERT INTO llm.quotas VALUES ('worker', 1000000, '1 day', 8), ('-', NULL, NULL, 64), ('gone', NULL, NULL, 1);
	SET ROLE alice; SELECT $quoted.llm_model_register('of alice', 'echo:', '{"context_length": 4000}');
	SET ROLE bob; CREATE TABLE s.docs AS SELECT i, 'row ' || i AS body, NULL::llm.result AS r FROM generate_series(1, 3) i;
	UPDATE s.docs SET r = $quoted.llm_generate_result(body, 'echo');
	CREATE VIEW s.v AS SELECT i, $quoted.llm_generate(body, 'echo') AS t FROM s.docs;
	RESET ROLE; DROP ROLE gone});
my $answers = q{SELECT t FROM s.v ORDER BY i};
is($node->safe_psql('postgres', $answers), llm_answers(3), 'calls in it');
is($node->safe_psql('postgres', qq{SELECT count(*) FROM llm.stat_users, llm.models, llm.stat_engine, llm.stat_models;
	EXPLAIN (COSTS OFF) $answers}) =~ /LLM Batch/, 1, 'views and plans in it');

sub dump_of
{
	my ($n, $db, @args) = @_;
	my ($out, $err) = run_command([ 'pg_dump', @args, '-d', $n->connstr($db) ]);
	$out =~ s/^\\(un)?restrict .*\n//mg;
	return $err eq '' ? $out : $err;
}

sub file_of
{
	my ($name, $text) = @_;
	my $file = $node->basedir . "/$name.sql";
	unlink $file;
	append_to_file($file, $text);
	return $file;
}

# ---- to another cluster ----

my $to = llm_cluster('to', plain => 1);
{
	my ($globals, $err) = run_command([ 'pg_dumpall', '--globals-only', '-d', $node->connstr('postgres') ]);
	is($err, '', 'pg_dumpall of roles');
	$globals =~ s/^\\(un)?restrict .*\n//mg;
	$globals =~ s/^CREATE ROLE postgres;\n//m;
	my $dump = dump_of($node, 'postgres');
	my @psql = ('psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d');
	$to->command_ok([ @psql, $to->connstr('postgres'), '-f', file_of('globals', $globals) ], 'are restored');
	$to->safe_psql('postgres', 'CREATE DATABASE copy');
	$to->command_ok([ @psql, $to->connstr('copy'), '-f', file_of('all', $dump) ], 'pg_dump is restored');
	is(dump_of($to, 'copy'), $dump, 'a dump of it is the same');
	is($to->safe_psql('copy', 'SELECT * FROM llm.quotas ORDER BY role'), "-|||64|\nworker|1000000|1 day|8|",
		'with the quotas of roles that there are');
	is($to->safe_psql('copy', q{SELECT name, owner FROM llm.models ORDER BY name}), "echo|postgres\nof alice|alice", 'and the owners of models');
	is($to->safe_psql('copy', "$answers; SELECT (r).finish_reason FROM s.docs"), llm_answers(3) . "\nstop\nstop\nstop", 'and it works');

	# ---- rows that a subscription brings ----

	$node->safe_psql('postgres', 'CREATE TABLE s.fresh (i int PRIMARY KEY, body text); CREATE PUBLICATION p FOR TABLE s.fresh');
	$to->safe_psql('copy', qq{CREATE TABLE s.fresh (i int PRIMARY KEY, body text, t text);
		CREATE FUNCTION s.ask() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN NEW.t := $quoted.llm_generate(NEW.body, 'echo'); RETURN NEW; END\$\$;
		CREATE TRIGGER ask BEFORE INSERT OR UPDATE ON s.fresh FOR EACH ROW EXECUTE FUNCTION s.ask();
		ALTER TABLE s.fresh ENABLE ALWAYS TRIGGER ask;
		CREATE SUBSCRIPTION p CONNECTION '@{[$node->connstr]} dbname=postgres' PUBLICATION p});
	$node->safe_psql('postgres', q{INSERT INTO s.fresh SELECT i, 'row ' || i FROM generate_series(1, 3) i});
	ok($to->poll_query_until('copy', 'SELECT count(*) = 3 FROM s.fresh WHERE t = body'), 'its apply worker calls the model');
	$to->safe_psql('copy', 'DROP SUBSCRIPTION p');
	$node->safe_psql('postgres', 'DROP TABLE s.fresh');

	# ---- without rights ----

	like(dump_of($node, 'postgres', '-U', 'bob'), qr/permission denied for (table|sequence) /, 'a dump by a role without rights');
	like(dump_of($node, 'postgres', '-U', 'bob', '-t', 's.docs'), qr/COPY s\.docs.*row 3/s, 'of its own table works');
	my $own = dump_of($node, 'postgres', '-U', 'bob', '--exclude-table-data=llm.*', '--no-owner', '--no-acl', '--no-comments');
	like($own, qr/CREATE EXTENSION.*CREATE SERVER.*COPY s\.docs/s, 'and of all but what is ours');
	my $file = file_of('own', $own);
	$to->safe_psql('postgres', 'CREATE DATABASE bobs OWNER bob');
	my @as_bob = (@psql, $to->connstr('bobs') . ' user=bob', '-f', $file);
	$to->command_fails_like(\@as_bob, qr/permission denied to create extension "llm_infer"/, 'restored by the same role');
	$to->safe_psql('bobs', qq{DROP SCHEMA IF EXISTS $quoted; DROP SCHEMA IF EXISTS s CASCADE});
	(my $rest = $own) =~ s/^CREATE SCHEMA "Odd.*\n//m;
	$file = file_of('own', $rest);
	$to->safe_psql('bobs', qq{CREATE SCHEMA $quoted; GRANT USAGE ON SCHEMA $quoted TO bob; CREATE EXTENSION llm_infer SCHEMA $quoted});
	$to->command_fails_like(\@as_bob, qr/permission denied for foreign-data wrapper llm_infer/, 'models need USAGE on the wrapper');
	$to->safe_psql('bobs', 'DROP SCHEMA IF EXISTS s CASCADE; GRANT USAGE ON FOREIGN DATA WRAPPER llm_infer TO bob');
	$to->command_ok(\@as_bob, 'restored where a superuser has made the extension');
	is($to->safe_psql('bobs', q{SELECT name, owner FROM llm.models ORDER BY name}), "echo|bob\nof alice|bob", 'models are its own');
	is($to->safe_psql('bobs', "SET ROLE bob; $answers"), llm_answers(3), 'and work');
}

# ---- roles ----

{
	my $as = sub { llm_session_end(llm_session($node, $_[1], user => $_[0])) };
	like(llm_error($node, 'DROP ROLE alice'), qr/ERROR:  2BP01: .*alice.*\nDETAIL: .*owner of server of alice/s, 'an owner of models is not dropped');
	my $s = llm_session($node, qq{SELECT $quoted.llm_generate('row ' || i, 'of alice') FROM generate_series(1, 6000) i}, user => 'alice');
	llm_active($node);
	$node->safe_psql('postgres', 'REASSIGN OWNED BY alice TO bob');
	my ($out, $err) = llm_session_end($s);
	like($err, qr/ERROR:  42501: permission denied for model "of alice"/, 'REASSIGN OWNED under a call of the owner: the right is gone');
	is(join('', $as->('bob', qq{SELECT $quoted.llm_generate('x', 'of alice'); SELECT $quoted.llm_model_load('of alice')})), "x\n", 'its new owner may');
	$node->safe_psql('postgres', 'GRANT USAGE ON FOREIGN SERVER "of alice" TO alice; DROP OWNED BY alice; DROP ROLE alice');
	is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE role::text ~ '^[0-9]+$') FROM llm.stat_users}), '1',
		'a role that is gone keeps its counters, by number');

	$s = llm_session($node, qq{SELECT $quoted.llm_generate('\@slow=5 \@tokens=3000 x' || i, 'echo', max_tokens => 4000) FROM generate_series(1, 4) i}, user => 'worker');
	llm_active($node);
	$node->safe_psql('postgres', 'DROP ROLE worker');
	is($node->safe_psql('postgres', q{SELECT usename IS NULL FROM llm.stat_activity WHERE state = 'active'}), 't', 'DROP ROLE with requests in flight');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM llm.stat_users WHERE in_flight > 0}), '1', 'which are counted');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	ok(llm_wait_for(sub { $node->safe_psql('postgres', 'SELECT sum(in_flight) FROM llm.stat_users') eq '0' }), 'to their end');
	unlike(dump_of($node, 'postgres'), qr/worker|^\d+\t1000000/m, 'its quota is not dumped');

	$node->safe_psql('postgres', 'DROP OWNED BY bob');
	is($node->safe_psql('postgres', 'SELECT name FROM llm.models'), 'echo', 'DROP OWNED drops models');
	is($node->safe_psql('postgres', "DROP ROLE bob; SELECT $quoted.llm_generate('x')"), 'x', 'and others stay');
	$node->safe_psql('postgres', "ALTER DATABASE postgres SET search_path = $quoted");
	llm_is_well($node, 'roles');
}

foreach my $n ($node, $to)
{
	$n->stop;
	is_deeply([ llm_processes($n) ], [], 'no process is left');
}
done_testing();
