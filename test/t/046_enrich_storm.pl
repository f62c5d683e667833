# llm_enrich beside a storm of writers: SERIALIZABLE ones, others that lock several rows in every order, foreign keys and deferred
# triggers on both sides. No change of a writer is lost or answered by its old text, everything is done at the end, and no
# writer meets a deadlock that llm_enrich is part of. Then what is left behind: autovacuum sees the tables, and they do not grow.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $seed = $ENV{LLM_TEST_SEED} || time() % 100000;
my $seconds = $ENV{LLM_TEST_FULL} ? 60 : 2;
srand($seed);
diag "writers for $seconds s, seed $seed";

my $node = llm_cluster('storm', fault => 'slow_step=1', conf => "deadlock_timeout = '200ms'\nmax_connections = 40");
my $rows = 300;

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

# words: what answers refer to. Each change of a text is counted in n and in the text; changes and answers are noted.
$node->safe_psql('postgres', qq{
	CREATE TABLE words (word text PRIMARY KEY, uses int DEFAULT 0);
	CREATE TABLE docs (id int PRIMARY KEY, body text, n int DEFAULT 0, a text);
	INSERT INTO docs SELECT i, 'row ' || i || ' v0' FROM generate_series(1, $rows) i;
	CREATE TABLE notes (change boolean, body text, a text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \$\$BEGIN INSERT INTO notes VALUES (NEW.n <> OLD.n, NEW.body, NEW.a); RETURN NULL; END\$\$;
	CREATE CONSTRAINT TRIGGER note AFTER UPDATE OF a ON docs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
	-- some rows get another text, in order or not, and lose their answers or not; a round is one transaction
	CREATE PROCEDURE storm(seconds float8, seed float8, sorted boolean, empties boolean, first text) LANGUAGE plpgsql AS \$\$
	DECLARE until timestamptz := clock_timestamp() + seconds * interval '1 s'; ids int[]; i int;
	BEGIN
		PERFORM setseed(seed);
		WHILE clock_timestamp() < until LOOP
			ids := array(SELECT 1 + floor(random() * $rows)::int FROM generate_series(1, 4));
			IF sorted THEN ids := array(SELECT x FROM unnest(ids) x ORDER BY x); END IF;
			BEGIN
				EXECUTE first USING ids;
				FOREACH i IN ARRAY ids LOOP
					UPDATE docs SET n = n + 1, body = 'row ' || id || ' v' || n + 1, a = CASE WHEN NOT empties THEN a END WHERE id = i;
				END LOOP;
			EXCEPTION WHEN deadlock_detected OR serialization_failure THEN
				RAISE WARNING 'writer met %', SQLSTATE;
			END;
			COMMIT;
			PERFORM pg_sleep(random() * 0.01);
		END LOOP;
	END\$\$});

# Three writers, and two callers or a standing enrichment, and then what is left to do. What the writers have met, by SQLSTATE.
sub storm
{
	my ($name, $standing, $writer) = @_;
	my %met;
	my $what = q{'docs', 'a', expr => $$'@slow=1 ' || body$$, batch_size => 16, concurrency => 48};
	$node->safe_psql('postgres', q{UPDATE docs SET n = 0, body = format('row %s v0', id), a = NULL; TRUNCATE notes;} . ($standing ? "SELECT llm_enrich_create('standing', $what)" : ''));
	my @writers = map { llm_session($node, sprintf $writer, $seconds, $_ / 10 + $seed / 1e6) } 1 .. 3;
	my @callers = map { llm_session($node, "CALL llm_enrich($what);" x 5) } 1 .. ($standing ? 0 : 2);
	foreach (@writers)
	{
		my ($out, $err) = llm_session_end($_, $seconds + 60);
		$met{$1}++ while $err =~ /(?:writer met |ERROR:  )(\w{5})/g;
	}
	my $err = join '', map { (llm_session_end($_, $seconds + 60))[1] } @callers;
	unlike($err, qr/ERROR/, "$name: no call fails");
	if ($standing)
	{
		ok(llm_wait_for(sub { one(q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments}) eq 't' }), "$name: all is done") or diag(one('TABLE llm.enrichments; TABLE llm.job_workers'));
		one(q{SELECT llm_enrich_drop('standing')});
	}
	else
	{
		$node->safe_psql('postgres', "CALL llm_enrich($what)");
	}
	is(one(q{SELECT count(*) FILTER (WHERE a = body AND body = format('row %s v%s', id, n)), (SELECT count(*) FROM notes WHERE NOT change AND a <> body),
		(SELECT count(*) FROM notes WHERE change) - sum(n), (SELECT count(*) FROM llm.failed_rows) FROM docs}),
		"$rows|0|0|0", 'each row has the answer to what it says, and no change is lost');
	note "$name: " . one('SELECT count(*) FILTER (WHERE change), count(*) FILTER (WHERE NOT change) FROM notes') . ' changes and answers, writers met: ' . join ', ', map { "$_ $met{$_}" } sort keys %met;
	return $met{'40P01'} // 0;
}

is(storm('writers in order', 0, q{CALL storm(%f, %f, true, true, 'SELECT')}), 0, 'and no writer meets a deadlock');
is(storm('a standing one', 1, q{CALL storm(%f, %f, true, false, 'SELECT')}), 0, 'and no writer meets a deadlock');
storm('serializable writers in any order', 0, q{SET default_transaction_isolation = serializable; CALL storm(%f, %f, false, true, 'SELECT count(*) FROM docs WHERE id = ANY ($1)')});
storm('a standing one, serializable', 1, q{SET default_transaction_isolation = serializable; CALL storm(%f, %f, false, false, 'SELECT count(*) FROM docs WHERE id = ANY ($1)')});

# A writer has what answers refer to, and wants rows that a call is writing: it is not the writer who gives way.
{
	$node->safe_psql('postgres', qq{UPDATE docs SET a = NULL; ALTER TABLE docs ADD FOREIGN KEY (a) REFERENCES words; INSERT INTO words SELECT body FROM docs});
	my $writer = llm_session($node, q{
		BEGIN;
		SELECT FROM words WHERE word IN (SELECT body FROM docs WHERE id IN (20, 40, 60)) FOR UPDATE;
		DO $$ BEGIN
			FOR i IN 1 .. 10000 LOOP
				EXIT WHEN EXISTS (SELECT FROM pg_locks WHERE NOT granted);
				PERFORM pg_sleep(0.001);
			END LOOP;
		END $$;
		SELECT pg_sleep(0.4);
		UPDATE docs SET n = n WHERE true;
		SELECT 'not in the way', count(a) BETWEEN 1 AND 297 FROM docs;
		COMMIT});
	my ($out, $err) = llm_session_end(llm_session($node, q{CALL llm_enrich('docs', 'a', prompt => '@slow=1 {body}')}));
	like($err, qr/ 0 failed, \d+ changed/, 'foreign keys: the call comes to its end');
	($out, $err) = llm_session_end($writer);
	like($out . $err, qr/^\s*not in the way\|t$/, 'the writer gets what it waits for');
	is(one('SELECT count(*) FROM docs WHERE a = body'), $rows, 'every row is done');
	llm_is_well($node, 'storms');
}

# ---- what is left behind ----

# autovacuum hears of what is enriched, and of rows that fail and are done later; neither table grows.
{
	my $rounds = $ENV{LLM_TEST_FULL} ? 30 : 3;
	$node->append_conf('postgresql.conf', "autovacuum = on\nautovacuum_naptime = 1\nautovacuum_vacuum_cost_delay = 0");
	$node->reload;
	my %sizes = map { $_ => [] } qw(docs llm.enrich_failures);
	foreach my $round (1 .. $rounds)
	{
		$node->safe_psql('postgres', q{UPDATE docs SET a = NULL; CALL llm_enrich('docs', 'a', prompt => '@error=no {body}'); CALL llm_enrich('docs', 'a', prompt => '{body}')});
		foreach my $table (sort keys %sizes)
		{
			ok(llm_wait_for(sub { one("SELECT autovacuum_count >= $round AND n_dead_tup < 200 FROM pg_stat_user_tables WHERE relid = '$table'::regclass") eq 't' }),
				"round $round: autovacuum cleans $table") or diag(one("SELECT * FROM pg_stat_user_tables WHERE relid = '$table'::regclass"));
			push @{ $sizes{$table} }, one("SELECT pg_total_relation_size('$table') / 1024");
		}
	}
	cmp_ok($sizes{$_}[-1], '<=', 1.5 * $sizes{$_}[1], "$_ does not grow: @{ $sizes{$_} } kB") foreach sort keys %sizes;
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
