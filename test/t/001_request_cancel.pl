# Requests that end early - cancel, timeouts, terminated and lost clients, closed cursors - are freed by
# the engine at once; sessions that hold many requests stand in nobody's way.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# A step takes 4 ms, so that a long reply takes 16 s unless it is cancelled.
my $node = llm_cluster('cancel', fault => 'slow_step=4', conf => 'max_connections = 20');
my $long = q{SELECT llm_generate('@tokens=3900 x', max_tokens => 4000) FROM generate_series(1, 40)};
my $scalar = q{SELECT llm_generate('@tokens=3900 x', max_tokens => 4000)};

# ---- one statement that ends early ----

foreach my $case ([ 'rows', $long ], [ 'a scalar call', "SET llm_infer.enable_batch = off; $scalar" ])
{
	my ($what, $sql) = @$case;
	my $s = llm_session($node, "$sql; SELECT llm_generate('next')");
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014: canceling statement due to user request/, "$what: cancelled");
	is($out, 'next', "$what: the session goes on");
	llm_is_well($node, "cancel of $what");
}

{
	my $s = llm_session($node, $long);
	llm_active($node);
	kill 'INT', $s->{pid};
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014: canceling statement due to user request/, 'Ctrl-C in psql');
	llm_is_well($node, 'Ctrl-C in psql');
}

{
	my $begin = time();
	my $s = llm_session($node,
		"SET statement_timeout = '300ms'; $long; RESET statement_timeout; SELECT llm_generate('next')");
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014: canceling statement due to statement timeout/, 'statement_timeout');
	is($out, 'next', 'statement_timeout: the session goes on');
	cmp_ok(time() - $begin, '<', 10, 'statement_timeout: in time');
	llm_is_well($node, 'statement_timeout');
}

{
	my $s = llm_session($node, $long);
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57P01: terminating connection due to administrator command/, 'terminate');
	llm_is_well($node, 'pg_terminate_backend');
}

{
	my $s = llm_session($node, "SET client_connection_check_interval = '100ms'; $long");
	my ($pid) = llm_active($node);
	kill 'KILL', $s->{pid};
	llm_session_end($s);
	ok(llm_wait_for(sub { llm_gone($pid) }, 10), 'lost client: its backend ends');
	llm_is_well($node, 'a lost client');
}

{
	my $s = llm_session($node, q{SET idle_in_transaction_session_timeout = '200ms'; BEGIN;
		DECLARE c CURSOR FOR SELECT llm_generate(CASE i WHEN 1 THEN 'row 1' ELSE '@tokens=3900 x' END,
			max_tokens => 4000) FROM generate_series(1, 100) i;
		FETCH 1 FROM c;
		\! sleep 1
		FETCH 1 FROM c});
	my ($out, $err) = llm_session_end($s);
	like($err, qr/25P03: terminating connection due to idle-in-transaction timeout/, 'idle in a transaction for too long');
	is($out, 'row 1', 'idle in a transaction: until then it works');
	llm_is_well($node, 'idle_in_transaction_session_timeout');
}

# A request that is half sent when it is cancelled: the connection is of no more use, the session is.
foreach my $case ([ 'the statement', '%s' ],
	[ 'a subtransaction', 'DO $$ BEGIN PERFORM (%s); EXCEPTION WHEN query_canceled THEN NULL; END $$' ])
{
	my ($what, $wrap) = @$case;
	my $engine = llm_engine_pid($node);
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe(q{SELECT llm_generate('first')});
	kill 'STOP', $engine;
	$session->query_until(qr/begun/, "\\echo begun\n"
		. sprintf($wrap, q{SELECT llm_generate(array_fill(repeat('x', 1000000), ARRAY[20]))}) . ";\n");
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	ok(llm_wait_for(sub { $node->safe_psql('postgres', "SELECT state <> 'active' FROM pg_stat_activity
		WHERE pid = $pid") eq 't' }, 5), "cancel of $what with a half-sent request");
	kill 'CONT', $engine;
	is($session->query(q{SELECT llm_generate('next')}), 'next', "half-sent request: the session goes on after $what");
	$session->quit;
	is(llm_engine_pid($node), $engine, 'half-sent request: the engine too');
	llm_is_well($node, "a half-sent request, cancel of $what");
}

{
	my $err = llm_error($node,
		q{SELECT llm_generate('@tokens=3900 x', max_tokens => 4000, options => '{"timeout": 200}')});
	like($err, qr/ERROR:  55P03: .* \d+ ms/, 'timeout of one request');
	my $out = $node->safe_psql('postgres', q{SELECT i, llm_generate(CASE WHEN i = 2 THEN '@tokens=3900 x'
		ELSE 'row ' || i END, max_tokens => 4000, on_error => 'null', options => '{"timeout": 700}')
		FROM generate_series(1, 3) i});
	is($out, "1|row 1\n2|\n3|row 3", 'timeout of one row: NULL, the others are answered');
	llm_is_well($node, 'timeouts of requests');
}

# ---- subtransactions ----

# A handled error cancels the requests of its subtransaction alone: the loop's own rows are in flight.
my $loop = <<'SQL';
CREATE TABLE outcome (i int, outer_text text, inner_text text);
CREATE FUNCTION loop_with_errors(kind text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	r record;
	c refcursor;
	caught int := 0;
	inner_text text;
BEGIN
	FOR r IN SELECT i, llm_generate('row ' || i) AS t FROM generate_series(1, 60) i LOOP
		inner_text := NULL;
		BEGIN
			IF kind = 'raise' THEN
				inner_text := llm_generate('inner ' || r.i);
				IF r.i % 3 = 0 THEN
					RAISE EXCEPTION 'mine';
				END IF;
			ELSIF kind = 'call' THEN
				inner_text := llm_generate(CASE WHEN r.i % 3 = 0 THEN '@error=bad x' ELSE 'inner ' || r.i END);
			ELSE
				-- leaves with requests of its own in flight
				OPEN c FOR SELECT llm_generate(CASE j WHEN 1 THEN 'inner ' || r.i ELSE '@tokens=3900 x' END,
					max_tokens => 4000) FROM generate_series(1, 20) j;
				FETCH c INTO inner_text;
				IF r.i % 3 = 0 THEN
					RAISE EXCEPTION 'mine';
				END IF;
				CLOSE c;
			END IF;
		EXCEPTION WHEN OTHERS THEN
			caught := caught + 1;
			inner_text := NULL;
		END;
		INSERT INTO outcome VALUES (r.i, r.t, inner_text);
	END LOOP;
	RETURN caught;
END
$$;
SQL
$node->safe_psql('postgres', $loop);
foreach my $kind (qw(raise call cursor))
{
	is($node->safe_psql('postgres', "TRUNCATE outcome; SELECT loop_with_errors('$kind')"),
		'20', "handled errors ($kind): all are caught");
	is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE outer_text = 'row ' || i),
		count(*) FILTER (WHERE inner_text IS NOT DISTINCT FROM CASE WHEN i % 3 = 0 THEN NULL
		ELSE 'inner ' || i END) FROM outcome}), '60|60|60', "handled errors ($kind): every row is right");
	llm_is_well($node, "handled errors ($kind)");
}

is($node->safe_psql('postgres', q{BEGIN;
	DECLARE c CURSOR FOR SELECT llm_generate('row ' || i) FROM generate_series(1, 30) i;
	FETCH 2 FROM c;
	SAVEPOINT s;
	SELECT llm_generate('inside');
	ROLLBACK TO s;
	FETCH ALL FROM c;
	COMMIT}), "row 1\nrow 2\ninside\n" . llm_answers(30) =~ s/row 1\nrow 2\n//r,
	'a cursor lives on after ROLLBACK TO of a later savepoint');
llm_is_well($node, 'ROLLBACK TO SAVEPOINT');

# ---- what is not wanted any more ----

is($node->safe_psql('postgres', q{BEGIN;
	DECLARE c CURSOR FOR SELECT llm_generate(CASE i WHEN 1 THEN 'row 1' ELSE '@tokens=3900 x' END,
		max_tokens => 4000) FROM generate_series(1, 100) i;
	FETCH 1 FROM c;
	CLOSE c;
	SELECT llm_generate('after');
	COMMIT}), "row 1\nafter", 'a closed cursor');
llm_is_well($node, 'a closed cursor');

is($node->safe_psql('postgres', q{SELECT EXISTS (SELECT FROM (SELECT llm_generate(CASE i WHEN 1 THEN 'row 1'
	ELSE '@tokens=3900 x' END, max_tokens => 4000) AS t FROM generate_series(1, 100) i OFFSET 0) s
	WHERE t = 'row 1')}), 't', 'EXISTS stops at the first row');
llm_is_well($node, 'EXISTS');

# ---- flow control: more requests than the engine takes of one connection ----

is($node->safe_psql('postgres', q{SELECT count(*), count(*) FILTER (WHERE t = 'row ' || i)
	FROM (SELECT array_agg('row ' || i ORDER BY i) AS prompts FROM generate_series(1, 1000) i) p,
	LATERAL unnest(llm_generate(p.prompts)) WITH ORDINALITY u (t, i)}),
	'1000|1000', 'an array of 1000 prompts');
llm_is_well($node, 'an array of 1000 prompts');

is($node->safe_psql('postgres', q{SET llm_infer.max_lookahead_rows = 5000;
	SELECT count(*), count(*) FILTER (WHERE t = 'row ' || i)
	FROM (SELECT i, llm_generate('row ' || i) AS t FROM generate_series(1, 2000) i) s}),
	'2000|2000', 'a window of 5000 rows');
llm_is_well($node, 'a window of 5000 rows');

# Two cursors hold every request that the connection may have, all of them answered or on their way;
# a third caller must not wait for rows that nobody fetches.
is($node->safe_psql('postgres', q{SET llm_infer.max_lookahead_rows = 1000;
	BEGIN;
	DECLARE a CURSOR FOR SELECT llm_generate('a ' || i) FROM generate_series(1, 900) i;
	DECLARE b CURSOR FOR SELECT llm_generate('b ' || i) FROM generate_series(1, 900) i;
	MOVE 500 FROM a; MOVE 500 FROM b;
	SELECT llm_generate('scalar');
	FETCH 1 FROM a; FETCH 1 FROM b;
	SELECT llm_generate('scalar');
	MOVE 398 FROM a; FETCH 2 FROM a; MOVE 398 FROM b; FETCH 2 FROM b;
	COMMIT}), "scalar\na 501\nb 501\nscalar\na 900\nb 900", 'two cursors and a call share the credits');
llm_is_well($node, 'two cursors');

{
	my $s = llm_session($node, q{SELECT llm_generate(array_agg('@tokens=3900 ' || i), max_tokens => 4000)
		FROM generate_series(1, 600) i});
	my ($pid) = llm_active($node);
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	my ($out, $err) = llm_session_end($s);
	like($err, qr/57014/, 'cancel while requests wait for credits');
	llm_is_well($node, 'cancel while requests wait for credits');
}

# ---- an open cursor that nobody reads ----

{
	my $idle = $node->background_psql('postgres');
	$idle->query_safe(q{SET llm_infer.max_lookahead_rows = 1000});
	$idle->query_safe(q{BEGIN});
	$idle->query_safe(q{DECLARE c CURSOR FOR SELECT llm_generate('row ' || i) FROM generate_series(1, 700) i});
	is($idle->query_safe(q{FETCH 1 FROM c}), 'row 1', 'idle cursor: first row');
	$idle->query_safe(q{MOVE 299 FROM c});
	my @others = map { llm_session($node,
		q{SELECT llm_generate('row ' || i) FROM generate_series(1, 100) i}) } 1 .. 4;
	foreach my $s (@others)
	{
		my ($out, $err) = llm_session_end($s);
		is($out, llm_answers(100), 'idle cursor: another session goes on');
		is($err, '', 'idle cursor: no error there');
	}
	llm_is_well($node, 'sessions beside an idle cursor', unread => 1);
	is($idle->query_safe(q{SELECT llm_generate('same session')}), 'same session',
		'idle cursor: its own session goes on');
	is($idle->query_safe(q{FETCH ALL FROM c}), llm_answers(700) =~ s/^(row \d+\n){300}//r,
		'idle cursor: the rest of its rows');
	$idle->query_safe(q{COMMIT});
	$idle->quit;
	llm_is_well($node, 'an idle cursor');
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
