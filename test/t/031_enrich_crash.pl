# llm_enrich while servers stop, statements are cancelled, callers share the work and others write to the table: in the end
# every row has been written once, with its own answer, by whoever called again. And what a call holds while the engine works.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('enrich', fault => 'slow_step=2', conf => <<'CONF');
shared_preload_libraries = 'llm_infer, pg_cron'
cron.database_name = 'postgres'
cron.use_background_workers = on
CONF
my $rows = 600;
my $call = q{CALL llm_enrich('docs', 'a', prompt => '@slow=4 row {id}', batch_size => 32, concurrency => 64)};

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

# A trigger counts the writes that were committed.
$node->safe_psql('postgres', qq{
	CREATE EXTENSION pg_cron;
	CREATE TABLE docs (id int PRIMARY KEY, body text, a text);
	CREATE TABLE writes (id int);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO writes VALUES (NEW.id); RETURN NULL; END';
	CREATE TRIGGER note AFTER UPDATE OF a ON docs FOR EACH ROW WHEN (NEW.a IS NOT NULL) EXECUTE FUNCTION note()});

sub fresh
{
	$node->safe_psql('postgres', qq{TRUNCATE docs, writes; INSERT INTO docs SELECT i, 'row ' || i FROM generate_series(1, $rows) i});
	return;
}

# A call in a session of its own, some batches of which are committed.
sub begin_call
{
	my $s = llm_session($node, $_[0] // $call);
	ok(llm_wait_for(sub { one('SELECT count(*) > 60 FROM docs WHERE a IS NOT NULL') eq 't' }), 'batches are committed while it runs');
	return $s;
}

sub all_done
{
	my ($name) = @_;
	is(one(q{SELECT count(*) FILTER (WHERE a = 'row ' || id), (SELECT count(*) FROM writes), (SELECT count(DISTINCT id) FROM writes),
		(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'), (SELECT count(*) FROM llm.failed_rows) FROM docs}),
		"$rows|$rows|$rows|0|0", "$name: every row was written once, with its answer");
	return;
}

# ---- what it holds ----

{
	$node->safe_psql('postgres', q{INSERT INTO docs VALUES (1, '@tokens=60 @slow=30 x')});
	my $s = llm_session($node, q{CALL llm_enrich('docs', 'a', prompt => '{body}')});
	my ($pid) = llm_active($node);
	my $held = '';
	for (1 .. 10)
	{
		$held .= one(qq{SELECT string_agg(l.locktype, ' ') FROM pg_locks l WHERE pid = $pid AND locktype NOT IN ('virtualxid', 'advisory')})
		  . one(qq{SELECT concat(backend_xmin, backend_xid) FROM pg_stat_activity WHERE pid = $pid AND txid_current() > 0});
	}
	is(one(qq{SELECT state FROM llm.stat_activity WHERE pid = $pid}), 'active', 'the engine works for it');
	is($held, '', 'no snapshot, transaction id or lock on a table is held meanwhile');
	llm_session_end($s);
}

# ---- deaths ----

foreach my $how ('termination', 'cancel', 'statement_timeout', 'immediate stop')
{
	fresh();
	# on any machine: some rows come before the time is over, and not all
	my $s = begin_call($how eq 'statement_timeout' ? "SET statement_timeout = '2s'; " . $call =~ s/=> 64/=> 4/r : $call);
	my $pid = $how eq 'statement_timeout' || llm_backend($node, $s);
	if ($how eq 'immediate stop')
	{
		$node->stop('immediate');
		$node->start;
	}
	else
	{
		one("SELECT pg_terminate_backend($pid)") if $how eq 'termination';
		one("SELECT pg_cancel_backend($pid)") if $how eq 'cancel';
	}
	my ($out, $err) = llm_session_end($s);
	unlike($err, qr/ wrote /, "$how: it ended in the middle");
	ok(llm_wait_for(sub { one(q{SELECT count(*), (SELECT coalesce(sum(in_flight), 0) FROM llm.stat_users) FROM pg_locks WHERE locktype = 'advisory'}) eq '0|0' }, 2),
		"$how: with its leases, and nothing of it is in flight");
	my $done = one('SELECT count(a) FROM docs');
	cmp_ok($done, '<', $rows, "$how: after $done rows");
	my ($stdout, $stderr);
	$node->psql('postgres', $call, stdout => \$stdout, stderr => \$stderr);
	like($stderr, qr/wrote @{[ $rows - $done ]} rows/, "$how: the next call does the others");
	all_done($how);
	llm_is_well($node, $how);
}

# ---- others at work ----

{
	fresh();
	my $before = one('SELECT requests FROM llm.stat_engine');
	my @s = map { llm_session($node, $call) } 1 .. 3;
	my @wrote = map { my ($out, $err) = llm_session_end($_); $err =~ /wrote (\d+) rows/ ? $1 : -1 } @s;
	is($wrote[0] + $wrote[1] + $wrote[2], $rows, 'three callers share the work');
	ok($wrote[0] * $wrote[1] * $wrote[2] > 0, "each has a part: @wrote");
	all_done('three callers');
	is(one('SELECT requests FROM llm.stat_engine') - $before, $rows, 'and no row was generated twice');
}

# A row that somebody locks after its claim is written when it is free again; the others are not held up.
{
	fresh();
	my $locker = llm_session($node, q{
		DO $$ BEGIN
			FOR i IN 1 .. 2000 LOOP
				EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory');
				PERFORM pg_sleep(0.005);
			END LOOP;
		END $$;
		BEGIN;
		SELECT FROM docs WHERE id = 1 FOR UPDATE;
		SELECT pg_sleep(3);
		SELECT count(*) FROM docs WHERE a IS NULL;
		COMMIT});
	my $s = llm_session($node, q{CALL llm_enrich('docs', 'a', prompt => '@slow=30 row {id}', filter => 'id <= 40', batch_size => 10, concurrency => 20)});
	my ($out, $err) = llm_session_end($s);
	like($err, qr/wrote 40 rows of "docs", 0 failed, 0 changed/, 'a row that is locked at its write is written later');
	($out) = llm_session_end($locker);
	like($out, qr/^@{[ $rows - 39 ]}$/m, 'after the others');
}

{
	fresh();
	my $storm = llm_session($node, qq{
		DO \$\$ BEGIN
			FOR i IN 1 .. 150 LOOP
				UPDATE docs SET body = 'new ' || i || ' ' || id, a = NULL WHERE id % 40 = i % 40;
				DELETE FROM docs WHERE id = i * 3;
				COMMIT;
				PERFORM pg_sleep(0.005);
			END LOOP;
		END \$\$});
	my @s = map { llm_session($node, q{CALL llm_enrich('docs', 'a', prompt => '@slow=4 {body}', batch_size => 16)}) } 1 .. 2;
	llm_session_end($_) foreach @s, $storm;
	$node->safe_psql('postgres', q{CALL llm_enrich('docs', 'a', prompt => '{body}')});
	is(one('SELECT count(*), count(*) FILTER (WHERE a = body) FROM docs'), ($rows - 150) . '|' . ($rows - 150),
		'beside writers: each row has the answer to what it says now');
	is(one('SELECT count(*) FROM llm.failed_rows'), '0', 'and none failed');
	llm_is_well($node, 'writers');
}

# ---- pg_cron ----

{
	fresh();
	$node->safe_psql('postgres', qq{SELECT cron.schedule('\@reboot', \$job\$$call\$job\$)});
	$node->restart;
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM docs WHERE a IS NULL}), 'a job of pg_cron runs it');
	ok($node->poll_query_until('postgres', q{SELECT status = 'succeeded' FROM cron.job_run_details}), 'to its end');
	all_done('pg_cron');
}

$node->stop;
done_testing();
