# What others do to rows while the worker of a standing enrichment has them: it waits for an engine that is stopped, they change, delete,
# insert again, rename, set by hand, lock and roll back. No answer to another text is ever written, each row once, nothing
# is left in the queue; and who keeps rows locked keeps no others from being done.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('races', conf => "llm_infer.engine_timeout = '60s'");
my $engine;

sub one { return scalar $node->safe_psql('postgres', $_[0]); }
sub soon { my ($sql, $name) = @_; ok(llm_wait_for(sub { one($sql) eq 't' }), $name) or diag(one('TABLE docs; TABLE llm.enrichments; TABLE llm.enrich_queue; TABLE llm.failed_rows')); return; }
my $idle = q{SELECT state = 'active' AND pending = 0 AND failed = 0 AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory') FROM llm.enrichments};

# A statement whose rows, n of them, are then in work at an engine that is stopped.
sub stop_with
{
	my ($n, $sql) = @_;
	kill 'STOP', $engine = llm_engine_pid($node);
	$node->safe_psql('postgres', $sql);
	llm_wait_for(sub { one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) eq $n }) or die 'rows did not get into work: ' . one('TABLE llm.enrichments; TABLE llm.job_workers');
	return;
}

# What is done to a row, its key in $1, and what it is at the end: 'done' for what it says then, 'gone', or its value.
my @races = (
	[ 'is left alone', '', 'done' ],
	[ 'is changed', q{UPDATE docs SET body = 'changed' WHERE id = $1}, 'done' ],
	[ 'is changed twice', q{UPDATE docs SET body = 'once' WHERE id = $1; UPDATE docs SET body = 'twice' WHERE id = $1}, 'done' ],
	[ 'is changed there and back', q{UPDATE docs SET body = 'there' WHERE id = $1; UPDATE docs SET body = 'new ' || id WHERE id = $1}, 'done' ],
	[ 'gets another version', q{UPDATE docs SET body = body WHERE id = $1}, 'done' ],
	[ 'is changed elsewhere', q{UPDATE docs SET other = 1 WHERE id = $1}, 'done' ],
	[ 'is emptied', q{UPDATE docs SET a = NULL WHERE id = $1}, 'done' ],
	[ 'is locked and let go', q{BEGIN; SELECT FROM docs WHERE id = $1 FOR UPDATE; COMMIT}, 'done' ],
	[ 'is changed and rolled back', q{BEGIN; UPDATE docs SET body = 'never' WHERE id = $1; ROLLBACK}, 'done' ],
	[ 'is changed and rolled back in part', q{BEGIN; UPDATE docs SET other = 2 WHERE id = $1; SAVEPOINT s; UPDATE docs SET body = 'never' WHERE id = $1; ROLLBACK TO s; COMMIT}, 'done' ],
	[ 'is changed behind a savepoint', q{BEGIN; SAVEPOINT s; UPDATE docs SET body = 'released' WHERE id = $1; RELEASE s; COMMIT}, 'done' ],
	[ 'is written by a savepoint that is rolled back', q{BEGIN; SAVEPOINT s; UPDATE docs SET body = 'never' WHERE id = $1; ROLLBACK TO s; UPDATE docs SET body = 'then' WHERE id = $1; COMMIT}, 'done' ],
	[ 'is deleted', q{DELETE FROM docs WHERE id = $1}, 'gone' ],
	[ 'is deleted and comes again', q{DELETE FROM docs WHERE id = $1; INSERT INTO docs VALUES ($1, 'again')}, 'done' ],
	[ 'is deleted and comes again in one', q{BEGIN; DELETE FROM docs WHERE id = $1; INSERT INTO docs VALUES ($1, 'again'); COMMIT}, 'done' ],
	[ 'is deleted and comes again as it was', q{BEGIN; DELETE FROM docs WHERE id = $1; INSERT INTO docs VALUES ($1, 'new ' || $1); COMMIT}, 'done' ],
	[ 'comes again with a value', q{BEGIN; DELETE FROM docs WHERE id = $1; INSERT INTO docs VALUES ($1, 'again', 0, 'again'); COMMIT}, 'done' ],
	[ 'gets another key', q{UPDATE docs SET id = id + 100 WHERE id = $1}, 'gone' ],
	[ 'gets another key and its own again', q{UPDATE docs SET id = id + 200 WHERE id = $1; UPDATE docs SET id = $1 WHERE id = $1 + 200}, 'done' ],
	[ 'gives its key to another', q{BEGIN; UPDATE docs SET id = id + 100 WHERE id = $1; INSERT INTO docs VALUES ($1, 'other'); COMMIT}, 'done' ],
	[ 'is changed by ON CONFLICT', q{INSERT INTO docs VALUES ($1, 'x') ON CONFLICT (id) DO UPDATE SET body = 'upserted'}, 'done' ],
	[ 'is changed by MERGE', q{MERGE INTO docs USING (VALUES ($1)) v (i) ON id = i WHEN MATCHED THEN UPDATE SET body = 'merged'}, 'done' ],
	[ 'has no prompt any more', q{UPDATE docs SET body = NULL WHERE id = $1}, 'as it was' ],
	# two that change it one behind the other
	[ 'is changed by two', q{BEGIN; UPDATE docs SET body = 'first' WHERE id = $1; SELECT pg_sleep(0.3); COMMIT}, 'done', q{SELECT pg_sleep(0.1); UPDATE docs SET body = body || ' second' WHERE id = $1} ],
	# by hand: what was without a value has one; what is queued for a change is to be done, whatever its value is
	[ 'is set by hand', q{UPDATE docs SET a = 'mine' WHERE id = $1}, 'by hand' ]);

my @tables = (
	[ 'a table', q{CREATE TABLE docs (id int PRIMARY KEY, body text, other int, a text)} ],
	[ 'partitions', q{CREATE TABLE docs (id int PRIMARY KEY, body text, other int, a text) PARTITION BY RANGE (id);
		CREATE TABLE low PARTITION OF docs FOR VALUES FROM (0) TO (110); CREATE TABLE high PARTITION OF docs FOR VALUES FROM (110) TO (1000)} ]);

foreach my $table (@tables)
{
	foreach my $backfill (0, 1)
	{
		my ($what, $sql) = @$table;
		my $name = ($backfill ? 'backfill of ' : 'changes of ') . $what;
		$node->safe_psql('postgres', qq{$sql;
			CREATE TABLE writes (id int, body text, a text);
			CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO writes VALUES (NEW.id, NEW.body, NEW.a); RETURN NULL; END\$\$;
			CREATE TRIGGER note AFTER UPDATE OF a ON docs FOR EACH ROW WHEN (NEW.a <> 'mine') EXECUTE FUNCTION note();
			INSERT INTO docs SELECT i, 'old ' || i FROM generate_series(1, } . @races . q{) i});
		my $create = q{SELECT llm_enrich_create('e', 'docs', 'a', prompt => '{body}')};
		if ($backfill)
		{
			stop_with(scalar @races, "UPDATE docs SET body = 'new ' || id; $create");
		}
		else
		{
			$node->safe_psql('postgres', $create);
			soon($idle, "$name: begins");
			$node->safe_psql('postgres', 'TRUNCATE writes');
			stop_with(scalar @races, q{UPDATE docs SET body = 'new ' || id});
		}
		my @others = map { my $sql = $races[$_ - 1][3]; $sql ? llm_session($node, $sql =~ s/\$1/$_/gr) : () } 1 .. @races;
		$node->safe_psql('postgres', join ";\n", map { $races[$_ - 1][1] =~ s/\$1/$_/gr } 1 .. @races);
		llm_session_end($_) foreach @others;
		kill 'CONT', $engine;
		soon($idle, "$name: nothing is left to do");
		my %got = map { split /\|/ } split /\n/, one(q{SELECT id, CASE WHEN a = body THEN 'done' ELSE concat_ws(' for ', coalesce(a, 'nothing'), body) END FROM docs});
		foreach my $id (1 .. @races)
		{
			my ($race, $want) = ($races[$id - 1][0], $races[$id - 1][2]);
			$want = $backfill ? 'mine for new ' . $id : 'done' if $want eq 'by hand';
			$want = $backfill ? 'nothing' : "old $id" if $want eq 'as it was';
			is($got{$id} // 'gone', $want, "$name: a row that $race");
		}
		is(one(q{SELECT count(*), count(*) FILTER (WHERE a = body) FROM docs WHERE id > 100}), '2|2', 'under their new keys rows are done');
		is(one(q{SELECT coalesce(string_agg(format('%s: %s for %s', id, a, body), ', '), '-') FROM writes WHERE a IS DISTINCT FROM body}), '-', 'no answer was written for another text');
		# a change that is committed between a claim's looks at the queue and at the row is done with it, and once more
		my $twice = join ', ', grep { my $n = () = join(' ', @{ $races[$_ - 1] }) =~ /UPDATE docs|INSERT|DELETE/g; $n < 2 } split /\n/, one(q{SELECT id FROM writes GROUP BY id HAVING count(*) > 1});
		is($twice, '', 'none twice');
		is(one(q{SELECT count(*) FROM (SELECT FROM writes GROUP BY id HAVING count(*) > 2) s}), '0', 'nor three times');
		$node->safe_psql('postgres', q{SELECT llm_enrich_drop('e'); DROP TABLE docs, writes; DROP FUNCTION note}) unless $table == $tables[-1] && $backfill;
	}
}

# ---- changes that are long not committed, and more of them than the worker may have in work ----

my $n = one('SELECT count(*) FROM docs');
$node->safe_psql('postgres', q{SELECT llm_enrich_alter('e', batch_size => 2, concurrency => 4); DELETE FROM docs WHERE body IS NULL; UPDATE docs SET a = body; TRUNCATE writes});
soon($idle, 'before changes that are not committed');
stop_with(4, q{UPDATE docs SET body = 'before ' || id});
my $writer = $node->background_psql('postgres');
$writer->query_safe(q{BEGIN; UPDATE docs SET body = 'long ' || id WHERE id % 2 = 0; SAVEPOINT s; UPDATE docs SET body = 'never' WHERE id % 2 = 1});
kill 'CONT', $engine;
$node->safe_psql('postgres', q{INSERT INTO docs SELECT i, 'beside ' || i FROM generate_series(900, 905) i});
soon(q{SELECT count(*) = 6 FROM docs WHERE id >= 900 AND a = body}, 'others are done beside rows that are locked');
is(one(q{SELECT count(*) FROM docs WHERE a LIKE 'before %'}), '0', 'which are not');
my $asked = one('SELECT requests FROM llm.stat_engine');
ok(!llm_wait_for(sub { one('SELECT requests FROM llm.stat_engine') - $asked > 6 }, 1.5), 'and not asked about again and again');
$writer->query_safe(q{ROLLBACK TO s; COMMIT});
$writer->quit;
soon($idle, 'and when they are committed');
is(one(q{SELECT count(*) FILTER (WHERE a IS DISTINCT FROM body), count(*) FILTER (WHERE body LIKE 'long %') > 8, count(*) FILTER (WHERE body LIKE 'before %') > 8 FROM docs}), '0|t|t',
	'each is done for what became of it');
is(one(q{SELECT count(*) FROM writes WHERE a IS DISTINCT FROM body OR a = 'never'}), '0', 'no answer was written for another text');

# ---- the definition and the table, while rows are in work ----

# pattern of what rows have at the end
foreach my $case (
	[ 'paused and resumed', q{SELECT llm_enrich_pause('e'), pg_sleep(0.1); SELECT llm_enrich_resume('e')}, 'new \d+' ],
	[ 'altered', q{SELECT llm_enrich_alter('e', prompt => 'of {body}')}, 'of new \d+' ],
	[ 'altered and back', q{SELECT llm_enrich_alter('e', prompt => 'never {body}'); SELECT llm_enrich_alter('e', prompt => '{body}')}, 'new \d+' ],
	[ 'altered by one that rolls back', q{BEGIN; SELECT llm_enrich_alter('e', prompt => 'never {body}'); ROLLBACK}, 'new \d+' ],
	[ 'renamed', q{SELECT llm_enrich_alter('e', new_name => 'f'); SELECT llm_enrich_alter('f', new_name => 'e'); ALTER TABLE docs RENAME TO papers; ALTER TABLE papers RENAME TO docs}, 'new \d+' ],
	[ 'truncated', q{TRUNCATE docs}, '' ],
	[ 'truncated and filled', q{BEGIN; TRUNCATE docs; INSERT INTO docs SELECT i, 'filled ' || i FROM generate_series(1, 9) i; COMMIT}, 'filled \d+' ],
	[ 'moved', q{VACUUM FULL docs}, 'new \d+' ],
	[ 'dropped and created', q{SELECT llm_enrich_drop('e'); SELECT llm_enrich_create('e', 'docs', 'a', prompt => 'anew {body}'); UPDATE docs SET a = NULL}, 'anew new \d+' ],
	[ 'dropped', q{SELECT llm_enrich_drop('e')}, 'row \d+' ])
{
	my ($what, $sql, $want) = @$case;
	$node->safe_psql('postgres', q{SELECT llm_enrich_drop('e') FROM llm.enrichments; TRUNCATE docs, writes; INSERT INTO docs SELECT i, 'row ' || i, 0, 'row ' || i FROM generate_series(1, 9) i;
		SELECT llm_enrich_create('e', 'docs', 'a', prompt => '{body}', batch_size => 2, backfill => false)});
	stop_with(9, q{UPDATE docs SET body = 'new ' || id});
	$node->safe_psql('postgres', $sql);
	kill 'CONT', $engine;
	$what eq 'dropped' || soon($idle, "$what: all is done");
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}) eq '0' }), "$what: nothing is in work");
	is(one(qq{SELECT count(*), (SELECT count(*) FROM llm.enrich_queue) FROM docs WHERE a ~ '^$want\$'}), ($want ? 9 : 0) . '|0', "$what: what rows have, and what is queued");
	is(one(qq{SELECT count(*), count(*) - count(DISTINCT id) FROM writes WHERE a ~ '^$want\$'}), ($want && $what ne 'dropped' ? 9 : 0) . '|0', "$what: written once");
	is(one(qq{SELECT count(*) FROM writes WHERE a !~ '^$want\$'}), '0', "$what: and nothing else");
}

# ---- rows that move to another partition while a claim makes prompts ----

$node->safe_psql('postgres', q{CREATE FUNCTION slow(t text) RETURNS text LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN t; END'});
foreach my $standing (0, 1)
{
	my $what = q{'docs', 'a', expr => 'slow(body)'};
	my $name = $standing ? 'a standing one' : 'a call';
	$node->safe_psql('postgres', q{TRUNCATE docs, writes; INSERT INTO docs SELECT i, 'row ' || i FROM generate_series(1, 40) i});
	my $s = llm_session($node, $standing ? "SELECT llm_enrich_create('e', $what)" : "CALL llm_enrich($what)");
	llm_wait_for(sub { one(q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory'}) eq 't' }) or die 'no claim';
	$node->safe_psql('postgres', 'UPDATE docs SET id = id + 200 WHERE id > 20');
	my ($out, $err) = llm_session_end($s);
	unlike($err, qr/ERROR/, "$name does not fail");
	soon('SELECT count(*) = 40 FROM docs WHERE a = body', "$name: all rows are done");
}
unlike(slurp_file($node->logfile), qr/already moved to another partition/, 'nor had a worker to begin anew');
$node->safe_psql('postgres', q{SELECT llm_enrich_drop('e')});

# ---- a call for the same column ----

$node->safe_psql('postgres', q{TRUNCATE docs, writes; INSERT INTO docs SELECT i, 'row ' || i FROM generate_series(1, 300) i});
stop_with(128, q{SELECT llm_enrich_create('e', 'docs', 'a', prompt => '{body}')});
my $call = llm_session($node, q{CALL llm_enrich('docs', 'a', prompt => '{body}')});
llm_wait_for(sub { one(q{SELECT count(*) > 200 FROM pg_locks WHERE locktype = 'advisory'}) eq 't' }) or die 'the call has no rows';
kill 'CONT', $engine;
llm_session_end($call);
soon($idle, 'beside a call: all is done');
is(one(q{SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM docs WHERE a = body) FROM writes}), '300|300|300', 'each row by one of both');
llm_is_well($node, 'races');
$node->stop;
done_testing();
