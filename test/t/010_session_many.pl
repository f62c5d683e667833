# Many sessions, many databases, many rows, large prompts: everybody is answered, nobody waits for ever,
# and neither memory nor descriptors grow.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = llm_cluster('many', conf => "max_connections = 40\nllm_infer.kv_cache_memory = '256kB'");

# Anonymous memory of a process, in kB.
sub memory
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m ? $1 : die "no memory of $pid";
}

sub descriptors
{
	my ($pid) = @_;
	return scalar(my @fds = glob "/proc/$pid/fd/*");
}

# ---- sessions and databases ----

my $engine = llm_engine_pid($node);
my $fds = descriptors($engine);
{
	my $free = $node->safe_psql('postgres', q{SELECT current_setting('max_connections')::int
		- current_setting('superuser_reserved_connections')::int});
	my @s = map { my $k = $_; llm_session($node,
		"SELECT llm_generate('s$k row ' || i) FROM generate_series(1, 40) i") } 1 .. $free;
	my @wrong = grep {
		my $k = $_;
		my ($out, $err) = llm_session_end($s[ $k - 1 ]);
		"$out$err" ne llm_answers(40) =~ s/^/s$k /mgr;
	} 1 .. $free;
	is("@wrong", '', "$free sessions at once: all have their own answers");
	llm_is_well($node, 'max_connections sessions');
}

{
	my @names = map { "db$_" } 1 .. 6;
	foreach my $name (@names)
	{
		$node->safe_psql('postgres', "CREATE DATABASE $name");
		llm_extension($node, $name);
	}
	my @s = map { llm_session($node, "SELECT llm_generate(current_database() || ' row ' || i)
		FROM generate_series(1, 100) i", dbname => $_) } @names;
	foreach my $name (@names)
	{
		my ($out, $err) = llm_session_end(shift @s);
		is("$out$err", llm_answers(100) =~ s/^/$name /mgr, "many databases: $name");
	}
	is($node->safe_psql('postgres', q{SELECT count(*) FROM llm.models}), '1', 'each database has its own models');
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach @names;
	is(llm_engine_pid($node), $engine, 'one engine serves them all');
	llm_is_well($node, 'many databases');
}

ok(llm_wait_for(sub { descriptors($engine) <= $fds }), 'the engine closes its connections')
  or diag("$fds descriptors before, now " . descriptors($engine));

# ---- rows ----

{
	my $session = $node->background_psql('postgres');
	my $backend = $session->query_safe('SELECT pg_backend_pid()');
	my @kinds = (
		q{SELECT count(*) FROM (SELECT llm_generate('row ' || i) AS t FROM generate_series(1, 3000) i OFFSET 0) s
			WHERE t <> ''},
		q{SET llm_infer.enable_batch = off; SELECT count(*) FROM (SELECT llm_generate('row ' || i) AS t
			FROM generate_series(1, 1500) i OFFSET 0) s WHERE t <> ''; RESET llm_infer.enable_batch},
		q{SELECT count(*) FROM (SELECT unnest(llm_generate(array_agg('row ' || i))) AS t
			FROM generate_series(1, 3000) i GROUP BY i / 100) s WHERE t <> ''});
	foreach my $warm_up (1, 0)
	{
		my ($e, $b) = (memory($engine), memory($backend));
		is($session->query_safe($kinds[0]), '3000', 'rows are answered');
		is($session->query_safe($kinds[1]), '1500', 'scalar calls are answered');
		is($session->query_safe($kinds[2]), '3000', 'arrays are answered');
		next if $warm_up;
		cmp_ok(memory($engine) - $e, '<', 1024, 'memory of the engine after 7500 more calls: grown by less than 1 MB');
		cmp_ok(memory($backend) - $b, '<', 512, 'memory of the backend: less than 512 kB');
	}
	$session->query_safe(q{CREATE FUNCTION noise(n int) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE caught int := 0;
		BEGIN
			FOR i IN 1 .. n LOOP
				BEGIN
					PERFORM llm_generate('@error=bad x');
				EXCEPTION WHEN OTHERS THEN caught := caught + 1;
				END;
				BEGIN
					PERFORM llm_generate('x') FROM generate_series(1, 5);
					RAISE EXCEPTION 'mine';
				EXCEPTION WHEN OTHERS THEN caught := caught + 1;
				END;
			END LOOP;
			RETURN caught;
		END $$});
	$session->query_safe('SELECT noise(500)');
	my ($e, $b) = (memory($engine), memory($backend));
	is($session->query_safe('SELECT noise(1000)'), '2000', 'errors are caught');
	cmp_ok(memory($engine) - $e, '<', 512, 'memory of the engine after 1000 failures');
	cmp_ok(memory($backend) - $b, '<', 512, 'memory of the backend after 1000 failures');
	$session->quit;
	llm_is_well($node, 'many rows');
}

# ---- large prompts ----

is($node->safe_psql('postgres', q{SELECT count(*), count((r).error) FROM (SELECT llm_generate_result(
	repeat('x', 1000000) || i, on_error => 'null') AS r FROM generate_series(1, 30) i OFFSET 0) s}), '30|30',
	'30 prompts of 1 MB: each fails by itself, beyond the bytes that may be in flight');
like(llm_error($node, q{SELECT llm_generate(repeat('x ', 5000000))}), qr/ERROR:  54000: .*4096/,
	'a prompt of 10 MB: over the context');
like(llm_error($node, q{SELECT llm_generate(repeat('x', 300000000))}), qr/ERROR:  54000: /, 'a prompt of 300 MB: too large');
is(llm_engine_pid($node), $engine, 'large prompts do not harm the engine');
llm_is_well($node, 'large prompts');

# ---- restarts ----

{
	my $supervisor = llm_supervisor_pid($node);
	$node->safe_psql('postgres', 'SELECT llm_engine_restart()');
	my $before = descriptors($supervisor);
	my $begin = memory($supervisor);
	$node->safe_psql('postgres', 'SELECT llm_engine_restart()') foreach 1 .. 10;
	is(descriptors($supervisor), $before, 'descriptors of the supervisor after 10 restarts');
	cmp_ok(memory($supervisor) - $begin, '<', 256, 'memory of the supervisor after 10 restarts');
	is(llm_supervisor_pid($node), $supervisor, 'it is still the same');
	llm_is_well($node, '10 restarts');
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
