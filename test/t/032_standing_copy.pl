# Standing enrichments travel: definitions, queue and triggers by dump and restore, by superusers and others, whole or in parts;
# rows by a subscription; and what becomes of all that with the extension, its library and a role.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('standing', allows_streaming => 'logical');
sub one { return scalar $node->safe_psql($_[1] // 'postgres', $_[0]); }
my $queue = 'SELECT d.name, q.key FROM llm.enrich_queue q LEFT JOIN llm.enrichment_defs d ON d.id = q.enrichment ORDER BY q.id';
my $defs = 'SELECT name, owner, relation, target, state, pending FROM llm.enrichments ORDER BY 1';
# Paused ones, so that what is queued stays.
sub paused { my ($name, $args) = @_; return "SELECT llm_enrich_create('$name', $args), llm_enrich_pause('$name');"; }

$node->safe_psql('postgres', q{CREATE ROLE owner LOGIN; CREATE ROLE gone; CREATE ROLE plain LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO PUBLIC;
	CREATE SCHEMA "Odd place" AUTHORIZATION owner; GRANT CREATE ON SCHEMA public TO gone;
	SET ROLE owner; CREATE TABLE "Odd place".docs (id int PRIMARY KEY, body text, s text) PARTITION BY RANGE (id);
	CREATE TABLE "Odd place".docs1 PARTITION OF "Odd place".docs FOR VALUES FROM (0) TO (100);
	RESET ROLE; CREATE TABLE plainly (id int PRIMARY KEY, body text, s text);
	SET ROLE gone; CREATE TABLE orphan (id int PRIMARY KEY, body text, s text)});
$node->safe_psql('postgres', q{SET ROLE owner;} . paused('docs', q{'"Odd place".docs', 's', expr => 'upper(body)', filter => 'id > 0', options => '{"top_k": 3}', backfill => false})
	. q{RESET ROLE;} . paused('plainly', q{'plainly', 's', prompt => '{body}'}) . q{SET ROLE gone;} . paused('orphan', q{'orphan', 's', prompt => '{body}'})
	. q{RESET ROLE; INSERT INTO "Odd place".docs VALUES (1, 'one'), (2, 'two'); INSERT INTO plainly VALUES (3, 'three'); INSERT INTO orphan VALUES (4, 'four');
	DROP TABLE orphan; GRANT USAGE ON SCHEMA "Odd place" TO plain; GRANT SELECT ON plainly, "Odd place".docs, "Odd place".docs1 TO plain});
my $queued = qq{docs|{"id": 1}\ndocs|{"id": 2}\nplainly|{"id": 3}};
is(one("$queue LIMIT 3"), $queued, 'rows are queued');

# ---- dump and restore ----

my $file = $node->basedir . '/dump';
sub restore { my ($db, $from, @args) = @_; $node->safe_psql('postgres', "CREATE DATABASE $db OWNER plain");
	return run_log([ 'psql', '-Xq', @args, '-d', $node->connstr($db), '-f', $from ], '>', \my $out, '2>', \$main::said); }
our $said;
$node->command_ok([ 'pg_dump', '-f', $file, $node->connstr('postgres') ], 'a dump');
ok(restore('copy', $file, '-v', 'ON_ERROR_STOP=1'), 'is restored');
is(one($defs, 'copy'), qq{docs|owner|"Odd place".docs|s|paused|2\nplainly|postgres|plainly|s|paused|1}, 'with the definitions of tables that there are');
is(one(qq{$queue; SELECT filter, options, backfill FROM llm.enrichment_defs ORDER BY name}, 'copy'), qq{$queued\nid > 0|{"top_k": 3}|f\n||t}, 'and all that they are made of');
# Lines that only one of them has.
sub only { my %n; $n{$_}++ foreach split /\n/, slurp_file($_[0]); $n{$_}-- foreach split /\n/, slurp_file($_[1]); return join "\n", sort grep { $n{$_} && !/^.(un)?restrict / } keys %n; }
$node->command_ok([ 'pg_dump', '-f', "$file.again", $node->connstr('copy') ], 'a dump of the copy');
is(only($file, "$file.again"), '', 'is the same');
$node->safe_psql('copy', q{SET ROLE owner; INSERT INTO "Odd place".docs1 VALUES (5, 'five'); UPDATE "Odd place".docs SET body = body || '!' WHERE id = 2});
is(one($queue, 'copy'), qq{$queued\ndocs|{"id": 5}\ndocs|{"id": 2}}, 'triggers work');
is(one(q{SET ROLE owner; SELECT llm_enrich_create('next', '"Odd place".docs', 'body', expr => 'id::text', backfill => false); SELECT id FROM llm.enrichment_ids, LATERAL (SELECT last_value - 3 AS id) v}, 'copy'), "\n1",
	'numbers go on') or diag($said);
$node->command_ok([ 'pg_dump', '-s', '-U', 'plain', '-f', "$file.schema", $node->connstr('postgres') ], 'a dump of the schema by anybody');
ok(restore('bare', "$file.schema", '-v', 'ON_ERROR_STOP=1'), 'is restored');
$node->command_ok([ 'pg_dump', '-t', 'plainly', '-f', "$file.table", $node->connstr('postgres') ], 'a dump of a table');
$node->safe_psql('bare', 'DROP TABLE plainly');
is(run_log([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('bare'), '-f', "$file.table" ], '>', \my $o, '2>', \my $e), 1, 'is restored');
is(one(q{INSERT INTO "Odd place".docs VALUES (1, 'x'); UPDATE plainly SET body = 'y'; SELECT (SELECT count(*) FROM llm.enrichments), (SELECT count(*) FROM llm.enrich_queue), (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'llm_enrich%')}, 'bare'),
	'0|0|6', 'triggers without a definition do nothing');
llm_extension($node, 'bare') if one('SELECT count(*) FROM llm.models', 'bare') eq '0';
is(one(paused('again', q{'plainly', 's', prompt => '{body}'}) . q{ INSERT INTO plainly VALUES (9, 'n'); SELECT count(*), max(key::text) FROM llm.enrich_queue}, 'bare'), qq{|\n1|{"id": 9}}, 'and are in nobody\'s way');
$node->command_ok([ 'pg_dump', '-t', 'plainly', '--no-owner', '-f', "$file.table", $node->connstr('postgres') ], 'a table for another role');
$node->safe_psql('postgres', 'CREATE DATABASE other OWNER plain');
$node->safe_psql('other', 'CREATE EXTENSION llm_infer; ALTER SCHEMA public OWNER TO plain');
is(run_log([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-U', 'plain', '-d', $node->connstr('other'), '-f', "$file.table" ], '>', \$o, '2>', \$e), 1, 'it restores triggers too') or diag($e);
is(one('SET ROLE plain; UPDATE plainly SET body = body; SELECT count(*) FROM plainly', 'other'), '1', 'which do nothing there');

# ---- a subscription: its rows are not seen, whatever the phase; a backfill finds them ----

$node->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE plainly');
$node->safe_psql('bare', q{TRUNCATE plainly, llm.enrich_queue});
one(q{SELECT pg_create_logical_replication_slot('p', 'pgoutput')});
$node->safe_psql('bare', "CREATE SUBSCRIPTION p CONNECTION '@{[$node->connstr]} dbname=postgres' PUBLICATION p WITH (create_slot = false, slot_name = p)");
ok(llm_wait_for(sub { one('SELECT count(*) FROM plainly', 'bare') eq '1' }), 'a subscription copies rows');
$node->safe_psql('postgres', q{INSERT INTO plainly VALUES (30, 'thirty'); UPDATE plainly SET body = 'drei' WHERE id = 3});
ok(llm_wait_for(sub { one(q{SELECT count(*) FROM plainly WHERE body IN ('thirty', 'drei')}, 'bare') eq '2' }), 'and brings rows');
is(one('SELECT count(*) FROM llm.enrich_queue', 'bare'), '0', 'none of which is queued');
is(one(q{SELECT llm_enrich_resume('again', true), llm_enrich_pause('again'); SELECT backfill FROM llm.enrichment_defs}, 'bare'), "|\nt", 'they are looked for by a backfill');
$node->safe_psql('bare', 'ALTER SUBSCRIPTION p DISABLE; ALTER SUBSCRIPTION p SET (slot_name = NONE); DROP SUBSCRIPTION p');
$node->safe_psql('postgres', q{SELECT pg_drop_replication_slot('p'); DROP PUBLICATION p});

# ---- the owner's role; the extension; the library ----

$node->safe_psql('copy', q{REASSIGN OWNED BY owner TO plain; DROP OWNED BY owner});
$node->safe_psql('postgres', q{REASSIGN OWNED BY owner TO plain; DROP OWNED BY owner});
$node->safe_psql('bare', q{REASSIGN OWNED BY owner TO plain; DROP OWNED BY owner});
$node->safe_psql('postgres', q{DROP ROLE owner; INSERT INTO "Odd place".docs VALUES (50, 'fifty')});
like(llm_error($node, q{SELECT llm_enrich_resume('docs')}), qr/ERROR:  42704: the owner of enrichment "docs" does not exist/, 'an owner who is gone');
is(one(q{SELECT pending, state FROM llm.enrichments WHERE name = 'docs'}), '3|paused', 'rows are queued still');
is(one(q{SELECT llm_enrich_drop('docs'); SELECT count(*) FROM llm.enrich_queue WHERE enrichment NOT IN (SELECT id FROM llm.enrichment_defs)}), "\n0", 'it can be dropped');
$node->safe_psql('copy', 'DROP SERVER echo; DROP EXTENSION llm_infer; UPDATE plainly SET body = NULL');
is(one(q{SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal}, 'copy'), '0', 'triggers go with the extension');
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->restart;
$node->safe_psql('postgres', q{INSERT INTO plainly VALUES (60, 'sixty')});
is(one(q{SELECT pending FROM llm.enrichments}), '4', 'without the library preloaded rows are queued');
like(llm_error($node, q{SELECT llm_enrich_resume('plainly')}), qr/ERROR:  55000: /, 'but nothing goes on');
is(one(q{SELECT llm_enrich_drop('plainly'); SELECT count(*) FROM llm.enrichments}), "\n0", 'dropping works');
$node->stop;
done_testing();
