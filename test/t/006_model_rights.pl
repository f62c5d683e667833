# Which model a call goes to, who may use it, and that models survive a dump.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('rights', plain => 1);
$node->safe_psql('postgres', q{CREATE EXTENSION llm_infer; CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN;
	GRANT CREATE ON SCHEMA public TO alice});

sub as
{
	my ($user, $sql) = @_;
	my ($out, $err) = llm_session_end(llm_session($node, $sql, user => $user));
	return $err ne '' ? $err : $out;
}

# ---- which model ----

like(llm_error($node, q{SELECT llm_generate('x')}),
	qr/ERROR:  55000: no model is registered\nHINT:  .*llm_model_register/, 'no model');
like(llm_error($node, q{SELECT llm_generate('x', 'a')}), qr/ERROR:  42704: model "a" does not exist\nHINT:  /,
	'no model of that name');
is($node->safe_psql('postgres', q{SELECT llm_generate(NULL) IS NULL}), 't', 'NULL needs no model');
$node->safe_psql('postgres', q{SELECT llm_model_register('a', 'echo:')});
is($node->safe_psql('postgres', q{SELECT llm_generate('x')}), 'x', 'the only model is the default');
$node->safe_psql('postgres', q{SELECT llm_model_register('b', 'echo:', '{"context_length": 64}')});
like(llm_error($node, q{SELECT llm_generate('x')}),
	qr/ERROR:  55000: no model was named and there are 2\nHINT:  .*llm_infer\.default_model/, 'two models, none named');
is($node->safe_psql('postgres', q{SET llm_infer.default_model = 'b'; SELECT model, text FROM llm_generate_result('x')}),
	'b|x', 'llm_infer.default_model');
$node->safe_psql('postgres', q{CREATE FOREIGN DATA WRAPPER other; CREATE SERVER c FOREIGN DATA WRAPPER other});
like(llm_error($node, q{SELECT llm_generate('x', 'c')}), qr/ERROR:  42704: model "c" does not exist/,
	'a server of another wrapper is no model');
like(llm_error($node, q{SELECT llm_model_register('a', 'echo:')}), qr/ERROR:  42710: /, 'a name that is taken');
like(llm_error($node, q{SELECT llm_generate(repeat('x', 100), 'b')}), qr/ERROR:  54000: .*64/,
	'a prompt over the context of the model');
$node->safe_psql('postgres', q{ALTER SERVER b OPTIONS (SET context_length '512')});
is($node->safe_psql('postgres', q{SELECT length(llm_generate(repeat('x', 100), 'b'))}), '100',
	'ALTER SERVER is in force at once');

# ---- rights ----

like(as('alice', q{SELECT llm_generate('x', 'a')}), qr/ERROR:  42501: permission denied for model "a"\nHINT:  /,
	'no USAGE');
like(as('alice', q{SELECT llm_generate('row ' || i, 'a') FROM generate_series(1, 3) i}),
	qr/ERROR:  42501: permission denied for model "a"/, 'no USAGE, rows');
like(as('alice', q{SELECT llm_tokenize('x', 'a')}), qr/ERROR:  42501: /, 'no USAGE, llm_tokenize');
$node->safe_psql('postgres', q{GRANT USAGE ON FOREIGN SERVER a TO alice});
is(as('alice', q{SELECT llm_generate('row ' || i, 'a') FROM generate_series(1, 3) i}), llm_answers(3), 'USAGE');
like(as('bob', q{SELECT llm_generate('x', 'a')}), qr/ERROR:  42501: /, 'USAGE of another role does not count');

my $sql = q{SET ROLE %s; SELECT llm_generate('x', 'a'); RESET ROLE; SELECT llm_generate('y', 'a')};
like($node->safe_psql('postgres', sprintf $sql, 'alice'), qr/^x\ny$/, 'SET ROLE to one with USAGE');
like(llm_error($node, sprintf $sql, 'bob'), qr/ERROR:  42501: /, 'SET ROLE to one without: the current role counts');
$node->safe_psql('postgres', 'GRANT bob TO alice');
like(as('alice', q{SET ROLE bob; SELECT llm_generate('x', 'a'); SELECT llm_generate('row ' || i, 'a')
	FROM generate_series(1, 2) i}), qr/42501: .*42501: /s, 'SET ROLE in a session of one with USAGE');
is(as('alice', q{BEGIN; SELECT llm_generate('x', 'a'); SET LOCAL ROLE bob; COMMIT; SELECT llm_generate('y', 'a')}),
	"x\ny", 'back in the former role');
$node->safe_psql('postgres', q{CREATE FUNCTION by_alice(p text) RETURNS text LANGUAGE sql SECURITY DEFINER
	AS $$ SELECT llm_generate(p, 'a') $$; ALTER FUNCTION by_alice OWNER TO alice});
is(as('bob', q{SELECT by_alice('row ' || i) FROM generate_series(1, 3) i}), llm_answers(3),
	'SECURITY DEFINER: the owner of the function counts');

like(as('alice', q{SELECT llm_model_load('a')}), qr/ERROR:  42501: must be owner/, 'llm_model_load is for the owner');
like(as('alice', q{SELECT llm_model_unload('a')}), qr/ERROR:  42501: must be owner/, 'so is llm_model_unload');
like(as('alice', q{SELECT llm_engine_restart()}), qr/ERROR:  42501: /, 'llm_engine_restart is for superusers');
like(as('alice', q{SELECT llm_model_register('mine', 'echo:')}), qr/ERROR:  42501: /, 'registering needs the wrapper');
$node->safe_psql('postgres', q{GRANT USAGE ON FOREIGN DATA WRAPPER llm_infer TO alice});
is(as('alice', q{SELECT llm_model_register('mine', 'echo:'); SELECT llm_model_load('mine');
	SELECT llm_generate('x', 'mine'); SELECT llm_model_unload('mine')}), "\n\nx\n", 'with it she is the owner');
like(as('bob', q{SELECT llm_model_drop('mine')}), qr/ERROR:  42501: /, 'llm_model_drop is for the owner');
is(as('alice', q{SELECT state, steps IS NULL FROM llm.stat_engine; SELECT count(*) FROM llm.stat_activity
	WHERE usename <> 'alice'}), "ready|t\n0", 'counters and sessions of others are for monitors');
is($node->safe_psql('postgres', q{SELECT steps > 0 FROM llm.stat_engine}), 't', 'a superuser sees them');
llm_is_well($node, 'rights', model => 'a');

# ---- dump and restore ----

$node->safe_psql('postgres', q{
	SELECT llm_model_register('Odd "name"', 'deep/it''s a file.gguf', '{"kv_type": "f32", "chat_template": "{{ x }}''"}');
	CREATE TABLE docs AS SELECT i, 'row ' || i AS body FROM generate_series(1, 3) i;
	CREATE VIEW enriched AS SELECT i, llm_generate(body, 'a') AS t FROM docs;
	CREATE DATABASE copy});
my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $file, 'postgres' ], 'pg_dump');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file, 'copy' ], 'psql restores it');
my $models = q{SELECT s.srvname, s.srvowner::regrole, s.srvacl,
	(SELECT array_agg(o ORDER BY o) FROM unnest(s.srvoptions) o) FROM pg_foreign_server s JOIN
	pg_foreign_data_wrapper w ON w.oid = s.srvfdw WHERE w.fdwname = 'llm_infer' ORDER BY 1};
is($node->safe_psql('copy', $models), $node->safe_psql('postgres', $models), 'the same models, owners, options and rights');
is((() = $node->safe_psql('copy', $models) =~ /\n/g) + 1, 4, 'all four of them');
is($node->safe_psql('copy', 'SELECT t FROM enriched ORDER BY i'), llm_answers(3), 'and they work');
unlike(slurp_file($file), qr/resident|unloaded/, 'nothing of the engine is in the dump');
llm_is_well($node, 'dump and restore', model => 'a');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
