# Standing enrichments at work: rows that come and change, rows that fail, models that are dead, owners and tables that change, DDL
# beside them. Each row is written once for what it says, each stop has a reason that is shown, and nothing goes round in circles.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = llm_cluster('standing', fault => 'slow_step=1', conf => "max_worker_processes = 16");

sub one { return scalar $node->safe_psql('postgres', $_[0]); }
sub soon { my ($sql, $name, $s) = @_; ok(llm_wait_for(sub { one($sql) eq 't' }, $s // 20), $name) or diag(one('TABLE llm.enrichments'), "\n", one('TABLE llm.job_workers')); return; }
sub state { return one("SELECT state || coalesce(': ' || reason, '') FROM llm.enrichments WHERE name = '$_[0]'"); }
sub workers { return one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('llm_infer launcher', 'llm_infer worker', 'llm_infer enrichment')}); }
sub idle { return llm_wait_for(sub { workers() eq '0' }); }

# ---- rows ----

$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int PRIMARY KEY, body text, other int, a text);
	CREATE TABLE writes (id int);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO writes VALUES (NEW.id); RETURN NULL; END';
	CREATE TRIGGER note AFTER UPDATE OF a ON docs FOR EACH ROW WHEN (NEW.a IS NOT NULL) EXECUTE FUNCTION note();
	INSERT INTO docs SELECT i, 'row ' || i FROM generate_series(1, 1500) i;
	SELECT llm_enrich_create('e', 'docs', 'a', prompt => '{body}');
	DO $$ BEGIN
		FOR i IN 1 .. 2000 LOOP EXIT WHEN (SELECT count(*) > 100 FROM writes); PERFORM pg_sleep(0.01); END LOOP;
		INSERT INTO docs SELECT i, 'new ' || i FROM generate_series(1501, 1510) i;
	END $$});
{
	soon(q{SELECT state = 'active' FROM llm.enrichments}, 'the backfill comes to its end');
	cmp_ok(one('SELECT count(*) FROM writes WHERE ctid > (SELECT max(ctid) FROM writes WHERE id > 1500)'), '>', 0, 'new rows did not wait for it');
	is(one('SELECT count(*) FILTER (WHERE a = body), (SELECT count(*) FROM writes), (SELECT count(*) FROM llm.enrich_queue) FROM docs'),
		'1510|1510|0', 'each row was written once, and nothing is left');
}
{
	$node->safe_psql('postgres', q{UPDATE docs SET other = 1; UPDATE docs SET body = 'changed ' || id WHERE id % 10 = 0; DELETE FROM docs WHERE id % 20 = 0});
	soon('SELECT count(*) = 1435 FROM docs WHERE a = body', 'changed rows are done again');
	soon('SELECT count(*) = 0 FROM llm.enrich_queue', 'nothing is left, of deleted rows neither');
	is(one('SELECT count(*) FROM writes'), '1586', 'just these, and once');
	my $s = llm_session($node, q{BEGIN; UPDATE docs SET other = 2 WHERE id = 1; SELECT pg_sleep(2); COMMIT});
	llm_backend($node, $s);
	$node->safe_psql('postgres', q{INSERT INTO docs VALUES (2000, 'beside')});
	$node->safe_psql('postgres', q{UPDATE docs SET body = 'free' WHERE id IN (3, 5)});
	soon('SELECT count(*) = 3 FROM docs WHERE id IN (2000, 3, 5) AND a = body', 'rows that others have locked hold nobody up');
	llm_session_end($s);
}
ok(idle(), 'workers end when there is nothing to do');

# ---- tables of other kinds ----

{
	$node->safe_psql('postgres', q{
		CREATE SCHEMA "Other place"; CREATE DOMAIN code AS varchar(20); CREATE TYPE size AS ENUM ('small', 'big');
		CREATE TABLE "Other place"."llm_key" ("Key 1" text COLLATE "C", i numeric(8,2), d timestamptz, c char(6), s size, e code, f float8, key text, t text, PRIMARY KEY (i, "Key 1", d, c, s, e, f)) PARTITION BY RANGE (i);
		CREATE TABLE "Other place".p1 PARTITION OF "Other place"."llm_key" FOR VALUES FROM (0) TO (10);
		CREATE TABLE "Other place".p2 PARTITION OF "Other place"."llm_key" FOR VALUES FROM (10) TO (20);
		CREATE TABLE parent (id uuid PRIMARY KEY, body text, a text);
		CREATE TABLE child () INHERITS (parent);
		SELECT llm_enrich_create('parted', '"Other place"."llm_key"', 't', expr => $$key || i$$, filter => $$key <> 'none'$$), llm_enrich_create('family', 'parent', 'a', prompt => '{body}');
		INSERT INTO "Other place"."llm_key" SELECT $$k"\' $$ || i, i * 1.5, now(), 'c' || i, 'big', 'e' || i, i / 3.0, CASE WHEN i = 7 THEN 'none' ELSE 'key ' END FROM generate_series(0, 12) i;
		INSERT INTO parent SELECT '00000000-0000-0000-0000-000000000001', 'parent';
		INSERT INTO child SELECT ('00000000-0000-0000-0000-00000000000' || i)::uuid, 'child ' || i FROM generate_series(1, 3) i});
	soon(q{SELECT count(t) = 12 AND bool_and(t = key || i) FROM "Other place"."llm_key"}, 'partitions, a key of many types, a filter');
	$node->safe_psql('postgres', q{UPDATE "Other place"."llm_key" SET i = 19 - i, key = 'moved '; UPDATE parent SET body = 'new ' || body});
	soon(q{SELECT count(t) = 13 AND bool_and(t = key || i) FROM "Other place"."llm_key"}, 'rows that have moved');
	soon(q{SELECT count(*) = 4 AND bool_and(a = body) FROM parent}, 'children, some with the same key');
	soon('SELECT count(*) = 0 AND (SELECT count(*) FROM llm.failed_rows) = 0 FROM llm.enrich_queue', 'nothing is left');
	# somebody has a partition for long
	my $s = $node->background_psql('postgres');
	$s->query_safe('BEGIN; LOCK TABLE "Other place".p1');
	$node->safe_psql('postgres', q{UPDATE "Other place".p2 SET key = 'late '});
	soon(q{SELECT reason LIKE '%lock timeout%' FROM llm.job_workers WHERE enrichment = 'parted'}, 'is not waited for, which is shown');
	$s->query_safe('COMMIT');
	$s->quit;
	soon(q{SELECT bool_and(t = key || i) FROM "Other place".p2}, 'then it goes on');
	$node->safe_psql('postgres', q{DROP TABLE "Other place"."llm_key", parent CASCADE});
}

# ---- pauses ----

{
	$node->safe_psql('postgres', q{SELECT llm_enrich_pause('e'); UPDATE docs SET body = 'paused' WHERE id < 10});
	sleep 1;
	is(one(q{SELECT count(*) FROM docs WHERE a = 'paused'}), '0', 'paused: nothing is done');
	$node->safe_psql('postgres', q{SELECT llm_enrich_resume('e')});
	soon(q{SELECT count(*) = 9 FROM docs WHERE a = 'paused'}, 'resumed: what was queued is done');
}
{
	$node->safe_psql('postgres', q{ALTER TABLE docs RENAME TO papers; UPDATE papers SET body = 'renamed' WHERE id < 10});
	soon(q{SELECT count(*) = 9 FROM papers WHERE a = 'renamed'}, 'a table that is renamed is the same');
	$node->safe_psql('postgres', q{DROP TRIGGER note ON papers; SELECT llm_enrich_pause('e'); UPDATE papers SET body = 'key' WHERE id < 10; ALTER TABLE papers RENAME id TO "the key"; SELECT llm_enrich_resume('e')});
	soon(q{SELECT count(*) = 9 FROM papers WHERE a = 'key'}, 'a key that is renamed is that of what was queued before');
	$node->safe_psql('postgres', q{ALTER TABLE papers RENAME "the key" TO id; ALTER TABLE papers RENAME TO docs; UPDATE docs SET body = '@slow=10 @tokens=30 ' || id; ALTER TABLE docs RENAME body TO words});
	soon(q{SELECT state = 'paused' FROM llm.enrichments}, 'a column that is renamed pauses');
	like(state('e'), qr/^paused: template names "body", which is no column of table "docs"/, 'with a reason');
	my $size = -s $node->logfile;
	sleep 2;
	is(llm_log_since($node, $size), '', 'and not again and again');
	$node->safe_psql('postgres', q{ALTER TABLE docs RENAME words TO body; UPDATE docs SET body = 'again' WHERE id > 10; SELECT llm_enrich_resume('e')});
	soon(q{SELECT count(*) > 1400 FROM docs WHERE a = 'again'}, 'resumed');
	$node->safe_psql('postgres', q{ALTER TABLE docs DROP a; UPDATE docs SET body = 'dropped' WHERE id = 1});
	soon(q{SELECT state = 'paused' FROM llm.enrichments}, 'a target that is dropped pauses');
	like(state('e'), qr/^paused: column "a" of table "docs" does not exist/, 'with a reason');
	$node->safe_psql('postgres', q{ALTER TABLE docs ADD a text; SELECT llm_enrich_resume('e', backfill => true)});
	soon(q{SELECT count(a) = count(*) FROM docs}, 'a new one is filled');
	$node->safe_psql('postgres', q{DROP TABLE docs; SELECT llm_job_submit('x')});
	soon(q{SELECT count(*) = 0 FROM llm.enrichment_defs}, 'what is for a table that is dropped is removed');
}

{
	# an entry of a new row, or of one whose value was taken away, is over when the row has a value
	$node->safe_psql('postgres', q{
		CREATE TABLE hand (id int PRIMARY KEY, body text, a text);
		INSERT INTO hand VALUES (1, 'one', 'old'), (2, 'two', 'old'), (3, 'three', NULL);
		SELECT llm_enrich_create('hand', 'hand', 'a', prompt => '{body}', backfill => false), llm_enrich_pause('hand');
		INSERT INTO hand SELECT i, 'new ' || i FROM generate_series(4, 8) i;
		UPDATE hand SET a = NULL WHERE id = 1; UPDATE hand SET body = 'changed' WHERE id IN (2, 5);
		UPDATE hand SET a = 'mine' WHERE id IN (1, 2, 4, 5);
		CALL llm_enrich('hand', 'a', prompt => 'called {body}', filter => 'id IN (6, 7)');
		SELECT llm_enrich_resume('hand')});
	soon(q{SELECT pending = 0 AND a = 'new 8' FROM llm.enrichments, hand WHERE name = 'hand' AND id = 8}, 'all is done');
	is(one(q{SELECT string_agg(concat_ws(' ', id, a), ', ' ORDER BY id) FROM hand}), '1 mine, 2 changed, 3, 4 mine, 5 changed, 6 called new 6, 7 called new 7, 8 new 8',
		'a value by hand or by a call stays, unless a source has changed');
	# a pause of the worker's does not make a backfill of it
	$node->safe_psql('postgres', q{ALTER TABLE hand RENAME body TO words; INSERT INTO hand VALUES (9, 'nine')});
	soon(q{SELECT state = 'paused' FROM llm.enrichments WHERE name = 'hand'}, 'paused by the worker');
	$node->safe_psql('postgres', q{ALTER TABLE hand RENAME words TO body; SELECT llm_enrich_resume('hand')});
	soon(q{SELECT a = 'nine' FROM hand WHERE id = 9}, 'what was queued meanwhile is done');
	# rows whose keys nobody knows: the table has none, then another one
	$node->safe_psql('postgres', q{ALTER TABLE hand DROP CONSTRAINT hand_pkey; INSERT INTO hand VALUES (10, 'ten')});
	soon(q{SELECT state = 'paused' AND reason LIKE '%no primary key%' FROM llm.enrichments WHERE name = 'hand'}, 'no key');
	$node->safe_psql('postgres', q{ALTER TABLE hand ADD PRIMARY KEY (id); SELECT llm_enrich_resume('hand')});
	soon(q{SELECT state = 'paused' AND reason LIKE 'rows were written while their table had no primary key%' FROM llm.enrichments WHERE name = 'hand'}, 'then there are rows that were not queued');
	$node->safe_psql('postgres', q{SELECT llm_enrich_resume('hand'); INSERT INTO hand VALUES (11, 'eleven')});
	soon(q{SELECT a = 'eleven' FROM hand WHERE id = 11}, 'which is said once');
	is(one(q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM hand WHERE a IS NULL}), '3 10', 'and decided by nobody but the owner');
	$node->safe_psql('postgres', q{SELECT llm_enrich_pause('hand'); INSERT INTO hand VALUES (12, 'twelve'); ALTER TABLE hand DROP CONSTRAINT hand_pkey; ALTER TABLE hand ADD PRIMARY KEY (body, id);
		SELECT llm_enrich_resume('hand')});
	soon(q{SELECT state = 'paused' AND reason LIKE '%or another one%' FROM llm.enrichments WHERE name = 'hand'}, 'keys of another key');
	$node->safe_psql('postgres', q{UPDATE hand SET a = NULL; SELECT llm_enrich_resume('hand', backfill => true)});
	soon(q{SELECT count(*) FILTER (WHERE a = body) = 12 FROM hand}, 'a backfill finds them');
	soon(q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments WHERE name = 'hand'}, 'and ends');
	$node->safe_psql('postgres', q{SELECT llm_enrich_drop('hand')});
}

{
	# a row that moves while it is looked for, and rows that the owner sees but may not change
	$node->safe_psql('postgres', q{
		CREATE TABLE naps (s float); INSERT INTO naps VALUES (0); GRANT SELECT ON naps TO PUBLIC; CREATE ROLE sleeper LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO sleeper;
		CREATE TABLE policed (id int PRIMARY KEY, body text, other int, a text); ALTER TABLE policed ENABLE ROW LEVEL SECURITY; GRANT SELECT, UPDATE, TRIGGER ON policed TO sleeper;
		CREATE FUNCTION nap() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(s) FROM naps; RETURN true; END';
		CREATE POLICY seen ON policed FOR SELECT USING (nap()); CREATE POLICY changed ON policed FOR UPDATE USING (id < 5);
		GRANT CREATE ON SCHEMA public TO sleeper; SET ROLE sleeper; SELECT llm_enrich_create('policed', 'policed', 'a', prompt => '{body}', backfill => false); RESET ROLE;
		UPDATE naps SET s = 1; INSERT INTO policed VALUES (1, 'one')});
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llm_infer enrichment' AND wait_event = 'PgSleep'}) eq '1' }), 'a row is looked for');
	$node->safe_psql('postgres', 'UPDATE policed SET other = 1; UPDATE naps SET s = 0');
	soon('SELECT a = body FROM policed', 'it has moved meanwhile, and is done');
	$node->safe_psql('postgres', q{INSERT INTO policed SELECT i, i FROM generate_series(2, 9) i; UPDATE llm.enrichment_defs SET backfill = true WHERE name = 'policed'});
	soon('SELECT count(a) = 4 FROM policed', 'rows that may be changed are done');
	my $scans = sub { return one(q{SELECT pg_stat_clear_snapshot(), seq_scan FROM pg_stat_user_tables WHERE relname = 'policed'}) =~ s/.*\|//r };
	sleep 4;
	my $before = $scans->();
	sleep 4;
	cmp_ok($scans->() - $before, '<=', 3, 'others are looked for less and less often');
	$node->safe_psql('postgres', q{SELECT llm_enrich_drop('policed'); DROP TABLE policed});
}

# ---- failures ----

{
	$node->safe_psql('postgres', q{
		CREATE TABLE rough (id int PRIMARY KEY, body text, n int CONSTRAINT few CHECK (n <> 3));
		INSERT INTO rough VALUES (1, '1'), (2, 'two'), (3, '3'), (4, '@error=boo');
		SELECT llm_enrich_create('rough', 'rough', 'n', prompt => '{body}')});
	soon(q{SELECT count(*) = 3 FROM llm.failed_rows}, 'rows that fail');
	$node->safe_psql('postgres', q{INSERT INTO rough SELECT i, i::text FROM generate_series(10, 20) i});
	soon(q{SELECT count(n) = 12 FROM rough}, 'hold nobody up');
	soon(q{SELECT min(attempts) = 3 FROM llm.failed_rows}, 'and are tried three times');
	is(one(q{SELECT string_agg(key::text || ' ' || sqlstate, ', ' ORDER BY key), (SELECT count(*) FROM llm.enrich_queue) FROM llm.failed_rows}), '{"id": 2} 22P02, {"id": 3} 23514, {"id": 4} XX000|0', 'no more');
	$node->safe_psql('postgres', q{UPDATE rough SET body = '22' WHERE id = 2});
	soon(q{SELECT n = 22 FROM rough WHERE id = 2}, 'a row that has changed is tried afresh');
	is(one(q{ALTER TABLE rough DROP CONSTRAINT few; SELECT llm_enrich_retry_failed('rough')}), '2', 'its failure is forgotten, the others are tried again');
	soon(q{SELECT n = 3 FROM rough WHERE id = 3}, 'when their cause is gone');
	soon(q{SELECT count(*) = 1 AND min(attempts) = 3 FROM llm.failed_rows}, 'and one fails again');
}

{
	# SQL that raises an error: for a row of the backfill, a new one, one that is changed; then for every row
	$node->safe_psql('postgres', q{
		CREATE TABLE odd (id int PRIMARY KEY, n text, a text);
		INSERT INTO odd SELECT i, CASE i WHEN 3 THEN 'x' ELSE i::text END FROM generate_series(1, 200) i;
		SELECT llm_enrich_create('odd', 'odd', 'a', expr => $$100 / n::int || ' for ' || n$$, filter => 'n::int < 1000', model => 'echo')});
	soon(q{SELECT count(a) = 199 FROM odd}, 'SQL that fails for a row does not hold up others');
	$node->safe_psql('postgres', q{INSERT INTO odd SELECT i, CASE i WHEN 210 THEN '0' WHEN 211 THEN '2000' ELSE i::text END FROM generate_series(201, 220) i; UPDATE odd SET n = CASE id WHEN 11 THEN 'y' ELSE '5' END WHERE id IN (10, 11, 12)});
	soon(q{SELECT count(a) = 217 AND count(*) FILTER (WHERE a = '20 for 5') = 3 FROM odd}, 'nor for new and changed rows');
	soon(q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments WHERE name = 'odd'}, 'it is tried three times');
	is(one(q{SELECT string_agg(concat_ws(' ', key, sqlstate, attempts), ', ' ORDER BY key) FROM llm.failed_rows WHERE relation = 'odd'::regclass}), '{"id": 3} 22P02 3, {"id": 11} 22P02 3, {"id": 210} 22012 3', 'and is the failure of its row');
	is(one('SELECT a FROM odd WHERE id = 11'), '9 for 11', 'which keeps its value');
	$node->safe_psql('postgres', q{UPDATE odd SET n = '4' WHERE id IN (3, 11)});
	soon(q{SELECT count(*) FILTER (WHERE a = '25 for 4') = 3 FROM odd}, 'until it has changed');
	$node->safe_psql('postgres', q{CREATE FUNCTION broken(int) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN no_such_function($1); END'; SELECT llm_enrich_alter('odd', expr => 'broken(id)', backfill => false); UPDATE odd SET id = id WHERE id = 1; UPDATE odd SET id = 1001 WHERE id = 1});
	soon(q{SELECT state = 'paused' AND reason LIKE 'function no_such_function(integer) does not exist%' FROM llm.enrichments WHERE name = 'odd'}, 'what is wrong for every row pauses');
	$node->safe_psql('postgres', q{SELECT llm_enrich_drop('odd')});
}

# ---- beside one another ----

{
	$node->safe_psql('postgres', q{
		SELECT llm_model_register('dead', 'there_is_no_such_file.gguf');
		CREATE TABLE chain (id int PRIMARY KEY, body text, a text, b text, c text);
		INSERT INTO chain SELECT i, 'x' || i FROM generate_series(1, 200) i;
		SELECT llm_enrich_create('a', 'chain', 'a', prompt => '{body}', model => 'echo'), llm_enrich_create('b', 'chain', 'b', prompt => '{a}', model => 'echo'),
			llm_enrich_create('c', 'chain', 'c', prompt => '{b}', model => 'dead')});
	soon(q{SELECT count(*) = 200 FROM chain WHERE b = a AND a = body}, 'one after the other, beside one whose model is dead');
	soon(q{SELECT reason LIKE '%there_is_no_such_file%' FROM llm.job_workers WHERE enrichment = 'c' AND state = 'paused'}, 'whose reason is shown');
	is(one(q{SELECT count(*) FROM llm.failed_rows WHERE target = 'c'}), '0', 'which is no fault of its rows');
	$node->safe_psql('postgres', q{UPDATE chain SET body = 'y' || id WHERE id % 2 = 0});
	soon(q{SELECT count(*) = 200 FROM chain WHERE b = a AND a = body}, 'changes go through both');
	$node->safe_psql('postgres', q{SELECT llm_enrich_drop('c')});
}
{
	$node->safe_psql('postgres', q{CREATE ROLE owner; GRANT USAGE ON FOREIGN SERVER echo TO owner; GRANT CREATE ON SCHEMA public TO owner;
		SET ROLE owner; CREATE TABLE owned (id int PRIMARY KEY, body text, a text); INSERT INTO owned VALUES (1, 'one');
		SELECT llm_enrich_create('owned', 'owned', 'a', prompt => '{body}', model => 'echo')});
	soon(q{SELECT reason = 'role "owner" may not log in' FROM llm.job_workers WHERE enrichment = 'owned' AND state = 'paused'}, 'an owner who may not log in');
	$node->safe_psql('postgres', q{ALTER ROLE owner LOGIN});
	soon(q{SELECT a = 'one' FROM owned}, 'and may again');
	$node->safe_psql('postgres', q{REVOKE USAGE ON FOREIGN SERVER echo FROM owner; UPDATE owned SET body = 'two'});
	soon(q{SELECT state = 'paused' AND reason LIKE 'permission denied for %echo%' FROM llm.enrichments WHERE name = 'owned'}, 'a right that was lost pauses');
	$node->safe_psql('postgres', q{GRANT USAGE ON FOREIGN SERVER echo TO owner; SELECT llm_enrich_resume('owned')});
	soon(q{SELECT a = 'two' FROM owned}, 'until it is there again');
}

# ---- DDL ----

{
	my $begin = time();
	$node->safe_psql('postgres', q{CREATE TABLE busy (id int PRIMARY KEY, body text, a text); INSERT INTO busy SELECT i, '@slow=20 @tokens=200 x' FROM generate_series(1, 5000) i;
		SELECT llm_enrich_create('busy', 'busy', 'a', prompt => '{body}', model => 'echo')});
	llm_wait_for(sub { one(q{SELECT count(*) > 0 FROM llm.stat_progress_enrich WHERE enrichment = 'busy' AND phase = 'generating'}) eq 't' });
	is(one(q{SELECT string_agg(DISTINCT l.locktype, ' '), bool_or(backend_xmin IS NOT NULL) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
		WHERE backend_type = 'llm_infer enrichment' AND state = 'idle' AND locktype <> 'virtualxid'}), 'advisory|f',
		'while the engine works nothing is held');
	foreach my $ddl ('ALTER TABLE busy ADD more int', 'VACUUM FULL busy', 'CREATE INDEX ON busy (more)', 'TRUNCATE busy', 'DROP TABLE busy', 'DROP EXTENSION llm_infer CASCADE')
	{
		$begin = time();
		$node->safe_psql('postgres', $ddl);
		cmp_ok(time() - $begin, '<', 3, "$ddl waits for one short transaction at most");
	}
	ok(idle(), 'nobody is left');
	llm_extension($node);
	llm_is_well($node, 'DDL');
}

$node->stop;
done_testing();
