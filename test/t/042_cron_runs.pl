# Scheduled runs: pg_cron's background workers call llm_enrich and the functions of jobs. They overlap, are cancelled, unscheduled
# and lose the extension; each row is done once, and job_run_details says what went wrong. Runs are started by @reboot, with --full
# also by the minute.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = llm_cluster('cron', conf => <<'CONF');
shared_preload_libraries = 'llm_infer, pg_cron'
cron.database_name = 'postgres'
cron.use_background_workers = on
cron.launch_active_jobs = on
max_worker_processes = 20
CONF

sub one { return scalar $node->safe_psql('postgres', $_[0]); }
my $call = q{CALL llm_enrich('docs', 'summary', prompt => '@slow=2 {body}', batch_size => 16, concurrency => 16)};

$node->safe_psql('postgres', q{
	CREATE EXTENSION pg_cron;
	CREATE TABLE docs (id int PRIMARY KEY, body text, summary text);
	CREATE TABLE written (id int, by int);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO written VALUES (NEW.id, pg_backend_pid()); RETURN NULL; END$$;
	CREATE TRIGGER note AFTER UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION note()});

# A new table of n rows, to be enriched.
sub rows
{
	one("TRUNCATE docs, written; INSERT INTO docs SELECT i, 'row number ' || i FROM generate_series(1, $_[0]) i");
	return;
}
sub schedule { one("SELECT cron.schedule('$_[0]', '\@reboot', \$cron\$$_[1]\$cron\$)"); return; }
sub unschedule { one(q{SELECT count(cron.unschedule(jobname)) FROM cron.job; DELETE FROM cron.job_run_details}); return; }
sub start_runs { $node->restart; llm_engine_pid($node); return; }
# Wait until all runs have ended: 'status message' of each, in the order of their commands.
sub ended
{
	my ($n) = @_;
	llm_wait_for(sub { one(qq{SELECT count(*) FROM cron.job_run_details WHERE end_time IS NOT NULL AND status IN ('succeeded', 'failed')}) eq $n }, 40);
	return one(q{SELECT string_agg(status || ' ' || regexp_replace(return_message, '\s+', ' ', 'g'), '|' ORDER BY jobid) FROM cron.job_run_details});
}
sub runs { return one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_cron'}); }
sub each_once { return one(q{SELECT count(*) || ' ' || count(DISTINCT id) || ' ' || (SELECT count(*) FROM docs WHERE summary IS NULL) FROM written}); }

# ---- overlapping runs, and a call by hand ----

rows(600);
schedule($_, $call) foreach qw(first second);
start_runs();
my $hand = llm_session($node, "SET client_min_messages = error; $call");
is(ended(2), 'succeeded CALL|succeeded CALL', 'two runs at once');
is((llm_session_end($hand))[1], '', 'and a call beside them');
is(each_once(), '600 600 0', 'each row is written once');
cmp_ok(one('SELECT count(DISTINCT by) FROM written'), '>=', 2, 'they have shared them');
llm_is_well($node, 'overlapping runs');

# ---- what is not allowed, what fails ----

unschedule();
rows(50);
schedule('two', "SELECT 1; $call");
schedule('fails', q{CALL llm_enrich('docs', 'summary', prompt => '@error=broken {body}', on_error => 'error')});
schedule('none', q{CALL llm_enrich('docs', 'no such', prompt => '{body}')});
start_runs();
my $said = ended(3);
like($said, qr/^failed ERROR: llm_enrich commits after each batch and cannot do so here[^|]*\|failed ERROR: [^|]*broken[^|]*\|failed ERROR: column "no such" [^|]*does not exist/,
	'two statements, an error of a row, a wrong column: job_run_details has the errors');
is(one('SELECT count(*) FROM written'), '0', 'before anything was done');
note($said);

# ---- the recipe of jobs ----

unschedule();
rows(30);
one(q{ALTER TABLE docs ADD job bigint});
schedule('jobs', q{UPDATE docs SET summary = (llm_job_result(job)).text, job = NULL WHERE llm_job_status(job) = 'done';
	UPDATE docs SET job = llm_job_submit('Summarise: ' || body) WHERE summary IS NULL AND job IS NULL});
start_runs();
like(ended(1), qr/^succeeded/, 'jobs are submitted by a run');
ok(llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE state = 'done'}) eq '30' }), 'done');
one('DELETE FROM cron.job_run_details');
start_runs();
like(ended(1), qr/^succeeded/, 'the next run');
is(one(q{SELECT count(*) FROM docs WHERE summary = 'Summarise: ' || body AND job IS NULL}), '30', 'collects the answers');

# ---- cancelled, terminated, unscheduled in the middle ----

foreach my $how ('SELECT pg_cancel_backend(pid)', 'SELECT pg_terminate_backend(pid)', q{SELECT cron.unschedule('run'), pg_cancel_backend(pid)})
{
	unschedule();
	rows(300);
	schedule('run', $call);
	start_runs();
	ok(llm_wait_for(sub { one('SELECT count(*) > 20 FROM written') eq 't' }), 'a run begins');
	one("$how FROM pg_stat_activity WHERE backend_type = 'pg_cron' AND query LIKE 'CALL%'");
	ok(llm_wait_for(sub { runs() eq '0' }), "$how: it ends");
	my $done = one('SELECT count(*) FROM written');
	ok($done > 20 && $done < 300, "half-way ($done)");
	is(one('SELECT count(*) FROM docs WHERE summary IS NOT NULL'), $done, 'what it has committed stays');
	is(one(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'it leaves no lease');
	one("SET client_min_messages = error; $call");
	is(each_once(), '300 300 0', 'the next call does the rest');
	llm_is_well($node, $how);
}

# ---- the extension goes while it runs ----

unschedule();
rows(300);
schedule('run', $call);
start_runs();
ok(llm_wait_for(sub { one('SELECT count(*) > 20 FROM written') eq 't' }), 'a run');
my $begin = time();
one(q{SET client_min_messages = error; DROP EXTENSION llm_infer CASCADE});
cmp_ok(time() - $begin, '<', 5, 'DROP EXTENSION does not wait for it');
like(ended(1), qr/^failed ERROR: /, 'it fails');
llm_extension($node);
start_runs();
ok(llm_wait_for(sub { one('SELECT count(*) FROM docs WHERE summary IS NULL') eq '0' }), 'with the extension again the next run goes on');
is(each_once(), '300 300 0', 'and no row is done twice');
llm_is_well($node, 'DROP EXTENSION under a run');

# ---- by the minute ----

SKIP:
{
	skip 'runs by the minute: with --full', 4 unless $ENV{LLM_TEST_FULL};
	unschedule();
	rows(450);
	# 450 rows, one at a time, some 200 ms each: longer than a minute
	one(q{SELECT cron.schedule('minute', '* * * * *', $$CALL llm_enrich('docs', 'summary', prompt => '@delay=200 {body}', batch_size => 1, concurrency => 1)$$)});
	my $most = 0;
	ok(llm_wait_for(sub { my $n = runs(); $most = $n if $n > $most; sleep 1;
		one(q{SELECT count(*) FROM cron.job_run_details WHERE status = 'succeeded'}) >= 2 }, 300), 'runs by the minute');
	is($most, 1, 'one that takes longer than its interval is alone');
	is(each_once(), '450 450 0', 'each row is written once');
	cmp_ok(one('SELECT count(*) FROM cron.job_run_details'), '<=', 4, 'and runs do not pile up');
}

unschedule();
$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
