# The extension comes, changes and goes while sessions keep prepared plans, cursors and functions that call
# it: each statement works or says what is missing, no backend is lost, and what comes back is found again.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Scripts of other versions beside the staged one: an older one, the step from it, and one of a later library.
my $dir = PostgreSQL::Test::Utils::tempdir();
chomp(my $share = `pg_config --sharedir`);
my ($stage, $lib) = ($ENV{LLM_STAGE}, $ENV{LLM_PKGLIBDIR});
system_or_bail('mkdir', '-p', "$dir$lib", "$dir$share/extension");
system_or_bail('ln', '-s', "$stage$lib/llm_infer.so", "$dir$lib/llm_infer.so");
system_or_bail('sh', '-c', "cp '$stage$share'/extension/llm_infer* '$dir$share/extension/'");
sub script
{
	my ($version, $sql) = @_;
	append_to_file("$dir$share/extension/llm_infer--$version.sql", $sql);
	return;
}
my $fresh = slurp_file("$dir$share/extension/llm_infer--0.1.0.sql");
my ($generate) = $fresh =~ /(CREATE FUNCTION llm_generate\(\s*prompt text.*?;)/s;
my ($count) = $fresh =~ /(CREATE FUNCTION llm_count_tokens.*?;)/s;
my $common = 'text, text, int, float8, bigint, text[], jsonb, text, jsonb';
script('0.0.9', "$fresh\nDROP FUNCTION llm_generate(text, $common); DROP FUNCTION llm_count_tokens(text, text);
	CREATE FUNCTION llm_generate(prompt text, model text DEFAULT NULL) RETURNS text LANGUAGE C VOLATILE
		SUPPORT llm.call_support AS 'MODULE_PATHNAME', 'llm_generate_text';");
script('0.0.9--0.1.0', "DROP FUNCTION llm_generate(text, text); $generate $count");
script('0.1.0--0.2.0', q{CREATE FUNCTION llm_later(text) RETURNS text LANGUAGE C AS 'MODULE_PATHNAME', 'llm_later_text';});
script('0.1.0--0.1.1', 'CREATE FUNCTION llm_noted() RETURNS int LANGUAGE sql AS $$SELECT 1$$;');

my $node = llm_cluster('life', conf => "extension_destdir = '$dir'", fault => 'slow_step=2');
my $again = q{CREATE EXTENSION llm_infer; SELECT llm_model_register('echo', 'echo:');};
my $rows = q{SELECT llm_generate('row ' || i) FROM generate_series(1, 3) i};

# A session that stays.
sub open_session
{
	my ($dbname) = @_;
	return $node->background_psql($dbname // 'postgres', on_error_stop => 0);
}

# ---- one session ----

{
	my ($out, $err) = llm_session_end(llm_session($node, qq{
		SET client_min_messages = error; \\set VERBOSITY terse
		PREPARE batch AS $rows; PREPARE scalar(text) AS SELECT llm_generate(\$1);
		SET plan_cache_mode = force_generic_plan;
		EXECUTE batch; EXECUTE scalar('scalar');
		CREATE FUNCTION f(t text) RETURNS text LANGUAGE plpgsql AS \$\$DECLARE r llm.result; BEGIN
			SELECT * INTO r FROM llm_generate_result(t); RETURN r.text || ' ' || llm_count_tokens(t); END\$\$;
		CREATE FUNCTION g(t text) RETURNS text LANGUAGE sql AS 'SELECT llm_generate(t)';
		SELECT f('plpgsql'), g('sql');
		DROP EXTENSION llm_infer CASCADE;
		\\echo gone
		EXECUTE batch; EXECUTE scalar('x'); SELECT f('x'); SELECT g('x'); SELECT * FROM llm.models;
		$again
		\\echo back
		EXECUTE batch; EXECUTE scalar('scalar'); SELECT f('plpgsql'), g('sql'); SELECT name FROM llm.models;
		BEGIN; DROP EXTENSION llm_infer CASCADE; SAVEPOINT s; EXECUTE batch; ROLLBACK; EXECUTE batch;
		DROP EXTENSION llm_infer CASCADE; $again $again
		EXECUTE scalar('after a failure')}));
	my $works = "row 1\nrow 2\nrow 3\nscalar\nplpgsql 7|sql\n";
	is($out, "${works}gone\n\nback\n${works}echo\nrow 1\nrow 2\nrow 3\n\nafter a failure", 'dropped and made again in one session');
	is(() = $err =~ /ERROR: .* (?:function llm_\w+|type "llm.result"|relation "llm.models")\S* does not exist/g, 6, 'every use says what is missing') or diag($err);
}

# ---- open cursors ----

foreach my $batch ('on', 'off')
{
	my ($out, $err) = llm_session_end(llm_session($node, qq{SET client_min_messages = error; SET llm_infer.enable_batch = $batch;
		BEGIN; DECLARE c CURSOR FOR SELECT llm_generate('row ' || i) FROM generate_series(1, 2000) i; FETCH 2 FROM c;
		DROP EXTENSION llm_infer CASCADE; SAVEPOINT s; FETCH 1500 FROM c; ROLLBACK TO s; CLOSE c; COMMIT; $again}));
	like($out, qr/^row 1\nrow 2\n/, "an open cursor, enable_batch = $batch");
	like($err, qr/ERROR:  (?:55000: no model is registered|42883: llm_infer was dropped while a statement used it)/,
		'goes as far as it can and then says why');
	llm_is_well($node, 'DROP EXTENSION under a cursor');
}

# ---- another session ----

{
	my $idle = open_session();
	my $query = sub { $idle->query($_[0]) };
	$query->("PREPARE batch AS $rows; PREPARE stats AS SELECT state FROM llm.stat_engine;");
	is($query->('EXECUTE batch; EXECUTE stats;'), llm_answers(3) . "\nready", 'prepared statements');
	my $long = q{SELECT llm_generate('row ' || i%s) FROM generate_series(1, 5000) i};
	$node->safe_psql('postgres', q{CREATE TABLE filled (id int PRIMARY KEY, a text); INSERT INTO filled SELECT generate_series(1, 5000)});
	my @busy = map { llm_session($node, $_) } sprintf($long, ''), sprintf($long, q{, 'echo'}),
	  'SET llm_infer.enable_batch = off; ' . sprintf($long, ''), q{CALL llm_enrich('filled', 'a', prompt => '@slow=20 {id}')};
	llm_active($node, 4);
	$node->safe_psql('postgres', 'SET client_min_messages = error; DROP EXTENSION llm_infer CASCADE');
	foreach my $s (@busy)
	{
		my ($out, $err) = llm_session_end($s);
		like($err, qr/ERROR:  (?:55000: no model is registered|42704: model "echo" does not exist|42883: llm_infer was dropped)/, 'dropped under a statement that runs');
	}
	$node->safe_psql('postgres', $again);
	is($query->('EXECUTE batch; EXECUTE stats;'), llm_answers(3) . "\nready", 'dropped and made again between executions');
	$node->safe_psql('postgres', q{SET client_min_messages = error; DROP EXTENSION llm_infer CASCADE; CREATE SCHEMA elsewhere;
		CREATE EXTENSION llm_infer SCHEMA elsewhere; SELECT elsewhere.llm_model_register('echo', 'echo:')});
	$query->('SET search_path = elsewhere;');
	is($query->('EXECUTE batch;'), llm_answers(3), 'and in another schema');
	$idle->quit;
	like(llm_error($node, 'ALTER EXTENSION llm_infer SET SCHEMA public'), qr/ERROR:  0A000: .*does not support SET SCHEMA/,
		'ALTER EXTENSION SET SCHEMA is refused');
	$node->safe_psql('postgres', "SET client_min_messages = error; DROP EXTENSION llm_infer CASCADE; $again");
	llm_is_well($node, 'DROP EXTENSION beside other sessions');
}

# ---- again and again, beside calls of every kind ----

{
	$node->safe_psql('postgres', 'CREATE TABLE said (state text, message text, UNIQUE (state, message))');
	# each query in a transaction of its own: a view would keep its lock to the end
	my @s = map { llm_session($node, qq{SET client_min_messages = error; SET llm_infer.enable_batch = $_; DO \$\$
		DECLARE q text; good int := 0; fails int := 0; begun timestamptz := clock_timestamp();
		BEGIN
			WHILE to_regclass('churned') IS NULL AND clock_timestamp() < begun + '30 s' LOOP
				FOREACH q IN ARRAY ARRAY[\$q\$llm_generate('x')\$q\$, \$q\$llm_generate('row ' || i, 'echo') FROM generate_series(1, 3) i\$q\$,
						\$q\$llm_generate_result('x')\$q\$, \$q\$llm_generate_stream('x')\$q\$, \$q\$llm_model_load('echo')\$q\$,
						\$q\$llm_count_tokens('x' || i) FROM generate_series(1, 3) i\$q\$, '* FROM llm.models, llm.stat_engine, llm.stat_models',
						'* FROM llm.stat_users, llm.stat_activity, llm.prefix_cache',
						\$q\$llm_model_register('m' || pg_backend_pid(), 'echo:')\$q\$, \$q\$llm_model_drop('m' || pg_backend_pid())\$q\$] LOOP
					BEGIN
						EXECUTE 'SELECT ' || q;
						good := good + 1;
					EXCEPTION WHEN OTHERS THEN
						fails := fails + 1;
						INSERT INTO said VALUES (SQLSTATE, SQLERRM || ': ' || q) ON CONFLICT DO NOTHING;
					END;
					COMMIT;
				END LOOP;
			END LOOP;
			INSERT INTO said VALUES (CASE WHEN good > 0 AND fails > 0 THEN 'both' END);
		END\$\$}) } qw(on off on);
	my $churn = llm_session($node, 'SET client_min_messages = error;' . "DROP EXTENSION llm_infer CASCADE; $again SELECT pg_sleep(0.02);" x 12 . 'CREATE TABLE churned ()');
	is(join('', llm_session_end($_)), '', 'calls while the extension goes and comes') foreach @s;
	my (undef, $err) = llm_session_end($churn);
	# the one deadlock that there can be, of DROP and a view on a table, and what then is there already
	unlike($err, qr/ERROR:  (?!40P01|42710)/, 'which it does');
	is($node->safe_psql('postgres', q{DELETE FROM said WHERE message IS NULL RETURNING state}), "both\nboth\nboth", 'under many of them');
	# a query takes no lock on its functions: PostgreSQL says so when one goes between parsing and planning
	is($node->safe_psql('postgres', q{SELECT DISTINCT state, message FROM said WHERE state !~ '^(42|55|3F|40P01)'
		AND message !~ '^cache lookup failed for function \\d+: '}), '',
		'nothing fails but by what is not there');
	$node->safe_psql('postgres', "SET client_min_messages = error; DROP EXTENSION IF EXISTS llm_infer CASCADE; $again");
	llm_is_well($node, 'DROP and CREATE again and again');
}

# ---- other versions ----

{
	$node->safe_psql('postgres', 'CREATE DATABASE old');
	$node->safe_psql('old', q{CREATE EXTENSION llm_infer VERSION '0.0.9'; SELECT llm_model_register('echo', 'echo:');
		CREATE VIEW v AS SELECT llm_generate_result('row ' || i) AS r FROM generate_series(1, 3) i});
	my $s = open_session('old');
	my $query = sub { $s->query($_[0]) };
	$query->("PREPARE batch AS $rows; PREPARE count AS SELECT (r).text FROM v;");
	is($query->('EXECUTE count;'), llm_answers(3), 'a new library with an old catalogue: what has not changed works');
	like(llm_error($node, $_, 'old'), qr/ERROR:  55000: function llm_generate\(text,text\) is of another version of llm_infer.*\nHINT:  .*UPDATE/,
		"what has changed says so: $_")
	  foreach $rows, q{SELECT llm_generate('x')};
	is($query->(q{EXECUTE batch;}), '', 'in open sessions too');
	$node->safe_psql('old', q{ALTER EXTENSION llm_infer UPDATE TO '0.1.0'});
	is($query->('EXECUTE batch; EXECUTE count;'), llm_answers(3) . "\n" . llm_answers(3), 'after the update all of it works in open sessions');
	is($query->(q{SELECT llm_count_tokens('abc');}), '3', 'and what is new');
	like(llm_error($node, q{ALTER EXTENSION llm_infer UPDATE TO '0.2.0'}, 'old'), qr/ERROR:  42883: could not find function "llm_later_text" in file/,
		'an old library refuses a new catalogue');
	is($query->('EXECUTE batch;'), llm_answers(3), 'and works with the rest');
	$s->quit;

	$s = llm_session($node, q{SELECT llm_generate('row ' || i) FROM generate_series(1, 1000) i});
	llm_active($node);
	$node->safe_psql('postgres', q{ALTER EXTENSION llm_infer UPDATE TO '0.1.1'});
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1000), 'an update under a statement that runs');
	llm_is_well($node, 'other versions');
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
