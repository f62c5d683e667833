# llm_enrich and jobs beside a full disk, limits, locks and DDL: what was committed stays, the call says what is wrong, and the next
# one goes on; never a wrong row. The disk is full by a library that is preloaded into the server.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $node = llm_cluster('faults', start => 0, fault => 'slow_step=2', conf => "work_mem = '64kB'");
my ($library, $flag) = ($node->basedir . '/disk_full.so', $node->basedir . '/full');
my $shim = system('cc', '-shared', '-fPIC', '-O1', '-o', $library, "$ENV{LLM_TEST_DIR}/t/disk_full.c", '-ldl') == 0;
{
	local @ENV{qw(LD_PRELOAD LLM_DISK_FULL)} = $shim ? ($library, $flag) : ();
	$node->start;
}
llm_extension($node);

my $rows = 100;
my $what = q{'docs', 'a', prompt => '{body}', batch_size => 20, concurrency => 20};
my $call = "CALL llm_enrich($what)";

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

# A trigger counts the writes that were committed.
$node->safe_psql('postgres', q{
	CREATE TABLE docs (id int PRIMARY KEY, body text, a text, other text);
	CREATE TABLE writes (id int);
	CREATE SCHEMA other;
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO writes VALUES (NEW.id); RETURN NULL; END';
	CREATE TRIGGER note AFTER UPDATE OF a ON docs FOR EACH ROW WHEN (NEW.a IS NOT NULL) EXECUTE FUNCTION note()});

sub fresh
{
	my $width = shift // 0;
	$node->safe_psql('postgres', qq{TRUNCATE docs, writes; INSERT INTO docs SELECT i, 'row ' || i, NULL, nullif(repeat('x', $width), '') FROM generate_series(1, $rows) i});
	return;
}

sub some_done { return llm_wait_for(sub { one('SELECT count(*) > 20 FROM docs WHERE a IS NOT NULL') eq 't' }); }

# A standing enrichment has nothing left to do.
sub standing_done { return llm_wait_for(sub { one(q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments}) eq 't' }) || diag one('TABLE llm.enrichments; TABLE llm.job_workers'); }

# The call has ended with an error that matches; the next does what is left.
sub goes_on
{
	my ($s, $error, $name) = @_;
	my ($out, $err) = llm_session_end($s);
	like($err, $error, "$name: the call ends with the reason");
	is(one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'its leases are gone');
	ok(llm_wait_for(sub { one(q{SELECT coalesce(sum(in_flight), 0) FROM llm.stat_users}) eq '0' }, 2), 'and its requests');
	my $done = one('SELECT count(a) FROM docs');
	cmp_ok($done, '<', $rows, 'in the middle');
	unlink $flag;
	$node->psql('postgres', $call, stdout => \$out, stderr => \$err);
	like($err, qr/wrote @{[ $rows - $done ]} rows of "docs", 0 failed/, 'the next call does the others');
	is(one(q{SELECT count(*) FILTER (WHERE a = body), (SELECT count(*) FROM writes), (SELECT count(DISTINCT id) FROM writes), (SELECT count(*) FROM llm.failed_rows) FROM docs}),
		"$rows|$rows|$rows|0", 'each row was written once');
	llm_is_well($node, $name);
	return;
}

# ---- disk ----

SKIP:
{
	skip 'no C compiler for the library that fills the disk', 1 unless $shim;

	fresh(900); # the table grows with each batch
	one("CALL llm_enrich($what, max_rows => 30)");
	append_to_file($flag, one(q{SELECT pg_relation_filepath('docs')}));
	goes_on(llm_session($node, $call), qr/ERROR:  53100: could not extend file/, 'a full disk');

	fresh(900);
	one("CALL llm_enrich($what, max_rows => 30)");
	append_to_file($flag, one(q{SELECT pg_relation_filepath('docs')}));
	one("SELECT llm_enrich_create('standing', $what)");
	ok(llm_wait_for(sub { one(q{SELECT reason FROM llm.job_workers WHERE state = 'paused'}) =~ /No space left/ }), 'a full disk under a standing enrichment: its worker pauses');
	unlink $flag;
	standing_done();
	is(one(q{SELECT count(*) FILTER (WHERE a = body), (SELECT count(*) FROM writes), (SELECT count(DISTINCT id) FROM writes) FROM docs; SELECT llm_enrich_drop('standing')}),
		"$rows|$rows|$rows\n", 'it goes on when there is room');

	# with their answers rows of jobs get too long for their pages
	my $prompt = q{(SELECT string_agg(md5(concat(i, ' ', k)), '') FROM generate_series(1, 56) k)};
	my $first = one("SELECT min(j) FROM llm_job_submit(array(SELECT $prompt FROM generate_series(1, 40) i), max_tokens => 200) j");
	append_to_file($flag, one(q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'llm.job_queue'::regclass}));
	ok(llm_wait_for(sub { one(q{SELECT reason FROM llm.job_workers WHERE state = 'paused' AND owner IS NOT NULL}) =~ /No space left/ }), 'a full disk under the queue of jobs: workers pause')
	  or diag(one('TABLE llm.job_workers'));
	unlink $flag;
	ok(llm_wait_for(sub { one("SELECT count(*) FROM llm.jobs WHERE id >= $first AND finished IS NULL") eq '0' }, 30), 'jobs end when there is room');
	is(one(qq{SELECT count(*) FILTER (WHERE (llm_job_result(id)).text = left($prompt, 200)), max(attempts) FROM (SELECT *, id - $first + 1 AS i FROM llm.jobs WHERE id >= $first) j}), '40|1',
		'with their answers, and are none the worse for it');
}
# Temporary files: in the middle of a write, where rows wait for a trigger that sorts.
{
	$node->safe_psql('postgres', q{
		CREATE FUNCTION sort() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM (SELECT FROM generate_series(1, 3000) i ORDER BY i DESC) s; RETURN NEW; END';
		CREATE TRIGGER sort BEFORE UPDATE ON docs FOR EACH ROW WHEN (NEW.id = 70) EXECUTE FUNCTION sort()});
	fresh();
	goes_on(llm_session($node, "SET temp_file_limit = '10kB'; $call"), qr/ERROR:  53400: temporary file size exceeds temp_file_limit/, 'temp_file_limit');
	fresh();
	append_to_file($flag, 'pgsql_tmp') if $shim;
	goes_on(llm_session($node, $call), qr/ERROR:  53100: could not write to file/, 'a full temporary tablespace') if $shim;
	# or before any row
	append_to_file($flag, 'pgsql_tmp') if $shim;
	like(llm_error($node, q{CALL llm_enrich('docs', 'other', prompt => '{body}', filter => 'id > (SELECT min(i) FROM (SELECT i FROM generate_series(0, 9000) i ORDER BY i DESC OFFSET 0) s)')}),
		qr/ERROR:  53100: could not write to file/, 'a filter that sorts') if $shim;
	unlink $flag;
	$node->safe_psql('postgres', 'DROP TRIGGER sort ON docs');
}

# ---- time and locks ----

# While the gate is shut the last row is put off again and again, and nothing that works on it comes to its end.
my $gate = $node->background_psql('postgres');
my $gated = q{CREATE TRIGGER gate BEFORE UPDATE ON docs FOR EACH ROW WHEN (NEW.id = 100 AND OLD.id = 100) EXECUTE FUNCTION gate()};
$node->safe_psql('postgres', q{CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN NEW; END'});
sub shut { $gate->query_safe('SELECT pg_advisory_lock(77)'); return; }
sub open_gate { $gate->query_safe('SELECT pg_advisory_unlock(77)'); return; }

# Whoever waits for the engine is not idle.
fresh();
$node->safe_psql('postgres', "SET idle_in_transaction_session_timeout = 30; SET idle_session_timeout = 30; $call");
is(one('SELECT count(*) FROM docs WHERE a = body'), $rows, 'idle timeouts do not concern a call');

# A lock that a foreign key waits for holds up its rows alone, with lock_timeout.
{
	fresh();
	$node->safe_psql('postgres', q{CREATE TABLE parents (word text PRIMARY KEY); INSERT INTO parents SELECT body FROM docs;
		ALTER TABLE docs ADD CONSTRAINT parent FOREIGN KEY (a) REFERENCES parents});
	my $locker = $node->background_psql('postgres');
	$locker->query_safe(q{BEGIN; SELECT FROM parents WHERE word = (SELECT body FROM docs WHERE id = 5) FOR UPDATE});
	my $s = llm_session($node, "SET lock_timeout = 30; $call");
	ok(llm_wait_for(sub { one('SELECT count(*) FROM docs WHERE a IS NULL') eq '1' }), 'lock_timeout in a foreign key: all other rows are written');
	$locker->query_safe('COMMIT');
	my ($out, $err) = llm_session_end($s);
	like($err, qr/wrote $rows rows of "docs", 0 failed, 0 changed/, 'then this one');
	# of the table itself
	fresh();
	$node->safe_psql('postgres', $gated);
	shut();
	$s = llm_session($node, "SET lock_timeout = 30; $call");
	some_done();
	$locker->query_safe('BEGIN; LOCK TABLE docs IN SHARE MODE');
	llm_wait_for(sub { llm_gone($s->{pid}) });
	$locker->query_safe('COMMIT');
	open_gate();
	$locker->quit;
	goes_on($s, qr/ERROR:  55P03: canceling statement due to lock timeout/, 'lock_timeout for the table');
	$node->safe_psql('postgres', 'ALTER TABLE docs DROP CONSTRAINT parent; DROP TABLE parents; DROP TRIGGER gate ON docs');
}

# What looks like a deadlock each time is the row's failure at last.
{
	$node->safe_psql('postgres', q{CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE serialization_failure; END$$;
		CREATE TRIGGER refuse BEFORE UPDATE ON docs FOR EACH ROW WHEN (NEW.id = 7) EXECUTE FUNCTION refuse()});
	fresh();
	my ($out, $err) = llm_session_end(llm_session($node, $call));
	like($err, qr/wrote @{[ $rows - 1 ]} rows of "docs", 1 failed/, 'a row whose write never comes to its end: the call does');
	is(one('SELECT key, sqlstate, attempts FROM llm.failed_rows'), '{"id": 7}|40001|1', 'and keeps the reason');
	$node->safe_psql('postgres', 'DROP TRIGGER refuse ON docs; DROP TRIGGER note ON docs; DELETE FROM llm.enrich_failures');
}

# ---- the table changes while rows are in work ----

foreach my $ddl (
	'ALTER TABLE docs ALTER a TYPE varchar(20)',
	'ALTER TABLE docs DROP a; ALTER TABLE docs ADD a text',
	'ALTER TABLE docs RENAME a TO b; ALTER TABLE docs RENAME other TO a; ALTER TABLE docs RENAME b TO other',
	'ALTER TABLE docs RENAME body TO b; ALTER TABLE docs RENAME other TO body; ALTER TABLE docs RENAME b TO other')
{
	fresh();
	$node->safe_psql('postgres', $gated);
	shut();
	my $s = llm_session($node, $call);
	some_done();
	$node->safe_psql('postgres', "BEGIN; $ddl; CREATE TABLE before AS SELECT id, a, body, other FROM docs; COMMIT");
	my ($out, $err) = llm_session_end($s);
	open_gate();
	like($err, qr/ERROR:  55000: table "docs" or one of its columns was renamed, dropped or given another type.*HINT:  Call llm_enrich again/s, "$ddl: says so");
	is(one('SELECT count(*) FROM docs, before WHERE docs.id = before.id AND (docs.a, docs.body, docs.other) IS DISTINCT FROM (before.a, before.body, before.other)'),
		'0', 'and no row is written after that');
	$node->safe_psql('postgres', q{DROP TABLE before, docs; CREATE TABLE docs (id int PRIMARY KEY, body text, a text, other text)});
}

$node->safe_psql('postgres', $gated);
foreach my $change (
	[ "TRUNCATE docs; INSERT INTO docs SELECT i, 'new ' || i FROM generate_series(1, $rows) i", $rows ],
	[ 'ALTER TABLE docs ALTER a TYPE varchar(20), ALTER other TYPE varchar(9)', $rows, 1 ],
	[ 'DELETE FROM docs WHERE id % 2 = 0', $rows / 2 ],
	[ 'UPDATE docs SET id = id + 1000 WHERE a IS NULL', $rows, 1 ],
	[ 'ALTER TABLE docs ADD new int DEFAULT 1, ALTER other TYPE varchar', $rows, 0 ],
	[ 'VACUUM FULL docs', $rows, 1 ],
	[ 'ALTER TABLE docs SET SCHEMA other; ALTER TABLE other.docs RENAME TO papers; ALTER TABLE other.papers RENAME TO docs; ALTER TABLE other.docs SET SCHEMA public', $rows, 1 ])
{
	my ($sql, $n, $standing) = @$change;
	foreach $standing (defined $standing ? $standing : (0, 1))
	{
		fresh();
		shut();
		one("SELECT llm_enrich_create('standing', $what)") if $standing;
		my $s = $standing || llm_session($node, $call);
		some_done();
		$node->safe_psql('postgres', $sql);
		open_gate();
		$standing ? standing_done() : llm_session_end($s);
		one($standing ? q{SELECT llm_enrich_drop('standing')} : $call);
		is(one('SELECT count(*), count(*) FILTER (WHERE a = body) FROM docs'), "$n|$n", ($standing ? 'standing, ' : '') . "$sql: every row has its own answer");
	}
}
is(one('SELECT count(*) FROM llm.failed_rows'), '0', 'no row has failed');
llm_is_well($node, 'changes of the table');

$gate->quit;
$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
