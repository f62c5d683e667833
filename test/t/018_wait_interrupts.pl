# Every place where a backend waits or works for long, and every way to end it from outside: cancel, timeout,
# terminate. Each takes effect at once, and nothing is left in the engine. The times are notes; the limit
# is generous, for machines that are busy with other things.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $limit_ms = 2000;
my $node = llm_cluster('waits', fault => 'slow_step=4', conf => "max_connections = 20\njit = off\nllm_infer.engine_timeout = '15s'");
my $engine = llm_engine_pid($node);
my $watch = $node->background_psql('postgres');
$watch->query_safe(q{
	CREATE TABLE locked AS SELECT i, CASE i WHEN 1 THEN 'x' ELSE '@tokens=3900 x' END AS body FROM generate_series(1, 20) i;
	CREATE ROLE held LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO held;
	INSERT INTO llm.quotas VALUES ('held', NULL, NULL, 1);
	CREATE FUNCTION ms_to_end(app text, how text) RETURNS numeric LANGUAGE plpgsql AS $$
	DECLARE
		begun timestamptz;
		p int;
	BEGIN
		SELECT pid INTO STRICT p FROM pg_stat_activity WHERE application_name = app;
		begun := clock_timestamp();
		PERFORM CASE how WHEN 'cancel' THEN pg_cancel_backend(p) ELSE pg_terminate_backend(p) END;
		LOOP
			PERFORM pg_stat_clear_snapshot();
			EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = p AND state = 'active');
			IF clock_timestamp() - begun > interval '20 s' THEN
				RAISE EXCEPTION 'backend % goes on', p;
			END IF;
			PERFORM pg_sleep(0.001);
		END LOOP;
		RETURN round(1000 * extract(epoch FROM clock_timestamp() - begun), 1);
	END $$});

# The backend of a session has been at its statement for a while.
sub at_work
{
	my ($s) = @_;
	return llm_wait_for(sub {
		$watch->query(qq{SELECT count(*) FROM pg_stat_activity WHERE application_name = '$s->{app}'
			AND state = 'active' AND clock_timestamp() - query_start > interval '150 ms'});
	});
}

my $long = q{llm_generate('@tokens=3900 x', max_tokens => 4000)};
my $other; # a session that is in the way
my $wrapper = $node->basedir . '/engine_wrapper.sh';

sub take_engine_away
{
	rename $wrapper, "$wrapper.away" or die $!;
	kill 'KILL', $engine;
	llm_wait_for(sub { llm_gone($engine) });
}

sub bring_engine_back
{
	rename "$wrapper.away", $wrapper or die $!;
	$engine = llm_engine_pid($node, $engine);
}

my @waits = (
	{ name => 'the head of a window', sql => "SELECT $long FROM generate_series(1, 40)" },
	{ name => 'a scalar call', sql => "SELECT upper($long)" },
	{ name => 'a stream', sql => 'SELECT llm_generate_stream(\'@tokens=3900 x\', max_tokens => 4000)' },
	{ name => 'room in the engine', sql => q{SELECT llm_generate(array_agg('@tokens=3900 ' || i), max_tokens => 4000)
		FROM generate_series(1, 600) i} },
	{ name => 'a slow child', sql => q{SELECT llm_generate('x' || i) FROM (SELECT i, pg_sleep(0.4) FROM generate_series(1, 40) i OFFSET 0) s} },
	{ name => 'a row lock, with rows in flight', sql => "UPDATE locked SET body = llm_generate(body, max_tokens => 4000)",
		before => sub { $other = $node->background_psql('postgres'); $other->query_safe('BEGIN; SELECT FROM locked FOR UPDATE') },
		after => sub { $other->query_safe('ROLLBACK'); $other->quit } },
	{ name => 'requests in flight of the same role', user => 'held', sql => 'SELECT llm_generate(\'x\')',
		before => sub { $other = llm_session($node, "SELECT $long", user => 'held'); llm_active($node) },
		after => sub { kill 'INT', $other->{pid}; llm_session_end($other) } },
	{ name => 'answers that are remembered', sql => q{SELECT count(llm_generate('x' || i % 100, temperature => 0)) FROM (SELECT generate_series(1, 10000000) i) s} },
	{ name => 'an engine that does not read', sql => "SELECT llm_generate(array_fill(repeat('x', 1000000), ARRAY[20]))",
		before => sub { kill 'STOP', $engine }, after => sub { kill 'CONT', $engine } },
	{ name => 'an engine that does not greet', sql => "SELECT llm_generate('x')",
		before => sub { kill 'STOP', $engine }, after => sub { kill 'CONT', $engine } },
	{ name => 'a model to be loaded', sql => "SELECT llm_model_load('echo')",
		before => sub { kill 'STOP', $engine }, after => sub { kill 'CONT', $engine } },
	# no statement_timeout: PostgreSQL's ends before COMMIT
	{ name => 'rows to be held, in COMMIT', ends => [qw(cancel terminate)], sql => "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT $long FROM generate_series(1, 40); COMMIT" },
	{ name => 'an engine that is not there', sql => "SELECT llm_generate('x' || i) FROM generate_series(1, 40) i",
		before => \&take_engine_away, after => \&bring_engine_back },
	{ name => 'an engine to start again', sql => 'SELECT llm_engine_restart()',
		before => \&take_engine_away, after => \&bring_engine_back });

my %error = (cancel => qr/57014: canceling statement due to user request/,
	terminate => qr/57P01: terminating connection/, timeout => qr/57014: canceling statement due to statement timeout/);
foreach my $wait (@waits)
{
	$wait->{before}->() if $wait->{before};
	my @ms;
	foreach my $how (@{ $wait->{ends} // [qw(cancel terminate timeout)] })
	{
		my $set = $how eq 'timeout' ? "SET statement_timeout = '200ms'" : 'SET statement_timeout = 0';
		my $s = llm_session($node, "$set; $wait->{sql}", user => $wait->{user});
		if ($how ne 'timeout')
		{
			at_work($s) or die "$wait->{name}: not at work";
			push @ms, $watch->query_safe("SELECT ms_to_end('$s->{app}', '$how')");
		}
		my (undef, $err) = llm_session_end($s);
		push @ms, sprintf('%.1f', 1000 * (time() - $s->{begun}) - 200) if $how eq 'timeout';
		like($err, $error{$how}, "$wait->{name}: $how");
	}
	$wait->{after}->() if $wait->{after};
	note "$wait->{name}: ms until cancel, terminate, timeout (with psql's start): @ms";
	is(scalar(grep { $_ > $limit_ms } @ms), 0, "$wait->{name}: in time") or diag("ms: @ms");
	llm_is_well($node, "waiting for $wait->{name}");
}

$watch->quit;
$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
