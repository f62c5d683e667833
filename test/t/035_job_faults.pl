# Jobs beside locks, quotas, owners and triggers that get in their way: nothing is lost, asked twice or stuck.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = llm_cluster('faults', conf => "llm_infer.engine_timeout = '2s'\nmax_worker_processes = 12");

sub one { return scalar $node->safe_psql($_[1] // 'postgres', $_[0]); }
sub wait_state { return one("SELECT llm_job_wait($_[0], '20 s')", $_[1]); }
sub worker { return llm_wait_for(sub { one(q{SELECT pid FROM llm.job_workers WHERE owner = current_user::text::regrole AND state = 'running'}) }); }

# Who has the table for himself delays what is running, and no more.
{
	my $id = one(q{SELECT llm_job_submit('@slow=20 @tokens=50 x')});
	llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'running' });
	my $pid = worker();
	$node->safe_psql('postgres', q{BEGIN; LOCK TABLE llm.job_queue; SELECT pg_sleep(2); COMMIT});
	is(wait_state($id), 'done', 'a job that ran while its table was locked');
	is(one("SELECT attempts FROM llm.jobs WHERE id = $id"), '1', 'has run once');
	is(worker(), $pid, 'and its worker is the same');
}

# Rows are locked and written without a multixact each.
{
	my $next = q{CHECKPOINT; SELECT next_multixact_id FROM pg_control_checkpoint()};
	my $before = one($next);
	my $last = one(q{SELECT max(i) FROM llm_job_submit(array_fill('x'::text, ARRAY[200])) i});
	wait_state($last);
	llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE finished IS NULL}) eq '0' });
	my $after = one($next);
	cmp_ok($after - $before, '<', 20, "writing results takes no multixact per row ($before, $after)");
}

# A quota of requests in flight holds a job until the worker gives up, outside of any transaction.
{
	$node->safe_psql('postgres', q{CREATE ROLE held LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO held; INSERT INTO llm.quotas (role, max_in_flight) VALUES ('held', 1)});
	my $s = llm_session($node, q{SET ROLE held; SELECT llm_generate('@slow=20 @tokens=400 x', max_tokens => 400)});
	ok(llm_wait_for(sub { one(q{SELECT in_flight FROM llm.stat_users WHERE role = 'held'::regrole}) eq '1' }), 'a quota is full');
	my $id = one(q{SET ROLE held; SELECT llm_job_submit('x', options => '{"timeout": 1000}')});
	ok(llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'running' }), 'a job waits for it');
	$node->safe_psql('postgres', 'ALTER ROLE held CONNECTION LIMIT 7');
	ok(llm_wait_for(sub { one(q{SELECT reason FROM llm.job_workers WHERE owner = 'held'::regrole AND state = 'paused'}) =~ /^quota of requests in flight of role "held"/ }),
		'a job that its quota of requests in flight holds') or diag(one('TABLE llm.job_workers'));
	llm_session_end($s);
	is(wait_state($id), 'done', 'runs when there is room');
	llm_is_well($node, 'quota in flight');
}

# What ends its worker goes behind the others.
{
	my $id = one(q{SELECT llm_job_submit('@slow=20 @tokens=1000 x', max_tokens => 1000)});
	foreach my $n (1 .. 3)
	{
		ok(llm_wait_for(sub { one("SELECT state, attempts FROM llm.jobs WHERE id = $id") eq "running|$n" }), "attempt $n");
		one('SELECT pg_terminate_backend(' . worker() . ', 5000)');
	}
	ok(llm_wait_for(sub { one("SELECT state FROM llm.jobs WHERE id = $id") eq 'queued' }), 'queued after its third worker');
	is(one("SELECT not_before > submitted + interval '10 ms' FROM llm.jobs WHERE id = $id"), 't', 'and later than it was');
	is(one("SELECT llm_job_cancel($id)"), 't', 'cancelled');
}

# Jobs that are tried again and again do not hold up new ones.
{
	my $first = one(q{SELECT min(i) FROM llm_job_submit(array_fill('@delay=300 late'::text, ARRAY[300]), options => '{"timeout": 20, "max_attempts": 1000}') i});
	ok(llm_wait_for(sub { one("SELECT count(*) > 200 FROM llm.jobs WHERE id >= $first AND attempts > 1") eq 't' }), '300 jobs fail again and again');
	is(one("SELECT llm_job_wait($_, '5 s')"), 'done', 'a new one is served') foreach map { one(q{SELECT llm_job_submit('new')}) } 1 .. 3;
	is(one("SELECT count(llm_job_cancel(id)) FROM llm.jobs WHERE id >= $first AND finished IS NULL"), '300', 'beside them');
}

# Large prompts are claimed as far as there is memory for them.
{
	my $last = one(q{SELECT max(i) FROM llm_job_submit(array_fill(repeat('x', 4000000), ARRAY[60])) i});
	my $pid = worker();
	ok(llm_wait_for(sub { one("SELECT count(*) FROM llm.jobs WHERE finished IS NULL AND id <= $last") eq '0' }, 60), 'jobs with 240 MB of prompts end');
	my ($peak) = slurp_file("/proc/$pid/status") =~ /VmHWM:\s+(\d+) kB/;
	cmp_ok($peak, '<', 300_000, 'in bounded memory');
	is(one("SELECT string_agg(DISTINCT state || ' ' || attempts, ',') FROM llm.jobs WHERE id BETWEEN $last - 59 AND $last"), 'failed 1', 'each once: too long for the model');
}

# Retention keeps up.
{
	$node->safe_psql('postgres', q{INSERT INTO llm.job_queue (id, owner, rank, due, state, max_attempts, submitted, finished, model, prompt)
		SELECT -i, 10, 0, now(), 'done', 1, now(), now() - interval '30 days', 'echo', '' FROM generate_series(1, 20000) i});
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llm_infer launcher'}) eq '0' }), 'the launcher ends');
	my $id = one(q{SELECT llm_job_submit('@slow=20 @tokens=1000 x', max_tokens => 1000)});
	ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.job_queue WHERE id < 0') eq '0' }, 6), 'many expired jobs go soon')
	  or diag(one('SELECT count(*) FROM llm.job_queue WHERE id < 0'));
	one("SELECT llm_job_cancel($id)");
}

# Owners who may not log in take no places from other databases.
{
	$node->safe_psql('postgres', q{DO $$BEGIN FOR i IN 1 .. 300 LOOP
		EXECUTE format('CREATE ROLE n%s; GRANT USAGE ON FOREIGN SERVER echo TO n%s; SET LOCAL ROLE n%s', i, i, i);
		PERFORM llm_job_submit('x'); RESET ROLE; END LOOP; END$$});
	llm_wait_for(sub { one('SELECT count(*) FROM llm.job_workers') > 100 });
	sleep 1;
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	llm_extension($node, 'other');
	my $id = one(q{SELECT llm_job_submit('x')}, 'other');
	ok(llm_wait_for(sub { one("SELECT llm_job_status($id)", 'other') eq 'done' }), 'a job beside 300 owners of another database who may not log in');
	is(wait_state(one(q{SELECT llm_job_submit('x')})), 'done', 'and one of their database');
	$node->safe_psql('postgres', q{SELECT count(llm_job_cancel(id)) FROM llm.jobs WHERE finished IS NULL});
}

# A job whose prompt cannot be read any more fails alone, with that error; so does what another version of the table holds up.
{
	my $id = one(q{SELECT llm_job_submit((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 3000) i),
		options => '{"not_before": "2100-01-01", "max_attempts": 2}')});
	my $file = $node->data_dir . '/' . one(q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'llm.job_queue'::regclass});
	$node->stop;
	open my $f, '+<', $file or die "$file: $!";
	print $f "\0" x -s $file;
	close $f;
	$node->start;
	one("UPDATE llm.job_queue SET due = now() WHERE id = $id");
	my $first = one(q{SELECT min(i) FROM llm_job_submit(array(SELECT 'row ' || i FROM generate_series(1, 50) i)) i});
	ok(llm_wait_for(sub { one("SELECT count(*) FROM llm.jobs WHERE id >= $first AND state = 'done' AND attempts = 1") eq '50' }), 'jobs beside one that cannot be read');
	is(wait_state($id), 'failed', 'which fails');
	like(one("SELECT attempts, sqlstate, message FROM llm.jobs WHERE id = $id"), qr/^2\|XX001\|missing chunk number 0/, 'after its attempts, with its error');
	my $offset = -s $node->logfile;
	one(q{ALTER TABLE llm.job_queue ADD COLUMN later int; UPDATE llm.job_queue SET state = 'queued', finished = NULL WHERE id = } . $first);
	like(llm_error($node, q{SELECT llm_job_submit('x')}), qr/ERROR:  55000: table llm.job_queue is of another version.*\nHINT:  .*UPDATE/, 'a table of another version');
	$node->append_conf('postgresql.conf', "llm_infer.databases = 'postgres'");
	$node->reload;
	ok(llm_wait_for(sub { one(q{SELECT reason FROM llm.job_workers WHERE state = 'paused'}) =~ /^the tables of schema llm are of another version/ }), 'workers wait and say why');
	unlike(llm_log_since($node, $offset), qr/WARNING|FATAL|ERROR:(?!  table llm.job_queue is of another version)/, 'without errors of theirs');
	one('ALTER TABLE llm.job_queue DROP COLUMN later');
}

# The table's owner cannot make the launcher, or who submits, run anything as themselves.
{
	$node->safe_psql('postgres', q{CREATE ROLE keeper; ALTER TABLE llm.job_queue OWNER TO keeper; ALTER SEQUENCE llm.job_ids OWNER TO keeper;
		ALTER SEQUENCE llm.job_expired OWNER TO keeper; GRANT USAGE ON SCHEMA llm TO keeper;
		CREATE TABLE seen (who name); GRANT INSERT ON seen TO PUBLIC; GRANT CREATE ON SCHEMA public TO keeper;
		SET ROLE keeper;
		CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO public.seen VALUES (current_user); RETURN NULL; END$$;
		CREATE CONSTRAINT TRIGGER spy AFTER INSERT OR UPDATE OR DELETE ON llm.job_queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION spy()});
	like(llm_error($node, q{SELECT llm_job_submit('x')}), qr/cannot fire deferred trigger within security-restricted operation/,
		'a deferred trigger on the queue is refused');
	is(one(q{SELECT count(*) FROM seen WHERE who <> 'keeper'}), '0', 'and nobody ran it');
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
