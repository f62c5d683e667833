# Streamed answers: pieces come as they are made, an engine that dies in the middle is not seen, and
# whoever stops reading stops the request.
use strict;
use warnings;
use File::Copy qw(copy);
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A step takes 4 ms, so that 3900 tokens take 16 s.
my $node = llm_cluster('stream', fault => 'slow_step=4');
my $endless = q{SELECT llm_generate_stream('@tokens=3900 abcdefg', max_tokens => 3900)};

# An engine that was told to restart has no failures to wait for.
sub begin_anew
{
	my $pid = llm_engine_pid($node);
	$node->safe_psql('postgres', 'SELECT llm_engine_restart()');
	return llm_engine_pid($node, $pid);
}

# A session with an open cursor over a query.
sub cursor_of
{
	my ($sql) = @_;
	my $s = $node->background_psql('postgres');
	$s->query_safe('BEGIN');
	$s->query_safe("DECLARE c CURSOR FOR $sql");
	return $s;
}

# ---- as they come ----

{
	my $begin = time();
	my $s = cursor_of($endless);
	is($s->query_safe('FETCH 1 FROM c'), 'a', 'the first piece');
	is($s->query_safe('FETCH 2 FROM c'), "b\nc", 'the next ones');
	cmp_ok(time() - $begin, '<', 10, 'long before the last');
	is($s->query_safe(q{SELECT llm_generate('beside')}), 'beside', 'other calls of the session go on');
	$s->query_safe('CLOSE c');
	is($s->query_safe('SELECT count(*) FROM llm.stat_activity WHERE pid = pg_backend_pid() AND state <> $$idle$$'),
		'0', 'a closed cursor leaves no request');
	$s->query_safe('COMMIT');
	$s->quit;
	llm_is_well($node, 'a closed cursor');
}

# ---- nobody wants more ----

is($node->safe_psql('postgres', "$endless LIMIT 2"), "a\nb", 'LIMIT');
llm_is_well($node, 'LIMIT');
{
	my $s = llm_session($node, "$endless; SELECT llm_generate('next')");
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014: canceling statement due to user request/, 'a cancelled stream');
	like($out, qr/^next$/m, 'its session goes on');
	llm_is_well($node, 'a cancelled stream');
}
{
	my $s = llm_session($node, "$endless");
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	llm_session_end($s);
	llm_is_well($node, 'a terminated stream');
}

# ---- the engine dies in the middle ----

# Tokens that were generated for anybody, as quotas count them.
sub generated
{
	return $node->safe_psql('postgres', 'SELECT coalesce(sum(generated_tokens), 0) FROM llm.stat_users');
}

my $text = '@tokens=400 ' . join('_', map { "w$_" } 1 .. 60);
my $cost = -generated();
my $whole = $node->safe_psql('postgres', "SELECT llm_generate('$text', max_tokens => 400)");
$cost += generated();
my $stream = "SELECT llm_generate_stream('$text', max_tokens => 400)";

{
	my $pid = begin_anew();
	my $before = generated();
	my $s = cursor_of($stream);
	my $got = $s->query_safe('FETCH 250 FROM c');
	kill 'KILL', $pid;
	llm_engine_pid($node, $pid);
	$got .= "\n" . $s->query_safe('FETCH 5 FROM c');
	begin_anew();
	$got .= "\n" . $s->query_safe('FETCH ALL FROM c');
	is($got =~ s/\n//gr, $whole, 'killed, then restarted: every piece once, in order');
	is(generated() - $before, $cost, 'and charged once');
	$s->query_safe('COMMIT');
	$s->quit;
	llm_is_well($node, 'SIGKILL beside an open stream');
}
{
	my $pid = begin_anew();
	my @sessions = map { llm_session($node,
		"SELECT i, string_agg(p, '') FROM (SELECT i, llm_generate_stream(i || '_of_' || '$text', max_tokens => 300) p
			FROM generate_series(1, 3) i) s GROUP BY i ORDER BY i") } 1 .. 4;
	llm_active($node, 4);
	kill 'SEGV', $pid;
	foreach my $s (@sessions)
	{
		my ($out, $err) = llm_session_end($s);
		my $expected = $node->safe_psql('postgres',
			"SELECT i, llm_generate(i || '_of_' || '$text', max_tokens => 300) FROM generate_series(1, 3) i");
		is($out, $expected, 'killed under several streams: each text whole');
		is($err, '', 'killed under several streams: no error');
	}
	llm_is_well($node, 'SIGSEGV under several streams');
}
{
	begin_anew();
	like(llm_error($node, q{SELECT llm_generate_stream('@crash x')}),
		qr/58000: the request crashed the engine when it ran alone/, 'a stream that crashes the engine is refused');
	llm_is_well($node, 'a stream that crashes the engine');
}

# ---- the next engine has another model ----

my $dir = $node->basedir . '/models';
mkdir $dir or die;
$node->append_conf('postgresql.conf', <<"CONF");
llm_infer.model_dir = '$dir'
llm_infer.devices = 'echo, cpu'
llm_infer.threads = 1
CONF
$node->restart;
sub copy_model
{
	my ($from, $to) = @_;
	copy("$ENV{LLM_TEST_DIR}/golden/models/$from/model.gguf", "$dir/$to") or die "copy: $!";
	return;
}
copy_model('llama-gqa', 'm.gguf');
$node->safe_psql('postgres', q{SELECT llm_model_register('m', 'm.gguf'); SELECT llm_model_load('m')});
{
	# models take turns, and a step of this one takes 50 ms: the answer would take more than ten seconds
	my $beside = llm_session($node, q{SELECT llm_generate('@slow=50 @tokens=3900 x', 'echo', max_tokens => 3900)});
	llm_active($node);
	my $pid = llm_engine_pid($node);
	copy_model('llama-tied-hd32', 'next.gguf');
	my $s = llm_session($node, qq{BEGIN;
		DECLARE c CURSOR FOR SELECT encode(convert_to(llm_generate_stream('hello', 'm', max_tokens => 240,
			temperature => 0, options => '{"raw": true, "ignore_eos": true}'), 'UTF8'), 'hex');
		FETCH 1 FROM c;
		\\! mv '$dir/next.gguf' '$dir/m.gguf'; kill -KILL $pid
		FETCH ALL FROM c});
	my ($out, $err) = llm_session_end($s);
	like($err, qr/XX000: the engine was lost and the next one gave another text/, 'another text is an error');
	like($out, qr/^[0-9a-f]+$/m, 'another text: what came before was given out');
	$node->safe_psql('postgres', 'SELECT pg_cancel_backend(' . llm_backend($node, $beside) . ')');
	llm_session_end($beside);
	llm_is_well($node, 'another text');
}

$node->stop;
done_testing();
