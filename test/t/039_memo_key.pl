# What the memo answers is what the engine would: over engines, files that are replaced, roles and scopes, statements
# that fail or are cancelled, jobs; and it loads no model for what it knows.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('memo_key', start => 0);
my $dir = $node->basedir . '/models';
my $golden = "$ENV{LLM_TEST_DIR}/golden/models";
mkdir $dir or die;
$node->append_conf('postgresql.conf', <<"CONF");
llm_infer.model_dir = '$dir'
llm_infer.devices = 'echo, cpu'
llm_infer.threads = 1
llm_infer.memo = on
llm_infer.temperature = 0
CONF
$node->start;
llm_extension($node);
$node->safe_psql('postgres', q{CREATE TABLE docs AS SELECT i AS id FROM generate_series(1, 1000) i; ANALYZE docs});

# Output of a statement, and how many requests the engine had from it.
sub ask
{
	my ($sql) = @_;
	my $before = llm_requests($node);
	my $out = $node->safe_psql('postgres', $sql);
	return ($out, llm_requests($node) - $before);
}

sub is_asked
{
	my ($sql, $want, $n, $name) = @_;
	my ($out, $requests) = ask($sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($out, $want, $name);
	is($requests, $n, "$name: $n requests");
	return;
}

# ---- engines and servers that end ----

my $rows = q{SELECT llm_generate('row ' || id) FROM docs ORDER BY id LIMIT 50};
is_asked($rows, llm_answers(50), 50, 'cold');
is_asked($rows, llm_answers(50), 0, 'warm');
my $engine = llm_engine_pid($node);
kill 'KILL', $engine;
llm_engine_pid($node, $engine);
is_asked($rows, llm_answers(50), 0, 'another engine');
$node->restart;
llm_engine_pid($node);
is_asked($rows, llm_answers(50), 0, 'another server');
kill 'STOP', $engine = llm_engine_pid($node);
is($node->safe_psql('postgres', "SET statement_timeout = '5s'; $rows"), llm_answers(50), 'an engine that hangs is not needed');
kill 'CONT', $engine;
is_asked($rows =~ s/50/75/r, llm_answers(75), 25, 'half warm');

# ---- statements that end early ----

like(llm_error($node, q{SELECT llm_generate(CASE id WHEN 900 THEN '@error=x' ELSE 'fails ' || id END) FROM docs ORDER BY id}),
	qr/XX000: x/, 'a statement that fails at row 900 of 1000');
my ($out, $n) = ask(q{SELECT count(llm_generate('fails ' || id)) FROM docs});
cmp_ok($n, '<=', 101, "costs the rest the next time: $n requests");
cmp_ok($n, '>=', 1, 'and the row that failed');

my $s = llm_session($node, q{SELECT llm_generate('@slow=1 cancelled ' || id) FROM docs ORDER BY id});
my $pid = llm_backend($node, $s);
llm_wait_for(sub { $node->safe_psql('postgres', "SELECT generated_tokens > 500 FROM llm.stat_activity WHERE pid = $pid") eq 't' })
  or die 'no answers came';
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
(undef, my $err) = llm_session_end($s);
like($err, qr/57014/, 'a statement that is cancelled');
(undef, $n) = ask(q{SELECT count(llm_generate('@slow=1 cancelled ' || id)) FROM docs WHERE id <= 100});
cmp_ok($n, '<', 100, "keeps what had come: $n requests of 100");
llm_is_well($node, 'statements that end early');

# ---- who shares ----

$node->safe_psql('postgres', q{CREATE ROLE one; CREATE ROLE two; GRANT SELECT ON docs TO one, two;
	GRANT USAGE ON FOREIGN SERVER echo TO one, two});
foreach my $case ([ 'role', 10 ], [ 'database', 0 ], [ 'cluster', 0 ])
{
	my ($scope, $want) = @$case;
	my $offset = -s $node->logfile;
	$node->append_conf('postgresql.conf', "llm_infer.prefix_cache_scope = '$scope'");
	$node->reload;
	$scope eq 'role' || llm_wait_for(sub { llm_log_since($node, $offset) =~ /parameter "llm_infer.prefix_cache_scope"/ })
	  or die 'not reloaded';
	my $sql = "SELECT count(llm_generate('$scope ' || id)) FROM docs WHERE id <= 10";
	my ($first, $second) = map { (ask("SET ROLE $_; $sql; RESET ROLE"))[1] } qw(one two);
	is("$first $second", "10 $want", "scope $scope: what two roles cost");
}

# ---- files that are replaced ----

my @files = map { slurp_file("$golden/$_/model.gguf") } qw(llama256-q8_0 llama256-q4_0);

sub put
{
	my ($i, $in_place) = @_;
	my $new = $in_place ? "$dir/m.gguf" : "$dir/m.new";
	open my $f, '>', $new or die;
	binmode $f;
	print $f $files[$i];
	close $f or die;
	$in_place || rename($new, "$dir/m.gguf") or die;
	return;
}

my $greedy = q{SELECT llm_generate('a b ' || i, 'm', max_tokens => 8, options => '{"raw": true}') FROM generate_series(1, 3) i};
put(0);
$node->safe_psql('postgres', q{SELECT llm_model_register('m', 'm.gguf')});
my @want = map { put($_); $node->safe_psql('postgres', q{SELECT llm_model_unload('m')}); (ask("SET llm_infer.memo = off; $greedy"))[0] } 0, 1;
isnt($want[0], $want[1], 'two files that answer otherwise');
is_asked($greedy, $want[1], 3, 'of a file');
is_asked($greedy, $want[1], 0, 'of a file, again');
put(0);
is_asked($greedy, $want[0], 3, 'at once of the file in its place');
is_asked($greedy, $want[0], 0, 'of the file in its place, again');
put(1, 1);
is_asked($greedy, $want[1], 0, 'the first again, written over the other: its answers are known');
$node->safe_psql('postgres', q{SELECT llm_model_unload('m')});
is_asked($greedy, $want[1], 0, 'of a model that is not loaded');
is($node->safe_psql('postgres', q{SELECT state FROM llm.models WHERE name = 'm'}), 'unloaded', 'which is not loaded for that');
unlink "$dir/m.gguf" or die;
like(llm_error($node, $greedy), qr/55000: .*m\.gguf/s, 'a file that is gone answers nothing');
put(0);
$node->safe_psql('postgres', q{SELECT llm_model_register('f32', 'm.gguf', '{"kv_type": "f32"}');
	SELECT llm_model_register('other', 'm.gguf', '{"chat_template": "{{ messages[0].content }}!"}')});
foreach my $model (qw(f32 other))
{
	(undef, $n) = ask($greedy =~ s/'m'/'$model'/r);
	is($n, 3, "model $model of the same file is another one");
}

# ---- jobs ----

my $jobs = q{SELECT count(*) FROM llm_job_submit(ARRAY(SELECT 'job ' || i FROM generate_series(1, 20) i), 'echo')};
my $ends = q{SELECT count(*), count(DISTINCT (llm_job_result(id)).text) FROM llm.jobs WHERE state = 'done'};
my $before = $node->safe_psql('postgres', 'SELECT requests FROM llm.stat_engine');
foreach my $i (1, 2)
{
	$node->safe_psql('postgres', $jobs);
	ok(llm_wait_for(sub { $node->safe_psql('postgres', $ends) eq 20 * $i . '|20' }), 'jobs, all done');
}
is($node->safe_psql('postgres', 'SELECT requests FROM llm.stat_engine') - $before, 20, 'the second time from the memo');
(undef, $n) = ask(q{SELECT count(llm_generate('job ' || i, 'echo')) FROM generate_series(1, 20) i});
is($n, 0, 'which queries share');

# ---- an engine that does not tell what its models are ----

$engine = llm_engine_pid($node);
kill 'KILL', $engine;
kill 'STOP', $engine = llm_engine_pid($node, $engine);
my $begin = time();
like(llm_error($node, q{SELECT llm_generate('job 1', 'echo', options => '{"timeout": 500}')}),
	qr/55P03: request was not answered within 500 ms/, 'a statement waits for it as long as for an answer');
cmp_ok(time() - $begin, '<', 3, 'and not longer');
$node->safe_psql('postgres', $jobs);
$node->safe_psql('postgres', 'SELECT pg_sleep(1.5)');
kill 'CONT', $engine;
ok(llm_wait_for(sub { $node->safe_psql('postgres', $ends) eq '60|20' }), 'jobs ask it instead');
(undef, $n) = ask(q{SELECT count(llm_generate('job ' || i, 'echo')) FROM generate_series(1, 20) i});
is($n, 0, 'and all is as before');

# The rows are as many as one claim takes, and their worker waits longer than a job's before it goes to the engine.
$node->safe_psql('postgres', q{CREATE TABLE kept (id int PRIMARY KEY, body text, answer text);
	SELECT llm_enrich_create('kept', 'kept', 'answer', prompt => '{body}', model => 'echo', temperature => 0)});
foreach my $want (10, 0)
{
	if ($want == 0)
	{
		ok(llm_wait_for(sub { $node->safe_psql('postgres', 'SELECT count(*) FROM llm.job_workers') eq '0' }), 'no worker is left');
		kill 'KILL', $engine = llm_engine_pid($node);
		kill 'STOP', $engine = llm_engine_pid($node, $engine);
	}
	$before = $want ? $node->safe_psql('postgres', 'SELECT requests FROM llm.stat_engine') : 0;
	$node->safe_psql('postgres', q{DELETE FROM kept; INSERT INTO kept SELECT i, 'kept ' || i FROM generate_series(1, 10) i; SELECT pg_sleep(2.5)});
	kill 'CONT', $engine;
	ok(llm_wait_for(sub { $node->safe_psql('postgres', 'SELECT count(answer) FROM kept') eq '10' }), 'rows of an enrichment');
	is($node->safe_psql('postgres', 'SELECT requests FROM llm.stat_engine') - $before, $want, "cost $want requests");
}
llm_is_well($node, 'all that');

$node->stop;
done_testing();
