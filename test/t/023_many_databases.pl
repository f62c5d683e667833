# Ten databases with the extension in schemas of their own and all that max_connections lets in, at one
# engine: every session has its answers, databases can be dropped and copied right after, encodings meet.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $max = 110;
my $node = llm_cluster('many', plain => 1, conf => "max_connections = $max");

# ---- databases ----

my $n = 10;
my @dbs = map { "db $_" } 1 .. $n;
foreach my $i (1 .. $n)
{
	my $encoding = $i % 3 == 0 ? 'LATIN1' : 'UTF8';
	$node->safe_psql('postgres', qq{CREATE DATABASE "db $i" TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'});
	# the role's path has the schema nowhere but in this database
	$node->safe_psql("db $i", qq{CREATE SCHEMA "Odd $i"; CREATE EXTENSION llm_infer SCHEMA "Odd $i";
		SELECT "Odd $i".llm_model_register('echo', 'echo:'); SELECT "Odd $i".llm_model_register('of $i', 'echo:', '{"context_length": ${i}000}');
		CREATE TABLE docs AS SELECT j, 'db $i row ' || j AS body FROM generate_series(1, 200) j;
		CREATE VIEW asked AS SELECT j, body, "Odd $i".llm_generate(body, 'of $i') AS t FROM docs});
}
my $right = 'SELECT count(*) FILTER (WHERE t = body) FROM asked';
{
	my @s = map { llm_session($node, "$right; $right", dbname => $_) } @dbs, @dbs;
	my $good = grep { join('', llm_session_end($_)) eq "200\n200" } @s;
	is($good, 2 * $n, "two sessions in each of $n databases");
	is($node->safe_psql('db 1', q{SELECT count(*) FROM llm.stat_models WHERE state = 'resident'}), $n,
		'the models of all in one engine');
	is($node->safe_psql('db 1', 'SELECT name FROM llm.models ORDER BY name'), "echo\nof 1", 'each sees its own');
	is(scalar(llm_processes($node, engines => 1)), 1, 'one engine');

	my $begun = time();
	is($node->safe_psql('db 9', $right), '200', 'a call');
	$node->safe_psql('postgres', 'DROP DATABASE "db 9"');
	$node->safe_psql('db 8', $right);
	$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE "db 8"');
	cmp_ok(time() - $begun, '<', 10, 'nothing of ours holds a database: DROP and TEMPLATE right after calls');
	is($node->safe_psql('copy', "$right; SELECT name FROM llm.models ORDER BY name"), "200\necho\nof 8", 'a copy works as its template');
	$node->safe_psql('postgres', 'ALTER DATABASE copy RENAME TO "db 9"');
	is($node->safe_psql('db 9', $right), '200', 'also under another name');
}

# ---- encodings ----

{
	my $call = q{SELECT t, length(t), octet_length(t) FROM "Odd %d".llm_generate('caf' || chr(233), 'echo') t};
	is($node->safe_psql('db 1', "SET client_encoding = LATIN1; " . sprintf $call, 1), "caf\xe9|4|5", 'a LATIN1 client of a UTF8 database');
	is($node->safe_psql('db 3', "SET client_encoding = UTF8; " . sprintf $call, 3), "caf\xc3\xa9|4|4", 'a UTF8 client of a LATIN1 database');
	like(llm_error($node, q{SET client_encoding = LATIN1; SELECT "Odd 1".llm_generate('lama ' || chr(129433), 'echo')}, 'db 1'),
		qr/ERROR:  22P05: character .* has no equivalent in encoding "LATIN1"/, 'what the client cannot show is its own error');
	like(llm_error($node, qq{SET client_encoding = LATIN1; SELECT "Odd 1".llm_generate('\@error=caf\xe9 x', 'echo')}, 'db 1'),
		qr/ERROR:  XX000: caf\xe9/, 'errors are converted as well');
	$node->safe_psql('postgres', q{CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'});
	llm_extension($node, 'ascii');
	like(llm_error($node, q{SELECT llm_generate('x')}, 'ascii'), qr/ERROR:  0A000: .*"SQL_ASCII"\nHINT: /, 'SQL_ASCII is refused');
}

# ---- all connections at once ----

llm_extension($node, 'postgres');
{
	# the others are for superusers, the test among them; the sessions wait until all are there
	my $sessions = $max - 10;
	$node->safe_psql('postgres', 'CREATE ROLE client LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO client');
	my $gate = $node->background_psql('postgres');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	my @s = map { llm_session($node, qq{DO 'BEGIN PERFORM pg_advisory_lock_shared(1); END';
		SELECT llm_generate('session $_ row ' || i) FROM generate_series(1, 20) i; SELECT llm_generate('session $_')}, user => 'client') } 1 .. $sessions;
	$node->poll_query_until('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'", $sessions);
	my $begun = time();
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	my $good = 0;
	foreach my $i (1 .. $sessions)
	{
		my ($out, $err) = llm_session_end($s[$i - 1]);
		$good++ if "$out$err" eq join "\n", (map { "session $i row $_" } 1 .. 20), "session $i";
	}
	$gate->quit;
	my $took = time() - $begun;
	is($good, $sessions, "$sessions sessions at once: none has lost an answer") or diag("$good of $sessions");
	note sprintf('%d sessions x 21 calls took %.1f s', $sessions, $took);
	llm_is_well($node, 'as many sessions as there are connections');
}

# ---- more than the engine may have descriptors ----

{
	my $few = $node->basedir . '/few.sh';
	append_to_file($few, "#!/bin/sh\nulimit -n 20\nexec '" . llm_engine_path() . "' \"\$@\"\n");
	chmod 0755, $few or die "chmod $few: $!";
	$node->append_conf('postgresql.conf', "llm_infer.engine_path = '$few'\nllm_infer.engine_timeout = '1s'");
	$node->restart;
	my $gate = $node->background_psql('postgres');
	$gate->query_safe('SELECT pg_advisory_lock(1)');
	my @s = map { llm_session($node, q{SELECT llm_generate('x'); DO 'BEGIN PERFORM pg_advisory_lock_shared(1); END'}) } 1 .. 16;
	$node->poll_query_until('postgres', "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'", 16);
	$gate->query_safe('SELECT pg_advisory_unlock(1)');
	my @said = map { join '', llm_session_end($_) } @s;
	my @served = grep { $_ eq 'x' } @said;
	my @refused = grep { /ERROR:  08006: no llm_infer engine was available for 1000 ms\nDETAIL:  .*\nHINT:  The server log/ } @said;
	is(@served + @refused, 16, 'a session without one is told') or diag("@said");
	ok(@served > 0 && @refused > 0, scalar(@served) . ' sessions had one');
	like(slurp_file($node->logfile), qr/too many connections: \d+/, 'and the log says why');
	$gate->quit;
	llm_is_well($node, 'more sessions than descriptors');
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
