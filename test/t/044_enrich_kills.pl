# Any process dies by kill -9, at random instants, while 2,000 rows are enriched and jobs run beside that: by one caller, by three at
# once, by a standing enrichment. Whoever called calls again. In the end every row was written once, with the answer of an
# undisturbed run, and every job has its own. Three rounds; with scripts/test --full thirty.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use List::Util qw(shuffle);
use Time::HiRes qw(sleep time);

my $seed = $ENV{LLM_TEST_SEED} || time() % 100000;
my $n_rounds = $ENV{LLM_TEST_FULL} ? 30 : 3;
my ($n_rows, $n_kills) = (2000, 3); # half of the kinds: no engine dies twice, or what it worked on alone would be blamed
srand($seed);
diag "$n_rounds rounds, seed $seed";

my $node = llm_cluster('kills', fault => 'slow_step=1', conf => 'max_connections = 40');
my $resets = 0;

sub one { return scalar $node->safe_psql('postgres', $_[0]); }

# A trigger counts the writes that were committed.
my $prompt = q{expr => $$'@slow=2 ' || left(md5(id::text), 12)$$, seed => 7};
$node->safe_psql('postgres', qq{
	CREATE TABLE docs (id int PRIMARY KEY, undisturbed text, a text);
	INSERT INTO docs SELECT i FROM generate_series(1, $n_rows) i;
	CALL llm_enrich('docs', 'undisturbed', $prompt);
	CREATE TABLE writes (id int);
	CREATE TABLE tasks (job bigint, prompt text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO writes VALUES (NEW.id); RETURN NULL; END';
	CREATE TRIGGER note AFTER UPDATE OF a ON docs FOR EACH ROW WHEN (NEW.a IS NOT NULL) EXECUTE FUNCTION note()});

# ---- the callers ----

my $what = qq{'docs', 'a', $prompt, batch_size => 25, concurrency => 40};
my $call = "CALL llm_enrich($what)";
my (@callers, $n_calls);

# Each caller whose call has died calls again; those that have come to their end are taken out.
sub call_again
{
	foreach my $i (reverse 0 .. $#callers)
	{
		next if defined $callers[$i] && !llm_gone($callers[$i]{pid});
		my ($out, $err) = defined $callers[$i] ? llm_session_end($callers[$i]) : ('', '');
		if ($err =~ / wrote \d+ rows of "docs", 0 failed, 0 changed/)
		{
			splice @callers, $i, 1;
			next;
		}
		$n_calls++;
		$callers[$i] = llm_session($node, $call);
	}
	return @callers == 0;
}

# ---- the deaths ----

# without a caller somebody who has nothing to do with it
my $bystander;
my $of = sub { return one("SELECT pid FROM pg_stat_activity WHERE $_[0] ORDER BY random() LIMIT 1") };
my %victims = (
	backend => sub {
		return $of->(q{query LIKE 'CALL llm_enrich%' AND state = 'active'}) if @callers;
		$bystander //= llm_session($node, 'SELECT pg_sleep(60)');
		return llm_backend($node, $bystander);
	},
	worker => sub { $of->(q{backend_type = 'llm_infer worker'}) },
	launcher => sub { $of->(q{backend_type = 'llm_infer launcher'}) },
	supervisor => sub { $of->(q{backend_type = 'llm_infer supervisor'}) },
	engine => sub { (llm_processes($node, engines => 1))[0] },
	postmaster => sub { (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0] });

# One of a kind dies, while jobs run; the server is up again afterwards.
sub death
{
	my ($kind) = @_;
	one(q{WITH p AS MATERIALIZED (SELECT repeat('job ' || i || ' ', 6) AS p FROM generate_series(1, 20) i)
		INSERT INTO tasks SELECT llm_job_submit(p), p FROM p});
	my $pid = llm_wait_for(sub { call_again(); $victims{$kind}->() }, 10);
	return fail("there is a $kind to kill") unless $pid;
	kill 'KILL', $pid;
	if ($kind eq 'postmaster')
	{
		$node->kill9;
		ok(llm_wait_for(sub { !llm_processes($node) }), 'without the postmaster all others end') or diag join ' ', llm_processes($node);
		llm_wait_for(sub { !-e "/proc/$pid" }); # whoever sees its id takes it for another postmaster
		$node->start;
	}
	elsif ($kind ne 'engine')
	{
		$resets++;
		llm_wait_for(sub { llm_resets($node) == $resets && one('SELECT true') });
	}
	llm_session_end($bystander) if $bystander;
	$bystander = undef;
	return;
}

# ---- rounds ----

my @kinds;
foreach my $round (1 .. $n_rounds)
{
	my $n_callers = (0, 1, 3)[ $round % 3 ];
	# of a standing one half is backfill, half is queued
	$node->safe_psql('postgres', 'TRUNCATE writes, tasks; UPDATE docs SET a = NULL WHERE ' . ($n_callers ? 'true' : q{id % 2 = 0; UPDATE docs SET a = '' WHERE a IS NULL AND id % 2 = 1;}
		  . qq{TRUNCATE writes; SELECT llm_enrich_create('standing', $what); UPDATE docs SET a = NULL WHERE id % 2 = 1}));
	@callers = (undef) x $n_callers;
	$n_calls = 0;
	my @told;
	foreach my $at (sort { $a <=> $b } map { int rand 0.9 * $n_rows } 1 .. $n_kills)
	{
		@kinds = shuffle(sort keys %victims) unless @kinds;
		my $kind = shift @kinds;
		llm_wait_for(sub { ($n_callers && call_again()) || one("SELECT count(a) >= $at FROM docs") eq 't' });
		sleep rand 0.03;
		death($kind);
		push @told, "$kind at $at";
	}
	llm_wait_for(\&call_again, 60);
	ok(llm_wait_for(sub { one(q{SELECT state = 'active' AND pending = 0 FROM llm.enrichments}) eq 't' }, 60), 'a standing one: all is done')
	  || diag(one('TABLE llm.enrichments; TABLE llm.job_workers; SELECT * FROM llm.enrich_queue')) unless $n_callers;
	note "round $round: $n_callers callers, @{[ join ', ', @told ]}, $n_calls calls";
	is(one(q{SELECT count(*) FILTER (WHERE a = undisturbed), (SELECT count(*) FROM writes), (SELECT count(DISTINCT id) FROM writes),
		(SELECT count(*) FROM llm.failed_rows), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') FROM docs}),
		"$n_rows|$n_rows|$n_rows|0|0", "round $round: every row was written once, as in an undisturbed run");
	ok(llm_wait_for(sub { one(q{SELECT count(*) = 0 FROM llm.jobs WHERE finished IS NULL}) eq 't' }), 'every job has ended');
	is(one('SELECT count(*), count(*) FILTER (WHERE (llm_job_result(job)).text = prompt) FROM tasks'), join('|', (20 * $n_kills) x 2), 'with its answer')
	  or diag one(q{SELECT j.state, attempts, sqlstate, message, (result).text, count(*), submitted FROM tasks JOIN llm.job_queue j ON id = job WHERE (result).text IS DISTINCT FROM tasks.prompt GROUP BY 1, 2, 3, 4, 5, 7});
	one(q{SELECT llm_enrich_drop('standing')}) unless $n_callers;
	llm_is_well($node, "round $round", resets => $resets);
}
is(one('SELECT count(DISTINCT undisturbed) FROM docs'), $n_rows, 'no two answers were the same');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
