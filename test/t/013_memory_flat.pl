# Memory of backend, supervisor and engine stays flat over many rows, batched, with the prefix cache on:
# 20,000 rows, 100,000 with scripts/test --full, or $LLM_TEST_ROWS; and over prompts of 1 MB.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $rows = $ENV{LLM_TEST_ROWS} || ($ENV{LLM_TEST_FULL} ? 100000 : 20000);
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

# What the code does leaves memory as it was, within limits in kB for backend and engine.
sub flat
{
	my ($name, $code, $max_backend, $max_engine) = @_;
	my %before = map { $_ => memory($_) } $backend, $supervisor, $engine;
	my $begin = time();
	$code->();
	my %grown = map { $_ => memory($_) - $before{$_} } $backend, $supervisor, $engine;
	note sprintf('%s: %.1f s', $name, time() - $begin);
	note "memory before: backend $before{$backend} kB, supervisor $before{$supervisor} kB, engine $before{$engine} kB";
	note "grown by: backend $grown{$backend} kB, supervisor $grown{$supervisor} kB, engine $grown{$engine} kB";
	cmp_ok($grown{$backend}, '<', $max_backend, "$name: memory of the backend");
	cmp_ok($grown{$supervisor}, '<', 256, "$name: memory of the supervisor");
	cmp_ok($grown{$engine}, '<', $max_engine, "$name: memory of the engine");
}

# what is remembered of a statement is small beside what malloc keeps
$session->query_safe(q{SET work_mem = '256kB'});
ask(2000);
flat("$rows rows", sub { is(ask($rows), "$rows|$rows", "$rows rows are answered") }, 1024, 2048);
cmp_ok($node->safe_psql('postgres', 'SELECT cached_tokens FROM llm.stat_engine'), '>', 0, 'the prefix cache was at work');
is(llm_engine_pid($node), $engine, 'with one engine');

# 1 MB each, toasted, read one after the other: more than a batch may read ahead
$session->query_safe(q{CREATE TABLE wide AS SELECT i, repeat(chr(65 + i % 20), 1000000) || i AS body FROM generate_series(1, 200) i});
sub ask_wide
{
	my ($n) = @_;
	return $session->query_safe(qq{SELECT count(llm_generate(body, max_tokens => 2, temperature => i % 2,
		options => '{"truncate": "left"}')) FROM wide WHERE i <= $n});
}
ask_wide(20);
flat('200 prompts of 1 MB', sub { is(ask_wide(200), 200, '200 prompts of 1 MB are answered') }, 4096, 4096);
$session->quit;
llm_is_well($node, 'many rows');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
