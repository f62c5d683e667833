# Settings change by a reload, without a new engine; a small KV store preempts, refuses what can never
# fit, and loses nothing.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('reload', fault => 'slow_step=4', conf => 'max_connections = 20');
my $engine = llm_engine_pid($node);
my $long = q{SELECT llm_generate(array_fill('@tokens=3900 x'::text, ARRAY[12]), max_tokens => 4000)};
# A load makes room for max_running as it was then.
$node->safe_psql('postgres', q{SELECT llm_model_load('echo')});

# Change one setting and reload; waits until the supervisor has read it.
sub set
{
	my ($name, $value) = @_;
	my $offset = -s $node->logfile;
	$node->append_conf('postgresql.conf', "$name = $value");
	$node->reload;
	llm_wait_for(sub { llm_log_since($node, $offset) =~ /parameter "\Q$name\E"/ });
	return llm_log_since($node, $offset);
}

sub running_becomes
{
	my ($n, $name) = @_;
	my $got = '';
	ok(llm_wait_for(sub {
		$got = $node->safe_psql('postgres', 'SELECT running FROM llm.stat_engine');
		return $got eq $n;
	}), $name) or diag("running: $got");
	return;
}

# ---- max_running ----

like(set('llm_infer.max_running', 3), qr/parameter "llm_infer.max_running" changed to "3"/, 'the log shows the change');
{
	my $s = llm_session($node, $long);
	running_becomes(3, 'max_running = 3: three run');
	is($node->safe_psql('postgres', q{SELECT waiting FROM llm.stat_engine}), '9', 'the others wait');
	set('llm_infer.max_running', 10);
	running_becomes(10, 'max_running = 10, while busy: ten run');
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	llm_session_end($s);
}
set('llm_infer.max_running', 2);
is($node->safe_psql('postgres', q{SELECT llm_generate('row ' || i) FROM generate_series(1, 50) i}), llm_answers(50),
	'max_running = 2: all rows are answered');
set('llm_infer.max_batch_tokens', 7);
is($node->safe_psql('postgres', q{SELECT llm_generate('row ' || i) FROM generate_series(1, 20) i}), llm_answers(20),
	'max_batch_tokens = 7: all rows are answered');
set('llm_infer.max_running', 64);
set('llm_infer.max_batch_tokens', 512);
llm_is_well($node, 'new limits of a step');

# ---- prefix_cache ----

{
	# 240 bytes and 20 around them: four full pages
	my $cached = q{SELECT cached_tokens FROM llm_generate_result(repeat('again ', 40), max_tokens => 1)};
	$node->safe_psql('postgres', $cached);
	cmp_ok($node->safe_psql('postgres', $cached), '>', 256, 'a prompt finds its pages');
	set('llm_infer.prefix_cache', 'off');
	is($node->safe_psql('postgres', $cached), '0', 'prefix_cache = off: it does not');
	is($node->safe_psql('postgres', 'SELECT kv_pages_cached FROM llm.stat_engine'), '0', 'and no page is kept');
	set('llm_infer.prefix_cache', 'on');
	like($node->safe_psql('postgres', "$cached; $cached"), qr/^0\n2\d\d$/, 'prefix_cache = on: it does again');

	# a fresh text is asked by one role, then by another: does the second find more than its beginning?
	$node->safe_psql('postgres', 'CREATE ROLE neighbour; GRANT USAGE ON FOREIGN SERVER echo TO neighbour');
	my $n = 0;
	my $shared = sub {
		$n++;
		my $ask = "SELECT cached_tokens FROM llm_generate_result(repeat('text $n ', 40), max_tokens => 1)";
		my ($first, $second) = split /\n/, $node->safe_psql('postgres', "$ask; SET ROLE neighbour; $ask");
		return $second > 100;
	};
	ok(!$shared->(), 'roles do not share pages');
	set('llm_infer.prefix_cache_scope', 'database');
	ok(llm_wait_for($shared), 'prefix_cache_scope = database: they do');
	set('llm_infer.prefix_cache_scope', 'role');
	ok(llm_wait_for(sub { !$shared->() }), 'prefix_cache_scope = role: not any more');
}
llm_is_well($node, 'another prefix_cache');

# ---- an open session ----

{
	my $open = $node->background_psql('postgres');
	$open->query_safe('SET llm_infer.temperature = 0');
	set('llm_infer.temperature', 1);
	set('llm_infer.max_tokens', 3);
	ok(llm_wait_for(sub { $open->query_safe('SHOW llm_infer.max_tokens') eq '3' }), 'an open session sees the change');
	is($open->query_safe(q{SELECT llm_generate('abcdef'), current_setting('llm_infer.temperature')}), 'abc|0', 'and keeps what it has set itself');
	set('llm_infer.temperature', -1);
	set('llm_infer.max_tokens', 256);
	ok(llm_wait_for(sub { $open->query_safe(q{SELECT llm_generate('abcdef')}) eq 'abcdef' }), 'and the next one');
	$open->quit;
}

# ---- what cannot change ----

like(set('llm_infer.devices', "'cpu'"), qr/parameter "llm_infer.devices" cannot be changed without restarting/,
	'devices need a restart');
$node->append_conf('postgresql.conf', "llm_infer.devices = 'echo'");
# refused, and the former value stays: name, bad value, what the log says, former value, a good one again
foreach my $t ([ 'max_running', '0', '0 is outside the valid range', '64', '64' ],
	[ 'max_running', '1025', '1025 is outside the valid range', '64', '64' ],
	[ 'max_batch_tokens', '0', '0 is outside the valid range', '512', '512' ],
	[ 'max_batch_tokens', '8193', '8193 is outside the valid range', '512', '512' ],
	[ 'max_batch_tokens', "'many'", 'invalid value', '512', '512' ],
	[ 'kv_cache_memory', "'-1'", '-1 kB is outside the valid range', '16MB', "'16MB'" ],
	[ 'kv_cache_memory', "'4 pages'", 'invalid value', '16MB', "'16MB'" ])
{
	my ($name, $bad, $says, $former, $good) = @$t;
	my $offset = -s $node->logfile;
	$node->append_conf('postgresql.conf', "llm_infer.$name = $bad");
	$node->reload;
	ok(llm_wait_for(sub { llm_log_since($node, $offset) =~ /\Q$says\E.* "llm_infer.$name"/ }), "$name = $bad is refused")
	  or diag(llm_log_since($node, $offset));
	is($node->safe_psql('postgres', "SHOW llm_infer.$name"), $former, 'and the former one stays');
	$node->append_conf('postgresql.conf', "llm_infer.$name = $good");
}
is(llm_engine_pid($node), $engine, 'all that with one engine');
llm_is_well($node, 'refused settings');

# ---- kv_cache_memory ----

# Pages of 64 tokens after a change, as soon as the model is used again.
sub pages_after
{
	my ($name, $value) = @_;
	set($name, $value);
	return $node->safe_psql('postgres', q{SELECT llm_generate('x'); SELECT kv_pages_total FROM llm.stat_engine}) =~ s/x\n//r;
}

{
	my $few = pages_after('llm_infer.kv_cache_memory', "'512kB'");
	is(pages_after('llm_infer.kv_cache_memory', "'1MB'"), 2 * $few, 'twice the kv_cache_memory is twice the pages for the next request');
}
set('llm_infer.kv_cache_memory', "'2MB'");
set('llm_infer.max_running', 70);
{
	my $s = llm_session($node, $long =~ s/ARRAY\[12\]/ARRAY[80]/r);
	running_becomes(70, 'max_running = 70, more than at the first load: 70 run');
	set('llm_infer.max_batch_tokens', 64);
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	llm_session_end($s);
}
set('llm_infer.max_running', 64);
set('llm_infer.max_batch_tokens', 512);
set('llm_infer.kv_cache_memory', "'4kB'");
my $pages = 0;
ok(llm_wait_for(sub {
	$pages = $node->safe_psql('postgres', q{SELECT llm_generate('x', max_tokens => 0); SELECT kv_pages_total FROM llm.stat_engine}) =~ s/\n//gr;
	return $pages < 64;
}), 'kv_cache_memory: an idle model is loaded again for it') or diag("$pages pages");
is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE t = rpad('', 150, 'row ' || i || ' '))
	FROM (SELECT i, llm_generate('@tokens=150 row ' || i || ' ', options => '{"raw": true}') AS t
	FROM generate_series(1, 16) i) s}), '16|16', 'few pages: every row is right');
cmp_ok($node->safe_psql('postgres', 'SELECT preemptions FROM llm.stat_engine'), '>', 0, 'few pages: some were preempted');
{
	# 12 beginnings of four pages each, in turns, are more than the store holds: in order of the rows
	# each is gone when it comes again
	my $cached = q{SELECT sum((r).cached_tokens) FROM (SELECT llm_generate_result(repeat(chr(65 + i % 12), 260) || i,
		max_tokens => 1, options => '{"raw": true}') AS r FROM generate_series(1, 120) i OFFSET 0) s};
	my $rows = $node->safe_psql('postgres', "SET llm_infer.enable_batch = off; $cached");
	my $groups = $node->safe_psql('postgres', $cached);
	cmp_ok($groups, '>', 2 * $rows, "few pages: rows that begin alike go together ($groups cached tokens, row by row $rows)");
}
like(llm_error($node, q{SELECT llm_generate('@tokens=3000 x', max_tokens => 3000)}),
	qr/ERROR:  53200: .*$pages/, 'a request that can never fit is refused with the numbers');
llm_is_well($node, 'a small KV store');

# ---- engine_timeout ----

set('llm_infer.engine_timeout', "'2500ms'");
{
	my $begin = time();
	my $s = llm_session($node, q{SELECT llm_generate('row ' || i) FROM generate_series(1, 1000) i});
	llm_active($node);
	kill 'STOP', llm_engine_pid($node);
	my ($out, $err) = llm_session_end($s);
	is("$out$err", llm_answers(1000), 'engine_timeout = 2.5 s: a stopped engine is replaced');
	cmp_ok(time() - $begin, '<', 10, 'engine_timeout = 2.5 s: in time');
	isnt(llm_engine_pid($node), $engine, 'engine_timeout = 2.5 s: by another one');
}
set('llm_infer.engine_timeout', "'10s'");
llm_is_well($node, 'a shorter engine_timeout');

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
