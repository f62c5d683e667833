# Memory of backend, supervisor and engine stays flat over many rows, batched, with the prefix cache on:
# 20,000 rows, or 100,000 with scripts/test --full.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $rows = $ENV{LLM_TEST_FULL} ? 100000 : 20000;
my $node = llm_cluster('memory', conf => "max_connections = 20\njit = off\nllm_infer.kv_cache_memory = '256kB'");
my $engine = llm_engine_pid($node);
my $supervisor = llm_supervisor_pid($node);
my $session = $node->background_psql('postgres');
my $backend = $session->query_safe('SELECT pg_backend_pid()');

# Memory that is a process's own, in kB: shared memory is counted to nobody.
sub memory
{
	my ($pid) = @_;
	my $rollup = slurp_file("/proc/$pid/smaps_rollup");
	my $kb = 0;
	$kb += $1 while $rollup =~ /^Private_(?:Clean|Dirty):\s+(\d+) kB/mg;
	return $kb;
}

# Prompts begin in one of 20 ways, all are different, every other one is greedy and remembered, and the
# store of keys and values is small: pages
# are shared, evicted and computed again all the time.
sub ask
{
	my ($n) = @_;
	return $session->query_safe(qq{SELECT count(*), count(*) FILTER (WHERE t = p) FROM
		(SELECT p, llm_generate(p, temperature => i % 2) AS t FROM (SELECT i, repeat(chr(65 + i % 20), 70) || i AS p FROM generate_series(1, $n) i) q
		OFFSET 0) s});
}

# what is remembered of a statement is small beside what malloc keeps
$session->query_safe(q{SET work_mem = '256kB'});
ask(2000);
my %before = map { $_ => memory($_) } $backend, $supervisor, $engine;
my $begin = time();
is(ask($rows), "$rows|$rows", "$rows rows are answered");
note sprintf('%d rows, %.1f s', $rows, time() - $begin);
my %grown = map { $_ => memory($_) - $before{$_} } $backend, $supervisor, $engine;
note "memory before: backend $before{$backend} kB, supervisor $before{$supervisor} kB, engine $before{$engine} kB";
note "grown by: backend $grown{$backend} kB, supervisor $grown{$supervisor} kB, engine $grown{$engine} kB";
cmp_ok($grown{$backend}, '<', 1024, 'memory of the backend: grown by less than 1 MB');
cmp_ok($grown{$supervisor}, '<', 256, 'memory of the supervisor: less than 256 kB');
cmp_ok($grown{$engine}, '<', 2048, 'memory of the engine: less than 2 MB');
cmp_ok($node->safe_psql('postgres', 'SELECT cached_tokens FROM llm.stat_engine'), '>', 0, 'the prefix cache was at work');
is(llm_engine_pid($node), $engine, 'with one engine');
$session->quit;
llm_is_well($node, 'many rows');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
