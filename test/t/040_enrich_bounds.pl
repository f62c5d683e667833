# llm_enrich and its bounds: memory with large rows, callers on a partition and its parent, hundreds of partitions; and what
# llm.stat_progress_enrich shows of it, and to whom.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('bounds', conf => "shared_buffers = '16MB'\nmax_locks_per_transaction = 256");

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

sub sql { return $node->safe_psql('postgres', $_[0]); }

# ---- what is in work has 64 MB, whatever was asked for ----

{
	sql(q{CREATE TABLE large (id int PRIMARY KEY, body text, a text);
		ALTER TABLE large ALTER body SET STORAGE external;
		INSERT INTO large SELECT i, i || repeat('x', 1000000) FROM generate_series(1, 200) i});
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe(q{SET client_min_messages = warning;
		CALL llm_enrich('large', 'a', prompt => '{body}', max_tokens => 3, concurrency => 1000, batch_size => 1000, options => '{"truncate": "left"}')});
	my ($peak) = slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m;
	is(one('SELECT count(a) FROM large'), 200, 'rows of 1 MB are done');
	cmp_ok($peak, '<', 180000, "in bounded memory ($peak kB)");
	$session->quit;
	sql('DROP TABLE large');
}

# ---- rows that are not to be done have none, beside one whose SQL fails ----

{
	sql(q{CREATE TABLE sifted (id int PRIMARY KEY, n text, a text); INSERT INTO sifted SELECT i, CASE i WHEN 299990 THEN 'x' WHEN 299999 THEN '1' ELSE '0' END FROM generate_series(1, 300000) i});
	my $session = $node->background_psql('postgres');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	my $peak = sub { return slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+) kB/m ? $1 : die };
	my $call = q{SET client_min_messages = warning; CALL llm_enrich('sifted', 'a', expr => 'n', filter => '%s')};
	$session->query_safe(sprintf $call, 'id + 0 = 299999');
	my $few = $peak->();
	sql('UPDATE sifted SET a = NULL');
	$session->query_safe(sprintf $call, 'n::int > 0');
	is(one('SELECT a FROM sifted WHERE id = 299999'), 1, 'the row is found');
	cmp_ok($peak->() - $few, '<', 6000, 'rows that are only looked at take no memory') or diag($few, ' ', $peak->());
	$session->quit;
	sql('DROP TABLE sifted');
}

# ---- a partition that has its columns elsewhere, alone and through its parent ----

{
	sql(q{CREATE TABLE parent (id int PRIMARY KEY, body text, a text) PARTITION BY RANGE (id);
		CREATE TABLE part (gone int, a text, more int, body text, id int NOT NULL);
		ALTER TABLE part DROP gone, DROP more;
		ALTER TABLE parent ATTACH PARTITION part FOR VALUES FROM (0) TO (1000);
		INSERT INTO parent SELECT i, 'row ' || i FROM generate_series(1, 400) i});
	my $before = one('SELECT requests FROM llm.stat_engine');
	my @s = map { llm_session($node, "CALL llm_enrich('$_', 'a', prompt => '\@slow=5 {body}', concurrency => 50, batch_size => 10)") } qw(parent part parent);
	llm_session_end($_) foreach @s;
	is(one(q{SELECT count(*) FROM parent WHERE a = body}), 400, 'callers on both: every row has its answer');
	is(one('SELECT requests FROM llm.stat_engine') - $before, 400, 'and was asked about once');
	is(one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), 0, 'no lease is left');
}

# ---- hundreds of partitions, in two levels, some by list or hash: a row's own is looked at ----

{
	sql(q{CREATE TABLE many (id int, kind text, body text, a text, PRIMARY KEY (id, kind)) PARTITION BY RANGE (id);
		CREATE TABLE listed PARTITION OF many FOR VALUES FROM (2000) TO (3000) PARTITION BY LIST (kind);
		CREATE TABLE listed_a PARTITION OF listed FOR VALUES IN ('a', E'b''"');
		CREATE TABLE listed_rest PARTITION OF listed DEFAULT;
		CREATE TABLE hashed PARTITION OF many FOR VALUES FROM (3000) TO (4000) PARTITION BY HASH (kind, id);
		DO $$BEGIN FOR i IN 0..29 LOOP EXECUTE format('CREATE TABLE hashed%s PARTITION OF hashed FOR VALUES WITH (modulus 30, remainder %s)', i, i); END LOOP; END$$;
		DO $$BEGIN FOR i IN 0..199 LOOP EXECUTE format('CREATE TABLE m%s PARTITION OF many FOR VALUES FROM (%s) TO (%s)', i, i * 10, i * 10 + 10); END LOOP; END$$;
		INSERT INTO many SELECT i, 'k', 'row ' || i FROM generate_series(0, 1999) i;
		INSERT INTO many SELECT i, k, 'row ' || i || k FROM generate_series(2000, 2009) i, unnest(ARRAY['a', E'b''"', 'c']) k;
		INSERT INTO many SELECT i, k, 'row ' || i || k FROM generate_series(3000, 3099) i, unnest(ARRAY['a', E'b''"', '']) k;
		CREATE ROLE reader LOGIN; CREATE ROLE keeper LOGIN; GRANT pg_read_all_stats TO keeper;
		GRANT USAGE ON FOREIGN SERVER echo TO reader; GRANT SELECT, UPDATE ON many TO reader; ALTER TABLE many ENABLE ROW LEVEL SECURITY;
		CREATE POLICY seen ON many USING (id <> 7)});
	my $read = q{SELECT sum(heap_blks_read + heap_blks_hit) FROM pg_statio_user_tables WHERE relname ~ '^(m[0-9]|listed|hashed)'};
	my $before = one($read);
	my ($out, $err) = llm_session_end(llm_session($node, q{CALL llm_enrich('many', 'a', prompt => '{body}')}, user => 'reader'));
	like($err, qr/wrote 2329 rows of "many", 0 failed, 0 changed/, 'rights and policies are those of the table that was named');
	is(one(q{SELECT count(*) FILTER (WHERE a = body), max(id) FILTER (WHERE a IS NULL) FROM many}), '2329|7', 'every row has its answer');
	my $looks = (llm_wait_for(sub { my $n = one($read); $n > $before + 2329 ? $n : 0 }) - $before) / 2329;
	cmp_ok($looks, '<', 20, "a row costs $looks looks at blocks");
}

# ---- progress ----

{
	my $view = q{SELECT relation, target, coalesce(enrichment, '-'), role, datname, phase IN ('listing', 'claiming', 'generating', 'writing', 'waiting'), done > 100,
		failed, total = done + failed + pending + in_flight, total, length(rows_per_s::text) <= 5, eta > '0' AND eta = date_trunc('second', eta), started < now() FROM llm.stat_progress_enrich};
	sql(q{UPDATE many SET a = NULL; ALTER TABLE many ADD CHECK (id <> 1005 OR a IS NULL); CREATE DATABASE elsewhere});
	llm_extension($node, 'elsewhere');
	my $s = llm_session($node, q{CALL llm_enrich('many', 'a', prompt => '@slow=20 {body}', filter => 'id >= 1000')}, user => 'reader', app => 'p');
	ok(llm_wait_for(sub { one('SELECT done > 100 FROM llm.stat_progress_enrich') eq 't' }), 'rows that are done are shown, also behind an error in a subtransaction');
	is(one($view), 'many|a|-|reader|postgres|t|t|1|t|1330|t|t|t', 'a monitor sees it');
	is(scalar $node->safe_psql('elsewhere', 'SELECT relation, target, role, total FROM llm.stat_progress_enrich'), '||reader|1330', 'in another database without names');
	is(one(qq{SET ROLE reader; $view}), 'many|a|-|reader|postgres|t|t|1|t|1330|t|t|t', 'its own role sees it');
	is(one(qq{SET ROLE keeper; SELECT count(*) FROM llm.stat_progress_enrich}), 1, 'pg_read_all_stats sees it');
	sql('CREATE ROLE other; REVOKE pg_read_all_stats FROM keeper');
	is(one(qq{SET ROLE keeper; SELECT count(*) FROM llm.stat_progress_enrich}), 0, 'others do not');
	one(q{SELECT pg_cancel_backend(pid) FROM llm.stat_progress_enrich});
	llm_session_end($s);
	is(one('SELECT count(*) FROM llm.stat_progress_enrich'), 0, 'it is gone after a cancel');
	sql(q{UPDATE parent SET a = NULL; SELECT llm_enrich_create('stand "ing', 'parent', 'a', prompt => '@slow=20 {body}')});
	my $standing = q{SELECT relation, target, enrichment, role FROM llm.stat_progress_enrich WHERE done > 0};
	is(llm_wait_for(sub { one($standing) }), 'parent|a|stand "ing|' . one('SELECT current_user'), 'a standing one is shown by its name');
	sql(q{SELECT llm_enrich_drop('stand "ing')});
	ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.stat_progress_enrich') eq '0' }), 'until it is dropped');
	$s = llm_session($node, q{CALL llm_enrich('many', 'a', prompt => '@slow=20 {body}', filter => 'id < 1990')}, user => 'reader');
	ok(llm_wait_for(sub { one('SELECT done > 100 FROM llm.stat_progress_enrich') eq 't' }), 'another one is shown');
	kill 'KILL', one('SELECT pid FROM llm.stat_progress_enrich');
	llm_session_end($s);
	ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.stat_progress_enrich') eq '0' }), 'it is gone after kill -9');
}

llm_is_well($node, 'after all', resets => 1);
done_testing();
