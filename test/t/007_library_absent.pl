# Without shared_preload_libraries everything but the calls works - CREATE EXTENSION, LOAD, models, views,
# dump and restore - and the calls name the line to add. With it, pg_upgrade's mode starts as well.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('absent', preload => 0);
pass('CREATE EXTENSION and llm_model_register work');
my $needed = qr/ERROR:  55000: llm_infer was not loaded at server start\nHINT:  .*shared_preload_libraries = 'llm_infer'/;

$node->safe_psql('postgres', q{LOAD 'llm_infer'; SET llm_infer.max_tokens = 7; SHOW llm_infer.max_tokens});
pass('LOAD works, and the settings of sessions');
foreach my $sql (
	q{SELECT llm_generate('x')},
	q{SELECT llm_generate('row ' || i) FROM generate_series(1, 5) i},
	q{SELECT llm_generate(ARRAY['x', 'y'])},
	q{SELECT llm_generate_result('x')},
	q{SELECT llm_tokenize('x')},
	q{SELECT llm_detokenize(ARRAY[1])},
	q{SELECT llm_count_tokens('x')},
	q{SELECT llm_model_load('echo')},
	q{SELECT llm_model_unload('echo')},
	q{SELECT llm_engine_restart()})
{
	like(llm_error($node, $sql), $needed, "$sql: says what to add");
}
is($node->safe_psql('postgres', q{SELECT llm_generate(NULL) IS NULL}), 't', 'NULL gives NULL all the same');
is($node->safe_psql('postgres', q{SELECT state, pid IS NULL, restarts FROM llm.stat_engine}), 'off|t|0', 'llm.stat_engine');
is($node->safe_psql('postgres', q{SELECT name, path, state IS NULL FROM llm.models}), 'echo|echo:|t', 'llm.models');
is($node->safe_psql('postgres', q{SELECT count(*) FROM llm.stat_activity}), '0', 'llm.stat_activity');
like($node->safe_psql('postgres', q{EXPLAIN (COSTS OFF) SELECT llm_generate('row ' || i) FROM generate_series(1, 5) i}),
	qr/generate_series/, 'EXPLAIN');
like(llm_error($node, q{SELECT llm_model_register('bad', '../x')}), qr/ERROR:  22023: /, 'the validator checks');

$node->safe_psql('postgres', q{CREATE TABLE docs AS SELECT i, 'row ' || i AS body FROM generate_series(1, 3) i;
	CREATE VIEW enriched AS SELECT i, llm_generate(body) AS t FROM docs; CREATE DATABASE copy});
my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $file, 'postgres' ], 'pg_dump');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $file, 'copy' ], 'psql restores it');
is($node->safe_psql('copy', 'SELECT name FROM llm.models'), 'echo', 'with its model');
is_deeply([ llm_processes($node, engines => 1) ], [], 'no engine was started');

$node->append_conf('postgresql.conf', q{session_preload_libraries = 'llm_infer'});
$node->reload;
like(llm_error($node, q{SELECT llm_generate('x')}), $needed, 'session_preload_libraries is not enough');
$node->append_conf('postgresql.conf', q{session_preload_libraries = ''});

# ---- preloaded at last ----

$node->append_conf('postgresql.conf', llm_conf());
$node->restart;
is($node->safe_psql('copy', 'SELECT t FROM enriched ORDER BY i'), llm_answers(3), 'preloaded: what was restored works');
like(llm_error($node, q{SET llm_infer.no_such = 1}), qr/ERROR:  42602: invalid configuration parameter name/,
	'preloaded: an unknown setting is refused');
like(llm_error($node, q{SET llm_infer.devices = 'cpu'}), qr/ERROR:  55P02: .*without restarting/, 'and those of the server are its own');
llm_is_well($node, 'preloaded');
$node->stop;

$node->command_ok([ 'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', '-b', 'start' ],
	'the mode of pg_upgrade starts');
like(llm_error($node, q{SELECT llm_generate('x')}), $needed, 'without an engine');
$node->command_ok([ 'pg_ctl', '-w', '-D', $node->data_dir, 'stop' ], 'and stops');
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
