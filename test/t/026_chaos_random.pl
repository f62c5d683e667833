# Chaos for a while: sessions run random statements that check themselves, while backends are cancelled and
# terminated, engines killed and stopped, settings reloaded, models, rights, quotas, databases and tables changed, the memo
# on and off, small and forgotten, and the rows of two standing enrichments changed in every way. Then the audit: no row was wrong, no
# error is one that nothing explains, each enriched row has the answer to what it says, the memo's answers are the
# engine's, nothing is left in flight, memory and descriptors are flat. A slice of 20 s; LLM_CHAOS_MINUTES of it with scripts/test chaos.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $minutes = $ENV{LLM_CHAOS_MINUTES} || 1 / 3;
my $seed = $ENV{LLM_TEST_SEED} || time() % 100000;
my $n_sessions = 6;
srand($seed);
diag "chaos for $minutes min, seed $seed";

my $node = llm_cluster('chaos', conf => <<'CONF');
max_connections = 40
deadlock_timeout = '100ms'
llm_infer.engine_timeout = '4s'
llm_infer.kv_cache_memory = '512kB'
llm_infer.default_model = 'echo'
llm_infer.memo = on
llm_infer.memo_memory = '128kB'
llm_infer.memo_size = '1MB'
CONF
my $partitions = ('', 'PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF notes FOR VALUES FROM (0) TO (80); CREATE TABLE rest PARTITION OF notes DEFAULT',
	'PARTITION BY HASH (id); CREATE TABLE even PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE odd PARTITION OF notes FOR VALUES WITH (MODULUS 2, REMAINDER 1)')[ $seed % 3 ];
$node->safe_psql('postgres', q{
	CREATE ROLE guest LOGIN;
	GRANT pg_read_all_stats TO guest;
	CREATE TABLE docs (id int PRIMARY KEY, body text, kind int);
	INSERT INTO docs SELECT i, 'doc ' || i || repeat(' word', i % 9) FROM generate_series(1, 400) i;
	CREATE TABLE answers (id int, body text, answer text);
	CREATE TABLE tasks (job bigint, prompt text);
	CREATE TABLE recalled (job bigint);
	-- enriched by calls (a), by a standing enrichment that comes and goes (s) and by one that stays (u)
	CREATE TABLE notes (id int PRIMARY KEY, body text, a text, s text, u text) } . $partitions . q{;
	INSERT INTO notes SELECT i, 'note ' || i FROM generate_series(1, 150) i;
	SELECT llm_enrich_create('stays', 'notes', 'u', prompt => '{body}', batch_size => 10, concurrency => 20);
	GRANT ALL ON notes TO guest;
	CREATE MATERIALIZED VIEW answered AS SELECT id, body, llm_generate(body) AS t FROM docs WHERE id <= 20;
	CREATE UNIQUE INDEX ON answered (id);
	GRANT ALL ON docs, answers, answered TO guest;
	-- the work of a function and what it catches
	CREATE FUNCTION guarded(p text) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN RETURN llm_generate(p); EXCEPTION WHEN internal_error THEN RETURN 'caught'; END $$;
});

# ---- statements: each prints 'ok' when its rows are right ----

my $n_statements = 0;

sub one_of { return $_[ rand @_ ] }

# Rows whose texts must be their prompts.
sub all_equal
{
	my ($rows, $text, $prompt) = @_;
	return "SELECT CASE WHEN count(*) FILTER (WHERE t IS DISTINCT FROM p) = 0 THEN 'ok' ELSE 'wrong: ' || "
	  . "string_agg(coalesce(t, '-') || ' for ' || p, ', ') FILTER (WHERE t IS DISTINCT FROM p) END "
	  . "FROM (SELECT $prompt AS p, $text AS t FROM $rows OFFSET 0) s";
}

# What becomes of some of the notes.
sub change_notes
{
	my $k = shift;
	my $some = 'id % 10 = ' . int rand 10;
	my $change = "UPDATE notes SET body = 'n$k ' || id, a = NULL WHERE $some";
	return one_of(
		$change, $change,
		"BEGIN; UPDATE notes SET s = NULL WHERE $some; SAVEPOINT a;\nUPDATE notes SET body = 'never $k', a = NULL WHERE $some; ROLLBACK TO a;\n$change; COMMIT;\nROLLBACK",
		"BEGIN; $change;\nSELECT pg_sleep(" . rand(0.5) . ");\n" . one_of('COMMIT', 'ROLLBACK') . ";\nROLLBACK",
		"UPDATE notes SET id = $k * 1000 + id WHERE $some AND id <= 150",
		"UPDATE notes SET " . one_of(qw(s u)) . " = NULL WHERE $some",
		"UPDATE notes SET body = body WHERE $some",
		"BEGIN; DELETE FROM notes WHERE id > 1000; INSERT INTO notes SELECT i, 'again $k ' || i FROM generate_series(1, 150) i ON CONFLICT " . one_of('DO NOTHING', '(id) DO UPDATE SET body = excluded.body, a = NULL WHERE random() < 0.2') . ";\nCOMMIT;\nROLLBACK",
		"BEGIN; DELETE FROM notes WHERE $some; INSERT INTO notes SELECT i, 'new $k ' || i FROM generate_series(1, 150) i WHERE i % 2 = 0 ON CONFLICT DO NOTHING;\nCOMMIT;\nROLLBACK",
		"BEGIN; TRUNCATE notes; INSERT INTO notes SELECT i, 'filled $k ' || i FROM generate_series(1, 150) i;\n" . one_of('COMMIT', 'ROLLBACK') . ";\nROLLBACK",
		"VACUUM " . one_of('', 'FULL ') . 'notes');
}

sub statement
{
	my $k = ++$n_statements;
	# what was asked before is in the memo, perhaps
	$k -= int rand($k < 60 ? $k : 60) if rand() < 0.4;
	my $n = 1 + int rand 60;
	my $model = one_of(('NULL') x 6, "'m1'", "'m2'");
	my $t = one_of(0, 0, 1);
	my $docs = "(SELECT id, 'q$k ' || body AS b FROM docs WHERE id <= $n ORDER BY id) d";
	my $call = "llm_generate(b, $model, temperature => $t, on_error => '" . one_of('error', 'error', 'null') . "')";
	# what on_error hides is no answer: NULL is right where a call may fail
	$call = "coalesce($call, b)" if $call =~ /null/;
	return one_of(
		(sub { all_equal($docs, $call, 'b') }) x 3,
		sub { 'SET llm_infer.enable_batch = off; ' . all_equal($docs, $call, 'b') . '; RESET llm_infer.enable_batch' },
		sub { all_equal("$docs LEFT JOIN LATERAL (SELECT llm_generate(b) AS x) l ON true WHERE llm_generate(b) LIKE 'q%'", 'x', 'b') },
		sub { "BEGIN; DECLARE c" . one_of('', ' NO SCROLL') . " CURSOR" . one_of('', '', ' WITH HOLD') . " FOR SELECT $call FROM $docs; MOVE "
			  . int(rand 20) . ' FROM c; CLOSE c; ' . one_of('COMMIT', 'ROLLBACK') . ";\nROLLBACK; SELECT 'ok'" },
		sub { all_equal($docs, "(SELECT string_agg(s, '') FROM llm_generate_stream(b) s)", 'b') },
		sub { all_equal($docs, "array_to_string(llm_generate(ARRAY[b, b || ' again']), '|')", q{b || '|' || b || ' again'}) },
		sub { "SELECT CASE WHEN cardinality(llm_generate(ARRAY['n$k', NULL], temperature => 1, options => '{\"n\": 3}')) = 6 THEN 'ok' ELSE 'wrong: n' END" },
		sub { all_equal("generate_series(1, $n) i", 'llm_detokenize(llm_tokenize(i::text))', 'i::text') },
		sub { all_equal($docs, q{CASE WHEN id % 3 = 0 THEN guarded('@error=odd ' || b) ELSE guarded(b) END}, q{CASE WHEN id % 3 = 0 THEN 'caught' ELSE b END}) },
		sub { "BEGIN; INSERT INTO answers SELECT id, b, $call FROM $docs; SAVEPOINT a;\nUPDATE answers SET answer = llm_generate(body || ' 2') WHERE id < 5;\n"
			  . "ROLLBACK TO a;\n" . all_equal("(SELECT body AS b, answer FROM answers WHERE body LIKE 'q$k %') d", 'answer', 'b') . ";\nROLLBACK" },
		sub { "SET statement_timeout = " . int(1 + rand 150) . "; SELECT llm_generate('\@tokens=3000 x', max_tokens => 3500) FROM generate_series(1, $n);\n"
			  . "RESET statement_timeout; SELECT 'ok'" },
		sub { "SET llm_infer.timeout = " . int(1 + rand 30) . "; SELECT llm_generate('\@slow=1 \@tokens=900 x', max_tokens => 950) FROM generate_series(1, $n);\n"
			  . "RESET llm_infer.timeout; SELECT 'ok'" },
		sub { "SET llm_infer.max_statement_tokens = " . int(50 + rand 500) . '; ' . all_equal($docs, $call, 'b') . ";\nRESET llm_infer.max_statement_tokens" },
		sub { 'SELECT count(*) FROM (SELECT ' . $call . " FROM $docs LIMIT " . int(rand 10) . ") s; SELECT 'ok'" },
		sub { 'SET ROLE guest; ' . all_equal($docs, $call, 'b') . ";\nRESET ROLE" },
		sub { "PREPARE p(text) AS SELECT llm_generate(\$1 || b) AS t FROM $docs; EXECUTE p('\@error=no ');\n" . "DEALLOCATE p; SELECT 'ok'" },
		sub { 'REFRESH MATERIALIZED VIEW' . one_of('', ' CONCURRENTLY') . " answered;\n" . all_equal('answered', 't', 'body') },
		sub { all_equal('answered', one_of('t', 'llm_generate(body)'), 'body') },
		sub { "ALTER TABLE docs ALTER kind TYPE " . one_of(qw(int bigint numeric)) . "; SELECT 'ok'" },
		sub { "SELECT llm_pin_prefix('pin $k " . ('p' x int rand 300) . "') > 0; SELECT 'ok'" },
		sub { q{SELECT count(*) FROM } . one_of(map { "llm.$_" } qw(models stat_engine stat_models stat_users stat_activity prefix_cache memo stat_memo enrichments stat_progress_enrich)) . "; SELECT 'ok'" },
		sub { "EXPLAIN (ANALYZE, FORMAT JSON) SELECT $call FROM $docs; SELECT 'ok'" },
		(sub { "BEGIN; INSERT INTO tasks SELECT llm_job_submit(b), b FROM $docs WHERE id <= 8; " . one_of('COMMIT', 'COMMIT', 'ROLLBACK') . ";\nROLLBACK; SELECT 'ok'" }) x 2,
		sub { 'WITH j AS MATERIALIZED (SELECT job FROM tasks ORDER BY random() LIMIT 2) INSERT INTO recalled SELECT job FROM j WHERE llm_job_cancel(job);' . "\nSELECT 'ok'" },
		sub { "SELECT llm_job_wait(job, '50 ms') FROM tasks ORDER BY job DESC LIMIT 1; SELECT 'ok'" },
		(sub { change_notes(++$n_statements) . ";\nSELECT CASE WHEN count(*) FILTER (WHERE a <> body) = 0 THEN 'ok' ELSE 'wrong: notes' END FROM notes" }) x 2,
		sub { "SET llm_infer.memo = " . one_of(qw(on on off)) . '; ' . all_equal($docs, "(llm_generate_result(b, temperature => 0)).text", 'b') },
		sub { one_of('SELECT llm_memo_forget()', ("SELECT llm_memo_forget('m1')", 'BEGIN; SELECT llm_memo_forget(); ROLLBACK', 'VACUUM llm.memo_entries') x 2, 'TRUNCATE llm.memo_entries, llm.memo_sizes') . ";\nSELECT 'ok'" },
		sub { "CALL llm_enrich('notes', 'a', prompt => '{body}', batch_size => " . int(1 + rand 40) . ', max_rows => ' . int(1 + rand 100) . ", concurrency => $n);\nSELECT 'ok'" },
		sub { one_of("DISCARD ALL; SELECT 'ok'", "SELECT llm_model_unload('m1'); SELECT 'ok'") })->();
}

# Errors that cancels, terminations, timeouts, dropped models and rights, quotas, limits, deadlocks and the engine's deaths explain.
my %explained = map { $_ => 1 } qw(57014 57P01 55P03 42704 42501 53400 53200 08006 0A000 58000 40P01 40001 55000 25P02 3B001 26000 34000 42P01 XX000);
# XX000 of the echo device's own, and of a statement that has been sent again and again
my $internal = qr/XX000: (?:odd|no|the engine was lost and the next one gave another text)$|XX000: tuple concurrently/;

# ---- what happens to them ----

my %n_done;
my $sql = sub { my ($rc, $out, $err) = $node->psql('postgres', $_[0], on_error_stop => 0); return $out };
my $victim = sub { $sql->("SELECT $_[0](pid) FROM pg_stat_activity WHERE application_name LIKE 'chaos%' AND state = 'active' ORDER BY random() LIMIT 1") };
my @events = (
	(cancel => sub { $victim->('pg_cancel_backend') }) x 4,
	(terminate => sub { $victim->('pg_terminate_backend') }) x 2,
	kill => sub { kill one_of(qw(KILL KILL TERM SEGV)), llm_processes($node, engines => 1) },
	stop => sub { my @e = llm_processes($node, engines => 1); kill 'STOP', @e; sleep rand 0.5; kill 'CONT', @e },
	restart => sub { $sql->('SELECT llm_engine_restart()') },
	workers => sub { $sql->(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'llm_infer%' AND backend_type <> 'llm_infer supervisor'}) },
	# so many invalidations that the other backends lose all of their caches
	caches => sub { $sql->(q{DO $$ BEGIN FOR i IN 1 .. 150 LOOP CREATE TEMP TABLE passing (a int PRIMARY KEY, b text); DROP TABLE passing; END LOOP; END $$}) },
	supervisor => sub { $sql->(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'llm_infer supervisor'}) if rand() < 0.2 },
	(reload => sub {
		$node->append_conf('postgresql.conf', one_of("llm_infer.max_running = " . int(1 + rand 70), 'llm_infer.max_batch_tokens = ' . int(8 + rand 600),
			"llm_infer.kv_cache_memory = '" . int(64 + rand 900) . "kB'", 'llm_infer.prefix_cache = ' . one_of(qw(on off)),
			'llm_infer.prefix_cache_scope = ' . one_of(qw(role database cluster)), 'llm_infer.memo = ' . one_of(qw(on on off)), "llm_infer.memo_size = '" . int(1 + rand 3) . "MB'", 'llm_infer.threads = ' . int rand 3));
		$node->reload; }) x 2,
	models => sub { $sql->(one_of(map { ("SELECT llm_model_register('$_', 'echo:', '{\"context_length\": " . int(200 + rand 4000) . "}')",
		"SELECT llm_model_drop('$_')", "SELECT llm_model_unload('$_')") } qw(m1 m2))) },
	rights => sub { $sql->(one_of('GRANT USAGE ON FOREIGN SERVER echo TO guest', 'REVOKE USAGE ON FOREIGN SERVER echo FROM guest')) },
	(standing => sub { $sql->(one_of(q{SELECT llm_enrich_create('standing', 'notes', 's', prompt => '{body}', batch_size => 20)}, map { "SELECT $_" } (q{llm_enrich_resume('standing', true)}) x 2,
		q{llm_enrich_pause('standing')}, q{llm_enrich_drop('standing')}, q{llm_enrich_alter('standing', concurrency => 30)}, q{llm_enrich_alter('standing', new_name => 'standing')})) }) x 2,
	(stays => sub { $sql->(one_of("SELECT llm_enrich_alter('stays', concurrency => " . int(1 + rand 40) . ", batch_size => " . int(1 + rand 20) . ')', q{BEGIN; SELECT llm_enrich_pause('stays'); SELECT llm_enrich_resume('stays'); COMMIT},
		q{BEGIN; SELECT llm_enrich_alter('stays', prompt => 'never {body}'); ROLLBACK}, 'BEGIN; ALTER TABLE notes RENAME TO papers; ALTER TABLE papers RENAME TO notes; COMMIT', 'ALTER TABLE notes ADD more int; ALTER TABLE notes DROP more',
		'CLUSTER notes USING notes_pkey', map { ("VACUUM FULL llm.$_", "REINDEX TABLE llm.$_", "BEGIN; LOCK TABLE llm.$_; SELECT pg_sleep(0.3); COMMIT") } qw(enrich_queue enrichment_defs enrich_failures memo_entries memo_sizes job_queue))) }) x 2,
	quotas => sub { $sql->(one_of('DELETE FROM llm.quotas', q{INSERT INTO llm.quotas VALUES ('guest', 1000, '1 s', 2) ON CONFLICT DO NOTHING},
		q{INSERT INTO llm.quotas VALUES ('-', NULL, NULL, 5) ON CONFLICT DO NOTHING})) },
	databases => sub { $sql->('CREATE DATABASE other'); $node->psql('other', q{CREATE EXTENSION llm_infer; SELECT llm_model_register('echo', 'echo:');
		SELECT llm_generate('x'); DROP EXTENSION llm_infer CASCADE; CREATE EXTENSION llm_infer}); $sql->('DROP DATABASE other WITH (FORCE)') });

# ---- audits ----

sub memory
{
	my ($pid) = @_;
	my $kb = 0;
	my $rollup = slurp_file("/proc/$pid/smaps_rollup");
	$kb += $1 while $rollup =~ /^Private_(?:Clean|Dirty):\s+(\d+) kB/mg;
	return $kb;
}

# Without those of tables, which come and go.
sub descriptors { return scalar grep { (readlink($_) // '') !~ m{/(?:base|global|pg_wal)/} } glob "/proc/$_[0]/fd/*" }

# A session of its own that nobody cancels; engines die under it all the same.
my $witness = $node->background_psql('postgres', on_error_stop => 0);
$witness->set_query_timer_restart;
my $backend = $witness->query_safe('SELECT pg_backend_pid()');
my $ask = q{SELECT count(*) FROM (SELECT llm_generate(body) AS t, body FROM docs OFFSET 0) s WHERE t <> body};
my (@wrong, %before, %n_errors);
my $n_ok = 0;

sub begin_session
{
	my $k = shift;
	return llm_session($node, join(";\n", map { statement() } 1 .. 40), app => "chaos$k");
}

sub end_session
{
	my ($out, $err) = llm_session_end($_[0], 90);
	push @wrong, "session $_[0]{app}, $_[0]{file}: did not end" if $err =~ /^session \S+ did not end/m;
	$n_ok += () = $out =~ /^ok$/mg;
	push @wrong, $out =~ /(^wrong: .*)/mg;
	while ($err =~ /ERROR:  (.*)|FATAL:  (.*)|(connection to server was lost|server closed.*)/g)
	{
		my $line = $1 // $2 // $3;
		my $state = $line =~ /^(\w{5}): / ? $1 : $line;
		$n_errors{$state}++;
		push @wrong, "$_[0]{file}: $line" unless $explained{$state} && ($state ne 'XX000' || $line =~ $internal)
		  || $line =~ /connection to server was lost|server closed/;
	}
	return;
}

my $end = time() + 60 * $minutes;
my $warm = time() + 10 * $minutes;
my @sessions = map { begin_session($_) } 0 .. $n_sessions - 1;
while (time() < $end)
{
	my $i = 2 * int rand(@events / 2);
	$n_done{ $events[$i] }++;
	$events[ $i + 1 ]->();
	foreach my $k (0 .. $#sessions)
	{
		next unless llm_gone($sessions[$k]{pid});
		end_session($sessions[$k]);
		$sessions[$k] = begin_session($k);
	}
	push @wrong, 'the witness got wrong rows' unless rand() < 0.9 || $witness->query($ask) =~ /^0?$/;
	%before = (memory => memory($backend), fds => descriptors($backend)) if !%before && time() > $warm;
	sleep rand 0.15;
}
kill 'CONT', llm_processes($node, engines => 1);
end_session($_) foreach @sessions;
note join ', ', map { "$_ $n_done{$_}" } sort keys %n_done;
note join ', ', map { "$_ $n_errors{$_}" } sort keys %n_errors;
note "$n_ok statements were right";

cmp_ok($n_ok, '>', 30 * $minutes, 'statements were answered');
is(scalar(@wrong), 0, 'no row is wrong, no error is without an explanation') or diag join "\n", @wrong[ 0 .. ($#wrong > 9 ? 9 : $#wrong) ];
$sql->('DELETE FROM llm.quotas; SELECT llm_engine_restart()');
llm_engine_pid($node);
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM llm.jobs WHERE state IN ('queued', 'running')}), 'every job has ended')
  or diag $node->safe_psql('postgres', q{SELECT 'jobs', owner, model, state, sqlstate, message, count(*), min(attempts), max(attempts), min(not_before), max(not_before)
	FROM llm.jobs WHERE finished IS NULL GROUP BY 2, 3, 4, 5, 6 UNION ALL SELECT 'worker', owner, pid::text, state, reason, NULL, 0, 0, 0, until, clock_timestamp() FROM llm.job_workers});
my $shown = q{TABLE llm.enrichments; TABLE llm.failed_rows; TABLE llm.job_workers};
ok($node->poll_query_until('postgres', q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments WHERE name = 'stays'}), 'the standing enrichment that stays has done all')
  or diag $node->safe_psql('postgres', $shown);
note 'rows that failed: ' . $node->safe_psql('postgres', q{SELECT string_agg(sqlstate || ' ' || message, ', ') FROM llm.failed_rows WHERE target = 'u'});
is($node->safe_psql('postgres', q{SELECT count(*) FROM llm.failed_rows WHERE target = 'u' AND sqlstate NOT IN ('53200', '55P03', '58000', 'XX000')}), '0', 'and no row failed by itself');
is($node->safe_psql('postgres', q{SELECT count(*) FROM notes n WHERE u IS DISTINCT FROM body AND NOT EXISTS (SELECT FROM llm.failed_rows WHERE target = 'u' AND (key ->> 'id')::int = n.id)}), '0', 'each row has its answer');
$sql->($_) foreach q{SELECT llm_enrich_retry_failed('stays')}, q{SELECT llm_enrich_create('standing', 'notes', 's', prompt => '{body}')}, q{UPDATE notes SET s = NULL WHERE s <> body}, q{SELECT llm_enrich_resume('standing', true)},
  q{CALL llm_enrich('notes', 'a', prompt => '{body}', options => '{"max_attempts": 1000}')};
ok($node->poll_query_until('postgres', q{SELECT count(*) = 2 FROM llm.enrichments WHERE state = 'active' AND pending = 0}), 'every row of the other one is done')
  or diag $node->safe_psql('postgres', $shown);
is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE a IS DISTINCT FROM body), count(*) FILTER (WHERE s IS DISTINCT FROM body), count(*) FILTER (WHERE u IS DISTINCT FROM body), (SELECT count(*) FROM llm.enrich_queue), (SELECT count(*) FROM llm.failed_rows) FROM notes}),
	'0|0|0|0|0', 'all notes have their answers, nothing is queued, nothing has failed') or diag $node->safe_psql('postgres', $shown);
my $jobs = $node->safe_psql('postgres', q{SELECT coalesce(state, 'lost'), coalesce(sqlstate, '-'), count(*),
	bool_and(CASE state WHEN 'done' THEN (llm_job_result(job)).text = prompt WHEN 'cancelled' THEN job IN (SELECT job FROM recalled)
		WHEN 'failed' THEN sqlstate IN ('42501', '42704', '53200', '55P03', '57P01', '58000') ELSE false END)
	FROM tasks FULL JOIN llm.jobs ON id = job GROUP BY 1, 2, job IS NULL ORDER BY 1, 2});
like($jobs, qr/^(?:\S+\|t\n?)*$/, 'with what it was asked for, or in a way that is explained; and none is nobody\'s');
note $jobs;
# what was asked in the chaos is asked again, both ways
is($node->safe_psql('postgres', q{SET llm_infer.temperature = 0; CREATE TABLE again AS SELECT format('q%s ', k) || body AS b FROM docs, generate_series(1, } . $n_statements . q{, 97) k WHERE id <= 40;
	SET llm_infer.memo = on; CREATE TABLE kept AS SELECT b, llm_generate_result(b) AS r FROM again; SET llm_infer.memo = off; CREATE TABLE asked AS SELECT b, llm_generate_result(b) AS r FROM again;
	SELECT count(*) FROM kept k FULL JOIN asked a USING (b) WHERE ((k.r).text, (k.r).finish_reason, (k.r).prompt_tokens, (k.r).completion_tokens) IS DISTINCT FROM ((a.r).text, (a.r).finish_reason, (a.r).prompt_tokens, (a.r).completion_tokens)}), '0', "the memo's answers are the engine's");
cmp_ok($node->safe_psql('postgres', q{SELECT hits FROM llm.stat_memo}), '>', 0, 'and some were of the memo');
ok($node->poll_query_until('postgres', q{SELECT pending = 0 AND entries = n AND bytes = sum FROM llm.stat_memo, (SELECT count(*) AS n, coalesce(sum(bytes), 0) AS sum FROM llm.memo) m}), 'which knows its size')
  or diag $node->safe_psql('postgres', q{SELECT s.*, m.* FROM llm.stat_memo s, (SELECT count(*), sum(bytes) FROM llm.memo) m});
note $node->safe_psql('postgres', q{SELECT format('memo: hits %s, misses %s, kept %s, lost %s, evicted %s, entries %s', hits, misses, kept, lost, evicted, entries) FROM llm.stat_memo});
cmp_ok(memory($backend) - $before{memory}, '<', 4096, 'memory of a session is flat');
cmp_ok(descriptors($backend), '<=', $before{fds} + 1, 'its descriptors too');
is($node->safe_psql('postgres', 'SELECT coalesce(sum(in_flight), 0) FROM llm.stat_users'), '0', 'nothing is counted as in flight');
is($node->safe_psql('postgres', q{SELECT count(*) FROM llm.stat_activity WHERE state <> 'idle'}), '0', 'nobody is busy');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND pid <> pg_backend_pid()}), '0', 'no lock is left');
my @odd = grep { /leak|not closed|refcount|still referenced|TRAP|PANIC|out of memory|AddressSanitizer|runtime error|signal 11/ && !/engine process \d+ was terminated/ }
  split /\n/, slurp_file($node->logfile);
is(join("\n", @odd[ 0 .. ($#odd > 4 ? 4 : $#odd) ]), '', 'the log has no word of leaks or crashes');
$witness->quit;
llm_is_well($node, 'chaos');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
