# Jobs travel: by dump and restore, to a standby that runs none, and over its promotion.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $primary = llm_cluster('primary', allows_streaming => 1, conf => 'max_prepared_transactions = 5');
my $roles = 'CREATE ROLE owner LOGIN; CREATE ROLE gone LOGIN; CREATE ROLE plain LOGIN';
$primary->safe_psql('postgres', "$roles; GRANT USAGE ON FOREIGN SERVER echo TO owner, gone; GRANT CREATE ON DATABASE postgres TO plain");

sub one { return scalar $_[0]->safe_psql($_[2] // 'postgres', $_[1]); }
sub workers { return one($_[0], q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('llm_infer launcher', 'llm_infer worker')}); }

# ---- dump and restore ----

my $done = one($primary, q{SET ROLE owner; SELECT llm_job_submit('done')});
is(one($primary, "SELECT llm_job_wait($done, '20 s')"), 'done', 'a job that is done');
my $later = one($primary, q{SET ROLE owner; SELECT llm_job_submit('later', options => jsonb_build_object('not_before', now() + interval '1 h'))});
my $orphan = one($primary, q{SET ROLE gone; SELECT llm_job_submit('never', options => '{"not_before": "2100-01-01"}')});
my $running = one($primary, q{SET ROLE owner; SELECT llm_job_submit('@slow=50 @tokens=100 running')});
ok(llm_wait_for(sub { one($primary, "SELECT llm_job_status($running)") eq 'running' }), 'one that runs');

my $dump = $primary->basedir . '/dump.sql';
$primary->command_ok([ 'pg_dump', '-f', $dump, $primary->connstr('postgres') ], 'a dump meanwhile');
$primary->command_ok([ 'pg_dump', '-s', '-U', 'plain', '-f', "$dump.schema", $primary->connstr('postgres') ], 'a dump of the schema by anybody');
is(one($primary, "SELECT llm_job_wait($running, '20 s')"), 'done', 'the job does not mind');
$primary->safe_psql('postgres', 'CREATE DATABASE copy');
$primary->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('copy'), '-f', $dump ], 'is restored');
is(one($primary, "SELECT id - $done, owner, state FROM llm.jobs ORDER BY id", 'copy'),
	"0|owner|done\n1|owner|queued\n2|gone|queued\n3|owner|running", 'with the jobs as they were');
is(one($primary, "SELECT (llm_job_result($done)).text", 'copy'), 'done', 'and results');
is(one($primary, "SELECT llm_job_wait($running, '20 s')", 'copy'), 'done', 'what was running in the dump runs again');
is(one($primary, q{SELECT llm_job_submit('next')}, 'copy'), $running + 1, 'ids go on');
$primary->safe_psql('postgres', 'CREATE DATABASE schema_only');
$primary->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('schema_only'), '-f', "$dump.schema" ], 'the schema alone');
is(one($primary, 'SELECT count(*) FROM llm.jobs', 'schema_only'), '0', 'has no jobs');
$primary->safe_psql('postgres', "DROP DATABASE $_") foreach qw(copy schema_only);
$primary->safe_psql('postgres', 'DROP OWNED BY gone; DROP ROLE gone');
is(one($primary, "SELECT llm_job_wait($orphan, '20 s')"), 'failed', 'the owner goes: the job fails');
llm_is_well($primary, 'dump and restore');

# ---- a standby ----

$primary->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'b', has_streaming => 1);
$standby->start;
my $long = one($primary, q{SET ROLE owner; SELECT max(i) FROM llm_job_submit(array(SELECT '@slow=20 @tokens=50 row ' || n FROM generate_series(1, 200) n)) i});
my $prepared = $primary->safe_psql('postgres', q{BEGIN; SELECT llm_job_submit('prepared'); PREPARE TRANSACTION 'p'});
$primary->wait_for_catchup($standby);
ok(llm_wait_for(sub { one($standby, q{SELECT count(*) FROM llm.jobs WHERE state IN ('queued', 'running')}) > 0 }), 'a standby shows the jobs');
is(one($standby, "SELECT (llm_job_result($done)).text, llm_job_status($later), llm_job_wait($done)"), 'done|queued|done', 'and their results');
like(llm_error($standby, q{SELECT llm_job_submit('x')}), qr/ERROR:  25006: /, 'submitting does not work');
like(llm_error($standby, "SELECT llm_job_cancel($later)"), qr/ERROR:  25006: /, 'nor cancelling');
is(workers($standby), '0', 'there are no workers');
my $s = llm_session($standby, "SELECT llm_job_wait($long, '40 s')");
ok(llm_backend($standby, $s), 'somebody waits there');
# The rest is the standby's to do.
$primary->stop('immediate');
$standby->promote;
is((llm_session_end($s))[0], 'done', 'promotion: workers start, and who waits is told');
ok(llm_wait_for(sub { one($standby, "SELECT count(*) FROM llm.jobs WHERE finished IS NULL AND id <> $later") eq '0' }), 'all jobs end');
is(one($standby, "SELECT count(*) FROM llm.jobs WHERE id > $long - 200 AND id <= $long AND left((llm_job_result(id)).text, 4) = 'row '"), '200',
	'each with its answer');
$standby->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok(llm_wait_for(sub { one($standby, "SELECT llm_job_status($prepared)") eq 'done' }), 'a prepared one too');
is(one($standby, "SELECT llm_job_cancel($later), llm_job_wait($later)"), 't|cancelled', 'and a cancel works');
llm_is_well($standby, 'promotion');

$standby->stop;
is_deeply([ llm_processes($standby), llm_processes($primary) ], [], 'no process is left');
done_testing();
