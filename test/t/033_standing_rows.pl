# What standing enrichments queue, and that it ends: chains of them, rows that each write changes, transactions that are prepared,
# partitions that go while others work, event triggers, and memory beside a statement of many rows.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('rows', conf => "max_prepared_transactions = 5\nshared_buffers = '16MB'");
sub one { return scalar $node->safe_psql('postgres', $_[0]); }
sub idle { return llm_wait_for(sub { one(q{SELECT count(*) FROM llm.enrichments WHERE state = 'active' AND pending = 0 HAVING count(*) = (SELECT count(*) FROM llm.enrichment_defs)}) }); }

# ---- chains: two that are handed whole rows and one that names a column, with a time that every write changes ----

$node->safe_psql('postgres', q{CREATE TABLE d (id int PRIMARY KEY, body text, writes int DEFAULT 0, a text, b text, c text);
	CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.writes := OLD.writes + 1; RETURN NEW; END';
	CREATE TRIGGER stamp BEFORE UPDATE ON d FOR EACH ROW EXECUTE FUNCTION stamp();
	CREATE FUNCTION of_row(d) RETURNS text LANGUAGE sql AS 'SELECT $1.body';
	INSERT INTO d (id, body) SELECT i, 'row ' || i FROM generate_series(1, 100) i;
	SELECT llm_enrich_create('a', 'd', 'a', expr => 'of_row(d)'), llm_enrich_create('b', 'd', 'b', expr => $$'B ' || of_row(d)$$), llm_enrich_create('c', 'd', 'c', prompt => 'C {a}')});
ok(idle(), 'existing rows are done');
is(one(q{SELECT count(*), min(writes), max(writes) FROM d WHERE a = body AND b = 'B ' || body AND c = 'C ' || body}), '100|3|3', 'once in each column');
$node->safe_psql('postgres', q{UPDATE d SET body = 'new' WHERE id = 7; INSERT INTO d (id, body) VALUES (101, 'row 101')});
ok(llm_wait_for(sub { one(q{SELECT count(*) FROM d WHERE c = 'C ' || body AND b = 'B ' || body AND a = body}) eq '101' }), 'changed and new rows follow') && idle();
my $before = one('SELECT sum(writes) FROM d');
is(one(q{SELECT writes FROM d WHERE id = 7}), '7', 'a changed row is done once more in each column');
# beyond the time in which workers would have begun again
ok(!llm_wait_for(sub { one('SELECT sum(writes) FROM d') ne $before }, 1.5), 'and then it ends');
$node->safe_psql('postgres', q{BEGIN; INSERT INTO d (id, body) VALUES (200, 'two hundred'); PREPARE TRANSACTION 'p'});
is(one(q{SELECT sum(pending) FROM llm.enrichments}), '0', 'what a prepared transaction queued is not seen');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok(llm_wait_for(sub { one(q{SELECT c FROM d WHERE id = 200}) eq 'C two hundred' }), 'before it is committed');
$node->safe_psql('postgres', q{SELECT llm_enrich_drop(name) FROM llm.enrichments; DROP TABLE d CASCADE});
# one that is handed whole rows, beside a trigger that updates the row for each value
$node->safe_psql('postgres', q{CREATE TABLE l (id int PRIMARY KEY, body text, n int DEFAULT 0, a text); INSERT INTO l VALUES (1, 'x'); CREATE FUNCTION of_l(l) RETURNS text LANGUAGE sql AS 'SELECT $1.body';
	CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE l SET n = n + 1 WHERE id = NEW.id; RETURN NULL; END'; CREATE TRIGGER bump AFTER UPDATE OF a ON l FOR EACH ROW EXECUTE FUNCTION bump();
	SELECT llm_enrich_create('l', 'l', 'a', expr => 'of_l(l)')});
ok(idle(), 'a row is done');
ok(!llm_wait_for(sub { one('SELECT n <> 1 FROM l') eq 't' }, 1.5), 'once');
$node->safe_psql('postgres', q{SELECT llm_enrich_drop('l'); DROP TABLE l CASCADE});

# ---- memory: many rows in one statement, in a backend that stays ----

$node->safe_psql('postgres', q{CREATE TABLE big (id int PRIMARY KEY, body text, a text); SELECT llm_enrich_create('big', 'big', 'a', expr => 'body', backfill => false), llm_enrich_pause('big')});
my $sql = sub { return "SET work_mem = '1MB'; INSERT INTO big SELECT i, repeat('x', 100) FROM generate_series($_[0], $_[1]) i; UPDATE big SET body = body || 'y' WHERE id BETWEEN $_[0] AND $_[1];
	SELECT regexp_replace(pg_read_file('/proc/self/status'), '.*VmHWM:\\s*(\\d+).*', '\\1')" };
my $few = one($sql->(1, 10000));
my $many = one($sql->(10001, 150000));
is(one(q{SELECT pending FROM llm.enrichments}), '300000', 'all of them are queued');
cmp_ok($many - $few, '<', 20 * 1024, 'fourteen times as many rows take no more memory')  or diag("$few kB, $many kB");
$node->safe_psql('postgres', q{SELECT llm_enrich_drop('big'); DROP TABLE big});

# ---- partitions beside writers; event triggers see what is created ----

$node->safe_psql('postgres', q{CREATE TABLE said (tag text, what text); CREATE FUNCTION say() RETURNS event_trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO said SELECT tg_tag, object_identity FROM pg_event_trigger_ddl_commands(); END$$; CREATE EVENT TRIGGER say ON ddl_command_end EXECUTE FUNCTION say();
	CREATE TABLE parts (id int PRIMARY KEY, body text, a text) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
	SELECT llm_enrich_create('parts', 'parts', 'a', expr => 'body', backfill => false), llm_enrich_pause('parts');
	DO $$BEGIN EXECUTE 'CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (10) TO (20)'; END$$});
is(one(q{SELECT count(*) FROM said WHERE tag = 'CREATE TRIGGER' AND what ~ '^llm_enrich_\d+_(insert|update) on public\.(parts|p1|p2)$'}), '6', 'event triggers see our triggers');
my $s = llm_session($node, q{BEGIN; INSERT INTO parts VALUES (1, 'one'), (11, 'eleven'); SELECT pg_sleep(1); COMMIT});
ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) eq '1' }), 'somebody writes');
is(llm_error($node, 'ALTER TABLE parts DETACH PARTITION p1 CONCURRENTLY'), '', 'a partition is detached concurrently');
llm_session_end($s);
is(one(q{SELECT tgrelid::regclass, count(*) FROM pg_trigger WHERE tgname LIKE 'llm_enrich%' GROUP BY 1 ORDER BY 1}), "parts|2\np2|2", 'and has lost its triggers');
is(one(q{INSERT INTO p1 VALUES (2, 'two'); SELECT string_agg(key::text, ' ') FROM llm.enrich_queue}), '{"id": 1} {"id": 11}', 'its rows are not queued any more');
$node->safe_psql('postgres', 'DROP EVENT TRIGGER say');
llm_is_well($node, 'at the end');
$node->stop;
done_testing();
