# An answer is a function of its request: the same rows through plans and one by one, with and without
# the prefix cache, in small and large batches, beside others, and over engines that are killed.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('equal', conf => <<"CONF");
llm_infer.devices = 'cpu,echo'
llm_infer.model_dir = '$ENV{LLM_TEST_DIR}/golden/models'
llm_infer.threads = 2
CONF

# Rows of one beginning, of another, and of none; some are there twice. Greedy and seeded answers.
$node->safe_psql('postgres', <<'SQL');
SELECT llm_model_register('tiny', 'llama-gqa/model.gguf');
CREATE TABLE ask AS
  SELECT i AS id, CASE i % 3 WHEN 0 THEN repeat('A story of the sea. ', 12) WHEN 1 THEN repeat('To be, or not. ', 8)
    ELSE '' END || 'Row ' || i % 50 AS prompt
  FROM generate_series(1, 60) i;
SQL
my $answers = q{SELECT id, llm_generate(prompt, 'tiny', temperature => 0, max_tokens => 20 + id % 20),
	llm_generate(prompt, 'tiny', temperature => 0.9, seed => id % 50, max_tokens => 16, stop => ARRAY['e', 'an'],
		options => '{"top_p": 0.95, "repetition_penalty": 1.2}') FROM (SELECT * FROM ask ORDER BY };
my $forward = "$answers id) s";

# What a query gives, in the order of ids.
sub rows_of
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', "SELECT * FROM ($sql) a ORDER BY id");
}

my $want = rows_of($forward);
cmp_ok(length $want, '>', 60 * 40, 'there are answers');
isnt(rows_of($forward =~ s/seed => id % 50/seed => 1000 + id % 50/r), $want, 'another seed is another answer');

# ---- the way they are asked ----

is(rows_of($forward), $want, 'again, with a warm cache');
is(rows_of("$answers id DESC) s"), $want, 'in another order');
is($node->safe_psql('postgres', "SET llm_infer.enable_batch = off; $forward"), $want, 'row by row');

# ---- settings ----

sub set
{
	my (%settings) = @_;
	my $offset = -s $node->logfile;
	$node->append_conf('postgresql.conf', "$_ = $settings{$_}") foreach keys %settings;
	$node->reload;
	foreach my $name (keys %settings)
	{
		llm_wait_for(sub { llm_log_since($node, $offset) =~ /parameter "\Q$name\E"/ })
		  or die "$name was not reloaded";
	}
	return;
}

set('llm_infer.prefix_cache' => 'off');
is(rows_of($forward), $want, 'without the prefix cache');
is($node->safe_psql('postgres', 'SELECT kv_pages_cached FROM llm.stat_engine'), '0', 'which holds nothing');
set('llm_infer.prefix_cache' => 'on', 'llm_infer.max_batch_tokens' => 19, 'llm_infer.max_running' => 3);
is(rows_of($forward), $want, 'in steps of 19 tokens of three rows');
set('llm_infer.max_batch_tokens' => 512, 'llm_infer.max_running' => 64);

# The tiny model answers in no time; models take turns, and while this session runs a step of the other
# one takes 20 ms.
sub slow_down
{
	my $s = llm_session($node, q{SELECT llm_generate('@slow=20 @tokens=3900 x', 'echo', max_tokens => 3900)});
	llm_active($node);
	return $s;
}

sub speed_up
{
	my ($s) = @_;
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . llm_backend($node, $s) . ')');
	llm_session_end($s);
	return;
}

# ---- others ----

{
	my $slow = slow_down();
	my @sessions = map { llm_session($node, "$answers id $_) s") } 'ASC', 'ASC', 'DESC';
	my $strange = llm_session($node, $forward =~ s/'Row '|prompt,/repeat('other ', 9) || prompt,/gr);
	llm_active($node, 4);
	$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity
		WHERE application_name = '} . $strange->{app} . q{'});
	speed_up($slow);
	my ($first, $second, $backwards) = map { (llm_session_end($_))[0] } @sessions;
	llm_session_end($strange);
	is($first, $want, 'beside others');
	is($second, $want, 'beside others who ask the same');
	is(join("\n", sort split /\n(?=\d+\|)/, $backwards), join("\n", sort split /\n(?=\d+\|)/, $want),
		'beside others, backwards');
}

# ---- engines that are killed ----

foreach my $batch (qw(on off))
{
	my $engine = llm_engine_pid($node);
	my $slow = slow_down();
	my $s = llm_session($node, "SET llm_infer.enable_batch = $batch; $forward");
	llm_active($node, 2);
	kill 'KILL', $engine;
	speed_up($slow);
	my ($out, $err) = llm_session_end($s);
	is($out, $want, "enable_batch = $batch: the engine is killed and nobody can tell");
	is($err, '', 'not by a message either');
	isnt(llm_engine_pid($node), $engine, 'another engine runs');
}
llm_is_well($node, 'all ways of asking');

done_testing();
