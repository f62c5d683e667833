# What happens around jobs: prepared transactions, DDL on their database and table, owners that may not
# log in, quotas, worker places that run out, retention; and nobody works when there is nothing to do.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = llm_cluster('life', conf => "max_prepared_transactions = 5\nmax_worker_processes = 8");
my $db = 'postgres';

sub one { return scalar $node->safe_psql($_[1] // $db, $_[0]); }
sub submit { return one("SELECT llm_job_submit('$_[0]', 'echo')", $_[1]); }
sub wait_state { return one("SELECT llm_job_wait($_[0], '20 s')", $_[1]); }
sub workers { return one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('llm_infer launcher', 'llm_infer worker')}); }
sub idle { return llm_wait_for(sub { workers() eq '0' }); }

# ---- on demand ----

ok(idle(), 'nobody works at first');
$node->safe_psql($db, q{BEGIN; SELECT llm_job_submit('x'); ROLLBACK});
is(workers(), '0', 'ROLLBACK wakes nobody');
{
	my $id = submit('@slow=20 @tokens=100 x');
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llm_infer worker' AND query <> ''}) }),
		'the worker and what it does are in pg_stat_activity');
	my $s = llm_session($node, "SELECT llm_job_wait($id)");
	my $pid = llm_backend($node, $s);
	ok(llm_wait_for(sub { one("SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid AND state = 'active'
		AND wait_event = 'Extension'") eq 't' }), 'who waits holds no snapshot');
	is((llm_session_end($s))[0], 'done', 'and is told');
	is(one(q{SELECT count(*) FROM pg_locks WHERE relation = 'llm.job_queue'::regclass}), '0', 'idle workers have no lock on the table');
	ok(llm_wait_for(sub { one(q{SELECT n_tup_upd > 1 FROM pg_stat_user_tables WHERE relid = 'llm.job_queue'::regclass}) eq 't' }),
		'autovacuum would see what they wrote');
	ok(idle(), 'they end when there is nothing to do');
}
{
	my @first;
	foreach (1 .. 3)
	{
		idle();
		my $id = submit('x');
		wait_state($id);
		push @first, one("SELECT extract(epoch FROM started - submitted) FROM llm.jobs WHERE id = $id");
	}
	my ($least) = sort { $a <=> $b } @first;
	cmp_ok($least, '<', 1, "from nothing a job is begun within a second of its submission (@first)");
}

# What goes into the memo wakes the launcher, not those who run jobs.
{
	my $id = one(q{SELECT llm_job_submit('@slow=3 @tokens=3900 x', max_tokens => 3900)});
	ok(llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'running' }), 'a job runs');
	my $looks = one(q{CREATE TEMP TABLE looks (at timestamptz); SET llm_infer.memo = on;
		DO $$ BEGIN
			FOR i IN 1 .. 60 LOOP
				PERFORM llm_generate('memo ' || i, temperature => 0), pg_sleep(0.04), pg_stat_clear_snapshot();
				INSERT INTO looks SELECT query_start FROM pg_stat_activity WHERE backend_type = 'llm_infer worker';
			END LOOP;
		END $$;
		SELECT count(DISTINCT at) <= 2 + 2 * extract(epoch FROM max(at) - min(at)), count(DISTINCT at), max(at) - min(at) FROM looks});
	like($looks, qr/^t/, "and looks as often as without it: $looks");
	ok(llm_wait_for(sub { one('SELECT entries FROM llm.stat_memo') eq '60' }), 'while the launcher writes it');
	one("SELECT llm_job_cancel($id), llm_memo_forget()");
}

# Processor time of our processes, in hundredths of a second. One that never sleeps takes 400 of them below; the start of
# another one, which the sum then has too, takes a few.
sub ticks
{
	my $sum = 0;
	foreach my $pid (split /\n/, one(q{SELECT pid FROM pg_stat_activity WHERE backend_type ~ '^llm_infer'}))
	{
		my @f = split ' ', slurp_file("/proc/$pid/stat") =~ s/.*\) //r;
		$sum += $f[11] + $f[12];
	}
	return $sum;
}
{
	my $id = one(q{SELECT llm_job_submit('x', options => '{"not_before": "2100-01-01"}')});
	foreach my $who ('the supervisor', 'a launcher with a job that is not due')
	{
		one("SELECT llm_job_cancel($id)") if $who =~ /supervisor/;
		idle() if $who =~ /supervisor/;
		$id = one(q{SELECT llm_job_submit('x', options => '{"not_before": "2100-01-01"}')}) if $who =~ /launcher/;
		llm_wait_for(sub { workers() eq '1' }) if $who =~ /launcher/;
		sleep 1;
		my $before = ticks();
		sleep 4;
		cmp_ok(ticks() - $before, '<=', 20, "$who: hardly any processor time while idle");
	}
	one("SELECT llm_job_cancel($id)");
}
like(one(q{LISTEN llm_jobs; SELECT llm_job_submit('x') AS id \gset
	SELECT llm_job_wait(:id);}), qr/done\nAsynchronous notification "llm_jobs" with payload "\d+" received/, 'a notification with the id');

# ---- prepared ----

{
	idle();
	$node->safe_psql($db, q{BEGIN; SELECT llm_job_submit('prepared'); PREPARE TRANSACTION 'p'});
	sleep 3;
	is(one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llm_infer launcher'}), '1',
		'the launcher stays for a prepared transaction');
	$node->restart('immediate');
	$node->safe_psql($db, q{COMMIT PREPARED 'p'});
	ok(llm_wait_for(sub { one(q{SELECT state FROM llm.jobs ORDER BY id DESC LIMIT 1}) eq 'done' }),
		'COMMIT PREPARED, after a crash: the job is done without a wake-up');
}

# ---- DDL ----

{
	$node->safe_psql($db, 'CREATE DATABASE work');
	llm_extension($node, 'work');
	my $begin;
	foreach my $busy (1, 0)
	{
		my $name = $busy ? 'busy' : 'idle';
		my $id = submit($busy ? '@slow=50 @tokens=2000 x' : 'x', 'work');
		$busy ? llm_wait_for(sub { one("SELECT llm_job_status($id)", 'work') eq 'running' }) : wait_state($id, 'work');
		$begin = time();
		$node->safe_psql('work', 'VACUUM FULL llm.job_queue; ALTER TABLE llm.job_queue SET (fillfactor = 70)');
		cmp_ok(time() - $begin, '<', 5, "$name workers do not hold up VACUUM FULL and ALTER TABLE");
		$begin = time();
		$node->safe_psql($db, 'CREATE DATABASE copy TEMPLATE work');
		$node->safe_psql($db, 'ALTER DATABASE work RENAME TO renamed');
		$node->safe_psql($db, 'ALTER DATABASE renamed RENAME TO work');
		cmp_ok(time() - $begin, '<', 10, "$name workers make way for CREATE DATABASE .. TEMPLATE and RENAME");
		is(one(q{SELECT count(*) FROM llm.jobs WHERE finished IS NULL}, 'copy'), $busy, 'the copy has the jobs');
		is(one("SELECT llm_job_cancel($id); SELECT llm_job_wait($id, '20 s')", 'work') =~ s/.*\n//r, $busy ? 'cancelled' : 'done',
			'and the workers come back');
		submit('x', 'copy');
		$begin = time();
		$node->safe_psql($db, 'DROP DATABASE copy');
		cmp_ok(time() - $begin, '<', 10, 'DROP DATABASE');
	}
	foreach my $how ('a call of llm_enrich', 'a standing enrichment')
	{
		my $rows = q{SELECT i, 'row ' || i FROM generate_series(1, 3000) i};
		my $args = q{'docs', 'a', prompt => '@slow=5 @tokens=40 {body}', batch_size => 64};
		$node->safe_psql('work', "DROP TABLE IF EXISTS docs; CREATE TABLE docs (id int PRIMARY KEY, body text, a text); INSERT INTO docs $rows");
		my $s = $how =~ /call/ ? llm_session($node, "CALL llm_enrich($args)", dbname => 'work') : undef;
		$node->safe_psql('work', "SELECT llm_enrich_create('docs', $args)") unless $s;
		my $longest = 0;
		foreach my $ddl ('ALTER TABLE docs ADD x int', 'VACUUM FULL docs', 'CREATE INDEX ON docs (id, x)', "TRUNCATE docs; INSERT INTO docs $rows")
		{
			ok(llm_wait_for(sub { one('SELECT count(a) > 0 FROM docs', 'work') eq 't' }), "$how is at work");
			$begin = time();
			$node->safe_psql('work', $ddl);
			$longest = time() - $begin if time() - $begin > $longest;
		}
		cmp_ok($longest, '<', 3, sprintf('%s holds DDL of its table up for a batch at most (%.2f s)', $how, $longest));
		$begin = time();
		$node->safe_psql($db, 'CREATE DATABASE copy TEMPLATE work') unless $s;
		cmp_ok(time() - $begin, '<', 10, 'and makes way for DDL of the database');
		$node->safe_psql($db, 'DROP DATABASE copy') unless $s;
		$node->safe_psql('work', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL%'}) if $s;
		llm_session_end($s) if $s;
	}
	submit('@slow=50 @tokens=2000 x', 'work');
	llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE state = 'running'}, 'work') });
	$begin = time();
	$node->safe_psql('work', 'DROP EXTENSION llm_infer CASCADE');
	cmp_ok(time() - $begin, '<', 5, 'DROP EXTENSION while a job runs');
	ok(idle(), 'and its workers are gone');
	llm_extension($node, 'work');
	is(wait_state(submit('x', 'work'), 'work'), 'done', 'CREATE EXTENSION again');
	# The processes of the old one are still there, idle, and end as they see what was committed.
	$node->safe_psql('work', q{BEGIN; DROP EXTENSION llm_infer CASCADE; CREATE EXTENSION llm_infer;
		SELECT llm_model_register('echo', 'echo:'); SELECT llm_job_submit('x', 'echo'); COMMIT});
	ok(llm_wait_for(sub { one('SELECT state FROM llm.jobs', 'work') eq 'done' }), 'a job that a new extension begins with, which nobody waits for');
	$node->safe_psql($db, 'CREATE DATABASE stranger');
	$node->safe_psql('stranger', 'CREATE SCHEMA llm');
	$node->safe_psql($db, 'DROP DATABASE work');
	$node->restart;
	llm_engine_pid($node);
	ok(idle(), 'a database with a schema llm but without the extension: nobody stays');
	$node->safe_psql($db, 'DROP DATABASE stranger');
	llm_is_well($node, 'DDL');
}

# ---- owners ----

$node->safe_psql($db, q{CREATE ROLE a LOGIN; CREATE ROLE b; GRANT USAGE ON FOREIGN SERVER echo TO a, b;
	INSERT INTO llm.quotas VALUES ('a', 30, '1 day', NULL)});
{
	my $b = one(q{SET ROLE b; SELECT llm_job_submit('from b')});
	is(one(q{SET ROLE a; SELECT llm_job_wait(} . one(q{SET ROLE a; SELECT llm_job_submit('all that a has')}) . ')'), 'done', 'a job within the quota');
	my $a = one(q{SET ROLE a; SELECT max(i) FROM llm_job_submit(ARRAY['one', 'two', 'three', 'four']) i});
	is(wait_state(submit('mine')), 'done', 'others go on');
	ok(llm_wait_for(sub { one(q{SELECT reason FROM llm.job_workers WHERE owner = 'b'::regrole AND state = 'paused'}) eq 'role "b" may not log in' }),
		'an owner who may not log in: the reason is there');
	ok(llm_wait_for(sub { one(q{SELECT reason FROM llm.job_workers WHERE owner = 'a'::regrole AND state = 'paused'}) =~ /token quota of role "a" is spent/ }),
		'an owner whose quota is spent: the same');
	like(one("SELECT state, attempts, sqlstate FROM llm.jobs WHERE id = $a"), qr/^queued\|0\|53400$/, 'its jobs have lost no attempt');
	$node->safe_psql($db, q{ALTER ROLE b LOGIN; DELETE FROM llm.quotas});
	is(wait_state($b), 'done', 'who may log in again is served');
	is(wait_state($a), 'done', 'who has a quota again too');
}

# Requests in flight: a terminated worker gives its places back, and who waits for one sees a new quota.
{
	my $counted = q{SELECT in_flight FROM llm.stat_users WHERE role = 'a'::regrole};
	my $long = q{'@slow=50 @tokens=3000 x', max_tokens => 3000};
	$node->safe_psql($db, q{INSERT INTO llm.quotas VALUES ('a', NULL, NULL, 1)});
	my $a = one("SET ROLE a; SELECT llm_job_submit($long)");
	ok(llm_wait_for(sub { one($counted) eq '1' }), 'a job is in flight');
	one(q{SELECT pg_terminate_backend(pid, 5000) FROM llm.job_workers WHERE owner = 'a'::regrole});
	one("SELECT llm_job_cancel($a)");
	ok(llm_wait_for(sub { one($counted) eq '0' }, 10), 'not any more when its worker has been terminated');

	my $s = llm_session($node, "SET ROLE a; SELECT llm_generate($long)");
	ok(llm_wait_for(sub { one($counted) eq '1' }), 'a session has all places');
	my $first = one(q{SET ROLE a; SELECT min(i) FROM llm_job_submit(ARRAY['one', 'two', 'three']) i});
	ok(llm_wait_for(sub { one("SELECT count(*) FROM llm.jobs WHERE id >= $first AND state = 'running'") eq '3' }), 'jobs wait for it');
	my $held = llm_session($node, q{SET ROLE a; SELECT llm_generate('held')});
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM llm.stat_activity WHERE state = 'queued'}) eq '2' }), 'a call too');
	$node->safe_psql($db, q{DELETE FROM llm.quotas});
	is(one(q{SELECT string_agg(llm_job_wait(id, '5 s'), ' ') FROM llm.jobs WHERE id >= } . $first), 'done done done', 'with another quota they go on');
	is((llm_session_end($held))[0], 'held', 'the call too');

	$node->append_conf('postgresql.conf', q{llm_infer.engine_timeout = '2s'});
	$node->reload;
	ok(idle(), 'nothing is left to do'); # a worker that lives looks at quotas once a second, a new one at once
	$node->safe_psql($db, q{INSERT INTO llm.quotas VALUES ('a', NULL, NULL, 1)});
	my $last = one(q{SET ROLE a; SELECT max(i) FROM llm_job_submit(array_fill('x'::text, ARRAY[90])) i});
	# in one look: the worker comes back after a second, then after two, ...
	my $look = qq{SELECT w.reason || ': ' || (SELECT count(*) FROM llm.jobs j WHERE j.id > $last - 90
			AND (j.state, j.attempts, j.sqlstate) = ('queued', 0, '53400'))
		FROM llm.job_workers w WHERE w.owner = 'a'::regrole AND w.state = 'paused'};
	ok(llm_wait_for(sub { one($look) =~ /quota of requests in flight.*: 90$/m }, 60),
		'all jobs held for too long, at once: the worker ends and says why')
		or diag(one(q{SELECT string_agg(w::text, chr(10)) FROM llm.job_workers w}) . "\n" .
			one(qq{SELECT string_agg(concat_ws(' ', state, attempts, sqlstate, n), chr(10)) FROM
				(SELECT state, attempts, sqlstate, count(*) n FROM llm.jobs WHERE id > $last - 90 GROUP BY 1, 2, 3) j}));
	$node->append_conf('postgresql.conf', q{llm_infer.engine_timeout = '10s'});
	$node->reload;
	$node->safe_psql($db, q{DELETE FROM llm.quotas; SELECT pg_cancel_backend(} . llm_backend($node, $s) . ')');
	llm_session_end($s);
	is(wait_state($last), 'done', 'they are done afterwards');
	llm_is_well($node, 'quotas of requests in flight');
}

# More owners that cannot run than there are entries do not drive each other out without an end.
{
	$node->append_conf('postgresql.conf', 'log_min_messages = debug1');
	$node->reload;
	$node->safe_psql($db, join '; ', (map { "CREATE ROLE poor$_ LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO poor$_" } 1 .. 40),
		"INSERT INTO llm.quotas VALUES ('-', 1, '1 day')");
	$node->safe_psql($db, join '; ', map { "SET ROLE poor$_; SELECT llm_generate('x'); SELECT llm_job_submit('x')" } 1 .. 40);
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM llm.job_workers WHERE reason ~ 'is spent'}) > 25 }), 'owners wait for their quotas');
	my $offset = -s $node->logfile;
	sleep 3;
	my $starts = () = llm_log_since($node, $offset) =~ /starting background worker process "llm_infer worker"/g;
	cmp_ok($starts, '<', 150, 'few workers are started for them');
	$node->append_conf('postgresql.conf', 'log_min_messages = warning');
	$node->reload;
	$node->safe_psql($db, 'DELETE FROM llm.quotas; SELECT llm_job_cancel(id) FROM llm.jobs WHERE finished IS NULL');
	llm_is_well($node, 'owners that wait');
}

# Six owners want four places of the database; a prompt that takes long is not waited for.
{
	my $roles = 'a, b, ' . join ', ', map { "r$_" } 1 .. 4;
	$node->safe_psql($db, join '; ', map { "CREATE ROLE r$_ LOGIN; GRANT USAGE ON FOREIGN SERVER echo TO r$_" } 1 .. 4);
	my @ids = map { one("SET ROLE $_; SELECT max(i) FROM llm_job_submit(array(SELECT '\@slow=10 \@tokens=20 x' FROM generate_series(1, 100))) i") }
	  split /, /, $roles;
	my $last = one(q{SELECT llm_job_submit('small')});
	is(one("SELECT llm_job_wait($last, '15 s')"), 'done', 'an owner with a small job is served beside six with large ones');
	is(one("SELECT llm_job_wait($_, '60 s')"), 'done', 'and these end') foreach $ids[0], $ids[5];
	llm_is_well($node, 'owners');
}

# One whose job takes very long, and that was asked to make room, is not what others wait for.
{
	my $long = one(q{SET ROLE a; SELECT llm_job_submit('@slow=20 @tokens=3900 x', max_tokens => 3900)});
	ok(llm_wait_for(sub { one("SELECT llm_job_status($long)") eq 'running' }), 'a job takes very long');
	one("SET ROLE r$_; SELECT count(*) FROM llm_job_submit(array_fill('x'::text, ARRAY[15000]))") foreach 1 .. 3;
	my $last = one(q{SET ROLE r4; SELECT llm_job_submit('small')});
	is(one("SELECT llm_job_wait($last, '20 s')"), 'done', 'an owner with a small job is served beside that, and three with many');
	is(one("SELECT llm_job_status($long), count(*) > 3000 FROM llm.jobs WHERE finished IS NULL"), 'running|t', 'which are not done yet');
	$node->safe_psql($db, 'SELECT llm_job_cancel(id) FROM llm.jobs WHERE finished IS NULL');
	llm_is_well($node, 'a long job');
}

# A model whose requests take long does not stop the other models of the same owner.
{
	$node->safe_psql($db, q{SELECT llm_model_register('amber', 'echo:', '{"context_length": 4000}'), llm_model_register('zinc', 'echo:', '{"context_length": 3000}')});
	my $first = one(q{SELECT min(i) FROM llm_job_submit(array(SELECT '@slow=5 @tokens=3000 x' FROM generate_series(1, 400)), 'amber', max_tokens => 3000) i});
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE state = 'running'}) eq '96' }), 'a model has its places');
	my $last = one(q{SELECT max(i) FROM llm_job_submit(ARRAY['a', 'b', 'c'], 'zinc') i});
	is(one("SELECT llm_job_wait($last, '10 s')"), 'done', 'and the other one is served beside it');
	is(one("SELECT count(llm_job_cancel(id)) FROM llm.jobs WHERE id >= $first AND finished IS NULL"), '400', 'while none of the first is done');
	$node->safe_psql($db, q{SELECT llm_model_drop('amber'), llm_model_drop('zinc')});
	llm_is_well($node, 'a slow model');
}

# ---- a row that cannot be written ----

{
	$node->safe_psql($db, q{ALTER TABLE llm.job_queue ADD CONSTRAINT spoilt CHECK (state <> 'done' OR (result).text <> 'spoilt') NOT VALID});
	my $first = one(q{SELECT min(i) FROM llm_job_submit(array(SELECT CASE n WHEN 30 THEN 'spoilt' ELSE 'row ' || n END FROM generate_series(1, 60) n)) i});
	ok(llm_wait_for(sub { one("SELECT count(*) FROM llm.jobs WHERE id >= $first AND finished IS NULL") eq '0' }), 'a result that cannot be written: all end');
	is(one("SELECT state, sqlstate, max(attempts), count(*) FROM llm.jobs WHERE id >= $first GROUP BY 1, 2 ORDER BY 1"),
		"done||1|59\nfailed|23514|1|1", 'and it alone fails, at once');
	$node->safe_psql($db, 'ALTER TABLE llm.job_queue DROP CONSTRAINT spoilt');
	llm_is_well($node, 'a row that cannot be written');
}

# ---- places of workers ----

{
	$node->append_conf('postgresql.conf', 'max_worker_processes = 4');
	$node->safe_psql($db, "CREATE DATABASE d$_") foreach 1 .. 5;
	llm_extension($node, "d$_") foreach 1 .. 5;
	$node->restart;
	llm_engine_pid($node);
	# the supervisor and logical replication have two, and one database has work for long
	one(q{SELECT count(*) FROM llm_job_submit(array_fill('@slow=20 @tokens=50 x'::text, ARRAY[5000]))}, 'd1');
	llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE state = 'running'}, 'd1') });
	my %ids = map { ("d$_" => submit('x', "d$_")) } 2 .. 5;
	ok(llm_wait_for(sub { grep { one(q{SELECT count(*) FROM llm.job_workers WHERE reason LIKE '%max_worker_processes%'}, $_) } keys %ids }, 3)
		  || !grep({ one("SELECT llm_job_status($ids{$_})", $_) ne 'done' } keys %ids), 'who has no place says so');
	is(one("SELECT llm_job_wait($ids{$_}, '60 s')", $_), 'done', "two places for five databases: $_ is served") foreach sort keys %ids;
	my $left = one(q{SELECT count(*) FROM llm.jobs WHERE finished IS NULL}, 'd1');
	cmp_ok($left, '>', 1000, 'while the first is at work');
	ok(llm_wait_for(sub { one(q{SELECT count(*) FROM llm.jobs WHERE finished IS NULL}, 'd1') < $left - 100 }), 'which goes on');
	$node->safe_psql($db, "DROP DATABASE d$_") foreach 1 .. 5;
	llm_is_well($node, 'places of workers');
}

# ---- retention, databases ----

{
	my $id = submit('old');
	wait_state($id);
	$node->append_conf('postgresql.conf', "llm_infer.job_retention = 1\nllm_infer.databases = 'postgres, \"No Such\"'");
	my $offset = -s $node->logfile;
	$node->reload;
	ok(llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'expired' }), 'a job expires');
	like(llm_error($node, "SELECT llm_job_result($id)"), qr/ERROR:  55000: the result of job $id has expired/, 'and says so');
	idle(); # the next launcher comes by
	submit('wake');
	ok(llm_wait_for(sub { one("SELECT count(*) FROM llm.jobs WHERE id <= $id") eq '0' }, 10), 'its row is removed')
	  or diag(one('SELECT id, finished FROM llm.jobs'));
	is(one("SELECT llm_job_status($id), llm_job_wait($id)"), 'expired|expired', 'it is remembered as expired');
	like(llm_error($node, 'SELECT llm_job_status(99999999)'), qr/ERROR:  42704: /, 'an id that never was is something else');
	is(() = llm_log_since($node, $offset) =~ /database "No Such" of llm_infer.databases does not exist/g, 1, 'a database that is not there is logged, once');
}

$node->stop;
is_deeply([ llm_processes($node) ], [], 'no process is left');
done_testing();
