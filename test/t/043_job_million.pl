# Many jobs: what a claim reads does not grow with the queue, nor does the table with jobs that are done; limits are counted
# without counting all for each job. 3,000 jobs, 1,000,000 with --full, LLM_JOBS for another number.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = $ENV{LLM_JOBS} // ($ENV{LLM_TEST_FULL} ? 1_000_000 : 3_000);
my $node = llm_cluster('million', conf => <<'CONF');
autovacuum = on
autovacuum_naptime = 1s
autovacuum_vacuum_cost_delay = 0
max_wal_size = 8GB
llm_infer.job_retention = 3600
CONF

sub one { return scalar $node->safe_psql('postgres', $_[0]); }
sub reads { return one(q{SELECT idx_blks_read + idx_blks_hit + heap_blks_read + heap_blks_hit FROM pg_statio_user_tables WHERE relid = 'llm.job_queue'::regclass}); }
sub size { return one(q{SELECT pg_total_relation_size('llm.job_queue')}); }
sub fill
{
	my ($due) = @_;
	one(qq{INSERT INTO llm.job_queue (id, owner, rank, due, state, max_attempts, submitted, model, prompt, max_tokens, seed)
		SELECT nextval('llm.job_ids'), 'postgres'::regrole, 0, $due, 'queued', 5, now(), 'echo', 'x', 1, 1 FROM generate_series(1, $n)});
	return;
}
sub idle { return llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('llm_infer worker', 'llm_infer launcher')}) eq '0' }); }
# Blocks that the claims and writes of 50 jobs read, each of its own.
sub cost
{
	my ($before, $m) = (reads(), 50);
	one(qq{DO \$\$DECLARE i bigint; BEGIN FOR k IN 1 .. $m LOOP i := llm_job_submit('x', max_tokens => 1); COMMIT; PERFORM llm_job_wait(i); COMMIT; END LOOP; END\$\$});
	# the worker and the launcher have told the statistics when they end; beside others that are queued the launcher stays
	$_[0] ? idle() : sleep 3;
	return (reads() - $before) / $m;
}

one('ALTER TABLE llm.job_queue SET (autovacuum_enabled = off)'); # what it reads would count
my $empty = cost(1);
fill(q{now() + interval '1 day'});
my $full = cost(0);
one('ALTER TABLE llm.job_queue RESET (autovacuum_enabled)');
cmp_ok($full, '<', 3 * $empty + 60, "a job beside $n that are not due reads as much as alone (blocks: $full, alone $empty)");

# A limit that is far away costs little for each job.
one("INSERT INTO llm.quotas (role, max_queued_jobs) VALUES ('postgres', 100000000)");
my $begin = time();
one(q{SELECT count(llm_job_submit('x', options => '{"not_before": "2100-01-01"}')) FROM generate_series(1, 2000)});
my $with = time() - $begin;
one('DELETE FROM llm.quotas');
$begin = time();
one(q{SELECT count(llm_job_submit('x', options => '{"not_before": "2100-01-01"}')) FROM generate_series(1, 2000)});
my $without = time() - $begin;
cmp_ok($with, '<', 3 * $without + 2, sprintf('2,000 jobs with a limit take %.2f s, %.2f s without', $with, $without));

# All become due: they are done in order, at a rate that does not fall, and the table is vacuumed meanwhile.
one(q{DELETE FROM llm.job_queue WHERE due > '2099-01-01'});
one('UPDATE llm.job_queue SET due = now() WHERE finished IS NULL; VACUUM llm.job_queue');
my $before = size();
one(q{SELECT llm_job_submit('x', max_tokens => 1)});
my @done = 0;
$begin = time();
my $tenth = $n / 10;
my @took;
my @memory; # of the worker, kB
while ($done[-1] < $n && time() - $begin < $n / 200 + 60)
{
	sleep 0.02;
	push @done, one(q{SELECT count(*) FROM llm.job_queue WHERE state = 'done' AND max_tokens = 1 AND seed = 1});
	my ($kb) = eval { slurp_file('/proc/' . one(q{SELECT pid FROM llm.job_workers WHERE owner = 'postgres'::regrole AND state = 'running'}) . '/status') } =~ /RssAnon:\s+(\d+) kB/;
	push @memory, $kb if $kb && $done[-1] >= $tenth;
	push @took, time() - $begin while @took < 10 && $done[-1] >= $tenth * (@took + 1);
}
is($done[-1], $n, sprintf('all are done: %.0f jobs/s', $n / (time() - $begin)));
my ($early, $late) = ($took[4] - $took[0], $took[9] - $took[5]);
cmp_ok($late, '<', 2 * $early + 2, sprintf('the last four tenths take as long as the first (%.1f s, %.1f s)', $late, $early));
cmp_ok($memory[-1] - $memory[0], '<', 8_000, "the worker's memory is flat (kB: $memory[0], $memory[-1])") if @memory;
cmp_ok(size(), '<', 3 * $before + 10_000_000, "the table is bounded: $before, " . size());
is(one(q{SELECT max(attempts) FROM llm.job_queue}), '1', 'each was run once');

# Their rows go with retention, and what they took is used again.
$node->append_conf('postgresql.conf', 'llm_infer.job_retention = 1');
$node->reload;
idle(); # the next launcher looks at once
my $keep = one(q{SELECT llm_job_submit('@slow=50 @tokens=4000 x', max_tokens => 4000)});
ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.job_queue') <= 2 }, $n / 2000 + 80), 'expired jobs are removed');
ok(llm_wait_for(sub { one(q{SELECT n_dead_tup < 2000 AND (vacuum_count + autovacuum_count) > 1 FROM pg_stat_user_tables WHERE relid = 'llm.job_queue'::regclass}) eq 't' }, 60),
	'autovacuum sees it');
my $after = size();
fill('now()');
cmp_ok(size(), '<=', 1.3 * $after + 4_000_000, 'new jobs take their places');
one("TRUNCATE llm.job_queue");
llm_is_well($node, 'many jobs');
$node->stop;
done_testing();
