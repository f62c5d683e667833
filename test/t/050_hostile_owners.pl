# Owners who mean no good: what they hold locked, and what their SQL does, keeps no other owner's work from being done. Rows, definitions
# and jobs that they keep locked are waited for by no launcher and keep no worker; SQL that does not end loses its place to others;
# settings and locks that it leaves behind do not put the worker out.
use strict;
use warnings;
use LlmCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = llm_cluster('hostile', conf => "llm_infer.engine_timeout = '30s'");
my $db = 'postgres';
$node->safe_psql($db, q{CREATE ROLE hostile LOGIN; CREATE ROLE fair LOGIN; GRANT CREATE ON SCHEMA public TO hostile;
	GRANT USAGE ON FOREIGN SERVER echo TO hostile, fair});

sub one { return scalar $node->safe_psql($db, $_[0]); }
sub hostile { return scalar $node->safe_psql($db, "SET SESSION AUTHORIZATION hostile; $_[0]"); }

# Somebody else's job is done within the seconds.
sub fair_job
{
	my ($seconds, $name) = @_;
	my $id = one(q{SET SESSION AUTHORIZATION fair; SELECT llm_job_submit('fair')});
	my $begun = time();
	llm_wait_for(sub { one("SELECT state FROM llm.jobs WHERE id = $id") eq 'done' }, $seconds + 20);
	my $took = time() - $begun;
	cmp_ok($took, '<', $seconds, sprintf '%s: a job of another owner is done (%.1f s)', $name, $took)
	  or diag(one('TABLE llm.job_workers'));
	return;
}

# A session of the hostile role in a transaction that stays open, from when it has run the SQL until it is ended.
sub hold
{
	my ($sql) = @_;
	my $s = llm_session($node, "SET SESSION AUTHORIZATION hostile; BEGIN; $sql; SET application_name = 'holds'; SELECT pg_sleep(60)");
	llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holds'}) eq '1' }) or die 'the session did not come so far';
	return $s;
}

sub let_go
{
	my ($s) = @_;
	one(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'holds'});
	return llm_session_end($s);
}

# ---- locks ----

# A definition whose table is gone, and which is locked, is removed another time.
hostile(q{CREATE TABLE docs (id int PRIMARY KEY, body text, v text); SELECT llm_enrich_create('docs', 'docs', 'v', prompt => '{body}', backfill => false)});
my $s = hold(q{SELECT llm_enrich_pause('docs')});
hostile('DROP TABLE docs');
fair_job(4, 'a locked definition');
let_go($s);
one(q{SELECT llm_job_submit('wakes the launcher')});
ok(llm_wait_for(sub { one('SELECT count(*) FROM llm.enrichment_defs') eq '0' }), 'the definition goes');

# A job that has lost its worker, and is locked, is queued another time.
my $id = hostile(q{SELECT llm_job_submit('@slow=50 @tokens=60 x', max_tokens => 60)});
llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'running' }) or die;
$s = hold("SELECT llm_job_cancel($id)");
hostile(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'hostile' AND backend_type = 'llm_infer worker'});
fair_job(4, 'a locked job without a worker');
let_go($s);
ok(llm_wait_for(sub { one("SELECT llm_job_status($id)") eq 'done' }, 30), 'and is done when it is let go');

# Workers whose rows are locked end for others, and do them when they are let go.
hostile(join ';', map {
	"CREATE TABLE t$_ (id int PRIMARY KEY, body text, v text); INSERT INTO t$_ VALUES (1, '\@delay=1500 x');
	SELECT llm_enrich_create('t$_', 't$_', 'v', prompt => '{body}')" } 1 .. 4);
llm_wait_for(sub { one('SELECT count(*) FROM llm.stat_progress_enrich') eq '4' }) or die;
$s = hold(join ';', map { "SELECT FROM t$_ FOR UPDATE" } 1 .. 4);
fair_job(12, 'locked rows of four enrichments');
let_go($s);
ok(llm_wait_for(sub { one('SELECT ' . join ' + ', map { "(SELECT count(v) FROM t$_)" } 1 .. 4) eq '4' }, 30), 'these are done when they are let go');
hostile('SELECT llm_enrich_drop(name) FROM llm.enrichments');

# ---- SQL ----

hostile(q{
	CREATE FUNCTION does_read_only(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT set_config('default_transaction_read_only', 'on', false); SELECT t$$;
	CREATE FUNCTION does_serialize(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT set_config('default_transaction_isolation', 'serializable', false); SELECT t$$;
	CREATE FUNCTION does_unlock(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT pg_advisory_unlock_all(); SELECT t$$;
	CREATE FUNCTION does_hang(t text) RETURNS text LANGUAGE sql VOLATILE AS $$SELECT pg_sleep(600); SELECT t$$});
my $offset = -s $node->logfile;
foreach my $f (qw(read_only serialize unlock))
{
	hostile("CREATE TABLE does_$f (id int PRIMARY KEY, body text, v text); INSERT INTO does_$f SELECT i, 'row ' || i FROM generate_series(1, 200) i;
		SELECT llm_enrich_create('$f', 'does_$f', 'v', expr => 'does_$f(body)')");
	ok(llm_wait_for(sub { one("SELECT count(*) FROM does_$f WHERE v = body") eq '200' }), "all is done when the SQL does $f") or diag(one('TABLE llm.enrichments'));
}
is((() = llm_log_since($node, $offset) =~ /(WARNING|ERROR|FATAL|PANIC)/g), 0, 'and the log says nothing about it');
hostile('SELECT llm_enrich_drop(name) FROM llm.enrichments');

hostile(join ';', map { "UPDATE t$_ SET v = NULL; SELECT llm_enrich_create('t$_', 't$_', 'v', expr => 'does_hang(body)')" } 1 .. 4);
llm_wait_for(sub { one(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llm_infer enrichment' AND wait_event = 'PgSleep'}) eq '4' }) or die;
fair_job(25, 'SQL that does not end');
like(one('SELECT reason FROM llm.enrichments WHERE reason IS NOT NULL'), qr/did not end while others waited/, 'the reason is told');
hostile(q{SELECT llm_enrich_pause(name) FROM llm.enrichments});
one(q{SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE backend_type = 'llm_infer enrichment'});
hostile('SELECT llm_enrich_drop(name) FROM llm.enrichments');
llm_is_well($node, 'hostile owners');

done_testing();
