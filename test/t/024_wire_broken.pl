# What passes between a backend and the engine is cut after any number of bytes, comes byte by byte, stops,
# or is changed: rows have their own answers, nobody crashes or waits for ever, nothing stays behind.
use strict;
use warnings;
use LlmCluster;
use LlmProxy;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('wire', conf => "max_connections = 20\nllm_infer.engine_timeout = '2s'");
my $engine = llm_engine_pid($node);
$node->safe_psql('postgres', q{
	CREATE FUNCTION wrong_rows(who text, n int) RETURNS bigint LANGUAGE plpgsql AS $$
	DECLARE
		wrong bigint := 0;
	BEGIN
		FOR i IN 1 .. n LOOP
			wrong := wrong + (SELECT count(*) FILTER (WHERE t IS DISTINCT FROM p) FROM
				(SELECT p, llm_generate(p) AS t FROM (SELECT who || ' ' || i || ' row ' || j AS p FROM generate_series(1, 5) j) q OFFSET 0) s);
		END LOOP;
		RETURN wrong;
	END $$});

# Sessions through a proxy with this plan; SQL may use WHO. Gives what each printed.
sub through_proxy
{
	my ($sql, $n_sessions, $plan) = @_;
	my $begin = time();
	my $proxy = LlmProxy->begin($node, $plan);
	my @s = map { llm_session($node, $sql =~ s/WHO/who$_/gr) } 1 .. $n_sessions;
	my @got = map { my ($out, $err) = llm_session_end($_); "$out$err" } @s;
	$proxy->end;
	note sprintf '%.1f s', time() - $begin;
	return @got;
}

sub is_whole
{
	my ($what) = @_;
	is(llm_engine_pid($node), $engine, "$what: the engine lives");
	llm_is_well($node, $what);
	return;
}

# ---- cut ----

# Sizes come in an order that lets a request through now and then: it is given up when it was lost 16 times.
foreach my $to (qw(backend engine))
{
	my @got = through_proxy(q{SELECT wrong_rows('WHO', 60)}, 4,
		sub { return { to => $to, cut => 1 + $_[0] * 389 % 1201 } });
	is("@got", '0 0 0 0', "cut after some bytes to the $to: every row has its own answer");
	is_whole("cut after some bytes to the $to");
}
{
	my $text = join ' ', 1 .. 60;
	my ($got) = through_proxy(qq{SELECT count(*) FROM generate_series(1, 12) i
		WHERE (SELECT string_agg(t, '') FROM llm_generate_stream('$text') t) <> '$text'}, 1,
		sub { return { to => 'backend', cut => 40 + $_[0] * 389 % 3001 } });
	is($got, '0', 'streams that are cut go on where they were');
	is_whole('streams that are cut');
}
{
	my $begin = time();
	my ($got) = through_proxy(q{SELECT llm_generate('x')}, 1, sub { return { to => 'backend', cut => 0 } });
	like($got, qr/ERROR:  08006: no llm_infer engine was available for 2000 ms\n/,
		'no connection gets through: 08006');
	cmp_ok(time() - $begin, '<', 14, 'no connection gets through: in time');
	is_whole('no connection gets through');
}
{
	my ($got) = through_proxy(q{SELECT llm_generate('x')}, 1, sub { return { to => 'backend', cut => 60 } });
	like($got, qr/ERROR:  08006: .*again and again/, 'greeted, but never answered: given up');
	is_whole('greeted, but never answered');
}

# ---- slow, and silent ----

{
	my @got = through_proxy(q{SELECT wrong_rows('WHO', 6)}, 2,
		sub { return { to => $_[0] % 2 ? 'engine' : 'backend', drip => 0 } });
	is("@got", '0 0', 'byte by byte: every row has its own answer');
	is_whole('byte by byte');
}
foreach my $to (qw(engine backend))
{
	my ($got) = through_proxy(q{SET statement_timeout = '300ms'; SELECT wrong_rows('WHO', 60); RESET statement_timeout; SELECT wrong_rows('WHO', 2)},
		1, sub { return $_[0] == 0 ? { to => $to, mute => 200 } : undef });
	like($got, qr/^0\S+ ERROR:  57014: /, "silence towards the $to: a statement can be cancelled, the next one is answered");
	($got) = through_proxy(q{SELECT llm_generate('x', options => '{"timeout": 50}')}, 1, sub { return { to => $to, mute => 70 } });
	like($got, qr/^\S+ ERROR:  55P03: /, "silence towards the $to: a call has its timeout");
	is_whole("silence towards the $to");
}

# ---- changed ----

# A text may come out changed, a request may never be answered: what counts is that it ends.
foreach my $to (qw(engine backend))
{
	my $sql = join ";\n", q{SET statement_timeout = '150ms'; SET llm_infer.timeout = '100ms'},
	  map { "SELECT length(string_agg(llm_generate('WHO $_ row ' || j), '')) FROM generate_series(1, 3) j" } 1 .. 30;
	my @got = through_proxy($sql, 4,
		sub { return { to => $to, flip => $_[0] * 7 % 211, bit => $_[0] % 8, cut => 300 } });
	is(scalar(grep { /server closed|57P0/ } @got), 0, "a bit is turned over on the way to the $to: no session dies") or diag(@got);
	my %states = map { $_ => 1 } map { /ERROR:  (\w{5})/g } @got;
	note join ' ', sort keys %states;
	is_whole("a bit is turned over on the way to the $to");
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
